"""Signs of odd units in functions of a network's derivatives, as in physics-informed networks."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_symmetry import find_symmetry
from numpyro_symmetry.discovery.labels.parity import even_sets

POINTS = np.random.default_rng(0).normal(size=(4, 2))


def weights(depth):
    """Kernels and biases, one after another, of layers of three and more units, and a last kernel."""
    sizes, rng = (2, *range(3, 3 + depth), 1), np.random.default_rng(1)
    kernels = [rng.normal(size=pair) for pair in zip(sizes[:-1], sizes[1:], strict=True)]
    return [one for kernel in kernels for one in (kernel, rng.normal(size=kernel.shape[1]))][:-1]


def network(activation, leaves, x):
    """The output at one point."""
    for kernel, bias in zip(leaves[:-1:2], leaves[1::2], strict=True):
        x = activation(x @ kernel + bias)
    return (x @ leaves[-1])[0]


def laplacian(u):
    """The sum of second derivatives."""
    return lambda x: jnp.trace(jax.hessian(u)(x))


def residual(u):
    """What is left of Burgers' equation."""
    return lambda x: jax.grad(u)(x)[0] + u(x) * jax.grad(u)(x)[1] - 0.1 * jax.hessian(u)(x)[1, 1]


DERIVATIVES = {
    "gradient": jax.grad,
    "along": lambda u: lambda x: jax.jvp(u, (x,), (jnp.ones_like(x),)),
    "hessian": jax.hessian,
    "backwards twice": lambda u: jax.jacrev(jax.jacrev(u)),
    "laplacian": laplacian,
    "residual": residual,
    "compiled": lambda u: jax.jit(jax.grad(jax.jit(u))),
}


def of_leaves(activation, derivative):
    """A derivative at all points, of the weights alone."""

    def function(*leaves):
        return jax.vmap(DERIVATIVES[derivative](lambda x: network(activation, leaves, x)))(POINTS)

    return function


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_odd_units_have_signs_in_derivatives(derivative, depth):
    jaxpr = jax.make_jaxpr(of_leaves(jnp.tanh, derivative))(*weights(depth))
    found = even_sets(jaxpr, [True] * (2 * depth + 1))
    # which layer is negated with which others is a matter of the basis: their span is what counts
    span = {frozenset()}
    for one in found:
        span |= {one ^ other for other in span}
    negated = [frozenset({0, 1, 2}), frozenset({2, 3, 4})][:depth]
    assert len(span) == 2**depth
    assert set(negated) <= span


@pytest.mark.parametrize("activation", [jax.nn.relu, jax.nn.softplus, jax.nn.gelu, jax.nn.silu])
@pytest.mark.parametrize("derivative", ["gradient", "along", "residual"])
def test_units_that_are_not_odd_have_none(activation, derivative):
    for depth in (1, 2):
        jaxpr = jax.make_jaxpr(of_leaves(activation, derivative))(*weights(depth))
        assert even_sets(jaxpr, [True] * (2 * depth + 1)) == []


@pytest.mark.parametrize("derivative", ["gradient", "hessian", "residual"])
@pytest.mark.parametrize("activation", [jnp.tanh, jax.nn.sigmoid, jax.nn.silu, jnp.arctan, jnp.sin])
def test_what_is_said_of_derivatives_holds(activation, derivative):
    """Of a logistic function the derivative is even, and of `silu` the second one."""
    leaves, function = weights(1), jax.jit(of_leaves(activation, derivative))
    with jax.enable_x64(True):
        before = function(*leaves)
        for sites in even_sets(jax.make_jaxpr(function)(*leaves), [True] * 3):
            after = function(*(-one if k in sites else one for k, one in enumerate(leaves)))
            np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-12)


def spread_out(one, other):
    """A product along a further axis, on which the one stands once and the other four times."""
    return (one[:, None] * jnp.broadcast_to(other[:, None], (3, 4))).sum()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a, b, x: (b + b * jnp.tanh(a)) * (1 - jnp.tanh(a)), [{0}]),
        (lambda a, b, x: ((b + b * jnp.tanh(a)) * (1 - 1.001 * jnp.tanh(a))) ** 2, [{1}]),
        (lambda a, b, x: ((b + b * a) * (1 - a)).astype(bool).astype(float), [{0}, {1}]),
        # along another axis, and however many places there are
        (lambda a, b, x: spread_out(1 + a * jnp.arange(3.0), 1 - a * jnp.arange(3.0)) * b**2, [{0}, {1}]),
        (lambda a, b, x: ((a + x * jnp.arange(3.0)[:, None]) * (a - x * jnp.arange(3.0)[None])).sum() * b, []),
        (
            lambda a, b, x: ((a + x * jnp.arange(3.0)[:, None]) * (a - x * jnp.arange(3.0)[:, None])).sum() * b**2,
            [{0}, {1}],
        ),
        (lambda a, b, x: (1 + 2 * a) * (1 - 2 * a) + b**2, [{0}, {1}]),
        (lambda a, b, x: (1 + 2 * a) * (1 - 3 * a) + b**2, [{1}]),
        # a longer sum of the same is another
        (lambda a, b, x: jnp.exp(a * jnp.ones(2)).sum() - jnp.exp(-a * jnp.ones(3)).sum() + b**2, [{1}]),
        (lambda a, b, x: jnp.exp(a * jnp.ones(3)).sum() + jnp.exp(-a * jnp.ones(3)).sum() + b**2, [{0}, {1}]),
        (
            lambda a, b, x: jax.lax.linalg.triangular_solve(
                (1 + a) * b * jnp.ones((2, 2)), (1 - a) * jnp.ones((2, 1)), left_side=True, unit_diagonal=True
            ).sum(),
            [],
        ),
    ],
)
def test_products_of_sums(function, expected):
    found = even_sets(jax.make_jaxpr(function)(1.0, 2.0, 3.0), [True, True])
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))


def physics_informed(x, y):
    """Tanh units, of which a differential equation is observed."""
    w = numpyro.sample("w", dist.Normal().expand([2, 3]).to_event(2))
    b = numpyro.sample("b", dist.Normal().expand([3]).to_event(1))
    v = numpyro.sample("v", dist.Normal().expand([3]).to_event(1))
    left = jax.vmap(residual(lambda r: jnp.tanh(r @ w + b) @ v))(x)
    numpyro.sample("y", dist.Normal(left, 0.1).to_event(1), obs=y)


def test_a_physics_informed_network_has_its_signs():
    found = find_symmetry(physics_informed, (POINTS.astype(np.float32), np.zeros(4, np.float32)))
    assert [(group.size, group.signed) for group in found.groups.values()] == [(3, True)]
