"""AutoSymmetrized as users meet it: every base guide, every ELBO, minibatches, Predictive, pickling, refusals."""

import functools
import itertools
import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer import (
    SVI,
    Predictive,
    RenyiELBO,
    Trace_ELBO,
    TraceGraph_ELBO,
    TraceMeanField_ELBO,
    autoguide,
    init_to_sample,
    init_to_value,
)

from numpyro_symmetry import (
    AutoConditional,
    AutoSymmetrized,
    AutoUnitNormal,
    Complement,
    Symmetry,
    SymmetryError,
    UnsupportedGuideError,
    log_evidence,
    to_arviz,
)
from numpyro_symmetry.guides.density import log_density_by_site
from tests.support.tables import ESTIMATOR_NAMES, GUIDES

RNG = np.random.default_rng(0)
X = RNG.normal(size=(15, 1)).astype(np.float32)
Y = np.sin(2 * X[:, 0])
CLUSTERED = np.concatenate([RNG.normal(m, 0.5, 8) for m in (-3.0, 0.0, 3.0)])


def normal(name, *shape, scale=1.0):
    return numpyro.sample(name, dist.Normal(0.0, scale).expand(shape).to_event(len(shape)))


def network(x, y=None):
    w1, b1, w2 = normal("w1", 1, 3), normal("b1", 3), normal("w2", 3)
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1 + b1) @ w2, noise), obs=y)


def deep(x, y=None):
    h = jnp.tanh(x @ normal("w1", 1, 3) + normal("b1", 3))
    h = jnp.tanh(h @ normal("w2", 3, 3) + normal("b2", 3))
    mean = h @ normal("w3", 3)
    numpyro.sample("y", dist.Normal(mean, 0.3).to_event(1), obs=y)


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("components", 3):
        loc, scale = numpyro.sample("loc", dist.Normal(0.0, 3.0)), numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, scale)), obs=y)


def markov(y):
    start = numpyro.sample("start", dist.Dirichlet(jnp.ones(3)))
    move = numpyro.sample("move", dist.Dirichlet(jnp.ones((3, 3))).to_event(1))
    loc = normal("loc", 3, scale=3.0)
    emission = dist.Normal(loc, 1.0).log_prob(y[:, None])

    def forward(alpha, e):
        return logsumexp(alpha[:, None] + jnp.log(move), axis=0) + e, None

    alpha, _ = jax.lax.scan(forward, emission[0] + jnp.log(start), emission[1:])
    numpyro.factor("likelihood", logsumexp(alpha))


def two_components(y):
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    loc = normal("loc", 2, scale=3.0)
    with numpyro.plate("data", len(y)):
        parts = dist.Categorical(jnp.stack([p, 1.0 - p])), dist.Normal(loc, 1.0)
        numpyro.sample("y", dist.MixtureSameFamily(*parts), obs=y)


def site_for_each(y):
    loc = jnp.stack([normal(f"loc_{k}", scale=3.0) for k in range(3)])
    scale = jnp.stack([numpyro.sample(f"scale_{k}", dist.LogNormal(0.0, 0.5)) for k in range(3)])
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, scale)), obs=y)


CASES = {
    "a site for each component": (
        site_for_each,
        (CLUSTERED,),
        Symmetry.mixture("weights", ("loc_0", "loc_1", "loc_2"), ("scale_0", "scale_1", "scale_2")),
    ),
    "part of a whole": (
        two_components,
        (CLUSTERED,),
        Symmetry({"p": (Complement("component"),), "loc": ("component",)}),
    ),
    "network": (network, (X, Y), Symmetry({"w1": (None, "h"), "b1": ("h",), "w2": ("h",)})),
    "two hidden layers": (
        deep,
        (X, Y),
        Symmetry({"w1": (None, "g"), "b1": ("g",), "w2": ("g", "h"), "b2": ("h",), "w3": ("h",)}),
    ),
    "mixture": (mixture, (CLUSTERED,), Symmetry.mixture("weights", "loc", "scale")),
    "markov": (markov, (CLUSTERED,), Symmetry.hmm(initial="start", transition="move", emissions=["loc"])),
}


def by_hand(x, y=None):
    """A hierarchical guide: later sites depend on earlier ones."""
    w1 = numpyro.sample("w1", dist.Normal(numpyro.param("m1", 0.3 * jnp.ones((1, 3))), 0.7).to_event(2))
    numpyro.sample("b1", dist.Normal(0.5 * w1[0], 0.7).to_event(1))
    numpyro.sample("w2", dist.Normal(numpyro.param("m2", jnp.arange(3.0)), 0.7).to_event(1))
    numpyro.sample("noise", dist.LogNormal(numpyro.param("m3", 0.0), 0.2))


def spikes(y):
    """Some of the weights are used, and some are not."""
    w = normal("w", 3)
    used = numpyro.sample("used", dist.Bernoulli(0.4).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal((w * used).sum(-1), 0.7).expand(y.shape).to_event(1), obs=y)


def spikes_by_hand(y, logits=(0.5, -0.3, 0.1)):
    used = numpyro.sample("used", dist.Bernoulli(logits=numpyro.param("logits", jnp.array(logits))).to_event(1))
    numpyro.sample("w", dist.Normal(jnp.array([0.2, 0.5, 0.3]), 0.4 + 0.1 * used).to_event(1))


SPIKES = Symmetry({"w": ("weight",), "used": ("weight",)})
# what no automatic guide draws is here alone
BY_HAND = {"network": (by_hand, *CASES["network"]), "spikes": (spikes_by_hand, spikes, (CLUSTERED,), SPIKES)}


