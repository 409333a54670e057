"""How axes meet values: sizes of groups read off shapes, every ``...`` written out, what does not fit refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from jax.typing import ArrayLike

from numpyro_symmetry.symmetry.arguments import shape_of
from numpyro_symmetry.symmetry.axes import VIRTUAL, AxisEntry, Member, closed, describe, labels, num_axes
from numpyro_symmetry.symmetry.errors import SymmetryError
from numpyro_symmetry.symmetry.families import refuse_unlike
from numpyro_symmetry.symmetry.nouns import MODEL, Nouns
from numpyro_symmetry.symmetry.shown import counted


def bind_axes(
    axes: Mapping[str, tuple[AxisEntry, ...]],
    sizes: Mapping[str, int],
    values: Mapping[str, ArrayLike],
    num_leading_dims: int,
    of: Nouns = MODEL,
) -> tuple[dict[str, tuple[AxisEntry, ...]], dict[str, int]]:
    """Axes with every ``...`` written out, and the size of every group.

    Raises
    ------
    SymmetryError
        If a site is missing, has too few axes, or two axes of one group differ in size.
    """
    bound, known = {}, {name: (size, f"sizes[{name!r}]") for name, size in sizes.items()}
    for site, entries in axes.items():
        if site not in values:
            raise SymmetryError(
                f"{of.named(site)} is named by the symmetry but is not among the values {sorted(values)}. "
                f"{_remedy(axes, values)}"
            )
        shape = shape_of(values[site], of.named(site))
        entries = closed(entries, len(shape) - num_leading_dims)
        refuse_too_few_axes(of.named(site), shape, entries, num_leading_dims)
        bound[site] = entries
        for position, entry in enumerate(entries):
            where = f"{of.array} {site!r} axis {position - len(entries)}"
            if isinstance(entry, Member):
                given = {other: shape_of(values[other], of.named(other)) for other in entry.family if other in values}
                refuse_unlike(given, "shape", of)
            if isinstance(entry, VIRTUAL):
                size = entry.size
                where = f"family {entry.family}" if isinstance(entry, Member) else f"whole {of.array} {site!r}"
            else:
                size = shape[len(shape) - len(entries) + position]
            if (expected := getattr(entry, "size", size)) != size:
                raise SymmetryError(
                    f"{_sentence(where)} has size {size}, but {describe((entry,))} makes {expected}. "
                    f"Check the sizes given to {type(entry).__name__}."
                )
            for axis in labels((entry,)):
                if axis.group is not None:
                    _agree(axis.group, size if axis.size is None else axis.size, where, known)
    return bound, {name: size for name, (size, _) in known.items()}


def refuse_too_few_axes(
    where: str, shape: tuple[int, ...], entries: tuple[AxisEntry, ...], num_leading_dims: int = 0
) -> None:
    """Refuse values, as they are named, with fewer axes than entries beside the leading dimensions."""
    left = len(shape) - num_leading_dims
    if left >= num_axes(entries):
        return
    its_entries = f"its entries {describe(entries)} in the symmetry."
    if num_leading_dims:
        raise SymmetryError(
            f"{where} has shape {shape}: {counted(num_leading_dims, 'leading dimension', 'leaves', 'leave')} "
            f"{counted(max(left, 0), 'axis')}, fewer than {its_entries} Check num_leading_dims."
        )
    raise SymmetryError(f"{where} has shape {shape}, fewer axes than {its_entries}")


def _remedy(expected: Collection[str], given: Collection[str]) -> str:
    """The remedy for missing sites; of two trees, one may lack an outer key that the other has."""
    for longer, shorter, what in ((expected, given, "with"), (given, expected, "without")):
        for outer in {site.partition(".")[0] for site in longer if "." in site}:
            inner = {site.removeprefix(f"{outer}.") for site in longer if site.startswith(f"{outer}.")}
            if shorter and (inner <= set(shorter) if what == "with" else inner >= set(shorter)):
                return f"Pass the tree as the symmetry was found on: {what} its outer key {outer!r}."
    if set(expected) <= {re.sub(r"\W+", ".", name).strip(".") for name in given}:
        return (
            "These are the paths of a tree, and its arrays in a flat dictionary: put them back into the tree, "
            "jax.tree.unflatten(jax.tree.structure(tree), [flat[path] for path in paths])."
        )
    return "Correct the name, or drop it from axes (symmetry.restrict(sites=...))."


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _agree(group: str, size: int, where: str, known: dict[str, tuple[int, str]]) -> None:
    """Refuse a size of a group, seen somewhere, other than where it was first ``known``."""
    expected, first = known.setdefault(group, (size, where))
    if expected != size:
        # a symmetry that was found has the sizes of its model or function
        hint = " Was it found, or bound, for values of other sizes?" if first.startswith("sizes[") else ""
        raise SymmetryError(
            f"{_sentence(where)} has size {size}, but group {group!r} has size {expected} ({first}). "
            f"Check the order of the axes, or name the groups apart.{hint}"
        )
