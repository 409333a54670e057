"""Walks a program and gives every value its labels, one operation at a time.

The invariant: for every permutation of the atoms that respects their colours, ``value(g·θ) = g·value(θ)``. The result
of a model's log density is a scalar, so it is then invariant. Knows jaxprs (of several versions of JAX) and terms; the
rules for single operations are in `rules`.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from numpyro_symmetry.discovery.labels.folding import fold, operand_chosen, residual_of
from numpyro_symmetry.discovery.labels.terms import (
    DIFFERS,
    Reason,
    Strength,
    Term,
    Uniform,
    is_uniform,
    pin,
    pinned,
    resolve,
    unify,
)
from numpyro_symmetry.discovery.labels.values import (
    Dependence,
    Known,
    Membership,
    Segment,
    Typed,
    Value,
    axes_of_constant,
)
from numpyro_symmetry.models.compat import called, frames_of, name_of, shapes_of

# folders whose frames are not the user's: the standard library and installed packages, and this package
_LIBRARIES = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], str(Path(__file__).parents[2]))


_LEFT_OUT = Typed(())


# operations whose rules know what is an index of an axis; to all others it is a number
_KNOW_INDICES = frozenset(
    """
    add broadcast_in_dim concatenate convert_element_type copy dynamic_slice eq gather lt reshape scatter
    scatter-add scatter-max scatter-min scatter-mul scatter-sub slice squeeze stop_gradient transpose
    """.split()
)


class Operation(NamedTuple):
    """One operation, as rules see it.

    Attributes
    ----------
    name, params
        Of the JAX primitive.
    operands
        Values going in; ``axes`` has a label for each of their axes, ``shapes`` their sizes.
    out_shapes
        Sizes of what comes out, for each result.
    unused
        Whether each result is never read.
    source
        Line of the user's file.
    equation, walk
        For rules that evaluate constants or walk inner programs.
    pieces
        Parts of latent axes that it takes on their own, as its rule notes them: all of its results are made of these.
    """

    name: str
    params: dict[str, Any]
    operands: list[Value]
    axes: list[list[Term]]
    shapes: list[tuple[int, ...]]
    out_shapes: list[tuple[int, ...]]
    unused: list[bool]
    source: str
    equation: Any
    walk: Walk
    pieces: set[Segment]

    def meet(self, a: Term, b: Term) -> Term:
        """Unify the labels of two axes whose entries correspond one to one."""
        return unify(a, b, self.reason("two axes meet", "moved"))

    def note(self, term: Term, start: int, stop: int) -> None:
        """Note a part of an axis of the first operand as a piece, if that is latent."""
        if (start, stop) != (0, term.size) and self.operands[0].origin == Dependence.LATENT and not is_uniform(term):
            self.pieces.add((term, start, stop))

    def mix(self, *terms: Term, operand: int = 0) -> None:
        """Record that entries along these axes of an operand are mixed: its other axes then stand without them."""
        self.walk.see(Typed(tuple(t for t in self.axes[operand] if not any(t is term for term in terms))))

    def reason(self, text: str, strength: Strength = "order") -> Reason:
        """A reason with the line at which this operation stands."""
        return Reason(text, self.source, strength)

    def by_index(self, text: str, *indices: Value) -> Reason:
        """A reason with the strength of the indices that choose entries: data, latent values, or a loop's counter."""
        origin = max((index.origin for index in indices), default=Dependence.COUNTED)
        strength: Strength = (
            "moved" if origin == Dependence.COUNTED else "order" if origin == Dependence.LATENT else "data"
        )
        return Reason(text, self.source, strength)


Rule = Callable[[Operation], "Sequence[list[Term] | Value]"]


