"""Guides and Gaussians with a covariance for each unit."""
