"""The log evidence of known posteriors, within three standard errors, by every road; and what is refused."""

import itertools
import re
from contextlib import nullcontext

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
    AutoMultivariateNormal,
    AutoNormal,
)
from scipy.stats import multivariate_normal

from numpyro_symmetry import (
    AutoSymmetrized,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    log_evidence,
    testing,
)
from numpyro_symmetry.containers import read
from numpyro_symmetry.evidence.draws import in_batch, on_supports
from numpyro_symmetry.evidence.proposal import _rebased, proposal_of_draws
from numpyro_symmetry.models import Model
from tests.support.known_evidence import KNOWN, known, mixture

NO_SYMMETRY, SLOW = Symmetry({}), pytest.mark.slow


def agrees(found, truth):
    # 1e-3 is float32; three errors hold together for some twenty posteriors, not for hundreds
    assert abs(found.value - truth) < 3 * found.error + 1e-3
    assert found.lower - 3 * found.lower_error - 1e-3 < truth
    assert np.isinf(found.upper) or truth < found.upper + 3 * found.upper_error + 1e-3
    return True


# ---- models whose evidence is known, and exact draws of their posteriors ---------------------------------------------


def exchangeable(num_units, separation, count=600, *, switching=True, seed=0):
    posterior = testing.exchangeable_gaussian(num_units=num_units, separation=separation, log_evidence=-3.0)
    rng, (centres,) = np.random.default_rng(seed), posterior.model_args
    draws = centres + 0.3 * rng.standard_normal((count, num_units, 2))
    return posterior, {"units": np.stack([rng.permutation(draw) for draw in draws]) if switching else draws}


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


def dirichlet_draws():
    exact = known("weighted mixture of 2")
    assert exact.args[0].tolist() == FIVE.tolist()
    return exact.truth, exact.draws(1000, np.random.default_rng(0))


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


def positive_at_first():
    """Draws whose first half is likeliest to be read by its logarithm, and whose second cannot be."""
    draws = np.random.default_rng(0).gamma(2.0, size=(1, 400, 2)) - 0.05
    draws[0, [0, -1]] = [[1.0, 2.0], [-0.03, 1.0]]
    assert (draws[0, :200] > 0).all()
    return draws


def one_array(draws):
    return {"units": draws}, Symmetry({"units": ("unit",)})


def one_site_each(draws):
    return {"unit_0": draws[..., 0], "unit_1": draws[..., 1]}, Symmetry({("unit_0", "unit_1"): ("unit",)})


def one_of_three_apart(draws):
    apart = np.random.default_rng(1).normal(size=(*draws.shape[:-1], 1))
    return {"units": np.concatenate([draws, apart], -1)}, Symmetry({"units": ("unit",)}, orbits={"unit": (0, 0, 1)})


@pytest.mark.parametrize("cut", [one_array, one_site_each, one_of_three_apart])
def test_a_half_that_is_positive_by_chance(cut):
    draws, symmetry = cut(positive_at_first())
    symmetry = symmetry.bind({site: x[0, 0] for site, x in draws.items()})
    trace = read(draws, symmetry)
    halves = [{site: x[:, of] for site, x in draws.items()} for of in (slice(None, 200), slice(200, None))]
    moved = _rebased(*(trace._replace(values=x, leading=(1, 200)) for x in halves), symmetry, jax.random.key(0))
    for part, half in zip(moved, halves, strict=True):
        flat = [
            np.concatenate([np.reshape(x, (200, -1)) for x in values.values()], 1) for values in (part.values, half)
        ]
        np.testing.assert_allclose(*(np.sort(x, 1) for x in flat))


def shifted():
    # NumPyro takes the real line for the support of what is shifted, and knows better by its checks of values
    above = dist.TransformedDistribution(dist.HalfNormal(1.0), dist.transforms.AffineTransform(0.5, 1.0))
    numpyro.sample("x", above)
    numpyro.factor("log_evidence", -3.0)


def evaluated_by_hand():
    x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.factor("log_joint", dist.HalfNormal(1.0).log_prob(x - 0.5) - 3.0)


@pytest.mark.parametrize("model", [shifted, evaluated_by_hand])
def test_what_is_outside_of_a_support_has_no_weight(model):
    draws = {"x": 0.5 + np.abs(np.random.default_rng(0).normal(size=(1, 200)))}
    found = log_evidence(draws, model, symmetry=Symmetry({}), num_draws=400, method="importance", progress_bar=False)
    assert abs(found.value + 3.0) < 4 * found.error + 1e-3
    assert found.error < 0.15


