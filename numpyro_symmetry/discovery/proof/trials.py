"""Elements to try, actions that are wrong on purpose, and how far either moves the log joint.

Knows a frozen model and symmetries; decides nothing and explains nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
from scipy import linalg

from numpyro_symmetry.chunks import batched
from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.frozen import Batch, FrozenModel, Point, Values, stacked
from numpyro_symmetry.symmetry import Element, Group, Hard, Part, SignedPermutation, Symmetry
from numpyro_symmetry.symmetry.action import move
from numpyro_symmetry.symmetry.axes import names_in, sites_of_groups
from numpyro_symmetry.symmetry.families import Stack

# how many times what rounding allows a wrong action must change: if none does, invariance shows nothing
CONTROL_FACTOR = 1e3
ALL_GROUPS = "all groups"
# an element, after the name of its group, or `ALL_GROUPS` if it moves several
Trial = tuple[str, Element]
Trials = Callable[[Symmetry, np.random.Generator], list[Trial]]


class Gap(NamedTuple):
    """Change of a log probability: the site that changes most, by how many nats, and how many rounding explains."""

    site: str
    nats: float
    allowed: float

    @property
    def ratio(self) -> float:
        """The change in units of what is allowed; infinite where it is not a number."""
        if not math.isfinite(self.nats):
            return math.inf
        return self.nats / self.allowed if self.allowed else 0.0


NO_GAP = Gap("", 0.0, 0.0)


def largest(*gaps: Gap) -> Gap:
    """The gap with the largest ratio, the first of equals; among zero gaps one that says how much was allowed."""
    return max(gaps, key=lambda gap: (gap.ratio, gap.allowed > 0.0))


def movable(symmetry: Symmetry) -> list[str]:
    """Groups with more than one element."""
    return [name for name, group in symmetry.groups.items() if not group.is_trivial]


def trial_elements(symmetry: Symmetry, rng: np.random.Generator, count: int) -> list[Trial]:
    """Generators and ``count`` random elements of each group, and as many of all groups at once; none the identity.

    A cycle through all indices and a transposition of two neighbours on it generate every permutation, so a model
    invariant under a proper subgroup only (cyclic shifts, all but one index) cannot slip through by luck. An element of
    one group says nothing of the others.
    """
    groups, names = symmetry.groups, movable(symmetry)
    trials: list[Trial] = []
    for name in names:
        parts = groups[name].generators(rng, _cells(symmetry, name, rng))
        parts += [groups[name].random(rng) for _ in range(count)]
        trials += [(name, {name: part.part()}) for part in parts]
    if len(names) > 1:
        trials += [
            (ALL_GROUPS, {name: group.random(rng).part() for name, group in groups.items()}) for _ in range(count)
        ]
    return _moving(groups, trials)


def few_elements(symmetry: Symmetry, rng: np.random.Generator) -> list[Trial]:
    """A few elements that generate all groups, and a random one of all groups at once; none the identity.

    A swap of each group, and one element that cycles the indices of all groups at once, generate their product: its
    powers carry each swap to every other pair of neighbours. Which group breaks a model such a trial does not tell.
    """
    groups = {name: symmetry.groups[name] for name in movable(symmetry)}
    drawn = {name: group.conjugators(rng, _cells(symmetry, name, rng)) for name, group in groups.items()}
    swaps = [(name, {name: swap.part()}) for name, (_, others) in drawn.items() for swap in others]
    cycled = {name: cycles.part() for name, (cycles, _) in drawn.items()}
    return _moving(groups, [*swaps, (_label(groups), cycled)]) + random_elements(symmetry, rng, 1)


def random_elements(symmetry: Symmetry, rng: np.random.Generator, count: int) -> list[Trial]:
    """Random elements of all groups at once, none the identity."""
    groups, names = symmetry.groups, movable(symmetry)
    trials: list[Trial] = []
    while len(trials) < count and names:
        element: Element = {name: group.random(rng).part() for name, group in groups.items()}
        trials += _moving(groups, [(_label(names), element)])
    return trials


def _label(names: Collection[str]) -> str:
    """The label of an element that moves these groups."""
    return next(iter(names)) if len(names) == 1 else ALL_GROUPS


def _cells(symmetry: Symmetry, name: str, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Cells in which a fibred group is tried: a single one where other groups carry it to all others, else many."""
    group, groups = symmetry.groups[name], symmetry.groups
    outer = [groups[label] for label in group.over if label in groups]
    carried = len(outer) == len(group.over) and all(x.permutations.is_full and len(x.members()) == 1 for x in outer)
    every = group.every_cell
    return [every[int(k)] for k in rng.permutation(len(every))[: 1 if carried else EFFORT.max_cells]]


