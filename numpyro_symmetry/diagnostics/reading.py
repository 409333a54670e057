"""A report in words: what stands in the way of using relabelled draws, the gravest first, and what is so.

Knows reports; computes no statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from numpyro_symmetry.diagnostics.chains import MAX_R_HAT
from numpyro_symmetry.diagnostics.judged import MIN_CHANCE, is_alarm, is_slow, of_labels
from numpyro_symmetry.diagnostics.soft_labels import MAX_WIDTH
from numpyro_symmetry.traces.null import CannotTell, Null

if TYPE_CHECKING:
    from numpyro_symmetry.diagnostics.report import Report, Row

# below these effective sizes a chain, estimates are rough (Vehtari et al. 2021: 400 of four chains); of tails sizes are
# rough themselves, and the least of many is low
MIN_ESS_PER_CHAIN, MIN_TAIL_PER_CHAIN = 100.0, 50.0
# below this share of what relabelling cannot explain, slots have no identity to speak of
_NEAR_NULL = 0.15
# above this share of draws whose labels may be a guess, and below this ratio of slots' widths to the true ones, slots
# are not to be interpreted one by one
_MANY_GUESSES, _SHRUNK = 0.05, 0.95
# a chain that stays for so many draws, and for half of all, is stuck
_STUCK = 10
_MAX_NAMES = 3
# numbers of so many chains are written out
_FEW_CHAINS = 8


def warnings_of(found: Report) -> list[str]:
    """Sentences that stand in the way of using the draws, the gravest first."""
    lines = [f"WARNING: {line}" for check in CHECKS for line in check(found)]
    if found.are_members:
        return lines
    num_chains, num_draws = found.shape
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


def facts(found: Report) -> list[str]:
    """What is so, and stands in nobody's way."""
    lines = [_relabelled(found), of_labels(found)]
    if found.are_members:
        for name, mean in found.transpositions.items():
            size = found.num_slots[name]
            random = size - np.sum(1.0 / np.arange(1, size + 1))
            lines.append(
                f"From one member to the next, labels of {name!r} are {mean:.1f} transpositions apart; labels at "
                f"random, {random:.1f}."
            )
    if found.part == "likelihood":
        lines.append(
            "The symmetry is the likelihood's alone: the prior tells labels apart, and relabelled draws say what the "
            "slots are, not which of them the prior means by which name."
        )
    if found.null is not None:
        lines += _of_null(found)
    invariant = [row.r_hat for row in found.rows if row.is_invariant and not np.isnan(row.r_hat)]
    if invariant:
        lines.append(f"The largest R-hat of what no label changes is {max(invariant):.3f}.")
    by_chance = [row for row in found.rows if row.r_hat > MAX_R_HAT and row.chance >= MIN_CHANCE and not is_slow(row)]
    if by_chance:
        most = max(by_chance, key=lambda row: row.r_hat)
        lines.append(
            f"R-hat {most.r_hat:.3f} of {most.name} is no more than chance gives among {found.num_judged} numbers at "
            "these effective sample sizes."
        )
    lines += [
        f"{_entries(row.chains.num_still)} of {row.name} never change in any chain, and have no R-hat."
        for row in found.rows
        if row.chains.num_still and row.chains.num_judged
    ]
    return [*lines, _next(found)]


def _agree(found: Report) -> bool:
    """Whether chains were looked at, could be told apart if they differed, and were not."""
    num_chains, num_draws = found.shape
    told = bool(found.rows) and num_chains > 1 and num_draws >= 4 and max(found.longest_stay) < 0.5 * num_draws
    return told and not (
        found.repeated or _disagree(found) or any(is_slow(row) or row.chains.num_undefined for row in found.rows)
    )


def _disagree(found: Report) -> bool:
    return any(is_alarm(row) for row in found.rows)


def _next(found: Report) -> str:
    """What to do."""
    if _disagree(found):
        look = "find out in what chains differ, by diagnostics.modes(out)"
        first = "relabel with signs" if found.sign_suspected else look
        return f"Next: {first}, or run longer and from other starts; until chains agree, interpret no slot."
    longer = "" if found.are_members or _agree(found) and not [*_few(found)] else "run more chains, or longer ones; "
    numbers = {} if found.null is None else found.null.num_identified
    apart = all(numbers.get(name) == size for name, size in found.num_slots.items())
    if _is_in_doubt(found) or not apart:
        summed = ", or sum labels out by diagnostics.soft_labels(out)"
        is_small = max(found.num_slots.values(), default=0) <= MAX_WIDTH
        return f"Next: {longer}rely on what no label changes{summed * is_small}."
    return f"Next: {longer}summarise out.data, slot by slot."


