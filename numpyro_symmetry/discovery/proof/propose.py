"""Groups by numbers: which of those that labels claim hold, and which hold though no typing rule could tell.

Axes that went through an operation without a rule, or that the model takes apart index by index (loops in Python,
slices), may be free all the same. Sets of them are tried; axes that meet data are never among them. Knows evidence and
symmetries; no terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.evidence import Evidence
from numpyro_symmetry.discovery.proof.frozen import Point
from numpyro_symmetry.discovery.proof.prove import Proof, holds_on, prove
from numpyro_symmetry.discovery.proof.trials import exchanged, gap_to
from numpyro_symmetry.steps import track
from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.components import classes

# whole axes of one size: site and position
Block = tuple[tuple[str, int], ...]


class Claim(NamedTuple):
    """A symmetry with one more group on whole axes, still to be proved; the group's places, and a kind of each index.

    Indices that met different data in the program are of different kinds, and are never exchanged.
    """

    symmetry: Symmetry
    name: str
    places: list[tuple[str, int]]
    kinds: tuple[int, ...]

    def with_orbits(self, orbits: tuple[int, ...]) -> Symmetry:
        """The symmetry with the group limited to orbits, if there are several."""
        if not any(orbits):
            return self.symmetry
        return replace(self.symmetry, orbits=dict(self.symmetry.orbits) | {self.name: orbits})

    def gap(self, evidence: Evidence, at: Point, index: int, other: int) -> float:
        """Largest change at a point, relative to what is allowed, when two indices of the group are exchanged."""
        return gap_to(evidence.frozen, at, exchanged(at.values, self.places, index, other)).ratio


Claims = Callable[[Symmetry, tuple[Block, ...]], Claim | None]


def proved_groups(
    symmetry: Symmetry, evidence: Evidence, rng: np.random.Generator
) -> tuple[Symmetry, dict[str, Proof]]:
    """The symmetry of those groups that numbers prove, and the proof in which each of the others was refused."""

    def tried(names: Iterable[str]) -> Proof:
        return prove(evidence, symmetry.restrict(list(names)), rng)

    if not symmetry.groups or tried(symmetry.groups).holds:
        return symmetry, {}
    proofs = {name: tried([name]) for name in track(symmetry.groups, len(symmetry.groups))}
    refused = {name: proof for name, proof in proofs.items() if not proof.holds}
    kept = symmetry.restrict(symmetry.groups.keys() - refused)
    if kept.groups and not (together := tried(kept.groups)).holds:
        return symmetry.restrict([]), dict.fromkeys(kept.groups, together) | refused
    return kept, refused


def with_blocks(
    claim_of: Claims,
    symmetry: Symmetry,
    blocks: Mapping[int, Sequence[Block]],
    evidence: Callable[[], Iterable[Evidence]],
    rng: np.random.Generator,
) -> Symmetry:
    """The symmetry with a group on every set of blocks of one size for which all evidence agrees.

    Groups of all indices are tried on the smallest sets first: each of two layers of one width has a group of its own,
    and a group that moves both alike would only be the diagonal of the two. Of the blocks that are left, the set with
    the largest group on part of its indices is taken, again and again.
    """
    for known in blocks.values():
        left = list(known)
        for chosen in _sets_of(known):
            claim = claim_of(symmetry, chosen) if all(block in left for block in chosen) else None
            if claim is None or not _is_likely(claim, evidence):
                continue
            if holds_on(evidence(), whole := claim.with_orbits(claim.kinds), rng):
                symmetry, left = whole, [block for block in left if block not in chosen]
        while 0 < len(left) <= EFFORT.max_blocks_in_part:
            parts = [
                (part, chosen)
                for chosen in _sets_of(left)
                if (part := _on_orbits(claim_of(symmetry, chosen), evidence))
            ]
            # of equal groups the first, which stands on the fewest axes
            ranked = sorted(parts, key=lambda part: -part[0].log_order())
            found = next(((part, chosen) for part, chosen in ranked if holds_on(evidence(), part, rng)), None)
            if found is None:
                break
            symmetry, left = found[0], [block for block in left if block not in found[1]]
    return symmetry


def _sets_of(blocks: Sequence[Block]) -> Iterator[tuple[Block, ...]]:
    """Every set of blocks, the smallest first."""
    return itertools.chain.from_iterable(itertools.combinations(blocks, k) for k in range(1, len(blocks) + 1))


def _is_likely(claim: Claim, evidence: Callable[[], Iterable[Evidence]]) -> bool:
    """Whether one exchange at one point changes nothing: a quick test of whether the claim is worth a proof."""
    first = next(iter(evidence()))
    index = next(k for k, kind in enumerate(claim.kinds) if claim.kinds.count(kind) > 1)
    other = claim.kinds.index(claim.kinds[index], index + 1)
    return claim.gap(first, first.places[0], index, other) <= 1.0


def _on_orbits(claim: Claim | None, evidence: Callable[[], Iterable[Evidence]]) -> Symmetry | None:
    """The claimed symmetry, its group limited to orbits of exchangeable indices; ``None`` if no two are.

    Indices of different kinds are not tried.
    """
    if claim is None or len(claim.kinds) > EFFORT.max_orbits:
        return None

    def are_alike(index: int, other: int) -> bool:
        return claim.kinds[index] == claim.kinds[other] and all(
            claim.gap(one, at, index, other) <= 1.0
            # evidence on other data is dear to make: it is made only where all evidence before it allows the exchange
            for one in evidence()
            for at in (one.places[0], *one.far)
        )

    # with every member: a change may be seen at few points only, and one index then seem like two that differ
    label = classes(len(claim.kinds), lambda index, orbit: all(are_alike(index, other) for other in orbit))
    return claim.with_orbits(label) if len(set(label)) < len(label) else None
