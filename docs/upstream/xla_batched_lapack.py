"""As many batched LAPACK calls at once as XLA's pool has threads wait for each other for ever. For two cores."""

import jax
import jax.numpy as jnp

print("jax", jax.__version__, flush=True)


@jax.jit
def factors(matrices):
    def step(_, each):
        return tuple(jnp.linalg.cholesky(x @ x.mT / 100 + jnp.eye(100)) for x in each)

    return jax.lax.fori_loop(0, 2000, step, matrices)


keys = jax.random.split(jax.random.key(0), 6)
jax.block_until_ready(factors(tuple(jax.random.normal(key, (10, 100, 100)) for key in keys)))
print("finished")
