"""Print the tables of `cost.md`, or put them into the page: exponents with their errors, and what they say on paper.

python docs/make_cost.py [--write]
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import put_tables  # noqa: E402

from tests.benchmarks.cost_curves import fit, load  # noqa: E402

PAGE = ROOT / "docs" / "cost.md"
BEGIN, END = "<!-- cost tables: python -m tests.benchmarks.cost_curves -->\n", "<!-- end of the tables -->"
ON_PAPER = {"units": 1e4, "parameters": 1e9, "draws": 1e6, "chains": 1e4}
UNITS = (("s", 60.0), ("min", 60.0), ("h", 24.0), ("days", 365.0), ("years", float("inf")))


def measured(found: dict[str, list[dict[str, float]]]) -> list[str]:
    """One row for each curve."""
    lines = [
        "| what | against | from … to | CPU there | exponent | memory | exponent |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, rows in found.items():
        verb, axis = key.split("/")
        time, memory = fit(rows, "cpu"), fit(rows, "GB")
        cells = [verb, axis, f"{rows[0]['size']:,} … {rows[-1]['size']:,}", duration(rows[-1]["cpu"])]
        cells += [exponent(time), size(rows[-1]["GB"]) if rows[-1]["GB"] else "–", exponent(memory)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def on_paper(found: dict[str, list[dict[str, float]]]) -> list[str]:
    """What far larger sizes would take: time by the exponent and in proportion, memory by the larger of them."""
    lines = ["| what | at | CPU by the exponent | in proportion | memory |", "|---|---|---|---|---|"]
    for key, rows in found.items():
        verb, axis = key.split("/")
        time, memory = (fit(rows, what) for what in ("cpu", "GB"))
        cells = ["–", "–"] if time is None else [duration(x) for x in time.at(ON_PAPER[axis])]
        cells.append("–" if memory is None else size(max(memory.at(ON_PAPER[axis]))))
        lines.append(f"| {verb} | {power(ON_PAPER[axis])} {axis} | {' | '.join(cells)} |")
    return lines


def exponent(found) -> str:
    return "–" if found is None else f"{found.exponent:.2f} ± {found.error:.2f}"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    if seconds < 1.0:
        return f"{1e3 * seconds:.3g} ms"
    name, most = UNITS[0]
    for bigger in UNITS[1:]:
        if seconds >= most:
            seconds, (name, most) = seconds / most, bigger
    return f"{seconds:.2g} {name}" if seconds < 100 else f"{seconds:,.0f} {name}"


def size(gigabytes: float) -> str:
    if gigabytes < 1.0:
        return f"{1e3 * gigabytes:.0f} MB"
    return (
        f"{gigabytes:.2g} GB"
        if gigabytes < 100
        else f"{gigabytes:.0f} GB"
        if gigabytes < 1000
        else f"{gigabytes / 1000:.2g} TB"
    )


def power(number: float) -> str:
    """A power of ten."""
    return "10" + f"{number:.0e}".split("e+")[1].lstrip("0").translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def tables() -> str:
    """Both tables under their heads, as the page has them."""
    found = {"Measured": measured(load()), "On paper": on_paper(load())}
    return put_tables.with_minus("\n\n".join("\n".join([f"**{head}**", "", *rows]) for head, rows in found.items()))


if __name__ == "__main__":
    put_tables.main(__doc__.splitlines()[0], put_tables.Place(tables(), PAGE, BEGIN, END))
