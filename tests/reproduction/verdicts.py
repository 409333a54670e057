"""What a claim is, and how recorded runs are weighed: one rule for all effects.

A difference counts if it is more than three of its standard errors from zero (`clearly`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.reproduction.records import load


class Verdict(NamedTuple):
    """Whether a claim holds (``"yes"``, ``"no"``, ``"in part"``, ``"cannot tell"``, ``"not run"``), and the numbers."""

    holds: str
    measured: str


class Claim(NamedTuple):
    """One statement of a paper that can be true or false."""

    name: str
    source: str
    tier: int
    statement: str
    settings: str
    judge: Callable[[], Verdict]


def judge(claim: Claim) -> Verdict:
    """The verdict on a claim; a claim whose runs are missing is not run."""
    try:
        return claim.judge()
    except NoRecord:
        return Verdict("not run", "no record")


class NoRecord(LookupError):
    """Nothing was recorded of what a claim needs."""


def records_of(name: str, prefix: str = "") -> dict[str, dict[str, Any]]:
    """Records of a file whose keys begin like that, by the rest of the key."""
    found = {key.removeprefix(prefix): row for key, row in load(name).items() if key.startswith(prefix)}
    if not found:
        raise NoRecord(f"{name}.json: {prefix}")
    return found


def record_of(name: str, key: str) -> dict[str, Any]:
    return records_of(name, key)[""]


def rows_of(name: str) -> list[dict[str, Any]]:
    return list(records_of(name).values())


def mean(values: Sequence[float], digits: int = 3) -> str:
    """Mean and standard error."""
    x = np.asarray(values, float)
    return f"{x.mean():.{digits}f} ± {standard_error(x):.{digits}f}"


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5)


def clearly(difference: float, error: float) -> int:
    """1 or -1 for a difference more than three standard errors from zero, else 0."""
    return int(np.sign(difference)) if abs(difference) > 3 * error else 0


def clear_mean(values: np.ndarray) -> int:
    """The same of a mean of paired differences; runs that are all alike have no difference."""
    return clearly(float(values.mean()), standard_error(values)) if values.any() else 0


def of_signs(signs: Sequence[int]) -> str:
    """Whether an effect is there: everywhere, somewhere and nowhere the other way, or neither."""
    if all(sign > 0 for sign in signs):
        return "yes"
    return "in part" if any(sign > 0 for sign in signs) and not any(sign < 0 for sign in signs) else "no"


def yes(condition: bool) -> str:
    return "yes" if condition else "no"
