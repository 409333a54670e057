"""Functions as programs: traced in a precision of their own, compiled once, and kept for the next call.

What is kept is keyed by the program itself, with its constants as arguments: never by the function it was traced from,
nor by the arrays that the function closes over. No program in double precision outlives the call that traced it, for
JAX knows constants by the arrays they are, and would find them again when the user traces in single precision. Knows
programs; no models.
"""

from __future__ import annotations

import functools
import hashlib
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from numpyro_symmetry.models import rewritten
from numpyro_symmetry.models.compat import acts, body_of, called, consts_of, equations, only_prints
from numpyro_symmetry.models.widened import evaluated, narrow_type, wide_type

# compiled programs, the latest last: they hold memory maps, of which a process has some ten thousands
_KEPT: OrderedDict[tuple, Callable] = OrderedDict()
_MAX_KEPT = 64
# compiler options for programs that run only a few times
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# multiplications in one operation from which on it is worth optimizing: convolutions are 15 times slower otherwise
_LARGE_PRODUCT = 1e6
# rules of derivatives, which are never asked for
_UNASKED = {"jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd", "out_trees", "fun", "policy"}
# types whose values are the same only if they are the same object
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


class FloatPrecision(NamedTuple):
    """The precision in which a function is traced, and that in which it is evaluated: double or single each."""

    traced_in_double: bool
    evaluated_in_double: bool

    @property
    def widens(self) -> bool:
        """Whether what was traced in single precision is evaluated in double."""
        return self.evaluated_in_double and not self.traced_in_double

    def tracing(self) -> AbstractContextManager[Any]:
        """A context in which functions are traced in this precision."""
        return _context(double=self.traced_in_double)

    def evaluating(self) -> AbstractContextManager[Any]:
        """A context in which programs are compiled and run in this precision, also where nothing else is compiled."""
        stack = _context(double=self.evaluated_in_double)
        stack.enter_context(_compiling())
        return stack


DOUBLE = FloatPrecision(traced_in_double=True, evaluated_in_double=True)
WIDENED = FloatPrecision(traced_in_double=False, evaluated_in_double=True)


def session_precision() -> FloatPrecision:
    """The precision of the session."""
    double = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
    return FloatPrecision(double, double)


def _context(*, double: bool) -> ExitStack:
    stack = ExitStack()
    # another context than the session's has whatever runs in it compiled anew
    if double != session_precision().traced_in_double:
        stack.enter_context(jax.enable_x64(double))
        # a network that updates its own state in single precision: JAX says that it is going to refuse this
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("error", "scatter inputs have incompatible types", FutureWarning)
    if double:
        stack.enter_context(jax.default_matmul_precision("highest"))
    return stack


@contextmanager
def _compiling() -> Iterator[None]:
    """A context in which what is compiled ahead of its calls may be, and may be infinite, while JAX is debugged too."""
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        yield


class Program(NamedTuple):
    """A function, traced.

    Attributes
    ----------
    closed
        Its jaxpr, with constants.
    precision
        That of its evaluation.
    inputs, outputs
        Pytrees of what it takes and gives: shapes and types.
    """

    closed: Any
    precision: FloatPrecision
    inputs: tuple[Any, ...]
    outputs: Any

    @property
    def body(self) -> Any:
        """The jaxpr without constants."""
        return body_of(self.closed)


def traced(function: Callable, *examples: Any, precision: FloatPrecision) -> Program:
    """A function traced for arguments like some examples, arrays or their shapes."""
    with precision.tracing():
        given = jax.tree.map(_shape_of, examples)
        if precision.widens:
            given = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, narrow_type(x.dtype)), given)
        closed, outputs = jax.make_jaxpr(function, return_shape=True)(*given)
    if precision.widens:
        given, outputs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, wide_type(x.dtype)), (given, outputs))
    return Program(closed, precision, given, outputs)


def compiled(program: Program) -> Callable:
    """A program, compiled: from arrays to arrays of NumPy."""
    given, structure = jax.tree.leaves(program.inputs), jax.tree.structure(program.outputs)
    consts, precision = _constants(program), program.precision
    run = _executable(program, ("once",), lambda *flat: _evaluated(program, *flat), (consts, given))

    def call(*args: Any) -> Any:
        with precision.evaluating():
            results = run(consts, list(map(_as, jax.tree.leaves(args), given)))
            return jax.tree.unflatten(structure, map(_out, results))

    return call


def in_double(function: Callable, *examples: Any) -> Callable:
    """A function compiled for evaluation in double precision, on arguments like some examples.

    It is traced in the session's precision: the model may run in no other, and JAX may have cached arrays that the
    function closes over in that one.
    """
    return compiled(traced(function, *examples, precision=FloatPrecision(session_precision().traced_in_double, True)))


