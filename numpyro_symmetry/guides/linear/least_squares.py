r"""The Gaussian conditional of a linear model: exact where its likelihoods are Gaussian, else of a few weighted steps.

With :math:`\eta = \eta_0 + Az` and rows of weights w, a step solves the weighted least-squares problem of the working
residuals

.. math:: \rho = \sqrt w\,(\eta - \eta_0) + \frac{1}{\sqrt w}\,\frac{\partial}{\partial\eta}\log p(y; \eta),

so a Gaussian likelihood takes one. Every step commutes with relabellings of z, and so does what it starts from: mean
and precision are equivariant. Knows linear models; neither programs nor guides.

References
----------
Ober and Aitchison (2021), arXiv:2005.08140, for conditionals of pseudo-observations; McCullagh and Nelder (1989),
section 2.5, for the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.guides.linear.affine import LinearModel
from numpyro_symmetry.guides.linear.likelihoods import Observation
from numpyro_symmetry.guides.linear.rows import Blocks, Together, WidestLast, factorise
from numpyro_symmetry.linalg import product


class WeightFactors(NamedTuple):
    """Numbers by which the weights of an observed site are multiplied.

    Attributes
    ----------
    step, precision
        In the steps to the mean, and in the precision about it.
    """

    step: Array | float
    precision: Array | float


def gaussian_conditional(
    linear: LinearModel, factors: Mapping[str, WeightFactors], num_steps: int
) -> tuple[Blocks, Together | WidestLast]:
    """Mean of z and its precision, given the rows of a linear model.

    Parameters
    ----------
    linear
        The model.
    factors
        Observed site -> its factors, of sites that are not exact.
    num_steps
        Steps to the mean; one is taken where every site is exact.

    Returns
    -------
    tuple
        Means by site, ``(P,)`` or ``(P, C)``, and the factorised precision.
    """
    sites = linear.observations
    start = {site: seen.start for site, seen in sites.items()}
    steps = {site: factors[site].step if site in factors else 1.0 for site in sites}
    final = {site: factors[site].precision if site in factors else 1.0 for site in sites}
    renewed = any(seen.kind.renewed for seen in sites.values())

    def weighted(factors: Mapping[str, Array | float], predictors: Blocks) -> tuple[Array, Together | WidestLast]:
        root = _root(linear, factors, predictors, start)
        return root, factorise({site: root[:, None] * slope for site, slope in linear.slopes.items()})

    def step(predictors: Blocks, root: Array, model: Together | WidestLast) -> tuple[Blocks, Blocks]:
        loc = model.mean(_working_residual(linear, predictors, root))
        moved = linear.split(jnp.asarray(sum(product(slope, loc[site]) for site, slope in linear.slopes.items())))
        return loc, {site: seen.predictor + moved[site] for site, seen in sites.items()}

    root, model = weighted(steps, start)
    loc, predictors = step(start, root, model)
    if not factors:
        return loc, model
    for _ in range(num_steps - 1):
        if renewed:
            root, model = weighted(steps, predictors)
        loc, predictors = step(predictors, root, model)
    return loc, weighted(final, predictors)[1]


def _root(linear: LinearModel, factors: Mapping[str, Array | float], predictors: Blocks, start: Blocks) -> Array:
    """Root of the weight of every row, ``(N,)``."""

    def root_of(site: str, seen: Observation) -> Array:
        weight = factors[site] * seen.weight(predictors[site] if seen.kind.renewed else start[site])
        shape = seen.predictor.shape
        weight = jnp.broadcast_to(weight, (*shape[:-1], 1) if linear.num_outputs else shape)
        # a root has no slope at zero, where an entry does not count
        return jnp.where(weight > 0, jnp.sqrt(jnp.where(weight > 0, weight, 1.0)), 0.0)

    return jnp.concatenate([jnp.ravel(root_of(site, seen)) for site, seen in linear.observations.items()])


def _working_residual(linear: LinearModel, predictors: Blocks, root: Array) -> Array:
    root = root[:, None] if linear.num_outputs else root
    moved = linear.rows({site: predictors[site] - seen.predictor for site, seen in linear.observations.items()})
    slope = linear.rows({site: seen.gradient(predictors[site]) for site, seen in linear.observations.items()})
    return root * moved + jnp.where(root > 0, slope / jnp.where(root > 0, root, 1.0), 0.0)
