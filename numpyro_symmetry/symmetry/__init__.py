"""What may be permuted, and how it acts. Knows numpy and jax only."""

from numpyro_symmetry.symmetry.axes import Axis, Complement, Concat, Member, Split, Unsigned, Whole
from numpyro_symmetry.symmetry.elements import compose, inverse, num_transpositions, transpositions_at_random
from numpyro_symmetry.symmetry.errors import SymmetryError, SymmetryWarning, UnsupportedGuideError, warn
from numpyro_symmetry.symmetry.findings import Finding, OutOfReach
from numpyro_symmetry.symmetry.given import as_symmetry
from numpyro_symmetry.symmetry.groups import Group
from numpyro_symmetry.symmetry.hard import Element, Hard, Part, SignedPermutation, permutation_of, permutations
from numpyro_symmetry.symmetry.permutation_kinds import Kind
from numpyro_symmetry.symmetry.plain import PlainView
from numpyro_symmetry.symmetry.shown import as_html
from numpyro_symmetry.symmetry.symmetry import Symmetry

__all__ = [
    "Axis",
    "Complement",
    "Concat",
    "Element",
    "Finding",
    "OutOfReach",
    "Group",
    "Hard",
    "Kind",
    "Member",
    "Part",
    "PlainView",
    "SignedPermutation",
    "Split",
    "Symmetry",
    "SymmetryError",
    "SymmetryWarning",
    "Unsigned",
    "UnsupportedGuideError",
    "Whole",
    "as_html",
    "as_symmetry",
    "compose",
    "inverse",
    "num_transpositions",
    "transpositions_at_random",
    "permutation_of",
    "permutations",
    "warn",
]
