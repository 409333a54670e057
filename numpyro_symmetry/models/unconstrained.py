r"""Values of constrained sites taken to the real line, in which a guide is Gaussian. Knows transforms; no models.

On a simplex NumPyro takes what is left of the stick as one less what was broken off, :math:`1 - \sum_{j\le k} y_j`. In
single precision that is nothing where the last entries are smaller than 1e-7, as those of a sparse topic are, and the
coordinate is wrong by up to 87. Here it is summed up from the other end, :math:`\sum_{j>k} y_j`, where nothing cancels.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro import distributions as dist
from numpyro.distributions.transforms import StickBreakingTransform, biject_to
from numpyro.infer.util import get_transforms

from numpyro_symmetry.models.sites import entrywise, without_wrappers
from numpyro_symmetry.symmetry import SymmetryError

Arrays = dict[str, Array]


def unconstrain(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], values: Mapping[str, Any]) -> Arrays:
    """Values of a model's sites on the real line; supports may depend on one another."""
    # parameters may be read off data that a mask hides, and that are NaN
    with numpyro.validation_enabled(False), warnings.catch_warnings():
        # discrete sites are summed out whether they are marked for it or not, as DiscreteHMCGibbs takes them
        warnings.filterwarnings("ignore", "Some algorithms will automatically enumerate", FutureWarning)
        transforms = get_transforms(function, args, kwargs, values)
    return {site: inverse(transforms[site], value) if site in transforms else value for site, value in values.items()}


def bijection_to(site: str, support: Any) -> Any:
    """NumPyro's bijection from the real line to a site's support.

    Raises
    ------
    SymmetryError
        If it knows none.
    """
    try:
        return biject_to(support)
    except NotImplementedError:
        kind = type(entrywise(support)).__name__
        raise SymmetryError(
            f"Site {site!r} of the model has a support {kind} to which NumPyro knows no bijection from the real line, "
            "which a guide, a Gaussian and an improper prior need: register one "
            f"(numpyro.distributions.biject_to.register({kind}, ...)), or sample what the site is computed from (as "
            "ProjectedReparam does of directions)."
        ) from None


def unconstrained(support: Any, value: Any) -> Array:
    """A value of a support on the real line, where NumPyro's bijection takes it."""
    return inverse(biject_to(support), value)


def inverse(transform: Any, value: Any) -> Array:
    """The value that a transform takes to ``value``."""
    if not _breaks_a_stick(transform):
        return transform.inv(value)
    value = jnp.asarray(value) * 1.0  # of integers too
    # what is left of the stick after each piece but the last
    rest = jnp.cumsum(value[..., :0:-1], axis=-1)[..., ::-1]
    size = value.shape[-1] - 1
    rest = jnp.maximum(rest, jnp.finfo(value.dtype).tiny)
    return jnp.log(value[..., :-1] / rest) + jnp.log(size - jnp.arange(size))


def on_simplex(value: Array) -> Array:
    """Whether the last axis holds shares that add up to one, but for the rounding of so many of them."""
    rounding = max(1e-6, value.shape[-1] * jnp.finfo(value.dtype).eps)
    return (value >= 0).all(-1) & (jnp.abs(value.sum(-1) - 1) < rounding)


def on_the_way(fn: Any, value: Array) -> list[list[Any]]:
    """Steps of a transformed distribution on the way to a value where NumPyro computes them wrongly; else empty."""
    fn = without_wrappers(fn)
    if not isinstance(fn, dist.TransformedDistribution) or not any(map(_breaks_a_stick, fn.transforms)):
        return []
    values = itertools.accumulate(reversed(fn.transforms), lambda x, step: inverse(step, x), initial=value)
    return [[x, None] for x in values][:0:-1]


def _breaks_a_stick(transform: Any) -> bool:
    return isinstance(entrywise(transform), StickBreakingTransform)
