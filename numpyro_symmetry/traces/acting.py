"""How elements act on draws: each draw of a site by its own element, and labels that are values by the inverse.

Knows elements and arrays; not how elements were found, and no containers.
"""

from __future__ import annotations

import numpy as np

from numpyro_symmetry.assignment.family import State
from numpyro_symmetry.symmetry import Hard, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.action import move
from numpyro_symmetry.symmetry.axes import AxisEntry, labels

# stands for no datum among labels
MISSING = -1


def act(values: np.ndarray, symmetry: Symmetry, site: str, entries: tuple[AxisEntry, ...], state: State) -> np.ndarray:
    """Move ``(draw, *event)`` values of a site, each draw by its own element; types are kept.

    Parameters
    ----------
    values
        Of one site.
    symmetry
        With sizes.
    site
        Its name, which need be none of the symmetry's.
    entries
        Its axes, as in `Symmetry`; none at all for a site that no label moves.
    state
        Group -> elements, one for each draw.

    Raises
    ------
    SymmetryError
        If the axes do not fit the site, or name other groups than the symmetry's.
    """
    one = on_site(symmetry, site, entries).bind({site: np.empty(values.shape[1:], bool)})
    flips = any(axis.signed and one.groups[axis.group].signed for axis in labels(entries) if axis.group in one.groups)
    if flips and values.dtype.kind not in "fi":
        raise SymmetryError(f"Site {site!r}: a sign cannot apply to values of type {values.dtype}.")
    return move(state, one.axes[site], values) if one.groups else values


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


def on_site(symmetry: Symmetry, site: str, entries: tuple[AxisEntry, ...]) -> Symmetry:
    """The symmetry's groups on one site that may be none of its own.

    Raises
    ------
    SymmetryError
        If the axes name other groups.
    """
    names = Symmetry({site: entries}).group_names()
    if unknown := sorted(set(names) - set(symmetry.group_names())):
        raise SymmetryError(
            f"axes of site {site!r} name groups {unknown}; the draws were relabelled by {sorted(symmetry.groups)}."
        )
    return Symmetry(
        {site: entries},
        {name: kind for name, kind in symmetry.kinds.items() if name in names},
        {name: size for name, size in symmetry.sizes.items() if name in names},
        {name: orbits for name, orbits in symmetry.orbits.items() if name in names},
    )
