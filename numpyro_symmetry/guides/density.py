"""Densities of a base guide at moved values, and the coordinates in which it factorises (or nearly does).

A guide's trace is read once per call; moved values go back into the guide as **constrained** values, because that is
where the group acts. Knows guides and traces; no estimators, no model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.extend.core import Literal
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import IndependentTransform, biject_to
from numpyro.infer.autoguide import AutoContinuous, AutoDiagonalNormal, AutoGuideList

from numpyro_symmetry.entropy import Factors, GaussianFactors, UnitGaussians
from numpyro_symmetry.entropy.units import unit_axis
from numpyro_symmetry.guides.unit_normal import UnitNormal
from numpyro_symmetry.symmetry import Element, PlainView, Symmetry
from numpyro_symmetry.symmetry.axes import padded

Trace = Mapping[str, Any]
_NUM_MOMENT_DRAWS = 32
_SMALLEST_SCALE = 1e-6


class Coordinates(NamedTuple):
    """How the touched sites are laid out for tables.

    Attributes
    ----------
    symmetry
        The symmetry with every axis of every site written out.
    of_coordinates
        The same group acting on coordinates, whose event axes may differ from the values', every group plain.
    view
        How coordinates are cut into the pieces on which ``of_coordinates`` acts.
    supports
        Site -> support of the constrained value.
    factorises
        Whether Gaussians that are independent in these coordinates, by entry or by unit, *are* the guide's density, but
        for what follows.
    following
        Sites that merely follow the others under a relabelling, and so have no coordinates.
    """

    symmetry: Symmetry
    of_coordinates: Symmetry
    view: PlainView
    supports: dict[str, constraints.Constraint]
    factorises: bool
    following: tuple[str, ...] = ()

    @property
    def sites(self) -> tuple[str, ...]:
        """Sites that tell units apart."""
        return tuple(site for site in self.symmetry.axes if site not in self.following)

    def apply(self, element: Element, values: Mapping[str, Any]) -> dict[str, Any]:
        """Act on values with an element of ``of_coordinates``."""
        return self.symmetry.apply(self.view.element(element), values)


def parts_of(guide: object) -> Iterator[object]:
    """The guide itself, or the guides of which it is made, recursively."""
    parts = guide if isinstance(guide, AutoGuideList) else getattr(guide, "parts", None)
    if parts is not None:
        for part in parts:
            yield from parts_of(part)
    else:
        yield guide


def latent_values(trace: Trace) -> dict[str, Array]:
    """Constrained values of a guide's own latent sites, auxiliary ones left out."""
    return {
        name: site["value"]
        for name, site in trace.items()
        if site["type"] == "sample" and not site["is_observed"] and not site["infer"].get("is_auxiliary", False)
    }


def lay_out(
    symmetry: Symmetry,
    trace: Trace,
    supports: Mapping[str, constraints.Constraint],
    guide: object,
    args: tuple,
    kwargs: dict,
    following: Collection[str] = (),
) -> Coordinates:
    """Choose coordinates for every touched site that does not follow, and see whether the guide factorises in them."""
    full, axes, splits_an_event = {}, {}, False
    for site, entries in symmetry.axes.items():
        full[site] = entries = padded(entries, jnp.ndim(trace[site]["value"]))
        if site in following:
            continue
        axes[site] = entries
        support = _without_independent(supports[site])
        if support.event_dim and all(entry is None for entry in entries[-support.event_dim :]):
            axes[site] = entries[: -support.event_dim] + (None,) * biject_to(support).domain.event_dim
        elif support.event_dim:
            splits_an_event = True
    supports = {site: supports[site] for site in axes}
    values = {site: trace[site]["value"] for site in axes}
    shapes = jax.eval_shape(lambda v: _by_site(v, symmetry, supports), values)
    view = PlainView.of(replace(symmetry, axes=axes), shapes)
    layout = Coordinates(replace(symmetry, axes=full), view.symmetry, view, supports, False, tuple(following))
    if splits_an_event or _read_factors(trace, guide, layout) is None:
        return layout
    depends = dependencies(guide, trace, args, kwargs)
    mates = {site: {s for s in axes if _units(trace[s]["fn"]) == units} for site, units in _units_of(trace).items()}
    apart = (not (on - mates.get(site, set())) & set(axes) for site, on in depends.items() if site not in following)
    return layout._replace(factorises=all(apart))


def coordinates_of(values: Mapping[str, Array], layout: Coordinates) -> dict[str, Array]:
    """Coordinates of constrained values: unconstrained ones, and logarithms for a simplex, which has none."""
    return layout.view.open(_by_site(values, layout.symmetry, layout.supports))


