"""Elements to try, actions that are wrong on purpose, and how far either moves the log joint.

Knows a frozen model and symmetries; decides nothing and explains nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.discovery.joint import FrozenModel
from numpyro_symmetry.models.trace import QUICK
from numpyro_symmetry.symmetry import Element, Group, SignedPermutation, Symmetry, permutation_of
from numpyro_symmetry.symmetry.action import move as act
from numpyro_symmetry.symmetry.axes import labels
from numpyro_symmetry.symmetry.hard import Part

CONTROL_FACTOR = 1e3
# nats that are a change however large what changes is, but for what float64 cannot tell of it
_MOST, _DOUBLE = 1e-3, 1e-13
ALL_GROUPS = "all groups"

# arrays of JAX, or of NumPy where JAX would compile their way to it
Values = dict[str, Any]


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


def movable(symmetry: Symmetry) -> list[str]:
    """Groups with more than one element."""
    return [name for name, group in symmetry.groups.items() if max(group.orbit_sizes) > 1 or group.signed]


def trial_elements(symmetry: Symmetry, rng: np.random.Generator, count: int) -> list[tuple[str, Element]]:
    """Generators of each group and ``count`` random elements, none the identity; as many of all groups at once.

    A cycle through all indices and a transposition of two neighbours on it generate every permutation, so a model
    invariant under a proper subgroup only (cyclic shifts, all but one index) cannot slip through by luck. In NumPy:
    the elements of every group would have to be compiled apart.
    """
    groups, identity = symmetry.groups, {name: _identity(group) for name, group in symmetry.groups.items()}
    names, trials = movable(symmetry), []
    for name in names:
        parts = _generators(groups[name], rng) + [_random(groups[name], rng) for _ in range(count)]
        trials += [(name, identity | {name: part}) for part in parts]
    if len(names) > 1:
        trials += [(ALL_GROUPS, {name: _random(group, rng) for name, group in groups.items()}) for _ in range(count)]
    return [(label, element) for label, element in trials if not _is_same(element, identity)]


def random_elements(symmetry: Symmetry, rng: np.random.Generator, count: int) -> list[tuple[str, Element]]:
    """Random elements of all groups at once, none the identity."""
    groups, names = symmetry.groups, movable(symmetry)
    label, identity = names[0] if len(names) == 1 else ALL_GROUPS, {n: _identity(g) for n, g in groups.items()}
    found: list[tuple[str, Element]] = []
    while len(found) < count and names:
        element: Element = {name: _random(group, rng) for name, group in groups.items()}
        if not _is_same(element, identity):
            found.append((label, element))
    return found


def _identity(group: Group) -> Part:
    index = np.broadcast_to(np.arange(group.size or 0), (*group.cells, group.size or 0)).copy()
    return SignedPermutation(index, np.ones_like(index)) if group.signed else index


def _random(group: Group, rng: np.random.Generator) -> Part:
    part = _identity(group)
    permutation = np.asarray(part.permutation if isinstance(part, SignedPermutation) else part)
    for cell in np.ndindex(*group.cells):
        for orbit in group.members():
            permutation[cell][orbit] = rng.permutation(orbit)
    return SignedPermutation(permutation, rng.choice([-1, 1], permutation.shape)) if group.signed else permutation


def _generators(group: Group, rng: np.random.Generator) -> list[Part]:
    """A cycle and a swap of every orbit and, for signed groups, one flip; in one cell of a fibred group."""
    n = group.size or 0
    changes = []
    for orbit in group.members():
        order = rng.permutation(orbit)
        cycle, swap = np.arange(n), np.arange(n)
        cycle[order] = np.roll(order, -1)
        swap[order[:2]] = order[:2][::-1]
        changes += [cycle] * (len(order) > 1) + [swap] * (len(order) > 2)
    cell = tuple(int(rng.integers(size)) for size in group.cells)

    def part(permutation: np.ndarray, sign: np.ndarray) -> Part:
        index = np.broadcast_to(np.arange(n), (*group.cells, n)).copy()
        index[cell] = permutation
        signs = np.ones_like(index)
        signs[cell] = sign
        return SignedPermutation(index, signs) if group.signed else index

    keep, flip = np.ones(n, int), np.where(np.arange(n) == rng.integers(n), -1, 1)
    return [part(change, keep) for change in changes] + ([part(np.arange(n), flip)] if group.signed else [])


def _is_same(a: Element, b: Element) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: bool((np.asarray(x) == np.asarray(y)).all()), a, b))


def move(symmetry: Symmetry, element: Element, values: Values) -> Values:
    """The action compiled once for all elements, and unchecked, so that actions can be wrong on purpose."""
    return dict(values) | _apply(symmetry, element, {site: values[site] for site in symmetry.axes})


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def _apply(symmetry: Symmetry, element: Element, values: Values) -> Values:
    return {
        site: act(element, entries, jnp.asarray(values[site])) for site, entries in symmetry.bind(values).axes.items()
    }


def largest_gap(frozen: FrozenModel, before: Mapping[str, Array], after: Mapping[str, Array]) -> Gap:
    """Largest change, against its own rounding, of any datum's log-likelihood or of all other terms together.

    Latent sites and factors may trade off, so only their sum counts. It is held against the magnitude of those that
    change at all, for a likelihood of 1e9 nats, or a large prior elsewhere, would hide any other.
    """

    def allowed_of(size: float) -> float:
        relative = frozen.rounding * (1.0 + size)
        return min(relative, max(_MOST, _DOUBLE * size)) if frozen.exact else relative

    change = {name: np.asarray(after[name], float) - np.asarray(before[name], float) for name in before}
    size = {name: np.abs(np.asarray(before[name], float)) for name in before}
    rest = [name for name in before if name not in frozen.data_sites]
    gaps = [Gap("", 0.0, 0.0)]
    for name in frozen.data_sites:
        allowed = allowed_of(float(size[name].max(initial=0.0)))
        gaps.append(Gap(name, float(np.abs(change[name]).max(initial=0.0)), allowed))
    if rest:
        sums = {name: float(change[name].sum()) for name in rest}
        changed = [size[name] for name in rest if change[name].any()]
        allowed = allowed_of(sum(float(np.linalg.norm(sizes)) for sizes in changed))
        site = max(rest, key=lambda name: abs(sums[name]) if math.isfinite(sums[name]) else math.inf)
        gaps.append(Gap(site, abs(sum(sums.values())), allowed))
    return max(gaps, key=lambda gap: gap.ratio)


def control_gap(frozen: FrozenModel, symmetry: Symmetry, name: str, place: Values) -> Gap:
    """Largest finite change under actions that are wrong on purpose."""
    base = frozen.log_probs(place)
    gaps = [largest_gap(frozen, base, frozen.log_probs(values)) for values in wrong_actions(symmetry, name, place)]
    return max((g for g in gaps if math.isfinite(g.nats)), key=lambda g: g.ratio, default=Gap("", 0.0, 0.0))


def wrong_actions(symmetry: Symmetry, name: str, place: Values) -> list[Values]:
    """One index copied over another (a signed group: also doubled), and the action with one site left out."""
    identity = {other: _identity(group) for other, group in symmetry.groups.items()}
    group, orbit = symmetry.groups[name], max(symmetry.groups[name].members(), key=len)
    same = np.asarray(permutation_of(identity[name]))
    copied, swapped, ones = same.copy(), same.copy(), np.ones_like(same)
    copied[..., orbit[-1]], swapped[..., orbit[:2]] = orbit[0], orbit[:2][::-1]
    wrong: list[Part] = [copied]
    right: Part = swapped
    if group.signed:
        doubled, flipped = ones.copy(), ones.copy()
        doubled[..., 0], flipped[..., 0] = 2, -1
        wrong = [SignedPermutation(copied, ones), SignedPermutation(same, doubled)]
        right = SignedPermutation(swapped, flipped)
    sites = [site for site, entries in symmetry.axes.items() if any(axis.group == name for axis in labels(entries))]
    moved = move(symmetry, identity | {name: right}, place)
    broken = [move(symmetry, identity | {name: part}, place) for part in wrong]
    broken += [moved | {site: place[site]} for site in sites if len(sites) > 1]
    # the first half of one site's entries moved, for a site on its own whose copied indices make it singular
    half = {site: np.arange(place[site].size).reshape(place[site].shape) < place[site].size // 2 for site in sites}
    return broken + [
        moved | {site: np.where(half[site], np.asarray(moved[site]), np.asarray(place[site]))} for site in sites
    ]
