"""TraceGraph_ELBO has the loss right and drops the gradient of a factor in a guide."""

import jax
import numpyro
import numpyro.distributions as dist
from numpyro.infer import Trace_ELBO, TraceGraph_ELBO


def model():
    numpyro.sample("x", dist.Normal(0.0, 1.0))


def guide():
    loc = numpyro.param("loc", 0.5)
    numpyro.sample("x", dist.Normal(loc, 1.0))
    numpyro.factor("term", -3.0 * loc)


print("numpyro", numpyro.__version__)
for elbo in (Trace_ELBO(), TraceGraph_ELBO()):
    loss, gradient = jax.value_and_grad(
        lambda loc, elbo=elbo: elbo.loss(jax.random.key(0), {"loc": loc}, model, guide)
    )(0.5)
    print(f"{type(elbo).__name__}: loss {loss:.4f}, gradient {gradient:.4f}")
