r"""Parities of an array's parts: blocks between cuts along its axes, each with a parity of its own.

Gates that share a kernel, and layers whose outputs stand side by side, change signs apart from each other. What moves
entries moves numbers of parts as well; what an operation does to entries at one place, it does to the parts there as if
they were alone. Knows operations and where parts stand; what a parity is, the caller says.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from numpyro_symmetry.discovery.labels import places
from numpyro_symmetry.discovery.labels.rules import ELEMENTWISE
from numpyro_symmetry.discovery.labels.values import Known
from numpyro_symmetry.models.compat import shapes_of

# blocks up to which an operation is followed block by block
_MOST_BLOCKS = 100_000
# a label for each axis of an array: axes of one label go together
Labels = Sequence[Hashable]


class Parts(NamedTuple):
    """Parities of the blocks of an array, along its last axis first, and their sizes along each axis."""

    sizes: tuple[tuple[int, ...], ...]
    of: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the array."""
        return tuple(map(sum, self.sizes))

    def numbered(self, numbers: dict[Any, int]) -> np.ndarray:
        """The number of each block's parity; one that is not numbered yet is the next."""
        found = [numbers.setdefault(one, len(numbers)) for one in self.of]
        return np.asarray(found, np.int32).reshape([len(own) for own in self.sizes])


def joined(sizes: Iterable[Sequence[int]], of: Sequence[Any]) -> Any:
    """Parities of blocks of these sizes; a single one if all are the same, ``None`` of no entries."""
    if all(one == of[0] for one in of):
        return of[0] if of else None
    return Parts(tuple(map(tuple, sizes)), tuple(of))


def mapped(parity: Any, function: Callable[[Any], Any]) -> Any:
    """What a function makes of a parity, part by part."""
    if not isinstance(parity, Parts):
        return function(parity)
    return joined(parity.sizes, list(map(function, parity.of)))


def moved(
    function: Callable[..., Iterable[np.ndarray]], operands: Sequence[Any], shapes: Sequence[tuple[int, ...]]
) -> list[Any]:
    """Parities of what a function makes of values of these parities and shapes, if it only moves their entries."""
    numbers = dict[Any, int]()
    given = []
    for parity, shape in zip(operands, shapes, strict=True):
        parts = parity if isinstance(parity, Parts) else Parts(tuple((n,) for n in shape), (parity,))
        entries = parts.numbered(numbers)
        for axis, sizes in enumerate(parts.sizes):
            entries = entries if len(sizes) == 1 else np.repeat(entries, sizes, axis)
        given.append(np.broadcast_to(entries, shape))
    of = list(numbers)
    return [_cut(result, of) for result in function(*given)]


def _cut(numbers: np.ndarray, of: Sequence[Any]) -> Any:
    """The parities of an array of numbered entries, cut wherever slices differ."""
    shape, sizes = numbers.shape, []
    if not numbers.size:
        return None
    # of entries that are one in memory, one is enough
    numbers = numbers[tuple(slice(None if stride else 1) for stride in numbers.strides)]
    for axis, length in enumerate(shape):
        slices = np.moveaxis(numbers, axis, 0)
        differ = (slices[1:] != slices[:-1]).any(tuple(range(1, slices.ndim)))
        starts = [0, *1 + np.flatnonzero(differ)]
        sizes.append(np.diff([*starts, length]).tolist())
        numbers = numbers.take(starts, axis)
    return joined(sizes, [of[k] for k in numbers.flat])


