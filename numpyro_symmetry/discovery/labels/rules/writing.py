"""Rules for scatters and slices that are overwritten. Knows terms and single operations."""

from __future__ import annotations

import math

import numpy as np

from numpyro_symmetry.discovery.labels import places
from numpyro_symmetry.discovery.labels.rules.elementwise import Axes, elementwise
from numpyro_symmetry.discovery.labels.rules.indexing import alone, part_of
from numpyro_symmetry.discovery.labels.rules.pointing import columns_of, pointed_at
from numpyro_symmetry.discovery.labels.terms import (
    Joined,
    Reason,
    Term,
    Uniform,
    coloured,
    is_uniform,
    pin,
    pinned,
    resolve,
    unify,
)
from numpyro_symmetry.discovery.labels.values import Known
from numpyro_symmetry.discovery.labels.walk import Operation, Rule


def dynamic_update_slice(op: Operation) -> Axes:
    """Overwrites a slice: axes it covers whole become the same, and a single other one is several put end to end.

    Where it covers parts of several axes, or starts nobody knows where, entries stay where they are.
    """
    out: list[Term] = []
    starts = op.operands[2:]
    in_part = [k for k, (whole, update) in enumerate(zip(*op.axes[:2], strict=True)) if whole.size != update.size]
    for k, (whole, update, start) in enumerate(zip(*op.axes[:2], starts, strict=True)):
        first = places.clamped(start.value, whole.size, update.size) if isinstance(start, Known) else None
        if k not in in_part:
            out.append(op.meet(whole, update))
        elif first is not None and in_part == [k]:
            out.append(_overwritten(op, whole, first, update))
        else:
            if first is not None:
                op.note(whole, first, first + update.size)
            reason = op.by_index("overwritten in part", *starts)
            pin(reason, update)
            out.append(_written_to(op, whole, reason))
    return [out]


def _overwritten(op: Operation, whole: Term, first: int, update: Term) -> Term:
    """An axis of which a slice is another value's: up to it, the other value's, and from there on."""
    before = [part_of(op, whole, 0, first)] if first else []
    stop = first + update.size
    return resolve(Joined([*before, update, *([part_of(op, whole, stop, whole.size)] if stop < whole.size else [])]))


def scatter(op: Operation) -> Axes:
    """Writing at indices: whole windows pass, and so does a vector along its own axis; axes pointed into are pinned."""
    (_, indices, updates), counted = op.operands, _update_numbers(op)
    if (
        not isinstance(indices, Known)
        or (numbered := places.numbered_by(op.params, op.shapes[0], indices.value, counted)) is None
    ):
        return [_at_indices(op)]
    # before labels change
    _note_written(op, numbered)
    if isinstance(updates, Known) and op.name == "scatter-add":
        values = np.asarray(updates.value)
        return _entrywise(
            op, places.SCATTERS[op.name](op.params, np.zeros(op.shapes[0], values.dtype), indices.value, values)
        )
    if (written := places.slice_numbered(numbered, counted)) is not None:
        return [_at_slice(op, *written)]
    if (position := _own_axis(op, numbered)) is not None:
        vector: list[Term] = [Uniform(n) for n in op.shapes[0]]
        vector[position] = next(term for term in op.axes[2] if not is_uniform(term))
        return _entrywise(op, np.minimum(numbered, 1), vector)
    return [_at_indices(op)]


def _entrywise(op: Operation, constant: np.ndarray, *others: list[Term]) -> Axes:
    """Labels of what is made entry by entry of the operand, a constant of its shape and other values of it."""
    axes = [op.axes[0], op.walk.axes(Known(constant), op.shapes[0], op.source), *others]
    return elementwise(op._replace(axes=axes, shapes=op.shapes[:1] * len(axes)))


def _own_axis(op: Operation, numbered: np.ndarray) -> int | None:
    """The axis of the operand of which each index is written from the same index of a vector, as on a diagonal."""
    sizes = [term.size for term in op.axes[2] if not is_uniform(term)]
    fitting = (k for k, size in enumerate(op.shapes[0]) if sizes == [size])
    return next((k for k in fitting if _is_in_order(np.moveaxis(numbered, k, -1))), None)


