"""Posteriors whose evidence is known and that can be drawn from exactly: by conjugacy, enumeration or a fine grid.

Labels, and signs where they are free, are random in the draws. All in float64 by numpy.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp as jax_logsumexp
from numpyro.distributions import constraints
from scipy.special import gammaln, logsumexp
from scipy.stats import multivariate_normal

from numpyro_symmetry import Symmetry, testing

PAIRS = tuple(itertools.product([(0, 1), (1, 0)], repeat=2))
LOG_2_PI = np.log(2 * np.pi)


class Known(NamedTuple):
    """A model, what may be permuted in it, its log evidence, and exact draws of its posterior, by site."""

    model: Callable[..., Any]
    args: tuple[Any, ...]
    symmetry: Symmetry
    truth: float
    draws: Callable[[int, np.random.Generator], dict[str, np.ndarray]]


def chosen(log_joint, count, rng):
    return rng.choice(len(log_joint), count, p=np.exp(log_joint - logsumexp(log_joint)))


# ---- mixtures and hidden Markov models, their allocations enumerated -------------------------------------------------


def every_allocation(num_data, num_components):
    return np.arange(num_components**num_data)[:, None] // num_components ** np.arange(num_data) % num_components


def conjugate(data, z, num_components, variance):
    """Of locations under N(0, variance) and unit noise: log evidence of each allocation, and draws given some."""
    own = z[:, :, None] == np.arange(num_components)
    counts, sums, squares = own.sum(1), (own * data[:, None]).sum(1), (own * data[:, None] ** 2).sum(1)
    precision = 1 / variance + counts
    log_evidence = -0.5 * (np.log(variance * precision) - sums**2 / precision + squares + counts * LOG_2_PI).sum(1)

    def loc(at, rng):
        return sums[at] / precision[at] + rng.standard_normal((len(at), num_components)) / np.sqrt(precision[at])

    return log_evidence, counts, loc


def mixture(num_components, data, variance=9.0):
    """Of known, equal weights."""
    data = np.asarray(data)
    log_joint, _, loc = conjugate(data, every_allocation(len(data), num_components), num_components, variance)
    log_joint = log_joint - len(data) * np.log(num_components)

    def model(y):
        mu = numpyro.sample("loc", dist.Normal(0.0, variance**0.5).expand([num_components]).to_event(1))
        weights = dist.Categorical(probs=jnp.full(num_components, 1 / num_components))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.MixtureSameFamily(weights, dist.Normal(mu, 1.0)), obs=y)

    def draws(count, rng):
        return {"loc": loc(chosen(log_joint, count, rng), rng)}

    return Known(model, (data,), Symmetry.mixture("loc"), logsumexp(log_joint), draws)


def weighted_mixture(num_components, data, variance=9.0):
    """Of unknown weights, uniform on the simplex."""
    data = np.asarray(data)
    log_joint, counts, loc = conjugate(data, every_allocation(len(data), num_components), num_components, variance)
    log_joint = log_joint + gammaln(num_components) - gammaln(num_components + len(data)) + gammaln(1 + counts).sum(1)

    def model(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(num_components)))
        mu = numpyro.sample("loc", dist.Normal(0.0, variance**0.5).expand([num_components]).to_event(1))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(mu, 1.0)), obs=y)

    def draws(count, rng):
        at = chosen(log_joint, count, rng)
        return {"loc": loc(at, rng), "weights": np.stack([rng.dirichlet(1 + own) for own in counts[at]])}

    return Known(model, (data,), Symmetry.mixture("weights", "loc"), logsumexp(log_joint), draws)


def hidden_markov(num_states, data, variance=9.0):
    """Of unknown rows of the transition matrix, Dir(1), the first state uniform, and unit noise."""
    data, K = np.asarray(data), num_states
    z = every_allocation(len(data), K)
    log_joint, _, loc = conjugate(data, z, K, variance)
    moves = np.zeros((len(z), K, K))
    for before, after in itertools.pairwise(z.T):
        moves[np.arange(len(z)), before, after] += 1
    log_joint = log_joint - np.log(K)
    log_joint += (gammaln(K) - gammaln(K + moves.sum(-1)) + gammaln(1 + moves).sum(-1)).sum(-1)

    def model(y):
        transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones((K, K))).to_event(1))
        mu = numpyro.sample("loc", dist.Normal(0.0, variance**0.5).expand([K]).to_event(1))
        log_emission = dist.Normal(mu, 1.0).log_prob(jnp.asarray(y)[:, None])
        log_forward = log_emission[0] - jnp.log(K)
        for t in range(1, len(data)):
            log_forward = jax_logsumexp(log_forward[:, None] + jnp.log(transition), axis=0) + log_emission[t]
        numpyro.factor("y", jax_logsumexp(log_forward))

    def draws(count, rng):
        at = chosen(log_joint, count, rng)
        return {"loc": loc(at, rng), "transition": np.stack([[rng.dirichlet(1 + r) for r in m] for m in moves[at]])}

    symmetry = Symmetry.hmm(transition="transition", emissions=["loc"])
    return Known(model, (data,), symmetry, logsumexp(log_joint), draws)


# ---- units whose density is written down -----------------------------------------------------------------------------


def exchangeable(num_units, separation):
    posterior = testing.exchangeable_gaussian(num_units=num_units, separation=separation, log_evidence=-3.0)
    (centres,) = posterior.model_args

    def draws(count, rng):
        around = centres + 0.3 * rng.standard_normal((count, num_units, 2))
        return {"units": np.stack([rng.permutation(draw) for draw in around])}

    return Known(posterior.model, (centres,), Symmetry.mixture("units"), -3.0, draws)


def signed(num_units, separation):
    r"""Units around centres, each with either sign, in any order: log evidence -3."""
    centres = separation * np.random.default_rng(1).normal(size=(num_units, 2))
    placements = np.array(list(itertools.permutations(range(num_units))))

    def model(centres):
        support = constraints.independent(constraints.real, 2)
        units = numpyro.sample("units", dist.ImproperUniform(support, (), (num_units, 2)))
        either = [dist.Normal(s * jnp.asarray(centres), 0.3).to_event(1).log_prob(units[:, None]) for s in (1, -1)]
        table = jnp.logaddexp(*either) - jnp.log(2.0)
        log_density = jax_logsumexp(table[jnp.arange(num_units), placements].sum(-1)) - gammaln(num_units + 1)
        numpyro.factor("density", log_density - 3.0)

    def draws(count, rng):
        around = centres + 0.3 * rng.standard_normal((count, num_units, 2))
        around = around * rng.choice([-1, 1], (count, num_units, 1))
        return {"units": np.stack([rng.permutation(draw) for draw in around])}

    return Known(model, (centres,), Symmetry({"units": ("unit", None)}, {"unit": "signed"}), -3.0, draws)


def far_apart(num_units):
    """Units on a line, twelve standard deviations from each other, in any order: the evidence is one but for 1e-16."""
    centres = 1.2 * np.arange(num_units)

    def model(centres):
        units = numpyro.sample("units", dist.ImproperUniform(constraints.real_vector, (), (num_units,)))
        placed = dist.Normal(jnp.asarray(centres), 0.1).log_prob(jnp.sort(units)).sum()
        numpyro.factor("density", placed - gammaln(num_units + 1))

    def draws(count, rng):
        return {"units": rng.permuted(centres + 0.1 * rng.standard_normal((count, num_units)), axis=1)}

    return Known(model, (centres,), Symmetry.mixture("units"), 0.0, draws)


def one_cloud(num_units):
    """Independent units of which the sum was seen: a Gaussian posterior in which all units are in one place."""
    y = 0.7 * num_units**0.5
    covariance = np.eye(num_units) - 1 / (num_units + 1)
    truth = multivariate_normal(0.0, num_units + 1).logpdf(y)

    def model(y):
        units = numpyro.sample("units", dist.Normal(0.0, 1.0).expand([num_units]).to_event(1))
        numpyro.sample("y", dist.Normal(units.sum(), 1.0), obs=y)

    def draws(count, rng):
        return {"units": rng.multivariate_normal(np.full(num_units, y / (num_units + 1)), covariance, count)}

    return Known(model, (y,), Symmetry.mixture("units"), truth, draws)


def heads():
    """Units of heads, and the heads, in any order: eight copies, far apart. Draws switch units and keep their heads."""
    centres = np.array([[0.0, 3.0], [10.0, 14.0]])
    orders = [(0, 1), (1, 0)]
    copies = [[centres[h][list(p)] for h, p in zip(o, ps, strict=True)] for o in orders for ps in PAIRS]

    def model(copies):
        units = numpyro.sample("units", dist.ImproperUniform(constraints.independent(constraints.real, 2), (), (2, 2)))
        placed = dist.Normal(jnp.asarray(copies), 0.3).log_prob(units).sum((-1, -2))
        numpyro.factor("density", jax_logsumexp(placed) - jnp.log(8.0) - 3.0)

    def draws(count, rng):
        return {"units": rng.permuted(centres + 0.3 * rng.standard_normal((count, 2, 2)), axis=2)}

    return Known(model, (np.array(copies),), Symmetry({"units": ("head", "head/unit")}), -3.0, draws)


# ---- networks, their first layer on a grid and their second integrated out -------------------------------------------


def network(num_units, activation, *, num_data=15, noise=0.3, num_points=400, limit=5.0):
    """One input, one output, no biases, standard normal weights; symmetric cells around every grid point of ``w1``."""
    x = np.linspace(-2.0, 2.0, num_data)
    y = np.sin(x) + noise * np.random.default_rng(0).standard_normal(num_data)
    act, jax_act = {"tanh": (np.tanh, jnp.tanh), "relu": (lambda v: np.maximum(v, 0), jax.nn.relu)}[activation]
    width = 2 * limit / num_points
    line = -limit + width * (np.arange(num_points) + 0.5)
    w1 = np.stack(np.meshgrid(*[line] * num_units, indexing="ij"), -1).reshape(-1, num_units)

    def second(w1):
        """Precision and mean of w2, and log evidence, at each w1."""
        hidden = act(w1[:, None] * x[:, None])
        precision = np.eye(num_units) + np.einsum("gni,gnj->gij", hidden, hidden) / noise**2
        pull = np.einsum("gni,n->gi", hidden, y) / noise**2
        mean = np.linalg.solve(precision, pull[..., None])[..., 0]
        log_evidence = 0.5 * ((pull * mean).sum(-1) - np.linalg.slogdet(precision)[1] - y @ y / noise**2)
        return precision, mean, log_evidence - 0.5 * num_data * (LOG_2_PI + 2 * np.log(noise))

    parts = np.array_split(w1, max(1, len(w1) // 20_000))
    log_joint = np.concatenate([second(part)[2] for part in parts])
    log_joint = log_joint - 0.5 * (w1**2 + LOG_2_PI).sum(-1)

    def model(x, y):
        first = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([num_units]).to_event(1))
        last = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([num_units]).to_event(1))
        with numpyro.plate("data", num_data):
            numpyro.sample("y", dist.Normal(jax_act(jnp.asarray(x)[:, None] * first) @ last, noise), obs=y)

    def draws(count, rng):
        at = w1[chosen(log_joint, count, rng)] + width * (rng.random((count, num_units)) - 0.5)
        precision, mean, _ = second(at)
        noise_of_last = np.linalg.solve(
            np.linalg.cholesky(precision).transpose(0, 2, 1), rng.standard_normal((count, num_units, 1))
        )
        return {"w1": at, "w2": mean + noise_of_last[..., 0]}

    kinds = {"hidden": "signed"} if activation == "tanh" else {}
    symmetry = Symmetry({"w1": ("hidden",), "w2": ("hidden",)}, kinds)
    return Known(model, (x, y), symmetry, logsumexp(log_joint) + num_units * np.log(width), draws)


def two_weights():
    posterior = testing.two_weight_network()
    (x, y), grid = posterior.model_args, np.linspace(-2.0, 2.0, 801)
    lines = np.maximum(grid[:, None] * x, 0.0)
    squares = ((lines[:, None] + lines - y) ** 2).sum(-1)
    log_density = (-0.5 * (grid[:, None] ** 2 + grid**2) - squares / 20.0).ravel()

    def draws(count, rng):
        cell = np.stack(np.unravel_index(chosen(log_density, count, rng), squares.shape), -1)
        return {"w": grid[cell] + 0.005 * (rng.random((count, 2)) - 0.5)}

    return Known(posterior.model, (x, y), Symmetry.mixture("w"), posterior.log_evidence, draws)


def one_factor(num_points=400, limit=5.0):
    """Loadings of a single factor, whose sign is free, on a grid."""
    y = np.random.default_rng(2).standard_normal((6, 1)) * np.array([1.5, -1.0])
    y = y + 0.7 * np.random.default_rng(3).standard_normal((6, 2))
    width = 2 * limit / num_points
    line = -limit + width * (np.arange(num_points) + 0.5)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    covariance = grid[:, :, None] * grid[:, None] + 0.5 * np.eye(2)
    squares = np.einsum("ni,gij,nj->g", y, np.linalg.inv(covariance), y)
    log_joint = -0.5 * (squares + len(y) * (np.linalg.slogdet(covariance)[1] + 2 * LOG_2_PI))
    log_joint -= 0.5 * (grid**2 + LOG_2_PI).sum(-1)

    def model(y):
        loading = numpyro.sample("loading", dist.Normal(0.0, 1.0).expand([2, 1]).to_event(2))
        with numpyro.plate("data", len(y)):
            spread = dist.MultivariateNormal(jnp.zeros(2), loading @ loading.T + 0.5 * jnp.eye(2))
            numpyro.sample("y", spread, obs=y)

    def draws(count, rng):
        at = grid[chosen(log_joint, count, rng)] + width * (rng.random((count, 2)) - 0.5)
        return {"loading": at[..., None]}

    symmetry = Symmetry({"loading": (None, "factor")}, {"factor": "signed"})
    return Known(model, (y,), symmetry, logsumexp(log_joint) + 2 * np.log(width), draws)


# ---- all of them -----------------------------------------------------------------------------------------------------

APART, TOGETHER = [-4.1, -3.6, 0.2, 0.3, 3.8, 4.4], [-0.8, -0.1, 0.4, 1.3, 0.9, -1.5]

KNOWN: dict[str, Callable[[], Known]] = {
    "mixture of 2, apart": lambda: mixture(2, [-3.0, -2.5, -3.4, 2.6, 3.1, 3.3]),
    "mixture of 2, together": lambda: mixture(2, TOGETHER),
    "mixture of 3, apart": lambda: mixture(3, APART),
    "mixture of 3, together": lambda: mixture(3, TOGETHER),
    "mixture of 4, together": lambda: mixture(4, TOGETHER),
    "weighted mixture of 2": lambda: weighted_mixture(2, [-2.0, -1.5, 2.0, 2.5, 1.0]),
    "weighted mixture of 3": lambda: weighted_mixture(3, APART),
    "hidden Markov, 2 states": lambda: hidden_markov(2, [-1.8, -2.2, -1.5, 2.1, 1.7, 2.4, -2.0, -1.6]),
    "hidden Markov, 3 states": lambda: hidden_markov(3, APART),
    "2 Gaussians": lambda: exchangeable(2, 0.3),
    "4 Gaussians": lambda: exchangeable(4, 1.0),
    "6 Gaussians": lambda: exchangeable(6, 0.5),
    "10 units apart": lambda: far_apart(10),
    "20 units apart": lambda: far_apart(20),
    "50 units apart": lambda: far_apart(50),
    "5 units in one cloud": lambda: one_cloud(5),
    "10 units in one cloud": lambda: one_cloud(10),
    "50 units in one cloud": lambda: one_cloud(50),
    "heads of units": heads,
    "1 signed Gaussian": lambda: signed(1, 0.5),
    "2 signed Gaussians": lambda: signed(2, 1.0),
    "3 signed Gaussians": lambda: signed(3, 0.5),
    "1 tanh unit": lambda: network(1, "tanh"),
    "2 tanh units": lambda: network(2, "tanh"),
    "3 tanh units": lambda: network(3, "tanh", num_points=80),
    "2 relu units": lambda: network(2, "relu"),
    "two weights": two_weights,
    "one factor": one_factor,
}


@functools.cache
def known(name: str) -> Known:
    return KNOWN[name]()
