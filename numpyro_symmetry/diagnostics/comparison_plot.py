"""A plot of the entries in which two posteriors differ. Knows comparisons and axes; computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from numpyro_symmetry.diagnostics.comparison import Comparison, entry_name
from numpyro_symmetry.diagnostics.plots import as_axes
from numpyro_symmetry.symmetry import SymmetryError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_NAMED = 8


def plot_comparison(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Plot by how much each entry's mean and spread differ between two posteriors, a colour for each site.

    Entries that differ by more than chance among so many are filled, and the surest of them named.

    Parameters
    ----------
    comparison
        What `compare` returned.
    ax
        Matplotlib axes to draw on; made if not given.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    TypeError
        If ``comparison`` is anything else, or ``ax`` no matplotlib axes.
    SymmetryError
        If there were not enough draws to compare entries.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, compare
    >>> from numpyro_symmetry.diagnostics import plot_comparison
    >>> a, b = np.array([-3.0, 3.0]) + np.random.default_rng(0).standard_normal((2, 200, 2)) * [[[1.0]], [[2.0]]]
    >>> found = compare({"loc": a}, {"loc": b}, Symmetry.mixture("loc"), independent=("a", "b"))
    >>> plot_comparison(found).get_xlabel()
    'difference of means (a − b, in sd)'
    """
    if not isinstance(comparison, Comparison):
        raise TypeError(f"plot_comparison expects what compare returned; got {type(comparison).__name__}.")
    if np.isnan(comparison.p_value):
        raise SymmetryError("There were not enough draws to compare entries: there is nothing to plot.")
    ax = as_axes(ax)
    table, a, b = comparison.table, comparison.a.name, comparison.b.name
    # across: the difference of means; upwards: the ratio of spreads, on a logarithmic scale
    differs = (table[["p_shift", "p_log_ratio"]].min(axis=1) <= comparison.level).to_numpy()
    shift, ratio = table["shift"].to_numpy(), np.exp(table["log_ratio"].to_numpy())
    ax.axhline(1.0, color="0.8", lw=1, zorder=0)
    ax.axvline(0.0, color="0.8", lw=1, zorder=0)
    for k, site in enumerate(comparison.contributions.data_vars):
        here = (table["site"] == site).to_numpy()
        for some, face in ((here & differs, f"C{k % 10}"), (here & ~differs, "none")):
            ax.scatter(shift[some], ratio[some], s=28, facecolors=face, edgecolors=f"C{k % 10}")
        ax.scatter([], [], s=28, color=f"C{k % 10}", label=str(site))
    for k in np.flatnonzero(differs)[:_MAX_NAMED]:
        ax.annotate(entry_name(table.iloc[k]), (shift[k], ratio[k]), (4, 4), textcoords="offset points", fontsize=8)
    ax.set_yscale("log")
    _pad(ax, shift, ratio)
    ax.set(xlabel=f"difference of means ({a} − {b}, in sd)", ylabel=f"ratio of spreads ({a} / {b})")
    ax.set_title(
        f"{comparison.verdict}: effect {comparison.effect:.3f}, noise floor {comparison.floor:.3f}", fontsize=10
    )
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def _pad(ax: Any, shift: np.ndarray, ratio: np.ndarray) -> None:
    """Limits around the point of no difference, so that small differences look small."""
    across, up = max(0.5, 1.15 * np.abs(shift).max()), max(np.log(1.5), 1.15 * np.abs(np.log(ratio)).max())
    ax.set(xlim=(-across, across), ylim=(np.exp(-up), np.exp(up)))
    ticks = [tick for tick in (0.1, 0.2, 0.33, 0.5, 0.67, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0) if abs(np.log(tick)) <= up]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
