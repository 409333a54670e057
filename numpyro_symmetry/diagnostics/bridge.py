r"""The ratio of two normalising constants from draws of both densities, and its standard error.

Knows log weights; no models, no guides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from numpyro.diagnostics import effective_sample_size

_TOLERANCE, _MAX_ROUNDS = 1e-10, 1000


class Estimate(NamedTuple):
    """A log normalising constant, its standard error, and what they rest on.

    Attributes
    ----------
    value, error
        Nats.
    effective
        Effective number of the target's draws that were bridged; of the proposal's, where only these were weighed.
    num_rounds, converged
        How often it was iterated, and whether it settled.
    """

    value: float
    error: float
    effective: float
    num_rounds: int = 0
    converged: bool = True


def importance(log_weights: NDArray[np.float64]) -> Estimate:
    r"""Log of the mean weight of independent draws of the proposal, :math:`\log\frac1N\sum_n w_n`.

    Parameters
    ----------
    log_weights
        ``(N,)``: log target (unnormalised) less log proposal, nats.

    Returns
    -------
    Estimate
        Its mean weight is unbiased; the error is that of its logarithm to first order.
    """
    value = float(np.logaddexp.reduce(log_weights) - np.log(len(log_weights)))
    return Estimate(value, _relative_error(np.exp(log_weights - value)), effective_weights(log_weights))


def effective_weights(log_weights: NDArray[np.float64]) -> float:
    r"""Effective number of weighted draws, :math:`(\sum w)^2 / \sum w^2`."""
    return float(np.exp(2 * float(np.logaddexp.reduce(log_weights)) - float(np.logaddexp.reduce(2 * log_weights))))


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
    # about zero, for float64 has no digits left for small changes of large numbers
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
    from_proposal = np.exp(of_proposal - mixed(of_proposal, value))
    from_target = np.exp(value - mixed(of_target, value))
    of_target_alone = from_target.var() / from_target.mean() ** 2 / _effective(from_target)
    error = float(np.sqrt(_relative_error(from_proposal) ** 2 + of_target_alone))
    return Estimate(offset + value, error, effective, rounds, bool(change <= _TOLERANCE))


def _effective(values: NDArray[np.float64]) -> float:
    """Effective number of draws, at most their number; of draws that are all alike, their number."""
    if np.ptp(values) == 0 or values.shape[1] < 4:
        return float(values.size)
    return float(np.clip(effective_sample_size(values), 1.0, values.size))


def _relative_error(weights: NDArray[np.float64]) -> float:
    return float(weights.std(ddof=1) / weights.mean() / np.sqrt(len(weights)))
