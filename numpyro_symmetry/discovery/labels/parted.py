r"""Parities of an array's parts: slices along one axis, each with a parity of its own.

Gates that share a kernel, and layers whose outputs stand side by side, change signs apart from each other. What an
operation does to parts, it does to each as if it were alone, as long as it leaves them apart. Knows operations and
where parts stand; what a parity is, the caller says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from jax import lax

from numpyro_symmetry.models.compat import shapes_of


class Parts(NamedTuple):
    """Parities of slices of these sizes along an axis."""

    axis: int
    sizes: tuple[int, ...]
    of: tuple[Any, ...]

    def over(self, start: int, stop: int) -> tuple[Parts, bool]:
        """The parts that lie in a slice, and whether it cuts none of them in two."""
        ends = list(itertools.accumulate(self.sizes, initial=0))
        met = [k for k in range(len(self.sizes)) if ends[k] < stop and ends[k + 1] > start]
        whole = bool(met) and ends[met[0]] == start and ends[met[-1] + 1] == stop
        return Parts(self.axis, tuple(self.sizes[k] for k in met), tuple(self.of[k] for k in met)), whole


def joined(axis: int, sizes: Sequence[int], of: Sequence[Any]) -> Any:
    """Parities of values put end to end; a single one if all are the same."""
    return of[0] if all(one == of[0] for one in of) else Parts(axis, tuple(sizes), tuple(of))


def as_slices(equation: Any) -> list[Any]:
    """A split as the slices that it is: operations of one result each; any other operation as it is."""
    if equation.primitive.name != "split":
        return [equation]
    (shape,), axis = shapes_of(equation.invars), equation.params["axis"]
    ends = itertools.accumulate(equation.params["sizes"], initial=0)
    return [
        equation.replace(
            primitive=lax.slice_p,
            outvars=[var],
            params={
                "start_indices": tuple(start if k == axis else 0 for k in range(len(shape))),
                "limit_indices": tuple(stop if k == axis else size for k, size in enumerate(shape)),
                "strides": None,
            },
        )
        for var, (start, stop) in zip(equation.outvars, itertools.pairwise(ends), strict=True)
    ]


def new_axis(equation: Any, operand: int, axis: int) -> int | None:
    """The axis of an operation's result that an axis of an operand becomes; ``None`` where it is not kept whole.

    Flattened with axes behind it, it is an axis of whose blocks each is one of its slices.
    """
    name, params, shape = equation.primitive.name, equation.params, shapes_of(equation.invars)[operand]
    out = shapes_of(equation.outvars)[0]
    if name == "broadcast_in_dim":
        found = params["broadcast_dimensions"][axis]
    elif name == "transpose":
        found = params["permutation"].index(axis)
    elif name in ("reshape", "squeeze"):
        before, at = math.prod(shape[:axis]), (k for k in range(len(out)) if out[k] % max(shape[axis], 1) == 0)
        return next((k for k in at if math.prod(out[:k]) == before), None)
    elif name == "reduce_sum":
        found = None if axis in params["axes"] else axis - sum(k < axis for k in params["axes"])
    elif name == "dot_general":
        found = _of_product(params["dimension_numbers"], list(map(len, shapes_of(equation.invars))), operand, axis)
    elif name == "conv_general_dilated":
        found = _of_convolution(params, operand).get(axis)
    else:
        found = axis if len(shape) == len(out) else None
    return found if found is not None and out[found] == shape[axis] else None


def _of_product(numbers: Any, ndims: list[int], operand: int, axis: int) -> int | None:
    contracted, batch = numbers
    left, right = ([k for k in range(n) if k not in (*contracted[m], *batch[m])] for m, n in enumerate(ndims))
    # the axis of each factor that every axis of the product is: those of a batch, then what is free of either factor
    own = [*batch[1], *[None] * len(left), *right] if operand else [*batch[0], *left]
    return own.index(axis) if axis in own else None


def _of_convolution(params: Any, operand: int) -> dict[int, int]:
    """Axis of the operand -> axis of the result, of batches or output channels alone: windows overlap, channels mix."""
    numbers = params["dimension_numbers"]
    if operand == 0 and params["batch_group_count"] > 1:
        return {}
    return {(numbers.lhs_spec, numbers.rhs_spec)[operand][0]: numbers.out_spec[operand]}


def contracted_with(equation: Any, operand: int, axis: int) -> int | None:
    """The axis of a product's other factor over which it sums together with this one."""
    name, numbers = equation.primitive.name, equation.params.get("dimension_numbers")
    if name == "conv_general_dilated":
        is_whole = equation.params["feature_group_count"] == 1
        contracted = ([numbers.lhs_spec[1]], [numbers.rhs_spec[1]]) if is_whole else ([], [])
    elif name == "dot_general":
        contracted = numbers[0]
    else:
        return None
    own = list(contracted[operand])
    return contracted[1 - operand][own.index(axis)] if axis in own else None
