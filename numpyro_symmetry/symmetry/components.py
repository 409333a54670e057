"""Things put together: by a key, where they share groups, and indices that are alike. Knows nothing else."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def by_key(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Things, each given after its key, by key and in their order."""
    found: dict[K, list[T]] = {}
    for key, thing in pairs:
        found.setdefault(key, []).append(thing)
    return found


def connected(things: Iterable[tuple[T, set[str]]]) -> list[tuple[set[str], list[T]]]:
    """Things, each given with its groups, in parts that share no group: the groups, and the things, of each part."""
    parts: list[tuple[set[str], list[T]]] = []
    for thing, groups in things:
        joined = [part for part in parts if part[0] & groups]
        parts = [part for part in parts if not part[0] & groups]
        if groups:
            parts.append((groups.union(*(g for g, _ in joined)), [x for _, some in joined for x in some] + [thing]))
    return parts


def classes(count: int, belongs: Callable[[int, list[int]], bool]) -> tuple[int, ...]:
    """A class for each of ``count`` indices: the first whose members it ``belongs`` to, or else a new one."""
    found: list[list[int]] = []
    for index in range(count):
        if (home := next((members for members in found if belongs(index, members)), None)) is None:
            found.append(home := [])
        home.append(index)
    return tuple(next(k for k, members in enumerate(found) if index in members) for index in range(count))
