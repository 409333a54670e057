"""Permutation symmetry of NumPyro posteriors: use it in a guide, check it against a model, bound its entropy."""

from importlib import import_module
from typing import TYPE_CHECKING

from numpyro_symmetry.symmetry import (
    Group,
    SignedPermutation,
    Split,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    Unsigned,
    UnsupportedGuideError,
    compose,
    inverse,
    num_transpositions,
)

if TYPE_CHECKING:
    from numpyro_symmetry.diagnostics import LossBarrier, loss_barrier, plot_barrier
    from numpyro_symmetry.discovery import SymmetryCheck, check_symmetry
    from numpyro_symmetry.entropy import log_permanent, mutual_information
    from numpyro_symmetry.guides import AutoSymmetrized, EvidenceBounds
    from numpyro_symmetry.matching import (
        ActivationCost,
        DiagonalGaussian,
        FullGaussian,
        Match,
        NearestTransposition,
        match,
        nearest_transposition,
    )

__version__ = "0.1.0"

# the upper floors are imported on first use, so that importing the package costs little more than importing numpyro
_UPPER_FLOORS = {
    "ActivationCost": "matching",
    "DiagonalGaussian": "matching",
    "FullGaussian": "matching",
    "Match": "matching",
    "LossBarrier": "diagnostics",
    "NearestTransposition": "matching",
    "loss_barrier": "diagnostics",
    "match": "matching",
    "nearest_transposition": "matching",
    "plot_barrier": "diagnostics",
    "AutoSymmetrized": "guides",
    "EvidenceBounds": "guides",
    "SymmetryCheck": "discovery",
    "check_symmetry": "discovery",
    "log_permanent": "entropy",
    "mutual_information": "entropy",
}

__all__ = [
    "ActivationCost",
    "AutoSymmetrized",
    "DiagonalGaussian",
    "EvidenceBounds",
    "FullGaussian",
    "Group",
    "LossBarrier",
    "Match",
    "NearestTransposition",
    "SignedPermutation",
    "Split",
    "Symmetry",
    "SymmetryCheck",
    "SymmetryError",
    "SymmetryWarning",
    "Unsigned",
    "UnsupportedGuideError",
    "check_symmetry",
    "compose",
    "inverse",
    "log_permanent",
    "loss_barrier",
    "match",
    "mutual_information",
    "nearest_transposition",
    "num_transpositions",
    "plot_barrier",
]


def __getattr__(name: str) -> object:
    if name in _UPPER_FLOORS:
        return getattr(import_module(f"{__name__}.{_UPPER_FLOORS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
