"""Where entries come to stand in gathers, scatters, slices and reshapes; of constants in NumPy, to compile nothing.

Knows parameters of operations; no labels. Source: XLA's operation semantics, *Gather* and *Scatter*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.lax import GatherDimensionNumbers, GatherScatterMode

# entries of a result up to which a gather or a scatter with constant indices is followed entry by entry
MAX_FOLLOWED = 500_000


class Windows(NamedTuple):
    """Where windows of an operand lie, as the dimension numbers of a gather and of a scatter say it.

    Attributes
    ----------
    along
        Axis of the operand -> axis of what is gathered, or of the updates, along which windows extend.
    pointed
        Axes of the operand into which the columns of the indices point.
    single
        Axes of the operand of which a window has one index, and no axis.
    batching
        Axis of the operand -> axis of the indices that goes with it.
    """

    along: dict[int, int]
    pointed: tuple[int, ...]
    single: tuple[int, ...]
    batching: dict[int, int]


def windows_of(params: Mapping[str, Any], ndim: int) -> Windows:
    """The windows of a gather or a scatter with these parameters, from or to an operand with so many axes."""
    numbers = params["dimension_numbers"]
    if isinstance(numbers, GatherDimensionNumbers):
        axes, single, pointed = numbers.offset_dims, numbers.collapsed_slice_dims, numbers.start_index_map
        batches = numbers.start_indices_batching_dims
    else:
        axes, single = numbers.update_window_dims, numbers.inserted_window_dims
        pointed, batches = numbers.scatter_dims_to_operand_dims, numbers.scatter_indices_batching_dims
    batching = dict(zip(numbers.operand_batching_dims, batches, strict=True))
    extended = [k for k in range(ndim) if k not in (*single, *batching)]
    return Windows(dict(zip(extended, axes, strict=True)), tuple(pointed), tuple(single), batching)


def gather(params: dict[str, Any], operand: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Windows of an operand, one for each index; what an index out of bounds fills in where the mode says so."""
    windows = windows_of(params, operand.ndim)
    places, inside = _places(windows, operand.shape, indices, params["slice_sizes"], params["mode"])
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
    windows = windows_of(params, operand.ndim)
    sizes = [updates.shape[windows.along[k]] if k in windows.along else 1 for k in range(operand.ndim)]
    places, inside = _places(windows, operand.shape, indices, sizes, params["mode"])
    kept = np.broadcast_to(inside, updates.shape)
    return tuple(np.broadcast_to(place, updates.shape)[kept] for place in places), kept


def _places(
    windows: Windows, shape: Sequence[int], indices: np.ndarray, sizes: Sequence[int], mode: Any
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """For each axis of an operand the index at which every entry of the windows stands, and whether it is inside."""
    num_dims = indices.ndim - 1 + len(windows.along)
    inside, places = np.ones((1,) * num_dims, bool), []
    for k, (length, size) in enumerate(zip(shape, sizes, strict=True)):
        if k in windows.batching:
            start = np.arange(length).reshape([-1 if d == windows.batching[k] else 1 for d in range(indices.ndim - 1)])
        elif k in windows.pointed:
            start = indices[..., windows.pointed.index(k)].astype(np.int64)
        else:
            start = np.zeros((1,) * (indices.ndim - 1), np.int64)
        start = np.expand_dims(start, tuple(windows.along.values()))
        if GatherScatterMode.from_any(mode) == GatherScatterMode.FILL_OR_DROP:
            inside = inside & (start >= 0) & (start <= length - size)
        start = np.clip(start, 0, length - size)
        if k in windows.along:
            start = start + np.arange(size).reshape([-1 if d == windows.along[k] else 1 for d in range(num_dims)])
        places.append(start)
    return tuple(np.broadcast_arrays(*places)), inside


def order_read(params: Mapping[str, Any], ndim: int) -> tuple[int, ...]:
    """The order in which a reshape reads the axes of its operand: columns first, where it is asked to."""
    return tuple(params.get("dimensions") or range(ndim))


def clamped(start: Any, whole: int, size: int) -> int:
    """Where a slice of this size starts: within its axis, wherever it is said to."""
    return int(np.clip(int(start), 0, whole - size))


def numbered_by(
    params: dict[str, Any], shape: Sequence[int], indices: np.ndarray, counted: np.ndarray
) -> np.ndarray | None:
    """For each entry of an operand the number of the update written to it, 0 if none; ``None`` of too many entries."""
    if math.prod(shape) > MAX_FOLLOWED:
        return None
    return SCATTERS["scatter"](params, np.zeros(shape, int), indices, counted)


def slice_numbered(numbered: np.ndarray, counted: np.ndarray) -> tuple[int, int, int] | None:
    """The axis of which only a slice is written to, the others whole and in order; its first index, and its size.

    ``numbered`` holds for each entry the number of the update written to it, 0 if none; ``counted`` those numbers.
    """
    updates = [n for n in counted.shape if n > 1]
    for k, n in enumerate(numbered.shape):
        indices = np.flatnonzero(np.moveaxis(numbered, k, 0).reshape(n, -1).any(1))
        own = [m for m in (*numbered.shape[:k], len(indices), *numbered.shape[k + 1 :]) if m > 1]
        if 0 < len(indices) < n and np.ptp(indices) == len(indices) - 1 and updates == own:
            if np.array_equal(numbered.take(indices, k).ravel(), counted.ravel()):
                return k, int(indices[0]), len(indices)
    return None
