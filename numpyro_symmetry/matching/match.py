"""`match`: the element of a symmetry that brings one solution into another's basin.

Reads targets and sources of every kind into arrays by site, lets the solver place a batch at once, and reports the
objective recomputed from scratch in float64. Knows costs, Gaussians and the solver.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.assignment.nested import Placed, families, place_nested
from numpyro_symmetry.assignment.problem import Problem, Term, axes_of, move, without_signs
from numpyro_symmetry.assignment.side import Side
from numpyro_symmetry.assignment.solve import METHODS, Solution, solve
from numpyro_symmetry.matching.costs import COSTS, ActivationCost, Cost
from numpyro_symmetry.matching.full_gaussian import FullGaussian
from numpyro_symmetry.matching.sides import (
    as_symmetry,
    by_activations,
    leading_shape,
    read,
    refuse_mixed_coordinates,
    side_of,
)
from numpyro_symmetry.symmetry import Element, Hard, PlainView, Symmetry, SymmetryError, num_transpositions
from numpyro_symmetry.symmetry.arguments import is_option, refuse_tracers, seed_of
from numpyro_symmetry.symmetry.axes import Axis
from numpyro_symmetry.symmetry.families import stacked
from numpyro_symmetry.symmetry.hard import concatenate, to_element
from numpyro_symmetry.symmetry.shown import as_html

# entries of cost tables held at a time, for each of several copies
_CHUNK = 2**23
# entries of sources widened to float64 at a time: what fits a cache
_BLOCK = 2**17
# multiplications for one draw's tables up to which they are made in double precision
_IN_DOUBLE = 50_000

Arrays = dict[str, np.ndarray]


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
        The same at the identity; never larger.
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
    cost: str | ActivationCost = "wasserstein",
    method: str = "auto",
    rng_key: Array | None = None,
) -> Match:
    r"""Find the element that brings a source into the basin of a target.

    .. math:: \max_{g\in G} -\lVert\mu - g\mu'\rVert^2 - \lVert\sigma - g\sigma'\rVert^2

    or another cost that is bilinear in the two. One group that acts once on every site is solved exactly; so are small
    groups. Otherwise the problem is NP-hard, and the best of several local solutions is returned.

    Parameters
    ----------
    target
        Values by site, a `DiagonalGaussian`, a `FullGaussian`, or ``(guide, params)`` of a Gaussian autoguide.
    source
        The same; values may have leading (chain, draw) dimensions, each of which is matched on its own.
    symmetry
        What may be permuted. Units of heads that move themselves are matched together with their heads: exactly where
        nothing else moves, otherwise in turns with the rest.
    cost
        - ``"wasserstein"``: means and standard deviations (points have none: then the same as Euclidean).
        - ``"euclidean"``: means alone.
        - ``"log_density"``: expected log density of the source under the target, a Gaussian.
        - ``"kl"``: minus the divergence of the moved source from the target, both Gaussians.
        - `ActivationCost`: what units compute on data.
    method
        - ``"auto"``: the best of coordinate descent and Frank–Wolfe, and of a few restarts for narrow groups.
        - ``"descent"``, ``"frank_wolfe"``: one of them alone.
        - ``"thorough"``: graduated nonconvexity and restarts as well; for deep or noisy problems.
    rng_key
        JAX random key of the restarts; fixed by default. The same key gives the same answer.

    Returns
    -------
    Match
        Element and objective for every source.

    Raises
    ------
    SymmetryError
        If a site or size does not fit, a value is not finite, masked or so large that its square is not, the cost needs
        standard deviations there are none of, or the two are not in the same coordinates: guides are read in
        unconstrained ones.
    ValueError
        If ``cost`` or ``method`` is unknown.
    TypeError
        If ``symmetry`` or ``rng_key`` is none, or under `jit`.

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
    if not is_option(method, METHODS):
        raise ValueError(f"method must be one of {METHODS}; got {method!r}.")
    symmetry = as_symmetry(symmetry)
    seed = np.random.SeedSequence(seed_of(rng_key))
    # a guide among them is no tree
    refuse_tracers(
        "match", *(side[1] if isinstance(side, tuple) and len(side) == 2 else side for side in (target, source))
    )
    if isinstance(cost, ActivationCost):
        target, source, symmetry = by_activations(cost, target, source, symmetry)
        cost = "euclidean"
    if not is_option(cost, COSTS):
        raise ValueError(f"cost must be one of {tuple(COSTS)} or an ActivationCost(...); got {cost!r}.")
    refuse_mixed_coordinates(target, source, symmetry)
    target, source = read(target), read(source)
    whole = target, source
    if any(isinstance(side, FullGaussian) for side in whole) and not (
        cost == "wasserstein" and all(isinstance(side, FullGaussian) for side in whole)
    ):
        raise SymmetryError(
            f"cost={cost!r} between {type(target).__name__} and {type(source).__name__} would ignore correlations; "
            "match two FullGaussians by 'wasserstein', or pass .diagonal() of each."
        )
    left, right = (side_of(side, name) for side, name in ((target, "target"), (source, "source")))
    for side, name, needed in zip((left, right), ("target", "source"), COSTS[cost].needs_scale, strict=True):
        if needed and not (side.scale and all((scale > 0).all() for scale in side.scale.values())):
            raise SymmetryError(f"cost={cost!r} needs positive standard deviations of the {name}: pass a Gaussian.")
    bound = symmetry.bind(left.loc)
    leading = leading_shape(bound, left, right)
    found = _place(bound, left, right, COSTS[cost], leading, method, seed)
    if all(isinstance(side, FullGaussian) for side in whole) and cost == "wasserstein":
        moved = whole[1].apply(bound, found.element)
        exact = [np.array(-(whole[0].wasserstein(side) ** 2)) for side in (moved, whole[1])]
        # the diagonals decided; correlations may disagree, and then nothing is moved
        keep = exact[0] >= exact[1]
        element = found.element if keep else bound.identity()
        alone = found.exact & False
        return found._replace(
            element=element, objective=exact[0] if keep else exact[1], objective_before=exact[1], exact=alone
        )
    return found


