"""What follows linearly from inputs, read off programs: against what a reader of the function would say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry.guides.linear.linear_part import linear_outputs

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)


def scanned(w):
    return jax.lax.scan(lambda total, row: (total + row**2, row), jnp.zeros(2), w)


# function -> the last quantities that are affine in w
CASES = {
    "a layer": (lambda w: jax.nn.relu(X @ w + 1.0), [X @ W + 1.0]),
    "a layer under jit": (lambda w: jax.jit(lambda w: jnp.tanh(X @ w))(w) @ np.ones(2), [X @ W]),
    "all of it": (lambda w: (2.0 * X @ w).reshape(2, 5).T, [(2.0 * X @ W).reshape(2, 5).T]),
    "two uses": (lambda w: jnp.exp(X @ w) + (w[0] - 1.0).sum(), [X @ W, (W[0] - 1.0).sum()]),
    "a product with itself": (lambda w: (X @ w) * (X @ w), [X @ W]),
    "divided by it": (lambda w: 1.0 / (X @ w), [X @ W]),
    "a gate": (lambda w: jnp.where(X @ w > 0, X @ w, 0.0), [X @ W]),
    "a loop": (scanned, [W]),
    "a fold of its own": (lambda w: jax.lax.reduce(X @ w, 1.0, lambda a, b: a * b + a, (0,)), [X @ W]),
    "nothing": (lambda w: X.sum(), []),
}


@pytest.mark.parametrize("name", CASES)
def test_finds_the_last_affine_quantities(name):
    function, expected = CASES[name]
    found = linear_outputs(lambda inputs: function(inputs["w"]), {"w": jnp.asarray(W)})
    distinct = {np.asarray(value).tobytes(): value for value in found}
    assert len(distinct) == len(expected)
    for value, wanted in zip(distinct.values(), expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5)
