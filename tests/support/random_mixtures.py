"""Random NumPyro models with labels: mixtures, hidden Markov models, admixtures, blocks, factors, under many priors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.nn import log_softmax, logsumexp
from numpyro.handlers import seed as seeded
from numpyro.handlers import trace
from numpyro.infer.util import log_density

from tests.support.random_networks import moved, scaled, slots_of, smallest

NUM_DATA, NUM_CLASSES = 8, 5
SIZES = (3, 4)


class RandomMixture:
    """A model whose log-likelihood is a sum of one or two blocks of components, drawn from a seed.

    Attributes
    ----------
    said
        What was drawn, in the order in which the model samples it.
    shapes, cuts
        As those of a random network.
    """

    def __init__(self, seed):
        self.seed, self.said = seed, []
        self.shapes, self.cuts = {}, {}

    def __call__(self, x, y, counts):
        self.rng, self.num_sites, self.said = np.random.default_rng(self.seed), 0, []
        blocks = [self.one_of(BLOCKS)(self, x, y, counts) for _ in range(self.rng.integers(1, 3))]
        numpyro.factor("likelihood", sum(blocks))

    def one_of(self, functions):
        function = functions[self.rng.integers(len(functions))]
        self.said.append(function.__name__)
        return function

    def sample(self, prior, shape=(), own=None):
        """A site; ``own`` of its axes, all by default, belong to the prior's event."""
        self.num_sites += 1
        name, own = f"s{self.num_sites}", len(shape) if own is None else own
        return numpyro.sample(name, prior.expand(shape).to_event(own) if shape else prior)

    def real(self, *shape):
        return self.one_of(REAL)(self, shape)

    def positive(self, *shape):
        return self.one_of(POSITIVE)(self, shape)

    def weights(self, size, *shape):
        """Logarithms of probabilities along a last axis of this size."""
        return self.one_of(WEIGHTS)(self, size, shape)

    def emission(self, size, x, y, counts):
        """Log-likelihood of each datum in each component."""
        return self.one_of(EMISSIONS)(self, size, x, y, counts)


# ---- priors ----------------------------------------------------------------------------------------------------------


def shared_hyperpriors(m, shape):
    return m.sample(dist.Normal(m.sample(dist.Normal(0.0, 1.0)), m.sample(dist.HalfNormal(1.0))), shape)


def off_centre(m, shape):
    z = m.sample(dist.Normal(0.0, 1.0), shape)
    return m.sample(dist.Normal(0.0, 2.0)) + z * m.sample(dist.HalfCauchy(1.0))


def own_scales(m, shape):
    return m.sample(dist.Normal(0.0, m.sample(dist.HalfCauchy(1.0), shape[-1:])), shape)


def a_law(law):
    def independent(m, shape):
        return m.sample(law, shape)

    return independent


def shared_rate(m, shape):
    return m.sample(dist.Gamma(2.0, m.sample(dist.Gamma(2.0, 1.0))), shape)


def exponential(m, shape):
    return jnp.exp(m.sample(dist.Normal(0.0, 1.0), shape))


REAL = [a_law(dist.Normal(0.0, 1.0)), a_law(dist.StudentT(3.0, 0.0, 1.0)), shared_hyperpriors, off_centre, own_scales]
POSITIVE = [a_law(dist.HalfNormal(1.0)), a_law(dist.InverseGamma(3.0, 2.0)), shared_rate, exponential]


def dirichlet(m, size, shape):
    return jnp.log(m.sample(dist.Dirichlet(jnp.ones(size)), shape))


def dirichlet_of_one_concentration(m, size, shape):
    return jnp.log(m.sample(dist.Dirichlet(jnp.full(size, m.sample(dist.Gamma(2.0, 2.0)))), shape))


def dirichlet_about_another(m, size, shape):
    return jnp.log(m.sample(dist.Dirichlet(5.0 * m.sample(dist.Dirichlet(jnp.ones(size)))), shape))


def softmax(m, size, shape):
    return log_softmax(m.real(*shape, size))


def softmax_with_a_reference(m, size, shape):
    return log_softmax(jnp.concatenate([m.real(*shape, size - 1), jnp.zeros((*shape, 1))], -1))


def normalised(m, size, shape):
    value = m.sample(dist.Gamma(1.0, 1.0), (*shape, size))
    return jnp.log(value / value.sum(-1, keepdims=True))


WEIGHTS = [
    dirichlet, dirichlet_of_one_concentration, dirichlet_about_another, softmax, softmax_with_a_reference, normalised,
]  # fmt: skip

# ---- emissions -------------------------------------------------------------------------------------------------------


def gaussian(m, size, x, y, counts):
    loc = m.real(size)
    return dist.Normal(loc, m.positive(size) if m.rng.random() < 0.6 else m.positive()).log_prob(y[:, None])


def regression(m, size, x, y, counts):
    return dist.Normal(x @ m.real(2, size), m.positive()).log_prob(y[:, None])


def regression_by_rows(m, size, x, y, counts):
    return dist.Laplace(x @ m.real(size, 2).T + m.real(size), 1.0).log_prob(y[:, None])