def compiled_for_many(program: Program, count: int) -> Callable:
    """A program of values, and of arguments that are the same for all of them, compiled for many values.

    These have one more axis in front, as have the results; a call of the program takes ``count``, one after another.
    """
    (each, *same) = list(program.inputs)
    given, rest, results = jax.tree.leaves(each), jax.tree.leaves(same), jax.tree.leaves(program.outputs)
    structure, consts, precision = jax.tree.structure(program.outputs), _constants(program), program.precision
    # values that nothing reads are not copied, so many times, to where programs run
    read = [k for k, is_read in enumerate(arguments_read(program.body)[: len(given)]) if is_read]

    def loop(consts: list[Any], number: Any, stacked: list[Any], rest: list[Any]) -> list[Any]:
        def step(k: Any, found: list[Any]) -> list[Any]:
            own = dict(zip(read, (x[k] for x in stacked), strict=True))
            each = [own[j] if j in own else jnp.zeros(x.shape, x.dtype) for j, x in enumerate(given)]
            one = _evaluated(program, consts, [*each, *rest])
            return [x.at[k].set(value) for x, value in zip(found, one, strict=True)]

        return jax.lax.fori_loop(0, number, step, [jnp.zeros((count, *x.shape), x.dtype) for x in results])

    shapes = [jax.ShapeDtypeStruct((count, *given[k].shape), given[k].dtype) for k in read]
    number = jax.ShapeDtypeStruct((), np.int32)
    run = _executable(program, ("many", count), loop, (consts, number, shapes, rest))

    def call(values: Any, *same: Any) -> Any:
        leaves, shared = jax.tree.leaves(values), list(map(_as, jax.tree.leaves(same), rest))
        stacked, parts, num_values = [leaves[k] for k in read], [], len(leaves[0])
        with precision.evaluating():
            for start in range(0, num_values, count):
                here = [_padded(x[start : start + count], like) for x, like in zip(stacked, shapes, strict=True)]
                number = min(count, num_values - start)
                parts.append([_out(x)[:number] for x in run(consts, np.int32(number), here, shared)])
        return jax.tree.unflatten(structure, map(np.concatenate, zip(*parts, strict=True)))

    return call


def read_later(
    jaxpr: Any,
    wanted: Sequence[bool] | None = None,
    reads: Callable[[Any, list[bool]], Sequence[bool]] | None = None,
) -> set[Any]:
    """Variables on which the wanted results of a program depend, or what it does beside them.

    ``reads`` may say which operands an operation reads, given which of its results are read; by default all.
    """
    results = [True] * len(jaxpr.outvars) if wanted is None else wanted
    found = {v for v, want in zip(jaxpr.outvars, results, strict=True) if want and not isinstance(v, core.Literal)}
    for equation in reversed(jaxpr.eqns):
        outputs = [var in found for var in equation.outvars]
        if any(outputs) or acts(equation):
            read = [True] * len(equation.invars) if reads is None else reads(equation, outputs)
            inputs = zip(equation.invars, read, strict=True)
            found.update(var for var, is_read in inputs if is_read and not isinstance(var, core.Literal))
    return found


def arguments_read(jaxpr: Any, wanted: Sequence[bool] | None = None) -> list[bool]:
    """For each argument of a program, whether a wanted result depends on it."""

    def reads(equation: Any, outputs: list[bool]) -> list[bool]:
        inner = called(equation)
        return [True] * len(equation.invars) if inner is None else arguments_read(body_of(inner), outputs)

    found = read_later(jaxpr, wanted, reads)
    return [var in found for var in jaxpr.invars]


# ---- arrays ----------------------------------------------------------------------------------------------------------


def on_device(values: Any, like: Any, precision: FloatPrecision) -> Any:
    """Arrays, copied to where programs run, in the types that a program takes."""
    with precision.evaluating():
        return jax.tree.map(
            lambda x, shape: jax.device_put(_as(x, shape)) if _has_number(shape.dtype) else x, values, like
        )


def _shape_of(value: Any) -> jax.ShapeDtypeStruct:
    dtype = value.dtype if hasattr(value, "dtype") else np.result_type(value)
    return jax.ShapeDtypeStruct(np.shape(value), jax.dtypes.canonicalize_dtype(dtype) if _has_number(dtype) else dtype)


def _has_number(dtype: Any) -> bool:
    return not jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _constants(program: Program) -> list[Any]:
    """Constants, in the types in which the program has them.

    JAX caches arrays by identity: one that a living program holds in single precision may have been found rounded.
    """
    wide = program.precision.widens
    types = [wide_type(var.aval.dtype) if wide else var.aval.dtype for var in program.body.constvars]
    consts = consts_of(program.closed)
    return [np.array(x, dtype) if _has_number(dtype) else x for x, dtype in zip(consts, types, strict=True)]


def _as(value: Any, like: Any) -> Any:
    """An array in the type of ``like``: one of JAX of that type, or a copy, as JAX caches arrays by identity."""
    if not _has_number(like.dtype) or (isinstance(value, jax.Array) and value.dtype == like.dtype):
        return value
    return np.array(value, like.dtype)


def _padded(values: Any, like: Any) -> np.ndarray:
    """Values with zeros behind them, up to the length of ``like``; their results are dropped."""
    if len(values) == like.shape[0]:
        return np.asarray(values, like.dtype)
    padded = np.zeros(like.shape, like.dtype)
    padded[: len(values)] = values
    return padded


