"""Rules on which others fall back: one entry at a time, or nothing known. Knows terms and single operations."""

from __future__ import annotations

from numpyro_symmetry.discovery.interpreter import Operation
from numpyro_symmetry.discovery.terms import Reason, Term, Uniform, atoms_of, pin, pinned, unify

Axes = list[list[Term]]


def elementwise(op: Operation) -> Axes:
    """One entry at a time: the axes of all operands become the same. Axes of size one are repeated."""
    out: list[Term] = [Uniform(n) for n in op.out_shapes[0]]
    if any(shape and not _fits(shape, op.out_shapes[0]) for shape in op.shapes):
        return unknown(op)
    for axes in filter(None, op.axes):
        for k, n in enumerate(op.out_shapes[0]):
            if axes[k].size == n:
                out[k] = unify(out[k], axes[k], op.reason("two axes meet", "moved"))
    return [out for _ in op.out_shapes]


def unknown(op: Operation) -> Axes:
    """No rule: everything that enters is pinned, softly."""
    return pin_all(op, op.reason(f"goes through {op.name}, for which there is no rule", "no rule"))


def pin_all(op: Operation, reason: Reason) -> Axes:
    """Pin all that enters, and all that comes out."""
    for axes in op.axes:
        for term in axes:
            pin(term, reason)
    inherited = next(
        (r for axes in op.axes for t in axes for a in atoms_of(t) for r in a.reasons if not r.soft), reason
    )
    return [[pinned(n, inherited if not reason.soft else reason) for n in shape] for shape in op.out_shapes]


def _fits(shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Whether entries stand one for one; `lax.bitcast_convert_type` for one adds an axis of parts."""
    return len(shape) == len(out) and all(n in (1, m) for n, m in zip(shape, out, strict=True))
