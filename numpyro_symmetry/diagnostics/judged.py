"""Whether chains differ in a number by more than matters and by more than chance, and how much of R-hat was labels.

Knows rows of reports; no draws, and no other words than the sentence about R-hat.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from numpyro_symmetry.diagnostics.chains import MAX_R_HAT, MIN_DRAWS
from numpyro_symmetry.symmetry.shown import FEW

if TYPE_CHECKING:
    from numpyro_symmetry.diagnostics.chains import Chains
    from numpyro_symmetry.diagnostics.report import Report, Row

# below this probability chains differ by more than chance: one report in a hundred says so of chains that agree
MIN_CHANCE = 0.01
# if sizes as sampled are above this share of those relabelled, chains forget their labels about as fast as all else
_AS_QUICK = 0.5


class Kind(Enum):
    """Whether labels move a row's numbers; the values are headings of the table."""

    MOVED = "worst entry"
    BESIDE = "what the symmetry does not name"
    INVARIANT = "what no label changes"


def is_alarm(row: Row | Chains) -> bool:
    """Whether chains differ by more than matters, and by more than chance in so many numbers."""
    return row.r_hat == np.inf or (row.r_hat > MAX_R_HAT and row.chance < MIN_CHANCE)


def disagreeing(rows: Sequence[Row], *, beside: bool = False) -> list[Row]:
    """Rows in which chains differ, the furthest first: of kind ``BESIDE`` alone, or of all other kinds."""
    some = [row for row in rows if is_alarm(row) and (row.kind is Kind.BESIDE) is beside]
    return sorted(some, key=lambda row: -row.r_hat)


def is_slow(row: Row) -> bool:
    """Whether chains differ by more than matters, and are too short to tell whether by more than chance."""
    return not np.isnan(row.chains.r_hat_undecided) and not is_alarm(row)


def of_labels(report: Report) -> str:
    """How much of R-hat was due to labels, in words: R-hat as sampled, under one set of labels, and what remains."""
    num_chains, num_draws = report.shape
    if report.are_members:
        return (
            "Members are independent by construction: they need not agree, and nothing in which they differ is put "
            "down to labels."
        )
    if num_chains < 2:
        return "Of one chain there is no R-hat, and so nothing of it that was labels."
    if num_draws < MIN_DRAWS:
        return f"With fewer than {MIN_DRAWS} draws to a chain there is no R-hat, and so nothing of it that was labels."
    moved = [row for row in report.rows if row.kind is Kind.MOVED]
    before, after = (np.array([getattr(row, name) for row in moved]) for name in ("r_hat_raw", "r_hat"))
    if np.isnan(before).all() or np.isnan(after).all():
        return "R-hat is undefined in all numbers that labels move: what of it was labels, these draws do not tell."
    first, last = np.nanmax(before), np.nanmax(after)
    were, left = sum(row.num_apart_raw for row in moved), sum(row.chains.num_apart for row in moved)
    if not were and not left:
        return (
            f"As sampled, no R-hat of numbers that labels move is above {MAX_R_HAT} (the largest is {first:.3f}): "
            "labels raised none."
        )
    before, after = ("infinity" if value == np.inf else f"{value:.3f}" for value in (first, last))
    by_chance = _was_chance(moved)
    if by_chance and not left:
        return (
            f"As sampled, the largest R-hat of numbers that labels move is {before}, no more than chance gives: none "
            f"of it has to be put down to labels. Under one set of labels it is {after}."
        )
    way = f"{'falls' if last < first else 'rises'} from {before} to {after}" if before != after else f"stays at {after}"
    counted = _counted(report, moved, were, left, explains=not by_chance and (last < first or before == after))
    return f"R-hat {way} under one set of labels: {counted}."


def _was_chance(moved: Sequence[Row]) -> bool:
    """Whether chains differed by no more than chance, under the labels that they had and under one set of them."""
    apart = [row for row in moved if row.num_apart_raw]
    agree = not any(is_alarm(row) or is_slow(row) for row in moved)
    # the R-hat that chance gives grows as effective sizes fall, and labels that seldom change make these small
    quick = all(row.ess_raw >= _AS_QUICK * row.ess for row in apart)
    by_chance = all(row.r_hat_raw < np.inf and row.chance_raw >= MIN_CHANCE for row in apart)
    return agree and bool(apart) and quick and by_chance


def _counted(report: Report, moved: Sequence[Row], were: int, left: int, *, explains: bool) -> str:
    numbers = "number" if were == 1 else f"{were} numbers"
    if not left:
        return f"labels explain {'the only' if were == 1 else 'all'} {numbers} above {MAX_R_HAT}"
    if not explains or left > were:
        are = "1 number is" if left == 1 else f"{left} numbers are"
        hidden = _or_chance(report, moved, "labels had hidden that chains differ")
        return f"{are} above {MAX_R_HAT} ({_places(moved, left)}), as sampled {were or 'none'}: {hidden}"
    explained = str(were - left) if were > left else "none"
    return (
        f"of the {numbers} above {MAX_R_HAT}, labels explain {explained}; {left} remain{'s' * (left == 1)} "
        f"({_places(moved, left)}): {_or_chance(report, moved, 'not labels')}"
    )


def _or_chance(report: Report, moved: Sequence[Row], real: str) -> str:
    """``real`` if chains differ by more than chance in one of the numbers above, else that these may be chance."""
    if any(map(is_alarm, moved)):
        return "it may be a change of sign" if report.sign_suspected else real
    if any(map(is_slow, moved)):
        return "whether by more than chance, these draws do not tell"
    return "no more than chance gives"


def _places(moved: Sequence[Row], count: int) -> str:
    """The numbers of largest R-hat, by site and index."""
    furthest = [(r_hat, row, place) for row in moved for r_hat, place in row.chains.furthest]
    some = [_named(row, place) for _, row, place in sorted(furthest, key=lambda one: -one[0])[:FEW]]
    return ", ".join(some) + (f" and {count - len(some)} more" if count > len(some) else "")


def _named(row: Row, place: int) -> str:
    index = [str(k) for k in np.unravel_index(place, row.shape)] if row.shape else []
    return f"{row.name}[{', '.join(index)}]" if index else row.name
