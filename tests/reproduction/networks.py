"""Pairs of networks trained apart, brought into one basin by git re-basin's descent and by ours.

    python -m tests.reproduction.networks --data PATH [--only mlp gru transformer vgg resnet] [--summary]

Networks in Flax on 10,000 images of MNIST and CIFAR-10 (PATH holds mnist.npz and cifar10_jpeg.npz), at most ten epochs
of Adam; scores on 2000 test images. The group is found, nobody writes a specification. Barriers are those of the test
loss along a straight line, running statistics computed again at each point of it. A record is a pair: what is recorded
is not run twice.
"""

from __future__ import annotations

import argparse
import io
import resource
import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from PIL import Image
from scipy.optimize import linear_sum_assignment

from numpyro_symmetry import Symmetry, find_symmetry, match
from numpyro_symmetry.symmetry import PlainView
from numpyro_symmetry.symmetry.pytrees import arrays_by_path, replaced
from tests.reproduction import records
from tests.reproduction.verdicts import standard_error

TRAIN, TEST, BATCH = 10_000, 2000, 100
_STATISTICS = 500
PAIRS = ((0, 1), (2, 3), (4, 5))
ALPHAS = np.linspace(0, 1, 11)


# ---- networks --------------------------------------------------------------------------------------------------------


class MLP(nn.Module):
    """Two hidden layers of 128."""

    @nn.compact
    def __call__(self, x, train=False):
        x = x.reshape(len(x), -1)
        for _ in range(2):
            x = nn.relu(nn.Dense(128)(x))
        return nn.Dense(10)(x)


class GRU(nn.Module):
    """64 units over the rows of an image."""

    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(10)(nn.RNN(nn.GRUCell(64))(x[..., 0])[:, -1])


class Transformer(nn.Module):
    """Two blocks of four heads, a stream of 32, on patches of 7 by 7."""

    @nn.compact
    def __call__(self, x, train=False):
        stream = nn.Conv(32, (7, 7), (7, 7))(x).reshape(len(x), -1, 32)
        stream = stream + self.param("places", nn.initializers.normal(0.1), stream.shape[1:])
        for _ in range(2):
            stream = stream + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(stream))
            stream = stream + nn.Dense(32)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(stream))))
        return nn.Dense(10)(nn.LayerNorm()(stream).mean(1))


class VGG(nn.Module):
    """Four convolutions with batch normalisation, and a dense layer of 64."""

    @nn.compact
    def __call__(self, x, train=False):
        for channels, pools in ((16, True), (32, True), (32, False), (64, True)):
            x = nn.Conv(channels, (3, 3), use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
            x = nn.max_pool(x, (2, 2), (2, 2)) if pools else x
        return nn.Dense(10)(nn.relu(nn.Dense(64)(x.reshape(len(x), -1))))


class ResNet20(nn.Module):
    """Three stages of three blocks, 8, 16 and 32 channels, batch normalisation."""

    @nn.compact
    def __call__(self, x, train=False):
        norm = partial(nn.BatchNorm, use_running_average=not train)
        x = nn.relu(norm()(nn.Conv(8, (3, 3), use_bias=False)(x)))
        for stage in range(3):
            for block in range(3):
                conv, stride = partial(nn.Conv, 8 * 2**stage, use_bias=False), 2 if stage and not block else 1
                y = nn.relu(norm()(conv((3, 3), (stride, stride))(x)))
                y = norm()(conv((3, 3))(y))
                x = norm()(conv((1, 1), (stride, stride))(x)) if stride > 1 else x
                x = nn.relu(x + y)
        return nn.Dense(10)(x.mean((1, 2)))


class Architecture(NamedTuple):
    """A network, the images that it reads, and for how many epochs."""

    net: nn.Module
    images: str
    epochs: int


ARCHITECTURES = {
    "mlp": Architecture(MLP(), "mnist", 10),
    "gru": Architecture(GRU(), "mnist", 10),
    "transformer": Architecture(Transformer(), "mnist", 10),
    "vgg": Architecture(VGG(), "cifar", 3),
    "resnet": Architecture(ResNet20(), "cifar", 2),
}


@lru_cache
def images(folder: Path, name: str) -> tuple[np.ndarray, ...]:
    """Training images about zero, their labels, and the same of the test set."""
    if name == "mnist":
        with np.load(folder / "mnist.npz") as file:
            parts = [(file[f"x_{part}"][:n, ..., None], file[f"y_{part}"][:n]) for part, n in _PARTS]
    else:
        with np.load(folder / "cifar10_jpeg.npz") as file:
            arrays = dict(file)
        parts = [(_decoded(arrays, part, n), arrays[f"y_{part}"][:n]) for part, n in _PARTS]
    return tuple(x for images, y in parts for x in (images.astype(np.float32) / 127.5 - 1, y.astype(np.int32)))


_PARTS = (("train", TRAIN), ("test", TEST))


def _decoded(arrays: dict[str, np.ndarray], part: str, count: int) -> np.ndarray:
    ends = arrays[f"offset_{part}"]
    jpegs = (arrays[f"jpeg_{part}"][ends[i] : ends[i + 1]].tobytes() for i in range(count))
    return np.stack([np.asarray(Image.open(io.BytesIO(jpeg))) for jpeg in jpegs])


# ---- training and scores ---------------------------------------------------------------------------------------------


def train(architecture: Architecture, data: tuple[np.ndarray, ...], seed: int) -> dict[str, Any]:
    """Variables of a network by Adam on the cross entropy, the step falling to nothing."""
    net, (x, y, *_) = architecture.net, data
    variables = jax.jit(net.init)(jax.random.key(seed), x[:1])
    steps = architecture.epochs * len(x) // BATCH
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-3, steps))

    @jax.jit
    def step(variables: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            logits, updated = net.apply({**variables, "params": params}, x, True, mutable=["batch_stats"])
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), updated

        slope, updated = jax.grad(loss, has_aux=True)(variables["params"])
        change, state = optimizer.update(slope, state)
        return {"params": optax.apply_updates(variables["params"], change), **updated}, state

    state, rng = optimizer.init(variables["params"]), np.random.default_rng(seed)
    for _ in range(architecture.epochs):
        for rows in rng.permutation(len(x)).reshape(-1, BATCH):
            variables, state = step(variables, state, x[rows], y[rows])
    return variables


