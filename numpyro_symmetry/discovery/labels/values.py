"""Values of a program as the walk sees them: known ones, and ones with a label for each axis. Knows terms only."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.discovery.labels.terms import Reason, Term


class Origin(IntEnum):
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


# part of an axis that was used on its own: the axis, the first index, and the one behind the last
Piece = tuple[Term, int, int]


class Known(NamedTuple):
    """A value that does not depend on latent values or data: made of constants, and of no part of a latent axis."""

    value: Any
    origin = Origin.COUNTED
    pieces = frozenset[Piece]()

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
    origin: Origin = Origin.LATENT
    pieces: frozenset[Piece] = frozenset()
    choice: tuple[object, tuple[np.ndarray, ...]] | None = None
    points: Pointer | None = None


Value = Known | Typed


def known(value: Any) -> Known:
    """A constant as a value; random keys stay what they are."""
    if hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return Known(value)
    return Known(np.asarray(value))
