r"""Frank–Wolfe over all groups at once, on doubly stochastic matrices, and graduated nonconvexity on top of it.

From the barycentre, where no labels have been chosen, every group moves toward the vertex its gradient points to, by a
step that is exact because the objective is quadratic along a line. Commitments that coordinate descent makes too early
are put off until the evidence for all groups agrees. Knows the bilinear problem; nothing of costs.
"""

from __future__ import annotations

import numpy as np

from numpyro_symmetry.assignment.linear import assign
from numpyro_symmetry.assignment.problem import Benefit, Problem, Soft, barycentre, signed_permutations, soften
from numpyro_symmetry.symmetry import Hard
from numpyro_symmetry.symmetry.hard import members_at, overwrite

_MAX_STEPS = 60
_SETTLED = 1e-6
# weights of the penalty ‖P‖², in units of the gradient, from spreading labels to forcing a choice
GRADUATED = tuple(np.linspace(-0.5, 0.5, 9))


def frank_wolfe(problem: Problem, *, schedule: tuple[float, ...] = (0.0,)) -> dict[str, Hard]:
    """Follow a Frank–Wolfe path from the barycentre and round its end, a start for descent.

    Parameters
    ----------
    problem
        Batch of problems.
    schedule
        Weights of a penalty on the squared norm, one path after the other; ``(0.0,)`` is plain Frank–Wolfe.

    Returns
    -------
    dict
        Group -> assignment.

    References
    ----------
    Vogelstein et al. (2015), *Fast Approximate Quadratic Programming for Graph Matching*; Liu and Qiao (2014), *GNCCP*.
    """
    dtype = np.result_type(*(term.source for term in problem.terms))
    state = {name: barycentre(group, problem.batch, dtype) for name, group in problem.groups.items()}
    for weight in schedule:
        state = _path(problem, state, weight, _MAX_STEPS)
    # labels are those of the even matrix alone: `odd` only says which signs they have
    return {name: signed_permutations(assign(part.even), part.odd) for name, part in state.items()}


def _path(problem: Problem, state: dict[str, Soft], weight: float, max_steps: int) -> dict[str, Soft]:
    active = np.arange(problem.batch)
    everyone = {name: members_at(part, active) for name, part in state.items()}
    degree = max(sum(axis.group is not None for axis in term.axes) for term in problem.terms)
    for _ in range(max_steps):
        part = problem.at(active)
        here = {name: members_at(soft, active) for name, soft in everyone.items()}
        slope = {name: part.benefit(name, here) for name in part.groups}
        penalty = weight * np.mean([np.abs(b.unsigned()).max(axis=(1, 2)) for b in slope.values()], axis=0)
        slope = {name: _penalised(slope[name], here[name], penalty) for name in slope}
        vertex = {name: slope[name].best() for name in slope}
        toward = {name: soften(vertex[name], here[name].even.dtype) for name in vertex}
        # f(t) = f(0) + b t + a t², exactly, if no term carries more than two groups
        start, end = (_penalised_score(part, at, penalty) for at in (here, toward))
        b = sum(_inner(slope[name], toward[name]) - _inner(slope[name], here[name]) for name in slope)
        a = end - start - b
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(a < 0, np.clip(-b / (2 * a), 0.0, 1.0), a + b > 0)
        if degree > 2:
            t = _safeguard(part, here, toward, penalty, t, start, end)
        gain = b * t + a * t**2
        for name in here:
            overwrite(everyone[name], active, here[name].toward(toward[name], t))
        active = active[gain > _SETTLED * np.maximum(np.abs(start), _SETTLED * part.scale)]
        if not len(active):
            break
    return everyone


def _penalised(slope: Benefit, here: Soft, penalty: np.ndarray) -> Benefit:
    weight = 2.0 * penalty[:, None, None].astype(here.even.dtype)
    odd = None if slope.odd is None or here.odd is None else slope.odd + weight * here.odd
    return Benefit(slope.even + weight * here.even, odd)


def _penalised_score(problem: Problem, state: dict[str, Soft], penalty: np.ndarray) -> np.ndarray:
    size = sum(np.square(x, dtype=float).sum(axis=(1, 2)) for part in state.values() for x in part if x is not None)
    return problem.score(state) + penalty * size


def _safeguard(
    problem: Problem,
    here: dict[str, Soft],
    toward: dict[str, Soft],
    penalty: np.ndarray,
    t: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
) -> np.ndarray:
    """With three groups in a term the parabola is only a guess: keep its step where it does not lose."""
    reached = _penalised_score(problem, {name: here[name].toward(toward[name], t) for name in here}, penalty)
    return np.where((reached >= start) & (reached >= end), t, end > start)


def _inner(slope: Benefit, part: Soft) -> np.ndarray:
    pairs = [(x, y) for x, y in zip(slope, part, strict=True) if x is not None and y is not None]
    return np.sum([np.einsum("bij,bij->b", x, y, dtype=float) for x, y in pairs], 0)
