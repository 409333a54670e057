"""CPU time of relabelling 4000 draws of four components by 82 data, beside plain NumPy loops, and what it allocates.

python -m tests.benchmarks.relabelling_time [--memory]

The loops take one draw after the other, as the published algorithms do, with the same start and the same assignment
solver. With --memory: the largest allocation of rebasing a network's draws, relative to the draws' own size.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc

import numpy as np
from scipy.optimize import linear_sum_assignment

from numpyro_symmetry import AllocationCost, EuclideanCost, StephensCost, Symmetry, rebase
from numpyro_symmetry.assignment.family import Side
from numpyro_symmetry.traces.relabel import relabel
from tests.support import networks

DRAWS, COMPONENTS, DATA = 4000, 4, 82


def draws():
    """Locations, probabilities and allocations of a mixture whose labels switch."""
    rng = np.random.default_rng(0)
    loc = 2.5 * np.arange(COMPONENTS) + 0.4 * rng.standard_normal((DRAWS, COMPONENTS))
    loc = rng.permuted(loc, axis=1)
    y = 2.5 * rng.integers(0, COMPONENTS, DATA) + rng.standard_normal(DATA)
    density = np.exp(-0.5 * (y[:, None] - loc[:, None]) ** 2)
    p = density / density.sum(-1, keepdims=True)
    z = np.minimum((rng.uniform(size=(DRAWS, DATA, 1)) > p.cumsum(-1)).sum(-1), COMPONENTS - 1)
    return {"loc": loc}, p, z


def stephens_loop(p, start, max_rounds=100):
    """Stephens' algorithm, one draw after the other."""
    q, old = p[start], None
    for _ in range(max_rounds):
        labels = np.empty((len(p), p.shape[2]), int)
        total = np.zeros_like(q)
        log_q = np.log(np.maximum(q, 1e-10))
        for k, one in enumerate(p):
            cost = (one * np.log(np.maximum(one, 1e-10))).sum(0)[None] - log_q.T @ one
            labels[k] = linear_sum_assignment(cost)[1]
            total += one[:, labels[k]]
        q = total / len(p)
        if old is not None and (labels == old).all():
            break
        old = labels
    return labels


def pivot_loop(z, start, max_rounds=100):
    """The iterated pivot, one draw after the other."""
    pivot, old = z[start], None
    for _ in range(max_rounds):
        labels = np.empty((len(z), COMPONENTS), int)
        counts = np.zeros((z.shape[1], COMPONENTS), int)
        for k, one in enumerate(z):
            agree = np.zeros((COMPONENTS, COMPONENTS))
            np.add.at(agree, (pivot, one), 1)
            labels[k] = linear_sum_assignment(-agree)[1]
            counts[np.arange(z.shape[1]), np.argsort(labels[k])[one]] += 1
        pivot = counts.argmax(1)
        if old is not None and (labels == old).all():
            break
        old = labels
    return labels


def cpu_time(run, repeats=3):
    """Seconds of CPU, the least of a few runs, and what came out."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        found = run()
        spent.append(time.process_time() - start)
    return min(spent), found


def times():
    """Ours from one start against the loop from the same."""
    values, p, z = draws()
    bound = Symmetry.mixture("loc").bind(values, num_leading_dims=1)
    for name, cost, loop, data in (
        ("StephensCost", StephensCost(p), stephens_loop, p),
        ("AllocationCost", AllocationCost(z), pivot_loop, z),
    ):
        family = cost.family(Side(values, leading=(DRAWS,)), bound)
        ours, found = cpu_time(lambda f=family: relabel(f, bound.groups, f.point(0)))
        plain, labels = cpu_time(lambda loop=loop, data=data: loop(data, 0))
        same = (found.state["component"].permutation == labels).all(1).mean()
        whole, _ = cpu_time(lambda c=cost: rebase(values, Symmetry.mixture("loc"), cost=c), 1)
        row = {"cost": name, "seconds": round(ours, 3), "loop_seconds": round(plain, 3), "same_labels": float(same)}
        print(json.dumps(row | {"seconds_rebase_with_starts_and_null": round(whole, 2)}), flush=True)


def memory(count):
    """Peak of what `rebase` allocates, its result among it, relative to the draws."""
    shapes, symmetry = networks.mlp([784, 128, 10])
    rng = np.random.default_rng(0)
    values = {}
    for site, shape in shapes.items():
        values[site] = 0.3 * rng.standard_normal((count, *shape), dtype=np.float32)
        values[site] += rng.standard_normal(shape, dtype=np.float32)
    size = sum(v.nbytes for v in values.values())
    tracemalloc.start()
    out = rebase(values, symmetry, cost=EuclideanCost(standardize=False))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del out
    print(json.dumps({"draws": count, "trace_MB": round(size / 1e6), "peak/trace": round(peak / size, 2)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=int, default=0, metavar="DRAWS")
    options = parser.parse_args()
    if options.memory:
        memory(options.memory)
    else:
        times()
