r"""Kinds of base guides: where one keeps its latents, how it is entered at given values, and which Gaussians it is.

One value for each kind, in one tuple; the first that recognises a guide is its kind. Knows NumPyro's guides and their
traces; no symmetry, no estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions.transforms import biject_to
from numpyro.infer import autoguide
from numpyro.infer.autoguide import (
    AutoContinuous,
    AutoDiagonalNormal,
    AutoGuideList,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
)

from numpyro_symmetry.guides.linear.gaussian_given import GaussianGiven
from numpyro_symmetry.guides.linear.unit_normal import UnitNormal
from numpyro_symmetry.linalg import product
from numpyro_symmetry.models import Trace, entrywise, is_same, without_wrappers
from numpyro_symmetry.models.compat import flat_sites, unpacking
from numpyro_symmetry.models.unconstrained import unconstrained


class Entries(NamedTuple):
    """A site whose entries are independent Gaussians, in its unconstrained coordinates.

    Attributes
    ----------
    loc, scale
        Means and standard deviations, of shapes that broadcast to the coordinates'.
    """

    loc: Array
    scale: Array


class Columns(NamedTuple):
    """A site whose columns are independent Gaussians of one precision given the sites below, whitened.

    Attributes
    ----------
    loc
        ``(R, C)``: means, about which all entries are independent and standard normal.
    draw
        ``(R, C)``: the draw.
    mates
        Sites drawn before it whose columns are one Gaussian with its own.
    """

    loc: Array
    draw: Array
    mates: tuple[str, ...]

    @property
    def scale(self) -> Array:
        """Ones: whitened entries are standard normal about ``loc``."""
        return jnp.ones_like(self.loc)


# units' entries given those in the sites before are Gaussian as the distribution that draws them says
SiteGaussian = Entries | UnitNormal | Columns


class GuideKind(NamedTuple):
    """How a kind of base guides is recognised, entered and read.

    Attributes
    ----------
    recognises
        ``part`` to whether a guide is of this kind.
    latents
        ``part`` to auxiliary latent site -> sites that are read off it, and have no distribution of their own.
    entered
        ``(part, values, free)`` to what to substitute for given constrained values of all sites, and unconstrained ones
        of some, so that the guide is at them.
    gaussians
        ``(part, trace, supports)`` to site -> the Gaussian that it is, for sites that are one and that the
        distribution in the trace does not show to be one.
    marginals
        ``(part, trace)`` to site -> means and standard deviations, in its unconstrained coordinates, where they are
        known of a site that need not be independent of the others.
    drawn
        ``(part, trace)`` to site -> unconstrained coordinates as they were drawn, of sites whose distribution in the
        trace does not show them.
    """

    recognises: Callable[[Any], bool]
    latents: Callable[[Any], dict[str, tuple[str, ...]]]
    entered: Callable[[Any, dict[str, Any], Mapping[str, Any]], dict[str, Any]]
    gaussians: Callable[[Any, Trace, Mapping[str, Any]], dict[str, SiteGaussian]] = lambda part, trace, supports: {}
    marginals: Callable[[Any, Trace], dict[str, Entries]] = lambda part, trace: {}
    drawn: Callable[[Any, Trace], dict[str, Any]] = lambda part, trace: {}


# ---- guides with one flat latent; their sites are Deltas, infinitely wrong whenever a transform does not invert to the
# last bit, so that they are entered through the flat latent alone --------------------------------------------------


def _flat_latents(part: Any) -> dict[str, tuple[str, ...]]:
    return {f"_{part.prefix}_latent": tuple(flat_sites(part))}


def _entered_by_the_flat_latent(part: Any, values: dict[str, Any], free: Mapping[str, Any]) -> dict[str, Any]:
    ((latent, sites),) = _flat_latents(part).items()

    def coordinates(site: str) -> Array:
        support = part.prototype_trace[site]["fn"].support
        return jnp.ravel(free[site] if site in free else unconstrained(support, values[site]))

    flat = jnp.concatenate([coordinates(site) for site in sites])
    return {site: value for site, value in values.items() if site not in sites} | {latent: flat}


def _drawn_with_the_flat_latent(part: Any, trace: Trace) -> dict[str, Any]:
    return unpacking(part)(trace[f"_{part.prefix}_latent"]["value"])


def _flat_entries(part: Any, trace: Trace, supports: Mapping[str, Any]) -> dict[str, SiteGaussian]:
    posterior = trace[f"_{part.prefix}_latent"]["fn"]
    loc = unpacking(part)(posterior.loc)
    scale = unpacking(part)(jnp.broadcast_to(posterior.scale, jnp.shape(posterior.loc)))
    return {site: Entries(loc[site], scale[site]) for site in loc if site in supports}


def _flat_marginals(part: Any, trace: Trace) -> dict[str, Entries]:
    posterior = trace[f"_{part.prefix}_latent"]["fn"]
    loc, scale = (unpacking(part)(values) for values in (posterior.mean, jnp.sqrt(posterior.variance)))
    return {site: Entries(loc[site], scale[site]) for site in loc}


FLAT_DIAGONAL = GuideKind(
    lambda part: isinstance(part, AutoDiagonalNormal),
    _flat_latents,
    _entered_by_the_flat_latent,
    _flat_entries,
    drawn=_drawn_with_the_flat_latent,
)
FLAT_GAUSSIAN = GuideKind(
    lambda part: isinstance(part, AutoMultivariateNormal | AutoLowRankMultivariateNormal),
    _flat_latents,
    _entered_by_the_flat_latent,
    marginals=_flat_marginals,
    drawn=_drawn_with_the_flat_latent,
)
FLAT = GuideKind(
    lambda part: isinstance(part, AutoContinuous),
    _flat_latents,
    _entered_by_the_flat_latent,
    drawn=_drawn_with_the_flat_latent,
)
SITE_BY_SITE = GuideKind(lambda part: True, lambda part: {}, lambda part, values, free: values)
KINDS = (FLAT_DIAGONAL, FLAT_GAUSSIAN, FLAT, SITE_BY_SITE)

WITHOUT_DENSITY = {
    autoguide.AutoDelta: "is a point mass, whose copies never overlap: symmetrizing it would only add the constant "
    "log|G|. Use AutoNormal, or align point estimates instead",
    autoguide.AutoLaplaceApproximation: "is a point mass while it trains. Train it bare, then symmetrize a "
    "Gaussian guide",
    autoguide.AutoDAIS: "has auxiliary momenta and no density in the model's latents. Use AutoNormal or AutoIAFNormal",
    autoguide.AutoSemiDAIS: "has auxiliary momenta and no density in the model's latents. Use AutoNormal",
    autoguide.AutoBNAFNormal: "has no analytic inverse, so no density at permuted values. Use AutoIAFNormal",
}


def parts_of(guide: object) -> Iterator[object]:
    """The guide itself, or the guides of which it is made, recursively."""
    parts = guide if isinstance(guide, AutoGuideList) else getattr(guide, "parts", None)
    if parts is not None:
        for part in parts:
            yield from parts_of(part)
    else:
        yield guide


def latents_of(guide: object) -> dict[str, tuple[str, ...]]:
    """Auxiliary latent sites of a guide that its values determine -> the sites that are read off each."""
    return {latent: sites for part, kind in _kinds_of(guide) for latent, sites in kind.latents(part).items()}


def entered(guide: object, values: Mapping[str, Any], free: Mapping[str, Any]) -> dict[str, Any]:
    """What to substitute into a guide so that its sites have given values: constrained, of some sites unconstrained."""
    found = dict(values)
    for part, kind in _kinds_of(guide):
        found = kind.entered(part, found, free)
    return found


def drawn_free(guide: object, trace: Trace, supports: Mapping[str, Any]) -> dict[str, Array]:
    """Site -> its unconstrained coordinates as a guide drew them, of sites in ``supports`` for which they are known.

    Read off the constrained value they would be rounded: single precision has no number between one and 1 - 6e-8, and
    there NumPyro's transforms have no gradient.
    """
    found = {site: x for site in supports if (x := _before_the_bijection(trace[site], supports[site])) is not None}
    found |= {site: x for site, x in read_off_latents(guide, trace).items() if site in supports}
    return {site: jnp.asarray(x) for site, x in found.items()}


def read_off_latents(guide: object, trace: Trace) -> dict[str, Any]:
    """Site -> its unconstrained coordinates, of all sites that are read off a latent of the guide (`latents_of`)."""
    return {site: x for part, kind in _kinds_of(guide) for site, x in kind.drawn(part, trace).items()}


def _before_the_bijection(site: Any, support: Any) -> Array | None:
    """The value before the support's own bijection, if a site's distribution drew one and used that; else ``None``."""
    fn, steps = without_wrappers(site["fn"]), site["intermediates"] or ()
    if not isinstance(fn, dist.TransformedDistribution) or len(steps) != 1 or len(fn.transforms) != 1:
        return None
    bijection = biject_to(support)
    if not is_same(entrywise(fn.transforms[0]), entrywise(bijection)):
        return None
    drawn = steps[0][0]
    return drawn if jnp.shape(drawn) == bijection.inverse_shape(jnp.shape(site["value"])) else None


def gaussians_of(guide: object, trace: Trace, supports: Mapping[str, Any]) -> dict[str, SiteGaussian]:
    """Site -> the Gaussian that it is in a guide's trace, for sites in ``supports`` that are one."""
    shown = {site: site_gaussian(trace[site]["fn"], supports[site]) for site in supports}
    found = {site: gaussian for site, gaussian in shown.items() if gaussian is not None}
    found |= {site: whitened(trace, site) for site in supports if has_columns(trace, site)}
    for part, kind in _kinds_of(guide):
        found |= kind.gaussians(part, trace, supports)
    return found


