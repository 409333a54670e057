r"""Parities of an array's parts: slices along its axes, each with a parity of its own.

Gates that share a kernel, and layers whose outputs stand side by side, change signs apart from each other. What an
operation does to parts, it does to each as if it were alone, as long as it leaves them apart. Knows operations and
where parts stand; what a parity is, the caller says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from numpyro_symmetry.discovery.labels import places
from numpyro_symmetry.discovery.labels.values import Known
from numpyro_symmetry.models.compat import name_of, shapes_of


class Parts(NamedTuple):
    """Parities of slices of these sizes along an axis; each may have parts along other axes."""

    axis: int
    sizes: tuple[int, ...]
    of: tuple[Any, ...]

    @property
    def ends(self) -> list[int]:
        """Where parts begin and end."""
        return list(itertools.accumulate(self.sizes, initial=0))

    def over(self, start: int, stop: int) -> Any:
        """The parity of a slice of the axis; ``None`` of an empty one."""
        held = [min(stop, end) - max(start, begin) for begin, end in itertools.pairwise(self.ends)]
        met = [(size, one) for size, one in zip(held, self.of, strict=True) if size > 0]
        return joined(self.axis, *zip(*met, strict=True)) if met else None


def joined(axis: int, sizes: Sequence[int], of: Sequence[Any]) -> Any:
    """Parities of values put end to end; a single one if all are the same."""
    return of[0] if all(one == of[0] for one in of) else Parts(axis, tuple(sizes), tuple(of))


def part_sizes(parity: Any) -> dict[int, set[tuple[int, ...]]]:
    """Axis -> the sizes of parts along it; several where parts are cut in unlike ways."""
    found = dict[int, set[tuple[int, ...]]]()
    if isinstance(parity, Parts):
        found[parity.axis] = {parity.sizes}
        for axis, sizes in itertools.chain.from_iterable(part_sizes(one).items() for one in parity.of):
            found[axis] = found.get(axis, set()) | sizes
    return found


def as_slices(equation: Any, given: Sequence[Known | None]) -> list[Any]:
    """A split, and a slice that starts at constants, as the slices that they are; any other operation as it is."""
    name, params, (shape, *_) = equation.primitive.name, equation.params, shapes_of(equation.invars) or [()]
    if name == "split":
        ends = itertools.pairwise(itertools.accumulate(params["sizes"], initial=0))
        bounds = [[end if k == params["axis"] else (0, size) for k, size in enumerate(shape)] for end in ends]
    elif name == "dynamic_slice" and len(starts := [x.value for x in given[1:] if x is not None]) == len(shape):
        sizes = params["slice_sizes"]
        bounds = [[(k, k + size) for k, size in zip(map(places.clamped, starts, shape, sizes), sizes, strict=True)]]
    else:
        return [equation]
    return [
        equation.replace(
            primitive=lax.slice_p,
            invars=equation.invars[:1],
            outvars=[var],
            params={
                "start_indices": tuple(start for start, _ in here),
                "limit_indices": tuple(stop for _, stop in here),
                "strides": None,
            },
        )
        for var, here in zip(equation.outvars, bounds, strict=True)
    ]


def mapped(parity: Any, function: Callable[[Any], Any]) -> Any:
    """What a function makes of a parity, part by part."""
    if not isinstance(parity, Parts):
        return function(parity)
    return joined(parity.axis, parity.sizes, [mapped(one, function) for one in parity.of])


def along(parity: Any, axis: int, function: Callable[[Parts], Any]) -> Any:
    """What a function makes of the parts along one axis, of each part along other axes by itself."""
    if not isinstance(parity, Parts):
        return parity
    if parity.axis == axis:
        return function(parity)
    return joined(parity.axis, parity.sizes, [along(one, axis, function) for one in parity.of])


def slice_of(parity: Any, axis: int, start: int, stop: int) -> Any:
    """The parity of a slice along an axis; of an empty one it may be ``None``."""
    return along(parity, axis, lambda parts: parts.over(start, stop))


def concatenated(axis: int, sizes: Sequence[int], operands: Sequence[Any]) -> Any:
    """The parity of values of these sizes put end to end, some of which may have parts along that axis already."""
    held = list[tuple[int, Any]]()
    for parity, size in zip(operands, sizes, strict=True):
        cuts = (end for one in part_sizes(parity).get(axis, ()) for end in itertools.accumulate(one))
        ends = itertools.pairwise(sorted({0, size, *cuts}))
        held += [(stop - start, slice_of(parity, axis, start, stop)) for start, stop in ends]
    return joined(axis, *zip(*held, strict=True)) if held else None


def without_axis(parity: Any, axis: int) -> Any:
    """The parity of a value that has lost an axis along which it has no parts."""
    return _renumbered(parity, lambda own: own - (own > axis))


def with_axis(parity: Any, axis: int) -> Any:
    """The parity of values that are stacked along a new axis."""
    return _renumbered(parity, lambda own: own + (own >= axis))


def _renumbered(parity: Any, number: Callable[[int], int]) -> Any:
    if not isinstance(parity, Parts):
        return parity
    return Parts(number(parity.axis), parity.sizes, tuple(_renumbered(one, number) for one in parity.of))


def slice_written(equation: Any, given: Sequence[Known | None]) -> tuple[int, int, int] | None:
    """The axis along which a value is written over a slice of another, the slice's first index, and its size."""
    name = name_of(equation)
    if name not in ("scatter", "dynamic_update_slice"):
        return None
    shape, *others = shapes_of(equation.invars)
    if name == "scatter":
        if not isinstance(given[1], Known):
            return None
        counted = 1 + np.arange(math.prod(others[1])).reshape(others[1])
        numbered = places.numbered_by(equation.params, shape, given[1].value, counted)
        return None if numbered is None else places.slice_numbered(numbered, counted)
    in_part = [k for k, (n, size) in enumerate(zip(shape, others[0], strict=True)) if n != size]
    starts = [given[2 + k] for k in in_part]
    if len(in_part) != 1 or not isinstance(starts[0], Known):
        return None
    (axis,), size = in_part, others[0][in_part[0]]
    return axis, places.clamped(starts[0].value, shape[axis], size), size


def new_axis(equation: Any, operand: int, axis: int, sizes: Sequence[int]) -> int | None:
    """The axis of an operation's result that an axis of an operand becomes; ``None`` where it does not keep its parts.

    Flattened with axes behind it, its slices are blocks of an axis; taken apart, blocks of it are slices of one.
    """
    name, params, shape = equation.primitive.name, equation.params, shapes_of(equation.invars)[operand]
    out = shapes_of(equation.outvars)[0]
    if name == "broadcast_in_dim":
        found = params["broadcast_dimensions"][axis]
    elif name == "transpose":
        found = params["permutation"].index(axis)
    elif name == "reshape":
        order = places.order_read(params, len(shape))
        before = math.prod(shape[k] for k in order[: order.index(axis)])
        starts = (k for k in range(len(out)) if math.prod(out[:k]) == before)
        return next((k for k in starts if all(size * out[k] % max(shape[axis], 1) == 0 for size in sizes)), None)
    elif name in ("reduce_sum", "squeeze"):
        gone = params["axes" if name == "reduce_sum" else "dimensions"]
        found = None if axis in gone else axis - sum(k < axis for k in gone)
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
