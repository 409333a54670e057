"""Vectors over GF(2): bases against every sum of vectors, enumerated."""

import itertools
from functools import reduce
from operator import xor

import numpy as np
import pytest

from numpyro_symmetry.symmetry.gf2 import basis_of, beyond, combinations_of, reduced_basis


def span_of(vectors):
    """Every sum of some of the vectors."""
    some = itertools.chain.from_iterable(itertools.combinations(vectors, k) for k in range(len(vectors) + 1))
    return {reduce(xor, chosen, 0) for chosen in some}


@pytest.mark.parametrize("seed", range(30))
def test_bases_span_what_the_vectors_span(seed):
    rng = np.random.default_rng(seed)
    num_bits = int(rng.integers(1, 7))
    vectors = rng.integers(0, 1 << num_bits, rng.integers(0, 8)).tolist()
    span, basis, reduced = span_of(vectors), basis_of(vectors), reduced_basis(vectors)
    assert span_of(basis) == span_of(reduced) == span
    assert 2 ** len(basis) == 2 ** len(reduced) == len(span)
    assert {0, *combinations_of(basis)} == span
    for vector in range(1 << num_bits):
        assert (beyond(basis, vector) == 0) == (beyond(reduced, vector) == 0) == (vector in span)
        # what is left is that of every vector which differs by one of the span
        assert {beyond(reduced, vector ^ one) for one in span} == {beyond(reduced, vector)}
    for k, vector in enumerate(reduced):
        assert not any(other >> (vector.bit_length() - 1) & 1 for other in (*reduced[:k], *reduced[k + 1 :]))
    # the order of the vectors makes no difference to the reduced basis
    assert reduced_basis(rng.permutation(vectors).tolist()) == reduced
    assert reduced == sorted(reduced)
