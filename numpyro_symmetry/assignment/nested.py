r"""Blocks that move, and units that move in each of them: heads and their dimensions, experts and their units.

The two form a wreath product, whose factors do not act one apart from the other. Where nothing else moves it is solved
exactly: what it is worth that slot :math:`i` takes block :math:`j` is the value of the best assignment of units between
the two, and the table of these values is one more assignment. Where other groups move as well, the two take turns.
Knows symmetries and how to place one block; nothing of costs.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from numpyro_symmetry.assignment.linear import assign
from numpyro_symmetry.assignment.side import Side
from numpyro_symmetry.symmetry import Element, Symmetry, SymmetryError, SymmetryWarning, Unsigned, compose, permutations
from numpyro_symmetry.symmetry.axes import Axis, AxisEntry, num_axes
from numpyro_symmetry.symmetry.hard import over
from numpyro_symmetry.symmetry.pieces import Piece, pieces_of
from numpyro_symmetry.symmetry.plain import refuse_what_is_not_full, untangled

MAX_ROUNDS = 20
_ROUNDING = 1e-12


class Placed(NamedTuple):
    """Element, objective, whether it is exact, and whether it settled, for each of a batch."""

    element: Element
    objective: np.ndarray
    exact: np.ndarray
    converged: np.ndarray


# places sources with these leading dimensions, as well as it can, by a symmetry that is bound
Place = Callable[[Symmetry, Side, Side, tuple[int, ...]], Placed]


class Family(NamedTuple):
    """Blocks that move, ``root``, and all groups that are fibred over them."""

    root: str
    names: tuple[str, ...]


def families(symmetry: Symmetry) -> list[Family]:
    """The groups that move blocks in which others move, each with those others."""
    refuse_what_is_not_full(symmetry)
    groups = symmetry.groups
    outer = {label for name in groups for label in over(name) if label in groups}
    roots = [name for name in groups if name in outer and not any(label in groups for label in over(name))]
    return [Family(root, tuple(n for n in groups if n == root or root in over(n))) for root in roots]


def place_nested(bound: Symmetry, target: Side, source: Side, batch: int, place: Place) -> tuple[Placed, np.ndarray]:
    """Place a batch of sources by a symmetry in which blocks and units in them move.

    Parameters
    ----------
    bound
        The symmetry, bound.
    target, source
        Arrays of the event shapes, and ``(batch, *event)``.
    batch
        Number of sources.
    place
        How to place what is simpler.

    Returns
    -------
    tuple
        What was found, never worse than the identity, and the number of rounds.

    Warns
    -----
    SymmetryWarning
        If blocks carry signs, or stand on two axes of one site: then only one level is moved.
    """
    if torn := [site for site in bound.axes for piece in _pieces(bound, target, site) if piece.complement is not None]:
        raise SymmetryError(
            f"Sites {torn} are parts of a whole (Complement) in a symmetry with blocks in which others move, which "
            "cannot be matched together yet: match one after the other, by symmetry.restrict."
        )
    task = _Task(bound, target, source, batch, place)
    found = families(bound)
    if stuck := [family for family in found if not task.separates(family)]:
        warnings.warn(
            f"Groups {[family.root for family in stuck]} move blocks in which {[list(f.names[1:]) for f in stuck]} "
            "move too, and carry signs or stand on two axes of one site: only one of the two levels is matched, "
            "whichever has more elements, and the result may be far from the best. Match the other level in a second "
            "call, with symmetry.restrict.",
            SymmetryWarning,
            stacklevel=4,
        )
        found = [family for family in found if family not in stuck]
    coupled, before = bool(stuck) or task.is_coupled(found), task.score(source)
    blind = task.from_barycentre(found)
    if not coupled:
        best = blind
        num_rounds = np.ones(batch, int)
    else:
        # one level held still, for other groups may be worth more than the other level
        single = place(untangled(bound), target, source, (batch,))
        single = single._replace(element=task.lift(single.element))
        runs = [task.take_turns(blind, found, rest_first=True), task.take_turns(single, found, rest_first=False)]
        better = runs[1][0].objective > runs[0][0].objective + _ROUNDING * np.abs(before)
        best, num_rounds = _where(better, runs[1][0], runs[0][0]), np.where(better, runs[1][1], runs[0][1])
    stay = best.objective <= before + _ROUNDING * np.abs(before)
    still = Placed(task.identity(), before, best.exact, best.converged)
    return _where(stay, still, best), num_rounds


class _Task(NamedTuple):
    """A batch of sources to place, and the steps of which it is made."""

    bound: Symmetry
    target: Side
    source: Side
    batch: int
    place: Place

    def identity(self) -> Element:
        """The identity for each of the batch."""
        return jax.tree.map(np.array, self.bound.identity((self.batch,)))

    def lift(self, element: Element) -> Element:
        """An element of some of the groups, as one of all."""
        return self.identity() | dict(element)

    def moved(self, element: Element) -> Side:
        """The source, moved."""
        loc = self.bound.apply(element, self.source.loc)
        if self.source.scale is None:
            return Side(loc, None)
        return Side(loc, self.bound.without_signs().apply(permutations(element), self.source.scale))

    def score(self, side: Side) -> np.ndarray:
        """The objective of a batch as it stands."""
        return self.place(Symmetry({}), self.target, side, (self.batch,)).objective

    def separates(self, family: Family) -> bool:
        """Whether blocks can be paired one by one: they carry no signs, and stand on one axis at a time."""
        counts = [
            sum(axis.group == family.root for axis in piece.axes)
            for site in self.bound.axes
            for piece in _pieces(self.bound, self.target, site)
        ]
        return not self.bound.groups[family.root].signed and max(counts) <= 1

    def rest(self, found: list[Family]) -> list[str]:
        """Groups that belong to no family."""
        taken = {name for family in families(self.bound) for name in family.names}
        return [name for name in self.bound.groups if name not in taken]

    def is_coupled(self, found: list[Family]) -> bool:
        """Whether a piece of a site carries groups of two families, or of one and of none."""
        owner = {name: family.root for family in found for name in family.names}
        groups = self.bound.groups
        return any(
            len({owner.get(axis.group or "", "") for axis in piece.axes if axis.group in groups}) > 1
            for site in self.bound.axes
            for piece in _pieces(self.bound, self.target, site)
        )

    def from_barycentre(self, found: list[Family]) -> Placed:
        """Each family with everything else at its average, and then all the rest."""
        element, exact, settled = self.identity(), np.ones(self.batch, bool), np.ones(self.batch, bool)
        for family in found:
            step = self.place_family(family, self.averaged(set(self.bound.groups) - set(family.names)))
            element |= {name: step.element[name] for name in family.names}
            exact, settled = exact & step.exact, settled & step.converged
        if rest := self.rest(found):
            step = self.place(self.bound.restrict(rest), self.target, self.moved(element), (self.batch,))
            element = compose(self.lift(step.element), element)
            exact, settled = exact & step.exact, settled & step.converged
        return Placed(element, self.score(self.moved(element)), exact, settled)

    def averaged(self, names: set[str]) -> Side:
        """The source with each of its entries the average of all that some groups may bring there."""

        def one(site: str, value: np.ndarray, signs: bool) -> np.ndarray:
            flat = np.array(value, float).reshape(self.batch, -1)
            for piece in _pieces(self.bound, self.target, site) if site in self.bound.axes else []:
                part = flat[:, piece.indices]
                for k, axis in enumerate(piece.axes):
                    if axis.group in names:
                        part = part.mean(k + 1, keepdims=True)
                        if signs and axis.signed and self.bound.groups[axis.group].signed:
                            part = 0.0 * part
                flat[:, piece.indices] = part
            return flat.reshape(value.shape)

        loc, scale = self.source.loc, self.source.scale
        return Side(
            {site: one(site, value, True) for site, value in loc.items()},
            None if scale is None else {site: one(site, value, False) for site, value in scale.items()},
        )

    def take_turns(self, start: Placed, found: list[Family], *, rest_first: bool) -> tuple[Placed, np.ndarray]:
        """Place families and the rest in turns until nothing gains."""
        element, objective = start.element, start.objective
        rest = self.rest(found)
        turns: list[Family | None] = [*found, *([None] if rest else [])]
        turns = turns[::-1] if rest_first else turns
        num_rounds, settled = np.zeros(self.batch, int), np.zeros(self.batch, bool)
        for _ in range(MAX_ROUNDS):
            gained = np.zeros(self.batch, bool)
            for turn in turns:
                here = self.moved(element)
                if turn is None:
                    step = self.place(self.bound.restrict(rest), self.target, here, (self.batch,))
                else:
                    step = self.place_family(turn, here)
                tried = compose(self.lift(step.element), element)
                reached = self.score(self.moved(tried))
                wins = reached > objective + _ROUNDING * np.maximum(np.abs(objective), np.abs(start.objective))
                element, objective = _choose(wins, tried, element), np.where(wins, reached, objective)
                gained |= wins
            num_rounds += ~settled
            settled |= ~gained
            if settled.all():
                break
        return Placed(element, objective, np.zeros(self.batch, bool), settled), num_rounds

    def place_family(self, family: Family, source: Side) -> Placed:
        """The best element of one family, with all other groups as they stand; exact if each pair of blocks is."""
        group, blocks = self.bound.groups[family.root], _Blocks.of(self.bound, family, self)
        element, size = self.identity(), group.size or 0
        exact, settled = np.ones(self.batch, bool), np.ones(self.batch, bool)
        for cell in np.ndindex(*group.cells):
            left, right = blocks.cut(self.target, cell, 0), blocks.cut(source, cell, 1)
            worth, units = np.empty((self.batch, size, size)), []
            for i in range(size):
                one = Side(_at(left.loc, i), left.scale and _at(left.scale, i))
                pair = self.place(blocks.symmetry.bind(one.loc), one, right, (self.batch, size))
                worth[:, i] = pair.objective
                units.append(pair.element)
                exact, settled = exact & pair.exact.all(1), settled & pair.converged.all(1)
            chosen = np.empty((self.batch, size), int)
            for members in group.members():
                chosen[:, members] = members[assign(worth[:, members][:, :, members])]
            _write(element[family.root], (slice(None), *cell), chosen)
            for name, i in itertools.product(family.names[1:], range(size)):
                part = units[i][name.removeprefix(f"{family.root}/")]
                # of the units found for each pair, those of the block that was chosen
                at = np.arange(self.batch), chosen[:, i]
                _write(element[name], (slice(None), *cell, i), jax.tree.map(lambda x, at=at: np.asarray(x)[at], part))
        return Placed(element, np.zeros(self.batch), exact, settled)


class _Blocks(NamedTuple):
    """One block on its own: the symmetry of its units, and where its arrays stand in the sites."""

    symmetry: Symmetry
    # name -> site, piece, and the positions in it of the labels that say which block
    places: dict[str, tuple[str, Piece, list[int]]]

    @staticmethod
    def of(bound: Symmetry, family: Family, task: _Task) -> _Blocks:
        """The blocks of one family."""
        prefix, chosen = f"{family.root}/", (*over(family.root), family.root)
        axes: dict[str, tuple[AxisEntry, ...]] = {}
        places = {}
        for site in bound.axes:
            for k, piece in enumerate(_pieces(bound, task.target, site)):
                names = [axis.group for axis in piece.axes]
                if family.root not in names:
                    continue
                at = [names.index(label) for label in chosen]
                rest = [axis for position, axis in enumerate(piece.axes) if position not in at]
                axes[f"{site}#{k}"] = tuple(_entry(axis, prefix) for axis in rest)
                places[f"{site}#{k}"] = (site, piece, at)

        def within(by_name: Mapping[str, Any]) -> dict[str, Any]:
            return {name.removeprefix(prefix): x for name, x in by_name.items() if name.startswith(prefix)}

        return _Blocks(Symmetry(axes, within(bound.kinds), orbits=within(bound.orbits)), places)

    def cut(self, side: Side, cell: tuple[int, ...], lead: int) -> Side:
        """All blocks of a cell, ``(*leading, blocks, *block)``."""

        def one(value: np.ndarray, piece: Piece, at: list[int]) -> np.ndarray:
            flat = value.reshape(*value.shape[:lead], -1)[..., piece.indices]
            index: list[Any] = [slice(None)] * flat.ndim
            for position, k in zip(at[:-1], cell, strict=True):
                index[lead + position] = slice(k, k + 1)
            flat = np.moveaxis(flat[tuple(index)], [lead + position for position in at], range(lead, lead + len(at)))
            return flat.reshape(*flat.shape[:lead], *flat.shape[lead + len(at) - 1 :])

        def cut(by_site: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {name: one(by_site[site], piece, at) for name, (site, piece, at) in self.places.items()}

        return Side(cut(side.loc), None if side.scale is None else cut(side.scale))


def _pieces(bound: Symmetry, target: Side, site: str) -> list[Piece]:
    entries, shape = bound.axes[site], target.loc[site].shape
    return pieces_of(entries, shape[len(shape) - num_axes(entries) :])


def _at(by_site: Mapping[str, np.ndarray], i: int) -> dict[str, np.ndarray]:
    return {site: value[i] for site, value in by_site.items()}


def _entry(axis: Axis, prefix: str) -> AxisEntry:
    """The label of an axis within one block; what belongs to others stands still."""
    if axis.group is None or not axis.group.startswith(prefix):
        return None
    name = axis.group.removeprefix(prefix)
    return name if axis.signed else Unsigned(name)


def _write(part: Any, where: tuple[Any, ...], new: Any) -> None:
    """Overwrite one block's part of an element."""
    for old, value in zip(jax.tree.leaves(part), jax.tree.leaves(new), strict=True):
        old[where] = value


def _choose(first: np.ndarray, a: Element, b: Element) -> Element:
    """One element for some of a batch and another for the others."""

    def one(x: Any, y: Any) -> np.ndarray:
        x, y = np.array(x), np.array(y)
        return np.where(first.reshape(-1, *[1] * (x.ndim - 1)), x, y)

    return {name: jax.tree.map(one, a[name], b[name]) for name in b}


def _where(first: np.ndarray, a: Placed, b: Placed) -> Placed:
    return Placed(
        _choose(first, a.element, b.element), *(np.where(first, x, y) for x, y in zip(a[1:], b[1:], strict=True))
    )
