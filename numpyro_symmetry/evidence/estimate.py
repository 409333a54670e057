r"""`log_evidence`: the evidence of a model from draws whose labels mean nothing, or from one labelled mode.

One density is compared with the posterior throughout: a Gaussian in one basin, symmetrized. Knows containers, rebasing
and symmetrized guides, and puts them together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from numpyro_symmetry.containers import model_of
from numpyro_symmetry.entropy.importance import effective_number, pareto_shape
from numpyro_symmetry.evidence.bridge import Bound, Estimate, bridge, importance, lower_bound, upper_bound
from numpyro_symmetry.evidence.proposal import Proposal, proposal_of_draws, proposal_of_guide, refuse_no_model
from numpyro_symmetry.evidence.weights import LogWeights, averaged_over, log_weights
from numpyro_symmetry.guides import AutoSymmetrized
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, SymmetryWarning, UnsupportedGuideError
from numpyro_symmetry.symmetry.arguments import (
    as_count,
    as_flag,
    as_key,
    as_model_arguments,
    is_option,
    refuse_masked_arguments,
    refuse_tracers,
)

METHODS = ("bridge", "importance", "laplace")
_SAMPLES, _LARGE_ERROR = 2000, 0.5
# standard errors between an estimate and a bound on the wrong side of it that chance does not put there
_CONTRADICTION = 4.0


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
        What symmetrizing the Gaussian does, :math:`I(g;\theta)`: :math:`\log|G|` where all copies are distinct, less
        where they overlap. For ``"laplace"`` :math:`\log q - \log q^G` at the centre, where copies overlap least. The
        value holds it already.
    log_order
        :math:`\log|G|`.
    effective
        Effective number of the proposal's draws, :math:`(\sum w)^2 / \sum w^2`; one for ``"laplace"``.
    pareto_shape
        Shape :math:`\hat k` of the tail of these weights: above 0.7 few of them are all of the mean. ``nan`` where
        fewer than 25 are there to tell.
    method
        How it was found.

    Examples
    --------
    >>> from numpyro_symmetry.diagnostics import LogEvidence
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

    def __str__(self) -> str:
        """Two lines: the estimate between its bounds, and what it rests on."""
        information = f"I = {self.correction:.2f} of log|G| = {self.log_order:.2f} nats"
        if self.method == "laplace":
            return f"log p(data) = {self.value:.2f} nats by laplace, with no error and no bounds; {information}"
        below = f"{self.lower:.2f} ± {self.lower_error:.2f} ≤ log p(data)"
        above = f" ≤ {self.upper:.2f} ± {self.upper_error:.2f}" if math.isfinite(self.upper) else ""
        return (
            f"log p(data) = {self.value:.2f} ± {self.error:.2f} nats by {self.method}; {below}{above} in expectation\n"
            f"{information}; {self.effective:.0f} of the proposal's draws are effective, "
            f"Pareto shape {self.pareto_shape:.2f}"
        )


def log_evidence(
    data: Any,
    model: Callable[..., Any] | None = None,
    model_args: tuple[Any, ...] | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    symmetry: Symmetry | None = None,
    signs: bool = True,
    method: str = "auto",
    num_samples: int | None = None,
    num_permutations: int = 16,
    rng_key: Array | None = None,
) -> LogEvidence:
    r"""Estimate a model's log evidence, and bound it, with a Gaussian symmetrized over permutations and signs.

    .. math:: p(\text{data}) = \operatorname{E}_{\theta\sim q^G}\frac{p(\theta, \text{data})}{q^G(\theta)},
              \qquad q^G(\theta) = \frac1{|G|}\sum_{g\in G} q(g\theta)

    A Gaussian fitted to draws under one set of labels misses all other copies of the posterior, a factor of up to
    :math:`|G|`; one fitted to draws of switching labels fits none. The symmetrized one covers every copy, and weighs
    them as far as they are distinct, which is what adding :math:`\log|G|` by hand does not.

    With :math:`w = p(\theta, \text{data}) / q^G(\theta)`, and J weights of which either none or one is that of a draw
    of the posterior,

    .. math:: \operatorname{E}_{\theta_{1:J} \sim q^G} \log \frac1J \sum_j w(\theta_j)
              \;\le\; \log p(\text{data}) \;\le\;
              \operatorname{E}_{\theta_1 \sim p(\theta\mid\text{data}),\; \theta_{2:J} \sim q^G}
              \log \frac1J \sum_j w(\theta_j).

    The lower side holds for any proposal. The upper one assumes that ``data`` are draws of the posterior, of all its
    labels or of one basin, for w does not know them apart: a mode beyond labels that no chain has visited, or chains
    that have not converged, can put it too low. Both hold for groups of any size (`log_weights`).

    Parameters
    ----------
    data
        Draws of the posterior, labels switching or not: any container that `rebase` takes. Or ``(guide, params)``, a
        guide fitted by SVI, symmetrized or not, which then stands in place of the Gaussian.
    model, model_args, model_kwargs
        The NumPyro model and the whole data. An ``MCMC`` and a guide know their model, an ``MCMC`` its arguments: each
        of the three that is left out is taken from there. The density of an ``ImproperUniform`` is one, as in NumPyro:
        then the evidence is the integral of the joint, and means something beside no other model's.
        Parameters of the model are held where ``params`` has them, or where they start.
    symmetry
        By default what `find_symmetry` finds in the model. It may be trivial.
    signs
        Whether changes of sign (odd activations, factors) are looked for too. A sign that is left out makes the
        evidence low by up to log 2 if the chains have stayed on one side of it.
    method
        ``"bridge"``: bridge sampling between draws and symmetrized Gaussian, the default for draws. ``"importance"``:
        the mean weight of the Gaussian's draws, the default for a guide. For either, the Gaussian is fitted to the
        first half of every chain, rebased; the second half is bridged, and bounds from above. ``"laplace"``: the weight
        at the Gaussian's centre, Laplace's method for an `AutoLaplaceApproximation` and its Metropolis variant for
        draws; crude, and without an error or bounds.
    num_samples
        Number of draws of the proposal; by default as many as are bridged, and at least 2000.
    num_permutations
        K, for groups too large to be summed: more makes the estimate less noisy and bounds tighter, and they are right
        for any.
    rng_key
        JAX random key; without one it is a fixed one.

    Returns
    -------
    LogEvidence
        Nats.

    Raises
    ------
    SymmetryError
        If the model lacks the symmetry, sites are missing or of other shapes, data are subsampled, or draws are not
        finite, do not vary, or lie on the border of their support.
    ValueError
        If an option does not fit.
    TypeError
        If an argument is of the wrong type, the model cannot be called with its arguments, or something is traced.

    Warns
    -----
    SymmetryWarning
        If the error is above half a nat, or few draws are effective (25 of the posterior for ``"bridge"``, 100 of the
        Gaussian for ``"importance"``), or the bridge did not settle, or a weight was not finite and was left out, or
        not all of the symmetry can be averaged over, or the estimate lies beyond one of its bounds, as it does where
        the draws are not the posterior's.

    See Also
    --------
    AutoSymmetrized.elbo_bounds : bounds of a guide's ELBO, which is below the evidence.

    References
    ----------
    Frühwirth-Schnatter (2004), for bridge sampling of mixtures with a symmetrized proposal; Meng and Wong (1996);
    Lewis and Raftery (1997), *Estimating Bayes factors via posterior simulation with the Laplace-Metropolis estimator*;
    Brekelmans et al. (2022), *Improving Mutual Information Estimation with Annealed and Energy-Based Bounds*.

    Examples
    --------
    Draws of three exchangeable units around fixed centres, with labels that switch; the evidence is :math:`e^{-3}`.

    >>> import numpy as np
    >>> from numpyro_symmetry import log_evidence, testing
    >>> posterior = testing.exchangeable_gaussian(num_units=3, separation=2.0, log_evidence=-3.0)
    >>> rng, (centres,) = np.random.default_rng(0), posterior.model_args
    >>> draws = centres + 0.3 * rng.standard_normal((400, 3, 2))
    >>> switching = np.stack([rng.permutation(draw) for draw in draws])
    >>> found = log_evidence({"units": switching}, posterior.model, (centres,), num_samples=200)
    >>> round(found.value, 1), round(found.correction, 1)
    (-3.0, 1.8)
    >>> found.lower < -3.0 < found.upper
    True
    """
    if not is_option(method, ("auto", *METHODS)):
        raise ValueError(f"method must be 'auto' or one of {METHODS}; got {method!r}.")
    if num_samples is not None:
        num_samples = as_count(num_samples, "num_samples", minimum=2)
    num_permutations = as_count(num_permutations, "num_permutations", meaning="it counts the identity")
    signs = as_flag(signs, "signs")
    rng_key = jax.random.key(0) if rng_key is None else as_key(rng_key)
    if not (symmetry is None or isinstance(symmetry, Symmetry)):
        raise TypeError(f"symmetry must be a Symmetry; got {type(symmetry).__name__}.")
    refuse_tracers("log_evidence", data, model_args, model_kwargs, rng_key)
    key_fit, key_draw, key_weigh = jax.random.split(rng_key, 3)
    known = model_of(data)
    if known is not None:
        model = known.function if model is None else model
        model_args = known.args if model_args is None else model_args
        model_kwargs = known.kwargs if model_kwargs is None else model_kwargs
    args, kwargs = as_model_arguments(() if model_args is None else model_args, model_kwargs)
    refuse_masked_arguments(args, kwargs)

    if isinstance(data, tuple) and len(data) == 2 and callable(data[0]):
        if method == "bridge":
            raise ValueError(
                "method='bridge' needs draws of the posterior; a guide has only its own: use 'importance'."
            )
        method = "importance" if method == "auto" else method
        proposal = proposal_of_guide(*data, model, symmetry, signs, key_fit, args, kwargs)
    elif callable(data):
        name = getattr(data, "__name__", type(data).__name__)
        raise TypeError(f"A guide is passed with its parameters, (guide, params); got {name} alone.")
    elif model is None:
        raise ValueError(
            f"The draws do not know their model (this {type(data).__name__} does not say which model it ran, or with "
            "what): pass model=, model_args= and model_kwargs=."
        )
    else:
        refuse_no_model(model, args, kwargs)
        method = "bridge" if method == "auto" else method
        halve = method != "laplace"
        proposal = proposal_of_draws(data, model, symmetry, signs, key_fit, args, kwargs, halve=halve)

    weights, of_rest = _weigh(proposal, method, num_samples, num_permutations, key_draw, key_weigh, args, kwargs)
    correction = float(np.asarray(weights.information).mean())
    log_order = averaged_over(proposal.guide)[0].log_order()
    of_own = np.asarray(weights.total, np.float64)
    if method == "laplace":
        unbounded = Bound(-math.inf, math.nan), Bound(math.inf, math.nan)
        return _assembled(Estimate(float(of_own[0]), math.nan, 1.0), *unbounded, correction, log_order, of_own, method)
    of_own = _finite(of_own)
    found = importance(of_own) if method == "importance" or of_rest is None else bridge(of_rest, of_own)
    upper = Bound(math.inf, math.nan) if of_rest is None else upper_bound(of_rest, of_own)
    lower = lower_bound(of_own)
    _warn(found, method, len(of_own))
    _warn_of_contradiction(found, lower, upper)
    return _assembled(found, lower, upper, correction, log_order, of_own, method)


def _weigh(
    proposal: Proposal,
    method: str,
    num_samples: int | None,
    num_permutations: int,
    key_draw: Array,
    key_weigh: Array,
    args: tuple,
    kwargs: dict[str, Any],
) -> tuple[LogWeights, np.ndarray | None]:
    """Weights of the proposal's own draws, or of its centre; and ``(chain, draw)`` those of draws it has not seen."""
    guide, params, sites, rest = proposal
    if method == "laplace":
        own: Mapping[str, Any] = jax.tree.map(lambda x: x[None], _centre(guide, params))
    else:
        count = num_samples or max(_SAMPLES, 0 if rest is None else rest.num_draws)
        own = guide.sample_posterior(key_draw, dict(params), *args, sample_shape=(count,), **kwargs)
    draws = [own] if rest is None else [own, rest.flat(sites)]
    both = {site: np.concatenate([np.asarray(part[site]) for part in draws]) for site in sites}
    num_own = len(own[sites[0]])
    # a centre is no draw of the Gaussian's
    is_own = (np.arange(len(both[sites[0]])) < num_own) & (method != "laplace")
    weights = log_weights(guide, key_weigh, params, both, is_own, args, kwargs, num_permutations=num_permutations)
    own_weights = LogWeights(weights.base[:num_own], weights.information[:num_own])
    if rest is None:
        return own_weights, None
    of_rest = np.asarray(weights.total, np.float64)[num_own:]
    _refuse_no_density(of_rest)
    return own_weights, of_rest.reshape(rest.leading)


