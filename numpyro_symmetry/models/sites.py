"""What a site of a trace is: latent, observed, a setting; and what its distribution and support are under wrappers.

Sites are NumPyro's messages, by name. Nothing is run here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from numpyro import distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import IndependentTransform

Trace = Mapping[str, Any]


def drawn_shape(site: Mapping[str, Any]) -> tuple[int, ...]:
    """Shape of a value of a sample site, as many independent ones as ``sample_shape`` asks for."""
    return (*site["kwargs"].get("sample_shape", ()), *site["fn"].shape())


def is_latent(site: Any) -> bool:
    """Whether a site is drawn, and not observed."""
    return site["type"] == "sample" and not site["is_observed"]


def is_observed(site: Any) -> bool:
    """Whether a site holds data, or is a factor."""
    return site["type"] == "sample" and site["is_observed"]


def latent_of(trace: Trace) -> dict[str, Any]:
    """Latent sites of a trace."""
    return {name: site for name, site in trace.items() if is_latent(site)}


def observed_of(trace: Trace) -> dict[str, Any]:
    """Observed sites of a trace."""
    return {name: site for name, site in trace.items() if is_observed(site)}


def discrete_of(trace: Trace) -> list[str]:
    """Discrete latent sites of a trace."""
    return [name for name, site in latent_of(trace).items() if site["fn"].support.is_discrete]


def is_fitted(site: Any) -> bool:
    """Whether a site is a parameter, or mutable state."""
    return site["type"] in ("param", "mutable")


def settings_of(trace: Trace) -> dict[str, Any]:
    """Values that a model's run needs beside its latent ones: of parameters, mutable state, plates."""
    return {name: site["value"] for name, site in trace.items() if is_fitted(site) or site["type"] == "plate"}


# ---- under wrappers --------------------------------------------------------------------------------------------------


def without_wrappers(fn: Any) -> Any:
    """A distribution without the wrappers that only declare its shape."""
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    return fn


def entrywise(wrapped: Any) -> Any:
    """A support, or a transform, without the wrappers that only declare event dimensions."""
    while isinstance(wrapped, constraints.independent):
        wrapped = wrapped.base_constraint
    while isinstance(wrapped, IndependentTransform):
        wrapped = wrapped.base_transform
    return wrapped


def is_same(one: Any, other: Any) -> bool:
    """Whether two constraints, or two transforms, agree: NumPyro's equality is false of arrays that are alike."""
    if one == other:
        return True
    (first, kind), (second, other_kind) = jax.tree.flatten(one), jax.tree.flatten(other)
    if kind != other_kind or any(isinstance(leaf, Tracer) for leaf in (*first, *second)):
        return False
    return all(np.array_equal(*pair) for pair in zip(first, second, strict=True))


def real_event(event_dim: int) -> Any:
    """The support of events of any real numbers."""
    return constraints.independent(constraints.real, event_dim) if event_dim else constraints.real


def is_improper(fn: Any) -> bool:
    """Whether a distribution is flat on its support, and has no draws."""
    return isinstance(without_wrappers(fn), dist.ImproperUniform)


def is_ordered(support: Any) -> bool:
    """Whether a support is that of values in increasing order."""
    return entrywise(support) in (constraints.ordered_vector, constraints.positive_ordered_vector)


def is_unconstrained(support: Any) -> bool:
    """Whether a support is that of any real numbers."""
    return entrywise(support) is constraints.real


def is_interval(support: Any) -> bool:
    """Whether a support is that of real numbers between two bounds."""
    return isinstance(entrywise(support), constraints.interval)