def _by_site(
    values: Mapping[str, Array], symmetry: Symmetry, supports: Mapping[str, constraints.Constraint]
) -> dict[str, Array]:
    def one(site: str) -> Array:
        support, value = _without_independent(supports[site]), jnp.asarray(values[site])
        entries = symmetry.axes[site]
        if support.event_dim and any(entry is not None for entry in entries[-support.event_dim :]):
            # the group permutes inside an event: no unconstrained coordinates move along with it
            is_simplex = support is constraints.simplex
            return jnp.log(jnp.maximum(value, jnp.finfo(value.dtype).tiny)) if is_simplex else value
        return value if support is constraints.real else biject_to(support).inv(value)

    return {site: one(site) for site in supports}


def factors_of(
    rng_key: Array | None, guide: Any, trace: Trace, layout: Coordinates, args: tuple, kwargs: dict
) -> Factors:
    """The guide's own Gaussian factors, or Gaussians of the same moments as a few of its draws."""
    if layout.factorises:
        factors = _read_factors(trace, guide, layout)
        assert factors is not None
        return factors
    assert rng_key is not None
    draws = draws_of(rng_key, guide, trace, layout, args, kwargs, _NUM_MOMENT_DRAWS)
    return GaussianFactors(
        {site: value.mean(0) for site, value in draws.items()},
        {site: jnp.sqrt(value.var(0, ddof=1) + _SMALLEST_SCALE**2) for site, value in draws.items()},
    )


def draws_of(
    rng_key: Array, guide: Any, trace: Trace, layout: Coordinates, args: tuple, kwargs: dict, num_draws: int
) -> dict[str, Array]:
    """Coordinates of fresh draws of the guide, ``(num_draws, *event)``, its parameters and plates as in ``trace``."""
    data = _settings(trace)

    def draw(key: Array) -> dict[str, Array]:
        with handlers.block(), handlers.trace() as fresh, handlers.seed(rng_seed=key), handlers.substitute(data=data):
            guide(*args, **kwargs)
        return coordinates_of(latent_values(fresh), layout)

    return jax.vmap(draw)(jax.random.split(rng_key, num_draws))


def trace_at(guide: Any, trace: Trace, values: Mapping[str, Array], args: tuple, kwargs: dict) -> Trace:
    """Trace of the guide at given constrained values, its parameters and plates as in ``trace``.

    An `AutoContinuous` guide is entered through its flat latent alone: its sites are Deltas, infinitely wrong whenever
    a transform does not invert to the last bit.
    """
    data = _settings(trace) | dict(values)
    for part in parts_of(guide):
        if isinstance(part, AutoContinuous):
            flat = [
                jnp.ravel(biject_to(part.prototype_trace[name]["fn"].support).inv(data.pop(name)))  # pyright: ignore
                for name in part._init_locs
            ]
            data[f"_{part.prefix}_latent"] = jnp.concatenate(flat)
    with handlers.block(), handlers.trace() as moved, handlers.seed(rng_seed=0), handlers.substitute(data=data):
        guide(*args, **kwargs)
    return moved


def log_density_by_site(
    guide: Any, trace: Trace, values: Mapping[str, Array], args: tuple, kwargs: dict
) -> dict[str, Array]:
    """Log density of the guide at given constrained values, its parameters and plates as in ``trace``."""
    return {
        name: jnp.sum(log_prob_of(site))
        for name, site in trace_at(guide, trace, values, args, kwargs).items()
        if site["type"] == "sample"
    }


def log_prob_of(site: Any) -> Array:
    """Log density of a site's value under its distribution, unscaled; a flow reuses what it computed when it drew."""
    intermediates = [site["intermediates"]] if site["intermediates"] else []
    return site["fn"].log_prob(site["value"], *intermediates)


def unrecovered_sites(guide: Any, trace: Trace) -> list[str]:
    """Latent sites of the guide that its values do not determine, so that it has no density in them."""
    known = set(latent_values(trace))
    known |= {f"_{part.prefix}_latent" for part in parts_of(guide) if isinstance(part, AutoContinuous)}
    return [
        name
        for name, site in trace.items()
        if site["type"] == "sample" and not site["is_observed"] and name not in known
    ]


def _settings(trace: Trace) -> dict[str, Any]:
    return {name: site["value"] for name, site in trace.items() if site["type"] in ("param", "mutable", "plate")}


def _without_independent(wrapped: Any) -> Any:
    """A constraint or transform without the wrappers that only declare event dimensions."""
    while isinstance(wrapped, constraints.independent):
        wrapped = wrapped.base_constraint
    while isinstance(wrapped, IndependentTransform):
        wrapped = wrapped.base_transform
    return wrapped


