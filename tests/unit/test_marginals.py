"""Gaussian guides with correlations: moments of their marginals in closed form, and the bound that rests on them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import autoguide

from numpyro_symmetry import AutoSymmetrized, Symmetry
from numpyro_symmetry.guides.symmetrized.layout import density_of, draw_of, draws_of

Y = np.random.default_rng(1).normal(size=12)


def positive_units(y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    width = numpyro.sample("width", dist.HalfNormal(1.0).expand([3]).to_event(1))
    numpyro.sample("shift", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal((slope.sum(0) * width).sum(), 1.0).expand([12]).to_event(1), obs=y)


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    density = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, 1.0))
    numpyro.sample("y", density.expand([12]).to_event(1), obs=y)


UNITS = Symmetry({"slope": (None, "h"), "width": ("h",)})
COMPONENTS = Symmetry({"weights": ("k",), "loc": ("k",)})
KINDS = {"full": autoguide.AutoMultivariateNormal, "low rank": autoguide.AutoLowRankMultivariateNormal}


def correlated(guide, scale=0.5):
    """Parameters of a guide whose numbers are correlated."""

    @jax.jit
    def initial():
        with handlers.seed(rng_seed=0), handlers.trace() as trace:
            guide(Y)
        return {name: site["value"] for name, site in trace.items() if site["type"] == "param"}

    found = initial()
    rng = np.random.default_rng(0)
    made = {name: jnp.asarray(value + scale * rng.normal(size=value.shape)) for name, value in found.items()}
    if "auto_scale_tril" in made:
        made["auto_scale_tril"] = jnp.tril(made["auto_scale_tril"], -1) + jnp.diag(jnp.linspace(0.2, 0.9, 10))
    if "auto_scale" in made:
        made["auto_scale"] = jnp.linspace(0.2, 0.9, 10)
    return made


def set_up(kind, model=positive_units, symmetry=UNITS):
    guide = AutoSymmetrized(KINDS[kind](model), symmetry, estimator="sequential").setup(jax.random.key(0), Y)
    assert not guide.layout.factorises
    return guide


def factors_of(key, base, trace, layout, args, kwargs):
    return density_of(base, trace, layout, args, kwargs, key).proposal()


def traced(guide, params, seed=1):
    with handlers.seed(rng_seed=seed), handlers.substitute(data=params):
        return handlers.trace(guide.base).get_trace(Y)


def test_shares_that_a_group_permutes_are_read_by_their_logarithms():
    guide = set_up("full", mixture, COMPONENTS)
    trace = traced(guide, {})
    draw = draw_of(guide.base, trace, guide.layout)
    np.testing.assert_allclose(draw["weights"], np.log(trace["weights"]["value"]), rtol=1e-6)
    np.testing.assert_array_equal(draw["loc"], trace["loc"]["value"])


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_those_of_the_covariance_and_need_no_draws(kind):
    guide = set_up(kind)

    @jax.jit
    def at(params, key):
        trace, posterior = traced(guide, params), guide.base.get_posterior(params)
        factors = factors_of(None, guide.base, trace, guide.layout, (Y,), {})
        expected = guide.base._unpack_latent(jnp.sqrt(jnp.diagonal(posterior.covariance_matrix)))
        draws = draws_of(key, guide.base, trace, guide.layout, (Y,), {}, 4000)
        return factors.loc, factors.scale, guide.base._unpack_latent(posterior.mean), expected, draws

    params = correlated(guide.base)
    loc, scale, means, expected, draws = jax.tree.map(np.asarray, at(params, jax.random.key(2)))
    for site in ("slope", "width"):
        np.testing.assert_allclose(loc[site], means[site], rtol=1e-6)
        np.testing.assert_allclose(scale[site], expected[site], rtol=1e-5)
    for site, value in draws.items():
        white = (value - loc[site]) / scale[site]
        assert np.abs(white.mean(0)).max() < 4.5 / math.sqrt(4000)
        assert np.abs((white**2).mean(0) - 1.0).max() < 4.5 * math.sqrt(2.0 / 4000)


def test_where_a_group_acts_on_a_simplex_its_moments_are_those_of_draws():
    guide = AutoSymmetrized(KINDS["full"](mixture), COMPONENTS).setup(jax.random.key(0), Y)

    @jax.jit
    def at(key):
        trace = traced(guide, {})
        factors = factors_of(key, guide.base, trace, guide.layout, (Y,), {})
        return factors.loc, factors.scale, guide.base._unpack_latent(trace["_auto_latent"]["fn"].mean)

    found = [at(jax.random.key(s)) for s in (0, 1)]
    assert np.abs(found[0][0]["weights"] - found[1][0]["weights"]).max() > 1e-4
    for loc, scale, mean in found:
        np.testing.assert_array_equal(loc["loc"], mean["loc"])
        np.testing.assert_allclose(scale["loc"], 0.1, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_stays_below_the_information(kind):
    """One permutation, the identity, against all six elements; mean of paired gaps, in standard errors."""
    guide = set_up(kind)
    exact = AutoSymmetrized(guide.base, UNITS, estimator="exact").setup(jax.random.key(0), Y)
    params = correlated(guide.base)

    def both(key):
        found = []
        for each in (exact, guide):
            with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(data=params):
                found.append(-handlers.trace(each).get_trace(Y)["_symmetry_correction"]["fn"].log_factor)
        return jnp.stack(found)

    found = np.asarray(jax.jit(lambda keys: jax.lax.map(both, keys))(jax.random.split(jax.random.key(2), 2000)), float)
    gap = found[:, 0] - found[:, 1]
    assert gap.mean() > -3.0 * gap.std() / math.sqrt(len(gap))
    assert gap.mean() < 0.2 * found[:, 0].mean()
