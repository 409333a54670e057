"""Random programs that move parts of an array about, mix some of them, and read sums of what comes out."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def swept(rng, axis, some):
    """Entries of an axis, an array put in place of one of its slices, or the axis turned."""
    size, places = some.shape[axis], (slice(None),) * axis
    start = int(rng.integers(size))
    return (
        lambda x, y: jnp.flip(x, axis),
        lambda x, y: lax.slice_in_dim(x, start, size, int(rng.integers(1, 4)), axis),
        lambda x, y: jnp.roll(x, start, axis),
        lambda x, y: jnp.take(x, rng.integers(0, size, 3), axis),
        lambda x, y: jnp.stack([x, 2 * x], axis),
        lambda x, y: jnp.concatenate([x, y if y.shape == x.shape else jnp.ones_like(x)], axis),
        lambda x, y: x.at[(*places, start)].set(jnp.flip(x, axis)[(*places, 0)]),
        lambda x, y: x.at[(*places, start)].set(float(rng.integers(2))),
        lambda x, y: jnp.pad(x, [(int(rng.integers(2)), 1)] * x.ndim, constant_values=float(rng.integers(2))),
        lambda x, y: jnp.moveaxis(x, axis, 0).reshape(-1),
        lambda x, y: jnp.moveaxis(x, axis, 0),
        lambda x, y: jnp.where(np.asarray(rng.random(x.shape) < 0.5), x, y.sum()),
        lambda x, y: x @ rng.normal(size=(x.shape[-1], 2)),
        lambda x, y: x.sum(axis, keepdims=bool(rng.integers(2))),
        lambda x, y: x * (y if y.shape == x.shape else y.sum()),
        lambda x, y: x + (y if y.shape == x.shape else jnp.flip(x, axis)),
        lambda x, y: jnp.tanh(x),
        lambda x, y: jax.nn.sigmoid(x) - 0.5,
        lambda x, y: x**2,
    )


def read(rng, x):
    """A number that is even in all of a value, in each of its slices, or in none."""
    which = rng.integers(4)
    return [lambda: x.sum() ** 2, lambda: (x.sum(0) ** 2).sum(), lambda: jnp.abs(x).sum(), lambda: (x**3).sum()][
        which
    ]()


def random_moves(seed):
    def function(w):
        rng, values = np.random.default_rng(seed), [w]
        for _ in range(rng.integers(3, 8)):
            x, y = (values[k] for k in rng.integers(max(len(values) - 3, 0), len(values), size=2))
            x = x if x.ndim else w
            done = swept(rng, int(rng.integers(x.ndim)), x)
            values.append(done[rng.integers(len(done))](x, y))
        return sum(read(rng, x) for x in values[-rng.integers(1, 4) :] if x.ndim)

    return function
