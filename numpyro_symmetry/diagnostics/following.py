"""Results of comparing slots with the prior: effects and contractions, and all of these in words.

Knows numbers and names; computes no statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from numpyro_symmetry.diagnostics.comparison import Drawn
from numpyro_symmetry.symmetry.shown import as_html, first_of

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("group", "slot", "effect", "floor", "contraction", "p_value", "follows")
_MAX_ROWS, _MAX_GROUPS = 6, 4


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
        Site -> contraction of all slots together, which no label changes: one less the ratio of variances over draws
        and slots, the mean over a unit's numbers. Negative where units are further apart than the prior has them.
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
        return "\n".join(_lines(self))

    __repr__ = __str__
    _repr_html_ = as_html


def _lines(conformity: PriorConformity) -> Iterator[str]:
    if np.isnan(conformity.p_value):
        yield (
            f"Not enough draws to tell which slots follow the prior: {conformity.drawn.num_draws} draws are worth "
            f"about {conformity.drawn.effective:.0f} independent ones. Run longer, or more chains."
        )
        return
    for name, number in list(conformity.num_following.items())[:_MAX_GROUPS]:
        size = int((conformity.table.group == name).sum())
        yield f"{number} of {size} slots of {name!r} follow the prior, as far as these draws tell."
    others = conformity.table.sort_values("effect", ascending=False).query("not follows")
    for row in others.head(_MAX_ROWS).to_dict("records"):
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
