"""Gaussians handed over as they are: against enumeration, known evidences and draws of the prior; what is refused."""

import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoLaplaceApproximation
from numpyro.infer.util import log_density
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from numpyro_symmetry import (
    AutoSymmetrized,
    DiagonalGaussian,
    FullGaussian,
    Symmetry,
    SymmetryError,
    log_evidence,
    testing,
)
from numpyro_symmetry.guides import UnitGaussian

# single precision, which is the same data in programs of either: double would be taken for what one traced before holds
X = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=5).astype(np.float32)
HIDDEN = Symmetry({"w1": (None, "h"), "b1": ("h",), "w2": ("h",)})
SHAPES = {"b1": (3,), "w1": (2, 3), "w2": (3,), "b2": ()}


def network(x, y=None, activation=jax.nn.relu):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    b2 = numpyro.sample("b2", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(activation(x @ w1 + b1) @ w2 + b2, 0.5).to_event(1), obs=y)


def positive(y=None):
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    width = numpyro.sample("width", dist.LogNormal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal((z * width).sum(), 1.0), obs=y)


def means(seed=2, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    return {site: 0.5 * rng.normal(size=shape) for site, shape in shapes.items()}


def covariances(seed, n, d):
    roots = np.random.default_rng(seed).normal(size=(n, d, d)) + 1.5 * np.eye(d)
    return 0.2 * roots @ roots.swapaxes(1, 2)


def diagonal():
    return DiagonalGaussian(means(), {site: 0.3 + np.abs(value) for site, value in means(3).items()})


def by_unit():
    return UnitGaussian(means(), {"h": covariances(4, 3, 4)}, {"b2": np.array(0.7)})


def joint(kind):
    """Mean by site and covariance over sites in their order, by dense algebra."""
    loc = means()
    if kind == "diagonal":
        return loc, np.diag(np.concatenate([np.ravel(diagonal().scale[site]) ** 2 for site in loc]))
    if kind == "full":
        return loc, covariances(5, 1, 13)[0]
    covariance = np.zeros((13, 13))
    # b1, w1, w2, b2
    for unit, block in enumerate(by_unit().covariance["h"]):
        index = [unit, 3 + unit, 6 + unit, 9 + unit]
        covariance[np.ix_(index, index)] = block
    covariance[12, 12] = 0.49
    return loc, covariance


KINDS = {
    "diagonal": (diagonal, "diagonal", True),
    "diagonal, as a matrix": (lambda: FullGaussian(*joint("diagonal")), "diagonal", True),
    "by unit": (by_unit, "by unit", True),
    "by unit, as a matrix": (lambda: FullGaussian(*joint("by unit")), "by unit", True),
    "full": (lambda: FullGaussian(*joint("full")), "full", False),
}


@pytest.mark.parametrize("name", KINDS)
def test_density_is_that_of_the_gaussian_and_of_all_its_copies(name):
    make, kind, is_exact = KINDS[name]
    loc, covariance = joint(kind)
    mean = np.concatenate([np.ravel(value) for value in loc.values()])
    with jax.enable_x64(True):
        guide = AutoSymmetrized.of_gaussian(network, make(), HIDDEN, estimator="exact")
        guide.setup(jax.random.key(0), X, Y)
        assert guide.layout.factorises == is_exact

        @jax.jit
        def at(key, elements):
            with handlers.seed(rng_seed=key):
                trace = handlers.trace(guide).get_trace(X, Y)
            values = {site: trace[site]["value"] for site in SHAPES}
            of_sites = sum(
                jnp.sum(s["fn"].log_prob(s["value"]))
                for name, s in trace.items()
                if s["type"] == "sample" and name != "_symmetry_correction"
            )
            moved = jax.vmap(lambda g: guide.symmetry.apply(g, values))(elements)
            return of_sites, moved, -trace["_symmetry_correction"]["fn"].log_factor

        of_sites, moved, information = jax.tree.map(np.asarray, at(jax.random.key(3), guide.symmetry.elements()))
    of_all = multivariate_normal(mean, covariance).logpdf(
        np.concatenate([np.reshape(moved[site], (6, -1)) for site in loc], 1)
    )
    assert float(of_sites) == pytest.approx(of_all[0], abs=1e-9)
    assert float(information) == pytest.approx(of_all[0] - logsumexp(of_all) + math.log(6), abs=1e-9)
    assert information > 1e-3


def linear(y):
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)


def test_the_exact_posterior_has_the_evidence():
    """Its own average: nothing is added, and the bound is the evidence in closed form."""
    covariance = np.linalg.inv(np.eye(3) + np.ones((3, 3)))
    gaussian = FullGaussian({"z": covariance @ np.full(3, 1.3)}, covariance)
    with jax.enable_x64(True):
        guide = AutoSymmetrized.of_gaussian(linear, gaussian)
        bounds = guide.elbo_bounds(jax.random.key(0), {}, jnp.array(1.3), num_particles=32, progress_bar=False)
        laplace = log_evidence((guide, {}), model_args=(jnp.array(1.3),), method="laplace")
    truth = norm(0.0, 2.0).logpdf(1.3)
    for found in (bounds.lower, bounds.upper, bounds.importance_weighted, laplace.value):
        assert found == pytest.approx(truth, abs=1e-9)
    assert bounds.mutual_information == pytest.approx((0.0, 0.0), abs=1e-9)


