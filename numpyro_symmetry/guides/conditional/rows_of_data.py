"""Rows of the data, which pseudo-observations must not read: every batch has others.

At inducing inputs they would be values of rows that do not lie there, and the conditional would depend on the batch on
which it is scored: then nothing is bounded. Shapes that happen to fit do not tell; what is tried here are numbers of
rows that fit neither each other nor one. Knows models and inducing inputs; neither conditionals nor guides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.guides.inputs import AtInputs, some_rows, with_inputs
from numpyro_symmetry.models import is_subsampled, latent_of
from numpyro_symmetry.models.given_values import trace_given
from numpyro_symmetry.models.reach import dependencies
from numpyro_symmetry.symmetry import SymmetryError

Shapes = dict[str, jax.ShapeDtypeStruct]
# arguments at inducing inputs, and how many these are -> shapes of latent sites, or why the model does not run there
ShapesAt = Callable[[Mapping[str, Any], int], Shapes | Exception]
_SOME, _OTHERS = 3, 2


def shapes_at(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dropped: tuple[str, ...],
    fitted: Mapping[str, Any],
    values: Mapping[str, Any],
    number: int,
) -> Shapes | Exception:
    """Shapes of the latent sites of a model with some of its arguments replaced, or what it raises.

    Parameters
    ----------
    model, args, kwargs
        The model and its arguments in training.
    dropped
        Arguments that hold observations.
    fitted
        Its parameters and mutable state.
    values
        Arguments to replace, at inducing inputs.
    number
        How many inducing inputs there are.
    """

    def drawn() -> dict[str, Array]:
        args_there, kwargs_there = with_inputs(model, args, kwargs, values, dropped)
        found = latent_of(trace_given(AtInputs(model, number), args_there, kwargs_there, fitted))
        return {name: jnp.asarray(site["value"]) for name, site in found.items()}

    try:
        return jax.eval_shape(drawn)
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        return error


def arguments_by_row(
    at: ShapesAt, inputs: Mapping[str, Any], candidates: Mapping[str, Any], number: int
) -> tuple[str, ...]:
    """Which arguments, of ``number`` rows, have a row for every input: the model runs only at as many rows of both."""
    if not candidates:
        return ()
    several = {name: _rows(value, len(value), _SOME) for name, value in inputs.items()}
    several |= {name: _rows(value, number, _SOME) for name, value in candidates.items()}
    if isinstance(at(several, _SOME), Exception):
        return ()
    others = {name: _rows(value, number, _OTHERS) for name, value in candidates.items()}
    return tuple(name for name in others if isinstance(at(several | {name: others[name]}, _SOME), Exception))


def local_sites(at: ShapesAt, inputs: Mapping[str, Any], held: Mapping[str, Any], number: int) -> Shapes:
    """Latent sites that have values for every input: with one input more, or less, they have other shapes."""
    given = {**inputs, **held}
    here = at(given, number)
    for other in (number + 1, number - 1):
        there = at({name: _rows(value, number, other) for name, value in given.items()}, other) if other else here
        if not isinstance(here, Exception) and not isinstance(there, Exception):
            return {name: here[name] for name in here if name in there and here[name].shape != there[name].shape}
    return {}


def refuse_rows_of_arguments(read: Callable[[dict[str, Any]], Any], by_row: Mapping[str, Any], inputs: str) -> None:
    """Refuse arguments with a row for every input of which none are given at the inducing inputs."""
    if found := sorted(dependencies(lambda values: {"read": read(values)}, by_row)["read"]):
        example = ", ".join(f"{name!r}: {name}[:100]" for name in [inputs, *found])
        raise SymmetryError(
            f"At inducing inputs the model also reads {found}, with a row for every one of {inputs!r}: they would be "
            "rows of the batch, and the conditional would depend on the batch on which it is scored. Name them "
            f"beside, as arguments of their own: inducing={{{example}}}; or give a number, inducing=100, which takes "
            "the same rows of all."
        )


def refuse_local_sites(read: Callable[[dict[str, Any]], Any], local: Shapes, sites: Sequence[str]) -> None:
    """Refuse latent sites of rows among the sites that follow, and in what follows linearly from these."""
    if own := [site for site in sites if site in local]:
        raise SymmetryError(
            f"Sites {own} have values for every row of the data: at inducing inputs they would be those of other rows. "
            "Leave them to the base guide, or pass all data and no inducing inputs."
        )
    values = {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in local.items()}
    if values and (found := sorted(dependencies(lambda values: {"read": read(values)}, values)["read"])):
        raise SymmetryError(
            f"What follows linearly from {list(sites)} depends on {found}, latent sites with values for every row of "
            "the data: at inducing inputs they would be those of other rows, and the conditional would depend on the "
            f"batch on which it is scored. Leave {list(sites)} to the base guide, or pass all data and no inducing "
            "inputs."
        )


def refuse_picked_rows(
    model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], place: Mapping[str, Any], observed: Sequence[str]
) -> None:
    """Refuse models that pick rows by the index of a subsampled plate: of inducing inputs, other rows than they are."""
    sizes: dict[str, int] = {}

    def picked() -> dict[str, Any]:
        batches = {n: site for n, site in trace_given(model, args, kwargs, place).items() if is_subsampled(site)}
        sizes.update({name: site["args"][0] for name, site in batches.items()})
        return {name: site["value"] for name, site in batches.items()}

    # jitted: eagerly, every operation of the model would be compiled apart, for these few values
    indices = jax.jit(picked)()

    def distributions(indices: dict[str, Any]) -> dict[str, Any]:
        found = trace_given(model, args, kwargs, {**place, **indices})
        return {name: jax.tree.leaves(found[name]["fn"]) for name in observed}

    for name, reached in dependencies(distributions, indices).items():
        if reached:
            plate = min(reached)
            raise SymmetryError(
                f"The distribution of {name!r} reads rows by the index of plate {plate!r}, which are rows of the data "
                "and not of inducing inputs. Let the model take its batch as arguments, and not pick it: "
                f"plate({plate!r}, {sizes[plate]}, subsample_size=len(x)) without an index."
            )


def _rows(value: Any, number: int, count: int) -> Any:
    """``count`` rows of arrays with ``number`` rows: from the first on again where these are fewer."""
    return some_rows(value, number, np.arange(count) % number)
