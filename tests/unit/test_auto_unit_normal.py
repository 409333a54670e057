"""Units with a covariance each: against SciPy, against brute force over the group; and what is refused."""

import functools
import math
import pickle
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, TraceGraph_ELBO, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from numpyro_symmetry import AutoConditional, AutoSymmetrized, AutoUnitNormal, Symmetry, SymmetryError, Unsigned, Whole
from numpyro_symmetry.entropy import UnitGaussians
from numpyro_symmetry.entropy.factorised import log_ratio
from numpyro_symmetry.guides.symmetrized.layout import _moves_units_whole
from numpyro_symmetry.linalg import substitute_forward

X = np.random.default_rng(0).normal(size=(12, 2))
Y = X @ [1.0, -2.0] + 0.3 * np.random.default_rng(1).normal(size=12)


def network(x, y=None, width=3):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([x.shape[-1], width]).to_event(2))
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    b2 = numpyro.sample("b2", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(jax.nn.relu(x @ w1 + b1) @ w2 + b2, 0.3).to_event(1), obs=y)


def odd_network(x, y=None):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([x.shape[-1], 3]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
    numpyro.sample("y", dist.Normal((jnp.tanh(x @ w1) @ w2).sum(-1), 0.3).to_event(1), obs=y)


def deep_network(x, y=None):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([x.shape[-1], 3]).to_event(2))
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
    w3 = numpyro.sample("w3", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    hidden = jax.nn.relu(jax.nn.relu(x @ w1 + b1) @ w2)
    numpyro.sample("y", dist.Normal(hidden @ w3, 0.3).to_event(1), obs=y)


def with_scales(x, y=None):
    """A positive number for every unit, in a plate."""
    with numpyro.plate("units", 3):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        width = numpyro.sample("width", dist.LogNormal(0.0, 0.5))
    mean = (slope * jnp.exp(-0.5 * (x[:, :1] / width) ** 2)).sum(1)
    numpyro.sample("y", dist.Normal(mean, 0.3).to_event(1), obs=y)


def factors_about_means(x, y=None):
    """All loadings, scores and means may change their signs together."""
    centre, other = (numpyro.sample(name, dist.Normal(0.0, 1.0)) for name in ("centre", "other"))
    loadings = numpyro.sample("loadings", dist.Normal(centre, 1.0).expand([3, 2]).to_event(2))
    scores = numpyro.sample("scores", dist.Normal(other, 1.0).expand([len(x), 3]).to_event(2))
    numpyro.sample("y", dist.Normal(scores @ loadings, 0.3).to_event(2), obs=x)


HIDDEN = Symmetry({"w1": (None, "h"), "b1": ("h",), "w2": ("h",)})
MODELS = {
    "network": (network, HIDDEN),
    "signed": (odd_network, Symmetry({"w1": (None, "h"), "w2": ("h", None)}, {"h": "signed"})),
    "two layers": (deep_network, Symmetry({"w1": (None, "a"), "b1": ("a",), "w2": ("a", "b"), "w3": ("b",)})),
    "positive": (with_scales, Symmetry({"slope": ("h",), "width": ("h",)})),
    "one sign": (
        factors_about_means,
        Symmetry(
            {
                "loadings": (Whole("sign"), "h", None),
                "scores": (Whole("sign"), None, "h"),
                "centre": (Whole("sign"),),
                "other": (Whole("sign"),),
            },
            {"sign": "signed"},
        ),
    ),
}
# of which one table is not the density: not all that a unit's sign changes is a part of it
WITHOUT_TABLES = {"one sign"}


def perturbed(guide, *args, scale=0.4):
    """Parameters away from the start, where units are not independent within."""
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        guide(*args)
    found = {name: site["value"] for name, site in trace.items() if site["type"] == "param"}
    keys = jax.random.split(jax.random.key(7), len(found))
    return {
        name: value * jnp.exp(scale * jax.random.normal(key, value.shape))
        if name.endswith("_scale")
        else value + scale * jax.random.normal(key, value.shape)
        for key, (name, value) in zip(keys, found.items(), strict=True)
    }


def traced(guide, params, *args, seed=3):
    with handlers.seed(rng_seed=seed), handlers.substitute(data=params):
        return handlers.trace(guide).get_trace(*args)


def latents(trace):
    return {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not n.startswith("_")}


def density(guide, params, values, *args):
    trace = traced(guide, params | values, *args)
    return sum(float(jnp.sum(trace[name]["fn"].log_prob(value))) for name, value in values.items())


def moments(params, sites, n):
    """Mean and covariance of every unit by dense algebra: sites are (name, axis) in the order of drawing."""
    by_unit = {
        kind: [np.moveaxis(np.asarray(params[f"{s}_auto_{kind}"], float), axis, -1).reshape(-1, n) for s, axis in sites]
        for kind in ("loc", "scale")
    }
    mean, scale = np.concatenate(by_unit["loc"]), np.concatenate(by_unit["scale"])
    coefficients = np.zeros((len(mean), len(mean), n))
    row = 0
    for site, _ in sites:
        block = np.asarray(params[f"{site}_auto_coefficients"], float)
        coefficients[row : row + len(block), : block.shape[1]] = block
        row += len(block)
    root = [
        np.linalg.solve(np.eye(len(mean)) - np.tril(coefficients[..., i], -1), np.diag(scale[:, i])) for i in range(n)
    ]
    return mean.T, [r @ r.T for r in root]


# ---- the guide alone -----------------------------------------------------------------------------------------------


def test_density_is_a_gaussian_for_every_unit():
    with jax.enable_x64(True):
        guide = AutoUnitNormal(network, HIDDEN)
        params = perturbed(guide, X, Y)
        values = latents(traced(guide, params, X, Y))
        mean, covariance = moments(params, [("w1", -1), ("b1", -1), ("w2", -1)], 3)
        units = np.concatenate([values["w1"], values["b1"][None], values["w2"][None]]).T
        expected = sum(multivariate_normal(m, c).logpdf(u) for m, c, u in zip(mean, covariance, units, strict=True))
        expected += norm(params["b2_auto_loc"], params["b2_auto_scale"]).logpdf(values["b2"])
        assert density(guide, params, values, X, Y) == pytest.approx(expected, rel=1e-10)
        assert abs(covariance[0][0, 1]) > 1e-3


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_parameters_in_half_precision_are_those_numbers(dtype):
    guide = AutoUnitNormal(network, HIDDEN)
    half = {name: value.astype(dtype) for name, value in perturbed(guide, X, Y).items()}
    single = {name: value.astype(jnp.float32) for name, value in half.items()}
    symmetrized = AutoSymmetrized(guide, HIDDEN).setup(jax.random.key(0), X, Y)
    draws, bounds = (
        [read(params) for params in (half, single)]
        for read in (
            lambda params: guide.sample_posterior(jax.random.key(0), params, X, Y, sample_shape=(3,)),
            lambda params: symmetrized.elbo_bounds(jax.random.key(0), params, X, Y, num_particles=3),
        )
    )
    for site, value in draws[1].items():
        np.testing.assert_array_equal(draws[0][site], value)
    for name in ("lower", "importance_weighted"):
        assert getattr(bounds[0], name) == pytest.approx(getattr(bounds[1], name), rel=1e-5)


def test_draws_have_the_moments_and_quantiles():
    guide = AutoUnitNormal(network, HIDDEN)
    params = perturbed(guide, X, Y)
    draws = guide.sample_posterior(jax.random.key(1), params, X, Y, sample_shape=(4000,))
    mean, covariance = moments(params, [("w1", -1), ("b1", -1), ("w2", -1)], 3)
    for unit in range(3):
        found = np.stack([*draws["w1"][:, :, unit].T, draws["b1"][:, unit], draws["w2"][:, unit]], 1)
        white = np.linalg.solve(np.linalg.cholesky(covariance[unit]), (found - mean[unit]).T)
        assert (abs(white.mean(1)) < 4.5 / math.sqrt(4000)).all()
        assert (abs(white @ white.T / 4000 - np.eye(4)) < 4.5 * math.sqrt(2.0 / 4000)).all()
    spread = np.sqrt(np.stack([np.diag(c) for c in covariance], 1))
    found = guide.quantiles(params, [0.1, 0.5])
    np.testing.assert_allclose(found["w1"][0], mean.T[:2] + norm.ppf(0.1) * spread[:2], rtol=1e-4)
    np.testing.assert_allclose(found["w2"][0], mean.T[3] + norm.ppf(0.1) * spread[3], rtol=1e-4)
    np.testing.assert_allclose(guide.median(params)["w1"], found["w1"][1], rtol=1e-5)
    ends = jax.tree.leaves(guide.quantiles(params, [0, 1]))
    assert all(np.isneginf(x[0]).all() and np.isposinf(x[1]).all() for x in ends)


def test_starts_as_auto_normal():
    start = numpyro.infer.init_to_median(num_samples=5)
    unit, normal = (
        kind(network, init_loc_fn=start, init_scale=0.2)
        for kind in (functools.partial(AutoUnitNormal, symmetry=HIDDEN), AutoNormal)
    )
    values = latents(traced(normal, {}, X, Y))
    with handlers.seed(rng_seed=3):
        unit(X, Y)
    assert density(unit, {}, values, X, Y) == pytest.approx(density(normal, {}, values, X, Y), rel=1e-5)


def test_trains_predicts_and_pickles():
    guide = AutoUnitNormal(with_scales, MODELS["positive"][1])
    svi = SVI(with_scales, guide, optax.adam(1e-2), TraceMeanField_ELBO())
    result = svi.run(jax.random.key(0), 200, X, Y, progress_bar=False)
    assert np.mean(result.losses[-20:]) < np.mean(result.losses[:20])
    assert np.abs(result.params["width_auto_coefficients"][0, 0]).min() > 0.0
    again = pickle.loads(pickle.dumps(guide))
    draws = [Predictive(g, params=result.params, num_samples=3)(jax.random.key(1), X) for g in (guide, again)]
    np.testing.assert_array_equal(*[d["width"] for d in draws])
    assert (draws[0]["width"] > 0.0).all()
    predictive = Predictive(with_scales, guide=guide, params=result.params, num_samples=3)
    assert predictive(jax.random.key(1), X[:5])["y"].shape == (3, 5)


@pytest.mark.parametrize("elbo", [TraceGraph_ELBO(), TraceEnum_ELBO()])
@pytest.mark.parametrize("rank", [None, 1])
def test_losses_with_score_functions_differentiate_its_draws(elbo, rank):
    """A score function in place of a draw's derivative has the same mean, and a hundred times the variance."""
    guide = AutoUnitNormal(network, HIDDEN, rank=rank)
    params = perturbed(guide, X, Y)

    def gradient(elbo):
        return jax.grad(lambda params: elbo.loss(jax.random.key(0), params, network, guide, X, Y))(params)

    found, known = gradient(elbo), gradient(Trace_ELBO())
    for name in params:
        np.testing.assert_allclose(found[name], known[name], rtol=1e-4, atol=1e-4)


# ---- symmetrized ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_information_is_that_of_the_whole_group(name):
    """Averaged over all elements by brute force in double precision, by densities read off the guide."""
    model, symmetry = MODELS[name]
    base = AutoUnitNormal(model, symmetry)
    guide = AutoSymmetrized(base, symmetry, estimator="exact")
    with jax.enable_x64(True):
        guide.setup(jax.random.key(0), X, Y)
        assert guide.layout.factorises == (name not in WITHOUT_TABLES)
        params = perturbed(base, X, Y, scale=0.7)
        trace = traced(guide, params, X, Y)
        information = float(trace["_symmetry_correction"]["fn"].log_factor)
        values = latents(trace)
        batch = guide.symmetry.elements()
        size = round(math.exp(guide.symmetry.log_order()))
        elements = [jax.tree.map(lambda part, k=k: part[k], batch) for k in range(size)]
        moved = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(guide.symmetry.apply(e, values) for e in elements))

        def log_density(values):
            with handlers.block():
                trace = traced(base, params | values, X, Y)
            return sum(jnp.sum(trace[name]["fn"].log_prob(value)) for name, value in values.items())

        densities = np.asarray(jax.jit(jax.vmap(log_density))(moved))
        expected = float(log_density(values)) - (logsumexp(densities) - math.log(size))
    assert -information == pytest.approx(expected, abs=1e-9)
    assert 1e-3 < expected < guide.symmetry.log_order() + 1e-9


