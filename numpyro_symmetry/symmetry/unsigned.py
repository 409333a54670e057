"""How a symmetry moves standard deviations: as it does values, but for the signs. Knows symmetries only."""

from __future__ import annotations

from typing import Any

from numpyro_symmetry.symmetry import Element, Symmetry
from numpyro_symmetry.symmetry.elements import permutation_of


def unsigned(symmetry: Symmetry) -> Symmetry:
    """The same action without its signs, which is that on standard deviations."""
    fixed = {name: kind for name, kind in symmetry.kinds.items() if kind == "fixed"}
    return Symmetry(symmetry.axes, fixed, symmetry.sizes, symmetry.orbits)


def permutations(element: Element) -> Element:
    """An element without its signs."""
    return {name: permutation_of(part) for name, part in element.items()}


def refuse_no_symmetry(symmetry: Any) -> None:
    """Refuse what is passed in the place of a symmetry."""
    if not isinstance(symmetry, Symmetry):
        raise TypeError(f"apply(symmetry, element): symmetry must be a Symmetry; got {type(symmetry).__name__}.")
