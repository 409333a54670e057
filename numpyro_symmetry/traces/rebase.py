"""`rebase`: many draws into one basin, in the container they came in.

Knows containers, costs, relabelling and nulls, and puts them together; computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from numpyro_symmetry.assignment.family import (
    Cost,
    Family,
    Side,
    State,
    Statistics,
    acting_groups,
    blocks,
    family_of,
    mean_statistics,
    problem_of,
)
from numpyro_symmetry.assignment.passes import in_pieces, map_reduce
from numpyro_symmetry.assignment.solve import METHODS
from numpyro_symmetry.containers import Trace, model_of, read
from numpyro_symmetry.discovery import check_symmetry, find_symmetry, without_parameters
from numpyro_symmetry.models import PARTS, Model
from numpyro_symmetry.steps import say, saying
from numpyro_symmetry.symmetry import Complement, PlainView, Symmetry, SymmetryError, as_symmetry
from numpyro_symmetry.symmetry.arguments import as_count, as_flag, as_mapping, as_model_arguments, as_option, seed_of
from numpyro_symmetry.symmetry.axes import AxisEntry
from numpyro_symmetry.symmetry.families import by_site
from numpyro_symmetry.symmetry.hard import from_element, then, to_element
from numpyro_symmetry.symmetry.named import groups_on, names_of, refuse_other_names
from numpyro_symmetry.symmetry.plain import warn_of_torn
from numpyro_symmetry.traces.acting import act, refuse_trivial
from numpyro_symmetry.traces.carrying import carried_of, still_of
from numpyro_symmetry.traces.choices import chosen_cost, chosen_starts
from numpyro_symmetry.traces.costs import GaussianCost, PlainDraws, refuse_no_cost
from numpyro_symmetry.traces.deterministic import NO_ROLES, Roles, roles_of
from numpyro_symmetry.traces.inputs import (
    bind,
    on_compared_sites,
    on_sites_of_trace,
    refuse_bad_draws,
    refuse_no_group,
    warn_of_kept_labels,
    warn_of_left_out_sites,
    warn_of_turned_signs,
)
from numpyro_symmetry.traces.margin import margins
from numpyro_symmetry.traces.moving import trace_of
from numpyro_symmetry.traces.named import refuse_cost_of_others
from numpyro_symmetry.traces.naming import (
    as_in,
    as_reference,
    brought_to,
    index_of,
    likeliest_or_first,
    names_by,
    refuse_another_frame,
)
from numpyro_symmetry.traces.null import matched_null
from numpyro_symmetry.traces.rebased import Frame, Rebased
from numpyro_symmetry.traces.relabel import Relabelling, SearchEffort, relabel, search


class _Options(NamedTuple):
    """How to relabel."""

    reference: Any
    cost: Cost | str
    method: str
    seed: list[int]
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
    part: str = "joint",
    model: Callable[..., Any] | None = None,
    model_args: tuple[Any, ...] = (),
    model_kwargs: Mapping[str, Any] | None = None,
    progress_bar: bool = True,
) -> Rebased:
    r"""Bring all draws of a posterior into one basin, where labels mean the same thing in every draw.

    .. math:: \max_{g_1,\dots,g_S}\ \max_\eta \sum_s \langle\eta, g_s\cdot T(\theta_s)\rangle - A(\eta)

    Parameters
    ----------
    data
        Draws: a dict, or any pytree, of ``(draw, ...)`` or ``(chain, draw, ...)`` arrays, ``xarray.Dataset``, ArviZ's
        ``InferenceData`` or ``DataTree``, ``numpyro.infer.MCMC`` after its run. Or members of an ensemble: a list of
        dicts or pytrees, or `containers.Members` of a stacked one. Of a pytree, paths to arrays are sites.
    symmetry
        The group whose elements leave the posterior as it is; by default what `find_symmetry` finds in ``model``.
    reference
        Whose labels to use. ``"mean"``: those of the draw from which the best search started. The ``"first"`` draw;
        ``"map"``, that of largest log density; ``"medoid"``, the likeliest of the relabelled draws; the index of a
        draw (an integer or ``(chain, draw)``); or values, by site or as a pytree. All of these name slots and no more:
        the slots themselves are the relabelled draws' own. Another `Rebased`, to compare runs: its slots are held
        fixed.
    cost
        `GaussianCost`, `EuclideanCost`, `StephensCost`, `AllocationCost`, or one's own, with a method ``family``.
        ``"auto"``: Gaussian if every site carries one group (mixtures, hidden Markov models, one hidden layer) and
        there are at least ten draws for every number that describes a slot; else Euclidean.
    method
        How each draw is matched; see `match`.
    rng_key
        For starts, restarts and nulls. The same key gives the same answer; without one it is a fixed one.
    order_by
        A site with one value for each slot: labels are put in ascending order of its relabelled means. Otherwise
        they are those of the draw the search started from.
    labels
        Sites of ``data`` whose values are labels from zero -> their group (allocations, hidden states). They may be
        stored as floats, and those of two as truth values; -1, NaN and the least number of an integer type stand for a
        missing label and stay.
    axes
        Further sites of ``data`` -> their axes, as in `Symmetry`: they move with the labels and have no say in them.
        ``()`` says that no label moves a site.
    null
        Whether to relabel made-up draws too, and say what relabelling alone explains.
    num_starts
        How many draws to start from with ``reference="mean"``.
    num_leading_dims
        For dicts. By default read off the symmetry's axes; where those end in ``...`` and shapes leave it open, the
        smaller of the first two dimensions counts chains or labels. Of a list, 1 says that it holds members.
    signs
        Whether the symmetry that is found may change signs (odd activations, factors).
    part
        The part of ``model`` whose symmetry it is: ``"joint"``, or ``"likelihood"`` where the prior tells labels apart
        (it is informative, or ordered in its means). Slots are then the likelihood's, and the report says so.
    model, model_args, model_kwargs
        The NumPyro model, in which the symmetry is found, or against which it is checked if one is given. The model of
        an ``MCMC`` is its own. Its deterministic sites are moved where their entries move as wholes, and computed again
        where they change otherwise; one that cannot be computed again is left out.
    progress_bar
        Whether to show what is being done, if it takes more than two seconds.

    Returns
    -------
    Rebased
        Log-likelihoods, predictions, sample statistics and observed data are those given: no symmetry moves them.

    Raises
    ------
    SymmetryError
        If sites are missing or do not fit, draws are masked, ragged or not finite, or the model does not have the
        symmetry, or has other numbers of units than the draws.
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
    Stephens (2000), *Dealing with label switching in mixture models*; Papastamoulis and Iliopoulos (2010), *An
    artificial allocations based solution to the label switching problem*; Xiao et al. (2023), arXiv:2401.00611.

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
    as_option(method, "method", METHODS)
    if cost != "auto":
        refuse_no_cost(cost, "'auto', ")
    if not isinstance(order_by, str | None):
        raise TypeError(f"order_by must be the name of one site; got {order_by!r}.")
    if order_by is not None and not (isinstance(reference, str) and reference == "mean"):
        raise ValueError("order_by would rename the labels of the reference; leave it out, or use reference='mean'.")
    num_starts = None if num_starts is None else as_count(num_starts, "num_starts")
    options = _Options(reference, cost, method, seed_of(rng_key), order_by, as_flag(null, "null"), num_starts)
    labels = as_mapping(labels, "labels", example="{'z': 'component'}")
    axes = by_site(as_mapping(axes, "axes", example="{'f': (None, 'component')}"))
    as_option(part, "part", PARTS)
    signs = as_flag(signs, "signs")
    known = model_of(data) if model is None else Model(model, *as_model_arguments(model_args, model_kwargs))
    with saying("relabelling", as_flag(progress_bar, "progress_bar")):
        whole = _found(known, signs=signs, part=part) if symmetry is None else as_symmetry(symmetry)
        trace = read(data, whole, num_leading_dims, lazily=True)
        compared, beside = on_compared_sites(on_sites_of_trace(whole, trace) if symmetry is None else whole, trace)
        axes = beside | axes
        bound = bind(trace, compared, labels, axes)
        roles = NO_ROLES if known is None else roles_of(known)
        if known is not None and symmetry is not None and (model is not None or set(whole.axes) <= roles.latent):
            # sites that are moved along are of the symmetry
            along = {site: axes[site] for site in axes.keys() & roles.latent}
            _check(known, roles.shapes, replace(whole, axes={**whole.axes, **along}), bound, part)
        out = _relabelled(trace, bound, labels, options)
        return _with_other_sites(out._replace(part=part), trace, known, roles, axes)


