r"""What relabelling makes up: draws without identity, and draws of known identity, relabelled in the same way.

Choosing for every draw the labels under which it looks most like the others makes any draws look alike. Two sets of
made-up draws tell by how much. *Shuffled*: every unit of every draw is some unit of some draw, so no slot has an
identity, and whatever relabelled slots agree on is the relabelling's own doing. A chain that remembers where it was has
fewer draws than it seems: what it remembers is shuffled in one block. *Simulated*: units from the Gaussians
that were found, under random labels: by as much as their relabelled standard deviations fall short of the truth, so do
the trace's. Knows families and coordinates; no containers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from numpyro_symmetry.assignment.family import (
    Coordinate,
    Cost,
    Family,
    Items,
    Natural,
    Side,
    State,
    Statistics,
    natural_of_draw,
)
from numpyro_symmetry.assignment.problem import move, pooled_axes
from numpyro_symmetry.symmetry import Axis, PlainView, Symmetry, as_html
from numpyro_symmetry.symmetry.components import by_key
from numpyro_symmetry.symmetry.hard import fibred_over, from_element
from numpyro_symmetry.symmetry.shown import counted
from numpyro_symmetry.traces.coordinates import Arrays
from numpyro_symmetry.traces.costs import MIN_VARIANCE, GaussianCost, PlainDraws
from numpyro_symmetry.traces.mixing import Blocks, blocks_of, evenly
from numpyro_symmetry.traces.relabel import MAX_ROUNDS, SearchEffort, relabel
from numpyro_symmetry.traces.shuffle import Shuffle
from numpyro_symmetry.traces.summary import describe_null

# made-up draws: as many as keep chance out of the second digit, and as fit; at least so many
MAX_DRAWS, MAX_NUMBERS, _MIN_DRAWS = 1000, 4_000_000, 50
# fewer for groups that meet in a site: there a draw without identity takes a hundred times as long to match, and large
# draws have numbers enough to tell by
_MAX_COUPLED_NUMBERS = 400_000
# how much further apart than chance puts them slots must be
_CLEARLY = 1.5
# with fewer independent draws, some slot of nobody's is as far from the others as any can be
MIN_EFFECTIVE = 10
# as many shuffles of few draws as put the furthest of their slots where one in twenty traces would not; fewer for
# groups that meet in a site, each search of which takes seconds
_MAX_SHUFFLES, _MAX_COUPLED_SHUFFLES = 20, 4


@dataclass(frozen=True)
class CannotTell:
    """In place of a number that so few independent draws do not give.

    Attributes
    ----------
    num_effective
        How many there are.
    """

    num_effective: int

    def __str__(self) -> str:
        return f"cannot tell from {counted(self.num_effective, 'independent draw')}"

    _repr_html_ = as_html


class Explained(NamedTuple):
    """Share of one site's variance that lies between slots.

    Attributes
    ----------
    explained
        Of the relabelled trace.
    explained_null
        Of draws without identity, relabelled in the same way.
    """

    explained: float
    explained_null: float

    _repr_html_ = as_html

    @property
    def share(self) -> float:
        """Of what relabelling alone cannot explain, the share that slots do: about 0 without identity, at most 1."""
        return (self.explained - self.explained_null) / max(1.0 - self.explained_null, 1e-12)


class Null(NamedTuple):
    """What relabelled draws agree on, beside what draws without identity agree on after the same relabelling.

    Attributes
    ----------
    explained
        Share of the variance of the relabelled coordinates that lies between slots and not within them: 0 to 1.
    explained_null
        The same of shuffled draws, which have no identity: the most that any of the searches arrived at, on average
        over shuffles.
    separation
        Group -> ``(n,)``, of units in blocks that move ``(blocks * n,)``: distance of each slot's mean from the nearest
        other slot's of its block (and, where signs are exchanged, from all slots' negatives), in standard deviations
        within the two; infinite where there is none.
    separation_null
        Group -> the same shape, in descending order, of the shuffle whose slots came to lie furthest apart: the null's
        slots are nobody's.
    scale_ratio
        Standard deviations within slots that relabelling leaves of simulated draws, relative to the true ones. Below
        one, the trace's own are too small by about as much.
    num_draws
        How many draws were made up.
    num_effective
        How many of them are independent: draws that follow each other while their chain remembers are shuffled as one.
    by_site
        Site -> `Explained`. Sites without identity (scores of a factor model) dilute what all of them explain.
    """

    explained: float
    explained_null: float
    separation: dict[str, np.ndarray]
    separation_null: dict[str, np.ndarray]
    scale_ratio: float
    num_draws: int
    num_effective: int
    by_site: dict[str, Explained]

    def __repr__(self) -> str:
        return f"Null of {counted(self.num_draws, 'draw')}: {describe_null(self)}"

    _repr_html_ = as_html

    @property
    def share(self) -> float:
        """Of what relabelling alone cannot explain, the share that slots do: about 0 without identity, at most 1."""
        return Explained(self.explained, self.explained_null).share

    @property
    def can_tell(self) -> bool:
        """Whether there are independent draws enough to tell slots with an identity from slots without."""
        return self.num_effective >= MIN_EFFECTIVE

    @property
    def num_identified(self) -> dict[str, int | CannotTell]:
        """Group -> number of slots half as far again from the others as any slot without identity is.

        A slot without others is identified. `CannotTell` where there are fewer than ten independent draws.
        """
        return {
            name: int(((slots > _CLEARLY * self.separation_null[name].max(initial=0.0)) | np.isinf(slots)).sum())
            if self.can_tell
            else CannotTell(self.num_effective)
            for name, slots in self.separation.items()
        }

    @property
    def groups_alike(self) -> dict[tuple[int, int | CannotTell | None], list[str]]:
        """Number of slots, and how many of them are identified, ``None`` if there is no other -> groups."""
        slots, numbers = self.separation, self.num_identified
        return by_key(
            ((len(slots[name]), None if np.isinf(slots[name]).all() else number), name)
            for name, number in numbers.items()
        )


# a piece -> its variance within slots and in all
_Shares = dict[str, tuple[float, float]]


def matched_null(
    seen: PlainDraws,
    state: State,
    fixed: Natural | None,
    leading: tuple[int, ...],
    in_order: np.ndarray,
    effort: SearchEffort,
    rng: np.random.Generator,
) -> Null:
    """Relabel shuffled and simulated draws as the trace was, and compare.

    Parameters
    ----------
    seen
        The draws, and the cost and its family on them.
    state
        The labels found.
    fixed
        The reference's parameters if it was held fixed; ``None`` if it was the relabelled draws' own.
    leading
        Shape of the draws' leading dimensions: chains, if there are two, and draws.
    in_order
        Indices of the draws, chain after chain: by what chains remember, draws are shuffled together.
    effort, rng
        As for the trace.

    Returns
    -------
    Null
        Of at most 1000 draws, fewer where draws are large.
    """
    cost, family, view, (draws, *_) = seen
    bound = view.symmetry
    sees_coordinates = bool(family.coordinates)
    read = family.coordinates or GaussianCost().family(seen.draws, bound).coordinates
    size = sum(draws[site][:1].size for site in read)
    most_numbers = _MAX_COUPLED_NUMBERS if _meet(c.axes for c in read.values()) else MAX_NUMBERS
    most = min(MAX_DRAWS, max(_MIN_DRAWS, most_numbers // max(1, size)))
    chosen, chains = evenly(leading, min(family.num_draws, most))
    # stored draws are read in ascending order, whatever their order in chains
    some, back = np.unique(in_order[chosen], return_inverse=True)
    plain = {site: c._replace(transform="identity", center=np.zeros(()), scale=np.ones(())) for site, c in read.items()}
    axes = {site: c.axes for site, c in read.items()}
    own = {name: part.at(some) for name, part in state.items()}
    aligned = _moved({site: c(draws[site][some]) for site, c in read.items()}, axes, own)
    blocks = Blocks(back[blocks_of({site: x[back] for site, x in aligned.items()}, chains).draws])

    pool = {} if sees_coordinates else _moved(family.statistics(some), family.axes, own)

    def shuffled() -> tuple[Family, Arrays]:
        shuffle = Shuffle(rng)

        def of(values: dict[Any, np.ndarray], axes: Mapping[Any, tuple[Axis, ...]]) -> dict[Any, np.ndarray]:
            return {name: blocks.joined(shuffle(blocks.cut(value), axes[name])) for name, value in values.items()}

        # coordinates are shuffled along with the statistics of a cost that does not see them
        values = of(aligned, axes)
        if sees_coordinates:
            return cost.family(Side(values, leading=(blocks.num_draws,)), bound, plain), values
        return _of_arrays(family, of(pool, family.axes)), values

    most_of, separation_null = _of_shuffles(shuffled, bound, axes, fixed, blocks, most, effort, rng)
    shares = _shares(aligned, axes)
    if not sees_coordinates:
        cost, fixed = GaussianCost("identity"), None
    ratio = _shrinkage(cost, bound, plain, aligned, fixed, effort, rng)
    by_site, of_shuffles = _by_site(shares, view), [_by_site(shares_of, view) for shares_of in most_of]
    null_of = {site: float(np.mean([one[site] for one in of_shuffles])) for site in by_site}
    return Null(
        _share(shares.values()),
        float(np.mean([_share(shares_of.values()) for shares_of in most_of])),
        _separation(aligned, axes),
        separation_null,
        ratio,
        len(some),
        blocks.number,
        {site: Explained(share, null_of[site]) for site, share in by_site.items()},
    )


def _meet(axes: Iterable[tuple[Axis, ...]]) -> bool:
    """Whether two groups act on one site."""
    return any(len({axis.group for axis in here if axis.group is not None}) > 1 for here in axes)


def _of_shuffles(
    shuffled: Callable[[], tuple[Family, Arrays]],
    bound: Symmetry,
    axes: Mapping[str, tuple[Axis, ...]],
    fixed: Natural | None,
    blocks: Blocks,
    most_draws: int,
    effort: SearchEffort,
    rng: np.random.Generator,
) -> tuple[list[_Shares], dict[str, np.ndarray]]:
    """What relabelling makes of shuffled draws: of each the shares that explain most, and the furthest slots of all."""
    separation = {name: np.zeros(g.degree) for name, g in bound.groups.items()}
    most = []
    most_shuffles = _MAX_COUPLED_SHUFFLES if _meet(axes.values()) else _MAX_SHUFFLES
    if blocks.number < MIN_EFFECTIVE:
        most_shuffles = 1  # nothing will be told
    for _ in range(int(np.clip(most_draws // blocks.num_draws, 1, most_shuffles))):
        of, values = shuffled()
        # every search that a trace could have ended in counts, not only the likeliest
        order = rng.permutation(blocks.num_draws)[: effort.num_starts]
        starts = [fixed] if fixed is not None else [of.point(int(k)) for k in order]
        here = []
        for start in starts:
            found = relabel(of, bound.groups, start, effort, max_rounds=MAX_ROUNDS if fixed is None else 1)
            moved = _moved(values, axes, found.state)
            here.append(_shares(moved, axes))
            for name, slots in _separation(moved, axes).items():
                separation[name] = max(separation[name], np.sort(slots)[::-1], key=lambda x: x.max(initial=0.0))
        most.append(max(here, key=lambda shares: _share(shares.values())))
    return most, separation


def _shrinkage(
    cost: Cost,
    bound: Symmetry,
    plain: Mapping[str, Coordinate],
    aligned: Arrays,
    fixed: Natural | None,
    effort: SearchEffort,
    rng: np.random.Generator,
) -> float:
    """By how much relabelling shrinks deviations of draws simulated from the Gaussians that were found."""
    axes = {site: c.axes for site, c in plain.items()}
    leading = (len(next(iter(aligned.values()))),)
    of = cost.family(Side(aligned, leading=leading), bound, plain)
    truth = of.natural({name: x.mean(0) for name, x in of.statistics(slice(None)).items()})
    scale = {site: value.std(0) for site, value in aligned.items()}
    simulated = {s: v.mean(0) + scale[s] * rng.standard_normal(v.shape) for s, v in aligned.items()}
    labels = bound.sample(jax.random.key(int(rng.integers(2**31))), leading)
    simulated = _moved(simulated, axes, from_element(labels))
    again = cost.family(Side(simulated, leading=leading), bound, plain)
    found = relabel(again, bound.groups, fixed or truth, effort, max_rounds=MAX_ROUNDS if fixed is None else 1)
    left = {site: value.std(0) for site, value in _moved(simulated, axes, found.state).items()}
    return _ratio(left, scale)


def _of_arrays(family: Family, arrays: Statistics) -> Family:
    """The same family on other statistics."""

    def statistics(items: Items) -> Statistics:
        return {name: array[items] for name, array in arrays.items()}

    point, num_draws = partial(natural_of_draw, statistics, family.natural), len(next(iter(arrays.values())))
    return family._replace(statistics=statistics, point=point, num_draws=num_draws)


def _moved(values: dict[Any, np.ndarray], axes: Mapping[Any, tuple[Axis, ...]], state: State) -> dict[Any, np.ndarray]:
    return {name: move(value, axes[name], state) for name, value in values.items()}


def _shares(values: Arrays, axes: Mapping[str, tuple[Axis, ...]]) -> _Shares:
    """Piece -> variance within slots and in all, in pooled variances, summed over coordinates."""
    found = {}
    for site, value in values.items():
        pooled = pooled_axes(axes[site])
        signed = any(axis.signed for axis in axes[site])
        center = 0.0 if signed else value.mean(pooled, keepdims=True)
        inside = value.var(0)
        whole = np.broadcast_to(np.square(value - center).mean(pooled, keepdims=True)[0], inside.shape)
        unit = np.where(whole > 0, whole, 1.0)
        found[site] = float((inside / unit).sum()), float((whole / unit).sum())
    return found


def _share(parts: Iterable[tuple[float, float]]) -> float:
    """Share of the variance of several sites that lies between slots."""
    within, pooled = np.sum(list(parts), 0)
    return 1.0 - float(within) / max(float(pooled), np.finfo(float).tiny)


def _by_site(shares: _Shares, view: PlainView) -> dict[str, float]:
    """Site -> share of the variance of its pieces that lies between slots."""
    parts = by_key((site, part) for piece, part in shares.items() for site in view.stacks[piece].sites)
    return {site: _share(of_pieces) for site, of_pieces in parts.items()}


def _separation(values: Arrays, axes: Mapping[str, tuple[Axis, ...]]) -> dict[str, np.ndarray]:
    """Distance of each slot from the nearest other of its block, in standard deviations within the two."""
    # of each site a group's means and variances, ``(block, slot, number)``, and whether signs change them
    by_group: dict[str, list[tuple[np.ndarray, np.ndarray, bool]]] = {}
    for site, value in values.items():
        mean, variance, names = value.mean(0), value.var(0), [axis.group for axis in axes[site]]
        for name in dict.fromkeys(filter(None, names)):
            # one block where none of them move
            at = [names.index(label) for label in (*fibred_over(name), name)]
            blocks = math.prod(mean.shape[k] for k in at[:-1])
            shape = blocks, mean.shape[at[-1]], mean.size // (blocks * mean.shape[at[-1]])
            first, second = (np.moveaxis(x, at, range(len(at))).reshape(shape) for x in (mean, variance))
            flips = any(axis.signed for axis in axes[site] if axis.group == name)
            by_group.setdefault(name, []).append((first, second, flips))
    found = {}
    for name, parts in by_group.items():
        mean = np.concatenate([mean for mean, _, _ in parts], 2)
        variance = np.concatenate([variance for _, variance, _ in parts], 2)
        # draws that are all the same are known to rounding: only a slot without others is infinitely far from them
        rounding = np.square(np.finfo(float).eps * np.abs(mean).max(1, keepdims=True, initial=0.0))
        least = max(MIN_VARIANCE * float(variance.mean()), np.finfo(float).tiny)
        variance = np.maximum(variance, np.maximum(rounding, least))
        nearest = np.full(mean.shape[:2], np.inf)
        for block, k in np.ndindex(*nearest.shape):
            here, spread = mean[block], 0.5 * (variance[block] + variance[block, k])
            others = np.arange(len(here)) != k
            distance = (np.square(here - here[k]) / spread).sum(1)
            nearest[block, k] = np.sqrt(distance[others].min(initial=np.inf))
            if any(flips for *_, flips in parts):
                opposite = np.sqrt((np.square(here + here[k]) / spread).sum(1).min())
                nearest[block, k] = min(nearest[block, k], opposite)
        found[name] = nearest.ravel()
    return found


def _ratio(left: Arrays, true: Arrays) -> float:
    """Geometric mean of standard deviations relative to the true ones."""
    # coordinates have unit pooled variance; what is constant within slots says nothing
    known = {site: true[site] > 1e-3 for site in true}
    pairs = [(left[site][known[site]], true[site][known[site]]) for site in left]
    logs = np.concatenate([np.log(np.maximum(a, 1e-12) / b).ravel() for a, b in pairs])
    return float(np.exp(logs.mean())) if len(logs) else float("nan")
