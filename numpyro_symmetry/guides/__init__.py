"""Guides that are symmetric by construction, or follow one. Knows NumPyro, entropy and discovery."""

from numpyro_symmetry.guides.auto_conditional import AutoConditional
from numpyro_symmetry.guides.auto_symmetrized import AutoSymmetrized
from numpyro_symmetry.guides.auto_unit_normal import AutoUnitNormal
from numpyro_symmetry.guides.bounds import ElboBounds, ElboDifference
from numpyro_symmetry.guides.given import Given
from numpyro_symmetry.guides.given_gaussian import GivenGaussian
from numpyro_symmetry.guides.information import LogFactor
from numpyro_symmetry.guides.unit_gaussian import UnitGaussian

__all__ = [
    "AutoConditional",
    "AutoSymmetrized",
    "AutoUnitNormal",
    "ElboBounds",
    "ElboDifference",
    "Given",
    "GivenGaussian",
    "LogFactor",
    "UnitGaussian",
]
