"""Guides that follow: against closed forms, quadrature and brute force; and what they refuse."""

import functools
import itertools
import math
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import (
    SVI,
    Predictive,
    RenyiELBO,
    Trace_ELBO,
    TraceEnum_ELBO,
    TraceGraph_ELBO,
    TraceMeanField_ELBO,
    init_to_value,
)
from numpyro.infer.autoguide import AutoDelta, AutoGuideList, AutoMultivariateNormal, AutoNormal
from numpyro.infer.util import log_density
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from numpyro_symmetry import (
    AutoConditional,
    AutoSymmetrized,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    UnsupportedGuideError,
    to_arviz,
)
from numpyro_symmetry.guides.conditional.auto_conditional import _as_jax
from numpyro_symmetry.guides.linear.affine import linear_observations
from numpyro_symmetry.guides.linear.likelihoods import LIKELIHOODS, NORMAL, observation
from numpyro_symmetry.models import trace_model
from numpyro_symmetry.models.given_values import trace_given
from tests.support.marks import slow_but

X = np.random.default_rng(0).normal(size=(12, 2))
Y = X @ [1.0, -2.0] + 0.3 * np.random.default_rng(1).normal(size=12)


def loss_at(params, model, guide, *args, elbo=None, key=0):
    """One estimate of the negative ELBO, as one program: operation by operation each would be compiled apart."""
    elbo = elbo or Trace_ELBO()
    return float(jax.jit(lambda params: elbo.loss(jax.random.key(key), params, model, guide, *args))(params))


def set_up(guide, *args, **kwargs):
    """Set a guide up without the draw that its first call ends with, of which each operation is compiled apart."""
    args, kwargs = _as_jax((args, kwargs))
    guide._set_up(args, kwargs)
    trace_model(guide.base, args, kwargs, jax.random.key(0))


def parameters_of(guide, *args):
    """Parameters of a guide that is set up, as they start."""

    @jax.jit
    def read():
        sites = handlers.trace(handlers.seed(guide, 0)).get_trace(*args)
        return {name: site["value"] for name, site in sites.items() if site["type"] == "param"}

    return read()


def negative_elbo(model, guide, *args, key=0, **kwargs):
    """One estimate of the negative ELBO at the guide's first parameters."""
    svi = SVI(model, guide, optax.sgd(0.0), Trace_ELBO())

    def start(key):
        return svi.init(key, *args, **kwargs)

    def evaluated(state):
        return svi.evaluate(state, *args, **kwargs)

    if isinstance(guide, AutoConditional) and guide.source is None:
        set_up(guide, *args, **kwargs)
        return float(jax.jit(lambda key: evaluated(start(key)))(jax.random.key(key)))
    # other arguments than those of set-up are looked at outside of jit
    return float(jax.jit(evaluated)(start(jax.random.key(key))))


def linear(x, y=None, scale=1.0):
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(1.0, 3.0))
    numpyro.sample("y", dist.Normal(x @ beta + bias, scale).to_event(1), obs=y)


def hierarchical(x, y=None):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
    beta = numpyro.sample("beta", dist.Normal(centre, scale).expand([2]).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    numpyro.sample("y", dist.Normal(x @ beta, noise).to_event(1), obs=y)


def two_outputs(x, y=None):
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    bias = numpyro.sample("bias", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta + bias, noise).to_event(2), obs=y)


def network(x, y=None, width=3, noise=0.3):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([x.shape[-1], width]).to_event(2))
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    b2 = numpyro.sample("b2", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(jax.nn.relu(x @ w1 + b1) @ w2 + b2, noise).to_event(1), obs=y)


HIDDEN = Symmetry({"w1": (None, "hidden"), "b1": ("hidden",), "w2": ("hidden",)})


def classifier(x, y=None, width=3):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([x.shape[-1], width]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([width, 4]).to_event(2))
    b2 = numpyro.sample("b2", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Categorical(logits=jnp.tanh(x @ w1) @ w2 + b2), obs=y)


LABELS = np.arange(12) % 4


# ---- exact ---------------------------------------------------------------------------------------------------------


def test_all_of_a_linear_model_has_the_evidence_in_every_draw():
    covariance = 4.0 * X @ X.T + 9.0 + np.eye(12)
    expected = multivariate_normal(np.ones(12), covariance).logpdf(Y)
    with jax.enable_x64(True):
        guide = AutoConditional(lambda *args, **kwargs: None, model=linear)
        assert negative_elbo(linear, guide, X, Y) == pytest.approx(-expected, rel=1e-10)
        assert negative_elbo(linear, guide, X, Y, key=1) == pytest.approx(-expected, rel=1e-10)


DISTANCES = X[:, :1] - X[:, 0]
FACTOR = np.array([[1.5, 0.0], [-0.4, 0.7]])
INDICATORS = np.eye(3)[np.arange(12) % 3]


def curve(x, y=None):
    covariance = jnp.exp(-0.5 * (x[:, :1] - x[:, 0]) ** 2) + 0.01 * jnp.eye(len(x))
    f = numpyro.sample("f", dist.MultivariateNormal(0.5, covariance))
    numpyro.sample("y", dist.Normal(f, 0.5).to_event(1), obs=y)


def walk(x, y=None):
    f = numpyro.sample("f", dist.GaussianRandomWalk(0.7, 12))
    numpyro.sample("y", dist.Normal(f, 0.5).to_event(1), obs=y)


def walks(x, y=None):
    """Of which each group has its own scale."""
    with numpyro.plate("groups", 3):
        f = numpyro.sample("f", dist.GaussianRandomWalk(jnp.array([0.3, 0.7, 2.0]), 4))
    numpyro.sample("y", dist.Normal(f.T.reshape(12), 0.5).to_event(1), obs=y)


def slopes(x, y=None):
    """Which vary with intercepts, by group."""
    with numpyro.plate("groups", 3):
        b = numpyro.sample("b", dist.MultivariateNormal(jnp.array([0.5, 0.0]), scale_tril=FACTOR))
    group = np.arange(12) % 3
    numpyro.sample("y", dist.Normal(b[group, 0] + b[group, 1] * x[:, 0], 0.5).to_event(1), obs=y)


_WALK = np.minimum.outer(np.arange(1, 5), np.arange(1, 5))
_SLOPES = np.einsum("ng,nk->ngk", INDICATORS, np.stack([np.ones(12), X[:, 0]], 1))
# name -> model, mean and covariance of what it observes without its noise
CORRELATED = {
    "a curve": (curve, 0.5, np.exp(-0.5 * DISTANCES**2) + 0.01 * np.eye(12)),
    "a random walk": (walk, 0.0, 0.49 * np.minimum.outer(np.arange(1, 13), np.arange(1, 13))),
    "random walks": (walks, 0.0, np.kron(_WALK, np.diag([0.09, 0.49, 4.0]))),
    "slopes": (slopes, 0.5, np.einsum("ngk,kl,mgl->nm", _SLOPES, FACTOR @ FACTOR.T, _SLOPES)),
}


@pytest.mark.parametrize("elbo", [Trace_ELBO(), TraceMeanField_ELBO(), RenyiELBO(alpha=0.5, num_particles=3)])
@pytest.mark.parametrize("name", CORRELATED)
def test_sites_with_a_covariance_have_the_evidence_in_every_draw(name, elbo, precision):
    model, mean, covariance = CORRELATED[name]
    expected = multivariate_normal(np.full(12, mean), covariance + 0.25 * np.eye(12)).logpdf(Y)
    guide = AutoConditional(lambda *args, **kwargs: None, model=model)
    set_up(guide, X, Y)
    assert loss_at({}, model, guide, X, Y, elbo=elbo) == pytest.approx(-expected, rel=1e-10 if precision else 1e-5)


def curves(x, y=None):
    """Each of its own length."""
    with numpyro.plate("curves", 3):
        length = numpyro.sample("length", dist.LogNormal(0.0, 0.3))
        covariance = jnp.exp(-0.5 * (DISTANCES / length[:, None, None]) ** 2) + 0.01 * jnp.eye(12)
        f = numpyro.sample("f", dist.MultivariateNormal(0.5, covariance))
    numpyro.sample("y", dist.Normal(f.sum(0), 0.5).to_event(1), obs=y)


def test_a_guide_factorises_no_batches_of_a_model():
    """Which may stand still for ever beside those of the model itself, where it is called again for its density."""
    guide = AutoConditional(AutoNormal(curves))
    set_up(guide, X, Y)

    def means(length):
        return guide.source.read(curves, (X, Y), {}, {"length": length}, "auto").loc

    program = jax.jit(jax.vmap(means)).lower(jnp.ones((2, 3))).compile().as_text()
    assert set(re.findall(r"f32\[([\d,]+)\].* custom-call.*potrf", program)) == {"12,12"}


def of_free_factors(x, y=None):
    """Which nothing keeps triangular in training."""
    prior, noise = (numpyro.param(name, jnp.eye(2)) for name in ("prior", "noise"))
    beta = numpyro.sample("beta", dist.MultivariateNormal(0.0, scale_tril=prior))
    numpyro.sample("y", dist.MultivariateNormal(x * beta, scale_tril=noise).to_event(1), obs=y)


@pytest.mark.parametrize("factor", [[[1.5, 0.8], [-0.4, 0.7]], [[2, 0], [1, 1]]], ids=["full", "of whole numbers"])
def test_a_factor_is_its_triangle_as_for_the_density(factor):
    factor, y = np.array(factor), np.stack([Y, -Y], 1)
    covariance, slope = np.tril(factor) @ np.tril(factor).T, np.concatenate([np.diag(row) for row in X])
    evidence = multivariate_normal(cov=slope @ covariance @ slope.T + np.kron(np.eye(12), covariance)).logpdf(y.ravel())
    guide = AutoConditional(lambda *args, **kwargs: None, model=of_free_factors)
    set_up(guide, X, y)
    loss = loss_at({"prior": factor, "noise": factor}, of_free_factors, guide, X, y)
    assert loss == pytest.approx(-evidence, rel=1e-5)


def test_a_site_on_which_a_covariance_depends_does_not_follow():
    def model(x, y=None):
        size = numpyro.sample("size", dist.Normal(0.0, 1.0))
        f = numpyro.sample("f", dist.MultivariateNormal(0.0, jnp.exp(size - 0.5 * DISTANCES**2) + jnp.eye(12)))
        numpyro.sample("y", dist.Normal(f + size, 0.5).to_event(1), obs=y)

    guide = AutoConditional(AutoNormal(model))
    set_up(guide, X, Y)
    assert "size is drawn by the base guide: the prior covariance of 'f' depends on them" in guide.explain()


