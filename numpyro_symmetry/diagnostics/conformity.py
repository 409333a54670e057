r"""Which units follow the prior: those that a posterior could do without, and of which the data say nothing.

Relabelling sorts units, and so makes slots narrower than their units are, whether these follow the prior or not. So a
slot is compared with what relabelling makes of the prior: units of some slots are drawn from the prior given all else
of each draw, the draw is placed in slots again, and the unit that is then in a slot is compared with the unit that was
there. Puts `prior_draws` and `energies` together; `comparison` has the words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from jax import Array

from numpyro_symmetry.assignment.problem import axes_of, pooled_axes
from numpyro_symmetry.containers import Trace, read
from numpyro_symmetry.diagnostics import energies
from numpyro_symmetry.diagnostics.comparison import COLUMNS, Drawn, PriorConformity
from numpyro_symmetry.diagnostics.inputs import as_rebased
from numpyro_symmetry.diagnostics.label_free import Arrays, sorted_projections, standardised, units_of
from numpyro_symmetry.diagnostics.pooled import Pooled, by_quantity, watched
from numpyro_symmetry.diagnostics.prior_draws import Sides, Slot, refuse_other_slots, sides_of, sites_to_draw
from numpyro_symmetry.models import Model, as_model
from numpyro_symmetry.steps import counting
from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.arguments import (
    as_flag,
    as_model_arguments,
    as_probability,
    key_or_fixed,
    refuse_tracers,
    seed_of,
)
from numpyro_symmetry.traces import Rebased

# exchanges of pairs of blocks come in twos of the same energy: with so many pairs the least p-value is 1 / 32
_MIN_PAIRS = 6
# no p-value is below 1 / (this + 1)
_NUM_EXCHANGES = 999
# slots that differ from the prior leave the hypothesis together if their effect is at least this share of the largest
_SHARE_OF_FURTHEST = 0.5
# statistics, in their own standard deviations, that are this close differ by rounding, and are tied
_ROUNDING = 1e-9


def prior_conformity(
    out: Rebased,
    model: Callable[..., Any],
    model_args: tuple[Any, ...] = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    level: float = 0.05,
    smallest_effect: float = 0.0,
    rng_key: Array | None = None,
    progress_bar: bool = True,
) -> PriorConformity:
    r"""Say which slots follow the prior, after draws and prior are relabelled alike.

    Of a set R of slots the hypothesis is

    .. math:: p(\theta_R \mid \theta_{-R}, x) = p(\theta_R \mid \theta_{-R}).

    R begins with all slots. Their units are drawn from the prior given all else of each draw (hyperparameters, and
    sites that tie units to each other), the draws are placed in the slots of ``out``, and slots are compared by
    energies of their units' numbers. Slots that differ leave R, the furthest first, and the units of R are drawn again,
    until no slot differs. Blocks of draws are exchanged with the redrawn blocks that were made of them, so that slow
    chains raise no alarm.

    Parameters
    ----------
    out
        What `rebase` returned, with all latent sites of the model in ``out.data``.
    model, model_args, model_kwargs
        The NumPyro model, whose prior it is.
    level
        The p-value, of all slots of a round together, at and below which a slot does not follow the prior.
    smallest_effect
        The smallest effect that matters: a slot with a lower one follows the prior however surely it differs.
    rng_key
        JAX random key of prior draws and exchanges; fixed by default.
    progress_bar
        Whether to show a bar of rounds, after two seconds.

    Returns
    -------
    PriorConformity
        Effect, noise floor, contraction and p-value of every slot, and of all slots together whatever their labels. All
        are NaN, and no slot is said to follow, where draws are too few to tell.

    Raises
    ------
    SymmetryError
        If the symmetry is the likelihood's alone, the draws were relabelled by something other than their values,
        sites are missing on either side, no site of the symmetry has a prior of independent units, or it is improper.
    TypeError, ValueError
        If an argument is of the wrong type or out of range.

    Notes
    -----
    In ReLU networks with independent Normal priors the exact posterior is *balanced*: with weights :math:`W_l` of
    deviation :math:`\tau_l` and number :math:`d_l` (biases counted with the weights into a unit),
    :math:`\operatorname{E}\|W_l\|^2/\tau_l^2 - \operatorname{E}\|W_{l+1}\|^2/\tau_{l+1}^2 = d_l - d_{l+1}` for two
    layers about one of units. It holds for any data, and so says of a sampler whether it moved along the scales of
    units, not whether units follow the prior.

    References
    ----------
    Kobialka, Sommer, Kolb, Kwon, Dold and Rügamer (2026), arXiv:2603.22030, for priors in redundant units; Westfall and
    Young (1993), *Resampling-based multiple testing*, for going down step by step.

    Examples
    --------
    Two components of which data know, and two of which they do not:

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> from numpyro_symmetry import Symmetry, rebase
    >>> from numpyro_symmetry.diagnostics import prior_conformity
    >>> def model():
    ...     numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    >>> rng = np.random.default_rng(0)
    >>> loc = rng.standard_normal((1000, 4)) * [0.1, 0.1, 1.0, 1.0] + [3.0, -3.0, 0.0, 0.0]
    >>> out = rebase({"loc": rng.permuted(loc, axis=1)}, Symmetry.mixture("loc"), order_by="loc")
    >>> prior_conformity(out, model, progress_bar=False).table.follows.tolist()
    [False, True, True, False]
    """
    out = as_rebased(out, "prior_conformity(out, model)")
    known = Model(as_model(model), *as_model_arguments(model_args, model_kwargs))
    level = as_probability(level, "level")
    if not isinstance(smallest_effect, Real) or not 0.0 <= smallest_effect < 1.0:
        raise ValueError(f"smallest_effect must be an energy coefficient between 0 and 1; got {smallest_effect!r}.")
    shown = as_flag(progress_bar, "progress_bar")
    key = key_or_fixed(rng_key)
    refuse_tracers("prior_conformity", model_args=known.args, model_kwargs=known.kwargs, rng_key=key)
    refuse_other_slots(out)

    def is_apart(result: SlotResult) -> bool:
        return result.p_value <= level and result.effect > smallest_effect

    trace = read(out.data, out.symmetry, out.objective.ndim)
    sites = sites_to_draw(out, known, trace)
    blocks, other, drawn = _blocks_of(out, trace)
    sides = sides_of(out, known, trace.flat([*out.view.shapes, *sites.given]), sites, blocks.draws, key)
    if blocks.number < _MIN_PAIRS:
        results, entries = _unknown(sides)
        together = np.array([np.nan])
    else:
        rng = np.random.default_rng(seed_of(rng_key))
        kept = np.concatenate([np.ones((1, blocks.number), bool), rng.random((_NUM_EXCHANGES, blocks.number)) < 0.5])
        exchanges = ExchangedBlocks(blocks.starts, other, np.concatenate([kept, ~kept], 1))
        results, entries = _step_down(sides, exchanges, is_apart, rng, shown)
        together = exchanges.of(sorted_projections(sides.tested, _standardised(sides, sides.own, sides.prior)))
    return PriorConformity(
        table=_table(sides, results, entries, is_apart),
        entries=_shaped(sides, entries, trace.dims),
        contraction=_contraction(sides),
        effect=float(together[0]),
        floor=energies.floor_of(together),
        p_value=float("nan") if blocks.number < _MIN_PAIRS else float(energies.ranks(together)[0]),
        given=tuple(site for site in out.symmetry.axes if site not in sites.redrawn),
        drawn=drawn,
    )


def _blocks_of(out: Rebased, trace: Trace) -> tuple[energies.ExchangeableBlocks, energies.ExchangeableBlocks, Drawn]:
    """Nearly independent blocks of draws; nearly independent draws of each block; and how many the draws are worth."""
    pieces = out.view.open({site: np.asarray(x, float) for site, x in trace.flat(list(out.view.shapes)).items()})
    order = trace.in_order
    slow = watched(Pooled(out.view, pieces, standardised(out.view.symmetry, pieces)))[order]
    time = None if trace.are_members else energies.longest_autocorrelation_time(slow, trace.lengths)
    effective = energies.block_length([time], [trace.lengths])
    blocks = energies.exchangeable_blocks(trace.lengths, time, effective)
    # a quarter of each block is left out as a gap, so that blocks hardly depend on each other
    cuts = [cut[len(cut) // 4 :] for cut in np.split(order[blocks.draws], blocks.starts[1:])]
    own = energies.ExchangeableBlocks(np.concatenate(cuts), np.cumsum([0, *map(len, cuts[:-1])]))
    some = [
        low + np.linspace(0, len(cut) - 1, min(len(cut), math.ceil(0.75 * effective))).astype(int)
        for low, cut in zip(own.starts, cuts, strict=True)
    ]
    other = energies.ExchangeableBlocks(np.concatenate(some), np.cumsum([0, *map(len, some[:-1])]))
    return own, other, Drawn("out", trace.num_draws, len(trace.lengths), time or 1.0, time is None, blocks.number)


def _standardised(sides: Sides, own: Arrays, other: Arrays) -> Arrays:
    """Draws followed by other draws, every number in standard deviations over all slots together."""
    both = {name: np.concatenate([own[name], other[name]]) for name in sides.tested.axes}
    return standardised(sides.tested, both)


class SlotResult(NamedTuple):
    """Result for one slot: energy coefficient, its 95 % quantile over exchanges, p-value for all slots together."""

    slot: Slot
    effect: float
    floor: float
    p_value: float


class ExchangedBlocks(NamedTuple):
    """Energies between draws and the same draws with units redrawn, blocks exchanged with their own redrawn block.

    Attributes
    ----------
    starts
        Where among the draws each block begins.
    other
        Blocks of the redrawn draws, each with as many draws as its block is worth, so that means of both vary alike.
    first
        ``(exchange, 2 * block)``: which blocks are the first side's; in the first row the draws' own blocks.
    """

    starts: np.ndarray
    other: energies.ExchangeableBlocks
    first: np.ndarray

    def of(self, features: np.ndarray) -> np.ndarray:
        """Energy coefficients ``(exchange,)`` of ``(2 * draw, number)``: the draws, and then the redrawn draws."""
        half, number = len(features) // 2, len(self.starts)
        both = energies.joined(energies.ExchangeableBlocks(np.arange(half), self.starts), self.other, half)
        between = energies.distances(features[both.draws], both.starts)
        apart = 2.0 * between[:number, number:].mean()
        return energies.energies(between, self.first) / (apart or 1.0)


def _step_down(
    sides: Sides,
    exchanges: ExchangedBlocks,
    is_apart: Callable[[SlotResult], bool],
    rng: np.random.Generator,
    progress_bar: bool,
) -> tuple[list[SlotResult], Arrays]:
    """Compare slots with the prior, and again without those that do not follow it, until no slot differs.

    Returns the result of each slot in the last round that it took part in, and piece -> shifts and contractions then.
    """
    unknown, entries = _unknown(sides)
    left, results = [result.slot for result in unknown], {result.slot: result for result in unknown}
    # a bar without a total: how many rounds it takes is not known
    with counting("drawing units again", "rounds", progress_bar) as bar:
        while left:
            own, other = sides.placed(left, rng)
            for name, before in entries.items():
                now = _moments(own[name], other[name])
                entries[name] = np.where(sides.of_slots(name, left), now, before)
            by_slot = _energies_of(sides.tested, _standardised(sides, own, other), exchanges, left)
            for (slot, effects), p in zip(by_slot.items(), _of_largest(list(by_slot.values())), strict=True):
                results[slot] = SlotResult(slot, float(effects[0]), energies.floor_of(effects), float(p))
            away = [results[slot] for slot in left if is_apart(results[slot])]
            furthest = max((result.effect for result in away), default=0.0)
            gone = {result.slot for result in away if result.effect >= _SHARE_OF_FURTHEST * furthest}
            left = [slot for slot in left if slot not in gone] if gone else []
            bar.update()
    return list(results.values()), entries


def _unknown(sides: Sides) -> tuple[list[SlotResult], Arrays]:
    """Results of `_step_down` where nothing was compared: NaN."""
    slots = [(name, slot) for name, group in sides.tested.groups.items() for slot in range(group.degree)]
    entries = {name: np.full((2, *sides.own[name].shape[1:]), np.nan) for name in sides.tested.axes}
    return [SlotResult(slot, np.nan, np.nan, np.nan) for slot in slots], entries


def _energies_of(
    symmetry: Symmetry, values: Arrays, exchanges: ExchangedBlocks, slots: list[Slot]
) -> dict[Slot, np.ndarray]:
    """Slot -> ``(exchange,)`` energy coefficients of its unit's numbers, first without an exchange."""
    units = {name: units_of(symmetry, values, name) for name in symmetry.groups}
    return {
        (name, k): exchanges.of(np.concatenate([units[name].odd[:, k], units[name].even[:, k]], 1)) for name, k in slots
    }


