"""Labels of one group of one member, drawn nearly in proportion to their weight, with the probability of each draw.

Knows tables of log weights; not what is weighed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import logsumexp

from numpyro_symmetry.assignment import assign
from numpyro_symmetry.symmetry import Hard
from numpyro_symmetry.symmetry.permutation_kinds import PERMUTATION

# up to this many units, all permutations are weighed in order to draw one
_MOST_AT_ONCE = 6
# up to this many units, cycles of any length are searched for, which takes as many operations as there are triples
MOST_IN_CYCLES = 128
# a gain below this share of the largest entry under the best labels is rounding
_ROUNDING = 1e-10
# the most updates of prices, and how near to zero the log of how often each unit is wanted has to come
_MOST_PRICED, _WELL_PRICED = 500, 1e-3

# log weights [slot, unit]: of units as they are and, in a signed group, with their signs changed
Table = tuple[np.ndarray, np.ndarray | None]


def either(table: Table) -> np.ndarray:
    """``[slot, unit]``: log weights, summed over signs."""
    plus, minus = table
    return plus if minus is None else np.logaddexp(plus, minus)


def prices_of(table: np.ndarray) -> np.ndarray:
    """``(n,)`` log prices of units at which the columns of softmax(table - prices), by rows, sum to one (Sinkhorn)."""
    prices = np.zeros(table.shape[-1])
    for _ in range(_MOST_PRICED):
        left = table - prices
        wanted = logsumexp(left - logsumexp(left, -1, keepdims=True), -2)
        prices = prices + wanted
        if np.abs(wanted).max() < _WELL_PRICED:
            break
    return prices


def drawn_by_any(proposals: list[Table], rng: np.random.Generator, count: int) -> tuple[Hard, np.ndarray]:
    """``count`` draws of one group's part, each by one table chosen at random, and their log mixture probabilities."""
    found = [_drawn(*table, rng, count) for table in proposals]
    if len(found) == 1:
        return found[0]
    which, draws = rng.integers(len(found), size=count), np.arange(count)
    part = Hard(
        *(x[0] if x[0] is None else np.stack(x)[which, draws] for x in zip(*(p for p, _ in found), strict=True))
    )
    log_q = [_drawn(*table, rng, count, part)[1] for table in proposals]
    return part, logsumexp(log_q, 0) - math.log(len(found))


def _drawn(
    plus: np.ndarray, minus: np.ndarray | None, rng: np.random.Generator, count: int, given: Hard | None = None
) -> tuple[Hard, np.ndarray]:
    """Draws by one table, or the given ones, and their log probabilities by that table."""
    both = either((plus, minus))
    n = both.shape[-1]
    drawn = _drawn_of_all if n <= _MOST_AT_ONCE else _drawn_in_turn
    chosen, log_q = drawn(both, rng, count, None if given is None else given.permutation)
    if minus is None:
        return Hard(chosen), log_q
    # given the permutation, signs are independent
    log_plus, log_minus = (_entries(x - both, np.arange(n), chosen) for x in (plus, minus))
    is_plus = rng.random((count, n)) < np.exp(log_plus) if given is None else given.sign > 0
    return Hard(chosen, np.where(is_plus, 1, -1)), log_q + np.where(is_plus, log_plus, log_minus).sum(-1)


def _drawn_of_all(
    table: np.ndarray, rng: np.random.Generator, count: int, given: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Permutations drawn exactly in proportion to their weight, or the given ones, and their log probabilities."""
    n = table.shape[-1]
    every = PERMUTATION.elements(n)
    logits = table[..., np.arange(n), every].sum(-1)
    logits = np.broadcast_to(logits - logsumexp(logits, -1, keepdims=True), (count, len(every)))
    j = (logits + rng.gumbel(size=logits.shape) if given is None else (every == given[:, None]).all(-1)).argmax(-1)
    return every[j], logits[np.arange(count), j]


def _drawn_in_turn(
    table: np.ndarray, rng: np.random.Generator, count: int, given: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """As `_drawn_of_all`, nearly in that proportion, where permutations are too many: slot after slot takes a unit.

    A slot takes a unit in proportion to the weight of the best labelling that gives it this unit and earlier slots
    theirs.
    """
    n, log_q, every = table.shape[-1], np.zeros(count), np.arange(count)
    units = np.broadcast_to(assign(table), (count, n)).copy()
    # rounding is relative to entries of the best labels: those of what is no Gaussian are huge
    least = _ROUNDING * np.abs(_entries(table, np.arange(n), units)).max()
    for i in range(n - 1):
        # where all draws share a table, those that have chosen alike so far are worked on as one
        left, which = (units[:, i:], every) if table.ndim > 2 else np.unique(units[:, i:], axis=0, return_inverse=True)
        later, following = np.arange(i, n), np.zeros_like(left)
        own = _entries(table, later, left)
        back = _entries(table, later, left[:, :1]) - own
        if n <= MOST_IN_CYCLES:
            gains = np.stack([_entries(table, slot, left) for slot in later], 1) - own[..., None]
            back, following = _best_ways(gains, back, least)
        logits = _entries(table, i, left) - own[:, :1] + back
        logits, following = (x[which.ravel()] for x in (logits - logsumexp(logits, -1, keepdims=True), following))
        is_given = None if given is None else units[:, i:] == given[:, [i]]
        j = (logits + rng.gumbel(size=logits.shape) if is_given is None else is_given).argmax(-1)
        log_q += logits[every, j]
        units[:, i:] = _turned(units[:, i:], following, j)
    return units, log_q


def _best_ways(gains: np.ndarray, back: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Each slot's gain along the best path to the first slot's unit, and the next slot on that path (Bellman and Ford).

    ``gains[..., a, b]``: what slot a gains by taking the unit of slot b, from the best labels on, so that no cycle
    gains anything; ``back``: what it gains by taking the first slot's.
    """
    following, onwards = np.zeros(back.shape, int), gains.copy()
    onwards[..., 0] = -np.inf
    for _ in range(back.shape[-1]):
        longer = onwards + back[..., None, :]
        over = longer.argmax(-1)
        gained = np.take_along_axis(longer, over[..., None], -1)[..., 0]
        is_better = gained > back + least
        is_better[..., 0] = False
        if not is_better.any():
            break
        back, following = np.where(is_better, gained, back), np.where(is_better, over, following)
    return back, following


def _turned(units: np.ndarray, following: np.ndarray, first: np.ndarray) -> np.ndarray:
    """``(draw, slot)`` units after a cycle: slot 0 takes that of slot ``first``, this its follower's, and so back."""
    turned, draws, slots, taken = units.copy(), np.arange(len(units)), np.zeros_like(first), first
    for _ in range(units.shape[1]):
        turned[draws, slots] = units[draws, taken]
        goes_on = taken > 0
        draws, slots = draws[goes_on], taken[goes_on]
        taken = following[draws, slots]
    # by rounding a path may never come back: then two units are exchanged instead
    turned[draws] = units[draws]
    turned[draws, 0], turned[draws, first[draws]] = units[draws, first[draws]], units[draws, 0]
    return turned


def _entries(table: np.ndarray, slots: Any, units: np.ndarray) -> np.ndarray:
    """``(draw, slot)``: entries of a table, shared or one for each draw, at these slots and each draw's units."""
    count, n = len(units), table.shape[-1]
    return np.broadcast_to(table, (count, n, n))[np.arange(count)[:, None], slots, units]
