r"""Pairwise log densities of units under Gaussian factors: :math:`L_{ij} = \log q_i(u_j)`.

Two forms of one formula. Multiplied out, :math:`-\tfrac12\sum_f (u_{jf}-\mu_{if})^2/\sigma_{if}^2` is a product of two
matrices, but of terms as large as :math:`\mu^2/\sigma^2`, whose rounding stays behind when they cancel. Subtracted
before it is squared nothing cancels, and every feature is read for every pair. Rounding does harm only in entries that
are not negligible, so the second form is taken where those exist and may be wrong, and nowhere else.

Knows arrays by site and which of their axes move; no estimators.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterator, Mapping
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.entropy.guesses import NO_GUESSES, Guess, moments, table_of_itself, weights_along
from numpyro_symmetry.entropy.sequential import FLOOR
from numpyro_symmetry.entropy.telling import take_rows, telling_features
from numpyro_symmetry.linalg import once, product, row_means, row_sums, varying_alike
from numpyro_symmetry.symmetry import Symmetry

# features that are subtracted in one pass
_FEW = 16
# nats: the most that one rounding of the largest squares may amount to; an entry holds a few roundings, and gradients
# feel them more than values
_MOST_ROUNDING = 0.002


class GaussianFactors(NamedTuple):
    """Independent Gaussians for every entry of every site.

    Attributes
    ----------
    loc, scale
        Site -> mean and standard deviation, of the site's event shape.
    """

    loc: dict[str, Array]
    scale: dict[str, Array]

    def standardised(self, symmetry: Symmetry, coordinates: dict[str, Array]) -> dict[str, Array]:
        """Independent standard normal numbers for a draw, by site."""
        here = [site for site in symmetry.axes if site in self.loc]
        return {site: (coordinates[site] - self.loc[site]) / self.scale[site] for site in here}

    def tables(
        self,
        symmetry: Symmetry,
        coordinates: dict[str, Array],
        group: str,
        *,
        placed: Collection[str] = (),
        guesses: Mapping[str, Guess] = NO_GUESSES,
        max_features: int | None = None,
    ) -> tuple[Array, ...]:
        r"""Pairwise log densities of a group's units under factors, up to constants that no relabelling changes.

        .. math:: L_{ij} = \sum_f \log\mathcal N(u_{jf};\,\mu_{if}, \sigma_{if})

        Parameters
        ----------
        symmetry
            Bound symmetry of the coordinates; sites without factors add nothing.
        coordinates
            One draw, by site, without leading dimensions.
        group
            Group whose n units are compared.
        placed
            Groups whose labels are settled; others that share a site are sketched.
        guesses
            Group -> guess of its labels: its units are sketched one by one, and not all alike.
        max_features
            If given, use at most this many features of each site, those that tell the factors apart best. Any choice
            made from the factors alone gives a valid proposal, but no longer the exact table.

        Returns
        -------
        tuple of Array
            ``(L,)`` of shape ``(n, n)``, or ``(L, L_flipped)`` for a signed group.
        """
        signed, n = symmetry.groups[group].signed, symmetry.sizes[group]
        parts, flips, constant, own = [], [], jnp.zeros(n), []
        for site, position, unsettled in _readings(symmetry, group, placed):
            if site not in self.loc:
                continue
            axes = symmetry.opened(site)
            loc, scale, units = (
                _arrange(symmetry, site, value, position, unsettled)
                for value in (self.loc[site], self.scale[site], coordinates[site])
            )
            if max_features is not None and len(loc) > max_features:
                best = telling_features(loc, scale, max_features)
                loc, scale, units = (take_rows(x, best) for x in (loc, scale, units))
            others = [axes[p] for p in unsettled]
            is_guessed = any(axis.group in guesses for axis in others)
            weights = weights_along(others, symmetry, guesses) if is_guessed else []
            if is_guessed and [axis.group for axis in others] == [group]:
                signs = [-1 if axis.signed else 1 for axis in (axes[position], *others)]
                own.append(table_of_itself(loc, scale, units, weights[0], (signs[0], signs[1])))
                continue
            if is_guessed:
                (mean, variance), repeats = moments(loc, scale, weights), 1
                mean, variance, average = (x.swapaxes(1, 2).reshape(-1, n) for x in (mean, variance, units))
            else:
                mean, variance = _sketch(loc, scale, signless=any(axis.signed for axis in others))
                repeats, average = units.shape[-1], _mean(units)
            constant -= 0.5 * repeats * jnp.log(variance).sum(0)
            spread = jnp.mean((units - average[..., None]) ** 2, -1) if repeats > 1 else jnp.zeros_like(average)
            parts.append((mean, repeats / variance, average, spread))
            flips += [axes[position].signed] * len(mean)
        tables: Any = (jnp.zeros((n, n)),) * (1 + signed)
        if parts:
            features = _Features._make(varying_alike([*map(jnp.concatenate, zip(*parts, strict=True)), constant]))
            tables = _log_densities(features, tuple(flips) if signed else None)
        return tuple(reduce(operator.add, (part[sign] for part in own), table) for sign, table in enumerate(tables))


class _Features(NamedTuple):
    """What tells the units of a group apart, one feature a row.

    Attributes
    ----------
    mean, precision
        ``(features, n)``, of the factors.
    units
        ``(features, n)``, of the draw.
    spread
        ``(features, n)``, added to the squared distance of a unit from every factor.
    constant
        ``(n,)``, added to the log density of every unit under a factor.
    """

    mean: Array
    precision: Array
    units: Array
    spread: Array
    constant: Array


def most_features(
    symmetry: Symmetry, shapes: Mapping[str, tuple[int, ...]], group: str, placed: Collection[str] = ()
) -> int:
    """Features of a group's units at the site that has most: with a ``max_features`` as large, none is left out."""
    found = [0]
    for site, position, unsettled in _readings(symmetry, group, placed):
        shape = symmetry.opened_shape(site, shapes[site])
        found.append(math.prod(n for p, n in enumerate(shape) if p != position and p not in unsettled))
    return max(found)


