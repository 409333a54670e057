"""NumPyro's own ways of writing models: handlers, plates, parameters, distributions of distributions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

from tests.gallery.case import Case, Cases
from tests.gallery.parts import PAIRS, X, Y, normal, observe, weights

CASES = Cases()
SEEN = Y > -0.5


def network(x, y, width=5, activation=jnp.tanh):
    """One hidden layer, read by a plate of data; not a case by itself."""
    h = activation(x @ normal("kernel", x.shape[1], width) + normal("bias", width))
    mean = h @ normal("out", width)
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(mean, 0.1), obs=y)


class Network:
    """A model that is an object."""

    def __init__(self, width):
        self.width = width

    def __call__(self, x, y=None):
        network(x, y, self.width)


CASES += [
    Case("model-is-partial", partial(network, width=6), (X, Y), "S6", signed="±S6"),
    Case("model-is-object", Network(4), (X, Y), "S4"),
    Case("model-with-mask", handlers.mask(network, mask=jnp.array(True)), (X, Y), "S5"),
    Case("model-with-scale", handlers.scale(network, scale=0.1), (X, Y), "S5"),
    Case("model-in-scope", handlers.scope(network, prefix="net"), (X, Y), "S5"),
    Case(
        "model-conditioned",
        handlers.condition(network, {"out": jnp.array([1.0, 1.0, -1.0, -1.0, -1.0])}),
        (X, Y),
        "trivial",
        why="output weights are given: what coincides in given values creates nothing",
    ),
    Case(
        "model-conditioned-on-distinct",
        handlers.condition(network, {"out": jnp.linspace(-1.0, 1.0, 5)}),
        (X, Y),
        "trivial",
        why="output weights are given, all different",
    ),
]


@CASES.add("likelihood-masked", "S5", X, Y, SEEN)
def likelihood_masked(x, y, seen):
    """Some data are missing: their likelihood is masked."""
    h = jnp.tanh(x @ normal("kernel", 3, 5))
    out = normal("out", 5)
    with numpyro.plate("data", len(x)), handlers.mask(mask=seen), handlers.scale(scale=2.0):
        numpyro.sample("obs", dist.Normal(h @ out, 0.1), obs=y)


@CASES.add("observations-imputed", "S5", X, Y, SEEN, why="imputed data are data")
def observations_imputed(x, y, seen):
    """Some data are missing: they are latent, by ``obs_mask``."""
    h = jnp.tanh(x @ normal("kernel", 3, 5))
    numpyro.sample("obs", dist.Normal(h @ normal("out", 5), 0.1), obs=y, obs_mask=seen)


@CASES.add("plate-subsampled", "S5", X, Y)
def plate_subsampled(x, y):
    """A minibatch of six data."""
    kernel, out = normal("kernel", 3, 5), normal("out", 5)
    with numpyro.plate("data", len(x), subsample_size=6):
        x, y = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("obs", dist.Normal(jnp.tanh(x @ kernel) @ out, 0.1), obs=y)


@CASES.add("plates-nested", "S4 x S5", X, Y)
def plates_nested(x, y):
    """Kernels in nested plates whose sizes are those of layers."""
    with numpyro.plate("first", 5, dim=-2):
        with numpyro.plate("inputs", 3, dim=-1):
            read = numpyro.sample("read", dist.Normal(0, 1))
        with numpyro.plate("second", 4, dim=-1):
            mix = numpyro.sample("mix", dist.Laplace(0, 1))
        bias = numpyro.sample("bias", dist.Normal(0, 1))
    with numpyro.plate("second again", 4):
        out = numpyro.sample("out", dist.Normal(0, 1))
    observe(jnp.tanh(jax.nn.relu(x @ read.T + bias[:, 0]) @ mix) @ out, y)


@CASES.add("reparam-loc-scale", "S5", X, Y)
@partial(handlers.reparam, config={"out": LocScaleReparam(0.0), "kernel": LocScaleReparam(0.5)})
def reparam_loc_scale(x, y):
    """Units' weights around a latent scale, written off-centre by a handler."""
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    kernel = numpyro.sample("kernel", dist.Normal(0, spread).expand([3, 5]).to_event(2))
    out = numpyro.sample("out", dist.Normal(0, spread).expand([5]).to_event(1))
    observe(jnp.tanh(x @ kernel) @ out, y)


@CASES.add("reparam-transform", "S4", Y)
@partial(handlers.reparam, config={"loc": TransformReparam()})
def reparam_transform(y):
    """Locations of a mixture as an affine transform of standard normals."""
    shift = dist.transforms.AffineTransform(normal("centre"), 2.0)
    with numpyro.plate("components", 4):
        loc = numpyro.sample("loc", dist.TransformedDistribution(dist.Normal(0, 1), shift))
    mixture = dist.MixtureSameFamily(dist.Categorical(weights(4)), dist.Normal(loc, 1.0))
    numpyro.sample("obs", mixture, obs=y)