def _is_in_order(numbered: np.ndarray) -> bool:
    """Whether every entry has the number of its index along the last axis, counted from one, or none."""
    return bool((numbered == np.where(numbered, 1 + np.arange(numbered.shape[-1]), 0)).all())


def _at_slice(op: Operation, position: int, first: int, size: int) -> list[Term]:
    """Labels where a slice of one axis is written to, the other axes whole and in order."""
    operand, updates = op.axes[0], [term for term in op.axes[2] if term.size > 1]
    held = op.axes[0][position]
    own = [k for k, term in enumerate(operand) if (size if k == position else term.size) > 1]
    for k, term in zip(own, updates, strict=True):
        if k != position:
            operand[k] = op.meet(operand[k], term)
        else:
            part = term if op.name == "scatter" else op.meet(part_of(op, held, first, first + size), term)
            operand[k] = _overwritten(op, held, first, part)
    if size == 1:
        reason = op.reason("one index is written to", "moved")
        operand[position] = unify(coloured(held.size, alone(held.size, first), reason), held, reason)
    return operand


def _at_indices(op: Operation) -> list[Term]:
    (_, indices, _), (operand, _, update) = op.operands, op.axes
    windows = places.windows_of(op.params, len(operand))
    out, written = list(operand), op.by_index("written at an index", indices)
    for k, j in windows.along.items():
        if operand[k].size == update[j].size:
            out[k] = op.meet(operand[k], update[j])
        else:
            op.walk.read_as_numbers(indices)
            pin(written, update[j])
            out[k] = _written_to(op, operand[k], written)
    columns = columns_of(indices, windows.pointed)
    for k in windows.single:
        if (own := pointed_at(op, columns, k)) is not None:
            out[k] = op.meet(operand[k], own)
        else:
            op.walk.read_as_numbers(columns.get(k, indices))
            out[k] = _written_to(op, operand[k], written)
    # every index says where its own update goes
    batches = {i: k for k, i in windows.batching.items()}
    along = [j for j in range(len(update)) if j not in windows.along.values()]
    for i, (j, index) in enumerate(zip(along, op.axes[1][:-1], strict=True)):
        varies = not is_uniform(update[j])
        if i not in batches:
            op.mix(index, operand=1)
            op.mix(update[j], operand=2)
        both = op.meet(index, update[j])
        if i in batches:
            out[batches[i]] = op.meet(out[batches[i]], both)
        elif op.name == "scatter" and varies and not op.params.get("unique_indices"):
            # of two updates of one place, the last one stays
            pin(written, both)
    return out


def _written_to(op: Operation, term: Term, reason: Reason) -> Term:
    """An axis some of whose indices are written to: pinned, and every index where it was."""
    if is_uniform(term):
        return pinned(term.size, reason)
    op.mix(term)
    pin(reason, term)
    return resolve(term)


def _update_numbers(op: Operation) -> np.ndarray:
    """The entries of the updates, counted from one; along axes on which they do not vary all are one."""
    sizes = [1 if is_uniform(term) else term.size for term in op.axes[2]]
    return np.broadcast_to(1 + np.arange(math.prod(sizes)).reshape(sizes), op.shapes[2])


def _note_written(op: Operation, numbered: np.ndarray) -> None:
    """Note the parts of latent axes that are written to."""
    for k, term in enumerate(op.axes[0]):
        along = np.moveaxis(numbered, k, 0).reshape(term.size, -1).any(1).astype(int)
        starts, stops = (np.flatnonzero(np.diff(along, prepend=0, append=0) == step) for step in (1, -1))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            op.note(term, start, stop)


WRITING: dict[str, Rule] = {
    **dict.fromkeys(places.SCATTERS, scatter),
    "dynamic_update_slice": dynamic_update_slice,
}
