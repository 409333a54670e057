"""Rotations of factors, which no discrete symmetry holds: varimax, for every draw, before signs and labels are matched.

Knows arrays; no sites and no containers.
"""

from __future__ import annotations

import itertools

import numpy as np
from jax.typing import ArrayLike

from numpyro_symmetry.symmetry import SymmetryError

_MAX_SWEEPS = 1000


def varimax(loadings: ArrayLike, *, normalize: bool = False, tolerance: float = 1e-6) -> tuple[np.ndarray, np.ndarray]:
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

    Returns
    -------
    rotated, rotation
        ``(*leading, p, k)`` and ``(*leading, k, k)``; scores rotate alike, ``scores @ rotation``.

    Raises
    ------
    SymmetryError
        If the loadings are not finite or have fewer than two axes.

    References
    ----------
    Kaiser (1958); Papastamoulis and Ntzoufras (2022), rotation, sign and permutation by varimax and assignment.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import varimax
    >>> turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    >>> rotated, _ = varimax(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]) @ turn)
    >>> np.sort(np.abs(rotated), axis=1).round(3).tolist()
    [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    """
    given = np.asarray(loadings)
    if given.ndim < 2 or not np.isfinite(given).all():
        raise SymmetryError(
            f"varimax expects finite loadings (*leading, p, k); got {given.dtype} of shape {given.shape}."
        )
    flat = given.reshape(-1, *given.shape[-2:]).astype(float)
    length = np.linalg.norm(flat, axis=2, keepdims=True) if normalize else np.ones((1, 1, 1))
    rows = flat / np.where(length > 0, length, 1.0)
    rotation = np.broadcast_to(np.eye(flat.shape[2]), (len(flat), flat.shape[2], flat.shape[2])).copy()
    turned = rows.copy()
    for _ in range(_MAX_SWEEPS):
        largest = 0.0
        for i, j in itertools.combinations(range(flat.shape[2]), 2):
            angle = _best_angle(turned[:, :, i], turned[:, :, j])
            cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
            for matrix in (turned, rotation):
                a, b = matrix[:, :, i].copy(), matrix[:, :, j].copy()
                matrix[:, :, i], matrix[:, :, j] = cos * a + sin * b, cos * b - sin * a
            largest = max(largest, float(np.abs(angle).max(initial=0.0)))
        if largest < tolerance:
            break
    rotated = (flat @ rotation).astype(given.dtype if given.dtype.kind == "f" else float)
    return rotated.reshape(given.shape), rotation.reshape(*given.shape[:-2], *rotation.shape[1:])


def _best_angle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Kaiser's closed form for two factors, ``(draw,)`` from entries ``(draw, p)``: never lowers the criterion."""
    u, v = x * x - y * y, 2.0 * x * y
    a, b = u.sum(1), v.sum(1)
    numerator = 2.0 * (u * v).sum(1) - 2.0 * a * b / x.shape[1]
    denominator = (u * u - v * v).sum(1) - (a * a - b * b) / x.shape[1]
    return 0.25 * np.arctan2(numerator, denominator)
