r"""Which sites may be negated together: parities of every value of a program, one unknown for each site.

A value is odd or even in a change of signs: :math:`v(s\theta) = (-1)^{\phi \cdot s}\, v(\theta)` for signs :math:`s` of
sites (1 where negated) and a vector :math:`\phi` over GF(2). Products add these vectors, odd functions keep them, sums
demand that those of their terms agree, and whatever else is not even demands that there is no change. What solves all
demands leaves the log joint alone. A demand is put off as long as a value depends on a single :math:`\phi \cdot s`, for
what is made of it may be odd or even all the same: whether x lies between -1 and 1. Arrays that are several put end to
end have an unknown for each part. Knows programs and constants; no terms and no symmetries.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial, reduce
from operator import xor
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from numpyro_symmetry.discovery.labels.demands import EVEN, Demands, Mirrored, Parity
from numpyro_symmetry.discovery.labels.folding import (
    branches_taken,
    constant_of,
    evaluated,
    operand_chosen,
    residual_of,
)
from numpyro_symmetry.discovery.labels.forms import EVENS, LINEAR, ODD, SAME, ZERO, Form, negative
from numpyro_symmetry.discovery.labels.parted import Parts, apart, as_slices, axes_met, joined, mapped, moved, with_axis
from numpyro_symmetry.discovery.labels.places import MAX_FOLLOWED
from numpyro_symmetry.discovery.labels.values import Known
from numpyro_symmetry.models.compat import body_of, called, name_of, scan_counts, shapes_of

_ODD = (
    ODD | SAME | LINEAR | {"neg", "real", "imag", "conj", "reduce_window_sum", "fft", "unstack", "optimization_barrier"}
)
_SUMS = {"add", "sub", "add_any", "pad", "complex"}
_PRODUCTS = {"mul", "div", "dot_general", "conv_general_dilated", "triangular_solve"}
_EVENS = EVENS | {"abs", "is_finite"}
# operations that only move entries: of one value; of several, that then stand side by side; of one and of constants
_REARRANGED = {"broadcast_in_dim", "reshape", "squeeze", "transpose", "slice", "rev", "tile", "unstack"}
_SIDE_BY_SIDE = {"concatenate", "stack", "scatter", "dynamic_update_slice"}
_PLACED = _SIDE_BY_SIDE | {"gather", "pad", "select_n"}
# kinds of numbers of which none is negative: truths, and whole numbers without a sign
_WITHOUT_SIGN = "bu"
# operands that hold values, where not all do; the others are indices
_HOLD_VALUES = {
    **dict.fromkeys(["gather", "dynamic_slice"], slice(1)),
    **dict.fromkeys(["scatter", "scatter-add", "scatter-sub"], slice(0, None, 2)),
    "dynamic_update_slice": slice(2),
    "select_n": slice(1, None),
}


def even_sets(
    jaxpr: Any,
    can_be_negated: Sequence[bool],
    cuts: Sequence[Sequence[tuple[int, tuple[int, ...]]]] = (),
    beside: Sequence[Any] = (),
) -> list[frozenset[int]]:
    """Sets of a closed program's first arguments that may be negated together; all others are products of them.

    With cuts, sets of their parts: arguments are numbered on, one number for each part of those that are cut.

    Parameters
    ----------
    jaxpr
        Closed program; the sum of its results is to stay.
    can_be_negated
        Whether each of the first arguments is one that may hold any real number.
    cuts
        For each argument, the axes along which it is several put end to end, each with their sizes; its parts are
        numbered along the last of these axes first.
    beside
        Closed programs of the same arguments, whose results are to stay too.
    """
    demands, given = Demands(), list[Parity]()
    shapes = shapes_of(body_of(jaxpr).invars)
    for can, own, shape in zip(can_be_negated, cuts or [()] * len(can_be_negated), shapes, strict=False):
        sizes = list[tuple[int, ...]]((n,) for n in shape)
        for axis, parts in own:
            sizes[axis] = parts
        given.append(joined(sizes, [demands.unknown() for _ in range(math.prod(map(len, sizes)))]))
        if not can:
            demands.vanish(given[-1])
    count, data = demands.num_unknowns, len(body_of(jaxpr).invars) - len(given)
    for program in (jaxpr, *beside):
        demands.vanish(*_run_closed(program, [*given, *[EVEN] * data], demands)[0])
    return [frozenset(k for k in range(count) if signs >> k & 1) for signs in demands.solutions(count)]


def _run_closed(
    closed: Any,
    args: Sequence[Parity | Known],
    demands: Demands,
    wanted: Sequence[bool] | None = None,
    forms_of_args: Sequence[Form] | None = None,
) -> tuple[list[Parity], list[Form]]:
    """Parities and forms of a program's results; an operation that no wanted result depends on demands nothing."""
    program = residual_of(closed, args, wanted)
    environment: dict[Any, Parity | Known] = dict(program.given)
    forms = dict(zip(program.body.invars, forms_of_args or (), strict=False))

    # constants enter called programs as constants: choices by them are made inside
    def read(atom: Any) -> Parity | Known:
        value = constant_of(atom, program.constants)
        return environment.get(atom, EVEN) if value is None else value

    def form_of(atom: Any) -> Form:
        if isinstance(atom, core.Literal):
            return demands.forms.constant(Known(np.asarray(atom.val)))
        if atom not in forms:
            value = program.constants.get(atom)
            forms[atom] = demands.forms.fresh() if value is None else demands.forms.constant(value)
        return forms[atom]

    constants = ([constant_of(atom, program.constants) for atom in one.invars] for one in program.equations)
    for equation in itertools.chain.from_iterable(map(as_slices, program.equations, constants)):
        operands, before = list(map(read, equation.invars)), list(map(form_of, equation.invars))
        if (inner := called(equation)) is not None:
            needed = [var in program.live for var in equation.outvars]
            results, after = _run_closed(inner, operands, demands, needed, before)
            forms.update(zip(equation.outvars, after, strict=True))
        elif (solved := _EQUATIONS.get(equation.primitive.name)) is not None:
            results = solved(
                equation.params, [x if isinstance(x, Known) else demands.settled(x) for x in operands], demands
            )
        else:
            given = [x if isinstance(x, Known) else None for x in operands]
            results = _step_apart(_Step(equation, given, before, demands), list(map(_parity_of, operands)))
            if len(equation.outvars) == 1:
                forms[equation.outvars[0]] = demands.forms.of(equation, before)
                # values that cancel are both odd and even
                results = [None] if forms[equation.outvars[0]] == ZERO else results
        environment.update(zip(equation.outvars, results, strict=True))
    return [_parity_of(read(var)) for var in program.body.outvars], list(map(form_of, program.body.outvars))


