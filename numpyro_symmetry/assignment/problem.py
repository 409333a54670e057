r"""The objective all costs share, bilinear in target and moved source: :math:`\sum_t \langle R_t,\, gB_t\rangle`.

A batch of sources is matched at once. A group may stand on two axes of one term (transition matrices), in which case
the objective is quadratic in it; or be fibred over another group that moves, which then stands on the same term. Knows
terms, groups, how elements act on them and the best part of one group; no costs and no other algorithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from numpyro_symmetry.assignment.linear import assign
from numpyro_symmetry.chunks import BLOCK, slices
from numpyro_symmetry.symmetry import Axis, Group, Hard, Symmetry
from numpyro_symmetry.symmetry.action import each_by_its_own, gather_axis
from numpyro_symmetry.symmetry.axes import FREE
from numpyro_symmetry.symmetry.hard import fibred_over, inverted, members_at


class Term(NamedTuple):
    """One pair of arrays and the groups that act on the source's axes.

    Attributes
    ----------
    target
        ``(1, *shape)``, or ``(batch, *shape)`` for a target of each source's own.
    source
        ``(batch, *shape)``.
    axes
        One for each axis of ``shape``; ``signed`` only where a signed group's signs apply.
    """

    target: np.ndarray
    source: np.ndarray
    axes: tuple[Axis, ...]

    def at(self, items: np.ndarray) -> Term:
        """The term of these items of the batch."""
        return Term(self.target if len(self.target) == 1 else self.target[items], self.source[items], self.axes)


class Soft(NamedTuple):
    """Doubly stochastic matrices ``(..., n, n)`` on even axes, and on odd ones (where signs act) signed matrices."""

    even: Any
    odd: Any = None

    def along(self, axis: Axis) -> Any:
        """The matrices by which an axis is mixed."""
        return self.even if self.odd is None or not axis.signed else self.odd

    def toward(self, other: Soft, t: np.ndarray) -> Soft:
        """The matrices a share ``t`` of the way to another's."""
        t = t[:, None, None].astype(self.even.dtype)
        even = self.even + t * (other.even - self.even)
        return Soft(even, None if self.odd is None or other.odd is None else self.odd + t * (other.odd - self.odd))


# None stands for the barycentre: every unit the average of all, and zero where signs act
State = Mapping[str, Hard | Soft | None]


class Solution(NamedTuple):
    """Group -> assignment; for each of the batch whether it is exact, how many sweeps it took, whether it settled."""

    state: dict[str, Hard]
    exact: np.ndarray
    num_sweeps: np.ndarray
    converged: np.ndarray


class Benefit(NamedTuple):
    """``even[b, i, j]`` for taking unit j in slot i, and ``odd`` times its sign on top, if the group is signed."""

    even: np.ndarray
    odd: np.ndarray | None

    def unsigned(self) -> np.ndarray:
        """The benefit of the better sign."""
        return self.even if self.odd is None else self.even + np.abs(self.odd)

    def best(self) -> Hard:
        """The assignment that is worth most, with its best signs."""
        return signed_permutations(assign(self.unsigned()), self.odd)

    def of(self, part: Hard) -> np.ndarray:
        """``(batch, n)``: what each slot gets under a given assignment, in float64."""
        index = part.permutation[..., None]
        value = np.take_along_axis(self.even, index, 2)[..., 0].astype(float)
        if self.odd is not None and part.sign is not None:
            value += part.sign * np.take_along_axis(self.odd, index, 2)[..., 0]
        return value


