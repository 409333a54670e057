"""How many numbers are worked on at a time. Knows nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax

# about this many are in memory at once
CHUNK = 4_000_000
# this many fit a cache
BLOCK = 2**17


def at_once(size: int, most: int | None = None) -> int:
    """How many items, each of so many numbers, hold at most ``CHUNK`` numbers, or ``most``; one at least."""
    return max(1, (most or CHUNK) // max(1, size))


def slices(count: int, size: int, most: int | None = None) -> Iterator[slice]:
    """Slices of so many items, as many together as `at_once` says."""
    step = at_once(size, most)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def batched(items: Iterable[Any], count: int) -> Iterator[list[Any]]:
    """The items in order, at most ``count`` at a time."""
    rest = iter(items)
    while batch := list(itertools.islice(rest, count)):
        yield batch


def mapped(function: Callable[[Any], Any], items: Any, step: int) -> Any:
    """A function of one item, mapped over many along the first axis, ``step`` at a time.

    Where there are more than that, reverse mode computes intermediate values again in place of keeping them.
    """
    if len(jax.tree.leaves(items)[0]) <= step:
        return jax.vmap(function)(items)
    return jax.lax.map(jax.checkpoint(function), items, batch_size=step)
