"""Gaussian priors of sites, as affine maps of independent standard normal numbers z. Knows distributions, no models.

A site's entries are independent, or those of an event have a covariance: which is a value, with the map, its inverse
and its volume.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from numpyro_symmetry.linalg import product, solve_triangular
from numpyro_symmetry.models import without_wrappers
from numpyro_symmetry.symmetry import SymmetryError

_times = jnp.vectorize(product, signature="(d,d),(d)->(d)")
_solved = jnp.vectorize(solve_triangular, signature="(d,d),(d)->(d)")


class Independent(NamedTuple):
    """Entries ``loc + scale * z``.

    Attributes
    ----------
    loc, scale
        Mean and standard deviation, of the site's shape.
    """

    loc: Array
    scale: Array

    def like(self, value: Array) -> Independent:
        """Of the shape and type of a value."""
        return Independent(*(jnp.broadcast_to(jnp.asarray(x, value.dtype), value.shape) for x in self))

    def value(self, z: Array) -> Array:
        """The site's value at z, which is of its shape."""
        return self.loc + self.scale * z

    def whitened(self, deviation: Array) -> Array:
        """By how much z moves where the value moves by a deviation."""
        return deviation / self.scale

    @property
    def log_scale(self) -> Array:
        """Logarithm of the volume of the map, entry by entry."""
        return jnp.log(self.scale)


class Correlated(NamedTuple):
    """Events ``loc + factor @ z``.

    Attributes
    ----------
    loc
        Mean, of the site's shape.
    factor
        Lower triangular factor of the covariance of an event, ``(..., D, D)``.
    """

    loc: Array
    factor: Array

    def like(self, value: Array) -> Correlated:
        """Of the shape and type of a value; events that share a factor go on sharing it."""
        loc, factor = (jnp.asarray(x, value.dtype) for x in self)
        return Correlated(jnp.broadcast_to(loc, value.shape), factor)

    def value(self, z: Array) -> Array:
        """The site's value at z, which is of its shape."""
        return self.loc + _times(self.factor, z)

    def whitened(self, deviation: Array) -> Array:
        """By how much z moves where the value moves by a deviation."""
        return _solved(self.factor, deviation)

    @property
    def log_scale(self) -> Array:
        """Logarithm of the volume of the map, entry by entry."""
        return jnp.broadcast_to(jnp.log(jnp.diagonal(self.factor, axis1=-2, axis2=-1)), self.loc.shape)


Prior = Independent | Correlated


def factor_of(fn: Any) -> Array:
    """The factor of a multivariate normal's covariance, of which a density reads the triangle alone."""
    return jnp.tril(fn.scale_tril)


def _walk(fn: Any) -> Correlated:
    scale = jnp.asarray(fn.scale)[..., None, None]
    return Correlated(jnp.zeros(()), jnp.tril(jnp.broadcast_to(scale, (*scale.shape[:-2], fn.num_steps, fn.num_steps))))


# family -> its map
_GAUSSIANS: dict[type, Callable[[Any], Prior]] = {
    dist.Normal: lambda fn: Independent(fn.loc, fn.scale),
    dist.MultivariateNormal: lambda fn: Correlated(fn.loc, factor_of(fn)),
    dist.GaussianRandomWalk: _walk,
}
FAMILIES = ", ".join(family.__name__ for family in _GAUSSIANS)


def gaussian_prior(site: Any) -> Prior | None:
    """The prior of a site, before it is broadcast; ``None`` if it is no Gaussian, or a weighted one."""
    # a mask stays, and is no Gaussian
    fn = without_wrappers(site["fn"])
    return _GAUSSIANS[type(fn)](fn) if type(fn) in _GAUSSIANS and site["scale"] is None else None


def eligible(site: Any) -> bool:
    """Whether a latent site has an unweighted Gaussian prior."""
    return gaussian_prior(site) is not None


def prior_of(site: Any) -> Prior:
    """The Gaussian prior of a site that has one, of its shape.

    Raises
    ------
    SymmetryError
        If it has none with the arguments of this call.
    """
    if (prior := gaussian_prior(site)) is None:
        raise SymmetryError(
            f"Site {site['name']!r} follows the others by its Gaussian prior, and with these arguments of the model it "
            "has none that is neither masked nor scaled. Make a guide anew for them."
        )
    # parameters may be whole numbers, the values never are
    return prior.like(jnp.asarray(site["value"]))
