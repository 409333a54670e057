r"""Estimators of the mutual information :math:`I(g;\theta)` between a draw and its relabelling, each of them a value.

An estimator reads either one table, ``log_table[i, j] = log q_i(u_j)`` of a guide that factorises over units, with the
draw's own density on the diagonal; or a part of a symmetry whose groups meet, or of a density that no table holds,
element by element. `ESTIMATORS` holds those with a name; any other `Estimator` can be passed wherever a name can.

Knows tables, and proposals and ratios of elements; no guides, sites or models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from numpyro_symmetry.chunks import at_once
from numpyro_symmetry.entropy.densities import Part
from numpyro_symmetry.entropy.nested import log_probability_of_identity, sample
from numpyro_symmetry.entropy.permanent import MAX_EXACT_WIDTH, log_permanent, log_sum
from numpyro_symmetry.entropy.sequential import log_proposal_of_identity, sample_proposal
from numpyro_symmetry.linalg import scalar_one_by_one
from numpyro_symmetry.symmetry import Element, Group, Symmetry
from numpyro_symmetry.symmetry.arguments import as_count, as_key, as_option, is_option

BOUNDS = ("lower", "upper", "both")
# eight units have 40 320 relabellings, and at each of them the whole density is read
MAX_ENUMERATED_ORDER = 50_000
# relabelled draws that are in memory together, at most
_ELEMENTS_AT_ONCE = 128


def _never(part: Symmetry, is_table: bool) -> str | None:
    return None


class Estimator(NamedTuple):
    r"""How the mutual information of one draw is estimated.

    Attributes
    ----------
    name
        The name by which it is chosen.
    of_table
        ``(rng_key, tables, K, bound)`` to the estimate from one table ``(n, n)``, or from a signed pair.
    of_part
        ``(rng_key, part, K, bound)`` to the estimate of a `Part` that no table holds.
    bounds
        Sides of I that can be asked for. A training estimator has ``"lower"``: its mean over draws is at most I.
    needs_key
        Whether it draws permutations.
    fewest_permutations
        The least K with which it is worth training.
    proposes
        Whether ``of_part`` asks the density for factors to propose elements by.
    sees_features
        Whether ``max_features`` limits what it reads of a part, so that it goes to ``of_part`` with tables too.
    is_additive
        Whether parts of a symmetry may be estimated apart.
    refusal
        ``(part, is_table) -> `` why a part of a symmetry cannot be estimated this way, ``None`` if it can.

    Examples
    --------
    >>> from numpyro_symmetry.entropy import ESTIMATORS
    >>> [each.name for each in ESTIMATORS if "upper" in each.bounds]
    ['exact', 'importance']
    """

    name: str
    of_table: Callable[..., Array]
    of_part: Callable[..., Array]
    bounds: tuple[str, ...] = ("lower",)
    needs_key: bool = False
    fewest_permutations: int = 1
    proposes: bool = False
    sees_features: bool = False
    is_additive: bool = True
    refusal: Callable[[Symmetry, bool], str | None] = _never

    def __repr__(self) -> str:
        """Its name."""
        return repr(self.name)


class Choice(NamedTuple):
    """The exact estimator where that is cheap, and another one elsewhere.

    Attributes
    ----------
    name
        The name by which it is chosen.
    otherwise
        The estimator where exactness is dear.
    """

    name: str
    otherwise: Estimator

    def __repr__(self) -> str:
        """Its name."""
        return repr(self.name)


C = TypeVar("C", bound=Choice)


def named(estimator: str | Estimator | C, *choices: C) -> Estimator | C:
    """The estimator, or the one of ``choices``, that a name stands for; an estimator or a choice as it is.

    Raises
    ------
    ValueError
        If nothing has that name.
    """
    if isinstance(estimator, Estimator) or any(estimator is choice for choice in choices):
        return estimator  # pyright: ignore[reportReturnType]
    known = {each.name: each for each in (*choices, *ESTIMATORS)}
    if not is_option(estimator, tuple(known)):
        first = f"{choices[0].name!r} or " if len(choices) == 1 else ""
        names = tuple(known)[1:] if first else tuple(known)
        raise ValueError(f"estimator must be {first}one of {names}; got {estimator!r}.")
    return known[estimator]


def check_options(estimator: Estimator, rng_key: Array | None, num_permutations: int, bound: str) -> None:
    """Refuse a bound that an estimator lacks or a missing key by ValueError, and no key or no count by TypeError."""
    as_option(bound, "bound", BOUNDS)
    if bound not in estimator.bounds:
        raise ValueError(f"estimator {estimator} is a lower bound; bound={bound!r} needs 'importance' (or 'exact').")
    if estimator.needs_key:
        if rng_key is None:
            raise ValueError(f"estimator {estimator} draws permutations: pass rng_key.")
        as_key(rng_key)
        as_count(num_permutations, "num_permutations", meaning="it counts the identity")


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


def _log_order(tables: tuple[Array, ...]) -> float:
    """``log n!``, plus ``n log 2`` for a signed pair."""
    return Group.of(tables[0].shape[-1], signed=len(tables) == 2).log_order()


def _summed(tables: tuple[Array, ...]) -> Array:
    """One table from a signed pair: a unit's sign is summed out exactly, only its label is hard."""
    return log_sum(jnp.stack(tables, -1)) if len(tables) == 2 else tables[0]


