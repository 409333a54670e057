"""What a guide and a model must satisfy to be symmetrized; every refusal says what to do instead.

All run at set-up, outside `jit`. Knows guides, traces and symmetries; no estimators.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers
from numpyro.primitives import Messenger

from numpyro_symmetry.entropy import General
from numpyro_symmetry.guides.density import (
    latent_values,
    log_densities_at,
    log_density_by_site,
    log_prob_of,
    own_sites,
    parents,
    trace_at,
    unrecovered_sites,
)
from numpyro_symmetry.guides.kinds import WITHOUT_DENSITY, latents_of, parts_of, read_off_latents
from numpyro_symmetry.guides.symmetrized.equivariance import moving_everything
from numpyro_symmetry.guides.symmetrized.layout import Layout, density_of, draw_of, is_gaussian
from numpyro_symmetry.models import (
    Trace,
    latent_of,
    observed_of,
    settings_of,
    subsampled_plates,
    trace_model,
    without_wrappers,
)
from numpyro_symmetry.models.arguments import left_at_none
from numpyro_symmetry.models.compat import is_enumerated
from numpyro_symmetry.models.given_values import perturbed
from numpyro_symmetry.models.programs import compiled_quickly, in_double
from numpyro_symmetry.models.unconstrained import inverse
from numpyro_symmetry.symmetry import Element, Symmetry, SymmetryError, UnsupportedGuideError
from numpyro_symmetry.symmetry.axes import names_in

# relative, of sums over all numbers of a site, in single precision and in double; another density is off by more
_TOLERANCE, _TOLERANCE_IN_DOUBLE = 1e-3, 1e-6


def refuse_particles(guide: object) -> Any:
    """Refuse SteinVI, which asks guides for ``init_loc_fn``.

    Raises
    ------
    AttributeError
        With what to do instead.
    """
    raise AttributeError(
        f"{type(guide).__name__} has no attribute 'init_loc_fn'. SteinVI asks for it, and cannot train this guide: it "
        "scores the guide of each particle at draws of others, where the correction bounds nothing. Train by SVI, or "
        "give SteinVI the base guide, guide.base."
    )


def refuse_guides_without_density(guide: object) -> None:
    """Refuse guides, or parts of one, that cannot say their density at a given value."""
    if isinstance(guide, type):
        raise TypeError(f"base_guide is the class {guide.__name__}; pass a guide: {guide.__name__}(model).")
    for part in parts_of(guide):
        if hasattr(part, "elbo_bounds"):
            raise UnsupportedGuideError(
                f"{type(part).__name__} is symmetrized already, and its average over a group is no guide's density. "
                "Symmetrize the base guide once, by one Symmetry with all groups."
            )
        for kind, why in WITHOUT_DENSITY.items():
            if isinstance(part, kind):
                raise UnsupportedGuideError(f"{type(part).__name__} cannot be symmetrized: it {why}.")
    if not callable(guide):
        raise UnsupportedGuideError(f"The base guide must be callable; got {type(guide).__name__}.")


def refuse_hidden_sites(
    model: Callable, model_trace: Trace, is_given: bool, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuse a model some of whose sites are hidden from the guide, and so from us: its joint is another.

    NumPyro's autoguides draw no discrete sites, so that they are given a model with these hidden. The symmetry and the
    ELBO are those of the whole model.

    Parameters
    ----------
    model, model_trace
        The model and a trace of it.
    is_given
        Whether the model was given, rather than read off the guide.
    name
        Name of the guide's class.
    args, kwargs
        The model's arguments.
    """
    remedy = f"pass the whole model beside the guide of the blocked one: AutoSymmetrized({name}(blocked), model=model)."
    whole = _unblocked(model)
    if whole is not model:
        trace = trace_model(whole, args, kwargs, jax.random.key(0))
        for what, sites in (("observed", observed_of(trace)), ("latent", latent_of(trace))):
            if hidden := [site for site in sites if site not in model_trace]:
                raise SymmetryError(
                    f"The model is blocked and hides its {what} sites {hidden}, so that its symmetry and its ELBO are "
                    f"not those of the model that SVI trains on: {remedy}"
                )
    if not is_given and not observed_of(model_trace):
        left = left_at_none(model, args, kwargs)
        called = f" It was called without {left}, which are None: pass the data." if left else ""
        raise SymmetryError(
            f"The guide's model has no observed site, so no data.{called} Of a model with sites hidden, {remedy} A "
            "model that has no data on purpose is named in the same way."
        )