# ---- what is given -----------------------------------------------------------------------------------------------


def _found(known: Model | None, *, signs: bool, part: str) -> Symmetry:
    """The symmetry of a model, without groups that move parameters, of which draws hold none."""
    if known is None:
        raise ValueError(
            "Without a symmetry, rebase finds one in the model: pass model= and model_args=, or a symmetry such as "
            "Symmetry.mixture('weights', 'loc')."
        )
    whole = find_symmetry(*known, signs=signs, part=part)
    found = without_parameters(whole)
    if not found.groups:
        refuse_no_group(whole, part)
    return found


def _check(known: Model, shapes: Mapping[str, tuple[int, ...]], whole: Symmetry, bound: Symmetry, part: str) -> None:
    """Check that a model has a symmetry, with groups of the sizes that they have in the draws."""
    check_symmetry(known.function, whole, known.args, known.kwargs, part=part)
    values = {site: np.empty(shape, bool) for site, shape in shapes.items()}
    sizes = whole.restrict(sites=whole.axes.keys() & values.keys()).bind(values).sizes
    for name, size in bound.sizes.items():
        if sizes.get(name, size) != size:
            raise SymmetryError(
                f"Group {name!r} has size {size} in the draws, and {sizes[name]} in the model: pass the model_args and "
                "model_kwargs with which these draws were made."
            )


