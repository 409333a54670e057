"""A symmetry tried at points, and the verdict, a value whatever it is. Knows evidence and symmetries; no words."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.discovery.evidence import Evidence, nudged
from numpyro_symmetry.discovery.joint import FrozenModel
from numpyro_symmetry.discovery.trials import (
    CONTROL_FACTOR,
    Gap,
    Values,
    control_gap,
    largest_gap,
    movable,
    move,
    random_elements,
    trial_elements,
)
from numpyro_symmetry.symmetry import Element, Symmetry
from numpyro_symmetry.symmetry.axes import names_in

_ROUNDING = 1e-13


class Outcome(Enum):
    """What trying a symmetry has shown."""

    HOLDS = "no element changes anything, and wrong actions do"
    CHANGES = "an element changes a log probability"
    LEAVES_SUPPORT = "an element takes a value out of its support"
    SHOWS_NOTHING = "no wrong action on a group changes anything either"


class Proof(NamedTuple):
    """Verdict on a symmetry.

    Attributes
    ----------
    frozen, symmetry
        The model, and what was tried on it.
    outcome
        What was shown.
    gap
        The largest change of a log probability; of what leaves its support, the site.
    label
        Group, or all groups, whose element was refused, or whose wrong actions show nothing.
    element
        The element that was refused; none otherwise.
    places
        Points at which it was tried; the last one is where it was refused.
    controls
        Group -> the largest change under an action that is wrong on purpose.
    num_elements
        Elements tried at each point.
    """

    frozen: FrozenModel
    symmetry: Symmetry
    outcome: Outcome
    gap: Gap
    label: str
    element: Element
    places: list[Values]
    controls: dict[str, Gap]
    num_elements: int

    @property
    def holds(self) -> bool:
        """Whether the symmetry may be given out."""
        return self.outcome is Outcome.HOLDS


def prove(
    evidence: Evidence, symmetry: Symmetry, rng: np.random.Generator, num_elements: int, num_far: int = 0
) -> Proof:
    """Try a bound symmetry, with a number of random elements, and of all groups at once at each point far out.

    Far out a likelihood may saturate, and then show an order of rounding as a change: such points are for what has
    nothing else to speak for it, and for signs, which are not to be given out in doubt.
    """
    frozen, places = evidence.frozen, evidence.places
    elements = trial_elements(symmetry, rng, num_elements)
    nothing = Proof(frozen, symmetry, Outcome.HOLDS, Gap("", 0.0, 0.0), "", {}, places, {}, len(elements))
    # densities may agree where supports differ: those are compared near their edges, where prior draws seldom come
    for place in evidence.edges if frozen.constrained & set(symmetry.axes) else ():
        if not _is_firmly_inside(frozen, place):
            continue
        for label, element in elements:
            if site := _left(frozen, symmetry, place, move(symmetry, element, place)):
                return nothing._replace(outcome=Outcome.LEAVES_SUPPORT, gap=Gap(site, np.inf, 0.0), label=label)
    tried = nothing
    for place in places:
        tried = _tried(evidence, symmetry, elements, place, tried)
        if not tried.holds:
            return tried
    for place in evidence.far:
        far = _tried(evidence, symmetry, random_elements(symmetry, rng, num_far), place, tried)
        if not far.holds:
            return far
    watched = movable(symmetry) if evidence.controls else []
    controls = {name: control_gap(frozen, symmetry, name, places[0]) for name in watched}
    # a prior that is flat is invariant whatever is done to it: where nothing else reads a site, there is no more to see
    empty = {name for name in watched if _sites_of(symmetry, name) <= frozen.unread}
    blind = [name for name, gap in controls.items() if name not in empty and not gap.ratio > CONTROL_FACTOR]
    if blind:
        return tried._replace(outcome=Outcome.SHOWS_NOTHING, label=blind[0], controls=controls)
    return tried._replace(controls=controls)


def _tried(
    evidence: Evidence, symmetry: Symmetry, elements: list[tuple[str, Element]], place: Values, before: Proof
) -> Proof:
    """What is known after elements were tried at one more point: the first one that is refused."""
    frozen = evidence.frozen
    base, worst = frozen.log_probs(place), before.gap
    for label, element in elements:
        after = move(symmetry, element, place)
        here = before._replace(label=label, element=element, places=[*evidence.places, place])
        if site := _left(frozen, symmetry, place, after):
            return here._replace(outcome=Outcome.LEAVES_SUPPORT, gap=Gap(site, np.inf, 0.0))
        gap = largest_gap(frozen, base, frozen.log_probs(after))
        if not gap.ratio <= 1.0:
            return here._replace(outcome=Outcome.CHANGES, gap=gap)
        worst = max(worst, gap, key=lambda gap: gap.ratio)
    return before._replace(gap=worst)


def _is_firmly_inside(frozen: FrozenModel, place: Values) -> bool:
    """Whether a point stays in its supports when rounded otherwise: else a relabelling may seem to leave them."""
    both = (place, nudged(place, _ROUNDING))
    return all(bool(inside) for point in both for inside in frozen.inside(point).values())


def _left(frozen: FrozenModel, symmetry: Symmetry, place: Values, moved: Values) -> str:
    """The site that an element takes out of its support, given the others as moved, if it is not rounding."""

    def lies_inside(nudge: float) -> bool:
        point = nudged(moved, nudge) if nudge else moved
        return all(map(bool, frozen.inside(point).values()))

    if any(map(lies_inside, (0.0, _ROUNDING, -_ROUNDING))):
        return ""
    before, after = frozen.inside(place), frozen.inside(moved)
    # parameters have no support here
    return next((s for s in symmetry.axes if s in before and bool(before[s]) and not bool(after[s])), "")


def _sites_of(symmetry: Symmetry, name: str) -> set[str]:
    return {site for site, entries in symmetry.axes.items() if name in names_in(entries)}
