"""Dimensions and coordinates by name, of a trace or of two, against axes that are counted by position.

Knows names, axes and coordinates; no values of sites.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from numpyro_symmetry.containers.labelled import DRAWS, draw_dims, names_of
from numpyro_symmetry.symmetry import SymmetryError, Unsigned
from numpyro_symmetry.symmetry.families import Axes

Dims = Mapping[str, tuple[str, ...]]

# part of their spread below which coordinates are the same, computed twice, or kept in single precision
_AS_COMPUTED = 1e-5


class Named(Protocol):
    """Whatever has names: a trace, a posterior.

    Attributes
    ----------
    dims
        Site -> names of its event dimensions.
    coords
        Name of a dimension -> its coordinates.
    """

    @property
    def dims(self) -> Dims:
        """Names of event dimensions, by site."""
        ...

    @property
    def coords(self) -> Mapping[str, np.ndarray]:
        """Coordinates, by dimension."""
        ...


class _Stands(NamedTuple):
    """The group, or none, that stands on a dimension of a site, and the axis that this is, counted from the right."""

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
    for free in (stand for stand in standing if stand.group is None and stand.dim in own):
        group, there = own[free.dim]
        for one in (stand for stand in standing if (stand.site, stand.group) == (free.site, group)):
            entries = list(axes[one.site])
            entries[one.axis], entries[free.axis] = entries[free.axis], entries[one.axis]
            raise SymmetryError(
                f"Site {one.site!r} has dimensions {dims[one.site]}. Counted from the right, group {group!r} "
                f"stands on {one.dim!r} there, and on {free.dim!r} of site {there!r}. If it stands on "
                f"{free.dim!r} of both, write {{{one.site!r}: {tuple(entries)}}} in the symmetry (or in axes=); "
                f"if not, rename that dimension of one of the two."
            )


def refuse_other_names(
    one: Named,
    other: Named,
    sites: Collection[str],
    called: tuple[str, str],
    *,
    free: Collection[str] = (),
    along: Collection[str] = (),
) -> None:
    """Refuse two traces that are read alike by position, and are not alike by their names.

    Parameters
    ----------
    one, other
        Names of their dimensions, and coordinates.
    sites
        Sites that are read from both.
    called
        What the two are called.
    free, along
        Dimensions along which coordinates say nothing; and those along which groups stand: there their order counts, in
        sites that ``one`` lacks too, and what labels are called does not.

    Raises
    ------
    SymmetryError
        Naming the site, the dimension, and what to write.
    """
    for difference in _differences(one, other, sites, called, free, along):
        raise SymmetryError(difference)


def refuse_other_draws(one: Named, other: Named, called: tuple[str, str]) -> None:
    """Refuse values that are read draw by draw, and by their coordinates are of other draws, or in another order.

    Raises
    ------
    SymmetryError
        Naming the dimension, and what to write.
    """
    for dim in DRAWS:
        if dim in one.coords and dim in other.coords:
            given = np.asarray(one.coords[dim]), np.asarray(other.coords[dim])
            for difference in _other_coordinates(f"dimension {dim!r}", dim, given, called):
                raise SymmetryError(difference)


def refuse_cost_of_others(cost: object, draws: Named, groups: Collection[str]) -> None:
    """Refuse a cost that holds arrays of other draws, or of labels in another order, by their names.

    Parameters
    ----------
    cost
        Of its attributes, arrays with named dimensions are looked at.
    draws
        The draws that are relabelled.
    groups
        Dimensions along which groups stand.

    Raises
    ------
    SymmetryError
        Naming the cost, the dimension, and what to write.
    """
    for name, array in getattr(cost, "__dict__", {}).items():
        own, called = names_of({name: array}), f"the {name} of {type(cost).__name__}"
        dims = tuple(getattr(array, "dims", ())) if own.dims else ()
        counted = draw_dims(dims)
        if dims[: len(counted)] != counted:
            raise SymmetryError(
                f"T{called[1:]} has dimensions {dims}, and is read by position, draws in front: transpose it, "
                f"{name}.transpose({', '.join(map(repr, counted))}, ...)."
            )
        refuse_other_draws(draws, own, ("the draws", called))
        for dim in own.coords.keys() & draws.coords.keys() & set(groups):
            given = np.asarray(draws.coords[dim]), np.asarray(own.coords[dim])
            for difference in _other_coordinates(
                f"dimension {dim!r}", dim, given, ("the draws", called), are_labels=True
            ):
                raise SymmetryError(difference)


def are_of_others(one: Named, other: Named, site: str, free: Collection[str]) -> bool:
    """Whether a site holds different things in two traces, by its names."""
    return any(_differences(one, other, [site], ("one", "the other"), free, ()))


def _differences(
    one: Named,
    other: Named,
    sites: Collection[str],
    called: tuple[str, str],
    free: Collection[str],
    along: Collection[str],
) -> Iterator[str]:
    """Each difference between the names of two traces, with what to write."""
    for site in sites:
        first, second = one.dims.get(site, ()), other.dims.get(site, ())
        if any(first[::-1].index(dim) != second[::-1].index(dim) for dim in set(first) & set(second)):
            yield (
                f"Site {site!r} has dimensions {first} in {called[0]} and {second} in {called[1]}. Axes are read by "
                f"position: transpose one of them, data[{site!r}].transpose(..., {', '.join(map(repr, first))})."
            )
        for dim in second:
            is_shared = dim in first or dim in along
            if is_shared and dim not in free and dim in one.coords and dim in other.coords:
                given = np.asarray(one.coords[dim]), np.asarray(other.coords[dim])
                where = f"dimension {dim!r} of site {site!r}"
                yield from _other_coordinates(where, dim, given, called, are_labels=dim in along)


def _other_coordinates(
    where: str, dim: str, given: tuple[np.ndarray, np.ndarray], called: tuple[str, str], *, are_labels: bool = False
) -> Iterator[str]:
    first, second = given
    if first.shape != second.shape or _is_same(first, second):
        return  # of other sizes: that is said elsewhere
    are = f"Coordinates of {where} are {_shown(first)} in {called[0]}"
    if set(first.tolist()) == set(second.tolist()):
        yield (
            f"{are}, and the same in another order in {called[1]}, {_shown(second)}. Entries are read by position: "
            f"bring them into one order, data.sel({{{dim!r}: other[{dim!r}]}})."
        )
    # numbers from zero stand where nobody gave any
    elif not are_labels and not any(_is_same(x, np.arange(len(x))) for x in (first, second)):
        yield (
            f"{are}, and {_shown(second)} in {called[1]}. Entries are read by position: if these are the same "
            f"things, give them the same coordinates, data.assign_coords({dim}=...)."
        )


def _is_same(first: np.ndarray, second: np.ndarray) -> bool:
    kinds = first.dtype.kind + second.dtype.kind
    if kinds == "ff":
        finite = first[np.isfinite(first)]
        spread = float(np.ptp(finite)) if finite.size else 0.0
        return np.allclose(first, second, rtol=_AS_COMPUTED, atol=_AS_COMPUTED * spread, equal_nan=True)
    if kinds in ("MM", "mm"):  # of days, or of nanoseconds
        return np.array_equal(first, second)
    return first.tolist() == second.tolist()


def _shown(values: np.ndarray) -> str:
    some = list(map(str, values[:4])) if values.dtype.kind in "Mm" else values[:4].tolist()
    return f"[{', '.join(map(repr, some))}{', …' * (len(values) > 4)}]"
