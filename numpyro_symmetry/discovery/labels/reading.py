"""From labelled axes to a `Symmetry`: which atoms are free, what they are fibred over, and what to call them.

Knows walks, terms and symmetries; no models.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from numpyro_symmetry.discovery.labels.fibres import chains
from numpyro_symmetry.discovery.labels.names import path_of, short_names
from numpyro_symmetry.discovery.labels.terms import (
    Atom,
    Joined,
    Product,
    Reason,
    Term,
    Uniform,
    atoms_of,
    indices_of,
    line_of_cut,
    reasons_of,
    resolve,
)
from numpyro_symmetry.discovery.labels.walk import Walk
from numpyro_symmetry.symmetry import Concat, Finding, Split, Symmetry, SymmetryError, Unsigned, Whole
from numpyro_symmetry.symmetry.axes import VIRTUAL, AxisEntry, group_names, labels, names_in, new_name, padded
from numpyro_symmetry.symmetry.components import by_key
from numpyro_symmetry.symmetry.findings import ORDERED

# blocks of axes of one size of which every set is tried
_MAX_BLOCKS = 8
# the reason for a group that numbers refused, where nothing closer is known
FAILED = "failed the numerical check"
Block = tuple[tuple[str, int], ...]


@dataclass
class Reading:
    """Labels of the sites' axes, and how they are read.

    Attributes
    ----------
    sites
        Site -> a term for each axis.
    walk
        The walk through the program, with what it has met.
    names
        Site -> a name for each axis, or ``None``.
    observed
        A term for each axis of the observed values.
    ordered
        Sites whose entries increase along their last axis.
    """

    sites: dict[str, list[Term]]
    walk: Walk
    names: Mapping[str, Sequence[str | None]]
    observed: Sequence[Term] = ()
    ordered: Collection[str] = ()

    def atoms(self) -> dict[int, Atom]:
        """Every atom on an axis of a site, in the order of the sites."""
        return {atom.serial: atom for axes in self.sites.values() for term in axes for atom in atoms_of(term)}

    def blocks(self) -> dict[int, list[Block]]:
        """Size -> blocks: sets of whole axes that only soft reasons have coloured, and numbers may yet prove free.

        A block is the axes of one atom, or a single axis of which the program used parts on their own. Sizes with too
        many blocks to try every union of them are left out.
        """
        held = self._held_by_data()
        places = by_key(
            ((term.size, term.serial if isinstance(term, Atom) else (site, k)), (site, k))
            for site, terms in self.sites.items()
            for k, term in enumerate(map(resolve, terms))
            if term.size > 1 and not any(atom.hard is not None or atom.serial in held for atom in atoms_of(term))
            if isinstance(term, Joined) or (isinstance(term, Atom) and term.colours.any())
        )
        blocks = by_key((size, tuple(block)) for (size, _), block in places.items())
        return {size: some for size, some in blocks.items() if len(some) <= _MAX_BLOCKS}

    def bare_blocks(self, symmetry: Symmetry) -> dict[int, list[Block]]:
        """Those of the blocks on whose axes no group of a symmetry stands."""
        entries = {site: padded(symmetry.axes.get(site, ()), len(terms)) for site, terms in self.sites.items()}
        return {
            size: [block for block in some if all(entries[site][k] is None for site, k in block)]
            for size, some in self.blocks().items()
        }

    def _held_by_data(self) -> set[int]:
        """Atoms whose shadows meet data, or are of such atoms themselves: shadows have shadows of their own."""
        held, before = set[int](), None
        while held != before:
            before = held
            held = {
                atom.serial
                for term, shadow in self.walk.shadows
                if _meets_data(shadow) or any(atom.serial in before for atom in atoms_of(shadow))
                for atom in atoms_of(term)
            }
        return held

    def kinds(self, places: Sequence[tuple[str, int]]) -> tuple[int, ...]:
        """A label for each index of whole axes, the same where parts on their own met the same data.

        Numbers would take two indices with a datum each for alike where the two data happen to coincide.
        """
        met: dict[tuple[Any, ...], set[object]] = {}
        for (term, start, stop), data in self.walk.meetings.items():
            for index in indices_of(term)[start:stop]:
                met.setdefault(index, set()).update(data)
        rows = zip(*(indices_of(self.sites[site][k]) for site, k in places), strict=True)
        seen: dict[tuple[Any, ...], int] = {}
        return tuple(seen.setdefault(tuple(frozenset(met.get(i, ())) for i in row), len(seen)) for row in rows)

    def unlabelled_axes(self, found: Symmetry) -> dict[int, list[tuple[str, int]]]:
        """Size -> axes that carry no group of a symmetry and meet no data."""
        entries = {site: padded(found.axes.get(site, ()), len(terms)) for site, terms in self.sites.items()}
        return by_key(
            (term.size, (site, k))
            for site, terms in self.sites.items()
            for k, term in enumerate(terms)
            if entries[site][k - len(terms)] is None and not _meets_data(term)
        )

    def symmetry(self) -> Symmetry:
        """The symmetry that the labels allow."""
        atoms = self.atoms()
        free = [serial for serial, atom in atoms.items() if not atom.is_pinned]
        values = itertools.chain(self.walk.record, self.sites.values())
        try:
            return self._with_chains(chains(values, self.walk.memberships, atoms, free))
        except SymmetryError:
            # on a site an axis stands without the axis that it would be fibred over: its cells move together
            return self.without_fibres()

    def without_fibres(self) -> Symmetry:
        """The subgroup in which all cells of a fibred group move together."""
        return self._with_chains({})

    def with_lone_indices(self, symmetry: Symmetry, sites: Collection[str], most: int) -> Symmetry:
        """The symmetry with a group, to be signed, that moves nothing on each axis no two of whose indices are alike.

        On ``sites``, for axes of at most ``most`` indices, and not along observed values: every datum would have a sign
        of its own. An axis that was taken apart shares no label: it gets the group of one of its size. Such a group
        may also stand twice on another site, as on a square matrix that is never negated as a whole.
        """
        mine = replace(self, sites={site: terms for site, terms in self.sites.items() if site in sites})
        observed = {atom.serial for term in self.observed for atom in atoms_of(term)}
        lone = {k: a.size for k, a in mine.atoms().items() if a.is_pinned and a.size <= most and k not in observed}
        label, known = dict[int, str](), set(symmetry.group_names())
        for serial, name in mine._names(lone).items():
            label[serial] = new_name(name, known)
            known.add(label[serial])
        sizes, axes = {label[serial]: size for serial, size in lone.items()}, dict(symmetry.axes)
        for site, terms in self.sites.items():
            if site not in mine.sites and not any(_num_axes_of(serial, terms) > 1 for serial in lone):
                continue
            entries = list(padded(axes.get(site, ()), len(terms)))
            for k, term in enumerate(terms):
                if entries[k] is not None:
                    continue
                entries[k] = _entry(term, label)
                if _is_taken_apart(term) and term.size <= most:
                    alike = [name for name, size in sizes.items() if size == term.size]
                    name = alike[0] if alike else new_name(f"{site}[{k - len(terms)}]", known)
                    entries[k], sizes[name] = name, term.size
            if any(entries):
                axes[site] = tuple(entries)
        standing = group_names(axes)
        sizes = {name: size for name, size in sizes.items() if name in standing}
        orbits = {name: tuple(range(size)) for name, size in sizes.items()}
        return Symmetry(axes, symmetry.kinds, {**symmetry.sizes, **sizes}, {**symmetry.orbits, **orbits})

    def with_group(self, symmetry: Symmetry, places: Sequence[tuple[str, int]]) -> Symmetry | None:
        """The symmetry with one more group on whole axes, in place of the groups that stand there.

        A fixed axis among them moves along, with the groups that are fibred over it. ``None`` if what stands there also
        stands elsewhere, or a group that would go has others fibred over it.
        """

        def standing(*, at_places: bool) -> set[str]:
            return {
                name
                for site, entries in symmetry.axes.items()
                for k, entry in enumerate(entries)
                if ((site, k) in places) == at_places
                for name in names_in((entry,))
            }

        here = standing(at_places=True)
        fixed, gone = here - set(symmetry.groups), here & set(symmetry.groups)
        if here & standing(at_places=False) or len(fixed) > 1:
            return None
        kept = symmetry.restrict(symmetry.groups.keys() - gone)
        if not gone.isdisjoint(kept.group_names()):
            return None
        axes = {site: list(kept.axes.get(site, (None,) * len(terms))) for site, terms in self.sites.items()}
        site, position = min(places, key=lambda place: len(self.sites[place[0]]))
        (name,) = fixed or [new_name(f"{site}[{position - len(self.sites[site])}]", kept.group_names())]
        for other, k in places:
            axes[other][k] = name
        sizes = dict(kept.sizes) | {name: self.sites[site][position].size}
        used = {other: tuple(entries) for other, entries in axes.items() if any(entries)}
        kinds = {other: kind for other, kind in kept.kinds.items() if other != name}
        return Symmetry(used, kinds, sizes, kept.orbits)

    # ---- the symmetry ----------------------------------------------------------------------------------------------

    def _with_chains(self, above: Mapping[int, list[int]]) -> Symmetry:
        atoms = self.atoms()
        free = [serial for serial, atom in atoms.items() if not atom.is_pinned]
        fixed = {s: chain[:k] for chain in above.values() for k, s in enumerate(chain) if s not in free}
        names = self._names([*free, *fixed])
        label = {s: "/".join(names[x] for x in [*above.get(s, fixed.get(s, [])), s]) for s in [*free, *fixed]}
        axes = {}
        for site, terms in self.sites.items():
            here = {atom.serial for term in terms for atom in atoms_of(term)}
            wanted = {s for inner in here for s in above.get(inner, ())}
            shown = {s: label[s] for s in here & set(label) if s in free or s in wanted}
            entries = tuple(_entry(term, shown) for term in terms)
            if any(entry is not None for entry in entries):
                axes[site] = entries
        standing = set(group_names(axes))
        kinds = {label[s]: "fixed" for s in fixed if label[s] in standing}
        sizes = {label[s]: atoms[s].size for s in label if label[s] in standing}
        orbits = {
            label[s]: tuple(map(int, np.unique(atoms[s].colours, return_inverse=True)[1]))
            for s in free
            if atoms[s].colours.any() and label[s] in standing
        }
        return Symmetry(axes, kinds, sizes, orbits)

    def _names(self, serials: Iterable[int]) -> dict[int, str]:
        """A plate's name where an axis is one, else as short as can be that of its first site (a vector if any)."""
        candidates: dict[int, list[tuple[Any, ...]]] = {}
        for site, terms in self.sites.items():
            for k, term in enumerate(terms):
                for atom in atoms_of(term):
                    whole = isinstance(resolve(term), Atom)
                    plate = self.names[site][k] if whole else None
                    at = "" if len(terms) == 1 and whole else f"[{k - len(terms)}]"
                    *modules, last = path_of(site)
                    # the inputs of a module's kernel are units of another module, its outputs are its own
                    rank = (plate is None, len(terms) != 1, not whole, bool(modules) and k < len(terms) - 1)
                    path = (plate.replace("/", "."),) if plate else (*modules, last + at)
                    candidates.setdefault(atom.serial, []).append((rank, len(candidates), path))
        wanted = list(dict.fromkeys(serials))
        return dict(zip(wanted, short_names([min(candidates[serial])[-1] for serial in wanted]), strict=True))

    # ---- why -------------------------------------------------------------------------------------------------------

    def findings(self, symmetry: Symmetry, tried: Symmetry, refused: Mapping[str, str]) -> tuple[Finding, ...]:
        """One line for every axis of every site: its group, or the reason why it has none.

        The groups of ``tried`` were tried; ``refused`` has the reason for each of them that was refused.
        """

        def refusal(site: str, k: int) -> str:
            standing = labels((tried.axes[site][k],)) if site in tried.axes else ()
            why = [refused[axis.group] for axis in standing if axis.group and axis.group in refused]
            return next((text for text in why if text != FAILED), FAILED if why else "")

        def as_a_whole(site: str) -> list[Finding]:
            entries = [entry for entry in symmetry.axes.get(site, ()) if isinstance(entry, VIRTUAL)]
            seen = "" if all(isinstance(entry, Whole) for entry in entries) else "verified numerically only"
            return [Finding(site, 0, 1, _words(entries, symmetry), seen, "")] if entries else []

        def by_axis(site: str, terms: list[Term]) -> list[Finding]:
            return [
                self._finding(site, k - len(terms), term, symmetry, tried, refusal(site, k))
                for k, term in enumerate(terms)
                if term.size > 1
            ]

        return tuple(
            finding for site, terms in self.sites.items() for finding in [*as_a_whole(site), *by_axis(site, terms)]
        )

    def _finding(
        self, site: str, position: int, term: Term, symmetry: Symmetry, tried: Symmetry, refusal: str
    ) -> Finding:
        entry, atoms = symmetry.axes[site][position] if site in symmetry.axes else None, atoms_of(term)
        group = _words([entry], symmetry)
        coloured = [atom for atom in atoms if atom.colours.any()]
        if group and isinstance(entry, str | Unsigned):
            (name,) = names_in([entry])
            orbits, over = symmetry.groups[name].orbits, symmetry.groups[name].over
            if not isinstance(resolve(term), Atom) or _is_coarser(orbits, atoms[0].colours):
                # labels alone would not have freed this axis
                text = "verified numerically only" + ("; the rest is not" if orbits is not None else "")
                return Finding(site, position, term.size, group, text, "")
            if not coloured and name not in tried.groups:
                # labels free the group, and numbers alone fibre it over another axis
                text = f"verified numerically only for each {over[-1]!r} by itself"
                return Finding(site, position, term.size, group, text, "")
        if group and not coloured:
            return Finding(site, position, term.size, group, "", "")
        reasons = [reason for atom in coloured for reason in atom.reasons]
        taken_apart = isinstance(resolve(term), Joined)
        apart = Reason("taken apart index by index" if taken_apart else "nothing may be exchanged", line_of_cut(term))
        if site in self.ordered and position == -1:
            apart = Reason(ORDERED)
        hardest = [Reason(refusal)] if refusal else sorted(reasons, key=lambda r: r.soft)[:1] or [apart]
        text = f"the rest {hardest[0].text}" if group else hardest[0].text
        return Finding(site, position, term.size, group, text, hardest[0].source)