@pytest.mark.slow
def test_the_evidence_of_draws_that_are_positive_at_first():
    def model():
        above = dist.TransformedDistribution(dist.Gamma(2.0, 1.0), dist.transforms.AffineTransform(-0.05, 1.0))
        numpyro.sample("units", above.expand([2]).to_event(1))
        numpyro.factor("log_evidence", -3.0)

    found = log_evidence({"units": positive_at_first()}, model, symmetry=Symmetry({"units": ("unit",)}))
    assert abs(found.value + 3.0) < 4 * found.error + 1e-3


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
    # one permutation says little of where a copy is: weights are heavy, and a tenth of the draws are effective
    options = {
        "method": method,
        "num_permutations": num_permutations,
        "num_draws": max(600, 2400 // num_permutations),
    }
    found = log_evidence(draws, posterior.model, posterior.model_args, **options)
    assert agrees(found, -3.0)
    assert found.correction < np.log(720) - 0.5


@SLOW
@pytest.mark.parametrize("num_units", [3, 6])
def test_the_error_is_that_of_repeated_runs(num_units):
    scores = []
    for seed in range(12):
        posterior, draws = exchangeable(num_units, 0.5, count=400, seed=seed)
        options = {"num_permutations": 2, "num_draws": 400, "rng_key": jax.random.key(seed)}
        found = log_evidence(draws, posterior.model, posterior.model_args, **options)
        scores.append((found.value + 3.0) / found.error)
    # of twelve: chi-squared / 12 lies in here with 99.8 %
    assert 0.18 < np.mean(np.square(scores)) < 2.75
    assert abs(np.mean(scores)) < 3 / np.sqrt(12)


def in_chains(draws, num_chains=4):
    return {site: value.reshape(num_chains, -1, *value.shape[1:]) for site, value in draws.items()}


FAST = ("mixture of 2, together", "1 signed Gaussian", "10 units apart", "heads of units")
# units that all are in one place: a Gaussian of sorted ones is a poor likeness, and sixteen permutations of 50! say
# little of where its copies are; the bounds are wide, and right
WIDE = {"5 units in one cloud": 1.0, "10 units in one cloud": 3.0, "50 units in one cloud": np.inf}


@pytest.mark.parametrize("name", [name if name in FAST else pytest.param(name, marks=SLOW) for name in KNOWN])
@pytest.mark.filterwarnings("ignore:The evidence is not reliable")
def test_known_evidence_lies_between_the_bounds(name):
    exact = known(name)
    draws = in_chains(exact.draws(2000, np.random.default_rng(0)))
    found = log_evidence(draws, exact.model, exact.args, symmetry=exact.symmetry)
    assert agrees(found, exact.truth)
    assert found.lower < found.upper
    assert found.upper - found.lower < WIDE.get(name, 0.5)
    assert 0 <= found.correction <= found.log_order + 1e-3 * (1 + found.log_order)


@SLOW
def test_enumeration_agrees_with_the_package():
    posterior = testing.enumerable_mixture(3)
    assert mixture(3, posterior.model_args[0]).truth == pytest.approx(posterior.log_evidence)


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
    found = log_evidence({"loc": DRAWS}, normal, (Y,), method=method, num_draws=500)
    assert found.method == method
    # Laplace's method is exact for a Gaussian, up to the moments of 400 draws
    assert abs(found.value - NORMAL) < (0.2 if method == "laplace" else 3 * found.error + 1e-3)
    assert np.isnan(found.error) == (method == "laplace")


def test_a_plate_around_everything_is_no_matter_to_weights():
    def subjects(y):
        with numpyro.plate("subject", 2):
            loc = numpyro.sample("loc", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
            numpyro.sample("y", dist.Normal(loc.sum(-1), 1.0), obs=y)

    y, covariance = np.array([0.5, -2.0]), np.linalg.inv(np.eye(2) / 4.0 + 1.0)
    noise = np.random.default_rng(0).standard_normal((2, 300, 2, 2)) @ np.linalg.cholesky(covariance).T
    found = log_evidence({"loc": y[:, None] * covariance.sum(1) + noise}, subjects, (y,))
    assert found.log_order == pytest.approx(2 * np.log(2.0))
    truth = multivariate_normal(np.zeros(2), 9.0).logpdf(y)
    assert agrees(found, truth)
    # each subject's posterior is its own, and a Gaussian
    params = {
        "auto_loc": (y[:, None] * covariance.sum(1)).ravel(),
        "auto_scale_tril": np.kron(np.eye(2), np.linalg.cholesky(covariance)),
    }
    guide = AutoSymmetrized(AutoMultivariateNormal(subjects))
    of_guide = log_evidence((guide, params), model_args=(y,), num_draws=200)
    assert of_guide.log_order == found.log_order
    assert of_guide.value == pytest.approx(truth, abs=1e-4)
    # training is another matter, also of a guide that is set up
    with pytest.raises(SymmetryError, match="Every site lies in plate 'subject'"):
        numpyro.handlers.seed(guide, 0)(y)
    bounds = guide.elbo_bounds(jax.random.key(0), params, y, num_particles=50, progress_bar=False)
    assert bounds.lower == pytest.approx(truth, abs=1e-3)


def test_few_draws_of_many_numbers_are_fitted_entry_by_entry():
    posterior, draws = exchangeable(3, 2.0, count=100)
    found = log_evidence(draws, posterior.model, posterior.model_args, num_draws=500)
    assert agrees(found, -3.0)


# chains, draws of each, whether half of these are fitted to, and whether these are ten for each of three numbers
FITTED = [
    ((2, 30), True, True), ((2, 29), True, False), ((1, 60), True, True), ((1, 59), True, False),
    ((2, 15), False, True), ((2, 14), False, False), ((15, 4), True, True), ((14, 5), True, False),
]  # fmt: skip


@pytest.mark.parametrize(("leading", "halve", "is_full"), FITTED)
def test_a_covariance_takes_ten_draws_for_each_number_that_is_fitted(leading, halve, is_full):
    def model(y):
        ab = numpyro.sample("ab", dist.Normal(0.0, 1.0).expand([2]).to_event(1)).sum()
        numpyro.sample("y", dist.Normal(ab + numpyro.sample("c", dist.HalfNormal(1.0)), 1.0), obs=y)

    rng = np.random.default_rng(0)
    draws = {"ab": rng.standard_normal((*leading, 2)), "c": rng.gamma(1.0, size=leading)}
    found = proposal_of_draws(draws, Model(model, (0.5,), {}), NO_SYMMETRY, jax.random.key(0), signs=False, halve=halve)
    assert isinstance(found.guide.base, AutoMultivariateNormal) == is_full
    assert isinstance(found.guide.base, AutoDiagonalNormal) != is_full


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
    found = log_evidence(data, normal, (Y,), num_draws=200)
    assert agrees(found, NORMAL)
    if kind != "flat":
        assert found == log_evidence({"loc": DRAWS}, normal, (Y,), num_draws=200)


@pytest.mark.parametrize("are_cut", [False, True], ids=["equal", "unequal"])
def test_stacked_draws_are_those_of_their_chains(are_cut):
    """In any order, as ``az.extract`` gives them: halves, their autocorrelation and the error are of chains."""
    rng, whole = np.random.default_rng(0), xr.Dataset({"loc": (("chain", "draw"), DRAWS)})
    stacked = whole.assign_coords(chain=range(len(DRAWS)), draw=range(DRAWS.shape[1])).stack(sample=("chain", "draw"))
    shuffled = stacked.isel(sample=rng.permutation(DRAWS.size)).reset_index("sample")
    if not are_cut:
        assert log_evidence(shuffled, normal, (Y,), num_draws=200) == log_evidence(whole, normal, (Y,), num_draws=200)
        return
    shuffled = shuffled.isel(sample=(shuffled.chain > 0) | (shuffled.draw > 4))
    with pytest.warns(SymmetryWarning, match="halved alike: the first 5 draws of longer chains are left out"):
        found = log_evidence(shuffled, normal, (Y,), num_draws=200)
    assert found == log_evidence({"loc": DRAWS[:, 5:]}, normal, (Y,), num_draws=200)


def test_a_chain_of_which_few_draws_are_left_costs_no_more_than_those():
    """As a filter leaves them, by a mode say: all others had been cut to as few."""
    whole = xr.Dataset({"loc": (("chain", "draw"), DRAWS)})
    stacked = whole.assign_coords(chain=range(len(DRAWS)), draw=range(DRAWS.shape[1])).stack(sample=("chain", "draw"))
    with pytest.warns(SymmetryWarning, match="halved alike: all 2 draws of shorter ones are left out"):
        found = log_evidence(
            stacked.isel(sample=((stacked.chain > 0) | (stacked.draw < 2)).values), normal, (Y,), num_draws=200
        )
    assert found == log_evidence({"loc": DRAWS[1:]}, normal, (Y,), num_draws=200)


def test_a_symmetry_needs_no_sizes_and_says_its_order():
    posterior, draws = exchangeable(3, 2.0, count=200)
    by_hand = log_evidence(
        draws, posterior.model, posterior.model_args, symmetry=Symmetry.mixture("units"), num_draws=200
    )
    bound = log_evidence(draws, posterior.model, posterior.model_args, symmetry=posterior.symmetry, num_draws=200)
    assert by_hand == bound
    assert by_hand.log_order == pytest.approx(np.log(6))


@pytest.mark.parametrize("method", ["bridge", pytest.param("importance", marks=SLOW)])
def test_draws_of_one_sign_are_the_evidence_of_both(method):
    exact = known("1 tanh unit")
    both = in_chains(exact.draws(1200, np.random.default_rng(1)))
    sign = np.sign(both["w1"])
    one = {site: sign * value for site, value in both.items()}
    found, again = (
        log_evidence(draws, exact.model, exact.args, symmetry=exact.symmetry, method=method) for draws in (one, both)
    )
    assert agrees(found, exact.truth)
    assert agrees(again, exact.truth)
    assert found.log_order == pytest.approx(np.log(2))
    # what comes of leaving signs out
    bare = log_evidence(one, exact.model, exact.args, symmetry=NO_SYMMETRY, method=method)
    assert abs(bare.value - exact.truth + np.log(2)) < 3 * bare.error + 0.01


def test_scalar_sites_have_signs():
    exact = known("1 tanh unit")
    both = exact.draws(1200, np.random.default_rng(3))
    draws = in_chains({site: (np.sign(both["w1"]) * value)[:, 0] for site, value in both.items()})

    def model(x, y):
        first, last = (numpyro.sample(site, dist.Normal(0.0, 1.0)) for site in ("w1", "w2"))
        numpyro.sample("y", dist.Normal(jnp.tanh(jnp.asarray(x) * first) * last, 0.3), obs=y)

    found = log_evidence(draws, model, exact.args)
    assert agrees(found, exact.truth)
    assert found.log_order == pytest.approx(np.log(2))


@pytest.mark.parametrize("side", ["one", pytest.param("both", marks=SLOW)])
def test_signs_are_looked_for_by_default(side):
    exact = known("2 tanh units")
    draws = in_chains(exact.draws(2000, np.random.default_rng(2)))
    if side == "one":
        draws = {site: np.sign(draws["w1"]) * value for site, value in draws.items()}
    found = log_evidence(draws, exact.model, exact.args)
    assert agrees(found, exact.truth)
    assert found.log_order == pytest.approx(np.log(8))
    assert log_evidence(draws, exact.model, exact.args, signs=False, num_draws=20, method="laplace").log_order < 1


def test_both_methods_bound_from_above_and_a_guide_does_not():
    found = log_evidence({"loc": DRAWS}, normal, (Y,), method="importance", num_draws=200)
    assert agrees(found, NORMAL)
    assert np.isfinite(found.upper)
    params = {"loc_auto_loc": LOC + 0.1, "loc_auto_scale": 0.6}
    of_guide = log_evidence((AutoNormal(normal), params), model_args=(Y,), num_draws=200)
    assert of_guide.upper == np.inf
    assert of_guide.lower < of_guide.value + 1e-9


def test_the_upper_side_does_not_see_what_the_gaussian_was_fitted_to():
    # second halves that lie elsewhere change what is above, and leave what is below alone, to the last bit
    other = DRAWS.copy()
    other[:, 100:] += 1.0
    first = log_evidence({"loc": DRAWS}, normal, (Y,), num_draws=200)
    with pytest.warns(SymmetryWarning, match="below its lower bound"):
        second = log_evidence({"loc": other}, normal, (Y,), num_draws=200)
    assert (first.lower, first.effective) == (second.lower, second.effective)
    assert second.upper != first.upper


def test_it_prints_itself():
    found = log_evidence({"loc": DRAWS}, normal, (Y,), num_draws=200)
    lines = str(found).split("\n")
    assert len(lines) == 2
    # a digit of the smallest error, two decimals at least and four at most
    for smallest, decimals in ((0.3, 2), (0.01, 2), (0.004, 3), (0.00002, 4), (0.0, 2)):
        told = found._replace(error=0.3, lower_error=smallest, upper_error=0.3)
        assert f"log p(data) = {found.value:.{decimals}f} ± {0.3:.{decimals}f} nats by bridge" in str(told)
        ends = f"{found.lower:.{decimals}f} ± {smallest:.{decimals}f} ≤ log p(data) ≤ {found.upper:.{decimals}f} ±"
        assert ends in str(told)
    assert f"{found.effective:.0f} of the proposal's draws are effective, Pareto shape" in lines[1]
    of_guide = (AutoNormal(normal), {"loc_auto_loc": LOC, "loc_auto_scale": 0.5})
    assert "inf" not in str(log_evidence(of_guide, model_args=(Y,), num_draws=200))
    assert "no error and no bounds" in str(log_evidence(of_guide, model_args=(Y,), method="laplace"))


# ---- guides ----------------------------------------------------------------------------------------------------------


def set_up(guide, *args):
    with numpyro.handlers.seed(rng_seed=0):
        guide(*args)
    return guide


@pytest.mark.parametrize("method", ["auto", "laplace"])
def test_laplaces_approximation_of_a_gaussian_is_exact(method):
    guide = set_up(AutoLaplaceApproximation(normal), Y)
    found = log_evidence((guide, {"auto_loc": jnp.array([LOC])}), model_args=(Y,), method=method, num_draws=50)
    assert found.value == pytest.approx(NORMAL, abs=1e-4)


@pytest.mark.parametrize("x64", [False, True])
def test_a_log_joint_far_from_zero_is_told_where_its_precision_loses_the_evidence(x64):
    def far(y):
        normal(y)
        numpyro.factor("far", -1e7)

    base = AutoNormal(far)
    params = {"loc_auto_loc": jnp.array(LOC), "loc_auto_scale": jnp.array(PRECISION**-0.5)}
    told = pytest.warns(SymmetryWarning, match="not reliable: log densities are as large as 1e.07 nats, which float32")
    with jax.enable_x64(x64):
        params = {name: jnp.asarray(value, float) for name, value in params.items()}
        guide = AutoSymmetrized(base, NO_SYMMETRY).setup(jax.random.key(0), Y)
        for found in (
            lambda: log_evidence({"loc": DRAWS}, far, (Y,), symmetry=NO_SYMMETRY).value,
            lambda: log_evidence((base, params), model_args=(Y,), method="laplace", symmetry=NO_SYMMETRY).value,
            lambda: guide.elbo_bounds(jax.random.key(0), params, Y, num_particles=40).importance_weighted,
        ):
            with nullcontext() if x64 else told:
                value = found()
            assert abs(value + 1e7 - NORMAL) < (0.05 if x64 else 2.0)


def test_a_guide():
    params = {"loc_auto_loc": LOC + 0.1, "loc_auto_scale": 0.6}
    found = log_evidence((AutoNormal(normal), params), model_args=(Y,))
    assert found.method == "importance"
    assert agrees(found, NORMAL)


def either_side(y, *, discrete=False):
    loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
    with numpyro.plate("data", len(y)):
        if discrete:
            side = numpyro.sample("side", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
            numpyro.sample("y", dist.Normal(jnp.where(side, loc, -loc), 1.0), obs=y)
        else:
            sides = dist.Normal(jnp.stack([-loc, loc]), 1.0)
            numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(jnp.array([0.7, 0.3])), sides), obs=y)


def test_what_a_guide_leaves_to_be_summed_out_is():
    """The same draws of the guide, of the model with its discrete sites and of that with these summed out by hand."""
    guide, params = (
        AutoNormal(numpyro.handlers.block(either_side, hide=["side"])),
        {"loc_auto_loc": 0.0, "loc_auto_scale": 1.0},
    )
    summed, by_hand = (
        log_evidence((guide, params), either_side, (Y,), options, num_draws=400) for options in ({"discrete": True}, {})
    )
    assert summed.value == pytest.approx(by_hand.value, abs=1e-4)
    assert summed.upper == pytest.approx(by_hand.upper, abs=1e-4, nan_ok=True)


def test_a_symmetrized_guide_has_its_correction():
    posterior, _ = exchangeable(3, 2.0)
    (centres,) = posterior.model_args
    guide = AutoSymmetrized(AutoDiagonalNormal(posterior.model), posterior.symmetry, check=False)
    params = {"auto_loc": centres.ravel(), "auto_scale": np.full(6, 0.3)}
    # symmetrized, it is the posterior, so that all weights are alike
    found = log_evidence((guide, params), model_args=(centres,), num_draws=100)
    assert found.value == pytest.approx(-3.0, abs=1e-4)
    assert found.error < 1e-4
    with pytest.raises(ValueError, match="its own symmetry and model"):
        log_evidence((guide, params), model_args=(centres,), symmetry=posterior.symmetry)
    with pytest.raises(ValueError, match="its own symmetry and model"):
        log_evidence((guide, params), normal, model_args=(centres,))
    by_hand = AutoSymmetrized(AutoDiagonalNormal(posterior.model), Symmetry.mixture("units"), check=False)
    assert log_evidence((by_hand, params), model_args=(centres,), num_draws=100) == found


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"other": DRAWS}, "lack sites"),
        ({"loc": np.zeros((2, 200, 3, 3))}, "expected"),
        ({"loc": np.where(np.arange(200) == 7, np.nan, DRAWS)}, "not finite in 2 of 400"),
        ({"loc": DRAWS[:, :3]}, "at least 4"),
        ({"loc": DRAWS[:, :0]}, "2 chains of 0 draws"),
        ({}, r"no draws: dict is empty; expected sites \['loc'\]"),
        ({"loc": np.ma.masked_greater(DRAWS, 1.0)}, "'loc' is a masked array"),
        ({"loc": DRAWS + 0j}, "expected real numbers"),
        ({"loc": np.ones((2, 50))}, "no volume"),
        (7, "expected in a dict"),
    ],
    ids="missing site,shape,NaN,few draws,no draws,empty,masked,complex,constant,no container".split(","),
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


