"""A symmetry taken apart until every group permutes all of its indices alike: no orbits, no cells, no joined axes.

Where blocks move and units in them, either one of the two is held still, or they stay together, the units fibred over
blocks that move. Algorithms see only this view of it. Values are cut into pieces, and elements put together again.
Knows symmetries and arrays; no densities.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.symmetry.arguments import is_option
from numpyro_symmetry.symmetry.axes import Axis, AxisEntry, Unsigned, names_in, num_axes
from numpyro_symmetry.symmetry.components import connected
from numpyro_symmetry.symmetry.elements import batch_of
from numpyro_symmetry.symmetry.errors import SymmetryError, warn
from numpyro_symmetry.symmetry.families import Stack
from numpyro_symmetry.symmetry.groups import Group
from numpyro_symmetry.symmetry.hard import Element, Hard, fibred_over, from_element
from numpyro_symmetry.symmetry.pieces import Piece, axes_of_pieces, joined, pieces_of
from numpyro_symmetry.symmetry.symmetry import Symmetry

# JAX keeps constants by identity, and an int64 array that has met single precision breaks in double
_INDEX = np.int32

Box = tuple[slice, ...]
# part of an axis: the plain group that acts there, if any, and the indices that it permutes
Cut = tuple[str | None, np.ndarray]


def moving_blocks(symmetry: Symmetry) -> dict[str, list[str]]:
    """Outermost group that moves blocks -> the groups that move units in these blocks."""
    groups = symmetry.groups
    inner = {name: [n for n in groups if name in fibred_over(n)] for name in groups}
    roots = [name for name in groups if inner[name] and not any(label in groups for label in fibred_over(name))]
    return {name: inner[name] for name in roots}


def untangled(symmetry: Symmetry) -> Symmetry:
    """A large subgroup in which no group is fibred over one that moves.

    Units of heads that move themselves form a wreath product, ``S_d ≀ S_h``, whose factors do not act one apart from
    the other. Either the outer groups are held still or the inner ones, whichever leaves more elements.
    """
    refuse_not_full(symmetry)
    return _with_one_level(
        symmetry, {name for inner in moving_blocks(symmetry).items() for name in (inner[0], *inner[1])}
    )


def separated(symmetry: Symmetry, *, alone: bool = False) -> tuple[Symmetry, dict[str, list[str]]]:
    """A large subgroup in which blocks can be paired one by one, with all units in them; and blocks that cannot.

    Blocks that carry signs, or stand on two axes of one array, cannot: of these one level moves, as in `untangled`.
    ``alone``: nor can those that share a site with groups other than their units, directly or through others.
    """
    refuse_not_full(symmetry)
    found = moving_blocks(symmetry)
    stands = [
        [axis.group for axis in axes] for stack in symmetry.stacks.values() for axes in axes_of_pieces(stack.entries)
    ]
    names = [names_in(stack.entries) & set(symmetry.groups) for stack in symmetry.stacks.values()]
    outer = {
        label for inner in found.values() for name in inner for label in fibred_over(name) if label in symmetry.groups
    }
    stuck = {n for n in outer if symmetry.groups[n].signed or any(here.count(n) > 1 for here in stands)}
    meeting = [together for together, _ in connected((None, here) for here in names)]
    stuck |= {root for together in meeting for root in together & set(found) if alone and not _is_alone(root, together)}
    torn = {root: inner for root, inner in found.items() if stuck & {root, *inner}}
    return _with_one_level(symmetry, {name for root, inner in torn.items() for name in (root, *inner)}), torn


def _is_alone(root: str, together: set[str]) -> bool:
    """Whether groups that share sites are one of blocks, and others of units in them."""
    return all([label for label in fibred_over(name) if label in together] == [root] for name in together - {root})


def warn_of_torn(view: PlainView, done: str, advice: str) -> None:
    """Warn of blocks that cannot be paired one by one, of which one level alone is ``done``, in words."""
    if view.torn:
        warn(
            f"Groups {list(view.torn)} move blocks in which {list(view.torn.values())} move too, and blocks carry "
            f"signs or stand on two axes of one site: only one of the two levels is {done}, whichever has more "
            f"elements{advice} in a second call, with symmetry.restrict."
        )


def _with_one_level(symmetry: Symmetry, names: set[str]) -> Symmetry:
    """The symmetry without the outer, or without the inner, of some groups: whichever leaves more elements."""
    outer = {label for name in names for label in fibred_over(name) if label in names}
    inner = {name for name in names if any(label in names for label in fibred_over(name))}
    if not outer:
        return symmetry
    choices = [symmetry.restrict(symmetry.groups.keys() - gone) for gone in (outer, inner)]
    return max(choices, key=Symmetry.log_order)


def refuse_not_full(symmetry: Symmetry) -> None:
    """Refuse groups of which some permutations of their indices are no elements.

    Raises
    ------
    SymmetryError
        Naming the group and its kind.
    """
    for name, group in symmetry.groups.items():
        if not group.permutations.is_full:
            raise SymmetryError(
                f"Group {name!r} is of kind {group.permutations.name!r}: expected one of which every permutation "
                "of its indices is an element, as units are placed by assignment here. Enumerate it "
                "(symmetry.elements()), or leave it out by symmetry.restrict."
            )


def one_part(group: Any, owners: Mapping[str, str], where: str) -> str:
    """The plain group that is meant by its own name, by that of the group it is of, or by ``None`` if there is one.

    Raises
    ------
    SymmetryError
        If there is none, or several.
    """
    found = [part for part, owner in owners.items() if group is None or is_option(group, (part, owner))]
    if len(found) != 1:
        raise SymmetryError(f"{where}: name one of the symmetry's groups {list(owners)}.")
    return found[0]


@dataclass(frozen=True)
class PlainView:
    """A bound symmetry, untangled or separated, as one that is plain, on pieces of its sites.

    Attributes
    ----------
    whole
        The symmetry that is viewed.
    shapes
        Site -> shape of an event: the axes that its entries describe.
    with_single
        Whether a group of a single index is a group of the view as well, unless it has orbits or cells.
    torn
        Blocks that cannot be paired one by one, though units move in them: of which one level is held still.
    """

    whole: Symmetry
    shapes: dict[str, tuple[int, ...]]
    with_single: bool = False
    torn: Mapping[str, list[str]] = field(default_factory=dict)

    @staticmethod
    def of(
        symmetry: Symmetry, values: Mapping[str, Any], *, with_single: bool = False, nested: bool = False
    ) -> PlainView:
        """The view of a symmetry, bound, with the sizes of values; ``nested``: with units in blocks that move too."""
        whole, torn = separated(symmetry) if nested else (untangled(symmetry), {})
        given = {site: np.shape(values[site]) for site in whole.axes}
        shapes = {site: shape[len(shape) - num_axes(whole.axes[site]) :] for site, shape in given.items()}
        return PlainView(whole, shapes, with_single, torn)

    @cached_property
    def symmetry(self) -> Symmetry:
        """The plain symmetry."""
        axes = {name: tuple(map(_plain_entry, piece.axes)) for name, (_, piece) in self._pieces.items()}
        axes = {name: entries for name, entries in axes.items() if any(entry is not None for entry in entries)}
        groups = self.whole.groups
        kinds = {plain: groups[name].kind for plain, (name, _, _) in self._cells.items()}
        return Symmetry(axes, kinds, {plain: len(members) for plain, (_, _, members) in self._cells.items()})

    @cached_property
    def weights(self) -> dict[str, float]:
        """Piece -> weight of its entries, if not one: x and total - x are one number, and count half each."""
        return {name: 0.5 for name, (_, piece) in self._pieces.items() if piece.complement is not None}

    @cached_property
    def stacks(self) -> dict[str, Stack]:
        """Piece -> the site, or the family of sites, that it is cut from."""
        return {name: stack for name, (stack, _) in self._pieces.items()}

    @cached_property
    def owners(self) -> dict[str, str]:
        """Plain group -> the group that it is of."""
        return {plain: group for plain, (group, _, _) in self._cells.items()}

    def open(self, values: Mapping[str, Any], *, common: bool = False) -> dict[str, Any]:
        """Values ``(*leading, *event)`` by piece; sites on which no group acts as they are.

        ``common``: for standard deviations, which x and total - x have in common.
        """
        opened = {site: value for site, value in values.items() if site not in self.shapes}
        there = {name: s.of(values) for name, s in self.whole.stacks.items() if all(site in values for site in s.sites)}
        for name, (stack, piece) in self._pieces.items():
            if stack.name in there:
                own = _take(there[stack.name], stack.shape(self.shapes), piece.indices, self._boxes[name])
                opened[name] = piece.with_rest(own, common=common)
        return opened

    def close(self, opened: Mapping[str, Any]) -> dict[str, Any]:
        """The inverse of `open`."""
        values = {name: value for name, value in opened.items() if name not in self._pieces}
        for stack in self.whole.stacks.values():
            here = [(name, piece) for name, (owner, piece) in self._pieces.items() if owner == stack and name in opened]
            if here:
                pieces, parts = [piece for _, piece in here], [opened[name] for name, _ in here]
                values |= stack.apart(joined(pieces, parts, stack.shape(self.shapes)))
        return values

    def element(self, plain: Element, symmetry: Symmetry | None = None, batch: tuple[int, ...] = ()) -> Element:
        """An element of the plain symmetry as one of the whole, or of a symmetry of which the whole is a subgroup.

        ``batch``: its leading shape where the plain symmetry has no groups.
        """
        leaves = jax.tree.leaves(plain)
        # where nothing is compiled JAX takes long to write over parts of an array, one by one
        xp = np if leaves and all(isinstance(leaf, np.ndarray) for leaf in leaves) else jnp
        given = {name: Hard.of(part).each(xp.asarray) for name, part in plain.items()}
        groups = (symmetry or self.whole).groups
        batch = next(itertools.starmap(batch_of, given.items()), batch)
        parts = {name: group.identity(batch).each(xp.asarray) for name, group in groups.items()}
        for name, (group, cell, members) in self._cells.items():
            if groups[group].orbits is None and not cell:
                parts[group] = given[name]
                continue
            at, here = (..., *np.ix_(*cell, members)), parts[group]
            shape = *batch, *map(len, cell), len(members)
            reshaped = given[name].each(lambda x, shape=shape: x.reshape(shape))
            permutation = _written(here.permutation, at, xp.asarray(members)[reshaped.permutation])
            sign = here.sign if here.sign is None else _written(here.sign, at, reshaped.sign)
            parts[group] = Hard(permutation, sign)
        return {name: part.part() for name, part in parts.items()}

    def parts(self, element: Element) -> dict[str, Hard]:
        """The inverse of `element`, of one batch ``(*leading, *cells, n)``: plain elements ``(batch, *cells, n)``."""
        given = from_element({name: part for name, part in element.items() if name in self.whole.groups})
        found, groups = {}, self.symmetry.groups
        for name, (group, cell, members) in self._cells.items():
            shape = -1, *groups[name].cells, len(members)
            part = given[group].at((slice(None), *np.ix_(*cell, members))).each(lambda x, shape=shape: x.reshape(shape))
            found[name] = part._replace(permutation=np.searchsorted(members, part.permutation))
        return found

    # ---- private -----------------------------------------------------------------------------------------------

    @cached_property
    def _cells(self) -> dict[str, tuple[str, tuple[np.ndarray, ...], np.ndarray]]:
        """Plain group -> the group it is of, its cells along each label it is fibred over, the indices it permutes."""
        found = {}
        for name, group in self.whole.groups.items():
            choices: list[dict[str, Cut]] = [{}]
            for label, n in zip(group.over, group.cells, strict=True):
                choices = [above | {label: cut} for above in choices for cut in self._cuts(label, n, above, apart=True)]
            for above in choices:
                for plain, members in self._cuts(name, group.degree, above):
                    if plain is not None:
                        found[plain] = name, tuple(cut[1] for cut in above.values()), members.astype(_INDEX)
        return found

    @cached_property
    def _pieces(self) -> dict[str, tuple[Stack, Piece]]:
        """Name -> the array it is cut from, and where."""
        found: dict[str, tuple[Stack, Piece]] = {}
        for stack in self.whole.stacks.values():
            every = pieces_of(stack.entries, stack.shape(self.shapes))
            pieces = [part for piece in every for part in self._cut(piece)]
            for k, piece in enumerate(pieces):
                narrow = piece._replace(indices=piece.indices.astype(_INDEX))
                found[stack.name if len(pieces) == 1 else f"{stack.name}#{k}"] = (stack, narrow)
        return found

    @cached_property
    def _boxes(self) -> dict[str, Box | None]:
        """Piece -> the slices of its array that hold it, or ``None``: then its entries are scattered."""
        return {name: _box(piece.indices, stack.shape(self.shapes)) for name, (stack, piece) in self._pieces.items()}

    def _cut(self, piece: Piece) -> list[Piece]:
        """A piece cut further, until each of its axes has one plain label: cell by cell, and orbit by orbit."""
        groups, names = self.whole.groups, [axis.group or "" for axis in piece.axes]
        needed = {label for name in names if name in groups for label in groups[name].over}
        # an axis that others are fibred over is cut before them
        order = sorted(
            range(len(names)), key=lambda k: (names[k] not in needed, (names[k] in needed) * names[k].count("/"))
        )
        choices: list[dict[int, Cut]] = [{}]
        for k in order:
            if piece.complement is not None and k == piece.complement[0]:
                own = (names[k] if names[k] in groups else None, np.array([0]))
                choices = [chosen | {k: own} for chosen in choices]
                continue
            apart, n = names[k] in needed, piece.indices.shape[k]
            choices = [
                chosen | {k: cut}
                for chosen in choices
                for cut in self._cuts(names[k], n, {names[j]: one for j, one in chosen.items()}, apart=apart)
            ]
        found = []
        for chosen in choices:
            cuts = [chosen[k] for k in range(len(names))]
            axes = tuple(a._replace(group=group, size=None) for a, (group, _) in zip(piece.axes, cuts, strict=True))
            indices = piece.indices[np.ix_(*(members for _, members in cuts))]
            found.append(piece._replace(axes=axes, indices=indices))
        return found

    def _cuts(self, name: str, n: int, above: Mapping[str, Cut], *, apart: bool = False) -> list[Cut]:
        """The plain groups of an axis, within the cuts above it that it is fibred over, and indices that nothing moves.

        ``apart``: the latter one by one, for others are fibred over them.
        """
        group = self.whole.groups.get(name)
        found, alone = list[Cut](), [np.arange(n)]
        if group is not None:
            kept = group.signed or (self.with_single and not apart and group.orbits is None and not group.over)
            orbits = [(members, kept or len(members) > 1) for members in group.members()]
            found = [(_plain_name(name, group, above, k), one) for k, (one, moves) in enumerate(orbits) if moves]
            alone = [members for members, moves in orbits if not moves]
        still = np.sort(np.concatenate(alone)) if alone else np.arange(0)
        return [*found, *([(None, one) for one in still[:, None]] if apart else [(None, still)] if alone else [])]


def _box(indices: np.ndarray, shape: tuple[int, ...]) -> Box | None:
    """The slices that hold exactly these entries of a flat array, in their order."""
    entries = np.arange(math.prod(shape)).reshape(shape)
    if np.array_equal(indices.ravel(), entries.ravel()):
        return (slice(None),) * len(shape)
    box = []
    for along in map(np.unique, np.unravel_index(indices, shape)):
        step = along[1] - along[0] if len(along) > 1 else 1
        box.append(slice(int(along[0]), int(along[-1]) + 1, int(step)))
    return tuple(box) if np.array_equal(indices.ravel(), entries[tuple(box)].ravel()) else None


def _take(value: Any, shape: tuple[int, ...], indices: np.ndarray, box: Box | None) -> Any:
    """Entries of a value whose last axes have a shape: gathered only where no slices hold them."""
    lead = value.shape[: value.ndim - len(shape)]
    if box is not None:
        return value[(..., *box)].reshape((*lead, *indices.shape))
    flat = value.reshape(*lead, -1)
    if not isinstance(flat, jax.Array):
        return flat[..., indices]
    return flat.at[..., indices].get(mode="promise_in_bounds", unique_indices=True)


def _written(values: Any, at: Any, new: Any) -> Any:
    """An array with new entries at some places; changed in place where it is NumPy's."""
    if not isinstance(values, np.ndarray):
        return values.at[at].set(new)
    values[at] = new
    return values


def _plain_name(name: str, group: Group, above: Mapping[str, Cut], label: int) -> str:
    """The name of a part of a group: fibred over blocks that move, and numbered by cells that do not."""
    blocks, below, cells = "", name, []
    for outer in group.over:
        plain, members = above[outer]
        if plain is None:
            cells.append(int(members[0]))
        else:
            blocks, below, cells = f"{plain}/", name.removeprefix(f"{outer}/"), []
    where = f"{cells}" if cells else ""
    return blocks + f"{below}{where}{f':{label}' if group.orbits is not None else ''}".replace("/", ".")


def _plain_entry(axis: Axis) -> AxisEntry:
    if axis.group is None:
        return None
    return axis.group if axis.signed else Unsigned(axis.group)
