"""Where chains start: at the user's values, checked, or by a strategy of NumPyro's; and which models can be sampled.

Knows models; no sampler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.infer import init_to_value
from numpyro.infer.util import initialize_model

from numpyro_symmetry.models import Model, discrete_of, latent_of, observed_of
from numpyro_symmetry.models.trace import refuse_misshapen_starts
from numpyro_symmetry.models.unconstrained import unconstrain
from numpyro_symmetry.symmetry.arguments import as_real_array, refuse_masked
from numpyro_symmetry.symmetry.shown import counted


def starts_of(
    model: Model,
    sites: Mapping[str, Mapping[str, Any]],
    rng_key: Array,
    num_chains: int,
    init_strategy: Any,
    init_params: Mapping[str, Any] | None,
) -> tuple[Callable[[Any], Array], dict[str, Any]]:
    """Minus the log density, in the coordinates that chains move in; and the start of every chain."""
    function, args, kwargs = model
    latent = latent_of(sites)
    if not (init_params is None or isinstance(init_params, Mapping)):
        raise TypeError(f"init_params maps sites to starts (num_chains, ...); got {type(init_params).__name__}.")
    refuse_masked(init_params or {})
    starts = {
        site: jnp.asarray(as_real_array(value, f"Site {site!r} of init_params"))
        for site, value in (init_params or {}).items()
    }
    # every site has a value, because one with an improper prior has no draw
    values = {name: site["value"] for name, site in latent.items()}
    moved = _unconstrained(
        starts, latent, num_chains, lambda one: unconstrain(function, args, kwargs, {**values, **one})
    )
    if starts:
        # NumPyro's search starts from the first chain's values; each chain's own replace what it finds, below
        init_strategy = init_to_value(values={site: value[0] for site, value in starts.items()})
    refuse_misshapen_starts(init_strategy, latent)
    try:
        init = initialize_model(
            jax.random.split(rng_key, num_chains),
            function,
            init_strategy=init_strategy,
            model_args=args,
            model_kwargs=kwargs,
            dynamic_args=True,
        )
    except RuntimeError as error:
        if "initial" not in str(error):
            raise
        raise ValueError(f"No start of finite density was found. {_what_is_not_finite(sites)}") from error
    potential = init.potential_fn(*args, **kwargs)
    positions = {site: moved.get(site, value) for site, value in init.param_info.z.items()}
    if starts and len(bad := np.flatnonzero(~np.isfinite(jax.jit(jax.vmap(potential))(positions)))):
        raise ValueError(
            f"init_params start {len(bad)} of {counted(num_chains, 'chain')}, first chain {bad[0]}, where the log "
            f"density is not finite. {_what_is_not_finite(sites)}"
        )
    return potential, positions


def refuse_what_has_no_gradient(latent: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a model with discrete latent sites, or with no latent sites."""
    if not latent:
        raise ValueError(
            "The model has no latent sites to sample: numpyro.sample draws none. A log density of positions is sampled "
            "by BlackJAX itself; what it draws goes into rebase as it is."
        )
    if discrete := sorted(discrete_of(latent)):
        raise ValueError(
            f"Sites {discrete} are discrete, and BlackJAX follows gradients: sum them out of the model (for example "
            "MixtureSameFamily), or use NumPyro's DiscreteHMCGibbs, whose draws rebase reads as well."
        )


def _what_is_not_finite(sites: Mapping[str, Mapping[str, Any]]) -> str:
    """A sentence on observed sites that hold NaN or infinity, or on where else to look."""
    counts = {
        name: int((~np.isfinite(np.asarray(site["value"], float))).sum())
        for name, site in observed_of(sites).items()
        if np.issubdtype(np.asarray(site["value"]).dtype, np.number)
    }
    if wrong := {name: count for name, count in counts.items() if count}:
        return f"Observed values that are not finite, by site: {wrong}. Drop or mask them."
    return "Check the model at its own draws (numpyro.infer.util.log_density), or choose another init_strategy."


def _unconstrained(
    starts: Mapping[str, Array],
    latent: Mapping[str, Mapping[str, Any]],
    num_chains: int,
    unconstrain: Callable[[Mapping[str, Array]], dict[str, Array]],
) -> dict[str, Array]:
    """The user's starts, checked, in the coordinates that chains move in."""
    if unknown := sorted(set(starts) - set(latent)):
        raise ValueError(
            f"init_params names sites {unknown}; expected some of the model's latent sites {list(latent)}."
        )
    for site, value in starts.items():
        expected = (num_chains, *np.shape(latent[site]["value"]))
        if value.shape != expected:
            raise ValueError(
                f"Site {site!r} of init_params has shape {value.shape}; expected {expected}, a start for each of "
                f"{counted(num_chains, 'chain')}. Stack as many along a new first axis, or change num_chains."
            )
    moved = jax.vmap(unconstrain)(starts) if starts else {}
    for site, value in moved.items():
        if not bool(jnp.isfinite(value).all()):
            raise ValueError(
                f"Site {site!r} of init_params holds values outside its support, {latent[site]['fn'].support}. Give "
                "values as the model sees them, not unconstrained ones."
            )
    return moved
