"""A model, a part of it and its arguments, as they are given, and how they are refused. Knows NumPyro; no symmetry."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.infer.autoguide import AutoGuide
from numpyro.primitives import Messenger

from numpyro_symmetry.models.compat import is_transformed
from numpyro_symmetry.models.sites import is_latent
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import as_count, as_option, in_short, leaves_by_path
from numpyro_symmetry.symmetry.nouns import MODEL, Nouns
from numpyro_symmetry.symmetry.shown import counted

# of a log joint, whose symmetry is asked for
PARTS = ("joint", "likelihood")
_MAX_SITES = 3
# behind a refusal of what may be no model
_NO_MODEL = "Of a function of parameters, which samples nothing, say argnum=0 to find_symmetry or check_symmetry."


class Model(NamedTuple):
    """A NumPyro model and the arguments it is called with."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def as_model(model: Any) -> Callable:
    """A function that samples sites.

    Raises
    ------
    TypeError
        If it is no function (`as_model_or_function`), or one that JAX has wrapped.
    """
    refuse_compiled(as_model_or_function(model))
    return model


def as_model_or_function(model: Any, of: Nouns = MODEL) -> Callable:
    """A function that samples sites, or one of arrays, which JAX may have wrapped.

    Raises
    ------
    TypeError
        If it cannot be called, or is a class or a guide.
    """
    if isinstance(model, AutoGuide):
        raise TypeError(f"model must be a NumPyro model; got a guide, {type(model).__name__}: pass the guide's model.")
    if not callable(model) or inspect.isclass(model):
        raise TypeError(f"model must be {of.kind}; got {in_short(model)}.")
    if callable(getattr(model, "init", None)) and callable(getattr(model, "apply", None)):
        raise TypeError(
            f"A {type(model).__name__} is no function of its parameters: pass its apply, as in "
            "find_symmetry(net.apply, (params, x), argnum=0)."
        )
    return model


def model_of_guide(guide: Any, model: Any, call: str) -> Callable:
    """The model that is named beside a guide, or that the guide carries.

    Raises
    ------
    ValueError
        With the call that names it, if there is none.
    TypeError
        As `as_model`.
    """
    model = model if model is not None else getattr(guide, "model", None)
    if model is None:
        raise ValueError(
            f"base_guide carries no model: pass {call}. If it is the model, pass a guide of it, such as "
            f"AutoNormal({_name_of(guide)})."
        )
    return as_model(model)


class _WithoutPriors(Messenger):
    """Flattens the priors of continuous sites; discrete ones, which say how data come about, keep theirs."""

    def process_message(self, msg: Any) -> None:
        """Mask one site."""
        if is_latent(msg) and not msg["fn"].support.is_discrete:
            msg["fn"] = msg["fn"].mask(False)


def part_of(model: Callable, part: Any) -> Callable:
    """A model whose log joint is one part of another's.

    Raises
    ------
    ValueError
        If there is no such part.
    """
    return _WithoutPriors(model) if as_option(part, "part", PARTS) == "likelihood" else model


def as_argnum(argnum: Any, args: tuple[Any, ...]) -> int:
    """Position of the argument of a function whose arrays may be moved.

    Raises
    ------
    TypeError, ValueError
        If it is no whole number, or there is no such argument.
    """
    if (position := as_count(argnum, "argnum", minimum=0)) >= len(args):
        raise TypeError(
            f"argnum is {position}, but model_args holds {counted(len(args), 'argument')}, of which the first is 0: "
            "write (params,) or (params, x), as the function is called with them."
        )
    return position


def refuse_misfit(
    model: Callable, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: TypeError | None = None, of: Nouns = MODEL
) -> None:
    """Say in terms of ``model_args`` that a model was called with too few or too many arguments; else say nothing.

    Raises
    ------
    TypeError
        Naming what the model takes and what it got.
    """
    inner, takes, why = within_handlers(model), "...", error
    with contextlib.suppress(TypeError, ValueError):  # callables in C do not say what they take
        signature = inspect.signature(inner)
        takes, why = ", ".join(map(str, signature.parameters.values())), _misfit(signature, args, kwargs)
    if why is not None:
        is_bare = not args and not kwargs
        raise TypeError(
            f"The {of.whole} {_name_of(inner)}({takes}) does not fit its arguments: {why}. It got {len(args)} from "
            f"model_args and {sorted(kwargs)} from model_kwargs; pass all that it takes, such as "
            f"model_args={of.arguments}{of.one_by_one}.{of.if_bare * is_bare}"
        ) from error


def refuse_no_option(method: Callable, model: Callable, kwargs: Mapping[str, Any]) -> None:
    """Refuse keywords that a method hands to its model, and that are neither the model's nor an option of its own.

    Raises
    ------
    TypeError
        Naming them, and what either takes.
    """
    inner = within_handlers(model)
    try:
        # a decorator may take keywords of its own, whatever it wraps
        takes = inspect.signature(inner, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):  # callables in C do not say what they take
        return
    if any(one.kind is one.VAR_KEYWORD for one in takes):
        return
    if unknown := sorted(kwargs.keys() - {one.name for one in takes}):
        options = [one.name for one in inspect.signature(method).parameters.values() if one.kind is one.KEYWORD_ONLY]
        raise TypeError(
            f"{method.__name__} takes {', '.join(options)}, and the arguments of the model "
            f"{_name_of(inner)}({', '.join(map(str, takes))}); {unknown} is none of them."
        )


