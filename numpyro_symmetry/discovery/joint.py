"""A model's log joint as a function of its constrained latent values, site by site, in float64.

Plates, parameters and keys are frozen at one trace of the model, so that two evaluations differ by their values alone.
Knows NumPyro; no symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.distributions.util import scale_and_mask

from numpyro_symmetry.models.enumeration import enumerated_log_density
from numpyro_symmetry.models.parameters import leaves_of_parameters, with_leaves
from numpyro_symmetry.models.placing import substitute_points
from numpyro_symmetry.models.sites import is_improper, is_observed, is_unconstrained, latent_of, settings_of
from numpyro_symmetry.models.trace import QUICK, outline, settings_values, trace_model
from numpyro_symmetry.models.widened import widened

# numbers in a program from which on, and how many, its behaviour is looked at
_NO_LIMIT, _MAX_LIMITS = 1e4, 6
_COMPARISONS = ("lt", "le", "gt", "ge", "max", "min", "clamp")


class FrozenModel(NamedTuple):
    """A model with everything but its latent values held fixed.

    Attributes
    ----------
    log_probs
        Latent values -> site -> scaled log probability, an array per datum for observed sites. Compiled.
    inside
        Latent values -> constrained site -> whether the value lies in its support, given the others. Compiled.
    place
        Site -> noise ``(size,)`` -> latent values, about the centre of the prior, and as far from it as the noise
        says in units of its spread. Compiled.
    sizes
        Latent site -> number of its values.
    constrained
        Latent sites that cannot hold every real number.
    matrices
        Constrained sites whose values are matrices.
    limits
        Numbers that stand in the program, where it may change its ways; the largest of them.
    data_sites
        Observed sites that hold data: every one but factors.
    exact
        Whether the arithmetic is float64 throughout.
    rounding
        How much of a log probability may be rounding.
    unread
        Latent sites that nothing but their own prior reads, a proper one.
    """

    log_probs: Callable[[dict[str, Array]], dict[str, Array]]
    inside: Callable[[dict[str, Array]], dict[str, Array]]
    place: Callable[[dict[str, Any]], dict[str, Array]]
    sizes: dict[str, int]
    constrained: set[str]
    matrices: set[str]
    limits: list[float]
    data_sites: list[str]
    exact: bool
    rounding: float
    unread: set[str]


class NotWidenedError(Exception):
    """A program that cannot be traced in single precision and computed in double."""


def traced_in(single: bool) -> AbstractContextManager:
    """In single precision, or in that of the context."""
    return jax.enable_x64(False) if single else nullcontext()


def freeze(
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    rng_key: Array,
    acted_on: Container[str] = (),
    *,
    single: bool = False,
) -> FrozenModel:
    """Trace a model once and hold its plates, parameters and keys.

    Discrete latent sites are summed out, unless the symmetry acts on them; parameters the symmetry acts on are moved as
    latent sites are. A model that JAX can trace in single precision only is computed in double all the same.

    Raises
    ------
    SymmetryError
        If the model has discrete latent sites the symmetry does not act on, and funsor is not installed.
    NotWidenedError
        If what was traced in single precision cannot be computed in double.
    """
    with traced_in(single):
        trace = outline(model, args, kwargs, rng_key)
        latent = latent_of(trace)
        settings = settings_values(model, args, kwargs, rng_key) if settings_of(trace) else {}
    parameters = {name: trace[name] | {"value": value} for name, value in settings.items()}
    leaves = {name: jnp.asarray(value) for name, value in leaves_of_parameters(parameters).items() if name in acted_on}
    discrete = [name for name, s in latent.items() if s["fn"].support.is_discrete and name not in acted_on]
    latent = {name: site for name, site in latent.items() if name not in discrete}

    def place(noise: dict[str, Array]) -> dict[str, Array]:
        # the seed stands inside, so that whatever draws a value finds a key at its site
        with handlers.block(), handlers.trace() as drawn, handlers.substitute(data=settings):
            with handlers.substitute(substitute_fn=substitute_points(noise)), handlers.seed(rng_seed=rng_key):
                model(*args, **kwargs)
        # parameters have no prior: noise, for what they start from may be more symmetric than the model
        moved = {name: leaf + noise[name].reshape(leaf.shape) for name, leaf in leaves.items()}
        return {name: jnp.asarray(drawn[name]["value"]) for name in latent} | moved

    def run(values: dict[str, Array]) -> dict[str, Any]:
        return trace_model(model, args, kwargs, rng_key, with_leaves(settings, values))

    def log_probs(values: dict[str, Array]) -> dict[str, Array]:
        if discrete:
            given = with_leaves(settings, values)
            return {"log joint": enumerated_log_density(model, args, kwargs, given, trace, rng_key)}
        return {
            name: scale_and_mask(site["fn"].log_prob(site["value"]), site["scale"])
            for name, site in run(values).items()
            if site["type"] == "sample"
        }

    def inside(values: dict[str, Array]) -> dict[str, Array]:
        result = run(values)
        return {name: jnp.all(result[name]["fn"].support(values[name])) for name in constrained}

    constrained = {name for name, site in latent.items() if not is_unconstrained(site["fn"].support)}
    sizes = {name: int(np.prod(np.shape(site["value"]))) for name, site in latent.items()}
    sizes |= {name: leaf.size for name, leaf in leaves.items()}
    noise = {name: np.zeros(size) for name, size in sizes.items()}
    values = {name: site["value"] for name, site in latent.items()} | leaves
    if single:
        place = _widened(place, noise)
        values = jax.eval_shape(place, noise)
        log_probs, inside = _widened(log_probs, values), _widened(inside, values)
    compiled = jax.jit(log_probs, compiler_options=QUICK)
    traced = compiled.trace(values)
    data_sites = [
        name
        for name, site in trace.items()
        if is_observed(site) and not isinstance(site["fn"], dist.Unit) and not discrete
    ]
    proper = {name for name, site in latent.items() if not is_improper(site["fn"])}
    exact = bool(jax.config.jax_enable_x64) and not _rounds(traced.jaxpr)  # pyright: ignore
    return FrozenModel(
        log_probs=compiled,
        inside=jax.jit(inside, compiler_options=QUICK) if constrained else lambda values: {},
        place=jax.jit(place, compiler_options=QUICK),
        sizes=sizes,
        constrained=constrained,
        limits=_limits(traced.jaxpr),  # pyright: ignore
        matrices={name for name in constrained if latent[name]["fn"].support.event_dim == 2},
        data_sites=data_sites,
        exact=exact,
        rounding=1e-9 if exact else 1e-4,
        unread=_unread(traced.jaxpr, sorted(values), sorted(traced.out_info)) & proper,  # pyright: ignore
    )


def _unread(closed: Any, given: list[str], scored: list[str]) -> set[str]:
    """Values on which no log probability depends but that of their own name: by the program, not by its numbers."""
    reads: dict[Any, frozenset[str]] = {v: frozenset({n}) for n, v in zip(given, closed.jaxpr.invars, strict=True)}

    def read_by(variables: Any) -> frozenset[str]:
        return frozenset().union(*(reads.get(v, frozenset()) for v in variables if not hasattr(v, "val")))

    for equation in closed.jaxpr.eqns:
        reads |= dict.fromkeys(equation.outvars, read_by(equation.invars))
    read = {name: read_by([var]) for name, var in zip(scored, closed.jaxpr.outvars, strict=True)}
    return {name for name in given if all(name not in sites for other, sites in read.items() if other != name)}


def _widened(function: Callable, example: Any) -> Callable:
    """A function of a model in double precision, seen to be one that can be compiled."""
    try:
        wide = widened(function, example)
        jax.jit(wide).lower(example)
    except Exception as error:  # whatever an operation says of numbers it was not traced for, or the model of itself
        raise NotWidenedError(str(error)) from error
    return wide


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Equations of a program and of those within it."""
    for equation in jaxpr.eqns:
        yield equation
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else (parameter,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner)


def _rounds(jaxpr: Any) -> bool:
    """Whether a program casts float64 to less anywhere: then its last digits are noise."""
    for equation in _equations(jaxpr):
        if equation.primitive.name == "convert_element_type":
            old, new = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
            if old == np.float64 and jnp.issubdtype(new, jnp.floating) and new != np.float64:
                return True
    return False


def _limits(jaxpr: Any) -> list[float]:
    """Numbers in a program, those of comparisons first and then the largest, that are no mere bounds of arithmetic."""
    ranked = {}
    for equation in _equations(jaxpr):
        for var in equation.invars:
            value = getattr(var, "val", None)
            if value is not None and np.ndim(value) == 0 and np.isrealobj(value):
                size = abs(float(value))
                ranked[size] = ranked.get(size, False) or equation.primitive.name in _COMPARISONS
    sizes = sorted((size for size in ranked if 1.0 < size < _NO_LIMIT), key=lambda size: (ranked[size], size))
    return sizes[::-1][:_MAX_LIMITS]
