"""Wide networks: guides whose output layer follows the hidden one, on UCI regression, digits and MNIST.

    python -m tests.reproduction.wide --data .../uci_regression.npz --dataset yacht --width 50 200 --splits 0 1

Every fit is by ordinary SVI, every score by `elbo_bounds` of the symmetrized guide. "The line" is each split's own
infinite-width log evidence, noise maximised. Runs are resumable: what is recorded is not run twice.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import math
import time
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from jax.scipy.special import logsumexp
from numpyro.infer import SVI, Predictive, TraceMeanField_ELBO, init_to_uniform
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoSymmetrized, Symmetry
from numpyro_symmetry.guides import AutoConditional, AutoUnitNormal
from tests.reproduction import records
from tests.reproduction.uci import layers, load_split, network, nngp_log_evidence

INITIAL_SCALE = math.exp(-2.5)
DRAWS = 100


def classifier(x, y=None, *, width, num_rows=None):
    """One ReLU layer with unit priors and fan-in scaling, ten classes; ``num_rows`` where x is a batch of so many."""
    fan_in = x.shape[-1]
    kernel = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([fan_in, width]).to_event(2))
    bias = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    hidden = jax.nn.relu(x @ kernel / math.sqrt(fan_in) + bias) * math.sqrt(2.0 / width)
    output = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([width, 10]).to_event(2))
    offset = numpyro.sample("b2", dist.Normal(0.0, 1.0).expand([10]).to_event(1))
    with numpyro.plate("data", num_rows or x.shape[0], subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=hidden @ output + offset), obs=y)


def start_apart(site=None):
    """Standard normal, whatever the prior."""
    if site is None:
        return partial(start_apart)
    if site["type"] == "sample" and not site["is_observed"]:
        return jax.random.normal(site["kwargs"]["rng_key"], site["fn"].shape())
    return init_to_uniform(site)


def guide_of(model: Callable, method: str, symmetry: Symmetry) -> tuple[Any, bool]:
    """A guide by name, ``kind`` or ``kind+sym``, and whether its conditional is made from the data."""
    kind, _, symmetrized = method.partition("+")
    base: Any = AutoNormal(model, init_loc_fn=start_apart, init_scale=INITIAL_SCALE)
    if kind == "exact":
        base = AutoConditional(base)
    elif kind == "unit":
        base = AutoConditional(AutoUnitNormal(model, symmetry, init_loc_fn=start_apart, init_scale=INITIAL_SCALE))
    elif kind.startswith("inducing"):
        base = AutoConditional(base, inducing=int(kind.removeprefix("inducing") or 100))
    elif kind != "meanfield":
        raise ValueError(f"no such method: {method}")
    return (AutoSymmetrized(base, symmetry) if symmetrized else base), kind in ("exact", "unit")


def train(model: Callable, guide: Any, data: dict[str, Any], steps: int, seed: int, particles: int, batch: int) -> Any:
    """Parameters and losses by SVI with Adam and a cosine schedule; seconds of training."""
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, steps))
    svi = SVI(model, guide, optimizer, TraceMeanField_ELBO(num_particles=particles))
    x, y = data["x"], data["y"]
    rows = slice(0, batch) if batch else slice(None)
    state = svi.init(jax.random.PRNGKey(seed), x[rows], y[rows])

    @jax.jit
    def run(state: Any, x: Any, y: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            if not batch:
                return svi.update(state, x, y)
            chosen = jax.random.choice(key, len(x), (batch,), replace=False)
            return svi.update(state, x[chosen], y[chosen])

        return jax.lax.scan(step, state, jax.random.split(jax.random.PRNGKey(seed + 1), steps))

    compiled = run.lower(state, x, y).compile()
    started = time.perf_counter()
    state, losses = jax.block_until_ready(compiled(state, x, y))
    return svi.get_params(state), losses, time.perf_counter() - started


def fit(data: dict[str, Any], widths: tuple[int, ...], method: str, steps: int, seed: int) -> dict[str, Any]:
    """Regression: train by one method and score by the common evaluator."""

    def model(x, y=None):
        network(x, y, widths=widths)

    symmetry = Symmetry.mlp(layers(widths))
    guide, on_data = guide_of(model, method, symmetry)
    params, losses, seconds = train(model, guide, data, steps, seed, 2, 0)
    judge = guide if isinstance(guide, AutoSymmetrized) else AutoSymmetrized(guide, symmetry)
    found = score(judge, params, data["x"], data["y"])
    bound = guide.given(data["x"], data["y"]) if on_data else guide
    drawn = Predictive(model, guide=bound, params=params, num_samples=DRAWS, parallel=False)
    mean = drawn(jax.random.PRNGKey(98), data["x_test"])["mean"]
    return (
        found
        | predictive_scores(mean, jnp.full(DRAWS, params["noise"]), data)
        | {
            "noise": float(params["noise"]),
            "final_loss": float(np.mean(losses[-100:])),
            "finite": bool(np.isfinite(losses).all()),
            "train_seconds": seconds,
        }
    )


def predictive_scores(means: Any, noise: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Held-out log-likelihood a row, in the units of the data, and error of the mean, of draws ``(draws, rows)``."""
    log_likelihood = dist.Normal(means, noise[:, None]).log_prob(data["y_test"])
    return {
        "test_log_likelihood": float(
            (logsumexp(log_likelihood, 0) - math.log(len(means))).mean() - math.log(data["spread"])
        ),
        "rmse": float(jnp.sqrt(((means.mean(0) - data["y_test"]) ** 2).mean()) * data["spread"]),
    }