def classes(m, size, x, y, counts):
    return m.weights(NUM_CLASSES, size)[:, counts].T


def poisson(m, size, x, y, counts):
    return dist.Poisson(m.positive(size)).log_prob(counts[:, None])


def binomial(m, size, x, y, counts):
    return dist.Binomial(NUM_CLASSES, m.sample(dist.Beta(1.0, 1.0), (size,))).log_prob(counts[:, None])


def vectors(m, size, x, y, counts):
    loc, factor = m.real(size, 2), jax.vmap(jnp.diag)(m.positive(size, 2))
    return dist.MultivariateNormal(loc, scale_tril=factor).log_prob(x[:, None])


def one_by_one(m, size, x, y, counts):
    return jnp.stack([dist.StudentT(4.0, loc, 1.0).log_prob(y) for loc in m.real(size)], -1)


EMISSIONS = [gaussian, regression, regression_by_rows, classes, poisson, binomial, vectors, one_by_one]

# ---- blocks ----------------------------------------------------------------------------------------------------------


def mixture(m, *data):
    size = int(m.rng.choice(SIZES))
    return logsumexp(m.weights(size) + m.emission(size, *data), -1).sum()


def mixture_of_two_data(m, *data):
    size = int(m.rng.choice(SIZES))
    return logsumexp(m.weights(size) + m.emission(size, *data) + m.emission(size, *data), -1).sum()


def experts(m, x, *data):
    size = int(m.rng.choice(SIZES))
    return logsumexp(log_softmax(x @ m.real(2, size) + m.real(size)) + m.emission(size, x, *data), -1).sum()


def hidden_markov(m, *data):
    size = int(m.rng.choice(SIZES))
    move, first, emitted = m.weights(size, size), m.weights(size), m.emission(size, *data)

    def step(before, here):
        return logsumexp(before[:, None] + move, 0) + here, None

    return logsumexp(jax.lax.scan(step, first + emitted[0], emitted[1:])[0])


def admixture(m, *data):
    size, group = int(m.rng.choice(SIZES)), np.arange(NUM_DATA) % 2
    return logsumexp(m.weights(size, 2)[group] + m.emission(size, *data), -1).sum()


def two_labels(m, *data):
    one, other = m.rng.permutation(SIZES).tolist()
    first, second = m.weights(one), m.weights(other)
    first, second = first + m.emission(one, *data), second + m.emission(other, *data)
    return logsumexp(first[:, :, None] + second[:, None], (1, 2)).sum()


def factors(m, x, *data):
    size = int(m.rng.choice(SIZES))
    return dist.Normal(m.real(NUM_DATA, size) @ m.real(size, 2), 1.0).log_prob(x).sum()


def stochastic_blocks(m, *data):
    size, at = int(m.rng.choice(SIZES)), np.arange(NUM_DATA)
    edge, member = m.sample(dist.Beta(1.0, 1.0), (size, size)), jnp.exp(m.weights(size, NUM_DATA))
    probability = jnp.clip(member @ edge @ member.T, 1e-6, 1.0 - 1e-6)
    return dist.Bernoulli(probability).log_prob((at[:, None] + at**2) % 2).sum()


BLOCKS = [
    mixture, mixture_of_two_data, experts, hidden_markov, admixture, two_labels, factors, stochastic_blocks,
]  # fmt: skip

# ---- by trying -------------------------------------------------------------------------------------------------------


def data_of(rng):
    return rng.normal(size=(NUM_DATA, 2)), rng.normal(size=NUM_DATA), rng.integers(0, NUM_CLASSES, NUM_DATA)


def drawn(model, data, seed):
    """Latent values of the prior, whose shapes the model learns, and the sites that hold any real numbers."""
    sites = trace(seeded(model, jax.random.key(seed))).get_trace(*data)
    latent = {name: site for name, site in sites.items() if site["type"] == "sample" and not site["is_observed"]}
    model.shapes = {name: np.shape(site["value"]) for name, site in latent.items()}
    real = {name for name, site in latent.items() if is_real(site["fn"].support)}
    return {name: np.asarray(site["value"]) for name, site in latent.items()}, real


def is_real(support):
    return support is dist.constraints.real or getattr(support, "base_constraint", None) is dist.constraints.real


def all_symmetry(model, data, values, real):
    """The smallest sets of axes that may be permuted together, those of which any index may be negated; the density."""
    density = jax.jit(lambda latent: log_density(model, data, {}, latent)[0])
    before = density(values)

    def may_be(tried, changed):
        return lambda some: all(
            abs(density(changed(values, some, one)) - before) <= 1e-9 * (1.0 + abs(before)) for one in tried
        )

    permuted, negated = [], []
    for size in SIZES:
        turned = [np.roll(np.arange(size), 1), [1, 0, *range(2, size)]]
        permuted += smallest(slots_of(model, values, size), may_be(turned, moved))
        negated += smallest(slots_of(model, real, size), may_be(np.where(np.eye(size), -1.0, 1.0), scaled))
    return permuted, negated, density
