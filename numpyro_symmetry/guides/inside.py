"""A model run inside a guide, at given values. Knows traces of models; no guide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from numpyro.primitives import Messenger

from numpyro_symmetry.models import Trace, drawn_shape, is_fitted
from numpyro_symmetry.models.unconstrained import inverse

# parameters are moved by so much of one plus their size
_SPREAD = 0.3


def trace_given(
    model: Callable, args: tuple[Any, ...], kwargs: Mapping[str, Any], data: Mapping[str, Any], *, seed: Any = 0
) -> Trace:
    """Trace of a model at given values; only parameters and state of it that are not given are seen outside."""
    with (
        handlers.block(hide_fn=lambda site: not is_fitted(site) or site["name"] in data),
        handlers.trace() as trace,
        handlers.seed(rng_seed=seed),
        handlers.substitute(data=dict(data)),
        _StateAside(),
    ):
        model(*args, **kwargs)
    return trace


class _StateAside(Messenger):
    """Mutable state is read, and what a run makes of it stays inside: a guide runs its model more than once a step."""

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "mutable":
            # as many containers, and the same arrays
            msg["value"] = jax.tree.map(lambda leaf: leaf, msg["value"])

    postprocess_message = process_message


class Without:
    """A model some of whose sites stay at their prior means and are not seen."""

    def __init__(self, model: Callable, sites: tuple[str, ...]) -> None:
        self.model, self.sites = model, sites

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""

        def at_mean(site: Any) -> Any:
            if site["type"] != "sample" or site["name"] not in self.sites:
                return None
            return jnp.broadcast_to(site["fn"].mean, drawn_shape(site))

        with handlers.block(hide=list(self.sites)), handlers.substitute(substitute_fn=at_mean):
            return self.model(*args, **kwargs)


def parameters(trace: Trace) -> dict[str, Any]:
    """Values of a trace's parameters and mutable state."""
    return {name: site["value"] for name, site in trace.items() if is_fitted(site)}


def perturbed(key: Array, trace: Trace) -> dict[str, Any]:
    """Parameters of a trace moved at random within their constraints; mutable state and plates as they are."""
    data = {}
    for k, (name, site) in enumerate(trace.items()):
        if site["type"] == "param":
            constraint = site["kwargs"].get("constraint", constraints.real)
            data[name] = _perturbed(jax.random.fold_in(key, k), site["value"], constraint)
        elif site["type"] in ("plate", "mutable"):
            data[name] = site["value"]
    return data


def _perturbed(key: Array, value: Any, constraint: Any) -> Any:
    leaves, structure = jax.tree.flatten(value)
    # a parameter that is a pytree, of a network, has no constraint of its own
    transform = biject_to(constraint) if len(leaves) == 1 else biject_to(constraints.real)

    def one(key: Array, leaf: Any) -> Any:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            return leaf
        free = inverse(transform, jnp.asarray(leaf))
        return transform(free + _SPREAD * (1.0 + jnp.abs(free)) * jax.random.normal(key, free.shape, free.dtype))

    keys = jax.random.split(key, max(1, len(leaves)))
    return jax.tree.unflatten(structure, [one(k, leaf) for k, leaf in zip(keys, leaves, strict=False)])
