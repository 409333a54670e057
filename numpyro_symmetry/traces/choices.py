"""Defaults: the cost, by the model's shape and the number of draws, and how many draws to start from.

Knows draws and symmetries; computes nothing.
"""

from __future__ import annotations

import math

from numpyro_symmetry.containers.trace import Arrays
from numpyro_symmetry.symmetry import Symmetry, SymmetryError
from numpyro_symmetry.symmetry.axes import names_in
from numpyro_symmetry.traces.costs import Cost, EuclideanCost, GaussianCost
from numpyro_symmetry.traces.rebased import Frame

# fewer draws than this say too little about variances
_MIN_DRAWS_FOR_GAUSSIAN, _DRAWS_PER_NUMBER = 20, 10
# starts are cheap where labels are few
_MANY_STARTS, _SMALL = 5, 32


def chosen_cost(cost: Cost | str, plain: Symmetry, draws: Arrays, frame: Frame | None) -> Cost:
    """The cost that is given, or for ``"auto"`` the reference's, or what suits the model and the number of draws."""
    if isinstance(cost, str):
        if frame is not None:
            if not frame.read:
                raise SymmetryError(
                    f"The reference was relabelled by {type(frame.cost).__name__}, which holds its own draws' data: "
                    "pass a cost of the same kind for these draws."
                )
            return frame.cost
        coupled = any(len(names_in(entries)) > 1 for entries in plain.axes.values())
        num_draws = len(next(iter(draws.values())))
        # variances of every number of a slot need many draws, or the search never leaves its first labels
        few = num_draws < max(_MIN_DRAWS_FOR_GAUSSIAN, _DRAWS_PER_NUMBER * _numbers_in_a_slot(draws, plain))
        return EuclideanCost() if coupled or few else GaussianCost()
    if frame is not None and type(cost) is not type(frame.cost):
        raise SymmetryError(f"The reference was relabelled by {type(frame.cost).__name__}; got {type(cost).__name__}.")
    return cost


def _numbers_in_a_slot(draws: Arrays, plain: Symmetry) -> int:
    """How many numbers describe one slot of the group that has most."""

    def numbers(name: str) -> int:
        sizes = (math.prod(draws[site].shape[1:]) for site, entries in plain.axes.items() if name in names_in(entries))
        num_slots = plain.sizes[name] * math.prod(plain.groups[name].cells)
        return sum(size // num_slots for size in sizes)

    return max(map(numbers, plain.groups), default=0)


def chosen_starts(bound: Symmetry) -> int:
    """How many draws to start from."""
    return _MANY_STARTS if sum(group.degree for group in bound.groups.values()) <= _SMALL else 1
