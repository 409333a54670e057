"""What a symmetrized guide asks of its parameters, and of the model that its base guide knows."""

import functools
import itertools
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.contrib import einstein
from numpyro.contrib.funsor import config_enumerate
from numpyro.infer import SVI, RenyiELBO, Trace_ELBO, TraceEnum_ELBO
from numpyro.infer.autoguide import (
    AutoDiagonalNormal,
    AutoGuideList,
    AutoIAFNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from numpyro.infer.reparam import LocScaleReparam
from scipy.special import digamma, logsumexp, polygamma
from scipy.stats import norm

from numpyro_symmetry import (
    AutoConditional,
    AutoSymmetrized,
    AutoUnitNormal,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    UnsupportedGuideError,
    to_arviz,
)
from numpyro_symmetry.models.fitted import refuse_wrong_parameters

KEY = jax.random.key(0)
Y = np.array([-3.0, -2.5, 0.0, 0.2, 2.9, 3.1], np.float32)


def mixture(y):
    """Three components, and a parameter of the model's own."""
    loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    noise = numpyro.param("noise", 1.0, constraint=dist.constraints.positive)
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, noise)), obs=y)


def by_hand(y):
    numpyro.sample("loc", dist.Normal(numpyro.param("loc_auto_loc", jnp.zeros(3)), 0.5).to_event(1))


GOOD = {"loc_auto_loc": jnp.array([-2.0, 0.0, 2.0]), "loc_auto_scale": jnp.full(3, 0.5), "noise": jnp.array(0.5)}
LOC, SCALE, NOISE = (GOOD[name] for name in GOOD)


@functools.cache
def shared():
    """A guide that is set up and compiled once."""
    return AutoSymmetrized(AutoNormal(mixture), Symmetry.mixture("loc"), model=mixture, check=False).setup(KEY, Y)


def methods(guide):
    """Everything that takes parameters; what draws needs none of the model's own."""
    yield "elbo_bounds", lambda p: guide.elbo_bounds(KEY, p, Y, num_particles=32)
    yield "sample_posterior", lambda p: guide.sample_posterior(KEY, p, Y)
    yield "median", guide.median
    yield "quantiles", lambda p: guide.quantiles(p, [0.5])


@pytest.mark.parametrize("kind", [AutoNormal, AutoMultivariateNormal])
@pytest.mark.parametrize("is_set_up", [True, False])
def test_a_weight_around_model_and_guide_weighs_the_whole(kind, is_set_up):
    """Annealing: the density of what is drawn is the same, and so is its information."""

    def loss(weight):
        guide = AutoSymmetrized(kind(mixture), Symmetry.mixture("loc"), check=False)
        if is_set_up:
            guide.setup(KEY, Y)
        whole = [mixture, guide] if weight == 1.0 else [handlers.scale(fn, scale=weight) for fn in (mixture, guide)]
        svi = SVI(*whole, optax.adam(0.01), Trace_ELBO())
        return float(svi.evaluate(svi.init(KEY, Y), Y))

    assert loss(0.25) == pytest.approx(0.25 * loss(1.0), rel=1e-5)


def test_steps_that_nobody_compiles_compile_nothing_anew(request):
    """What is made one program when a guide is set up is not made again at every eager step."""
    guide = AutoSymmetrized(AutoMultivariateNormal(mixture), Symmetry.mixture("loc"), check=False)
    svi = SVI(mixture, guide, optax.sgd(0.01), Trace_ELBO())
    state = svi.init(KEY, Y)
    for _ in range(2):
        state, _ = svi.update(state, Y)
    compiled = request.getfixturevalue("compiled")
    before = compiled[0]
    svi.update(state, Y)
    assert compiled[0] == before


def tanh_network(x, y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.tanh(x @ w) @ v, 0.1).to_event(1), obs=y)


def switches(x, y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=jnp.tanh(x @ w) @ v).to_event(1), obs=y)


UNITS = Symmetry({"w": (None, "hidden"), "v": ("hidden",)}, {"hidden": "signed"})
BASES = {"factorised": AutoNormal, "unit": AutoUnitNormal, "follows": lambda model: AutoConditional(AutoNormal(model))}


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_an_intervention_in_a_guide_changes_what_it_returns_and_not_the_bound(base):
    x, losses = jnp.linspace(-1.0, 1.0, 9)[:, None], []
    for around in (lambda guide: guide, lambda guide: handlers.do(guide, data={"v": jnp.ones(3)})):
        guide = AutoSymmetrized(base(tanh_network), UNITS)
        svi = SVI(tanh_network, around(guide), optax.adam(0.01), Trace_ELBO())
        losses.append(svi.update(svi.init(KEY, x, x[:, 0]), x, x[:, 0])[1])
    # sums over threads may differ in their last digit
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


def test_parameters_of_a_guide_by_hand_may_be_of_other_sizes_than_their_starts():
    def by_hand(x, y):
        loc = numpyro.param("knots", jnp.zeros(2)).mean() * jnp.ones((1, 3))
        numpyro.sample("w", dist.Normal(loc, 1.0).to_event(2))
        numpyro.sample("v", dist.Normal(0.0, 1.0).expand([3]).to_event(1))

    x = jnp.linspace(-1.0, 1.0, 9)[:, None]
    svi = SVI(tanh_network, AutoSymmetrized(by_hand, UNITS, model=tanh_network), optax.adam(0.01), Trace_ELBO())
    state = svi.init(KEY, x, x[:, 0], init_params={"knots": jnp.ones(5)})
    state, loss = svi.update(state, x, x[:, 0])
    assert svi.get_params(state)["knots"].shape == (5,)
    assert jnp.isfinite(loss)