def weighted(x, y=None, weight=1.0, mask=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with numpyro.plate("data", len(x)), handlers.scale(scale=weight):
        fn = dist.Normal(x @ beta, 0.5)
        numpyro.sample("y", fn if mask is None else fn.mask(mask), obs=y)


def two_sites(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    numpyro.sample("left", dist.Normal(x[:5] @ beta, 0.5).to_event(1), obs=None if y is None else y[:5])
    numpyro.sample("right", dist.Normal(2.0 * (x[5:] @ beta), 0.7).to_event(1), obs=None if y is None else y[5:])


def weighted_event(x, y=None, weight=1.0):
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with handlers.scale(scale=weight):
        numpyro.sample("y", dist.Normal(x @ beta, 0.5).to_event(1), obs=y)


MISSING = np.arange(12) % 3 == 0
WEIGHED = {
    "scale": (weighted, {"weight": np.linspace(0.5, 3.0, 12)}),
    "mask": (weighted, {"mask": ~MISSING}),
    "missing": (weighted, {"mask": ~MISSING, "y": np.where(MISSING, np.nan, Y)}),
    "several sites": (two_sites, {}),
    "one scale of an event": (weighted_event, {"weight": np.array([0.7])}),
    "a scale that stretches an event": (weighted_event, {"weight": np.array([0.7, 0.4, 0.2])}),
}


@pytest.mark.parametrize("name", WEIGHED)
def test_rows_weigh_as_the_log_joint_does(name):
    """The log joint over the density is one constant, which is its integral by quadrature."""
    model, kwargs = WEIGHED[name]
    kwargs = {"y": Y} | kwargs
    with jax.enable_x64(True):
        guide = AutoConditional(lambda *args, **kwargs: None, model=model)
        found = [-negative_elbo(model, guide, X, key=key, **kwargs) for key in (0, 1)]
        # far enough and fine enough for a trapezoid to be exact
        grid = np.linspace(-6.0, 6.0, 301)
        points = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)

        def joint(beta):
            with handlers.block():
                return numpyro.infer.util.log_density(model, (X,), kwargs, {"beta": beta})[0]

        values = np.asarray(jax.lax.map(joint, jnp.asarray(points), batch_size=2048))
        expected = logsumexp(values) + 2.0 * math.log(grid[1] - grid[0])
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert found[0] == pytest.approx(expected, rel=1e-6)


def collapsed(model_trace, kind):
    """Log density of everything but the sites that follow, these integrated out, by dense algebra."""
    value = {name: np.asarray(site["value"], float) for name, site in model_trace.items()}
    if kind == "hierarchical":
        covariance = value["scale"] ** 2 * X @ X.T + value["noise"] ** 2 * np.eye(12)
        return multivariate_normal(value["centre"] * X.sum(1), covariance).logpdf(Y)
    covariance = X @ X.T + 1.0 + value["noise"] ** 2 * np.eye(12)
    return multivariate_normal(np.zeros(12), covariance).logpdf(np.stack([Y, -Y], 1).T).sum()


@pytest.mark.parametrize("kind", ["hierarchical", "two outputs"])
def test_the_conditional_integrates_its_sites_out(kind):
    model, y = (hierarchical, Y) if kind == "hierarchical" else (two_outputs, np.stack([Y, -Y], 1))
    with jax.enable_x64(True):
        guide = AutoConditional(AutoNormal(model))
        with handlers.seed(rng_seed=0):
            guide(X, y)
            guide_trace = handlers.trace(guide).get_trace(X, y)
        follow = set(guide.source.sites)
        assert follow == ({"beta"} if kind == "hierarchical" else {"beta", "bias"})
        assert guide.source.num_outputs == (0 if kind == "hierarchical" else 2)
        values = {name: site["value"] for name, site in guide_trace.items() if site["type"] == "sample"}
        values = {name: value for name, value in values.items() if not name.startswith("_")}
        with handlers.seed(rng_seed=0), handlers.substitute(data=values):
            trace = handlers.trace(model).get_trace(X, y)
        rows = sum(float(trace[name]["fn"].log_prob(trace[name]["value"]).sum()) for name in [*follow, "y"])
        rows -= sum(float(guide_trace[name]["fn"].log_prob(values[name])) for name in follow)
        assert rows == pytest.approx(collapsed(trace, kind), rel=1e-9)


def entries(x, y=None, mask=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    fn = dist.Normal(x @ beta, 0.5)
    with numpyro.plate("data", len(x), dim=-2), numpyro.plate("output", 2):
        numpyro.sample("y", fn if mask is None else fn.mask(mask), obs=y)


def test_outputs_that_a_later_call_weighs_apart_share_nothing():
    """A guide set up on whole rows and trained where entries are missing has the evidence of what is there."""
    mask, y = np.stack([~MISSING, np.arange(12) < 7], 1), np.stack([Y, -Y], 1)
    expected = sum(
        multivariate_normal(np.zeros(seen.sum()), X[seen] @ X[seen].T + 0.25 * np.eye(seen.sum())).logpdf(column[seen])
        for seen, column in zip(mask.T, y.T, strict=True)
    )
    with jax.enable_x64(True):
        guide = AutoConditional(lambda *args, **kwargs: None, model=entries)
        negative_elbo(entries, guide, X, y)
        assert guide.source.num_outputs == 2
        assert negative_elbo(entries, guide, X, y, mask=mask) == pytest.approx(-expected, rel=1e-10)


def ridge(x, y=None, scale=1.0):
    beta = numpyro.sample("beta", dist.Normal(0.0, scale).expand([2, 2]).to_event(2))
    numpyro.sample("y", dist.Normal(x @ beta, 0.5).to_event(2), obs=y)


@pytest.mark.parametrize("before", [1.0, np.ones(1), np.ones((2, 1))], ids=["number", "(1,)", "(2, 1)"])
@pytest.mark.parametrize("inducing", [None, X])
def test_outputs_of_which_a_later_call_has_priors_apart_share_nothing(before, inducing):
    scale, y = np.array([0.3, 2.0]), np.stack([Y, -Y], 1)
    expected = sum(
        multivariate_normal(np.zeros(12), s**2 * X @ X.T + 0.25 * np.eye(12)).logpdf(column)
        for s, column in zip(scale, y.T, strict=True)
    )
    with jax.enable_x64(True):
        guide = AutoConditional(lambda *args, **kwargs: None, ["beta"], model=ridge, inducing=inducing)
        negative_elbo(ridge, guide, X, y, before)
        # pseudo-observations: one for each row, as precise as it
        unit = 1.0 if inducing is None else guide.source.units[0]
        params = {"auto_beta_precision_0": jnp.full((12, 1), 4.0 * unit**2)}
        assert loss_at(params, ridge, guide, X, y, scale) == pytest.approx(-expected, rel=1e-10)


def powers(x, y=None, power=1, gain=1.0):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    numpyro.sample("y", dist.Normal((x @ beta) ** power * gain, 0.5).to_event(2), obs=y)


def test_arguments_unlike_those_of_set_up_are_looked_at_again():
    gain, y = np.array([1.0, 0.3]), np.stack([Y, -Y], 1)
    expected = sum(
        multivariate_normal(np.zeros(12), g**2 * X @ X.T + 0.25 * np.eye(12)).logpdf(column)
        for g, column in zip(gain, y.T, strict=True)
    )
    with jax.enable_x64(True):
        guide = AutoConditional(lambda *args, **kwargs: None, model=powers)
        negative_elbo(powers, guide, X, y)
        assert negative_elbo(powers, guide, X, y, gain=gain) == pytest.approx(-expected, rel=1e-10)
        with pytest.raises(SymmetryError, match="the location of 'y' is not affine.* Make a guide anew"):
            negative_elbo(powers, guide, X, y, power=2)


def columns_in_a_plate(x, y=None):
    with numpyro.plate("columns", y.shape[1]):
        with numpyro.plate("inputs", x.shape[1], dim=-2):
            beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", len(x), dim=-2):
            numpyro.sample("y", dist.Normal(x @ beta, 0.5), obs=y)


@pytest.mark.parametrize("num_rows", [12, 1], ids=["by parameters", "by rows"])
def test_members_of_a_plate_around_everything_have_their_own_density(num_rows):
    """RenyiELBO averages the importance weights of each alone: they are all the evidence, and so are the averages."""
    x, y = X[:num_rows], np.stack([Y, 2.0 * Y, Y - 1.0], 1)[:num_rows]
    expected = multivariate_normal(np.zeros(num_rows), x @ x.T + 0.25 * np.eye(num_rows)).logpdf(y.T).sum()
    with jax.enable_x64(True):
        guide = AutoConditional(lambda *args, **kwargs: None, model=columns_in_a_plate)
        set_up(guide, x, y)
        for elbo in (Trace_ELBO(), RenyiELBO(alpha=0.5, num_particles=3)):
            assert loss_at({}, columns_in_a_plate, guide, x, y, elbo=elbo) == pytest.approx(-expected, rel=1e-10)


def gains(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    gain = numpyro.param("gain", jnp.ones(2))
    numpyro.sample("y", dist.Normal((x @ beta) * gain, 0.5).to_event(2), obs=y)


def test_outputs_whose_parameters_are_trained_apart_share_nothing():
    """Where parameters start they may make alike what they do not where they end."""
    gain, y = np.array([1.0, 0.3]), np.stack([Y, -Y], 1)
    expected = sum(
        multivariate_normal(np.zeros(12), g**2 * X @ X.T + 0.25 * np.eye(12)).logpdf(column)
        for g, column in zip(gain, y.T, strict=True)
    )
    with jax.enable_x64(True):
        guide = AutoConditional(lambda *args, **kwargs: None, model=gains)
        negative_elbo(gains, guide, X, y)
        params = {"gain": jnp.asarray(gain)}
        assert loss_at(params, gains, guide, X, y) == pytest.approx(-expected, rel=1e-10)


def test_outputs_whose_noise_is_trained_to_mix_them_share_nothing():
    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
        factor = numpyro.param("factor", jnp.eye(2))
        numpyro.sample("y", dist.MultivariateNormal(x @ beta, scale_tril=factor).to_event(1), obs=y)

    y = np.stack([Y, -Y], 1)
    covariance = np.kron(X @ X.T, np.eye(2)) + np.kron(np.eye(12), FACTOR @ FACTOR.T)
    expected = multivariate_normal(np.zeros(24), covariance).logpdf(y.ravel())
    with jax.enable_x64(True):
        guide = AutoConditional(lambda *args, **kwargs: None, model=model)
        negative_elbo(model, guide, X, y)
        assert loss_at({"factor": jnp.asarray(FACTOR)}, model, guide, X, y) == pytest.approx(-expected, rel=1e-10)


def test_outputs_whose_parameters_are_trained_apart_share_nothing_at_inducing_inputs():
    guide = AutoConditional(lambda *args, **kwargs: None, ["beta"], model=gains, inducing=X[:4])
    assert math.isfinite(negative_elbo(gains, guide, X, np.stack([Y, -Y], 1)))
    assert guide.source.num_outputs == 0


def test_draws_and_density_of_a_site_agree():
    """Means of draws are the mean; densities integrate to one, by importance against a wide normal."""
    guide = AutoConditional(AutoNormal(hierarchical))
    with handlers.seed(rng_seed=0):
        trace = handlers.trace(guide).get_trace(X, Y)
    fn = trace["beta"]["fn"]
    draws = np.asarray(fn.sample(jax.random.key(1), (4000,)), float)
    error = draws.std(0) / math.sqrt(len(draws))
    assert (abs(draws.mean(0) - np.asarray(fn.mean)) < 4.5 * error).all()
    wide = multivariate_normal(np.asarray(fn.mean, float), 4.0 * np.cov(draws.T))
    points = wide.rvs(4000, random_state=0)
    ratio = np.exp(np.asarray(jax.lax.map(fn.log_prob, jnp.asarray(points, jnp.float32))) - wide.logpdf(points))
    assert abs(ratio.mean() - 1.0) < 4.5 * ratio.std() / math.sqrt(len(ratio))


def test_more_parameters_than_rows_give_the_same_bound():
    """A network of 3 units on 12 rows and one of 30 on 12 take the two spaces; each against dense algebra."""
    for width in (3, 30):
        with jax.enable_x64(True):
            model = functools.partial(network, width=width)
            guide = AutoConditional(AutoNormal(model))
            set_up(guide, X, Y)

            @jax.jit
            def draw(key, guide=guide):
                sites = handlers.trace(handlers.seed(guide, key)).get_trace(X, Y)
                drawn = {name: site for name, site in sites.items() if site["type"] == "sample"}
                values = {name: site["value"] for name, site in drawn.items()}
                return values, {name: site["fn"].log_prob(values[name]) for name, site in drawn.items()}

            value, density = map(jax.device_get, draw(jax.random.key(0)))
            hidden = np.maximum(X @ value["w1"] + value["b1"], 0.0)
            covariance = hidden @ hidden.T + 1.0 + 0.09 * np.eye(12)
            log_joint = norm(hidden @ value["w2"] + value["b2"], 0.3).logpdf(Y).sum()
            log_joint += sum(norm().logpdf(value[name]).sum() for name in ("w2", "b2"))
            found = log_joint - sum(density[name] for name in ("w2", "b2"))
            expected = multivariate_normal(np.zeros(12), covariance).logpdf(Y)
            assert float(found) == pytest.approx(expected, rel=1e-9)


# ---- other likelihoods, inducing inputs ----------------------------------------------------------------------------


def counts(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(x @ beta + 1.0)).to_event(1), obs=y)


def coins(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ beta).to_event(1), obs=y)


def heavy(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.StudentT(3.0, x @ beta, 0.3).to_event(1), obs=y)


def classes(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2, 4]).to_event(2))
    numpyro.sample("y", dist.Categorical(logits=x @ beta).to_event(1), obs=y)