def marginals_of(guide: object, trace: Trace) -> dict[str, Entries]:
    """Site -> the moments of its marginals, for sites of a guide's trace where they are known."""
    return {site: moments for part, kind in _kinds_of(guide) for site, moments in kind.marginals(part, trace).items()}


def _kinds_of(guide: object) -> list[tuple[Any, GuideKind]]:
    return [(part, next(kind for kind in KINDS if kind.recognises(part))) for part in parts_of(guide)]


# ---- distributions of single sites -----------------------------------------------------------------------------------


def site_gaussian(fn: Any, support: Any) -> SiteGaussian | None:
    """A Normal, by entry or by unit, that is possibly pushed through the support's own bijection; else ``None``."""
    while isinstance(fn := without_wrappers(fn), dist.TransformedDistribution):
        transforms = list(fn.transforms)
        if len(transforms) != 1 or not is_same(entrywise(transforms[0]), biject_to(entrywise(support))):
            return None
        fn = fn.base_dist
    if isinstance(fn, UnitNormal):
        return fn
    return Entries(fn.loc, fn.scale) if type(fn) is dist.Normal else None  # pyright: ignore[reportArgumentType]


def has_columns(trace: Trace, site: str) -> bool:
    """Whether a site's columns are independent given the sites below."""
    fn = without_wrappers(trace[site]["fn"])
    return isinstance(fn, GaussianGiven) and fn.loc.ndim == 2


