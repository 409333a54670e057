"""How elements act on draws: each draw of a site by its own element, and labels that are values by the inverse.

Knows elements and arrays; not how elements were found, and no containers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from numpyro_symmetry.assignment.family import State
from numpyro_symmetry.symmetry import Hard, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.action import move
from numpyro_symmetry.symmetry.axes import AxisEntry, labels, names_in
from numpyro_symmetry.traces.coordinates import Arrays

# stands for no datum among labels
MISSING = -1


def act(values: Arrays, symmetry: Symmetry, axes: Mapping[str, tuple[AxisEntry, ...]], state: State) -> Arrays:
    """Move ``(draw, *event)`` values of sites, each draw by its own element; types are kept.

    Parameters
    ----------
    values
        Site -> array.
    symmetry
        With sizes.
    axes
        Site -> its axes, as in `Symmetry`, of which the sites need be none; none at all for one that no label moves.
    state
        Group -> elements, one for each draw.

    Raises
    ------
    SymmetryError
        If the axes do not fit the sites, or name other groups than the symmetry's.
    """
    own = on_sites(symmetry, axes).bind({site: np.empty(values[site].shape[1:], bool) for site in axes})
    signed = {name for name, group in own.groups.items() if group.signed}
    for site, entries in own.axes.items():
        flips = any(axis.signed and axis.group in signed for axis in labels(entries))
        if flips and values[site].dtype.kind not in "fi":
            raise SymmetryError(f"Site {site!r}: a sign cannot apply to values of type {values[site].dtype}.")
    moved = {}
    for stack in own.stacks.values():
        moved |= stack.apart(move(state, stack.entries, stack.of(values)))
    return moved


def rename(values: np.ndarray, part: Hard) -> np.ndarray:
    """Give labels ``(draw, ...)`` the names that their slots have after relabelling; missing ones stay missing."""
    flat = values.reshape(len(values), -1)
    known = _is_label(flat)
    index = np.where(known, flat, 0).astype(int)
    renamed = np.take_along_axis(part.inverse().permutation, index, 1)
    return np.where(known, renamed, flat).astype(values.dtype).reshape(values.shape)


def refuse_no_labels(site: str, values: np.ndarray, group: str, size: int) -> None:
    """Refuse values that are no labels from zero: fractions, or labels counted from one.

    Raises
    ------
    SymmetryError
        Saying what was expected, what came and what to write.
    """
    known = values[_is_label(values)] if values.dtype.kind in "iuf" else values.ravel()
    expected = f"Site {site!r} holds labels of group {group!r}; expected integers from 0 to {size - 1}"
    if values.dtype.kind not in "iuf" or (known != np.floor(known)).any():
        raise SymmetryError(f"{expected}, got {values.dtype} that is not whole.")
    if known.size and not 0 <= known.min() <= known.max() < size:
        remedy = (
            f" Counted from one, they are labels once one is subtracted: pass {site} - 1."
            if known.min() >= 1 and known.max() == size
            else ""
        )
        raise SymmetryError(f"{expected}, got {values.dtype} from {known.min():g} to {known.max():g}.{remedy}")


def _is_label(values: np.ndarray) -> np.ndarray:
    """Which values stand for a datum."""
    return (values != MISSING) & (np.isfinite(values) if values.dtype.kind == "f" else True)


def on_sites(symmetry: Symmetry, axes: Mapping[str, tuple[AxisEntry, ...]]) -> Symmetry:
    """The symmetry's groups on sites that may be none of its own.

    Raises
    ------
    SymmetryError
        If the axes name other groups.
    """
    names = Symmetry(axes).group_names()
    for site, entries in axes.items():
        if unknown := sorted(names_in(entries) - set(symmetry.group_names())):
            raise SymmetryError(
                f"axes of site {site!r} name groups {unknown}; the draws were relabelled by {sorted(symmetry.groups)}."
            )
    return Symmetry(
        axes,
        {name: kind for name, kind in symmetry.kinds.items() if name in names},
        {name: size for name, size in symmetry.sizes.items() if name in names},
        {name: orbits for name, orbits in symmetry.orbits.items() if name in names},
    )
