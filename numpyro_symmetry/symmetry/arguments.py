"""Arguments that every layer takes: keys, counts, options, a model's arguments, arrays, and what cannot run under jit.

A check returns the argument as the package uses it, or says which argument it was, what is expected, what came, and
what to write instead. Knows neither symmetries nor models.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from numpyro_symmetry.devices import within_reach
from numpyro_symmetry.symmetry.errors import SymmetryError
from numpyro_symmetry.symmetry.nouns import MODEL, Nouns
from numpyro_symmetry.symmetry.shown import counted, some_of


def as_key(rng_key: Any) -> Array:
    """A single JAX random key, of the new kind or of the old.

    Raises
    ------
    TypeError
        If it is no key: an integer, say.
    """
    remedy = "rng_key must be one JAX random key, such as jax.random.key(0)"
    if not hasattr(rng_key, "dtype") or isinstance(rng_key, np.generic):
        raise TypeError(f"{remedy}; got {in_short(rng_key)}.")
    if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key):
        if rng_key.shape:
            raise TypeError(f"{remedy}; got keys of shape {rng_key.shape}.")
        return rng_key
    refusal = TypeError(f"{remedy}; got an array of {rng_key.dtype}{tuple(rng_key.shape)}.")
    if rng_key.dtype != np.uint32 or rng_key.ndim != 1:
        raise refusal
    try:  # numbers of another generator than the one in force are none of its keys
        typed = jax.random.wrap_key_data(jnp.asarray(rng_key))
    except TypeError:
        raise refusal from None
    return jnp.asarray(rng_key) if rng_key.shape == (2,) else typed  # NumPyro takes raw keys of two numbers alone


def key_or_fixed(rng_key: Any) -> Array:
    """A JAX random key; the same one every time where there is none."""
    return jax.random.key(0) if rng_key is None else as_key(rng_key)


def seed_of(rng_key: Any) -> list[int]:
    """Entropy for NumPy's generators from a JAX key; a fixed one where there is none."""
    if rng_key is None:
        return [0]
    key = as_key(rng_key)
    refuse_tracers("A search that a key steers", rng_key=key)
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return np.asarray(data).ravel().tolist()


def as_count(value: Any, name: str, *, minimum: int = 1, meaning: str = "") -> int:
    """A whole number that is at least ``minimum``.

    Raises
    ------
    TypeError
        If it is no whole number.
    ValueError
        If it is too small.
    """
    why = f" ({meaning})" if meaning else ""
    if isinstance(value, bool | np.bool_) or isinstance(value, Tracer):
        raise TypeError(f"{name} must be a whole number{why}; got {in_short(value)}.")
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number{why}; got {in_short(value)}.") from None
    if count < minimum:
        raise ValueError(f"{name} must be at least {minimum}{why}; got {count}.")
    return count


def as_probability(value: Any, name: str, what: str = "a probability") -> float:
    """A number between 0 and 1, neither of them.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    if not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"{name} must be {what} between 0 and 1; got {in_short(value)}.")
    return float(value)


def as_flag(value: Any, name: str) -> bool:
    """True or False, and nothing that merely counts as one of them.

    Raises
    ------
    TypeError
        If it is neither.
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False; got {in_short(value)}.")
    return bool(value)


def is_option(value: Any, options: Iterable[str]) -> TypeGuard[str]:
    """Whether a value is one of several words; frames and arrays are asked for no equality, which they spread."""
    return isinstance(value, str) and value in tuple(options)


def as_option(value: Any, name: str, options: Collection[str]) -> str:
    """One of several words.

    Raises
    ------
    ValueError
        If it is none of them.
    """
    if not is_option(value, options):
        raise ValueError(f"{name} must be one of {options}; got {value!r}.")
    return value


def as_names(value: Any, name: str, *, example: str) -> tuple[str, ...]:
    """Several names, as a tuple.

    Raises
    ------
    TypeError
        If it is a bare string, or holds anything but strings.
    """
    names = None if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if names is None or not all(isinstance(x, str) for x in names):
        raise TypeError(f"{name} must be a tuple of names, such as {example}; got {in_short(value)}.")
    return names


def as_mapping(value: Any, name: str, *, example: str, by: str = "site") -> dict[str, Any]:
    """A mapping from names of sites or the like, as a dict; an empty one where there is none.

    Raises
    ------
    TypeError
        If it is anything else.
    """
    if not isinstance(value, Mapping | None):
        raise TypeError(f"{name} must be a mapping by {by}, such as {example}; got {in_short(value)}.")
    return dict(value or {})


