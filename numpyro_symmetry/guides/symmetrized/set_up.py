"""Everything that is found out and checked before a guide is symmetrized. Knows guides, models and symmetries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpyro import handlers

from numpyro_symmetry.devices import gathered
from numpyro_symmetry.discovery import check_symmetry, find_symmetry
from numpyro_symmetry.entropy import (
    FEWEST_FEATURES,
    Estimator,
    Factors,
    enough_features,
    refusal,
    sequential_parts,
    widest_site,
)
from numpyro_symmetry.guides.density import latent_values, log_prob_of
from numpyro_symmetry.guides.kinds import unit_names
from numpyro_symmetry.guides.known import KnownArguments, known_arguments
from numpyro_symmetry.guides.symmetrized import requirements
from numpyro_symmetry.guides.symmetrized.equivariance import Follows, Verdicts, equivariant_sites
from numpyro_symmetry.guides.symmetrized.layout import Layout, density_of, draw_of, draws_of, lay_out
from numpyro_symmetry.models import Model, Trace, discrete_of, is_fitted, parameter_sites, refuse_nonfinite, trace_model
from numpyro_symmetry.models.compat import is_enumerated
from numpyro_symmetry.models.enumeration import scanned_sites
from numpyro_symmetry.models.fitted import refuse_set_up_under_jit
from numpyro_symmetry.models.given_values import perturbed
from numpyro_symmetry.steps import say
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, warn
from numpyro_symmetry.symmetry.axes import sites_of_groups
from numpyro_symmetry.symmetry.plain import moving_blocks, separated, untangled

# draws by which every number of features is judged: their noise is common to all
_NUM_FEATURE_DRAWS = 8


class Options(NamedTuple):
    """The options of `AutoSymmetrized`; ``model_is_given`` if the model was passed and not read off the guide."""

    symmetry: Symmetry | None
    estimator: str | Estimator
    max_features: int | str | None
    check: bool
    signs: bool
    model_is_given: bool


class SetUp(NamedTuple):
    """What a set-up has found out.

    Attributes
    ----------
    symmetry
        The symmetry, bound.
    layout
        How the guide's density is read at relabelled values.
    model_trace
        A trace of the model.
    parameters
        Parameters of the guide, and of the model.
    max_features
        How many features of a site the sequential bound sees, ``None`` for all.
    proved
        The model's arguments with which the symmetry was proved.
    chains
        Discrete sites that the model draws in a scan, and the guide does not.
    """

    symmetry: Symmetry
    layout: Layout
    model_trace: Trace
    parameters: tuple[Trace, Trace]
    max_features: int | None
    proved: tuple[KnownArguments, ...]
    chains: tuple[str, ...]


def set_up(
    base: Any, model: Callable, options: Options, trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> SetUp:
    """Find the symmetry if none is given, check all that can be checked, and lay out the guide's density.

    Raises
    ------
    SymmetryError, UnsupportedGuideError
        As for `AutoSymmetrized`.
    """
    drawn = latent_values(trace)
    remedy = "Call guide.setup(rng_key, *model_args) once before, or let SVI.init run outside jit."
    refuse_set_up_under_jit("AutoSymmetrized", remedy, args=args, kwargs=kwargs, drawn=drawn)
    args, kwargs = gathered((args, kwargs))
    model_trace = trace_model(model, args, kwargs, jax.random.key(0))
    name = type(base).__name__ if hasattr(base, "prototype_trace") else "guide"
    requirements.refuse_hidden_sites(model, model_trace, options.model_is_given, name, args, kwargs)
    given = options.symmetry
    say("finding the symmetry" if given is None else "checking the symmetry")
    symmetry = (
        _found(model, drawn, args, kwargs, signs=options.signs)
        if given is None
        else given.bind(latent_values(model_trace))
    )
    refuse_nonfinite({site: s["value"] for site, s in trace.items() if s["type"] == "param"})
    plain = _plain(symmetry, trace)
    if plain.groups:  # a guide that stays as it is runs, whatever it is
        _refuse(plain, options, trace, model, model_trace, args, kwargs)
    supports = {site: model_trace[site]["fn"].support for site in plain.axes}
    say("looking which sites follow the others")
    verdicts = equivariant_sites(base, plain, trace, args, kwargs) if plain.groups else {}
    say("verifying the guide's density")
    layout = _laid_out(plain, _followers(plain, verdicts), base, trace, supports, args, kwargs)
    if why := refusal(options.estimator, layout.of_coordinates, layout.density):
        raise SymmetryError(
            f"estimator={options.estimator!r} is out of reach: {why}. Use 'sequential' or 'importance'."
        )
    count = options.max_features
    say("choosing features")
    max_features = _enough_features(base, options.estimator, trace, layout, args, kwargs) if count == "auto" else count
    parameters = parameter_sites(trace), parameter_sites(model_trace)
    proved = (known_arguments(Model(model, args, kwargs), numbers_too=True),)
    chains = _undrawn_chains(model, model_trace, drawn, args, kwargs)
    return SetUp(symmetry, layout, model_trace, parameters, max_features, proved, chains)  # pyright: ignore[reportArgumentType]


def set_up_to_weigh(guide: Any, rng_key: Array, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Set up a symmetrized guide whose draws are weighed: what stands in the way of training alone is not refused."""
    guide._set_up(guide._trace_of_base(rng_key, args, kwargs), args, kwargs)


