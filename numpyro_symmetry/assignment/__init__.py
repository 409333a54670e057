"""Batches of bilinear problems over a symmetry: linear assignment, descent, Frank–Wolfe, blocks within blocks."""

from numpyro_symmetry.assignment.linear import assign

__all__ = ["assign"]
