"""One group's part of an element: a permutation, and signs where there are any, for each of a batch, of NumPy or JAX.

Users write a bare array, or a `SignedPermutation`; algorithms work on `Hard`, which is either. Knows no groups' sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike


class SignedPermutation(NamedTuple):
    """Element of a signed group: ``(g·w)[i] = sign[i] * w[permutation[i]]``.

    Attributes
    ----------
    permutation
        Integer array ``(..., n)``.
    sign
        Array ``(..., n)`` of ±1.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry
    >>> from numpyro_symmetry.symmetry import SignedPermutation
    >>> swap = SignedPermutation(np.array([1, 0]), np.array([1, -1]))
    >>> Symmetry({"w": ("unit",)}, {"unit": "signed"}).apply({"unit": swap}, {"w": np.array([3.0, 5.0])})["w"].tolist()
    [5.0, -3.0]
    """

    permutation: ArrayLike
    sign: ArrayLike


class Hard(NamedTuple):
    """A permutation and signs for each of a batch: ``(..., n)`` each; ``sign`` is ``None`` for unsigned groups."""

    permutation: Any
    sign: Any = None

    @staticmethod
    def of(part: Part) -> Hard:
        """A part as a user writes it, or a `Hard` as it is."""
        return Hard(*part) if isinstance(part, Hard | SignedPermutation) else Hard(part)

    def part(self) -> Any:
        """The part as a user writes it: a bare array, or a `SignedPermutation`."""
        return self.permutation if self.sign is None else SignedPermutation(*self)

    def each(self, change: Callable[[Any], Any]) -> Hard:
        """The same change to permutation and signs."""
        return Hard(change(self.permutation), None if self.sign is None else change(self.sign))

    def at(self, items: Any) -> Hard:
        """The members of the batch at ``items``."""
        return members_at(self, items)

    def write(self, items: Any, new: Hard) -> None:
        """Overwrite the members of the batch at ``items``."""
        overwrite(self, items, new)

    def inverse(self) -> Hard:
        """The inverse of each of the batch."""
        if isinstance(self.permutation, np.ndarray):
            # faster than argsort
            back = np.empty_like(self.permutation)
            np.put_along_axis(back, self.permutation, np.broadcast_to(np.arange(back.shape[-1]), back.shape), -1)
        else:
            back = jnp.argsort(self.permutation, axis=-1)
        return Hard(back, None if self.sign is None else taken_along(self.sign, back))

    def is_same(self, other: Hard) -> np.ndarray:
        """For each index of each of the batch, whether another has the same label there, with the same sign."""
        same = self.permutation == other.permutation
        return same if self.sign is None or other.sign is None else same & (self.sign == other.sign)


Some = TypeVar("Some", bound=tuple)


def members_at(part: Some, items: Any) -> Some:
    """The members at ``items`` of a batch that a tuple of arrays, or of ``None``, holds."""
    return type(part)(*(x if x is None else x[items] for x in part))  # pyright: ignore[reportArgumentType]


def overwrite(part: Some, items: Any, new: Some) -> None:
    """Overwrite the members at ``items`` of such a batch."""
    for old, value in zip(part, new, strict=True):
        if old is not None:
            old[items] = value


Part = ArrayLike | SignedPermutation | Hard
Element = dict[str, Part]


def fibred_over(name: str) -> tuple[str, ...]:
    """Labels over which a group is fibred, outermost first: ``("a", "a/b")`` for ``"a/b/c"``."""
    return tuple(accumulate(name.split("/"), "{}/{}".format))[:-1]


def taken_along(values: Any, index: Any, axis: int = -1) -> Any:
    """Entries of an array at indices along one axis; the two broadcast along all others."""
    ndim = max(values.ndim, index.ndim)
    values, index = (x.reshape((1,) * (ndim - x.ndim) + x.shape) for x in (values, index))
    return (np if isinstance(values, np.ndarray) else jnp).take_along_axis(values, index, axis)


def at_source(values: Any, name: str, step: Mapping[str, Hard]) -> Any:
    """A fibred group's array ``(..., *cells, n)``, read for each cell at the cell that ``step`` brings there."""
    labels = fibred_over(name)
    for depth, label in zip(range(len(labels), 0, -1), labels, strict=True):
        if label in step:
            index = step[label].permutation
            values = taken_along(values, index.reshape(index.shape + (1,) * depth), -1 - depth)
    return values


def then(first: Mapping[str, Hard], step: Mapping[str, Hard]) -> dict[str, Hard]:
    """Elements ``(..., *cells, n)``, and then others of some of the groups: units go where their blocks go."""
    both = {name: part.each(lambda x, name=name: at_source(x, name, step)) for name, part in first.items()}
    for name, part in step.items():
        moved = both[name].each(lambda x, part=part: taken_along(x, part.permutation))
        both[name] = moved if moved.sign is None else moved._replace(sign=part.sign * moved.sign)
    return both


def inverted(element: Mapping[str, Hard]) -> dict[str, Hard]:
    """The inverse of elements ``(..., *cells, n)`` of some of the groups."""
    result: dict[str, Hard] = {}
    # a fibred group's permutations go where the labels it is fibred over came from, so those are inverted first
    for name in sorted(element, key=lambda name: name.count("/")):
        result[name] = element[name].inverse().each(lambda x, name=name: at_source(x, name, result))
    return result


def permutation_of(part: Part) -> Array:
    """The permutation of one group's part of an element, without its signs."""
    return jnp.asarray(Hard.of(part).permutation)


def permutations(element: Mapping[str, Part]) -> Element:
    """An element without its signs, as it moves standard deviations."""
    return {name: permutation_of(part) for name, part in element.items()}


def concatenate(parts: Sequence[Hard]) -> Hard:
    """Several batches of one group as one."""
    signs = [part.sign for part in parts if part.sign is not None]
    return Hard(np.concatenate([part.permutation for part in parts]), np.concatenate(signs) if signs else None)


def products(every: Mapping[str, Hard]) -> dict[str, Hard]:
    """Every combination of elements of several groups, as one batch."""
    orders = [len(part.permutation) for part in every.values()]
    chosen = np.indices(orders).reshape(len(orders), math.prod(orders))
    return {name: part.at(index) for (name, part), index in zip(every.items(), chosen, strict=True)}


def from_element(element: Mapping[str, Part]) -> dict[str, Hard]:
    """Elements ``(*leading, *cells, n)`` as one batch, of NumPy."""
    own = {name: -1 - len(fibred_over(name)) for name in element}
    return {
        name: Hard.of(part).each(lambda x, first=own[name]: np.asarray(x).reshape(-1, *np.shape(x)[first:]))
        for name, part in element.items()
    }


def to_element(state: Mapping[str, Hard], leading: tuple[int, ...]) -> Element:
    """One batch as elements ``(*leading, *cells, n)``, in JAX."""
    return {
        name: part.each(lambda x: jax.device_put(x.reshape(*leading, *x.shape[1:]))).part()
        for name, part in state.items()
    }
