"""Pairs of networks trained apart, brought into one basin by git re-basin's descent and by ours.

    python -m tests.reproduction.networks --data PATH [--only mlp gru transformer vgg resnet] [--kept PATH] [--summary]

Networks in Flax on 10,000 images of MNIST and CIFAR-10 (PATH holds mnist.npz and cifar10_jpeg.npz), at most ten epochs
of Adam; scores on 2000 test images. The group is found, nobody writes a specification. Barriers are those of the test
loss along a straight line, running statistics computed again at each point of it. A record is a pair, or three
networks made one: what is recorded is not run twice. With --kept networks are kept there, and not trained twice.

C²M³ (Crisostomi et al. 2024) is Frank-Wolfe over all layers at once, with permutations that agree round cycles. Two
networks have no cycle, so that for a pair it is the row "Frank-Wolfe"; of three and more `merge` agrees round cycles.
"""

from __future__ import annotations

import argparse
import io
import pickle
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

from numpyro_symmetry import ActivationCost, Symmetry, find_activations, find_symmetry, match, merge
from numpyro_symmetry.matching import refine
from numpyro_symmetry.symmetry import Element, PlainView
from numpyro_symmetry.symmetry.pytrees import arrays_by_path
from tests.reproduction import records
from tests.reproduction.networks_table import PAIRS, TRIPLES, tables

TRAIN, TEST, BATCH = 10_000, 2000, 100
# training images for running statistics and for activations
_SOME = 500
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


class Trained(NamedTuple):
    """Variables of a network, and the seconds that its training took."""

    variables: dict[str, Any]
    seconds: float


def trained(name: str, data: tuple[np.ndarray, ...], seed: int, kept: Path | None) -> Trained:
    """A network, from where it is kept if it is."""
    path = kept and kept / f"{name}-{ARCHITECTURES[name].epochs}-{seed}.pkl"
    if path and path.exists():
        return Trained(*pickle.loads(path.read_bytes()))
    start = time.perf_counter()
    found = Trained(jax.tree.map(np.asarray, train(ARCHITECTURES[name], data, seed)), time.perf_counter() - start)
    if path:
        path.write_bytes(pickle.dumps(tuple(found)))
    return found


def scorer(net: nn.Module, data: tuple[np.ndarray, ...]) -> Callable[[dict[str, Any]], tuple[float, float]]:
    """Test loss and accuracy of variables, running statistics being those of 500 training images."""
    x, _, test_x, test_y = data

    @jax.jit
    def score(variables: Any) -> Any:
        if "batch_stats" in variables:
            _, seen = net.apply(variables, x[:_SOME], True, mutable=["batch_stats"])
            # from .99 old and .01 new to what is new alone
            fresh = jax.tree.map(
                lambda new, old: (new - 0.99 * old) / 0.01, seen, {"batch_stats": variables["batch_stats"]}
            )
            variables = variables | fresh
        logits = net.apply(variables, test_x)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, test_y).mean()
        return loss, (logits.argmax(1) == test_y).mean()

    return lambda variables: tuple(float(number) for number in score(variables))


def line(score: Callable, a: Any, b: Any, ends: list[tuple[float, float]]) -> dict[str, Any]:
    """Barrier of the loss and of the accuracy between two networks, of known scores, and how good their mean is."""
    along = [score(jax.tree.map(lambda p, q, t=t: (1 - t) * p + t * q, a, b)) for t in ALPHAS[1:-1]]
    losses, accuracies = np.array([ends[0], *along, ends[1]]).T
    straight = losses[0] + ALPHAS * (losses[-1] - losses[0])
    middle = len(ALPHAS) // 2
    return {
        "barrier": float((losses - straight).max()),
        "merged_loss": float(losses[middle]),
        "merged_accuracy": float(accuracies[middle]),
    }


# ---- ways to match ---------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """A network, its training images and their labels, what was found of it, and sites that are no statistics."""

    net: nn.Module
    data: tuple[np.ndarray, np.ndarray]
    symmetry: Symmetry
    sites: list[str]

    @property
    def images(self) -> np.ndarray:
        """Some of the training images."""
        return self.data[0][:_SOME]

    def weights(self, variables: Any) -> dict[str, Any]:
        """Parameters by site; statistics move and weigh nothing."""
        by_site = arrays_by_path(variables)
        return {site: by_site[site] for site in self.sites}


