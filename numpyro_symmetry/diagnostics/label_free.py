r"""Draws as points that no label moves: units in a canonical order, sorted projections, and sums over units.

A unit is what a group moves as one. Each draw's units are projected on directions that all draws share, and each
projection is sorted: the Euclidean distance of the results is a sliced Wasserstein distance between the units of two
draws (Bonneel et al. 2015), and one in a Hilbert space, so that energies of it are never negative. Numbers on which
other groups act too are replaced by their means and root mean squares over those groups, and numbers whose sign may
change by absolute values. Knows plain symmetries and arrays ``(draw, ...)``; no chains and no sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import stats

from numpyro_symmetry.assignment.family import State
from numpyro_symmetry.assignment.problem import axes_of, move, pooled_axes
from numpyro_symmetry.chunks import slices
from numpyro_symmetry.symmetry import Axis, Hard, Symmetry

Arrays = dict[str, np.ndarray]

# directions are twice as many as a unit has numbers, and at least this many; features of a group at most this many
_MIN_DIRECTIONS, _MAX_FEATURES = 16, 8192
# beyond so many deviations numbers count by their logarithm: SOFT shows differences that wild draws would drown, FIRM
# those that only tails show, such as another spread
SOFT, FIRM = 2.0, 4.0
# directions are the same in every call, so that the same draws have the same features
_SEED = 20260


class Units(NamedTuple):
    """The units of a group, each with the numbers that only this group moves.

    Attributes
    ----------
    odd, even
        ``(draw, unit, number)``: numbers that change sign with a unit, and those that do not.
    """

    odd: np.ndarray
    even: np.ndarray

    @property
    def size(self) -> int:
        """How many numbers a unit has."""
        return self.odd.shape[2] + self.even.shape[2]

    def project(self, directions: np.ndarray) -> np.ndarray:
        """Projections ``(draw, unit, direction)``, which no sign changes."""
        turned, still = np.split(directions, [self.odd.shape[2]])
        return np.abs(self.odd @ turned) + self.even @ still


def units_of(symmetry: Symmetry, values: Mapping[str, np.ndarray], group: str) -> Units:
    """The units of one group of a plain symmetry, in draws ``(draw, *event)`` of its sites."""
    by_sign: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for site in symmetry.axes:
        shape, axes = axes_of(symmetry, site, values[site].shape[1:])
        x, at = values[site].reshape(-1, *shape), [k for k, axis in enumerate(axes) if axis.group == group]
        for k in at:
            _add(by_sign, x, axes, k)
        if len(at) == 2:
            # where its group stands twice, a unit's entry with itself: a sign that changes both axes leaves it
            rest = [axis for k, axis in enumerate(axes) if k not in at]
            odd = axes[at[0]].signed != axes[at[1]].signed
            _add(by_sign, np.diagonal(x, axis1=at[0] + 1, axis2=at[1] + 1), (*rest, Axis(group, odd, None)), len(rest))
    draws, size = len(next(iter(values.values()))), symmetry.groups[group].degree
    empty = np.zeros((draws, size, 0))
    return Units(*(np.concatenate([empty, *by_sign[is_odd]], 2) for is_odd in (True, False)))


def _add(by_sign: dict[bool, list[np.ndarray]], x: np.ndarray, axes: tuple[Axis, ...], own: int) -> None:
    """Add the numbers of units along axis ``own``; axes of other groups are summarised by moments."""
    others = [axis for k, axis in enumerate(axes) if k != own]
    parts = [(axes[own].signed, np.moveaxis(x, own + 1, 1).astype(float, copy=False))]
    for k in reversed([k for k, axis in enumerate(others) if axis.group is not None]):
        means = [] if others[k].signed else [(odd, part.mean(k + 2)) for odd, part in parts]
        parts = means + [(False, np.sqrt(np.square(part).mean(k + 2))) for _, part in parts]
    for odd, part in parts:
        by_sign[odd].append(part.reshape(*part.shape[:2], -1))


def canonical(symmetry: Symmetry, values: Arrays) -> Arrays:
    """Draws relabelled so that their units come in an order, and with signs, that do not depend on their labels.

    Two draws that differ in labels alone become the same draw, so whatever is computed from the result knows no labels.
    """
    state: State = {}
    for name, group in symmetry.groups.items():
        units = units_of(symmetry, values, name)
        # generic directions: two units that tie are the same in all that the group alone moves
        weights = np.random.default_rng(_SEED).standard_normal((units.size, 1))
        order = units.project(weights)[..., 0].argsort(1, kind="stable").astype(np.int32)
        sign = None
        if group.signed:
            turned = units.odd @ weights[: units.odd.shape[2], 0]
            sign = np.take_along_axis(np.where(turned < 0, -1, 1), order, 1)
        state[name] = Hard(order, sign)
    return moved(symmetry, values, state)


def moved(symmetry: Symmetry, values: Arrays, state: State) -> Arrays:
    """Draws with the sites of a plain symmetry moved, each draw by its own element; other arrays as they are."""
    found = dict(values)
    for site in symmetry.axes:
        shape, axes = axes_of(symmetry, site, values[site].shape[1:])
        found[site] = move(values[site].reshape(-1, *shape), axes, state).reshape(values[site].shape)
    return found


def sorted_projections(symmetry: Symmetry, values: Arrays, max_features: int = _MAX_FEATURES) -> np.ndarray:
    """``(draw, feature)``: sorted projections of the units of every group, and the numbers that no group moves.

    Scaled so that each of a unit's numbers has weight one, in the mean where there are more than directions.
    """
    found = [rest.reshape(len(rest), -1) for site, rest in values.items() if site not in symmetry.axes]
    for name in symmetry.groups:
        units = units_of(symmetry, values, name)
        weights = _directions(units.size, units.even.shape[1], max_features)
        parts = [
            np.sort(Units(units.odd[items], units.even[items]).project(weights), axis=1)
            for items in slices(len(units.even), units.even.shape[1] * weights.shape[1])
        ]
        found.append(np.concatenate(parts).reshape(len(units.even), -1) * np.sqrt(units.size / weights.shape[1]))
    return np.concatenate(found, 1)


def _directions(size: int, num_units: int, max_features: int) -> np.ndarray:
    """``(number, direction)``: the axes and random rotations of them if there is room, else random ones of length one.

    Of whole frames the squares along all directions weigh every number alike, whatever its place among the others.
    """
    if size == 1:
        return np.ones((1, 1))
    count = int(np.clip(max_features // max(num_units, 1), 4, max(2 * size, _MIN_DIRECTIONS)))
    rng = np.random.default_rng(_SEED)
    if count <= size:
        random = rng.standard_normal((size, count))
        return random / np.linalg.norm(random, axis=0)
    turned = np.linalg.qr(rng.standard_normal((-(-count // size) - 1, size, size)))[0]
    return np.concatenate([np.eye(size), *turned], 1)


def sums(symmetry: Symmetry, values: Arrays) -> np.ndarray:
    """``(draw, entry)``: means and mean squares of units' numbers, and mean distances between units."""
    found = [rest.reshape(len(rest), -1) for site, rest in values.items() if site not in symmetry.axes]
    for name in symmetry.groups:
        units = units_of(symmetry, values, name)
        numbers = np.concatenate([np.abs(units.odd), units.even], 2)
        found += [numbers.mean(1), np.square(numbers).mean(1), _mean_distance(numbers)[:, None]]
    return np.concatenate(found, 1)


