"""The matrix of an affine function: two ways to read it, and what they must both be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from numpyro_symmetry.guides.linear.slopes import by_columns, by_rows, value_and_slopes


def lines(key, outputs, rows, columns):
    """An affine function with two arguments and two values, and its matrix; outputs share it."""
    each = jax.random.split(key, 4)
    upper, lower = (jax.random.normal(each[k], (rows, columns)) for k in range(2))
    offset = jax.random.normal(each[2], (2 * rows, max(1, outputs)))
    shape = (rows, outputs) if outputs else (rows,)

    def function(values):
        first = upper @ values["b"] + values["a"]
        second = lower @ values["b"]
        return {"y": first + offset[:rows].reshape(shape), "z": second + offset[rows:].reshape(shape)}

    ending = (outputs,) if outputs else ()
    start = {"a": jnp.zeros((1, *ending)), "b": jnp.zeros((columns, *ending))}
    ones = jnp.concatenate([jnp.ones((rows, 1)), jnp.zeros((rows, 1))])
    return function, start, {"a": ones, "b": jnp.concatenate([upper, lower])}


@pytest.mark.parametrize("outputs", [0, 1, 3])
@pytest.mark.parametrize(("rows", "columns"), [(2, 7), (7, 2)])
@pytest.mark.parametrize("read", [by_columns, by_rows])
def test_a_matrix_is_read_as_it_is(read, rows, columns, outputs):
    function, start, expected = lines(jax.random.key(0), outputs, rows, columns)
    at_start, slopes = read(function, start, max(1, outputs))
    jax.tree.map(assert_array_equal, at_start, function(start))
    for name, slope in expected.items():
        assert_array_equal(slopes[name], slope)
    found, again = value_and_slopes(function, start, outputs)
    jax.tree.map(assert_array_equal, (found, again), (at_start, slopes))


@pytest.mark.parametrize("read", [by_columns, by_rows])
def test_slopes_are_differentiable(read):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)))

    def total(weights):
        _, slopes = read(lambda b: {"y": jnp.tanh(x @ weights) @ b["b"]}, {"b": jnp.zeros(5)}, 1)
        return (slopes["b"] ** 2).sum()

    weights = jnp.asarray(np.random.default_rng(1).normal(size=(2, 5)))
    expected = jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(weights)
    assert_allclose(jax.grad(total)(weights), expected, rtol=1e-5)


def test_the_smaller_identity_is_taken():
    def largest(rows, columns):
        function, start, _ = lines(jax.random.key(0), 0, rows, columns)
        program = str(jax.make_jaxpr(lambda start: value_and_slopes(function, start, 0))(start))
        return f"{4 * max(rows, columns)}" not in program and f"[{columns},{columns}]" in program

    assert largest(40, 7)
    assert not largest(3, 41)