def git_rebasin(task: Task, target: Any, source: Any, seed: int = 0) -> Element:
    """Weight matching of Ainsworth, Hayase and Srinivasa (2023, arXiv:2209.04836), algorithm 1.

    One layer's permutation after the other, in random order, by the assignment that has the largest inner product of
    weights, until none changes. It knows groups that act alike wherever they stand, as their specifications do: of
    heads and units in them, those that leave more elements.
    """
    symmetry = task.symmetry.restrict(sites=task.sites)
    view = PlainView.of(symmetry, task.weights(target))
    left, right = (
        {k: np.asarray(v, float) for k, v in view.open(task.weights(side)).items()} for side in (target, source)
    )
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


def by_activations(task: Task, target: Any, source: Any) -> Element:
    """Units matched by what they compute on training images, all layers at once."""
    activations = find_activations(task.net.apply, (target, task.images), task.symmetry)
    return match(target, source, task.symmetry, cost=ActivationCost(activations)).element


def refined(task: Task, target: Any, source: Any) -> Element:
    """On from `match`, by the loss half-way on training images, normalised by each batch's own statistics."""

    def loss(variables: Any, batch: Any) -> Any:
        logits, _ = task.net.apply(variables, batch[0], True, mutable=["batch_stats"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1])

    return refine(loss, target, source, task.symmetry, task.data, progress_bar=False).element


METHODS: dict[str, Callable[[Task, Any, Any], Element]] = {
    "naive": lambda task, target, source: task.symmetry.identity(),
    "git re-basin": git_rebasin,
    "ours": lambda task, target, source: match(target, source, task.symmetry).element,
    "descent": lambda task, target, source: match(target, source, task.symmetry, method="descent").element,
    "Frank-Wolfe": lambda task, target, source: match(target, source, task.symmetry, method="frank_wolfe").element,
    "activations": by_activations,
    "refined": refined,
}
# what brings back nothing that match had not brought back before it
_NOT_PLANTED = "naive", "refined"


# ---- ways to merge ---------------------------------------------------------------------------------------------------


def merge_many(task: Task, networks: list[Any], seed: int = 0) -> list[Any]:
    """The networks under common labels, by algorithm 3 of git re-basin: each in turn on the mean of the others."""
    members, rng = list(networks), np.random.default_rng(seed)
    for _ in range(100):
        before = [task.weights(member) for member in members]
        for k in rng.permutation(len(members)):
            others = mean_of([member for j, member in enumerate(members) if j != k])
            members[k] = task.symmetry.apply(git_rebasin(task, others, members[k]), members[k])
        if all(
            jax.tree.all(jax.tree.map(np.array_equal, a, task.weights(b))) for a, b in zip(before, members, strict=True)
        ):
            break
    return members


def mean_of(members: list[Any]) -> Any:
    return jax.tree.map(lambda *w: sum(w) / len(w), *members)


MERGES: dict[str, Callable[[Task, list[Any]], Any]] = {
    "naive": lambda task, networks: mean_of(networks),
    "git re-basin": lambda task, networks: mean_of(merge_many(task, networks)),
    "ours": lambda task, networks: merge(networks, task.symmetry, progress_bar=False).merged,
}


# ---- records ---------------------------------------------------------------------------------------------------------


