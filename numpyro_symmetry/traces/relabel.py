"""Raise the likelihood of draws over labels and parameters in turn, until neither moves it.

Each draw's labels are one bilinear matching against the natural parameters; the
parameters are those of the relabelled draws' mean statistics. Knows families and matching; no containers, no costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.assignment.family import (
    Family,
    Natural,
    State,
    Statistics,
    acting_groups,
    blocks,
    mean_statistics,
)
from numpyro_symmetry.assignment.passes import held, map_reduce
from numpyro_symmetry.assignment.place import place
from numpyro_symmetry.assignment.problem import move
from numpyro_symmetry.symmetry import Group
from numpyro_symmetry.symmetry.hard import concatenate

MAX_ROUNDS = 100
# searches from several starts look at no more draws than this, and at no more numbers unless draws are very large
_MAX_DRAWS_TO_START, _MIN_DRAWS_TO_START, _MAX_NUMBERS = 1000, 50, 2**28
# a gain below this, in nats for a draw and relative to the objective, is rounding
_TOLERANCE = 1e-9
# the same between searches, whose sums are of statistics in single precision where the draws are
_TOLERANCE_SINGLE = 1e-5
# nats a draw by which starts of unequal spreads must win: five slots of one law gain .14, one wide slot 1 to 3
_CLEARLY = 0.5
# part of the spread of all slots by which values may differ that are all but the same
_ALL_BUT = 1e-3


class SearchEffort(NamedTuple):
    """How each draw is matched, the seed of the matching's restarts, and from how many draws to start."""

    method: str = "auto"
    seed: int = 0
    num_starts: int = 1


ANY_EFFORT = SearchEffort()


class Relabelling(NamedTuple):
    """Labels of every draw, and the parameters against which they were chosen.

    Attributes
    ----------
    state
        Group -> assignment of every draw.
    natural
        Natural parameters the labels were last chosen against.
    objective
        ``(draw,)``: log-likelihood of each relabelled draw, nats.
    num_rounds
        How often the draws were relabelled.
    converged
        Whether the last round changed nothing.
    """

    state: State
    natural: Statistics
    objective: np.ndarray
    num_rounds: int
    converged: bool


def relabel(
    family: Family,
    groups: dict[str, Group],
    start: Natural,
    effort: SearchEffort = ANY_EFFORT,
    *,
    max_rounds: int = MAX_ROUNDS,
) -> Relabelling:
    """Relabel draws against natural parameters, and those against the draws, in turn.

    Parameters
    ----------
    family
        What the likelihood is.
    groups
        The symmetry's groups; those no statistic depends on keep their labels.
    start
        Natural parameters and log-partition to begin with.
    effort
        How each draw is matched.
    max_rounds
        One relabels against ``start`` and leaves it there.

    Returns
    -------
    Relabelling
        Its mean objective never fell.
    """
    moving = acting_groups(family, groups)
    natural, partition = start
    state: State | None = None
    best, num_rounds = -np.inf, 0
    while True:
        before, num_rounds = state, num_rounds + 1
        state, objective, means = _round(family, moving, natural, partition, before, effort)
        gain, best = objective.mean() - best, objective.mean()
        stays = before is not None and all(part.is_same(before[name]).all() for name, part in state.items())
        settled = stays or gain <= _TOLERANCE * _size(family, best)
        if settled or num_rounds == max_rounds:
            still = {name: group.identity((family.num_draws,)) for name, group in groups.items()}
            return Relabelling(still | state, natural, objective, num_rounds, settled or max_rounds == 1)
        natural, partition = family.natural(means)


