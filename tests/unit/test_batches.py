"""Batches that a CPU takes one by one, against `vmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry.linalg import _UNROLLED, one_by_one, scalar_one_by_one


def pair(left, right):
    return {"product": left["w"] @ right, "sum": left["w"].sum() + right.sum()}


def scalar(left, right):
    return jnp.sum(jnp.tanh(left["w"] @ right) ** 2)


def arguments(*shape):
    left, right = (jax.random.normal(key, (*shape, 3, 3)) for key in jax.random.split(jax.random.key(0)))
    return {"w": left}, right


@pytest.fixture(autouse=True)
def _double():
    # orders of summation differ, which is no part of what is asked here
    with jax.enable_x64(True):
        yield


def assert_same(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), found, expected)


@pytest.mark.parametrize("size", [1, 3, _UNROLLED + 1])
def test_a_batch_is_what_vmap_makes_of_it(size):
    left, right = arguments(size)
    assert_same(jax.vmap(one_by_one(pair))(left, right), jax.vmap(pair)(left, right))
    shared = {"w": left["w"][0]}
    for axes, args in (((None, 0), (shared, right)), ((0, None), (left, right[0]))):
        assert_same(jax.vmap(one_by_one(pair), axes)(*args), jax.vmap(pair, axes)(*args))


def test_batches_of_batches():
    args = arguments(2, 3)
    assert_same(jax.vmap(jax.vmap(one_by_one(pair)))(*args), jax.vmap(jax.vmap(pair))(*args))


@pytest.mark.parametrize("size", [None, 2])
def test_a_scalar_and_its_gradient(size):
    args = arguments() if size is None else arguments(size)
    shared = {"w": jnp.eye(3)}

    def total(function, shared, args):
        def of_one(left, right):
            return function(jax.tree.map(jnp.add, shared, left), right) * jnp.sum(right)

        return jnp.sum(of_one(*args) if size is None else jax.vmap(of_one)(*args))

    found, expected = (
        jax.jit(jax.value_and_grad(lambda *x, f=f: total(f, *x), argnums=(0, 1)))(shared, args)
        for f in (scalar_one_by_one(scalar), scalar)
    )
    assert_same(found, expected)


def test_a_shared_argument_sums_the_gradients_of_a_batch():
    left, right = arguments(3)
    shared = {"w": left["w"][0]}
    found, expected = (
        jax.grad(lambda shared, f=f: jax.vmap(f, (None, 0))(shared, right).sum())(shared)
        for f in (scalar_one_by_one(scalar), scalar)
    )
    assert_same(found, expected)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator multiplies batches")
def test_a_cpu_multiplies_no_batches():
    program = str(jax.make_jaxpr(jax.vmap(one_by_one(pair)))(*arguments(3)))
    assert "dimension_numbers=(([1], [0]), ([], []))" in program
    assert "([0], [0]))" not in program
