"""Values for latent sites about the centre of their priors, drawn while a model runs. Knows distributions; no symmetry.

Noise is given: to compile a random generator for every site takes longer than all the rest of a check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro import distributions as dist
from numpyro.distributions.transforms import biject_to

from numpyro_symmetry.models.sites import drawn_shape, is_latent, is_unconstrained, layers
from numpyro_symmetry.models.unconstrained import inverse


def substitute_points(noise: Mapping[str, Array]) -> Callable[[dict[str, Any]], Any]:
    """Values for sites inside a model's run, so that a support that depends on other sites sees their values."""

    def value_of(site: dict[str, Any]) -> Any:
        if not is_latent(site) or site["value"] is not None:
            return None
        fn, key = site["fn"], site["kwargs"]["rng_key"]
        if fn.support.is_discrete:
            return fn(rng_key=key, sample_shape=site["kwargs"].get("sample_shape", ()))
        shape = drawn_shape(site)
        given = noise.get(site["name"])
        if given is None or given.size != math.prod(shape):
            # a site inside a loop stands for all of its steps, which must not be alike
            given = jax.random.normal(key, (math.prod(shape),))
        return _place(fn, given, shape)

    return value_of


def _place(fn: Any, noise: Array, shape: tuple[int, ...]) -> Array:
    """A value of a distribution's shape and support: its mean, moved by noise at its own scale where that is known."""
    *_, fn = layers(fn)
    if isinstance(fn, dist.TransformedDistribution):
        base = fn.base_dist
        value = _place(base, noise, shape[: len(shape) - fn.event_dim] + tuple(base.event_shape))
        for transform in fn.transforms:
            value = transform(value)
        return jnp.asarray(value)
    try:
        transform = biject_to(fn.support)
        inner = transform.inverse_shape(shape)
    except NotImplementedError:  # no way to it from the real line, as to a sphere
        return fn.expand(shape[: len(shape) - fn.event_dim]).sample(jax.random.key(0))
    moved = jnp.resize(noise, inner)
    try:
        mean, spread = jnp.broadcast_to(fn.mean, shape), jnp.sqrt(jnp.broadcast_to(fn.variance, shape))
    except (NotImplementedError, AttributeError, ValueError, ArithmeticError):  # no closed form, or none at all
        return jnp.asarray(transform(moved))
    # heavy tails have a scale where they have no moments
    scale = jnp.broadcast_to(getattr(fn, "scale", 1.0), shape)
    if is_unconstrained(fn.support):
        centre = jnp.where(jnp.isfinite(mean), mean, jnp.broadcast_to(getattr(fn, "loc", 0.0), shape))
        return jnp.asarray(centre + jnp.where(jnp.isfinite(spread), spread, scale) * moved)
    # a mean on the edge, or none: about the middle of the support instead
    centre = inverse(transform, jnp.where(jnp.isfinite(mean), mean, scale))
    return jnp.asarray(transform(jnp.where(jnp.isfinite(centre), centre, 0.0) + moved))