@dataclass(frozen=True)
class Problem:
    """Terms, the groups that act on them (in the order to visit them) and the size of the batch."""

    terms: tuple[Term, ...]
    groups: dict[str, Group]

    @cached_property
    def batch(self) -> int:
        """Number of sources."""
        return max((len(term.source) for term in self.terms), default=1)

    @cached_property
    def positions(self) -> dict[str, list[tuple[Term, int]]]:
        """Group -> the terms and axes on which it stands."""
        places: dict[str, list[tuple[Term, int]]] = {name: [] for name in self.groups}
        for term in self.terms:
            for position, axis in enumerate(term.axes):
                if axis.group is not None:
                    places[axis.group].append((term, position))
        return places

    @cached_property
    def constant(self) -> dict[str, Benefit]:
        """Group -> benefit from terms on which no other group stands: computed once, in the source's own labels."""
        return {name: self._sum(name, {}, None, [p for p in at if _alone(p[0])]) for name, at in self.positions.items()}

    @cached_property
    def scale(self) -> np.ndarray:
        """``(batch,)``: size of the objective, ‖target‖ ‖source‖, against which a gain is told from rounding."""
        target = sum(np.square(t.target, dtype=float).reshape(len(t.target), -1).sum(1) for t in self.terms)
        source = sum(np.square(t.source, dtype=float).reshape(len(t.source), -1).sum(1) for t in self.terms)
        return np.maximum(np.sqrt(target * source), np.finfo(float).tiny)

    def neighbours(self, name: str) -> set[str]:
        """Groups that share a term with this one, and this one where it stands on two axes of a term."""
        return {
            axis.group
            for term, position in self.positions[name]
            for k, axis in enumerate(term.axes)
            if k != position and axis.group is not None
        }

    def pairs_with_itself(self, name: str) -> bool:
        """Whether the group stands on two axes of one term."""
        return any(sum(axis.group == name for axis in term.axes) > 1 for term, _ in self.positions[name])

    def at(self, items: np.ndarray) -> Problem:
        """The same problem for some of the batch, with the constant benefits carried over."""
        if len(items) == self.batch and (items == np.arange(self.batch)).all():
            return self
        part = Problem(tuple(term.at(items) for term in self.terms), self.groups)
        part.__dict__["constant"] = {name: members_at(benefit, items) for name, benefit in self.constant.items()}
        part.__dict__["scale"] = self.scale[items]
        return part

    def benefit(self, name: str, state: State, items: np.ndarray | None = None) -> Benefit:
        """The objective's gradient in one group, everything else as in ``state``.

        Parameters
        ----------
        name
            Group.
        state
            Group -> `Hard`, `Soft` or ``None`` for every other group; and for this one, if it pairs with itself.
        items
            Indices into the batch; all of it by default. The state's parts hold just these items.

        Returns
        -------
        Benefit
            ``(items, n, n)``.
        """
        constant = self.constant[name]
        rest = [place for place in self.positions[name] if not _alone(place[0])]
        if items is not None:
            constant = members_at(constant, items)
        if not rest:
            return constant
        moving = self._sum(name, state, items, rest)
        odd = moving.odd if constant.odd is None else constant.odd + moving.odd  # pyright: ignore
        return Benefit(constant.even + moving.even, odd)

    def score(self, state: State) -> np.ndarray:
        """``(batch,)``: the objective at a state, float64."""
        total = np.zeros(self.batch)
        for term in self.terms:
            moved = move(term.source, term.axes, state)
            pair = (x.reshape(self.batch, -1) for x in (np.broadcast_to(term.target, moved.shape), moved))
            total += np.einsum("bi,bi->b", *pair, dtype=float)
        return total

    def scores(self, elements: Mapping[str, Hard]) -> np.ndarray:
        """``(batch, count)``: the objective of each of the batch at each of some elements, float64."""
        count = len(next(iter(elements.values())).permutation)
        if any(len(term.target) > 1 for term in self.terms):
            every = ({name: part.at(np.full(self.batch, k)) for name, part in elements.items()} for k in range(count))
            return np.stack([self.score(state) for state in every], 1)
        total, back = np.zeros((self.batch, count)), inverted(elements)
        for term in self.terms:
            # a target that all share moves the other way, once for all sources
            size = term.target.size
            for some in slices(count, size, BLOCK):
                targets = np.broadcast_to(term.target, (some.stop - some.start, *term.target.shape[1:]))
                moved = move(targets, term.axes, {name: part.at(some) for name, part in back.items()}).astype(float)
                for items in slices(self.batch, size, BLOCK):
                    source = term.source[items].reshape(items.stop - items.start, size).astype(float)
                    total[items, some] += source @ moved.reshape(len(moved), size).T
        return total

    def limits(self, name: str, elements: Mapping[str, Hard]) -> np.ndarray:
        """``(batch, count)``: no less than the objective, but for rounding, at elements of all groups but one.

        Of this one every slot has the unit that is worth most in it. Infinite where sources have targets of their own.
        """
        count, n = len(next(iter(elements.values())).permutation), self.groups[name].degree
        if any(len(term.target) > 1 for term in self.terms):
            return np.full((self.batch, count), np.inf)
        standing = [id(term) for term, _ in self.positions[name]]
        rest = Problem(tuple(term for term in self.terms if id(term) not in standing), self.groups)
        total, back = np.zeros((self.batch, count)) + rest.scores(elements), inverted(elements)
        for some in slices(count, self.batch * n * n, BLOCK):
            parts = {other: part.at(some) for other, part in back.items()}
            for items in slices(self.batch, n * n * (some.stop - some.start), BLOCK):
                # (sources, their units, elements, slots)
                even, odd = (self._worth(name, parts, some, items, signed) for signed in (False, True))
                total[items, some] += (even + np.abs(odd)).max(1).sum(-1)
        return total

    def _worth(
        self, name: str, back: Mapping[str, Hard], some: slice, items: slice, signed: bool
    ) -> np.ndarray | float:
        """The part that signs of the group change, or the other one; as one product, for it is many small ones."""
        places = [place for place in self.positions[name] if place[0].axes[place[1]].signed == signed]
        if not places:
            return 0.0
        sources, targets = [], []
        for term, position in places:
            every = np.broadcast_to(term.target, (some.stop - some.start, *term.target.shape[1:]))
            moved = move(every, term.axes, back, skip=position)
            for values, found in ((term.source[items], sources), (moved, targets)):
                front = np.moveaxis(values, position + 1, 1)
                found.append(front.reshape(*front.shape[:2], -1).astype(float))
        source, target = (np.concatenate(found, -1) for found in (sources, targets))
        return np.tensordot(source, target, (2, 2))

    def identity(self) -> dict[str, Hard]:
        """The identity for each of the batch."""
        return {name: group.identity((self.batch,)) for name, group in self.groups.items()}

    def _sum(self, name: str, state: State, items: np.ndarray | None, places: list[tuple[Term, int]]) -> Benefit:
        n, signed = self.groups[name].degree, self.groups[name].signed
        count = self.batch if items is None else len(items)
        dtype = np.result_type(*(term.source for term in self.terms))
        even, odd = np.zeros((count, n, n), dtype), np.zeros((count if signed else 0, n, n), dtype)
        for term, position in places:
            left, right = _matched(term if items is None else term.at(items), state, position)
            # a few at a time, for tables are large
            for block in slices(count, n * n, BLOCK):
                (odd if term.axes[position].signed else even)[block] += _contract(
                    left if len(left) == 1 else left[block], right[block], position
                )
        return Benefit(even, odd if signed else None)