@pytest.mark.slow
def test_the_bound_of_two_layers_is_no_higher_than_the_information():
    """The chain of two tables, on average over draws, against all elements."""
    model, symmetry = MODELS["two layers"]
    base = AutoUnitNormal(model, symmetry)
    exact, bound = (
        AutoSymmetrized(base, symmetry, estimator=e).setup(jax.random.key(0), X, Y) for e in ("exact", "sequential")
    )
    params = perturbed(base, X, Y, scale=0.7)

    def both(key):
        found = []
        for guide in (exact, bound):
            with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(data=params):
                found.append(-handlers.trace(guide).get_trace(X, Y)["_symmetry_correction"]["fn"].log_factor)
        return jnp.stack(found)

    found = np.asarray(jax.lax.map(both, jax.random.split(jax.random.key(2), 400)), float)
    gap = found[:, 0] - found[:, 1]
    assert gap.mean() > -3.0 * gap.std() / math.sqrt(len(gap))
    assert gap.mean() < 0.5 * found[:, 0].mean()


def factors_and_draw(n=5, ratio=1e-3, offset=100.0):
    """Units apart by ten of their standard deviations, all far from the origin."""
    rng = np.random.default_rng(0)
    sites = {"v": (n, 2), "w": (3, n)}
    loc = {s: offset + 10.0 * ratio * rng.normal(size=shape) for s, shape in sites.items()}
    scale = {s: ratio * np.exp(0.3 * rng.normal(size=shape)) for s, shape in sites.items()}
    coefficients = {"v": rng.normal(size=(2, 2, n)), "w": rng.normal(size=(3, 5, n))}
    draw = {s: loc[s] + scale[s] * rng.normal(size=shape) for s, shape in sites.items()}
    symmetry = Symmetry({"v": ("h", None), "w": (None, "h")}).bind(loc)
    return symmetry, loc, scale, coefficients, draw


