"""Rules for what makes one entry of many, or puts them in order. Knows terms and single operations."""

from __future__ import annotations

import numpy as np

from numpyro_symmetry.discovery.labels.rules.elementwise import (
    Axes,
    elementwise,
)
from numpyro_symmetry.discovery.labels.rules.indexing import in_another_order
from numpyro_symmetry.discovery.labels.rules.pointing import counted_along, indices_into
from numpyro_symmetry.discovery.labels.terms import (
    pin,
    pinned,
)
from numpyro_symmetry.discovery.labels.values import Known, Typed, Value
from numpyro_symmetry.discovery.labels.walk import Operation


def reduction(op: Operation) -> Axes:
    """Sums, products, extremes: the same whatever the order, so the axes simply go."""
    gone = op.params["axes"]
    return [[term for k, term in enumerate(op.axes[0]) if k not in gone]]


def reduction_by_function(op: Operation) -> Axes:
    """A reduction by a function of the user's own, of which nothing says whether the order matters to it."""
    count, reason = len(op.out_shapes), op.reason("folded by a function for which there is no rule", "no rule")
    (out, *_) = elementwise(op._replace(axes=op.axes[:count], shapes=op.shapes[:count], out_shapes=op.shapes[:count]))
    for k in op.params["dimensions"]:
        for number, axes in enumerate(op.axes[:count]):
            op.mix(axes[k], operand=number)
        pin(reason, out[k])
    return [[term for k, term in enumerate(out) if k not in op.params["dimensions"]] for _ in op.out_shapes]


def order_matters(op: Operation) -> Axes:
    """Running sums and the like."""
    position, out, reason = op.params["axis"], list(op.axes[0]), op.reason("its order matters")
    out[position] = in_another_order(op, out[position], out[position].size, reason, varies=op.name in _VARIES)
    return [out]


def position_of_extreme(op: Operation) -> list[Value]:
    """``argmax``: its values are indices of the axis."""
    (k,) = op.params["axes"]
    op.mix(op.axes[0][k])
    return [indices_into(op, op.axes[0][k], reduction(op)[0], "its labels become values")]


def sort(op: Operation) -> list[Value]:
    """Sorted values are the same whatever the order; what is carried along is not, but for labels counted along it."""
    position, num_keys, reason = op.params["dimension"], op.params["num_keys"], op.reason("its order becomes values")
    counted = [
        k >= num_keys and isinstance(x, Known) and counted_along(np.asarray(x.value), op.shapes[k]) == position
        for k, x in enumerate(op.operands)
    ]
    (out, *_) = elementwise(
        op._replace(axes=[axes for axes, labels in zip(op.axes, counted, strict=True) if not labels])
    )
    ranked = out[position]
    for number, axes in enumerate(op.axes):
        op.mix(axes[position], operand=number)
    if any(not unused and not labels for unused, labels in zip(op.unused[num_keys:], counted[num_keys:], strict=True)):
        pin(reason, ranked)
    axes = [pinned(term.size, reason) if k == position else term for k, term in enumerate(out)]
    return [indices_into(op, ranked, axes, reason.text) if labels else Typed(tuple(axes)) for labels in counted]


def top_k(op: Operation) -> list[Value]:
    """The largest values are the same whatever the order; their positions are indices of the axis."""
    position, reason = op.params["axis"], op.reason("its order becomes values")
    ranked = op.axes[0][position]
    op.mix(ranked)
    axes = [pinned(n, reason) if k == position else op.axes[0][k] for k, n in enumerate(op.out_shapes[0])]
    return [Typed(tuple(axes)), indices_into(op, ranked, axes, "its order becomes values")]


def window(op: Operation) -> Axes:
    """Pooling: axes with a window of one are free, the others keep their order."""
    reason = op.reason("its order matters to a window")
    sizes = zip(*(op.params[name] for name in _OF_WINDOWS), map(tuple, op.params["padding"]), strict=True)
    out = [
        term
        if size == (1, 1, 1, (0, 0))
        else in_another_order(op, term, n, reason, varies=n != term.size or op.name in _VARIES)
        for term, size, n in zip(op.axes[0], sizes, op.out_shapes[0], strict=True)
    ]
    return [out for _ in op.out_shapes]


_OF_WINDOWS = ("window_dimensions", "window_strides", "base_dilation")
# a running sum of equal entries is not uniform
_VARIES = ("cumsum", "cumprod", "cumlogsumexp", "reduce_window", "reduce_window_sum")
