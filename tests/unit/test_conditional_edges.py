"""Conditional guides where a model says the same in another way, and where it is not what it was at set-up."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pandas as pd
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoConditional, AutoSymmetrized, SymmetryError, SymmetryWarning, UnsupportedGuideError
from numpyro_symmetry.guides.inputs import with_inputs

X = jnp.linspace(-1.0, 1.0, 20)[:, None]
Y = jnp.sin(3.0 * X)
KEY = jax.random.key(0)


def network(x, y, *, likelihood="normal", by="expand", weight=1.0, heavy=False):
    num_outputs = 1 if likelihood == "normal" else 3

    def normal(name, *shape, fn):
        if by == "sample_shape":
            return numpyro.sample(name, fn, sample_shape=shape)
        return numpyro.sample(name, fn.expand(shape).to_event(len(shape)))

    w1 = normal("w1", 1, 4, fn=dist.Normal(0.0, 1.0))
    w2 = normal("w2", 4, num_outputs, fn=dist.StudentT(3.0) if heavy else dist.Normal(0.5, 2.0))
    f = jnp.tanh(x @ w1) @ w2
    with handlers.scale(scale=weight):
        if likelihood == "normal":
            numpyro.sample("y", dist.Normal(f, 0.1).to_event(1), obs=y)
        else:
            numpyro.sample("y", dist.Categorical(logits=f), obs=(y[:, 0] > 0).astype(int))


def negative_elbo(guide, **kwargs):
    svi = SVI(network, guide, optax.sgd(0.0), Trace_ELBO())
    state = svi.init(KEY, X, Y, **kwargs)
    return float(jax.jit(lambda state: svi.evaluate(state, X, Y, **kwargs))(state))


@pytest.mark.parametrize("likelihood", ["normal", "categorical"])
@pytest.mark.parametrize("inducing", [None, 5])
def test_sites_of_a_sample_shape_are_those_of_an_expanded_prior(likelihood, inducing):
    expected, found = (
        negative_elbo(AutoConditional(AutoNormal(network), inducing=inducing), likelihood=likelihood, by=by)
        for by in ("expand", "sample_shape")
    )
    assert found == pytest.approx(expected, rel=1e-4)


def test_one_weight_of_all_rows_may_be_a_batch_and_an_array_is_none():
    with pytest.warns(SymmetryWarning, match="weighs observed site 'y' by 5.*inducing=100"):
        expected = negative_elbo(AutoConditional(AutoNormal(network)), weight=5.0)
    by_row = negative_elbo(AutoConditional(AutoNormal(network)), weight=jnp.full(20, 5.0))
    assert by_row == pytest.approx(expected, rel=1e-5)
    assert np.isfinite(negative_elbo(AutoConditional(AutoNormal(network)), weight=0.5))


def test_a_prior_that_is_no_normal_any_more_is_refused():
    svi = SVI(network, AutoConditional(AutoNormal(network)), optax.sgd(0.0), Trace_ELBO())
    state = svi.init(KEY, X, Y)
    with pytest.raises(SymmetryError, match="'w2'.* no Gaussian prior .* Make a guide anew"):
        svi.evaluate(state, X, Y, heavy=True)
    # where a step is compiled nothing can be proved, and the prior is read all the same
    with pytest.raises(SymmetryError, match="'w2' follows the others by its Gaussian prior, .* Make a guide anew"):
        jax.jit(lambda: svi.evaluate(state, X, Y, heavy=True))()


def by_hand(x, y):
    numpyro.sample("w1", dist.Normal(jnp.arange(4.0), 1.0).expand([1, 4]).to_event(2))
    numpyro.sample("w2", dist.Normal(jnp.arange(4.0)[:, None], 1.0).to_event(2))


BASES = {
    "by hand": lambda: by_hand,
    "autoguide": lambda: AutoNormal(network),
    "conditional": lambda: AutoConditional(AutoNormal(network)),
}


@functools.cache
def started(base):
    guide = AutoSymmetrized(BASES[base](), model=network)
    svi = SVI(network, guide, optax.sgd(0.0), Trace_ELBO())
    return guide, svi.get_params(svi.init(KEY, X, Y))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("sample_shape", [(0,), (2, 0), (), (3,)])
def test_draws_have_the_shape_that_was_asked_for(base, sample_shape):
    guide, params = started(base)
    for symmetrize in (False, True):
        draws = guide.sample_posterior(KEY, params, X, Y, sample_shape=sample_shape, symmetrize=symmetrize)
        assert {site: x.shape for site, x in draws.items()} == {
            "w1": (*sample_shape, 1, 4),
            "w2": (*sample_shape, 4, 1),
        }


@pytest.mark.parametrize("symmetrize", [False, True])
@pytest.mark.parametrize("sample_shape", [(0,), (2, 0)])
def test_no_draws_hold_nothing_that_the_model_computes(sample_shape, symmetrize):
    def model():
        z = numpyro.sample("z", dist.Normal().expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(numpyro.deterministic("sum", z.sum())), obs=1.0)

    guide = AutoSymmetrized(AutoNormal(model)).setup(KEY)
    params = {"z_auto_loc": jnp.arange(3.0), "z_auto_scale": jnp.ones(3)}
    draws = guide.sample_posterior(KEY, params, sample_shape=sample_shape, symmetrize=symmetrize)
    assert {site: x.shape for site, x in draws.items()} == {"z": (*sample_shape, 3), "sum": sample_shape}


def flat(x, y=None):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([1, 4]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    with numpyro.plate("data", len(x)):
        y = None if y is None else numpyro.subsample(jnp.asarray(y), event_dim=0)
        numpyro.sample("y", dist.Normal(jnp.tanh(jnp.asarray(x) @ w1) @ w2, 0.1), obs=y)


def test_a_column_that_is_observed_is_left_out_at_inducing_inputs():
    """In the double precision that columns have, and in which JAX does not read them."""

    def loss(y):
        svi = SVI(flat, AutoConditional(AutoNormal(flat), inducing=5), optax.sgd(0.0), Trace_ELBO())
        return float(svi.evaluate(svi.init(KEY, X, y), X, y))

    column = pd.Series(np.sin(np.linspace(-3.0, 3.0, 20)))
    assert loss(column) == loss(jnp.asarray(column.to_numpy()))


def test_inducing_inputs_do_not_lie_in_a_table():
    table = pd.DataFrame({"a": np.linspace(-1.0, 1.0, 20)})
    for inducing in (5, table[:5]):
        guide = AutoConditional(AutoNormal(flat), inducing=inducing)
        with pytest.raises(SymmetryError, match=r"Argument 'x' is a DataFrame.*x\.to_numpy\(\)"):
            SVI(flat, guide, optax.sgd(0.0), Trace_ELBO()).init(KEY, table, Y[:, 0])


def test_a_guide_that_reads_the_model_is_called_as_the_model_is():
    args, kwargs = with_inputs(network, (X, Y), {"weight": 2.0}, {"x": X[:3]}, ("y",))
    assert [len(args[0]), args[1], kwargs["weight"]] == [3, None, 2.0]
    with pytest.raises(TypeError, match=r"as the model is, which takes \(x, y, .*\): missing .* 'x'. Pass its arg"):
        with_inputs(network, (), {}, {}, ())


def test_closed_forms_are_refused_where_priors_depend_on_what_follows():
    """KL(q(a), p(a | b)) at a draw of b, which knows a, is no divergence: the loss was below that of the whole ELBO."""

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([1]).to_event(1))
        a = numpyro.sample("a", dist.Normal(b, 0.5).to_event(1))
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ a) + x @ b, 0.1).to_event(1), obs=y)

    def loss(site, elbo):
        guide = AutoConditional(AutoNormal(model), [site], inducing=3)
        svi = SVI(model, guide, optax.sgd(0.0), elbo)
        params = svi.get_params(svi.init(KEY, X, Y[:, 0]))
        return jax.jit(lambda key: elbo.loss(key, params, model, guide, X, Y[:, 0]))(KEY)

    assert np.isfinite([loss("b", Trace_ELBO()), loss("a", TraceMeanField_ELBO())]).all()
    with pytest.warns(UserWarning, match="order"), pytest.raises(UnsupportedGuideError, match="'a'.*Trace_ELBO"):
        loss("b", TraceMeanField_ELBO())
