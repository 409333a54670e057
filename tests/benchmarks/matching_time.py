"""CPU time of matching a trace, as ratios to plain loops over draws in the same run, and of assignment solvers.

python -m tests.benchmarks.matching_time [--solvers]

One thread: set OMP_NUM_THREADS=1 and compare ratios only.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time

import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment

from numpyro_symmetry import match
from numpyro_symmetry.assignment import assign
from tests.support import networks

DRAWS, FEW = 1000, 20
CASES = {"8-50-50-1": ([8, 50, 50, 1], 0.3), "784-128-10": ([784, 128, 10], 0.3)}


def plain_loop(target, source, symmetry, np=np, tolerance=1e-6):
    """Weight matching as published (coordinate descent from the labels as they came), one draw after the other.

    With ``np=jax.numpy`` every operation runs eagerly in JAX, as in git-re-basin.
    """
    groups = {}
    for site, entries in symmetry.axes.items():
        for axis, name in enumerate(entries):
            if name is not None:
                groups.setdefault(name, []).append((site, axis))
    found = []
    for k in range(len(next(iter(source.values())))):
        draw = {site: value[k] for site, value in source.items()}
        permutations = {name: np.arange(target[at[0][0]].shape[at[0][1]]) for name, at in groups.items()}
        for _ in range(100):
            moved_any = False
            for name, at in groups.items():
                n = len(permutations[name])
                table = np.zeros((n, n), target[at[0][0]].dtype)
                for site, axis in at:
                    value = draw[site]
                    for other, entry in enumerate(symmetry.axes[site]):
                        if entry is not None and other != axis:
                            value = np.take(value, permutations[entry], other)
                    left = np.moveaxis(target[site], axis, 0).reshape(n, -1)
                    table = table + left @ np.moveaxis(value, axis, 0).reshape(n, -1).T
                columns = linear_sum_assignment(table, maximize=True)[1]
                old = float(table[np.arange(n), permutations[name]].sum())
                if float(table[np.arange(n), columns].sum()) > old + tolerance * abs(old):
                    permutations[name], moved_any = np.asarray(columns), True
            if not moved_any:
                break
        found.append(permutations)
    return found


def cpu_time(run, repeats=3):
    """Seconds of CPU, the least of a few runs: the first pays for fresh memory."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    return min(spent)


def floor(target, source):
    """What no relabelling of one hidden layer does without: a product of matrices and an assignment, a draw."""
    for value in source["w1"]:
        linear_sum_assignment(target["w1"].T @ value, maximize=True)


def trace(name, widths, noise):
    """Our time against both loops, like for like (descent), and that of the default method."""
    shapes, symmetry = networks.mlp(widths)
    target, source, _ = networks.planted(shapes, symmetry, noise, DRAWS, dtype=np.float32)
    few = {site: value[:FEW] for site, value in source.items()}
    device = [{site: jnp.asarray(value) for site, value in values.items()} for values in (target, few)]
    match(target, few, symmetry)
    plain_loop(*device, symmetry, np=jnp)
    ours = cpu_time(lambda: match(target, source, symmetry, method="descent"))
    auto = cpu_time(lambda: match(target, source, symmetry))
    loop = cpu_time(lambda: plain_loop(target, source, symmetry))
    eager = cpu_time(lambda: plain_loop(*device, symmetry, np=jnp)) * DRAWS / FEW
    return {
        "network": name,
        "ms_per_draw": round(ours / DRAWS * 1e3, 3),
        "ms_per_draw_auto": round(auto / DRAWS * 1e3, 3),
        "numpy_loop/ours": round(loop / ours, 2),
        "eager_jax_loop/ours": round(eager / ours, 1),
    } | ({"auto/floor": round(auto / cpu_time(lambda: floor(target, source)), 2)} if len(widths) == 3 else {})


def solvers():
    """Milliseconds a table by scipy and by lapx, on easy tables (a planted permutation) and hard ones (independent)."""
    names = ["scipy"] + (["lapx"] if importlib.util.find_spec("lap") else [])
    for n in (16, 64, 128, 256, 512, 1024):
        rng = np.random.default_rng(n)
        count = max(2, 20_000 // n**2)
        features = rng.normal(size=(count, n, 8))
        noisy = features[:, rng.permutation(n)] + 0.5 * rng.normal(size=features.shape)
        kinds = {
            "easy": features @ noisy.transpose(0, 2, 1),
            "hard": features @ rng.normal(size=features.shape).transpose(0, 2, 1),
        }
        for kind, tables in kinds.items():
            for name in names:
                assign(tables[:1], solver=name)
                spent = cpu_time(lambda name=name, tables=tables: assign(tables, solver=name))
                print(
                    json.dumps({"n": n, "kind": kind, "solver": name, "ms": round(spent / count * 1e3, 3)}), flush=True
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solvers", action="store_true")
    if parser.parse_args().solvers:
        solvers()
    else:
        for case, (layer_widths, planted_noise) in CASES.items():
            print(json.dumps(trace(case, layer_widths, planted_noise)), flush=True)
