"""Many short fits of small random models by conditional guides: none may hang, none may become NaN.

    python -m tests.benchmarks.random_fits --models 125 --limit 300

Every model is drawn at random (layers, widths, rows, activation, likelihood, masks, priors, kind of guide) and fitted
eight times, on data of its own each time. Fits run in a process that is watched: one that says nothing while it takes
``--limit`` seconds of a processor, or for as long takes none, counts as hung, is stopped, and the next model begins.
"""

from __future__ import annotations

import argparse
import json
import math
import select
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

STARTS, STEPS, SPREAD = 8, 200, 0.3
LIKELIHOODS = ("normal", "learned noise", "latent noise", "masked", "outputs", "hierarchical", "Student-t")
LIKELIHOODS += ("Bernoulli", "Categorical", "Poisson", "Binomial")
ACTIVATIONS = ("tanh", "relu", "sigmoid", "softplus")
GUIDES = ("exact", "inducing", "unit", "nested")


def problem(seed: int) -> dict[str, Any]:
    """A random model in words."""
    import numpy as np

    rng = np.random.default_rng(seed)
    found = {
        "depth": int(rng.choice([1, 1, 2])),
        "width": int(rng.integers(1, 9)),
        "rows": int(rng.integers(3, 41)),
        "features": int(rng.integers(1, 5)),
        "activation": str(rng.choice(ACTIVATIONS)),
        "likelihood": str(rng.choice(LIKELIHOODS)),
        "noise": float(10 ** rng.uniform(-2, 0)),
        "rate": float(10 ** rng.uniform(-2.5, -1.5)),
        "particles": int(rng.integers(1, 3)),
        "symmetrized": bool(rng.integers(2)),
        "guide": str(rng.choice(GUIDES)),
    }
    return found | ({"depth": 2} if found["guide"] == "nested" else {})


def model_of(problem: dict[str, Any]) -> Any:
    """The model that a description stands for."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    activation = jnp.tanh if problem["activation"] == "tanh" else getattr(jax.nn, problem["activation"])
    likelihood, width = problem["likelihood"], problem["width"]
    outputs = {"outputs": 2, "Categorical": 3}.get(likelihood, 1)

    def weights(name: str, *shape: int, scale: Any = 1.0) -> Any:
        return numpyro.sample(name, dist.Normal(0.0, scale).expand(shape).to_event(len(shape)))

    def model(x: Any, y: Any = None, seen: Any = None) -> None:
        hidden = x
        for layer in range(1, problem["depth"] + 1):
            kernel, bias = weights(f"w{layer}", hidden.shape[-1], width), weights(f"b{layer}", width)
            hidden = activation(hidden @ kernel / math.sqrt(hidden.shape[-1]) + bias)
        scale = numpyro.sample("scale", dist.HalfNormal(1.0)) if likelihood == "hierarchical" else 1.0
        output = weights("w", width, outputs, scale=scale)
        mean = hidden @ output / math.sqrt(width) + weights("b", outputs)
        noise = problem["noise"]
        if likelihood == "learned noise":
            noise = numpyro.param("noise", noise, constraint=dist.constraints.positive)
        elif likelihood == "latent noise":
            noise = numpyro.sample("noise", dist.LogNormal(math.log(noise), 0.5))
        with numpyro.plate("rows", x.shape[0]):
            if likelihood == "outputs":
                numpyro.sample("y", dist.Normal(mean, noise).to_event(1), obs=y)
            elif likelihood == "masked":
                numpyro.sample("y", dist.Normal(mean[:, 0], noise).mask(seen), obs=y)
            elif likelihood == "Student-t":
                numpyro.sample("y", dist.StudentT(4.0, mean[:, 0], noise), obs=y)
            elif likelihood == "Bernoulli":
                numpyro.sample("y", dist.Bernoulli(logits=mean[:, 0]), obs=y)
            elif likelihood == "Categorical":
                numpyro.sample("y", dist.Categorical(logits=mean), obs=y)
            elif likelihood == "Poisson":
                numpyro.sample("y", dist.Poisson(jnp.exp(mean[:, 0])), obs=y)
            elif likelihood == "Binomial":
                numpyro.sample("y", dist.Binomial(5, logits=mean[:, 0]), obs=y)
            else:
                numpyro.sample("y", dist.Normal(mean[:, 0], noise), obs=y)

    return model


def data_of(problem: dict[str, Any], seed: int) -> tuple[Any, Any, Any]:
    """Inputs, targets, and which rows are seen."""
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(problem["rows"], problem["features"]))
    signal = np.sin(2.0 * x[:, 0])
    likelihood = problem["likelihood"]
    seen = rng.random(len(x)) < 0.7
    if likelihood == "outputs":
        y = np.stack([signal, -signal], -1) + 0.1 * rng.normal(size=(len(x), 2))
    elif likelihood in ("Bernoulli", "Categorical", "Poisson", "Binomial"):
        y = {
            "Bernoulli": rng.random(len(x)) < 0.5 + 0.4 * signal,
            "Categorical": rng.integers(0, 3, len(x)),
            "Poisson": rng.poisson(np.exp(signal)),
            "Binomial": rng.binomial(5, 0.5 + 0.4 * signal),
        }[likelihood].astype(int)
    else:
        y = signal + 0.1 * rng.normal(size=len(x))
    if likelihood == "masked":
        y = np.where(seen, y, np.nan)
    as_float = np.issubdtype(y.dtype, np.floating)
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32 if as_float else None), jnp.asarray(seen)


def guide_of(problem: dict[str, Any], model: Any) -> Any:
    """The guide that a description stands for."""
    from numpyro.infer.autoguide import AutoNormal

    from numpyro_symmetry import AutoConditional, AutoSymmetrized, AutoUnitNormal

    kind = problem["guide"]
    if kind == "nested":
        base: Any = AutoConditional(AutoNormal(model), ["w2"], inducing=6)
        guide = AutoConditional(base, ["w", "b"], inducing=6)
    elif kind == "unit":
        guide = AutoConditional(AutoUnitNormal(model))
    else:
        guide = AutoConditional(AutoNormal(model), inducing=5 if kind == "inducing" else None)
    return AutoSymmetrized(guide) if problem["symmetrized"] else guide


def fit(seed: int) -> Any:
    """Whether each of a model's fits stayed finite; one at a time."""
    import jax
    import numpy as np
    import optax
    from numpyro.infer import SVI, Trace_ELBO

    chosen = problem(seed)
    model = model_of(chosen)
    svi = SVI(model, guide_of(chosen, model), optax.adam(chosen["rate"]), Trace_ELBO(num_particles=chosen["particles"]))
    state = svi.init(jax.random.key(seed), *data_of(chosen, STARTS * seed))

    @jax.jit
    def run(state: Any, *data: Any) -> Any:
        return jax.lax.scan(lambda state, _: svi.update(state, *data), state, length=STEPS)

    start = svi.optim.get_params(state.optim_state)
    leaves, structure = jax.tree.flatten(start)
    for k in range(STARTS):
        number = STARTS * seed + k
        *keys, key = jax.random.split(jax.random.key(number), len(leaves) + 1)
        moved = [v + SPREAD * jax.random.normal(k, np.shape(v)) for k, v in zip(keys, leaves, strict=True)]
        begun = state._replace(optim_state=svi.optim.init(jax.tree.unflatten(structure, moved)), rng_key=key)
        last, losses = run(begun, *data_of(chosen, number))
        parameters = jax.tree.leaves(svi.get_params(last))
        finite = np.isfinite(losses).all() and all(np.isfinite(value).all() for value in parameters)
        yield {"start": k, "finite": bool(finite), "first": float(losses[0]), "last": float(losses[-20:].mean())}


