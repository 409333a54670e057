"""Nested R-hat: whether many short chains have forgotten where they began, by what no label changes.

Knows what `rebase` returned and arrays of chains; no verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from numpyro_symmetry.containers import read
from numpyro_symmetry.diagnostics.chains import normal_scores
from numpyro_symmetry.diagnostics.inputs import as_rebased, invariants_of, unchanged
from numpyro_symmetry.diagnostics.invariants import invariants as own_invariants
from numpyro_symmetry.steps import say, saying
from numpyro_symmetry.symmetry import SymmetryError, warn
from numpyro_symmetry.symmetry.arguments import as_flag
from numpyro_symmetry.symmetry.shown import counted
from numpyro_symmetry.traces import Rebased


def nested_r_hat(
    out: Rebased,
    superchains: Sequence[int] | ArrayLike,
    *,
    invariants: Mapping[str, ArrayLike] | None = None,
    progress_bar: bool = True,
) -> dict[str, float]:
    r"""R-hat of superchains, for many chains too short to be judged one by one.

    .. math:: \hat R_\nu = \sqrt{1 + \hat B / \hat W}

    with :math:`\hat B` the variance between the means of superchains, and :math:`\hat W` the mean over superchains of
    the variance between their chains' means and within their chains, all of normal scores of ranks. It approaches one
    as the starting points are forgotten, even with one draw a chain.

    Parameters
    ----------
    out
        What `rebase` returned, of draws ``(chain, draw, ...)``.
    superchains
        ``(chain,)``: which superchain each chain is of; equally many of each. Chains of one superchain began at one
        point, and superchains at different ones.
    invariants
        As for `report`.
    progress_bar
        Whether to show a bar, after two seconds.

    Returns
    -------
    dict
        Name of an invariant -> the largest nested R-hat of its entries; infinite where nothing moves within superchains
        that differ, and, with a warning, where draws are NaN. Entries that never vary do not count, and invariants that
        have no others are left out.

    Raises
    ------
    SymmetryError
        If there are not as many numbers as chains, fewer than two superchains, superchains of different sizes, or
        neither two chains in each nor two draws to a chain; or draws are members of an ensemble.
    TypeError
        If ``out`` is not what `rebase` returned.

    References
    ----------
    Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman (2024), Nested R-hat: assessing the convergence of
    Markov chain Monte Carlo when running many short chains, equations 4 to 7.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, rebase
    >>> from numpyro_symmetry.diagnostics import nested_r_hat
    >>> rng = np.random.default_rng(0)
    >>> loc = rng.permuted(np.array([-3.0, 0.0, 3.0]) + rng.standard_normal((64, 2, 3)), axis=2)
    >>> out = rebase({"loc": loc}, Symmetry.mixture("loc"), null=False, num_leading_dims=2)
    >>> max(nested_r_hat(out, np.arange(64) // 16).values()) < 1.05
    True
    """
    out = as_rebased(out, "nested_r_hat(out, superchains)")
    leading = out.objective.shape
    trace = read(out.data, out.symmetry, len(leading))
    if len(leading) != 2 or trace.are_members:
        raise SymmetryError(
            f"nested R-hat is of draws (chain, draw, ...); these have leading dimensions {leading}. If they have "
            "chains, say so: rebase(..., num_leading_dims=2)."
        )
    shown = as_flag(progress_bar, "progress_bar")
    order = _as_groups(superchains, *leading)
    with saying("nested R-hat", shown):
        say("making what no label changes")
        known, beside = unchanged(trace, out)
        own = own_invariants(out.view.symmetry, out.view.open(trace.flat(list(out.symmetry.axes))), out.view)
        given = known | beside | own | invariants_of(invariants, out)
        found = {}
        for name, values in given.items():
            say(f"of {name}")
            entries = np.asarray(values, float).reshape(*leading, -1)
            if number := int(np.isnan(entries).any(-1).sum()):
                warn(f"{name!r} is no number in {counted(number, 'draw')}: it is not judged, and counts as infinite.")
                found[name] = np.inf
                continue
            entries = entries[..., entries.min((0, 1)) < entries.max((0, 1))]
            if entries.shape[2]:
                found[name] = float(_nested(normal_scores(entries)[order]).max())
        return found


def _as_groups(superchains: Any, num_chains: int, num_draws: int) -> np.ndarray:
    """``(superchain, chain)``: indices of the chains of each superchain."""
    labels = np.asarray(superchains)
    if labels.shape != (num_chains,):
        raise SymmetryError(
            f"superchains has shape {labels.shape}; expected one number for each of {num_chains} chains."
        )
    _, index, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if len(sizes) < 2 or np.ptp(sizes):
        raise SymmetryError(
            f"superchains are of {counted(', '.join(map(str, sizes)), 'chain')}; expected two superchains or more, "
            "of equally many."
        )
    if sizes[0] < 2 and num_draws < 2:
        raise SymmetryError(
            "There is one draw in each superchain; expected two chains in each, or two draws to a chain."
        )
    return index.argsort(kind="stable").reshape(len(sizes), -1)


def _nested(values: np.ndarray) -> np.ndarray:
    """Nested R-hat ``(entry,)`` of ``(superchain, chain, draw, entry)``."""
    _, num_chains, num_draws, _ = values.shape
    means = values.mean(2)
    between = means.mean(1).var(0, ddof=1)
    within = np.zeros_like(between)
    if num_chains > 1:
        within = within + means.var(1, ddof=1).mean(0)
    if num_draws > 1:
        within = within + values.var(2, ddof=1).mean((0, 1))
    # the variance of equal values may be rounding errors instead of zero
    moving = (values.max((1, 2)) > values.min((1, 2))).any(0)
    ratio = np.divide(between, within, where=moving, out=np.full_like(within, np.inf))
    return np.sqrt(1.0 + ratio)