PRIOR = dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2)
AROUND = {
    "reparam of one": (handlers.reparam, {"config": {"v": LocScaleReparam(0.0)}}, "Site 'v' .* handler .*reparam"),
    "reparam of all": (
        handlers.reparam,
        {"config": lambda site: LocScaleReparam(0.0)},
        "Site '.*' .* handler .*reparam",
    ),
    "scope": (handlers.scope, {"prefix": "a"}, "Site '[wv]' of the guide is called 'a/[wv]' by a handler .* scope"),
    "lift": (
        handlers.lift,
        {"prior": {"w_auto_loc": PRIOR}},
        "'w_auto_loc' of the guide is drawn by a handler .* lift",
    ),
    "condition": (
        handlers.condition,
        {"data": {"w": jnp.ones((1, 3))}},
        r"\['w'\] of the guide are held by a handler .* condition",
    ),
    "collapse": (handlers.collapse, {}, "Site '.*' .* summed out by a handler around it, collapse: train without it"),
}
GUIDES = BASES | {
    f"symmetrized {name}": lambda model, base=base: AutoSymmetrized(base(model), UNITS, check=False)
    for name, base in BASES.items()
}
# NumPyro says itself what it takes around its own guides; a guide of ours alone may be renamed, and held site by site
FINE = {("factorised", around) for around in AROUND} | {("unit", around) for around in ("scope", "condition")}
FINE |= {(f"symmetrized {name}", "condition") for name in ("factorised", "unit")}


@pytest.mark.parametrize(("name", "around"), [case for case in itertools.product(GUIDES, AROUND) if case not in FINE])
def test_a_handler_around_a_guide_that_makes_its_sites_others_is_refused(name, around):
    guide, x = GUIDES[name](tanh_network), jnp.ones((9, 1))
    handler, options, message = AROUND[around]
    with pytest.raises(UnsupportedGuideError, match=message), handlers.seed(rng_seed=0):
        handler(guide, **options)(x, x[:, 0])


@pytest.mark.parametrize(
    ("base", "prefix", "parameter", "shape"),
    [
        ("follows", None, "auto_y_step", ()),
        ("follows", None, "auto_y_precision", ()),
        ("unit", None, "w_auto_scale", (1, 3)),
        ("unit", "a", "a/w_auto_scale", (1, 3)),
    ],
)
def test_no_parameter_of_a_guide_is_drawn_by_whatever_name(base, prefix, parameter, shape):
    x, guide = jnp.linspace(-1.0, 1.0, 9)[:, None], BASES[base](switches)
    guide = guide if prefix is None else handlers.scope(guide, prefix=prefix)
    prior = {parameter: dist.LogNormal(0.0, 0.1).expand(shape).to_event(len(shape))}
    with pytest.raises(UnsupportedGuideError, match=f"'{parameter}' of the guide is drawn by a handler .* lift"):
        handlers.seed(handlers.lift(guide, prior=prior), 0)(x, x[:, 0] > 0)


@pytest.mark.parametrize(
    ("base", "parameters"),
    [
        ("follows", ("auto_y_step", "auto_y_precision")),
        ("inducing", ("auto_v_unit_0", "auto_v_precision_0")),
        ("unit", ("w_auto_scale", "v_auto_scale")),
    ],
)
def test_scales_and_factors_of_a_guide_have_to_be_positive(base, parameters):
    x = jnp.linspace(-1.0, 1.0, 9)[:, None]
    made = BASES | {"inducing": lambda model: AutoConditional(AutoNormal(model), inducing=x[:4])}
    guide, of_training = made[base](switches), (x, x[:, 0] > 0)
    svi = SVI(switches, guide, optax.adam(0.01), Trace_ELBO())
    params = svi.get_params(svi.init(KEY, *of_training))
    for name in parameters:
        with pytest.raises(SymmetryError, match=f"'{name}' is outside of its constraint"):
            to_arviz(KEY, guide, params | {name: -params[name]}, of_training, num_draws=2)


@pytest.mark.parametrize("is_set_up", [True, False])
def test_a_guide_whose_sites_are_renamed_is_refused_with_the_way_out(is_set_up):
    guide = AutoSymmetrized(AutoNormal(mixture), Symmetry.mixture("loc"))
    if is_set_up:
        guide.setup(KEY, Y)
    scoped = [handlers.scope(fn, prefix="a") for fn in (mixture, guide)]
    with pytest.raises(UnsupportedGuideError, match=r"Site 'loc' .* called 'a/loc' .*scope\(model, prefix='a'\)"):
        SVI(*scoped, optax.adam(0.01), Trace_ELBO()).init(KEY, Y)
    inside = AutoSymmetrized(AutoNormal(scoped[0]), Symmetry.mixture("a/loc"), check=False)
    assert np.isfinite(
        SVI(scoped[0], inside, optax.adam(0.01), Trace_ELBO()).run(KEY, 2, Y, progress_bar=False).losses
    ).all()


@pytest.mark.parametrize(
    "hide", [["width"], ["loc", "width"], ["_symmetry_correction"]], ids=["some", "all", "correction"]
)
@pytest.mark.parametrize("base", [AutoNormal, AutoMultivariateNormal])
def test_a_guide_of_which_some_sites_are_hidden_is_refused(base, hide):
    """The model draws these itself, and the correction was of the guide's own draws of them: no bound."""

    def model(y):
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
        width = numpyro.sample("width", dist.LogNormal().expand([3]).to_event(1))
        components = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, width))
        numpyro.sample("y", components.expand(jnp.shape(y)).to_event(1), obs=y)

    guide = AutoSymmetrized(base(model), Symmetry.mixture("loc", "width")).setup(KEY, Y)
    with pytest.raises(UnsupportedGuideError, match=f"'{hide[-1]}'.* hidden by a handler .* around the model"):
        SVI(model, handlers.block(guide, hide=hide), optax.adam(0.01), Trace_ELBO()).init(KEY, Y)
    with handlers.seed(rng_seed=0), handlers.block():
        assert set(guide(Y)) == {"loc", "width"}