def independent_log_density(guide, data, values, args):
    """log q at constrained values without the package's help: AutoContinuous through its own posterior."""
    if not isinstance(guide, autoguide.AutoContinuous):
        total = 0.0
        parts = list(guide) if isinstance(guide, autoguide.AutoGuideList) else [None]
        if parts == [None]:
            replayed = handlers.substitute(handlers.seed(guide, 0), data | values)
            for site in handlers.trace(replayed).get_trace(*args).values():
                if site["type"] == "sample":
                    total += site["fn"].log_prob(site["value"]).sum()
            return total
        return sum(independent_log_density(part, data, values, args) for part in parts)
    posterior = handlers.substitute(handlers.seed(guide._get_posterior, 0), data)()
    flat, log_jacobian = [], 0.0
    for name in guide._init_locs:
        transform = biject_to(guide.prototype_trace[name]["fn"].support)
        z = transform.inv(values[name])
        flat.append(jnp.ravel(z))
        log_jacobian += jnp.sum(transform.log_abs_det_jacobian(z, values[name]))
    return posterior.log_prob(jnp.concatenate(flat)).sum() - log_jacobian


MIXED = {
    ("mixture", "AutoMultivariateNormal"),
    ("part of a whole", "AutoMultivariateNormal"),
    ("a site for each component", "AutoDiagonalNormal"),
}


def pairs():
    """Every guide and every model once in the fast suite; the other pairs compile for minutes."""
    for case, base in itertools.product(CASES, GUIDES):
        is_fast = case == "network" or base == "AutoNormal" or (case, base) in MIXED
        yield pytest.param(case, base, id=f"{case}-{base}", marks=() if is_fast else pytest.mark.slow)
    for case in BY_HAND:
        yield pytest.param(case, "by hand", id=f"{case}-by hand")


@pytest.mark.parametrize(("case", "base"), list(pairs()))
def test_total_density_is_the_mean_over_the_group(case, base):
    """Base sites plus the correction equal log q^G enumerated by other means, to 1e-9."""
    inner, model, args, symmetry = BY_HAND[case] if base == "by hand" else (None, *CASES[case])
    if base == "AutoIAFNormal" and case == "two hidden layers":
        args = tuple(a[:3] for a in args)
    with jax.enable_x64(True):
        args = tuple(jnp.asarray(a) for a in args)
        inner = inner or GUIDES[base](model, next(iter(symmetry.axes)), init_scale=0.7)
        guide = AutoSymmetrized(inner, symmetry, model=model, estimator="exact", check=base == "AutoNormal")
        guide.setup(jax.random.key(0), *args)

        @jax.jit
        def drawn():
            """The density of a draw, its values, and the parameters."""
            trace = handlers.trace(handlers.seed(guide, 1)).get_trace(*args)
            sampled = {k: s for k, s in trace.items() if s["type"] == "sample"}
            total = sum(s["fn"].log_prob(s["value"]).sum() for s in sampled.values())
            values = {k: s["value"] for k, s in sampled.items() if not s["infer"].get("is_auxiliary")}
            return total, values, {k: s["value"] for k, s in trace.items() if s["type"] == "param"}

        total, values, params = drawn()
        bound = symmetry.bind(values)

        @jax.jit
        def moved_density(element):
            return independent_log_density(inner, params, bound.apply(element, values), args)

        per_group = [list(itertools.permutations(range(group.size))) for group in bound.groups.values()]
        densities = [
            moved_density({name: jnp.array(part) for name, part in zip(bound.groups, parts, strict=True)})
            for parts in itertools.product(*per_group)
        ]
        expected = logsumexp(jnp.stack(densities)) - math.log(len(densities))
        np.testing.assert_allclose(float(total), float(expected), atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    "base",
    [
        "AutoNormal",
        pytest.param("AutoDiagonalNormal", marks=pytest.mark.slow),
        pytest.param("AutoMultivariateNormal", marks=pytest.mark.slow),
    ],
)
def test_an_invariant_guide_gains_nothing(base):
    """No free log|G| where relabelling changes nothing (transforms that do not invert to the last bit)."""
    guide = AutoSymmetrized(
        GUIDES[base](mixture, "weights", init_scale=0.7), CASES["mixture"][2], estimator="exact", check=False
    )
    start = initial(guide, CLUSTERED)

    @jax.jit
    @jax.vmap
    def densities(key):
        # as far about as NumPyro's own starts
        params = {
            k: v + jax.random.uniform(key, v.shape, minval=-2.0, maxval=2.0) * k.endswith("loc")
            for k, v in start.items()
        }
        trace = handlers.trace(handlers.seed(handlers.substitute(guide.base, params), key)).get_trace(CLUSTERED)
        values = {
            k: s["value"] for k, s in trace.items() if s["type"] == "sample" and not s["infer"].get("is_auxiliary")
        }
        again = log_density_by_site(guide.base, trace, values, (CLUSTERED,), {})
        direct = sum(s["fn"].log_prob(s["value"]).sum() for s in trace.values() if s["type"] == "sample")
        return sum(again.values()), direct

    again, direct = densities(jax.random.split(jax.random.key(0), 8))
    assert np.isfinite(again).all()
    np.testing.assert_allclose(again, direct, rtol=1e-4, atol=1e-3)


# particles that bounds take at a time: of as many, or a multiple, tests compile one program
AT_ONCE = 64


def fit(guide, args, steps=20, loss=None, model=network):
    svi = SVI(model, guide, optax.adam(1e-2), loss or Trace_ELBO())
    return svi.run(jax.random.key(0), steps, *args, progress_bar=False)


def fresh(estimator="auto", base="AutoNormal", **options):
    model, _, symmetry = CASES["network"]
    options = {"check": False} | options  # proved once, in test_set_up_checks_the_model
    return AutoSymmetrized(
        GUIDES[base](model, "w1", init_scale=0.7), symmetry, model=model, estimator=estimator, **options
    )


