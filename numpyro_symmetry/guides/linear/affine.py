"""A model read as a linear model in some of its sites, the others given; and whether it is one.

Observed sites whose linear predictor is affine in the sites, under Gaussian priors of these, become rows of a linear
model in whitened coordinates. Knows models and likelihoods; not guides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.guides.linear.likelihoods import Observation, observation
from numpyro_symmetry.guides.linear.priors import Prior, eligible, gaussian_prior, prior_of
from numpyro_symmetry.guides.linear.slopes import in_rows, value_and_slopes
from numpyro_symmetry.models import Trace, latent_of, layers, observed_of
from numpyro_symmetry.models.given_values import trace_given
from numpyro_symmetry.models.programs import in_double
from numpyro_symmetry.models.reach import dependencies

# relative to how much numbers move and to how large they are, in double precision: rounding leaves far less, and what
# is not affine, or depends on what it must not, far more. Of numbers far from zero the second alone would tell nothing
_OF_MOVES, _OF_SIZE = 1e-6, 1e-9


class AffineParts(NamedTuple):
    """What is affine in some sites of a model, at values of all others.

    Attributes
    ----------
    trace
        Of the model there.
    priors
        Site -> its prior.
    at
        Values of the sites -> what is affine in them.
    """

    trace: Trace
    priors: dict[str, Prior]
    at: Callable[[dict[str, Array]], dict[str, Array]]

    def slopes(self, num_outputs: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """The affine parts at the prior means, and site -> rows of all parts over the site's z."""

        def whitened(z: dict[str, Array]) -> dict[str, Array]:
            return self.at({site: prior.value(z[site]) for site, prior in self.priors.items()})

        origin = {site: jnp.zeros_like(prior.loc) for site, prior in self.priors.items()}
        return value_and_slopes(whitened, origin, num_outputs)


class LinearModel(NamedTuple):
    """A model as a linear model in some sites, given all others, in z, of which the priors are maps.

    Attributes
    ----------
    observations
        Observed site -> its likelihood, the predictor at ``z = 0``.
    slopes
        Site -> rows of all predictors over its z, ``(N, P)``.
    priors
        Site -> its prior.
    num_outputs
        C: rows and z have C columns that share the slopes; 0 if they are vectors.
    """

    observations: dict[str, Observation]
    slopes: dict[str, Array]
    priors: dict[str, Prior]
    num_outputs: int

    def rows(self, values: Mapping[str, Array]) -> Array:
        """Stack arrays of the predictors' shapes into rows, ``(N,)`` or ``(N, C)``."""
        return jnp.concatenate([in_rows(values[site], self.num_outputs) for site in self.observations])

    def split(self, rows: Array) -> dict[str, Array]:
        """Undo ``rows``."""
        found, start = {}, 0
        for site, seen in self.observations.items():
            size = seen.predictor.size // max(1, self.num_outputs)
            found[site], start = rows[start : start + size].reshape(seen.predictor.shape), start + size
        return found


def linear_observations(trace: Trace) -> dict[str, Observation]:
    """Observed sites that are likelihoods of a linear predictor."""
    found = {name: observation(site) for name, site in observed_of(trace).items()}
    return {name: seen for name, seen in found.items() if seen is not None}


def read(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    given: Mapping[str, Array],
    sites: Sequence[str],
    observed: Sequence[str],
    num_outputs: int,
) -> LinearModel:
    """Read a model as linear in some sites, at values of the others.

    Parameters
    ----------
    model, args, kwargs
        The model and its arguments.
    given
        Values of all other latent sites.
    sites
        Sites in which it is linear.
    observed
        Observed sites that depend on them.
    num_outputs
        See `LinearModel`; outputs that these arguments weigh apart, by a mask say or in their priors, share nothing.
    """
    predictors = predictors_given(model, args, kwargs, given, sites, observed)
    found = linear_observations(predictors.trace)
    weights = [found[site].weight(found[site].predictor) for site in observed]
    num_outputs = 0 if are_apart(predictors.trace, sites, weights) else num_outputs
    at_zero, slopes = predictors.slopes(num_outputs)
    seen = {site: found[site]._replace(predictor=at_zero[site]) for site in observed}
    return LinearModel(seen, slopes, predictors.priors, num_outputs)


def predictors_given(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    given: Mapping[str, Array],
    sites: Sequence[str],
    observed: Sequence[str],
) -> AffineParts:
    """Predictors of observed sites, affine in some sites."""

    def predictors(trace: Trace) -> dict[str, Array]:
        found = linear_observations(trace)
        return {site: found[site].predictor for site in observed}

    return parts_given(model, args, kwargs, given, sites, predictors)


