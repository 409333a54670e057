"""What follows is told from what does not: fifty conditionals of each sort, drawn at random."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints

from numpyro_symmetry import Symmetry
from numpyro_symmetry.guides.symmetrized.equivariance import equivariant_sites

pytestmark = pytest.mark.slow

# mean and log scale of a unit's weight, from that unit's weights (n, d), from all, and from inputs (rows, d)
EQUIVARIANT = {
    "own": lambda u, x: (jnp.sin(u).sum(-1), 0.1 * u[:, 0]),
    "mean of all": lambda u, x: (u.sum(-1) - u.mean(), jnp.full(len(u), 0.1 * u.mean())),
    "attention": lambda u, x: (jax.nn.softmax(u @ u.T) @ u[:, 0], -0.1 * (u @ u.T).std(1)),
    "outputs": lambda u, x: (jax.nn.relu(x @ u.T).mean(0), jnp.tanh(x @ u.T).std(0)),
    "ranks": lambda u, x: (jnp.exp(-((u[:, :1] - u[:, 0]) ** 2)).sum(1), jnp.zeros(len(u))),
    "solved": lambda u, x: (
        jnp.linalg.solve(jnp.eye(len(u)) + (h := jnp.tanh(x @ u.T)).T @ h, h.sum(0)),
        jnp.zeros(len(u)),
    ),
}
BREAKS = {
    "one mean": lambda mean, scale, u, k, size: (mean.at[k].add(size), scale),
    "one scale": lambda mean, scale, u, k, size: (mean, scale.at[k].add(size)),
    "one slope": lambda mean, scale, u, k, size: (mean.at[k].add(size * u[k, 0]), scale),
    "a neighbour": lambda mean, scale, u, k, size: (mean + size * jnp.roll(u[:, 0], 1), scale),
    "by position": lambda mean, scale, u, k, size: (mean + size * jnp.arange(len(u)), scale),
    "a weighted sum": lambda mean, scale, u, k, size: (mean, scale + size * u[k, 0]),
    "two exchanged": lambda mean, scale, u, k, size: (mean.at[jnp.array([0, 1])].set(mean[jnp.array([1, 0])]), scale),
    "a parameter each": lambda mean, scale, u, k, size: (mean + numpyro.param("each", jnp.zeros(len(u))), scale),
    "parameters of scales": lambda mean, scale, u, k, size: (
        mean,
        scale + jnp.log(numpyro.param("scales", jnp.ones(len(u)), constraint=constraints.positive)),
    ),
}


def verdict(seed, broken):
    """What is said of a conditional drawn at random, and of which it was made."""
    rng = np.random.default_rng(seed)
    # of two units each is the other's neighbour: exchanged, they are equivariant still
    n, d = int(rng.integers(3, 9)), int(rng.integers(1, 5))
    x = jnp.asarray(rng.normal(size=(7, d)), jnp.float32)
    follows, breaks = str(rng.choice(list(EQUIVARIANT))), str(rng.choice(list(BREAKS)))
    unit, size = int(rng.integers(n)), float(10 ** rng.uniform(-3, 0))

    def guide(x):
        loc = numpyro.param("loc", jnp.zeros((d, n)))
        w1 = numpyro.sample("w1", dist.Normal(loc, 0.3).to_event(2))
        mean, log_scale = EQUIVARIANT[follows](w1.T, x)
        if broken:
            mean, log_scale = BREAKS[breaks](mean, log_scale, w1.T, unit, size)
        numpyro.sample("w2", dist.Normal(mean, jnp.exp(log_scale)).to_event(1))

    symmetry = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)}).bind({"w1": jnp.zeros((d, n)), "w2": jnp.zeros(n)})
    trace = handlers.trace(handlers.seed(guide, seed)).get_trace(x)
    said = equivariant_sites(guide, symmetry, trace, (x,), {})["w2"]["hidden"]
    return said, (n, d, follows, breaks if broken else None, size)


def test_fifty_that_do_not_follow_are_all_seen():
    said = [verdict(seed, broken=True) for seed in range(50)]
    assert [how for what, how in said if what != "different"] == []


def test_fifty_that_follow_are_never_refused():
    said = [verdict(seed, broken=False) for seed in range(50)]
    assert [how for what, how in said if what != "equivariant"] == []
