"""Rules for slices, joins and gathers. Knows terms and single operations."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from numpyro_symmetry.discovery.labels import places
from numpyro_symmetry.discovery.labels.rules.elementwise import Axes
from numpyro_symmetry.discovery.labels.rules.pointing import columns_of, counted_along, is_pointed_at, pointer_of
from numpyro_symmetry.discovery.labels.rules.shape import reshape
from numpyro_symmetry.discovery.labels.terms import (
    Joined,
    Product,
    Reason,
    Term,
    Uniform,
    coloured,
    cut,
    impose,
    is_uniform,
    line_along,
    pin,
    pinned,
    reasons_of,
    resolve,
    unify,
    varying,
)
from numpyro_symmetry.discovery.labels.values import (
    Dependence,
    Known,
    Membership,
    Typed,
    Value,
)
from numpyro_symmetry.discovery.labels.walk import Operation, Rule


def slice_(op: Operation) -> Axes:
    """A slice makes an axis several put end to end; one with a stride takes every so many-th index."""
    strides = op.params["strides"] or (1,) * len(op.shapes[0])
    return [
        [
            in_steps(op, term, start, stride, n, "sliced by steps")
            for term, start, stride, n in zip(
                op.axes[0], op.params["start_indices"], strides, op.out_shapes[0], strict=True
            )
        ]
    ]


def split(op: Operation) -> list[Typed]:
    """Several slices at once."""
    position, results = op.params["axis"], []
    for start, stop in itertools.pairwise([0, *itertools.accumulate(op.params["sizes"])]):
        axes, alone = list(op.axes[0]), op._replace(pieces=set())
        axes[position] = part_of(alone, axes[position], start, stop)
        results.append(Typed(tuple(axes), pieces=frozenset(alone.pieces)))
    return results


def part_of(op: Operation, term: Term, start: int, stop: int) -> Term:
    """The label of a slice, which is noted as a piece."""
    op.note(term, start, stop)
    return cut(term, start, stop, op.reason("sliced", "moved"))


def in_steps(op: Operation, term: Term, start: int, stride: int, size: int, why: str) -> Term:
    """The label of every ``stride``-th index, which makes the axis a product of units and of the places in each.

    Of gates that stand in turns, or of real and imaginary parts: as if the axis had been reshaped, and then indexed.
    Indices one after another are a slice; others, and those of no one ``stride`` (0), are in an order of their own.
    """
    if stride == 1:
        return part_of(op, term, start, start + size)
    if start >= stride or size * stride != term.size or is_uniform(term):
        return in_another_order(op, term, size, why)
    ((units, place),) = reshape(op._replace(axes=[[term]], out_shapes=[(size, stride)]))
    _index(op, place, start, op.reason(why, "moved"))
    return units


def _index(op: Operation, term: Term, index: int, reason: Reason) -> None:
    """Take one index of an axis on its own: it gets a colour of its own."""
    op.note(term, index, index + 1)
    impose(term, alone(term.size, index), reason)


def alone(size: int, index: int) -> np.ndarray:
    """Colours that tell one index from all others."""
    return (np.arange(size) == index).astype(int)


def concatenate(op: Operation) -> list[Value]:
    """Axes put end to end; the others become the same."""
    position = op.params["dimension"]
    out = [
        resolve(Joined(terms)) if k == position else functools.reduce(op.meet, terms)
        for k, terms in enumerate(zip(*op.axes, strict=True))
    ]
    columns = tuple(op.operands) if position == len(out) - 1 and all(s[-1] == 1 for s in op.shapes) else None
    if columns is None:
        op.walk.read_as_numbers(*op.operands)
    return [Typed(tuple(out), columns)]


def stack(op: Operation) -> list[list[Term]]:
    """A new axis, each of whose indices comes from another value."""
    position = op.params["axis"]
    out = [functools.reduce(op.meet, terms) for terms in zip(*op.axes, strict=True)]
    out.insert(position, pinned(op.out_shapes[0][position], op.reason("stacked from several values", "moved")))
    return [out]


def pad(op: Operation) -> Axes:
    """A constant before and after; or less than nothing, which is a slice."""
    out: list[Term] = []
    for term, (low, high, between), n in zip(op.axes[0], op.params["padding_config"], op.out_shapes[0], strict=True):
        start, stop = max(-low, 0), term.size + min(high, 0)
        if between == 0 and start < stop:
            kept = term if (start, stop) == (0, term.size) else part_of(op, term, start, stop)
            out.append(resolve(Joined([Uniform(max(low, 0)), kept, Uniform(max(high, 0))])))
        elif min(low, high) >= 0 and low + high == between:
            # every so many-th index is one of what was there, as derivatives of slices by steps have it
            place = coloured(between + 1, alone(between + 1, low), op.reason("padded between", "moved"))
            out.append(resolve(Product([term, place])))
        else:
            out.append(in_another_order(op, term, n, "padded between", varies=True))
    return [out]


def reverse(op: Operation) -> list[list[Term]]:
    """The order of an axis is turned around."""
    turned = op.params["dimensions"]
    return [
        [
            in_another_order(op, term, term.size, "its order is reversed") if k in turned else term
            for k, term in enumerate(op.axes[0])
        ]
    ]


def unstack(op: Operation) -> list[Typed]:
    """Each index of an axis on its own."""
    position = op.params["axis"]
    slices = split(op._replace(params={"axis": position, "sizes": (1,) * len(op.out_shapes)}))
    return [value._replace(axes=value.axes[:position] + value.axes[position + 1 :]) for value in slices]


def tile(op: Operation) -> list[list[Term]]:
    """An axis repeated as a whole."""
    repeats = op.params["reps"]
    new: list[Term] = [Uniform(1)] * (len(repeats) - len(op.axes[0]))
    return [[resolve(Product([Uniform(n), term])) for n, term in zip(repeats, [*new, *op.axes[0]], strict=True)]]


def dynamic_slice(op: Operation) -> Axes:
    """A slice whose start may depend on the data."""
    out: list[Term] = []
    starts = op.operands[1:]
    for term, n, start in zip(op.axes[0], op.out_shapes[0], starts, strict=True):
        if n == term.size:
            out.append(term)
        elif n == 1 and (own := pointer_of(start, term.size)) is not None:
            op.mix(op.meet(term, own))
            out.append(Uniform(1))
        elif isinstance(start, Known):
            first = places.clamped(start.value, term.size, n)
            out.append(part_of(op, term, first, first + n))
        else:
            op.walk.read_as_numbers(start)
            reason = _pointed(op, start)
            out.append(in_another_order(op, term, n, reason))
            if start.origin == Dependence.COUNTED:
                op.walk.count_through(term, reason)
    return [out]


def gather(op: Operation) -> Axes:
    """Indexing: constant indices are followed; others pin the axis they point into."""
    indices = op.operands[1]
    if isinstance(indices, Typed) and indices.choice is not None:
        # indices chosen among constants: gather at each of the constants, and unify the results
        each = [gather(_at(op, constant))[0] for constant in indices.choice[1]]
        return [[functools.reduce(op.meet, map(resolve, terms)) for terms in zip(*each, strict=True)]]
    if isinstance(indices, Known) and math.prod(op.out_shapes[0]) <= places.MAX_FOLLOWED:
        return [_follow(op, np.asarray(indices.value))]
    operand, shape, sizes = op.axes[0], op.shapes[0], op.params["slice_sizes"]
    pointed, windows = _pointed(op, indices), places.windows_of(op.params, len(shape))
    columns = columns_of(indices, windows.pointed)
    index_axes = _index_axes(op, list(columns.values()))
    for k, b in windows.batching.items():
        index_axes[b] = op.meet(index_axes[b], operand[k])
    out: list[Term] = [Uniform(n) for n in op.out_shapes[0]]
    batch = [k for k in range(len(out)) if k not in windows.along.values()]
    for k, term in zip(batch, index_axes, strict=True):
        out[k] = term
    for k, j in windows.along.items():
        if sizes[k] == shape[k]:
            out[j] = operand[k]
        elif sizes[k] != 1 or not is_pointed_at(op, columns, k):
            out[j] = in_another_order(op, operand[k], out[j].size, pointed)
    for k in windows.single:
        if (axis := _axis_counting(columns.get(k), shape[k])) is not None:
            out[batch[axis]] = op.meet(out[batch[axis]], operand[k])
        elif not is_pointed_at(op, columns, k):
            pin(pointed, operand[k])
            _point(op, index_axes, operand[k], columns.get(k, indices), pointed)
            if indices.origin == Dependence.COUNTED:
                op.walk.count_through(operand[k], pointed)
    return [out]


def _at(op: Operation, indices: np.ndarray) -> Operation:
    """The same operation at constant indices."""
    known = Known(indices)
    axes = [op.axes[0], op.walk.axes(known, indices.shape), *op.axes[2:]]
    return op._replace(operands=[op.operands[0], known, *op.operands[2:]], axes=axes, pieces=set())


def _index_axes(op: Operation, columns: list[Value]) -> list[Term]:
    """Labels of the axes of the indices: where some columns are constant, those of the others."""
    varying = [column.axes[:-1] for column in columns if isinstance(column, Typed)] or [op.axes[1][:-1]]
    return [functools.reduce(op.meet, terms) for terms in zip(*varying, strict=True)]


def _axis_counting(indices: Value | None, size: int) -> int | None:
    """The axis along which constant indices count through an axis they point into, if they do."""
    if not isinstance(indices, Known):
        return None
    places = indices.value[..., 0]
    axis = counted_along(places, places.shape)
    return axis if axis is not None and places.shape[axis] == size else None


def _pointed(op: Operation, indices: Value) -> Reason:
    """Why an axis that indices point into is pinned."""
    counted = indices.origin == Dependence.COUNTED
    return op.by_index("indexed by the counter of a loop" if counted else "indexed by a value", indices)


def _point(op: Operation, index_axes: list[Term], target: Term, indices: Value, reason: Reason) -> None:
    """Remember that each entry of the one axis along which data indices vary belongs to an entry of the target."""
    varying = [term for term in index_axes if not is_uniform(term)]
    if len(varying) != 1 or indices.tag is None:
        op.mix(target)
    else:
        for found in op.walk.memberships:
            if found.tag == indices.tag and found.owner.size == target.size:
                target = unify(target, found.owner, reason)
        op.walk.memberships.append(Membership(varying[0], target, indices.tag))


def _follow(op: Operation, indices: np.ndarray) -> list[Term]:
    """Labels of a gather at constant indices: where its entries come from, one axis of the operand at a time."""
    operand, shape, reason = op.axes[0], op.shapes[0], op.reason("indexed", "moved")
    out: list[Term] = [Uniform(n) for n in op.out_shapes[0]]
    # entries that are filled in come from nowhere, whatever they are filled with
    params = op.params | {"fill_value": -1}
    for k, n in enumerate(shape):
        if n == 1:
            continue
        numbered = np.arange(n, dtype=np.int32).reshape([-1 if j == k else 1 for j in range(len(shape))])
        source = places.gather(params, np.broadcast_to(numbered, shape), indices)
        is_filled = (source < 0).any()
        moving = list(range(len(out))) if is_filled else varying(source)
        if is_filled or len(moving) > 1:
            op.mix(operand[k])
            pin(reason, operand[k])
            for j in moving:
                out[j] = unify(out[j], pinned(op.out_shapes[0][j], reason), reason)
        elif not moving:
            if source.size:
                _index(op, operand[k], int(source.reshape(-1)[0]), reason)
        else:
            (j,) = moving
            line = line_along(source, j)
            steps = set(np.diff(line).tolist())
            stride = steps.pop() if len(steps) == 1 else 0
            taken = in_steps(op, operand[k], int(line[0]), stride, len(line), "indexed in another order")
            out[j] = unify(out[j], taken, reason)
    return out


def in_another_order(op: Operation, term: Term, size: int, why: str | Reason, *, varies: bool = False) -> Term:
    """An axis of which something is taken in an order of its own: pinned, unless nothing varies along it."""
    if is_uniform(term) and not varies:
        return Uniform(size)
    reason = op.reason(why, "moved") if isinstance(why, str) else why
    # data in another order are data
    met = next((r for r in reasons_of(term) if r.strength == "data"), reason)
    op.mix(term)
    pin(reason, term)
    return pinned(size, met)


INDEXING: dict[str, Rule] = {
    "concatenate": concatenate,
    "dynamic_slice": dynamic_slice,
    "gather": gather,
    "pad": pad,
    "rev": reverse,
    "slice": slice_,
    "split": split,
    "stack": stack,
    "tile": tile,
    "unstack": unstack,
}
