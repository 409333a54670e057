"""A report in words: a headline, the facts, and what to do next. Knows reports; computes no statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from numpyro_symmetry.diagnostics.chains import MAX_R_HAT
from numpyro_symmetry.diagnostics.checks import few_effective_draws, is_in_doubt, without_identity
from numpyro_symmetry.diagnostics.judged import MIN_CHANCE, Kind, disagreeing, is_alarm, is_slow, of_labels
from numpyro_symmetry.diagnostics.soft_labels import MAX_WIDTH
from numpyro_symmetry.diagnostics.words import names
from numpyro_symmetry.symmetry.shown import counted, each_of, listed, some_of
from numpyro_symmetry.traces.null import CannotTell

if TYPE_CHECKING:
    from numpyro_symmetry.diagnostics.report import Report

_UNKNOWN = "Whether chains agree, these draws do not tell"
# up to so many chains, numbers are written out chain by chain
_FEW_CHAINS = 8


def facts(report: Report) -> list[str]:
    """Sentences of facts that do not stand in the way of using the draws; the last one says what to do next."""
    lines = [_relabelled(report), of_labels(report)]
    if report.are_members:
        for name, mean in report.transpositions.items():
            random = report.transpositions_at_random[name]
            lines.append(
                f"From one member to the next, labels of {name!r} are {mean:.1f} transpositions apart; labels at "
                f"random, {random:.1f}."
            )
    if report.part == "likelihood":
        lines.append(
            "The symmetry is the likelihood's alone: the prior tells labels apart, and relabelled draws say what the "
            "slots are, not which of them the prior means by which name."
        )
    lines += _of_null(report)
    if invariant := [row.r_hat for row in report.rows if row.is_invariant and not np.isnan(row.r_hat)]:
        lines.append(f"The largest R-hat of what no label changes is {max(invariant):.3f}.")
    by_chance = [row for row in report.rows if row.r_hat > MAX_R_HAT and row.chance >= MIN_CHANCE and not is_slow(row)]
    if by_chance:
        most = max(by_chance, key=lambda row: row.r_hat)
        lines.append(
            f"R-hat {most.r_hat:.3f} of {most.name} is no more than chance gives among "
            f"{counted(report.num_judged, 'number')} at these effective sample sizes."
        )
    lines += [
        f"No R-hat of {counted(row.chains.num_still, 'entry')} of {row.name}: no chain changes there."
        for row in report.rows
        if row.chains.num_still and row.chains.num_judged
    ]
    return [*lines, _next(report)]


def _agree(report: Report) -> bool:
    """Whether chains could have been told apart if they differed, and were not."""
    num_chains, num_draws = report.shape
    could_tell = bool(report.rows) and num_chains > 1 and num_draws >= 4 and max(report.longest_stay) < 0.5 * num_draws
    apart = report.repeated or any(is_alarm(row) or is_slow(row) or row.chains.num_undefined for row in report.rows)
    return could_tell and not apart


def _disagree(report: Report) -> bool:
    return bool(disagreeing(report.rows))


def _next(report: Report) -> str:
    """A sentence on what to do next."""
    if _disagree(report):
        look = "find out in what chains differ, by diagnostics.modes(out)"
        first = "relabel with signs" if report.sign_suspected else look
        return f"Next: {first}, or run longer and from other starts; until chains agree, interpret no slot."
    if beside := disagreeing(report.rows, beside=True):
        return f"Next: if labels move {names(beside)}, name it in the symmetry, or compute it again by rebase(model=)."
    longer = (
        ""
        if report.are_members or _agree(report) and not [*few_effective_draws(report)]
        else "run more chains, or longer ones; "
    )
    numbers = {} if report.null is None else report.null.num_identified
    apart = all(numbers.get(name) == size for name, size in report.num_slots.items())
    if is_in_doubt(report) or not apart:
        summed = ", or sum labels out by diagnostics.soft_labels(out)"
        is_small = max(report.num_slots.values(), default=0) <= MAX_WIDTH
        return f"Next: {longer}rely on what no label changes{summed * is_small}."
    return f"Next: {longer}{'then ' * bool(longer)}summarise out.data, slot by slot."


def headline(report: Report) -> str:
    """The sentence to read first: whether chains agree, and whether slots may be interpreted."""
    return f"{_of_chains(report)}{_of_slots(report)}."


def _of_chains(report: Report) -> str:
    if report.are_members:
        return "Members were brought to one set of labels"
    if _agree(report):
        return f"Chains agree, as far as {'so few effective' if [*few_effective_draws(report)] else 'these'} draws show"
    if not _disagree(report):
        beside = disagreeing(report.rows, beside=True)
        return f"Chains disagree in {names(beside)}, of which the symmetry does not speak" if beside else _UNKNOWN
    return "Chains disagree; it may be by a sign" if report.sign_suspected else "Chains disagree, whatever their labels"


def _of_slots(report: Report) -> str:
    if _disagree(report):
        return ": interpret no slot"
    if is_in_doubt(report):
        return "; interpret no slot by itself"
    known = {} if report.null is None else report.null.num_identified
    known = {name: number for name, number in known.items() if isinstance(number, int)}
    if report.null is None or not known:
        return "; whether single slots may be interpreted is not known"
    if unclear := [name for name, number in known.items() if number < report.num_slots[name]]:
        some = "not all" if any(known.values()) else "no"
        return (
            f"; {some} slots of {some_of(list(map(repr, unclear)))} stand apart: of the others rely on what no "
            "label changes"
        )
    sites = [row.name for row in report.rows if row.kind is Kind.MOVED] or list(report.null.by_site)
    unlike = without_identity(report.null, report.num_slots)
    return f"; single slots may be interpreted in {some_of([site for site in sites if site not in unlike])}"


def _relabelled(report: Report) -> str:
    """Where labels changed: in chains, or between them."""
    if report.are_members:
        return f"{report.share_relabelled:.0%} of members came with labels other than the most common."
    num_chains, num_draws = report.shape
    moved = sum(count > 0 for count in report.label_changes)
    of = f"{'chain' if num_chains == 1 else 'chains'} of {counted(num_draws, 'draw')}"
    if moved:
        few = num_chains <= _FEW_CHAINS

        def each(of_chains: Sequence[int]) -> str:
            return listed([str(k) for k in of_chains]) if few else f"{min(of_chains)} to {max(of_chains)}"

        alone = report.sign_changes == report.label_changes
        signs = f"; of these, signs alone {each(report.sign_changes)}" if any(report.sign_changes) and not alone else ""
        what, times = "Signs" if alone else "Labels", counted(each(report.label_changes), "time")
        return f"{what} changed within {moved} of {num_chains} {of} ({times}{signs})."
    if report.share_relabelled:
        return f"Labels changed within none of {num_chains} {of}, and differ from chain to chain."
    return f"Labels are the same in all of {num_chains} {of}."


def _of_null(report: Report) -> Iterator[str]:
    null = report.null
    if null is None:
        return
    yield (
        f"Slots explain {null.explained:.0%} of the variance of {some_of(list(null.by_site))}; of shuffled draws, "
        f"relabelled in the same way, {null.explained_null:.0%}."
    )
    if unlike := without_identity(null, report.num_slots):
        shares = ", ".join(
            f"{site} ({null.by_site[site].explained:.0%}, shuffled {null.by_site[site].explained_null:.0%})"
            for site in unlike
        )
        others = some_of([site for site in null.by_site if site not in unlike])
        yield (
            f"Slots have no identity in {shares}. Alone these would tell none apart: their numbers belong to the slots "
            f"of {others}, and can be reported where those can."
        )
    for (size, number), groups in null.groups_alike.items():
        several = some_of(list(map(repr, groups)))
        if number is None:
            has = "has one slot" if len(groups) == 1 else "have one slot each"
            yield f"{several} {has}, and no other that it could be taken for."
        elif isinstance(number, CannotTell):
            yield (
                f"Whether slots of {several} are identified: {number}. Draws that follow each other while their chain "
                "remembers count as one."
            )
        else:
            alone = f"The slot of {each_of(groups)} is {'no ' * (not number)}further from its negative"
            slots = alone if size == 1 else f"{number} of {size} slots of {each_of(groups)} are further apart"
            yield f"{slots} than those of shuffled draws{_but(report, number)}."


def _but(report: Report, number: int) -> str:
    """The end of a sentence on slots that are apart: why they may not be interpreted all the same, if so."""
    if not number:
        return ""
    if _disagree(report):
        return "; what they are, chains disagree on"
    if is_in_doubt(report):
        return " in the mean, but which draw's labels are right is in doubt"
    return ", and so identified"