def _parity_of(value: Parity | Known) -> Parity:
    """The parity of a value, which may be a constant: zeros are both odd and even."""
    if not isinstance(value, Known):
        return value
    array = value.value
    return None if isinstance(array, np.ndarray) and array.dtype.kind in "fiuc" and not array.any() else EVEN


class _Step(NamedTuple):
    """One operation, and what is known of its operands beside their parities."""

    equation: Any
    given: list[Known | None]
    forms: list[Form]
    demands: Demands


def _step_apart(step: _Step, operands: list[Parity]) -> list[Parity]:
    """Parities of an operation's results, part by part where it leaves them apart."""
    equation, demands = step.equation, step.demands
    if (placed := _placed(step, operands)) is not None:
        return placed
    if not any(isinstance(parity, Parts) for parity in operands):
        return _step(step, operands)
    if equation.primitive.name in _REARRANGED:
        each = mapped(operands[0], lambda part: _step(step, [part])[0])
        return moved(partial(evaluated, equation), [each], shapes_of(equation.invars))
    if (met := axes_met(equation)) is None:
        return _step(step, [demands.whole(one) if isinstance(one, Parts) else one for one in operands])
    (shape,) = shapes_of(equation.outvars)
    return [apart(lambda *one: _step(step, list(one))[0], demands.agree, operands, *met, shape)]