@functools.cache
def trained():
    """Parameters of the network's guide after a few steps of its base: what is symmetrized has none of its own."""
    return fit(fresh().base, (X, Y)).params


def ready(estimator="auto", **options):
    """A guide of the network that has been set up."""
    return fresh(estimator, **options).setup(jax.random.key(0), X, Y)


def initial(guide, *args):
    """Parameters where a guide starts, which is set up."""
    guide.setup(jax.random.key(0), *args)
    trace = handlers.trace(handlers.seed(guide.base, 0)).get_trace(*args)
    return {name: site["value"] for name, site in trace.items() if site["type"] == "param"}


@pytest.mark.parametrize("estimator", ["auto", *ESTIMATOR_NAMES])
def test_draws_are_the_base_guides(estimator):
    guide, bare = fresh(estimator), autoguide.AutoNormal(network, init_scale=0.7)
    for seed in (0, 1):
        a = handlers.trace(handlers.seed(guide, seed)).get_trace(X, Y)
        b = handlers.trace(handlers.seed(bare, seed)).get_trace(X, Y)
        for name in b:
            if b[name]["type"] in ("sample", "param"):
                np.testing.assert_array_equal(a[name]["value"], b[name]["value"])
        # as NumPyro asks of what a guide samples beside the model's sites
        (more,) = [site for name, site in a.items() if site["type"] == "sample" and name not in b]
        assert more["is_observed"]
        assert more["infer"]["is_auxiliary"]


# up to sixteen particles are compiled one by one, more of them as a loop over one
LOSSES = {
    "Trace": Trace_ELBO(),
    "Trace of 3": Trace_ELBO(num_particles=3),
    "MeanField": TraceMeanField_ELBO(num_particles=20),
    "Renyi": RenyiELBO(alpha=0.0, num_particles=20),
    "Graph": TraceGraph_ELBO(),
}


@pytest.mark.parametrize(
    ("loss", "estimator"),
    [
        # each loss and each estimator once; the other pairs compile for minutes
        pytest.param(
            loss,
            estimator,
            id=f"{estimator}-{name}",
            marks=() if (estimator == "sequential") != (name == "Trace") else pytest.mark.slow,
        )
        for name, loss in LOSSES.items()
        for estimator in ("auto", "infonce", "sequential", "importance")
    ],
)
def test_trains_under_every_elbo(loss, estimator):
    result = fit(fresh(estimator), (X, Y), loss=loss)
    assert np.isfinite(np.asarray(result.losses)).all()
    # one of a pair for every site, and nothing for the correction
    assert set(result.params) == {
        f"{site}_auto_{part}" for site in ("w1", "b1", "w2", "noise") for part in ("loc", "scale")
    }


@pytest.mark.parametrize("estimator", ["exact", "sequential"])
def test_value_and_gradient_agree_across_elbos(estimator):
    with jax.enable_x64(True):
        guide = fresh(estimator)
        svi = SVI(network, guide, optax.sgd(1.0), Trace_ELBO())
        params = svi.get_params(svi.init(jax.random.key(0), X, Y))
        bare = autoguide.AutoNormal(network, init_scale=0.7)
        handlers.trace(handlers.seed(bare, 0)).get_trace(X, Y)

        def loss(elbo, guide):
            return lambda params: elbo.loss(jax.random.key(3), params, network, guide, X, Y)

        @jax.jit
        def losses(params):
            cases = loss(Trace_ELBO(), guide), loss(TraceGraph_ELBO(), guide), loss(Trace_ELBO(), bare)
            gain = loss(TraceMeanField_ELBO(), bare)(params) - loss(TraceMeanField_ELBO(), guide)(params)
            return *(jax.value_and_grad(case)(params) for case in cases), gain

        (value, gradient), (value_graph, gradient_graph), (base_value, base_gradient), gain = losses(params)
        np.testing.assert_allclose(value, value_graph, rtol=1e-9)
        for name in params:
            np.testing.assert_allclose(gradient[name], gradient_graph[name], atol=1e-6)
        assert 0 < float(base_value - value) <= math.log(6) + 1e-9
        assert any(np.abs(gradient[n] - base_gradient[n]).max() > 1e-3 for n in params)
        np.testing.assert_allclose(gain, base_value - value, rtol=1e-9)


def test_minibatches_scale_the_likelihood_and_not_the_correction():
    def model(x, y):
        w1, w2 = normal("w1", 1, 3), normal("w2", 3)
        with numpyro.plate("data", 15, subsample_size=5):
            xb, yb = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
            numpyro.sample("y", dist.Normal(jnp.tanh(xb @ w1) @ w2, 0.3), obs=yb)

    symmetry = Symmetry({"w1": (None, "h"), "w2": ("h",)})
    guide = AutoSymmetrized(autoguide.AutoNormal(model), symmetry)
    result = fit(guide, (jnp.asarray(X), jnp.asarray(Y)), model=model)
    assert np.isfinite(np.asarray(result.losses)).all()
    assert "symmetry_correction" not in guide.sample_posterior(jax.random.key(0), result.params)


def test_predictive_sees_only_draws():
    guide, params = ready(), trained()

    @jax.jit
    def drawn(key):
        guides = [Predictive(fn, params=params, num_samples=7)(key, X, Y) for fn in (guide, guide.base)]
        return *guides, Predictive(network, guide=guide, params=params, num_samples=7)(key, X)

    draws, bare, predicted = drawn(jax.random.key(0))
    assert draws["w1"].shape == (7, 1, 3)
    np.testing.assert_array_equal(draws["w1"], bare["w1"])
    assert predicted["y"].shape == (7, 15)


