"""Which sites of a model can follow the others, seen at values from the prior in double precision. Knows models."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax

from numpyro_symmetry.guides.conditional.sources import FromObservations, Source, start_of_inducing
from numpyro_symmetry.guides.conditional.unfit import (
    refuse_chance,
    refuse_held,
    refuse_lost_state,
    refuse_models,
    refuse_sites,
    refuse_subsampled,
    warn_of_weighed_rows,
)
from numpyro_symmetry.guides.linear.affine import (
    Reader,
    dependent_observations,
    dependent_prior,
    linear_observations,
    not_a_number,
    predictors_given,
    reader,
    shared_outputs,
    why_not_linear,
)
from numpyro_symmetry.guides.linear.priors import FAMILIES, eligible
from numpyro_symmetry.models import Trace, latent_of, settings_of, trace_model
from numpyro_symmetry.models.given_values import parameters, perturbed, trace_given
from numpyro_symmetry.models.programs import in_double
from numpyro_symmetry.models.reach import dependencies
from numpyro_symmetry.symmetry import SymmetryError

# draws from the prior: two have a line between them to look along, and three make three lines, lest a rectified unit be
# off all along one of them
_NUM_PLACES = 3
_OF_ANOTHER_PRIOR = "it has no plain Gaussian prior (neither masked nor scaled), as a site that follows must"


class Request(NamedTuple):
    """Sites that are to follow, or ``None`` for any that do; steps and inducing inputs as for `AutoConditional`."""

    sites: Sequence[str] | None
    num_steps: int
    inducing: Any


class Followers(NamedTuple):
    """The sites that were chosen to follow, and how.

    Attributes
    ----------
    source
        Where the conditional comes from, and of which sites.
    latent
        All latent sites of the model.
    reasons
        Latent site that does not follow -> why.
    """

    source: Source
    latent: frozenset[str]
    reasons: dict[str, str]


def choose(model: Callable, request: Request, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Followers:
    """The sites of a model that follow the others: those asked for, or all that do jointly.

    Raises
    ------
    SymmetryError
        If the model, its data or the sites asked for allow no conditional, or there are two sets of sites.
    """
    inducing = request.inducing
    trace = trace_model(model, args, kwargs, jax.random.key(0))
    latent = latent_of(trace)
    refuse_models(trace, latent)
    refuse_lost_state(model, args, kwargs, trace)
    if inducing is None:
        refuse_subsampled(trace)
        warn_of_weighed_rows(trace)
    start = parameters(trace) | {name: trace[name]["value"] for name in latent}
    refuse_chance(model, args, kwargs, trace, start)
    if request.sites is not None:
        refuse_sites(request.sites, latent)
    read = reader(model, args, kwargs)
    read_at = functools.cache(lambda: in_double(read, start))
    places = _places(model, args, kwargs, trace, read_at())

    def why_not(sites: tuple[str, ...]) -> str | None:
        return why_not_linear(read_at(), places, trace, sites)

    if request.sites is None:
        unseen = {site for site in latent if not dependent_observations(read, start, (site,))}
        sites, reasons = _affine_sites(latent, why_not, unseen)
    else:
        sites, reasons = tuple(request.sites), {}
        if (site := dependent_prior(read, start, sites)) is not None:
            raise SymmetryError(
                f"The prior of {site!r} depends on others of {list(sites)}, so they have no Gaussian conditional "
                "together. Leave those that it depends on to the base guide: "
                f"AutoConditional(base_guide, [{site!r}])."
            )
        if inducing is None and (why := why_not(sites)) is not None:
            raise SymmetryError(
                f"Sites {list(sites)} have no Gaussian conditional: {why}. Leave it to the base guide, or "
                "condition on pseudo-observations: AutoConditional(base_guide, sites, inducing=100)."
            )
    seen = linear_observations(trace_given(model, args, kwargs, start))
    if inducing is not None:
        source = start_of_inducing(model, args, kwargs, places, sites, seen, trace, inducing)
        children = _children_of(read, start, sites, latent)
        return Followers(source._replace(children=children), frozenset(latent), reasons)
    if not (observed := dependent_observations(read, start, sites)):
        raise SymmetryError(f"No observation depends on {list(sites)}: leave them to the base guide.")
    at = partial(predictors_given, model, args, kwargs, sites=sites, observed=observed)
    num_outputs = shared_outputs(at, places, sites, [seen[s].weight(seen[s].predictor) for s in observed])
    factors = {site: seen[site].kind.factor(seen[site].fn) for site in observed if not seen[site].kind.exact}
    source = FromObservations(sites, observed, num_outputs, factors, request.num_steps)
    return Followers(source, frozenset(latent), reasons)


def _children_of(
    read_at: Reader, place: Mapping[str, Any], sites: Sequence[str], latent: Collection[str]
) -> tuple[str, ...]:
    """Children of some sites in the model: latent sites whose prior depends on them."""

    def priors(values: dict[str, Any]) -> dict[str, Any]:
        found = read_at({**place, **values})
        return {name: (found.priors.get(name), found.densities.get(name)) for name in latent if name not in sites}

    found = dependencies(priors, {site: place[site] for site in sites})
    return tuple(name for name, reached in found.items() if reached)


def _places(
    model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], trace: Trace, read_at: Reader
) -> list[dict[str, Any]]:
    """Draws from the prior, at moved parameters too: a model may be linear where these start and not where they end."""

    def at(trace: Trace) -> dict[str, Any]:
        return parameters(trace) | {name: trace[name]["value"] for name in latent_of(trace)}

    places = [at(trace)]
    if (site := not_a_number(read_at(places[0]))) is not None:
        raise SymmetryError(
            f"At a draw from the prior {site!r} has a prior, a predictor or a density that is not a number, so no site "
            "can be told to follow the others. Look for NaN among the arguments: missing inputs need a value or a "
            "prior; missing targets are left out by a mask."
        )
    for key in map(jax.random.key, range(1, _NUM_PLACES)):
        moved = at(trace_model(model, args, kwargs, key, perturbed(key, trace)))
        # a model may take no other parameters, as where a scale has no constraint
        if not_a_number(read_at(moved)) is not None:
            moved = at(trace_model(model, args, kwargs, key, settings_of(trace)))
        places.append(moved)
    refuse_held([name for name, site in latent_of(trace).items() if eligible(site)], places)
    return places


def _affine_sites(
    latent: Mapping[str, Any], why_not: Callable[[tuple[str, ...]], str | None], unseen: Collection[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """All sites that are affine alone, if they are so together; and why each of the others is not."""
    found = {site: why_not((site,)) if eligible(latent[site]) else _OF_ANOTHER_PRIOR for site in latent}
    found |= {site: "no observation depends on it" for site, why in found.items() if why is None and site in unseen}
    reasons = {site: why for site, why in found.items() if why is not None}
    alone = tuple(site for site in latent if site not in reasons)
    if not latent:
        raise SymmetryError("The model has no latent site that is not conditioned on: there is nothing to follow.")
    if not alone and all(why == _OF_ANOTHER_PRIOR for why in reasons.values()):
        raise SymmetryError(
            f"None of the sites {list(reasons)} can follow: of each, {_OF_ANOTHER_PRIOR}. Gaussian priors are "
            f"{FAMILIES}. Use the base guide alone."
        )
    if not alone:
        text = "; ".join(f"{site}: {why}" for site, why in reasons.items())
        raise SymmetryError(
            f"No site of the model has a Gaussian conditional ({text}). Name those that are to follow "
            "inducing inputs all the same: AutoConditional(base_guide, sites, inducing=100)."
        )
    if why_not(alone) is None:
        return alone, reasons
    first, second = next(pair for pair in itertools.combinations(alone, 2) if why_not(pair) is not None)
    raise SymmetryError(
        f"Sites {first!r} and {second!r} are each affine given the other, but not together, as where they multiply "
        f"each other: say which follows, AutoConditional(base_guide, [{first!r}]) or AutoConditional(base_guide, "
        f"[{second!r}])."
    )
