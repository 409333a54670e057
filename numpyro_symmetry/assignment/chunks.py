"""How many numbers are worked on at a time. Knows nothing else."""

from __future__ import annotations

from collections.abc import Iterator

# about this many are in memory at once
CHUNK = 4_000_000
# this many fit a cache
BLOCK = 2**17


def slices(count: int, size: int, most: int | None = None) -> Iterator[slice]:
    """Slices of so many items, each item of so many numbers, which hold at most ``CHUNK`` numbers, or ``most``."""
    step = max(1, (most or CHUNK) // max(1, size))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
