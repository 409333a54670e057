"""Constants of a model: what symmetry they leave. Knows terms and arrays."""

from __future__ import annotations

import numpy as np

from numpyro_symmetry.discovery.labels.terms import (
    ROUNDING,
    Reason,
    Term,
    Uniform,
    coloured,
    pinned,
    slice_colours,
)
from numpyro_symmetry.symmetry.arguments import is_number
from numpyro_symmetry.symmetry.components import classes

# entries of a constant above which equal slices are not looked for: such arrays are data
_MAX_COMPARED = 2_000_000


# indices of a square constant up to which relabellings of both axes at once are looked for
_MAX_JOINT = 64


def axes_of_constant(array: np.ndarray, reason: Reason) -> list[Term]:
    """Labels of the axes of a constant: uniform, or coloured by equal slices; square ones also by both axes at once."""
    if not is_number(array.dtype) or array.size > _MAX_COMPARED:
        return [pinned(n, reason) for n in array.shape]
    colours = [slice_colours(array, k) if n > 1 else None for k, n in enumerate(array.shape)]
    axes = [
        Uniform(n) if colour is None else coloured(n, colour, reason)
        for n, colour in zip(array.shape, colours, strict=True)
    ]
    for i, j in _square_axes(array):
        left, right = colours[i], colours[j]
        if left is None or right is None:
            continue
        joint = _joint_colours(array, i, j)
        if len(np.unique(joint)) < min(len(np.unique(left)), len(np.unique(right))):
            axes[i] = axes[j] = coloured(array.shape[i], joint if joint.any() else None, reason)
            break
    return axes


def _square_axes(array: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of axes of one size, the last ones first."""
    pairs = [(i, j) for j in range(array.ndim - 1, 0, -1) for i in range(j - 1, -1, -1)]
    return [(i, j) for i, j in pairs if 1 < array.shape[i] == array.shape[j] <= _MAX_JOINT]


def _joint_colours(array: np.ndarray, i: int, j: int) -> np.ndarray:
    """Equal for two indices whose exchange on both axes leaves the array alone, as in ``a + b * identity``."""
    square = np.moveaxis(array, (i, j), (-2, -1)).reshape(-1, array.shape[i], array.shape[i])

    def may_be_exchanged(index: int, alike: list[int]) -> bool:
        order = np.arange(array.shape[i])
        order[[index, alike[0]]] = alike[0], index
        return np.allclose(square[:, order][:, :, order], square, **ROUNDING)

    return np.array(classes(array.shape[i], may_be_exchanged))