@pytest.mark.parametrize("is_set_up", [True, False])
def test_a_site_held_by_a_handler_around_a_guide_that_draws_all_as_one_is_refused(is_set_up):
    def model(y):
        width = numpyro.sample("width", dist.LogNormal())
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
        components = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, width))
        numpyro.sample("y", components.expand(jnp.shape(y)).to_event(1), obs=y)

    def held(fn):
        return handlers.condition(fn, data={"width": jnp.array(1.0)})

    guide = AutoSymmetrized(AutoMultivariateNormal(model), Symmetry.mixture("loc"))
    if is_set_up:
        guide.setup(KEY, Y)
    with pytest.raises(UnsupportedGuideError, match=r"\['width'\] .* held by a handler .* around the model"):
        SVI(held(model), held(guide), optax.adam(0.01), Trace_ELBO()).init(KEY, Y)
    # sites that are drawn apart are left out one by one; and inside of the guide nobody minds
    apart = AutoSymmetrized(AutoNormal(model), Symmetry.mixture("loc"), check=False)
    inside = AutoSymmetrized(AutoMultivariateNormal(held(model)), Symmetry.mixture("loc"), check=False)
    for around in (held(apart), inside):
        state = SVI(held(model), around, optax.adam(0.01), Trace_ELBO()).init(KEY, Y)
        assert state is not None


BAD = {
    "none": ({}, r"Parameters \['loc_auto_loc'.*\] are missing; no parameters"),
    "misspelt": (
        {"loc_auto_locs": LOC, "loc_auto_scale": SCALE, "noise": NOISE},
        r"\['loc_auto_loc'\] are missing.* Is 'loc_auto_locs' meant",
    ),
    "missing": ({"loc_auto_loc": LOC, "noise": NOISE}, r"\['loc_auto_scale'\] are missing"),
    "extra": (
        GOOD | {"other_auto_loc": NOISE},
        r"\['other_auto_loc'\] are of neither .*'noise'\]\. They look like .* AutoSymmetrized\(parts\)\. Pass",
    ),
    "misshapen": (GOOD | {"loc_auto_loc": LOC[:1]}, r"'loc_auto_loc' must have shape \(3,\); got \(1,\)"),
    "a list": (GOOD | {"loc_auto_loc": [0.0, 1.0, 2.0]}, "'loc_auto_loc' has another structure than expected"),
    "infinite": (GOOD | {"loc_auto_loc": LOC.at[1].set(jnp.inf)}, "'loc_auto_loc'.* holds 1 non-finite of 3"),
    "unconstrained": (
        GOOD | {"loc_auto_scale": jnp.array([-1.0, 0.2, 1.0])},
        "'loc_auto_scale' is outside of its constraint .* in 1 of 3 .*svi.optim.get_params",
    ),
    "zero": (GOOD | {"loc_auto_scale": jnp.array([0.0, 0.2, 1.0])}, "'loc_auto_scale' is outside of its constraint"),
    "of the model": (GOOD | {"noise": jnp.array(-0.5)}, "'noise' is outside of its constraint"),
    "masked": (GOOD | {"loc_auto_loc": np.ma.masked_array(np.zeros(3), [0, 1, 0])}, "'loc_auto_loc' is a masked array"),
}


@pytest.mark.parametrize("what", BAD)
def test_every_method_refuses_wrong_parameters_by_name(what):
    params, message = BAD[what]
    for _, call in methods(shared()):
        with pytest.raises(SymmetryError, match=message):
            call(params)


def test_parameters_of_the_model_are_needed_where_it_is_evaluated():
    own = {name: value for name, value in GOOD.items() if name != "noise"}
    with pytest.raises(SymmetryError, match=r"Parameters \['noise'\] are missing"):
        shared().elbo_bounds(KEY, own, Y)
    with pytest.raises(SymmetryError, match=r"\['nois'\] are of neither .* Is 'noise' meant"):
        shared().sample_posterior(KEY, own | {"nois": NOISE}, Y)
    assert shared().median(own)["loc"].shape == (3,)
    assert shared().sample_posterior(KEY, own, Y)["loc"].shape == (3,)


def test_parameters_that_are_no_mapping_and_guides_not_set_up():
    for _, call in methods(shared()):
        with pytest.raises(TypeError, match="params must be a mapping .*; got tuple"):
            call((GOOD,))
    fresh = AutoSymmetrized(AutoNormal(mixture), Symmetry.mixture("loc"))
    with pytest.raises(SymmetryError, match=r"not set up.*guide.setup\(rng_key"):
        fresh.median(GOOD)
    # a function knows its parameters as soon as it is called
    with pytest.raises(SymmetryError, match=r"\['loc_auto_loc'\] are missing"):
        AutoSymmetrized(by_hand, Symmetry.mixture("loc"), model=mixture).sample_posterior(KEY, {}, Y)


def test_parameters_that_only_round_are_not_refused():
    def model():
        numpyro.param("rotation", jnp.eye(2), constraint=dist.constraints.corr_cholesky)

    trace = handlers.trace(model).get_trace()
    # float32 far from the last bit of a unit row, and nearer to it than anything that was ever unconstrained
    refuse_wrong_parameters(trace, {}, {"rotation": jnp.array([[1.0, 0.0], [0.6, 0.80001]])})
    with pytest.raises(SymmetryError, match="'rotation' is outside"):
        refuse_wrong_parameters(trace, {}, {"rotation": jnp.array([[1.0, 0.0], [0.6, 0.9]])})
    refuse_wrong_parameters(trace, None, {"rotation": jnp.eye(2), "of_a_model_nobody_traced": 1.0})


