"""Values of a program in a normal form: equal forms are equal values, whatever they were computed by.

A form is a sum of terms with rational coefficients, and a term is an operation on forms that is no sum. Signs and
factors stand in front of terms as far as an operation lets them through. A truth value is a number, 0 or 1: a choice is
one case and, times the truth, how far the other is from it; a larger of two values is a choice; and what holds of two
comparisons of one value with numbers is one of them. Values that agree piece by piece so have one form, whichever
pieces they were put together from. Knows operations; no parities.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
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
SAME = set("convert_element_type copy device_put name pvary reduce_precision sharding_constraint stop_gradient".split())
LINEAR = {"broadcast_in_dim", "reshape", "squeeze", "transpose", "slice", "rev", "tile", "reduce_sum", "cumsum"}
ODD = set("tanh sin tan asin atan sinh asinh atanh erf erf_inv cbrt sign round bessel_i1e".split())
EVENS = {"cos", "cosh", "square", "one_minus_square", "bessel_i0e"}
# functions that are odd about a constant: logistic(x) - 1/2
_ODD_ABOUT = {"logistic": Fraction(1, 2), "erfc": Fraction(1)} | dict.fromkeys(ODD, Fraction(0))
# terms of a sum, truths in it, and entries of a constant, up to which they are looked into
_MOST_TERMS, _MOST_TRUTHS, _MOST_ENTRIES = 64, 2, 1024


class Forms:
    """The terms of one program, each with a number."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        # the factors of each product; the value, and its axes, of each broadcast one
        self._factors = dict[int, list[int]]()
        self._broadcasts = dict[Form, tuple[Form, tuple[int, ...]]]()
        # truth -> the form of which it says that it is positive, or zero; of others nothing is known
        self._truths = dict[int, tuple[str, Form]]()
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
        if value.dtype.kind == "b" and not is_number:
            return self._truth(self._term(constant.tag))
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
        if name in _ARITHMETIC:
            return _ARITHMETIC[name](self, *given)
        if name == "select_n" and len(given) == 3 and not any(map(self._is_endless, given)):
            return self._chosen(*given)
        if name in SAME and (kind == "f" or kind == _kind(equation.invars[0])):
            return given[0]
        if name in LINEAR and len(given) == 1:
            return self._moved(equation, given[0])
        return self._of_numbers(equation, given) if kind == "f" else self._any(equation, given)

    def _of_numbers(self, equation: Any, given: Sequence[Form]) -> Form:
        name, params = equation.primitive.name, equation.params
        if name == "div":
            return self._quotient(equation, *given)
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
        """The form of a linear operation on a sum; one that only moves entries acts on each factor of a product."""
        one = self._summed if equation.primitive.name in ("reduce_sum", "cumsum") else self._elsewhere
        return _sum(*(_times(one(equation, term), by) for term, by in given))

    def _summed(self, equation: Any, term: int) -> Form:
        if term != _ONE or equation.primitive.name != "reduce_sum":
            return self._any(equation, [_of(term)])
        (before,), (after,) = shapes_of(equation.invars), shapes_of(equation.outvars)
        return _times(ONE, Fraction(math.prod(before), max(math.prod(after), 1)))

    def _elsewhere(self, equation: Any, term: int) -> Form:
        """The form of a term whose entries are moved."""
        if term == _ONE:
            return ONE
        if term in self._factors:
            return reduce(self._product, (self._elsewhere(equation, factor) for factor in self._factors[term]))
        how, form = self._truths.get(term, ("", ZERO))
        if how:
            moved = self._moved(equation, form)
            return self._positive(moved) if how == "positive" else self._zero(moved)
        if equation.primitive.name == "broadcast_in_dim":
            axes = tuple(map(int, equation.params["broadcast_dimensions"]))
            return self._broadcast(_of(term), axes, *shapes_of(equation.outvars))
        return self._any(equation, [_of(term)])

    def _broadcast(self, given: Form, axes: tuple[int, ...], shape: tuple[int, ...]) -> Form:
        """A value along further axes: the same however long they are, and in one step or in several."""
        given, before = self._broadcasts.get(given, (given, tuple(range(len(axes)))))
        axes = tuple(axes[k] for k in before)
        if axes == tuple(range(len(shape))):
            return given
        found = self._term("broadcast_in_dim", axes, len(shape), given)
        self._broadcasts[found] = given, axes
        return self._truth(found) if given[0][0] in self._truths else found

    def _product(self, one: Form, other: Form) -> Form:
        """A product with all coefficients in front.

        Products of sums are multiplied out, as ``(1 + tanh(x)) * (1 - tanh(x))`` of a derivative, unless that is long.
        """
        if len(one) * len(other) <= _MOST_TERMS:
            pairs = itertools.product(one, other)
            return _sum(*(_times(self._of_factors(s, t), a * b) for (s, a), (t, b) in pairs))
        leads = _lead(one), _lead(other)
        bare = sorted([_times(one, 1 / leads[0]), _times(other, 1 / leads[1])])
        return _times(self._term("mul", *bare), leads[0] * leads[1])

    def _quotient(self, equation: Any, one: Form, other: Form) -> Form:
        """A quotient with all coefficients in front; a number is only a coefficient."""
        if by := _number(other):
            return _times(one, 1 / by)
        if not other:
            return self._any(equation, [one, other])
        leads = _lead(one), _lead(other)
        return _times(self._term("div", _times(one, 1 / leads[0]), _times(other, 1 / leads[1])), leads[0] / leads[1])

    def _of_factors(self, *given: int) -> Form:
        """A product of terms: the same in whatever order, and however bracketed."""
        factors = sorted(
            itertools.chain.from_iterable(self._factors.get(term, [term]) for term in given if term != _ONE)
        )
        for j, k in itertools.combinations(range(len(factors)), 2):
            if (both := self._both(factors[j], factors[k])) is not None:
                rest = (_of(factors[m]) for m in range(len(factors)) if m not in (j, k))
                return reduce(self._product, rest, both)
        if len(factors) < 2:
            return _of(*factors) if factors else ONE
        found = self._term("mul", *factors)
        self._factors[found[0][0]] = factors
        return found

    def _both(self, one: int, other: int) -> Form | None:
        """A product of two, of which the one says something of the other."""
        if one not in self._truths:
            return self._both(other, one) if other in self._truths else None
        (how, form), (how_other, form_other) = self._truths[one], self._truths.get(other, ("", ZERO))
        if one == other:
            return _of(one)
        if how == "zero" and form[0][0] == other and not any(term in self._factors for term, _ in form):
            # where a sum is zero, its first term is the negative of all others
            return self._product(negative(form[1:]), _of(one))
        apart = _number(_sum(form_other, negative(form))) if how and how_other else None
        if apart is None:
            return None
        if how == how_other == "positive":
            return _of(one if apart >= 0 else other)
        if how == "zero":
            return _of(one) if (apart > 0 if how_other == "positive" else not apart) else ZERO
        return self._both(other, one)

    def _truth(self, term: Form, how: str = "", form: Form = ZERO) -> Form:
        """A term that is 0 or 1: whether a form is positive, or zero."""
        self._truths[term[0][0]] = how, form
        return term

    def _positive(self, form: Form) -> Form:
        """Whether a form is positive: a choice among forms is so case by case."""
        if self._is_endless(form):
            # all other terms are finite: no density is looked at where they are not
            return ONE if dict(form)[self._infinity[0][0]] > 0 else ZERO
        if (number := _number(form)) is not None:
            return ONE if number > 0 else ZERO
        if (cases := self._cases(form)) is not None:
            truth, *either = cases
            return self._chosen(truth, *map(self._positive, either))
        if (lead := _lead(form)) < 0:
            return _sum(ONE, negative(self._positive(negative(form))), negative(self._zero(form)))
        form = _times(form, 1 / lead)
        return self._truth(self._term("positive", form), "positive", form)

    def _zero(self, form: Form) -> Form:
        """Whether a form is zero."""
        if self._is_endless(form) or _number(form) is not None:
            return ZERO if form else ONE
        if (cases := self._cases(form)) is not None:
            truth, *either = cases
            return self._chosen(truth, *map(self._zero, either))
        form = _times(form, 1 / _lead(form))
        return self._truth(self._term("zero", form), "zero", form)

    def _cases(self, form: Form) -> tuple[Form, Form, Form] | None:
        """A truth that a form holds, if it holds any, and what the form is where that is 0, and where it is 1."""
        factors = [self._factors.get(term, [term]) for term, _ in form]
        truths = dict.fromkeys(factor for some in factors for factor in some if factor in self._truths)
        if not 0 < len(truths) <= _MOST_TRUTHS:
            return None
        truth = next(iter(truths))
        no = tuple(term for term, some in zip(form, factors, strict=True) if truth not in some)
        held = [
            _times(self._of_factors(*(factor for factor in some if factor != truth)), by)
            for some, (_, by) in zip(factors, form, strict=True)
            if truth in some
        ]
        return _of(truth), no, _sum(no, *held)

    def _chosen(self, truth: Form, no: Form, yes: Form) -> Form:
        """One form where a truth is 0, and another where it is 1."""
        return _sum(no, self._product(truth, _sum(yes, negative(no))))

    def _is_endless(self, form: Form) -> bool:
        return self._infinity[0][0] in dict(form)

    def _size(self, form: Form) -> Form:
        """The form of a value's absolute value."""
        form = form if _lead(form) > 0 else negative(form)
        return self._chosen(self._positive(form), negative(form), form)

    def _larger(self, one: Form, other: Form, sign: int = 1) -> Form:
        """The larger of two, or for a negative sign the smaller: half of their sum and half of their distance."""
        apart = self._size(_sum(one, negative(other)))
        return _times(_sum(one, other, _times(apart, Fraction(sign))), Fraction(1, 2))

    def _not(self, truth: Form) -> Form:
        return _sum(ONE, negative(truth))

    def _any(self, equation: Any, given: Sequence[Form]) -> Form:
        """An operation of which nothing is known but that it is a function, of values of these shapes."""
        shapes = *shapes_of(equation.invars), *shapes_of(equation.outvars)
        try:
            found = self._term(equation.primitive.name, tuple(equation.params.items()), *shapes, *given)
        except TypeError:
            # parameters that cannot be compared
            found = self.fresh()
        return self._truth(found) if _kind(equation.outvars[0]) == "b" else found

    def _term(self, *what: Any) -> Form:
        return _of(self._numbers.setdefault(what, len(self._numbers)))