def one_predictor(fn):
    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", fn(x @ beta).to_event(1), obs=y)

    return model


def pairs(x, y=None):
    """With noise that has a covariance."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    loc = jnp.stack([x @ beta, 0.5 - x @ beta], 1)
    numpyro.sample("y", dist.MultivariateNormal(loc, scale_tril=FACTOR).to_event(1), obs=y)


RNG = np.random.default_rng(7)
TIMES, COUNTS = RNG.gamma(2.0, np.exp(X @ [0.7, -0.4]) / 2.0), RNG.poisson(3.0 * np.exp(X @ [0.7, -0.4]))
NEARLY = {
    "Poisson": (counts, np.random.default_rng(2).poisson(np.exp(X @ [0.7, -0.4] + 1.0))),
    "Bernoulli": (coins, (Y > 0).astype(int)),
    "Student-t": (heavy, Y),
    "Categorical": (classes, LABELS),
    "Binomial": (one_predictor(lambda eta: dist.Binomial(5, logits=eta)), LABELS),
    "Cauchy": (one_predictor(lambda eta: dist.Cauchy(eta, 0.3)), Y),
    "Laplace": (one_predictor(lambda eta: dist.Laplace(eta, 0.3)), Y),
    "LogNormal": (one_predictor(lambda eta: dist.LogNormal(eta, 0.7)), TIMES),
    "NegativeBinomial2": (one_predictor(lambda eta: dist.NegativeBinomial2(jnp.exp(eta), 2.0)), COUNTS),
    "NegativeBinomial": (one_predictor(lambda eta: dist.NegativeBinomial(2.0, logits=eta)), COUNTS),
    "Gamma": (one_predictor(lambda eta: dist.Gamma(2.0, 2.0 * jnp.exp(-eta))), TIMES),
    "Exponential": (one_predictor(lambda eta: dist.Exponential(jnp.exp(eta))), TIMES),
    "Weibull": (one_predictor(lambda eta: dist.Weibull(jnp.exp(eta), 1.5)), TIMES),
    "MultivariateNormal": (pairs, np.stack([Y, -Y], 1)),
}
MAJORISED = ("Student-t", "Cauchy", "Laplace")


def seen_in(name, beta):
    model, y = NEARLY[name]
    shape = (2, 4) if name == "Categorical" else (2,)
    (seen,) = linear_observations(trace_given(model, (X, y), {}, {"beta": jnp.full(shape, beta)})).values()
    return seen


def test_every_likelihood_has_a_row_here():
    assert {seen_in(name, 0.1).kind for name in NEARLY} | {NORMAL} == set(LIKELIHOODS)


@pytest.mark.parametrize("name", NEARLY)
def test_a_likelihood_is_that_of_its_predictor(name):
    """Told apart from other parameters, put back, and fitted to values."""
    with jax.enable_x64(True):
        seen, other = seen_in(name, 0.3), seen_in(name, -0.2)
        moved = seen.kind.at(seen.fn, other.predictor)
        np.testing.assert_allclose(seen.kind.predictor(moved), other.predictor, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(moved.log_prob(seen.value), other.fn.log_prob(other.value), rtol=1e-12)
        away = seen.fitted + 3.0 * np.random.default_rng(0).normal(size=seen.fitted.shape)
        fits, misses = (seen.kind.at(seen.fn, eta).log_prob(seen.value).sum() for eta in (seen.fitted, away))
        assert fits > misses


@pytest.mark.parametrize("name", [name for name in NEARLY if name not in (*MAJORISED, "Categorical")])
def test_weights_are_curvatures_where_the_first_step_starts(name):
    with jax.enable_x64(True):
        seen = seen_in(name, 0.3)
        curvature = jax.grad(lambda eta: seen.gradient(eta).sum())(seen.start)
        np.testing.assert_allclose(seen.weight(seen.start) + 0.0 * curvature, -curvature, rtol=1e-8)


@pytest.mark.parametrize(
    ("name", "most"),
    [("Poisson", 9), ("Bernoulli", 1), ("Binomial", 5), ("NegativeBinomial2", 9), ("NegativeBinomial", 9)],
)
def test_a_predictor_fits_whole_numbers_to_a_half_at_their_ends_too(name, most):
    with jax.enable_x64(True):
        seen, value = seen_in(name, 0.3), np.resize([0, 1, most], 12)
        mean = seen.kind.at(seen.fn, seen.kind.fitted(seen.fn, value)).mean
        assert np.abs(mean - value).max() < 0.5 + 1e-9


def test_a_predictor_fits_classes_by_logits_about_zero():
    seen = seen_in("Categorical", 0.3)
    np.testing.assert_array_equal(seen.fitted.argmax(-1), seen.value)
    np.testing.assert_allclose(seen.fitted.sum(-1), 0.0, atol=1e-6)


def test_the_weight_of_classes_is_the_curvature_where_all_are_alike():
    """Of all directions but the one in which no probability changes."""
    with jax.enable_x64(True):
        seen = seen_in("Categorical", 0.0)
        curvature = jax.hessian(lambda eta: -dist.CategoricalLogits(eta).log_prob(0))(seen.start[0])
        weight = seen.weight(seen.start)[0] * seen.kind.factor(seen.fn)
        np.testing.assert_allclose(np.linalg.eigvalsh(curvature), [0.0, *[weight.item()] * 3], atol=1e-12)


@pytest.mark.parametrize(("name", "information"), [("Gamma", 2.0), ("Exponential", 1.0), ("Weibull", 1.5**2)])
def test_the_first_weight_of_a_waiting_time_is_its_fisher_information(name, information):
    """However long it is."""
    with jax.enable_x64(True):
        seen = seen_in(name, 0.3)
        np.testing.assert_allclose(seen.weight(seen.start), np.full(seen.value.shape, information), rtol=1e-12)


# rows along one, two or three axes; of a batch and of an event
LAYOUTS = [((1,), 0), ((12,), 0), ((12,), 1), ((3, 4), 0), ((3, 4), 1), ((3, 4), 2), ((2, 3, 2), 1)]


@pytest.mark.parametrize(("shape", "event_dim"), LAYOUTS)
@pytest.mark.parametrize("name", NEARLY)
def test_rows_are_seen_alike_however_they_are_laid_out(name, shape, event_dim):
    """With a mask and a weight of their own for each member of the batch."""
    with jax.enable_x64(True):
        flat, count = seen_in(name, 0.3), math.prod(shape)
        outputs = flat.predictor.shape[1:]
        batch = shape[: len(shape) - event_dim]
        weight = 1.0 + np.arange(math.prod(batch)).reshape(batch)
        seen = weight % 3.0 != 2.0
        fn = flat.kind.at(flat.fn, flat.predictor[:count].reshape(shape + outputs)).to_event(event_dim)
        site = {"fn": fn.mask(seen), "value": flat.value[:count].reshape(shape + flat.value.shape[1:]), "scale": weight}
        found = observation(site)
        assert found.predictor.shape == shape + outputs
        each = np.repeat((weight * seen).ravel(), count // weight.size)
        each = each.reshape(count, *(1 for _ in outputs))
        counted = each[(...,) + (0,) * len(outputs)] > 0
        for way in ("gradient", "weight"):
            of_flat = each * (getattr(flat, way)(flat.predictor) + 0.0 * flat.predictor)[:count]
            of_found = getattr(found, way)(found.predictor) + 0.0 * found.predictor
            np.testing.assert_allclose(of_found.reshape(of_flat.shape), of_flat, rtol=1e-12, err_msg=way)
        for way in ("predictor", "fitted", "start"):
            of_flat, of_found = (np.asarray(getattr(one, way)) for one in (flat, found))
            of_found = of_found.reshape(count, *outputs)
            np.testing.assert_allclose(of_found[counted], of_flat[:count][counted], rtol=1e-12, err_msg=way)


# the others have what these two have: one predictor a row, or several
@pytest.mark.parametrize("name", slow_but(["Poisson", "Categorical"], NEARLY))
def test_steps_come_near_the_evidence_and_never_above(name):
    """A few hundred steps of SVI on four numbers; the evidence by importance weights of the same guide."""
    model, y = NEARLY[name]
    guide = AutoConditional(lambda *args, **kwargs: None, model=model)
    svi = SVI(model, guide, optax.adam(3e-2), Trace_ELBO(num_particles=20))
    params = svi.run(jax.random.key(0), 300, X, y, progress_bar=False).params
    assert set(params) == (set() if seen_in(name, 0.1).kind.exact else {"auto_y_step", "auto_y_precision"})

    def weight(key):
        with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(data=params):
            trace = handlers.trace(guide).get_trace(X, y)
        beta = trace["beta"]["value"]
        with handlers.block():
            joint = numpyro.infer.util.log_density(model, (X, y), {}, {"beta": beta})[0]
        return joint - trace["beta"]["fn"].log_prob(beta)

    weights = np.asarray(jax.lax.map(weight, jax.random.split(jax.random.key(1), 2000)), float)
    evidence = logsumexp(weights) - math.log(len(weights))
    gap, error = evidence - weights.mean(), weights.std() / math.sqrt(len(weights))
    assert gap > -3.0 * error
    # a Gaussian with one learned factor is near each of these
    assert gap < 0.6, gap


@pytest.mark.parametrize("name", ["Student-t", "Cauchy"])
def test_weights_of_heavy_tails_are_those_of_expectation_maximisation(name):
    """A quadratic about the value itself, below the log density and touching it where made: w (y - eta) = slope."""
    with jax.enable_x64(True):
        seen = seen_in(name, 2.0)
        weight = seen.weight(seen.predictor)
        np.testing.assert_allclose(weight * (seen.value - seen.predictor), seen.gradient(seen.predictor), rtol=1e-10)


@pytest.mark.parametrize("name", ["Student-t", "Poisson"])
def test_many_steps_end_at_the_mode(name):
    """Weights of heavy tails are renewed at every step, and those of others need not be: both end where slopes do."""
    model, y = NEARLY[name]
    guide = AutoConditional(lambda *args, **kwargs: None, model=model, num_steps=25)
    with jax.enable_x64(True):
        with handlers.seed(rng_seed=0):
            conditional = handlers.trace(guide).get_trace(X, y)["beta"]["fn"]

        def log_joint(beta):
            return numpyro.infer.util.log_density(model, (X, y), {}, {"beta": beta})[0]

        slope, curvature = jax.grad(log_joint)(conditional.mean), jax.hessian(log_joint)(conditional.mean)
        np.testing.assert_allclose(jnp.linalg.solve(curvature, slope), 0.0, atol=1e-6)


def test_weights_of_laplace_are_those_of_the_majorant_far_away_and_bounded_near():
    with jax.enable_x64(True):
        seen = seen_in("Laplace", 0.0)
        far, near = seen.value + 1e4, seen.value
        np.testing.assert_allclose(seen.weight(far) * (seen.value - far), seen.gradient(far), rtol=1e-6)
        np.testing.assert_allclose(seen.weight(near), 1.0 / 0.3**2, rtol=1e-10)


def logarithms(x, y=None, seen=True):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("data", len(x)), handlers.mask(mask=seen):
        numpyro.sample("y", dist.LogNormal(x @ beta, 0.7), obs=y)


@pytest.mark.parametrize("missing", [0.0, np.nan])
def test_the_logarithm_of_a_normal_has_the_evidence_in_every_draw(missing):
    """Also where values are missing, which have no logarithm."""
    seen, y = ~MISSING, np.where(MISSING, missing, TIMES)
    law = multivariate_normal(np.zeros(seen.sum()), X[seen] @ X[seen].T + 0.49 * np.eye(seen.sum()))
    expected = law.logpdf(np.log(y[seen])) - np.log(y[seen]).sum()
    with jax.enable_x64(True):
        guide = AutoConditional(lambda *args, **kwargs: None, model=logarithms)
        for key in range(2):
            assert negative_elbo(logarithms, guide, X, y, seen=seen, key=key) == pytest.approx(-expected, rel=1e-10)


WAITING = {
    "Gamma": lambda eta: dist.Gamma(2.0, 2.0 * jnp.exp(-eta)),
    "Exponential": lambda eta: dist.Exponential(jnp.exp(eta)),
    "Weibull": lambda eta: dist.Weibull(jnp.exp(eta), 1.5),
}


@pytest.mark.parametrize("name", WAITING)
def test_values_that_do_not_count_need_no_logarithm(name):
    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("data", len(x)), handlers.mask(mask=~MISSING):
            numpyro.sample("y", WAITING[name](x @ beta), obs=y)

    with jax.enable_x64(True):
        guides = [AutoConditional(lambda *args, **kwargs: None, model=model) for _ in range(2)]
        first, second = (
            negative_elbo(model, guide, X, np.where(MISSING, missing, TIMES))
            for guide, missing in zip(guides, (0.0, 3.0), strict=True)
        )
    assert first == pytest.approx(second, rel=1e-10)


def test_outputs_of_which_each_has_a_noise_of_its_own_share_no_factor():
    """Though the noises are equal where training starts."""

    def model(x, y=None):
        noise = numpyro.param("noise", jnp.ones(2), constraint=dist.constraints.positive)
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
        numpyro.sample("y", dist.Normal(x @ beta, noise).to_event(2), obs=y)

    guide = AutoConditional(lambda *args, **kwargs: None, model=model)
    with handlers.seed(rng_seed=0):
        guide(X, np.stack([Y, -Y], 1))
    assert guide.source.num_outputs == 0


def test_outputs_that_differ_by_what_is_added_share_a_factor():
    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0.5, 1.0).expand([2, 3]).to_event(2))
        numpyro.sample("y", dist.Normal(x @ w + jnp.arange(3.0), 0.3).to_event(2), obs=y)

    guide = AutoConditional(lambda *args, **kwargs: None, model=model)
    set_up(guide, X, np.ones((12, 3)))
    assert guide.source.num_outputs == 3


def test_outputs_that_are_mixed_share_no_factor():
    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
        mixed = x @ beta @ jnp.array([[1.0, 0.5], [0.2, 1.0]])
        numpyro.sample("y", dist.Normal(mixed, 0.5).to_event(2), obs=y)

    guide = AutoConditional(lambda *args, **kwargs: None, model=model)
    with handlers.seed(rng_seed=0):
        guide(X, np.stack([Y, -Y], 1))
    assert guide.source.num_outputs == 0


def effects(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("schools", 3):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
    with numpyro.plate("outer", 2, dim=-2), numpyro.plate("inner", 6, dim=-1):
        shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
        mean = (x @ slope + effect[np.arange(12) % 3]).reshape(2, 6) + shift
        numpyro.sample("y", dist.Normal(mean, 0.5), obs=None if y is None else y.reshape(2, 6))


@pytest.mark.parametrize("elbo", [Trace_ELBO(), TraceMeanField_ELBO(), TraceGraph_ELBO(), TraceEnum_ELBO()])
def test_sites_in_plates_and_batches_train_and_keep_the_evidence(elbo):
    """NumPyro wants a site's event dimensions in the guide to be those in the model."""
    groups = np.eye(3)[np.arange(12) % 3]
    covariance = X @ X.T + groups @ groups.T + 1.25 * np.eye(12)
    guide = AutoConditional(lambda *args, **kwargs: None, model=effects)
    with jax.enable_x64(True):
        svi = SVI(effects, guide, optax.adam(1e-2), elbo)
        state = svi.init(jax.random.key(0), jnp.asarray(X), jnp.asarray(Y))
        state, loss = jax.jit(svi.update)(state, jnp.asarray(X), jnp.asarray(Y))
    assert -float(loss) == pytest.approx(multivariate_normal(np.zeros(12), covariance).logpdf(Y), rel=1e-9)


