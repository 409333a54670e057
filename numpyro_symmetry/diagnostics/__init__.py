"""Reports on what symmetry did: labels, barriers and predictions, as tables and plots."""

from numpyro_symmetry.diagnostics.barrier import LossBarrier, loss_barrier
from numpyro_symmetry.diagnostics.guide_draws import to_arviz
from numpyro_symmetry.diagnostics.model_evidence import LogEvidence, log_evidence
from numpyro_symmetry.diagnostics.plots import plot_barrier
from numpyro_symmetry.diagnostics.predictive import agreement, total_variation
from numpyro_symmetry.diagnostics.report import Report, report
from numpyro_symmetry.diagnostics.trace_plots import plot_null, plot_relabelling, plot_transpositions

__all__ = [
    "LogEvidence",
    "LossBarrier",
    "Report",
    "agreement",
    "log_evidence",
    "loss_barrier",
    "plot_barrier",
    "plot_null",
    "plot_relabelling",
    "plot_transpositions",
    "report",
    "to_arviz",
    "total_variation",
]
