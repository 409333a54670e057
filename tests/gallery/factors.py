"""Factor models: matrices and tensors as sums over factors, traits, blocks."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.nn import logsumexp, sigmoid

from tests.gallery.case import Cases
from tests.gallery.parts import TOKENS, X, categories, gaussian, normal, observe, weights

CASES = Cases()
COUNTS = categories(60, 5, 6, 7)
ANSWERS = categories(63, 2, 8, 6)
TENSOR = gaussian(62, 4, 5, 6)
MATRIX = gaussian(61, 6, 7)
LINKS = categories(64, 2, 8, 8)
ROWS, COLUMNS = categories(65, 6, 15), categories(66, 7, 15)
STARS = gaussian(67, 15)


def gamma(name, *shape):
    """Sample independent gammas."""
    return numpyro.sample(name, dist.Gamma(1.0, 1.0).expand(shape).to_event(len(shape)))


@CASES.add("nmf-poisson", "S3", COUNTS)
def nmf_poisson(counts):
    """Poisson counts from a product of positive matrices."""
    rate = gamma("rows", 6, 3) @ gamma("columns", 3, 7)
    numpyro.sample("obs", dist.Poisson(rate).to_event(2), obs=counts)


@CASES.add("nmf-ard", "S3", COUNTS)
def nmf_ard(counts):
    """A latent relevance for each factor shapes both matrices' priors."""
    relevance = gamma("relevance", 3)
    rows = numpyro.sample("rows", dist.Gamma(2.0, relevance).expand([6, 3]).to_event(2))
    columns = numpyro.sample("columns", dist.Exponential(relevance[:, None]).expand([3, 7]).to_event(2))
    numpyro.sample("obs", dist.Poisson(rows @ columns).to_event(2), obs=counts)


@CASES.add("matrix-factorisation", "S3", ROWS, COLUMNS, STARS, signed="±S3", shown="Factor models and others")
def matrix_factorisation(row, column, stars):
    """Ratings of some pairs by a product of factors: users and items are data."""
    user, item = normal("user", 6, 3), normal("item", 7, 3)
    bias = normal("user_bias", 6)[row] + normal("item_bias", 7)[column]
    observe((user[row] * item[column]).sum(-1) + bias, stars, 0.5)


@CASES.add("matrix-factorisation-plates", "S3", MATRIX, signed="±S3")
def matrix_factorisation_plates(matrix):
    """The same with plates, a latent scale for each factor."""
    spread = numpyro.sample("spread", dist.HalfNormal(1.0).expand([3]).to_event(1))
    with numpyro.plate("rows", 6):
        left = numpyro.sample("left", dist.Normal(0, spread).to_event(1))
    with numpyro.plate("columns", 7):
        right = numpyro.sample("right", dist.Normal(0, 1).expand([3]).to_event(1))
    observe(left @ right.T, matrix)


@CASES.add("singular-values-positive", "S3", MATRIX, signed="±S3")
def singular_values_positive(matrix):
    """Left times positive singular values times right."""
    scale = numpyro.sample("scale", dist.LogNormal(0, 1).expand([3]).to_event(1))
    observe((normal("left", 6, 3) * scale) @ normal("right", 7, 3).T, matrix)


@CASES.add("singular-values-ordered", "trivial", MATRIX, why="singular values are sorted by a cumulative sum")
def singular_values_ordered(matrix):
    """Singular values that grow by positive steps."""
    scale = jnp.cumsum(numpyro.sample("step", dist.LogNormal(0, 1).expand([3]).to_event(1)))
    observe((normal("left", 6, 3) * scale) @ normal("right", 7, 3).T, matrix)


@CASES.add("ica-laplace", "S3", X, signed="±S3")
def ica_laplace(x):
    """Independent Laplace sources, explicit."""
    source = numpyro.sample("source", dist.Laplace(0, 1).expand([12, 3]).to_event(2))
    observe(source @ normal("mixing", 3, 3), x)


@CASES.add("ica-unmixing", "S3", X, signed="±S3", by_numbers=True, quick=True, shown="Factor models and others")
def ica_unmixing(x):
    """The density of sources through an unmixing matrix and its determinant."""
    unmixing = normal("unmixing", 3, 3)
    _, log_det = jnp.linalg.slogdet(unmixing)
    numpyro.factor("likelihood", dist.Laplace(0, 1).log_prob(x @ unmixing).sum() + len(x) * log_det)


