"""The log evidence of known posteriors, within three standard errors, by every road; and what is refused."""

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from numpyro.infer import MCMC, NUTS
from numpyro.infer.autoguide import (
    AutoDiagonalNormal,
    AutoLaplaceApproximation,
    AutoNormal,
)
from scipy.special import gammaln, logsumexp
from scipy.stats import multivariate_normal

from numpyro_symmetry import (
    AutoSymmetrized,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    log_evidence,
    testing,
)

NO_SYMMETRY, SLOW = Symmetry({}), pytest.mark.slow


def agrees(found, truth):
    assert abs(found.value - truth) < 3 * found.error + 1e-3  # of which 1e-3 is float32
    return True


# ---- models whose evidence is known, and exact draws of their posteriors ---------------------------------------------


def exchangeable(num_units, separation, count=600, *, switching=True, seed=0):
    posterior = testing.exchangeable_gaussian(num_units=num_units, separation=separation, log_evidence=-3.0)
    rng, (centres,) = np.random.default_rng(seed), posterior.model_args
    draws = centres + 0.3 * rng.standard_normal((count, num_units, 2))
    return posterior, {"units": np.stack([rng.permutation(draw) for draw in draws]) if switching else draws}


def allocations(data, num_components, log_prior_of_counts, variance, count, rng):
    """All allocations of data to components with unit noise: log evidence, exact draws of locations, and counts."""
    z = np.arange(num_components ** len(data))[:, None] // num_components ** np.arange(len(data)) % num_components
    own = z[:, :, None] == np.arange(num_components)
    counts, sums, squares = own.sum(1), (own * data[:, None]).sum(1), (own * data[:, None] ** 2).sum(1)
    precision = 1 / variance + counts
    log_joint = -0.5 * (np.log(variance * precision) - sums**2 / precision + squares + counts * np.log(2 * np.pi))
    log_joint = log_joint.sum(1) + log_prior_of_counts(counts)
    at = rng.choice(len(z), count, p=np.exp(log_joint - logsumexp(log_joint)))
    loc = sums[at] / precision[at] + rng.standard_normal((count, num_components)) / np.sqrt(precision[at])
    return logsumexp(log_joint), loc, counts[at]


def two_weights(count=1000):
    posterior = testing.two_weight_network()
    (x, y), rng, grid = posterior.model_args, np.random.default_rng(0), np.linspace(-2.0, 2.0, 801)
    lines = np.maximum(grid[:, None] * x, 0.0)
    squares = ((lines[:, None] + lines - y) ** 2).sum(-1)
    log_density = (-0.5 * (grid[:, None] ** 2 + grid**2) - squares / 20.0).ravel()
    at = rng.choice(log_density.size, count, p=np.exp(log_density - logsumexp(log_density)))
    cell = np.stack(np.unravel_index(at, squares.shape), -1)
    return posterior, {"w": grid[cell] + 0.005 * (rng.random((count, 2)) - 0.5)}


def normal(y, subsample_size=None):
    loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
    with numpyro.plate("data", len(y), subsample_size=subsample_size):
        numpyro.sample("y", dist.Normal(loc, 1.0), obs=y[:subsample_size])


Y = np.array([0.3, 1.2, -0.4, 0.9])
NORMAL = multivariate_normal(np.zeros(4), np.eye(4) + 4.0).logpdf(Y)
PRECISION = 4.25
LOC = Y.sum() / PRECISION
DRAWS = LOC + np.random.default_rng(0).standard_normal((2, 200)) / np.sqrt(PRECISION)


def dirichlet_mixture(y, *, discrete=False):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    with numpyro.plate("data", len(y)):
        if discrete:
            z = numpyro.sample("z", dist.Categorical(weights), infer={"enumerate": "parallel"})
            numpyro.sample("y", dist.Normal(loc[z], 1.0), obs=y)
        else:
            numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, 1.0)), obs=y)


FIVE = np.array([-2.0, -1.5, 2.0, 2.5, 1.0])


def dirichlet_draws(count=1000):
    def log_prior(counts):
        return gammaln(2) - gammaln(2 + counts.sum(1)) + gammaln(1 + counts).sum(1)

    rng = np.random.default_rng(0)
    truth, loc, counts = allocations(FIVE, 2, log_prior, 9.0, count, rng)
    return truth, {"loc": loc, "weights": np.stack([rng.dirichlet(1 + own) for own in counts])}


