"""The sequential-assignment proposal: a tractable distribution over permutations that tracks the posterior.

Factors (rows) choose units (columns) one after the other, the most certain factor first; each weighs a free unit by how
well it explains it against how well the factors still to come would. Knows only tables ``log_table[i, j] = log
q_i(u_j)``.

What makes the bounds strict is that the proposal cannot tell which permutation generated the draw: it may use the table
only in ways that treat its columns alike. Dividing columns by their largest entry, flooring them, scaling rows by
Sinkhorn steps and ordering rows by how concentrated they are all do.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from numpyro_symmetry.linalg import once, product, row_sums, varying_alike

# more steps gain less than 0.2 % of the bound, and each costs a twentieth of it
NUM_SCALING_STEPS = 1
# e^-40 squared is still a normal float32, and no bound can lose more than n² e^-40 nats to it
FLOOR = -40.0
# at most so many rows are added one after the other; sums over other blocks of rows are one product of matrices
_BLOCK = 8


def log_proposal_of_identity(log_table: Array, *, num_scaling_steps: int = NUM_SCALING_STEPS) -> Array:
    r"""Log probability that the sequential proposal gives to the identity, :math:`\log\tau(\mathrm{id}\mid\theta)`.

    .. math:: \log\tau = -\sum_i \log\Big(1 + \frac{S_{ii}}{P_{ii}} \sum_{j>i} \frac{P_{ij}}{S_{ij}}\Big),
              \qquad S_{ij} = \sum_{i'>i} P_{i'j}

    with :math:`P` the table in linear space, its rows scaled by a few Sinkhorn steps. :math:`O(n^2)`, and
    :math:`\log n! + \operatorname{E}\log\tau \le I(g;\theta)`: the Barber–Agakov bound.

    Parameters
    ----------
    log_table
        ``(n, n)``, ``log_table[i, j] = log q_i(u_j)``, any surrogate allowed.
    num_scaling_steps
        Sinkhorn steps; zero is valid too, and looser.

    Returns
    -------
    Array
        Scalar, nats, at most zero.
    """
    return _log_probability_of_identity(log_table, num_scaling_steps)


def sample_proposal(
    rng_key: Array, log_table: Array, num_samples: int, *, num_scaling_steps: int = NUM_SCALING_STEPS
) -> tuple[Array, Array]:
    """Draw permutations from the sequential proposal.

    Parameters
    ----------
    rng_key
        JAX random key.
    log_table
        ``(n, n)``.
    num_samples
        Number K of draws.
    num_scaling_steps
        Sinkhorn steps.

    Returns
    -------
    permutations
        ``(K, n)``: factor ``i`` takes unit ``permutations[k, i]``.
    log_proposal
        ``(K,)`` log probabilities, nats.
    """
    n = log_table.shape[-1]
    table = _linear(log_table)
    scalings = _scalings(table, num_scaling_steps)
    order = _by_certainty(table, scalings)
    table = (scalings[-1][1][:, None] * table)[order]
    # the last factor has no rival: any positive number serves
    logits = jnp.log(table) - jnp.log(_sum_of_other_rows(table, later=True).at[-1].set(1.0))

    def choose(is_free: Array, row: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        logit, key = row
        masked = jnp.where(is_free, logit, -jnp.inf)
        # noise for one row at a time: for all rows it would be as large as K tables
        choice = jnp.argmax(masked + jax.random.gumbel(key, (num_samples, n), logit.dtype), axis=-1)
        log_probability = jnp.take_along_axis(masked, choice[:, None], 1)[:, 0] - logsumexp(masked, axis=-1)
        return is_free & (jnp.arange(n) != choice[:, None]), (choice, log_probability)

    all_free, *rows = varying_alike((jnp.ones((num_samples, n), bool), logits, jax.random.split(rng_key, n)))
    _, (choices, log_probabilities) = jax.lax.scan(choose, all_free, tuple(rows))
    return choices.T[:, _turns(order)], log_probabilities.sum(0)


def _linear(log_table: Array) -> Array:
    """The table in linear space, its columns divided by their largest entries."""
    # the largest apart from the exponentials, which are slow in one kernel with a reduction
    return once(jnp.exp(jnp.maximum(log_table - once(jnp.max(log_table, axis=0)), FLOOR)))


def _scalings(table: Array, num_steps: int) -> list[tuple[Array, Array]]:
    """Factors of the columns and of the rows after each Sinkhorn step; before the first they are ones."""
    ones = jnp.ones(table.shape[0], table.dtype)
    found = [(ones, ones)]
    for _ in range(num_steps):
        columns = 1.0 / product(found[-1][1], table)
        found.append((columns, 1.0 / product(table, columns)))
    return found


def _by_certainty(table: Array, scalings: list[tuple[Array, Array]]) -> Array:
    """Factors from the most to the least certain of its unit, by the sum of squared probabilities."""
    n, (columns, rows) = table.shape[0], scalings[-1]
    certainty = rows**2 * product(table**2, columns**2)
    # whole numbers that hold their own index are sorted several times faster than pairs of a key and an index
    levels = np.iinfo(np.int32).max // n
    doubt = (levels * (1.0 - certainty / certainty.max())).astype(np.int32)
    return jnp.sort(jnp.clip(doubt, 0, levels - 1) * n + jnp.arange(n, dtype=np.int32)) % n


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _log_probability_of_identity(log_table: Array, num_scaling_steps: int) -> Array:
    return _probability_forward(log_table, num_scaling_steps)[0]


def _probability_forward(log_table: Array, num_scaling_steps: int) -> tuple[Array, tuple[Any, ...]]:
    table = _linear(log_table)
    scalings = _scalings(table, num_scaling_steps)
    # rows are put in order, columns are not: step k looks at column order[k], and its rivals are the columns still
    # free. Scaling a column cancels, and scaling a row tells only in what later rows are worth
    order = _by_certainty(table, scalings)
    table = once(table[order])
    later = once(_sum_of_other_rows(scalings[-1][1][order][:, None] * table, later=True))
    step = jnp.arange(order.shape[0])
    own, rivals = table[step, order], later[step, order]
    others = row_sums(jnp.where(_is_still_free(order), table / later, 0.0))
    return -jnp.sum(jnp.log1p(rivals / own * others)), (table, scalings, order, later, own, rivals, others)


def _probability_backward(num_scaling_steps: int, residuals: tuple[Any, ...], cotangent: Array) -> tuple[Array]:
    # by hand: the transpose of a gather by a permutation is a gather, and that of a running sum a running sum
    table, scalings, order, later, own, rivals, others = residuals
    is_free, is_own = _is_still_free(order), order[:, None] == jnp.arange(order.shape[0])
    weight = cotangent / (own + rivals * others)
    share = jnp.where(is_free, (weight * rivals)[:, None] / later, 0.0)
    to_later = jnp.where(is_free, share * table / later, 0.0) - jnp.where(is_own, (weight * others)[:, None], 0.0)
    to_scaled = once(_sum_of_other_rows(to_later, later=False))
    to_table = jnp.where(is_own, (weight * rivals * others / own)[:, None], 0.0) - share
    to_table += scalings[-1][1][order][:, None] * to_scaled
    to_rows = row_sums(to_scaled * table)
    # backwards through the Sinkhorn steps, whose gradients are outer products
    for (_, rows_before), (columns, rows) in zip(scalings[-2::-1], scalings[:0:-1], strict=True):
        of_rows = to_rows * rows[order] ** 2
        of_columns = -product(of_rows, table) * columns**2
        to_table -= of_rows[:, None] * columns + rows_before[order][:, None] * of_columns
        to_rows = -product(table, of_columns)
    to_log_table = jnp.where(table > math.exp(FLOOR), to_table * table, 0.0)
    return (to_log_table[_turns(order)],)


_log_probability_of_identity.defvjp(_probability_forward, _probability_backward)


def _is_still_free(order: Array) -> Array:
    """Whether, at step k, column j has not been taken yet and is not being taken now."""
    return _turns(order) > jnp.arange(order.shape[0], dtype=order.dtype)[:, None]


def _turns(order: Array) -> Array:
    """When each factor has its turn: the inverse of the order, by a scatter, which is faster than a sort."""
    return jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0], dtype=order.dtype), unique_indices=True)


def _sum_of_other_rows(table: Array, *, later: bool) -> Array:
    """Sum over the rows below each row, or above it: running sums within blocks, plus the sums of whole blocks."""
    n = table.shape[0]
    size = min(n, _BLOCK)
    blocks = jnp.pad(once(table), ((0, -n % size), (0, 0))).reshape(-1, size, table.shape[1])
    rows = range(size)[::-1] if later else range(size)
    *within, whole = itertools.accumulate((blocks[:, row] for row in rows), initial=jnp.zeros_like(blocks[:, 0]))
    within, whole = once(jnp.stack(within[::-1] if later else within, axis=1)), once(whole)
    if len(blocks) == 1:
        return within[0]
    all_ones = jnp.ones((blocks.shape[0],) * 2, table.dtype)
    others = product(jnp.triu(all_ones, 1) if later else jnp.tril(all_ones, -1), whole)
    return (within + others[:, None]).reshape(-1, table.shape[1])[:n]