def _mean_distance(numbers: np.ndarray) -> np.ndarray:
    """Mean Euclidean distance between the units of each draw."""
    draws, n, _ = numbers.shape
    found = np.empty(draws)
    norms = np.square(numbers).sum(2)
    for items in slices(draws, n * n):
        products = numbers[items] @ np.swapaxes(numbers[items], 1, 2)
        squares = norms[items, :, None] + norms[items, None] - 2.0 * products
        found[items] = np.sqrt(np.maximum(squares, 0.0)).mean((1, 2))
    return found


def standardised(symmetry: Symmetry, values: Arrays, bulk: float = SOFT) -> Arrays:
    r"""Every number centred and scaled over all draws of all units: :math:`\operatorname{arsinh}` of its deviations.

    It is linear up to ``bulk`` deviations from the median, and logarithmic in the tails, so that one wild draw does not
    outweigh all others; and odd, so that signs still change it. Numbers that a sign changes are not centred; numbers
    that never vary are zero.
    """
    found = {}
    for site, value in values.items():
        shape, axes = axes_of(symmetry, site, value.shape[1:])
        pooled = pooled_axes(axes)
        flips = any(axis.signed for axis in axes)
        x = value.reshape(-1, *shape).astype(float)
        varies = np.abs(x).max(pooled, keepdims=True) > 0 if flips else np.ptp(x, axis=pooled, keepdims=True) > 0
        x -= 0.0 if flips else np.median(x, pooled, keepdims=True)
        away = np.abs(x)
        spread = bulk * stats.norm.ppf(0.75) ** -1 * np.median(away, pooled, keepdims=True)
        # where more than half of the values are equal
        spread = np.where(spread > 0, spread, np.where(varies, away.mean(pooled, keepdims=True), 1.0))
        x = np.arcsinh(x / spread)
        x -= 0.0 if flips else x.mean(pooled, keepdims=True)
        scale = np.sqrt(np.square(x).mean(pooled, keepdims=True))
        found[site] = np.where(varies, x / np.where(varies, scale, 1.0), 0.0).reshape(value.shape)
    return found
