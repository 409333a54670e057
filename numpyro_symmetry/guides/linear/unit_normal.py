r"""`UnitNormal`: one site of units that are Gaussian, given the sites drawn before it. Knows arrays only.

How a unit's numbers follow each other is a value: as `Regression`, or as `LowRank`. A product of such sites is one
Gaussian for every unit, and each site has a density of its own.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from numpyro_symmetry.entropy.units import (
    as_rows,
    fitted,
    from_rows,
    gram,
    mean_of,
    noise_of,
    one_more,
    projected,
    strictly_lower,
)
from numpyro_symmetry.linalg import diagonals, factor_side_by_side, solve_side_by_side, substitute_forward
from numpyro_symmetry.models import real_event


class Regression(NamedTuple):
    r"""A full covariance: each number of a unit on those before it.

    .. math:: x_f = m_f + \sum_{l<f} C_{fl}\,(x_l - m_l) + s_f\,\varepsilon_f

    for every unit; l runs over the unit's entries in the sites before, too.

    Attributes
    ----------
    coefficients
        ``(F, B + F, n)``: how each of a unit's F entries follows those before it.
    before
        ``(B, n)``: by how much the sites before deviate from their means.
    """

    coefficients: Array
    before: Array

    def mean(self, scale: Array) -> Array:
        """Mean deviations given the sites before, ``(F, n)``."""
        return self._deviations(jnp.zeros(scale.shape))

    def sample(self, key: Array, sample_shape: tuple[int, ...], scale: Array) -> Array:
        """Deviations, ``(*sample, F, n)``."""
        return self._deviations(scale * jax.random.normal(key, sample_shape + scale.shape, scale.dtype))

    def log_prob(self, deviations: Array, scale: Array) -> Array:
        """Log densities of entries in units of their scale, ``(F, n)``."""
        noise = noise_of(self.after(deviations, scale), scale, strictly_lower(self.coefficients))
        return dist.Normal(0.0, 1.0).log_prob(noise)

    def after(self, deviations: Array, scale: Array) -> Array:
        """Deviations of all sites before the next one: of those before this one, and its own."""
        return jnp.concatenate([self.before, deviations])

    def _deviations(self, noise: Array) -> Array:
        before, own = jnp.split(self.coefficients, [len(self.before)], axis=1)
        return substitute_forward(own, (before * self.before).sum(1) + noise)


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
    r"""How a unit's numbers follow z, which they have in common: a covariance that is diagonal plus low rank.

    .. math:: x = m + S(Wz + \varepsilon), \qquad z \sim N(0, I_r),\quad \varepsilon \sim N(0, I)

    with the same z for a unit's numbers in every site. The sites before say of it that
    :math:`z \sim N(M^{-1}h, M^{-1})`, :math:`M = I + W^\top W` and :math:`h = W^\top S^{-1}(x - m)`, sums over them;
    so each site has a density of its own, given those.

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


class UnitNormal(dist.Distribution):
    """A site's entries, by unit a Gaussian given the unit's entries in the sites before.

    Parameters
    ----------
    loc, scale
        Means, and standard deviations of the entries' own noise; of the site's shape.
    given
        How a unit's entries follow each other, and those in the sites before.
    axis
        Of the site, counted from the right: that along which units lie.
    units
        Name of the group whose units these are.
    event_dim
        Dimensions of an event, as in the model: densities are those of entries, summed over these; what the entries of
        a unit share of its density is spread evenly over them.
    """

    arg_constraints: dict[str, Any] = {}
    # all that are constrained, as NumPyro asks, so that losses with score functions differentiate draws
    reparametrized_params: list[Any] = []
    pytree_data_fields: tuple[str, ...] = ("loc", "scale", "given")
    pytree_aux_fields: tuple[str, ...] = ("axis", "units")
    loc: Array
    scale: Array
    given: Regression | LowRank
    axis: int
    units: str

    def __init__(
        self, loc: Array, scale: Array, given: Regression | LowRank, *, axis: int, units: str, event_dim: int
    ) -> None:
        self.loc, self.scale, self.given, self.axis, self.units = loc, scale, given, axis, units
        shape = jnp.shape(loc)
        super().__init__(shape[: len(shape) - event_dim], shape[len(shape) - event_dim :], validate_args=False)

    @property
    def support(self) -> constraints.Constraint:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Real, of the site's shape."""
        return real_event(self.event_dim)

    @property
    def mean(self) -> Array:
        """Mean given the sites before, of the site's shape."""
        return self._site(self.given.mean(self._scale()))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws ``(*sample_shape, *event)``."""
        return self._site(self.given.sample(key, sample_shape, self._scale()))

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """Log densities of the batch, nats."""
        noise = self.given.log_prob(self._deviations(value), self._scale())
        of_entries = from_rows(noise, jnp.shape(self.loc), self.axis) - jnp.log(self.scale)
        return of_entries.sum(tuple(range(-self.event_dim, 0)))

    def after(self, value: Array) -> Any:
        """What the next site of the same units is drawn given: this site's value, and all before it."""
        return self.given.after(self._deviations(value), self._scale())

    def _scale(self) -> Array:
        return as_rows(self.scale, self.axis)

    def _deviations(self, value: Array) -> Array:
        return as_rows(value - self.loc, self.axis)

    def _site(self, deviations: Array) -> Array:
        return self.loc + from_rows(deviations, jnp.shape(self.loc), self.axis)
