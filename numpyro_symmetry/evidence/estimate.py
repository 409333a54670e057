r"""`log_evidence`: the evidence of a model, or the integral of a density, from draws whose labels mean nothing.

One density is compared with the posterior throughout: a Gaussian in one basin, symmetrized. Knows containers, rebasing
and symmetrized guides, and puts them together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array

from numpyro_symmetry.assignment.passes import in_turn
from numpyro_symmetry.containers import model_of
from numpyro_symmetry.discovery.inputs import asking
from numpyro_symmetry.entropy.importance import effective_number, lost_to_rounding, pareto_shape
from numpyro_symmetry.evidence.bridge import Bound, Estimate, bridge, importance, lower_bound, upper_bound
from numpyro_symmetry.evidence.doubts import finite, refuse_no_density, warn_if_unreliable, warn_of_contradiction
from numpyro_symmetry.evidence.draws import blocks_of_draws
from numpyro_symmetry.evidence.proposal import Proposal, proposal_of_draws, proposal_of_guide
from numpyro_symmetry.evidence.result import LogEvidence
from numpyro_symmetry.evidence.weights import LogWeights, averaged_over, log_weights
from numpyro_symmetry.guides import AutoSymmetrized
from numpyro_symmetry.models import Model, as_argnum, model_of_log_density, refuse_misfit
from numpyro_symmetry.models.arguments import as_model_or_function
from numpyro_symmetry.models.fitted import draws_of
from numpyro_symmetry.steps import say, saying
from numpyro_symmetry.symmetry import Symmetry, UnsupportedGuideError, as_symmetry, warn
from numpyro_symmetry.symmetry.arguments import (
    as_count,
    as_flag,
    as_model_arguments,
    as_option,
    key_or_fixed,
    refuse_masked_arguments,
    refuse_tracers,
)
from numpyro_symmetry.symmetry.errors import renamed
from numpyro_symmetry.symmetry.nouns import nouns
from numpyro_symmetry.symmetry.shown import counted

METHODS = ("bridge", "importance", "laplace")
# the relative error of a mean of so many independent weights that vary by as much as their mean is 2 %
_FEWEST_OWN_DRAWS = 2000
_UNBOUNDED = Bound(-math.inf, math.nan), Bound(math.inf, math.nan)


@renamed(num_samples="num_draws")
def log_evidence(
    data: Any,
    model: Callable[..., Any] | None = None,
    model_args: tuple[Any, ...] | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    argnum: int | None = None,
    symmetry: Symmetry | None = None,
    signs: bool = True,
    method: str = "auto",
    num_draws: int | None = None,
    num_permutations: int = 16,
    rng_key: Array | None = None,
    progress_bar: bool = True,
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
    argnum
        Says that ``model`` is no NumPyro model but a log density, a function of positions such as BlackJAX samples: the
        place in ``model_args`` where one position stands, any pytree of arrays, of which ``data`` holds draws. The
        evidence is then :math:`\log\int e^{f(\theta)}\,d\theta` in the coordinates of the positions, over all
        real numbers: of a transformed parameter, f holds the log Jacobian.
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
    num_draws
        Number of draws of the proposal; by default as many as are bridged, and at least 2000.
    num_permutations
        K, for groups too large to be summed: a larger K makes the estimate less noisy and the bounds tighter; they are
        right for any K.
    rng_key
        JAX random key; fixed by default.
    progress_bar
        Whether to show what is being done, if it takes more than two seconds.

    Returns
    -------
    LogEvidence
        Nats.

    Raises
    ------
    SymmetryError
        If the model lacks the symmetry, sites are missing or of other shapes, data are subsampled, or draws are not
        finite, do not vary, or lie on the border of their support; if the evidence is infinite, because a mask leaves
        latent entries without a prior (as ``obs_mask`` does). If a log density returns anything but one number, or
        a position holds anything but arrays of real numbers.
    ValueError
        If an option does not fit.
    TypeError
        If an argument is of the wrong type, the model cannot be called with its arguments, or something is traced.

    Warns
    -----
    SymmetryWarning
        If the error is above half a nat, or few draws are effective (25 of the posterior, or of the Gaussian's where it
        meets the posterior, for ``"bridge"``; 100 of the Gaussian for ``"importance"``, and a fifth of them where
        ``pareto_shape`` is above 0.5), or the bridge did not settle, or a weight was not finite and was left out, or
        not all of the symmetry can be averaged over, or the estimate lies beyond one of its bounds, as it does where
        the draws are not the posterior's; or log densities are so large that their precision rounds them by more.

    See Also
    --------
    AutoSymmetrized.elbo_bounds : bounds of a guide's ELBO, which is below the evidence.
    find_symmetry : takes a log density by ``argnum`` in the same way.

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
    >>> found = log_evidence({"units": switching}, posterior.model, (centres,), num_draws=200)
    >>> round(found.value, 1), round(found.correction, 1)
    (-3.0, 1.8)
    >>> found.lower < -3.0 < found.upper
    True
    """
    as_option(method, "method", ("auto", *METHODS))
    if num_draws is not None:
        num_draws = as_count(num_draws, "num_draws", minimum=2)
    num_permutations = as_count(num_permutations, "num_permutations", meaning="it counts the identity")
    signs = as_flag(signs, "signs")
    rng_key = key_or_fixed(rng_key)
    symmetry = None if symmetry is None else as_symmetry(symmetry)
    refuse_tracers("log_evidence", data=data, model_args=model_args, model_kwargs=model_kwargs, rng_key=rng_key)
    key_fit, key_draw, key_weigh = jax.random.split(rng_key, 3)
    guide, params = data if isinstance(data, tuple) and len(data) == 2 and callable(data[0]) else (None, None)
    joint = _joint_of(data, guide, model, model_args, model_kwargs, argnum)
    if guide is not None and method == "bridge":
        raise ValueError("method='bridge' needs draws of the posterior; a guide has only its own: use 'importance'.")
    if method == "auto":
        method = "bridge" if guide is None else "importance"
    with saying("estimating the evidence", as_flag(progress_bar, "progress_bar")):
        if guide is None:
            proposal = proposal_of_draws(data, joint, symmetry, key_fit, signs=signs, halve=method != "laplace")
        else:
            proposal = proposal_of_guide(guide, params, joint, symmetry, key_fit, signs=signs)
        own, of_rest = _weigh(proposal, joint, method, num_draws, num_permutations, key_draw, key_weigh)
    return _estimated(own, of_rest, method, averaged_over(proposal.guide).symmetry.log_order())