def headline(found: Report) -> str:
    """The one thing to know: whether chains agree, and which slots are some."""
    return f"{_of_chains(found)}{_of_slots(found)}."


def _of_chains(found: Report) -> str:
    if found.are_members:
        return "Members were brought to one set of labels"
    if _agree(found):
        return f"Chains agree, as far as {'so few effective' if [*_few(found)] else 'these'} draws show"
    if not _disagree(found):
        return "Whether chains agree, these draws do not tell"
    return "Chains disagree; it may be by a sign" if found.sign_suspected else "Chains disagree, whatever their labels"


def _of_slots(found: Report) -> str:
    if _disagree(found):
        return ": interpret no slot"
    if _is_in_doubt(found):
        return "; interpret no slot by itself"
    known = {} if found.null is None else found.null.num_identified
    known = {name: number for name, number in known.items() if isinstance(number, int)}
    if found.null is None or not known:
        return "; whether single slots may be interpreted is not known"
    if unclear := [name for name, number in known.items() if number < found.num_slots[name]]:
        some = "not all" if any(known.values()) else "no"
        return (
            f"; {some} slots of {_list([repr(name) for name in unclear])} stand apart: of the others rely on what no "
            "label changes"
        )
    sites = [row.name for row in found.rows if not row.is_invariant] or list(found.null.by_site)
    unlike = _without_identity(found.null, found.num_slots)
    return f"; single slots may be interpreted in {_some([site for site in sites if site not in unlike])}"


def _relabelled(found: Report) -> str:
    """Where labels changed: in chains, or between them."""
    if found.are_members:
        return f"{found.share_relabelled:.0%} of members came with labels other than the most common."
    num_chains, num_draws = found.shape
    changes = np.array(found.label_changes)
    moved = int((changes > 0).sum())
    of = f"{'chain' if num_chains == 1 else 'chains'} of {num_draws} draws"
    if moved:
        few = num_chains <= _FEW_CHAINS

        def each(of_chains: Sequence[int]) -> str:
            return _list([str(k) for k in of_chains]) if few else f"{min(of_chains)} to {max(of_chains)}"

        alone = found.sign_changes == found.label_changes
        signs = f"; of these, signs alone {each(found.sign_changes)}" if any(found.sign_changes) and not alone else ""
        what = "Signs" if alone else "Labels"
        return f"{what} changed within {moved} of {num_chains} {of} ({each(found.label_changes)} times{signs})."
    if found.share_relabelled:
        return f"Labels changed within none of {num_chains} {of}, and differ from chain to chain."
    return f"Labels are the same in all of {num_chains} {of}."


def _is_in_doubt(found: Report) -> bool:
    """Whether single slots are not to be interpreted, however far apart they are in the mean."""
    return found.ambiguous > _MANY_GUESSES or (found.null is not None and _is_made_up(found.null, found.num_slots))


def _is_made_up(null: Null, num_slots: dict[str, int]) -> bool:
    """Whether in no site slots agree with themselves more than shuffled draws do."""
    told = null.can_tell and max(num_slots.values()) > 1
    return told and null.share < _NEAR_NULL and all(one.share < _NEAR_NULL for one in null.by_site.values())


def _without_identity(null: Null, num_slots: dict[str, int]) -> list[str]:
    """Sites in which slots are no more alike than in shuffled draws, where there are others."""
    # where groups have one slot each, no variance lies between slots, of whatever draws
    several = {site: one for site, one in null.by_site.items() if not np.isclose(one.explained_null, 0.0)}
    unlike = [site for site, one in several.items() if one.share < _NEAR_NULL]
    told = null.can_tell and max(num_slots.values()) > 1
    return unlike if told and len(unlike) < len(null.by_site) else []


