"""The density that the posterior is compared with: a symmetrized Gaussian in one basin, or a guide as it was fitted.

Knows containers, rebasing and symmetrized guides; not what the density is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoLaplaceApproximation, AutoMultivariateNormal
from numpyro.infer.util import unconstrain_fn

from numpyro_symmetry.discovery import find_symmetry, refuse_no_sites, trace_model, without_parameters
from numpyro_symmetry.guides import AutoSymmetrized
from numpyro_symmetry.guides.density import latent_values
from numpyro_symmetry.symmetry import Symmetry, SymmetryError
from numpyro_symmetry.traces import Rebased, rebase
from numpyro_symmetry.traces.containers import Trace, read
from numpyro_symmetry.traces.coordinates import Arrays
from numpyro_symmetry.traces.inputs import refuse_bad_draws

_FEWEST = 4
# a covariance matrix wants draws
_DRAWS_PER_NUMBER = 10
_NO_WIDTH = 1e-10


class Proposal(NamedTuple):
    """A symmetrized guide, its parameters, and draws of the posterior that it was not fitted to, if there are any."""

    guide: AutoSymmetrized
    params: Mapping[str, Any]
    sites: list[str]
    rest: Trace | None = None


# ---- the Gaussian ------------------------------------------------------------------------------------------------


def proposal_of_guide(
    guide: Any,
    params: Mapping[str, Any],
    model: Callable[..., Any] | None,
    symmetry: Symmetry | None,
    rng_key: Array,
    args: tuple,
    kwargs: dict[str, Any],
) -> Proposal:
    """A guide as it was fitted, symmetrized; Laplace's approximation as the Gaussian that it stands for."""
    model = model if model is not None else getattr(guide, "model", None)
    if model is None:
        raise ValueError(f"{type(guide).__name__} does not know its model: pass model=.")
    sites = list(_latents(model, args, kwargs, rng_key))
    if isinstance(guide, AutoLaplaceApproximation):
        gaussian: Any = guide.get_posterior(dict(params))
        _refuse_no_volume(np.diagonal(gaussian.scale_tril), "Laplace's approximation, at its mode,")
        names = f"{guide.prefix}_loc", f"{guide.prefix}_scale_tril"
        params = {**params, names[0]: gaussian.loc, names[1]: gaussian.scale_tril}
        guide = AutoMultivariateNormal(model, prefix=guide.prefix)
    if not isinstance(guide, AutoSymmetrized):
        guide = _symmetrized(guide, model, symmetry, args, kwargs)
    elif symmetry is not None or model is not guide.model:
        raise ValueError("An AutoSymmetrized has its own symmetry and model: leave symmetry= and model= out.")
    if guide.layout is None:
        guide.setup(rng_key, *args, **kwargs)
    _refuse_other_sites(guide, params, sites, rng_key, args, kwargs)
    return Proposal(guide, params, sites)


def proposal_of_draws(
    data: Any,
    model: Callable[..., Any],
    symmetry: Symmetry | None,
    rng_key: Array,
    args: tuple,
    kwargs: dict[str, Any],
    *,
    halve: bool,
) -> Proposal:
    """A Gaussian fitted to draws under one set of labels, symmetrized; and draws that it was not fitted to."""
    latents = _latents(model, args, kwargs, rng_key)
    sites, size = list(latents), sum(map(_unconstrained_size, latents.values()))
    trace = _read(data, latents)
    half = trace.leading[1] // 2 if halve else trace.leading[1]
    is_full = half * trace.leading[0] >= _DRAWS_PER_NUMBER * size
    # discrete sites are summed out of the joint, and are none of the Gaussian's
    model_trace = trace_model(model, args, kwargs, rng_key)
    discrete = [name for name, site in model_trace.items() if _is_latent(site) and name not in sites]
    continuous = handlers.block(handlers.seed(model, rng_key), hide=discrete) if discrete else model
    base = (AutoMultivariateNormal if is_full else AutoDiagonalNormal)(continuous)
    guide = _symmetrized(base, model, symmetry, args, kwargs).setup(rng_key, *args, **kwargs)

    first, rest = _part(trace, slice(None, half)), _part(trace, slice(half, None))
    first, rest = _rebased(first, rest if halve else None, guide.symmetry, rng_key)

    def unconstrain(draw: dict[str, Array]) -> dict[str, Array]:
        return unconstrain_fn(handlers.seed(model, rng_key), args, kwargs, draw)

    by_site = jax.jit(jax.vmap(unconstrain))(first.flat(sites))
    flat = np.concatenate([np.reshape(by_site[site], (first.num_draws, -1)) for site in base._init_locs], 1)
    _refuse_outside(first, by_site, latents)
    return Proposal(guide, _gaussian(flat.astype(np.float64), is_full), sites, rest)


