"""Latent entries that a mask leaves without a density, so that a model's evidence counts them all. Knows traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import MaskedDistribution, constraints

from numpyro_symmetry.models.log_joint import LOOKED_AT
from numpyro_symmetry.models.programs import compiled, session_precision, traced
from numpyro_symmetry.models.sites import (
    Trace,
    entrywise,
    is_unconstrained,
    latent_of,
    layers,
    settings_of,
    without_wrappers,
)
from numpyro_symmetry.models.trace import trace_model
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import is_floating
from numpyro_symmetry.symmetry.shown import counted

# how far away the entries are tried: a branch of another site may well know of large values alone
_FAR = (1.0, -30.0, 30.0, 1e4)
# most entries that are also moved one by one: a density that reads one of them says nothing of the others
_MOST_ONE_BY_ONE = 32
# and discrete ones at so many more draws
_NUM_DRAWS = 9
# supports of finite volume, over which a density of one has an integral
_BOUNDED = (
    constraints.interval,
    *map(type, (constraints.simplex, constraints.sphere, constraints.l1_ball)),
    *map(type, (constraints.corr_matrix, constraints.corr_cholesky)),
)


def unread_entries(
    model: Callable, args: tuple[Any, ...], kwargs: Mapping[str, Any], trace: Trace, skipped: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Site -> real entries that model and guide leave without a density, and on which no other density depends.

    Steps of sequences that are padded, under one mask in both: the evidence is that of all other entries.

    Parameters
    ----------
    model, args, kwargs, trace
        The model, its arguments, and a trace of it.
    skipped
        Site -> which entries the guide leaves without one.
    """
    both = {name: skipped[name] & left_out(site) for name, site in latent_of(trace).items() if name in skipped}
    both = {
        name: mask for name, mask in both.items() if mask.any() and is_floating(jnp.result_type(trace[name]["value"]))
    }
    if not both:
        return {}
    is_read = _reader(model, args, kwargs, trace)
    draws = [trace, *(trace_model(model, args, dict(kwargs), jax.random.key(k)) for k in range(1, _NUM_DRAWS))]
    # NaN passes through every operation but a choice, and a choice may be made by large values alone
    return {
        name: mask for name, mask in both.items() if not any(is_read(name, mask, (jnp.nan, *_FAR), at) for at in draws)
    }


