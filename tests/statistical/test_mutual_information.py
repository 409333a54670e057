"""Estimators of the mutual information against enumeration, in every regime, in standard errors."""

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import Symmetry, log_permanent, mutual_information
from numpyro_symmetry.entropy import (
    Factorised,
    GaussianFactors,
    information,
    log_proposal_of_identity,
    sample_proposal,
)
from numpyro_symmetry.entropy.sequential import NUM_SCALING_STEPS
from tests.support import oracles, regimes
from tests.support.tables import every_estimator


def some(*names):
    """Regimes, of which only the named ones are in the fast suite."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in regimes.NAMES]


def se(x):
    return float(np.std(np.asarray(x, float), ddof=1) / math.sqrt(len(x)))


@partial(jax.jit, static_argnames=("estimator", "num_permutations", "bound"))
def compiled(table, rng_key, **options):
    return mutual_information(table, rng_key=rng_key, **options)


def estimate(table, estimator, **options):
    return np.asarray(compiled(table, jax.random.key(7), estimator=estimator, **options), float)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("x64", [False, True])
def test_permanent_against_enumeration(n, x64):
    with jax.enable_x64(x64):
        matrices = np.random.default_rng(n).normal(scale=30.0, size=(3, n, n))
        fast = log_permanent(jnp.asarray(matrices))
        slow = [oracles.log_permanent(matrix) for matrix in matrices]
        np.testing.assert_allclose(fast, slow, rtol=1e-12 if x64 else 1e-5)


@pytest.mark.parametrize(
    ("n", "value"), [pytest.param(12, math.lgamma(13), marks=pytest.mark.slow), (16, math.lgamma(17))]
)
def test_permanent_of_ones_is_a_factorial(n, value):
    np.testing.assert_allclose(jax.jit(log_permanent)(jnp.zeros((n, n))), value, rtol=1e-6)


def test_permanent_gradient_is_the_marginal_of_each_assignment():
    log_matrix = jnp.asarray(np.random.default_rng(0).normal(size=(6, 6)))
    marginals = jax.jit(jax.grad(log_permanent))(log_matrix)
    np.testing.assert_allclose(marginals.sum(0), 1.0, rtol=1e-5)
    np.testing.assert_allclose(marginals.sum(1), 1.0, rtol=1e-5)
    assert (marginals > 0).all()


def test_permanent_with_zeros_and_a_wide_range():
    assert float(log_permanent(jnp.where(jnp.eye(6, dtype=bool), 5.0, -jnp.inf))) == 30.0
    assert float(log_permanent(jnp.where(jnp.eye(6, dtype=bool), 0.0, -2e4))) == 0.0


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("estimator", ["exact", "sequential", "importance", "infonce"])
def test_tables_in_half_precision_are_those_numbers(dtype, estimator):
    half = jnp.asarray(30.0 * np.random.default_rng(0).normal(size=(6, 6)), dtype)
    for read in (log_permanent, partial(mutual_information, estimator=estimator, rng_key=jax.random.key(0))):
        found, expected = read(half), read(half.astype(jnp.float32))
        assert (found.dtype, float(found)) == (expected.dtype, float(expected))


@pytest.mark.parametrize("bad", [jnp.zeros(3), jnp.zeros((21, 21))])
def test_permanent_refuses(bad):
    with pytest.raises(ValueError, match=r"expects a table \(\.\.\., n, n\)|at most 20"):
        log_permanent(bad)


@pytest.mark.parametrize("signed", [False, True])
def test_exact_is_enumeration(signed):
    with jax.enable_x64(True):
        pair = np.random.default_rng(3).normal(size=(2, 5, 4, 4))
        flipped = pair[1] if signed else None
        fast = mutual_information(jnp.asarray(pair[0]), estimator="exact", log_density_flipped=flipped)
        slow = [oracles.information(pair[0][i], pair[1][i] if signed else None) for i in range(5)]
        np.testing.assert_allclose(fast, slow, rtol=1e-12)


@pytest.mark.parametrize("steps", [0, 5])
@pytest.mark.parametrize("regime", ["initial", "pairs", "half nearly"])
def test_sequential_proposal_against_its_definition(regime, steps):
    with jax.enable_x64(True):
        table = regimes.tables(regime, 5, 2, 1)[0]
        expected = oracles.sequential_proposal(table, steps)
        assert abs(sum(map(math.exp, expected.values())) - 1) < 1e-9

        @jax.jit
        def both(key, table):
            identity = log_proposal_of_identity(table, num_scaling_steps=steps)
            return identity, sample_proposal(key, table, 4000, num_scaling_steps=steps)

        identity, (drawn, log_proposals) = both(jax.random.key(0), table)
        np.testing.assert_allclose(identity, expected[tuple(range(5))], rtol=1e-9)
        for permutation, log_proposal in zip(np.asarray(drawn).tolist(), np.asarray(log_proposals), strict=True):
            assert abs(expected[tuple(permutation)] - log_proposal) < 1e-9
        shares = {p: 0 for p in expected}
        for permutation in np.asarray(drawn).tolist():
            shares[tuple(permutation)] += 1
        for permutation, log_probability in expected.items():
            p = math.exp(log_probability)
            assert abs(shares[permutation] / 4000 - p) <= 5 * math.sqrt(p * (1 - p) / 4000) + 1e-3


def test_sequential_proposal_cannot_tell_which_label_is_true():
    """Relabelling the columns relabels the proposal and does nothing else: the reason why the bound is strict."""
    with jax.enable_x64(True):
        table = np.asarray(regimes.tables("initial", 4, 2, 1)[0])
        shuffle = np.array([2, 0, 3, 1])
        before = oracles.sequential_proposal(table, NUM_SCALING_STEPS)
        of_identity = jax.jit(log_proposal_of_identity)
        for permutation, log_probability in before.items():
            # column shuffle[j] of the old table is column j of the new one
            columns = shuffle[np.array(permutation)]
            moved = jnp.asarray(table[:, columns])
            np.testing.assert_allclose(of_identity(moved), before[tuple(columns)], rtol=1e-9)
            assert math.isfinite(log_probability)


@pytest.mark.parametrize(("n", "steps"), [(2, 1), (8, 0), (8, 3), (9, 1)])
def test_sequential_gradient_is_that_of_the_bound(n, steps):
    def bound(table):
        return log_proposal_of_identity(table, num_scaling_steps=steps)

    with jax.enable_x64(True):
        table = regimes.tables("initial", n, 2, 1)[0]
        both = jax.jit(jax.value_and_grad(bound))
        _, gradient = both(table)
        direction = jax.random.normal(jax.random.key(5), table.shape)
        step = 1e-6
        slope = (both(table + step * direction)[0] - both(table - step * direction)[0]) / (2 * step)
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("regime", regimes.NAMES)
@pytest.mark.parametrize(("n", "d"), [(8, 3), pytest.param(10, 3, marks=pytest.mark.slow), (10, 75)])
def test_sequential_is_within_three_percent_and_below(regime, n, d):
    table = regimes.tables(regime, n, d, 150)
    exact, sequential = estimate(table, "exact"), estimate(table, "sequential")
    difference = sequential - exact
    assert difference.mean() <= 4 * se(difference) + 1e-4
    if exact.mean() > 1.0:
        assert sequential.mean() >= 0.97 * exact.mean()


@pytest.mark.parametrize("regime", some("overlapping", "initial", "half nearly", "pairs"))
def test_importance_is_a_sandwich(regime):
    table = regimes.tables(regime, 8, 3, 300)
    exact = estimate(table, "exact")
    below = estimate(table, "importance", num_permutations=16) - exact
    above = estimate(table, "importance", num_permutations=16, bound="upper") - exact
    assert below.mean() <= 4 * se(below) + 1e-4
    assert above.mean() >= -4 * se(above) - 1e-4
    lower, upper = estimate(table, "importance", num_permutations=16, bound="both") - exact
    assert lower.mean() <= 4 * se(lower) + 1e-4
    assert upper.mean() >= -4 * se(upper) - 1e-4
    np.testing.assert_allclose(upper, above, atol=1e-5)


@pytest.mark.parametrize("regime", some("separated", "initial", "pairs"))
def test_infonce_obeys_both_caps_and_grows(regime):
    table = regimes.tables(regime, 5, 2, 4000)
    exact, last = estimate(table, "exact"), -1.0
    for count in (2, 4, 16, 64):
        infonce = estimate(table, "infonce", num_permutations=count)
        assert (infonce <= math.log(count) + 1e-5).all()
        assert infonce.mean() <= exact.mean() + 4 * se(infonce - exact)
        assert infonce.mean() >= last - 4 * se(infonce)
        last = infonce.mean()


@every_estimator
def test_tables_of_integers(estimator):
    table, options = np.array([[0, -3, -4], [-2, 0, -1], [-5, -3, 0]]), {"rng_key": jax.random.key(7)}
    # not compiled, or JAX would have made single precision of them
    found = mutual_information(table, estimator=estimator, **options)
    np.testing.assert_array_equal(found, mutual_information(table.astype(np.float32), estimator=estimator, **options))
    with pytest.raises(ValueError, match="n at least 1"):
        estimate(np.zeros((0, 0)), estimator)


def test_two_elements_and_two_permutations_give_half():
    table = regimes.tables("initial", 2, 1, 40_000)
    half = estimate(table, "infonce", num_permutations=2) - 0.5 * estimate(table, "exact")
    assert abs(half.mean()) < 4 * se(half)


def test_separated_and_collapsed_units():
    for estimator in ("exact", "sequential"):
        apart = estimate(regimes.tables("separated", 10, 75, 5), estimator)
        np.testing.assert_allclose(apart, math.lgamma(11), rtol=1e-6)
        together = estimate(regimes.tables("collapsed", 10, 3, 5), estimator)
        np.testing.assert_allclose(together, 0.0, atol=2e-5)


def test_float32_at_width_512_is_finite_and_close_to_float64():
    table = regimes.tables("overlapping", 512, 6, 1)[0]
    both = jax.jit(jax.value_and_grad(log_proposal_of_identity))
    single = both(table)
    with jax.enable_x64(True):
        double = both(jnp.asarray(np.asarray(table), float))
    np.testing.assert_allclose(single[0], double[0], rtol=1e-4)
    np.testing.assert_allclose(single[1], double[1], atol=1e-4)


def test_gradients_stay_finite_far_apart():
    table = -1e5 * (1.0 - jnp.eye(64))
    value, gradient = jax.jit(jax.value_and_grad(lambda t: mutual_information(t, estimator="sequential")))(table)
    np.testing.assert_allclose(value, math.lgamma(65), rtol=1e-6)
    assert np.isfinite(np.asarray(gradient)).all()


def test_training_gradients_agree_with_exact_ones():
    """With respect to means and log scales, reparametrised: cosine of the mean gradients at n = 8."""
    for regime in ("overlapping", "initial", "pairs", "half nearly"):
        loc, scale = regimes.factors(regime, 8, 3)
        noise = jax.random.normal(jax.random.key(11), (1500, 8, 3))

        def mean_information(parameters, estimator, noise=noise):
            loc, log_scale = parameters
            scale = jnp.exp(log_scale)
            tables = jax.vmap(lambda e: regimes.log_density(loc + scale * e, loc, scale))(noise)
            return mutual_information(tables, estimator=estimator).mean()

        gradients = [
            np.concatenate([np.ravel(g) for g in jax.grad(mean_information)((loc, jnp.log(scale)), estimator)])
            for estimator in ("exact", "sequential")
        ]
        cosine = gradients[0] @ gradients[1] / np.prod([np.linalg.norm(g) for g in gradients])
        assert cosine >= 0.98, regime


def terms_of(tables):
    """Log ratio of every element of a small group, the identity's first, and the permutation of each."""
    n = tables[0].shape[-1]
    permutations = list(itertools.permutations(range(n)))
    elements = list(itertools.product(permutations, itertools.product(range(len(tables)), repeat=n)))
    own = np.trace(tables[0])
    return np.array([sum(tables[c[i]][i, s[i]] for i in range(n)) - own for s, c in elements]), permutations


