r"""A Gaussian density that factorises over units, each with a covariance of its own.

.. math:: q(\theta) = \prod_i \mathcal N\big(u_i;\, m_i, (A_i^\top A_i)^{-1}\big) \prod_e \mathcal N(\theta_e),
          \qquad L_{ij} = \log q_i(u_j)

A unit's entries are those of its index along the last axis of every site where its group stands last: what comes in
and what belongs to it. :math:`A_i` is written as a regression of each entry on those before it,
:math:`(A_i (u - m_i))_f = (\delta_f - \sum_{l<f} C_{fl}\,\delta_l) / s_f` with :math:`\delta = u - m_i`.
For units of many numbers the covariance is diagonal plus low rank instead, :math:`S_i(I + W_iW_i^\top)S_i`. With S
diagonal and :math:`\eta = S^{-1}(u - m)` (Woodbury)

.. math:: \eta^\top(I + WW^\top)^{-1}\eta = \min_\mu \lVert\eta - W\mu\rVert^2 + \lVert\mu\rVert^2,
          \qquad \det(I + WW^\top) = \det M, \quad M = I + W^\top W, \quad \mu = M^{-1}W^\top\eta .

Written as a sum of squares nothing large cancels, an error of :math:`\mu` counts in its square alone, and gradients may
take :math:`\mu` for a constant.

Knows arrays by site and which of their axes move; no estimators.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.entropy.guesses import NO_GUESSES, Guess
from numpyro_symmetry.entropy.tables import GaussianFactors
from numpyro_symmetry.entropy.telling import take_rows, telling_features
from numpyro_symmetry.linalg import (
    diagonals,
    factor_side_by_side,
    product,
    row_means,
    solve_side_by_side,
)
from numpyro_symmetry.symmetry import Symmetry

# features that are read in one pass: no table of all of them is ever written down
_FEW = 16


class UnitGaussians(NamedTuple):
    """Gaussians over the units of groups, and independent ones for every entry of the other sites.

    Attributes
    ----------
    loc
        Site -> mean, of the site's event shape.
    scale
        Site -> standard deviation given the entries before in the unit, of the site's event shape.
    coefficients
        Site -> ``(F, B + F, n)`` for sites of units alone: how the F entries of a unit there follow its B entries at
        earlier sites and earlier ones among themselves; coefficients of later entries are not read.
    factors
        Site -> W, ``(F, r, n)``, for sites of units whose covariance is diagonal (``scale`` squared) plus low rank.
    """

    loc: dict[str, Array]
    scale: dict[str, Array]
    coefficients: dict[str, Array]
    factors: dict[str, Array] = {}

    def standardised(self, symmetry: Symmetry, coordinates: dict[str, Array]) -> dict[str, Array]:
        """Numbers whose squares add up to minus twice a draw's log density, up to a constant."""
        found = self._independent().standardised(symmetry, coordinates)
        for group in symmetry.groups:
            before: list[Array] = []
            sites = self.sites_of(symmetry, group)
            if self._is_low_rank(sites):
                loc, scale, units, factor = self._rows(symmetry, sites, coordinates)
                found[sites[0]] = _squares_of(factor, (units - loc) / scale)
                continue
            for site in sites:
                axis = unit_axis(symmetry, site)
                before.append(as_rows(coordinates[site] - self.loc[site], axis))
                lower = strictly_lower(self.coefficients[site])
                found[site] = noise_of(jnp.concatenate(before), as_rows(self.scale[site], axis), lower)
        return found

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
        """Pairwise log densities of a group's units, as `GaussianFactors.tables`.

        Units of another group on which this group also acts, as those of the layer above, are left out: they are read
        once this group's labels are settled. So are the group's own units while another group's labels on them are not.
        """
        others, sites = self._independent(), self.sites_of(symmetry, group)
        if any(axis.group not in (group, *placed) for site in sites for _, axis in _axes(symmetry, site)):
            sites = []
        found = others.tables(symmetry, coordinates, group, placed=placed, guesses=guesses, max_features=max_features)
        if not sites:
            return found
        loc, scale, units, coupling = self._rows(symmetry, sites, coordinates)
        moved = [units]
        if symmetry.groups[group].signed:
            couplings = self.coefficients | self.factors
            signs = [
                np.full(len(couplings[site]), -1.0 if _axes(symmetry, site)[-1][1].signed else 1.0) for site in sites
            ]
            moved.append(jnp.asarray(np.concatenate(signs), units.dtype)[:, None] * units)
        table = _table
        if self._is_low_rank(sites):
            table = _low_rank_table
            if max_features is not None and len(loc) > max_features:
                # some of a unit's numbers have a density of the same kind as all of them
                of_each = scale * jnp.sqrt(1.0 + (coupling**2).sum(1))
                best = telling_features(loc[..., None], of_each[..., None], max_features)
                loc, scale, coupling, *moved = (take_rows(x, best) for x in (loc, scale, coupling, *moved))
        return tuple(part + table(loc, scale, coupling, each) for part, each in zip(found, moved, strict=True))

    def sites_of(self, symmetry: Symmetry, group: str) -> list[str]:
        """Sites of a group's units, each after those that it follows."""
        couplings = self.coefficients | self.factors
        sites = [s for s in symmetry.axes if s in couplings and _axes(symmetry, s)[-1][1].group == group]
        return sorted(sites, key=lambda site: couplings[site].shape[1])

    def _is_low_rank(self, sites: list[str]) -> bool:
        return any(site in self.factors for site in sites)

    def _rows(self, symmetry: Symmetry, sites: list[str], coordinates: dict[str, Array]) -> tuple[Array, ...]:
        """Means, standard deviations and numbers of a group's units, ``(d, n)``, and what couples them, one a row."""
        loc, scale, units = (
            jnp.concatenate([as_rows(values[site], unit_axis(symmetry, site)) for site in sites])
            for values in (self.loc, self.scale, coordinates)
        )
        if self._is_low_rank(sites):
            return loc, scale, units, jnp.concatenate([self.factors[site] for site in sites])
        lower = [strictly_lower(self.coefficients[site]) for site in sites]
        lower = jnp.concatenate([jnp.pad(c, ((0, 0), (0, len(loc) - c.shape[1]), (0, 0))) for c in lower])
        return loc, scale, units, lower

    def _independent(self) -> GaussianFactors:
        alone = [site for site in self.loc if site not in self.coefficients and site not in self.factors]
        return GaussianFactors({s: self.loc[s] for s in alone}, {s: self.scale[s] for s in alone})


