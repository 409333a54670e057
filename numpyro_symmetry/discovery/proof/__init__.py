"""Numerical proof: whether a claimed symmetry of a model holds, and which others hold beside it. Knows no labels."""
