"""Which algorithm for which problem: exact where that is possible, otherwise the best of several.

Groups that share no term are independent and solved apart. One group alone, not paired with itself, is a single
assignment. A few groups of few elements are enumerated, all but the largest, which is then an assignment. Blocks in
which units move are paired by what each pair is worth. Knows the bilinear problem; nothing of costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from numpyro_symmetry.assignment.descent import descend
from numpyro_symmetry.assignment.frank_wolfe import GRADUATED, frank_wolfe
from numpyro_symmetry.assignment.nested import nested_groups, solve_nested
from numpyro_symmetry.assignment.problem import Problem, Solution, Term, where
from numpyro_symmetry.chunks import BLOCK, CHUNK, slices
from numpyro_symmetry.steps import track
from numpyro_symmetry.symmetry import Hard
from numpyro_symmetry.symmetry.components import connected
from numpyro_symmetry.symmetry.hard import concatenate, products

METHODS = ("auto", "descent", "frank_wolfe", "thorough")
_MAX_ENUMERATED = 1000
# where none is left to assign, scoring all of them is a product, which takes less than one descent up to seven labels
_MAX_SCORED = 5040
# below this width restarts are cheap and find what Frank-Wolfe misses
_NARROW = 16
_RESTARTS = 8
_REWEIGHTING = 1.0
# of the objective's size
_ROUNDING = 1e-12


def solve(problem: Problem, method: str, rng: np.random.Generator) -> Solution:
    """Maximise a batch of bilinear problems.

    Parameters
    ----------
    problem
        Batch of problems.
    method
        ``"auto"``: the better of descent and Frank–Wolfe, both from the barycentre, and a few restarts if narrow;
        ``"descent"`` and ``"frank_wolfe"`` alone; ``"thorough"``: also graduated nonconvexity and more restarts.
    rng
        For restarts.

    Returns
    -------
    Solution
        Never worse than the identity.
    """
    state: dict[str, Hard] = {}
    exact, settled = np.ones(problem.batch, bool), np.ones(problem.batch, bool)
    num_sweeps = np.zeros(problem.batch, int)
    for component in components(problem):
        if nested_groups(component):
            # every call has the same restarts, for how many calls there are depends on the batch
            seed = int(rng.integers(2**32))
            found = solve_nested(component, lambda part, seed=seed: solve(part, method, np.random.default_rng(seed)))
        else:
            found = _solve_component(component, method, rng)
        state |= found.state
        exact, settled = exact & found.exact, settled & found.converged
        num_sweeps = np.maximum(num_sweeps, found.num_sweeps)
    return Solution({name: state[name] for name in problem.groups}, exact, num_sweeps, settled)


def components(problem: Problem) -> list[Problem]:
    """A problem cut into independent ones: their groups share no term."""
    parts = connected((term, {axis.group for axis in term.axes if axis.group is not None}) for term in problem.terms)
    order = list(problem.groups)
    parts.sort(key=lambda part: min(order.index(name) for name in part[0]))
    return [Problem(tuple(terms), {g: problem.groups[g] for g in order if g in names}) for names, terms in parts]


def _solve_component(problem: Problem, method: str, rng: np.random.Generator) -> Solution:
    if (assigned := _enumerated_groups(problem)) is not None:
        state = _enumerate(problem, *assigned)
        yes = np.ones(problem.batch, bool)
        return Solution(state, yes, np.ones(problem.batch, int), yes)
    starts = list(_starts(problem, method, rng))
    tried = (descend(problem, start()) for start in track(starts, len(starts)))
    best = next(tried)
    reached = problem.score(best.state)
    for found in tried:
        score = problem.score(found.state)
        best, reached = where(score > reached, found, best), np.maximum(score, reached)
    # labels as they came are only a last resort: starting from them makes the answer depend on them
    worse = reached < problem.score(problem.identity())
    if worse.any():
        items = np.flatnonzero(worse)
        part = problem.at(items)
        rescued = descend(part, part.identity())
        for name, part in rescued.state.items():
            best.state[name].write(items, part)
        best.num_sweeps[items], best.converged[items] = rescued.num_sweeps, rescued.converged
    return best


def _starts(problem: Problem, method: str, rng: np.random.Generator) -> Iterator[Callable[[], dict[str, Hard] | None]]:
    narrow = max(group.degree for group in problem.groups.values()) <= _NARROW
    if method != "frank_wolfe":
        yield lambda: None
    if method != "descent":
        yield lambda: frank_wolfe(problem)
    if method == "thorough":
        yield lambda: frank_wolfe(problem, schedule=GRADUATED)
    if method == "thorough" or (method == "auto" and narrow):
        for _ in range(_RESTARTS):
            yield lambda: descend(_reweighted(problem, rng)).state


def _reweighted(problem: Problem, rng: np.random.Generator) -> Problem:
    """The targets' entries weighted at random: another start, yet blind to how the source is labelled."""

    def one(term: Term) -> Term:
        weights = np.exp(_REWEIGHTING * rng.standard_normal(term.target.shape[1:])).astype(term.target.dtype)
        return term._replace(target=term.target * weights)

    return Problem(tuple(map(one, problem.terms)), problem.groups)


