"""Independent Gaussians over named sites: what a mean-field guide is, and what draws are summarised by.

Computed in NumPy, and so in double precision, where all arrays are NumPy's; in JAX otherwise. Checked when a user makes
one; what JAX makes of one as a pytree, such as its gradient, need not be a Gaussian. Knows no costs and no algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from numpyro_symmetry.matching import transport
from numpyro_symmetry.matching.gaussian_inputs import (
    by_site,
    module_of,
    refuse_no_symmetry,
    refuse_other_shapes,
    refuse_what_is_not_finite,
    unchecked,
)
from numpyro_symmetry.symmetry import Element, Symmetry, SymmetryError, as_html, permutations
from numpyro_symmetry.symmetry.arguments import (
    as_count,
    as_key,
    as_real_array,
    as_shape,
    refuse_masked,
    shape_of,
)
from numpyro_symmetry.symmetry.pytrees import as_sites, can_be_moved
from numpyro_symmetry.symmetry.shown import counted, sizes


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True)
class DiagonalGaussian:
    r"""Independent Gaussians for every entry of every site.

    Parameters
    ----------
    loc
        Site -> means; or a pytree, whose paths to arrays are sites.
    scale
        Site -> standard deviations (never variances), of the same shapes, not negative; zero for points.

    Raises
    ------
    SymmetryError
        If the sites or shapes of the two differ, or hold a mask, a number that is not finite, or a negative standard
        deviation. Traced values are not looked at.
    TypeError
        If one of the two is neither a mapping nor a pytree of arrays.

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
        vars(self).update({name: by_site(getattr(self, name), name) for name in ("loc", "scale")})
        self.check()

    def check(self, where: str = "") -> None:
        """Check sites, shapes and numbers as the constructor does, which JAX passes by when it rebuilds a pytree.

        Parameters
        ----------
        where
            How messages name this Gaussian, such as ``" of the target"``.
        """
        for name, sites in (("loc", self.loc), ("scale", self.scale)):
            if not isinstance(sites, Mapping):
                raise TypeError(f"{name}{where} maps sites to arrays; got {type(sites).__name__}.")
            refuse_masked(sites)
        if set(self.loc) != set(self.scale):
            raise SymmetryError(f"loc has sites {sorted(self.loc)}, scale has {sorted(self.scale)}; they must agree.")
        for site, loc in self.loc.items():
            means, deviations = (shape_of(by[site], f"Site {site!r}{where}") for by in (self.loc, self.scale))
            if means != deviations:
                raise SymmetryError(
                    f"Site {site!r}{where}: loc has shape {means} and scale {deviations}; give one standard deviation "
                    "for each mean."
                )
            refuse_what_is_not_finite(loc, f"loc of site {site!r}{where}")
            refuse_what_is_not_finite(self.scale[site], f"scale of site {site!r}{where}")
            if not isinstance(self.scale[site], Tracer) and (np.asarray(self.scale[site]) < 0).any():
                raise SymmetryError(
                    f"Site {site!r}{where} holds {int((np.asarray(self.scale[site]) < 0).sum())} negative standard "
                    "deviations. Of a guide, pass constrained parameters: SVI.get_params, not the optimizer's own."
                )

    def __repr__(self) -> str:
        """Sites and shapes."""
        return f"DiagonalGaussian({sizes(self.loc)})"

    _repr_html_ = as_html

    def tree_flatten_with_keys(self) -> tuple[tuple[Any, ...], None]:
        """Means and standard deviations, as a pytree."""
        key = jax.tree_util.GetAttrKey
        return ((key("loc"), self.loc), (key("scale"), self.scale)), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: tuple[Any, ...]) -> DiagonalGaussian:
        """The same structure with other leaves, unchecked."""
        return unchecked(cls, loc=children[0], scale=children[1])

    # ---- where they come from ------------------------------------------------------------------------------------

    @classmethod
    def fit(cls, values: Any, *, num_leading_dims: int = 1) -> DiagonalGaussian:
        """Means and (unbiased) standard deviations of draws, in double precision whatever the session's.

        Parameters
        ----------
        values
            Site -> ``(*leading, *event)``, or a pytree, whose paths to arrays are sites; in a mapping from names to
            lists of arrays of one shape each list is a site.
        num_leading_dims
            Number of leading (chain, draw) dimensions.

        Returns
        -------
        DiagonalGaussian
            Of the event shapes; NumPy arrays of float64, but under `jit` and `vmap` JAX's.

        Raises
        ------
        SymmetryError
            If there are fewer than two draws, sites have different numbers of them, or one is masked or not finite.
        TypeError, ValueError
            If ``values`` does not map sites to arrays, or ``num_leading_dims`` is no whole number or below one.

        Examples
        --------
        >>> import numpy as np
        >>> DiagonalGaussian.fit({"w": np.array([[1.0, 5.0], [3.0, 5.0]])}).loc["w"].tolist()
        [2.0, 5.0]
        """
        is_by_site = can_be_moved(values) or (isinstance(values, Mapping) and any(map(_is_list, values.values())))
        if not isinstance(values := values if is_by_site else as_sites(values), Mapping):
            raise TypeError(f"fit expects draws by site, {{'w': (draw, ...)}}; got {type(values).__name__}.")
        lead = as_count(num_leading_dims, "num_leading_dims")
        refuse_masked(values)
        xp: Any = jnp if any(isinstance(value, Tracer) for value in values.values()) else np
        flat, leading = {}, {}
        for site, value in values.items():
            array = as_real_array(value, f"Site {site!r}")
            array = jnp.asarray(array) if xp is jnp else np.asarray(array).astype(float)
            if array.ndim < lead:
                raise SymmetryError(
                    f"Site {site!r} has shape {array.shape}, fewer than {counted(lead, 'leading dimension')}."
                )
            leading.setdefault(array.shape[:lead], site)
            refuse_what_is_not_finite(array, f"Site {site!r}")
            flat[site] = array.reshape(math.prod(array.shape[:lead]), *array.shape[lead:])
        if len(leading) > 1:
            raise SymmetryError(
                f"Sites have different numbers of draws: { ({site: shape for shape, site in leading.items()}) }. Check "
                "num_leading_dims, or fit the same draws of each."
            )
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
            If the guide is not mean-field, a parameter is missing or misshapen, or a site's support couples its entries
            (simplex, Cholesky factor).
        SymmetryError
            If a parameter holds no real numbers, or none that make a Gaussian.

        Examples
        --------
        >>> from numpyro import handlers
        >>> from numpyro.infer.autoguide import AutoNormal
        >>> from numpyro_symmetry.testing import enumerable_mixture
        >>> model, data = enumerable_mixture()[:2]
        >>> guide = AutoNormal(model)
        >>> _ = handlers.seed(guide, jax.random.key(0))(*data)  # sets it up, as SVI.init does
        >>> params = {"loc_auto_loc": jnp.array([-2.0, 2.0]), "loc_auto_scale": jnp.ones(2)}
        >>> DiagonalGaussian.from_guide(guide, params).loc["loc"].tolist()
        [-2.0, 2.0]
        """
        from numpyro_symmetry.matching import guide_parameters

        return cls(*guide_parameters.diagonal_of(guide, params))

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
            If the guide is not mean-field or has other sites, or is `AutoDelta` and standard deviations are not zero.

        Examples
        --------
        >>> from numpyro import handlers
        >>> from numpyro.infer.autoguide import AutoNormal
        >>> from numpyro_symmetry.testing import enumerable_mixture
        >>> model, data = enumerable_mixture()[:2]
        >>> guide = AutoNormal(model)
        >>> _ = handlers.seed(guide, jax.random.key(0))(*data)  # sets it up, as SVI.init does
        >>> of_draws = DiagonalGaussian.fit({"loc": np.array([[-2.1, 1.0], [-1.9, 3.0]])})
        >>> of_draws.to_guide_params(guide)["loc_auto_loc"].tolist()
        [-2.0, 2.0]
        """
        from numpyro_symmetry.matching import guide_parameters

        return guide_parameters.mean_field_parameters(guide, self.loc, self.scale)

    # ---- what they are -------------------------------------------------------------------------------------------

    def log_density(self, values: Mapping[str, ArrayLike]) -> Array:
        """Log density of values with any leading dimensions.

        Parameters
        ----------
        values
            Site -> ``(*leading, *event)``; further sites are ignored.

        Returns
        -------
        Array
            ``(*leading)``, nats; NumPy's if all arrays are, else JAX's.

        Raises
        ------
        SymmetryError
            If a site is missing, masked or of another shape, or a standard deviation is zero: a point has no density.
        TypeError
            If ``values`` does not map sites to arrays.

        Examples
        --------
        >>> import numpy as np
        >>> q = DiagonalGaussian({"w": np.zeros(2)}, {"w": np.ones(2)})
        >>> q.log_density({"w": np.array([[0.0, 0.0], [1.0, 1.0]])}).round(2).tolist()
        [-1.84, -2.84]
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"log_density takes values by site, {{'w': (..., n)}}; got {type(values).__name__}.")
        if missing := sorted(set(self.loc) - set(values)):
            raise SymmetryError(f"Sites {missing} of the Gaussian are not among the values {sorted(values, key=str)}.")
        refuse_masked({site: values[site] for site in self.loc})
        values = {site: as_real_array(values[site], f"Site {site!r}") for site in self.loc}
        refuse_other_shapes(values, self.loc)
        xp = module_of((self, [values[site] for site in self.loc]))
        total: Any = xp.zeros(())
        for site, loc in self.loc.items():
            scale = xp.asarray(self.scale[site])
            if not isinstance(scale, Tracer) and (np.asarray(scale) == 0).any():
                raise SymmetryError(f"Site {site!r} has standard deviations of zero: a point has no density.")
            terms = -0.5 * ((xp.asarray(values[site]) - loc) / scale) ** 2 - xp.log(scale) - 0.5 * np.log(2.0 * np.pi)
            total = total + terms.sum(tuple(range(terms.ndim - np.ndim(loc), terms.ndim)))
        return total

    def sample(self, rng_key: Array, shape: tuple[int, ...] = ()) -> dict[str, Array]:
        """Draw independently.

        Parameters
        ----------
        rng_key
            JAX random key.
        shape
            Leading shape of the draws.

        Returns
        -------
        dict
            Site -> ``(*shape, *event)``.

        Raises
        ------
        TypeError, ValueError
            If ``rng_key`` is no key, or ``shape`` no tuple of whole numbers, none of them negative.

        Examples
        --------
        >>> q = DiagonalGaussian({"w": np.array([-1.0, 1.0])}, {"w": np.array([0.1, 2.0])})
        >>> q.sample(jax.random.key(0), (1000,))["w"].std(0).round(1).tolist()
        [0.1, 2.0]
        """
        shape = as_shape(shape)
        keys = dict(zip(self.loc, jax.random.split(as_key(rng_key), len(self.loc)), strict=True))

        def draws_of(site: str) -> Any:
            loc, scale = self.loc[site], self.scale[site]
            in_jax = isinstance(loc, jax.Array) and jnp.issubdtype(loc.dtype, jnp.floating)
            noise = jax.random.normal(keys[site], (*shape, *np.shape(loc)), loc.dtype if in_jax else float)
            xp = module_of((loc, scale))
            return xp.asarray(loc) + xp.asarray(scale) * (noise if isinstance(noise, Tracer) else xp.asarray(noise))

        return {site: draws_of(site) for site in self.loc}

    wasserstein, geodesic = transport.wasserstein, transport.geodesic
    barycenter = staticmethod(transport.barycenter)

    def in_order_of(self, other: DiagonalGaussian) -> DiagonalGaussian:
        """The same distribution with its sites in the order of another's."""
        return DiagonalGaussian(*({site: by_site[site] for site in other.loc} for by_site in (self.loc, self.scale)))

    def apply(self, symmetry: Symmetry, element: Element) -> DiagonalGaussian:
        """Law of ``g·θ``: means move as values do, standard deviations without the signs.

        Parameters
        ----------
        symmetry
            What may be permuted.
        element
            Element ``g``.

        Returns
        -------
        DiagonalGaussian
            Of the same sites and shapes.

        Raises
        ------
        SymmetryError
            As for `Symmetry.apply`.
        TypeError
            If ``symmetry`` is no `Symmetry`.

        Examples
        --------
        >>> import numpy as np
        >>> q = DiagonalGaussian({"w": np.array([1.0, 2.0])}, {"w": np.array([0.1, 0.2])})
        >>> q.apply(Symmetry({"w": ("unit",)}), {"unit": np.array([1, 0])}).scale["w"].tolist()
        [0.2, 0.1]
        """
        refuse_no_symmetry(symmetry)
        loc = symmetry.apply(element, self.loc)
        return DiagonalGaussian(loc, symmetry.without_signs().apply(permutations(element), self.scale))


def _is_list(value: Any) -> bool:
    """Whether a value is one array, as a list of arrays: no symmetry says that these are a tree."""
    is_list = isinstance(value, list | tuple) and len(value) > 0 and all(map(can_be_moved, value))
    return is_list and len({np.shape(x) for x in value}) < 2
