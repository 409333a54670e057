"""What the models of the gallery are built from: fixed data, and sites that many of them have."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist


def gaussian(seed, *shape):
    """Fixed draws of a standard normal."""
    return np.random.default_rng(seed).normal(size=shape)


def categories(seed, count, *shape):
    """Fixed draws of ``count`` categories, each of which occurs."""
    draws = np.random.default_rng(seed).integers(0, count, shape)
    draws.flat[:count] = np.arange(count)
    return draws


X = gaussian(0, 12, 3)  # inputs
PAIRS = gaussian(1, 12, 2)  # two responses
Y = gaussian(2, 12)  # one response
LABELS = categories(3, 3, 12)
IMAGES = gaussian(4, 4, 8, 8, 1)
IMAGE_LABELS = categories(5, 3, 4)
SEQUENCES = gaussian(6, 4, 6, 3)  # four sequences of six vectors
TOKENS = categories(7, 7, 6, 9)  # six documents of nine words, a vocabulary of seven


def normal(name, *shape, loc=0.0, scale=1.0):
    """Sample an array of independent normals."""
    return numpyro.sample(name, dist.Normal(loc, scale).expand(shape).to_event(len(shape)))


def dense(name, fan_in, fan_out):
    """Sample the kernel, shape (in, out), and the bias of a dense layer."""
    return normal(f"{name}_kernel", fan_in, fan_out, scale=fan_in**-0.5), normal(f"{name}_bias", fan_out)


def weights(count, name="weights"):
    """Sample the weights of a mixture under a symmetric prior."""
    return numpyro.sample(name, dist.Dirichlet(jnp.ones(count)))


def observe(mean, value, scale=0.1):
    """Observe ``value`` with independent normal errors."""
    numpyro.sample("obs", dist.Normal(mean, scale).to_event(jnp.ndim(mean)), obs=value)


def classify(logits, value):
    """Observe categories."""
    numpyro.sample("obs", dist.Categorical(logits=logits), obs=value)
