"""Mutual information of one draw of a base guide: fast where its Gaussian factors are its density, general elsewhere.

Knows guides, traces and their coordinates; the estimators are in the layer below.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.entropy import information_of_draw, resolve_estimator
from numpyro_symmetry.guides.density import (
    Coordinates,
    Trace,
    coordinates_of,
    factors_of,
    latent_values,
    log_density_by_site,
)
from numpyro_symmetry.symmetry import Element

# SVI.init calls a guide eagerly, which would compile every operation apart
_of_factors = jax.jit(
    information_of_draw, static_argnames=("symmetry", "estimator", "num_permutations", "bound", "max_features")
)


def information_at(
    base: Any, layout: Coordinates, trace: Trace, args: tuple, kwargs: dict, *, rng_key: Array | None, **options: Any
) -> Array:
    """Mutual information of the draw in a base guide's trace, nats; options as in `information_of_draw`."""
    values = latent_values(trace)
    coordinates = coordinates_of(values, layout)
    if layout.factorises:
        factors = factors_of(None, base, trace, layout, args, kwargs)
        return _of_factors(layout.of_coordinates, factors, coordinates, rng_key=rng_key, **options)
    before = log_density_by_site(base, trace, values, args, kwargs)

    def log_ratio_of(element: Element) -> Array:
        moved: Any = layout.apply(element, values)
        after = log_density_by_site(base, trace, moved, args, kwargs)
        # site by site, so that what a relabelling leaves alone cancels exactly; what follows it would but for rounding
        telling = (site for site in before if site not in layout.following)
        return sum((after[site] - before[site] for site in telling), jnp.zeros(()))

    # enumeration needs no proposal, and so neither a key nor the draws that a surrogate's moments cost
    key_factors, rng_key = (None, None) if rng_key is None else jax.random.split(rng_key)
    factors = None if rng_key is None else factors_of(key_factors, base, trace, layout, args, kwargs)
    return information_of_draw(
        layout.of_coordinates, factors, coordinates, rng_key=rng_key, log_ratio_of=log_ratio_of, **options
    )


def draws_permutations(estimator: str, layout: Coordinates) -> bool:
    """Whether an estimator needs a random key."""
    if layout.factorises:
        return estimator in ("infonce", "importance")
    return resolve_estimator(estimator, layout.of_coordinates, exact_table=False) != "exact"