def scorer(net: nn.Module, data: tuple[np.ndarray, ...]) -> Callable[[dict[str, Any]], tuple[float, float]]:
    """Test loss and accuracy of variables, running statistics being those of 500 training images."""
    x, _, test_x, test_y = data

    @jax.jit
    def score(variables: Any) -> Any:
        if "batch_stats" in variables:
            _, seen = net.apply(variables, x[:_STATISTICS], True, mutable=["batch_stats"])
            # from .99 old and .01 new to what is new alone
            fresh = jax.tree.map(
                lambda new, old: (new - 0.99 * old) / 0.01, seen, {"batch_stats": variables["batch_stats"]}
            )
            variables = variables | fresh
        logits = net.apply(variables, test_x)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, test_y).mean()
        return loss, (logits.argmax(1) == test_y).mean()

    return lambda variables: tuple(float(number) for number in score(variables))


def line(score: Callable, a: Any, b: Any) -> dict[str, Any]:
    """Barrier of the loss and of the accuracy between two networks, and how good their mean is."""
    along = [score(jax.tree.map(lambda p, q, t=t: (1 - t) * p + t * q, a, b)) for t in ALPHAS]
    losses, accuracies = np.array(along).T
    straight = losses[0] + ALPHAS * (losses[-1] - losses[0])
    middle = len(ALPHAS) // 2
    return {
        "barrier": float((losses - straight).max()),
        "merged_loss": float(losses[middle]),
        "merged_accuracy": float(accuracies[middle]),
    }


# ---- ways to match ---------------------------------------------------------------------------------------------------


def git_rebasin(target: dict[str, Any], source: dict[str, Any], symmetry: Symmetry, seed: int = 0) -> dict[str, Any]:
    """Weight matching of Ainsworth, Hayase and Srinivasa (2023, arXiv:2209.04836), algorithm 1.

    One layer's permutation after the other, in random order, by the assignment that has the largest inner product of
    weights, until none changes. It knows groups that act alike wherever they stand, as their specifications do: of
    heads and units in them, those that leave more elements.
    """
    view = PlainView.of(symmetry, target)
    left, right = ({k: np.asarray(v, float) for k, v in view.open(side).items()} for side in (target, source))
    acts = view.symmetry.axes
    found = {name: np.arange(group.size) for name, group in view.symmetry.groups.items()}
    rng = np.random.default_rng(seed)

    def moved(site: str, but: int) -> np.ndarray:
        w = right[site]
        for axis, group in enumerate(acts[site]):
            if group is not None and axis != but:
                w = np.take(w, found[group], axis)
        return w

    for _ in range(100):
        changed = False
        for name in rng.permutation(sorted(found)):
            size = len(found[name])
            gains = np.zeros((size, size))
            for site, axis in ((site, k) for site, on in acts.items() for k, group in enumerate(on) if group == name):
                one, other = (np.moveaxis(w, axis, 0).reshape(size, -1) for w in (left[site], moved(site, axis)))
                gains += one @ other.T
            best = linear_sum_assignment(gains, maximize=True)[1]
            own = np.arange(size)
            changed |= gains[own, best].sum() > gains[own, found[name]].sum() + 1e-12
            found[name] = best
        if not changed:
            break
    return view.element({name: jnp.asarray(order) for name, order in found.items()}, symmetry)


METHODS: dict[str, Callable] = {
    "naive": lambda target, source, symmetry: symmetry.identity(),
    "git re-basin": git_rebasin,
    "ours": lambda target, source, symmetry: match(target, source, symmetry).element,
    "descent": lambda target, source, symmetry: match(target, source, symmetry, method="descent").element,
    "Frank-Wolfe": lambda target, source, symmetry: match(target, source, symmetry, method="frank_wolfe").element,
}


