r"""Draws placed on natural parameters: :math:`\max_g \langle\eta, g\cdot T(\theta)\rangle` for each, a chunk at a time.

`match` places draws once, on the target's parameters; relabelling does so in turn with choosing parameters. Knows
families and the solver.
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
    """A chunk of draws: its slice, the draws' statistics, and their labels."""

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
        The groups that statistics depend on.
    natural
        Natural parameters; those for which draws have no statistic do not count.
    method, seed
        As for `solve`; the same seed for every chunk.
    before
        Labels that draws have already: none of them ends lower.
    among
        Chunks of the draws that are placed; by default all draws, in chunks that fit memory.

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
    """``(draw,)`` before and after placing: from scratch, in float64, as many draws at a time as fit a cache."""
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
