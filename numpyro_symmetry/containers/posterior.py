"""Arrays of a NumPyro model in an ArviZ container: ``InferenceData`` before ArviZ 1, ``DataTree`` since.

Dimensions are named after plates. Knows models and ArviZ; not who made the draws.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array
from numpyro import infer

from numpyro_symmetry.models import Model, discrete_of, latent_of, observed_of, plate_dims, trace_model
from numpyro_symmetry.models.sites import WITH_DIMS
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import as_mapping, as_names, shape_of
from numpyro_symmetry.symmetry.shown import counted

Groups = Mapping[str, Mapping[str, Any]]


def posterior_container(
    model: Model,
    posterior: Mapping[str, Array],
    *,
    sample_stats: Mapping[str, Any] | None = None,
    log_likelihood: bool = True,
    dims: Mapping[str, list[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Draws of a model's posterior, whoever made them, with the model's data and the log-likelihood of each datum.

    Parameters
    ----------
    model
        The model and its arguments.
    posterior
        Site -> ``(chain, draw, ...)``.
    sample_stats
        Name -> ``(chain, draw, ...)``: the sampler's statistics of its draws.
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
    function, args, kwargs = model
    sites = trace_model(function, args, kwargs, jax.random.key(0))
    check_dims(dims, coords, sites)
    data = {name: site["value"] for name, site in observed_of(sites).items() if np.size(site["value"])}
    likelihood: Mapping[str, Array] = {}
    if log_likelihood and data:
        latent = {name: value for name, value in posterior.items() if sites.get(name, {}).get("type") == "sample"}
        _refuse_undrawn(sites, latent)
        likelihood = infer.log_likelihood(function, latent, *args, batch_ndims=2, parallel=False, **kwargs)
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
    """Groups of arrays ``(chain, draw, ...)`` as a container of the installed ArviZ.

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
        InferenceData before ArviZ 1, DataTree since.
    """
    import arviz

    arrays = {group: {name: np.asarray(value) for name, value in one.items()} for group, one in groups.items() if one}
    known = {name: list(names) for name, names in (dims or {}).items()}
    is_new = int(arviz.__version__.split(".")[0]) >= 1
    from_dict: Any = arviz.from_dict
    names = {"dims": known, "coords": dict(coords or {})}
    data = from_dict(arrays, **names) if is_new else from_dict(**arrays, **names)
    data["posterior"].attrs.update(attrs or {})
    return data


def check_dims(
    dims: Mapping[str, list[str]] | None, coords: Mapping[str, Any] | None, sites: Mapping[str, Mapping[str, Any]]
) -> None:
    """Refuse names of dimensions, and coordinates, that do not fit a model's sites, before anything is drawn.

    Raises
    ------
    TypeError
        If ``dims`` or ``coords`` is no mapping, or ``dims`` holds a bare name.
    ValueError
        If a site is unknown, has fewer dimensions than names, or a dimension has another length than its coordinates.
    """
    named = as_mapping(dims, "dims", example="{'loc': ['component']}")
    known = as_mapping(coords, "coords", example="{'component': ['a', 'b']}", by="dimension")
    shapes = {name: np.shape(site["value"]) for name, site in sites.items() if site["type"] in WITH_DIMS}
    for name, given in named.items():
        if name not in shapes:
            raise ValueError(f"dims names {name!r}; the model has sites {list(shapes)}.")
        names = as_names(given, f"dims[{name!r}]", example=f"['{name}_row']")
        if len(names) > len(shapes[name]):
            raise ValueError(
                f"dims[{name!r}] has {counted(len(names), 'name')} {list(names)}; the site has shape {shapes[name]}, "
                "chains and draws apart."
            )
    for name, dimensions in (plate_dims(sites) | named).items():
        for dimension, size in zip(dimensions, shapes[name], strict=False):
            if dimension in known and (count := shape_of(known[dimension], f"coords[{dimension!r}]")) != (size,):
                raise ValueError(
                    f"coords[{dimension!r}] has shape {count}; site {name!r} has {size} along that dimension."
                )


def _refuse_undrawn(sites: Mapping[str, Mapping[str, Any]], drawn: Collection[str]) -> None:
    """Refuse a model whose likelihood depends on sites of which there are no draws."""
    if missing := sorted(set(latent_of(sites)) - set(discrete_of(sites)) - set(drawn)):
        raise SymmetryError(
            f"The model has latent sites {missing} that were not drawn; the draws hold {sorted(drawn)} of its sites. "
            "Pass the model of these draws and its data, or log_likelihood=False."
        )
