"""Programs whose factors and triangular solves of batches are single calls on a CPU, as those of `linalg` are.

A guide that evaluates its model makes the calls of the model a second time, at once with the model's own: batches of
both, of particles or in a plate, would wait for each other for ever. Knows programs; no models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from numpyro_symmetry.linalg import differentiable_one_by_one
from numpyro_symmetry.models.compat import body_of, bound, consts_of, interpreted

_OF_LAPACK = ("cholesky", "triangular_solve")
# other calls have a rule of their own, which they keep
_PLAIN_CALLS = ("jit", "pjit", "closed_call")


def jitted(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit` of a function, without batched factors; those in its loops and branches stay as they are."""

    def evaluated(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        results = _run(closed.jaxpr, closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return jax.jit(evaluated)


def _run(body: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    return interpreted(body, [*consts, *args], lambda number: number.val, _results_of)


def _results_of(equation: Any, operands: list[Any]) -> Sequence[Any]:
    primitive, params = equation.primitive, equation.params
    if primitive.name in _PLAIN_CALLS:
        inner = next(params[key] for key in ("jaxpr", "call_jaxpr") if key in params)
        return _run(body_of(inner), consts_of(inner), operands)
    if primitive.name not in _OF_LAPACK:
        return bound(primitive, operands, params)
    single = differentiable_one_by_one(lambda *matrices: bound(primitive, matrices, params))
    for _ in range(operands[0].ndim - 2):
        single = jax.vmap(single)
    return single(*operands)