def _readings(symmetry: Symmetry, group: str, placed: Collection[str]) -> Iterator[tuple[str, int, list[int]]]:
    """Every axis on which a group's units lie: its site, its position, and positions of axes with unsettled labels."""
    for site in symmetry.axes:
        axes = symmetry.opened(site)
        for position, axis in enumerate(axes):
            if axis.group == group:
                others = ((p, a.group) for p, a in enumerate(axes) if p != position)
                yield site, position, [p for p, name in others if name is not None and name not in placed]


# which features flip with the sign of a unit; None where units have none
Flips = tuple[bool, ...] | None


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _log_densities(features: _Features, flips: Flips) -> tuple[Array, ...]:
    """Log densities ``(n, n)`` of units under factors; for a signed group, of flipped units too."""
    return _log_densities_forward(features, flips)[0]


def _log_densities_forward(features: _Features, flips: Flips) -> tuple[tuple[Array, ...], tuple[_Features, Array]]:
    tables, rounding = _multiplied_out(features, flips)
    # judged first by the factors alone: looking at the entries takes passes over the tables
    matters = jax.lax.cond(
        _for_all_draws((rounding > _MOST_ROUNDING).any()),
        lambda: _matters(rounding, tables),
        lambda: jnp.zeros_like(rounding[0], bool),
    )
    matters = _for_all_draws(matters)
    return jax.lax.cond(matters, lambda: _subtracted_first(features, flips), lambda: tables), (features, matters)


def _log_densities_backward(
    flips: Flips, residuals: tuple[_Features, Array], cotangents: tuple[Array, ...]
) -> tuple[_Features]:
    # one choice for value and gradient, so that nothing is kept for a form that was not taken
    features, matters = residuals
    forms = _subtracted_first, lambda features, flips: _multiplied_out(features, flips)[0]
    gradients: Any = (lambda form=form: jax.vjp(lambda x: form(x, flips), features)[1](cotangents) for form in forms)
    return jax.lax.cond(matters, *gradients)


_log_densities.defvjp(_log_densities_forward, _log_densities_backward)


def _multiplied_out(features: _Features, flips: Flips) -> tuple[tuple[Array, ...], Array]:
    """Log densities by matrix products, and how large one rounding of each factor's squares may be, ``(n,)``."""
    mean, precision, units, spread, constant = features
    flipped = np.array(flips or [False] * len(mean))
    # a common offset cancels too, but where a sign flip needs the true origin
    centre = jnp.where(flipped[:, None], 0.0, jax.lax.stop_gradient(row_means(mean)[:, None]))
    mean, units = mean - centre, units - centre
    weighted = precision * mean
    squares = (weighted * mean).sum(0)
    rounding = jax.lax.stop_gradient(jnp.finfo(squares.dtype).eps * squares)
    quadratic = [
        (precision, -0.5 * (units**2 + spread)),
        ((constant - 0.5 * squares)[None], jnp.ones_like(units[:1])),
    ]
    if flips is None:
        return (_products([*quadratic, (weighted, units)]),), rounding
    even = _products([*quadratic, (weighted[~flipped], units[~flipped])])
    odd = product(weighted[flipped].T, units[flipped])
    return (even + odd, even - odd), rounding


