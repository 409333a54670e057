"""A model's log joint as a function of its constrained latent values, site by site, in float64.

Plates, parameters and keys are frozen at one trace of the model, so that two evaluations differ by their values alone.
Knows NumPyro; no symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.distributions.util import scale_and_mask
from numpyro.infer import init_to_uniform

from numpyro_symmetry.symmetry import SymmetryError

_TRIES = 20
_JITTER = 0.3
_NUM_EDGES, _FAR = 8, 30.0


class FrozenModel(NamedTuple):
    """A model with everything but its latent values held fixed.

    Attributes
    ----------
    log_probs
        Latent values -> site -> scaled log probability, an array per datum for observed sites. Compiled.
    inside
        Latent values -> latent site -> whether the value lies in its support, given the others. Compiled.
    draw
        ``(rng_key, jitter) ->`` latent values from the prior, moved by ``jitter`` in unconstrained space. Compiled.
    data_sites
        Observed sites that hold data: every one but factors.
    exact
        Whether the arithmetic is float64 throughout.
    """

    log_probs: Callable[[dict[str, Array]], dict[str, Array]]
    inside: Callable[[dict[str, Array]], dict[str, Array]]
    draw: Callable[[Array, ArrayLike], dict[str, Array]]
    data_sites: list[str]
    exact: bool


def trace_model(
    model: Callable, args: tuple, kwargs: dict[str, Any], rng_key: Array, data: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Trace of a model out of reach of surrounding handlers; sites with an improper prior get a value all the same."""
    with handlers.block(), handlers.trace() as trace, handlers.substitute(substitute_fn=_start_improper):
        with handlers.seed(rng_seed=rng_key), handlers.substitute(data=data or {}):
            model(*args, **kwargs)
    return dict(trace)


def _start_improper(site: Any) -> Any:
    if site["type"] != "sample" or site["value"] is not None:
        return None
    fn = site["fn"]
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    return init_to_uniform(site) if isinstance(fn, dist.ImproperUniform) else None


def freeze(
    model: Callable, args: tuple, kwargs: dict[str, Any], rng_key: Array, acted_on: Container[str] = ()
) -> FrozenModel:
    """Trace a model once and hold its plates, parameters and keys.

    Raises
    ------
    SymmetryError
        If the model has discrete latent sites the symmetry does not act on: their values may themselves be labels.
    """
    trace = trace_model(model, args, kwargs, rng_key)
    settings = {name: site["value"] for name, site in trace.items() if site["type"] in ("param", "mutable", "plate")}
    latent = {name: s for name, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    if discrete := [name for name, s in latent.items() if s["fn"].support.is_discrete and name not in acted_on]:
        raise SymmetryError(
            f"The model draws discrete latent sites {discrete}, whose values are themselves labels. Sum them out "
            "(dist.MixtureSameFamily for mixtures, a forward algorithm for HMMs)."
        )

    @jax.jit
    def draw(key: Array, jitter: ArrayLike) -> dict[str, Array]:
        # the seed stands inside, so that whatever draws a value finds a key at its site
        with handlers.block(), handlers.trace() as drawn, handlers.substitute(data=settings):
            with handlers.substitute(substitute_fn=_draw(jitter)), handlers.seed(rng_seed=key):
                model(*args, **kwargs)
        return {name: jnp.asarray(drawn[name]["value"]) for name in latent}

    def run(values: dict[str, Array]) -> dict[str, Any]:
        return trace_model(model, args, kwargs, rng_key, settings | values)

    @jax.jit
    def log_probs(values: dict[str, Array]) -> dict[str, Array]:
        return {
            name: scale_and_mask(site["fn"].log_prob(site["value"]), site["scale"])
            for name, site in run(values).items()
            if site["type"] == "sample"
        }

    @jax.jit
    def inside(values: dict[str, Array]) -> dict[str, Array]:
        result = run(values)
        return {name: jnp.all(result[name]["fn"].support(values[name])) for name in latent}

    traced = log_probs.trace({name: jnp.asarray(site["value"]) for name, site in latent.items()})
    data_sites = [
        name
        for name, site in trace.items()
        if site["type"] == "sample" and site["is_observed"] and not isinstance(site["fn"], dist.Unit)
    ]
    exact = bool(jax.config.jax_enable_x64) and not _rounds(traced.jaxpr)  # pyright: ignore
    return FrozenModel(log_probs, inside, draw, data_sites, exact)


def points(model: FrozenModel, rng_key: Array, count: int) -> list[dict[str, Array]]:
    """Latent values at which the log joint is finite: prior draws, every other one perturbed off the prior.

    Raises
    ------
    SymmetryError
        If the log joint is not finite at any of a bounded number of tries.
    """
    found: list[dict[str, Array]] = []
    bad: list[str] = []
    for attempt in range(count * _TRIES):
        values = model.draw(jax.random.fold_in(rng_key, attempt), _JITTER * (attempt % 2))
        bad = [name for name, x in model.log_probs(values).items() if not np.isfinite(np.asarray(x)).all()]
        if not bad:
            found.append(values)
        if len(found) == count:
            return found
    raise SymmetryError(
        f"The log joint is not finite at prior draws (site {bad[0]!r}): look for NaN in the data, or an improper prior "
        "whose draws the likelihood rejects."
    )


def edges(model: FrozenModel, rng_key: Array) -> list[dict[str, Array]]:
    """Latent values near the edges of their supports; the log joint need not be finite there."""
    return [model.draw(key, _FAR) for key in jax.random.split(rng_key, _NUM_EDGES)]


def _draw(jitter: ArrayLike) -> Callable[[dict[str, Any]], Any]:
    """Draw a site inside the model's run, so that a support that depends on other sites sees their moved values."""

    def one(site: dict[str, Any]) -> Any:
        if site["type"] != "sample" or site["is_observed"] or site["value"] is not None:
            return None
        key, key_noise = jax.random.split(site["kwargs"]["rng_key"])
        drawn = site | {"kwargs": site["kwargs"] | {"rng_key": key}}
        try:
            value = site["fn"](rng_key=key, sample_shape=site["kwargs"].get("sample_shape", ()))
        except NotImplementedError:  # improper priors cannot be drawn from
            value = init_to_uniform(drawn)
        if site["fn"].support.is_discrete:
            return value
        try:
            transform = biject_to(site["fn"].support)
            unconstrained = transform.inv(value)
        except NotImplementedError:
            return value
        moved = transform(unconstrained + jitter * jax.random.normal(key_noise, jnp.shape(unconstrained)))
        return jnp.where(jitter == 0.0, value, moved)  # pyright: ignore[reportArgumentType]

    return one


def _rounds(jaxpr: Any) -> bool:
    """Whether a program casts float64 to less anywhere: then its last digits are noise."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "convert_element_type":
            old, new = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
            if old == np.float64 and jnp.issubdtype(new, jnp.floating) and new != np.float64:
                return True
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else (parameter,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns") and _rounds(inner):
                    return True
    return False
