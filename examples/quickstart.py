"""Fit a wide Bayesian network to yachts by stock SVI: mean field, and with output weights that follow the hidden ones.

python examples/quickstart.py [--output quickstart.png]

Prints a lower bound of the evidence, the log-likelihood and the error on held-out yachts, at 50 and 200 units; draws
them on top of recorded fits over more widths, beside the network of infinite width. The data ship with the package.
Set NUMPYRO_SYMMETRY_SHORT=1 for a few steps only.
"""

import argparse
import csv
import math
import os
from collections import defaultdict
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
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from tqdm import tqdm

from numpyro_symmetry import AutoConditional, AutoSymmetrized

SHORT = os.environ.get("NUMPYRO_SYMMETRY_SHORT") == "1"
DATA = files("numpyro_symmetry") / "data"
OURS = "AutoSymmetrized(AutoConditional(AutoNormal(model)))"
GUIDES = {
    "AutoNormal(model)": lambda model: AutoNormal(model),
    OURS: lambda model: AutoSymmetrized(AutoConditional(AutoNormal(model))),
}
COLOURS = {
    "mean field": "#b5651d",
    "symmetrized mean field": "#d9a066",
    "conditional": "#7fa8d6",
    "symmetrized conditional": "#1f5fa8",
}
# the first of the twenty standard splits of these data
HELD_OUT = [
    *[121, 115, 286, 216, 264, 209, 1, 22, 7, 141, 86, 241, 215, 68, 50, 156],
    *[252, 254, 276, 178, 281, 237, 71, 129, 144, 133, 203, 255, 72, 235, 37],
]


class Fit(NamedTuple):
    """What one fit is worth; predictions of the held-out yachts as draws, in their own units."""

    evidence: float
    error: float
    test_log_likelihood: float
    rmse: float
    predicted: np.ndarray


def yacht():
    """Standardised training data; those held out, with their resistance as it was measured; what undoes the scaling."""
    rows = np.loadtxt((DATA / "yacht.csv").read_text().splitlines(), delimiter=",", skiprows=1, dtype=np.float32)
    train, test = np.delete(rows, HELD_OUT, axis=0), rows[HELD_OUT]
    mean, spread = train.mean(0), train.std(0)
    train, x_test = jnp.asarray((train - mean) / spread), jnp.asarray((test - mean) / spread)[:, :-1]
    return (train[:, :-1], train[:, -1]), (x_test, test[:, -1]), (mean[-1], spread[-1])


def network(x, y=None, *, width):
    """One ReLU layer, unit priors, scaled by fan-in, so that a wide one tends to a Gaussian process."""
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([x.shape[-1], width]).to_event(2))
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    b2 = numpyro.sample("b2", dist.Normal(0.0, 1.0))
    hidden = jax.nn.relu(x @ w1 / math.sqrt(x.shape[-1]) + b1)
    mean = numpyro.deterministic("mean", hidden @ w2 * math.sqrt(2.0 / width) + b2)
    noise = numpyro.param("noise", math.exp(-1.0), constraint=dist.constraints.positive)
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def fit_network(name: str, width: int, steps: int) -> Fit:
    train, (x_test, y_test), (centre, spread) = yacht()

    def model(x, y=None):
        network(x, y, width=width)

    guide = GUIDES[name](model)
    svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(1e-2, steps)), Trace_ELBO(num_particles=2))
    params = svi.run(jax.random.key(0), steps, *train, progress_bar=False).params

    # a bare guide too may be read as a symmetric posterior: both are scored as one, so that the fits alone differ
    judge = guide if isinstance(guide, AutoSymmetrized) else AutoSymmetrized(guide)
    bounds = judge.elbo_bounds(jax.random.key(1), params, *train, num_particles=100, progress_bar=False)
    predictive = Predictive(model, guide=judge.given(*train), params=params, num_samples=200, parallel=False)
    drawn = predictive(jax.random.key(2), x_test)
    mean, noise = centre + spread * drawn["mean"], spread * params["noise"]
    log_likelihood = logsumexp(dist.Normal(mean, noise).log_prob(y_test), axis=0) - math.log(len(mean))
    return Fit(
        bounds.lower,
        bounds.lower_error,
        float(log_likelihood.mean()),
        float(np.sqrt(((mean.mean(0) - y_test) ** 2).mean())),
        np.asarray(centre + spread * drawn["y"]),
    )


