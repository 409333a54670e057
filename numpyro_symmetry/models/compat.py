"""Private parts of NumPyro and JAX that this package reads, gathered so that one file follows them.

Everything here has a test of its own. Knows the hosts' insides; nothing of models and symmetries.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.extend.core import Literal
from numpyro import handlers, primitives
from numpyro.distributions import Distribution
from numpyro.infer import Predictive

from numpyro_symmetry.symmetry import SymmetryError, UnsupportedGuideError

_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_OF_DEBUGGING, _OF_AXES = ("DebugEffect", "OrderedDebugEffect"), "NamedAxisEffect"


# ---- JAX: programs ---------------------------------------------------------------------------------------------------


def bound(primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Results of an operation, a list whether it has one or several."""
    results = primitive.bind(*operands, **primitive.get_bind_params(params))
    return list(results) if primitive.multiple_results else [results]


def body_of(program: Any) -> Any:
    """A program without its constants, which it may bring or not."""
    return getattr(program, "jaxpr", program)


def consts_of(program: Any) -> Any:
    """The constants that a program brings."""
    return getattr(program, "consts", ())


def equations(jaxpr: Any) -> Iterator[Any]:
    """Equations of a program and of those within it."""
    for equation in jaxpr.eqns:
        yield equation
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else (parameter,):
                inner = body_of(inner)
                if hasattr(inner, "eqns"):
                    yield from equations(inner)


def called(equation: Any) -> Any:
    """The program that an operation merely calls, if it does."""
    inner = next((equation.params[key] for key in _CALLED if key in equation.params), None)
    if inner is None or equation.primitive.name in ("scan", "while", "cond"):
        return None
    body = body_of(inner)
    # an operation that runs a program on parts of its operands (a fold on entries, a kernel on blocks) is no call
    same = shapes_of(body.invars) == shapes_of(equation.invars) and shapes_of(body.outvars) == shapes_of(
        equation.outvars
    )
    return inner if same else None


def name_of(equation: Any) -> str:
    """The name of an operation; that of JAX's scatter, where it applies a function to what it finds, is another."""
    name = equation.primitive.name
    return "scatter-apply" if name == "scatter" and equation.params["update_jaxpr"] is not None else name


def interpreted(
    body: Any,
    given: Sequence[Any],
    of_number: Callable[[Any], Any],
    results_of: Callable[[Any, list[Any]], Sequence[Any]],
) -> list[Any]:
    """Interpret a program on whatever stands for its values; returns what stands for its results.

    Parameters
    ----------
    body
        The program, without its constants.
    given
        What stands for its constants, and after them for its arguments.
    of_number
        From a literal of the program to what stands for it.
    results_of
        From an operation, and what stands for its operands, to what stands for its results.
    """
    known = dict(zip([*body.constvars, *body.invars], given, strict=True))

    def read(atom: Any) -> Any:
        return of_number(atom) if isinstance(atom, Literal) else known[atom]

    for equation in body.eqns:
        known.update(zip(equation.outvars, results_of(equation, list(map(read, equation.invars))), strict=True))
    return list(map(read, body.outvars))


def inlined(
    body: Any,
    consts: Sequence[Any],
    args: Sequence[Any],
    of_constant: Callable[[Any, Any], Any],
    results_of: Callable[[Any, list[Any]], Sequence[Any]],
) -> list[Any]:
    """`interpreted`, with the operations of programs that are merely called in place of the calls.

    Parameters
    ----------
    body, consts
        The program, and the constants that it brings.
    args
        What stands for its arguments.
    of_constant
        From a constant or a literal, and its abstract value, to what stands for it.
    results_of
        As for `interpreted`.
    """

    def through_calls(equation: Any, operands: list[Any]) -> Sequence[Any]:
        inner = called(equation)
        # a map over shards names an axis of which nothing outside knows
        if inner is None or any(type(effect).__name__ == _OF_AXES for effect in body_of(inner).effects):
            return results_of(equation, operands)
        return inlined(body_of(inner), consts_of(inner), operands, of_constant, results_of)

    given = [of_constant(value, var.aval) for value, var in zip(consts, body.constvars, strict=True)]
    return interpreted(body, [*given, *args], lambda number: of_constant(number.val, number.aval), through_calls)


