r"""Which sites may be negated together: parities of every value of a program, one unknown for each site.

A value is odd or even in a change of signs: :math:`v(s\theta) = (-1)^{\phi \cdot s}\, v(\theta)` for signs :math:`s` of
sites (1 where negated) and a vector :math:`\phi` over GF(2). Products add these vectors, odd functions keep them, sums
demand that those of their terms agree, and whatever else is not even demands that there is no change. What solves all
demands leaves the log joint alone. Arrays that are several put end to end have an unknown for each part. Knows programs
and constants; no terms and no symmetries.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.extend import core

from numpyro_symmetry.discovery.labels.folding import constants_of, live_in
from numpyro_symmetry.discovery.labels.parted import Parts, contracted_with, joined, new_axis
from numpyro_symmetry.discovery.labels.rules import ELEMENTWISE
from numpyro_symmetry.discovery.labels.values import Known, known
from numpyro_symmetry.models.compat import called, scan_counts, shapes_of
from numpyro_symmetry.symmetry.gf2 import reduced_basis

# a vector over GF(2) as the bits of an integer; zeros are both odd and even
Parity = int | Parts | None


_EVEN = 0


_ODD = {
    *("neg", "sign", "tanh", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "erf", "erf_inv", "cbrt", "round"),
    *("copy", "copy_p", "stop_gradient", "real", "imag", "conj", "convert_element_type", "reduce_precision"),
    *("reduce_sum", "cumsum", "reduce_window_sum", "fft", "reshape", "broadcast_in_dim", "transpose", "squeeze"),
    *("expand_dims", "slice", "rev", "split", "optimization_barrier"),
}  # fmt: skip


_SUMS = {"add", "sub", "add_any", "concatenate", "pad", "complex", "stack"}


_PRODUCTS = {"mul", "div", "dot_general", "conv_general_dilated", "triangular_solve"}


# what parts go through one by one
_APART = {
    *ELEMENTWISE,
    *("select_n", "broadcast_in_dim", "dot_general", "conv_general_dilated", "expand_dims", "reduce_sum", "reshape"),
    *("squeeze", "transpose"),
}


_EVENS = {"abs", "square", "cos", "cosh", "is_finite"}


# operands behind the first, or the first ones, say where and not what
_TAKES = {"gather": 1, "dynamic_slice": 1}


_PUTS = {"scatter": (0, 2), "scatter-add": (0, 2), "scatter_add": (0, 2), "dynamic_update_slice": (0, 1)}


class _Demands:
    """Linear equations over GF(2): vectors that have to vanish, in echelon form."""

    def __init__(self, num_sites: int) -> None:
        self.num_unknowns = num_sites
        self.rows: dict[int, int] = {}

    def unknown(self) -> int:
        """A fresh unknown, of what a loop carries."""
        self.num_unknowns += 1
        return 1 << (self.num_unknowns - 1)

    def vanish(self, parity: Parity) -> None:
        """Demand that a value is even."""
        left = self.reduced(self.whole(parity) or _EVEN)
        if left:
            self.rows[left.bit_length() - 1] = left

    def agree(self, parities: Sequence[Parity]) -> int | None:
        """Demand that values are alike, zeros apart; what they then are."""
        given = [whole for parity in parities if (whole := self.whole(parity)) is not None]
        for other in given[1:]:
            self.vanish(given[0] ^ other)
        return given[0] if given else None

    def whole(self, parity: Parity) -> int | None:
        """Demand that a value's parts are alike; what it then is."""
        return self.agree(parity.of) if isinstance(parity, Parts) else parity

    def reduced(self, vector: int) -> int:
        """What is left of a vector when all demands are met."""
        while (row := next((r for top, r in self.rows.items() if vector >> top & 1), None)) is not None:
            vector ^= row
        return vector

    def solutions(self, num_sites: int) -> list[int]:
        """A basis of the sites' signs that meet all demands."""
        # every row says what its highest unknown is, given the lower ones
        free = [k for k in range(self.num_unknowns) if k not in self.rows]
        found = []
        for k in free:
            signs = 1 << k
            for top in sorted(self.rows):
                if (self.rows[top] & ~(1 << top) & signs).bit_count() % 2:
                    signs |= 1 << top
            found.append(signs & ((1 << num_sites) - 1))
        return reduced_basis(found)


