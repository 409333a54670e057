r"""Guesses of the labels of groups not yet placed, and the Gaussians of their units under these guesses.

A guess is a doubly stochastic table, :math:`P_{ij}` the weight of factor i in what unit j may be; of a signed group two
tables, for units as they are and flipped. It is made from the draw alone and relabelled with it, so that what reads it
stays blind. Where a guess is certain, its moments are those of the unit's own factor; where it is flat, those of one
Gaussian for all units. Everything is subtracted before it is squared: rounding would depend on the labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.entropy.sequential import FLOOR
from numpyro_symmetry.linalg import once, product
from numpyro_symmetry.symmetry import Axis, Symmetry

Guess = tuple[Array, ...]
NO_GUESSES: Mapping[str, Guess] = MappingProxyType({})
_NUM_SCALING_STEPS = 2
# the most of a guess that is left out where a unit cannot be the factor in question: without all, no weight is left
_MOST_OWN = 0.99


class Weights(NamedTuple):
    """Weights of factors along an axis, ``(factors, units)``; together they add up to one for every unit.

    Attributes
    ----------
    kept
        Of factors with their own sign.
    flipped
        Of factors with the other sign.
    """

    kept: Array
    flipped: Array

    @property
    def even(self) -> Array:
        """Weights of factors whatever their sign, for values that no sign flips."""
        return self.kept + self.flipped


def no_idea(num_units: int, *, signed: bool) -> Guess:
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
    """Weights along these axes of a site; all factors of a group without a guess weigh alike."""
    found = []
    for axis in axes:
        name = str(axis.group)
        kept, *flipped = guesses.get(name) or no_idea(symmetry.sizes[name], signed=symmetry.groups[name].signed)
        if flipped and axis.signed:
            found.append(Weights(kept, flipped[0]))
        else:
            found.append(Weights(sum(flipped, kept), jnp.zeros_like(kept)))
    return found


def moments(loc: Array, scale: Array, weights: Sequence[Weights]) -> tuple[Array, Array]:
    """Mean and variance ``(..., units)`` of factors ``(..., factors)`` mixed by weights along the last axes."""
    leading = loc.shape[:-1]
    mean, variance = (x.reshape(*leading, *(len(along.kept) for along in weights)) for x in (loc, scale**2))
    for along in weights:
        # the next axis, whose units come last: after all of them their order is what it was
        mean, variance = (jnp.moveaxis(x, len(leading), -1) for x in (mean, variance))
        mean, variance = _mixed(mean, variance, along)
    return mean.reshape(*leading, -1), variance.reshape(*leading, -1)


def _mixed(mean: Array, variance: Array, along: Weights) -> tuple[Array, Array]:
    """Mean and variance mixed along the last axis, by the law of total variance."""
    # what tells factors apart may be small beside what they have in common
    common = mean.mean(-1, keepdims=True)
    total = product(mean - common, along.kept - along.flipped) + common * (along.kept - along.flipped).sum(0)
    kept, flipped = ((mean[..., None] - sign * total[..., None, :]) ** 2 for sign in (1.0, -1.0))
    between = (along.kept * kept + along.flipped * flipped).sum(-2)
    return total, product(variance, along.even) + between


def table_of_itself(
    loc: Array, scale: Array, units: Array, along: Weights, signs: tuple[int, int]
) -> tuple[Array, Array]:
    """Log densities ``(n, n)`` of ``(features, n, n)`` with one group on both of the last axes, read along the first.

    If unit j is i, its entry with itself has the factor of i with itself, and no other unit is i. Such a site is read
    along either axis, and each reading counts half of the entries of units with themselves. The second table is of
    flipped units; ``signs`` are those of both axes, -1 where flipping a unit flips the entries along the axis.
    """
    diagonal = jnp.eye(len(along.kept), dtype=bool)
    # row i: weights (factors, units), without most of the weight of factor i
    left = jnp.maximum(along.even - _MOST_OWN, 0.0) / jnp.maximum(along.even, _MOST_OWN)
    share = jnp.where(diagonal[:, :, None], left, 1.0)
    share /= (share * along.even).sum(1, keepdims=True)
    kept, flipped = share * along.kept, share * along.flipped
    factors, scales = loc[..., None], scale[..., None]
    mean = ((kept - flipped) * factors).sum(-2)
    here, there = ((factors - sign * mean[..., None, :]) ** 2 for sign in (1.0, -1.0))
    variance = (kept * (scales**2 + here) + flipped * (scales**2 + there)).sum(-2)
    own_loc, own_scale, own = (jnp.diagonal(x, axis1=-2, axis2=-1) for x in (loc, scale, units))

    def of(first: int, second: int) -> Array:
        # (features, factors, units, their entries)
        others = _log_normal(first * units[:, None], mean[:, :, None], variance[:, :, None])
        themselves = _log_normal(first * second * own[:, None], own_loc[..., None], own_scale[..., None] ** 2)
        return (jnp.where(diagonal, 0.0, others).sum(-1) + 0.5 * themselves).sum(0)

    return of(1, 1), of(*signs)


def _log_normal(x: Array, mean: Array, variance: Array) -> Array:
    return -0.5 * ((x - mean) ** 2 / variance + jnp.log(variance))
