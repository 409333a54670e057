"""Draws of a guide under random labels, and what the model computes of them.

Knows a symmetrized guide that is set up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax import Array
from numpyro import handlers
from numpyro.infer import Predictive

from numpyro_symmetry.models import refuse_misfit
from numpyro_symmetry.models.compat import predicted

Draws = dict[str, Array]

# no split of a key reaches this index: one key makes the same draws with and without relabelling
_ELEMENT_STREAM = 2**31 - 1


def relabelled(
    guide: Any,
    rng_key: Array,
    draws: Draws,
    sample_shape: tuple[int, ...],
    params: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Draws:
    """Draws of a guide that is set up, each by a random element; what the model computes of them is computed again.

    Raises
    ------
    TypeError
        If the model does not run with its arguments, and there are deterministic sites.
    """
    symmetry, trace = guide.layout.symmetry, guide.model_trace
    element = symmetry.sample(jax.random.fold_in(rng_key, _ELEMENT_STREAM), sample_shape)
    moved: Draws = symmetry.apply(element, draws)
    computed = [name for name in draws if name in trace and trace[name]["type"] == "deterministic"]
    if not computed or 0 in sample_shape:
        return moved
    try:
        refuse_misfit(guide.model, args, kwargs)
    except TypeError as error:
        raise TypeError(
            f"Deterministic sites {sorted(computed)} are computed again from relabelled draws, by the model with its "
            f"arguments: sample_posterior(rng_key, params, *model_args, symmetrize=True). {error}"
        ) from None
    latent = {name: value for name, value in moved.items() if name not in computed}
    again = Predictive(
        handlers.substitute(guide.model, data=dict(params)),
        latent,
        return_sites=computed,
        batch_ndims=len(sample_shape),
    )
    return moved | predicted(again, rng_key, *args, **kwargs)