def dense_table(loc, scale, coefficients, draw, n):
    params = {
        f"{s}_auto_{k}": d[s] for k, d in (("loc", loc), ("scale", scale), ("coefficients", coefficients)) for s in d
    }
    mean, covariance = moments(params, [("v", 0), ("w", -1)], n)
    units = np.concatenate([draw["v"].T, draw["w"]]).T
    return np.array(
        [
            [multivariate_normal(m, c, allow_singular=False).logpdf(u) for u in units]
            for m, c in zip(mean, covariance, strict=True)
        ]
    )


@pytest.mark.parametrize("x64", [True, False])
def test_tables_are_the_densities(x64):
    """In single precision the same numbers, rounded before, far from the origin: differences are all that is left."""
    symmetry, *arrays = factors_and_draw(ratio=1e-3 if x64 else 1.0)
    with jax.enable_x64(x64):
        dtype = np.float64 if x64 else np.float32
        loc, scale, coefficients, draw = ({s: x.astype(dtype) for s, x in given.items()} for given in arrays)
        (table,) = UnitGaussians(loc, scale, coefficients).tables(symmetry, draw, "h")
        double = ({s: x.astype(np.float64) for s, x in given.items()} for given in (loc, scale, coefficients, draw))
        loc64, scale64, coefficients64, draw64 = double
        expected = dense_table(loc64, scale64, coefficients64, draw64, 5)
        constant = -0.5 * 5 * math.log(2.0 * math.pi)
        np.testing.assert_allclose(table + constant, expected, rtol=1e-9 if x64 else 3e-5)