@CASES.add("probabilistic-pca", "S2", X, signed="±S2", shown="Factor models and others")
def probabilistic_pca(x):
    """Scores integrated out, the covariance written in full."""
    loadings = normal("loadings", 3, 2)
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    covariance = loadings @ loadings.T + (noise**2 + 1e-3) * jnp.eye(3)
    numpyro.sample("obs", dist.MultivariateNormal(jnp.zeros(3), covariance), obs=x)


@CASES.add("factor-analysis-correlated", "S3", gaussian(68, 12, 5), signed="±S3", by_numbers=True)
def factor_analysis_correlated(x):
    """Factors with latent correlations under an LKJ prior."""
    covariance = numpyro.sample("correlation", dist.LKJ(3, 2.0))
    score = numpyro.sample("score", dist.MultivariateNormal(jnp.zeros(3), covariance).expand([12]).to_event(1))
    observe(score @ normal("loadings", 3, 5), x)


@CASES.add(
    "factor-analysis-correlated-cholesky",
    "trivial",
    gaussian(68, 12, 5),
    why="permuting a triangular factor's axes leaves no triangular factor",
)
def factor_analysis_correlated_cholesky(x):
    """The same correlations by their triangular factor, on which no permutation of axes acts."""
    tril = numpyro.sample("tril", dist.LKJCholesky(3, 2.0))
    prior = dist.MultivariateNormal(jnp.zeros(3), scale_tril=tril)
    score = numpyro.sample("score", prior.expand([12]).to_event(1))
    observe(score @ normal("loadings", 3, 5), x)


@CASES.add("cp-decomposition", "S3", TENSOR)
def cp_decomposition(tensor):
    """A tensor as a sum of three outer products."""
    first, second, third = (normal(name, size, 3) for name, size in (("a", 4), ("b", 5), ("c", 6)))
    observe(jnp.einsum("ir,jr,kr->ijk", first, second, third), tensor)


@CASES.add("tucker-decomposition", "S2 x S3 x S4", TENSOR, signed="±S2 x ±S3 x ±S4", shown="Factor models and others")
def tucker_decomposition(tensor):
    """A core tensor with a matrix for each side: every side of the core moves."""
    sides = normal("a", 4, 2), normal("b", 5, 3), normal("c", 6, 4)
    observe(jnp.einsum("abc,ia,jb,kc->ijk", normal("core", 2, 3, 4), *sides), tensor)


@CASES.add("irt-one-trait", "trivial", ANSWERS, why="people and items are data")
def irt_one_trait(answers):
    """Two-parameter item response theory."""
    trait = normal("trait", 8)
    slope = numpyro.sample("slope", dist.LogNormal(0, 0.5).expand([6]).to_event(1))
    logits = slope * (trait[:, None] - normal("difficulty", 6))
    numpyro.sample("obs", dist.Bernoulli(logits=logits).to_event(2), obs=answers)


@CASES.add("irt-two-traits", "S2", ANSWERS, signed="±S2")
def irt_two_traits(answers):
    """Item response theory with two traits and unrestricted slopes."""
    logits = normal("trait", 8, 2) @ normal("slope", 2, 6) - normal("difficulty", 6)
    numpyro.sample("obs", dist.Bernoulli(logits=logits).to_event(2), obs=answers)


@CASES.add("irt-anchored-slopes", "trivial", ANSWERS, why="some slopes are fixed at zero")
def irt_anchored_slopes(answers):
    """The first item measures the first trait only, by a mask."""
    mask = jnp.ones((2, 6)).at[1, 0].set(0.0)
    logits = normal("trait", 8, 2) @ (normal("slope", 2, 6) * mask) - normal("difficulty", 6)
    numpyro.sample("obs", dist.Bernoulli(logits=logits).to_event(2), obs=answers)


@CASES.add("block-model-soft", "S3", LINKS, shown="Factor models and others")
def block_model_soft(links):
    """Mixed memberships of nodes; a matrix of chances between blocks, both of whose axes move."""
    member = numpyro.sample("member", dist.Dirichlet(jnp.ones(3)).expand([8]).to_event(1))
    chance = numpyro.sample("chance", dist.Beta(1, 1).expand([3, 3]).to_event(2))
    numpyro.sample("obs", dist.Bernoulli(member @ chance @ member.T).to_event(2), obs=links)


