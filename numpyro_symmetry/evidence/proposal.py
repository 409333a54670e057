"""The density that the posterior is compared with: a symmetrized Gaussian in one basin, or a guide as it was fitted.

Knows containers, rebasing and symmetrized guides; not what the density is for.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoLaplaceApproximation, AutoMultivariateNormal

from numpyro_symmetry.assignment.passes import is_stored
from numpyro_symmetry.containers import Trace, read
from numpyro_symmetry.discovery import find_symmetry, without_parameters
from numpyro_symmetry.evidence.draws import Moments, draws_of_sites, moments_of, on_supports, slice_of_chains
from numpyro_symmetry.evidence.weights import averaged_over
from numpyro_symmetry.guides import AutoSymmetrized
from numpyro_symmetry.guides.density import latent_values, log_prob_of
from numpyro_symmetry.guides.no_bound import spared_entries
from numpyro_symmetry.guides.symmetrized.proved import prove_again
from numpyro_symmetry.guides.symmetrized.set_up import set_up_to_weigh
from numpyro_symmetry.models import (
    Model,
    discrete_of,
    is_same,
    is_subsampled,
    latent_of,
    observed_of,
    refuse_absent_state,
    refuse_misfit,
    refuse_no_sites,
    refuse_without_prior,
    refuse_wrong_parameters,
    trace_model,
)
from numpyro_symmetry.models.compat import flat_sites
from numpyro_symmetry.models.data import is_array
from numpyro_symmetry.models.given_values import left_to_chance, parameters
from numpyro_symmetry.models.unconstrained import bijection_to, unconstrain
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, warn
from numpyro_symmetry.symmetry.arguments import is_floating
from numpyro_symmetry.traces import GaussianCost, Rebased, rebase
from numpyro_symmetry.traces.coordinates import is_positive

# with N draws of d numbers the inverse of a covariance matrix is too large by 1 / (1 - d/N): by a tenth at N = 10 d
_DRAWS_PER_NUMBER = 10
# what rounding in float64 leaves of an eigenvalue or a log order that is zero, and of a width beside where it lies
_NO_EIGENVALUE = _NO_ORDER = 1e-10
_NO_WIDTH = 1e-13


class Proposal(NamedTuple):
    """A symmetrized guide, its parameters, the sites it draws, and draws of the posterior that it was not fitted to."""

    guide: AutoSymmetrized
    params: Mapping[str, Any]
    latents: Mapping[str, Any]
    rest: Trace | None = None


# ---- the Gaussian ------------------------------------------------------------------------------------------------


def proposal_of_guide(
    guide: Any,
    params: Any,
    model: Model,
    symmetry: Symmetry | None,
    rng_key: Array,
    *,
    signs: bool,
) -> Proposal:
    """A guide as it was fitted, symmetrized; Laplace's approximation as the Gaussian that it stands for."""
    function, args, kwargs = model
    if isinstance(guide, AutoSymmetrized) and (symmetry is not None or function is not guide.model):
        raise ValueError("An AutoSymmetrized has its own symmetry and model: leave symmetry= and model= out.")
    _refuse_no_model(model)
    if not isinstance(params, Mapping):
        remedy = " Pass result.params." if hasattr(params, "params") else ""
        raise TypeError(
            f"A guide's parameters are a mapping from names to values, as SVI.get_params has them; got "
            f"{type(params).__name__}.{remedy}"
        )
    model_trace, latents, _ = _latents(model, rng_key)
    if isinstance(guide, AutoLaplaceApproximation):
        refuse_wrong_parameters(trace_model(guide, args, kwargs, rng_key), None, params, model_too=False)
        gaussian: Any = guide.get_posterior(dict(params))
        _refuse_no_volume(
            np.diagonal(gaussian.scale_tril), _NO_WIDTH * np.abs(gaussian.loc), "Laplace's approximation, at its mode,"
        )
        names = f"{guide.prefix}_loc", f"{guide.prefix}_scale_tril"
        params = {**params, names[0]: gaussian.loc, names[1]: gaussian.scale_tril}
        guide = AutoMultivariateNormal(function, prefix=guide.prefix)
    if not isinstance(guide, AutoSymmetrized):
        guide = _symmetrized(guide, model, symmetry, signs=signs)
    if guide.layout is None:
        set_up_to_weigh(guide, rng_key, args, kwargs)
    prove_again(guide, args, kwargs, numbers_too=True)
    _refuse_other_sites(guide, params, list(latents), model_trace, rng_key, args, kwargs)
    _warn_of_part(guide)
    return Proposal(guide, params, latents)


