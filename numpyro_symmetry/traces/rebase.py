"""`rebase`: many draws into one basin, in the container they came in.

Knows containers, costs, relabelling and nulls, and puts them together; computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax import Array
from numpyro.infer import MCMC

from numpyro_symmetry.discovery import check_symmetry, find_symmetry, without_parameters
from numpyro_symmetry.matching.bilinear import axes_of
from numpyro_symmetry.matching.hard import Hard, to_element
from numpyro_symmetry.matching.solve import METHODS
from numpyro_symmetry.symmetry import PlainView, Symmetry, SymmetryError
from numpyro_symmetry.traces.containers import Trace, read
from numpyro_symmetry.traces.coordinates import Arrays, Coordinate, refuse_other_coordinates
from numpyro_symmetry.traces.costs import (
    Cost,
    EuclideanCost,
    Family,
    GaussianCost,
    StephensCost,
    refuse_other_draws,
)
from numpyro_symmetry.traces.inputs import bind, refuse_bad_draws, seed_of
from numpyro_symmetry.traces.margin import margins
from numpyro_symmetry.traces.null import matched_null
from numpyro_symmetry.traces.rebased import Frame, Rebased, act
from numpyro_symmetry.traces.relabel import (
    Relabelling,
    State,
    acting,
    blocks,
    mean_statistics,
    problem_of,
    relabel,
    search,
)

REFERENCES = ("mean", "medoid", "first", "map")
# fewer draws than this say too little about variances
_MIN_DRAWS_FOR_GAUSSIAN, _DRAWS_PER_NUMBER = 20, 10
# starts are cheap where labels are few
_MANY_STARTS, _SMALL = 5, 32


def rebase(
    data: Any,
    symmetry: Symmetry | None = None,
    *,
    reference: Any = "mean",
    cost: Cost | str = "auto",
    method: str = "auto",
    rng_key: Array | None = None,
    order_by: str | None = None,
    labels: Mapping[str, str] | None = None,
    null: bool = True,
    num_starts: int | None = None,
    num_leading_dims: int | None = None,
    model: Callable[..., Any] | None = None,
    model_args: tuple[Any, ...] = (),
    model_kwargs: Mapping[str, Any] | None = None,
) -> Rebased:
    r"""Bring all draws of a posterior into one basin, where labels mean the same thing in every draw.

    .. math:: \max_{g_1,\dots,g_S}\ \max_\eta \sum_s \langle\eta, g_s\cdot T(\theta_s)\rangle - A(\eta)

    Parameters
    ----------
    data
        Draws: a dict of ``(draw, ...)`` or ``(chain, draw, ...)`` arrays, ``xarray.Dataset``, ArviZ's
        ``InferenceData`` or ``DataTree``, ``numpyro.infer.MCMC`` after its run, or a list of ensemble members.
    symmetry
        Whose elements leave the posterior as it is; by default what `find_symmetry` finds in ``model``.
    reference
        Whose labels to use. ``"mean"``: those of the draw from which the best search started. The ``"first"`` draw;
        ``"map"``, that of largest log density; ``"medoid"``, the likeliest of the relabelled draws; the index of a
        draw (an integer or ``(chain, draw)``); or values by site. All of these name slots and no more: the slots
        themselves are the relabelled draws' own. Another `Rebased`, to compare runs: its slots are held fixed.
    cost
        `GaussianCost`, `EuclideanCost`, `StephensCost`, `AllocationCost`. ``"auto"``: Gaussian if every site carries
        one group (mixtures, hidden Markov models, one hidden layer) and there are at least ten draws for every number
        that describes a slot; else Euclidean.
    method
        How each draw is matched; see `match`.
    rng_key
        For starts, restarts and nulls. The same key gives the same answer; without one it is a fixed one.
    order_by
        A site with one value a slot: labels are put in ascending order of its relabelled means. Otherwise they are
        those of the draw the search started from.
    labels
        Integer sites of ``data`` whose values are labels -> their group (allocations, hidden states).
    null
        Whether to relabel made-up draws too, and say what relabelling alone explains.
    num_starts
        How many draws to start from with ``reference="mean"``.
    num_leading_dims
        For dicts. By default read off the symmetry's axes; where those end in ``...`` and shapes leave it open, the
        smaller of the first two dimensions counts chains or labels.
    model, model_args, model_kwargs
        The NumPyro model, in which the symmetry is found, or against which it is checked if one is given. The model of
        an ``MCMC`` is its own.

    Returns
    -------
    Rebased
        Log-likelihoods, predictions, sample statistics and observed data are those given: no symmetry moves them.

    Raises
    ------
    SymmetryError
        If sites are missing or do not fit, draws are not finite, or the model does not have the symmetry.

    Warns
    -----
    SymmetryWarning
        If integer sites look like labels, or a site shares a named dimension with a group, and nobody says so.

    See Also
    --------
    report : what of R-hat and ESS was labels, and what was not.

    References
    ----------
    Stephens (2000); Papastamoulis and Iliopoulos (2010); Xiao et al. (2023), arXiv:2401.00611.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, rebase
    >>> rng = np.random.default_rng(0)
    >>> loc = np.array([-3.0, 0.0, 3.0]) + 0.1 * rng.standard_normal((400, 3))
    >>> switched = rng.permuted(loc, axis=1)
    >>> out = rebase({"loc": switched}, Symmetry.mixture("loc"), order_by="loc")
    >>> out.data["loc"].mean(0).round(1).tolist()
    [-3.0, 0.0, 3.0]
    >>> bool((out.undo(out.data)["loc"] == switched).all())
    True
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}; got {method!r}.")
    if symmetry is None:
        symmetry = _found(data, model, model_args, model_kwargs)
    elif model is not None:
        check_symmetry(model, symmetry, model_args, model_kwargs)
    trace = read(data, symmetry, num_leading_dims)
    labels = dict(labels or {})
    bound = bind(trace, symmetry, labels)
    if not bound.is_plain:
        options = {"cost": cost, "method": method, "rng_key": rng_key, "null": null, "num_starts": num_starts}
        return _rebase_pieces(trace, bound, reference, order_by, labels, options)
    draws = trace.flat(list(bound.axes))
    refuse_bad_draws(draws, trace.leading)
    rng = np.random.default_rng(seed_of(rng_key))
    seed = int(rng.integers(2**31))
    frame: Frame | None = reference.frame if isinstance(reference, Rebased) else None
    chosen = _cost(cost, bound, trace, frame)
    refuse_other_draws(chosen, trace.leading)
    coordinates = chosen.coordinates(draws, bound) if frame is None else frame.read
    family = chosen.family(draws, bound, coordinates)

    index = _index(reference, trace)
    num_starts = _count_starts(num_starts, bound)
    if order_by is not None and reference != "mean":
        raise ValueError("order_by would rename the labels of the reference; leave it out, or use reference='mean'.")
    if frame is not None:
        _refuse_another_frame(frame, family, draws)
        found = relabel(family, bound.groups, (frame.natural, frame.partition), method=method, seed=seed, max_rounds=1)
    else:
        first = index if index is not None else 0 if trace.log_density is None else _index("map", trace)
        starts = list(dict.fromkeys([first or 0, *map(int, rng.permutation(trace.num_draws)[: num_starts - 1])]))
        found = search(family, bound.groups, starts, method=method, seed=seed, rng=rng)
        if reference == "medoid":
            index = int(found.objective.argmax())
        # a reference gives its names to the slots, and has no other say
        if index is not None:
            found = _renamed(found, {name: part.at(np.array([index])) for name, part in found.state.items()})
        elif isinstance(reference, Mapping):
            found = _renamed(found, _slots_of(reference, found, draws, bound, chosen, family, coordinates))
    state = found.state if order_by is None else _ordered(draws, bound, found.state, order_by)

    agreed = coordinates or GaussianCost().coordinates(draws, bound)
    fixed = None if frame is None else (frame.natural, frame.partition)
    made_up = (
        matched_null(
            chosen,
            family,
            bound,
            agreed,
            draws,
            state,
            fixed,
            leading=trace.leading,
            num_starts=num_starts,
            method=method,
            seed=seed,
            rng=rng,
        )
        if null and trace.num_draws > 1
        else None
    )
    margin = _margin(chosen, family, bound, draws, state)
    natural = fixed or family.natural(mean_statistics(family, bound.groups, state))
    moved = {site: act(draws[site], bound, site, state) for site in bound.axes}
    out = Rebased(
        data=None,
        elements=to_element(state, trace.leading),
        reference=_reference(reference, index, draws, moved),
        objective=found.objective.reshape(trace.leading),
        margin=margin.reshape(trace.leading),
        null=made_up,
        num_rounds=found.num_rounds,
        converged=found.converged,
        symmetry=bound,
        labels=labels,
        frame=Frame(chosen, coordinates, *natural),
    )
    renamed = out.apply({site: trace.values[site] for site in labels})
    shaped = {site: value.reshape(trace.values[site].shape) for site, value in moved.items()}
    return out._replace(data=trace.write(shaped | renamed))


