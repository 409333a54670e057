"""Dimensions and coordinates by name, of two holders of arrays, against axes that are counted by position.

Knows names, axes and coordinates; no values, and nothing of who gives arrays names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from numpyro_symmetry.symmetry.axes import Unsigned, closed
from numpyro_symmetry.symmetry.errors import SymmetryError
from numpyro_symmetry.symmetry.families import Axes
from numpyro_symmetry.symmetry.pytrees import has_names

Dims = Mapping[str, tuple[str, ...]]

# dimensions that count draws
DRAWS = ("chain", "draw", "sample")

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


class Stands(NamedTuple):
    """The group, or none, that stands on a dimension of a site, and the axis that this is, counted from the right."""

    site: str
    dim: str
    group: str | None
    axis: int


def groups_on(dims: Dims, axes: Axes) -> dict[str, str]:
    """Name of a dimension -> the group that stands on it."""
    return {one.dim: one.group for one in standing(dims, axes) if one.group is not None}


def standing(dims: Dims, axes: Axes) -> Iterator[Stands]:
    """What stands on each dimension that has a name."""
    for site, entries in axes.items():
        own = dims.get(site, ())
        for k, (dim, entry) in enumerate(zip(own[::-1], closed(entries, len(own))[::-1], strict=False), 1):
            if entry is None or isinstance(entry, str | Unsigned):
                yield Stands(site, dim, None if entry is None else str(getattr(entry, "group", entry)), -k)


def draw_dims(dims: Collection[Any]) -> tuple[str, ...]:
    """The dimensions, among ``dims``, that count draws; beside "chain" or "draw", "sample" is a variable's own."""
    return tuple(dim for dim in ("chain", "draw") if dim in dims) or tuple({"sample"} & set(dims))


def draws_in_front(value: Any, num: int | None = None) -> Any:
    """A value with the dimensions that count draws in front, or among the first ``num``, if dimensions have names."""
    dims = value.dims if has_names(value) else ()
    counted = draw_dims(dims)
    first = dims[: len(counted) if num is None else num]
    return value if tuple(dim for dim in first if dim in counted) == counted else value.transpose(*counted, ...)


class Names(NamedTuple):
    """Names of event dimensions by site, and coordinates by dimension, as a `Trace` has them."""

    dims: dict[str, tuple[str, ...]]
    coords: dict[str, np.ndarray]


def names_of(values: Mapping[str, Any], num_leading_dims: int | None = None) -> Names:
    """Names of arrays' event dimensions by site, and coordinates, as far as they have any.

    Event dimensions are those behind the leading ones; where their number is not known, all that count no draws.
    """
    arrays = {site: array for site, array in values.items() if has_names(array)}

    def of_event(dims: tuple[Any, ...]) -> tuple[str, ...]:
        leading = draw_dims(dims) if num_leading_dims is None else dims[:num_leading_dims]
        return tuple(str(dim) for dim in dims if dim not in leading)

    return Names(
        {site: of_event(array.dims) for site, array in arrays.items()},
        {str(dim): array[dim].values for array in arrays.values() for dim in array.dims if dim in array.xindexes},
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


def refuse_others(one: Any, other: Any, axes: Axes, called: tuple[str, str]) -> None:
    """Refuse values by site that are read alike by position, and are not alike by their names, but for those of labels.

    Raises
    ------
    SymmetryError
        Naming the site, the dimension, and what to write.
    """
    first, second = (names_of(side, 0) if isinstance(side, Mapping) else Names({}, {}) for side in (one, other))
    refuse_other_names(first, second, list(first.dims), called, free=groups_on(first.dims | second.dims, axes))


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
                yield from other_coordinates(where, dim, given, called, are_labels=dim in along)


def other_coordinates(
    where: str, dim: str, given: tuple[np.ndarray, np.ndarray], called: tuple[str, str], *, are_labels: bool = False
) -> Iterator[str]:
    """How coordinates of one dimension differ between two, with what to write."""
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