def recorded() -> tuple[dict[str, dict[int, np.ndarray]], np.ndarray]:
    """Evidence and error of recorded fits by guide and width, and of infinite width: `(splits, 2)` each."""
    fits, limits = defaultdict(lambda: defaultdict(list)), []
    for row in csv.DictReader((DATA / "yacht_width.csv").read_text().splitlines()):
        numbers = float(row["evidence"]), float(row["rmse"])
        if row["guide"] == "infinite width":
            limits.append(numbers)
        else:
            fits[row["guide"]][int(row["units"])].append(numbers)
    by_width = {guide: {n: np.array(of) for n, of in sorted(widths.items())} for guide, widths in fits.items()}
    return by_width, np.array(limits)


def draw(fits: dict[tuple[str, int], Fit], output: Path) -> None:
    curves, limit = recorded()
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
    for k, of_fit in enumerate((lambda fit: fit.evidence, lambda fit: fit.rmse)):
        axis = axes[k]
        for guide, colour in COLOURS.items():
            for width, values in curves[guide].items():
                axis.plot([width] * len(values), values[:, k], ".", color=colour, alpha=0.5, ms=4)
            means = [values[:, k].mean() for values in curves[guide].values()]
            axis.plot(list(curves[guide]), means, "o-", color=colour, ms=4, label=f"{guide}, recorded")
        axis.axhline(limit[:, k].mean(), ls="--", color="grey", label="infinite width, exact, recorded")
        for (name, width), fit in fits.items():
            colour = COLOURS["symmetrized conditional" if name == OURS else "mean field"]
            label = f"this run, {'symmetrized conditional' if name == OURS else 'mean field'}"
            first = width == min(n for _, n in fits)
            axis.plot(
                width, of_fit(fit), "*", color=colour, ms=13, mec="black", mew=0.8, label=label if first else None
            )
        widths = sorted({n for curve in curves.values() for n in curve} | {n for _, n in fits})
        axis.set(xlabel="hidden units", xscale="log", xticks=widths, xticklabels=widths)
        axis.set_xticks([], minor=True)
    axes[0].set_title("Evidence of the data, lower bound (nats)", fontsize=11)
    axes[1].set_title("Error on held-out yachts (RMSE)", fontsize=11)
    axes[1].set_ylim(bottom=0)

    (_, (_, y_test), _), widest = yacht(), max(n for _, n in fits)
    low, middle, high = np.quantile(fits[OURS, widest].predicted, [0.05, 0.5, 0.95], axis=0)
    axes[2].plot([0, y_test.max()], [0, y_test.max()], color="grey", lw=0.8)
    axes[2].errorbar(
        y_test, middle, [middle - low, high - middle], fmt="o", color=COLOURS["symmetrized conditional"], ms=3
    )
    axes[2].set(xlabel="measured resistance", ylabel="predicted, 90 % intervals")
    axes[2].set_title(f"Held-out yachts, {widest} units, this run", fontsize=11)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(output, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description="A wide Bayesian network by two guides, on bundled data.")
    parser.add_argument("--output", type=Path, default=Path("quickstart.png"))
    output = parser.parse_args().output
    widths, steps = ([5, 10], 50) if SHORT else ([50, 200], 2000)

    # the slowest first; most of the time goes to compiling, on one core each
    jobs = [(name, width) for name in reversed(GUIDES) for width in reversed(widths)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(fit_network, *job, steps): job for job in jobs}
        for _ in tqdm(as_completed(futures), total=len(jobs), desc="fitting"):
            pass
    found = {job: future.result() for future, job in futures.items()}
    fits = {(name, width): found[name, width] for width in widths for name in GUIDES}

    print("\nA Bayesian network on yacht resistance: 277 rows to learn from, 31 held out\n")
    print(f"{'units':>5}  {'guide':52} {'evidence at least':>17} {'log-lik':>8} {'RMSE':>6}")
    for (name, width), fit in fits.items():
        bound = f"{fit.evidence:.1f} ± {fit.error:.1f}"
        print(f"{width:5}  {name:52} {bound:>17} {fit.test_log_likelihood:8.2f} {fit.rmse:6.2f}")
    line, rmse = recorded()[1][0]
    print(f"{'∞':>5}  {'the Gaussian process that it tends to (recorded)':52} {line:17.1f} {'':8} {rmse:6.2f}")
    draw(fits, output)
    print(f"\nFigure: {output}")


if __name__ == "__main__":
    main()
