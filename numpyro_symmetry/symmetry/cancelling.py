"""Elements whose signs cancel, so that they change nothing. Knows groups and where they stand; no values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import xor

import numpy as np

from numpyro_symmetry.symmetry.axes import AxisEntry
from numpyro_symmetry.symmetry.gf2 import basis_of
from numpyro_symmetry.symmetry.groups import Group
from numpyro_symmetry.symmetry.pieces import axes_of_pieces


def log_cancelling(groups: Mapping[str, Group], sites: Iterable[Sequence[AxisEntry]]) -> float:
    r"""Logarithm of the number of elements that leave every value as it is, nats.

    On an array on which groups stand along axes of their own, signs cancel only if those of each group are all alike,
    in each of its cells (of a group over which others are fibred: those of each index), and an even number of groups
    has them: linear equations over GF(2). The group that acts is smaller than :math:`|G|` by this factor.
    """
    signed = {name: group for name, group in groups.items() if group.signed}
    outer = {label for group in signed.values() for label in group.over}
    shape = {name: (*one.cells, one.degree if name in outer else 1) for name, one in signed.items()}
    every = ((name, index) for name, sizes in shape.items() for index in np.ndindex(sizes))
    unknown = {one: 1 << k for k, one in enumerate(every)}
    equations = set[int]()
    for axes in (axes for entries in sites for axes in axes_of_pieces(entries)):
        standing = [str(axis.group) for axis in axes if axis.signed and axis.group in signed]
        # along which axes the signs of each differ: a group that stands twice has two axes
        along = [(*signed[x].over, x if x not in standing[:k] else f"{x} {k}") for k, x in enumerate(standing)]
        sizes = {a: n for x, one in zip(standing, along, strict=True) for a, n in zip(one, shape[x], strict=True)}
        for index in np.ndindex(*sizes.values()):
            at = dict(zip(sizes, index, strict=True))
            terms = (unknown[x, tuple(at[a] for a in one)] for x, one in zip(standing, along, strict=True))
            equations.add(reduce(xor, terms, 0))
    return (len(unknown) - len(basis_of(sorted(equations)))) * math.log(2.0)
