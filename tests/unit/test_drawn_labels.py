"""Labels drawn by a table: the probability that comes back with a draw is the one with which it is drawn."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from numpyro_symmetry.matching import drawn as draws_of_labels
from numpyro_symmetry.matching.drawn import drawn_by_any
from numpyro_symmetry.symmetry import Hard

N = 3
ORDERS = np.array(list(itertools.permutations(range(N))))
SIGNS = {False: [None], True: list(itertools.product([1, -1], repeat=N))}


def tables(is_signed, count):
    """Tables in which units, and signs, are hardly told apart."""
    rng = np.random.default_rng(1)
    return [(rng.normal(size=(N, N)), rng.normal(size=(N, N)) if is_signed else None) for _ in range(count)]


def log_weight(table, order, sign):
    """Log weight of one labelling, an entry for each slot."""
    plus, minus = table
    return sum((plus if sign is None or sign[i] > 0 else minus)[i, unit] for i, unit in enumerate(order))


def every_log_probability(table):
    """Of each labelling, by normalising all of them."""
    is_signed = table[1] is not None
    weights = np.array([log_weight(table, order, sign) for order in ORDERS for sign in SIGNS[is_signed]])
    return weights - logsumexp(weights)


def places(part, is_signed):
    """Where each draw stands among all labellings."""
    order = (part.permutation[:, None] == ORDERS).all(-1).argmax(-1)
    if not is_signed:
        return order
    return order * 2**N + (part.sign[:, None] == np.array(SIGNS[True])).all(-1).argmax(-1)


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_probabilities_are_those_of_weighing_all(is_signed, count):
    proposals = tables(is_signed, count)
    part, log_q = drawn_by_any(proposals, np.random.default_rng(0), 400)
    exact = logsumexp([every_log_probability(table) for table in proposals], 0) - np.log(count)
    here = places(part, is_signed)
    np.testing.assert_allclose(log_q, exact[here], atol=1e-12)
    often = np.bincount(here, minlength=len(exact)) / 400
    assert (np.abs(often - np.exp(exact)) < 4.5 * np.sqrt(np.exp(exact) / 400)).all()


@pytest.mark.parametrize("at_once", [1, 6])
@pytest.mark.parametrize("is_signed", [False, True])
def test_probabilities_of_all_labellings_add_up_to_one(is_signed, at_once, monkeypatch):
    """Slot after slot too, where each labelling is drawn nearly in proportion to its weight alone."""
    monkeypatch.setattr(draws_of_labels, "_MOST_AT_ONCE", at_once)
    signs = SIGNS[is_signed]
    every = Hard(np.repeat(ORDERS, len(signs), 0), np.tile(signs, (len(ORDERS), 1)) if is_signed else None)
    (table,) = tables(is_signed, 1)
    _, log_q = draws_of_labels._drawn(*table, np.random.default_rng(0), len(every.permutation), every)
    assert logsumexp(log_q) == pytest.approx(0.0, abs=1e-12)
