"""How much worse the second-best labels of each draw are: where they hardly are, its labels are a guess.

Knows the bilinear problem; no costs and no containers.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from numpyro_symmetry.assignment.nested import NestedGroups, moved_by, nested_groups, pairs
from numpyro_symmetry.assignment.problem import Problem
from numpyro_symmetry.assignment.solve import solve
from numpyro_symmetry.symmetry import Hard
from numpyro_symmetry.symmetry.hard import products

# the exact second best takes n^3 operations a draw; above this only exchanges of two labels are looked at
MAX_EXACT = 32
# so many elements are all tried where axes of one site move together
MAX_ELEMENTS = 120


def margins(problem: Problem, state: dict[str, Hard]) -> np.ndarray:
    r"""Objective of the labels in use minus that of the next best, ``(batch,)``.

    Where two axes of one site move, by two groups or by one, all elements are tried if there are 120 at most. Else one
    group is changed at a time, blocks with all units in them, and the next best may be nearer than what is found. The
    next best assignment differs from the best by a cycle: with :math:`D_{ij}` the loss of moving what is in slot j to
    slot i, it is the shortest directed cycle of :math:`D`, found by Floyd and Warshall's recursion; above 32 labels
    only exchanges of two, and where a group stands on two axes of one site likewise.

    Parameters
    ----------
    problem
        A batch of matchings.
    state
        Their labels.

    Returns
    -------
    numpy.ndarray
        Infinite where there is nothing to choose.
    """
    nested = nested_groups(problem)
    together = any(sum(axis.group is not None for axis in term.axes) > 1 for term in problem.terms)
    log_order = math.fsum(group.log_order() for group in problem.groups.values())
    if not nested and together and log_order <= math.log(MAX_ELEMENTS) + 1e-9:
        return _by_enumeration(problem, state)
    alone = problem.groups.keys() - {name for nest in nested for name in (nest.root, *nest.inner)}
    found = [np.full(problem.batch, np.inf), *(_of_nested_blocks(problem, state, nest) for nest in nested)]
    found += [
        (_by_exchanges if problem.pairs_with_itself(name) else _by_cycles)(problem, state, name) for name in alone
    ]
    return np.min(found, axis=0)


def _by_enumeration(problem: Problem, state: dict[str, Hard]) -> np.ndarray:
    elements = products({name: group.elements() for name, group in problem.groups.items()})
    scores = problem.scores(elements)
    # [batch, element]: the labels in use
    own = np.all([part.is_same(state[name].at(np.s_[:, None])).all(-1) for name, part in elements.items()], axis=0)
    return scores[own] - np.where(own, -np.inf, scores).max(1)


def _of_nested_blocks(problem: Problem, state: dict[str, Hard], nest: NestedGroups) -> np.ndarray:
    """Margins of blocks, each pair of them with its best units, and of the units in each block where it stands."""
    here, n = moved_by(problem, state), problem.groups[nest.root].degree
    worth, best = np.empty((problem.batch, n, n)), np.full(problem.batch, np.inf)
    for slot, pair in enumerate(pairs(here, nest)):
        found = solve(pair, "auto", np.random.default_rng(0))
        worth[:, slot] = pair.score(found.state).reshape(-1, n)
        stays = pair.at(np.arange(problem.batch) * n + slot)
        best = np.minimum(best, margins(stays, stays.identity()))
    loss = np.diagonal(worth, axis1=1, axis2=2)[..., None] - worth
    return np.minimum(best, _shortest_cycle(loss) if n <= MAX_EXACT else _shortest_exchange(loss))


def _by_cycles(problem: Problem, state: dict[str, Hard], name: str) -> np.ndarray:
    benefit = problem.benefit(name, state)
    table = benefit.unsigned().astype(float)
    index = state[name].permutation
    own = np.take_along_axis(table, index[..., None], 2)
    # loss[b, i, j]: slot i takes what slot j has
    loss = own - np.take_along_axis(table, index[:, None, :], 2)
    best = _shortest_cycle(loss) if table.shape[-1] <= MAX_EXACT else _shortest_exchange(loss)
    if benefit.odd is not None:
        flips = 2.0 * np.abs(np.take_along_axis(benefit.odd, index[..., None], 2)[..., 0]).min(-1)
        best = np.minimum(best, flips)
    return best


def _shortest_cycle(loss: np.ndarray) -> np.ndarray:
    n = loss.shape[-1]
    path = loss.copy()
    path[:, np.arange(n), np.arange(n)] = np.inf
    for k in range(n):
        np.minimum(path, path[:, :, k, None] + path[:, None, k, :], out=path)
    return path[:, np.arange(n), np.arange(n)].min(-1, initial=np.inf)


def _shortest_exchange(loss: np.ndarray) -> np.ndarray:
    both = loss + loss.transpose(0, 2, 1)
    i, j = np.triu_indices(loss.shape[-1], 1)
    return both[:, i, j].min(-1, initial=np.inf)


def _by_exchanges(problem: Problem, state: dict[str, Hard], name: str) -> np.ndarray:
    here = state[name]
    n = here.permutation.shape[-1]
    others: list[Hard] = []
    for i, j in itertools.combinations(range(n), 2):
        order = np.arange(n)
        order[[i, j]] = j, i
        others.append(here.each(lambda x, order=order: x[:, order]))
    if here.sign is not None:
        others += [Hard(here.permutation, here.sign * np.where(np.arange(n) == i, -1, 1)) for i in range(n)]
    scores = [problem.score({**state, name: other}) for other in others]
    return problem.score(state) - np.max(scores, axis=0, initial=-np.inf)
