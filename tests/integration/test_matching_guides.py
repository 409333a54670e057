"""Gaussians read from NumPyro guides, matched, and written back."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO, init_to_mean
from numpyro.infer import autoguide as auto

from numpyro_symmetry import (
    AutoConditional,
    AutoSymmetrized,
    DiagonalGaussian,
    FullGaussian,
    Symmetry,
    SymmetryError,
    UnsupportedGuideError,
    inverse,
    match,
)

X = jnp.linspace(-1.0, 1.0, 12)[:, None]
Y = jnp.sin(2.0 * X[:, 0])
SYMMETRY = Symmetry({"w1": (None, "hidden"), "b1": ("hidden",), "w2": ("hidden",)})


def model(x, y=None):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([1, 4]).to_event(2))
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 0.5))
    numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1 + b1) @ w2, noise).to_event(1), obs=y)


def listed(model):
    guide = auto.AutoGuideList(model)
    guide.append(auto.AutoNormal(numpyro.handlers.block(model, hide=["noise"]), prefix="weights"))
    guide.append(auto.AutoDiagonalNormal(numpyro.handlers.block(model, expose=["noise"]), prefix="rest"))
    return guide


@functools.cache
def fitted(make):
    """A guide, and parameters at some distance from where it starts, the same for every test."""
    guide = make(model)
    svi = SVI(model, guide, optax.adam(0.05), Trace_ELBO())
    params, rng = svi.get_params(svi.init(jax.random.key(0), X, Y)), np.random.default_rng(0)
    moved = {name: value * np.exp(rng.normal(0.0, 0.5, value.shape)) for name, value in params.items()}
    # correlations are nought at the start
    moved |= {name: jnp.asarray(rng.normal(0.0, 0.3, moved[name].shape)) for name in moved if name == "auto_cov_factor"}
    return guide, moved


def with_local_sites(y):
    numpyro.sample("s", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("rows", 6, subsample_size=2):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(-1), 1.0), obs=numpyro.subsample(y, 0))


def test_sites_in_minibatches_and_guides_in_a_list_are_read_and_written_whole():
    guide = auto.AutoGuideList(with_local_sites)
    guide.append(auto.AutoNormal(numpyro.handlers.block(with_local_sites, hide=["s"]), prefix="rows"))
    guide.append(auto.AutoDelta(numpyro.handlers.block(with_local_sites, hide=["z"]), prefix="point"))
    with numpyro.handlers.seed(rng_seed=0):
        guide(jnp.ones(6))
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=(6, 3)), rng.gamma(2.0, size=(6, 3))
    params = {"z_rows_loc": loc, "z_rows_scale": scale, "s_point_loc": np.array(2.5)}
    gaussian = DiagonalGaussian.from_guide(guide, params)
    np.testing.assert_allclose(gaussian.loc["z"], loc, rtol=1e-6)
    np.testing.assert_allclose(gaussian.scale["z"], scale, rtol=1e-6)
    assert (float(gaussian.loc["s"]), float(gaussian.scale["s"])) == (pytest.approx(np.log(2.5)), 0.0)
    written = gaussian.to_guide_params(guide)
    assert written.keys() == params.keys()
    for name, value in params.items():
        np.testing.assert_allclose(written[name], value, rtol=1e-6)


@pytest.mark.parametrize("make", [auto.AutoNormal, auto.AutoDiagonalNormal, listed])
def test_a_mean_field_guide_is_read_and_written(make):
    guide, params = fitted(make)
    q = DiagonalGaussian.from_guide(guide, params)
    again = q.to_guide_params(guide)
    assert set(again) == set(params)
    for name, value in params.items():
        np.testing.assert_allclose(again[name], value, rtol=1e-6)
    draws = guide.sample_posterior(jax.random.key(1), params, sample_shape=(4000,))
    draws["noise"] = jnp.log(draws["noise"])  # the unconstrained coordinate
    for site, value in draws.items():
        error = np.asarray(q.scale[site]) / 4000**0.5
        assert (np.abs(np.asarray(value.mean(0) - q.loc[site])) < 5 * error).all()


def test_a_symmetrized_guide_is_read_as_its_base():
    base, params = fitted(auto.AutoNormal)
    guide = AutoSymmetrized(auto.AutoNormal(model), SYMMETRY, check=False).setup(jax.random.key(0), X, Y)
    q, of_base = (DiagonalGaussian.from_guide(one, params) for one in (guide, base))
    assert set(q.loc) == {"w1", "b1", "w2", "noise"}
    jax.tree.map(np.testing.assert_array_equal, q, of_base)


def test_point_estimates_have_no_width():
    guide, params = fitted(auto.AutoDelta)
    q = DiagonalGaussian.from_guide(guide, params)
    assert all(not np.asarray(scale).any() for scale in q.scale.values())
    assert set(q.to_guide_params(guide)) == set(params)
    few = DiagonalGaussian({"b1": q.loc["b1"]}, {"b1": q.scale["b1"]})
    with pytest.raises(UnsupportedGuideError, match=r"sites \['noise', 'w1', 'w2'\], which are not among.*\['b1'\]"):
        few.to_guide_params(guide)


@pytest.mark.parametrize("make", [auto.AutoNormal, auto.AutoDiagonalNormal, auto.AutoMultivariateNormal])
def test_a_relabelled_guide_is_brought_back(make):
    guide, params = fitted(make)
    kind = FullGaussian if make is auto.AutoMultivariateNormal else DiagonalGaussian
    q = kind.from_guide(guide, params)
    bound = SYMMETRY.bind(q.loc)
    g = {"hidden": jnp.array([2, 0, 3, 1])}
    found = match((guide, params), q.apply(bound, g), SYMMETRY)
    assert found.element["hidden"].tolist() == inverse(g)["hidden"].tolist()
    assert found.objective == pytest.approx(0.0, abs=1e-4)
    assert found.objective_before < -0.01


def test_a_full_guide_is_read():
    guide, params = fitted(auto.AutoLowRankMultivariateNormal)
    # so wide that correlations stand out from the errors
    params = params | {"auto_scale": jnp.ones_like(params["auto_scale"])}
    q = FullGaussian.from_guide(guide, params)
    draws = guide.get_posterior(params).sample(jax.random.key(0), (20_000,))
    np.testing.assert_allclose(np.cov(np.asarray(draws), rowvar=False), q.covariance, atol=0.06)
    assert list(q.diagonal().loc) == list(q.loc)


def test_a_matched_guide_predicts_as_before():
    guide, params = fitted(auto.AutoNormal)
    rng = np.random.default_rng(0)
    other = {
        name: jnp.asarray(rng.normal(size=value.shape), value.dtype) if name.endswith("_loc") else value
        for name, value in params.items()
    }
    q = DiagonalGaussian.from_guide(guide, other)
    found = match((guide, params), (guide, other), SYMMETRY)
    moved = q.apply(SYMMETRY.bind(q.loc), found.element).to_guide_params(guide)
    assert found.element["hidden"].tolist() != [0, 1, 2, 3]
    loss_of = jax.jit(lambda p: Trace_ELBO(4000).loss(jax.random.key(0), p, model, guide, X, Y))
    loss = [float(loss_of(p)) for p in (other, moved)]
    assert loss[0] == pytest.approx(loss[1], rel=0.05)


def test_refusals():
    guide, params = fitted(auto.AutoMultivariateNormal)
    with pytest.raises(UnsupportedGuideError, match="not mean-field"):
        DiagonalGaussian.from_guide(guide, params)
    guide, params = fitted(auto.AutoNormal)
    with pytest.raises(UnsupportedGuideError, match="no joint covariance"):
        FullGaussian.from_guide(guide, params)
    with pytest.raises(UnsupportedGuideError, match="is not an autoguide"):
        DiagonalGaussian.from_guide(model, params)
    with pytest.raises(UnsupportedGuideError, match="not been set up"):
        DiagonalGaussian.from_guide(auto.AutoNormal(model), params)

    def weights():
        numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))

    guide = auto.AutoNormal(weights)
    svi = SVI(weights, guide, optax.adam(0.1), Trace_ELBO())
    with pytest.raises(UnsupportedGuideError, match="Site 'p' has support"):
        DiagonalGaussian.from_guide(guide, svi.get_params(svi.init(jax.random.key(0))))


@pytest.mark.parametrize(
    "make", [auto.AutoMultivariateNormal, auto.AutoLowRankMultivariateNormal, auto.AutoLaplaceApproximation]
)
def test_a_guide_with_correlations_says_how_they_are_left_out(make):
    guide = make(positive)
    svi = SVI(positive, guide, optax.adam(1e-2), Trace_ELBO())
    params = svi.get_params(svi.init(jax.random.key(0), jnp.ones(2)))
    with pytest.raises(UnsupportedGuideError, match=r"FullGaussian\.from_guide\(guide, params\)\.diagonal\(\)"):
        DiagonalGaussian.from_guide(guide, params)
    found = FullGaussian.from_guide(guide, params).diagonal()
    covariance = guide.get_posterior(params).covariance_matrix
    np.testing.assert_allclose(found.scale["sd"], np.sqrt(np.diag(covariance)), rtol=1e-6)


def test_a_conditional_is_no_gaussian_of_the_sites_that_others_follow():
    symmetrized = AutoSymmetrized(AutoConditional(auto.AutoNormal(model)), SYMMETRY, check=False)
    svi = SVI(model, symmetrized, optax.adam(0.05), Trace_ELBO())
    params = svi.get_params(svi.init(jax.random.key(0), X, Y))
    for guide in (symmetrized, symmetrized.base):
        for read in (DiagonalGaussian.from_guide, FullGaussian.from_guide):
            with pytest.raises(
                UnsupportedGuideError, match=r"is no Gaussian: \['w2'\] follow its other sites.*sample_posterior"
            ):
                read(guide, params)
        with pytest.raises(UnsupportedGuideError, match="AutoConditional is no Gaussian"):
            match((guide, params), (guide, params), SYMMETRY)
        for asked, of_draws in (("median", guide.median), ("quantile", lambda p, of=guide: of.quantiles(p, [0.5]))):
            with pytest.raises(UnsupportedGuideError, match=f"AutoConditional has no {asked}s .* sample_posterior"):
                of_draws(params)
        draws = guide.sample_posterior(jax.random.key(1), params, X, Y, sample_shape=(100,))
        assert set(DiagonalGaussian.fit(draws).loc) == {"w1", "b1", "w2", "noise"}


def test_a_guide_with_attributes_of_its_own_is_read_as_the_mean_field_guide_that_it_is():
    class Own(auto.AutoNormal):
        source, symmetry = "a paper", "none"

    _, params = fitted(auto.AutoNormal)
    guide = Own(model)
    SVI(model, guide, optax.adam(0.05), Trace_ELBO()).init(jax.random.key(0), X, Y)
    assert set(DiagonalGaussian.from_guide(guide, params).loc) == {"w1", "b1", "w2", "noise"}


def test_a_laplace_approximation_is_matched_as_the_gaussian_that_it_is():
    def apart():
        numpyro.sample("z", dist.Normal(jnp.arange(3.0), jnp.array([0.5, 1.0, 2.0])).to_event(1))

    guide, symmetry = auto.AutoLaplaceApproximation(apart, init_loc_fn=init_to_mean), Symmetry({"z": ("unit",)})
    svi = SVI(apart, guide, optax.adam(0.05), Trace_ELBO())
    params, element = svi.get_params(svi.init(jax.random.key(0))), {"unit": jnp.array([2, 0, 1])}
    q = FullGaussian({"z": np.arange(3.0)}, np.diag([0.25, 1.0, 4.0]))
    found = match((guide, params), q.apply(symmetry, element), symmetry)
    assert found.element["unit"].tolist() == inverse(element)["unit"].tolist()
    assert found.objective == pytest.approx(0.0, abs=1e-5)
    for strange, told in (
        ({"w": params["auto_loc"]}, "a parameter 'auto_loc'"),
        ({"auto_loc": jnp.ones(4)}, "has shape"),
    ):
        with pytest.raises(UnsupportedGuideError, match=told):
            FullGaussian.from_guide(guide, strange)


def positive(y=None):
    sd = numpyro.sample("sd", dist.LogNormal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(0.0, sd).to_event(1), obs=y)


def test_guides_and_values_of_other_coordinates_are_not_mixed():
    guide, point = auto.AutoNormal(positive), auto.AutoDelta(positive)
    for one in (guide, point):
        SVI(positive, one, optax.adam(1e-2), Trace_ELBO()).init(jax.random.key(0), jnp.ones(2))
    params = {"sd_auto_loc": jnp.array([-3.0, -1.0]), "sd_auto_scale": jnp.array([1.0, 0.1])}
    median = jnp.exp(params["sd_auto_loc"])
    symmetry = Symmetry({"sd": ("k",)})
    with pytest.raises(SymmetryError, match="'sd' has support"):
        match((guide, params), {"sd": median}, symmetry, cost="log_density")
    # a point guide's parameters are constrained, and are read in the same coordinates as the other guide's
    found = match((guide, params), (point, {"sd_auto_loc": median}), symmetry, cost="log_density")
    assert found.element["k"].tolist() == [0, 1]
    q = DiagonalGaussian.from_guide(point, {"sd_auto_loc": median})
    np.testing.assert_allclose(q.loc["sd"], params["sd_auto_loc"], rtol=1e-5)
    np.testing.assert_allclose(q.to_guide_params(point)["sd_auto_loc"], median, rtol=1e-5)
    with pytest.raises(UnsupportedGuideError, match="no room"):
        DiagonalGaussian.from_guide(guide, params).to_guide_params(point)


@pytest.mark.parametrize("make", [auto.AutoMultivariateNormal, auto.AutoLowRankMultivariateNormal])
def test_parameters_are_not_written_to_guides_of_another_kind(make):
    guide = make(positive)
    SVI(positive, guide, optax.adam(1e-2), Trace_ELBO()).init(jax.random.key(0), jnp.ones(2))
    q = DiagonalGaussian({"sd": jnp.zeros(2)}, {"sd": jnp.ones(2)})
    with pytest.raises(UnsupportedGuideError, match="not mean-field"):
        q.to_guide_params(guide)
