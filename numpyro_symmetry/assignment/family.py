r"""Exponential families over draws, :math:`\langle\eta, g\cdot T(\theta)\rangle - A(\eta) + h(\theta)`.

What relabelling maximises: over :math:`g` one bilinear problem a draw, and over :math:`\eta` a function of nothing but
the relabelled draws' mean statistics. Draws are read a chunk at a time. Knows no costs, no sites and no containers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.assignment.problem import Problem, Term, move
from numpyro_symmetry.symmetry import Group, Hard
from numpyro_symmetry.symmetry.axes import Axis

Statistics = tuple[np.ndarray, ...]
State = dict[str, Hard]
# about this many numbers are in memory at once
CHUNK = 4_000_000


class Family(NamedTuple):
    r"""An exponential family over draws.

    Attributes
    ----------
    statistics
        Which draws -> statistics, each ``(draw, *shape)``.
    axes
        For each statistic one entry for each axis of its shape.
    natural
        Mean statistics, ``(*shape)`` each, -> natural parameters of largest likelihood and their log-partition.
    point
        Statistics of one draw -> natural parameters to start from, and their log-partition.
    carrier
        Statistics -> ``(draw,)``, the part of the log-likelihood that no label changes.
    num_draws
        How many draws there are.
    """

    statistics: Callable[[slice | np.ndarray], Statistics]
    axes: tuple[tuple[Axis, ...], ...]
    natural: Callable[[Statistics], tuple[Statistics, float]]
    point: Callable[[Statistics], tuple[Statistics, float]]
    carrier: Callable[[Statistics], np.ndarray]
    num_draws: int


def acting(family: Family, groups: dict[str, Group]) -> dict[str, Group]:
    """The groups on which a family's statistics depend."""
    named = {axis.group for axes in family.axes for axis in axes}
    return {name: group for name, group in groups.items() if name in named}


def point_of(family: Family, draw: int) -> tuple[Statistics, float]:
    """Natural parameters to start from at one draw."""
    return family.point(tuple(x[0] for x in family.statistics(np.array([draw]))))


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
