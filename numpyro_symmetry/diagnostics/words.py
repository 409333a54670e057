"""Names and counts in words. Knows rows of reports by their names alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

_MAX_NAMES = 3


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def names(rows: Sequence[_Named]) -> str:
    """The first few, and how many more."""
    some = [row.name for row in rows[:_MAX_NAMES]]
    return ", ".join(some) + (f" and {len(rows) - _MAX_NAMES} more" if len(rows) > _MAX_NAMES else "")


def entries(number: int) -> str:
    """How many, with their noun."""
    return "1 entry" if number == 1 else f"{number} entries"


def listed(words: Sequence[str]) -> str:
    """All of some words."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def some_of(words: Sequence[str]) -> str:
    """The first few of some words, and how many more."""
    few = len(words) <= _MAX_NAMES + 1
    return listed(words) if few else f"{', '.join(words[:_MAX_NAMES])} and {len(words) - _MAX_NAMES} more"


def which_chains(which: np.ndarray) -> str:
    """Chains by number."""
    return f"chain{'s' if len(which) > 1 else ''} {listed([str(k) for k in which])}"


def by_chain(counts: Sequence[int]) -> str:
    """Counts above zero, by chain."""
    return ", ".join(f"chain {k}: {count}" for k, count in enumerate(counts) if count)