def test_the_two_learned_factors_are_of_the_steps_and_of_the_precision():
    """Of Poisson counts: the first moves the mean alone, the second the spread alone."""
    model, y = NEARLY["Poisson"]
    guide = AutoConditional(lambda *args, **kwargs: None, model=model)

    def drawn(step, precision):
        params = {"auto_y_step": jnp.asarray(step), "auto_y_precision": jnp.asarray(precision)}
        with handlers.seed(rng_seed=0), handlers.substitute(data=params):
            trace = handlers.trace(guide).get_trace(X, y)
        return np.asarray(trace["beta"]["fn"].mean), np.asarray(trace["beta"]["value"])

    (mean, value), (same_mean, near), (other_mean, _) = drawn(1.0, 1.0), drawn(1.0, 100.0), drawn(0.2, 1.0)
    np.testing.assert_array_equal(mean, same_mean)
    assert np.abs(near - mean).max() < 0.2 * np.abs(value - mean).max()
    assert np.abs(other_mean - mean).max() > 1e-3


def test_inducing_inputs_of_a_linear_model_reach_its_evidence():
    """With the data as pseudo-observations the conditional is exact."""
    with jax.enable_x64(True):
        guide = AutoConditional(lambda *args, **kwargs: None, model=linear, inducing=X)
        svi = SVI(linear, guide, optax.sgd(0.0), Trace_ELBO())
        state = svi.init(jax.random.key(0), X, Y)
        params = svi.get_params(state)
        np.testing.assert_allclose(params["auto_beta_output_0"], Y)
        exact = params | {"auto_beta_precision_0": jnp.ones(12)}
        found = loss_at(exact, linear, guide, X, Y, key=1)
        covariance = 4.0 * X @ X.T + 9.0 + np.eye(12)
        assert -found == pytest.approx(multivariate_normal(np.ones(12), covariance).logpdf(Y), rel=1e-9)