def _placed(step: _Step, operands: list[Parity]) -> list[Parity] | None:
    """Parities of values that an operation puts where constants say, and leaves as they are; ``None`` of any other."""
    equation, demands = step.equation, step.demands
    name, params, shapes = name_of(equation), equation.params, shapes_of(equation.invars)
    held = _values_of(name, len(operands))
    indices = [one for k, one in enumerate(step.given) if k not in held]
    values = [operands[k] for k in held]
    if name not in _PLACED or None in indices:
        return None
    if indices and max(map(math.prod, [shapes[0], *shapes_of(equation.outvars)])) > MAX_FOLLOWED:
        return None
    if name not in _SIDE_BY_SIDE and any(isinstance(parity, Mirrored) for parity in values):
        return None

    # what a gather fills in where an index is out of bounds is a value as well
    filled = [_filled(params)] if params.get("fill_value") is not None else []

    def place(*arrays: np.ndarray) -> list[np.ndarray]:
        given = [one.value for one in indices if one is not None]
        for k, array in zip(held, arrays, strict=False):
            given.insert(k, array)
        of = params | {"fill_value": arrays[-1]} if filled else params
        return evaluated(equation.replace(params=of), *given)

    values = [*map(demands.settled, values), *filled]
    if not any(isinstance(parity, Parts) for parity in values):
        # zeros that are filled in among others need no part of their own
        alike = {*values} if name in _SIDE_BY_SIDE else {*values} - {None}
        if len(alike) < 2:
            return [next(iter(alike), None)] * len(equation.outvars)
    return moved(place, values, [*(shapes[k] for k in held), *[()] * len(filled)])


def _values_of(name: str, count: int) -> Sequence[int]:
    """Positions of the operands that hold values; all others are indices."""
    return range(count)[_HOLD_VALUES.get(name, slice(None))]


def _filled(params: Any) -> Parity:
    """The parity of a constant that is filled in; zeros and NaN are both odd and even."""
    return EVEN if abs(params.get("fill_value") or 0) > 0 else None


def _step(step: _Step, operands: list[Parity]) -> list[Parity]:
    """Parities of an operation's results: by its rule, unless that demands something that may be put off."""
    demands = step.demands
    if any(isinstance(parity, Mirrored) for parity in operands):
        found = _mirrored(step, operands)
        return _step(step, list(map(demands.whole, operands))) if found is None else found
    before = list(demands.rows)
    results = _by_rule(step, operands)
    if len(demands.rows) > len(before):
        after, demands.rows = demands.rows, before
        if (put_off := _mirrored(step, operands)) is not None:
            return put_off
        demands.rows = after
    return results


def _mirrored(step: _Step, operands: list[Parity]) -> list[Parity] | None:
    """The parity of a function of values that a single vector mirrors, by its forms before and after; else ``None``."""
    equation, _, forms, demands = step
    if len(equation.outvars) > 1 or any(isinstance(parity, Parts) for parity in operands):
        return None
    given = [
        p if isinstance(p, Mirrored) else Mirrored(EVEN, form, p or EVEN)  # pyright: ignore
        for p, form in zip(operands, forms, strict=True)
    ]
    aside, sign = _let_through(equation, [mirrored.sign for mirrored in given], [p is None for p in operands])
    where = [demands.reduced(mirrored.where) for mirrored in given]
    signs = [demands.reduced(mirrored.sign ^ own) for mirrored, own in zip(given, aside, strict=True)]
    if len(vectors := {*where, *signs} - {EVEN}) != 1:
        return None
    others = [mirrored.form if here else form for mirrored, form, here in zip(given, forms, where, strict=True)]
    others = [negative(form) if negated else form for form, negated in zip(others, signs, strict=True)]
    before, after = demands.forms.of(equation, forms), demands.forms.of(equation, others)
    (parity,) = vectors
    if after in (before, negative(before)):
        return [sign if after == before else sign ^ parity]
    return [Mirrored(parity, after, sign)]


def _let_through(equation: Any, signs: list[int], are_zero: list[bool]) -> tuple[list[int], int]:
    """The sign of each operand that an operation lets through, and of its result: products any signs, others one."""
    name, params = equation.primitive.name, equation.params
    if name in _PRODUCTS and not params.get("unit_diagonal"):
        return signs, reduce(xor, signs)
    common = next((sign for sign, is_zero in zip(signs, are_zero, strict=True) if not is_zero), EVEN)
    if name in _EVENS:
        return [common], EVEN
    if name in _ODD | _SUMS and _kind_made(params) not in _WITHOUT_SIGN:
        return [EVEN if is_zero else common for is_zero in are_zero], common
    return [EVEN] * len(signs), EVEN


