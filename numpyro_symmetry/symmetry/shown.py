"""How results show themselves: in a few lines, never as raw arrays, and a notebook's cell ends with the same lines.

A class says ``_repr_html_ = as_html``. Knows nothing else of the package.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

# more names than a line holds are counted
_MOST_NAMES = 6
# in a sentence
FEW = 3


def as_html(result: Any) -> str:
    """What a result prints as, for a notebook's cell."""
    return f"<pre>{html.escape(str(result))}</pre>"


def sizes(arrays: Mapping[str, Any]) -> str:
    """Names and shapes of arrays, such as ``w1 (2, 5), b1 (5,)``."""
    return first_of([f"{name} {tuple(getattr(array, 'shape', ()))}" for name, array in arrays.items()])


def first_of(words: Sequence[str], most: int = _MOST_NAMES) -> str:
    """The first of several words, and how many there are more."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def some_of(words: Sequence[str]) -> str:
    """The first few words, and how many more there are."""
    return listed(words) if len(words) <= FEW + 1 else first_of(words, FEW)


def each_of(names: Sequence[str]) -> str:
    """A name, or each of several."""
    return f"{'each of ' if len(names) > 1 else ''}{some_of(list(map(repr, names)))}"


def counted(number: Any, noun: str, *verbs: str) -> str:
    """A number, or one in digits, with its noun and its verb: ``"1 draw is"``, ``"3 draws are"``."""
    is_one = str(number) == "1"
    plural = {"entry": "entries", "axis": "axes", "index": "indices"}.get(noun, f"{noun}s")
    return " ".join([str(number), noun if is_one else plural, *verbs[:1] * is_one, *verbs[1:] * (not is_one)])


def listed(words: Sequence[str]) -> str:
    """All of some words, the last after an "and"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
