"""Ratios of normalisers against Gaussians whose ratio is known: the value, and whether the error means what it says."""

from contextlib import nullcontext

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom, norm

from numpyro_symmetry import SymmetryError, SymmetryWarning
from numpyro_symmetry.entropy.importance import effective_number, pareto_shape
from numpyro_symmetry.evidence.bridge import Bound, Estimate, bridge, importance, lower_bound, upper_bound
from numpyro_symmetry.evidence.doubts import refuse_no_density, warn_if_unreliable, warn_of_contradiction

pytestmark = pytest.mark.usefixtures("strict_promotion")

LOG_RATIO = 3.7
LOG_NORMAL = -0.5 * np.log(2 * np.pi)


def log_weight(x, shift, scale):
    """Of a standard normal times e^3.7, under a normal of another place and scale."""
    return LOG_RATIO - 0.5 * x**2 - (-0.5 * ((x - shift) / scale) ** 2 - np.log(scale))


def draws(rng, count, shift, scale, *, chains=2, memory=0.0):
    """Log weights of a chain with the autocorrelation of an AR(1), stationary in the target, and of the proposal."""
    noise = rng.standard_normal((chains, count))
    x = noise[:, :1]
    for step in range(1, count):
        x = np.append(x, memory * x[:, -1:] + np.sqrt(1 - memory**2) * noise[:, step : step + 1], axis=1)
    proposed = shift + scale * rng.standard_normal(chains * count)
    return log_weight(x, shift, scale), log_weight(proposed, shift, scale)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.5), (1.0, 1.0), (0.5, 0.5)])
def test_bridge_finds_the_ratio(shift, scale):
    found = bridge(*draws(np.random.default_rng(0), 500, shift, scale))
    assert abs(found.value - LOG_RATIO) < 3 * found.error
    assert 0 < found.error < 0.1
    assert found.converged


def test_importance_finds_the_ratio():
    _, of_proposal = draws(np.random.default_rng(0), 1000, 0.3, 1.4)
    found = importance(of_proposal)
    assert abs(found.value - LOG_RATIO) < 3 * found.error
    assert 0 < found.error < 0.1
    assert found.of_proposal == effective_number(of_proposal) < len(of_proposal)
    assert found.of_target == np.inf


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_the_error_is_that_of_repeated_runs(memory):
    rng, scores = np.random.default_rng(1), []
    for _ in range(60):
        found = bridge(*draws(rng, 300, 0.7, 0.8, memory=memory))
        scores.append((found.value - LOG_RATIO) / found.error)
    assert 0.6 < np.mean(np.square(scores)) < 1.6
    assert abs(np.mean(scores)) < 4 / np.sqrt(60)


def test_the_error_of_importance_sampling_is_that_of_repeated_runs():
    rng, scores = np.random.default_rng(2), []
    for _ in range(60):
        found = importance(draws(rng, 300, 0.3, 1.3)[1])
        scores.append((found.value - LOG_RATIO) / found.error)
    assert 0.6 < np.mean(np.square(scores)) < 1.6


def test_autocorrelation_counts():
    found = [bridge(*draws(np.random.default_rng(3), 500, 0.7, 0.8, memory=memory)) for memory in (0.0, 0.95)]
    assert found[1].error > 1.5 * found[0].error
    assert found[1].of_target < 0.2 * found[0].of_target


def test_chains_that_disagree_are_worth_few_draws():
    rng = np.random.default_rng(4)
    apart = rng.standard_normal((2, 500)) + np.array([[0.0], [4.0]])
    assert bridge(apart, rng.standard_normal(1000)).of_target < 20


def test_the_same_density_has_no_error():
    found = bridge(np.full((2, 50), LOG_RATIO), np.full(100, LOG_RATIO))
    assert (found.num_rounds, found.converged) == (1, True)
    assert found.value == pytest.approx(LOG_RATIO, abs=1e-9)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert importance(np.full(100, LOG_RATIO)).of_proposal == pytest.approx(100.0)


