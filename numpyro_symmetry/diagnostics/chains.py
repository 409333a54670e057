r"""How chains compare: R-hat, effective sizes, and whether chance alone would set them so far apart.

Each number is replaced by the normal score of its rank, so that infinite values and heavy tails count like any others,
and once more folded about its median, so that chains of different spread differ too (Vehtari et al. 2021). R-hat tells
how far chains are apart. Whether that is more than chance does is another matter: it depends on how many numbers were
looked at and on how fast chains forget. So every chain is cut into blocks of four autocorrelation times, whose means
are nearly independent and normal, and an analysis of variance of them, corrected for what they remember of each other,
gives a probability, which is multiplied by how many numbers were looked at.

Knows arrays ``(chain, draw, entry)``; no sites and no sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from numpyro_symmetry.assignment.entries import by_last_axis
from numpyro_symmetry.assignment.passes import computed, is_stored
from numpyro_symmetry.chunks import BLOCK, batched, slices
from numpyro_symmetry.steps import track
from numpyro_symmetry.traces.mixing import autocovariance, integrated, memory

# chunks of entries of stored draws that are read at once
_AT_ONCE = 8
# numbers of blocks to a chain: the largest that leaves each block four autocorrelation times
_BLOCKS, _TIMES = (20, 16, 12, 10, 8, 6, 4), 4.0
# R-hat and ESS need halves of two draws; above this R-hat chains differ by more than matters (Vehtari et al. 2021)
MIN_DRAWS, MAX_R_HAT = 4, 1.01
# the most numbers whose places are kept
_FURTHEST = 4


class Chains(NamedTuple):
    """How chains compare in several numbers: for each statistic, its worst value among them.

    Attributes
    ----------
    r_hat
        Largest rank-normalised split R-hat of values and of folded values. Infinite where chains do not move and
        differ; NaN if there is none.
    ess, tail_ess
        Smallest effective sizes for the middle, and for the 5 % and 95 % quantiles.
    chance
        Smallest probability, over values and folded values, with which chains that agree differ as much in one number
        that was chosen beforehand. NaN where chains are too short for how slowly they forget.
    r_hat_undecided
        Largest R-hat above 1.01 among numbers whose chance is NaN; NaN if there is none.
    num_apart
        How many numbers have an R-hat above 1.01.
    furthest
        R-hats and places of the four of these with the largest R-hat, the largest first.
    num_judged, num_still, num_undefined
        How many numbers have an R-hat; how many are the same in every draw of every chain; how many are not numbers
        (NaN) in some draw.
    num_infinite
        In how many draws of each chain some number is infinite.
    num_not_a_number
        In how many draws of each chain some number is NaN.
    """

    r_hat: float = np.nan
    ess: float = np.nan
    tail_ess: float = np.nan
    chance: float = np.nan
    r_hat_undecided: float = np.nan
    num_apart: int = 0
    furthest: tuple[tuple[float, int], ...] = ()
    num_judged: int = 0
    num_still: int = 0
    num_undefined: int = 0
    num_infinite: tuple[int, ...] = ()
    num_not_a_number: tuple[int, ...] = ()


def chains_of(values: Any) -> Chains:
    """Compare chains in every entry.

    Parameters
    ----------
    values
        ``(chain, draw, entry)``, an array of NumPy, or of Dask, of which a few entries of all draws are read at a time.

    Returns
    -------
    Chains
        Each statistic at its worst over all entries.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and localization.
    """
    return worst(_each(_chunk, values), values.shape[0])


class AsSampled(NamedTuple):
    """The statistics of `Chains` that are reported of draws as they came.

    Attributes
    ----------
    r_hat, ess, num_apart
        As in `Chains`.
    chance
        As in `Chains`, where some numbers have an R-hat above 1.01 and each of these has a chance; otherwise NaN.
    """

    r_hat: float
    ess: float
    num_apart: int
    chance: float

    @staticmethod
    def of(found: Chains) -> AsSampled:
        """What is reported of these statistics."""
        is_known = found.num_apart and np.isnan(found.r_hat_undecided)
        return AsSampled(found.r_hat, found.ess, found.num_apart, found.chance if is_known else np.nan)


def as_sampled(values: Any) -> AsSampled:
    """`AsSampled` in a third of the time of `chains_of`; the chance is that of the numbers above 1.01 alone."""
    return AsSampled.of(worst(_each(partial(_chunk, briefly=True), values), values.shape[0]))


def _each(of: Callable[[np.ndarray], Any], values: Any) -> list[Any]:
    """``of(part)`` for all draws of a few entries at a time; stored draws are read on whichever scheduler Dask has."""
    num_chains, num_draws, size = values.shape
    some = list(slices(size, num_chains * num_draws))
    if not is_stored(values):
        return [of(values[..., items]) for items in track(some, len(some))]
    from dask.delayed import delayed

    run, parts, lots = delayed(of), [], list(batched(some, _AT_ONCE))
    with by_last_axis(values, lots[0][-1].stop) as cut:
        for lot in track(lots, len(lots)):
            # every entry is in every chunk: the entries of these tasks are held in memory, as copies so that the rest
            # of their chunks is forgotten, and before the tasks run, or each of them would read all chunks
            first, end = lot[0].start, lot[-1].stop
            here = cut[..., first:end].map_blocks(np.copy, dtype=values.dtype).persist()
            parts += computed([run(here[..., items.start - first : items.stop - first]) for items in lot])
    return parts


def _few(values: np.ndarray) -> Iterator[np.ndarray]:
    """As many entries at a time as fit a cache, each one's draws contiguous."""
    for items in slices(values.shape[2], values.shape[0] * values.shape[1], BLOCK):
        yield np.moveaxis(np.moveaxis(values[..., items], 2, 0).astype(float, order="C"), 0, 2)


