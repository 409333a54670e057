"""`rebase`: many draws into one basin, in the container they came in.

Knows containers, costs, relabelling and nulls, and puts them together; computes nothing itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.matching.solve import METHODS
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, SymmetryWarning
from numpyro_symmetry.traces.containers import Trace, read
from numpyro_symmetry.traces.coordinates import Arrays, Coordinate, axes_of
from numpyro_symmetry.traces.costs import Cost, EuclideanCost, Family, GaussianCost, Statistics
from numpyro_symmetry.traces.margin import margins
from numpyro_symmetry.traces.null import matched_null
from numpyro_symmetry.traces.rebased import Frame, Rebased, act, elements_of
from numpyro_symmetry.traces.relabel import (
    Relabelling,
    State,
    acting,
    blocks,
    mean_statistics,
    problem_of,
    relabel,
)

REFERENCES = ("mean", "medoid", "first", "map")
# fewer draws than this say too little about variances
_MIN_DRAWS_FOR_GAUSSIAN = 20
_MAX_DRAWS_TO_START = 1000
# starts are cheap where labels are few
_MANY_STARTS, _SMALL = 5, 32


def rebase(
    data: Any,
    symmetry: Symmetry,
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
) -> Rebased:
    r"""Bring all draws of a posterior into one basin, where labels mean the same thing in every draw.

    .. math:: \max_{g_1,\dots,g_S}\ \max_\eta \sum_s \langle\eta, g_s\cdot T(\theta_s)\rangle - A(\eta)

    Parameters
    ----------
    data
        Draws: a dict of ``(draw, ...)`` or ``(chain, draw, ...)`` arrays, ``xarray.Dataset``, ArviZ's
        ``InferenceData`` or ``DataTree``, ``numpyro.infer.MCMC`` after its run, or a list of ensemble members.
    symmetry
        Whose elements leave the posterior as it is.
    reference
        ``"mean"``: the relabelled draws' own, found in turns from several starts; ``"first"`` draw; ``"map"``, the
        draw of largest log density; ``"medoid"``, the draw nearest to the relabelled mean; the index of a draw (an
        integer or ``(chain, draw)``); values by site; or another `Rebased`, to compare runs.
    cost
        `GaussianCost`, `EuclideanCost`, `StephensCost`, `AllocationCost`. ``"auto"``: Gaussian if every site carries
        one group (mixtures, hidden Markov models, one hidden layer) and there are draws enough, else Euclidean.
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

    Returns
    -------
    Rebased
        Log-likelihoods, predictions, sample statistics and observed data are those given: no symmetry moves them.

    Raises
    ------
    SymmetryError
        If sites are missing or do not fit, or draws are not finite.

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
    trace = read(data, symmetry, num_leading_dims)
    labels = dict(labels or {})
    bound = _bind(trace, symmetry, labels)
    draws = trace.flat(list(bound.axes))
    _refuse_bad_draws(draws, trace.leading)
    rng = np.random.default_rng(_seed(rng_key))
    seed = int(rng.integers(2**31))
    frame: Frame | None = reference.frame if isinstance(reference, Rebased) else None
    chosen = _cost(cost, bound, trace, frame)
    coordinates = chosen.coordinates(draws, bound) if frame is None else frame.read
    family = chosen.family(draws, bound, coordinates)

    fixed: tuple[Statistics, float] | None = None
    if isinstance(reference, str) and reference in ("mean", "medoid"):
        found = _from_starts(family, bound, _starts(trace, bound, num_starts, rng), method, seed, rng)
        index = int(found.objective.argmax()) if reference == "medoid" else None
    else:
        found, index = None, _index(reference, trace)
    if found is None or index is not None:
        if order_by is not None:
            raise ValueError(
                "order_by would rename the labels of the reference; leave it out, or use reference='mean'."
            )
        fixed = _fixed(reference, frame, index, trace, bound, chosen, coordinates)
        found = relabel(family, bound.groups, fixed, method=method, seed=seed, max_rounds=1)
    state = found.state if order_by is None else _ordered(draws, bound, found.state, order_by)

    agreed = coordinates or GaussianCost().coordinates(draws, bound)
    made_up = null and trace.num_draws > 1 and bool(agreed)
    means = mean_statistics(family, bound.groups, state)
    moved = {site: act(draws[site], bound, site, state) for site in bound.axes}
    out = Rebased(
        data=None,
        elements=elements_of(state, trace.leading),
        reference=_reference(reference, index, draws, moved),
        objective=found.objective.reshape(trace.leading),
        margin=_margin(family, bound, found).reshape(trace.leading),
        null=matched_null(chosen, family, bound, agreed, draws, state, fixed, method=method, rng=rng)
        if made_up
        else None,
        num_rounds=found.num_rounds,
        converged=found.converged,
        symmetry=bound,
        labels=labels,
        frame=Frame(chosen, coordinates, *(fixed or family.natural(means))),
    )
    renamed = out.apply({site: trace.values[site] for site in labels})
    shaped = {site: value.reshape(trace.values[site].shape) for site, value in moved.items()}
    return out._replace(data=trace.write(shaped | renamed))