def _misfit(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> TypeError | None:
    try:
        signature.bind(*args, **kwargs)
    except TypeError as why:
        return why


def left_at_none(model: Callable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Arguments that are ``None`` where a model is called: by default, or as they are given."""
    try:
        signature = inspect.signature(within_handlers(model))
        given = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # it does not say what it takes, or takes other arguments
        return []
    return [name for name, one in signature.parameters.items() if given.get(name, one.default) is None]


def note_what_is_none(model: Callable, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception) -> None:
    """Add to a model's own error which of its arguments were left at ``None``, for it may come of these."""
    if left := left_at_none(model, args, kwargs):
        error.add_note(
            f"The model {_name_of(within_handlers(model))} was called without {left}, which are None. Data "
            f"are passed as the model takes them, model_args={MODEL.arguments}, or by name in model_kwargs."
        )


def refuse_no_rows(args: tuple[Any, ...], kwargs: Mapping[str, Any], error: AssertionError) -> None:
    """Say which of a model's arguments has no rows, where NumPyro says that a plate has no size; else say nothing.

    Raises
    ------
    SymmetryError
        Naming the argument.
    """
    given = leaves_by_path(model_args=args, model_kwargs=kwargs)
    empty = {name: np.shape(leaf) for name, leaf in given.items() if 0 in getattr(leaf, "shape", ())}
    if empty and "plate" in str(error):
        name, shape = next(iter(empty.items()))
        raise SymmetryError(
            f"{name} has shape {shape}, no rows, and a plate of NumPyro has one at least: pass data with rows, or a "
            "model without this plate where there are none."
        ) from error


def refuse_compiled(model: Callable) -> None:
    """Refuse a model wrapped by `jax.jit` or `jax.checkpoint`, say: what it samples comes out as tracers, and once.

    Raises
    ------
    TypeError
        Saying what to pass.
    """
    inner = within_handlers(model)
    while isinstance(inner, functools.partial):
        inner = within_handlers(inner.func)
    name = _name_of(inner)
    if isinstance(inner, jax.stages.Wrapped):
        raise TypeError(
            f"{name} is compiled by jax.jit, which hides from NumPyro what it samples: pass the function itself "
            f"({name}.__wrapped__). SVI and MCMC compile what calls it. {_NO_MODEL}"
        )
    if is_transformed(inner):
        raise TypeError(
            f"{name} is transformed by JAX (jax.checkpoint, jax.vmap), which hides from NumPyro what it samples: pass "
            f"the function itself ({name}.__wrapped__). Within it transform functions that sample nothing. {_NO_MODEL}"
        )


def within_handlers(model: Callable) -> Any:
    """A model without the handlers around it."""
    inner: Any = model
    while isinstance(inner, Messenger) and callable(inner.fn):
        inner = inner.fn
    return inner


def refuse_no_sites(model: Callable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse a function without latent sites and parameters.

    Raises
    ------
    SymmetryError
        With the model to write for a log density.
    """
    name = _name_of(model)
    # a lambda has no name that the model to write could call it by
    name = name if name.isidentifier() else "log_density"
    sites = _position(args, kwargs) or {"x": (3,)}
    lines = [
        f'    {site} = numpyro.sample("{site}", dist.ImproperUniform(dist.constraints.real, (), {shape}))'
        for site, shape in list(sites.items())[:_MAX_SITES]
    ]
    values = ", ".join(f'"{site}": {site}' for site in list(sites)[:_MAX_SITES])
    more = ", ..." if len(sites) > _MAX_SITES else ""
    # by no name of their own, which a site may have
    others = {"*rest": len(args) > 1, "**options": bool(args and kwargs)}
    rest = ", ".join(name for name, is_there in others.items() if is_there)
    behind = " Its model_args are those behind the first." if len(args) > 1 else ""
    raise SymmetryError(
        f"The function {name} samples no latent sites and has no parameters, so that there is nothing a symmetry could "
        "act on. A model needs sites that are not observed; the parameters of a network need a prior "
        "(numpyro.contrib.module.random_flax_module). Is it a function of parameters, a network or a log density? Then "
        "say so by argnum=0, in find_symmetry, check_symmetry and log_evidence; or write the model of a log density\n\n"
        f"    def model({rest}):\n"
        + "\n".join(f"    {line}" for line in lines)
        + f'\n        numpyro.factor("log_density", {name}({{{values}{more}}}{rest and ", " + rest}))\n\n'
        f"with dist.constraints.positive, say, for what has to be positive.{behind}"
    )


def _position(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a log density's values, if its first argument is a mapping to arrays."""
    first = next(iter((*args, *kwargs.values())), None)
    if not isinstance(first, Mapping):
        return {}
    named = {str(key): tuple(np.shape(value)) for key, value in first.items() if hasattr(value, "shape")}
    return named if all(key.isidentifier() for key in named) else {}


def _name_of(model: Any) -> str:
    return getattr(model, "__name__", type(model).__name__)
