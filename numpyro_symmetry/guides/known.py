"""A model's arguments compared with those of another call: what a proof depends on, and which data a guide has seen.

Knows models and their arguments; no guides.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.devices import gathered
from numpyro_symmetry.guides.inputs import named_arguments
from numpyro_symmetry.guides.origin import fingerprint
from numpyro_symmetry.models import Model, refuse_misfit
from numpyro_symmetry.models.data import is_array
from numpyro_symmetry.symmetry import SymmetryError, warn
from numpyro_symmetry.symmetry.arguments import is_floating, is_number, is_traced
from numpyro_symmetry.symmetry.nouns import MODEL

# by name, as in ``scales[0]``: what an argument is, in so far as a proof depends on it
KnownArguments = dict[str, Any]
_PLAIN = (bool, int, float, complex, str, bytes)
_IN_TRAINING = "; a guide takes them one by one, as in training: guide.sample_posterior(rng_key, params, x, y)"
_OF_GUIDE = MODEL._replace(one_by_one=_IN_TRAINING, if_bare="")


def known_arguments(model: Model, *, numbers_too: bool) -> KnownArguments:
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
        name + jax.tree_util.keystr(path): _known(leaf, numbers_too=numbers_too)
        for name, value in named.items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(value)
    }


def _known(leaf: Any, *, numbers_too: bool) -> Any:
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


def portable(proved: tuple[KnownArguments, ...]) -> tuple[KnownArguments, ...]:
    """The proofs that another process can compare too: without objects that equal only themselves."""
    return tuple(known for known in proved if all(isinstance(one, tuple) for one in known.values()))


def others_in(here: KnownArguments, there: KnownArguments) -> list[str]:
    """Names of arguments here that differ there, or are absent; ``None`` is no leaf."""
    return [name for name, known in here.items() if name not in there or not _is_same(known, there[name])]


def _is_same(known: Any, other: Any) -> bool:
    if not (isinstance(known, tuple) and isinstance(other, tuple)):
        return known is other
    # ``None`` stands for numbers that were not asked for
    return len(known) == len(other) and all(a is None or a is b or a == b for a, b in zip(known, other, strict=True))


# ---- the data of training ------------------------------------------------------------------------------------------


class SeenArray(NamedTuple):
    """How an array among a model's arguments is known again: by its shape, and a fingerprint unless it is traced."""

    shape: tuple[int, ...]
    fingerprint: int | None


def seen_in(model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, SeenArray]:
    """The arrays among a model's arguments by name, as in ``x`` or ``data['x']``."""
    refuse_misfit(model, args, kwargs, of=_OF_GUIDE)
    args, kwargs = gathered((args, kwargs))
    return {
        name + jax.tree_util.keystr(path): SeenArray(jnp.shape(leaf), _fingerprint(leaf))
        for name, value in named_arguments(model, args, kwargs).items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(value)
        if isinstance(leaf, Array | np.ndarray) and leaf.ndim
    }


def refuse_other_data(
    what: str, here: dict[str, SeenArray], trained_on: Sequence[dict[str, SeenArray]], remedy: str
) -> None:
    """Refuse arrays of other shapes than those of training, and warn of other numbers.

    Parameters
    ----------
    what
        The method that was called.
    here
        The arrays that it was given.
    trained_on
        The arrays that the guide was given in training, each time.
    remedy
        Where new inputs go.

    Raises
    ------
    SymmetryError
        Naming the arguments, their shapes here, and those of the last training.
    """
    takes = f"{what} takes the data that the guide was trained on; here"
    meant = "If this is meant, bind it by hand: lambda *args, **kwargs: guide(*these_args)."
    alike = [data for data in trained_on if _shapes(data) == _shapes(here)]
    if trained_on and not alike:
        had, has = _shapes(trained_on[-1]), _shapes(here)
        other = [name for name in had | has if had.get(name) != has.get(name)]
        came = "; ".join(f"{name} {_is(has.get(name))} and {_had(had.get(name))}" for name in other)
        raise SymmetryError(f"{takes} {came}. {remedy} {meant}")
    if alike and all(_other_numbers(here, data) for data in alike):
        names = _other_numbers(here, alike[-1])
        hold = "holds" if len(names) == 1 else "hold"
        warn(f"{takes} {' and '.join(names)} {hold} other numbers. {remedy} {meant}")


def _fingerprint(leaf: Any) -> int | None:
    is_known = not is_traced(leaf, jnp.zeros(()))
    return int(fingerprint(leaf)) if is_known and (isinstance(leaf, Array) or is_number(leaf.dtype)) else None


def _shapes(data: dict[str, SeenArray]) -> dict[str, tuple[int, ...]]:
    return {name: seen.shape for name, seen in data.items()}


def _other_numbers(here: dict[str, SeenArray], there: dict[str, SeenArray]) -> list[str]:
    """Names of arrays that are known in both, and differ."""
    both = [(name, seen.fingerprint, there[name].fingerprint) for name, seen in here.items()]
    return [name for name, one, other in both if one is not None and other is not None and one != other]


def _is(shape: tuple[int, ...] | None) -> str:
    return "is not there" if shape is None else f"has shape {shape}"


def _had(shape: tuple[int, ...] | None) -> str:
    return "was not" if shape is None else f"had {shape}"