def test_parameters_of_networks_are_compared_leaf_by_leaf():
    def model():
        numpyro.param("net$params", {"dense": {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)}})

    trace = handlers.trace(model).get_trace()
    kernel, bias = jnp.ones((2, 3)), jnp.zeros(3)
    refuse_wrong_parameters({}, trace, {"net$params": {"dense": {"kernel": kernel, "bias": bias}}})
    for wrong, message in (
        ({"dense": {"kernel": kernel}}, r"'bias'\]\"\] is missing"),
        ({"dense": {"kernel": kernel.T, "bias": bias}}, r"\['kernel'\].*must have shape \(2, 3\); got \(3, 2\)"),
    ):
        with pytest.raises(SymmetryError, match=message):
            refuse_wrong_parameters({}, trace, {"net$params": wrong})


# ---- the model ---------------------------------------------------------------------------------------------------


@config_enumerate
def allocated(data):
    """A mixture whose allocations are discrete sites: S2 moves the components and their weights."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("components", 2):
        loc = numpyro.sample("loc", dist.Normal(0.0, 10.0))
    with numpyro.plate("data", len(data)):
        label = numpyro.sample("label", dist.Categorical(weights))
        numpyro.sample("obs", dist.Normal(loc[label], 1.0), obs=data)


DATA = jnp.array([0.0, 0.5, 9.0, 9.5, 10.0, 10.5, 11.0])
HIDDEN = {
    "label": handlers.block(allocated, hide=["label"]),
    "obs": handlers.block(handlers.seed(allocated, KEY), expose=["weights", "loc", "components"]),
}
BY_MODEL = Symmetry({"weights": ("components",), "loc": ("components",)})


@pytest.mark.parametrize("site", HIDDEN)
def test_refuses_a_guide_of_a_model_with_sites_hidden(site):
    guide = AutoSymmetrized(AutoNormal(HIDDEN[site]), BY_MODEL)
    with pytest.raises(SymmetryError, match=rf"hides its .* sites \['{site}'\].*AutoNormal\(blocked\), model=model"):
        guide.setup(KEY, DATA)


def test_refuses_a_guide_of_several_draws_a_step():
    def model(y):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)

    def guide(y):
        with numpyro.plate("draws", 40):
            numpyro.sample("z", dist.Normal(jnp.arange(3.0), 1.0).to_event(1))

    symmetrized = AutoSymmetrized(guide, Symmetry({"z": ("unit",)}), model=model)
    svi = SVI(model, symmetrized, optax.adam(0.1), Trace_ELBO(multi_sample_guide=True))
    with pytest.raises(UnsupportedGuideError, match=r"'z' has shape \(40, 3\) in the guide and \(3,\) in the model"):
        svi.init(KEY, 1.0)


def test_a_handler_that_sees_no_site_of_a_guide_is_none_around_it():
    guide = AutoUnitNormal(tanh_network)
    params = SVI(tanh_network, guide, optax.adam(0.1), Trace_ELBO()).run(KEY, 1, jnp.ones((9, 1)), jnp.ones(9)).params
    draws = guide.sample_posterior(KEY, params)
    with handlers.reparam(config=lambda site: LocScaleReparam(0.0)):
        np.testing.assert_array_equal(guide.sample_posterior(KEY, params)["v"], draws["v"])


WIDER = {
    "symmetrized factorised": {"w_auto_loc": jnp.zeros((1, 5)), "w_auto_scale": jnp.ones((1, 5))},
    "symmetrized flat": {"auto_loc": jnp.zeros(10), "auto_scale_tril": jnp.eye(10)},
    "unit": {"v_auto_scale": jnp.ones(())},
    "symmetrized unit": {"v_auto_coefficients": jnp.zeros((1, 1, 3))},
    "unit of low rank": {"w_auto_factor": jnp.zeros((1, 1, 3))},
    "follows": {"w_auto_loc": jnp.zeros((1, 5))},
    "symmetrized follows": {"w_auto_loc": jnp.zeros((1, 5))},
    "inducing": {"auto_v_inducing_x": jnp.zeros((5, 1))},
}
GUIDES |= {
    "symmetrized flat": lambda model: AutoSymmetrized(AutoMultivariateNormal(model), UNITS, check=False),
    "unit of low rank": lambda model: AutoUnitNormal(model, rank=2),
    "inducing": lambda model: AutoConditional(AutoNormal(model), ["v"], inducing=4),
}


@pytest.mark.parametrize("name", WIDER)
def test_parameters_of_a_guide_of_another_size_are_refused_as_such(name):
    """They were told to be several draws a step, or ended in shapes that do not broadcast."""
    guide, x = GUIDES[name](tanh_network), jnp.linspace(-1.0, 1.0, 9)[:, None]
    svi, wrong = SVI(tanh_network, guide, optax.adam(0.1), Trace_ELBO()), next(iter(WIDER[name]))
    with pytest.raises(SymmetryError, match=f"Parameter '{wrong}' must have shape .*; got .*, of the same guide"):
        svi.init(KEY, x, x[:, 0], init_params=WIDER[name])


@pytest.mark.parametrize("name", ["symmetrized", "follows", "symmetrized follows"])
def test_a_network_of_another_size_that_is_handed_to_a_flow_is_refused_as_such(name):
    def guide(num_inputs):
        flow = AutoIAFNormal(tanh_network, hidden_dims=[num_inputs], num_flows=1)
        inner = flow if name == "symmetrized" else AutoConditional(flow, ["v"], inducing=4)
        return inner if name == "follows" else AutoSymmetrized(inner, UNITS, check=False)

    x = jnp.linspace(-1.0, 1.0, 9)[:, None]
    wide, narrow = (SVI(tanh_network, guide(size), optax.adam(0.1), Trace_ELBO()) for size in (12, 8))
    params = wide.get_params(wide.init(KEY, x, x[:, 0]))
    with pytest.raises(
        SymmetryError, match=r"Parameter 'auto_arn__0\$params.*' must have shape .*; got .*, of the same"
    ):
        narrow.init(KEY, x, x[:, 0], init_params=params)


def test_a_flow_whose_parameters_are_trees_trains():
    """It reads them before it says how they start."""
    guide = AutoSymmetrized(AutoIAFNormal(mixture, hidden_dims=[4]), Symmetry.mixture("loc"), check=False)
    svi = SVI(mixture, guide, optax.adam(0.01), Trace_ELBO())
    assert np.isfinite(svi.run(KEY, 2, Y, progress_bar=False).losses).all()


def test_keywords_of_a_decorator_are_handed_to_it():
    @functools.wraps(mixture)
    def decorated(*args, is_loud=False):
        return mixture(*args)

    guide = AutoSymmetrized(AutoNormal(decorated), Symmetry.mixture("loc"), check=False).setup(KEY, Y, is_loud=True)
    assert "loc" in guide.sample_posterior(KEY, GOOD, Y, is_loud=True)
    assert np.isfinite(guide.elbo_bounds(KEY, GOOD, Y, is_loud=True, num_particles=2).lower)


def test_refuses_a_guide_of_a_model_without_data_unless_it_is_named():
    def prior():
        numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))

    with pytest.raises(SymmetryError, match=r"no observed site.*AutoSymmetrized\(AutoNormal\(blocked\), model=model\)"):
        AutoSymmetrized(AutoNormal(prior), Symmetry({"z": ("unit",)})).setup(KEY)
    AutoSymmetrized(AutoNormal(prior), Symmetry({"z": ("unit",)}), model=prior, check=False).setup(KEY)

    def model(y=None):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)

    with pytest.raises(SymmetryError, match=r"called without \['y'\], which are None: pass the data"):
        AutoSymmetrized(AutoNormal(model), Symmetry({"z": ("unit",)})).setup(KEY)


def log_evidence_of_allocated():
    """By quadrature over the locations, the weight's polynomial integrated exactly."""
    grid = np.linspace(-35.0, 45.0, 1601)
    log_likelihood, log_prior = norm.logpdf(np.asarray(DATA)[:, None], grid, 1.0), norm.logpdf(grid, 0.0, 10.0)
    allocations = []
    for k in range(2 ** len(DATA)):
        member = np.array([(k >> i) & 1 for i in range(len(DATA))], bool)
        n = int(member.sum())
        log_weight = math.lgamma(n + 1) + math.lgamma(len(DATA) - n + 1) - math.lgamma(len(DATA) + 2)
        sides = [logsumexp(log_likelihood[m].sum(0) + log_prior) + math.log(0.05) for m in (member, ~member)]
        allocations.append(log_weight + float(sum(sides)))
    return float(logsumexp(allocations))


