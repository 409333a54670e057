"""Gathers and scatters of constants, in NumPy, so that nothing is compiled. Knows dimension numbers; no labels.

Source: XLA's operation semantics, *Gather* and *Scatter*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode


def gather(params: dict[str, Any], operand: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Windows of an operand, one for each index; what an index out of bounds fills in where the mode says so."""
    numbers = params["dimension_numbers"]
    places, inside = _places(
        operand.shape,
        indices,
        params["slice_sizes"],
        numbers.offset_dims,
        numbers.start_index_map,
        (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims),
        dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)),
        GatherScatterMode.from_any(params["mode"]),
    )
    found = operand[places]
    # indices stay out of bounds only in the mode that fills them in, and then the program says with what
    return found if inside.all() else np.where(inside, found, np.asarray(params["fill_value"], operand.dtype))


def _scatter(combine: np.ufunc | None) -> Callable[..., np.ndarray]:
    """Updates put into windows of an operand, in order: combined with what is there, or in its place."""

    def scatter(params: dict[str, Any], operand: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        places, kept = _written(params, operand, indices, updates)
        result = operand.copy()
        if combine is None:
            result[places] = updates[kept]
        else:
            combine.at(result, places, updates[kept])
        return result

    return scatter


_COMBINED = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
SCATTERS = {"scatter": _scatter(None)} | {f"scatter-{name}": _scatter(combine) for name, combine in _COMBINED.items()}


def _written(
    params: dict[str, Any], operand: np.ndarray, indices: np.ndarray, updates: np.ndarray
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Places in the operand of updates that are kept, and a mask of these: windows that leave it are dropped."""
    numbers = params["dimension_numbers"]
    batching = numbers.operand_batching_dims
    whole = (*numbers.inserted_window_dims, *batching)
    sizes = [1] * operand.ndim
    windows = [k for k in range(operand.ndim) if k not in whole]
    for k, d in zip(windows, numbers.update_window_dims, strict=True):
        sizes[k] = updates.shape[d]
    places, inside = _places(
        operand.shape,
        indices,
        sizes,
        numbers.update_window_dims,
        numbers.scatter_dims_to_operand_dims,
        whole,
        dict(zip(batching, numbers.scatter_indices_batching_dims, strict=True)),
        GatherScatterMode.from_any(params["mode"]),
    )
    kept = np.broadcast_to(inside, updates.shape)
    return tuple(np.broadcast_to(place, updates.shape)[kept] for place in places), kept


def _places(
    shape: Sequence[int],
    indices: np.ndarray,
    sizes: Sequence[int],
    window_dims: Sequence[int],
    index_map: Sequence[int],
    without_window: Sequence[int],
    batching: dict[int, int],
    mode: GatherScatterMode,
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """For each axis of an operand the index at which every entry of the windows stands, and whether it is inside."""
    num_dims = indices.ndim - 1 + len(window_dims)
    windows = iter(window_dims)
    inside, places = np.ones((1,) * num_dims, bool), []
    for k, (length, size) in enumerate(zip(shape, sizes, strict=True)):
        if k in batching:
            start = np.arange(length).reshape([-1 if d == batching[k] else 1 for d in range(indices.ndim - 1)])
        elif k in index_map:
            start = indices[..., list(index_map).index(k)].astype(np.int64)
        else:
            start = np.zeros((1,) * (indices.ndim - 1), np.int64)
        start = np.expand_dims(start, tuple(window_dims))
        if mode == GatherScatterMode.FILL_OR_DROP:
            inside = inside & (start >= 0) & (start <= length - size)
        start = np.clip(start, 0, length - size)
        if k not in without_window:
            along = next(windows)
            start = start + np.arange(size).reshape([-1 if d == along else 1 for d in range(num_dims)])
        places.append(start)
    return tuple(np.broadcast_arrays(*places)), inside
