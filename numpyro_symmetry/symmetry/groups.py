"""One factor of the product: its order, its elements, random elements. Knows no sites and no axes."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.symmetry.elements import Part, SignedPermutation

KINDS = ("permutation", "signed", "fixed")


class Group(NamedTuple):
    """One factor of the product: its size (``None`` until bound), its kind, and what limits it.

    Attributes
    ----------
    size
        Number ``n`` of interchangeable indices, or ``None`` before `Symmetry.bind`.
    kind
        ``"permutation"`` (order ``n!``) or ``"signed"`` (order ``2^n n!``).
    orbits
        A label for each index, if only indices of one label are interchangeable.
    over
        Labels of the axes over which the group is fibred: it has an own permutation for each of their positions.
    cells
        Sizes of those axes.
    """

    size: int | None
    kind: str
    orbits: tuple[int, ...] | None = None
    over: tuple[str, ...] = ()
    cells: tuple[int, ...] = ()

    @property
    def signed(self) -> bool:
        """Whether elements carry signs."""
        return self.kind == "signed"

    def members(self) -> list[np.ndarray]:
        """Indices of each orbit: what is interchangeable."""
        assert self.size is not None
        labels = np.zeros(self.size, int) if self.orbits is None else np.asarray(self.orbits)
        return [np.flatnonzero(labels == label) for label in np.unique(labels)]

    @property
    def orbit_sizes(self) -> tuple[int, ...]:
        """Sizes of the sets of interchangeable indices."""
        return tuple(map(len, self.members()))

    def log_order(self) -> float:
        """Logarithm of the number of elements, nats."""
        assert self.size is not None
        one = math.fsum(math.lgamma(n + 1) for n in self.orbit_sizes) + self.signed * self.size * math.log(2.0)
        return math.prod(self.cells) * one

    def __str__(self) -> str:
        if self.size is None:
            return f"{'±' * self.signed}S?"
        one = "×".join(f"{'±' * self.signed}S{n}" for n in self.orbit_sizes if n > 1 or self.signed)
        return f"({one})^{math.prod(self.cells)}" if self.cells else one or "S1"


def identity(group: Group, shape: tuple[int, ...]) -> Part:
    """The identity, for every cell of a batch."""
    assert group.size is not None
    index = jnp.broadcast_to(jnp.arange(group.size), (*shape, *group.cells, group.size))
    return SignedPermutation(index, jnp.ones_like(index)) if group.signed else index


def sample(rng_key: Array, group: Group, shape: tuple[int, ...]) -> Part:
    """Uniformly random elements."""
    key_permutation, key_sign = jax.random.split(rng_key)
    start = identity(group, shape)
    index = jnp.asarray(start.permutation if isinstance(start, SignedPermutation) else start)
    if group.orbits is None:
        permutation = jax.random.permutation(key_permutation, index, axis=-1, independent=True)
    else:
        # ranks, because a large label would swallow the random number that is added to it
        labels = np.unique(np.asarray(group.orbits), return_inverse=True)[1]
        # indices shuffled within their orbits, orbit after orbit, go to the places that the orbits hold
        shuffled = jnp.argsort(labels + jax.random.uniform(key_permutation, index.shape), axis=-1)
        permutation = jnp.zeros_like(index).at[..., np.argsort(labels, kind="stable")].set(shuffled)
    if not group.signed:
        return permutation
    return SignedPermutation(permutation, jax.random.rademacher(key_sign, permutation.shape, int))


def elements(group: Group) -> list[tuple[np.ndarray, np.ndarray]]:
    """Every element as ``(permutation, sign)``, each ``(*cells, n)``; the identity first."""
    assert group.size is not None
    n, orbits = group.size, group.members()
    signs = list(itertools.product((1, -1), repeat=n)) if group.signed else [(1,) * n]
    one = []
    for orders in itertools.product(*(itertools.permutations(orbit) for orbit in orbits)):
        permutation = np.empty(n, int)
        for orbit, order in zip(orbits, orders, strict=True):
            permutation[orbit] = order
        one += [(permutation, np.asarray(sign)) for sign in signs]
    shape = (*group.cells, n)
    return [
        (np.reshape([p for p, _ in cells], shape), np.reshape([s for _, s in cells], shape))
        for cells in itertools.product(one, repeat=math.prod(group.cells))
    ]
