"""What numbers say of groups: which of those claimed hold, and which hold though no rule could tell.

Axes that went through an operation without a rule, or that the model takes apart index by index (loops in Python,
slices), may be free all the same. Sets of them are tried; axes that meet data are never among them. Knows evidence and
symmetries; no terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from numpyro_symmetry.discovery.check import refusal
from numpyro_symmetry.discovery.evidence import Evidence
from numpyro_symmetry.discovery.joint import FrozenModel
from numpyro_symmetry.discovery.reading import Block, Reading
from numpyro_symmetry.discovery.trials import Values, largest_gap, move
from numpyro_symmetry.symmetry import Symmetry, SymmetryError

_NUM_ELEMENTS, _NUM_FAR = 1, 4
# axes up to this size are searched for sets of indices that may be exchanged among themselves
_MAX_ORBITS = 32


def what_holds(
    symmetry: Symmetry, evidence: Evidence, rng: np.random.Generator
) -> tuple[Symmetry, dict[str, SymmetryError]]:
    """The groups that numbers prove, and why they do not prove the others."""

    def why_not(symmetry: Symmetry) -> SymmetryError | None:
        return refusal(evidence, symmetry, rng, _NUM_ELEMENTS) if symmetry.groups else None

    if why_not(symmetry) is None:
        return symmetry, {}
    tried = {name: why_not(symmetry.restrict([name])) for name in symmetry.groups}
    refused = {name: why for name, why in tried.items() if why is not None}
    kept = symmetry.restrict([name for name in symmetry.groups if name not in refused])
    if (together := why_not(kept)) is not None:
        return symmetry.restrict([]), dict.fromkeys(kept.groups, together) | refused
    return kept, refused


def with_blocks(
    reading: Reading,
    symmetry: Symmetry,
    blocks: dict[int, list[Block]],
    evidence: Callable[[], Iterable[Evidence]],
    rng: np.random.Generator,
) -> Symmetry:
    """The symmetry with groups on sets of blocks of axes of one size, the largest sets first; all evidence agrees."""
    for known in blocks.values():
        left = list(known)
        for count in range(len(known), 0, -1):
            for chosen in itertools.combinations(known, count):
                if not set(chosen) <= set(left):
                    continue
                places = [place for block in chosen for place in block]
                found = _claim(reading, symmetry, places, evidence, rng)
                if found is not None:
                    symmetry = found
                    left = [block for block in left if block not in chosen]
    return symmetry


def _claim(
    reading: Reading,
    symmetry: Symmetry,
    places: list[tuple[str, int]],
    evidence: Callable[[], Iterable[Evidence]],
    rng: np.random.Generator,
) -> Symmetry | None:
    """One more group on whole axes, of all indices or else of what orbits there are; ``None`` if that does not hold."""

    def held(symmetry: Symmetry) -> bool:
        return all(refusal(one, symmetry, rng, _NUM_ELEMENTS, _NUM_FAR) is None for one in evidence())

    claimed, kinds = reading.with_group(symmetry, places), reading.kinds(places)
    if claimed is None or len(set(kinds)) == len(kinds):
        return None
    (name,) = set(claimed.groups) - set(symmetry.groups) or {None}
    if name is None:
        return claimed if held(claimed) else None
    for orbits in (kinds, None):
        orbits = orbits or _orbits(claimed.restrict([name]), name, kinds, evidence)
        if orbits is None:
            return None
        one = replace(claimed, orbits=dict(claimed.orbits) | ({name: orbits} if any(orbits) else {}))
        if held(one):
            return one
    return None


def _orbits(
    symmetry: Symmetry, name: str, kinds: tuple[int, ...], evidence: Callable[[], Iterable[Evidence]]
) -> tuple[int, ...] | None:
    """A label for each index, the same where an exchange changes nothing; ``None`` if no two may be exchanged.

    Indices of different kinds are not tried.
    """
    n = symmetry.sizes[name]
    if n > _MAX_ORBITS:
        return None
    known: list[tuple[FrozenModel, list[tuple[Values, Values]]]] = []

    def seen() -> Iterator[tuple[FrozenModel, list[tuple[Values, Values]]]]:
        # what is dear to come by is asked for only where all before it has said yes
        for k, one in enumerate(evidence()):
            if k == len(known):
                known.append((one.frozen, [(p, one.frozen.log_probs(p)) for p in (one.places[0], *one.far)]))
            yield known[k]

    def changes_nothing(swap: np.ndarray) -> bool:
        return all(
            largest_gap(frozen, base, frozen.log_probs(move(symmetry, {name: swap}, place))).ratio <= 1.0
            for frozen, places in seen()
            for place, base in places
        )

    def may_be_exchanged(index: int, other: int) -> bool:
        swap = np.arange(n)
        swap[[index, other]] = other, index
        return kinds[index] == kinds[other] and changes_nothing(swap)

    orbits: list[list[int]] = []
    for index in range(n):
        # with every member: where a change is seen at few points, one of them may seem to be like two that differ
        home = next((orbit for orbit in orbits if all(may_be_exchanged(index, other) for other in orbit)), None)
        if home is None:
            orbits.append(home := [])
        home.append(index)
    label = {index: k for k, orbit in enumerate(orbits) for index in orbit}
    return tuple(label[index] for index in range(n)) if len(orbits) < n else None