def has_signs(element: Element) -> bool:
    """Whether an element negates anything."""
    signs = [Hard.of(part).sign for part in element.values()]
    return any(sign is not None and bool((np.asarray(sign) < 0).any()) for sign in signs)


def _moving(groups: Mapping[str, Group], trials: Iterable[Trial]) -> list[Trial]:
    """The trials whose element is not the identity."""
    same = {name: group.identity() for name, group in groups.items()}
    return [
        (label, element)
        for label, element in trials
        if not all(Hard.of(part).is_same(same[name]).all() for name, part in element.items())
    ]


class Action(NamedTuple):
    """A symmetry bound to a point's shapes: the sites of each of its groups, and the groups of each stack of sites."""

    symmetry: Symmetry
    sites: Mapping[str, Sequence[str]]
    standing: Sequence[tuple[Stack, set[str]]]

    @classmethod
    def on(cls, symmetry: Symmetry, values: Values) -> Action:
        """The action of a symmetry on points with the shapes of ``values``."""
        bound = symmetry.bind(values)
        standing = [(stack, names_in(stack.entries)) for stack in bound.stacks.values()]
        return cls(bound, sites_of_groups(bound.axes), standing)

    def move(self, element: Element, values: Values) -> Values:
        """A point moved by an element, unchecked so that it may be wrong on purpose; sites that stay are not copied."""
        moved = dict(values)
        for stack in self.stacks(element):
            # a scalar of NumPy is no array of it: it would be moved by JAX, in single precision
            moved |= stack.apart(move(element, stack.entries, np.asarray(stack.of(values))))
        return moved

    def stacks(self, groups: Iterable[str]) -> list[Stack]:
        """The sites, and families of sites, on which any of ``groups`` stands."""
        wanted = set(groups)
        return [stack for stack, names in self.standing if not names.isdisjoint(wanted)]


def exchanged(values: Values, places: Iterable[tuple[str, int]], first: int, second: int) -> Values:
    """A point with two indices exchanged on some axes of sites; in NumPy, as JAX would compile every exchange."""
    moved = dict(values)
    for site, axis in places:
        order = np.arange(moved[site].shape[axis])
        order[[first, second]] = second, first
        moved[site] = moved[site].take(order, axis)
    return moved


def largest_gap(frozen: FrozenModel, before: Values, after: Values) -> Gap:
    """`largest_gaps` at one point."""
    return largest_gaps(frozen, before, {name: x[None] for name, x in after.items()})[0]


def gap_to(frozen: FrozenModel, at: Point, values: Values, without: Set[str] = frozenset()) -> Gap:
    """`gaps_to` for one other point."""
    return gaps_to(frozen, at, stacked([values]), [without])[0]


def gaps_to(frozen: FrozenModel, at: Point, stack: Batch, without: Sequence[Set[str]] = ()) -> list[Gap]:
    """Largest change of a log probability from one point to each of several; priors of ``without[k]`` do not count."""
    after = frozen.log_probs_of(stack)
    for k, sites in enumerate(without):
        for site in after.keys() & sites:
            after[site][k] = at.log_probs[site]
    return largest_gaps(frozen, at.log_probs, after)


def each_gap(
    frozen: FrozenModel, at: Point, places: Iterable[Values], without: Iterable[Set[str]] = ()
) -> Iterator[Gap]:
    """`gaps_to` for any number of points, no more of them made than are evaluated at a time."""
    left = iter(without)
    for batch in batched(places, frozen.most_points):
        yield from gaps_to(frozen, at, stacked(batch), list(itertools.islice(left, len(batch))))