def proposal_of_draws(
    data: Any,
    model: Model,
    symmetry: Symmetry | None,
    rng_key: Array,
    *,
    signs: bool,
    halve: bool,
) -> Proposal:
    """A Gaussian fitted to draws under one set of labels, symmetrized; and draws that it was not fitted to."""
    _refuse_no_model(model)
    function, args, kwargs = model
    model_trace, latents, discrete = _latents(model, rng_key)
    refuse_without_prior(function, args, kwargs, model_trace)
    _refuse_chance(model, model_trace)
    size = sum(map(_unconstrained_size, latents.values()))
    trace = on_supports(draws_of_sites(data, latents), latents)
    half = trace.leading[1] // 2 if halve else trace.leading[1]
    is_full = half * trace.leading[0] >= _DRAWS_PER_NUMBER * size
    # discrete sites are summed out of the joint, and the Gaussian has no part in them
    continuous = handlers.block(handlers.seed(function, rng_key), hide=discrete) if discrete else function
    base = (AutoMultivariateNormal if is_full else AutoDiagonalNormal)(continuous)
    guide = _symmetrized(base, model, symmetry, signs=signs)
    set_up_to_weigh(guide, rng_key, args, kwargs)
    _warn_of_part(guide)
    first, rest = slice_of_chains(trace, slice(None, half)), slice_of_chains(trace, slice(half, None))
    first, rest = _rebased(first, rest if halve else None, averaged_over(guide).symmetry, rng_key)

    free = jax.jit(jax.vmap(lambda draw: unconstrain(handlers.seed(function, rng_key), args, kwargs, draw)))
    moments = moments_of(first, latents, free, flat_sites(base), products=is_full)
    return Proposal(guide, _gaussian(moments), latents, rest)


def _symmetrized(base: Any, model: Model, symmetry: Symmetry | None, *, signs: bool) -> AutoSymmetrized:
    """A base guide symmetrized by the symmetry given, checked on the model, or else by the one found there."""
    found = without_parameters(find_symmetry(*model, signs=signs)) if symmetry is None else symmetry  # pyright: ignore[reportArgumentType]
    return AutoSymmetrized(base, found, model=model.function, check=symmetry is not None)


def _warn_of_part(guide: AutoSymmetrized) -> None:
    """Warn if the Gaussian is averaged over a part of the symmetry only."""
    averaged = averaged_over(guide)
    whole = averaged.whole.log_order()
    if (beyond := whole - averaged.symmetry.log_order()) > _NO_ORDER:
        warn(
            f"Of log|G| = {whole:.1f} nats the Gaussian is averaged over {whole - beyond:.1f}: units are exchanged "
            f"within groups that are exchanged themselves. The estimate and both bounds are low by up to "
            f"{beyond:.1f} nats where chains have not visited all of the other copies."
        )