def _out(value: Any) -> Any:
    return np.asarray(value) if _has_number(value.dtype) else value


# ---- compiled once ---------------------------------------------------------------------------------------------------


def _evaluated(program: Program, consts: Sequence[Any], flat: Sequence[Any]) -> list[Any]:
    if program.precision.widens:
        return evaluated(program.body, consts, flat)
    live = read_later(program.body)
    # random keys that a model splits and nothing reads take longer to compile than much of the rest
    body = program.body.replace(
        eqns=[equation for equation in program.body.eqns if acts(equation) or live & {*equation.outvars}]
    )
    return rewritten.evaluated(body, consts, flat)


def _executable(program: Program, how: tuple[Any, ...], function: Callable, like: tuple[Any, ...]) -> Callable:
    """A function that evaluates a program, compiled for arrays like some, or as it was kept."""
    known = program_hash(program)
    key = (known, *program.precision, *how)
    if not known or key not in _KEPT:
        with program.precision.evaluating():
            made = jax.jit(function).lower(*like).compile(_options(program.body))
        if not known:
            return made
        _KEPT[key] = made
        while len(_KEPT) > _MAX_KEPT:
            _KEPT.popitem(last=False)
    _KEPT.move_to_end(key)
    return _KEPT[key]


def compiled_quickly(function: Callable, *args: Any) -> Callable:
    """A function that is evaluated once or twice, compiled for arguments like these."""
    with _compiling():
        traced = jax.jit(function).trace(*args)
        made = traced.lower().compile(_options(traced.jaxpr.jaxpr))

    def call(*args: Any) -> Any:
        with _compiling():
            return made(*args)

    return call


def _options(body: Any) -> dict[str, Any] | None:
    """Nothing is optimized, unless a convolution or a large product is in it, which would then be slow."""
    is_heavy = any(_multiplications(equation) > _LARGE_PRODUCT for equation in equations(body))
    return None if is_heavy else QUICK


def _multiplications(equation: Any) -> float:
    """How many numbers one matrix product or convolution multiplies; a convolution counts for many."""
    if equation.primitive.name == "conv_general_dilated":
        return float("inf")
    if equation.primitive.name != "dot_general":
        return 0.0
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return float(np.prod(equation.outvars[0].aval.shape)) * float(np.prod([left[k] for k in contracted]))


class _UnknownError(Exception):
    """Something in a program that is known by its identity only."""


def program_hash(program: Program) -> str:
    """A hash that programs share if they are the same but for the values of constants; empty if that is not known."""
    digest, seen = hashlib.sha256(), {}
    try:
        for word in _words(program.body, seen):
            digest.update(word)
    except _UnknownError:
        return ""
    return digest.hexdigest()


def _words(body: Any, seen: dict[int, bytes]) -> Iterator[bytes]:
    """The operations, parameters and types of a jaxpr in bytes, its variables by number."""
    number = {var: k for k, var in enumerate([*body.constvars, *body.invars])}
    for var in number:
        yield _type_of(var)
    for equation in body.eqns:
        if only_prints(equation):
            continue
        yield equation.primitive.name.encode()
        for var in equation.invars:
            yield _atom(var, number, seen)
        for name, value in sorted(equation.params.items()):
            if name not in _UNASKED:
                yield name.encode() + b"=" + _value(value, seen)
        for var in equation.outvars:
            number[var] = len(number)
            yield _type_of(var)
    for var in body.outvars:
        yield _atom(var, number, seen)


def _atom(var: Any, number: Mapping[Any, int], seen: dict[int, bytes]) -> bytes:
    return _value(var.val, seen) + _type_of(var) if isinstance(var, core.Literal) else b"%d;" % number[var]


def _type_of(var: Any) -> bytes:
    return f"{var.aval}{getattr(var.aval, 'weak_type', '')};".encode()


def _value(value: Any, seen: dict[int, bytes]) -> bytes:
    """A parameter of an operation in bytes; a program within it by its hash."""
    body = body_of(value)
    if hasattr(body, "eqns"):
        if id(value) not in seen:
            inner = hashlib.sha256(b"".join(_value(x, seen) for x in consts_of(value)))
            for word in _words(body, seen):
                inner.update(word)
            seen[id(value)] = inner.digest()
        return seen[id(value)]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        if not _has_number(value.dtype):
            raise _UnknownError
        array = np.asarray(value)
        return f"{array.dtype}{array.shape}".encode() + array.tobytes()
    if isinstance(value, Mapping):
        return b"{" + b",".join(_value(x, seen) for item in sorted(value.items(), key=str) for x in item) + b"}"
    if isinstance(value, tuple | list):
        return b"(" + b",".join(_value(x, seen) for x in value) + b")"
    if isinstance(value, types.FunctionType) and value.__module__.startswith("jax.") and "<" not in value.__qualname__:
        return f"{value.__module__}.{value.__qualname__}".encode()  # of kinds of random keys
    text = repr(value)
    if isinstance(value, _FUNCTIONS) or " at 0x" in text:
        raise _UnknownError
    return text.encode()
