"""Bring one point or Gaussian into another's basin: Gaussians, costs, the nearest exchange."""

from numpyro_symmetry.matching.costs import ActivationCost
from numpyro_symmetry.matching.full_gaussian import FullGaussian
from numpyro_symmetry.matching.gaussian import DiagonalGaussian
from numpyro_symmetry.matching.match import Match, match
from numpyro_symmetry.matching.nearest import NearestTransposition, nearest_transposition

__all__ = [
    "ActivationCost",
    "DiagonalGaussian",
    "FullGaussian",
    "Match",
    "NearestTransposition",
    "match",
    "nearest_transposition",
]