# operation -> the form of its result, given those of its operands
_ARITHMETIC: dict[str, Callable[..., Form]] = {
    "add": lambda forms, one, other: _sum(one, other),
    "add_any": lambda forms, one, other: _sum(one, other),
    "sub": lambda forms, one, other: _sum(one, negative(other)),
    "neg": lambda forms, one: negative(one),
    "mul": lambda forms, one, other: forms._product(one, other),
    "abs": lambda forms, one: forms._size(one),
    "max": lambda forms, one, other: forms._larger(one, other),
    "min": lambda forms, one, other: forms._larger(one, other, -1),
    "clamp": lambda forms, low, one, high: forms._larger(forms._larger(low, one), high, -1),
    "gt": lambda forms, one, other: forms._positive(_sum(one, negative(other))),
    "lt": lambda forms, one, other: forms._positive(_sum(other, negative(one))),
    "ge": lambda forms, one, other: forms._not(forms._positive(_sum(other, negative(one)))),
    "le": lambda forms, one, other: forms._not(forms._positive(_sum(one, negative(other)))),
    "eq": lambda forms, one, other: forms._zero(_sum(one, negative(other))),
    "ne": lambda forms, one, other: forms._not(forms._zero(_sum(one, negative(other)))),
    "not": lambda forms, one: forms._not(one),
    "and": lambda forms, one, other: forms._product(one, other),
    "or": lambda forms, one, other: _sum(one, other, negative(forms._product(one, other))),
}


def _of(term: int) -> Form:
    return ((term, _UNIT),)


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
