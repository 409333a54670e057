r"""Invariants under relabelling: moments and order statistics over labels, and sums across sites that share a group.

Values are centred and scaled by pooled means and deviations, which are blind to labels, so that a square measures
spread and a cube skewness, whatever the units. Under a group with signs only even powers, orders of absolute values,
and products of two sites whose signs change together are invariant. Knows symmetries and arrays; no chains.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from numpyro_symmetry.assignment.family import Coordinate, Side
from numpyro_symmetry.assignment.passes import chunks_of, each, map_reduce
from numpyro_symmetry.assignment.problem import axes_of, pooled_axes
from numpyro_symmetry.chunks import CHUNK, slices
from numpyro_symmetry.symmetry import PlainView, Symmetry
from numpyro_symmetry.symmetry.components import by_key
from numpyro_symmetry.symmetry.hard import fibred_over
from numpyro_symmetry.traces.coordinates import deviation

# sites with more numbers to a unit enter sums across sites by the sum of their squares
_MAX_NUMBERS = 8
# with more sites to a group, each is paired with the next and not with all
_MAX_SITES = 5
# the most numbers that are made in one pass over the draws, and held
_AT_ONCE = 8 * CHUNK
# sums that a constraint makes constant (weights that add up to one) are so up to this many units in the last place
_ROUNDING = 4.0
# weights lie at most so many spreads from zero, and unconstrained sums of values as near vary by more than rounding
_MOST_SINGLE = 1e4


class _Reading(NamedTuple):
    """How the values of a site are centred and scaled; each axis's group, and the rounding of each number."""

    site: str
    shape: tuple[int, ...]
    groups: tuple[str | None, ...]
    flips: bool
    center: np.ndarray
    scale: np.ndarray
    rounding: np.ndarray
    absolute: bool

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Values ``(draw, *opened shape)`` of the site, off draws ``(draw, *event)``."""
        opened = values.reshape(len(values), *self.shape).astype(float, order="C")
        # in place, for this is a copy
        scaled = np.divide(np.subtract(opened, self.center, out=opened), self.scale, out=opened)
        # signs leave absolute values alone
        return np.abs(scaled, out=scaled) if self.absolute and not self.flips else scaled


# an invariant of a block of draws, ``(draw, entry)``; and the rounding that cancelling terms leave, if they cancel
Table = tuple[np.ndarray, np.ndarray | None]
Sites = Mapping[str, np.ndarray]


class _Invariant(NamedTuple):
    """An invariant: its name, its sites, the function that computes it for a block of draws, and the entries wanted."""

    name: str
    sites: tuple[str, ...]
    of: Callable[[Sites], Table]
    entries: slice = slice(None)

    def __call__(self, sites: Sites) -> Table:
        """The wanted entries, copied: a view would keep in memory the whole table that they are part of."""
        table, noise = self.of(sites)
        return table[:, self.entries].copy(), None if noise is None else noise[self.entries]


def invariants(
    symmetry: Symmetry, values: Mapping[str, np.ndarray], view: PlainView | None = None
) -> dict[str, np.ndarray]:
    """Invariants of draws, by name.

    Parameters
    ----------
    symmetry
        A plain symmetry, with sizes.
    values
        Site -> ``(draw, *event)``.
    view
        The view that cut sites into pieces, if they were: pieces of one site go by its name.

    Returns
    -------
    dict
        Name -> ``(draw, entry)``.
    """
    found = by_key(each_invariant(symmetry, values, view))
    return {name: np.concatenate(parts, 1) for name, parts in found.items()}


def each_invariant(
    symmetry: Symmetry, values: Mapping[str, Any], view: PlainView | None = None, *, absolute: bool = False
) -> Iterator[tuple[str, np.ndarray]]:
    """Invariants of draws, a few entries at a time, so that no more than these have to be in memory.

    With ``absolute`` only those that signs would not change either, as if all groups had them.
    """
    readings = {site: _reading(symmetry, site, values[site], absolute=absolute) for site in symmetry.axes}
    names = {site: view.stacks[site].name if view is not None else site for site in readings}
    every = [
        _Invariant(name, (site,), of)
        for site, reading in readings.items()
        for name, of in _of_site(reading, names[site])
    ]
    # units in blocks that move are numbered anew in each block: no sum runs over the units of one number
    for group in (name for name in symmetry.groups if not fibred_over(name)):
        members = [site for site, reading in readings.items() if group in reading.groups]
        pairs = itertools.combinations(members, 2) if len(members) <= _MAX_SITES else itertools.pairwise(members)
        every += [
            _Invariant(f"Σ {names[a]}·{names[b]}", (a, b), partial(_across, readings[a], readings[b], group))
            for a, b in pairs
        ]
    num_draws = len(next(iter(values.values())))
    blank = {site: reading(np.zeros((1, *values[site].shape[1:]))) for site, reading in readings.items()}
    # where the entries of each begin and end among those of all
    ends = list(itertools.accumulate((whole.of(blank)[0].size for whole in every), initial=0))
    for items in slices(ends[-1], num_draws, _AT_ONCE):
        wanted = [
            whole._replace(entries=slice(max(items.start, low) - low, min(items.stop, high) - low))
            for whole, (low, high) in zip(every, itertools.pairwise(ends), strict=True)
            if max(items.start, low) < min(items.stop, high)
        ]
        yield from _tables(values, readings, wanted)


def _tables(
    values: Mapping[str, Any], readings: Mapping[str, _Reading], parts: Sequence[_Invariant]
) -> Iterator[tuple[str, np.ndarray]]:
    """Name and ``(draw, entry)`` of each invariant, for all draws, which are read once for all invariants."""
    here = {site: values[site] for part in parts for site in part.sites}
    used = {site: readings[site] for site in here}

    def of(side: Side, items: slice) -> tuple[list[Table], None]:
        sites = {site: reading(side.loc[site][items]) for site, reading in used.items()}
        return [part(sites) for part in parts], None

    num_draws = len(next(iter(values.values())))
    blocks = list(slices(num_draws, sum(math.prod(reading.shape) for reading in used.values())))
    kept, _ = map_reduce(Side(here, leading=(num_draws,)), blocks, of)
    columns = [list(tables) for tables in zip(*kept, strict=True)]
    del kept
    for part in parts:
        tables = columns.pop(0)
        for items in slices(tables[0][0].shape[1], num_draws):
            array = np.concatenate([table[:, items] for table, _ in tables])
            # cancelling terms leave rounding errors, which no chain is to be judged by
            if tables[0][1] is not None:
                array = array[:, np.ptp(array, axis=0) > np.max([noise[items] for _, noise in tables], axis=0)]
            if array.shape[1]:
                yield part.name, array


def has_both_signs(values: Any) -> bool:
    """Whether values hold both signs, so that an exchange of signs is possible."""
    return all(np.any(each(values, lambda x: [bool((x < 0).any()), bool((x > 0).any())]), axis=0))


def _reading(symmetry: Symmetry, site: str, values: Any, *, absolute: bool) -> _Reading:
    shape, axes = axes_of(symmetry, site, values.shape[1:])
    names = tuple(axis.group for axis in axes)
    flips, pooled = any(axis.signed for axis in axes), pooled_axes(axes)

    def opened(x: np.ndarray) -> np.ndarray:
        # in C order, for sums depend on the order in memory
        return x.reshape(len(x), *shape).astype(float, order="C")

    def sums(here: Any, items: slice) -> tuple[tuple[np.ndarray, bool], np.ndarray]:
        x = opened(here[items])
        largest = np.abs(x).max(pooled, keepdims=True, initial=0.0)
        with np.errstate(over="ignore"):  # what single precision cannot hold is infinite in it, and not the same
            is_single = bool((x == x.astype(np.float32)).all())
        return (largest, is_single), x.mean(pooled, keepdims=True) * len(x)

    kept, total = map_reduce(values, chunks_of(values), sums)
    sizes, are_single = zip(*kept, strict=True)
    center = np.zeros(()) if flips or absolute else total[0] / len(values)
    scale = deviation(values, Coordinate(site, "identity", np.zeros(()), np.ones(()), axes, shape), pooled, center)
    ratio = (np.max(sizes, axis=0) / scale).reshape(-1)
    # values held in double precision may have been computed in single, unless single would not tell them apart
    only_double = (ratio > _MOST_SINGLE) & (not all(are_single))
    rounding = _ROUNDING * np.where(only_double, np.finfo(np.float64).eps, np.finfo(np.float32).eps) * ratio
    return _Reading(site, shape, names, flips, center, scale, rounding, absolute)


def _of_site(reading: _Reading, name: str) -> Iterator[tuple[str, Callable[[Sites], Table]]]:
    """Moments and orders of one site over all its labels."""
    for power, mark in ((2, "²"), (4, "⁴")) if reading.flips else ((1, ""), (2, "²"), (3, "³")):
        yield f"Σ {name}{mark}", partial(_moments, reading, power)
    count = math.prod(size for size, group in zip(reading.shape, reading.groups, strict=True) if group is not None)
    if count > 1:
        for k in sorted({0, count // 2, count - 1}):
            yield f"sorted {f'|{name}|' if reading.flips else name}", partial(_order, reading, k)


def _units(reading: _Reading, sites: Sites) -> np.ndarray:
    """``(draw, number, unit)`` of a site, of all groups together."""
    at = [k + 1 for k, group in enumerate(reading.groups) if group is not None]
    rest = [k + 1 for k, group in enumerate(reading.groups) if group is None]
    units = sites[reading.site].transpose(0, *rest, *at)
    return units.reshape(len(units), math.prod(units.shape[1 : 1 + len(rest)]), -1)


def _moments(reading: _Reading, power: int, sites: Sites) -> Table:
    units = _units(reading, sites)
    # faster than a power
    terms = reduce(np.multiply, [units] * power)
    largest = np.maximum(terms.max((0, 2), initial=1.0), -terms.min((0, 2), initial=-1.0))
    return terms.sum(2), units.shape[2] * power * reading.rounding * largest


def _order(reading: _Reading, k: int, sites: Sites) -> Table:
    units = _units(reading, sites)
    return np.partition(np.abs(units) if reading.flips else units, k, axis=2)[..., k], None


def _across(first: _Reading, second: _Reading, group: str, sites: Sites) -> Table:
    """Sums over a group's units of products of the unit's numbers at two sites."""
    (a, a_flips), (b, b_flips) = (_by_unit(reading, sites[reading.site], group) for reading in (first, second))
    # a sign cancels in a product only if it changes both
    if a_flips != b_flips or max(a.shape[1], b.shape[1]) > _MAX_NUMBERS:
        a, b = (np.square(x).sum(1, keepdims=True) for x in (a, b))
    return np.einsum("dik,djk->dijk", a, b).sum(3).reshape(len(a), -1), None


def _by_unit(reading: _Reading, values: np.ndarray, group: str) -> tuple[np.ndarray, bool]:
    """A group's units at a site, ``(draw, number, unit)``, blind to all other groups; and whether signs change them."""
    names = list(reading.groups)
    alone = [name for name in names if name is not None] == [group]
    while names.count(group) > 1:
        # where its group stands twice, a unit's entry with itself
        i = names.index(group)
        j = names.index(group, i + 1)
        values = np.diagonal(values, axis1=i + 1, axis2=j + 1)
        names = [name for k, name in enumerate(names) if k not in (i, j)] + [group]
    numbers = np.moveaxis(values, names.index(group) + 1, -1)
    numbers = numbers.reshape(len(values), -1, numbers.shape[-1])
    if alone:
        return numbers, reading.flips
    names.remove(group)
    return (np.square(numbers).sum(1, keepdims=True) if reading.flips or any(names) else numbers), False