def _subtracted_first(features: _Features, flips: Flips) -> tuple[Array, ...]:
    """Log densities by squares of differences, a few features at once."""
    # a guide that was set up in single precision may be evaluated in double
    dtype = jnp.result_type(*features)
    mean, precision, units, spread, constant = (x.astype(dtype) for x in features)
    common = constant[:, None] - 0.5 * product(precision.T, spread)
    moved = (units,) if flips is None else (units, jnp.where(np.array(flips)[:, None], -units, units))
    if len(mean) <= _FEW:
        return tuple(common + _distances(mean, precision, each) for each in moved)
    # features that pad a block have precision zero, and so no weight
    blocks = jnp.stack([jnp.pad(x, ((0, -len(x) % _FEW), (0, 0))) for x in (mean, precision, *moved)])
    blocks = blocks.reshape(len(blocks), -1, _FEW, mean.shape[1]).swapaxes(0, 1)

    def add(totals: Array, block: Array) -> tuple[Array, None]:
        mean, precision, *moved = block
        return totals + jnp.stack([_distances(mean, precision, each) for each in moved]), None

    totals, _ = jax.lax.scan(add, jnp.stack([jnp.zeros_like(common)] * len(moved)), blocks)
    return tuple(common + total for total in totals)


@jax.custom_vjp
def _distances(mean: Array, precision: Array, units: Array) -> Array:
    """Minus half the squared distances, ``(n, n)``, in one pass: no feature's table is ever written down."""
    pairs = (p[:, None] * (u - m[:, None]) ** 2 for m, p, u in zip(mean, precision, units, strict=True))
    return once(-0.5 * reduce(operator.add, pairs))


def _distances_forward(mean: Array, precision: Array, units: Array) -> tuple[Array, tuple[Array, ...]]:
    return _distances(mean, precision, units), (mean, precision, units)


def _distances_backward(features: tuple[Array, ...], cotangent: Array) -> tuple[Array, ...]:
    mean, precision, units = features
    cotangent = once(cotangent)
    # gradients linear in the difference lose no more than the draw's own rounding when they are multiplied out
    centre = row_means(mean)[:, None]
    from_mean, from_units = mean - centre, units - centre
    to_mean = precision * (product(from_units, cotangent.T) - from_mean * row_sums(cotangent))
    to_units = product(precision * from_mean, cotangent) - from_units * product(precision, cotangent)
    # the quadratic one would lose all digits
    to_precision = -0.5 * row_sums(cotangent * (units[:, None, :] - mean[:, :, None]) ** 2)
    return to_mean, to_precision, to_units


_distances.defvjp(_distances_forward, _distances_backward)


def _matters(rounding: Array, tables: tuple[Array, ...]) -> Array:
    """Whether rounding may spoil an entry that is not negligible, other than a unit's own."""
    rounding, together = jax.lax.stop_gradient((rounding, jnp.stack(tables)))
    threshold = together.max((0, 1)) + FLOOR - 2.0 * rounding.max()
    rough = rounding > _MOST_ROUNDING
    own = jnp.zeros(together.shape, bool).at[0].set(jnp.eye(together.shape[1], dtype=bool))
    largest = jnp.where((rough | rough[:, None]) & ~own, together, -jnp.inf).max((0, 1))
    # so that NaN, of infinities that cancel, is not taken for negligible
    return jnp.any(~(largest < threshold))


@jax.custom_batching.custom_vmap
def _for_all_draws(condition: Array) -> Array:
    """A condition that holds for every draw as soon as it holds for one: batched, a `cond` would take both branches."""
    return condition


@_for_all_draws.def_vmap
def _for_all_in_the_batch(axis_size: int, is_batched: list[bool], condition: Array) -> tuple[Array, bool]:
    return _for_all_draws(condition.any(0)), False


def _arrange(symmetry: Symmetry, site: str, value: Array, position: int, unsettled: list[int]) -> Array:
    """A site as ``(features, n, repeats)``: the group's axis in the middle, axes with unsettled labels last."""
    opened = value.reshape(symmetry.opened_shape(site, value.shape))
    settled = [p for p in range(opened.ndim) if p != position and p not in unsettled]
    repeats = math.prod(opened.shape[p] for p in unsettled)
    return opened.transpose(*settled, position, *unsettled).reshape(-1, opened.shape[position], repeats)


def _sketch(loc: Array, scale: Array, *, signless: bool) -> tuple[Array, Array]:
    """One Gaussian of the mean and variance of the factors along the last axis."""
    mean = jnp.zeros(loc.shape[:-1], loc.dtype) if signless else _mean(loc)
    return mean, (scale**2 + (loc - mean[..., None]) ** 2).mean(-1)


def _mean(values: Array) -> Array:
    """Mean along the last axis, the more exact the more its entries are alike."""
    first = jax.lax.stop_gradient(values[..., :1])
    return first[..., 0] + (values - first).mean(-1)


def _products(pairs: list[tuple[Array, Array]]) -> Array:
    factors, units = (jnp.concatenate(side) for side in zip(*pairs, strict=True))
    return product(factors.T, units)
