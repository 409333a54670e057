"""Vectors over GF(2), as the bits of integers. Knows nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce
from operator import xor


def reduced_basis(vectors: Sequence[int]) -> list[int]:
    """A basis of the span of vectors over GF(2), in which the highest bit of each vector is set in no other."""
    basis: list[int] = []
    for vector in vectors:
        for row in basis:
            vector = min(vector, vector ^ row)
        if vector:
            basis = [min(row, row ^ vector) if row >> (vector.bit_length() - 1) & 1 else row for row in basis]
            basis.append(vector)
    return sorted(basis)


def combinations_of(basis: Sequence[int]) -> list[int]:
    """Every vector but zero that a basis over GF(2) spans, those with the fewest ones first."""
    chosen = (c for k in range(1, len(basis) + 1) for c in itertools.combinations(basis, k))
    return sorted((reduce(xor, c) for c in chosen), key=lambda vector: (vector.bit_count(), vector))