@dataclass
class Walk:
    """A walk through a program.

    Attributes
    ----------
    rules
        Name of a primitive -> rule.
    record
        Labels of every value met, for telling which axes always stand together.
    cells
        Labels of axes over which the program being walked is repeated (`jax.lax.scan`), which its values do not show.
    memberships
        For every gather by data: each entry of the axis that it makes belongs to an entry of the axis pointed into.
    meetings
        Part of a latent axis -> tags of the data, other than real ones, that values made of it meet.
    shadows
        Pairs of an axis of a matrix and one that its factorisation made of it, or solved for with it, index by index.
    counted
        Axes that counters of the loop being walked point into; ``None`` outside of loops.
    line
        The user's line at which the walk stands.
    """

    rules: Mapping[str, Rule]
    record: list[tuple[Term, ...]] = field(default_factory=list)
    cells: tuple[Term, ...] = ()
    memberships: list[Membership] = field(default_factory=list)
    meetings: dict[Segment, set[object]] = field(default_factory=dict)
    shadows: list[tuple[Term, Term]] = field(default_factory=list)
    counted: list[Term] | None = None
    line: str = ""
    _tags: dict[tuple[Any, ...], tuple[str, int]] = field(default_factory=dict)

    def run_closed(self, closed: Any, args: Sequence[Value]) -> list[Value]:
        """Labels of a program's results, given those of its arguments."""
        program = residual_of(closed, args)
        environment = program.given | program.constants

        def read(atom: Any) -> Value:
            if isinstance(atom, core.Literal):
                return Known(np.asarray(atom.val))
            # a value that a choice by a constant leaves out was never walked, and is never looked at
            return environment.get(atom, _LEFT_OUT)

        for equation in program.equations:
            operands = list(map(read, equation.invars))
            chosen = operand_chosen(equation, [x if isinstance(x, Known) else None for x in operands])
            unused = [var not in program.live for var in equation.outvars]
            values = self.step(equation, operands, unused) if chosen is None else [operands[chosen]]
            for var, value in zip(equation.outvars, values, strict=True):
                self.see(value)
                environment[var] = value
        return list(map(read, program.body.outvars))

    def run_apart(self, closed: Any, args: Sequence[Value]) -> list[Value]:
        """`run_closed` for a loop's body or a branch: indices of an axis come out of it as mere numbers."""
        results = self.run_closed(closed, args)
        self.read_as_numbers(*results)
        return [x._replace(points=None) if isinstance(x, Typed) else x for x in results]

    def read_as_numbers(self, *values: Value) -> None:
        """Tell apart the indices of every axis into which values point."""
        for value in values:
            for part in (value, *(value.columns or ())) if isinstance(value, Typed) else ():
                if isinstance(part, Typed) and part.points is not None:
                    pin(part.points.reason, part.points.axis)

    def see(self, value: Value) -> None:
        """Remember which labels stand together."""
        if isinstance(value, Typed):
            self.record.append(value.axes + self.cells)

    def step(self, equation: Any, operands: list[Value], unused: list[bool]) -> list[Value]:
        """Labels of one operation's results."""
        # an operation within a library's compiled function has no line of the user's: it gets that of its caller
        outside, self.line = self.line, _source(equation) or self.line
        try:
            return self._step(equation, operands, unused)
        finally:
            self.line = outside

    def _step(self, equation: Any, operands: list[Value], unused: list[bool]) -> list[Value]:
        name, params = name_of(equation), equation.params
        shapes, out_shapes = shapes_of(equation.invars), shapes_of(equation.outvars)
        if name not in self.rules and (inner := called(equation)) is not None:
            return self.run_closed(inner, operands)
        # operands may be constants that a loop turned out to make
        constants = [operand.value for operand in operands if isinstance(operand, Known)]
        if len(constants) == len(operands) and (folded := fold(equation, constants)) is not None:
            return [Known(value) for value in folded]
        source = self.line
        axes = [self.axes(operand, shape, source) for operand, shape in zip(operands, shapes, strict=True)]
        operation = Operation(name, params, operands, axes, shapes, out_shapes, unused, source, equation, self, set())
        rule = self.rules.get(name, self.rules["unknown"])
        if name not in _KNOW_INDICES:
            self.read_as_numbers(*operands)
        pieces = frozenset().union(*(operand.pieces for operand in operands))
        # parts of latent axes, and the data that they meet
        data = {x.tag for x in operands if pieces and x.origin == Dependence.WHOLE and x.tag is not None}
        for piece in pieces if data else ():
            self.meetings.setdefault(piece, set()).update(data)
        tags = [operand.tag for operand in operands]
        tag = None if None in tags else self.tag(name, str(params), *tags)
        origin = max((operand.origin for operand in operands), default=Dependence.COUNTED)
        results: list[Value] = []
        made = rule(operation)
        pieces |= operation.pieces
        for k, result in enumerate(made):
            value = result if isinstance(result, Known | Typed) else Typed(tuple(result))
            if isinstance(value, Typed) and value.tag is None:
                own = value.origin if value.origin != Dependence.LATENT else origin
                value = value._replace(tag=tag and (k, tag), origin=own, pieces=value.pieces | pieces)
            results.append(value)
        chosen = _choice_of(equation, operands)
        if chosen is not None and len(results) == 1 and isinstance(results[0], Typed):
            results[0] = results[0]._replace(choice=chosen)
        return results

    def tag(self, *parts: object) -> tuple[str, int]:
        """One name for equal parts: tags of functions of functions stay short."""
        return self._tags.setdefault(parts, ("tag", len(self._tags)))

    def count_through(self, target: Term, reason: Reason) -> None:
        """Axes of one size that counters of a loop point into stand together, as those that `jax.lax.scan` takes."""
        for other in self.counted or ():
            if other.size == target.size:
                target = unify(target, other, reason)
        if self.counted is not None:
            self.counted.append(target)

    def axes(self, value: Value, shape: tuple[int, ...], source: str = "") -> list[Term]:
        """Labels of a value's axes; fresh ones each time for a constant."""
        if isinstance(value, Typed):
            return [resolve(term) for term in value.axes]
        reason = Reason(DIFFERS, source)
        if not isinstance(value.value, np.ndarray):
            return [Uniform(n) if n < 2 else pinned(n, reason) for n in shape]
        return axes_of_constant(value.value, reason)


def _choice_of(equation: Any, operands: Sequence[Value]) -> tuple[object, tuple[np.ndarray, ...]] | None:
    """The choice that a function of one choice among constants is, evaluated for each case; else ``None``."""
    chosen = {x.choice[0]: len(x.choice[1]) for x in operands if isinstance(x, Typed) and x.choice is not None}
    if len(chosen) != 1 or any(isinstance(x, Typed) and x.choice is None for x in operands):
        return None
    ((who, count),) = chosen.items()
    found: list[np.ndarray] = []
    for k in range(count):
        values = [x.choice[1][k] if isinstance(x, Typed) and x.choice else x.value for x in operands]  # pyright: ignore
        folded = fold(equation, values)
        if folded is None or len(folded) != 1:
            return None
        found += folded
    return who, tuple(found)


def _source(equation: Any) -> str:
    """File and line of the user's that made an equation, innermost first; empty if only libraries did."""
    for name, line in frames_of(equation):
        if not name.startswith((*_LIBRARIES, "<frozen")):
            return f"{Path(name).name}:{line}"
    return ""
