"""`GivenGaussian`: a Gaussian that is there already, as a guide of a model. Nothing is left to be learned.

An autoguide that can hold it draws, with the Gaussian's numbers in place of its parameters: the more it factorises, the
cheaper its table. Knows autoguides, Gaussians and the symmetry of a model; no densities of relabelled values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer import init_to_value
from numpyro.infer.autoguide import AutoGuide, AutoMultivariateNormal, AutoNormal

from numpyro_symmetry.discovery import find_symmetry
from numpyro_symmetry.guides.units.auto_unit_normal import AutoUnitNormal
from numpyro_symmetry.guides.units.places import Place, places_of
from numpyro_symmetry.guides.units.unit_gaussian import Numbers, UnitGaussian, by_unit, correlated, numbers_of
from numpyro_symmetry.matching import DiagonalGaussian, FullGaussian
from numpyro_symmetry.models import as_model, discrete_of, is_unconstrained, latent_of, trace_model
from numpyro_symmetry.symmetry import Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import as_flag, refuse_tracers
from numpyro_symmetry.symmetry.shown import counted

G = TypeVar("G")
_OF_VALUES = (
    "A Gaussian fitted to draws is over values: fit it to unconstrained ones, "
    "jax.vmap(lambda draw: numpyro.infer.util.unconstrain_fn(model, args, kwargs, draw))(draws)"
)


class GivenGaussian(AutoGuide):
    """A guide that is a given Gaussian, over the unconstrained values of a model's latent sites.

    Parameters
    ----------
    model
        A NumPyro model. Discrete sites that the Gaussian does not hold are left to be summed out.
    gaussian
        `DiagonalGaussian`, `UnitGaussian` or `FullGaussian`.
    symmetry
        The symmetry whose groups' units blocks of a covariance may belong to; by default found where that matters.
    unconstrained
        That the Gaussian is over unconstrained values, as it is read; it has to be said where a site is not real.
    prefix
        Prefix of the names of auxiliary sites.

    Raises
    ------
    SymmetryError
        At set-up: sites or shapes are not those of the model, a site is not real and nothing says that the Gaussian is
        over unconstrained values, or it has no density.
    TypeError
        If ``gaussian`` is no Gaussian.
    """

    def __init__(
        self,
        model: Callable,
        gaussian: DiagonalGaussian | UnitGaussian | FullGaussian,
        symmetry: Symmetry | None = None,
        *,
        unconstrained: bool = False,
        prefix: str = "auto",
    ) -> None:
        if not isinstance(gaussian, DiagonalGaussian | UnitGaussian | FullGaussian):
            raise TypeError(
                "gaussian must be a DiagonalGaussian, guides.UnitGaussian or FullGaussian; got "
                f"{type(gaussian).__name__}. Of a fitted guide: FullGaussian.from_guide(guide, params)."
            )
        refuse_tracers("of_gaussian", gaussian=gaussian)
        super().__init__(as_model(model), prefix=prefix)
        self.gaussian = gaussian
        self.base: AutoGuide | None = None
        self._symmetry = symmetry
        self._is_unconstrained = as_flag(unconstrained, "unconstrained")
        self._numbers: Numbers = {}

    @property
    def parts(self) -> tuple[AutoGuide, ...]:
        """The guide that draws."""
        return () if self.base is None else (self.base,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Draw, with the Gaussian's numbers for parameters."""
        base = self._held(args, kwargs)
        with handlers.block(hide=list(self._numbers)), handlers.substitute(data=self._with({})):
            return base(*args, **kwargs)

    def sample_posterior(
        self, rng_key: Array, params: dict[str, Any], *args: Any, sample_shape: tuple[int, ...] = (), **kwargs: Any
    ) -> dict[str, Array]:
        """Draws of all latent sites; parameters are the model's alone."""
        base = self._held(args, kwargs)
        return base.sample_posterior(rng_key, self._with(params), *args, sample_shape=sample_shape, **kwargs)

    def median(self, params: dict[str, Any]) -> dict[str, Array]:
        """Median of every number: the Gaussian's means, constrained."""
        return self._held().median(self._with(params))

    def quantiles(self, params: dict[str, Any], quantiles: Any) -> dict[str, Array]:
        """Quantiles of every number alone, ``(*quantiles.shape, *event)``."""
        return self._held().quantiles(self._with(params), quantiles)

    def explain(self) -> str:
        """Which parts of the Gaussian are independent, in a line."""
        if self.base is None:
            return "Not set up yet."
        held = {AutoNormal: "independent numbers", AutoUnitNormal: "independent units"}
        return f"A given Gaussian over unconstrained values, of {held.get(type(self.base), 'all numbers together')}."

    # ---- private -----------------------------------------------------------------------------------------------

    def _held(self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = MappingProxyType({})) -> AutoGuide:
        """The guide that draws; set up at the first call."""
        return self.base or self._set_up(args, dict(kwargs))

    def _with(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {**params, **{name: jnp.asarray(value) for name, value in self._numbers.items()}}

    def _set_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AutoGuide:
        key, trace = jax.random.key(0), trace_model(self.model, args, kwargs, jax.random.key(0))
        latent = latent_of(trace)
        loc = {site: np.asarray(value, float) for site, value in self.gaussian.loc.items()}
        summed_out = [site for site in discrete_of(trace) if site not in loc]
        model = handlers.block(handlers.seed(self.model, key), hide=summed_out) if summed_out else self.model
        supports = {site: latent[site]["fn"].support for site in latent if site not in summed_out}
        _refuse_misfit(loc, {site: np.shape(latent[site]["value"]) for site in supports}, supports)
        if not self._is_unconstrained:
            _refuse_constrained(supports)
        start = init_to_value(values={site: biject_to(supports[site])(jnp.asarray(loc[site])) for site in loc})
        options = {"prefix": self.prefix, "init_loc_fn": start}
        gaussian, symmetry = self._cut(trace, args, kwargs)
        if isinstance(gaussian, UnitGaussian):
            base = AutoUnitNormal(model, symmetry, rank=None, **options)
        else:
            base = (AutoNormal if isinstance(gaussian, DiagonalGaussian) else AutoMultivariateNormal)(model, **options)
        with handlers.block(), handlers.seed(rng_seed=key):
            base(*args, **kwargs)
        self.prototype_trace, self.base, self._numbers = base.prototype_trace, base, numbers_of(gaussian, base, loc)
        return base

    def _cut(self, trace: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Symmetry | None]:
        """The Gaussian cut into as many independent parts as it has, and the symmetry whose units its blocks are."""
        gaussian = self.gaussian
        if isinstance(gaussian, DiagonalGaussian):
            return gaussian, None
        if isinstance(gaussian, FullGaussian):
            pairs = correlated(gaussian.covariance)
            if not pairs.any():
                return gaussian.diagonal(), None
            if pairs.sum() == len(pairs) * (len(pairs) - 1):  # a single block needs no units
                return gaussian, None
        latent = {site: message["value"] for site, message in latent_of(trace).items()}
        found = find_symmetry(self.model, args, kwargs) if self._symmetry is None else self._symmetry.bind(latent)
        places = {site: place for site, place in places_of(found, trace).items() if site in gaussian.loc}
        if isinstance(gaussian, UnitGaussian):
            _refuse_other_units(gaussian, places)
            return gaussian, found
        cut = by_unit(gaussian, places)
        return (gaussian, None) if cut is None else (cut, found)


# ---- refusals ----------------------------------------------------------------------------------------------------


def _refuse_misfit(loc: Numbers, shapes: Mapping[str, tuple[int, ...]], supports: Mapping[str, Any]) -> None:
    """Refuse a Gaussian over other sites than the model's, or over other numbers."""
    if set(loc) != set(shapes):
        missing, extra = sorted(set(shapes) - set(loc)), sorted(set(loc) - set(shapes))
        raise SymmetryError(
            f"The Gaussian is over sites {sorted(loc)}, the model's latent sites are {sorted(shapes)}: it lacks "
            f"{missing or 'none'}, and {extra or 'none'} are not the model's. The evidence needs all of them."
        )
    for site, value in loc.items():
        expected = tuple(biject_to(supports[site]).inverse_shape(shapes[site]))
        if value.shape != expected:
            hint = f" {_OF_VALUES}." if value.shape == shapes[site] else ""
            raise SymmetryError(
                f"Site {site!r}: the Gaussian's mean has shape {value.shape}; expected {expected}, that of "
                f"unconstrained values.{hint}"
            )


def _refuse_constrained(supports: Mapping[str, Any]) -> None:
    """Refuse to guess what a Gaussian is over where values and unconstrained values are not the same."""
    constrained = {site: support for site, support in supports.items() if not is_unconstrained(support)}
    if constrained:
        site, support = next(iter(constrained.items()))
        raise SymmetryError(
            f"Site {site!r} has support {support}, and the Gaussian is taken as one over its unconstrained values "
            "(logarithms, of positive ones), as those of guides are. If it is, say so: unconstrained=True. "
            f"{_OF_VALUES}. Such sites are {sorted(constrained)}."
        )


def _refuse_other_units(gaussian: UnitGaussian, places: Mapping[str, Place]) -> None:
    """Refuse blocks of other groups, numbers or sizes than the units have."""
    groups = dict.fromkeys(place.group for place in places.values())
    if set(gaussian.covariance) != set(groups):
        raise SymmetryError(
            f"The Gaussian has covariances for groups {sorted(gaussian.covariance)}, and units are those of "
            f"{sorted(groups)}, by site {dict((s, p.group) for s, p in places.items())}."
        )
    for group, covariance in gaussian.covariance.items():
        numbers = {site: place.numbers for site, place in places.items() if place.group == group}
        sizes = {np.shape(gaussian.loc[site])[places[site].axis] for site in numbers}
        expected = (*sizes, sum(numbers.values()), sum(numbers.values()))
        if np.shape(covariance) != expected:
            raise SymmetryError(
                f"covariance of group {group!r} has shape {np.shape(covariance)}; expected {expected}: its units have "
                f"{counted(sum(numbers.values()), 'number')}, {numbers}."
            )
    if (alone := set(gaussian.loc) - set(places)) != set(gaussian.scale):
        raise SymmetryError(
            f"scale is given for sites {sorted(gaussian.scale)}; no part of a unit are {sorted(alone)}."
        )
    for site, scale in gaussian.scale.items():
        if np.shape(scale) != np.shape(gaussian.loc[site]):
            raise SymmetryError(
                f"Site {site!r}: loc {np.shape(gaussian.loc[site])} and scale {np.shape(scale)} differ."
            )


def of_gaussian(
    cls: Callable[..., G],
    model: Callable,
    gaussian: DiagonalGaussian | UnitGaussian | FullGaussian,
    symmetry: Symmetry | None = None,
    *,
    unconstrained: bool = False,
    **options: Any,
) -> G:
    r"""A Gaussian that is there already as a symmetrized guide: Laplace's, SWAG, one fitted to draws of HMC.

    It describes one labelled mode, and the evidence is that of all copies, which counts where models of different
    widths are compared: its `elbo_bounds` hold :math:`\mathrm{ELBO}(q) + I(g; \theta)`, with
    :math:`I \le \log|G|`, and are lower bounds of the model's evidence whatever the Gaussian is.

    Laplace's own estimate, :math:`\log p(m, \text{data}) - \log q(m)` at the mean m, is **no bound**, and neither
    is that plus :math:`I`: it may lie on either side of the evidence. `log_evidence` gives it, by
    ``log_evidence((guide, {}), model_args=..., method="laplace")``.

    Parameters
    ----------
    model
        A NumPyro model; parameters of its own are passed as ``params``, as for any guide. Discrete sites are left
        to be summed out.
    gaussian
        Over the *unconstrained* values of all continuous latent sites, as those of autoguides are. A
        `DiagonalGaussian` and a `guides.UnitGaussian` (a covariance for each unit) have an exact table. So has a
        `FullGaussian` none of whose correlations are between units; any other takes the general path. Of a
        fitted guide: ``FullGaussian.from_guide(guide, params)``.
    symmetry
        As for the class.
    unconstrained
        That the Gaussian is over unconstrained values. It has to be said if a site is not real:
        ``DiagonalGaussian.fit`` of draws is over values.
    **options
        As for the class.

    Returns
    -------
    AutoSymmetrized
        A guide without parameters: pass ``{}``, or the model's.

    Raises
    ------
    SymmetryError, UnsupportedGuideError
        At set-up, as for the class; and if sites or shapes are not the model's, a site is not real and
        ``unconstrained`` is not given, or the Gaussian has no density.
    TypeError
        If ``gaussian`` is no Gaussian.

    See Also
    --------
    DiagonalGaussian.to_guide_params : to go on training from it.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> from numpyro_symmetry import AutoSymmetrized, DiagonalGaussian, Symmetry
    >>> def model(y):
    ...     z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    ...     numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)
    >>> gaussian = DiagonalGaussian({"z": jnp.array([-0.5, 0.1, 0.9])}, {"z": jnp.full(3, 0.8)})
    >>> guide = AutoSymmetrized.of_gaussian(model, gaussian, Symmetry({"z": ("unit",)}))
    >>> bounds = guide.elbo_bounds(jax.random.key(0), {}, jnp.array(0.5), progress_bar=False)
    >>> bool(bounds.base_elbo < bounds.lower < dist.Normal(0.0, 2.0).log_prob(0.5))
    True
    """
    return cls(GivenGaussian(model, gaussian, symmetry, unconstrained=unconstrained), symmetry, **options)
