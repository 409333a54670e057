"""Elements to try, actions that are wrong on purpose, and how far either moves the log joint.

Knows a frozen model and symmetries; decides nothing and explains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.discovery.joint import FrozenModel
from numpyro_symmetry.symmetry import Element, SignedPermutation, Symmetry, permutation_of

CONTROL_FACTOR = 1e3
ALL_GROUPS = "all groups"
_RELATIVE = {True: 1e-9, False: 1e-4}

Values = dict[str, Array]


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
    return [name for name, group in symmetry.groups.items() if (group.size or 0) > 1 or group.kind == "signed"]


def trial_elements(symmetry: Symmetry, rng_key: Array, count: int) -> list[tuple[str, Element]]:
    """Generators of each group and ``count`` random elements, none the identity; as many of all groups at once.

    A cycle through all indices and a transposition of two neighbours on it generate every permutation, so a model
    invariant under a proper subgroup only (cyclic shifts, all but one index) cannot slip through by luck.
    """
    trials: list[tuple[str, Element]] = []
    names = movable(symmetry)
    for name, key in zip(names, jax.random.split(rng_key, max(len(names), 1)), strict=False):
        parts = _generators(symmetry, name, key)
        parts += [symmetry.sample(k)[name] for k in jax.random.split(jax.random.fold_in(key, 1), count)]
        elements = [symmetry.identity() | {name: part} for part in parts]
        trials += [(name, element) for element in elements if not _is_identity(symmetry, element)]
    if len(names) > 1:
        together = [symmetry.sample(k) for k in jax.random.split(jax.random.fold_in(rng_key, 2), count)]
        trials += [(ALL_GROUPS, element) for element in together if not _is_identity(symmetry, element)]
    return trials


def _generators(symmetry: Symmetry, name: str, rng_key: Array) -> list:
    n, kind = symmetry.groups[name].size or 0, symmetry.groups[name].kind
    order = np.asarray(jax.random.permutation(rng_key, n))
    cycle, swap, keep = np.arange(n), np.arange(n), np.ones(n, int)
    cycle[order] = np.roll(order, -1)
    permutations = [cycle]
    if n > 2:
        swap[order[:2]] = order[:2][::-1]
        permutations.append(swap)
    if n < 2:
        permutations = []
    if kind != "signed":
        return [jnp.asarray(permutation) for permutation in permutations]
    flip = keep.copy()
    flip[order[0]] = -1
    signed = [(permutation, keep) for permutation in permutations] + [(np.arange(n), flip)]
    return [SignedPermutation(jnp.asarray(p), jnp.asarray(s)) for p, s in signed]


def _is_identity(symmetry: Symmetry, element: Element) -> bool:
    same = jax.tree.map(lambda a, b: bool((jnp.asarray(a) == jnp.asarray(b)).all()), element, symmetry.identity())
    return jax.tree.all(same)


def move(symmetry: Symmetry, element: Element, values: Values) -> Values:
    """``symmetry.apply`` with arrays out."""
    return {name: jnp.asarray(value) for name, value in symmetry.apply(element, values).items()}


def largest_gap(frozen: FrozenModel, before: Mapping[str, Array], after: Mapping[str, Array]) -> Gap:
    """Largest change, against its own rounding, of any datum's log-likelihood or of all other terms together.

    Latent sites and factors may trade off, so only their sum counts. It is held against the magnitude of those that
    change at all, for a likelihood of 1e9 nats, or a large prior elsewhere, would hide any other.
    """
    relative = _RELATIVE[frozen.exact]
    change = {name: np.asarray(after[name], float) - np.asarray(before[name], float) for name in before}
    size = {name: np.abs(np.asarray(before[name], float)) for name in before}
    rest = [name for name in before if name not in frozen.data_sites]
    gaps = [Gap("", 0.0, 0.0)]
    for name in frozen.data_sites:
        allowed = relative * (1.0 + size[name].max(initial=0.0))
        gaps.append(Gap(name, float(np.abs(change[name]).max(initial=0.0)), float(allowed)))
    if rest:
        sums = {name: float(change[name].sum()) for name in rest}
        changed = [size[name] for name in rest if change[name].any()]
        allowed = relative * (1.0 + sum(float(np.linalg.norm(sizes)) for sizes in changed))
        site = max(rest, key=lambda name: abs(sums[name]) if math.isfinite(sums[name]) else math.inf)
        gaps.append(Gap(site, abs(sum(sums.values())), allowed))
    return max(gaps, key=lambda gap: gap.ratio)


def control_gap(frozen: FrozenModel, symmetry: Symmetry, name: str, place: Values) -> Gap:
    """Largest finite change under actions that are wrong on purpose."""
    base = frozen.log_probs(place)
    gaps = [largest_gap(frozen, base, frozen.log_probs(values)) for values in wrong_actions(symmetry, name, place)]
    return max((g for g in gaps if math.isfinite(g.nats)), key=lambda g: g.ratio, default=Gap("", 0.0, 0.0))


def wrong_actions(symmetry: Symmetry, name: str, place: Values) -> list[Values]:
    """Index 0 copied over the last (a signed group: also doubled), and the action with one site left out."""
    identity, n = symmetry.identity(), symmetry.groups[name].size or 0
    copied, swapped = jnp.arange(n).at[-1].set(0), jnp.arange(n).at[: min(n, 2)].set(jnp.arange(min(n, 2))[::-1])
    wrong, right = [copied], swapped
    if isinstance(identity[name], SignedPermutation):
        ones = jnp.ones(n, int)
        wrong = [SignedPermutation(copied, ones), SignedPermutation(permutation_of(identity[name]), ones.at[0].set(2))]
        right = SignedPermutation(swapped, ones.at[0].set(-1))
    sites = [site for site in symmetry.axes if any(axis.group == name for axis in symmetry.opened(site))]
    moved = move(symmetry, identity | {name: right}, place)
    broken = [move(symmetry, identity | {name: part}, place) for part in wrong]
    return broken + [moved | {site: place[site]} for site in sites if len(sites) > 1]
