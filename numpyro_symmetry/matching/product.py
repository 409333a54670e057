r"""The product of Gaussians up to labels, and how much of it lies in other labellings than the one that is kept.

The product of symmetrized Gaussians is a mixture, one term for each choice of the members' labels against the first:

.. math:: \prod_k \frac1{|G|}\sum_g q_k(g\theta) \propto \sum_g \sum_{h_2,\dots,h_K} \prod_k q_k(h_k g\theta),

and a term weighs :math:`Z(h) = \int \prod_k q_k(h_k\theta)\,d\theta = \exp A(\sum_k h_k\eta_k)` times what no label
changes, with natural parameters :math:`\eta = (\Sigma^{-1}\mu, \Sigma^{-1})` and :math:`A = \tfrac12\mu^\top\Sigma^{-1}
\mu - \tfrac12\log|\Sigma^{-1}|`. Knows Gaussians and elements; not how labels are found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from numpyro_symmetry.matching.full_gaussian import FullGaussian
from numpyro_symmetry.matching.gaussian import DiagonalGaussian
from numpyro_symmetry.symmetry import Element, Hard, PlainView, Symmetry, SymmetryError, permutations
from numpyro_symmetry.symmetry.hard import over, some_of
from numpyro_symmetry.symmetry.shown import as_html

Gaussian = DiagonalGaussian | FullGaussian
# labellings that are enumerated, draws of labels where there are more, and numbers that all of them may look at
_MOST_LABELLINGS, _NUM_DRAWS, _MOST_NUMBERS = 5_000, 400, 2e8


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


class Natural(NamedTuple):
    """Natural parameters over ravelled sites: ``(..., D)``, and a precision ``(..., D)`` or ``(..., D, D)``."""

    first: np.ndarray
    precision: np.ndarray

    @staticmethod
    def of(gaussian: Gaussian) -> Natural:
        """Of a Gaussian, whose standard deviations have to be positive."""
        loc = _ravel(gaussian.loc)
        if isinstance(gaussian, FullGaussian):
            precision = np.linalg.inv(np.asarray(gaussian.covariance, float))
            return Natural(precision @ loc, 0.5 * (precision + precision.T))
        precision = _ravel(gaussian.scale) ** -2.0
        return Natural(precision * loc, precision)

    def plus(self, other: Natural, times: float = 1.0) -> Natural:
        """The product with another, to a power."""
        return Natural(self.first + times * other.first, self.precision + times * other.precision)

    def moved(self, order: np.ndarray, sign: np.ndarray) -> Natural:
        """By elements, as they move entries: ``(..., D)`` each."""
        first = self.first[order] * sign
        if self.precision.ndim == 1:
            return Natural(first, self.precision[order])
        precision = self.precision[order[..., :, None], order[..., None, :]]
        return Natural(first, precision * sign[..., :, None] * sign[..., None, :])

    def log_partition(self) -> np.ndarray:
        """``(...)``; minus infinity where the precision is not positive."""
        if self.precision.shape == self.first.shape:
            positive = self.precision > 0
            precision = np.where(positive, self.precision, 1.0)
            terms = self.first**2 / precision - np.log(precision)
            return np.where(positive.all(-1), 0.5 * terms.sum(-1), -np.inf)
        values, vectors = np.linalg.eigh(self.precision)
        positive = values > 0
        values = np.where(positive, values, 1.0)
        along = (vectors * self.first[..., :, None]).sum(-2)
        return np.where(positive.all(-1), 0.5 * (along**2 / values - np.log(values)).sum(-1), -np.inf)

    def gaussian(self, like: Gaussian) -> Gaussian:
        """As a Gaussian by site.

        Raises
        ------
        SymmetryError
            If the precision is not positive.
        """
        if not np.isfinite(self.log_partition()):
            raise SymmetryError(
                "The product is no Gaussian: with the prior divided out, its precision is not positive everywhere. "
                "Expected posteriors that are nowhere wider than prior=; if members had the prior to the power 1/K, "
                "leave prior out."
            )
        if isinstance(like, FullGaussian):
            covariance = np.linalg.inv(self.precision)
            return FullGaussian(_unravel(covariance @ self.first, like.loc), 0.5 * (covariance + covariance.T))
        loc, scale = self.first / self.precision, self.precision**-0.5
        return DiagonalGaussian(_unravel(loc, like.loc), _unravel(scale, like.loc))


def order_of(symmetry: Symmetry, element: Element, loc: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """What an element, or a batch of them, does to ravelled sites: from where entries come, and their signs."""
    shapes = ((np.shape(Hard.of(part).permutation), 1 + len(over(name))) for name, part in element.items())
    batch = next((shape[: len(shape) - own] for shape, own in shapes), ())
    index = _unravel(np.arange(sum(np.size(x) for x in loc.values())), loc)
    ones = {site: np.ones(np.shape(x)) for site, x in loc.items()}

    def ravelled(by_site: dict[str, Any]) -> np.ndarray:
        flat = (np.asarray(x).reshape(-1, int(np.prod(np.shape(loc[s]), dtype=int))) for s, x in by_site.items())
        flat = [np.broadcast_to(x, (math.prod(batch), x.shape[-1])) for x in flat]
        return np.concatenate(flat, -1).reshape(*batch, -1)

    index = symmetry.without_signs().apply(permutations(element), index)
    return ravelled(index).astype(int), ravelled(symmetry.of_differences().apply(element, ones))


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
    return _Draws(members, naturals, rest, symmetry).estimate(rng)


def _enumerated(others: list[Natural], rest: Natural, symmetry: Symmetry, loc: dict[str, Any]) -> CrossTerms:
    """All labellings, summed."""
    orders, totals = order_of(symmetry, symmetry.elements(), loc), [rest]
    for one in others:
        every = one.moved(*orders)
        totals = [total.plus(some_of(every, k)) for total in totals for k in range(len(every.first))]
    # the first of all is what is kept, for the identity is enumerated first
    log_weights = np.array([float(total.log_partition()) for total in totals])
    return CrossTerms(max(0.0, -math.expm1(log_weights[0] - logsumexp(log_weights))), 0.0, True)


class _Draws:
    """Labels of one member after another, drawn nearly in proportion to what they weigh.

    Within a member and a group, row after row is exchanged with itself or a later one (Fisher and Yates), in proportion
    to the weight of the labelling that results if nothing else were to move. Every labelling is reached in one way.
    """

    def __init__(self, members: Sequence[Gaussian], naturals: list[Natural], rest: Natural, symmetry: Symmetry) -> None:
        self.members, self.symmetry, self.naturals = members, symmetry, naturals
        self.loc = members[0].loc
        self.view = PlainView.of(symmetry, {site: np.asarray(x) for site, x in self.loc.items()})
        self.groups = self.view.symmetry.groups
        self.all = rest
        for one in naturals[1:]:
            self.all = self.all.plus(one)
        self.at_home = float(self.all.log_partition())
        diagonal = [member.diagonal() if isinstance(member, FullGaussian) else member for member in members]
        self.own = [Natural.of(member) for member in diagonal]
        # of correlated members tables only propose
        self.is_diagonal = all(member is one for member, one in zip(members, diagonal, strict=True))
        self.own_total = self.all
        if not self.is_diagonal:
            self.own_total = Natural(*(sum(parts) for parts in zip(*self.own, strict=True)))
        self.known: dict[Any, Any] = {}

    def estimate(self, rng: np.random.Generator) -> CrossTerms:
        """The sum over exchanges of two units, exactly, and the mean weight of all else."""
        near = self._near()
        work = (
            sum((group.size or 0) ** 2 for group in self.groups.values())
            * len(self.members)
            * max(self.all.first.size, 1)
        )
        num_draws = int(np.clip(_MOST_NUMBERS / max(work, 1), 16, _NUM_DRAWS))
        weights = np.array([self._weight(rng) for _ in range(num_draws)])
        rest, error = weights.mean(), weights.std(ddof=1) / math.sqrt(num_draws)
        # what is kept weighs one
        total = 1.0 + near + float(rest)
        return CrossTerms((near + float(rest)) / total, float(error) / total**2, False)

    def _near(self) -> float:
        """What all exchanges of two units of one member, and changes of one sign, weigh together."""
        if not self.is_diagonal:
            return 0.0
        total = 0.0
        # of two members, moving one is moving the other back
        for k in range(1 if len(self.members) == 2 else 0, len(self.members)):
            state = self._still()
            for name in self._separate():
                plus, minus = self._table(k, name, state, self.all)
                either, home = plus if minus is None else np.logaddexp(plus, minus), np.diag(plus)
                pairs = either + either.T - home[:, None] - home
                total += float(np.exp(pairs[np.triu_indices(len(home), 1)]).sum())
                total += 0.0 if minus is None else float(np.exp(np.diag(minus) - home).sum())
        return total

    def _weight(self, rng: np.random.Generator) -> float:
        """Of one draw of all labels, against what is kept; none if it is counted as near already."""
        log_q, total, states = 0.0, self.all, []
        diagonal = self.own_total
        for k in range(1, len(self.members)):
            state = self._still()
            for name in self.groups:
                drawn, log_prob = self._draw(k, name, state, diagonal, rng)
                state, log_q = state | {name: drawn}, log_q + log_prob
            states.append(state)
            if not all(_is_still(part) for part in state.values()):
                order = self._order(state)
                total = total.plus(self.naturals[k], -1.0).plus(self.naturals[k].moved(*order))
                diagonal = diagonal.plus(self.own[k], -1.0).plus(self.own[k].moved(*order))
        if all(_is_still(part) for state in states for part in state.values()) or self._is_near(states):
            return 0.0
        return math.exp(float(total.log_partition()) - self.at_home - log_q)

    def _draw(
        self, k: int, name: str, state: dict[str, Hard], total: Natural, rng: np.random.Generator
    ) -> tuple[Hard, float]:
        """One group's part for one member, and its log probability."""
        plus, minus = self._table(k, name, state, total)
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
        logits = plus[np.arange(n), chosen] - either[np.arange(n), chosen]
        is_plus = rng.random(n) < np.exp(logits)
        log_q += float(np.where(is_plus, logits, np.log(-np.expm1(np.minimum(logits, -1e-300)))).sum())
        return Hard(chosen, np.where(is_plus, 1, -1)), log_q

    def _table(self, k: int, name: str, state: dict[str, Hard], total: Natural) -> tuple[np.ndarray, np.ndarray | None]:
        """``[i, j]``: the log weight of what slot i holds if unit j of member k is there, and with its sign changed."""
        key = (k, name, total.first.tobytes(), *(x.tobytes() for p in state.values() for x in p if x is not None))
        if key in self.known:
            return self.known[key]
        group, own = self.groups[name], self.own[k]
        n, signed = group.size or 0, group.signed
        found = np.zeros((2, n, n))
        others = self._pieces(total.plus(own, -1.0))
        mine = self._pieces(own)
        for piece, axes in self.view.symmetry.axes.items():
            at = [p for p, axis in enumerate(self.view.symmetry.opened(piece)) if axis.group == name]
            if len(at) != 1:
                continue
            opened = self.view.symmetry.opened(piece)
            other, own_piece = ([x[piece] for x in pair] for pair in (others, mine))
            lead = own_piece[0].ndim - len(axes)
            moved = [
                _along(_moved(x, opened, state, name, lead, signs), lead + at[0])
                for x, signs in zip(own_piece, (True, False), strict=True)
            ]
            there = [_along(x, lead + at[0]) for x in other]
            for sign in (1.0, -1.0) if signed else (1.0,):
                flip = sign if opened[at[0]].signed else 1.0
                for i in range(n):
                    first, precision = there[0][i] + flip * moved[0], there[1][i] + moved[1]
                    precision = np.maximum(precision, np.finfo(float).tiny)
                    found[int(sign < 0), i] += 0.5 * (first**2 / precision - np.log(precision)).sum(-1)
        self.known[key] = found[0], found[1] if signed else None
        return self.known[key]

    def _pieces(self, natural: Natural) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        first, precision = (_unravel(x, self.loc) for x in natural)
        return self.view.open(first), self.view.open(precision, common=True)

    def _order(self, state: dict[str, Hard]) -> tuple[np.ndarray, np.ndarray]:
        element = self.view.element({name: part.part() for name, part in state.items()}, self.symmetry)
        return order_of(self.symmetry, element, self.loc)

    def _still(self) -> dict[str, Hard]:
        return {
            name: Hard(np.arange(group.size or 0), np.ones(group.size or 0, int) if group.signed else None)
            for name, group in self.groups.items()
        }

    def _separate(self) -> list[str]:
        """Groups that stand on one axis of a piece at a time: of others a table is no more than a proposal."""
        twice = {
            name
            for piece in self.view.symmetry.axes
            for name in self.groups
            if sum(axis.group == name for axis in self.view.symmetry.opened(piece)) > 1
        }
        return [name for name in self.groups if name not in twice]

    def _is_near(self, states: list[dict[str, Hard]]) -> bool:
        """Whether labels are those of `_near`: one member's, of which two units are exchanged, or one has a sign."""
        if not self.is_diagonal:
            return False
        moved = [state for state in states if not all(map(_is_still, state.values()))]
        first_alone = len(states) > 1 and len(moved) == len(states) and all(_are_same(moved[0], one) for one in moved)
        if len(moved) != 1 and not first_alone:
            return False
        names = [name for name, part in moved[0].items() if not _is_still(part)]
        if len(names) != 1 or names[0] not in self._separate():
            return False
        part = moved[0][names[0]]
        places = np.flatnonzero(part.permutation != np.arange(len(part.permutation)))
        turned = np.zeros(0, int) if part.sign is None else np.flatnonzero(part.sign < 0)
        if len(places):
            return len(places) == 2 and set(turned) <= set(places)
        return len(turned) == 1


