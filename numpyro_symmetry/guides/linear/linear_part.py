"""The last values of a program that are affine in some of its inputs, read off its operations.

The pre-activations of a layer follow linearly from its weights, a linear predictor from the output weights. Knows jax
programs only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
from jax import Array
from jax.extend.core import Jaxpr

from numpyro_symmetry.models.compat import body_of, bound, called, consts_of, interpreted
from numpyro_symmetry.models.programs import read_later

# linear in their only array
_LINEAR = {
    "reshape", "transpose", "broadcast_in_dim", "squeeze", "convert_element_type", "neg", "reduce_sum",
    "slice", "rev", "cumsum", "copy", "reduce_precision", "real",
}  # fmt: skip
# affine in any of their arrays
_AFFINE = {"add", "sub", "add_any", "concatenate", "pad"}
# linear in one array, the others given
_BILINEAR = {"mul", "dot_general", "conv_general_dilated"}
# linear in the first array, the others given
_LINEAR_IN_FIRST = {"div", "gather", "dynamic_slice"}


class _Value(NamedTuple):
    """A value of the program: whether it is affine in the inputs, and whether it is known at all."""

    value: Any
    affine: bool = False
    known: bool = True


_UNKNOWN = _Value(None, known=False)


def linear_outputs(function: Callable[[dict[str, Array]], Any], inputs: dict[str, Array]) -> list[Array]:
    """The last quantities of a function that are affine in its inputs.

    Parameters
    ----------
    function
        Of a dict of arrays, to any pytree of arrays.
    inputs
        Where to evaluate them.

    Returns
    -------
    list of Array
        In the order in which the program uses them up; an input that is used otherwise at once is among them.
    """
    closed = jax.make_jaxpr(function)(inputs)
    found: dict[int, Array] = {}
    leaves = [_Value(leaf, affine=True) for leaf in jax.tree.leaves(inputs)]
    outputs = _run(closed.jaxpr, closed.consts, leaves, found)
    _use_up(outputs, found)
    return list(found.values())


def _run(jaxpr: Jaxpr, consts: Iterable[Any], inputs: Iterable[_Value], found: dict[int, Array]) -> list[_Value]:
    """Evaluate a program, and keep the affine values that enter an operation which is not affine."""
    # a model that draws what is not given does more than its results need
    needed = read_later(jaxpr)

    def results_of(equation: Any, arguments: list[_Value]) -> list[_Value]:
        is_needed = needed.intersection(equation.outvars)
        return _step(equation, arguments, found) if is_needed else [_UNKNOWN] * len(equation.outvars)

    return interpreted(jaxpr, [*map(_Value, consts), *inputs], lambda number: _Value(number.val), results_of)


def _step(equation: Any, arguments: list[_Value], found: dict[int, Array]) -> list[_Value]:
    any_affine = any(x.affine for x in arguments)
    inner = called(equation)
    if inner is not None and (any_affine or not all(x.known for x in arguments)):
        return _run(body_of(inner), consts_of(inner), arguments, found)
    if not all(x.known for x in arguments) or (any_affine and not _is_affine(equation, arguments)):
        _use_up(arguments, found)
        return [_UNKNOWN] * len(equation.outvars)
    results = bound(equation.primitive, [x.value for x in arguments], equation.params)
    return [_Value(value, any_affine) for value in results]


def _use_up(arguments: Iterable[_Value], found: dict[int, Array]) -> None:
    found |= {id(x.value): x.value for x in arguments if x.affine}


def _is_affine(equation: Any, arguments: list[_Value]) -> bool:
    name, flags = equation.primitive.name, [x.affine for x in arguments]
    if name in _LINEAR | _AFFINE:
        return True
    return (name in _BILINEAR and sum(flags) == 1) or (name in _LINEAR_IN_FIRST and flags[0] and sum(flags) == 1)
