"""Many draws into one basin: `rebase`, relabelling costs and their nulls."""

from numpyro_symmetry.traces.compact import prune
from numpyro_symmetry.traces.costs import AllocationCost, EuclideanCost, GaussianCost, StephensCost
from numpyro_symmetry.traces.factors import varimax
from numpyro_symmetry.traces.null import CannotTell, Explained, Null
from numpyro_symmetry.traces.rebase import rebase
from numpyro_symmetry.traces.rebased import Rebased

__all__ = [
    "AllocationCost",
    "CannotTell",
    "EuclideanCost",
    "Explained",
    "GaussianCost",
    "Null",
    "Rebased",
    "StephensCost",
    "prune",
    "rebase",
    "varimax",
]
