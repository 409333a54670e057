"""Fit a wide Bayesian network to yachts by stock SVI, with output weights that follow the hidden ones.

python examples/quickstart.py [--output quickstart.png]

Prints a lower bound of the evidence and the error on held-out yachts at 50 and 200 units, beside recorded fits by mean
field, and draws them on top of recorded curves over more widths and the line of the network of infinite width; beside
them what exchanging units does to a posterior, of the smallest network that has two of them. Data and records ship with
the package. Set NUMPYRO_SYMMETRY_SHORT=1 for a few steps only.
"""

import argparse
import csv
import math
import os
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, wait
from importlib.resources import files
from multiprocessing import Queue, get_context
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy.optimize import minimize
from tqdm import tqdm

from numpyro_symmetry import AutoConditional, AutoSymmetrized

SHORT = os.environ.get("NUMPYRO_SYMMETRY_SHORT") == "1"
DATA = files("numpyro_symmetry") / "data"
# what a fit says while it works
STAGES = 5
COLOURS = {
    "mean field": "#d55e00",
    "symmetrized mean field": "#e69f00",
    "conditional": "#56b4e9",
    "symmetrized conditional": "#0072b2",
}
# the first of the twenty standard splits of these data
HELD_OUT = [
    *[121, 115, 286, 216, 264, 209, 1, 22, 7, 141, 86, 241, 215, 68, 50, 156],
    *[252, 254, 276, 178, 281, 237, 71, 129, 144, 133, 203, 255, 72, 235, 37],
]


class Fit(NamedTuple):
    """What one fit is worth."""

    evidence: float
    error: float
    rmse: float


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


def fit_network(width: int, steps: int) -> Fit:
    """One fit; its process says what it is at."""
    train, (x_test, y_test), (centre, spread) = yacht()

    def model(x, y=None):
        network(x, y, width=width)

    guide = AutoSymmetrized(AutoConditional(AutoNormal(model)), progress_bar=False)
    svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(1e-2, steps)), Trace_ELBO(num_particles=2))
    say(width, "setting up the guide")
    state = svi.init(jax.random.key(0), *train)
    say(width, f"compiling, and {steps} steps")
    params = svi.run(jax.random.key(0), steps, *train, init_state=state, progress_bar=False).params

    say(width, "bounding the evidence")
    bounds = guide.elbo_bounds(jax.random.key(1), params, *train, num_particles=100, progress_bar=False)
    say(width, "predicting")
    predictive = Predictive(model, guide=guide.given(*train), params=params, num_samples=200, parallel=False)
    drawn = predictive(jax.random.key(2), x_test)
    rmse = np.sqrt(((centre + spread * drawn["mean"].mean(0) - y_test) ** 2).mean())
    say(width, "done")
    return Fit(bounds.lower, bounds.lower_error, float(rmse))


def say(width: int, stage: str) -> None:
    told_to.put((width, stage))


def tell(queue: Queue) -> None:
    global told_to
    told_to = queue


def fit_all(widths: list[int], steps: int) -> dict[int, Fit]:
    """All fits at a time, most of which goes to compiling, on one core each; a bar tells what each of them is at."""
    context = get_context("spawn")
    told, at = context.Queue(), dict.fromkeys(widths, "starting")
    pool = ProcessPoolExecutor(len(widths), context, initializer=tell, initargs=(told,))
    with pool, tqdm(total=STAGES * len(widths), bar_format="{bar:20} [{elapsed}] {desc}") as bar:
        fits = {width: pool.submit(fit_network, width, steps) for width in widths}
        running = set(fits.values())
        while running:
            running = wait(running, timeout=0.5).not_done
            while not told.empty():
                at.update([told.get()])
                bar.update()
            bar.set_description_str("; ".join(f"{width} units: {stage}" for width, stage in at.items()))
    return {width: fit.result() for width, fit in fits.items()}


def recorded() -> dict[str, dict[float, np.ndarray]]:
    """Evidence and error of recorded fits by guide and width, infinite width among them: `(splits, 2)`."""
    fits = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader((DATA / "yacht_width.csv").read_text().splitlines()):
        fits[row["guide"]][float(row["units"])].append((float(row["evidence"]), float(row["rmse"])))
    return {guide: {n: np.array(of) for n, of in sorted(widths.items())} for guide, widths in fits.items()}


