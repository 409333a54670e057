"""One Gaussian in place of rebased draws: which of its weights are known, and what is left without the others.

Knows Gaussians; no draws and no models.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from numpyro_symmetry.matching import DiagonalGaussian
from numpyro_symmetry.matching.gaussian_inputs import ravel, unravel
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import as_names
from numpyro_symmetry.symmetry.shown import counted


def prune(gaussian: DiagonalGaussian, keep: float, *, sites: Iterable[str] | None = None) -> dict[str, Any]:
    """Means of the entries with the smallest standard deviations, and zero for all others.

    Parameters
    ----------
    gaussian
        For example ``DiagonalGaussian.fit`` of rebased draws.
    keep
        Share of the entries to keep, from 0 to 1, all sites together.
    sites
        Which sites to prune; others keep their means.

    Returns
    -------
    dict
        Site -> values.

    Raises
    ------
    SymmetryError
        If ``keep`` is no share, a site is unknown, or a mean or standard deviation is not a number.
    TypeError
        If the Gaussian is no `DiagonalGaussian`, or ``sites`` is one name.

    References
    ----------
    Xiao et al. (2023), arXiv:2401.00611, section 4.3.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import DiagonalGaussian
    >>> from numpyro_symmetry.traces import prune
    >>> q = DiagonalGaussian({"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([0.1, 3.0])})
    >>> prune(q, 0.5)["w"].tolist()
    [1.0, 0.0]
    """
    if not isinstance(gaussian, DiagonalGaussian):
        raise TypeError(
            "prune expects a DiagonalGaussian, such as DiagonalGaussian.fit(draws), whose entries have each a standard "
            f"deviation; got {type(gaussian).__name__}."
        )
    if not isinstance(keep, float | int | np.number) or not 0.0 <= keep <= 1.0:
        raise SymmetryError(f"keep is a share of entries, from 0 to 1; got {keep!r}.")
    chosen = list(gaussian.loc if sites is None else as_names(sites, "sites", example="('w1', 'b1')"))
    if unknown := sorted(set(chosen) - set(gaussian.loc)):
        raise SymmetryError(f"Sites {unknown} are not among the Gaussian's {sorted(gaussian.loc)}.")
    for site in chosen:
        for what, values in (("mean", gaussian.loc[site]), ("standard deviation", gaussian.scale[site])):
            if bad := int((~np.isfinite(np.asarray(values))).sum()):
                raise SymmetryError(
                    f"Site {site!r} of the Gaussian has {counted(bad, what, 'that is', 'that are')} not finite."
                )
    values = {site: np.asarray(loc) for site, loc in gaussian.loc.items()}
    scale = ravel({site: gaussian.scale[site] for site in chosen})
    kept = np.zeros(len(scale), bool)
    kept[np.argsort(scale, kind="stable")[: round(keep * len(scale))]] = True
    known = unravel(kept, {site: values[site] for site in chosen})
    return values | {site: np.where(known[site], values[site], 0) for site in chosen}