def test_sample_posterior_and_summaries():
    guide, params = ready(), trained()
    key = jax.random.key(4)
    one_basin = guide.sample_posterior(key, params, sample_shape=(4, 2))
    everywhere = guide.sample_posterior(key, params, sample_shape=(4, 2), symmetrize=True)
    assert one_basin["w1"].shape == everywhere["w1"].shape == (4, 2, 1, 3)
    np.testing.assert_array_equal(one_basin["w1"], guide.base.sample_posterior(key, params, sample_shape=(4, 2))["w1"])
    np.testing.assert_array_equal(np.sort(one_basin["w2"], -1), np.sort(everywhere["w2"], -1))
    assert not np.array_equal(one_basin["w2"], everywhere["w2"])
    order = np.argsort(one_basin["w2"], -1)
    back = np.argsort(everywhere["w2"], -1)
    moved = [np.take_along_axis(s["b1"], o, -1) for s, o in ((one_basin, order), (everywhere, back))]
    np.testing.assert_array_equal(*moved)
    np.testing.assert_array_equal(guide.median(params)["w1"], guide.base.median(params)["w1"])
    assert guide.quantiles(params, [0.1, 0.9])["w2"].shape == (2, 3)
    for quantiles in (1, [0, 1]):  # whole numbers
        whole, real = (guide.quantiles(params, x)["w2"] for x in (quantiles, np.asarray(quantiles, float)))
        np.testing.assert_array_equal(whole, real)
    diagonal = fresh(base="AutoDiagonalNormal")
    assert diagonal.get_posterior(initial(diagonal, X, Y)).batch_shape == (10,)
    with pytest.raises(UnsupportedGuideError, match=r"has no get_posterior\(\); compute it from sample_posterior"):
        guide.get_posterior(params)


def test_a_site_without_entries_that_numpyro_cannot_draw_is_named():
    def model(y):
        numpyro.sample("none", dist.Normal().expand([0]).to_event(1))
        loc = numpyro.sample("loc", dist.Normal().expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)

    base, key = autoguide.AutoNormal(model), jax.random.key(0)
    guide = AutoSymmetrized(base)
    params = SVI(model, guide, optax.adam(0.1), Trace_ELBO()).run(key, 1, 0.3, progress_bar=False).params
    calls = [
        lambda: guide.sample_posterior(key, params, sample_shape=(3,)),
        lambda: to_arviz(key, base, params, num_draws=3, model_args=(0.3,)),
        lambda: log_evidence((guide, params), model, (0.3,)),
    ]
    for call in calls:
        with pytest.raises(SymmetryError, match=r"AutoNormal.sample_posterior does not draw .*, {'none': \(0,\)}"):
            call()


def test_a_division_by_zero_of_the_models_own_is_left_as_it_is(monkeypatch):
    def model():
        numpyro.sample("loc", dist.Normal().expand([2]).to_event(1))

    base, key = autoguide.AutoNormal(model), jax.random.key(0)
    params = SVI(model, base, optax.adam(0.1), Trace_ELBO()).run(key, 1, progress_bar=False).params
    monkeypatch.setattr(base, "sample_posterior", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        to_arviz(key, base, params, num_draws=3)


@pytest.mark.parametrize("logit", [0.0, -5.0])
def test_whole_numbers_that_hardly_vary_leave_the_bound_below_the_information(logit):
    """A label that none of the draws behind a proposal had is no more certain than a label apart."""

    def base(y):
        spikes_by_hand(y, logits=(logit, logit, 0.1))

    informations = {}
    for estimator in ("exact", "sequential", "importance"):
        guide = AutoSymmetrized(base, SPIKES, model=spikes, estimator=estimator, check=False)
        guide.setup(jax.random.key(0), CLUSTERED)

        def information(key, guide=guide):
            trace = handlers.trace(handlers.seed(guide, key)).get_trace(CLUSTERED)
            return -trace["_symmetry_correction"]["fn"].log_prob(jnp.empty((0,)))

        informations[estimator] = np.asarray(jax.jit(jax.vmap(information))(jax.random.split(jax.random.key(1), 500)))
    exact = informations.pop("exact")
    for found in informations.values():
        gap = exact - found
        assert found.min() > -20.0
        assert -4.0 * gap.std() / 500**0.5 < gap.mean() < 0.5


def test_what_a_flow_has_not_is_named():
    guide = AutoSymmetrized(autoguide.AutoIAFNormal(network, hidden_dims=[10]), CASES["network"][2], check=False)
    params = initial(guide, X, Y)
    for what, args in (("median", ()), ("quantiles", ([0.5],))):
        with pytest.raises(UnsupportedGuideError, match=rf"AutoIAFNormal has no {what}\(\); compute it"):
            getattr(guide, what)(params, *args)


def test_a_guide_by_hand_is_sampled_through_predictive():
    guide = AutoSymmetrized(by_hand, CASES["network"][2], model=network, check=False)
    params = initial(guide, X, Y)
    assert guide.sample_posterior(jax.random.key(0), params, X, Y, sample_shape=(3, 2))["w1"].shape == (3, 2, 1, 3)
    assert guide.sample_posterior(jax.random.key(0), params, X, Y)["w2"].shape == (3,)
    with pytest.raises(UnsupportedGuideError, match="has no median"):
        guide.median(params)


def test_pickling_keeps_a_trained_guide_working():
    guide, params = ready("sequential"), trained()
    again = pickle.loads(pickle.dumps(guide))
    bounds = [g.elbo_bounds(jax.random.key(0), params, X, Y, num_particles=AT_ONCE) for g in (guide, again)]
    assert bounds[0] == bounds[1]


def test_elbo_bounds_compile_once_for_data_of_one_shape_and_see_new_data():
    guide, params, x, y = ready("sequential"), trained(), jnp.asarray(X), jnp.asarray(Y)

    def bounds(x, y, params=params):
        found = guide.elbo_bounds(jax.random.key(0), params, x, y, num_particles=AT_ONCE)
        return found, guide._compiled.run

    (first, compiled), (moved, again) = bounds(x, y), bounds(x, y, jax.tree.map(lambda p: 1.1 * p, params))
    assert moved.lower != first.lower
    mutable = np.array(Y)
    before = bounds(X, mutable)[0]
    mutable += 1.0
    assert before == first
    after, at_last = bounds(X, mutable)
    assert after == bounds(x, jnp.asarray(mutable))[0] != first
    assert again is compiled is at_last
    assert compiled._cache_size() == 1


def test_elbo_bounds_of_a_model_that_looks_at_its_data():
    def model(y, group):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([int(group.max()) + 1]).to_event(1))
        numpyro.sample("y", dist.Normal(z[group], 1.0).to_event(1), obs=y)
        numpyro.sample("s", dist.Normal(z.sum(), 1.0), obs=0.0)

    guide = AutoSymmetrized(autoguide.AutoNormal(model), Symmetry({}), check=False)
    params = {"z_auto_loc": jnp.zeros(2), "z_auto_scale": jnp.ones(2)}
    y, group = np.zeros(4, np.float32), np.array([0, 1, 1, 0])

    def bounds():
        return guide.elbo_bounds(jax.random.key(0), params, y, group, num_particles=32), guide._compiled.run

    (first, compiled), (second, again) = bounds(), bounds()
    assert first == second
    assert again is compiled
    y += 5.0
    assert bounds()[0].lower < first.lower - 10.0


