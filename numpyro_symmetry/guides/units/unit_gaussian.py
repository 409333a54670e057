"""`UnitGaussian`, a Gaussian with a covariance for each unit; and Gaussians as parameters of autoguides that hold them.

Beside `DiagonalGaussian` and `FullGaussian`, for networks whose covariance as a whole would be too large. Knows
Gaussians and autoguides; no model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.core import Tracer

from numpyro_symmetry.entropy.units import as_rows
from numpyro_symmetry.guides.units.auto_unit_normal import AutoUnitNormal
from numpyro_symmetry.guides.units.places import Place
from numpyro_symmetry.matching import FullGaussian
from numpyro_symmetry.matching.gaussian_inputs import (
    refuse_what_is_no_covariance,
    refuse_what_is_not_finite,
    unravel,
    with_sites_in_order,
)
from numpyro_symmetry.models.compat import flat_sites
from numpyro_symmetry.symmetry import SymmetryError, as_html
from numpyro_symmetry.symmetry.arguments import refuse_masked, rounding_of, shape_of
from numpyro_symmetry.symmetry.shown import counted, sizes

Numbers = dict[str, np.ndarray]
# roundings that a covariance may have gone through on its way here
_ROUNDINGS = 16.0


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


def correlated(covariance: Any) -> np.ndarray:
    """Which numbers are correlated by more than the rounding of the precision that they are given in."""
    given = np.asarray(covariance)
    eps = rounding_of(given.dtype)
    variances = np.clip(np.diagonal(given.astype(float)), 0.0, None)
    return (np.abs(given) > _ROUNDINGS * eps * np.sqrt(np.outer(variances, variances))) & ~np.eye(
        len(given), dtype=bool
    )


def by_unit(gaussian: FullGaussian, places: Mapping[str, Place]) -> UnitGaussian | None:
    """A Gaussian whose correlations are all within units, unit by unit; ``None`` for any other."""
    flat = unravel(np.arange(len(np.asarray(gaussian.covariance))), dict(gaussian.loc))
    groups = dict.fromkeys(place.group for place in places.values())
    covariance, units = np.asarray(gaussian.covariance, float), {}
    left = correlated(gaussian.covariance)
    for group in groups:
        rows = [
            as_rows(flat[site], places[site].axis) for site in flat if site in places and places[site].group == group
        ]
        index = np.asarray(np.concatenate(rows)).T
        units[group] = covariance[index[:, :, None], index[:, None, :]]
        left[index[:, :, None], index[:, None, :]] = False
    if left.any():
        return None
    scale = gaussian.diagonal().scale
    return UnitGaussian(gaussian.loc, units, {site: scale[site] for site in flat if site not in places})


def numbers_of(gaussian: Any, base: Any, loc: Numbers) -> Numbers:
    """The parameters that make a guide the Gaussian."""
    prefix = base.prefix
    if isinstance(gaussian, FullGaussian):
        order = flat_sites(base)
        covariance = with_sites_in_order(np.asarray(gaussian.covariance, float), gaussian.loc, order)
        mean = np.concatenate([np.ravel(loc[site]) for site in order])
        return {f"{prefix}_loc": mean, f"{prefix}_scale_tril": _factor(covariance, "covariance")}
    found = {f"{site}_{prefix}_loc": value for site, value in loc.items()}
    for site, scale in gaussian.scale.items():
        _refuse_points(scale, site)
        found[f"{site}_{prefix}_scale"] = np.asarray(scale, float)
    if isinstance(gaussian, UnitGaussian):
        for group, covariance in gaussian.covariance.items():
            found |= _numbers_of_units(group, np.asarray(covariance, float), base, loc)
    return found


def _numbers_of_units(group: str, covariance: np.ndarray, base: AutoUnitNormal, loc: Numbers) -> Numbers:
    """A regression of each number of a unit on those before it, in the order in which the guide draws sites."""
    places = {site: place for site, place in base.places.items() if place.group == group}
    ends = np.cumsum([places[site].numbers for site in loc if site in places])
    rows = dict(zip((s for s in loc if s in places), np.split(np.arange(ends[-1]), ends[:-1]), strict=True))
    order = np.concatenate([rows[site] for site in places])
    factor = np.stack([_factor(one[np.ix_(order, order)], f"covariance of {group!r}") for one in covariance])
    scale = np.diagonal(factor, axis1=1, axis2=2)
    coefficients = np.eye(len(order)) - scale[:, :, None] * np.linalg.inv(factor)
    found, start = {}, 0
    for site, place in places.items():
        stop, units_first = start + place.numbers, np.moveaxis(loc[site], place.axis, 0).shape
        own = scale[:, start:stop].reshape(units_first)
        found[f"{site}_{base.prefix}_scale"] = np.moveaxis(own, 0, place.axis)
        found[f"{site}_{base.prefix}_coefficients"] = np.moveaxis(coefficients[:, start:stop, :stop], 0, -1)
        start = stop
    return found


def _factor(covariance: np.ndarray, what: str) -> np.ndarray:
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise SymmetryError(
            f"{what} has no full rank, so that the Gaussian has no density. Of fewer draws than numbers (SWAG) take "
            "its diagonal(), or add the variance that they leave out to its diagonal."
        ) from None


def _refuse_points(scale: Any, site: str) -> None:
    if (count := int((np.asarray(scale) <= 0).sum())) > 0:
        raise SymmetryError(
            f"Site {site!r} has {counted(count, 'standard deviation', 'that is', 'that are')} not positive: a point "
            "mass has no density."
        )