def _symmetrized(
    base: Any, model: Callable[..., Any], symmetry: Symmetry | None, args: tuple, kwargs: dict[str, Any]
) -> AutoSymmetrized:
    """With the symmetry that is given, held against the model, or that which is found there, even if there is none."""
    if symmetry is not None:
        return AutoSymmetrized(base, symmetry, model=model)
    return AutoSymmetrized(base, without_parameters(find_symmetry(model, args, kwargs)), model=model, check=False)


def _rebased(first: Trace, rest: Trace | None, symmetry: Symmetry | None, rng_key: Array) -> tuple[Trace, Trace | None]:
    """Both parts of the draws under the labels that are found in the first: the second must not shape the Gaussian.

    Weights are blind to labels, but far from the Gaussian they are small differences of large numbers in float32: the
    second part is relabelled to lie near it.
    """
    if symmetry is None or not symmetry.groups:
        return first, rest

    def relabelled(part: Trace, reference: Any) -> tuple[Trace, Rebased]:
        acted_on = {site: part.values[site] for site in symmetry.axes}
        out = rebase(acted_on, symmetry, reference=reference, rng_key=rng_key, null=False, num_leading_dims=2)
        return part._replace(values={**part.values, **out.data}), out

    first, reference = relabelled(first, "mean")
    return first, None if rest is None else relabelled(rest, reference)[0]


def _gaussian(flat: np.ndarray, is_full: bool) -> dict[str, Array]:
    """Moments of draws ``(draw, number)``, as the autoguide's parameters."""
    loc, scale = flat.mean(0), flat.std(0, ddof=1)
    _refuse_no_volume(scale, "The Gaussian fitted to the draws")
    if not is_full:
        return {"auto_loc": jnp.asarray(loc), "auto_scale": jnp.asarray(scale)}
    correlation = np.corrcoef(flat.T).reshape(len(loc), len(loc))
    _refuse_no_volume(np.linalg.eigvalsh(correlation), "The Gaussian fitted to the draws")
    scale_tril = scale[:, None] * np.linalg.cholesky(correlation)
    return {"auto_loc": jnp.asarray(loc), "auto_scale_tril": jnp.asarray(scale_tril)}


# ---- draws -------------------------------------------------------------------------------------------------------


def _is_latent(site: Mapping[str, Any]) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def _latents(model: Callable[..., Any], args: tuple, kwargs: dict[str, Any], rng_key: Array) -> dict[str, Any]:
    """Sites that draws must hold, of a model that sees all data: discrete ones are summed out."""
    model_trace, other = (trace_model(model, args, kwargs, key) for key in jax.random.split(rng_key))
    for name, site in model_trace.items():
        if site["type"] == "plate" and site["args"][1] is not None and site["args"][1] < site["args"][0]:
            raise SymmetryError(
                f"Plate {name!r} takes {site['args'][1]} of {site['args'][0]}: the evidence is that of all data. Pass "
                "them all, and let the plate's subsample_size be its size."
            )
    latents = {
        name: site for name, site in model_trace.items() if _is_latent(site) and not site["fn"].support.is_discrete
    }
    if not any(map(_is_latent, model_trace.values())):
        refuse_no_sites(model, args, kwargs)
    if not latents:
        raise SymmetryError("The model has no continuous latent site, so there is nothing to integrate over.")
    for name, site in latents.items():
        if site["fn"].support != other[name]["fn"].support:
            raise SymmetryError(
                f"Site {name!r} has a support that depends on other sites, {site['fn'].support} at one draw of the "
                "prior: a Gaussian in unconstrained space is another density at each of their values. Write it as a "
                "function of a variable of fixed support (b = a * u), or reparametrise it (TransformReparam)."
            )
    return latents


