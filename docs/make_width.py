"""Print what was recorded of wide networks, or put it into its pages: yacht by width, other data sets, claims with verdicts.

python docs/make_width.py [--write]

The first is what the figure draws, the small table that ships with the package; the others are read from the records.
"""

import csv
import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import put_tables  # noqa: E402

from tests.reproduction.verdicts import judge  # noqa: E402
from tests.reproduction.wide_claims import CLAIMS, DATASETS, WIDTHS, above_the_line, by_split, fits, line  # noqa: E402

TABLE = ROOT / "numpyro_symmetry" / "data" / "yacht_width.csv"
BEGIN, END = "<!-- results tables: python docs/make_width.py -->\n", "<!-- end of the tables -->"
NOTED = ("W-line", "W-unit", "W-weighted", "W-symmetrized", "W-deep")
GUIDES = ["mean field", "symmetrized mean field", "conditional", "symmetrized conditional", "infinite width"]


def mean(numbers: Collection[float]) -> float:
    return sum(numbers) / len(numbers)


def recorded() -> dict[tuple[str, float], list[tuple[float, float]]]:
    """Evidence and error of each split on yacht, by guide and width."""
    found = defaultdict(list)
    for row in csv.DictReader(TABLE.read_text().splitlines()):
        found[row["guide"], float(row["units"])].append((float(row["evidence"]), float(row["rmse"])))
    return found


def by_width() -> list[str]:
    """One row for each guide and width, means over splits."""
    found = recorded()
    lines = ["| yacht, guide | units | evidence | RMSE | splits |", "|---|---|---|---|---|"]
    for guide, units in sorted(found, key=lambda key: (GUIDES.index(key[0]), key[1])):
        evidence, rmse = map(mean, zip(*found[guide, units], strict=True))
        width = f"{units:.0f}".replace("inf", "∞")
        lines.append(f"| {guide} | {width} | {evidence:.0f} | {rmse:.2f} | {len(found[guide, units])} |")
    return lines


def side_by_side() -> list[str]:
    """One row for each width, one column for each guide: evidence and error."""
    found = recorded()

    def cell(guide: str, units: float) -> str:
        if (guide, units) not in found:
            return ""
        evidence, rmse = map(mean, zip(*found[guide, units], strict=True))
        return f"{evidence:.0f} / {rmse:.2f}"

    lines = [f"| units | {' | '.join(GUIDES)} |", "|---" * (1 + len(GUIDES)) + "|"]
    for units in sorted({units for _, units in found}):
        cells = [f"{units:.0f}".replace("inf", "∞"), *(cell(guide, units) for guide in GUIDES)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def against_the_line() -> list[str]:
    """Evidence of the symmetrized conditional guide beside infinite width; starts of one split count once."""
    lines = [
        "| data | units | evidence | infinite width | above it by | between starts | RMSE | splits | fits |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for data, units in sorted(itertools.product(DATASETS, WIDTHS)):
        found = fits("wide", data, str(units), "exact+sym", 2000)
        evidence, rmse = (by_split(found, of) for of in ("evidence_lower", "rmse"))
        above = mean(above_the_line("wide", data, units, "exact+sym"))
        limit = mean([line("wide", data, split) for split in evidence])
        row = f"| {data} | {units} | {limit + above:.0f} | {limit:.0f} | {above:.0f} | {between_starts(found)} |"
        lines.append(f"{row} {mean(rmse.values()):.2f} | {len(evidence)} | {len(found)} |")
    return lines


def between_starts(found: dict[tuple[int, int], dict]) -> str:
    """Standard deviation of the evidence over starts of one split, nats."""
    evidence = {key: row["evidence_lower"] for key, row in found.items()}
    both = [split for split, start in evidence if start == 1]
    variances = [(evidence[split, 0] - evidence[split, 1]) ** 2 / 2 for split in both]
    return f"{math.sqrt(mean(variances)):.0f} ({len(both)})" if both else "one start"


def verdicts() -> list[str]:
    """One row for each claim."""
    lines = ["| code | claim | on record | holds | measured |", "|---|---|---|---|---|"]
    for claim in CLAIMS:
        holds, measured = judge(claim)
        lines.append(f"| {claim.name} | {claim.statement} | {claim.settings} | **{holds}** | {measured} |")
    return lines


def in_short() -> list[str]:
    """The claims of which the note has the theory."""
    lines = ["| claim | recorded | holds |", "|---|---|---|"]
    for claim in CLAIMS:
        if claim.name.startswith(NOTED):
            holds, measured = judge(claim)
            lines.append(f"| {claim.name}. {claim.statement} | {measured} | **{holds}** |")
    return lines


def places() -> list[put_tables.Place]:
    """Every page that has some of it."""
    whole = {
        "Yacht, four guides by width": by_width(),
        "The symmetrized conditional beside the line": against_the_line(),
        "Claims made beforehand": verdicts(),
    }
    texts = {
        "wide-networks": "\n\n".join("\n".join([f"**{head}**", "", *lines]) for head, lines in whole.items()),
        "benchmarks": "\n".join(side_by_side()),
        "note": "\n".join(in_short()),
    }
    pages = {name: ROOT / "docs" / f"{name}.md" for name in texts}
    return [put_tables.Place(put_tables.with_minus(text), pages[name], BEGIN, END) for name, text in texts.items()]


if __name__ == "__main__":
    put_tables.main(__doc__.splitlines()[0], *places())
