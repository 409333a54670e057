"""Some of the groups of a symmetry, and the axes that are then left. Knows no elements and no arrays."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numpyro_symmetry.symmetry.arguments import as_names
from numpyro_symmetry.symmetry.axes import VIRTUAL, AxisEntry, Complement, Concat, Split, Unsigned, group_names, labels
from numpyro_symmetry.symmetry.errors import SymmetryError
from numpyro_symmetry.symmetry.hard import fibred_over
from numpyro_symmetry.symmetry.permutation_kinds import Kind, unsigned

if TYPE_CHECKING:
    from numpyro_symmetry.symmetry.symmetry import Symmetry


def restrict(
    symmetry: Symmetry, names: Collection[str] | None = None, *, sites: Collection[str] | None = None
) -> Symmetry:
    """The subgroup of some of the groups; an axis that they are fibred over stays as a fixed one.

    Parameters
    ----------
    names
        Groups to keep; by default all.
    sites
        Sites on which to keep them, where the others are integrated out (local ones of a minibatch, say): what is
        left of a posterior has the symmetry still. By default all.

    Returns
    -------
    Symmetry
        A symmetry on fewer axes.

    Raises
    ------
    SymmetryError
        If a group or a site is not the symmetry's, or only some sites of a family are kept.
    TypeError
        If ``names`` or ``sites`` is no collection of names.

    Examples
    --------
    >>> from numpyro_symmetry import Symmetry
    >>> dict(Symmetry.mlp([("w1", "b1"), ("w2", "b2"), ("w3", "b3")]).restrict(["hidden2"]).axes)
    {'w2': (None, 'hidden2'), 'b2': ('hidden2',), 'w3': ('hidden2', None)}
    >>> dict(Symmetry.mixture("weights", "loc", "z").restrict(sites=["weights", "loc"]).axes)
    {'weights': ('component', Ellipsis), 'loc': ('component', Ellipsis)}
    """
    if sites is not None:
        sites = as_names(sites, "sites", example=str(tuple(symmetry.axes)[:1] or ("loc",)))
        return _on(symmetry, sites).restrict(names)
    if names is None:
        return symmetry
    names = as_names(names, "names", example=str(tuple(symmetry.groups)[:1] or ("hidden",)))
    if unknown := sorted(set(names) - set(symmetry.groups)):
        raise SymmetryError(f"restrict names {unknown}, but the groups are {sorted(symmetry.groups)}.")
    fixed = {label for name in names for label in fibred_over(name)} - set(names)
    return symmetry.on_axes(axes_of_groups(symmetry.axes, names), dict(symmetry.kinds) | dict.fromkeys(fixed, "fixed"))


def on_axes(
    symmetry: Symmetry,
    axes: Mapping[str, tuple[AxisEntry, ...]],
    kinds: Mapping[str, str | Kind] | None = None,
) -> Symmetry:
    """The symmetry of the groups that stand on ``axes``, of these kinds; fixed axes have no orbits."""
    known = group_names(axes)
    kinds = {name: kind for name, kind in (symmetry.kinds if kinds is None else kinds).items() if name in known}
    sizes = {name: size for name, size in symmetry.sizes.items() if name in known}
    orbits = {name: one for name, one in symmetry.orbits.items() if name in known and kinds.get(name) != "fixed"}
    return replace(symmetry, axes=axes, kinds=kinds, sizes=sizes, orbits=orbits)


def _on(symmetry: Symmetry, sites: Collection[str]) -> Symmetry:
    """The same groups on some of the sites."""
    if unknown := sorted(set(sites) - set(symmetry.axes)):
        raise SymmetryError(
            f"restrict names {symmetry.nouns.array}s {unknown}, but the symmetry acts on {sorted(symmetry.axes)}."
        )
    axes = {site: entries for site, entries in symmetry.axes.items() if site in sites}
    signed = {axis.group for entries in axes.values() for axis in labels(entries) if axis.signed}
    odd = {name for name, group in symmetry.groups.items() if group.signed} - signed
    kinds = {name: unsigned(kind) if name in odd else kind for name, kind in symmetry.kinds.items()}
    return symmetry.on_axes(axes, kinds)


def axes_of_groups(
    axes: Mapping[str, tuple[AxisEntry, ...]], names: Collection[str]
) -> dict[str, tuple[AxisEntry, ...]]:
    """The sites on which some groups stand, with these groups and what they are fibred over, and no others."""
    found = {}
    for site, entries in axes.items():
        here = {str(axis.group) for axis in labels(entries) if axis.group in names}
        stays = here | {label for name in here for label in fibred_over(name)}
        if here:
            left = ((entry, _kept(entry, stays)) for entry in entries)
            found[site] = tuple(now for was, now in left if now is not None or not isinstance(was, VIRTUAL))
    return found


def _kept(entry: Any, stays: Container[str]) -> Any:
    if isinstance(entry, Split | Concat):
        parts = tuple(_kept(part, stays) for part in entry.groups)
        return type(entry)(entry.sizes, parts) if any(parts) else None
    if isinstance(entry, Unsigned | VIRTUAL):
        return entry if _kept(entry.group, stays) is not None else None
    return entry if entry is ... or entry in stays else None


def with_total(axes: Mapping[str, tuple[AxisEntry, ...]], total: float | None) -> dict[str, tuple[AxisEntry, ...]]:
    """The axes with another total of every `Complement`: of differences 0, of standard deviations ``None``."""
    return {
        site: tuple(Complement(entry.group, total) if isinstance(entry, Complement) else entry for entry in entries)
        for site, entries in axes.items()
    }


def column_axes(names: Iterable[str]) -> dict[str, tuple[AxisEntry, ...]]:
    """Axes of what units compute on data, a column for each: of each group an array ``(num_data, *cells, n)``."""
    return {name: (None, *fibred_over(name), name) for name in names}
