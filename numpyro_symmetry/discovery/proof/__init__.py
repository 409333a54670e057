"""What numbers say of a model: whether a symmetry holds, and which others do. Knows no labels."""
