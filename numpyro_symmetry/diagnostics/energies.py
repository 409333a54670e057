r"""Whether two samples come from one distribution: energy distances, blocks of draws, and exchanges of blocks.

.. math:: \mathcal{E} = 2\operatorname{E} d(A, B) - \operatorname{E} d(A, A') - \operatorname{E} d(B, B')

Draws of a chain are no exchangeable units; blocks of a few autocorrelation times nearly are, if they are as many
effective draws long on both sides. Knows arrays and lengths of chains; no symmetry and no sites.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.chunks import slices
from numpyro_symmetry.diagnostics.chains import effective_size

# a block holds so many effective draws, and fewer only where a chain has fewer
_EFFECTIVE_DRAWS = 4.0
# with fewer blocks a side there are too few ways to exchange them for any of them to be rare
MIN_BLOCKS = 4
# a difference of two mean squares below this share of one of them is rounding
_ROUNDING = 1e-12
# about the most draws of each side that are compared
_MAX_DRAWS = 1000


class ExchangeableBlocks(NamedTuple):
    """Draws of one side, chain after chain, cut into blocks.

    Attributes
    ----------
    draws
        Indices of the draws that are compared, in order.
    starts
        Where in ``draws`` each block begins.
    """

    draws: np.ndarray
    starts: np.ndarray

    @property
    def number(self) -> int:
        """How many blocks there are."""
        return len(self.starts)


def longest_autocorrelation_time(values: np.ndarray, lengths: Sequence[int]) -> float:
    """The longest autocorrelation time of any entry, in draws, at least one.

    Parameters
    ----------
    values
        ``(draw, entry)``, chain after chain.
    lengths
        How many draws each chain has. Where they differ, the last draws of the `long` chains count.

    Returns
    -------
    float
        Differences between the means of chains lengthen it. Entries that never vary do not count.
    """
    shortest, is_long, ends = min(long(lengths)), _is_long(lengths), np.cumsum(lengths)
    if shortest < 4:
        return 1.0
    chains = np.stack([values[end - shortest : end] for end in ends[is_long]])
    moving = np.ptp(chains.reshape(-1, chains.shape[2]), axis=0) > 0
    if not moving.any():
        return float(shortest)
    size = effective_size(chains[..., moving]).min()
    return max(1.0, shortest * len(chains) / float(size))


def block_length(times: Sequence[float | None], lengths: Sequence[Sequence[int]]) -> float:
    """How many effective draws a block has: four, or as many as the shorter `long` chains have; one if independent."""
    if all(time is None for time in times):
        return 1.0
    held = [min(long(own)) / time for own, time in zip(lengths, times, strict=True) if time is not None]
    return max(0.5, min([_EFFECTIVE_DRAWS, *held]))


def long(lengths: Sequence[int]) -> list[int]:
    """Lengths of the chains at least half as long as the longest: only these tell how fast chains forget."""
    return [int(length) for length in np.asarray(lengths)[_is_long(lengths)]]


def _is_long(lengths: Sequence[int]) -> np.ndarray:
    return 2 * np.asarray(lengths) >= max(lengths)


def too_short(lengths: Sequence[int], time: float | None, effective: float) -> np.ndarray:
    """Whether each chain is shorter than a block of ``effective`` effective draws, and none of the `long` ones.

    The mean of less than a block varies by more than that of a block, and cannot be exchanged with it.
    """
    return ~_is_long(lengths) & (np.asarray(lengths) < np.ceil(effective * (1.0 if time is None else time)))


def exchangeable_blocks(lengths: Sequence[int], time: float | None, effective: float) -> ExchangeableBlocks:
    """Cut chains into whole blocks of ``effective`` effective draws, keeping no draws that add nothing new.

    Chains that are `too_short` are left out, and of very many chains most.
    """
    own = 1.0 if time is None else time
    # draws half an autocorrelation time apart, and no more in all than are compared
    step = max(int(own / 2.0), -(-sum(lengths) // _MAX_DRAWS), 1)
    found, ends = [], np.cumsum(lengths)
    chains = np.flatnonzero(~too_short(lengths, time, effective))
    # of very many chains some, for each of them has a block of a draw at least
    for chain in chains[:: max(1, len(chains) // _MAX_DRAWS)].tolist():
        length = lengths[chain]
        count = max(1, min(int(length // np.ceil(effective * own)), -(-length // step)))
        edges = np.linspace(0, length, count + 1).astype(int)
        found += [ends[chain] - length + np.arange(low, high, step) for low, high in itertools.pairwise(edges)]
    return ExchangeableBlocks(np.concatenate(found), np.cumsum([0, *map(len, found[:-1])]))


def joined(first: ExchangeableBlocks, last: ExchangeableBlocks, num_first: int) -> ExchangeableBlocks:
    """Blocks of both sides as one, draws of the last counted on from the ``num_first`` draws of the first."""
    draws = np.concatenate([first.draws, num_first + last.draws])
    return ExchangeableBlocks(draws, np.concatenate([first.starts, len(first.draws) + last.starts]))


def distances(features: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """``(block, block)``: mean Euclidean distances between the draws of two blocks."""
    x = features - features.mean(0)
    norms, counts = np.square(x).sum(1), np.diff([*starts, len(x)])
    rows = np.empty((len(x), len(starts)))
    for items in slices(len(x), len(x)):
        squares = norms[items, None] + norms - 2.0 * (x[items] @ x.T)
        each = np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)
        rows[items] = np.add.reduceat(each, starts, axis=1)
    return np.add.reduceat(rows, starts, axis=0) / np.outer(counts, counts)


def exchanges(rng: np.random.Generator, first: int, last: int, count: int) -> np.ndarray:
    """``(1 + count, block)``: which blocks are the first side's: first as they are, then exchanged at random."""
    own = np.arange(first + last) < first
    return np.concatenate([own[None], rng.permuted(np.tile(own, (count, 1)), axis=1)])


