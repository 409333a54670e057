"""Where the units of a model's sites lie. Knows symmetries and traces of models; no guide."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp

from numpyro_symmetry.models import entrywise, latent_of, subsampled_plates
from numpyro_symmetry.symmetry import Symmetry, Unsigned
from numpyro_symmetry.symmetry.axes import Whole, names_in, padded


class Place(NamedTuple):
    """Where the units of a site lie: the group, the axis counted from the right, and how many numbers each has."""

    group: str
    axis: int
    numbers: int


def places_of(symmetry: Symmetry, trace: dict[str, Any]) -> dict[str, Place]:
    """Latent site of a model's trace that can be part of units -> where these lie in it."""
    found = {site: _place(site, symmetry, trace) for site in latent_of(trace)}
    return {site: place for site, place in found.items() if place is not None}


def _place(site: str, symmetry: Symmetry, trace: dict[str, Any]) -> Place | None:
    """Where the units of a site lie; ``None`` if it can be part of none."""
    message = trace[site]
    shape = jnp.shape(message["value"])
    entries = padded(symmetry.axes.get(site, ()), len(shape))
    # the one unit of a sign of whole sites is told from no other
    entries = [entry for entry in entries if not isinstance(entry, Whole)]
    moved = [(position, entry) for position, entry in enumerate(entries) if entry is not None and names_in([entry])]
    if not moved or len(entries) != len(shape) or entrywise(message["fn"].support).event_dim:
        return None
    position, entry = moved[-1]
    name = entry.group if isinstance(entry, Unsigned) else entry
    if not isinstance(name, str) or name not in symmetry.groups or subsampled_plates(trace, site):
        return None
    group = symmetry.groups[name]
    if group.orbits is not None or group.over:
        return None
    return Place(name, position - len(shape), math.prod(shape) // shape[position])
