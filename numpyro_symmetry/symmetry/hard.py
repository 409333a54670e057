"""Hard assignments: a permutation, and signs where there are any, for each of a batch, in NumPy.

What algorithms work on in place of elements, which they turn into and back. Knows elements; no problems.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.symmetry import Element, Group, SignedPermutation
from numpyro_symmetry.symmetry.elements import Part


class Hard(NamedTuple):
    """A permutation and signs for each of a batch: ``(batch, n)`` each; ``sign`` is ``None`` for unsigned groups."""

    permutation: np.ndarray
    sign: np.ndarray | None = None

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> Hard:
        """The same change to permutation and signs."""
        return Hard(change(self.permutation), None if self.sign is None else change(self.sign))

    def at(self, items: np.ndarray | slice) -> Hard:
        """Some of the batch."""
        return self.each(lambda x: x[items])

    def write(self, items: np.ndarray, new: Hard) -> None:
        """Overwrite some of the batch."""
        self.permutation[items] = new.permutation
        if self.sign is not None:
            self.sign[items] = new.sign

    def inverse(self) -> Hard:
        """What undoes each of the batch."""
        back = np.empty_like(self.permutation)
        # faster than argsort
        np.put_along_axis(back, self.permutation, np.arange(back.shape[-1])[None], 1)
        return Hard(back, None if self.sign is None else np.take_along_axis(self.sign, back, 1))


def identity(group: Group, batch: int) -> Hard:
    """The identity of one group, for each of a batch."""
    permutation = np.broadcast_to(np.arange(group.size or 0), (batch, group.size or 0)).copy()
    return Hard(permutation, np.ones_like(permutation) if group.kind == "signed" else None)


def concatenate(parts: Sequence[Hard]) -> Hard:
    """Several batches of one group as one."""
    signs = [part.sign for part in parts if part.sign is not None]
    return Hard(np.concatenate([part.permutation for part in parts]), np.concatenate(signs) if signs else None)


def from_element(element: Element) -> dict[str, Hard]:
    """Elements ``(*leading, n)`` as one batch."""

    def one(part: Part) -> Hard:
        arrays = part if isinstance(part, SignedPermutation) else (part,)
        return Hard(*(np.asarray(x).reshape(-1, np.shape(x)[-1]) for x in arrays))

    return {name: one(part) for name, part in element.items()}


def to_element(state: dict[str, Hard], leading: tuple[int, ...]) -> Element:
    """One batch as elements ``(*leading, n)``."""

    def one(part: Hard) -> Part:
        arrays = [jnp.asarray(x.reshape(*leading, x.shape[-1])) for x in part if x is not None]
        return arrays[0] if part.sign is None else SignedPermutation(*arrays)

    return {name: one(part) for name, part in state.items()}
