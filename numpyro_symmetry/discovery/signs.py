"""Signs: which axes of a group may be negated together, found by numbers. Knows evidence and symmetries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.discovery.check import refusal
from numpyro_symmetry.discovery.evidence import Evidence
from numpyro_symmetry.discovery.trials import largest_gap, move
from numpyro_symmetry.symmetry import Concat, Split, Symmetry, Unsigned
from numpyro_symmetry.symmetry.axes import AxisEntry, labels, pieces_of

# places where a group stands up to which every set of them is tried
_MAX_PLACES = 10


def with_signs(symmetry: Symmetry, evidence: Evidence, rng: np.random.Generator) -> Symmetry:
    """Make signed every group with a set of axes whose entries may be negated index by index; the smallest such set."""
    # units before the heads that hold them, whose sign is that of all their units
    for name in sorted(symmetry.groups, key=lambda name: -len(symmetry.groups[name].cells)):
        signed = next((s for s in _signed(symmetry, name) if _is_even(s, name, evidence)), None)
        if signed is not None and _is_new(signed, name, evidence) and refusal(evidence, signed, rng, 1, 1) is None:
            symmetry = signed
    return symmetry


def _signed(symmetry: Symmetry, name: str) -> Iterator[Symmetry]:
    """The symmetry with signs of a group on some of the places where it stands, and not on the others."""
    count = sum(axis.group == name for entries in symmetry.axes.values() for axis in labels(entries))
    if count > _MAX_PLACES:
        return
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(count), k) for k in range(1, count + 1)):
        place = itertools.count()

        def marked(entry: AxisEntry, chosen: tuple[int, ...] = chosen, place: Iterator[int] = place) -> AxisEntry:
            if isinstance(entry, Split | Concat):
                return type(entry)(entry.sizes, tuple(map(marked, entry.groups)))  # pyright: ignore
            return Unsigned(name) if entry == name and next(place) not in chosen else entry

        axes = {site: tuple(map(marked, entries)) for site, entries in symmetry.axes.items()}
        yield replace(symmetry, axes=axes, kinds=dict(symmetry.kinds) | {name: "signed"})


def _is_even(symmetry: Symmetry, name: str, evidence: Evidence) -> bool:
    """Whether negating index 0 of a signed group changes nothing, to see quickly which claims are worth a proof."""
    (place, *_) = evidence.places
    moved = dict(place)
    for site, entries in symmetry.axes.items():
        value = np.array(place[site])
        event = value.shape[value.ndim - len(entries) :]
        factor = np.ones(int(np.prod(event)), value.dtype)
        for piece in pieces_of(entries, event):
            for k, axis in enumerate(piece.axes):
                if axis.group == name and axis.signed:
                    factor[piece.indices.take([0], axis=k)] *= -1
        moved[site] = jnp.asarray(value * factor.reshape(event))
    base = evidence.frozen.log_probs(place)
    return largest_gap(evidence.frozen, base, evidence.frozen.log_probs(moved)).ratio <= 1.0


def _is_new(symmetry: Symmetry, name: str, evidence: Evidence) -> bool:
    """Whether negating an index of a signed group is more than negating indices of others: all units of a head, say.

    What a change of sign negates is a vector over GF(2), and the question is whether it lies in the others' span.
    """
    others = [other for other, group in symmetry.groups.items() if group.signed and other != name]
    basis: list[int] = []
    for flip in (flip for other in others for flip in _flips(symmetry, other, evidence)):
        if left := _reduced(flip, basis):
            basis.append(left)
    return _reduced(next(_flips(symmetry, name, evidence)), basis) != 0


def _reduced(flip: int, basis: list[int]) -> int:
    for known in basis:
        flip = min(flip, flip ^ known)
    return flip


def _flips(symmetry: Symmetry, name: str, evidence: Evidence) -> Iterator[int]:
    """What negating each index of a group negates: a bit for every number of every site."""
    ones = {site: np.ones(np.shape(value)) for site, value in evidence.places[0].items()}
    identity = jax.tree.map(np.asarray, symmetry.identity())
    part = identity[name]
    for index in np.ndindex(part.sign.shape):
        sign = part.sign.copy()
        sign[index] = -1
        moved = move(symmetry, identity | {name: part._replace(sign=sign)}, ones)
        negated = np.concatenate([np.ravel(moved[site]) < 0 for site in symmetry.axes])
        yield int.from_bytes(np.packbits(negated).tobytes(), "big")