def _by_rule(step: _Step, operands: list[Parity]) -> list[Parity]:
    equation, given, _, demands = step
    name, params, count = name_of(equation), equation.params, len(equation.outvars)
    if name in _ODD and _kind_made(params) not in _WITHOUT_SIGN:
        return [operands[0]] * count if len(operands) == 1 else list(operands)
    if name in _SUMS:
        return [demands.agree(operands)]
    if name == "lu":
        # rows are chosen by size; on and above the diagonal, the one part that densities read, it follows the matrix
        return [operands[0], *[EVEN] * (count - 1)]
    if name == "triangular_solve" and params["unit_diagonal"]:
        # a diagonal of ones does not follow the matrix
        demands.vanish(operands[0])
    if name in _PRODUCTS:
        return [None if None in operands else reduce(xor, operands)]
    if name in _EVENS or _kind_made(params) == "b" or (name == "svd" and not params["compute_uv"]):
        return [EVEN]
    if (power := _power_of(equation, given)) is not None:
        return [operands[0] if power % 2 else EVEN]
    if name in ("atan2", "rem", "scatter-mul"):
        # odd in the first, for others that stay
        demands.vanish(*operands[1:])
        return [operands[0]]
    if name == "polynomial":
        # the variable, and coefficients
        demands.vanish(operands[0])
        return [demands.agree(operands[1:])]
    if name == "select_n" and (chosen := operand_chosen(equation, given)) is not None:
        return [operands[chosen]]
    if name in _HOLD_VALUES:
        held = _values_of(name, len(operands))
        demands.vanish(*(p for k, p in enumerate(operands) if k not in held))
        return [demands.agree([_filled(params), *(operands[k] for k in held)])]
    # operands of all other operations must not change: of exponentials, comparisons, maxima, factors of matrices
    demands.vanish(*operands)
    return [EVEN] * count


def _kind_made(params: Any) -> str:
    """The kind of numbers that a conversion makes, as NumPy has it; of other operations that of real ones."""
    return np.dtype(params.get("new_dtype", float)).kind


def _power_of(equation: Any, given: Sequence[Known | None]) -> float | None:
    """The whole number of times that an operation multiplies a value of one parity, as in ``x**2.0``."""
    name, params = equation.primitive.name, equation.params
    if name == "reduce_prod":
        before, after = (math.prod(shape) for shape in shapes_of([*equation.invars, *equation.outvars]))
        return before // max(after, 1)
    if name == "integer_pow":
        return params["y"]
    exponents = np.unique(given[1].value) if name == "pow" and given[1] is not None else []
    return exponents[0] if len(exponents) == 1 and exponents[0] % 1 == 0 else None


def _scan(params: Any, operands: list[Parity | Known], demands: Demands) -> list[Parity]:
    num_consts, num_carry = scan_counts(params)
    start = num_consts + num_carry
    carry = [demands.unknown() for _ in range(num_carry)]
    scanned = [demands.agree_along_first(_parity_of(rows)) for rows in operands[start:]]
    inside, _ = _run_closed(params["jaxpr"], [*operands[:num_consts], *carry, *scanned], demands)
    demands.agree_each(carry, map(_parity_of, operands[num_consts:start]), inside[:num_carry])
    return [*carry, *(with_axis(demands.settled(parity), params["length"]) for parity in inside[num_carry:])]


def _while(params: Any, operands: list[Parity | Known], demands: Demands) -> list[Parity]:
    num_condition = params["cond_nconsts"]
    start = num_condition + params["body_nconsts"]
    carry = [demands.unknown() for _ in operands[start:]]
    out, _ = _run_closed(params["body_jaxpr"], [*operands[num_condition:start], *carry], demands)
    demands.agree_each(carry, map(_parity_of, operands[start:]), out)
    demands.vanish(*_run_closed(params["cond_jaxpr"], [*operands[:num_condition], *carry], demands)[0])
    return [*carry]


def _conditional(params: Any, operands: list[Parity | Known], demands: Demands) -> list[Parity]:
    which, *given = operands
    demands.vanish(_parity_of(which))
    branches = branches_taken(params, which if isinstance(which, Known) else None)
    return demands.agree_each(*(_run_closed(branch, given, demands)[0] for branch in branches))


def _solve(params: Any, operands: list[Parity | Known], demands: Demands) -> list[Parity]:
    # the solution's parity is such that both sides of the linear equation agree
    start = sum(params["const_lengths"])
    solution = [demands.unknown() for _ in operands[start:]]
    consts = operands[: params["const_lengths"].matvec]
    inside, _ = _run_closed(params["jaxprs"].matvec, [*consts, *solution], demands)
    demands.agree_each(inside, map(_parity_of, operands[start:]))
    return [*solution]


_EQUATIONS = {"scan": _scan, "while": _while, "cond": _conditional, "custom_linear_solve": _solve}
