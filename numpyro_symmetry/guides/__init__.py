"""Guides that are symmetric by construction. Knows NumPyro, entropy and discovery."""

from numpyro_symmetry.guides.auto_symmetrized import AutoSymmetrized, LogFactor
from numpyro_symmetry.guides.elbo import ElboBounds

__all__ = ["AutoSymmetrized", "ElboBounds", "LogFactor"]
