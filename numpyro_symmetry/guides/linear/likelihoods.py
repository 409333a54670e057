r"""Likelihoods of a linear predictor, and by which weights each is a Gaussian one, or nearly.

Each row of a table says how one family of distributions depends on its linear predictor :math:`\eta`: the slope of its
log density is the derivative, its curvature a *weight* :math:`w \ge 0` so that

.. math:: \log p(y; \eta) \approx -\tfrac12 w\,(\eta - \eta^*)^2 + \text{const}

Weights are never negative, so that every precision made of them has a factor. Knows distributions; neither models nor
guides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from numpyro_symmetry.guides.linear.priors import Correlated, factor_of
from numpyro_symmetry.linalg import at_least_single, solve_triangular
from numpyro_symmetry.models import layers

Distribution = Any
# logits that are likely and not certain
_LIKELY = 4.0


class Likelihood(NamedTuple):
    r"""One family of distributions of a linear predictor.

    Attributes
    ----------
    noun
        What the predictor is called.
    family
        Class of the distribution, wrappers taken off.
    predictor
        Distribution -> :math:`\eta`.
    at
        Distribution, :math:`\eta` -> the same with another predictor.
    weight
        Distribution, :math:`\eta`, value -> w; its last axis may be 1 where outputs share it.
    fitted
        Distribution, value -> a predictor under which the value is likely.
    start
        :math:`\eta` where the sites are at their prior means, that which fits -> the one about which the first step is
        taken.
    exact
        Whether the log density *is* quadratic, so that one step arrives and nothing is learned.
    renewed
        Whether the weight is a majorant at the current predictor, to be renewed at every step.
    factor
        Distribution -> number by which weights are multiplied before any is learned.
    has_outputs
        Whether the predictor has an axis of outputs beyond the value's.
    quantity
        Distribution, :math:`\eta` -> the same in the units of the distribution's parameter, where it is in others.
    """

    noun: str
    family: type
    predictor: Callable[[Distribution], Array]
    at: Callable[[Distribution, Array], Distribution]
    weight: Callable[[Distribution, Array, Array], Array]
    fitted: Callable[[Distribution, Array], Array]
    start: Callable[[Array, Array], Array] = lambda predictor, fitted: predictor
    exact: bool = False
    renewed: bool = False
    factor: Callable[[Distribution], float] = lambda fn: 1.0
    has_outputs: bool = False
    quantity: Callable[[Distribution, Array], Array] = lambda fn, eta: eta


def _bernoulli_variance(logits: Array) -> Array:
    return jax.nn.sigmoid(logits) * jax.nn.sigmoid(-logits)


@partial(jnp.vectorize, signature="(d,d)->(d,d)")
def _inverse(factor: Array) -> Array:
    return solve_triangular(factor, jnp.eye(len(factor), dtype=factor.dtype))


def _times_noise(fn: Distribution, eta: Array) -> Array:
    return Correlated(jnp.zeros(()), factor_of(fn)).value(eta)


def _in_noise(fn: Distribution, values: Array) -> Array:
    """Values in units of the noise: a product, which unlike a solve is differentiated in forward mode too."""
    return Correlated(jnp.zeros(()), _inverse(at_least_single(factor_of(fn)))).value(values)


NORMAL = Likelihood(
    "location",
    dist.Normal,
    lambda fn: fn.loc,
    lambda fn, eta: dist.Normal(eta, fn.scale),
    lambda fn, eta, value: 1.0 / fn.scale**2,
    lambda fn, value: value,
    exact=True,
)
LIKELIHOODS = (
    NORMAL,
    # in units of its noise, so that rows are independent; in an event all are weighed alike
    Likelihood(
        "location",
        dist.MultivariateNormal,
        lambda fn: _in_noise(fn, fn.loc),
        lambda fn, eta: dist.MultivariateNormal(_times_noise(fn, eta), scale_tril=fn.scale_tril),
        lambda fn, eta, value: jnp.ones_like(eta),
        lambda fn, value: _in_noise(fn, value),
        exact=True,
        quantity=_times_noise,
    ),
    # expectation-maximisation over the scale of each row: a quadratic below the log density that touches it at eta
    Likelihood(
        "location",
        dist.StudentT,
        lambda fn: fn.loc,
        lambda fn, eta: dist.StudentT(fn.df, eta, fn.scale),
        lambda fn, eta, value: (fn.df + 1.0) / (fn.df * fn.scale**2 + (value - eta) ** 2),
        lambda fn, value: value,
        renewed=True,
    ),
    # one weight for all classes, so that they share one factor; its size is learned
    Likelihood(
        "logits",
        dist.CategoricalLogits,
        lambda fn: fn.logits,
        lambda fn, eta: dist.CategoricalLogits(eta),
        lambda fn, eta, value: jnp.ones((1,)),
        lambda fn, value: _LIKELY * (jax.nn.one_hot(value, fn.logits.shape[-1]) - 1.0 / fn.logits.shape[-1]),
        factor=lambda fn: 1.0 / fn.logits.shape[-1],
        has_outputs=True,
    ),
    Likelihood(
        "location",
        dist.Cauchy,
        lambda fn: fn.loc,
        lambda fn, eta: dist.Cauchy(eta, fn.scale),
        lambda fn, eta, value: 2.0 / (fn.scale**2 + (value - eta) ** 2),
        lambda fn, value: value,
        renewed=True,
    ),
    # the same, 1 / (b |r|), but for its pole: rows closer than b have the weight of those at about b
    Likelihood(
        "location",
        dist.Laplace,
        lambda fn: fn.loc,
        lambda fn, eta: dist.Laplace(eta, fn.scale),
        lambda fn, eta, value: 1.0 / (fn.scale * jnp.hypot(fn.scale, value - eta)),
        lambda fn, value: value,
        renewed=True,
    ),
    Likelihood(
        "location of the logarithm",
        dist.LogNormal,
        lambda fn: fn.loc,
        lambda fn, eta: dist.LogNormal(eta, fn.scale),
        lambda fn, eta, value: 1.0 / fn.scale**2,
        lambda fn, value: jnp.log(value),
        exact=True,
    ),
    Likelihood(
        "logits",
        dist.BernoulliLogits,
        lambda fn: fn.logits,
        lambda fn, eta: dist.BernoulliLogits(eta),
        lambda fn, eta, value: _bernoulli_variance(eta),
        lambda fn, value: _LIKELY * (value - 0.5),
    ),
    Likelihood(
        "logits",
        dist.BinomialLogits,
        lambda fn: fn.logits,
        lambda fn, eta: dist.BinomialLogits(eta, fn.total_count),
        lambda fn, eta, value: fn.total_count * _bernoulli_variance(eta),
        lambda fn, value: jnp.log((value + 0.5) / (fn.total_count - value + 0.5)),
    ),
    # about the counts themselves, as generalised linear models are started: from zero, steps in exp overshoot
    Likelihood(
        "log rate",
        dist.Poisson,
        lambda fn: jnp.log(fn.rate),
        lambda fn, eta: dist.Poisson(jnp.exp(eta)),
        lambda fn, eta, value: value + 0.5,
        lambda fn, value: jnp.log(value + 0.5),
        start=lambda predictor, fitted: fitted,
    ),
    Likelihood(
        "log mean",
        dist.NegativeBinomial2,
        lambda fn: jnp.log(fn.concentration) - jnp.log(fn.rate),
        lambda fn, eta: dist.NegativeBinomial2(jnp.exp(eta), fn.concentration),
        lambda fn, eta, value: (value + fn.concentration) * _bernoulli_variance(eta - jnp.log(fn.concentration)),
        lambda fn, value: jnp.log(value + 0.5),
        start=lambda predictor, fitted: fitted,
    ),
    Likelihood(
        "logits",
        dist.NegativeBinomialLogits,
        lambda fn: fn.logits,
        lambda fn, eta: dist.NegativeBinomialLogits(fn.total_count, eta),
        lambda fn, eta, value: (value + fn.total_count) * _bernoulli_variance(eta),
        lambda fn, value: jnp.log((value + 0.5) / fn.total_count),
        start=lambda predictor, fitted: fitted,
    ),
    # waiting times: at the eta that fits a value the weight is the family's, and does not depend on the value
    Likelihood(
        "log mean",
        dist.Gamma,
        lambda fn: jnp.log(fn.concentration) - jnp.log(fn.rate),
        lambda fn, eta: dist.Gamma(fn.concentration, fn.concentration * jnp.exp(-eta)),
        lambda fn, eta, value: fn.concentration * value * jnp.exp(-eta),
        lambda fn, value: jnp.log(value),
        start=lambda predictor, fitted: fitted,
    ),
    Likelihood(
        "log rate",
        dist.Exponential,
        lambda fn: jnp.log(fn.rate),
        lambda fn, eta: dist.Exponential(jnp.exp(eta)),
        lambda fn, eta, value: value * jnp.exp(eta),
        lambda fn, value: -jnp.log(value),
        start=lambda predictor, fitted: fitted,
    ),
    Likelihood(
        "log scale",
        dist.Weibull,
        lambda fn: jnp.log(fn.scale),
        lambda fn, eta: dist.Weibull(jnp.exp(eta), fn.concentration),
        lambda fn, eta, value: fn.concentration**2 * (value * jnp.exp(-eta)) ** fn.concentration,
        lambda fn, value: jnp.log(value),
        start=lambda predictor, fitted: fitted,
    ),
)


class Observation(NamedTuple):
    """An observed site as a likelihood of its linear predictor.

    Attributes
    ----------
    kind
        Row of the table.
    fn
        Its distribution, wrappers taken off.
    value
        Observed; where it does not count, any value of the support.
    predictor
        Of the value's shape, outputs last.
    entry_weight
        Factor of each entry's log density by masks and scales; of a shape that broadcasts to the predictor's.
    """

    kind: Likelihood
    fn: Distribution
    value: Array
    predictor: Array
    entry_weight: Array

    def gradient(self, predictor: Array) -> Array:
        """Slope of the weighted log density."""

        def log_density(eta: Array) -> Array:
            log_prob, weight = self.kind.at(self.fn, eta).log_prob(self.value), self.entry_weight
            is_joint = log_prob.ndim < eta.ndim
            return jnp.sum((weight.reshape(weight.shape[:-1]) if is_joint else weight) * log_prob)

        return jax.grad(log_density)(predictor)

    def weight(self, predictor: Array) -> Array:
        """Curvature of the weighted log density; the last axis may be 1."""
        value = self.value[..., None] if self.kind.has_outputs else self.value
        return self.entry_weight * self.kind.weight(self.fn, predictor, value)

    @property
    def fitted(self) -> Array:
        """A predictor under which the values are likely."""
        return jnp.broadcast_to(self.kind.fitted(self.fn, self.value), self.predictor.shape)

    @property
    def start(self) -> Array:
        """Predictor about which the first step is taken."""
        return self.kind.start(self.predictor, self.fitted)

    @property
    def others(self) -> list[Array]:
        """Parameters of the distribution but for the predictor."""
        return jax.tree.leaves(self.kind.at(self.fn, jnp.zeros_like(self.predictor)))


def observation(site: Any) -> Observation | None:
    """An observed site as a likelihood of a linear predictor, or ``None`` if the table has none for it."""
    *wrappers, fn = layers(site["fn"])
    if (kind := next((kind for kind in LIKELIHOODS if type(fn) is kind.family), None)) is None:
        return None
    shape = jnp.shape(site["value"])
    batch = shape[: len(shape) - site["fn"].event_dim]
    weight = _per_entry(1.0 if site["scale"] is None else _of_batch(site["scale"], batch), site["fn"])
    masks = [_per_entry(layer._mask, layer) for layer in wrappers if isinstance(layer, dist.MaskedDistribution)]
    for mask in masks:
        weight = jnp.where(mask, weight, 0.0)
    value = jnp.asarray(site["value"])
    if masks:
        value = jnp.where(weight > 0, value, fn.support.feasible_like(value))
    outputs = kind.predictor(fn).shape[-1:] if kind.has_outputs else ()
    predictor = jnp.broadcast_to(kind.predictor(fn), shape + outputs)
    return Observation(kind, fn, value, predictor, weight[..., None] if outputs else weight)


def _of_batch(scale: Any, batch: tuple[int, ...]) -> Array:
    """Weights of log densities of a batch; where `handlers.scale` broadcasts these, the sums over all copies."""
    if np.broadcast_shapes(jnp.shape(scale), batch) == batch:
        return jnp.asarray(scale)
    return jax.grad(lambda log_prob: jnp.sum(scale * log_prob))(jnp.zeros(batch))


def _per_entry(weights: Any, fn: Distribution) -> Array:
    """One number for each member of a batch, to be broadcast over the entries of its event."""
    weights = jnp.asarray(weights)
    return weights.reshape(weights.shape + (1,) * fn.event_dim) if weights.ndim else weights