def _of_null(found: Report) -> Iterator[str]:
    null, num_slots = found.null, found.num_slots
    if null is None:
        return
    yield (
        f"Slots explain {null.explained:.0%} of the variance of {_some(list(null.by_site))}; of shuffled draws, "
        f"relabelled in the same way, {null.explained_null:.0%}."
    )
    if unlike := _without_identity(null, num_slots):
        shares = ", ".join(
            f"{site} ({null.by_site[site].explained:.0%}, shuffled {null.by_site[site].explained_null:.0%})"
            for site in unlike
        )
        others = _some([site for site in null.by_site if site not in unlike])
        yield (
            f"Slots have no identity in {shares}. Alone these would tell none apart: their numbers belong to the slots "
            f"of {others}, and can be reported where those can."
        )
    for name, size in num_slots.items():
        number = null.num_identified.get(name)
        if name in null.separation and np.isinf(null.separation[name]).all():
            yield f"{name!r} has one slot, and no other that it could be taken for."
        elif isinstance(number, CannotTell):
            yield (
                f"Whether slots of {name!r} are identified: {number}. Draws that follow each other while their chain "
                "remembers count as one."
            )
        elif number is not None and size == 1:
            further = "further" if number else "no further"
            yield f"The one slot of {name!r} is {further} from its negative than that of shuffled draws."
        elif number is not None:
            yield (
                f"{number} of {size} slots of {name!r} are further apart than those of shuffled draws"
                f"{_but(found, number)}."
            )


def _but(found: Report, number: int) -> str:
    """Why slots that are apart may not be interpreted all the same."""
    if not number:
        return ""
    if _disagree(found):
        return "; what they are, chains disagree on"
    if _is_in_doubt(found):
        return " in the mean, but which draw's labels are right is in doubt"
    return ", and so identified"


# ---- what stands in the way --------------------------------------------------------------------------------------


def _stuck(found: Report) -> Iterator[str]:
    num_chains, num_draws = found.shape
    stays = np.array(found.longest_stay)
    if num_draws < 2:
        return
    never = np.flatnonzero(stays == num_draws)
    if found.are_members:
        if len(never):
            yield f"all {num_draws} members are the same, labels apart."
        return
    if len(never) == num_chains:
        yield (
            f"the sampler never moved: in {'every' if num_chains > 1 else 'the only'} chain all {num_draws} draws are "
            "the same, labels apart. That relabelled chains agree means nothing; start it again."
        )
    elif len(never):
        yield f"{_chains(never)} never moved: all {num_draws} draws are the same, labels apart."
    rarely = np.flatnonzero((stays < num_draws) & (stays >= max(_STUCK, 0.5 * num_draws)))
    if len(rarely):
        yield (
            f"{_chains(rarely)} stood still for {_list([str(stays[k]) for k in rarely])} of {num_draws} draws in a row."
        )
    if found.repeated:
        which = f"{_chains(np.array(found.repeated))} repeat{'s' * (len(found.repeated) == 1)}"
        yield (
            f"{which} an earlier one draw by draw, labels apart. That these agree means nothing: give each chain its "
            "own seed."
        )


def _undefined(found: Report) -> Iterator[str]:
    for row in found.rows:
        chains = row.chains
        total = chains.num_judged + chains.num_still + chains.num_undefined
        if chains.num_undefined:
            of = f" {_entries(chains.num_undefined)} of {total} of" if total > 1 else ""
            yield (
                f"could not judge{of} {row.name}: {sum(chains.num_not_a_number)} draws are not a number "
                f"({_by_chain(chains.num_not_a_number)})."
            )
        if any(chains.num_infinite):
            yield (f"{row.name} is infinite in {sum(chains.num_infinite)} draws ({_by_chain(chains.num_infinite)}).")
    still = [row for row in found.rows if row.r_hat == np.inf]
    if still:
        yield (
            f"chains do not move in {_names(still)} and differ there (R-hat inf)"
            + (", which no label changes." if all(row.is_invariant for row in still) else ".")
        )


