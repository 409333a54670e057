"""Plots. Each draws on axes that are given or made, and returns them; none shows or saves anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpyro_symmetry.diagnostics.barrier import LossBarrier, in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pyplot() -> Any:
    """Matplotlib's ``pyplot``.

    Raises
    ------
    ImportError
        If matplotlib is not installed; the message says how to install it.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Plots take matplotlib, which is not installed: pip install 'numpyro-symmetry[plots]'."
        ) from error
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
    axes.set(xlabel="interpolation, from first (0) to second (1)", ylabel="loss (nats per datum)")
    # below the axes, where it hides no curve, if the layout makes room for it there
    figure = axes.get_figure(root=True)
    room = figure is not None and figure.get_layout_engine() is not None
    legend = axes.legend(frameon=False, alignment="left", loc="upper center" if room else "best")
    if room:
        legend.set_bbox_to_anchor((0.5, -0.18), transform=axes.transAxes)
    return axes
