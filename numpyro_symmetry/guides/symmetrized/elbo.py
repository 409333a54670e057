"""The numbers of one draw of a guide under a model: its ELBO, its log weight, and the mutual information.

Knows a model, a guide and a function that estimates the mutual information of one draw; not how that is done.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.distributions.kl import kl_divergence
from numpyro.distributions.util import scale_and_mask

from numpyro_symmetry.guides.density import latent_values, log_density_of, log_prob_of, scaled_log_prob_of
from numpyro_symmetry.guides.origin import Origin
from numpyro_symmetry.guides.symmetrized.bounds import Particles
from numpyro_symmetry.models import (
    Trace,
    enumerated_log_density,
    is_latent,
    is_masked,
    latent_of,
    left_out,
    observed_of,
    subsampled_plates,
    weight_of,
    without_wrappers,
)
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import is_floating


class Target(NamedTuple):
    """A model and a guide, and what is known of them before a draw is made.

    Attributes
    ----------
    model, guide
        As for an ELBO.
    information
        ``(rng_key, guide trace, args, kwargs)`` to lower and upper estimate of one draw's mutual information,
        ``(2,)``, nats.
    model_trace
        A trace of the model.
    summed_out
        Discrete latent sites of the model that the guide does not draw.
    relabelled, weight_of_labels
        Sites that a relabelling moves, and the least weight of these.
    analytic
        Whether no latent depends on another under the guide: closed-form KL divergences may then replace log ratios.
    depends_on
        Numbers in the data on which the rest depends; empty if it depends on none.
    """

    model: Callable
    guide: Callable
    information: Callable[[Array, Any, tuple, dict[str, Any]], Array]
    model_trace: Trace
    summed_out: list[str]
    relabelled: list[str]
    weight_of_labels: float
    analytic: bool
    depends_on: tuple[Any, ...] = ()

    def __call__(
        self, rng_key: Array, params: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Particles:
        """Numbers of one draw; parameters constrained, as from ``SVI.get_params``."""
        key_guide, key_model, key_information = jax.random.split(rng_key, 3)
        guide_trace, model_trace = self._traces(key_guide, key_model, params, args, kwargs)
        if self.summed_out:
            elbo = log_weight = self._enumerated(key_model, guide_trace, params, args, kwargs)
        else:
            log_weight = log_density_of(model_trace) - log_density_of(guide_trace)
            elbo = _with_closed_forms(model_trace, guide_trace) if self.analytic else log_weight
        information = self.information(key_information, guide_trace, args, kwargs)
        information *= least_weight(guide_trace, self.relabelled)
        return Particles(elbo, log_weight, information, Origin.of(model_trace, args, kwargs))  # pyright: ignore

    @property
    def is_whole(self) -> bool:
        """Whether the model sees all data, and no minibatch, of plates or of a weight of latent sites."""
        trace = self.model_trace
        in_part = any(subsampled_plates(trace, name) for name, site in trace.items() if site["type"] == "sample")
        return not in_part and all(np.all(_beside_plates(trace, name) <= 1.0) for name in latent_of(trace))

    def refuse_infinite(
        self,
        particles: Particles,
        keys: Array,
        params: Mapping[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Refuse draws with no finite log joint, and say which site is to blame.

        Raises
        ------
        SymmetryError
            Naming it.
        """
        finite = np.isfinite(particles.elbo) & np.isfinite(particles.log_weight)
        finite &= np.isfinite(particles.information).all(1)
        if finite.all():
            return
        key_guide, key_model, _ = jax.random.split(keys[int(np.argmin(finite))], 3)
        with warnings.catch_warnings():  # NumPyro warns of what is about to be said
            warnings.simplefilter("ignore")
            guide_trace, model_trace = self._traces(key_guide, key_model, params, args, kwargs)
            blamed = [
                _blame(whose, name, site)
                for whose, trace in (("guide", guide_trace), ("model", model_trace))
                for name, site in trace.items()
                if site["type"] == "sample" and not np.isfinite(np.asarray(scaled_log_prob_of(site)))
            ]
        where = "; ".join(blamed) or "every site alone is finite there"
        raise SymmetryError(
            f"The log joint less the guide's log density is not finite at {int((~finite).sum())} of {len(finite)} "
            f"draws of the guide, so that there is no ELBO: {where}. Remove missing data or mask them "
            "(numpyro.handlers.mask), and keep the guide within the model's support."
        )

    def _traces(
        self,
        key_guide: Array,
        key_model: Array,
        params: Mapping[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[Trace, Trace]:
        """Traces of one draw of the guide, with weights, and of the model at that draw."""
        given = dict(params)
        with handlers.block():
            seeded = handlers.substitute(handlers.seed(self.guide, key_guide), data=given)
            guide_trace = handlers.trace(seeded).get_trace(*args, **kwargs)
            replayed = handlers.replay(handlers.seed(self.model, key_model), trace=guide_trace)  # pyright: ignore[reportArgumentType]
            model_trace = handlers.trace(handlers.substitute(replayed, data=given)).get_trace(*args, **kwargs)
        return weighed(guide_trace, model_trace), model_trace

    def _enumerated(
        self, key: Array, guide_trace: Trace, params: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Array:
        """Log joint with discrete sites summed out, less the guide's log density."""
        latents = latent_values(guide_trace)
        whole: dict[str, Any] = {n: v for n, v in latents.items() if not jnp.issubdtype(v.dtype, jnp.inexact)}
        # discrete sites that the guide draws are not to be summed out
        model = handlers.condition(self.model, data=whole) if whole else self.model
        # plates as the guide has drawn them: the model sees the same minibatch
        plates = {name: site["value"] for name, site in guide_trace.items() if site["type"] == "plate"}
        given = plates | dict(params) | {name: value for name, value in latents.items() if name not in whole}
        log_joint = enumerated_log_density(model, args, kwargs, given, self.model_trace, key)
        return log_joint - log_density_of(guide_trace)


def weighed(guide_trace: Trace, model_trace: Trace) -> Trace:
    """A guide's draw, every site weighed as its plates say, and by a handler that weighs data too.

    One that weighs a latent site in model and guide alike, and no less than what is observed, stands for rows that are
    not shown, or for a loss by row. Any other anneals a divergence, which is for training: a bound has all of it.
    """
    data = [_beside_plates(model_trace, name) for name in observed_of(model_trace)]
    most = jnp.stack([jnp.max(jnp.asarray(weight)) for weight in data]).max() if data else 1.0

    def weight(name: str) -> Any:
        ours, plates = _beside_plates(guide_trace, name), _of_plates(guide_trace, name)
        if isinstance(ours, float) and ours == 1.0:
            return plates if plates != 1.0 else None
        alike = (ours == _beside_plates(model_trace, name)) & (ours >= most) if name in model_trace else False
        return plates * jnp.where(alike, ours, 1.0)

    return {
        name: site | {"scale": weight(name)} if site["type"] == "sample" else site for name, site in guide_trace.items()
    }


def weights_of(*traces: Trace) -> tuple[Any, ...]:
    """Masks and weights of all sites, if latent ones have any: what may be bounded depends on these numbers."""
    sites = [site for trace in traces for site in trace.values() if site["type"] == "sample"]
    if not any(is_latent(site) and (is_masked(site) or site["scale"] is not None) for site in sites):
        return ()
    scales = ("" if site["scale"] is None else np.asarray(site["scale"]).tobytes() for site in sites)
    return tuple(zip((left_out(site).tobytes() for site in sites), scales, strict=True))


def least_weight(trace: Mapping[str, Any], sites: list[str]) -> Any:
    """The least weight of some sites: the weight of the information of elements that these sites tell apart."""
    if all(trace[name]["scale"] is None for name in sites):
        return 1.0  # a number, for which nothing is compiled
    return jnp.stack([jnp.min(jnp.asarray(weight_of(trace[name]))) for name in sites]).min()


def _of_plates(trace: Trace, name: str) -> float:
    """How many members of a site's subsampled plates each shown one stands for, the product of size / shown."""
    return math.prod(size / shown for shown, size in subsampled_plates(trace, name).values())


def _beside_plates(trace: Trace, name: str) -> Any:
    """The weight of a site by handlers, without that of its plates."""
    scale = trace[name]["scale"]
    return 1.0 if scale is None else scale / _of_plates(trace, name)


def _with_closed_forms(model_trace: Trace, guide_trace: Trace) -> Array:
    """Log joint less log density, with closed-form divergences in place of the log ratios that have one."""
    total = jnp.zeros(())
    done = set()
    for name, site in guide_trace.items():
        # for a point mass the log ratio below is the divergence
        if site["type"] != "sample" or name not in model_trace or isinstance(without_wrappers(site["fn"]), dist.Delta):
            continue
        try:
            divergence = kl_divergence(site["fn"], model_trace[name]["fn"])
        except NotImplementedError:
            # no closed form for this pair: the draw's own log densities below estimate it
            continue
        ours, theirs = site["scale"], model_trace[name]["scale"]
        total -= jnp.sum(scale_and_mask(divergence, ours))
        if theirs is not ours:
            # E[t log p - s log q] = -s KL(q, p) + (t - s) E[log p]
            more = weight_of(model_trace[name]) - weight_of(site)
            total += jnp.sum(more * log_prob_of(model_trace[name]))
        done.add(name)
    for sign, trace in ((1.0, model_trace), (-1.0, guide_trace)):
        for name, site in trace.items():
            if site["type"] == "sample" and name not in done:
                total += sign * scaled_log_prob_of(site)
    return total


def _blame(whose: str, name: str, site: Mapping[str, Any]) -> str:
    """One site with no finite log probability, in words."""
    value = np.asarray(site["value"])
    count = int(np.isnan(value).sum()) if is_floating(value.dtype) else 0
    if count:
        return f"{'observed ' if site['is_observed'] else ''}site {name!r} of the {whose} holds {count} NaN"
    return f"site {name!r} of the {whose} has log probability {float(scaled_log_prob_of(site)):g}"