@pytest.mark.slow
def test_text_rounds_draws_off_a_simplex_and_these_are_put_back():
    counts = jnp.array([3, 1, 2])

    def model():
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
        numpyro.sample("counts", dist.Multinomial(6, p), obs=counts)

    text = np.random.default_rng(0).dirichlet(1.0 + counts, (2, 300)).round(4)
    text[..., 0] += 1e-4
    assert not dist.constraints.simplex(jnp.asarray(text)).all()
    # every composition of six among three is as probable as any other
    assert agrees(log_evidence({"p": text}, model, symmetry=NO_SYMMETRY), -np.log(28))


def test_draws_within_a_simplex_by_a_hair_stay_in_it_in_any_order():
    latents = {"p": {"fn": dist.Dirichlet(jnp.ones(3))}}
    text = np.random.default_rng(0).dirichlet(np.ones(3), (2, 400)).round(6)
    trace = on_supports(read({"p": text}, Symmetry({}), 2), latents)
    for order in itertools.permutations(range(3)):
        assert dist.constraints.simplex(jnp.asarray(trace.values["p"][..., order])).all()
    np.testing.assert_allclose(trace.values["p"], text, atol=2e-6)
    text[0, :3] *= 0.9
    with pytest.raises(SymmetryError, match="'p': 3 of 800 draws lie off its support .* by up to"):
        on_supports(read({"p": text}, Symmetry({}), 2), latents)


