r"""How much of a product of Gaussians up to labels lies in other labellings than the one that is kept.

The product of symmetrized Gaussians is a mixture, one term for each choice of the members' labels against the first,

.. math:: \prod_k \frac1{|G|}\sum_g q_k(g\theta) \propto \sum_g \sum_{h_2,\dots,h_K} \prod_k q_k(h_k^{-1} g\theta),

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
from numpyro_symmetry.matching.drawn import MOST_IN_CYCLES, Table, drawn_by_any, either, prices_of
from numpyro_symmetry.matching.gaussian_inputs import order_of
from numpyro_symmetry.matching.product import Gaussian, NaturalGaussian, Tables, raised, rest_of
from numpyro_symmetry.symmetry import Hard, PlainView, Symmetry, as_html, warn
from numpyro_symmetry.symmetry.hard import concatenate
from numpyro_symmetry.symmetry.plain import moving_blocks

# the most labellings to enumerate, how many to draw where there are more, and the most numbers to compute with
_MOST_LABELLINGS, _NUM_DRAWS, _MOST_NUMBERS = 20_000, 400, 2e7
# the most labellings of blocks, for each of which labels of the units in them are drawn
_MOST_PARTS = 24


class CrossTerms(NamedTuple):
    """The share of a product that lies in other labellings than the one that was kept.

    Attributes
    ----------
    share, error
        From 0 to 1, and its Monte Carlo standard error, zero where all labellings were summed.
    is_exact
        Whether all labellings were summed. Otherwise ``share`` is the sum over all moves of two or three units of one
        member, where members have no correlations and groups share no site, plus an unbiased estimate of the rest; and
        ``error`` can be a few times too small for three or more members whose groups share sites, or that differ much.
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
    members: Sequence[Gaussian], symmetry: Symmetry, prior: NaturalGaussian | None, rng: np.random.Generator
) -> CrossTerms:
    """The share of the product that lies in other labellings than the one in which members are given.

    Parameters
    ----------
    members
        Gaussians of one kind, labelled alike.
    symmetry
        The symmetry, bound to the members' shapes.
    prior
        Natural parameters of the prior, of which all copies but one are divided out; ``None`` to divide out nothing.
    rng
        For drawing labellings, where there are too many to enumerate.

    Warns
    -----
    SymmetryWarning
        If not all labels can be drawn, so that the share is too low.
    """
    rest, log_count = rest_of(members, prior), (len(members) - 1) * symmetry.log_order()
    size = max(rest.precision.size, 1)
    if log_count <= math.log(min(_MOST_LABELLINGS, max(_MOST_NUMBERS / size, 1.0))) + 1e-9:
        return _enumerated([NaturalGaussian.of(member) for member in members[1:]], rest, symmetry, members[0].loc)
    return _drawn_in_parts(members, symmetry, prior, rng)


def _drawn_in_parts(
    members: Sequence[Gaussian], symmetry: Symmetry, prior: NaturalGaussian | None, rng: np.random.Generator
) -> CrossTerms:
    """The share by draws of labellings; where blocks move, and units in them, one level is enumerated, the other drawn.

    Every element of the symmetry is an element of the enumerated groups followed by an element of the drawn groups.
    """
    drawn = PlainView.of(symmetry, members[0].loc).whole
    apart = symmetry.restrict(symmetry.groups.keys() - drawn.groups)
    if (len(members) - 1) * apart.log_order() > math.log(_MOST_PARTS) + 1e-9:
        warn(
            f"Groups {list(moving_blocks(symmetry))} move blocks in which others move, and there are too many labels "
            f"to try them all: {list(apart.groups)} are held still, and what other labels of these hold of the product "
            "is not in the share of other labellings, which is too low by that."
        )
        apart = apart.restrict([])
    parts = [
        _Draws(Tables(placed, rest_of(placed, prior), drawn)) for placed in _placed_apart(members, apart, drawn, prior)
    ]
    found = _Weights(*np.transpose([part.weights(rng, len(parts)) for part in parts]))
    # relative to the heaviest part: labels of a level that was not matched may outweigh the kept ones by many nats
    units = np.exp(found.log_unit - found.log_unit.max())
    kept, *elsewhere = units * found.kept
    others = (units * found.others).sum() + sum(elsewhere)
    total = kept + others
    error = np.hypot.reduce(units * found.error) / total * (kept / total)
    return CrossTerms(float(others / total), float(error), False)


