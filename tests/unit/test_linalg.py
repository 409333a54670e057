"""Factors and solves against jax's own, batched and not, with their gradients; and that they do not hang."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry.linalg import (
    gram_factor,
    log_determinant,
    solve_positive,
    solve_triangular,
    substitute_forward,
)
from numpyro_symmetry.models.factors import jitted

pytestmark = pytest.mark.usefixtures("strict_promotion")

STOCK = (
    lambda matrix: jnp.linalg.cholesky(jnp.eye(len(matrix)) + matrix.T @ matrix),
    lambda factor, right, transposed=False: jax.scipy.linalg.solve_triangular(
        factor, right, lower=True, trans=int(transposed)
    ),
)


def positive(*batch, n=5):
    a = np.random.default_rng(0).normal(size=(*batch, n, n))
    return jnp.asarray(a @ np.swapaxes(a, -1, -2) + n * np.eye(n))


def total(matrix, functions):
    factor_of, solve = functions
    factor, right = factor_of(matrix), jnp.stack([jnp.sin(matrix[0]), jnp.cos(matrix[1])], 1)
    solved = solve(factor, solve(factor, right), transposed=True)
    return jnp.sin(solved).sum() + jnp.log(jnp.diagonal(factor)).sum() + solve(factor, right[:, 0]).sum()


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_value_and_gradient_are_the_stock_ones(batch):
    with jax.enable_x64(True):
        matrix, ours, stock = positive(*batch), (gram_factor, solve_triangular), STOCK

        def differentiated(functions):
            one = jax.value_and_grad(lambda m: total(m, functions))
            for _ in batch:
                one = jax.vmap(one)
            return jax.jit(one)(matrix)

        def of_mean(functions):
            one = lambda m: total(m, functions)  # noqa: E731
            for _ in batch:
                one = jax.vmap(one)
            return jax.jit(jax.grad(lambda m: one(m).mean()))(matrix)

        symmetric = lambda g: g + jnp.swapaxes(g, -1, -2)  # noqa: E731
        (value, gradient), (expected, expected_gradient) = differentiated(ours), differentiated(stock)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(symmetric(gradient), symmetric(expected_gradient), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(symmetric(of_mean(ours)), symmetric(of_mean(stock)), rtol=1e-9, atol=1e-12)


def test_solves_and_determinants():
    with jax.enable_x64(True):
        matrix, right = positive(), jnp.arange(5.0)
        factor = jnp.linalg.cholesky(matrix)
        np.testing.assert_allclose(solve_positive(factor, right), np.linalg.solve(matrix, right), rtol=1e-12)
        np.testing.assert_allclose(log_determinant(factor), np.linalg.slogdet(matrix)[1], rtol=1e-12)


def test_a_batch_makes_no_batched_call_on_a_cpu():
    program = jax.make_jaxpr(jax.vmap(lambda m: gram_factor(m)))(positive(3))
    shapes = [e.outvars[0].aval.shape for e in jax.tree.leaves(_equations(program.jaxpr)) if e.primitive.name == "qr"]
    assert shapes == [(10, 5)] * 3


@pytest.mark.parametrize("batch", [(), (4,)], ids=str)
def test_a_model_makes_no_batched_call_on_a_cpu(batch):
    """Of its own, as in a plate, or one for each particle; values and gradients are the stock ones."""

    def model(matrix):
        factor = jnp.linalg.cholesky(matrix)
        return jnp.sin(jax.scipy.linalg.solve_triangular(factor, jnp.cos(matrix), lower=True, trans=1)).sum()

    def differentiated(function):
        return jax.value_and_grad(lambda matrices: jax.vmap(function)(matrices).sum())

    with jax.enable_x64(True):
        matrices = positive(3, *batch)
        (value, gradient), (expected, expected_gradient) = (
            jax.jit(differentiated(function))(matrices) for function in (jitted(model), model)
        )
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-12)
        found = _equations(jax.make_jaxpr(differentiated(jitted(model)))(matrices).jaxpr)
    shapes = [e.outvars[0].aval.shape for e in found if e.primitive.name in ("cholesky", "triangular_solve")]
    assert set(shapes) == {(5, 5)}


def _equations(jaxpr):
    found = []
    for equation in jaxpr.eqns:
        found.append(equation)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            found += _equations(inner) if hasattr(inner, "eqns") else []
    return found


HANGS = """
import sys, jax, jax.numpy as jnp
from jax import lax
if sys.argv[1] == "ours":
    from numpyro_symmetry.linalg import gram_factor, solve_positive