@np.errstate(over="ignore", invalid="ignore")
def largest_gaps(frozen: FrozenModel, before: Values, after: Batch) -> list[Gap]:
    """At each moved point, the largest change of any datum's log-likelihood or of all other terms together.

    Each change is measured against its own rounding. Latent sites and factors may trade off, so only the change of
    their sum counts, against the size of those terms that change at all: a likelihood of 1e9 nats, or a large prior
    elsewhere, would hide any other.
    """
    count = len(next(iter(after.values())))
    change = {name: (np.asarray(after[name], float) - before[name]).reshape(count, -1) for name in before}
    size = {name: np.abs(np.asarray(before[name], float)) for name in before}
    data = [name for name in frozen.data_sites if name in before]
    rest = [name for name in before if name not in data]
    nats = [np.abs(change[name]).max(1, initial=0.0) for name in data]
    allowed = [np.full(count, frozen.allows([name], float(size[name].max(initial=0.0)))) for name in data]
    sites = [[name] * count for name in data]
    if rest:
        sums = np.stack([change[name].sum(1) for name in rest])
        # NumPy's norm squares what may be 1e200
        norms = np.array([linalg.norm(size[name].ravel(), check_finite=False) for name in rest])
        moved_at_all = np.stack([change[name].any(1) for name in rest])
        nats.append(np.abs(sums.sum(0)))
        allowed.append(np.array([frozen.allows(rest, float(x)) for x in np.where(moved_at_all.T, norms, 0).sum(1)]))
        sites.append([rest[k] for k in np.where(np.isfinite(sums), np.abs(sums), np.inf).argmax(0)])
    gaps = [
        [Gap(site, float(x), float(y)) for site, x, y in zip(*term, strict=True)]
        for term in zip(sites, nats, allowed, strict=True)
    ]
    return [largest(NO_GAP, *at) for at in zip(*gaps, strict=True)]


def control_gaps(
    frozen: FrozenModel, action: Action, names: Iterable[str], at: Point, enough: float = CONTROL_FACTOR
) -> dict[str, Gap]:
    """Group -> largest finite change under wrong actions, tried until one is ``enough`` times what is allowed."""
    remaining = {name: iter(wrong_actions(action, name, at.values)) for name in names}
    largest_by_group = dict.fromkeys(remaining, NO_GAP)
    while wrong := [(name, values) for name, rest in remaining.items() for values in itertools.islice(rest, 1)]:
        gaps = each_gap(frozen, at, (values for _, values in wrong))
        for (name, _), gap in zip(wrong, gaps, strict=True):
            if math.isfinite(gap.nats):
                largest_by_group[name] = largest(largest_by_group[name], gap)
        remaining = {name: rest for name, rest in remaining.items() if not largest_by_group[name].ratio > enough}
    return largest_by_group


def wrong_actions(action: Action, name: str, place: Values) -> Iterator[Values]:
    """Points moved wrongly: one index copied over others (if signed, also doubled or zero), or one site left out.

    First at as few indices as a generator moves, which is likelier to leave a log probability finite; then at more, as
    many units of a trained layer may be dead on a few data, and an action on dead units alone shows nothing.
    """
    group, sites = action.symmetry.groups[name], action.sites[name]
    orbit, same = max(group.members(), key=len), group.identity().permutation
    ranks = np.arange(len(orbit))
    for generator in group.permutations.generators(ranks)[::-1] if len(orbit) > 1 else ranks[None]:
        moved = orbit[generator != ranks] if len(orbit) > 1 else orbit
        copied, permuted, ones = same.copy(), same.copy(), np.ones_like(same)
        copied[..., moved[1:]] = moved[0]
        permuted[..., orbit] = orbit[generator]
        wrong: list[Part] = [copied]
        right: Part = permuted
        if group.signed:
            doubled, flipped, zero = ones.copy(), ones.copy(), ones.copy()
            doubled[..., moved], flipped[..., moved], zero[..., moved] = 2, -1, 0
            wrong = [SignedPermutation(copied, ones), *(SignedPermutation(same, by) for by in (doubled, zero))]
            right = SignedPermutation(permuted, flipped)
        after, *broken = [action.move({name: part}, place) for part in (right, *wrong)]
        yield from broken
        stacks = action.stacks({name})
        yield from (after | {site: place[site] for site in stack.sites} for stack in stacks if len(stacks) > 1)
        # only the first half of one site's entries moved: for a matrix on its own, which copied indices make singular
        for site in sites:
            first = np.arange(place[site].size).reshape(place[site].shape) < place[site].size // 2
            yield after | {site: np.where(first, after[site], place[site])}
        # all of these change sums, which leaves supports that hold them: the same with the sums that there were
        yield from ({**point, **{site: _summed_as(place[site], point[site]) for site in sites}} for point in broken)


def _summed_as(place: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values that add up as those of a point do: weights to one along the last axis, contrasts to zero along any."""
    if place.ndim and (place >= 0).all() and np.allclose(place.sum(-1), 1.0, rtol=1e-6):
        return values / values.sum(-1, keepdims=True)
    for axis in range(place.ndim if place.dtype.kind == "f" and place.size else 0):
        if (np.abs(place.sum(axis)) <= 1e-6 * np.abs(place).sum(axis)).all():
            values = values - values.mean(axis, keepdims=True)
    return values
