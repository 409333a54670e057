"""What is claimed of evidences of mixtures, and what runs beside a known evidence say of it. Computes means only."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from tests.reproduction.verdicts import Claim, Verdict, clear_mean, clearly, of_signs, records_of, standard_error, yes

METODIEV = "Metodiev et al. (2025)"
# two standard errors hold the truth in this share of normal estimates
_COVERED = 0.954
_FEWEST = 10


def gaps(prefix: str, name: str) -> dict[str, np.ndarray]:
    """By setting: estimate less truth, and its error, ``(data set, 2)``."""
    return {
        key: np.array([(row[name]["value"] - row["truth"], row[name]["error"]) for row in record["rows"]])
        for key, record in records_of("thames", prefix).items()
    }


def summary(name: str, found: dict[str, np.ndarray]) -> str:
    """Bias in standard errors, root mean square and coverage, of all settings together."""
    every = np.concatenate(list(found.values()))
    bias = [gap[:, 0].mean() / standard_error(gap[:, 0]) for gap in found.values()]
    rms, covered = root_mean_square(every), (np.abs(every[:, 0]) <= 2.0 * every[:, 1]).mean()
    return (
        f"{name}: mean gap {every[:, 0].mean():+.4f}, at most {max(bias, key=abs):+.1f} of its standard errors in a "
        f"setting; root mean square {rms:.4f} nats; {100 * covered:.0f} % within two errors"
    )


def root_mean_square(gap: np.ndarray) -> float:
    return float(np.sqrt((gap[:, 0] ** 2).mean()))


def near_the_truth(prefix: str, name: str, shown: str) -> Verdict:
    """Whether an estimator is unbiased, and its error holds the truth as often as it says."""
    found = gaps(prefix, name)
    every = np.concatenate(list(found.values()))
    unbiased = not any(clear_mean(gap[:, 0]) for gap in found.values())
    covered = (np.abs(every[:, 0]) <= 2.0 * every[:, 1]).mean()
    covers = clearly(covered - _COVERED, math.sqrt(_COVERED * (1.0 - _COVERED) / len(every))) >= 0
    # few data sets show no bias whether there is one or not
    enough = min(map(len, found.values())) >= _FEWEST
    return Verdict(
        "yes" if unbiased and covers and enough else "in part" if unbiased or covers else "no",
        f"{len(every)} data sets in {len(found)} settings. {summary(shown, found)}",
    )


def nearer(prefix: str) -> Verdict:
    """Whether `log_evidence` is nearer the truth than THAMES, in the mean of each setting."""
    ours, theirs = gaps(prefix, "ours"), gaps(prefix, "thames")
    signs = [clear_mean(np.abs(theirs[key][:, 0]) - np.abs(ours[key][:, 0])) for key in ours]
    ratios = [root_mean_square(ours[key]) / root_mean_square(theirs[key]) for key in ours]
    return Verdict(
        of_signs(signs),
        f"root mean square gap of `log_evidence` over that of THAMES: {min(ratios):.2f} to {max(ratios):.2f}; clearly "
        f"nearer in {signs.count(1)} of {len(signs)} settings, clearly further in {signs.count(-1)}",
    )


def bounds_hold(prefix: str) -> Verdict:
    """Whether the bounds are on their sides of the truth, in the mean of each setting."""

    def of(rows: list[dict[str, Any]], side: str) -> np.ndarray:
        return np.array([row["ours"][side] - row["truth"] for row in rows])

    every = [record["rows"] for record in records_of("thames", prefix).values()]
    holds = all(clear_mean(of(rows, "lower")) <= 0 and clear_mean(of(rows, "upper")) >= 0 for rows in every)
    lower, upper = (np.concatenate([of(rows, side) for rows in every]) for side in ("lower", "upper"))
    return Verdict(yes(holds), f"lower {lower.mean():+.3f}, upper {upper.mean():+.3f} nats from the truth in the mean")


FEW = (
    "as in the authors' scripts: ten data, two components fitted to two and three, three to two, three distances; ten "
    "data sets each, which share random numbers; 4 chains of 2500 draws of NUTS"
)
FAR = (
    "five components in six dimensions (full covariances, 200 data, 139 parameters), three data sets; 4000 exact "
    "draws, their labels at random. The authors' 15 components were not run"
)

CLAIMS = tuple(
    claim
    for short, prefix, settings, tier in (("few", "few/", FEW, 2), ("far", "far/", FAR, 3))
    for claim in (
        Claim(
            f"M-{short}",
            f"{METODIEV}, abstract",
            tier,
            "THAMES for mixtures performs well where the evidence is known"
            + (", in several dimensions too" if short == "far" else ""),
            settings,
            partial(near_the_truth, prefix, "thames", "THAMES"),
        ),
        Claim(
            f"M-{short}-ours",
            f"{METODIEV}, not in the paper",
            tier,
            "`log_evidence` has no bias on the same draws, and its error covers the truth",
            "the same",
            partial(near_the_truth, prefix, "ours", "`log_evidence`"),
        ),
        Claim(
            f"M-{short}-bounds",
            f"{METODIEV}, not in the paper",
            tier,
            "Both of its bounds are on their sides",
            "the same",
            partial(bounds_hold, prefix),
        ),
        Claim(
            f"M-{short}-nearer",
            f"{METODIEV}, not in the paper",
            3,
            "It is nearer the truth than THAMES",
            "the same",
            partial(nearer, prefix),
        ),
    )
)
