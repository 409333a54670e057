"""Models that keep mutable state, such as running averages: what guides read of it, and who advances it."""

import functools
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy.stats import multivariate_normal

from numpyro_symmetry import (
    AutoConditional,
    AutoSymmetrized,
    Symmetry,
    SymmetryError,
    UnsupportedGuideError,
    log_evidence,
    to_arviz,
)

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=12).astype(np.float32)


def network(x, y=None):
    """Features that are centred by an average of earlier batches, and a count of these."""
    state = numpyro.primitives.mutable("state", {"mean": jnp.zeros(2), "count": jnp.zeros(())})
    w1 = numpyro.sample("w1", dist.Normal().expand([2, 3]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal().expand([3]).to_event(1))
    centred = x - state["mean"]
    state["mean"], state["count"] = 0.9 * state["mean"] + 0.1 * x.mean(0), state["count"] + 1.0
    numpyro.sample("y", dist.Normal(jnp.tanh(centred @ w1) @ w2, 0.5).to_event(1), obs=y)


def linear(x, y=None):
    """A regression on features that are moved by state, which nothing advances."""
    state = numpyro.primitives.mutable("state", {"shift": jnp.zeros(2)})
    beta = numpyro.sample("beta", dist.Normal().expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal((x - state["shift"]) @ beta, 0.5).to_event(1), obs=y)


def started(guide, model=network):
    """Parameters and state as they start."""
    svi = SVI(model, guide, optax.adam(0.01), Trace_ELBO())
    state = svi.init(KEY, X, Y)
    return svi.get_params(state), state.mutable_state


GUIDES = {
    "base": lambda: AutoNormal(network),
    "symmetrized": lambda: AutoSymmetrized(AutoNormal(network)),
    "conditional": lambda: AutoConditional(AutoNormal(network)),
    "inducing": lambda: AutoConditional(AutoNormal(network), ["w2"], inducing=4),
    "symmetrized conditional": lambda: AutoSymmetrized(AutoConditional(AutoNormal(network))),
}


@pytest.mark.parametrize("name", GUIDES)
def test_a_step_advances_state_once(name):
    svi = SVI(network, GUIDES[name](), optax.adam(0.01), Trace_ELBO())
    update, states = jax.jit(svi.update), [svi.init(KEY, X, Y)]
    for _ in range(2):
        states.append(update(states[-1], X, Y)[0])
    before, *after = (state.mutable_state["state"] for state in states)
    for state in after:
        assert state["count"] == before["count"] + 1
        np.testing.assert_allclose(state["mean"], 0.9 * before["mean"] + 0.1 * X.mean(0), rtol=1e-5)
        before = state


@functools.cache
def linear_guide():
    """A guide that is set up, its parameters, and the loss as one program of these and of state."""
    guide = AutoConditional(AutoNormal(linear))
    params, _ = started(guide, linear)
    return guide, params, jax.jit(lambda params: Trace_ELBO().loss(KEY, params, linear, guide, X, Y))


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_a_conditional_is_exact_at_the_state_given(shift):
    guide, params, loss_at = linear_guide()
    state = {"state": {"shift": jnp.full(2, shift)}}
    loss = loss_at(params | state)
    x = X - shift
    evidence = multivariate_normal(np.zeros(12), x @ x.T + 0.25 * np.eye(12)).logpdf(Y)
    assert float(loss) == pytest.approx(-evidence, rel=1e-5)
    known = {"model_args": (X, Y), "num_draws": 200, "progress_bar": False}
    assert log_evidence((guide, params | state), **known).value == pytest.approx(evidence, rel=1e-5)
    with pytest.raises(SymmetryError, match=r"state \['state'\] .* is missing"):
        log_evidence((guide, params), **known)


def test_bounds_ask_for_the_state():
    guide = AutoSymmetrized(AutoConditional(AutoNormal(network)), Symmetry({"w1": (None, "unit"), "w2": ("unit",)}))
    params, state = started(guide)
    with pytest.raises(SymmetryError, match=r"state \['state'\] .* is missing.* \| state\.mutable_state"):
        guide.elbo_bounds(KEY, params, X, Y)
    bounds = guide.elbo_bounds(KEY, params | state, X, Y, num_particles=8)
    other = jax.tree.map(lambda x: x + 3.0, state)
    assert abs(bounds.base_elbo - guide.elbo_bounds(KEY, params | other, X, Y, num_particles=8).base_elbo) > 0.1
    # nothing is left in what was given
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))


DRAWN = {
    "sample_posterior": lambda guide, params: guide.sample_posterior(KEY, params, X, Y),
    "to_arviz": lambda guide, params: to_arviz(KEY, guide, params, (X, Y), num_draws=2, log_likelihood=False),
}


@pytest.mark.parametrize("how", DRAWN)
@pytest.mark.parametrize("name", GUIDES)
def test_draws_ask_for_the_state_that_a_guide_reads(name, how):
    guide = GUIDES[name]()
    params, state = started(guide)
    reads = name not in ("base", "symmetrized")
    with pytest.raises(SymmetryError, match=r"state \['state'\] .* is missing") if reads else nullcontext():
        DRAWN[how](guide, params)
    DRAWN[how](guide, params | state)


def test_a_given_symmetry_is_checked_of_parameters_that_start_with_their_state():
    def started_together(x, y=None):
        """As networks of `flax_module`."""
        scale, state = numpyro.param("scale"), numpyro.primitives.mutable("state")
        assert (scale is None) == (state is None)
        if scale is None:
            scale = numpyro.param("scale", jnp.array(0.5), constraint=dist.constraints.positive)
            state = numpyro.primitives.mutable("state", {"shift": jnp.zeros(2)})
        beta = numpyro.sample("beta", dist.Normal().expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal((x - state["shift"]).sum(-1) * beta.sum(), scale).to_event(1), obs=y)

    guide = AutoSymmetrized(AutoNormal(started_together), Symmetry({"beta": ("unit",)})).setup(KEY, X, Y)
    assert guide.symmetry.log_order() == pytest.approx(np.log(2))


def test_flax_state_is_not_handed_on_from_a_guide_that_runs_the_model():
    linen = pytest.importorskip("flax.linen")
    from numpyro.contrib.module import random_flax_module

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.BatchNorm(use_running_average=False, use_bias=False, use_scale=False)(x)
            return linen.Dense(1, use_bias=False)(linen.tanh(linen.Dense(2, use_bias=False)(x)))[..., 0]

    def model(x, y=None):
        net = random_flax_module("net", Network(), dist.Normal(), input_shape=(1, 2), mutable=["batch_stats"])
        numpyro.sample("y", dist.Normal(net(x), 0.5).to_event(1), obs=y)

    with pytest.raises(UnsupportedGuideError, match=r"state \['net\$state'\] .*random_nnx_module"):
        started(AutoConditional(AutoNormal(model)), model)
    symmetry = Symmetry({"net/Dense_1.kernel": (None, "unit"), "net/Dense_0.kernel": ("unit", None)})
    guide = AutoSymmetrized(AutoNormal(model), symmetry, check=False)
    params, state = started(guide, model)
    with pytest.raises(SymmetryError, match=r"state \['net\$state'\] .* is missing"):
        guide.elbo_bounds(KEY, params, X, Y)
    whole = params | state
    assert np.isfinite(guide.elbo_bounds(KEY, whole, X, Y, num_particles=4).lower)
    drawn = Predictive(model, guide=guide, params=whole, num_samples=2)(KEY, X)
    assert drawn["y"].shape == (2, 12)