def _enumerated_groups(problem: Problem) -> tuple[list[str], str | None] | None:
    """Groups to enumerate and the one left to assign, if the first have few elements together; else ``None``."""
    assignable = [name for name in problem.groups if not problem.pairs_with_itself(name)]
    last = max(assignable, key=lambda name: problem.groups[name].degree, default=None)
    rest = [name for name in problem.groups if name != last]
    log_order = math.fsum(problem.groups[name].log_order() for name in rest)
    most = _MAX_SCORED if last is None else _MAX_ENUMERATED
    return (rest, last) if log_order <= math.log(most) + 1e-9 else None


def _enumerate(problem: Problem, names: list[str], last: str | None) -> dict[str, Hard]:
    if not names:
        return {} if last is None else {last: problem.benefit(last, {}).best()}
    elements = products({name: problem.groups[name].elements() for name in names})
    count = len(next(iter(elements.values())).permutation)
    some = slices(problem.batch, count, CHUNK)
    found = [_best_element(problem.at(np.arange(problem.batch)[items]), elements, last) for items in some]
    return {name: concatenate([state[name] for state in found]) for name in problem.groups}


def _best_element(problem: Problem, elements: dict[str, Hard], last: str | None) -> dict[str, Hard]:
    def completed(problem: Problem, chosen: np.ndarray) -> dict[str, Hard]:
        """For each of the batch the element chosen, and what is best for the last group then."""
        state = {name: part.at(chosen) for name, part in elements.items()}
        return state if last is None else state | {last: problem.benefit(last, state).best()}

    def judge(items: np.ndarray, chosen: np.ndarray) -> None:
        for some in slices(len(items), max(term.source[0].size for term in problem.terms), BLOCK):
            part = problem.at(items[some])
            state = completed(part, chosen[some])
            scores[items[some], chosen[some]] = part.score(state)
            kept[items[some], chosen[some]] = _num_kept(state, part.identity())

    limits = problem.scores(elements) if last is None else problem.limits(last, elements)
    scores, kept = np.full(limits.shape, -np.inf), np.full(limits.shape, -1)
    judge(np.arange(problem.batch), limits.argmax(1))
    rounding = _ROUNDING * problem.scale[:, None]
    judge(*np.nonzero(limits >= scores.max(1, keepdims=True) - 2 * rounding))
    # a gain within rounding is none, and of equally good elements that which moves the fewest labels is taken
    is_best = scores >= scores.max(1, keepdims=True) - rounding
    return completed(problem, np.where(is_best, kept, -1).argmax(1))


def _num_kept(state: dict[str, Hard], still: dict[str, Hard]) -> np.ndarray:
    """How many labels each of the batch keeps, and keeps the sign of."""
    return np.sum([part.is_same(still[name]).sum(-1) for name, part in state.items()], axis=0)
