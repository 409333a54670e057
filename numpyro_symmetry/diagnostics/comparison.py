"""Results of comparing posteriors, or slots with the prior: verdicts, effects and contributions, and these in words.

Knows numbers and names; computes no statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from numpyro_symmetry.symmetry.shown import as_html, counted, first_of

DIFFER, NO_DIFFERENCE, CANNOT_TELL = "differ", "no difference found", "not enough draws to tell"
# of each entry under the pooled alignment: moments of either side, then differences and their p-values
QUANTITIES = ("mean_a", "mean_b", "sd_a", "sd_b", "shift", "log_ratio", "p_shift", "p_log_ratio")
_MAX_NAMES, _MAX_ROWS = 3, 10
# of each slot that is compared with the prior
COLUMNS = ("group", "slot", "effect", "floor", "contraction", "p_value", "follows")
_MAX_SLOTS, _MAX_GROUPS = 6, 4
# below this many effective draws no method sees correlations of .85 more often than one time in five
_FEW_FOR_CORRELATIONS = 300.0
# a shift of so many deviations is one between numbers that do not vary, but for rounding
_CONSTANT = 1e5


class Drawn(NamedTuple):
    """How many draws one side has, and how many they are worth.

    Attributes
    ----------
    name
        Name of the posterior.
    num_draws, num_chains
        Numbers of draws in all, and of chains.
    time
        Autocorrelation time of the slowest label-free number, in draws; one where draws are known to be independent.
    independent
        Whether draws are known to be independent, so that the time was not estimated.
    blocks
        Number of exchangeable blocks that the draws were cut into.
    """

    name: str
    num_draws: int
    num_chains: int
    time: float
    independent: bool
    blocks: int

    @property
    def effective(self) -> float:
        """Effective number of draws for the slowest number."""
        return self.num_draws / self.time

    def __str__(self) -> str:
        draws = f"{self.name}: {counted(self.num_draws, 'draw')}"
        if self.independent:
            return f"{draws}, independent"
        chains = f"{counted(self.num_chains, 'chain')}"
        return f"{draws} of {chains}, {self.effective:.0f} effective, {counted(self.blocks, 'block')}"


class Comparison(NamedTuple):
    r"""Whether two posteriors agree up to labels, by how much they differ, and in what.

    Attributes
    ----------
    a, b
        How many draws either side has, and how many they are worth.
    p_value
        Probability with which draws of one distribution differ as much. NaN if there are not enough draws to tell.
    p_by_distance
        Name of a distance -> its p-value; ``p_value`` joins these.
    effect
        Energy coefficient :math:`\mathcal E / 2\operatorname{E}d(A, B)` of sorted projections: zero where the two agree
        (in the mean: it may be negative), one where neither varies and they differ.
    floor
        What the effect does not exceed in 95 % of exchanges of blocks between the two: the noise that draws leave.
    contributions
        Site -> ``(quantity, *event)``: means and deviations of either side under one alignment of all draws, the
        difference of means in deviations, half the log ratio of variances, and p-values of the two that hold for the
        largest of all entries. Slots are numbered by ascending means of their first number. Empty if there are not
        enough draws.
    level, smallest_effect
        The p-value at and below which the two are said to differ; the least effect that matters, if one was named.
    left_out
        Sites that were not compared.
    """

    a: Drawn
    b: Drawn
    p_value: float
    p_by_distance: dict[str, float]
    effect: float
    floor: float
    contributions: xr.Dataset
    level: float
    smallest_effect: float | None
    left_out: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """``"differ"``, ``"no difference found"`` or ``"not enough draws to tell"``."""
        if np.isnan(self.p_value):
            return CANNOT_TELL
        if self.p_value <= self.level:
            return DIFFER
        too_coarse = self.smallest_effect is not None and self.floor > self.smallest_effect
        return CANNOT_TELL if too_coarse else NO_DIFFERENCE

    @property
    def table(self) -> pd.DataFrame:
        """`contributions` with a row for each entry, the entry that differs most surely first."""
        rows = []
        for site, array in self.contributions.data_vars.items():
            slots = self.contributions.coords[f"{site} slot"].values
            rows += [
                {"site": str(site), "entry": entry, "slot": str(slots[entry])}
                | dict(zip(QUANTITIES, array.values[(slice(None), *entry)].tolist(), strict=True))
                for entry in np.ndindex(*slots.shape)
            ]
        found = pd.DataFrame(rows, columns=["site", "entry", "slot", *QUANTITIES])
        least = found[["p_shift", "p_log_ratio"]].min(axis=1)
        most = found[["shift", "log_ratio"]].abs().max(axis=1)
        order = np.lexsort((-most.to_numpy(), least.to_numpy()))
        return found.iloc[order].reset_index(drop=True)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    __repr__ = __str__
    _repr_html_ = as_html


def _lines(comparison: Comparison) -> Iterator[str]:
    a, b = comparison.a.name, comparison.b.name
    size = f"effect {comparison.effect:.4f}, noise floor {comparison.floor:.4f}, p = {comparison.p_value:.3g}"
    if np.isnan(comparison.p_value):
        few = min(comparison.a, comparison.b, key=lambda side: side.blocks)
        of = "" if few.independent else f" of {counted(few.num_chains, 'chain')}"
        yield (
            f"Not enough draws to tell whether {a} and {b} differ: the {few.num_draws} draws{of} of {few.name} are "
            f"worth about {counted(f'{few.effective:.0f}', 'independent one')}, too few for four blocks. Run longer, "
            "or more chains."
        )
    elif comparison.verdict == DIFFER:
        yield f"{a} and {b} differ, labels apart: {size}."
        yield from _what_differs(comparison)
        if comparison.effect <= comparison.floor:
            name = min(comparison.p_by_distance, key=comparison.p_by_distance.__getitem__)
            yield (
                f"The effect, of sorted projections, is within their noise: the difference is seen by {name} (p = "
                f"{comparison.p_by_distance[name]:.3g})."
            )
        if comparison.smallest_effect is not None and comparison.effect < comparison.smallest_effect:
            yield f"The effect is below {comparison.smallest_effect:g}, which you said matters."
    elif comparison.verdict == CANNOT_TELL:
        yield (
            f"Not enough draws to tell whether {a} and {b} differ by {comparison.smallest_effect:g}, which you said "
            f"matters: {size}."
        )
    else:
        yield f"No difference found between {a} and {b}, labels apart: {size}."
        if min(comparison.a.effective, comparison.b.effective) < _FEW_FOR_CORRELATIONS:
            yield "So few effective draws would show a shift or another spread, and hardly another correlation."
    yield f"{comparison.a}; {comparison.b}."
    if comparison.left_out:
        yield f"Not compared: {first_of(comparison.left_out)}."


def _what_differs(comparison: Comparison) -> Iterator[str]:
    table = comparison.table
    shifted, spread = (
        table[table[f"p_{by}"] <= comparison.level].iloc[lambda some, by=by: np.argsort(-some[by].abs(), kind="stable")]
        for by in ("shift", "log_ratio")
    )
    if len(shifted):
        words = [_shift(row, comparison) for _, row in shifted.head(_MAX_NAMES).iterrows()]
        yield (
            f"Means of {len(shifted)} of {len(table)} entries differ ({comparison.a.name} − {comparison.b.name}, in "
            f"sd): {'; '.join(words)}."
        )
    if len(spread):
        words = [f"{entry_name(row)} {np.exp(row['log_ratio']):.2f}" for _, row in spread.head(_MAX_NAMES).iterrows()]
        yield (
            f"Spreads of {len(spread)} of {len(table)} entries differ ({comparison.a.name} / {comparison.b.name}): "
            f"{'; '.join(words)}."
        )
    if not len(shifted) and not len(spread):
        yield "No single entry stands out: they differ in how entries vary together, or in many by a little."


def _shift(row: Any, comparison: Comparison) -> str:
    if abs(row["shift"]) < _CONSTANT:
        return f"{entry_name(row)} by {row['shift']:+.2f}"
    return (
        f"{entry_name(row)}, {row['mean_a']:.6g} throughout {comparison.a.name} and {row['mean_b']:.6g} throughout "
        f"{comparison.b.name}"
    )


def entry_name(row: Any) -> str:
    """An entry of a table as one writes it, ``loc[2]``."""
    index = ", ".join(map(str, row["entry"]))
    return f"{row['site']}[{index}]" if index else row["site"]


class Comparisons(NamedTuple):
    """Several posteriors, two at a time.

    Attributes
    ----------
    pairs
        One comparison for each pair.
    """

    pairs: tuple[Comparison, ...]

    @property
    def table(self) -> pd.DataFrame:
        """A row for each pair; ``p_adjusted`` holds for all pairs together, and decides the verdict."""
        p = np.array([pair.p_value for pair in self.pairs])
        adjusted = _holm(p)
        verdicts = [pair._replace(p_value=own).verdict for pair, own in zip(self.pairs, adjusted, strict=True)]
        return pd.DataFrame(
            {
                "a": [pair.a.name for pair in self.pairs],
                "b": [pair.b.name for pair in self.pairs],
                "verdict": verdicts,
                "effect": [pair.effect for pair in self.pairs],
                "floor": [pair.floor for pair in self.pairs],
                "p": p,
                "p_adjusted": adjusted,
            }
        )

    def __str__(self) -> str:
        table = self.table
        differ, known = int((table.verdict == DIFFER).sum()), int(table.p.notna().sum())
        first = f"{differ} of {counted(len(table), 'pair')} differ, labels apart"
        first += f"; of {len(table) - known} there are not enough draws to tell." if known < len(table) else "."
        shown = table.to_string(index=False, float_format=lambda x: f"{x:.4f}", max_rows=_MAX_ROWS)
        return f"{first}\n{shown}\nVerdicts are by p_adjusted, Holm's for {counted(known, 'comparison')}."

    __repr__ = __str__
    _repr_html_ = as_html


def _holm(p: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values; a NaN stays NaN, and does not count as a comparison."""
    adjusted, known = np.full(len(p), np.nan), np.flatnonzero(~np.isnan(p))
    order = known[p[known].argsort(kind="stable")]
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return adjusted