def worst(parts: Iterable[Chains], num_chains: int) -> Chains:
    """Several lots of entries as one: the worst value of each statistic, and the sum of each count."""
    nothing = (0,) * num_chains
    found = [*parts, Chains(num_infinite=nothing, num_not_a_number=nothing)]
    # the place of each lot's first entry among all
    starts = np.cumsum([0, *(part.num_judged + part.num_still + part.num_undefined for part in found)]).tolist()
    furthest = [(r_hat, start + k) for part, start in zip(found, starts, strict=False) for r_hat, k in part.furthest]

    def counted(name: str) -> tuple[int, ...]:
        # the largest and no sum: several lots may count the same draws
        return tuple(int(n) for n in np.max([getattr(part, name) for part in found], 0))

    return Chains(
        _most([part.r_hat for part in found]),
        -_most([-part.ess for part in found]),
        -_most([-part.tail_ess for part in found]),
        -_most([-part.chance for part in found]),
        _most([part.r_hat_undecided for part in found]),
        sum(part.num_apart for part in found),
        _first(furthest),
        sum(part.num_judged for part in found),
        sum(part.num_still for part in found),
        sum(part.num_undefined for part in found),
        counted("num_infinite"),
        counted("num_not_a_number"),
    )


def _first(furthest: list[tuple[float, int]]) -> tuple[tuple[float, int], ...]:
    return tuple(sorted(furthest, key=lambda one: (-one[0], one[1]))[:_FURTHEST])


def _most(values: Sequence[float] | np.ndarray) -> float:
    """The largest of all values that are not NaN; NaN if all are."""
    return float(np.fmax.reduce(np.asarray(values, float), axis=None, initial=np.nan))


def _chunk(values: np.ndarray, *, briefly: bool = False) -> Chains:
    undefined, infinite = (of(values).any(2).sum(1) for of in (np.isnan, np.isinf))
    found = worst((_chains(some, briefly=briefly) for some in _few(values)), values.shape[0])
    return found._replace(num_infinite=tuple(infinite.tolist()), num_not_a_number=tuple(undefined.tolist()))