def _rebased(first: Trace, rest: Trace | None, symmetry: Symmetry, rng_key: Array) -> tuple[Trace, Trace | None]:
    """Both parts of the draws under labels that are found in the first: the second must not shape the Gaussian.

    Weights are blind to labels, but far from the Gaussian they are small differences of large numbers in float32: so
    the second part is relabelled to lie near it, by no other elements than those that the Gaussian is averaged over,
    for weights are blind to these alone.
    """
    if all(group.is_trivial for group in symmetry.groups.values()):
        return first, rest

    def relabelled(part: Trace, reference: Any, cost: Any = "auto") -> tuple[Trace, Rebased]:
        acted_on = _with_dimensions({site: part.values[site] for site in symmetry.axes})
        out = rebase(
            acted_on, symmetry, reference=reference, cost=cost, rng_key=rng_key, null=False, num_leading_dims=2
        )
        return part._replace(values={**part.values, **read(out.data, symmetry, 2, lazily=True).values}), out

    moved, reference = relabelled(first, "mean")
    if rest is None:
        return moved, None
    # a site may be positive in the first half by chance
    read_by = reference.frame.read.items()
    logs = {reference.view.stacks[name] for name, coordinate in read_by if coordinate.transform == "log"}
    draws = rest.flat([site for stack in logs for site in stack.sites])
    positive = {site: is_positive(x) for site, x in draws.items()}
    raw = {site: "identity" for stack in logs if not all(map(positive.get, stack.sites)) for site in stack.sites}
    if raw:
        moved, reference = relabelled(first, "mean", GaussianCost(raw))
    return moved, relabelled(rest, reference)[0]


def _with_dimensions(values: dict[str, Any]) -> Any:
    """Draws by chain; stored ones in a Dataset with named dimensions, which `rebase` leaves where they are."""
    if not any(map(is_stored, values.values())):
        return values
    dims = {site: ("chain", "draw", *(f"{site} axis {k}" for k in range(x.ndim - 2))) for site, x in values.items()}
    return xr.Dataset({site: (dims[site], x) for site, x in values.items()})


_AS_SAMPLED = " Pass them as they were sampled: not centred, and not made to add up since."


def _gaussian(moments: Moments) -> dict[str, Array]:
    """The Gaussian of these moments, as the autoguide's parameters."""
    loc, is_full = moments.mean, moments.about.ndim == 2
    size = np.sqrt(np.diagonal(moments.about) if is_full else moments.about)
    scale = size / math.sqrt(moments.count - 1)
    of_draws = "The Gaussian fitted to the draws", _AS_SAMPLED
    _refuse_no_volume(scale, _NO_WIDTH * np.abs(loc), *of_draws)
    if not is_full:
        return {"auto_loc": jnp.asarray(loc), "auto_scale": jnp.asarray(scale)}
    correlation = moments.about / size[:, None] / size
    _refuse_no_volume(np.linalg.eigvalsh(correlation), _NO_EIGENVALUE, *of_draws)
    scale_tril = scale[:, None] * np.linalg.cholesky(correlation)
    return {"auto_loc": jnp.asarray(loc), "auto_scale_tril": jnp.asarray(scale_tril)}


# ---- draws -------------------------------------------------------------------------------------------------------


_A_MODEL = (
    "A model draws its parameters by numpyro.sample; a log density of given values is passed with one of them, "
    "log_evidence(positions, log_density, (position,), argnum=0)"
)


def _refuse_no_model(model: Model) -> None:
    """Refuse a function that cannot be called with these arguments: a log density of given values, say."""
    try:
        refuse_misfit(*model)
    except TypeError as error:
        raise TypeError(f"{error} {_A_MODEL}.") from None


def _refuse_bad_data(traces: list[dict[str, Any]], model: Model) -> None:
    """Refuse NaN in data where it leaves the model without a density: NaN that a mask hides does not."""
    observed = observed_of(traces[0])
    bad = {name: _not_numbers(f"observed site {name!r}", site["value"]) for name, site in observed.items()}
    given = _not_numbers("model_args", model.args) + _not_numbers("model_kwargs", model.kwargs)
    if not given and not any(bad.values()):
        return
    with warnings.catch_warnings():
        # NumPyro warns of values outside a support, but does not say which
        warnings.simplefilter("ignore", UserWarning)
        undefined = [
            name
            for name in observed
            if all(not np.isfinite(np.asarray(log_prob_of(trace[name]))).all() for trace in traces if name in trace)
        ]
    if undefined and (where := given + [place for name in undefined for place in bad[name]]):
        raise SymmetryError(
            f"The model has no density at its observed sites {undefined}: there is NaN in {', '.join(where)}. Leave "
            "those data out, or mask them (numpyro.handlers.mask)."
        )


