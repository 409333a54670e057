"""`UnitGaussian`: a Gaussian with a covariance for each unit, handed over. Knows arrays by name; no guides.

Beside `DiagonalGaussian` and `FullGaussian`, for networks whose covariance as a whole would be too large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jax.core import Tracer

from numpyro_symmetry.matching.gaussian_inputs import refuse_what_is_no_covariance, refuse_what_is_not_finite
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import refuse_masked, shape_of
from numpyro_symmetry.symmetry.shown import as_html, sizes


@dataclass(frozen=True)
class UnitGaussian:
    r"""A Gaussian with a covariance for each unit, and independent numbers besides.

    .. math:: q(\theta) = \prod_i \mathcal N(u_i;\, m_i, \Sigma_i) \prod_e \mathcal N(\theta_e)

    Parameters
    ----------
    loc
        Site -> means.
    covariance
        Group -> ``(n, d, d)``: of the d numbers of each of its n units. They are ordered by site, as in ``loc``, and
        within a site as it is ravelled. A site on which two groups act belongs to the units of its last axis.
    scale
        Site -> standard deviations, of the sites that are no part of a unit.

    Raises
    ------
    SymmetryError
        If a number is not finite or masked, or covariances are no stack of square matrices, each of them symmetric and
        nowhere negative.
    TypeError
        If one of the three is no mapping.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry.guides import UnitGaussian
    >>> loc = {"w1": jnp.zeros((2, 5)), "b1": jnp.zeros(5), "b2": jnp.zeros(())}
    >>> q = UnitGaussian(loc, {"hidden": jnp.tile(jnp.eye(3), (5, 1, 1))}, {"b2": jnp.ones(())})
    """

    loc: Mapping[str, Any]
    covariance: Mapping[str, Any]
    scale: Mapping[str, Any]

    def __repr__(self) -> str:
        """Sites and shapes, and those of covariances."""
        return f"UnitGaussian({sizes(self.loc)}; covariances {sizes(self.covariance) or 'of no group'})"

    _repr_html_ = as_html

    def __post_init__(self) -> None:
        for name in ("loc", "covariance", "scale"):
            by_name = getattr(self, name)
            if not isinstance(by_name, Mapping):
                raise TypeError(f"{name} maps names to arrays; got {type(by_name).__name__}.")
            refuse_masked(by_name)
            for key, value in by_name.items():
                refuse_what_is_not_finite(value, f"{name} of {key!r}")
        for group, value in self.covariance.items():
            shape = shape_of(value, f"covariance of {group!r}")
            if len(shape) != 3 or shape[1] != shape[2]:
                raise SymmetryError(f"covariance of group {group!r} must be (n, d, d), a matrix a unit; got {shape}.")
            if math.prod(shape) and not isinstance(value, Tracer):
                refuse_what_is_no_covariance(value, f"covariance of {group!r}")