def energies(between: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Energies ``(exchange,)`` of distances between blocks, without those of a block from itself; may be negative."""
    a, own = first.astype(float), np.diag(between)
    in_a = a @ between
    num_a, num_b = a.sum(1), (1.0 - a).sum(1)
    whole, both, own_a = between.sum(), in_a.sum(1), a @ own
    a_a = (in_a * a).sum(1)
    a_b = both - a_a
    b_b = whole - a_a - 2.0 * a_b
    within_a = (a_a - own_a) / (num_a * (num_a - 1.0))
    within_b = (b_b - own.sum() + own_a) / (num_b * (num_b - 1.0))
    return 2.0 * a_b / (num_a * num_b) - within_a - within_b


def ranks(statistics: np.ndarray) -> np.ndarray:
    """For each exchange, the share of all exchanges that are at least as extreme: the first entry is a p-value."""
    largest = float(np.abs(statistics).max(initial=0.0))
    # statistics that differ by rounding are tied, and a tie counts as at least as extreme
    ordered = np.sort(statistics)
    below = np.searchsorted(ordered, statistics - 1e-10 * largest, side="left")
    return (len(statistics) - below) / len(statistics)


def least(by_statistic: Sequence[np.ndarray]) -> float:
    """The p-value of the least p among several statistics under the same exchanges: exact, and no bound."""
    return float(ranks(-np.min([ranks(one) for one in by_statistic], axis=0))[0])


def floor_of(effects: np.ndarray) -> float:
    """What an effect has to exceed: one that exchanges exceed one time in twenty is noise."""
    return float(np.quantile(effects, 0.95))


class MomentDifferences(NamedTuple):
    """For each number: the first side's mean less the last's, in deviations; half the log ratio of variances.

    Attributes
    ----------
    shift, log_ratio
        ``(number,)``, of the sides as they are.
    p_shift, p_log_ratio
        ``(number,)``: p-values of the largest of all numbers' statistics, so that any of them may be picked out.
    """

    shift: np.ndarray
    log_ratio: np.ndarray
    p_shift: np.ndarray
    p_log_ratio: np.ndarray


def moment_differences(values: np.ndarray, starts: np.ndarray, first: np.ndarray) -> MomentDifferences:
    """Compare means and deviations of every number ``(draw, number)``, blocks exchanged as for energies."""
    counts = np.diff([*starts, len(values)])[:, None]
    parts = []
    for items in slices(values.shape[1], 4 * len(first)):
        x = values[:, items] - values[:, items].mean(0)
        means, squares = (np.add.reduceat(y, starts, axis=0) / counts for y in (x, np.square(x)))
        parts.append(_moments(means, squares, first, np.ptp(values[:, items], axis=0) > 0))
    each = [[part[k] for part in parts] for k in (0, 1)]
    return MomentDifferences(*(np.concatenate([part[0] for part in one]) for one in each), *map(_of_largest, each))


def _moments(
    means: np.ndarray, squares: np.ndarray, first: np.ndarray, varies: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Shifts and log ratios ``(exchange, number)`` of block means of numbers and of their squares."""

    def of_side(member: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        weights = member / member.sum(1, keepdims=True)
        mean = weights @ means
        second = weights @ squares
        rounding = _ROUNDING * second + np.finfo(float).tiny
        # a number that is constant on one side has no spread but rounding
        return mean, np.maximum(second - np.square(mean), rounding), rounding

    (mean_a, var_a, least_a), (mean_b, var_b, least_b) = of_side(first.astype(float)), of_side(1.0 - first)
    shift = (mean_a - mean_b) / np.sqrt((var_a + var_b) / 2.0)
    differs = varies & (np.abs(var_a - var_b) > np.maximum(least_a, least_b))
    return np.where(varies, shift, 0.0), np.where(differs, 0.5 * np.log(var_a / var_b), 0.0)


def _of_largest(parts: Sequence[np.ndarray]) -> np.ndarray:
    """p-values ``(number,)``: the first row of ``(exchange, number)`` among the largest, scaled, of all numbers."""
    each = [np.abs(part) / np.where((spread := part[1:].std(0)) > 0, spread, 1.0) for part in parts]
    largest = np.sort(np.max([one.max(1) for one in each], axis=0))
    observed = np.concatenate([one[0] for one in each])
    below = np.searchsorted(largest, observed * (1.0 - 1e-10), side="left")
    return (len(largest) - below) / len(largest)
