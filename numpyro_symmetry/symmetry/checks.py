"""What a symmetry asks of its arguments: mappings, sizes, labels of orbits, values, elements and their batches.

Knows groups, axes and elements; makes nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from numpyro_symmetry.symmetry.arguments import as_count, is_option
from numpyro_symmetry.symmetry.axes import AxisEntry, Complement, describe, labels, num_axes
from numpyro_symmetry.symmetry.elements import batch_of, broadcast, check_element
from numpyro_symmetry.symmetry.errors import SymmetryError
from numpyro_symmetry.symmetry.families import Stack, member_of
from numpyro_symmetry.symmetry.groups import Group
from numpyro_symmetry.symmetry.hard import Element, fibred_over
from numpyro_symmetry.symmetry.nouns import Nouns
from numpyro_symmetry.symmetry.permutation_kinds import FIXED, KINDS, Kind
from numpyro_symmetry.symmetry.pieces import axes_of_pieces, is_cut
from numpyro_symmetry.symmetry.shown import counted

_EXAMPLES = {
    "axes": "{'w': ('hidden', None)}",
    "kinds": "{'hidden': 'signed'}",
    "sizes": "{'hidden': 8}",
    "orbits": "{'hidden': (0, 0, 1)}",
}


def as_field(name: str, value: Any) -> dict[str, Any]:
    """One of a symmetry's four mappings, as a dict."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, such as {_EXAMPLES[name]}; got {value!r} ({type(value).__name__}).")
    return dict(value)


def as_size(name: str, size: Any) -> int:
    """Size of a group."""
    try:
        return as_count(size, f"sizes[{name!r}]")
    except ValueError:
        raise SymmetryError(f"Group {name!r} has size {size}; expected at least 1.") from None


def as_labels(name: str, orbits: Any) -> tuple[int, ...]:
    """A label for each index of a group with orbits."""
    try:
        return tuple(map(operator.index, orbits))
    except TypeError:
        raise TypeError(f"orbits[{name!r}] must hold a whole number for each index; got {orbits!r}.") from None


def check_groups(
    names: list[str], kinds: Mapping[str, Any], sizes: dict[str, int], orbits: Mapping[str, tuple[int, ...]]
) -> None:
    """Refuse groups that no axis carries, and kinds that are none; a size that is left out is that of the orbits."""
    for what, by_name in (("kinds", kinds), ("sizes", sizes), ("orbits", orbits)):
        if unknown := sorted(set(by_name) - set(names), key=str):
            raise SymmetryError(f"{what} names {unknown}, but the groups on the axes are {names}.")
    for name, kind in kinds.items():
        if not (isinstance(kind, Kind) or is_option(kind, (*KINDS, FIXED))):
            raise SymmetryError(f"Group {name!r} has kind {kind!r}; expected one of {(*KINDS, FIXED)}, or a Kind.")
    for name, labels_ in orbits.items():
        if sizes.setdefault(name, len(labels_)) != len(labels_):
            raise SymmetryError(
                f"Group {name!r} has size {sizes[name]}, but its orbits label {counted(len(labels_), 'index')}."
            )


def check_complements(
    axes: Mapping[str, tuple[AxisEntry, ...]], kinds: Mapping[str, Any], orbits: Mapping[str, Any], of: Nouns
) -> None:
    """Refuse a `Complement` whose group is signed, of another kind, fibred, or has orbits."""
    for site, entries in axes.items():
        for entry in entries:
            if isinstance(entry, Complement) and (entry.group in {*kinds, *orbits} or fibred_over(entry.group)):
                raise SymmetryError(
                    f"{of.named(site)}: {entry} exchanges two parts of a whole; expected a group of kind "
                    f"'permutation', without orbits and not fibred. Name another group for what else {entry.group!r} "
                    "stands on."
                )