def _chains(values: np.ndarray, *, briefly: bool) -> Chains:
    rows, nothing = np.moveaxis(values, 2, 0), (0,) * len(values)
    undefined = np.isnan(rows).any((1, 2))
    still = ~undefined & (rows == rows[:, :1, :1]).all((1, 2))
    places = np.flatnonzero(~undefined & ~still)
    # of an odd number of draws less the middle one, which is in neither half
    odd = values.shape[1] // 2 if values.shape[1] % 2 else []
    judged = np.moveaxis(np.delete(rows[places], odd, axis=2), 0, 2)
    unknown = Chains(
        num_judged=len(places),
        num_still=int(still.sum()),
        num_undefined=int(undefined.sum()),
        num_infinite=nothing,
        num_not_a_number=nothing,
    )
    if not judged.size or judged.shape[1] < MIN_DRAWS:
        return unknown
    both = both_scores(judged)
    tail_ess = np.nan if briefly else float(tail_size(judged).min())
    found = unknown._replace(ess=float(effective_size(both[0]).min()), tail_ess=tail_ess)
    if len(values) < 2:
        return found
    r_hats = np.array([r_hat(x) for x in both])
    chances = np.full(r_hats.shape, np.nan)
    for k, x in enumerate(both):
        # briefly for numbers above alone, for chance takes as long as all the rest
        asked = r_hats[k] > MAX_R_HAT if briefly else slice(None)
        chances[k, asked] = chance(x[..., asked])
    undecided = r_hats[np.isnan(chances) & (r_hats > MAX_R_HAT)]
    worse = np.fmax(*r_hats)
    apart = np.flatnonzero(worse > MAX_R_HAT)
    return found._replace(
        r_hat=_most(r_hats),
        chance=-_most(-chances),
        r_hat_undecided=_most(undecided),
        num_apart=len(apart),
        furthest=_first(list(zip(worse[apart].tolist(), places[apart].tolist(), strict=True))),
    )


# ---- statistics --------------------------------------------------------------------------------------------------


def normal_scores(values: np.ndarray) -> np.ndarray:
    """Normal quantiles of ranks among all draws of all chains; ties share theirs."""
    return _scores(*_ascending(values), values.shape)


def both_scores(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normal scores of values, and of their distances from the median."""
    order, ordered = _ascending(values)
    middle = ordered.shape[1] // 2
    with np.errstate(invalid="ignore"):
        median = 0.5 * (ordered[:, [(ordered.shape[1] - 1) // 2]] + ordered[:, [middle]])
        away = np.abs(ordered - median)
    # an infinite value is not away from an infinite median
    away = np.where(np.isnan(away), 0.0, away)
    # distances in the order of values fall and then rise: two runs, which a stable sort merges
    again = np.argsort(away, axis=1, kind="stable")
    folded = np.take_along_axis(order, again, 1), np.take_along_axis(away, again, 1)
    return _scores(order, ordered, values.shape), _scores(*folded, values.shape)


def _ascending(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each entry the order of all draws of all chains, and the values in that order, ``(entry, draw)``."""
    rows = np.moveaxis(values, 2, 0).reshape(values.shape[2], -1)
    order = np.argsort(rows, axis=1)
    return order, np.take_along_axis(rows, order, 1)


def _scores(order: np.ndarray, ordered: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    count, place = ordered.shape[1], np.arange(ordered.shape[1])
    differs = ordered[:, 1:] != ordered[:, :-1]
    first, last = np.zeros(order.shape, int), np.full(order.shape, count - 1)
    np.maximum.accumulate(differs * place[1:], axis=1, out=first[:, 1:])
    np.minimum.accumulate(np.where(differs, place[:-1], count - 1)[:, ::-1], axis=1, out=last[:, -2::-1])
    scores = np.empty(ordered.shape)
    # equal values have the score of their mean rank
    np.put_along_axis(scores, order, _quantiles(count)[first + last], 1)
    return np.moveaxis(scores.reshape(shape[2], *shape[:2]), 0, 2)


@lru_cache(maxsize=2)
def _quantiles(count: int) -> np.ndarray:
    """Normal quantiles of the ranks 1, 1½, 2, …: Blom's approximation of the expected order statistics."""
    return stats.norm.ppf((np.arange(1.0, count + 0.5, 0.5) - 0.375) / (count + 0.25))


def halves(values: np.ndarray) -> np.ndarray:
    """Each chain as two halves; the middle one of an odd number of draws is left out."""
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, values.shape[1] - half :]])


