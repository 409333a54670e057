"""log_density contracts scans in reverse, and scans beside a discrete site drawn outside, in the wrong way."""

import itertools
import math

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.contrib.funsor import config_enumerate, enum, log_density

initial = [0.2, 0.8]
transition = jnp.array([[0.7, 0.3], [0.4, 0.6]])
loc = jnp.array([-1.0, 1.0])
y = jnp.array([0.5, -1.0, 2.0])


@config_enumerate
def in_reverse(y):
    start = numpyro.sample("start", dist.Categorical(jnp.array(initial)))

    def step(state, now):
        state = numpyro.sample("state", dist.Categorical(transition[state]))
        numpyro.sample("y", dist.Normal(loc[state], 1.0), obs=now)
        return state, None

    scan(step, start, y, reverse=True)


@config_enumerate
def beside_another(y):
    sign = numpyro.sample("sign", dist.Bernoulli(0.5))
    start = numpyro.sample("start", dist.Categorical(jnp.array(initial)))

    def step(state, now):
        state = numpyro.sample("state", dist.Categorical(transition[state]))
        numpyro.sample("y", dist.Normal((2 * sign - 1) * loc[state], 1.0), obs=now)
        return state, None

    scan(step, start, y)


def summed(y, sign=1.0):
    """The density of data in the order of the chain, all paths of its states summed up."""
    total = 0.0
    for start, *states in itertools.product(range(2), repeat=1 + len(y)):
        density = initial[start]
        for before, state, now in zip([start, *states[:-1]], states, map(float, y), strict=True):
            density *= float(transition[before, state]) * math.exp(-((now - sign * float(loc[state])) ** 2) / 2)
        total += density / (2 * math.pi) ** (len(y) / 2)
    return total


print("numpyro", numpyro.__version__)
cases = [(in_reverse, summed(y[::-1])), (beside_another, (summed(y) + summed(y, -1.0)) / 2)]
for model, density in cases:
    of_funsor = float(log_density(enum(model, -1), (y,), {}, {})[0])
    print(f"{model.__name__}: log_density {of_funsor:.4f}, all paths summed up {math.log(density):.4f}")
