"""What hangs together: things that share a group, directly or through others. Knows nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def connected(things: Iterable[tuple[T, set[str]]]) -> list[tuple[set[str], list[T]]]:
    """Things with the groups of each, as parts that share none: the groups of each part, and what it consists of."""
    parts: list[tuple[set[str], list[T]]] = []
    for thing, groups in things:
        joined = [part for part in parts if part[0] & groups]
        parts = [part for part in parts if not part[0] & groups]
        if groups:
            parts.append((groups.union(*(g for g, _ in joined)), [x for _, some in joined for x in some] + [thing]))
    return parts