def test_bounds_of_discrete_sites_are_those_of_the_enumerating_elbo_and_below_the_evidence():
    guide = AutoSymmetrized(AutoNormal(HIDDEN["obs"], init_scale=0.3), BY_MODEL, model=allocated, check=False)
    # the posterior where all allocations are certain: of two data and of five
    params = {"loc_auto_loc": jnp.array([0.25, 10.0]), "loc_auto_scale": jnp.array([0.5, 0.2]) ** 0.5}
    params |= {"weights_auto_loc": jnp.array([digamma(3) - digamma(6)], jnp.float32)}
    params |= {"weights_auto_scale": jnp.array([polygamma(1, 3) + polygamma(1, 6)], jnp.float32) ** 0.5}
    bounds = guide.elbo_bounds(jax.random.key(2), params, DATA, num_particles=1024)
    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    losses = jax.jit(jax.vmap(lambda key: elbo.loss(key, params, allocated, guide, DATA)))(
        jax.random.split(jax.random.key(3), 1024)
    )
    error = math.hypot(bounds.lower_error, float(losses.std()) / 32)
    assert bounds.lower == bounds.upper
    assert bounds.lower == pytest.approx(-float(losses.mean()), abs=4 * error)
    assert bounds.mutual_information[0] == pytest.approx(math.log(2), abs=0.01)
    truth = log_evidence_of_allocated()
    assert truth - 2.0 < bounds.lower < truth + 4 * bounds.lower_error
    assert bounds.lower < bounds.importance_weighted < truth + 4 * bounds.importance_weighted_error


@pytest.mark.parametrize("follows", ["w", "k", "neither"])
def test_a_site_that_is_summed_out_of_a_guide_shares_nothing_with_relabelled_ones(follows):
    def model(y):
        k = numpyro.sample("k", dist.Bernoulli(0.3))
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(w.sum(-1) + k, 1.0), obs=y)

    def draw_w(k=0.0):
        return numpyro.sample("w", dist.Normal(jnp.array([0.1, 0.9]) + jnp.expand_dims(k, -1), 0.6).to_event(1))

    def draw_k(w=0.0):
        return numpyro.sample("k", dist.Bernoulli(logits=jnp.sum(w)), infer={"enumerate": "parallel"})

    orders = {
        "w": lambda y: draw_w(draw_k()),
        "k": lambda y: draw_k(draw_w()),
        "neither": lambda y: (draw_k(), draw_w()),
    }
    base, elbo = orders[follows], TraceEnum_ELBO(max_plate_nesting=0)
    guide = AutoSymmetrized(base, Symmetry({"w": ("unit",)}), model=model, check=False).setup(KEY, 0.7)
    if follows == "neither":
        gain = elbo.loss(KEY, {}, model, base, 0.7) - elbo.loss(KEY, {}, model, guide, 0.7)
        assert 0.0 < float(gain) <= math.log(2)
    else:
        with pytest.raises(UnsupportedGuideError, match=r"marks \['k'\] to be enumerated .* \['w'\], which are relab"):
            elbo.loss(KEY, {}, model, guide, 0.7)


