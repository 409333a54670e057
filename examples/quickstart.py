"""Fit a Bayesian network and a mixture by stock SVI, bare and symmetrized, on data that ships with the package.

python examples/quickstart.py [--output quickstart.png]

Prints evidence bounds, held-out log-likelihood and error side by side, says where symmetrizing changes nothing, and
draws the evidence, the error and the units in use against the width of the network. Set NUMPYRO_SYMMETRY_SHORT=1 for a
few steps only.
"""

import argparse
import math
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from jax.scipy.special import logsumexp
from numpyro.infer import SVI, Predictive, Trace_ELBO, init_to_sample
from numpyro.infer.autoguide import AutoNormal
from tqdm import tqdm

from numpyro_symmetry import AutoSymmetrized, ElboBounds, Symmetry

SHORT = os.environ.get("NUMPYRO_SYMMETRY_SHORT") == "1"
COLOURS = {"bare": "#b5651d", "symmetrized": "#1f5fa8"}


class Fit(NamedTuple):
    """One fit, and what it is worth."""

    bounds: ElboBounds
    test_log_likelihood: float
    rmse: float
    units_in_use: int


def read_data(name: str) -> np.ndarray:
    path = files("numpyro_symmetry") / "data" / name
    return np.loadtxt(path.read_text().splitlines(), delimiter=",", skiprows=1, dtype=np.float32)


def yacht():
    """Standardised training and test data, and the spread of the resistance."""
    rows = np.random.default_rng(0).permutation(read_data("yacht.csv"))
    spread = rows[31:].std(0)
    rows = jnp.asarray((rows - rows[31:].mean(0)) / spread)
    return (rows[31:, :-1], rows[31:, -1]), (rows[:31, :-1], rows[:31, -1]), float(spread[-1])


# ---- a Bayesian network on 308 sailing yachts ------------------------------------------------------------------------


def network(x, y=None, *, width):
    """One ReLU layer, unit priors, scaled by fan-in."""
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([x.shape[-1], width]).to_event(2))
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    b2 = numpyro.sample("b2", dist.Normal(0.0, 1.0))
    parts = numpyro.deterministic(
        "parts", jax.nn.relu(x @ w1 / math.sqrt(x.shape[-1]) + b1) * w2 * math.sqrt(2.0 / width)
    )
    noise = numpyro.param("noise", 0.4, constraint=dist.constraints.positive)
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(parts.sum(-1) + b2, noise), obs=y)


def fit_network(width: int, steps: int) -> dict[str, Fit]:
    train, test, spread = yacht()

    def model(x, y=None):
        network(x, y, width=width)

    bare = AutoNormal(model, init_loc_fn=init_to_sample, init_scale=0.08)
    symmetry = Symmetry({"w1": (None, "hidden"), "b1": ("hidden",), "w2": ("hidden",)})
    symmetrized = AutoSymmetrized(bare, symmetry)  # the whole difference between the two methods
    fits = {}
    for method, guide in {"bare": bare, "symmetrized": symmetrized}.items():
        svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(1e-2, steps)), Trace_ELBO(num_particles=2))
        params = svi.run(jax.random.key(0), steps, *train, progress_bar=False).params

        # a bare fit too may be read as a symmetric posterior, so both are scored as one: the difference is the training
        bounds = symmetrized.elbo_bounds(jax.random.key(1), params, *train, progress_bar=False)
        draws = symmetrized.sample_posterior(jax.random.key(2), params, sample_shape=(400,))
        predictive = Predictive(model, draws, params=params, return_sites=["parts"])
        parts = predictive(jax.random.key(3), jnp.concatenate([train[0], test[0]]))["parts"]
        mean = parts[:, len(train[0]) :].sum(-1) + draws["b2"][:, None]
        log_likelihood = dist.Normal(mean, params["noise"]).log_prob(test[1])
        fits[method] = Fit(
            bounds,
            float((logsumexp(log_likelihood, axis=0) - math.log(len(mean))).mean() - math.log(spread)),
            float(jnp.sqrt(((mean.mean(0) - test[1]) ** 2).mean()) * spread),
            units_in_use(parts[:, : len(train[0])]),
        )
    return fits


def units_in_use(parts) -> int:
    """Units whose mean contribution varies over the data by more than they scatter over the posterior."""
    return int((parts.mean(0).var(0) > parts.var(0).mean(0)).sum())


# ---- a mixture on 82 galaxies ----------------------------------------------------------------------------------------


def mixture(y, components):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(components)))
    with numpyro.plate("components", components):
        loc = numpyro.sample("loc", dist.Normal(20.0, 10.0))
        scale = numpyro.sample("scale", dist.LogNormal(0.5, 0.5))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, scale)), obs=y)


