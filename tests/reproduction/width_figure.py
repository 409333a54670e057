"""Evidence, error and units in use against width on yacht, from recorded fits; prints the table the figure shows.

python -m tests.reproduction.width_figure tests/reproduction/results/uci_width.json docs/images/width.png
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

COLOURS = {"bare": "#b5651d", "sequential": "#1f5fa8"}
NAMES = {"bare": "bare", "sequential": "symmetrized"}


def read(path: Path) -> tuple[dict[tuple[int, str, int], dict], dict[int, dict]]:
    """Fits by width, method and split; the infinite-width limit by split."""
    fits, limits = {}, {}
    for name, record in json.loads(path.read_text()).items():
        _, kind, split, *rest = name.split("/")
        if kind == "nngp":
            limits[int(split)] = record
        else:
            fits[int(kind), rest[0], int(split)] = record
    return fits, limits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    fits, limits = read(options.results)
    widths, splits = (sorted({key[i] for key in fits}) for i in (0, 2))

    def table(method, quantity):
        return np.array([[fits[width, method, split][quantity] for split in splits] for width in widths])

    limit = np.array([limits[split]["log_evidence"] for split in splits])
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    quantities = {
        "evidence_lower": "ELBO (nats)",
        "rmse": "Held-out RMSE (resistance per unit weight)",
        "units_in_use": "Units in use",
    }
    for axis, (quantity, title) in zip(axes, quantities.items(), strict=True):
        for method, colour in COLOURS.items():
            values = table(method, quantity)
            axis.plot(widths, values, ".", color=colour, alpha=0.4)
            axis.plot(widths, values.mean(1), "o-", color=colour, label=NAMES[method])
        axis.set(title=title, xlabel="hidden units", xscale="log", xticks=widths, xticklabels=widths)
        axis.set_xticks([], minor=True)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].plot([], [], ".", color="grey", alpha=0.6, label="one split (line: mean)")
    axes[0].axhline(limit.mean(), ls="--", color="grey", label="infinite width, exact")
    axes[0].legend(frameon=False)
    axes[1].axhline(np.mean([limits[split]["rmse"] for split in splits]), ls="--", color="grey")
    for axis in axes[1:]:
        axis.set_ylim(bottom=0)
    figure.savefig(options.output, dpi=150)

    bare, symmetrized = (table(method, "evidence_lower") for method in COLOURS)
    closed = (symmetrized - bare) / (limit - bare)
    print("| units | bare | symmetrized | infinite width | share closed | RMSE | units in use |")
    print("|---|---|---|---|---|---|---|")
    for row, width in enumerate(widths):
        rmse, in_use = ([table(m, q)[row].mean() for m in COLOURS] for q in ("rmse", "units_in_use"))
        share = f"{100 * closed[row].mean():.0f} %" if bare[row].mean() < limit.mean() else "already above"
        print(
            f"| {width} | {bare[row].mean():.0f} | {symmetrized[row].mean():.0f} | {limit.mean():.0f} | {share} | "
            f"{rmse[0]:.2f} → {rmse[1]:.2f} | {in_use[0]:.1f} → {in_use[1]:.1f} |"
        )


if __name__ == "__main__":
    main()