def test_data_may_come_by_name():
    gaussian, x = diagonal(), jnp.ones((4, 2))
    guide = AutoSymmetrized.of_gaussian(network, gaussian)
    by_name = guide.elbo_bounds(jax.random.key(0), {}, x=x, y=jnp.ones(4), num_particles=4, progress_bar=False)
    guide = AutoSymmetrized.of_gaussian(network, gaussian)
    assert by_name == guide.elbo_bounds(jax.random.key(0), {}, x, jnp.ones(4), num_particles=4, progress_bar=False)


def test_one_placement_of_exchangeable_units_has_the_evidence_of_all():
    posterior = testing.exchangeable_gaussian(num_units=3, separation=0.5, log_evidence=-3.0)
    (centres,) = posterior.model_args
    gaussian = DiagonalGaussian({"units": centres}, {"units": np.full((3, 2), 0.3)})
    guide = AutoSymmetrized.of_gaussian(posterior.model, gaussian, posterior.symmetry)
    bounds = guide.elbo_bounds(jax.random.key(0), {}, centres, progress_bar=False)
    assert bounds.lower == pytest.approx(-3.0, abs=1e-3)
    assert 0.1 < bounds.mutual_information[0] < math.log(6) - 0.1


def smooth_network(x, y=None):
    network(x, y, jnp.tanh)


def log_evidence_by_prior(num_draws=400_000):
    """Long importance sampling from the prior in NumPy, and its standard error."""
    rng = np.random.default_rng(0)
    w1, b1, w2, b2 = (rng.normal(size=(num_draws, *shape)) for shape in ((2, 3), (3,), (3,), ()))
    mean = (np.tanh(X @ w1 + b1[:, None]) * w2[:, None]).sum(-1) + b2[:, None]
    log_likelihood = norm(mean, 0.5).logpdf(Y).sum(1)
    weights = np.exp(log_likelihood - log_likelihood.max())
    error = weights.std() / weights.mean() / math.sqrt(num_draws)
    return float(logsumexp(log_likelihood) - math.log(num_draws)), float(error)


@pytest.mark.slow
def test_laplace_of_a_network_is_bounded_and_plain_laplace_is_not():
    start = init_to_value(values={site: jnp.asarray(value) for site, value in means(6).items()})
    laplace = AutoLaplaceApproximation(smooth_network, init_loc_fn=start)
    result = SVI(smooth_network, laplace, optax.adam(3e-2), Trace_ELBO()).run(
        jax.random.key(0), 1000, X, Y, progress_bar=False
    )
    gaussian = FullGaussian.from_guide(laplace, result.params)
    guide = AutoSymmetrized.of_gaussian(smooth_network, gaussian, HIDDEN)
    bounds = guide.elbo_bounds(jax.random.key(1), {}, X, Y, num_particles=512, progress_bar=False)
    truth, error = log_evidence_by_prior()
    assert error < 0.05
    assert bounds.lower < truth + 3.0 * math.hypot(error, bounds.lower_error)
    assert bounds.importance_weighted < truth + 3.0 * math.hypot(error, bounds.importance_weighted_error)
    assert bounds.lower == pytest.approx(bounds.base_elbo + bounds.mutual_information[0], abs=1e-3)
    found = log_evidence((guide, {}), model_args=(X, Y), method="laplace")
    mean = {site: jnp.asarray(value) for site, value in gaussian.loc.items()}
    with jax.enable_x64(True):
        log_joint, _ = log_density(smooth_network, (X, Y), {}, mean)
    of_mode = 0.5 * np.linalg.slogdet(2.0 * np.pi * np.asarray(gaussian.covariance, float))[1]
    assert found.value - found.correction == pytest.approx(float(log_joint) + of_mode, abs=1e-2)
    assert found.lower == -math.inf
    assert found.upper == math.inf