def _refuse_chance(model: Model, trace: dict[str, Any]) -> None:
    """Refuse models that draw what the draws do not hold: a sampler has held it, and weights are of other values."""
    place = parameters(trace) | {name: site["value"] for name, site in latent_of(trace).items()}
    if found := left_to_chance(*model, trace, place):
        raise SymmetryError(
            f"The distributions of {found} are left to chance at given latent sites: the model draws random numbers "
            "(dropout), or hides a site of its own (handlers.block). Draws belong to one value of these, which they do "
            "not say. Leave random numbers out, or seed the model before it is sampled (handlers.seed(model, "
            "rng_seed=0)); pass the whole model, with draws of its hidden sites."
        )


def _not_numbers(name: str, values: Any) -> list[str]:
    """Names of the floating arrays among ``values`` that hold NaN, each with the number of its NaN."""
    return [
        f"{name}{jax.tree_util.keystr(path)} ({int(np.isnan(leaf).sum())} of {np.size(leaf)})"
        for path, leaf in jax.tree_util.tree_leaves_with_path(values)
        if (is_array(leaf) or isinstance(leaf, float)) and is_floating(jnp.result_type(leaf))
        if np.isnan(leaf).any()
    ]


def _latents(model: Model, rng_key: Array) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The trace of a model, its continuous latent sites, which draws must hold, and names of the sites summed out."""
    function, args, kwargs = model
    model_trace, other = (trace_model(function, args, kwargs, key) for key in jax.random.split(rng_key))
    for name, site in model_trace.items():
        if is_subsampled(site):
            raise SymmetryError(
                f"Plate {name!r} takes {site['args'][1]} of {site['args'][0]}: the evidence is that of all data. Pass "
                "them all, and let the plate's subsample_size be its size."
            )
    _refuse_bad_data([model_trace, other], model)
    discrete = discrete_of(model_trace)
    latents = {name: site for name, site in latent_of(model_trace).items() if name not in discrete}
    if not latents and not discrete:
        refuse_no_sites(*model)
    if not latents:
        raise SymmetryError(
            f"The model has no continuous latent site, so there is nothing to integrate over. {_A_MODEL}."
        )
    for name, site in latents.items():
        bijection_to(name, site["fn"].support)
        if not is_same(site["fn"].support, other[name]["fn"].support):
            raise SymmetryError(
                f"Site {name!r} has a support that depends on other sites, {site['fn'].support} at one draw of the "
                "prior: a Gaussian in unconstrained space is another density at each of their values. Write it as a "
                "function of a variable of fixed support (b = a * u), or reparametrise it (TransformReparam)."
            )
    return model_trace, latents, discrete


def _unconstrained_size(site: Mapping[str, Any]) -> int:
    return math.prod(biject_to(site["fn"].support).inverse_shape(np.shape(site["value"])))


def _refuse_no_volume(widths: np.ndarray, none: Any, what: str, remedy: str = "") -> None:
    if not (np.asarray(widths) > none).all():
        raise SymmetryError(f"{what} has no volume: some numbers do not vary, or vary only together.{remedy}")


def _refuse_other_sites(
    guide: AutoSymmetrized,
    params: Mapping[str, Any],
    sites: list[str],
    model_trace: dict[str, Any],
    rng_key: Array,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Refuse a guide that draws other sites than the model has, or parameters that are of neither."""
    drawn = trace_model(guide.base, args, kwargs, rng_key)
    if set(own := latent_values(drawn)) != set(sites):
        raise SymmetryError(
            f"The guide draws {sorted(own)}; expected the model's continuous latent sites {sorted(sites)}, no more and "
            "no fewer: others would have to be integrated out."
        )
    moved = averaged_over(guide).layout.symmetry.axes
    # masks are those of these arguments, not of those with which the guide was set up
    spared_entries(guide.base, guide.model, moved, (drawn, model_trace), args, kwargs)
    # parameters of the model are held where they start unless they are given, and its state is not
    refuse_wrong_parameters(drawn, model_trace, params, model_too=False)
    refuse_absent_state([name for name, site in model_trace.items() if site["type"] == "mutable"], params)
