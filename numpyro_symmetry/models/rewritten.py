"""Programs evaluated with some operations written another way: convolutions, and complements of probabilities.

``1 - sigmoid(x)`` is ``sigmoid(-x)``, but rounds to zero where x is large: the model would seem to tell x from -x.
Convolutions are written as XLA computes them fast. All else is computed as it stands. Knows programs; no models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import core as jax_core
from jax import lax
from jax.extend import core

from numpyro_symmetry.models.compat import equations, inlined, only_prints
from numpyro_symmetry.models.convolutions import NAME, applied


class _Odds(NamedTuple):
    """A probability p, or -p where ``sign`` is -1, and the logits of p."""

    value: Any
    logits: Any
    sign: int


def evaluated(body: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Results of a program; operations in loops and branches of its own stay as they are."""
    if not any(equation.primitive.name in (NAME, "logistic") or only_prints(equation) for equation in equations(body)):
        # a function that is called many times is compiled once
        return jax_core.eval_jaxpr(body, consts, *args)  # pyright: ignore[reportAttributeAccessIssue]
    odds: dict[int, _Odds] = {}

    def results_of(equation: Any, operands: list[Any]) -> Sequence[Any]:
        if only_prints(equation):
            return []
        of_logits = _of_logits(equation, operands, odds)
        return applied(equation.primitive, operands, equation.params) if of_logits is None else [of_logits]

    return inlined(body, consts, args, lambda value, aval: value, results_of)


def _of_logits(equation: Any, operands: Sequence[Any], odds: dict[int, _Odds]) -> Any:
    """The result of an operation on a probability p of which the logits are known: p itself, -p, 1 - p, log(1 - p)."""
    name, last = equation.primitive.name, odds.get(id(operands[-1])) if operands else None
    if name == "logistic":
        logits, sign = operands[0], 1
    elif last is None:
        return None
    elif last.sign > 0 and name == "sub" and _is_one(equation.invars[0]):
        logits, sign = -last.logits, 1
    elif last.sign > 0 and name == "neg":
        logits, sign = last.logits, -1
    elif last.sign < 0 and name == "log1p":
        return -jnp.logaddexp(last.logits, 0.0)
    else:
        return None
    value = sign * lax.logistic(logits)
    # values are known by identity, through calls too: they are kept alive, so that no other gets their id
    odds[id(value)] = _Odds(value, logits, sign)
    return value


def _is_one(atom: Any) -> bool:
    return isinstance(atom, core.Literal) and atom.val == 1
