"""A float64 constant that was traced in single precision stays single where double precision is enabled."""

import jax
import jax.numpy as jnp
import numpy as np

data = np.linspace(0, 1, 3)


def loss(w):
    return (w * data).sum()


print("jax", jax.__version__)
print("in single precision", jax.jit(loss)(jnp.ones(3)))
with jax.enable_x64(True):
    try:
        print("in double precision", jax.jit(loss)(jnp.ones(3)))
    except ValueError as error:
        print(type(error).__name__, str(error).splitlines()[0])
