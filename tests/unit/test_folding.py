"""Operations on constants, evaluated by NumPy: what JAX makes of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_symmetry.discovery.labels.folding import constant_results
from numpyro_symmetry.discovery.labels.values import Known
from tests.support.equivariance import compiled, latent_of
from tests.support.operations import ROWS

X = np.arange(-6.0, 6.0).reshape(3, 4) + 0.5
N = np.arange(-6, 6).reshape(3, 4)

# beside those that pass on labels: negative and inner padding, slices that are moved inside, axes that come and go
FURTHER = {
    "padded": lambda: lax.pad(X, 7.0, ((1, 0, 2), (0, 2, 1))),
    "cut by padding": lambda: lax.pad(X, 7.0, ((-1, 1, 0), (2, -3, 0))),
    "padded between none": lambda: lax.pad(X[:, :0], 7.0, ((0, 0, 0), (0, 0, 1))),
    "padded, empty": lambda: lax.pad(X[:, :0], 7.0, ((0, 0, 0), (1, 1, 1))),
    "written over at the end": lambda: lax.dynamic_update_slice(X, X[:2, :3] * 2, (5, -9)),
    "stacked": lambda: jnp.stack([X, 2 * X], 1),
    "taken apart": lambda: jnp.unstack(jnp.asarray(X), axis=1),
    "split": lambda: lax.split(jnp.asarray(X), (1, 3), 1),
    "tiled": lambda: lax.tile(jnp.asarray(X), (2, 3)),
    "chosen of three": lambda: lax.select_n(N % 3, X, 2 * X, 3 * X),
    "chosen of two": lambda: lax.select_n(N > 0, X, 2 * X),
    "chosen by one": lambda: lax.select_n(jnp.asarray(True), X, 2 * X),
    "filled out of bounds": lambda: jnp.take(X, np.array([1, 5, 0]), 0, mode="fill", fill_value=3.0),
    "remainders": lambda: lax.rem(N, jnp.full_like(N, 4)),
    "quotients": lambda: lax.div(N, jnp.full_like(N, 4)),
    "flattened by columns": lambda: lax.reshape(X, (12,), dimensions=(1, 0)),
}


def assert_folded(function, *args, data=()):
    with jax.enable_x64(True):
        expected = compiled(function, data)(*args)
        closed = jax.make_jaxpr(lambda *given: jax.tree.leaves(function(*given, *data)))(*args)
        found = constant_results(closed, list(map(Known, args)))
    for one, value in zip(found, expected, strict=True):
        # what is drawn, and what acts on the outside, is no constant
        if one is not None:
            assert (one.value.shape, one.value.dtype) == (value.shape, value.dtype)
            np.testing.assert_allclose(one.value, value, rtol=1e-12, atol=1e-14)
    return found


@pytest.mark.parametrize("name", FURTHER)
def test_what_numpy_makes_of_constants_jax_makes_too(name):
    before = X.copy()
    assert None not in assert_folded(lambda: FURTHER[name]())
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_the_table_are_folded_as_jax_evaluates_them(name):
    row = ROWS[name]
    assert_folded(row.function, *latent_of(row), data=row.data)
