r"""Labels that several members have in common: one member after another is placed on the mean of the others.

.. math:: \max_{g_1,\dots,g_K} -\sum_k \lVert g_k\theta_k - \tfrac1K\textstyle\sum_j g_j\theta_j\rVert^2

No step lowers this objective: given the other members, it is linear in the values of the one that is placed. Elements
between any two members, :math:`g_i^{-1}g_j`, agree round every cycle by construction. Knows `match`; not how members
are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from tqdm.auto import tqdm

from numpyro_symmetry.matching.match import match
from numpyro_symmetry.matching.product import Gaussian
from numpyro_symmetry.symmetry import Element, Symmetry, compose

# how many members serve as the first target of all others, and how many of these searches are carried on
_MOST_STARTS, _NUM_SEARCHES = 8, 3
_MAX_ROUNDS, _NARROW = 50, 16
# a gain below this share of the squared distance, or a distance below this share of the norm, is rounding in any units
_ROUNDING = 1e-9


class Aligned(NamedTuple):
    """One element for each member, how the search ended, and the sum of squared distances from the mean."""

    elements: list[Element]
    num_rounds: int
    converged: bool
    squares: float


def aligned(items: list[Any], symmetry: Symmetry, method: str, bar: tqdm) -> Aligned:
    """Elements that bring all members to common labels: the best of several searches, each from one member's labels."""
    still = [symmetry.identity() for _ in items]
    if not symmetry.groups or len(items) == 1:
        return Aligned(still, 0, True, _spread(items))
    if len(items) == 2:
        found = match(items[0], items[1], symmetry, method=method, progress_bar=False)
        return Aligned([still[0], found.element], 1, bool(found.converged), 0.0)
    # a placement from scratch is dear where layers are wide, and is left to the last search, when labels have settled
    quick = method if max(group.degree for group in symmetry.groups.values()) <= _NARROW else "descent"
    every = jax.tree.map(lambda *xs: np.stack(xs), *items)
    starts = [Aligned(still, 0, True, _spread(items))]
    for k in range(min(len(items), _MOST_STARTS)):
        found = match(items[k], every, symmetry, method=quick, progress_bar=False).element
        bar.set_postfix_str(f"all on member {k}", refresh=False)
        bar.update(len(items))
        elements = [jax.tree.map(lambda x, j=j: x[j], found) for j in range(len(items))]
        elements[k] = still[k]
        moved = [moved_by(symmetry, element, item) for element, item in zip(elements, items, strict=True)]
        starts.append(Aligned(elements, 0, True, _spread(moved)))
    starts.sort(key=lambda start: start.squares)
    searches = (
        _descended(start, items, symmetry, quick, bar, f"search {k}")
        for k, start in enumerate(starts[:_NUM_SEARCHES], 1)
    )
    best = min(searches, key=lambda found: found.squares)
    return best if quick == method else _descended(best, items, symmetry, method, bar, "last search")


def _descended(start: Aligned, items: list[Any], symmetry: Symmetry, method: str, bar: tqdm, name: str) -> Aligned:
    """Place each member in turn on the mean of the others, until none moves."""
    elements = list(start.elements)
    moved = [moved_by(symmetry, element, item) for element, item in zip(elements, items, strict=True)]
    # squared norms, which no relabelling changes
    sizes = [_squares(item) for item in items]
    # a member is placed again only if another has moved since: on the same mean it would stay where it is
    stale = [True] * len(items)
    for num_rounds in range(start.num_rounds + 1, start.num_rounds + _MAX_ROUNDS + 1):
        num_moved = 0
        for k, item in enumerate(items):
            if not stale[k]:
                continue
            stale[k] = False
            others = _mean(moved[:k] + moved[k + 1 :])
            step = match(others, moved[k], symmetry, method=method, progress_bar=False)
            element = compose(step.element, elements[k])
            there = moved_by(symmetry, element, item)
            before, after = _squared_distance(others, moved[k]), _squared_distance(others, there)
            if before - after > _ROUNDING * before + _ROUNDING**2 * sizes[k]:
                elements[k], moved[k] = element, there
                num_moved += 1
                stale = [j != k for j in range(len(items))]
            bar.set_postfix_str(f"{name}, round {num_rounds}: {num_moved} of {len(items)} moved", refresh=False)
            bar.update()
        if not num_moved:
            return Aligned(elements, num_rounds, True, _spread(moved))
    return Aligned(elements, start.num_rounds + _MAX_ROUNDS, False, _spread(moved))


def moved_by(symmetry: Symmetry, element: Element, item: Any) -> Any:
    """``g·item``, of values by site or of a Gaussian."""
    return item.apply(symmetry, element) if isinstance(item, Gaussian) else symmetry.apply(element, item)


def _mean(items: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *xs: np.mean(xs, 0, dtype=float), *items)


def _squares(item: Any) -> float:
    return float(sum(np.sum(np.square(np.asarray(x, float))) for x in jax.tree.leaves(item)))


def _squared_distance(one: Any, other: Any) -> float:
    """What `match` makes small, from differences: its objective has few digits left where members are nearly alike."""
    return _squares(jax.tree.map(np.subtract, one, other))


def distances_from_mean(items: Sequence[Any]) -> np.ndarray:
    """``(num_members,)``: the Euclidean distance of each member from the mean of all."""
    centre = _mean(items)
    return np.sqrt([_squared_distance(item, centre) for item in items])


def _spread(items: Sequence[Any]) -> float:
    return float(np.sum(distances_from_mean(items) ** 2))
