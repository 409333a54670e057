"""Values that constants alone determine: of operations, in NumPy so that nothing is compiled, and of whole programs.

Knows programs and known values; no labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core
from scipy import special

from numpyro_symmetry.discovery.labels.places import SCATTERS, clamped, gather, order_read
from numpyro_symmetry.discovery.labels.values import Known, known
from numpyro_symmetry.models.compat import body_of, bound, called, consts_of, name_of
from numpyro_symmetry.models.programs import read_later

# equations up to which a called program is looked into for choices by constants
_SMALL = 20


def constants_of(jaxpr: Any, known_: Mapping[Any, Known]) -> dict[Any, Known]:
    """Every value of a program that constants alone determine, and that a result is made from."""
    found, wanted = dict(known_), read_later(jaxpr)
    for equation in jaxpr.eqns:
        if not any(var in wanted for var in equation.outvars):
            continue
        operands = [constant_of(atom, found) for atom in equation.invars]
        if equation.primitive.name == "platform_index":
            found[equation.outvars[0]] = Known(np.int32(0))
        elif (inner := called(equation)) is not None:
            found.update(
                (var, value)
                for var, value in zip(equation.outvars, constant_results(inner, operands), strict=True)
                if value is not None
            )
        elif (chosen := operand_chosen(equation, operands)) is not None:
            value = operands[chosen]
            if value is not None and value.value.shape == equation.outvars[0].aval.shape:
                found[equation.outvars[0]] = value
        elif None not in operands:
            folded = fold(equation, [operand.value for operand in operands if operand is not None])
            found.update(zip(equation.outvars, map(Known, folded or ()), strict=False))
    return found


class Residual(NamedTuple):
    """What partial evaluation by constants leaves of a program, to be followed from its other arguments.

    Attributes
    ----------
    body
        The whole program.
    given
        What its constants and arguments were given.
    constants
        Values that constants alone determine.
    live
        The values that wanted results are made from.
    equations
        The operations left to follow.
    """

    body: Any
    given: dict[Any, Any]
    constants: dict[Any, Known]
    live: set[Any]
    equations: list[Any]


def residual_of(closed: Any, args: Sequence[Any], wanted: Sequence[bool] | None = None) -> Residual:
    """What is to be followed of a program from its arguments, of which some are known, to its wanted results."""
    body = body_of(closed)
    given = dict(zip([*body.constvars, *body.invars], [*map(known, consts_of(closed)), *args], strict=True))
    constants = constants_of(body, {var: value for var, value in given.items() if isinstance(value, Known)})
    live = live_in(body, constants, wanted)
    left = [equation for equation in body.eqns if any(var in live and var not in constants for var in equation.outvars)]
    return Residual(body, given, constants, live, left)


def constant_results(closed: Any, args: Sequence[Known | None]) -> list[Known | None]:
    """Which of a program's results constants alone determine, and their values."""
    body = body_of(closed)
    given = dict(zip(body.constvars, map(known, consts_of(closed)), strict=True))
    given |= {var: value for var, value in zip(body.invars, args, strict=True) if value is not None}
    found = constants_of(body, given)
    return [constant_of(var, found) for var in body.outvars]


def constant_of(atom: Any, known_: Mapping[Any, Known]) -> Known | None:
    """A number that stands in a program, or a variable's value where it is known."""
    return Known(np.asarray(atom.val)) if isinstance(atom, core.Literal) else known_.get(atom)


def live_in(jaxpr: Any, known_: Mapping[Any, Known], wanted: Sequence[bool] | None = None) -> set[Any]:
    """Values of a program that its wanted results are made from; not those a constant choice leaves out."""

    def reads(equation: Any, outputs: list[bool]) -> list[bool]:
        operands = [constant_of(atom, known_) for atom in equation.invars]
        inner, chosen = called(equation), operand_chosen(equation, operands)
        if chosen is not None:
            return [k == chosen for k in range(len(operands))]
        if (body := body_of(inner)) is None or len(body.eqns) > _SMALL:
            return [True] * len(operands)
        given = {var: value for var, value in zip(body.invars, operands, strict=True) if value is not None}
        inside = live_in(body, constants_of(body, given), outputs)
        return [var in inside for var in body.invars]

    return read_later(jaxpr, wanted, reads)


def operand_chosen(equation: Any, operands: Sequence[Known | None]) -> int | None:
    """The operand that a choice by a constant takes, if it is one."""
    if equation.primitive.name != "select_n" or operands[0] is None:
        return None
    which = np.unique(np.asarray(operands[0].value))
    return 1 + int(which[0]) if len(which) == 1 else None


def branches_taken(params: Mapping[str, Any], which: Known | None) -> Sequence[Any]:
    """The branches of a conditional that may be taken: a single one where a constant chooses."""
    if which is None:
        return params["branches"]
    chosen = int(np.clip(int(which.value), 0, len(params["branches"]) - 1))
    return params["branches"][chosen : chosen + 1]