def test_draws_medians_and_pickles():
    def drawn(guide):
        sample = jax.jit(lambda key: guide.sample_posterior(key, {}, X, Y, sample_shape=(4000,)))
        return jax.tree.map(np.asarray, sample(jax.random.key(1)))

    guide = AutoSymmetrized.of_gaussian(network, by_unit(), HIDDEN)
    assert guide.explain() == "Not set up yet: call guide.setup(rng_key, *model_args), or SVI.init, once."
    assert guide.base.explain() == "Not set up yet."
    draws = drawn(guide.setup(jax.random.key(0), X, Y))
    assert guide.base.explain() == "A given Gaussian over unconstrained values, of independent units."
    covariance = by_unit().covariance["h"][1]
    unit = np.stack([draws["b1"][:, 1], *draws["w1"][:, :, 1].T, draws["w2"][:, 1]], 1)
    mean = np.array([means()["b1"][1], *means()["w1"][:, 1], means()["w2"][1]])
    white = np.linalg.solve(np.linalg.cholesky(covariance), (unit - mean).T)
    assert np.abs(white.mean(1)).max() < 4.5 / math.sqrt(4000)
    assert np.abs(white @ white.T / 4000 - np.eye(4)).max() < 4.5 * math.sqrt(2.0 / 4000)
    np.testing.assert_allclose(guide.median({})["w1"], means()["w1"], rtol=1e-6)
    low, high = guide.base.quantiles({}, np.array([0.1, 0.9]))["w1"][:, 0, 1]
    half = norm.ppf(0.9) * math.sqrt(covariance[1, 1])
    np.testing.assert_allclose([low, high], [mean[1] - half, mean[1] + half], rtol=1e-5)
    np.testing.assert_array_equal(drawn(pickle.loads(pickle.dumps(guide)))["w2"], draws["w2"])


def test_over_unconstrained_values_where_it_is_said_to_be():
    loc = {"z": np.array([0.5, -1.0, 0.2]), "width": np.array([-0.3, 0.1, 0.4])}
    gaussian = DiagonalGaussian(loc, {site: np.full(3, 0.4) for site in loc})
    symmetry = Symmetry({"z": ("h",), "width": ("h",)})
    with pytest.raises(SymmetryError, match="unconstrained=True"):
        AutoSymmetrized.of_gaussian(positive, gaussian, symmetry).setup(jax.random.key(0), jnp.array(0.3))
    guide = AutoSymmetrized.of_gaussian(positive, gaussian, symmetry, unconstrained=True)
    guide.setup(jax.random.key(0), jnp.array(0.3))
    np.testing.assert_allclose(guide.median({})["width"], np.exp(loc["width"]), rtol=1e-6)


def without(gaussian, site):
    return DiagonalGaussian(*({s: v for s, v in by.items() if s != site} for by in (gaussian.loc, gaussian.scale)))


def with_ones(site, shape):
    gaussian = diagonal()
    return DiagonalGaussian(gaussian.loc | {site: np.ones(shape)}, gaussian.scale | {site: np.ones(shape)})


REFUSED = {
    "a missing site": (lambda: without(diagonal(), "b2"), "lacks.*b2"),
    "another shape": (lambda: with_ones("b1", (4,)), "'b1'"),
    "a point": (lambda: DiagonalGaussian(means(), {s: np.zeros(shape) for s, shape in SHAPES.items()}), "point mass"),
    "no full rank": (lambda: FullGaussian(means(), np.ones((13, 13))), "no full rank"),
    "other groups": (lambda: UnitGaussian(means(), {"other": covariances(4, 3, 4)}, {"b2": 1.0}), "'h'"),
    "other numbers": (lambda: UnitGaussian(means(), {"h": covariances(4, 3, 3)}, {"b2": 1.0}), r"\(3, 4, 4\)"),
    "another scale": (
        lambda: UnitGaussian(means(), {"h": covariances(4, 3, 4)}, {"b2": np.ones(3)}),
        r"'b2': loc \(\) and scale \(3,\) differ",
    ),
    "no scale": (lambda: UnitGaussian(means(), {"h": covariances(4, 3, 4)}, {}), "b2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    make, match = REFUSED[name]
    with pytest.raises(SymmetryError, match=match):
        AutoSymmetrized.of_gaussian(network, make(), HIDDEN).setup(jax.random.key(0), X, Y)


def test_refuses_what_is_no_gaussian():
    with pytest.raises(TypeError, match="DiagonalGaussian"):
        AutoSymmetrized.of_gaussian(network, {"w1": np.zeros(3)})
    with pytest.raises(TypeError, match="model must be a NumPyro model"):
        AutoSymmetrized.of_gaussian(None, diagonal())
    with pytest.raises(TypeError, match="loc maps names to arrays; got list"):
        UnitGaussian([np.zeros(3)], {}, {})
    with pytest.raises(SymmetryError, match="matrix a unit"):
        UnitGaussian(means(), {"h": np.eye(4)}, {})
    with pytest.raises((SymmetryError, TypeError), match="mask"):
        UnitGaussian(means() | {"b2": np.ma.masked_less(np.array([-1.0, 1.0]), 0.0)}, {}, {})


@pytest.mark.parametrize(
    ("entry", "match"), [((0, 1), "'h' is not symmetric"), ((2, 2), "'h' has a negative eigenvalue")]
)
def test_refuses_a_unit_whose_covariance_is_none(entry, match):
    """One of three: the others are as they should be."""
    covariance = covariances(4, 3, 4)
    covariance[1][entry] -= 5.0
    with pytest.raises(SymmetryError, match=match):
        UnitGaussian(means(), {"h": covariance}, {"b2": 1.0})
