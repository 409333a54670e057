"""Fibres: which axes a free axis stands beside wherever it stands, so that it may move on its own at each position.

If the units of a network stand in no value without the axis of networks beside them, every network may permute its
units by itself. Knows terms; no symmetries and no programs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from numpyro_symmetry.discovery.labels.terms import (
    Atom,
    Joined,
    Term,
    atoms_of,
    resolve,
)
from numpyro_symmetry.discovery.labels.values import Membership
from numpyro_symmetry.symmetry.components import by_key

# combinations of parts of joined axes looked at in one value
_MAX_COMBINATIONS = 4096


def chains(
    values: Iterable[Sequence[Term]],
    memberships: Iterable[Membership],
    atoms: Mapping[int, Atom],
    free: Collection[int],
) -> dict[int, list[int]]:
    """Free atom -> atoms it is fibred over, outermost first; each of those that moves is fibred over those before it.

    Parameters
    ----------
    values
        Labels of the axes of every value.
    memberships
        Axes whose entries belong each to an entry of another axis.
    atoms
        Serial -> atom, of the axes of sites.
    free
        Serials of atoms that move.
    """
    owners = [(resolve(found.axis), resolve(found.owner), found.tag) for found in memberships]
    mixed = {one.serial for one, other, _ in owners if isinstance(one, Atom) and one is other}
    # entries of an axis that point at others of its own do not stand each by itself
    beside = {serial: s - mixed for serial, s in _companions(values, _owners(owners)).items()}
    above: dict[int, set[int]] = {}
    for serial in free:
        # of two that always stand together, the one met first is the inner one
        above[serial] = {s for s in beside.get(serial, ()) if s in atoms and serial not in above.get(s, ())}
    # a label is a path, and an axis that does not move has one label only
    path: dict[int, list[int]] = {}
    for serial in sorted(free, key=lambda s: (len(above[s] & set(free)), s)):
        chain: list[int] = []
        candidates = sorted(above[serial], key=lambda s: (s not in free, s))
        while further := [s for s in candidates if s not in chain and path.get(s, chain) == chain]:
            if further[0] not in free:
                path.setdefault(further[0], list(chain))
            chain.append(further[0])
        path[serial] = chain
    return {serial: path[serial] for serial in path if serial in free and path[serial]}


def _companions(values: Iterable[Sequence[Term]], owners: Mapping[int, set[int]]) -> dict[int, set[int]]:
    """Atom -> atoms that stand beside it, once, in every value in which it stands."""
    companions: dict[int, set[int]] = {}
    seen: set[tuple[int, ...]] = set()
    for axes in values:
        if math.prod(len(_parts(term)) for term in axes) > _MAX_COMBINATIONS:
            # too many to look at: nothing is known to stand beside any of them
            companions |= {atom.serial: set() for term in axes for atom in atoms_of(term)}
            continue
        # of joined axes, one part of each stands there at a time
        together = {
            tuple(sorted(atom.serial for part in chosen for atom in atoms_of(part)))
            for chosen in itertools.product(*map(_parts, axes))
        }
        for here in together - seen:
            count = Counter(here)
            count.update([owner for serial in here for owner in owners.get(serial, ())])
            once = {serial for serial in count if count[serial] == 1}
            for serial in count:
                companions[serial] = companions.get(serial, once) & once - {serial}
        seen |= together
    return companions


def _owners(resolved: Iterable[tuple[Term, Term, object]]) -> dict[int, set[int]]:
    """Axis -> axes to whose entries its own entries belong, where only one set of indices ever says to which."""
    atoms = (((a.serial, b.serial), tag) for a, b, tag in resolved if isinstance(a, Atom) and isinstance(b, Atom))
    owned = by_key(pair for pair, tags in by_key(atoms).items() if len(set(tags)) == 1)
    return {one: set(others) for one, others in owned.items()}


def _parts(term: Term) -> list[Term]:
    term = resolve(term)
    return term.parts if isinstance(term, Joined) else [term]
