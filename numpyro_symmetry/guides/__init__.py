"""Guides that are symmetric by construction. Knows NumPyro, entropy and discovery."""

from numpyro_symmetry.guides.auto_symmetrized import AutoSymmetrized, LogFactor
from numpyro_symmetry.guides.bounds import ElboBounds, ElboDifference

__all__ = ["AutoSymmetrized", "ElboBounds", "ElboDifference", "LogFactor"]
