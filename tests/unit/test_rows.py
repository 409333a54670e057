"""Gaussian conditionals against dense linear algebra in NumPy: both spaces, block by block, any number of outputs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from numpyro_symmetry.guides.linear.rows import ByParameters, ByRows, factorise, log_prob
from numpyro_symmetry.linalg import gram_factor

SHAPES = {
    "fewer parameters": (9, (1, 4), ()),
    "more parameters": (6, (1, 11), ()),
    "one block": (5, (3,), ()),
    "three": (7, (2, 1, 9), ()),
    "three, fewer parameters": (9, (2, 1, 4), ()),
    "two wide": (4, (6, 9), ()),
    "outputs": (6, (1, 11), (3,)),
    "outputs, fewer parameters": (9, (2, 4), (2,)),
}


def problem(num_rows, sizes, columns):
    rng = np.random.default_rng(num_rows)
    slopes = {f"b{k}": rng.normal(size=(num_rows, size)) for k, size in enumerate(sizes)}
    return rng.normal(size=(num_rows, *columns)), slopes


def dense(residual, slope):
    """Mean and covariance of z, the slow way."""
    covariance = np.linalg.inv(np.eye(slope.shape[1]) + slope.T @ slope)
    return covariance @ slope.T @ residual, covariance


@pytest.mark.parametrize("name", SHAPES)
def test_density_of_blocks_in_turn_is_the_joint_posterior(name):
    num_rows, sizes, columns = SHAPES[name]
    with jax.enable_x64(True):
        residual, slopes = problem(num_rows, sizes, columns)
        rng = np.random.default_rng(1)
        given = {k: rng.normal(size=(s.shape[1], *columns)) for k, s in slopes.items()}

        @jax.jit
        def in_turn(residual, slopes, given):
            total = []

            def score(block, loc, precision):
                total.append(log_prob(precision, given[block] - loc))
                return given[block]

            # a compiled function sorts its arguments' blocks
            model = factorise({block: slopes[block] for block in order})
            loc = model.mean(residual)
            model.draw(loc, score)
            return loc, total

        order = list(slopes)
        loc, total = in_turn(residual, slopes, given)
        mean, covariance = dense(residual, np.concatenate(list(slopes.values()), 1))
        np.testing.assert_allclose(np.concatenate([loc[k] for k in slopes]), mean, rtol=1e-9, atol=1e-12)
        values = np.concatenate([given[k] for k in slopes])
        pairs = zip(mean.T, values.T, strict=True) if columns else [(mean, values)]
        expected = sum(multivariate_normal(m, covariance).logpdf(v) for m, v in pairs)
        np.testing.assert_allclose(sum(total), expected, rtol=1e-10)


@pytest.mark.parametrize("shape", [(200, 3), (6, 30)], ids=["by parameters", "by rows"])
def test_means_are_exact_in_single_precision_where_columns_are_nearly_alike(shape):
    """Inputs far from zero, as years are: nats that the rounding of the mean costs, and its gradient."""
    rng = np.random.default_rng(0)
    slope = (2000.0 + rng.normal(size=shape)).astype(np.float32)
    slope[:, 0] = 1.0
    residual = (slope[:, 1:].sum(1) - 2000.0 + rng.normal(size=shape[0])).astype(np.float32)

    def mean(slope):
        return factorise({"b": slope}).mean(jnp.asarray(residual, slope.dtype))["b"]

    def fitted(slope):
        return jnp.sum(jax.lax.stop_gradient(slope) @ mean(slope) * jnp.linspace(-1.0, 1.0, shape[0]))

    both = jax.jit(lambda slope: (mean(slope), jax.grad(fitted)(slope)))
    single, gradient = both(jnp.asarray(slope))
    with jax.enable_x64(True):
        double, expected = both(jnp.asarray(slope, np.float64))
    off = np.float64(np.asarray(single)) - np.asarray(double)
    assert 0.5 * (np.sum((np.float64(slope) @ off) ** 2) + np.sum(off**2)) < 0.1
    assert np.linalg.norm(np.asarray(gradient) - np.asarray(expected)) < 0.05 * np.linalg.norm(expected)


@pytest.mark.parametrize("shape", [(200, 3), (30, 40)], ids=["by parameters", "by rows"])
def test_draws_are_those_of_the_density_in_single_precision_where_columns_are_nearly_alike(shape):
    rng = np.random.default_rng(0)
    slope = (2000.0 + rng.normal(size=shape)).astype(np.float32)
    slope[:, 0] = 1.0

    @jax.jit
    def sample(slope, keys):
        precision = PRECISIONS["by rows" if shape[0] < shape[1] else "by parameters"](slope)
        return jax.vmap(lambda key: precision.sample(key, shape[1:]))(keys)

    draws = np.float64(np.asarray(sample(slope, jax.random.split(jax.random.key(0), 400))))
    squares = np.sum(draws**2, 1) + np.sum((draws @ np.float64(slope).T) ** 2, 1)
    assert squares.mean() == pytest.approx(shape[1], abs=4.0 * np.sqrt(2.0 * shape[1] / 400))


PRECISIONS = {"by rows": ByRows.of, "by parameters": lambda slope: ByParameters(gram_factor(slope))}


@pytest.mark.parametrize("columns", [(), (2,)], ids=["vector", "columns"])
@pytest.mark.parametrize("kind", PRECISIONS)
def test_what_is_independent_has_its_own_density_entry_by_entry(kind, columns):
    """Parameters of two problems that share no row: the entries of each add up to the density of that problem alone."""
    rng = np.random.default_rng(0)
    slope, own = np.zeros((4, 6)), rng.permutation(np.repeat([True, False], 3))
    slope[:2, own], slope[2:, ~own] = rng.normal(size=(2, 2, 3))
    deviation = rng.normal(size=(6, *columns))
    with jax.enable_x64(True):

        @jax.jit
        def both(slope, deviation):
            precision = PRECISIONS[kind](slope)
            return precision.log_prob_by_entry(deviation), log_prob(precision, deviation)

        by_entry, whole = map(np.asarray, both(slope, deviation))
        assert by_entry.shape == deviation.shape
        np.testing.assert_allclose(by_entry.sum(), whole, rtol=1e-10)
        for part in (own, ~own):
            _, expected = both(slope[:, part], deviation[part])
            np.testing.assert_allclose(by_entry[part].sum(), expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["fewer parameters", "three", "outputs"])
def test_draws_have_the_posterior_s_moments(name):
    residual, slopes = problem(*SHAPES[name])
    mean, covariance = dense(residual, np.concatenate(list(slopes.values()), 1))
    slopes32 = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), slopes)

    @jax.jit
    def drawn(keys):
        model = factorise(slopes32)
        loc = model.mean(jnp.asarray(residual, jnp.float32))

        def draw(key):
            keys = dict(zip(slopes, jax.random.split(key, len(slopes)), strict=True))
            found = model.draw(loc, lambda k, m, q: m + q.sample(keys[k], m.shape))
            return jnp.concatenate([found[k] for k in slopes])

        return jax.lax.map(draw, keys, batch_size=16)

    # of several outputs the last, whose draws have the same covariance as any
    draws = np.asarray(drawn(jax.random.split(jax.random.key(0), 20_000)), float)
    draws, mean = (draws[..., -1], mean[..., -1]) if mean.ndim == 2 else (draws, mean)
    error = np.sqrt(np.diag(covariance) / len(draws))
    assert (abs(draws.mean(0) - mean) < 4.5 * error).all()
    spread = np.cov(draws.T).reshape(covariance.shape)
    variances = np.outer(np.diag(covariance), np.diag(covariance))
    assert (abs(spread - covariance) < 4.5 * np.sqrt((variances + covariance**2) / len(draws))).all()


def test_gradients_of_both_spaces_agree():
    with jax.enable_x64(True):
        rng = np.random.default_rng(3)
        residual, slope, z = (jnp.asarray(rng.normal(size=shape)) for shape in ((6,), (6, 6), (6,)))
        padding = jnp.zeros((1, 6))

        def log_density(residual, slope, extra):
            # a row of zeros observes nothing: with it the space of parameters is the smaller one
            slope, residual = (
                (jnp.concatenate([slope, padding]), jnp.append(residual, 0.0)) if extra else (slope, residual)
            )
            model = factorise({"b": slope})
            loc, found = model.mean(residual), []
            model.draw(loc, lambda _, m, q: found.append(log_prob(q, z - m)) or z)
            return found[0]

        both = jax.jit(lambda *of: [jax.value_and_grad(log_density, argnums=(0, 1))(*of, x) for x in (True, False)])
        by_parameters, by_rows = both(residual[:5], slope[:5])
        np.testing.assert_allclose(by_parameters[0], by_rows[0], rtol=1e-12)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), by_parameters[1], by_rows[1])


@pytest.mark.parametrize("num_rows", [20, 60])
def test_sharp_rows_keep_the_evidence_in_single_precision(num_rows):
    """Of rectified units and a bias at a noise of .02: log joint less log density is the log evidence in every draw."""
    rng = np.random.default_rng(0)
    hidden = np.maximum(rng.normal(size=(num_rows, 3)) @ rng.normal(size=(3, 40)) + rng.normal(size=40), 0.0)
    slopes = {"w": hidden / math.sqrt(20.0) / 0.02, "b": np.full((num_rows, 1), 50.0)}
    residual = (slopes["w"] @ rng.normal(size=40)) + rng.normal(size=num_rows)
    rows = np.concatenate(list(slopes.values()), 1)
    expected = multivariate_normal(np.zeros(num_rows), np.eye(num_rows) + rows @ rows.T).logpdf(residual)
    single, seen = (
        {name: jnp.asarray(value, jnp.float32) for name, value in slopes.items()},
        jnp.asarray(residual, jnp.float32),
    )

    def evidence(key):
        model, found = factorise(single), []
        keys = dict(zip(single, jax.random.split(key), strict=True))

        def draw(name, loc, precision):
            z = loc + precision.sample(keys[name], loc.shape)
            found.append((z, log_prob(precision, z - loc), single[name] @ z))
            return z

        model.draw(model.mean(seen), draw)
        gap = seen - sum(part for *_, part in found)
        size = num_rows + sum(z.size for z, *_ in found)
        log_joint = -0.5 * (jnp.sum(gap**2) + sum(jnp.sum(z**2) for z, *_ in found) + size * math.log(2.0 * math.pi))
        return log_joint - sum(density for _, density, _ in found)

    found = np.asarray(jax.lax.map(evidence, jax.random.split(jax.random.key(0), 20)), float)
    assert abs(found - expected).max() < 0.5
    assert abs(found.mean() - expected) < 0.05


@pytest.mark.parametrize("name", ["three", "three, fewer parameters", "outputs", "outputs, fewer parameters"])
def test_blocks_drawn_before_lower_the_mean_by_their_coefficients(name):
    """And what is white has the squares of the joint precision, block by block."""
    num_rows, sizes, columns = SHAPES[name]
    with jax.enable_x64(True):
        residual, slopes = problem(num_rows, sizes, columns)

        @jax.jit
        def in_turn(residual, slopes):
            model = factorise({block: slopes[block] for block in order})
            loc, coefficients = model.mean(residual), model.coefficients()
            drawn, squares, means = {}, [], []

            def draw(block, mean, precision):
                assert set(coefficients[block]) == set(drawn)
                moved = sum((by @ (drawn[other] - loc[other]) for other, by in coefficients[block].items()), 0.0)
                means.append((mean, loc[block] - moved))
                drawn[block] = mean + 0.1 * (1.0 + len(drawn))
                squares.append((precision.whitened(drawn[block] - mean) ** 2).sum())
                return drawn[block]

            model.draw(loc, draw)
            return loc, drawn, squares, means

        order = list(slopes)
        loc, drawn, squares, means = in_turn(residual, slopes)
        for mean, expected in means:
            np.testing.assert_allclose(mean, expected, atol=1e-12)
        slope = np.concatenate(list(slopes.values()), 1)
        deviation = np.concatenate([drawn[k] - loc[k] for k in slopes])
        expected = (deviation * ((np.eye(slope.shape[1]) + slope.T @ slope) @ deviation)).sum()
        np.testing.assert_allclose(sum(squares), expected, rtol=1e-10)