def _meets_data(term: Term) -> bool:
    """Whether data tell indices of an axis apart."""
    return any(reason.strength == "data" for reason in reasons_of(term))


def _is_taken_apart(term: Term) -> bool:
    """Whether an axis was used index by index alone."""
    return isinstance(resolve(term), Joined) and not atoms_of(term)


def _num_axes_of(serial: int, terms: Iterable[Term]) -> int:
    """On how many axes of a site an atom stands."""
    return sum(atom.serial == serial for term in terms for atom in atoms_of(term))


def _is_coarser(orbits: Sequence[int] | None, colours: np.ndarray) -> bool:
    """Whether a group moves more than labels of these colours allow."""
    return (1 if orbits is None else len(set(orbits))) < len(np.unique(colours))


def _words(entries: Sequence[AxisEntry], symmetry: Symmetry) -> str:
    """The groups that stand in these entries, axes that do not move apart."""
    names = dict.fromkeys(axis.group for axis in labels(entries) if axis.group in symmetry.groups)
    return " and ".join(f"{symmetry.groups[name]} {name!r}" for name in names)


def _entry(term: Term, label: Mapping[int, str]) -> AxisEntry:
    term = resolve(term)
    if isinstance(term, Uniform):
        return None
    if isinstance(term, Atom):
        return label.get(term.serial)
    entries = tuple(_entry(part, label) for part in term.parts)
    if all(entry is None for entry in entries):
        return None
    sizes = tuple(part.size for part in term.parts)
    return Split(sizes, entries) if isinstance(term, Product) else Concat(sizes, entries)  # pyright: ignore
