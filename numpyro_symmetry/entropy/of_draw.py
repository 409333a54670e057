r"""Mutual information :math:`I(g;\theta)` of one draw under a whole symmetry, several groups and sites at once.

The density says which parts are estimated apart and which of them are one table; the estimator says how. Knows no
guide.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.entropy.densities import Density, Part
from numpyro_symmetry.entropy.estimators import (
    EXACT,
    IMPORTANCE,
    SEQUENTIAL,
    Choice,
    Estimator,
    check_options,
    named,
)
from numpyro_symmetry.entropy.of_table import mutual_information
from numpyro_symmetry.symmetry import Symmetry

# what to train with, and what to report
AUTO, TIGHT = Choice("auto", SEQUENTIAL), Choice("tight", IMPORTANCE)
# the most elements and the widest table that are summed exactly: beyond, the sequential bound is faster, and within a
# percent
_AUTO_ENUMERATED_ORDER = 120
_AUTO_TABLE_WIDTH = 10

AnyEstimator = str | Estimator | Choice


def information(
    density: Density,
    symmetry: Symmetry,
    draw: dict[str, Array],
    *,
    estimator: AnyEstimator,
    rng_key: Array | None = None,
    num_permutations: int = 8,
    bound: str = "lower",
    max_features: int | None = None,
) -> Array:
    r"""One draw's estimate of the mutual information, nats; its mean over draws obeys ``bound``.

    Parameters
    ----------
    density
        The density that the draw is of: `Factorised`, or `General`.
    symmetry
        Bound symmetry of the coordinates.
    draw
        Coordinates, by site.
    estimator
        ``"exact"``, ``"infonce"``, ``"sequential"``, ``"importance"`` (see `mutual_information`); ``"auto"``: exact for
        small groups, sequential otherwise; ``"tight"``: exact for small groups, importance otherwise; or an
        `Estimator`.
    rng_key
        JAX random key, for the estimators that draw permutations.
    num_permutations
        K, which counts the identity.
    bound
        ``"lower"``, ``"upper"`` or ``"both"`` (then the result is ``(2,)``, from the same permutations).
    max_features
        For the sequential bound, the number of features a site lends to the proposal; ``None`` for all.

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
    parts = _estimated(estimator, symmetry, type(density))
    keys = [None] * len(parts) if rng_key is None else list(jax.random.split(rng_key, len(parts)))
    total = jnp.zeros((2,) if bound == "both" else ())
    for key, (part, chosen) in zip(keys, parts, strict=True):
        check_options(chosen, key, num_permutations, bound)
        if density.is_table(part) and not chosen.sees_features:
            (name,) = part.groups
            tables = density.proposal().tables(part, draw, name)
            total += mutual_information(
                tables[0],
                estimator=chosen,
                rng_key=key,
                num_permutations=num_permutations,
                bound=bound,
                log_density_flipped=tables[1] if len(tables) == 2 else None,
            )
        else:
            total += chosen.of_part(key, Part(part, density, draw, max_features), num_permutations, bound)
    return total


def needs_key(estimator: AnyEstimator, symmetry: Symmetry, density: type[Density]) -> bool:
    """Whether random numbers are needed, for permutations or for the factors that propose them."""
    return any(
        chosen.needs_key or (chosen.proposes and density.draws_proposal)
        for _, chosen in _estimated(estimator, symmetry, density)
    )


def sequential_parts(estimator: AnyEstimator, symmetry: Symmetry, density: type[Density]) -> list[Symmetry]:
    """The parts of a symmetry that ``max_features`` concerns."""
    return [part for part, chosen in _estimated(estimator, symmetry, density) if chosen.sees_features]


def refusal(estimator: AnyEstimator, symmetry: Symmetry, density: type[Density]) -> str | None:
    """Why an estimator cannot be computed for this symmetry and density; ``None`` if it can."""
    parts = _estimated(estimator, symmetry, density)
    whys = (chosen.refusal(part, density.is_table(part)) for part, chosen in parts)
    return next((why for why in whys if why is not None), None)


def _estimated(estimator: AnyEstimator, symmetry: Symmetry, density: type[Density]) -> list[tuple[Symmetry, Estimator]]:
    """The parts of a symmetry that are estimated apart, each with its estimator."""
    estimator = named(estimator, AUTO, TIGHT)
    if not symmetry.groups:
        return []
    is_additive = isinstance(estimator, Choice) or estimator.is_additive
    parts = density.parts(symmetry) if is_additive else [symmetry]
    return [(part, _chosen(estimator, part, density)) for part in parts]


def _chosen(estimator: Estimator | Choice, part: Symmetry, density: type[Density]) -> Estimator:
    """The estimator itself, or the one that a choice takes for a part: exact where that is cheap."""
    if isinstance(estimator, Estimator):
        return estimator
    is_narrow = density.is_table(part) and max(part.sizes.values()) <= _AUTO_TABLE_WIDTH
    is_small = part.log_order() <= math.log(_AUTO_ENUMERATED_ORDER) + 1e-9
    return EXACT if is_narrow or is_small else estimator.otherwise