def entries_of_one_piece(axes: Mapping[str, tuple[AxisEntry, ...]], site: str, of: Nouns) -> tuple[AxisEntry, ...]:
    """A site's entries, if they open into one array."""
    if site not in axes:
        raise SymmetryError(f"{of.named(site)} is none of the symmetry's {of.array}s {list(axes)}.")
    if is_cut(axes[site]) or member_of(axes[site]) is not None:
        raise SymmetryError(
            f"{of.named(site)} has axes {describe(axes[site])}: joined axes, the rest of a whole, and {of.array}s of a "
            f"family open into other arrays than its own. Use symmetry.apply, which acts on the {of.array} as it is."
        )
    return axes[site]


def check_values(values: Any, axes: Mapping[str, Any], of: Nouns) -> None:
    """Refuse what does not map sites, or paths of a function's arrays, to arrays."""
    if not isinstance(values, Mapping):
        raise TypeError(
            f"Values must map {of.key}s to arrays, such as {{{next(iter(axes), 'w')!r}: ...}}; got "
            f"{type(values).__name__}."
        )
    nested = sorted(str(site) for site in values if isinstance(values[site], Mapping))
    # values on which no group acts may be anything, and pass through
    if nested and (set(axes) - set(values) or set(axes) & set(nested)):
        raise SymmetryError(
            f"Values hold mappings at {nested}, and {of.key}s name arrays: flatten nested parameters to one level, one "
            f"name for each array; the symmetry names {sorted(axes)}."
        )


def check_batch(where: str, shape: tuple[int, ...], entries: tuple[AxisEntry, ...], g: Element) -> None:
    """Refuse an element whose batch does not go with the leading dimensions of a site, which is named."""
    lead = shape[: len(shape) - num_axes(entries)]
    for axis in labels(entries):
        if axis.group in g and not broadcast(lead, batch := batch_of(axis.group, g[axis.group])):
            raise SymmetryError(
                f"{where} has leading dimensions {lead}, and the element of group {axis.group!r} is a batch of "
                f"{batch}: the two do not broadcast."
            )


def check_of_groups(known: Mapping[str, Group], g: Any) -> None:
    """Refuse what is no element of the product of these groups."""
    if not isinstance(g, Mapping):
        check_element(g)
    if set(g) != set(known):
        raise SymmetryError(f"The element has groups {sorted(g)}; the symmetry has {sorted(known)}.")
    for name, part in g.items():
        known[name].check(name, part)


def refuse_open_ended(axes: Mapping[str, tuple[AxisEntry, ...]], of: Nouns) -> None:
    """Refuse entries that end in ``...``: how many dimensions lead is not known."""
    if open_ended := sorted(site for site, entries in axes.items() if ... in entries):
        raise SymmetryError(
            f"{of.array.capitalize()}s {open_ended} end in '...', so their leading dimensions cannot be told from "
            "their own; call symmetry.bind(values, num_leading_dims=...) first."
        )


def refuse_other_arguments(groups: list[str], g: Any, values: Any) -> None:
    """Refuse a result that holds an element in place of the element, and an element in place of values."""
    if not isinstance(g, Mapping) and (holding := [name for name in ("element", "elements") if hasattr(g, name)]):
        raise SymmetryError(
            f"apply takes an element and values; got a {type(g).__name__}: pass its .{holding[0]}"
            f"{', or the part of one member' if holding[0] == 'elements' else ''}."
        )
    given = set(g) if isinstance(g, Mapping) else set()
    if isinstance(values, Mapping) and groups and set(values) == set(groups) != given:
        raise SymmetryError(
            f"apply takes the element first, then values: the second argument holds the groups {sorted(groups)} of an "
            "element. Exchange the two."
        )


def check_fibres(stacks: Mapping[str, Stack], of: Nouns) -> None:
    """Refuse a piece on which a fibred group stands without each axis that it is fibred over, once."""
    for site, (_, entries, _) in stacks.items():
        if not any("/" in (axis.group or "") for axis in labels(entries)):
            continue
        for axes in axes_of_pieces(entries):
            here = [axis.group for axis in axes]
            for name in filter(None, here):
                if missing := [label for label in fibred_over(name) if here.count(label) != 1]:
                    raise SymmetryError(
                        f"{of.named(site)}: group {name!r} is fibred over {missing[0]!r}, which stands on "
                        f"{here.count(missing[0])} of the {of.array}'s axes {describe(entries)}; expected one."
                    )