def _unblocked(model: Any) -> Any:
    """A model without the `block` handlers around it; the model itself if there are none."""
    if isinstance(model, handlers.block):
        return _unblocked(model.fn)
    inner = getattr(model, "fn", None)
    if not isinstance(model, Messenger) or inner is None or (without := _unblocked(inner)) is inner:
        return model
    bare = copy.copy(model)
    bare.fn = without
    return bare


def refuse_several_draws(symmetry: Symmetry, trace: Trace, model_trace: Trace) -> None:
    """Refuse a guide that draws sites several times, each draw with labels of its own, or of another size."""
    for site in symmetry.axes:
        ours, theirs = (np.shape(one[site]["value"]) for one in (trace, model_trace))
        if len(ours) == len(theirs) and ours != theirs:
            raise UnsupportedGuideError(
                f"Site {site!r} has shape {ours} in the guide and {theirs} in the model. If parameters were handed on, "
                "such as init_params, they are those of a guide of another size: start from those of this one."
            )
        if np.prod(ours) != np.prod(theirs):
            raise UnsupportedGuideError(
                f"Site {site!r} has shape {ours} in the guide and {theirs} in the model; expected one value, as the "
                "model draws it. For several draws a step pass Trace_ELBO(num_particles=...): a guide that makes them "
                "itself, for multi_sample_guide=True, cannot be symmetrized."
            )


def refuse_absent_sites(symmetry: Symmetry, trace: Trace) -> None:
    """Refuse a guide that does not draw every site the group acts on."""
    if absent := [site for site in symmetry.axes if site not in latent_values(trace)]:
        raise UnsupportedGuideError(
            f"The guide does not draw {absent}, on which the symmetry acts; it draws {sorted(latent_values(trace))}."
        )


def refuse_subsampled_latents(symmetry: Symmetry, model_trace: Trace) -> None:
    """Refuse relabelled latents in a subsampled plate: their scale would stand inside a logarithm of a sum."""
    plates = {site: frames for site in symmetry.axes if (frames := subsampled_plates(model_trace, site))}
    for site, frames in plates.items():
        plate, (shown, size) = next(iter(frames.items()))
        touched = {name for other in plates for name in names_in(symmetry.axes[other])}
        rest = [name for name in symmetry.groups if name not in touched]
        elsewhere = f"symmetry.restrict({rest})" if rest else "no group of this symmetry"
        raise SymmetryError(
            f"Site {site!r} is relabelled and lies in plate {plate!r}, subsampled {shown} of {size}: no bound holds "
            f"there. Train a guide of all data (no subsample_size), or pass what touches no such plate: {elsewhere}. "
            "rebase and match take the global sites of such a model: symmetry.restrict(sites=...)."
        )


def refuse_plate_around_everything(guide: Any) -> None:
    """Refuse to train where a plate holds every site: RenyiELBO would count the correction once for each member.

    A guide that is never trained, such as one by which the evidence is estimated, is not concerned.
    """
    sites = [site for site in guide.model_trace.values() if site["type"] == "sample"]
    plates = ({frame.name for frame in site["cond_indep_stack"]} for site in sites)
    if guide.layout.symmetry.groups and (shared := set.intersection(*plates)):
        raise SymmetryError(
            f"Every site lies in plate {sorted(shared)[0]!r}, so RenyiELBO would count the correction once per member. "
            "Give the latent sites a batch dimension instead (expand(...).to_event(...))."
        )


