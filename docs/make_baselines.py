"""Print the table of other approximations that `benchmarks.md` holds, or put it into the page.

python docs/make_baselines.py [--write]
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import put_tables  # noqa: E402

from tests.reproduction.verdicts import NoRecord, mean  # noqa: E402
from tests.reproduction.wide_claims import DATASETS, baseline, by_split, fits, line  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- baselines: python docs/make_baselines.py -->\n", "<!-- end of the baselines -->"
OURS = "symmetrized conditional, 2000 steps"
OTHERS = {
    "full": "Gaussian guide with a full covariance, symmetrized",
    "ensemble": "ensemble of ten maxima",
    "laplace": "Laplace's approximation, linearised",
    "last_layer": "the same, last layer alone",
    "nuts": "NUTS, two chains of 500, at the noise of the first row",
}


def ours(dataset: str) -> dict[int, dict]:
    """Means over starts, by split."""
    with suppress(NoRecord):
        found = fits("wide", dataset, "50", "exact+sym", 2000)
        scores = {of: by_split(found, of) for of in ("test_log_likelihood", "rmse", "evidence_lower")}
        return {split: {of: scores[of][split] for of in scores} for split in scores["rmse"]}
    return {}


def shown(values: Sequence[float], digits: int) -> str:
    """Mean and standard error, or one number."""
    return mean(values, digits) if len(values) > 1 else f"{values[0]:.{digits}f}"


def cell(rows: dict[int, dict]) -> str:
    """Test log-likelihood a row, root mean squared error, and of how many splits."""
    if not rows:
        return "not run"
    scores = (shown([row[of] for row in rows.values()], 2) for of in ("test_log_likelihood", "rmse"))
    return f"{' / '.join(scores)} ({len(rows)})"


def evidence(rows: dict[int, dict]) -> str:
    """The lower bound, nats."""
    return f"{shown([row['evidence_lower'] for row in rows.values()], 0)} ({len(rows)})" if rows else "not run"


def table() -> str:
    """One row for each approximation, one column for each data set of which any was run."""
    datasets = [name for name in DATASETS if baseline("ensemble", name)]
    lines = [["", *datasets], ["---"] * (1 + len(datasets))]
    lines.append([OURS, *(cell(ours(name)) for name in datasets)])
    lines += [[text, *(cell(baseline(short, name)) for name in datasets)] for short, text in OTHERS.items()]
    lines.append([f"evidence: {OURS}", *(evidence(ours(name)) for name in datasets)])
    lines.append(["evidence: full covariance", *(evidence(baseline("full", name)) for name in datasets)])
    # of the same splits: they differ by more than guides do
    limits = ([line("wide", name, split) for split in ours(name)] for name in datasets)
    lines.append(["evidence: infinite width", *(f"{shown(limit, 0)} ({len(limit)})" for limit in limits)])
    return put_tables.with_minus("\n".join(f"| {' | '.join(cells)} |" for cells in lines))


if __name__ == "__main__":
    put_tables.main(__doc__.splitlines()[0], put_tables.Place(table(), PAGE, BEGIN, END))
