"""One Gaussian for HMC draws, an ensemble and a guide, before and after rebasing; prints the table the figure shows.

python -m tests.reproduction.xiao_figure tests/reproduction/results/xiao.json docs/images/transpositions.png
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from tests.reproduction.records import units_identified

WIDTH = 16
COLOURS = {"q_d": "#b5651d", "q_r": "#1f5fa8"}
COLUMNS = {
    "agreement": "agreement",
    "total_variation": "total variation",
    "accuracy": "accuracy of samples",
    "accuracy_of_mean": "accuracy of the mean network",
}
ROWS = {
    "hmc_draws": "HMC, draws",
    "hmc_q_d": "HMC, $q_d$",
    "hmc_q_r": "HMC, $q_r$",
    "ensemble_draws": "ensemble, members",
    "ensemble_q_d": "ensemble, $q_d$",
    "ensemble_q_r": "ensemble, $q_r$",
    "vi": "guide",
}


def by_seed(rows: list[dict], name: str, quantity: str | int) -> np.ndarray:
    """A quantity of every seed's run; of a mean and its error, the mean."""
    found = [row[name][quantity] for row in rows]
    return np.array([x[0] if isinstance(x, list) else x for x in found])


def cell(values: np.ndarray, shared_error: float = 0.0) -> str:
    """Mean over seeds, and its error over seeds together with one that they share."""
    return f"{values.mean():.3f} ± {np.hypot(values.std(ddof=1) / len(values) ** 0.5, shared_error):.3f}"


def cell_of(rows: list[dict], name: str, quantity: str) -> str:
    """The same of a recorded quantity, whose Monte Carlo errors old records share between seeds."""
    errors = [x[1] if isinstance(x := row[name][quantity], list) else 0.0 for row in rows]
    return cell(by_seed(rows, name, quantity), float(np.mean(errors)))


def dots(axis, position: float, values: np.ndarray, colour: str, label: str | None = None) -> None:
    """Seeds as faint points, their mean as a strong one."""
    axis.plot([position] * len(values), values, ".", color=colour, alpha=0.4)
    axis.plot(position, values.mean(), "o", color=colour, label=label)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    rows = list(json.loads(options.results.read_text()).values())
    baseline = WIDTH - sum(1 / k for k in range(1, WIDTH + 1))

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for k, source in enumerate(("hmc", "ensemble")):
        labels = {"q_d": "one Gaussian, as sampled", "q_r": "one Gaussian, rebased"}
        before, after = (by_seed(rows, f"{source}_{q}", "agreement") for q in COLOURS)
        axes[0].plot([k - 0.1, k + 0.1], [before.mean(), after.mean()], color="grey", lw=1)
        for q, values, shift in (("q_d", before, -0.1), ("q_r", after, 0.1)):
            dots(axes[0], k + shift, values, COLOURS[q], labels[q] if k == 0 else None)
    dots(axes[0], 2, by_seed(rows, "vi", "agreement"), "black", "guide, one Gaussian by construction")
    axes[0].set(title="Agreement with the HMC predictive", ylim=(0, 1), xlim=(-0.5, 2.5))
    axes[0].set(ylabel="agreement (share of test images)")
    axes[0].set_xticks([0, 1, 2], ["HMC", "ensemble", "guide"])
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")

    dots(axes[1], 0, by_seed(rows, "hmc_transpositions", 0), COLOURS["q_r"])
    dots(axes[1], 1, by_seed(rows, "ensemble_transpositions", 0), COLOURS["q_r"])
    dots(axes[1], 2, np.array([row["hmc_transpositions_between_draws"] for row in rows]), COLOURS["q_r"])
    axes[1].plot([], [], ".", color=COLOURS["q_r"], alpha=0.4, label="one seed of three (large: mean), here and left")
    axes[1].axhline(baseline, ls="--", color="grey", label=f"random relabelling, {baseline:.1f}")
    axes[1].set(title=f"Transpositions, {WIDTH} units", ylabel="transpositions", ylim=(0, WIDTH - 1), xlim=(-0.5, 2.5))
    axes[1].set_xticks([0, 1, 2], ["HMC draws", "members", "HMC, draw\nto next draw"])
    axes[1].legend(frameon=False, fontsize=8, loc="lower left")

    for k, source in enumerate(("hmc", "ensemble")):
        pairs = (
            ("explained_null", -0.1, "grey", "draws without identity"),
            ("explained", 0.1, COLOURS["q_r"], "rebased"),
        )
        for quantity, shift, colour, label in pairs:
            dots(axes[2], k + shift, by_seed(rows, f"{source}_null", quantity), colour, label if k == 0 else None)
    axes[2].set(title="Variance explained by slots", ylabel="share of variance", ylim=(0, 1), xlim=(-0.5, 1.5))
    axes[2].set_xticks([0, 1], ["HMC", "ensemble"])
    axes[2].legend(frameon=False, fontsize=8, loc="upper left")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(options.output, dpi=150)

    print(f"| | {' | '.join(COLUMNS.values())} |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for name, label in ROWS.items():
        cells = [cell_of(rows, name, q) if q in rows[0][name] else "" for q in COLUMNS]
        print(f"| {label} | {' | '.join(cells)} |")
    for source in ("hmc", "ensemble"):
        moved, (real, null) = (
            by_seed(rows, f"{source}_transpositions", 0),
            (by_seed(rows, f"{source}_null", q) for q in ("explained", "explained_null")),
        )
        told = [number for row in rows if (number := units_identified(row, source)) is not None]
        print(f"{source}: transpositions {cell(moved)}, baseline {baseline:.2f}")
        print(f"{source}: explained {cell(real)}, null {cell(null)}")
        unknown = len(rows) - len(told)
        print(f"{source}: at most {max(told, default='?')} of {WIDTH} units identified; {unknown} runs cannot tell")
    print("draw to draw:", cell(np.array([row["hmc_transpositions_between_draws"] for row in rows])))


if __name__ == "__main__":
    main()
