"""Permutation symmetry of NumPyro posteriors: use it in a guide, check it against a model, bound its entropy."""

from importlib import import_module
from typing import TYPE_CHECKING

from numpyro_symmetry.symmetry import (
    Concat,
    Group,
    SignedPermutation,
    Split,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    Unsigned,
    UnsupportedGuideError,
    Whole,
    compose,
    inverse,
    num_transpositions,
)

if TYPE_CHECKING:
    from numpyro_symmetry.diagnostics import (
        LogEvidence,
        LossBarrier,
        Report,
        agreement,
        log_evidence,
        loss_barrier,
        plot_barrier,
        plot_null,
        plot_relabelling,
        plot_transpositions,
        report,
        to_arviz,
        total_variation,
    )
    from numpyro_symmetry.discovery import (
        SymmetryCheck,
        check_symmetry,
        find_symmetry,
    )
    from numpyro_symmetry.entropy import (
        log_permanent,
        mutual_information,
    )
    from numpyro_symmetry.guides import (
        AutoConditional,
        AutoSymmetrized,
        AutoUnitNormal,
        ElboBounds,
    )
    from numpyro_symmetry.matching import (
        ActivationCost,
        DiagonalGaussian,
        FullGaussian,
        Match,
        NearestTransposition,
        match,
        nearest_transposition,
    )
    from numpyro_symmetry.samplers import (
        run_blackjax,
    )
    from numpyro_symmetry.traces import (
        AllocationCost,
        EuclideanCost,
        GaussianCost,
        Null,
        Rebased,
        StephensCost,
        prune,
        rebase,
        varimax,
    )

__version__ = "0.1.0"

# the upper layers are imported on first use, so that importing the package costs little more than importing numpyro
_UPPER_LAYERS = {
    "LogEvidence": "diagnostics",
    "LossBarrier": "diagnostics",
    "Report": "diagnostics",
    "agreement": "diagnostics",
    "log_evidence": "diagnostics",
    "loss_barrier": "diagnostics",
    "plot_barrier": "diagnostics",
    "plot_null": "diagnostics",
    "plot_relabelling": "diagnostics",
    "plot_transpositions": "diagnostics",
    "report": "diagnostics",
    "to_arviz": "diagnostics",
    "total_variation": "diagnostics",
    "SymmetryCheck": "discovery",
    "check_symmetry": "discovery",
    "find_symmetry": "discovery",
    "log_permanent": "entropy",
    "mutual_information": "entropy",
    "AutoConditional": "guides",
    "AutoSymmetrized": "guides",
    "AutoUnitNormal": "guides",
    "ElboBounds": "guides",
    "ActivationCost": "matching",
    "DiagonalGaussian": "matching",
    "FullGaussian": "matching",
    "Match": "matching",
    "NearestTransposition": "matching",
    "match": "matching",
    "nearest_transposition": "matching",
    "run_blackjax": "samplers",
    "AllocationCost": "traces",
    "EuclideanCost": "traces",
    "GaussianCost": "traces",
    "Null": "traces",
    "Rebased": "traces",
    "StephensCost": "traces",
    "prune": "traces",
    "rebase": "traces",
    "varimax": "traces",
}

# subpackages that are attributes without being imported by name
_SUBPACKAGES = {*_UPPER_LAYERS.values(), "testing"}

__all__ = [
    "ActivationCost",
    "AllocationCost",
    "AutoConditional",
    "AutoSymmetrized",
    "AutoUnitNormal",
    "Concat",
    "DiagonalGaussian",
    "EuclideanCost",
    "ElboBounds",
    "FullGaussian",
    "GaussianCost",
    "Group",
    "LogEvidence",
    "LossBarrier",
    "Match",
    "NearestTransposition",
    "Null",
    "Rebased",
    "Report",
    "SignedPermutation",
    "Split",
    "StephensCost",
    "Symmetry",
    "SymmetryCheck",
    "SymmetryError",
    "SymmetryWarning",
    "Unsigned",
    "UnsupportedGuideError",
    "Whole",
    "agreement",
    "check_symmetry",
    "compose",
    "find_symmetry",
    "inverse",
    "log_evidence",
    "log_permanent",
    "loss_barrier",
    "match",
    "mutual_information",
    "nearest_transposition",
    "num_transpositions",
    "plot_barrier",
    "plot_null",
    "plot_relabelling",
    "plot_transpositions",
    "prune",
    "rebase",
    "report",
    "run_blackjax",
    "to_arviz",
    "total_variation",
    "varimax",
]


def __getattr__(name: str) -> object:
    if name in _UPPER_LAYERS:
        return getattr(import_module(f"{__name__}.{_UPPER_LAYERS[name]}"), name)
    if name in _SUBPACKAGES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
