"""The coordinates in which a base guide factorises, or nearly does, and its density and draws in them.

Knows guides, traces and symmetries; no model, and of estimators only what a density is to them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to

from numpyro_symmetry.entropy import Density, Factorised, Factors, GaussianFactors, General, UnitGaussians
from numpyro_symmetry.entropy.units import unit_axis
from numpyro_symmetry.guides.density import (
    latent_values,
    log_density_by_site,
    parents,
)
from numpyro_symmetry.guides.kinds import (
    Columns,
    drawn_free,
    gaussians_of,
    has_columns,
    marginals_of,
    unit_names,
    whitened,
)
from numpyro_symmetry.guides.linear.unit_normal import LowRank, Regression, UnitNormal
from numpyro_symmetry.guides.symmetrized.equivariance import Follows
from numpyro_symmetry.models import Trace, entrywise, settings_of, trace_model
from numpyro_symmetry.models.unconstrained import unconstrained
from numpyro_symmetry.symmetry import Complement, Element, PlainView, Symmetry, SymmetryError, UnsupportedGuideError
from numpyro_symmetry.symmetry.axes import AxisEntry, describe, names_in, padded
from numpyro_symmetry.symmetry.families import refuse_unlike
from numpyro_symmetry.symmetry.restriction import with_total

# draws for the moments of Gaussians that propose elements: bounds are valid whatever these are, and so many draws know
# a mean to a fifth of a standard deviation
_NUM_MOMENT_DRAWS = 32
# least standard deviations, of draws that are all alike, so that nothing is divided by zero: as a part of how far apart
# all entries of a site lie, and of whole numbers that of a uniform one wide, for a draw that is new is that far away
_SMALLEST_SCALE, _SMALLEST_SCALE_OF_INTEGERS = 1e-6, math.sqrt(1 / 12)


class Layout(NamedTuple):
    """How the touched sites are laid out for tables.

    Attributes
    ----------
    symmetry
        The symmetry with every axis of every site written out.
    of_coordinates
        The same group acting on coordinates, whose event axes may differ from the values', every group plain; each site
        without the groups that it follows.
    view
        How coordinates are cut into the pieces on which ``of_coordinates`` acts.
    supports
        Site -> support of the constrained value, of sites that have coordinates.
    density
        `Factorised` if Gaussians that are independent in these coordinates, by entry or by unit, *are* the guide's
        density, but for what follows; else `General`.
    following
        Sites that merely follow the others under every relabelling, and so have no coordinates.
    whitened
        Sites that follow some groups, with columns that another permutes: see `Columns`.
    """

    symmetry: Symmetry
    of_coordinates: Symmetry
    view: PlainView
    supports: dict[str, constraints.Constraint]
    density: type[Density]
    following: tuple[str, ...] = ()
    whitened: tuple[str, ...] = ()

    @property
    def factorises(self) -> bool:
        """Whether Gaussian factors are the guide's density."""
        return self.density is Factorised

    @property
    def sites(self) -> tuple[str, ...]:
        """Sites that tell units apart."""
        return tuple(site for site in self.symmetry.axes if site not in self.following)

    def sites_of(self, group: str) -> tuple[str, ...]:
        """Sites that tell the units of one group apart."""
        return tuple(site for site, entries in self.view.whole.axes.items() if group in names_in(entries))

    def apply(self, element: Element, values: Mapping[str, Any]) -> dict[str, Any]:
        """Act on values with an element of ``of_coordinates``."""
        return self.symmetry.apply(self.view.element(element), values)


