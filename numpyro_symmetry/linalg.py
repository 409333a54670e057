"""Linear algebra at full precision. Knows only arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def product(left: Array, right: Array) -> Array:
    """Matrix product in the precision of its arguments: accelerators round them to fewer bits unless told not to."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