def _of_largest(each: list[np.ndarray]) -> np.ndarray:
    """A p-value for each statistic ``(exchange,)``: its first entry among the largest, scaled, of all statistics."""
    scaled = [(x - x.mean()) / (x.std() or 1.0) for x in each]
    largest = np.max(scaled, axis=0)
    return np.array([np.mean(largest >= x[0] - _ROUNDING) for x in scaled])


def _moments(own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Shift of means in the other's standard deviations, and contraction; NaN where the other does not vary."""
    spread = np.where((deviation := other.std(0)) > 0, deviation, np.nan)
    return np.stack([(own.mean(0) - other.mean(0)) / spread, 1.0 - np.square(own.std(0) / spread)])


def _contraction(sides: Sides) -> dict[str, float]:
    """Piece -> contraction of all slots together; where signs change values, of mean squares."""
    found = {}
    for name in sides.tested.axes:
        shape, axes = axes_of(sides.tested, name, sides.own[name].shape[1:])
        together = pooled_axes(axes)
        is_signed = any(axis.signed for axis in axes)
        own, prior = (
            np.mean(np.square(x - (0.0 if is_signed else x.mean(together, keepdims=True))), together)
            for x in (each[name].reshape(-1, *shape) for each in (sides.own, sides.prior))
        )
        found[name] = _mean_known(1.0 - own / np.where(prior > 0, prior, np.nan))
    return found


def _mean_known(values: np.ndarray) -> float:
    """The mean of all values that are not NaN; NaN if all are."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def _table(
    sides: Sides, results: list[SlotResult], entries: Arrays, is_apart: Callable[[SlotResult], bool]
) -> pd.DataFrame:
    rows = []
    for result in results:
        own = np.concatenate([entries[name][1][sides.of_slots(name, [result.slot])] for name in entries])
        follows = not (is_apart(result) or np.isnan(result.p_value))
        rows.append((*result.slot, result.effect, result.floor, _mean_known(own), result.p_value, follows))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _shaped(sides: Sides, entries: Arrays, dims: Mapping[str, tuple[str, ...]]) -> xr.Dataset:
    """Shifts and contractions in the shapes of the sites."""
    return by_quantity(sides.out.view.close(entries), ["shift", "contraction"], dims)