def test_elbo_bounds_do_not_see_a_container_change():
    def model(data):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=data["y"])

    guide = AutoSymmetrized(autoguide.AutoNormal(model), Symmetry({"z": ("unit",)}), check=False)
    data, params = {"y": jnp.array(0.5)}, {"z_auto_loc": jnp.zeros(3), "z_auto_scale": jnp.ones(3)}
    first = guide.elbo_bounds(jax.random.key(0), params, data, num_particles=32)
    kept = {"y": data["y"]}
    data["y"] = jnp.array(20.0)
    assert guide.elbo_bounds(jax.random.key(0), params, kept, num_particles=33).lower > first.lower - 5.0
    assert guide.elbo_bounds(jax.random.key(0), params, data, num_particles=32).lower < first.lower - 50.0


def test_the_upper_bound_is_cut_off_at_the_mean_only():
    # units are distinct but move together, so single draws scatter far about log|G| and their mean does not
    def model():
        z = numpyro.sample("z", dist.Normal(0.0, 10.0).expand([6]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(), 30.0), obs=0.0)

    symmetry = Symmetry({"z": ("unit",)})
    guide = AutoSymmetrized(autoguide.AutoMultivariateNormal(model), symmetry, check=False).setup(jax.random.key(0))
    covariance = 25.0 * jnp.ones((6, 6)) + 0.05**2 * jnp.eye(6)
    params = {"auto_loc": jnp.arange(6.0), "auto_scale_tril": jnp.linalg.cholesky(covariance)}
    bounds = guide.elbo_bounds(jax.random.key(1), params, num_permutations=16)
    assert bounds.mutual_information[1] == pytest.approx(math.log(720), abs=1e-3)
    assert bounds.upper == pytest.approx(bounds.base_elbo + bounds.mutual_information[1], abs=1e-6)


def test_a_dependence_behind_a_comparison_is_seen():
    def model():
        z, v = (numpyro.sample(name, dist.Normal(0.0, 1.0).expand([3]).to_event(1)) for name in "zv")
        numpyro.sample("y", dist.Normal((z * v).sum(), 1.0), obs=0.0)

    def by_hand():
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        d = numpyro.param("d", jnp.zeros(3))  # equal when the guide is set up, so numbers alone show nothing
        numpyro.sample("v", dist.Normal(jnp.where(z[0] > 0, d, -d), 0.1).to_event(1))

    guide = AutoSymmetrized(by_hand, Symmetry({"z": ("unit",), "v": ("unit",)}), model=model, check=False)
    bounds = guide.elbo_bounds(jax.random.key(0), {"d": jnp.array([-1.0, 0.0, 1.0])}, num_particles=1000)
    assert bounds.mutual_information[0] == pytest.approx(1.444, abs=0.03)


def test_relabelled_draws_leave_out_what_a_guide_computed_from_its_labels():
    def by_hand_with_extras(x, y=None):
        by_hand(x, y)
        numpyro.deterministic("extra", jnp.zeros(3))

    guide = AutoSymmetrized(by_hand_with_extras, CASES["network"][2], model=network, check=False)
    params = initial(guide, X, Y)
    plain = guide.sample_posterior(jax.random.key(0), params, X, Y, sample_shape=(2,))
    moved = guide.sample_posterior(jax.random.key(0), params, X, Y, sample_shape=(2,), symmetrize=True)
    assert set(plain) - set(moved) == {"extra"}


PAIRED = Symmetry({"w": ("unit",), "v": ("unit",)})