def _assembled(
    found: Estimate,
    lower: Bound,
    upper: Bound,
    correction: float,
    log_order: float,
    of_own: np.ndarray,
    method: str,
) -> LogEvidence:
    return LogEvidence(
        value=found.value,
        error=found.error,
        lower=lower.value,
        lower_error=lower.error,
        upper=upper.value,
        upper_error=upper.error,
        correction=correction,
        log_order=log_order,
        effective=effective_number(of_own),
        pareto_shape=pareto_shape(of_own),
        method=method,
    )


def _centre(guide: AutoSymmetrized, params: Mapping[str, Any]) -> dict[str, Array]:
    try:
        return guide.median(dict(params))
    except (NotImplementedError, UnsupportedGuideError) as error:  # flows say the one, guides by hand the other
        raise ValueError(
            f"method='laplace' needs a Gaussian guide; {type(guide.base).__name__} has no median. Use 'importance'."
        ) from error


def _refuse_no_density(log_w: np.ndarray) -> None:
    if bad := int((~np.isfinite(log_w)).sum()):
        raise SymmetryError(
            f"The model gives {bad} of the {len(log_w)} draws that are bridged no density: are these the data and the "
            "model that they were drawn with? float32 may also have rounded them to the border of a support "
            "(numpyro.enable_x64())."
        )


