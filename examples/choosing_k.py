"""How many components has a mixture of 82 galaxies? Log evidence for K = 1 to 6, from traces in which labels switch.

python examples/choosing_k.py [--components 1 2 3 4 5 6] [--output choosing_k.png]

Samples each mixture with NumPyro's NUTS and estimates its log evidence by bridge sampling with a symmetrized Gaussian.
Beside it stands what one labelled mode says: Laplace-Metropolis of one basin as it is, with log K! added, and of all
copies together, which overlap; and the expected number of components that hold a galaxy. Set NUMPYRO_SYMMETRY_SHORT=1
for a few draws of two models only.
"""

import argparse
import math
import os
import warnings
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, init_to_sample

from numpyro_symmetry import SymmetryWarning, log_evidence
from numpyro_symmetry.evidence import LogEvidence

SHORT = os.environ.get("NUMPYRO_SYMMETRY_SHORT") == "1"
CHAINS, DRAWS = (1, 100) if SHORT else (4, 1000)
WITHIN = 16.0  # nats that the figure shows


class Result(NamedTuple):
    """Two estimates for one number of components, how many hold a galaxy in the mean, and what was warned of."""

    components: int
    bridge: LogEvidence
    laplace: LogEvidence
    occupied: float
    warned: str


def galaxies() -> jax.Array:
    """Velocities in 1000 km/s."""
    with (files("numpyro_symmetry") / "data" / "galaxy.csv").open() as file:
        return jnp.asarray(np.loadtxt(file, skiprows=1) / 1000.0, jnp.float32)


def mixture(y, components):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(components)))
    with numpyro.plate("component", components):
        loc = numpyro.sample("loc", dist.Normal(20.0, 10.0))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.75))
    with numpyro.plate("galaxy", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, scale)), obs=y)


def single(y):
    """One component has no weights."""
    loc = numpyro.sample("loc", dist.Normal(20.0, 10.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.75))
    with numpyro.plate("galaxy", len(y)):
        numpyro.sample("y", dist.Normal(loc, scale), obs=y)


def occupied(draws: dict[str, np.ndarray], y: jax.Array) -> float:
    """Expected number of components that hold a galaxy: each does unless all galaxies are elsewhere."""
    each = dist.Normal(draws["loc"][:, None], draws["scale"][:, None]).log_prob(np.asarray(y)[:, None])
    share = jax.nn.softmax(jnp.log(draws["weights"])[:, None] + each)
    return float((1.0 - jnp.prod(1.0 - share, axis=1)).sum(-1).mean())


def estimate(components: int, y: jax.Array, seed: int) -> Result:
    model, args = (single, (y,)) if components == 1 else (mixture, (y, components))
    sampler = NUTS(model, init_strategy=init_to_sample)  # starts near zero would lie far from the data
    mcmc = MCMC(
        sampler, num_warmup=DRAWS, num_samples=DRAWS, num_chains=CHAINS, chain_method="vectorized", progress_bar=False
    )
    mcmc.run(jax.random.key(seed), *args)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SymmetryWarning)
        found = [log_evidence(mcmc, method=method, num_draws=DRAWS) for method in ("bridge", "laplace")]
    warned = "; ".join(str(w.message) for w in caught if issubclass(w.category, SymmetryWarning))
    return Result(components, *found, 1.0 if components == 1 else occupied(mcmc.get_samples(), y), warned)


def estimates(results: list[Result]) -> dict[str, np.ndarray]:
    """By the name of the estimate, over K."""
    bridge = np.array([r.bridge.value for r in results])
    laplace = np.array([r.laplace.value - r.laplace.correction for r in results])
    log_order = np.array([math.lgamma(r.components + 1) for r in results])
    return {
        "bridge": bridge,
        "one basin": laplace,
        "+ log K!": laplace + log_order,
        "all basins": np.array([r.laplace.value for r in results]),
    }


def probabilities(values: np.ndarray) -> np.ndarray:
    weights = np.exp(values - values.max())
    return weights / weights.sum()


def print_row(r: Result) -> None:
    of = {name: values[0] for name, values in estimates([r]).items()}
    print(
        f"{r.components:>2}  {r.bridge.value:8.2f} ± {r.bridge.error:4.2f}  "
        f"{r.bridge.correction:5.2f} of {r.bridge.log_order:4.2f}  {of['one basin']:>18.2f}  "
        f"{of['+ log K!']:8.2f}  {of['all basins']:10.2f}  {r.occupied:8.2f}" + f"\n    {r.warned}" * bool(r.warned),
        flush=True,
    )


def print_probabilities(results: list[Result]) -> None:
    print("\nPosterior probability of K, every K alike beforehand\n")
    print(f"{'K':>20}" + "".join(f"{r.components:>7}" for r in results))
    for name, values in estimates(results).items():
        name = name if name == "bridge" else f"Laplace, {name}"
        print(f"{name:>20}" + "".join(f"{p:7.3f}" for p in probabilities(values)))


def plot(results: list[Result], path: Path) -> None:
    """Estimates side by side, a colour and a mark for each, in one order on both sides."""
    of, components = estimates(results), np.array([r.components for r in results])
    plt.style.use("petroff10")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    errors = {"bridge": [2 * r.bridge.error for r in results]}
    labels = {name: f"Laplace–Metropolis, {name}" for name in of} | {"bridge": "bridge sampling, ± 2 standard errors"}
    width = 0.2
    for k, ((name, values), marker) in enumerate(zip(of.items(), "ovs^", strict=True)):
        at, look = components + (k - 1.5) * width, {"color": f"C{k}", "label": labels[name]}
        left.errorbar(at, values, errors.get(name), fmt=f"{marker}:", ms=6, lw=1, capsize=3, **look)
        right.bar(at, probabilities(values), width, color=f"C{k}")
    best = of["bridge"].max()
    left.set(ylabel="log evidence (nats)", ylim=(best - WITHIN, best + 2))
    left.text(0.03, 0.94, "estimates further below are left out", transform=left.transAxes, fontsize=9, color="0.4")
    right.set(ylabel="posterior probability of K")
    for ax in (left, right):
        ax.set(
            xlabel="number of components K", xticks=components, xlim=(components.min() - 0.6, components.max() + 0.6)
        )
        ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--components", type=int, nargs="*", default=[1, 2] if SHORT else [1, 2, 3, 4, 5, 6])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("choosing_k.png"))
    options = parser.parse_args()
    of_one = f"{'Laplace: one basin':>18}  {'+ log K!':>8}  {'all basins':>10}  {'occupied':>8}"
    print(f"{'K':>2}  {'bridge':>15}  {'I of log K!':>13}  {of_one}")
    results = []
    for components in options.components:
        results.append(estimate(components, galaxies(), options.seed))
        print_row(results[-1])
    print_probabilities(results)
    plot(results, options.output)
    print(f"\nFigure: {options.output}")


if __name__ == "__main__":
    main()
