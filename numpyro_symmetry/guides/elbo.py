"""Two-sided bounds on the evidence bound of a symmetrized guide.

Knows a model, a guide and a function that estimates the mutual information of one draw; not how that is done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import handlers
from numpyro.distributions.kl import kl_divergence
from numpyro.distributions.util import scale_and_mask

from numpyro_symmetry.guides.density import log_prob_of

_PARTICLES_AT_ONCE = 16


class ElboBounds(NamedTuple):
    """Bounds on the symmetrized ELBO, in nats; each a mean over draws of the guide, with its standard error.

    Attributes
    ----------
    lower, lower_error
        At most the symmetrized ELBO, and so at most ``log p(data)``, in expectation.
    upper, upper_error
        At least the symmetrized ELBO, in expectation. *Not* a bound on ``log p(data)``.
    base_elbo, base_elbo_error
        ELBO of the base guide on the same draws.
    mutual_information
        ``(lower, upper)`` bounds on what symmetrizing adds, at most ``log|G|``.
    log_order
        ``log|G|``.
    num_particles
        Number of draws.
    """

    lower: float
    lower_error: float
    upper: float
    upper_error: float
    base_elbo: float
    base_elbo_error: float
    mutual_information: tuple[float, float]
    log_order: float
    num_particles: int


def compile_particles(
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict,
    information: Callable[[Array, Any], Array],
    *,
    analytic: bool,
) -> Callable[[Array, dict[str, Any]], tuple[Array, Array]]:
    """Compile what fresh draws of the guide are worth.

    Parameters
    ----------
    model, guide, args, kwargs
        As for an ELBO.
    information
        ``(rng_key, guide trace) -> `` lower and upper estimate of one draw's mutual information, ``(2,)``, nats.
    analytic
        Whether no latent depends on another under the guide: closed-form KL divergences may then replace log ratios.

    Returns
    -------
    Callable
        ``(keys, params) -> `` ELBO of the base guide ``(num_particles,)`` and information ``(num_particles, 2)``;
        parameters constrained, as from ``SVI.get_params``.
    """

    def particle(key: Array, params: dict[str, Any]) -> tuple[Array, Array]:
        key_guide, key_model, key_information = jax.random.split(key, 3)
        with handlers.block():
            seeded = handlers.substitute(handlers.seed(guide, key_guide), data=params)
            guide_trace = handlers.trace(seeded).get_trace(*args, **kwargs)
            replayed = handlers.replay(handlers.seed(model, key_model), trace=guide_trace)
            model_trace = handlers.trace(handlers.substitute(replayed, data=params)).get_trace(*args, **kwargs)
        elbo = _log_weight(model_trace, guide_trace, analytic)
        return elbo, information(key_information, guide_trace)

    @jax.jit
    def particles(keys: Array, params: dict[str, Any]) -> tuple[Array, Array]:
        return jax.lax.map(partial(particle, params=params), keys, batch_size=_PARTICLES_AT_ONCE)

    return particles


def summarise(elbo: Array, information: Array, log_order: float) -> ElboBounds:
    """Means over draws, and their standard errors."""
    base_elbo, below, above = (np.asarray(x, np.float64) for x in (elbo, information[:, 0], information[:, 1]))
    (lower, lower_error), (_, upper_error), (base, base_error) = map(
        _mean_and_error, (base_elbo + below, base_elbo + above, base_elbo)
    )
    # only the mean may be cut off at log|G|: single draws scatter about it, and cutting them would bias the mean
    mutual_information = (float(below.mean()), min(float(above.mean()), log_order))
    return ElboBounds(
        lower,
        lower_error,
        base + mutual_information[1],
        upper_error,
        base,
        base_error,
        mutual_information,
        log_order,
        len(elbo),
    )


def _log_weight(model_trace: Any, guide_trace: Any, analytic: bool) -> Array:
    total = jnp.zeros(())
    done = set()
    for name, site in guide_trace.items():
        if site["type"] != "sample" or not analytic or name not in model_trace:
            continue
        try:
            divergence = kl_divergence(site["fn"], model_trace[name]["fn"])
        except NotImplementedError:
            # no closed form for this pair: the draw's own log densities below estimate it
            continue
        total -= jnp.sum(scale_and_mask(divergence, site["scale"]))
        done.add(name)
    for sign, trace in ((1.0, model_trace), (-1.0, guide_trace)):
        for name, site in trace.items():
            if site["type"] == "sample" and name not in done:
                total += sign * jnp.sum(scale_and_mask(log_prob_of(site), site["scale"]))
    return total


def _mean_and_error(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")
