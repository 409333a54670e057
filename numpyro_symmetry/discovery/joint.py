"""A model's log joint as a function of its constrained latent values, site by site, in float64.

Plates, parameters and keys are frozen at one trace of the model, so that two evaluations differ by their values alone.
Knows NumPyro; no symmetry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from numpyro.distributions.util import scale_and_mask
from numpyro.infer import init_to_uniform

from numpyro_symmetry.symmetry import SymmetryError

_TRIES = 20
_JITTER = 0.3


class FrozenModel(NamedTuple):
    """A model with everything but its latent values held fixed.

    Attributes
    ----------
    log_probs
        Latent values -> site -> log probability, an array per datum for observed sites. Compiled.
    draw
        ``rng_key ->`` latent values from the prior.
    supports
        Latent site -> support.
    data_sites
        Observed sites that hold data: every one but factors.
    """

    log_probs: Callable[[dict[str, Array]], dict[str, Array]]
    draw: Callable[[Array], dict[str, Array]]
    supports: dict[str, constraints.Constraint]
    data_sites: list[str]


def trace_model(
    model: Callable, args: tuple, kwargs: dict[str, Any], rng_key: Array, data: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Trace of a model out of reach of surrounding handlers; sites with an improper prior get a value all the same."""
    with handlers.block(), handlers.trace() as trace, handlers.substitute(substitute_fn=_start_improper):
        with handlers.seed(rng_seed=rng_key), handlers.substitute(data=data or {}):
            model(*args, **kwargs)
    return dict(trace)


def _start_improper(site: Any) -> Array | None:
    if site["type"] != "sample" or site["value"] is not None:
        return None
    fn = site["fn"]
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    return init_to_uniform(site) if isinstance(fn, dist.ImproperUniform) else None


def freeze(model: Callable, args: tuple, kwargs: dict[str, Any], rng_key: Array) -> FrozenModel:
    """Trace a model once and hold its plates, parameters and keys.

    Raises
    ------
    SymmetryError
        If the model has discrete latent sites, whose allocations would have to be relabelled as values.
    """
    trace = trace_model(model, args, kwargs, rng_key)
    settings = {name: site["value"] for name, site in trace.items() if site["type"] in ("param", "mutable", "plate")}
    latent = {name: s for name, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    if discrete := [name for name, site in latent.items() if site["fn"].support.is_discrete]:
        raise SymmetryError(
            f"The model draws discrete latent sites {discrete}, whose values are themselves labels. Sum them out "
            "(dist.MixtureSameFamily for mixtures, a forward algorithm for HMMs)."
        )

    def run(values: dict[str, Array], key: Array) -> dict[str, Any]:
        return trace_model(model, args, kwargs, key, settings | values)

    @jax.jit
    def log_probs(values: dict[str, Array]) -> dict[str, Array]:
        return {
            name: scale_and_mask(site["fn"].log_prob(site["value"]), site["scale"])
            for name, site in run(values, rng_key).items()
            if site["type"] == "sample"
        }

    return FrozenModel(
        log_probs,
        lambda key: {name: site["value"] for name, site in run({}, key).items() if name in latent},
        {name: site["fn"].support for name, site in latent.items()},
        [
            name
            for name, site in trace.items()
            if site["type"] == "sample" and site["is_observed"] and not isinstance(site["fn"], dist.Unit)
        ],
    )


def points(model: FrozenModel, rng_key: Array, count: int) -> list[dict[str, Array]]:
    """Latent values at which the log joint is finite: prior draws, every other one perturbed off the prior.

    Raises
    ------
    SymmetryError
        If the log joint is not finite at any of a bounded number of tries.
    """
    found: list[dict[str, Array]] = []
    for attempt, key in enumerate(jax.random.split(rng_key, count * _TRIES)):
        key_draw, key_noise = jax.random.split(key)
        values = {name: jnp.asarray(value, float) for name, value in model.draw(key_draw).items()}
        if attempt % 2:
            values = {name: _perturb(value, model.supports[name], key_noise) for name, value in values.items()}
        if all(np.isfinite(np.asarray(x)).all() for x in model.log_probs(values).values()):
            found.append(values)
        if len(found) == count:
            return found
    bad = [name for name, x in model.log_probs(values).items() if not np.isfinite(np.asarray(x)).all()]
    raise SymmetryError(
        f"The log joint is not finite at prior draws (site {bad[0]!r}): look for NaN in the data, or an improper prior "
        "whose draws the likelihood rejects."
    )


def _perturb(value: Array, support: Any, key: Array) -> Array:
    try:
        transform = biject_to(support)
        unconstrained = transform.inv(value)
    except NotImplementedError:
        return value
    return transform(unconstrained + _JITTER * jax.random.normal(key, jnp.shape(unconstrained)))