def as_model_arguments(args: Any, kwargs: Any, of: Nouns = MODEL) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A model's positional and keyword arguments, those of other processes too.

    Raises
    ------
    TypeError
        If ``model_args`` is one argument and not a tuple of them, or ``model_kwargs`` is no mapping.
    """
    if not isinstance(args, tuple | list):
        what = f"an array {tuple(args.shape)}" if hasattr(args, "shape") else in_short(args)
        raise TypeError(f"model_args must be a tuple of the {of.whole}'s arguments, not {what}: write (y,).")
    if not (kwargs is None or isinstance(kwargs, Mapping)):
        raise TypeError(
            f"model_kwargs must be a mapping from names to the {of.whole}'s arguments; got {in_short(kwargs)}. "
            "What is none of these goes by its own name, such as symmetry=."
        )
    return within_reach((tuple(args), dict(kwargs or {})))


def as_function(value: Any, name: str, *takes: str) -> Callable[..., Any]:
    """A function that takes so many arguments.

    Raises
    ------
    TypeError
        If it cannot be called, or not with as many.
    """
    expected = f"{name} must be a function of {' and '.join(takes)}"
    if not callable(value):
        raise TypeError(f"{expected}; got {type(value).__name__}.")
    try:
        inspect.signature(value).bind(*takes)
    except TypeError as error:
        raise TypeError(f"{expected}; this one cannot be called with {len(takes)} arguments: {error}.") from error
    except ValueError:  # it does not say what it takes
        pass
    return value


@contextlib.contextmanager
def staying_in_jax(name: str) -> Iterator[None]:
    """Say which function it was that left JAX while it was compiled.

    Raises
    ------
    TypeError
        If it was handed to NumPy, turned into a number of Python, or branched on values.
    """
    try:
        yield
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        raise TypeError(
            f"{name} is compiled, and left JAX: write it in jax.numpy, without numpy, float() or branches on values."
        ) from error


def as_shape(value: Any, name: str = "shape") -> tuple[int, ...]:
    """Shape of a batch.

    Raises
    ------
    TypeError
        If it is no tuple of whole numbers.
    ValueError
        If one of them is negative.
    """
    if not isinstance(value, tuple | list):
        raise TypeError(f"{name} must be a tuple of whole numbers, such as (3,); got {value!r}.")
    return tuple(as_count(n, name, minimum=0) for n in value)


def as_array(value: Any, where: str, error: type[Exception] = SymmetryError) -> Any:
    """An array, or a list of numbers, as an array: JAX's if it is of JAX, else NumPy's.

    Raises
    ------
    SymmetryError or ``error``
        If NumPy can make no array of it: ragged lists, containers of several arrays, tensors of other libraries.
    """
    if isinstance(value, jax.Array | np.ndarray):
        return value
    if isinstance(value, list | tuple) and is_traced(value):
        return jnp.asarray(value)
    try:
        return np.asarray(value)
    except Exception as why:  # each library has its own word for it
        raise error(f"{where}: expected an array of real numbers; got {type(value).__name__} ({why}).") from why


def as_numbers(value: Any, where: str, error: type[Exception] = SymmetryError) -> np.ndarray:
    """`as_array` as an array of NumPy.

    Raises
    ------
    SymmetryError or ``error``, TypeError
        As for `as_array`; if it is being traced.
    """
    array = as_array(value, where, error)
    if is_traced(array):
        raise TypeError(
            f"{where} is traced, under jit, vmap or grad, and its numbers are needed. Make the call outside."
        )
    return np.asarray(array)


def is_number(dtype: Any) -> bool:
    """Whether values of a type are numbers, of extension types such as bfloat16 too, or truth values."""
    # NumPy counts spans of time among integers
    is_span = getattr(dtype, "kind", "") == "m"
    return not is_span and (jnp.issubdtype(dtype, np.number) or jnp.issubdtype(dtype, np.bool_))


def is_real(dtype: Any) -> bool:
    """Whether values of a type are real numbers or truth values."""
    return is_number(dtype) and not jnp.issubdtype(dtype, np.complexfloating)


def is_floating(dtype: Any) -> bool:
    """Whether values of a type are floating-point numbers."""
    return jnp.issubdtype(dtype, np.floating)


def rounding_of(dtype: Any) -> float:
    """Relative rounding of a type's numbers; of whole numbers that of double precision."""
    return float(jnp.finfo(dtype).eps if is_floating(dtype) else np.finfo(float).eps)