@CASES.add("param-network", "S5", X, Y)
def param_network(x, y):
    """No prior at all: weights are parameters."""
    key = jax.random.key(0)
    kernel = numpyro.param("kernel", jax.random.normal(key, (3, 5)))
    out = numpyro.param("out", jax.random.normal(key, (5,)))
    scale = numpyro.param("scale", 0.5, constraint=constraints.positive)
    observe(jnp.tanh(x @ kernel) @ out, y, scale)


@CASES.add("param-prior-scales", "S5", X, Y)
def param_prior_scales(x, y):
    """Prior scales of the units are parameters (empirical Bayes) and move along."""
    scale = numpyro.param("scale", jnp.linspace(0.5, 1.5, 5), constraint=constraints.positive)
    out = numpyro.sample("out", dist.Normal(0, scale).to_event(1))
    observe(jnp.tanh(x @ normal("kernel", 3, 5)) @ out, y)


@CASES.add("stax-module", "S5", X, PAIRS)
def stax_module(x, y):
    """A network of jax.example_libraries by ``numpyro.module``."""
    from jax.example_libraries import stax

    net = numpyro.module("nn", stax.serial(stax.Dense(5), stax.Tanh, stax.Dense(2)), input_shape=(1, 3))
    observe(net(x), y)


@CASES.add("deterministic-and-factor", "S5", X, Y)
def deterministic_and_factor(x, y):
    """Units are recorded; a factor penalises their squares."""
    h = numpyro.deterministic("units", jnp.tanh(x @ normal("kernel", 3, 5)))
    out = numpyro.sample("out", dist.Normal(0, 1).expand([5]).mask(False).to_event(1))
    numpyro.factor("penalty", -jnp.sum((h * out) ** 2))
    observe(numpyro.deterministic("mean", h @ out), y)


@CASES.add("mixture-prior-on-weights", "S5", X, Y)
def mixture_prior_on_weights(x, y):
    """A spike and a slab for every weight."""
    slab = dist.MixtureSameFamily(dist.Categorical(jnp.array([0.7, 0.3])), dist.Normal(0, jnp.array([0.1, 1.0])))
    kernel = numpyro.sample("kernel", slab.expand([3, 5]).to_event(2))
    out = numpyro.sample("out", dist.TruncatedNormal(0.5, 1.0, low=0.0).expand([5]).to_event(1))
    observe(jax.nn.relu(x @ kernel) @ out, y)


@CASES.add("prior-arrays-batch-shape", "S5", X, Y)
def prior_arrays_batch_shape(x, y):
    """Priors from arrays of ones and zeros, no event dimensions."""
    kernel = numpyro.sample("kernel", dist.Normal(jnp.zeros((3, 5)), jnp.full((3, 1), 0.5)))
    out = numpyro.sample("out", dist.Gamma(jnp.ones(5), 2.0 * jnp.ones(5)))
    observe(jnp.tanh(x @ kernel) @ out, y)


@CASES.add("matrix-normal-prior", "S5", X, Y, by_numbers=True)
def matrix_normal_prior(x, y):
    """A kernel with correlated rows and exchangeable columns."""
    columns = jnp.linalg.cholesky(jnp.eye(5) + 0.5)
    rows = jnp.array([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.3, 1.0]])
    kernel = numpyro.sample("kernel", dist.MatrixNormal(jnp.zeros((3, 5)), rows, columns))
    observe(jnp.tanh(x @ kernel) @ normal("out", 5), y)


@CASES.add("bernoulli-switches", "S5", X, Y)
def bernoulli_switches(x, y):
    """Discrete switches of units, not summed out."""
    switch = numpyro.sample("switch", dist.Bernoulli(0.5).expand([5]).to_event(1))
    observe((jnp.tanh(x @ normal("kernel", 3, 5)) * switch) @ normal("out", 5), y)


@CASES.add("scan-of-sites", "S2", PAIRS, signed="±S2")
def scan_of_sites(y):
    """Latent states sampled inside a scan: their dimensions move with dynamics and emissions."""
    dynamics, emission = normal("dynamics", 2, 2, scale=0.3), normal("emission", 2, 2)

    def step(state, y):
        state = numpyro.sample("state", dist.Normal(dynamics @ state, 0.5).to_event(1))
        numpyro.sample("obs", dist.Normal(state @ emission, 0.1).to_event(1), obs=y)
        return state, None

    scan(step, jnp.zeros(2), y)
