r"""The ratio of two normalising constants from draws of both densities: estimates, bounds, and their standard errors.

Knows log weights; no models, no guides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from numpyro.diagnostics import effective_sample_size

from numpyro_symmetry.entropy.importance import effective_number, log_mean

# a tolerance in nats, far below any error of sampling; and rounds, of which tens do where the two densities overlap
_TOLERANCE, _MAX_ROUNDS = 1e-10, 1000
# more blocks know their own scatter better, fewer and longer ones make tighter bounds
_NUM_BLOCKS = 20


class Estimate(NamedTuple):
    """A log normalising constant, its standard error, and what they rest on.

    Attributes
    ----------
    value, error
        Nats.
    of_target
        Effective number of the target's draws that were bridged; infinite where none is needed.
    of_proposal
        Effective number of the proposal's draws; where they were bridged, of those that lie where the target does.
    num_rounds, converged
        Number of iterations of the bridge, and whether they settled.
    """

    value: float
    error: float
    of_target: float
    of_proposal: float
    num_rounds: int = 0
    converged: bool = True


class Bound(NamedTuple):
    """A bound in expectation on a log normalising constant, and its standard error; nats."""

    value: float
    error: float


def importance(log_weights: NDArray[np.float64]) -> Estimate:
    r"""Log of the mean weight of independent draws of the proposal, :math:`\log\frac1N\sum_n w_n`.

    Parameters
    ----------
    log_weights
        ``(N,)``: log target (unnormalised) less log proposal, nats.

    Returns
    -------
    Estimate
        The mean weight is unbiased; ``error`` is that of its logarithm, to first order.
    """
    return Estimate(*log_mean(log_weights), np.inf, effective_number(log_weights))


def bridge(of_target: NDArray[np.float64], of_proposal: NDArray[np.float64]) -> Estimate:
    r"""Bridge sampling with the optimal bridge, iterated to its fixed point.

    .. math:: r = \frac{\frac1{N_2}\sum_{\theta\sim q} w / (s_1 w + s_2 r)}
                       {\frac1{N_1}\sum_{\theta\sim p} 1 / (s_1 w + s_2 r)},
              \qquad s_i = N_i / (N_1 + N_2)

    Parameters
    ----------
    of_target
        ``(chain, draw)``: log weights of the target's draws, nats, in the order they were drawn: their
        autocorrelation counts, in the shares :math:`s_i` and in the error.
    of_proposal
        ``(N2,)``: log weights of independent draws of the proposal.

    Returns
    -------
    Estimate
        The log normalising constant of the target.

    References
    ----------
    Meng and Wong (1996), *Simulating ratios of normalizing constants via a simple identity*, eq. 4.1.
    Frühwirth-Schnatter (2004), *Estimating marginal likelihoods for mixture and Markov switching models using bridge
    sampling techniques*, eq. 22, for the error.
    """
    # shifted to about zero, for float64 has no digits left for small changes of large numbers
    offset = float(np.median(of_target))
    of_target, of_proposal = of_target - offset, of_proposal - offset
    flat = of_target.ravel()
    effective = _effective(of_target)
    log_share_target = np.log(effective / (effective + len(of_proposal)))
    log_share_proposal = np.log(len(of_proposal) / (effective + len(of_proposal)))

    def mixed(log_weights: NDArray[np.float64], value: float) -> NDArray[np.float64]:
        return np.logaddexp(log_share_target + log_weights, log_share_proposal + value)

    value, rounds, change = 0.0, 0, np.inf
    while change > _TOLERANCE and rounds < _MAX_ROUNDS:
        above = np.logaddexp.reduce(of_proposal - mixed(of_proposal, value)) - np.log(len(of_proposal))
        below = np.logaddexp.reduce(-mixed(flat, value)) - np.log(len(flat))
        change, value, rounds = abs(above - below - value), float(above - below), rounds + 1
    # w/r over the mixture's share, whose means over the two sets of draws agree at the fixed point
    log_from_proposal = of_proposal - mixed(of_proposal, value)
    from_target = np.exp(value - mixed(of_target, value))
    of_target_alone = from_target.var() / from_target.mean() ** 2 / _effective(from_target)
    error = float(np.sqrt(log_mean(log_from_proposal)[1] ** 2 + of_target_alone))
    met = effective_number(log_from_proposal)
    return Estimate(offset + value, error, effective, met, rounds, bool(change <= _TOLERANCE))


def lower_bound(of_proposal: NDArray[np.float64]) -> Bound:
    r"""Bound a log normalising constant Z from below by log means of J weights, averaged over blocks of draws.

    .. math:: \operatorname{E}_{x_1, \dots, x_J \sim q} \log \frac1J \sum_{j=1}^J w(x_j) \le \log Z

    With :math:`\pi` the normalised target and :math:`r = \frac1J \sum_j \pi(x_j) \prod_{i \ne j} q(x_i)`, the density
    of J draws of which a random one is the target's, :math:`\frac1J \sum_j w(x_j) / Z = r / \prod_j q(x_j)`. So the
    gap is :math:`\operatorname{KL}(\prod q \,\|\, r) \ge 0`, and for `upper_bound` it is
    :math:`\operatorname{KL}(r \,\|\, \prod q)`.

    Parameters
    ----------
    of_proposal
        ``(N,)``: log weights of independent draws of the proposal, nats.

    Returns
    -------
    Bound
        Valid for any N; minus infinity if a whole block has no weight.

    References
    ----------
    Burda, Grosse and Salakhutdinov (2016), *Importance Weighted Autoencoders*.
    """
    sums, counts = _blocks(of_proposal)
    each = sums - np.log(counts)
    return Bound(float(each.mean()), _error_of_mean(each))


def upper_bound(of_target: NDArray[np.float64], of_proposal: NDArray[np.float64]) -> Bound:
    r"""Bound a log normalising constant Z from above by log means of one weight of the target's and J - 1 others.

    .. math:: \operatorname{E}_{x_1 \sim \pi,\; x_2, \dots, x_J \sim q} \log \frac1J \sum_{j=1}^J w(x_j) \ge \log Z

    See `lower_bound` for the proof: all J weights enter alike, so that it does not matter which of them is the
    target's. Every draw of the target is put beside every block of the proposal's.

    Parameters
    ----------
    of_target
        ``(chain, draw)``: log weights of the target's draws, nats, in the order they were drawn: their autocorrelation
        counts in the error.
    of_proposal
        ``(N,)``: log weights of independent draws of the proposal.

    Returns
    -------
    Bound
        Valid for any N, and whatever the autocorrelation.

    References
    ----------
    Brekelmans et al. (2022), *Improving Mutual Information Estimation with Annealed and Energy-Based Bounds*; Sobolev
    and Vetrov (2019), *Importance Weighted Hierarchical Variational Inference*; Grosse, Ghahramani and Adams (2015),
    *Sandwiching the marginal likelihood using bidirectional Monte Carlo*.
    """
    sums, counts = _blocks(of_proposal)
    table = np.logaddexp(of_target[..., None], sums) - np.log(counts + 1)
    of_draws, of_blocks = table.mean(-1), table.mean((0, 1))
    error = np.hypot(of_draws.std() / np.sqrt(_effective(of_draws)), _error_of_mean(of_blocks))
    return Bound(float(of_draws.mean()), float(error))


def _blocks(log_weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Log sums of weights over blocks of draws, and how many draws each holds."""
    blocks = np.array_split(log_weights, min(_NUM_BLOCKS, len(log_weights)))
    return np.array([np.logaddexp.reduce(block) for block in blocks]), np.array([len(block) for block in blocks])


def _error_of_mean(values: NDArray[np.float64]) -> float:
    # a block without any weight is infinitely low, and its error is not a number
    with np.errstate(invalid="ignore"):
        return float(values.std(ddof=1) / np.sqrt(len(values)))


def _effective(values: NDArray[np.float64]) -> float:
    """Effective number of draws, at most their number; of draws that are all alike, their number."""
    if np.ptp(values) == 0 or values.shape[1] < 4:
        return float(values.size)
    return float(np.clip(effective_sample_size(values), 1.0, values.size))