@pytest.mark.parametrize("constant", [1e5, 3e6, 1e8])
def test_a_constant_moves_the_value_and_nothing_else(constant):
    of_target, of_proposal = draws(np.random.default_rng(5), 200, 0.7, 0.8)
    found, moved = bridge(of_target, of_proposal), bridge(of_target - constant, of_proposal - constant)
    assert moved.converged
    assert moved.value == pytest.approx(found.value - constant, abs=1e-6)
    assert moved.error == pytest.approx(found.error, rel=1e-4)


def test_draws_outside_the_support_weigh_nothing():
    # a proposal of which half misses the support halves the mean weight
    of_target = np.full((1, 100), LOG_RATIO + np.log(2.0))
    of_proposal = np.where(np.arange(400) % 2, LOG_RATIO + np.log(2.0), -np.inf)
    assert importance(of_proposal).value == pytest.approx(LOG_RATIO)
    assert bridge(of_target, of_proposal).value == pytest.approx(LOG_RATIO, abs=1e-8)


def test_densities_that_hardly_meet_have_a_large_error():
    found = bridge(*draws(np.random.default_rng(6), 300, 7.0, 1.0))
    assert found.error > 0.3


def test_the_proposal_s_draws_that_meet_the_target_are_counted():
    met = bridge(*draws(np.random.default_rng(6), 300, 0.3, 1.2)).of_proposal
    missed = bridge(*draws(np.random.default_rng(6), 300, 7.0, 1.0)).of_proposal
    assert missed < 25 < 200 < met


@pytest.mark.parametrize(
    ("found", "method", "said"),
    [
        (Estimate(0.0, 0.1, 300.0, 200.0), "bridge", None),
        (Estimate(0.0, 0.1, np.inf, 200.0), "importance", None),
        # an error that more draws have brought below half a nat, of which few meet the posterior even so
        (Estimate(0.0, 0.3, 300.0, 12.0), "bridge", "only 12 of the proposal's 32000 draws lie where .* Draw more"),
        (Estimate(0.0, 0.3, 12.0, 300.0), "bridge", "only 12 of the posterior's draws are effective.* Sample longer.$"),
        (Estimate(0.0, 0.3, np.inf, 80.0), "importance", "only 80 of the proposal's 32000 draws are effective"),
        (Estimate(0.0, 0.7, 300.0, 300.0), "bridge", "its error is 0.7 nats"),
        (Estimate(0.0, np.nan, 300.0, 300.0), "bridge", "its error is nan nats"),
        (Estimate(0.0, 0.1, 300.0, 300.0, 1000, False), "bridge", "did not settle in 1000 rounds"),
        # at the borders and beside them
        (Estimate(0.0, 0.49, 25.0, 25.0), "bridge", None),
        (Estimate(0.0, 0.5, 25.0, 25.0), "bridge", "its error is 0.5 nats. Sample longer, or draw more"),
        (Estimate(0.0, 0.1, 24.4, 25.0), "bridge", "only 24 of the posterior's draws"),
        (Estimate(0.0, 0.1, 25.0, 24.4), "bridge", "only 24 of the proposal's 32000 draws lie"),
        (Estimate(0.0, 0.1, np.inf, 100.0), "importance", None),
        (Estimate(0.0, 0.1, np.inf, 99.0), "importance", "only 99 of the proposal's"),
    ],
)
def test_what_makes_an_estimate_unreliable_is_said_with_its_remedy(found, method, said):
    if said is None:
        warn_if_unreliable(found, method, 32_000)
        return
    with pytest.warns(SymmetryWarning, match=said):
        warn_if_unreliable(found, method, 32_000)


@pytest.mark.parametrize(
    ("lower", "upper", "said"),
    [
        (2.0, -2.0, None),  # four errors, of both together: 0.3 and 0.4
        (2.01, 5.0, "the estimate lies 2.0 nats below its lower bound"),
        (-5.0, -2.01, "the estimate lies 2.0 nats above its upper bound"),
        (-np.inf, np.inf, None),
    ],
)
def test_an_estimate_beyond_a_bound_by_more_than_chance_is_warned_of(lower, upper, said):
    with pytest.warns(SymmetryWarning, match=said) if said else nullcontext():
        warn_of_contradiction(Estimate(0.0, 0.3, 300.0, 300.0), Bound(lower, 0.4), Bound(upper, 0.4))


