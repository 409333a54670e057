"""The parts of a model's arguments that a proof depends on, compared with those of another call. Knows models."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import jax
import numpy as np
from jax import Array

from numpyro_symmetry.devices import gathered
from numpyro_symmetry.guides.inputs import named_arguments
from numpyro_symmetry.models import Model
from numpyro_symmetry.models.data import is_array
from numpyro_symmetry.symmetry.arguments import is_floating

# by name, as in ``scales[0]``: what an argument is, in so far as a proof depends on it
Known = dict[str, Any]
_PLAIN = (bool, int, float, complex, str, bytes)


def known_arguments(model: Model, *, numbers_too: bool) -> Known:
    """The parts of a model's arguments that a proof depends on: the shapes of arrays, and all else as it is.

    Parameters
    ----------
    model
        The model with its arguments.
    numbers_too
        Whether it depends on the numbers in arrays: a symmetry that was found is proved whatever they are.
    """
    args, kwargs = gathered((model.args, model.kwargs))
    try:
        named = named_arguments(model.function, args, kwargs, defaults=True)
    except (TypeError, ValueError):  # a wrapper may take other arguments than it says
        named = {"args": args, "kwargs": kwargs}
    return {
        name + jax.tree_util.keystr(path): _known(leaf, numbers_too)
        for name, value in named.items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(value)
    }


def _known(leaf: Any, numbers_too: bool) -> Any:
    """A leaf as it is compared later: arrays by shape and type, their numbers and mutable objects by a digest."""
    if isinstance(leaf, Array) and not is_array(leaf):  # random keys
        return np.shape(leaf), str(leaf.dtype)
    # a whole number without axes may be a size or a flag
    if is_array(leaf) and (np.ndim(leaf) or is_floating(leaf.dtype)):
        return np.shape(leaf), str(leaf.dtype), _digest(np.asarray(leaf).tobytes()) if numbers_too else None
    if isinstance(leaf, _PLAIN):
        return _name(leaf), leaf
    try:
        return _name(leaf), _digest(pickle.dumps(leaf))
    except Exception:  # a foreign type may raise anything; what cannot be pickled (a lambda) equals only itself
        return leaf


def _name(leaf: Any) -> str:
    return f"{type(leaf).__module__}.{type(leaf).__qualname__}"


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def portable(proved: tuple[Known, ...]) -> tuple[Known, ...]:
    """The proofs that another process can compare too: without objects that equal only themselves."""
    return tuple(known for known in proved if all(isinstance(one, tuple) for one in known.values()))


def others_in(here: Known, there: Known) -> list[str]:
    """Names of arguments here that differ there, or are absent; ``None`` is no leaf."""
    return [name for name, known in here.items() if name not in there or not _is_same(known, there[name])]


def _is_same(known: Any, other: Any) -> bool:
    if known is other:
        return True
    if not (isinstance(known, tuple) and isinstance(other, tuple)):
        return False
    # ``None`` stands for numbers that were not asked for
    return len(known) == len(other) and all(a is None or a is b or a == b for a, b in zip(known, other, strict=True))