def lay_out(
    symmetry: Symmetry,
    trace: Trace,
    supports: Mapping[str, constraints.Constraint],
    guide: object,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    follows: Follows,
) -> Layout:
    """Choose coordinates for every touched site that does not follow, and see whether the guide factorises in them."""
    full = {site: padded(entries, jnp.ndim(trace[site]["value"])) for site, entries in symmetry.axes.items()}
    for stack in symmetry.stacks.values():
        refuse_unlike({site: supports[site] for site in stack.sites}, "support")
    telling = {site: follows.telling(symmetry, site, entries) for site, entries in full.items()}
    telling = {site: entries for site, entries in telling.items() if site not in follows.sites}
    white = _whitened(trace, telling)
    axes, splits_an_event = {}, False
    for site, entries in telling.items():
        support = entrywise(supports[site])
        splits_an_event |= _acts_within(full[site], support)
        if site in white:
            axes[site] = None, entries[-1]
        else:
            of = _of_coordinates if _acts_within(full[site], support) else _of_free
            axes[site] = of(site, entries, support)
    supports, whole = {site: supports[site] for site in axes}, replace(symmetry, axes=full)
    by_site = jax.eval_shape(lambda: _by_site(guide, trace, whole, supports, white))
    view = PlainView.of(replace(symmetry, axes=axes), by_site, nested=True)
    layout = Layout(whole, view.symmetry, view, supports, General, follows.sites, white)
    if splits_an_event or not is_gaussian(guide, trace, layout):
        return layout
    depends = parents(guide, trace, args, kwargs)
    groups = {site: names_in(entries) & set(symmetry.groups) for site, entries in full.items()}
    mates = _mates(trace, layout)
    # the sites on which a site depends may be moved by no groups but those that it follows
    moving = {
        site: set().union(*(groups.get(s, set()) for s in on - mates.get(site, set()))) for site, on in depends.items()
    }
    apart = all(names <= follows.groups.get(site, frozenset()) for site, names in moving.items())
    return layout._replace(density=Factorised) if apart else layout


def draw_of(guide: Any, trace: Trace, layout: Layout) -> dict[str, Array]:
    """Coordinates of the draw in a trace: unconstrained or whitened; logarithms where a group acts within a simplex."""
    return layout.view.open(_by_site(guide, trace, layout.symmetry, layout.supports, layout.whitened))


def _by_site(
    guide: Any,
    trace: Trace,
    symmetry: Symmetry,
    supports: Mapping[str, constraints.Constraint],
    white: Collection[str],
) -> dict[str, Array]:
    free = drawn_free(guide, trace, supports)

    def coordinates_of(site: str) -> Array:
        if site in white:
            return whitened(trace, site).draw
        support, value = entrywise(supports[site]), jnp.asarray(trace[site]["value"])
        if support.is_discrete:
            return value * 1.0
        if _acts_within(symmetry.axes[site], support):
            # the group permutes inside an event: no unconstrained coordinates move along with it
            is_simplex = support is constraints.simplex
            return jnp.log(jnp.maximum(value, jnp.finfo(value.dtype).tiny)) if is_simplex else value
        if support is constraints.real:
            return value
        return free[site] if site in free else unconstrained(support, value)

    return {site: coordinates_of(site) for site in supports}


def _of_coordinates(site: str, entries: tuple[AxisEntry, ...], support: Any) -> tuple[AxisEntry, ...]:
    """Entries of the unconstrained coordinates: where x is exchanged with the rest of a whole, they change sign."""
    wholes = {entry.total for entry in entries if isinstance(entry, Complement)}
    if not wholes or support is constraints.real:
        return entries
    if wholes != {getattr(support, "lower_bound", math.nan) + getattr(support, "upper_bound", math.nan)}:
        raise SymmetryError(
            f"Site {site!r} has axes {describe(entries)} and support {support}, which exchanging x with "
            f"{wholes.pop()} - x does not map to itself: give the total of its two bounds."
        )
    return with_total({site: entries}, 0.0)[site]


def _of_free(site: str, entries: tuple[AxisEntry, ...], support: Any) -> tuple[AxisEntry, ...]:
    """Entries of unconstrained coordinates whose events, in which no group acts, may have another number of axes."""
    entries = _of_coordinates(site, entries, support)
    if not support.event_dim:
        return entries
    return entries[: -support.event_dim] + (None,) * biject_to(support).domain.event_dim


def _acts_within(entries: tuple[AxisEntry, ...], support: Any) -> bool:
    """Whether a group acts on axes of an event whose entries are constrained together, as those of a simplex."""
    return bool(support.event_dim) and any(entry is not None for entry in entries[-support.event_dim :])


