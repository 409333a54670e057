"""Peak resident memory of estimators at 4096 units and of matching 10^6 parameters, each in a process of its own.

.. code-block:: sh

    python -m tests.benchmarks.memory
    python -m tests.benchmarks.memory --units 1024 --cases importance bounds-wide match-wide
    python -m tests.benchmarks.memory --cases importance match-deep
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoSymmetrized, DiagonalGaussian, Symmetry, match, mutual_information

# of a table's entries and their scatter: units that overlap a little
SPREAD = 3.0
DEEP = (784, 512, 512, 512, 10)


def table(num_units: int, num_draws: int = 1) -> jax.Array:
    """Log densities of overlapping units."""
    noise = SPREAD * jax.random.normal(jax.random.key(0), (num_draws, num_units, num_units))
    return noise + 2.0 * SPREAD * jnp.eye(num_units)


def estimate(num_units: int, estimator: str, **options: object) -> float:
    """Mutual information of two draws."""
    log_density, key = table(num_units, 2), jax.random.key(1)
    return float(mutual_information(log_density, estimator=estimator, rng_key=key, **options).sum())  # pyright: ignore


def gradient(num_units: int) -> float:
    """Gradient of the sequential bound."""
    value = jax.grad(lambda x: mutual_information(x, estimator="sequential").sum())(table(num_units))
    return float(value.sum())


def network(x: jax.Array, y: jax.Array, sizes: tuple[int, ...]) -> None:
    """A network of some layers."""
    for k, (n, m) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        w = numpyro.sample(f"w{k}", dist.Normal(0.0, n**-0.5).expand([n, m]).to_event(2))
        x = x @ w if k == len(sizes) - 2 else jnp.tanh(x @ w)
    numpyro.sample("y", dist.Normal(x, 1.0).to_event(2), obs=y)


def bounds(*sizes: int) -> float:
    """Both bounds of the ELBO of a network."""
    x, y = jnp.ones((8, sizes[0])), jnp.ones((8, sizes[-1]))
    guide = AutoSymmetrized(AutoNormal(network, init_scale=0.3), symmetry_of(sizes))
    svi = SVI(network, guide, optax.adam(0.01), Trace_ELBO())
    params = svi.get_params(svi.init(jax.random.key(0), x, y, sizes))
    return guide.elbo_bounds(
        jax.random.key(1), params, x, y, sizes, num_particles=2, num_permutations=8, progress_bar=False
    ).lower


def symmetry_of(sizes: tuple[int, ...]) -> Symmetry:
    """Every hidden layer's units."""
    names = [None, *(f"h{k}" for k in range(1, len(sizes) - 1)), None]
    return Symmetry({f"w{k}": names[k : k + 2] for k in range(len(sizes) - 1)})  # pyright: ignore


def matched(*sizes: int, scatter: float = 0.5, gaussian: bool = False) -> float:
    """Objective of a network matched with a noisy copy of itself."""
    rng = np.random.default_rng(0)
    shapes = {f"w{k}": shape for k, shape in enumerate(zip(sizes[:-1], sizes[1:], strict=True))}
    target = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    symmetry = symmetry_of(sizes)
    noisy = {name: x + scatter * rng.normal(size=x.shape).astype(np.float32) for name, x in target.items()}
    bound = symmetry.bind(target)
    source = bound.apply({name: rng.permutation(n) for name, n in bound.sizes.items()}, noisy)
    if gaussian:
        widths = {name: np.full_like(x, 0.5) for name, x in target.items()}
        sides = DiagonalGaussian(target, widths), DiagonalGaussian(source, widths)
        return float(match(*sides, symmetry).objective)
    return float(match(target, source, symmetry).objective)


CASES: dict[str, Callable[[int], float]] = {
    "nothing": lambda n: 0.0,
    "infonce": lambda n: estimate(n, "infonce", num_permutations=16),
    "sequential": lambda n: estimate(n, "sequential"),
    "sequential-gradient": gradient,
    "importance": lambda n: estimate(n, "importance", num_permutations=16, bound="both"),
    "bounds-wide": lambda n: bounds(8, n, 1),
    "bounds-deep": lambda n: bounds(8, n, 64, 1),
    "match-wide": lambda n: matched(243, n, 1),
    "match-deep": lambda n: matched(*DEEP),
    "match-gaussian": lambda n: matched(*DEEP, gaussian=True),
}


def measure(case: str, num_units: int) -> str:
    """One case, in this process."""
    start = time.perf_counter()
    value = CASES[case](num_units)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return f"{case:20} {peak:6.2f} GB {time.perf_counter() - start:7.1f} s   {value:.6g}"


def main() -> None:
    """Every case in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--units", type=int, default=4096, help="of all but those that are deep to match")
    parser.add_argument("--here", action="store_true", help="in this process")
    options = parser.parse_args()
    for case in options.cases:
        if options.here:
            print(measure(case, options.units))
        else:
            command = [sys.executable, "-m", __spec__.name, "--here", "--units", str(options.units), "--cases", case]
            subprocess.run(command, check=False)


if __name__ == "__main__":
    main()
