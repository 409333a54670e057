"""A model's trace: of a run, or of an outline that computes nothing. Knows NumPyro's handlers; no symmetry.

Sites with an improper prior have no draw; they get a value all the same.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from jax.core import Tracer
from jax.extend.core import get_opaque_trace_state
from numpyro import handlers
from numpyro.infer import init_to_uniform
from numpyro.primitives import Messenger

from numpyro_symmetry.models.arguments import (
    left_at_none,
    note_what_is_none,
    refuse_compiled,
    refuse_misfit,
    refuse_no_rows,
    refuse_no_sites,
)
from numpyro_symmetry.models.reach import dependencies
from numpyro_symmetry.models.sites import (
    Trace,
    drawn_shape,
    is_improper,
    latent_of,
    leaves_of_parameters,
    observed_of,
    settings_of,
)
from numpyro_symmetry.models.unconstrained import bijection_to
from numpyro_symmetry.symmetry import SymmetryError, warn
from numpyro_symmetry.symmetry.arguments import as_real_array
from numpyro_symmetry.symmetry.shown import counted

_VALUED = ("sample", "param", "mutable", "plate")


def trace_model(
    model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], rng_key: Array, data: dict[str, Any] | None = None
) -> dict[str, Any]:
    """`run_model` without NumPyro's checks of parameters: of traced ones they tell nothing, and compile a lot."""
    with numpyro.validation_enabled(False):
        return run_model(model, args, kwargs, rng_key, data)


def run_model(
    model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], rng_key: Array, data: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Trace of a model out of reach of surrounding handlers; sites with an improper prior get a value all the same."""
    refuse_compiled(model)
    with handlers.block(), handlers.trace() as trace, _OneProgram(), handlers.substitute(substitute_fn=_start_improper):
        with handlers.seed(rng_seed=rng_key), handlers.substitute(data=data or {}):
            try:
                model(*args, **kwargs)
            except TypeError as error:
                refuse_misfit(model, args, kwargs, error)
                note_what_is_none(model, args, kwargs, error)
                raise
            except AssertionError as error:
                refuse_no_rows(args, kwargs, error)
                raise
            except (AttributeError, ValueError) as error:
                note_what_is_none(model, args, kwargs, error)
                raise
    return dict(trace)


def warn_without_data(model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], trace: Trace) -> None:
    """Warn of a model that observes nothing since its data were left out: whatever it draws is latent then.

    Warns
    -----
    SymmetryWarning
        Naming the arguments, and the latent sites.
    """
    if not observed_of(trace) and (left := left_at_none(model, args, kwargs)):
        warn(
            f"The model observes nothing: it was called without {left}, which are None, and all of "
            f"{sorted(latent_of(trace))} are latent. For the symmetry of a posterior pass its data too, as the model "
            "takes them: model_args=(x, y)."
        )


class _OneProgram(Messenger):
    """Refuse sites within a function that JAX transforms: what is drawn there is of no use outside, and drawn once."""

    def __init__(self) -> None:
        self.program = get_opaque_trace_state()
        super().__init__()

    def process_message(self, msg: Any) -> None:
        """Raise a TypeError that names the site."""
        if msg["type"] == "sample" and get_opaque_trace_state() != self.program:
            raise TypeError(
                f"Site {msg['name']!r} of the model is sampled within a function that JAX transforms (jax.checkpoint, "
                "jax.jit, jax.vmap, a body of jax.lax.scan), which hides it from NumPyro: sample outside of that, and "
                "pass the value, transformed(value, x). Bodies that sample are for numpyro.contrib.control_flow.scan."
            )


@contextlib.contextmanager
def blaming_sites(
    guides: Iterable[Any], model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[None]:
    """Around guides that run their model out of our reach: name the site that was sampled where JAX transforms.

    Or the one to whose support NumPyro knows no way, or that a guide starts at values of another shape than the
    model draws, or whose data have no density; or the data that have no rows; or say that these are no arguments of
    the model.
    """
    try:
        yield
    except (jax.errors.UnexpectedTracerError, NotImplementedError):
        for name, site in latent_of(trace_model(model, args, kwargs, jax.random.key(0))).items():
            if not site["fn"].support.is_discrete:
                bijection_to(name, site["fn"].support)
        raise
    except (AssertionError, AttributeError, TypeError, ValueError):
        refuse_misfit(model, args, kwargs)
        for start in filter(None, (getattr(guide, "init_loc_fn", None) for guide in guides)):
            refuse_misshapen_starts(start, latent_of(trace_model(model, args, kwargs, jax.random.key(0))))
        raise
    except RuntimeError:  # no values are found to start from
        _refuse_unscored(trace_model(model, args, kwargs, jax.random.key(0)))
        raise
    for prototype in filter(None, (getattr(guide, "prototype_trace", None) for guide in guides)):
        _refuse_misshapen({name: site["value"] for name, site in latent_of(prototype).items()}, prototype)


def refuse_misshapen_starts(start: Callable, latent: Trace) -> None:
    """Refuse a strategy that starts a latent site at values of another shape than the model draws.

    Raises
    ------
    SymmetryError
        Naming the site.
    """
    # as NumPyro calls the strategy: with a site that has no value yet, but for those that a handler gave one
    drawn = {name: site for name, site in latent.items() if site["kwargs"]["rng_key"] is not None}
    given = {name: start({**site, "value": None}) for name, site in drawn.items()}
    _refuse_misshapen({name: x for name, x in given.items() if x is not None}, latent)


def _refuse_unscored(trace: Trace) -> None:
    """Refuse data of no density at a draw of the prior, but for minus infinity, which may be that draw's fault."""
    for name, site in observed_of(trace).items():
        fn, value = site["fn"], jnp.asarray(site["value"])
        with numpyro.validation_enabled(False):
            log_prob = np.asarray(fn.log_prob(value))
        with warnings.catch_warnings():
            # where NumPyro checks values, it warns of what is about to be said
            warnings.simplefilter("ignore", UserWarning)
            outside = ~np.asarray(fn.support(value)) & ~np.isfinite(np.asarray(fn.log_prob(value)))
        if outside.any() and not np.isnan(value).any():
            raise SymmetryError(
                f"Observed site {name!r} holds {outside.sum()} of {counted(outside.size, 'value')} outside of its "
                f"support, {fn.support}, where the model has no density. Leave them out, or mask them "
                "(numpyro.handlers.mask)."
            )
        if np.isnan(log_prob).any():
            raise SymmetryError(
                f"Observed site {name!r} has log probability nan at a draw of the prior, and NumPyro finds no "
                "values from which the guide could start: remove missing data, of the model's other arguments too, or "
                "mask them (numpyro.handlers.mask)."
            )


