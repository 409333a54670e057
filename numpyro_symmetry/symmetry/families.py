"""Families: sites of one shape that stand for the indices of one axis, ``mu_0, mu_1, mu_2`` for ``mu[k]``.

Groups act on stacks: on a site as it is, or on a family of sites, stacked. Whatever moves, cuts or compares values does
so stack by stack. Knows axes and arrays; no elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.symmetry.axes import AxisEntry, Member, Unsigned, describe, num_axes
from numpyro_symmetry.symmetry.errors import SymmetryError
from numpyro_symmetry.symmetry.nouns import MODEL, Nouns

Axes = Mapping[str, tuple[AxisEntry, ...]]


class Stack(NamedTuple):
    """An array on which groups act.

    Attributes
    ----------
    sites
        The site that it is, or the sites that are stacked along its first axis.
    entries
        An entry for each of its last axes.
    is_family
        Whether sites are stacked.
    """

    sites: tuple[str, ...]
    entries: tuple[AxisEntry, ...]
    is_family: bool = False

    @property
    def name(self) -> str:
        """The site, or the first and the last of a family."""
        return f"{self.sites[0]}…{self.sites[-1]}" if self.is_family else self.sites[0]

    def shape(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """Its shape, given the shapes of sites' events."""
        event = shapes[self.sites[0]]
        return (len(self.sites), *event) if self.is_family else event

    def of(self, values: Mapping[str, Any], nouns: Nouns = MODEL) -> Any:
        """The array ``(*leading, *shape)`` of values by site.

        Raises
        ------
        SymmetryError
            If the sites of a family have other shapes or types.
        """
        if not self.is_family:
            return values[self.sites[0]]
        parts = [values[site] for site in self.sites]
        refuse_unlike({site: values[site].shape for site in self.sites}, "shape", nouns)
        refuse_unlike({site: values[site].dtype for site in self.sites}, "type", nouns)
        # NumPy stacks its own arrays, and those of libraries that let it call them
        xp = jnp if any(isinstance(part, jax.Array) for part in parts) else np
        return xp.stack(parts, -num_axes(self.entries))

    def apart(self, array: Any) -> dict[str, Any]:
        """The inverse of `of`: values by site."""
        if not self.is_family:
            return {self.sites[0]: array}
        first = array.ndim - num_axes(self.entries)
        return {site: array[(*(slice(None),) * first, k, ...)] for k, site in enumerate(self.sites)}


def stacks_of(axes: Axes) -> dict[str, Stack]:
    """The stacks by name, in the order of the sites."""
    found: dict[str, Stack] = {}
    for site, entries in axes.items():
        one, own = member_of(entries), tuple(entry for entry in entries if not isinstance(entry, Member))
        stack = Stack((site,), entries) if one is None else Stack(one.family, (one.group, *own), True)
        found.setdefault(stack.name, stack)
    return found


def member_of(entries: Sequence[AxisEntry]) -> Member | None:
    """The entry that says which member of a family a site is; ``None`` if it is none."""
    return next((entry for entry in entries if isinstance(entry, Member)), None)


def by_site(axes: Mapping[Any, Any]) -> dict[Any, Any]:
    """Axes with the entries of each site where a tuple of names stands for a family.

    Raises
    ------
    SymmetryError
        If a name stands twice, or the entries of a family do not begin with its group.
    """
    found: dict[Any, Any] = {}
    for key, entries in axes.items():
        if not isinstance(key, tuple):
            found[key] = _once(key, found, entries)
            continue
        if not key or not all(isinstance(site, str) for site in key):
            raise TypeError(f"A family is a tuple of names of sites, such as ('mu_0', 'mu_1'); got {key!r}.")
        is_read = isinstance(entries, Sequence) and not isinstance(entries, str) and len(entries) > 0
        if not is_read or not isinstance(entries[0], str | Unsigned):
            raise SymmetryError(
                f"Family {key}: expected the name of the group that exchanges its sites, and then an entry for each of "
                f"their own last axes, such as ('component', None); got {entries!r}."
            )
        for index, site in enumerate(key):
            found[site] = _once(site, found, (Member(entries[0], index, key), *entries[1:]))
    return found


def _once(site: Any, known: Mapping[Any, Any], entries: Any) -> Any:
    if site in known:
        raise SymmetryError(f"Site {site!r} stands twice in axes: a site is of one family, once, or of none.")
    return entries


def check_families(axes: Axes, of: Nouns) -> None:
    """Refuse families of which sites are missing, or of which the entries differ.

    Raises
    ------
    SymmetryError
        Naming the site and its family.
    """
    for site, entries in axes.items():
        if (one := member_of(entries)) is None:
            continue
        if missing := [other for other in one.family if other not in axes]:
            raise SymmetryError(
                f"{of.named(site)} is exchanged with {missing}, which axes do not name: a family {one.family} moves as "
                f"a whole. Name all of its {of.array}s or none."
            )
        if one.family[one.index : one.index + 1] != (site,):
            raise SymmetryError(
                f"{of.named(site)}: {one} says that it is another {of.array}; expected its own name there."
            )
        for k, other in enumerate(one.family):
            expected = tuple(Member(e.group, k, e.family) if isinstance(e, Member) else e for e in entries)
            if axes[other] != expected:
                raise SymmetryError(
                    f"{of.named(other)} has axes {describe(axes[other])}; expected {describe(expected)}, as its family "
                    f"{one.family} is one array, stacked."
                )


def refuse_unlike(given: Mapping[str, Any], what: str, of: Nouns = MODEL) -> None:
    """Refuse a family of which the sites differ in something, given by site.

    Raises
    ------
    SymmetryError
        Naming the first site that differs.
    """
    first, expected = next(iter(given.items()))
    for site, one in given.items():
        if one != expected:
            raise SymmetryError(
                f"{of.named(site)} has {what} {one}, and {first!r}, of the same family, {expected}: {of.array}s that "
                f"are exchanged have one {what}."
            )
