"""What becomes of networks brought together: tables and verdicts from recorded runs. Trains nothing, knows no network.

One rule: ours is better or worse than git re-basin where the mean of paired differences is more than two of its
standard errors from zero, and one run cannot tell.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reproduction import records
from tests.reproduction.verdicts import standard_error

# by key: what is shown, and how many pairs and triples were planned
TITLES = {"mlp": "MLP", "gru": "GRU", "transformer": "transformer", "vgg": "VGG", "resnet": "ResNet20"}
PAIRS, TRIPLES = ((0, 1), (2, 3), (4, 5)), ((0, 1, 2), (3, 4, 5))
WAYS = {
    "naive": "as they are",
    "git re-basin": "git re-basin",
    "ours": "ours",
    "descent": "descent",
    "Frank-Wolfe": "Frank–Wolfe",
    "activations": "activations",
    "refined": "refined",
}
_NOT_RUN = "not run"


def rows_of(name: str, count: int) -> dict[str, dict[str, Any]]:
    """Records of so many networks of one architecture, by their seeds."""
    found = {key.removeprefix(f"{name}/"): row for key, row in records.load("networks").items()}
    return {key: row for key, row in found.items() if "/" not in key and len(row["single"]) == count}


def table(count: int) -> list[str]:
    """One row for each set of so many networks: how good each is, and what each way makes of them."""
    planned, ways = (PAIRS, list(WAYS)) if count == 2 else (TRIPLES, ["naive", "git re-basin", "ours"])
    lines = [
        f"| networks | accuracy of each | {' | '.join(WAYS[way] for way in ways)} |",
        "|---" * (2 + len(ways)) + "|",
    ]
    for name, title in TITLES.items():
        rows = rows_of(name, count)
        for seeds in planned:
            row = rows.get("-".join(map(str, seeds)))
            if row is None:
                cells = [_NOT_RUN] * (1 + len(ways))
            else:
                cells = [", ".join(f"{accuracy:.3f}" for _, accuracy in row["single"])]
                cells += [_made(row["methods"].get(way)) for way in ways]
            lines.append(f"| {title} {'–'.join(map(str, seeds))} | {' | '.join(cells)} |")
    return lines


def _made(found: dict[str, float] | None) -> str:
    """Accuracy of the mean of weights, and the barrier, or of more than two networks the loss."""
    if found is None:
        return _NOT_RUN
    return f"{found['merged_accuracy']:.3f} ({found.get('barrier', found['merged_loss']):.2f})"


def verdicts() -> list[str]:
    """One row for each architecture: ours against git re-basin, paired, and planted elements."""
    ways = ("git re-basin", "ours", "activations")
    shown = [f"{what}: {way}" for what in ("planted", "seconds") for way in ways]
    lines = [f"| | pairs | barrier lower by | accuracy higher by | {' | '.join(shown)} |", "|---" * 10 + "|"]
    for name, title in TITLES.items():
        rows = [row["methods"] for row in rows_of(name, 2).values()]
        if not rows:
            lines.append(f"| {title} | 0 |" + f" {_NOT_RUN} |" * 8)
            continue
        gains = [gain(rows, ("ours", "git re-basin"), *of) for of in (("barrier", -1), ("merged_accuracy", 1))]
        least = [_least(rows, way, of) for of in ("planted_recovered", "seconds") for way in ways]
        lines.append(f"| {title} | {len(rows)} | {' | '.join([*gains, *least])} |")
    return lines


def of_refined() -> list[str]:
    """One row for each architecture: labels refined by the loss against others, paired, where they were run."""
    pairs = {
        "git re-basin": "barrier lower than git re-basin's by",
        "ours": "than ours by",
        "activations": "than activations' by",
    }
    lines = [f"| refined | pairs | {' | '.join(pairs.values())} | seconds |", "|---" * 6 + "|"]
    for name, title in TITLES.items():
        rows = [row["methods"] for row in rows_of(name, 2).values() if "refined" in row["methods"]]
        cells = [_NOT_RUN] * 4
        if rows:
            both = {way: [row for row in rows if way in row] for way in pairs}
            cells = [gain(some, ("refined", way), "barrier", -1) if some else _NOT_RUN for way, some in both.items()]
            cells.append(_least(rows, "refined", "seconds"))
        lines.append(f"| {title} | {len(rows)} | {' | '.join(cells)} |")
    return lines


def gain(rows: list[dict[str, Any]], ways: tuple[str, str], of: str, sign: int) -> str:
    """By how much one way is better than another, and whether that can be told from luck."""
    one, other = ways
    gains = sign * np.array([row[one][of] - row[other][of] for row in rows])
    if len(gains) < 2:
        return f"{gains.mean():.3f}, **cannot tell**"
    error = standard_error(gains)
    holds = "better" if gains.mean() > 2 * error else "worse" if gains.mean() < -2 * error else "no different"
    return f"{gains.mean():.3f} ± {error:.3f}, **{holds}**"


def _least(rows: list[dict[str, Any]], way: str, of: str) -> str:
    """The least share of a planted element that came back; the mean of seconds."""
    values = [row[way][of] for row in rows if way in row]
    if not values:
        return _NOT_RUN
    if of == "seconds":
        return f"{np.mean(values):.2g}"
    return "all" if min(values) == 1.0 else f"{min(values):.0%}"


def tables() -> str:
    """All of them, as the page has them."""
    return "\n\n".join("\n".join(lines) for lines in (table(2), verdicts(), of_refined(), table(3)))
