r"""The product of Gaussians up to labels: natural parameters, what a labelling weighs, and the labels that weigh most.

With natural parameters :math:`\eta = (\Sigma^{-1}\mu, \Sigma^{-1})` a product weighs, up to what no label changes,

.. math:: Z(h) = \int \prod_k q_k(h_k^{-1}\theta)\,d\theta = \exp A\big(\textstyle\sum_k h_k\eta_k\big),
          \qquad A = \tfrac12\mu^\top\Sigma^{-1}\mu - \tfrac12\log|\Sigma^{-1}|.

Knows Gaussians and elements; no other labellings than one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from numpyro_symmetry.assignment.linear import assign
from numpyro_symmetry.matching.full_gaussian import FullGaussian
from numpyro_symmetry.matching.gaussian import DiagonalGaussian
from numpyro_symmetry.matching.gaussian_inputs import order_of, ravel, unravel
from numpyro_symmetry.symmetry import Element, Hard, PlainView, Symmetry, SymmetryError, compose

Gaussian = DiagonalGaussian | FullGaussian
_MOST_ROUNDS, _ROUNDING = 50, 1e-9
# what a direction without positive precision adds to a log weight
_NOTHING = -1e12


class NaturalGaussian(NamedTuple):
    """Natural parameters over ravelled sites: ``(..., D)``, and a precision ``(..., D)`` or ``(..., D, D)``."""

    first: np.ndarray
    precision: np.ndarray

    @staticmethod
    def of(gaussian: Gaussian) -> NaturalGaussian:
        """Natural parameters of a Gaussian, whose standard deviations have to be positive."""
        loc = ravel(gaussian.loc)
        if isinstance(gaussian, FullGaussian):
            precision = np.linalg.inv(np.asarray(gaussian.covariance, float))
            return NaturalGaussian(precision @ loc, 0.5 * (precision + precision.T))
        precision = ravel(gaussian.scale) ** -2.0
        return NaturalGaussian(precision * loc, precision)

    def plus(self, other: NaturalGaussian, times: float = 1.0) -> NaturalGaussian:
        """Natural parameters of the product with another Gaussian to the power ``times``."""
        return NaturalGaussian(self.first + times * other.first, self.precision + times * other.precision)

    def moved(self, order: np.ndarray, sign: np.ndarray) -> NaturalGaussian:
        """Natural parameters moved by elements, given as ``order`` and ``sign``, ``(..., D)`` each: see `order_of`."""
        first = self.first[order] * sign
        if self.precision.ndim == 1:
            return NaturalGaussian(first, self.precision[order])
        precision = self.precision[order[..., :, None], order[..., None, :]]
        return NaturalGaussian(first, precision * sign[..., :, None] * sign[..., None, :])

    def log_partition(self, of_nothing: float = -np.inf) -> np.ndarray:
        """``(...)``: A of the natural parameters; a direction without positive precision adds ``of_nothing``."""
        if self.precision.shape == self.first.shape:
            return _log_weight(self.first, self.precision, of_nothing)
        values, vectors = np.linalg.eigh(self.precision)
        return _log_weight((vectors * self.first[..., :, None]).sum(-2), values, of_nothing)

    def gaussian(self, like: Gaussian) -> Gaussian:
        """The Gaussian of these natural parameters, of the kind and with the sites of ``like``.

        Raises
        ------
        SymmetryError
            If the precision is not positive.
        """
        if not np.isfinite(self.log_partition()):
            raise SymmetryError(
                "The product is no Gaussian: with the prior divided out, its precision is not positive everywhere. "
                "Expected posteriors that are nowhere wider than prior=; if members had the prior to the power 1/K, "
                "leave prior out."
            )
        if isinstance(like, FullGaussian):
            covariance = np.linalg.inv(self.precision)
            return FullGaussian(unravel(covariance @ self.first, like.loc), 0.5 * (covariance + covariance.T))
        loc, scale = self.first / self.precision, self.precision**-0.5
        return DiagonalGaussian(unravel(loc, like.loc), unravel(scale, like.loc))


class Tables:
    """Tables of the log weights of labellings in which one group of one member moves, to choose or draw labels from."""

    def __init__(self, members: Sequence[Gaussian], rest: NaturalGaussian, symmetry: Symmetry) -> None:
        self.symmetry: Symmetry = symmetry
        self.loc: dict[str, Any] = members[0].loc
        self.naturals: list[NaturalGaussian] = [NaturalGaussian.of(member) for member in members]
        self.all: NaturalGaussian = reduce(NaturalGaussian.plus, self.naturals[1:], rest)
        self.view: PlainView = PlainView.of(symmetry, {site: np.asarray(x) for site, x in self.loc.items()})
        self.groups = self.view.symmetry.groups
        self.opened = {piece: self.view.symmetry.opened(piece) for piece in self.view.symmetry.axes}
        # tables are without correlations
        self.is_diagonal: bool = not isinstance(members[0], FullGaussian)
        own = (member.diagonal() if isinstance(member, FullGaussian) else member for member in members)
        self.own: list[NaturalGaussian] = (
            self.naturals if self.is_diagonal else [NaturalGaussian.of(member) for member in own]
        )
        self.own_total: NaturalGaussian = self.all if self.is_diagonal else reduce(NaturalGaussian.plus, self.own)

    def still(self) -> dict[str, Hard]:
        """Group -> the identity: the state in which no unit is moved."""
        return {name: group.identity() for name, group in self.groups.items()}

    def element(self, state: dict[str, Hard]) -> Element:
        """A state as an element of the symmetry."""
        return self.view.element({name: part.part() for name, part in state.items()}, self.symmetry)

    def order(self, state: dict[str, Hard]) -> tuple[np.ndarray, np.ndarray]:
        """How a state, or each of a batch of states, moves ravelled sites: see `order_of`."""
        return order_of(self.symmetry, self.element(state), self.loc)

    def separate(self) -> list[str]:
        """Groups that stand on no piece twice: for all others a table is no more than a proposal."""
        twice = {
            name
            for axes in self.opened.values()
            for name in self.groups
            if sum(axis.group == name for axis in axes) > 1
        }
        return [name for name in self.groups if name not in twice]

    def are_coupled(self) -> bool:
        """Whether two groups, or one group twice, stand on the same piece."""
        return any(sum(axis.group is not None for axis in axes) > 1 for axes in self.opened.values())

    def table(
        self, k: int, name: str, state: dict[str, Hard], total: NaturalGaussian
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """``[i, j]``: the log weight of slot i with unit j of member k there, as it is and with its sign changed.

        Groups that ``state`` does not hold keep their labels. A batch ``(draw,)`` of states and totals has as many
        tables, or one that all share.
        """
        group, own = self.groups[name], self.own[k]
        size = group.degree
        found = [np.zeros((size, size)) for _ in range(2 if group.signed else 1)]
        others, mine = self._pieces(total.plus(own, -1.0)), self._pieces(own)
        for piece, axes in self.opened.items():
            at = [position - len(axes) for position, axis in enumerate(axes) if axis.group == name]
            if len(at) != 1:
                continue
            num_axes = mine[0][piece].ndim
            first, precision = (
                _along(_moved(x[piece], axes, state, name, signs=signs), at[0], num_axes)
                for x, signs in zip(mine, (True, False), strict=True)
            )
            there = [_along(x[piece], at[0], num_axes) for x in others]
            for turned, table in enumerate(found):
                flip = -1.0 if turned and axes[at[0]].signed else 1.0
                rows = [
                    _log_weight(there[0][..., i, None, :] + flip * first, there[1][..., i, None, :] + precision)
                    for i in range(size)
                ]
                found[turned] = table + np.stack(rows, -2)
        return found[0], found[1] if group.signed else None

    def _pieces(self, natural: NaturalGaussian) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        first, precision = (unravel(x, self.loc) for x in natural)
        return self.view.open(first), self.view.open(precision, common=True)


def rest_of(members: Sequence[Gaussian], prior: NaturalGaussian | None) -> NaturalGaussian:
    """Natural parameters of the first member, less those of the copies of the prior that are divided out."""
    first = NaturalGaussian.of(members[0])
    return first if prior is None else first.plus(prior, 1.0 - len(members))


def raised(members: Sequence[Gaussian], symmetry: Symmetry, prior: NaturalGaussian | None) -> list[Element]:
    """An element for each member that raises the product's weight: group by group the best labels given all others."""
    elements, moved = [symmetry.identity() for _ in members], list(members)

    def weight(gaussians: Sequence[Gaussian]) -> float:
        # finite, so that labels whose product is no Gaussian can be left for others step by step
        rest = rest_of(gaussians, prior)
        return float(reduce(NaturalGaussian.plus, map(NaturalGaussian.of, gaussians[1:]), rest).log_partition(_NOTHING))

    best, gained = weight(moved), len(members) > 1 and bool(symmetry.groups)
    for _ in range(_MOST_ROUNDS):
        if not gained:
            break
        gained = False
        for k in range(len(members)):
            tables = Tables(moved, rest_of(moved, prior), symmetry)
            state = tables.still()
            for name in tables.separate():
                plus, minus = tables.table(k, name, state, tables.own_total)
                chosen = assign(plus if minus is None else np.maximum(plus, minus))
                at = np.arange(len(chosen)), chosen
                state |= {name: Hard(chosen, None if minus is None else np.where(minus[at] > plus[at], -1, 1))}
            step = tables.element(state)
            tried = moved[k].apply(symmetry, step)
            if (reached := weight([*moved[:k], tried, *moved[k + 1 :]])) > best + _ROUNDING * (1.0 + abs(best)):
                elements[k], moved[k] = compose(step, elements[k]), tried
                best, gained = reached, True
    return elements


