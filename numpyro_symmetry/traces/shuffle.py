"""Draws without identity: units of some draws exchanged at random, as wholes, over slots and draws alike.

Knows arrays and their axes; neither sites nor relabelling.
"""

from __future__ import annotations

import math

import numpy as np

from numpyro_symmetry.symmetry import Axis


class Shuffle:
    """Exchanges units at random, in the same way for all arrays on which the same groups stand."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.orders: dict[tuple[str, ...], tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, value: np.ndarray, axes: tuple[Axis, ...]) -> np.ndarray:
        """Exchange units of ``(draw, *shape)`` as wholes, over slots and draws alike, with random signs if signed."""
        at = [k + 1 for k, axis in enumerate(axes) if axis.group is not None]
        front = np.moveaxis(value, at, range(1, len(at) + 1))
        shape = front.shape[: len(at) + 1]
        pool = front.reshape(math.prod(shape), -1)
        key = tuple(axes[k - 1].group for k in at)
        if key not in self.orders:
            self.orders[key] = self._order(key, shape), self.rng.choice([-1, 1], len(pool))  # pyright: ignore
        order, sign = self.orders[key]  # pyright: ignore[reportArgumentType]
        taken = pool[order]
        if any(axes[k - 1].signed for k in at):
            taken = taken * sign[:, None]
        return np.moveaxis(taken.reshape(front.shape), range(1, len(at) + 1), at)

    def _order(self, key: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
        index = np.arange(np.prod(shape)).reshape(shape)
        if len(set(key)) == len(key):
            return self.rng.permutation(index.ravel())
        # a group on two axes moves the diagonal onto itself
        grid = np.indices(shape[1:])
        diagonal = np.all([grid[key.index(name)] == grid[k] for k, name in enumerate(key)], axis=0)
        for where in (diagonal, ~diagonal):
            index[:, where] = self.rng.permutation(index[:, where].ravel()).reshape(-1, int(where.sum()))
        return index.ravel()