def weights_of(variables: Any, symmetry: Symmetry) -> dict[str, Any]:
    """Parameters by site, without statistics, which move and weigh nothing."""
    return {k: v for k, v in arrays_by_path(variables).items() if k in symmetry.axes and k.startswith("params")}


def pair(folder: Path, name: str, seeds: tuple[int, int]) -> dict[str, Any]:
    """Two networks trained apart, and what each way makes of them."""
    architecture = ARCHITECTURES[name]
    net, data = architecture.net, images(folder, architecture.images)
    start = time.perf_counter()
    a, b = (train(architecture, data, seed) for seed in seeds)
    score, row = scorer(net, data), {"train_seconds": time.perf_counter() - start, "single": []}
    row["epochs"], row["single"] = architecture.epochs, [score(variables) for variables in (a, b)]
    start = time.perf_counter()
    whole = find_symmetry(net.apply, (a, data[0][:2]), argnum=0, signs=False)
    row |= {"find_seconds": time.perf_counter() - start, "group": {k: str(g) for k, g in whole.groups.items()}}
    whole = whole.bind(arrays_by_path(a))
    symmetry = whole.restrict(sites=[site for site in whole.axes if site.startswith("params")])
    row["methods"] = {}
    for method, find in METHODS.items():
        start, before = time.perf_counter(), peak()
        element = find(weights_of(a, whole), weights_of(b, whole), symmetry)
        jax.block_until_ready(element)
        seconds, memory = time.perf_counter() - start, peak() - before
        moved = replaced(b, whole.apply(element, arrays_by_path(b)))
        row["methods"][method] = line(score, a, moved) | {"seconds": seconds, "more_memory_mb": memory}
        if method != "naive":
            planted = weights_of(replaced(a, whole.apply(whole.sample(jax.random.key(9)), arrays_by_path(a))), whole)
            back = symmetry.apply(find(weights_of(a, whole), planted, symmetry), planted)
            parts = [
                float(np.mean(np.asarray(back[site]) == np.asarray(own))) for site, own in weights_of(a, whole).items()
            ]
            row["methods"][method]["planted_recovered"] = min(parts)
    return row | {"peak_mb": peak(), "load": float(open("/proc/loadavg").read().split()[0])}


def peak() -> float:
    """The most memory that the process has held, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# ---- verdicts --------------------------------------------------------------------------------------------------------


def summary() -> str:
    """Means over pairs, and what becomes of the claims."""
    lines, rows = [], records.load("networks")
    for name in ARCHITECTURES:
        found = [row for key, row in rows.items() if key.startswith(f"{name}/")]
        if not found:
            lines.append(f"{name}: not run")
            continue
        single = np.array([row["single"] for row in found]).reshape(-1, 2).mean(0)
        lines.append(f"{name}: {len(found)} pairs, single loss {single[0]:.3f}, accuracy {single[1]:.3f}")
        for method in METHODS:
            ours = {k: np.array([row["methods"][method].get(k, np.nan) for row in found]) for k in _SHOWN}
            shown = ", ".join(f"{k} {_mean(v)}" for k, v in ours.items() if np.isfinite(v).all())
            lines.append(f"  {method}: {shown}")
        lines += [f"  {verdict}" for verdict in verdicts(found)]
    return "\n".join(lines)


_SHOWN = ("barrier", "merged_accuracy", "seconds", "more_memory_mb", "planted_recovered")


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.3f}" + (f" ± {standard_error(values):.3f}" if len(values) > 1 else "")


def verdicts(found: list[dict[str, Any]]) -> list[str]:
    """Ours against git re-basin, paired, at two standard errors; and whether planted elements come back."""
    said = []
    for of, sign in (("barrier", -1), ("merged_accuracy", 1)):
        gains = sign * np.array([r["methods"]["ours"][of] - r["methods"]["git re-basin"][of] for r in found])
        if len(gains) < 2:
            said.append(f"{of}: cannot tell of one pair; better by {gains[0]:.4f}")
            continue
        error = standard_error(gains)
        holds = "better" if gains.mean() > 2 * error else "worse" if gains.mean() < -2 * error else "no different"
        said.append(f"{of}: {holds}, better by {gains.mean():.4f} ± {error:.4f}")
    exact = all(row["methods"]["ours"]["planted_recovered"] == 1 for row in found)
    return [*said, f"planted element: {'the target, bit for bit' if exact else 'not all of it comes back'}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--summary", action="store_true")
    asked = parser.parse_args()
    if not asked.summary:
        jobs = {f"{name}/{a}-{b}": partial(pair, asked.data, name, (a, b)) for a, b in PAIRS for name in ARCHITECTURES}
        records.run("networks", jobs, only=asked.only)
    print(summary())


if __name__ == "__main__":
    main()
