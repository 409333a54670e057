"""Labels for the axes of a site: which group, if any, acts along each.

An axis entry is ``None`` (no group), a group name, `Unsigned` (the group permutes but its signs do
not apply), `Split` (one axis that is several flattened ones) or `Concat` (one axis that is several
joined end to end). `Whole`, `Complement` and `Member` stand for an axis that the site does not have. A last entry
``...`` stands for any number of free axes. Knows no group sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from types import EllipsisType
from typing import NamedTuple

from numpyro_symmetry.symmetry.arguments import as_count
from numpyro_symmetry.symmetry.components import by_key
from numpyro_symmetry.symmetry.errors import SymmetryError
from numpyro_symmetry.symmetry.shown import counted


@dataclass(frozen=True)
class Unsigned:
    """Axis that a signed group permutes without flipping signs, such as a positive scale per factor.

    Parameters
    ----------
    group
        Name of a group of kind ``"signed"``.

    Raises
    ------
    TypeError, SymmetryError
        If the group is no name, or an empty one.

    Examples
    --------
    >>> from numpyro_symmetry import Symmetry, Unsigned
    >>> Symmetry({"loadings": (None, "factor"), "scale": (Unsigned("factor"),)},
    ...          kinds={"factor": "signed"}).groups["factor"].kind
    'signed'
    """

    group: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", _as_group(self.group, "Unsigned takes"))


@dataclass(frozen=True)
class Split:
    """One axis that is several flattened axes, in row-major order.

    Parameters
    ----------
    sizes
        Sizes of the axes before flattening; their product is the size of the flattened axis.
    groups
        One entry (``None``, a group name, `Unsigned`, `Split` or `Concat`) for each of ``sizes``.

    Raises
    ------
    TypeError, ValueError, SymmetryError
        If a size is no whole number or below one, a name is empty, or there is not one group for each size.

    Examples
    --------
    A dense kernel that reads an 8 x 8 image of 32 channels; permuting the channels acts on blocks of its input axis.

    >>> from numpyro_symmetry import Split
    >>> Split((8, 8, 32), (None, None, "channels")).size
    2048
    """

    sizes: tuple[int, ...]
    groups: tuple[str | Unsigned | Split | Concat | None, ...]

    def __post_init__(self) -> None:
        _as_parts(self)

    @property
    def size(self) -> int:
        """Size of the flattened axis."""
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Concat:
    """One axis that is several axes joined end to end.

    Parameters
    ----------
    sizes
        Sizes of the axes before joining; their sum is the size of the joined axis.
    groups
        One entry (``None``, a group name, `Unsigned`, `Split` or `Concat`) for each of ``sizes``.

    Raises
    ------
    TypeError, ValueError, SymmetryError
        If a size is no whole number or below one, a name is empty, or there is not one group for each size.

    Examples
    --------
    A dense kernel that reads three inputs and, beside them, the eight hidden units (a skip connection).

    >>> from numpyro_symmetry import Concat
    >>> Concat((3, 8), (None, "hidden")).size
    11
    """

    sizes: tuple[int, ...]
    groups: tuple[str | Unsigned | Split | Concat | None, ...]

    def __post_init__(self) -> None:
        _as_parts(self)

    @property
    def size(self) -> int:
        """Size of the joined axis."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Whole:
    """The whole site as the one index of a group, along an axis of size one that the site does not have.

    For signs of numbers without axes, and of sites that are negated as a whole: written before a site's own axes.

    Parameters
    ----------
    group
        Name of a group of size one, of kind ``"signed"``.

    Raises
    ------
    TypeError, SymmetryError
        If the group is no name, or an empty one.

    Examples
    --------
    ``w2 * tanh(w1 * x)`` with two numbers, and loadings of one factor with its scores.

    >>> from numpyro_symmetry import Symmetry, Whole
    >>> Symmetry({"w1": (Whole("unit"),), "w2": (Whole("unit"),)}, kinds={"unit": "signed"}).groups["unit"].kind
    'signed'
    >>> Symmetry({"loadings": (Whole("factor"), None), "scores": (Whole("factor"), None)}, kinds={"factor": "signed"})
    Symmetry(±S? on 'factor'; sizes are read off values)
      loadings: (whole factor, ·)
      scores: (whole factor, ·)
    """

    group: str
    size = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", _as_group(self.group, "Whole takes"))