@pytest.mark.parametrize(
    "fn",
    [dist.LKJCholesky(3, 2.0), dist.ZeroSumNormal(1.0, (6,)), dist.Dirichlet(np.ones(5))],
    ids=lambda fn: fn.support,
)
def test_draws_of_single_precision_lie_on_supports_in_double(fn):
    draws = np.asarray(fn.sample(jax.random.key(0), (2, 50)), np.float32)
    with jax.enable_x64(True):
        trace = on_supports(read({"p": draws}, Symmetry({}), 2), {"p": {"fn": fn}})
        assert fn.support(jnp.asarray(trace.values["p"], float)).all()
    np.testing.assert_allclose(trace.values["p"], draws, atol=1e-6)


def test_draws_of_half_precision_off_a_support_of_matrices_are_refused():
    draws = np.broadcast_to(np.eye(3) + 0.5, (2, 4, 3, 3)).astype(np.float16)
    with pytest.raises(SymmetryError, match="'c': 8 of 8 draws lie off its support"):
        on_supports(read({"c": draws}, Symmetry({}), 2), {"c": {"fn": dist.LKJ(3)}})


def test_draws_of_single_precision_go_through_loops_in_double():
    def model(y):
        start = numpyro.sample("start", dist.Normal(0, 1))
        end, _ = jax.lax.scan(lambda x, share: (x * share, None), start, jnp.ones(3))
        numpyro.sample("y", dist.Normal(end, 1), obs=y)

    draws = np.random.default_rng(0).normal(0, np.sqrt(0.5), (2, 50)).astype(np.float32)
    with jax.enable_x64(True):
        found = log_evidence({"start": draws}, model, (0.0,), symmetry=NO_SYMMETRY)
    assert agrees(found, -0.5 * np.log(4 * np.pi))


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_draws_of_any_size_stay_as_they_are(size):
    ordered = size * np.array([20.0, 21.0, 33.0]) * np.ones((2, 3, 1))
    factor = size * np.array([[1.0, 0.0], [0.5, 2.0]]) * np.ones((2, 3, 1, 1))
    constraints = {"ordered": dist.constraints.ordered_vector, "factor": dist.constraints.lower_cholesky}
    draws = {"ordered": ordered, "factor": factor}
    latents = {site: {"fn": dist.ImproperUniform(c, (), draws[site].shape[2:])} for site, c in constraints.items()}
    out = on_supports(read(draws, Symmetry({}), 2), latents)
    for site, x in draws.items():
        np.testing.assert_allclose(out.values[site], x, rtol=1e-5, atol=1e-6 * size)
    factor[0, 0, 0, 1] = 0.5 * size
    with pytest.raises(SymmetryError, match="'factor': 1 of 6 draws lie off its support .* by up to 0.25 of"):
        on_supports(read(draws, Symmetry({}), 2), latents)


