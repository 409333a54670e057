"""Alignment of mean-field fits on CIFAR-10: an MLP of three hidden layers, and a reduced ResNet20 in Flax.

    python -m tests.reproduction.cifar --data PATH [--only mlp resnet]

Rossi et al. (2023, arXiv:2310.10171) at the size of a laptop: 20,000 training images; the residual network has 8, 16
and 32 channels in place of 16, 32 and 64, group normalisation, and images of 16 by 16. PATH holds cifar10_jpeg.npz.
Results go to tests/reproduction/results/cifar.json and are not run again.
"""

from __future__ import annotations

import argparse
import io
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.contrib.module import random_flax_module
from numpyro.infer import SVI, Trace_ELBO, init_to_sample
from numpyro.infer.autoguide import AutoNormal
from PIL import Image

from numpyro_symmetry import DiagonalGaussian, find_symmetry, loss_barrier, match, num_transpositions
from tests.reproduction import records, rossi

TRAIN, TEST, BATCH = 20_000, 2000, 64


@lru_cache
def read(folder: Path):
    """Images about zero, 32 by 32 by 3, and labels."""
    with np.load(folder / "cifar10_jpeg.npz") as file:
        arrays = dict(file)

    def decode(part: str, count: int):
        ends = arrays[f"offset_{part}"]
        images = [
            np.asarray(Image.open(io.BytesIO(arrays[f"jpeg_{part}"][ends[i] : ends[i + 1]].tobytes())))
            for i in range(count)
        ]
        return np.stack(images).astype(np.float32) / 127.5 - 1, jnp.asarray(arrays[f"y_{part}"][:count], int)

    return *decode("train", TRAIN), *decode("test", TEST)


def mlp(folder: Path, width: int, steps: int) -> dict[str, Any]:
    """As on MNIST."""
    x, y, test_x, test_y = read(folder)
    data = jnp.asarray(x.reshape(TRAIN, -1)), y, jnp.asarray(test_x.reshape(TEST, -1)), test_y
    return rossi.run(data, width, 1.0, 1.0, steps=steps, num_samples=32, num_images=TEST)


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    channels: int
    stride: int

    @nn.compact
    def __call__(self, x):
        conv = partial(nn.Conv, self.channels, (3, 3), use_bias=False)
        y = nn.relu(nn.GroupNorm(num_groups=1)(conv(strides=self.stride)(x)))
        y = nn.GroupNorm(num_groups=1)(conv()(y))
        if x.shape != y.shape:
            x = nn.Conv(self.channels, (1, 1), self.stride, use_bias=False)(x)
        return nn.relu(x + y)


class ResNet20(nn.Module):
    """Three stages of three blocks."""

    channels: int

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.GroupNorm(num_groups=1)(nn.Conv(self.channels, (3, 3), use_bias=False)(x)))
        for stage in range(3):
            for block in range(3):
                x = Block(self.channels * 2**stage, 2 if stage and not block else 1)(x)
        return nn.Dense(10)(x.mean((1, 2)))


def resnet(folder: Path, channels: int, steps: int) -> dict[str, Any]:
    """Two fits of the residual network, its symmetry found, aligned."""
    x, y, test_x, test_y = read(folder)
    x, test_x = (jnp.asarray(v.reshape(-1, 16, 2, 16, 2, 3).mean((2, 4))) for v in (x, test_x))
    net = ResNet20(channels)

    def model(xb, yb=None):
        apply = random_flax_module("net", net, prior, input_shape=(1, 16, 16, 3))
        with numpyro.plate("data", TRAIN, subsample_size=len(xb)):
            numpyro.sample("y", dist.Categorical(logits=apply(xb)), obs=yb)

    def prior(name, shape):
        fan_in = int(np.prod(shape[:-1])) if len(shape) > 1 else 1
        # gains of normalisation about one, so that depth does not switch the network off
        return dist.Normal(1.0 if name.endswith("scale") else 0.0, (2 / fan_in) ** 0.5 if fan_in > 1 else 0.3)

    started = time.perf_counter()
    symmetry = find_symmetry(model, (x[:2], y[:2]))
    seconds_find = time.perf_counter() - started
    guide = AutoNormal(model, init_loc_fn=init_to_sample, init_scale=0.01)
    svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(2e-3, steps)), Trace_ELBO())
    update, fits = jax.jit(svi.update), []
    for seed in (0, 1):
        guide.prototype_trace = None  # else it would start where it first did
        state, rng = svi.init(jax.random.key(seed), x[:BATCH], y[:BATCH]), np.random.default_rng(10 + seed)
        # step by step: inside a scan, convolutions on a CPU are several times slower
        for _ in range(steps):
            rows = rng.integers(0, len(x), BATCH)
            state, _ = update(state, x[rows], y[rows])
        fits.append(DiagonalGaussian.from_guide(guide, svi.get_params(state)))
    a, b = fits

    def logits(values, images):
        return net.apply({"params": _nested(values)}, images)

    result: dict[str, Any] = {"steps": steps, "channels": channels, "seconds_find": seconds_find}
    result["groups"] = {name: str(group) for name, group in symmetry.groups.items()}
    draws = a.sample(jax.random.key(3), (10,))
    mean = jax.nn.softmax(jax.lax.map(lambda v: logits(v, test_x), draws)).mean(0)
    result["test_accuracy"] = float((mean.argmax(-1) == test_y).mean())
    bound = symmetry.bind(a.loc)
    started = time.perf_counter()
    found = match(a, b, symmetry)
    result["seconds_match"] = time.perf_counter() - started
    result["transpositions"] = {k: int(v) for k, v in num_transpositions(found.element).items()}
    aligned = b.apply(bound, found.element)
    result["w2_squared_before"], result["w2_squared"] = (float(a.wasserstein(end) ** 2) for end in (b, aligned))

    def loss(values):
        return -jax.nn.log_softmax(logits(values, test_x[:500]))[jnp.arange(500), test_y[:500]]

    for name, end in {"before": b, "means_and_stds": aligned}.items():
        barrier = loss_barrier(loss, a, end, num_points=7, num_draws=8)
        result[f"barrier_test_{name}"] = [barrier.barrier, barrier.error]
        result[f"loss_test_{name}"] = [round(float(value), 5) for value in barrier.loss]
    return result


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    """Flax's own tree of parameters from sites such as ``"net/Dense_0.kernel"``."""
    tree: dict[str, Any] = {}
    for site, value in values.items():
        *path, leaf = site.removeprefix("net/").split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[leaf] = value
    return tree


def main() -> None:
    """Run what has not been run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    jobs: dict[str, Any] = {f"mlp/{w}": partial(mlp, options.data, w, options.steps) for w in (64, 128, 256)}
    jobs["resnet/8"] = partial(resnet, options.data, 8, options.steps)
    records.run("cifar", jobs, only=options.only)


if __name__ == "__main__":
    main()