def density_of(
    guide: Any,
    trace: Trace,
    layout: Layout,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rng_key: Array | None = None,
) -> Density:
    """The guide's density, read at the draw of its trace; the key is for moments of one that does not factorise."""
    if layout.factorises:
        return Factorised(_factors(guide, trace, layout))
    values = latent_values(trace)
    free = _drawn_free(guide, trace, layout)
    of_free = dict(layout.symmetry.axes) | {
        site: _of_free(site, layout.symmetry.axes[site], entrywise(layout.supports[site])) for site in free
    }
    beside = layout._replace(symmetry=replace(layout.symmetry, axes=of_free))
    before = log_density_by_site(guide, trace, values, args, kwargs, free)

    def ratio(element: Element) -> Array:
        moved: Any = layout.apply(element, values)
        moved_free: Any = beside.apply(element, values | free)
        after = log_density_by_site(guide, trace, moved, args, kwargs, {site: moved_free[site] for site in free})
        # site by site, so that sites left alone by a relabelling cancel exactly; those that follow it only nearly would
        telling = (site for site in before if site not in layout.following)
        return sum((after[site] - before[site] for site in telling), jnp.zeros(()))

    return General(ratio, lambda: _alike(rng_key, guide, trace, layout, args, kwargs))


def _drawn_free(guide: Any, trace: Trace, layout: Layout) -> dict[str, Array]:
    """Unconstrained values as they were drawn, of sites whose events no group acts within: there they move along."""
    free = {
        site: value
        for site, value in drawn_free(guide, trace, layout.supports).items()
        if not _acts_within(layout.symmetry.axes[site], entrywise(layout.supports[site]))
    }
    apart = [stack.sites for stack in layout.symmetry.stacks.values() if not set(stack.sites) <= set(free)]
    return {site: value for site, value in free.items() if not any(site in sites for sites in apart)}


def draws_of(
    rng_key: Array,
    guide: Any,
    trace: Trace,
    layout: Layout,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    num_draws: int,
) -> dict[str, Array]:
    """Coordinates of fresh draws of the guide, ``(num_draws, *event)``, its parameters and plates as in ``trace``.

    Whitened sites are given the means that they have in ``trace``, as its factors are.
    """
    data = settings_of(trace)
    means = {site: whitened(trace, site).loc for site in layout.whitened}

    def draw(key: Array) -> dict[str, Array]:
        fresh = trace_model(guide, args, kwargs, key, data)
        by_site = _by_site(guide, fresh, layout.symmetry, layout.supports, layout.whitened)
        about = {site: by_site[site] - whitened(fresh, site).loc + mean for site, mean in means.items()}
        return layout.view.open(by_site | about)

    return jax.vmap(draw)(jax.random.split(rng_key, num_draws))


