"""Bring one point or Gaussian into another's basin, and several into one: Gaussians, costs, the nearest exchange."""

from numpyro_symmetry.matching.costs import ActivationCost
from numpyro_symmetry.matching.cross_terms import CrossTerms
from numpyro_symmetry.matching.full_gaussian import FullGaussian
from numpyro_symmetry.matching.gaussian import DiagonalGaussian
from numpyro_symmetry.matching.hows import Barycenter, How, Mean, Product
from numpyro_symmetry.matching.match import Match, match
from numpyro_symmetry.matching.merge import Merge, merge
from numpyro_symmetry.matching.nearest import NearestTransposition, nearest_transposition
from numpyro_symmetry.matching.refine import Refined, refine

__all__ = [
    "ActivationCost",
    "Barycenter",
    "CrossTerms",
    "DiagonalGaussian",
    "FullGaussian",
    "How",
    "Match",
    "Mean",
    "Merge",
    "NearestTransposition",
    "Product",
    "Refined",
    "match",
    "merge",
    "nearest_transposition",
    "refine",
]
