r"""Importance weights of given draws under a symmetrized guide: :math:`\log p(\theta, \text{data}) - \log q^G(\theta)`.

Knows a model and a symmetrized guide; not what the weights are for. Of where a draw comes from it knows only whether it
is the guide's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from numpyro_symmetry.chunks import slices
from numpyro_symmetry.evidence.draws import DRAWS_AT_ONCE, DRAWS_IN_A_CALL, in_batch
from numpyro_symmetry.guides.density import log_density_of, log_prob_of, trace_at
from numpyro_symmetry.guides.symmetrized.auto_symmetrized import AutoSymmetrized
from numpyro_symmetry.guides.symmetrized.information import information_at
from numpyro_symmetry.guides.symmetrized.layout import Layout
from numpyro_symmetry.models import discrete_of, enumerated_log_density, trace_model
from numpyro_symmetry.models.fitted import not_set_up
from numpyro_symmetry.models.trace import run_model
from numpyro_symmetry.symmetry import Symmetry

# every draw is weighed once for each element of the part that is summed apart
_MAX_APART = math.log(120) + 1e-9


class LogWeights(NamedTuple):
    r"""Log weights of draws, ``(num_draws,)`` each, nats.

    Attributes
    ----------
    base
        :math:`\log p(\theta, \text{data}) - \log q(\theta)`.
    information
        :math:`\log q(\theta) - \log q^G(\theta)`.
    """

    base: Any
    information: Any

    @property
    def total(self) -> Any:
        r""":math:`\log p(\theta, \text{data}) - \log q^G(\theta)`."""
        return self.base + self.information


class Averaged(NamedTuple):
    r"""What the weights of a symmetrized guide average over.

    Where units move in heads that move, the guide's layout holds one part of the group, H. The other part, C, is a
    subgroup too, and every element is an element of C followed by one of H: :math:`q^G(\theta)` is the mean of
    :math:`q^H(c\theta)` over C, which is summed apart where it is small, and else left out.

    Attributes
    ----------
    layout
        The guide's layout, by which weights average over H.
    apart
        C, or none of it.
    symmetry, whole
        What weights average over, and the guide's symmetry.
    """

    layout: Layout
    apart: Symmetry
    symmetry: Symmetry
    whole: Symmetry


def averaged_over(guide: AutoSymmetrized) -> Averaged:
    """What the weights of a guide average over.

    Raises
    ------
    SymmetryError
        If the guide is not set up.
    """
    layout, whole = guide.layout, guide.symmetry
    if layout is None or whole is None:
        raise not_set_up("guide.setup(rng_key, *model_args)")
    apart = whole.restrict(whole.groups.keys() - layout.symmetry.groups)
    if apart.log_order() <= _MAX_APART:
        return Averaged(layout, apart, whole, whole)
    return Averaged(layout, apart.restrict([]), layout.symmetry, whole)


def log_weights(
    guide: AutoSymmetrized,
    rng_key: Array,
    params: Mapping[str, Any],
    draws: Iterable[tuple[Mapping[str, ArrayLike], bool]],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    num_permutations: int = 16,
) -> LogWeights:
    r"""Weigh draws of a symmetrized guide, and of any density that is blind to labels, in one go.

    Small groups are summed exactly. For others :math:`q^G` is estimated by K relabellings :math:`g_k` from the
    sequential proposal :math:`\tau`,

    .. math:: \hat q(\theta) = \frac1K\sum_k \frac{q(g_k\theta)}{|G|\,\tau(g_k\mid\theta)},

    with the identity among them for the guide's own draws, and for no others. Then p over this estimate is *exactly* a
    ratio of two densities of the draw and its K relabellings together, whose normalisers are the evidence and one,

    .. math:: \frac{p(\theta, \text{data})}{\hat q(\theta)}
              = \frac{p(\theta, \text{data}) \prod_k \tau(g_k\mid\theta)}{\hat q(\theta) \prod_k \tau(g_k\mid\theta)},
              \qquad \hat q \prod_k \tau(g_k\mid\theta)
              = \frac1K \sum_k \frac{q(g_k\theta)}{|G|} \prod_{j \ne k} \tau(g_j\mid\theta).

    Draws of the posterior with K relabellings from :math:`\tau` are draws of the numerator. For draws of the
    denominator, pick k and :math:`g_k` uniformly, a draw of the guide moved by :math:`g_k^{-1}`, and the others from
    :math:`\tau`; which is the guide's own draw with the identity among the K, moved as a whole, and that changes no
    weight. So whatever is true of importance weights is true of these, for groups of any size and any K: their mean is
    unbiased for the evidence, bridge sampling is consistent, and the log of a mean of J weights, of which none is the
    posterior's, or one, bounds the log evidence from below, or from above. All this rests on :math:`\tau` treating all
    labels of a draw alike, as `sample_proposal` does.

    Parameters
    ----------
    guide
        The guide, set up.
    rng_key
        JAX random key.
    params
        The guide's parameters, and the model's.
    draws
        Batch after batch: latent site -> ``(batch, *event)``, constrained, and whether the batch is the base guide's
        own draws. All are weighed in the precision in use.
    args, kwargs
        The model's arguments: the whole data.
    num_permutations
        K.

    Returns
    -------
    LogWeights
        Nats.

    Raises
    ------
    SymmetryError
        If the guide is not set up.
    """
    kwargs = dict(kwargs or {})
    layout, apart, *_ = averaged_over(guide)
    model_trace = trace_model(guide.model, args, kwargs, jax.random.key(0))
    discrete = bool(discrete_of(model_trace))

    def weigh(key: Array, values: dict[str, Array], own: Array, params: Mapping[str, Any]) -> LogWeights:
        key_guide, key_information = jax.random.split(key)
        if discrete:
            log_joint = enumerated_log_density(guide.model, args, kwargs, {**params, **values}, model_trace, key_guide)
        else:
            log_joint = _log_joint(guide.model, args, kwargs, key_guide, {**params, **values})
        trace = trace_model(guide.base, args, kwargs, key_guide, dict(params))
        options = {"estimator": "tight", "bound": "both", "num_permutations": num_permutations}

        def log_q_and_information(key: Array, values: dict[str, Array], own: Array) -> tuple[Array, Array]:
            at = trace_at(guide.base, trace, values, args, kwargs)
            log_q = sum((jnp.sum(log_prob_of(site)) for site in at.values() if site["type"] == "sample"), jnp.zeros(()))
            with_identity, without = information_at(guide.base, layout, at, args, kwargs, rng_key=key, **options)
            return log_q, jnp.where(own, with_identity, without)

        if not apart.groups:
            log_q, information = log_q_and_information(key_information, values, own)
            return LogWeights(log_joint - log_q, information)
        elements = apart.elements()
        count = round(math.exp(apart.log_order()))

        def moved(one: tuple[Array, Array, Any]) -> tuple[Array, Array]:
            index, key, element = one
            return log_q_and_information(key, apart.apply(element, values), own & (index == 0))  # pyright: ignore

        # the identity comes first
        keys = jax.random.split(key_information, count)
        log_q, information = jax.lax.map(moved, (jnp.arange(count), keys, elements))
        return LogWeights(log_joint - log_q[0], log_q[0] - logsumexp(log_q - information) + math.log(count))

    @jax.jit
    def weigh_all(
        keys: Array, draws: dict[str, np.ndarray], is_own: np.ndarray, params: Mapping[str, Any]
    ) -> LogWeights:
        return jax.lax.map(
            lambda one: weigh(one[0], one[1], one[2], params), (keys, draws, is_own), batch_size=DRAWS_AT_ONCE
        )

    weighed, num_weighed, step = [], 0, 0
    for batch, own in draws:
        arrays = {site: np.asarray(x) for site, x in batch.items()}
        count = len(next(iter(arrays.values())))
        step = step or min(DRAWS_IN_A_CALL, -(-count // DRAWS_AT_ONCE) * DRAWS_AT_ONCE)
        for items in slices(count, 1, step):
            here = {site: x[items] for site, x in arrays.items()}
            index = jnp.arange(num_weighed, num_weighed + step)
            keys = jax.vmap(jax.random.fold_in, (None, 0))(rng_key, index)
            weights = weigh_all(keys, in_batch(here, step), np.full(step, own), dict(params))
            size = items.stop - items.start
            weighed.append(LogWeights(*(np.asarray(x)[:size] for x in weights)))
            num_weighed += size
    return LogWeights(*(np.concatenate(parts) for parts in zip(*weighed, strict=True)))


def _log_joint(
    model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], key: Array, values: dict[str, Any]
) -> Array:
    """Log joint at given values; what is outside of a support has no density by NumPyro's checks of values."""
    try:
        return log_density_of(run_model(model, args, kwargs, key, values))
    except ValueError:  # a model may read parameters off data that are NaN and masked: NumPyro's checks refuse them
        return log_density_of(trace_model(model, args, kwargs, key, values))