def signed_permutations(permutation: np.ndarray, odd: np.ndarray | None) -> Hard:
    """Permutations ``(..., n)`` with the signs that entries of ``odd`` there have, plus where these are zero."""
    if odd is None:
        return Hard(permutation)
    chosen = np.take_along_axis(odd, permutation[..., None], -1)[..., 0]
    return Hard(permutation, np.where(chosen < 0, -1, 1))


def soften(part: Hard, dtype: np.dtype) -> Soft:
    """An assignment as permutation matrices, with and without signs."""
    even = (part.permutation[..., None] == np.arange(part.permutation.shape[-1])).astype(dtype)
    return Soft(even, None if part.sign is None else even * part.sign[..., None].astype(dtype))


def barycentre(group: Group, batch: int, dtype: np.dtype) -> Soft:
    """The matrices that make every unit the average of all, or zero where signs act."""
    n = group.degree
    even = np.full((batch, n, n), 1.0 / max(n, 1), dtype)
    return Soft(even, np.zeros_like(even) if group.signed else None)


def axes_of(bound: Symmetry, site: str, event: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Axis, ...]]:
    """Shape of a site's values with every `Split` opened, and an entry for each axis; free of groups in other sites."""
    if site not in bound.axes:
        return event, (FREE,) * len(event)
    shape, opened = bound.opened_shape(site, event), bound.opened(site)
    return shape, (FREE,) * (len(shape) - len(opened)) + opened


