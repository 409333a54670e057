"""Values of a program in a normal form: equal forms are equal values, whatever they were computed by.

A form is a sum of terms with rational coefficients, and a term is an operation on forms that is no sum. Signs and
factors stand in front of terms as far as an operation lets them through; a larger of two is half of their sum and half
of their distance, and what is kept between two numbers is half of how much further it is from one than from the other,
so that values which differ by parts of lines are seen to. Knows operations; no parities.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from numpyro_symmetry.discovery.labels.values import Known
from numpyro_symmetry.models.compat import shapes_of

# terms by number, in their order, and the coefficient of each
Form = tuple[tuple[int, Fraction], ...]

ZERO: Form = ()
# the number one, in whatever shape; behind all terms, so that it leads no sum but of itself
_ONE = sys.maxsize
_UNIT = Fraction(1)
ONE: Form = ((_ONE, _UNIT),)

# operations that leave real numbers as they are, or move them about and add them; odd and even ones
SAME = {"copy", "stop_gradient", "convert_element_type", "reduce_precision"}
LINEAR = {"broadcast_in_dim", "reshape", "squeeze", "transpose", "slice", "rev", "reduce_sum", "cumsum"}
ODD = {"tanh", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "erf", "erf_inv", "cbrt", "sign", "round"}
EVENS = {"cos", "cosh", "square", "one_minus_square"}
# functions that are odd about a constant: logistic(x) - 1/2
_ODD_ABOUT = {"logistic": Fraction(1, 2), "erfc": Fraction(1)} | dict.fromkeys(ODD, Fraction(0))
# comparison of two operands -> comparison of their difference with zero, and 1 or -1 for second minus first
_COMPARED = {"gt": (">", 1), "lt": (">", -1), "ge": (">=", 1), "le": (">=", -1), "eq": ("==", 1), "ne": ("!=", 1)}
# terms of a sum, and entries of a constant, up to which they are looked into
_MOST_TERMS, _MOST_ENTRIES = 16, 1024


class Forms:
    """The terms of one program, each with a number."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._any_of = dict[tuple[str, Form], frozenset[Form]]()
        # the factors of each product; the value, and its axes, of each broadcast one
        self._factors = dict[Form, list[Form]]()
        self._broadcasts = dict[Form, tuple[Form, tuple[int, ...]]]()
        # (max or min, a form bounded from the other side) -> the form without that bound, and the bound
        self._bounded = dict[tuple[str, Form], tuple[Form, Fraction]]()
        self._truth = {value: self._term("truth", value) for value in (False, True)}
        self._infinity = self._term("infinity")

    def fresh(self) -> Form:
        """The form of a value of which nothing is known."""
        return self._term(object())

    def constant(self, constant: Known) -> Form:
        """The form of a constant, number or array; a constant and its negative differ by the sign of a coefficient."""
        value = constant.value
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub" or not value.size:
            return self.fresh()
        first = value.flat[0]
        is_number = bool((value == first).all())
        if not is_number and value.size > _MOST_ENTRIES:
            return self.fresh()
        if value.dtype.kind == "b":
            return self._truth[bool(first)] if is_number else self._term(constant.tag)
        if is_number and not first:
            return ZERO
        if is_number and np.isinf(first):
            return _times(self._infinity, Fraction(int(np.sign(first))))
        if is_number and np.isfinite(first):
            return _times(ONE, Fraction(float(first)))
        lead = -1 if next((x for x in value.flat if x), 0) < 0 else 1
        return _times(self._term(Known(lead * value.astype(float) + 0.0).tag), Fraction(lead))

    def of(self, equation: Any, given: Sequence[Form]) -> Form:
        """The form of an operation's result."""
        kind, name = _kind(equation.outvars[0]), equation.primitive.name
        if sum(map(len, given)) > _MOST_TERMS or kind not in "fb":
            return self._any(equation, given)
        if name in _COMPARED:
            return self._compared(name, given)
        if name in ("and", "or"):
            return self._joined(name, given)
        return self._of_numbers(equation, given) if kind == "f" else self._any(equation, given)

    def _of_numbers(self, equation: Any, given: Sequence[Form]) -> Form:
        name, params = equation.primitive.name, equation.params
        if name in _ARITHMETIC:
            return _ARITHMETIC[name](self, *given)
        if name in ("mul", "div"):
            return self._product(equation, given)
        if name == "select_n" and given[0] in self._truth.values() and len(given) == 3:
            return given[2 if given[0] == self._truth[True] else 1]
        if name in SAME and _kind(equation.invars[0]) == "f":
            return given[0]
        if name in LINEAR and len(given) == 1:
            return _sum(*(_times(self._moved(equation, ((term, _UNIT),)), by) for term, by in given[0]))
        if name == "select_n":
            lead = next((_lead(form) for form in given[1:] if form), Fraction(1))
            cases = [_times(form, 1 / lead) for form in given[1:]]
            return _times(self._any(equation, [given[0], *cases]), lead)
        if name in EVENS or name in _ODD_ABOUT or name == "integer_pow":
            sign = Fraction(-1 if _lead(given[0]) < 0 else 1)
            one = self._any(equation, [_times(given[0], sign)])
            odd = _times(one, sign) if name in _ODD_ABOUT or params.get("y", 2) % 2 else one
            return _sum(odd, _times(ONE, _ODD_ABOUT.get(name, Fraction(0))))
        return self._any(equation, given)

    def _moved(self, equation: Any, given: Form) -> Form:
        """The form of a linear operation on a term; one that only moves entries acts on each factor of a product."""
        if equation.primitive.name in ("reduce_sum", "cumsum"):
            return self._any(equation, [given])
        if given == ONE:
            return ONE
        if given in self._factors:
            return self._of_factors(*(self._moved(equation, factor) for factor in self._factors[given]))
        if equation.primitive.name == "broadcast_in_dim":
            return self._broadcast(
                given, tuple(map(int, equation.params["broadcast_dimensions"])), *shapes_of(equation.outvars)
            )
        return self._any(equation, [given])

    def _broadcast(self, given: Form, axes: tuple[int, ...], shape: tuple[int, ...]) -> Form:
        """A value along further axes: the same however long they are, and in one step or in several."""
        given, before = self._broadcasts.get(given, (given, tuple(range(len(axes)))))
        axes = tuple(axes[k] for k in before)
        if axes == tuple(range(len(shape))):
            return given
        found = self._term("broadcast_in_dim", axes, len(shape), given)
        self._broadcasts[found] = given, axes
        return found

    def _product(self, equation: Any, given: Sequence[Form]) -> Form:
        """A product or a quotient, with all coefficients in front; a factor that is a number is only a coefficient.

        Products of sums are multiplied out, as ``(1 + tanh(x)) * (1 - tanh(x))`` of a derivative, unless that is long.
        """
        is_product = equation.primitive.name == "mul"
        for k, other in ((1, 0), (0, 1)) if is_product else ((1, 0),):
            if by := _number(given[k]):
                return _times(given[other], by if is_product else 1 / by)
        if ZERO in given:
            return self._any(equation, given)
        if is_product and math.prod(map(len, given)) <= _MOST_TERMS:
            pairs = itertools.product(*given)
            return _sum(*(_times(self._of_factors(((s, _UNIT),), ((t, _UNIT),)), a * b) for (s, a), (t, b) in pairs))
        leads = [_lead(form) for form in given]
        bare = [_times(form, 1 / lead) for form, lead in zip(given, leads, strict=True)]
        front = leads[0] * leads[1] if is_product else leads[0] / leads[1]
        return _times(self._of_factors(*bare) if is_product else self._term("div", *bare), front)

    def _of_factors(self, *given: Form) -> Form:
        """A product of forms whose leading coefficient is 1: the same in whatever order, and however bracketed."""
        factors = sorted(
            itertools.chain.from_iterable(self._factors.get(form, (form,)) for form in given if form != ONE)
        )
        if len(factors) < 2:
            return factors[0] if factors else ONE
        found = self._term("mul", *factors)
        self._factors[found] = factors
        return found

    def _bound(self, name: str, one: Form, other: Form) -> Form:
        """The larger, or the smaller, of two; a value kept between two numbers by its distances from both."""
        sign = Fraction(1 if name == "max" else -1)
        found = _times(_sum(one, other, _times(self._size(_sum(one, negative(other))), sign)), Fraction(1, 2))
        for form, number in ((one, _number(other)), (other, _number(one))):
            if number is None:
                continue
            inner, bound = self._bounded.get((name, form), (form, number))
            if sign * (number - bound) > 0:
                return _times(ONE, number)
            if bound != number:
                near, far = (self._size(_sum(inner, _times(ONE, -x))) for x in (number, bound))
                return _times(
                    _sum(_times(ONE, number + bound), _times(_sum(near, negative(far)), sign)), Fraction(1, 2)
                )
            self._bounded["min" if name == "max" else "max", found] = form, number
        return found

    def _size(self, form: Form) -> Form:
        """The form of a value's absolute value."""
        lead = _lead(form)
        return _times(self._term("abs", _times(form, 1 / lead)), abs(lead)) if form else ZERO

    def _compared(self, name: str, given: Sequence[Form]) -> Form:
        """A comparison, written as that of a difference with zero."""
        how, sign = _COMPARED[name]
        apart = _sum(given[0], negative(given[1]))
        if not apart:
            return self._truth[how in (">=", "==")]
        if endless := dict(apart).get(self._infinity[0][0]):
            # all other terms are finite: no density is looked at where they are not
            return self._truth[how == "!=" or (how != "==" and sign * endless > 0)]
        lead = _lead(apart)
        # whether a difference is zero does not depend on its sign
        by = sign / abs(lead) if how in (">", ">=") else 1 / lead
        return self._term(how, _times(apart, Fraction(by)))

    def _joined(self, name: str, given: Sequence[Form]) -> Form:
        """``and``, or ``or``, of truth values: the same in whatever order, and however bracketed."""
        parts = frozenset[Form]().union(*(self._any_of.get((name, form), {form}) for form in given))
        parts -= {self._truth[name == "and"]}
        if len(parts) <= 1:
            return next(iter(parts), self._truth[name == "and"])
        found = self._term(name, parts)
        self._any_of[name, found] = parts
        return found

    def _any(self, equation: Any, given: Sequence[Form]) -> Form:
        """An operation of which nothing is known but that it is a function, of values of these shapes."""
        shapes = *shapes_of(equation.invars), *shapes_of(equation.outvars)
        try:
            return self._term(equation.primitive.name, tuple(equation.params.items()), *shapes, *given)
        except TypeError:
            # parameters that cannot be compared
            return self.fresh()

    def _term(self, *what: Any) -> Form:
        return ((self._numbers.setdefault(what, len(self._numbers)), Fraction(1)),)


