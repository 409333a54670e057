"""Latent entries that a mask leaves without a density, so that a model's evidence counts them all. Knows traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import ExpandedDistribution, Independent, MaskedDistribution, constraints

from numpyro_symmetry.models.sites import Trace, entrywise, is_unconstrained, latent_of, settings_of
from numpyro_symmetry.models.trace import trace_model
from numpyro_symmetry.symmetry import SymmetryError

# how far away the entries are tried: a branch of another site may well know of large values alone
_FAR = (1.0, -30.0, 30.0, 1e4)
# so many entries are also moved one by one: what reads one of them says nothing of the others
_MOST_ONE_BY_ONE = 32


def refuse_infinite_evidence(model: Callable, args: tuple[Any, ...], kwargs: Mapping[str, Any], trace: Trace) -> None:
    """Refuse a model with entries that nothing is known of: they are masked, and no other density depends on them.

    NumPyro's ``obs_mask`` makes a latent site of all of a site's entries, and masks those that were observed. A mask
    around a discrete site and its data leaves a sum of ones: as many as it has values, for each entry.

    Raises
    ------
    SymmetryError
        If there are such entries.
    """
    latent = latent_of(trace)
    values_of = {name: _values(site) for name, site in latent.items()}
    masked = {
        name: mask
        for name, site in latent.items()
        if (_is_endless(site) or len(values_of[name])) and (mask := _left_out(site)).any()
    }
    if not masked:
        return
    other = trace_model(model, args, dict(kwargs), jax.random.key(1))
    given = settings_of(trace) | {name: site["value"] for name, site in latent.items()}

    def densities(values: Mapping[str, Any]) -> list[Any]:
        found = trace_model(model, args, dict(kwargs), jax.random.key(0), {**given, **values})
        return [np.sum(site["fn"].log_prob(site["value"])) for site in found.values() if site["type"] == "sample"]

    before = densities({})
    for name, mask in masked.items():
        here, there = (jnp.asarray(values[name]["value"]) for values in (trace, other))
        points = values_of[name] or [
            far * there if is_unconstrained(trace[name]["fn"].support) else abs(far) * there for far in _FAR
        ]
        each = [np.arange(mask.size).reshape(mask.shape) == k for k in np.flatnonzero(mask)[:_MOST_ONE_BY_ONE]]
        unread = [
            int(some.sum())
            for some in (mask, *each)
            if all(np.array_equal(before, densities({name: jnp.where(some, point, here)})) for point in points)
        ]
        if unread:
            some = "them" if unread[0] == mask.sum() else f"{len(unread)} of them"
            if count := len(values_of[name]):
                raise SymmetryError(
                    f"The evidence would count all {count} values of each entry: a mask leaves {int(mask.sum())} of "
                    f"{mask.size} entries of the discrete latent site {name!r} without a prior, and no other site "
                    f"depends on {some}: log {count} nats too much for each. Mask the observed site alone, "
                    "fn.mask(seen): where it is masked, the prior of a discrete site sums to one."
                )
            whole = name.removesuffix("_unobserved")
            remedy = (
                f"obs_mask makes this site: sum what is missing out instead, numpyro.sample({whole!r}, fn.mask(seen), "
                "obs=...)."
                if f"{whole}_observed" in trace
                else "Let the model draw those that it has a prior for alone."
            )
            raise SymmetryError(
                f"The evidence is infinite: a mask leaves {int(mask.sum())} of {mask.size} entries of the latent site "
                f"{name!r} without a prior, and no other site depends on {some}. {remedy}"
            )


def _left_out(site: Any) -> np.ndarray:
    """Which entries of a latent site have no density."""
    shape, fn, left_out = np.shape(site["value"]), site["fn"], np.zeros((), bool)
    while isinstance(fn, MaskedDistribution | Independent | ExpandedDistribution):
        if isinstance(fn, MaskedDistribution):
            mask = np.asarray(fn._mask)
            left_out = left_out | ~mask.reshape(mask.shape + (1,) * (fn.event_dim if mask.ndim else 0))
        fn = fn.base_dist
    return np.broadcast_to(left_out, shape)


def _values(site: Any) -> list[Any]:
    """What an entry of a discrete site may be."""
    fn = site["fn"]
    while isinstance(fn, MaskedDistribution | Independent | ExpandedDistribution):
        fn = fn.base_dist
    return list(fn.enumerate_support(expand=False).ravel()) if fn.has_enumerate_support else []


def _is_endless(site: Any) -> bool:
    """Whether a support is of infinite volume: over others a density of one has an integral."""
    return isinstance(entrywise(site["fn"].support), type(constraints.real) | type(constraints.greater_than(0.0)))
