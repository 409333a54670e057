"""`AutoConditional`: which sites follow the others, and from which observations."""
