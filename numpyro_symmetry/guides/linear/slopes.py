r"""The matrix of an affine function of several arrays, by products with the smaller of the two identities.

A network's last layer is such a function of its weights, and its product with an identity costs what it does with any
matrix: n² products of N rows for n units by columns, N² n by rows. Knows arrays only.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Arrays = dict[str, Array]


def in_rows(values: Array, num_outputs: int) -> Array:
    """An array as a vector, or as rows of outputs."""
    return values.reshape(-1, num_outputs) if num_outputs else jnp.ravel(values)


def value_and_slopes(function: Callable[[Arrays], Arrays], start: Arrays, num_outputs: int) -> tuple[Arrays, Arrays]:
    """An affine function where it starts, and its slopes.

    Parameters
    ----------
    function
        Of arrays by name, to arrays by name.
    start
        Where it starts.
    num_outputs
        How many outputs, along the last axis of all its arguments and values, share their slopes; 0 if none do.

    Returns
    -------
    tuple
        Its values, and for every argument the slopes of all rows, ``(N, P_k)``, over it.
    """
    outputs = max(1, num_outputs)
    values = jax.eval_shape(function, start)
    num_rows = sum(math.prod(value.shape) for value in values.values()) // outputs
    num_columns = sum(value.size for value in start.values()) // outputs
    return (by_columns if num_columns <= num_rows else by_rows)(function, start, outputs)


def by_columns(function: Callable[[Arrays], Arrays], start: Arrays, outputs: int) -> tuple[Arrays, Arrays]:
    """Move the arguments one direction after the other."""
    at_start, along = jax.linearize(function, start)
    still = jax.tree.map(jnp.zeros_like, start)

    def slope(name: str) -> Array:
        # outputs that share their slopes are moved together, and the first of them is read
        def column(direction: Array) -> Array:
            moved = along({**still, name: jnp.repeat(direction, outputs).reshape(start[name].shape)})
            return jnp.concatenate([in_rows(values, outputs)[:, 0] for values in moved.values()])

        return jax.vmap(column)(jnp.eye(start[name].size // outputs, dtype=start[name].dtype)).T

    return at_start, {name: slope(name) for name in start}


def by_rows(function: Callable[[Arrays], Arrays], start: Arrays, outputs: int) -> tuple[Arrays, Arrays]:
    """Pull the rows back one after the other."""
    at_start, back = jax.vjp(function, start)
    stops = np.cumsum([values.size // outputs for values in at_start.values()])

    # of outputs that share their slopes the first is pulled back, on which each of them may depend
    def row(direction: Array) -> Arrays:
        pieces = zip(at_start.items(), jnp.split(direction, stops[:-1]), strict=True)
        (along,) = back({name: jnp.zeros_like(in_rows(values, outputs)).at[:, 0].set(piece).reshape(values.shape)
                         for (name, values), piece in pieces})  # fmt: skip
        return {name: in_rows(values, outputs).sum(1) for name, values in along.items()}

    return at_start, jax.vmap(row)(jnp.eye(int(stops[-1]), dtype=jnp.result_type(*at_start.values())))