@pytest.mark.parametrize("base", ["AutoNormal", "AutoMultivariateNormal", "AutoUnitNormal", "AutoConditional"])
@pytest.mark.parametrize("sample_shape", [(), (3, 2)])
def test_relabelled_draws_have_what_the_model_computes_of_them(base, sample_shape):
    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal().expand([3]).to_event(1))
        v = numpyro.sample("v", dist.Normal().expand([3]).to_event(1))
        shift = numpyro.param("shift", jnp.array(0.5))
        numpyro.deterministic("slopes", w * v + shift)
        mean = numpyro.deterministic("mean", jnp.tanh(x * w) @ v)
        numpyro.sample("y", dist.Normal(mean, 0.3).to_event(1), obs=y)

    bases = {"AutoConditional": AutoConditional(autoguide.AutoNormal(model)), "AutoUnitNormal": AutoUnitNormal(model)}
    guide = AutoSymmetrized(bases.get(base) or getattr(autoguide, base)(model), PAIRED, check=False)
    params = initial(guide, X, Y) | {"shift": jnp.array(2.0)}
    key, x = jax.random.key(4), X[:5]
    # a conditional keeps to its data, and gives no sites of the model's own
    asked = (X, Y) if base == "AutoConditional" else (x,)
    moved = guide.sample_posterior(key, params, *asked, sample_shape=sample_shape, symmetrize=True)
    assert ("slopes" in moved) == (base != "AutoConditional")
    if "slopes" not in moved:
        return
    plain = guide.sample_posterior(key, params, *asked, sample_shape=sample_shape)
    assert not np.array_equal(moved["w"], plain["w"])
    np.testing.assert_allclose(moved["slopes"], moved["w"] * moved["v"] + 2.0, rtol=1e-5)
    mean = jnp.einsum("...nk,...k->...n", jnp.tanh(x * moved["w"][..., None, :]), moved["v"])
    np.testing.assert_allclose(moved["mean"], mean, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match=r"\['mean', 'slopes'\] are computed again .*model\(x, y=None\) does not fit"):
        guide.sample_posterior(key, params, symmetrize=True)


def test_elbo_bounds_of_latents_that_depend_on_each_other():
    def model():
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(a, 1.0))
        numpyro.sample("y", dist.Normal(b, 1.0), obs=0.0)
        numpyro.sample("s", dist.Normal(z.sum(), 100.0), obs=0.0)

    def by_hand():
        numpyro.sample("z", dist.Normal(numpyro.param("loc", jnp.zeros(2)), 1.0).to_event(1))
        b = numpyro.sample("b", dist.Normal(0.0, math.sqrt(2 / 3)))
        numpyro.sample("a", dist.Normal(0.5 * b, math.sqrt(0.5)))  # the exact posterior, in the other order

    guide = AutoSymmetrized(by_hand, Symmetry({"z": ("unit",)}), model=model, check=False)
    bounds = guide.elbo_bounds(jax.random.key(1), {"loc": jnp.zeros(2)})
    log_z = float(dist.Normal(0.0, math.sqrt(3)).log_prob(0.0) + dist.Normal(0.0, math.sqrt(1e4 + 2)).log_prob(0.0))
    assert bounds.lower == pytest.approx(log_z, abs=1e-3)


def test_any_default_random_number_generator():
    with jax.default_prng_impl("rbg"):
        assert fresh("sequential").setup(jax.random.key(0), X, Y).layout is not None


def test_warm_start_from_another_fit():
    params = trained()
    svi = SVI(network, fresh(), optax.adam(1e-2), Trace_ELBO())
    state = svi.init(jax.random.key(0), X, Y, init_params=params)
    for name, value in svi.get_params(state).items():
        np.testing.assert_allclose(value, params[name], rtol=1e-5)


def test_jit_and_scan_after_setup():
    guide = fresh("sequential").setup(jax.random.key(0), X, Y)
    svi = SVI(network, guide, optax.adam(1e-2), Trace_ELBO())
    state = jax.jit(svi.init)(jax.random.key(0), X, Y)
    _, losses = jax.jit(lambda s: jax.lax.scan(lambda s, _: svi.update(s, X, Y), s, length=3))(state)
    assert np.isfinite(np.asarray(losses)).all()
    with pytest.raises(SymmetryError, match=r"Call guide.setup\(rng_key, \*model_args\) once before"):
        jax.jit(SVI(network, fresh(), optax.adam(1e-2), Trace_ELBO()).init)(jax.random.key(0), X, Y)


@pytest.mark.parametrize("base", [autoguide.AutoNormal, lambda model: AutoConditional(autoguide.AutoNormal(model))])
def test_trains_where_nothing_is_compiled(base):
    def model(x, y):
        hidden = jnp.tanh(x @ normal("w1", 1, 3))
        numpyro.sample("y", dist.Normal(hidden @ normal("w2", 3), 0.3).to_event(1), obs=y)

    with jax.disable_jit():
        svi = SVI(model, AutoSymmetrized(base(model)), optax.adam(1e-2), Trace_ELBO())
        _, loss = svi.update(svi.init(jax.random.key(0), X, Y), X, Y)
    assert np.isfinite(loss)


def test_wide_general_guide_trains_through_its_surrogate():
    def model(x, y=None):
        w1, w2 = normal("w1", 1, 6), normal("w2", 6)
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 0.3).to_event(1), obs=y)

    symmetry = Symmetry({"w1": (None, "h"), "w2": ("h",)})
    base = autoguide.AutoMultivariateNormal(model, init_loc_fn=init_to_sample)
    guide = AutoSymmetrized(base, symmetry, check=False)
    params = fit(guide, (X, Y), model=model).params
    bounds = guide.elbo_bounds(jax.random.key(0), params, X, Y, num_particles=64)
    assert bounds.lower <= bounds.upper + 4 * bounds.upper_error
    assert bounds.lower >= bounds.base_elbo
    assert bounds.mutual_information[1] <= math.lgamma(7) + 1e-6


def test_elbo_bounds_enclose_the_exact_value():
    guide = ready("exact")
    # units that partly overlap, and so narrow that a missing nat stands out from the errors
    params = {name: (0.5 if name.endswith("_scale") else 0.2) * value for name, value in trained().items()}
    exact = guide.elbo_bounds(jax.random.key(0), params, X, Y, num_particles=1024)
    assert exact.lower == exact.upper
    assert 0.5 < exact.mutual_information[0] < exact.log_order - 0.5
    np.testing.assert_allclose(exact.log_order, math.log(6), rtol=1e-6)
    loss = jax.jit(jax.vmap(lambda key: Trace_ELBO().loss(key, params, network, guide, X, Y)))
    losses = loss(jax.random.split(jax.random.key(9), 4000))
    error = math.hypot(exact.lower_error, float(losses.std()) / 4000**0.5)
    assert abs(exact.lower + float(losses.mean())) < 4 * error