def over_shards(params: Mapping[str, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """A map over shards of another function than that of the map with these parameters."""
    # jax 0.12 says which axes this map binds, of those that are bound within it
    axis_names = params["newly_manual_axes" if "newly_manual_axes" in params else "manual_axes"]
    alike = {name: params[name] for name in ("mesh", "in_specs", "out_specs", "check_vma")}
    return jax.shard_map(function, axis_names=axis_names, **alike)


def acts(equation: Any) -> bool:
    """Whether an operation does more than give results, such as writing to a reference; to print is nothing."""
    return any(type(effect).__name__ not in _OF_DEBUGGING for effect in equation.effects)


def only_prints(equation: Any) -> bool:
    """Whether an operation does no more than show something: `jax.debug.print` or `jax.debug.callback`."""
    return not equation.outvars and bool(equation.effects) and not acts(equation)


def shapes_of(variables: Sequence[Any]) -> list[tuple[int, ...]]:
    """Shapes of a program's variables."""
    return [tuple(getattr(variable.aval, "shape", ())) for variable in variables]


def scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """Numbers of a scan's constants and of what it carries."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    # jax 0.12 keeps trees of (constants, carry, scanned) instead of their numbers
    consts, carry = params["ft_in"].unpack()[:2]
    return len(consts), len(carry)


def frames_of(equation: Any) -> list[tuple[str, int]]:
    """Files and lines that made an equation, innermost first."""
    traceback = getattr(equation.source_info, "traceback", None)
    return [(frame.file_name, frame.line_num) for frame in traceback.frames] if traceback is not None else []


# modules in which the functions that transformations return are made
_OF_TRANSFORMATIONS = ("jax._src.traceback_util", "jax._src.custom_derivatives")


def is_transformed(function: Any) -> bool:
    """Whether a function is what a transformation of JAX has made of another, such as `jax.checkpoint`."""
    # others only give a function a name, or a setting, and leave it as it is
    module = getattr(function, "__globals__", {}).get("__name__", type(function).__module__)
    return hasattr(function, "__wrapped__") and module in _OF_TRANSFORMATIONS


# ---- NumPyro: guides -------------------------------------------------------------------------------------------------


def flat_sites(guide: Any) -> list[str]:
    """Sites of an `AutoContinuous`, in the order in which its flat latent holds them.

    Raises
    ------
    UnsupportedGuideError
        If this version of NumPyro does not say.
    """
    return list(_private(guide, "_init_locs"))


def unpacking(guide: Any) -> Callable[[Any], dict[str, Any]]:
    """From the flat latent of an `AutoContinuous` to its sites.

    Raises
    ------
    UnsupportedGuideError
        If this version of NumPyro does not say.
    """
    return _private(guide, "_unpack_latent")


def _private(guide: Any, name: str) -> Any:
    """An attribute that NumPyro keeps to itself, or what to do where it is gone."""
    if not hasattr(guide, name):
        raise UnsupportedGuideError(
            f"{type(guide).__name__} has no {name} in this version of NumPyro, by which its sites were read. Fit a "
            "Gaussian to its draws instead, DiagonalGaussian.fit(draws), and report the version."
        )
    return getattr(guide, name)


# ---- NumPyro: MCMC ---------------------------------------------------------------------------------------------------


def states_of(mcmc: Any) -> tuple[Any, str]:
    """States that an `MCMC` keeps of its run, ``None`` before it, and the entry of these that holds the draws.

    Raises
    ------
    SymmetryError
        If this version of NumPyro keeps it otherwise.
    """
    try:
        return mcmc._states, mcmc._sample_field
    except AttributeError as error:
        raise SymmetryError(
            f"The MCMC object keeps its draws otherwise than is known of this version of NumPyro ({error}): pass "
            "mcmc.get_samples(group_by_chain=True), and model= with model_args=."
        ) from error


def with_states(mcmc: Any, states: Mapping[str, Any]) -> Any:
    """A copy of an `MCMC` that keeps these states."""
    moved = copy.copy(mcmc)
    moved._states, moved._states_flat = states, None
    return moved


def arguments_of(mcmc: Any) -> tuple[Any, Any] | None:
    """Arguments with which an `MCMC` was last run; ``None`` if this version of NumPyro does not say."""
    try:
        return mcmc._args, mcmc._kwargs
    except AttributeError:
        return None


def as_threefry(rng_key: Any) -> Any:
    """A key of which NumPyro's `Predictive` takes the numbers: it knows those of one generator alone."""
    if jax.random.key_data(rng_key).shape == (2,):
        return rng_key
    return jax.random.wrap_key_data(jax.random.bits(rng_key, (2,), "uint32"), impl="threefry2x32")


def predicted(predictive: Predictive, rng_key: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What NumPyro's `Predictive` gives for a key of any generator, whichever is in force."""
    with jax.default_prng_impl("threefry2x32"):
        return predictive(as_threefry(rng_key), *args, **kwargs)


def checks_values() -> bool:
    """Whether NumPyro checks distributions' parameters and values, as the session has it."""
    return Distribution._validate_args


def is_reparametrised(site: Any, inside: Any) -> bool:
    """Whether a `reparam` around a handler, ``inside``, puts other sites in the place of one."""
    stack = primitives._PYRO_STACK
    for handler in reversed(stack[: stack.index(inside)]):
        if isinstance(handler, handlers.block) and handler.hide_fn(site):
            return False
        if isinstance(handler, handlers.reparam) and (config := handler.config) is not None:
            if (config.get(site["name"]) if isinstance(config, dict) else config(site)) is not None:
                return True
    return False


def is_enumerated() -> bool:
    """Whether a model or guide is being run where NumPyro sums discrete sites out, as by `TraceEnum_ELBO`."""
    funsor = sys.modules.get("numpyro.contrib.funsor")  # imported by whatever enumerates, and not without need
    return funsor is not None and any(isinstance(handler, funsor.enum) for handler in primitives._PYRO_STACK)
