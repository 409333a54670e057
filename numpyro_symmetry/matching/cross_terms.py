r"""How much of a product of Gaussians up to labels lies in other labellings than the one that is kept.

The product of symmetrized Gaussians is a mixture, one term for each choice of the members' labels against the first,

.. math:: \prod_k \frac1{|G|}\sum_g q_k(g\theta) \propto \sum_g \sum_{h_2,\dots,h_K} \prod_k q_k(h_k g\theta),

and each weighs :math:`Z(h)`. Where labellings are too many to sum, they are drawn. Knows what one labelling weighs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import logsumexp

from numpyro_symmetry.assignment import assign
from numpyro_symmetry.chunks import slices
from numpyro_symmetry.matching.gaussian_inputs import order_of
from numpyro_symmetry.matching.product import Gaussian, Natural, Tables, raised
from numpyro_symmetry.symmetry import Hard, PlainView, Symmetry
from numpyro_symmetry.symmetry.errors import warn
from numpyro_symmetry.symmetry.hard import concatenate
from numpyro_symmetry.symmetry.plain import moving_blocks
from numpyro_symmetry.symmetry.shown import as_html

# labellings that are enumerated, draws of labels where there are more, and numbers that all of them may look at
_MOST_LABELLINGS, _NUM_DRAWS, _MOST_NUMBERS = 20_000, 400, 2e7
# labels of blocks for each of which those of units in them are drawn
_MOST_PARTS = 24
# units whose labels are all weighed where they are drawn
_MOST_AT_ONCE = 6
# units up to which circles of any length are looked for, which takes as many operations as there are triples of units
_MOST_IN_CIRCLES = 128
# of the largest number: less than that is no gain
_ROUNDING = 1e-10


class CrossTerms(NamedTuple):
    """The share of a product that lies in other labellings than the one that was kept.

    Attributes
    ----------
    share, error
        From 0 to 1, and its Monte Carlo standard error, zero where all labellings were summed.
    is_exact
        Whether they were; else the sum is that over all exchanges of two units of one member, and an unbiased estimate
        of the rest.
    """

    share: float
    error: float
    is_exact: bool

    def __str__(self) -> str:
        error = "" if self.is_exact else f" ± {self.error:.1g}"
        return f"{self.share:.3g}{error} of the product lies in other labellings"

    __repr__ = __str__
    _repr_html_ = as_html


def cross_terms(
    members: Sequence[Gaussian], symmetry: Symmetry, prior: Natural | None, rng: np.random.Generator
) -> CrossTerms:
    """How much of the product lies in other labellings than that in which members are given.

    Parameters
    ----------
    members
        Gaussians of one kind, labelled alike.
    symmetry
        Bound.
    prior
        Of which all but one copies are divided out.
    rng
        For draws of labels, where they are too many to enumerate.

    Warns
    -----
    SymmetryWarning
        If not all labels can be drawn, so that the share is too low.
    """
    rest, log_count = _rest(members, prior), (len(members) - 1) * symmetry.log_order()
    size = max(rest.precision.size, 1)
    if log_count <= math.log(min(_MOST_LABELLINGS, max(_MOST_NUMBERS / size, 1.0))) + 1e-9:
        return _enumerated([Natural.of(member) for member in members[1:]], rest, symmetry, members[0].loc)
    return _drawn_in_parts(members, symmetry, prior, rng)


def _drawn_in_parts(
    members: Sequence[Gaussian], symmetry: Symmetry, prior: Natural | None, rng: np.random.Generator
) -> CrossTerms:
    """Where blocks move, and units in them, one of the two levels is enumerated, and the other one drawn.

    Every element is one of the latter after one of the former.
    """
    drawn = PlainView.of(symmetry, members[0].loc).whole
    apart = symmetry.restrict([name for name in symmetry.groups if name not in drawn.groups])
    if (len(members) - 1) * apart.log_order() > math.log(_MOST_PARTS) + 1e-9:
        warn(
            f"Groups {list(moving_blocks(symmetry))} move blocks in which others move, and there are too many labels "
            f"to try them all: {list(apart.groups)} are held still, and what other labels of these hold of the product "
            "is not in the share of other labellings, which is too low by that."
        )
        apart = apart.restrict([])
    parts = [_Draws(Tables(some, _rest(some, prior), drawn)) for some in _placed_apart(members, apart, drawn, prior)]
    log_unit, home, beside, error = np.transpose([part.estimate(rng, len(parts)) for part in parts])
    # against the heaviest: labels of a level that is not matched may weigh any number of nats more than what is kept
    weights = np.exp(log_unit - log_unit.max())
    others = (weights * beside).sum() + (weights * home)[1:].sum()
    total = weights[0] + others
    error = np.hypot.reduce(weights * error) * weights[0] / total**2
    return CrossTerms(float(others / total), float(error), False)


def _placed_apart(
    members: Sequence[Gaussian], apart: Symmetry, drawn: Symmetry, prior: Natural | None
) -> Iterator[Sequence[Gaussian]]:
    """Members as they are; then under other elements that are enumerated, and the best labels of those drawn there."""
    yield members
    every, count = apart.elements(), round(math.exp(apart.log_order()))
    # the identity comes first
    for chosen in list(itertools.product(range(count), repeat=len(members) - 1))[1:]:
        steps = [jax.tree.map(lambda x, k=k: x[k], every) for k in chosen]
        moved = [members[0], *(one.apply(apart, step) for one, step in zip(members[1:], steps, strict=True))]
        yield [one.apply(drawn, g) for one, g in zip(moved, raised(moved, drawn, prior), strict=True)]


def _rest(members: Sequence[Gaussian], prior: Natural | None) -> Natural:
    """The first member, and what is divided out."""
    first = Natural.of(members[0])
    return first if prior is None else first.plus(prior, 1.0 - len(members))


def _enumerated(others: list[Natural], rest: Natural, symmetry: Symmetry, loc: dict[str, Any]) -> CrossTerms:
    """All labellings, summed."""
    orders, total = order_of(symmetry, symmetry.elements(), loc), Natural(*(x[None] for x in rest))
    for one in others:
        every = one.moved(*orders)
        total = Natural(*((x[:, None] + y).reshape(-1, *y.shape[1:]) for x, y in zip(total, every, strict=True)))
    # the first of all is what is kept, for the identity is enumerated first
    log_weights = total.log_partition()
    return CrossTerms(max(0.0, -math.expm1(log_weights[0] - logsumexp(log_weights))), 0.0, True)


class _Draws:
    """Labels of one member after another, drawn nearly in proportion to what they weigh.

    Each is drawn given those before it alone: beside those to come, where they are, what several do together would
    look unlikely, and hardly be drawn. Within a member and a group, in proportion to the weight of the labelling that
    results if nothing else were to move; of many units nearly so.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables, self.count = tables, len(tables.naturals)
        self.at_home = float(tables.all.log_partition())
        # with a prior divided out, the labels from which others are drawn may be no Gaussian
        self.has_home = math.isfinite(self.at_home)
        self.divided_out = tables.own_total.plus(reduce(Natural.plus, tables.own), -1.0)

    def estimate(self, rng: np.random.Generator, num_parts: int) -> tuple[float, float, float, float]:
        """A log weight; against it what is kept, all else, of which exchanges of two units are exact, and an error.

        ``num_parts``: how many such estimates are made.
        """
        near, tables = self._near() if self.has_home else 0.0, self.tables
        pairs = sum((group.size or 0) ** 2 for group in tables.groups.values())
        work = pairs * self.count * max(tables.all.first.size, 1) * num_parts
        num_draws = int(np.clip(10.0 * _MOST_NUMBERS / max(work, 1), 16, _NUM_DRAWS))
        # a table for each draw, and its precision, are in memory
        size = max(tables.all.precision.size, *((group.size or 0) ** 2 for group in tables.groups.values()))
        chunks = [self._log_weights(rng, items.stop - items.start) for items in slices(num_draws, size)]
        log_weights = np.concatenate(chunks)
        log_unit, home = self.at_home if self.has_home else float(log_weights.max()), float(self.has_home)
        if not math.isfinite(log_unit):
            return log_unit, home, 0.0, 0.0
        weights = np.exp(log_weights - log_unit)
        rest, error = float(weights.mean()), float(weights.std(ddof=1)) / math.sqrt(num_draws)
        # draws that saw nothing else saw too few; of uncoupled groups two exchanges weigh about the square of one
        unseen = (home + near + rest) / num_draws
        has_near = self.has_home and tables.is_diagonal and not tables.are_coupled()
        unseen = min(unseen, near**2) if has_near else unseen
        return log_unit, home, near + rest, max(error, unseen)

    def _near(self) -> float:
        """What all exchanges of two units of one member, and changes of one sign, weigh together."""
        if not self.tables.is_diagonal:
            return 0.0
        total = 0.0
        # of two members, moving one is moving the other back
        for k in range(1 if self.count == 2 else 0, self.count):
            for name in self.tables.separate():
                plus, minus = self.tables.table(k, name, {}, self.tables.all)
                either, home = plus if minus is None else np.logaddexp(plus, minus), np.diag(plus)
                pairs = either + either.T - home[:, None] - home
                total += float(np.exp(pairs[np.triu_indices(len(home), 1)]).sum())
                total += 0.0 if minus is None else float(np.exp(np.diag(minus) - home).sum())
        return total

    def _log_weights(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Of some draws of all labels, over how likely they were drawn; minus infinity if they are counted already."""
        tables, log_q, states = self.tables, np.zeros(count), []
        total, so_far = tables.all, tables.own[0]
        for k in range(1, self.count):
            state = dict[str, Hard]()
            so_far = so_far.plus(tables.own[k]).plus(self.divided_out, 1.0 / (self.count - 1))
            for name in tables.groups:
                drawn, log_prob = _drawn(*tables.table(k, name, state, so_far), rng, count)
                state, log_q = state | {name: drawn}, log_q + log_prob
            states.append(state)
            order = tables.order(state)
            total, so_far = (
                whole.plus(part[k], -1.0).plus(part[k].moved(*order))
                for whole, part in ((total, tables.naturals), (so_far, tables.own))
            )
        log_weights = total.log_partition() - log_q
        return np.where(self._is_counted(states), -np.inf, log_weights) if self.has_home else log_weights

    def _is_counted(self, states: list[dict[str, Hard]]) -> np.ndarray:
        """Which draws keep all labels, or have those of `_near`: of one member two exchanged units, or one sign."""
        # (member, draw, unit)
        parts = {n: concatenate([state[n].each(lambda x: x[None]) for state in states]) for n in self.tables.groups}
        stays = {name: _is_still(part) for name, part in parts.items()}
        moves = ~np.all(list(stays.values()), 0)
        if not self.tables.is_diagonal:
            return ~moves.any(0)
        # if all others move alike it is the first that moves back
        alike = np.all([part.is_same(part.at(slice(1))).all((0, -1)) for part in parts.values()], 0)
        at = moves.argmax(0), np.arange(moves.shape[1])
        is_one_group = sum(~stay[at] for stay in stays.values()) == 1
        is_least = np.any([~stays[name][at] & _is_least(parts[name].at(at)) for name in self.tables.separate()], 0)
        return ~moves.any(0) | ((moves.sum(0) == 1) | alike) & is_one_group & is_least


def _drawn(plus: np.ndarray, minus: np.ndarray | None, rng: np.random.Generator, count: int) -> tuple[Hard, np.ndarray]:
    """One group's part for one member, as many draws of it, and their log probabilities."""
    either = plus if minus is None else np.logaddexp(plus, minus)
    n = either.shape[-1]
    chosen, log_q = (_drawn_of_all if n <= _MOST_AT_ONCE else _drawn_in_turn)(either, rng, count)
    if minus is None:
        return Hard(chosen), log_q
    # signs do not depend on each other, given where units are
    log_plus, log_minus = (_entries(x - either, np.arange(n), chosen) for x in (plus, minus))
    is_plus = rng.random((count, n)) < np.exp(log_plus)
    return Hard(chosen, np.where(is_plus, 1, -1)), log_q + np.where(is_plus, log_plus, log_minus).sum(-1)


def _drawn_of_all(table: np.ndarray, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Permutations in proportion to what they weigh, and their log probabilities."""
    n = table.shape[-1]
    every = np.array(list(itertools.permutations(range(n))))
    logits = table[..., np.arange(n), every].sum(-1)
    logits = np.broadcast_to(logits - logsumexp(logits, -1, keepdims=True), (count, len(every)))
    j = (logits + rng.gumbel(size=logits.shape)).argmax(-1)
    return every[j], logits[np.arange(count), j]


def _drawn_in_turn(table: np.ndarray, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The same where permutations are too many, nearly in that proportion: slot after slot takes a unit.

    Each in proportion to what the best labelling weighs in which it has that unit, and those before it theirs.
    """
    n, log_q, every = table.shape[-1], np.zeros(count), np.arange(count)
    units, least = np.broadcast_to(assign(table), (count, n)).copy(), _ROUNDING * np.abs(table).max()
    for i in range(n - 1):
        # of a table that all draws share, those that have chosen alike are one
        left, which = (units[:, i:], every) if table.ndim > 2 else np.unique(units[:, i:], axis=0, return_inverse=True)
        later, following = np.arange(i, n), np.zeros_like(left)
        own = _entries(table, later, left)
        back = _entries(table, later, left[:, :1]) - own
        if n <= _MOST_IN_CIRCLES:
            gains = np.stack([_entries(table, slot, left) for slot in later], 1) - own[..., None]
            back, following = _best_ways(gains, back, least)
        logits = _entries(table, i, left) - own[:, :1] + back
        logits, following = (x[which.ravel()] for x in (logits - logsumexp(logits, -1, keepdims=True), following))
        j = (logits + rng.gumbel(size=logits.shape)).argmax(-1)
        log_q += logits[every, j]
        units[:, i:] = _turned(units[:, i:], following, j)
    return units, log_q


def _best_ways(gains: np.ndarray, back: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]:
    """What each slot gains on the best way to the first slot's unit, and whose unit it takes on it (Bellman and Ford).

    ``gains[..., a, b]``: what slot a gains by the unit of slot b, from labels than which none are better; ``back``: by
    that of the first.
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
    """Units of slots where the first one has taken that of another, which takes the next one's, until they are back."""
    turned, draws, slots, taken = units.copy(), np.arange(len(units)), np.zeros_like(first), first
    for _ in range(units.shape[1]):
        turned[draws, slots] = units[draws, taken]
        goes_on = taken > 0
        draws, slots = draws[goes_on], taken[goes_on]
        taken = following[draws, slots]
    # by rounding a way may lead nowhere: two units are exchanged
    turned[draws] = units[draws]
    turned[draws, 0], turned[draws, first[draws]] = units[draws, first[draws]], units[draws, 0]
    return turned


def _entries(table: np.ndarray, slots: Any, units: np.ndarray) -> np.ndarray:
    """What a table, or one for each draw, holds of each draw's units in some slots."""
    count, n = len(units), table.shape[-1]
    return np.broadcast_to(table, (count, n, n))[np.arange(count)[:, None], slots, units]


def _is_still(part: Hard) -> np.ndarray:
    """Which of a batch move nothing."""
    at_home = (part.permutation == np.arange(part.permutation.shape[-1])).all(-1)
    return at_home if part.sign is None else at_home & (part.sign > 0).all(-1)


def _is_least(part: Hard) -> np.ndarray:
    """Which of a batch exchange two units, whatever their signs, and move nothing else; or turn one sign alone."""
    moved = part.permutation != np.arange(part.permutation.shape[-1])
    turned = np.zeros_like(moved) if part.sign is None else part.sign < 0
    exchanged = (moved.sum(-1) == 2) & ~(turned & ~moved).any(-1)
    return exchanged | (~moved.any(-1) & (turned.sum(-1) == 1))
