r"""Mutual information :math:`I(g;\theta)` of one draw under a whole symmetry, several groups and sites at once.

Two cases. If the Gaussian factors *are* the guide, groups that share no site are independent and their terms add; each
is a table, or a chain. If they only resemble it, they propose permutations and the guide's own density weighs them.

Knows no guide: densities arrive as arrays or as a function of an element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.entropy.estimators import (
    bound_from_ratios,
    check_options,
    mutual_information,
    refuse_unknown_estimator,
    sandwich,
)
from numpyro_symmetry.entropy.factorised import (
    connected_components,
    has_exact_table,
    log_chain_of_identity,
    log_ratio,
    sample_chain,
)
from numpyro_symmetry.entropy.permanent import MAX_EXACT_WIDTH
from numpyro_symmetry.entropy.tables import Factors
from numpyro_symmetry.linalg import scalar_one_by_one
from numpyro_symmetry.symmetry import Element, Symmetry

MAX_ENUMERATED_ORDER = 50_000
# to train on, and to report
_OTHERWISE = {"auto": "sequential", "tight": "importance"}
# what is taken exactly: beyond these the sequential bound is faster and within a percent
_AUTO_ENUMERATED_ORDER = 120
_AUTO_TABLE_WIDTH = 10
_ELEMENTS_AT_ONCE = 128


def information_of_draw(
    symmetry: Symmetry,
    factors: Factors | None,
    coordinates: dict[str, Array],
    *,
    estimator: str,
    rng_key: Array | None = None,
    num_permutations: int = 8,
    bound: str = "lower",
    max_features: int | None = None,
    log_ratio_of: Callable[[Element], Array] | None = None,
) -> Array:
    r"""One draw's estimate of the mutual information, nats; its mean over draws obeys ``bound``.

    Parameters
    ----------
    symmetry
        Bound symmetry of the coordinates.
    factors
        Gaussian factors: the guide itself, or a surrogate if ``log_ratio_of`` is given; ``None`` if it is given and
        nothing has to be proposed (enumeration, ``"infonce"``).
    coordinates
        The draw, by site.
    estimator
        ``"exact"``, ``"infonce"``, ``"sequential"``, ``"importance"`` (see `mutual_information`); ``"auto"``: exact for
        small groups, sequential otherwise; ``"tight"``: exact for small groups, importance otherwise.
    rng_key
        JAX random key, for the estimators that draw permutations.
    num_permutations
        K, which counts the identity.
    bound
        ``"lower"``, ``"upper"`` or ``"both"`` (then the result is ``(2,)``, from the same permutations).
    max_features
        For the sequential bound, the number of features a site lends to the proposal; ``None`` for all.
    log_ratio_of
        :math:`g \mapsto \log q(g\theta) - \log q(\theta)` of a guide that the factors only resemble.

    Returns
    -------
    Array
        Scalar.

    Raises
    ------
    ValueError
        If an option is unknown, or the estimator needs a key and there is none.
    TypeError
        If a key is no key or a count no whole number.
    """
    if not symmetry.groups:
        refuse_unknown_estimator(estimator, tuple(_OTHERWISE))
        return jnp.zeros((2,) if bound == "both" else ())
    exact_table = log_ratio_of is None
    components = _treated_apart(symmetry, exact_table) if estimator != "infonce" else [symmetry]
    keys = [None] * len(components) if rng_key is None else list(jax.random.split(rng_key, len(components)))
    total = jnp.zeros(())
    for key, component in zip(keys, components, strict=True):
        chosen = resolve_estimator(estimator, component, exact_table=exact_table)
        check_options(chosen, key, num_permutations, bound)
        if chosen == "sequential":
            assert factors is not None
            chain = partial(log_chain_of_identity, component, max_features=max_features)
            total += component.log_order() + scalar_one_by_one(chain)(factors, coordinates)
        elif log_ratio_of is None and has_exact_table(component):
            assert factors is not None
            table = factors.tables(component, coordinates, next(iter(component.groups)))
            total += mutual_information(
                table[0],
                estimator=chosen,
                rng_key=key,
                num_permutations=num_permutations,
                bound=bound,
                log_density_flipped=table[1] if len(table) == 2 else None,
            )
        else:
            ratio = log_ratio_of
            if ratio is None:
                assert factors is not None
                ratio = partial(log_ratio, component, factors, coordinates)
            total += _weighed(key, component, factors, coordinates, ratio, chosen, num_permutations, bound)
    return total


def sequential_components(symmetry: Symmetry, estimator: str, *, exact_table: bool) -> list[Symmetry]:
    """The parts of a symmetry whose information is bounded sequentially: those that ``max_features`` concerns."""
    components = _treated_apart(symmetry, exact_table) if symmetry.groups else []
    return [c for c in components if resolve_estimator(estimator, c, exact_table=exact_table) == "sequential"]


def _treated_apart(symmetry: Symmetry, exact_table: bool) -> list[Symmetry]:
    """Parts whose terms add: only where the factors *are* the guide."""
    return connected_components(symmetry) if exact_table else [symmetry]


def resolve_estimator(estimator: str, component: Symmetry, *, exact_table: bool) -> str:
    """What ``"auto"`` and ``"tight"`` mean for a component: exact where that is cheap, else a bound."""
    refuse_unknown_estimator(estimator, tuple(_OTHERWISE))
    if estimator not in _OTHERWISE:
        return estimator
    narrow = exact_table and has_exact_table(component) and max(component.sizes.values()) <= _AUTO_TABLE_WIDTH
    small = component.log_order() <= math.log(_AUTO_ENUMERATED_ORDER) + 1e-9
    return "exact" if narrow or small else _OTHERWISE[estimator]


def why_not_exact(symmetry: Symmetry, *, exact_table: bool) -> str | None:
    """Why ``"exact"`` cannot be had, or ``None``."""
    for component in _treated_apart(symmetry, exact_table):
        if exact_table and has_exact_table(component):
            if (size := max(component.sizes.values())) > MAX_EXACT_WIDTH:
                return f"an exact permanent is limited to {MAX_EXACT_WIDTH} units and there are {size}"
        elif component.log_order() > math.log(MAX_ENUMERATED_ORDER):
            return f"there are e^{component.log_order():.1f} elements to enumerate; the limit is {MAX_ENUMERATED_ORDER}"
    return None


def _weighed(
    key: Array | None,
    symmetry: Symmetry,
    factors: Factors | None,
    coordinates: dict[str, Array],
    ratio: Callable[[Element], Array],
    estimator: str,
    K: int,
    bound: str,
) -> Array:
    """Weigh elements one by one by the density itself: all of them, uniform ones, or ones the chain proposes."""
    log_order = symmetry.log_order()
    if estimator == "exact":
        elements = symmetry.elements(max_order=MAX_ENUMERATED_ORDER)
        exact = bound_from_ratios(_map_elements(ratio, elements), -log_order, log_order)
        return jnp.stack([exact, exact]) if bound == "both" else exact
    assert key is not None
    if estimator == "infonce":
        ratios = _map_elements(ratio, symmetry.sample(key, (K - 1,)))
        return bound_from_ratios(jnp.append(ratios, 0.0), 0.0, 0.0)
    assert factors is not None
    draws = K - (bound == "lower")
    elements, log_proposals = jax.lax.stop_gradient(sample_chain(key, symmetry, factors, coordinates, draws))
    of_identity = jnp.zeros(()), log_chain_of_identity(symmetry, factors, coordinates)
    return sandwich(_map_elements(ratio, elements), log_proposals, of_identity, log_order, K, bound)


def _map_elements(ratio: Callable[[Element], Array], elements: Element) -> Array:
    # checkpointed, so that training keeps one block of moved copies in memory and not all of them
    return jax.lax.map(jax.checkpoint(ratio), elements, batch_size=_ELEMENTS_AT_ONCE)
