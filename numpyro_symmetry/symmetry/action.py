"""How an element moves one array: piece by piece, a gather along every axis that carries a group. Knows no sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.symmetry.axes import Axis, AxisEntry, has_concat, num_axes, open_axes, open_shape, pieces_of
from numpyro_symmetry.symmetry.elements import Element, Part, SignedPermutation, over, permutation_of
from numpyro_symmetry.symmetry.errors import SymmetryError


def move(g: Element, entries: tuple[AxisEntry, ...], value: Any) -> Any:
    """Move a value ``(*leading, *event)`` whose last axes have these entries, in NumPy if it is of NumPy."""
    xp = np if isinstance(value, np.ndarray) else jnp
    first = value.ndim - num_axes(entries)
    lead, event = value.shape[:first], value.shape[first:]
    if not has_concat(entries):
        axes = open_axes(entries)
        moved = _act(g, axes, value.reshape(open_shape(entries, value.shape)))
        return moved.reshape(moved.shape[: moved.ndim - len(axes)] + event)
    flat, pieces = value.reshape(*lead, -1), pieces_of(entries, event)
    moved = [_act(g, piece.axes, flat[..., piece.indices]) for piece in pieces]
    lead = np.broadcast_shapes(*(x.shape[: x.ndim - len(p.axes)] for x, p in zip(moved, pieces, strict=True)))
    joined = xp.concatenate(
        [
            xp.broadcast_to(x.reshape(*x.shape[: x.ndim - len(p.axes)], -1), (*lead, p.indices.size))
            for x, p in zip(moved, pieces, strict=True)
        ],
        -1,
    )
    back = np.argsort(np.concatenate([piece.indices.ravel() for piece in pieces]))
    return joined[..., back].reshape(*lead, *event)


def _act(g: Element, axes: Sequence[Axis], value: Any) -> Any:
    """Move a value ``(*leading, *opened)`` whose last axes carry these labels."""
    names = [axis.group for axis in axes]
    # a fibred group reads its permutation at the cell of the result, so what it is fibred over moves first
    for position in sorted(range(len(axes)), key=lambda k: (names[k] or "").count("/")):
        if (name := names[position]) in g:
            assert name is not None
            cells = [names.index(label) for label in over(name)]
            value = _gather_axis(value, g[name], position, cells, len(axes), axes[position].signed)
    return value


def _gather_axis(value: Any, part: Part, position: int, cells: list[int], event_ndim: int, signed: bool) -> Any:
    xp: Any = np if isinstance(value, np.ndarray) else jnp
    permutation = xp.asarray(permutation_of(part))
    batch = permutation.shape[: permutation.ndim - 1 - len(cells)]
    value = value.reshape((1,) * (len(batch) - (value.ndim - event_ndim)) + value.shape)
    axis = value.ndim - event_ndim + position

    def along_axis(index: Any) -> Any:
        own = index.shape[len(batch) :]
        shape = [1] * event_ndim
        for k, n in zip([*cells, position], own, strict=True):
            shape[k] = n
        order = sorted(range(len(own)), key=lambda k: [*cells, position][k])
        index = index.transpose(*range(len(batch)), *(len(batch) + k for k in order))
        return index.reshape((1,) * (value.ndim - event_ndim - len(batch)) + batch + tuple(shape))

    everywhere = not batch and not cells
    moved = (
        xp.take(value, permutation, axis) if everywhere else xp.take_along_axis(value, along_axis(permutation), axis)
    )
    if signed and isinstance(part, SignedPermutation):
        if not (jnp.issubdtype(moved.dtype, jnp.inexact) or jnp.issubdtype(moved.dtype, jnp.signedinteger)):
            raise SymmetryError(
                f"A sign cannot apply to values of type {moved.dtype}; wrap the group in Unsigned there."
            )
        moved = moved * along_axis(xp.asarray(part.sign)).astype(moved.dtype)
    return moved
