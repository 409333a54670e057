r"""Estimators of the mutual information :math:`I(g;\theta)` between a draw and its relabelling, from density tables.

A table holds ``log_density[..., i, j] = log q_i(u_j)`` for a guide that factorises over units and a draw
:math:`\theta \sim q`, so the draw's own density is the trace. Symmetrizing the guide raises its ELBO by exactly

.. math:: I(g;\theta) = \log|G| - \operatorname{E}\Big[\log\operatorname{perm} A - \sum_i \log A_{ii}\Big],
          \qquad 0 \le I \le \log|G|.

Knows tables, not guides, sites or models.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from numpyro_symmetry.entropy.permanent import as_log_table, log_permanent, log_sum
from numpyro_symmetry.entropy.sequential import log_proposal_of_identity, sample_proposal
from numpyro_symmetry.symmetry.arguments import as_count, as_key, is_option

ESTIMATORS = ("exact", "infonce", "sequential", "importance")
BOUNDS = ("lower", "upper", "both")


def mutual_information(
    log_density: ArrayLike,
    *,
    estimator: str,
    rng_key: Array | None = None,
    num_permutations: int = 8,
    bound: str = "lower",
    log_density_flipped: ArrayLike | None = None,
) -> Array:
    r"""Estimate the mutual information between relabelling and draw: what symmetrizing a guide adds to its ELBO.

    Parameters
    ----------
    log_density
        ``(..., n, n)``, ``log_density[..., i, j] = log q_i(u_j)`` with :math:`\theta \sim q`, the draw's own density on
        the diagonal. Rows of a further constant may be added: only differences along a column or row matter. ``-inf``
        stands for a density of zero.
    estimator
        - ``"exact"``: the permanent, n at most 20.
        - ``"infonce"``: K - 1 uniform permutations and the identity; at most ``log K`` (Gelberg et al., Theorem 4.3).
        - ``"sequential"``: :math:`\log|G| + \log\tau(\mathrm{id}\mid\theta)` under the sequential-assignment proposal,
          a strict lower bound in :math:`O(n^2)` that samples no permutation and needs no key.
        - ``"importance"``: K permutations from the sequential proposal, the identity among them.
    rng_key
        JAX random key; needed by ``"infonce"`` and ``"importance"``.
    num_permutations
        K, which counts the identity.
    bound
        ``"upper"`` drops the identity from ``"importance"``: the other half of the sandwich. Never train on it.
        ``"both"`` weighs the same permutations either way.
    log_density_flipped
        For signed groups, ``log_density_flipped[..., i, j] = log q_i(-u_j)``.

    Returns
    -------
    Array
        ``(...)``: one value a draw, nats. The mean over draws estimates I from below (``"upper"``: from above;
        ``"both"``: ``(2, ...)``, lower and upper).
        Gradients are those of the value returned, except that ``"importance"`` does not differentiate the choice of
        permutations (self-normalised importance sampling, a bias of order 1/K) and ``"sequential"`` not the order in
        which it visits factors.

    Raises
    ------
    ValueError
        If an option is unknown, a table is not square, tables differ in shape, an entry is NaN or ``+inf`` (or ``-inf``
        on the diagonal), a key is missing or ``"exact"`` is too wide.
    TypeError
        If a table holds no real numbers, a key is no key or a count no whole number.

    References
    ----------
    Gelberg, van der Ouderaa, van der Wilk and Gal (2024), *Variational Inference Failures Under Model Symmetries:
    Permutation Invariant Posteriors for Bayesian Neural Networks*, arXiv:2408.05496, Theorems 4.1 and 4.3.
    Barber and Agakov (2003), *The IM Algorithm*; Sobolev and Vetrov (2019), *Importance Weighted Hierarchical
    Variational Inference*, for the direction of the bounds.

    Examples
    --------
    Three units far apart: relabelling them is worth all of log 3! nats.

    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import mutual_information
    >>> table = -50.0 * (1.0 - jnp.eye(3))
    >>> round(float(mutual_information(table, estimator="sequential")), 4)
    1.7918
    """
    check_options(estimator, rng_key, num_permutations, bound)
    log_density = as_log_table(log_density, "log_density")
    tables = (log_density,)
    if log_density_flipped is not None:
        tables += (as_log_table(log_density_flipped, "log_density_flipped"),)
        if tables[1].shape != log_density.shape:
            raise ValueError(
                f"log_density_flipped must have the shape of log_density, {log_density.shape}; got {tables[1].shape}."
            )
    own = jnp.diagonal(log_density, axis1=-2, axis2=-1)
    if not isinstance(own, Tracer) and not np.isfinite(np.asarray(own)).all():
        raise ValueError("log_density is -inf on its diagonal, but the draw's own density cannot be zero.")
    return _of_all_draws(rng_key, tables, estimator, num_permutations, bound)


@partial(jax.jit, static_argnames=("estimator", "K", "bound"))
def _of_all_draws(key: Array | None, tables: tuple[Array, ...], estimator: str, K: int, bound: str) -> Array:
    batch = tables[0].shape[:-2]
    flat = tuple(table.reshape(-1, *table.shape[-2:]) for table in tables)
    keys = None if key is None else jax.random.split(key, math.prod(batch))
    one = partial(_of_one_draw, estimator=estimator, K=K, bound=bound)
    values = jax.vmap(one, in_axes=(None if keys is None else 0, 0), out_axes=-1)(keys, flat)
    return values.reshape(values.shape[:-1] + batch)


def check_options(estimator: str, rng_key: Array | None, num_permutations: int, bound: str) -> None:
    """Raise for options no estimator has: ValueError, or TypeError for a key or a count that is none."""
    refuse_unknown_estimator(estimator)
    if not is_option(bound, BOUNDS):
        raise ValueError(f"bound must be one of {BOUNDS}; got {bound!r}.")
    if bound != "lower" and estimator not in ("exact", "importance"):
        raise ValueError(f"estimator {estimator!r} is a lower bound; bound={bound!r} needs 'importance' (or 'exact').")
    if estimator in ("infonce", "importance"):
        if rng_key is None:
            raise ValueError(f"estimator {estimator!r} draws permutations: pass rng_key.")
        as_key(rng_key)
        as_count(num_permutations, "num_permutations", meaning="it counts the identity")


def refuse_unknown_estimator(estimator: str, others: tuple[str, ...] = ()) -> None:
    """Raise ValueError for a name that is no estimator's, nor one of others that choose an estimator."""
    if not is_option(estimator, known := (*others, *ESTIMATORS)):
        raise ValueError(f"estimator must be one of {known}; got {estimator!r}.")