# ---- draws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separation", [pytest.param(2.0, marks=SLOW, id="apart"), pytest.param(0.3, id="overlapping")])
def test_switching_draws(separation):
    posterior, draws = exchangeable(3, separation)
    found = log_evidence(draws, posterior.model, posterior.model_args)
    assert agrees(found, -3.0)
    assert found.error < 0.05
    assert 0 < found.correction <= found.log_order + 1e-6
    assert found.log_order == pytest.approx(np.log(6))
    # units that overlap are worth less than log|G|
    assert (found.correction > np.log(6) - 0.1) == (separation == 2.0)


def test_labels_make_no_difference_and_without_symmetry_log_order_is_missing():
    posterior, switching = exchangeable(3, 3.0, seed=1)
    _, labelled = exchangeable(3, 3.0, seed=1, switching=False)
    first, second = (log_evidence(d, posterior.model, posterior.model_args) for d in (switching, labelled))
    assert abs(first.value - second.value) < 3 * np.hypot(first.error, second.error)
    bare = log_evidence(labelled, posterior.model, posterior.model_args, symmetry=NO_SYMMETRY)
    assert agrees(bare, -3.0 - np.log(6))
    assert bare.correction == bare.log_order == 0.0


@pytest.mark.parametrize(
    ("method", "num_permutations"),
    [
        ("importance", 4),
        *(pytest.param("importance", K, marks=SLOW) for K in (1, 16)),
        *(pytest.param("bridge", K, marks=SLOW) for K in (1, 4, 16)),
    ],
)
def test_a_group_too_large_to_sum(method, num_permutations):
    posterior, draws = exchangeable(6, 0.5, seed=2)
    options = {"method": method, "num_permutations": num_permutations, "num_samples": 600}
    found = log_evidence(draws, posterior.model, posterior.model_args, **options)
    assert agrees(found, -3.0)
    assert found.correction < np.log(720) - 0.5


@SLOW
@pytest.mark.parametrize("num_units", [3, 6])
def test_the_error_is_that_of_repeated_runs(num_units):
    scores = []
    for seed in range(12):
        posterior, draws = exchangeable(num_units, 0.5, count=400, seed=seed)
        options = {"num_permutations": 2, "num_samples": 400, "rng_key": jax.random.key(seed)}
        found = log_evidence(draws, posterior.model, posterior.model_args, **options)
        scores.append((found.value + 3.0) / found.error)
    # of twelve: chi-squared / 12 lies in here with 99.8 %
    assert 0.18 < np.mean(np.square(scores)) < 2.75
    assert abs(np.mean(scores)) < 3 / np.sqrt(12)


@pytest.mark.parametrize("num_components", [2, pytest.param(3, marks=SLOW)])
def test_mixture(num_components):
    posterior = testing.enumerable_mixture(num_components)
    (data,), rng = posterior.model_args, np.random.default_rng(0)

    def log_prior(counts):
        return -counts.sum(1) * np.log(num_components)

    truth, loc, _ = allocations(data, num_components, log_prior, 9.0, 1000, rng)
    assert truth == pytest.approx(posterior.log_evidence)
    assert agrees(log_evidence({"loc": loc}, posterior.model, posterior.model_args), posterior.log_evidence)


@SLOW
@SLOW
def test_network():
    posterior, draws = two_weights()
    found = log_evidence(draws, posterior.model, posterior.model_args, symmetry=posterior.symmetry)
    assert agrees(found, posterior.log_evidence)


@SLOW
def test_a_simplex():
    truth, draws = dirichlet_draws()
    assert agrees(log_evidence(draws, dirichlet_mixture, (FIVE,)), truth)


@SLOW
def test_discrete_sites_are_summed_out():
    truth, draws = dirichlet_draws()
    found = log_evidence(draws, dirichlet_mixture, (FIVE,), {"discrete": True})
    assert agrees(found, truth)


@pytest.mark.parametrize("method", ["bridge", pytest.param("importance", marks=SLOW), "laplace"])
def test_no_symmetry_at_all(method):
    found = log_evidence({"loc": DRAWS}, normal, (Y,), method=method, num_samples=500)
    assert found.method == method
    # Laplace's method is exact for a Gaussian, up to the moments of 400 draws
    assert abs(found.value - NORMAL) < (0.2 if method == "laplace" else 3 * found.error + 1e-3)
    assert np.isnan(found.error) == (method == "laplace")


def test_few_draws_of_many_numbers_are_fitted_entry_by_entry():
    posterior, draws = exchangeable(3, 2.0, count=100)
    found = log_evidence(draws, posterior.model, posterior.model_args, num_samples=500)
    assert agrees(found, -3.0)