def _moved(x: np.ndarray, axes: Any, state: dict[str, Hard], but: str, lead: int, signs: bool) -> np.ndarray:
    """One piece with every group but one where it is in a state."""
    for position, axis in enumerate(axes):
        if axis.group is not None and axis.group != but:
            part = state[axis.group]
            x = np.take(x, part.permutation, lead + position)
            if signs and axis.signed and part.sign is not None:
                x = x * part.sign.reshape(-1, *[1] * (x.ndim - lead - position - 1))
    return x


def _along(x: np.ndarray, axis: int) -> np.ndarray:
    """``(n, rest)``."""
    front = np.moveaxis(x, axis, 0)
    return front.reshape(len(front), -1)


def _is_still(part: Hard) -> bool:
    at_home = bool((part.permutation == np.arange(len(part.permutation))).all())
    return at_home and (part.sign is None or bool((part.sign > 0).all()))


def _are_same(one: dict[str, Hard], other: dict[str, Hard]) -> bool:
    return all(bool(part.is_same(other[name]).all()) for name, part in one.items())


def _ravel(by_site: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(x, float)) for x in by_site.values()])


def _unravel(flat: np.ndarray, like: dict[str, Any]) -> dict[str, Any]:
    ends = np.cumsum([np.size(x) for x in like.values()])
    parts = np.split(flat, ends[:-1], -1)
    return {site: part.reshape(np.shape(x)) for (site, x), part in zip(like.items(), parts, strict=True)}
