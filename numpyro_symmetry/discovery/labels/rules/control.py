"""Rules for loops and branches, which walk inner programs. Knows terms and single operations."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from numpyro_symmetry.discovery.labels.folding import branches_taken, constant_results
from numpyro_symmetry.discovery.labels.terms import (
    Term,
    axis,
    pin,
)
from numpyro_symmetry.discovery.labels.values import (
    Dependence,
    Known,
    Segment,
    Typed,
    Value,
)
from numpyro_symmetry.discovery.labels.walk import Operation, Rule
from numpyro_symmetry.models.compat import body_of, equations, scan_counts
from numpyro_symmetry.models.reach import NOTHING, dependencies_of_scan


def scan(op: Operation) -> list[Value]:
    """A loop over the first axis of some operands; its steps have an order where what is carried along changes."""
    params = op.params
    num_consts, num_carry = scan_counts(params)
    walk, start = op.walk, num_consts + num_carry
    kept = _kept_constants(op, num_consts, num_carry)
    counters = _counters(op, num_consts, num_carry)
    carry = [kept.get(k) or _fresh(op, k) for k in range(num_consts, start)]
    entering = [
        value._replace(origin=Dependence.COUNTED) if k in counters and isinstance(value, Typed) else value
        for k, value in enumerate(carry, num_consts)
    ]
    steps: Term = axis(params["length"])
    for axes in op.axes[start:]:
        steps = op.meet(steps, axes[0])
    if len(kept) < num_carry:
        pin(op.reason("a loop goes through it in order", "moved"), steps)
    before, counted = walk.cells, walk.counted
    # within the loop every value stands for one step, except what is carried from one to the next
    for value in carry:
        walk.see(value)
    walk.cells, walk.counted = (*before, steps), [] if counted is None else counted
    # a step's part of a constant is one constant, though not a known one
    scanned = [
        Typed(tuple(axes[1:]), origin=operand.origin)
        for axes, operand in zip(op.axes[start:], op.operands[start:], strict=True)
    ]
    out = walk.run_apart(params["jaxpr"], [*op.operands[:num_consts], *entering, *scanned])
    walk.cells, walk.counted = before, counted
    _join(op, carry, out[:num_carry])
    stacked = [
        Known(np.broadcast_to(value.value, shape))
        if isinstance(value, Known)
        else Typed((steps, *walk.axes(value, shape[1:], op.source)))
        for value, shape in zip(out[num_carry:], op.out_shapes[num_carry:], strict=True)
    ]
    results = [*carry, *stacked]
    # an axis that every step takes apart shows at any point that is tried; one that a branch takes apart may not
    return _with_pieces(results, out) if _may_turn(params["jaxpr"]) else results


def while_(op: Operation) -> list[Value]:
    """A loop until a condition fails."""
    walk, params = op.walk, op.params
    num_condition, num_body = params["cond_nconsts"], params["body_nconsts"]
    start = num_condition + num_body
    carry = [_fresh(op, k) for k in range(start, len(op.operands))]
    out = walk.run_apart(params["body_jaxpr"], [*op.operands[num_condition:start], *carry])
    _join(op, carry, out)
    walk.run_apart(params["cond_jaxpr"], [*op.operands[:num_condition], *carry])
    return _with_pieces(carry, out)


def conditional(op: Operation) -> list[Value]:
    """Branches: each must give the same labels, and whatever parts one of them takes, the result is made of."""
    walk, (which, *operands) = op.walk, op.operands
    branches = branches_taken(op.params, which if isinstance(which, Known) else None)
    results: list[Value] = []
    for shape, *values in zip(op.out_shapes, *(walk.run_apart(branch, operands) for branch in branches), strict=True):
        axes = zip(*(walk.axes(value, shape, op.source) for value in values), strict=True)
        pieces = frozenset[Segment]().union(*(value.pieces for value in values))
        results.append(Typed(tuple(functools.reduce(op.meet, terms) for terms in axes), pieces=pieces))
    return results


def _fresh(op: Operation, position: int) -> Typed:
    """The labels of a carried value: it varies along all axes, as the loop makes it anew."""
    return Typed(tuple(op.meet(axis(term.size), term) for term in op.axes[position]))


def _kept_constants(op: Operation, num_consts: int, num_carry: int) -> dict[int, Known]:
    """Position -> carried value that stays a constant, as every step makes it anew: such as the values of a label."""
    kept = {k: v for k, v in enumerate(op.operands) if k < num_consts + num_carry and isinstance(v, Known)}
    while True:
        results = constant_results(op.params["jaxpr"], [kept.get(k) for k in range(len(op.operands))])
        changed = [
            k
            for k, result in enumerate(results[:num_carry], num_consts)
            if k in kept and (result is None or result.tag != kept[k].tag)
        ]
        if not changed:
            return {k: value for k, value in kept.items() if k >= num_consts}
        kept = {k: value for k, value in kept.items() if k not in changed}


def _counters(op: Operation, num_consts: int, num_carry: int) -> set[int]:
    """Positions of carried values that constants and the number of the step determine."""
    reached = [
        NOTHING if operand.origin == Dependence.COUNTED else frozenset([k]) for k, operand in enumerate(op.operands)
    ]
    carried = dependencies_of_scan(op.params, reached)[:num_carry]
    return {k for k, others in enumerate(carried, num_consts) if not others}


def _may_turn(closed: Any) -> bool:
    """Whether a program has a branch, or a loop until a condition fails, anywhere within."""
    return any(equation.primitive.name in ("cond", "while") for equation in equations(body_of(closed)))


def _with_pieces(results: Sequence[Value], out: Sequence[Value]) -> list[Value]:
    """A loop's results, made of whatever parts one of its turns took: each carries on what the last one made."""
    pieces = frozenset().union(*(value.pieces for value in out))
    return [value._replace(pieces=pieces) if isinstance(value, Typed) else value for value in results]


def _join(op: Operation, carry: Sequence[Value], out: list[Value]) -> None:
    for before, after in zip(carry, out, strict=True):
        if isinstance(before, Known):
            continue
        shape = tuple(term.size for term in before.axes)
        for a, b in zip(before.axes, op.walk.axes(after, shape, op.source), strict=True):
            op.meet(a, b)


CONTROL: dict[str, Rule] = {"cond": conditional, "scan": scan, "while": while_}
