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

from numpyro_symmetry.chunks import slices
from numpyro_symmetry.matching.drawn import MOST_IN_CIRCLES, Table, drawn_by_any, either, prices_of
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


class CrossTerms(NamedTuple):
    """The share of a product that lies in other labellings than the one that was kept.

    Attributes
    ----------
    share, error
        From 0 to 1, and its Monte Carlo standard error, zero where all labellings were summed.
    is_exact
        Whether they were; else the sum is that over all moves of two or three units of one member, where members have
        no correlations and groups share no site, and an unbiased estimate of the rest. Its error can be too small, by a
        few times, of three members and more whose groups share sites, or that differ much.
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
    kept, *elsewhere = weights * home
    others = (weights * beside).sum() + sum(elsewhere)
    total = kept + others
    error = np.hypot.reduce(weights * error) / total * (kept / total)
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

    Each is drawn given those before it, and in one of three ways: alone, for beside those to come, where they are, what
    several do together would look unlikely; beside them; or wherever they would fit, for without them it may look so,
    too. Within a member and a group, in proportion to the weight of the labelling that results if nothing else were to
    move; of many units nearly so.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables, self.count = tables, len(tables.naturals)
        self.at_home = float(tables.all.log_partition())
        # with a prior divided out, the labels from which others are drawn may be no Gaussian
        self.has_home = math.isfinite(self.at_home)
        self.divided_out = tables.own_total.plus(reduce(Natural.plus, tables.own), -1.0)

    def estimate(self, rng: np.random.Generator, num_parts: int) -> tuple[float, float, float, float]:
        """A log weight; against it what is kept, all else, of which moves of few units are exact, and an error.

        ``num_parts``: how many such estimates are made.
        """
        near, tables = self._near() if self.has_home else 0.0, self.tables
        pairs = sum((group.size or 0) ** 2 for group in tables.groups.values())
        work = pairs * self.count * max(tables.all.first.size, 1) * num_parts
        # what several members do together is seen more rarely
        most_draws = _NUM_DRAWS if self.count == 2 else 5 * _NUM_DRAWS
        num_draws = int(np.clip(10.0 * _MOST_NUMBERS / max(work, 1), 16, most_draws))
        # a table for each draw, and its precision, are in memory
        size = max(tables.all.precision.size, *((group.size or 0) ** 2 for group in tables.groups.values()))
        chunks = [self._log_weights(rng, items.stop - items.start) for items in slices(num_draws, size)]
        log_weights = np.concatenate(chunks)
        # against the heaviest, for so many labellings may weigh hundreds of nats more than one
        log_unit = max(self.at_home, float(log_weights.max()))
        if not math.isfinite(log_unit):
            return log_unit, float(self.has_home), 0.0, 0.0
        home, weights = math.exp(self.at_home - log_unit), np.exp(log_weights - log_unit)
        # of uncoupled groups of two members, two such moves weigh about the square of one; of more members what several
        # do together about as much as one
        near, beyond = home * near, home * near ** (2 if self.count == 2 else 1)
        rest, error = float(weights.mean()), float(weights.std(ddof=1)) / math.sqrt(num_draws)
        # draws that saw nothing else saw too few
        unseen = (home + near + rest) / num_draws
        has_near = self.has_home and tables.is_diagonal and not tables.are_coupled()
        unseen = min(unseen, beyond) if has_near else unseen
        return log_unit, home, near + rest, max(error, unseen)

    def _near(self) -> float:
        """What all exchanges of two units of one member, circles of three, and changes of one sign, weigh together."""
        if not self.tables.is_diagonal:
            return 0.0
        total = 0.0
        # of two members, moving one is moving the other back
        for k in range(1 if self.count == 2 else 0, self.count):
            for name in self.tables.separate():
                plus, minus = self.tables.table(k, name, {}, self.tables.all)
                home = np.diag(plus)
                gains = either((plus, minus)) - home[:, None]
                np.fill_diagonal(gains, -np.inf)
                # each is met as often as it has places to begin at
                total += float(np.exp(gains + gains.T).sum()) / 2.0
                if len(home) <= MOST_IN_CIRCLES:
                    total += float(np.exp(gains[:, :, None] + gains + gains.T[:, None]).sum()) / 3.0
                total += 0.0 if minus is None else float(np.exp(np.diag(minus) - home).sum())
        return total

    def _log_weights(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Of some draws of all labels, over how likely they were drawn; minus infinity if they are counted already."""
        tables, log_q, states = self.tables, np.zeros(count), []
        total, so_far = tables.all, tables.own[0]
        for k in range(1, self.count):
            state = dict[str, Hard]()
            so_far = so_far.plus(self._added(k))
            for name in tables.groups:
                drawn, log_prob = drawn_by_any(self._proposals(k, name, state, so_far, count), rng, count)
                state, log_q = state | {name: drawn}, log_q + log_prob
            states.append(state)
            order = tables.order(state)
            total, so_far = (
                whole.plus(part[k], -1.0).plus(part[k].moved(*order))
                for whole, part in ((total, tables.naturals), (so_far, tables.own))
            )
        log_weights = total.log_partition() - log_q
        return np.where(self._is_counted(states), -np.inf, log_weights) if self.has_home else log_weights

    def _proposals(self, k: int, name: str, state: dict[str, Hard], so_far: Natural, count: int) -> list[Table]:
        """What labels of one member weigh beside those before it, with those to come where they are, and wherever."""
        alone, later = self.tables.table(k, name, state, so_far), range(k + 1, self.count)
        if not later:
            return [alone]
        beside = self.tables.table(k, name, state, reduce(Natural.plus, map(self._added, later), so_far))
        if count * alone[0].shape[-1] ** 2 * so_far.first.shape[-1] * len(later) > _MOST_NUMBERS:
            return [beside, alone]

        prices = {m: self._prices(k, m, name) for m in later}

        def ahead(table: np.ndarray, sign: int) -> np.ndarray:
            return table + sum(self._ahead(k, m, name, state, so_far, sign, prices[m]) - table for m in later)

        plus, minus = alone
        return [beside, alone, (ahead(plus, 1), None if minus is None else ahead(minus, -1))]

    def _added(self, k: int) -> Natural:
        """A member, with its share of what is divided out."""
        return self.tables.own[k].plus(self.divided_out, 1.0 / (self.count - 1))

    def _prices(self, k: int, m: int, name: str) -> np.ndarray:
        """Prices at which each unit of member m is wanted once beside the members up to k, at home."""
        home = reduce(Natural.plus, map(self._added, (*range(1, k + 1), m)), self.tables.own[0])
        return prices_of(either(self.tables.table(m, name, {}, home)))

    def _ahead(
        self, k: int, m: int, name: str, state: dict[str, Hard], so_far: Natural, sign: int, prices: np.ndarray
    ) -> np.ndarray:
        """``[i, j]``: the log weight of slot i with unit j of member k, and any one of member m, later, at its price.

        All slots' together are a bound of what all labellings of the later member weigh together, for these take every
        unit once.
        """
        tables, group, n = self.tables, self.tables.groups[name], len(prices)
        # in every slot at once the unit that is so many slots further
        further = (np.arange(n)[:, None] + np.arange(n)) % n
        leading = np.broadcast_shapes(
            so_far.first.shape[:-1], *(part.permutation.shape[:-1] for part in state.values())
        )
        moved = {name: Hard(further, np.full_like(further, sign) if group.signed else None)}
        moved |= {other: part.each(lambda x: x[..., None, :]) for other, part in state.items()}
        every = {
            other: part.each(lambda x: np.broadcast_to(x, (*leading, n, x.shape[-1])))
            for other, part in (tables.still() | moved).items()
        }
        before = so_far.plus(tables.own[k], -1.0).plus(self._added(m))
        totals = Natural(*(x[..., None, :] for x in before)).plus(tables.own[k].moved(*tables.order(every)))
        wherever = logsumexp(either(tables.table(m, name, {}, totals)) - prices, -1)
        found = np.empty_like(wherever)
        found[..., np.arange(n), further] = wherever
        return found

    def _is_counted(self, states: list[dict[str, Hard]]) -> np.ndarray:
        """Which draws keep all labels, or have those of `_near`: of one member two units, or three, or one sign."""
        # (member, draw, unit)
        parts = {n: concatenate([state[n].each(lambda x: x[None]) for state in states]) for n in self.tables.groups}
        still = self.tables.still()
        stays: dict[str, np.ndarray] = {name: np.all(part.is_same(still[name]), -1) for name, part in parts.items()}
        moves = ~np.all(list(stays.values()), 0)
        if not self.tables.is_diagonal:
            return ~moves.any(0)
        # if all others move alike it is the first that moves back
        alike = np.all([part.is_same(part.at(slice(1))).all((0, -1)) for part in parts.values()], 0)
        at = moves.argmax(0), np.arange(moves.shape[1])
        is_one_group = sum(~stay[at] for stay in stays.values()) == 1
        is_least = np.any([~stays[name][at] & _is_least(parts[name].at(at)) for name in self.tables.separate()], 0)
        return ~moves.any(0) | ((moves.sum(0) == 1) | alike) & is_one_group & is_least


def _is_least(part: Hard) -> np.ndarray:
    """Which of a batch move two units, or three, whatever their signs, and nothing else; or turn one sign alone."""
    n = part.permutation.shape[-1]
    moved = part.permutation != np.arange(n)
    turned = np.zeros_like(moved) if part.sign is None else part.sign < 0
    is_few = (moved.sum(-1) == 2) | ((moved.sum(-1) == 3) & (n <= MOST_IN_CIRCLES))
    return is_few & ~(turned & ~moved).any(-1) | (~moved.any(-1) & (turned.sum(-1) == 1))
