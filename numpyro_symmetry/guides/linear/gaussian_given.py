"""`GaussianGiven`: a site that is Gaussian in whitened coordinates, given those drawn before it. Knows arrays only."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.kl import kl_divergence

from numpyro_symmetry.guides.linear.priors import Prior
from numpyro_symmetry.guides.linear.rows import Precision, log_prob
from numpyro_symmetry.models import real_event
from numpyro_symmetry.symmetry import UnsupportedGuideError


class GaussianGiven(dist.Distribution):
    r"""A site given those drawn before it: :math:`b = b_0 + Fz` by the prior, with :math:`z \sim N(m, \Lambda^{-1})`.

    Parameters
    ----------
    loc, precision
        m, ``(P,)`` or ``(P, C)``, and :math:`\Lambda`.
    prior
        Its map from z, of the site's shape.
    event_dim
        Dimensions of an event, as in the model. Members of a batch need not be independent: each is given what its
        entries contribute to their joint log density, which is its own where they are.
    lowered_by
        Site drawn before it, together with which it is one Gaussian -> :math:`S`, ``(P, P')``: with the z of that site
        the mean of this one falls by S times as much.
    children
        Sites drawn before it whose prior in the model depends on it, so that no divergence of theirs has a closed form.
    """

    arg_constraints: dict[str, Any] = {}
    reparametrized_params: list[Any] = []
    pytree_data_fields: tuple[str, ...] = ("loc", "precision", "prior", "lowered_by")
    pytree_aux_fields: tuple[str, ...] = ("children",)
    loc: Array
    precision: Precision
    prior: Prior
    lowered_by: dict[str, Array]

    def __init__(
        self,
        loc: Array,
        precision: Precision,
        prior: Prior,
        event_dim: int,
        lowered_by: dict[str, Array] | None = None,
        children: tuple[str, ...] = (),
    ) -> None:
        self.children = children
        self.loc, self.precision, self.prior, self.lowered_by = loc, precision, prior, lowered_by or {}
        shape = jnp.shape(prior.loc)
        super().__init__(shape[: len(shape) - event_dim], shape[len(shape) - event_dim :], validate_args=False)

    @property
    def support(self) -> constraints.Constraint:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Real, of the site's shape."""
        return real_event(self.event_dim)

    @property
    def mean(self) -> Array:
        """Mean, of the site's shape."""
        return self._value(self.loc)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws ``(*sample_shape, *event)``."""
        if not sample_shape:
            return self._value(self.loc + self.precision.sample(key, self.loc.shape))
        draws = jax.lax.map(self.sample, jax.random.split(key, math.prod(sample_shape)))
        return draws.reshape(sample_shape + self.shape())

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """Log densities of the batch, nats."""
        deviation = self.coordinates(value) - self.loc
        if not self.batch_shape:
            return log_prob(self.precision, deviation) - jnp.sum(self.prior.log_scale)
        by_entry = self.precision.log_prob_by_entry(deviation).reshape(self.shape()) - self.prior.log_scale
        return by_entry.sum(tuple(range(len(self.batch_shape), by_entry.ndim)))

    def coordinates(self, value: Array) -> Array:
        """Whitened coordinates z of a value."""
        return self.scaled(value - self.prior.loc)

    def scaled(self, deviation: Array) -> Array:
        """Whitened coordinates of a deviation from the prior's mean."""
        return self.prior.whitened(deviation).reshape(self.loc.shape)

    def _value(self, z: Array) -> Array:
        return self.prior.value(z.reshape(self.shape()))


def _no_divergence(given: GaussianGiven, prior: dist.Distribution) -> Array:
    """None in closed form; a loss that asks takes those of other sites in closed form, whatever follows them."""
    if given.children:
        raise UnsupportedGuideError(
            f"The priors of {list(given.children)} depend on sites that follow them in the guide, so that "
            "TraceMeanField_ELBO, which takes their divergences in closed form, is no bound: train by Trace_ELBO()."
        )
    raise NotImplementedError


kl_divergence.register(GaussianGiven, (dist.Distribution, dist.ExpandedDistribution))(_no_divergence)