def test_refuses_bounds_where_the_guide_leaves_a_continuous_site():
    def model(y):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.Normal(z.sum(), spread), obs=y)

    base = AutoNormal(handlers.block(model, hide=["spread"]))
    guide = AutoSymmetrized(base, Symmetry({"z": ("unit",)}), model=model, check=False).setup(KEY, 0.0)
    params = {"z_auto_loc": jnp.zeros(3), "z_auto_scale": jnp.ones(3)}
    with pytest.raises(UnsupportedGuideError, match=r"does not draw the model's continuous sites \['spread'\]"):
        guide.elbo_bounds(KEY, params, 0.0)


# ---- what nothing shows ------------------------------------------------------------------------------------------


def weighed(weight):
    z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.independent(dist.constraints.real, 1), (), (3,)))
    numpyro.factor("sizes", -weight * jnp.sum(z**2))


def test_a_symmetry_that_nothing_shows_is_told_at_set_up_and_with_other_arguments():
    symmetry = Symmetry({"z": ("unit",)})
    with pytest.warns(SymmetryWarning, match="could not be proved: no wrong action on group 'unit'"):
        AutoSymmetrized(AutoNormal(weighed), symmetry, model=weighed).setup(KEY, 0.0)
    guide = AutoSymmetrized(AutoNormal(weighed), symmetry, model=weighed).setup(KEY, 1.0)
    params = {"z_auto_loc": jnp.zeros(3), "z_auto_scale": jnp.ones(3)}
    with pytest.warns(SymmetryWarning, match="could not be proved with other arguments of the model: no wrong action"):
        guide.elbo_bounds(KEY, params, 0.0, num_particles=2)


# ---- nothing to symmetrize ---------------------------------------------------------------------------------------


def local(y):
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


@pytest.mark.parametrize("loss", [Trace_ELBO(), RenyiELBO(alpha=0.0, num_particles=2)], ids=["Trace", "Renyi"])
def test_a_guide_with_nothing_to_symmetrize_is_the_base_guide(loss):
    y = jnp.arange(4.0)
    base = AutoNormal(local)
    guide = AutoSymmetrized(base)
    with pytest.warns(SymmetryWarning, match="No symmetry was found, so the guide stays as it is"):
        found = SVI(local, guide, optax.adam(0.01), loss).run(KEY, 5, y, progress_bar=False)
    bare = SVI(local, AutoNormal(local), optax.adam(0.01), loss).run(KEY, 5, y, progress_bar=False)
    np.testing.assert_array_equal(found.losses, bare.losses)
    trace = handlers.trace(handlers.seed(guide, 1)).get_trace(y)
    assert "_symmetry_correction" not in trace
    bounds = guide.elbo_bounds(KEY, found.params, y, num_particles=32)
    assert bounds.lower == bounds.upper == bounds.base_elbo
    assert guide.explain().endswith("Nothing to symmetrize: the guide is its base guide.")


def components(y):
    """Loadings are parameters, scores are latent: they move together or not at all."""
    loadings = numpyro.param("W", jax.random.normal(KEY, (3, 5)))
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(z @ loadings, 1.0).to_event(1), obs=y)


def weighed_by_parameters(y):
    weight = numpyro.param("weight", jnp.ones(3), constraint=dist.constraints.positive)
    scale = numpyro.param("scale", 0.3, constraint=dist.constraints.positive)
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(weight @ w, scale).expand([4]).to_event(1), obs=y)


def alike(y):
    """A parameter of all units, and one whose values have to stay where it starts."""
    scale = numpyro.param("scale", 0.3, constraint=dist.constraints.positive)
    variance = numpyro.param("variance", 0.01)
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(w.sum(), scale + jnp.sqrt(variance)).expand([4]).to_event(1), obs=y)


def test_a_given_symmetry_is_proved_where_parameters_do_not_start_too():
    """Training takes weights that start alike apart, and a bound that counts copies would lie above the evidence."""
    y, symmetry = jnp.array([0.3, 1.2, -0.5, 2.0]), Symmetry({"w": ("h",)})
    words = r"holds where the model's parameters \['weight', 'scale'\] start, and not at others"
    with pytest.raises(SymmetryError, match=words):
        AutoSymmetrized(AutoNormal(weighed_by_parameters), symmetry).setup(KEY, y)
    guide = AutoSymmetrized(AutoNormal(alike), symmetry)
    guide.setup(KEY, y)
    assert guide.symmetry.groups


@pytest.mark.parametrize("first", ["whole", "batch"])
def test_weights_of_a_batch_are_none_whatever_was_evaluated_before(first):
    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("rows", 6, subsample_size=len(x)):
            numpyro.sample("y", dist.Normal(x * w.sum(), 1.0), obs=y)

    x = jnp.arange(6.0)
    guide = AutoSymmetrized(AutoNormal(model), Symmetry({"w": ("unit",)}), check=False)
    guide.setup(KEY, x, x)
    trace = handlers.trace(handlers.seed(guide, 0)).get_trace(x, x)
    params = {name: site["value"] for name, site in trace.items() if site["type"] == "param"}
    rows = {"whole": 6, "batch": 3}
    for name in (first, *(other for other in rows if other != first)):
        bounds = guide.elbo_bounds(KEY, params, x[: rows[name]], x[: rows[name]], num_particles=4)
        assert math.isnan(bounds.importance_weighted) == (name == "batch")


def test_a_symmetry_that_moves_parameters_is_said_to_be_left_out():
    guide = AutoSymmetrized(AutoNormal(components))
    with pytest.warns(SymmetryWarning, match=r"move \['W'\] along with latent sites.*parameters.* stays as it is"):
        guide.setup(KEY, jnp.ones((4, 5)))
    assert not guide.symmetry.groups


