"""How a program uses each of its latent sites: a mark that two sites share if they may be exchanged at all.

It costs one walk through the program, and spares the numbers most of what they would refuse: an intercept and a slope,
the weights of two layers. A mark knows the operations on the way to the log joint, the numbers and the data that
are met there, and neither other latent values nor positions: parts of an array may well be exchanged. Knows programs;
no symmetry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.discovery.labels.program import TracedLogJoint
from numpyro_symmetry.models.compat import body_of, consts_of, inlined

_SUMS = ("add", "add_any")
_MOST_BYTES, _MOST_LETTERS = 10_000, 200


@dataclass(eq=False)
class _Value:
    """A value: a mark of its own if it does not depend on latent values, and the marks of what is made of it."""

    known: int | None = None
    uses: list[int] = field(default_factory=list)

    @property
    def mark(self) -> int:
        """A mark of how it is used."""
        return hash(tuple(sorted(self.uses)))


class _Step(NamedTuple):
    """One operation: a hash of what it does, its operands and its results."""

    mark: int
    operands: list[_Value]
    results: list[_Value]
    is_sum: bool


def marks_of_usage(program: TracedLogJoint) -> dict[str, int]:
    """Site -> a mark of how the program uses it."""
    latent, steps = {site: _Value() for site in program.shapes}, list[_Step]()
    # forwards: what does not depend on latent values has a mark of its own
    data = [_Value(hash(("data", k))) for k in range(len(latent), len(body_of(program.jaxpr).invars))]

    def results_of(equation: Any, operands: list[_Value]) -> list[_Value]:
        settings = sorted((setting, _words(x)) for setting, x in equation.params.items())
        step = _Step(
            hash((equation.primitive.name, *settings)),
            operands,
            [_Value() for _ in equation.outvars],
            equation.primitive.name in _SUMS,
        )
        steps.append(step)
        marks = tuple(x.known for x in operands)
        if None not in marks:
            for k, result in enumerate(step.results):
                result.known = hash((step.mark, k, marks))
        return step.results

    given = [*latent.values(), *data]
    results = inlined(
        body_of(program.jaxpr), consts_of(program.jaxpr), given, lambda x, _: _Value(_mark_of(x)), results_of
    )
    # backwards: what becomes of a value
    for result in results:
        result.uses.append(hash("log joint"))
    sums: set[int] = set()
    for step in reversed(steps):
        after = tuple(result.mark for result in step.results)
        if step.is_sum:
            # a sum of sums is one sum, whatever the order in which its terms came
            own = step.results[0].uses
            token = own[0] if len(own) == 1 and own[0] in sums else hash(("sum", after))
            sums.add(token)
        else:
            together = tuple(sorted(x.known for x in step.operands if x.known is not None))
            token = hash((step.mark, after, together))
        for x in step.operands:
            if x.known is None:
                x.uses.append(token)
    return {site: value.mark for site, value in latent.items()}


def _mark_of(constant: Any) -> int:
    """A mark of a number that stands in the program; whole ones, which are indices mostly, all look alike."""
    if not jnp.issubdtype(getattr(constant, "dtype", type(constant)), jnp.floating):
        return hash("whole")
    array = np.asarray(constant)
    return hash(array.tobytes()) if array.nbytes <= _MOST_BYTES else id(constant)


def _words(setting: Any) -> str:
    words = str(setting) if isinstance(setting, int | float | str | tuple | np.dtype | type(None)) else ""
    return words if len(words) <= _MOST_LETTERS else ""
