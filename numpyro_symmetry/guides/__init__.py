"""Guides that are symmetric by construction, or follow one. Knows NumPyro, entropy and discovery."""

from numpyro_symmetry.guides.conditional.auto_conditional import AutoConditional
from numpyro_symmetry.guides.given import Given
from numpyro_symmetry.guides.symmetrized.auto_symmetrized import AutoSymmetrized
from numpyro_symmetry.guides.symmetrized.bounds import ElboBounds, ElboDifference
from numpyro_symmetry.guides.symmetrized.information import LogFactor
from numpyro_symmetry.guides.units.auto_unit_normal import AutoUnitNormal
from numpyro_symmetry.guides.units.given_gaussian import GivenGaussian
from numpyro_symmetry.guides.units.unit_gaussian import UnitGaussian

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
