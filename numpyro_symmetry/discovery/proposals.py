"""What numbers say of groups: which of those claimed hold, and which hold though no rule could tell.

Axes that went through an operation without a rule, or that the model takes apart index by index (loops in Python,
slices), may be free all the same. Sets of them are tried; axes that meet data are never among them. Knows evidence and
symmetries; no terms.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from numpyro_symmetry.discovery.check import Evidence, prove
from numpyro_symmetry.discovery.reading import Block, Reading
from numpyro_symmetry.discovery.trials import largest_gap, move
from numpyro_symmetry.symmetry import Symmetry, SymmetryError

_NUM_ELEMENTS = 1
# axes up to this size are searched for sets of indices that may be exchanged among themselves
_MAX_ORBITS = 32


def what_holds(symmetry: Symmetry, evidence: Evidence, rng: np.random.Generator) -> tuple[Symmetry, list[str]]:
    """The groups that numbers prove, and the names of the others."""
    if holds(symmetry, evidence, rng):
        return symmetry, []
    dropped = [name for name in symmetry.groups if not holds(symmetry.restrict([name]), evidence, rng)]
    kept = symmetry.restrict([name for name in symmetry.groups if name not in dropped])
    if not holds(kept, evidence, rng):
        return symmetry.restrict([]), list(symmetry.groups)
    return kept, dropped


def holds(symmetry: Symmetry, evidence: Evidence, rng: np.random.Generator) -> bool:
    """Whether numbers prove a symmetry."""
    if not symmetry.groups:
        return True
    try:
        return prove(evidence, symmetry, rng, _NUM_ELEMENTS).status == "passed"
    except SymmetryError:
        return False


def with_blocks(
    reading: Reading,
    symmetry: Symmetry,
    blocks: dict[int, list[Block]],
    evidence: Evidence,
    rng: np.random.Generator,
) -> Symmetry:
    """The symmetry with groups on sets of blocks of axes of one size, the largest sets first."""
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
    evidence: Evidence,
    rng: np.random.Generator,
) -> Symmetry | None:
    """One more group on whole axes, of all indices or else of what orbits there are; ``None`` if that does not hold."""
    claimed = reading.with_group(symmetry, places)
    if claimed is None or holds(claimed, evidence, rng):
        return claimed
    (name,) = set(claimed.groups) - set(symmetry.groups) or {None}
    if name is None or (orbits := _orbits(claimed.restrict([name]), name, evidence)) is None:
        return None
    claimed = replace(claimed, orbits=dict(claimed.orbits) | {name: orbits})
    return claimed if holds(claimed, evidence, rng) else None


def _orbits(symmetry: Symmetry, name: str, evidence: Evidence) -> tuple[int, ...] | None:
    """A label for each index, the same where an exchange changes nothing; ``None`` if no two may be exchanged."""
    n = symmetry.sizes[name]
    if n > _MAX_ORBITS:
        return None
    (place, *_), frozen = evidence.places, evidence.frozen
    base = frozen.log_probs(place)
    labels: list[int] = []
    first: list[int] = []
    for index in range(n):
        for label, other in enumerate(first):
            swap = np.arange(n)
            swap[[index, other]] = other, index
            if largest_gap(frozen, base, frozen.log_probs(move(symmetry, {name: swap}, place))).ratio <= 1.0:
                labels.append(label)
                break
        else:
            labels.append(len(first))
            first.append(index)
    return tuple(labels) if len(first) < n else None
