"""Rules for axes that are moved, added, dropped, flattened. Knows terms and single operations."""

from __future__ import annotations

import math

from numpyro_symmetry.discovery.labels.places import order_read
from numpyro_symmetry.discovery.labels.rules.elementwise import Axes, pin_all
from numpyro_symmetry.discovery.labels.terms import Product, Term, Uniform, factors, resolve
from numpyro_symmetry.discovery.labels.values import Value
from numpyro_symmetry.discovery.labels.walk import Operation


def transpose(op: Operation) -> Axes:
    """Axes in another order."""
    return [[op.axes[0][k] for k in op.params["permutation"]]]


def squeeze(op: Operation) -> Axes:
    """Axes of size one go."""
    return [[term for k, term in enumerate(op.axes[0]) if k not in op.params["dimensions"]]]


def broadcast(op: Operation) -> Axes:
    """New axes, along which nothing varies."""
    out: list[Term] = [Uniform(n) for n in op.params["shape"]]
    for term, position in zip(op.axes[0], op.params["broadcast_dimensions"], strict=True):
        if term.size == out[position].size:
            out[position] = term
    return [out]


def reshape(op: Operation) -> Axes:
    """Axes flattened, or one taken for several flattened ones."""
    (shape,), reason = op.out_shapes, op.reason("reshaped so that its parts do not fit", "moved")
    if 0 in shape:
        return [[Uniform(n) for n in shape]]
    read = [op.axes[0][k] for k in order_read(op.params, len(op.axes[0]))]
    parts, left = factors([term for term in read if term.size > 1], [Uniform(n) for n in shape if n > 1], reason)
    if left:
        return pin_all(op, reason)
    out: list[Term] = []
    for n in shape:
        taken: list[Term] = []
        while math.prod(term.size for term in taken) < n:
            taken.append(parts.pop(0))
        out.append(resolve(Product(taken)))
    return [out]


def barrier(op: Operation) -> list[Value]:
    """An operation that only orders a program: its results are its operands."""
    return op.operands