def test_inducing_sees_no_data():
    """The distribution of the sites that follow does not change with the batch."""
    guide = AutoConditional(AutoNormal(classifier), inducing=6)
    set_up(guide, X, LABELS)

    @jax.jit
    def mean(x, y):
        return handlers.trace(handlers.seed(guide, 0)).get_trace(x, y)["w2"]["fn"].mean

    np.testing.assert_array_equal(mean(X, LABELS), mean(X[:4], LABELS[:4]))
    assert guide.source.num_outputs == 4


def test_units_and_precisions_are_positive_whatever_an_optimiser_makes_of_them():
    guide = AutoConditional(AutoNormal(classifier), inducing=4)
    svi = SVI(classifier, guide, optax.sgd(0.0), Trace_ELBO())
    svi.init(jax.random.key(0), X, LABELS)
    found = svi.constrain_fn({f"auto_w2_{name}_0": jnp.full(4, -9.0) for name in ("unit", "output", "precision")})
    assert {name: bool((value > 0).all()) for name, value in found.items()} == {
        "auto_w2_unit_0": True,
        "auto_w2_output_0": False,
        "auto_w2_precision_0": True,
    }


def test_pseudo_observations_start_at_targets_of_rows_and_elsewhere_where_parameters_start():
    def model(x, y=None):
        gain = numpyro.param("gain", 2.0)
        w = numpyro.sample("w", dist.Normal(1.0, 1e-4).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(gain * (x @ w), 0.3).to_event(1), obs=y)

    def start(inputs):
        guide = AutoConditional(lambda *args, **kwargs: None, model=model, inducing=inputs)
        set_up(guide, X, Y)
        return guide.source.units[0] * guide.source.outputs[0]

    np.testing.assert_allclose(start(X[:5]), Y[:5], rtol=1e-6)
    other = X[:5] + 0.25
    np.testing.assert_allclose(start(other), 2.0 * other.sum(1), atol=4 * 2.0 * 1e-4 * np.linalg.norm(other))


def test_pseudo_observations_start_out_as_precise_as_the_data_are_together():
    def total(count):
        guide = AutoConditional(AutoNormal(classifier), inducing=X[:count])
        set_up(guide, X, LABELS)
        (precision,) = (value for name, value in parameters_of(guide, X, LABELS).items() if "_precision_0" in name)
        return count * np.mean(precision) / guide.source.units[0] ** 2

    # twelve rows, of which each knows the logits of four classes as well as one of four
    np.testing.assert_allclose([total(3), total(12)], 12 / 4, rtol=1e-6)


def test_pseudo_observations_start_out_at_the_targets_of_rows_with_a_covariance():
    """Whose linear predictor is in units of the noise, unlike what pseudo-observations are of."""

    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.MultivariateNormal(x @ beta, scale_tril=FACTOR), obs=y)

    y = np.stack([Y, 1.0 - Y], 1)
    guide = AutoConditional(lambda *args, **kwargs: None, ["beta"], model=model, inducing=X[:4])
    set_up(guide, X, y)
    np.testing.assert_allclose(np.multiply(guide.source.units[0], guide.source.outputs[0]), y[:4], rtol=1e-6)


@pytest.mark.parametrize("target", [0.0, 0.1, 0.7, 1e9])
def test_pseudo_observations_that_are_all_alike_but_for_rounding_have_the_unit_one(target):
    y = np.full((12, 2), target)
    y[0] *= 1.0 + np.finfo(float).eps
    with jax.enable_x64(True):
        guide = AutoConditional(lambda *args, **kwargs: None, ["beta"], model=ridge, inducing=X)
        set_up(guide, X, y)
        assert guide.source.units == (1.0,)


# ---- symmetrized ---------------------------------------------------------------------------------------------------


def small(x, y=None):
    """A network of targets so small that pseudo-observations are precise, and five units that see one input."""
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([1, 5]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
    numpyro.sample("y", dist.Normal(jax.nn.relu(x @ w1) @ w2, 1e-3).to_event(1), obs=y)


def gated(x, y=None):
    """Of the second half of the rows nothing depends on w but where ``a`` is large, which it need not be in a draw."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("first", dist.Normal(x[:6] @ w, 0.3).to_event(1), obs=None if y is None else y[:6])
    loc = jnp.where(a > 1.0, x[6:] @ w, 0.0)
    numpyro.sample("second", dist.Normal(loc, 0.3).to_event(1), obs=None if y is None else y[6:])


def looped(x, y=None):
    """An autoregression whose observations lie in a loop, which carries a key besides."""
    a = numpyro.sample("a", dist.Uniform(-0.9, 0.9))
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))

    def step(before, now):
        numpyro.sample("y", dist.Normal(a * before + now[0] @ w, 0.3), obs=now[1])
        return now[1], None

    scan(step, jnp.zeros(()), (x, y))


@pytest.mark.parametrize(("model", "a"), [(gated, 2.0), (looped, 0.5)])
def test_what_depends_on_the_sites_is_read_off_the_program(model, a):
    """Where they are exact, the log joint less the log density of what follows is the same for all of its draws."""
    guide = AutoConditional(AutoDelta(model))
    set_up(guide, X, Y)
    params = {"a_auto_loc": jnp.asarray(a)}

    def difference(key):
        trace = handlers.trace(handlers.seed(handlers.substitute(guide, params), key)).get_trace(X, Y)
        values = {name: trace[name]["value"] for name in ("a", "w")}
        return log_density(model, (X, Y), {}, values)[0] - trace["w"]["fn"].log_prob(trace["w"]["value"])

    found = jax.jit(lambda keys: jax.lax.map(difference, keys))(jax.random.split(jax.random.key(0), 4))
    np.testing.assert_allclose(found, found[0], rtol=1e-4)


def test_classes_that_a_model_draws_itself_are_no_second_quantity():
    guide = AutoConditional(AutoNormal(classifier), inducing=5)
    svi = SVI(classifier, guide, optax.sgd(0.0), Trace_ELBO())
    params = svi.get_params(svi.init(jax.random.key(0), X, LABELS))
    found = [name.rpartition("_") for name in params if "output_" in name or "precision_" in name]
    assert [number for *_, number in found] == ["0", "0"]


def test_an_index_of_all_rows_is_no_batch():
    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(x)) as index:
            numpyro.sample("y", dist.Normal(x[index] @ b, 1.0), obs=y)

    x, y = jnp.asarray(X), jnp.asarray(Y)
    assert math.isfinite(negative_elbo(model, AutoConditional(AutoNormal(model), inducing=4), x, y))


def test_draws_are_of_latent_sites_alone():
    guide = AutoConditional(AutoMultivariateNormal(network))
    set_up(guide, X, Y)
    params = parameters_of(guide, X, Y)
    assert set(guide.sample_posterior(jax.random.key(1), params, X, Y)) == {"w1", "b1", "w2", "b2"}


def test_what_rounds_in_single_precision_is_still_a_density():
    """The conditional's log density is off by its rounding, which made a guide of nothing amiss be refused."""
    x = np.linspace(-10.0, 10.0, 20, dtype=np.float32)[:, None]
    y = 1e-3 * np.sin(0.2 * x[:, 0])
    guide = AutoSymmetrized(AutoConditional(AutoNormal(small), inducing=8), Symmetry({"w1": (None, "h"), "w2": ("h",)}))
    assert np.isfinite(negative_elbo(small, guide, x, y))


def masked(x, y=None, seen=None):
    """A network of which some observations are missing, and that needs to be told which."""
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([x.shape[-1], 3]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 0.3).mask(seen), obs=y)


@pytest.mark.parametrize(
    ("inducing", "number"), [(6, 6), ({"x": X[:4], "seen": np.array([True, False, True, True])}, 4)]
)
def test_what_a_model_needs_for_every_row_is_taken_at_inducing_inputs(inducing, number):
    """By number at the rows that inputs start from, else as given; held, and no parameter."""
    seen = np.arange(len(X)) % 3 > 0
    guide = AutoConditional(AutoNormal(masked), inducing=inducing)
    svi = SVI(masked, guide, optax.adam(0.01), Trace_ELBO())
    state, loss = jax.jit(svi.update)(svi.init(jax.random.key(0), X, Y, seen), X, Y, seen)
    assert np.isfinite(loss)
    parameters = svi.get_params(state)
    assert [name for name in parameters if "inducing" in name] == ["auto_w2_inducing_x"]
    assert parameters["auto_w2_inducing_x"].shape == (number, 2)
    held = guide.source.held["seen"]
    if isinstance(inducing, dict):
        np.testing.assert_array_equal(held, inducing["seen"])
    else:
        rows = [np.flatnonzero((np.float32(X) == row).all(1))[0] for row in np.asarray(guide.source.inputs["x"])]
        np.testing.assert_array_equal(held, seen[rows])
    assert "where seen keeps what it holds" in guide.explain()


def test_nothing_is_cut_that_a_model_can_do_with():
    """Of two arguments that have as many rows as the data the one that the model needs at them."""
    table = 10.0 * np.arange(len(X))

    def model(x, y=None, seen=None, lookup=table):
        masked(x + 0.0 * lookup[11], y, seen)

    guide = AutoConditional(AutoNormal(model), inducing=6)
    negative_elbo(model, guide, X, Y, np.ones(len(X), bool), table)
    assert list(guide.source.held) == ["seen"]


def paired(x, y=None):
    """A network whose units have two output weights each, with a covariance."""
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([x.shape[-1], 3]).to_event(2))
    w2 = numpyro.sample("w2", dist.MultivariateNormal(0.0, scale_tril=FACTOR).expand([3]).to_event(1))
    hidden = jnp.tanh(x @ w1)
    numpyro.sample("y", dist.Normal(hidden @ w2[:, 0] + hidden**2 @ w2[:, 1], 0.5).to_event(1), obs=y)