def test_importance_weighs_the_identity_below_and_only_what_was_drawn_above():
    """On one table, against all that the proposal can draw: two permutations below, one of which is the identity."""
    table = np.random.default_rng(8).normal(scale=2.0, size=(4, 4)).astype(np.float32)
    log_ratios, permutations = terms_of([table])
    proposal = oracles.sequential_proposal(table, NUM_SCALING_STEPS)
    log_proposals = np.array([proposal[p] for p in permutations])
    weights, chances = log_ratios - log_proposals, np.exp(log_proposals)
    pairs = weights[:, None], weights[None]
    log_order = math.lgamma(5)
    expected = {
        "lower": log_order - chances @ np.logaddexp(weights, weights[0]) + math.log(2),
        "upper": log_order - chances @ np.logaddexp(*pairs) @ chances + math.log(2),
    }
    assert expected["upper"] > expected["lower"] + 0.05
    tables = jnp.broadcast_to(jnp.asarray(table, jnp.float32), (20_000, 4, 4))
    both = estimate(tables, "importance", num_permutations=2, bound="both")
    for bound, together in zip(("lower", "upper"), both, strict=True):
        for values in (estimate(tables, "importance", num_permutations=2, bound=bound), together):
            assert abs(values.mean() - expected[bound]) <= 4 * se(values) + 1e-5
    alone = estimate(tables[0], "importance", num_permutations=1)
    np.testing.assert_allclose(alone, estimate(tables[0], "sequential"), rtol=1e-5)


