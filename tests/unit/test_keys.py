"""Random keys of either kind, typed and of raw numbers, give the same answers everywhere."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_symmetry as ns
from numpyro_symmetry import devices
from numpyro_symmetry.diagnostics import modes
from numpyro_symmetry.guides.inputs import holders_of_observations, inducing_inputs
from numpyro_symmetry.models import trace_model
from numpyro_symmetry.models.compat import as_threefry

LOC = np.random.default_rng(0).normal([-3.0, 0.0, 3.0], 0.1, (2, 60, 3))
SYMMETRY = ns.Symmetry.mixture("loc")


class Fitted(NamedTuple):
    """A guide and what it was trained on."""

    guide: Any
    params: dict[str, Any]
    y: Any


def mixture(y=None):
    with numpyro.plate("component", 3):
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0))
    with numpyro.plate("data", 12 if y is None else len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0)), obs=y)


@pytest.fixture(scope="module")
def fitted():
    """By an estimator that draws."""
    guide = ns.AutoSymmetrized(AutoNormal(mixture), SYMMETRY, estimator="sequential", check=False)
    y = jnp.linspace(-3.0, 3.0, 12)
    svi = SVI(guide.model, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
    return Fitted(guide, svi.get_params(svi.init(jax.random.key(0), y)), y)


def table(shape):
    return jnp.asarray(np.random.default_rng(1).normal(size=shape))


def information(estimator, bound="lower"):
    return lambda key, fitted: [
        ns.mutual_information(table(shape), estimator=estimator, rng_key=key, num_permutations=4, bound=bound)
        for shape in ((3, 3), (5, 3, 3), (2, 5, 3, 3))
    ]


VERBS = {
    "mutual_information, infonce": information("infonce"),
    "mutual_information, importance": information("importance", "both"),
    "elbo_bounds": lambda key, f: repr(f.guide.elbo_bounds(key, f.params, f.y, num_particles=8, progress_bar=False)),
    "setup": lambda key, f: ns.AutoSymmetrized(AutoNormal(mixture), SYMMETRY).setup(key, f.y).symmetry.log_order(),
    "sample_posterior": lambda key, f: f.guide.sample_posterior(key, f.params, sample_shape=(4,)),
    "log_evidence": lambda key, f: ns.log_evidence({"loc": LOC}, mixture, (f.y,), symmetry=SYMMETRY, rng_key=key).value,
    "run_blackjax": lambda key, f: (
        ns.run_blackjax(
            key, mixture, (f.y,), algorithm="hmc", num_chains=2, num_warmup=10, num_samples=5, progress_bar=False
        )["posterior"]["loc"].values
    ),
    "find_symmetry": lambda key, f: str(ns.find_symmetry(mixture, (f.y,), rng_key=key)),
    "check_symmetry": lambda key, f: ns.check_symmetry(mixture, SYMMETRY, (f.y,), rng_key=key).largest_gap,
    "rebase": lambda key, f: ns.rebase({"loc": LOC}, SYMMETRY, rng_key=key).data["loc"],
    "symmetrized": lambda key, f: ns.rebase({"loc": LOC}, SYMMETRY).symmetrized(key)["loc"],
    "Symmetry.sample": lambda key, f: SYMMETRY.bind({"loc": LOC[0, 0]}).sample(key, (4,)),
    "match": lambda key, f: ns.match({"loc": LOC[0, 0]}, {"loc": LOC[0, 0, ::-1]}, SYMMETRY, rng_key=key).element,
    "loss_barrier": lambda key, f: (
        ns.loss_barrier(lambda v: (v["loc"] ** 2).sum()[None], {"loc": LOC[0, 0]}, {"loc": LOC[0, 1]}, rng_key=key).loss
    ),
    "compare": lambda key, f: ns.compare({"loc": LOC[0]}, {"loc": LOC[1]}, SYMMETRY, rng_key=key).p_value,
    "modes": lambda key, f: str(modes({"loc": LOC}, SYMMETRY, rng_key=key)),
    "to_arviz": lambda key, f: ns.to_arviz(key, f.guide, f.params, (f.y,), num_draws=5)["posterior"]["loc"].values,
}


@pytest.mark.parametrize("name", VERBS)
def test_keys_of_either_kind_give_the_same(name, fitted):
    typed, raw = (VERBS[name](make(7), fitted) for make in (jax.random.key, jax.random.PRNGKey))
    assert jax.tree.structure(typed) == jax.tree.structure(raw)
    jax.tree.map(assert_array_equal, typed, raw)


def test_raw_keys_are_those_of_the_generator_in_force(fitted):
    raw = jax.random.PRNGKey(7, impl="rbg")
    with pytest.raises(TypeError, match=r"one JAX random key, .*; got an array of uint32\(4,\)"):
        fitted.guide.sample_posterior(raw, fitted.params, fitted.y)
    with jax.default_prng_impl("rbg"):
        draws = [fitted.guide.sample_posterior(key, fitted.params, fitted.y) for key in (raw, jax.random.key(7))]
        with pytest.raises(TypeError, match=r"got an array of uint32\(2,\)"):
            SYMMETRY.bind({"loc": LOC[0, 0]}).sample(jax.random.PRNGKey(7, impl="threefry2x32"))
    assert_array_equal(draws[0]["loc"], draws[1]["loc"])


def test_a_guide_by_hand_is_drawn_from_with_keys_of_any_generator(fitted):
    """NumPyro's Predictive takes the numbers of one alone."""

    def by_hand(y):
        with numpyro.plate("component", 3):
            numpyro.sample("loc", dist.Normal(0.0, 1.0))

    guide = ns.AutoSymmetrized(by_hand, SYMMETRY, model=mixture, check=False)
    for key in (jax.random.key(7), jax.random.PRNGKey(7)):
        # what it takes it is given, so that draws are those of NumPyro
        assert as_threefry(key) is key
    for kind in ("rbg", "unsafe_rbg"):
        assert np.isfinite(guide.sample_posterior(jax.random.key(7, impl=kind), {}, fitted.y)["loc"]).all()