# a density of a draw that factorises over the units of each group, by entry or by unit
Factors = GaussianFactors | UnitGaussians


def as_rows(value: Array, axis: int) -> Array:
    """A site's entries by unit, ``(F, n)``."""
    return jnp.moveaxis(value, axis, -1).reshape(-1, value.shape[axis])


def from_rows(rows: Array, shape: tuple[int, ...], axis: int) -> Array:
    """The inverse of `as_rows` for a site of a shape, ``(*leading, *shape)``; the axis is counted from the right."""
    others = shape[: len(shape) + axis] + shape[len(shape) + axis + 1 :]
    return jnp.moveaxis(rows.reshape(*rows.shape[:-2], *others, shape[axis]), -1, axis)


def strictly_lower(coefficients: Array) -> Array:
    """Coefficients ``(F, B + F, n)`` of earlier entries alone."""
    rows, columns, _ = coefficients.shape
    return jnp.where(np.tri(rows, columns, columns - rows - 1, dtype=bool)[:, :, None], coefficients, 0.0)


def noise_of(deviations: Array, scale: Array, lower: Array) -> Array:
    """Standardised noise ``(F, n)`` of the last F of ``(B + F, n)`` deviations from the means, given those before."""
    return (deviations[-len(scale) :] - (lower * deviations).sum(1)) / scale


def unit_axis(symmetry: Symmetry, site: str) -> int:
    """Position of the axis along which the units lie that own a site's entries: the last on which a group acts."""
    return _axes(symmetry, site)[-1][0]


def _axes(symmetry: Symmetry, site: str) -> list[Any]:
    return [(position, axis) for position, axis in enumerate(symmetry.opened(site)) if axis.group is not None]


def _table(loc: Array, scale: Array, lower: Array, units: Array) -> Array:
    """Log densities ``(n, n)`` of all units under every Gaussian, up to a constant."""
    factor = (jnp.eye(len(loc), dtype=lower.dtype)[:, :, None] - lower) / scale[:, None, :]
    # subtracted before anything is multiplied, so that nothing large cancels
    deviations = units[None] - loc.T[:, :, None]
    noise = product(jnp.moveaxis(factor, -1, 0), deviations)
    return -0.5 * (noise**2).sum(1) - jnp.log(scale).sum(0)[:, None]


