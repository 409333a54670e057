"""Groups with a permutation of their own in each entry of another axis, where labels show one for all entries only.

Such as units of networks that a loop in Python takes one by one, or of experts that a gather chooses: a value made of
one entry of the axis no longer has the axis in its labels. Numbers show it. Knows evidence and symmetries; no terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from numpyro_symmetry.discovery.proof.evidence import Evidence
from numpyro_symmetry.discovery.proof.frozen import Values
from numpyro_symmetry.discovery.proof.prove import holds_on
from numpyro_symmetry.discovery.proof.trials import each_gap
from numpyro_symmetry.symmetry import Concat, Split, Symmetry, Unsigned
from numpyro_symmetry.symmetry.axes import labels, names_in, new_name, padded
from numpyro_symmetry.symmetry.components import by_key

# ways to choose one axis on every site, of several of one size, that are tried at most
_MOST_WAYS = 16


class Fibre(NamedTuple):
    """A group, and an axis beside it on each of its sites over which it may be fibred: move by itself in each entry.

    Attributes
    ----------
    name
        The group.
    over, size
        Label of the axis beside it, none where its entries stay where they are, and how many entries it has.
    places
        Site -> that axis, and those of the group.
    pair
        Two units of one orbit.
    """

    name: str
    over: str | None
    size: int
    places: dict[str, tuple[int, list[int]]]
    pair: tuple[int, int]

    def exchanged(self, values: Values) -> Values:
        """Values with the pair exchanged in the first entry alone."""
        moved, (index, other) = dict(values), self.pair
        for site, (beside, own) in self.places.items():
            moved[site] = np.array(values[site])
            for axis in own:
                first = np.moveaxis(moved[site], (beside, axis), (0, 1))[0]
                first[[index, other]] = first[[other, index]]
        return moved

    def of(self, symmetry: Symmetry) -> Symmetry | None:
        """The symmetry with the group fibred over that axis; ``None`` where the axis would stand twice on a site."""
        sizes, kinds, over = dict(symmetry.sizes), dict(symmetry.kinds), self.over
        axes: dict[str, list[Any]] = {site: list(entries) for site, entries in symmetry.axes.items()}
        # labels of axes over which other groups were fibred become one
        given = [axes[site][beside] for site, (beside, _) in self.places.items() if axes[site][beside] is not None]
        if over is None:
            site, (beside, _) = next(iter(self.places.items()))
            over = next(iter(given), new_name(f"{site}[{beside - len(axes[site])}]", set(symmetry.group_names())))
            sizes[over], kinds[over] = self.size, "fixed"
        for site, (beside, _) in self.places.items():
            axes[site][beside] = over

        def moved(entry: Any) -> Any:
            if isinstance(entry, Unsigned):
                return replace(entry, group=moved(entry.group))
            if isinstance(entry, Split | Concat):
                return replace(entry, groups=tuple(map(moved, entry.groups)))
            if not isinstance(entry, str):
                return entry
            first, *further = entry.split("/")
            # groups that are fibred over this one are renamed with it
            return "/".join([over, entry] if first == self.name else [over, *further] if first in given else [entry])

        def renamed(by_label: Mapping[str, Any]) -> dict[str, Any]:
            return {moved(label): x for label, x in by_label.items()}

        entries = {site: tuple(map(moved, own)) for site, own in axes.items()}
        if self.over is None and any(sum(x.group == over for x in labels(own)) > 1 for own in entries.values()):
            return None
        return Symmetry(entries, renamed(kinds), renamed(sizes), renamed(symmetry.orbits))


def with_cells(symmetry: Symmetry, evidence: Callable[[], Iterable[Evidence]], rng: np.random.Generator) -> Symmetry:
    """The symmetry with every group fibred over an axis beside it, wherever all evidence agrees."""
    first = next(iter(evidence()))
    at = first.places[0]
    shapes = {site: np.shape(x) for site, x in at.values.items()}
    every = [fibre for name in symmetry.groups for fibre in _fibres(symmetry, name, shapes)]
    gaps = each_gap(first.frozen, at, (fibre.exchanged(at.values) for fibre in every))
    free = by_key((fibre.name, fibre.places) for fibre, gap in zip(every, gaps, strict=True) if gap.ratio <= 1.0)
    for name, places in free.items():
        # looked for again: fibring a group before may have given a label to an axis without one
        for fibre in (fibre for fibre in _fibres(symmetry, name, shapes) if fibre.places in places):
            claimed = fibre.of(symmetry)
            if claimed and holds_on(evidence(), claimed, rng):
                symmetry = claimed
                break
    return symmetry


def _fibres(symmetry: Symmetry, name: str, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Fibre]:
    """Fibres to try for a group: on each of its sites an axis of one size, all of one label or all without."""
    group = symmetry.groups.get(name)
    orbits = (group.orbits or (0,) * group.degree) if group and not group.over else ()
    index = next((k for k, orbit in enumerate(orbits) if orbits.count(orbit) > 1), None)
    if index is None:
        return
    # axes that never move, with the labels that stand on them where other groups are fibred over them
    still = {None, *(label for label, kind in symmetry.kinds.items() if kind == "fixed" and "/" not in label)}
    own: dict[str, list[int]] = {}
    beside: dict[str, dict[Any, list[int]]] = {}
    for site, entries in symmetry.axes.items():
        if name not in names_in(entries):
            continue
        entries = padded(entries, len(shapes[site]))
        at = [k for k, entry in enumerate(entries) if name in names_in((entry,))]
        if not all(isinstance(entries[k], str | Unsigned) for k in at):
            return
        names = [axis.group for axis in labels(entries)]
        # an axis over which the group may be fibred stands once, and is not itself fibred over the group
        once = {one for one in entries if isinstance(one, str) and names.count(one) == 1}
        free = {None, *(one for one in once if not f"{one}/".startswith(f"{name}/"))}
        own[site] = at
        beside[site] = by_key(
            ((None if entry in still else entry, size), k)
            for k, (entry, size) in enumerate(zip(entries, shapes[site], strict=True))
            if k not in at and size > 1 and entry in free
        )
    shared = set.intersection(*(set(found) for found in beside.values())) if beside else set()
    for over, size in sorted(shared, key=lambda one: (one[0] is None, one)):
        ways = itertools.product(*(found[over, size] for found in beside.values()))
        for chosen in itertools.islice(ways, _MOST_WAYS):
            places = {site: (k, own[site]) for site, k in zip(beside, chosen, strict=True)}
            yield Fibre(name, over, size, places, (index, orbits.index(orbits[index], index + 1)))