def _found(data: Any, model: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: Any) -> Symmetry:
    """The symmetry of a model, on sites that the data hold."""
    if model is None and isinstance(data, MCMC):
        model, args, kwargs = data.sampler.model, data._args, data._kwargs
    if model is None:
        raise ValueError(
            "Without a symmetry, rebase finds one in the model: pass model= and model_args=, or a symmetry such as "
            "Symmetry.mixture('weights', 'loc')."
        )
    found = without_parameters(find_symmetry(model, args, kwargs))
    if not found.groups:
        raise SymmetryError(f"The model has no symmetry that could be found:\n{found.explain()}")
    return found


def _rebase_pieces(
    trace: Trace, bound: Symmetry, reference: Any, order_by: str | None, labels: dict[str, str], options: dict[str, Any]
) -> Rebased:
    """Rebase draws of a symmetry with orbits, fibres or joined axes: through its plain view."""
    if labels or order_by is not None:
        raise SymmetryError(
            "labels= and order_by= need groups that permute all of their indices alike; this symmetry has orbits, "
            f"fibres or joined axes: {bound}. Use symmetry.restrict(...) to keep the groups that do."
        )
    draws = {site: trace.values[site] for site in bound.axes}
    view = PlainView.of(bound, draws)
    if isinstance(reference, Rebased):
        reference = reference.plain
    elif isinstance(reference, Mapping):
        reference = view.open({site: np.asarray(value) for site, value in reference.items()})
    plain = rebase(view.open(draws), view.symmetry, reference=reference, num_leading_dims=len(trace.leading), **options)
    # what lies beside the groups on their sites is no part of the plain symmetry, and was brought to nothing
    still = {name: value.mean(tuple(range(len(trace.leading)))) for name, value in plain.data.items()}
    return plain._replace(
        data=trace.write(view.close(plain.data)),
        elements=view.element(plain.elements, bound),
        reference=view.close(still | plain.reference),
        symmetry=bound,
        plain=plain,
        view=view,
    )


