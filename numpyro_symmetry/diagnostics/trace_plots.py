"""Plots of relabelled draws. Each draws on axes that are given or made, and returns them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from numpyro_symmetry.containers import Trace
from numpyro_symmetry.diagnostics.inputs import as_rebased, at_random, pair_of, same_draws, transpositions
from numpyro_symmetry.diagnostics.plots import as_axes, pyplot
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import as_names
from numpyro_symmetry.symmetry.axes import names_in
from numpyro_symmetry.symmetry.components import by_key
from numpyro_symmetry.symmetry.plain import one_part
from numpyro_symmetry.traces import Rebased

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# beyond this number points only cover each other
_MAX_POINTS = 4000
# steps of long chains cover each other: beside them stand running means over a twentieth of a chain, ten draws or more
_RUNNING, _SHORTEST_WINDOW = 20, 10


def plot_relabelling(
    raw: Any, out: Rebased | None = None, sites: str | Sequence[str] | None = None, *, ax: Any = None
) -> Any:
    """Plot two sites against each other, one colour a slot, before and after relabelling.

    Parameters
    ----------
    raw
        The draws as given to `rebase`; or what `rebase` returned, alone.
    out
        What `rebase` returned.
    sites
        Two sites with one value a slot. Or one site: drawn against the draw's number, chain after chain, if it has one
        value a slot, else the first two of its values against each other. By default the first two sites with one value
        a slot, or the first site. A site whose cells have labels of their own is drawn cell by cell: ``"loc#1"``.
    ax
        A pair of matplotlib axes; made if not given.

    Returns
    -------
    numpy.ndarray of matplotlib.axes.Axes
        The axes with draws as sampled, and those with draws relabelled.

    Raises
    ------
    SymmetryError
        If a site is not the symmetry's, stands under no group or several, or has more values a slot than can be drawn;
        or if ``raw`` is not what was rebased.
    TypeError
        If ``out`` is not what `rebase` returned, or ``sites`` are no names.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, rebase
    >>> from numpyro_symmetry.diagnostics import plot_relabelling
    >>> rng = np.random.default_rng(0)
    >>> raw = {"loc": rng.permuted([0.0, 5.0] + rng.standard_normal((200, 2)), axis=1)}
    >>> before, after = plot_relabelling(raw, rebase(raw, Symmetry.mixture("loc")), "loc")
    >>> after.get_xlabel(), after.get_ylabel(), len(after.lines)
    ('draw', 'loc', 2)
    """
    raw, out = pair_of(raw, out, "plot_relabelling")
    traces = same_draws(raw, out)
    pair = _sites_to_plot(sites, out, traces[0])
    axes, num_draws = _as_pair(ax), out.objective.shape[-1]
    for ax, trace, title in zip(axes, traces, ("as sampled", "relabelled"), strict=True):
        step = max(1, trace.num_draws // _MAX_POINTS)
        (x_name, x), (y_name, y) = _points(pair, out, trace)
        for slot in range(y.shape[1]):
            across = np.arange(len(y)) if x is None else x[:, slot]
            ax.plot(across[::step], y[::step, slot], ".", ms=2, alpha=0.35, label=f"{slot}", rasterized=True)
        if x is None:
            borders = np.arange(num_draws, len(y), num_draws) - 0.5
            ax.vlines(borders, 0.0, 1.0, transform=ax.get_xaxis_transform(), color="0.8", lw=0.8, zorder=0)
        ax.set(title=title, xlabel=x_name, ylabel=y_name)
    legend = axes[1].legend(title="slot", frameon=False, markerscale=5, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for handle in legend.legend_handles:
        handle.set_alpha(1.0)
    return axes


def _as_pair(axes: Any) -> Any:
    """Two matplotlib axes, as given or new."""
    if axes is None:
        axes = pyplot().subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")[1]
    if not isinstance(axes, Sequence | np.ndarray) or len(np.ravel(np.asarray(axes, object))) != 2:
        raise TypeError(
            f"ax must be a pair of matplotlib axes, such as plt.subplots(1, 2)[1]; got {type(axes).__name__}."
        )
    return np.array([as_axes(one, "Each of ax") for one in np.ravel(np.asarray(axes, object))], object)


def _sites_to_plot(sites: str | Sequence[str] | None, out: Rebased, trace: Trace) -> tuple[str, ...]:
    """The one or two sites to draw, checked; chosen if none are named."""
    known = _pieces(out)
    group = {name: next(iter(names_in(out.view.symmetry.axes[piece])), None) for name, piece in known.items()}
    slots = {name: array for name in known if (array := _slots(out, trace, name)) is not None}
    if sites is None:
        single = [site for site, array in slots.items() if array.shape[2] == 1]
        chosen = tuple([s for s in single if group[s] == group[single[0]]][:2]) or tuple(slots)[:1]
        if not chosen:
            raise SymmetryError(
                f"None of the sites {list(known)} stands under one group alone: there are no slots to draw."
            )
    else:
        named = (sites,) if isinstance(sites, str) else as_names(sites, "sites", example="('loc', 'scale')")
        of_family = {site: name for name, stack in out.symmetry.stacks.items() for site in stack.sites}
        chosen = tuple(of_family.get(site, site) for site in named)
    if unknown := [site for site in chosen if site not in known]:
        raise SymmetryError(f"sites={sites!r}: {unknown} are none of the symmetry's sites or parts {list(known)}.")
    if len(chosen) not in (1, 2):
        raise SymmetryError(f"sites={sites!r}: expected one site or two; got {len(chosen)}.")
    chosen = tuple(dict.fromkeys(chosen))
    for site in chosen:
        if site not in slots:
            raise SymmetryError(
                f"Site {site!r} has axes {out.view.stacks[known[site]].entries}: slots are drawn of sites that stand "
                "under one group on one axis. Draw others of its group, or relabelled values out.data[site] yourself."
            )
        if len(chosen) == 2 and slots[site].shape[2] != 1:
            raise SymmetryError(
                f"Site {site!r} has {slots[site].shape[2]} values a slot; two sites are drawn with one value a slot "
                f"each. Pass sites={site!r} to draw its first two values."
            )
    if len(chosen) == 2 and group[chosen[0]] != group[chosen[1]]:
        raise SymmetryError(f"Sites {chosen} stand under different groups: their slots are not the same.")
    return chosen


def _pieces(out: Rebased) -> dict[str, str]:
    """Name -> piece: a site, or a family, goes by its own name where just one piece of it moves."""
    by_stack = by_key((out.view.stacks[piece].name, piece) for piece in out.view.symmetry.axes)
    return {stack if len(pieces) == 1 else piece: piece for stack, pieces in by_stack.items() for piece in pieces}


def _slots(out: Rebased, trace: Trace, site: str) -> np.ndarray | None:
    """``(draw, slot, value)`` of a site under one group; ``None`` if not just one group stands on it, once."""
    piece = _pieces(out)[site]
    axes = out.view.symmetry.opened(piece)
    at = [k - len(axes) for k, axis in enumerate(axes) if axis.group is not None]
    if len(at) != 1:
        return None
    # stored draws are read here
    values = {name: x[:] for name, x in trace.flat(list(out.view.stacks[piece].sites)).items()}
    front = np.moveaxis(out.view.open(values)[piece], at[0], 1)
    return front.reshape(*front.shape[:2], -1)


def _points(
    sites: tuple[str, ...], out: Rebased, trace: Trace
) -> tuple[tuple[str, np.ndarray | None], tuple[str, np.ndarray]]:
    """Names and values ``(draw, slot)`` across and upwards; values across are ``None`` where the draw's number is."""
    values = [slots for site in sites if (slots := _slots(out, trace, site)) is not None]
    if len(sites) == 2:
        return (sites[0], values[0][..., 0]), (sites[1], values[1][..., 0])
    if values[0].shape[2] == 1:
        across = "draw" if out.objective.ndim < 2 else "draw, chain after chain"
        return (across, None), (sites[0], values[0][..., 0])
    # constants, such as a Cholesky factor of correlations has, tell no slots apart
    vary = np.flatnonzero((values[0] != values[0][:1, :1]).any((0, 1)))
    first, second = (*vary, *(k for k in range(values[0].shape[2]) if k not in vary))[:2]
    across, up = ((f"{sites[0]}, value {k}", values[0][..., k]) for k in (first, second))
    return across, up