@pytest.mark.parametrize("name", ["exact", "correlated", "steps", "inducing"])
def test_information_is_that_of_the_hidden_layer(name):
    """Averaged over the whole group by brute force in double precision, the output weights included."""
    model, y = {"exact": (network, Y), "correlated": (paired, Y)}.get(name, (classifier, LABELS))
    base = AutoConditional(AutoNormal(model), inducing=5 if name == "inducing" else None)
    guide = AutoSymmetrized(base, estimator="exact")
    with jax.enable_x64(True):
        guide.setup(jax.random.key(0), X, y)
        assert "w2" in guide.layout.following
        assert guide.layout.factorises

        elements = guide.symmetry.elements()
        size = round(math.exp(guide.symmetry.log_order()))
        assert len(jax.tree.leaves(elements)[0]) == size

        @jax.jit
        def information_and_densities(key):
            trace = handlers.trace(handlers.seed(guide, key)).get_trace(X, y)
            values = {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not n.startswith("_")}

            def density(element):
                values_moved = guide.symmetry.apply(element, values)
                with handlers.block(), handlers.seed(rng_seed=0), handlers.substitute(data=values_moved):
                    moved = handlers.trace(base).get_trace(X, y)
                return sum(jnp.sum(moved[n]["fn"].log_prob(values_moved[n])) for n in values)

            return trace["_symmetry_correction"]["fn"].log_factor, jax.lax.map(density, elements)

        information, densities = information_and_densities(jax.random.key(3))
        expected = float(densities[0]) - (logsumexp(densities) - math.log(size))
        assert -float(information) == pytest.approx(expected, abs=1e-8)


def test_a_conditional_that_is_not_equivariant_stays_in_the_table():
    """A guide by hand whose output weights follow, but for one unit that is a thousandth out."""

    def broken(x, y=None, shift=1e-3):
        w1 = numpyro.sample("w1", dist.Normal(numpyro.param("m", jnp.ones((2, 3))), 0.1).to_event(2))
        b1 = numpyro.sample("b1", dist.Normal(numpyro.param("c", jnp.zeros(3)), 0.1).to_event(1))
        offset = jnp.zeros(3).at[0].set(shift)
        numpyro.sample("w2", dist.Normal(w1.sum(0) + b1 + offset, 0.2).to_event(1))
        numpyro.sample("b2", dist.Normal(0.0, 1.0))

    for shift, follows in ((1e-3, False), (0.0, True)):
        guide = AutoSymmetrized(functools.partial(broken, shift=shift), HIDDEN, model=network)
        guide.setup(jax.random.key(0), X, Y)
        assert ("w2" in guide.layout.following) == follows


def test_a_conditional_that_is_equivariant_only_where_it_starts_stays_in_the_table():
    """Each unit has a parameter of its own, and all are alike before any training."""

    def learned(x, y=None):
        w1 = numpyro.sample("w1", dist.Normal(numpyro.param("m", jnp.ones((2, 3))), 0.1).to_event(2))
        b1 = numpyro.sample("b1", dist.Normal(numpyro.param("c", jnp.zeros(3)), 0.1).to_event(1))
        numpyro.sample("w2", dist.Normal(w1.sum(0) + b1 + numpyro.param("shift", jnp.zeros(3)), 0.2).to_event(1))
        numpyro.sample("b2", dist.Normal(0.0, 1.0))

    guide = AutoSymmetrized(learned, HIDDEN, model=network)
    guide.setup(jax.random.key(0), X, Y)
    assert "w2" not in guide.layout.following


def test_data_in_which_nothing_can_be_seen_leave_a_site_in_the_table():
    """Of inputs that are all zero the output weights know nothing, so that no relabelling could show."""

    def model(x, y=None):
        w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
        w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(jax.nn.relu(x @ w1) @ w2, 0.3).to_event(1), obs=y)

    def conditional(x, y=None):
        w1 = numpyro.sample("w1", dist.Normal(numpyro.param("m", jnp.ones((2, 3))), 0.1).to_event(2))
        numpyro.sample("w2", dist.Normal((x @ w1).sum(0), 0.2).to_event(1))

    symmetry = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)})
    guide = AutoSymmetrized(conditional, symmetry, model=model, check=False)
    with pytest.warns(SymmetryWarning, match="'w2'.*could not be seen"):
        guide.setup(jax.random.key(0), jnp.zeros((4, 2)), jnp.zeros(4))
    assert guide.layout.following == ()
    assert (
        "w2"
        in AutoSymmetrized(conditional, symmetry, model=model, check=False)
        .setup(jax.random.key(0), jnp.ones((4, 2)), jnp.zeros(4))
        .layout.following
    )


def test_data_that_a_model_closes_over_were_traced_in_single_precision_before():
    """JAX remembers a constant in the precision of a program that lives, such as a step of another guide's training."""
    x, y = np.linspace(-2.0, 2.0, 20)[:, None], np.sin(np.linspace(-2.0, 2.0, 20))

    def model():
        w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([1, 2]).to_event(2))
        w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(jax.nn.relu(x @ w1) @ w2, 0.3).to_event(1), obs=y)

    first = SVI(model, AutoNormal(model), optax.adam(0.01), Trace_ELBO())
    state = first.init(jax.random.key(0))
    step = jax.jit(first.update).trace(state)
    guide = AutoSymmetrized(AutoConditional(AutoNormal(model))).setup(jax.random.key(0))
    assert np.isfinite(loss_at(first.get_params(state), model, guide))
    assert step.jaxpr.consts
    assert guide.base.explain().startswith("w2 follows the rest exactly")


def test_a_model_that_runs_in_single_precision_alone():
    def model(x, y=None):
        w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
        w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        # with 64-bit whole numbers what is carried changes its type
        count, _ = jax.lax.scan(lambda k, _: (k + jnp.arange(2).sum(), None), jnp.zeros((), jnp.int32), None, 3)
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2 / count, 0.3).to_event(1), obs=y)

    guide = AutoSymmetrized(AutoConditional(AutoNormal(model))).setup(jax.random.key(0), X, Y)
    assert guide.base.explain().startswith("w2 follows the rest exactly")


# ---- prediction, refusals ------------------------------------------------------------------------------------------


def test_predicts_at_new_inputs_by_its_own_data():
    guide = AutoConditional(AutoNormal(network))
    with handlers.seed(rng_seed=0):
        guide(X, Y)
    params = parameters_of(guide, X, Y)
    bound = pickle.loads(pickle.dumps(guide.given(X, Y)))
    predictive = Predictive(network, guide=bound, params=params, num_samples=5)
    assert jax.jit(lambda x: predictive(jax.random.key(1), x)["y"])(X[:3]).shape == (5, 3)
    with pytest.raises(SymmetryError, match=r"guide\.given"):
        Predictive(network, guide=guide, params=params, num_samples=5)(jax.random.key(1), X[:3])
    assert guide.sample_posterior(jax.random.key(1), params, X, Y, sample_shape=(2, 3))["w2"].shape == (2, 3, 3)


def products(x, y=None):
    u = numpyro.sample("u", dist.Normal(0.0, 1.0))
    v = numpyro.sample("v", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(u * v * x[:, 0], 1.0).to_event(1), obs=y)


def subsampled(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", 100, subsample_size=len(x)):
        numpyro.sample("y", dist.Normal(beta * x[:, 0], 1.0), obs=y)


def positive(x, y=None):
    slope = numpyro.sample("slope", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(slope * x[:, 0], 1.0).to_event(1), obs=y)


def gamma(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Gamma(jnp.exp(beta * x[:, 0]), 1.0).to_event(1), obs=y)


def shares(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Beta(jnp.exp(beta * x[:, 0]), 1.0).to_event(1), obs=y)


def discrete(x, y=None):
    k = numpyro.sample("k", dist.Bernoulli(0.5))
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(beta * x[:, 0] + k, 1.0).to_event(1), obs=y)


def support(x, y=None):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    c = numpyro.sample("c", dist.Uniform(b, b + 1.0))
    numpyro.sample("y", dist.Normal((b + c) * x[:, 0], 1.0).to_event(1), obs=y)


def computed(x, y=None):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(jnp.zeros(len(x)), 1.0).to_event(1), obs=None if y is None else y - b)


def unused(x, y=None):
    numpyro.sample("b", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(jnp.zeros(len(x)), scale).to_event(1), obs=y)


def nested_priors(x, y=None):
    """In the prior of c, b counts only where it is large."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    c = numpyro.sample("c", dist.Normal(jnp.where(b > 3.0, b, 0.0), 1.0))
    numpyro.sample("y", dist.Normal(b * x[:, 0] + c, 1.0).to_event(1), obs=y)


def picked(x, y=None):
    """A model that picks its batch by the plate's index, where another takes it as arguments."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(X), subsample_size=6) as index:
        numpyro.sample("y", dist.Normal(x[index] @ b, 1.0), obs=None if y is None else y[index])


def sized(x, y):
    """A model that has the number of its rows from its observations."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(x @ b, 1.0), obs=y)


def bent(x, y=None):
    """A model that is affine where its parameter starts."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    bend = numpyro.param("bend", 0.0)
    numpyro.sample("y", dist.Normal(b * x[:, 0] + bend * jnp.tanh(b), 1.0).to_event(1), obs=y)


