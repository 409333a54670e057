"""A model run inside a guide, at given values. Knows traces of models; no guide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from numpyro import handlers
from numpyro.primitives import Messenger

from numpyro_symmetry.models import Trace, is_fitted


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


def parameters(trace: Trace) -> dict[str, Any]:
    """Values of a trace's parameters and mutable state."""
    return {name: site["value"] for name, site in trace.items() if is_fitted(site)}
