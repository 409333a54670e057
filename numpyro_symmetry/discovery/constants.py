"""Constants of a model: what symmetry they leave, and operations on them, done in NumPy so that nothing is compiled.

Knows terms and single operations; no programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from scipy import special

from numpyro_symmetry.discovery.terms import Atom, Reason, Term, Uniform, impose, pinned, slice_colours
from numpyro_symmetry.models.compat import bind_params

# entries of a constant above which equal slices are not looked for: such arrays are data
_MAX_COMPARED = 2_000_000
# indices of a square constant up to which relabellings of both axes at once are looked for
_MAX_JOINT = 64


def axes_of_constant(array: np.ndarray, reason: Reason) -> list[Term]:
    """Labels of the axes of a constant: uniform, or coloured by equal slices; square ones also by both axes at once."""
    if array.dtype.kind not in "biufc":
        return [Uniform(n) if n < 2 else pinned(n, reason) for n in array.shape]
    if array.size > _MAX_COMPARED:
        return [Uniform(n) if n < 2 else pinned(n, reason) for n in array.shape]
    colours = [slice_colours(array, k) if n > 1 else None for k, n in enumerate(array.shape)]
    axes: list[Term] = []
    for n, colour in zip(array.shape, colours, strict=True):
        term: Term = Uniform(n)
        if colour is not None:
            impose(term := Atom(n), colour, reason)
        axes.append(term)
    for i, j in _square_axes(array):
        left, right = colours[i], colours[j]
        if left is None or right is None:
            continue
        joint = _joint_colours(array, i, j)
        if len(np.unique(joint)) < min(len(np.unique(left)), len(np.unique(right))):
            shared = Atom(array.shape[i])
            impose(shared, joint if joint.any() else None, reason)
            axes[i] = axes[j] = shared
            break
    return axes


def _square_axes(array: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of axes of one size, the last ones first."""
    pairs = [(i, j) for j in range(array.ndim - 1, 0, -1) for i in range(j - 1, -1, -1)]
    return [(i, j) for i, j in pairs if 1 < array.shape[i] == array.shape[j] <= _MAX_JOINT]


def _joint_colours(array: np.ndarray, i: int, j: int) -> np.ndarray:
    """Equal for two indices whose exchange on both axes leaves the array alone, as in ``a + b * identity``."""
    square = np.moveaxis(array, (i, j), (-2, -1)).reshape(-1, array.shape[i], array.shape[i])
    n = array.shape[i]
    colours = np.full(n, -1)
    representatives: list[int] = []
    for index in range(n):
        for colour, other in enumerate(representatives):
            order = np.arange(n)
            order[[index, other]] = other, index
            if np.allclose(square[:, order][:, :, order], square, rtol=2e-6, atol=0.0, equal_nan=True):
                colours[index] = colour
                break
        else:
            colours[index] = len(representatives)
            representatives.append(index)
    return colours


def fold(equation: Any, values: list[np.ndarray]) -> list[np.ndarray] | None:
    """An operation on constants, evaluated; ``None`` if it cannot be."""
    name, params, out = equation.primitive.name, equation.params, equation.outvars[0].aval
    try:
        if name in _FOLDED:
            with np.errstate(all="ignore"):
                value = np.asarray(_FOLDED[name](params, *values))
            return [np.broadcast_to(value, out.shape).astype(out.dtype)]
        subfuns, params = bind_params(equation.primitive, equation.params)
        with jax.ensure_compile_time_eval():
            result = equation.primitive.bind(*subfuns, *values, **params)
        return [np.asarray(x) for x in (result if equation.primitive.multiple_results else [result])]
    except Exception:
        # whatever cannot be evaluated (random keys, effects, other devices) stays unknown, which is safe: it is pinned
        return None


def evaluate(equation: Any, values: list[np.ndarray]) -> np.ndarray:
    """A gather or scatter of given arrays, evaluated."""
    subfuns, params = bind_params(equation.primitive, equation.params)
    with jax.ensure_compile_time_eval():
        return np.asarray(equation.primitive.bind(*subfuns, *values, **params))


def _broadcast(params: dict[str, Any], value: np.ndarray, *_: Any) -> np.ndarray:
    shape = [1] * len(params["shape"])
    for k, d in enumerate(params["broadcast_dimensions"]):
        shape[d] = value.shape[k]
    return np.broadcast_to(value.reshape(shape), params["shape"])


def _iota(params: dict[str, Any], *_: Any) -> np.ndarray:
    shape = [1] * len(params["shape"])
    shape[params["dimension"]] = -1
    counted = np.arange(params["shape"][params["dimension"]]).reshape(shape)
    return np.broadcast_to(counted, params["shape"])


def _slice(params: dict[str, Any], value: np.ndarray) -> np.ndarray:
    strides = params["strides"] or (1,) * value.ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return value[tuple(slice(*bound) for bound in bounds)]


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
    "copy_p": np.asarray,
    "select_n": lambda which, *cases: np.choose(which.astype(int), cases) if which.shape == cases[0].shape else
    cases[int(which)],
    "clamp": lambda low, x, high: np.clip(x, low, high),
}  # fmt: skip
_FOLDED: dict[str, Callable] = {name: _plain(function) for name, function in _NUMPY.items()} | {
    "broadcast_in_dim": _broadcast,
    "iota": _iota,
    "slice": _slice,
    "div": lambda params, a, b: a / b if a.dtype.kind in "fc" else np.trunc(np.true_divide(a, b)),
    "integer_pow": lambda params, x: np.asarray(x) ** params["y"],
    "convert_element_type": lambda params, x: x,
    "reshape": lambda params, x, *_: np.reshape(x, params["new_sizes"]),
    "squeeze": lambda params, x: np.squeeze(x, tuple(params["dimensions"])),
    "expand_dims": lambda params, x: np.expand_dims(x, tuple(params["dimensions"])),
    "transpose": lambda params, x: np.transpose(x, params["permutation"]),
    "concatenate": lambda params, *x: np.concatenate(x, params["dimension"]),
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "reduce_sum": _over_axes(np.sum),
    "reduce_prod": _over_axes(np.prod),
    "reduce_max": _over_axes(np.max),
    "reduce_min": _over_axes(np.min),
    "reduce_and": _over_axes(np.all),
    "reduce_or": _over_axes(np.any),
}
