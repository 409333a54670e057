"""UCI regression: a Bayesian network fitted by stock SVI, bare, with InfoNCE and with the sequential bound.

Every fit of a split starts from the same key and is scored by the same two-sided evaluator, so differences are paired.
Results go to tests/reproduction/results/uci_50.json, or another name, and are not run again.

    python -m tests.reproduction.uci --data uci_regression.npz --dataset yacht --width 50 --name uci_50
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from jax.scipy.special import logsumexp
from numpyro.infer import SVI, Trace_ELBO, init_to_sample
from numpyro.infer.autoguide import AutoNormal
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize_scalar

from numpyro_symmetry import AutoSymmetrized, Symmetry
from tests.reproduction import records

INITIAL_SCALE = math.exp(-2.5)


def network(x, y=None, *, widths):
    """ReLU network with unit priors and fan-in scaling inside, so that a wide one tends to a Gaussian process."""
    hidden = x
    for layer, width in enumerate(widths, start=1):
        fan_in = hidden.shape[-1]
        kernel = numpyro.sample(f"w{layer}", dist.Normal(0.0, 1.0).expand([fan_in, width]).to_event(2))
        bias = numpyro.sample(f"b{layer}", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
        hidden = jax.nn.relu(hidden @ kernel * math.sqrt((1.0 if layer == 1 else 2.0) / fan_in) + bias)
    last = len(widths) + 1
    kernel = numpyro.sample(f"w{last}", dist.Normal(0.0, 1.0).expand([widths[-1], 1]).to_event(2))
    bias = numpyro.sample(f"b{last}", dist.Normal(0.0, 1.0).expand([1]).to_event(1))
    mean = numpyro.deterministic("mean", (hidden @ kernel * math.sqrt(2.0 / widths[-1]) + bias)[..., 0])
    noise = numpyro.param("noise", math.exp(-1.0), constraint=dist.constraints.positive)
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def layers(widths) -> list[tuple[str, str | None]]:
    return [(f"w{layer}", f"b{layer}") for layer in range(1, len(widths) + 2)]


def load_split(path: Path, dataset: str, split: int) -> dict[str, Any]:
    """Standardised training and test data of a standard split."""
    with np.load(path) as file:
        x, y = file[f"{dataset}_x"], file[f"{dataset}_y"]
        train, test = file[f"{dataset}_train_index"][split], file[f"{dataset}_test_index"][split]
    centre, spread = x[train].mean(0), x[train].std(0) + 1e-8
    y_centre, y_spread = y[train].mean(), y[train].std()
    return {
        "x": jnp.asarray((x[train] - centre) / spread, jnp.float32),
        "y": jnp.asarray((y[train] - y_centre) / y_spread, jnp.float32),
        "x_test": jnp.asarray((x[test] - centre) / spread, jnp.float32),
        "y_test": jnp.asarray((y[test] - y_centre) / y_spread, jnp.float32),
        "spread": float(y_spread),
    }


def fit(data: dict[str, Any], widths, method: str, steps: int, seed: int, particles: int = 2) -> dict[str, float]:
    """Train by one method and score by the common evaluator."""

    def model(x, y=None):
        network(x, y, widths=widths)

    def base():
        return AutoNormal(model, init_loc_fn=init_to_sample, init_scale=INITIAL_SCALE)

    symmetry = Symmetry.mlp(layers(widths))
    if method == "bare":
        guide = base()
    elif method.startswith("infonce"):
        guide = AutoSymmetrized(base(), symmetry, estimator="infonce", num_permutations=int(method[7:] or 64))
    else:
        guide = AutoSymmetrized(base(), symmetry, estimator=method)
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, steps))
    svi = SVI(model, guide, optimizer, Trace_ELBO(num_particles=particles))
    started = time.perf_counter()
    state = svi.init(jax.random.PRNGKey(seed), data["x"], data["y"])

    @jax.jit
    def train(state, x, y):  # data as arguments, so that splits share one compiled step
        return jax.lax.scan(lambda state, _: svi.update(state, x, y), state, length=steps)

    compiled_train = train.lower(state, data["x"], data["y"]).compile()
    compiled = time.perf_counter()
    state, losses = jax.block_until_ready(compiled_train(state, data["x"], data["y"]))
    trained = time.perf_counter()
    params = svi.get_params(state)
    judge = AutoSymmetrized(base(), symmetry)
    bounds = judge.elbo_bounds(jax.random.PRNGKey(99), params, data["x"], data["y"], num_particles=400)
    draws = judge.sample_posterior(jax.random.PRNGKey(98), params, sample_shape=(400,))
    mean = predict(draws, data["x_test"], widths)
    log_lik = dist.Normal(mean, params["noise"]).log_prob(data["y_test"])
    return {
        "evidence_lower": bounds.lower,
        "evidence_lower_error": bounds.lower_error,
        "evidence_upper": bounds.upper,
        "base_elbo": bounds.base_elbo,
        "information_lower": bounds.mutual_information[0],
        "information_upper": bounds.mutual_information[1],
        "log_order": bounds.log_order,
        "test_log_likelihood": float((logsumexp(log_lik, 0) - math.log(400)).mean() - math.log(data["spread"])),
        "rmse": float(jnp.sqrt(((mean.mean(0) - data["y_test"]) ** 2).mean()) * data["spread"]),
        "units_in_use": units_in_use(draws, data["x"]) if len(widths) == 1 else None,
        "noise": float(params["noise"]),
        "final_loss": float(np.mean(losses[-100:])),
        "compile_seconds": compiled - started,
        "train_seconds": trained - compiled,
    }


def predict(draws, x, widths):
    hidden = jnp.broadcast_to(x, (400, *x.shape))
    for layer in range(1, len(widths) + 1):
        scale = math.sqrt((1.0 if layer == 1 else 2.0) / hidden.shape[-1])
        hidden = jax.nn.relu(hidden @ draws[f"w{layer}"] * scale + draws[f"b{layer}"][:, None])
    last = len(widths) + 1
    return (hidden @ draws[f"w{last}"] * math.sqrt(2.0 / widths[-1]) + draws[f"b{last}"][:, None])[..., 0]


def units_in_use(draws, x) -> int:
    """Units whose mean contribution varies over the data by more than they scatter over the posterior."""
    scale = math.sqrt(1.0 / x.shape[-1])

    def of_unit(w1, b1, w2):  # one unit at a time: all of them at once would not fit
        parts = jax.nn.relu(x @ w1.T * scale + b1) * w2
        return parts.mean(1).var() > parts.var(1).mean()

    by_unit = (jnp.moveaxis(draws["w1"], -1, 0), draws["b1"].T, draws["w2"][..., 0].T)
    return int(jax.lax.map(lambda unit: of_unit(*unit), by_unit).sum())


def nngp_log_evidence(data: dict[str, Any]) -> dict[str, float]:
    """Exact log evidence of the network's infinite-width limit, the arc-cosine Gaussian process, noise maximised."""
    x, y = np.asarray(data["x"], float), np.asarray(data["y"], float)

    def kernel(a, b):
        inner = a @ b.T / a.shape[1] + 1
        norm_a, norm_b = (np.sqrt((v**2).sum(1) / v.shape[1] + 1) for v in (a, b))
        angle = np.arccos(np.clip(inner / np.outer(norm_a, norm_b), -1, 1))
        return np.outer(norm_a, norm_b) / np.pi * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) + 1

    prior = kernel(x, x)

    def negative(log_noise):
        factor = cho_factor(prior + np.exp(2 * log_noise) * np.eye(len(x)), lower=True)
        log_det = np.log(np.diag(factor[0])).sum()
        return 0.5 * y @ cho_solve(factor, y) + log_det + 0.5 * len(x) * np.log(2 * np.pi)

    best = minimize_scalar(negative, bounds=(-5, 0), method="bounded")
    factor = cho_factor(prior + np.exp(2 * best.x) * np.eye(len(x)), lower=True)
    mean = kernel(np.asarray(data["x_test"], float), x) @ cho_solve(factor, y)
    rmse = np.sqrt(((np.asarray(data["y_test"]) - mean) ** 2).mean()) * data["spread"]
    return {"log_evidence": float(-best.fun), "noise": float(np.exp(best.x)), "rmse": float(rmse)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", nargs="+", default=["yacht"])
    parser.add_argument("--width", type=int, nargs="+", default=[50])
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", default=["bare", "infonce64", "sequential"])
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--name", default="uci_50", help="of the file of records")
    options = parser.parse_args()
    jobs: dict[str, Any] = {}
    for dataset, split in itertools.product(options.dataset, options.splits):
        data = load_split(options.data, dataset, split)
        jobs[f"{dataset}/nngp/{split}"] = partial(nngp_log_evidence, data)
        for width, method in itertools.product(options.width, options.methods):
            name = f"{dataset}/{'-'.join([str(width)] * options.depth)}/{split}/{method}/{options.steps}"
            jobs[name] = partial(fit, data, (width,) * options.depth, method, options.steps, seed=split)
    records.run(options.name, jobs)


if __name__ == "__main__":
    main()
