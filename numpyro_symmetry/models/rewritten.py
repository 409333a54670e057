"""Programs evaluated with some operations written another way: convolutions, and complements of probabilities.

``1 - sigmoid(x)`` is ``sigmoid(-x)``, but rounds to zero where x is large: the model would seem to tell x from -x.
All else is computed as it stands. Knows programs; no models.

XLA hands a convolution over two axes of places, in the order batch, places, channels, to a library that is some ten
times faster than the loops it writes itself, in which all others end: in double precision those with sixteen channels
or fewer on both sides, and, within a loop, those in another order. Written so, it computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax import core as jax_core
from jax.extend import core

from numpyro_symmetry.models.compat import bound, equations, inlined, only_prints

_CONVOLUTION = "conv_general_dilated"
# channels, of which one side has to have more
_FEW = 16
# parameters of a convolution along one more axis of places, of length one
_ONE_MORE = {"window_strides": 1, "padding": (0, 0), "lhs_dilation": 1, "rhs_dilation": 1}


class _Odds(NamedTuple):
    """A probability p, or -p where ``sign`` is -1, and the logits of p."""

    value: Any
    logits: Any
    sign: int


def evaluated(body: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Results of a program; operations in loops and branches of its own stay as they are."""
    if not any(
        equation.primitive.name in (_CONVOLUTION, "logistic") or only_prints(equation) for equation in equations(body)
    ):
        # a function that is called many times is compiled once
        return jax_core.eval_jaxpr(body, consts, *args)  # pyright: ignore[reportAttributeAccessIssue]
    odds: dict[int, _Odds] = {}

    def results_of(equation: Any, operands: list[Any]) -> Sequence[Any]:
        if only_prints(equation):
            return []
        of_logits = _of_logits(equation, operands, odds)
        return applied(equation.primitive, operands, equation.params) if of_logits is None else [of_logits]

    return inlined(body, consts, args, lambda value, aval: value, results_of)


def _of_logits(equation: Any, operands: Sequence[Any], odds: dict[int, _Odds]) -> Any:
    """The result of an operation on a probability p of which the logits are known: p itself, -p, 1 - p, log(1 - p)."""
    name, last = equation.primitive.name, odds.get(id(operands[-1])) if operands else None
    if name == "logistic":
        logits, sign = operands[0], 1
    elif last is None:
        return None
    elif last.sign > 0 and name == "sub" and _is_one(equation.invars[0]):
        logits, sign = -last.logits, 1
    elif last.sign > 0 and name == "neg":
        logits, sign = last.logits, -1
    elif last.sign < 0 and name == "log1p":
        return -jnp.logaddexp(last.logits, 0.0)
    else:
        return None
    value = sign * lax.logistic(logits)
    # values are known by identity, through calls too: they are kept alive, so that no other gets their id
    odds[id(value)] = _Odds(value, logits, sign)
    return value


def _is_one(atom: Any) -> bool:
    return isinstance(atom, core.Literal) and atom.val == 1


# ---- convolutions ----------------------------------------------------------------------------------------------------


def applied(primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Results of an operation; of a convolution by the fast way."""
    if primitive.name == _CONVOLUTION:
        return [_convolved(*operands, **params)]
    return bound(primitive, operands, params)


def _convolved(x: Array, kernel: Array, *, dimension_numbers: Any, **params: Any) -> Array:
    """A convolution in the order batch, places, channels, with some more channels where there are few."""
    of_x, of_kernel, of_result = dimension_numbers
    x = x.transpose(of_x[0], *of_x[2:], of_x[1])
    kernel = kernel.transpose(*of_kernel[2:], of_kernel[1], of_kernel[0])
    order = np.argsort((of_result[0], *of_result[2:], of_result[1]))
    if kernel.ndim == 3:
        result = _in_order(x[:, None], kernel[None], **params | {k: (one, *params[k]) for k, one in _ONE_MORE.items()})
        return result[:, 0].transpose(order)
    return _in_order(x, kernel, **params).transpose(order)


def _in_order(x: Array, kernel: Array, **params: Any) -> Array:
    *_, num_in, num_out = kernel.shape
    if params["feature_group_count"] == params["batch_group_count"] == 1 and max(num_in, num_out) <= _FEW:
        kernel = jnp.pad(kernel, [(0, 0)] * (kernel.ndim - 1) + [(0, _FEW + 1 - num_out)])
    last = kernel.ndim - 1
    places = (0, last, *range(1, last))
    numbers = lax.ConvDimensionNumbers(places, (last, last - 1, *range(last - 1)), places)
    return lax.conv_general_dilated_p.bind(x, kernel, dimension_numbers=numbers, **params)[..., :num_out]
