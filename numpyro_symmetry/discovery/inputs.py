"""What `find_symmetry` and `check_symmetry` are given, and how they refuse what they cannot use, in words.

Knows NumPyro; no symmetry.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from numpyro.infer.autoguide import AutoGuide
from numpyro.primitives import Messenger

from numpyro_symmetry.symmetry.arguments import (
    as_key,
    as_model_arguments,
    refuse_masked,
    refuse_tracers,
    seed_of,
)
from numpyro_symmetry.symmetry.errors import SymmetryError

# NumPyro keeps its handlers in one list for all threads, and what runs a model pushes to it
_LOCK = threading.RLock()
_LIBRARIES = tuple(os.path.dirname(module.__file__ or "") + os.sep for module in (jax, numpyro, contextlib, np))
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep
_VALUE_NEEDED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
_MAX_SITES = 3


class Question(NamedTuple):
    """A model, its arguments, a key for it and a generator for what is tried on it."""

    model: Callable
    args: tuple
    kwargs: dict[str, Any]
    key: Array
    rng: np.random.Generator


def read_question(what: str, model: Any, model_args: Any, model_kwargs: Any, rng_key: Any) -> Question:
    """What one of the functions of this layer was asked.

    Raises
    ------
    TypeError
        If the model is none, the arguments are no tuple, the key is no key, or something is being traced.
    SymmetryError
        If there are masked arrays among the arguments.
    """
    model = as_model(model)
    args, kwargs = as_model_arguments(model_args, model_kwargs)
    # under jit even an array of zeros is traced
    refuse_tracers(f"{what}()", args, kwargs, rng_key, jnp.zeros(()))
    refuse_masked(_named_leaves(args, kwargs), "Argument")
    key = jax.random.key(0) if rng_key is None else as_key(rng_key)
    return Question(model, args, kwargs, key, np.random.default_rng(seed_of(key)))


def as_model(model: Any) -> Callable:
    """A function that samples sites.

    Raises
    ------
    TypeError
        If it cannot be called, or is a class or a guide.
    """
    if isinstance(model, AutoGuide):
        raise TypeError(f"model must be a NumPyro model; got a guide, {type(model).__name__}: pass the guide's model.")
    if not callable(model) or inspect.isclass(model):
        came = f"the class {model.__name__}" if inspect.isclass(model) else f"{model!r} ({type(model).__name__})"
        raise TypeError(f"model must be a NumPyro model, a function that samples sites; got {came}.")
    return model


def _named_leaves(args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    named = {}
    for name, tree in (("model_args", args), ("model_kwargs", kwargs)):
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        named |= {name + jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    return named


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """One question at a time, and JAX's word for a value that is missing put in terms of the model.

    Raises
    ------
    SymmetryError
        If the model turns a latent value into a number of Python or NumPy.
    """
    with _LOCK:
        try:
            yield
        except _VALUE_NEEDED as error:
            raise SymmetryError(
                f"The model needs the value of something that is only traced{_users_line(error)}: it branches on a "
                "latent value, or turns one into a number of Python or NumPy. Neither NUTS nor SVI can compile that. "
                "Use jnp.where or jax.lax.cond for `if`, and jnp for np; read sizes off data with np."
            ) from error


def _users_line(error: BaseException) -> str:
    """The last line of an error's way that is neither a library's nor ours."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((*_LIBRARIES, _OWN, "<")):
            line = f", `{frame.line}`" if frame.line else ""
            return f" ({os.path.basename(frame.filename)}:{frame.lineno}{line})"
    return ""


def refuse_misfit(model: Callable, args: tuple, kwargs: Mapping[str, Any], error: TypeError) -> None:
    """Say in terms of ``model_args`` that a model was called with too few or too many arguments; else say nothing.

    Raises
    ------
    TypeError
        Naming what the model takes and what it got.
    """
    inner: Any = model
    while isinstance(inner, Messenger) and callable(inner.fn):
        inner = inner.fn
    try:
        signature = inspect.signature(inner)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as why:
        takes = ", ".join(map(str, signature.parameters.values()))
        raise TypeError(
            f"The model {_name_of(inner)}({takes}) does not fit its arguments: {why}. It got {len(args)} from "
            f"model_args and {sorted(kwargs)} from model_kwargs; pass all that it takes, such as model_args=(x, y)."
        ) from error


def refuse_no_sites(model: Callable, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Refuse a function without latent sites and parameters.

    Raises
    ------
    SymmetryError
        With the model to write for a log density.
    """
    name = _name_of(model)
    sites = _position(args, kwargs) or {"x": (3,)}
    lines = [
        f'    {site} = numpyro.sample("{site}", dist.ImproperUniform(dist.constraints.real, (), {shape}))'
        for site, shape in list(sites.items())[:_MAX_SITES]
    ]
    values = ", ".join(f'"{site}": {site}' for site in list(sites)[:_MAX_SITES])
    more = ", ..." if len(sites) > _MAX_SITES else ""
    raise SymmetryError(
        f"The function {name} samples no latent sites and has no parameters, so that there is nothing a symmetry could "
        "act on. A model needs sites that are not observed; the parameters of a network need a prior "
        "(numpyro.contrib.module.random_flax_module). Is it a log density? Then write\n\n    def model():\n"
        + "\n".join(f"    {line}" for line in lines)
        + f'\n        numpyro.factor("log_density", {name}({{{values}{more}}}))\n\n'
        "with dist.constraints.positive, say, for what has to be positive."
    )


def _position(args: tuple, kwargs: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a log density's values, if its first argument is a mapping to arrays."""
    first = next(iter((*args, *kwargs.values())), None)
    if not isinstance(first, Mapping):
        return {}
    named = {str(key): tuple(np.shape(value)) for key, value in first.items() if hasattr(value, "shape")}
    return named if all(key.isidentifier() for key in named) else {}


def _name_of(model: Any) -> str:
    name = getattr(model, "__name__", type(model).__name__)
    return name if name.isidentifier() else "log_density"
