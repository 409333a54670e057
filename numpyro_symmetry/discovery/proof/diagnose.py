"""Why a model is not invariant, in words: the site, the axis, the gap, and the one edit that would repair it.

Knows verdicts, frozen models and symmetries; proposes a remedy only after trying it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from numpyro_symmetry.discovery.proof.evidence import Evidence
from numpyro_symmetry.discovery.proof.frozen import FrozenModel, Point, Values
from numpyro_symmetry.discovery.proof.prove import Outcome, Proof, prove
from numpyro_symmetry.discovery.proof.trials import (
    ALL_GROUPS,
    largest_gap,
    movable,
    trial_elements,
)
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, Unsigned
from numpyro_symmetry.symmetry.axes import AxisEntry, group_names, labels, padded
from numpyro_symmetry.symmetry.errors import OffSupportError
from numpyro_symmetry.symmetry.nouns import Nouns


def refusal(proof: Proof, beside: str = "") -> SymmetryError:
    """The error that says why a symmetry does not hold, and what is known beside the proof."""
    return (OffSupportError if proof.outcome is Outcome.LEAVES_SUPPORT else SymmetryError)(words(proof) + beside)


def words(proof: Proof) -> str:
    """Why a symmetry was refused, or why nothing can be said of it; empty if it holds."""
    of = proof.frozen.nouns
    match proof.outcome:
        case Outcome.CHANGES:
            return _of_a_change(proof)
        case Outcome.LEAVES_SUPPORT:
            where = f"{proof.gap.site!r}{_axes(proof.action.symmetry, proof.gap.site, proof.label)}"
            if proof.frozen.is_function:
                return (
                    f"Array {where}: relabelling by {proof.label!r} makes entries negative, and none is, so that they "
                    "stay positive. Drop the signs of the group there, or negate an entry if it may have either sign."
                )
            return (
                f"Site {where}: relabelling by {proof.label!r} leaves its support. An ordered or "
                "triangular support already breaks the symmetry: use an unordered prior, or drop the site's symmetry. "
                "If the support depends on another site, that site needs the group too."
            )
        case Outcome.SHOWS_NOTHING:
            flat = sorted(proof.frozen.sites.improper & set(proof.action.sites[proof.label]))
            return (
                f"no wrong action on group {proof.label!r} changes the {of.result} either, so invariance shows "
                f"nothing; does the {of.whole} use these {of.array}s? Data without rows show nothing."
            ) + (f" The prior of {flat} is improper, and so is its posterior if nothing reads it." if flat else "")
        case Outcome.PRIOR_ALONE:
            return (
                f"no wrong action on group {proof.label!r} changes anything but the priors of the sites that it moves, "
                "so invariance shows nothing; does the model use these sites, and are its data zero, or all alike?"
            )
        case Outcome.ROUNDS:
            reads = "nothing" if proof.frozen.is_function else "nothing but their own prior"
            smaller = "smaller weights" if proof.frozen.is_function else "weights with a narrower prior"
            return (
                f"where rounding does not decide, {reads} depends on the {of.array}s that group {proof.label!r} moves, "
                "so invariance shows nothing; elsewhere hundreds of layers, or steps of an iteration, amplify "
                f"rounding: try fewer of them, or {smaller}."
            )
        case _:
            return ""


def _of_a_change(proof: Proof) -> str:
    """Which log probability changes under which group, by how much, and the remedy."""
    frozen, symmetry, label = proof.frozen, proof.action.symmetry, proof.label
    places, gap = proof.places, proof.gap
    where = _axes(symmetry, gap.site, label)
    of = frozen.nouns
    if frozen.is_function:
        what, nats = f"an entry of its {gap.site}", ""
    else:
        is_prior = gap.site in places[0].values
        what = f"the prior of site {gap.site!r}" if is_prior else f"the likelihood at {gap.site!r}"
        nats = " nats"
    message = (
        f"The {of.whole} is not invariant: under group {label!r} {what}{where} changes by {gap.nats:.3g}{nats}; "
        f"expected at most {gap.allowed:.1g}."
    )
    if remedies := list(_remedies(frozen, symmetry, label, places)):
        return f"{message} {' Or: '.join(remedies)}"
    if gap.site in frozen.data_sites and _only_permutes(proof):
        instead = "return" if frozen.is_function else "write it as numpyro.factor of"
        return f"{message} Its entries are exchanged, their sum is not changed: {instead} the sum."
    if where:
        likelihood = " Or ask of the likelihood alone: part='likelihood'." if gap.site in places[0].values else ""
        return (
            f"{message} Its prior must be the same for every index along that axis, or the axis must carry no group."
            f"{likelihood}"
        )
    if len(carrying := _places_of(symmetry, label)) == 1:
        site, axis = carrying[0]
        return f"{message} Remove {label!r} from axis {axis} of {of.array} {site!r}: no other axis carries it."
    known = sorted(symmetry.axes)
    return f"{message} Check the axes of {known}, and whether another {of.array} that meets them is missing."


def _places_of(symmetry: Symmetry, label: str) -> list[tuple[str, int]]:
    """Site and axis, counted from the right, wherever a group (or any group) stands."""
    return [
        (site, position - len(entries))
        for site, entries in symmetry.axes.items()
        for position, entry in enumerate(entries)
        if any(axis.group is not None and label in (ALL_GROUPS, axis.group) for axis in labels((entry,)))
    ]


def _axes(symmetry: Symmetry, site: str, label: str) -> str:
    carried = [str(axis) for name, axis in _places_of(symmetry, label) if name == site]
    return f" (axis {', '.join(carried)})" if carried else ""


def _only_permutes(proof: Proof) -> bool:
    """Whether entries of an observed site are exchanged and no more, so that a factor of their sum would be invariant.

    Each entry has to come back somewhere to within its own rounding: in the sum a small break may hide.
    """
    frozen, action, site = proof.frozen, proof.action, proof.gap.site
    as_factor = frozen._replace(data_sites=tuple(name for name in frozen.data_sites if name != site))
    others = trial_elements(action.symmetry, np.random.default_rng(1), 1)
    trials = [proof.element, *(other for name, other in others if name == proof.label)]
    for at in proof.places:
        base = at.log_probs
        entries = np.sort(np.ravel(base[site]))
        own_rounding = frozen.allows([site], float(np.abs(entries).max()))
        for trial in trials:
            after = frozen.at(action.move(trial, at.values)).log_probs
            difference = np.abs(np.sort(np.ravel(after[site])) - entries).max()
            if not (difference <= own_rounding and largest_gap(as_factor, base, after).ratio <= 1.0):
                return False
    return True


def _remedies(frozen: FrozenModel, symmetry: Symmetry, label: str, places: list[Point]) -> Iterator[str]:
    """Every single edit that repairs the group, additions before removals: a removal may only be a smaller claim."""
    name = movable(symmetry)[0] if label == ALL_GROUPS else label
    found, evidence, trials = False, Evidence(frozen, places, [], []), partial(trial_elements, count=1)
    edits = _edits(symmetry, name, places[0].values, frozen.nouns)
    for text, edited in sorted(edits, key=lambda edit: not edit[0].startswith("Add")):
        if found and text.startswith("Remove"):
            return
        if prove(evidence, edited.restrict([name]), np.random.default_rng(1), trials).holds:
            found = True
            yield text


def _edits(symmetry: Symmetry, name: str, place: Values, of: Nouns) -> Iterator[tuple[str, Symmetry]]:
    size, signed = symmetry.groups[name].size, symmetry.groups[name].signed
    if not symmetry.is_plain:
        return
    for site, value in place.items():
        entries = padded(symmetry.axes.get(site, ()), value.ndim)
        for position, entry in enumerate(entries):
            axis, edits = position - len(entries), list[tuple[AxisEntry, str]]()
            where = f"axis {axis} of {of.array} {site!r}"
            if entry is None and value.shape[axis] == size:
                edits = [(name, f"Add {name!r} to {where}.")]
            elif entry == name:
                marked = (Unsigned(name), f"Mark {where} as Unsigned({name!r}).")
                edits = [(None, f"Remove {name!r} from {where}."), *([marked] if signed else [])]
            for edit, text in edits:
                axes = dict(symmetry.axes) | {site: (*entries[:position], edit, *entries[position + 1 :])}
                if name in group_names(axes):
                    yield text, symmetry.on_axes(axes)
    if signed:
        unsigned = replace(symmetry, kinds={**symmetry.kinds, name: "permutation"})
        yield f"Drop the signs of {name!r} (kind 'permutation'): the {of.whole} is not odd in it.", unsigned