def fit_classifier(data: dict[str, Any], width: int, method: str, steps: int, seed: int, batch: int) -> dict[str, Any]:
    """Classification: train by one method, in batches or not, and score on all rows."""
    model = partial(classifier, width=width, num_rows=len(data["x"]))
    whole = partial(classifier, width=width)
    symmetry = Symmetry.mlp([("w1", "b1"), ("w2", "b2")])
    guide, on_data = guide_of(model if batch else whole, method, symmetry)
    params, losses, seconds = train(model if batch else whole, guide, data, steps, seed, 1, batch)
    judge = guide if isinstance(guide, AutoSymmetrized) else AutoSymmetrized(guide, symmetry)
    found = score(judge, params, data["x"], data["y"])
    bound = guide.given(data["x"], data["y"]) if on_data else guide
    draws = Predictive(bound, params=params, num_samples=DRAWS, parallel=False)(jax.random.PRNGKey(98), data["x_test"])

    def log_probabilities(draw: dict[str, Any]) -> Any:
        hidden = jax.nn.relu(data["x_test"] @ draw["w1"] / math.sqrt(data["x"].shape[1]) + draw["b1"])
        return jax.nn.log_softmax(hidden * math.sqrt(2.0 / width) @ draw["w2"] + draw["b2"])

    mixed = logsumexp(jax.lax.map(log_probabilities, draws), 0) - math.log(DRAWS)
    labels = data["y_test"]
    return found | {
        "test_log_likelihood": float(mixed[jnp.arange(len(labels)), labels].mean()),
        "accuracy": float((mixed.argmax(1) == labels).mean()),
        "calibration_error": calibration_error(np.exp(mixed), np.asarray(labels)),
        "final_loss": float(np.mean(losses[-100:])),
        "finite": bool(np.isfinite(losses).all()),
        "train_seconds": seconds,
    }


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error of the most likely class, equal bins."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs(confidence[which == b].sum() - right[which == b].sum()) for b in range(bins)]
    return float(sum(gaps) / len(labels))


def score(judge: AutoSymmetrized, params: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    bounds = judge.elbo_bounds(jax.random.PRNGKey(99), params, x, y, num_particles=DRAWS, progress_bar=False)
    return {
        "evidence_lower": bounds.lower,
        "evidence_lower_error": bounds.lower_error,
        "evidence_upper": bounds.upper,
        "importance_weighted": bounds.importance_weighted,
        "base_elbo": bounds.base_elbo,
        "information_lower": bounds.mutual_information[0],
        "log_order": bounds.log_order,
    }


def digits(_: Path) -> dict[str, Any]:
    """Digits of 8 by 8, pixels from -0.6 to 1.4, 1437 to train on."""
    text = gzip.decompress((files("numpyro_symmetry") / "data" / "digits.csv.gz").read_bytes()).decode()
    rows = np.loadtxt(text.splitlines(), delimiter=",", skiprows=1)
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    x, y = jnp.asarray(rows[:, :-1] / 8 - 0.6, jnp.float32), jnp.asarray(rows[:, -1].astype(int))
    return {"x": x[:1437], "y": y[:1437], "x_test": x[1437:], "y_test": y[1437:]}


def mnist(path: Path) -> dict[str, Any]:
    """Pixels scaled as those of the digits are, 60,000 to train on."""
    with np.load(path) as arrays:
        images = {name: arrays[name].reshape(-1, 784) / 128 - 0.6 for name in ("x_train", "x_test")}
        labels = {name: jnp.asarray(arrays[name].astype(int)) for name in ("y_train", "y_test")}
    x, x_test = (jnp.asarray(images[name], jnp.float32) for name in ("x_train", "x_test"))
    return {"x": x, "y": labels["y_train"], "x_test": x_test, "y_test": labels["y_test"]}


# the first argument of each is the path of the regression data, which others may stand beside
IMAGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "digits": digits,
    "mnist": lambda path: mnist(path.with_name("mnist.npz")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", nargs="+", default=["yacht"])
    parser.add_argument("--width", type=int, nargs="+", default=[50])
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--starts", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", default=["exact", "exact+sym"])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--name", default="wide", help="of the file of records")
    options = parser.parse_args()
    jobs: dict[str, Any] = {}
    for dataset, split in itertools.product(options.dataset, options.splits):
        if dataset in IMAGES:
            data = IMAGES[dataset](options.data)
        else:
            data = load_split(options.data, dataset, split)
            jobs[f"{dataset}/line/{split}"] = partial(nngp_log_evidence, data)
        for width, method, start in itertools.product(options.width, options.methods, options.starts):
            shape = "-".join([str(width)] * options.depth)
            name = f"{dataset}/{shape}/{split}/{method}/{options.steps}/{start}"
            seed = 10 * split + start
            if dataset in IMAGES:
                key = f"{name}/{options.batch}"
                jobs[key] = partial(fit_classifier, data, width, method, options.steps, seed, options.batch)
            else:
                jobs[name] = partial(fit, data, (width,) * options.depth, method, options.steps, seed)
    records.run(options.name, jobs)


if __name__ == "__main__":
    main()
