"""A program traced in single precision, evaluated in double.

With double precision enabled whole numbers are 64-bit ones too, so that a loop whose carry is an ``int32``, or a
``float32``, no longer is what it was: JAX cannot trace such models in double. Widened, whole numbers stay what they
are, and real ones become double wherever they stand. Knows programs; no models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.models.compat import body_of, consts_of, inlined, only_prints, over_shards
from numpyro_symmetry.models.rewritten import applied

# operations that look at bits of numbers, or leave JAX, get numbers in the precision that they were traced for
_BY_BITS = ("bitcast_convert_type", "pure_callback", "io_callback", "debug_callback", "ffi_call", "nextafter")


def evaluated(body: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Results of a program, its real numbers in double precision.

    To be called, as to be traced, where double precision is enabled.
    """
    wide_args = list(map(_wide, args))
    return inlined(body, consts, wide_args, lambda value, aval: _wide(value, getattr(aval, "dtype", None)), _step)


def _step(equation: Any, operands: list[Any]) -> list[Any]:
    if only_prints(equation):
        return []
    primitive, params = equation.primitive, equation.params
    if primitive.name == "shard_map":
        # only the map binds the axis that its program names
        return over_shards(params, lambda *args: tuple(evaluated(params["jaxpr"], (), args)))(*operands)
    if primitive.name in _BY_BITS:
        operands = [
            jnp.asarray(x, v.aval.dtype) if _is_real(v.aval) else x
            for x, v in zip(operands, equation.invars, strict=True)
        ]
    else:
        params = {name: _param(value) for name, value in params.items()}
    return list(map(_wide, applied(primitive, operands, params)))


def _param(value: Any) -> Any:
    """A parameter of an operation for double precision: types, and programs within it."""
    if isinstance(value, tuple | list):
        make = getattr(type(value), "_make", type(value))
        return make(map(_param, value))
    if hasattr(body_of(value), "eqns"):
        return _program(value)
    return wide_type(value) if isinstance(value, np.dtype) else value


def _program(program: Any) -> Any:
    """A program within an operation, traced anew for double precision."""
    body = body_of(program)
    shapes = [v.aval.update(dtype=wide_type(v.aval.dtype), weak_type=False) for v in body.invars]
    if program is body and body.constvars:
        raise NotImplementedError("a program within an operation that has constants of its own")
    closed = jax.make_jaxpr(lambda *args: evaluated(body, consts_of(program), args))(*shapes)
    return closed if hasattr(program, "consts") else closed.jaxpr


def _is_real(aval: Any) -> bool:
    return jnp.issubdtype(getattr(aval, "dtype", bool), jnp.inexact)


def narrow_type(dtype: Any) -> Any:
    """A type of real or complex numbers in single precision; another as it is."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return dtype
    return {np.dtype(np.float64): np.float32, np.dtype(np.complex128): np.complex64}.get(np.dtype(dtype), dtype)


def wide_type(dtype: Any) -> Any:
    """A type of real or complex numbers in double precision; another as it is."""
    if jnp.issubdtype(dtype, jnp.floating):
        return np.dtype(np.float64)
    return np.dtype(np.complex128) if jnp.issubdtype(dtype, jnp.complexfloating) else dtype


def _wide(value: Any, dtype: Any = None) -> Any:
    """A value with its real numbers in double precision; of an own type, such as keys, as it is."""
    dtype = getattr(value, "dtype", dtype) if dtype is None else dtype
    if dtype is None or jnp.issubdtype(dtype, jax.dtypes.prng_key) or not jnp.issubdtype(dtype, jnp.inexact):
        return value if hasattr(value, "dtype") or dtype is None else np.asarray(value, dtype)
    # a reference is no array, and of the type of what it was made for
    return value if getattr(value, "dtype", None) == wide_type(dtype) else jnp.asarray(value, wide_type(dtype))