@dataclass(frozen=True)
class Complement:
    """The first of two parts of a whole, ``(x, total - x)``, along an axis of size two that the site does not have.

    Exchanging the two indices of the group takes x to total - x: so moves the weight p ~ Beta of a mixture of two, of
    which the other is 1 - p. Written before a site's own axes.

    Parameters
    ----------
    group
        Name of a group of kind ``"permutation"``, without orbits, that is then of size two.
    total
        What the two parts add up to; ``None`` for what they have in common, such as a standard deviation.

    Raises
    ------
    TypeError, SymmetryError
        If the group is no name, or an empty one, or the total no finite number.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import Complement, Symmetry
    >>> symmetry = Symmetry({"p": (Complement("component"),), "loc": ("component",)})
    >>> values = {"p": jnp.array(0.75), "loc": jnp.array([-1.0, 2.0])}
    >>> swapped = symmetry.apply({"component": jnp.array([1, 0])}, values)
    >>> float(swapped["p"]), swapped["loc"].tolist()
    (0.25, [2.0, -1.0])
    """

    group: str
    total: float | None = 1.0
    size = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", _as_group(self.group, "Complement takes"))
        if self.total is not None and not (isinstance(self.total, Real) and math.isfinite(self.total)):
            raise TypeError(f"Complement takes the total of two parts, a number; got {self.total!r}.")


@dataclass(frozen=True)
class Member:
    """One of a family of sites, which is one index of a group along the axis on which the family would be stacked.

    Nobody has to write it: it is what a tuple of names in place of a site, ``{("mu_0", "mu_1"): ("component",)}``,
    makes of each of these sites. Written before a site's own axes.

    Parameters
    ----------
    group
        Name of the group, or `Unsigned` of it.
    index
        Which index of the group the site is.
    family
        All sites of the family, in the order of their indices.

    Examples
    --------
    >>> from numpyro_symmetry import Symmetry
    >>> Symmetry({("mu_0", "mu_1"): ("component",)}).axes["mu_1"]
    (Member(group='component', index=1, family=('mu_0', 'mu_1')),)
    """

    group: str | Unsigned
    index: int
    family: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.group, Unsigned):
            object.__setattr__(self, "group", _as_group(self.group, "Member takes"))

    @property
    def size(self) -> int:
        """Number of sites of the family."""
        return len(self.family)


AxisEntry = str | None | Unsigned | Split | Concat | Whole | Complement | Member | EllipsisType
# entries for an axis that the site does not have
VIRTUAL = Whole | Complement | Member


def _as_group(name: object, what: str) -> str:
    """Name of a group, as a plain string; those of NumPy have a size of their own."""
    if not isinstance(name, str):
        raise TypeError(f"{what} the name of a group, such as 'hidden'; got {name!r} ({type(name).__name__}).")
    if not name:
        raise SymmetryError(f"{what} the name of a group; got an empty one. Write None for an axis without a group.")
    return str(name)


def _as_parts(entry: Split | Concat) -> None:
    """Sizes as whole numbers and groups as a tuple, in the frozen entry itself."""
    what = type(entry).__name__
    for name, value in (("sizes", entry.sizes), ("groups", entry.groups)):
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise TypeError(f"{what} takes tuples, such as {what}((2, 3), (None, 'unit')); got {name}={value!r}.")
    sizes = tuple(as_count(size, f"A size of {what}") for size in entry.sizes)
    object.__setattr__(entry, "sizes", sizes)
    groups = (_as_group(part, f"{what} takes") if isinstance(part, str) else part for part in entry.groups)
    object.__setattr__(entry, "groups", tuple(groups))
    if len(entry.sizes) != len(entry.groups):
        raise SymmetryError(
            f"{what} has {counted(len(entry.sizes), 'size')} {entry.sizes} but {counted(len(entry.groups), 'group')} "
            f"{entry.groups}; give one group (or None) for each size."
        )


class Axis(NamedTuple):
    """One axis after every `Split` is opened: the group along it, whether its signs apply, its size if known."""

    group: str | None
    signed: bool
    size: int | None


# an axis on which no group stands
FREE = Axis(None, False, None)


def check_entries(site: str, entries: object) -> tuple[AxisEntry, ...]:
    """Return a site's entries as a tuple, or say which of them cannot be read.

    Raises
    ------
    SymmetryError
        If the entries are not a sequence, one of them is of another type than `AxisEntry`, or ``...`` is not the last.
    """
    if not isinstance(site, str):
        raise TypeError(f"axes maps names of sites to their entries; got {site!r} ({type(site).__name__}) for a site.")
    if isinstance(entries, str | Unsigned | Split | Concat | VIRTUAL) or not isinstance(entries, Sequence):
        raise SymmetryError(
            f"Site {site!r}: expected a tuple with one entry for each of its last axes, such as ({entries!r},); "
            f"got {entries!r}."
        )
    for position, entry in enumerate(entries):
        if entry is ... and position < len(entries) - 1:
            raise SymmetryError(f"Site {site!r}: '...' may only be the last entry; got {describe(tuple(entries))}.")
        if isinstance(entry, VIRTUAL) and any(not isinstance(before, VIRTUAL) for before in entries[:position]):
            what = type(entry).__name__
            raise SymmetryError(f"Site {site!r}: {what} stands before its own axes; got {describe(tuple(entries))}.")
        if entry is not ...:
            _check_entry(f"Site {site!r} axis {position - len(entries)}", entry, inside=None)
    for kind in (Complement, Member):
        if sum(isinstance(entry, kind) for entry in entries) > 1:
            raise SymmetryError(f"Site {site!r}: {kind.__name__} may stand there once; got {describe(tuple(entries))}.")
    where = f"Site {site!r}: an entry that is a string is"
    return tuple(_as_group(entry, where) if isinstance(entry, str) else entry for entry in entries)