def _joint_of(data: Any, guide: Any, function: Any, args: Any, kwargs: Any, argnum: Any) -> Model:
    """The model and its arguments, where left out those that the draws or the guide know; a log density as a model."""
    if guide is None and callable(data):
        name = getattr(data, "__name__", type(data).__name__)
        raise TypeError(
            f"Draws come first, and the model behind them, or a guide with its parameters, (guide, params); got {name} "
            "alone."
        )
    known = model_of(data) if guide is None else None
    if known is not None:
        given = zip((function, args, kwargs), known, strict=True)
        function, args, kwargs = (its_own if one is None else one for one, its_own in given)
    of = nouns(is_function=argnum is not None)
    if function is not None:
        as_model_or_function(function, of)
    args, kwargs = as_model_arguments(() if args is None else args, kwargs, of)
    refuse_masked_arguments(args, kwargs, of)
    if argnum is not None:
        if guide is not None or function is None:
            raise ValueError("argnum goes with draws and a log density: log_evidence(positions, f, (one,), argnum=0).")
        argnum = as_argnum(argnum, args)
        refuse_misfit(function, args, kwargs, of=of)
        with asking(of):
            return Model(model_of_log_density(function, args, kwargs, argnum), args, kwargs)
    function = getattr(guide, "model", None) if function is None else function
    if function is None and guide is not None:
        raise ValueError(f"{type(guide).__name__} does not know its model: pass model=.")
    if function is None:
        raise ValueError(
            f"The draws do not know their model (this {type(data).__name__} does not say which model it ran, or with "
            "what): pass model=, model_args= and model_kwargs=."
        )
    return Model(function, args, kwargs)