def test_the_second_table_of_signed_units_is_of_flipped_ones():
    """Flipped at the sites whose axis a sign flips, and there alone."""
    _, loc, scale, coefficients, draw = factors_and_draw(ratio=1.0, offset=0.0)
    symmetry = Symmetry({"v": (Unsigned("h"), None), "w": (None, "h")}, {"h": "signed"}).bind(loc)
    with jax.enable_x64(True):
        tables = UnitGaussians(loc, scale, coefficients).tables(symmetry, draw, "h")
        for table, sign in zip(tables, (1.0, -1.0), strict=True):
            expected = dense_table(loc, scale, coefficients, {"v": draw["v"], "w": sign * draw["w"]}, 5)
            np.testing.assert_allclose(table - 2.5 * math.log(2.0 * math.pi), expected, rtol=1e-9)


def test_table_and_slow_twin_agree():
    """The log ratio of a swap is four entries of the table."""
    symmetry, loc, scale, coefficients, draw = factors_and_draw(ratio=1.0, offset=0.0)
    with jax.enable_x64(True):
        factors = UnitGaussians(
            *({s: jnp.asarray(x) for s, x in given.items()} for given in (loc, scale, coefficients))
        )
        (table,) = factors.tables(symmetry, draw, "h")
        swapped = jnp.array([1, 0, 2, 3, 4])
        slow = log_ratio(symmetry, factors, draw, {"h": swapped})
        fast = table[jnp.arange(5), swapped].sum() - jnp.trace(table)
        assert float(slow) == pytest.approx(float(fast), rel=1e-10)


