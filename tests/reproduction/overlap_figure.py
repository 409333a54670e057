"""Where symmetrizing helps, and by how much: gain in evidence against how far copies overlap in the bare fit.

python -m tests.reproduction.overlap_figure docs/images/overlap.png

Every point is a pair of recorded fits from one start, bare and symmetrized, scored alike.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from tests.reproduction.records import load

LOOKS = {
    "UCI, 25–100 units": ("o", "#0072b2"),
    "UCI, 200–400 units": ("s", "#0b3c5d"),
    "UCI, two layers of 50": ("^", "#56b4e9"),
    "MNIST, 5–30 units": ("o", "#d55e00"),
    "MNIST, 128–512 units": ("s", "#6e3b0d"),
    "MNIST, σ starts at 0.5": ("^", "#e69f00"),
    "two weights": ("D", "#009e73"),
}


def uci() -> dict[str, list[tuple[float, float]]]:
    """Overlap and gain of every recorded pair of UCI fits."""
    found: dict[str, list[tuple[float, float]]] = {}
    for file in ("uci_50", "uci_200", "uci_deep", "uci_width"):
        fits = load(file)
        for key, row in fits.items():
            data, width, *rest = key.split("/")
            if width == "nngp" or rest[1] != "sequential":
                continue
            bare = fits["/".join((data, width, rest[0], "bare", rest[2]))]
            label = (
                "UCI, two layers of 50"
                if "-" in width
                else f"UCI, {'25–100' if int(width) <= 100 else '200–400'} units"
            )
            overlap = 1 - bare["information_lower"] / bare["log_order"]
            found.setdefault(label, []).append((overlap, row["evidence_lower"] - bare["evidence_lower"]))
    return found


def recorded() -> dict[str, list[tuple[float, float]]]:
    """The same of MNIST and of the network of two weights."""
    found: dict[str, list[tuple[float, float]]] = {}
    fits = load("gelberg")
    for key, row in fits.items():
        name, *rest = key.split("/")
        if name == "mnist" and rest[-1] == "sequential":
            bare = fits["/".join((name, *rest[:-1], "bare"))]
            for a, b in zip(bare["fits"], row["fits"], strict=True):
                gain = sum(b[q] - a[q] for q in ("base_elbo", "information"))
                label = (
                    f"{'5–30' if int(rest[0]) <= 30 else '128–512'} units" if rest[1] == "0.05" else "σ starts at 0.5"
                )
                overlap = 1 - a["information"] / row["log_order"]
                found.setdefault(f"MNIST, {label}", []).append((overlap, gain))
        if name == "two_weights" and rest[-1] == "exact":
            bare = fits["/".join((name, *rest[:-1], "bare"))]
            for a, b in zip(bare["fits"], row["fits"], strict=True):
                overlap = 1 - a["information"] / np.log(2)
                found.setdefault("two weights", []).append((overlap, b["evidence"] - a["evidence"]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    pairs = uci() | recorded()
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for label, (marker, colour) in LOOKS.items():
        if label in pairs:
            overlap, gain = np.array(pairs[label]).T
            axis.plot(
                overlap, gain, marker, color=colour, alpha=0.8, ms=6, mfc="none", label=f"{label} ({len(gain)} pairs)"
            )
    axis.axhline(0, color="grey", linewidth=0.8)
    axis.set_yscale("symlog", linthresh=1)
    axis.axhspan(-1, 1, color="0.93", zorder=0)
    ticks = (-100, -10, -1, 0, 1, 10, 100)
    axis.set_yticks(ticks, [f"{tick}".replace("-", "−") for tick in ticks])
    axis.set_yticks([], minor=True)
    axis.set(
        xlabel="overlap of copies in the bare fit, 1 − I / log |G|",
        ylabel="gain of symmetric training (nats)\nlinear where shaded, logarithmic beyond",
        xlim=(-0.03, 1.03),
        ylim=(-400, 400),
    )
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(options.output, dpi=150)
    for label, values in pairs.items():
        overlap, gain = np.array(values).T
        reach = f"{overlap.min():.2f}–{overlap.max():.2f}"
        print(f"{label}: overlap {reach}, gain {gain.mean():.1f}, {gain.min():.1f} to {gain.max():.1f}")


if __name__ == "__main__":
    main()
