"""Algebra of group elements: ``(g·w)[i] = w[g[i]]``.

An element maps each group's name to an integer array ``(..., n)``; for a signed group to a
`SignedPermutation`. Leading dimensions are a batch. A group named ``"head/unit"`` is fibred over the
label ``"head"``: its array is ``(..., heads, n)``, a permutation of the units for each head. Knows
neither sites nor axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from numpyro_symmetry.symmetry.arguments import as_real_array, shape_of
from numpyro_symmetry.symmetry.errors import SymmetryError


class SignedPermutation(NamedTuple):
    """Element of a signed group: ``(g·w)[i] = sign[i] * w[permutation[i]]``.

    Attributes
    ----------
    permutation
        Integer array ``(..., n)``.
    sign
        Array ``(..., n)`` of ±1.
    """

    permutation: ArrayLike
    sign: ArrayLike


Part = ArrayLike | SignedPermutation
Element = dict[str, Part]


def over(name: str) -> tuple[str, ...]:
    """Labels over which a group is fibred, outermost first: ``("a", "a/b")`` for ``"a/b/c"``."""
    return tuple(accumulate(name.split("/"), "{}/{}".format))[:-1]


def permutation_of(part: Part) -> Array:
    """The permutation of one group's part of an element, without its signs."""
    return jnp.asarray(part.permutation if isinstance(part, SignedPermutation) else part)


def check_part(
    name: str,
    part: Part,
    size: int | None,
    *,
    signed: bool,
    cells: tuple[int, ...] = (),
    orbits: tuple[int, ...] | None = None,
) -> None:
    """Refuse a part of an element that is not of the group's kind or size, or that is no permutation with signs ±1.

    Raises
    ------
    SymmetryError
        Naming the group, what was expected and what came. Traced indices and signs are not looked at.
    """
    if isinstance(part, SignedPermutation) != signed:
        expected = "a SignedPermutation(permutation, sign)" if signed else "an integer array, without signs"
        raise SymmetryError(f"Element of group {name!r}: expected {expected}; got {type(part).__name__}.")
    _refuse_no_array(name, part)
    permutation = permutation_of(part)
    if not jnp.issubdtype(permutation.dtype, jnp.integer) or permutation.ndim == 0:
        raise SymmetryError(
            f"Element of group {name!r}: expected integers (..., {'n' if size is None else size}); got "
            f"{permutation.dtype}{permutation.shape}."
        )
    n = permutation.shape[-1]
    if size is not None and n != size:
        raise SymmetryError(f"Element of group {name!r} permutes {n} indices; expected {size}.")
    if permutation.ndim <= len(cells) or permutation.shape[-1 - len(cells) : -1] != cells:
        raise SymmetryError(
            f"Element of group {name!r} has shape {permutation.shape}; expected (..., {str((*cells, n))[1:-1]}), a "
            f"permutation for each position of {over(name)}."
        )
    if isinstance(part, SignedPermutation):
        _check_signs(name, part.sign, permutation.shape)
    if isinstance(permutation, Tracer):
        return
    index = np.asarray(permutation)
    if ((index < 0) | (index >= n)).any():
        raise SymmetryError(f"Element of group {name!r} points outside 0 … {n - 1}; got {index.min()} … {index.max()}.")
    if (np.sort(index, -1) != np.arange(n)).any():
        wrong = index.reshape(-1, n)[(np.sort(index, -1) != np.arange(n)).reshape(-1, n).any(-1)][0]
        raise SymmetryError(
            f"Element of group {name!r} is no permutation: each of 0 … {n - 1} must stand in it once, or entries "
            f"would be lost; got {np.array2string(wrong, threshold=8, separator=', ')}."
        )
    if orbits is not None and (np.asarray(orbits)[index] != np.asarray(orbits)).any():
        raise SymmetryError(f"Element of group {name!r} moves indices between its orbits {orbits}.")


def _refuse_no_array(name: str, part: Any) -> Any:
    """The permutations of a part, which have to be numbers before JAX can look at them."""
    permutation = part.permutation if isinstance(part, SignedPermutation) else part
    return as_real_array(permutation, f"Element of group {name!r}")


def _check_signs(name: str, sign: ArrayLike, shape: tuple[int, ...]) -> None:
    if shape_of(sign, f"Element of group {name!r}: sign") != shape:
        raise SymmetryError(
            f"Element of group {name!r}: the permutation has shape {shape} and the sign {np.shape(sign)}; give one "
            "sign for each index."
        )
    if isinstance(sign, Tracer):
        return
    signs = as_real_array(sign, f"Element of group {name!r}: sign")
    wrong = signs[~((signs == 1) | (signs == -1))] if signs.dtype != bool else signs.ravel()
    if wrong.size:
        raise SymmetryError(f"Element of group {name!r}: signs must be 1 or -1; got {wrong[0]}.")


def broadcast(*shapes: tuple[int, ...]) -> bool:
    """Whether leading shapes go together."""
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def check_element(g: Any) -> None:
    """Refuse what is no element, as far as that can be seen without its symmetry.

    Raises
    ------
    TypeError
        If it is no mapping.
    SymmetryError
        If a part of it is no permutation, or its parts do not fit each other.
    """
    if not isinstance(g, Mapping):
        raise TypeError(
            f"An element maps the name of each group to a permutation, such as {{'hidden': jnp.array([1, 0])}}; got "
            f"{type(g).__name__}."
        )
    for name, part in g.items():
        shape = np.shape(_refuse_no_array(name, part))
        labels = over(name)
        cells = shape[max(len(shape) - 1 - len(labels), 0) : -1]
        known = tuple(
            permutation_of(g[label]).shape[-1] if label in g else n
            for label, n in zip(labels, cells + (0,) * (len(labels) - len(cells)), strict=True)
        )
        check_part(name, part, None, signed=isinstance(part, SignedPermutation), cells=known)


