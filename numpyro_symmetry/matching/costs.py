r"""Costs of placing one Gaussian (or point) on another, as bilinear features :math:`\langle R,\, gB\rangle`.

An objective is a sum of inner products of target and moved source features, and offsets that no relabelling changes;
higher is better. Knows arrays of one site; no symmetry and no algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

# mean and standard deviation of one site; points have none of the latter
Moments = tuple[np.ndarray, np.ndarray | None]


class Cost(NamedTuple):
    """A cost between Gaussians, site by site.

    Attributes
    ----------
    target, source
        Moments -> features, paired in order; ``None`` where there is nothing to compare.
    is_even
        For each feature, whether a signed group's signs leave the source's alone.
    target_offset, source_offset
        Moments of a batch of sites -> what the objective holds beside the inner products, summed over entries.
    needs_scale
        Whether the target must have standard deviations, and whether the source must.
    """

    target: Callable[[Moments], tuple[np.ndarray | None, ...]]
    source: Callable[[Moments], tuple[np.ndarray | None, ...]]
    is_even: tuple[bool, ...]
    target_offset: Callable[[Moments], np.ndarray]
    source_offset: Callable[[Moments], np.ndarray]
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

    def __post_init__(self) -> None:
        if not callable(self.activations):
            raise TypeError(
                "activations must be a function from the values of one network to arrays by group; got "
                f"{type(self.activations).__name__}."
            )


def _twice(moments: Moments) -> tuple[np.ndarray | None, ...]:
    loc, scale = moments
    return 2.0 * loc, None if scale is None else 2.0 * scale


def _minus_squares(moments: Moments) -> np.ndarray:
    # by BLAS, which is faster than einsum
    squares = ((x[:, None] @ x[:, :, None])[:, 0, 0] for x in _rows(moments) if x is not None)
    return -sum(squares, np.zeros(len(moments[0])))


def _natural(moments: Moments) -> tuple[np.ndarray | None, ...]:
    loc, scale = moments
    assert scale is not None
    return loc / scale**2, -0.5 / scale**2


def _first_and_second(moments: Moments) -> tuple[np.ndarray | None, ...]:
    loc, scale = moments
    return loc, loc**2 if scale is None else loc**2 + scale**2


def _log_normaliser(moments: Moments) -> np.ndarray:
    loc, scale = _rows(moments)
    assert scale is not None
    return (-0.5 * (loc / scale) ** 2 - np.log(scale) - 0.5 * math.log(2.0 * math.pi)).sum(1)


def _entropy(moments: Moments) -> np.ndarray:
    scale = _rows(moments)[1]
    assert scale is not None
    return (np.log(scale) + 0.5 * math.log(2.0 * math.pi * math.e)).sum(1)


def _rows(moments: Moments) -> Moments:
    loc, scale = moments
    return loc.reshape(len(loc), -1), None if scale is None else scale.reshape(len(loc), -1)


_OF_DENSITY = Cost(
    _natural,
    _first_and_second,
    (False, True),
    _log_normaliser,
    lambda moments: np.zeros(len(moments[0])),
    (True, False),
)
COSTS = {
    "wasserstein": Cost(_twice, lambda moments: moments, (False, True), _minus_squares, _minus_squares, (False, False)),
    "euclidean": Cost(
        lambda moments: (2.0 * moments[0],),
        lambda moments: (moments[0],),
        (False,),
        lambda moments: _minus_squares((moments[0], None)),
        lambda moments: _minus_squares((moments[0], None)),
        (False, False),
    ),
    "log_density": _OF_DENSITY,
    "kl": _OF_DENSITY._replace(source_offset=_entropy, needs_scale=(True, True)),
}
