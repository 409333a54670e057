"""A model run at given values, as guides run it: its trace there, and its parameters moved. Knows no guide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from numpyro.primitives import Messenger

from numpyro_symmetry.models.reach import dependencies
from numpyro_symmetry.models.sites import Trace, drawn_shape, is_fitted, settings_of
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


def left_to_chance(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    trace: Trace,
    place: Mapping[str, Any],
    is_drawn: Callable[[Any], bool] = lambda leaf: False,
) -> list[str]:
    """Sample sites whose distributions differ from run to run where parameters and all latent sites are given.

    ``is_drawn`` tells which arrays of mutable state differ as well.
    """
    plates = {name: site["value"] for name, site in trace.items() if site["type"] == "plate"}
    leaves, structure = jax.tree.flatten(dict(place))
    drawn = {str(k): leaf for k, leaf in enumerate(leaves) if is_drawn(leaf)}

    def distributions(given: dict[str, Any]) -> dict[str, Any]:
        held = jax.tree.unflatten(structure, [given.get(str(k), leaf) for k, leaf in enumerate(leaves)])
        found = trace_given(model, args, kwargs, plates | held, seed=given["key"])
        return {name: jax.tree.leaves(site["fn"]) for name, site in found.items() if site["type"] == "sample"}

    return [name for name, read in dependencies(distributions, {"key": jax.random.key(0)} | drawn).items() if read]


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
    given = settings_of(trace)
    transforms = {name: _transform(site) for name, site in trace.items() if site["type"] == "param"}
    free = {name: jax.tree.map(partial(_free, transform), given[name]) for name, transform in transforms.items()}
    # all at once, as each call for random numbers takes long to compile
    flat, unravel = ravel_pytree(free)
    moved = unravel(flat + _SPREAD * (1.0 + jnp.abs(flat)) * jax.random.normal(key, flat.shape, flat.dtype))
    for name, transform in transforms.items():
        given[name] = jax.tree.map(
            lambda old, new, transform=transform: old if new is None else transform(new), given[name], moved[name]
        )
    return given


def _transform(site: Any) -> Any:
    # a parameter that is a pytree, of a network, has no constraint of its own
    is_array = len(jax.tree.leaves(site["value"])) == 1
    return biject_to(site["kwargs"].get("constraint", constraints.real) if is_array else constraints.real)


def _free(transform: Any, leaf: Any) -> Any:
    """The unconstrained value that a transform takes to a parameter; ``None`` for whole numbers."""
    is_real = jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
    return inverse(transform, jnp.asarray(leaf)) if is_real else None
