"""The density that the posterior is compared with: a symmetrized Gaussian in one basin, or a guide as it was fitted.

Knows containers, rebasing and symmetrized guides; not what the density is for.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoLaplaceApproximation, AutoMultivariateNormal
from numpyro.infer.util import unconstrain_fn

from numpyro_symmetry.containers import Trace, read
from numpyro_symmetry.discovery import find_symmetry, without_parameters
from numpyro_symmetry.evidence.weights import averaged_over
from numpyro_symmetry.guides import AutoSymmetrized
from numpyro_symmetry.guides.density import latent_values, log_prob_of
from numpyro_symmetry.models import (
    Model,
    discrete_of,
    entrywise,
    latent_of,
    observed_of,
    refuse_no_sites,
    refuse_wrong_parameters,
    trace_model,
)
from numpyro_symmetry.models.compat import flat_sites
from numpyro_symmetry.symmetry import Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import refuse_masked, shape_of
from numpyro_symmetry.symmetry.errors import warn
from numpyro_symmetry.symmetry.pytrees import arrays_by_path, comes_by_site
from numpyro_symmetry.traces import GaussianCost, Rebased, rebase
from numpyro_symmetry.traces.inputs import refuse_bad_draws

# halves of a chain, each of which has a variance
_FEWEST = 4
# with N draws of d numbers the inverse of a covariance matrix is too large by 1 / (1 - d/N): by a tenth
_DRAWS_PER_NUMBER = 10
# text of three digits is so far off a simplex; draws further off are no draws of it
_OF_TEXT = 1e-3
# in float64, what is left of a width, an eigenvalue or the order of a group that is none
_NO_WIDTH = _NO_ORDER = 1e-10


class Proposal(NamedTuple):
    """A symmetrized guide, its parameters, and draws of the posterior that it was not fitted to, if there are any."""

    guide: AutoSymmetrized
    params: Mapping[str, Any]
    sites: list[str]
    rest: Trace | None = None


# ---- the Gaussian ------------------------------------------------------------------------------------------------


def proposal_of_guide(
    guide: Any,
    params: Any,
    model: Model,
    symmetry: Symmetry | None,
    signs: bool,
    rng_key: Array,
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
    sites = list(_latents(model, rng_key)[0])
    if isinstance(guide, AutoLaplaceApproximation):
        refuse_wrong_parameters(trace_model(guide, args, kwargs, rng_key), None, params, model_too=False)
        gaussian: Any = guide.get_posterior(dict(params))
        _refuse_no_volume(np.diagonal(gaussian.scale_tril), "Laplace's approximation, at its mode,")
        names = f"{guide.prefix}_loc", f"{guide.prefix}_scale_tril"
        params = {**params, names[0]: gaussian.loc, names[1]: gaussian.scale_tril}
        guide = AutoMultivariateNormal(function, prefix=guide.prefix)
    if not isinstance(guide, AutoSymmetrized):
        guide = _symmetrized(guide, model, symmetry, signs)
    if guide.layout is None:
        guide.setup(rng_key, *args, **kwargs)
    _refuse_other_sites(guide, params, sites, rng_key, args, kwargs)
    _warn_of_part(guide)
    return Proposal(guide, params, sites)


def proposal_of_draws(
    data: Any,
    model: Model,
    symmetry: Symmetry | None,
    signs: bool,
    rng_key: Array,
    *,
    halve: bool,
) -> Proposal:
    """A Gaussian fitted to draws under one set of labels, symmetrized; and draws that it was not fitted to."""
    _refuse_no_model(model)
    function, args, kwargs = model
    latents, discrete = _latents(model, rng_key)
    sites, size = list(latents), sum(map(_unconstrained_size, latents.values()))
    trace = _onto_supports(_read(data, latents), latents)
    half = trace.leading[1] // 2 if halve else trace.leading[1]
    is_full = half * trace.leading[0] >= _DRAWS_PER_NUMBER * size
    # discrete sites are summed out of the joint, and the Gaussian has no part in them
    continuous = handlers.block(handlers.seed(function, rng_key), hide=discrete) if discrete else function
    base = (AutoMultivariateNormal if is_full else AutoDiagonalNormal)(continuous)
    guide = _symmetrized(base, model, symmetry, signs).setup(rng_key, *args, **kwargs)

    _warn_of_part(guide)
    first, rest = _part(trace, slice(None, half)), _part(trace, slice(half, None))
    first, rest = _rebased(first, rest if halve else None, averaged_over(guide)[0], rng_key)

    def unconstrain(draw: dict[str, Array]) -> dict[str, Array]:
        return unconstrain_fn(handlers.seed(function, rng_key), args, kwargs, draw)

    by_site = jax.jit(jax.vmap(unconstrain))(first.flat(sites))
    flat = np.concatenate([np.reshape(by_site[site], (first.num_draws, -1)) for site in flat_sites(base)], 1)
    _refuse_outside(first, by_site, latents)
    return Proposal(guide, _gaussian(flat.astype(np.float64), is_full), sites, rest)


def _symmetrized(base: Any, model: Model, symmetry: Symmetry | None, signs: bool) -> AutoSymmetrized:
    """With the symmetry that is given, checked against the model, or what is found there, even if there is none."""
    if symmetry is not None:
        return AutoSymmetrized(base, symmetry, model=model.function)
    found = without_parameters(find_symmetry(*model, signs=signs))  # pyright: ignore[reportArgumentType]
    return AutoSymmetrized(base, found, model=model.function, check=False)


def _warn_of_part(guide: AutoSymmetrized) -> None:
    """Say so if the Gaussian is averaged over a part of the symmetry only."""
    assert guide.model_trace is not None
    assert guide.symmetry is not None
    whole = guide.symmetry.bind(latent_values(guide.model_trace)).log_order()
    if (beyond := whole - averaged_over(guide)[0].log_order()) > _NO_ORDER:
        warn(
            f"Of log|G| = {whole:.1f} nats the Gaussian is averaged over {whole - beyond:.1f}: units are exchanged "
            f"within groups that are exchanged themselves. The estimate and both bounds are low by up to "
            f"{beyond:.1f} nats where chains have not visited all of the other copies."
        )


def _rebased(first: Trace, rest: Trace | None, symmetry: Symmetry, rng_key: Array) -> tuple[Trace, Trace | None]:
    """Both parts of the draws under the labels that are found in the first: the second must not shape the Gaussian.

    Weights are blind to labels, but far from the Gaussian they are small differences of large numbers in float32: the
    second part is relabelled to lie near it. By elements that the Gaussian is averaged over, and no others: weights
    are blind to these alone.
    """
    if all(group.is_trivial for group in symmetry.groups.values()):
        return first, rest

    def relabelled(part: Trace, reference: Any, cost: Any = "auto") -> tuple[Trace, Rebased]:
        acted_on = {site: part.values[site] for site in symmetry.axes}
        options = {"rng_key": rng_key, "null": False, "num_leading_dims": 2}
        out = rebase(acted_on, symmetry, reference=reference, cost=cost, **options)
        return part._replace(values={**part.values, **out.data}), out

    moved, reference = relabelled(first, "mean")
    if rest is None:
        return moved, None
    # a site may be positive in the first half by chance
    logs = [name for name, each in reference.frame.read.items() if each.transform == "log"]
    stays = {name: all((rest.values[site] > 0).all() for site in symmetry.stacks[name].sites) for name in logs}
    raw = {name: "identity" for name in logs if not stays[name]}
    if raw:
        moved, reference = relabelled(first, "mean", GaussianCost(raw))
    return moved, relabelled(rest, reference)[0]


_AS_SAMPLED = " Pass them as they were sampled: not centred, and not made to add up since."


def _gaussian(flat: np.ndarray, is_full: bool) -> dict[str, Array]:
    """Moments of draws ``(draw, number)``, as the autoguide's parameters."""
    loc, scale = flat.mean(0), flat.std(0, ddof=1)
    of_draws = "The Gaussian fitted to the draws", _AS_SAMPLED
    _refuse_no_volume(scale, *of_draws)
    if not is_full:
        return {"auto_loc": jnp.asarray(loc), "auto_scale": jnp.asarray(scale)}
    correlation = np.corrcoef(flat.T).reshape(len(loc), len(loc))
    _refuse_no_volume(np.linalg.eigvalsh(correlation), *of_draws)
    scale_tril = scale[:, None] * np.linalg.cholesky(correlation)
    return {"auto_loc": jnp.asarray(loc), "auto_scale_tril": jnp.asarray(scale_tril)}


