"""Rules for products, convolutions and factors of matrices. Knows terms and single operations."""

from __future__ import annotations

import functools

from numpyro_symmetry.discovery.labels.rules.elementwise import (
    Axes,
    unknown,
)
from numpyro_symmetry.discovery.labels.terms import (
    Product,
    Term,
    Uniform,
    axis,
    pin,
    pinned,
    resolve,
)
from numpyro_symmetry.discovery.labels.values import Typed
from numpyro_symmetry.discovery.labels.walk import Operation


def contraction(op: Operation) -> Axes:
    """Matrix products: contracted axes become the same and go, as do those of a batch, which stay."""
    (left_gone, right_gone), (left_batch, right_batch) = op.params["dimension_numbers"]
    left, right = op.axes
    gone = [op.meet(left[a], right[b]) for a, b in zip(left_gone, right_gone, strict=True)]
    batch = [op.meet(left[a], right[b]) for a, b in zip(left_batch, right_batch, strict=True)]
    free = [t for k, t in enumerate(left) if k not in (*left_gone, *left_batch)]
    free += [t for k, t in enumerate(right) if k not in (*right_gone, *right_batch)]
    # the products that are summed stand nowhere in the program
    op.walk.see(Typed((*batch, *free, *gone)))
    return [batch + free]


def convolution(op: Operation) -> Axes:
    """Channels as in a matrix product, group by group; places in the image keep their order."""
    numbers, groups = op.params["dimension_numbers"], op.params["feature_group_count"]
    image, kernel = op.axes
    if op.params["batch_group_count"] != 1:
        return unknown(op)
    out: list[Term] = [Uniform(n) for n in op.out_shapes[0]]
    batch, channel, *places = numbers.lhs_spec
    kernel_out, kernel_in, *windows = numbers.rhs_spec
    out[numbers.out_spec[0]], out[numbers.out_spec[1]] = image[batch], kernel[kernel_out]
    summed = kernel[kernel_in]
    if groups == 1:
        summed = op.meet(image[channel], kernel[kernel_in])
    else:
        group = axis(groups)
        op.meet(image[channel], resolve(Product([group, kernel[kernel_in]])))
        channels = resolve(Product([group, axis(op.shapes[1][kernel_out] // groups)]))
        out[numbers.out_spec[1]] = op.meet(kernel[kernel_out], channels)
    reason = op.reason("its order matters to a convolution")
    for place, window, result in zip(places, windows, numbers.out_spec[2:], strict=True):
        pin(reason, image[place], kernel[window])
        out[result] = pinned(out[result].size, reason)
    # the products that are summed stand nowhere in the program, and places are mixed
    op.walk.see(Typed((out[numbers.out_spec[0]], out[numbers.out_spec[1]], summed)))
    return [out]


def factorisation(op: Operation) -> Axes:
    """Factors of a matrix: a relabelled matrix has other ones, though what is made of them may be the same."""
    reason = op.reason(f"goes through {op.name}, for which there is no rule", "no rule")
    if len({len(axes) for axes in op.axes}) > 1:
        return unknown(op)
    for number, axes in enumerate(op.axes):
        for term in axes[-2:]:
            op.mix(term, operand=number)
    batch = [functools.reduce(op.meet, terms) for terms in zip(*(axes[:-2] for axes in op.axes), strict=True)]
    if op.name == "triangular_solve":
        # each column of the right-hand side is solved on its own
        matrix, side = op.axes
        solved, free = (-2, -1) if op.params["left_side"] else (-1, -2)
        pin(reason, *matrix[-2:], side[solved])
        out = [*batch, side[-2], side[-1]]
        out[solved] = pinned(side[solved].size, reason)
        op.walk.shadows += [(term, other) for term in matrix[-2:] for other in (side[solved], out[solved])]
        return [out]
    pin(reason, *(term for axes in op.axes for term in axes[-2:]))
    results = [batch + [pinned(n, reason) for n in shape[len(batch) :]] for shape in op.out_shapes]
    if op.name == "cholesky":
        op.walk.shadows += zip(op.axes[0][-2:], results[0][-2:], strict=True)
    return results
