"""Try a symmetry at points; the verdict is a value, also a refusal. Knows evidence and symmetries; no messages."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.chunks import batched
from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.evidence import Evidence, more_points, nudged
from numpyro_symmetry.discovery.proof.frozen import (
    Batch,
    FrozenModel,
    Point,
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
    control_gaps,
    each_gap,
    few_elements,
    gap_to,
    gaps_to,
    has_signs,
    largest,
    movable,
    random_elements,
    wrong_actions,
)
from numpyro_symmetry.steps import track
from numpyro_symmetry.symmetry import Element, Group, Part, SignedPermutation, Symmetry

# relative step of a group's sites that changes a log joint which depends on them by more than rounding
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
        The model, and the action of the symmetry that was tried on it.
    outcome
        What was shown.
    gap
        The largest change of a log probability; infinite, with the site, where a value left its support.
    label
        The group (or all groups) whose element was refused, or on which no wrong action shows anything.
    element
        The element that was refused; empty if none was.
    places
        Points at which the symmetry was tried; the last is where an element changed a log probability, if one did.
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
        """Whether the trials decide nothing: the symmetry may hold or not."""
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
    """Try whether a symmetry leaves every log probability alone, and whether wrong actions on its groups are noticed.

    Far out a likelihood may saturate, and then show an order of rounding as a change: far points are for symmetries
    that nothing else speaks for, and for signs, which are not to be given out in doubt.

    Parameters
    ----------
    evidence, symmetry, rng
        The model with its points, what is tried on it, and the generator of its elements.
    trials
        Which elements to try at points about the prior and near edges of supports.
    num_far
        Random elements of all groups at once to try at each point far out.
    enough
        A change so many times as large as rounding allows ends the search for wrong actions on a group.
    known
        Groups whose permutations are known to hold: only those of their elements that negate something are tried, and
        wrong actions only on those of them that have signs.
    structure_speaks
        Whether the structure of the program speaks for the symmetry too. If not, a wrong action on a group has to
        change more than the priors of the sites that the group moves.
    """
    frozen, places = evidence.frozen, evidence.places
    action = Action.on(symmetry, places[0].values)
    # elements of known groups are drawn all the same, so that later draws do not depend on which are known
    drawn = trials(action.symmetry, rng)
    elements = [(label, element) for label, element in drawn if label not in known or has_signs(element)]
    proof = Proof(frozen, action, Outcome.HOLDS, NO_GAP, "", {}, places, {}, len(elements))
    # equal densities may have different supports, which show near their edges, where draws of the prior seldom lie
    edges = evidence.edges if frozen.sites.constrained & set(symmetry.axes) else ()
    tries = itertools.chain(
        ((elements, place, None, False) for place in edges if is_firmly_inside(frozen, place)),
        ((elements, at.values, at, False) for at in places),
        ((random_elements(action.symmetry, rng, num_far), at.values, at, True) for at in evidence.far),
    )
    for tried, place, at, is_far in tries:
        proof = _tried(proof, tried, place, at, is_far=is_far)
        if not proof.holds:
            return proof
    groups = action.symmetry.groups
    watched = [x for x in movable(action.symmetry) if x not in known or groups[x].signed] if evidence.controls else []
    controls = control_gaps(frozen, action, watched, places[0], enough)
    # a flat prior is invariant under wrong actions too: where nothing else reads a site, none of them can be noticed
    unread = set() if frozen.is_function else frozen.unread
    empty = {name for name in watched if set(action.sites[name]) <= unread}
    blind = [name for name, gap in controls.items() if name not in empty and not gap.ratio > frozen.rounding.telling]
    # a log joint that is constant by parts may be blind to a group about one point, and not about the others
    for at in (*places[1:], *(evidence.far if num_far else ())):
        controls |= control_gaps(frozen, action, blind, at, enough)
        blind = [name for name in blind if not controls[name].ratio > frozen.rounding.telling]
    if blind:
        return proof._replace(outcome=Outcome.SHOWS_NOTHING, label=blind[0], controls=controls)
    controlled = [name for name in watched if name not in empty]
    if not structure_speaks and (alone := [name for name in controlled if not _is_read(evidence, action, name)]):
        return proof._replace(outcome=Outcome.PRIOR_ALONE, label=alone[0], controls=controls)
    # points lie near the prior's centre, as rounding decides further out: there the likelihood may not see a group
    if evidence.is_near and (unseen := _unseen(evidence, action, controlled)):
        return proof._replace(outcome=Outcome.ROUNDS, label=unseen[0], controls=controls)
    return proof._replace(controls=controls)


def holds_on(
    evidence: Iterable[Evidence],
    symmetry: Symmetry,
    rng: np.random.Generator,
    num_far: int = EFFORT.num_elements_far,
    known: Container[str] = (),
) -> bool:
    """Whether all evidence proves a symmetry; none of it is made after the first that does not.

    A model that is constant nearly everywhere shows nothing at a few points: groups that some of these do not see are
    tried at more.
    """

    def tries() -> Iterator[tuple[Evidence, Symmetry]]:
        for k, one in enumerate(evidence):
            yield one, symmetry
            if not k and (unseen := _unseen_somewhere(one, symmetry, known)):
                yield more_points(one, rng), symmetry.restrict(unseen)

    return all(prove(one, tried, rng, num_far=num_far, known=known).holds for one, tried in tries())


def _unseen_somewhere(evidence: Evidence, symmetry: Symmetry, known: Container[str]) -> list[str]:
    """Groups of which at some point an index set to zero, or copied over another, changes no more than priors.

    Of those of which anything is to be tried, and that more than priors read.
    """
    frozen, action = evidence.frozen, Action.on(symmetry, evidence.places[0].values)
    unread = set() if frozen.is_function else frozen.unread

    def wrong(group: Group) -> Part:
        orbit, same = max(group.members(), key=len), group.identity().permutation
        if group.signed:
            zero = np.ones_like(same)
            zero[..., orbit[0]] = 0
            return SignedPermutation(same, zero)
        copied = same.copy()
        copied[..., orbit[0]] = orbit[-1]
        return copied

    watched = [
        name
        for name in movable(action.symmetry)
        if (action.symmetry.groups[name].signed or name not in known) and not set(action.sites[name]) <= unread
    ]
    parts = {name: wrong(action.symmetry.groups[name]) for name in watched}
    own = [frozen.alone.intersection(action.sites[name]) for name in watched]

    def unseen(at: Point) -> list[str]:
        gaps = each_gap(frozen, at, (action.move({name: part}, at.values) for name, part in parts.items()), own)
        return [name for name, gap in zip(watched, gaps, strict=True) if not gap.ratio > frozen.rounding.telling]

    return sorted({name for at in evidence.places for name in unseen(at)})


def _is_read(evidence: Evidence, action: Action, name: str) -> bool:
    """Whether a wrong action on a group changes more than its sites' own priors, at any point about the prior."""
    frozen, own = evidence.frozen, evidence.frozen.alone.intersection(action.sites[name])
    return any(
        gap_to(frozen, at, values, own).ratio > frozen.rounding.telling
        for at in evidence.places
        for values in wrong_actions(action, name, at.values)
    )