@pytest.mark.parametrize("kind", ["rbg", "unsafe_rbg"])
def test_another_generator_may_be_in_force(fitted, kind):
    """NumPyro's Predictive reads the numbers of a key as those of the generator in force."""

    def slopes(x, y):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.deterministic("double", 2.0 * slope)
        numpyro.sample("y", dist.Normal(x * slope.sum(), 1.0).to_event(1), obs=y)

    x, y = jnp.ones(4), jnp.ones(4)
    with jax.default_prng_impl(kind):
        guide = ns.AutoConditional(lambda *args: None, model=slopes, progress_bar=False).given(x, y)
        assert np.isfinite(guide.guide.sample_posterior(jax.random.key(0), {}, x, y)["slope"]).all()
        symmetrized = ns.AutoSymmetrized(AutoNormal(slopes), progress_bar=False).setup(jax.random.key(0), x, y)
        params = {"slope_auto_loc": jnp.arange(2.0), "slope_auto_scale": jnp.ones(2)}
        draws = symmetrized.sample_posterior(jax.random.key(1), params, x, y, sample_shape=(3,), symmetrize=True)
        assert_array_equal(draws["double"], 2.0 * draws["slope"])
        assert np.isfinite(ns.log_evidence({"loc": LOC}, mixture, (fitted.y,), symmetry=SYMMETRY).value)


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_keys_stay_of_their_kind_where_their_bits_are_handed_on(kind):
    key = jax.random.key(1, impl=kind)
    moved = devices._of_numbers(lambda bits: bits, key)
    assert jax.random.key_impl(moved) == jax.random.key_impl(key)
    assert_array_equal(jax.random.key_data(moved), jax.random.key_data(key))


@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey])
def test_keys_of_rows_are_no_observations_and_have_rows(make):
    """As of a model that adds noise to each of its inputs."""

    def model(x, keys, y=None):
        noise = jax.vmap(jax.random.normal)(keys)
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(slope * (x + noise), 1.0).to_event(1), obs=jnp.asarray(y))

    # observations of pandas are found as those of NumPy
    observed = pd.Series(np.ones(3, np.float32), index=[2, 0, 1])
    args = jnp.arange(3.0), jax.random.split(make(0), 3), observed
    dropped = holders_of_observations(model, args, {}, trace_model(model, args, {}, make(1)))
    assert dropped == ("y",)
    inputs, _, rows = inducing_inputs(2, model, args, {}, dropped)
    (chosen,) = inputs.values()
    assert_array_equal(
        jax.vmap(jax.random.normal)(rows["keys"]), jax.vmap(jax.random.normal)(args[1][chosen.astype(int)])
    )
