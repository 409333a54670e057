"""How an element moves one array: piece by piece, a gather along every axis that carries a group. Knows no sites."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.symmetry.axes import Axis, AxisEntry, Split, Whole, labels, num_axes
from numpyro_symmetry.symmetry.errors import SymmetryError
from numpyro_symmetry.symmetry.hard import Hard, Part, fibred_over
from numpyro_symmetry.symmetry.pieces import is_cut, joined, pieces_of

# numbers of a value above which one gather after the other is faster than a single one of the whole batch
_FEW = 64


def move(g: Mapping[str, Part], entries: tuple[AxisEntry, ...], value: Any) -> Any:
    """Move a value ``(*leading, *event)`` whose last axes have these entries, in NumPy if it is of NumPy."""
    first = value.ndim - num_axes(entries)
    lead, event = value.shape[:first], value.shape[first:]
    if not is_cut(entries):
        axes = labels(entries)
        moved = _act(g, axes, value.reshape(open_shape(entries, value.shape)))
        return moved.reshape(moved.shape[: moved.ndim - len(axes)] + event)
    flat, pieces = value.reshape(*lead, -1), pieces_of(entries, event)
    moved = [_act(g, piece.axes, piece.with_rest(flat[..., piece.indices])) for piece in pieces]
    return joined(pieces, moved, event)


def open_shape(entries: Sequence[AxisEntry], shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of a site after every `Split` is opened; leading dimensions come first, unchanged."""
    lead = len(shape) - num_axes(entries)
    opened, rest = list(shape[:lead]), iter(shape[lead:])
    for entry in entries:
        if isinstance(entry, Whole):
            opened.append(1)
        else:
            n = next(rest)
            opened += open_shape(entry.groups, entry.sizes) if isinstance(entry, Split) else [n]
    return tuple(opened)


def _act(g: Mapping[str, Part], axes: Sequence[Axis], value: Any) -> Any:
    """Move a value ``(*leading, *opened)`` whose last axes carry these labels."""
    names = [axis.group or "" for axis in axes]
    moving = [k for k, name in enumerate(names) if name in g]
    # a fibred group reads its permutation at the cell of the result, so what it is fibred over moves first
    for position in sorted(moving, key=lambda k: names[k].count("/")):
        part, cells = Hard.of(g[names[position]]), [names.index(label) for label in fibred_over(names[position])]
        part = part if axes[position].signed else Hard(part.permutation)
        value = gather_axis(value, part, position, cells, len(axes))
    return value


def gather_axis(value: Any, part: Hard, position: int, cells: list[int], event_ndim: int) -> Any:
    """Move one axis of a value ``(*leading, *event)``, the part's own axes being those at ``cells``, and this one."""
    xp: Any = np if isinstance(value, np.ndarray) else jnp
    part = part.each(xp.asarray)
    _refuse_signs(part, value.dtype)
    batch = part.permutation.shape[: part.permutation.ndim - 1 - len(cells)]
    value = value.reshape((1,) * (len(batch) - (value.ndim - event_ndim)) + value.shape)
    axis, lead = value.ndim - event_ndim + position, value.shape[: value.ndim - event_ndim]
    if xp is np and batch and not cells and batch == lead:
        flat = value.reshape(math.prod(lead), *value.shape[len(lead) :])
        return each_by_its_own(flat, part.each(lambda x: x.reshape(len(flat), -1)), position + 1).reshape(value.shape)

    def along_axis(index: Any) -> Any:
        own = index.shape[len(batch) :]
        shape = [1] * event_ndim
        for k, n in zip([*cells, position], own, strict=True):
            shape[k] = n
        order = sorted(range(len(own)), key=lambda k: [*cells, position][k])
        index = index.transpose(*range(len(batch)), *(len(batch) + k for k in order))
        return index.reshape((1,) * (value.ndim - event_ndim - len(batch)) + batch + tuple(shape))

    moved = (
        xp.take_along_axis(value, along_axis(part.permutation), axis)
        if batch or cells
        else xp.take(value, part.permutation, axis)
    )
    return moved if part.sign is None else moved * along_axis(part.sign).astype(moved.dtype)


def each_by_its_own(values: np.ndarray, part: Hard, axis: int) -> np.ndarray:
    """Values ``(batch, *shape)`` of NumPy, each of the batch moved along one axis by its own part ``(batch, n)``."""
    shape = [1] * values.ndim
    shape[0], shape[axis] = part.permutation.shape
    if values[:1].size <= _FEW:
        moved = np.take_along_axis(values, part.permutation.reshape(shape), axis)
    else:
        moved = np.empty_like(values)
        for k, permutation in enumerate(part.permutation):
            values[k].take(permutation, axis - 1, out=moved[k], mode="clip")
    if part.sign is not None:
        moved *= part.sign.reshape(shape).astype(values.dtype)
    return moved


def _refuse_signs(part: Hard, dtype: Any) -> None:
    if part.sign is not None and not (jnp.issubdtype(dtype, jnp.inexact) or jnp.issubdtype(dtype, jnp.signedinteger)):
        raise SymmetryError(f"A sign cannot apply to values of type {dtype}; wrap the group in Unsigned there.")
