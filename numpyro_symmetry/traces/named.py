"""What names of dimensions say where axes are counted by position.

Knows names and axes; no values of sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from numpyro_symmetry.symmetry import SymmetryError, Unsigned
from numpyro_symmetry.symmetry.axes import AxisEntry

Dims = Mapping[str, tuple[str, ...]]
Axes = Mapping[str, tuple[AxisEntry, ...]]


class _Stands(NamedTuple):
    """That a group, or none, stands on a dimension of a site, which is such an axis."""

    site: str
    dim: str
    group: str | None
    axis: int


def groups_on(dims: Dims, axes: Axes) -> dict[str, str]:
    """Name of a dimension -> the group that stands on it."""
    return {one.dim: one.group for one in _standing(dims, axes) if one.group is not None}


def _standing(dims: Dims, axes: Axes) -> Iterator[_Stands]:
    for site, entries in axes.items():
        for k, (dim, entry) in enumerate(zip(dims.get(site, ())[::-1], entries[::-1], strict=False), 1):
            if entry is None or isinstance(entry, str | Unsigned):
                yield _Stands(site, dim, None if entry is None else str(getattr(entry, "group", entry)), -k)


def refuse_names_at_odds(dims: Dims, axes: Axes) -> None:
    """Refuse a site whose names say that a group stands on another of its axes than the symmetry counts.

    Raises
    ------
    SymmetryError
        Naming the site, both dimensions, and the axes that the names speak for.
    """
    standing = list(_standing(dims, axes))
    elsewhere: dict[str, dict[str | None, str]] = {}
    for one in standing:
        if one.group is not None:
            elsewhere.setdefault(one.dim, {}).setdefault(one.group, one.site)
    # a name on which several groups stand is no group's own
    own = {dim: next(iter(groups.items())) for dim, groups in elsewhere.items() if len(groups) == 1}
    for free in standing:
        if free.group is not None or free.dim not in own:
            continue
        group, there = own[free.dim]
        for one in standing:
            if one.site == free.site and one.group == group:
                entries = list(axes[one.site])
                entries[one.axis], entries[free.axis] = entries[free.axis], entries[one.axis]
                raise SymmetryError(
                    f"Site {one.site!r} has dimensions {dims[one.site]}. Counted from the right, group {group!r} "
                    f"stands on {one.dim!r} there, and on {free.dim!r} of site {there!r}. If it stands on "
                    f"{free.dim!r} of both, write {{{one.site!r}: {tuple(entries)}}} in the symmetry (or in axes=); "
                    f"if not, rename that dimension of one of the two."
                )
