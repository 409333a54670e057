"""How a program uses each of its latent sites: a mark that two sites share if they may be exchanged at all.

It costs one walk through the program, and spares the numbers most of what they would refuse: an intercept and a slope,
the weights of two layers. A mark knows the operations on the way to the log joint, the numbers and the data that
are met there, and neither other latent values nor positions: parts of an array may well be exchanged. Knows programs;
no symmetry.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.discovery.labels.program import Program

_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_SUMS = ("add", "add_any")
_MOST_BYTES, _MOST_LETTERS = 10_000, 200


class _Step(NamedTuple):
    """One operation: what it does, what enters (a value's number, or a constant's mark), and what comes out."""

    mark: int
    operands: list[Any]
    results: list[int]
    is_sum: bool


class _Constant(NamedTuple):
    """A number that stands in the program; whole ones, which are indices mostly, all look alike."""

    mark: int


def marks_of_usage(program: Program) -> dict[str, int]:
    """Site -> a mark of how the program uses it."""
    count = itertools.count()
    jaxpr = getattr(program.jaxpr, "jaxpr", program.jaxpr)
    given = [next(count) for _ in jaxpr.invars]
    steps: list[_Step] = []
    results = _flatten(program.jaxpr, given, count, steps)
    latent = dict(zip(program.shapes, given, strict=False))

    # forwards: what does not depend on latent values has a mark of its own
    known = {number: hash(("data", number)) for number in given if number not in latent.values()}
    for step in steps:
        marks = [x.mark if isinstance(x, _Constant) else known.get(x) for x in step.operands]
        if None not in marks:
            known |= {x: hash((step.mark, k, tuple(marks))) for k, x in enumerate(step.results)}

    # backwards: what becomes of a value
    uses: dict[int, list[int]] = {}
    for x in results:
        if not isinstance(x, _Constant):
            uses.setdefault(x, []).append(hash("log joint"))

    def mark(number: int) -> int:
        return hash(tuple(sorted(uses.get(number, ()))))

    sums: set[int] = set()
    for step in reversed(steps):
        after = tuple(map(mark, step.results))
        if step.is_sum:
            # a sum of sums is one sum, whatever the order in which its terms came
            own = uses.get(step.results[0], [])
            token = own[0] if len(own) == 1 and own[0] in sums else hash(("sum", after))
            sums.add(token)
            for x in step.operands:
                if not isinstance(x, _Constant) and x not in known:
                    uses.setdefault(x, []).append(token)
            continue
        met = [x.mark if isinstance(x, _Constant) else known.get(x) for x in step.operands]
        together = tuple(sorted(m for m in met if m is not None))
        for x in step.operands:
            if not isinstance(x, _Constant) and x not in known:
                uses.setdefault(x, []).append(hash((step.mark, after, together)))
    return {site: mark(number) for site, number in latent.items()}


def _flatten(closed: Any, operands: Sequence[Any], count: Iterator[int], steps: list[_Step]) -> list[Any]:
    """The steps of a program and of those that it calls; what comes out of it."""
    body = getattr(closed, "jaxpr", closed)
    values = dict(zip(body.constvars, map(_constant, getattr(closed, "consts", ())), strict=False))
    values |= dict(zip(body.invars, operands, strict=True))

    def value(var: Any) -> Any:
        return _constant(var.val) if hasattr(var, "val") else values[var]

    for equation in body.eqns:
        entering = [value(var) for var in equation.invars]
        inner = next((equation.params[name] for name in _CALLED if name in equation.params), None)
        called = getattr(inner, "jaxpr", inner)
        if equation.primitive.name != "scan" and len(getattr(called, "invars", ())) == len(entering) > 0:
            leaving = _flatten(inner, entering, count, steps)
        else:
            leaving = [next(count) for _ in equation.outvars]
            settings = sorted((name, _words(x)) for name, x in equation.params.items())
            steps.append(
                _Step(hash((equation.primitive.name, *settings)), entering, leaving, equation.primitive.name in _SUMS)
            )
        values |= dict(zip(equation.outvars, leaving, strict=True))
    return [value(var) for var in body.outvars]


def _constant(x: Any) -> _Constant:
    if not jnp.issubdtype(getattr(x, "dtype", type(x)), jnp.floating):
        return _Constant(hash("whole"))
    array = np.asarray(x)
    return _Constant(hash(array.tobytes()) if array.nbytes <= _MOST_BYTES else id(x))


def _words(setting: Any) -> str:
    words = str(setting) if isinstance(setting, int | float | str | tuple | np.dtype | type(None)) else ""
    return words if len(words) <= _MOST_LETTERS else ""
