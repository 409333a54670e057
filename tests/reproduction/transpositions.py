"""Transpositions of trained networks: Xiao et al. (2023, arXiv:2401.00611), Figure 2, on small digits.

    python -m tests.reproduction.transpositions

Pairs of networks 64-64-10 on 1400 digits of 8 by 8, trained from W and from W with its units relabelled by a random
permutation of so many transpositions, with other mini-batches: do weights forget the permutation? Results go to
tests/reproduction/results/transpositions.json and are not run again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from numpyro_symmetry import ActivationCost, Symmetry, loss_barrier, match, num_transpositions
from tests.reproduction import records
from tests.reproduction.xiao import digits

WIDTH, STEPS, BATCH = 64, 3000, 64
SYMMETRY = Symmetry.mlp([("w1", "b1"), ("w2", "b2")])
LEVELS = (1, 8, 15, 22, 29, 36, 43, 50, 57, 63)


def hidden(values, x):
    """Outputs of the hidden units."""
    return jax.nn.relu(x @ values["w1"] + values["b1"])


def losses(values, x, y):
    """Negative log-likelihood of every image."""
    logits = hidden(values, x) @ values["w2"] + values["b2"]
    return -jax.nn.log_softmax(logits)[jnp.arange(len(y)), y]


def permutation_of(num: int, rng: np.random.Generator) -> np.ndarray:
    """A random permutation of ``WIDTH`` indices that takes ``num`` transpositions: WIDTH - num cycles."""
    order = rng.permutation(WIDTH)
    ends = np.sort(rng.permutation(np.arange(1, WIDTH))[: WIDTH - num - 1])
    g = np.arange(WIDTH)
    for cycle in np.split(order, ends):
        g[cycle] = np.roll(cycle, 1)
    return g


@jax.jit
def train(values, key, x, y):
    """Plain SGD with momentum."""
    optimizer = optax.sgd(0.05, momentum=0.9)

    def step(state, key):
        values, memory = state
        rows = jax.random.choice(key, len(x), (BATCH,))
        gradient = jax.grad(lambda v: losses(v, x[rows], y[rows]).mean())(values)
        updates, memory = optimizer.update(gradient, memory)
        return (optax.apply_updates(values, updates), memory), None

    return jax.lax.scan(step, (values, optimizer.init(values)), jax.random.split(key, STEPS))[0][0]


def pair(level: int, seed: int) -> dict[str, Any]:
    """One pair: transpositions planted and found, barriers before and after matching."""
    x, y, test_x, test_y = digits()
    rng = np.random.default_rng(1000 * level + seed)
    shapes = {"w1": (64, WIDTH), "b1": (WIDTH,), "w2": (WIDTH, 10), "b2": (10,)}
    start = {s: jnp.asarray(rng.uniform(-0.125, 0.125, shape), jnp.float32) for s, shape in shapes.items()}
    bound = SYMMETRY.bind(start)
    planted = {"hidden": jnp.asarray(permutation_of(level, rng))}
    a = train(start, jax.random.key(2 * seed), x, y)
    b = train(bound.apply(planted, start), jax.random.key(2 * seed + 1), x, y)
    result: dict[str, Any] = {
        "planted": int(num_transpositions(planted)["hidden"]),
        "start_distance": _distance(start, bound.apply(planted, start)),
        "distance": _distance(a, b),
        "accuracy": [float((jnp.argmax(hidden(v, test_x) @ v["w2"] + v["b2"], -1) == test_y).mean()) for v in (a, b)],
    }
    sides = {"train": (x, y), "test": (test_x, test_y)}
    barriers = {name: partial(loss_barrier, partial(losses, x=u, y=v), num_points=11) for name, (u, v) in sides.items()}
    result |= {f"barrier_{side}": barrier(a, b).barrier for side, barrier in barriers.items()}
    for name, cost in {
        "weights": "euclidean",
        "activations": ActivationCost(lambda v: {"hidden": hidden(v, x)}),
    }.items():
        found = match(a, b, SYMMETRY, cost=cost)
        moved = bound.apply(found.element, b)
        undone = np.asarray(planted["hidden"])[np.asarray(found.element["hidden"])]
        result[f"found_{name}"] = int(num_transpositions(found.element)["hidden"])
        result[f"units_recovered_{name}"] = float((undone == np.arange(WIDTH)).mean())
        result[f"distance_{name}"] = _distance(a, moved)
        result |= {f"barrier_{side}_{name}": barrier(a, moved).barrier for side, barrier in barriers.items()}
    return result


def _distance(a, b) -> float:
    return float(sum(jnp.sum((a[s] - b[s]) ** 2) for s in a))


def main() -> None:
    """Run what has not been run."""
    jobs = {f"{level}/{seed}": partial(pair, level, seed) for level in LEVELS for seed in range(3)}
    records.run("transpositions", jobs)


if __name__ == "__main__":
    main()
