"""Which signs may change: of a group's indices at which of its places, of whole sites. Knows evidence and symmetries.

Parities of the program say which sites may be negated as a whole; no others are tried. To negate every index of a group
negates those sites on which it stands an odd number of times.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import reduce
from operator import xor
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.evidence import Evidence
from numpyro_symmetry.discovery.proof.flips import GroupSigns, Place, flips, independent_wholes, is_new
from numpyro_symmetry.discovery.proof.frozen import Values
from numpyro_symmetry.discovery.proof.prove import holds_on
from numpyro_symmetry.discovery.proof.trials import each_gap, movable
from numpyro_symmetry.steps import track
from numpyro_symmetry.symmetry import Concat, Split, Symmetry, Whole
from numpyro_symmetry.symmetry.axes import AxisEntry, labels, new_name, padded, sites_of_groups
from numpyro_symmetry.symmetry.families import Axes
from numpyro_symmetry.symmetry.gf2 import basis_of, beyond, combinations_of, reduced_basis

# a site, and the position of one of the arrays that are put end to end in it; 0 of a site that is one array
PartOfSite = tuple[str, int]
Even = Sequence[frozenset[PartOfSite]]


class Cut(NamedTuple):
    """An axis, from the right, along which a site is several arrays put end to end, and their sizes."""

    axis: int
    sizes: tuple[int, ...]


def cuts_of(entries: Sequence[AxisEntry]) -> list[Cut]:
    """The cuts of a site; what lies between those of all its axes is a part, numbered along the last axis first."""
    return [Cut(k - len(entries), entry.sizes) for k, entry in enumerate(entries) if isinstance(entry, Concat)]


def num_parts(entries: Sequence[AxisEntry]) -> int:
    """How many parts a site has; 1 if it is one array."""
    return math.prod(len(cut.sizes) for cut in cuts_of(entries))


def in_parts(entries: Sequence[AxisEntry]) -> tuple[AxisEntry, ...]:
    """Entries with flattened axes, such as (gates, units), as arrays put end to end, each of which may have signs."""
    parted = tuple(map(_parted, entries))
    return parted if num_parts(parted) <= EFFORT.max_places else tuple(entries)


def _parted(entry: AxisEntry) -> AxisEntry:
    if not isinstance(entry, Split) or entry.groups[0] is not None or not 1 < entry.sizes[0] <= EFFORT.max_places:
        return entry
    part = entry.groups[1] if len(entry.groups) == 2 else Split(entry.sizes[1:], entry.groups[1:])
    return Concat((math.prod(entry.sizes[1:]),) * entry.sizes[0], (part,) * entry.sizes[0])


def _rejoined(entry: AxisEntry, before: AxisEntry) -> AxisEntry:
    """Arrays put end to end as the flattened axis that they were before, if all still carry the same group."""
    if not isinstance(before, Split) or not isinstance(entry, Concat) or len(set(entry.groups)) > 1:
        return entry
    part = entry.groups[0]
    return Split(before.sizes, (None, *(part.groups if isinstance(part, Split) else (part,))))


def _rejoined_all(entries: Sequence[AxisEntry], before: Sequence[AxisEntry]) -> tuple[AxisEntry, ...]:
    first = len(entries) - len(before)
    return (*entries[:first], *map(_rejoined, entries[first:], before))


class Signs(NamedTuple):
    """Groups that may have signs, and sets of sites that may be negated, each as a whole."""

    groups: tuple[GroupSigns, ...] = ()
    wholes: tuple[frozenset[str], ...] = ()

    def on(self, symmetry: Symmetry, place: Values) -> Symmetry:
        """The symmetry with all of these signs, without groups that move nothing.

        Made once for all signs: the cost of a symmetry grows with its sites.
        """
        axes, kinds = dict(symmetry.axes), dict(symmetry.kinds)
        for signs in self.groups:
            axes |= {site: signs.marked(site, axes[site]) for site in signs.sites}
            kinds[signs.name] = "signed"
        used = {site: entries for site, entries in axes.items() if any(entries)}
        found = _moving(replace(symmetry, axes=used, kinds=kinds))
        if not self.wholes:
            return found
        axes, kinds, sizes = dict(found.axes), dict(found.kinds), dict(found.sizes)
        for sites in self.wholes:
            name = new_name(min(sites, key=lambda site: (np.ndim(place[site]), site)), sizes)
            axes |= {site: (Whole(name), *padded(axes.get(site, ()), np.ndim(place[site]))) for site in sorted(sites)}
            kinds[name], sizes[name] = "signed", 1
        return replace(found, axes=axes, kinds=kinds, sizes=sizes)


def _moving(symmetry: Symmetry) -> Symmetry:
    """The symmetry without groups that move nothing."""
    moving = movable(symmetry)
    return symmetry if len(moving) == len(symmetry.groups) else symmetry.restrict(moving)


class Span(NamedTuple):
    """Sets of parts of sites that span others as vectors over GF(2), and the parts that each set alone holds."""

    sets: Even
    own: Even

    @classmethod
    def of(cls, even: Even) -> Span:
        """The span of some sets."""
        held = Counter(itertools.chain.from_iterable(even))
        return cls(even, [frozenset(part for part in parts if held[part] == 1) for parts in even])

    def within(self, parts: Set[PartOfSite]) -> list[frozenset[PartOfSite]]:
        """A basis of the spanned sets that lie within ``parts``: no set with an own part elsewhere enters them."""
        entering = [even for even, own in zip(self.sets, self.own, strict=True) if own <= parts]
        # unwanted parts have the highest bits, so that vectors of the reduced basis without these span what is wanted
        order = [*sorted(parts), *sorted({part for even in entering for part in even} - parts)]
        basis = reduced_basis(_vector(even, order) for even in entering)
        return [_sites_of(vector, order) for vector in basis if not vector >> len(parts)]


def with_signs(
    symmetry: Symmetry, even: Even, own: Evidence, others: Callable[[], Iterable[Evidence]], rng: np.random.Generator
) -> Symmetry:
    """The symmetry with signs: of indices of groups, on the smallest set of places that allows it, and of whole sites.

    Groups that move nothing, even with the signs that they may have, are left out.

    Parameters
    ----------
    symmetry
        The symmetry without signs, proved on the model's own data; groups that move nothing need no proof.
    even
        Sets of sites, or of their parts, that may be negated as a whole, of which all others are products.
    own, others
        The model at points, with its own data and with others, all of which must agree; others are asked for only where
        there is anything to try.
    """
    parted = replace(symmetry, axes={site: in_parts(entries) for site, entries in symmetry.axes.items()})
    span, place, known = Span.of(even), own.places[0].values, set(symmetry.group_names())

    groups = _worth_a_proof(parted, span, own)
    signs = _accepted(groups, parted, span, place, lambda signs: True)
    if signs == Signs():
        return _moving(symmetry)
    # a sign may be allowed by these data alone: other data have to agree, all of them where a group has only signs
    many = any(one.group.is_trivial for one in signs.groups)
    further = list(itertools.islice(others(), None if many else 1))

    def held(signs: Signs) -> bool:
        return holds_on((own, *further), signs.on(parted, place), rng, num_far=1, known=known)

    if not held(signs):
        signs = _accepted(groups, parted, span, place, held)
    found = signs.on(parted, place)
    return replace(found, axes={site: _rejoined_all(e, symmetry.axes.get(site, ())) for site, e in found.axes.items()})


def _accepted(
    groups: Sequence[GroupSigns], symmetry: Symmetry, span: Span, place: Values, accepts: Callable[[Signs], bool]
) -> Signs:
    """The signs that are accepted, of groups and then of whole sites, each along with those accepted before it."""
    kept = Signs()
    for signs in track(groups, len(groups)):
        extended = kept._replace(groups=(*kept.groups, signs))
        if is_new(signs, kept.groups, symmetry.axes, place) and accepts(extended):
            kept = extended
    for sites in _further_wholes(kept, symmetry, place, span):
        extended = kept._replace(wholes=(*kept.wholes, sites))
        if accepts(extended):
            kept = extended
    return kept


# ---- signs of indices ------------------------------------------------------------------------------------------------


def _worth_a_proof(symmetry: Symmetry, span: Span, evidence: Evidence) -> tuple[GroupSigns, ...]:
    """For each group the first signs that allow negating one index at one point: these are worth a proof.

    A group is tried on its own sites, whatever signs other groups have. All groups are evaluated together, in rounds of
    twice as many tries of each group as in the round before.
    """
    frozen, (at, *_), sites = evidence.frozen, evidence.places, sites_of_groups(symmetry.axes)
    # units before the heads that hold them: to negate a head is to negate all of its units
    order = sorted(symmetry.groups, key=lambda name: -len(symmetry.groups[name].cells))
    remaining = {name: _signs_of(symmetry, name, sites[name], span) for name in order}
    found, count = dict[str, GroupSigns](), 1
    while candidates := [signs for rest in remaining.values() for signs in itertools.islice(rest, count)]:
        gaps = each_gap(frozen, at, (at.values | _negated(signs, symmetry.axes, at.values) for signs in candidates))
        for signs, gap in zip(candidates, gaps, strict=True):
            if gap.ratio <= 1.0:
                found.setdefault(signs.name, signs)
        remaining = {name: rest for name, rest in remaining.items() if name not in found}
        count = min(2 * count, frozen.most_points)
    return tuple(found[name] for name in order if name in found)


def _negated(signs: GroupSigns, axes: Axes, place: Values) -> Values:
    """The sites that negating the first index of a group changes, at their new values."""
    return {site: place[site] * factor for site, factor in next(flips(signs, axes, place)).items()}


def _signs_of(symmetry: Symmetry, name: str, sites: Sequence[str], span: Span) -> Iterator[GroupSigns]:
    """Signs of a group to try: on sets of its places that negate whole sites, or whole parts, as parities allow."""
    axes = {site: symmetry.axes[site] for site in sites}
    places = {site: _parts_by_place(site, entries, name) for site, entries in axes.items()}
    for chosen in _sets_of_places(places, span):
        yield GroupSigns(name, symmetry.groups[name], sites, frozenset(chosen))


def _sets_of_places(places: Mapping[str, Sequence[frozenset[PartOfSite]]], span: Span) -> Iterator[Iterable[Place]]:
    """Sets of places of a group to try for signs; ``places[site][k]`` are the parts of a site along its k-th place."""
    every_part = frozenset(part for here in places.values() for parts in here for part in parts)
    order = sorted(every_part)
    bases = {site: basis_of(_marked(here, order)) for site, here in places.items()}
    # sets of places that negate nothing
    ambiguous = {site: [v for v in basis if not v >> len(places[site])] for site, basis in bases.items()}
    if max(map(len, ambiguous.values())) > EFFORT.max_places:
        return

    def negating(site: str, parts: frozenset[PartOfSite]) -> list[tuple[Place, ...]]:
        count = len(places[site])
        one = beyond(bases[site], _vector(parts, order) << count)
        if one >> count:
            return []
        found = [one, *(one ^ more for more in combinations_of(ambiguous[site]))]
        chosen = ([k for k in range(count) if vector >> k & 1] for vector in found)
        return [tuple((site, k) for k in c) for c in sorted(chosen, key=lambda c: (len(c), c))]

    # the empty set too: where a group stands twice on a site, negating all indices negates nothing, one index something
    for negated in [frozenset[PartOfSite](), *_products(span.within(every_part))]:
        by_site = itertools.groupby(sorted(negated), key=lambda part: part[0])
        wanted = {site: frozenset(parts) for site, parts in by_site}
        choices = [negating(site, wanted.get(site, frozenset())) for site in places]
        tried = (list(itertools.chain.from_iterable(chosen)) for chosen in itertools.product(*choices))
        yield from filter(None, itertools.islice(tried, EFFORT.max_signs))


def _marked(here: Sequence[frozenset[PartOfSite]], order: Sequence[PartOfSite]) -> list[int]:
    """The parts along each place as a vector over GF(2), with a bit of the place's own below."""
    return [_vector(parts, order) << len(here) | 1 << k for k, parts in enumerate(here)]


