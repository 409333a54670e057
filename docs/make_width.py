"""Print the table of `wide-networks.md` from the recorded fits that ship with the package, or put it into the page.

python docs/make_width.py [--write]
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

PAGE = Path(__file__).parent / "wide-networks.md"
DATA = Path(__file__).parents[1] / "numpyro_symmetry" / "data" / "yacht_width.csv"
BEGIN, END = "<!-- results table: python docs/make_width.py -->\n", "<!-- end of the table -->"


def table() -> str:
    """One row for each guide and width, means over splits."""
    found = defaultdict(list)
    for row in csv.DictReader(DATA.read_text().splitlines()):
        found[row["guide"], float(row["units"])].append((float(row["evidence"]), float(row["rmse"])))
    lines = ["| guide | units | evidence | RMSE | splits |", "|---|---|---|---|---|"]
    for (guide, units), numbers in found.items():
        evidence, rmse = (sum(column) / len(numbers) for column in zip(*numbers, strict=True))
        lines.append(f"| {guide} | {f'{units:.0f}'.replace('inf', '∞')} | {evidence:.0f} | {rmse:.2f} | {len(numbers)} |")
    return "\n".join(lines).replace("| -", "| −") + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}")
    else:
        sys.stdout.write(table())
