"""What one would do instead, on the regression networks of `wide`: one ReLU layer of 50 units.

    python -m tests.reproduction.wide_baselines --data .../uci_regression.npz --dataset yacht boston

A full-covariance guide; a deep ensemble of ten maxima of the log joint, noise maximised with it; the approximation of
Laplace at the best of them, by the generalised Gauss-Newton matrix and with linearised predictions, of all weights or
of the last layer alone; and NUTS, at the noise of the recorded symmetrized conditional fit of the same split. Only the
guide has a bound of the evidence. The estimate of Laplace is recorded beside log |G|, which it leaves out.
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
import numpyro.distributions as dist
import optax
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, SVI, Predictive, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal
from numpyro.infer.util import log_density
from scipy.optimize import minimize_scalar

from numpyro_symmetry import AutoSymmetrized, Symmetry
from tests.reproduction import records
from tests.reproduction.uci import layers, load_split, network, nngp_log_evidence
from tests.reproduction.wide import INITIAL_SCALE, score, start_apart
from tests.reproduction.wide import predictive_scores as scores

WIDTH, MEMBERS, DRAWS, STEPS = 50, 10, 100, 2000
METHODS = ["full", "points", "nuts"]
SYMMETRY = Symmetry.mlp(layers((WIDTH,)))


def model(x, y=None):
    """One layer of 50 units; the noise is a parameter."""
    network(x, y, widths=(WIDTH,))


def full_covariance(data: dict[str, Any], seed: int) -> dict[str, Any]:
    """One Gaussian over all weights, symmetrized only to be scored."""
    guide = AutoMultivariateNormal(model, init_loc_fn=start_apart, init_scale=INITIAL_SCALE)
    svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(1e-2, STEPS)), TraceMeanField_ELBO(num_particles=2))
    fit = svi.run(jax.random.PRNGKey(seed), STEPS, data["x"], data["y"], progress_bar=False)
    found = score(AutoSymmetrized(guide, SYMMETRY), fit.params, data["x"], data["y"])
    drawn = Predictive(model, guide=guide, params=fit.params, num_samples=DRAWS)(jax.random.PRNGKey(98), data["x_test"])
    return found | scores(drawn["mean"], jnp.full(DRAWS, fit.params["noise"]), data)


def predictions(values: dict[str, Any], x: Any) -> Any:
    """The network's outputs at given weights."""
    weights = {site: value for site, value in values.items() if site != "noise"}
    traced = handlers.trace(handlers.substitute(model, weights)).get_trace(x, jnp.zeros(len(x)))
    return traced["mean"]["value"]


def maxima(data: dict[str, Any], seed: int) -> tuple[dict[str, Any], Any]:
    """Ten maxima of the log joint, each with its own noise, and how high they are."""

    def start(key: Any) -> dict[str, Any]:
        traced = handlers.trace(handlers.seed(model, key)).get_trace(data["x"])
        weights = {name: site["value"] for name, site in traced.items() if site["type"] == "sample" and name != "y"}
        return weights | {"log_noise": jnp.asarray(-1.0)}

    def loss(values: dict[str, Any]) -> Any:
        weights = {name: value for name, value in values.items() if name != "log_noise"}
        return -log_density(model, (data["x"], data["y"]), {}, weights | {"noise": jnp.exp(values["log_noise"])})[0]

    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, 3 * STEPS))

    def member(key: Any) -> tuple[dict[str, Any], Any]:
        values = start(key)

        def step(carry: Any, _: None) -> tuple[Any, None]:
            values, state = carry
            updates, state = optimizer.update(jax.grad(loss)(values), state)
            return (optax.apply_updates(values, updates), state), None

        (values, _), _ = jax.lax.scan(step, (values, optimizer.init(values)), length=3 * STEPS)
        return values, -loss(values)

    found, heights = jax.jit(jax.vmap(member))(jax.random.split(jax.random.PRNGKey(seed), MEMBERS))
    noise = jnp.exp(found.pop("log_noise"))
    return found | {"noise": noise}, heights