def _parts_by_place(site: str, entries: Sequence[AxisEntry], name: str) -> list[frozenset[PartOfSite]]:
    """For every place of a group on a site, in order, the parts of the site that stand along it."""
    numbers = np.arange(num_parts(entries)).reshape([len(cut.sizes) for cut in cuts_of(entries)])
    found, cut = list[frozenset[PartOfSite]](), 0
    for entry in entries:
        pieces = [(entry, numbers)]
        if isinstance(entry, Concat):
            pieces, cut = list(zip(entry.groups, np.moveaxis(numbers, cut, 0), strict=True)), cut + 1
        for piece, here in pieces:
            parts = frozenset((site, int(number)) for number in here.flat)
            found += [parts for axis in labels((piece,)) if axis.group == name]
    return found


def _parts_of(site: str, entries: Sequence[AxisEntry]) -> frozenset[PartOfSite]:
    """All parts of a site."""
    return frozenset((site, part) for part in range(num_parts(entries)))


# ---- signs of whole sites --------------------------------------------------------------------------------------------


def _further_wholes(kept: Signs, symmetry: Symmetry, place: Values, span: Span) -> list[frozenset[str]]:
    """Independent sets of sites that may be negated as a whole, small ones first, beyond what the kept signs negate.

    Sets of sites on which no group moves anything come first: sites that groups move may as well be left to these.
    """
    moved = _moving(symmetry).axes
    still = span.within({part for parts in span.sets for part in parts if part[0] not in moved})
    # sets that negating all indices of groups makes up are left out before single entries are compared
    known = [_negated_by(one, symmetry.axes) for one in kept.groups]
    order = sorted(frozenset().union(*span.sets, *known))
    spanned = basis_of(_vector(parts, order) for parts in known)
    wholes = [
        frozenset(site for site, _ in parts)
        for parts in (*_products(still), *_products(span.sets))
        if beyond(spanned, _vector(parts, order))
        and parts == frozenset().union(*(_parts_of(site, symmetry.axes.get(site, ())) for site, _ in parts))
    ]
    return independent_wholes(wholes, kept.groups, symmetry.axes, place)


def _negated_by(signs: GroupSigns, axes: Axes) -> frozenset[PartOfSite]:
    """The parts of sites that negating all indices of a group negates."""
    negated = (_parts_by_place(site, axes[site], signs.name)[k] for site, k in signs.chosen)
    return reduce(xor, negated, frozenset())


def _products(even: Even) -> Iterable[frozenset[PartOfSite]]:
    """Every set that sets of sites span, the smallest first; the sets themselves where those are too many."""
    order = sorted({site for parts in even for site in parts})
    if len(even) > EFFORT.max_sets:
        return even
    return [_sites_of(vector, order) for vector in combinations_of([_vector(parts, order) for parts in even])]


def _vector(sites: Iterable[PartOfSite], order: Sequence[PartOfSite]) -> int:
    return sum(1 << order.index(site) for site in sites)


def _sites_of(vector: int, order: Sequence[PartOfSite]) -> frozenset[PartOfSite]:
    return frozenset(site for k, site in enumerate(order) if vector >> k & 1)
