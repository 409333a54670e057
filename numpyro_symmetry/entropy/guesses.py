r"""What is guessed of the labels of groups not yet placed, and Gaussians of their units by it.

A guess is a doubly stochastic table, :math:`P_{ij}` the weight of factor i in what unit j may be; of a signed group two
tables, for units as they are and flipped. It is made from the draw alone and relabelled with it, so that what reads it
stays blind. Where it is certain, moments by it are those of the unit's own factor; where it is flat, those of one
Gaussian for all units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.entropy.sequential import FLOOR
from numpyro_symmetry.linalg import once, product
from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.axes import Axis

Guess = tuple[Array, ...]
NO_GUESSES: Mapping[str, Guess] = MappingProxyType({})
_NUM_SCALING_STEPS = 2
# of a guess, what is left out at most where a unit cannot be the factor in question: all of it would leave no weight
_MOST_OWN = 0.99


class Weights(NamedTuple):
    """Weights of factors along an axis, ``(factors, units)``.

    Attributes
    ----------
    even
        Of what no sign flips: columns sum to one.
    odd
        Of what a sign flips.
    """

    even: Array
    odd: Array


def no_idea(num_units: int, signed: bool) -> Guess:
    """Guess that any unit may be any factor, either way round."""
    signs = 1 + signed
    return (jnp.full((num_units, num_units), 1.0 / (signs * num_units)),) * signs


def guess_of(log_tables: tuple[Array, ...]) -> Guess:
    """Guess each unit's label: Sinkhorn steps, of units last, on ``log_tables[sign][i, j] = log q_i(±u_j)``."""
    together = jnp.stack(log_tables)
    table = once(jnp.exp(jnp.maximum(together - together.max((0, 1)), FLOOR)))
    by_factor = jnp.ones(table.shape[1], table.dtype)
    either = table.sum(0)
    for _ in range(_NUM_SCALING_STEPS):
        by_factor = 1.0 / product(either, 1.0 / product(by_factor, either))
    return tuple(table * by_factor[:, None] / product(by_factor, either))


def weights_along(axes: Sequence[Axis], symmetry: Symmetry, guesses: Mapping[str, Guess]) -> list[Weights]:
    """Weights along some axes of a site; of a group of which nothing is guessed all factors weigh alike."""
    found = []
    for axis in axes:
        name = str(axis.group)
        parts = guesses.get(name) or no_idea(symmetry.sizes[name], symmetry.groups[name].signed)
        even = sum(parts[1:], parts[0])
        found.append(Weights(even, parts[0] - parts[-1] if axis.signed else even))
    return found


def seen_by(factors: Sequence[Array], weights: Sequence[Weights], units: Array) -> tuple[list[Weights], Array]:
    """Put in place of units ``(..., n1 * n2 ...)`` along each axis what some factors take for theirs: fewer numbers.

    Which factors may depend on anything but the draw. Units are mixed and not chosen, because a choice between units
    that are guessed equally well would go by their labels.
    """
    kept, mixers = [], []
    for rows, along in zip(factors, weights, strict=True):
        share = 1.0 / along.even[rows].sum(1)
        even, odd = ((part[rows] * share[:, None]).T for part in along)
        kept.append(Weights(product(along.even, even), product(along.odd, odd)))
        mixers.append(odd)
    return kept, _mixed(units, mixers)


def moments(loc: Array, scale: Array, weights: Sequence[Weights], *, but_own: bool = False) -> tuple[Array, Array]:
    """Mean and variance ``(..., units)`` of factors ``(..., factors)`` mixed by weights along the last axes.

    Where both axes of ``(..., n, n)`` are of one group a unit cannot be the factor that the row is about: that is left
    out of its row if ``but_own``.
    """
    even, odd = ([along[which] for along in weights] for which in range(2))

    def mixed(values: Array, parts: list[Array]) -> Array:
        rows = _mixed(values, parts)
        if not but_own:
            return rows
        excess = jnp.maximum(even[0] - _MOST_OWN, 0.0) / jnp.maximum(even[0], _MOST_OWN)
        own = parts[0] * (1.0 - excess) * jnp.diagonal(values, axis1=-2, axis2=-1)[..., None]
        return (rows - own) / (1.0 - jnp.minimum(even[0], _MOST_OWN))

    # about a common centre less cancels, but where a sign flip needs the true origin
    about_zero = any(along.odd is not along.even for along in weights)
    centre = jnp.zeros_like(loc[..., :1]) if about_zero else loc.mean(-1, keepdims=True)
    deviation = mixed(loc - centre, odd)
    between = mixed((loc - centre) ** 2, even) - deviation**2
    return centre + deviation, mixed(scale**2, even) + jnp.maximum(between, 0.0)


def _mixed(values: Array, parts: Sequence[Array]) -> Array:
    """Values ``(..., n1 * n2 ...)`` times a matrix along each of the last axes."""
    leading = values.shape[:-1]
    rows = values.reshape(*leading, *map(len, parts))
    for part in parts:
        # the next axis, whose units come last: after all of them their order is what it was
        rows = jnp.moveaxis(rows, len(leading), -1)
        rows = product(rows.reshape(-1, len(part)), part).reshape(*rows.shape[:-1], -1)
    return rows.reshape(*leading, -1)


def own_entries(
    loc: Array, scale: Array, units: Array, mean: Array, variance: Array, signs: tuple[int, int]
) -> tuple[Array, ...]:
    """What entries of units with themselves say, of ``(features, n, n)``, less what ``mean, variance`` made of them.

    Entry (j, j) has the factor (i, i) if unit j is i. Two readings of such a site, along either axis, say half of it
    each. ``signs`` are those of both axes, -1 where a flip of the unit flips what lies along.
    """
    own_loc, own_scale, own = (jnp.diagonal(x, axis1=-2, axis2=-1) for x in (loc, scale, units))

    def of(along: int, across: int) -> Array:
        exact = _log_normal(along * across * own[:, None], own_loc[..., None], own_scale[..., None] ** 2)
        return (0.5 * exact - _log_normal(along * own[:, None], mean, variance)).sum(0)

    return of(1, 1), of(*signs)


def _log_normal(x: Array, mean: Array, variance: Array) -> Array:
    return -0.5 * ((x - mean) ** 2 / variance + jnp.log(variance))
