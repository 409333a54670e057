"""A symmetry tried at points, and the verdict, a value whatever it is. Knows evidence and symmetries; no words."""

from __future__ import annotations

from collections.abc import Container, Iterable
from enum import Enum
from functools import partial
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.discovery.proof.evidence import Evidence, nudged
from numpyro_symmetry.discovery.proof.frozen import (
    FrozenModel,
    Point,
    Stack,
    Values,
    stacked,
)
from numpyro_symmetry.discovery.proof.rounding import NUDGE
from numpyro_symmetry.discovery.proof.trials import (
    CONTROL_FACTOR,
    NO_GAP,
    Action,
    Gap,
    Trial,
    Trials,
    batched,
    control_gaps,
    few_elements,
    gap_beyond,
    gaps_beyond,
    gaps_to,
    has_signs,
    largest,
    movable,
    random_elements,
    wrong_actions,
)
from numpyro_symmetry.steps import through
from numpyro_symmetry.symmetry import Element, Symmetry

# part of every value of a group's sites by which a log joint that is not blind to them is seen to move
_STEP = 1e-5


class Outcome(Enum):
    """What trying a symmetry has shown."""

    HOLDS = "no element changes anything, and wrong actions do"
    CHANGES = "an element changes a log probability"
    LEAVES_SUPPORT = "an element takes a value out of its support"
    SHOWS_NOTHING = "no wrong action on a group changes anything either"
    PRIOR_ALONE = "no wrong action on a group changes anything but its sites' own priors"
    ROUNDS = "where rounding does not decide, nothing but their own prior depends on a group's sites"


class Proof(NamedTuple):
    """Verdict on a symmetry.

    Attributes
    ----------
    frozen, action
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
    action: Action
    outcome: Outcome
    gap: Gap
    label: str
    element: Element
    places: list[Point]
    controls: dict[str, Gap]
    num_elements: int

    @property
    def holds(self) -> bool:
        """Whether the symmetry may be given out."""
        return self.outcome is Outcome.HOLDS

    @property
    def is_inconclusive(self) -> bool:
        """Whether it may hold or not, for all that was seen."""
        return self.outcome in (Outcome.SHOWS_NOTHING, Outcome.PRIOR_ALONE, Outcome.ROUNDS)


def prove(
    evidence: Evidence,
    symmetry: Symmetry,
    rng: np.random.Generator,
    trials: Trials = few_elements,
    num_far: int = 0,
    enough: float = CONTROL_FACTOR,
    known: Container[str] = (),
    *,
    structure_speaks: bool = True,
) -> Proof:
    """Try a symmetry, with random elements of all groups at once at each point far out.

    Of groups whose permutations are known to hold, only what has signs is tried, and of wrong actions
    those of groups that have any: the others were.

    Far out a likelihood may saturate, and then show an order of rounding as a change: such points are for what has
    nothing else to speak for it, and for signs, which are not to be given out in doubt. Of wrong actions the
    first that changes so many times more than is allowed is enough. Where no structure speaks for a symmetry, one has
    to change more than the priors of the sites that it moves.
    """
    frozen, places = evidence.frozen, evidence.places
    action = Action.on(symmetry, places[0].values)
    # what is known is drawn all the same: whatever is drawn afterwards does not depend on it
    drawn = trials(action.symmetry, rng)
    elements = [one for one in drawn if one[0] not in known or has_signs(one[1])]
    proof = Proof(frozen, action, Outcome.HOLDS, NO_GAP, "", {}, places, {}, len(elements))
    # densities may agree where supports differ: those are compared near their edges, where prior draws seldom come
    edges = evidence.edges if frozen.sites.constrained & set(symmetry.axes) else ()
    for place in filter(partial(is_firmly_inside, frozen), edges):
        proof = _tried(proof, elements, place)
        if not proof.holds:
            return proof
    for at in places:
        proof = _tried(proof, elements, at.values, at)
        if not proof.holds:
            return proof
    for at in evidence.far:
        far = _tried(proof, random_elements(action.symmetry, rng, num_far), at.values, at)
        if not far.holds:
            return far
    groups = action.symmetry.groups
    watched = [x for x in movable(action.symmetry) if x not in known or groups[x].signed] if evidence.controls else []
    controls = control_gaps(frozen, action, watched, places[0], enough)
    # a prior that is flat is invariant whatever is done to it: where nothing else reads a site, there is no more to see
    unread = set() if frozen.is_function else frozen.unread
    empty = {name for name in watched if set(action.sites[name]) <= unread}
    blind = [name for name, gap in controls.items() if name not in empty and not gap.ratio > frozen.rounding.telling]
    # what is constant by parts may be so about one point, and not about all at which elements were tried
    for at in (*places[1:], *(evidence.far if num_far else ())):
        controls |= control_gaps(frozen, action, blind, at, enough)
        blind = [name for name in blind if not controls[name].ratio > frozen.rounding.telling]
    if blind:
        return proof._replace(outcome=Outcome.SHOWS_NOTHING, label=blind[0], controls=controls)
    told = [name for name in watched if name not in empty]
    if not structure_speaks and (alone := [name for name in told if not _is_read(evidence, action, name)]):
        return proof._replace(outcome=Outcome.PRIOR_ALONE, label=alone[0], controls=controls)
    # points were drawn nearer because rounding decides further out, and there the likelihood may be blind
    if evidence.is_near and (unseen := _unseen(evidence, action, told)):
        return proof._replace(outcome=Outcome.ROUNDS, label=unseen[0], controls=controls)
    return proof._replace(controls=controls)


def _is_read(evidence: Evidence, action: Action, name: str) -> bool:
    """Whether a wrong action on a group changes more than its sites' own priors, at any point about the prior."""
    frozen, own = evidence.frozen, evidence.frozen.alone.intersection(action.sites[name])
    return any(
        gap_beyond(frozen, at, values, own).ratio > frozen.rounding.telling
        for at in evidence.places
        for values in wrong_actions(action, name, at.values)
    )


