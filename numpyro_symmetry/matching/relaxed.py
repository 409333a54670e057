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
from numpyro_symmetry.assignment.problem import Soft, signed_permutations
from numpyro_symmetry.symmetry import Axis, Group, Hard
from numpyro_symmetry.symmetry.hard import fibred_over

# how much of each label is spread over all labels at first: with none the slope would vanish
_SPREAD = 0.3
# normalisations of rows and columns in turn
_NUM_NORMALISATIONS = 20


class Logits(NamedTuple):
    """Logits ``(*cells, n, n)`` of one group: of each unit in each slot, and of its sign there."""

    unit: Any
    sign: Any = None

    @staticmethod
    def of(group: Group) -> Logits:
        """Logits of the identity, spread a little over all labels."""
        n = group.degree
        unit = jnp.asarray(np.log((1.0 - _SPREAD) * np.eye(n) + _SPREAD / n))
        unit = jnp.broadcast_to(unit, (*group.cells, n, n))
        return Logits(unit, jnp.full_like(unit, np.arctanh(1.0 - _SPREAD)) if group.signed else None)

    def soft(self, temperature: Any) -> Soft:
        """Matrices at a temperature; the colder, the nearer to a permutation."""

        def normalised(log: Array, _: None) -> tuple[Array, None]:
            log -= logsumexp(log, -1, keepdims=True)
            return log - logsumexp(log, -2, keepdims=True), None

        even = jnp.exp(jax.lax.scan(normalised, self.unit / temperature, length=_NUM_NORMALISATIONS)[0])
        return Soft(even, None if self.sign is None else even * jnp.tanh(self.sign / temperature))

    def rounded(self) -> Hard:
        """The likeliest permutation, and its signs."""
        return signed_permutations(assign(np.asarray(self.unit)), None if self.sign is None else np.asarray(self.sign))


def mixed(value: Array, axes: tuple[Axis, ...], soft: Mapping[str, Soft]) -> Array:
    """Values ``(*shape)``, along each axis mixed by the matrix of its group, blocks before the units in them."""
    names, letters = [axis.group or "" for axis in axes], string.ascii_lowercase[: len(axes)]
    moving = [k for k, name in enumerate(names) if name]
    for k in sorted(moving, key=lambda k: names[k].count("/")):
        cells = "".join(letters[names.index(label)] for label in fibred_over(names[k]))
        to = f"{letters[:k]}Z{letters[k + 1 :]}"
        value = jnp.einsum(
            f"{cells}Z{letters[k]},{letters}->{to}", soft[names[k]].along(axes[k]), value, precision="highest"
        )
    return value
