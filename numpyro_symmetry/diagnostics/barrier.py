r"""Loss barriers: how much worse predictions get on the way from one solution to another.

Along the Wasserstein geodesic between two mean-field Gaussians, means *and* standard deviations are linear, and the
loss is that of the predictive distribution, :math:`L(q) = -\frac1N\sum_n \log \operatorname{E}_{\theta\sim q}
p(y_n\mid x_n,\theta)`. (Along a mixture of the two there never is a barrier: :math:`-\log` is convex.) Knows Gaussians
and a loss; no model and no plots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from numpyro_symmetry.linalg import at_least_single
from numpyro_symmetry.matching import DiagonalGaussian
from numpyro_symmetry.matching.sides import is_tree, read
from numpyro_symmetry.steps import say, saying, track
from numpyro_symmetry.symmetry import SymmetryError, as_html, warn
from numpyro_symmetry.symmetry.arguments import (
    as_count,
    as_flag,
    as_function,
    as_option,
    as_real_array,
    key_or_fixed,
    refuse_tracers,
    staying_in_jax,
)
from numpyro_symmetry.symmetry.errors import renamed
from numpyro_symmetry.symmetry.named import refuse_others
from numpyro_symmetry.symmetry.pytrees import (
    real_arrays,
    refuse_mismatch,
    refuse_other_structure,
    warn_of_settings,
    with_arrays,
)

PATHS = ("linear", "wasserstein")
# the logarithm of a mean over m effective draws is low by about 1/(2m): by a tenth of a nat over five
_FEW_DRAWS = 5.0


class LossBarrier(NamedTuple):
    """Losses along a path, and by how much the worst of them exceeds the chord.

    Attributes
    ----------
    barrier, error
        Largest excess of the loss over the chord, at least zero by construction, and its Monte Carlo standard error.
    t
        ``(num_points,)``, from 0 at the first solution to 1 at the second.
    loss
        ``(num_points,)``, a mean over data: of Gaussians in nats, of points in whatever ``loss`` measures.
    excess, excess_error
        ``(num_points,)``: the loss less the chord between the two ends, and its Monte Carlo standard error.
    effective_draws
        ``(num_points,)``: number of draws of which a datum's likelihood is in effect the average, for the worst datum
        in a hundred. If it is small, the logarithm of the average is too low, by more than errors say.
    """

    barrier: float
    error: float
    t: np.ndarray
    loss: np.ndarray
    excess: np.ndarray
    excess_error: np.ndarray
    effective_draws: np.ndarray

    def __repr__(self) -> str:
        at = float(self.t[int(np.argmax(self.excess))])
        draws = float(np.min(self.effective_draws))
        averaged = f", at least {draws:.1f} effective draws" if np.max(self.effective_draws) > 1 else ""
        nats = "nats " * is_in_nats(self)
        return (
            f"LossBarrier({in_words(self, 4)} {nats}a datum at t={at:.2f}; loss {self.loss[0]:.4g} "
            f"and {self.loss[-1]:.4g} at the ends{averaged})"
        )

    _repr_html_ = as_html


def in_words(barrier: LossBarrier, digits: int = 3) -> str:
    """A barrier in words, with its error where draws gave it one: losses of points have none."""
    if not barrier.excess_error.any():
        return f"{barrier.barrier:.{digits}g}"
    # one digit of the error for three of the barrier, two for four, and as many decimals; both are zero at an end
    decimals = max(digits - 3 - math.floor(math.log10(barrier.error)), 0) if barrier.error else digits
    return f"{barrier.barrier:.{decimals}f} ± {barrier.error:.{decimals}f}"


def is_in_nats(barrier: LossBarrier) -> bool:
    """Whether likelihoods were averaged over draws; a loss between points may be in any unit."""
    return bool(barrier.excess_error.any() or np.max(barrier.effective_draws) > 1)


@renamed(num_samples="num_draws")
def loss_barrier(
    loss: Callable[[Any], Array],
    a: Any,
    b: Any,
    *,
    path: str | None = None,
    num_points: int = 11,
    num_draws: int = 128,
    rng_key: Array | None = None,
    progress_bar: bool = True,
) -> LossBarrier:
    r"""Measure the loss along a path between two solutions, and how far it rises above the chord.

    .. math:: B = \max_t\; L(q_t) - (1-t)\,L(q_0) - t\,L(q_1)

    Parameters
    ----------
    loss
        Values of one network, by site or as the tree that an end is, -> negative log likelihood of each datum,
        ``(num_data,)``; in JAX, for it is compiled. Between points any other loss will do, a squared error say.
    a, b
        The ends: values by site, a pytree of arrays, `DiagonalGaussian`, or ``(guide, params)`` of a mean-field guide.
        Match them first. Whole numbers and keys of a tree are those of the first end.
    path
        ``"linear"`` between points (of Gaussians: between their means), or ``"wasserstein"``, the geodesic, with the
        likelihood averaged over draws. By default the latter if both are Gaussians.
    num_points
        Points on the path, its ends among them.
    num_draws
        Draws for each point; the same noise all along the path, so that differences are sharper than losses.
    rng_key
        JAX random key of the draws; fixed by default.
    progress_bar
        Whether to show a bar, after two seconds.

    Returns
    -------
    LossBarrier
        With Monte Carlo standard errors; a barrier within two of them is none, if draws are effective.

    Raises
    ------
    SymmetryError
        If the two have different sites or shapes, hold numbers that are not finite, masks or nested parameters, one has
        no standard deviations and the path needs them, or one has correlations.
    ValueError
        If an option is out of range, or the loss is not one finite number for each datum.
    TypeError
        If the loss cannot be compiled because it leaves JAX, ``num_points`` or ``num_draws`` is no whole number,
        ``rng_key`` no key or ``progress_bar`` no flag, or under `jit`.

    Warns
    -----
    SymmetryWarning
        If a datum's likelihood is in effect the average of fewer than five draws: take more of them.

    References
    ----------
    Rossi et al. (2023), arXiv:2310.10171; the chord rather than the mean of the ends as reference.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import loss_barrier
    >>> def loss(values):
    ...     return (values["w"][0] * values["w"][1] - 1.0)[None] ** 2
    >>> ends = {"w": jnp.array([0.5, 2.0])}, {"w": jnp.array([2.0, 0.5])}
    >>> round(loss_barrier(loss, *ends).barrier, 3)
    0.316
    """
    num_points = as_count(num_points, "num_points", minimum=3, meaning="the ends and at least one between them")
    num_draws = as_count(num_draws, "num_draws", minimum=2, meaning="draws at each point")
    shown = as_flag(progress_bar, "progress_bar")
    loss = as_function(loss, "loss", "values by site")
    if path is not None:
        as_option(path, "path", PATHS)
    refuse_tracers("loss_barrier", a=a, b=b)
    first, last, is_geodesic = _ends(a, b, path)
    shaped = next((side for side in (a, b) if is_tree(side) or isinstance(side, Mapping)), None)
    key = key_or_fixed(rng_key)
    t = np.linspace(0.0, 1.0, num_points)

    def values(share: Array, draw_key: Array) -> Any:
        here = first.geodesic(last, share)
        found = here.sample(draw_key) if is_geodesic else here.loc
        return found if shaped is None or type(shaped) is dict and not is_tree(shaped) else with_arrays(shaped, found)

    keys = jax.random.split(key, num_draws if is_geodesic else 1)
    with saying("measuring the barrier", shown):
        losses, influence, effective = _along(loss, values, t, keys)
    if is_geodesic and effective.min() < _FEW_DRAWS:
        warn(
            f"At t={t[effective.argmin()]:.2f} some likelihoods are in effect the average of {effective.min():.1f} of "
            f"{num_draws} draws: losses there are too high, and errors too small. Raise num_draws."
        )
    excess = _above_chord(t, losses)
    scatter = _above_chord(t, influence)
    errors = scatter.std(1, ddof=1) / math.sqrt(num_draws) if is_geodesic else np.zeros(num_points)
    worst = int(np.argmax(excess))
    return LossBarrier(float(excess[worst]), float(errors[worst]), t, losses, excess, errors, effective)


def _ends(a: Any, b: Any, path: str | None) -> tuple[DiagonalGaussian, DiagonalGaussian, bool]:
    """Both ends, and whether the way between them is the Wasserstein geodesic and not the line between their means."""
    if all(map(is_tree, (a, b))):
        refuse_other_structure(a, b, ("the first end", "the second"))
        warn_of_settings(a, b, ("the first end", "the second"))
    # whole numbers of a tree, such as counters and masks, have no values between the ends
    ends = [real_arrays(side) if is_tree(side) else read(side) for side in (a, b)]
    refuse_others(ends[0], ends[1], {}, ("the first end", "the second"))
    are_gaussian = [isinstance(side, DiagonalGaussian) for side in ends]
    if path != "linear" and any(hasattr(side, "covariance") for side in ends):
        raise SymmetryError(
            "The path between Gaussians with correlations is not one of means and standard deviations: pass "
            ".diagonal() of both, or path='linear' for the path between their means."
        )
    if path == "wasserstein" and not all(are_gaussian):
        raise SymmetryError("path='wasserstein' needs standard deviations of both ends: pass Gaussians or guides.")
    first, last = (_gaussian(side) for side in ends)
    for name, side in (("first", first), ("second", last)):
        if not side.loc:
            raise SymmetryError(f"The {name} end holds no arrays of real numbers, and so no way to the other.")
        side.check(f" of the {name} end")
    refuse_mismatch(first.loc, last.loc, ("the first end", "the second"))
    return first, last, path != "linear" and all(are_gaussian)


def _along(
    loss: Callable[[Any], Array],
    values: Callable[[Array, Array], Any],
    t: np.ndarray,
    keys: Array,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses along a path, of likelihoods averaged over draws that have the same keys at every point.

    Losses ``(num_points,)``, each draw's contributions ``(num_points, draw)``, and effective draws.
    """

    @jax.jit
    def log_likelihood(share: Array) -> Array:
        def one(draw_key: Array) -> Array:
            found = jnp.asarray(as_real_array(loss(values(share, draw_key)), "What loss returned", TypeError))
            # whole numbers without a sign have no negative, and halves no mean
            return -at_least_single(found)

        return jax.lax.map(one, keys)

    count = len(keys)
    losses, influence, effective = np.empty(len(t)), np.empty((len(t), count)), np.full(len(t), float(count))
    say(f"losses at {len(t)} points of the path, the function for which is compiled first")
    for k, share in enumerate(track(t, len(t))):
        with staying_in_jax("loss"):
            table = log_likelihood(jnp.asarray(share))
        _refuse_no_losses(table, share)
        log_mean = logsumexp(table, axis=0) - math.log(count)
        losses[k] = 0.0 - float(jnp.mean(log_mean))  # minus zero would print its sign
        # what each draw contributes to the loss, to first order
        weights = jnp.exp(table - log_mean)
        influence[k] = -np.asarray(jnp.mean(weights, axis=1), float)
        if count > 1:
            effective[k] = float(jnp.quantile(count / jnp.mean(weights**2, axis=0), 0.01))
    return losses, influence, effective


