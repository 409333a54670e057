"""Small posteriors with exact answers, for tests of ours and of yours.

Each function returns a `Posterior`: a NumPyro model, its arguments, its symmetry and, where it is known, the exact log
evidence. No evidence bound may exceed it, and a draw moved by any element must keep its log joint density. Knows models
and the symmetry room; no guides, no matching.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints

from numpyro_symmetry.symmetry import Symmetry

__all__ = [
    "Posterior",
    "dirichlet_mixture",
    "enumerable_mixture",
    "exchangeable_gaussian",
    "hidden_markov",
    "tiny_network",
    "two_weight_network",
]

_MAX_UNITS = 7
_MAX_ALLOCATIONS = 1_000_000


class Posterior(NamedTuple):
    """A model together with what is known of its posterior.

    Attributes
    ----------
    model
        NumPyro model.
    model_args
        Its positional arguments.
    symmetry
        Its full permutation symmetry, bound to sizes.
    log_evidence
        Exact log evidence in nats, or ``None`` where it has no closed form.
    description
        One line for reports.
    """

    model: Callable[..., Any]
    model_args: tuple[Any, ...]
    symmetry: Symmetry
    log_evidence: float | None
    description: str


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
    placements = np.array(list(itertools.permutations(range(num_units))))

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
        f"{num_units} exchangeable units in {dim} dimensions",
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


def tiny_network(
    hidden: Sequence[int] = (3,),
    num_data: int = 10,
    activation: str = "relu",
    noise_scale: float = 0.3,
    seed: int = 0,
) -> Posterior:
    r"""Bayesian regression network of one input and one output.

    .. math:: h_0 = x, \qquad h_l = \phi(h_{l-1} W_l + b_l), \qquad y \sim \mathcal N(h_{L-1} W_L + b_L, \text{noise}^2)

    with standard normal priors.

    Parameters
    ----------
    hidden
        Widths of the hidden layers.
    num_data
        Number N of data, a noisy sine.
    activation
        ``"relu"``, or ``"tanh"``: being odd, it makes the groups signed.
    noise_scale
        Standard deviation of the likelihood and of the data.
    seed
        Seed of the data.

    Returns
    -------
    Posterior
        Sites ``w1 (1, h)``, ``b1 (h,)``, ``w2``, ``b2``, …; the model takes ``x (N, 1)`` and ``y (N,)``. The log
        evidence is not known.

    Raises
    ------
    ValueError
        If the activation is unknown or there is no hidden layer.

    Examples
    --------
    >>> from numpyro_symmetry.testing import tiny_network
    >>> tiny_network(hidden=(3, 2), activation="tanh").symmetry
    Symmetry(±S3 on 'hidden1' × ±S2 on 'hidden2'; log|G| = 6.0 nats)
      w1: (·, hidden1)
      b1: (hidden1)
      w2: (hidden1, hidden2)
      b2: (hidden2)
      w3: (hidden2, ·)
    """
    activations = {"relu": jax.nn.relu, "tanh": jnp.tanh}
    if activation not in activations:
        raise ValueError(f"activation must be one of {sorted(activations)}; got {activation!r}.")
    widths = (1, *hidden, 1)
    layers = [(f"w{i}", f"b{i}") for i in range(1, len(widths))]
    rng = np.random.default_rng(seed)
    x = np.linspace(-2.0, 2.0, num_data)[:, None]
    y = np.sin(2.0 * x[:, 0]) + noise_scale * rng.normal(size=num_data)

    def model(x: np.ndarray, y: np.ndarray | None = None) -> None:
        value = jnp.asarray(x)
        for position, (kernel, bias) in enumerate(layers):
            n_in, n_out = widths[position : position + 2]
            w = numpyro.sample(kernel, dist.Normal(0.0, 1.0).expand([n_in, n_out]).to_event(2))
            b = numpyro.sample(bias, dist.Normal(0.0, 1.0).expand([n_out]).to_event(1))
            value = (activations[activation] if position else lambda v: v)(value) @ w + b
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("y", dist.Normal(value[:, 0], noise_scale), obs=y)

    shapes = {}
    for (kernel, bias), n_in, n_out in zip(layers, widths[:-1], widths[1:], strict=True):
        shapes |= {kernel: np.zeros((n_in, n_out)), bias: np.zeros(n_out)}
    symmetry = Symmetry.mlp(layers, kind="signed" if activation == "tanh" else "permutation")
    return Posterior(
        model,
        (x, y),
        symmetry.bind(shapes),
        None,
        f"{activation} network 1-{'-'.join(map(str, hidden))}-1, {num_data} data",
    )


def hidden_markov(num_states: int = 3, num_steps: int = 20, seed: int = 0) -> Posterior:
    r"""Hidden Markov model with Gaussian emissions, its states summed out by the forward algorithm.

    .. math:: \pi \sim \operatorname{Dir}(1), \quad A_k \sim \operatorname{Dir}(1 + 4 e_k), \quad
              z_1 \sim \pi, \quad z_t \sim A_{z_{t-1}}, \quad x_t \sim \mathcal N(\mu_{z_t}, \sigma_{z_t}^2)

    Parameters
    ----------
    num_states
        Number K of states.
    num_steps
        Length T of the sequence.
    seed
        Seed of the data.

    Returns
    -------
    Posterior
        Sites ``initial (K,)``, ``transition (K, K)``, ``loc (K,)``, ``scale (K,)``; the model takes the data ``(T,)``.
        The log evidence is not known.

    Examples
    --------
    >>> from numpyro_symmetry.testing import hidden_markov
    >>> hidden_markov().symmetry
    Symmetry(S3 on 'state'; log|G| = 1.8 nats)
      initial: (state)
      transition: (state, state)
      loc: (state)
      scale: (state)
    """
    rng = np.random.default_rng(seed)
    states = (np.arange(num_steps) // 4) % num_states
    data = 2.0 * (states - (num_states - 1) / 2) + 0.5 * rng.normal(size=num_steps)

    def model(data: np.ndarray) -> None:
        ones = jnp.ones(num_states)
        initial = numpyro.sample("initial", dist.Dirichlet(ones))
        transition = numpyro.sample("transition", dist.Dirichlet(1.0 + 4.0 * jnp.eye(num_states)).to_event(1))
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([num_states]).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(-0.5, 0.5).expand([num_states]).to_event(1))
        log_emission = dist.Normal(loc, scale).log_prob(jnp.asarray(data)[:, None])

        def step(log_forward: jax.Array, log_likelihood: jax.Array) -> tuple[jax.Array, None]:
            return logsumexp(log_forward[:, None] + jnp.log(transition), axis=0) + log_likelihood, None

        log_forward, _ = jax.lax.scan(step, jnp.log(initial) + log_emission[0], log_emission[1:])
        numpyro.factor("x", logsumexp(log_forward))

    symmetry = Symmetry.hmm(initial="initial", transition="transition", emissions=["loc", "scale"])
    shapes = {"initial": num_states, "transition": (num_states, num_states), "loc": num_states, "scale": num_states}
    return Posterior(
        model,
        (data,),
        symmetry.bind({site: np.zeros(shape) for site, shape in shapes.items()}),
        None,
        f"hidden Markov model of {num_states} states, {num_steps} steps",
    )


def dirichlet_mixture(num_components: int = 3, num_data: int = 30, seed: int = 0) -> Posterior:
    r"""Gaussian mixture of unknown weights, locations and scales, its allocations summed out.

    .. math:: w \sim \operatorname{Dir}(1), \quad \mu_k \sim \mathcal N(0, 5^2), \quad
              \sigma_k \sim \operatorname{LogNormal}(0, 0.5), \quad x_n \sim \sum_k w_k \mathcal N(\mu_k, \sigma_k^2)

    Parameters
    ----------
    num_components
        Number K of components.
    num_data
        Number N of data.
    seed
        Seed of the data.

    Returns
    -------
    Posterior
        Sites ``weights (K,)``, ``loc (K,)``, ``scale (K,)``; the model takes the data ``(N,)``. The log evidence is not
        known.

    Examples
    --------
    >>> from numpyro_symmetry.testing import dirichlet_mixture
    >>> dirichlet_mixture().symmetry
    Symmetry(S3 on 'component'; log|G| = 1.8 nats)
      weights: (component)
      loc: (component)
      scale: (component)
    """
    rng = np.random.default_rng(seed)
    locs = 4.0 * (np.arange(num_components) - (num_components - 1) / 2)
    data = locs[np.arange(num_data) % num_components] + rng.normal(size=num_data)

    def model(data: np.ndarray) -> None:
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(num_components)))
        loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([num_components]).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5).expand([num_components]).to_event(1))
        with numpyro.plate("data", num_data):
            mixture = dist.MixtureSameFamily(dist.Categorical(probs=weights), dist.Normal(loc, scale))
            numpyro.sample("x", mixture, obs=data)

    shape = np.zeros(num_components)
    return Posterior(
        model,
        (data,),
        Symmetry.mixture("weights", "loc", "scale").bind({"weights": shape, "loc": shape, "scale": shape}),
        None,
        f"mixture of {num_components} Gaussians of unknown weights, {num_data} data",
    )


# ---- exact evidences, in float64 by numpy ----------------------------------------------------------------------------


def _log_sum_exp(values: np.ndarray, log_weights: np.ndarray | float = 0.0) -> float:
    """``log Σ exp(values + log_weights)``."""
    shifted = np.asarray(values + log_weights, np.float64)
    return float(shifted.max() + np.log(np.sum(np.exp(shifted - shifted.max()))))


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
    return _log_sum_exp(total)


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
    return _log_sum_exp(log_likelihood, log_weight[:, None] + log_weight)