# ---- against what ------------------------------------------------------------------------------------------------


def _cost(cost: Cost | str, bound: Symmetry, trace: Trace, frame: Frame | None) -> Cost:
    if cost == "auto":
        if frame is not None:
            if not frame.read:
                raise SymmetryError(
                    f"The reference was relabelled by {type(frame.cost).__name__}, which holds its own draws' data: "
                    "pass a cost of the same kind for these draws."
                )
            return frame.cost
        coupled = any(len({a.group for a in bound.opened(s)} - {None}) > 1 for s in bound.axes)
        # a variance for every number of a slot wants draws, or the first labels are never left
        few = trace.num_draws < max(_MIN_DRAWS_FOR_GAUSSIAN, _DRAWS_PER_NUMBER * _numbers_in_a_slot(trace, bound))
        return EuclideanCost() if coupled or few else GaussianCost()
    if not isinstance(cost, Cost):
        raise ValueError(f"cost must be 'auto' or one of the costs of numpyro_symmetry; got {cost!r}.")
    if frame is not None and type(cost) is not type(frame.cost):
        raise SymmetryError(f"The reference was relabelled by {type(frame.cost).__name__}; got {type(cost).__name__}.")
    return cost


def _index(reference: Any, trace: Trace) -> int | None:
    """Which draw the reference is, if it is one."""
    if isinstance(reference, str):
        if reference not in REFERENCES:
            raise ValueError(
                f"reference must be one of {REFERENCES}, an index, values or a Rebased; got {reference!r}."
            )
        if reference in ("mean", "medoid"):
            return None
        if reference == "first":
            return 0
        if trace.log_density is None:
            raise SymmetryError(
                "reference='map' needs each draw's log density: sample_stats with 'lp', or MCMC run with "
                "extra_fields=('potential_energy',)."
            )
        return int(np.argmax(np.where(np.isfinite(trace.log_density), trace.log_density, -np.inf)))
    if isinstance(reference, Mapping | Rebased):
        return None
    if isinstance(reference, int | np.integer | tuple):
        try:
            return int(np.ravel_multi_index(np.atleast_1d(reference), trace.leading))
        except ValueError as error:
            if np.size(reference) == 1 and 0 <= np.max(reference) < trace.num_draws:
                return int(np.max(reference))
            raise SymmetryError(f"reference={reference!r} is no draw of a trace of shape {trace.leading}.") from error
    raise ValueError(f"reference must be one of {REFERENCES}, an index, values or a Rebased; got {reference!r}.")


def _numbers_in_a_slot(trace: Trace, bound: Symmetry) -> int:
    """How many numbers describe one slot of the group that has most."""
    count = dict.fromkeys(bound.groups, 0)
    for site in bound.axes:
        size = int(np.prod(trace.values[site].shape[len(trace.leading) :]))
        for name in {axis.group for axis in bound.opened(site) if axis.group is not None}:
            count[name] += size // (bound.groups[name].size or 1)
    return max(count.values(), default=0)


