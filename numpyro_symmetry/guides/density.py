"""Densities of a base guide at moved values, and which of its sites depend on which.

A guide's trace is read once per call; moved values go back into the guide as **constrained** values, because that is
where the group acts, and for some sites as unconstrained ones too, which no border rounds. Knows guides
and traces; no symmetry, no estimators, no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.util import scale_and_mask

from numpyro_symmetry.guides.kinds import entered, latents_of
from numpyro_symmetry.models import Trace, entrywise, is_latent, reach, settings_of, trace_model, without_wrappers
from numpyro_symmetry.models.unconstrained import on_simplex, on_the_way


def latent_values(trace: Trace) -> dict[str, Array]:
    """Constrained values of a guide's own latent sites, auxiliary ones left out."""
    return {
        name: site["value"]
        for name, site in trace.items()
        if is_latent(site) and not site["infer"].get("is_auxiliary", False)
    }


def trace_at(
    guide: Any,
    trace: Trace,
    values: Mapping[str, Array],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    free: Mapping[str, Array] | None = None,
) -> Trace:
    """Trace of the guide at given constrained values, its parameters and plates as in ``trace``.

    ``free``: unconstrained values of the sites for which these are known (`drawn_free`).
    """
    return trace_model(guide, args, kwargs, jax.random.key(0), settings_of(trace) | entered(guide, values, free or {}))


def log_density_by_site(
    guide: Any,
    trace: Trace,
    values: Mapping[str, Array],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    free: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Log density of the guide at given constrained values, its parameters and plates as in ``trace``.

    ``free``: unconstrained values of the sites for which these are known (`drawn_free`).
    """
    free = free or {}
    return {
        name: jnp.sum(log_prob_of(site, free.get(name)))
        for name, site in trace_at(guide, trace, values, args, kwargs, free).items()
        if site["type"] == "sample"
    }


def log_densities_at(
    guide: Any, trace: Trace, points: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Array]:
    """`log_density_by_site` at values of all sites, point after point so that the guide is compiled once, ``(n,)``."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *points)
    return jax.lax.map(lambda values: log_density_by_site(guide, trace, values, args, kwargs), stacked)


def log_prob_of(site: Any, free: Array | None = None) -> Array:
    """Log density of a site's value under its distribution, unscaled; a flow reuses what it computed when it drew.

    ``free``: the value before the bijection by which the distribution has its support, if it has one and that is known.
    """
    fn = without_wrappers(site["fn"])
    known = [[free, None]] if free is not None and isinstance(fn, dist.TransformedDistribution) else []
    intermediates = known or site["intermediates"] or on_the_way(fn, site["value"])
    value = site["value"], *([intermediates] if intermediates else [])
    support = site["fn"].support
    if not is_latent(site) or entrywise(support) is not constraints.simplex:
        return site["fn"].log_prob(*value)
    # NumPyro's check of a sum, to 1e-6, takes draws on a large simplex for such as are not: their sums are rounded
    with numpyro.validation_enabled(False):
        log_prob = site["fn"].log_prob(*value)
    return jnp.where(on_simplex(site["value"]).all(tuple(range(1 - support.event_dim, 0))), log_prob, -jnp.inf)


def scaled_log_prob_of(site: Any) -> Array:
    """Log density of a site's value, scaled and summed."""
    return jnp.sum(scale_and_mask(log_prob_of(site), site["scale"]))


def log_density_of(trace: Trace) -> Array:
    """Log density of what was drawn, all sites together, scaled."""
    return sum((scaled_log_prob_of(site) for site in trace.values() if site["type"] == "sample"), jnp.zeros(()))


def unrecovered_sites(guide: Any, trace: Trace) -> list[str]:
    """Latent sites of the guide that its values do not determine, so that it has no density in them."""
    known = set(latent_values(trace)) | set(latents_of(guide))
    return [name for name, site in trace.items() if is_latent(site) and name not in known]


def parents(guide: Any, trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, set[str]]:
    """Latent site with a distribution of its own -> the other latents on which that depends, read off the program."""
    values = latent_values(trace)
    own = own_sites(guide, trace)

    def log_densities(values: dict[str, Array]) -> dict[str, Array]:
        found = log_density_by_site(guide, trace, values, args, kwargs)
        return {name: found[name] for name in own}

    return {name: set(found) - {name} for name, found in reach.dependencies(log_densities, values).items()}


def own_sites(guide: Any, trace: Trace) -> dict[str, Array]:
    """Latent sites with distributions of their own, which are not read off another."""
    read_off = {site for sites in latents_of(guide).values() for site in sites}
    return {name: value for name, value in latent_values(trace).items() if name not in read_off}