def _place(
    bound: Symmetry,
    left: Side,
    right: Side,
    cost: Cost,
    leading: tuple[int, ...],
    method: str,
    seed: np.random.SeedSequence,
) -> Match:
    """Through the plain view, or where blocks move and units in them, pair by pair."""
    if not families(bound) or 0 in leading:
        view = PlainView.of(bound, left.loc)
        left, right = (
            Side(view.open(side.loc), side.scale and view.open(side.scale, common=True), view.weights)
            for side in (left, right)
        )
        found = _in_chunks(view.symmetry, left, right, cost, leading, method, seed)
        return found._replace(element=view.element(found.element, bound, leading))

    def place(symmetry: Symmetry, target: Side, source: Side, lead: tuple[int, ...]) -> Placed:
        one = _place(symmetry, target, source, cost, lead, method, seed)
        return Placed(one.element, one.objective, one.exact, one.converged)

    batch = math.prod(leading)
    left, right = (
        Side(stacked(bound.stacks, s.loc), s.scale and stacked(bound.stacks, s.scale)) for s in (left, right)
    )
    bound = replace(bound, axes={name: stack.entries for name, stack in bound.stacks.items()})

    def flat(by_site: Arrays) -> Arrays:
        return {
            site: value.reshape(batch, *left.loc[site].shape) for site, value in by_site.items() if site in left.loc
        }

    source = Side(flat(right.loc), right.scale and flat(right.scale))
    found, num_rounds = place_nested(bound, left, source, batch, place)
    before = place(Symmetry({}), left, source, (batch,)).objective
    element = jax.tree.map(lambda x: jnp.asarray(x).reshape(*leading, *x.shape[1:]), found.element)
    arrays = (found.objective, before, found.exact, num_rounds, found.converged)
    return Match(element, *(np.asarray(x).reshape(leading) for x in arrays))