def plot_transpositions(out: Rebased, group: str | None = None, *, ax: Axes | None = None) -> Axes:
    r"""Plot the number of transpositions between consecutive draws' labels, chain by chain, with its random baseline.

    .. math:: \operatorname{NoT}(g_{t+1}\, g_t^{-1}), \qquad
              \operatorname{E} \operatorname{NoT} = n - \sum_{k=1}^n \tfrac1k \text{ for labels at random}

    Parameters
    ----------
    out
        What `rebase` returned.
    group
        The group to plot; may be left out if there is only one.
    ax
        Matplotlib axes; made if not given.

    Returns
    -------
    matplotlib.axes.Axes
        Flat at zero where a chain never switches labels; at the baseline where labels are forgotten at once. Beside
        chains of 200 draws or more stand their running means.

    Raises
    ------
    SymmetryError
        If the group is unknown, or left out where there are several; or chains are of one draw.
    TypeError
        If ``out`` is not what `rebase` returned, or ``ax`` no matplotlib axes.

    References
    ----------
    Xiao et al. (2023), arXiv:2401.00611: the number of transpositions.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, rebase
    >>> from numpyro_symmetry.diagnostics import plot_transpositions
    >>> loc = [0.0, 5.0] + np.random.default_rng(0).standard_normal((200, 2))
    >>> loc[100:] = loc[100:, ::-1]
    >>> axes = plot_transpositions(rebase({"loc": loc}, Symmetry.mixture("loc")))
    >>> np.flatnonzero(axes.lines[0].get_ydata()).tolist()
    [99]
    """
    as_rebased(out, "plot_transpositions(out)")
    axes = as_axes(ax, figsize=(7, 3))
    group = one_part(group, out.view.owners, f"group={group!r}")
    one, steps = out.view.symmetry.groups[group], transpositions(out)[group]
    if not steps.size:
        raise SymmetryError(
            f"There is one draw in each of {math.prod(steps.shape[:-1])} chain(s), and no step from one to the next: "
            "nothing to plot. If these are draws of one chain, say so: rebase(..., num_leading_dims=1)."
        )
    n = math.prod(one.cells) * one.degree
    chains = steps.reshape(-1, steps.shape[-1])
    draws, window = np.arange(1, chains.shape[1] + 1), chains.shape[1] // _RUNNING
    is_long = window >= _SHORTEST_WINDOW
    for k, chain in enumerate(chains):
        axes.plot(draws, chain, lw=0.7, color=f"C{k}", alpha=0.4 if is_long else 1.0, label=f"chain {k}")
    for k, chain in enumerate(chains if is_long else ()):
        running = np.convolve(chain, np.ones(window) / window, "valid")
        axes.plot(draws[window // 2 :][: len(running)], running, lw=1.5, color=f"C{k}")
    axes.axhline(at_random(one), color="grey", ls=":", label="random labels")
    axes.set(xlabel="draw", ylabel=f"transpositions of {group!r}", ylim=(-0.05 * n, n))
    axes.locator_params(axis="y", integer=True)
    legend = axes.legend(
        title="steps, running means" if is_long else None, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0)
    )
    for handle in filter(None, legend.legend_handles):
        handle.set_alpha(1.0)
    return axes


def plot_null(out: Rebased, *, ax: Axes | None = None) -> Axes:
    r"""Plot how far each slot is from its nearest other, in descending order, beside slots without identity.

    .. math:: d_i = \min_{j \ne i} \Big[\sum_x \frac{(\mu_{ix} - \mu_{jx})^2}
              {(\sigma_{ix}^2 + \sigma_{jx}^2) / 2}\Big]^{1/2}

    over all numbers :math:`x` that describe a slot, with means and standard deviations over relabelled draws.

    Parameters
    ----------
    out
        What `rebase` returned, with its null.
    ax
        Matplotlib axes; made if not given.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. Slots no further apart than the null's are the relabelling's own doing.

    Raises
    ------
    SymmetryError
        If there is no null.
    TypeError
        If ``out`` is not what `rebase` returned, or ``ax`` no matplotlib axes.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, rebase
    >>> from numpyro_symmetry.diagnostics import plot_null
    >>> rng = np.random.default_rng(0)
    >>> raw = {"loc": rng.permuted([0.0, 5.0] + rng.standard_normal((200, 2)), axis=1)}
    >>> slots, null = plot_null(rebase(raw, Symmetry.mixture("loc"))).lines
    >>> bool(slots.get_ydata().min() > 2 * null.get_ydata().max())
    True
    """
    as_rebased(out, "plot_null(out)")
    if out.null is None:
        raise SymmetryError("There is no null to plot: call rebase with null=True.")
    axes = as_axes(ax, figsize=(6, 3.5))
    for k, (name, slots) in enumerate(out.null.separation.items()):
        rank = np.arange(1, len(slots) + 1)
        axes.plot(rank, np.sort(slots)[::-1], "o-", ms=4, color=f"C{k}", label=f"{name}")
        axes.plot(rank, out.null.separation_null[name], "o:", ms=3, color=f"C{k}", alpha=0.5, label=f"{name}, null")
    axes.set(xlabel="slot, by rank", ylabel="distance to the nearest (sd)", ylim=(0.0, None))
    axes.locator_params(axis="x", integer=True)
    axes.legend(frameon=False)
    return axes