def even_sets(
    jaxpr: Any, can_be_negated: Sequence[bool], cuts: Mapping[int, tuple[int, tuple[int, ...]]] | None = None
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
        Argument -> the axis along which it is several put end to end, and their sizes.
    """
    demands, given = _Demands(0), list[Parity]()
    for k, can in enumerate(can_be_negated):
        axis, sizes = (cuts or {}).get(k, (0, (1,)))
        parts = [demands.unknown() for _ in sizes]
        given.append(joined(axis, sizes, parts))
        if not can:
            _all_vanish(parts, demands)
    count, data = demands.num_unknowns, len(getattr(jaxpr, "jaxpr", jaxpr).invars) - len(given)
    for parity in _run_closed(jaxpr, [*given, *[_EVEN] * data], demands):
        _all_vanish(parity.of if isinstance(parity, Parts) else [parity], demands)
    return [frozenset(k for k in range(count) if signs >> k & 1) for signs in demands.solutions(count)]


def _run_closed(
    closed: Any, args: Sequence[Parity | Known], demands: _Demands, wanted: Sequence[bool] | None = None
) -> list[Parity]:
    """Parities of a program's results; what those that are wanted are not made from demands nothing."""
    body = getattr(closed, "jaxpr", closed)
    consts = [known(x) for x in getattr(closed, "consts", ())]
    given = dict(zip([*body.constvars, *body.invars], [*consts, *args], strict=True))
    constants = constants_of(body, {var: value for var, value in given.items() if isinstance(value, Known)})
    live = live_in(body, constants, [True] * len(body.outvars) if wanted is None else wanted)
    environment: dict[Any, Parity] = {var: value for var, value in given.items() if not isinstance(value, Known)}

    def constant(atom: Any) -> Known | None:
        return Known(np.asarray(atom.val)) if isinstance(atom, core.Literal) else constants.get(atom)

    def read(atom: Any) -> Parity:
        value = constant(atom)
        return environment.get(atom, _EVEN) if value is None else _parity_of(value)

    for equation in body.eqns:
        if all(var in constants or var not in live for var in equation.outvars):
            continue
        operands = list(map(read, equation.invars))
        # constants go into programs as such: what they choose is chosen inside
        inner, given_ = called(equation), list(map(constant, equation.invars))
        known_ = [parity if value is None else value for parity, value in zip(operands, given_, strict=True)]
        if inner is not None:
            results = _run_closed(inner, known_, demands, [var in live for var in equation.outvars])
        elif (solved := _EQUATIONS.get(equation.primitive.name)) is not None:
            results = solved(equation.params, operands, known_, demands)
        else:
            results = _step_apart(equation, operands, given_, demands)
        environment.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in body.outvars]


def _parity_of(value: Known) -> Parity:
    array = value.value
    return None if isinstance(array, np.ndarray) and array.dtype.kind in "fiuc" and not array.any() else _EVEN


def _step_apart(equation: Any, operands: list[Parity], given: list[Known | None], demands: _Demands) -> list[Parity]:
    """One operation, part by part where it leaves them apart."""
    name, params = equation.primitive.name, equation.params
    first = next((k for k, parity in enumerate(operands) if isinstance(parity, Parts)), None)
    if name == "concatenate" and first is None:
        sizes = [shape[params["dimension"]] for shape in shapes_of(equation.invars)]
        return [joined(params["dimension"], sizes, operands)]
    if first is None:
        return _step(equation, operands, given, demands)
    parts = operands[first]
    assert isinstance(parts, Parts)
    if name in ("slice", "split"):
        return _slices(equation, parts, demands)
    axis = new_axis(equation, first, parts.axis) if name in _APART else None
    along = contracted_with(equation, first, parts.axis)
    if axis is None and along is None:
        return _step(equation, list(map(demands.whole, operands)), given, demands)

    def stands_with_it(operand: int, other: Parts) -> bool:
        same = other.axis == along if axis is None else new_axis(equation, operand, other.axis) == axis
        return other is parts or (same and other.sizes == parts.sizes)

    # all others are one, unless their parts stand along the same axis
    beside = [p if isinstance(p, Parts) and stands_with_it(k, p) else demands.whole(p) for k, p in enumerate(operands)]
    each = [
        _step(equation, [p.of[m] if isinstance(p, Parts) else p for p in beside], given, demands)[0]
        for m in range(len(parts.of))
    ]
    return [demands.agree(each) if axis is None else joined(axis, parts.sizes, each)]


def _slices(equation: Any, parts: Parts, demands: _Demands) -> list[Parity]:
    """Parities of slices."""
    params, (shape, *_) = equation.params, shapes_of(equation.invars)
    if equation.primitive.name == "slice":
        if (params["strides"] or (1,) * len(shape))[parts.axis] != 1:
            return [demands.whole(parts)]
        bounds = [(params["start_indices"][parts.axis], params["limit_indices"][parts.axis])]
    elif params["axis"] == parts.axis:
        ends = [0, *itertools.accumulate(params["sizes"])]
        bounds = list(itertools.pairwise(ends))
    else:
        bounds = [(0, shape[parts.axis])] * len(equation.outvars)
    held = [parts.over(*bound) for bound in bounds]
    return [joined(*found) if whole else demands.agree(found.of) for found, whole in held]