@pytest.mark.filterwarnings("ignore:Out-of-support values")
def test_data_outside_of_a_support_are_named():
    def model(y):
        rate = numpyro.sample("rate", dist.LogNormal(0, 1))
        numpyro.sample("y", dist.Gamma(2.0, rate), obs=y)

    with pytest.raises(SymmetryError, match="'y' holds 1 of 3 values outside of its support"):
        log_evidence({"rate": np.ones((2, 8))}, model, (np.array([1.0, -1.0, 2.0]),), symmetry=NO_SYMMETRY)


def test_draws_of_other_data_are_refused():
    def model(limit):
        loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
        numpyro.factor("below", jnp.where(loc < limit, 0.0, -jnp.inf))

    assert np.isfinite(log_evidence({"loc": DRAWS}, model, (100.0,), symmetry=NO_SYMMETRY).value)
    with pytest.raises(SymmetryError, match="draws that are bridged no density"):
        log_evidence({"loc": DRAWS}, model, (0.3,), symmetry=NO_SYMMETRY)


@pytest.mark.parametrize("hidden", ["random numbers", "a site", "a prior's site"])
def test_draws_of_a_model_that_is_left_to_chance_are_refused(hidden):
    def model():
        with numpyro.handlers.block():
            scale = numpyro.sample("scale", dist.LogNormal())
        loc = numpyro.sample("loc", dist.Normal(0.0, scale if hidden == "a prior's site" else 2.0))
        kept = jax.random.bernoulli(numpyro.prng_key(), 0.5, Y.shape) if hidden == "random numbers" else 1.0
        numpyro.sample("y", dist.Normal(loc * kept, scale if hidden == "a site" else 1.0).expand(Y.shape), obs=Y)

    site = "loc" if hidden == "a prior's site" else "y"
    with pytest.raises(SymmetryError, match=rf"\['{site}'\] are left to chance .*handlers.seed"):
        log_evidence({"loc": DRAWS}, model, symmetry=NO_SYMMETRY)
    seeded = numpyro.handlers.seed(model, rng_seed=0)
    assert np.isfinite(log_evidence({"loc": DRAWS}, seeded, symmetry=NO_SYMMETRY, method="laplace").value)