def _moved(x: np.ndarray, axes: Any, state: dict[str, Hard], but: str, *, signs: bool) -> np.ndarray:
    """A piece with every group except ``but`` moved as in a state, or as in each of a batch of states."""
    num_axes = x.ndim
    for position, axis in enumerate(axes, -len(axes)):
        if axis.group in state and axis.group != but:
            part = state[axis.group]
            # broadcast over all axes of the piece but this one
            at = part.each(lambda y, p=position: np.expand_dims(y, tuple(k for k in range(-num_axes, 0) if k != p)))
            x = np.take_along_axis(x.reshape((1,) * (at.permutation.ndim - x.ndim) + x.shape), at.permutation, position)
            x = x * at.sign if signs and axis.signed and at.sign is not None else x
    return x


def _along(x: np.ndarray, axis: int, num_axes: int) -> np.ndarray:
    """``(*draws, n, rest)`` of a piece ``(*draws, *shape)``: of its ``num_axes`` axes this one first, the rest flat."""
    leading = x.shape[: x.ndim - num_axes]
    return np.moveaxis(x, axis, len(leading)).reshape(*leading, x.shape[axis], -1)


def _log_weight(first: np.ndarray, precision: np.ndarray, of_nothing: float = _NOTHING) -> np.ndarray:
    """Log weight of independent entries with these natural parameters, summed over the last axis."""
    positive = precision > 0
    precision = np.where(positive, precision, 1.0)
    return np.where(positive, 0.5 * (first**2 / precision - np.log(precision)), of_nothing).sum(-1)
