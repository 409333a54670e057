"""Which results of a function depend on which of its arguments, read off its program: rare cases show in no number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.extend.core import Jaxpr, Literal

from numpyro_symmetry.models.compat import called, scan_counts

Names = frozenset[str]
_NOTHING: Names = frozenset()


def dependencies(
    function: Callable[[dict[str, Any]], Mapping[str, Any]], inputs: Mapping[str, Any]
) -> dict[str, Names]:
    """Names of the inputs on which each of a function's results depends.

    Parameters
    ----------
    function
        Of a dict of pytrees of arrays, to another.
    inputs
        What it takes: its shapes matter.
    """
    program, shapes = jax.make_jaxpr(function, return_shape=True)(dict(inputs))
    names = [Names([name]) for name in sorted(inputs) for _ in jax.tree.leaves(inputs[name])]
    found = jax.tree.unflatten(jax.tree.structure(shapes), _through(program.jaxpr, names))
    return {name: _NOTHING.union(*jax.tree.leaves(result)) for name, result in found.items()}


def _through(jaxpr: Jaxpr, inputs: list[Names]) -> list[Names]:
    known: dict[Any, Names] = dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Names:
        return _NOTHING if isinstance(atom, Literal) else known.get(atom, _NOTHING)

    for equation in jaxpr.eqns:
        arguments = [read(atom) for atom in equation.invars]
        inner = called(equation)
        if inner is not None:
            results = _through(getattr(inner, "jaxpr", inner), arguments)
        elif equation.primitive.name == "scan":
            results = _through_scan(equation.params, arguments)
        else:
            results = [_NOTHING.union(*arguments)] * len(equation.outvars)
        known |= dict(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _through_scan(params: Mapping[str, Any], inputs: list[Names]) -> list[Names]:
    """Around a loop until what is carried has all that reaches it."""
    num_constants, num_carried = scan_counts(params)
    rest = num_constants + num_carried
    carried = inputs[num_constants:rest]
    while True:
        results = _through(params["jaxpr"].jaxpr, inputs[:num_constants] + carried + inputs[rest:])
        grown = [before | after for before, after in zip(carried, results, strict=False)]
        if grown == carried:
            return grown + results[num_carried:]
        carried = grown
