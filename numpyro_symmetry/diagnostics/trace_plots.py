"""Plots of relabelled draws. Each draws on axes that are given or made, and returns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from numpyro_symmetry.symmetry import SymmetryError, compose, inverse, num_transpositions
from numpyro_symmetry.symmetry.elements import permutation_of
from numpyro_symmetry.traces import Rebased
from numpyro_symmetry.traces.containers import read

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_POINTS = 4000


def plot_relabelling(raw: Any, out: Rebased, sites: tuple[str, str], *, axes: Any = None) -> Any:
    """Two sites against each other, one colour a slot, before and after relabelling.

    Parameters
    ----------
    raw
        The draws as given to `rebase`.
    out
        What it returned.
    sites
        Names of two sites with one value a slot, or of one, twice, to draw it against the draw's number.
    axes
        A pair of matplotlib axes; made if not given.

    Returns
    -------
    numpy.ndarray of matplotlib.axes.Axes
        Before, after.

    Raises
    ------
    SymmetryError
        If a site has more than one value a slot.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, plot_relabelling, rebase
    >>> rng = np.random.default_rng(0)
    >>> raw = {"loc": rng.permuted([0.0, 5.0] + rng.standard_normal((200, 2)), axis=1)}
    >>> before, after = plot_relabelling(raw, rebase(raw, Symmetry.mixture("loc")), ("loc", "loc"))
    >>> after.get_xlabel(), after.get_ylabel(), len(after.lines)
    ('draw', 'loc', 2)
    """
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")[1]
    for ax, data, title in zip(axes, (raw, out.data), ("as sampled", "relabelled"), strict=True):
        trace = read(data, out.symmetry, out.objective.ndim)
        flat = trace.flat(list(dict.fromkeys(sites)))
        if any(value.ndim != 2 for value in flat.values()):
            raise SymmetryError(f"Sites {sites}: expected one value a slot; got {[v.shape for v in flat.values()]}.")
        step = max(1, trace.num_draws // _MAX_POINTS)
        for slot in range(flat[sites[0]].shape[1]):
            y = flat[sites[1]][::step, slot]
            x = np.arange(len(y)) * step if sites[0] == sites[1] else flat[sites[0]][::step, slot]
            ax.plot(x, y, ".", ms=2, alpha=0.35, label=f"{slot}", rasterized=True)
        ax.set(title=title, xlabel="draw" if sites[0] == sites[1] else sites[0], ylabel=sites[1])
        ax.spines[["top", "right"]].set_visible(False)
    legend = axes[1].legend(title="slot", frameon=False, markerscale=5, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for handle in legend.legend_handles:
        handle.set_alpha(1.0)
    return axes


def plot_transpositions(out: Rebased, group: str | None = None, *, axes: Axes | None = None) -> Axes:
    r"""Number of transpositions between consecutive draws' labels, chain by chain, with its random baseline.

    .. math:: \operatorname{NoT}(g_{t+1}\, g_t^{-1}), \qquad
              \operatorname{E} \operatorname{NoT} = n - \sum_{k=1}^n \tfrac1k \text{ for labels at random}

    Parameters
    ----------
    out
        What `rebase` returned.
    group
        Which group; may be left out if there is only one.
    axes
        Matplotlib axes; made if not given.

    Returns
    -------
    matplotlib.axes.Axes
        Flat at zero where a chain never switches labels; at the baseline where labels are forgotten at once.

    Raises
    ------
    SymmetryError
        If the group is unknown, or left out where there are several.

    References
    ----------
    Xiao et al. (2023), arXiv:2401.00611: the number of transpositions.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, plot_transpositions, rebase
    >>> loc = [0.0, 5.0] + np.random.default_rng(0).standard_normal((200, 2))
    >>> loc[100:] = loc[100:, ::-1]
    >>> axes = plot_transpositions(rebase({"loc": loc}, Symmetry.mixture("loc")))
    >>> np.flatnonzero(axes.lines[0].get_ydata()).tolist()
    [99]
    """
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.figure(figsize=(7, 3), layout="constrained").add_subplot()
    elements = (out.plain or out).elements
    names = list(elements)
    if group is None and len(names) == 1:
        group = names[0]
    if group not in elements:
        raise SymmetryError(f"group={group!r}: name one of {names}.")
    permutation = permutation_of(elements[group])
    n = permutation.shape[-1]
    for k, chain in enumerate(permutation.reshape(-1, *permutation.shape[-2:])):
        # what was done to the labels between one draw and the next
        step = compose({group: chain[1:]}, inverse({group: chain[:-1]}))
        axes.plot(np.arange(1, len(chain)), num_transpositions(step)[group], lw=0.7, label=f"chain {k}")
    baseline = n - np.sum(1.0 / np.arange(1, n + 1))
    axes.axhline(baseline, color="grey", ls=":", label="random labels")
    axes.set(xlabel="draw", ylabel=f"transpositions of {group!r}", ylim=(-0.05 * n, n))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return axes


def plot_null(out: Rebased, *, axes: Axes | None = None) -> Axes:
    r"""How far each slot is from its nearest other, in descending order, beside slots without identity.

    .. math:: d_i = \min_{j \ne i} \Big[\sum_x \frac{(\mu_{ix} - \mu_{jx})^2}
              {(\sigma_{ix}^2 + \sigma_{jx}^2) / 2}\Big]^{1/2}

    over all numbers :math:`x` that describe a slot, with means and standard deviations over relabelled draws.

    Parameters
    ----------
    out
        What `rebase` returned, with its null.
    axes
        Matplotlib axes; made if not given.

    Returns
    -------
    matplotlib.axes.Axes
        Slots at or below the null's are the relabelling's own doing.

    Raises
    ------
    SymmetryError
        If there is no null.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, plot_null, rebase
    >>> rng = np.random.default_rng(0)
    >>> raw = {"loc": rng.permuted([0.0, 5.0] + rng.standard_normal((200, 2)), axis=1)}
    >>> slots, null = plot_null(rebase(raw, Symmetry.mixture("loc"))).lines
    >>> bool(slots.get_ydata().min() > 2 * null.get_ydata().max())
    True
    """
    if out.null is None:
        raise SymmetryError("There is no null to plot: call rebase with null=True.")
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.figure(figsize=(6, 3.5), layout="constrained").add_subplot()
    for k, (name, slots) in enumerate(out.null.separation.items()):
        rank = np.arange(1, len(slots) + 1)
        axes.plot(rank, np.sort(slots)[::-1], "o-", ms=4, color=f"C{k}", label=f"{name}")
        axes.plot(rank, out.null.separation_null[name], "o:", ms=3, color=f"C{k}", alpha=0.5, label=f"{name}, null")
    axes.set(xlabel="slot, by rank", ylabel="distance to the nearest (sd)", ylim=(0.0, None))
    axes.locator_params(axis="x", integer=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return axes