def search(
    family: Family, groups: dict[str, Group], starts: Sequence[int], effort: SearchEffort, rng: np.random.Generator
) -> Relabelling:
    """Relabel from several draws, on some of the others, and all of them from where the best search ended.

    A search begins as if every slot spread alike. Of a likelihood as many begin with what two draws say of spreads:
    where one slot is wide and others are narrow, all that begin alike may end with the draws in order of size. One of
    those has to end clearly likelier, for spreads that differ also fit slots without any identity a little better.

    Parameters
    ----------
    family, groups
        As for `relabel`.
    starts
        Draws to start from.
    effort
        As for `relabel`.
    rng
        Chooses the draws.

    Returns
    -------
    Relabelling
        Of all draws.
    """
    of_a_draw = family.statistics(np.array([0])).values()
    most = max(_MIN_DRAWS_TO_START, _MAX_NUMBERS // max(1, sum(x.size for x in of_a_draw)))
    chosen = np.sort(rng.permutation(family.num_draws)[: min(_MAX_DRAWS_TO_START, most)])
    thin = _thinned(family, chosen)
    tolerance = _TOLERANCE_SINGLE if any(x.dtype == np.float32 for x in of_a_draw) else _TOLERANCE

    def likelier(best: Relabelling, found: Relabelling) -> Relabelling:
        before, after = best.objective.mean(), found.objective.mean()
        # searches that end alike differ by rounding, which must not choose whose labels name the slots
        return found if after - before > tolerance * _size(family, before) else best

    def of_two(start: int, other: int) -> Natural:
        pair = _thinned(family, np.sort([start, other]))
        alike = relabel(pair, groups, family.point(start), effort, max_rounds=1)
        return family.natural(mean_statistics(pair, groups, alike.state))

    best = reduce(likelier, (relabel(thin, groups, family.point(start), effort) for start in starts))
    if family.in_nats and len(starts) > 1:
        pairs = zip(starts, (*starts[1:], starts[0]), strict=True)
        other = reduce(likelier, (relabel(thin, groups, of_two(*pair), effort) for pair in pairs))
        clearly = other.objective.mean() > best.objective.mean() + _CLEARLY
        # a likelihood of no spread has no bound: of draws that share a value (zeros) it wants all in one slot
        best = other if clearly and _num_of_one_value(thin, other) <= _num_of_one_value(thin, best) else best
    if len(chosen) == family.num_draws:
        return best
    means = mean_statistics(thin, groups, best.state)
    return relabel(family, groups, family.natural(means), effort)


def _num_of_one_value(family: Family, found: Relabelling) -> int:
    """How many numbers of the relabelled draws are all but the same in over half of them."""
    moved = [
        move(x, family.axes[name], found.state) for name, x in family.statistics(slice(0, family.num_draws)).items()
    ]
    return sum(int(((np.abs(x - np.median(x, 0)) <= _ALL_BUT * x.std()).mean(0) > 0.5).sum()) for x in moved)


def _thinned(family: Family, chosen: np.ndarray) -> Family:
    """The family of some draws; those that are stored are read."""
    stored = family.stored
    here = family if stored is None else stored.make(held(stored.source.at(chosen), chosen, family.num_draws))
    return here._replace(statistics=lambda items: here.statistics(chosen[items]), num_draws=len(chosen))


def _round(
    family: Family,
    groups: dict[str, Group],
    natural: Statistics,
    partition: float,
    old: State | None,
    effort: SearchEffort,
) -> tuple[State, np.ndarray, Statistics]:
    """Labels of draws, their likelihoods, and their mean statistics under these labels."""

    def placed(here: Family, items: slice) -> tuple[tuple[State, np.ndarray], Statistics]:
        (one,) = place(here, groups, natural, effort.method, effort.seed, old, [items])
        objective, totals = np.full(items.stop - items.start, -partition), {}
        for name, eta in natural.items():
            moved = move(one.found[name], here.axes[name], one.solution.state)
            objective += moved.reshape(len(moved), -1) @ eta.ravel().astype(moved.dtype)
            totals[name] = moved.sum(0, dtype=float)
        return (one.solution.state, objective + here.carrier(one.found)), totals

    kept, totals = map_reduce(family, blocks(family, groups), placed)
    state = {name: concatenate([part[name] for part, _ in kept]) for name in groups}
    objective = np.concatenate([part for _, part in kept])
    return state, objective, {name: total / family.num_draws for name, total in totals.items()}


def _size(family: Family, objective: float) -> float:
    """The size that gains are relative to: a nat is a nat in any units, a squared distance depends on them."""
    return abs(objective) + (1.0 if family.in_nats else 0.0)
