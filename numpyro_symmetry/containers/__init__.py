"""Draws in the container they came in: read as arrays, written back as the same type; and draws written for ArviZ."""

from numpyro_symmetry.containers.guide_draws import draws_of_guide, to_arviz
from numpyro_symmetry.containers.kinds import Container, model_of, read
from numpyro_symmetry.containers.plain import Members
from numpyro_symmetry.containers.regions import write_by_region
from numpyro_symmetry.containers.trace import Trace

__all__ = [
    "Container",
    "Members",
    "Trace",
    "draws_of_guide",
    "model_of",
    "read",
    "to_arviz",
    "write_by_region",
]