def test_infonce_draws_signs_too():
    """On one pair of tables, against all eight elements."""
    pair = np.random.default_rng(4).normal(size=(2, 2, 2))
    log_ratios, _ = terms_of(pair)
    expected = math.log(2) - np.logaddexp(log_ratios, 0.0).mean()
    tables = jnp.broadcast_to(jnp.asarray(pair, jnp.float32)[:, None], (2, 20_000, 2, 2))
    values = estimate(tables[0], "infonce", num_permutations=2, log_density_flipped=tables[1])
    assert abs(values.mean() - expected) <= 4 * se(values)
    permutations_only = math.log(2) - np.logaddexp(terms_of(pair[:1])[0], 0.0).mean()
    assert abs(permutations_only - expected) > 20 * se(values)


def test_zeros_leave_gradients_finite():
    rng = np.random.default_rng(0)
    slope = jax.jit(jax.grad(log_permanent))
    for n in (4, 9):
        zeros = (rng.uniform(size=(n, n)) < 0.4) & ~np.eye(n, dtype=bool)
        table = jnp.where(zeros, -jnp.inf, rng.normal(size=(n, n)))
        marginals = np.asarray(slope(table))
        np.testing.assert_allclose(marginals.sum(0), 1.0, rtol=1e-5)
        np.testing.assert_allclose(marginals.sum(1), 1.0, rtol=1e-5)
        np.testing.assert_array_equal(marginals[zeros], 0.0)
        np.testing.assert_array_equal(slope(table.at[0].set(-jnp.inf)), 0.0)


