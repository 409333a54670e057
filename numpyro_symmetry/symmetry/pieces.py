"""A site cut into parts on each of whose axes stands one label. Knows axes; no sizes of groups and no elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.symmetry.axes import VIRTUAL, Axis, AxisEntry, Complement, Concat, Split, labels
from numpyro_symmetry.symmetry.errors import SymmetryError


def is_cut(entries: Sequence[AxisEntry]) -> bool:
    """Whether a site is more than one array of its own entries: where a `Concat` or a `Complement` stands."""
    return any(
        isinstance(entry, Concat | Complement) or (isinstance(entry, Split) and is_cut(entry.groups))
        for entry in entries
    )


class Piece(NamedTuple):
    """A part of a site on which every axis has one label.

    Attributes
    ----------
    axes
        Its axes.
    indices
        Where its own entries stand in the flat site, with as many axes.
    complement
        The axis, of size one in ``indices``, along which the rest of a whole is to be put beside them.
    """

    axes: tuple[Axis, ...]
    indices: np.ndarray
    complement: tuple[int, Complement] | None = None

    def with_rest(self, own: Any, *, common: bool = False) -> Any:
        """Its entries ``(*leading, *shape)``: its own x and beside them total - x; if ``common``, x again."""
        if self.complement is None:
            return own
        axis, total = self.complement[0] - len(self.axes), self.complement[1].total
        if total is not None and not common and not jnp.issubdtype(own.dtype, jnp.inexact):
            raise SymmetryError(f"{self.complement[1]} stands on values of type {own.dtype}; expected real numbers.")
        rest = own if total is None or common else total - own
        return (np if isinstance(own, np.ndarray) else jnp).concatenate([own, rest], axis)

    def own(self, entries: Any) -> Any:
        """The inverse of `with_rest`."""
        if self.complement is None:
            return entries
        return entries[(..., slice(1), *[slice(None)] * (len(self.axes) - 1 - self.complement[0]))]


def joined(pieces: Sequence[Piece], values: Sequence[Any], shape: Sequence[int]) -> Any:
    """The array ``(*leading, *shape)`` of which these are the pieces, whose leading shapes broadcast."""
    own = [piece.own(x) for piece, x in zip(pieces, values, strict=True)]
    leads = [x.shape[: x.ndim - piece.indices.ndim] for piece, x in zip(pieces, own, strict=True)]
    lead = np.broadcast_shapes(*leads)
    xp: Any = np if all(isinstance(x, np.ndarray) for x in own) else jnp
    flat = [x.reshape(*mine, -1) for x, mine in zip(own, leads, strict=True)]
    flat = [x if x.shape[:-1] == lead else xp.broadcast_to(x, (*lead, x.shape[-1])) for x in flat]
    back = np.argsort(np.concatenate([piece.indices.ravel() for piece in pieces]))
    # a site that was never cut is not copied
    is_whole = len(flat) == 1 and np.array_equal(back, np.arange(len(back)))
    return (flat[0] if is_whole else xp.concatenate(flat, -1)[..., back]).reshape((*lead, *shape))


def pieces_of(entries: Sequence[AxisEntry], shape: Sequence[int]) -> list[Piece]:
    """The pieces of a site of a shape, which together hold each of its entries once."""
    return _open(tuple(entries), np.arange(math.prod(shape)).reshape(shape))


def axes_of_pieces(entries: Sequence[AxisEntry]) -> list[tuple[Axis, ...]]:
    """The axes of each piece of a site, whose other axes may be of any size."""
    own = tuple(entry for entry in entries if entry is not ...)
    shape = tuple(getattr(entry, "size", 1) for entry in own if not isinstance(entry, VIRTUAL))
    # one number seen everywhere: a flattened site may have very many
    return [piece.axes for piece in _open(own, np.broadcast_to(0, shape))]


def _open(entries: tuple[AxisEntry, ...], indices: np.ndarray) -> list[Piece]:
    shape = indices.shape
    for k, entry in enumerate(entries):
        if isinstance(entry, VIRTUAL):
            found = _open((*entries[:k], entry.group, *entries[k + 1 :]), np.expand_dims(indices, k))
            return [p._replace(complement=(k, entry)) for p in found] if isinstance(entry, Complement) else found
        if isinstance(entry, Split):
            opened = indices.reshape(*shape[:k], *entry.sizes, *shape[k + 1 :])
            return _open(entries[:k] + entry.groups + entries[k + 1 :], opened)
        if isinstance(entry, Concat):
            parts = np.split(indices, np.cumsum(entry.sizes)[:-1], axis=k)
            each = [
                _open((*entries[:k], part, *entries[k + 1 :]), x) for part, x in zip(entry.groups, parts, strict=True)
            ]
            return [piece for found in each for piece in found]
    return [Piece(labels(entries), indices)]
