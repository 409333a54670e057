"""Rules on which others fall back: one entry at a time, or nothing known. Knows terms and single operations."""

from __future__ import annotations

import numpy as np

from numpyro_symmetry.discovery.labels.terms import (
    Reason,
    Term,
    Uniform,
    pin,
    pinned,
    reasons_of,
)
from numpyro_symmetry.discovery.labels.values import Known, Typed, Value, axes_of_constant
from numpyro_symmetry.discovery.labels.walk import Operation

Axes = list[list[Term]]


def elementwise(op: Operation) -> Axes:
    """One entry at a time: the axes of all operands become the same. Axes of size one are repeated."""
    out: list[Term] = [Uniform(n) for n in op.out_shapes[0]]
    if any(shape and not _fits(shape, op.out_shapes[0]) for shape in op.shapes):
        return unknown(op)
    for axes in filter(None, op.axes):
        for k, n in enumerate(op.out_shapes[0]):
            if axes[k].size == n:
                out[k] = op.meet(out[k], axes[k])
    return [out for _ in op.out_shapes]


def choice(op: Operation) -> Axes | list[Value]:
    """Chooses among values entry by entry; of constant whole numbers, labels mostly, the choice is remembered.

    So a masked density reads the labels of states where it counts, and any one of them where it does not.
    """
    which, *cases = op.operands
    if not (isinstance(which, Typed) and all(map(_holds_labels, cases))):
        return elementwise(op)
    reason = op.reason("its labels become values", "moved")
    axes = [axes_of_constant(case.value, reason) for case in cases if isinstance(case, Known)]
    (out,) = elementwise(op._replace(axes=[op.axes[0], *axes]))
    values = tuple(np.broadcast_to(case.value, op.out_shapes[0]) for case in cases if isinstance(case, Known))
    return [Typed(tuple(out), choice=(object(), values))]


def _holds_labels(operand: Value) -> bool:
    return isinstance(operand, Known) and isinstance(operand.value, np.ndarray) and operand.value.dtype.kind in "iu"


def random(op: Operation) -> Axes:
    """Numbers from a random key: each has its own, as data have, though two may coincide."""
    return pin_all(op, op.reason("drawn at random", "data"))


def unknown(op: Operation) -> Axes:
    """No rule: everything that enters is pinned, softly."""
    return pin_all(op, op.reason(f"goes through {op.name}, for which there is no rule", "no rule"))


def pin_all(op: Operation, reason: Reason) -> Axes:
    """Pin all that enters, and all that comes out."""
    terms = [term for axes in op.axes for term in axes]
    pin(reason, *terms)
    inherited = next((r for term in terms for r in reasons_of(term) if not r.soft), reason)
    return [[pinned(n, reason if reason.soft else inherited) for n in shape] for shape in op.out_shapes]


def _fits(shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Whether entries stand one for one; `lax.bitcast_convert_type` for one adds an axis of parts."""
    return len(shape) == len(out) and all(n in (1, m) for n, m in zip(shape, out, strict=True))
