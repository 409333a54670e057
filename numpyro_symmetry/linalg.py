"""Linear algebra at full precision, and batches that a CPU takes one by one. Knows only arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

# longer batches would make programs that take long to compile
_UNROLLED = 16


def product(left: Array, right: Array) -> Array:
    """Matrix product in the precision of its arguments: accelerators round them to fewer bits unless told not to."""
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)


def row_sums(values: Array) -> Array:
    """Sums along the last axis, as a product: a CPU adds up a row one number at a time."""
    return product(values, jnp.ones(values.shape[-1], values.dtype))


def row_means(values: Array) -> Array:
    """Means along the last axis, likewise."""
    return row_sums(values) / values.shape[-1]


def once(values: Array) -> Array:
    """Keep whatever computes the values from being fused into, and repeated by, each of their consumers."""
    return lax.optimization_barrier(values)


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays whose batches are single calls on a CPU, where batched products leave the fast kernels.

    On an accelerator a batch stays a batch. Not differentiable as it is: for use within rules of differentiation.
    """
    single = jax.custom_batching.custom_vmap(function)

    @single.def_vmap
    def _(size: int, batched: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        # the rule itself and not the function, so that a batch of batches is taken apart too
        def one(index: int | Array) -> Any:
            return single(*jax.tree.map(lambda x, is_batched: x[index] if is_batched else x, args, tuple(batched)))

        if jax.default_backend() != "cpu":
            axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched))
            found = jax.vmap(function, axes)(*args)
        elif size > _UNROLLED:
            found = lax.map(one, jnp.arange(size))
        else:
            found = jax.tree.map(lambda *each: jnp.stack(each), *map(one, range(size)))
        return found, jax.tree.map(lambda _: True, found)

    return single


def scalar_one_by_one(function: Callable[..., Array]) -> Callable[..., Array]:
    """A scalar function of real arrays that a CPU evaluates, and differentiates, one draw of a batch after the other.

    A scalar's gradient is all that its reverse mode ever needs, so that value and gradient are one call. Reverse mode
    only, and once.
    """
    value, value_and_gradient = one_by_one(function), one_by_one(_with_gradient(function))
    rule = jax.custom_vjp(value)
    rule.defvjp(
        value_and_gradient,
        lambda gradient, cotangent: jax.tree.map(lambda x: cotangent.astype(x.dtype) * x, gradient),
    )
    return rule


def _with_gradient(function: Callable[..., Array]) -> Callable[..., tuple[Array, Any]]:
    def both(*args: Any) -> tuple[Array, Any]:
        found, backward = jax.vjp(function, *args)
        return found, backward(jnp.ones_like(found))

    return both
