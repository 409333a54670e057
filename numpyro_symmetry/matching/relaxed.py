r"""Elements relaxed to matrices that have a slope: :math:`S(X/\tau)`, Sinkhorn's normalisation of :math:`e^{X/\tau}`.

Knows groups and how they stand on axes; neither a loss nor data.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from numpyro_symmetry.assignment.linear import assign
from numpyro_symmetry.symmetry import Group, Hard
from numpyro_symmetry.symmetry.axes import Axis
from numpyro_symmetry.symmetry.hard import over

# how much of each label is spread over all labels at first: with none the slope would vanish
_SPREAD = 0.3
# normalisations of rows and columns in turn
_NUM_NORMALISATIONS = 20


class Relaxed(NamedTuple):
    """Doubly stochastic matrices ``(*cells, n, n)``; for axes on which signs act, these times signs from -1 to 1."""

    even: Array
    odd: Array | None


class Logits(NamedTuple):
    """Logits ``(*cells, n, n)`` of one group: of each unit in each slot, and of its sign there."""

    unit: Any
    sign: Any = None

    @staticmethod
    def of(group: Group) -> Logits:
        """Logits of the identity, spread a little over all labels."""
        n = group.size or 0
        unit = jnp.asarray(np.log((1.0 - _SPREAD) * np.eye(n) + _SPREAD / n))
        unit = jnp.broadcast_to(unit, (*group.cells, n, n))
        return Logits(unit, jnp.full_like(unit, np.arctanh(1.0 - _SPREAD)) if group.signed else None)

    def soft(self, temperature: Any) -> Relaxed:
        """Matrices at a temperature; the colder, the nearer to a permutation."""

        def normalised(log: Array, _: None) -> tuple[Array, None]:
            log -= logsumexp(log, -1, keepdims=True)
            return log - logsumexp(log, -2, keepdims=True), None

        even = jnp.exp(jax.lax.scan(normalised, self.unit / temperature, length=_NUM_NORMALISATIONS)[0])
        return Relaxed(even, None if self.sign is None else even * jnp.tanh(self.sign / temperature))

    def rounded(self) -> Hard:
        """The likeliest permutation, and its signs."""
        found = assign(np.asarray(self.unit))
        if self.sign is None:
            return Hard(found)
        sign = np.take_along_axis(np.asarray(self.sign), found[..., None], -1)[..., 0]
        return Hard(found, np.where(sign < 0.0, -1, 1))


def mixed(value: Array, axes: tuple[Axis, ...], soft: Mapping[str, Relaxed]) -> Array:
    """Values ``(*shape)``, along each axis mixed by the matrix of its group, blocks before the units in them."""
    names, letters = [axis.group or "" for axis in axes], string.ascii_lowercase[: len(axes)]
    moving = [k for k, name in enumerate(names) if name]
    for k in sorted(moving, key=lambda k: names[k].count("/")):
        part = soft[names[k]]
        matrix = part.odd if axes[k].signed and part.odd is not None else part.even
        cells = "".join(letters[names.index(label)] for label in over(names[k]))
        to = f"{letters[:k]}Z{letters[k + 1 :]}"
        value = jnp.einsum(f"{cells}Z{letters[k]},{letters}->{to}", matrix, value, precision="highest")
    return value
