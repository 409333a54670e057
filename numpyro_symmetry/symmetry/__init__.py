"""What may be permuted, and how it acts. Knows numpy and jax only."""

from numpyro_symmetry.symmetry.axes import Axis, Split, Unsigned
from numpyro_symmetry.symmetry.elements import (
    Element,
    SignedPermutation,
    compose,
    inverse,
    num_transpositions,
    permutation_of,
)
from numpyro_symmetry.symmetry.errors import SymmetryError, SymmetryWarning, UnsupportedGuideError
from numpyro_symmetry.symmetry.symmetry import Group, Symmetry

__all__ = [
    "Axis",
    "Element",
    "Group",
    "SignedPermutation",
    "Split",
    "Symmetry",
    "SymmetryError",
    "SymmetryWarning",
    "Unsigned",
    "UnsupportedGuideError",
    "compose",
    "inverse",
    "num_transpositions",
    "permutation_of",
]