def test_a_support_that_depends_on_another_site_is_refused():
    def model(y):
        a = numpyro.sample("a", dist.LogNormal(0.0, 1.0))
        b = numpyro.sample("b", dist.Uniform(0.0, a))
        numpyro.sample("y", dist.Normal(b, 2.0).expand([4]).to_event(1), obs=y)

    draws = {"a": np.exp(DRAWS), "b": 0.5 * np.exp(DRAWS)}
    with pytest.raises(SymmetryError, match="'b' has a support that depends on other sites"):
        log_evidence(draws, model, (Y,))


def test_a_support_that_starts_elsewhere_is_one_and_the_same():
    shift = dist.transforms.AffineTransform(0.1, 2.0, domain=dist.constraints.positive)

    def model(y):
        a = numpyro.sample("a", dist.TransformedDistribution(dist.LogNormal(0.0, 0.5), shift))
        numpyro.sample("y", dist.Normal(a, 1.0).expand([4]).to_event(1), obs=y)

    base = np.linspace(-4.0, 4.0, 20_001)
    like = dist.Normal(0.1 + 2.0 * np.exp(0.5 * base)[:, None], 1.0).log_prob(Y[:4]).sum(-1) + dist.Normal().log_prob(
        base
    )
    truth = float(jax.scipy.special.logsumexp(like) + np.log(base[1] - base[0]))
    weights = np.exp(like - like.max())
    some = np.random.default_rng(0).choice(base, 2000, p=weights / weights.sum())
    found = log_evidence({"a": 0.1 + 2.0 * np.exp(0.5 * some)}, model, (Y[:4],), symmetry=NO_SYMMETRY)
    assert found.value == pytest.approx(truth, abs=4 * found.error + 0.01)


