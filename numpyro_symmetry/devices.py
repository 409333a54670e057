"""Arrays over devices and processes: functions of many items, each device at its own, and results brought together.

JAX's own sharding does the work. A function is mapped over shards and not left to the compiler, which would have
devices wait for each other in every step of a loop, and gather what is taken one by one. Knows only arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def as_sharding(sharding: Any, count: int, what: str) -> NamedSharding | None:
    """How so many items lie over devices, along their first axis.

    Raises
    ------
    TypeError
        If it is no `NamedSharding`.
    ValueError
        If it spreads another axis, or the devices do not divide the items.
    """
    if sharding is None:
        return None
    if not isinstance(sharding, NamedSharding):
        raise TypeError(
            f"sharding must be a jax.sharding.NamedSharding, such as NamedSharding(mesh, PartitionSpec('device')); got "
            f"{sharding!r}."
        )
    if len(sharding.spec) != 1 or not _axes(sharding):
        raise ValueError(
            f"sharding must spread one axis, that of {what}, over axes of the mesh {dict(sharding.mesh.shape)}; got "
            f"{sharding.spec}. Write PartitionSpec({next(iter(sharding.mesh.shape))!r})."
        )
    parts = num_parts(sharding)
    if count % parts:
        fewer = max(k for k in range(1, parts) if count % k == 0)
        raise ValueError(
            f"{what} is {count}, which the {parts} devices of sharding do not divide. Take {count + -count % parts} of "
            f"them, or a mesh of {fewer} device{'s' * (fewer > 1)}."
        )
    return sharding


def over_local_devices(count: int) -> NamedSharding | None:
    """So many items over as many of this process's devices as divide them; ``None`` where that is one."""
    devices = jax.local_devices()
    parts = max(k for k in range(1, len(devices) + 1) if count % k == 0)
    return None if parts == 1 else NamedSharding(Mesh(np.array(devices[:parts]), ("item",)), PartitionSpec("item"))


def sharding_of(array: Any, *, beside: int) -> NamedSharding | None:
    """How an array lies over devices along its first axis, and along none of so many last ones; ``None`` otherwise."""
    sharding = None if isinstance(array, Tracer) else getattr(array, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not _axes(sharding) or array.ndim <= beside:
        return None
    return sharding if all(name is None for name in sharding.spec[1:]) else None


def num_parts(sharding: NamedSharding | None) -> int:
    """In how many parts items are taken, one for each device."""
    return 1 if sharding is None else math.prod(sharding.mesh.shape[name] for name in _axes(sharding))


def each_at_its_own(function: Callable[..., Any], sharding: NamedSharding | None, num_items: int) -> Callable[..., Any]:
    """A function whose first so many arguments have an axis of items in front, each device at its own of them.

    What other arguments hold is the same for all items, and may lie over other axes of the mesh; results have an axis
    of items in front.
    """
    if sharding is None:
        return function
    items, names = PartitionSpec(_axes(sharding)), frozenset(_axes(sharding))

    def mapped(*args: Any) -> Any:
        specs = tuple(items if k < num_items else PartitionSpec() for k in range(len(args)))
        # JAX does not know that results of custom rules on replicated values are replicated
        spread = jax.shard_map(
            function, mesh=sharding.mesh, in_specs=specs, out_specs=items, axis_names=names, check_vma=False
        )
        return spread(*args)

    return mapped


def laid_over(tree: Any, sharding: NamedSharding | None) -> Any:
    """Arrays that every process has whole, laid over devices, of other processes as well."""
    if sharding is None:
        return tree

    def laid(value: Any) -> Any:
        # off the device it may have been put on, for JAX moves nothing from there to devices of other processes
        return jax.device_put(np.asarray(gathered(value)), sharding)

    return jax.tree.map(partial(_of_numbers, laid), tree)


def gathered(tree: Any) -> Any:
    """Arrays that lie over several devices as arrays of NumPy, of other processes as well; all else as it is.

    While something is being traced everything stays where it is.
    """
    return tree if isinstance(jnp.zeros(()), Tracer) else jax.tree.map(_gathered, tree)


def within_reach(tree: Any) -> Any:
    """Arrays of which other processes hold parts as arrays of NumPy, for no program can hold those as constants.

    All else stays where it is, and everything does while something is being traced.
    """
    return jax.tree.map(lambda value: value if _is_addressable(value) else gathered(value), tree)


def _gathered(value: Any) -> Any:
    if not isinstance(value, Array) or isinstance(value, Tracer) or len(value.sharding.device_set) == 1:
        return value
    return _of_numbers(_in_one_piece, value)


def _is_addressable(value: Any) -> bool:
    return not isinstance(value, Array) or isinstance(value, Tracer) or value.is_fully_addressable


def _in_one_piece(value: Array) -> np.ndarray:
    if value.is_fully_addressable or value.is_fully_replicated:
        return np.asarray(value)
    return np.asarray(multihost_utils.process_allgather(value, tiled=True))


def _of_numbers(function: Callable[[Array], Any], value: Any) -> Any:
    """A function of arrays of numbers; of random keys by their bits, for JAX moves no keys between processes."""
    if not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return function(value)
    return jax.random.wrap_key_data(function(jax.random.key_data(value)), impl=jax.random.key_impl(value))


def _axes(sharding: NamedSharding) -> tuple[str, ...]:
    """Axes of the mesh over which the first axis lies."""
    first = sharding.spec[0] if len(sharding.spec) else None
    return () if first is None else first if isinstance(first, tuple) else (first,)
