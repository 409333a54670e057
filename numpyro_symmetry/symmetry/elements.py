"""Algebra of group elements: ``(g·w)[i] = w[g[i]]``.

An element maps each group's name to an integer array ``(..., n)``; for a signed group to a
`SignedPermutation`. Leading dimensions are a batch. A group named ``"head/unit"`` is fibred over the
label ``"head"``: its array is ``(..., heads, n)``, a permutation of the units for each head. Knows
neither sites nor axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from numpyro_symmetry.symmetry.errors import SymmetryError
from numpyro_symmetry.symmetry.groups import Group, as_permutation
from numpyro_symmetry.symmetry.hard import Element, Hard, Part, fibred_over, inverted, permutation_of, then


def broadcast(*shapes: tuple[int, ...]) -> bool:
    """Whether leading shapes broadcast against each other."""
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
        shape, labels = as_permutation(name, part).shape, fibred_over(name)
        cells = shape[max(len(shape) - 1 - len(labels), 0) : -1]
        known = tuple(
            permutation_of(g[label]).shape[-1] if label in g else n
            for label, n in zip(labels, cells + (0,) * (len(labels) - len(cells)), strict=True)
        )
        Group.of(None, signed=Hard.of(part).sign is not None)._replace(over=labels, cells=known).check(name, part)


def batch_of(name: str, part: Part) -> tuple[int, ...]:
    """Leading shape of one group's part of an element."""
    shape = np.shape(Hard.of(part).permutation)
    return tuple(shape[: len(shape) - 1 - len(fibred_over(name))])


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
    check_element(g)
    check_element(h)
    if set(g) != set(h):
        raise SymmetryError(f"Cannot compose elements of the groups {sorted(g)} and {sorted(h)}.")
    for name, part in h.items():
        Group.of(permutation_of(g[name]).shape[-1], signed=Hard.of(g[name]).sign is not None).check(name, part)
        batches = batch_of(name, g[name]), batch_of(name, part)
        if not broadcast(*batches):
            raise SymmetryError(
                f"Cannot compose batches of {batches[0]} and {batches[1]} elements of group {name!r}: the shapes do "
                "not broadcast."
            )
    first, step = ({name: Hard.of(x[name]).each(jnp.asarray) for name in g} for x in (h, g))
    return {name: part.part() for name, part in then(first, step).items()}


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
    back = inverted({name: Hard.of(part).each(jnp.asarray) for name, part in g.items()})
    return {name: back[name].part() for name in g}


def transpositions_at_random(n: int) -> tuple[float, float]:
    r"""Mean :math:`n - \sum_k 1/k` and variance of the number of transpositions of a permutation drawn uniformly.

    The k-th unit closes a cycle with probability 1/k, whatever the others do.
    """
    closes = 1.0 / np.arange(1, n + 1)
    return n - closes.sum(), (closes * (1.0 - closes)).sum()


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

    def count(part: Part) -> Any:
        permutation: Any = Hard.of(part).permutation
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
    return {name: count(part) for name, part in g.items()}
