"""What long work says while it lasts: a bar with the step under way and the seconds. Knows nothing of the work."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from tqdm.auto import tqdm

_FORM = "{desc} [{elapsed}]"
# seconds of silence at first, for short work says nothing
_UNTOLD = 2.0
# seconds between two looks at the clock: a step may compile for minutes, and its bar must not stand still
_BEAT = 1.0
# the same of a file or a pipe, in which a bar leaves a copy of itself each time
_BEAT_UNWATCHED = 5.0
# seconds after which it is said what follows, where no bar of ours will be
_LONG = 10.0

# the first part compiles, or makes what others find at hand, and foretells nothing: parts are told of from the third on
_MANY = 3

T = TypeVar("T")


@dataclass
class _Speaker:
    """A bar, the work that it speaks of, and whether it tells how far a step is."""

    bar: tqdm
    work: str
    tells_parts: bool = False


# work stands within work, and the outermost one's bar speaks for all of it
_speaker: ContextVar[_Speaker | None] = ContextVar("speaker", default=None)


@contextlib.contextmanager
def saying(work: str, progress_bar: bool, *, after: str = "") -> Iterator[None]:
    """A bar for what `say` tells meanwhile, gone in the end; within another bar, that one tells it.

    Parameters
    ----------
    work
        What is done, before the colon.
    progress_bar
        Whether to show it.
    after
        Words that stay after long work.
    """
    if _speaker.get() is not None:
        yield
        return
    # each step is told of at once where somebody may be looking
    told = 0.0 if _is_watched() else interval()
    options: Any = {"bar_format": _FORM, "leave": False, "delay": _UNTOLD, "mininterval": told, "miniters": 0}
    with tqdm(desc=work, disable=not progress_bar, **options) as bar:
        before = _speaker.set(_Speaker(bar, work))
        try:
            with _beating(bar):
                yield
            if after and bar.format_dict["elapsed"] > _LONG:
                bar.leave = True
                _show(bar, after)
        finally:
            _speaker.reset(before)


def say(step: str) -> None:
    """Name a step before it begins, for none of them can tell how far it is."""
    if (speaker := _speaker.get()) is not None:
        _show(speaker.bar, f"{speaker.work}: {step}")


def track(parts: Iterable[T], count: int) -> Iterator[T]:
    """The parts of a step in turn, of which it is told how many are done and about how long the others take.

    Where parts have parts, those of the outermost that are many enough to foretell anything.
    """
    speaker = _speaker.get()
    if speaker is None or speaker.bar.disable or speaker.tells_parts or count < _MANY:
        yield from parts
        return
    step, start, speaker.tells_parts = speaker.bar.desc, time.monotonic(), True
    try:
        for done, part in enumerate(parts):
            if done >= _MANY - 1:
                left = (time.monotonic() - start) * (count - done) / done
                _show(speaker.bar, f"{step}, {done / count:.0%} of this pass, about {tqdm.format_interval(left)} left")
            yield part
    finally:
        speaker.tells_parts = False
        speaker.bar.set_description_str(step, refresh=False)


@contextlib.contextmanager
def counting(work: str, unit: str, progress_bar: bool, total: int | None = None) -> Iterator[tqdm]:
    """A bar that counts what is done, gone in the end.

    Parameters
    ----------
    work
        What is done.
    unit
        What is counted.
    progress_bar
        Whether to show it.
    total
        How much there is to do; ``None`` of work that may end at any time.
    """
    options: Any = {"total": total, "leave": False, "delay": _UNTOLD, "mininterval": interval()}
    with tqdm(desc=work, unit=f" {unit}", disable=not progress_bar, **options) as bar, _beating(bar):
        yield bar


def interval() -> float:
    """Seconds for which a bar keeps still at least."""
    return 0.1 if _is_watched() else _BEAT_UNWATCHED


def _is_watched() -> bool:
    """Whether somebody may be looking at bars, in a terminal or a notebook."""
    # a notebook's streams say that they are no terminal, a logger's or a closed one nothing
    with contextlib.suppress(AttributeError, ValueError):
        return "ipykernel" in sys.modules or sys.stderr.isatty()
    return False


def _show(bar: tqdm, words: str) -> None:
    bar.set_description_str(words, refresh=False)
    bar.update(0)  # which keeps still as long as nothing is to be told


@contextlib.contextmanager
def _beating(bar: tqdm) -> Iterator[None]:
    """The bar's clock goes on while the work keeps the main thread."""
    if bar.disable:
        yield
        return
    done, seconds = threading.Event(), _BEAT if _is_watched() else _BEAT_UNWATCHED

    def beat() -> None:
        while not done.wait(seconds):
            bar.update(0)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