def fit_mixture(components: int, steps: int) -> dict[str, ElboBounds]:
    velocities = jnp.asarray(read_data("galaxy.csv") / 1000.0)
    bare = AutoNormal(mixture, init_loc_fn=init_to_sample)
    symmetrized = AutoSymmetrized(bare, Symmetry.mixture("weights", "loc", "scale"))
    bounds = {}
    for method, guide in {"bare": bare, "symmetrized": symmetrized}.items():
        svi = SVI(mixture, guide, optax.adam(optax.cosine_decay_schedule(3e-2, steps)), Trace_ELBO(num_particles=8))
        params = svi.run(jax.random.key(4), steps, velocities, components, progress_bar=False).params
        bounds[method] = symmetrized.elbo_bounds(jax.random.key(1), params, velocities, components, progress_bar=False)
    return bounds


# ---- what came out ---------------------------------------------------------------------------------------------------


def evidence(bounds: ElboBounds) -> str:
    return f"{bounds.lower:8.1f} ± {bounds.lower_error:.1f} … {bounds.upper:8.1f} ± {bounds.upper_error:.1f}"


def verdict(bare: ElboBounds, symmetrized: ElboBounds) -> str:
    gain = symmetrized.lower - bare.lower
    error = math.hypot(symmetrized.lower_error, bare.lower_error)
    if gain > 3 * error and gain > 0.5:
        return f"symmetric training gains {gain:.1f} ± {error:.1f} nats"
    distinct = bare.mutual_information[0] > 0.95 * bare.log_order
    why = (
        f"all copies distinct: the correction is the constant log|G| = {bare.log_order:.1f}"
        if distinct
        else "same optimum"
    )
    return f"symmetric training changes nothing ({why})"


def draw(fits: dict[int, dict[str, Fit]], output: Path) -> None:
    widths = list(fits)
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    titles = (
        "Evidence of the data (nats)",
        "Error on held-out yachts (RMSE)",
        "Units in use",
    )
    for method, colour in COLOURS.items():
        of_width = [fits[width][method] for width in widths]
        lower, upper = ([getattr(f.bounds, side) for f in of_width] for side in ("lower", "upper"))
        axes[0].fill_between(widths, lower, upper, color=colour, alpha=0.4, lw=0)
        for axis, values in zip(
            axes, (lower, [f.rmse for f in of_width], [f.units_in_use for f in of_width]), strict=True
        ):
            axis.plot(widths, values, "o-", color=colour, label=method)
    axes[2].plot(widths, widths, ":", color="grey", label="all of them")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="hidden units", xscale="log", xticks=widths)
        axis.set_xticks([], minor=True)
        axis.set_xticklabels(map(str, widths))
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_ylim(bottom=0)
    axes[2].set(yscale="log")
    axes[2].legend(frameon=False)
    figure.suptitle("One Bayesian network, one SVI, two guides: yacht resistance, 277 rows", fontsize=11)
    figure.savefig(output, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description="Bare and symmetrized variational inference on bundled data.")
    parser.add_argument("--output", type=Path, default=Path("quickstart.png"))
    output = parser.parse_args().output
    widths, steps, mixture_steps = ([5, 10], 50, 50) if SHORT else ([50, 200], 3000, 1500)

    jobs = [(fit_network, width, steps) for width in reversed(widths)] + [(fit_mixture, 3, mixture_steps)]
    # most of the time goes to compiling, on one core each
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(*job) for job in jobs]
        for _ in tqdm(as_completed(futures), total=len(jobs), desc="fitting each bare and symmetrized"):
            pass
    *of_width, of_mixture = [future.result() for future in futures]
    fits = dict(zip(widths, reversed(of_width), strict=True))

    print("\nA Bayesian network on yacht resistance: 277 rows to learn from, 31 held out\n")
    print(f"{'units':>5} {'guide':12} {'ELBO of q^G (lower … upper)':>36} {'log-lik':>8} {'RMSE':>6} {'in use':>7}")
    for width, by_method in fits.items():
        for method, fit in by_method.items():
            print(
                f"{width:5} {method:12} {evidence(fit.bounds):>36} {fit.test_log_likelihood:8.2f} {fit.rmse:6.2f} "
                f"{fit.units_in_use:7}"
            )
        print(f"{'':5} {verdict(by_method['bare'].bounds, by_method['symmetrized'].bounds)}")
    print("\nA mixture of three normals on 82 galaxies\n")
    for method, bounds in of_mixture.items():
        print(f"{'':5} {method:12} {evidence(bounds):>36}")
    print(f"{'':5} {verdict(**of_mixture)}")
    draw(fits, output)
    print(f"\nFigure: {output}")


if __name__ == "__main__":
    main()
