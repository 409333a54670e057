"""`rebase`: many draws into one basin, in the container they came in.

Knows containers, costs, relabelling and nulls, and puts them together; computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from numpyro_symmetry.assignment.solve import METHODS
from numpyro_symmetry.containers import Trace, model_of, read
from numpyro_symmetry.discovery import check_symmetry, find_symmetry, without_parameters
from numpyro_symmetry.models import Model
from numpyro_symmetry.symmetry import Complement, PlainView, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import as_count, as_flag, as_key, as_model_arguments, is_option, seed_of
from numpyro_symmetry.symmetry.axes import AxisEntry
from numpyro_symmetry.symmetry.hard import to_element
from numpyro_symmetry.traces.acting import act
from numpyro_symmetry.traces.choices import chosen_cost, chosen_starts
from numpyro_symmetry.traces.coordinates import Arrays
from numpyro_symmetry.traces.costs import (
    Cost,
    EuclideanCost,
    Family,
    GaussianCost,
    StephensCost,
    refuse_no_cost,
    refuse_other_draws,
)
from numpyro_symmetry.traces.deterministic import NOTHING, Carried, Roles, carry, roles_of
from numpyro_symmetry.traces.inputs import (
    bind,
    of_what_is_there,
    refuse_bad_draws,
    warn_of_what_is_left_out,
    warn_of_what_keeps_its_labels,
)
from numpyro_symmetry.traces.margin import margins
from numpyro_symmetry.traces.naming import (
    brought_to,
    index_of,
    likeliest_or_first,
    ordered,
    refuse_another_frame,
    renamed,
    slots_of,
)
from numpyro_symmetry.traces.null import matched_null
from numpyro_symmetry.traces.rebased import Frame, Rebased
from numpyro_symmetry.traces.relabel import State, acting, blocks, mean_statistics, problem_of, relabel, search


class _Options(NamedTuple):
    """How to relabel."""

    reference: Any
    cost: Cost | str
    method: str
    rng_key: Array | None
    order_by: str | None
    null: bool
    num_starts: int | None


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
    axes: Mapping[str, tuple[AxisEntry, ...]] | None = None,
    null: bool = True,
    num_starts: int | None = None,
    num_leading_dims: int | None = None,
    signs: bool = True,
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
        A site with one value for each slot: labels are put in ascending order of its relabelled means. Otherwise
        they are those of the draw the search started from.
    labels
        Sites of ``data`` whose values are labels from zero -> their group (allocations, hidden states). They may be
        stored as floats; -1 and NaN stand for a missing label and stay.
    axes
        Further sites of ``data`` -> their axes, as in `Symmetry`: they move with the labels and have no say in them.
        ``()`` says that no label moves a site.
    null
        Whether to relabel made-up draws too, and say what relabelling alone explains.
    num_starts
        How many draws to start from with ``reference="mean"``.
    num_leading_dims
        For dicts. By default read off the symmetry's axes; where those end in ``...`` and shapes leave it open, the
        smaller of the first two dimensions counts chains or labels.
    signs
        Whether the symmetry that is found may change signs (odd activations, factors).
    model, model_args, model_kwargs
        The NumPyro model, in which the symmetry is found, or against which it is checked if one is given. The model of
        an ``MCMC`` is its own. Its deterministic sites are moved where their entries move as wholes, and computed again
        where they change otherwise; one that cannot be computed again is left out.

    Returns
    -------
    Rebased
        Log-likelihoods, predictions, sample statistics and observed data are those given: no symmetry moves them.

    Raises
    ------
    SymmetryError
        If sites are missing or do not fit, draws are masked, ragged or not finite, or the model does not have the
        symmetry.
    ValueError, TypeError
        If an argument is none that is known.

    Warns
    -----
    SymmetryWarning
        If sites look like labels, or share a dimension or its length with a group, and nobody says so; if a
        deterministic site of the model is left out; if the draws do not hold all sites of a symmetry that was found.

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
    options = _checked(_Options(reference, cost, method, rng_key, order_by, null, num_starts))
    labels, axes = (
        _by_site(labels, "labels", "{'z': 'component'}"),
        _by_site(axes, "axes", "{'f': (None, 'component')}"),
    )
    known = _model_of(data, model, model_args, model_kwargs)
    was_found = symmetry is None
    if symmetry is None:
        symmetry = _found(known, signs=as_flag(signs, "signs"))
    elif not isinstance(symmetry, Symmetry):
        raise TypeError(f"symmetry must be a Symmetry, or None to find it in model=; got {type(symmetry).__name__}.")
    elif model is not None:
        check_symmetry(model, symmetry, *as_model_arguments(model_args, model_kwargs))
    trace = read(data, symmetry, num_leading_dims)
    if was_found:
        symmetry = of_what_is_there(symmetry, trace)
    bound = bind(trace, symmetry, labels, axes)
    out = (_relabelled if bound.is_plain else _in_pieces)(trace, bound, labels, options)

    shaped = out.data
    shaped |= out.apply({site: trace.values[site] for site in labels})
    spoken_for = {*labels, *axes}
    beside = set(trace.values) - set(bound.axes) - spoken_for
    roles = roles_of(known) if known is not None and beside else Roles(frozenset(), frozenset(), frozenset())
    carried = _carried(known, roles, trace, shaped, out, beside & roles.computed)
    warn_of_what_is_left_out(carried.left_out)
    warn_of_what_keeps_its_labels(trace, bound, spoken_for | roles.computed | roles.latent - roles.discrete)
    turned = [site for site, entries in bound.axes.items() if any(isinstance(entry, Complement) for entry in entries)]
    # 1 - (1 - p) is p but for rounding: what came is kept, to be given back
    before, after = (trace._replace(values=values).flat(turned) for values in (trace.values, shaped))
    carried = carried._replace(before={**carried.before, **before}, after={**carried.after, **after})
    out = out._replace(carried=carried._replace(axes={**carried.axes, **axes}))
    moved = out.apply({site: trace.values[site] for site in [*out.carried.axes, *carried.before]})
    return out._replace(data=trace.write(shaped | moved, tuple(carried.left_out)))


# ---- what is given -----------------------------------------------------------------------------------------------


def _checked(options: _Options) -> _Options:
    """The options, if each of them can be one."""
    if not is_option(options.method, METHODS):
        raise ValueError(f"method must be one of {METHODS}; got {options.method!r}.")
    if options.cost != "auto":
        refuse_no_cost(options.cost, "'auto', ")
    if not isinstance(options.order_by, str | None):
        raise TypeError(f"order_by must be the name of one site; got {options.order_by!r}.")
    if options.order_by is not None and not (isinstance(options.reference, str) and options.reference == "mean"):
        raise ValueError("order_by would rename the labels of the reference; leave it out, or use reference='mean'.")
    if options.rng_key is not None:
        as_key(options.rng_key)
    if options.num_starts is not None:
        as_count(options.num_starts, "num_starts")
    as_flag(options.null, "null")
    return options


def _by_site(given: Any, name: str, example: str) -> dict[str, Any]:
    if not isinstance(given, Mapping | None):
        raise TypeError(f"{name} must be a mapping by site, such as {example}; got {given!r}.")
    return dict(given or {})


def _model_of(data: Any, model: Callable[..., Any] | None, args: Any, kwargs: Any) -> Model | None:
    """The model that is given, or that which the container of the draws knows."""
    return model_of(data) if model is None else Model(model, *as_model_arguments(args, kwargs))


def _found(known: Model | None, *, signs: bool) -> Symmetry:
    """The symmetry of a model, on sites that the data hold."""
    if known is None:
        raise ValueError(
            "Without a symmetry, rebase finds one in the model: pass model= and model_args=, or a symmetry such as "
            "Symmetry.mixture('weights', 'loc')."
        )
    whole = find_symmetry(*known, signs=signs)
    found = without_parameters(whole)
    if not found.groups:
        but = " but for one that moves parameters" if whole.groups else ""
        raise SymmetryError(f"The model has no symmetry that could be found{but}:\n{whole.explain()}")
    return found


# ---- relabelling -------------------------------------------------------------------------------------------------


def _relabelled(trace: Trace, bound: Symmetry, labels: dict[str, str], options: _Options) -> Rebased:
    """Relabel the sites of a plain symmetry; the result holds them by site."""
    reference, method = options.reference, options.method
    draws = trace.flat(list(bound.axes))
    refuse_bad_draws(draws, trace.leading)
    rng = np.random.default_rng(seed_of(options.rng_key))
    seed = int(rng.integers(2**31))
    frame: Frame | None = reference.frame if isinstance(reference, Rebased) else None
    cost = chosen_cost(options.cost, bound, trace, frame)
    refuse_other_draws(cost, trace.leading)
    coordinates = cost.coordinates(draws, bound) if frame is None else frame.read
    family = cost.family(draws, bound, coordinates)

    index = index_of(reference, trace.leading, trace.log_density)
    num_starts = options.num_starts or chosen_starts(bound)
    if frame is not None:
        refuse_another_frame(frame, family, draws)
        found = relabel(family, bound.groups, (frame.natural, frame.partition), method=method, seed=seed, max_rounds=1)
    else:
        first = likeliest_or_first(trace.log_density) if index is None else index
        starts = list(dict.fromkeys([first, *map(int, rng.permutation(trace.num_draws)[: num_starts - 1])]))
        found = search(family, bound.groups, starts, method=method, seed=seed, rng=rng)
        if isinstance(reference, str) and reference == "medoid":
            index = int(found.objective.argmax())
        # a reference gives its names to the slots, and has no other say
        if index is not None:
            found = renamed(found, {name: part.at(np.array([index])) for name, part in found.state.items()})
        elif isinstance(reference, Mapping):
            found = renamed(found, slots_of(reference, found, draws, bound, cost, family, coordinates))
    state = found.state if options.order_by is None else ordered(draws, bound, found.state, options.order_by)

    agreed = coordinates or GaussianCost().coordinates(draws, bound)
    fixed = None if frame is None else (frame.natural, frame.partition)
    made_up = (
        matched_null(
            cost,
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
        if options.null and trace.num_draws > 1
        else None
    )
    margin = _margin(cost, family, bound, draws, state)
    natural = fixed or family.natural(mean_statistics(family, bound.groups, state))
    moved = {site: act(draws[site], bound, site, bound.axes[site], state) for site in bound.axes}
    return Rebased(
        data={site: value.reshape(trace.values[site].shape) for site, value in moved.items()},
        elements=to_element(state, trace.leading),
        reference=brought_to(reference, index, draws, moved),
        objective=found.objective.reshape(trace.leading),
        margin=margin.reshape(trace.leading),
        null=made_up,
        num_rounds=found.num_rounds,
        converged=found.converged,
        symmetry=bound,
        labels=labels,
        frame=Frame(cost, coordinates, *natural),
    )


def _in_pieces(trace: Trace, bound: Symmetry, labels: dict[str, str], options: _Options) -> Rebased:
    """Relabel the sites of a symmetry with orbits, fibres or joined axes: through its plain view."""
    if labels or options.order_by is not None:
        raise SymmetryError(
            "labels= and order_by= need groups that permute all of their indices alike; this symmetry has orbits, "
            f"fibres or joined axes: {bound}. Use symmetry.restrict(...) to keep the groups that do."
        )
    draws = {site: trace.values[site] for site in bound.axes}
    view = PlainView.of(bound, draws)
    reference = options.reference
    if isinstance(reference, Rebased):
        reference = reference.plain
    elif isinstance(reference, Mapping):
        reference = view.open({site: np.asarray(value) for site, value in reference.items()})
    pieces = trace._replace(values=view.open(draws), dims={})
    plain = view.symmetry.bind(pieces.values, num_leading_dims=len(trace.leading))
    found = _relabelled(pieces, plain, {}, options._replace(reference=reference))
    # what lies beside the groups on their sites is no part of the plain symmetry, and was brought to nothing
    all_pieces = pieces.values | found.data
    still = {name: value.mean(tuple(range(len(trace.leading)))) for name, value in all_pieces.items()}
    return found._replace(
        data=view.close(all_pieces),
        elements=view.element(found.elements, bound),
        reference=view.close(still | found.reference),
        symmetry=bound,
        plain=found._replace(data=None),
        view=view,
    )


def _carried(known: Model | None, roles: Roles, trace: Trace, moved: Arrays, out: Rebased, sites: set[str]) -> Carried:
    """What becomes of sites that the model computes."""
    if known is None or not sites:
        return NOTHING
    draws = trace.flat([site for site in trace.values if site in roles.latent | sites])
    flat = {site: value.reshape(trace.num_draws, *value.shape[len(trace.leading) :]) for site, value in moved.items()}
    return carry(known, roles, draws, flat, sorted(sites), out.symmetry, out.elements)


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
