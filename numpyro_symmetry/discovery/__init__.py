"""Prove a symmetry against a model. Knows NumPyro and symmetry."""

from numpyro_symmetry.discovery.check import SymmetryCheck, check_symmetry
from numpyro_symmetry.discovery.joint import trace_model

__all__ = ["SymmetryCheck", "check_symmetry", "trace_model"]