def _disagreeing(found: Report) -> Iterator[str]:
    alarms = sorted((row for row in found.rows if is_alarm(row)), key=lambda row: -row.r_hat)
    if alarms and found.sign_suspected:
        yield (
            f"chains disagree on {_names(alarms)} (R-hat {alarms[0].r_hat:.3f}), but not on squares and absolute "
            "values: it may be a sign that chains have changed, which is a matter of labels. Relabel with signs: "
            "find_symmetry looks for them unless signs=False says not to, or an array of a function's parameters has "
            "no negative entry; in a symmetry of your own write kind='signed'. If the model has no such symmetry, "
            "chains are in different modes."
        )
        return
    fixed, moved = ([row for row in alarms if row.is_invariant is k and row.r_hat < np.inf] for k in (True, False))
    if fixed:
        also = f", and on {_names(moved)} after relabelling ({moved[0].r_hat:.3f})" if moved else ""
        yield (
            f"chains disagree on {_names(fixed)}, which no label changes (R-hat {fixed[0].r_hat:.3f}){also}: this is "
            "not a matter of labels."
        )
    elif moved:
        yield (
            f"chains still disagree on {_names(moved)} after relabelling (R-hat {moved[0].r_hat:.3f}): the remaining "
            "disagreement is not due to labels."
        )


def _slow(found: Report) -> Iterator[str]:
    slow = sorted((row for row in found.rows if is_slow(row)), key=lambda row: -row.chains.r_hat_undecided)
    if slow:
        smallest = min(row.ess for row in slow)
        yield (
            f"chains forget too slowly to tell whether they agree on {_names(slow)} (R-hat "
            f"{slow[0].chains.r_hat_undecided:.3f}, effective sample size {smallest:.0f}): run longer."
        )


def _few(found: Report) -> Iterator[str]:
    num_chains, _ = found.shape

    # of chains that do not move, hardly, or not alike, more has been said
    rows = [row for row in found.rows if not is_alarm(row) and not is_slow(row)]
    sizes = [(row.ess, MIN_ESS_PER_CHAIN, row.name, "") for row in rows]
    sizes += [(row.tail_ess, MIN_TAIL_PER_CHAIN, row.name, " in its tails") for row in rows]
    few = [one for one in sizes if one[0] < one[1] * num_chains]
    if few:
        size, least, name, where = min(few)
        yield (
            f"{name} has an effective sample size of {size:.0f}{where} from {num_chains} "
            f"chain{'s' if num_chains > 1 else ''}, fewer than {least:.0f} to a chain: run longer before relying on "
            "its quantiles."
        )


def _ambiguous(found: Report) -> Iterator[str]:
    noun = "members" if found.are_members else "draws"
    if not found.converged:
        yield "relabelling did not settle: many labellings are about as good as each other."
    if found.ambiguous > _MANY_GUESSES:
        yield (
            f"in {found.ambiguous:.0%} of {noun} other labels are at least a twentieth as likely as the best: do not "
            "interpret individual slots."
        )
    null = found.null
    if null is None or not null.can_tell or max(found.num_slots.values()) < 2:
        return
    if _is_made_up(null, found.num_slots):
        yield (
            "slots agree with themselves hardly more than shuffled draws do: relabelling made up what structure there "
            "seems to be. Do not interpret single slots."
        )
    if null.scale_ratio < _SHRUNK:
        yield (
            f"relabelling shrinks standard deviations within slots to about {null.scale_ratio:.0%} of the truth, where "
            "slots overlap."
        )


# of all that a report found, each says what stands in the way; the gravest first
CHECKS: tuple[Callable[[Report], Iterable[str]], ...] = (_stuck, _undefined, _disagreeing, _slow, _few, _ambiguous)


# ---- words -------------------------------------------------------------------------------------------------------


def _names(rows: Sequence[Row]) -> str:
    some = [row.name for row in rows[:_MAX_NAMES]]
    return ", ".join(some) + (f" and {len(rows) - _MAX_NAMES} more" if len(rows) > _MAX_NAMES else "")


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


def _list(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _some(words: Sequence[str]) -> str:
    few = len(words) <= _MAX_NAMES + 1
    return _list(words) if few else f"{', '.join(words[:_MAX_NAMES])} and {len(words) - _MAX_NAMES} more"


def _chains(which: np.ndarray) -> str:
    return f"chain{'s' if len(which) > 1 else ''} {_list([str(k) for k in which])}"


def _by_chain(counts: Sequence[int]) -> str:
    return ", ".join(f"chain {k}: {count}" for k, count in enumerate(counts) if count)
