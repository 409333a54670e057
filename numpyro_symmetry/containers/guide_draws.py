"""A fitted guide as an ArviZ container, to be compared with other posteriors of the same data.

Knows guides by NumPyro's interface and containers; nothing of symmetry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.infer.autoguide import AutoGuide

from numpyro_symmetry.containers.posterior import check_dims, posterior_container
from numpyro_symmetry.models import Model, refuse_misfit, refuse_wrong_parameters, trace_model
from numpyro_symmetry.models.fitted import draws_of
from numpyro_symmetry.steps import say, saying
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import (
    as_count,
    as_flag,
    as_key,
    as_model_arguments,
    refuse_masked_arguments,
    refuse_tracers,
)
from numpyro_symmetry.symmetry.shown import counted


def to_arviz(
    rng_key: Array,
    guide: Any,
    params: Mapping[str, Any],
    model_args: tuple[Any, ...] = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    num_draws: int = 1000,
    model: Any = None,
    log_likelihood: bool = True,
    dims: Mapping[str, list[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    progress_bar: bool = True,
) -> Any:
    """Draw from a guide into an ArviZ container of one chain.

    Parameters
    ----------
    rng_key
        JAX random key.
    guide, params
        A NumPyro autoguide, symmetrized or not, and its parameters as from ``SVI.get_params``.
    model_args, model_kwargs
        The model's arguments.
    num_draws
        How many independent draws.
    model
        The model, if the guide does not know it.
    log_likelihood
        Whether to keep the log-likelihood of every datum in every draw, for ``az.loo`` and ``az.compare``.
    dims, coords
        Names and coordinates of dimensions, beside those of plates.
    progress_bar
        Whether to show a bar, after two seconds.

    Returns
    -------
    InferenceData or DataTree
        ``posterior``, ``log_likelihood``, ``observed_data``.

    Raises
    ------
    SymmetryError
        If a parameter is missing, of another shape, not finite or outside of its constraint.
    TypeError, ValueError
        If an argument is of the wrong type or out of range, or something is traced.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, optax
    >>> from numpyro.infer import SVI, Trace_ELBO
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> from numpyro_symmetry import to_arviz
    >>> def model(y):
    ...     loc = numpyro.sample("loc", dist.Normal(0.0, 10.0))
    ...     numpyro.sample("y", dist.Normal(loc, 1.0).expand(y.shape).to_event(1), obs=y)
    >>> guide = AutoNormal(model)
    >>> svi = SVI(model, guide, optax.adam(0.1), Trace_ELBO())
    >>> result = svi.run(jax.random.key(0), 100, jnp.ones(20), progress_bar=False)
    >>> data = to_arviz(jax.random.key(1), guide, result.params, (jnp.ones(20),), num_draws=50)
    >>> data["posterior"]["loc"].shape
    (1, 50)
    """
    rng_key, num_draws = as_key(rng_key), as_count(num_draws, "num_draws")
    log_likelihood = as_flag(log_likelihood, "log_likelihood")
    model_args, kwargs = as_model_arguments(model_args, model_kwargs)
    refuse_masked_arguments(model_args, kwargs)
    refuse_tracers("to_arviz", rng_key=rng_key, params=params, model_args=model_args, model_kwargs=kwargs)
    refuse_no_guide(guide)
    of = Model(guide.model if model is None else model, model_args, kwargs)
    with saying("drawing from the guide", as_flag(progress_bar, "progress_bar")):
        say("reading the model")
        check_dims(dims, coords, trace_model(*of, jax.random.key(0)))
        say(f"{counted(num_draws, 'draw')}, the program for which is compiled first")
        draws = draws_of_guide(rng_key, guide, params, model_args, kwargs, num_draws)
        say("the log-likelihood of every datum" if log_likelihood else "packing")
        return posterior_container(
            of,
            {site: jnp.asarray(value)[None] for site, value in draws.items()},
            log_likelihood=log_likelihood,
            dims=dims,
            coords=coords,
            attrs={"inference_library": "numpyro", "guide": type(guide).__name__},
        )


def refuse_no_guide(guide: Any) -> None:
    """Refuse a guide from which no draws can be taken.

    Raises
    ------
    TypeError
        If it is no autoguide.
    """
    if not isinstance(guide, AutoGuide):
        raise TypeError(
            f"guide must be a NumPyro autoguide, or a guide by hand as AutoSymmetrized(guide, symmetry, model=model), "
            f"which draws from it; got {getattr(guide, '__name__', type(guide).__name__)}."
        )


def draws_of_guide(
    rng_key: Array, guide: Any, params: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], num_draws: int
) -> dict[str, Array]:
    """Independent draws ``(num_draws, ...)`` of a guide by site, after its parameters are checked.

    Raises
    ------
    TypeError
        If the guide is no autoguide, or its parameters no mapping.
    SymmetryError
        If a parameter is missing, of another shape, not finite or outside of its constraint.
    """
    refuse_no_guide(guide)
    try:
        # a guide that has not been set up is set up by this run of it
        trace = trace_model(guide, args, dict(kwargs), rng_key)
    except TypeError:
        refuse_misfit(guide.model, args, kwargs)
        raise
    except (RuntimeError, ValueError) as error:
        if args or kwargs or getattr(guide, "prototype_trace", None) is not None:
            raise
        raise SymmetryError(
            f"{type(guide).__name__} is not set up, and cannot be without the model's arguments: pass those of its "
            f"training, model_args=(x, y). It said: {error}"
        ) from error
    refuse_wrong_parameters(trace, None, params, model_too=False)
    return draws_of(guide, rng_key, params, args, kwargs, (num_draws,))
