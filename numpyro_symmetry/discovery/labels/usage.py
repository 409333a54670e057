"""How a program uses each of its latent sites: a mark that two sites share if they may be exchanged at all.

It costs one walk through the program, and spares the numbers most of what they would refuse: an intercept and a slope,
the weights of two layers. A mark knows the operations on the way to the log joint, the numbers and the data that
are met there, and neither other latent values nor positions: parts of an array may well be exchanged. Knows programs;
no symmetry.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.discovery.labels.program import Program
from numpyro_symmetry.models.compat import body_of, consts_of, inlined

_SUMS = ("add", "add_any")
_MOST_BYTES, _MOST_LETTERS = 10_000, 200


class _Step(NamedTuple):
    """One operation: a hash of what it does, and the numbers of its operands and results."""

    mark: int
    operands: list[int]
    results: list[int]
    is_sum: bool


def marks_of_usage(program: Program) -> dict[str, int]:
    """Site -> a mark of how the program uses it."""
    count = itertools.count()
    given = [next(count) for _ in body_of(program.jaxpr).invars]
    latent = dict(zip(program.shapes, given, strict=False))

    # forwards: what does not depend on latent values has a mark of its own
    known = {number: hash(("data", number)) for number in given[len(latent) :]}
    steps: list[_Step] = []

    def constant(x: Any, _: Any) -> int:
        number = next(count)
        known[number] = _mark_of(x)
        return number

    def results_of(equation: Any, operands: list[int]) -> list[int]:
        settings = sorted((setting, _words(x)) for setting, x in equation.params.items())
        step = _Step(
            hash((equation.primitive.name, *settings)),
            operands,
            [next(count) for _ in equation.outvars],
            equation.primitive.name in _SUMS,
        )
        steps.append(step)
        marks = [known.get(x) for x in operands]
        if None not in marks:
            known.update({x: hash((step.mark, k, tuple(marks))) for k, x in enumerate(step.results)})
        return step.results

    results = inlined(body_of(program.jaxpr), consts_of(program.jaxpr), given, constant, results_of)

    # backwards: what becomes of a value
    uses: dict[int, list[int]] = {}
    for x in results:
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
        else:
            together = tuple(sorted(known[x] for x in step.operands if x in known))
            token = hash((step.mark, after, together))
        for x in step.operands:
            if x not in known:
                uses.setdefault(x, []).append(token)
    return {site: mark(number) for site, number in latent.items()}


def _mark_of(constant: Any) -> int:
    """A mark of a number that stands in the program; whole ones, which are indices mostly, all look alike."""
    if not jnp.issubdtype(getattr(constant, "dtype", type(constant)), jnp.floating):
        return hash("whole")
    array = np.asarray(constant)
    return hash(array.tobytes()) if array.nbytes <= _MOST_BYTES else id(constant)


def _words(setting: Any) -> str:
    words = str(setting) if isinstance(setting, int | float | str | tuple | np.dtype | type(None)) else ""
    return words if len(words) <= _MOST_LETTERS else ""
