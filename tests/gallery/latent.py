"""Hierarchies, processes, distributions of many kinds: mostly what data fix, and some that they do not."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from tests.gallery.case import Cases
from tests.gallery.parts import PAIRS, X, Y, categories, gaussian, normal, observe, weights

CASES = Cases()
DATED = "each latent value has its datum"
GROUP = categories(70, 4, 12)
COUNTS = categories(71, 6, 12)
TIMES = jnp.linspace(0.1, 3.0, 12)


@CASES.add("hierarchical-slopes", "trivial", X, Y, GROUP, why="groups and features are data")
def hierarchical_slopes(x, y, group):
    """Slopes of groups around common slopes, with latent correlations."""
    mean, tril = normal("mean", 3), numpyro.sample("tril", dist.LKJCholesky(3, 1.0))
    with numpyro.plate("groups", 4):
        slope = numpyro.sample("slope", dist.MultivariateNormal(mean, scale_tril=tril))
    observe((x * slope[group]).sum(-1), y)


@CASES.add("poisson-overdispersed", "trivial", X, COUNTS, why=DATED)
def poisson_overdispersed(x, counts):
    """A latent excess for each count."""
    with numpyro.plate("data", len(counts)):
        excess = numpyro.sample("excess", dist.Gamma(2.0, 2.0))
        numpyro.sample("obs", dist.Poisson(excess * jnp.exp(x @ jnp.ones(3))), obs=counts)


@CASES.add("cox-process", "trivial", COUNTS, why="time has a direction and data")
def cox_process(counts):
    """A log-Gaussian intensity on a grid."""
    covariance = jnp.exp(-jnp.abs(TIMES[:, None] - TIMES)) + 1e-3 * jnp.eye(12)
    log_rate = numpyro.sample("log_rate", dist.MultivariateNormal(jnp.zeros(12), covariance))
    numpyro.sample("obs", dist.Poisson(jnp.exp(log_rate)).to_event(1), obs=counts)


@CASES.add("survival-frailty", "trivial", X, TIMES, GROUP, Y > 0, why="groups, covariates and times are data")
def survival_frailty(x, time, group, censored):
    """Weibull times with group frailties; censored ones by their survival."""
    frailty = numpyro.sample("frailty", dist.Gamma(2.0, 2.0).expand([4]).to_event(1))
    shape = numpyro.sample("shape", dist.HalfNormal(1.0))
    rate = frailty[group] * jnp.exp(x @ normal("slope", 3))
    hazard = jnp.where(censored, 0.0, jnp.log(rate * shape) + (shape - 1) * jnp.log(time))
    numpyro.factor("likelihood", (hazard - rate * time**shape).sum())


@CASES.add("spline", "trivial", Y, why="the basis is fixed")
def spline(y):
    """Weights of radial basis functions, smooth by a random-walk prior."""
    basis = jnp.exp(-((TIMES[:, None] - jnp.linspace(0.0, 3.0, 5)) ** 2))
    weight = numpyro.sample("weight", dist.GaussianRandomWalk(1.0, num_steps=5))
    observe(basis @ weight, y)


@CASES.add("additive-model", "trivial", X, Y, why="each function has its covariate")
def additive_model(x, y):
    """A function of each covariate, summed."""
    basis = jnp.sin(x[:, :, None] * jnp.arange(1.0, 5.0))
    observe(jnp.einsum("ndk,dk->n", basis, normal("weight", 3, 4)), y)


@CASES.add("radial-basis-latent-centres", "S5", TIMES, Y)
def radial_basis_latent_centres(time, y):
    """Bumps at latent places, of latent widths and heights."""
    centre = numpyro.sample("centre", dist.Uniform(0, 3).expand([5]).to_event(1))
    width = numpyro.sample("width", dist.InverseGamma(3.0, 1.0).expand([5]).to_event(1))
    observe(jnp.exp(-(((time[:, None] - centre) / width) ** 2)) @ normal("height", 5), y)


@CASES.add("sum-of-sinusoids", "S3", TIMES, Y)
def sum_of_sinusoids(time, y):
    """Amplitudes, frequencies and phases of three waves, phases on the circle."""
    phase = numpyro.sample("phase", dist.VonMises(0.0, 0.1).expand([3]).to_event(1))
    frequency = numpyro.sample("frequency", dist.HalfCauchy(1.0).expand([3]).to_event(1))
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(1.0).expand([3]).to_event(1))
    observe((amplitude * jnp.sin(frequency * time[:, None] + phase)).sum(-1), y)


@CASES.add("exchangeable-covariance", "S5", X, Y, by_numbers=True)
def exchangeable_covariance(x, y):
    """Output weights with equal variances and equal correlations: units still move."""
    covariance = 0.5 * jnp.eye(5) + 0.3 * jnp.ones((5, 5))
    out = numpyro.sample("out", dist.MultivariateNormal(jnp.zeros(5), covariance))
    observe(jnp.tanh(x @ normal("kernel", 3, 5)) @ out, y)


@CASES.add("banded-covariance", "trivial", X, Y, why="neighbouring units are correlated, and the chain has two ends")
def banded_covariance(x, y):
    """Output weights with correlations of neighbours."""
    covariance = jnp.eye(4) + 0.4 * (jnp.eye(4, k=1) + jnp.eye(4, k=-1))
    out = numpyro.sample("out", dist.MultivariateNormal(jnp.zeros(4), covariance))
    observe(jnp.tanh(x @ normal("kernel", 3, 4)) @ out, y)


@CASES.add(
    "block-covariance",
    "S2 x S3",
    X,
    Y,
    why="two blocks of units with different correlations",
    by_numbers=True,
    quick=True,
)
def block_covariance(x, y):
    """Two and three units, correlated within their blocks."""
    block = jnp.array([0, 0, 1, 1, 1])
    covariance = jnp.eye(5) + jnp.array([0.3, 0.5])[block] * (block[:, None] == block)
    out = numpyro.sample("out", dist.MultivariateNormal(jnp.zeros(5), covariance))
    observe(jnp.tanh(x @ normal("kernel", 3, 5)) @ out, y)


@CASES.add("latent-tril", "trivial", X, why="data, and a triangular factor, which has an order")
def latent_tril(x):
    """A covariance by LKJ and scales."""
    tril = numpyro.sample("tril", dist.LKJCholesky(3, 1.0))
    scale = numpyro.sample("scale", dist.InverseGamma(2.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("obs", dist.MultivariateNormal(normal("mean", 3), scale_tril=scale[:, None] * tril), obs=x)


@CASES.add("zero-sum-effects", "S4", X, Y, by_numbers=True, quick=True)
def zero_sum_effects(x, y):
    """Output weights that sum to zero."""
    out = numpyro.sample("out", dist.ZeroSumNormal(1.0, event_shape=(4,)))
    observe(jnp.tanh(x @ normal("kernel", 3, 4)) @ out, y)


@CASES.add("zero-sum-groups", "trivial", Y, GROUP, why="groups are data")
def zero_sum_groups(y, group):
    """Effects of groups that sum to zero."""
    observe(numpyro.sample("effect", dist.ZeroSumNormal(1.0, event_shape=(4,)))[group], y)


@CASES.add("ordered-cutpoints", "trivial", X, COUNTS, why="cut points are ordered")
def ordered_cutpoints(x, grades):
    """Ordinal regression."""
    base = dist.Normal(0, 2).expand([5]).to_event(1)
    cut = numpyro.sample("cut", dist.TransformedDistribution(base, dist.transforms.OrderedTransform()))
    numpyro.sample("obs", dist.OrderedLogistic(x @ normal("slope", 3), cut), obs=grades)


@CASES.add("circulant-prior", "trivial", X, Y, why="only turns and reflections of the circle are left, no permutations")
def circulant_prior(x, y):
    """Output weights correlated around a circle."""
    out = numpyro.sample("out", dist.CirculantNormal(jnp.zeros(6), covariance_row=0.5 ** jnp.array([0, 1, 2, 3, 2, 1])))
    observe(jnp.tanh(x @ normal("kernel", 3, 6)) @ out, y)


@CASES.add("improper-flat", "S4", X, Y, signed="±S4")
def improper_flat(x, y):
    """Flat priors."""
    out = numpyro.sample("out", dist.ImproperUniform(constraints.real, (), (4,)))
    observe(jnp.tanh(x @ normal("kernel", 3, 4)) @ out, y)


@CASES.add("spike-and-slab-soft", "S4", X, Y)
def spike_and_slab_soft(x, y):
    """Units switched by a Beta, itself governed by a common chance."""
    chance = numpyro.sample("chance", dist.Beta(1, 1))
    switch = numpyro.sample("switch", dist.Beta(chance, 1 - chance).expand([4]).to_event(1))
    observe((jnp.tanh(x @ normal("kernel", 3, 4)) * switch) @ normal("out", 4), y)


@CASES.add("dirichlet-horseshoe", "S4", X, Y)
def dirichlet_horseshoe(x, y):
    """A simplex shares one scale among the units."""
    total = numpyro.sample("total", dist.HalfCauchy(1.0))
    out = numpyro.sample("out", dist.Laplace(0, total * weights(4, "share")).to_event(1))
    observe(jax.nn.relu(x @ normal("kernel", 3, 4)) @ out, y)


@CASES.add("student-errors-scales", "trivial", X, Y, why=DATED)
def student_errors_scales(x, y):
    """A latent scale for each error."""
    scale = numpyro.sample("scale", dist.InverseGamma(2.0, 2.0).expand([12]).to_event(1))
    observe(x @ normal("slope", 3), y, jnp.sqrt(scale))


@CASES.add("seemingly-unrelated", "S5", X, PAIRS)
def seemingly_unrelated(x, y):
    """Two responses of a network with correlated errors."""
    tril = numpyro.sample("tril", dist.LKJCholesky(2, 1.0))
    mean = jnp.tanh(x @ normal("kernel", 3, 5)) @ normal("out", 5, 2)
    numpyro.sample("obs", dist.MultivariateNormal(mean, scale_tril=tril), obs=y)


@CASES.add("gaussian-state-space", "trivial", Y, why="time has a direction and data")
def gaussian_state_space(y):
    """A distribution over paths of two states, whose transitions are given and different."""
    matrix = jnp.array([[0.9, 0.0], [0.1, 0.5]])
    path = numpyro.sample("path", dist.GaussianStateSpace(12, matrix, covariance_matrix=0.1 * jnp.eye(2)))
    observe(path @ jnp.array([1.0, 0.5]), y)


@CASES.add("smooth-images", "trivial", gaussian(72, 4, 4), why="pixels have places and data")
def smooth_images(image):
    """A latent image with a smoothness factor."""
    latent = normal("latent", 4, 4)
    roughness = (jnp.diff(latent, axis=0) ** 2).sum() + (jnp.diff(latent, axis=1) ** 2).sum()
    numpyro.factor("smooth", -roughness)
    observe(latent, image)
