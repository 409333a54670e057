"""Arguments of guides, and of a model by name: which hold observations, and which inducing inputs in place of data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from numpyro.primitives import Messenger

from numpyro_symmetry.models import Trace, is_subsampled, observed_of
from numpyro_symmetry.models.arguments import within_handlers
from numpyro_symmetry.models.data import is_key, is_table
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import as_count, as_real_array, is_floating, is_number


def as_levels(quantiles: Any) -> Any:
    """Levels of quantiles, one or several.

    Raises
    ------
    TypeError
        If they are no real numbers.
    ValueError
        If one is not from 0 to 1.
    """
    levels = as_real_array(quantiles, "quantiles", TypeError) * 1.0  # of zero and one, NumPyro takes no whole numbers
    if not isinstance(levels, Tracer) and not ((np.asarray(levels) >= 0) & (np.asarray(levels) <= 1)).all():
        raise ValueError(f"quantiles must be probabilities, from 0 to 1; got {quantiles!r}.")
    return levels


def as_count_or_auto(value: Any, name: str, none: str) -> int | str | None:
    """A whole number, ``"auto"``, or ``None``, which stands for ``none`` in words.

    Raises
    ------
    TypeError, ValueError
        If it is none of these.
    """
    if isinstance(value, str) and value != "auto":
        raise ValueError(f"{name} must be 'auto', a whole number, or None for {none}; got {value!r}.")
    return value if value is None or isinstance(value, str) else as_count(value, name)


def named_arguments(
    model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], *, defaults: bool = False
) -> dict[str, Any]:
    """Arguments of a model by name, with or without those that were left out."""
    bound = _bound(model, args, kwargs)
    if defaults:
        bound.apply_defaults()
    return dict(bound.arguments)


def with_inputs(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inputs: Mapping[str, Array],
    dropped: tuple[str, ...],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a model with inputs in place of the data's, and without observations."""
    bound = _bound(model, args, kwargs)
    for name in dropped:
        default = bound.signature.parameters[name].default
        bound.arguments[name] = None if default is inspect.Parameter.empty else default
    bound.arguments.update(inputs)
    return bound.args, bound.kwargs


class AtInputs(Messenger):
    """A model whose subsampled plates hold all rows of its inputs, in their order: pseudo-observations lie at each."""

    def __init__(self, model: Callable, number: int) -> None:
        self.number = number
        super().__init__(model)

    def process_message(self, msg: Any) -> None:
        """Leave no rows out of a plate that has the inputs in it."""
        if is_subsampled(msg) and self.number in msg["args"]:
            msg["args"], msg["value"] = (msg["args"][0], self.number), jnp.arange(self.number)


def holders_of_observations(
    model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], trace: Trace
) -> tuple[str, ...]:
    """Names of the arguments whose arrays are observed as they are, or of which a plate's rows are."""
    observed = [(_as_read(site["value"]), site["cond_indep_stack"]) for site in observed_of(trace).values()]

    def holds(leaf: np.ndarray, value: np.ndarray, plates: Any) -> bool:
        picked = [
            leaf.take(np.asarray(trace[plate.name]["value"]), axis)
            for plate in plates
            for axis in range(leaf.ndim)
            if is_subsampled(trace[plate.name]) and leaf.shape[axis] == trace[plate.name]["args"][0]
        ]
        return any(np.array_equal(x, value, equal_nan=is_floating(x.dtype)) for x in [leaf, *picked])

    def is_observed(argument: Any) -> bool:
        leaves = [leaf for leaf in jax.tree.leaves(argument) if np.ndim(leaf) > 0]
        return bool(leaves) and all(
            not is_key(leaf) and any(holds(_as_read(leaf), *seen) for seen in observed) for leaf in leaves
        )

    return tuple(name for name, argument in named_arguments(model, args, kwargs).items() if is_observed(argument))


def _as_read(value: Any) -> np.ndarray:
    """An array in the type that JAX has for it: columns of a table come in double precision."""
    array = np.asarray(value)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype)) if is_number(array.dtype) else array


def beside(
    inputs: Mapping[str, Array],
    model: Callable,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dropped: tuple[str, ...],
) -> dict[str, Any]:
    """Other arguments with as many rows as those that inducing inputs stand for."""
    named = named_arguments(model, args, kwargs)
    number = len(named[next(iter(inputs))])
    rest = {name: value for name, value in named.items() if name not in {*inputs, *dropped}}
    return {name: value for name, value in rest.items() if _has_rows(value, number)}


