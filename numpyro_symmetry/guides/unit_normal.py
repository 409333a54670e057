r"""`UnitNormal`: one site of units that are Gaussian, given the sites drawn before it. Knows arrays only.

.. math:: x_f = m_f + \sum_{l<f} C_{fl}\,(x_l - m_l) + s_f\,\varepsilon_f

for every unit; l runs over the unit's entries in the sites before, too. A product of such sites is one Gaussian with a
full covariance for every unit, and each site has a density of its own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from numpyro_symmetry.entropy.units import as_rows, from_rows, noise_of, strictly_lower
from numpyro_symmetry.linalg import substitute_forward
from numpyro_symmetry.models import real_event


class UnitNormal(dist.Distribution):
    """A site's entries, by unit a Gaussian given the unit's entries in the sites before.

    Parameters
    ----------
    loc, scale
        Means, and standard deviations given the entries before; of the site's shape.
    coefficients
        ``(F, B + F, n)``: how each of a unit's F entries follows those before it.
    before
        ``(B, n)``: by how much the sites before deviate from their means.
    axis
        Of the site, counted from the right: that along which units lie.
    units
        Name of the group whose units these are.
    event_dim
        Dimensions of an event, as in the model: densities are those of entries, given the ones before, summed over
        these.
    """

    arg_constraints: dict = {}
    reparametrized_params: list = ["loc", "scale", "coefficients", "before"]
    pytree_data_fields = ("loc", "scale", "coefficients", "before")
    pytree_aux_fields = ("axis", "units")

    def __init__(
        self, loc: Array, scale: Array, coefficients: Array, before: Array, *, axis: int, units: str, event_dim: int
    ) -> None:
        self.loc, self.scale, self.coefficients, self.before = loc, scale, coefficients, before
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
        return self._site(self._deviations(jnp.zeros(as_rows(self.loc, self.axis).shape)))

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws ``(*sample_shape, *event)``."""
        assert key is not None
        scale = as_rows(self.scale, self.axis)
        noise = jax.random.normal(key, sample_shape + scale.shape, jnp.result_type(self.loc, self.scale))
        return self._site(self._deviations(scale * noise))

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """Log densities of the batch, nats."""
        noise = noise_of(self.after(value), as_rows(self.scale, self.axis), strictly_lower(self.coefficients))
        of_entries = from_rows(dist.Normal(0.0, 1.0).log_prob(noise), jnp.shape(self.loc), self.axis)
        of_entries = of_entries - jnp.log(self.scale)
        return of_entries.sum(tuple(range(-self.event_dim, 0)))

    def deviations(self, value: Array) -> Array:
        """By how much the entries of a value deviate from their means, ``(F, n)``."""
        return as_rows(value - self.loc, self.axis)

    def after(self, value: Array) -> Array:
        """By how much the sites so far deviate from their means, once a value of this one is known too."""
        return jnp.concatenate([self.before, self.deviations(value)])

    def _deviations(self, noise: Array) -> Array:
        before, own = jnp.split(self.coefficients, [len(self.before)], axis=1)
        return substitute_forward(own, (before * self.before).sum(1) + noise)

    def _site(self, deviations: Array) -> Array:
        return self.loc + from_rows(deviations, jnp.shape(self.loc), self.axis)