def fold(equation: Any, values: list[np.ndarray]) -> list[np.ndarray] | None:
    """An operation on constants, evaluated; ``None`` if it cannot be."""
    name, params = name_of(equation), equation.params
    try:
        if name in _FOLDED:
            with np.errstate(all="ignore"):
                found = evaluated(equation, *values)
            return [value.astype(var.aval.dtype) for value, var in zip(found, equation.outvars, strict=True)]
        if name.startswith(("random_", "threefry")):
            return None  # others in double precision: no constants of the model
        with jax.ensure_compile_time_eval():
            return list(map(np.asarray, bound(equation.primitive, values, params)))
    except Exception:
        # whatever cannot be evaluated (random keys, effects, other devices) stays unknown, which is safe: it is pinned
        return None


def evaluated(equation: Any, *values: np.ndarray) -> list[np.ndarray]:
    """Results of an operation that NumPy has, in whatever kind of numbers its operands lead to."""
    found = _FOLDED[name_of(equation)](equation.params, *values)
    found = found if equation.primitive.multiple_results else [found]
    return [np.broadcast_to(value, var.aval.shape) for value, var in zip(found, equation.outvars, strict=True)]


def _broadcast(params: dict[str, Any], value: np.ndarray, *_: Any) -> np.ndarray:
    """The value with an axis of size one wherever it is to be repeated."""
    return np.expand_dims(value, tuple({*range(len(params["shape"]))} - {*params["broadcast_dimensions"]}))


def _slice(params: dict[str, Any], value: np.ndarray) -> np.ndarray:
    strides = params["strides"] or (1,) * value.ndim
    return value[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))]


def _pad(params: dict[str, Any], value: np.ndarray, filling: np.ndarray) -> np.ndarray:
    for axis, (low, high, between) in enumerate(params["padding_config"]):
        count = value.shape[axis]
        length = low + high + count + between * max(count - 1, 0)
        at = low + (1 + between) * np.arange(count)
        kept = (at >= 0) & (at < length)
        padded = np.full((*value.shape[:axis], length, *value.shape[axis + 1 :]), filling, value.dtype)
        padded[(slice(None),) * axis + (at[kept],)] = value.compress(kept, axis)
        value = padded
    return value


def _written_at(params: dict[str, Any], value: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    value, first = value.copy(), map(clamped, starts, value.shape, update.shape)
    value[tuple(slice(k, k + n) for k, n in zip(first, update.shape, strict=True))] = update
    return value


def _plain(function: Callable) -> Callable:
    return lambda params, *values: function(*values)


def _over_axes(function: Callable) -> Callable:
    return lambda params, value: function(value, axis=tuple(params["axes"]))


_NUMPY = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "rem": np.fmod,
    "neg": np.negative,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "square": np.square,
    "abs": np.abs,
    "is_finite": np.isfinite,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lgamma": special.gammaln,
    "digamma": special.digamma,
    "erf": special.erf,
    "erfc": special.erfc,
    "erf_inv": special.erfinv,
    "logistic": special.expit,
    "stop_gradient": np.asarray,
    "copy": np.asarray,
    "select_n": lambda which, *cases: np.take_along_axis(
        np.stack(cases), np.broadcast_to(which, cases[0].shape)[None].astype(int), 0
    )[0],
    "clamp": lambda low, x, high: np.clip(x, low, high),
}  # fmt: skip


_FOLDED: dict[str, Callable] = {name: _plain(function) for name, function in _NUMPY.items()} | {
    "broadcast_in_dim": _broadcast,
    "iota": lambda params, *_: np.indices(params["shape"], sparse=True)[params["dimension"]],
    "slice": _slice,
    "div": lambda params, a, b: a / b if a.dtype.kind in "fc" else np.trunc(np.true_divide(a, b)),
    "gather": gather,
    **SCATTERS,
    "integer_pow": lambda params, x: np.asarray(x) ** params["y"],
    "convert_element_type": lambda params, x: x,
    "reshape": lambda params, x, *_: np.reshape(x.transpose(order_read(params, x.ndim)), params["new_sizes"]),
    "squeeze": lambda params, x: np.squeeze(x, tuple(params["dimensions"])),
    "transpose": lambda params, x: np.transpose(x, params["permutation"]),
    "concatenate": lambda params, *x: np.concatenate(x, params["dimension"]),
    "pad": _pad,
    "dynamic_update_slice": _written_at,
    "stack": lambda params, *x: np.stack(x, params["axis"]),
    "tile": lambda params, x: np.tile(x, params["reps"]),
    "unstack": lambda params, x: np.moveaxis(x, params["axis"], 0),
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "reduce_sum": _over_axes(np.sum),
    "reduce_prod": _over_axes(np.prod),
    "reduce_max": _over_axes(np.max),
    "reduce_min": _over_axes(np.min),
    "reduce_and": _over_axes(np.bitwise_and.reduce),
    "reduce_or": _over_axes(np.bitwise_or.reduce),
}