def _placed_apart(
    members: Sequence[Gaussian], apart: Symmetry, drawn: Symmetry, prior: NaturalGaussian | None
) -> Iterator[Sequence[Gaussian]]:
    """The members as they are, then under every other element of ``apart``, each with its best labels of ``drawn``."""
    yield members
    every, count = apart.elements(), round(math.exp(apart.log_order()))
    # the identity comes first, and has been yielded
    for chosen in list(itertools.product(range(count), repeat=len(members) - 1))[1:]:
        steps = [jax.tree.map(lambda x, k=k: x[k], every) for k in chosen]
        moved = [members[0], *(member.apply(apart, step) for member, step in zip(members[1:], steps, strict=True))]
        yield [member.apply(drawn, g) for member, g in zip(moved, raised(moved, drawn, prior), strict=True)]


def _enumerated(
    others: list[NaturalGaussian], rest: NaturalGaussian, symmetry: Symmetry, loc: dict[str, Any]
) -> CrossTerms:
    """The exact share, by a sum over all labellings."""
    orders, total = order_of(symmetry, symmetry.elements(), loc), NaturalGaussian(*(x[None] for x in rest))
    for other in others:
        every = other.moved(*orders)
        total = NaturalGaussian(
            *((x[:, None] + y).reshape(-1, *y.shape[1:]) for x, y in zip(total, every, strict=True))
        )
    # the first labelling is the kept one, for the identity is enumerated first
    log_weights = total.log_partition()
    return CrossTerms(max(0.0, -math.expm1(log_weights[0] - logsumexp(log_weights))), 0.0, True)


class _Weights(NamedTuple):
    """Weights of labellings in units of ``exp(log_unit)``: of the kept one, and of all others with their error."""

    log_unit: Any
    kept: Any
    others: Any
    error: Any