def test_gradients_are_those_of_the_dense_system():
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 2)
        coefficients, right = jax.random.normal(keys[0], (4, 4, 3)), jax.random.normal(keys[1], (2, 4, 3))

        def dense(coefficients, right):
            matrix = jnp.eye(4)[:, :, None] - jnp.tril(jnp.moveaxis(coefficients, -1, 0), -1).transpose(1, 2, 0)
            return jnp.linalg.solve(jnp.moveaxis(matrix, -1, 0)[None], jnp.moveaxis(right, -1, 1)[..., None])[
                ..., 0
            ].swapaxes(1, 2)

        def solved(coefficients, right):
            strict = jnp.where(jnp.tril(jnp.ones((4, 4), bool), -1)[:, :, None], coefficients, 0.0)
            return substitute_forward(strict, right)

        for function in (lambda f: f, lambda f: jax.grad(lambda *x: jnp.sin(f(*x)).sum(), argnums=(0, 1))):
            found, expected = (function(f)(coefficients, right) for f in (solved, dense))
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, expected)


def test_with_a_conditional_trains():
    """Output weights follow, and are no part of a unit; the table is that of what is left."""
    guide = AutoSymmetrized(AutoConditional(AutoUnitNormal(network, HIDDEN)), HIDDEN)
    svi = SVI(network, guide, optax.adam(1e-2), Trace_ELBO())
    result = svi.run(jax.random.key(0), 200, X, Y, progress_bar=False)
    assert guide.layout.factorises
    assert "w2" in guide.layout.following
    assert "w2_auto_loc" not in result.params
    assert result.params["b1_auto_coefficients"].shape == (1, 3, 3)
    assert np.isfinite(result.losses).all()
    assert np.mean(result.losses[-20:]) < np.mean(result.losses[:20])


def test_units_that_the_symmetry_does_not_move_whole_take_the_general_path():
    """Only the outer layer's labels are averaged: the units below are not its, and the table is not exact."""
    model, symmetry = MODELS["two layers"]
    upper = AutoSymmetrized(AutoUnitNormal(model, symmetry), symmetry.restrict(["b"]))
    assert upper.setup(jax.random.key(0), X, Y).layout.factorises
    lower = AutoSymmetrized(AutoUnitNormal(model, symmetry), symmetry.restrict(["a"]))
    assert not lower.setup(jax.random.key(0), X, Y).layout.factorises


# site -> which Gaussian's units its entries are parts of, and along which of its axes they lie
UNITS = {"w1": ("a", -1), "b1": ("a", -1), "w2": ("b", -1), "w3": ("b", -1)}
TWO_LAYERS = {"w1": (None, "a"), "b1": ("a",), "w2": ("a", "b"), "w3": ("b",)}
WHOLE = {
    "both layers": (Symmetry(TWO_LAYERS), {}, True),
    # of the units below nothing is relabelled
    "the upper layer": (Symmetry({"w2": (None, "b"), "w3": ("b",)}), {}, True),
    # a part of the units above is, along an axis that is not theirs
    "the lower layer": (Symmetry({"w1": (None, "a"), "b1": ("a",), "w2": ("a", None)}), {}, False),
    "a part that stays": (Symmetry({"w3": ("b",)}), {}, False),
    "the upper layer first": (Symmetry(dict(reversed(TWO_LAYERS.items()))), {}, False),
    "units along another axis": (Symmetry(TWO_LAYERS), {"w2": ("b", -2)}, False),
    "signs beside another group": (Symmetry(TWO_LAYERS, {"a": "signed"}), {}, False),
    "two Gaussians of one group": (Symmetry(TWO_LAYERS), {"b1": ("c", -1)}, False),
    "one Gaussian of two groups": (Symmetry(TWO_LAYERS), {"w1": ("b", -1), "b1": ("b", -1)}, False),
}