def _check_entry(where: str, entry: object, inside: str | None) -> None:
    if isinstance(entry, Split | Concat):
        for part in entry.groups:
            _check_entry(where, part, type(entry).__name__)
    elif not (entry is None or isinstance(entry, str | Unsigned) or (isinstance(entry, VIRTUAL) and inside is None)):
        raise SymmetryError(
            f"{where}{f' inside {inside}' if inside else ''}: got {entry!r}; expected None, the name of a group, "
            f"Unsigned, Split or Concat{' (no Whole, no ... inside)' if inside else ', or ... as the last entry'}."
        )


def labels(entries: Sequence[AxisEntry]) -> tuple[Axis, ...]:
    """Every label that stands anywhere in a site's entries, with its size where a `Split` or `Concat` gives it.

    Of a site of one piece these are its axes, with every `Split` opened.
    """
    found: list[Axis] = []
    for entry in entries:
        if isinstance(entry, Split | Concat):
            for n, part in zip(entry.sizes, entry.groups, strict=True):
                found += [a._replace(size=n) if a.size is None else a for a in labels((part,))]
        elif isinstance(entry, Unsigned):
            found.append(Axis(entry.group, False, None))
        elif isinstance(entry, Member):
            found += [a._replace(size=entry.size) for a in labels((entry.group,))]
        elif isinstance(entry, VIRTUAL):
            found.append(Axis(entry.group, True, entry.size))
        elif entry is not ...:
            found.append(Axis(entry, True, None))
    return tuple(found)


def num_axes(entries: Sequence[AxisEntry]) -> int:
    """How many of a site's own axes its entries describe: every entry but `Whole`, `Complement` and `Member`."""
    return sum(not isinstance(entry, VIRTUAL) for entry in entries)


def closed(entries: tuple[AxisEntry, ...], ndim: int) -> tuple[AxisEntry, ...]:
    """The entries with as many ``None`` in place of ``...`` as a site of ``ndim`` axes has left."""
    return entries[:-1] + (None,) * (ndim - num_axes(entries) + 1) if ... in entries else entries


def padded(entries: Sequence[AxisEntry], ndim: int) -> tuple[AxisEntry, ...]:
    """The entries with ``None`` put before them, so that each of a site's ``ndim`` axes has one."""
    first = len(entries) - num_axes(entries)
    return (*entries[:first], *(None,) * (ndim - num_axes(entries)), *entries[first:])


def names_in(entries: Sequence[AxisEntry]) -> set[str]:
    """Names of the groups that stand anywhere in a site's entries."""
    return {axis.group for axis in labels(entries) if axis.group is not None}


def sites_of_groups(axes: Mapping[str, Sequence[AxisEntry]]) -> dict[str, list[str]]:
    """Name of a group -> the sites on which it stands, in their order."""
    return by_key((name, site) for site, entries in axes.items() for name in group_names({site: entries}))


def new_name(wanted: str, known: Container[str]) -> str:
    """A name for one more group, numbered where it is known; a slash would say what it is fibred over."""
    name = wanted.replace("/", ".")
    candidates = itertools.chain([name], (f"{name}.{k}" for k in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in known)


def group_names(axes: Mapping[str, Sequence[AxisEntry]]) -> list[str]:
    """Names of the groups that stand on axes of any site, in the order of the sites."""
    found = (axis.group for entries in axes.values() for axis in labels(entries))
    return list(dict.fromkeys(name for name in found if name is not None))


def describe(entries: Sequence[AxisEntry]) -> str:
    """The entries as a person would write them: ``(·, hidden)``."""

    def one(entry: AxisEntry) -> str:
        if isinstance(entry, Unsigned):
            return f"|{entry.group}|"
        if isinstance(entry, Member):
            return f"{one(entry.group)}[{entry.index}]"
        if isinstance(entry, VIRTUAL):
            return f"{'whole' if isinstance(entry, Whole) else 'part of'} {entry.group}"
        if isinstance(entry, Split | Concat):
            parts = [f"{n}:{one(g)}" for n, g in zip(entry.sizes, entry.groups, strict=True)]
            return "×".join(parts) if isinstance(entry, Split) else f"[{' | '.join(parts)}]"
        return "..." if entry is ... else entry or "·"

    return "(" + ", ".join(map(one, entries)) + ")"
