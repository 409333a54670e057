"""Coordinates in which draws are compared: logs where values are positive, centred and scaled as a whole.

Centres and scales are pooled over draws and over everything a group may exchange, so they are blind to labels. Knows
draws and axes; no costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import stats

from numpyro_symmetry.assignment.family import Coordinate
from numpyro_symmetry.assignment.passes import each, summed
from numpyro_symmetry.assignment.problem import axes_of, pooled_axes
from numpyro_symmetry.chunks import at_once
from numpyro_symmetry.containers.trace import Arrays
from numpyro_symmetry.symmetry import PlainView, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.families import Stack

# draws by which a transform is chosen; fewer where they are more than a chunk of numbers
_LOOKED_AT = 1000
# above this, and below its inverse, squares are no numbers to compute with
_FAR, _FAR_SINGLE = 1e140, 1e17


def coordinates(
    draws: Arrays,
    bound: Symmetry,
    transforms: Mapping[str, str] | str,
    *,
    standardize: bool,
    view: PlainView | None = None,
) -> dict[str, Coordinate]:
    """Coordinates of every site on which a group acts.

    Parameters
    ----------
    draws
        Site -> ``(draw, *event)``.
    bound
        The symmetry.
    transforms
        Site -> ``"identity"`` or ``"log"``; ``"auto"`` takes logs of a site whose values are all positive, and that no
        sign changes, if the largest is twice the smallest or more, and a log-normal describes its pooled values better
        than a normal does (Box and Cox's likelihood).
    standardize
        Whether to divide by pooled standard deviations.
    view
        What cut sites into pieces, if they are: transforms are told by site, and errors name sites.

    Returns
    -------
    dict
        Site -> `Coordinate`.
    """
    stacks = {piece: Stack((piece,), ()) for piece in bound.axes} | (view.stacks if view is not None else {})
    given = _by_piece(transforms, bound, stacks)
    found = {}
    for piece in bound.axes:
        site, values = stacks[piece].name, draws[piece]
        shape, axes = axes_of(bound, piece, values.shape[1:])
        # values that are all positive may be those of one sign, and a logarithm does not change its own with them
        signed = any(axis.signed for axis in axes)
        transform = given[piece]
        if transform == "auto":
            transform = "identity" if signed else _transform(values)
        if transform == "log" and signed:
            raise SymmetryError(f"Site {site!r} may change its sign in this symmetry; its transform cannot be 'log'.")
        if transform == "log" and not is_positive(values):
            raise SymmetryError(f"Site {site!r} holds values that are not positive; its transform cannot be 'log'.")
        raw = Coordinate(site, transform, np.zeros(()), np.ones(()), axes, shape)
        found[piece] = _standardized(values, raw, standardize=standardize)
    return found


def _by_piece(transforms: Mapping[str, str] | str, bound: Symmetry, stacks: Mapping[str, Stack]) -> dict[str, str]:
    if isinstance(transforms, str):
        return dict.fromkeys(bound.axes, transforms)
    known = {site for stack in stacks.values() for site in stack.sites}
    if unknown := sorted(transforms.keys() - known - bound.axes.keys()):
        raise SymmetryError(f"transforms names sites {unknown}; the symmetry has {sorted(known)}.")
    found = {}
    for piece in bound.axes:
        told = {transforms.get(site, "auto") for site in ([piece] if piece in transforms else stacks[piece].sites)}
        if len(told) > 1:
            raise SymmetryError(
                f"Sites {list(stacks[piece].sites)} are one family, read alike: give them one transform."
            )
        found[piece] = told.pop()
    return found


def refuse_other_coordinates(read: Mapping[str, Coordinate], values: Mapping[str, np.ndarray], what: str) -> None:
    """Refuse values that given coordinates cannot read: of other shapes, not finite, or not positive under a log.

    Raises
    ------
    SymmetryError
        Naming the site.
    """
    for piece, coordinate in read.items():
        if piece not in values:  # a cost of one's own may read any
            raise SymmetryError(f"Site {piece!r} is missing from {what}, which have {sorted(values)}.")
        site, value = coordinate.site, values[piece]
        if math.prod(value.shape[1:]) != math.prod(coordinate.shape):
            raise SymmetryError(f"Site {site!r} of {what} has shape {value.shape[1:]}; expected {coordinate.shape}.")
        if not all(each(value, lambda x: bool(np.isfinite(x).all()))):
            raise SymmetryError(f"Site {site!r} of {what} is not finite.")
        if coordinate.transform == "log" and not is_positive(value):
            raise SymmetryError(f"Site {site!r} of {what} is not positive, and is compared by its logarithm.")


def is_positive(values: Any) -> bool:
    """Whether all values, which may be Dask's, are positive."""
    return all(each(values, lambda x: bool((x > 0).all())))


def _transform(values: Any) -> str:
    # most sites that are not positive show it in their first draw
    if not (values[:1] > 0).all() or not is_positive(values):
        return "identity"
    most = min(_LOOKED_AT, at_once(math.prod(values.shape[1:])))
    sample = np.ravel(values[:: max(1, len(values) // most)]).astype(float)
    # squares of what is very large or small are not finite, or nothing; which is likelier does not depend on units
    sample = sample / sample.max()
    # values further from zero than they spread have logarithms like themselves, and chance would choose between them
    if sample.min() > 0.5:
        return "identity"
    # the likelihoods of Box and Cox's family at 0 (logarithm) and at 1 (as it is)
    return "log" if stats.boxcox_llf(0.0, sample) > stats.boxcox_llf(1.0, sample) else "identity"


def _standardized(values: Any, raw: Coordinate, *, standardize: bool) -> Coordinate:
    pooled = pooled_axes(raw.axes)
    signed = any(axis.signed for axis in raw.axes)
    with np.errstate(over="ignore", invalid="ignore"):
        # a sign must move values about zero
        center = np.zeros(()) if signed else _mean(values, raw, pooled, lambda x: x)
    if not np.isfinite(center).all():
        raise SymmetryError(
            f"Site {raw.site!r} holds values up to {_largest(values, np.abs):g}, too large to add up: rescale it."
        )
    if standardize:
        return raw._replace(center=center, scale=deviation(values, raw, pooled, center))
    size = _largest(values, lambda x: np.abs(raw(x) - center))
    limit = _FAR_SINGLE if values.dtype == np.float32 else _FAR
    if size and not 1 / limit < size < limit:
        raise SymmetryError(
            f"Site {raw.site!r} holds values that differ by up to {size:.1g}, too far from one to be squared: "
            "rescale it, or use standardize=True."
        )
    return raw._replace(center=center)


def deviation(values: Any, raw: Coordinate, pooled: tuple[int, ...], center: np.ndarray) -> np.ndarray:
    """Standard deviations ``(*opened shape)`` about a centre, pooled; one where there is no spread."""
    with np.errstate(over="ignore"):
        variance = _mean(values, raw, pooled, lambda x: np.square(x - center))
    if ((variance > _FAR**-2) & (variance < _FAR**2)).all():
        return np.sqrt(variance)
    # squares of what is very large or small are infinite, or nothing
    largest = np.max(each(values, lambda x: np.abs(raw(x) - center).max(pooled, keepdims=True)[0]), axis=0)
    unit = np.where(largest > 0, largest, 1.0)
    variance = _mean(values, raw, pooled, lambda x: np.square((x - center) / unit))
    return np.where(variance > 0, unit * np.sqrt(variance), 1.0)


def _mean(
    values: Any, raw: Coordinate, pooled: tuple[int, ...], change: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    return summed(values, lambda x: change(raw(x)).mean(pooled, keepdims=True)[0] * len(x)) / len(values)


def _largest(values: Any, change: Callable[[np.ndarray], np.ndarray]) -> float:
    return max(each(values, lambda x: float(change(x).max(initial=0.0))))
