"""`merge`: several solutions, each with labels of its own, brought to common labels and made into one.

Knows common labels, and what members are made into; not how either is found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.assignment.solve import METHODS
from numpyro_symmetry.matching.common_labels import aligned, distances_from_mean, moved_by
from numpyro_symmetry.matching.costs import ActivationCost
from numpyro_symmetry.matching.cross_terms import CrossTerms
from numpyro_symmetry.matching.full_gaussian import FullGaussian
from numpyro_symmetry.matching.gaussian import DiagonalGaussian
from numpyro_symmetry.matching.gaussian_inputs import refuse_other_sites
from numpyro_symmetry.matching.hows import How, chosen_how
from numpyro_symmetry.matching.product import Gaussian
from numpyro_symmetry.matching.sides import (
    by_activations,
    completed,
    complex_sites,
    from_pairs,
    in_pairs,
    is_tree,
    of_pairs,
    read,
    refuse_draws,
    side_of,
    without,
)
from numpyro_symmetry.steps import counting
from numpyro_symmetry.symmetry import (
    Element,
    Hard,
    Symmetry,
    SymmetryError,
    UnsupportedGuideError,
    as_html,
    as_symmetry,
    compose,
    inverse,
    num_transpositions,
    transpositions_at_random,
)
from numpyro_symmetry.symmetry.arguments import as_flag, as_option, is_option, refuse_tracers
from numpyro_symmetry.symmetry.named import refuse_others
from numpyro_symmetry.symmetry.pytrees import (
    arrays_by_path,
    as_sites,
    is_fitted_guide,
    real_arrays,
    refuse_mismatch,
    refuse_other_structure,
    uncompared,
    warn_of_settings,
    with_arrays,
)
from numpyro_symmetry.symmetry.shown import counted

# the costs of `match` under which members have a mean to be placed on
_COSTS = "wasserstein", "euclidean"


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
        ``(num_members,)``: the distance of each member from the mean of all, as the members came, and relabelled. Of
        Gaussians it is Wasserstein's distance from the barycentre, without correlations. Running statistics do not
        count.
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
        before, after = (float(np.sqrt(np.mean(x**2))) for x in (self.distances_before, self.distances))
        change = f"{abs(1.0 - after / before):.0%} {'less' if after <= before else 'more'}, " if before else ""
        lines = [
            f"Merge of {counted(len(self.members), 'member')} into one {type(self.merged).__name__}",
            f"  distance from the mean (root mean square): {change}{before:.4g} to {after:.4g}; "
            "0 if only labels had differed",
            f"  {counted(self.num_rounds, 'round')}, {'converged' if self.converged else 'not converged'}",
            *_told_of_labels(self.elements),
        ]
        if self.cross_terms is not None:
            lines.append(f"  {self.cross_terms}")
        return "\n".join(lines)

    _repr_html_ = as_html


def _told_of_labels(elements: Element) -> list[str]:
    """Lines that say how far the members' labels were from those of the first member, and how far random ones are."""
    lines, are_random = [], []
    for name, counts in num_transpositions(elements).items():
        # the first member keeps its labels
        moved, n = np.asarray(counts, float)[1:], np.shape(Hard.of(elements[name]).permutation)[-1]
        if not moved.size:
            continue
        at_random, variance = transpositions_at_random(n)
        are_random.append(abs(moved.mean() - at_random) <= 3.0 * np.sqrt(variance / moved.size))
        lines.append(
            f"  {name}: relabelled by {moved.mean():.1f} transpositions a member; random labels need {at_random:.1f}"
        )
    if lines and all(are_random):
        lines.append("  Members came as if labelled at random, as solutions found apart do.")
    return lines


