r"""The mean of importance weights, and how far it can be trusted: the tail's Pareto shape, and an effective number.

Knows log weights; not where they come from.
"""

from __future__ import annotations

import math

import numpy as np
from jax.typing import ArrayLike

from numpyro_symmetry.symmetry.arguments import rounding_of

# Vehtari et al.: the share of weights that are the tail, the fewest of them that show a shape, and the prior on it
_TAIL_SHARE, _TAIL_ROOTS = 0.2, 3.0
_FEWEST = 5
_PRIOR_SHAPE, _PRIOR_COUNT = 0.5, 10
_PRIOR_SPREAD = 3.0
_SMALLEST = float(np.log(np.finfo(np.float64).tiny))
# above this shape the error of a mean is not to be believed (Vehtari et al.); a shape takes 21 weights, and of fewer
# weights their effective number has to tell
_HEAVY, _FEWEST_EFFECTIVE = 0.7, 10
# nats: so much decides nothing between models
_LARGE_ROUNDING = 0.1


def pareto_shape(log_weights: ArrayLike) -> float:
    r"""Shape :math:`\hat k` of a generalised Pareto distribution fitted to the largest weights.

    Weights have about :math:`1/\hat k` finite moments. Their mean behaves below 0.5, is slow to settle up to 0.7, and
    its error is not to be believed beyond: then few weights make up all of it, and more draws change little.

    Parameters
    ----------
    log_weights
        ``(num_draws,)``, nats, up to a constant.

    Returns
    -------
    float
        :math:`\hat k`, drawn a little towards 0.5 as Vehtari et al. have it; ``-inf`` where the largest weights are all
        the same, and NaN where fewer than 21 weights, or one that is NaN or infinite, tell nothing.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao and Gabry (2024), *Pareto Smoothed Importance Sampling*, JMLR 25; Zhang and Stephens
    (2009), *A New and Efficient Estimation Method for the Generalized Pareto Distribution*, Technometrics 51.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry.entropy.importance import pareto_shape
    >>> tail = np.random.default_rng(0).pareto(2.0, size=20_000)
    >>> round(pareto_shape(np.log(tail)), 1)
    0.5
    """
    ascending = np.sort(_relative(log_weights))
    tail_size = math.ceil(min(_TAIL_SHARE * len(ascending), _TAIL_ROOTS * len(ascending) ** 0.5))
    if tail_size < _FEWEST or np.isnan(ascending).any():
        return math.nan
    cutoff = max(ascending[-tail_size - 1], _SMALLEST)
    if ascending[-1] == cutoff:
        return -math.inf
    excess = np.exp(ascending[-tail_size:]) - math.exp(cutoff)
    excess = excess[excess > 0.0]
    return _fitted_shape(excess) if len(excess) >= _FEWEST else math.inf


def shape_in_words(shape: float) -> str:
    """A `pareto_shape` as it stands in a line."""
    return "Pareto shape unknown (it takes 21 draws)" if math.isnan(shape) else f"Pareto shape {shape:.2f}"


def effective_number(log_weights: ArrayLike) -> float:
    r"""How many equal weights would be worth as much, :math:`(\sum w)^2 / \sum w^2`: from one to their number.

    Parameters
    ----------
    log_weights
        ``(num_draws,)``, nats, up to a constant.

    Returns
    -------
    float
        NaN if a weight is NaN or infinite, or all are zero.

    Examples
    --------
    >>> from numpyro_symmetry.entropy.importance import effective_number
    >>> effective_number([0.0, 0.0, 0.0, -1000.0])
    3.0
    """
    weights = np.exp(_relative(log_weights))
    return float(weights.sum() ** 2 / (weights**2).sum())


def log_mean(log_weights: np.ndarray) -> tuple[float, float]:
    """Logarithm of the mean of independent weights, and its standard error to first order: NaN of a single weight."""
    weights = np.exp(_relative(log_weights))
    error = weights.std(ddof=1) / weights.mean() / len(weights) ** 0.5 if len(weights) > 1 else math.nan
    return float(np.logaddexp.reduce(log_weights)) - math.log(len(weights)), float(error)


def lost_to_rounding(log_densities: ArrayLike, error: float) -> str:
    """In words, by how much their precision rounds log densities; empty if by little, or by less than an error."""
    values = np.asarray(log_densities)
    largest = float(np.abs(values).max(where=np.isfinite(values), initial=0.0))
    rounding = 0.5 * largest * rounding_of(values.dtype)
    if not rounding > max(_LARGE_ROUNDING, error):
        return ""
    return (
        f"log densities are as large as {largest:.2g} nats, which {values.dtype} rounds by up to {rounding:.2g}. "
        "Compute in float64 (numpyro.enable_x64()), or leave constants out of the model (numpyro.factor)"
    )


def doubt_in_words(shape: float, number: float) -> str:
    """Why the error of a mean of weights is not to be trusted, by their `pareto_shape` and `effective_number`."""
    if number < _FEWEST_EFFECTIVE:
        return "few draws are most of it"
    return "the tail of the weights is heavy" if shape > _HEAVY else ""


def _relative(log_weights: ArrayLike) -> np.ndarray:
    """Logarithms relative to the largest; NaN throughout if there is none, or if it is infinite."""
    values = np.asarray(log_weights, np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"log_weights must be a vector (num_draws,), one weight or more; got {values.shape}.")
    largest = values.max()
    return values - largest if np.isfinite(largest) else np.full(values.shape, np.nan)


def _fitted_shape(excess: np.ndarray) -> float:
    """Posterior mean of the shape over a grid of scales, of ascending positive numbers (Zhang and Stephens)."""
    count = len(excess)
    grid_size = 30 + int(count**0.5)
    quarter = excess[int(count / 4 + 0.5) - 1]
    grid = 1.0 - np.sqrt(grid_size / (np.arange(1, grid_size + 1) - 0.5))
    grid = grid / (_PRIOR_SPREAD * quarter) + 1.0 / excess[-1]
    shapes = np.log1p(-grid[:, None] * excess).mean(1)
    profile = count * (np.log(-grid / shapes) - shapes - 1.0)
    share = np.exp(profile - profile.max())
    scale = np.sum(grid * share) / share.sum()
    shape = np.log1p(-scale * excess).mean()
    return float((count * shape + _PRIOR_COUNT * _PRIOR_SHAPE) / (count + _PRIOR_COUNT))
