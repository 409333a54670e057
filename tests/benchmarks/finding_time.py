"""Seconds and memory of `find_symmetry`, cold: each case in a process of its own, imports not counted.

    python -m tests.benchmarks.finding_time [mlp resnet20 transformer hmm groups]

Prints wall seconds, CPU seconds and the most memory that the process held, and the load of the machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from numpyro_symmetry import find_symmetry
from tests.gallery import CASES


class MLP(nn.Module):
    """784-128-64-10."""

    @nn.compact
    def __call__(self, x):
        for n in (128, 64):
            x = nn.relu(nn.Dense(n)(x))
        return nn.Dense(10)(x)


class ResNet20(nn.Module):
    """Three stages of three blocks, 16, 32 and 64 channels, batch normalisation."""

    @nn.compact
    def __call__(self, x):
        norm = partial(nn.BatchNorm, use_running_average=True)
        x = nn.relu(norm()(nn.Conv(16, (3, 3), use_bias=False)(x)))
        for stage in range(3):
            for block in range(3):
                conv, stride = partial(nn.Conv, 16 * 2**stage, use_bias=False), 2 if stage and not block else 1
                y = nn.relu(norm()(conv((3, 3), (stride, stride))(x)))
                y = norm()(conv((3, 3))(y))
                x = norm()(conv((1, 1), (stride, stride))(x)) if stride > 1 else x
                x = nn.relu(x + y)
        return nn.Dense(10)(x.mean((1, 2)))


class Transformer(nn.Module):
    """Six blocks of four heads, a stream of 64."""

    @nn.compact
    def __call__(self, x):
        stream = nn.Dense(64)(x)
        for _ in range(6):
            stream = stream + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(stream))
            stream = stream + nn.Dense(64)(nn.gelu(nn.Dense(128)(nn.LayerNorm()(stream))))
        return nn.Dense(10)(nn.LayerNorm()(stream).mean(1))


class Case(NamedTuple):
    """What is searched, and which of its arguments holds parameters, if it is a function."""

    model: Callable
    args: tuple[Any, ...]
    argnum: int | None = None


def network(net: nn.Module, shape: tuple[int, ...]) -> Case:
    """A network with parameters of random numbers, variances positive."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    params = jax.eval_shape(net.init, jax.random.key(0), x)
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda s: (0.1 * rng.normal(size=s.shape)).astype(s.dtype), params)
    params = jax.tree_util.tree_map_with_path(lambda path, w: abs(w) + 1 if "var" in str(path) else w, params)
    return Case(net.apply, (params, x), 0)


def many_groups() -> Case:
    """A residual network of 200 hidden layers of four tanh units each: a group for each, beside the stream's."""

    def model(x: Array, y: Array) -> None:
        stream = x @ numpyro.sample("read", dist.Normal(0, 1).expand([3, 5]).to_event(2))
        for k in range(200):
            up = numpyro.sample(f"up_{k}", dist.Normal(0, 0.1).expand([5, 4]).to_event(2))
            down = numpyro.sample(f"down_{k}", dist.Normal(0, 0.1).expand([4, 5]).to_event(2))
            stream = stream + jax.nn.tanh(stream @ up) @ down
        out = numpyro.sample("out", dist.Normal(0, 1).expand([5]).to_event(1))
        numpyro.sample("y", dist.Normal(stream @ out, 0.1).to_event(1), obs=y)

    rng = np.random.default_rng(0)
    return Case(model, (rng.normal(size=(8, 3)).astype(np.float32), rng.normal(size=8).astype(np.float32)))


def hidden_markov() -> Case:
    """Three states, the forward algorithm in a scan: of the gallery."""
    case = next(case for case in CASES if case.name == "hmm-forward-scan")
    return Case(case.model, case.args)


MADE: dict[str, Callable[[], Case]] = {
    "mlp": lambda: network(MLP(), (8, 784)),
    "resnet20": lambda: network(ResNet20(), (2, 32, 32, 3)),
    "transformer": lambda: network(Transformer(), (2, 12, 16)),
    "hmm": hidden_markov,
    "groups": many_groups,
}


def measure(name: str) -> None:
    """One case, in this process."""
    case = MADE[name]()
    jax.block_until_ready(jax.numpy.ones(2) + 1)
    wall, cpu, before = time.perf_counter(), time.process_time(), _peak()
    found = find_symmetry(case.model, case.args, argnum=case.argnum)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{name}: {len(found.groups)} groups, {wall:.2f} s, {cpu:.2f} s of CPU, peak {_peak():.0f} MB (before "
        f"{before:.0f}), load {os.getloadavg()[0]:.1f}"
    )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(MADE))
    parser.add_argument("--here", action="store_true", help="in this process")
    asked = parser.parse_args()
    for name in asked.names:
        if asked.here:
            measure(name)
        else:
            subprocess.run([sys.executable, "-m", "tests.benchmarks.finding_time", "--here", name], check=True)


if __name__ == "__main__":
    main()
