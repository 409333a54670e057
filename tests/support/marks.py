"""Parameters of tests of which some are slow: the same case again, by another seed, on other data, in another type."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(fast: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """All of the values, those slow that are not among the fast."""
    fast = list(fast)
    return [pytest.param(value, marks=() if value in fast else pytest.mark.slow) for value in values]