def dais():
    return autoguide.AutoDAIS(network)


def ordered(y):
    loc = numpyro.sample(
        "loc",
        dist.TransformedDistribution(dist.Normal(0.0, 3.0).expand([3]).to_event(1), dist.transforms.OrderedTransform()),
    )
    numpyro.sample(
        "y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0)).expand([len(y)]), obs=y
    )


def unequal(x, y=None):
    w1 = numpyro.sample("w1", dist.Normal(0.0, jnp.arange(1.0, 4.0)).expand([1, 3]).to_event(2))
    numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1).sum(-1), 0.3).to_event(1), obs=y)


def local(y):
    with numpyro.plate("data", 24, subsample_size=4):
        yb = numpyro.subsample(y, event_dim=0)
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(-1), 1.0), obs=yb)


def all_in_a_plate(y):
    with numpyro.plate("data", 24):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(-1), 1.0), obs=y)


def delta_inside(x, y=None):
    numpyro.sample("w1", dist.Delta(jnp.arange(3.0)[None], event_dim=2))
    numpyro.sample("b1", dist.Normal(numpyro.param("m", jnp.zeros(3)), 1.0).to_event(1))
    numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("noise", dist.LogNormal(0.0, 0.2))


def delta_of_equal_values(x, y=None):
    numpyro.sample("w1", dist.Normal(jnp.arange(3.0)[None], 1.0).to_event(2))
    numpyro.sample("b1", dist.Delta(numpyro.param("m", jnp.zeros(3)), event_dim=1))
    numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("noise", dist.LogNormal(0.0, 0.2))


def auxiliary_inside(x, y=None):
    u = numpyro.sample("u", dist.Normal(0.0, 1.0), infer={"is_auxiliary": True})
    numpyro.sample("w1", dist.Normal(u, 1.0).expand([1, 3]).to_event(2))
    numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("noise", dist.LogNormal(0.0, 0.2))


def partial(x, y=None):
    numpyro.sample("noise", dist.LogNormal(0.0, 0.2))


NETWORK = CASES["network"][2]


@pytest.mark.parametrize(
    ("make", "args", "error", "message"),
    [
        (
            lambda: AutoSymmetrized(autoguide.AutoDelta(network), NETWORK),
            (X, Y),
            UnsupportedGuideError,
            "AutoDelta .*point mass",
        ),
        (
            lambda: AutoSymmetrized(autoguide.AutoLaplaceApproximation(network), NETWORK),
            (X, Y),
            UnsupportedGuideError,
            "while it trains",
        ),
        (lambda: AutoSymmetrized(dais(), NETWORK), (X, Y), UnsupportedGuideError, "auxiliary momenta"),
        (
            lambda: AutoSymmetrized(autoguide.AutoBNAFNormal(network), NETWORK),
            (X, Y),
            UnsupportedGuideError,
            "no analytic inverse",
        ),
        (
            lambda: AutoSymmetrized(autoguide.AutoNormal(unequal), Symmetry({"w1": (None, "h")})),
            (X, Y),
            SymmetryError,
            "prior of site 'w1'",
        ),
        (
            lambda: AutoSymmetrized(autoguide.AutoNormal(ordered), Symmetry.mixture("loc")),
            (CLUSTERED,),
            SymmetryError,
            "ordered",
        ),
        (
            lambda: AutoSymmetrized(autoguide.AutoNormal(local), Symmetry({"z": ("h",)})),
            (CLUSTERED,),
            SymmetryError,
            "plate 'data', subsampled 4 of 24",
        ),
        (
            lambda: AutoSymmetrized(autoguide.AutoNormal(all_in_a_plate), Symmetry({"z": ("h",)})),
            (CLUSTERED,),
            SymmetryError,
            "Every site lies in plate 'data'",
        ),
        (
            lambda: AutoSymmetrized(autoguide.AutoNormal(network), Symmetry({"w1": ("h", "h")})),
            (X, Y),
            SymmetryError,
            "axis -1 has size 3, but group 'h' has size 1",
        ),
        (
            lambda: AutoSymmetrized(autoguide.AutoNormal(network), Symmetry({"v": ("h",)})),
            (X, Y),
            SymmetryError,
            "Site 'v' is named by the symmetry",
        ),
        (
            lambda: AutoSymmetrized(delta_inside, NETWORK, model=network),
            (X, Y),
            UnsupportedGuideError,
            "Site 'w1'.*point mass",
        ),
        (
            lambda: AutoSymmetrized(delta_of_equal_values, NETWORK, model=network),
            (X, Y),
            UnsupportedGuideError,
            "Site 'b1'.*point mass",
        ),
        (
            lambda: AutoSymmetrized(auxiliary_inside, NETWORK, model=network),
            (X, Y),
            UnsupportedGuideError,
            r"auxiliary sites \['u'\]",
        ),
        (lambda: AutoSymmetrized(partial, NETWORK, model=network), (X, Y), UnsupportedGuideError, "does not draw"),
    ],
    ids=lambda value: None,
)
def test_refuses_at_set_up(make, args, error, message):
    with pytest.raises(error, match=message):
        make().setup(jax.random.key(0), *(jnp.asarray(a) for a in args))


def test_refuses_parameters_that_are_not_finite():
    guide = ready()
    params = trained() | {"w1_auto_loc": trained()["w1_auto_loc"].at[0, 1].set(jnp.nan)}
    for call in (guide.sample_posterior, guide.elbo_bounds):
        with pytest.raises(SymmetryError, match="'w1_auto_loc'.* holds 1 non-finite of 3"):
            call(jax.random.key(0), params, X, Y)