# operation -> the form of its result, given those of its operands
_ARITHMETIC: dict[str, Callable[..., Form]] = {
    "add": lambda forms, one, other: _sum(one, other),
    "add_any": lambda forms, one, other: _sum(one, other),
    "sub": lambda forms, one, other: _sum(one, negative(other)),
    "neg": lambda forms, one: negative(one),
    "abs": lambda forms, one: forms._size(one),
    "max": lambda forms, one, other: forms._bound("max", one, other),
    "min": lambda forms, one, other: forms._bound("min", one, other),
    "clamp": lambda forms, low, one, high: forms._bound("min", forms._bound("max", low, one), high),
}


def negative(form: Form) -> Form:
    """The form of a value's opposite."""
    return _times(form, Fraction(-1))


def _kind(variable: Any) -> str:
    """The kind of a variable's numbers, as NumPy has it; of random keys none."""
    return getattr(getattr(variable.aval, "dtype", None), "kind", "")


def _lead(form: Form) -> Fraction:
    return form[0][1] if form else Fraction(1)


def _number(form: Form) -> Fraction | None:
    """The number that a form is, if it is one."""
    return dict(form).get(_ONE, Fraction(0)) if dict(form).keys() <= {_ONE} else None


def _times(form: Form, by: Fraction) -> Form:
    return tuple((term, coefficient * by) for term, coefficient in form) if by else ZERO


def _sum(*forms: Form) -> Form:
    total: dict[int, Fraction] = {}
    for form in forms:
        for term, coefficient in form:
            total[term] = total.get(term, Fraction(0)) + coefficient
    return tuple(sorted((term, coefficient) for term, coefficient in total.items() if coefficient))