# ---- relabelling -------------------------------------------------------------------------------------------------


def _relabelled(trace: Trace, bound: Symmetry, labels: dict[str, str], options: _Options) -> Rebased:
    """Relabel the sites of a symmetry, through its plain view."""
    draws = trace.flat(list(bound.axes))
    refuse_bad_draws(draws, trace.leading)
    view = PlainView.of(bound, draws, with_single=True, nested=True)
    warn_of_torn(view, "relabelled", ". Relabel the other")
    plain = view.symmetry
    refuse_trivial(plain)
    source = Side.of_pieces(in_pieces(draws, view), trace.leading, view)
    rng = np.random.default_rng(options.seed)
    effort = SearchEffort(options.method, int(rng.integers(2**31)), options.num_starts or chosen_starts(plain))
    options = options._replace(reference=as_reference(options.reference, bound.axes))
    reference = options.reference
    frame = reference.frame if isinstance(reference, Rebased) else None
    cost, along = chosen_cost(options.cost, plain, source.loc, frame), groups_on(trace.dims, bound.axes)
    refuse_cost_of_others(cost, trace, along)
    family = family_of(cost, source, plain, None if frame is None else frame.read)
    seen = PlainDraws(cost, family, view, source)

    say("looking for the likeliest labels")
    if isinstance(reference, Rebased):
        refuse_another_frame(reference, seen)
    if isinstance(reference, Rebased | Mapping):
        given = trace_of(reference) if isinstance(reference, Rebased) else names_of(reference, 0)
        refuse_other_names(given, trace, list(bound.axes), ("the reference", "the draws"), along=along)
    if frame is None:
        # a reference gives slots their names, and has no other say
        name_by = names_by(reference, options.order_by, seen)
        found, index = _searched(trace, seen, options, effort, rng)
        found = found._replace(state=then(found.state, name_by(found) if index is None else as_in(index, found)))
    else:
        found, index = relabel(family, plain.groups, frame.point, effort, max_rounds=1), None
    fixed = None if frame is None else frame.point
    null = None
    if options.null and trace.num_draws > 1:
        say("the same for made-up draws")
        null = matched_null(seen, found.state, fixed, trace.leading, trace.in_order, effort, rng)
    own = family.natural(mean_statistics(family, plain.groups, found.state))
    elements = view.element(to_element(found.state, (trace.num_draws,)), bound, (trace.num_draws,))
    state = from_element(elements)
    moved = trace.moved(lambda values, lead: act(values, bound, bound.axes, state, lead), list(bound.axes))
    return Rebased(
        data=moved.values,
        elements=to_element(state, trace.leading),
        reference=brought_to(reference, index, draws, moved.flat(list(bound.axes))),
        objective=found.objective.reshape(trace.leading),
        margin=_margin(seen, found.state, (fixed or own)[0]).reshape(trace.leading),
        null=null,
        num_rounds=found.num_rounds,
        converged=found.converged,
        symmetry=bound,
        labels=labels,
        frame=Frame(cost, family.coordinates, fixed or own),
        view=view,
    )