def apart(
    function: Callable[..., Any],
    agree: Callable[[list[Any]], Any],
    operands: Sequence[Any],
    axes: Sequence[Labels],
    out: Labels,
    shape: Sequence[int],
) -> Any:
    """The parity of an operation's result, block by block: a function's of the blocks of the operands that meet there.

    Axes of one label meet; blocks that meet along axes which the result has not, agree there.
    """
    parted = [(parity, own) for parity, own in zip(operands, axes, strict=True) if isinstance(parity, Parts)]
    ends = {label: {0, n} for label, n in zip(out, shape, strict=True)}
    for parity, own in parted:
        for label, sizes in zip(own, parity.sizes, strict=True):
            ends.setdefault(label, {0}).update(itertools.accumulate(sizes))
    starts = {label: sorted(own)[:-1] for label, own in ends.items()}
    lengths = list(map(len, starts.values()))
    if math.prod(lengths) > _MOST_BLOCKS:
        return function(*(agree(list(parity.of)) if isinstance(parity, Parts) else parity for parity in operands))

    numbers, grids = dict[Any, int](), []
    for parity, own in zip(operands, axes, strict=True):
        parts = parity if isinstance(parity, Parts) else Parts((), (parity,))
        sizes = dict(zip(own, parts.sizes, strict=False))
        held = [np.searchsorted(np.cumsum(sizes[k]), starts[k], "right") for k in sizes]
        order = [list(sizes).index(k) for k in starts if k in sizes]
        block = parts.numbered(numbers)[np.ix_(*held)].transpose(order)
        grids.append(
            np.broadcast_to(np.expand_dims(block, [i for i, k in enumerate(starts) if k not in sizes]), lengths)
        )
    of = list(numbers)

    @functools.cache
    def made(*met: int) -> Any:
        return function(*(of[k] for k in met))

    each = np.stack(grids, -1).reshape(math.prod(lengths[: len(out)]), -1, len(grids)).tolist()
    results = [[made(*met) for met in here] for here in each]
    return joined(
        [np.diff([*starts[label], n]).tolist() for label, n in zip(out, shape, strict=True)],
        [agree(here) if len(here) > 1 else here[0] for here in results],
    )


def with_axis(parity: Any, length: int) -> Any:
    """The parity of a value repeated along a new first axis."""
    return parity._replace(sizes=((length,), *parity.sizes)) if isinstance(parity, Parts) else parity


def axes_met(equation: Any) -> tuple[list[Labels], Labels] | None:
    """Labels of the axes of an operation's operands and of its result; ``None`` where it does not leave parts apart."""
    name, params, shapes = equation.primitive.name, equation.params, shapes_of(equation.invars)
    out = shapes_of(equation.outvars)[0]
    own = [list[Hashable]((operand, axis) for axis in range(len(shape))) for operand, shape in enumerate(shapes)]
    if name in (*ELEMENTWISE, "select_n") and all(len(shape) in (0, len(out)) for shape in shapes):
        # axes of one are repeated
        for labels, shape in zip(own, shapes, strict=True):
            labels[:] = [k if n == out[k] else labels[k] for k, n in enumerate(shape)]
        return [*own], range(len(out))
    if name == "reduce_sum":
        return [*own], [one for axis, one in enumerate(own[0]) if axis not in params["axes"]]
    if name == "dot_general":
        contracted, batch = params["dimension_numbers"]
        for to, axis in zip((*contracted[0], *batch[0]), (*contracted[1], *batch[1]), strict=True):
            own[1][axis] = own[0][to]
        shared = {*own[0]}.intersection(own[1])
        return [*own], [*(own[0][k] for k in batch[0]), *(k for k in itertools.chain(*own) if k not in shared)]
    if name == "conv_general_dilated":
        numbers, result = params["dimension_numbers"], [(2, axis) for axis in range(len(out))]
        # windows overlap; channels mix, and those in groups lie in blocks
        if params["batch_group_count"] == 1:
            result[numbers.out_spec[0]] = own[0][numbers.lhs_spec[0]]
        if params["feature_group_count"] == 1:
            own[1][numbers.rhs_spec[1]] = own[0][numbers.lhs_spec[1]]
        result[numbers.out_spec[1]] = own[1][numbers.rhs_spec[0]]
        return [*own], result
    return None


def as_slices(equation: Any, given: Sequence[Known | None]) -> list[Any]:
    """A split, and a slice that starts at constants, as the slices that they are; any other operation as it is."""
    name, params, (shape, *_) = equation.primitive.name, equation.params, shapes_of(equation.invars) or [()]
    if name == "split":
        ends = itertools.pairwise(itertools.accumulate(params["sizes"], initial=0))
        bounds = [[end if k == params["axis"] else (0, size) for k, size in enumerate(shape)] for end in ends]
    elif name == "dynamic_slice" and len(starts := [x.value for x in given[1:] if x is not None]) == len(shape):
        sizes = params["slice_sizes"]
        bounds = [[(k, k + size) for k, size in zip(map(places.clamped, starts, shape, sizes), sizes, strict=True)]]
    else:
        return [equation]
    return [
        equation.replace(
            primitive=lax.slice_p,
            invars=equation.invars[:1],
            outvars=[var],
            params={
                "start_indices": tuple(start for start, _ in here),
                "limit_indices": tuple(stop for _, stop in here),
                "strides": None,
            },
        )
        for var, here in zip(equation.outvars, bounds, strict=True)
    ]