def _refuse_no_losses(table: Array, share: float) -> None:
    if table.ndim != 2:
        raise ValueError(
            f"loss must return one number for each datum, (num_data,); got shape {table.shape[1:]}. "
            "The mean over data is taken here: leave it out. One over outputs is taken in loss, .mean(-1)."
        )
    if not table.shape[1]:
        raise ValueError("loss is one over no data: it returned shape (0,).")
    if not bool(jnp.isfinite(table).all()):
        raise ValueError(f"loss is not finite for {int((~jnp.isfinite(table)).any(0).sum())} data at t={share:.2f}.")


def _above_chord(t: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values along a path, which is the first axis, less the chord between their ends."""
    share = t.reshape(-1, *(1,) * (values.ndim - 1))
    return (values - values[0]) - share * (values[-1] - values[0])


def _gaussian(side: Any) -> DiagonalGaussian:
    if isinstance(side, DiagonalGaussian):
        return side
    if hasattr(side, "diagonal"):
        return side.diagonal()
    loc = {site: jnp.asarray(as_real_array(value, f"Site {site!r}")) for site, value in side.items()}
    # unchecked here: the caller checks it, and names the end
    return DiagonalGaussian.tree_unflatten(None, (loc, {site: jnp.zeros_like(value) for site, value in loc.items()}))