def test_draws_without_density_are_refused_with_their_number():
    refuse_no_density(np.zeros(3))
    with pytest.raises(SymmetryError, match="gives 2 of the 3 draws that are bridged no density"):
        refuse_no_density(np.array([0.0, -np.inf, np.nan]))


@pytest.mark.parametrize("seed", [0, 2])
def test_an_error_of_weights_without_variance_is_said_to_be_a_guess(seed):
    # a mean-field Gaussian of a correlated posterior, as SVI fits it: the error is several times too small
    rng, precision = np.random.default_rng(seed), np.eye(2) + 40.0 * np.outer([1.0, 0.9], [1.0, 0.9])
    z = rng.normal(size=(2000, 2)) / np.sqrt(np.diag(precision))
    log_target = 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * np.einsum("ni,ij,nj->n", z, precision, z)
    log_weights = log_target - 0.5 * np.log(np.diag(precision)).sum() + 0.5 * z**2 @ np.diag(precision)
    found = importance(log_weights)
    assert found.of_proposal > 100
    assert abs(found.value) > 3 * found.error
    with pytest.warns(SymmetryWarning, match=r"draws are effective, so that the error is itself a guess"):
        warn_if_unreliable(found, "importance", 2000, pareto_shape(log_weights))


def test_a_wide_proposal_has_few_effective_draws_and_an_error_to_be_trusted():
    z = 2.0 * np.random.default_rng(0).normal(size=(2000, 5))
    log_weights = 5 * np.log(2.0) - 0.375 * (z**2).sum(1)
    found = importance(log_weights)
    assert 100 < found.of_proposal < 0.2 * 2000
    assert abs(found.value) < 3 * found.error
    warn_if_unreliable(found, "importance", 2000, pareto_shape(log_weights))


def test_of_few_draws_none_are_asked_for_beyond_half():
    warn_if_unreliable(Estimate(0.0, 0.1, 300.0, 11.0), "bridge", 20)


def test_three_draws_are_no_chain():
    found = bridge(np.zeros((2, 3)) + np.arange(3), np.zeros(10))
    assert np.isfinite(found.value)
    assert found.of_target == 6


@pytest.mark.parametrize(("of_target", "of_proposal"), [(100, 3000), (1500, 100)])
def test_the_bridge_is_the_optimal_one(of_target, of_proposal):
    # which is the maximum likelihood of telling the two kinds of draws apart, each as often as it was drawn (Geyer)
    rng = np.random.default_rng(7)
    target = log_weight(rng.standard_normal((1, of_target)), 1.5, 0.8)
    proposal = log_weight(1.5 + 0.8 * rng.standard_normal(of_proposal), 1.5, 0.8)
    found = bridge(target, proposal)
    log_odds = np.log(found.of_target / of_proposal)

    def score(value):
        mistaken = expit(value - target - log_odds).mean() * found.of_target
        return mistaken - expit(proposal - value + log_odds).sum()

    assert found.value == pytest.approx(brentq(score, -10, 10, xtol=1e-12), abs=1e-8)


@pytest.mark.parametrize("shift", [0.5, 3.0])
def test_the_error_is_that_of_the_formula(shift):
    # Frühwirth-Schnatter's eq. 22 by quadrature; far apart, the weights that are bridged have a mean far below one
    found = bridge(*draws(np.random.default_rng(8), 2000, shift, 1.0, chains=4))
    x = np.linspace(-10, 14, 20_001)
    target, proposal = norm(0, 1).pdf(x), norm(shift, 1).pdf(x)
    num_target, num_proposal = found.of_target, 8000
    mixed = (num_target * target + num_proposal * proposal) / (num_target + num_proposal)

    def relative_variance(of, under):
        mean, second = (np.trapezoid(under * (of / mixed) ** power, x) for power in (1, 2))
        return second / mean**2 - 1

    variance = relative_variance(target, proposal) / num_proposal + relative_variance(proposal, target) / num_target
    assert found.error == pytest.approx(np.sqrt(variance), rel=0.15)


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_bounds_of_equal_weights_are_exact():
    for count in (2, 7, 100):
        lower = lower_bound(np.full(count, LOG_RATIO))
        upper = upper_bound(np.full((2, 9), LOG_RATIO), np.full(count, LOG_RATIO))
        assert [*lower, *upper] == pytest.approx([LOG_RATIO, 0.0, LOG_RATIO, 0.0], abs=1e-12)