# ---- draws -------------------------------------------------------------------------------------------------------


_A_MODEL = (
    "A model draws its parameters by numpyro.sample; a log density of given values is passed with one of them, "
    "log_evidence(positions, log_density, (position,), argnum=0)"
)


def _refuse_no_model(model: Model) -> None:
    """Refuse what is no model, or cannot be called with these arguments: a log density of given values, say."""
    function, args, kwargs = model
    if not callable(function):
        raise TypeError(f"model must be a NumPyro model, a function; got {type(function).__name__}.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # callables in C have none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"The model {getattr(function, '__name__', type(function).__name__)}{signature} cannot be called with "
            f"{len(args)} model_args and model_kwargs {sorted(kwargs)}: {error}. {_A_MODEL}."
        ) from None


def _refuse_bad_data(traces: list[dict[str, Any]], model: Model) -> None:
    """Refuse data that are no numbers where the model has a use for them: a mask may well hide some."""
    observed = list(observed_of(traces[0]))
    with warnings.catch_warnings():
        # NumPyro warns of values outside a support, but does not say which
        warnings.simplefilter("ignore", UserWarning)
        undefined = [
            name
            for name in observed
            if all(not np.isfinite(np.asarray(log_prob_of(trace[name]))).all() for trace in traces if name in trace)
        ]
    given = {"model_args": model.args, "model_kwargs": model.kwargs}
    given |= {f"observed site {name!r}": traces[0][name]["value"] for name in undefined}
    bad = [
        f"{path[0].key}{jax.tree_util.keystr(path[1:])} ({int(np.isnan(leaf).sum())} of {np.size(leaf)})"
        for path, leaf in jax.tree_util.tree_leaves_with_path(given)
        if isinstance(leaf, np.ndarray | Array | float) and np.asarray(leaf).dtype.kind == "f"
        if np.isnan(leaf).any()
    ]
    if undefined and bad:
        raise SymmetryError(
            f"The model has no density at its observed sites {undefined}: there is NaN in {', '.join(bad)}. Leave "
            "those data out, or mask them (numpyro.handlers.mask)."
        )


