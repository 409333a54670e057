"""Names and counts in words. Knows rows of reports by their names alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from numpyro_symmetry.symmetry.shown import FEW, first_of, listed


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def names(rows: Sequence[_Named]) -> str:
    """The names of the first few rows, and how many more rows there are."""
    return first_of([row.name for row in rows], FEW)


def which_chains(which: np.ndarray) -> str:
    """Chains by number."""
    return f"chain{'s' if len(which) > 1 else ''} {listed([str(k) for k in which])}"


def by_chain(counts: Sequence[int]) -> str:
    """Counts above zero, by chain."""
    return ", ".join(f"chain {k}: {count}" for k, count in enumerate(counts) if count)
