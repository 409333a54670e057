"""Checks of a report: what stands in the way of using relabelled draws, in sentences, the gravest first.

Knows reports; computes no statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from numpyro_symmetry.diagnostics.judged import Kind, disagreeing, is_alarm, is_slow
from numpyro_symmetry.diagnostics.words import by_chain, names, which_chains
from numpyro_symmetry.symmetry.shown import counted, listed
from numpyro_symmetry.traces.null import Null

if TYPE_CHECKING:
    from numpyro_symmetry.diagnostics.report import Report

# below these effective sizes to a chain, estimates are rough (Vehtari et al. 2021: 400 of four chains); sizes of tails
# are rough themselves, and the least of many is low
MIN_ESS_PER_CHAIN, MIN_TAIL_PER_CHAIN = 100.0, 50.0
# below this `share` of the null, slots have no identity to speak of
_NEAR_NULL = 0.15
# above this share of draws whose labels may be a guess, and below this ratio of slots' widths to the true ones, slots
# are not to be interpreted one by one
_MANY_GUESSES, _SHRUNK = 0.05, 0.95
# a chain that does not move for so many draws, and for half of all, is stuck
_STUCK = 10


def warnings_of(report: Report) -> list[str]:
    """Sentences that stand in the way of using the draws, the gravest first."""
    lines = [f"WARNING: {line}" for check in CHECKS for line in check(report)]
    if report.are_members:
        return lines
    num_chains, num_draws = report.shape
    if num_draws < 4:
        lines.append(f"Chains are of length {num_draws}: R-hat and ESS are unknown below four draws.")
    if num_chains > num_draws:
        lines.append(
            f"There are more chains ({num_chains}) than draws in each ({num_draws}): if these are (draw, chain, ...), "
            "put chains first, np.swapaxes(value, 0, 1)."
        )
    if num_chains < 2:
        lines.append("There is one chain: R-hat needs at least two, so that a chain of its own mode cannot be seen.")
    return lines


def is_made_up(null: Null, num_slots: dict[str, int]) -> bool:
    """Whether in no site slots agree with themselves more than shuffled draws do."""
    return (
        null.can_tell
        and max(num_slots.values()) > 1
        and null.share < _NEAR_NULL
        and all(null_of_site.share < _NEAR_NULL for null_of_site in null.by_site.values())
    )


def is_in_doubt(report: Report) -> bool:
    """Whether single slots are not to be interpreted, however far apart they are in the mean."""
    return report.ambiguous > _MANY_GUESSES or (report.null is not None and is_made_up(report.null, report.num_slots))


def without_identity(null: Null, num_slots: dict[str, int]) -> list[str]:
    """Sites in which slots are no more alike than in shuffled draws, where there are others."""
    # where every group has one slot, no variance lies between slots, whatever the draws
    several = {
        site: null_of_site
        for site, null_of_site in null.by_site.items()
        if not np.isclose(null_of_site.explained_null, 0.0)
    }
    unlike = [site for site, null_of_site in several.items() if null_of_site.share < _NEAR_NULL]
    can_tell = null.can_tell and max(num_slots.values()) > 1
    return unlike if can_tell and len(unlike) < len(null.by_site) else []


def _stuck(report: Report) -> Iterator[str]:
    num_chains, num_draws = report.shape
    stays = np.array(report.longest_stay)
    if num_draws < 2:
        return
    never = np.flatnonzero(stays == num_draws)
    if report.are_members:
        if len(never):
            yield f"all {num_draws} members are the same, labels apart."
        return
    if len(never) == num_chains:
        yield (
            f"the sampler never moved: in {'every' if num_chains > 1 else 'the only'} chain all {num_draws} draws are "
            "the same, labels apart. That relabelled chains agree means nothing; start it again."
        )
    elif len(never):
        yield f"{which_chains(never)} never moved: all {num_draws} draws are the same, labels apart."
    rarely = np.flatnonzero((stays < num_draws) & (stays >= max(_STUCK, 0.5 * num_draws)))
    if len(rarely):
        yield (
            f"{which_chains(rarely)} stood still for {listed([str(stays[k]) for k in rarely])} of {num_draws} draws in "
            "a row."
        )
    if report.repeated:
        which = f"{which_chains(np.array(report.repeated))} repeat{'s' * (len(report.repeated) == 1)}"
        yield (
            f"{which} an earlier one draw by draw, labels apart. That these agree means nothing: give each chain its "
            "own seed."
        )


def _undefined(report: Report) -> Iterator[str]:
    for row in report.rows:
        chains = row.chains
        total = chains.num_judged + chains.num_still + chains.num_undefined
        if chains.num_undefined:
            of = f" {counted(chains.num_undefined, 'entry')} of {total} of" if total > 1 else ""
            yield (
                f"could not judge{of} {row.name}: {counted(sum(chains.num_not_a_number), 'draw', 'is', 'are')} not a "
                f"number ({by_chain(chains.num_not_a_number)})."
            )
        if any(chains.num_infinite):
            of = counted(sum(chains.num_infinite), "draw")
            yield f"{row.name} is infinite in {of} ({by_chain(chains.num_infinite)})."
    if still := [row for row in report.rows if row.r_hat == np.inf]:
        yield (
            f"chains do not move in {names(still)} and differ there (R-hat inf)"
            + (", which no label changes." if all(row.is_invariant for row in still) else ".")
        )


def _disagreeing(report: Report) -> Iterator[str]:
    if beside := disagreeing(report.rows, beside=True):
        yield (
            f"chains disagree on {names(beside)} (R-hat {beside[0].r_hat:.3f}), which the symmetry does not name: if "
            "no label moves it, this is not a matter of labels."
        )
    alarms = disagreeing(report.rows)
    if alarms and report.sign_suspected:
        yield (
            f"chains disagree on {names(alarms)} (R-hat {alarms[0].r_hat:.3f}), but not on squares and absolute "
            "values: it may be a sign that chains have changed, which is a matter of labels. Relabel with signs: "
            "find_symmetry looks for them unless signs=False says not to, or an array of a function's parameters has "
            "no negative entry; in a symmetry of your own write kind='signed'. If the model has no such symmetry, "
            "chains are in different modes."
        )
        return
    fixed, moved = (
        [row for row in alarms if (row.kind is Kind.INVARIANT) is k and row.r_hat < np.inf] for k in (True, False)
    )
    if fixed:
        also = f", and on {names(moved)} after relabelling ({moved[0].r_hat:.3f})" if moved else ""
        yield (
            f"chains disagree on {names(fixed)}, which no label changes (R-hat {fixed[0].r_hat:.3f}){also}: this is "
            "not a matter of labels."
        )
    elif moved:
        yield (
            f"chains still disagree on {names(moved)} after relabelling (R-hat {moved[0].r_hat:.3f}): the remaining "
            "disagreement is not due to labels."
        )


def _slow(report: Report) -> Iterator[str]:
    slow = sorted((row for row in report.rows if is_slow(row)), key=lambda row: -row.chains.r_hat_undecided)
    if slow:
        smallest = min(row.ess for row in slow)
        yield (
            f"chains forget too slowly to tell whether they agree on {names(slow)} (R-hat "
            f"{slow[0].chains.r_hat_undecided:.3f}, effective sample size {smallest:.0f}): run longer."
        )


def few_effective_draws(report: Report) -> Iterator[str]:
    """Say which effective sample size is too small to rely on quantiles."""
    num_chains, _ = report.shape

    # where chains disagree or are slow, another check has said more
    rows = [row for row in report.rows if not is_alarm(row) and not is_slow(row)]
    sizes = [(row.ess, MIN_ESS_PER_CHAIN, row.name, "") for row in rows]
    sizes += [(row.tail_ess, MIN_TAIL_PER_CHAIN, row.name, " in its tails") for row in rows]
    if few := [one for one in sizes if one[0] < one[1] * num_chains]:
        size, least, name, where = min(few)
        yield (
            f"{name} has an effective sample size of {size:.0f}{where} from {counted(num_chains, 'chain')}, "
            f"fewer than {least:.0f} to a chain: run longer before relying on "
            "its quantiles."
        )


def _ambiguous(report: Report) -> Iterator[str]:
    noun = "members" if report.are_members else "draws"
    if not report.converged:
        yield "relabelling did not settle: many labellings are about as good as each other."
    if report.ambiguous > _MANY_GUESSES:
        yield (
            f"in {report.ambiguous:.0%} of {noun} other labels are at least a twentieth as likely as the best: do not "
            "interpret individual slots."
        )
    null = report.null
    if null is None or not null.can_tell or max(report.num_slots.values()) < 2:
        return
    if is_made_up(null, report.num_slots):
        yield (
            "slots agree with themselves hardly more than shuffled draws do: relabelling made up what structure there "
            "seems to be. Do not interpret single slots."
        )
    if null.scale_ratio < _SHRUNK:
        yield (
            f"relabelling shrinks standard deviations within slots to about {null.scale_ratio:.0%} of the truth, where "
            "slots overlap."
        )


# each yields sentences on what stands in the way of using a report's draws; the gravest first
CHECKS: tuple[Callable[[Report], Iterable[str]], ...] = (
    _stuck,
    _undefined,
    _disagreeing,
    _slow,
    few_effective_draws,
    _ambiguous,
)