@every_estimator
def test_densities_of_zero(estimator):
    def information(pair):
        options = {"estimator": estimator, "rng_key": jax.random.key(0), "log_density_flipped": pair[1]}
        return mutual_information(pair[0], **options)

    nothing = jnp.full((5, 5), -jnp.inf)
    value, gradient = jax.jit(jax.value_and_grad(information))(
        jnp.stack([nothing.at[jnp.diag_indices(5)].set(0.0), nothing])
    )
    np.testing.assert_allclose(value, math.log(8) if estimator == "infonce" else math.log(120 * 32), rtol=1e-6)
    assert np.isfinite(np.asarray(gradient)).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"log_density": jnp.zeros((3, 3)).at[0, 1].set(jnp.inf)},
            ValueError,
            r"NaN or \+inf in 1 of 9",
        ),
        (
            {"log_density": jnp.zeros((3, 3)).at[0, 1].set(jnp.nan)},
            ValueError,
            r"NaN or \+inf in 1 of 9",
        ),
        ({"log_density": jnp.full((3, 3), -jnp.inf)}, ValueError, "-inf on its diagonal"),
        ({"log_density": jnp.zeros((3, 3), complex)}, TypeError, "expected real numbers"),
        (
            {"log_density": np.ma.masked_array(np.zeros((3, 3)), np.eye(3))},
            ValueError,
            "is a masked array",
        ),
        ({"log_density_flipped": jnp.zeros((1, 3))}, ValueError, r"log_density_flipped expects.*got \(1, 3\)"),
        ({"log_density_flipped": jnp.zeros((3, 1))}, ValueError, r"log_density_flipped expects.*got \(3, 1\)"),
        ({"log_density_flipped": 0.0}, ValueError, r"log_density_flipped expects.*got \(\)"),
        ({"log_density_flipped": jnp.zeros((2, 3, 3))}, ValueError, r"the shape of log_density, \(3, 3\)"),
        ({"rng_key": 0}, TypeError, "rng_key must be one JAX random key"),
        ({"num_permutations": 2.5}, TypeError, "num_permutations must be a whole number"),
    ],
)
def test_what_is_no_table_key_or_count(change, error, message):
    options = {"log_density": jnp.zeros((3, 3)), "estimator": "importance", "rng_key": jax.random.key(0)} | change
    with pytest.raises(error, match=message):
        mutual_information(options.pop("log_density"), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "nonsense"}, "estimator must be one of.*'tight'.*got 'nonsense'"),
        ({"estimator": "importance"}, "pass rng_key"),
        ({"estimator": "sequential", "bound": "both"}, "is a lower bound"),
    ],
)
def test_information_of_a_draw_refuses_what_no_estimator_has(options, message):
    symmetry = Symmetry({"w": ("a",)}).bind({"w": np.zeros(3)})
    factors = GaussianFactors({"w": jnp.zeros(3)}, {"w": jnp.ones(3)})
    with pytest.raises(ValueError, match=message):
        information(Factorised(factors), symmetry, {"w": jnp.zeros(3)}, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "exact", "bound": "middle"}, "bound must be one of"),
        ({"estimator": "sequential", "bound": "upper"}, "is a lower bound"),
        ({"estimator": "importance", "rng_key": jax.random.PRNGKey(0), "num_permutations": 0}, "must be at least 1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        mutual_information(jnp.zeros((3, 3)), **options)


def test_bad_tables():
    with pytest.raises(ValueError, match=r"expects a table \(\.\.\., n, n\).*got \(2, 3\)"):
        mutual_information(jnp.zeros((2, 3)), estimator="exact")