def test_bounds_have_the_expectation_of_log_means_of_weights():
    # weights of 1 and 16, the latter a fifth of the proposal's draws and so four fifths of the target's: Z = 4
    heavy, share, size, runs = 16.0, 0.2, 3, 300
    rng, lower, upper = np.random.default_rng(9), [], []
    for _ in range(runs):
        of_proposal = np.where(rng.random(20 * size) < share, np.log(heavy), 0.0)
        of_target = np.where(rng.random((2, 30)) < share * heavy / 4.0, np.log(heavy), 0.0)
        lower.append(lower_bound(of_proposal))
        upper.append(upper_bound(of_target, of_proposal))
    count = np.arange(size + 1)
    of_block, total = binom(size, share).pmf(count), count * heavy + size - count
    below = of_block @ np.log(total / size)
    above = of_block @ (0.8 * np.log((total + heavy) / (size + 1)) + 0.2 * np.log((total + 1) / (size + 1)))
    assert below < np.log(4.0) < above
    for found, expected in ((lower, below), (upper, above)):
        values, errors = np.array(found).T
        assert abs(values.mean() - expected) < 3 * values.std() / np.sqrt(runs)
        assert 0.7 < np.mean(((values - expected) / errors) ** 2) < 1.5


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_bounds_enclose_the_ratio_and_their_errors_are_those_of_repeated_runs(memory):
    rng, found = np.random.default_rng(10), []
    for _ in range(60):
        of_target, of_proposal = draws(rng, 300, 0.7, 0.8, memory=memory)
        found.append([*lower_bound(of_proposal), *upper_bound(of_target, of_proposal)])
    lower, lower_error, upper, upper_error = np.array(found).T
    assert lower.mean() < LOG_RATIO + 3 * lower.std() / np.sqrt(60)
    assert upper.mean() > LOG_RATIO - 3 * upper.std() / np.sqrt(60)
    for values, errors in ((lower, lower_error), (upper, upper_error)):
        assert 0.6 < np.mean(((values - values.mean()) / errors) ** 2) < 1.6


@pytest.mark.parametrize("of", [bridge, upper_bound])
def test_autocorrelation_is_in_the_error(of):
    # the proposal's weights are all alike, so that the chains are the only noise
    rng, found = np.random.default_rng(12), []
    for _ in range(60):
        of_target, _ = draws(rng, 250, 1.0, 1.0, chains=4, memory=0.9)
        found.append(of(of_target, np.full(20, LOG_RATIO)))
    values, errors = np.array([[each.value, each.error] for each in found]).T
    assert 0.6 < np.mean(((values - values.mean()) / errors) ** 2) < 1.6


def test_more_draws_of_the_proposal_tighten_both_sides():
    rng = np.random.default_rng(11)
    of_target, few = draws(rng, 2000, 1.5, 0.8)
    many = draws(rng, 20_000, 1.5, 0.8)[1]
    assert lower_bound(few[:100]).value < lower_bound(many).value - 0.1
    assert upper_bound(of_target, few[:100]).value > upper_bound(of_target, many).value + 0.1


def test_a_block_without_weight_is_infinitely_low_and_does_not_touch_the_upper_side():
    of_proposal = np.where(np.arange(40) < 2, -np.inf, LOG_RATIO)
    assert lower_bound(of_proposal).value == -np.inf
    assert np.isfinite(upper_bound(np.full((1, 5), LOG_RATIO), of_proposal).value)
