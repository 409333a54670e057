"""When an evidence is not to be believed: weights that are no numbers, large errors, bounds that contradict it.

Knows log weights and what was made of them; no models, no guides.
"""

from __future__ import annotations

import math

import numpy as np

from numpyro_symmetry.evidence.bridge import Bound, Estimate
from numpyro_symmetry.symmetry import SymmetryError, warn
from numpyro_symmetry.symmetry.shown import counted

# nats: models are told apart by a factor of a few in the evidence, which such an error may hide
_LARGE_ERROR = 0.5
# an error from fewer effective draws is a guess: on either side of a bridge, whose weights are bounded; and by
# importance weights, which are not
_FEW_OF_BRIDGE, _FEW_OF_IMPORTANCE = 25.0, 100.0
# weights with a tail of this shape have no variance, and it shows where a smaller share of them is effective: of 115
# estimates by a mean-field guide, 100 to 400 of 2000 draws effective, none had the truth within three errors
_NO_VARIANCE, _SHARE_THAT_COUNTS = 0.5, 0.2
# standard errors between an estimate and a bound on the wrong side of it that chance does not put there
_CONTRADICTION = 4.0


def refuse_no_density(log_weights: np.ndarray) -> None:
    """Refuse draws of the posterior that the model gives no density.

    Raises
    ------
    SymmetryError
        If there are any such draws.
    """
    if bad := int((~np.isfinite(log_weights)).sum()):
        raise SymmetryError(
            f"The model gives {bad} of the {len(log_weights)} draws that are bridged no density: are these the data "
            "and the model that they were drawn with? float32 may also have rounded them to the border of a support "
            "(numpyro.enable_x64())."
        )


def finite(log_weights: np.ndarray) -> np.ndarray:
    """Log weights of the proposal's draws, minus infinity, with a warning, for those that are no numbers.

    Raises
    ------
    SymmetryError
        If no draw has any weight.
    """
    bad = np.isnan(log_weights) | np.isposinf(log_weights)
    if bad.any():
        warn(
            f"{int(bad.sum())} of {len(log_weights)} draws of the proposal have a weight that is not finite, and are "
            "taken to have none: float32 may have rounded them to the border of a support (numpyro.enable_x64())."
        )
    log_weights = np.where(bad, -np.inf, log_weights)
    if np.isneginf(log_weights).all():
        raise SymmetryError("No draw of the proposal has a positive density under the model: they share no support.")
    return log_weights


def warn_if_unreliable(estimate: Estimate, method: str, num_draws: int, pareto_shape: float = math.nan) -> None:
    """Warn of an estimate that did not settle, has a large error, or rests on few of ``num_draws`` of the proposal."""
    few = _fewest_effective(method, num_draws, pareto_shape)
    which = "lie where the posterior does" if method == "bridge" else "are effective"
    guess, longer = "so that the error is itself a guess", "Sample longer, or draw more (num_draws)"
    other = "Draw more (num_draws), or, of a NumPyro model, fit a guide of another shape"
    # the gravest first
    doubts = (
        (not estimate.converged, f"the bridge did not settle in {counted(estimate.num_rounds, 'round')}. {longer}"),
        (
            estimate.of_target < _FEW_OF_BRIDGE,
            f"only {estimate.of_target:.0f} of the posterior's draws are effective, {guess}. Sample longer",
        ),
        (
            estimate.of_proposal < few,
            f"only {estimate.of_proposal:.0f} of the proposal's {num_draws} draws {which}, {guess}. {other}",
        ),
        (not estimate.error < _LARGE_ERROR, f"its error is {estimate.error:.1f} nats. {longer}"),
    )
    for why in [words for is_so, words in doubts if is_so][:1]:
        warn(f"The evidence is not reliable: {why}.")


def is_by_few(method: str, effective: float, num_draws: int, pareto_shape: float) -> bool:
    """Whether ``value`` is the mean of weights of which so few are effective that its error is itself a guess."""
    return method == "importance" and effective < _fewest_effective(method, num_draws, pareto_shape)


def _fewest_effective(method: str, num_draws: int, pareto_shape: float) -> float:
    few = min(_FEW_OF_BRIDGE if method == "bridge" else _FEW_OF_IMPORTANCE, num_draws / 2)
    has_no_variance = method == "importance" and pareto_shape > _NO_VARIANCE
    return max(few, _SHARE_THAT_COUNTS * num_draws) if has_no_variance else few


def warn_of_contradiction(estimate: Estimate, lower: Bound, upper: Bound) -> None:
    """Warn of an estimate that lies beyond a bound, as it does where the draws are not the posterior's."""
    for gap, error, where in (
        (lower.value - estimate.value, lower.error, "below its lower bound"),
        (estimate.value - upper.value, upper.error, "above its upper bound"),
    ):
        if gap > _CONTRADICTION * math.hypot(estimate.error, error):
            warn(
                f"The evidence is not reliable: the estimate lies {gap:.1f} nats {where}. The draws are not those of "
                "this model's posterior: look whether they are of the same data and parameters, untransformed, and "
                "whether chains have converged. The lower bound holds whatever they are."
            )