def _in_chunks(
    bound: Symmetry,
    target: Side,
    source: Side,
    cost: Cost,
    leading: tuple[int, ...],
    method: str,
    seed: np.random.SeedSequence,
) -> Match:
    sites = [site for site in target.loc if site in source.loc]
    batch = int(np.prod(leading))

    def flat(by_site: Arrays) -> Arrays:
        return {site: by_site[site].reshape(batch, *target.loc[site].shape) for site in sites}

    source = Side(flat(source.loc), None if source.scale is None else flat(source.scale))
    if batch == 0 or not bound.groups:
        nothing, none = np.zeros(leading), np.zeros(leading, int)
        before = nothing if batch == 0 else _objectives(bound, target, source, slice(0, batch), cost, {})[0]
        identity = jax.tree.map(lambda x: jnp.broadcast_to(x, (*leading, *x.shape)), bound.identity())
        return Match(identity, before.reshape(leading), before.reshape(leading), nothing == 0, none, nothing == 0)
    step = max(1, _CHUNK // max(1, sum((g.size or 0) ** 2 for g in bound.groups.values())))
    parts: list[tuple[Solution, np.ndarray, np.ndarray]] = []
    for start in range(0, batch, step):
        items = slice(start, min(start + step, batch))
        solution = solve(_problem(bound, target, source, items, cost), method, np.random.default_rng(seed))
        parts.append((solution, *_objectives(bound, target, source, items, cost, solution.state)))

    def joined(arrays: list[np.ndarray]) -> np.ndarray:
        whole = np.concatenate(arrays)
        return whole.reshape(leading + whole.shape[1:])

    return Match(
        to_element({name: concatenate([s.state[name] for s, _, _ in parts]) for name in bound.groups}, leading),
        joined([after for _, _, after in parts]),
        joined([before for _, before, _ in parts]),
        joined([s.exact for s, _, _ in parts]),
        joined([s.num_sweeps for s, _, _ in parts]),
        joined([s.converged for s, _, _ in parts]),
    )


def _problem(bound: Symmetry, target: Side, source: Side, items: slice, cost: Cost) -> Problem:
    numbers = sum(target.loc[site].size for site in bound.axes)
    in_double = numbers * max(group.size or 0 for group in bound.groups.values()) <= _IN_DOUBLE
    terms = []
    for site in bound.axes:
        shape, axes = axes_of(bound, site, target.loc[site].shape)
        if all(axis.group is None for axis in axes):
            continue
        pairs = zip(cost.target(target.moments(site)), cost.source(source.moments(site, items)), strict=True)
        for (left, right), is_even in zip(pairs, cost.is_even, strict=True):
            if left is None or right is None:
                continue
            dtype = np.dtype(float) if in_double else np.result_type(left, right)
            entries = without_signs(axes) if is_even else axes
            left = _centred(target.weights.get(site, 1.0) * left.reshape(1, *shape).astype(float), entries)
            left = left.astype(dtype, copy=False)
            terms.append(Term(left, right.reshape(len(right), *shape).astype(dtype, copy=False), entries))
    return Problem(tuple(terms), bound.groups)


def _centred(target: np.ndarray, axes: tuple[Axis, ...]) -> np.ndarray:
    """Less its mean over all that groups exchange, which no relabelling of the source notices, but rounding does."""
    if any(axis.signed for axis in axes):
        return target  # signs move values about zero
    return target - target.mean(tuple(k + 1 for k, axis in enumerate(axes) if axis.group is not None), keepdims=True)


def _objectives(
    bound: Symmetry, target: Side, source: Side, items: slice, cost: Cost, state: dict[str, Hard]
) -> tuple[np.ndarray, np.ndarray]:
    """Objectives at the identity and at a state, from scratch and in float64, a few items at a time."""
    before, after = np.zeros((2, items.stop - items.start))
    for site in source.loc:
        loc, scale = _wide(target.moments(site))
        offset = cost.target_offset((loc[None], None if scale is None else scale[None]))
        weight = target.weights.get(site, 1.0)
        left = [None if r is None else weight * r for r in cost.target((loc, scale))]
        moves = site in bound.axes
        shape, axes = axes_of(bound, site, loc.shape) if moves else (loc.shape, ())
        step = max(1, _BLOCK // max(1, loc.size))
        for start in range(items.start, items.stop, step):
            block = slice(start, min(start + step, items.stop))
            here = slice(block.start - items.start, block.stop - items.start)
            parts = {name: part.at(here) for name, part in state.items()}
            moments = _wide(source.moments(site, block))
            constant = weight * (offset + cost.source_offset(moments))
            before[here] += constant
            after[here] += constant
            for r, b, is_even in zip(left, cost.source(moments), cost.is_even, strict=True):
                if r is None or b is None:
                    continue
                before[here] += (at_identity := b.reshape(len(b), -1) @ r.ravel())
                if moves:
                    b = move(b.reshape(len(b), *shape), without_signs(axes) if is_even else axes, parts)
                    at_identity = b.reshape(len(b), -1) @ r.ravel()
                after[here] += at_identity
    return before, after


def _wide(moments: tuple[np.ndarray, np.ndarray | None]) -> tuple[np.ndarray, np.ndarray | None]:
    loc, scale = moments
    return loc.astype(float), None if scale is None else scale.astype(float)
