"""Structure read off a program: labels of axes, and parities of sites. Evaluates nothing."""
