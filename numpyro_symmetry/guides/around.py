"""Handlers around a guide: the sites as it draws them, and handlers that would make them others.

Knows guides and traces of them; no symmetry, no densities.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.autoguide import AutoGuide
from numpyro.primitives import Messenger

from numpyro_symmetry.guides.density import latent_values
from numpyro_symmetry.guides.kinds import latents_of, parts_of
from numpyro_symmetry.models import Trace, is_observed, parameter_sites, trace_model
from numpyro_symmetry.models.compat import is_reparametrised
from numpyro_symmetry.models.fitted import refuse_misshapen
from numpyro_symmetry.symmetry import UnsupportedGuideError

_TO_THE_MODEL = "put the handler around the model"


class AsDrawn(Messenger):
    """Sites of a guide with the weights that they have before handlers around it see them.

    Refuses sites that are reparametrised around the guide, parameters that are drawn there, and parameters of another
    size that were handed on to an autoguide: within they would be errors that name neither, or a bound of nothing.
    """

    def __init__(self, guide: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._name = type(guide).__name__
        self._start = lambda: parameter_sites(trace_model(guide, args, kwargs, jax.random.key(0)))
        # a guide by hand may be written for values of any size
        self._has_sizes = all(isinstance(part, AutoGuide) for part in parts_of(guide))
        super().__init__()

    def __enter__(self) -> dict[str, dict[str, Any]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._sites: dict[str, dict[str, Any]] = {}
        self._trees: dict[str, Any] = {}
        super().__enter__()
        return self._sites

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """Say that a network was handed parameters of another size, where that is why it does not run."""
        super().__exit__(kind, error, traceback)
        if self._trees and isinstance(error, TypeError | ValueError):
            start = self._start()
            for name in self._trees.keys() & start.keys():
                refuse_misshapen(name, start[name]["value"], self._trees[name])

    def process_message(self, msg: Any) -> None:
        """Keep what a site is before handlers further out see it."""
        if msg["type"] == "sample" and is_reparametrised(msg, self):
            raise UnsupportedGuideError(
                f"Site {msg['name']!r} of the guide is replaced by a handler around the guide, reparam: {_TO_THE_MODEL}"
                f", {self._name}(handlers.reparam(model, config=config)), and train on that model."
            )
        if msg["type"] == "sample":
            self._sites[msg["name"]] = {"scale": msg["scale"]}
        # a handler further out may give it another name
        msg.setdefault("type_within", msg["type"])

    def postprocess_message(self, msg: Any) -> None:
        """Refuse a parameter that is drawn, or no array of the size it starts with."""
        if msg["type"] == "sample" and isinstance(msg["value"], str):
            raise UnsupportedGuideError(
                f"Site {msg['name']!r} of the guide is not drawn, but left to be summed out by a handler around it, "
                "collapse: train without it. TraceEnum_ELBO sums out discrete sites of a model."
            )
        if msg["type"] == "sample" and msg.get("type_within") == "param":
            raise UnsupportedGuideError(
                f"Parameter {msg['name']!r} of the guide is drawn by a handler around it, lift, so that the guide has "
                "no density of its own: train its parameters."
            )
        start = msg["args"][0] if msg["type"] == "param" and msg["args"] else None
        if start is None and msg["type"] == "param" and msg["value"] is not None:
            # a network reads its parameters, a tree of arrays, before it says how they start
            self._trees[msg["name"]] = msg["value"]
        if start is None or not self._has_sizes:
            return
        try:
            jax.tree.map(lambda ours, given: jnp.broadcast_shapes(np.shape(ours), np.shape(given)), start, msg["value"])
        except ValueError:
            refuse_misshapen(msg["name"], start, msg["value"])


def refuse_handlers_around(guide: object, trace: Trace, drawn: Collection[str], needed: Collection[str] = ()) -> None:
    """Refuse handlers around a guide that rename its sites, or hold some sites of a whole.

    Parameters
    ----------
    guide, trace
        The guide, and what handlers around it have made of its sites.
    drawn
        Names of its sites as they were before (`AsDrawn`).
    needed
        Sites that must not be held, besides those that are drawn together with others.
    """
    name = type(guide).__name__
    sampled = [site for site, message in trace.items() if message["type"] == "sample"]
    for site in drawn:
        if site not in sampled:
            called = [other for other in sampled if other not in drawn and other.endswith(site)]
            raise UnsupportedGuideError(
                f"Site {site!r} of the guide is called {''.join(map(repr, called[:1]))} by a handler around the guide, "
                f"such as scope: {_TO_THE_MODEL}, {name}(handlers.scope(model, prefix='a'))."
            )
    together = [site for latent, sites in latents_of(guide).items() if latent in trace for site in sites]
    if held := [site for site in (*together, *needed) if site in trace and is_observed(trace[site])]:
        raise UnsupportedGuideError(
            f"Sites {held} of the guide are held by a handler around it, such as condition, and what it draws with "
            f"them is another then: {_TO_THE_MODEL}, {name}(handlers.condition(model, data=values))."
        )


def refuse_partly_hidden(guide: object, trace: Trace, correction: Trace) -> None:
    """Refuse handlers around the guide that hide some of its sites, or its correction, from the ELBO and not all."""
    seen = {name: trace[name] for name in latent_values(trace)} | dict(correction)
    hidden = [name for name, site in seen.items() if site.get("stop")]
    if 0 < len(hidden) < len(seen):
        raise UnsupportedGuideError(
            f"Sites {hidden} of the guide are hidden by a handler around it, such as block, and the correction is of "
            f"all sites: {_TO_THE_MODEL}, and pass the whole model beside it, "
            f"AutoSymmetrized({type(guide).__name__}(handlers.block(model, hide=sites)), model=model)."
        )
