"""TraceEnum_ELBO takes the time of a scanned chain for a plate, and leaves out its first step."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.contrib.funsor import config_enumerate, enum, log_density
from numpyro.infer import TraceEnum_ELBO

initial = jnp.array([0.2, 0.8])
transition = jnp.array([[0.7, 0.3], [0.4, 0.6]])
loc = jnp.array([-1.0, 1.0])


@config_enumerate
def scanned(y):
    start = numpyro.sample("start", dist.Categorical(initial))

    def step(state, now):
        state = numpyro.sample("state", dist.Categorical(transition[state]))
        numpyro.sample("y", dist.Normal(loc[state], 1.0), obs=now)
        return state, None

    scan(step, start, y)


@config_enumerate
def unrolled(y):
    state = numpyro.sample("start", dist.Categorical(initial))
    for t, now in enumerate(y):
        state = numpyro.sample(f"state_{t}", dist.Categorical(transition[state]))
        numpyro.sample(f"y_{t}", dist.Normal(loc[state], 1.0), obs=now)


def nothing(y):
    pass


# no latent site is left: every number is log p(y)
print("numpyro", numpyro.__version__)
for y in (jnp.array([0.5, -1.0, 2.0]), jnp.array([100.0, -1.0, 2.0])):
    for model in (unrolled, scanned):
        of_funsor = float(log_density(enum(model, -1), (y,), {}, {})[0])
        of_elbo = -float(TraceEnum_ELBO(max_plate_nesting=0).loss(jax.random.key(0), {}, model, nothing, y))
        print(f"{model.__name__}: log_density {of_funsor:.4f}, TraceEnum_ELBO {of_elbo:.4f}")