def _refuse_another_frame(frame: Frame, family: Family, draws: Arrays) -> None:
    refuse_other_coordinates(frame.read, draws, "the draws")
    for given, own in zip(frame.natural, family.statistics(slice(0, 1)), strict=True):
        if given.shape != own.shape[1:]:
            raise SymmetryError(
                f"The reference was relabelled in statistics of shape {given.shape}; got {own.shape[1:]}."
            )


def _slots_of(
    reference: Mapping[str, Any],
    found: Relabelling,
    draws: Arrays,
    bound: Symmetry,
    cost: Cost,
    family: Family,
    coordinates: dict[str, Coordinate],
) -> State:
    """The slots that given values fall into."""
    if not coordinates:
        raise SymmetryError(f"{type(cost).__name__} compares allocations: its reference is a draw's, not values.")
    one = {}
    for site in bound.axes:
        expected = draws[site].shape[1:]
        if site not in reference or np.shape(reference[site]) != expected:
            got = np.shape(reference[site]) if site in reference else "nothing"
            raise SymmetryError(f"Site {site!r} of the reference: expected shape {expected}, got {got}.")
        one[site] = np.asarray(reference[site])[None]
    refuse_other_coordinates(coordinates, one, "the reference")
    natural = family.natural(mean_statistics(family, bound.groups, found.state))
    return relabel(cost.family(one, bound, coordinates), bound.groups, natural, max_rounds=1).state


def _renamed(found: Relabelling, reference: State) -> Relabelling:
    """The same labels under other names, such that the reference's own element becomes the identity."""

    def one(part: Hard, named: Hard) -> Hard:
        back = named.inverse().at(np.array([0]))
        permutation = part.permutation[:, back.permutation[0]]
        if part.sign is None or back.sign is None:
            return Hard(permutation)
        return Hard(permutation, part.sign[:, back.permutation[0]] * back.sign)

    return found._replace(state={name: one(part, reference[name]) for name, part in found.state.items()})


def _reference(reference: Any, index: int | None, draws: Arrays, moved: Arrays) -> dict[str, np.ndarray]:
    if index is not None:
        return {site: value[index] for site, value in draws.items()}
    if isinstance(reference, Rebased):
        return dict(reference.reference)
    if isinstance(reference, Mapping):
        return {site: np.asarray(reference[site]) for site in draws}
    return {site: value.mean(0, dtype=float) for site, value in moved.items()}


# ---- the search --------------------------------------------------------------------------------------------------


def _count_starts(num_starts: int | None, bound: Symmetry) -> int:
    if num_starts is None:
        return _MANY_STARTS if sum(group.size or 0 for group in bound.groups.values()) <= _SMALL else 1
    if num_starts < 1:
        raise ValueError(f"num_starts must be at least 1; got {num_starts}.")
    return num_starts


def _margin(cost: Cost, family: Family, bound: Symmetry, draws: Arrays, state: State) -> np.ndarray:
    """In nats: under the cost if it is a log-likelihood, else under Gaussians fitted to the relabelled slots."""
    if not isinstance(cost, GaussianCost | StephensCost):
        gaussian = GaussianCost(cost.transforms) if isinstance(cost, EuclideanCost) else GaussianCost()
        family = gaussian.family(draws, bound, gaussian.coordinates(draws, bound))
    groups = acting(family, bound.groups)
    natural, _ = family.natural(mean_statistics(family, bound.groups, state))
    parts = []
    for items in blocks(family, groups):
        problem, _ = problem_of(family, groups, natural, items)
        parts.append(margins(problem, {name: state[name].at(items) for name in groups}))
    return np.concatenate(parts)


def _ordered(draws: Arrays, bound: Symmetry, state: State, site: str) -> State:
    """The same labels under other names: in ascending order of a site's relabelled means."""
    if site not in bound.axes:
        raise SymmetryError(f"order_by={site!r} is none of the symmetry's sites {sorted(bound.axes)}.")
    _, axes = axes_of(bound, site, draws[site].shape[1:])
    names = [axis.group for axis in axes if axis.group is not None]
    if len(names) != 1 or any(axis.signed for axis in axes):
        raise SymmetryError(f"order_by={site!r} carries groups {names}; expected one permutation group, once.")
    moved = act(draws[site], bound, site, state).reshape(
        len(draws[site]), *(bound.opened_shape(site, draws[site].shape[1:]))
    )
    at = 1 + next(k for k, axis in enumerate(axes) if axis.group is not None)
    means = np.moveaxis(moved, at, 1).reshape(len(moved), moved.shape[at], -1).mean((0, 2), dtype=float)
    order = np.argsort(means, kind="stable")
    return state | {names[0]: state[names[0]].each(lambda x: x[:, order])}