def work(models: range) -> None:
    """Fit models one after the other and say how each went, a line a fit."""
    import jax

    warnings.simplefilter("ignore")
    for seed in models:
        started = time.perf_counter()
        try:
            for found in fit(seed):
                print(json.dumps({"model": seed} | found | {"seconds": time.perf_counter() - started}), flush=True)
        except ValueError as refused:
            print(json.dumps({"model": seed, "refused": str(refused)[:300]}), flush=True)
        except Exception as error:
            print(json.dumps({"model": seed, "error": f"{type(error).__name__}: {error}"[:300]}), flush=True)
        if seed % 10 == 9:
            jax.clear_caches()


def next_line(process: subprocess.Popen, limit: float) -> bytes | None:
    """What a process says next, nothing if it ends, ``None`` if it hangs: working for too long, or not at all."""
    import psutil

    assert process.stdout is not None
    watched = psutil.Process(process.pid)
    worked, since = sum(watched.cpu_times()[:2]), time.monotonic()
    began = worked
    while not select.select([process.stdout], [], [], 1.0)[0]:
        now = sum(watched.cpu_times()[:2])
        if now > worked + 1.0:
            worked, since = now, time.monotonic()
        if now > began + limit or time.monotonic() > since + limit:
            return None
    return process.stdout.readline()


def watch(models: range, limit: float, path: Path) -> None:
    """Run models in a process that is stopped when it hangs."""
    from tqdm import tqdm

    lines: list[dict[str, Any]] = []
    first = models.start
    with path.open("a") as file, tqdm(total=len(models), desc="random fits") as bar:
        while first < models.stop:
            command = [sys.executable, "-m", "tests.benchmarks.random_fits", "--work", str(first), str(models.stop)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            current = first
            while line := next_line(process, limit):
                lines.append(json.loads(line))
                file.write(line.decode())
                file.flush()
                current = lines[-1]["model"]
                bar.update(current + 1 - models.start - bar.n)
            done = line is not None
            process.kill()
            if done and current == models.stop - 1:
                break
            stuck = current + 1 if lines and lines[-1]["model"] == current and current >= first else first
            lines.append({"model": stuck, "hung": not done, "died": bool(done)})
            file.write(json.dumps(lines[-1]) + "\n")
            first = stuck + 1
    kinds = Counter(next((k for k in ("hung", "died", "error", "refused") if row.get(k)), "fit") for row in lines)
    unfinite = [row["model"] for row in lines if row.get("finite") is False]
    print(json.dumps({"count": dict(kinds), "not finite": unfinite}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=125)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds that a fit may say nothing, of a processor or idle"
    )
    parser.add_argument("--record", type=Path, default=Path("random_fits.jsonl"))
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(range(*options.work))
    else:
        watch(range(options.first, options.first + options.models), options.limit, options.record)


if __name__ == "__main__":
    main()
