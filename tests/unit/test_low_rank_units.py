"""Units whose covariance is diagonal plus low rank: against SciPy, a dense twin, and brute force over the group."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from numpyro_symmetry import AutoSymmetrized, AutoUnitNormal, Symmetry
from numpyro_symmetry.entropy import UnitGaussians
from numpyro_symmetry.entropy.factorised import log_ratio
from numpyro_symmetry.linalg import factor_side_by_side, solve_side_by_side

X = np.random.default_rng(0).normal(size=(12, 2))
Y = X @ [1.0, -2.0]
HIDDEN = Symmetry({"w1": (None, "h"), "b1": ("h",), "w2": ("h",)})
SIGNED = Symmetry({"w1": (None, "h"), "w2": ("h", None)}, {"h": "signed"})


def network(x, y=None):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    with numpyro.plate("units", 3):
        b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    b2 = numpyro.sample("b2", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(jax.nn.relu(x @ w1 + b1) @ w2 + b2, 0.3).to_event(1), obs=y)


def odd_network(x, y=None):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
    numpyro.sample("y", dist.Normal((jnp.tanh(x @ w1) @ w2).sum(-1), 0.3).to_event(1), obs=y)


def perturbed(guide, scale=0.6):
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        guide(X, Y)
    rng = np.random.default_rng(7)
    return {
        name: site["value"] * np.exp(scale * rng.normal(size=site["value"].shape))
        if name.endswith("_scale")
        else site["value"] + scale * rng.normal(size=site["value"].shape)
        for name, site in trace.items()
        if site["type"] == "param"
    }


def traced(guide, params):
    with handlers.seed(rng_seed=3), handlers.substitute(data=params):
        return handlers.trace(guide).get_trace(X, Y)


def dense(params, sites, n=3):
    """Mean and covariance of every unit: sites are (name, axis)."""
    rows = {
        kind: np.concatenate(
            [np.moveaxis(np.asarray(params[f"{s}_auto_{kind}"]), axis, -1).reshape(-1, n) for s, axis in sites]
        )
        for kind in ("loc", "scale")
    }
    factor = np.concatenate([params[f"{s}_auto_factor"] for s, _ in sites])
    low = rows["scale"][:, None] * factor
    return rows["loc"].T, [np.diag(rows["scale"][:, i] ** 2) + low[..., i] @ low[..., i].T for i in range(n)]


def test_density_draws_and_quantiles_are_those_of_the_covariance():
    sites = [("w1", -1), ("b1", -1), ("w2", -1)]
    with jax.enable_x64(True):

        @jax.jit
        def at(key):
            guide = AutoUnitNormal(network, HIDDEN, rank=2)
            params = perturbed(guide)
            trace = traced(guide, params)
            found = sum(jnp.sum(trace[s]["fn"].log_prob(trace[s]["value"])) for s, _ in sites)
            draws = guide.sample_posterior(key, params, X, Y, sample_shape=(4000,))
            spread = guide.quantiles(params, 0.5 * (1.0 + math.erf(1.0 / math.sqrt(2.0))))
            return params, {site: trace[site]["value"] for site, _ in sites}, found, draws, spread

        params, values, found, draws, spread = jax.tree.map(np.asarray, at(jax.random.key(1)))
        mean, covariance = dense(params, sites)
        units = np.concatenate([np.reshape(values[site], (-1, 3)) for site, _ in sites]).T
        expected = sum(multivariate_normal(m, c).logpdf(u) for m, c, u in zip(mean, covariance, units, strict=True))
        assert found == pytest.approx(expected, abs=1e-9)
    drawn = np.concatenate([np.reshape(draws[site], (4000, -1, 3)) for site, _ in sites], 1)
    for unit in range(3):
        white = np.linalg.solve(np.linalg.cholesky(covariance[unit]), (drawn[:, :, unit] - mean[unit]).T)
        assert (abs(white.mean(1)) < 4.5 / math.sqrt(4000)).all()
        assert (abs(white @ white.T / 4000 - np.eye(4)) < 4.5 * math.sqrt(2.0 / 4000)).all()
        np.testing.assert_allclose(spread["b1"][unit] - mean[unit, 2], math.sqrt(covariance[unit][2, 2]), rtol=1e-9)


@pytest.mark.parametrize(("model", "symmetry"), [(network, HIDDEN), (odd_network, SIGNED)])
def test_information_is_that_of_the_whole_group(model, symmetry):
    with jax.enable_x64(True):
        base = AutoUnitNormal(model, symmetry, rank=2)
        guide = AutoSymmetrized(base, symmetry, estimator="exact").setup(jax.random.key(0), X, Y)
        assert guide.layout.factorises
        params = perturbed(base)
        trace = traced(guide, params)
        values = {name: s["value"] for name, s in trace.items() if s["type"] == "sample" and name[0] != "_"}
        moved = jax.vmap(lambda g: guide.symmetry.apply(g, values))(guide.symmetry.elements())

        def log_density(values):
            with handlers.block():
                at = traced(base, params | values)
            return sum(jnp.sum(at[name]["fn"].log_prob(value)) for name, value in values.items())

        densities = np.asarray(jax.jit(jax.vmap(log_density))(values | moved))
        information = -float(trace["_symmetry_correction"]["fn"].log_factor)
    assert information == pytest.approx(densities[0] - logsumexp(densities) + math.log(len(densities)), abs=1e-9)
    assert 1e-3 < information


@pytest.mark.parametrize("rank", [None, 2])
def test_the_mean_of_a_site_is_that_of_its_draws_given_the_sites_before(rank):
    with jax.enable_x64(True):
        guide = AutoUnitNormal(network, HIDDEN, rank=rank)
        trace = traced(guide, perturbed(guide))
        for site in ("w1", "b1", "w2"):
            fn = trace[site]["fn"]
            draws = np.asarray(fn.sample(jax.random.key(5), (4000,)))
            error = draws.std(0) / math.sqrt(len(draws))
            assert fn.mean.shape == trace[site]["value"].shape
            assert (abs(draws.mean(0) - fn.mean) < 4.5 * error).all(), site
        assert (abs(fn.mean - fn.loc) > 0.01).any()  # of the last site the others do say something


def arrays(n=5, numbers=(7, 30), rank=3, offset=0.0, ratio=1.0):
    rng = np.random.default_rng(0)
    shapes = {"v": (n, numbers[0]), "w": (numbers[1], n)}
    loc = {s: offset + 2.0 * ratio * rng.normal(size=shape) for s, shape in shapes.items()}
    scale = {s: ratio * np.exp(0.3 * rng.normal(size=shape)) for s, shape in shapes.items()}
    factor = {s: rng.normal(size=(d, rank, n)) for s, d in zip(shapes, numbers, strict=True)}
    draw = {s: loc[s] + scale[s] * rng.normal(size=shape) for s, shape in shapes.items()}
    return Symmetry({"v": ("h", None), "w": (None, "h")}).bind(loc), loc, scale, factor, draw


def tables_of(symmetry, loc, scale, factor, draw, **options):
    return UnitGaussians(loc, scale, {}, factor).tables(symmetry, draw, "h", **options)


def dense_table(loc, scale, factor, draw):
    params = {f"{s}_auto_{k}": d[s] for k, d in (("loc", loc), ("scale", scale), ("factor", factor)) for s in d}
    mean, covariance = dense(params, [("v", 0), ("w", -1)], 5)
    units = np.concatenate([draw["v"].T, draw["w"]]).T
    return np.array(
        [[multivariate_normal(m, c).logpdf(u) for u in units] for m, c in zip(mean, covariance, strict=True)]
    )


@pytest.mark.parametrize("x64", [True, False])
def test_tables_are_the_densities(x64):
    """In single precision the same numbers, rounded before, far from the origin."""
    symmetry, *given = arrays(offset=100.0, ratio=1e-3 if x64 else 1.0)
    with jax.enable_x64(x64):
        given = [{s: x.astype(np.float64 if x64 else np.float32) for s, x in each.items()} for each in given]
        (table,) = jax.jit(lambda *given: tables_of(symmetry, *given))(*given)
        expected = dense_table(*({s: x.astype(np.float64) for s, x in each.items()} for each in given))
        np.testing.assert_allclose(table - 18.5 * math.log(2.0 * math.pi), expected, rtol=1e-9 if x64 else 3e-5)


def test_of_some_features_the_table_is_that_of_their_marginal():
    symmetry, loc, scale, factor, draw = arrays()
    with jax.enable_x64(True):
        both = jax.jit(lambda *given: [tables_of(symmetry, *given, max_features=most) for most in (37, 1)])
        (table,), (some,) = both(loc, scale, factor, draw)
    whole = dense_table(loc, scale, factor, draw)
    np.testing.assert_allclose(table - table[0, 0], whole - whole[0, 0], rtol=1e-9)
    rows = np.concatenate([draw["v"].T, draw["w"]])
    means, scales = (np.concatenate([by["v"].T, by["w"]]) for by in (loc, scale))
    wider = scales * np.sqrt(1.0 + (np.concatenate([factor["v"], factor["w"]]) ** 2).sum(1))
    noise = (rows[:, None] - means[:, :, None]) / wider[:, :, None]
    one = -0.5 * noise**2 - np.log(wider)[:, :, None]
    assert min(np.abs(np.asarray(some) - each).max() for each in one) < 1e-9


def test_table_and_slow_twin_agree_and_so_do_gradients():
    """The log ratio of a swap is four entries of the table; the common part is held in gradients, rightly."""
    symmetry, loc, scale, factor, draw = arrays()
    with jax.enable_x64(True):
        given = jax.tree.map(jnp.asarray, (loc, scale, factor, draw))
        swapped = jnp.array([1, 0, 2, 3, 4])

        def fast(loc, scale, factor, draw):
            (table,) = UnitGaussians(loc, scale, {}, factor).tables(symmetry, draw, "h")
            return table[jnp.arange(5), swapped].sum() - jnp.trace(table)

        def slow(loc, scale, factor, draw):
            return log_ratio(symmetry, UnitGaussians(loc, scale, {}, factor), draw, {"h": swapped})

        def by_solving(loc, scale, factor, draw):
            rows = [jnp.concatenate([by["v"].T, by["w"]]) for by in (loc, scale, draw)]
            low = rows[1][:, None] * jnp.concatenate([factor["v"], factor["w"]])
            covariance = jax.vmap(lambda s, v: jnp.diag(s**2) + v @ v.T, (1, 2))(rows[1], low)

            def log_density(mean, covariance, unit):
                deviation = unit - mean
                quadratic = deviation @ jnp.linalg.solve(covariance, deviation)
                return -0.5 * (quadratic + jnp.linalg.slogdet(covariance)[1])

            of = jax.vmap(log_density)
            return of(rows[0].T, covariance, rows[2].T[swapped]).sum() - of(rows[0].T, covariance, rows[2].T).sum()

        each = [jax.value_and_grad(f, argnums=(0, 1, 2, 3)) for f in (fast, slow, by_solving)]
        values, gradients = zip(*jax.jit(lambda *given: [f(*given) for f in each])(*given), strict=True)
        np.testing.assert_allclose(values[:2], values[2], rtol=1e-10)
        for found in gradients[:2]:
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8), found, gradients[2])


def test_small_systems_side_by_side():
    with jax.enable_x64(True):
        roots = np.random.default_rng(0).normal(size=(6, 4, 4))
        matrices = roots @ roots.swapaxes(1, 2) + np.eye(4)
        right = np.random.default_rng(1).normal(size=(2, 4, 6))
        lower = jax.jit(factor_side_by_side)(jnp.moveaxis(jnp.asarray(matrices), 0, -1))
        solve = jax.jit(solve_side_by_side, static_argnames="transposed")
        np.testing.assert_allclose(np.moveaxis(lower, -1, 0), np.linalg.cholesky(matrices), rtol=1e-12, atol=1e-14)
        for transposed in (False, True):
            found = solve(lower, jnp.asarray(right), transposed=transposed)
            factors = np.linalg.cholesky(matrices)
            factors = factors.swapaxes(1, 2) if transposed else factors
            expected = np.linalg.solve(factors[None], np.moveaxis(right, -1, 1)[..., None])[..., 0]
            np.testing.assert_allclose(np.moveaxis(found, -1, 1), expected, rtol=1e-10)


def wide_inputs(x, y=None):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([300, 3]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.tanh(w1.sum(0)) @ w2, 1.0).expand([12]).to_event(1), obs=y)


WIDE = Symmetry({"w1": (None, "h"), "w2": ("h",)})


def test_large_units_are_of_low_rank():
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        AutoUnitNormal(wide_inputs, WIDE)(X, Y)
    factor = np.asarray(trace["w1_auto_factor"]["value"])
    assert factor.shape == (300, 8, 3)
    # what units have in common is small to begin with, beside a standard deviation of one
    assert np.sqrt(8.0) * factor.std() == pytest.approx(0.1, rel=0.1)


@pytest.mark.slow
def test_gradients_of_large_units_are_finite():
    guide = AutoSymmetrized(AutoUnitNormal(wide_inputs, WIDE), WIDE, estimator="sequential")
    guide.setup(jax.random.key(0), X, Y)
    assert guide.layout.factorises
    params = perturbed(guide.base, scale=0.1)

    def correction(params):
        with handlers.block():
            return traced(guide, params)["_symmetry_correction"]["fn"].log_factor

    value, gradient = jax.jit(jax.value_and_grad(correction))(params)
    assert -math.log(6) - 1e-4 <= value
    assert all(np.isfinite(leaf).all() for leaf in gradient.values())


@pytest.mark.parametrize("rank", ["low", 0, 1.5])
def test_refuses_ranks(rank):
    with pytest.raises((TypeError, ValueError), match="rank"):
        AutoUnitNormal(network, rank=rank)
