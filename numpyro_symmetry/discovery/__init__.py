"""Find the symmetry of a model, and check one numerically. Knows NumPyro and symmetry."""

from numpyro_symmetry.discovery.check import SymmetryCheck, check_symmetry
from numpyro_symmetry.discovery.enumeration import enumerated_log_density
from numpyro_symmetry.discovery.find import find_symmetry, without_parameters
from numpyro_symmetry.discovery.inputs import refuse_no_sites
from numpyro_symmetry.discovery.joint import trace_model

__all__ = [
    "SymmetryCheck",
    "check_symmetry",
    "enumerated_log_density",
    "find_symmetry",
    "refuse_no_sites",
    "trace_model",
    "without_parameters",
]
