r"""Draws placed on natural parameters: :math:`\max_g \langle\eta, g\cdot T(\theta)\rangle` for each, a chunk at a time.

`match` does it once, on the target's parameters; relabelling in turn with choosing them. Knows families and the solver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.assignment.family import Family, Natural, State, Statistics, blocks, problem_of
from numpyro_symmetry.assignment.problem import Solution, move
from numpyro_symmetry.assignment.solve import solve
from numpyro_symmetry.chunks import BLOCK, slices
from numpyro_symmetry.symmetry import Group


class Placement(NamedTuple):
    """Some of the draws: which, their statistics, and where they were placed."""

    items: slice
    found: Statistics
    solution: Solution


def place(
    family: Family,
    groups: dict[str, Group],
    natural: Statistics,
    method: str,
    seed: int | np.random.SeedSequence,
    before: State | None = None,
    among: Sequence[slice] | None = None,
) -> Iterator[Placement]:
    """Place all draws on natural parameters.

    Parameters
    ----------
    family
        What the likelihood is.
    groups
        Those that statistics depend on.
    natural
        Natural parameters; what a draw has no statistic for does not count.
    method, seed
        As for `solve`; the same seed for every chunk.
    before
        Where draws are already: none of them ends lower.
    among
        Which draws, a chunk at a time; all of them by default.

    Yields
    ------
    Placement
        A chunk, in order.
    """
    for items in blocks(family, groups) if among is None else among:
        problem, found = problem_of(family, groups, natural, items)
        nothing = Solution({}, *(np.full(items.stop - items.start, value) for value in (True, 0, True)))
        solution = solve(problem, method, np.random.default_rng(seed)) if groups else nothing
        if before is not None and not solution.exact.all():
            # another start may end lower than where the draw already was
            here = {name: part.at(items) for name, part in before.items()}
            keep = problem.score(here) >= problem.score(solution.state)
            for name, part in solution.state.items():
                part.write(np.flatnonzero(keep), here[name].at(keep))
        yield Placement(items, found, solution)


def log_likelihoods(family: Family, at: Natural, placed: Placement) -> tuple[np.ndarray, np.ndarray]:
    """Of draws as they came and as they were placed, ``(draw,)``: from scratch, in float64, as many as fit a cache."""
    natural, partition = at
    before, after = np.full((2, placed.items.stop - placed.items.start), -partition)
    for name, x in placed.found.items():
        axes, eta = family.axes[name], natural.get(name, np.zeros(x.shape[1:])).ravel()
        for items in slices(len(x), eta.size, BLOCK):
            state = {group: part.at(items) for group, part in placed.solution.state.items()}
            wide = x[items].astype(float, copy=False)
            carrier = family.carrier({name: wide})
            before[items] += carrier + wide.reshape(len(wide), -1) @ eta
            after[items] += carrier + move(wide, axes, state).reshape(len(wide), -1) @ eta
    return before, after
