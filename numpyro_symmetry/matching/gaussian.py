"""Gaussians over named sites: what a mean-field guide is, what draws are summarised by, and how a symmetry moves them.

Guides are read by their parameters and the attributes of NumPyro's autoguides, without importing NumPyro. Knows no
costs and no algorithms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from numpyro_symmetry.symmetry import Element, Symmetry, SymmetryError, UnsupportedGuideError
from numpyro_symmetry.symmetry.elements import permutation_of

_MEAN_FIELD = ("AutoNormal", "AutoDiagonalNormal", "AutoDelta")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiagonalGaussian:
    r"""Independent Gaussians for every entry of every site.

    Parameters
    ----------
    loc
        Site -> means.
    scale
        Site -> standard deviations (never variances), of the same shapes, not negative; zero for points.

    Raises
    ------
    SymmetryError
        If the sites or shapes of the two differ.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import DiagonalGaussian
    >>> q = DiagonalGaussian({"w": jnp.zeros(2)}, {"w": jnp.array([1.0, 4.0])})
    >>> p = DiagonalGaussian({"w": jnp.zeros(2)}, {"w": jnp.array([4.0, 1.0])})
    >>> round(float(q.wasserstein(p)) ** 2, 2)
    18.0
    """

    loc: dict[str, Any]
    scale: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.loc, dict) or not isinstance(self.scale, dict):
            return  # a transformation of the tree is looking at its structure
        if set(self.loc) != set(self.scale):
            raise SymmetryError(f"loc has sites {sorted(self.loc)}, scale has {sorted(self.scale)}; they must agree.")
        for site, loc in self.loc.items():
            if hasattr(loc, "shape") and np.shape(loc) != np.shape(self.scale[site]):
                raise SymmetryError(
                    f"Site {site!r}: loc has shape {np.shape(loc)} and scale {np.shape(self.scale[site])}; "
                    "give one standard deviation for each mean."
                )

    # ---- where they come from ------------------------------------------------------------------------------------

    @classmethod
    def fit(cls, values: Mapping[str, ArrayLike], *, num_leading_dims: int = 1) -> DiagonalGaussian:
        """Means and (unbiased) standard deviations of draws.

        Parameters
        ----------
        values
            Site -> ``(*leading, *event)``.
        num_leading_dims
            Number of leading (chain, draw) dimensions.

        Returns
        -------
        DiagonalGaussian
            Of the event shapes.

        Raises
        ------
        SymmetryError
            If there are fewer than two draws.
        """
        flat = {site: jnp.reshape(jnp.asarray(v), (-1, *np.shape(v)[num_leading_dims:])) for site, v in values.items()}
        if any(len(v) < 2 for v in flat.values()):
            raise SymmetryError("Fitting standard deviations needs at least two draws; there is one.")
        return cls({s: v.mean(0) for s, v in flat.items()}, {s: v.std(0, ddof=1) for s, v in flat.items()})

    @classmethod
    def from_guide(cls, guide: Any, params: Mapping[str, ArrayLike]) -> DiagonalGaussian:
        """Read a mean-field guide: `AutoNormal`, `AutoDiagonalNormal`, `AutoDelta`, a list of them, or one symmetrized.

        Parameters
        ----------
        guide
            The guide, set up.
        params
            Its parameters, as from ``SVI.get_params``.

        Returns
        -------
        DiagonalGaussian
            In the guide's unconstrained coordinates, which for elementwise supports move as the values do.

        Raises
        ------
        UnsupportedGuideError
            If the guide is not mean-field, or a site's support couples its entries (simplex, Cholesky factor).
        """
        loc: dict[str, Any] = {}
        scale: dict[str, Any] = {}
        for part in _parts(guide):
            _refuse_coupled_supports(part)
            flat = f"{part.prefix}_loc"
            if flat in params and f"{part.prefix}_scale" in params and f"{part.prefix}_cov_factor" not in params:
                loc |= part._unpack_latent(jnp.asarray(params[flat]))
                scale |= part._unpack_latent(jnp.asarray(params[f"{part.prefix}_scale"]))
                continue
            for site in _sites(part):
                if f"{site}_{part.prefix}_loc" not in params:
                    raise UnsupportedGuideError(
                        f"{type(part).__name__} is not mean-field: there is no parameter {site}_{part.prefix}_loc. "
                        "Use AutoNormal, AutoDiagonalNormal or AutoDelta, or DiagonalGaussian.fit(draws)."
                    )
                loc[site] = jnp.asarray(params[f"{site}_{part.prefix}_loc"])
                if _is_point(part):
                    loc[site] = _unconstraining(part, site).inv(loc[site])
                scale[site] = jnp.asarray(params.get(f"{site}_{part.prefix}_scale", jnp.zeros_like(loc[site])))
        return cls(loc, {site: jnp.broadcast_to(scale[site], loc[site].shape) for site in loc})

    def to_guide_params(self, guide: Any) -> dict[str, Array]:
        """Parameters that make a mean-field guide this Gaussian: for ``sample_posterior``, or ``init_params`` of SVI.

        Parameters
        ----------
        guide
            The guide, set up; as for `from_guide`.

        Returns
        -------
        dict
            Parameter name -> array.

        Raises
        ------
        UnsupportedGuideError
            If the guide is not mean-field, or is `AutoDelta` and the standard deviations are not zero.
        """
        params: dict[str, Array] = {}
        for part in _parts(guide):
            if type(part).__name__ not in _MEAN_FIELD:
                raise UnsupportedGuideError(f"{type(part).__name__} is not mean-field; use one of {_MEAN_FIELD}.")
            if hasattr(part, "_init_locs") and hasattr(part, "latent_dim"):
                for what, by_site in (("loc", self.loc), ("scale", self.scale)):
                    flat = [jnp.ravel(by_site[site]) for site in part._init_locs]
                    params[f"{part.prefix}_{what}"] = jnp.concatenate(flat)
                continue
            for site in _sites(part):
                loc = jnp.asarray(self.loc[site])
                if not _is_point(part):
                    params[f"{site}_{part.prefix}_scale"] = jnp.asarray(self.scale[site])
                elif np.any(np.asarray(self.scale[site])):
                    raise UnsupportedGuideError(
                        f"Site {site!r} has standard deviations, which AutoDelta has no room for; use AutoNormal."
                    )
                else:
                    loc = _unconstraining(part, site)(loc)
                params[f"{site}_{part.prefix}_loc"] = loc
        return params

    # ---- what they are -------------------------------------------------------------------------------------------

    def log_density(self, values: Mapping[str, ArrayLike]) -> Array:
        """Log density of values with any leading dimensions, nats."""
        total = jnp.zeros(())
        for site, loc in self.loc.items():
            terms = jax.scipy.stats.norm.logpdf(jnp.asarray(values[site]), loc, self.scale[site])
            total = total + terms.sum(tuple(range(terms.ndim - jnp.ndim(loc), terms.ndim)))
        return total

    def sample(self, rng_key: Array, shape: tuple[int, ...] = ()) -> dict[str, Array]:
        """Draws, site -> ``(*shape, *event)``."""
        keys = dict(zip(self.loc, jax.random.split(rng_key, len(self.loc)), strict=True))

        def one(site: str) -> Array:
            loc = jnp.asarray(self.loc[site])
            return loc + self.scale[site] * jax.random.normal(keys[site], shape + loc.shape, loc.dtype)

        return {site: one(site) for site in self.loc}

    def wasserstein(self, other: DiagonalGaussian) -> Array:
        r"""2-Wasserstein distance, :math:`W_2^2 = \lVert\mu-\mu'\rVert^2 + \lVert\sigma-\sigma'\rVert^2`."""
        _refuse_other_sites(self.loc, other.loc)
        pairs = [(a[site], b[site]) for a, b in ((self.loc, other.loc), (self.scale, other.scale)) for site in self.loc]
        return jnp.sqrt(sum((jnp.sum((jnp.asarray(x) - y) ** 2) for x, y in pairs), jnp.zeros(())))

    def geodesic(self, other: DiagonalGaussian, t: ArrayLike) -> DiagonalGaussian:
        """The Gaussian a share ``t`` of the way along the Wasserstein geodesic: means *and* stds are linear in it."""
        _refuse_other_sites(self.loc, other.loc)
        return jax.tree.map(lambda a, b: (1 - t) * jnp.asarray(a) + t * jnp.asarray(b), self, other)

    @staticmethod
    def barycenter(gaussians: Sequence[DiagonalGaussian], weights: Sequence[float] | None = None) -> DiagonalGaussian:
        """Wasserstein barycentre: the (weighted) averages of means and of standard deviations."""
        share = np.ones(len(gaussians)) if weights is None else np.asarray(weights, float)
        share = share / share.sum()
        return jax.tree.map(lambda *xs: sum(w * jnp.asarray(x) for w, x in zip(share, xs, strict=True)), *gaussians)

    def apply(self, symmetry: Symmetry, element: Element) -> DiagonalGaussian:
        """Law of ``g·θ``: means move as values do, standard deviations without the signs."""
        without_signs = Symmetry(symmetry.axes, {}, symmetry.sizes)
        permutation: Element = {name: permutation_of(part) for name, part in element.items()}
        return DiagonalGaussian(symmetry.apply(element, self.loc), without_signs.apply(permutation, self.scale))


@dataclass(frozen=True)
class FullGaussian:
    """A Gaussian over all entries of all sites together.

    Parameters
    ----------
    loc
        Site -> means.
    covariance
        ``(D, D)`` over the sites' entries, ravelled and in the order of ``loc``.
    """

    loc: dict[str, Any]
    covariance: Any

    def __post_init__(self) -> None:
        size = sum(int(np.size(v)) for v in self.loc.values())
        if np.shape(self.covariance) != (size, size):
            raise SymmetryError(
                f"The sites {list(self.loc)} have {size} entries; covariance has shape {np.shape(self.covariance)}, "
                f"expected ({size}, {size})."
            )

    @classmethod
    def from_guide(cls, guide: Any, params: Mapping[str, ArrayLike]) -> FullGaussian:
        """Read `AutoMultivariateNormal` or `AutoLowRankMultivariateNormal`, in unconstrained coordinates."""
        part, *others = _parts(guide)
        if others or not any(f"{part.prefix}_{name}" in params for name in ("scale_tril", "cov_factor")):
            raise UnsupportedGuideError(
                f"{type(part).__name__} has no joint covariance; use DiagonalGaussian.from_guide."
            )
        _refuse_coupled_supports(part)
        posterior = part.get_posterior(params)
        loc = part._unpack_latent(posterior.mean)
        # the sites in the order of the flat latent
        return cls({site: loc[site] for site in part._init_locs}, posterior.covariance_matrix)

    def diagonal(self) -> DiagonalGaussian:
        """The Gaussian of the same means and standard deviations without correlations."""
        return DiagonalGaussian(dict(self.loc), self._unravel(np.sqrt(np.diagonal(np.asarray(self.covariance)))))

    def wasserstein(self, other: FullGaussian) -> float:
        r"""2-Wasserstein (Bures) distance: the transport of one covariance into another, and of the means.

        .. math:: W_2^2 = \lVert\mu-\mu'\rVert^2 + \operatorname{tr}\big(\Sigma + \Sigma' - 2(\Sigma^{1/2}\Sigma'
                  \Sigma^{1/2})^{1/2}\big)
        """
        _refuse_other_sites(self.loc, other.loc)
        a, b = np.asarray(self.covariance, float), np.asarray(other._in_order_of(self).covariance, float)
        root = _square_root(a)
        cross = np.sqrt(np.clip(np.linalg.eigvalsh(root @ b @ root), 0.0, None)).sum()
        means = sum(((np.asarray(self.loc[s], float) - np.asarray(other.loc[s], float)) ** 2).sum() for s in self.loc)
        return float(np.sqrt(max(means + np.trace(a) + np.trace(b) - 2.0 * cross, 0.0)))

    def apply(self, symmetry: Symmetry, element: Element) -> FullGaussian:
        """Law of ``g·θ``: rows and columns of the covariance move together."""
        index = self._unravel(np.arange(len(np.asarray(self.covariance))))
        without_signs = Symmetry(symmetry.axes, {}, symmetry.sizes)
        permutation: Element = {name: permutation_of(part) for name, part in element.items()}
        order = self._ravel(without_signs.apply(permutation, index)).astype(int)
        sign = self._ravel(symmetry.apply(element, self._unravel(np.ones(len(order)))))
        covariance = np.asarray(self.covariance)[np.ix_(order, order)] * sign[:, None] * sign
        return FullGaussian(symmetry.apply(element, self.loc), covariance)

    def _in_order_of(self, other: FullGaussian) -> FullGaussian:
        """The same law with its sites in another's order."""
        index = self._unravel(np.arange(len(np.asarray(self.covariance))))
        order = np.concatenate([np.ravel(index[site]) for site in other.loc])
        return FullGaussian({s: self.loc[s] for s in other.loc}, np.asarray(self.covariance)[np.ix_(order, order)])

    def _unravel(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        ends = np.cumsum([np.size(v) for v in self.loc.values()])
        parts = np.split(flat, ends[:-1])
        return {site: part.reshape(np.shape(self.loc[site])) for site, part in zip(self.loc, parts, strict=True)}

    def _ravel(self, by_site: Mapping[str, ArrayLike]) -> np.ndarray:
        return np.concatenate([np.ravel(np.asarray(by_site[site])) for site in self.loc])


def _refuse_other_sites(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    if set(a) != set(b):
        raise SymmetryError(f"The two have different sites: {sorted(a)} and {sorted(b)}.")
    for site in a:
        if np.shape(a[site]) != np.shape(b[site]):
            raise SymmetryError(
                f"Site {site!r} has shape {np.shape(a[site])} in one and {np.shape(b[site])} in the other."
            )


def _square_root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T


def _parts(guide: Any) -> Iterator[Any]:
    guide = getattr(guide, "base", guide)
    if not hasattr(guide, "prefix") and not hasattr(guide, "_guides"):
        raise UnsupportedGuideError(
            f"{type(guide).__name__} is not an autoguide: fit a Gaussian to its draws, DiagonalGaussian.fit(draws)."
        )
    if hasattr(guide, "_guides"):
        for part in guide._guides:
            yield from _parts(part)
    else:
        if getattr(guide, "prototype_trace", None) is None:
            raise UnsupportedGuideError("The guide has not been set up: run SVI.init, or call it once.")
        yield guide


def _sites(part: Any) -> list[str]:
    return [name for name, site in part.prototype_trace.items() if site["type"] == "sample" and not site["is_observed"]]


def _is_point(part: Any) -> bool:
    return type(part).__name__ == "AutoDelta"


def _unconstraining(part: Any, site: str) -> Any:
    """The bijection from unconstrained to constrained values; whoever has a guide has NumPyro loaded."""
    from numpyro.distributions import biject_to

    return biject_to(part.prototype_trace[site]["fn"].support)


def constrained_sites(guide: Any) -> dict[str, Any]:
    """Site -> support, of a guide's sites whose support is not all of the real line."""
    found = {}
    for part in _parts(guide):
        for site in _sites(part):
            support = _entrywise(part.prototype_trace[site]["fn"].support)
            if type(support).__name__ not in ("_Real", "_RealVector"):
                found[site] = support
    return found


def _entrywise(support: Any) -> Any:
    while hasattr(support, "reinterpreted_batch_ndims"):
        support = support.base_constraint
    return support


def _refuse_coupled_supports(part: Any) -> None:
    for site in _sites(part):
        support = _entrywise(part.prototype_trace[site]["fn"].support)
        if support.event_dim:
            raise UnsupportedGuideError(
                f"Site {site!r} has support {support}, whose unconstrained coordinates do not move as its values do. "
                "Match draws instead, or a Gaussian fitted to draws of the constrained values."
            )
