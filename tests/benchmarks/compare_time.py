"""Time of comparing two posteriors up to labels: 4 chains of 1000 draws, 50 units of 9 numbers, and other sizes.

python -m tests.benchmarks.compare_time [--all]

Seconds by the clock and of processors, labels at random in every draw, with units of an autoregression of .5.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from numpyro_symmetry import Symmetry, compare

UNITS = Symmetry({"w": ("unit", None)})
CASES = {"50 units of 9": (4, 1000, 50, 9), "10 units of 9": (4, 1000, 10, 9), "200 units of 9": (4, 1000, 200, 9)}


def posterior(rng: np.random.Generator, num_chains: int, num_draws: int, size: int, numbers: int) -> dict:
    """Units about centres that all posteriors share."""
    centres = 1.5 * np.random.default_rng(0).standard_normal((size, numbers))
    noise = rng.standard_normal((num_chains, num_draws, size, numbers))
    for t in range(1, num_draws):
        noise[:, t] = 0.5 * noise[:, t - 1] + np.sqrt(0.75) * noise[:, t]
    order = rng.permuted(np.broadcast_to(np.arange(size), noise.shape[:-1]), axis=-1)
    return {"w": np.take_along_axis(centres + noise, order[..., None], 2)}


def timed(shape: tuple[int, int, int, int]) -> dict[str, float]:
    """Seconds of one comparison, and what it took of memory."""
    rng = np.random.default_rng(1)
    a, b = posterior(rng, *shape), posterior(rng, *shape)
    clock, processor = time.perf_counter(), time.process_time()
    found = compare(a, b, UNITS)
    return {
        "seconds": round(time.perf_counter() - clock, 2),
        "cpu": round(time.process_time() - processor, 2),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "p": found.p_value,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true")
    for name in CASES if parser.parse_args().all else list(CASES)[:1]:
        print(json.dumps({name: timed(CASES[name])}), flush=True)