def _alike(
    rng_key: Any, guide: Any, trace: Trace, layout: Layout, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> GaussianFactors:
    """Gaussians with the moments of the guide's marginals, where these are known, and elsewhere of a few draws."""
    known = {
        site: moments
        for site, moments in marginals_of(guide, trace).items()
        if site in layout.supports and not _acts_within(layout.symmetry.axes[site], entrywise(layout.supports[site]))
    }
    loc = layout.view.open({site: moments.loc for site, moments in known.items()})
    scale = _scales(layout, {site: moments.scale for site, moments in known.items()})
    if set(known) >= set(layout.supports):
        return GaussianFactors(loc, scale)
    draws = draws_of(rng_key, guide, trace, layout, args, kwargs, _NUM_MOMENT_DRAWS)
    by_site = _by_site(guide, trace, layout.symmetry, layout.supports, layout.whitened)
    steps = {
        site: jnp.full_like(x, _SMALLEST_SCALE_OF_INTEGERS if layout.supports[site].is_discrete else 0.0)
        for site, x in by_site.items()
    }
    steps = layout.view.open(steps, common=True)

    def variance(site: str, x: Array) -> Array:
        apart = jax.lax.stop_gradient(x.std())
        least = _SMALLEST_SCALE * jnp.where(apart > 0, apart, 1.0)
        return x.var(0, ddof=1) + least**2 + steps[site] ** 2

    return GaussianFactors(
        {site: value.mean(0) for site, value in draws.items()} | loc,
        _widened(layout, {site: jnp.sqrt(variance(site, x)) for site, x in draws.items()}) | scale,
    )


def _scales(layout: Layout, by_site: dict[str, Array]) -> dict[str, Array]:
    """Standard deviations by piece, of Gaussians that are together the sites'."""
    return _widened(layout, layout.view.open(by_site, common=True))


def _widened(layout: Layout, scale: dict[str, Array]) -> dict[str, Array]:
    """Scales over roots of weights: x and total - x are one number, and so the Gaussian of each counts for half."""
    return scale | {name: scale[name] / math.sqrt(w) for name, w in layout.view.weights.items() if name in scale}


# ---- factors that are the density ------------------------------------------------------------------------------------


def _whitened(trace: Trace, telling: Mapping[str, tuple[AxisEntry, ...]]) -> tuple[str, ...]:
    """Sites that tell units apart by independent columns alone, as all sites do that are one Gaussian with them."""
    along = {
        site: entries[-1]
        for site, entries in telling.items()
        if has_columns(trace, site) and all(entry is None for entry in entries[:-1])
    }
    return tuple(site for site in along if all(along.get(mate) == along[site] for mate in whitened(trace, site).mates))


def _mates(trace: Trace, layout: Layout) -> dict[str, set[str]]:
    """Site of units -> the other sites that are one Gaussian with it, and are relabelled along with it."""
    units = unit_names(trace)
    found = {site: {s for s in layout.sites if units.get(s) == name} for site, name in units.items()}
    return found | {site: set(whitened(trace, site).mates) for site in layout.whitened}


def is_gaussian(guide: object, trace: Trace, layout: Layout) -> bool:
    """Whether every site that tells units apart is Gaussian, and those of units move as units do."""
    found = gaussians_of(guide, trace, layout.supports)
    if any(
        site not in found or (isinstance(found[site], Columns) and site not in layout.whitened) for site in layout.sites
    ):
        return False
    units = {site: gaussian for site, gaussian in found.items() if isinstance(gaussian, UnitNormal)}
    return not units or _moves_units_whole(units, unit_names(trace), layout)


def _factors(guide: object, trace: Trace, layout: Layout) -> Factors:
    by_site = _by_site(guide, trace, layout.symmetry, layout.supports, layout.whitened)
    found = gaussians_of(guide, trace, layout.supports)
    if others := [site for site in layout.sites if site not in found]:
        raise UnsupportedGuideError(
            f"The guide draws {others} as independent Gaussians where it was set up, and here by other distributions, "
            "as an argument or a handler around it (mask) makes them. Make a guide anew, and set it up as it is called "
            "here; the parameters may stay."
        )

    def of(name: str) -> dict[str, Array]:
        values = {site: jnp.asarray(getattr(found[site], name)) for site in layout.sites}
        return {site: jnp.broadcast_to(v, by_site[site].shape) for site, v in values.items()}

    given = {site: gaussian.given for site, gaussian in found.items() if isinstance(gaussian, UnitNormal)}
    coefficients = {site: g.coefficients for site, g in given.items() if isinstance(g, Regression)}
    low_rank = {site: g.factor for site, g in given.items() if isinstance(g, LowRank)}
    factors = GaussianFactors(layout.view.open(of("loc")), _scales(layout, of("scale")))
    return UnitGaussians(*factors, coefficients, low_rank) if coefficients or low_rank else factors


def _moves_units_whole(gaussians: Mapping[str, UnitNormal], units: Mapping[str, str], layout: Layout) -> bool:
    """Whether each group moves whole units of one Gaussian guide, and other groups on their sites come before it."""
    symmetry = layout.of_coordinates
    order, found = list(symmetry.groups), set[tuple[str, str]]()
    concerned = {name for site, name in units.items() if site in layout.symmetry.axes}
    for site, name in units.items():
        if name not in concerned:
            continue
        if site not in symmetry.axes:  # not moved with the others of the unit, or cut into pieces
            return False
        names = [axis.group for axis in symmetry.opened(site)]
        position = unit_axis(symmetry, site)
        *others, own = [group for group in names if group is not None]
        is_along = position - len(names) == gaussians[site].axis
        if not is_along or any(order.index(other) >= order.index(own) for other in others):
            return False
        if others and any(group.signed for group in symmetry.groups.values()):
            return False
        found.add((name, own))
    # each Gaussian's units are one group's, and each group's one Gaussian's
    return len(found) == len({name for name, _ in found}) == len({own for _, own in found})
