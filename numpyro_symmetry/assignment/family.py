r"""Exponential families over draws, :math:`\langle\eta, g\cdot T(\theta)\rangle - A(\eta) + h(\theta)`.

What `match` and `rebase` maximise: over :math:`g` one bilinear problem a draw, and over :math:`\eta` a function of
nothing but the relabelled draws' mean statistics. `match` holds :math:`\eta` at the target's. A cost says which family.
Knows no costs and no containers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from numpyro_symmetry.assignment.passes import Stored, StoredSubject, held, map_reduce, stored_subject
from numpyro_symmetry.assignment.problem import Problem, Term, move
from numpyro_symmetry.chunks import slices
from numpyro_symmetry.symmetry import Axis, Group, Hard, PlainView, Symmetry

Arrays = dict[str, np.ndarray]
# of a statistic: a site, and which of its moments
Name = tuple[str, str]
# name -> array; an inner product is over the names that both sides hold
Statistics = dict[Name, np.ndarray]
# natural parameters, and their log-partition
Natural = tuple[Statistics, float]
Items = slice | np.ndarray
State = dict[str, Hard]

TRANSFORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"identity": lambda x: x, "log": np.log}


class Coordinate(NamedTuple):
    """How a site, or a piece of it, is read: by a transform's name, then centre and scale over its opened shape."""

    site: str
    transform: str
    center: np.ndarray
    scale: np.ndarray
    axes: tuple[Axis, ...]
    shape: tuple[int, ...]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """``(draw, *opened shape)``, float64, and in C order, for sums depend on the order in memory."""
        read = TRANSFORMS[self.transform](values.reshape(len(values), *self.shape).astype(float, order="C"))
        # in place, for this is a copy
        return np.divide(np.subtract(read, self.center, out=read), self.scale, out=read)


class Side(NamedTuple):
    """Points, or Gaussians where there are standard deviations.

    Attributes
    ----------
    loc, scale
        Site -> values or means, and standard deviations if there are any. A batch is flat: ``(draw, *event)``.
    weights
        Site -> by how much it counts, where that is not one.
    leading
        The leading dimensions in which a batch came.
    view
        The view that cut sites into pieces, where arrays are pieces of sites.
    """

    loc: Arrays
    scale: Arrays | None = None
    weights: Mapping[str, float] = {}
    leading: tuple[int, ...] = ()
    view: PlainView | None = None

    @staticmethod
    def of_pieces(pieces: Arrays, leading: tuple[int, ...], view: PlainView) -> Side:
        """Draws by piece, those pieces alone on which the view's groups act."""
        return Side({name: pieces[name] for name in view.symmetry.axes}, leading=leading, view=view)

    @property
    def num_draws(self) -> int:
        """Number of draws in a batch."""
        return math.prod(self.leading)

    @property
    def stored(self) -> StoredSubject | None:
        """Where a stored batch is read from, and how a side is made of it; ``None`` for a batch in memory."""
        sources = (x.source for x in self.loc.values() if isinstance(x, Stored))
        source, alike = next(sources, None), self._replace(loc={})
        return (
            None if source is None else StoredSubject(source.only(self.loc), lambda arrays: alike._replace(loc=arrays))
        )

    def without(self, sites: Collection[str]) -> Side:
        """The side without these sites, or as it is if none would be left."""
        left = [site for site in self.loc if site not in sites] or list(self.loc)
        return self._replace(
            loc={site: self.loc[site] for site in left}, scale=self.scale and {site: self.scale[site] for site in left}
        )


class Family(NamedTuple):
    r"""An exponential family over draws.

    Attributes
    ----------
    statistics
        Which draws -> statistics, each ``(draw, *shape)``.
    axes
        For each statistic one entry for each axis of its shape.
    natural
        Mean statistics, ``(*shape)`` each, -> natural parameters of largest likelihood and their log-partition.
    point
        Index of a draw -> the natural parameters and log-partition of that draw alone: what `match` compares with, and
        where relabelling starts.
    carrier
        Statistics, or some of them, -> ``(draw,)``: their share of the log-likelihood's part that no label changes.
    num_draws
        How many draws there are.
    in_nats
        Whether it is a log-likelihood, and not a distance.
    coordinates
        Site -> how its values are read; empty where statistics are not read off the values of sites.
    stored
        Where stored draws are read from, and how their family is made once they are; ``None`` for draws in memory.
    """

    statistics: Callable[[Items], Statistics]
    axes: Mapping[Name, tuple[Axis, ...]]
    natural: Callable[[Statistics], Natural]
    point: Callable[[int], Natural]
    carrier: Callable[[Statistics], np.ndarray]
    num_draws: int
    in_nats: bool = False
    coordinates: Mapping[str, Coordinate] = {}
    stored: StoredSubject | None = None


@runtime_checkable
class Cost(Protocol):
    """What `match` and `rebase` maximise: anything with a method that makes a `Family` of a batch."""

    def family(self, source: Side, symmetry: Symmetry, read: Mapping[str, Coordinate] | None = None) -> Family:
        """The family over a batch on which a plain symmetry acts, in the coordinates ``read`` if the cost takes any."""
        ...


def is_cost(cost: object) -> bool:
    """Whether something is a cost, and not the class of one."""
    return isinstance(cost, Cost) and not isinstance(cost, type)


