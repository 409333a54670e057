"""The draws of two posteriors as one: read into one order of labels, aligned in one search, and compared by entry.

Nothing computed here depends on which side a draw is of or what labels it came with, except for `contributions`, with
means and deviations of either side. Puts together `label_free`, relabelling and `energies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.sparse.linalg import svds

from numpyro_symmetry.assignment.family import Side, State
from numpyro_symmetry.assignment.problem import axes_of
from numpyro_symmetry.diagnostics.comparison import QUANTITIES
from numpyro_symmetry.diagnostics.energies import ExchangeableBlocks, moment_differences
from numpyro_symmetry.diagnostics.invariants import invariants
from numpyro_symmetry.diagnostics.label_free import (
    FIRM,
    canonical,
    moved,
    sorted_projections,
    standardised,
    sums,
    units_of,
)
from numpyro_symmetry.diagnostics.sides import PosteriorDraws
from numpyro_symmetry.symmetry import Hard, PlainView, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.hard import fibred_over
from numpyro_symmetry.traces import EuclideanCost
from numpyro_symmetry.traces.relabel import SearchEffort, relabel

Arrays = dict[str, np.ndarray]

# the distance by which effects are measured
SORTED = "sorted projections"

# draws from which the search starts, by their place in the order from the mean outwards: the first, and the middle one
_STARTS = (0.0, 0.5)
# how many principal components show slow chains, and of about how many features
_NUM_COMPONENTS, _MAX_FEATURES = 4, 1024
# invariants of numbers about one in size that deviate by less are constant but for rounding in single precision
_ROUNDING = 1e-5


class Pooled(NamedTuple):
    """Draws of both sides in a view's pieces, ``(draw, *event)`` each: ``raw``, and standardised in ``values``."""

    view: PlainView
    raw: Arrays
    values: Arrays

    @property
    def symmetry(self) -> Symmetry:
        """The plain symmetry."""
        return self.view.symmetry

    def at(self, draws: np.ndarray) -> Pooled:
        """The draws of these indices."""
        return Pooled(self.view, *({s: x[draws] for s, x in each.items()} for each in (self.raw, self.values)))

    def moved(self, state: State) -> Pooled:
        """All draws, each moved by its own element."""
        return Pooled(self.view, *(moved(self.symmetry, each, state) for each in (self.raw, self.values)))

    def flat(self) -> np.ndarray:
        """Standardised draws as ``(draw, number)``."""
        return np.concatenate([x.reshape(len(x), -1) for x in self.values.values()], 1)


def pooled_draws(pooled: Arrays, symmetry: Symmetry) -> Pooled:
    """All draws in an order of labels that does not depend on the labels they came with.

    Of groups fibred over groups that move, the inner ones are ordered first, within each cell, and then held still.
    """
    while inner := [name for name in symmetry.groups if _is_innermost(name, symmetry)]:
        view = PlainView.of(symmetry.restrict(inner), pooled, with_single=True)
        pooled = view.close(canonical(view.symmetry, view.open(pooled)))
        symmetry = symmetry.restrict(symmetry.groups.keys() - inner)
    view = PlainView.of(symmetry, pooled, with_single=True)
    raw = canonical(view.symmetry, view.open(pooled))
    if all((x == x[:1]).all() for x in raw.values()):
        raise SymmetryError(f"Nothing varies: all {len(next(iter(raw.values())))} draws are the same, labels apart.")
    return Pooled(view, raw, standardised(view.symmetry, raw))


def _is_innermost(name: str, symmetry: Symmetry) -> bool:
    """Whether a group is fibred over a group that moves, and no group is fibred over it."""
    others = symmetry.groups
    return any(label in others for label in fibred_over(name)) and not any(
        name in fibred_over(other) for other in others
    )


def watched(draws: Pooled) -> np.ndarray:
    """``(draw, entry)``: numbers that show slow chains: sums, and the leading components of sorted projections."""
    return np.concatenate([sums(draws.symmetry, draws.values), leading(draws)], 1)


def leading(draws: Pooled) -> np.ndarray:
    """``(draw, component)``: the leading principal components of sorted projections."""
    features = sorted_projections(draws.symmetry, draws.values, _MAX_FEATURES)
    centred = features - features.mean(0)
    if min(centred.shape) > _NUM_COMPONENTS:
        # the same start vector in every call
        left, singular, _ = svds(centred, _NUM_COMPONENTS, v0=np.ones(min(centred.shape)))
        centred = left * singular
    return centred


def by_distance(draws: Pooled) -> tuple[Arrays, Pooled]:
    """Name of a distance -> points ``(draw, number)`` whose Euclidean distance it is; and the draws as aligned."""
    features = sorted_projections(draws.symmetry, draws.values)
    aligned = _named(draws.moved(_placed(draws, features)))
    points = {SORTED: features, "pooled alignment": aligned.flat(), "invariants": _invariants(draws)}
    return points, aligned


