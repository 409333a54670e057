"""Arrays of a NumPyro model in an ArviZ container: ``InferenceData`` before ArviZ 1, ``DataTree`` since.

Dimensions are named after plates. Knows models and ArviZ; no samplers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array
from numpyro import infer

from numpyro_symmetry.discovery import trace_model

Groups = Mapping[str, Mapping[str, Any]]


def posterior_container(
    model: Callable[..., Any],
    model_args: tuple[Any, ...],
    model_kwargs: Mapping[str, Any],
    posterior: Mapping[str, Array],
    *,
    sample_stats: Mapping[str, Any] | None = None,
    log_likelihood: bool = True,
    dims: Mapping[str, list[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Draws of a model's posterior, whoever made them, beside the model's data and how likely they make each datum.

    Parameters
    ----------
    model, model_args, model_kwargs
        The model and its arguments.
    posterior
        Site -> ``(chain, draw, ...)``.
    sample_stats
        What a sampler has to say of its draws, ``(chain, draw, ...)``.
    log_likelihood
        Whether to keep the log-likelihood of every datum in every draw.
    dims, coords
        Names and coordinates of dimensions, beside those of plates.
    attrs
        Attributes of the posterior group.

    Returns
    -------
    InferenceData or DataTree
        ``posterior``, ``sample_stats``, ``log_likelihood``, ``observed_data``; groups without variables are left out.
    """
    sites = trace_model(model, model_args, dict(model_kwargs), jax.random.key(0))
    data = _observed(sites)
    likelihood: Mapping[str, Array] = {}
    if log_likelihood and data:
        latent = {name: value for name, value in posterior.items() if sites.get(name, {}).get("type") == "sample"}
        likelihood = infer.log_likelihood(model, latent, *model_args, batch_ndims=2, parallel=False, **model_kwargs)
    groups = {
        "posterior": posterior,
        "sample_stats": sample_stats or {},
        "log_likelihood": likelihood,
        "observed_data": data,
    }
    return to_container(groups, dims=plate_dims(sites) | dict(dims or {}), coords=coords, attrs=attrs)


def to_container(
    groups: Groups,
    *,
    dims: Mapping[str, list[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Groups of arrays ``(chain, draw, ...)`` as the container of the ArviZ that is installed.

    Parameters
    ----------
    groups
        Group -> variable -> array. Observed data and constants have no leading dimensions.
    dims, coords
        Names of the dimensions after chain and draw, and their coordinates.
    attrs
        Attributes of the posterior group.

    Returns
    -------
    InferenceData or DataTree
        The former before ArviZ 1.
    """
    import arviz

    arrays = {group: {name: np.asarray(value) for name, value in one.items()} for group, one in groups.items() if one}
    known = {name: list(names) for name, names in (dims or {}).items()}
    if int(arviz.__version__.split(".")[0]) >= 1:
        data = arviz.from_dict(arrays, dims=known, coords=dict(coords or {}))
        data["posterior"].attrs.update(attrs or {})
        return data
    data = arviz.from_dict(**arrays, dims=known, coords=dict(coords or {}))  # pyright: ignore[reportArgumentType]
    data.posterior.attrs.update(attrs or {})  # pyright: ignore[reportAttributeAccessIssue]
    return data


def plate_dims(sites: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Site -> names of its dimensions: plates, and what ``infer={"event_dims": ...}`` says of a site's own."""
    found = {}
    for name, site in sites.items():
        if site["type"] not in ("sample", "deterministic"):
            continue
        ndim = np.ndim(site["value"])
        event = 0 if site["type"] == "deterministic" else site["fn"].event_dim
        names = [f"{name}_dim_{k}" for k in range(ndim)]
        frames = site.get("cond_indep_stack") or []
        for frame in frames:
            if ndim - event + frame.dim >= 0:
                names[ndim - event + frame.dim] = frame.name
        given = (site.get("infer") or {}).get("event_dims") or []
        names[ndim - len(given) :] = list(given)
        if frames or given:
            found[name] = names
    return found


def _observed(sites: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Observed values by site."""
    return {
        name: site["value"]
        for name, site in sites.items()
        if site["type"] == "sample" and site["is_observed"] and np.size(site["value"])
    }
