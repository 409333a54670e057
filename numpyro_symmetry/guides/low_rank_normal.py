r"""`LowRankUnitNormal`: one site of units whose covariance is diagonal plus low rank. Knows arrays only.

.. math:: x = m + S(Wz + \varepsilon), \qquad z \sim N(0, I_r),\quad \varepsilon \sim N(0, I)

with the same z for a unit's numbers in every site. The sites before say of it that
:math:`z \sim N(M^{-1}h, M^{-1})`, :math:`M = I + W^\top W` and :math:`h = W^\top S^{-1}(x - m)`, sums over them; so
each site has a density of its own, given those.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from numpyro_symmetry.entropy.low_rank import factor_of, fitted, gram, mean_of, one_more, projected
from numpyro_symmetry.entropy.units import as_rows, from_rows
from numpyro_symmetry.linalg import diagonals, solve_side_by_side
from numpyro_symmetry.models import real_event


class Common(NamedTuple):
    """What the sites before say of what a unit's numbers have in common.

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
        """Nothing, of so many units."""
        return Common(one_more(jnp.zeros((rank, rank, count))), jnp.zeros((rank, count)))


class LowRankUnitNormal(dist.Distribution):
    """A site's entries, by unit a Gaussian given the unit's entries in the sites before.

    Parameters
    ----------
    loc, scale
        m and S, of the site's shape.
    factor
        W, ``(F, r, n)``.
    before
        What the sites before say.
    axis, units, event_dim
        As for `UnitNormal`; what the entries of a unit share of its density is spread evenly over them.
    """

    arg_constraints: dict = {}
    reparametrized_params: list = ["loc", "scale", "factor", "before"]
    pytree_data_fields = ("loc", "scale", "factor", "before")
    pytree_aux_fields = ("axis", "units")

    def __init__(
        self, loc: Array, scale: Array, factor: Array, before: Common, *, axis: int, units: str, event_dim: int
    ) -> None:
        self.loc, self.scale, self.factor, self.before = loc, scale, factor, before
        self.axis, self.units = axis, units
        shape = jnp.shape(loc)
        super().__init__(shape[: len(shape) - event_dim], shape[len(shape) - event_dim :], validate_args=False)

    @property
    def support(self) -> constraints.Constraint:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Real, of the site's shape."""
        return real_event(self.event_dim)

    @property
    def mean(self) -> Array:
        """Mean given the sites before, of the site's shape."""
        return self._site(self._given()[0])

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws ``(*sample_shape, *event)``."""
        assert key is not None
        mean, factor = self._given()
        count, rank, n = self.factor.shape
        noise = jax.random.normal(key, (*sample_shape, rank + count, n), jnp.result_type(self.loc, self.scale))
        return self._site(mean + fitted(factor, noise[..., :rank, :]) + noise[..., rank:, :])

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """Log densities of the batch, nats."""
        mean, factor = self._given()
        noise = self._noise(value) - mean
        lower = factor_of(one_more(gram(factor)))
        common = mean_of(lower, projected(factor, noise))
        shared = -0.5 * (common**2).sum(0) - jnp.log(diagonals(lower)).sum(0)
        of_entries = -0.5 * (noise - fitted(factor, common)) ** 2 - 0.5 * math.log(2.0 * math.pi) + shared / len(noise)
        of_entries = from_rows(of_entries, jnp.shape(self.loc), self.axis) - jnp.log(self.scale)
        return of_entries.sum(tuple(range(-self.event_dim, 0)))

    def after(self, value: Array) -> Common:
        """What is known of what units have in common once a value of this site is known too."""
        precision, information = self.before
        return Common(precision + gram(self.factor), information + projected(self.factor, self._noise(value)))

    def _given(self) -> tuple[Array, Array]:
        """Mean and factor of the standardised entries, given the sites before."""
        lower = factor_of(self.before.precision)
        return fitted(self.factor, mean_of(lower, self.before.information)), solve_side_by_side(lower, self.factor)

    def _noise(self, value: Array) -> Array:
        return as_rows((value - self.loc) / self.scale, self.axis)

    def _site(self, noise: Array) -> Array:
        return self.loc + self.scale * from_rows(noise, jnp.shape(self.loc), self.axis)
