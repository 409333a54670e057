"""A guide that is built again from saved parameters cannot draw, and no public method sets it up."""

import jax
import numpyro
import numpyro.distributions as dist
from numpyro.infer.autoguide import AutoNormal


def model():
    numpyro.sample("x", dist.Normal(0.0, 1.0))


print("numpyro", numpyro.__version__)
try:
    AutoNormal(model).sample_posterior(jax.random.key(0), {"x_auto_loc": 0.0, "x_auto_scale": 1.0})
except AttributeError as error:
    print("AttributeError:", error)