def record(folder: Path, kept: Path | None, name: str, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Networks trained apart, and what each way makes of them."""
    architecture = ARCHITECTURES[name]
    net, data = architecture.net, images(folder, architecture.images)
    found = [trained(name, data, seed, kept) for seed in seeds]
    networks, score = [one.variables for one in found], scorer(net, data)
    row: dict[str, Any] = {"train_seconds": sum(one.seconds for one in found), "epochs": architecture.epochs}
    row["single"] = [score(variables) for variables in networks]
    start = time.perf_counter()
    symmetry = find_symmetry(net.apply, (networks[0], data[0][:2]), argnum=0, signs=False)
    row |= {"find_seconds": time.perf_counter() - start, "group": {k: str(g) for k, g in symmetry.groups.items()}}
    task = task_of(architecture, data, symmetry, networks[0])
    ways = of_pair(task, score, *networks, row["single"]) if len(seeds) == 2 else of_several(task, score, networks)
    return row | {"methods": ways, "peak_mb": peak(), "load": float(open("/proc/loadavg").read().split()[0])}


def task_of(architecture: Architecture, data: tuple[np.ndarray, ...], symmetry: Symmetry, variables: Any) -> Task:
    symmetry = symmetry.bind(arrays_by_path(variables))
    sites = [site for site in symmetry.axes if site.startswith("params")]
    return Task(architecture.net, data[:2], symmetry, sites)


def added(folder: Path, kept: Path, name: str, seeds: tuple[int, ...], known: dict[str, Any]) -> dict[str, Any]:
    """A record of two networks that are kept with the ways that it lacks; as it is if it is of other networks."""
    architecture = ARCHITECTURES[name]
    data = images(folder, architecture.images)
    networks = [trained(name, data, seed, kept).variables for seed in seeds]
    score = scorer(architecture.net, data)
    if not np.allclose([score(variables) for variables in networks], known["single"], atol=1e-4):
        return known
    symmetry = find_symmetry(architecture.net.apply, (networks[0], data[0][:2]), argnum=0, signs=False)
    task = task_of(architecture, data, symmetry, networks[0])
    lacking = {method: find for method, find in METHODS.items() if method not in known["methods"]}
    ways = of_pair(task, score, *networks, known["single"], lacking)
    return known | {"methods": known["methods"] | {k: way | records.provenance() for k, way in ways.items()}}


def of_pair(
    task: Task,
    score: Callable,
    a: Any,
    b: Any,
    ends: list[tuple[float, float]],
    methods: dict[str, Callable[[Task, Any, Any], Element]] = METHODS,
) -> dict[str, Any]:
    """Each way to bring one network to another, and whether it undoes a relabelling of one."""
    ways, lines = {}, {}
    for method, find in methods.items():
        start, before = time.perf_counter(), peak()
        element = jax.block_until_ready(find(task, a, b))
        seconds, memory = time.perf_counter() - start, peak() - before
        # two ways to one element have one line
        known = tuple(np.asarray(part).tobytes() for part in jax.tree.leaves(element))
        if known not in lines:
            lines[known] = line(score, a, task.symmetry.apply(element, b), ends)
        ways[method] = lines[known] | {"seconds": seconds, "more_memory_mb": memory}
        if method not in _NOT_PLANTED:
            planted = task.symmetry.apply(task.symmetry.sample(jax.random.key(9)), a)
            back = task.weights(task.symmetry.apply(find(task, a, planted), planted))
            parts = [float(np.mean(np.asarray(back[site]) == own)) for site, own in task.weights(a).items()]
            ways[method]["planted_recovered"] = min(parts)
    return ways


def of_several(task: Task, score: Callable, networks: list[Any]) -> dict[str, Any]:
    """Each way to make several networks one."""
    ways = {}
    for method, made in MERGES.items():
        start = time.perf_counter()
        merged = jax.block_until_ready(made(task, networks))
        seconds = time.perf_counter() - start
        loss, accuracy = score(merged)
        ways[method] = {"merged_loss": loss, "merged_accuracy": accuracy, "seconds": seconds}
    return ways


def add_to_records(folder: Path, kept: Path, only: tuple[str, ...]) -> None:
    """Ways that records of pairs lack."""
    for key, known in records.load("networks").items():
        name, seeds = key.split("/")[0], tuple(map(int, key.split("/")[1].split("-")))
        if len(seeds) == 2 and key.startswith(only or ("",)) and not METHODS.keys() <= known["methods"].keys():
            records.put("networks", key, added(folder, kept, name, seeds, known))


def peak() -> float:
    """The most memory that the process has held, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--summary", action="store_true")
    asked = parser.parse_args()
    if not asked.summary:
        jobs = {
            f"{name}/{'-'.join(map(str, seeds))}": partial(record, asked.data, asked.kept, name, seeds)
            for seeds in (*PAIRS, *TRIPLES)
            for name in ARCHITECTURES
        }
        records.run("networks", jobs, only=asked.only)
        if asked.kept:
            add_to_records(asked.data, asked.kept, tuple(asked.only))
    print(tables())


if __name__ == "__main__":
    main()
