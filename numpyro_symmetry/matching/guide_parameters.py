"""What a Gaussian autoguide's parameters say: means and standard deviations by site, and back.

Reads NumPyro's autoguides, and loads NumPyro: so it is itself loaded only when there is a guide to read, since whoever
has a guide has loaded NumPyro. Knows no Gaussians of ours, no costs and no algorithms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to
from numpyro.distributions.transforms import IdentityTransform
from numpyro.infer import autoguide as auto

from numpyro_symmetry.models import entrywise, latent_of
from numpyro_symmetry.models.compat import flat_sites, unpacking
from numpyro_symmetry.models.unconstrained import inverse
from numpyro_symmetry.symmetry import UnsupportedGuideError
from numpyro_symmetry.symmetry.arguments import as_real_array

Arrays = dict[str, Any]


def diagonal_of(guide: Any, params: Mapping[str, Any]) -> tuple[Arrays, Arrays]:
    """Means and standard deviations by site of a mean-field guide, in its unconstrained coordinates."""
    loc: Arrays = {}
    scale: Arrays = {}
    for part in parts_set_up(guide):
        _refuse_coupled_supports(part)
        if _is_flat(part):
            for what, by_site in (("loc", loc), ("scale", scale)):
                by_site |= unpacking(part)(_parameter(part, params, f"{part.prefix}_{what}", (part.latent_dim,)))
            continue
        for site in latent_sites(part):
            shape = _full_shape(part, site)
            loc[site] = _parameter(part, params, f"{site}_{part.prefix}_loc", shape)
            if isinstance(part, auto.AutoDelta):
                loc[site] = inverse(unconstraining(part, site), loc[site])
                scale[site] = jnp.zeros_like(loc[site])
            else:
                scale[site] = _parameter(part, params, f"{site}_{part.prefix}_scale", shape)
    return loc, scale


def mean_field_parameters(guide: Any, loc: Mapping[str, Any], scale: Mapping[str, Any]) -> dict[str, Array]:
    """Parameters that make a mean-field guide the Gaussian of these means and standard deviations."""
    params: dict[str, Array] = {}
    for part in parts_set_up(guide):
        flat = _is_flat(part)
        sites = flat_sites(part) if flat else latent_sites(part)
        if missing := sorted(set(sites) - set(loc)):
            raise UnsupportedGuideError(
                f"The guide has sites {missing}, which are not among those of the Gaussian, {sorted(loc)}."
            )
        if flat:
            for what, by_site in (("loc", loc), ("scale", scale)):
                params[f"{part.prefix}_{what}"] = jnp.concatenate([jnp.ravel(jnp.asarray(by_site[s])) for s in sites])
            continue
        for site in sites:
            value = jnp.asarray(loc[site])
            if not isinstance(part, auto.AutoDelta):
                params[f"{site}_{part.prefix}_scale"] = jnp.asarray(scale[site])
            elif np.any(np.asarray(scale[site])):
                raise UnsupportedGuideError(
                    f"Site {site!r} has standard deviations, which AutoDelta has no room for; use AutoNormal."
                )
            else:
                value = unconstraining(part, site)(value)
            params[f"{site}_{part.prefix}_loc"] = value
    return params


def joint_of(guide: Any, params: Mapping[str, Any]) -> tuple[Arrays, Array]:
    """Means by site, in the order of the flat latent, and the covariance of a guide that has one."""
    part, *others = parts_set_up(guide)
    if others or not has_covariance(part, params):
        raise UnsupportedGuideError(
            f"{type(part).__name__} has no joint covariance; use DiagonalGaussian.from_guide, and check the names of "
            f"its parameters {sorted(params)}."
        )
    _refuse_coupled_supports(part)
    _parameter(part, params, f"{part.prefix}_loc", (part.latent_dim,))
    posterior = part.get_posterior(params)
    loc = unpacking(part)(posterior.mean)
    return {site: loc[site] for site in flat_sites(part)}, posterior.covariance_matrix


def has_covariance(guide: Any, params: Mapping[str, Any]) -> bool:
    """Whether a guide has correlations, with these parameters."""
    guide = _unsymmetrized(guide)
    names = (f"{getattr(guide, 'prefix', None)}_{name}" for name in ("scale_tril", "cov_factor"))
    # a point while it trains, and a Gaussian when it is asked for its posterior
    is_laplace = isinstance(guide, auto.AutoLaplaceApproximation)
    return is_laplace or any(name in params for name in names)


def parts_set_up(guide: Any) -> Iterator[Any]:
    """The guide itself, or the parts of an `AutoGuideList`, recursively; all of them have to be set up."""
    guide = _unsymmetrized(guide)
    if hasattr(guide, "base") and hasattr(guide, "source"):  # a conditional guide, whose source is known once set up
        follow = f": {list(guide.source.sites)} follow its other sites" if guide.source else ""
        raise UnsupportedGuideError(
            f"{type(guide).__name__} is no Gaussian{follow}. Fit one to its draws: "
            "DiagonalGaussian.fit(guide.sample_posterior(rng_key, params, *model_args, sample_shape=(1000,)))."
        )
    if not isinstance(guide, auto.AutoGuide):
        what = f"the class {guide.__name__}" if isinstance(guide, type) else type(guide).__name__
        raise UnsupportedGuideError(
            f"{what} is not an autoguide: fit a Gaussian to its draws, DiagonalGaussian.fit(draws)."
        )
    if isinstance(guide, auto.AutoGuideList):
        for part in guide:
            yield from parts_set_up(part)
    else:
        if getattr(guide, "prototype_trace", None) is None:
            raise UnsupportedGuideError(
                "The guide has not been set up: run SVI.init, or handlers.seed(guide, 0)(*model_args), once."
            )
        yield guide


def _unsymmetrized(guide: Any) -> Any:
    """The base of a symmetrized guide; any other guide as it is, even if it has a base, which may be a part of it."""
    return guide.base if hasattr(guide, "base") and hasattr(guide, "symmetry") else guide


def latent_sites(part: Any) -> list[str]:
    """Latent sites of one guide."""
    return list(latent_of(part.prototype_trace))


def unconstraining(part: Any, site: str) -> Any:
    """The bijection from unconstrained to constrained values."""
    return biject_to(part.prototype_trace[site]["fn"].support)


def constrained_sites(guide: Any) -> dict[str, Any]:
    """Site -> support, of a guide's sites whose coordinates are not their values: support not all of the real line."""
    supports = {site: _support(part, site) for part in parts_set_up(guide) for site in latent_sites(part)}
    return {site: one for site, one in supports.items() if not isinstance(biject_to(one), IdentityTransform)}


