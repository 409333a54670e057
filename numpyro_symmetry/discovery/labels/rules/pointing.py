r"""Rules for values that are indices of an axis: where the largest entry stands, which those of the largest two are.

Relabelling the axis relabels them: :math:`v(g\theta) = g^{-1}(v(\theta))`. So an axis of counted labels that they are
compared with, or an axis that they point into, is that axis; whatever else reads them as numbers tells its indices
apart. Knows terms and single operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from numpyro_symmetry.discovery.labels.rules.elementwise import Axes, elementwise
from numpyro_symmetry.discovery.labels.terms import Term, Uniform, is_uniform, pin, resolve
from numpyro_symmetry.discovery.labels.values import Known, Pointer, Typed, Value
from numpyro_symmetry.discovery.labels.walk import Operation, Rule

# operations that leave indices what they are, only elsewhere
_CARRIES = "broadcast_in_dim copy reshape slice squeeze stop_gradient transpose".split()


def indices_into(op: Operation, term: Term, axes: list[Term], text: str) -> Typed:
    """A value whose entries are indices of an axis; mere numbers if whole ones were ranked: the first of ties wins."""
    reason = op.reason(text)
    if np.dtype(op.equation.invars[0].aval.dtype).kind in "iub":
        pin(reason, term)
    # along a uniform axis the first index wins, wherever its entries are moved
    points = None if is_uniform(term) else Pointer(term, reason)
    return Typed(tuple(axes), points=points)


def pointer_of(value: Value | None, size: int) -> Term | None:
    """The axis of which a value's entries are indices, if there is one and it has ``size`` entries."""
    points = value.points if isinstance(value, Typed) else None
    return None if points is None or points.wrapped or points.axis.size != size else resolve(points.axis)


def pointed_at(op: Operation, columns: dict[int, Value], position: int) -> Term | None:
    """The axis whose indices point into an axis of the first operand: by a column, or by an only second operand."""
    alone = op.operands[1] if op.shapes[1][-1] == 1 else None
    return pointer_of(columns.get(position, alone), op.shapes[0][position])


def columns_of(indices: Value, positions: Sequence[int]) -> dict[int, Value]:
    """Axis -> the column of the indices that points into it; empty where the indices are not known column by column."""
    return dict(zip(positions, getattr(indices, "columns", None) or (), strict=False))


def is_pointed_at(op: Operation, columns: dict[int, Value], position: int) -> bool:
    """Whether indices of that very axis of the operand say where to look; else they are numbers."""
    if (own := pointed_at(op, columns, position)) is None:
        op.walk.read_as_numbers(columns.get(position, op.operands[1]))
        return False
    op.mix(op.meet(op.axes[0][position], own))
    return True


def as_numbers(op: Operation) -> Axes:
    """An elementwise operation, which reads indices of an axis as mere numbers."""
    op.walk.read_as_numbers(*op.operands)
    return elementwise(op)


def compared(op: Operation) -> Axes | list[Value]:
    """Whether an index is each of the labels counted along an axis: that axis is the one it points into."""
    for pointer, counted in (op.operands, op.operands[::-1]):
        if isinstance(pointer, Typed) and isinstance(counted, Known):
            along = counted_along(np.asarray(counted.value), op.out_shapes[0])
            if along is None or not is_uniform(pointer.axes[along]):
                continue
            if (term := pointer_of(pointer, op.out_shapes[0][along])) is not None:
                axes = zip([*pointer.axes[:along], term, *pointer.axes[along + 1 :]], op.out_shapes[0], strict=True)
                return [Typed(tuple(axis if axis.size == n else Uniform(n) for axis, n in axes))]
    return as_numbers(op)


def counted_along(labels: np.ndarray, shape: tuple[int, ...]) -> int | None:
    """The axis along which an array is 0, 1, 2, …, and varies along no other."""
    if labels.ndim != len(shape):
        return None
    for k, (n, counted) in enumerate(zip(shape, np.indices(shape, sparse=True), strict=True)):
        if n > 1 and labels.shape[k] == n and (labels == counted).all():
            return k
    return None


def below(op: Operation) -> Axes | list[Value]:
    """Whether an index is below zero, as JAX asks before it counts from the end: it never is."""
    first, second = op.operands
    if _points(first) and isinstance(second, Known) and not np.any(second.value):
        return [Known(np.zeros(op.out_shapes[0], bool))]
    return as_numbers(op)


def wrapped(op: Operation) -> Axes | list[Value]:
    """An index plus the size of its axis, which JAX takes in place of one below zero: remembered, and never taken."""
    first, second = op.operands
    if _points(first) and isinstance(second, Known) and np.all(np.asarray(second.value) == first.points.axis.size):  # pyright: ignore
        (axes,) = elementwise(op)
        return [Typed(tuple(axes), points=first.points._replace(wrapped=True))]  # pyright: ignore
    return as_numbers(op)


def _points(value: Value) -> bool:
    return isinstance(value, Typed) and value.points is not None and not value.points.wrapped


def carrying(rule: Rule) -> Rule:
    """A rule that moves entries about, and leaves what they point into."""

    def carried(op: Operation) -> list[Value]:
        points = op.operands[0].points if isinstance(op.operands[0], Typed) else None
        results = [x if isinstance(x, Known | Typed) else Typed(tuple(x)) for x in rule(op)]
        return [x._replace(points=points) if isinstance(x, Typed) else x for x in results]

    return carried


def converted(op: Operation) -> Sequence[list[Term] | Value]:
    """Whole numbers of another size are the same indices."""
    return carrying(elementwise)(op) if np.dtype(op.params["new_dtype"]).kind in "iu" else as_numbers(op)


POINTING: dict[str, Rule] = {"add": wrapped, "convert_element_type": converted, "eq": compared, "lt": below}


def with_pointers(rules: dict[str, Rule]) -> dict[str, Rule]:
    """Rules of which some know indices of axes: to all others these are numbers."""
    return rules | POINTING | {name: carrying(rules[name]) for name in _CARRIES if name in rules}
