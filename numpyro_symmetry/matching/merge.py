r"""`merge`: several solutions, each with labels of its own, brought to common labels and made into one.

.. math:: \max_{g_1,\dots,g_K} -\sum_k \lVert g_k\theta_k - \tfrac1K\textstyle\sum_j g_j\theta_j\rVert^2

One member after another is placed on the mean of the others, which never lowers it: given those, the objective is
linear in what the member holds. Elements between any two members, :math:`g_i^{-1}g_j`, agree round every cycle by
construction. Knows `match`, and what the members are merged into.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm.auto import tqdm

from numpyro_symmetry.assignment.solve import METHODS
from numpyro_symmetry.matching.cross_terms import CrossTerms
from numpyro_symmetry.matching.full_gaussian import FullGaussian
from numpyro_symmetry.matching.gaussian import DiagonalGaussian
from numpyro_symmetry.matching.gaussian_inputs import refuse_other_sites
from numpyro_symmetry.matching.hows import How, chosen_how
from numpyro_symmetry.matching.match import match
from numpyro_symmetry.matching.product import Gaussian
from numpyro_symmetry.matching.sides import (
    as_symmetry,
    completed,
    complex_sites,
    from_pairs,
    in_pairs,
    is_guide,
    is_tree,
    of_pairs,
    read,
    side_of,
    without,
)
from numpyro_symmetry.symmetry import Element, Hard, Symmetry, SymmetryError, compose, inverse, num_transpositions
from numpyro_symmetry.symmetry.arguments import as_flag, is_option, refuse_tracers
from numpyro_symmetry.symmetry.pytrees import real_arrays, refuse_other_structure, uncompared, with_arrays
from numpyro_symmetry.symmetry.shown import as_html

# members that the others are brought to at first, and how many of these searches are carried on
_MOST_STARTS, _NUM_SEARCHES = 8, 3
_MAX_ROUNDS, _NARROW = 50, 16
# seconds before a progress bar is shown
_UNTOLD = 2.0
# relative to the objective: a gain below it is none
_ROUNDING = 1e-9


class Merge(NamedTuple):
    """What `merge` made; arrays of one entry for each member.

    Attributes
    ----------
    merged
        The members as one, in the labels of the first, of the structure and types that the first came in.
    members
        The members, relabelled: ``symmetry.apply`` of each one's element.
    elements
        Group -> ``(num_members, n)``: what was applied to each; the identity to the first.
    distances_before, distances
        ``(num_members,)``: of each member from the mean of all (Gaussians: in Wasserstein's distance, from the
        barycentre, of correlated ones without their correlations), as the members came, and relabelled. Running
        statistics do not count.
    num_rounds, converged
        How often all members were placed on the others, and whether the last time changed nothing.
    cross_terms
        Of a product: how much of it lies in other labellings. Otherwise ``None``.
    """

    merged: Any
    members: tuple[Any, ...]
    elements: Element
    distances_before: np.ndarray
    distances: np.ndarray
    num_rounds: int
    converged: bool
    cross_terms: CrossTerms | None

    def __repr__(self) -> str:
        def size(values: np.ndarray) -> str:
            return f"{float(np.sqrt(np.mean(values**2))):.4g}"

        lines = [
            f"Merge of {len(self.members)} members into one {type(self.merged).__name__}",
            f"  distance from the mean {size(self.distances_before)} -> {size(self.distances)} (root mean square); "
            f"{self.num_rounds} rounds, {'settled' if self.converged else 'not settled'}",
        ]
        for name, counts in num_transpositions(self.elements).items():
            # the first member keeps its labels
            moved, part = np.asarray(counts, float)[1:], self.elements[name]
            n = np.shape(Hard.of(part).permutation)[-1]
            if moved.size:
                at_random = n - sum(1.0 / k for k in range(1, n + 1))
                lines.append(f"  {name}: {moved.mean():.1f} transpositions a member; labels at random, {at_random:.1f}")
        if self.cross_terms is not None:
            lines.append(f"  {self.cross_terms}")
        return "\n".join(lines)

    _repr_html_ = as_html


def merge(
    solutions: Sequence[Any],
    symmetry: Symmetry,
    *,
    how: str | How = "mean",
    method: str = "auto",
    progress_bar: bool = True,
) -> Merge:
    r"""Bring several solutions to common labels, and make one of them.

    .. math:: \max_{g_1,\dots,g_K} -\sum_k \big\lVert g_k\theta_k - \tfrac1K\textstyle\sum_j g_j\theta_j\big\rVert^2

    Every member in turn is placed on the mean of the others, from several starts, until none moves; no step lowers the
    objective. Elements between any two members agree round every cycle.

    Parameters
    ----------
    solutions
        Pytrees of arrays, values by site, `DiagonalGaussian`, `FullGaussian` or ``(guide, params)``; of one kind and
        structure.
    symmetry
        What may be permuted: `find_symmetry` of the function that they are parameters of, or of the model.
    how
        - ``"mean"``: of points, the average. Running statistics are averaged with their units, and have no say in
          labels; compute them again on data where they matter. Whole numbers and keys are those of the first.
        - ``"barycenter"``: of Gaussians, Wasserstein's.
        - ``"product"``: of Gaussian posteriors of shards of the data, each with the prior to the power 1/K.
        - ``matching.Product(prior=...)``: the same where each had the whole prior. Any `matching.How`.
    method
        How a member is placed; see `match`.
    progress_bar
        Whether to show one, of members placed, after two seconds.

    Returns
    -------
    Merge
        The merged solution, of the structure and types of the first, in the first one's labels.

    Raises
    ------
    SymmetryError
        If there are no solutions, their structures differ (the first differing path is named), values are not finite,
        or they are not what ``how`` merges.
    ValueError
        If ``how`` or ``method`` is unknown.
    TypeError
        If ``solutions`` is no list, ``symmetry`` is none, ``progress_bar`` no flag, or under `jit`.

    See Also
    --------
    match : brings one solution into another's basin, without changing it otherwise.

    References
    ----------
    Ainsworth, Hayase and Srinivasa (2023), *Git Re-Basin*, algorithm 3, with exact placements from several starts in
    place of one; Crisostomi et al. (2024), *C²M³*, for consistency round cycles.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, merge
    >>> symmetry = Symmetry({"in": (None, "hidden"), "out": ("hidden",)})
    >>> members = [
    ...     {"in": np.array([[1.0, 2.0, 3.0]]), "out": np.array([1.0, -1.0, 0.0])},
    ...     {"in": np.array([[3.1, 1.1, 1.9]]), "out": np.array([0.0, 1.0, -1.0])},
    ...     {"in": np.array([[2.1, 2.9, 0.9]]), "out": np.array([-1.0, 0.0, 1.0])},
    ... ]
    >>> found = merge(members, symmetry)
    >>> found.merged["in"].round(2).tolist(), found.elements["hidden"].tolist()
    ([[1.0, 2.0, 3.0]], [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    """
    chosen = chosen_how(how)
    if not is_option(method, METHODS):
        raise ValueError(f"method must be one of {METHODS}; got {method!r}.")
    symmetry = as_symmetry(symmetry)
    items, beside, pairs = _read(solutions, symmetry)
    bound = _bound(symmetry, items[0], pairs)
    chosen.check(items, bound)
    compared = without(bound, beside)
    seen = [_compared(item, beside) for item in items]
    # how many rounds it takes is not known
    options: Any = {"disable": not as_flag(progress_bar, "progress_bar"), "delay": _UNTOLD, "leave": False}
    with tqdm(desc="placing members", unit=" placed", **options) as bar:
        aligned = _aligned(seen, compared, method, bar.update)
    elements = [completed(bound, element, ()) for element in aligned.elements]
    near = [_moved(bound, element, item) for element, item in zip(elements, items, strict=True)]
    elements = [compose(*pair) for pair in zip(chosen.relabelled(near, bound), elements, strict=True)]
    home = inverse(elements[0])
    elements = [compose(home, element) for element in elements]
    moved = [_moved(bound, element, item) for element, item in zip(elements, items, strict=True)]
    first = solutions[0]
    return Merge(
        merged=_as_given(first, chosen.merged(moved), pairs),
        members=tuple(_as_given(*pair, pairs) for pair in zip(solutions, moved, strict=True)),
        elements=jax.tree.map(lambda *parts: jnp.stack(parts), *elements),
        distances_before=_distances(seen),
        distances=_distances([_compared(item, beside) for item in moved]),
        num_rounds=aligned.num_rounds,
        converged=aligned.converged,
        cross_terms=chosen.cross_terms(moved, bound),
    )


# ---- what is given -----------------------------------------------------------------------------------------------


def _read(solutions: Any, symmetry: Symmetry) -> tuple[list[Any], frozenset[str], frozenset[str]]:
    """Values by site in double precision, or Gaussians; sites that have no say in labels, and those of pairs."""
    if isinstance(solutions, str | Mapping | Gaussian) or not isinstance(solutions, Sequence):
        raise TypeError(
            f"solutions must be a list of them; got {type(solutions).__name__}. Of a stacked tree: "
            "[jax.tree.map(lambda x: x[k], stacked) for k in range(n)]."
        )
    if not solutions:
        raise SymmetryError("There are no solutions to merge: the list is empty.")
    # a guide among them is no tree
    refuse_tracers("merge", *(side for one in solutions for side in (one[1:] if is_guide(one) else [one])))
    found, items = [], [read(solution, symmetry.axes) for solution in solutions]
    pairs = complex_sites(*items)
    for k, (solution, item) in enumerate(zip(solutions, items, strict=True)):
        name = f"solution {k}"
        if is_tree(solution, symmetry.axes) and is_tree(solutions[0], symmetry.axes):
            refuse_other_structure(solutions[0], solution, ("solution 0", name))
        if not isinstance(item, Gaussian):
            own = real_arrays(solution) if is_tree(solution, symmetry.axes) else item
            kept = {site: x for site, x in item.items() if site in own or site in symmetry.axes}
            # checked, and in double precision
            item = {site: np.asarray(x, float) for site, x in side_of(in_pairs(kept, pairs), name).loc.items()}
        found.append(_in_order(item, found[0]) if found else item)
    tree = found[0].loc if isinstance(found[0], Gaussian) else solutions[0]
    return found, uncompared(tree, symmetry.axes), pairs


def _in_order(item: Any, first: Any) -> Any:
    """The same with its sites in the order of the first, if it has those and no others."""
    if isinstance(first, Gaussian) or isinstance(item, Gaussian):
        refuse_other_sites(first, item)
        in_order: Any = item.in_order_of
        return in_order(first)
    if differing := sorted(first.keys() ^ item.keys()):
        raise SymmetryError(f"Solutions have different sites: {differing} are not in all of them.")
    for site in first:
        if item[site].shape != first[site].shape:
            raise SymmetryError(f"Site {site!r} has shapes {first[site].shape} and {item[site].shape}.")
    return {site: item[site] for site in first}


def _bound(symmetry: Symmetry, first: Any, pairs: Collection[str]) -> Symmetry:
    values = first.loc if isinstance(first, Gaussian) else first
    return of_pairs(symmetry.bind(from_pairs(values, pairs)), pairs)


def _as_given(solution: Any, item: Any, pairs: Collection[str]) -> Any:
    """Values by site or a Gaussian in the structure, and of the types, that a solution has."""
    if isinstance(item, Gaussian):
        return item
    return with_arrays(solution, from_pairs(item, pairs))


# ---- labels ------------------------------------------------------------------------------------------------------


class _Aligned(NamedTuple):
    """One element a member, and how they were found."""

    elements: list[Element]
    num_rounds: int
    converged: bool
    squares: float


def _aligned(items: list[Any], symmetry: Symmetry, method: str, tell: Callable[[int], Any]) -> _Aligned:
    """The best of several searches, each from labels of one member."""
    still = [symmetry.identity() for _ in items]
    if not symmetry.groups or len(items) == 1:
        return _Aligned(still, 0, True, _spread(items))
    if len(items) == 2:
        found = match(items[0], items[1], symmetry, method=method)
        return _Aligned([still[0], found.element], 1, bool(found.converged), 0.0)
    # a placement from scratch is dear where layers are wide, and is asked for once they have settled
    quick = method if max(group.size or 0 for group in symmetry.groups.values()) <= _NARROW else "descent"
    every = jax.tree.map(lambda *xs: np.stack(xs), *items)
    starts = [_Aligned(still, 0, True, _spread(items))]
    for k in range(min(len(items), _MOST_STARTS)):
        found = match(items[k], every, symmetry, method=quick).element
        tell(len(items))
        elements = [jax.tree.map(lambda x, j=j: x[j], found) for j in range(len(items))]
        elements[k] = still[k]
        moved = [_moved(symmetry, element, item) for element, item in zip(elements, items, strict=True)]
        starts.append(_Aligned(elements, 0, True, _spread(moved)))
    starts.sort(key=lambda start: start.squares)
    searches = (_descended(start, items, symmetry, quick, tell) for start in starts[:_NUM_SEARCHES])
    best = min(searches, key=lambda found: found.squares)
    return best if quick == method else _descended(best, items, symmetry, method, tell)


def _descended(
    start: _Aligned, items: list[Any], symmetry: Symmetry, method: str, tell: Callable[[int], Any]
) -> _Aligned:
    """Each member in turn on the mean of the others, until none moves."""
    elements = list(start.elements)
    moved = [_moved(symmetry, element, item) for element, item in zip(elements, items, strict=True)]
    for num_rounds in range(start.num_rounds + 1, start.num_rounds + _MAX_ROUNDS + 1):
        gained = False
        for k, item in enumerate(items):
            others = _mean(moved[:k] + moved[k + 1 :])
            step = match(others, moved[k], symmetry, method=method)
            tell(1)
            gain = float(step.objective - step.objective_before)
            if gain > _ROUNDING * (1.0 + abs(float(step.objective))):
                elements[k] = compose(step.element, elements[k])
                moved[k], gained = _moved(symmetry, elements[k], item), True
        if not gained:
            return _Aligned(elements, num_rounds, True, _spread(moved))
    return _Aligned(elements, start.num_rounds + _MAX_ROUNDS, False, _spread(moved))


def _diagonal(item: Any) -> Any:
    return item.diagonal() if isinstance(item, FullGaussian) else item


def _moved(symmetry: Symmetry, element: Element, item: Any) -> Any:
    return item.apply(symmetry, element) if isinstance(item, Gaussian) else symmetry.apply(element, item)


def _mean(items: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *xs: np.mean(xs, 0), *items)


def _compared(item: Any, beside: Collection[str]) -> Any:
    """Of an item, what has a say in labels: sites that are compared, and moments."""
    if isinstance(item := _diagonal(item), DiagonalGaussian):
        loc, scale = (_some(x, beside) for x in (item.loc, item.scale))
        return DiagonalGaussian(loc, scale)
    return _some(item, beside)


def _some(by_site: Mapping[str, Any], beside: Collection[str]) -> dict[str, np.ndarray]:
    left = [site for site in by_site if site not in beside] or list(by_site)
    return {site: np.asarray(by_site[site], float) for site in left}


def _squares(items: Sequence[Any]) -> float:
    return float(sum(np.sum(np.square(np.asarray(x, float))) for x in jax.tree.leaves(list(items))))


def _distances(items: Sequence[Any]) -> np.ndarray:
    centre = _mean(items)
    return np.sqrt([_squares([jax.tree.map(np.subtract, item, centre)]) for item in items])


def _spread(items: Sequence[Any]) -> float:
    return float(np.sum(_distances(items) ** 2))