def merge(
    solutions: Sequence[Any],
    symmetry: Symmetry,
    *,
    how: str | How = "mean",
    cost: str | ActivationCost = "wasserstein",
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
    cost
        What is compared; of the costs of `match` those under which members have a mean:

        - ``"wasserstein"``: means and standard deviations; of points, their values.
        - ``"euclidean"``: means alone.
        - `ActivationCost`: what units compute on data; :math:`\theta_k` above are then activations.
    method
        How a member is placed; see `match`.
    progress_bar
        Whether to show a bar of members placed, with the round and how many members it moved, after two seconds.

    Returns
    -------
    Merge
        The merged solution, of the structure and types of the first, in the first one's labels.

    Raises
    ------
    SymmetryError
        If there are no solutions, their structures differ (the first differing path is named), values are not finite,
        they are draws of a posterior, or not what ``how`` merges.
    UnsupportedGuideError
        If a guide is not Gaussian, or a parameter of one is missing or misshapen.
    ValueError
        If ``how``, ``cost`` or ``method`` is unknown.
    TypeError
        If ``solutions`` is no list, ``symmetry`` no `Symmetry`, ``progress_bar`` no flag, or under `jit`.

    Warns
    -----
    SymmetryWarning
        If ``cross_terms`` of a product are too low, because labels of blocks in which units move are too many.

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
    as_option(method, "method", METHODS)
    symmetry = as_symmetry(symmetry)
    items, beside, pairs = _read(solutions, symmetry)
    bound = _bound(symmetry, items[0], pairs)
    chosen.check(items, bound)
    seen, compared = _placed_by(cost, solutions, items, symmetry, without(bound, beside), beside)
    # a bar without a total: how many rounds it takes is not known
    with counting("placing members", "placed", as_flag(progress_bar, "progress_bar")) as bar:
        found = aligned(seen, compared, method, bar)
    elements = [completed(bound, element, ()) for element in found.elements]
    near = [moved_by(bound, element, item) for element, item in zip(elements, items, strict=True)]
    elements = [compose(*pair) for pair in zip(chosen.relabelled(near, bound), elements, strict=True)]
    home = inverse(elements[0])
    elements = [compose(home, element) for element in elements]
    moved = [moved_by(bound, element, item) for element, item in zip(elements, items, strict=True)]
    first = solutions[0]
    return Merge(
        merged=_as_given(first, _with_whole_numbers(chosen.merged(moved), moved, first, symmetry), pairs),
        members=tuple(_as_given(*pair, pairs) for pair in zip(solutions, moved, strict=True)),
        elements=jax.tree.map(lambda *parts: jnp.stack(parts), *elements),
        distances_before=distances_from_mean([_compared(item, beside) for item in items]),
        distances=distances_from_mean([_compared(item, beside) for item in moved]),
        num_rounds=found.num_rounds,
        converged=found.converged,
        cross_terms=chosen.cross_terms(moved, bound),
    )


# ---- what is given -----------------------------------------------------------------------------------------------


def _read(solutions: Any, symmetry: Symmetry) -> tuple[list[Any], frozenset[str], frozenset[str]]:
    """Members as Gaussians or float64 values by site; sites without a say in labels; sites of complex numbers."""
    if isinstance(solutions, str | bytes | bytearray | Mapping | Gaussian) or not isinstance(solutions, Sequence):
        raise TypeError(
            f"solutions must be a list of them; got {type(solutions).__name__}. Of a stacked tree: "
            "[jax.tree.map(lambda x: x[k], stacked) for k in range(n)]."
        )
    if not solutions:
        raise SymmetryError("There are no solutions to merge: the list is empty.")
    if set(symmetry.axes) <= set(arrays_by_path(solutions)) and symmetry.axes:
        raise SymmetryError(
            f"solutions is one tree, that holds the sites {sorted(symmetry.axes)} itself; expected a list of trees. "
            "Of a stacked one: [jax.tree.map(lambda x: x[k], stacked) for k in range(n)]."
        )
    # of (guide, params) the parameters alone are arrays
    refuse_tracers("merge", solutions=[(None, s[1]) if is_fitted_guide(s) else s for s in solutions])
    names = [f"solution {k}" for k in range(len(solutions))]
    items: list[Any] = []
    for solution, name in zip(solutions, names, strict=True):
        if is_tree(solution, symmetry.axes) and is_tree(solutions[0], symmetry.axes):
            refuse_other_structure(solutions[0], solution, ("solution 0", name))
            warn_of_settings(solutions[0], solution, ("solution 0", name))
        with _naming(name):
            items.append(read(solution, symmetry.axes))
            refuse_draws(items[-1], symmetry, "solution")
        refuse_others(items[0], items[-1], symmetry.axes, ("solution 0", name))
    found, pairs = [], complex_sites(*items)
    for solution, name, item in zip(solutions, names, items, strict=True):
        with _naming(name):
            if not isinstance(item, Gaussian):
                own = real_arrays(solution) if is_tree(solution, symmetry.axes) else item
                kept = {site: x for site, x in item.items() if site in own or site in symmetry.axes}
                # checked, and in double precision
                item = {s: np.asarray(x, float) for s, x in side_of(in_pairs(kept, pairs), "solution").loc.items()}
            found.append(_in_order(item, found[0]) if found else item)
    tree = found[0].loc if isinstance(found[0], Gaussian) else solutions[0]
    return found, uncompared(tree, symmetry.axes), pairs


@contextlib.contextmanager
def _naming(solution: str) -> Iterator[None]:
    """Put the name of the solution in front of an error's message."""
    try:
        yield
    except (SymmetryError, UnsupportedGuideError) as error:
        raise type(error)(f"{solution.capitalize()}: {error}") from error


def _in_order(item: Any, first: Any) -> Any:
    """A member with its sites in the order of the first member's; refused if it is of another kind, sites or shapes."""
    if type(first) is not type(item):
        given = [type(x).__name__ if isinstance(x, Gaussian) else "points" for x in (first, item)]
        raise SymmetryError(f"it holds {given[1]}, and solution 0 {given[0]}; expected solutions of one kind.")
    if isinstance(first, Gaussian):
        refuse_other_sites(first, item)
        in_order: Any = item.in_order_of
        return in_order(first)
    refuse_mismatch(item, first, ("it", "solution 0"))
    return {site: item[site] for site in first}


def _with_whole_numbers(merged: Any, moved: list[Any], first: Any, symmetry: Symmetry) -> Any:
    """The merge with the first member's values where a site or a leaf holds whole numbers, which have no mean."""
    if isinstance(merged, Gaussian):
        return merged
    given = as_sites(first, symmetry.axes)
    whole = [site for site in merged if not jnp.issubdtype(np.asarray(given[site]).dtype, jnp.inexact)]
    for site in () if is_tree(first, symmetry.axes) else whole:
        if any((item[site] != moved[0][site]).any() for item in moved):
            raise SymmetryError(
                f"Site {site!r} holds values of type {np.asarray(given[site]).dtype} that differ between solutions: "
                "whole numbers have no mean among them. Pass floats."
            )
    return merged | {site: moved[0][site] for site in whole}


def _bound(symmetry: Symmetry, first: Any, pairs: Collection[str]) -> Symmetry:
    values = first.loc if isinstance(first, Gaussian) else first
    return of_pairs(symmetry.bind(from_pairs(values, pairs)), pairs)


def _as_given(solution: Any, item: Any, pairs: Collection[str]) -> Any:
    """Values by site or a Gaussian in the structure, and of the types, that a solution has."""
    if isinstance(item, Gaussian):
        return item
    return with_arrays(solution, from_pairs(item, pairs))


def _placed_by(
    cost: Any,
    solutions: Sequence[Any],
    items: list[Any],
    symmetry: Symmetry,
    compared: Symmetry,
    beside: Collection[str],
) -> tuple[list[Any], Symmetry]:
    """The arrays or Gaussians by which members are compared and averaged, and the symmetry as it acts on these."""
    if isinstance(cost, ActivationCost):
        # guides and their parameters are taken as the Gaussians that were read off them
        given = [
            item if is_fitted_guide(solution) else solution for solution, item in zip(solutions, items, strict=True)
        ]
        sides = [by_activations(cost, given[0], solution, symmetry) for solution in given]
        return [{name: np.asarray(x, float) for name, x in side[1].items()} for side in sides], sides[0][2]
    if not is_option(cost, _COSTS):
        hint = "; of a function, ActivationCost(function)" if callable(cost) else ""
        raise ValueError(
            f"cost must be one of {_COSTS} or an ActivationCost(...){hint}: members are placed on a mean of others, "
            f"which the other costs of match have none of; got {cost!r}."
        )
    seen = [_compared(item, beside) for item in items]
    if cost == "euclidean":
        seen = [item.loc if isinstance(item, Gaussian) else item for item in seen]
    return seen, compared


def _compared(item: Any, beside: Collection[str]) -> Any:
    """The part of a member that has a say in labels: all sites but those of ``beside``, without correlations."""
    item = item.diagonal() if isinstance(item, FullGaussian) else item
    if isinstance(item, DiagonalGaussian):
        return DiagonalGaussian(_without(item.loc, beside), _without(item.scale, beside))
    return _without(item, beside)


def _without(by_site: Mapping[str, Any], beside: Collection[str]) -> dict[str, np.ndarray]:
    left = [site for site in by_site if site not in beside] or list(by_site)
    return {site: np.asarray(by_site[site], float) for site in left}
