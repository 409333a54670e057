"""The sequential-assignment proposal: a tractable distribution over permutations that tracks the posterior.

Factors (rows) choose units (columns) one after the other, the most certain factor first; each weighs a free unit by how
well it explains it against how well the factors still to come would. Knows only tables ``log_table[i, j] = log
q_i(u_j)``.

What makes the bounds strict is that the proposal cannot tell which permutation generated the draw: it may use the table
only in ways that treat its columns alike. Dividing columns by their largest entry, flooring them, scaling rows by
Sinkhorn steps and ordering rows by how concentrated they are all do.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from numpyro_symmetry.linalg import once, product, row_sums

# more steps gain less than 0.5 % of the bound, and each costs two passes over the table
NUM_SCALING_STEPS = 2
# e^-40 squared is still a normal float32, and no bound can lose more than n² e^-40 nats to it
FLOOR = -40.0
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
    table = _scaled_table(log_table, num_scaling_steps)
    return _log_probability_of_identity(table, _by_certainty(table))


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
    table = _scaled_table(log_table, num_scaling_steps)
    order = _by_certainty(table)
    table = table[order]
    # the last factor has no rival: any positive number serves
    logits = jnp.log(table) - jnp.log(_sum_of_later_rows(table).at[-1].set(1.0))

    def choose(is_free: Array, row: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        logit, noise = row
        masked = jnp.where(is_free, logit, -jnp.inf)
        choice = jnp.argmax(masked + noise, axis=-1)
        log_probability = jnp.take_along_axis(masked, choice[:, None], 1)[:, 0] - logsumexp(masked, axis=-1)
        return is_free & (jnp.arange(n) != choice[:, None]), (choice, log_probability)

    noise = jax.random.gumbel(rng_key, (n, num_samples, n), log_table.dtype)
    _, (choices, log_probabilities) = jax.lax.scan(choose, jnp.ones((num_samples, n), bool), (logits, noise))
    return choices.T[:, jnp.argsort(order)], log_probabilities.sum(0)


def _scaled_table(log_table: Array, num_scaling_steps: int) -> Array:
    """The table in linear space, nearly doubly stochastic."""
    largest = jax.lax.stop_gradient(jnp.max(log_table, axis=0))
    table = once(jnp.exp(jnp.maximum(log_table - largest, FLOOR)))
    columns = rows = jnp.ones(table.shape[0], table.dtype)
    for _ in range(num_scaling_steps):
        columns = 1.0 / product(rows, table)
        rows = 1.0 / product(table, columns)
    return rows[:, None] * table * columns


def _by_certainty(table: Array) -> Array:
    """Factors from the most to the least certain of its unit, by the sum of squared probabilities."""
    return jnp.argsort(-row_sums(jax.lax.stop_gradient(table) ** 2))


@jax.custom_vjp
def _log_probability_of_identity(table: Array, order: Array) -> Array:
    return _probability_forward(table, order)[0]


def _probability_forward(table: Array, order: Array) -> tuple[Array, tuple[Array, ...]]:
    # rows are put in order, columns are not: step k looks at column order[k], and its rivals are the columns still free
    table = once(table[order])
    later = once(_sum_of_later_rows(table))
    step = jnp.arange(order.shape[0])
    own, rivals = table[step, order], later[step, order]
    others = row_sums(jnp.where(_is_still_free(order), table / later, 0.0))
    return -jnp.sum(jnp.log1p(rivals / own * others)), (table, later, own, rivals, others, order)


def _probability_backward(residuals: tuple[Array, ...], cotangent: Array) -> tuple[Array, None]:
    # by hand: the transpose of a gather by a permutation is a gather, and that of a running sum a running sum
    table, later, own, rivals, others, order = residuals
    is_free, is_own = _is_still_free(order), order[:, None] == jnp.arange(order.shape[0])
    weight = cotangent / (own + rivals * others)
    share = jnp.where(is_free, (weight * rivals)[:, None] / later, 0.0)
    to_later = jnp.where(is_free, share * table / later, 0.0) - jnp.where(is_own, (weight * others)[:, None], 0.0)
    to_table = jnp.where(is_own, (weight * rivals * others / own)[:, None], 0.0) - share
    to_table = once(to_table + _sum_of_later_rows(to_later[::-1])[::-1])
    return to_table[jnp.argsort(order)], None


_log_probability_of_identity.defvjp(_probability_forward, _probability_backward)


def _is_still_free(order: Array) -> Array:
    """Whether, at step k, column j has not been taken yet and is not being taken now."""
    return jnp.argsort(order) > jnp.arange(order.shape[0])[:, None]


def _sum_of_later_rows(table: Array) -> Array:
    """Sum over rows below each: short running sums within blocks, and a small triangular product across them."""
    n = table.shape[0]
    blocks = jnp.pad(once(table), ((0, -n % _BLOCK), (0, 0))).reshape(-1, _BLOCK, table.shape[1])
    strictly_below = jnp.triu(jnp.ones((blocks.shape[0],) * 2, table.dtype), 1)
    sums = [product(strictly_below, blocks.sum(1))]
    for row in range(_BLOCK - 1, 0, -1):
        sums.append(sums[-1] + blocks[:, row])
    return jnp.stack(sums[::-1], axis=1).reshape(-1, table.shape[1])[:n]
