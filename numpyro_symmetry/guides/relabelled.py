"""Draws of a guide under random labels, and what the model computes of them. Knows NumPyro and symmetries; no guide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax import Array
from numpyro import handlers
from numpyro.infer import Predictive

from numpyro_symmetry.models import Model, Trace, refuse_misfit
from numpyro_symmetry.symmetry import Symmetry

Draws = dict[str, Array]

# no split of a key reaches this index: one key makes the same draws with and without relabelling
_ELEMENT_STREAM = 2**31 - 1


def relabelled(
    rng_key: Array,
    draws: Draws,
    sample_shape: tuple[int, ...],
    symmetry: Symmetry,
    model: Model,
    model_trace: Trace,
    params: Mapping[str, Any],
) -> Draws:
    """Every draw by a uniformly random element; deterministic sites among them as the model computes them then.

    Raises
    ------
    TypeError
        If the model does not run with its arguments, and there are deterministic sites.
    """
    element = symmetry.sample(jax.random.fold_in(rng_key, _ELEMENT_STREAM), sample_shape)
    moved: Draws = symmetry.apply(element, draws)  # pyright: ignore[reportAssignmentType]
    computed = [name for name in draws if name in model_trace and model_trace[name]["type"] == "deterministic"]
    if not computed:
        return moved
    refuse_misfit(*model)
    latent = {name: value for name, value in moved.items() if name not in computed}
    again = Predictive(
        handlers.substitute(model.function, data=dict(params)),
        latent,
        return_sites=computed,
        batch_ndims=len(sample_shape),
    )
    return moved | again(rng_key, *model.args, **model.kwargs)