def r_hat(values: np.ndarray) -> np.ndarray:
    """Split R-hat ``(entry,)`` of ``(chain, draw, entry)``: infinite where no half moves and halves differ."""
    split = halves(values)
    count = split.shape[1]
    between, within = split.mean(1).var(0, ddof=1), split.var(1, ddof=1).mean(0)
    # the variance of equal values may be rounding errors instead of zero
    low, high = split.min(1), split.max(1)
    moving, differing = (high > low).any(0), high.max(0) > low.min(0)
    ratio = between / np.where(moving, within, 1.0) + (count - 1) / count
    return np.where(moving, np.sqrt(ratio), np.where(differing, np.inf, np.nan))


def effective_size(values: np.ndarray) -> np.ndarray:
    """Effective number of draws ``(entry,)`` of ``(chain, draw, entry)``, all chains together."""
    split = halves(values)
    num_chains, count, _ = split.shape
    covariance = autocovariance(split)
    within = covariance[0] * count / (count - 1.0)
    total = covariance[0] + split.mean(1).var(0, ddof=1)
    correlation = 1.0 - (within - covariance) / np.where(total > 0, total, 1.0)
    correlation[0] = 1.0
    time = np.maximum(integrated(correlation), 1.0 / np.log10(num_chains * count))
    return np.where(total > 0, num_chains * count / time, num_chains * count)


def tail_size(values: np.ndarray) -> np.ndarray:
    """The smaller effective size ``(entry,)`` of the indicators of the 5 % and 95 % quantiles."""
    ordered = np.sort(np.moveaxis(values, 2, 0).reshape(values.shape[2], -1), axis=1)
    # quantiles are values and no interpolations, for some values may be infinite
    marks = (ordered[:, int(share * (ordered.shape[1] - 1))] for share in (0.05, 0.95))
    return np.minimum(*(effective_size((values <= mark).astype(float)) for mark in marks))


def chance(values: np.ndarray) -> np.ndarray:
    r"""Probability ``(entry,)`` that chains which agree differ as much, by an analysis of variance of block means.

    .. math:: F = \frac{b - (b + 1)k}{b - k}
                  \frac{b \operatorname{var}_h \bar x_h}{\operatorname{mean}_h \operatorname{var}_{k \in h} \bar x_k}
              \sim F_{H - 1,\, H(b - 1)}

    over the :math:`H` halves of chains, of :math:`b` blocks each, two at least. The first factor makes up for what
    blocks remember of each other, with :math:`k = \kappa/\ell` for blocks of :math:`\ell` draws (`Memory`): little for
    few chains, and more than chance would for many.

    Parameters
    ----------
    values
        ``(chain, draw, entry)``, at least two chains.

    Returns
    -------
    numpy.ndarray
        NaN where a chain is shorter than sixteen of its autocorrelation times, or of its overlaps.
    """
    num_chains, num_draws, size = values.shape
    time, overlap = memory(values)
    room = num_draws // np.array(_BLOCKS)[:, None] >= np.maximum(1.0, _TIMES * np.maximum(time, overlap))
    found = np.full(size, np.nan)
    for k, blocks in enumerate(_BLOCKS):
        at = room[k] & ~room[:k].any(0)
        if not at.any():
            continue
        length = num_draws // blocks
        means = values[:, : blocks * length, at].reshape(num_chains, blocks, length, -1).mean(2)
        groups = means.reshape(2 * num_chains, blocks // 2, -1)
        between, within = groups.mean(1).var(0, ddof=1), groups.var(1, ddof=1).mean(0)
        count, share = groups.shape[1], overlap[at] / length
        degrees = len(groups) - 1, len(groups) * (count - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = count * between / within * (count - (count + 1) * share) / (count - share)
        found[at] = stats.f.sf(np.where(between > 0, ratio, 0.0), *degrees)
    return found


def longest_run(same: np.ndarray) -> np.ndarray:
    """For each chain, the longest run of equal draws, from whether each ``(chain, draw - 1)`` is as the one before."""
    # from one change to the next, the ends among them
    ends = np.zeros((len(same), 1), bool)
    return np.array([np.diff(np.flatnonzero(~row)).max() for row in np.concatenate([ends, same, ends], axis=1)])
