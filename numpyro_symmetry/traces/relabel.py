"""Raise the likelihood of draws over labels and parameters in turn, until neither moves it.

Each draw's labels are one bilinear matching against the natural parameters; the
parameters are those of the relabelled draws' mean statistics. Knows families and matching; no containers, no costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.assignment.family import (
    Family,
    State,
    Statistics,
    acting,
    blocks,
    mean_statistics,
    point_of,
    problem_of,
)
from numpyro_symmetry.assignment.problem import move
from numpyro_symmetry.assignment.solve import solve
from numpyro_symmetry.symmetry import Group
from numpyro_symmetry.symmetry.hard import concatenate

MAX_ROUNDS = 100
# searches from several starts look at no more draws than this
_MAX_DRAWS_TO_START = 1000
# a gain below this, in nats for a draw and relative to the objective, is rounding
_TOLERANCE = 1e-9
# the same between searches, whose sums are of statistics in single precision where the draws are
_TOLERANCE_SINGLE = 1e-5


class Effort(NamedTuple):
    """How each draw is matched, the seed of the matching's restarts, and from how many draws to start."""

    method: str = "auto"
    seed: int = 0
    num_starts: int = 1


ANY_EFFORT = Effort()


class Relabelling(NamedTuple):
    """Labels of every draw, and what they are labels of.

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
    start: tuple[Statistics, float],
    effort: Effort = ANY_EFFORT,
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
    moving = acting(family, groups)
    natural, partition = start
    state: State | None = None
    best = -np.inf
    converged = False
    num_rounds = 0
    objective = np.zeros(family.num_draws)
    for num_rounds in range(1, max_rounds + 1):
        found, objective, means, moved = _round(family, moving, natural, partition, state, effort)
        gain = objective.mean() - best
        best, state = objective.mean(), found
        if max_rounds == 1 or not moved or (num_rounds > 1 and gain <= _TOLERANCE * (1.0 + abs(best))):
            converged = True
            break
        if num_rounds < max_rounds:
            natural, partition = family.natural(means)
    labels = {n: g.identity((family.num_draws,)) for n, g in groups.items()} | (state or {})
    return Relabelling({name: labels[name] for name in groups}, natural, objective, num_rounds, converged)


def search(
    family: Family, groups: dict[str, Group], starts: Sequence[int], effort: Effort, rng: np.random.Generator
) -> Relabelling:
    """Relabel from several draws, on some of the others, and all of them from where the best search ended.

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
    some = np.sort(rng.permutation(family.num_draws)[:_MAX_DRAWS_TO_START])
    thin = family._replace(statistics=lambda items: family.statistics(some[items]), num_draws=len(some))
    single = any(x.dtype == np.float32 for x in family.statistics(np.array([0])))
    tolerance = _TOLERANCE_SINGLE if single else _TOLERANCE
    best: Relabelling | None = None
    for start in starts:
        found = relabel(thin, groups, point_of(family, start), effort)
        # searches that end alike differ by rounding, which must not choose whose labels name the slots
        if best is None or _gain(found, best) > tolerance * (1.0 + abs(best.objective.mean())):
            best = found
    assert best is not None
    if len(some) == family.num_draws:
        return best
    means = mean_statistics(thin, groups, best.state)
    return relabel(family, groups, family.natural(means), effort)


def _gain(found: Relabelling, best: Relabelling) -> float:
    return float(found.objective.mean() - best.objective.mean())


def _round(
    family: Family,
    groups: dict[str, Group],
    natural: Statistics,
    partition: float,
    old: State | None,
    effort: Effort,
) -> tuple[State, np.ndarray, Statistics, bool]:
    objective = np.zeros(family.num_draws)
    totals = [np.zeros(eta.shape) for eta in natural]
    parts: list[State] = []
    moved = False
    for items in blocks(family, groups):
        problem, found = problem_of(family, groups, natural, items)
        solution = solve(problem, effort.method, np.random.default_rng(effort.seed))
        state = solution.state
        if old is not None:
            before = {name: part.at(items) for name, part in old.items()}
            if not solution.exact.all():
                # another start may end lower than where the draw already was
                keep = problem.score(before) >= problem.score(state)
                for name, part in state.items():
                    part.write(np.flatnonzero(keep), before[name].at(keep))
            moved = moved or not all(state[name].is_same(before[name]).all() for name in state)
        for k, (eta, term) in enumerate(zip(natural, problem.terms, strict=True)):
            relabelled = move(term.source, term.axes, state)
            objective[items] += relabelled.reshape(len(relabelled), -1) @ eta.ravel().astype(relabelled.dtype)
            totals[k] += relabelled.sum(0, dtype=float)
        objective[items] += family.carrier(found) - partition
        parts.append(state)
    state = {name: concatenate([part[name] for part in parts]) for name in groups}
    return state, objective, tuple(t / family.num_draws for t in totals), moved or old is None
