r"""How near the closest equivalent solution is: copies of one mode crowd together as a layer widens.

Exchanging the two most similar of n units moves the weights by at most :math:`2\lVert\omega\rVert/\sqrt{n-1}`, whatever
the number of inputs: the mean of :math:`\lVert v_i-v_j\rVert^2` over pairs is at most
:math:`2\sum_i\lVert v_i\rVert^2/(n-1)`, and the exchange moves :math:`\omega` by :math:`\sqrt2\lVert v_i-v_j\rVert`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from numpyro_symmetry.symmetry import Symmetry, SymmetryError
from numpyro_symmetry.symmetry.axes import num_axes


class NearestTransposition(NamedTuple):
    r"""The exchange of two indices that moves values least.

    Attributes
    ----------
    pair
        The two indices.
    distance
        Euclidean distance from the values to the values with the two exchanged.
    bound
        :math:`2\lVert\omega\rVert/\sqrt{n-1}` with the norm of the sites that the group acts on.
    """

    pair: tuple[int, int]
    distance: float
    bound: float


def nearest_transposition(values: Mapping[str, ArrayLike], symmetry: Symmetry) -> dict[str, NearestTransposition]:
    r"""Find, for each group, the two indices whose exchange moves the values least.

    Parameters
    ----------
    values
        Site -> array, without leading dimensions.
    symmetry
        What may be permuted. Signs of signed groups are left alone.

    Returns
    -------
    dict
        Group name -> `NearestTransposition`, for groups of at least two indices.

    Raises
    ------
    SymmetryError
        If a site or size does not fit, a value is not finite, or there are leading dimensions.

    Notes
    -----
    The bound holds where a group stands once in each site. Gelberg et al. (2024), Theorem 3.1, has a bound that grows
    with the number of inputs, and exceeds the trivial :math:`2\lVert\omega\rVert` for all but very wide layers.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import Symmetry, nearest_transposition
    >>> values = {"w": jnp.array([[0.0, 3.0, 4.0]])}
    >>> found = nearest_transposition(values, Symmetry({"w": (None, "unit")}))["unit"]
    >>> found.pair, round(found.distance, 3), round(found.bound, 3)
    ((1, 2), 1.414, 7.071)
    """
    arrays = {site: np.asarray(values[site], float) for site in symmetry.axes if site in values}
    bound = symmetry.bind(arrays)
    for site, value in arrays.items():
        if not np.isfinite(value).all():
            raise SymmetryError(
                f"Site {site!r} holds {int((~np.isfinite(value)).sum())} non-finite of {value.size} values."
            )
        if value.ndim > num_axes(bound.axes[site]):
            raise SymmetryError(
                f"Site {site!r} has shape {value.shape}, more axes than its {num_axes(bound.axes[site])} entries in "
                "the symmetry: pass one draw at a time, or write None for axes of its own."
            )
    return {name: _nearest(bound, arrays, name) for name, group in bound.groups.items() if (group.size or 0) > 1}


def _nearest(symmetry: Symmetry, arrays: dict[str, np.ndarray], name: str) -> NearestTransposition:
    n = symmetry.sizes[name]
    places = []
    for site in symmetry.axes:
        opened = arrays[site].reshape(symmetry.opened_shape(site, arrays[site].shape))
        axes = symmetry.opened(site)
        if at := [opened.ndim - len(axes) + p for p, axis in enumerate(axes) if axis.group == name]:
            places.append((opened, at))
    once = [np.moveaxis(x, at[0], 0).reshape(n, -1) for x, at in places if len(at) == 1]
    twice = [(x, at) for x, at in places if len(at) > 1]
    units = np.concatenate(once, 1) if once else np.zeros((n, 0))
    # differences do not notice, and large common offsets would cancel
    units = units - units.mean(0)
    sizes = (units**2).sum(1)
    # exchanging i and j moves both of them by their difference
    squared = 2.0 * np.maximum(sizes[:, None] + sizes - 2.0 * units @ units.T, 0.0)
    pairs = np.transpose(np.triu_indices(n, 1))
    if twice:
        squared[pairs[:, 0], pairs[:, 1]] += [_moved_by(twice, i, j) for i, j in pairs]
    i, j = min(pairs.tolist(), key=lambda pair: squared[pair[0], pair[1]])
    # the table finds the pair; the distance itself must not suffer from cancellation
    distance = np.sqrt(2.0 * ((units[i] - units[j]) ** 2).sum() + _moved_by(twice, i, j))
    norm = np.sqrt(sum((x**2).sum() for x, _ in places))
    return NearestTransposition((i, j), float(distance), float(2.0 * norm / np.sqrt(n - 1)))


def _moved_by(sites: list[tuple[np.ndarray, list[int]]], i: int, j: int) -> float:
    """Squared distance that an exchange moves sites on whose axes the group stands more than once."""
    total = 0.0
    for value, axes in sites:
        swap = np.arange(value.shape[axes[0]])
        swap[[i, j]] = j, i
        moved = value
        for axis in axes:
            moved = moved.take(swap, axis)
        total += ((moved - value) ** 2).sum()
    return float(total)
