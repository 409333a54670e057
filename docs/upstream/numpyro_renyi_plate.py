"""RenyiELBO counts a site of the guide that lies outside a plate once for each member of the plate."""

import jax
import numpyro
import numpyro.distributions as dist
from numpyro.infer import RenyiELBO, Trace_ELBO


def model():
    with numpyro.plate("data", 5):
        numpyro.sample("x", dist.Normal(0.0, 1.0))


def guide():
    with numpyro.plate("data", 5):
        numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.factor("term", 1.0)


# every weight is exp(-1), and so is their mean: both losses are 1
print("numpyro", numpyro.__version__)
for elbo in (Trace_ELBO(), RenyiELBO(alpha=0.0, num_particles=2)):
    print(f"{type(elbo).__name__}: {elbo.loss(jax.random.key(0), {}, model, guide):.1f}")
