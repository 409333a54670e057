"""Values that units compute on data, a column for each, and how groups move these. Knows symmetries; no functions."""

from __future__ import annotations

from collections.abc import Iterable

from numpyro_symmetry.symmetry.hard import over
from numpyro_symmetry.symmetry.symmetry import Symmetry


def columns_of(bound: Symmetry, names: Iterable[str]) -> Symmetry:
    """The symmetry of some groups, each on an array ``(num_data, *cells, n)`` of its own name."""
    return bound.on_axes({name: (None, *over(name), name) for name in names})
