"""Label switching in a mixture of 82 galaxies: from a raw trace to a table that can be printed.

python examples/label_switching.py [--components 3 4 5] [--output label_switching.png]

Samples the mixture with BlackJAX's NUTS, brings every draw to one set of labels, and prints what of R-hat and ESS was
labels, what is not, and what the relabelling itself made up. Compares two relabelling costs by Stephens' criterion. Set
NUMPYRO_SYMMETRY_SHORT=1 for a few draws only.
"""

import argparse
import itertools
import os
from importlib.resources import files
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

from numpyro_symmetry import GaussianCost, StephensCost, Symmetry, rebase, report, run_blackjax
from numpyro_symmetry.diagnostics import plot_null, plot_relabelling, plot_transpositions

SHORT = os.environ.get("NUMPYRO_SYMMETRY_SHORT") == "1"
SYMMETRY = Symmetry.mixture("weights", "loc", "scale")
DRAWS = 100 if SHORT else 1000


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


def probabilities(posterior, y) -> np.ndarray:
    """Of every galaxy belonging to every component, ``(chain, draw, galaxy, component)``."""
    weights, loc, scale = (posterior[site].values[..., None, :] for site in ("weights", "loc", "scale"))
    joint = np.log(weights) + np.asarray(dist.Normal(loc, scale).log_prob(y[:, None]))
    return np.exp(joint - np.logaddexp.reduce(joint, -1, keepdims=True))


def draw(raw, out, axes) -> None:
    """Draws under both labellings, one colour a slot; switches of chains, one colour a chain; slots beside the null."""
    plot_relabelling(raw, out, ("loc", "scale"), ax=axes[:2])
    for ax in axes[:2]:
        ax.set(xlim=(0, 40), ylim=(0, 6), xlabel="loc (1000 km/s)", ylabel="scale (1000 km/s)")
    axes[1].set_ylabel("")
    axes[1].legend(title="slot", markerscale=6, loc="upper left", fontsize=8, handletextpad=0.1, framealpha=0.9)
    for handle in axes[1].get_legend().legend_handles:
        handle.set_alpha(1.0)
    plot_transpositions(out, ax=axes[2])
    key = {"handles": axes[2].lines[-1:], "title": "a colour a chain\nthick: running mean", "title_fontsize": 8}
    axes[2].legend(**key, fontsize=8, loc="upper right", alignment="left", framealpha=0.9)
    axes[2].set(title="switches of labels", ylabel="transpositions between draws")
    plot_null(out, ax=axes[3])
    axes[3].set_title("slots beside the null")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--components", type=int, nargs="*", default=[3] if SHORT else [3, 4, 5])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("label_switching.png"))
    options = parser.parse_args()
    plt.style.use("petroff10")
    y = galaxies()
    figure = plt.figure(figsize=(12, 3.2 * len(options.components)), layout="constrained")
    rows = figure.subfigures(len(options.components), 1, squeeze=False)[:, 0]
    for row, components in zip(rows, options.components, strict=True):
        raw = run_blackjax(jax.random.key(options.seed), mixture, (y, components), num_warmup=DRAWS, num_samples=DRAWS)
        p = probabilities(raw["posterior"], y)
        out = rebase(raw, SYMMETRY, cost=GaussianCost(), order_by="loc")
        stephens = rebase(raw, SYMMETRY, cost=StephensCost(p), order_by="loc", null=False)
        print(f"\n{components} components\n\n{report(raw, out)}\n")
        ours, theirs = (np.asarray(one.elements["component"]) for one in (out, stephens))
        # up to the names of slots, which overlap and so may be ordered otherwise
        names = itertools.permutations(range(components))
        same = max((ours[..., list(order)] == theirs).all(-1).mean() for order in names)
        ratio = out.score(raw, StephensCost(p)) / stephens.objective.mean()
        print(f"Stephens' criterion is {ratio:.3f} of its least; {same:.1%} of draws have the same labels.")
        row.suptitle(f"{components} components", weight="bold")
        draw(raw, out, row.subplots(1, 4))
    figure.savefig(options.output, dpi=150)
    print(f"\nFigure: {options.output}")


if __name__ == "__main__":
    main()
