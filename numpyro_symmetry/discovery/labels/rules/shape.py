"""Rules for axes that are moved, added, dropped, flattened. Knows terms and single operations."""

from __future__ import annotations

from numpyro_symmetry.discovery.labels.rules.elementwise import (
    Axes,
    pin_all,
)
from numpyro_symmetry.discovery.labels.terms import (
    Atom,
    Product,
    Term,
    Uniform,
    pinned,
    resolve,
    split_factor,
)
from numpyro_symmetry.discovery.labels.values import Value
from numpyro_symmetry.discovery.labels.walk import Operation


def transpose(op: Operation) -> Axes:
    """Axes in another order."""
    return [[op.axes[0][k] for k in op.params["permutation"]]]


def squeeze(op: Operation) -> Axes:
    """Axes of size one go."""
    return [[term for k, term in enumerate(op.axes[0]) if k not in op.params["dimensions"]]]


def broadcast(op: Operation) -> Axes:
    """New axes, along which nothing varies."""
    out: list[Term] = [Uniform(n) for n in op.params["shape"]]
    for term, position in zip(op.axes[0], op.params["broadcast_dimensions"], strict=True):
        if term.size == out[position].size:
            out[position] = term
    return [out]


def reshape(op: Operation) -> Axes:
    """Axes flattened, or one taken for several flattened ones."""
    reason = op.reason("reshaped so that its parts do not fit", "moved")
    factors: list[Term] = []
    for term in map(resolve, op.axes[0]):
        factors += term.parts if isinstance(term, Product) else [term] if term.size > 1 else []
    factors.reverse()
    out: list[Term] = []
    for n in op.out_shapes[0]:
        taken: list[Term] = []
        need = n
        while need > 1:
            if not factors:
                return pin_all(op, reason)
            term = resolve(factors.pop())
            if isinstance(term, Product):
                factors += term.parts[::-1]
            elif need % term.size == 0:
                taken.append(term)
                need //= term.size
            elif term.size % need == 0 and isinstance(term, Uniform | Atom):
                if isinstance(term, Uniform):
                    high, low = Uniform(need), Uniform(term.size // need)
                elif term.is_pinned:
                    why = term.reasons[0] if term.reasons else reason
                    high, low = pinned(need, why), pinned(term.size // need, why)
                else:
                    high, low = split_factor(term, need, reason)
                factors.append(low)
                taken.append(high)
                need = 1
            else:
                return pin_all(op, reason)
        out.append(resolve(Product(taken)) if taken else Uniform(n))
    return [out]


def barrier(op: Operation) -> list[Value]:
    """An operation that only orders a program: its results are its operands."""
    return op.operands
