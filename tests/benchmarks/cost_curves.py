"""CPU seconds and memory of what the package does against size, each curve in a process of its own.

    python -m tests.benchmarks.cost_curves
    python -m tests.benchmarks.cost_curves --only match "rebase/draws" --again

Measures the curves that are not recorded yet (with --again, those that are, too) into results/cost.json, draws
docs/images/cost.png, and has docs/make_cost.py put the tables into docs/cost.md. CPU seconds, since machines are
shared; of what compiles, `find_symmetry` alone counts it. Memory is what a process held at most, less what it held
after the smallest size; of what compiles step by step it is not told.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoSymmetrized, Symmetry, find_symmetry, match, rebase, report

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results" / "cost.json"
FIGURE = ROOT / "docs" / "images" / "cost.png"
# sizes where they are not what is varied
INPUTS, UNITS, ROWS, DRAWS, CHAINS = 8, 32, 32, 250, 4
# what is fast is done again for at least so many seconds
LEAST = 0.5
# less memory than this is not told from what is held anyway, GB
SEEN = 0.01
ONE, TWO = (Symmetry.mlp([("w1", "b1"), ("w2", None)]), Symmetry.mlp([("w1", None), ("w2", None), ("w3", None)]))
AXES = ("units", "parameters", "draws", "chains")


# ---- what is measured --------------------------------------------------------------------------------------------


def network(x: jax.Array, y: jax.Array, units: int) -> None:
    """One hidden layer."""
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([x.shape[1], units]).to_event(2))
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([units]).to_event(1))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([units, 1]).to_event(2))
    out = jnp.tanh(x @ w1 / math.sqrt(x.shape[1]) + b1) @ w2 / math.sqrt(units)
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(out[:, 0], 0.1), obs=y)


def data(inputs: int) -> tuple[jax.Array, jax.Array]:
    """Rows of noise."""
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(ROWS, inputs)), jnp.float32), jnp.asarray(rng.normal(size=ROWS), jnp.float32)


def find(units: int = UNITS, inputs: int = INPUTS) -> Callable[[], Any]:
    """The symmetry of a network, compiling included."""
    return partial(find_symmetry, network, (*data(inputs), units), signs=False)


@lru_cache(maxsize=1)
def fitted(units: int, inputs: int) -> tuple[AutoSymmetrized, SVI, Any, tuple[Any, ...]]:
    """A symmetrized guide, set up."""
    guide = AutoSymmetrized(AutoNormal(network, init_scale=0.1), ONE)
    svi, arguments = SVI(network, guide, optax.adam(1e-3), Trace_ELBO()), (*data(inputs), units)
    return guide, svi, svi.init(jax.random.key(0), *arguments), arguments


def step(units: int = UNITS, inputs: int = INPUTS) -> Callable[[], Any]:
    """A step of training, compiled."""
    _, svi, state, (x, y, _) = fitted(units, inputs)
    # all that a step gives, or the gradient would not be computed
    update = jax.jit(lambda state: svi.update(state, x, y, units))
    return compiled(lambda: jax.block_until_ready(update(state)))


def bounds(units: int = UNITS, inputs: int = INPUTS, draws: int = 16) -> Callable[[], Any]:
    """Bounds of a guide's ELBO, compiled."""
    guide, svi, state, arguments = fitted(units, inputs)
    key, params = jax.random.key(1), svi.get_params(state)
    return compiled(lambda: guide.elbo_bounds(key, params, *arguments, num_particles=draws, progress_bar=False))


def compiled(run: Callable[[], Any]) -> Callable[[], Any]:
    """What was done once already."""
    run()
    return run


