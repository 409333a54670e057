"""TraceMeanField_ELBO weighs the prior of a latent site as the guide weighs the site, whatever the model says."""

import jax
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer import Trace_ELBO, TraceMeanField_ELBO


def model():
    with handlers.scale(scale=3.0):
        numpyro.sample("x", dist.Normal(0.0, 1.0))


def guide():
    numpyro.sample("x", dist.Normal(0.0, 1.0))


# -E[3 log p(x) - log q(x)] = 1 + log 2 pi = 2.84
print("numpyro", numpyro.__version__)
for elbo in (Trace_ELBO(num_particles=100_000), TraceMeanField_ELBO()):
    print(f"{type(elbo).__name__}: {elbo.loss(jax.random.key(0), {}, model, guide):.2f}")
