"""Which data a conditional guide is bound to: those of training, and none else without a word."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoConditional, AutoSymmetrized, Symmetry, SymmetryError, SymmetryWarning

X = np.random.default_rng(0).normal(size=(12, 2))
Y = np.tanh(X @ [1.0, -2.0])
SYMMETRY = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)})


def network(x, y=None):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("data", 12, subsample_size=len(x)):
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 0.3), obs=y)


def plain(data, scale=1.0):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    bias = numpyro.sample("bias", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(data["x"] @ slope + bias, scale).to_event(1), obs=data.get("y"))


def initialised(guide, *args):
    model = guide.model
    svi = SVI(model, guide, optax.sgd(0.0), Trace_ELBO())
    return guide, svi.get_params(svi.init(jax.random.key(0), *args))


@pytest.fixture(scope="module")
def conditional():
    return initialised(AutoConditional(AutoNormal(network)), X, Y)


@pytest.fixture(scope="module")
def symmetrized():
    return initialised(AutoSymmetrized(AutoConditional(AutoNormal(network)), SYMMETRY), X, Y)


@pytest.fixture(scope="module")
def of_plain():
    return initialised(AutoConditional(AutoNormal(plain)), {"x": X, "y": Y})


@pytest.mark.parametrize("around", [lambda guide: guide, lambda guide: AutoSymmetrized(guide, SYMMETRY)])
def test_targets_that_do_not_fit_their_inputs_are_named_at_set_up(around):
    words = r"'y' has values of shape \(5,\), and its distribution has shape \(12,\)"
    with pytest.raises(SymmetryError, match=words):
        initialised(around(AutoConditional(AutoNormal(network))), X, Y[:5])


@pytest.mark.parametrize(
    "make",
    [
        lambda: AutoConditional(AutoNormal(network)),
        lambda: AutoSymmetrized(AutoConditional(AutoNormal(network)), SYMMETRY),
    ],
)
def test_parameters_of_another_session_predict_at_once(make, conditional):
    """A guide that was never trained here is set up by its data, and not by what `Predictive` maps over."""
    guide, params = make(), {name: np.asarray(value) for name, value in conditional[1].items()}
    with pytest.raises(SymmetryError, match=r"guide\.given\(\*model_args\) with the data of training once outside"):
        Predictive(network, guide=make(), params=params, num_samples=2)(jax.random.key(0), X, Y)
    drawn = [
        Predictive(network, guide=each.given(X, Y), params=params, num_samples=2)(jax.random.key(1), X[:4])["y"]
        for each in (conditional[0], guide, guide)
    ]
    np.testing.assert_allclose(drawn[1], drawn[0], rtol=1e-5)
    np.testing.assert_array_equal(drawn[2], drawn[1])


OTHER = {
    "test data": ((X[:4], Y[:4]), {}, r"x has shape \(4, 2\) and had \(12, 2\); y has shape \(4,\) and had \(12,\)"),
    "by name": ((X,), {"y": Y[:4]}, r"trained on; here y has shape \(4,\) and had \(12,\)\."),
    "no targets": ((X[:4],), {}, r"x has shape \(4, 2\) and had \(12, 2\); y is not there and had \(12,\)"),
    "too much": ((X, Y, Y), {}, "does not fit its arguments: too many"),
    "nothing": ((), {}, r"missing .* 'x'\. .* as in training: guide\.sample_posterior\(rng_key, params, x, y\)\.$"),
}


@pytest.mark.parametrize("guide", ["conditional", "symmetrized"])
@pytest.mark.parametrize("name", OTHER)
def test_data_of_other_shapes_are_refused(guide, name, request):
    guide, params = request.getfixturevalue(guide)
    args, kwargs, words = OTHER[name]
    with pytest.raises((SymmetryError, TypeError), match=words):
        guide.given(*args, **kwargs)
    with pytest.raises((SymmetryError, TypeError), match=words):
        guide.sample_posterior(jax.random.key(0), params, *args, **kwargs)


def test_each_way_in_has_a_remedy_of_its_own(symmetrized):
    guide, params = symmetrized
    key = jax.random.key(0)
    with pytest.raises(SymmetryError, match=r"New inputs go to the call of Predictive.*lambda"):
        guide.given(X[:4], Y[:4])
    with pytest.raises(SymmetryError, match=r"sample_posterior takes the data.*Predictive\(model, draws\)"):
        guide.sample_posterior(key, params, X[:4])
    with pytest.raises(SymmetryError, match=r"called without them\. Pass the data of training, .* targets, as to SVI"):
        guide.elbo_bounds(key, params, X, num_particles=2)
    with pytest.raises(SymmetryError, match=r"To predict at new inputs .*guide\.given"):
        Predictive(network, guide=guide, params=params, num_samples=2)(key, X[:4])


def test_the_rest_is_drawn_by_the_base_guide_and_this_is_no_complaint(conditional, of_plain):
    lines = conditional[0].explain().splitlines()
    assert lines[1] == "w1 is drawn by the base guide: the location of 'y' is not affine in them"
    guide, _ = of_plain
    assert guide.explain().splitlines() == [
        "slope follows the rest exactly, given y",
        "bias is drawn by the base guide: it has no plain Gaussian prior (neither masked nor scaled), as a site that "
        "follows must",
    ]


def test_bounds_of_a_bare_guide_are_those_of_a_symmetrized_one(of_plain):
    guide, params = of_plain
    with pytest.raises(AttributeError, match=r"no elbo_bounds: AutoSymmetrized\(guide\)\.elbo_bounds"):
        guide.elbo_bounds(jax.random.key(0), params, {"x": X, "y": Y})
    with pytest.raises(AttributeError, match="'AutoConditional' object has no attribute 'bounds'"):
        guide.bounds  # noqa: B018

    class Own(AutoConditional):
        title = property(lambda self: self.heading)

    with pytest.raises(AttributeError, match="'Own' object has no attribute 'heading'"):
        Own(AutoNormal(plain)).title  # noqa: B018
    with pytest.warns(SymmetryWarning, match="No symmetry was found"):
        bounds = AutoSymmetrized(guide).elbo_bounds(jax.random.key(0), params, {"x": X, "y": Y}, num_particles=2)
    assert bounds.lower == bounds.base_elbo


def test_other_numbers_of_the_same_shapes_are_warned_of(symmetrized):
    guide, params = symmetrized
    with pytest.warns(SymmetryWarning, match="given takes the data .* y holds other numbers"):
        guide.given(X, Y + 1.0)
    with pytest.warns(SymmetryWarning, match="sample_posterior takes the data .* x and y hold other numbers"):
        guide.sample_posterior(jax.random.key(0), params, X[::-1], Y[::-1])


def test_the_data_of_training_are_taken_in_any_form(conditional):
    guide, params = conditional
    for args, kwargs in [((X, Y), {}), ((jnp.asarray(X),), {"y": jnp.asarray(Y)}), ((), {"x": X, "y": Y})]:
        predictive = Predictive(network, guide=guide.given(*args, **kwargs), params=params, num_samples=2)
        assert jax.eval_shape(predictive, jax.random.key(0), X[:5])["y"].shape == (2, 5)
    with jax.enable_x64(True):
        guide.given(X, Y)
    drawn = jax.jit(lambda params, x, y: guide.sample_posterior(jax.random.key(0), params, x, y))(params, X, Y)
    assert drawn["w2"].shape == (3,)


@pytest.mark.parametrize("guide", ["conditional", "symmetrized"])
def test_parameters_that_a_compiled_function_holds_are_checked_as_others(guide, request):
    guide, params = request.getfixturevalue(guide)
    key = jax.random.key(3)
    compiled = jax.jit(lambda key: guide.sample_posterior(key, params, X, Y))(key)
    for site, value in guide.sample_posterior(key, params, X, Y).items():
        np.testing.assert_allclose(compiled[site], value, rtol=1e-5)
    wrong = params | {"w1_auto_scale": -params["w1_auto_scale"]}
    with pytest.raises(SymmetryError, match="'w1_auto_scale' is outside of its constraint"):
        jax.jit(lambda key: guide.sample_posterior(key, wrong, X, Y))(key)


def test_a_guide_that_was_trained_on_several_data_takes_each():
    guide, _ = initialised(AutoConditional(AutoNormal(plain)), {"x": X, "y": Y})
    with pytest.raises(SymmetryError, match=r"data\['x'\] has shape \(9, 2\)"):
        guide.given({"x": X[:9], "y": Y[:9]})
    initialised(guide, {"x": X[:9], "y": Y[:9]})
    guide.given({"x": X[:9], "y": Y[:9]})
    guide.given({"x": X, "y": Y})
    guide.given({"x": X, "y": Y}, scale=2.0)


def test_what_sees_no_data_is_bound_to_anything():
    def by_inducing(base):
        return AutoConditional(base, ["w2"], inducing=5)

    guide, params = initialised(by_inducing(AutoNormal(network)), X, Y)
    guide.given(X[:4])
    assert guide.sample_posterior(jax.random.key(0), params, X[:4])["w2"].shape == (3,)
    AutoSymmetrized(AutoNormal(network), SYMMETRY).given(X[:4])


def test_draws_are_no_training(conditional):
    guide, params = conditional
    with pytest.warns(SymmetryWarning, match="other numbers"):
        guide.sample_posterior(jax.random.key(0), params, X, -Y)
    with handlers.mask(mask=False), handlers.seed(rng_seed=0), handlers.substitute(data=params):
        guide(X, -Y)
    with pytest.warns(SymmetryWarning, match="other numbers"):
        guide.given(X, -Y)
