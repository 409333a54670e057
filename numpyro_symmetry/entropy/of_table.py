r"""Mutual information of a draw and its relabelling from density tables, of many draws at once.

A table holds ``log_density[..., i, j] = log q_i(u_j)`` for a guide that factorises over units, and a draw
:math:`\theta \sim q`, so the draw's own density is the trace. Symmetrizing the guide raises its ELBO by exactly

.. math:: I(g;\theta) = \log|G| - \operatorname{E}\Big[\log\operatorname{perm} A - \sum_i \log A_{ii}\Big],
          \qquad 0 \le I \le \log|G|.

Knows tables, not guides, sites or models.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer
from jax.sharding import NamedSharding
from jax.typing import ArrayLike

from numpyro_symmetry.chunks import at_once, mapped
from numpyro_symmetry.devices import each_at_its_own, sharding_of
from numpyro_symmetry.entropy.estimators import Estimator, check_options, named
from numpyro_symmetry.entropy.permanent import as_log_table
from numpyro_symmetry.symmetry.arguments import as_count


def mutual_information(
    log_density: ArrayLike,
    *,
    estimator: str | Estimator,
    rng_key: Array | None = None,
    num_permutations: int = 8,
    bound: str = "lower",
    log_density_flipped: ArrayLike | None = None,
    chunk_size: int | str = "auto",
) -> Array:
    r"""Estimate the mutual information between relabelling and draw: what symmetrizing a guide adds to its ELBO.

    Parameters
    ----------
    log_density
        ``(..., n, n)``, ``log_density[..., i, j] = log q_i(u_j)`` with :math:`\theta \sim q`, the draw's own density on
        the diagonal. A constant may be added to any row or column: only differences along them matter. ``-inf`` stands
        for a density of zero.
    estimator
        - ``"exact"``: the permanent, n at most 20.
        - ``"infonce"``: K - 1 uniform permutations and the identity; at most ``log K`` (Gelberg et al., Theorem 4.3).
        - ``"sequential"``: :math:`\log|G| + \log\tau(\mathrm{id}\mid\theta)` under the sequential-assignment proposal,
          a strict lower bound in :math:`O(n^2)` that samples no permutation and needs no key.
        - ``"importance"``: K permutations from the sequential proposal, the identity among them.

        Or an `Estimator`.
    rng_key
        JAX random key; needed by ``"infonce"`` and ``"importance"``.
    num_permutations
        K, which counts the identity.
    bound
        ``"upper"`` drops the identity from ``"importance"``: the other half of the sandwich. Never train on it.
        ``"both"`` weighs the same permutations either way.
    log_density_flipped
        For signed groups, ``log_density_flipped[..., i, j] = log q_i(-u_j)``.
    chunk_size
        Draws that are estimated together; by default as many as fit about 16 MB of tables. Memory is in proportion.

    Returns
    -------
    Array
        ``(...)``: one value a draw, nats. The mean over draws estimates I from below (``"upper"``: from above;
        ``"both"``: ``(2, ...)``, lower and upper).
        Gradients are those of the value returned, except that ``"importance"`` does not differentiate the choice of
        permutations (self-normalised importance sampling, a bias of order 1/K) and ``"sequential"`` not the order in
        which it visits factors.

    Notes
    -----
    Tables that lie over devices along their first axis are estimated where they lie, and so are the values.

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
    chosen = named(estimator)
    check_options(chosen, rng_key, num_permutations, bound)
    log_density = as_log_table(log_density, "log_density")
    tables = (log_density,)
    if log_density_flipped is not None:
        tables += (as_log_table(log_density_flipped, "log_density_flipped"),)
        if tables[1].shape != log_density.shape:
            raise ValueError(
                f"log_density_flipped must have the shape of log_density, {log_density.shape}; got {tables[1].shape}."
            )
    own = jnp.diagonal(log_density, axis1=-2, axis2=-1)
    if not isinstance(own, Tracer) and not bool(jnp.isfinite(own).all()):
        raise ValueError("log_density is -inf on its diagonal, but the draw's own density cannot be zero.")
    together = at_once(own.shape[-1] ** 2) if chunk_size == "auto" else as_count(chunk_size, "chunk_size")
    options = (chosen, num_permutations, bound, together)
    keys = None if rng_key is None else jax.random.split(rng_key, log_density.shape[:-2])
    return _of_all_draws(keys, tables, options, sharding_of(log_density, beside=2))


@partial(jax.jit, static_argnames=("options", "sharding"))
def _of_all_draws(
    keys: Array | None,
    tables: tuple[Array, ...],
    options: tuple[Estimator, int, str, int],
    sharding: NamedSharding | None,
) -> Array:
    estimator, K, bound, together = options

    def of_draws(keys: Array | None, tables: tuple[Array, ...]) -> Array:
        batch = tables[0].shape[:-2]
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[len(batch) :]), (keys, tables))
        values = mapped(lambda draw: _of_one_draw(draw[0], draw[1], estimator, K, bound), flat, together)
        return values.reshape(batch + values.shape[1:])

    values = each_at_its_own(of_draws, sharding, 2)(keys, tables)
    return jnp.moveaxis(values, -1, 0) if bound == "both" else values


def _of_one_draw(key: Array | None, tables: tuple[Array, ...], estimator: Estimator, K: int, bound: str) -> Array:
    # relative to each unit's own density, so that float32 carries differences and not the densities themselves
    own = jnp.diagonal(tables[0])
    return estimator.of_table(key, tuple(table - own[None] for table in tables), K, bound)
