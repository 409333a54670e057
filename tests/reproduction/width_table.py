"""Reduce recorded fits of yacht to the small table that ships with the package: evidence and error against width.

python -m tests.reproduction.width_table tests/reproduction/results/{uci_width,wide}.json
    --output numpyro_symmetry/data/yacht_width.csv

One row for each guide, width and split; of fits with more or fewer steps the longest, the mean over its starts.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

# as the records call a way to train -> as the figure does
GUIDES = {
    "bare": "mean field",
    "sequential": "symmetrized mean field",
    "exact": "conditional",
    "exact+sym": "symmetrized conditional",
}
LIMITS = ("nngp", "line")
COLUMNS = ("guide", "units", "split", "steps", "evidence", "rmse")


def rows(records: dict[str, dict[str, Any]], dataset: str) -> list[tuple[Any, ...]]:
    """Rows of the table, from records by key; those of networks with several layers are left out."""
    limits, fits = {}, defaultdict(list)
    for key, record in records.items():
        name, width, split, *rest = key.split("/")
        if name != dataset:
            continue
        if width in LIMITS:
            limits[int(split)] = ("infinite width", "inf", int(split), "", record["log_evidence"], record["rmse"])
        elif rest[0] in GUIDES and width.isdecimal():
            fits[GUIDES[rest[0]], int(width), int(split)].append((int(rest[1]), record))
    table = []
    for (guide, width, split), found in sorted(fits.items()):
        steps = max(steps for steps, _ in found)
        longest = [record for number, record in found if number == steps]
        means = (np.mean([record[of] for record in longest]) for of in ("evidence_lower", "rmse"))
        table.append((guide, width, split, steps, *means))
    return table + [limits[split] for split in sorted(limits)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--dataset", default="yacht")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    records = {key: record for path in options.records for key, record in json.loads(path.read_text()).items()}
    with options.output.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for *names, evidence, rmse in rows(records, options.dataset):
            writer.writerow([*names, f"{evidence:.1f}", f"{rmse:.3f}"])


if __name__ == "__main__":
    main()
