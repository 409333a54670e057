"""Vectors over GF(2), as the bits of integers. Knows nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import xor


def beyond(basis: Iterable[int], vector: int) -> int:
    """The remainder of a vector over GF(2) after reduction by a basis, in its order: 0 if the basis spans it."""
    # of a vector and its sum with one of the basis, the less is that without the latter's highest bit
    return reduce(lambda left, one: min(left, left ^ one), basis, vector)


def basis_of(vectors: Iterable[int]) -> list[int]:
    """A basis of the span of vectors over GF(2), in which no vector has the highest bit of one before it."""
    basis: list[int] = []
    for vector in vectors:
        if left := beyond(basis, vector):
            basis.append(left)
    return basis


def reduced_basis(vectors: Iterable[int]) -> list[int]:
    """A basis of the span of vectors over GF(2), in which the highest bit of each vector is set in no other."""
    reduced: list[int] = []
    for vector in reversed(basis_of(vectors)):
        reduced.append(beyond(reduced, vector))
    return sorted(reduced)


def combinations_of(basis: Sequence[int]) -> list[int]:
    """Every vector but zero that a basis over GF(2) spans, those with the fewest ones first."""
    chosen = (c for k in range(1, len(basis) + 1) for c in itertools.combinations(basis, k))
    return sorted((reduce(xor, c) for c in chosen), key=lambda vector: (vector.bit_count(), vector))