def test_an_mcmc_lends_what_is_left_out():
    mcmc = MCMC(NUTS(normal), num_warmup=100, num_samples=200, progress_bar=False)
    with pytest.raises(ValueError, match="holds no draws"):
        log_evidence(mcmc)
    mcmc.run(jax.random.key(0), Y)
    own, given = log_evidence(mcmc), log_evidence(mcmc, normal)
    assert agrees(own, NORMAL)
    assert own.value == given.value
    # should NumPyro rename what it keeps: that is another matter than draws that are not there
    arguments = mcmc.__dict__.pop("_args")
    with pytest.raises(ValueError, match="does not say which model it ran"):
        log_evidence(mcmc)
    mcmc._args = arguments
    # other data are other evidence, and not silently the run's own
    assert log_evidence(mcmc, model_args=(Y + 0.1,)).value != own.value


def test_a_wrong_symmetry_is_refused():
    def ordered(y):
        loc = numpyro.sample("loc", dist.Normal(jnp.arange(2.0), 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)

    with pytest.raises(SymmetryError, match="not invariant"):
        log_evidence({"loc": np.ones((50, 2))}, ordered, (0.0,), symmetry=Symmetry({"loc": ("unit",)}))


def test_values_that_are_no_numbers_are_no_matter_where_the_model_has_no_use_for_them():
    y = np.where(Y > 1, np.nan, Y)
    seen = np.isfinite(y)

    def masked(y):
        loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
        numpyro.sample("y", dist.Normal(loc, 1.0).expand(y.shape).mask(seen), obs=jnp.where(seen, y, 0.0))

    precision = 0.25 + seen.sum()
    draws = {"loc": (DRAWS - LOC) * np.sqrt(PRECISION / precision) + y[seen].sum() / precision}
    truth = multivariate_normal(np.zeros(3), np.eye(3) + 4.0).logpdf(y[seen])
    assert agrees(log_evidence(draws, masked, (y,), symmetry=NO_SYMMETRY), truth)


def seen_alone(y, where=None):
    loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
    fn = dist.Normal(loc, 1.0).expand(np.shape(y))
    numpyro.sample("y", fn if where is None else fn.mask(where), obs=y)


# where NaN comes in, in the words of the error -> model, its arguments
GAPS = np.where(Y > 1, np.nan, Y)
WITH_GAPS = {
    "model_args[0] (1 of 4)": (seen_alone, (GAPS,), {}),
    "model_kwargs['y'] (1 of 4)": (lambda where=None, *, y: seen_alone(y, where), (), {"y": GAPS}),
    "model_args[0]['y'] (1 of 4)": (lambda data, where=None: seen_alone(data["y"], where), ({"y": GAPS},), {}),
    "observed site 'y' (1 of 4)": (lambda where=None: seen_alone(GAPS, where), (), {}),
}


@pytest.mark.parametrize("place", WITH_GAPS)
def test_data_that_are_no_numbers_are_named_wherever_they_come_in_and_are_fine_under_a_mask(place):
    model, args, kwargs = WITH_GAPS[place]
    with pytest.raises(SymmetryError, match=rf"no density at its observed sites \['y'\]: .* in .*{re.escape(place)}"):
        log_evidence({"loc": DRAWS}, model, args, kwargs, symmetry=NO_SYMMETRY)
    seen = np.isfinite(GAPS)
    precision = 0.25 + seen.sum()
    draws = {"loc": (DRAWS - LOC) * np.sqrt(PRECISION / precision) + GAPS[seen].sum() / precision}
    truth = multivariate_normal(np.zeros(3), np.eye(3) + 4.0).logpdf(GAPS[seen])
    assert agrees(log_evidence(draws, model, args, kwargs | {"where": seen}, symmetry=NO_SYMMETRY), truth)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "nested"}, "method must be"),
        ({"num_draws": 1}, "at least 2"),
        ({"num_permutations": 0}, "at least 1"),
        ({"model": None}, "do not know their model"),
        ({"model_args": (np.ma.masked_greater(Y, 1.0),)}, r"model_args\[0\] is a masked array \(1 of 4"),
        ({"model_args": (np.where(Y > 1, np.nan, Y),)}, r"NaN in model_args\[0\] \(1 of 4\), observed site 'y'"),
    ],
)
def test_options_that_do_not_fit(options, words):
    with pytest.raises(ValueError, match=words):
        log_evidence({"loc": DRAWS}, **{"model": normal, "model_args": (Y,), **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_draws": 2.5}, r"num_draws must be a whole number; got 2.5"),
        ({"num_permutations": 2.5}, "num_permutations must be a whole number"),
        ({"rng_key": 0}, r"rng_key must be one JAX random key"),
        ({"signs": "no"}, "signs must be True or False"),
        ({"symmetry": "loc"}, "symmetry must be a Symmetry.*got str"),
        ({"model_args": Y}, r"model_args must be a tuple .* an array \(4,\)"),
        ({"model_kwargs": [3]}, "model_kwargs must be a mapping"),
        ({"model": 7}, "model must be a NumPyro model"),
        ({"model_args": ()}, r"normal\(y, subsample_size=None\) does not fit its arguments: .* 'y'"),
        (
            {"model": lambda position: -(position["loc"] ** 2), "model_args": ()},
            "a log density of given values is passed with one of them",
        ),
        ({"model": max, "model_args": ()}, r"max\(\.\.\.\) does not fit its arguments: max expected"),
        ({"model": NO_SYMMETRY}, r"model must be a NumPyro model.*\(Symmetry\)"),
        ({"model_kwargs": NO_SYMMETRY}, r"got .*\(Symmetry\)\. .* by its own name, such as symmetry="),
        ({"data": AutoNormal(normal)}, r"with its parameters, \(guide, params\); got AutoNormal alone"),
        ({"data": (AutoNormal(normal), None)}, "mapping from names to values"),
    ],
)
def test_arguments_of_the_wrong_type(options, words):
    with pytest.raises(TypeError, match=words):
        log_evidence(**{"data": {"loc": DRAWS}, "model": normal, "model_args": (Y,), **options})