def _finite(log_w: np.ndarray) -> np.ndarray:
    """Weights of the proposal's draws, with zeros, and a warning, for those that are no numbers."""
    bad = np.isnan(log_w) | np.isposinf(log_w)
    if bad.any():
        warnings.warn(
            f"{int(bad.sum())} of {len(log_w)} draws of the proposal have a weight that is not finite, and are taken "
            "to have none: float32 may have rounded them to the border of a support (numpyro.enable_x64()).",
            SymmetryWarning,
            stacklevel=3,
        )
    log_w = np.where(bad, -np.inf, log_w)
    if np.isneginf(log_w).all():
        raise SymmetryError("No draw of the proposal has a positive density under the model: they share no support.")
    return log_w


def _warn(found: Estimate, method: str, num_samples: int) -> None:
    # an error from so few draws is a guess; heavy weights ask for more draws than a chain does
    of, few = ("the posterior's", 25.0) if method == "bridge" else ("the proposal's", min(100.0, num_samples / 2))
    if not found.converged:
        why = f"the bridge did not settle in {found.num_rounds} rounds"
    elif not found.error < _LARGE_ERROR:
        why = f"its error is {found.error:.1f} nats, because the Gaussian hardly meets the posterior"
    elif found.effective < few:
        why = f"only {found.effective:.0f} of {of} draws are effective, so that the error is itself a guess"
    else:
        return
    warnings.warn(
        f"The evidence is not reliable: {why}. Sample longer, or draw more (num_samples).",
        SymmetryWarning,
        stacklevel=3,
    )


def _warn_of_contradiction(found: Estimate, lower: Bound, upper: Bound) -> None:
    """Say so if the estimate lies beyond a bound, as it does where the draws are not the posterior's."""
    for gap, error, where in (
        (lower.value - found.value, lower.error, "below its lower bound"),
        (found.value - upper.value, upper.error, "above its upper bound"),
    ):
        if gap > _CONTRADICTION * math.hypot(found.error, error):
            warnings.warn(
                f"The evidence is not reliable: the estimate lies {gap:.1f} nats {where}. The draws are not those of "
                "this model's posterior: look whether they are of the same data and parameters, untransformed, and "
                "whether chains have converged. The lower bound holds whatever they are.",
                SymmetryWarning,
                stacklevel=3,
            )
