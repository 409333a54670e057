"""Raise the likelihood of draws over labels and parameters in turn, until neither moves it.

Draws are read a chunk at a time. Each draw's labels are one bilinear matching against the natural parameters; the
parameters are those of the relabelled draws' mean statistics. Knows families and matching; no containers, no costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.assignment.problem import Problem, Term, move
from numpyro_symmetry.assignment.solve import solve
from numpyro_symmetry.symmetry import Group, Hard
from numpyro_symmetry.symmetry.hard import concatenate
from numpyro_symmetry.traces.coordinates import CHUNK
from numpyro_symmetry.traces.costs import Family, Statistics

MAX_ROUNDS = 100
# searches from several starts look at no more draws than this
_MAX_DRAWS_TO_START = 1000
# a gain below this, in nats for a draw and relative to the objective, is rounding
_TOLERANCE = 1e-9
# the same between searches, whose sums are of statistics in single precision where the draws are
_TOLERANCE_SINGLE = 1e-5

State = dict[str, Hard]


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


def acting(family: Family, groups: dict[str, Group]) -> dict[str, Group]:
    """The groups on which a family's statistics depend."""
    named = {axis.group for axes in family.axes for axis in axes}
    return {name: group for name, group in groups.items() if name in named}


def relabel(
    family: Family,
    groups: dict[str, Group],
    start: tuple[Statistics, float],
    *,
    method: str = "auto",
    seed: int = 0,
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
    method
        How each draw is matched.
    seed
        For the matching's restarts.
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
        found, objective, means, moved = _round(family, moving, natural, partition, state, method, seed)
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
    family: Family, groups: dict[str, Group], starts: Sequence[int], *, method: str, seed: int, rng: np.random.Generator
) -> Relabelling:
    """Relabel from several draws, on some of the others, and all of them from where the best search ended.

    Parameters
    ----------
    family, groups
        As for `relabel`.
    starts
        Draws to start from.
    method, seed
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
        found = relabel(thin, groups, point_of(family, start), method=method, seed=seed)
        # searches that end alike differ by rounding, which must not choose whose labels name the slots
        if best is None or _gain(found, best) > tolerance * (1.0 + abs(best.objective.mean())):
            best = found
    assert best is not None
    if len(some) == family.num_draws:
        return best
    means = mean_statistics(thin, groups, best.state)
    return relabel(family, groups, family.natural(means), method=method, seed=seed)


def _gain(found: Relabelling, best: Relabelling) -> float:
    return float(found.objective.mean() - best.objective.mean())


def point_of(family: Family, draw: int) -> tuple[Statistics, float]:
    """Natural parameters to start from at one draw."""
    return family.point(tuple(x[0] for x in family.statistics(np.array([draw]))))


def _round(
    family: Family,
    groups: dict[str, Group],
    natural: Statistics,
    partition: float,
    old: State | None,
    method: str,
    seed: int,
) -> tuple[State, np.ndarray, Statistics, bool]:
    objective = np.zeros(family.num_draws)
    totals = [np.zeros(eta.shape) for eta in natural]
    parts: list[State] = []
    moved = False
    for items in blocks(family, groups):
        problem, found = problem_of(family, groups, natural, items)
        solution = solve(problem, method, np.random.default_rng(seed))
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


def problem_of(
    family: Family, groups: dict[str, Group], natural: Statistics, items: slice | np.ndarray
) -> tuple[Problem, Statistics]:
    """The matching of some draws against natural parameters, and their statistics."""
    found = family.statistics(items)
    terms = [
        Term(eta[None].astype(x.dtype, copy=False), x, axes)
        for eta, x, axes in zip(natural, found, family.axes, strict=True)
    ]
    return Problem(tuple(terms), groups), found


def blocks(family: Family, groups: dict[str, Group]) -> Iterable[slice]:
    """Slices of draws whose statistics and tables stay within memory's bound."""
    one = sum(x.size for x in family.statistics(slice(0, 1))) + sum((g.size or 0) ** 2 for g in groups.values())
    step = max(1, CHUNK // max(1, one))
    for start in range(0, family.num_draws, step):
        yield slice(start, min(start + step, family.num_draws))


def mean_statistics(family: Family, groups: dict[str, Group], state: State) -> Statistics:
    """Mean statistics of draws under given labels."""
    moving = acting(family, groups)
    totals = [0.0] * len(family.axes)
    for items in blocks(family, moving):
        here = {name: state[name].at(items) for name in moving}
        for k, (x, axes) in enumerate(zip(family.statistics(items), family.axes, strict=True)):
            totals[k] = totals[k] + move(x, axes, here).sum(0, dtype=float)
    return tuple(np.asarray(t) / family.num_draws for t in totals)


def objective_of(family: Family, groups: dict[str, Group], state: State) -> float:
    """Mean log-likelihood of draws under given labels, at the parameters that suit them best, nats a draw."""
    moving = acting(family, groups)
    means = mean_statistics(family, groups, state)
    natural, partition = family.natural(means)
    carrier = sum(float(family.carrier(family.statistics(items)).sum()) for items in blocks(family, moving))
    inner = sum(float(np.vdot(eta, m)) for eta, m in zip(natural, means, strict=True))
    return inner - partition + carrier / family.num_draws