def _undrawn_chains(
    model: Callable, model_trace: Trace, drawn: Collection[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, ...]:
    """Discrete sites that the model draws in a scan, and the guide does not."""
    if not (undrawn := [site for site in discrete_of(model_trace) if site not in drawn]):
        return ()
    scanned = scanned_sites(model, args, kwargs, jax.random.key(0))
    return tuple(site for site in undrawn if site in scanned)


def warn_of_scanned_chains(chains: Collection[str]) -> None:
    """Warn if the guide is trained by `TraceEnum_ELBO`, which is wrong for chains of discrete sites in a scan.

    A guide that is never trained by it, such as one by which the evidence is estimated, is not concerned.
    """
    if chains and is_enumerated():
        warn(
            f"The guide does not draw {list(chains)}, which the model draws in scan. TraceEnum_ELBO, which sums them "
            "out, is wrong there (NumPyro 0.22): it leaves out the first step, and takes steps for independent. "
            "`elbo_bounds` and `log_evidence` of this guide are right; to train it, write the forward algorithm out "
            "in the model, as a numpyro.factor, or a Python loop in place of scan."
        )


def _plain(symmetry: Symmetry, trace: Trace) -> Symmetry:
    """The largest subgroup that bounds know: blocks and units in them, both levels if these meet no other group."""
    if unit_names(trace) or not set(symmetry.axes) <= set(latent_values(trace)):
        return untangled(symmetry)  # Gaussians of units as wholes know one level of units
    return separated(symmetry, alone=True)[0]


def _followers(symmetry: Symmetry, verdicts: Verdicts) -> Follows:
    """Sites that need no place in a table, where something else tells the units of every group apart."""
    if unsure := [site for site, by_group in verdicts.items() if "inconclusive" in by_group.values()]:
        warn(
            f"The guide draws {unsure} given other sites, and whether they follow a relabelling of these could not be "
            "seen: their distribution did not change where only the others were relabelled. They stay in the table."
        )
    return Follows.of(symmetry, verdicts)


def _laid_out(
    symmetry: Symmetry,
    follows: Follows,
    base: Any,
    trace: Trace,
    supports: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Layout:
    """The layout with the most sites left out: group by group only where the guide then factorises.

    For a density that is only proposed from, a table must see all that a relabelling does to its sites.
    """
    whole = follows.entirely()
    # a site that follows units, and not the blocks that these are in, is on neither side
    if follows != whole and not moving_blocks(symmetry):
        layout = lay_out(symmetry, trace, supports, base, args, kwargs, follows)
        if layout.factorises:
            layout = requirements.verify_densities(base, trace, layout, args, kwargs)
        if layout.factorises:
            return layout
    layout = lay_out(symmetry, trace, supports, base, args, kwargs, whole)
    return requirements.verify_densities(base, trace, layout, args, kwargs) if symmetry.groups else layout


def _enough_features(
    base: Any, estimator: str | Estimator, trace: Trace, layout: Layout, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> int | None:
    """How many features the sequential bound needs where the guide starts; ``None``, for all, if sites are narrow."""
    parts = sequential_parts(estimator, layout.of_coordinates, layout.density)
    shapes = {site: value.shape for site, value in draw_of(base, trace, layout).items()}
    if widest_site(parts, shapes) <= FEWEST_FEATURES:
        return None

    @jax.jit
    def factors_and_draws(key: Array) -> tuple[Factors, dict[str, Array]]:
        key_moments, key_draws = jax.random.split(key)
        density = density_of(base, trace, layout, args, kwargs, key_moments)
        return density.proposal(), draws_of(key_draws, base, trace, layout, args, kwargs, _NUM_FEATURE_DRAWS)

    return enough_features(parts, *factors_and_draws(jax.random.key(0)))


def _refuse(
    symmetry: Symmetry,
    options: Options,
    trace: Trace,
    model: Callable,
    model_trace: Trace,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Refuse whatever stands in the way of averaging over a group that has elements."""
    requirements.refuse_absent_sites(symmetry, trace)
    requirements.refuse_several_draws(symmetry, trace, model_trace)
    requirements.refuse_subsampled_latents(symmetry, model_trace)
    if options.check and options.symmetry is not None:
        verdict = check_symmetry(model, symmetry, args, kwargs)
        if verdict.status == "inconclusive":
            warn(f"The symmetry could not be proved: {verdict.reason}")
        _refuse_where_parameters_start(symmetry, model, model_trace, args, kwargs)


def _refuse_where_parameters_start(
    symmetry: Symmetry, model: Callable, model_trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuse a symmetry that holds only where the model's own parameters start: training moves them away."""
    if not (fitted := [name for name, site in model_trace.items() if site["type"] == "param"]):
        return
    # with its state, as a network has both or makes both
    moved = {n: value for n, value in perturbed(jax.random.key(1), model_trace).items() if is_fitted(model_trace[n])}
    there = trace_model(model, args, kwargs, jax.random.key(2), moved)
    if not all(np.isfinite(log_prob_of(site)).all() for site in there.values() if site["type"] == "sample"):
        return  # a model may take no others, as where a scale has no constraint
    try:
        check_symmetry(handlers.substitute(model, data=moved), symmetry, args, kwargs, progress_bar=False)
    except SymmetryError as error:
        raise SymmetryError(
            f"The symmetry holds where the model's parameters {fitted} start, and not at others, so that training "
            "would break it. Give them a prior, so that they move with the units; or leave the groups out "
            f"(symmetry.restrict). {error}"
        ) from error


def _found(model: Callable, drawn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, signs: bool) -> Symmetry:
    """The model's symmetry on the sites that the guide draws."""
    found = find_symmetry(model, args, kwargs, signs=signs)
    moved = {name: sites for name, sites in sites_of_groups(found.axes).items() if name in found.groups}
    here = [name for name, sites in moved.items() if all(site in drawn for site in sites)]
    # of groups that move parameters alone there is nothing to say: no guide is concerned
    torn = {name: sites for name, sites in moved.items() if name not in here and any(s in drawn for s in sites)}
    absent = sorted({site for sites in torn.values() for site in sites if site not in drawn})
    if torn:
        stays = ", and the guide stays as it is. Give them a prior to have these symmetrized" if not here else ""
        warn(
            f"Groups {list(torn)} move {absent} along with latent sites. The guide does not draw these (parameters, or "
            f"sites that it leaves out), so that the groups are left out{stays}.\n{found.explain()}"
        )
    elif not here:
        alone = ", but for one of parameters alone" if found.groups else ""
        warn(f"No symmetry was found{alone}, so the guide stays as it is:\n{found.explain()}")
    return found.restrict(here)
