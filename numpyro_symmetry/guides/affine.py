"""A model read as a Gaussian linear model in some of its sites, the others given; and whether it is one.

Observed Normals whose location is affine in the sites, under Normal priors, become whitened rows (`rows.Rows`). Rows
weigh as the log joint does: masks, scales, missing targets, several observed sites. Knows models; not guides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers
from numpyro.distributions import constraints

Trace = Mapping[str, Any]


class Prior(NamedTuple):
    """A site's Normal prior given the sites it is conditioned on.

    Attributes
    ----------
    loc, scale
        Mean and standard deviation, of the site's shape.
    """

    loc: Array
    scale: Array


class LinearModel(NamedTuple):
    """What a model says of some sites given all others, in whitened coordinates ``b = loc + scale * z``.

    Attributes
    ----------
    residual
        Residuals at ``z = 0`` over their standard deviations, ``(N,)``.
    slopes
        Site -> how residuals fall with its z, ``(N, P)``.
    priors
        Site -> its prior.
    """

    residual: Array
    slopes: dict[str, Array]
    priors: dict[str, Prior]


def trace_given(model: Callable, args: tuple, kwargs: Mapping[str, Any], data: Mapping[str, Any]) -> Trace:
    """Trace of a model at given values; only its parameters are seen outside."""
    with (
        handlers.block(hide_fn=lambda site: site["type"] != "param"),
        handlers.trace() as trace,
        handlers.seed(rng_seed=0),
        handlers.substitute(data=dict(data)),
    ):
        model(*args, **kwargs)
    return trace


def read(
    model: Callable, args: tuple, kwargs: Mapping[str, Any], given: Mapping[str, Array], sites: Sequence[str]
) -> LinearModel:
    """Read a model as linear in some sites, at values of the others."""
    start = trace_given(model, args, kwargs, given)
    priors = {site: _prior(start[site]) for site in sites}

    def residuals_at(z: dict[str, Array]) -> Array:
        values = {site: prior.loc + prior.scale * z[site] for site, prior in priors.items()}
        trace = trace_given(model, args, kwargs, {**given, **values})
        return jnp.concatenate([jnp.ravel(rows) for rows in residuals(trace).values()])

    zero = {site: jnp.zeros_like(prior.loc) for site, prior in priors.items()}
    residual, along = jax.linearize(residuals_at, zero)

    def slope(site: str) -> Array:
        size = zero[site].size
        basis = jnp.eye(size, dtype=zero[site].dtype).reshape(size, *zero[site].shape)
        return -jax.vmap(lambda direction: along({**zero, site: direction}))(basis).T

    return LinearModel(residual, {site: slope(site) for site in sites}, priors)


def residuals(trace: Trace) -> dict[str, Array]:
    """Observed Normal site -> residuals over standard deviations, times the root of their weight in the log joint."""
    found = {}
    for name, site in trace.items():
        normal = as_normal(site) if is_observation(site) else None
        if normal is not None:
            loc, scale, weight = normal
            # a missing target may be NaN: it has no weight, and no gradient either
            target = jnp.where(weight > 0, site["value"], loc)
            found[name] = jnp.sqrt(weight) * (target - loc) / scale
    return found


def is_observation(site: Any) -> bool:
    """Whether a site of a trace is an observed sample."""
    return site["type"] == "sample" and site["is_observed"]


def as_normal(site: Any) -> tuple[Array, Array, Array] | None:
    """Location, standard deviation and weight of every entry of a Normal site, or ``None`` if it is none.

    The weight is what masks and scales make of an entry's log density.
    """
    shape = jnp.shape(site["value"])
    weight = jnp.ones(shape) if site["scale"] is None else _over_batch(site["scale"], site["fn"], shape)
    for fn in _layers(site["fn"]):
        if isinstance(fn, dist.MaskedDistribution):
            weight = jnp.where(_over_batch(fn._mask, fn, shape), weight, 0.0)
        elif type(fn) is dist.Normal:
            return jnp.broadcast_to(fn.loc, shape), jnp.broadcast_to(fn.scale, shape), weight
    return None


def _layers(fn: Any) -> Iterator[Any]:
    yield fn
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        fn = fn.base_dist
        yield fn


def _over_batch(weights: Any, fn: Any, shape: tuple[int, ...]) -> Array:
    """One number for each member of a batch, given to all entries of its event."""
    weights = jnp.asarray(weights)
    return jnp.broadcast_to(weights.reshape(weights.shape + (1,) * fn.event_dim), shape)


def _prior(site: Any) -> Prior:
    normal = as_normal(site)
    assert normal is not None
    return Prior(normal[0], normal[1])


def eligible(site: Any) -> bool:
    """Whether a latent site has a real support and an unweighted Normal prior."""
    if site["type"] != "sample" or site["is_observed"] or site["scale"] is not None:
        return False
    normal = as_normal(site)
    masked = any(isinstance(fn, dist.MaskedDistribution) for fn in _layers(site["fn"]))
    return normal is not None and not masked and _is_real(site["fn"].support)


def _is_real(support: Any) -> bool:
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support is constraints.real


_TOLERANCE = 1e-6


def why_not_linear(
    model: Callable, args: tuple, kwargs: Mapping[str, Any], places: Sequence[Mapping[str, Any]], sites: Sequence[str]
) -> str | None:
    """Why a model is not linear and Gaussian in some sites jointly, or ``None`` if it is at all of some places.

    Compared at *finite distances* on the scale of the prior, and never by derivatives: those of a rectified network in
    its hidden weights are constant nearly everywhere, though it is not affine in them.

    Parameters
    ----------
    model, args, kwargs
        The model and its arguments.
    places
        Values of all latent sites, drawn from the prior, at least three.
    sites
        Names of the sites in question.
    """
    ends = [{site: place[site] for site in sites} for place in places]
    for k, place in enumerate(places):
        first, second = ends[k], ends[(k + 1) % len(ends)]
        middle = {site: 0.5 * (first[site] + second[site]) for site in sites}
        traces = [trace_given(model, args, kwargs, {**place, **values}) for values in (first, middle, second)]
        if (why := _difference(traces, sites)) is not None:
            return why
    return None


def _difference(traces: Sequence[Trace], sites: Sequence[str]) -> str | None:
    first, middle, second = traces
    rows = [residuals(trace) for trace in traces]
    for name, site in first.items():
        if site["type"] != "sample":
            continue
        if name in sites:
            for what, x, y in zip(("mean", "scale"), _prior(site), _prior(second[name]), strict=True):
                if not _close(x, y):
                    return f"the prior {what} of {name!r} depends on the others of them"
        elif name in rows[0]:
            scales = [as_normal(trace[name]) for trace in traces]
            if not _close(scales[0][1], scales[2][1]):  # pyright: ignore[reportOptionalSubscript]
                return f"the scale of {name!r} depends on them"
            if not _close(0.5 * (rows[0][name] + rows[2][name]), rows[1][name]):
                return f"the location of {name!r} is not affine in them"
        else:
            before, after = (jnp.sum(trace[name]["fn"].log_prob(trace[name]["value"])) for trace in (first, second))
            if not _close(before, after):
                what = "is no Normal and" if site["is_observed"] else "has a prior that"
                return f"site {name!r} {what} depends on them"
    return None


def _close(a: Any, b: Any) -> bool:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    size = 1.0 + max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0))
    return bool((np.abs(a - b) <= _TOLERANCE * size).all())