def _with_other_sites(
    out: Rebased, trace: Trace, known: Model | None, roles: Roles, axes: Mapping[str, tuple[AxisEntry, ...]]
) -> Rebased:
    """Relabelled draws with all their sites, moved along or computed again, in the container they came in."""
    say("moving what the model computes")
    bound, labels = out.symmetry, out.labels
    shaped = out.data | out.apply({site: trace.values[site] for site in labels})
    spoken_for = {*labels, *axes}
    computed = roles.computed & trace.values.keys() - bound.axes.keys() - spoken_for
    carried = carried_of(known, roles, trace, shaped, out, computed)
    warn_of_left_out_sites(carried.left_out, trace)
    settled = spoken_for | {finding.site for finding in bound.findings} | roles.computed
    if not roles.computed & bound.axes.keys():  # else latent sites may be left behind by what is computed from them
        settled |= roles.latent - roles.discrete
    changes = {site: site in carried.label_dependent for site in computed}
    warn_of_kept_labels(trace, bound, settled | trace.uncompared, changes)
    turned = [site for site, e in bound.axes.items() if any(isinstance(entry, Complement) for entry in e)]
    # 1 - (1 - p) is p only up to rounding: values in memory are kept as they came, to be given back
    kept = [] if trace.is_stored else turned
    before, after = (trace._replace(values=values).flat(kept) for values in (trace.values, shaped))
    carried = carried._replace(
        axes={**carried.axes, **axes}, before=carried.before | before, after=carried.after | after
    )
    carried = carried._replace(still=still_of(bound, carried, settled - labels.keys()))
    out = out._replace(carried=carried)
    moved = shaped | out.apply({site: trace.values[site] for site in [*carried.axes, *carried.before]})
    if known is None and not bound.findings:  # a model knows its signs
        warn_of_turned_signs(trace, bound, axes, moved)
    return out._replace(data=trace.write(moved, tuple(carried.left_out)))


def _searched(
    trace: Trace, seen: PlainDraws, options: _Options, effort: SearchEffort, rng: np.random.Generator
) -> tuple[Relabelling, int | None]:
    """The likeliest labels, and the draw that names them, if one does."""
    index = index_of(options.reference, trace.leading, trace.log_density)
    first = likeliest_or_first(trace.log_density) if index is None else index
    starts = [first, *map(int, rng.permutation(trace.num_draws)[: effort.num_starts - 1])]
    found = search(seen.family, seen.plain.groups, list(dict.fromkeys(starts)), effort, rng)
    by_medoid = isinstance(options.reference, str) and options.reference == "medoid"
    return found, int(found.objective.argmax()) if by_medoid else index


def _margin(seen: PlainDraws, state: State, natural: Statistics) -> np.ndarray:
    """Margins, nats: under the cost if it is a log-likelihood, else under Gaussians fitted to the relabelled slots."""
    family = seen.family
    if not family.in_nats:
        # in the cost's own coordinates, where it has any
        cost = GaussianCost({s: c.transform for s, c in family.coordinates.items()})
        family = family_of(cost, seen.draws, seen.plain)
        natural, _ = family.natural(mean_statistics(family, seen.plain.groups, state))
    groups = acting_groups(family, seen.plain.groups)

    def of(here: Family, items: slice) -> tuple[np.ndarray, None]:
        labels = {name: state[name].at(items) for name in groups}
        return margins(problem_of(here, groups, natural, items)[0], labels), None

    return np.concatenate(map_reduce(family, blocks(family, groups), of)[0])
