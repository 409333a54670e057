r"""How much of a product of Gaussians up to labels lies in other labellings than the one that is kept.

The product of symmetrized Gaussians is a mixture, one term for each choice of the members' labels against the first,

.. math:: \prod_k \frac1{|G|}\sum_g q_k(g\theta) \propto \sum_g \sum_{h_2,\dots,h_K} \prod_k q_k(h_k g\theta),

and each weighs :math:`Z(h)`. Where labellings are too many to sum, they are drawn. Knows what one labelling weighs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from numpyro_symmetry.matching.gaussian_inputs import order_of
from numpyro_symmetry.matching.product import Gaussian, Natural, Tables
from numpyro_symmetry.symmetry import Hard, Symmetry
from numpyro_symmetry.symmetry.shown import as_html

# labellings that are enumerated, draws of labels where there are more, and numbers that all of them may look at
_MOST_LABELLINGS, _NUM_DRAWS, _MOST_NUMBERS = 20_000, 400, 2e7


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
    """
    naturals = [Natural.of(member) for member in members]
    rest = naturals[0] if prior is None else naturals[0].plus(prior, 1.0 - len(members))
    log_count = (len(members) - 1) * symmetry.log_order()
    size = max(naturals[0].precision.size, 1)
    if log_count <= math.log(min(_MOST_LABELLINGS, max(_MOST_NUMBERS / size, 1.0))) + 1e-9:
        return _enumerated(naturals[1:], rest, symmetry, members[0].loc)
    return _Draws(Tables(members, rest, symmetry)).estimate(rng)


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

    Within a member and a group, row after row is exchanged with itself or a later one (Fisher and Yates), in proportion
    to the weight of the labelling that results if nothing else were to move. Every labelling is reached in one way.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables, self.count = tables, len(tables.naturals)
        self.at_home = float(tables.all.log_partition())

    def estimate(self, rng: np.random.Generator) -> CrossTerms:
        """The sum over exchanges of two units, exactly, and the mean weight of all else."""
        near, tables = self._near(), self.tables
        pairs = sum((group.size or 0) ** 2 for group in tables.groups.values())
        work = pairs * self.count * max(tables.all.first.size, 1)
        num_draws = int(np.clip(10.0 * _MOST_NUMBERS / max(work, 1), 16, _NUM_DRAWS))
        weights = np.array([self._weight(rng) for _ in range(num_draws)])
        rest, error = float(weights.mean()), float(weights.std(ddof=1)) / math.sqrt(num_draws)
        # what is kept weighs one
        total = 1.0 + near + rest
        # draws that saw nothing else saw too few; of uncoupled groups two exchanges weigh about the square of one
        unseen = total / num_draws
        error = max(error, unseen if tables.are_coupled() else min(unseen, near**2))
        return CrossTerms((near + rest) / total, error / total**2, False)

    def _near(self) -> float:
        """What all exchanges of two units of one member, and changes of one sign, weigh together."""
        if not self.tables.is_diagonal:
            return 0.0
        total, state = 0.0, self.tables.still()
        # of two members, moving one is moving the other back
        for k in range(1 if self.count == 2 else 0, self.count):
            for name in self.tables.separate():
                plus, minus = self.tables.table(k, name, state, self.tables.all)
                either, home = plus if minus is None else np.logaddexp(plus, minus), np.diag(plus)
                pairs = either + either.T - home[:, None] - home
                total += float(np.exp(pairs[np.triu_indices(len(home), 1)]).sum())
                total += 0.0 if minus is None else float(np.exp(np.diag(minus) - home).sum())
        return total

    def _weight(self, rng: np.random.Generator) -> float:
        """Of one draw of all labels, against what is kept; none if it is counted already."""
        tables, log_q, states = self.tables, 0.0, []
        total, own_total = tables.all, tables.own_total
        for k in range(1, self.count):
            state = tables.still()
            for name in tables.groups:
                drawn, log_prob = _drawn(*tables.table(k, name, state, own_total), rng)
                state, log_q = state | {name: drawn}, log_q + log_prob
            states.append(state)
            if not all(map(_is_still, state.values())):
                order = tables.order(state)
                total, own_total = (
                    whole.plus(part[k], -1.0).plus(part[k].moved(*order))
                    for whole, part in ((total, tables.naturals), (own_total, tables.own))
                )
        if all(_is_still(part) for state in states for part in state.values()) or self._is_near(states):
            return 0.0
        return math.exp(float(total.log_partition()) - self.at_home - log_q)

    def _is_near(self, states: list[dict[str, Hard]]) -> bool:
        """Whether labels are those of `_near`: one member's, of which two units are exchanged, or one has a sign."""
        if not self.tables.is_diagonal:
            return False
        moved = [state for state in states if not all(map(_is_still, state.values()))]
        first_alone = len(states) > 1 and len(moved) == len(states) and all(_are_same(moved[0], one) for one in moved)
        if len(moved) != 1 and not first_alone:
            return False
        names = [name for name, part in moved[0].items() if not _is_still(part)]
        if len(names) != 1 or names[0] not in self.tables.separate():
            return False
        part = moved[0][names[0]]
        places = np.flatnonzero(part.permutation != np.arange(len(part.permutation)))
        turned = np.zeros(0, int) if part.sign is None else np.flatnonzero(part.sign < 0)
        return len(places) == 2 and set(turned) <= set(places) if len(places) else len(turned) == 1


def _drawn(plus: np.ndarray, minus: np.ndarray | None, rng: np.random.Generator) -> tuple[Hard, float]:
    """One group's part for one member, and its log probability."""
    either = plus if minus is None else np.logaddexp(plus, minus)
    n, log_q = len(either), 0.0
    chosen = np.arange(n)
    for i in range(n - 1):
        later = np.arange(i, n)
        logits = either[i, chosen[later]] + either[later, chosen[i]] - either[later, chosen[later]]
        logits[0] = either[i, chosen[i]]
        logits = logits - logsumexp(logits)
        j = int(rng.choice(n - i, p=np.exp(logits) / np.exp(logits).sum()))
        log_q += float(logits[j])
        chosen[[i, i + j]] = chosen[[i + j, i]]
    if minus is None:
        return Hard(chosen), log_q
    # signs do not depend on each other, given where units are
    log_plus, log_minus = ((x - either)[np.arange(n), chosen] for x in (plus, minus))
    is_plus = rng.random(n) < np.exp(log_plus)
    return Hard(chosen, np.where(is_plus, 1, -1)), log_q + float(np.where(is_plus, log_plus, log_minus).sum())


def _is_still(part: Hard) -> bool:
    at_home = bool((part.permutation == np.arange(len(part.permutation))).all())
    return at_home and (part.sign is None or bool((part.sign > 0).all()))


def _are_same(one: dict[str, Hard], other: dict[str, Hard]) -> bool:
    return all(bool(part.is_same(other[name]).all()) for name, part in one.items())
