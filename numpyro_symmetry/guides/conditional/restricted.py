"""Base guides of the sites that are left when others follow them. Knows NumPyro's autoguides and traces of models."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import jax
import numpyro.distributions as dist
from numpyro.infer import init_to_uniform
from numpyro.infer.autoguide import AutoGuide, AutoGuideList

from numpyro_symmetry.guides.conditional.unfit import refuse_base_guides
from numpyro_symmetry.models import drawn_shape, is_latent
from numpyro_symmetry.models.given_values import Without


def draw_nothing(*args: Any, **kwargs: Any) -> None:
    """The guide of no sites at all."""


def restricted(guide: Any, sites: tuple[str, ...]) -> Any:
    """An autoguide of the same kind that leaves some sites out; any other guide as it is."""
    if not isinstance(guide, AutoGuide) or isinstance(guide, AutoGuideList):
        return guide
    refuse_base_guides(guide)
    rest = copy.copy(guide)
    rest.model = Without(guide.model, sites)
    if rest.init_loc_fn is init_to_uniform:
        # different starts for all entries, as the units that they tell apart must differ
        rest.init_loc_fn = partial(_standard_normal)  # NumPyro calls what is no partial once without a site
    return rest


def _standard_normal(site: Any) -> Any:
    """Start at a standard normal draw of the unconstrained value."""
    if not is_latent(site) or site["value"] is not None or site["fn"].support.is_discrete:
        return init_to_uniform(site)
    transform = dist.transforms.biject_to(site["fn"].support)
    shape = transform.inverse_shape(drawn_shape(site))
    return transform(jax.random.normal(site["kwargs"]["rng_key"], shape))