def matching(units: int = UNITS, inputs: int = INPUTS, layers: int = 1) -> Callable[[], Any]:
    """A network matched with a noisy copy of it under other labels."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (inputs, units), "b1": (units,), "w2": (units, 1)}
    if layers > 1:
        shapes = {"w1": (inputs, units), "w2": (units, units), "w3": (units, 1)}
    target = {site: rng.standard_normal(shape, np.float32) for site, shape in shapes.items()}
    symmetry = (ONE if layers == 1 else TWO).bind(target)
    noisy = {site: x + 0.5 * rng.standard_normal(x.shape, np.float32) for site, x in target.items()}
    source = symmetry.apply({name: rng.permutation(n) for name, n in symmetry.sizes.items()}, noisy)
    return lambda: match(target, source, symmetry)


def trace(units: int = UNITS, inputs: int = INPUTS, draws: int = DRAWS, chains: int = CHAINS) -> dict[str, np.ndarray]:
    """Draws about a network, each under labels of its own."""
    rng = np.random.default_rng(0)
    labels = rng.permuted(np.tile(np.arange(units), (chains, draws, 1)), axis=-1)
    found = {}
    for site, shape, order in (("w1", (inputs, units), (1, -1)), ("b1", (units,), (-1,)), ("w2", (units, 1), (-1, 1))):
        values = rng.standard_normal(shape, np.float32) + 0.3 * rng.standard_normal((chains, draws, *shape), np.float32)
        found[site] = np.take_along_axis(values, labels.reshape(chains, draws, *order), 2 + order.index(-1))
    return found


def rebasing(*, null: bool = False, **sizes: int) -> Callable[[], Any]:
    """Relabelling draws, margins included."""
    values = trace(**sizes)
    return lambda: rebase(values, ONE, null=null)


def reporting(**sizes: int) -> Callable[[], Any]:
    """A report of relabelled draws."""
    values = trace(**sizes)
    out = rebase(values, ONE, null=False)
    return lambda: report(values, out)


class Curve(NamedTuple):
    """What is run at which sizes: each of them is passed by name; how many of the axis' units that is."""

    of: Callable[..., Callable[[], Any]]
    name: str
    sizes: Sequence[int]
    each: int = 1


def doubling(first: int, last: int) -> list[int]:
    """Powers of two."""
    return [2**k for k in range(first, last + 1)]


CURVES: dict[str, Curve] = {
    "find_symmetry/units": Curve(find, "units", doubling(8, 13)),
    "find_symmetry/parameters": Curve(find, "inputs", doubling(10, 15), UNITS),
    "training step/units": Curve(step, "units", doubling(4, 9)),
    "training step/parameters": Curve(step, "inputs", doubling(10, 14), UNITS),
    "elbo_bounds/units": Curve(bounds, "units", doubling(5, 8)),
    "elbo_bounds/parameters": Curve(bounds, "inputs", doubling(10, 13), UNITS),
    "elbo_bounds/draws": Curve(bounds, "draws", doubling(5, 9)),
    "match/units": Curve(matching, "units", doubling(6, 11)),
    "match/parameters": Curve(matching, "inputs", doubling(12, 18), UNITS),
    "match, two layers/units": Curve(partial(matching, layers=2), "units", doubling(5, 9)),
    "rebase/units": Curve(rebasing, "units", doubling(4, 8)),
    "rebase/parameters": Curve(rebasing, "inputs", doubling(5, 10), UNITS),
    "rebase/draws": Curve(rebasing, "draws", doubling(8, 13), CHAINS),
    "rebase/chains": Curve(rebasing, "chains", doubling(2, 7)),
    "rebase with its null/units": Curve(partial(rebasing, null=True), "units", doubling(3, 6)),
    "report/units": Curve(reporting, "units", doubling(4, 9)),
    "report/parameters": Curve(reporting, "inputs", doubling(5, 10), UNITS),
    "report/draws": Curve(reporting, "draws", doubling(8, 13), CHAINS),
    "report/chains": Curve(reporting, "chains", doubling(2, 7)),
}


def measure(key: str) -> None:
    """One curve, in this process: a line for every size."""
    curve = CURVES[key]
    curve.of(**{curve.name: curve.sizes[0]})()
    before = peak()
    for size in curve.sizes:
        run = curve.of(**{curve.name: size})
        row = {"size": size * curve.each, "cpu": cpu_time(run), "GB": round(peak() - before, 4)}
        # what compilers leave behind adds up from size to size, and says nothing of sizes
        row |= {"GB": 0.0} if curve.of in (step, bounds) else {}
        print(json.dumps(row), flush=True)


def cpu_time(run: Callable[[], Any]) -> float:
    """CPU seconds, the least of as many runs as take a while."""
    spent: list[float] = []
    while sum(spent) < LEAST:
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    return float(f"{min(spent):.4g}")


