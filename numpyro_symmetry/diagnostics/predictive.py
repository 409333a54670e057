"""How far two predictive distributions over classes are apart.

Knows arrays of probabilities; no models.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from numpyro_symmetry.linalg import at_least_single
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import as_real_array, refuse_masked
from numpyro_symmetry.symmetry.elements import broadcast

# averages of thousands of probabilities in single precision sum to one within this, and logits do not
_TOLERANCE = 1e-3


def agreement(p: ArrayLike, q: ArrayLike) -> Array:
    r"""Share of data for which two predictive distributions put the same class first.

    .. math:: \frac1N \sum_x 1[\arg\max_y p(y|x) = \arg\max_y q(y|x)]

    Parameters
    ----------
    p, q
        ``(*batch, N, classes)`` probabilities, already averaged over a posterior's draws.

    Returns
    -------
    Array
        ``(*batch)``, from 0 to 1.

    Raises
    ------
    SymmetryError
        If the shapes do not go together, there are no data or the probabilities do not sum to one; the last is not
        looked at under `jit`, `vmap` and `grad`.

    References
    ----------
    Xiao et al. (2023), arXiv:2401.00611, section 4; Izmailov et al. (2021).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry.diagnostics import agreement
    >>> float(agreement(jnp.array([[0.9, 0.1], [0.2, 0.8]]), jnp.array([[0.6, 0.4], [0.7, 0.3]])))
    0.5
    """
    p, q = _checked(p, q)
    return (p.argmax(-1) == q.argmax(-1)).mean(-1)


def total_variation(p: ArrayLike, q: ArrayLike) -> Array:
    r"""Total variation distance of two predictive distributions, averaged over data.

    .. math:: \frac1N \sum_x \tfrac12 \sum_y |p(y|x) - q(y|x)|

    Parameters
    ----------
    p, q
        ``(*batch, N, classes)`` probabilities.

    Returns
    -------
    Array
        ``(*batch)``, from 0 to 1.

    Raises
    ------
    SymmetryError
        If the shapes do not go together, there are no data or the probabilities do not sum to one; the last is not
        looked at under `jit`, `vmap` and `grad`.

    References
    ----------
    Xiao et al. (2023), arXiv:2401.00611, equation 2, with its factor of one half.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry.diagnostics import total_variation
    >>> round(float(total_variation(jnp.array([[0.9, 0.1]]), jnp.array([[0.6, 0.4]]))), 3)
    0.3
    """
    p, q = _checked(p, q)
    return 0.5 * jnp.abs(p - q).sum(-1).mean(-1)


def _checked(p: ArrayLike, q: ArrayLike) -> tuple[Array, Array]:
    refuse_masked({"p": p, "q": q}, "Argument")
    p, q = (jnp.asarray(as_real_array(x, f"{name}, of probabilities")) for name, x in (("p", p), ("q", q)))
    same = p.ndim >= 2 and p.shape[-2:] == q.shape[-2:]
    if not same or not broadcast(p.shape[:-2], q.shape[:-2]):
        raise SymmetryError(f"Expected probabilities (..., N, classes) of the same data; got {p.shape} and {q.shape}.")
    if 0 in p.shape[-2:]:
        raise SymmetryError(f"There are no data, or no classes: p and q have shape {p.shape[-2:]}.")
    for name, values in (("p", p), ("q", q)):
        if not isinstance(values, Tracer) and not _is_distribution(np.asarray(values, float)):
            raise SymmetryError(f"{name} is not a distribution over its last axis: pass probabilities, not logits.")
    # classes marked by whole numbers without a sign, or by truth values, have no negative differences
    return at_least_single(p), at_least_single(q)


def _is_distribution(values: np.ndarray) -> bool:
    sums = values.sum(-1)
    return bool(np.isfinite(values).all() and (values >= 0).all() and (np.abs(sums - 1.0) <= _TOLERANCE).all())
