"""Wasserstein distances, geodesics and barycentres of independent Gaussians, as methods of `DiagonalGaussian`.

Knows neither symmetries nor elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from numpyro_symmetry.matching.gaussian_inputs import module_of, refuse_other_sites
from numpyro_symmetry.symmetry.arguments import as_numbers, as_real_array

if TYPE_CHECKING:
    from numpyro_symmetry.matching.gaussian import DiagonalGaussian


def wasserstein(self: DiagonalGaussian, other: DiagonalGaussian) -> Array:
    r"""2-Wasserstein distance, :math:`W_2^2 = \lVert\mu-\mu'\rVert^2 + \lVert\sigma-\sigma'\rVert^2`.

    Parameters
    ----------
    other
        A Gaussian of the same sites and shapes.

    Returns
    -------
    Array
        The distance, not its square, in the units of the sites.

    Raises
    ------
    SymmetryError
        If the two have different sites or shapes.
    TypeError
        If the other is no `DiagonalGaussian`.
    """
    refuse_other_sites(self, other)
    xp = module_of((self, other))
    pairs = [(a[site], b[site]) for a, b in ((self.loc, other.loc), (self.scale, other.scale)) for site in self.loc]
    return xp.sqrt(sum((((xp.asarray(x) - xp.asarray(y)) ** 2).sum() for x, y in pairs), xp.zeros(())))


def geodesic(self: DiagonalGaussian, other: DiagonalGaussian, t: ArrayLike) -> DiagonalGaussian:
    r"""The Gaussian a share ``t`` of the way along the Wasserstein geodesic.

    .. math:: \mu_t = (1-t)\,\mu + t\,\mu', \qquad \sigma_t = (1-t)\,\sigma + t\,\sigma'

    Parameters
    ----------
    other
        The Gaussian at its other end, of the same sites and shapes.
    t
        The share of the way, from 0 to 1.

    Returns
    -------
    DiagonalGaussian
        Standard deviations, not variances, are linear in ``t``.

    Raises
    ------
    ValueError
        If ``t`` is not from 0 to 1: beyond its ends there is no geodesic, and standard deviations turn negative.
    SymmetryError
        If the two have different sites or shapes.
    TypeError
        If ``t`` is no number, or the other no `DiagonalGaussian`.

    Examples
    --------
    >>> from numpyro_symmetry import DiagonalGaussian
    >>> q = DiagonalGaussian({"w": np.array(0.0)}, {"w": np.array(1.0)})
    >>> half = q.geodesic(DiagonalGaussian({"w": np.array(4.0)}, {"w": np.array(3.0)}), 0.5)
    >>> float(half.loc["w"]), float(half.scale["w"])
    (2.0, 2.0)
    """
    refuse_other_sites(self, other)
    share = as_real_array(t, "t", TypeError)
    if share.ndim or not (isinstance(t, Tracer) or 0.0 <= float(share) <= 1.0):
        raise ValueError(f"t must be one number from 0 to 1, the share of the way; got {t!r}.")
    xp = module_of((self, other, t))

    def between(a: Any, b: Any) -> Any:
        # from the nearer end, so that both ends are what they are, and what does not differ stays far from zero too
        a, b = xp.asarray(a), xp.asarray(b)
        return xp.where(share < 0.5, a + t * (b - a), b - (1 - t) * (b - a))

    return jax.tree.map(between, self, other)


def barycenter(gaussians: Sequence[DiagonalGaussian], weights: Sequence[float] | None = None) -> DiagonalGaussian:
    """Wasserstein barycentre: the (weighted) averages of means and of standard deviations.

    Parameters
    ----------
    gaussians
        One or several, of the same sites and shapes.
    weights
        One for each, not negative; their sum is divided out. All alike by default.

    Returns
    -------
    DiagonalGaussian
        Of the same sites and shapes.

    Raises
    ------
    ValueError
        If there are no Gaussians, or weights are negative, not finite, all zero, or not one for each.
    SymmetryError
        If sites or shapes differ, or weights hold no real numbers.
    TypeError
        If ``gaussians`` is no list of `DiagonalGaussian`.

    Examples
    --------
    >>> from numpyro_symmetry import DiagonalGaussian
    >>> members = [DiagonalGaussian({"w": np.array(loc)}, {"w": np.array(0.5)}) for loc in (0.0, 1.0, 5.0)]
    >>> round(float(DiagonalGaussian.barycenter(members).loc["w"]), 6)
    2.0
    """
    if not isinstance(gaussians, Iterable):
        raise TypeError(f"gaussians must be a list of DiagonalGaussian; got one {type(gaussians).__name__}.")
    gaussians = list(gaussians)
    if not gaussians:
        raise ValueError("barycenter needs at least one Gaussian; got none.")
    for gaussian in gaussians:
        refuse_other_sites(gaussians[0], gaussian)
    given = np.ones(len(gaussians)) if weights is None else weights
    share = as_real_array(as_numbers(given, "weights"), "weights") * 1.0
    if share.shape != (len(gaussians),):
        raise ValueError(f"weights must hold one number for each of {len(gaussians)} Gaussians; got {weights!r}.")
    if not (np.isfinite(share).all() and (share >= 0).all() and share.sum() > 0):
        raise ValueError(f"weights must be finite, none negative and not all zero; got {weights!r}.")
    share, xp = share / share.sum(), module_of(list(gaussians))
    return jax.tree.map(lambda *xs: sum(w * xp.asarray(x) for w, x in zip(share, xs, strict=True)), *gaussians)
