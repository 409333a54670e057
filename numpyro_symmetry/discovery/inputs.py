"""Reads the arguments of `find_symmetry` and `check_symmetry`, and refuses those that they cannot use, in words.

Knows NumPyro; no symmetry.
"""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
from jax import Array

from numpyro_symmetry.devices import gathered
from numpyro_symmetry.models.arguments import as_argnum, as_model_or_function, part_of, refuse_misfit
from numpyro_symmetry.models.trace import run_model
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import (
    as_count,
    as_model_arguments,
    key_or_fixed,
    refuse_masked_arguments,
    refuse_tracers,
    seed_of,
)
from numpyro_symmetry.symmetry.nouns import Nouns, nouns
from numpyro_symmetry.symmetry.pytrees import arrays_by_path

# NumPyro keeps its handlers in one list for all threads, and running a model pushes to it
_LOCK = threading.RLock()
_LIBRARIES = tuple(os.path.dirname(module.__file__ or "") + os.sep for module in (jax, numpyro, contextlib, np))
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep
_VALUE_NEEDED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


class Question(NamedTuple):
    """A model, its arguments, a key for it and a generator for what is tried on it.

    Where ``argnum`` names an argument, not a model but a function of its arrays.
    """

    model: Callable
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: Array
    rng: np.random.Generator
    argnum: int | None

    @property
    def nouns(self) -> Nouns:
        """The nouns by which messages speak of it: those of a model, or of a function."""
        return nouns(is_function=self.argnum is not None)


def read_question(
    what: str, model: Any, model_args: Any, model_kwargs: Any, rng_key: Any, argnum: Any = None, part: Any = "joint"
) -> Question:
    """The arguments of a function of this layer, which ``what`` names, after validation.

    Raises
    ------
    TypeError
        If the model is none, the arguments are no tuple, the key is no key, or something is being traced.
    ValueError
        If there is no such part of a log joint.
    SymmetryError
        If there are masked arrays among the arguments.
    """
    of = nouns(is_function=argnum is not None)
    model = part_of(as_model_or_function(model, of), part)
    if argnum is not None and part != "joint":
        raise ValueError(f"A function has no prior and no {part}: leave out part, or argnum for a model.")
    if argnum is not None and not isinstance(model_args, tuple):
        raise TypeError(
            f"The function's arguments must be a tuple, as it is called with them: write (params,) or (params, x); got "
            f"a {type(model_args).__name__}."
        )
    args, kwargs = gathered(as_model_arguments(model_args, model_kwargs, of))
    refuse_tracers(f"{what}()", model_args=args, model_kwargs=kwargs, rng_key=rng_key)
    refuse_masked_arguments(args, kwargs, of)
    key = key_or_fixed(rng_key)
    if argnum is not None:
        argnum = as_argnum(argnum, args)
        refuse_misfit(model, args, kwargs, of=of)
    return Question(model, args, kwargs, key, np.random.default_rng(seed_of(key)), argnum)


def read_question_of_function(what: str, function: Any, args: Any, argnum: Any) -> Question:
    """The arguments, after validation, of a function of this layer that takes a function of arrays and no model.

    Raises
    ------
    TypeError, SymmetryError
        As for `read_question`.
    """
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"function must be a function of arrays, such as a network's apply; got {function!r}.")
    return read_question(what, function, args, None, None, as_count(argnum, "argnum", minimum=0))


def arrays_of_one(params: Any, shapes: Mapping[str, tuple[int, ...]], why: str) -> dict[str, Any]:
    """Arrays of one network by site, which must have the given shapes; ``why`` ends the message about any other.

    Raises
    ------
    SymmetryError
        Naming an array that is missing or of another shape.
    """
    given = arrays_by_path(params)
    if missing := sorted(set(shapes) - set(given)):
        raise SymmetryError(f"Arrays {missing} are missing from the parameters; expected {sorted(shapes)}.")
    for site, shape in shapes.items():
        if np.shape(given[site]) != shape:
            raise SymmetryError(f"Array {site!r} has shape {np.shape(given[site])}; expected {shape}. {why}")
    return {site: given[site] for site in shapes}


@contextlib.contextmanager
def asking(of: Nouns) -> Iterator[None]:
    """Let one question run at a time, and restate JAX's errors about missing values in terms of the model or function.

    Raises
    ------
    SymmetryError
        If the model, or function, branches on a latent value or turns one into a number of Python or NumPy.
    """
    with _LOCK:
        try:
            yield
        except _VALUE_NEEDED as error:
            raise SymmetryError(
                f"The {of.whole} needs the value of something that is only traced{_users_line(error)}: it branches on "
                f"{of.latent}, or turns one into a number of Python or NumPy, which JAX cannot compile. "
                "Use jnp.where or jax.lax.cond for `if`, and jnp for np; read sizes off data with np."
            ) from error


def refuse_invalid(question: Question) -> None:
    """Have NumPyro name the distribution that got an invalid parameter, if it can tell one.

    Raises
    ------
    ValueError
        NumPyro's.
    """
    with numpyro.validation_enabled():
        jax.eval_shape(lambda: run_model(question.model, question.args, question.kwargs, question.key) and None)


def _users_line(error: BaseException) -> str:
    """File, line number and code of the last line of a traceback that is the user's, no library's and not ours."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((*_LIBRARIES, _OWN, "<")):
            line = f", `{frame.line}`" if frame.line else ""
            return f" ({os.path.basename(frame.filename)}:{frame.lineno}{line})"
    return ""
