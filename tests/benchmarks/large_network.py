"""A Flax network of a million parameters, end to end: seconds, CPU seconds and peak memory of every stage.

    python -m tests.benchmarks.large_network --data PATH
    python -m tests.benchmarks.large_network --data PATH --steps 60 --only find train

PATH holds mnist.npz. Each stage in a process of its own: the symmetry is found; a symmetrized guide is trained by
minibatches with optax, its checkpoints kept by orbax, killed half-way and taken up by another process, and trained once
more in one go, which must end in the same bits; four networks are trained apart, matched and merged; chains of BlackJAX
over the last hidden and the output layer are rebased. What was measured is printed, and recorded in
results/large_network.json.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import orbax.checkpoint as ocp
from numpyro.contrib.module import random_flax_module
from numpyro.infer import SVI, Predictive, Trace_ELBO, init_to_sample
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoSymmetrized, SymmetryError, find_symmetry, merge, rebase, report, run_blackjax
from tests.benchmarks.stages import measured, record, run, tell

WIDTHS, BATCH, MEMBERS = (1200, 64), 100, 4
# of the chains: images, and transitions after as many of warm-up
IMAGES, DRAWS = 1000, 100
RESULTS = Path(__file__).parent / "results" / "large_network.json"


class Network(nn.Module):
    """784-1200-64-10, 1,019,514 parameters."""

    @nn.compact
    def __call__(self, x):
        for width in WIDTHS:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(10)(x)


NET = Network()


def prior(name: str, shape: tuple[int, ...]) -> Any:
    """As wide as keeps the size of what a layer passes on."""
    return dist.Normal(0.0, (2.0 / shape[0]) ** 0.5 if len(shape) == 2 else 0.1)


def model(x: Any, y: Any = None, num_rows: int = 60_000) -> None:
    """The network under Gaussian priors; x and y are a batch of the rows."""
    net = random_flax_module("net", NET, prior=prior, input_shape=(1, 784))
    with numpyro.plate("data", num_rows, subsample_size=len(x)):
        numpyro.sample("y", dist.Categorical(logits=net(x)), obs=y)


def images(path: Path) -> tuple[np.ndarray, ...]:
    """Training images and labels, and those of the test set."""
    with np.load(path / "mnist.npz") as arrays:
        x, x_test = (arrays[f"x_{part}"].reshape(-1, 784).astype(np.float32) / 255 for part in ("train", "test"))
        return x, arrays["y_train"].astype(np.int32), x_test, arrays["y_test"].astype(np.int32)


# ---- stages ------------------------------------------------------------------------------------------------------


def find(data: Path, folder: Path, steps: int) -> None:
    """The symmetry of the model, and of the network alone."""
    x, y, *_ = images(data)
    with measured("find_symmetry of the model"):
        of_model = find_symmetry(model, (x[:BATCH], y[:BATCH]))
    with measured("find_symmetry of the network"):
        of_network = find_symmetry(NET.apply, (NET.init(jax.random.key(0), x[:1]), x[:8]), argnum=0)
    tell({"stage": "groups", "model": str(of_model).splitlines()[0], "network": str(of_network).splitlines()[0]})


def train(data: Path, folder: Path, steps: int) -> None:
    """Train the guide from its last checkpoint on, or from the start."""
    x, y, x_test, y_test = images(data)
    guide = AutoSymmetrized(AutoNormal(model, init_loc_fn=init_to_sample, init_scale=0.02), progress_bar=False)
    svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(1e-3, steps)), Trace_ELBO())
    with measured("set-up"):
        state = svi.init(jax.random.PRNGKey(0), x[:BATCH], y[:BATCH])
    update = jax.jit(svi.update)
    options = ocp.CheckpointManagerOptions(save_interval_steps=max(steps // 10, 1), max_to_keep=2)
    with ocp.CheckpointManager(folder.absolute(), options=options) as kept, measured("training"):
        first = 0 if kept.latest_step() is None else kept.latest_step() + 1
        leaves, structure = jax.tree.flatten(state)
        if first:
            leaves = kept.restore(first - 1, args=ocp.args.StandardRestore(leaves))
            state = jax.tree.unflatten(structure, leaves)
        for step in range(first, steps):
            rows = np.random.default_rng([0, step]).choice(len(x), BATCH, replace=False)
            state, _ = update(state, x[rows], y[rows])
            kept.save(step, args=ocp.args.StandardSave(jax.tree.leaves(state)), force=step == steps - 1)
    params = svi.get_params(state)
    np.savez(folder / "params.npz", *jax.tree.leaves(params))
    with measured("scores"):
        bounds = guide.elbo_bounds(jax.random.key(1), params, x[:6000], y[:6000], progress_bar=False, num_particles=8)
        drawn = Predictive(guide, params=params, num_samples=10)(jax.random.key(2), x[:BATCH])
        right = jnp.mean(_mixed(drawn, x_test).argmax(-1) == y_test)
    tell({"stage": f"from step {first}", "bounds": str(bounds), "test_accuracy": float(right)})


def _mixed(drawn: dict[str, Any], x: np.ndarray) -> Any:
    """Mean of the probabilities of classes over drawn networks."""
    sites = {site: value for site, value in drawn.items() if site.startswith("net/")}

    def probabilities(one: dict[str, Any]) -> Any:
        params: dict[str, Any] = {}
        for site, value in one.items():
            layer, name = site.removeprefix("net/").split(".")
            params.setdefault(layer, {})[name] = value
        return jax.nn.softmax(NET.apply({"params": params}, x))

    return jax.lax.map(probabilities, sites).mean(0)


def networks(data: Path, folder: Path, steps: int) -> None:
    """Networks trained apart by Adam, matched and merged; the first is kept."""
    x, y, x_test, y_test = images(data)

    def loss(params: Any, x: Any, y: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(NET.apply(params, x), y).mean()

    optimizer = optax.adam(1e-3)

    @jax.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        updates, state = optimizer.update(jax.grad(loss)(params, x, y), state)
        return optax.apply_updates(params, updates), state

    found = []
    with measured("training of four networks"):
        for seed in range(MEMBERS):
            params = NET.init(jax.random.key(seed), x[:1])
            state, rng = optimizer.init(params), np.random.default_rng(seed)
            for _ in range(steps):
                rows = rng.choice(len(x), BATCH, replace=False)
                params, state = step(params, state, x[rows], y[rows])
            found.append(params)
    with measured("find_symmetry"):
        symmetry = find_symmetry(NET.apply, (found[0], x[:8]), argnum=0)
    with measured("merge"):
        out = merge(found, symmetry, progress_bar=False)

    def accuracy(params: Any) -> float:
        return round(float((NET.apply(params, x_test).argmax(-1) == y_test).mean()), 4)

    mean = jax.tree.map(lambda *w: sum(w) / MEMBERS, *found)
    scores = {"members": [accuracy(p) for p in found], "mean": accuracy(mean), "merged": accuracy(out.merged)}
    tell({"stage": "merged", **scores})
    np.savez(
        folder / "network.npz", **{f"{k}.{n}": v for k, part in found[0]["params"].items() for n, v in part.items()}
    )


def last_layers(hidden: Any, y: Any) -> None:
    """The last hidden layer and the output layer, above what the layers below pass on."""
    inputs, width = hidden.shape[1], WIDTHS[-1]
    kernel = numpyro.sample("kernel", dist.Normal(0.0, (2 / inputs) ** 0.5).expand([inputs, width]).to_event(2))
    bias = numpyro.sample("bias", dist.Normal(0.0, 0.1).expand([width]).to_event(1))
    output_layer(jax.nn.relu(hidden @ kernel + bias), y)


def output_layer(hidden: Any, y: Any) -> None:
    """The output layer above a hidden layer that does not move: its labels are fixed."""
    inputs = hidden.shape[1]
    kernel = numpyro.sample("out.kernel", dist.Normal(0.0, (2 / inputs) ** 0.5).expand([inputs, 10]).to_event(2))
    bias = numpyro.sample("out.bias", dist.Normal(0.0, 0.1).expand([10]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Categorical(logits=hidden @ kernel + bias), obs=y)


def chains(data: Path, folder: Path, steps: int) -> None:
    """Chains over the last two layers, started apart, rebased; of the output layer alone there is nothing to rebase."""
    x, y, *_ = images(data)
    with np.load(folder / "network.npz") as kept:
        hidden = jax.nn.relu(x[:IMAGES] @ kept["Dense_0.kernel"] + kept["Dense_0.bias"])
        above = jax.nn.relu(hidden @ kept["Dense_1.kernel"] + kept["Dense_1.bias"])
    y = y[:IMAGES]
    sampler = {"num_warmup": DRAWS, "num_samples": DRAWS, "num_chains": 2, "progress_bar": False}
    with measured("chains"):
        draws = run_blackjax(
            jax.random.key(0),
            last_layers,
            (hidden, y),
            algorithm="hmc",
            num_integration_steps=20,
            log_likelihood=False,
            **sampler,
        )
    with measured("rebase"):
        out = rebase(draws, model=last_layers, model_args=(hidden, y))
    with measured("report"):
        found = report(draws, out)
    print(found)
    tell({"stage": "chains", "symmetry": str(out.symmetry).splitlines()[0], "changed": sum(found.label_changes)})
    try:
        rebase({"out.kernel": np.zeros((2, 10, WIDTHS[-1], 10))}, model=output_layer, model_args=(above, y))
    except SymmetryError as refused:
        tell({"stage": "output layer alone", "refused": str(refused).splitlines()[0]})


STAGES: dict[str, Callable[[Path, Path, int], None]] = {
    "find": find,
    "train": train,
    "networks": networks,
    "chains": chains,
}


# ---- all of them -------------------------------------------------------------------------------------------------


def has_checkpoint(folder: Path, step: int) -> bool:
    """Whether a checkpoint of a step, or of a later one, is complete."""
    return any(int(path.name) >= step for path in folder.glob("*") if path.name.isdigit())


def trained(folder: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Killed and taken up, and in one go, held against each other."""
    in_turn = partial(run, __spec__.name, "train", asked.data)
    half = partial(has_checkpoint, folder / "killed", asked.steps // 2)
    rows = in_turn(folder / "killed", asked.steps, until=half)
    rows += in_turn(folder / "killed", asked.steps) + in_turn(folder / "whole", asked.steps)
    one, other = (dict(np.load(folder / way / "params.npz")) for way in ("killed", "whole"))
    same = one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    tell(found := {"stage": "taken up", "same bits": same, "numbers": sum(value.size for value in one.values())})
    return [*rows, found]


def main() -> None:
    """Every stage in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=600, help="of training")
    parser.add_argument("--only", nargs="*", default=list(STAGES), choices=list(STAGES))
    parser.add_argument("--stage", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.stage:
        name, data, folder, steps = asked.stage
        Path(folder).mkdir(exist_ok=True)
        STAGES[name](Path(data), Path(folder), int(steps))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in asked.only:
            rows = (
                trained(folder, asked) if name == "train" else run(__spec__.name, name, asked.data, folder, asked.steps)
            )
            record(RESULTS, f"{name}, {asked.steps} steps", rows)


if __name__ == "__main__":
    main()
