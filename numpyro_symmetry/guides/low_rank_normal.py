r"""`LowRank`: numbers of units whose covariance is diagonal plus low rank, site by site. Knows arrays only.

.. math:: x = m + S(Wz + \varepsilon), \qquad z \sim N(0, I_r),\quad \varepsilon \sim N(0, I)

with the same z for a unit's numbers in every site. The sites before say of it that
:math:`z \sim N(M^{-1}h, M^{-1})`, :math:`M = I + W^\top W` and :math:`h = W^\top S^{-1}(x - m)`, sums over them; so
each site has a density of its own, given those.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.entropy.low_rank import factor_side_by_side, fitted, gram, mean_of, one_more, projected
from numpyro_symmetry.linalg import diagonals, solve_side_by_side


class Common(NamedTuple):
    """What the sites before say of z, which a unit's numbers have in common: :math:`N(M^{-1}h, M^{-1})`.

    Attributes
    ----------
    precision
        M, ``(r, r, n)``.
    information
        h, ``(r, n)``.
    """

    precision: Array
    information: Array

    @staticmethod
    def before_all(rank: int, count: int) -> Common:
        """M and h of ``count`` units before all sites: the identity, and zero."""
        return Common(one_more(jnp.zeros((rank, rank, count))), jnp.zeros((rank, count)))


class LowRank(NamedTuple):
    """How a unit's numbers follow z, which they have in common.

    Attributes
    ----------
    factor
        W, ``(F, r, n)``.
    before
        What the sites before say.
    """

    factor: Array
    before: Common

    def mean(self, scale: Array) -> Array:
        """Mean deviations given the sites before, ``(F, n)``."""
        return scale * self._given()[0]

    def sample(self, key: Array, sample_shape: tuple[int, ...], scale: Array) -> Array:
        """Deviations, ``(*sample, F, n)``."""
        mean, factor = self._given()
        count, rank, n = self.factor.shape
        noise = jax.random.normal(key, (*sample_shape, rank + count, n), scale.dtype)
        return scale * (mean + fitted(factor, noise[..., :rank, :]) + noise[..., rank:, :])

    def log_prob(self, deviations: Array, scale: Array) -> Array:
        """Log densities of entries in units of their scale, ``(F, n)``."""
        mean, factor = self._given()
        noise = deviations / scale - mean
        lower = factor_side_by_side(one_more(gram(factor)))
        common = mean_of(lower, projected(factor, noise))
        shared = -0.5 * (common**2).sum(0) - jnp.log(diagonals(lower)).sum(0)
        return -0.5 * (noise - fitted(factor, common)) ** 2 - 0.5 * math.log(2.0 * math.pi) + shared / len(noise)

    def after(self, deviations: Array, scale: Array) -> Common:
        """M and h once this site's deviations are known too."""
        precision, information = self.before
        return Common(precision + gram(self.factor), information + projected(self.factor, deviations / scale))

    def _given(self) -> tuple[Array, Array]:
        """Mean and factor of the standardised entries, given the sites before."""
        lower = factor_side_by_side(self.before.precision)
        return fitted(self.factor, mean_of(lower, self.before.information)), solve_side_by_side(lower, self.factor)