# ---- slots and the prior ---------------------------------------------------------------------------------------------


class PriorConformity(NamedTuple):
    r"""Which slots hold units that follow the prior.

    Attributes
    ----------
    table
        A row for each slot: ``effect`` is the energy coefficient :math:`\mathcal E / 2\operatorname{E}d(A, B)` of the
        unit's numbers between the slot and the prior relabelled alike, ``floor`` what the effect does not exceed in
        95 % of exchanges, ``contraction`` the mean over numbers of
        :math:`1 - \operatorname{var}A / \operatorname{var}B`, ``p_value`` holds for all slots together, and ``follows``
        says whether ``p_value`` is above the level, or the effect below the smallest that matters.
    entries
        Site -> ``(quantity, *event)``: ``"shift"``, the slot's mean less the relabelled prior's, in its deviations, and
        ``"contraction"``.
    contraction
        Site, or piece of one that is cut, -> contraction of all slots together, which no label changes: one less the
        ratio of variances over draws and slots (of mean squares, where labels change signs), the mean over a unit's
        numbers. Negative where units are further apart than the prior has them.
    effect, floor, p_value
        Of all slots together: energy of sorted projections between draws and draws of the prior. No label changes it.
    given
        Sites of the symmetry that were not drawn again, for their prior ties units to each other.
    drawn
        How many draws there are, and how many they are worth.
    """

    table: pd.DataFrame
    entries: xr.Dataset
    contraction: dict[str, float]
    effect: float
    floor: float
    p_value: float
    given: tuple[str, ...]
    drawn: Drawn

    @property
    def num_following(self) -> dict[str, int]:
        """Group -> number of slots that are not told apart from the prior."""
        return {str(name): int(rows.sum()) for name, rows in self.table.groupby("group", sort=False).follows}

    def __str__(self) -> str:
        return "\n".join(_lines_of_conformity(self))

    __repr__ = __str__
    _repr_html_ = as_html


