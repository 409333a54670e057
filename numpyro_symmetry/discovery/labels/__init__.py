"""What a program says of itself: labels of axes, and parities of sites. Knows no numbers about a model."""