def _latents(model: Model, rng_key: Array) -> tuple[dict[str, Any], list[str]]:
    """Sites that draws must hold, of a model that sees all data, and names of discrete ones, which are summed out."""
    function, args, kwargs = model
    model_trace, other = (trace_model(function, args, kwargs, key) for key in jax.random.split(rng_key))
    for name, site in model_trace.items():
        if site["type"] == "plate" and site["args"][1] is not None and site["args"][1] < site["args"][0]:
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
        if site["fn"].support != other[name]["fn"].support:
            raise SymmetryError(
                f"Site {name!r} has a support that depends on other sites, {site['fn'].support} at one draw of the "
                "prior: a Gaussian in unconstrained space is another density at each of their values. Write it as a "
                "function of a variable of fixed support (b = a * u), or reparametrise it (TransformReparam)."
            )
    return latents, discrete


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
    if not comes_by_site(data, sites) and shapes.keys() <= (arrays := arrays_by_path(data)).keys():
        data = arrays
    held = data if isinstance(data, Mapping) else {}
    if isinstance(data, Mapping) and not len(data):
        raise SymmetryError(f"There are no draws: {type(data).__name__} is empty; expected sites {sites}.")
    refuse_masked(held)
    extra = {len(shape_of(held[site], f"Site {site!r}")) - len(shapes[site]) for site in sites if site in held}
    trace = read(data, Symmetry({}), extra.pop() if len(extra) == 1 and min(extra) > 0 else None)
    if missing := [site for site in sites if site not in trace.values]:
        raise SymmetryError(f"The draws lack sites {missing} of the model; they hold {sorted(trace.values)}.")
    for site in sites:
        if len(trace.leading) > 2 or trace.values[site].shape != trace.leading + shapes[site]:
            raise SymmetryError(
                f"Site {site!r} has draws of shape {trace.values[site].shape}; expected {shapes[site]} after "
                "one or two dimensions that count draws, the same for all sites."
            )
    leading = trace.leading if len(trace.leading) == 2 else (1, trace.num_draws)
    if not leading[0] or leading[1] < _FEWEST:
        raise SymmetryError(
            f"There are {leading[0]} chains of {leading[1]} draws; fitting and bridging need at least {_FEWEST} draws "
            "a chain."
        )
    refuse_bad_draws(trace.flat(sites), trace.leading)
    values = {site: trace.values[site].reshape(leading + shapes[site]) for site in sites}
    return trace._replace(values=values, leading=leading)


def _onto_supports(trace: Trace, latents: Mapping[str, Any]) -> Trace:
    """Draws that were written as text lie on no simplex any more: those off a support by so little are put back.

    Those within are put back as well, for in another order their entries may add up to what is not. What has no image
    on the real line stays, and is refused where all sites' unconstrained values are at hand.
    """
    values = dict(trace.values)
    for site in latents:
        support = latents[site]["fn"].support
        if entrywise(support).event_dim == 0:
            continue
        drawn = jnp.asarray(values[site])
        bijection = biject_to(support)
        put = bijection(bijection.inv(drawn))
        event = tuple(range(-support.event_dim, 0))
        # of its largest entry: an ordered vector or a covariance may be of any size
        off = jnp.abs(put - drawn).max(event) / jnp.abs(drawn).max(event)
        is_near = off <= _OF_TEXT
        outside = jnp.isfinite(off) & ~is_near & ~jnp.asarray(support(drawn))
        if bad := int(outside.sum()):
            raise SymmetryError(
                f"Site {site!r}: {bad} of {trace.num_draws} draws lie off its support {support} by up to "
                f"{float(off[outside].max()):.2g} of their largest entry, more than the rounding of text. Are they "
                "draws of this model, in its constrained space?"
            )
        values[site] = np.where(jnp.expand_dims(is_near, event), put, drawn)
    return trace._replace(values=values)


def _refuse_no_volume(widths: np.ndarray, what: str, remedy: str = "") -> None:
    if not (np.asarray(widths) > _NO_WIDTH).all():
        raise SymmetryError(f"{what} has no volume: some numbers do not vary, or vary only together.{remedy}")


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
    guide: AutoSymmetrized,
    params: Mapping[str, Any],
    sites: list[str],
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
    # parameters of the model are held where they start unless they are given
    refuse_wrong_parameters(drawn, guide.model_trace, params, model_too=False)
