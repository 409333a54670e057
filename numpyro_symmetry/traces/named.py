"""Names of the dimensions of a trace, and of arrays that belong to its draws, against axes counted by position.

Knows names, axes and coordinates; no values of sites.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.named import DRAWS, Axes, Dims, Named, draw_dims, names_of, other_coordinates, standing


def refuse_names_at_odds(dims: Dims, axes: Axes) -> None:
    """Refuse a site whose names say that a group stands on another of its axes than the symmetry counts.

    Raises
    ------
    SymmetryError
        Naming the site, both dimensions, and the axes that the names speak for.
    """
    stands = list(standing(dims, axes))
    elsewhere: dict[str, dict[str | None, str]] = {}
    for one in stands:
        if one.group is not None:
            elsewhere.setdefault(one.dim, {}).setdefault(one.group, one.site)
    # a name on which several groups stand is no group's own
    own = {dim: next(iter(groups.items())) for dim, groups in elsewhere.items() if len(groups) == 1}
    for free in (stand for stand in stands if stand.group is None and stand.dim in own):
        group, there = own[free.dim]
        for one in (stand for stand in stands if (stand.site, stand.group) == (free.site, group)):
            entries = list(axes[one.site])
            entries[one.axis], entries[free.axis] = entries[free.axis], entries[one.axis]
            raise SymmetryError(
                f"Site {one.site!r} has dimensions {dims[one.site]}. Counted from the right, group {group!r} "
                f"stands on {one.dim!r} there, and on {free.dim!r} of site {there!r}. If it stands on "
                f"{free.dim!r} of both, write {{{one.site!r}: {tuple(entries)}}} in the symmetry (or in axes=); "
                f"if not, rename that dimension of one of the two."
            )


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
            for difference in other_coordinates(f"dimension {dim!r}", dim, given, called):
                raise SymmetryError(difference)


def refuse_cost_of_others(cost: object, draws: Named, groups: Collection[str]) -> None:
    """Refuse a cost that holds arrays of other draws, or of labels in another order, by their names.

    Parameters
    ----------
    cost
        Of its parts, arrays with named dimensions are looked at.
    draws
        The draws that are relabelled.
    groups
        Dimensions along which groups stand.

    Raises
    ------
    SymmetryError
        Naming the cost, the dimension, and what to write.
    """
    for name, array in _named_arrays(_parts(cost) | getattr(cost, "__dict__", {})):
        own, called = names_of({name: array}), f"the {name} of {type(cost).__name__}"
        dims, counted = array.dims, draw_dims(array.dims)
        if dims[: len(counted)] != counted:
            raise SymmetryError(
                f"T{called[1:]} has dimensions {dims}, and is read by position, draws in front: transpose it, "
                f"{name}.transpose({', '.join(map(repr, counted))}, ...)."
            )
        refuse_other_draws(draws, own, ("the draws", called))
        for dim in own.coords.keys() & draws.coords.keys() & set(groups):
            given = np.asarray(draws.coords[dim]), np.asarray(own.coords[dim])
            for difference in other_coordinates(
                f"dimension {dim!r}", dim, given, ("the draws", called), are_labels=True
            ):
                raise SymmetryError(difference)


def _named_arrays(parts: Mapping[str, Any]) -> Iterator[tuple[str, xr.DataArray]]:
    """Arrays with named dimensions among parts, and parts of these, each by the name of its part."""
    for name, part in parts.items():
        if isinstance(part, xr.DataArray):
            yield name, part
        else:
            yield from _named_arrays(_parts(part))


def _parts(whole: object) -> dict[str, Any]:
    """Entries of a mapping or a sequence, and fields of a dataclass, by name; of whatever else there are none."""
    if isinstance(whole, list | tuple):
        whole = dict(zip(getattr(whole, "_fields", range(len(whole))), whole, strict=True))
    if dataclasses.is_dataclass(whole):
        whole = {field.name: getattr(whole, field.name, None) for field in dataclasses.fields(whole)}
    return {str(name): part for name, part in whole.items()} if isinstance(whole, Mapping) else {}
