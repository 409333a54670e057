"""How much of R-hat and ESS was due to labels: a trace as sampled, relabelled, and its invariants, side by side.

Puts together draws, invariants, statistics of chains and the null; `reading` says in words what they mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from numpyro_symmetry.assignment.passes import chunks_of, in_pieces, is_stored, map_reduce
from numpyro_symmetry.containers import Trace
from numpyro_symmetry.diagnostics.chains import AsSampled, Chains, as_sampled, chains_of, longest_run, worst
from numpyro_symmetry.diagnostics.checks import warnings_of
from numpyro_symmetry.diagnostics.inputs import at_random, invariants_of, pair_of, same_draws, transpositions, unchanged
from numpyro_symmetry.diagnostics.invariants import each_invariant, has_both_signs
from numpyro_symmetry.diagnostics.judged import Kind, disagreeing, is_alarm
from numpyro_symmetry.diagnostics.reading import facts, headline
from numpyro_symmetry.steps import say, saying
from numpyro_symmetry.symmetry import SymmetryError, as_html, warn
from numpyro_symmetry.symmetry.arguments import as_flag
from numpyro_symmetry.symmetry.hard import from_element
from numpyro_symmetry.traces import Null, Rebased
from numpyro_symmetry.traces.summary import A_GUESS, share_relabelled


class Row(NamedTuple):
    """Diagnostics of one site or invariant: the worst of its entries, before and after.

    Attributes
    ----------
    name
        Name of the site or invariant.
    r_hat_raw, r_hat
        Largest rank-normalised split R-hat, as sampled and relabelled. Infinite where chains do not move and differ;
        NaN where there is none.
    ess_raw, ess, tail_ess
        Smallest effective sample sizes: as sampled, relabelled, and relabelled for the 5 % and 95 % quantiles.
    num_apart_raw, chance_raw
        How many entries have an R-hat above 1.01, as sampled (relabelled, ``chains.num_apart``); and the probability
        that one of as many numbers as are looked at is as far apart by chance. NaN where no R-hat is above 1.01, or
        these draws do not tell.
    shape
        Shape of a draw of the site; of an invariant ``(entries,)``.
    kind
        Whether labels move the row's numbers, none changes them, or nobody says either.
    chance
        Probability with which chains that agree differ as much in *any* of the numbers that are looked at
        (Bonferroni's bound). NaN where chains are too short for how slowly they forget.
    chains
        All statistics of the relabelled chains.
    """

    name: str
    r_hat_raw: float
    r_hat: float
    ess_raw: float
    ess: float
    tail_ess: float
    num_apart_raw: int
    chance_raw: float
    shape: tuple[int, ...]
    kind: Kind
    chance: float
    chains: Chains

    @property
    def is_invariant(self) -> bool:
        """Whether no label changes the row's numbers."""
        return self.kind is Kind.INVARIANT


class Report(NamedTuple):
    """What relabelling did, and what it cannot tell. Prints as warnings, a table and a reading.

    Attributes
    ----------
    rows
        A row for each site the symmetry moves, then one for each invariant, whose two columns agree by definition. No
        rows for members of an ensemble, which are independent by construction.
    share_relabelled
        Share of draws whose labels were changed, after the most frequent element is taken as no change.
    label_changes
        For each chain, how many draws have other labels, or signs, than the draw before them; empty for members.
    sign_changes
        How many of these have other signs, and the same labels.
    ambiguous
        Share of draws whose next best labels are at least a twentieth as likely.
    null
        What relabelling alone explains; ``None`` if it was not computed.
    num_slots
        Group -> number of its labels; of units in blocks that move too, those of all blocks.
    transpositions
        Group -> mean number of exchanges of two labels from one draw of a chain, or one member, to the next.
    transpositions_at_random
        Group -> the expected number of such exchanges between labels drawn at random.
    converged
        Whether relabelling settled.
    shape
        Numbers of chains and of draws in each.
    are_members
        Whether the draws are members of an ensemble.
    part
        What has the symmetry: the ``"joint"`` density, or the ``"likelihood"`` alone.
    longest_stay
        For each chain, the longest run of draws that are the same, labels apart.
    repeated
        Chains that move, and equal an earlier chain draw by draw, labels apart: samplers that had the same seed.
    sign_suspected
        Whether chains differ only in what a change of sign could make differ, in a symmetry without signs.
    warnings
        Sentences that stand in the way of using the relabelled draws, the gravest first.
    """

    rows: tuple[Row, ...]
    share_relabelled: float
    label_changes: tuple[int, ...]
    sign_changes: tuple[int, ...]
    ambiguous: float
    null: Null | None
    num_slots: dict[str, int]
    transpositions: dict[str, float]
    transpositions_at_random: dict[str, float]
    converged: bool
    shape: tuple[int, int]
    are_members: bool
    part: str
    longest_stay: tuple[int, ...]
    repeated: tuple[int, ...]
    sign_suspected: bool
    warnings: tuple[str, ...]

    @property
    def worst(self) -> Row:
        """The relabelled site or the invariant of largest R-hat, infinite ones included."""
        if not self.rows:
            raise SymmetryError("Members of an ensemble are no chains: the report has no R-hat.")
        known = [row for row in self.rows if not np.isnan(row.r_hat)] or list(self.rows)
        return max(known, key=lambda row: row.r_hat)

    @property
    def num_judged(self) -> int:
        """How many numbers were looked at."""
        return sum(row.chains.num_judged for row in self.rows)

    @property
    def reading(self) -> str:
        """The table in words."""
        return "\n".join((headline(self), *self.warnings, *facts(self)))

    def __str__(self) -> str:
        first = "\n".join((headline(self), *self.warnings))
        return "\n\n".join(part for part in (first, _table(self.rows), "\n".join(facts(self))) if part)

    __repr__ = __str__
    _repr_html_ = as_html


def report(
    raw: Any,
    out: Rebased | None = None,
    invariants: Mapping[str, ArrayLike] | None = None,
    *,
    num_leading_dims: int | None = None,
    progress_bar: bool = True,
) -> Report:
    """R-hat and effective sample sizes as sampled, relabelled and of invariants, with the null, and what they mean.

    Chains are said to disagree where R-hat exceeds 1.01 *and* chains that agree would differ as much in any of the
    numbers that were looked at with a probability below 1 %, at the rate at which they forget.

    Parameters
    ----------
    raw
        The draws as they were given to `rebase`; or what `rebase` returned, alone.
    out
        What `rebase` returned.
    invariants
        Name -> ``(chain, draw, ...)`` of what no label changes: predictions at some points, say. The log-likelihood
        and log density of the container, and moments, order statistics and sums across sites that share a group, are
        always among them; other sites if ``rebase`` was told that they are (``axes={"scale": ()}``, ``model=``).
    num_leading_dims
        Known from ``out``; may be given, and must agree.
    progress_bar
        Whether to show a bar that says what is read and about how long it will take; where it is quick there is none.

    Returns
    -------
    Report
        A report never says "converged": relabelled draws look alike because they were made to.

    Raises
    ------
    SymmetryError
        If ``raw`` is not what was rebased, or an invariant is empty, masked, or, by its leading dimensions or by names,
        of other draws.
    TypeError
        If ``out`` is not what `rebase` returned, or an invariant holds no real numbers.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and localization.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, rebase, report
    >>> rng = np.random.default_rng(0)
    >>> loc = np.array([-3.0, 0.0, 3.0]) + 0.1 * rng.standard_normal((4, 250, 3))
    >>> raw = {"loc": loc[:, :, rng.permutation(3)]}
    >>> raw["loc"][0] = raw["loc"][0][:, [1, 2, 0]]
    >>> out = rebase(raw, Symmetry.mixture("loc"))
    >>> found = report(raw, out)
    >>> found.rows[0].r_hat_raw > 1.5, found.rows[0].r_hat < 1.01, found.warnings
    (True, True, ())
    """
    raw, out = pair_of(raw, out, "report")
    leading = out.objective.shape
    if num_leading_dims is not None and num_leading_dims != len(leading):
        raise SymmetryError(f"num_leading_dims={num_leading_dims}, but rebase saw leading dimensions {leading}.")
    given = invariants_of(invariants, out)
    with saying("reporting", as_flag(progress_bar, "progress_bar")):
        return _reported(raw, out, given)


def _reported(raw: Any, out: Rebased, given: Mapping[str, np.ndarray]) -> Report:
    leading = out.objective.shape
    before, after = same_draws(raw, out)
    if before.chains:
        warn(
            f"The draws of {len(before.chains)} chain(s) are stacked along 'sample', and are judged as one chain in "
            "that order. Relabel data.unstack('sample'), or the whole posterior if these are some of its draws."
        )
    # draws without chains are one chain
    shape = (math.prod(leading[:-1]), leading[-1])
    rows = () if before.are_members else _rows(before, after, out, given, shape)
    flat = after.flat(list(out.symmetry.axes))
    say("looking whether chains move")
    stays = longest_run(_stays(flat, shape))
    changes, of_signs = ((), ()) if before.are_members else _label_changes(out, shape)
    found = Report(
        rows=rows,
        share_relabelled=share_relabelled(out.elements),
        label_changes=changes,
        sign_changes=of_signs,
        ambiguous=float((out.margin < A_GUESS).mean()),
        null=out.null,
        num_slots={n: g.degree * math.prod(g.cells) for n, g in out.view.symmetry.groups.items()},
        transpositions={name: float(np.mean(steps)) for name, steps in transpositions(out).items() if steps.size},
        transpositions_at_random={name: at_random(group) for name, group in out.view.symmetry.groups.items()},
        converged=out.converged,
        shape=shape,
        are_members=before.are_members,
        part=out.part,
        longest_stay=tuple(stays.tolist()),
        repeated=() if before.are_members else _repeated(flat, shape, stays < shape[1]),
        sign_suspected=False,
        warnings=(),
    )
    found = found._replace(sign_suspected=_only_signs(found, before, out, given))
    return found._replace(warnings=tuple(warnings_of(found)))


def _stays(flat: Mapping[str, Any], shape: tuple[int, int]) -> np.ndarray:
    """``(chain, draw - 1)``: whether a draw is the same as the one before it, at all sites."""

    def as_before(here: Any, items: slice) -> tuple[np.ndarray, None]:
        x = here[items].reshape(items.stop - items.start, -1)
        return (x[1:] == x[:-1]).all(1), None

    same = np.ones(shape[0] * shape[1] - 1, bool)
    for values in flat.values():
        # each block with the draw before it
        blocks = [slice(max(0, items.start - 1), items.stop) for items in chunks_of(values)]
        same &= np.concatenate(map_reduce(values, blocks, as_before)[0])
    return np.append(same, False).reshape(shape)[:, :-1]


def _repeated(flat: Mapping[str, Any], shape: tuple[int, int], moves: np.ndarray) -> tuple[int, ...]:
    """Chains that move, and whose draws have the same sums with generic weights as those of an earlier chain."""

    def weighed(here: Any, items: slice) -> tuple[np.ndarray, None]:
        x = np.asarray(here[items], float).reshape(items.stop - items.start, -1)
        return (x * np.random.default_rng(0).standard_normal(x.shape[1])).sum(1), None

    sums = [np.concatenate(map_reduce(x, chunks_of(x), weighed)[0]).reshape(shape) for x in flat.values()]
    first: dict[tuple[bytes, ...], int] = {}
    earliest = [first.setdefault(tuple(one[chain].tobytes() for one in sums), chain) for chain in range(shape[0])]
    return tuple(chain for chain in range(shape[0]) if moves[chain] and earliest[chain] < chain)


def _entries(values: Any, shape: tuple[int, int]) -> Any:
    """Values ``(*leading, ...)`` as ``(chain, draw, entry)``."""
    return (values if is_stored(values) else np.asarray(values)).reshape(*shape, -1)


def _rows(
    before: Trace, after: Trace, out: Rebased, given: Mapping[str, np.ndarray], shape: tuple[int, int]
) -> tuple[Row, ...]:
    found: list[tuple[str, Chains, AsSampled, tuple[int, ...], Kind]] = []
    for site in out.symmetry.axes:
        say(f"R-hat and effective sizes of {site}, raw and relabelled")
        raw, relabelled = (_entries(trace.values[site], shape) for trace in (before, after))
        event = tuple(after.values[site].shape[len(after.leading) :])
        found.append((site, chains_of(relabelled), as_sampled(raw), event, Kind.MOVED))
    known, beside = unchanged(before, out)
    own = itertools.chain(known.items(), beside.items(), _own_invariants(before, out))
    parts: dict[str, list[Chains]] = {}
    say("making what no label changes")
    for name, values in itertools.chain((pair for pair in own if pair[0] not in given), given.items()):
        say(f"R-hat and effective sizes of {name}")
        parts.setdefault(name, []).append(chains_of(_entries(values, shape)))
    for name, some in parts.items():
        chains = worst(some, shape[0])
        size = (chains.num_judged + chains.num_still + chains.num_undefined,)
        kind = Kind.BESIDE if name in beside.keys() - given else Kind.INVARIANT
        found.append((name, chains, AsSampled.of(chains), size, kind))
    # each number is tested twice, as it is and folded about its median
    looks = 2 * sum(chains.num_judged for _, chains, *_ in found)

    def of_all(probability: float) -> float:
        return probability if np.isnan(probability) else min(1.0, probability * looks)

    return tuple(
        Row(
            name,
            raw.r_hat,
            chains.r_hat,
            raw.ess,
            chains.ess,
            chains.tail_ess,
            raw.num_apart,
            of_all(raw.chance),
            event,
            kind,
            of_all(chains.chance),
            chains,
        )
        for name, chains, raw, event, kind in found
    )


def _own_invariants(trace: Trace, out: Rebased, *, absolute: bool = False) -> Iterator[tuple[str, np.ndarray]]:
    values = in_pieces(trace.flat(list(out.symmetry.axes)), out.view)
    return each_invariant(out.view.symmetry, values, out.view, absolute=absolute)


def _only_signs(found: Report, trace: Trace, out: Rebased, given: Mapping[str, np.ndarray]) -> bool:
    """Whether chains differ in values and sums, and neither in likelihood nor in squares and absolute values."""
    groups = out.symmetry.groups
    if any(group.signed for group in groups.values()) or not disagreeing(found.rows):
        return False
    if not any(has_both_signs(values) for values in trace.flat(list(out.view.shapes)).values()):
        return False
    blind = {"log density", *given} | {f"log likelihood of {name}" for name in trace.log_likelihood}
    if any(is_alarm(row) for row in found.rows if row.name in blind):
        return False
    still = ((name, np.abs(value)) for name, value in unchanged(trace, out)[0].items() if name not in blind)
    absolute = itertools.chain(_own_invariants(trace, out, absolute=True), still)
    even = [chains_of(_entries(value, found.shape)) for _, value in absolute]
    looks = 2 * sum(chains.num_judged for chains in even)
    return not any(is_alarm(chains._replace(chance=chains.chance * looks)) for chains in even)


def _label_changes(out: Rebased, shape: tuple[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each chain, how often labels or signs changed from one draw to the next, and how often signs alone."""

    def changed(parts: Iterable[Any]) -> np.ndarray:
        none = np.zeros((shape[0], shape[1] - 1), bool)
        return sum(((np.diff(x.reshape(*shape, -1), axis=1) != 0).any(2) for x in parts if x is not None), none)

    parts = from_element(out.elements).values()
    labels, signs = (changed(part.permutation for part in parts), changed(part.sign for part in parts))
    return tuple((labels | signs).sum(1).tolist()), tuple((signs & ~labels).sum(1).tolist())


def _table(rows: tuple[Row, ...]) -> str:
    if not rows:
        return ""
    width = max(len("worst entry"), *(len(row.name) for row in rows)) + 2
    lines = [f"{Kind.MOVED.value:{width}}   R-hat raw  relabelled      ESS raw  relabelled    tail"]
    for kind in Kind:
        some = [row for row in rows if row.kind is kind]
        is_moved = kind is Kind.MOVED
        lines += [kind.value] if some and not is_moved else []
        for row in some:
            cells = _number(row.r_hat_raw, 12, 3) + _number(row.r_hat, 12, 3) if is_moved else _number(row.r_hat, 24, 3)
            cells += _number(row.ess_raw, 13, 0) + _number(row.ess, 12, 0) if is_moved else _number(row.ess, 25, 0)
            lines.append(f"{row.name:{width}}{cells}{_number(row.tail_ess, 8, 0)}")
    return "\n".join(lines)


def _number(value: float, width: int, digits: int) -> str:
    return f"{'–':>{width}}" if np.isnan(value) else f"{value:{width}.{digits}f}"
