"""The mixtures, Markov models and factor models of the prototype's labelled models."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.nn import logsumexp

from tests.gallery.case import Cases
from tests.gallery.parts import PAIRS, TOKENS, X, Y, categories, normal, observe, weights

CASES = Cases()


def observe_mixture(weights, components, value):
    """Observe independent draws of a mixture."""
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(weights), components), obs=value)


@CASES.add("gmm", "S4", Y, shown="Mixtures and hidden Markov models")
def gmm(y):
    """A mixture of normals."""
    scale = numpyro.sample("scale", dist.HalfNormal(1).expand([4]))
    observe_mixture(weights(4), dist.Normal(normal("loc", 4, scale=3), scale), y)


@CASES.add("gmm-multivariate", "S4", X)
def gmm_multivariate(x):
    """A mixture in three dimensions, components and data in plates."""
    weight = weights(4)
    with numpyro.plate("components", 4):
        loc = numpyro.sample("loc", dist.Normal(0, 3).expand([3]).to_event(1))
        scale = numpyro.sample("scale", dist.HalfNormal(1).expand([3]).to_event(1))
    with numpyro.plate("data", len(x)):
        observe_mixture(weight, dist.Normal(loc, scale).to_event(1), x)


@CASES.add("gmm-full-covariance", "S4", X, shown="Mixtures and hidden Markov models")
def gmm_full_covariance(x):
    """A mixture whose components have correlations."""
    weight = weights(4)
    with numpyro.plate("components", 4):
        loc = numpyro.sample("loc", dist.Normal(0, 3).expand([3]).to_event(1))
        tril = numpyro.sample("tril", dist.LKJCholesky(3, 1.0))
    observe_mixture(weight, dist.MultivariateNormal(loc, scale_tril=tril), x)


@CASES.add(
    "gmm-asymmetric-dirichlet",
    "trivial",
    Y,
    why="the prior of the weights tells components apart",
    shown="Mixtures and hidden Markov models",
)
def gmm_asymmetric_dirichlet(y):
    """A Dirichlet prior with four different concentrations."""
    weight = numpyro.sample("weights", dist.Dirichlet(jnp.arange(1.0, 5.0)))
    observe_mixture(weight, dist.Normal(normal("loc", 4, scale=3), 1.0), y)


@CASES.add(
    "gmm-ordered-locs",
    "trivial",
    Y,
    why="the locations are ordered",
    quick=True,
    shown="Mixtures and hidden Markov models",
)
def gmm_ordered_locs(y):
    """Locations that increase."""
    base = dist.Normal(0, 3).expand([4]).to_event(1)
    loc = numpyro.sample("loc", dist.TransformedDistribution(base, dist.transforms.OrderedTransform()))
    observe_mixture(weights(4), dist.Normal(loc, 1.0), y)


@CASES.add(
    "dp-stick-breaking", "trivial", Y, why="sticks are broken in order", shown="Mixtures and hidden Markov models"
)
def dp_stick_breaking(y):
    """A truncated Dirichlet process."""
    sticks = numpyro.sample("sticks", dist.Beta(1, 2.0).expand([3]))
    left = jnp.concatenate([jnp.ones(1), jnp.cumprod(1 - sticks)])
    weight = jnp.concatenate([sticks, jnp.ones(1)]) * left
    observe_mixture(weight, dist.Normal(normal("loc", 4, scale=3), 1.0), y)


@CASES.add("gmm-enumerated", "S4", Y, enumerated=True, needs=("funsor",), shown="Mixtures and hidden Markov models")
def gmm_enumerated(y):
    """A mixture whose assignments are summed out."""
    weight = weights(4)
    with numpyro.plate("components", 4):
        loc = numpyro.sample("loc", dist.Normal(0, 3))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Categorical(weight), infer={"enumerate": "parallel"})
        numpyro.sample("obs", dist.Normal(loc[z], scale[z]), obs=y)


def hidden_markov(y, concentration):
    """Three states, normal emissions, the forward algorithm in a scan."""
    transition = numpyro.sample("transition", dist.Dirichlet(concentration).to_event(1))
    initial, loc = weights(3, "initial"), normal("loc", 3, scale=3)
    emission = dist.Normal(loc, 1.0).log_prob(y[:, None])

    def forward(log_alpha, log_emission):
        return logsumexp(log_alpha[:, None] + jnp.log(transition), axis=0) + log_emission, None

    log_alpha, _ = jax.lax.scan(forward, jnp.log(initial) + emission[0], emission[1:])
    numpyro.factor("likelihood", logsumexp(log_alpha))


@CASES.add("hmm-forward-scan", "S3", Y, shown="Mixtures and hidden Markov models")
def hmm_forward_scan(y):
    """A hidden Markov model with a flat prior of the transitions."""
    hidden_markov(y, jnp.ones((3, 3)))


@CASES.add("hmm-sticky-prior", "S3", Y, shown="Mixtures and hidden Markov models")
def hmm_sticky_prior(y):
    """Each state prefers to stay: rows and columns still move together."""
    hidden_markov(y, jnp.ones((3, 3)) + 10 * jnp.eye(3))


@CASES.add("hmm-left-to-right-prior", "trivial", Y, why="states prefer to move up")
def hmm_left_to_right_prior(y):
    """A prior that favours moves to later states."""
    hidden_markov(y, jnp.triu(jnp.ones((3, 3))) + 0.1)


@CASES.add(
    "hmm-enumerated-fixed-start",
    "S2",
    Y,
    enumerated=True,
    why="the chain starts from state 0",
    needs=("funsor",),
    shown="Mixtures and hidden Markov models",
)
def hmm_enumerated_fixed_start(y):
    """A hidden Markov model whose states are summed out."""
    from numpyro.contrib.control_flow import scan

    transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones((3, 3))).to_event(1))
    loc = normal("loc", 3, scale=3)

    def step(z, y):
        z = numpyro.sample("z", dist.Categorical(transition[z]), infer={"enumerate": "parallel"})
        numpyro.sample("obs", dist.Normal(loc[z], 1.0), obs=y)
        return z, None

    scan(step, 0, y)


@CASES.add("factor-analysis", "S2", X, signed="±S2", quick=True, shown="Factor models and others")
def factor_analysis(x):
    """Two factors with explicit scores."""
    loadings, scores = normal("loadings", 3, 2), normal("scores", 12, 2)
    observe(scores @ loadings.T, x, numpyro.sample("scale", dist.HalfNormal(1.0)))


@CASES.add("factor-analysis-marginal", "S2", X, signed="±S2", by_numbers=True, quick=True)
def factor_analysis_marginal(x):
    """Two factors whose scores are integrated out."""
    loadings = normal("loadings", 3, 2)
    noise = numpyro.sample("noise", dist.HalfNormal(1.0).expand([3]).to_event(1))
    numpyro.sample("obs", dist.LowRankMultivariateNormal(jnp.zeros(3), loadings, noise), obs=x)


@CASES.add("factor-analysis-triangular", "trivial", X, why="the first feature loads on the first factor only")
def factor_analysis_triangular(x):
    """Lower-triangular loadings, scattered from a vector."""
    rows, columns = jnp.array([0, 1, 1, 2, 2]), jnp.array([0, 0, 1, 0, 1])
    loadings = jnp.zeros((3, 2)).at[rows, columns].set(normal("loadings", 5))
    observe(normal("scores", 12, 2) @ loadings.T, x)


@CASES.add("eight-schools", "trivial", Y, why="each school has its datum", quick=True, shown="Factor models and others")
def eight_schools(y):
    """Effects of groups around a common mean."""
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    scale = numpyro.sample("scale", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(y)):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
        numpyro.sample("obs", dist.Normal(effect, 1.0), obs=y)


@CASES.add("group-regression", "trivial", X, Y, categories(8, 5, 12), why="groups and features are data")
def group_regression(x, y, group):
    """An intercept for each group, a slope for each feature."""
    observe(normal("intercept", 5)[group] + x @ normal("slope", 3), y)


@CASES.add("random-walk", "trivial", Y, why="time has a direction and data")
def random_walk(y):
    """A latent random walk."""
    observe(numpyro.sample("walk", dist.GaussianRandomWalk(0.1, num_steps=len(y))), y)


@CASES.add("gp-latent", "trivial", X, Y, why="inputs and responses are data")
def gp_latent(x, y):
    """A Gaussian process at the inputs."""
    distance = ((x[:, None] - x[None]) ** 2).sum(-1)
    covariance = jnp.exp(-distance) + 0.1 * jnp.eye(len(x))
    observe(numpyro.sample("f", dist.MultivariateNormal(jnp.zeros(len(x)), covariance)), y)


@CASES.add("mixture-per-response", "(S3)^2", PAIRS, why="the two responses are data")
def mixture_per_response(y):
    """A mixture of its own for each of two responses."""
    weight = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)).expand([2]).to_event(1))
    observe_mixture(weight, dist.Normal(normal("loc", 2, 3), 1.0), y)


@CASES.add("topics", "S3", TOKENS, shown="Factor models and others")
def topics(tokens):
    """Latent Dirichlet allocation, assignments summed out."""
    mixing = numpyro.sample("mixing", dist.Dirichlet(jnp.ones(3)).expand([6]).to_event(1))
    words = numpyro.sample("words", dist.Dirichlet(jnp.ones(7)).expand([3]).to_event(1))
    numpyro.factor("likelihood", jnp.log(jnp.take_along_axis(mixing @ words, tokens, axis=1)).sum())
