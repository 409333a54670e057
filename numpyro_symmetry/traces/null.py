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

from numpyro_symmetry.matching.bilinear import Hard, Term, move
from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.axes import Axis
from numpyro_symmetry.symmetry.elements import SignedPermutation
from numpyro_symmetry.traces.coordinates import Arrays, Coordinate
from numpyro_symmetry.traces.costs import Cost, Family, GaussianCost, Statistics
from numpyro_symmetry.traces.relabel import State, relabel

# as many as keep chance out of the second digit, and as fit
MAX_DRAWS, MAX_NUMBERS = 1000, 32_000_000


class Null(NamedTuple):
    """What relabelled draws agree on, beside what draws without identity agree on after the same relabelling.

    Attributes
    ----------
    explained
        Share of the variance of the relabelled coordinates that lies between slots and not within them: 0 to 1.
    explained_null
        The same of shuffled draws, which have no identity.
    explained_by_slot
        Group -> ``(n,)``.
    explained_null_by_slot
        Group -> ``(n,)``, in descending order: the null's slots are nobody's.
    scale_ratio
        Standard deviations within slots that relabelling leaves of simulated draws, relative to the true ones. Below
        one, the trace's own are too small by about as much.
    num_draws
        How many draws were made up.
    """

    explained: float
    explained_null: float
    explained_by_slot: dict[str, np.ndarray]
    explained_null_by_slot: dict[str, np.ndarray]
    scale_ratio: float
    num_draws: int

    @property
    def num_identified(self) -> dict[str, int]:
        """Group -> number of slots that agree with themselves more than any slot without identity does."""
        return {
            name: int((slots > self.explained_null_by_slot[name].max(initial=0.0)).sum())
            for name, slots in self.explained_by_slot.items()
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
    method: str,
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
    method, rng
        As for the trace.

    Returns
    -------
    Null
        Of at most 1000 draws.
    """
    size = sum(draws[site][:1].size for site in read)
    count = min(family.num_draws, MAX_DRAWS, max(2, MAX_NUMBERS // max(1, size)))
    some = rng.choice(family.num_draws, count, replace=False)
    x = {site: c(draws[site][some]) for site, c in read.items()}
    plain = {site: c._replace(transform="identity", center=np.zeros(()), scale=np.ones(())) for site, c in read.items()}
    axes = {site: c.axes for site, c in read.items()}
    aligned = _moved(x, axes, {name: part.at(some) for name, part in state.items()})
    explained, by_slot = _explained(aligned, axes)

    def relabelled(of: Family, start: tuple[Statistics, float]) -> State:
        # against a reference held fixed there is one round
        rounds = {} if fixed is None else {"max_rounds": 1}
        return relabel(of, bound.groups, fixed or start, method=method, **rounds).state

    shuffle = _Shuffle(rng)
    shuffled = {site: shuffle(value, axes[site]) for site, value in x.items()}
    sees_coordinates = bool(cost.coordinates(draws, bound))
    of = (
        cost.family(shuffled, bound, plain)
        if sees_coordinates
        else _of_arrays(family, tuple(map(shuffle, family.statistics(some), family.axes)))
    )
    found = relabelled(of, of.point(tuple(t[0] for t in of.statistics(slice(0, 1)))))
    explained_null, null_by_slot = _explained(_moved(shuffled, axes, found), axes)
    ordered = {name: np.sort(slots)[::-1] for name, slots in null_by_slot.items()}

    simulate = cost if sees_coordinates else GaussianCost("identity")
    fixed = fixed if sees_coordinates else None
    of = simulate.family(aligned, bound, plain)
    truth = of.natural(tuple(t.mean(0) for t in of.statistics(slice(None))))
    scale = {site: value.std(0) for site, value in aligned.items()}
    simulated = {s: v.mean(0) + scale[s] * rng.standard_normal(v.shape) for s, v in aligned.items()}
    labels = bound.sample(jax.random.key(int(rng.integers(2**31))), (count,))
    simulated = _moved(simulated, axes, {name: _hard(part) for name, part in labels.items()})
    found = relabelled(simulate.family(simulated, bound, plain), truth)
    left = {site: value.std(0) for site, value in _moved(simulated, axes, found).items()}
    return Null(explained, explained_null, by_slot, ordered, _ratio(left, scale), count)


class _Shuffle:
    """The same exchange of units for every array on which the same groups stand."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.orders: dict[tuple[str, ...], tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, value: np.ndarray, axes: tuple[Axis, ...]) -> np.ndarray:
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
    return {site: move(Term(v, v, axes[site]), state) for site, v in values.items()}


def _explained(values: Arrays, axes: Mapping[str, tuple[Axis, ...]]) -> tuple[float, dict[str, np.ndarray]]:
    """Share of variance between slots, of all coordinates together and of each slot's."""
    within, pooled = [], []
    slots: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for site, value in values.items():
        groups = [k for k, axis in enumerate(axes[site]) if axis.group is not None]
        signed = any(axis.signed for axis in axes[site])
        exchanged = (0, *(k + 1 for k in groups))
        center = 0.0 if signed else value.mean(exchanged, keepdims=True)
        inside = value.var(0)
        whole = np.broadcast_to(np.square(value - center).mean(exchanged, keepdims=True)[0], inside.shape)
        unit = np.where(whole > 0, whole, 1.0)
        within.append((inside / unit).ravel())
        pooled.append((whole / unit).ravel())
        for k in set(groups):
            along = tuple(j for j in range(inside.ndim) if j != k)
            sums = (inside / unit).sum(along), (whole / unit).sum(along)
            slots.setdefault(axes[site][k].group, []).append(sums)  # pyright: ignore[reportArgumentType]
    share = 1.0 - sum(w.sum() for w in within) / max(sum(p.sum() for p in pooled), np.finfo(float).tiny)
    by_slot = {name: 1.0 - sum(a for a, _ in s) / np.maximum(sum(b for _, b in s), 1e-300) for name, s in slots.items()}
    return float(share), by_slot


def _ratio(left: Arrays, true: Arrays) -> float:
    """Geometric mean of standard deviations relative to the true ones."""
    pairs = [(left[site][true[site] > 0], true[site][true[site] > 0]) for site in left]
    logs = np.concatenate([np.log(np.maximum(a, 1e-12) / b).ravel() for a, b in pairs])
    return float(np.exp(logs.mean())) if len(logs) else float("nan")


def _hard(part: object) -> Hard:
    if isinstance(part, SignedPermutation):
        return Hard(np.asarray(part.permutation), np.asarray(part.sign))
    return Hard(np.asarray(part))
