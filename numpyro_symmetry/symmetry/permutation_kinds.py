"""Kinds of groups of permutations: how many elements there are, which, random ones, generators, and what is none.

A kind knows indices 0 … n-1 and neither names, orbits, fibres nor signs, which `Group` adds. One of your own is a
value, and can be passed wherever the name of one can.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax import Array


@dataclass(frozen=True)
class Kind:
    """A group of permutations for every number of indices.

    Attributes
    ----------
    name
        What it is called.
    symbol
        What is printed before the number of indices.
    log_order
        Logarithm of the number of elements for n indices, nats.
    elements
        Every element ``(order, n)``, the identity first.
    random
        Uniformly random elements for each of a batch, given ``(..., n)`` copies of 0 … n-1.
    sample
        The same of JAX, which compiles and needs a key.
    generators
        A few elements ``(count, n)`` that generate all, given 0 … n-1 in an order by which they may differ.
    contains
        Which of a batch of permutations ``(..., n)`` are elements.
    is_full
        Whether every permutation is one. Algorithms that place units by assignment need that.
    signed
        Whether each index also has a sign.

    Examples
    --------
    The rotations of a ring:

    >>> import math, jax, numpy as np
    >>> from numpyro_symmetry import Symmetry
    >>> from numpyro_symmetry.symmetry import Kind
    >>> def rotated(by, n):
    ...     return (np.arange(n) + np.asarray(by)[..., None]) % n
    >>> cyclic = Kind(
    ...     "cyclic", "C", math.log, lambda n: rotated(np.arange(n), n),
    ...     lambda rng, index: rotated(rng.integers(index.shape[-1], size=index.shape[:-1]), index.shape[-1]),
    ...     lambda key, index: (index + jax.random.randint(key, (*index.shape[:-1], 1), 0, index.shape[-1]))
    ...     % index.shape[-1],
    ...     lambda order: rotated([1], len(order)),
    ...     lambda p: (p == rotated(p[..., 0], p.shape[-1])).all(-1),
    ... )
    >>> Symmetry({"w": ("ring",)}, {"ring": cyclic}, {"ring": 4})
    Symmetry(C4 on 'ring'; log|G| = 1.4 nats)
      w: (ring)
    """

    name: str
    symbol: str
    log_order: Callable[[int], float]
    elements: Callable[[int], np.ndarray]
    random: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    sample: Callable[[Array, Array], Array]
    generators: Callable[[np.ndarray], np.ndarray]
    contains: Callable[[np.ndarray], np.ndarray]
    is_full: bool = False
    signed: bool = False

    def __repr__(self) -> str:
        return f"Kind({self.name!r})"


def _log_factorial(n: int) -> float:
    return math.lgamma(n + 1)


def _every_order(n: int) -> np.ndarray:
    return np.array(list(itertools.permutations(range(n))), int)


def _shuffled(rng: np.random.Generator, index: np.ndarray) -> np.ndarray:
    return rng.permuted(index, axis=-1)


def _sampled(key: Array, index: Array) -> Array:
    return jax.random.permutation(key, index, axis=-1, independent=True)


def cycle_and_swap(order: np.ndarray) -> np.ndarray:
    """A cycle through all, and a swap of the first two; of two indices, the cycle is the swap."""
    found = []
    for moved in [order][: len(order) > 1] + [order[:2]][: len(order) > 2]:
        permutation = np.arange(len(order))
        permutation[moved] = np.roll(moved, -1)
        found.append(permutation)
    return np.array(found, int).reshape(-1, len(order))


def _all_of_them(index: np.ndarray) -> np.ndarray:
    return np.ones(index.shape[:-1], bool)


_EVERY = (_log_factorial, _every_order, _shuffled, _sampled, cycle_and_swap, _all_of_them)
PERMUTATION = Kind("permutation", "S", *_EVERY, is_full=True)
SIGNED = Kind("signed", "±S", *_EVERY, is_full=True, signed=True)
# the kind of an axis that is no group, and only serves others to be fibred over
FIXED = "fixed"
KINDS = {kind.name: kind for kind in (PERMUTATION, SIGNED)}


def unsigned(kind: str | Kind) -> str | Kind:
    """The kind of the same permutations without signs."""
    if isinstance(kind, Kind):
        return PERMUTATION if kind == SIGNED else replace(kind, signed=False)
    return PERMUTATION if kind == "signed" else kind
