"""`LogEvidence`: an estimate between its bounds, and what it rests on, in words. Knows no models and no weights."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from numpyro_symmetry.entropy.importance import doubt_in_words, shape_in_words
from numpyro_symmetry.evidence.doubts import is_by_few
from numpyro_symmetry.symmetry import as_html

_FEWEST_DECIMALS, _MOST_DECIMALS = 2, 4


class LogEvidence(NamedTuple):
    r"""An estimate of :math:`\log p(\text{data})` and bounds on it from both sides, nats.

    Attributes
    ----------
    value
        The estimate.
    error
        Its standard error; ``nan`` for ``"laplace"``, whose error is not one of sampling.
    lower, lower_error
        At most :math:`\log p(\text{data})` in expectation, and its standard error: from draws of the proposal, and so
        right whatever the posterior's draws are. ``-inf`` for ``"laplace"``.
    upper, upper_error
        At least :math:`\log p(\text{data})` in expectation, if the draws are the posterior's, under any labels. ``inf``
        where there are none: for a guide and for ``"laplace"``.
    correction
        What symmetrizing the Gaussian adds, :math:`I(g;\theta)`: :math:`\log|G|` where all copies are distinct, less
        where they overlap. For ``"laplace"`` :math:`\log q - \log q^G` at the centre, where copies overlap least.
        ``value`` has it in it already.
    log_order
        :math:`\log|G|`.
    effective
        Effective number of the proposal's draws, :math:`(\sum w)^2 / \sum w^2`; one for ``"laplace"``.
    pareto_shape
        Shape :math:`\hat k` of the tail of these weights: above 0.7, or with fewer than ten effective draws, few
        weights make up all of a mean, and the printed result says whose error is not to be trusted. For
        ``"importance"`` it says so wherever `log_evidence` warns that few are effective. ``nan`` for fewer than 21
        draws.
    method
        ``"bridge"``, ``"importance"`` or ``"laplace"``.
    num_draws
        How many draws of the proposal were weighed.

    Examples
    --------
    >>> from numpyro_symmetry.evidence import LogEvidence
    >>> print(LogEvidence(-3.0, 0.01, -3.02, 0.01, -2.97, 0.02, 1.71, 1.79, 1800.0, 0.12, "bridge"))
    log p(data) = -3.00 ± 0.01 nats by bridge; -3.02 ± 0.01 ≤ log p(data) ≤ -2.97 ± 0.02 in expectation
    I = 1.71 of log|G| = 1.79 nats; 1800 of the proposal's draws are effective, Pareto shape 0.12
    """

    value: float
    error: float
    lower: float
    lower_error: float
    upper: float
    upper_error: float
    correction: float
    log_order: float
    effective: float
    pareto_shape: float
    method: str
    num_draws: int = 0

    def __str__(self) -> str:
        """Two lines: the estimate between its bounds, and what it rests on."""
        information = f"I = {self.correction:.2f} of log|G| = {self.log_order:.2f} nats"
        if self.method == "laplace":
            return f"log p(data) = {self.value:.2f} nats by laplace, with no error and no bounds; {information}"
        ends = (self.value, self.error), (self.lower, self.lower_error), (self.upper, self.upper_error)
        decimals = _decimals(error for _, error in ends)
        value, lower, upper = (f"{end:.{decimals}f} ± {error:.{decimals}f}" for end, error in ends)
        above = f" ≤ {upper}" if math.isfinite(self.upper) else ""
        # a bridge weighs no draw by more than its share of either density: of it only the bounds are means of weights
        whose = "the error" if self.method == "importance" else "the errors of the bounds"
        few = is_by_few(self.method, self.effective, self.num_draws, self.pareto_shape)
        why = doubt_in_words(self.pareto_shape, self.effective) or ("these are few" if few else "")
        doubt = f": {why}, so do not trust {whose}" if why else ""
        return (
            f"log p(data) = {value} nats by {self.method}; {lower} ≤ log p(data){above} in expectation\n"
            f"{information}; {self.effective:.0f} of the proposal's draws are effective, "
            f"{shape_in_words(self.pareto_shape)}{doubt}"
        )

    __repr__ = __str__
    _repr_html_ = as_html


def _decimals(errors: Iterable[float]) -> int:
    """As many decimals as show a digit of the smallest error: with fewer, the estimate may seem beyond a bound."""
    smallest = min((error for error in errors if math.isfinite(error) and error > 0), default=1.0)
    return min(max(math.ceil(-math.log10(smallest)), _FEWEST_DECIMALS), _MOST_DECIMALS)