@pytest.mark.parametrize("name", WHOLE)
def test_tables_are_of_units_that_move_whole(name):
    symmetry, others, expected = WHOLE[name]
    shapes = {"w1": (2, 3), "b1": (3,), "w2": (3, 4), "w3": (4,)}
    bound = symmetry.bind({site: np.zeros(shapes[site]) for site in symmetry.axes})
    units = UNITS | others
    gaussians = {site: SimpleNamespace(axis=axis) for site, (_, axis) in units.items()}
    layout = SimpleNamespace(symmetry=bound, of_coordinates=bound)
    assert _moves_units_whole(gaussians, {site: name for site, (name, _) in units.items()}, layout) == expected


# ---- refusals ------------------------------------------------------------------------------------------------------


def without_symmetry(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, 1.0).to_event(1), obs=y)


def weights_alone(x, y=None):
    numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("y", dist.Normal(0.0, 1.0).expand([12]).to_event(1), obs=y)


REFUSED = {
    "no symmetry": (without_symmetry, None, "use AutoNormal"),
    "a simplex": (weights_alone, Symmetry({"share": ("h",)}), "'share'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    model, symmetry, match = REFUSED[name]
    with handlers.seed(rng_seed=0), pytest.raises(SymmetryError, match=match):
        AutoUnitNormal(model, symmetry)(X, Y)


def test_refuses_arguments():
    with pytest.raises(TypeError, match="Symmetry"):
        AutoUnitNormal(network, {"w1": (None, "h")})
    with pytest.raises(ValueError, match="positive"):
        AutoUnitNormal(network, init_scale=0.0)
    with pytest.raises(SymmetryError, match="outside"):
        jax.jit(lambda y: handlers.seed(AutoUnitNormal(network), 0)(X, y))(jnp.asarray(Y))


OF_A_FIT = {
    "sample_posterior": lambda guide, params: guide.sample_posterior(jax.random.key(0), params),
    "median": lambda guide, params: guide.median(params),
    "quantiles": lambda guide, params: guide.quantiles(params, [0.1, 0.9]),
}


@pytest.mark.parametrize("name", OF_A_FIT)
def test_refuses_parameters_that_are_not_its_own(name):
    """NumPyro would start those that it does not find anew, and draw from these."""
    read, guide = OF_A_FIT[name], AutoUnitNormal(*MODELS["positive"])
    with pytest.raises(SymmetryError, match="not set up"):
        read(guide, {})
    handlers.seed(guide, 0)(X, Y)
    params = {site: message["value"] for site, message in traced(guide, {}, X, Y).items() if message["type"] == "param"}
    for key in ("slope_auto_loc", "width_auto_scale", "width_auto_coefficients"):
        with pytest.raises(SymmetryError, match=rf"\['{key}'\] are missing"):
            read(guide, {site: value for site, value in params.items() if site != key})
        with pytest.raises(SymmetryError, match=f"'{key}' must have shape"):
            read(guide, params | {key: params[key][..., :1]})
        with pytest.raises(SymmetryError, match=f"'{key}'.*non-finite"):
            read(guide, params | {key: params[key] * jnp.nan})
    assert {"slope", "width"} <= read(guide, params).keys()


def test_quantiles_are_probabilities():
    guide = AutoUnitNormal(*MODELS["positive"])
    handlers.seed(guide, 0)(X, Y)
    with pytest.raises(ValueError, match=r"from 0 to 1; got \[0.1, 2.0\]"):
        guide.quantiles({}, [0.1, 2.0])


def test_a_scope_renames_the_sites_of_a_guide():
    guide = AutoUnitNormal(*MODELS["positive"])
    handlers.seed(guide, 0)(X, Y)  # is set up
    plain, scoped = (
        handlers.trace(handlers.seed(each, 0)).get_trace(X, Y) for each in (guide, handlers.scope(guide, "a"))
    )
    sites = {name: site for name, site in plain.items() if site["type"] in ("sample", "param")}
    assert sites
    for name, site in sites.items():
        np.testing.assert_array_equal(scoped[f"a/{name}"]["value"], site["value"])