def _unconstrained_size(site: Mapping[str, Any]) -> int:
    return int(np.prod(biject_to(site["fn"].support).inverse_shape(np.shape(site["value"]))))


def _part(trace: Trace, which: slice) -> Trace:
    """Some draws of every chain."""
    values = {site: value[:, which] for site, value in trace.values.items()}
    return trace._replace(values=values, leading=next(iter(values.values())).shape[:2])


def _read(data: Any, latents: Mapping[str, Any]) -> Trace:
    """Draws of every latent site of the model, by chain and draw."""
    sites = list(latents)
    shapes = {site: np.shape(latents[site]["value"]) for site in sites}
    held = data if isinstance(data, Mapping) else {}
    extra = {np.ndim(held[site]) - len(shapes[site]) for site in sites if site in held}
    trace = read(data, Symmetry({}), extra.pop() if len(extra) == 1 and min(extra) > 0 else None)
    if missing := [site for site in sites if site not in trace.values]:
        raise SymmetryError(f"The draws lack sites {missing} of the model; they hold {sorted(trace.values)}.")
    for site in sites:
        if len(trace.leading) > 2 or trace.values[site].shape != trace.leading + shapes[site]:
            raise SymmetryError(
                f"Site {site!r} has draws of shape {trace.values[site].shape}; expected {shapes[site]} after "
                "one or two dimensions that count draws, the same for all sites."
            )
    refuse_bad_draws(trace.flat(sites), trace.leading)
    leading = trace.leading if len(trace.leading) == 2 else (1, trace.num_draws)
    if leading[1] < _FEWEST:
        raise SymmetryError(f"There are {leading[1]} draws a chain; fitting and bridging need at least {_FEWEST}.")
    values: Arrays = {site: trace.values[site].reshape(leading + shapes[site]) for site in sites}
    return trace._replace(values=values, leading=leading)


def _refuse_no_volume(widths: np.ndarray, what: str) -> None:
    if not (np.asarray(widths) > _NO_WIDTH).all():
        raise SymmetryError(f"{what} has no volume: some numbers do not vary, or vary only together.")


def _refuse_outside(trace: Trace, unconstrained: Mapping[str, Any], latents: Mapping[str, Any]) -> None:
    """Refuse draws that have no finite unconstrained values."""
    for site, values in unconstrained.items():
        if bad := int((~np.isfinite(np.asarray(values)).reshape(trace.num_draws, -1).all(1)).sum()):
            raise SymmetryError(
                f"Site {site!r}: {bad} of {trace.num_draws} draws lie outside its support "
                f"{latents[site]['fn'].support}, or on the border of it. Are they draws of this model, in its "
                "constrained space? float32 rounds draws to the border: sample in float64 then (numpyro.enable_x64())."
            )


def _refuse_other_sites(
    guide: AutoSymmetrized, params: Mapping[str, Any], sites: list[str], rng_key: Array, args: tuple, kwargs: dict
) -> None:
    """Refuse a guide that draws other sites than the model has, or whose parameters are not all there."""
    with handlers.block(), handlers.trace() as drawn, handlers.seed(rng_seed=rng_key):
        guide.base(*args, **kwargs)
    if set(own := latent_values(drawn)) != set(sites):
        raise SymmetryError(
            f"The guide draws {sorted(own)}; expected the model's continuous latent sites {sorted(sites)}, no more and "
            "no fewer: others would have to be integrated out."
        )
    if missing := [name for name, site in drawn.items() if site["type"] == "param" and name not in params]:
        raise SymmetryError(f"The guide has parameters {missing}, which are not among those given: {sorted(params)}.")