@pytest.mark.parametrize("kind", ["flat", "InferenceData", pytest.param("Dataset", marks=SLOW)])
def test_containers(kind):
    data = {
        "flat": lambda: {"loc": DRAWS.reshape(-1)},
        "InferenceData": lambda: (
            az.from_dict(**{"posterior": {"loc": DRAWS}})
            if int(az.__version__.split(".")[0]) == 0
            else az.from_dict({"posterior": {"loc": DRAWS}})
        ),
        "Dataset": lambda: xr.Dataset({"loc": (("chain", "draw"), DRAWS)}),
    }[kind]()
    found = log_evidence(data, normal, (Y,), num_samples=200)
    assert agrees(found, NORMAL)
    if kind != "flat":
        assert found == log_evidence({"loc": DRAWS}, normal, (Y,), num_samples=200)


def test_mcmc_knows_its_model():
    mcmc = MCMC(NUTS(normal), num_warmup=100, num_samples=200, progress_bar=False)
    mcmc.run(jax.random.key(0), Y)
    assert agrees(log_evidence(mcmc, num_samples=200), NORMAL)


# ---- guides ----------------------------------------------------------------------------------------------------------


def set_up(guide, *args):
    with numpyro.handlers.seed(rng_seed=0):
        guide(*args)
    return guide


@pytest.mark.parametrize("method", ["auto", "laplace"])
def test_laplaces_approximation_of_a_gaussian_is_exact(method):
    guide = set_up(AutoLaplaceApproximation(normal), Y)
    found = log_evidence((guide, {"auto_loc": jnp.array([LOC])}), model_args=(Y,), method=method, num_samples=50)
    assert found.value == pytest.approx(NORMAL, abs=1e-4)


def test_a_guide():
    params = {"loc_auto_loc": LOC + 0.1, "loc_auto_scale": 0.6}
    found = log_evidence((AutoNormal(normal), params), model_args=(Y,))
    assert found.method == "importance"
    assert agrees(found, NORMAL)


def test_a_symmetrized_guide_has_its_correction():
    posterior, _ = exchangeable(3, 2.0)
    (centres,) = posterior.model_args
    guide = AutoSymmetrized(AutoDiagonalNormal(posterior.model), posterior.symmetry, check=False)
    params = {"auto_loc": centres.ravel(), "auto_scale": np.full(6, 0.3)}
    # symmetrized, it is the posterior, so that all weights are alike
    found = log_evidence((guide, params), model_args=(centres,), num_samples=100)
    assert found.value == pytest.approx(-3.0, abs=1e-4)
    assert found.error < 1e-4
    with pytest.raises(ValueError, match="its own symmetry and model"):
        log_evidence((guide, params), model_args=(centres,), symmetry=posterior.symmetry)
    with pytest.raises(ValueError, match="its own symmetry and model"):
        log_evidence((guide, params), normal, model_args=(centres,))


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"other": DRAWS}, "lack sites"),
        ({"loc": np.zeros((2, 200, 3, 3))}, "expected"),
        ({"loc": np.where(np.arange(200) == 7, np.nan, DRAWS)}, "not finite in 2 of 400"),
        ({"loc": DRAWS[:, :3]}, "at least 4"),
        ({"loc": np.ones((2, 50))}, "no volume"),
        (7, "expects a dict"),
    ],
    ids=["missing site", "shape", "NaN", "few draws", "constant", "no container"],
)
def test_bad_draws_are_refused(data, words):
    with pytest.raises(SymmetryError, match=words):
        log_evidence(data, normal, (Y,))


def test_numbers_that_vary_only_together_are_refused():
    posterior, _ = exchangeable(3, 2.0)
    units = np.random.default_rng(0).standard_normal((200, 1, 1)) + np.arange(6.0).reshape(3, 2)
    with pytest.raises(SymmetryError, match="vary only together"):
        log_evidence({"units": units}, posterior.model, posterior.model_args, symmetry=NO_SYMMETRY)


def test_subsampled_data_are_refused():
    with pytest.raises(SymmetryError, match="'data' takes 2 of 4"):
        log_evidence({"loc": DRAWS}, normal, (Y, 2))


def test_the_border_of_a_support_is_refused():
    def model(y):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(0.0, scale).expand([4]).to_event(1), obs=y)

    draws = np.exp(DRAWS)
    draws[0, 3] = 0.0
    with pytest.raises(SymmetryError, match="'scale': 1 of 200 draws lie outside its support"):
        log_evidence({"scale": draws}, model, (Y,))


