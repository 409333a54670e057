"""The tail of importance weights: against ArviZ, against known shapes, and where nothing can be told."""

import math

import numpy as np
import pytest
from scipy.stats import genpareto

from numpyro_symmetry.entropy.importance import effective_number, log_mean, lost_to_rounding, pareto_shape

pytestmark = pytest.mark.usefixtures("strict_promotion")


@pytest.mark.parametrize("size", [30, 257, 4000])
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_pareto_shape_is_that_of_arviz(size, scale):
    psislw = getattr(pytest.importorskip("arviz"), "psislw", None)
    if psislw is None:
        pytest.skip("ArviZ 1 fits the tail by another rule")
    log_weights = scale * np.random.default_rng(size).normal(size=size)
    assert pareto_shape(log_weights - 400.0) == pytest.approx(float(psislw(log_weights)[1]), abs=1e-6)


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.7, 1.2])
def test_pareto_shape_of_known_tails(shape):
    # the mean of ten estimates, whose prior weighs 10 of 10 + 1500 draws of the tail
    found = [
        pareto_shape(np.log(genpareto.rvs(shape, size=250_000, random_state=np.random.default_rng(seed))))
        for seed in range(10)
    ]
    error = np.std(found, ddof=1) / 10**0.5
    assert abs(np.mean(found) - (1500 * shape + 5) / 1510) < 4 * error + 0.01


def test_equal_weights_have_no_tail_and_few_weights_tell_nothing():
    assert pareto_shape(np.full(100, -3.0)) == -math.inf
    assert [math.isnan(pareto_shape(np.arange(float(count)))) for count in (20, 21)] == [True, False]
    assert math.isnan(pareto_shape(np.zeros(20)))
    assert math.isnan(pareto_shape(np.append(np.zeros(100), np.nan)))
    assert math.isnan(pareto_shape(np.full(100, -np.inf)))
    # one weight is all: whatever the tail is, it has no mean
    assert pareto_shape(np.append(np.full(99, -2000.0), 0.0)) > 0.7
    # weights of zero are weights
    assert math.isfinite(pareto_shape(np.append(np.random.default_rng(0).normal(size=100), [-np.inf] * 20)))


def test_effective_number_is_from_one_to_all():
    assert effective_number(np.full(50, 700.0)) == pytest.approx(50.0)
    assert effective_number([0.0, -800.0, -np.inf]) == pytest.approx(1.0)
    weights = np.random.default_rng(0).uniform(size=40)
    assert effective_number(np.log(weights)) == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert math.isnan(effective_number([0.0, np.inf]))
    with pytest.raises(ValueError, match=r"vector \(num_draws,\)"):
        effective_number(np.zeros((2, 3)))


def test_error_of_a_log_mean_is_the_relative_error_of_the_mean():
    weights = np.random.default_rng(0).uniform(size=40)
    value, error = log_mean(np.log(weights) - 2000.0)
    assert value == pytest.approx(np.log(weights.mean()) - 2000.0)
    assert error == pytest.approx(weights.std(ddof=1) / weights.mean() / 40**0.5)
    assert error == pytest.approx(((40 / effective_number(np.log(weights)) - 1) / 39) ** 0.5)
    assert log_mean(np.full(7, -3.3)) == (pytest.approx(-3.3), 0.0)
    assert log_mean(np.array([0.0, -np.inf])) == (pytest.approx(-math.log(2.0)), pytest.approx(1.0))
    np.testing.assert_equal(log_mean(np.array([-3.5])), (-3.5, math.nan))


@pytest.mark.parametrize(
    ("largest", "dtype", "error", "rounding"),
    [
        (-1e6, np.float32, 0.0, None),
        (-1e7, np.float32, 0.1, "0.6"),
        (1e7, np.float32, math.nan, "0.6"),
        (1e7, np.float32, 2.0, None),
        (1e12, np.float64, 0.0, None),
        (1e16, np.float64, 0.0, "1.1"),
        (math.inf, np.float32, 0.0, None),
    ],
)
def test_rounding_is_told_where_it_is_more_than_an_error_and_more_than_decides_nothing(largest, dtype, error, rounding):
    said = lost_to_rounding(np.array([0.0, largest, math.nan], dtype), error)
    assert (f"rounds by up to {rounding}. Compute in float64" in said) if rounding else said == ""
