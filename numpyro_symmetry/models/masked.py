"""Latent entries that a mask leaves without a density, so that a model's evidence is infinite. Knows traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from numpyro.distributions import MaskedDistribution

from numpyro_symmetry.models.sites import Trace, latent_of, settings_of
from numpyro_symmetry.models.trace import trace_model
from numpyro_symmetry.symmetry import SymmetryError


def refuse_infinite_evidence(model: Callable, args: tuple[Any, ...], kwargs: Mapping[str, Any], trace: Trace) -> None:
    """Refuse a model with entries that nothing is known of: they are masked, and no other density depends on them.

    NumPyro's ``obs_mask`` makes a latent site of all of a site's entries, and masks those that were observed.

    Raises
    ------
    SymmetryError
        If there are such entries.
    """
    masked = {name: mask for name, site in latent_of(trace).items() if (mask := _left_out(site)).any()}
    if not masked:
        return
    other = trace_model(model, args, dict(kwargs), jax.random.key(1))
    given = settings_of(trace) | {name: site["value"] for name, site in latent_of(trace).items()}

    def densities(values: Mapping[str, Any]) -> list[Any]:
        found = trace_model(model, args, dict(kwargs), jax.random.key(0), {**given, **values})
        return [np.sum(site["fn"].log_prob(site["value"])) for site in found.values() if site["type"] == "sample"]

    for name, mask in masked.items():
        moved = {name: np.where(mask, np.asarray(other[name]["value"]), np.asarray(trace[name]["value"]))}
        if np.array_equal(densities({}), densities(moved)):
            whole = name.removesuffix("_unobserved")
            remedy = (
                f"obs_mask makes this site: sum what is missing out instead, numpyro.sample({whole!r}, fn.mask(seen), "
                "obs=...)."
                if f"{whole}_observed" in trace
                else "Let the model draw those that it has a prior for alone."
            )
            raise SymmetryError(
                f"The evidence is infinite: a mask leaves {int(mask.sum())} of {mask.size} entries of the latent site "
                f"{name!r} without a prior, and no other site depends on them. {remedy}"
            )


def _left_out(site: Any) -> np.ndarray:
    """Which entries of a latent site have no density."""
    shape, fn, left_out = np.shape(site["value"]), site["fn"], np.zeros((), bool)
    while fn is not None:
        if isinstance(fn, MaskedDistribution):
            mask = np.asarray(fn._mask)
            left_out = left_out | ~mask.reshape(mask.shape + (1,) * (fn.event_dim if mask.ndim else 0))
        fn = getattr(fn, "base_dist", None)
    return np.broadcast_to(left_out, shape)