class _Draws:
    """Labels of one member after another, drawn nearly in proportion to their weight.

    A member's labels are drawn given those of the members before it, by one of three tables. One holds the members to
    come where they are. One leaves them out: beside members held still, a joint move of several would look unlikely.
    One lets each of them be wherever it would fit: with the others left out, a joint move may look unlikely as well.
    Within a member and a group, labels are drawn in proportion to the weight of the labelling that results if nothing
    else moves; exactly so for few units, nearly so for many.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables, self.count = tables, len(tables.naturals)
        self.at_home = float(tables.all.log_partition())
        # with a prior divided out, the product under the kept labels may be no Gaussian
        self.has_home = math.isfinite(self.at_home)
        self.divided_out = tables.own_total.plus(reduce(NaturalGaussian.plus, tables.own), -1.0)

    def weights(self, rng: np.random.Generator, num_parts: int) -> _Weights:
        """Weights of the kept labelling and of all others.

        Of the others, moves of two or three units of one member are summed exactly. ``num_parts`` such estimates share
        the work.
        """
        near, tables = self._near() if self.has_home else 0.0, self.tables
        pairs = sum(group.degree**2 for group in tables.groups.values())
        work = pairs * self.count * max(tables.all.first.size, 1) * num_parts
        # joint moves of several members are drawn more rarely
        most_draws = _NUM_DRAWS if self.count == 2 else 5 * _NUM_DRAWS
        num_draws = int(np.clip(10.0 * _MOST_NUMBERS / max(work, 1), 16, most_draws))
        # each draw has a table and a precision in memory
        size = max(tables.all.precision.size, *(group.degree**2 for group in tables.groups.values()))
        chunks = [self._log_weights(rng, items.stop - items.start) for items in slices(num_draws, size)]
        log_weights = np.concatenate(chunks)
        # relative to the heaviest: all labellings that a draw stands for may outweigh the kept one by hundreds of nats
        log_unit = max(self.at_home, float(log_weights.max()))
        if not math.isfinite(log_unit):
            return _Weights(log_unit, float(self.has_home), 0.0, 0.0)
        home, weights = math.exp(self.at_home - log_unit), np.exp(log_weights - log_unit)
        # with uncoupled groups and two members, two such moves weigh about the square of one; with more members a joint
        # move of several weighs about as much as one move
        near, beyond = home * near, home * near ** (2 if self.count == 2 else 1)
        rest, error = float(weights.mean()), float(weights.std(ddof=1)) / math.sqrt(num_draws)
        # a weight of one draw's share may have been missed by all of them, whatever their spread
        unseen = (home + near + rest) / num_draws
        has_near = self.has_home and tables.is_diagonal and not tables.are_coupled()
        unseen = min(unseen, beyond) if has_near else unseen
        return _Weights(log_unit, home, near + rest, max(error, unseen))

    def _near(self) -> float:
        """Weight, over the kept labelling's, of all exchanges of two units, cycles of three and sign changes."""
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
                # every cycle is counted once for each slot that it can start from
                total += float(np.exp(gains + gains.T).sum()) / 2.0
                if len(home) <= MOST_IN_CYCLES:
                    total += float(np.exp(gains[:, :, None] + gains + gains.T[:, None]).sum()) / 3.0
                total += 0.0 if minus is None else float(np.exp(np.diag(minus) - home).sum())
        return total

    def _log_weights(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """``(count,)`` log importance weights of drawn labellings; minus infinity where `_is_counted`."""
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

    def _proposals(self, k: int, name: str, state: dict[str, Hard], so_far: NaturalGaussian, count: int) -> list[Table]:
        """Tables of member k given those before it: later members where they are, left out, and wherever they fit."""
        alone, later = self.tables.table(k, name, state, so_far), range(k + 1, self.count)
        if not later:
            return [alone]
        beside = self.tables.table(k, name, state, reduce(NaturalGaussian.plus, map(self._added, later), so_far))
        if count * alone[0].shape[-1] ** 2 * so_far.first.shape[-1] * len(later) > _MOST_NUMBERS:
            return [beside, alone]

        prices = {m: self._prices(k, m, name) for m in later}

        def ahead(table: np.ndarray, sign: int) -> np.ndarray:
            return table + sum(self._ahead(k, m, name, state, so_far, sign, prices[m]) - table for m in later)

        plus, minus = alone
        return [beside, alone, (ahead(plus, 1), None if minus is None else ahead(minus, -1))]

    def _added(self, k: int) -> NaturalGaussian:
        """Natural parameters of a member, with its share of what is divided out."""
        return self.tables.own[k].plus(self.divided_out, 1.0 / (self.count - 1))

    def _prices(self, k: int, m: int, name: str) -> np.ndarray:
        """``(n,)`` prices at which slots want each unit of member m once, beside members up to k in the kept labels."""
        home = reduce(NaturalGaussian.plus, map(self._added, (*range(1, k + 1), m)), self.tables.own[0])
        return prices_of(either(self.tables.table(m, name, {}, home)))

    def _ahead(
        self, k: int, m: int, name: str, state: dict[str, Hard], so_far: NaturalGaussian, sign: int, prices: np.ndarray
    ) -> np.ndarray:
        """``[i, j]``: log weight of slot i with unit j of member k and any unit of the later member m, less its price.

        Summed over slots it bounds, up to the sum of prices, the log of the total weight of all labellings of member m,
        since every labelling takes each unit once.
        """
        tables, group, n = self.tables, self.tables.groups[name], len(prices)
        # row s shifts all units by s slots: over the n rows every unit is in every slot once
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
        totals = NaturalGaussian(*(x[..., None, :] for x in before)).plus(tables.own[k].moved(*tables.order(every)))
        wherever = logsumexp(either(tables.table(m, name, {}, totals)) - prices, -1)
        found = np.empty_like(wherever)
        found[..., np.arange(n), further] = wherever
        return found

    def _is_counted(self, states: list[dict[str, Hard]]) -> np.ndarray:
        """``(draw,)``: whether a draw is the kept labelling, or among those that `_near` sums."""
        # (member, draw, unit)
        parts = {n: concatenate([state[n].each(lambda x: x[None]) for state in states]) for n in self.tables.groups}
        still = self.tables.still()
        stays: dict[str, np.ndarray] = {name: np.all(part.is_same(still[name]), -1) for name, part in parts.items()}
        moves = ~np.all(list(stays.values()), 0)
        if not self.tables.is_diagonal:
            return ~moves.any(0)
        # where all other members move alike, it is the first member that moves back
        alike = np.all([part.is_same(part.at(slice(1))).all((0, -1)) for part in parts.values()], 0)
        at = moves.argmax(0), np.arange(moves.shape[1])
        is_one_group = sum(~stay[at] for stay in stays.values()) == 1
        is_least = np.any([~stays[name][at] & _is_least(parts[name].at(at)) for name in self.tables.separate()], 0)
        return ~moves.any(0) | ((moves.sum(0) == 1) | alike) & is_one_group & is_least


def _is_least(part: Hard) -> np.ndarray:
    """``(*batch,)``: whether an element moves just two or three units, of whatever signs, or turns one sign alone."""
    n = part.permutation.shape[-1]
    moved = part.permutation != np.arange(n)
    turned = np.zeros_like(moved) if part.sign is None else part.sign < 0
    is_few = (moved.sum(-1) == 2) | ((moved.sum(-1) == 3) & (n <= MOST_IN_CYCLES))
    return is_few & ~(turned & ~moved).any(-1) | (~moved.any(-1) & (turned.sum(-1) == 1))