# ---- what is to be relabelled ------------------------------------------------------------------------------------


def _bind(trace: Trace, symmetry: Symmetry, labels: dict[str, str]) -> Symmetry:
    if trace.num_draws == 0:
        raise SymmetryError(f"There are no draws: the leading dimensions are {trace.leading}.")
    bound = symmetry.bind(trace.values, num_leading_dims=len(trace.leading))
    for site, entries in bound.axes.items():
        if len(entries) > trace.values[site].ndim - len(trace.leading):
            raise SymmetryError(
                f"Site {site!r} has shape {trace.values[site].shape}, of which {trace.leading} count draws; its "
                f"{len(entries)} axes in the symmetry do not fit into the rest."
            )
    if not bound.groups:
        raise SymmetryError("The symmetry is trivial: there is nothing to relabel.")
    for site, group in labels.items():
        if site not in trace.values or group not in bound.groups or site in bound.axes:
            raise SymmetryError(
                f"labels={{{site!r}: {group!r}}}: expected a site of the data that the symmetry does not name, among "
                f"{sorted(set(trace.values) - set(bound.axes))}, and one of its groups {sorted(bound.groups)}."
            )
    _warn_of_what_is_left_behind(trace, bound, labels)
    return bound


def _warn_of_what_is_left_behind(trace: Trace, bound: Symmetry, labels: dict[str, str]) -> None:
    sizes = {group.size for group in bound.groups.values() if group.kind == "permutation"}
    dims = {
        dim: axis.group
        for site in bound.axes
        if site in trace.dims and len(bound.opened(site)) == len(bound.axes[site])
        for dim, axis in zip(trace.dims[site][::-1], bound.opened(site)[::-1], strict=False)
        if axis.group is not None
    }
    for site in sorted(set(trace.values) - set(bound.axes) - set(labels)):
        values = trace.values[site]
        if shared := [dim for dim in trace.dims.get(site, ()) if dim in dims]:
            warnings.warn(
                f"Site {site!r} has dimension {shared[0]!r}, which group {dims[shared[0]]!r} permutes elsewhere, and "
                "keeps its old labels. Name it in the symmetry, or drop it and compute it again.",
                SymmetryWarning,
                stacklevel=4,
            )
        elif values.dtype.kind in "iu" and values.size and values.min() >= 0 and int(values.max()) + 1 in sizes:
            warnings.warn(
                f"Site {site!r} holds integers from 0 to {values.max()}, as labels would, and is left as it is. If "
                f"they are labels, pass labels={{{site!r}: group}}.",
                SymmetryWarning,
                stacklevel=4,
            )


def _refuse_bad_draws(draws: Arrays, leading: tuple[int, ...]) -> None:
    for site, values in draws.items():
        if values.dtype.kind not in "fiub":
            raise SymmetryError(f"Site {site!r} holds values of type {values.dtype}; expected real numbers.")
        if values.dtype.kind != "f":
            continue
        bad = ~np.isfinite(values).reshape(len(values), -1).all(1)
        if bad.any():
            where = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), leading))
            raise SymmetryError(
                f"Site {site!r} is not finite in {int(bad.sum())} of {len(values)} draws, first in draw {where}. "
                "Drop those draws, or find out why the sampler made them."
            )


