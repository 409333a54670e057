"""Rules for scatters and slices that are overwritten. Knows terms and single operations."""

from __future__ import annotations

import math

import numpy as np

from numpyro_symmetry.discovery.labels import places
from numpyro_symmetry.discovery.labels.rules.elementwise import Axes, elementwise
from numpyro_symmetry.discovery.labels.rules.indexing import MAX_FOLLOWED
from numpyro_symmetry.discovery.labels.rules.pointing import columns_of, pointed_at
from numpyro_symmetry.discovery.labels.terms import (
    Reason,
    Term,
    coloured,
    is_uniform,
    line_along,
    pin,
    pinned,
    resolve,
    unify,
    varying,
)
from numpyro_symmetry.discovery.labels.values import Known, Origin
from numpyro_symmetry.discovery.labels.walk import Operation, Rule


def dynamic_update_slice(op: Operation) -> Axes:
    """Overwrites a slice: axes it covers whole become the same."""
    out: list[Term] = []
    for whole, update, start in zip(op.axes[0], op.axes[1], op.operands[2:], strict=True):
        if whole.size == update.size:
            out.append(op.meet(whole, update))
            continue
        if isinstance(start, Known):
            first = int(np.clip(int(start.value), 0, whole.size - update.size))
            op.note(whole, first, first + update.size)
        reason = op.by_index("overwritten in part", *op.operands[2:])
        pin(update, reason)
        out.append(_written_to(op, whole, reason))
    return [out]


def scatter(op: Operation) -> Axes:
    """Writing at indices: whole windows pass, the axes pointed into are pinned."""
    # before labels change
    _note_written(op)
    return [_scattered(op)]


def _scattered(op: Operation) -> list[Term]:
    indices, updates = op.operands[1:3]
    is_small, is_sum = math.prod(op.shapes[0]) <= MAX_FOLLOWED, op.name in ("scatter-add", "scatter_add")
    if isinstance(indices, Known) and isinstance(updates, Known) and is_small and is_sum:
        values = np.asarray(updates.value)
        added = Known(places.SCATTERS[op.name](op.params, np.zeros(op.shapes[0], values.dtype), indices.value, values))
        terms = op.walk.axes(added, op.shapes[0], op.source)
        (out,) = elementwise(op._replace(axes=[op.axes[0], terms], shapes=op.shapes[:1] * 2))
        return out
    numbers, operand, update = op.params["dimension_numbers"], op.axes[0], op.axes[2]
    if isinstance(indices, Known) and (written := _written(op)) is not None:
        position, colours = written
        rest = [k for k, term in enumerate(operand) if k != position and term.size > 1]
        for k, term in zip(rest, [term for term in update if term.size > 1], strict=True):
            operand[k] = op.meet(operand[k], term)
        alone = coloured(operand[position].size, colours, op.reason("one index is written to", "moved"))
        operand[position] = unify(alone, operand[position], op.reason("one index is written to", "moved"))
        return operand
    batching = tuple(numbers.operand_batching_dims)
    windows = [k for k in range(len(operand)) if k not in (*numbers.inserted_window_dims, *batching)]
    out, written = list(operand), op.by_index("written at an index", indices)
    for k, j in zip(windows, numbers.update_window_dims, strict=True):
        if operand[k].size == update[j].size:
            out[k] = op.meet(operand[k], update[j])
        else:
            op.walk.read_as_numbers(indices)
            pin(update[j], written)
            out[k] = _written_to(op, operand[k], written)
    columns = columns_of(indices, numbers.scatter_dims_to_operand_dims)
    for k in numbers.inserted_window_dims:
        if (own := pointed_at(op, columns, k)) is not None:
            out[k] = op.meet(operand[k], own)
        else:
            op.walk.read_as_numbers(columns.get(k, indices))
            out[k] = _written_to(op, operand[k], written)
    # every index says where its own update goes
    batches = dict(zip(numbers.scatter_indices_batching_dims, batching, strict=True))
    along = [j for j in range(len(update)) if j not in numbers.update_window_dims]
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
            pin(both, written)
    return out


def _written(op: Operation) -> tuple[int, np.ndarray] | None:
    """The axis of which constant indices write to one index, the other axes whole; and that index, coloured."""
    shape, update = op.shapes[0], op.shapes[2]
    if math.prod(shape) > MAX_FOLLOWED:
        return None
    indices = np.asarray(op.operands[1].value)  # pyright: ignore[reportAttributeAccessIssue]
    after = places.SCATTERS[op.name](op.params, np.zeros(shape), indices, np.ones(update))
    moving = varying(after)
    if len(moving) != 1:
        return None
    line = line_along(after, moving[0])
    rest = [n for k, n in enumerate(shape) if k != moving[0] and n > 1]
    return (moving[0], line.astype(int)) if line.sum() == 1 and [n for n in update if n > 1] == rest else None


def _written_to(op: Operation, term: Term, reason: Reason) -> Term:
    """An axis some of whose indices are written to: pinned, and every index where it was."""
    if is_uniform(term):
        return pinned(term.size, reason)
    op.mix(term)
    pin(term, reason)
    return resolve(term)


def _note_written(op: Operation) -> None:
    """Note the parts of latent axes at which constant indices write."""
    indices, shape = op.operands[1], op.shapes[0]
    if not isinstance(indices, Known) or op.operands[0].origin != Origin.LATENT or math.prod(shape) > MAX_FOLLOWED:
        return
    written = places.SCATTERS["scatter"](op.params, np.zeros(shape), np.asarray(indices.value), np.ones(op.shapes[2]))
    for k, term in enumerate(op.axes[0]):
        along = np.moveaxis(written, k, 0).reshape(term.size, -1).any(1).astype(int)
        starts, stops = (np.flatnonzero(np.diff(along, prepend=0, append=0) == step) for step in (1, -1))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            op.note(term, start, stop)


_SCATTERS = [f"scatter{how}" for how in ("", *(f"{dash}{op}" for op in "add max min mul sub".split() for dash in "-_"))]
WRITING: dict[str, Rule] = {
    **dict.fromkeys(_SCATTERS, scatter),
    "dynamic_update_slice": dynamic_update_slice,
}
