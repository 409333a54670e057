"""Which results of a program depend on which of its arguments, read off the program: numbers miss rare cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from numpyro_symmetry.models.compat import body_of, consts_of, inlined, scan_counts

Names = frozenset[Any]
NOTHING: Names = frozenset()


def dependencies(
    function: Callable[[dict[str, Any]], Mapping[str, Any]], inputs: Mapping[str, Any]
) -> dict[str, Names]:
    """Names of the inputs on which each of a function's results depends.

    Parameters
    ----------
    function
        Of a dict of pytrees of arrays, to another.
    inputs
        Its argument, of which only shapes matter.
    """
    program, shapes = jax.make_jaxpr(function, return_shape=True)(dict(inputs))
    names = [Names([name]) for name in sorted(inputs) for _ in jax.tree.leaves(inputs[name])]
    found = jax.tree.unflatten(jax.tree.structure(shapes), dependencies_of_program(program, names))
    return {name: NOTHING.union(*jax.tree.leaves(result)) for name, result in found.items()}


def dependencies_of_program(closed: Any, inputs: Sequence[Names]) -> list[Names]:
    """Names on which each of a program's results depends, given those that each of its arguments stands for."""

    def results_of(equation: Any, arguments: list[Names]) -> list[Names]:
        if equation.primitive.name == "scan":
            return dependencies_of_scan(equation.params, arguments)
        return [NOTHING.union(*arguments)] * len(equation.outvars)

    return inlined(body_of(closed), consts_of(closed), inputs, lambda value, aval: NOTHING, results_of)


def dependencies_of_scan(params: Mapping[str, Any], inputs: list[Names]) -> list[Names]:
    """The same for results of a scan: around the loop, until carried values depend on no further names."""
    num_constants, num_carried = scan_counts(params)
    rest = num_constants + num_carried
    carried = inputs[num_constants:rest]
    while True:
        results = dependencies_of_program(params["jaxpr"], inputs[:num_constants] + carried + inputs[rest:])
        grown = [before | after for before, after in zip(carried, results, strict=False)]
        if grown == carried:
            return grown + results[num_carried:]
        carried = grown
