"""Rotations of factors, which no discrete symmetry holds: varimax, for every draw, before signs and labels are matched.

Knows arrays; no sites and no containers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from numbers import Real

import numpy as np
from jax.typing import ArrayLike

from numpyro_symmetry.steps import counting
from numpyro_symmetry.symmetry import SymmetryError, warn
from numpyro_symmetry.symmetry.arguments import as_flag, as_numbers, is_floating, is_real, refuse_masked

_MAX_SWEEPS = 1000


def varimax(
    loadings: ArrayLike, *, normalize: bool = False, tolerance: float = 1e-6, progress_bar: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    r"""Rotate every draw's loadings until each factor has few large ones.

    .. math:: \max_{R^\top R = 1} \sum_k \Big[\tfrac1p\sum_j (\Lambda R)_{jk}^4
              - \big(\tfrac1p\sum_j (\Lambda R)_{jk}^2\big)^2\Big]

    What remains free is which factor is which, and its sign: ``rebase`` the rotated draws with ``Symmetry.factor``.

    Parameters
    ----------
    loadings
        ``(*leading, p, k)``.
    normalize
        Kaiser's rows of unit length while rotating. The factors found differ, so it is a choice.
    tolerance
        Rotations stop when no pair of factors turns by a larger angle, in radians.
    progress_bar
        Whether to show one, of sweeps, after two seconds.

    Returns
    -------
    rotated, rotation
        ``(*leading, p, k)`` and ``(*leading, k, k)``; scores rotate alike, ``scores @ rotation``.

    Raises
    ------
    SymmetryError
        If the loadings are not finite, masked, empty or have fewer than two axes.
    TypeError
        If they are a dict of sites, or ``normalize`` or ``progress_bar`` is no flag.
    ValueError
        If ``tolerance`` is no angle, at least 0.

    Warns
    -----
    SymmetryWarning
        If some draws are still turning after 1000 sweeps, or there are more factors than rows.

    References
    ----------
    Kaiser (1958); Papastamoulis and Ntzoufras (2022), rotation, sign and permutation by varimax and assignment.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry.traces import varimax
    >>> turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    >>> rotated, _ = varimax(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]) @ turn)
    >>> np.sort(np.abs(rotated), axis=1).round(3).tolist()
    [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    """
    given = _checked(loadings)
    as_flag(normalize, "normalize")
    shown = as_flag(progress_bar, "progress_bar")
    if isinstance(tolerance, bool) or not isinstance(tolerance, Real) or not 0.0 <= tolerance < math.inf:
        raise ValueError(f"tolerance must be an angle in radians, at least 0; got {tolerance!r}.")
    flat = given.reshape(-1, *given.shape[-2:]).astype(float)
    # fourth powers of what is very large or small are no numbers to compute with, and no rotation depends on units
    unit = np.abs(flat).max((1, 2), keepdims=True)
    flat = flat / np.where(unit > 0, unit, 1.0)
    length = np.linalg.norm(flat, axis=2, keepdims=True) if normalize else np.ones((1, 1, 1))
    rows = flat / np.where(length > 0, length, 1.0)
    rotation = np.broadcast_to(np.eye(flat.shape[2]), (len(flat), flat.shape[2], flat.shape[2])).copy()
    turned = rows.copy()
    with counting("rotating loadings", "sweeps", shown) as bar:
        for _ in range(_MAX_SWEEPS):
            largest = _swept(turned, rotation)
            bar.update()
            if largest < tolerance:
                break
        else:
            warn(
                f"varimax turned some pair of factors by {largest:.1g} radians in its last of {_MAX_SWEEPS} sweeps, "
                f"which is not below the tolerance of {tolerance:g}: the rotation of those draws is not settled."
            )
    rotated = (unit * (flat @ rotation)).astype(given.dtype if is_floating(given.dtype) else float)
    return rotated.reshape(given.shape), rotation.reshape(*given.shape[:-2], *rotation.shape[1:])


def _checked(loadings: ArrayLike) -> np.ndarray:
    if isinstance(loadings, Mapping):
        raise TypeError(
            f"varimax expects the loadings alone, an array (*leading, p, k); got a dict of {sorted(loadings)}. Rotate "
            "them, and their scores by the rotation that comes back: scores @ rotation."
        )
    refuse_masked({"loadings": loadings}, "Argument")
    given = as_numbers(loadings, "loadings")
    real = is_real(given.dtype)
    if not real or given.ndim < 2 or 0 in given.shape or not np.isfinite(given).all():
        raise SymmetryError(
            f"varimax expects finite loadings (*leading, p, k), real and not empty; got {given.dtype} of shape "
            f"{given.shape}."
        )
    rows, factors = given.shape[-2:]
    if factors > rows:
        warn(
            f"varimax rotates the last axis of loadings (*leading, p, k), and got k = {factors} factors of p = {rows} "
            "variables: more factors than variables say nothing. If the factors are the rows, pass "
            "np.swapaxes(loadings, -1, -2)."
        )
    return given


def _swept(turned: np.ndarray, rotation: np.ndarray) -> float:
    """Every pair of factors turned once, in place: by what angle at most."""
    largest = 0.0
    for i, j in itertools.combinations(range(turned.shape[2]), 2):
        angle = _best_angle(turned[:, :, i], turned[:, :, j])
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        for matrix in (turned, rotation):
            a, b = matrix[:, :, i].copy(), matrix[:, :, j].copy()
            matrix[:, :, i], matrix[:, :, j] = cos * a + sin * b, cos * b - sin * a
        largest = max(largest, float(np.abs(angle).max(initial=0.0)))
    return largest


def _best_angle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Kaiser's closed form for two factors, ``(draw,)`` from entries ``(draw, p)``: never lowers the criterion."""
    u, v = x * x - y * y, 2.0 * x * y
    a, b = u.sum(1), v.sum(1)
    numerator = 2.0 * (u * v).sum(1) - 2.0 * a * b / x.shape[1]
    denominator = (u * u - v * v).sum(1) - (a * a - b * b) / x.shape[1]
    return 0.25 * np.arctan2(numerator, denominator)
