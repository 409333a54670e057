"""Functions of pytrees labelled by hand with their symmetry."""

from tests.gallery.functions import unseen_linen, unseen_modules, unseen_plain
from tests.gallery.functions.case import Function

MODULES = (unseen_linen, unseen_modules, unseen_plain)
FUNCTIONS: tuple[Function, ...] = tuple(case for module in MODULES for case in module.CASES)

__all__ = ["FUNCTIONS", "Function"]