def some_rows(value: Any, number: int, chosen: np.ndarray) -> Any:
    """The chosen rows of an array with ``number`` rows, or of all such arrays in a pytree."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[chosen]) if _has_rows(leaf, number) else leaf, value)


def _has_rows(value: Any, number: int) -> bool:
    return any(_is_array(leaf) and len(leaf) == number for leaf in jax.tree.leaves(value))


def inducing_inputs(
    inducing: Any, model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], dropped: tuple[str, ...]
) -> tuple[dict[str, Array], dict[str, Any], dict[str, Any]]:
    """Inducing inputs by argument: of an array, the first; of a number, so many rows of it.

    Returns
    -------
    inputs
        Arguments that are learned.
    held
        Arguments named beside them that hold no real numbers, and are kept.
    rows
        If ``inducing`` is a number, the same rows of other arguments with as many: a model may need them there.

    Raises
    ------
    SymmetryError
        If an argument is not known, or the shape of inputs differs from that of its rows.
    """
    named = named_arguments(model, args, kwargs)
    arrays = [name for name, value in named.items() if name not in dropped and _is_array(value)]
    rows: dict[str, Any] = {}
    if not isinstance(inducing, Mapping):
        _refuse_a_table({name: value for name, value in named.items() if name not in dropped})
        if not arrays:
            raise SymmetryError(
                f"The model takes no array in which inducing inputs could lie, but for its observations: it takes "
                f"{list(named)}. Give the inputs an argument of their own, model(x, y=None)."
            )
        first = named[arrays[0]]
        if np.ndim(inducing) == 0:
            chosen = np.sort(np.random.default_rng(0).choice(len(first), min(inducing, len(first)), replace=False))
            others = beside({arrays[0]: first}, model, args, kwargs, dropped)
            rows = {name: some_rows(value, len(first), chosen) for name, value in others.items()}
            inducing = np.asarray(first)[chosen]
        inducing = {arrays[0]: inducing}
    if unknown := sorted(set(inducing) - set(named)):
        raise SymmetryError(f"inducing names the arguments {unknown}; the model was called with {list(named)}.")
    if unfit := sorted(set(inducing) - set(arrays)):
        raise SymmetryError(
            f"inducing names the arguments {unfit}, which hold observations or are no arrays; inducing inputs can lie "
            f"in {arrays}."
        )
    found = {name: jnp.asarray(value, jnp.result_type(named[name])) for name, value in inducing.items()}
    for name, value in found.items():
        expected = jnp.shape(named[name])
        if value.shape[1:] != expected[1:] or value.ndim != len(expected):
            raise SymmetryError(
                f"inducing inputs of argument {name!r} have shape {value.shape}; expected (number, "
                f"{', '.join(map(str, expected[1:]))}), as rows of the argument, whose shape is {expected}."
            )
    numbers = {name: len(value) for name, value in found.items()}
    if len(set(numbers.values())) > 1:
        raise SymmetryError(f"inducing gives different numbers of rows, {numbers}; every argument needs as many.")
    inputs = {name: value for name, value in found.items() if jnp.issubdtype(value.dtype, jnp.floating)}
    if not inputs:
        raise SymmetryError(
            f"The arguments {sorted(found)} hold no real numbers, so that inducing inputs cannot be learned there: "
            "name others too, AutoConditional(base_guide, inducing={'x': x[:100]})."
        )
    return inputs, {name: value for name, value in found.items() if name not in inputs}, rows


def _refuse_a_table(named: Mapping[str, Any]) -> None:
    """Refuse a table where the first array is looked for: what is learned there has no names."""
    name, first = next(((name, x) for name, x in named.items() if _is_array(x) or is_table(x)), ("", None))
    if is_table(first):
        raise SymmetryError(
            f"Argument {name!r} is a {type(first).__name__}, and inducing inputs are arrays, which are learned. Pass "
            f"an array, {name}.to_numpy(), in training and in predictions; or name the argument that they lie in, "
            "inducing={'x': x[:100]}."
        )


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray) and value.ndim > 0


def _bound(model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    signature = inspect.signature(within_handlers(model))
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as why:
        takes = ", ".join(map(str, signature.parameters.values()))
        raise TypeError(
            f"A guide that reads the model is called as the model is, which takes ({takes}): {why}. Pass its arguments "
            "too, sample_posterior(rng_key, params, x)."
        ) from None