else:
    gram_factor = lambda a: jnp.linalg.qr(jnp.concatenate([a, jnp.eye(31)]), mode="r").T
    solve_positive = lambda l, b: jax.scipy.linalg.cho_solve((l, True), b)
z = jax.random.normal(jax.random.key(0), (10, 31, 31)); a = z @ z.mT + 31 * jnp.eye(31)
def one(m, r):
    return solve_positive(gram_factor(m), r) + 1e-3 * gram_factor(r)
def body(carry, _):
    x = sum(jax.vmap(one)(carry + 0.1 * i, a) for i in range(6))
    return carry + 1e-9 * x.mean(), None
jax.block_until_ready(jax.jit(lambda a: lax.scan(body, a, None, length=300)[0])(a))
print("finished")
"""


def test_loops_with_many_factors_finish():
    # with jax's own functions this stands still for ever on two cores
    done = subprocess.run(
        [sys.executable, "-c", HANGS, "ours"], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "finished\n"


@pytest.mark.parametrize("sharpness", [1.0, 30.0, 3e3, 1e4])
def test_gram_factor_keeps_the_directions_that_are_not_seen(sharpness):
    """In single precision, against double, on every scale: of a null vector v of A, the length of C'v is that of v."""
    rng = np.random.default_rng(0)
    matrix = (sharpness * rng.normal(size=(40, 8)) @ rng.normal(size=(8, 30))).astype(np.float32)
    factor = np.asarray(gram_factor(jnp.asarray(matrix)), float)
    exact = np.eye(30) + matrix.astype(float).T @ matrix
    null = np.linalg.svd(matrix.astype(float))[2][8:]
    lengths = np.linalg.svd(factor.T @ null.T, compute_uv=False)
    np.testing.assert_allclose(lengths, 1.0, atol=0.1)
    size = np.linalg.norm(exact, 2)
    np.testing.assert_allclose(factor @ factor.T, exact, atol=1e-5 * size)


def test_gradient_of_gram_factor_is_that_of_the_product():
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        matrix, weight = jnp.asarray(rng.normal(size=(5, 4))), jnp.asarray(rng.normal(size=(4, 4)))
        slope = jax.grad(lambda a: jnp.sum(weight * gram_factor(a)))
        of_product = jax.grad(lambda a: jnp.sum(weight * jnp.linalg.cholesky(a.T @ a + jnp.eye(4))))
        found, expected = jax.jit(lambda a: (slope(a), of_product(a)))(matrix)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        batch = jnp.stack([matrix, 2.0 * matrix])
        each = jax.jit(jax.vmap(slope))(batch)
        np.testing.assert_allclose(each[0], expected, rtol=1e-10)


HELD = """
import jax.numpy as jnp, numpyro, numpyro.distributions as dist
from jax import random
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal
from threadpoolctl import ThreadpoolController
from numpyro_symmetry import AutoConditional
def model(x, y=None):
    a = numpyro.sample("a", dist.Normal())
    w = numpyro.sample("w", dist.Normal().expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.tanh(a * x) @ w, 0.1).to_event(1), obs=y)
[lapack] = [found for found in ThreadpoolController().lib_controllers if "scipy.libs" in found.filepath]
before = lapack.num_threads
handlers.seed(AutoConditional(AutoNormal(model)), 0)(jnp.ones((3, 2)), jnp.ones(3))
print(before, lapack.num_threads)
"""


@pytest.mark.parametrize("wanted", [None, "2"])
def test_lapack_has_one_thread_where_nobody_asked_for_more(wanted):
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if wanted:
        environment["OPENBLAS_NUM_THREADS"] = wanted
    done = subprocess.run(
        [sys.executable, "-c", HELD], capture_output=True, text=True, timeout=120, check=True, env=environment
    )
    before, after = map(int, done.stdout.split())
    assert after == (before if wanted else 1)


def test_systems_without_rows_have_nothing_to_solve():
    found, gradient = jax.value_and_grad(lambda right: substitute_forward(jnp.zeros((0, 0, 3)), right).sum())(
        jnp.zeros((2, 0, 3))
    )
    assert found == 0.0
    assert gradient.shape == (2, 0, 3)