def _step(equation: Any, operands: list[Parity], given: list[Known | None], demands: _Demands) -> list[Parity]:
    name, params, count = equation.primitive.name, equation.params, len(equation.outvars)
    if name == "convert_element_type" and np.dtype(params["new_dtype"]) == bool:
        return [_EVEN]
    if name in _ODD:
        return [operands[0]] * count if len(operands) == 1 else list(operands)
    if name in _SUMS:
        return [demands.agree(operands)]
    if name == "lu":
        # rows are chosen by size; on and above the diagonal, the one part that densities read, it follows the matrix
        return [operands[0], *[_EVEN] * (count - 1)]
    if name == "triangular_solve" and params["unit_diagonal"]:
        # ones follow nothing
        demands.vanish(operands[0])
    if name in _PRODUCTS:
        return [None if None in operands else _xor(operands)]
    if name in _EVENS:
        return [_EVEN]
    if name == "integer_pow" or (name == "pow" and _is_whole(given[1])):
        power = params["y"] if name == "integer_pow" else given[1].value.flat[0]  # pyright: ignore
        return [operands[0] if power % 2 else _EVEN]
    if name in ("eq", "ne") and (None in operands or _asks_if_finite(equation, given)):
        return [_EVEN]
    if name in _TAKES:
        _all_vanish(operands[_TAKES[name] :], demands)
        return [operands[0]]
    if name in _PUTS:
        what = [operands[k] for k in _PUTS[name]]
        _all_vanish([p for k, p in enumerate(operands) if k not in _PUTS[name]], demands)
        return [demands.agree(what)]
    if name == "select_n":
        which = np.unique(np.asarray(given[0].value)) if given[0] is not None else ()
        if len(which) == 1:
            return [operands[1 + int(which[0])]]
        demands.vanish(operands[0])
        return [demands.agree(operands[1:])]
    # what no line says anything about must not change: exponentials, comparisons, maxima, factors of matrices
    _all_vanish(operands, demands)
    return [_EVEN] * count


def _is_whole(exponent: Known | None) -> bool:
    """Whether this is one whole number, as in ``x**2.0``."""
    return exponent is not None and np.unique(exponent.value).size == 1 and exponent.value.flat[0] % 1 == 0


def _asks_if_finite(equation: Any, given: list[Known | None]) -> bool:
    """Whether a comparison is with itself, which only NaN fails, or with an infinity, where no density is looked at."""
    left, right = equation.invars
    return left is right or any(value is not None and np.isinf(value.value).all() for value in given)


def _xor(parities: Sequence[Any]) -> int:
    found = _EVEN
    for parity in parities:
        found ^= parity or _EVEN
    return found


def _all_vanish(parities: Sequence[Parity], demands: _Demands) -> None:
    for parity in parities:
        demands.vanish(parity)


def _scan(params: Any, operands: list[Parity], known_: list[Parity | Known], demands: _Demands) -> list[Parity]:
    num_consts, num_carry = scan_counts(params)
    start = num_consts + num_carry
    carry = [demands.unknown() for _ in range(num_carry)]
    scanned = map(demands.whole, operands[start:])
    inside = _run_closed(params["jaxpr"], [*known_[:num_consts], *carry, *scanned], demands)
    out = [demands.whole(parity) for parity in inside]
    for each in zip(carry, operands[num_consts:start], out[:num_carry], strict=True):
        demands.agree(each)
    return [*carry, *out[num_carry:]]


def _while(params: Any, operands: list[Parity], known_: list[Parity | Known], demands: _Demands) -> list[Parity]:
    num_condition = params["cond_nconsts"]
    start = num_condition + params["body_nconsts"]
    carry = [demands.unknown() for _ in operands[start:]]
    out = _run_closed(params["body_jaxpr"], [*known_[num_condition:start], *carry], demands)
    for each in zip(carry, operands[start:], out, strict=True):
        demands.agree(each)
    _all_vanish(_run_closed(params["cond_jaxpr"], [*known_[:num_condition], *carry], demands), demands)
    return [*carry]


def _conditional(params: Any, operands: list[Parity], known_: list[Parity | Known], demands: _Demands) -> list[Parity]:
    demands.vanish(operands[0])
    out = [_run_closed(branch, known_[1:], demands) for branch in params["branches"]]
    return [demands.agree(results) for results in zip(*out, strict=True)]


def _solve(params: Any, operands: list[Parity], known_: list[Parity | Known], demands: _Demands) -> list[Parity]:
    # what solves a linear equation is such that both of its sides are alike
    start = sum(params["const_lengths"])
    solution = [demands.unknown() for _ in operands[start:]]
    consts = known_[: params["const_lengths"].matvec]
    for each in zip(_run_closed(params["jaxprs"].matvec, [*consts, *solution], demands), operands[start:], strict=True):
        demands.agree(each)
    return [*solution]


_EQUATIONS = {"scan": _scan, "while": _while, "cond": _conditional, "custom_linear_solve": _solve}
