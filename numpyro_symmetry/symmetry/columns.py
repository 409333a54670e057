"""What units compute on data, one column a unit, and how groups move it. Knows symmetries and nothing of functions."""

from __future__ import annotations

from collections.abc import Iterable

from numpyro_symmetry.symmetry.hard import over
from numpyro_symmetry.symmetry.symmetry import Symmetry


def columns_of(bound: Symmetry, names: Iterable[str]) -> Symmetry:
    """Some groups on arrays of their own names, ``(num_data, *cells, n)``."""
    return bound.on_axes({name: (None, *over(name), name) for name in names})
