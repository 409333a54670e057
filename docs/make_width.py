"""Print the tables of `wide-networks.md`, or put them into the page: yacht by width, other data sets, claims with verdicts.

python docs/make_width.py [--write]

The first is what the figure draws, the small table that ships with the package; the others are read from the records.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import put_tables  # noqa: E402

from tests.reproduction.records import load  # noqa: E402
from tests.reproduction.verdicts import judge  # noqa: E402
from tests.reproduction.wide_claims import CLAIMS  # noqa: E402

PAGE = ROOT / "docs" / "wide-networks.md"
TABLE = ROOT / "numpyro_symmetry" / "data" / "yacht_width.csv"
BEGIN, END = "<!-- results tables: python docs/make_width.py -->\n", "<!-- end of the tables -->"
GUIDES = ["mean field", "symmetrized mean field", "conditional", "symmetrized conditional", "infinite width"]


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def by_width() -> list[str]:
    """One row for each guide and width, means over splits."""
    found = defaultdict(list)
    for row in csv.DictReader(TABLE.read_text().splitlines()):
        found[row["guide"], float(row["units"])].append((float(row["evidence"]), float(row["rmse"])))
    lines = ["| yacht, guide | units | evidence | RMSE | splits |", "|---|---|---|---|---|"]
    for guide, units in sorted(found, key=lambda key: (GUIDES.index(key[0]), key[1])):
        evidence, rmse = map(mean, zip(*found[guide, units], strict=True))
        width = f"{units:.0f}".replace("inf", "∞")
        lines.append(f"| {guide} | {width} | {evidence:.0f} | {rmse:.2f} | {len(found[guide, units])} |")
    return lines


def against_the_line(records: dict[str, dict]) -> list[str]:
    """Evidence of the symmetrized conditional guide beside infinite width, paired by split."""
    lines = [
        "| data | units | evidence | infinite width | above it by | RMSE | splits |",
        "|---|---|---|---|---|---|---|",
    ]
    found = defaultdict(list)
    for key, record in records.items():
        data, units, split, *rest = key.split("/")
        if rest[:1] == ["exact+sym"] and units.isdecimal() and f"{data}/line/{split}" in records:
            line = records[f"{data}/line/{split}"]["log_evidence"]
            found[data, int(units)].append((split, record["evidence_lower"], line, record["rmse"]))
    for (data, units), fits in sorted(found.items()):
        splits, *columns = zip(*fits, strict=True)
        evidence, line, rmse = map(mean, columns)
        row = f"| {data} | {units} | {evidence:.0f} | {line:.0f} | {evidence - line:.0f} | {rmse:.2f} |"
        lines.append(f"{row} {len(set(splits))} |")
    return lines


def verdicts() -> list[str]:
    """One row for each claim."""
    lines = ["| code | claim | on record | holds | measured |", "|---|---|---|---|---|"]
    for claim in CLAIMS:
        holds, measured = judge(claim)
        lines.append(f"| {claim.name} | {claim.statement} | {claim.settings} | **{holds}** | {measured} |")
    return lines


def tables() -> str:
    """All tables under their heads, as the page has them."""
    found = {
        "Yacht, four guides by width": by_width(),
        "The symmetrized conditional beside the line": against_the_line(load("wide")),
        "Claims made beforehand": verdicts(),
    }
    return put_tables.with_minus("\n\n".join("\n".join([f"**{head}**", "", *found[head]]) for head in found))


if __name__ == "__main__":
    put_tables.main(__doc__.splitlines()[0], tables(), PAGE, BEGIN, END)