# ---- covariances that are diagonal plus low rank ---------------------------------------------------------------------


def gram(factor: Array) -> Array:
    r""":math:`W^\top W` of every unit, ``(r, r, n)``, of ``(d, r, n)``."""
    by_unit = jnp.moveaxis(factor, -1, 0)
    return jnp.moveaxis(product(by_unit.swapaxes(1, 2), by_unit), 0, -1)


def projected(factor: Array, noise: Array) -> Array:
    r""":math:`W^\top\eta` of every unit, ``(r, n)``."""
    return (factor * noise[:, None]).sum(0)


def fitted(factor: Array, common: Array) -> Array:
    r""":math:`W\mu` of every unit, ``(*sample, d, n)`` of ``(*sample, r, n)``."""
    return (factor * common[..., None, :, :]).sum(-2)


def mean_of(lower: Array, information: Array) -> Array:
    """Means ``(*sample, r, n)``, from the Cholesky factor of a precision and the product of precision and mean."""
    return solve_side_by_side(lower, solve_side_by_side(lower, information), transposed=True)


def one_more(precision: Array) -> Array:
    """A precision ``(r, r, n)`` plus the identity."""
    return precision + jnp.eye(len(precision), dtype=precision.dtype)[:, :, None]


def _squares_of(factor: Array, noise: Array) -> Array:
    """Numbers ``(d + r, n)`` whose squares add up to the quadratic form of every unit."""
    common = mean_of(factor_side_by_side(one_more(gram(factor))), projected(factor, noise))
    return jnp.concatenate([noise - fitted(factor, common), common])


def _low_rank_table(loc: Array, scale: Array, factor: Array, units: Array) -> Array:
    """Log densities ``(n, n)`` of all units under every Gaussian, up to a constant.

    Parameters
    ----------
    loc, scale
        m and S of the Gaussians, ``(d, n)``.
    factor
        W of the Gaussians, ``(d, r, n)``.
    units
        Units of the draw, ``(d, n)``.

    Returns
    -------
    Array
        ``(n, n)``, Gaussians along rows; :math:`O(n^2 d r)`, and :math:`O(n^2 r)` memory.
    """
    lower = factor_side_by_side(one_more(gram(factor)))
    common = jax.lax.stop_gradient(_means_in_common(loc, scale, factor, units, lower))
    constants = jnp.log(scale).sum(0) + jnp.log(diagonals(lower)).sum(0)

    @jax.checkpoint
    def add(total: Array, block: tuple[Array, ...]) -> tuple[Array, None]:
        loc, scale, factor, units = block
        noise = (units[None] - loc.T[:, :, None]) / scale.T[:, :, None]
        left = noise - product(jnp.moveaxis(factor, -1, 0), common)
        return total - 0.5 * (left**2).sum(1), None

    start = -0.5 * (common**2).sum(1) - constants[:, None]
    if len(loc) <= _FEW:
        return add(start, (loc, scale, factor, units))[0]
    # features that pad a block lie at their mean under each Gaussian, and add nothing
    filled = [(loc, 0.0), (scale, 1.0), (factor, 0.0), (units, 0.0)]
    padded = (jnp.pad(x, ((0, -len(x) % _FEW), *[(0, 0)] * (x.ndim - 1)), constant_values=c) for x, c in filled)
    blocks = tuple(x.reshape(-1, _FEW, *x.shape[1:]) for x in padded)
    return jax.lax.scan(add, start, blocks)[0]


def _means_in_common(loc: Array, scale: Array, factor: Array, units: Array, lower: Array) -> Array:
    r""":math:`\mu_{ij}` of unit j under Gaussian i, ``(n, r, n)``."""
    centre = row_means(loc)[:, None]
    weights = jnp.moveaxis(factor / scale[:, None], -1, 0).swapaxes(1, 2)
    own = product(weights, (loc - centre).T[:, :, None])
    information = product(weights, units - centre) - own
    # the axis of systems comes last: one for each Gaussian, solved for every unit
    return jnp.moveaxis(mean_of(lower, jnp.moveaxis(information, 0, -1).swapaxes(0, 1)), -1, 0).swapaxes(1, 2)
