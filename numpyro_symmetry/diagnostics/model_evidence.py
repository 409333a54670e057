r"""`log_evidence`: the evidence of a model from draws whose labels mean nothing, or from one labelled mode.

One density is compared with the posterior throughout: a Gaussian in one basin, symmetrized. Knows containers, rebasing
and symmetrized guides, and puts them together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpyro.infer import MCMC

from numpyro_symmetry.diagnostics.bridge import Estimate, bridge, effective_weights, importance
from numpyro_symmetry.diagnostics.proposal import proposal_of_draws, proposal_of_guide
from numpyro_symmetry.guides import AutoSymmetrized
from numpyro_symmetry.guides.weights import log_weights
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, SymmetryWarning, UnsupportedGuideError

METHODS = ("bridge", "importance", "laplace")
_SAMPLES, _LARGE_ERROR = 2000, 0.5


class LogEvidence(NamedTuple):
    r"""An estimate of :math:`\log p(\text{data})`, nats.

    Attributes
    ----------
    value
        The estimate.
    error
        Its standard error; ``nan`` for ``"laplace"``, whose error is not one of sampling.
    correction
        What symmetrizing the Gaussian does, :math:`I(g;\theta)`: :math:`\log|G|` where all copies are distinct, less
        where they overlap. For ``"laplace"`` :math:`\log q - \log q^G` at the centre, where copies overlap least. The
        value holds it already.
    log_order
        :math:`\log|G|`.
    effective
        Effective number of the proposal's draws, :math:`(\sum w)^2 / \sum w^2`; one for ``"laplace"``.
    method
        How it was found.
    """

    value: float
    error: float
    correction: float
    log_order: float
    effective: float
    method: str


def log_evidence(
    data: Any,
    model: Callable[..., Any] | None = None,
    model_args: tuple[Any, ...] | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    symmetry: Symmetry | None = None,
    method: str = "auto",
    num_samples: int | None = None,
    num_permutations: int = 16,
    rng_key: Array | None = None,
) -> LogEvidence:
    r"""Estimate a model's log evidence with a symmetrized Gaussian, so that label switching does no harm.

    .. math:: p(\text{data}) = \operatorname{E}_{\theta\sim q^G}\frac{p(\theta, \text{data})}{q^G(\theta)},
              \qquad q^G(\theta) = \frac1{|G|}\sum_{g\in G} q(g\theta)

    A Gaussian fitted to draws under one set of labels misses all other copies of the posterior, a factor of up to
    :math:`|G|`; one fitted to draws of switching labels fits none. The symmetrized one covers every copy, and weighs
    them as far as they are distinct, which is what adding :math:`\log|G|` by hand does not.

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
    method
        ``"bridge"``: bridge sampling between draws and symmetrized Gaussian, the default for draws: the Gaussian is
        fitted to the first half of every chain, rebased; the second half is bridged. ``"importance"``: the mean weight
        of the Gaussian's draws, the default for a guide. ``"laplace"``: the weight at the Gaussian's centre, Laplace's
        method for an `AutoLaplaceApproximation` and its Metropolis variant for draws; crude, and without an error.
    num_samples
        Number of draws of the proposal; by default as many as are bridged, and at least 2000.
    num_permutations
        K, for groups too large to be summed: more makes the estimate less noisy, and it is right for any.
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

    Warns
    -----
    SymmetryWarning
        If the error is above half a nat, or few draws are effective (25 of the posterior for ``"bridge"``, 100 of the
        Gaussian for ``"importance"``), or the bridge did not settle, or a weight was not finite and was left out.

    See Also
    --------
    AutoSymmetrized.elbo_bounds : bounds from a guide alone, in expectation.

    References
    ----------
    Frühwirth-Schnatter (2004), for bridge sampling of mixtures with a symmetrized proposal; Meng and Wong (1996);
    Lewis and Raftery (1997), *Estimating Bayes factors via posterior simulation with the Laplace-Metropolis estimator*.

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
    """
    if method not in ("auto", *METHODS):
        raise ValueError(f"method must be 'auto' or one of {METHODS}; got {method!r}.")
    if num_samples is not None and num_samples < 2:
        raise ValueError(f"num_samples must be at least 2; got {num_samples}.")
    if num_permutations < 1:
        raise ValueError(f"num_permutations counts the identity and must be at least 1; got {num_permutations}.")
    rng_key = jax.random.key(0) if rng_key is None else rng_key
    key_fit, key_draw, key_weigh = jax.random.split(rng_key, 3)
    if isinstance(data, MCMC):
        if not hasattr(data, "_args"):
            raise ValueError("The MCMC holds no draws: call its run() first.")
        model = data.sampler.model if model is None else model
        model_args = data._args if model_args is None else model_args
        model_kwargs = data._kwargs if model_kwargs is None else model_kwargs
    args, kwargs = tuple(model_args or ()), dict(model_kwargs or {})

    if isinstance(data, tuple) and len(data) == 2 and callable(data[0]):
        if method == "bridge":
            raise ValueError(
                "method='bridge' needs draws of the posterior; a guide has only its own: use 'importance'."
            )
        method = "importance" if method == "auto" else method
        proposal = proposal_of_guide(*data, model, symmetry, key_fit, args, kwargs)
    elif model is None:
        raise ValueError("Draws do not know their model: pass model= and model_args=.")
    else:
        method = "bridge" if method == "auto" else method
        proposal = proposal_of_draws(data, model, symmetry, key_fit, args, kwargs, halve=method == "bridge")
    guide, params, sites, rest = proposal

    if method == "laplace":
        own: Mapping[str, Any] = jax.tree.map(lambda x: x[None], _centre(guide, params))
    else:
        count = num_samples or max(_SAMPLES, 0 if rest is None else rest.num_draws)
        own = guide.sample_posterior(key_draw, dict(params), *args, sample_shape=(count,), **kwargs)
    draws = [own] if rest is None else [own, rest.flat(sites)]
    both = {site: np.concatenate([np.asarray(part[site]) for part in draws]) for site in sites}
    num_own = len(own[sites[0]])
    is_first = np.arange(len(both[sites[0]])) < num_own
    # a centre is no draw of the Gaussian's
    is_own = is_first & (method != "laplace")
    weights = log_weights(guide, key_weigh, params, both, is_own, args, kwargs, num_permutations=num_permutations)
    log_w = np.asarray(weights.total, np.float64)
    of_own, of_rest = log_w[is_first], log_w[~is_first]
    correction = float(np.asarray(weights.information)[is_first].mean())
    log_order = guide.symmetry.log_order() if guide.symmetry is not None else 0.0

    if method == "laplace":
        return LogEvidence(float(of_own[0]), np.nan, correction, log_order, 1.0, method)
    of_own = _finite(of_own)
    if rest is None:
        found = importance(of_own)
    else:
        _refuse_no_density(of_rest)
        found = bridge(of_rest.reshape(rest.leading), of_own)
    _warn(found, method, len(of_own))
    return LogEvidence(found.value, found.error, correction, log_order, effective_weights(of_own), method)


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
