r"""What no label changes: moments and order statistics over labels, and sums across sites that share a group.

Values are centred and scaled by pooled means and deviations, which are blind to labels, so that a square tells of
spread and a cube of skewness, whatever the units. A group with signs leaves even powers, orders of absolute values, and
products of two sites whose signs change together. Knows symmetries and arrays; no chains.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.symmetry import PlainView, Symmetry
from numpyro_symmetry.symmetry.hard import over

# sites with more numbers to a unit enter sums across sites by the sum of their squares
_MAX_NUMBERS = 8
# with more sites to a group, each is paired with the next and not with all
_MAX_SITES = 5
# what constraints make constant (weights that sum to one) is constant up to rounding in single precision
_ROUNDING = 4.0 * float(np.finfo(np.float32).eps)


class _Site(NamedTuple):
    """Values ``(draw, *opened shape)``, centred and scaled; the group on each axis; what rounding amounts to."""

    values: np.ndarray
    groups: tuple[str | None, ...]
    flips: bool
    rounding: float


def invariants(
    symmetry: Symmetry, values: Mapping[str, np.ndarray], view: PlainView | None = None, *, absolute: bool = False
) -> dict[str, np.ndarray]:
    """Invariants of draws, by name.

    Parameters
    ----------
    symmetry
        Plain, with sizes.
    values
        Site -> ``(draw, *event)``.
    view
        If sites are pieces of others: where they were cut from. Pieces of one site are named as one.
    absolute
        Only what signs would not change either, as if all groups had them.

    Returns
    -------
    dict
        Name -> ``(draw, entry)``.
    """
    sites = {site: _site(symmetry, site, values[site], absolute) for site in symmetry.axes}
    names = {site: view.stack_of(site).name if view is not None else site for site in sites}
    found: dict[str, list[np.ndarray]] = {}
    for site, one in sites.items():
        for name, array in _of_site(one, names[site]):
            found.setdefault(name, []).append(array)
    # units in blocks that move are numbered anew in each block: there are no sums over blocks of the like
    for group in (name for name in symmetry.groups if not over(name)):
        members = [site for site, one in sites.items() if group in one.groups]
        for first, second in _pairs(members):
            array = _across(sites[first], sites[second], group)
            found.setdefault(f"Σ {names[first]}·{names[second]}", []).append(array)
    joined = {name: np.concatenate(arrays, 1) for name, arrays in found.items()}
    return {name: array for name, array in joined.items() if array.shape[1]}


def has_both_signs(values: np.ndarray) -> bool:
    """Whether a sign could be exchanged here."""
    return bool((values < 0).any() and (values > 0).any())


def _site(symmetry: Symmetry, site: str, values: np.ndarray, absolute: bool) -> _Site:
    axes = symmetry.opened(site)
    opened = values.reshape(len(values), *symmetry.opened_shape(site, values.shape[1:])).astype(float)
    names = tuple(axis.group for axis in axes)
    flips = any(axis.signed for axis in axes)
    pooled = (0, *(k + 1 for k, name in enumerate(names) if name is not None))
    largest = float(np.abs(opened).max(initial=0.0))
    about_zero = flips or absolute
    centred = opened if about_zero else opened - opened.mean(pooled, keepdims=True)
    scale = np.sqrt(np.square(centred).mean(pooled, keepdims=True))
    scaled = centred / np.where(scale > 0, scale, 1.0)
    smallest = float(scale[scale > 0].min(initial=np.inf))
    # under signs only absolute values are left
    scaled = np.abs(scaled) if absolute and not flips else scaled
    return _Site(scaled, names, flips, _ROUNDING * largest / smallest if np.isfinite(smallest) else 0.0)


def _of_site(one: _Site, name: str) -> Iterator[tuple[str, np.ndarray]]:
    """Moments and orders of one site over all its labels."""
    at = [k + 1 for k, group in enumerate(one.groups) if group is not None]
    rest = [k + 1 for k, group in enumerate(one.groups) if group is None]
    draws = len(one.values)
    units = one.values.transpose(0, *rest, *at)
    units = units.reshape(draws, int(np.prod(units.shape[1 : 1 + len(rest)], dtype=int)), -1)
    for power, mark in ((2, "²"), (4, "⁴")) if one.flips else ((1, ""), (2, "²"), (3, "³")):
        terms = units**power
        total = terms.sum(2)
        # cancelling terms leave rounding errors, which no chain is to be judged by
        largest = np.abs(terms).max((0, 2), initial=0.0)
        noise = units.shape[2] * power * one.rounding * np.maximum(largest, 1.0)
        yield f"Σ {name}{mark}", total[:, np.ptp(total, axis=0) > noise]
    if units.shape[2] > 1:
        ordered = np.sort(np.abs(units) if one.flips else units, axis=2)
        # of two, the middle is half of their sum
        middle = [ordered[..., units.shape[2] // 2]] if units.shape[2] > 2 else []
        shown = f"|{name}|" if one.flips else name
        yield f"order of {shown}", np.concatenate([ordered[..., 0], *middle, ordered[..., -1]], 1)


def _pairs(members: list[str]) -> Iterator[tuple[str, str]]:
    return itertools.combinations(members, 2) if len(members) <= _MAX_SITES else itertools.pairwise(members)


def _across(first: _Site, second: _Site, group: str) -> np.ndarray:
    """Sum over a group's units of products of what two sites have there, ``(draw, entry)``."""
    (a, a_flips), (b, b_flips) = (_by_unit(one, group) for one in (first, second))
    # a sign cancels in a product only if it changes both
    if a_flips != b_flips or max(a.shape[1], b.shape[1]) > _MAX_NUMBERS:
        a, b = (np.square(x).sum(1, keepdims=True) for x in (a, b))
    return np.einsum("dik,djk->dijk", a, b).sum(3).reshape(len(a), -1)


def _by_unit(one: _Site, group: str) -> tuple[np.ndarray, bool]:
    """What each unit of a group has at a site, ``(draw, number, unit)``, and whether its sign changes that.

    The same under all other groups.
    """
    values, names = one.values, list(one.groups)
    alone = [name for name in names if name is not None] == [group]
    while names.count(group) > 1:
        # a unit's own entry, where its group stands twice
        i = names.index(group)
        j = names.index(group, i + 1)
        values = np.diagonal(values, axis1=i + 1, axis2=j + 1)
        names = [name for k, name in enumerate(names) if k not in (i, j)] + [group]
    numbers = np.moveaxis(values, names.index(group) + 1, -1)
    numbers = numbers.reshape(len(values), -1, numbers.shape[-1])
    if alone:
        return numbers, one.flips
    names.remove(group)
    return (np.square(numbers).sum(1, keepdims=True) if one.flips or any(names) else numbers), False