def as_real_array(value: Any, where: str, error: type[Exception] = SymmetryError) -> Any:
    """Real numbers, as they are, as an array of JAX where they are of JAX, and of NumPy else.

    Raises
    ------
    SymmetryError or ``error``
        If they are complex, or no numbers.
    """
    array = as_array(value, where, error)
    if not is_real(array.dtype):
        got = "" if isinstance(value, jax.Array | np.ndarray) else f" of a {type(value).__name__}"
        raise error(f"{where}: expected real numbers; got values of type {array.dtype}{got}.{to_real(array.dtype)}")
    return array


def to_real(dtype: Any) -> str:
    """How values of a type that is none of real numbers become such, as a sentence; nothing where nobody knows."""
    if is_number(dtype):
        return " Pass their parts, np.stack([x.real, x.imag], -1), along one axis more."
    # columns of a type of pandas' own, and of several types, come as objects
    return " Convert them first, x.astype(float)." if getattr(dtype, "kind", "") in "OSUT" else ""


def shape_of(value: Any, where: str) -> tuple[int, ...]:
    """Shape of an array, or of whatever NumPy can make one of.

    Raises
    ------
    SymmetryError
        If it has no shape: a ragged list.
    """
    shape = getattr(value, "shape", None)
    return tuple(shape) if isinstance(shape, tuple) else tuple(as_array(value, where).shape)


def refuse_masked(values: Mapping[str, Any], what: str = "Site") -> None:
    """Refuse masked arrays: what lies under a mask would be taken for a value.

    Raises
    ------
    SymmetryError
        Naming the site and the remedy.
    """
    for site, value in values.items():
        if isinstance(value, np.ma.MaskedArray):
            count = int(np.ma.count_masked(value))
            raise SymmetryError(
                f"{what} {site!r} is a masked array ({count} of {counted(value.size, 'entry')} masked), and masks are "
                "not looked at. Pass values.filled(...), or drop those draws."
            )


def refuse_masked_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any], of: Nouns = MODEL) -> None:
    """Refuse masked arrays among a model's arguments.

    Raises
    ------
    SymmetryError
        Naming the argument and the remedy.
    """
    for name, leaf in leaves_by_path(model_args=args, model_kwargs=kwargs).items():
        if isinstance(leaf, np.ma.MaskedArray):
            raise SymmetryError(
                f"{name} is a masked array ({int(np.ma.count_masked(leaf))} of {counted(leaf.size, 'entry')} masked), "
                f"and masks are not looked at. Pass its values filled, and the mask to the {of.whole} as an "
                f"argument{of.mask}."
            )


def is_traced(*trees: Any) -> bool:
    """Whether any leaf of these is being traced, and holds no numbers yet."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


def traced_among(**trees: Any) -> str:
    """Which leaves of some arguments are being traced, in words; empty if none is."""
    traced = [name for name, leaf in leaves_by_path(**trees).items() if isinstance(leaf, Tracer)]
    return f"{some_of(traced)} {'is' if len(traced) == 1 else 'are'} traced" if traced else ""


def refuse_tracers(what: str, /, **trees: Any) -> None:
    """Refuse to go on where something is being traced and numbers are needed: under `jit`, constants too.

    Raises
    ------
    TypeError
        Naming what cannot run under `jit`, and which of its arguments is traced.
    """
    if is_traced(trees, jnp.zeros(())):
        traced = traced_among(**trees)
        raise TypeError(
            f"{what} needs numbers and cannot run under jit, vmap or grad{traced and f': {traced}'}. Call it outside, "
            "and pass its result in."
        )


def leaves_by_path(**trees: Any) -> dict[str, Any]:
    """Leaves of some arguments, each under what one would write for it: ``model_args[0]['x']``."""
    leaves = jax.tree_util.tree_leaves_with_path(trees)
    return {path[0].key + jax.tree_util.keystr(path[1:]): leaf for path, leaf in leaves}


def in_short(value: Any) -> str:
    """A value that came, in a few words."""
    if isinstance(value, type):
        return f"the class {value.__name__} (an instance is expected)"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array of {value.dtype}{tuple(value.shape)}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
