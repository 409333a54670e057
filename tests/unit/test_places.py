"""Gathers and scatters in NumPy, against JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry.discovery.labels.places import SCATTERS, gather

X = np.arange(24.0).reshape(2, 3, 4)
AT = np.array([[2, 0], [1, 5]])

GATHERS = {
    "one axis": lambda x: x[:, AT],
    "two axes": lambda x: x[np.array([0, 1]), np.array([2, 0])],
    "out of bounds": lambda x: x.at[:, :, AT].get(mode="fill"),
    "filled with": lambda x: x.at[:, :, AT].get(mode="fill", fill_value=-1.0),
    "clipped": lambda x: x.at[:, :, AT].get(mode="clip"),
    "along": lambda x: jnp.take_along_axis(x, np.array([[[3, 1]]]), 2),
    "batched": lambda x: jax.vmap(lambda y, i: y[i])(x, np.array([[0, 2], [1, 1]])),
    "window": lambda x: jax.vmap(lambda i: jax.lax.dynamic_slice(x, (0, i, 1), (1, 2, 3)))(np.array([0, 1, 5])),
    "integers": lambda x: x.astype(np.int32).at[:, AT].get(mode="fill"),
    "truths": lambda x: (x > 3).at[:, AT].get(mode="fill"),
}
WRITES = {
    "set": lambda x: x.at[:, 1].set(7.0),
    "set twice": lambda x: x.at[0, np.array([1, 1])].set(jnp.arange(8.0).reshape(2, 4)),
    "add": lambda x: x.at[:, AT].add(1.0),
    "add clipped": lambda x: x.at[:, AT].add(1.0, mode="clip"),
    "subtract": lambda x: x.at[:, AT].subtract(1.0),
    "multiply": lambda x: x.at[np.array([0, 0]), :, 1].mul(2.0),
    "smallest": lambda x: x.at[..., AT].min(2.0),
    "largest": lambda x: x.at[1, np.array([0, 2])].max(14.5),
    "batched": lambda x: jax.vmap(lambda y, i: y.at[i].add(1.0))(x, np.array([[0, 2], [1, 1]])),
    "window": lambda x: jax.vmap(lambda y, i: jax.lax.dynamic_update_slice(y, jnp.ones((2, 1)), (i, 0)))(
        x, np.array([0, 9])
    ),
}


def check(function, evaluated):
    """Every operation of a kind in a program, on the values that it has there."""
    closed = jax.make_jaxpr(function)(X)
    seen = []

    def run(jaxpr, consts, *args):
        known = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))
        for equation in jaxpr.eqns:
            values = [a.val if hasattr(a, "val") else known[a] for a in equation.invars]
            inner = equation.params.get("jaxpr")
            if inner is not None:
                found = run(inner.jaxpr, inner.consts, *values)
            else:
                found = equation.primitive.bind(*values, **equation.params)
                found = found if equation.primitive.multiple_results else [found]
            if equation.primitive.name in evaluated:
                seen.append(equation.primitive.name)
                ours = evaluated[equation.primitive.name](equation.params, *map(np.asarray, values))
                np.testing.assert_array_equal(ours, np.asarray(found[0]))
                assert ours.dtype == found[0].dtype
            known |= dict(zip(equation.outvars, found, strict=True))
        return [a.val if hasattr(a, "val") else known[a] for a in jaxpr.outvars]

    run(closed.jaxpr, closed.consts, jnp.asarray(X))
    assert seen


@pytest.mark.parametrize("name", GATHERS)
def test_gathers(name):
    check(GATHERS[name], {"gather": gather})


@pytest.mark.parametrize("name", WRITES)
def test_scatters(name):
    check(WRITES[name], SCATTERS)
