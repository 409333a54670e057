"""What long work says while it lasts: a bar with the step under way and the seconds. Knows nothing of the work."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

from tqdm.auto import tqdm

_FORM = "{desc} [{elapsed}]"
# seconds of silence at first, for short work says nothing
_UNTOLD = 2.0
# seconds between two looks at the clock: a step may compile for minutes, and its bar must not stand still
_BEAT = 1.0
# seconds after which it is said what follows, where no bar of ours will be
_LONG = 10.0


class _Speaker(NamedTuple):
    """A bar, and what the work is that it speaks of."""

    bar: tqdm
    work: str


# work stands within work, and the outermost one's bar speaks for all of it
_speaker: ContextVar[_Speaker | None] = ContextVar("speaker", default=None)


@contextlib.contextmanager
def saying(work: str, progress_bar: bool, *, after: str = "") -> Iterator[None]:
    """A bar for what is said meanwhile, gone in the end; within another one, that is it.

    Parameters
    ----------
    work
        What is done, before the colon.
    progress_bar
        Whether to show it.
    after
        What stays of it after long work.
    """
    if _speaker.get() is not None:
        yield
        return
    options: Any = {"bar_format": _FORM, "leave": False, "delay": _UNTOLD, "mininterval": 0.0, "miniters": 0}
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


def _show(bar: tqdm, words: str) -> None:
    bar.set_description_str(words, refresh=False)
    bar.update(0)  # which keeps still as long as nothing is to be told


@contextlib.contextmanager
def _beating(bar: tqdm) -> Iterator[None]:
    """The bar's clock goes on while the work keeps the main thread."""
    if bar.disable:
        yield
        return
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_BEAT):
            bar.update(0)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
