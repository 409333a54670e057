"""Mixtures: components that can be exchanged, and those that have roles."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.nn import logsumexp, softmax

from tests.gallery.case import Cases
from tests.gallery.parts import PAIRS, X, Y, categories, normal, observe, weights

CASES = Cases()
COUNTS = categories(40, 9, 8, 5)
ANSWERS = categories(41, 2, 12, 6)
GROUP = categories(42, 4, 12)
RATINGS = categories(43, 4, 10, 5)  # ten items, five annotators, four grades


def observe_mixture(weights, components, value):
    """Observe independent draws of a mixture."""
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(weights), components), obs=value)


@CASES.add("mixture-softmax-weights", "S4", Y)
def mixture_softmax_weights(y):
    """Weights from a softmax of normals, scales from a common hyperprior."""
    spread = numpyro.sample("spread", dist.InverseGamma(2.0, 1.0))
    with numpyro.plate("components", 4):
        logit, loc = numpyro.sample("logit", dist.Normal(0, 1)), numpyro.sample("loc", dist.StudentT(3.0, 0.0, 2.0))
        precision = numpyro.sample("precision", dist.Gamma(2.0, spread))
    mixture = dist.MixtureSameFamily(dist.Categorical(logits=logit), dist.Normal(loc, precision**-0.5))
    numpyro.sample("obs", mixture.expand([len(y)]).to_event(1), obs=y)


@CASES.add("mixture-equal-weights", "S4", Y)
def mixture_equal_weights(y):
    """No latent weights: components still move."""
    observe_mixture(jnp.ones(4) / 4, dist.Normal(normal("loc", 4, scale=3), 1.0), y)


@CASES.add(
    "mixture-fixed-weights",
    "S2 x S3",
    Y,
    why="weights are given, in two sizes",
    shown="Mixtures and hidden Markov models",
)
def mixture_fixed_weights(y):
    """Given weights of two sizes leave two kinds of components."""
    weight = np.array([0.3, 0.3, 0.4 / 3, 0.4 / 3, 0.4 / 3])
    observe_mixture(weight, dist.Normal(normal("loc", 5, scale=3), 1.0), y)


@CASES.add("mixture-by-hand", "S4", Y)
def mixture_by_hand(y):
    """The log-sum-exp over components written out, as a factor."""
    log_weights = jnp.log(weights(4))
    with numpyro.plate("components", 4):
        loc, scale = numpyro.sample("loc", dist.Normal(0, 3)), numpyro.sample("scale", dist.LogNormal(0, 1))
    per_component = -0.5 * ((y[:, None] - loc) / scale) ** 2 - jnp.log(scale)
    numpyro.factor("likelihood", logsumexp(log_weights + per_component, axis=-1).sum())


@CASES.add("mixture-of-regressions", "S4", X, Y)
def mixture_of_regressions(x, y):
    """Each component has its slopes, intercept and noise."""
    with numpyro.plate("components", 4):
        slope = numpyro.sample("slope", dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
        offset, scale = numpyro.sample("offset", dist.Normal(0, 1)), numpyro.sample("scale", dist.HalfNormal(1.0))
    mean = jnp.einsum("nd,kd->nk", x, slope) + offset
    observe_mixture(jnp.broadcast_to(weights(4), (len(x), 4)), dist.Normal(mean, scale), y)


@CASES.add("latent-class-analysis", "S4", ANSWERS, enumerated=True, needs=("funsor",))
def latent_class_analysis(answers):
    """People in classes; each class has its chances of a yes to each question."""
    weight = weights(4)
    with numpyro.plate("questions", 6, dim=-1), numpyro.plate("classes", 4, dim=-2):
        chance = numpyro.sample("chance", dist.Beta(1.0, 1.0))
    with numpyro.plate("people", len(answers)):
        z = numpyro.sample("z", dist.Categorical(weight))
        numpyro.sample("obs", dist.Bernoulli(chance[z]).to_event(1), obs=answers)


@CASES.add("mixture-of-multinomials", "S3", COUNTS)
def mixture_of_multinomials(counts):
    """Documents of counts: words are data, topics move."""
    words = numpyro.sample("words", dist.Dirichlet(jnp.full(5, 0.5)).expand([3]).to_event(1))
    log_likelihood = counts @ jnp.log(words).T + jnp.log(weights(3))
    numpyro.factor("likelihood", logsumexp(log_likelihood, axis=-1).sum())


@CASES.add(
    "dawid-skene",
    "S4",
    RATINGS,
    why="true grades move, what annotators said are data",
    shown="Mixtures and hidden Markov models",
)
def dawid_skene(ratings):
    """Annotators confuse grades; with a flat prior the true grades are only names."""
    prevalence = weights(4, "prevalence")
    confusion = numpyro.sample("confusion", dist.Dirichlet(jnp.ones((5, 4, 4))).to_event(2))
    said = jnp.log(confusion)[jnp.arange(5)[:, None, None], jnp.arange(4)[:, None], ratings.T[:, None, :]]
    numpyro.factor("likelihood", logsumexp(jnp.log(prevalence)[:, None] + said.sum(0), axis=0).sum())


@CASES.add("dawid-skene-diagonal-prior", "trivial", RATINGS, why="the prior ties true grades to the reported ones")
def dawid_skene_diagonal_prior(ratings):
    """A prior that annotators tend to be right names the true grades."""
    prevalence = weights(4, "prevalence")
    prior = jnp.broadcast_to(jnp.ones((4, 4)) + 2 * jnp.eye(4), (5, 4, 4))
    confusion = numpyro.sample("confusion", dist.Dirichlet(prior).to_event(2))
    said = jnp.log(confusion)[jnp.arange(5)[:, None, None], jnp.arange(4)[:, None], ratings.T[:, None, :]]
    numpyro.factor("likelihood", logsumexp(jnp.log(prevalence)[:, None] + said.sum(0), axis=0).sum())


@CASES.add("dp-finite-dirichlet", "S6", Y)
def dp_finite_dirichlet(y):
    """The finite symmetric stand-in for a Dirichlet process, concentration latent."""
    concentration = numpyro.sample("concentration", dist.Gamma(1.0, 1.0))
    weight = numpyro.sample("weights", dist.Dirichlet(jnp.full(6, concentration / 6)))
    observe_mixture(weight, dist.Normal(normal("loc", 6, scale=3), 0.5), y)


@CASES.add("dp-sticks-enumerated", "trivial", Y, enumerated=True, why="sticks are broken in order", needs=("funsor",))
def dp_sticks_enumerated(y):
    """A truncated Dirichlet process with assignments summed out."""
    concentration = numpyro.sample("concentration", dist.Gamma(1.0, 1.0))
    with numpyro.plate("sticks", 3):
        stick = numpyro.sample("stick", dist.Beta(1, concentration))
    with numpyro.plate("components", 4):
        loc = numpyro.sample("loc", dist.Normal(0, 3))
    left = jnp.concatenate([jnp.ones(1), jnp.cumprod(1 - stick)])
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.append(stick, 1.0) * left))
        numpyro.sample("obs", dist.Normal(loc[z], 1.0), obs=y)


@CASES.add("mixture-general-one-family", "S2", Y, by_numbers=True)
def mixture_general_one_family(y):
    """Two normals, each with its own scalar sites, which are families, and its weight."""
    parts = [dist.Normal(normal(f"loc{k}"), numpyro.sample(f"scale{k}", dist.HalfNormal(1.0))) for k in range(2)]
    numpyro.sample("obs", dist.MixtureGeneral(dist.Categorical(weights(2)), parts), obs=y)


@CASES.add("mixture-general-families", "trivial", Y, why="the components are of different families")
def mixture_general_families(y):
    """A normal, a Student t and a Laplace."""
    loc = normal("loc", 3)
    parts = [dist.Normal(loc[0], 1.0), dist.StudentT(3.0, loc[1], 1.0), dist.Laplace(loc[2], 1.0)]
    numpyro.sample("obs", dist.MixtureGeneral(dist.Categorical(weights(3)), parts), obs=y)


@CASES.add(
    "mixture-general-shared-array", "S3", Y, by_numbers=True, quick=True, shown="Mixtures and hidden Markov models"
)
def mixture_general_shared_array(y):
    """Three normals listed one by one, their locations in one array."""
    loc = normal("loc", 3)
    parts = [dist.Normal(loc[k], 1.0) for k in range(3)]
    numpyro.sample("obs", dist.MixtureGeneral(dist.Categorical(weights(3)), parts), obs=y)


@CASES.add(
    "mixture-with-outliers",
    "S4",
    Y,
    why="the background component is another kind",
    shown="Mixtures and hidden Markov models",
)
def mixture_with_outliers(y):
    """Four normals and a wide background, weights in one simplex: only the first four move."""
    weight = numpyro.sample("weights", dist.Dirichlet(jnp.array([1.0, 1.0, 1.0, 1.0, 0.5])))
    loc, scale = jnp.append(normal("loc", 4, scale=3), 0.0), jnp.array([0.5, 0.5, 0.5, 0.5, 10.0])
    observe_mixture(weight, dist.Normal(loc, scale), y)


@CASES.add("zero-inflated-mixture", "S3", COUNTS[:, 0])
def zero_inflated_mixture(counts):
    """Poisson rates in a mixture, with extra zeros."""
    gate = numpyro.sample("gate", dist.Beta(1, 1))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5).expand([3]).to_event(1))
    inner = dist.MixtureSameFamily(dist.Categorical(weights(3)), dist.Poisson(rate))
    numpyro.sample("obs", dist.ZeroInflatedDistribution(inner, gate=gate), obs=counts)


@CASES.add("mixture-shared-locations", "S4", Y, GROUP, why="groups are data")
def mixture_shared_locations(y, group):
    """Groups of data share components and have their own weights: one permutation for all groups."""
    loc = normal("loc", 4, scale=3)
    weight = numpyro.sample("weights", dist.Dirichlet(jnp.ones(4)).expand([4]).to_event(1))
    observe_mixture(weight[group], dist.Normal(loc, 1.0), y)


@CASES.add("mixture-per-group", "(S3)^4", Y, GROUP, why="groups are data", shown="Mixtures and hidden Markov models")
def mixture_per_group(y, group):
    """Each of four groups of data has a mixture of its own."""
    loc = normal("loc", 4, 3, scale=3)
    weight = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)).expand([4]).to_event(1))
    observe_mixture(weight[group], dist.Normal(loc[group], 1.0), y)


@CASES.add("mixture-of-mixtures", "(S3)^4 x S4", PAIRS, shown="Mixtures and hidden Markov models")
def mixture_of_mixtures(y):
    """Four components, each a mixture of three."""
    outer, inner = weights(4, "outer"), numpyro.sample("inner", dist.Dirichlet(jnp.ones(3)).expand([4]).to_event(1))
    loc = normal("loc", 4, 3, 2, scale=3)
    distance = ((y[:, None, None] - loc) ** 2).sum(-1)
    within = logsumexp(jnp.log(inner) - 0.5 * distance, axis=-1)
    numpyro.factor("likelihood", logsumexp(jnp.log(outer) + within, axis=-1).sum())


@CASES.add("mixture-explicit-assignments", "S3", Y)
def mixture_explicit_assignments(y):
    """Soft assignments of each datum as latent sites."""
    with numpyro.plate("data", len(y)):
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    observe(share @ normal("loc", 3, scale=3), y)


@CASES.add("mixture-gated-by-covariates", "S4", X, Y)
def mixture_gated_by_covariates(x, y):
    """Weights that depend on covariates, components in a plate by name."""
    gate = softmax(x @ normal("gate", 3, 4) + normal("offset", 4))
    loc = numpyro.sample("loc", dist.Cauchy(0.0, 1.0).expand([4]).to_event(1))
    observe_mixture(gate, dist.StudentT(4.0, loc, 0.5), y)


@CASES.add("gmm-enumerated-loop", "S3", Y[:4], enumerated=True, needs=("funsor",))
def gmm_enumerated_loop(y):
    """Assignments summed out one by one, in a Python loop without plates."""
    weight, loc = weights(3), normal("loc", 3, scale=3)
    for i in range(len(y)):
        z = numpyro.sample(f"z{i}", dist.Categorical(weight), infer={"enumerate": "parallel"})
        numpyro.sample(f"obs{i}", dist.Normal(loc[z], 1.0), obs=y[i])
