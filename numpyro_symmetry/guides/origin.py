"""Which model and data the numbers of draws belong to: by its latent sites, and by fingerprints of the data.

Knows traces and arrays; not what the numbers say.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.guides.density import latent_values
from numpyro_symmetry.models import Trace, observed_of
from numpyro_symmetry.symmetry.arguments import is_number


@partial(jax.tree_util.register_dataclass, data_fields=["observed", "arguments"], meta_fields=["latents"])
@dataclass(frozen=True, eq=False)
class Origin:
    """Latent sites of a model, and fingerprints of its data, with one leading dimension for draws.

    Attributes
    ----------
    latents
        Site and shape of each.
    observed
        Observed site -> ``(num_draws,)``, fingerprint of its values.
    arguments
        ``(num_draws,)``, the sum of the fingerprints of the numbers in the model's arguments, which may be passed by
        place or by name.
    """

    latents: tuple[tuple[str, tuple[int, ...]], ...]
    observed: dict[str, Any]
    arguments: Any

    @classmethod
    def of(cls, model_trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Origin:
        """The origin of one draw, without a leading dimension."""
        latents = {site: jnp.shape(value) for site, value in latent_values(model_trace).items()}
        observed = {name: fingerprint(site["value"]) for name, site in observed_of(model_trace).items()}
        given = (fingerprint(leaf) for leaf in jax.tree.leaves((args, kwargs)) if _is_numeric(leaf))
        return cls(tuple(sorted(latents.items())), observed, sum(given, jnp.uint32(0)))

    def difference(self, other: Origin) -> str | None:
        """How another origin differs from this one, in words; ``None`` if it does not."""
        here, there = dict(self.latents), dict(other.latents)
        for site in sorted(here.keys() | there.keys()):
            if here.get(site) != there.get(site):
                shapes = " and ".join(_of_shape(shape) for shape in (here.get(site), there.get(site)))
                return f"latent site {site!r} is {shapes}"
        if alone := sorted(self.observed.keys() ^ other.observed.keys()):
            return f"site {alone[0]!r} is observed in one of them only"
        for site, values in self.observed.items():
            both = [np.unique(values), np.unique(other.observed[site])]
            # values that depend on the draw, as those of a minibatch do, are not the data's own
            if all(len(of) == 1 for of in both) and both[0] != both[1]:
                return f"observed site {site!r} holds other values"
        if self.arguments[0] != other.arguments[0]:
            return "the model's arguments hold other numbers"
        return None


def fingerprint(values: Any) -> Array:
    """32 bits that depend on the shape and on every number, in single precision, and on where it stands.

    Each number is hashed with its place by the last step of MurmurHash3, and the hashes are added up.
    """
    values = jnp.asarray(values)
    if jnp.issubdtype(values.dtype, jax.dtypes.prng_key):
        values = jax.random.key_data(values)
    parts = [values.real, values.imag] if jnp.iscomplexobj(values) else [values]
    numbers = [jax.lax.bitcast_convert_type(part.ravel().astype(jnp.float32), jnp.uint32) for part in parts]
    shape = np.array([values.ndim, *values.shape], np.uint32)
    before = 1 + len(shape)
    # shapes are known while a program is made, and need no part of it
    total = jnp.uint32(np.sum(_mixed(shape ^ _mixed(np.arange(1, before, dtype=np.uint32))), dtype=np.uint32))
    # one after the other and not as one array, for data may lie over devices
    for bits in numbers:
        place = jnp.arange(before, before + len(bits), dtype=jnp.uint32)
        total, before = total + jnp.sum(_mixed(bits ^ _mixed(place)), dtype=jnp.uint32), before + len(bits)
    return total


def _mixed(bits: Any) -> Any:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> np.uint32(shift))) * np.uint32(factor)
    return bits ^ (bits >> np.uint32(16))


def _is_numeric(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | complex | np.generic | Array) or (
        isinstance(leaf, np.ndarray) and is_number(leaf.dtype)
    )


def _of_shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else f"of shape {shape}"
