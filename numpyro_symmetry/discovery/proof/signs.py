"""Signs: at which places of a group, and of which sites as a whole, they may change. Knows evidence and symmetries.

Parities of the program say which sites may be negated as a whole; no others are tried. To negate every index of a group
negates those sites on which it stands an odd number of times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import xor
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.discovery.gf2 import combinations_of, reduced_basis
from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.evidence import Evidence
from numpyro_symmetry.discovery.proof.frozen import Values
from numpyro_symmetry.discovery.proof.prove import prove
from numpyro_symmetry.discovery.proof.trials import gap_to
from numpyro_symmetry.symmetry import Concat, Split, Symmetry, Unsigned, Whole
from numpyro_symmetry.symmetry.axes import AxisEntry, labels, names_in, num_axes, padded
from numpyro_symmetry.symmetry.axes import is_cut as has_concat
from numpyro_symmetry.symmetry.pieces import pieces_of

# a site, and which of the arrays put end to end in it; 0 of a site that is one array
PartOfSite = tuple[str, int]
Even = Sequence[frozenset[PartOfSite]]


class Cut(NamedTuple):
    """Where a site is several arrays put end to end: the axis, from the right, and their sizes."""

    axis: int
    sizes: tuple[int, ...]


def cut_of(entries: Sequence[AxisEntry]) -> Cut | None:
    """Where a site is cut; ``None`` if it is not, or more than once."""
    cuts = [Cut(k - len(entries), e.sizes) for k, e in enumerate(entries) if isinstance(e, Concat)]
    return cuts[0] if len(cuts) == 1 else None


def in_parts(entries: Sequence[AxisEntry]) -> tuple[AxisEntry, ...]:
    """Entries with flattened axes, such as gates of units, as arrays put end to end, of which each may have signs."""
    parted = tuple(map(_parted, entries))
    return parted if not any(map(_has_concat, entries)) and cut_of(parted) is not None else tuple(entries)


def _has_concat(entry: AxisEntry) -> bool:
    return has_concat((entry,))


def _parted(entry: AxisEntry) -> AxisEntry:
    if not isinstance(entry, Split) or entry.groups[0] is not None or not 1 < entry.sizes[0] <= EFFORT.max_places:
        return entry
    part = entry.groups[1] if len(entry.groups) == 2 else Split(entry.sizes[1:], entry.groups[1:])
    return Concat((math.prod(entry.sizes[1:]),) * entry.sizes[0], (part,) * entry.sizes[0])


def _rejoined(entry: AxisEntry, before: AxisEntry) -> AxisEntry:
    """Arrays put end to end as the flattened axes that they were, if they still are alike."""
    if not isinstance(before, Split) or not isinstance(entry, Concat) or len(set(entry.groups)) > 1:
        return entry
    part = entry.groups[0]
    return Split(before.sizes, (None, *(part.groups if isinstance(part, Split) else (part,))))


def may_have_signs(symmetry: Symmetry, even: Even) -> bool:
    """Whether there is anything to try."""
    return bool(even) or any(map(has_concat, symmetry.axes.values()))


def with_signs(symmetry: Symmetry, even: Even, evidence: Sequence[Evidence], rng: np.random.Generator) -> Symmetry:
    """Make signed what may be: indices of groups, on the smallest set of places that allows it, and whole sites.

    Parameters
    ----------
    symmetry
        What was found without signs.
    even
        Sets of sites, or of their parts, that may be negated as a whole, of which all others are products.
    evidence
        The model at points, with its own data and with others, all of which must agree.
    """

    def held(signed: Symmetry) -> bool:
        return all(prove(one, signed, rng, 1, 1).holds for one in evidence)

    parted = replace(symmetry, axes={site: in_parts(entries) for site, entries in symmetry.axes.items()})
    found = _grown(parted, even, evidence[0], lambda signed: True)
    if found != parted and not held(found):
        found = _grown(parted, even, evidence[0], held)
    axes = {
        site: tuple(map(_rejoined, entries, symmetry.axes[site])) if site in symmetry.axes else entries
        for site, entries in found.axes.items()
    }
    return replace(found, axes=axes)


def _grown(symmetry: Symmetry, even: Even, evidence: Evidence, accepted: Callable[[Symmetry], bool]) -> Symmetry:
    """The symmetry with all signs that look right at one point and are accepted."""
    # units before the heads that hold them, whose sign is that of all their units
    for name in sorted(symmetry.groups, key=lambda name: -len(symmetry.groups[name].cells)):
        signed = next((s for s in _signed(symmetry, name, even) if _is_even(s, name, evidence)), None)
        if signed is not None and _is_new(signed, name, evidence) and accepted(signed):
            symmetry = signed
    for sites in _beside(symmetry, even):
        if accepted(signed := _with_whole(symmetry, sites, evidence.places[0].values)):
            symmetry = signed
    return symmetry


# ---- signs of indices ------------------------------------------------------------------------------------------------


def _signed(symmetry: Symmetry, name: str, even: Even) -> Iterator[Symmetry]:
    """The symmetry with signs of a group on some of the places where it stands, and not on the others."""
    for chosen in _sets_of_places(symmetry, name, even):
        place = itertools.count()

        def marked(entry: AxisEntry, chosen: set[int] = chosen, place: Iterator[int] = place) -> AxisEntry:
            if isinstance(entry, Split | Concat):
                return type(entry)(entry.sizes, tuple(map(marked, entry.groups)))  # pyright: ignore
            return Unsigned(name) if entry == name and next(place) not in chosen else entry

        axes = {site: tuple(map(marked, entries)) for site, entries in symmetry.axes.items()}
        yield replace(symmetry, axes=axes, kinds=dict(symmetry.kinds) | {name: "signed"})


def _sets_of_places(symmetry: Symmetry, name: str, even: Even) -> Iterator[set[int]]:
    """Sets of places of a group that negate whole sites, and whole parts of them, as parities allow."""
    sites = [site for site, entries in symmetry.axes.items() if name in names_in(entries)]
    places = [place for site in sites for place in _places(site, symmetry.axes[site], name)]
    if any(has_concat(symmetry.axes[site]) and cut_of(symmetry.axes[site]) is None for site in sites):
        count = len(places) if len(places) <= EFFORT.max_places else 0
        yield from (set(c) for k in range(1, count + 1) for c in itertools.combinations(range(count), k))
        return
    at = {site: [k for k, place in enumerate(places) if all(own == site for own, _ in place)] for site in sites}
    if max(map(len, at.values())) > EFFORT.max_places:
        return
    parts = frozenset().union(*places)
    # negating nothing as a whole is of use where a group stands twice
    allowed = [frozenset(), *_products(_within(even, parts))]
    for negated in allowed:
        choices = [
            [
                chosen
                for k in range(len(at[site]) + 1)
                for chosen in itertools.combinations(at[site], k)
                if reduce(xor, (places[j] for j in chosen), frozenset())
                == {part for part in negated if part[0] == site}
            ]
            for site in sites
        ]
        tried = (set(itertools.chain.from_iterable(parts)) for parts in itertools.product(*choices))
        yield from filter(None, itertools.islice(tried, EFFORT.max_signs))


def _places(site: str, entries: Sequence[AxisEntry], name: str) -> list[frozenset[PartOfSite]]:
    """For every place of a group on a site, in order, the parts of the site that stand along it."""
    cut, found = cut_of(entries), list[frozenset[PartOfSite]]()
    whole = frozenset((site, part) for part in range(len(cut.sizes) if cut else 1))
    for entry in entries:
        if isinstance(entry, Concat):
            each = [(part, frozenset([(site, k)])) for k, part in enumerate(entry.groups)]
        else:
            each = [(entry, whole)]
        found += [parts for part, parts in each for axis in labels((part,)) if axis.group == name]
    return found


def _is_even(symmetry: Symmetry, name: str, evidence: Evidence) -> bool:
    """Whether negating one index of a signed group changes nothing, to see quickly which claims are worth a proof."""
    (at, *_) = evidence.places
    moved = at.values | {site: at.values[site] * f for site, f in next(_flips(symmetry, name, at.values)).items()}
    return gap_to(evidence.frozen, at, moved).ratio <= 1.0


def _is_new(symmetry: Symmetry, name: str, evidence: Evidence) -> bool:
    """Whether negating an index of a signed group is more than negating all indices of others within it: of a head.

    What a change of sign negates is a vector over GF(2), and the question is whether it lies in the others' span.
    """
    place, others = evidence.places[0].values, [o for o, g in symmetry.groups.items() if g.signed and name in g.over]
    if not others:
        return True
    sites = [site for site, entries in symmetry.axes.items() if {name, *others} & names_in(entries)]

    def vector(factors: Mapping[str, np.ndarray]) -> int:
        negated = np.concatenate([np.ravel(factors.get(site, np.ones(np.shape(place[site]))) < 0) for site in sites])
        return int.from_bytes(np.packbits(negated).tobytes(), "big")

    known = reduced_basis([vector(flip) for other in others for flip in _flips(symmetry, other, place)])
    return len(reduced_basis([*known, vector(next(_flips(symmetry, name, place)))])) > len(known)


def _flips(symmetry: Symmetry, name: str, place: Values) -> Iterator[dict[str, np.ndarray]]:
    """What negating each index of a group, in each cell, multiplies its sites by; in NumPy, to compile nothing."""
    group, pieces = symmetry.groups[name], {}
    for site, entries in symmetry.axes.items():
        if name in names_in(entries):
            shape = np.shape(place[site])
            event = shape[len(shape) - num_axes(entries) :]
            pieces[site] = event, pieces_of(entries, event)
    for index in np.ndindex((*group.cells, group.size or 0)):
        at = dict(zip((*group.over, name), index, strict=True))
        found = {}
        for site, (event, own) in pieces.items():
            factor = np.ones(int(np.prod(event)))
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


# ---- signs of whole sites --------------------------------------------------------------------------------------------


def _beside(symmetry: Symmetry, even: Even) -> list[frozenset[str]]:
    """Independent sets of sites without groups that may be negated as a whole, each as small as can be."""
    free = _within(even, {part for parts in even for part in parts if part[0] not in symmetry.axes})
    found: Even = []
    for parts in _products(free):
        if len(_within([*found, parts], set().union(*found, parts))) > len(found):
            found.append(parts)
    return [frozenset(site for site, _ in parts) for parts in found]


def _with_whole(symmetry: Symmetry, sites: frozenset[str], place: Values) -> Symmetry:
    """The symmetry with one more group of a single index, which is all of these sites."""
    first = min(sites, key=lambda site: (np.ndim(place[site]), site)).replace("/", ".")
    names = itertools.chain([first], (f"{first}.{k}" for k in itertools.count(2)))
    name = next(n for n in names if n not in symmetry.group_names())
    axes = dict(symmetry.axes)
    for site in sorted(sites):
        axes[site] = (Whole(name), *padded(axes.get(site, ()), np.ndim(place[site])))
    kinds, sizes = dict(symmetry.kinds) | {name: "signed"}, dict(symmetry.sizes) | {name: 1}
    return replace(symmetry, axes=axes, kinds=kinds, sizes=sizes)


def _within(even: Even, sites: Collection[PartOfSite]) -> list[frozenset[PartOfSite]]:
    """What sets of sites span, as vectors over GF(2), and some sites alone hold."""
    # those that are not wanted have the highest bits: what has none of them is left of the others
    order = [*sorted(sites), *sorted({site for one in even for site in one} - set(sites))]
    basis = reduced_basis([sum(1 << order.index(site) for site in one) for one in even])
    return [_sites_of(vector, order) for vector in basis if not vector >> len(set(sites))]


def _products(even: Even) -> Iterable[frozenset[PartOfSite]]:
    """Everything that sets of sites span, the smallest first; the sets themselves where that is too much."""
    order = sorted({site for one in even for site in one})
    if len(even) > EFFORT.max_sets:
        return even
    vectors = [sum(1 << order.index(site) for site in one) for one in even]
    return [_sites_of(vector, order) for vector in combinations_of(vectors)]


def _sites_of(vector: int, order: Sequence[PartOfSite]) -> frozenset[PartOfSite]:
    return frozenset(site for k, site in enumerate(order) if vector >> k & 1)