def _lines_of_conformity(conformity: PriorConformity) -> Iterator[str]:
    if np.isnan(conformity.p_value):
        yield (
            f"Not enough draws to tell which slots follow the prior: {conformity.drawn.num_draws} draws are worth "
            f"about {counted(f'{conformity.drawn.effective:.0f}', 'independent one')}. Run longer, or more chains."
        )
        return
    for name, number in list(conformity.num_following.items())[:_MAX_GROUPS]:
        size = int((conformity.table.group == name).sum())
        alone = f"The slot of {name!r} {'follows' if number else 'does not follow'}"
        slots = alone if size == 1 else f"{number} of {size} slots of {name!r} follow"
        yield f"{slots} the prior, as far as these draws tell."
    others = conformity.table.sort_values("effect", ascending=False).query("not follows")
    for row in others.head(_MAX_SLOTS).to_dict("records"):
        yield (
            f"  {row['group']} {row['slot']}: effect {row['effect']:.3f}, noise floor {row['floor']:.3f}, contraction "
            f"{row['contraction']:.0%}"
        )
    contraction = first_of([f"{site} {share:.0%}" for site, share in conformity.contraction.items()])
    yield (
        f"All slots together, whatever their labels: effect {conformity.effect:.3f}, noise floor "
        f"{conformity.floor:.3f}, p = {conformity.p_value:.3g}; contraction of {contraction}."
    )
    if conformity.given:
        yield f"As they are, for their prior ties units to each other: {first_of(conformity.given)}."
    yield f"{conformity.drawn}."
