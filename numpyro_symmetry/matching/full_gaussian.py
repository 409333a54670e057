"""A Gaussian over all entries of named sites together, with its covariance.

Moves and distances are computed in NumPy. Knows no costs and no algorithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from numpyro_symmetry.matching.gaussian import DiagonalGaussian
from numpyro_symmetry.matching.gaussian_inputs import (
    by_site,
    module_of,
    order_of,
    refuse_no_symmetry,
    refuse_other_sites,
    refuse_what_is_no_covariance,
    refuse_what_is_not_finite,
    square_root,
    unchecked,
    unravel,
    with_sites_in_order,
)
from numpyro_symmetry.symmetry import Element, Symmetry, SymmetryError, as_html
from numpyro_symmetry.symmetry.arguments import refuse_masked, refuse_tracers, shape_of
from numpyro_symmetry.symmetry.shown import counted, sizes


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True)
class FullGaussian:
    """A Gaussian over all entries of all sites together.

    Parameters
    ----------
    loc
        Site -> means; or a pytree, whose paths to arrays are sites, in the order of its leaves.
    covariance
        ``(D, D)`` over the sites' entries, ravelled and in the order of ``loc``; symmetric, and nowhere negative.
        That of ``jax.flatten_util.ravel_pytree`` has the leaves of a dict by name: pass ``dict(sorted(loc.items()))``.

    Raises
    ------
    SymmetryError
        If the covariance is of another shape, not finite, not symmetric or has a negative eigenvalue, all but for
        rounding, or a mean is masked or not finite. Traced values are not looked at.
    TypeError
        If ``loc`` is neither a mapping nor a pytree of arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import FullGaussian
    >>> q = FullGaussian({"w": np.zeros(2)}, np.diag([1.0, 16.0]))
    >>> p = FullGaussian({"w": np.zeros(2)}, np.diag([16.0, 1.0]))
    >>> round(q.wasserstein(p) ** 2, 2)
    18.0
    """

    loc: dict[str, Any]
    covariance: Any

    def __post_init__(self) -> None:
        vars(self).update(loc=by_site(self.loc, "loc"))
        refuse_masked(self.loc)
        refuse_masked({"covariance": self.covariance}, "Argument")
        for site, loc in self.loc.items():
            refuse_what_is_not_finite(loc, f"loc of site {site!r}")
        size = sum(int(np.size(v)) for v in self.loc.values())
        if (shape := shape_of(self.covariance, "covariance")) != (size, size):
            raise SymmetryError(
                f"The sites {list(self.loc)} have {counted(size, 'entry')}; covariance has shape {shape}, expected "
                f"({size}, {size})."
            )
        if size and not isinstance(self.covariance, Tracer):
            refuse_what_is_no_covariance(self.covariance, "covariance")

    def __repr__(self) -> str:
        """Sites and shapes."""
        return f"FullGaussian({sizes({**self.loc, 'covariance': self.covariance})})"

    _repr_html_ = as_html

    def tree_flatten_with_keys(self) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """Means and covariance, as a pytree; the order of sites is that of the covariance, and kept."""
        key = jax.tree_util
        means = tuple((key.DictKey(site), value) for site, value in self.loc.items())
        return (*means, (key.GetAttrKey("covariance"), self.covariance)), tuple(self.loc)

    @classmethod
    def tree_unflatten(cls, aux: tuple[str, ...], children: tuple[Any, ...]) -> FullGaussian:
        """The same structure with other leaves, unchecked."""
        return unchecked(cls, loc=dict(zip(aux, children[:-1], strict=True)), covariance=children[-1])

    @classmethod
    def from_guide(cls, guide: Any, params: Mapping[str, ArrayLike]) -> FullGaussian:
        """Read `AutoMultivariateNormal`, `AutoLowRankMultivariateNormal` or `AutoLaplaceApproximation`.

        Parameters
        ----------
        guide
            The guide, set up.
        params
            Its parameters, as from ``SVI.get_params``.

        Returns
        -------
        FullGaussian
            In unconstrained coordinates. Laplace's approximation is read at its mode, with its covariance there.

        Raises
        ------
        UnsupportedGuideError
            If the guide is another one, a parameter is missing or misshapen, or a site's support couples its entries
            (simplex, Cholesky factor).
        SymmetryError
            If a parameter holds no real numbers, or none that make a Gaussian.

        Examples
        --------
        >>> import jax
        >>> from numpyro import handlers
        >>> from numpyro.infer.autoguide import AutoMultivariateNormal
        >>> from numpyro_symmetry.testing import enumerable_mixture
        >>> model, data = enumerable_mixture()[:2]
        >>> guide = AutoMultivariateNormal(model)
        >>> _ = handlers.seed(guide, jax.random.key(0))(*data)  # sets it up, as SVI.init does
        >>> params = {"auto_loc": np.array([-2.0, 2.0]), "auto_scale_tril": np.array([[1.0, 0.0], [0.5, 1.0]])}
        >>> FullGaussian.from_guide(guide, params).covariance.tolist()
        [[1.0, 0.5], [0.5, 1.25]]
        """
        from numpyro_symmetry.matching import guide_parameters

        return cls(*guide_parameters.joint_of(guide, params))

    def diagonal(self) -> DiagonalGaussian:
        """The Gaussian of the same means and standard deviations without correlations."""
        xp = module_of(self.covariance)
        variances = xp.clip(xp.diagonal(xp.asarray(self.covariance)), 0.0, None)
        return DiagonalGaussian(dict(self.loc), unravel(xp.sqrt(variances), dict(self.loc)))

    def wasserstein(self, other: FullGaussian) -> float:
        r"""2-Wasserstein (Bures) distance: the transport of one covariance into another, and of the means.

        .. math:: W_2^2 = \lVert\mu-\mu'\rVert^2 + \operatorname{tr}\big(\Sigma + \Sigma' - 2(\Sigma^{1/2}\Sigma'
                  \Sigma^{1/2})^{1/2}\big)

        Parameters
        ----------
        other
            A Gaussian of the same sites and shapes.

        Returns
        -------
        float
            The distance, not its square, in the units of the sites.

        Raises
        ------
        SymmetryError
            If the two have different sites or shapes.
        TypeError
            If the other is no `FullGaussian`, or under `jit`.
        """
        refuse_other_sites(self, other)
        refuse_tracers("FullGaussian.wasserstein", self=self, other=other)
        a, b = np.asarray(self.covariance, float), np.asarray(other.in_order_of(self).covariance, float)
        root = square_root(a)
        cross = np.sqrt(np.clip(np.linalg.eigvalsh(root @ b @ root), 0.0, None)).sum()
        means = sum(((np.asarray(self.loc[s], float) - np.asarray(other.loc[s], float)) ** 2).sum() for s in self.loc)
        return float(np.sqrt(max(means + np.trace(a) + np.trace(b) - 2.0 * cross, 0.0)))

    def apply(self, symmetry: Symmetry, element: Element) -> FullGaussian:
        """Law of ``g·θ``: rows and columns of the covariance move together.

        Parameters
        ----------
        symmetry
            What may be permuted.
        element
            Element ``g``, one and no batch.

        Returns
        -------
        FullGaussian
            Of the same sites and shapes.

        Raises
        ------
        SymmetryError
            If ``element`` is a batch of elements, and as for `Symmetry.apply`.
        TypeError
            If ``symmetry`` is no `Symmetry`, or under `jit`.

        Examples
        --------
        >>> q = FullGaussian({"w": np.array([1.0, 2.0])}, np.array([[1.0, 0.5], [0.5, 4.0]]))
        >>> q.apply(Symmetry({"w": ("unit",)}), {"unit": np.array([1, 0])}).covariance.tolist()
        [[4.0, 0.5], [0.5, 1.0]]
        """
        refuse_no_symmetry(symmetry)
        refuse_tracers("FullGaussian.apply", element=element, self=self)
        order, sign = order_of(symmetry, element, dict(self.loc))
        if order.ndim > 1:
            raise SymmetryError(
                f"FullGaussian.apply moves a law by one element; got a batch of shape {order.shape[:-1]}. Take "
                "them one by one: jax.tree.map(lambda x: x[k], element)."
            )
        covariance = np.asarray(self.covariance)[np.ix_(order, order)] * sign[:, None] * sign
        return FullGaussian(symmetry.apply(element, self.loc), covariance)

    def in_order_of(self, other: FullGaussian) -> FullGaussian:
        """The same distribution with its sites in the order of another's."""
        covariance = with_sites_in_order(np.asarray(self.covariance), self.loc, other.loc)
        return FullGaussian({s: self.loc[s] for s in other.loc}, covariance)