def _unseen(evidence: Evidence, action: Action, names: list[str]) -> list[str]:
    """Groups of which a small step of the sites changes nothing but their own priors, at any point about the prior."""
    frozen = evidence.frozen
    for at in evidence.places:
        left, names = names, []
        for some in batched(left, frozen.most_points):
            own = [frozen.alone.intersection(action.sites[name]) for name in some]
            steps = [at.values | nudged({s: at.values[s] for s in action.sites[name]}, _STEP) for name in some]
            gaps = gaps_beyond(frozen, at, stacked(steps), own)
            names += [name for name, gap in zip(some, gaps, strict=True) if not gap.ratio > 1.0]
    return names


def _tried(before: Proof, elements: list[Trial], place: Values, at: Point | None = None) -> Proof:
    """What is known after elements were tried at one more place: the first one that is refused.

    That they leave no support; where the log probabilities are known there, also that these stay.
    """
    frozen, action, worst = before.frozen, before.action, before.gap
    some_at_once = list(batched(elements, frozen.most_points))
    for some in through(some_at_once, len(some_at_once)):
        moved = stacked([action.move(element, place) for _, element in some])
        left = sites_left(frozen, action.symmetry.axes, place, moved)
        gaps = gaps_to(frozen, at, moved) if at is not None else [NO_GAP] * len(some)
        for (label, element), site, gap in zip(some, left, gaps, strict=True):
            if site:
                gap = Gap(site, np.inf, 0.0)
            if site or not gap.ratio <= 1.0:
                outcome = Outcome.LEAVES_SUPPORT if site else Outcome.CHANGES
                places = before.places if at is None else [*before.places, at]
                return before._replace(outcome=outcome, gap=gap, label=label, element=element, places=places)
            worst = largest(worst, gap)
    return before._replace(gap=worst)


def is_firmly_inside(frozen: FrozenModel, place: Values) -> bool:
    """Whether a point stays in its supports when rounded otherwise: else a relabelling may seem to leave them."""
    both = (place, nudged(place, NUDGE))
    return all(bool(inside) for point in both for inside in frozen.inside(point).values())


def sites_left(frozen: FrozenModel, sites: Iterable[str], place: Values, stack: Stack) -> list[str]:
    """For each moved point, one of some sites that left its support, given the others, but for rounding; else none."""
    count = len(next(iter(stack.values())))
    if not frozen.sites.constrained:
        return [""] * count

    stays = np.zeros(count, bool)
    for nudge in (0.0, NUDGE, -NUDGE):
        inside = frozen.inside_of(nudged(stack, nudge) if nudge else stack)
        stays |= np.all(list(inside.values()), 0)
        if stays.all():
            return [""] * count
    before, after = frozen.inside(place), frozen.inside_of(stack)
    # parameters have no support here
    inside = [site for site in sites if site in before and before[site]]
    return [next((s for s in inside if not (stays[k] or after[s][k])), "") for k in range(count)]
