"""What one draw of a guide is worth under a model: its ELBO, its weight, and the mutual information.

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
from numpyro import handlers
from numpyro.distributions.kl import kl_divergence
from numpyro.distributions.util import scale_and_mask

from numpyro_symmetry.guides.bounds import Particles
from numpyro_symmetry.guides.density import latent_values, log_prob_of
from numpyro_symmetry.guides.origin import Origin
from numpyro_symmetry.guides.requirements import subsampled_plates
from numpyro_symmetry.models import Trace, enumerated_log_density
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
    analytic
        Whether no latent depends on another under the guide: closed-form KL divergences may then replace log ratios.
    """

    model: Callable
    guide: Callable
    information: Callable[[Array, Any, tuple, dict[str, Any]], Array]
    model_trace: Trace
    summed_out: list[str]
    analytic: bool

    def __call__(
        self, rng_key: Array, params: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Particles:
        """Numbers of one draw; parameters constrained, as from ``SVI.get_params``."""
        key_guide, key_model, key_information = jax.random.split(rng_key, 3)
        guide_trace = self._guide_trace(key_guide, params, args, kwargs)
        model_trace = self._model_trace(key_model, guide_trace, params, args, kwargs)
        if self.summed_out:
            elbo = log_weight = self._enumerated(key_model, guide_trace, params, args, kwargs)
        else:
            log_weight = _log_density(model_trace) - _log_density(guide_trace)
            elbo = _with_closed_forms(model_trace, guide_trace) if self.analytic else log_weight
        information = self.information(key_information, guide_trace, args, kwargs)
        return Particles(elbo, log_weight, information, Origin.of(model_trace, args, kwargs))  # pyright: ignore

    @property
    def is_whole(self) -> bool:
        """Whether the model sees all data, and no minibatch."""
        trace = self.model_trace
        return not any(subsampled_plates(trace, name) for name, site in trace.items() if site["type"] == "sample")

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
            guide_trace = self._guide_trace(key_guide, params, args, kwargs)
            model_trace = self._model_trace(key_model, guide_trace, params, args, kwargs)
            blamed = [
                _blame(whose, name, site)
                for whose, trace in (("guide", guide_trace), ("model", model_trace))
                for name, site in trace.items()
                if site["type"] == "sample" and not np.isfinite(np.asarray(_log_prob(site)))
            ]
        where = "; ".join(blamed) or "every site alone is finite there"
        raise SymmetryError(
            f"The log joint less the guide's log density is not finite at {int((~finite).sum())} of {len(finite)} "
            f"draws of the guide, so that there is no ELBO: {where}. Remove missing data or mask them "
            "(numpyro.handlers.mask), and keep the guide within the model's support."
        )

    def _guide_trace(
        self, key: Array, params: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Trace:
        """A draw, scaled as its plates say alone: what else scales a guide (an annealed KL) is for training."""
        seeded = handlers.substitute(handlers.seed(self.guide, key), data=dict(params))
        with handlers.block():
            trace = handlers.trace(seeded).get_trace(*args, **kwargs)
        return {
            name: site | {"scale": _scale_of_plates(trace, name)} if site["type"] == "sample" else site
            for name, site in trace.items()
        }

    def _model_trace(
        self, key: Array, guide_trace: Trace, params: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Trace:
        replayed = handlers.replay(handlers.seed(self.model, key), trace=guide_trace)  # pyright: ignore[reportArgumentType]
        with handlers.block():
            return handlers.trace(handlers.substitute(replayed, data=dict(params))).get_trace(*args, **kwargs)

    def _enumerated(
        self, key: Array, guide_trace: Trace, params: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Array:
        """Log joint with discrete sites summed out, less the guide's log density."""
        latents = latent_values(guide_trace)
        whole: dict[str, Any] = {n: v for n, v in latents.items() if not jnp.issubdtype(v.dtype, jnp.inexact)}
        # what the guide draws is not to be summed out
        model = handlers.condition(self.model, data=whole) if whole else self.model
        # plates as the guide has drawn them: the model sees the same minibatch
        plates = {name: site["value"] for name, site in guide_trace.items() if site["type"] == "plate"}
        given = plates | dict(params) | {name: value for name, value in latents.items() if name not in whole}
        log_joint = enumerated_log_density(model, args, kwargs, given, self.model_trace, key)
        return log_joint - _log_density(guide_trace)


def _scale_of_plates(trace: Trace, name: str) -> float | None:
    """How many members of its subsampled plates each that is shown of a site stands for."""
    plates = subsampled_plates(trace, name).values()
    return math.prod(size / shown for shown, size in plates) if plates else None


def _log_prob(site: Any) -> Array:
    return jnp.sum(scale_and_mask(log_prob_of(site), site["scale"]))


def _log_density(trace: Trace) -> Array:
    return sum((_log_prob(site) for site in trace.values() if site["type"] == "sample"), jnp.zeros(()))


def _with_closed_forms(model_trace: Trace, guide_trace: Trace) -> Array:
    """Log joint less log density, with closed-form divergences in place of the log ratios that have one."""
    total = jnp.zeros(())
    done = set()
    for name, site in guide_trace.items():
        if site["type"] != "sample" or name not in model_trace:
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
            more = (1.0 if theirs is None else theirs) - (1.0 if ours is None else ours)
            total += jnp.sum(more * log_prob_of(model_trace[name]))
        done.add(name)
    for sign, trace in ((1.0, model_trace), (-1.0, guide_trace)):
        for name, site in trace.items():
            if site["type"] == "sample" and name not in done:
                total += sign * _log_prob(site)
    return total


def _blame(whose: str, name: str, site: Mapping[str, Any]) -> str:
    """One site with no finite log probability, in words."""
    value = np.asarray(site["value"])
    count = int(np.isnan(value).sum()) if is_floating(value.dtype) else 0
    if count:
        return f"{'observed ' if site['is_observed'] else ''}site {name!r} of the {whose} holds {count} NaN"
    return f"site {name!r} of the {whose} has log probability {float(_log_prob(site)):g}"
