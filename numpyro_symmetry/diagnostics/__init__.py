"""Reports on what symmetry did: loss barriers and their plots."""

from numpyro_symmetry.diagnostics.barrier import LossBarrier, loss_barrier
from numpyro_symmetry.diagnostics.plots import plot_barrier

__all__ = ["LossBarrier", "loss_barrier", "plot_barrier"]
