r"""What relabelling makes up: draws without identity, and draws of known identity, relabelled in the same way.

Choosing for every draw the labels under which it looks most like the others makes any draws look alike. Two sets of
made-up draws tell by how much. *Shuffled*: every unit of every draw is some unit of some draw, so no slot has an
identity, and whatever relabelled slots agree on is the relabelling's own doing. *Simulated*: units from the Gaussians
that were found, under random labels: by as much as their relabelled standard deviations fall short of the truth, so do
the trace's. Knows families and coordinates; no containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from numpyro_symmetry.matching.bilinear import move
from numpyro_symmetry.matching.hard import from_element
from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.axes import Axis
from numpyro_symmetry.traces.coordinates import Arrays, Coordinate
from numpyro_symmetry.traces.costs import Cost, Family, GaussianCost, Statistics
from numpyro_symmetry.traces.relabel import State, point_of, relabel
from numpyro_symmetry.traces.summary import as_html, describe_null

# as many as keep chance out of the second digit, and as fit
MAX_DRAWS, MAX_NUMBERS, _MIN_DRAWS = 1000, 4_000_000, 50
# how much further apart than chance puts them slots must be
_CLEARLY = 1.5
_MIN_VARIANCE = 1e-6


class Null(NamedTuple):
    """What relabelled draws agree on, beside what draws without identity agree on after the same relabelling.

    Attributes
    ----------
    explained
        Share of the variance of the relabelled coordinates that lies between slots and not within them: 0 to 1.
    explained_null
        The same of shuffled draws, which have no identity: the most that any of the searches arrived at.
    separation
        Group -> ``(n,)``: distance of each slot's mean from the nearest other slot's (and, where signs are exchanged,
        from all slots' negatives), in standard deviations within the two.
    separation_null
        Group -> ``(n,)``, in descending order: the null's slots are nobody's.
    scale_ratio
        Standard deviations within slots that relabelling leaves of simulated draws, relative to the true ones. Below
        one, the trace's own are too small by about as much.
    num_draws
        How many draws were made up.
    """

    explained: float
    explained_null: float
    separation: dict[str, np.ndarray]
    separation_null: dict[str, np.ndarray]
    scale_ratio: float
    num_draws: int

    def __repr__(self) -> str:
        return f"Null of {self.num_draws} draws: {describe_null(self)}"

    def _repr_html_(self) -> str:
        return as_html(repr(self))

    @property
    def share(self) -> float:
        """Of what relabelling alone cannot explain, the share that slots do: about 0 without identity, at most 1."""
        return (self.explained - self.explained_null) / max(1.0 - self.explained_null, 1e-12)

    @property
    def num_identified(self) -> dict[str, int]:
        """Group -> number of slots half as far again from the others as any slot without identity is."""
        return {
            name: int((slots > _CLEARLY * self.separation_null[name].max(initial=0.0)).sum())
            for name, slots in self.separation.items()
        }


def matched_null(
    cost: Cost,
    family: Family,
    bound: Symmetry,
    read: Mapping[str, Coordinate],
    draws: Arrays,
    state: State,
    fixed: tuple[Statistics, float] | None,
    *,
    num_starts: int,
    method: str,
    seed: int,
    rng: np.random.Generator,
) -> Null:
    """Relabel shuffled and simulated draws as the trace was, and compare.

    Parameters
    ----------
    cost, family
        The cost and its family on the trace.
    bound
        The symmetry.
    read, draws
        Coordinates in which agreement is measured, and the draws.
    state
        The labels found.
    fixed
        The reference's parameters if it was held fixed; ``None`` if it was the relabelled draws' own.
    num_starts, method, seed, rng
        As for the trace.

    Returns
    -------
    Null
        Of at most 1000 draws, fewer where draws are large.
    """
    size = sum(draws[site][:1].size for site in read)
    count = min(family.num_draws, MAX_DRAWS, max(_MIN_DRAWS, MAX_NUMBERS // max(1, size)))
    some = np.sort(rng.choice(family.num_draws, count, replace=False))
    plain = {site: c._replace(transform="identity", center=np.zeros(()), scale=np.ones(())) for site, c in read.items()}
    axes = {site: c.axes for site, c in read.items()}
    own = {name: part.at(some) for name, part in state.items()}

    def of_draws() -> Arrays:
        return {site: c(draws[site][some]) for site, c in read.items()}

    shuffle = Shuffle(rng)
    shuffled = {site: shuffle(value, axes[site]) for site, value in of_draws().items()}
    sees_coordinates = bool(cost.coordinates(draws, bound))
    of = (
        cost.family(shuffled, bound, plain)
        if sees_coordinates
        else _of_arrays(family, tuple(map(shuffle, family.statistics(some), family.axes)))
    )
    # every search that a trace could have ended in counts, not only the likeliest
    starts = [fixed] if fixed is not None else [point_of(of, int(k)) for k in rng.permutation(count)[:num_starts]]
    rounds = {} if fixed is None else {"max_rounds": 1}
    explained_null, separation_null = 0.0, {name: np.zeros(g.size or 0) for name, g in bound.groups.items()}
    for start in starts:
        found = relabel(of, bound.groups, start, method=method, seed=seed, **rounds)
        moved = _moved(shuffled, axes, found.state)
        explained_null = max(explained_null, _explained(moved, axes))
        for name, slots in _separation(moved, axes).items():
            if slots.max(initial=0.0) > separation_null[name].max(initial=0.0):
                separation_null[name] = np.sort(slots)[::-1]
    del shuffled, of

    aligned = _moved(of_draws(), axes, own)
    explained, separation = _explained(aligned, axes), _separation(aligned, axes)
    if not sees_coordinates:
        cost, fixed = GaussianCost("identity"), None
    of = cost.family(aligned, bound, plain)
    truth = of.natural(tuple(t.mean(0) for t in of.statistics(slice(None))))
    scale = {site: value.std(0) for site, value in aligned.items()}
    simulated = {s: v.mean(0) + scale[s] * rng.standard_normal(v.shape) for s, v in aligned.items()}
    del aligned, of
    labels = bound.sample(jax.random.key(int(rng.integers(2**31))), (count,))
    simulated = _moved(simulated, axes, from_element(labels))
    rounds = {} if fixed is None else {"max_rounds": 1}
    found = relabel(
        cost.family(simulated, bound, plain), bound.groups, fixed or truth, method=method, seed=seed, **rounds
    )
    left = {site: value.std(0) for site, value in _moved(simulated, axes, found.state).items()}
    return Null(explained, explained_null, separation, separation_null, _ratio(left, scale), count)


class Shuffle:
    """The same exchange of units for every array on which the same groups stand."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.orders: dict[tuple[str, ...], tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, value: np.ndarray, axes: tuple[Axis, ...]) -> np.ndarray:
        """Exchange units of ``(draw, *shape)`` as wholes, over slots and draws alike, with random signs if signed."""
        at = [k + 1 for k, axis in enumerate(axes) if axis.group is not None]
        front = np.moveaxis(value, at, range(1, len(at) + 1))
        shape = front.shape[: len(at) + 1]
        pool = front.reshape(int(np.prod(shape)), -1)
        key = tuple(axes[k - 1].group for k in at)
        if key not in self.orders:
            self.orders[key] = self._order(key, shape), self.rng.choice([-1, 1], len(pool))  # pyright: ignore
        order, sign = self.orders[key]  # pyright: ignore[reportArgumentType]
        taken = pool[order]
        if any(axes[k - 1].signed for k in at):
            taken = taken * sign[:, None]
        return np.moveaxis(taken.reshape(front.shape), range(1, len(at) + 1), at)

    def _order(self, key: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
        index = np.arange(np.prod(shape)).reshape(shape)
        if len(set(key)) == len(key):
            return self.rng.permutation(index.ravel())
        # a group on two axes moves the diagonal onto itself
        grid = np.indices(shape[1:])
        diagonal = np.all([grid[key.index(name)] == grid[k] for k, name in enumerate(key)], axis=0)
        for where in (diagonal, ~diagonal):
            index[:, where] = self.rng.permutation(index[:, where].ravel()).reshape(-1, int(where.sum()))
        return index.ravel()


def _of_arrays(family: Family, arrays: Statistics) -> Family:
    return family._replace(statistics=lambda items: tuple(a[items] for a in arrays), num_draws=len(arrays[0]))


def _moved(values: Arrays, axes: Mapping[str, tuple[Axis, ...]], state: State) -> Arrays:
    return {site: move(v, axes[site], state) for site, v in values.items()}


def _explained(values: Arrays, axes: Mapping[str, tuple[Axis, ...]]) -> float:
    """Share of variance between slots, of all coordinates together."""
    within, pooled = 0.0, 0.0
    for site, value in values.items():
        exchanged = (0, *(k + 1 for k, axis in enumerate(axes[site]) if axis.group is not None))
        signed = any(axis.signed for axis in axes[site])
        center = 0.0 if signed else value.mean(exchanged, keepdims=True)
        inside = value.var(0)
        whole = np.broadcast_to(np.square(value - center).mean(exchanged, keepdims=True)[0], inside.shape)
        unit = np.where(whole > 0, whole, 1.0)
        within, pooled = within + float((inside / unit).sum()), pooled + float((whole / unit).sum())
    return 1.0 - within / max(pooled, np.finfo(float).tiny)


def _separation(values: Arrays, axes: Mapping[str, tuple[Axis, ...]]) -> dict[str, np.ndarray]:
    """Distance of each slot from the nearest other, in standard deviations within the two."""
    means: dict[str, list[np.ndarray]] = {}
    variances: dict[str, list[np.ndarray]] = {}
    signed: dict[str, bool] = {}
    for site, value in values.items():
        mean, variance = value.mean(0), value.var(0)
        seen = set()
        for k, axis in enumerate(axes[site]):
            if axis.group is None or axis.group in seen:
                continue
            seen.add(axis.group)
            for into, array in ((means, mean), (variances, variance)):
                into.setdefault(axis.group, []).append(np.moveaxis(array, k, 0).reshape(array.shape[k], -1))
            signed[axis.group] = signed.get(axis.group, False) or axis.signed
    found = {}
    for name, parts in means.items():
        mean = np.concatenate(parts, 1)
        variance = np.concatenate(variances[name], 1)
        variance = np.maximum(variance, max(_MIN_VARIANCE * float(variance.mean()), np.finfo(float).tiny))
        nearest = np.full(len(mean), np.inf)
        for k in range(len(mean)):
            spread = 0.5 * (variance + variance[k])
            others = np.arange(len(mean)) != k
            distance = (np.square(mean - mean[k]) / spread).sum(1)
            nearest[k] = np.sqrt(distance[others].min(initial=np.inf))
            if signed[name]:
                nearest[k] = min(nearest[k], np.sqrt((np.square(mean + mean[k]) / spread).sum(1).min()))
        found[name] = nearest
    return found


def _ratio(left: Arrays, true: Arrays) -> float:
    """Geometric mean of standard deviations relative to the true ones."""
    # coordinates have unit pooled variance; what is constant within slots says nothing
    known = {site: true[site] > 1e-3 for site in true}
    pairs = [(left[site][known[site]], true[site][known[site]]) for site in left]
    logs = np.concatenate([np.log(np.maximum(a, 1e-12) / b).ravel() for a, b in pairs])
    return float(np.exp(logs.mean())) if len(logs) else float("nan")
