"""Ratio of an SVI step's time, symmetrized to bare, measured turn by turn in one run.

python -m tests.benchmarks.step_time
"""

from __future__ import annotations

import argparse
import json
import math
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO, init_to_sample
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoSymmetrized, Symmetry


def network(x, y, *, width, outputs):
    """One hidden layer, softmax or Gaussian outputs."""
    features = x.shape[1]
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([features, width]).to_event(2))
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([width, outputs]).to_event(2))
    b2 = numpyro.sample("b2", dist.Normal(0.0, 1.0).expand([outputs]).to_event(1))
    out = jax.nn.relu(x @ w1 / math.sqrt(features) + b1) @ w2 * math.sqrt(2.0 / width) + b2
    likelihood = dist.Categorical(logits=out) if outputs > 1 else dist.Normal(out[:, 0], 0.1)
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", likelihood, obs=y)


def measure(features, width, outputs, batch, *, max_features=None, rounds=15, steps=10, particles=1):
    """Median over rounds of the time of one step of each guide, and of their ratio."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(batch, features)), jnp.float32)
    y = jnp.asarray(rng.integers(0, outputs, batch) if outputs > 1 else rng.normal(size=batch))

    def model(x, y):
        network(x, y, width=width, outputs=outputs)

    def base():
        return AutoNormal(model, init_loc_fn=init_to_sample, init_scale=0.05)

    symmetry = Symmetry.mlp([("w1", "b1"), ("w2", "b2")])
    guides = {"bare": base(), "symmetrized": AutoSymmetrized(base(), symmetry, max_features=max_features)}
    runs = {}
    for name, guide in guides.items():
        svi = SVI(model, guide, optax.adam(1e-3), Trace_ELBO(num_particles=particles))
        state = svi.init(jax.random.PRNGKey(0), x, y)
        run = jax.jit(lambda state, svi=svi: jax.lax.scan(lambda s, _: svi.update(s, x, y), state, length=steps)[0])
        jax.block_until_ready(run(state))
        runs[name] = (run, state)
    seconds = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (run, state) in runs.items():
            started = time.perf_counter()
            jax.block_until_ready(run(state))
            seconds[name].append((time.perf_counter() - started) / steps)
    ratios = np.array(seconds["symmetrized"]) / np.array(seconds["bare"])
    return {name: round(1e3 * float(np.median(t)), 3) for name, t in seconds.items()} | {
        "ratio": round(float(np.median(ratios)), 3),
        "ratio_min": round(float(ratios.min()), 3),
        "ratio_max": round(float(ratios.max()), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max-features", type=lambda n: int(n) or None, default=64, help="0 for all")
    options = parser.parse_args()
    cases = {
        "784-128-10": (784, 128, 10, 100),
        "784-512-10": (784, 512, 10, 100),
        "yacht 6-50-1": (6, 50, 1, 277),
        "yacht 6-200-1": (6, 200, 1, 277),
    }
    for name, case in cases.items():
        particles = 2 if case[2] == 1 else 1
        print(name, json.dumps(measure(*case, max_features=options.max_features, particles=particles)), flush=True)


if __name__ == "__main__":
    main()
