"""Functions of pytrees labelled by hand with their symmetry."""

from tests.gallery.functions import unseen_linen, unseen_modules, unseen_plain, zoo_layers, zoo_modules, zoo_sequences
from tests.gallery.functions.case import Function

MODULES = (zoo_layers, zoo_sequences, zoo_modules, unseen_linen, unseen_modules, unseen_plain)
FUNCTIONS: tuple[Function, ...] = tuple(case for module in MODULES for case in module.CASES)

__all__ = ["FUNCTIONS", "Function"]