@CASES.add("block-model-assortative-prior", "S3", LINKS)
def block_model_assortative_prior(links):
    """Links within blocks are likelier a priori: the prior's matrix has a diagonal."""
    member = numpyro.sample("member", dist.Dirichlet(jnp.ones(3)).expand([8]).to_event(1))
    chance = numpyro.sample("chance", dist.Beta(1 + 4 * jnp.eye(3), 5 - 4 * jnp.eye(3)).to_event(2))
    numpyro.sample("obs", dist.Bernoulli(member @ chance @ member.T).to_event(2), obs=links)


@CASES.add("block-model-bipartite", "S3 x S4", MATRIX)
def block_model_bipartite(matrix):
    """Rows and columns have blocks of their own."""
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(3)).expand([6]).to_event(1))
    columns = numpyro.sample("columns", dist.Dirichlet(jnp.ones(4)).expand([7]).to_event(1))
    observe(rows @ normal("level", 3, 4) @ columns.T, matrix)


@CASES.add("latent-space-network", "S2", LINKS, signed="±S2")
def latent_space_network(links):
    """Nodes at latent places, links by distance: the coordinates move."""
    place = normal("place", 8, 2)
    distance = jnp.sqrt(((place[:, None] - place) ** 2).sum(-1) + 1e-3)
    numpyro.sample("obs", dist.Bernoulli(logits=normal("base") - distance).to_event(2), obs=links)


@CASES.add("topics-hierarchical", "S3", TOKENS)
def topics_hierarchical(tokens):
    """Topics with latent base measure over words and latent weights of topics."""
    base = numpyro.sample("base", dist.Dirichlet(jnp.ones(7)))
    prevalence = weights(3, "prevalence")
    words = numpyro.sample("words", dist.Dirichlet(10 * base).expand([3]).to_event(1))
    mixing = numpyro.sample("mixing", dist.Dirichlet(5 * prevalence).expand([6]).to_event(1))
    per_topic = jnp.log(words)[:, tokens]
    numpyro.factor("likelihood", logsumexp(jnp.log(mixing).T[:, :, None] + per_topic, axis=0).sum())


@CASES.add("topics-seeded", "S2", TOKENS, why="the first topic's prior favours a word")
def topics_seeded(tokens):
    """A word seeds the first topic."""
    prior = jnp.ones((3, 7)).at[0, 2].set(9.0)
    words = numpyro.sample("words", dist.Dirichlet(prior).to_event(1))
    mixing = numpyro.sample("mixing", dist.Dirichlet(jnp.ones(3)).expand([6]).to_event(1))
    numpyro.factor("likelihood", jnp.log(jnp.take_along_axis(mixing @ words, tokens, axis=1)).sum())


@CASES.add("gp-factors", "S3", gaussian(69, 12, 5), signed="±S3")
def gp_factors(x):
    """Factors that are Gaussian processes in time with one kernel, loadings to five series."""
    times = jnp.arange(12.0)
    kernel = jnp.exp(-0.1 * (times[:, None] - times) ** 2) + 1e-3 * jnp.eye(12)
    path = numpyro.sample("path", dist.MultivariateNormal(jnp.zeros(12), kernel).expand([3]).to_event(1))
    observe(path.T @ normal("loadings", 3, 5), x)


@CASES.add("gp-factors-own-lengths", "trivial", gaussian(69, 12, 5), why="each factor has its own length of memory")
def gp_factors_own_lengths(x):
    """Factors whose kernels have given, different lengths."""
    times, length = jnp.arange(12.0), jnp.array([1.0, 2.0, 4.0])[:, None, None]
    kernel = jnp.exp(-(((times[:, None] - times) / length) ** 2)) + 1e-2 * jnp.eye(12)
    path = numpyro.sample("path", dist.MultivariateNormal(jnp.zeros(12), kernel).to_event(1))
    observe(path.T @ normal("loadings", 3, 5), x)


@CASES.add("logistic-factors", "S2 x S5", ANSWERS)
def logistic_factors(answers):
    """Item response theory whose items read traits through hidden units."""
    h = sigmoid(normal("trait", 8, 2) @ normal("read", 2, 5) + normal("bias", 5))
    numpyro.sample("obs", dist.Bernoulli(logits=h @ normal("slope", 5, 6)).to_event(2), obs=answers)