def _placed(draws: Pooled, features: np.ndarray) -> State:
    """The labels of all draws that one search finds, from starts that depend neither on labels nor sides nor order."""
    order = np.square(features - features.mean(0)).sum(1).argsort(kind="stable")
    starts = dict.fromkeys(int(order[int(share * (len(order) - 1))]) for share in _STARTS)
    plain = draws.symmetry
    side = Side.of_pieces(draws.values, (len(features),), draws.view)
    family = EuclideanCost(standardize=False).family(side, plain)
    found = [relabel(family, plain.groups, family.point(start), SearchEffort()) for start in starts]
    return max(found, key=lambda one: round(float(one.objective.mean()), 9)).state


def _named(draws: Pooled) -> Pooled:
    """Draws with slots in ascending order of the mean of their first number, and with signs that make it positive."""
    state: State = {}
    for name, group in draws.symmetry.groups.items():
        units = units_of(draws.symmetry, draws.raw, name)
        count = len(units.even)
        odd = units.odd[:, :, 0].mean(0) if units.odd.shape[2] else np.ones(group.degree)
        order = (units.even[:, :, 0].mean(0) if units.even.shape[2] else np.abs(odd)).argsort(kind="stable")
        sign = np.tile(np.where(odd < 0, -1, 1)[order], (count, 1)) if group.signed else None
        state[name] = Hard(np.tile(order.astype(np.int32), (count, 1)), sign)
    return draws.moved(state)


def _invariants(draws: Pooled) -> np.ndarray:
    """Invariants ``(draw, entry)`` of standard deviation one."""
    values = standardised(draws.symmetry, draws.raw, FIRM)
    of_groups = invariants(draws.symmetry, {site: values[site] for site in draws.symmetry.axes}, draws.view)
    beside = [x.reshape(len(x), -1) for site, x in values.items() if site not in draws.symmetry.axes]
    found = np.concatenate([*of_groups.values(), *beside, *map(np.square, beside)], 1)
    scale = found.std(0)
    return found[:, scale > _ROUNDING] / scale[scale > _ROUNDING]


def contributions(
    aligned: Pooled, blocks: ExchangeableBlocks, first: np.ndarray, a: PosteriorDraws, split: int
) -> xr.Dataset:
    """Site -> ``(quantity, *event)``: how the sides differ in every entry."""
    seen = moment_differences(aligned.flat(), blocks.starts, first)
    ends = np.cumsum([0, *(x[0].size for x in aligned.values.values())])
    found, slots = {}, {}
    for (site, x), low, high in zip(aligned.raw.items(), ends[:-1], ends[1:], strict=True):
        # in double precision: of many draws in single precision sums are too rough
        a_draws, b_draws = np.split(x.astype(float), [split])
        raw = [a_draws.mean(0), b_draws.mean(0), _deviation(a_draws), _deviation(b_draws)]
        found[site] = np.stack([*raw, *(one[low:high].reshape(x.shape[1:]) for one in seen)])
        slots[site] = _slots(aligned.symmetry, site, x.shape[1:])
    whole, labels = aligned.view.close(found), aligned.view.close(slots)
    named = by_quantity(whole, QUANTITIES, a.dims)
    return named.assign_coords({f"{site} slot": (named[site].dims[1:], labels[site]) for site in whole})


def by_quantity(
    values: Mapping[str, np.ndarray], quantities: Sequence[str], dims: Mapping[str, tuple[str, ...]]
) -> xr.Dataset:
    """Arrays ``(quantity, *event)`` with the dimensions of their sites, unless these have none or one called so."""
    quantity = "quantity"
    while quantity in values:  # no site may be called as a dimension is
        quantity += "_"
    arrays = {}
    for site, array in values.items():
        own = dims.get(site, (quantity,))
        by_number = tuple(f"{site}_dim_{k}" for k in range(array.ndim - 1))
        arrays[site] = (quantity, *(by_number if quantity in own else own)), array
    return xr.Dataset(arrays, {quantity: list(quantities)})


def _deviation(x: np.ndarray) -> np.ndarray:
    """Standard deviation over draws, in units of the largest value: squares of very large values are not finite."""
    size = float(np.abs(x).max()) or 1.0
    return size * (x / size).std(0)


def _slots(symmetry: Symmetry, site: str, event: tuple[int, ...]) -> np.ndarray:
    """For each entry of a site, the slots that it belongs to, in words."""
    shape, axes = axes_of(symmetry, site, event)
    named = [(k, axis.group) for k, axis in enumerate(axes) if axis.group is not None]
    words = [", ".join(f"{group} {index[k]}" for k, group in named) for index in np.ndindex(*shape)]
    return np.array(words, dtype=str).reshape(event)