def draw_copies(axis: plt.Axes) -> None:
    """Posterior of two exchangeable units, one weight each, and the nearest Gaussian: by itself, and with its copy."""
    side, x = np.linspace(0.0, 4.5, 150), np.linspace(-2.0, 2.0, 9)
    a, b = np.meshgrid(side, side)
    residual = np.tanh(0.8 * x) + np.tanh(1.8 * x) - np.tanh(a[..., None] * x) - np.tanh(b[..., None] * x)
    log_p = -(a**2 + b**2) / 8.0 - (residual**2).sum(-1) / (2 * 0.3**2)
    log_p -= np.log(np.exp(log_p).sum())
    axis.contourf(side, side, np.exp(log_p), np.exp(log_p.max()) * np.linspace(0.06, 1.0, 11), cmap="Greys")
    axis.plot([], [], "s", ms=9, color="0.6", label="posterior")

    def gaussian(at, copied):
        q = np.exp(-(((a - at[0]) / at[2]) ** 2 + ((b - at[1]) / at[3]) ** 2) / 2) + 1e-99
        q = q + q.T if copied else q
        return q / q.sum()

    def divergence(at, copied):
        q = gaussian(at, copied)
        return (q * (np.log(q) - log_p)).sum()

    for guide, copied in {"mean field": False, "symmetrized mean field": True}.items():
        found = minimize(divergence, [0.7, 1.8, 0.3, 0.5], copied)
        q = gaussian(found.x, copied)
        axis.contour(side, side, q, [q.max() * math.exp(-2.0)], colors=COLOURS[guide], linewidths=2.5)
        axis.plot([], [], color=COLOURS[guide], lw=2.5, label=f"{guide},\nKL {found.fun:.1f} nats")
    axis.plot([0.0, 2.5], [0.0, 2.5], ":", color="grey", label="mirror: units are alike", zorder=0)
    axis.set(xlabel="weight of unit 1", ylabel="weight of unit 2", xticks=range(5), yticks=range(5))
    axis.legend(frameon=False, fontsize=9, loc="upper right")


def draw(fits: dict[int, Fit], output: Path) -> None:
    curves = recorded()
    (limit,) = curves["infinite width"].values()
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.4), layout="constrained", width_ratios=[1, 1.15, 1.15])
    draw_copies(axes[0])
    ours = [[fit.evidence for fit in fits.values()], [fit.rmse for fit in fits.values()]]
    for k, axis in enumerate(axes[1:]):
        for guide, colour in COLOURS.items():
            widths, values = curves[guide].keys(), [of[:, k] for of in curves[guide].values()]
            for width, of_split in zip(widths, values, strict=True):
                axis.plot([width] * len(of_split), of_split, ".", color=colour, alpha=0.5, ms=4)
            means = [of_split.mean() for of_split in values]
            axis.plot(list(widths), means, "o-", color=colour, ms=5, lw=2, label=guide)
        axis.axhline(limit[:, k].mean(), ls="--", color="grey", label="infinite width, exact")
        axis.plot([], [], ".", color="grey", ms=4, label="one split (line: mean, recorded)")
        colour = COLOURS["symmetrized conditional"]
        axis.plot(list(fits), ours[k], "*", color=colour, ms=16, mec="black", label="symmetrized conditional, this run")
        ticks = sorted({int(n) for guide in COLOURS for n in curves[guide]} | set(fits))
        axis.set(xlabel="hidden units", xscale="log", xticks=ticks, xticklabels=ticks)
        axis.set_xticks([], minor=True)
    axes[1].set(ylabel="evidence, lower bound (nats)")
    axes[2].set(ylabel="held-out RMSE (resistance per unit weight)", ylim=(0, None))
    titles = (
        "Swapping units mirrors the posterior",
        "Mean field collapses with width",
        "… and its predictions with it",
    )
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=12, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=10)
    figure.savefig(output, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description="A wide Bayesian network on bundled data, beside recorded fits.")
    parser.add_argument("--output", type=Path, default=Path("quickstart.png"))
    output = parser.parse_args().output
    widths, steps = ([5, 10], 50) if SHORT else ([50, 200], 2000)

    fits = fit_all(widths, steps)

    curves = recorded()
    print("\nA Bayesian network on yacht resistance: 277 rows to learn from, 31 held out\n")
    print(f"{'units':>5}  {'guide':45} {'evidence at least':>17} {'RMSE':>6}")
    for width, fit in fits.items():
        if width in curves["mean field"]:
            evidence, rmse = curves["mean field"][width][0]
            print(f"{width:5}  {'AutoNormal (recorded)':45} {evidence:17.1f} {rmse:6.2f}")
        bound = f"{fit.evidence:.1f} ± {fit.error:.1f}"
        print(f"{width:5}  {'AutoSymmetrized(AutoConditional(AutoNormal))':45} {bound:>17} {fit.rmse:6.2f}")
    ((evidence, rmse), *_) = curves["infinite width"][math.inf]
    print(f"{'∞':>5}  {'its Gaussian process, exact (recorded)':45} {evidence:17.1f} {rmse:6.2f}")
    draw(fits, output)
    print(f"\nFigure: {output}")


if __name__ == "__main__":
    main()