def refuse_without_prior(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    trace: Trace,
    spared: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> None:
    """Refuse a model with entries that nothing is known of: they are masked, and no other density depends on them.

    NumPyro's ``obs_mask`` makes a latent site of all of a site's entries, and masks those that were observed. A mask
    around a discrete site and its data leaves a sum of ones: as many as it has values, for each entry.

    Raises
    ------
    SymmetryError
        If there are such entries, other than those that are ``spared``.
    """
    latent = latent_of(trace)
    masked = {name: left_out(site) & ~spared.get(name, np.False_) for name, site in latent.items()}
    masked = {name: mask for name, mask in masked.items() if mask.any()}
    values_of = {name: _values(latent[name]) for name in masked}
    masked = {name: mask for name, mask in masked.items() if values_of[name] or _is_endless(latent[name])}
    if not masked:
        return
    other, is_read = trace_model(model, args, dict(kwargs), jax.random.key(1)), _reader(model, args, kwargs, trace)
    for name, mask in masked.items():
        there, is_real = jnp.asarray(other[name]["value"]), is_unconstrained(trace[name]["fn"].support)
        points = values_of[name] or [(far if is_real else abs(far)) * there for far in _FAR]
        each = [np.arange(mask.size).reshape(mask.shape) == k for k in np.flatnonzero(mask)[:_MOST_ONE_BY_ONE]]
        unread = [entries for entries in (mask, *each) if not is_read(name, entries, points, trace)]
        if unread and values_of[name]:
            # a discrete entry has no infinite volume: if it is read at some draws alone, its sum may well be right
            draws = [trace_model(model, args, dict(kwargs), jax.random.key(k)) for k in range(2, 2 + _NUM_DRAWS)]
            unread = [entries for entries in unread if not any(is_read(name, entries, points, at) for at in draws)]
        if unread:
            numbers = [int(entries.sum()) for entries in unread]
            raise SymmetryError(_of_unread(name, mask, numbers, len(values_of[name]), trace))


def _reader(
    model: Callable, args: tuple[Any, ...], kwargs: Mapping[str, Any], trace: Trace
) -> Callable[[str, np.ndarray, Iterable[Any], Trace], bool]:
    """A function: whether any density changes if some entries of a site are set to values, at a draw of all sites."""
    settings, latent = settings_of(trace), latent_of(trace)

    def densities(values: Mapping[str, Any]) -> list[Any]:
        found = trace_model(model, args, dict(kwargs), jax.random.key(0), {**settings, **values})
        return [jnp.sum(site["fn"].log_prob(site["value"])) for site in found.values() if site["type"] == "sample"]

    def values(at: Trace) -> dict[str, Any]:
        return {site: at[site]["value"] for site in latent}

    try:
        # data are arguments of the program: with constants XLA would compute while it compiles
        evaluated = compiled(traced(densities, values(trace), precision=session_precision()))
    except LOOKED_AT:  # a model that looks at values is evaluated step by step
        evaluated = densities

    def is_read(name: str, entries: np.ndarray, points: Iterable[Any], at: Trace) -> bool:
        given = values(at)
        before, here = evaluated(given), jnp.asarray(given[name])
        return any(not np.array_equal(before, evaluated({**given, name: jnp.where(entries, x, here)})) for x in points)

    return is_read


def _of_unread(name: str, mask: np.ndarray, unread: list[int], num_values: int, trace: Trace) -> str:
    """The message about a site with entries of which nothing is known."""
    some, whole = "them" if unread[0] == mask.sum() else f"{len(unread)} of them", name.removesuffix("_unobserved")
    is_by_obs_mask = f"{whole}_observed" in trace
    left = f"a mask leaves {int(mask.sum())} of {counted(mask.size, 'entry')} of the"
    if not num_values:
        remedy = (
            f"obs_mask makes this site: sum what is missing out instead, numpyro.sample({whole!r}, fn.mask(seen), "
            "obs=...)."
            if is_by_obs_mask
            else "Let the model draw those that it has a prior for alone."
        )
        return (
            f"The evidence is infinite: {left} latent site {name!r} without a prior, and no other site depends on "
            f"{some}. {remedy}"
        )
    remedy = (
        "obs_mask makes this site: give the rows that were seen and those that were not a site each."
        if is_by_obs_mask
        else "Mask the observed site alone, fn.mask(seen): where it is masked, a discrete site's prior sums to one."
    )
    return (
        f"The evidence would count all {num_values} values of each entry: {left} discrete latent site {name!r} without "
        f"a prior, and no other site depends on {some}: log {num_values} nats too much for each. {remedy}"
    )


def is_masked(site: Any) -> bool:
    """Whether there is a mask on a site, whatever it leaves out."""
    return isinstance(without_wrappers(site["fn"]), MaskedDistribution)


def left_out(site: Any) -> np.ndarray:
    """Which entries of a site a mask leaves without a density."""
    left_out = np.zeros((), bool)
    for fn in layers(site["fn"]):
        if isinstance(fn, MaskedDistribution):
            mask = np.asarray(fn._mask)
            left_out = left_out | ~mask.reshape(mask.shape + (1,) * (fn.event_dim if mask.ndim else 0))
    return np.broadcast_to(left_out, np.shape(site["value"]))


def _values(site: Any) -> list[Any]:
    """The values that an entry of a discrete site may have; empty for any other site."""
    *_, fn = layers(site["fn"])
    try:
        return list(fn.enumerate_support(expand=False).ravel()) if fn.has_enumerate_support else []
    except NotImplementedError:  # of entries with values of their own, which nothing sums out either
        return []


def _is_endless(site: Any) -> bool:
    """Whether a continuous support has infinite volume: over others the integral of a density of one is finite."""
    support = entrywise(site["fn"].support)
    return not support.is_discrete and not isinstance(support, _BOUNDED)
