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
from collections.abc import Sequence
from functools import reduce
from operator import xor
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from numpyro_symmetry.discovery.labels.demands import EVEN, Demands, Mirrored, Parity
from numpyro_symmetry.discovery.labels.folding import branches_taken, constant_of, operand_chosen, residual_of
from numpyro_symmetry.discovery.labels.forms import EVENS, LINEAR, ODD, SAME, ZERO, Form, negative
from numpyro_symmetry.discovery.labels.parted import (
    Parts,
    along,
    as_slices,
    concatenated,
    contracted_with,
    joined,
    mapped,
    new_axis,
    part_sizes,
    slice_of,
    slice_written,
    with_axis,
    without_axis,
)
from numpyro_symmetry.discovery.labels.rules import ELEMENTWISE
from numpyro_symmetry.discovery.labels.values import Known
from numpyro_symmetry.models.compat import body_of, called, name_of, scan_counts, shapes_of

_ODD = (
    ODD | SAME | LINEAR | {"neg", "real", "imag", "conj", "reduce_window_sum", "fft", "unstack", "optimization_barrier"}
)
_SUMS = {"add", "sub", "add_any", "pad", "complex", "stack"}
_PRODUCTS = {"mul", "div", "dot_general", "conv_general_dilated", "triangular_solve"}
_EVENS = EVENS | {"abs", "is_finite"}
# operations that parts go through one by one
_APART = {
    *ELEMENTWISE,
    *"broadcast_in_dim conv_general_dilated dot_general reduce_sum reshape select_n squeeze transpose".split(),
}
# kinds of numbers of which none is negative: truths, and whole numbers without a sign
_WITHOUT_SIGN = "bu"
# positions of operands that hold values; all others are indices
_HOLD_VALUES = {
    **dict.fromkeys(["gather", "dynamic_slice"], (0,)),
    **dict.fromkeys(["scatter", "scatter-add"], (0, 2)),
    "dynamic_update_slice": (0, 1),
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
    for can, own in itertools.zip_longest(can_be_negated, cuts, fillvalue=()):
        given.append(_unknown_parts(demands, own))
        if not can:
            demands.vanish(given[-1])
    count, data = demands.num_unknowns, len(body_of(jaxpr).invars) - len(given)
    for program in (jaxpr, *beside):
        demands.vanish(*_run_closed(program, [*given, *[EVEN] * data], demands)[0])
    return [frozenset(k for k in range(count) if signs >> k & 1) for signs in demands.solutions(count)]


def _unknown_parts(demands: Demands, cuts: Sequence[tuple[int, tuple[int, ...]]]) -> Parity:
    """An unknown for each part of an argument."""
    if not cuts:
        return demands.unknown()
    (axis, sizes), *further = cuts
    return joined(axis, sizes, [_unknown_parts(demands, further) for _ in sizes])


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
    name, params = equation.primitive.name, equation.params
    found = next(((k, parity) for k, parity in enumerate(operands) if isinstance(parity, Parts)), None)
    if name == "concatenate":
        sizes = [shape[params["dimension"]] for shape in shapes_of(equation.invars)]
        return [concatenated(params["dimension"], sizes, list(map(demands.settled, operands)))]
    if name == "stack":
        each = [with_axis(demands.settled(parity), params["axis"]) for parity in operands]
        return [joined(params["axis"], [1] * len(each), each)]
    if (written := slice_written(equation, step.given)) is not None:
        return [_written_over(equation, written, operands, demands)]
    if found is None:
        return _step(step, operands)
    first, parts = found
    if name in ("slice", "unstack"):
        return _slices_of(mapped(parts, lambda part: _step(step, [part])[0]), equation, demands)
    axis = new_axis(equation, first, *parts[:2]) if name in _APART else None
    summed = contracted_with(equation, first, parts.axis)
    if axis is None and summed is None:
        return _step_apart(step, [demands.agree(parts.of) if k == first else p for k, p in enumerate(operands)])

    meets = {first: parts.axis, 1 - first: summed}

    def of_parts(operand: int, parity: Parity) -> list[Parity]:
        """What each part meets of an operand: its part, where it has the same along this axis, or all of it."""
        for other, sizes in part_sizes(parity).items():
            if other == meets[operand] if axis is None else new_axis(equation, operand, other, parts.sizes) == axis:
                parity = parity if sizes == {parts.sizes} else demands.whole(parity)
                return [along(parity, other, lambda own, k=k: own.of[k]) for k in range(len(parts.of))]
        return [parity] * len(parts.of)

    met = zip(*itertools.starmap(of_parts, enumerate(operands)), strict=True)
    each = [_step_apart(step, list(one))[0] for one in met]
    if axis is None:
        return [demands.agree(each)]
    before, after = max(sum(parts.sizes), 1), shapes_of(equation.outvars)[0][axis]
    return [joined(axis, [size * after // before for size in parts.sizes], each)]


def _written_over(equation: Any, written: tuple[int, int, int], operands: list[Parity], demands: Demands) -> Parity:
    """The parity of a value of which a slice is another's: up to it, the other's, and from there on."""
    (axis, first, size), place = written, _HOLD_VALUES[equation.primitive.name][1]
    shape, update = (shapes_of(equation.invars)[k] for k in (0, place))
    held, own = (demands.settled(operands[k]) for k in (0, place))
    # updates with axes of their own, such as one for many indices, have one parity
    own = own if update == (*shape[:axis], size, *shape[axis + 1 :]) else demands.whole(own)
    low, high = (slice_of(held, axis, *ends) for ends in ((0, first), (first + size, shape[axis])))
    return concatenated(axis, [first, size, shape[axis] - first - size], [low, own, high])


def _slices_of(parts: Parity, equation: Any, demands: Demands) -> list[Parity]:
    """Parities of slices."""
    params, (shape, *_) = equation.params, shapes_of(equation.invars)
    if equation.primitive.name == "unstack":
        axis = params["axis"]
        return [without_axis(slice_of(parts, axis, k, k + 1), axis) for k in range(shape[axis])]
    strides = params["strides"] or (1,) * len(shape)
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    for axis, (start, stop, stride) in enumerate(bounds):
        parts = slice_of(parts, axis, start, stop)
        parts = parts if stride == 1 else demands.agree_along(parts, axis)
    return [parts]


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
    if name in _EVENS or _kind_made(params) == "b":
        return [EVEN]
    if name == "integer_pow" or (name == "pow" and _is_whole(given[1])):
        power = params["y"] if name == "integer_pow" else given[1].value.flat[0]  # pyright: ignore
        return [operands[0] if power % 2 else EVEN]
    if name in ("atan2", "rem"):
        # odd in the first, for a second that stays
        demands.vanish(operands[1])
        return [operands[0]]
    if name in _HOLD_VALUES:
        demands.vanish(*(p for k, p in enumerate(operands) if k not in _HOLD_VALUES[name]))
        # what is filled in where an index is out of bounds is a constant; NaN is both odd and even
        filled = [EVEN] if abs(params.get("fill_value") or 0) > 0 else []
        return [demands.agree([*filled, *(operands[k] for k in _HOLD_VALUES[name])])]
    if name == "select_n":
        if (chosen := operand_chosen(equation, given)) is not None:
            return [operands[chosen]]
        demands.vanish(operands[0])
        return [demands.agree(operands[1:])]
    # operands of all other operations must not change: of exponentials, comparisons, maxima, factors of matrices
    demands.vanish(*operands)
    return [EVEN] * count


def _kind_made(params: Any) -> str:
    """The kind of numbers that a conversion makes, as NumPy has it; of other operations that of real ones."""
    return np.dtype(params.get("new_dtype", float)).kind


def _is_whole(exponent: Known | None) -> bool:
    """Whether this is one whole number, as in ``x**2.0``."""
    return exponent is not None and np.unique(exponent.value).size == 1 and exponent.value.flat[0] % 1 == 0


def _scan(params: Any, operands: list[Parity | Known], demands: Demands) -> list[Parity]:
    num_consts, num_carry = scan_counts(params)
    start = num_consts + num_carry
    carry = [demands.unknown() for _ in range(num_carry)]
    scanned = [without_axis(demands.agree_along(_parity_of(rows), 0), 0) for rows in operands[start:]]
    inside, _ = _run_closed(params["jaxpr"], [*operands[:num_consts], *carry, *scanned], demands)
    demands.agree_each(carry, map(_parity_of, operands[num_consts:start]), inside[:num_carry])
    return [*carry, *(with_axis(demands.settled(parity), 0) for parity in inside[num_carry:])]


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
