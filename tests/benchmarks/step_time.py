"""Ratio of an SVI step's time, one guide's to another's, measured turn by turn in one run.

    python -m tests.benchmarks.step_time
    python -m tests.benchmarks.step_time --cases conditional

The cases ``mean-field`` and ``conditional`` compare a guide symmetrized with the same guide bare, ``units`` compares a
covariance per unit with independent weights, both symmetrized, ``deep`` has two hidden layers, and ``many`` trains the
wide networks that a laptop still holds.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO, init_to_sample
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoConditional, AutoSymmetrized, AutoUnitNormal, Symmetry

LAYERS = [("w1", "b1"), ("w2", "b2"), ("w3", "b3")]
SYMMETRY, DEEP = (Symmetry.mlp(LAYERS[:count]) for count in (2, 3))
START = {"init_loc_fn": init_to_sample, "init_scale": 0.05}


class Case(NamedTuple):
    """A network's sizes and the two guides whose steps are compared."""

    features: int
    width: int
    outputs: int
    rows: int
    one: Callable[[Callable], Any]
    other: Callable[[Callable], Any]
    particles: int = 2
    depth: int = 1


def network(x, y, *, width, outputs, depth):
    """ReLU layers of one width, softmax or Gaussian outputs."""
    out, scale = x, math.sqrt(1.0 / x.shape[1])
    for layer, (kernel, bias) in enumerate(LAYERS[: depth + 1]):
        sizes = out.shape[1], outputs if layer == depth else width
        weights = numpyro.sample(kernel, dist.Normal(0.0, 1.0).expand(sizes).to_event(2))
        offset = numpyro.sample(bias, dist.Normal(0.0, 1.0).expand(sizes[1:]).to_event(1))
        out = (jax.nn.relu(out) if layer else out) @ weights * scale + offset
        scale = math.sqrt(2.0 / width)
    likelihood = dist.Categorical(logits=out) if outputs > 1 else dist.Normal(out[:, 0], 0.1)
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", likelihood, obs=y)


def independent(model):
    """Mean field."""
    return AutoNormal(model, **START)


def following(model):
    """Output weights by the exact conditional."""
    return AutoConditional(independent(model))


def following_units(model):
    """The same around a covariance for each unit."""
    return AutoConditional(AutoUnitNormal(model, SYMMETRY, **START))


def inducing(model):
    """Output weights by a hundred pseudo-observations."""
    return AutoConditional(independent(model), inducing=100)


def symmetrized(base, symmetry=SYMMETRY, **options):
    """A guide's symmetrized form."""
    return lambda model: AutoSymmetrized(base(model), symmetry, **options)


def cases(max_features: int | None) -> dict[str, dict[str, Case]]:
    """Every comparison, by group and name."""
    mean_field = symmetrized(independent, max_features=max_features)
    return {
        "mean-field": {
            "784-128-10": Case(784, 128, 10, 100, mean_field, independent, particles=1),
            "784-512-10": Case(784, 512, 10, 100, mean_field, independent, particles=1),
            "yacht 6-50-1": Case(6, 50, 1, 277, mean_field, independent),
            "yacht 6-200-1": Case(6, 200, 1, 277, mean_field, independent),
        },
        "conditional": {
            "yacht 6-50-1": Case(6, 50, 1, 277, symmetrized(following), following),
            "yacht 6-200-1": Case(6, 200, 1, 277, symmetrized(following), following),
            "boston 13-200-1": Case(13, 200, 1, 455, symmetrized(following), following),
            "digits 64-50-10": Case(64, 50, 10, 1437, symmetrized(inducing), inducing, particles=1),
        },
        "units": {"yacht 6-50-1": Case(6, 50, 1, 277, symmetrized(following_units), symmetrized(following))},
        "deep": {
            "yacht 6-50-50-1, mean field": Case(6, 50, 1, 277, symmetrized(independent, DEEP), independent, depth=2),
            "yacht 6-50-50-1, conditional": Case(6, 50, 1, 277, symmetrized(following, DEEP), following, depth=2),
            "8-256-256-1, mean field": Case(8, 256, 1, 277, symmetrized(independent, DEEP), independent, depth=2),
        },
        "many": {
            "yacht 6-2048-1": Case(6, 2048, 1, 277, symmetrized(following), following),
            "yacht 6-4096-1": Case(6, 4096, 1, 277, symmetrized(following), following),
        },
    }


def measure(case: Case, *, rounds: int, steps: int) -> dict[str, float]:
    """Median over rounds of the milliseconds of one step of each guide, and of their ratio."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(case.rows, case.features)), jnp.float32)
    y = jnp.asarray(rng.integers(0, case.outputs, case.rows) if case.outputs > 1 else rng.normal(size=case.rows))

    def model(x, y):
        network(x, y, width=case.width, outputs=case.outputs, depth=case.depth)

    runs = []
    for guide in (case.one(model), case.other(model)):
        svi = SVI(model, guide, optax.adam(1e-3), Trace_ELBO(num_particles=case.particles))
        state = svi.init(jax.random.PRNGKey(0), x, y)
        run = jax.jit(lambda state, svi=svi: jax.lax.scan(lambda s, _: svi.update(s, x, y), state, length=steps))
        state, losses = jax.block_until_ready(run(state))
        if not bool(jnp.isfinite(losses).all()):
            raise FloatingPointError("a loss is not finite")
        runs.append((run, state))
    seconds = np.empty((rounds, len(runs)))
    for turn in range(rounds):
        for which, (run, state) in enumerate(runs):
            started = time.perf_counter()
            jax.block_until_ready(run(state))
            seconds[turn, which] = (time.perf_counter() - started) / steps
    ratios = seconds[:, 0] / seconds[:, 1]
    one, other = 1e3 * np.median(seconds, 0)
    return {
        "ms": round(float(one), 3),
        "other_ms": round(float(other), 3),
        "ratio": round(float(np.median(ratios)), 3),
        "ratio_of_minima": round(float(seconds[:, 0].min() / seconds[:, 1].min()), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=["mean-field", "conditional", "units"])
    parser.add_argument("--max-features", type=lambda n: int(n) or None, default=64, help="of mean field; 0 for all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    for group in options.cases:
        for name, case in cases(options.max_features)[group].items():
            print(group, name, json.dumps(measure(case, rounds=options.rounds, steps=options.steps)), flush=True)


if __name__ == "__main__":
    main()
