"""Convolutions written as XLA computes them fast, on a CPU and in double precision.

XLA hands a convolution over two axes of places, in the order batch, places, channels, to a library that is some ten
times faster than the loops it writes itself, in which all others end: in double precision those with sixteen channels
or fewer on both sides, and, within a loop, those in another order. What is computed is the same. Knows operations; no
programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from numpyro_symmetry.models.compat import bound

NAME = "conv_general_dilated"
# channels, of which one side has to have more
_FEW = 16
# parameters of a convolution along one more axis of places, of length one
_ONE_MORE = {"window_strides": 1, "padding": (0, 0), "lhs_dilation": 1, "rhs_dilation": 1}


def applied(primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Results of an operation; of a convolution by the fast way."""
    if primitive.name == NAME:
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
