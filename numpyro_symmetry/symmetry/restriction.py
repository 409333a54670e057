"""Axes on which only some of the groups stand. Knows axes; no sizes, no kinds and no elements."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any

from numpyro_symmetry.symmetry.axes import VIRTUAL, AxisEntry, Complement, Concat, Split, Unsigned, labels
from numpyro_symmetry.symmetry.hard import fibred_over


def axes_of_groups(
    axes: Mapping[str, tuple[AxisEntry, ...]], names: Collection[str]
) -> dict[str, tuple[AxisEntry, ...]]:
    """The sites on which some groups stand, with these groups and what they are fibred over, and no others."""
    found = {}
    for site, entries in axes.items():
        here = {str(axis.group) for axis in labels(entries) if axis.group in names}
        stays = here | {label for name in here for label in fibred_over(name)}
        if here:
            left = ((entry, _kept(entry, stays)) for entry in entries)
            found[site] = tuple(now for was, now in left if now is not None or not isinstance(was, VIRTUAL))
    return found


def _kept(entry: Any, stays: Container[str]) -> Any:
    if isinstance(entry, Split | Concat):
        parts = tuple(_kept(part, stays) for part in entry.groups)
        return type(entry)(entry.sizes, parts) if any(parts) else None
    if isinstance(entry, Unsigned | VIRTUAL):
        return entry if _kept(entry.group, stays) is not None else None
    return entry if entry is ... or entry in stays else None


def with_total(axes: Mapping[str, tuple[AxisEntry, ...]], total: float | None) -> dict[str, tuple[AxisEntry, ...]]:
    """The axes with another total of every `Complement`: of differences 0, of standard deviations ``None``."""
    return {
        site: tuple(Complement(entry.group, total) if isinstance(entry, Complement) else entry for entry in entries)
        for site, entries in axes.items()
    }


def column_axes(names: Iterable[str]) -> dict[str, tuple[AxisEntry, ...]]:
    """Axes of what units compute on data, a column for each: of each group an array ``(num_data, *cells, n)``."""
    return {name: (None, *fibred_over(name), name) for name in names}