def imputed(x, y=None):
    """A model that draws the values that are missing, and so cannot integrate what they are drawn from out."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ b, 1.0), obs=y, obs_mask=~MISSING)


def squared(x, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ w**2, 1.0).to_event(1), obs=y)


def first_rows(x, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x[:3] @ w, 1.0).to_event(1), obs=None if y is None else y[:3])


def annealed(x, y=None):
    with handlers.scale(scale=0.5):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * x[:, 0], 1.0).to_event(1), obs=y)


REFUSED = {
    "two sets": (products, {}, "'u' and 'v' are each affine"),
    "subsampled": (subsampled, {}, "Plate 'data' is subsampled, 12 of 100"),
    "support": (positive, {}, r"None of the sites \['slope'\] can follow: of each, it has no plain Gaussian prior"),
    "no latent site": (
        handlers.condition(linear, {"beta": np.zeros(2), "bias": 0.0}),
        {},
        "no latent site that is not conditioned on",
    ),
    "support, asked": (positive, {"sites": ["slope"]}, r"Sites \['slope'\] have no Gaussian prior \(Normal, Multi"),
    "prior that is weighed": (
        annealed,
        {},
        r"None of the sites \['slope'\] can follow: of each, it has no plain Gaussian",
    ),
    "likelihood": (shares, {}, "Beta, of no known linear predictor"),
    "shape of the values": (gamma, {}, "'y' depends on them by more than its log mean"),
    "not affine elsewhere": (bent, {}, "the location of 'y' is not affine"),
    "hidden layer": (network, {"sites": ["w1"]}, "the location of 'y' is not affine"),
    "unknown site": (network, {"sites": ["w3"]}, r"sites names \['w3'\]"),
    "discrete": (discrete, {}, "Site 'k' is discrete"),
    "hidden": (handlers.block(discrete, hide=["k"]), {}, "'y' is left to chance"),
    "a key of its own": (handlers.seed(network, 0), {}, r"Sites \['w1', .*\] have the same values at every draw"),
    "values of its own": (
        handlers.substitute(network, {"w1": np.zeros((2, 3))}),
        {},
        r"Sites \['w1'\] have the same values .*handlers.condition",
    ),
    "support of another": (support, {}, "the support of 'c' depends on them"),
    "computed values": (computed, {}, "the values of 'y' that are observed depend on them"),
    "nothing observes it": (unused, {}, "b: no observation depends on it"),
    "inducing observations": (network, {"inducing": {"y": Y[:5]}}, r"inducing inputs can lie in \['x'\]"),
    "inducing, values alone": (
        computed,
        {"sites": ["b"], "inducing": 5},
        r"No observed distribution depends on \['b'\]",
    ),
    "inducing width": (network, {"inducing": np.zeros((5, 3))}, r"shape \(5, 3\); expected \(number, 2\)"),
    "inducing, sizes of data": (sized, {"inducing": 5}, r"without its observations \['y'\]: .*take None for them"),
    "inducing, not linear": (
        squared,
        {"sites": ["w"], "inducing": 5},
        "'w' enters the model by an operation that is not",
    ),
    "inducing, rows of its own": (first_rows, {"inducing": 5}, r"At 5 inducing inputs .*\['w'\] has shape \(3,\)"),
    "inducing, a value a row": (
        curve,
        {"inducing": 5},
        r"Sites \['f'\] have values for every row .*no inducing inputs",
    ),
    "prior of another": (
        nested_priors,
        {"sites": ["b", "c"]},
        r"The prior of 'c' .*AutoConditional\(base_guide, \['c'\]",
    ),
    "prior of another, inducing": (nested_priors, {"sites": ["b", "c"], "inducing": 5}, "The prior of 'c' depends on"),
    # as many as a batch has, so that no shape tells
    "inducing, rows by index": (
        picked,
        {"inducing": 6},
        "'y' reads rows by the index of plate 'rows'.*subsample_size=len",
    ),
    "missing values": (imputed, {"sites": ["b"]}, r"'y_unobserved' .*obs_mask: .*sample\('y', fn\.mask\(seen\)"),
    "inducing name": (network, {"inducing": {"z": np.zeros((5, 2))}}, r"names the arguments \['z'\]"),
}


def test_a_site_is_no_missing_value_for_another_that_is_called_observed():
    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("k", dist.LogNormal(b, 1.0))
        numpyro.sample("k_observed", dist.Normal(b * x[:, 0], 1.0).to_event(1), obs=y)

    words = "the prior of 'k' depends on them. Leave it"
    with pytest.raises(SymmetryError, match=words), handlers.seed(rng_seed=0):
        AutoConditional(AutoNormal(model), ["b"])(X, Y)


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    model, options, words = REFUSED[name]
    y = np.exp(-np.abs(Y)) if name in ("likelihood", "shape of the values") else Y
    base = (lambda *args, **kwargs: None) if name in ("discrete", "hidden") else AutoNormal(model)
    with pytest.raises(SymmetryError, match=words), handlers.seed(rng_seed=0):
        AutoConditional(base, model=model, **options)(X, y)


def test_refuses_inducing_inputs_of_different_numbers():
    guide = AutoConditional(AutoNormal(masked), inducing={"x": X[:4], "seen": np.ones(5, bool)})
    words = r"different numbers of rows, \{'x': 4, 'seen': 5\}"
    with pytest.raises(SymmetryError, match=words), handlers.seed(rng_seed=0):
        guide(X, Y, np.ones(len(X), bool))


def test_refuses_inducing_inputs_of_a_model_without_inputs():
    def model(y):
        loc = numpyro.sample("loc", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(loc, 1.0).expand(y.shape).to_event(1), obs=y)

    words = r"no array in which inducing inputs could lie.*it takes \['y'\]"
    with pytest.raises(SymmetryError, match=words), handlers.seed(rng_seed=0):
        AutoConditional(AutoNormal(model), inducing=5)(Y)


def gained(x, gain, y=None):
    """A model with a second number for every row."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", 12, subsample_size=len(x)):
        numpyro.sample("y", dist.Normal((x @ b) * gain, 0.5), obs=y)


GAIN = np.random.default_rng(3).normal(size=12)


@pytest.mark.parametrize("rows", [1, 4, 12], ids=["one", "as many as the inputs", "all"])
def test_rows_of_a_batch_are_not_read_where_their_shapes_fit(rows):
    """The conditional is the same whatever the batch is."""
    guide = AutoConditional(lambda *args, **kwargs: None, model=gained, inducing=min(4, rows))
    with handlers.seed(rng_seed=0):
        guide(X[:rows], GAIN[:rows], Y[:rows])
        assert list(guide.source.held) == ["gain"]
        first, second = (
            handlers.trace(guide).get_trace(X[k : k + rows], GAIN[k : k + rows], Y[k : k + rows])["b"]["fn"]
            for k in (0, 12 - rows)
        )
    np.testing.assert_array_equal(first.mean, second.mean)


@pytest.mark.parametrize("rows", [4, 12], ids=["as many as the inputs", "all"])
def test_rows_of_a_batch_are_not_read_in_a_pytree_either(rows):
    def model(x, other, y=None):
        gained(x, other["gain"][: len(x)] * other["factor"], y)

    def at(k):
        return X[k : k + rows], {"gain": GAIN[k : k + rows], "factor": 2.0}, Y[k : k + rows]

    guide = AutoConditional(lambda *args, **kwargs: None, model=model, inducing=4)
    with handlers.seed(rng_seed=0):
        guide(*at(0))
        assert list(guide.source.held) == ["other"]
        first, second = (handlers.trace(guide).get_trace(*at(k))["b"]["fn"] for k in (0, 12 - rows))
    np.testing.assert_array_equal(first.mean, second.mean)
    unnamed = AutoConditional(lambda *args, **kwargs: None, model=model, inducing=X[:4])
    with (
        pytest.raises(SymmetryError, match=r"also reads \['other'\].*arguments of their own"),
        handlers.seed(rng_seed=0),
    ):
        unnamed(*at(0))


@pytest.mark.parametrize("named", [X[:4], {"x": X[:4]}])
def test_refuses_rows_of_arguments_that_are_not_named_beside(named):
    words = r"also reads \['gain'\], with a row for every one of 'x'.*inducing=\{'x': x\[:100\], 'gain': gain\[:100\]\}"
    for guide in (
        AutoConditional(lambda *args, **kwargs: None, model=gained, inducing=named),
        AutoConditional(lambda *args, **kwargs: None, ["b"], model=gained, inducing=named),
    ):
        with pytest.raises(SymmetryError, match=words), handlers.seed(rng_seed=0):
            guide(X[:4], GAIN[:4], Y[:4])
    beside = {"x": X[:4], "gain": GAIN[:4]}
    guide = AutoConditional(lambda *args, **kwargs: None, model=gained, inducing=beside)
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        guide(X[:4], GAIN[:4], Y[:4])
    assert {"auto_b_inducing_x", "auto_b_inducing_gain"} <= set(trace)


def local(x, y=None, of_mean=True):
    """A model with a latent number for every row."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", 12, subsample_size=len(x)):
        u = numpyro.sample("u", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x @ b + u if of_mean else x @ b, jnp.exp(0.1 * u)), obs=y)


@pytest.mark.parametrize("rows", [1, 4, 12])
def test_refuses_latent_sites_of_rows_in_what_follows_linearly(rows):
    guide = AutoConditional(lambda *args, **kwargs: None, ["b"], model=local, inducing=min(4, rows))
    with pytest.raises(SymmetryError, match=r"linearly from \['b'\] depends on \['u'\]"), handlers.seed(rng_seed=0):
        guide(X[:rows], Y[:rows])


@pytest.mark.parametrize("rows", [4, 12], ids=["as many as the inputs", "more"])
def test_latent_sites_of_rows_elsewhere_are_none_of_its_business(rows):
    guide = AutoConditional(AutoNormal(local), ["b"], inducing=4)
    assert guide.source is None
    loss = negative_elbo(local, guide, X[:rows], Y[:rows], of_mean=False)
    assert math.isfinite(loss)
    assert guide.source.local == ("u",)


def taken(x, y=None):
    """A model that takes a batch of its data by NumPyro's own function."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(x), subsample_size=3):
        some = None if y is None else numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Poisson(jnp.exp(numpyro.subsample(x, event_dim=1) @ w)), obs=some)


