"""What numbers say of groups: which of those claimed hold, and which hold though no rule could tell.

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
from numpyro_symmetry.discovery.proof.prove import Proof, prove
from numpyro_symmetry.discovery.proof.trials import exchanged, gap_to
from numpyro_symmetry.steps import through
from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.components import classes

# whole axes of one size: site and position
Block = tuple[tuple[str, int], ...]


class Claim(NamedTuple):
    """One more group on whole axes: the symmetry with it, its places, and a label for each of its indices.

    Indices of which parts of the program met different data have different labels, and are never exchanged.
    """

    symmetry: Symmetry
    name: str
    places: list[tuple[str, int]]
    kinds: tuple[int, ...]

    def with_orbits(self, orbits: tuple[int, ...]) -> Symmetry:
        """The symmetry with the group on orbits, if they differ."""
        if not any(orbits):
            return self.symmetry
        return replace(self.symmetry, orbits=dict(self.symmetry.orbits) | {self.name: orbits})

    def gap(self, one: Evidence, at: Point, index: int, other: int) -> float:
        """How much more than is allowed exchanging two indices, on every axis, changes at a point."""
        return gap_to(one.frozen, at, exchanged(at.values, self.places, index, other)).ratio


Claims = Callable[[Symmetry, tuple[Block, ...]], Claim | None]


def what_holds(symmetry: Symmetry, evidence: Evidence, rng: np.random.Generator) -> tuple[Symmetry, dict[str, Proof]]:
    """The groups that numbers prove, and what they show of the others."""

    def tried(names: Iterable[str]) -> Proof:
        return prove(evidence, symmetry.restrict(list(names)), rng)

    if not symmetry.groups or tried(symmetry.groups).holds:
        return symmetry, {}
    proofs = {name: tried([name]) for name in through(symmetry.groups, len(symmetry.groups))}
    refused = {name: proof for name, proof in proofs.items() if not proof.holds}
    kept = symmetry.restrict([name for name in symmetry.groups if name not in refused])
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
    """The symmetry with groups on sets of blocks of axes of one size; all evidence agrees.

    Whole groups on the smallest sets first: each of two layers of one width has a group of its own, and what moves both
    alike is their diagonal only. Of what is left, the set that has the largest group on some of its indices.
    """

    def held(claimed: Symmetry) -> bool:
        return all(prove(one, claimed, rng, num_far=EFFORT.num_elements_far).holds for one in evidence())

    for known in blocks.values():
        left = list(known)
        for chosen in _sets_of(known):
            claim = claim_of(symmetry, chosen) if all(block in left for block in chosen) else None
            if claim is not None and _is_likely(claim, evidence) and held(one := claim.with_orbits(claim.kinds)):
                symmetry, left = one, [block for block in left if block not in chosen]
        while 0 < len(left) <= EFFORT.max_blocks_in_part:
            parts = [(one, chosen) for chosen in _sets_of(left) if (one := _part(claim_of(symmetry, chosen), evidence))]
            # of equal groups the first, which stands on the fewest axes
            ranked = sorted(parts, key=lambda part: -part[0].log_order())
            found = next(((one, chosen) for one, chosen in ranked if held(one)), None)
            if found is None:
                break
            symmetry, left = found[0], [block for block in left if block not in found[1]]
    return symmetry


def _sets_of(blocks: Sequence[Block]) -> Iterator[tuple[Block, ...]]:
    """Every set of blocks, the smallest first."""
    return itertools.chain.from_iterable(itertools.combinations(blocks, k) for k in range(1, len(blocks) + 1))


def _is_likely(claim: Claim, evidence: Callable[[], Iterable[Evidence]]) -> bool:
    """Whether one exchange at one point changes nothing, to see quickly which claims are worth a proof."""
    first = next(iter(evidence()))
    index = next(k for k, kind in enumerate(claim.kinds) if claim.kinds.count(kind) > 1)
    other = claim.kinds.index(claim.kinds[index], index + 1)
    return claim.gap(first, first.places[0], index, other) <= 1.0


def _part(claim: Claim | None, evidence: Callable[[], Iterable[Evidence]]) -> Symmetry | None:
    """The claim with orbits of those indices that may be exchanged; ``None`` where no two may be.

    Indices of different kinds are not tried.
    """
    if claim is None or len(claim.kinds) > EFFORT.max_orbits:
        return None

    def are_alike(index: int, other: int) -> bool:
        return claim.kinds[index] == claim.kinds[other] and all(
            claim.gap(one, at, index, other) <= 1.0
            # what is dear to come by is asked for only where all before it has said yes
            for one in evidence()
            for at in (one.places[0], *one.far)
        )

    # with every member: where a change is seen at few points, one of them may seem to be like two that differ
    label = classes(len(claim.kinds), lambda index, orbit: all(are_alike(index, other) for other in orbit))
    return claim.with_orbits(label) if len(set(label)) < len(label) else None