def _weigh(
    proposal: Proposal,
    model: Model,
    method: str,
    num_draws: int | None,
    num_permutations: int,
    key_draw: Array,
    key_weigh: Array,
) -> tuple[LogWeights, np.ndarray | None]:
    """Weights of the proposal's draws, or its centre; ``(chain, draw)`` log weights of draws it was not fitted to."""
    guide, params, latents, rest = proposal
    num_own = 1 if method == "laplace" else num_draws or max(_FEWEST_OWN_DRAWS, 0 if rest is None else rest.num_draws)

    def draws() -> Iterator[tuple[Mapping[str, Any], bool]]:
        if method == "laplace":
            # the centre is no draw of the Gaussian, and is weighed without the identity
            yield {site: x[None] for site, x in _centre(guide, params).items() if site in latents}, False
        else:
            for block in _own_draws(proposal, model, blocks_of_draws(num_own, latents), key_draw):
                yield block, True
        if rest is not None:
            for block in in_turn(rest.flat(list(latents)), blocks_of_draws(rest.num_draws, latents)):
                yield block, False

    total = num_own + (0 if rest is None else rest.num_draws)
    say(f"weighing {counted(total, 'draw')}, the program for which is compiled first")
    weights = log_weights(
        guide, key_weigh, params, draws(), model.args, model.kwargs, num_permutations=num_permutations
    )
    own_weights = LogWeights(weights.base[:num_own], weights.information[:num_own])
    if rest is None:
        return own_weights, None
    of_rest = np.asarray(weights.total, np.float64)[num_own:]
    refuse_no_density(of_rest)
    return own_weights, of_rest.reshape(rest.leading)


def _own_draws(proposal: Proposal, model: Model, blocks: list[slice], rng_key: Array) -> Iterator[dict[str, Array]]:
    """Draws of the proposal, a block after the other."""
    for k, items in enumerate(blocks):
        # the first block is drawn with the key itself; all others with keys that no splitting of it comes near
        key = jax.random.fold_in(rng_key, 2**32 - k) if k else rng_key
        drawn = draws_of(proposal.guide, key, proposal.params, *model[1:], (items.stop - items.start,))
        yield {site: drawn[site] for site in proposal.latents}


def _estimated(own: LogWeights, of_rest: np.ndarray | None, method: str, log_order: float) -> LogEvidence:
    """Estimate and bounds from weights of the proposal's draws, and of draws of the posterior if there are any."""
    of_own = np.asarray(own.total, np.float64)
    if method == "laplace":
        estimate, (lower, upper) = Estimate(float(of_own[0]), math.nan, math.inf, 1.0), _UNBOUNDED
    else:
        of_own = finite(of_own)
        estimate = importance(of_own) if method == "importance" or of_rest is None else bridge(of_rest, of_own)
        lower, upper = lower_bound(of_own), _UNBOUNDED[1] if of_rest is None else upper_bound(of_rest, of_own)
    if lost := lost_to_rounding(own.base, estimate.error):
        warn(f"The evidence is not reliable: {lost}.")
    elif method != "laplace":
        warn_if_unreliable(estimate, method, len(of_own), pareto_shape(of_own))
        warn_of_contradiction(estimate, lower, upper)
    return LogEvidence(
        value=estimate.value,
        error=estimate.error,
        lower=lower.value,
        lower_error=lower.error,
        upper=upper.value,
        upper_error=upper.error,
        correction=float(np.asarray(own.information).mean()),
        log_order=log_order,
        effective=effective_number(of_own),
        pareto_shape=pareto_shape(of_own),
        method=method,
        num_draws=len(of_own),
    )


def _centre(guide: AutoSymmetrized, params: Mapping[str, Any]) -> dict[str, Array]:
    try:
        return guide.median(dict(params))
    except UnsupportedGuideError as error:
        raise ValueError(
            f"method='laplace' needs a Gaussian guide; {type(guide.base).__name__} has no median. Use 'importance'."
        ) from error