def test_elbo_bounds_refuse_nothing_to_average():
    guide, params = ready(), trained()
    for options in ({"num_particles": 0}, {"num_permutations": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            guide.elbo_bounds(jax.random.key(0), params, X, Y, **options)
    with pytest.raises(TypeError, match=r"num_particles must be a whole number \(draws of the guide\); got 2.5"):
        guide.elbo_bounds(jax.random.key(0), params, X, Y, num_particles=2.5)
    with pytest.raises(TypeError, match="rng_key must be one JAX random key"):
        guide.elbo_bounds(0, params, X, Y)
    with pytest.raises(TypeError, match="elbo_bounds needs numbers and cannot run under jit"):
        jax.jit(lambda p: guide.elbo_bounds(jax.random.key(0), p, X, Y))(params)


def test_a_former_name_warns_where_it_is_used():
    with pytest.warns(FutureWarning, match="now called elbo_bounds") as told, pytest.raises(TypeError, match="rng_key"):
        fresh().evidence_bounds(0, {}, X, Y)
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "bethe"}, "estimator must be 'auto' or one of"),
        ({"estimator": "infonce", "num_permutations": 1}, "needs at least 2"),
        ({"num_permutations": 0}, "num_permutations must be at least 1"),
        ({"num_permutations": 2.5}, "num_permutations must be a whole number"),
        ({"max_features": -3}, "max_features must be at least 1; got -3"),
        ({"max_features": 2.5}, "max_features must be a whole number"),
        ({"max_features": "all"}, "max_features must be 'auto', a whole number, or None for all; got 'all'"),
        ({"prefix": ""}, "prefix must be a name"),
        ({"prefix": 5}, "prefix must be a name"),
        ({"check": "no"}, "check must be True or False"),
        ({"signs": 1}, "signs must be True or False"),
    ],
)
def test_refuses_bad_options(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fresh(**options)


def wide_guide(separation, *, num_inputs=200, num_units=24, base=autoguide.AutoNormal, **options):
    """Units whose weights differ by a multiple of their standard deviation, .1, where the guide starts."""
    means = jnp.asarray(0.1 * separation * np.random.default_rng(0).normal(size=(num_inputs, num_units)), jnp.float32)

    def wide(x, y=None):
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ normal("w", num_inputs, num_units)).sum(-1), 0.3), obs=y)

    start = {"init_loc_fn": init_to_value(values={"w": means}), "init_scale": 0.1}
    data = jnp.zeros((3, num_inputs)), jnp.zeros(3)
    guide = AutoSymmetrized(base(wide, **start), Symmetry({"w": (None, "unit")}), check=False, **options)
    return guide, data


def test_features_are_chosen_where_the_guide_starts():
    guide, data = wide_guide(0.3)
    assert guide.max_features == "auto"
    guide.setup(jax.random.key(0), *data)
    assert guide.max_features == 128
    assert "estimator='auto', max_features=128)" in repr(guide)
    again = wide_guide(0.3)[0].setup(jax.random.key(1), *data)
    assert again.max_features == guide.max_features
    assert wide_guide(3.0)[0].setup(jax.random.key(0), *data).max_features == 64


def test_features_that_are_chosen_lose_nothing_of_the_elbo():
    elbo, losses = Trace_ELBO(num_particles=32), {}
    for count in (64, "auto", None):
        guide, data = wide_guide(0.3, max_features=count)
        params = initial(guide, *data)
        losses[count] = float(elbo.loss(jax.random.key(2), params, guide.model, guide, *data))
    assert losses[64] > losses[None] + 2.0
    assert losses["auto"] == pytest.approx(losses[None], abs=0.5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_features": 16}, 16),
        ({"max_features": None}, None),
        ({"num_inputs": 64}, None),
        ({"estimator": "infonce"}, None),
        ({"estimator": "importance"}, None),
        ({"num_units": 5}, None),  # summed exactly
    ],
)
def test_features_are_not_chosen_where_there_is_no_choice(options, expected):
    guide, data = wide_guide(0.3, **options)
    assert guide.setup(jax.random.key(0), *data).max_features is expected


def test_features_are_chosen_for_guides_that_do_not_factorise():
    guide, data = wide_guide(4.0, num_units=6, base=autoguide.AutoLowRankMultivariateNormal)
    guide.setup(jax.random.key(0), *data)
    assert not guide.layout.factorises
    assert guide.max_features == 64


def test_refuses_what_is_no_symmetry_and_no_model():
    with pytest.raises(TypeError, match="must be a Symmetry.*got dict"):
        AutoSymmetrized(autoguide.AutoNormal(network), {"w1": (None, "h")})
    with pytest.raises(TypeError, match="must be a Symmetry.*got the class Symmetry"):
        AutoSymmetrized(autoguide.AutoNormal(network), Symmetry)
    with pytest.raises(TypeError, match=r"the class AutoNormal; pass a guide: AutoNormal\(model\)"):
        AutoSymmetrized(autoguide.AutoNormal)
    with pytest.raises(UnsupportedGuideError, match="symmetrized already"):
        AutoSymmetrized(fresh())
    with pytest.raises(TypeError, match="model must be a NumPyro model"):
        AutoSymmetrized(by_hand, NETWORK, model=3)
    with pytest.raises(ValueError, match="carries no model"):
        AutoSymmetrized(by_hand, NETWORK)


def test_refuses_an_exact_sum_out_of_reach():
    def wide(x, y=None):
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ normal("w1", 1, 25)).sum(-1), 0.3).to_event(1), obs=y)

    guide = AutoSymmetrized(autoguide.AutoNormal(wide), Symmetry({"w1": (None, "h")}), estimator="exact")
    with pytest.raises(SymmetryError, match="limited to 20 units and there are 25. Use 'sequential'"):
        guide.setup(jax.random.key(0), X, Y)
