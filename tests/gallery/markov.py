"""Models of states in time: hidden Markov models and their relatives."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import lax
from jax.nn import logsumexp

from tests.gallery.case import Cases
from tests.gallery.parts import PAIRS, X, Y, categories, gaussian, normal, weights

CASES = Cases()
SYMBOLS = categories(50, 6, 12)
SERIES = gaussian(51, 4, 9)


def transitions(count, prior=None, name="transition"):
    """Sample a matrix of transition probabilities, one row for each state."""
    prior = jnp.ones((count, count)) if prior is None else prior
    return numpyro.sample(name, dist.Dirichlet(prior).to_event(1))


def forward(log_initial, log_transition, log_emission):
    """Log likelihood of a series: emissions (time, state), transitions for all times or for each."""

    def step(log_alpha, inputs):
        emission, transition = inputs
        return logsumexp(log_alpha[:, None] + transition, axis=0) + emission, None

    times = len(log_emission) - 1
    each = jnp.broadcast_to(log_transition, (times, *log_transition.shape[-2:]))
    log_alpha, _ = lax.scan(step, log_initial + log_emission[0], (log_emission[1:], each))
    return logsumexp(log_alpha)


@CASES.add("hmm-categorical", "S4", SYMBOLS)
def hmm_categorical(symbols):
    """Six symbols, four states."""
    emission = numpyro.sample("emission", dist.Dirichlet(jnp.ones(6)).expand([4]).to_event(1))
    initial, transition = weights(4, "initial"), transitions(4)
    log_emission = jnp.log(emission).T[symbols]
    numpyro.factor("likelihood", forward(jnp.log(initial), jnp.log(transition), log_emission))


@CASES.add("hmm-multivariate-plate", "S4", PAIRS)
def hmm_multivariate_plate(y):
    """States in a plate, the start uniform."""
    with numpyro.plate("states", 4):
        loc = numpyro.sample("loc", dist.Normal(0, 3).expand([2]).to_event(1))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        row = numpyro.sample("row", dist.Dirichlet(jnp.ones(4)))
    log_emission = dist.Normal(loc, scale[:, None]).to_event(1).log_prob(y[:, None])
    numpyro.factor("likelihood", forward(-jnp.log(4.0), jnp.log(row), log_emission))


@CASES.add("hmm-matrix-products", "S4", Y)
def hmm_matrix_products(y):
    """Likelihood as a product of matrices in probabilities, normalised by the way."""
    transition, loc = transitions(4), normal("loc", 4, scale=3)
    emission = jnp.exp(dist.Normal(loc, 1.0).log_prob(y[:, None]))

    def step(state, emission):
        alpha, total = state
        alpha = alpha @ transition * emission
        return (alpha / alpha.sum(), total + jnp.log(alpha.sum())), None

    (_, total), _ = lax.scan(step, (jnp.ones(4) / 4, 0.0), emission)
    numpyro.factor("likelihood", total)


@CASES.add("hmm-latent-stickiness", "S4", Y)
def hmm_latent_stickiness(y):
    """How sticky the states are is itself latent."""
    kappa = numpyro.sample("kappa", dist.Exponential(0.1))
    transition = transitions(4, jnp.ones((4, 4)) + kappa * jnp.eye(4))
    log_emission = dist.Normal(normal("loc", 4), 1.0).log_prob(y[:, None])
    numpyro.factor("likelihood", forward(jnp.zeros(4), jnp.log(transition), log_emission))


@CASES.add("hmm-shared-stationary-prior", "S4", Y)
def hmm_shared_stationary_prior(y):
    """Rows drawn around common weights of the states, as in the hierarchical Dirichlet process."""
    common = weights(4, "common")
    transition = numpyro.sample("transition", dist.Dirichlet(5 * common).expand([4]).to_event(1))
    log_emission = dist.Normal(normal("loc", 4), 1.0).log_prob(y[:, None])
    numpyro.factor("likelihood", forward(jnp.log(common), jnp.log(transition), log_emission))


@CASES.add("hmm-left-to-right", "trivial", Y, why="states only move up", quick=True)
def hmm_left_to_right(y):
    """A latent chance to move on in each state."""
    leave = numpyro.sample("leave", dist.Beta(1.0, 5.0).expand([3]).to_event(1))
    chance = jnp.append(leave, 0.0)
    transition = jnp.diag(1 - chance) + jnp.diag(chance[:-1], 1)
    log_emission = dist.Normal(normal("loc", 4), 1.0).log_prob(y[:, None])
    log_initial = jnp.log(jnp.eye(4)[0] + 1e-30)
    numpyro.factor("likelihood", forward(log_initial, jnp.log(transition + 1e-30), log_emission))


@CASES.add("hmm-first-state-known", "S3", Y, why="the chain starts in state 0")
def hmm_first_state_known(y):
    """The first state is given, so it has a name; the three others move."""
    log_emission = dist.Normal(normal("loc", 4), 1.0).log_prob(y[:, None])
    log_initial = jnp.array([0.0, -1e9, -1e9, -1e9])
    numpyro.factor("likelihood", forward(log_initial, jnp.log(transitions(4)), log_emission))


@CASES.add("hmm-with-covariates", "S4", X, Y)
def hmm_with_covariates(x, y):
    """Transitions from a softmax of covariates, emissions from regressions."""
    logits = jnp.einsum("td,dij->tij", x, normal("drive", 3, 4, 4)) + normal("offset", 4, 4)
    log_transition = jax.nn.log_softmax(logits, axis=-1)[1:]
    log_emission = dist.Normal(x @ normal("slope", 3, 4), 0.5).log_prob(y[:, None])
    numpyro.factor("likelihood", forward(-jnp.log(jnp.full(4, 4.0)), log_transition, log_emission))


@CASES.add("hmm-several-series", "S3", SERIES)
def hmm_several_series(series):
    """Four series share the states; forward passes by vmap."""
    transition, loc = jnp.log(transitions(3)), normal("loc", 3)
    log_emission = dist.Normal(loc, 1.0).log_prob(series[:, :, None])
    each = jax.vmap(lambda emission: forward(jnp.zeros(3), transition, emission))(log_emission)
    numpyro.factor("likelihood", each.sum())


@CASES.add("hmm-per-series", "(S3)^4", SERIES, why="the series are data")
def hmm_per_series(series):
    """Each of four series has states of its own."""
    transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones((4, 3, 3))).to_event(2))
    log_emission = dist.Normal(normal("loc", 4, 1, 3), 1.0).log_prob(series[:, :, None])
    each = jax.vmap(lambda t, e: forward(jnp.zeros(3), jnp.log(t), e))(transition, log_emission)
    numpyro.factor("likelihood", each.sum())


# chains that are unrolled in Python lose the axis over which their states are fibred, which numbers find
@CASES.add("hmm-factorial", "(S3)^2 x S2", Y, by_numbers=True)
def hmm_factorial(y):
    """Two chains of three states add up: chains move, and states inside each."""
    transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones((2, 3, 3))).to_event(2))
    loc = normal("loc", 2, 3, scale=3)
    log_a, log_b = jnp.log(transition)
    joint = (log_a[:, None, :, None] + log_b[None, :, None, :]).reshape(9, 9)
    mean = (loc[0][:, None] + loc[1]).reshape(9)
    log_emission = dist.Normal(mean, 0.5).log_prob(y[:, None])
    numpyro.factor("likelihood", forward(jnp.zeros(9), joint, log_emission))


@CASES.add("hmm-semi-markov-stages", "S3", Y, why="stages of a state are passed in order")
def hmm_semi_markov_stages(y):
    """Three states of two stages each: states move, stages do not."""
    leave = numpyro.sample("leave", dist.Beta(1.0, 1.0).expand([3]).to_event(1))
    jump = transitions(3)
    stay = jnp.diag(1 - leave)
    full = jnp.block([[stay, jnp.diag(leave)], [leave[:, None] * jump, stay]])
    log_emission = dist.Normal(jnp.tile(normal("loc", 3), 2), 0.5).log_prob(y[:, None])
    numpyro.factor("likelihood", forward(jnp.zeros(6), jnp.log(full + 1e-30), log_emission))


@CASES.add("hmm-enumerated", "S3", Y, enumerated=True, needs=("funsor",), quick=True)
def hmm_enumerated(y):
    """States summed out; every first state has the same chance."""
    from numpyro.contrib.control_flow import scan

    transition, loc = transitions(3), normal("loc", 3, scale=3)

    def step(z, y):
        row = jnp.where(jnp.expand_dims(z, -1) < 0, 1 / 3, transition[z])
        z = numpyro.sample("z", dist.Categorical(row), infer={"enumerate": "parallel"})
        numpyro.sample("obs", dist.Normal(loc[z], 1.0), obs=y)
        return z, None

    scan(step, -1, y)


@CASES.add("hmm-enumerated-latent-start", "S3", SYMBOLS, enumerated=True, needs=("funsor",))
def hmm_enumerated_latent_start(symbols):
    """The first state has latent chances and no emission; states are summed out."""
    from numpyro.contrib.control_flow import scan

    initial, transition = weights(3, "initial"), transitions(3)
    emission = numpyro.sample("emission", dist.Dirichlet(jnp.ones(6)).expand([3]).to_event(1))

    def step(z, symbol):
        z = numpyro.sample("z", dist.Categorical(transition[z]), infer={"enumerate": "parallel"})
        numpyro.sample("obs", dist.Categorical(emission[z]), obs=symbol)
        return z, None

    start = numpyro.sample("start", dist.Categorical(initial), infer={"enumerate": "parallel"})
    scan(step, start, symbols)


@CASES.add("switching-dynamics", "S2 x S3", PAIRS, signed="S3 x ±S2")
def switching_dynamics(y):
    """Latent states with dynamics that a soft regime chooses: regimes move, and dimensions of the state."""
    regime = numpyro.sample("regime", dist.Dirichlet(jnp.ones(3)).expand([12]).to_event(1))
    dynamics, emission = normal("dynamics", 3, 2, 2, scale=0.5), normal("emission", 2, 2)
    state = normal("state", 12, 2)
    moved = jnp.einsum("tk,kij,tj->ti", regime[1:], dynamics, state[:-1])
    numpyro.factor("moves", dist.Normal(moved, 0.3).log_prob(state[1:]).sum())
    numpyro.sample("obs", dist.Normal(state @ emission, 0.1).to_event(2), obs=y)


@CASES.add("change-points", "S2", Y, why="levels follow each other; only the times, which are sorted, move")
def change_points(y):
    """Levels between times of change."""
    times = numpyro.sample("times", dist.Uniform(0.0, 12.0).expand([2]).to_event(1))
    level = normal("level", 3)
    passed = jax.nn.sigmoid(jnp.arange(12.0)[:, None] - jnp.sort(times))
    mean = level[0] + passed @ (level[1:] - level[:-1])
    numpyro.sample("obs", dist.Normal(mean, 0.2).to_event(1), obs=y)
