"""Plots. Each draws on axes that are given or made, and returns them; none shows or saves anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from numpyro_symmetry.diagnostics.barrier import LossBarrier, in_words, is_in_nats
from numpyro_symmetry.diagnostics.comparison import Comparison, entry_name
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.errors import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# entries of a comparison that are named, and where beside their points; what is read off a log evidence
_MAX_NAMED = 12
_BESIDE = tuple((x, y) for x in (1, -1, 0) for y in (1, -1, 0) if (x, y) != (0, 0))
_READ = ("value", "error", "lower", "upper")


def pyplot() -> Any:
    """Matplotlib's ``pyplot``.

    Raises
    ------
    ImportError
        If matplotlib is not installed; the message says how to install it.
    """
    need("matplotlib", of="Plots", extra="plots")
    import matplotlib.pyplot as plt

    return plt


def as_axes(axes: Any, name: str = "ax", figsize: tuple[float, float] | None = None) -> Axes:
    """Matplotlib axes as given, or new ones if none are, without the upper and right sides of their frame.

    Raises
    ------
    TypeError
        If ``axes`` is anything else: a figure, say, or an array of axes.
    """
    plt = pyplot()
    if axes is None:
        # makes space for legends beside or below
        axes = plt.figure(figsize=figsize, layout="constrained").add_subplot()
    if not isinstance(axes, plt.Axes):
        raise TypeError(
            f"{name} must be matplotlib axes, such as plt.subplots()[1]; got {type(axes).__module__.split('.')[0]}'s "
            f"{type(axes).__name__}."
        )
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def plot_barrier(barriers: LossBarrier | Mapping[str, LossBarrier], *, ax: Axes | None = None) -> Axes:
    """Plot losses along paths, with two Monte Carlo standard errors and the chords they are compared with.

    Parameters
    ----------
    barriers
        What `loss_barrier` returned; or several such, by name.
    ax
        Matplotlib axes to draw on; made if not given.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    TypeError
        If a barrier is not what `loss_barrier` returned.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import loss_barrier
    >>> from numpyro_symmetry.diagnostics import plot_barrier
    >>> def loss(values):
    ...     return values["w"][None] ** 2
    >>> axes = plot_barrier(loss_barrier(loss, {"w": jnp.array(-1.0)}, {"w": jnp.array(1.0)}))
    >>> axes.get_xlabel()
    'interpolation, from first (0) to second (1)'
    """
    named: Mapping[Any, LossBarrier] = {None: barriers} if isinstance(barriers, LossBarrier) else barriers
    if not isinstance(named, Mapping) or not named or not all(isinstance(x, LossBarrier) for x in named.values()):
        raise TypeError(
            "plot_barrier expects what loss_barrier returned, or a mapping from names to several of them; got "
            f"{type(barriers).__name__}."
        )
    axes = as_axes(ax)
    for name, barrier in named.items():
        label = f"{'' if name is None else f'{name}: '}barrier {in_words(barrier)}"
        (line,) = axes.plot(barrier.t, barrier.loss, "o-", ms=3, label=label)
        low, high = (barrier.loss + side * 2.0 * barrier.excess_error for side in (-1, 1))
        axes.fill_between(barrier.t, low, high, color=line.get_color(), alpha=0.25, lw=0)
        axes.plot(barrier.t[[0, -1]], barrier.loss[[0, -1]], ":", color=line.get_color(), lw=1)
    axes.plot([], [], ":", color="grey", lw=1, label="chord between the ends")
    are_drawn = any(barrier.excess_error.any() for barrier in named.values())
    unit = "nats " * all(map(is_in_nats, named.values()))
    axes.set(xlabel="interpolation, from first (0) to second (1)", ylabel=f"loss ({unit}per datum)")
    # below the axes, where it hides no curve, if the layout makes room for it there
    figure = axes.get_figure(root=True)
    room = figure is not None and figure.get_layout_engine() is not None
    legend = axes.legend(
        title="bands: ± 2 standard errors" if are_drawn else None,
        frameon=False,
        alignment="left",
        loc="upper center" if room else "best",
    )
    if room:
        legend.set_bbox_to_anchor((0.5, -0.18), transform=axes.transAxes)
    return axes


def plot_comparison(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Plot by how much each entry's mean and spread differ between two posteriors, a colour for each site.

    Entries that differ by more than chance among so many are filled, and the surest named where names have room.

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
    ax.set_yscale("log")
    _pad(ax, shift, ratio)
    ax.set(xlabel=f"difference of means ({a} − {b}, in sd)", ylabel=f"ratio of spreads ({a} / {b})")
    ax.set_title(
        f"{comparison.verdict}: effect {comparison.effect:.3f}, noise floor {comparison.floor:.3f}", fontsize=10
    )
    differ = "filled:\nthey differ" if differs.any() else None
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), title=differ, alignment="left")
    named = np.flatnonzero(differs)[:_MAX_NAMED]
    _name(ax, [entry_name(table.iloc[k]) for k in named], np.stack([shift, ratio], 1), named)
    return ax


def _name(ax: Any, names: list[str], points: np.ndarray, of: np.ndarray) -> None:
    """Names beside their points, each at the first place where it covers no point, name or key, if there is one."""
    ax.get_figure(root=True).draw_without_rendering()  # layouts move axes, and with them what covers what
    taken, boxes = ax.transData.transform(points), []
    for name, k in zip(names, of, strict=True):
        for x, y in _BESIDE:
            align = {"ha": ("center", "left", "right")[x], "va": ("center", "bottom", "top")[y]}
            text = ax.annotate(name, points[k], (5 * x, 5 * y), textcoords="offset points", fontsize=8, **align)
            box = text.get_window_extent().padded(3)
            if not (box.count_contains(taken) or box.count_overlaps(boxes) or ax.bbox.x1 < box.x1):
                boxes.append(box)
                break
            text.remove()


def _pad(ax: Any, shift: np.ndarray, ratio: np.ndarray) -> None:
    """Limits around the point of no difference, so that small differences look small."""
    across, up = max(0.5, 1.15 * np.abs(shift).max()), max(np.log(1.5), 1.15 * np.abs(np.log(ratio)).max())
    ax.set(xlim=(-across, across), ylim=(np.exp(-up), np.exp(up)))
    ticks = [tick for tick in (0.1, 0.2, 0.33, 0.5, 0.67, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0) if abs(np.log(tick)) <= up]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()


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
    look = {"fmt": "o-" if are_numbers else "o", "ms": 4, "color": "C0", "capsize": 3}
    ax.errorbar(at, value, 2.0 * np.nan_to_num(error), label="estimate, ± 2 standard errors", **look)
    ax.set(ylabel="log evidence (nats)", xticks=at)
    ax.set_xticklabels([str(name) for name in names])
    ax.legend(frameon=False)
    return ax