def _support(part: Any, site: str) -> Any:
    return entrywise(part.prototype_trace[site]["fn"].support)


def _is_flat(part: Any) -> bool:
    """Whether a mean-field guide keeps all of its sites in one vector.

    Raises
    ------
    UnsupportedGuideError
        If the guide is not mean-field.
    """
    if isinstance(part, auto.AutoDiagonalNormal):
        return True
    if not isinstance(part, auto.AutoNormal | auto.AutoDelta):
        correlated = auto.AutoMultivariateNormal, auto.AutoLowRankMultivariateNormal, auto.AutoLaplaceApproximation
        read = "FullGaussian.from_guide(guide, params).diagonal(), which leaves its correlations out"
        raise UnsupportedGuideError(
            f"{type(part).__name__} is not mean-field. Use AutoNormal, AutoDiagonalNormal or AutoDelta, or "
            f"{read if isinstance(part, correlated) else 'DiagonalGaussian.fit(draws)'}."
        )
    return False


def _parameter(part: Any, params: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Array:
    if name not in params:
        raise UnsupportedGuideError(
            f"{type(part).__name__} has a parameter {name!r}, which is not among {sorted(params)}. Pass what "
            "SVI.get_params or SVI.run(...).params returned for this guide."
        )
    value = jnp.asarray(as_real_array(params[name], f"Parameter {name!r}"))
    if value.shape != shape:
        raise UnsupportedGuideError(f"Parameter {name!r} has shape {value.shape}; the guide has {shape}.")
    return value


def _full_shape(part: Any, site: str) -> tuple[int, ...]:
    """Shape of a site in all of its plates, minibatches or not."""
    drawn = part.prototype_trace[site]
    shape = list(np.shape(drawn["value"]))
    for frame in drawn["cond_indep_stack"]:
        shape[len(shape) - drawn["fn"].event_dim + frame.dim] = part.prototype_trace[frame.name]["args"][0]
    return tuple(shape)


def _refuse_coupled_supports(part: Any) -> None:
    for site in latent_sites(part):
        if (support := _support(part, site)).event_dim:
            raise UnsupportedGuideError(
                f"Site {site!r} has support {support}, whose unconstrained coordinates do not move as its values do. "
                "Match draws instead, or a Gaussian fitted to draws of the constrained values."
            )
