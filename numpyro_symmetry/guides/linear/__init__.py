"""Linear-Gaussian models: read off a program, their conditionals, and sites that follow one. Knows no guide."""
