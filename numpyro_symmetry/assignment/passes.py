"""Passes over draws: a function of one block of draws at a time, and sums over blocks in their order.

Blocks are the same for draws in memory and for draws that Dask reads, and so are windows of a fixed number of blocks.
Sums are over the blocks of a window, then over windows: they are the same number for number, however the draws are
stored and whichever process adds. Draws in memory are worked on window after window; of stored draws each window is a
task, run by whichever of Dask's schedulers the caller has chosen. Knows arrays and Dask; nothing of what is computed.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from numpyro_symmetry.chunks import CHUNK, at_once, batched, slices
from numpyro_symmetry.steps import track
from numpyro_symmetry.symmetry import PlainView, SymmetryError
from numpyro_symmetry.symmetry.errors import need

Arrays = dict[str, Any]
# blocks that are read together: few enough for memory, and enough not to read a chunk again for each of its blocks
_BLOCKS_IN_A_WINDOW = 8


def is_stored(array: Any) -> bool:
    """Whether an array is one of Dask's, which are read when they are computed."""
    return hasattr(array, "__dask_graph__")


# ---- draws that are not in memory --------------------------------------------------------------------------------


class Source(NamedTuple):
    """Where draws are read from.

    Attributes
    ----------
    arrays
        Site -> array ``(*leading, *event)`` of Dask, or of NumPy.
    leading
        ``(draw,)`` or ``(chain, draw)``.
    view
        What cuts draws into pieces once they are read; ``None`` to leave them by site.
    """

    arrays: Mapping[str, Any]
    leading: tuple[int, ...]
    view: PlainView | None = None

    def draws(self) -> Arrays:
        """Name of a site or piece -> array ``(draw, *event)``, of which only the draws that are indexed are read."""
        size = math.prod(self.leading)
        return {name: Stored(self, name, (size, *x.shape[1:]), x.dtype) for name, x in self.blank().items()}

    def only(self, names: Collection[str]) -> Source:
        """The source with no arrays but those that these sites or pieces are read from."""
        stacks = {} if self.view is None else self.view.stacks
        read = {site for name in names for site in (stacks[name].sites if name in stacks else (name,))}
        return self._replace(arrays={site: x for site, x in self.arrays.items() if site in read})

    def in_pieces(self, values: Arrays) -> Arrays:
        """Draws by site, cut into pieces."""
        return values if self.view is None else self.view.open(values)

    def blank(self) -> Arrays:
        """What one draw looks like, without reading any."""
        lead = len(self.leading)
        return self.in_pieces({site: np.ones((1, *x.shape[lead:]), x.dtype) for site, x in self.arrays.items()})

    def parts(self, items: slice) -> dict[str, list[Any]]:
        """Site -> draws ``items``, an array for each chain, not yet read."""
        return {site: [x[at] for at in self._along_chains(items)] for site, x in self.arrays.items()}

    def at(self, items: slice | np.ndarray) -> Arrays:
        """Draws ``items``, a slice or ascending indices: read, and cut into pieces."""
        if isinstance(items, slice):
            return self.in_pieces(joined(computed(self.parts(items), self)))
        from dask.delayed import delayed

        # draws that lie close together are read by one task, which keeps no others than those asked for
        span = at_once(sum(x[0].size for x in self.blank().values()), CHUNK * _BLOCKS_IN_A_WINDOW)
        cuts = np.flatnonzero(np.diff(items // span)) + 1
        runs = np.split(items, cuts)
        tasks = [delayed(_chosen)(self.parts(slice(run[0], run[-1] + 1)), run - run[0]) for run in runs]
        lead = len(self.leading)
        found = {site: np.empty((len(items), *x.shape[lead:]), x.dtype) for site, x in self.arrays.items()}
        for places, part in zip(np.split(np.arange(len(items)), cuts), _a_few_at_a_time(tasks, self), strict=True):
            for site, x in part.items():
                found[site][places] = x
        return self.in_pieces(found)

    def _along_chains(self, items: slice) -> Iterator[Any]:
        num_draws = self.leading[-1]
        for chain in range(items.start // num_draws, -(-items.stop // num_draws)):
            low, high = (min(max(k - chain * num_draws, 0), num_draws) for k in (items.start, items.stop))
            yield (*np.unravel_index(chain, self.leading[:-1]), slice(low, high))


def in_pieces(draws: Arrays, view: PlainView) -> Arrays:
    """Draws by site cut into pieces; stored draws are cut once they are read."""
    source = next((x.source for x in draws.values() if isinstance(x, Stored)), None)
    return view.open(draws) if source is None else source._replace(view=view).draws()


def joined(parts: Mapping[str, Sequence[np.ndarray]]) -> Arrays:
    """Draws of several chains as one array, in C order as draws in memory are."""
    return {s: np.ascontiguousarray(some[0] if len(some) == 1 else np.concatenate(some)) for s, some in parts.items()}


def _chosen(parts: Mapping[str, Sequence[np.ndarray]], items: np.ndarray) -> Arrays:
    return {site: x[items] for site, x in joined(parts).items()}


class _ByDraw:
    """An array ``(draw, *event)`` indexed by draw; each kind gets the draws of a slice, or of indices, by `_of`."""

    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, items: Any) -> np.ndarray:
        if isinstance(items, int | np.integer):
            return self._of(np.array([items]))[0]
        if not isinstance(items, slice):
            return self._of(np.asarray(items))
        start, stop, step = items.indices(len(self))
        return self._of(slice(start, max(start, stop)) if step == 1 else np.arange(start, stop, step))

    def _of(self, items: slice | np.ndarray) -> np.ndarray:
        raise NotImplementedError


@dataclass(frozen=True)
class Stored(_ByDraw):
    """Stored draws ``(draw, *event)`` of one site or piece, read when they are indexed."""

    source: Source
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    def _of(self, items: slice | np.ndarray) -> np.ndarray:
        return self.source.only([self.name]).at(items)[self.name]


@dataclass(frozen=True)
class Held(_ByDraw):
    """Draws ``(draw, *event)`` of which only ``items``, a slice or ascending indices, are in memory."""

    values: np.ndarray
    items: slice | np.ndarray
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """Type of the values."""
        return self.values.dtype

    def _of(self, items: slice | np.ndarray) -> np.ndarray:
        if isinstance(items, slice) and isinstance(self.items, slice):
            if self.items.start <= items.start and items.stop <= self.items.stop:
                return self.values[items.start - self.items.start : items.stop - self.items.start]
        else:
            wanted, here = (np.r_[some] if isinstance(some, slice) else some for some in (items, self.items))
            if np.isin(wanted, here).all():
                return self.values[np.searchsorted(here, wanted)]
        raise SymmetryError(
            "These draws are not in memory, and are read a few at a time: a cost may look at those alone that its "
            "statistics are asked for."
        )


def held(parts: Arrays, items: slice | np.ndarray, num_draws: int) -> Arrays:
    """Name -> draws ``items``, to be indexed as if all ``num_draws`` were in memory."""
    return {name: Held(x, items, (num_draws, *x.shape[1:])) for name, x in parts.items()}


def computed(lazy: Any, source: Source | None = None) -> Any:
    """A collection with its Dask arrays and tasks computed, and all else as it is.

    Raises
    ------
    SymmetryError
        If a chunk of the source's arrays cannot be read, naming it.
    """
    need("dask")
    from dask.base import compute

    try:
        return compute(lazy)[0]
    except SymmetryError:
        raise
    except Exception as error:
        if source is not None and (where := _unreadable(source)):
            raise SymmetryError(
                f"{where} cannot be read ({type(error).__name__}: {error}). Write it again, or leave those draws out: "
                "data.isel(draw=...)."
            ) from error
        raise


def _unreadable(source: Source) -> str:
    """The first chunk of a source's arrays that cannot be read, in words; empty if there is none."""
    names = ("chain", "draw") if len(source.leading) > 1 else ("draw",)
    for site, array in source.arrays.items():
        if not is_stored(array):
            continue
        for index in np.ndindex(*array.numblocks):
            try:
                array.blocks[index].compute()
            except Exception:
                starts = [sum(sizes[:k]) for sizes, k in zip(array.chunks, index, strict=True)]
                ends = [start + sizes[k] for start, sizes, k in zip(starts, array.chunks, index, strict=True)]
                draws = ", ".join(f"{n} {a} to {b - 1}" for n, a, b in zip(names, starts, ends, strict=False))
                return f"Chunk {index} of site {site!r} ({draws})"
    return ""


# ---- passes ------------------------------------------------------------------------------------------------------


class StoredSubject(NamedTuple):
    """The stored subject of a pass: where its draws are read from, and how the subject is made of draws once read."""

    source: Source
    make: Callable[[Arrays], Any]


def stored_subject(subject: Any) -> StoredSubject | None:
    """How to read the subject of a pass; ``None`` if it is in memory."""
    if isinstance(subject, Stored):
        name = subject.name
        return StoredSubject(subject.source.only([name]), lambda arrays: arrays[name])
    return getattr(subject, "stored", None)


# the subject of a pass and a block of its draws -> what is kept, and what is summed
Work = Callable[[Any, slice], tuple[Any, Any]]


def map_reduce(subject: Any, blocks: Sequence[slice], work: Work) -> tuple[list[Any], Any]:
    """Work on every block of draws, and sum over blocks.

    Parameters
    ----------
    subject
        Draws, or what is read off them: an array, a `Side`, a `Family`.
    blocks
        Which draws to work on at a time, in order.
    work
        The subject, of which only the block can be relied on to be in memory, and the block -> what is kept, and what
        is summed: arrays by name, an array or ``None``. It holds no draws itself, for Dask sends it to its workers.

    Returns
    -------
    kept, total
        What is kept of every block, in a list, and the sum over all blocks.
    """
    windows = list(batched(blocks, _BLOCKS_IN_A_WINDOW))
    return _together(track(_worked_on(subject, windows, work), len(windows)))


def _worked_on(subject: Any, windows: Sequence[Sequence[slice]], work: Work) -> Iterator[tuple[list[Any], Any]]:
    """What is kept and what is summed of every window."""
    if (stored := stored_subject(subject)) is None:
        yield from (_of_window(work, subject, window) for window in windows)
        return
    from dask.delayed import delayed

    # the same for every window, and so sent once
    shared = delayed(partial(_of_stored, work, stored.make, stored.source._replace(arrays={})))
    run = delayed(operator.call)
    tasks = [run(shared, stored.source.parts(_whole(window)), window) for window in windows]
    yield from _a_few_at_a_time(tasks, stored.source)


def in_turn(draws: Arrays, blocks: Sequence[slice]) -> Iterator[Arrays]:
    """Blocks of draws by name, in order, for work in this process; stored draws are read some windows ahead."""
    yield from track(_read_in_turn(draws, blocks), len(blocks))


def _read_in_turn(draws: Arrays, blocks: Sequence[slice]) -> Iterator[Arrays]:
    source = next((x.source for x in draws.values() if isinstance(x, Stored)), None)
    if source is None:
        yield from ({name: x[items] for name, x in draws.items()} for items in blocks)
        return
    from dask.delayed import delayed

    source = source.only(draws)
    windows = list(batched(blocks, _BLOCKS_IN_A_WINDOW))
    tasks = [delayed(joined)(source.parts(_whole(window))) for window in windows]
    for window, arrays in zip(windows, _a_few_at_a_time(tasks, source), strict=True):
        there = held(source.in_pieces(arrays), _whole(window), math.prod(source.leading))
        yield from ({name: there[name][items] for name in draws} for items in window)


def _whole(window: Sequence[slice]) -> slice:
    return slice(window[0].start, window[-1].stop)


def _a_few_at_a_time(tasks: Sequence[Any], source: Source) -> Iterator[Any]:
    """Results of tasks in order, no more at once than there are threads: given all, Dask would read far ahead."""
    for some in batched(tasks, _num_threads()):
        yield from computed(some, source)


def _num_threads() -> int:
    """How many threads Dask works on: those of a cluster's workers where there is one."""
    from dask import config
    from dask.system import CPU_COUNT

    threads: Any = {} if (client := cluster()) is None else client.nthreads()
    return sum(threads.values()) or config.get("num_workers", None) or CPU_COUNT


def cluster() -> Any:
    """The client of the cluster on which Dask works; ``None`` where Dask works in this process."""
    if "distributed" in sys.modules:
        from distributed import default_client

        with suppress(ValueError):
            return default_client()
    return None


def _of_stored(
    work: Work,
    make: Callable[[Arrays], Any],
    source: Source,
    parts: Mapping[str, Sequence[np.ndarray]],
    window: Sequence[slice],
) -> tuple[list[Any], Any]:
    """Work on the blocks of a window that was read."""
    there = held(source.in_pieces(joined(parts)), _whole(window), math.prod(source.leading))
    return _of_window(work, make(there), window)


def _of_window(work: Work, subject: Any, window: Sequence[slice]) -> tuple[list[Any], Any]:
    return _together(([kept], part) for kept, part in (work(subject, items) for items in window))


def _together(parts: Iterable[tuple[list[Any], Any]]) -> tuple[list[Any], Any]:
    """All that is kept of several parts, in a list, and their sum, part by part."""
    every, total = list[Any](), None
    for kept, part in parts:
        every += kept
        total = _added(total, part)
    return every, total


def _added(total: Any, part: Any) -> Any:
    if total is None or part is None:
        return part if total is None else total
    return {name: total[name] + x for name, x in part.items()} if isinstance(part, dict) else total + part


def each(values: Any, of: Callable[[np.ndarray], Any]) -> list[Any]:
    """``of(block)`` for every block of an array ``(draw, *event)``."""
    return map_reduce(values, chunks_of(values), lambda here, items: (of(_block(here, items)), None))[0]


def summed(values: Any, of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The sum of ``of(block)`` over all blocks of an array ``(draw, *event)``."""
    return map_reduce(values, chunks_of(values), lambda here, items: (None, of(_block(here, items))))[1]


def _block(values: Any, items: slice) -> np.ndarray:
    # sums depend on the order in memory
    return np.ascontiguousarray(values[items])


def chunks_of(values: Any) -> list[slice]:
    """Slices of an array ``(draw, *event)`` that are worked on at a time."""
    return list(slices(len(values), math.prod(values.shape[1:])))
