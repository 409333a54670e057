"""Random NumPyro models of which some sites have a Gaussian conditional in closed form, given all others."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer.reparam import LocScaleReparam

NUM_ROWS, NUM_GROUPS = 9, 4


class RandomRegression:
    """A model whose predictor is a sum of terms, each affine in sites of its own, drawn from a seed.

    Attributes
    ----------
    said
        What was drawn, in the order in which the model samples it.
    affine
        The sites in which the predictor is affine, and on which neither another prior nor a noise depends.
    rows
        The model's arguments: inputs and targets.
    """

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.seed, self.said, self.affine = seed, [], []
        self.num_outputs = int(rng.integers(2, 4)) if rng.random() < 0.4 else None
        self.outputs = () if self.num_outputs is None else (self.num_outputs,)
        self.groups, self.seen = rng.integers(0, NUM_GROUPS, NUM_ROWS), rng.random(NUM_ROWS) < 0.7
        self.rows = rng.normal(size=(NUM_ROWS, 2)), rng.normal(size=(NUM_ROWS, *self.outputs))

    def __call__(self, x, y=None):
        self.rng, self.said, self.affine = np.random.default_rng(self.seed), [], []
        self.x, self.scale = x, self.one_of(SCALES)(self)
        self.features = self.one_of(FEATURES)(self, x)
        predictor = sum(self.one_of(TERMS)(self) for _ in range(self.rng.integers(1, 4)))
        noise = self.one_of(NOISES)(self) + jnp.zeros((NUM_ROWS, *self.outputs))
        self.one_of(OBSERVATIONS)(self, predictor + jnp.zeros_like(noise), noise, y)

    def one_of(self, functions):
        function = functions[self.rng.integers(len(functions))]
        self.said.append(function.__name__)
        return function

    def of_each_output(self, values):
        """One number a row, for all outputs."""
        return values if self.num_outputs is None else values[:, None]

    def other(self, prior, shape=()):
        """A site that does not follow."""
        name = f"a{len(self.said)}"
        return numpyro.sample(name, prior.expand(shape).to_event(len(shape)) if shape else prior)

    def site(self, *shape, loc=0.0, scale=None):
        """A site that follows."""
        prior = dist.Normal(loc, self.scale if scale is None else scale)
        return self.follower(prior.expand(shape).to_event(len(shape)))

    def follower(self, prior):
        """The same of any prior."""
        self.affine.append(f"b{len(self.affine)}")
        return numpyro.sample(self.affine[-1], prior)


# ---- scales of priors, features --------------------------------------------------------------------------------------


def constant(m):
    return 1.3


def latent(m):
    return m.other(dist.LogNormal(0.0, 0.5))


def heavy_tailed(m):
    return m.other(dist.HalfCauchy(1.0))


SCALES = [constant, latent, heavy_tailed]


def powers(m, x):
    return jnp.concatenate([x, x[:, :1] ** 2], 1)


def hidden(m, x):
    return jnp.tanh(x @ m.other(dist.Normal(0.0, 1.0), (2, 3)))


FEATURES = [powers, hidden]


# ---- terms -----------------------------------------------------------------------------------------------------------


def dense(m):
    return m.features @ m.site(3, *m.outputs)


def bias(m):
    return m.site(*m.outputs, loc=0.5)


def transposed(m):
    return (m.features @ m.site(m.num_outputs or 1, 3).T).reshape(NUM_ROWS, *m.outputs)


def scaled(m):
    return m.other(dist.LogNormal(0.0, 0.5)) * (m.features @ m.site(3, *m.outputs))


def end_to_end(m):
    ones = jnp.ones((NUM_ROWS, 1))
    return jnp.concatenate([m.features, ones], 1) @ jnp.concatenate([m.site(3, *m.outputs), m.site(1, *m.outputs)], 0)


def cut(m):
    kernel = m.site(6)
    return m.of_each_output(m.features @ kernel[:3] - m.features**2 @ kernel[3:])


def random_effects(m):
    with numpyro.plate(f"groups of {len(m.said)}", NUM_GROUPS):
        effects = m.site(loc=0.2)
    return m.of_each_output(effects[m.groups])


def effects_about_a_mean(m):
    mean = m.other(dist.Normal(0.0, 2.0))
    with numpyro.plate(f"groups of {len(m.said)}", NUM_GROUPS):
        effects = m.site(loc=mean)
    return m.of_each_output(effects[m.groups])


def in_two_plates(m):
    with numpyro.plate(f"rows of {len(m.said)}", 3, dim=-2), numpyro.plate(f"columns of {len(m.said)}", 2, dim=-1):
        kernel = m.site()
    return m.of_each_output(m.features @ kernel.sum(1))


def gathered(m):
    return m.of_each_output(m.site(NUM_GROUPS, 3)[m.groups, m.groups % 3])


def off_centre(m):
    name = f"c{len(m.said)}"
    with handlers.reparam(config={name: LocScaleReparam(0.0)}):
        kernel = numpyro.sample(name, dist.Normal(0.3, m.scale).expand([3]).to_event(1))
    m.affine.append(f"{name}_decentered")
    return m.of_each_output(m.features @ kernel)


def each_its_own_prior(m):
    kernel = m.site(3, loc=jnp.linspace(-1, 1, 3), scale=jnp.linspace(0.5, 1.5, 3) * m.scale)
    return m.of_each_output(m.features @ kernel)


def random_walk(m):
    return m.of_each_output(jnp.cumsum(m.site(NUM_ROWS, scale=0.3)))


def convolved(m):
    return m.of_each_output(jnp.convolve(m.x[:, 0], m.site(3), mode="same"))


def bilinear(m):
    return m.of_each_output(jnp.einsum("nk,kj,nj->n", m.features, m.site(3, 2), m.x))


def centred(m):
    kernel = m.site(3)
    return m.of_each_output((m.features - m.features.mean(0)) @ kernel + kernel.mean())


def scanned(m):
    kernel = m.site(3)

    def step(carry, row):
        carry = 0.5 * carry + row @ kernel
        return carry, carry

    return m.of_each_output(jax.lax.scan(step, 0.0, m.features)[1])


def looped(m):
    kernel = m.site(3)
    zeros = jnp.zeros(NUM_ROWS)
    return m.of_each_output(jax.lax.fori_loop(0, 3, lambda k, total: total + m.features[:, k] * kernel[k], zeros))


def correlated_effects(m):
    """A slope and an intercept for each group, by one factor of which a site has a part."""
    factor = m.scale * jnp.array([[1.0, 0.0], [-0.4, 0.7]])
    with numpyro.plate(f"groups of {len(m.said)}", NUM_GROUPS):
        effects = m.follower(dist.MultivariateNormal(jnp.array([0.2, -0.1]), scale_tril=factor))
    return m.of_each_output(effects[m.groups, 0] + effects[m.groups, 1] * m.x[:, 0])


def of_factors_apart(m):
    factors = jnp.linspace(0.5, 1.5, NUM_GROUPS)[:, None, None] * jnp.array([[1.0, 0.0], [0.6, 0.8]])
    effects = m.follower(dist.MultivariateNormal(0.0, scale_tril=factors).to_event(1))
    return m.of_each_output(effects[m.groups].sum(-1))


def gaussian_process(m):
    distances = m.x[:, :1] - m.x[:, 0]
    covariance = m.scale**2 * jnp.exp(-0.5 * distances**2) + 1e-3 * jnp.eye(NUM_ROWS)
    return m.of_each_output(m.follower(dist.MultivariateNormal(0.1, covariance)))


def smooth(m):
    return m.of_each_output(m.follower(dist.GaussianRandomWalk(m.scale, NUM_ROWS)))


TERMS = [dense, bias, transposed, scaled, end_to_end, cut, random_effects, effects_about_a_mean, in_two_plates]
TERMS += [gathered, off_centre, each_its_own_prior, random_walk, convolved, bilinear, centred, scanned, looped]
TERMS += [correlated_effects, of_factors_apart, gaussian_process, smooth]


# ---- noise, observations ---------------------------------------------------------------------------------------------


def known(m):
    return 0.4


def unknown(m):
    return m.other(dist.LogNormal(-1.0, 0.5))


def variance(m):
    return jnp.sqrt(m.other(dist.InverseGamma(3.0, 1.0)))


def of_outputs(m):
    return m.other(dist.LogNormal(-1.0, 0.5), (m.num_outputs or 1,))


def of_rows(m):
    return m.of_each_output(jnp.exp(0.3 * m.features @ m.other(dist.Normal(0.0, 1.0), (3,))))


NOISES = [known, unknown, variance, of_outputs, of_rows]


def plain(m, loc, scale, y):
    numpyro.sample("y", dist.Normal(loc, scale), obs=y)


def one_event(m, loc, scale, y):
    numpyro.sample("y", dist.Normal(loc, scale).to_event(loc.ndim), obs=y)


def in_a_plate(m, loc, scale, y):
    with numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(loc, scale).to_event(loc.ndim - 1), obs=y)


def masked(m, loc, scale, y):
    with numpyro.plate("rows", NUM_ROWS), handlers.mask(mask=m.seen):
        numpyro.sample("y", dist.Normal(loc, scale).to_event(loc.ndim - 1), obs=y)


def masked_distribution(m, loc, scale, y):
    numpyro.sample("y", dist.Normal(loc, scale).to_event(loc.ndim - 1).mask(m.seen), obs=y)


def weighed(m, loc, scale, y):
    with handlers.scale(scale=0.5):
        numpyro.sample("y", dist.Normal(loc, scale), obs=y)


def weighed_by_row(m, loc, scale, y):
    with numpyro.plate("rows", NUM_ROWS), handlers.scale(scale=jnp.linspace(0.5, 2.0, NUM_ROWS)):
        numpyro.sample("y", dist.Normal(loc, scale).to_event(loc.ndim - 1), obs=y)


def missing(m, loc, scale, y):
    seen = m.of_each_output(m.seen)
    plain(m, jnp.where(seen, loc, 0.0), scale, None if y is None else jnp.where(seen, y, 0.0))


def two_sites(m, loc, scale, y):
    plain(m, loc, scale, y)
    numpyro.sample("total", dist.Normal(loc.sum(), 1.5), obs=None if y is None else jnp.sum(y))


def of_the_logarithm(m, loc, scale, y):
    numpyro.sample("y", dist.LogNormal(loc, scale), obs=None if y is None else jnp.exp(y))


def of_a_multiple(m, loc, scale, y):
    plain(m, 2.0 * loc - 1.0, scale, y)


def of_joint_noise(m, loc, scale, y):
    """Over the outputs of a row, or over all rows; with a row left out in the first case."""
    noise = scale if m.num_outputs else scale[None]
    size = noise.shape[-1]
    factor = noise[..., None] * (jnp.eye(size) + 0.4 * jnp.tril(jnp.ones((size, size)), -1))
    fn = dist.MultivariateNormal(loc if m.num_outputs else loc[None], scale_tril=factor)
    numpyro.sample("y", fn.mask(m.seen) if m.num_outputs else fn, obs=y if y is None or m.num_outputs else y[None])


OBSERVATIONS = [plain, one_event, in_a_plate, masked, masked_distribution, weighed, weighed_by_row]
OBSERVATIONS += [missing, two_sites, of_the_logarithm, of_a_multiple, of_joint_noise]
