"""Labels for the axes of a site: which group, if any, acts along each.

An axis entry is ``None`` (no group), a group name, `Unsigned` (the group permutes but its signs do
not apply) or `Split` (one axis that is several flattened ones). A last entry ``...`` stands for any
number of free axes. Knows no group sizes and no arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import NamedTuple

from numpyro_symmetry.symmetry.errors import SymmetryError


@dataclass(frozen=True)
class Unsigned:
    """Axis that a signed group permutes without flipping signs, such as a positive scale per factor.

    Parameters
    ----------
    group
        Name of a group of kind ``"signed"``.

    Examples
    --------
    >>> from numpyro_symmetry import Symmetry, Unsigned
    >>> Symmetry({"loadings": (None, "factor"), "scale": (Unsigned("factor"),)},
    ...          kinds={"factor": "signed"}).groups["factor"].kind
    'signed'
    """

    group: str


@dataclass(frozen=True)
class Split:
    """One axis that is several flattened axes, in row-major order.

    Parameters
    ----------
    sizes
        Sizes of the axes before flattening; their product is the size of the flattened axis.
    groups
        One entry (``None``, a group name or `Unsigned`) for each of ``sizes``.

    Examples
    --------
    A dense kernel that reads an 8 x 8 image of 32 channels; permuting the channels acts on blocks of its input axis.

    >>> from numpyro_symmetry import Split
    >>> Split((8, 8, 32), (None, None, "channels")).size
    2048
    """

    sizes: tuple[int, ...]
    groups: tuple[str | Unsigned | None, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))
        object.__setattr__(self, "groups", tuple(self.groups))
        if len(self.sizes) != len(self.groups):
            raise SymmetryError(
                f"Split has {len(self.sizes)} sizes {self.sizes} but {len(self.groups)} groups {self.groups}; "
                "give one group (or None) for each size."
            )

    @property
    def size(self) -> int:
        """Size of the flattened axis."""
        return math.prod(self.sizes)


AxisEntry = str | None | Unsigned | Split | EllipsisType


class Axis(NamedTuple):
    """One axis after every `Split` is opened: the group along it, whether its signs apply, its size if known."""

    group: str | None
    signed: bool
    size: int | None


def check_entries(site: str, entries: object) -> tuple[AxisEntry, ...]:
    """Return a site's entries as a tuple, or say which of them cannot be read.

    Raises
    ------
    SymmetryError
        If the entries are not a sequence, one of them is of another type than `AxisEntry`, or ``...`` is not the last.
    """
    if isinstance(entries, str | Unsigned | Split) or not isinstance(entries, Sequence):
        raise SymmetryError(
            f"Site {site!r}: expected a tuple with one entry for each of its last axes, such as ({entries!r},); "
            f"got {entries!r}."
        )
    for position, entry in enumerate(entries):
        parts = entry.groups if isinstance(entry, Split) else (entry,)
        if entry is ... and position < len(entries) - 1:
            raise SymmetryError(f"Site {site!r}: '...' may only be the last entry; got {describe(tuple(entries))}.")
        for part in parts:
            if entry is not ... and not (part is None or isinstance(part, str | Unsigned)):
                where = f"Site {site!r} axis {position - len(entries)}" + (" inside Split" if part is not entry else "")
                raise SymmetryError(
                    f"{where}: got {part!r}; expected None, the name of a group, Unsigned or Split"
                    f"{' (no Split, no ... inside a Split)' if part is not entry else ', or ... as the last entry'}."
                )
    return tuple(entries)


def open_axes(entries: Sequence[AxisEntry]) -> tuple[Axis, ...]:
    """Open every `Split` of a site's entries into separate axes."""
    opened: list[Axis] = []
    for entry in entries:
        if isinstance(entry, Split):
            opened += [
                open_axes((part,))[0]._replace(size=n) for n, part in zip(entry.sizes, entry.groups, strict=True)
            ]
        elif isinstance(entry, Unsigned):
            opened.append(Axis(entry.group, False, None))
        elif entry is not ...:
            opened.append(Axis(entry, True, None))
    return tuple(opened)


def open_shape(entries: Sequence[AxisEntry], shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of a site after every `Split` is opened; leading dimensions come first, unchanged."""
    lead = len(shape) - len(entries)
    opened = list(shape[:lead])
    for entry, n in zip(entries, shape[lead:], strict=True):
        opened += entry.sizes if isinstance(entry, Split) else [n]
    return tuple(opened)


def describe(entries: Sequence[AxisEntry]) -> str:
    """The entries as a person would write them: ``(·, hidden)``."""

    def one(entry: AxisEntry) -> str:
        if isinstance(entry, Unsigned):
            return f"|{entry.group}|"
        if isinstance(entry, Split):
            return "×".join(f"{n}:{one(g)}" for n, g in zip(entry.sizes, entry.groups, strict=True))
        return "..." if entry is ... else entry or "·"

    return "(" + ", ".join(map(one, entries)) + ")"
