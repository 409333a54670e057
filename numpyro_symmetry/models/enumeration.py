"""Models with discrete latent sites, summed out by funsor where it is installed. Knows NumPyro; no symmetry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro import handlers
from numpyro.primitives import Messenger

from numpyro_symmetry.models.sites import discrete_of
from numpyro_symmetry.models.trace import trace_model
from numpyro_symmetry.symmetry import SymmetryError


def enumerated_log_density(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    values: dict[str, Any],
    trace: Mapping[str, Any],
    rng_key: Array,
) -> Array:
    """Log joint of a model at given values, its discrete latent sites summed out.

    Raises
    ------
    SymmetryError
        If funsor is not installed.
    """
    refuse_without_funsor(discrete_of(trace))
    return enumerated(model, args, kwargs, values, num_plates_of(trace), rng_key)


def refuse_without_funsor(discrete: list[str]) -> None:
    """Refuse discrete latent sites where nothing could sum them out.

    Raises
    ------
    SymmetryError
        If there are any, and funsor is not installed.
    """
    if discrete and find_spec("funsor") is None:
        raise SymmetryError(
            f"The model draws discrete latent sites {discrete}. Install funsor to have them summed out (pip "
            "install funsor), or sum them out in the model (dist.MixtureSameFamily, a forward algorithm)."
        )


def scanned_sites(model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], rng_key: Array) -> list[str]:
    """Sites that a model draws in a `scan` of NumPyro's whose steps may depend on earlier ones."""
    watched = _Scanned(model)
    trace_model(watched, args, kwargs, rng_key)
    # handlers around a scan, such as scope, rename its sites after it is over
    return [site["name"] for site in watched.sites]


class _Scanned(Messenger):
    """Collects the sites that `scan` draws, which a trace holds like all others."""

    def __init__(self, model: Callable) -> None:
        self.sites: list[Any] = []
        super().__init__(model)

    def postprocess_message(self, msg: Any) -> None:
        """Take what was drawn."""
        if msg["type"] == "control_flow" and msg["kwargs"].get("history", 0) > 0:
            _, (drawn, _) = msg["value"]
            self.sites += drawn.trace.values()


class _RightlySummed(Messenger):
    """Refuse models that NumPyro 0.22, enumerating, sums out as if they were others, without a word.

    It tells dimensions by their names. Of a scan, those of a site at an earlier step bear ``_PREV_`` in front, once for
    each step, and the one furthest left is time, ``_time_`` in front.
    """

    def postprocess_message(self, msg: Any) -> None:
        """Look at what takes the name of time, and at what steps after the first depend on."""
        if msg["type"] == "sample":
            is_summed = msg["infer"].get("enumerate") == "parallel" and not msg["is_observed"]
            if is_summed and msg["name"].startswith("_time") and "_scan_current_index" not in msg["infer"]:
                raise NotImplementedError(f"it takes {msg['name']!r} for the time of a scan: call that site otherwise")
            named = msg["infer"].get("dim_to_name") or {}
            if is_summed and "_scan_current_index" in msg["infer"] and msg["name"] not in named.values():
                renamed = msg["name"].replace("_PREV_", "")
                raise NotImplementedError(
                    f"a handler around a scan, such as scope, renames what it draws to {renamed!r}: give the site "
                    "that name where it is drawn, and leave the handler out"
                )
        if msg["type"] == "control_flow" and msg["kwargs"].get("enum"):
            _, (drawn, _) = msg["value"]
            _, _, _, _, is_reversed = msg["args"]
            _refuse_wrong_steps(drawn.trace, msg["kwargs"]["history"], is_reversed)


def _refuse_wrong_steps(trace: Mapping[str, Any], history: int, is_reversed: bool) -> None:
    sites = [site for site in trace.values() if site["type"] == "sample"]
    named = [site["infer"].get("dim_to_name") or {} for site in sites]
    dimensions = {name for names in named for dim, name in names.items() if dim != min(names)}
    earlier = {"_PREV_" * steps + name for name in trace for steps in range(1, history + 1)}
    plates = {frame.name for site in sites for frame in site["cond_indep_stack"]}
    if is_reversed and not dimensions.isdisjoint(earlier):
        raise NotImplementedError(
            f"it takes the steps of {list(trace)}, scanned in reverse, in the wrong order: flip the data, and scan "
            "forward"
        )
    if outside := sorted(dimensions - {*trace, *plates} - earlier):
        raise NotImplementedError(
            f"steps of {list(trace)}, scanned, depend on {outside}, drawn outside of scan, and it sums these out step "
            "by step"
        )


def num_plates_of(trace: Mapping[str, Any]) -> int:
    """How many dimensions a model's plates take."""
    plates = [frame.dim for site in trace.values() if site["type"] == "sample" for frame in site["cond_indep_stack"]]
    return max((-dim for dim in plates), default=0)


def enumerated(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    values: dict[str, Any],
    num_plates: int,
    rng_key: Array,
) -> Array:
    """`enumerated_log_density` of a model whose plates take ``num_plates`` dimensions, where funsor is installed.

    Raises
    ------
    SymmetryError
        If NumPyro cannot sum out a model that runs otherwise.
    """
    # imported here: NumPyro switches its primitives when it meets funsor
    from numpyro.contrib.funsor import config_enumerate, enum
    from numpyro.contrib.funsor.infer_util import log_density

    with handlers.block():
        marked = _RightlySummed(config_enumerate(handlers.seed(model, rng_key)))
        summed_out = enum(marked, first_available_dim=-num_plates - 1)
        try:
            return jnp.asarray(log_density(summed_out, args, kwargs, values)[0])
        except jax.errors.JaxRuntimeError:  # a device that is out of memory, or lost, says so itself
            raise
        except (TypeError, ValueError, AssertionError, RuntimeError, KeyError, IndexError) as error:
            raise SymmetryError(
                f"NumPyro cannot sum out the discrete latent sites of this model ({type(error).__name__}: {error}). "
                "Sum them out in the model (dist.MixtureSameFamily, a forward algorithm). Draws that hold them are "
                "relabelled without the model: rebase(mcmc.get_samples(group_by_chain=True), symmetry, "
                "labels={'z': 'group'})."
            ) from error