def refuse_enumerated(guide: Any, layout: Layout, trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse `TraceEnum_ELBO` where it sums out a site of the guide that shares a distribution with relabelled ones.

    What relabelling adds would then have another value for each of the site's, and be weighed as these are.
    """
    summed = {name for name, site in latent_of(trace).items() if site["infer"].get("enumerate") == "parallel"}
    if not summed or not is_enumerated():
        return
    for site, on in parents(guide, trace, args, kwargs).items():
        of_site = {site} | on
        if (by := sorted(of_site & summed)) and (moved := sorted(of_site & set(layout.symmetry.axes))):
            raise UnsupportedGuideError(
                f"The guide marks {by} to be enumerated (infer={{'enumerate': 'parallel'}}), and they depend on "
                f"{moved}, which are relabelled, or these on them: no bound holds where TraceEnum_ELBO sums them out "
                "of the guide. Take the mark away, to draw them and train by TraceGraph_ELBO; or leave them to the "
                "model, out of which TraceEnum_ELBO sums what the guide does not draw."
            )


def _disagreeing(own: Mapping[str, float], again: Mapping[str, float]) -> list[str]:
    """Sites whose log density at their own draw differs when it is read again; an intervention (do) adds others."""
    return [site for site, value in again.items() if not abs(value - own[site]) <= _TOLERANCE * (1.0 + abs(own[site]))]


def _rounded(guide: Any, trace: Trace, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The site, or those read off it, whose values are rounded to a border and no longer say what was drawn."""
    steps, fn = trace[name]["intermediates"], without_wrappers(trace[name]["fn"])
    drawn, found = {}, {}
    if sites := latents_of(guide).get(name):
        again = trace_at(guide, trace, latent_values(trace), args, kwargs)
        drawn, found = ({site: read_off_latents(guide, of)[site] for site in sites} for of in (trace, again))
    elif steps and isinstance(fn, dist.TransformedDistribution) and len(fn.transforms) == 1:
        drawn, found = {name: steps[0][0]}, {name: inverse(fn.transforms[0], trace[name]["value"])}
    return [site for site in drawn if not np.allclose(found[site], drawn[site], rtol=0.1, atol=0.1)]


def _refuse_disagreeing(
    guide: Any,
    own: Mapping[str, float],
    again: Mapping[str, float],
    trace: Trace,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    for site in _disagreeing(own, again):
        if rounded := _rounded(guide, trace, site, args, kwargs):
            raise UnsupportedGuideError(
                f"Site {rounded[0]!r}: the guide draws values so near the border of their support that they are "
                "rounded to it, and its density cannot be read off them. Give the guide a smaller scale on the real "
                "line to start from, such as init_scale=0.1, or evaluate it in float64 (numpyro.enable_x64())."
            )
        raise UnsupportedGuideError(
            f"Site {site!r}: the guide's log density re-read at its own draw is {again[site]:.6g}, "
            f"expected {own[site]:.6g}. The guide's density is not a function of its latent values."
        )


def _own_and_read_again(
    guide: Any, trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[str, float], dict[str, float]]:
    """Log densities of a draw in double precision, and read again: in single a precise one may be all rounding."""

    def at(key: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        drawn = trace_model(guide, args, kwargs, key, settings_of(trace))
        own = {name: jnp.sum(log_prob_of(site)) for name, site in drawn.items() if site["type"] == "sample"}
        return own, log_density_by_site(guide, drawn, latent_values(drawn), args, kwargs)

    key = jax.random.key(0)
    return jax.tree.map(float, in_double(at, key)(key))


def verify_densities(guide: Any, trace: Trace, layout: Layout, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Layout:
    """Check numerically that the guide's density can be read at moved values, and that the fast path agrees with it."""
    if unrecovered := unrecovered_sites(guide, trace):
        raise UnsupportedGuideError(
            f"The guide's auxiliary sites {unrecovered} are not determined by the latent values, so it has no "
            "density in them. Marginalise them, or use a guide without auxiliary variables."
        )
    for site in set(layout.symmetry.axes) & set(own_sites(guide, trace)):
        if isinstance(without_wrappers(trace[site]["fn"]), dist.Delta):
            raise UnsupportedGuideError(
                f"Site {site!r} is a point mass (Delta) in the guide, whose copies never overlap; use a distribution "
                "with a density, such as a Normal with a small scale."
            )

    read = _read(guide, trace, layout, args, kwargs)
    if _disagreeing(read.own, read.again):
        _refuse_disagreeing(guide, *_own_and_read_again(guide, trace, args, kwargs), trace, args, kwargs)
    for site, value in read.relabelled.items():
        if not np.isfinite(value):
            raise UnsupportedGuideError(
                f"Site {site!r}: the guide's log density at a relabelled draw is {value}. A point mass (Delta) "
                "or a bounded distribution cannot be symmetrized; use a distribution with full support."
            )
    if read.fast_change is None:
        return layout
    # sites that follow were seen to cancel in double precision; in single their density may round to anything
    telling = [(x, read.again[site]) for site, x in read.relabelled.items() if site not in layout.following]
    slow = sum(after - before for after, before in telling)
    scale = 1.0 + sum(abs(after) + abs(before) for after, before in telling)
    return layout if abs(read.fast_change - slow) <= _TOLERANCE * scale else layout._replace(density=General)


class _Densities(NamedTuple):
    """Log densities of a draw by site: its own, read again, relabelled; and their change as the fast path has it."""

    own: dict[str, Any]
    again: dict[str, Any]
    relabelled: dict[str, Any]
    fast_change: Any


def _read(guide: Any, trace: Trace, layout: Layout, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Densities:
    """Log densities of a draw, and of one relabelled.

    In one program: one by one, its operations take longer to compile than the whole.
    """
    values = {name: jnp.asarray(value) for name, value in latent_values(trace).items()}

    def everything(element: Element) -> _Densities:
        own = {name: jnp.sum(log_prob_of(site)) for name, site in trace.items() if site["type"] == "sample"}
        moved: Any = layout.apply(element, values)
        read = log_densities_at(guide, trace, (values, moved), args, kwargs)
        before, after = ({site: x[k] for site, x in read.items()} for k in range(2))
        if not layout.factorises:
            return _Densities(own, before, after, None)
        density, draw = density_of(guide, trace, layout, args, kwargs), draw_of(guide, trace, layout)
        return _Densities(own, before, after, density.log_ratio(layout.of_coordinates, draw, element))

    element = moving_everything(layout.of_coordinates)
    return jax.tree.map(float, compiled_quickly(everything, element)(element))


def refuse_another_structure(guide: Any, layout: Layout, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    r"""Refuse arguments with which a layout reads a wrong :math:`\log q(g\theta) - \log q(\theta)` off the guide.

    Which sites are independent, and which follow others, was seen with other arguments, on which a guide may branch.

    Raises
    ------
    UnsupportedGuideError
        If the guide has another layout with these arguments.
    """
    start = trace_model(guide, args, kwargs, jax.random.key(0))
    remedy = "Make a guide anew for them, AutoSymmetrized(...).setup(key, ...); the parameters may stay."
    if absent := [site for site in layout.symmetry.axes if site not in latent_values(start)]:
        raise UnsupportedGuideError(f"With these arguments the guide does not draw {absent}. {remedy}")

    def off(key: Array) -> Array:
        key_parameters, key_draw, key_element, key_moments = jax.random.split(key, 4)
        trace = trace_model(guide, args, kwargs, key_draw, perturbed(key_parameters, start))
        values, draw = latent_values(trace), draw_of(guide, trace, layout)
        density = density_of(guide, trace, layout, args, kwargs, key_moments)
        elements = moving_everything(layout.of_coordinates), layout.of_coordinates.sample(key_element)
        points: Any = [values, *(layout.apply(element, values) for element in elements)]
        at = log_densities_at(guide, trace, points, args, kwargs)
        ratios = jnp.stack([density.log_ratio(layout.of_coordinates, draw, element) for element in elements])
        scale = 1.0 + sum(abs(found[0]) for found in at.values())
        whole = sum((found[1:] - found[0] for found in at.values()), jnp.zeros(len(elements)))
        return (abs(ratios - whole) / scale).max()

    key, is_of_a_kind = jax.random.key(1), not layout.factorises or is_gaussian(guide, start, layout)
    if not (is_of_a_kind and float(in_double(off, key)(key)) <= _TOLERANCE_IN_DOUBLE):
        raise UnsupportedGuideError(
            "With these arguments other sites of the guide depend on one another, follow another's labels or are "
            f"Gaussian than where it was set up, so that its bounds would not hold. {remedy}"
        )