def _map_elements(part: Part, elements: Element) -> Array:
    # checkpointed, so that training keeps one block of moved copies in memory and not all of them
    most = min(_ELEMENTS_AT_ONCE, at_once(sum(value.size for value in part.draw.values())))
    # a smaller last block would be compiled as a second program, which takes as long
    count = len(jax.tree.leaves(elements)[0])
    together = next((size for size in range(most, most // 2, -1) if count % size == 0), most)
    return jax.lax.map(jax.checkpoint(part.log_ratio), elements, batch_size=together)


# ---- the sum over all elements ---------------------------------------------------------------------------------------


def _exact_table(key: Array | None, tables: tuple[Array, ...], K: int, bound: str) -> Array:
    exact = _log_order(tables) - log_permanent(_summed(tables))
    return jnp.stack([exact, exact]) if bound == "both" else exact


def _exact_part(key: Array | None, part: Part, K: int, bound: str) -> Array:
    log_order, elements = part.symmetry.log_order(), part.symmetry.elements(max_order=MAX_ENUMERATED_ORDER)
    exact = bound_from_ratios(_map_elements(part, elements), -log_order, log_order)
    return jnp.stack([exact, exact]) if bound == "both" else exact


# ---- uniform elements and the identity; log|G| and the uniform proposal's log(1/|G|) cancel --------------------------


def _infonce_table(key: Array, tables: tuple[Array, ...], K: int, bound: str) -> Array:
    n = tables[0].shape[-1]
    key_permutation, key_sign = jax.random.split(key)
    everyone = jnp.broadcast_to(jnp.arange(n), (K - 1, n))
    permutations = jax.random.permutation(key_permutation, everyone, axis=-1, independent=True)
    moved = tables[0][jnp.arange(n), permutations]
    if len(tables) == 2:
        flip = jax.random.bernoulli(key_sign, shape=moved.shape)
        moved = jnp.where(flip, tables[1][jnp.arange(n), permutations], moved)
    return bound_from_ratios(jnp.append(moved.sum(-1), 0.0), 0.0, 0.0)


def _infonce_part(key: Array, part: Part, K: int, bound: str) -> Array:
    ratios = _map_elements(part, part.symmetry.sample(key, (K - 1,)))
    return bound_from_ratios(jnp.append(ratios, 0.0), 0.0, 0.0)


# ---- the sequential proposal's probability of the identity -----------------------------------------------------------


def _sequential_table(key: Array | None, tables: tuple[Array, ...], K: int, bound: str) -> Array:
    summed = _summed(tables)
    return _log_order(tables) + log_proposal_of_identity(summed) - jnp.trace(summed)


def _sequential_part(key: Array | None, part: Part, K: int, bound: str) -> Array:
    chain = partial(log_probability_of_identity, part.symmetry, max_features=part.max_features)
    return part.symmetry.log_order() + scalar_one_by_one(chain)(part.density.proposal(), part.draw)


# ---- elements that the sequential proposal draws, weighed by the density ---------------------------------------------


def _importance_table(key: Array, tables: tuple[Array, ...], K: int, bound: str) -> Array:
    summed = _summed(tables)
    permutations, log_proposals = jax.lax.stop_gradient(sample_proposal(key, summed, K - (bound == "lower")))
    log_ratios = summed[jnp.arange(len(summed)), permutations].sum(-1)
    of_identity = jnp.trace(summed), log_proposal_of_identity(summed)
    return sandwich(log_ratios, log_proposals, of_identity, _log_order(tables), K, bound)


def _importance_part(key: Array, part: Part, K: int, bound: str) -> Array:
    symmetry, factors, draw = part.symmetry, part.density.proposal(), part.draw
    elements, log_proposals, log_identity = sample(key, symmetry, factors, draw, K - (bound == "lower"))
    elements, log_proposals = jax.lax.stop_gradient((elements, log_proposals))
    of_identity = jnp.zeros(()), log_identity
    return sandwich(_map_elements(part, elements), log_proposals, of_identity, symmetry.log_order(), K, bound)


def _why_not_exact(part: Symmetry, is_table: bool) -> str | None:
    if is_table:
        size = max(part.sizes.values())
        too_wide = f"an exact permanent is limited to {MAX_EXACT_WIDTH} units and there are {size}"
        return too_wide if size > MAX_EXACT_WIDTH else None
    too_many = f"there are e^{part.log_order():.1f} elements to enumerate; the limit is {MAX_ENUMERATED_ORDER}"
    return too_many if part.log_order() > math.log(MAX_ENUMERATED_ORDER) else None


EXACT = Estimator("exact", _exact_table, _exact_part, BOUNDS, refusal=_why_not_exact)
INFONCE = Estimator("infonce", _infonce_table, _infonce_part, needs_key=True, fewest_permutations=2, is_additive=False)
SEQUENTIAL = Estimator("sequential", _sequential_table, _sequential_part, proposes=True, sees_features=True)
IMPORTANCE = Estimator(
    "importance", _importance_table, _importance_part, BOUNDS, needs_key=True, fewest_permutations=2, proposes=True
)
ESTIMATORS = (EXACT, INFONCE, SEQUENTIAL, IMPORTANCE)