def indexed(x, y=None):
    """As ``taken``, by the index of the plate."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(x), subsample_size=3) as index:
        numpyro.sample("y", dist.Poisson(jnp.exp(x[index] @ w)), obs=None if y is None else y[index])


def whole(x, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Poisson(jnp.exp(x @ w)), obs=y)


@pytest.mark.parametrize("model", [taken, indexed])
@pytest.mark.parametrize("inputs", [2, 3, 5])
def test_pseudo_observations_of_a_model_that_takes_its_own_batch(model, inputs):
    """They lie at all inducing inputs, whatever the batch, as those of the model that takes all rows."""
    counts = np.arange(12) % 4

    def conditional(model, params):
        guide = AutoConditional(lambda *args, **kwargs: None, model=model, inducing={"x": X[:inputs]})
        set_up(guide, X, counts)

        @jax.jit
        def mean_and_density(params):
            with handlers.seed(rng_seed=0), handlers.substitute(data=params):
                fn = handlers.trace(guide).get_trace(X, counts)["w"]["fn"]
            return fn.mean, fn.log_prob(fn.mean + 1.0)

        return guide, mean_and_density(params)

    outputs = np.linspace(-1.0, 1.0, inputs, dtype=np.float32)
    params = {"auto_w_unit_0": 1.0, "auto_w_output_0": outputs, "auto_w_precision_0": np.exp(outputs)}
    (guide, found), (_, expected) = conditional(model, params), conditional(whole, params)
    assert guide.source.dropped == ("y",)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_refuses_values_that_no_predictor_fits():
    times = np.where(MISSING, 0.0, TIMES)
    model = one_predictor(lambda eta: dist.Exponential(jnp.exp(eta)))
    with pytest.raises(SymmetryError, match="'y' holds 4 values outside of its support.*log rate fits them"):
        negative_elbo(model, AutoConditional(lambda *args, **kwargs: None, model=model), X, times)


BAD_DATA = {
    "missing": (np.where(MISSING, np.nan, Y), "4 values that are not finite"),
    "column": (Y[:, None], r"shape \(12, 1\), and its distribution has shape \(12,\)"),
    "no rows": (Y[:0], "no observed site with any values"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_refuses_data(name):
    y, words = BAD_DATA[name]
    with pytest.raises(SymmetryError, match=words), handlers.seed(rng_seed=0):
        AutoConditional(AutoNormal(network))(X[: len(y)], y)


def test_refuses_inputs_that_are_missing():
    inputs = np.where(MISSING[:, None], np.nan, X)
    with pytest.raises(SymmetryError, match="'y' has .* not a number.*NaN"), handlers.seed(rng_seed=0):
        AutoConditional(AutoNormal(network))(inputs, Y)


def unconstrained_scale(x, y=None):
    """A parameter that has no constraint, and takes no value below zero."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    variance = numpyro.param("variance", 0.01)
    numpyro.sample("y", dist.Normal(b * x[:, 0], jnp.sqrt(variance)).to_event(1), obs=y)


def test_parameters_that_take_no_other_value_are_left_where_they_start():
    guide = AutoConditional(lambda *args, **kwargs: None, model=unconstrained_scale)
    expected = multivariate_normal(np.zeros(12), np.outer(X[:, 0], X[:, 0]) + 0.01 * np.eye(12)).logpdf(Y)
    with jax.enable_x64(True):
        assert negative_elbo(unconstrained_scale, guide, X, Y) == pytest.approx(-expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore:init_to_uniform.* skipping initialization of site 'noise':UserWarning")
def test_a_site_to_which_a_handler_gives_a_value_starts_there():
    model = handlers.substitute(hierarchical, data={"noise": 0.3})
    guide = AutoConditional(AutoNormal(model))
    set_up(guide, X, Y)
    np.testing.assert_allclose(parameters_of(guide, X, Y)["noise_auto_loc"], np.log(0.3), rtol=1e-6)
    misshapen = AutoConditional(AutoNormal(model, init_loc_fn=init_to_value(values={"scale": np.ones(3)})))
    with pytest.raises(SymmetryError, match=r"'scale' starts at values of shape \(3,\)"):
        handlers.seed(misshapen, 0)(X, Y)


def test_parameters_that_another_site_takes_no_other_value_of_either():
    """Its density is not a number there, which is no sign that it depends on what follows."""

    def model(x, y=None):
        scale = numpyro.param("scale", 0.01)
        tau = numpyro.sample("tau", dist.Gamma(2.0, jnp.sqrt(scale)))
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ w, tau).to_event(1), obs=y)

    guide = AutoConditional(AutoNormal(model))
    assert math.isfinite(negative_elbo(model, guide, X, Y))
    assert guide.source.sites == ("w",)


def test_a_batch_is_refused_after_the_guide_was_set_up_with_all_data():
    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", 12, subsample_size=len(x)):
            numpyro.sample("y", dist.Normal(beta * x[:, 0], 1.0), obs=y)

    guide = AutoConditional(AutoNormal(model))
    with handlers.seed(rng_seed=0):
        guide(X, Y)
        with pytest.raises(SymmetryError, match="Plate 'data' is subsampled, 4 of 12"):
            guide(X[:4], Y[:4])


def test_a_base_guide_draws_all_that_is_left():
    with pytest.raises(UnsupportedGuideError, match=r"does not draw \['noise'\]"), handlers.seed(rng_seed=0):
        AutoConditional(lambda *args, **kwargs: None, model=two_outputs)(X, np.stack([Y, -Y], 1))


@pytest.mark.parametrize("model", [None, two_outputs])
def test_a_conditional_goes_around_a_list_of_guides(model):
    y, rest = np.stack([Y, -Y], 1), handlers.block(two_outputs, hide=["noise"])
    guides = AutoGuideList(two_outputs)
    guides.append(AutoNormal(handlers.block(two_outputs, expose=["noise"])))
    guides.append(AutoConditional(AutoNormal(rest), model=model))
    around = r"AutoGuideList.*around the whole list.*AutoConditional\(guides\)"
    with pytest.raises((SymmetryError, UnsupportedGuideError), match=around), handlers.seed(rng_seed=0):
        guides(X, y)


def test_whole_numbers_in_a_prior_and_no_sites_left():
    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ beta, 1).to_event(1), obs=y)

    with jax.enable_x64(True):
        guide = AutoConditional(AutoMultivariateNormal(model))
        expected = multivariate_normal(np.zeros(12), 4.0 * X @ X.T + np.eye(12)).logpdf(Y)
        assert negative_elbo(model, guide, X, Y) == pytest.approx(-expected, rel=1e-10)


def test_refuses_to_be_set_up_under_jit_where_the_model_holds_its_data():
    def model():
        return linear(jnp.asarray(X), jnp.asarray(Y))

    def first(key):
        with handlers.seed(rng_seed=key):
            return AutoConditional(AutoNormal(model))()

    with pytest.raises(SymmetryError, match="set up under jit"):
        jax.jit(first)(jax.random.key(0))


def test_draws_in_a_container_take_the_models_arguments_by_name_too():
    def regression(x, y=None):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ w, scale).to_event(1), obs=y)

    key, guide = jax.random.key(0), AutoConditional(AutoNormal(regression))
    params = SVI(regression, guide, optax.adam(0.01), Trace_ELBO()).run(key, 2, X, Y, progress_bar=False).params
    drawn = [
        to_arviz(key, guide, params, *given, num_draws=5, progress_bar=False)["posterior"]["w"].values
        for given in (((X, Y),), ((X,), {"y": Y}), ((), {"x": X, "y": Y}))
    ]
    assert np.ptp(drawn[0]) > 0
    for other in drawn[1:]:
        np.testing.assert_array_equal(other, drawn[0])


def test_posterior_draws_need_the_parameters():
    guide = AutoConditional(AutoNormal(hierarchical))
    with pytest.raises(SymmetryError, match="not set up"):
        guide.sample_posterior(jax.random.key(0), {}, X, Y)
    with handlers.seed(rng_seed=0):
        guide(X, Y)
    with jax.checking_leaks(), pytest.raises(SymmetryError, match=r"Parameters .*noise_auto_loc.* are missing"):
        guide.sample_posterior(jax.random.key(0), {}, X, Y)


def test_refuses_models_without_data_and_guides_that_are_set_up():
    with pytest.raises(SymmetryError, match="no observed site"), handlers.seed(rng_seed=0):
        AutoConditional(AutoNormal(network))(X)
    used = AutoNormal(network)
    with handlers.seed(rng_seed=0):
        used(X, Y)
    with pytest.raises(UnsupportedGuideError, match="set up already"), handlers.seed(rng_seed=0):
        AutoConditional(used)(X, Y)

    def same_sites(x, y=None):
        numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))

    with pytest.raises(UnsupportedGuideError, match=r"draws \['w2'\]"), handlers.seed(rng_seed=0):
        AutoConditional(same_sites, model=network)(X, Y)
    with pytest.raises(TypeError, match="got the class"):
        AutoConditional(AutoNormal)
    with pytest.raises(UnsupportedGuideError, match="point mass"):
        AutoSymmetrized(AutoConditional(AutoDelta(network)))


def test_what_follows_cancels_from_the_general_path():
    """In single precision, at a noise at which the density of the output weights rounds by many nats."""
    model = functools.partial(network, noise=1e-4)
    base = AutoConditional(AutoMultivariateNormal(model, init_scale=0.5))
    guide = AutoSymmetrized(base, HIDDEN, estimator="exact")
    guide.setup(jax.random.key(0), X, Y)
    assert not guide.layout.factorises
    hidden, orders = base.base, np.array(list(itertools.permutations(range(3))))

    @jax.jit
    def correction_and_densities(key):
        with handlers.seed(rng_seed=key):
            trace = handlers.trace(guide).get_trace(jnp.asarray(X), jnp.asarray(Y))

        def density(order):
            moved = {name: trace[name]["value"][..., order] for name in ("w1", "b1")}
            flat = jnp.concatenate([jnp.ravel(moved[name]) for name in hidden._init_locs])
            return trace["_auto_latent"]["fn"].log_prob(flat)

        return trace["_symmetry_correction"]["fn"].log_factor, jax.lax.map(density, orders)

    found, densities = correction_and_densities(jax.random.key(3))
    expected = float(densities[0]) - (logsumexp(densities) - math.log(6))
    assert float(found) == pytest.approx(-expected, abs=1e-4)


def test_a_full_covariance_below_is_symmetrized_too():
    guide = AutoSymmetrized(AutoConditional(AutoMultivariateNormal(network)))
    guide.setup(jax.random.key(0), X, Y)
    assert "w2" in guide.layout.following


def test_a_likelihood_sharper_than_single_precision():
    """Noise of a ten-thousandth, more parameters than the rows can tell apart: multiplied out there is no factor."""

    def sharp(x, y=None):
        weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([30]).to_event(1))
        features = jnp.concatenate([x**k for k in range(15)], 1)
        numpyro.sample("y", dist.Normal(features @ weights, 1e-4).to_event(1), obs=y)

    x = np.random.default_rng(0).uniform(-1.0, 1.0, size=(40, 2)).astype(np.float32)
    guide = AutoConditional(lambda *args, **kwargs: None, model=sharp)
    with handlers.seed(rng_seed=0):
        trace = handlers.trace(guide).get_trace(x, x[:, 0])
    assert np.isfinite(trace["weights"]["value"]).all()
    assert np.isfinite(trace["weights"]["fn"].log_prob(trace["weights"]["value"]))