def point_estimates(data: dict[str, Any], seed: int) -> dict[str, Any]:
    """The ensemble, and Laplace's two approximations at its highest member."""
    members, heights = maxima(data, seed)
    means = jax.vmap(lambda values: predictions(values, data["x_test"]))(members)
    best = jax.tree.map(lambda x: x[heights.argmax()], members)
    best.pop("noise")
    flat, unravel = ravel_pytree(best)
    is_last = ravel_pytree({site: jnp.full_like(x, site in ("w2", "b2")) for site, x in best.items()})[0] > 0
    at = {
        rows: jax.jacobian(lambda w, rows=rows: predictions(unravel(w), data[rows]))(flat) for rows in ("x", "x_test")
    }
    mean = predictions(best, data["x_test"])
    residual = np.asarray(data["y"] - predictions(best, data["x"]), float)
    log_prior = float(dist.Normal(0.0, 1.0).log_prob(flat).sum())
    found: dict[str, Any] = {"ensemble": scores(means, members["noise"], data)}
    for name, moved in (("laplace", np.ones(len(flat), bool)), ("last_layer", np.asarray(is_last))):
        slopes = {rows: np.asarray(jacobian, float)[:, moved] for rows, jacobian in at.items()}
        curvature = slopes["x"].T @ slopes["x"]
        evidence, noise = _best_noise(residual, curvature, log_prior)
        precision = np.eye(len(curvature)) + curvature / noise**2
        spread = np.einsum("nd,dn->n", slopes["x_test"], np.linalg.solve(precision, slopes["x_test"].T))
        predicted = dist.Normal(mean, jnp.sqrt(jnp.asarray(spread + noise**2))).log_prob(data["y_test"])
        found[name] = {
            "test_log_likelihood": float(predicted.mean() - math.log(data["spread"])),
            "rmse": float(jnp.sqrt(((mean - data["y_test"]) ** 2).mean()) * data["spread"]),
            "noise": noise,
        }
        if name == "laplace":
            found[name] |= {"laplace_evidence": evidence, "log_order": math.lgamma(WIDTH + 1)}
    return found


def _best_noise(residual: np.ndarray, curvature: np.ndarray, log_prior: float) -> tuple[float, float]:
    """Estimate of the log evidence, maximised over the noise, as is done after training."""
    eigenvalues = np.linalg.eigvalsh(curvature).clip(0)
    size = 0.5 * len(curvature) * math.log(2 * math.pi)

    def evidence(log_noise: float) -> float:
        variance = math.exp(2 * log_noise)
        likelihood = -0.5 * (residual**2).sum() / variance - len(residual) * (log_noise + 0.5 * math.log(2 * math.pi))
        return likelihood + log_prior + size - 0.5 * np.log1p(eigenvalues / variance).sum()

    found: Any = minimize_scalar(lambda log_noise: -evidence(log_noise), bounds=(-6.0, 1.0), method="bounded")
    return -float(found.fun), math.exp(found.x)


def nuts(data: dict[str, Any], seed: int, noise: float) -> dict[str, Any]:
    """Two chains of 500 draws after as many to warm up."""
    substituted = handlers.substitute(model, {"noise": jnp.asarray(noise)})
    sampler = MCMC(
        NUTS(substituted, max_tree_depth=8),
        num_warmup=500,
        num_samples=500,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    sampler.run(jax.random.PRNGKey(seed), data["x"], data["y"], extra_fields=("diverging", "num_steps"))
    draws = {site: value for site, value in sampler.get_samples().items() if site in ("w1", "b1", "w2", "b2")}
    means = jax.lax.map(lambda values: predictions(values, data["x_test"]), draws)
    extra = sampler.get_extra_fields()
    return scores(means, jnp.full(len(means), noise), data) | {
        "divergences": int(extra["diverging"].sum()),
        "steps_a_draw": float(extra["num_steps"].mean()),
    }


def _timed(job: Any, *args: Any) -> dict[str, Any]:
    started = time.perf_counter()
    return job(*args) | {"total_seconds": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", nargs="+", default=["yacht", "boston"])
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    options = parser.parse_args()
    recorded = records.load("wide")
    jobs: dict[str, Any] = {}
    for split, dataset in itertools.product(options.splits, options.dataset):
        data = load_split(options.data, dataset, split)
        jobs[f"{dataset}/line/{split}"] = partial(nngp_log_evidence, data)
        chosen: dict[str, Any] = {"full": (full_covariance, data, split), "points": (point_estimates, data, split)}
        if ours := recorded.get(f"{dataset}/{WIDTH}/{split}/exact+sym/2000/0"):
            chosen["nuts"] = nuts, data, split, ours["noise"]
        for method in (name for name in options.methods if name in chosen):
            jobs[f"{dataset}/{WIDTH}/{split}/{method}"] = partial(_timed, *chosen[method])
    records.run("wide_baselines", jobs)


if __name__ == "__main__":
    main()
