r"""Blocks that move, and units that move in each of them: heads and their dimensions, experts and their units.

The two form a wreath product, whose factors do not act one apart from the other. Where nothing else moves it is solved
exactly: what it is worth that slot :math:`i` takes block :math:`j` is the value of the best assignment of units between
the two, and the table of these values is one more assignment. Where other groups move as well, they take turns. Knows
the bilinear problem; nothing of costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.assignment.linear import assign
from numpyro_symmetry.assignment.problem import Problem, Solution, Term, move, where
from numpyro_symmetry.symmetry import Axis, Group, Hard
from numpyro_symmetry.symmetry.axes import FREE
from numpyro_symmetry.symmetry.hard import fibred_over, then

MAX_ROUNDS = 20
_ROUNDING = 1e-12


# what solves a simpler problem, the same way each time
Solve = Callable[[Problem], Solution]


class NestedGroups(NamedTuple):
    """Blocks that move, ``root``, and all groups that are fibred over them."""

    root: str
    inner: tuple[str, ...]


def nested_groups(problem: Problem) -> list[NestedGroups]:
    """Each group that moves blocks in which others move, with the groups that are fibred over it."""
    inner = [name for name in problem.groups if "/" in name]
    roots = dict.fromkeys(fibred_over(name)[0] for name in inner)
    return [NestedGroups(root, tuple(name for name in inner if fibred_over(name)[0] == root)) for root in roots]


def solve_nested(problem: Problem, solve: Solve) -> Solution:
    """Maximise a batch of connected problems in which blocks move, and units in them.

    Parameters
    ----------
    problem
        Batch of problems. Blocks carry no signs, and stand on one axis of a term.
    solve
        Solves a problem with fewer levels of moving blocks.

    Returns
    -------
    Solution
        Never worse than the identity. Its rounds are counted as sweeps.
    """
    nests = nested_groups(problem)
    taken = {name for nest in nests for name in (nest.root, *nest.inner)}
    rest = [name for name in problem.groups if name not in taken]
    before, identity = problem.score(problem.identity()), problem.identity()
    if len(nests) == 1 and not rest:
        best = _by_pairs(problem, nests[0], solve)
    else:
        steps: list[Callable[[Problem], Solution]] = [
            *(lambda p, nest=nest: _by_pairs(p, nest, solve) for nest in nests),
            *([lambda p: _of_groups(p, rest, solve)] if rest else []),
        ]
        blind = _from_barycentre(problem, nests, rest, solve)
        # a second start with blocks held still, for other groups may be worth more than blocks
        still = _with_blocks_still(problem, nests, solve).state
        runs = [_in_turns(problem, start, order) for start, order in ((blind, steps[::-1]), (still, steps))]
        scores = [problem.score(run.state) for run in runs]
        best = where(scores[1] > scores[0] + _ROUNDING * problem.scale, runs[1], runs[0])
    stays = problem.score(best.state) <= before + _ROUNDING * problem.scale
    return where(stays, best._replace(state=identity), best)


def pairs(problem: Problem, nest: NestedGroups) -> Iterator[Problem]:
    """For each slot of a nest: the problem of every block in it, ``batch * n`` of them, with nothing else moving."""
    root, inner = nest
    prefix = f"{root}/"
    groups = {
        name.removeprefix(prefix): problem.groups[name]._replace(
            over=fibred_over(name.removeprefix(prefix)), cells=problem.groups[name].cells[1:]
        )
        for name in inner
    }
    terms = []
    for term in problem.terms:
        names = [axis.group for axis in term.axes]
        if root in names:
            at = names.index(root)
            within = [_within(axis, prefix) for k, axis in enumerate(term.axes) if k != at]
            terms.append(Term(np.moveaxis(term.target, at + 1, 1), np.moveaxis(term.source, at + 1, 1), tuple(within)))
    n = problem.groups[root].degree
    for slot in range(n):
        each = []
        for target, source, axes in terms:
            own_target = target[:, slot] if len(target) == 1 else np.repeat(target[:, slot], n, 0)
            each.append(Term(own_target, source.reshape(-1, *source.shape[2:]), axes))
        yield Problem(tuple(each), groups)


def moved_by(problem: Problem, state: dict[str, Hard]) -> Problem:
    """The problem with its sources moved by a state."""
    return Problem(
        tuple(term._replace(source=move(term.source, term.axes, state)) for term in problem.terms), problem.groups
    )


# ---- steps -----------------------------------------------------------------------------------------------------------


def _by_pairs(problem: Problem, nest: NestedGroups, solve: Solve) -> Solution:
    """The best element of one nest, with all else as it stands; exact if every pair of blocks is solved exactly."""
    root, inner = nest
    state, group, batch = problem.identity(), problem.groups[root], problem.batch
    n = group.degree
    exact, settled = np.ones(batch, bool), np.ones(batch, bool)
    worth, units = np.empty((batch, n, n)), []
    for slot, pair in enumerate(pairs(problem, nest)):
        found = solve(pair)
        worth[:, slot] = pair.score(found.state).reshape(batch, n)
        units.append(found.state)
        exact &= found.exact.reshape(batch, n).all(1)
        settled &= found.converged.reshape(batch, n).all(1)
    chosen = assign(worth)
    state[root] = Hard(chosen)
    for slot, found in enumerate(units):
        # of the units found for each pair, those of the block that was chosen
        at = np.arange(batch) * n + chosen[:, slot]
        for name in inner:
            state[name].write((slice(None), slot), found[name.removeprefix(f"{root}/")].at(at))
    return Solution(state, exact, np.ones(batch, int), settled)


def _of_groups(problem: Problem, names: list[str], solve: Solve) -> Solution:
    """Solve for the groups ``names``, with all others as they stand."""
    terms = tuple(term._replace(axes=tuple(_of(axis, names) for axis in term.axes)) for term in problem.terms)
    found = solve(Problem(terms, {name: problem.groups[name] for name in names}))
    return found._replace(state=problem.identity() | found.state)


def _with_blocks_still(problem: Problem, nests: list[NestedGroups], solve: Solve) -> Solution:
    """Solve for all groups but those that move blocks: the units of every block then are a group of their own."""
    cut, whole = problem, problem.identity()
    for nest in nests:
        cut = _cut(cut, nest.root)
    solution = solve(cut)
    for name, part in whole.items():
        if name in solution.state:
            whole[name] = solution.state[name]
        elif "/" in name:
            root, below = name.split("/", 1)
            for cell in range(problem.groups[root].degree):
                part.write((slice(None), cell), solution.state[_in_cell(root, cell, below)])
    return solution._replace(state=whole)


def _from_barycentre(problem: Problem, nests: list[NestedGroups], rest: list[str], solve: Solve) -> dict[str, Hard]:
    """Solve for each nest with everything else averaged, and then for all other groups."""
    state = problem.identity()
    for nest in nests:
        step = _by_pairs(_averaged(problem, {nest.root, *nest.inner}), nest, solve).state
        state |= {name: step[name] for name in (nest.root, *nest.inner)}
    if rest:
        state |= {name: _of_groups(moved_by(problem, state), rest, solve).state[name] for name in rest}
    return state


def _in_turns(problem: Problem, start: dict[str, Hard], steps: list[Callable[[Problem], Solution]]) -> Solution:
    """Take steps in turns until none gains."""
    state, objective = {name: part.each(np.copy) for name, part in start.items()}, problem.score(start)
    num_rounds = np.zeros(problem.batch, int)
    # a step is taken again only where another has gained since: from the same state it would gain nothing
    stale = np.ones((len(steps), problem.batch), bool)
    for _ in range(MAX_ROUNDS):
        num_rounds += stale.any(0)
        for k, step in enumerate(steps):
            items = np.flatnonzero(stale[k])
            if not len(items):
                continue
            stale[k] = False
            part, here = problem.at(items), {name: x.at(items) for name, x in state.items()}
            tried = then(here, step(moved_by(part, here)).state)
            reached = part.score(tried)
            wins = reached > objective[items] + _ROUNDING * part.scale
            won = items[wins]
            for name, x in state.items():
                x.write(won, tried[name].at(wins))
            objective[won] = reached[wins]
            stale[:, won] = True
            stale[k, won] = False
        if not stale.any():
            break
    return Solution(state, np.zeros(problem.batch, bool), num_rounds, np.logical_not(stale.any(0)))


# ---- terms -----------------------------------------------------------------------------------------------------------


def _averaged(problem: Problem, names: set[str]) -> Problem:
    """The problem with sources averaged over all groups but ``names``: an entry is the mean of what may come there."""

    def averaged(term: Term) -> Term:
        target, source = term.target, term.source
        for k, axis in enumerate(term.axes):
            if axis.group is not None and axis.group not in names:
                # what is constant along an axis meets the target's sum
                target, mean = target.sum(k + 1, keepdims=True), source.mean(k + 1, keepdims=True)
                source = np.zeros_like(mean) if axis.signed else mean
        return Term(target, source, tuple(_of(axis, names) for axis in term.axes))

    return Problem(tuple(map(averaged, problem.terms)), problem.groups)


def _cut(problem: Problem, root: str) -> Problem:
    """The problem with blocks held still, cut block by block: the units of each are a group of their own."""

    def cut_term(term: Term) -> list[Term]:
        names = [axis.group for axis in term.axes]
        if root not in names:
            return [term]
        at = names.index(root)
        rest = term.axes[:at] + term.axes[at + 1 :]

        def named(axis: Axis, cell: int) -> Axis:
            is_inner = axis.group is not None and axis.group.startswith(f"{root}/")
            return axis._replace(group=_in_cell(root, cell, (axis.group or "").split("/", 1)[1])) if is_inner else axis

        return [
            Term(term.target.take(cell, at + 1), term.source.take(cell, at + 1), tuple(named(a, cell) for a in rest))
            for cell in range(term.source.shape[at + 1])
        ]

    groups: dict[str, Group] = {}
    for name, group in problem.groups.items():
        if name.startswith(f"{root}/"):
            for cell in range(problem.groups[root].degree):
                own = _in_cell(root, cell, name.split("/", 1)[1])
                groups[own] = group._replace(over=fibred_over(own), cells=group.cells[1:])
        elif name != root:
            groups[name] = group
    return Problem(tuple(cut for term in problem.terms for cut in cut_term(term)), groups)


def _in_cell(root: str, cell: int, below: str) -> str:
    """The name of the group of units in one block, where blocks are held still: ``"head[2].unit"``."""
    return f"{root}[{cell}].{below}"


def _of(axis: Axis, names: set[str] | list[str]) -> Axis:
    return axis if axis.group in names else FREE


def _within(axis: Axis, prefix: str) -> Axis:
    """An axis as it is labelled within one block; axes of other groups stand still."""
    inside = axis.group is not None and axis.group.startswith(prefix)
    return axis._replace(group=(axis.group or "").removeprefix(prefix)) if inside else FREE
