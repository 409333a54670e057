"""Reports on what symmetry did: labels, agreement, barriers and predictions, as tables and plots."""

from numpyro_symmetry.diagnostics.barrier import LossBarrier, loss_barrier
from numpyro_symmetry.diagnostics.compare import compare, compare_pairs
from numpyro_symmetry.diagnostics.comparison import Comparison, Comparisons, PriorConformity
from numpyro_symmetry.diagnostics.conformity import prior_conformity
from numpyro_symmetry.diagnostics.modes import Modes, modes
from numpyro_symmetry.diagnostics.nested_r_hat import nested_r_hat
from numpyro_symmetry.diagnostics.partitions import Partition, coclustering, point_partition
from numpyro_symmetry.diagnostics.plots import plot_barrier, plot_comparison, plot_evidence
from numpyro_symmetry.diagnostics.predictive import agreement, total_variation
from numpyro_symmetry.diagnostics.report import Report, report
from numpyro_symmetry.diagnostics.soft_labels import SoftLabels, distinct_units, soft_labels
from numpyro_symmetry.diagnostics.trace_plots import plot_null, plot_relabelling, plot_transpositions

__all__ = [
    "Comparison",
    "Comparisons",
    "LossBarrier",
    "Modes",
    "Partition",
    "PriorConformity",
    "Report",
    "SoftLabels",
    "agreement",
    "coclustering",
    "compare",
    "compare_pairs",
    "distinct_units",
    "loss_barrier",
    "modes",
    "nested_r_hat",
    "plot_barrier",
    "plot_comparison",
    "plot_evidence",
    "plot_null",
    "plot_relabelling",
    "plot_transpositions",
    "point_partition",
    "prior_conformity",
    "report",
    "soft_labels",
    "total_variation",
]
