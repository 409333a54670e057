"""One factor of the product and its elements: how many, which, random ones, generators, and what is no element.

In NumPy, but for `Group.sample`. Whoever needs elements asks the group, so that nobody else has to know of what kind it
is. Knows no sites and no axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from numpyro_symmetry.symmetry.arguments import as_real_array, shape_of
from numpyro_symmetry.symmetry.errors import SymmetryError
from numpyro_symmetry.symmetry.hard import Hard, Part, SignedPermutation
from numpyro_symmetry.symmetry.permutation_kinds import KINDS, Kind, cycle_and_swap
from numpyro_symmetry.symmetry.shown import counted


class Group(NamedTuple):
    """One factor of the product: its size (``None`` until bound), its kind, and what limits it.

    Attributes
    ----------
    size
        Number ``n`` of interchangeable indices, or ``None`` before `Symmetry.bind`.
    kind
        ``"permutation"`` (order ``n!``), ``"signed"`` (order ``2^n n!``), or a `Kind`.
    orbits
        A label for each index, if only indices of one label are interchangeable.
    over
        Labels of the axes over which the group is fibred: it has an own permutation for each of their positions.
    cells
        Sizes of those axes.
    """

    size: int | None
    kind: str | Kind
    orbits: tuple[int, ...] | None = None
    over: tuple[str, ...] = ()
    cells: tuple[int, ...] = ()

    @staticmethod
    def of(size: int | None, *, signed: bool) -> Group:
        """All permutations of so many indices, with signs or without."""
        return Group(size, "signed" if signed else "permutation")

    @property
    def signed(self) -> bool:
        """Whether elements carry signs."""
        return self.permutations.signed

    @property
    def permutations(self) -> Kind:
        """Which permutations of an orbit are its elements."""
        return self.kind if isinstance(self.kind, Kind) else KINDS[self.kind]

    @property
    def is_trivial(self) -> bool:
        """Whether the identity is its only element."""
        return not self.signed and all(self.permutations.log_order(n) == 0.0 for n in self.orbit_sizes)

    @property
    def degree(self) -> int:
        """Number of indices of a bound group, which it permutes."""
        assert self.size is not None
        return self.size

    def members(self) -> list[np.ndarray]:
        """Indices of each orbit: what is interchangeable."""
        labels = np.zeros(self.degree, int) if self.orbits is None else np.asarray(self.orbits)
        return [np.flatnonzero(labels == label) for label in np.unique(labels)]

    @property
    def orbit_sizes(self) -> tuple[int, ...]:
        """Sizes of the sets of interchangeable indices."""
        return tuple(map(len, self.members()))

    def log_order(self) -> float:
        """Logarithm of the number of elements, nats."""
        permutations = math.fsum(map(self.permutations.log_order, self.orbit_sizes))
        return math.prod(self.cells) * (permutations + self.signed * self.degree * math.log(2.0))

    def identity(self, batch: tuple[int, ...] = ()) -> Hard:
        """The identity, for each of a batch: ``(*batch, *cells, n)``."""
        index = np.broadcast_to(np.arange(self.degree), (*batch, *self.cells, self.degree)).copy()
        return Hard(index, np.ones_like(index) if self.signed else None)

    def elements(self) -> Hard:
        """Every element as one batch, the identity first."""
        permutations = np.arange(self.degree)[None]
        for orbit in self.members():
            orders = orbit[self.permutations.elements(len(orbit))]
            earlier, permutations = len(permutations), np.repeat(permutations, len(orders), 0)
            permutations[:, orbit] = np.tile(orders, (earlier, 1))
        flips = np.array(list(itertools.product((1, -1), repeat=self.degree * self.signed)))
        every = Hard(
            np.repeat(permutations, len(flips), 0), np.tile(flips, (len(permutations), 1)) if self.signed else None
        )
        chosen = np.indices([len(every.permutation)] * math.prod(self.cells)).reshape(math.prod(self.cells), -1).T
        return every.at(chosen).each(lambda x: x.reshape(-1, *self.cells, x.shape[-1]))

    def random(self, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> Hard:
        """Uniformly random elements."""
        found = self.identity(batch)
        for orbit in self.members():
            index = np.broadcast_to(np.arange(len(orbit)), (*batch, *self.cells, len(orbit)))
            found.permutation[..., orbit] = orbit[self.permutations.random(rng, index)]
        return found if found.sign is None else found._replace(sign=rng.choice([-1, 1], found.sign.shape))

    @partial(jax.jit, static_argnums=(0, 2))
    def sample(self, rng_key: Array, shape: tuple[int, ...]) -> Part:
        """Uniformly random elements, as arrays of JAX."""
        key_permutation, key_sign = jax.random.split(rng_key)
        permutation = jnp.broadcast_to(jnp.arange(self.degree), (*shape, *self.cells, self.degree))
        members = [orbit for orbit in self.members() if len(orbit) > 1]
        keys = [key_permutation] if self.orbits is None else jax.random.split(key_permutation, max(len(members), 1))
        for key, orbit in zip(keys, members, strict=False):
            index = jnp.broadcast_to(jnp.arange(len(orbit)), (*shape, *self.cells, len(orbit)))
            permutation = permutation.at[..., orbit].set(jnp.asarray(orbit)[self.permutations.sample(key, index)])
        signs = jax.random.rademacher(key_sign, permutation.shape, int) if self.signed else None
        return Hard(permutation, signs).part()

    @property
    def every_cell(self) -> list[tuple[int, ...]]:
        """The cells of a fibred group, each with a permutation of its own; of any other group a single one, ``()``."""
        return list(np.ndindex(*self.cells))

    def generators(self, rng: np.random.Generator, cells: Sequence[tuple[int, ...]]) -> list[Hard]:
        """Generators of every orbit and, for signed groups, a flip in it, in some cells of a fibred group."""
        found: list[Hard] = []
        for cell, orbit in itertools.product(cells, self.members()):
            order = rng.permutation(len(orbit))
            for generator in self.permutations.generators(order):
                found.append(self.identity())
                found[-1].permutation[(*cell, orbit)] = orbit[generator]
            if self.signed:
                found.append(self.identity())
                found[-1].sign[(*cell, orbit[order[0]])] = -1
        return found

    def conjugators(self, rng: np.random.Generator, cells: Sequence[tuple[int, ...]]) -> tuple[Hard, list[Hard]]:
        """An element, and others whose conjugates by its powers generate the group, in some cells of a fibred one.

        Where every permutation is an element it is a cycle through each orbit, which carries a swap of two neighbours
        to the swaps of all others, and a flip to all flips. Cycles of several groups at once carry them just so, which
        is why those need one trial for all.
        """
        cycles, others = self.identity(), list[Hard]()
        if not self.permutations.is_full:
            return cycles, self.generators(rng, cells)
        for cell, orbit in itertools.product(cells, self.members()):
            order = rng.permutation(len(orbit))
            *turn, swap = cycle_and_swap(order) if len(orbit) > 1 else [np.arange(1)]
            for cycle in turn:
                cycles.permutation[(*cell, orbit)] = orbit[cycle]
            others.append(self.identity())
            others[-1].permutation[(*cell, orbit)] = orbit[swap]
            if self.signed:
                others.append(self.identity())
                others[-1].sign[(*cell, orbit[order[0]])] = -1
        return cycles, others

    def check(self, name: str, part: Part) -> None:
        """Refuse a part that is no element of the group; traced indices and signs are not looked at.

        Raises
        ------
        SymmetryError
            Naming the group, what was expected and what came.
        """
        if isinstance(part, SignedPermutation) != self.signed:
            expected = "a SignedPermutation(permutation, sign)" if self.signed else "an integer array, without signs"
            raise SymmetryError(f"Element of group {name!r}: expected {expected}; got {type(part).__name__}.")
        permutation: Any = as_permutation(name, part)
        n = permutation.shape[-1] if permutation.ndim else 0
        if not jnp.issubdtype(permutation.dtype, jnp.integer) or permutation.ndim == 0:
            raise SymmetryError(
                f"Element of group {name!r}: expected integers (..., {'n' if self.size is None else self.size}); got "
                f"{permutation.dtype}{permutation.shape}."
            )
        if self.size is not None and n != self.size:
            raise SymmetryError(f"Element of group {name!r} permutes {counted(n, 'index')}; expected {self.size}.")
        if permutation.shape[-1 - len(self.cells) : -1] != self.cells:
            raise SymmetryError(
                f"Element of group {name!r} has shape {permutation.shape}; expected (..., "
                f"{str((*self.cells, n))[1:-1]}), a permutation for each position of {self.over}."
            )
        if isinstance(part, SignedPermutation):
            _check_signs(name, part.sign, permutation.shape)
        if not isinstance(permutation, Tracer):
            self._check_indices(name, np.asarray(permutation))

    def _check_indices(self, name: str, index: np.ndarray) -> None:
        n = index.shape[-1]
        if ((index < 0) | (index >= n)).any():
            got = f"{index.min()} … {index.max()}"
            raise SymmetryError(f"Element of group {name!r} points outside 0 … {n - 1}; got {got}.")
        if (lost := (np.sort(index, -1) != np.arange(n)).any(-1)).any():
            raise SymmetryError(
                f"Element of group {name!r} is no permutation: each of 0 … {n - 1} must stand in it once, or entries "
                f"would be lost; got {np.array2string(index[lost][0], threshold=8, separator=', ')}."
            )
        if self.orbits is not None and (np.asarray(self.orbits)[index] != np.asarray(self.orbits)).any():
            raise SymmetryError(f"Element of group {name!r} moves indices between its orbits {self.orbits}.")
        for orbit in [] if self.size is None or self.permutations.is_full else self.members():
            within = np.searchsorted(orbit, index[..., orbit])
            if not (inside := self.permutations.contains(within)).all():
                got = np.array2string(within[~inside][0], threshold=8, separator=", ")
                raise SymmetryError(f"Element of group {name!r} is none of kind {self.permutations.name!r}; got {got}.")

    def __str__(self) -> str:
        if self.size is None:
            return f"{self.permutations.symbol}?"
        of_a_cell = "×".join(f"{self.permutations.symbol}{n}" for n in self.orbit_sizes if n > 1 or self.signed)
        return f"({of_a_cell})^{math.prod(self.cells)}" if self.cells else of_a_cell or "S1"


def as_permutation(name: str, part: Part) -> Any:
    """The permutations of a part, which have to be numbers before JAX can look at them."""
    return jnp.asarray(as_real_array(Hard.of(part).permutation, f"Element of group {name!r}"))


def _check_signs(name: str, sign: Any, shape: tuple[int, ...]) -> None:
    if shape_of(sign, f"Element of group {name!r}: sign") != shape:
        raise SymmetryError(
            f"Element of group {name!r}: the permutation has shape {shape} and the sign {np.shape(sign)}; give one "
            "sign for each index."
        )
    if isinstance(sign, Tracer):
        return
    signs = np.asarray(as_real_array(sign, f"Element of group {name!r}: sign"))
    wrong = signs[~((signs == 1) | (signs == -1))] if signs.dtype != bool else signs.ravel()
    if wrong.size:
        raise SymmetryError(f"Element of group {name!r}: signs must be 1 or -1; got {wrong[0]}.")