def _read_factors(trace: Trace, guide: object, layout: Coordinates) -> Factors | None:
    loc, scale, coefficients = {}, {}, {}
    for part in parts_of(guide):
        if isinstance(part, AutoDiagonalNormal):
            posterior = trace[f"_{part.prefix}_latent"]["fn"]
            loc |= part._unpack_latent(posterior.loc)
            scale |= part._unpack_latent(jnp.broadcast_to(posterior.scale, jnp.shape(posterior.loc)))
    values = {site: trace[site]["value"] for site in layout.sites}
    shapes = jax.eval_shape(lambda v: _by_site(v, layout.symmetry, layout.supports), values)
    for site in layout.sites:
        if site not in loc:
            found = _gaussian(trace[site]["fn"], layout.supports[site])
            if found is None or trace[site]["scale"] is not None:
                return None
            both = jnp.asarray(found.loc), jnp.asarray(found.scale)
            loc[site], scale[site] = (jnp.broadcast_to(v, shapes[site].shape) for v in both)
            if isinstance(found, UnitNormal):
                coefficients[site] = found.coefficients
    loc, scale = (layout.view.open({site: d[site] for site in layout.sites}) for d in (loc, scale))
    if not coefficients:
        return GaussianFactors(loc, scale)
    return UnitGaussians(loc, scale, coefficients) if _moves_units_whole(trace, layout) else None


def _moves_units_whole(trace: Trace, layout: Coordinates) -> bool:
    """Whether each group moves the units of one Gaussian guide, all of their sites, whose other labels are settled."""
    symmetry, units = layout.of_coordinates, _units_of(trace)
    order, groups = list(symmetry.groups), dict[str, set[str]]()
    concerned = {name for site, name in units.items() if site in layout.symmetry.axes}
    for site, name in units.items():
        if name not in concerned:
            continue
        if site not in symmetry.axes:  # not moved with the others of the unit, or cut into pieces
            return False
        fn = _gaussian(trace[site]["fn"], layout.supports[site])
        names = [axis.group for axis in symmetry.opened(site)]
        position = unit_axis(symmetry, site)
        *others, own = [group for group in names if group is not None]
        assert isinstance(fn, UnitNormal)
        if position - len(names) != fn.axis or any(order.index(other) >= order.index(own) for other in others):
            return False
        if others and any(group.signed for group in symmetry.groups.values()):
            return False
        groups.setdefault(name, set()).add(own)
    moved = [own for owns in groups.values() for own in owns]
    return len(moved) == len(groups) == len(set(moved))


def _units_of(trace: Trace) -> dict[str, str]:
    """Site -> name of the units of which it is a part, for sites that are."""
    found = {name: _units(site["fn"]) for name, site in trace.items() if site["type"] == "sample"}
    return {name: units for name, units in found.items() if units is not None}


def _units(fn: Any) -> str | None:
    while isinstance(fn := without_wrappers(fn), dist.TransformedDistribution):
        fn = fn.base_dist
    return fn.units if isinstance(fn, UnitNormal) else None


def without_wrappers(fn: Any) -> Any:
    """A distribution without the wrappers that only declare its shape."""
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    return fn


def _gaussian(fn: Any, support: Any) -> dist.Normal | UnitNormal | None:
    """A Normal, by entry or by unit, that is possibly pushed through the support's own bijection; else None."""
    while True:
        fn = without_wrappers(fn)
        if isinstance(fn, dist.TransformedDistribution):
            transforms = list(fn.transforms)
            if len(transforms) != 1 or _without_independent(transforms[0]) != biject_to(_without_independent(support)):
                return None
            fn = fn.base_dist
        else:
            return fn if type(fn) in (dist.Normal, UnitNormal) else None


def latents_are_independent(guide: Any, trace: Trace, args: tuple, kwargs: dict) -> bool:
    """Whether no latent's distribution depends on another latent."""
    return not any(dependencies(guide, trace, args, kwargs).values())


def dependencies(guide: Any, trace: Trace, args: tuple, kwargs: dict) -> dict[str, set[str]]:
    """Latent site with a distribution of its own -> the other latents on which that depends, read off the program."""
    values = latent_values(trace)
    own = own_sites(guide, trace)

    def log_densities(values: dict[str, Array]) -> dict[str, Array]:
        found = log_density_by_site(guide, trace, values, args, kwargs)
        return {name: found[name] for name in own}

    program = jax.make_jaxpr(log_densities)(values).jaxpr
    reached = {variable: {name} for variable, name in zip(program.invars, sorted(values), strict=True)}
    for equation in program.eqns:
        names = set().union(*(reached.get(v, set()) for v in equation.invars if not isinstance(v, Literal)))
        reached |= dict.fromkeys(equation.outvars, names)
    return {
        name: reached.get(variable, set()) - {name}
        for name, variable in zip(sorted(own), program.outvars, strict=True)
        if not isinstance(variable, Literal)
    }


def own_sites(guide: Any, trace: Trace) -> dict[str, Array]:
    """Latents with distributions of their own: an `AutoContinuous` draws one flat latent, its sites are read off it."""
    read_off = {name for part in parts_of(guide) if isinstance(part, AutoContinuous) for name in part._init_locs}
    return {name: value for name, value in latent_values(trace).items() if name not in read_off}