def _refuse_misshapen(values: Mapping[str, Any], sites: Trace) -> None:
    for name, value in values.items():
        expected, is_list = drawn_shape(sites[name]), isinstance(value, list | tuple)
        if np.shape(value) != expected or is_list:
            came = f"a {type(value).__name__}, which is no array" if is_list else f"values of shape {np.shape(value)}"
            raise SymmetryError(
                f"Site {name!r} starts at {came}; expected {expected}, as the model draws it. Correct "
                "its value in the strategy that says where sites start (init_to_value(values={...}))."
            )


def _start_improper(site: Any) -> Any:
    if site["type"] != "sample" or site["value"] is not None or not is_improper(site["fn"]):
        return None
    bijection_to(site["name"], site["fn"].support)
    return init_to_uniform(site)


def outline(model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], rng_key: Array) -> dict[str, Any]:
    """`trace_model` without computing anything: shapes in place of values, tracers inside the distributions.

    Raises
    ------
    SymmetryError
        If there are neither latent sites nor parameters.
    """
    trace: dict[str, Any] = {}

    def run() -> dict[str, Any]:
        trace.update(trace_model(model, args, kwargs, rng_key))
        _refuse_what_is_no_data(trace)
        return {name: site["value"] for name, site in trace.items() if site["type"] in _VALUED}

    try:
        with jax.check_tracer_leaks(False):  # the tracers are kept, to tell what is computed from what is known
            shapes = jax.eval_shape(run)
    except jax.errors.JAXTypeError:  # the model looks at values of its data, which an abstract run turns into tracers
        trace, shapes = trace_model(model, args, kwargs, rng_key), None
    if not latent_of(trace) and not leaves_of_parameters(trace):
        refuse_no_sites(model, args, kwargs)
    if shapes is not None:
        trace = {name: site | {"value": shapes.get(name), "known": site["value"]} for name, site in trace.items()}
    computed = _computed_from_latents(model, args, kwargs, rng_key, trace)
    return {name: site | {"is_computed": name in computed} for name, site in trace.items()}


def data_of(outline: Trace) -> Trace:
    """Observed sites whose values are data: others are computed from latent sites, as in ``obs=y - a``."""
    return {name: site for name, site in observed_of(outline).items() if not site["is_computed"]}


def _computed_from_latents(
    model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], rng_key: Array, trace: Trace
) -> set[str]:
    """Observed sites whose values depend on those of latent sites or parameters."""
    moving = {**latent_of(trace), **{name: site for name, site in trace.items() if site["type"] == "param"}}
    observed = observations(trace)

    def values(given: dict[str, Any], key: Array = rng_key) -> dict[str, Any]:
        return observations(trace_model(model, args, kwargs, key, given))

    if not any("known" in site for site in trace.values()):
        # nothing can be traced: another run, of the same plates, has other latent values
        other = {name: np.nan for name in observed} | values(settings_of(trace), jax.random.fold_in(rng_key, 1))
        return {name for name in observed if not np.array_equal(observed[name], other[name], equal_nan=True)}
    if not any(isinstance(site["known"], Tracer) for site in observed_of(trace).values()):
        return set()
    found = dependencies(values, {name: site["value"] for name, site in moving.items()})
    return {name for name, inputs in found.items() if inputs}


def known_of(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the settings and at the observed sites of a trace.

    Raises
    ------
    SymmetryError
        If observed values are no array.
    """
    _refuse_what_is_no_data(trace)
    return settings_of(trace) | observations(trace)


def _refuse_what_is_no_data(trace: Mapping[str, Any]) -> None:
    """Refuse observed values that JAX takes for no array: series, data frames, lists, text, complex numbers.

    Raises
    ------
    SymmetryError
        Naming the site.
    """
    for name, value in observations(trace).items():
        if not isinstance(value, jax.Array | np.ndarray | np.generic | int | float | complex):
            raise SymmetryError(
                f"Observed site {name!r} of the model holds a {type(value).__name__}; expected an array of real "
                "numbers. Pass the model arrays: frame['y'].to_numpy() of a data frame, np.asarray(...) of a list."
            )
        as_real_array(value, f"Observed site {name!r} of the model")


def observations(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the observed sites of a trace."""
    return {name: site["value"] for name, site in trace.items() if site.get("is_observed")}
