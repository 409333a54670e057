r"""Units whose covariance is diagonal plus low rank, :math:`\Sigma_i = S_i(I + W_iW_i^\top)S_i`.

With S diagonal and :math:`\eta = S^{-1}(u - m)` (Woodbury)

.. math:: \eta^\top(I + WW^\top)^{-1}\eta = \min_\mu \lVert\eta - W\mu\rVert^2 + \lVert\mu\rVert^2,
          \qquad \det(I + WW^\top) = \det M, \quad M = I + W^\top W, \quad \mu = M^{-1}W^\top\eta .

Written as a sum of squares nothing large cancels, an error of :math:`\mu` counts in its square alone, and gradients may
take :math:`\mu` for a constant. Knows arrays only.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.linalg import (
    diagonals,
    factor_side_by_side,
    product,
    row_means,
    solve_side_by_side,
)

# features that are read in one pass: no table of all of them is ever written down
_FEW = 16


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


def squares_of(factor: Array, noise: Array) -> Array:
    """Numbers ``(d + r, n)`` whose squares add up to the quadratic form of every unit."""
    common = mean_of(factor_side_by_side(one_more(gram(factor))), projected(factor, noise))
    return jnp.concatenate([noise - fitted(factor, common), common])


def low_rank_table(loc: Array, scale: Array, factor: Array, units: Array) -> Array:
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
    common = jax.lax.stop_gradient(_common(loc, scale, factor, units, lower))
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


def _common(loc: Array, scale: Array, factor: Array, units: Array, lower: Array) -> Array:
    r""":math:`\mu_{ij}` of unit j under Gaussian i, ``(n, r, n)``."""
    centre = row_means(loc)[:, None]
    weights = jnp.moveaxis(factor / scale[:, None], -1, 0).swapaxes(1, 2)
    own = product(weights, (loc - centre).T[:, :, None])
    information = product(weights, units - centre) - own
    # the axis of systems comes last: one for each Gaussian, solved for every unit
    return jnp.moveaxis(mean_of(lower, jnp.moveaxis(information, 0, -1).swapaxes(0, 1)), -1, 0).swapaxes(1, 2)