def test_draws_of_other_data_are_refused():
    def model(limit):
        loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
        numpyro.factor("below", jnp.where(loc < limit, 0.0, -jnp.inf))

    assert np.isfinite(log_evidence({"loc": DRAWS}, model, (100.0,), symmetry=NO_SYMMETRY).value)
    with pytest.raises(SymmetryError, match="draws that are bridged no density"):
        log_evidence({"loc": DRAWS}, model, (0.3,), symmetry=NO_SYMMETRY)


def test_a_support_that_depends_on_another_site_is_refused():
    def model(y):
        a = numpyro.sample("a", dist.LogNormal(0.0, 1.0))
        b = numpyro.sample("b", dist.Uniform(0.0, a))
        numpyro.sample("y", dist.Normal(b, 2.0).expand([4]).to_event(1), obs=y)

    draws = {"a": np.exp(DRAWS), "b": 0.5 * np.exp(DRAWS)}
    with pytest.raises(SymmetryError, match="'b' has a support that depends on other sites"):
        log_evidence(draws, model, (Y,))


def test_an_mcmc_lends_what_is_left_out():
    mcmc = MCMC(NUTS(normal), num_warmup=100, num_samples=200, progress_bar=False)
    with pytest.raises(ValueError, match="holds no draws"):
        log_evidence(mcmc)
    mcmc.run(jax.random.key(0), Y)
    own, given = log_evidence(mcmc), log_evidence(mcmc, normal)
    assert own.value == given.value
    # other data are other evidence, and not silently the run's own
    assert log_evidence(mcmc, model_args=(Y + 0.1,)).value != own.value


def test_a_wrong_symmetry_is_refused():
    def ordered(y):
        loc = numpyro.sample("loc", dist.Normal(jnp.arange(2.0), 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)

    with pytest.raises(SymmetryError, match="not invariant"):
        log_evidence({"loc": np.ones((50, 2))}, ordered, (0.0,), symmetry=Symmetry({"loc": ("unit",)}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "nested"}, "method must be"),
        ({"num_samples": 1}, "at least 2"),
        ({"num_permutations": 0}, "at least 1"),
        ({"model": None}, "do not know their model"),
    ],
)
def test_options_that_do_not_fit(options, words):
    with pytest.raises(ValueError, match=words):
        log_evidence({"loc": DRAWS}, **{"model": normal, "model_args": (Y,), **options})


def test_what_a_guide_cannot_do():
    guide = AutoNormal(normal), {"loc_auto_loc": LOC, "loc_auto_scale": 0.5}
    with pytest.raises(ValueError, match="'bridge' needs draws"):
        log_evidence(guide, model_args=(Y,), method="bridge")

    def by_hand(y):
        numpyro.sample("loc", dist.Normal(0.0, 1.0))

    with pytest.raises(ValueError, match="does not know its model"):
        log_evidence((by_hand, {}), model_args=(Y,))
    assert agrees(log_evidence((by_hand, {}), normal, (Y,)), NORMAL)
    with pytest.raises(ValueError, match="function has no median"):
        log_evidence((by_hand, {}), normal, (Y,), method="laplace")

    def with_more(y):
        numpyro.sample("loc", dist.Normal(numpyro.sample("more", dist.Normal()), 1.0))

    def with_less(y):
        pass

    for other in (with_more, with_less):
        with pytest.raises(SymmetryError, match=r"expected the model's continuous latent sites \['loc'\]"):
            log_evidence((other, {}), normal, (Y,))
    with pytest.raises(SymmetryError, match=r"parameters \['loc_auto_scale'\], which are not among"):
        log_evidence((AutoNormal(normal), {"loc_auto_loc": LOC}), model_args=(Y,))


def test_a_poor_proposal_is_warned_of():
    params = {"loc_auto_loc": LOC + 3.0, "loc_auto_scale": 0.3}
    with pytest.warns(SymmetryWarning, match="not reliable"):
        log_evidence((AutoNormal(normal), params), model_args=(Y,), num_samples=200)


def test_a_chain_that_hardly_moves_is_warned_of():
    stuck = LOC + np.repeat(np.array([-1.0, 1.0]), 20).reshape(2, 20) + 0.01 * DRAWS[:, :20]
    with pytest.warns(SymmetryWarning, match="not reliable"):
        log_evidence({"loc": stuck}, normal, (Y,), num_samples=200)
