"""Gaussian conditionals against dense linear algebra in NumPy, in both spaces, block by block."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from numpyro_symmetry.guides.rows import ByRows, ByUnits, Rows, draw_in_turn

SHAPES = {"fewer units": (9, (1, 4)), "more units": (6, (1, 11)), "one block": (5, (3,)), "three": (7, (2, 1, 9))}


def problem(num_rows, sizes):
    rng = np.random.default_rng(num_rows)
    slopes = {f"b{k}": rng.normal(size=(num_rows, size)) for k, size in enumerate(sizes)}
    return rng.normal(size=num_rows), slopes


def dense(residual, slope):
    """Mean and covariance of z, the slow way."""
    covariance = np.linalg.inv(np.eye(slope.shape[1]) + slope.T @ slope)
    return covariance @ slope.T @ residual, covariance


@pytest.mark.parametrize("name", SHAPES)
def test_density_of_blocks_in_turn_is_the_joint_posterior(name):
    with jax.enable_x64(True):
        residual, slopes = problem(*SHAPES[name])
        given = {k: np.random.default_rng(1).normal(size=s.shape[1]) for k, s in slopes.items()}
        total = []

        def score(block, posterior):
            total.append(float(posterior.log_prob(jnp.asarray(given[block]))))
            return jnp.asarray(given[block])

        draw_in_turn(jnp.asarray(residual), jax.tree.map(jnp.asarray, slopes), score)
        mean, covariance = dense(residual, np.concatenate(list(slopes.values()), 1))
        expected = multivariate_normal(mean, covariance).logpdf(np.concatenate(list(given.values())))
        np.testing.assert_allclose(sum(total), expected, rtol=1e-10)


@pytest.mark.parametrize("name", SHAPES)
def test_draws_have_the_posterior_s_moments(name):
    residual, slopes = problem(*SHAPES[name])
    mean, covariance = dense(residual, np.concatenate(list(slopes.values()), 1))

    def draw(key):
        keys = dict(zip(slopes, jax.random.split(key, len(slopes)), strict=True))
        found = draw_in_turn(jnp.asarray(residual, jnp.float32), slopes32, lambda k, q: q.sample(keys[k]))
        return jnp.concatenate([found[k] for k in slopes])

    slopes32 = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), slopes)
    draws = np.asarray(jax.vmap(draw)(jax.random.split(jax.random.key(0), 20_000)), float)
    error = np.sqrt(np.diag(covariance) / len(draws))
    assert (abs(draws.mean(0) - mean) < 4.5 * error).all()
    spread = np.cov(draws.T).reshape(covariance.shape)
    variances = np.outer(np.diag(covariance), np.diag(covariance))
    assert (abs(spread - covariance) < 4.5 * np.sqrt((variances + covariance**2) / len(draws))).all()


def test_both_spaces_agree_and_differentiate_alike():
    with jax.enable_x64(True):
        rng = np.random.default_rng(3)
        rows = Rows(jnp.asarray(rng.normal(size=6)), jnp.asarray(rng.normal(size=(6, 6))))
        z = jnp.asarray(rng.normal(size=6))
        by_units, by_rows = (
            jax.value_and_grad(lambda r, kind=kind: kind.of(r).log_prob(z))(rows) for kind in (ByUnits, ByRows)
        )
        np.testing.assert_allclose(by_units[0], by_rows[0], rtol=1e-12)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), by_units[1], by_rows[1])
