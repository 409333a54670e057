"""What a set-up says while it works: a bar that names the step under way. Knows nothing of guides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from tqdm.auto import tqdm

_WHAT, _FORM = "setting up the guide", "{desc} [{elapsed}]"
_AFTER = "the guide is set up; what runs next compiles first, which may take as long"
# seconds of a set-up after which it is said that more of the kind comes, where no bar of ours will be
_LONG = 10.0
# guides stand within guides, and the outermost one's bar speaks for all of them
_bar: ContextVar[Any] = ContextVar("bar", default=None)


@contextlib.contextmanager
def saying(progress_bar: bool) -> Iterator[None]:
    """A bar for what is said meanwhile, gone in the end if that was soon; within another one, that is it."""
    if _bar.get() is not None:
        yield
        return
    with tqdm(desc=f"{_WHAT}: drawing from it", bar_format=_FORM, disable=not progress_bar, leave=False) as bar:
        before = _bar.set(bar)
        try:
            yield
            if bar.format_dict["elapsed"] > _LONG:
                bar.set_description_str(_AFTER)
                bar.leave = True
        finally:
            _bar.reset(before)


def say(step: str) -> None:
    """Name a step before it begins, for none of them can tell how far it is."""
    if _bar.get() is not None:
        _bar.get().set_description_str(f"{_WHAT}: {step}")
