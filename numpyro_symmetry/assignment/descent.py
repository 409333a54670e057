"""Coordinate descent over groups: each in turn is one exact assignment, the others held fixed.

A batch is matched at once. An item's group is visited again only after a neighbouring group has moved, and an item that
has settled not at all. Knows the bilinear problem; nothing of costs.
"""

from __future__ import annotations

import numpy as np

from numpyro_symmetry.assignment.problem import Benefit, Problem, Solution
from numpyro_symmetry.symmetry import Hard

_MAX_SWEEPS = 100


def descend(problem: Problem, start: dict[str, Hard] | None = None) -> Solution:
    """Visit the groups from input to output until none moves; the objective never falls.

    Parameters
    ----------
    problem
        Batch of problems.
    start
        Assignment to start from. By default the barycentre: in the first sweep a group not yet visited counts as the
        average of all its labels, which makes the result equivariant under relabelling of the source.

    Returns
    -------
    Solution
        Of the whole batch.
    """
    # a gain below this share of the objective's own size is rounding
    tolerance = 32.0 * np.finfo(np.result_type(*(t.source for t in problem.terms))).eps
    state = {name: part.each(np.copy) for name, part in (start or {}).items()}
    dirty = {name: np.ones(problem.batch, bool) for name in problem.groups}
    num_sweeps = np.zeros(problem.batch, int)
    for _ in range(_MAX_SWEEPS):
        touched = np.zeros(problem.batch, bool)
        for name in problem.groups:
            items = np.flatnonzero(dirty[name])
            if not len(items):
                continue
            dirty[name][items] = False
            touched[items] = True
            # None stands for the whole batch, which needs no copies
            subset = None if len(items) == problem.batch else items
            here = {h: part if subset is None else part.at(items) for h, part in state.items()}
            benefit = problem.benefit(name, here, subset)
            new = benefit.best()
            if name in state:
                better, tied = _compared(problem, name, here, new, benefit, items, tolerance)
                state[name].write(items[better | tied], new.at(better | tied))
            else:  # the first sweep, from the barycentre
                state[name], better = new, np.ones(problem.batch, bool)
            for neighbour in problem.neighbours(name):
                dirty[neighbour][items[better]] = True
        num_sweeps += touched
        if not touched.any():
            break
    settled = ~np.logical_or.reduce([dirty[name] for name in problem.groups])
    return Solution(state, np.zeros(problem.batch, bool), num_sweeps, settled)


def _compared(
    problem: Problem,
    name: str,
    here: dict[str, Hard],
    new: Hard,
    benefit: Benefit,
    items: np.ndarray,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """For which items another assignment of one group is better; for which as good, with fewer labels moved."""
    old = here[name]
    if problem.pairs_with_itself(name):
        # the objective is quadratic in this group, and the benefit only its slope
        part = problem.at(items)
        gain = part.score({**here, name: new}) - part.score(here)
    else:
        gain = (benefit.of(new) - benefit.of(old)).sum(-1)
    allowed = tolerance * problem.scale[items]
    labels = np.arange(old.permutation.shape[-1])
    fewer = (new.permutation == labels).sum(-1) > (old.permutation == labels).sum(-1)
    return gain > allowed, (np.abs(gain) <= allowed) & fewer