def test_a_log_density_without_sites_is_no_model():
    with pytest.raises(SymmetryError, match=r"(?s)samples no latent sites.*numpyro\.factor"):
        log_evidence({"loc": DRAWS}, lambda position: -(position["loc"] ** 2).sum(), ({"loc": DRAWS},))


def test_a_log_density_that_branches_on_values_is_told_so():
    def density(position):
        return -(position["loc"] ** 2) if position["loc"] > 0 else -2.0 * position["loc"] ** 2

    said = r"test_log_evidence.py:\d+, `return.*branches on a value of its parameters"
    with pytest.raises(SymmetryError, match=said):
        log_evidence({"loc": DRAWS}, density, ({"loc": jnp.zeros(())},), argnum=0)


def test_it_does_not_run_under_jit():
    with pytest.raises(TypeError, match="log_evidence needs numbers"):
        jax.jit(lambda draws: log_evidence({"loc": draws}, normal, (Y,)).value)(DRAWS)


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
    with pytest.raises(SymmetryError, match=r"Parameters \['loc_auto_scale'\] are missing"):
        log_evidence((AutoNormal(normal), {"loc_auto_loc": LOC}), model_args=(Y,))


def test_a_poor_proposal_is_warned_of():
    params = {"loc_auto_loc": LOC + 3.0, "loc_auto_scale": 0.3}
    with pytest.warns(SymmetryWarning, match="not reliable"):
        log_evidence((AutoNormal(normal), params), model_args=(Y,), num_draws=200)


def test_a_chain_that_hardly_moves_is_warned_of():
    stuck = LOC + np.repeat(np.array([-1.0, 1.0]), 20).reshape(2, 20) + 0.01 * DRAWS[:, :20]
    with pytest.warns(SymmetryWarning, match="not reliable"):
        log_evidence({"loc": stuck}, normal, (Y,), num_draws=200)


@pytest.mark.parametrize("change", [lambda x: x + 0.5, lambda x: LOC + 3.0 * (x - LOC), lambda x: LOC + (x - LOC) / 3])
def test_draws_of_something_else_are_warned_of(change):
    wrong = change(np.tile(DRAWS, (1, 5)))
    with pytest.warns(SymmetryWarning, match="lies .* nats below its lower bound. The draws are not those of"):
        found = log_evidence({"loc": wrong}, normal, (Y,))
    assert found.lower < NORMAL + 3 * found.lower_error


def test_the_last_draw_fills_a_batch():
    assert in_batch({"z": np.arange(3.0)}, 5)["z"].tolist() == [0.0, 1.0, 2.0, 2.0, 2.0]


def test_a_model_that_starts_nowhere_is_no_matter_of_its_data():
    def model(y):
        z = numpyro.sample("z", dist.Normal())
        numpyro.factor("nowhere", -jnp.inf)
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    draws = {"z": np.random.default_rng(0).normal(size=(2, 100))}
    with pytest.raises(RuntimeError, match="Cannot find valid initial parameters"):
        log_evidence(draws, model, (jnp.array(0.3),), symmetry=NO_SYMMETRY)
