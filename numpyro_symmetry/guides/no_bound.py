"""What must have a density for a guide's ELBO to bound the evidence, or for its draws to estimate it.

Knows traces of guides and models; no symmetry, no estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_symmetry.guides.density import latent_values, log_prob_of, own_sites, unrecovered_sites
from numpyro_symmetry.models import Trace, latent_of, left_out, refuse_without_prior, unread_entries, without_wrappers
from numpyro_symmetry.symmetry import UnsupportedGuideError
from numpyro_symmetry.symmetry.arguments import is_floating
from numpyro_symmetry.symmetry.shown import counted


def refuse_bounds(guide: object) -> Any:
    """Refuse to bound the ELBO of a guide that is not symmetrized.

    Raises
    ------
    AttributeError
        With what to do instead.
    """
    raise AttributeError(
        f"{type(guide).__name__} has no elbo_bounds: AutoSymmetrized(guide).elbo_bounds(rng_key, params, *model_args) "
        "has, also where there is nothing to symmetrize."
    )


def spared_entries(
    guide: Any,
    model: Callable,
    moved: Collection[str],
    traces: tuple[Trace, Trace],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> dict[str, np.ndarray]:
    """Site -> its entries that guide and model both leave without a density, and on which nothing depends.

    The evidence is that of all other entries. Sites that a group moves have no spared entries.

    Parameters
    ----------
    guide, model
        The base guide, and the model.
    moved
        Sites on which a group acts.
    traces
        One of the guide, and one of the model.
    args, kwargs
        The model's arguments.

    Raises
    ------
    SymmetryError
        If the model leaves other entries without a prior, so that its evidence is infinite.
    UnsupportedGuideError
        If the guide draws what the model does not, a point mass, or other entries that a mask leaves without a
        density: its ELBO may well lie above the evidence.
    """
    trace, model_trace = traces
    skipped = {site: left_out(trace[site]) for site in own_sites(guide, trace) if site not in moved}
    spared = unread_entries(model, args, kwargs, model_trace, skipped)
    refuse_without_prior(model, args, kwargs, model_trace, spared)
    _refuse_no_density(guide, trace, model_trace, spared)
    return spared


def summed_out_sites(model_trace: Trace, drawn: Collection[str]) -> list[str]:
    """Discrete latent sites of the model that the guide leaves to be summed out.

    Raises
    ------
    UnsupportedGuideError
        If the guide leaves out a continuous site, which nothing else draws.
    """
    latent = latent_of(model_trace)
    absent = {name: site["fn"].support.is_discrete for name, site in latent.items() if name not in drawn}
    if undrawn := [name for name, is_discrete in absent.items() if not is_discrete]:
        raise UnsupportedGuideError(
            f"The guide does not draw the model's continuous sites {undrawn}, so that there is no ELBO; it draws "
            f"{sorted(drawn)}. Give it a model with all of them."
        )
    return list(absent)


def _refuse_no_density(guide: Any, trace: Trace, model_trace: Trace, spared: Mapping[str, np.ndarray]) -> None:
    """Refuse a guide that is no density of the model's latent sites, their spared entries left out.

    Raises
    ------
    UnsupportedGuideError
        If the guide draws what the model does not, a point mass, or entries that a mask leaves without a density.
    """
    own, latent = own_sites(guide, trace), latent_of(model_trace)
    if strange := [name for name in latent_values(trace) if name not in latent] + unrecovered_sites(guide, trace):
        raise UnsupportedGuideError(
            f"The guide draws {strange}, which are no latent sites of the model: their density would be counted as if "
            f"it were one of {sorted(latent)}. Marginalise them, or draw what the model draws."
        )
    for site, value in own.items():
        ours, theirs = (isinstance(without_wrappers(of[site]["fn"]), dist.Delta) for of in (trace, model_trace))
        # a point mass of the model's own is no density that is left out
        alike = theirs and not jnp.any(log_prob_of(trace[site]))
        if is_floating(jnp.result_type(value)) and ours and not alike:
            raise UnsupportedGuideError(
                f"Site {site!r} is a point mass (Delta) in the guide, so that what is bounded is the density of data "
                f"and {site!r} there, and no evidence. Use a distribution with a density, or make it a parameter of "
                "the model (numpyro.param), at whose value the evidence then is."
            )
        if (num_left_out := (left_out(trace[site]) & ~spared.get(site, np.False_)).sum()) > 0:
            raise UnsupportedGuideError(
                f"Site {site!r}: a mask leaves {num_left_out} of {counted(jnp.size(value), 'entry')} without a density "
                "in the guide, so that there is no ELBO. Mask data in the model alone; and in both only what no other "
                "site of the model depends on, such as steps that are padded."
            )
