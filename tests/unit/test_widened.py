"""Programs traced in single precision and computed in double; their twin is the same function traced in double."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.scipy.special import gammaln

from numpyro_symmetry.models.programs import WIDENED, compiled, traced

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(3, 4)), RNG.normal(size=4)


def loops(a, b):
    total, rows = jax.lax.scan(lambda c, r: (c + jnp.tanh(r @ b), c * r), jnp.zeros(()), a)
    counted = jax.lax.fori_loop(0, 3, lambda k, s: s + jnp.sin(a[k] * s), b)
    grown = jax.lax.while_loop(lambda s: jnp.abs(s).sum() < 50.0, lambda s: 1.5 * s, b)
    return {"scan": (total, rows), "fori": counted, "while": grown}


def branches(a, b):
    chosen = jax.lax.cond(b.sum() > 0, lambda v: jnp.exp(v), lambda v: v**2, a)
    return chosen, jax.lax.switch(2, [jnp.sin, jnp.cos, jnp.tanh], b), jnp.where(a > 0, a, -1.0)


def algebra(a, b):
    square = a @ a.T + jnp.eye(3)
    factor = jnp.linalg.cholesky(square)
    return jnp.linalg.solve(square, a), factor, jnp.linalg.slogdet(square), jnp.linalg.eigh(square)[0]


def places(a, b):
    index = jnp.argsort(b)
    return b[index], jnp.zeros(4).at[index].add(b), jnp.zeros(4).at[index].set(b), a.at[:, 1].max(0.5), jnp.argmax(a, 1)


def densities(a, b):
    shapes = jnp.exp(b)
    log_probs = dist.Dirichlet(shapes).log_prob(shapes / shapes.sum()), dist.StudentT(shapes).log_prob(b)
    return *log_probs, gammaln(shapes), jax.nn.softmax(a), dist.Poisson(shapes).log_prob(jnp.arange(4))


def transformed(a, b):
    squash = jax.custom_jvp(lambda v: v / (1 + jnp.abs(v)))
    squash.defjvp(lambda primals, tangents: (squash(primals[0]), tangents[0]))
    return jax.vmap(squash)(a), jax.grad(lambda v: squash(v).sum() ** 2)(b), jax.checkpoint(jnp.sin)(b)


def complex_(a, b):
    return jnp.fft.fft(a).real, jnp.abs(b + 1j), jnp.cumsum(a, 1), jax.lax.reduce(b, 0.0, jax.lax.add, (0,))


def shards(a, b):
    """Sums over an axis that a map over shards alone binds, and a loop over what varies along it."""

    def one(a, b):
        rows = jax.lax.scan(lambda c, r: (c + jnp.tanh(r @ b), c * r), jnp.sum(b), a)
        return jax.lax.psum(rows, "shard"), jax.lax.psum(jnp.int32(3), "shard")

    split, whole = jax.sharding.PartitionSpec("shard"), jax.sharding.PartitionSpec()
    mesh = jax.make_mesh((1,), ("shard",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.shard_map(one, mesh=mesh, in_specs=split, out_specs=whole)(a, b)


def widened(function, *args):
    return compiled(traced(function, *args, precision=WIDENED))(*args)


FUNCTIONS = [loops, branches, algebra, places, densities, transformed, complex_, shards]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_is_the_function_in_double(function):
    # programs within operations take what they are given: JAX looks at its own types only where it is asked to
    with jax.enable_checks(True):
        found = widened(function, A, B)
    with jax.enable_x64(True):
        expected = function(jnp.asarray(A), jnp.asarray(B))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if jnp.issubdtype(y.dtype, jnp.floating):
            assert x.dtype == np.float64
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_whole_numbers_stay_what_they_are():
    def counted(values):
        return jax.lax.scan(lambda c, v: (jnp.arange(3)[c] + 1, v * c), jnp.int32(0), values["x"])

    with jax.enable_x64(True):
        with pytest.raises(TypeError):
            counted({"x": jnp.arange(2.0)})
    last, out = widened(counted, {"x": np.arange(2.0)})
    assert last.dtype == np.int32
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out, [0.0, 1.0])


def test_what_looks_at_bits_gets_them():
    def bits(x):
        noise = jax.random.uniform(jax.random.key(0), x.shape)
        called = jax.pure_callback(lambda v: np.asarray(2 * v), jax.ShapeDtypeStruct(x.shape, np.float32), x)
        return noise, called

    expected = bits(jnp.asarray(B, jnp.float32))
    for x, y in zip(widened(bits, B), expected, strict=True):
        assert x.dtype == np.float64
        np.testing.assert_allclose(x, y, rtol=1e-6)
