"""Type checkers refuse what BlackJAX's documentation writes: run `pyright` on this file."""

import blackjax
import jax
import jax.numpy as jnp


def log_density(z):
    return -0.5 * (z**2).sum()


print("blackjax", blackjax.__version__)
state = blackjax.nuts(log_density, step_size=0.5, inverse_mass_matrix=jnp.ones(2)).init(jnp.zeros(2))
warmup = blackjax.window_adaptation(blackjax.nuts, log_density)
(state, parameters), _ = warmup.run(jax.random.key(0), jnp.zeros(2), 10)
print("runs")
