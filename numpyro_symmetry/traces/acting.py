"""How elements act on draws: each draw of a site by its own element, and labels that are values by the inverse.

Knows elements and arrays; not how elements were found, and no containers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from numpyro_symmetry.assignment.family import State
from numpyro_symmetry.assignment.passes import computed, is_stored
from numpyro_symmetry.symmetry import Hard, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.action import move
from numpyro_symmetry.symmetry.arguments import is_floating, is_real
from numpyro_symmetry.symmetry.axes import AxisEntry, labels, names_in, num_axes, padded
from numpyro_symmetry.traces.coordinates import Arrays

# stands for no datum among labels
MISSING = -1


def act(
    values: Arrays, symmetry: Symmetry, axes: Mapping[str, tuple[AxisEntry, ...]], state: State, lead: int = 1
) -> Arrays:
    """Move ``(draw, *event)`` values of sites, each draw by its own element; types are kept.

    Parameters
    ----------
    values
        Site -> array; those of Dask ``(*leading, *event)``, of which the same comes back.
    symmetry
        With sizes.
    axes
        Site -> its axes, as in `Symmetry`; sites need not be the symmetry's, and one that no label moves has none.
    state
        Group -> elements, one for each draw.
    lead
        How many dimensions of Dask's arrays count draws.

    Raises
    ------
    SymmetryError
        If the axes do not fit the sites, or name other groups than the symmetry's.
    """
    shapes = {site: values[site].shape[lead if is_stored(values[site]) else 1 :] for site in axes}
    own = on_sites(symmetry, axes, shapes)
    signed = {name for name, group in own.groups.items() if group.signed}
    for site, entries in own.axes.items():
        flips = any(axis.signed and axis.group in signed for axis in labels(entries))
        if flips and values[site].dtype.kind != "i" and not is_floating(values[site].dtype):
            raise SymmetryError(f"{own.nouns.named(site)}: a sign cannot apply to values of type {values[site].dtype}.")
    moved = {}
    for stack in own.stacks.values():
        array = stack.of(values)
        parts = {name: state[name] for name in state if name in names_in(stack.entries)}
        of = partial(_moved, entries=stack.entries)
        new = by_chunk(of, array, parts, num_axes(stack.entries)) if is_stored(array) else of(array, parts)
        moved |= stack.apart(new)
    return moved


def by_chunk(of: Callable[[np.ndarray, State], np.ndarray], array: Any, state: State, num_core: int) -> Any:
    """Apply a function to each chunk of Dask's draws ``(*leading, *core)`` and to the elements of its draws.

    Parameters
    ----------
    of
        ``(draw, *core)`` and a batch of elements -> the same shape.
    array
        The draws; axes that are cut, and on which more than draws stand, are joined.
    state
        Group -> elements ``(draw, *cells, n)``, in the order of the leading dimensions.
    num_core
        How many of the last axes are no draws.
    """
    import dask.array as da

    leading, chunks = array.shape[: array.ndim - num_core], array.chunks[: array.ndim - num_core]
    parts, structure = jax.tree.flatten(state)
    stored = [
        da.from_array(np.reshape(x, (*leading, *x.shape[1:])), chunks=(*chunks, *x.shape[1:]))  # pyright: ignore[reportArgumentType]
        for x in parts
    ]
    # each array has core dimensions of its own
    signature = [
        f"({','.join(f'd{j}_{k}' for k in range(ndim))})"
        for j, ndim in enumerate([num_core, *(x.ndim - 1 for x in parts)])
    ]
    return da.apply_gufunc(
        partial(_of_chunk, of, structure, num_core),
        f"{','.join(signature)}->{signature[0]}",
        array,
        *stored,
        output_dtypes=array.dtype,
        allow_rechunk=True,
    )


def _of_chunk(
    of: Callable[[np.ndarray, State], np.ndarray],
    structure: Any,
    num_core: int,
    array: np.ndarray,
    *parts: np.ndarray,
) -> np.ndarray:
    lead = array.ndim - num_core
    flat, *state = (x.reshape(math.prod(x.shape[:lead]), *x.shape[lead:]) for x in (array, *parts))
    return of(flat, jax.tree.unflatten(structure, state)).reshape(array.shape)


def _moved(array: np.ndarray, state: State, *, entries: tuple[AxisEntry, ...]) -> np.ndarray:
    return move(state, entries, array)


def rename(values: np.ndarray, part: Hard) -> np.ndarray:
    """Give labels ``(draw, ...)`` the names that their slots have after relabelling; missing ones stay missing."""
    flat = values.reshape(len(values), -1)
    known = _is_label(flat)
    index = np.where(known, flat, 0).astype(int)
    renamed = np.take_along_axis(part.inverse().permutation, index, 1).astype(values.dtype)
    return np.where(known, renamed, flat).reshape(values.shape)


def refuse_trivial(symmetry: Symmetry) -> None:
    """Refuse a symmetry without groups."""
    if not symmetry.groups:
        raise SymmetryError(
            "The symmetry is trivial: there is nothing to relabel. The draws are right as they are, for ArviZ's own "
            "summaries and diagnostics."
        )


def refuse_no_labels(site: str, values: np.ndarray, group: str, size: int) -> None:
    """Refuse values that are no labels from zero: fractions, or labels counted from one.

    Raises
    ------
    SymmetryError
        Saying what was expected, what came and what to write.
    """
    # truth values are labels of two
    found = whole_numbers(values) if is_real(values.dtype) and (values.dtype != bool or size == 2) else None
    expected = f"Site {site!r} holds labels of group {group!r}; expected integers from 0 to {size - 1}"
    if found is None:
        raise SymmetryError(f"{expected}, got {values.dtype}{' that is not whole' * is_floating(values.dtype)}.")
    count, low, high = found
    if count and not 0 <= low <= high < size:
        remedy = (
            f" Counted from one, they are labels once one is subtracted: pass {site} - 1."
            if low >= 1 and high == size
            else ""
        )
        raise SymmetryError(f"{expected}, got {values.dtype} from {low:g} to {high:g}.{remedy}")


def whole_numbers(values: Any) -> tuple[int, float, float] | None:
    """How many numbers are not missing, the least and the largest of them; ``None`` if some are not whole."""
    if not values.size:
        return 0, np.inf, -np.inf
    known = _is_label(values)
    lacking = np.where(known, values, 0) != np.floor(np.where(known, values, 0))
    ends = np.where(known, values, np.inf).min(), np.where(known, values, -np.inf).max()
    found = known.sum(), lacking.any(), *ends
    count, is_fraction, low, high = computed(found) if is_stored(values) else found
    return None if is_fraction else (int(count), float(low), float(high))


def _is_label(values: np.ndarray) -> np.ndarray:
    """Which values are labels: -1, NaN, and the least of an integer type, with which arrays are padded, are none."""
    if is_floating(values.dtype):
        return (values != MISSING) & ~np.isnan(values)
    return (
        values != MISSING if values.dtype.kind != "i" else (values != MISSING) & (values != np.iinfo(values.dtype).min)
    )


def on_every_axis(symmetry: Symmetry, num_axes_of: Mapping[str, int]) -> Symmetry:
    """The same symmetry with an entry for each axis of its sites, or further ones would be taken for draws."""
    return symmetry.on_axes({site: padded(entries, num_axes_of[site]) for site, entries in symmetry.axes.items()})


def on_sites(
    symmetry: Symmetry, axes: Mapping[str, tuple[AxisEntry, ...]], shapes: Mapping[str, tuple[int, ...]]
) -> Symmetry:
    """The symmetry's groups on sites of these shapes, which may be none of its own, with an entry for each axis.

    Raises
    ------
    SymmetryError
        If the axes do not fit the shapes, or name other groups.
    """
    own = symmetry.on_axes(axes)
    for site, entries in own.axes.items():
        if unknown := sorted(names_in(entries) - set(symmetry.group_names())):
            raise SymmetryError(
                f"axes of {own.nouns.array} {site!r} name groups {unknown}; the draws were relabelled by "
                f"{sorted(symmetry.groups)}."
            )
    own = own.bind({site: np.empty(shape, bool) for site, shape in shapes.items()})
    return on_every_axis(own, {site: len(shape) for site, shape in shapes.items()})
