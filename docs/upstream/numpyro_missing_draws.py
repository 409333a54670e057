"""log_likelihood without draws of a latent site fails with an assertion that names nothing."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import log_likelihood


def model(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(loc, scale), obs=y)


print("numpyro", numpyro.__version__)
try:
    log_likelihood(model, {"loc": jnp.zeros(3)}, jnp.ones(2))
except AssertionError as error:
    print(f"AssertionError: {str(error)!r}")