def _seed(rng_key: Array | None) -> list[int]:
    if rng_key is None:
        return [0]
    data = jax.random.key_data(rng_key) if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key) else rng_key
    return np.asarray(data).ravel().tolist()


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
        few = trace.num_draws < _MIN_DRAWS_FOR_GAUSSIAN
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


def _fixed(
    reference: Any,
    frame: Frame | None,
    index: int | None,
    trace: Trace,
    bound: Symmetry,
    cost: Cost,
    coordinates: dict[str, Coordinate],
) -> tuple[Statistics, float]:
    """Natural parameters that are not the draws' own."""
    if frame is not None:
        return frame.natural, frame.partition
    draws = trace.flat(list(bound.axes))
    if index is not None:
        family = cost.family(draws, bound, coordinates)
        return family.point(tuple(x[0] for x in family.statistics(np.array([index]))))
    if not coordinates:
        raise SymmetryError(f"{type(cost).__name__} compares allocations: its reference is a draw's, not values.")
    one = {}
    for site in bound.axes:
        expected = draws[site].shape[1:]
        if site not in reference or np.shape(reference[site]) != expected:
            got = np.shape(reference[site]) if site in reference else "nothing"
            raise SymmetryError(f"Site {site!r} of the reference: expected shape {expected}, got {got}.")
        one[site] = np.asarray(reference[site])[None]
    family = cost.family(one, bound, coordinates)
    return family.point(tuple(x[0] for x in family.statistics(slice(0, 1))))


def _reference(reference: Any, index: int | None, draws: Arrays, moved: Arrays) -> dict[str, np.ndarray]:
    if index is not None:
        return {site: value[index] for site, value in draws.items()}
    if isinstance(reference, Rebased):
        return dict(reference.reference)
    if isinstance(reference, Mapping):
        return {site: np.asarray(reference[site]) for site in draws}
    return {site: value.mean(0, dtype=float) for site, value in moved.items()}


# ---- the search --------------------------------------------------------------------------------------------------


def _starts(trace: Trace, bound: Symmetry, num_starts: int | None, rng: np.random.Generator) -> list[int]:
    """Draws to start from: the one of largest log density or else the first, then others at random."""
    if num_starts is None:
        size = sum((group.size or 0) for group in bound.groups.values())
        num_starts = _MANY_STARTS if size <= _SMALL else 1
    if num_starts < 1:
        raise ValueError(f"num_starts must be at least 1; got {num_starts}.")
    first = 0 if trace.log_density is None else _index("map", trace)
    others = rng.permutation(trace.num_draws)[: num_starts - 1]
    return list(dict.fromkeys([int(first or 0), *map(int, others)]))


def _from_starts(
    family: Family, bound: Symmetry, starts: list[int], method: str, seed: int, rng: np.random.Generator
) -> Relabelling:
    """The best of several searches on some of the draws, then all draws from where it ended."""
    some = np.sort(rng.permutation(family.num_draws)[:_MAX_DRAWS_TO_START])
    thin = family._replace(statistics=lambda items: family.statistics(some[items]), num_draws=len(some))
    best: Relabelling | None = None
    for start in starts:
        natural = family.point(tuple(x[0] for x in family.statistics(np.array([start]))))
        found = relabel(thin, bound.groups, natural, method=method, seed=seed)
        if best is None or found.objective.mean() > best.objective.mean():
            best = found
    assert best is not None
    if len(some) == family.num_draws:
        return best
    means = mean_statistics(thin, bound.groups, best.state)
    return relabel(family, bound.groups, family.natural(means), method=method, seed=seed)


def _margin(family: Family, bound: Symmetry, found: Relabelling) -> np.ndarray:
    groups = acting(family, bound.groups)
    parts = []
    for items in blocks(family, groups):
        problem, _ = problem_of(family, groups, found.natural, items)
        parts.append(margins(problem, {name: found.state[name].at(items) for name in groups}))
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