def family_of(cost: Cost, source: Side, symmetry: Symmetry, read: Mapping[str, Coordinate] | None = None) -> Family:
    """A cost's family over draws, in memory or stored."""
    family = cost.family(source, symmetry, read)
    if (stored := stored_subject(source)) is None:
        return family
    read = family.coordinates or read
    return family._replace(stored=stored._replace(make=lambda arrays: cost.family(stored.make(arrays), symmetry, read)))


# ---- two families ------------------------------------------------------------------------------------------------


def natural_of_draw(
    statistics: Callable[[Items], Statistics], natural: Callable[[Statistics], Natural], draw: int
) -> Natural:
    """Natural parameters and log-partition of one draw, whose statistics are taken for the mean."""
    return natural({name: x[0].astype(float) for name, x in statistics(np.array([draw])).items()})


def squares(
    statistics: Callable[[Items], Statistics],
    axes: Mapping[Name, tuple[Axis, ...]],
    num_draws: int,
    weights: Mapping[Name, float],
    coordinates: Mapping[str, Coordinate],
) -> Family:
    r"""The family of minus a weighted squared distance, :math:`-\sum_k w_k\lVert g\cdot T_k-\mu_k\rVert^2`."""

    def natural(means: Statistics) -> Natural:
        toward = {name: 2.0 * weights[name] * m for name, m in means.items()}
        return toward, 0.5 * sum(float(np.vdot(eta, means[name])) for name, eta in toward.items())

    def carrier(found: Statistics) -> np.ndarray:
        return -sum((weights[name] * _squared_norms(x) for name, x in found.items()), np.zeros(()))

    return Family(
        statistics,
        axes,
        natural,
        partial(natural_of_draw, statistics, natural),
        carrier,
        num_draws,
        coordinates=coordinates,
    )


def _squared_norms(x: np.ndarray) -> np.ndarray:
    rows = x.reshape(len(x), -1).astype(float, copy=False)
    # by BLAS, which is faster than einsum
    return (rows[:, None] @ rows[:, :, None])[:, 0, 0]


def gaussian(mean: Arrays, variance: Arrays, weights: Mapping[str, float] | None = None) -> Natural:
    r"""Independent Gaussians' parameters for the statistics :math:`x, x^2`; log-partition without :math:`\log 2\pi`."""
    weights = weights or dict.fromkeys(mean, 1.0)
    first = {(site, "first"): weights[site] * m / variance[site] for site, m in mean.items()}
    second = {(site, "second"): -0.5 * weights[site] / v for site, v in variance.items()}
    partition = (weights[s] * float((m * m / variance[s] + np.log(variance[s])).sum()) for s, m in mean.items())
    return first | second, 0.5 * sum(partition)


# ---- any family --------------------------------------------------------------------------------------------------


def acting_groups(family: Family, groups: dict[str, Group]) -> dict[str, Group]:
    """The groups on which a family's statistics depend."""
    named = {axis.group for axes in family.axes.values() for axis in axes}
    return {name: group for name, group in groups.items() if name in named}


def problem_of(
    family: Family, groups: dict[str, Group], natural: Statistics, items: Items
) -> tuple[Problem, Statistics]:
    """The problem of placing draws ``items`` on natural parameters, and the statistics of these draws."""
    found = family.statistics(items)
    terms = [
        Term(natural[name][None].astype(found[name].dtype, copy=False), found[name], axes)
        for name, axes in family.axes.items()
        if name in natural and any(axis.group is not None for axis in axes)
    ]
    return Problem(tuple(terms), groups), found


def blocks(family: Family, groups: dict[str, Group], chunk_size: int | None = None) -> list[slice]:
    """Slices of ``chunk_size`` draws, by default of as many as have statistics and tables within memory's bound."""
    if chunk_size is not None:
        return list(slices(family.num_draws, 1, chunk_size))
    sample = family
    if family.stored is not None:
        sample = family.stored.make(held(family.stored.source.blank(), slice(0, 1), family.num_draws))
    sizes = (math.prod(x.shape[1:]) for x in sample.statistics(slice(0, 1)).values())
    return list(slices(family.num_draws, sum(sizes) + sum(g.degree**2 for g in groups.values())))


def mean_statistics(family: Family, groups: dict[str, Group], state: State) -> Statistics:
    """Mean statistics of draws under given labels."""

    def moved(here: Family, items: slice) -> tuple[None, Statistics]:
        labels = {name: part.at(items) for name, part in state.items()}
        found = here.statistics(items)
        return None, {name: move(x, here.axes[name], labels).sum(0, dtype=float) for name, x in found.items()}

    _, totals = map_reduce(family, blocks(family, acting_groups(family, groups)), moved)
    return {name: np.asarray(total) / family.num_draws for name, total in totals.items()}


def objective_of(family: Family, groups: dict[str, Group], state: State) -> float:
    """Mean log-likelihood of a draw under given labels, at the natural parameters that make it largest."""
    means = mean_statistics(family, groups, state)
    natural, partition = family.natural(means)
    _, carrier = map_reduce(
        family,
        blocks(family, acting_groups(family, groups)),
        lambda here, items: (None, float(here.carrier(here.statistics(items)).sum())),
    )
    return (
        sum(float(np.vdot(eta, means[name])) for name, eta in natural.items()) - partition + carrier / family.num_draws
    )
