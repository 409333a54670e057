r"""How fast chains forget: autocorrelations and their times, of many numbers at once.

Knows arrays ``(chain, draw, entry)``; no sites, no containers and no labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import fft

# length of blocks, in autocorrelation times
_TIMES = 2.0
# chains of fewer draws say too little of their own memory: differences between them have to speak for it
_MIN_DRAWS = 20
# most entries of an array off which memory is read, and most draws that a block keeps
_MAX_ENTRIES, _MAX_KEPT = 200, 4


class Blocks(NamedTuple):
    """Draws, chain after chain, cut into blocks that hardly remember each other.

    Attributes
    ----------
    draws
        ``(number, kept)``: which draws each block keeps.
    """

    draws: np.ndarray

    @property
    def number(self) -> int:
        """How many blocks there are."""
        return self.draws.shape[0]

    @property
    def num_draws(self) -> int:
        """How many draws they keep."""
        return self.draws.size

    def cut(self, values: np.ndarray) -> np.ndarray:
        """``(draw, *shape)`` -> ``(number, *shape, kept)``."""
        return np.moveaxis(values[self.draws], 1, -1)

    def joined(self, values: np.ndarray) -> np.ndarray:
        """``(number, *shape, kept)`` -> ``(number * kept, *shape)``."""
        back = np.moveaxis(values, -1, 1)
        return back.reshape(math.prod(back.shape[:2]), *back.shape[2:])


def evenly(leading: tuple[int, ...], count: int) -> tuple[np.ndarray, tuple[int, int]]:
    """About as many draws as asked for, evenly spaced within chains, and how many chains of how many draws that makes.

    Parameters
    ----------
    leading
        ``(draw,)`` or ``(chain, draw)``.
    count
        The most to take.

    Returns
    -------
    draws, shape
        Indices into the draws of all chains, chain after chain, and ``(chain, draw)``.
    """
    num_chains, num_draws = math.prod(leading[:-1]), leading[-1]
    chains = np.unique(np.linspace(0, num_chains - 1, min(num_chains, count)).astype(int))
    each = np.unique(np.linspace(0, num_draws - 1, min(num_draws, max(1, count // len(chains)))).astype(int))
    return (chains[:, None] * num_draws + each).ravel(), (len(chains), len(each))


def blocks_of(values: Mapping[str, np.ndarray], shape: tuple[int, int]) -> Blocks:
    """Cut draws into blocks of twice as many as their chains remember; into whole chains, if two do not fit one.

    Parameters
    ----------
    values
        Site -> ``(draw, ...)``, chain after chain.
    shape
        How many chains of how many draws.

    Returns
    -------
    Blocks
        Single draws where chains forget at once.
    """
    num_chains, num_draws = shape
    flat = [value.reshape(*shape, -1) for value in values.values()]
    # entries that are the same in all draws have nothing to remember, unless all are
    moving = [value[..., varies] for value in flat if (varies := value.min((0, 1)) < value.max((0, 1))).any()]
    time = max(map(_memory, moving or flat))
    # an autocorrelation time that independent draws may have by chance
    chance = 1.0 + max(0.5, 8.0 / np.sqrt(num_chains * num_draws))
    length = 1 if time < chance else int(np.ceil(_TIMES * min(time, num_draws)))
    if num_draws < 2 * length:
        length = num_draws
    stride = max(1, length // _MAX_KEPT)
    starts = np.arange(num_draws // length) * length
    within = np.arange(0, length, stride)[:_MAX_KEPT]
    draws = np.arange(num_chains)[:, None, None] * num_draws + starts[:, None] + within
    return Blocks(draws.reshape(-1, len(within)))


def _memory(values: np.ndarray) -> float:
    """Autocorrelation time of ``(chain, draw, entry)``, all entries together; infinite for chains that do not move."""
    num_chains, num_draws, size = values.shape
    values = values[..., np.unique(np.linspace(0, size - 1, min(size, _MAX_ENTRIES)).astype(int))]
    covariance = autocovariance(values)
    moving = covariance[0] > 0
    if not moving.any():
        return np.inf if num_draws > 1 else 1.0
    if num_draws < _MIN_DRAWS:
        if num_chains == 1:
            return 1.0
        covariance = covariance + values.mean(1).var(0, ddof=1)
    correlation = (covariance[:, moving] / covariance[0, moving]).mean(1, keepdims=True)
    return float(integrated(correlation)[0])


def autocovariance(values: np.ndarray) -> np.ndarray:
    r"""Autocovariances about each chain's own mean, :math:`\tfrac1n \sum_t (x_t - \bar x)(x_{t+k} - \bar x)`.

    Parameters
    ----------
    values
        ``(chain, draw, entry)``.

    Returns
    -------
    numpy.ndarray
        ``(lag, entry)``, the mean over chains.
    """
    count = values.shape[1]
    rows = np.moveaxis(values - values.mean(1, keepdims=True), 2, 0)
    # padded, so that the end does not meet the beginning
    length = fft.next_fast_len(2 * count - 1, real=True)
    parts = np.asarray(fft.rfft(rows, length)).view(rows.dtype)
    # transforms are linear: back from the sum of all chains, and not from each of them
    squares = np.einsum("ecf,ecf->ef", parts, parts)
    return np.asarray(fft.irfft(squares[:, ::2] + squares[:, 1::2], length))[:, :count].T / (count * len(values))


def integrated(correlation: np.ndarray) -> np.ndarray:
    r"""Autocorrelation time :math:`1 + 2\sum_k \rho_k` by Geyer's initial monotone sequence.

    Sums of two neighbouring lags are never negative and never rise in a reversible chain; the sum ends where noise
    makes them negative.

    Parameters
    ----------
    correlation
        ``(lag, entry)``, one at lag zero.

    Returns
    -------
    numpy.ndarray
        ``(entry,)``.

    References
    ----------
    Geyer (1992), Practical Markov chain Monte Carlo.
    """
    pairs, last = _initial(correlation)
    return -1.0 + 2.0 * pairs.sum(0) + last


def _initial(correlation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The initial monotone sequence ``(pair, entry)``, zero where it has ended, and the half that still counts."""
    even, odd = correlation[0::2], correlation[1::2]
    pairs = even[: len(odd)] + odd
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    # the last lags are means of too few
    positive[max(0, (len(correlation) - 3) // 2) :] = False
    end = positive.sum(0)
    monotone = np.minimum.accumulate(pairs, axis=0)
    # of the pair that ends the sum its even half still counts, if it is positive
    last = np.take_along_axis(even, end[None], 0)[0]
    return np.where(positive, monotone, 0.0), np.maximum(last, 0.0)


class Memory(NamedTuple):
    r"""How chains remember: a mean over n draws has the variance :math:`\sigma^2\tau(1 - \kappa/n)/n`.

    Attributes
    ----------
    time
        ``(entry,)``: :math:`\tau = 1 + 2\sum_k \rho_k`, in draws; at least one over the logarithm of the number of
        draws, and one for what does not move.
    overlap
        ``(entry,)``: :math:`\kappa = 2\sum_k k\rho_k / \tau`, at least zero: means over neighbouring blocks of n draws
        have a correlation of about :math:`\kappa/2n`.
    """

    time: np.ndarray
    overlap: np.ndarray


def memory(values: np.ndarray) -> Memory:
    """What chains remember of themselves: what they differ in is no part of it.

    Parameters
    ----------
    values
        ``(chain, draw, entry)``.
    """
    num_chains, num_draws, _ = values.shape
    covariance = autocovariance(values)
    moving = covariance[0] > 0
    correlation = covariance / np.where(moving, covariance[0], 1.0)
    # autocovariances about a chain's own mean are too low, by the variance of that mean
    of_mean = np.clip(integrated(correlation), 0.0, 0.5 * num_draws) / num_draws
    pairs, last = _initial(correlation * (1.0 - of_mean) + of_mean)
    least = 1.0 / np.log10(max(10, num_chains * num_draws))
    time = np.where(moving, np.maximum(-1.0 + 2.0 * pairs.sum(0) + last, least), 1.0)
    # both lags of a pair as if they were as likely, but for the first, of which one is no lag
    lagged = ((2.0 * np.arange(len(pairs))[:, None] + 0.5) * pairs).sum(0) + 0.5 * pairs[0] - 1.0
    return Memory(time, np.where(moving, np.maximum(2.0 * lagged / time, 0.0), 0.0))
