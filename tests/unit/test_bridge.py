"""Ratios of normalisers against Gaussians whose ratio is known: the value, and whether the error means what it says."""

import numpy as np
import pytest

from numpyro_symmetry.diagnostics.bridge import bridge, importance, lower_bound, upper_bound
from numpyro_symmetry.entropy.importance import effective_number

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
    assert found.effective == effective_number(of_proposal) < len(of_proposal)


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
    assert found[1].effective < 0.2 * found[0].effective


def test_chains_that_disagree_are_worth_few_draws():
    rng = np.random.default_rng(4)
    apart = rng.standard_normal((2, 500)) + np.array([[0.0], [4.0]])
    assert bridge(apart, rng.standard_normal(1000)).effective < 20


def test_the_same_density_has_no_error():
    found = bridge(np.full((2, 50), LOG_RATIO), np.full(100, LOG_RATIO))
    assert found.value == pytest.approx(LOG_RATIO, abs=1e-9)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert importance(np.full(100, LOG_RATIO)).effective == pytest.approx(100.0)


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


def test_three_draws_are_no_chain():
    found = bridge(np.zeros((2, 3)) + np.arange(3), np.zeros(10))
    assert np.isfinite(found.value)
    assert found.effective == 6
