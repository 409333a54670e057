"""Entries of sites that negating an index of a group negates, as vectors over GF(2). Knows symmetries; no models."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.symmetry import Concat, Group, Split, Unsigned
from numpyro_symmetry.symmetry.axes import AxisEntry, num_axes, padded
from numpyro_symmetry.symmetry.families import Axes
from numpyro_symmetry.symmetry.gf2 import basis_of, beyond
from numpyro_symmetry.symmetry.pieces import pieces_of

# a site, and the position of one of the places on it where a group stands
Place = tuple[str, int]
Arrays = Mapping[str, np.ndarray]


class GroupSigns(NamedTuple):
    """Signs of a group on some of the places where it stands, and not on the others.

    Attributes
    ----------
    name, group
        The group, which has no signs yet.
    sites
        The sites on which it stands.
    chosen
        Its places that have signs.
    """

    name: str
    group: Group
    sites: Sequence[str]
    chosen: frozenset[Place]

    @property
    def negated(self) -> list[str]:
        """The sites on which it has signs."""
        return sorted({site for site, _ in self.chosen})

    def marked(self, site: str, entries: Sequence[AxisEntry]) -> tuple[AxisEntry, ...]:
        """The entries of one of the group's sites, in which its other places are marked as without signs."""
        place = itertools.count()

        def marked_entry(entry: AxisEntry) -> AxisEntry:
            if isinstance(entry, Split | Concat):
                return type(entry)(entry.sizes, tuple(map(marked_entry, entry.groups)))  # pyright: ignore
            if entry != self.name or (site, next(place)) in self.chosen:
                return entry
            return None if self.group.is_trivial else Unsigned(self.name)

        return tuple(map(marked_entry, entries))


def flips(signs: GroupSigns, axes: Axes, place: Arrays) -> Iterator[dict[str, np.ndarray]]:
    """For each cell and index of a group, the factors ±1 of sites when it is negated; in NumPy, to compile nothing."""
    (name, group, *_), pieces = signs, {}
    for site in signs.negated:
        entries = signs.marked(site, axes[site])
        shape = np.shape(place[site])
        event = shape[len(shape) - num_axes(entries) :]
        pieces[site] = event, pieces_of(entries, event)
    for index in np.ndindex((*group.cells, group.degree)):
        at = dict(zip((*group.over, name), index, strict=True))
        found = {}
        for site, (event, own) in pieces.items():
            factor = np.ones(math.prod(event))
            for piece in own:
                for k, axis in enumerate(piece.axes):
                    if axis.group == name and axis.signed:
                        here = [
                            at.get(a.group or "") if a.group != name or j == k else None
                            for j, a in enumerate(piece.axes)
                        ]
                        factor[piece.indices[tuple(slice(None) if i is None else i for i in here)]] *= -1
            found[site] = factor.reshape(event)
        yield found


def is_new(signs: GroupSigns, known: Iterable[GroupSigns], axes: Axes, place: Arrays) -> bool:
    """Whether negating an index of a group (a head) is more than negating indices of groups within it (all its units).

    The entries that a change of sign negates are a vector over GF(2); is it beyond the span of the others'?
    """
    if not (others := [other for other in known if signs.name in other.group.over]):
        return True
    shapes = {site: np.shape(place[site]) for one in (signs, *others) for site in one.negated}
    basis = basis_of(_entries_negated(flip, shapes) for other in others for flip in flips(other, axes, place))
    return bool(beyond(basis, _entries_negated(next(flips(signs, axes, place)), shapes)))


def independent_wholes(
    wholes: Iterable[frozenset[str]], known: Iterable[GroupSigns], axes: Axes, place: Arrays
) -> list[frozenset[str]]:
    """The sets of sites, each negated as a whole, that neither signs of groups nor the sets before them span."""
    wholes = list(wholes)
    sites, groups = _reached(frozenset().union(*wholes), known)
    # along an axis on which no group stands all entries are negated or none: one of them speaks for all
    small = {site: np.ones(_shape_of_groups(axes.get(site, ()), np.shape(place[site]))) for site in sites}
    shapes = {site: value.shape for site, value in small.items()}
    basis = basis_of(_entries_negated(flip, shapes) for one in groups for flip in flips(one, axes, small))
    found = list[frozenset[str]]()
    for negated in wholes:
        vector = _entries_negated({site: -small[site] for site in negated}, shapes)
        if left := beyond(basis, vector):
            basis.append(left)
            found.append(negated)
    return found


def _reached(sites: frozenset[str], known: Iterable[GroupSigns]) -> tuple[list[str], list[GroupSigns]]:
    """All sites negated by groups that negate any of ``sites`` or share sites with groups that do; and these signs."""
    groups, left = list[GroupSigns](), list(known)
    while more := [signs for signs in left if not sites.isdisjoint(signs.negated)]:
        groups += more
        sites = sites.union(*(signs.negated for signs in more))
        left = [signs for signs in left if signs not in more]
    return sorted(sites), groups


def _shape_of_groups(entries: Sequence[AxisEntry], shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a site with a single index on each of its axes along which no group stands."""
    return tuple(1 if entry is None else n for entry, n in zip(padded(entries, len(shape)), shape, strict=True))


def _entries_negated(factors: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Which entries of sites are negated, as a vector over GF(2)."""
    kept = {site: np.zeros(np.prod(shape, dtype=int), bool) for site, shape in shapes.items()}
    negated = [np.ravel(factors[site] < 0) if site in factors else here for site, here in kept.items()]
    return int.from_bytes(np.packbits(np.concatenate(negated)).tobytes(), "big")
