"""Posteriors whose log evidence is known: given, enumerated or integrated on a grid.

Knows models and float64 sums; no guides.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints
from scipy import special

from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.permutation_kinds import PERMUTATION
from numpyro_symmetry.symmetry.shown import counted
from numpyro_symmetry.testing.posterior import Posterior

_MAX_UNITS = 7
_MAX_ALLOCATIONS = 1_000_000


def exchangeable_gaussian(
    num_units: int = 4,
    dim: int = 2,
    separation: float = 1.0,
    scale: float = 0.3,
    seed: int = 0,
    log_evidence: float = 0.0,
) -> Posterior:
    r"""Density of n interchangeable units, a mixture over all n! ways to place them at fixed centres.

    .. math:: p(u) = Z \, \frac{1}{n!} \sum_{\sigma \in S_n} \prod_{i=1}^n
              \mathcal N(u_i;\, c_{\sigma(i)},\, \text{scale}^2 I)

    The base guide that is Gaussian around one placement, ``loc = centres`` and the given scale, becomes exact when
    symmetrized; alone it misses up to :math:`\log n!` nats.

    Parameters
    ----------
    num_units
        Number n of units, at most 7: the density sums n! terms.
    dim
        Dimension d of a unit.
    separation
        Standard deviation of the centres, which are drawn once from a Gaussian.
    scale
        Standard deviation around a centre.
    seed
        Seed of the centres.
    log_evidence
        The constant :math:`\log Z` to give the density.

    Returns
    -------
    Posterior
        Site ``units`` of shape ``(n, d)``; the model takes the centres ``(n, d)``.

    Raises
    ------
    ValueError
        If ``num_units`` is not between 1 and 7.

    Examples
    --------
    >>> from numpyro_symmetry.testing import exchangeable_gaussian
    >>> posterior = exchangeable_gaussian(num_units=3)
    >>> posterior.log_evidence
    0.0
    >>> posterior.symmetry
    Symmetry(S3 on 'unit'; log|G| = 1.8 nats)
      units: (unit, ·)
    """
    if not 1 <= num_units <= _MAX_UNITS:
        raise ValueError(f"num_units must lie between 1 and {_MAX_UNITS}, as n! terms are summed; got {num_units}.")
    centres = separation * np.random.default_rng(seed).normal(size=(num_units, dim))
    placements = PERMUTATION.elements(num_units)

    def model(centres: np.ndarray) -> None:
        support = constraints.independent(constraints.real, 2)
        units = numpyro.sample("units", dist.ImproperUniform(support, (), (num_units, dim)))
        table = dist.Normal(jnp.asarray(centres), scale).to_event(1).log_prob(jnp.asarray(units)[:, None])
        log_terms = table[np.arange(num_units), placements].sum(-1)
        numpyro.factor("density", logsumexp(log_terms) - math.lgamma(num_units + 1) + log_evidence)

    return Posterior(
        model,
        (centres,),
        Symmetry({"units": ("unit", None)}).bind({"units": centres}),
        float(log_evidence),
        f"{counted(num_units, 'exchangeable unit')} in {counted(dim, 'dimension')}",
    )


def enumerable_mixture(
    num_components: int = 2, num_data: int = 6, separation: float = 4.0, prior_scale: float = 3.0, seed: int = 0
) -> Posterior:
    r"""Gaussian mixture of equal weights and unit scales, its evidence summed over all K^N allocations.

    .. math:: \mu_k \sim \mathcal N(0, \tau^2), \qquad
              x_n \sim \tfrac1K \sum_k \mathcal N(\mu_k, 1), \qquad
              p(x) = K^{-N} \sum_{z} \prod_k \int \mathcal N(\mu; 0, \tau^2) \prod_{n: z_n = k} \mathcal N(x_n; \mu, 1)
              \, d\mu

    Parameters
    ----------
    num_components
        Number K of components.
    num_data
        Number N of data; K^N is at most a million.
    separation
        Distance between the neighbouring locations from which the data are drawn.
    prior_scale
        Standard deviation :math:`\tau` of the locations.
    seed
        Seed of the data.

    Returns
    -------
    Posterior
        Site ``loc`` of shape ``(K,)``; the model takes the data ``(N,)`` and sums the allocations out.

    Raises
    ------
    ValueError
        If there are more than a million allocations.

    Examples
    --------
    >>> from numpyro_symmetry.testing import enumerable_mixture
    >>> round(enumerable_mixture(num_components=3).log_evidence or 0.0, 2)
    -16.55
    """
    if num_components**num_data > _MAX_ALLOCATIONS:
        raise ValueError(
            f"{num_components}^{num_data} allocations are too many to enumerate; at most {_MAX_ALLOCATIONS}. "
            "Ask for fewer components or fewer data."
        )
    rng = np.random.default_rng(seed)
    locs = separation * (np.arange(num_components) - (num_components - 1) / 2)
    data = locs[np.arange(num_data) % num_components] + rng.normal(size=num_data)

    def model(data: np.ndarray) -> None:
        loc = numpyro.sample("loc", dist.Normal(0.0, prior_scale).expand([num_components]).to_event(1))
        weights = dist.Categorical(probs=jnp.full(num_components, 1.0 / num_components))
        with numpyro.plate("data", num_data):
            numpyro.sample("x", dist.MixtureSameFamily(weights, dist.Normal(loc, 1.0)), obs=data)

    return Posterior(
        model,
        (data,),
        Symmetry({"loc": ("component",)}).bind({"loc": locs}),
        _mixture_log_evidence(data, num_components, prior_scale),
        f"mixture of {num_components} Gaussians, {num_data} data",
    )


def two_weight_network(
    slope: float = 0.1, noise_variance: float = 10.0, num_data: int = 100, prior_variance: float = 1.0
) -> Posterior:
    r"""Regression with two weights that may be exchanged, small enough to integrate on a grid.

    .. math:: f(x) = \operatorname{relu}(w_1 x) + \operatorname{relu}(w_2 x), \qquad
              y_n = \text{slope} \cdot |x_n|, \qquad x_n \sim U[-10, 10]

    One weight serves each sign of x, and either may be which: two mirror-image modes near ``(slope, -slope)``.

    Parameters
    ----------
    slope
        Slope of the data, which carry no noise; not negative, as the output is not.
    noise_variance
        Variance of the Gaussian likelihood.
    num_data
        Number N of data.
    prior_variance
        Variance of the zero-mean Gaussian prior.

    Returns
    -------
    Posterior
        Site ``w`` of shape ``(2,)``; the model takes ``x`` and ``y``, both ``(N,)``. The log evidence is a
        composite Gauss-Legendre quadrature in float64, right to 1e-7 or better where x has both signs.

    Raises
    ------
    ValueError
        If the slope is negative.

    Examples
    --------
    >>> from numpyro_symmetry.testing import two_weight_network
    >>> round(two_weight_network().log_evidence or 0.0, 1)
    -211.5
    """
    if slope < 0:
        raise ValueError(f"slope must not be negative, because relu(w1 x) + relu(w2 x) never is; got {slope}.")
    x = np.random.default_rng(0).uniform(-10.0, 10.0, num_data)
    y = slope * np.abs(x)

    def model(x: np.ndarray, y: np.ndarray) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, math.sqrt(prior_variance)).expand([2]).to_event(1))
        output = jax.nn.relu(jnp.asarray(w)[:, None] * jnp.asarray(x)).sum(0)
        with numpyro.plate("data", num_data):
            numpyro.sample("y", dist.Normal(output, math.sqrt(noise_variance)), obs=y)

    return Posterior(
        model,
        (x, y),
        Symmetry({"w": ("unit",)}).bind({"w": np.zeros(2)}),
        _two_weight_log_evidence(x, y, noise_variance, prior_variance),
        "network of two exchangeable weights",
    )


# ---- exact evidences, in float64 by numpy ----------------------------------------------------------------------------


def _mixture_log_evidence(data: np.ndarray, num_components: int, prior_scale: float) -> float:
    num_data = len(data)
    digits = num_components ** np.arange(num_data)
    allocations = np.arange(num_components**num_data)[:, None] // digits % num_components
    total = np.full(len(allocations), -num_data * math.log(num_components))
    for k in range(num_components):
        own = (allocations == k).astype(np.float64)
        count, first, second = own.sum(1), own @ data, own @ data**2
        shrunk = prior_scale**2 / (1.0 + count * prior_scale**2)
        total -= 0.5 * (count * math.log(2.0 * math.pi) + np.log1p(count * prior_scale**2) + second - shrunk * first**2)
    return float(special.logsumexp(total))


def _two_weight_log_evidence(x: np.ndarray, y: np.ndarray, noise_variance: float, prior_variance: float) -> float:
    # panels as wide as the prior asks for, and narrow ones around zero and the modes; none straddles the kink at zero
    nodes, weights = np.polynomial.legendre.leggauss(12)
    narrow = math.sqrt(noise_variance / max(x[x > 0] @ x[x > 0], x[x < 0] @ x[x < 0]))
    coarse = 10.0 * math.sqrt(prior_variance)
    slope = (np.abs(x) @ y) / (x @ x)
    near = (np.array([0.0, slope, -slope])[:, None] + narrow * np.arange(-8.0, 9.0)).ravel()
    edges = np.unique(np.concatenate([np.linspace(-coarse, coarse, 41), near[np.abs(near) < coarse]]))
    half = 0.5 * np.diff(edges)
    w = (0.5 * (edges[1:] + edges[:-1])[:, None] + half[:, None] * nodes).ravel()
    log_weight = np.log((half[:, None] * weights).ravel()) - 0.5 * (
        w**2 / prior_variance + math.log(2 * math.pi * prior_variance)
    )
    # the output is |x| times the sum of relu(w) where x > 0 and of relu(-w) where x < 0, so the likelihood is quadratic
    squared_error = np.zeros((len(w), len(w)))
    for side in (1.0, -1.0):
        own = side * x > 0
        size, rise = np.abs(x[own]), np.maximum(side * w, 0.0)
        rise = rise[:, None] + rise
        squared_error += rise**2 * (size @ size) - 2 * rise * (size @ y[own]) + y[own] @ y[own]
    squared_error += y[x == 0] @ y[x == 0]
    log_likelihood = -0.5 * (squared_error / noise_variance + len(x) * math.log(2 * math.pi * noise_variance))
    return float(special.logsumexp(log_likelihood + log_weight[:, None] + log_weight))
