r"""Gaussian linear models in whitened form: :math:`z \sim N(0, I)`, :math:`\rho = Az + \epsilon`, :math:`\epsilon \sim N(0, I)`.

Every Gaussian likelihood that is affine in Gaussian parameters takes this form: a row of :math:`\rho` is a residual over
its standard deviation, a column of A a parameter over its own. The posterior of z is worked out in the smaller of the two
spaces. Knows arrays only, neither models nor guides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from numpyro_symmetry.linalg import cholesky, log_determinant, solve_positive, solve_triangular


class Rows(NamedTuple):
    r"""Observations of z, each of unit variance.

    Attributes
    ----------
    residual
        :math:`\rho`, ``(N,)``.
    slope
        :math:`A`, ``(N, P)``.
    """

    residual: Array
    slope: Array


def product(a: Array, b: Array) -> Array:
    """A matrix product in the full precision of its arguments."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


class ByUnits(NamedTuple):
    r"""Posterior of z by its precision :math:`\Lambda = I + A^\top A = CC^\top`, of order P.

    .. math:: q(z) = N(\mu, \Lambda^{-1}), \qquad \mu = \Lambda^{-1}A^\top\rho

    Attributes
    ----------
    loc
        :math:`\mu`, ``(P,)``.
    factor
        C, ``(P, P)``.
    """

    loc: Array
    factor: Array

    @classmethod
    def of(cls, rows: Rows) -> ByUnits:
        """The posterior, with one step of refinement for single precision."""
        slope = rows.slope
        factor = cholesky(product(slope.T, slope) + jnp.eye(slope.shape[1], dtype=slope.dtype))
        loc = solve_positive(factor, product(slope.T, rows.residual))
        # what is left of the equations after the first solution, from residuals that do not cancel
        left = product(slope.T, rows.residual - product(slope, loc)) - loc
        return cls(loc + solve_positive(factor, left), factor)

    def sample(self, rng_key: Array) -> Array:
        r"""A draw, :math:`\mu + C^{-\top}e`."""
        noise = jax.random.normal(rng_key, self.loc.shape, self.loc.dtype)
        return self.loc + solve_triangular(self.factor, noise, transposed=True)

    def log_prob(self, z: Array) -> Array:
        """Log density, nats."""
        scaled = product(z - self.loc, self.factor)
        return 0.5 * log_determinant(self.factor) - 0.5 * jnp.sum(scaled**2 + math.log(2.0 * math.pi))


class ByRows(NamedTuple):
    r"""Posterior of z by the covariance of the rows, :math:`B = I + AA^\top`, of order N.

    A draw is Matheron's: :math:`z = z_0 + A^\top B^{-1}(\rho - Az_0 - \epsilon)` with :math:`z_0, \epsilon` standard normal;
    the density follows from Bayes' theorem,

    .. math:: \log q(z) = \log N(z; 0, I) + \log N(\rho; Az, I) - \log N(\rho; 0, B).

    Attributes
    ----------
    rows
        The observations.
    factor
        Cholesky factor of B, ``(N, N)``.
    """

    rows: Rows
    factor: Array

    @classmethod
    def of(cls, rows: Rows) -> ByRows:
        """The posterior."""
        slope = rows.slope
        return cls(rows, cholesky(product(slope, slope.T) + jnp.eye(slope.shape[0], dtype=slope.dtype)))

    def sample(self, rng_key: Array) -> Array:
        """A draw."""
        (residual, slope), (key_prior, key_noise) = self.rows, jax.random.split(rng_key)
        prior = jax.random.normal(key_prior, slope.shape[1:], slope.dtype)
        noise = jax.random.normal(key_noise, residual.shape, slope.dtype)
        gap = residual - product(slope, prior) - noise
        return prior + product(slope.T, solve_positive(self.factor, gap))

    def log_prob(self, z: Array) -> Array:
        """Log density, nats."""
        residual, slope = self.rows
        unlikely = jnp.sum(z**2 + math.log(2.0 * math.pi)) + jnp.sum((residual - product(slope, z)) ** 2)
        marginal = jnp.sum(solve_triangular(self.factor, residual) ** 2) + log_determinant(self.factor)
        return 0.5 * (marginal - unlikely)


Posterior = ByUnits | ByRows


def draw_in_turn(
    residual: Array, slopes: Mapping[str, Array], draw: Callable[[str, Posterior], Array]
) -> dict[str, Array]:
    """Draw several blocks of z one after the other, each given those before it and with those after it integrated out.

    Parameters
    ----------
    residual
        ``(N,)``.
    slopes
        Name of a block -> its columns of A, ``(N, P_k)``.
    draw
        Called with a block's name and its posterior given the blocks before; returns the block's z, ``(P_k,)``.

    Returns
    -------
    dict
        Name -> z, ``(P_k,)``.
    """
    # the widest block comes last, so that its own space is the only large one
    names = sorted(slopes, key=lambda name: slopes[name].shape[1])
    if sum(slope.shape[1] for slope in slopes.values()) <= residual.shape[0]:
        return _from_joint_precision(residual, {name: slopes[name] for name in names}, draw)
    *narrow, widest = names
    last = ByRows.of(Rows(residual, slopes[widest]))
    drawn: dict[str, Array] = {}
    if narrow:
        # with the widest block integrated out the noise is LL', and rows are white again after L^-1
        white = {name: solve_triangular(last.factor, slopes[name]) for name in narrow}
        drawn = draw_in_turn(solve_triangular(last.factor, residual), white, draw)
        residual = residual - sum(product(slopes[name], drawn[name]) for name in narrow)
    return drawn | {widest: draw(widest, last._replace(rows=Rows(residual, slopes[widest])))}


def _from_joint_precision(
    residual: Array, slopes: Mapping[str, Array], draw: Callable[[str, Posterior], Array]
) -> dict[str, Array]:
    """All blocks from one factor: its last block is marginal, and each one before it conditional on those after."""
    names = list(slopes)[::-1]
    loc, factor = ByUnits.of(Rows(residual, jnp.concatenate([slopes[name] for name in names], 1)))
    drawn: dict[str, Array] = {}
    stop, offset = loc.shape[0], jnp.zeros((0,), loc.dtype)
    for name in reversed(names):
        start = stop - slopes[name].shape[1]
        own = factor[start:stop, start:stop]
        shift = solve_triangular(own, product(factor[stop:, start:stop].T, offset), transposed=True)
        drawn[name] = draw(name, ByUnits(loc[start:stop] - shift, own))
        offset, stop = jnp.concatenate([drawn[name] - loc[start:stop], offset]), start
    return drawn