def _unseen(evidence: Evidence, action: Action, names: list[str]) -> list[str]:
    """Groups whose sites, moved by a small step, change nothing but their own priors at any point about the prior."""
    frozen = evidence.frozen
    for at in evidence.places:
        own = [frozen.alone.intersection(action.sites[name]) for name in names]
        steps = (at.values | nudged({s: at.values[s] for s in action.sites[name]}, _STEP) for name in names)
        gaps = each_gap(frozen, at, steps, own)
        names = [name for name, gap in zip(names, gaps, strict=True) if not gap.ratio > 1.0]
    return names


def _tried(proof: Proof, elements: list[Trial], place: Values, at: Point | None, *, is_far: bool) -> Proof:
    """The proof so far, after elements were tried at one more place; the first element that is refused ends it.

    An element must take no value out of its support and, where log probabilities are given (``at``), leave them alone.
    """
    frozen, action, worst = proof.frozen, proof.action, proof.gap
    batches = list(batched(elements, frozen.most_points))
    for batch in track(batches, len(batches)):
        moved = stacked([action.move(element, place) for _, element in batch])
        left = sites_left(frozen, action.symmetry.axes, place, moved)
        gaps = gaps_to(frozen, at, moved) if at is not None else [NO_GAP] * len(batch)
        for (label, element), site, gap in zip(batch, left, gaps, strict=True):
            if site:
                gap = Gap(site, np.inf, 0.0)
            elif is_far:
                gap = gap._replace(allowed=frozen.rounding.allows_far(gap.allowed))
            if site or not gap.ratio <= 1.0:
                outcome = Outcome.LEAVES_SUPPORT if site else Outcome.CHANGES
                places = proof.places if at is None else [*proof.places, at]
                return proof._replace(outcome=outcome, gap=gap, label=label, element=element, places=places)
            worst = largest(worst, gap)
    return proof._replace(gap=worst)


def is_firmly_inside(frozen: FrozenModel, place: Values) -> bool:
    """Whether a point lies in its supports by more than rounding: else a relabelling may only seem to leave them."""
    both = (place, nudged(place, NUDGE))
    return all(bool(inside) for point in both for inside in frozen.inside(point).values())


def sites_left(frozen: FrozenModel, sites: Iterable[str], place: Values, stack: Batch) -> list[str]:
    """For each moved point, the first of ``sites`` that left its support by more than rounding; empty if none."""
    count = len(next(iter(stack.values())))
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