def batch_of(name: str, part: Part) -> tuple[int, ...]:
    """Leading shape of one group's part of an element."""
    shape = np.shape(part.permutation if isinstance(part, SignedPermutation) else part)
    return tuple(shape[: len(shape) - 1 - len(over(name))])


def compose(g: Element, h: Element) -> Element:
    """Compose two elements: first ``h``, then ``g``, so ``apply(compose(g, h), w) == apply(g, apply(h, w))``.

    On permutations this is ``h[g]``; signs multiply along the way.

    Parameters
    ----------
    g, h
        Elements of one symmetry; their batch dimensions broadcast.

    Returns
    -------
    dict
        The element ``gh``.

    Raises
    ------
    SymmetryError
        If the two have different groups, kinds or sizes, their batches do not broadcast, or one of them is no
        permutation (with signs ±1).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import compose, inverse
    >>> g = {"hidden": jnp.array([1, 2, 0])}
    >>> compose(g, inverse(g))["hidden"].tolist()
    [0, 1, 2]
    """

    def one(name: str) -> Part:
        a, b = g[name], h[name]
        then = permutation_of(a)
        permutation = _gather(_at_source(permutation_of(b), name, g), then)
        if isinstance(a, SignedPermutation) and isinstance(b, SignedPermutation):
            sign = _gather(_at_source(jnp.asarray(b.sign), name, g), then)
            return SignedPermutation(permutation, jnp.asarray(a.sign) * sign)
        return permutation

    check_element(g)
    check_element(h)
    if set(g) != set(h):
        raise SymmetryError(f"Cannot compose elements of the groups {sorted(g)} and {sorted(h)}.")
    for name, part in h.items():
        size = permutation_of(g[name]).shape[-1]
        check_part(name, part, size, signed=isinstance(g[name], SignedPermutation))
        batches = batch_of(name, g[name]), batch_of(name, part)
        if not broadcast(*batches):
            raise SymmetryError(
                f"Cannot compose batches of {batches[0]} and {batches[1]} elements of group {name!r}: the shapes do "
                "not broadcast."
            )
    return {name: one(name) for name in g}


def inverse(g: Element) -> Element:
    """Inverse of an element, ``argsort`` of its permutations.

    Parameters
    ----------
    g
        Element, possibly batched.

    Returns
    -------
    dict
        The element ``g⁻¹``.

    Raises
    ------
    SymmetryError
        If a part of it is no permutation (with signs ±1).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import inverse
    >>> inverse({"hidden": jnp.array([1, 2, 0])})["hidden"].tolist()
    [2, 0, 1]
    """
    check_element(g)
    result: Element = {}
    # a fibred group's permutations go where the labels it is fibred over came from, so those are inverted first
    for name in sorted(g, key=lambda name: name.count("/")):
        part = g[name]
        back = jnp.argsort(permutation_of(part), axis=-1)
        moved = _at_source(back, name, result)
        if isinstance(part, SignedPermutation):
            sign = _gather(jnp.asarray(part.sign), back)
            result[name] = SignedPermutation(moved, _at_source(sign, name, result))
        else:
            result[name] = moved
    return {name: result[name] for name in g}


def num_transpositions(g: Element) -> dict[str, Any]:
    """Number of transpositions of each permutation: ``NoT(g) = n - #cycles(g)``, fixed points being cycles.

    A uniformly random permutation has ``n - H_n`` on average (505.2 for n = 512): always show the two together.

    Parameters
    ----------
    g
        Element, possibly batched ``(..., n)``. Signs are ignored.

    Returns
    -------
    dict
        Group name -> integer array of the batch shape; NumPy's, but under `jit` JAX's.

    Raises
    ------
    SymmetryError
        If a part of it is no permutation.

    References
    ----------
    Xiao, Liu and Bamler (2023), *A Compact Representation for Bayesian Neural Networks By Removing Permutation
    Symmetry*, arXiv:2401.00611.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import num_transpositions
    >>> int(num_transpositions({"hidden": jnp.array([3, 0, 4, 1, 2])})["hidden"])
    3
    """

    def one(part: Part) -> Any:
        permutation: Any = permutation_of(part)
        xp: Any = jnp if isinstance(permutation, Tracer) else np
        permutation = xp.asarray(permutation)
        n = permutation.shape[-1]
        # the smallest index on each cycle, by doubling: after s rounds it has looked 2^s steps ahead
        smallest, reach = xp.broadcast_to(xp.arange(n), permutation.shape), permutation
        for _ in range(max(n - 1, 0).bit_length()):
            smallest = xp.minimum(smallest, xp.take_along_axis(smallest, reach, -1))
            reach = xp.take_along_axis(reach, reach, -1)
        return n - (smallest == xp.arange(n)).sum(-1)

    check_element(g)
    return {name: one(part) for name, part in g.items()}


def _gather(values: Array, index: Array, axis: int = -1) -> Array:
    ndim = max(values.ndim, index.ndim)
    values, index = (x.reshape((1,) * (ndim - x.ndim) + x.shape) for x in (values, index))
    return jnp.take_along_axis(values, index, axis=axis)


def _at_source(values: Array, name: str, g: Element) -> Array:
    """What a fibred group holds for each cell ``(..., *cells, n)``, read at the cell that ``g`` brings there."""
    labels = over(name)
    for k, label in enumerate(labels):
        if label in g:
            depth = len(labels) - k
            index = permutation_of(g[label])
            values = _gather(values, index.reshape(index.shape + (1,) * depth), -1 - depth)
    return values
