"""A function of many keys, compiled once for arguments of the same shapes, and run in batches beside a progress bar.

Knows arrays and programs; no guide and no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding
from tqdm.auto import tqdm

from numpyro_symmetry.devices import each_at_its_own, gathered, laid_over, num_parts
from numpyro_symmetry.steps import interval
from numpyro_symmetry.symmetry.arguments import is_number, refuse_masked

# keys on each device after which the bar moves on
_KEYS_A_CALL = 64
_LASTING = (bool, int, float, complex, str, bytes, np.generic)
# errors of a function that looks at the numbers in its data while it is traced
_LOOKS_AT_DATA = (TypeError, IndexError)

OfKey = Callable[[Array, Any, tuple, dict[str, Any]], Any]


class Arguments(NamedTuple):
    """A model's arguments, arrays apart from everything else.

    Attributes
    ----------
    arrays
        Arrays, whose numbers may change without anything being compiled again.
    rest
        All leaves, ``None`` in place of arrays.
    structure
        Tree structure of all leaves.
    settings
        What the program depends on beside the numbers in arrays, such as shapes; ``None`` if there are objects that may
        change.
    """

    arrays: list[Any]
    rest: list[Any]
    structure: Any
    settings: tuple[Any, ...] | None

    @staticmethod
    def of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Take arguments apart, into containers of our own: the caller's may change."""
        found, structure = jax.tree_util.tree_flatten_with_path((args, kwargs))
        refuse_masked({jax.tree_util.keystr(path[1:]): leaf for path, leaf in found}, "Argument")
        leaves = [leaf for _, leaf in found]
        rest = [None if _is_array(leaf) else leaf for leaf in leaves]
        lasting = all(leaf is None or isinstance(leaf, _LASTING) for leaf in rest)
        arrays = [leaf for leaf in leaves if _is_array(leaf)]
        shapes = tuple((np.shape(leaf), str(leaf.dtype)) for leaf in arrays)
        # plates, and whether they are whole, are told by shapes
        settings = (structure, shapes, *((type(leaf), leaf) for leaf in rest)) if lasting else None
        return Arguments(arrays, rest, structure, settings)

    def whole(self, arrays: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with these arrays in them."""
        remaining = iter(arrays)
        return jax.tree.unflatten(self.structure, [next(remaining) if x is None else x for x in self.rest])

    def digest(self) -> tuple[Any, ...]:
        """Shape, type and a hash of the numbers of every array."""
        arrays = map(np.asarray, gathered(self.arrays))
        return tuple((a.shape, str(a.dtype), hashlib.blake2b(a.tobytes()).digest()) for a in arrays)


class Spread(NamedTuple):
    """How many keys are taken together, and how they lie over devices; ``None`` where nothing is said of these."""

    together: int
    sharding: NamedSharding | None = None


class Compiled(NamedTuple):
    """A program, and what it was compiled for.

    Attributes
    ----------
    settings
        Those of the arguments, and what else the program depends on; ``None`` if these may have changed since.
    digest
        That of the data, if the program looks at their numbers and holds them as constants.
    function
        What was compiled.
    run
        ``(keys, given, arrays)`` to results ``(keys, ...)``.
    """

    settings: tuple[Any, ...] | None
    digest: tuple[Any, ...] | None
    function: Any
    run: Callable[[Array, Any, list[Any]], Any]


def run_compiled(
    compiled: Compiled | None,
    make: Callable[[], OfKey],
    keys: Array,
    given: Any,
    arguments: Arguments,
    settings: tuple[Any, ...],
    spread: Spread,
    *,
    progress_bar: bool,
) -> tuple[Compiled, Any]:
    """Run a function for every key, with the program of last time if it is for the same.

    Data are arguments of the program, so that other numbers of the same shapes need no other; a function that looks at
    the numbers in its data gets a program for these alone.

    Parameters
    ----------
    compiled
        The program of last time.
    make
        Makes the function ``(rng_key, given, args, kwargs)`` to arrays, if a program has to be compiled.
    keys
        ``(n,)`` random keys.
    given
        Arrays that every call is given.
    arguments
        The model's arguments.
    settings
        What the function depends on besides.
    spread
        How keys are taken.
    progress_bar
        Whether to show a bar.

    Returns
    -------
    compiled
        The program, for the next time.
    results
        What the function returns, ``(n, ...)`` each, in NumPy.
    """
    # a program that was traced in another precision cannot be traced anew from the same functions
    settings = (*settings, spread, arguments.settings, bool(jax.config.jax_enable_x64))  # pyright: ignore
    lasting = None if arguments.settings is None else settings
    fits = compiled is not None and lasting is not None and compiled.settings == lasting
    if compiled is None or not fits or (compiled.digest is not None and compiled.digest != arguments.digest()):
        function = make()
        compiled = Compiled(lasting, None, function, _of_arrays(function, arguments, spread))
        try:
            return compiled, _in_batches(compiled.run, keys, given, arguments.arrays, spread, progress_bar)
        except _LOOKS_AT_DATA:
            compiled = Compiled(lasting, arguments.digest(), function, _of_constants(function, arguments, spread))
    return compiled, _in_batches(compiled.run, keys, given, arguments.arrays, spread, progress_bar)


def _of_arrays(function: OfKey, arguments: Arguments, spread: Spread) -> Callable[[Array, Any, list[Any]], Any]:
    def run(keys: Array, given: Any, arrays: list[Any]) -> Any:
        args, kwargs = arguments.whole(arrays)
        return jax.lax.map(lambda key: function(key, given, args, kwargs), keys, batch_size=spread.together)

    return jax.jit(each_at_its_own(run, spread.sharding, 1))


def _of_constants(function: OfKey, arguments: Arguments, spread: Spread) -> Callable[[Array, Any, list[Any]], Any]:
    # copies: what is traced later must not see what the caller has written since
    args, kwargs = arguments.whole(
        [np.array(a) if isinstance(a, np.ndarray) else a for a in gathered(arguments.arrays)]
    )
    return _of_arrays(lambda key, given, *_: function(key, given, args, kwargs), arguments, spread)


def _in_batches(
    run: Callable[[Array, Any, list[Any]], Any],
    keys: Array,
    given: Any,
    arrays: list[Any],
    spread: Spread,
    progress_bar: bool,
) -> Any:
    """All keys, some at a time, the last of them filled up: a remainder would be compiled apart."""
    n = len(keys)
    size = min(n, _KEYS_A_CALL * num_parts(spread.sharding))
    padded = keys[np.arange(n + -n % size) % n] if n % size else keys
    arrays = [jnp.asarray(array) for array in arrays]
    parts = []
    with tqdm(total=n, disable=not progress_bar, desc="compiling", leave=False, mininterval=interval()) as bar:
        for start in range(0, n, size):
            here = laid_over(padded[start : start + size], spread.sharding)
            parts.append(jax.tree.map(np.asarray, gathered(run(here, given, arrays))))
            bar.set_description("draws", refresh=False)
            bar.update(min(size, n - start))
    return jax.tree.map(lambda *x: np.concatenate(x)[:n], *parts)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, Array) or (isinstance(leaf, np.ndarray) and is_number(leaf.dtype))