def topics(counts):
    phi = numpyro.sample("phi", dist.Dirichlet(jnp.ones((2, 5))).to_event(1))
    u = numpyro.sample("u", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("v", dist.Normal(u.sum(), 1.0), obs=0.0)
    with numpyro.plate("documents", 6, subsample_size=4) as index:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(2)))
        numpyro.sample("y", dist.Multinomial(10, probs=theta @ phi), obs=counts[index])


def test_a_minibatched_topic_model_is_refused_with_the_ways_out():
    symmetry = Symmetry({"phi": ("topic", None), "theta": ("topic",), "u": ("unit",)})
    counts = jnp.full((6, 5), 2.0)
    with pytest.raises(SymmetryError, match=r"4 of 6.*all data.*symmetry.restrict\(\['unit'\]\)"):
        AutoSymmetrized(AutoNormal(topics), symmetry).setup(KEY, counts)


@pytest.mark.slow
def test_what_a_minibatch_weighs_bounds_nothing():
    symmetry = Symmetry({"phi": ("topic", None), "theta": ("topic",), "u": ("unit",)})
    counts = jnp.full((6, 5), 2.0)
    bound = symmetry.bind({"phi": np.ones((2, 5)), "theta": np.ones(2), "u": np.ones(3)})
    guide = AutoSymmetrized(AutoNormal(topics), bound.restrict(["unit"]), check=False).setup(KEY, counts)
    params = {}
    for site, shape in {"phi": (2, 4), "u": (3,), "theta": (6, 1)}.items():
        params |= {f"{site}_auto_loc": jnp.zeros(shape), f"{site}_auto_scale": jnp.ones(shape)}
    bounds = guide.elbo_bounds(KEY, params, counts, num_particles=32)
    assert bounds.lower <= bounds.upper
    assert math.isnan(bounds.importance_weighted)


def test_signs_are_looked_for_unless_asked_not_to():
    def network(x, y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
        v = numpyro.sample("v", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w) @ v, 0.5).to_event(1), obs=y)

    x, y = np.random.default_rng(0).normal(size=(5, 2)), np.arange(5.0)
    orders = []
    for signs in (True, False):
        guide = AutoSymmetrized(AutoNormal(network), signs=signs).setup(KEY, x, y)
        orders.append(guide.symmetry.log_order())
    np.testing.assert_allclose(orders, np.log([48, 6]))


