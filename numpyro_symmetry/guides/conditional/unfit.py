"""Base guides, models and inducing inputs of which `AutoConditional` can make no conditional, and why it refuses them.

Knows traces of models; neither where conditionals come from nor guides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide, AutoGuideList, AutoLaplaceApproximation

from numpyro_symmetry.guides.linear.affine import Trace
from numpyro_symmetry.guides.linear.likelihoods import observation
from numpyro_symmetry.guides.linear.priors import FAMILIES, eligible
from numpyro_symmetry.models import drawn_shape, is_subsampled, observed_of, weight_of
from numpyro_symmetry.models.given_values import left_to_chance, parameters, trace_given
from numpyro_symmetry.symmetry import SymmetryError, UnsupportedGuideError, warn
from numpyro_symmetry.symmetry.arguments import as_count, as_real_array
from numpyro_symmetry.symmetry.shown import counted

AROUND_LISTS = (
    "Where other guides of an AutoGuideList draw what is missing, put the conditional around the whole list, in place "
    "of one in it: AutoConditional(guides)."
)


def refuse_base_guides(guide: Any) -> None:
    """Refuse values that are no guide, and guides that cannot be restricted to fewer sites."""
    if isinstance(guide, type):
        raise TypeError(
            f"base_guide must be a guide; got the class {guide.__name__}. Pass an instance of it: "
            f"AutoConditional({guide.__name__}(model))."
        )
    if not callable(guide):
        raise TypeError(f"base_guide must be a guide, such as AutoNormal(model); got {guide!r}.")
    if hasattr(guide, "elbo_bounds"):
        raise UnsupportedGuideError(
            f"{type(guide).__name__} goes around: AutoSymmetrized(AutoConditional(base_guide)). Within, the sites that "
            "follow would not be relabelled."
        )
    if isinstance(guide, AutoLaplaceApproximation):
        raise UnsupportedGuideError(
            "AutoLaplaceApproximation is a point mass while it trains, and its own draws afterwards leave out the "
            "sites that follow: use AutoMultivariateNormal, or AutoDelta for the point."
        )
    if getattr(guide, "prototype_trace", None) is not None and not isinstance(guide, AutoGuideList):
        raise UnsupportedGuideError(
            "The base guide is set up already, for all sites of the model. Pass AutoConditional a new one."
        )
    is_restricted = any(hasattr(guide, name) for name in ("init_loc_fn", "parts")) or isinstance(guide, AutoGuideList)
    if isinstance(guide, AutoGuide) and not is_restricted:
        raise UnsupportedGuideError(
            f"{type(guide).__name__} cannot be restricted to the sites that are left: pass a guide by hand that draws "
            "those alone, AutoConditional(base_guide, sites, model=model)."
        )


def checked_inducing(inducing: Any) -> Any:
    """Inducing inputs as they were asked for: a count, an array, or arrays by argument.

    Raises
    ------
    TypeError, ValueError, SymmetryError
        If they are no whole number, no rows of finite numbers, or none at all.
    """
    if inducing is None:
        return None
    if isinstance(inducing, Mapping):
        if not inducing:
            raise ValueError("inducing is an empty mapping; name arguments of the model, {'x': x[:100]}.")
        return {name: _rows(value, f"inducing[{name!r}]") for name, value in inducing.items()}
    return as_count(inducing, "inducing") if np.isscalar(inducing) else _rows(inducing, "inducing")


def _rows(value: Any, where: str) -> Any:
    array = as_real_array(value, where)
    if array.ndim == 0 or array.shape[0] == 0:
        raise ValueError(f"{where} must hold one row at least; its shape is {array.shape}.")
    if not bool(np.isfinite(np.asarray(array)).all()):
        raise ValueError(f"{where} holds values that are not finite.")
    return array


def refuse_sites(asked: Sequence[str], latent: Mapping[str, Any]) -> None:
    """Refuse names that are no latent sites, or whose prior is no Gaussian."""
    if unknown := [site for site in asked if site not in latent]:
        raise SymmetryError(f"sites names {unknown}, but the model's latent sites are {sorted(latent)}.")
    if unfit := [site for site in asked if not eligible(latent[site])]:
        raise SymmetryError(
            f"Sites {unfit} have no Gaussian prior ({FAMILIES}) that is neither masked nor scaled, and so no Gaussian "
            "conditional: leave them to the base guide."
        )


def refuse_held(sites: Sequence[str], places: Sequence[Mapping[str, Any]]) -> None:
    """Refuse sites that are the same at all draws from the prior: a model would look linear in them, whatever it is."""

    def is_held(site: str) -> bool:
        first, *others = (np.asarray(place[site]) for place in places)
        return bool(first.size) and all(np.array_equal(first, other) for other in others)

    if held := [site for site in sites if is_held(site)]:
        raise SymmetryError(
            f"Sites {held} have the same values at every draw from the prior: the model brings a random key of its own "
            "(handlers.seed), or values (handlers.substitute), so that nothing could be told of what depends on them. "
            "Pass it without, or as handlers.condition(model, data=values)."
        )


def refuse_models(trace: Trace, latent: Mapping[str, Any]) -> None:
    """Refuse models without data, with data that is not there, or with discrete sites."""
    observed = observed_of(trace)
    if not any(np.size(site["value"]) for site in observed.values()):
        raise SymmetryError(
            "The model has no observed site with any values, so there is nothing to condition on. Set the guide up "
            "with its data."
        )
    for name, site in latent.items():
        if site["fn"].support.is_discrete:
            raise SymmetryError(f"Site {name!r} is discrete: sum it out in the model first, by a mixture.")
    for name, site in observed.items():
        _refuse_values(name, site)


def _refuse_values(name: str, site: Any) -> None:
    came, expected = jnp.shape(site["value"]), drawn_shape(site)
    try:
        fits = np.broadcast_shapes(came, expected) == came
    except ValueError:
        fits = False
    if not fits:
        raise SymmetryError(
            f"Observed site {name!r} has values of shape {came}, and its distribution has shape {expected}, which "
            "would stretch them. Give them the distribution's shape."
        )
    if (seen := observation(site)) is None:
        return
    weight = np.asarray(seen.entry_weight)
    counts = np.broadcast_to(weight[..., 0] if seen.kind.has_outputs else weight, came) > 0
    if number := int((counts & ~np.isfinite(np.asarray(site["value"], float))).sum()):
        raise SymmetryError(
            f"Observed site {name!r} holds {counted(number, 'value', 'that is', 'that are')} not finite. Leave missing "
            "ones out by a mask: numpyro.handlers.mask(mask=jnp.isfinite(y))."
        )
    fitted = np.asarray(seen.fitted).reshape(*came, -1)
    if number := int((counts & ~np.isfinite(fitted).all(-1)).sum()):
        raise SymmetryError(
            f"Observed site {name!r} holds {counted(number, 'value')} outside of its support, {site['fn'].support}, or "
            f"at its limit, where no {seen.kind.noun} fits them. Leave them out by a mask: "
            "numpyro.handlers.mask(mask=y > 0)."
        )


def refuse_subsampled(trace: Trace) -> None:
    """Refuse a batch as the data of an exact conditional."""
    for name, site in trace.items():
        if is_subsampled(site):
            raise SymmetryError(
                f"Plate {name!r} is subsampled, {site['args'][1]} of {site['args'][0]}: a conditional made from the "
                "batch on which it is scored bounds nothing. Pass all of the data, or inducing inputs: "
                "AutoConditional(base_guide, inducing=100)."
            )


def warn_of_weighed_rows(trace: Trace) -> None:
    """Warn of data that one number above one weighs, as a batch without a plate is weighed."""
    for name, site in observed_of(trace).items():
        weight = weight_of(site)
        if np.ndim(weight) == 0 and weight > 1.0:
            warn(
                f"handlers.scale weighs observed site {name!r} by {float(weight):g}. If its rows stand for others that "
                "are not shown, a conditional made from the batch on which it is scored bounds nothing: pass all data, "
                "or inducing inputs, AutoConditional(base_guide, inducing=100). If each row was seen so often, give "
                "handlers.scale an array of a weight by row, of which nothing is said."
            )


def refuse_lost_state(model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], trace: Trace) -> None:
    """Refuse models that cannot start with the parameters of a guide, and without its mutable state."""
    if not (state := sorted(name for name, site in trace.items() if site["type"] == "mutable")):
        return
    try:
        with handlers.block():
            trace_given(model, args, kwargs, {k: v for k, v in parameters(trace).items() if k not in state})
    except AssertionError:
        raise UnsupportedGuideError(
            f"The model's mutable state {state} and its parameters start together or not at all, as those of "
            "flax_module(..., mutable=) do; SVI.init hands it the parameters of a guide that runs the model, as a "
            "conditional one does, and no state. Write the network in flax.nnx (random_nnx_module), or normalise "
            "without running averages (LayerNorm, GroupNorm)."
        ) from None


def refuse_chance(
    model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], trace: Trace, place: Mapping[str, Any]
) -> None:
    """Refuse models that draw what no guide sees, such as sites that are hidden by `block`."""
    for name in left_to_chance(model, args, kwargs, trace, place):
        if name in observed_of(trace):
            raise SymmetryError(
                f"The distribution of {name!r} is left to chance at given latent sites: the model hides a site of its "
                "own (handlers.block), or draws random numbers (dropout). Sum a discrete site out in the model first, "
                f"by a mixture; leave random numbers out. {AROUND_LISTS}"
            )
