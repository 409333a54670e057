"""Signs: at which places of a group, and of which sites as a whole, they may change. Knows evidence and symmetries.

Parities of the program say which sites may be negated as a whole; no others are tried. To negate every index of a group
negates those sites on which it stands an odd number of times.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from numpyro_symmetry.discovery.gf2 import combinations_of, reduced_basis
from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.evidence import Evidence
from numpyro_symmetry.discovery.proof.frozen import Values
from numpyro_symmetry.discovery.proof.prove import prove
from numpyro_symmetry.discovery.proof.trials import gap_to
from numpyro_symmetry.symmetry import Concat, Split, Symmetry, Unsigned, Whole
from numpyro_symmetry.symmetry.axes import AxisEntry, labels, num_axes, padded
from numpyro_symmetry.symmetry.axes import is_cut as has_concat
from numpyro_symmetry.symmetry.pieces import pieces_of

Even = Sequence[frozenset[str]]


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
        Sets of sites that may be negated as a whole, of which all others are products.
    evidence
        The model at points, with its own data and with others, all of which must agree.
    """

    def held(signed: Symmetry) -> bool:
        return all(prove(one, signed, rng, 1, 1).holds for one in evidence)

    likely = _grown(symmetry, even, evidence[0], lambda signed: True)
    return likely if likely == symmetry or held(likely) else _grown(symmetry, even, evidence[0], held)


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
    places = [site for site, entries in symmetry.axes.items() for axis in labels(entries) if axis.group == name]
    for chosen in _sets_of_places(symmetry, places, even):
        place = itertools.count()

        def marked(entry: AxisEntry, chosen: set[int] = chosen, place: Iterator[int] = place) -> AxisEntry:
            if isinstance(entry, Split | Concat):
                return type(entry)(entry.sizes, tuple(map(marked, entry.groups)))  # pyright: ignore
            return Unsigned(name) if entry == name and next(place) not in chosen else entry

        axes = {site: tuple(map(marked, entries)) for site, entries in symmetry.axes.items()}
        yield replace(symmetry, axes=axes, kinds=dict(symmetry.kinds) | {name: "signed"})


def _sets_of_places(symmetry: Symmetry, places: list[str], even: Even) -> Iterator[set[int]]:
    """Sets of places of a group, each given by its site, that negate whole sites as parities allow."""
    sites = list(dict.fromkeys(places))
    if any(has_concat(symmetry.axes[site]) for site in sites):
        count = len(places) if len(places) <= EFFORT.max_places else 0
        yield from (set(c) for k in range(1, count + 1) for c in itertools.combinations(range(count), k))
        return
    at = {site: [k for k, other in enumerate(places) if other == site] for site in sites}
    # negating nothing as a whole is of use where a group stands twice
    allowed = [frozenset(), *_products(_within(even, sites))]
    for negated in allowed:
        choices = [
            [c for k in range(site in negated, len(at[site]) + 1, 2) for c in itertools.combinations(at[site], k)]
            for site in sites
        ]
        tried = (set(itertools.chain.from_iterable(parts)) for parts in itertools.product(*choices))
        yield from filter(None, itertools.islice(tried, EFFORT.max_signs))


def _is_even(symmetry: Symmetry, name: str, evidence: Evidence) -> bool:
    """Whether negating one index of a signed group changes nothing, to see quickly which claims are worth a proof."""
    (at, *_) = evidence.places
    moved = at.values | {site: at.values[site] * f for site, f in next(_flips(symmetry, name, at.values)).items()}
    return gap_to(evidence.frozen, at, moved).ratio <= 1.0


def _is_new(symmetry: Symmetry, name: str, evidence: Evidence) -> bool:
    """Whether negating an index of a signed group is more than negating all indices of others within it: of a head.

    What a change of sign negates is a vector over GF(2), and the question is whether it lies in the others' span.
    """

    def vector(factors: Mapping[str, np.ndarray]) -> int:
        negated = np.concatenate([np.ravel(factors[site]) < 0 for site in symmetry.axes])
        return int.from_bytes(np.packbits(negated).tobytes(), "big")

    place = evidence.places[0].values
    others = [other for other, group in symmetry.groups.items() if group.signed and name in group.over]
    if not others:
        return True
    known = reduced_basis([vector(flip) for other in others for flip in _flips(symmetry, other, place)])
    return len(reduced_basis([*known, vector(next(_flips(symmetry, name, place)))])) > len(known)


def _flips(symmetry: Symmetry, name: str, place: Values) -> Iterator[dict[str, np.ndarray]]:
    """What negating each index of a group, in each of its cells, multiplies sites by; in NumPy, to compile nothing."""
    group = symmetry.groups[name]
    for index in np.ndindex((*group.cells, group.size or 0)):
        at = dict(zip((*group.over, name), index, strict=True))
        found = {}
        for site, entries in symmetry.axes.items():
            shape = np.shape(place[site])
            event = shape[len(shape) - num_axes(entries) :]
            factor = np.ones(int(np.prod(event)))
            for piece in pieces_of(entries, event):
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
    free = _within(even, {site for sites in even for site in sites} - set(symmetry.axes))
    found: list[frozenset[str]] = []
    for sites in _products(free):
        if len(_within([*found, sites], set().union(*found, sites))) > len(found):
            found.append(sites)
    return found


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


def _within(even: Even, sites: Collection[str]) -> list[frozenset[str]]:
    """What sets of sites span, as vectors over GF(2), and some sites alone hold."""
    # those that are not wanted have the highest bits: what has none of them is left of the others
    order = [*sorted(sites), *sorted({site for one in even for site in one} - set(sites))]
    basis = reduced_basis([sum(1 << order.index(site) for site in one) for one in even])
    return [_sites_of(vector, order) for vector in basis if not vector >> len(set(sites))]


def _products(even: Even) -> Iterable[frozenset[str]]:
    """Everything that sets of sites span, the smallest first; the sets themselves where that is too much."""
    order = sorted({site for one in even for site in one})
    if len(even) > EFFORT.max_sets:
        return even
    vectors = [sum(1 << order.index(site) for site in one) for one in even]
    return [_sites_of(vector, order) for vector in combinations_of(vectors)]


def _sites_of(vector: int, order: Sequence[str]) -> frozenset[str]:
    return frozenset(site for k, site in enumerate(order) if vector >> k & 1)