def whitened(trace: Trace, site: str) -> Columns:
    r"""A site whose columns are independent given the sites below.

    The density of unit j in the place of unit i is that of :math:`W(z_j - m_i)`, with z all that the unit has in sites
    that are one Gaussian, and one W for all units. A site's share of it is read at what the draw has before it, which
    has moved the mean: so both are taken back.
    """
    fn = without_wrappers(trace[site]["fn"])
    moved = jnp.zeros_like(fn.loc)
    for mate, by in fn.lowered_by.items():
        moved += product(by, without_wrappers(trace[mate]["fn"]).scaled(trace[mate]["value"]))
    loc = fn.loc + fn.scaled(fn.prior.loc) + moved
    draw = fn.scaled(trace[site]["value"]) + moved
    return Columns(fn.precision.whitened(loc), fn.precision.whitened(draw), tuple(fn.lowered_by))


def unit_names(trace: Trace) -> dict[str, str]:
    """Site -> name of the units that it is a part of, for sites with a `UnitNormal`, whatever transforms it."""
    found = {name: _innermost(site["fn"]) for name, site in trace.items() if site["type"] == "sample"}
    return {name: fn.units for name, fn in found.items() if isinstance(fn, UnitNormal)}


def _innermost(fn: Any) -> Any:
    while isinstance(fn := without_wrappers(fn), dist.TransformedDistribution):
        fn = fn.base_dist
    return fn
