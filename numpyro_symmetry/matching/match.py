"""`match`: the element of a symmetry that brings one solution into another's basin.

Reads targets and sources of every kind into arrays by site, lets the solver place a batch at once, and reports the
objective recomputed from scratch in float64. Knows costs, Gaussians and the solver.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from numpyro_symmetry.assignment.family import Arrays, Cost, Side, blocks, is_cost
from numpyro_symmetry.assignment.place import log_likelihoods, place
from numpyro_symmetry.assignment.solve import METHODS
from numpyro_symmetry.matching.costs import COSTS, ActivationCost
from numpyro_symmetry.matching.full_gaussian import FullGaussian
from numpyro_symmetry.matching.sides import (
    by_activations,
    completed,
    complex_sites,
    in_pairs,
    leading_shape,
    of_pairs,
    read,
    refuse_draws,
    refuse_mixed_coordinates,
    refuse_other_trees,
    side_of,
    without,
)
from numpyro_symmetry.steps import say, saying, track
from numpyro_symmetry.symmetry import (
    Axis,
    Element,
    Hard,
    PlainView,
    Symmetry,
    SymmetryError,
    as_html,
    as_symmetry,
    num_transpositions,
)
from numpyro_symmetry.symmetry.arguments import as_count, as_flag, as_option, is_option, refuse_tracers, seed_of
from numpyro_symmetry.symmetry.hard import concatenate, to_element
from numpyro_symmetry.symmetry.named import refuse_others
from numpyro_symmetry.symmetry.plain import warn_of_torn
from numpyro_symmetry.symmetry.pytrees import is_fitted_guide


class Match(NamedTuple):
    """What `match` found; arrays of the source's leading shape.

    Attributes
    ----------
    element
        The element ``g``: ``symmetry.apply(g, source)`` lies in the target's basin.
    objective
        Its objective, float64; higher is better. For ``"wasserstein"`` and ``"euclidean"`` minus the squared distance,
        for ``"log_density"`` and ``"kl"`` in nats.
    objective_before
        The objective at the identity; never larger than ``objective``.
    exact
        Whether ``element`` is known to be a global optimum.
    num_sweeps
        Sweeps of descent.
    converged
        Whether descent settled.
    """

    element: Element
    objective: np.ndarray
    objective_before: np.ndarray
    exact: np.ndarray
    num_sweeps: np.ndarray
    converged: np.ndarray

    def __repr__(self) -> str:
        def spread(values: np.ndarray) -> str:
            if not values.size:
                return "none"
            low, high = float(values.min()), float(values.max())
            return f"{low:.6g}" if low == high else f"{low:.6g} … {high:.6g}"

        shape = np.shape(self.objective)
        moved = ", ".join(f"{k}: {spread(v)}" for k, v in num_transpositions(self.element).items()) or "none"
        exact, settled = (
            f"{int(np.sum(x))} of {np.size(x)}" if shape else bool(x) for x in (self.exact, self.converged)
        )
        return (
            f"Match({f'sources {shape}, ' if shape else ''}objective {spread(np.asarray(self.objective_before))} -> "
            f"{spread(np.asarray(self.objective))}, transpositions {moved}, exact: {exact}, converged: {settled})"
        )

    _repr_html_ = as_html


def match(
    target: Any,
    source: Any,
    symmetry: Symmetry,
    *,
    cost: str | ActivationCost | Cost = "wasserstein",
    method: str = "auto",
    rng_key: Array | None = None,
    chunk_size: int | str = "auto",
    progress_bar: bool = True,
) -> Match:
    r"""Find the element that brings a source into the basin of a target.

    .. math:: \max_{g\in G} -\lVert\mu - g\mu'\rVert^2 - \lVert\sigma - g\sigma'\rVert^2

    or another cost that is bilinear in the two. One group that acts once on every site is solved exactly; so are small
    groups. Otherwise the problem is NP-hard, and the best of several local solutions is returned.

    Parameters
    ----------
    target
        Values by site, a pytree of arrays, a `DiagonalGaussian`, a `FullGaussian`, or ``(guide, params)`` of a Gaussian
        autoguide. Running statistics and whole numbers in a tree move with their units (`Symmetry.apply`), and have no
        say in the matching.
    source
        Of the same kinds; values may have leading (chain, draw) dimensions, and each draw is matched by itself.
    symmetry
        What may be permuted. Units of heads that move themselves are matched together with their heads: exactly where
        nothing else moves, otherwise in turns with the rest.
    cost
        - ``"wasserstein"``: means and standard deviations (points have none: then the same as Euclidean).
        - ``"euclidean"``: means alone.
        - ``"log_density"``: expected log density of the source under the target, a Gaussian.
        - ``"kl"``: minus the divergence of the moved source from the target, both Gaussians.
        - `ActivationCost`: what units compute on data.
        - A cost of one's own: anything with a method ``family``, as those of `rebase` have, on points.
    method
        - ``"auto"``: the best of coordinate descent and Frank–Wolfe, and of a few restarts for narrow groups.
        - ``"descent"``, ``"frank_wolfe"``: one of them alone.
        - ``"thorough"``: graduated nonconvexity and restarts as well; for deep or noisy problems.
    rng_key
        JAX random key of the restarts; fixed by default. The same key gives the same answer.
    chunk_size
        Sources that are placed together; by default as many as fit about 32 MB of values and tables. It changes memory,
        and not the result.
    progress_bar
        Whether to show a bar, after two seconds: what is computed, and of many sources about how long the others take.

    Returns
    -------
    Match
        Element and objective for every source.

    Raises
    ------
    SymmetryError
        If a site or size does not fit, trees differ in structure, a value is not finite, masked or so large that its
        square is not, the target is draws, the cost needs standard deviations there are none of, or the two are not in
        the same coordinates: guides are read in unconstrained ones.
    ValueError
        If ``cost`` or ``method`` is unknown.
    TypeError
        If ``symmetry`` is no `Symmetry`, ``rng_key`` no key, ``progress_bar`` no flag, or under `jit`.

    Warns
    -----
    SymmetryWarning
        If heads whose units move carry signs, or stand on two axes of one site: then only one of the two is matched.

    Notes
    -----
    Ties keep the labels as they came, so units without influence do not move. The result does not depend on how the
    source is labelled, except where nothing better than leaving it alone was found, or where units look alike from the
    barycentre (a group that stands on nothing but both axes of a doubly stochastic matrix). Of two `FullGaussian` the
    diagonals decide, and the objective is the exact one. ``exact`` is up to rounding.

    References
    ----------
    Rossi, Ang, Pougué-Biyong, Heinonen and Karaletsos (2023), arXiv:2310.10171, for the Wasserstein cost and its
    descent; Crisostomi et al. (2024), *C²M³*, for Frank–Wolfe over all layers at once.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import Symmetry, match
    >>> symmetry = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)})
    >>> source = {"w1": jnp.array([[1.0, 2.0, 3.0]]), "w2": jnp.array([1.0, -1.0, 1.0])}
    >>> target = {"w1": jnp.array([[3.1, 0.9, 2.0]]), "w2": jnp.array([1.0, 1.0, -1.0])}
    >>> found = match(target, source, symmetry)
    >>> found.element["hidden"].tolist(), round(float(found.objective), 2), bool(found.exact)
    ([2, 0, 1], -0.02, True)
    """
    as_option(method, "method", METHODS)
    symmetry = as_symmetry(symmetry)
    together = None if chunk_size == "auto" else as_count(chunk_size, "chunk_size")
    seed = np.random.SeedSequence(seed_of(rng_key))
    # of (guide, params) the parameters alone are arrays
    read = [(None, side[1]) if is_fitted_guide(side) else side for side in (target, source)]
    refuse_tracers("match", target=read[0], source=read[1])
    with saying("placing on the target", as_flag(progress_bar, "progress_bar")):
        return _matched(target, source, symmetry, cost, method, seed, together)


def _matched(
    target: Any,
    source: Any,
    symmetry: Symmetry,
    cost: Any,
    method: str,
    seed: np.random.SeedSequence,
    together: int | None,
) -> Match:
    """`match` with its arguments checked; ``together`` sources are placed at a time."""
    if isinstance(cost, ActivationCost):
        say("computing activations")
        target, source, symmetry = by_activations(cost, target, source, symmetry)
        cost = "euclidean"
    if not is_option(cost, COSTS) and not is_cost(cost):
        hint = " Of a function of activations: ActivationCost(function)." if callable(cost) else ""
        raise ValueError(
            f"cost must be one of {tuple(COSTS)}, an ActivationCost(...), or a cost with a method family; got {cost!r}."
            f"{hint}"
        )
    chosen = COSTS[cost] if isinstance(cost, str) else cost
    refuse_mixed_coordinates(target, source, symmetry)
    beside = refuse_other_trees(target, source, symmetry.axes)
    target, source = read(target, symmetry.axes), read(source, symmetry.axes)
    refuse_draws(target, symmetry, "target")
    refuse_others(target, source, symmetry.axes, ("the target", "the source"))
    if pairs := complex_sites(target, source):
        symmetry = of_pairs(symmetry.bind(target), pairs)
        target, source = (in_pairs(side, pairs) for side in (target, source))
    full = [isinstance(side, FullGaussian) for side in (target, source)]
    if any(full) and not (all(full) and chosen == COSTS["wasserstein"]):
        raise SymmetryError(
            f"cost={cost!r} between {type(target).__name__} and {type(source).__name__} would ignore correlations; "
            "match two FullGaussians by 'wasserstein', or pass .diagonal() of each."
        )
    left, right = (side_of(side, name) for side, name in ((target, "target"), (source, "source")))
    bound = symmetry.bind(left.loc)
    leading = leading_shape(bound, left, right)
    compared = without(bound, beside)
    left, right = left.without(beside), right.without(beside)
    found = _placed(compared, left, right, chosen, leading, method, seed, together)
    found = found._replace(element=completed(bound, found.element, leading))
    if all(full):
        moved = source.apply(bound, found.element)
        exact = [np.array(-(target.wasserstein(side) ** 2)) for side in (moved, source)]
        # the diagonals decided; correlations may disagree, and then nothing is moved
        keep = exact[0] >= exact[1]
        chosen, objective = (found.element, exact[0]) if keep else (bound.identity(), exact[1])
        return Match(chosen, objective, exact[1], np.zeros_like(found.exact), found.num_sweeps, found.converged)
    return found


def _placed(
    bound: Symmetry,
    target: Side,
    source: Side,
    cost: Cost,
    leading: tuple[int, ...],
    method: str,
    seed: np.random.SeedSequence,
    together: int | None,
) -> Match:
    """Place sources in the view in which every group is plain; units in blocks that move stay with their blocks."""
    view = PlainView.of(bound, target.loc, nested=True)
    warn_of_torn(view, "matched", ", and the result may be far from the best. Match the other level")
    target, source = (
        Side(view.open(side.loc), side.scale and view.open(side.scale, common=True), view.weights, view=view)
        for side in (target, source)
    )
    plain, groups = view.symmetry, view.symmetry.groups
    single, batch = (_batch(side, target, source, n) for side, n in ((target, 1), (source, math.prod(leading))))
    of_target = cost.family(single, plain)
    point, family = of_target.point(0), cost.family(batch, plain, of_target.coordinates)
    centred = {name: _centred(point[0][name], axes) for name, axes in family.axes.items() if name in point[0]}
    states: dict[str, list[Hard]] = {name: [group.identity((0,))] for name, group in groups.items()}
    # objectives before and after, whether exact, how many sweeps, whether converged
    arrays: list[tuple[np.ndarray, ...]] = [
        (np.zeros(0), np.zeros(0), np.zeros(0, bool), np.zeros(0, int), np.zeros(0, bool))
    ]
    among = blocks(family, groups, together)
    for placed in track(place(family, groups, centred, method, seed, among=among), len(among)):
        state, *outcome = placed.solution
        arrays.append((*log_likelihoods(family, point, placed), *outcome))
        for name, part in state.items():
            states[name].append(part)
    before, after, exact, *outcome = (np.concatenate(parts).reshape(leading) for parts in zip(*arrays, strict=True))
    state = {name: concatenate(parts) for name, parts in states.items()}
    element = view.element(to_element(state, leading), bound, leading)
    return Match(element, after, before, exact & (not view.torn), *outcome)


def _batch(side: Side, target: Side, source: Side, num_draws: int) -> Side:
    """One side as a flat batch, of the sites that both have."""

    def flat(by_site: Arrays) -> Arrays:
        shapes = {site: x.shape for site, x in target.loc.items() if site in source.loc}
        return {site: by_site[site].reshape(num_draws, *shape) for site, shape in shapes.items()}

    return Side(flat(side.loc), side.scale and flat(side.scale), target.weights, (num_draws,), target.view)


def _centred(natural: np.ndarray, axes: tuple[Axis, ...]) -> np.ndarray:
    """Natural parameters less their mean over exchanged axes, which adds nothing but rounding to any comparison."""
    exchanged = tuple(k for k, axis in enumerate(axes) if axis.group is not None)
    # where signs act, values are mirrored at zero, and a shift would count
    return natural if any(axis.signed for axis in axes) else natural - natural.mean(exchanged, keepdims=True)