def peak() -> float:
    """The most memory that this process has held, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


# ---- what is made of it ------------------------------------------------------------------------------------------


class Fit(NamedTuple):
    """Exponent and its standard error; the largest size and what was measured there."""

    exponent: float
    error: float
    size: float
    value: float

    def at(self, size: float) -> tuple[float, float]:
        """On paper: what another size would take by the exponent, and in proportion."""
        return self.value * (size / self.size) ** self.exponent, self.value * size / self.size


def upper(rows: Sequence[Mapping[str, float]], what: str) -> list[tuple[float, float]]:
    """The upper half of the sizes, four at least, as far as anything was to be seen."""
    seen = [(row["size"], row[what]) for row in rows if row[what] > (0.0 if what == "cpu" else SEEN)]
    return seen[-max(4, (len(rows) + 1) // 2) :]


def fit(rows: Sequence[Mapping[str, float]], what: str) -> Fit | None:
    """Least squares of logarithms over the upper part of the sizes; none of too little to see."""
    found = upper(rows, what)
    if len(found) < 3:
        return None
    x, y = np.log(np.array(found)).T
    x = x - x.mean()
    exponent = float(x @ y / (x @ x))
    left = y - y.mean() - exponent * x
    error = math.sqrt(float(left @ left) / (len(x) - 2) / float(x @ x))
    return Fit(exponent, error, *found[-1])


def load() -> dict[str, list[dict[str, float]]]:
    """Curves that were measured."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def draw(found: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Time above and memory below, a column for each of what they are measured against."""
    verbs = list(dict.fromkeys(key.split("/")[0] for key in found))
    looks = dict(zip(verbs, zip("os^Dv<>P", matplotlib.color_sequences["petroff8"], strict=True), strict=True))
    figure, axes = plt.subplots(2, len(AXES), figsize=(11, 5.5), sharex="col", sharey="row", layout="constrained")
    for (row, what), (column, axis) in ((a, b) for a in enumerate(("cpu", "GB")) for b in enumerate(AXES)):
        ax = axes[row, column]
        for key, rows in found.items():
            verb, against = key.split("/")
            seen = [(one["size"], one[what]) for one in rows if one[what] > (0.0 if what == "cpu" else SEEN)]
            if against == axis and seen:
                marker, colour = looks[verb]
                ax.loglog(*zip(*seen, strict=True), marker=marker, ms=4, lw=1.2, color=colour)
        ax.grid(alpha=0.3)
    for ax, axis in zip(axes[1], AXES, strict=True):
        ax.set_xlabel(axis)
    axes[0, 0].set_ylabel("CPU time (s)")
    axes[1, 0].set_ylabel(f"memory (GB), above {SEEN:g}")
    handles = [plt.Line2D([], [], marker=marker, ms=4, lw=1.2, color=colour) for marker, colour in looks.values()]
    told = {key.split("/")[0] for key, rows in found.items() if any(row["GB"] for row in rows)}
    labels = [verb if verb in told else f"{verb} (time alone)" for verb in verbs]
    figure.legend(handles, labels, loc="outside lower center", ncols=(len(verbs) + 1) // 2, frameon=False)
    figure.savefig(FIGURE, dpi=150)


def main() -> None:
    """Measure, draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of curves")
    parser.add_argument("--again", action="store_true", help="those that are recorded too")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(options.here)
        return
    wanted = [key for key in CURVES if key.startswith(tuple(options.only))]
    for key in wanted if options.again else [key for key in wanted if key not in load()]:
        start = time.perf_counter()
        command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--here", key]
        rows = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                print(key, line, end="", flush=True)
                rows += [json.loads(line)]
        if process.returncode:
            raise SystemExit(f"{key} ended with status {process.returncode}.")
        RESULTS.parent.mkdir(exist_ok=True)
        known = load() | {key: rows}
        RESULTS.write_text(json.dumps({k: known[k] for k in CURVES if k in known}, indent=1) + "\n")
        print(f"{key}: {time.perf_counter() - start:.0f} s; {fit(rows, 'cpu')}; {fit(rows, 'GB')}", flush=True)
    draw(load())
    subprocess.run([sys.executable, ROOT / "docs" / "make_cost.py", "--write"], check=True)


if __name__ == "__main__":
    main()