# ---- in general --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checked", [False, True])
def test_data_that_are_missing_are_named(checked):
    broken = Y.copy()
    broken[2] = np.nan
    words = "not finite at 32 of 32 draws.*observed site 'y' of the model holds 1 NaN"
    with numpyro.validation_enabled(checked), pytest.raises(SymmetryError, match=words):
        shared().elbo_bounds(KEY, GOOD, broken, num_particles=32)
    with pytest.raises(SymmetryError, match=r"Argument '\[0\]' is a masked array"):
        shared().elbo_bounds(KEY, GOOD, np.ma.masked_array(Y, np.isnan(broken)), num_particles=32)
    fresh = AutoSymmetrized(AutoNormal(mixture), Symmetry.mixture("loc"), check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPyro's own, of the same
        with pytest.raises(SymmetryError, match="site 'y' has log probability nan"):
            fresh.setup(KEY, broken)


def test_a_guide_set_up_in_single_precision_is_evaluated_in_double():
    guide = shared()
    single = guide.elbo_bounds(KEY, GOOD, Y, num_particles=32)
    with jax.enable_x64(True):
        double = guide.elbo_bounds(KEY, GOOD, Y, num_particles=32)
    assert guide.elbo_bounds(KEY, GOOD, Y, num_particles=32) == single
    assert double.mutual_information[0] == pytest.approx(single.mutual_information[0], abs=0.1)


def test_a_guide_of_bounded_support_whose_units_overlap_in_nothing_is_refused():
    def bounded(y):
        low = numpyro.param("low", jnp.array([-3.0, 0.0, 3.0]))
        numpyro.sample("loc", dist.Uniform(low, low + 1.0).to_event(1))

    guide = AutoSymmetrized(bounded, Symmetry.mixture("loc"), model=mixture, check=False)
    with pytest.raises(UnsupportedGuideError, match=r"'loc'.* at a relabelled draw is -inf.*full support"):
        guide.setup(KEY, Y)


def test_a_guide_says_what_it_is():
    guide = AutoSymmetrized(AutoNormal(mixture), estimator="exact")
    assert repr(guide) == "AutoSymmetrized(AutoNormal, a symmetry still to be found, estimator='exact')"
    assert "AutoNormal, Symmetry(S3 on 'component'; log|G| = 1.8 nats)" in repr(shared())
    assert shared().symmetry.is_bound


def test_a_guide_says_which_groups_it_holds_still():
    """Heads of units that share a trunk: log 48 = 3.9 in all, of which bounds know 3! 2!² = 24."""

    def model(x, y):
        t = numpyro.sample("t", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 3, 2]).to_event(3))
        o = numpyro.sample("o", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
        units = jnp.exp(jnp.einsum("ni,hij->nhj", jnp.exp(x @ t), w))
        numpyro.sample("y", dist.Normal(jnp.einsum("nhj,hj->n", units, o), 1.0).to_event(1), obs=y)

    names = {"t": (None, "trunk"), "w": ("head", "trunk", "head/unit"), "o": ("head", "head/unit")}
    x = np.linspace(-1.0, 1.0, 10).reshape(5, 2)
    guide = AutoSymmetrized(AutoNormal(model), Symmetry(names), check=False).setup(KEY, x, x[:, 0])
    trace = handlers.trace(handlers.seed(guide, 0)).get_trace(x, x[:, 0])
    params = {name: site["value"] for name, site in trace.items() if site["type"] == "param"}
    bounds = guide.elbo_bounds(KEY, params, x, x[:, 0], num_particles=2)
    assert bounds.log_order == pytest.approx(np.log(24))
    assert guide.symmetry.log_order() == pytest.approx(np.log(48))
    assert "log|G| = 3.2 nats" in repr(guide)
    assert "log|G| = 3.9 in all, ['head'] are held still" in guide.explain()


def test_stein_mixtures_are_refused_in_words():
    kernel, optimiser = einstein.RBFKernel(), optax.adam(1e-2)
    with pytest.raises(AttributeError, match="no attribute 'init_loc_fn'. SteinVI asks for it, .* guide.base"):
        einstein.SteinVI(lambda: None, AutoSymmetrized(AutoNormal(lambda: None)), optimiser, kernel)


def test_an_attribute_that_a_property_lacks_is_named():
    class Own(AutoSymmetrized):
        title = property(lambda self: self.heading)

    with pytest.raises(AttributeError, match="'Own' object has no attribute 'heading'"):
        Own(AutoNormal(lambda: None)).title  # noqa: B018


@pytest.mark.parametrize("guide", [AutoUnitNormal(tanh_network), AutoConditional(AutoNormal(tanh_network))])
def test_a_guide_that_is_not_symmetrized_says_what_has_bounds(guide):
    with pytest.raises(AttributeError, match=rf"{type(guide).__name__} has no elbo_bounds: AutoSymmetrized\(guide\)"):
        guide.elbo_bounds(KEY, {})


def test_parts_of_a_list_are_not_symmetrized_twice():
    parts = AutoGuideList(mixture)
    parts.append(AutoNormal(mixture))
    parts._guides.append(shared())
    with pytest.raises(UnsupportedGuideError, match="Symmetrize the base guide once"):
        AutoSymmetrized(parts, Symmetry.mixture("loc"))


def test_a_part_of_a_list_that_was_symmetrized_alone_says_what_to_do():
    """NumPyro's list trains such a part, and then gives it the parameters of all parts."""
    parts = AutoGuideList(mixture)
    parts.append(shared())
    with pytest.raises(
        SymmetryError, match=r"\['other_auto_loc'\] are of neither .* a whole: AutoSymmetrized\(parts\)"
    ):
        parts.median(GOOD | {"other_auto_loc": NOISE})


def test_nothing_is_warned_of_where_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shared().elbo_bounds(KEY, GOOD, Y, num_particles=32, progress_bar=False)


def test_a_density_that_is_not_one_of_the_latents_is_refused():
    """Of a mean that is another one in every run: in double precision, too, where the second look is taken."""
    rng = np.random.default_rng(0)

    def model(x):
        units = numpyro.sample("units", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.factor("seen", (units * x).sum())

    def guide(x):
        numpyro.sample("units", dist.Normal(jnp.asarray(rng.normal(size=3)), 1.0).to_event(1))

    symmetrized = AutoSymmetrized(guide, Symmetry({"units": ("unit",)}), model=model)
    words = r"'units': the guide's log density re-read at its own draw .* not a function of its latent values"
    with pytest.raises(UnsupportedGuideError, match=words), handlers.seed(rng_seed=0):
        symmetrized(1.0)


@pytest.mark.parametrize("kind", [AutoNormal, AutoDiagonalNormal, AutoMultivariateNormal])
def test_a_guide_that_starts_at_the_border_of_a_support_is_told_so(kind):
    """Whether it draws site by site or all of them as one flat latent, of which the site is named all the same."""

    def model():
        share = numpyro.sample("share", dist.Beta(2.0, 2.0).expand([3]).to_event(1))
        offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(share.sum() + offset, 1.0), obs=0.5)

    guide = AutoSymmetrized(kind(model, init_scale=1000.0), Symmetry({"share": ("unit",)}), check=False)
    words = r"^Site 'share': .* near the border of their support .* init_scale=0.1"
    with pytest.raises(UnsupportedGuideError, match=words):
        guide.setup(KEY)


@pytest.mark.parametrize("guide", [by_hand, AutoNormal(mixture)], ids=["by hand", "AutoNormal"])
@pytest.mark.parametrize("call", [lambda g: handlers.seed(g, 0)(), lambda g: g.setup(KEY)], ids=["call", "setup"])
def test_a_model_that_does_not_fit_its_arguments_is_told_so_whatever_the_guide(guide, call):
    symmetrized = AutoSymmetrized(guide, Symmetry.mixture("loc"), model=mixture)
    told = r"^The model mixture\(y\) does not fit its arguments: missing .*'y'.* or one by one where a guide takes them"
    with pytest.raises(TypeError, match=told):
        call(symmetrized)


@pytest.mark.parametrize(
    ("kind", "estimator", "is_refused"),
    [
        (AutoNormal, "importance", True),  # which draws relabellings
        (AutoMultivariateNormal, "sequential", True),  # which may take moments of draws
        (AutoNormal, "sequential", False),
        (AutoMultivariateNormal, "exact", False),
    ],
)
def test_a_guide_that_nothing_seeds_says_so_where_it_draws(kind, estimator, is_refused):
    options = {"estimator": estimator, "num_permutations": 2, "check": False}
    guide = AutoSymmetrized(kind(mixture), Symmetry.mixture("loc"), **options)
    trace = handlers.trace(handlers.seed(guide, 0)).get_trace(Y)
    values = {name: site["value"] for name, site in trace.items() if site["type"] in ("sample", "param")}
    unseeded = handlers.substitute(guide, values)
    if is_refused:
        with pytest.raises(ValueError, match=r"nothing seeds the guide: call handlers\.seed"):
            unseeded(Y)
    else:
        unseeded(Y)
