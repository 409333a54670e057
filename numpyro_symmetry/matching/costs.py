r"""Costs of placing one Gaussian (or point) on another, as bilinear features :math:`\langle R,\, gB\rangle`.

A feature is a pair of arrays for each site whose inner product, summed, is the cost up to what no relabelling changes.
Objectives are higher the better, and complete: they are recomputed from the moved source in float64. Knows arrays by
site; no algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Arrays = Mapping[str, np.ndarray]


class Feature(NamedTuple):
    """Target and source arrays by site, and whether a signed group's signs leave the source's alone."""

    target: Arrays
    source: Arrays
    is_even: bool


class Cost(NamedTuple):
    """A cost between Gaussians given by site as means and standard deviations.

    Attributes
    ----------
    features
        ``(loc, scale) of target, (loc, scale) of source ->`` bilinear features.
    objective
        One site's share, summed over entries, of ``(target loc, target scale, source loc, source scale)``.
    needs_scale
        Whether the target must have standard deviations, and whether the source must.
    """

    features: Callable[[Arrays, Arrays, Arrays, Arrays], list[Feature]]
    objective: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    needs_scale: tuple[bool, bool]


@dataclass(frozen=True)
class ActivationCost:
    """Match units by what they compute on data instead of by their weights: the distance of their activations.

    Parameters
    ----------
    activations
        Values of one network -> group name -> ``(num_data, n)``, one column a unit: a forward pass.

    Notes
    -----
    Dead units have equal (zero) activations; ties keep their labels.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import ActivationCost, Symmetry, match
    >>> x = jnp.linspace(-1.0, 1.0, 20)[:, None]
    >>> cost = ActivationCost(lambda values: {"hidden": jnp.tanh(x @ values["w1"])})
    >>> source = {"w1": jnp.array([[1.0, 2.0, 3.0]]), "w2": jnp.zeros(3)}
    >>> target = {"w1": jnp.array([[3.0, 1.0, 2.0]]), "w2": jnp.zeros(3)}
    >>> symmetry = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)})
    >>> match(target, source, symmetry, cost=cost).element["hidden"].tolist()
    [2, 0, 1]
    """

    activations: Callable[[dict[str, Any]], dict[str, Any]]


def _wasserstein(loc: Arrays, scale: Arrays, loc2: Arrays, scale2: Arrays) -> list[Feature]:
    return [Feature(loc, loc2, False), Feature(scale, scale2, True)]


def _euclidean(loc: Arrays, scale: Arrays, loc2: Arrays, scale2: Arrays) -> list[Feature]:
    return [Feature(loc, loc2, False)]


def _log_density(loc: Arrays, scale: Arrays, loc2: Arrays, scale2: Arrays) -> list[Feature]:
    precision = {site: scale[site] ** -2 for site in scale}
    return [
        Feature({site: precision[site] * loc[site] for site in loc}, loc2, False),
        Feature(
            {site: -0.5 * precision[site] for site in loc},
            {site: loc2[site] ** 2 + scale2[site] ** 2 for site in loc2},
            True,
        ),
    ]


def _log_density_objective(loc: np.ndarray, scale: np.ndarray, loc2: np.ndarray, scale2: np.ndarray) -> np.ndarray:
    return -0.5 * ((loc2 - loc) ** 2 + scale2**2) / scale**2 - np.log(scale) - 0.5 * math.log(2 * math.pi)


def _kl_objective(loc: np.ndarray, scale: np.ndarray, loc2: np.ndarray, scale2: np.ndarray) -> np.ndarray:
    return _log_density_objective(loc, scale, loc2, scale2) + np.log(scale2) + 0.5 * math.log(2 * math.pi * math.e)


COSTS = {
    "wasserstein": Cost(_wasserstein, lambda m, s, m2, s2: -((m - m2) ** 2) - (s - s2) ** 2, (False, False)),
    "euclidean": Cost(_euclidean, lambda m, s, m2, s2: -((m - m2) ** 2), (False, False)),
    "log_density": Cost(_log_density, _log_density_objective, (True, False)),
    "kl": Cost(_log_density, _kl_objective, (True, True)),
}
