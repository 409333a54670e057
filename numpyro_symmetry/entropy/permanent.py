"""Permanents of positive matrices, in log space. Knows only arrays."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from numpyro_symmetry.symmetry.arguments import as_real_array, refuse_masked
from numpyro_symmetry.symmetry.permutation_kinds import PERMUTATION
from numpyro_symmetry.symmetry.shown import counted

# 20 columns have a million subsets, each of which is read off ten others on average
MAX_EXACT_WIDTH = 20
# 24 permutations are one gather, and subsets one for every row
_ENUMERATED_WIDTH = 4


def log_permanent(log_matrix: ArrayLike) -> Array:
    r"""Logarithm of the permanent of a positive matrix given by its entries' logarithms, exactly.

    .. math:: \log \operatorname{perm} A = \log \sum_{\sigma \in S_n} \prod_i A_{i\sigma(i)}

    A dynamic programme over subsets of columns, :math:`f(S) = \sum_{j \in S} A_{|S| j} f(S \setminus j)`, of
    :math:`O(n^2 2^n)` time. Every term is positive, so nothing cancels and float32 is safe (Ryser's formula is not).
    Differentiable: the gradient holds the posterior marginals :math:`P(\sigma(i) = j)`, which are zero wherever the
    matrix is; where the permanent itself is zero, so is the gradient.

    Parameters
    ----------
    log_matrix
        Logarithms ``(..., n, n)``; ``-inf`` stands for zero. n is at most 20.

    Returns
    -------
    Array
        Log permanents ``(...)``.

    Raises
    ------
    ValueError
        If the matrix is not square, is empty or is wider than 20, or holds NaN or ``+inf``.
    TypeError
        If it is no array of real numbers.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import log_permanent
    >>> round(float(jnp.exp(log_permanent(jnp.zeros((5, 5))))))
    120
    """
    log_matrix = as_log_table(log_matrix, "log_matrix")
    n = log_matrix.shape[-1]
    if n > MAX_EXACT_WIDTH:
        raise ValueError(
            f"An exact permanent of width {n} takes 2^{n} terms; at most {MAX_EXACT_WIDTH} is allowed. "
            "Use estimator='sequential' or 'importance'."
        )
    single = _by_enumeration
    if n > _ENUMERATED_WIDTH:
        # as arguments: constants of this size take long to compile
        single = functools.partial(_by_subsets, levels=_subsets_by_size(n))
    for _ in range(log_matrix.ndim - 2):
        single = jax.vmap(single)
    return single(log_matrix)


def as_log_table(value: ArrayLike, name: str) -> Array:
    """Logarithms of non-negative numbers, ``(..., n, n)``, as numbers of single precision or double.

    Raises
    ------
    TypeError
        If the table holds no real numbers.
    ValueError
        If the table is not square, is empty, or holds NaN or ``+inf``, which no logarithm of a density is.
    """
    refuse_masked({name: value}, "Argument")
    table = jnp.asarray(as_real_array(value, name, TypeError))
    if not (jnp.issubdtype(table.dtype, jnp.floating) or jnp.issubdtype(table.dtype, jnp.integer)):
        raise TypeError(f"{name} must hold real numbers, logarithms; got {table.dtype}.")
    if table.ndim < 2 or table.shape[-1] != table.shape[-2] or not table.size:
        raise ValueError(f"{name} expects a table (..., n, n), n at least 1; got {table.shape}.")
    if not isinstance(table, Tracer) and (wrong := int((~(table < jnp.inf)).sum())):
        raise ValueError(
            f"{name} holds NaN or +inf in {wrong} of {counted(table.size, 'entry')}; logarithms of densities are "
            "finite, or -inf for zero."
        )
    dtype = jnp.result_type(table, float)
    # half precision holds no sums of many terms
    return table.astype(dtype if dtype.itemsize > 2 else jnp.float32)


def log_sum(log_terms: Array) -> Array:
    """Log of a sum along the last axis; where every term is zero so is the gradient, which `logsumexp` makes NaN."""
    is_zero = jnp.all(log_terms == -jnp.inf, axis=-1)
    return jnp.where(is_zero, -jnp.inf, logsumexp(jnp.where(is_zero[..., None], 0.0, log_terms), axis=-1))


@jax.jit
def _by_enumeration(log_matrix: Array) -> Array:
    n = log_matrix.shape[-1]
    return log_sum(log_matrix[np.arange(n), PERMUTATION.elements(n)].sum(-1))


@jax.jit
def _by_subsets(log_matrix: Array, levels: list[tuple[np.ndarray, np.ndarray]]) -> Array:
    log_sums = jnp.zeros(1, log_matrix.dtype)
    for row, (columns, smaller) in zip(log_matrix, levels, strict=True):
        log_sums = log_sum(row[columns] + log_sums[smaller])
    return log_sums[0]


# at width 20 these are 84 MB, and hardly anybody asks for two widths in turn
@functools.lru_cache(maxsize=1)
def _subsets_by_size(n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For every size k: the columns of each k-subset, and the positions of those subsets without each column."""
    levels: list[tuple[np.ndarray, np.ndarray]] = []
    position: dict[tuple[int, ...], int] = {(): 0}
    for k in range(1, n + 1):
        subsets = list(itertools.combinations(range(n), k))
        smaller = [[position[s[:i] + s[i + 1 :]] for i in range(k)] for s in subsets]
        levels.append((np.array(subsets, np.int32), np.array(smaller, np.int32)))
        position = {s: i for i, s in enumerate(subsets)}
    return levels