def log_group_order(n: int, signed: bool) -> float:
    """``log n!``, plus ``n log 2`` for a signed group."""
    return math.lgamma(n + 1) + (n * math.log(2.0) if signed else 0.0)


def bound_from_ratios(log_ratios: Array, log_proposals: Array | float, log_order: Array | float) -> Array:
    r"""The one formula behind every sampled estimator: :math:`\log|G| - \log\frac1K\sum_k \rho_k/\tau_k`.

    Parameters
    ----------
    log_ratios
        ``(K,)``, :math:`\log\rho_k = \log q(g_k\theta) - \log q(\theta)`.
    log_proposals
        ``(K,)``, :math:`\log\tau(g_k\mid\theta)`.
    log_order
        :math:`\log|G|`.

    Returns
    -------
    Array
        Scalar, nats. A lower bound if the identity is one of the K, an upper bound if none is.
    """
    return log_order - logsumexp(log_ratios - log_proposals) + math.log(log_ratios.shape[0])


def sandwich(
    log_ratios: Array,
    log_proposals: Array,
    of_identity: tuple[Array, Array],
    log_order: Array | float,
    K: int,
    bound: str,
) -> Array:
    r"""The lower bound, the upper one, or both, from the same permutations.

    Parameters
    ----------
    log_ratios, log_proposals
        Of drawn permutations, as for `bound_from_ratios`: K of them, or K - 1 if only ``"lower"`` is asked for.
    of_identity
        Log ratio and log proposal of the identity.
    log_order
        :math:`\log|G|`.
    K
        Number of permutations that each bound weighs; the lower one counts the identity among them.
    bound
        ``"lower"``, ``"upper"`` or ``"both"``.

    Returns
    -------
    Array
        Scalar, or ``(2,)`` for ``"both"``; nats.
    """
    ratio, proposal = of_identity
    with_identity = jnp.append(log_ratios[: K - 1], ratio), jnp.append(log_proposals[: K - 1], proposal)
    sides = {"lower": with_identity, "upper": (log_ratios, log_proposals)}
    if bound != "both":
        return bound_from_ratios(*sides[bound], log_order)
    return jnp.stack([bound_from_ratios(*side, log_order) for side in sides.values()])


def _of_one_draw(key: Array | None, tables: tuple[Array, ...], estimator: str, K: int, bound: str) -> Array:
    signed = len(tables) == 2
    n = tables[0].shape[-1]
    log_order = log_group_order(n, signed)
    # against each unit's own density, so that float32 carries differences and not the densities themselves
    tables = tuple(table - jnp.diagonal(tables[0]) for table in tables)
    if estimator == "infonce":
        assert key is not None
        return _uniform(key, tables, K)
    # a unit's sign is summed out exactly: only its label is hard
    summed = log_sum(jnp.stack(tables, -1)) if signed else tables[0]
    if estimator == "exact":
        exact = log_order - log_permanent(summed)
        return jnp.stack([exact, exact]) if bound == "both" else exact
    if estimator == "sequential":
        return log_order + log_proposal_of_identity(summed) - jnp.trace(summed)
    assert key is not None
    permutations, log_proposals = jax.lax.stop_gradient(sample_proposal(key, summed, K - (bound == "lower")))
    log_ratios = summed[jnp.arange(n), permutations].sum(-1)
    of_identity = jnp.trace(summed), log_proposal_of_identity(summed)
    return sandwich(log_ratios, log_proposals, of_identity, log_order, K, bound)


def _uniform(key: Array, tables: tuple[Array, ...], K: int) -> Array:
    n = tables[0].shape[-1]
    key_permutation, key_sign = jax.random.split(key)
    everyone = jnp.broadcast_to(jnp.arange(n), (K - 1, n))
    permutations = jax.random.permutation(key_permutation, everyone, axis=-1, independent=True)
    moved = tables[0][jnp.arange(n), permutations]
    if len(tables) == 2:
        flip = jax.random.bernoulli(key_sign, shape=moved.shape)
        moved = jnp.where(flip, tables[1][jnp.arange(n), permutations], moved)
    log_ratios = jnp.append(moved.sum(-1), 0.0)
    return bound_from_ratios(log_ratios, 0.0, 0.0)  # log|G| and the uniform proposal's log(1/|G|) cancel
