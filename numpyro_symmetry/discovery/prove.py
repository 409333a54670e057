"""A symmetry tried at points, and the verdict, a value whatever it is. Knows evidence and symmetries; no words."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.discovery.evidence import Evidence, nudged
from numpyro_symmetry.discovery.frozen import FrozenModel, Stack, Values
from numpyro_symmetry.discovery.trials import (
    CONTROL_FACTOR,
    Gap,
    control_gap,
    largest_gaps,
    movable,
    moved,
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
    """Try a symmetry, with a number of random elements, and of all groups at once at each point far out.

    Far out a likelihood may saturate, and then show an order of rounding as a change: such points are for what has
    nothing else to speak for it, and for signs, which are not to be given out in doubt.
    """
    frozen, places = evidence.frozen, evidence.places
    symmetry = symmetry.bind(places[0])
    elements = trial_elements(symmetry, rng, num_elements)
    nothing = Proof(frozen, symmetry, Outcome.HOLDS, Gap("", 0.0, 0.0), "", {}, places, {}, len(elements))
    # densities may agree where supports differ: those are compared near their edges, where prior draws seldom come
    for place in evidence.edges if frozen.sites.constrained & set(symmetry.axes) else ():
        if not _is_firmly_inside(frozen, place):
            continue
        for labels, stack in _moved(frozen, symmetry, elements, place):
            for label, site in zip(labels, _left(frozen, symmetry, place, stack), strict=True):
                if site:
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
    base, worst, start = frozen.log_probs(place), before.gap, 0
    for labels, stack in _moved(frozen, symmetry, elements, place):
        gaps = largest_gaps(frozen, base, frozen.log_probs_of(stack))
        for k, (site, gap) in enumerate(zip(_left(frozen, symmetry, place, stack), gaps, strict=True)):
            if site or not gap.ratio <= 1.0:
                return before._replace(
                    outcome=Outcome.LEAVES_SUPPORT if site else Outcome.CHANGES,
                    gap=Gap(site, np.inf, 0.0) if site else gap,
                    label=labels[k],
                    element=elements[start + k][1],
                    places=[*evidence.places, place],
                )
        worst, start = max(worst, *gaps, key=lambda gap: gap.ratio), start + len(gaps)
    return before._replace(gap=worst)


def _moved(
    frozen: FrozenModel, symmetry: Symmetry, elements: list[tuple[str, Element]], place: Values
) -> Iterator[tuple[list[str], Stack]]:
    """A point moved by elements, and their labels, as many at a time as are evaluated together."""
    for start in range(0, len(elements), frozen.most_points):
        labels, some = zip(*elements[start : start + frozen.most_points], strict=True)
        yield list(labels), moved(symmetry, some, place)


def _is_firmly_inside(frozen: FrozenModel, place: Values) -> bool:
    """Whether a point stays in its supports when rounded otherwise: else a relabelling may seem to leave them."""
    both = (place, nudged(place, _ROUNDING))
    return all(bool(inside) for point in both for inside in frozen.inside(point).values())


def _left(frozen: FrozenModel, symmetry: Symmetry, place: Values, stack: Stack) -> list[str]:
    """For each moved point, the site that has left its support, given the others, if it is not rounding; else none."""
    count = len(next(iter(stack.values())))
    if not frozen.sites.constrained:
        return [""] * count

    def lies_inside(nudge: float) -> np.ndarray:
        inside = frozen.inside_of(nudged(stack, nudge) if nudge else stack)
        return np.all(list(inside.values()), 0)

    stays = np.any([lies_inside(nudge) for nudge in (0.0, _ROUNDING, -_ROUNDING)], 0)
    if stays.all():
        return [""] * count
    before, after = frozen.inside(place), frozen.inside_of(stack)
    # parameters have no support here
    inside = [site for site in symmetry.axes if site in before and before[site]]
    return [next((s for s in inside if not (stays[k] or after[s][k])), "") for k in range(count)]


def _sites_of(symmetry: Symmetry, name: str) -> set[str]:
    return {site for site, entries in symmetry.axes.items() if name in names_in(entries)}