def parts_given(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    given: Mapping[str, Array],
    sites: Sequence[str],
    parts: Callable[[Trace], Any],
) -> AffineParts:
    """``parts`` of a model's traces that are affine in some sites."""
    trace = trace_given(model, args, kwargs, given)
    priors = {site: prior_of(trace[site]) for site in sites}
    return AffineParts(trace, priors, lambda values: parts(trace_given(model, args, kwargs, {**given, **values})))


class SiteDimensions(NamedTuple):
    """How many dimensions an event of a site has, and the plates around it."""

    event_dim: int
    plates: tuple[Any, ...]


def dimensions_of(trace: Trace, sites: Sequence[str]) -> dict[str, SiteDimensions]:
    """The dimensions of sites in a model."""
    return {site: SiteDimensions(trace[site]["fn"].event_dim, tuple(trace[site]["cond_indep_stack"])) for site in sites}


# ---- is it one? ----------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """All numbers of a model at one place by which it may be seen to be linear.

    Attributes
    ----------
    priors
        Latent site with a Gaussian prior -> that prior.
    predictors, others
        Observed site of a known likelihood -> its predictor; everything else on which its weighted density depends.
    densities, supports
        Any other site -> its log density, and what its support depends on.
    values
        Observed site -> what is observed, which a model may compute.
    """

    priors: dict[str, Prior]
    predictors: dict[str, Array]
    others: dict[str, list[Array]]
    densities: dict[str, Array]
    supports: dict[str, list[Array]]
    values: dict[str, Array]


Reader = Callable[[Mapping[str, Any]], Reading]


def reader(model: Callable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Reader:
    """Read a model at values of all latent sites."""

    def at(values: Mapping[str, Any]) -> Reading:
        trace = trace_given(model, args, kwargs, values)
        seen = linear_observations(trace)
        priors = {name: prior_of(site) for name, site in latent_of(trace).items() if eligible(site)}
        rest = [name for name, s in trace.items() if s["type"] == "sample" and name not in {*seen, *priors}]
        return Reading(
            priors,
            {name: found.predictor for name, found in seen.items()},
            {name: [*found.others, found.entry_weight] for name, found in seen.items()},
            {name: jnp.sum(trace[name]["fn"].log_prob(jnp.asarray(trace[name]["value"]))) for name in rest},
            {name: jax.tree.leaves(trace[name]["fn"].support) for name in rest},
            {name: jnp.nan_to_num(site["value"]) for name, site in observed_of(trace).items()},
        )

    return at


def not_a_number(reading: Reading) -> str | None:
    """A site whose prior, predictor or density has an entry that is not a number, or ``None``."""
    found: dict[str, list[Array]] = {name: list(prior) for name, prior in reading.priors.items()}
    found |= {name: [density, *reading.supports[name]] for name, density in reading.densities.items()}
    found |= {name: [predictor, *reading.others[name]] for name, predictor in reading.predictors.items()}
    return next(
        (name for name, parts in found.items() if any(np.isnan(np.asarray(part)).any() for part in parts)), None
    )


def why_not_linear(
    read_at: Reader, places: Sequence[Mapping[str, Any]], trace: Trace, sites: Sequence[str]
) -> str | None:
    """Why a model is not linear in some sites jointly, or ``None`` if it is at all of some places.

    Compared at *finite distances* on the scale of the prior, and never by derivatives: those of a rectified network in
    its hidden weights are constant nearly everywhere, though it is not affine in them.

    Parameters
    ----------
    read_at
        The model, read at values of all latent sites.
    places
        Values of all latent sites, drawn from the prior, at least two.
    trace
        A trace of the model, for its words.
    sites
        Names of the sites in question, which have Gaussian priors.
    """
    for k, place in enumerate(places):
        other = places[(k + 1) % len(places)]
        ends = [{site: values[site] for site in sites} for values in (place, other)]
        middle = {site: 0.5 * (np.asarray(ends[0][site], float) + np.asarray(ends[1][site], float)) for site in sites}
        readings = [read_at({**place, **values}) for values in (ends[0], middle, ends[1])]
        if (why := _difference(readings, trace, sites)) is not None:
            return why
    return None


def dependent_prior(read_at: Reader, place: Mapping[str, Any], sites: Sequence[str]) -> str | None:
    """The first of some sites whose prior depends on others of them, or ``None``."""

    def priors(values: dict[str, Any]) -> dict[str, Prior]:
        found = read_at({**place, **values}).priors
        return {site: found[site] for site in sites}

    found = dependencies(priors, {site: place[site] for site in sites})
    return next((site for site, reached in found.items() if reached), None)


def dependent_observations(read_at: Reader, place: Mapping[str, Any], sites: Sequence[str]) -> tuple[str, ...]:
    """Observed sites whose predictor depends on some sites, whatever the others are, in a model linear in these."""
    found = dependencies(lambda values: read_at({**place, **values}).predictors, {site: place[site] for site in sites})
    return tuple(site for site, reached in found.items() if reached)


def shared_outputs(
    parts_at: Callable[[Mapping[str, Any]], AffineParts],
    places: Sequence[Mapping[str, Any]],
    sites: Sequence[str],
    weights: Sequence[Array] = (),
) -> int:
    """How many outputs share one linear map, each applied to its own columns of the sites; 0 if they share none.

    Parameters
    ----------
    parts_at
        Values of all latent sites -> what is affine in the sites there.
    places
        Values of all latent sites, in double precision.
    sites
        Sites in which it is linear.
    weights
        Weights of rows; outputs that share a map share these.
    """
    start = parts_at(places[0])
    found = start.at({site: places[0][site] for site in sites})
    last = {jnp.shape(value)[-1:] for value in [*(start.trace[site]["value"] for site in sites), *found.values()]}
    if len(last) > 1 or (num_outputs := (*last.pop(), 0)[0]) < 2 or are_apart(start.trace, sites, weights):
        return 0

    def moves(place: Mapping[str, Any]) -> tuple[Array, Array]:
        parts, values = parts_at(place), {site: place[site] for site in sites}
        at_zero, slopes = parts.slopes(num_outputs)
        z = {site: prior.whitened(values[site] - prior.loc) for site, prior in parts.priors.items()}
        moved = sum(slopes[site] @ in_rows(z[site], num_outputs) for site in sites)
        gaps = (in_rows(value - at_zero[name], num_outputs) for name, value in parts.at(values).items())
        return jnp.asarray(moved), jnp.concatenate(list(gaps))

    moves_at = in_double(moves, places[0])
    return num_outputs if all(_close(*moves_at(place), tolerance=_OF_MOVES) for place in places) else 0


def are_apart(trace: Trace, sites: Sequence[str], weights: Sequence[Array] = ()) -> bool:
    """Whether outputs have weights or priors of their own: by shapes, as what is equal now may be trained apart."""
    scales = [gaussian_prior(trace[site])[1] for site in sites]  # pyright: ignore[reportOptionalSubscript]
    return any(jnp.shape(weight)[-1:] not in ((), (1,)) for weight in [*scales, *weights])


def _difference(readings: Sequence[Reading], trace: Trace, sites: Sequence[str]) -> str | None:
    before, _, after = readings
    for name in before.priors:
        for what, x, y in zip(before.priors[name]._fields, before.priors[name], after.priors[name], strict=True):
            if not _close(x, y):
                noun = {"loc": "mean", "factor": "covariance"}.get(what, what)
                return f"the prior {noun} of {name!r} depends on them"
    for name in before.predictors:
        noun = observation(trace[name]).kind.noun  # pyright: ignore[reportOptionalMemberAccess]
        if not all(_close(x, y) for x, y in zip(before.others[name], after.others[name], strict=True)):
            return f"{name!r} depends on them by more than its {noun}"
        start, middle, end = (np.asarray(reading.predictors[name], np.float64) for reading in readings)
        if not _close(middle - start, end - middle, _OF_MOVES, beside=middle):
            return f"the {noun} of {name!r} {'are' if noun.endswith('s') else 'is'} not affine in them"
    for name, value in before.values.items():
        if not _close(value, after.values[name]):
            return f"the values of {name!r} that are observed depend on them"
    for name, support in before.supports.items():
        if not all(_close(x, y) for x, y in zip(support, after.supports[name], strict=True)):
            return f"the support of {name!r} depends on them"
    for name, density in before.densities.items():
        if name not in sites and not _close(density, after.densities[name], unit=1.0):
            *_, fn = layers(trace[name]["fn"])
            unknown = f"{name!r} depends on them and is a {type(fn).__name__}, of no known linear predictor"
            prior = f"the prior of {name!r} depends on them{_way_out(name, trace)}"
            return unknown if trace[name]["is_observed"] else prior
    return None


def _way_out(name: str, trace: Trace) -> str:
    """The remedy for a site that NumPyro's ``obs_mask`` makes of missing values; empty for any other."""
    whole = name.removesuffix("_unobserved")
    if whole == name or f"{whole}_observed" not in trace:
        return ""
    return (
        f", and it is made of missing values by obs_mask: sum them out, numpyro.sample({whole!r}, fn.mask(seen), ...)"
    )


def _close(a: Any, b: Any, tolerance: float = _OF_SIZE, *, beside: Any = 0.0, unit: float = 0.0) -> bool:
    """Whether numbers are alike beside how large they and others are; only log densities have a unit, the nat."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    size, further = (max(np.abs(x).max(initial=0.0) for x in numbers) for numbers in ((a, b), (beside,)))
    return bool((np.abs(a - b) <= tolerance * (unit + size) + _OF_SIZE * further).all())
