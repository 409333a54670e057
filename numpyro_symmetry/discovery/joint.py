"""A model's log joint as a function of its constrained latent values, site by site, in float64.

Plates, parameters and keys are frozen at one trace of the model, so that two evaluations differ by their values alone.
Knows NumPyro; no symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.distributions.util import scale_and_mask
from numpyro.infer import init_to_uniform

from numpyro_symmetry.discovery.enumeration import enumerated_log_density
from numpyro_symmetry.discovery.inputs import refuse_misfit, refuse_no_sites
from numpyro_symmetry.discovery.points import substitute_points
from numpyro_symmetry.discovery.widened import widened
from numpyro_symmetry.symmetry.arguments import as_real_array
from numpyro_symmetry.symmetry.errors import SymmetryError

# numbers in a program from which on, and how many, its behaviour is looked at
_NO_LIMIT, _MAX_LIMITS = 1e4, 6
_COMPARISONS = ("lt", "le", "gt", "ge", "max", "min", "clamp")
_VALUED = ("sample", "param", "mutable", "plate")
# programs that run a few times are compiled for that
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


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


def trace_model(
    model: Callable, args: tuple, kwargs: dict[str, Any], rng_key: Array, data: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Trace of a model out of reach of surrounding handlers; sites with an improper prior get a value all the same."""
    with handlers.block(), handlers.trace() as trace, handlers.substitute(substitute_fn=_start_improper):
        with handlers.seed(rng_seed=rng_key), handlers.substitute(data=data or {}):
            try:
                model(*args, **kwargs)
            except TypeError as error:
                refuse_misfit(model, args, kwargs, error)
                raise
    return dict(trace)


def _start_improper(site: Any) -> Any:
    if site["type"] != "sample" or site["value"] is not None:
        return None
    return init_to_uniform(site) if _is_improper(site["fn"]) else None


def _is_improper(fn: Any) -> bool:
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    return isinstance(fn, dist.ImproperUniform)


def outline(model: Callable, args: tuple, kwargs: dict[str, Any], rng_key: Array) -> dict[str, Any]:
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
        shapes = jax.eval_shape(run)
    except jax.errors.JAXTypeError:  # the model looks at values of its data, which an abstract run turns into tracers
        trace, shapes = trace_model(model, args, kwargs, rng_key), None
    if not latent_of(trace) and not leaves_of_parameters(trace):
        refuse_no_sites(model, args, kwargs)
    if shapes is None:
        return trace
    return {name: site | {"value": shapes.get(name), "known": site["value"]} for name, site in trace.items()}


def settings_values(model: Callable, args: tuple, kwargs: dict[str, Any], rng_key: Array) -> dict[str, Any]:
    """Values of `settings_of` a run of the model, whose density is not computed for them."""
    return _of_a_run(settings_of, model, args, kwargs, rng_key)


def observed_values(model: Callable, args: tuple, kwargs: dict[str, Any], rng_key: Array) -> dict[str, Any]:
    """Values at the observed sites of a model, for which no latent value is drawn."""

    def observed(trace: Mapping[str, Any]) -> dict[str, Any]:
        return {name: site["value"] for name, site in trace.items() if site.get("is_observed")}

    return _of_a_run(observed, model, args, kwargs, rng_key)


def _of_a_run(
    part: Callable[[Mapping[str, Any]], dict[str, Any]],
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    rng_key: Array,
) -> dict[str, Any]:
    """A part of a model's trace, compiled, so that nothing else is computed."""

    def run() -> dict[str, Any]:
        trace = trace_model(model, args, kwargs, rng_key)
        _refuse_what_is_no_data(trace)
        return part(trace)

    try:
        return jax.jit(run, compiler_options=QUICK)()
    except jax.errors.JAXTypeError:
        return run()


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


def latent_of(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Latent sites of a trace."""
    return {name: site for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]}


def observations(trace: Mapping[str, Any], key: str = "value") -> dict[str, Any]:
    """Values of the observed sites of a trace, or of an outline (``"known"``)."""
    return {name: site.get(key) for name, site in trace.items() if site.get("is_observed")}


def settings_of(trace: Mapping[str, Any]) -> dict[str, Any]:
    """What a model's run needs beside its latent values: parameters, mutable state, plates."""
    return {name: site["value"] for name, site in trace.items() if site["type"] in ("param", "mutable", "plate")}


def leaves_of_parameters(trace: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays that the parameters hold, under names such as ``"net$params.Dense_0.kernel"``."""
    found = {}
    for name, site in trace.items():
        if site["type"] == "param":
            for path, leaf in jax.tree_util.tree_leaves_with_path(site["value"]):
                if hasattr(leaf, "dtype") and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                    found[_leaf_name(name, path)] = leaf
    return found


def with_leaves(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with leaves of parameters replaced, and latent values beside them."""
    rest = dict(values)

    def replaced(name: str, tree: Any) -> Any:
        return jax.tree_util.tree_map_with_path(lambda path, leaf: rest.pop(_leaf_name(name, path), leaf), tree)

    return {name: replaced(name, tree) for name, tree in settings.items()} | rest


def _leaf_name(site: str, path: tuple) -> str:
    keys = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
    return ".".join([site, *keys])


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
        if site["type"] == "sample" and site["is_observed"] and not isinstance(site["fn"], dist.Unit) and not discrete
    ]
    proper = {name for name, site in latent.items() if not _is_improper(site["fn"])}
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


def is_unconstrained(support: Any) -> bool:
    """Whether a support is that of any real numbers."""
    while isinstance(support, dist.constraints.independent):
        support = support.base_constraint
    return support is dist.constraints.real


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
