"""Mutual information of one draw of a base guide, and the site by which it enters an ELBO.

Knows guides, traces and their layout; the estimators are in the layer below.
"""

from __future__ import annotations

from typing import Any

import jax
import numpyro
import numpyro.distributions as dist
from jax import Array

from numpyro_symmetry.entropy import information, needs_key
from numpyro_symmetry.entropy.of_draw import AnyEstimator
from numpyro_symmetry.guides.symmetrized.layout import Layout, density_of, draw_of
from numpyro_symmetry.models import Trace

# SVI.init calls a guide eagerly, which would compile every operation apart
_of_factors = jax.jit(
    information, static_argnames=("symmetry", "estimator", "num_permutations", "bound", "max_features")
)


class LogFactor(dist.Unit):
    """A `Unit` that TraceGraph_ELBO differentiates: it stops gradients of sites that claim no reparametrisation."""

    reparametrized_params: list[str] = ["log_factor"]


def key_for(estimator: AnyEstimator, layout: Layout) -> Array | None:
    """A random key of the seed around a guide if the information of its draws takes one, else ``None``.

    Raises
    ------
    ValueError
        If it takes one, and nothing seeds the guide.
    """
    if not needs_key(estimator, layout.of_coordinates, layout.density):
        return None
    key = numpyro.prng_key()
    if key is None:
        raise ValueError(
            "The information of a draw takes random numbers, and nothing seeds the guide: call "
            "handlers.seed(guide, rng_seed=0)."
        )
    return key


def information_at(
    base: Any,
    layout: Layout,
    trace: Trace,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rng_key: Array | None,
    *,
    once: bool = False,
    **options: Any,
) -> Array:
    """Mutual information of the draw in a base guide's trace, nats; options as in `information`.

    A draw that is the first, by `SVI.init`, is eager, and its operations would each be compiled apart: ``once`` makes
    them one program, which no later call would find again.
    """
    draw = draw_of(base, trace, layout)
    if layout.factorises:
        density = density_of(base, trace, layout, args, kwargs)
        return _of_factors(density, layout.of_coordinates, draw, rng_key=rng_key, **options)
    # enumeration proposes nothing, and so needs neither a key nor the draws that a surrogate's moments cost
    key_moments, rng_key = (None, None) if rng_key is None else jax.random.split(rng_key)

    def of_any(key_moments: Array | None, rng_key: Array | None) -> Array:
        density = density_of(base, trace, layout, args, kwargs, key_moments)
        return information(density, layout.of_coordinates, draw, rng_key=rng_key, **options)

    return (jax.jit(of_any) if once else of_any)(key_moments, rng_key)
