"""Mean-field Gaussians over n units of d weights, from separated to collapsed, and tables of their draws."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

NAMES = ("separated", "overlapping", "initial", "fan in", "half collapsed", "half nearly", "pairs", "collapsed")


def factors(name, n, d, seed=1):
    key, key_twin = jax.random.split(jax.random.key(seed))
    loc, scale, half = jax.random.normal(key, (n, d)), jnp.ones((n, d)), n // 2
    if name == "separated":
        return loc, 0.1 * scale
    if name == "overlapping":
        return loc, 0.3 * scale
    if name == "initial":
        return loc, scale
    if name == "fan in":
        return loc / np.sqrt(d), 0.1 * scale
    if name == "half collapsed":
        return loc.at[:half].set(0.0), scale.at[half:].set(0.1)
    if name == "half nearly":
        return loc.at[:half].multiply(0.1), scale.at[half:].set(0.1)
    if name == "pairs":
        twins = loc[0 : 2 * half : 2] + 0.02 * jax.random.normal(key_twin, (half, d))
        return loc.at[1 : 2 * half : 2].set(twins), 0.05 * scale
    return 0.0 * loc, scale


def log_density(units, loc, scale):
    """``log q_i(u_j)`` by broadcasting: the obvious way."""
    z = (units[None] - loc[:, None]) / scale[:, None]
    return jnp.sum(-0.5 * z**2 - jnp.log(scale)[:, None], -1)


@partial(jax.jit, static_argnames=("name", "n", "d", "count", "seed"))
def tables(name, n, d, count, seed=2):
    loc, scale = factors(name, n, d)
    units = loc + scale * jax.random.normal(jax.random.key(seed), (count, n, d))
    return jax.vmap(lambda u: log_density(u, loc, scale))(units)
