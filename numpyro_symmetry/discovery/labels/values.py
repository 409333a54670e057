"""Values of a program as the walk sees them: known ones, and ones with a label for each axis. Knows terms only."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.discovery.labels.terms import ROUNDING, Reason, Term, Uniform, coloured, pinned, slice_colours
from numpyro_symmetry.symmetry.arguments import is_number
from numpyro_symmetry.symmetry.components import classes

# entries of a constant above which equal slices are not looked for: such arrays are data
_MAX_COMPARED = 2_000_000
# indices of a square constant up to which relabellings of both axes at once are looked for
_MAX_JOINT = 64


class Dependence(IntEnum):
    """On what a value may depend: constants and counters of loops, real data too, other data too, latent values too.

    Numbers can tell real data apart by moving them a little; not so whole numbers, of which two may coincide.
    """

    COUNTED = 0
    REAL = 1
    WHOLE = 2
    LATENT = 3


class Pointer(NamedTuple):
    """The axis of which a value's entries are indices, and why it is pinned as soon as they are read as numbers.

    ``wrapped``: the size of the axis was added to them, as JAX does to indices that count from the end.
    """

    axis: Term
    reason: Reason
    wrapped: bool = False


class Membership(NamedTuple):
    """Of two axes: each entry of the one belongs to an entry of its owner, as indices with this tag say."""

    axis: Term
    owner: Term
    tag: object


# part of an axis that was used on its own: the axis, the first index, and the one behind the last
Segment = tuple[Term, int, int]


class Known(NamedTuple):
    """A value that does not depend on latent values or data: made of constants, and of no part of a latent axis."""

    value: Any
    origin = Dependence.COUNTED
    pieces = frozenset[Segment]()

    @property
    def tag(self) -> object:
        """The same for equal constants."""
        return (
            (str(self.value.dtype), self.value.shape, self.value.tobytes()) if hasattr(self.value, "tobytes") else None
        )


class Typed(NamedTuple):
    """A value with a label for each of its axes.

    Attributes
    ----------
    axes
        The labels.
    columns
        The values joined along the last axis, if each is one column: indices, of which some columns are constant.
    tag
        The same for values that are the same function of the same data; ``None`` if latent values enter.
    origin
        What it is made of.
    pieces
        Parts of latent axes, taken on their own, that it is made of.
    choice
        Of a choice, entry by entry, among constants of whole numbers: what chooses, and the array that each case gives.
    points
        The axis of which its entries are indices, if they are.
    """

    axes: tuple[Term, ...]
    columns: tuple[Value, ...] | None = None
    tag: object = None
    origin: Dependence = Dependence.LATENT
    pieces: frozenset[Segment] = frozenset()
    choice: tuple[object, tuple[np.ndarray, ...]] | None = None
    points: Pointer | None = None


Value = Known | Typed


def known(value: Any) -> Known:
    """A constant as a value; random keys stay what they are."""
    if hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return Known(value)
    return Known(np.asarray(value))


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
