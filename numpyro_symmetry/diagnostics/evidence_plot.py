"""A plot of log evidences against sizes of models. Knows values, errors and bounds by name; not how they are found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from numpyro_symmetry.diagnostics.plots import as_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_READ = ("value", "error", "lower", "upper")


def plot_evidence(found: Mapping[Any, Any], *, ax: Axes | None = None) -> Axes:
    """Plot log evidences, with two standard errors and between their bounds, against the sizes or names of models.

    Parameters
    ----------
    found
        Number of components, states, units, or name of a model -> what `log_evidence` returned.
    ax
        Matplotlib axes to draw on; made if not given.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. A bound that is infinite is not drawn.

    Raises
    ------
    TypeError
        If ``found`` is no mapping to what `log_evidence` returned, or ``ax`` no matplotlib axes.

    Examples
    --------
    >>> from numpyro_symmetry.diagnostics import plot_evidence
    >>> from numpyro_symmetry.evidence import LogEvidence
    >>> found = {k: LogEvidence(-3.0 - k, *[0.1] * 9, "bridge") for k in (1, 2)}
    >>> plot_evidence(found).get_ylabel()
    'log evidence (nats)'
    """
    if not isinstance(found, Mapping) or not found or not all(hasattr(x, n) for x in found.values() for n in _READ):
        raise TypeError(
            "plot_evidence expects a mapping from sizes or names to what log_evidence returned; got "
            f"{type(found).__name__}."
        )
    ax = as_axes(ax)
    names = list(found)
    are_numbers = all(isinstance(name, int | float | np.number) for name in names)
    at = np.array(names, float) if are_numbers else np.arange(len(names))
    value, error, lower, upper = (np.array([getattr(x, name) for x in found.values()], float) for name in _READ)
    known = np.isfinite(lower) & np.isfinite(upper)
    ax.vlines(at[known], lower[known], upper[known], color="C0", lw=8, alpha=0.25, label="bounds")
    # Laplace's method has no error
    ax.errorbar(at, value, 2.0 * np.nan_to_num(error), fmt="o-" if are_numbers else "o", ms=4, color="C0", capsize=3)
    ax.set(ylabel="log evidence (nats)", xticks=at)
    ax.set_xticklabels([str(name) for name in names])
    return ax
