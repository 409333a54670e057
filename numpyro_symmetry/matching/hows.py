r"""What aligned members are made into: the mean of points, the barycentre or the product of Gaussians.

A way to merge is a small value; those with a name stand in `HOWS`. Knows Gaussians; not how labels are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.matching.cross_terms import CrossTerms, cross_terms
from numpyro_symmetry.matching.full_gaussian import FullGaussian
from numpyro_symmetry.matching.gaussian import DiagonalGaussian
from numpyro_symmetry.matching.gaussian_inputs import middle_of, refuse_other_sites, square_root
from numpyro_symmetry.matching.product import Gaussian, NaturalGaussian, raised
from numpyro_symmetry.symmetry import Complement, Element, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import is_option, rounding_of

# a prior that moves by more, relative to its largest number about a middle, and by more roundings, is not invariant
_MOVED, _ROUNDINGS = 1e-5, 8
_MAX_STEPS, _SETTLED = 200, 1e-12


@runtime_checkable
class How(Protocol):
    """What members are made into, once their labels are common ones."""

    def check(self, members: Sequence[Any], symmetry: Symmetry) -> None:
        """Refuse members of a kind that cannot be merged this way."""
        ...

    def merged(self, members: Sequence[Any]) -> Any:
        """The members, values by site or Gaussians, as one."""
        ...

    def relabelled(self, members: Sequence[Any], symmetry: Symmetry) -> list[Element]:
        """An element for each member, to labels that suit this merge better than those of small distances do."""
        ...

    def cross_terms(self, members: Sequence[Any], symmetry: Symmetry) -> CrossTerms | None:
        """The share of the merge that lies in other labellings; ``None`` where that has no meaning."""
        ...


@dataclass(frozen=True)
class Mean:
    """The average of points, array by array; whole numbers are those of the first."""

    def check(self, members: Sequence[Any], symmetry: Symmetry) -> None:
        """Refuse Gaussians."""
        if any(isinstance(member, Gaussian) for member in members):
            raise SymmetryError("how='mean' averages points: merge Gaussians by how='barycenter' or how='product'.")

    def merged(self, members: Sequence[Any]) -> Any:
        """The average at every site."""
        return {site: np.mean([member[site] for member in members], 0) for site in members[0]}

    def relabelled(self, members: Sequence[Any], symmetry: Symmetry) -> list[Element]:
        """Distances are all that counts."""
        return [symmetry.identity() for _ in members]

    def cross_terms(self, members: Sequence[Any], symmetry: Symmetry) -> None:
        """``None``: a mean of points has no terms in other labellings."""


@dataclass(frozen=True)
class Barycenter:
    r"""Wasserstein's barycentre of Gaussians: of independent ones the averages of means and of standard deviations.

    Of correlated ones :math:`\Sigma = \frac1K\sum_k(\Sigma^{1/2}\Sigma_k\Sigma^{1/2})^{1/2}`; their labels are chosen
    by means and standard deviations, without the correlations.

    References
    ----------
    Agueh and Carlier (2011), *Barycenters in the Wasserstein space*; Álvarez-Esteban et al. (2016) for the iteration.
    """

    def check(self, members: Sequence[Any], symmetry: Symmetry) -> None:
        """Refuse points."""
        _refuse_no_gaussians(members, "barycenter")

    def merged(self, members: Sequence[Any]) -> Any:
        """The barycentre: in closed form without correlations, otherwise as a fixed point."""
        if isinstance(members[0], DiagonalGaussian):
            return DiagonalGaussian.barycenter(members)
        loc = {site: np.mean([np.asarray(member.loc[site], float) for member in members], 0) for site in members[0].loc}
        return FullGaussian(
            loc, barycentre_of_covariances([np.asarray(member.covariance, float) for member in members])
        )

    def relabelled(self, members: Sequence[Any], symmetry: Symmetry) -> list[Element]:
        """Distances are all that counts."""
        return [symmetry.identity() for _ in members]

    def cross_terms(self, members: Sequence[Any], symmetry: Symmetry) -> None:
        """``None``: a barycentre has no terms in other labellings."""


@dataclass(frozen=True)
class Product:
    r"""The product of Gaussian posteriors, each of other data: consensus Monte Carlo, up to labels.

    .. math:: q(\theta) \propto \prod_k q_k(g_k^{-1}\theta) \,\big/\, p(\theta)^{K-1}

    Parameters
    ----------
    prior
        The prior, if every posterior had the whole of it: all copies but one are divided out. ``None`` if each had the
        prior to the power 1/K.

    References
    ----------
    Scott et al. (2016), *Bayes and Big Data: The Consensus Monte Carlo Algorithm*.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import DiagonalGaussian, Symmetry, merge
    >>> shards = [DiagonalGaussian({"w": np.array(loc)}, {"w": np.ones(2)}) for loc in ([1.0, 5.0], [5.2, 0.8])]
    >>> product = merge(shards, Symmetry({"w": ("unit",)}), how="product").merged
    >>> product.loc["w"].round(2).tolist(), product.scale["w"].round(2).tolist()
    ([0.9, 5.1], [0.71, 0.71])
    """

    prior: Gaussian | None = None

    def check(self, members: Sequence[Any], symmetry: Symmetry) -> None:
        """Refuse points, standard deviations of zero, and a prior that a relabelling changes."""
        _refuse_no_gaussians(members, "product")
        for k, member in enumerate(members):
            _refuse_points(f"Solution {k}", member)
        if any(isinstance(entry, Complement) for entries in symmetry.axes.values() for entry in entries):
            raise SymmetryError("how='product' takes no Complement: p and 1 - p have no precision each of their own.")
        if self.prior is None:
            return
        if type(self.prior) is not type(members[0]):
            raise SymmetryError(
                f"prior= is a {type(self.prior).__name__}; expected a {type(members[0]).__name__}, as the members are."
            )
        try:
            refuse_other_sites(members[0], self.prior)
        except SymmetryError as error:
            raise SymmetryError(f"prior= does not fit the members: {error}") from error
        _refuse_points("prior=", self.prior)
        near = _about(self.prior, middle_of(symmetry, self.prior.loc))
        rounding = _ROUNDINGS * max(rounding_of(np.asarray(x).dtype) for x in jax.tree.leaves(self.prior))
        most = _MOVED * _largest(near) + rounding * _largest(self.prior)
        for name, group in symmetry.groups.items():
            for part in group.generators(np.random.default_rng(0), group.every_cell):
                moved: Any = near.apply(symmetry, symmetry.identity() | {name: part.each(jnp.asarray).part()})
                if float(moved.wasserstein(near)) > most:
                    raise SymmetryError(
                        f"prior= changes when units of {name!r} are exchanged: expected one that is the same for all."
                    )

    def merged(self, members: Sequence[Any]) -> Any:
        """The Gaussian whose natural parameters are the sum of the members', less those of the prior's extra copies."""
        total = reduce(NaturalGaussian.plus, map(NaturalGaussian.of, members))
        if self.prior is not None:
            total = total.plus(NaturalGaussian.of(self.prior.in_order_of(members[0])), 1.0 - len(members))
        return total.gaussian(members[0])

    def relabelled(self, members: Sequence[Any], symmetry: Symmetry) -> list[Element]:
        """Elements to the labels of a term of the product that weighs more."""
        # raises here already, where dividing out the prior leaves no Gaussian
        self.merged(members)
        members, prior = self._about_middle(members, symmetry)
        return raised(members, symmetry, prior)

    def cross_terms(self, members: Sequence[Any], symmetry: Symmetry) -> CrossTerms:
        """The share of the product that lies in its other terms."""
        members, prior = self._about_middle(members, symmetry)
        return cross_terms(members, symmetry, prior, np.random.default_rng(0))

    def _about_middle(self, members: Sequence[Any], symmetry: Symmetry) -> tuple[list[Any], NaturalGaussian | None]:
        """Members and prior about values that no label moves: of what is far from zero, weights differ by rounding."""
        middle = middle_of(symmetry, members[0].loc)
        prior = None if self.prior is None else NaturalGaussian.of(_about(self.prior.in_order_of(members[0]), middle))
        return [_about(member, middle) for member in members], prior


HOWS: dict[str, How] = {"mean": Mean(), "barycenter": Barycenter(), "product": Product()}


def chosen_how(how: Any) -> How:
    """The way to merge of this name, or the value itself if it is a `How`.

    Raises
    ------
    ValueError
        If ``how`` is neither a known name nor a `How`.
    """
    if is_option(how, HOWS):
        return HOWS[how]
    if isinstance(how, How) and not isinstance(how, type):
        return how
    raise ValueError(f"how must be one of {tuple(HOWS)}, or a value such as matching.Product(prior=...); got {how!r}.")


def _about(gaussian: Any, middle: dict[str, np.ndarray]) -> Any:
    """A Gaussian about a middle, in double precision."""
    wide = jax.tree.map(lambda x: np.asarray(x, float), gaussian)
    return replace(wide, loc={site: wide.loc[site] - middle[site] for site in gaussian.loc})


def _largest(gaussian: Gaussian) -> float:
    return max(float(np.abs(np.asarray(x)).max(initial=0.0)) for x in jax.tree.leaves(gaussian))


def _refuse_no_gaussians(members: Sequence[Any], how: str) -> None:
    if not all(isinstance(member, Gaussian) for member in members):
        raise SymmetryError(
            f"how={how!r} merges Gaussians, DiagonalGaussian or FullGaussian; got values without standard deviations. "
            "Merge points by how='mean'."
        )


def _refuse_points(name: str, member: Gaussian) -> None:
    scales = member.scale if isinstance(member, DiagonalGaussian) else member.diagonal().scale
    if broken := [site for site, scale in scales.items() if (np.asarray(scale) <= 0).any()]:
        raise SymmetryError(
            f"{name} has standard deviations of zero at {broken}: a point has no density. Leave out what "
            "does not vary, of every member."
        )


def barycentre_of_covariances(covariances: Sequence[np.ndarray]) -> np.ndarray:
    """Wasserstein's barycentre of covariances, by fixed-point iteration: see `Barycenter`."""
    here = np.mean(covariances, 0)
    for _ in range(_MAX_STEPS):
        root = square_root(here)
        # a pseudo-inverse, for directions of no width have no transport
        back = np.linalg.pinv(root, hermitian=True)
        mean = np.mean([square_root(root @ covariance @ root) for covariance in covariances], 0)
        new = back @ mean @ mean @ back
        if np.abs(new - here).max() <= _SETTLED * np.abs(here).max():
            break
        here = new
    return 0.5 * (new + new.T)