def pooled_axes(axes: tuple[Axis, ...]) -> tuple[int, ...]:
    """Axes of ``(draw, *shape)`` that are pooled to be blind to labels: that of draws, and those where groups stand."""
    return (0, *(1 + k for k, axis in enumerate(axes) if axis.group is not None))


def without_signs(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes of what signs leave alone: squares, standard deviations."""
    return tuple(axis._replace(signed=False) for axis in axes)


def move(value: np.ndarray, axes: tuple[Axis, ...], state: State, *, skip: int | None = None) -> np.ndarray:
    """Values ``(batch, *shape)`` moved by a state, each item by its own part, along all axes but ``skip``."""
    names = [axis.group or "" for axis in axes]
    moving = [k for k, name in enumerate(names) if name and k != skip]
    # blocks move before the units in them
    for position in sorted(moving, key=lambda k: names[k].count("/")):
        name, axis = names[position], axes[position]
        part = state.get(name)
        if "/" in name and isinstance(part, Hard):
            cells = [names.index(label) for label in fibred_over(name)]
            value = gather_axis(value, part if axis.signed else Hard(part.permutation), position, cells, len(axes))
        else:
            value = _move_axis(value, part, axis, position + 1)
    return value


def _matched(term: Term, state: State, position: int) -> tuple[np.ndarray, np.ndarray]:
    """Target and source with all axes but one moved: the source's, or the other way round those of a shared target."""
    others = [k for k, axis in enumerate(term.axes) if k != position and axis.group is not None]
    if len(others) == 1 and len(term.target) == 1 and term.target.ndim == 3:
        axis = term.axes[others[0]]
        part = state.get(axis.group or "")
        if isinstance(part, Hard):
            # rows of one small matrix are gathered faster than those of every source
            rows = np.ascontiguousarray(term.target[0] if others[0] == 0 else term.target[0].T)
            back = part.inverse()
            moved = rows.take(back.permutation, 0)
            if axis.signed and back.sign is not None:
                moved *= back.sign[..., None].astype(moved.dtype)
            return moved if others[0] == 0 else moved.transpose(0, 2, 1), term.source
    return term.target, move(term.source, term.axes, state, skip=position)


def _move_axis(value: np.ndarray, part: Hard | Soft | None, axis: Axis, position: int) -> np.ndarray:
    if part is None:
        mean = np.zeros_like(value[:1]) if axis.signed else value.mean(position, keepdims=True)
        return np.broadcast_to(mean, value.shape)
    if isinstance(part, Soft):
        front = np.moveaxis(value, position, 1)
        moved = np.matmul(part.along(axis), front.reshape(*front.shape[:2], -1)).reshape(front.shape)
        return np.moveaxis(moved, 1, position)
    return each_by_its_own(value, part if axis.signed else Hard(part.permutation), position)


def _contract(target: np.ndarray, source: np.ndarray, position: int) -> np.ndarray:
    """``(batch, n, n)``: inner products of the target's and the source's slices along one axis."""
    if target.ndim == 2:
        return target[:, :, None] * source[:, None, :]
    if target.ndim == 3:  # without transposed copies
        if position == 1:
            return np.matmul(target.transpose(0, 2, 1), source)
        return np.matmul(target, source.transpose(0, 2, 1))
    left, right = (np.moveaxis(x, position + 1, 1) for x in (target, source))
    left, right = (x.reshape(*x.shape[:2], -1) for x in (left, right))
    return np.matmul(left, right.transpose(0, 2, 1))


def _alone(term: Term) -> bool:
    return sum(axis.group is not None for axis in term.axes) == 1


def where(first: np.ndarray, a: Solution, b: Solution) -> Solution:
    """Solution ``a`` for the items ``first`` of a batch, and ``b`` for the others."""
    state = {name: part.each(np.copy) for name, part in b.state.items()}
    for name, part in state.items():
        part.write(first, a.state[name].at(first))
    return Solution(state, *(np.where(first, x, y) for x, y in zip(a[1:], b[1:], strict=True)))
