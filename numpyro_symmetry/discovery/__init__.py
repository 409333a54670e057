"""Find the symmetry of a model, and check one numerically. Knows NumPyro and symmetry."""

from numpyro_symmetry.discovery.activations import find_activations
from numpyro_symmetry.discovery.check import SymmetryCheck, check_symmetry
from numpyro_symmetry.discovery.find import find_symmetry, without_parameters
from numpyro_symmetry.discovery.scaling import Scaling, find_scaling

__all__ = [
    "SymmetryCheck",
    "check_symmetry",
    "Scaling",
    "find_activations",
    "find_scaling",
    "find_symmetry",
    "without_parameters",
]
