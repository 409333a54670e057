"""How an element moves one array: a gather along every axis that carries a group. Knows no sites."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.symmetry.axes import Axis
from numpyro_symmetry.symmetry.elements import Element, Part, SignedPermutation, over, permutation_of
from numpyro_symmetry.symmetry.errors import SymmetryError


def act(g: Element, axes: Sequence[Axis], value: Array) -> Array:
    """Move a value ``(*leading, *opened)`` whose last axes carry these labels."""
    names = [axis.group for axis in axes]
    # a fibred group reads its permutation at the cell of the result, so what it is fibred over moves first
    for position in sorted(range(len(axes)), key=lambda k: (names[k] or "").count("/")):
        if (name := names[position]) in g:
            assert name is not None
            cells = [names.index(label) for label in over(name)]
            value = _gather_axis(value, g[name], position, cells, len(axes), axes[position].signed)
    return value


def _gather_axis(value: Array, part: Part, position: int, cells: list[int], event_ndim: int, signed: bool) -> Array:
    permutation = permutation_of(part)
    batch = permutation.shape[: permutation.ndim - 1 - len(cells)]
    value = value.reshape((1,) * (len(batch) - (value.ndim - event_ndim)) + value.shape)
    axis = value.ndim - event_ndim + position

    def along_axis(index: Array) -> Array:
        own = index.shape[len(batch) :]
        shape = [1] * event_ndim
        for k, n in zip([*cells, position], own, strict=True):
            shape[k] = n
        order = sorted(range(len(own)), key=lambda k: [*cells, position][k])
        index = index.transpose(*range(len(batch)), *(len(batch) + k for k in order))
        return index.reshape((1,) * (value.ndim - event_ndim - len(batch)) + batch + tuple(shape))

    everywhere = not batch and not cells
    moved = (
        jnp.take(value, permutation, axis) if everywhere else jnp.take_along_axis(value, along_axis(permutation), axis)
    )
    if signed and isinstance(part, SignedPermutation):
        if not (jnp.issubdtype(moved.dtype, jnp.inexact) or jnp.issubdtype(moved.dtype, jnp.signedinteger)):
            raise SymmetryError(
                f"A sign cannot apply to values of type {moved.dtype}; wrap the group in Unsigned there."
            )
        moved = moved * along_axis(jnp.asarray(part.sign)).astype(moved.dtype)
    return moved
