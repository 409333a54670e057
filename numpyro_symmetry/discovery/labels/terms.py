"""Terms: what labels an axis, and how two labels are made one.

Equivariance typing gives every axis of every intermediate value a term. An `Atom` is an axis whose indices may be
permuted; a `Product` is several axes flattened into one; `Joined` is several put end to end; a `Uniform` axis is one
along which the value does not vary, so that any permutation leaves it alone. Operations *unify* the terms of their
operands. What breaks a symmetry *colours* an atom: only indices of one colour may still be exchanged, and an atom whose
colours all differ is pinned. Knows neither programs nor models.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

_serial = itertools.count()
_MAX_REASONS = 4
IS_DATA, MEETS_DATA, DIFFERS = "is data", "meets data", "a constant differs along the axis"
_FEW = 64
ROUNDING = {"rtol": 2e-6, "atol": 0.0, "equal_nan": True}


Strength = Literal["data", "constant", "order", "moved", "no rule"]


class Reason(NamedTuple):
    """Why an axis was pinned or coloured, and the line of the user's file where that was seen.

    ``strength`` says what tells its indices apart: data, a constant, their order (or that a label becomes a value);
    or, softly, that entries were moved or taken apart in a way no label expresses, or that an operation has no rule.
    """

    text: str
    source: str = ""
    strength: Strength = "order"

    @property
    def soft(self) -> bool:
        """Whether an axis that this pins may yet be proved free by numbers."""
        return self.strength in ("moved", "no rule")


@dataclass(eq=False)
class Uniform:
    """An axis along which the value does not vary."""

    size: int


@dataclass(eq=False)
class Atom:
    """An axis of its own: its colours, and the term that it turned out to be (``link``; if joined, at line ``cut_at``).

    Numbers may overrule the ``soft`` colours, never the ``hard`` ones.
    """

    size: int
    link: Term | None = None
    cut_at: str = ""
    hard: np.ndarray | None = None
    soft: np.ndarray | None = None
    reasons: list[Reason] = field(default_factory=list)
    serial: int = field(default_factory=lambda: next(_serial))

    @property
    def colours(self) -> np.ndarray:
        """A label for each index; indices of different labels are never exchanged."""
        return _refine(self.hard, self.soft, self.size)

    @property
    def is_pinned(self) -> bool:
        """Whether no two indices may be exchanged."""
        return len(np.unique(self.colours)) == self.size

    def note(self, reason: Reason) -> None:
        """Remember a reason, unless there are enough."""
        if len(self.reasons) < _MAX_REASONS and reason not in self.reasons:
            self.reasons.append(reason)


class Product:
    """Several axes flattened into one, row-major."""

    def __init__(self, parts: Iterable[Term]) -> None:
        self.parts: list[Term] = list(parts)
        self.size: int = math.prod(part.size for part in self.parts)


class Joined:
    """Several axes put end to end."""

    def __init__(self, parts: Iterable[Term]) -> None:
        self.parts: list[Term] = list(parts)
        self.size: int = sum(part.size for part in self.parts)


Term = Uniform | Atom | Product | Joined


def axis(size: int) -> Term:
    """A fresh axis whose indices may be permuted."""
    return Atom(size) if size > 1 else Uniform(size)


def pinned(size: int, reason: Reason) -> Term:
    """A fresh axis none of whose indices may be exchanged."""
    return coloured(size, np.arange(size), reason)


def coloured(size: int, colours: np.ndarray | None, reason: Reason) -> Term:
    """A fresh axis of which only indices of one colour may be exchanged."""
    term = axis(size)
    impose(term, colours, reason)
    return term


def resolve(term: Term) -> Term:
    """The term with links followed, nested products and joins made flat, and what is trivial left out."""
    if isinstance(term, Uniform):
        return term
    if isinstance(term, Atom):
        if term.link is None:
            return term
        term.link = resolve(term.link)
        return term.link
    kind, trivial = (Product, 1) if isinstance(term, Product) else (Joined, 0)
    parts: list[Term] = []
    for part in map(resolve, term.parts):
        if part.size != trivial:
            parts += part.parts if isinstance(part, kind) else [part]
    if len(parts) == 1:
        return parts[0]
    if isinstance(term, Joined):
        return Joined(parts) if parts else Uniform(0)
    if all(isinstance(part, Uniform) for part in parts):
        return Uniform(term.size)
    if isinstance(parts[0], Joined):
        return resolve(Joined(Product([part, *parts[1:]]) for part in parts[0].parts))
    return Product(parts)


def atoms_of(term: Term) -> list[Atom]:
    """Every atom that a term is made of."""
    term = resolve(term)
    if isinstance(term, Atom):
        return [term]
    return [] if isinstance(term, Uniform) else [atom for part in term.parts for atom in atoms_of(part)]


def reasons_of(term: Term) -> list[Reason]:
    """Every reason why atoms of a term were pinned or coloured."""
    return [reason for atom in atoms_of(term) for reason in atom.reasons]


def indices_of(term: Term) -> list[tuple[Any, ...]]:
    """(atom, index) for each index of an axis, or a tuple of pairs: equal where two labels share an atom's entry."""
    term = resolve(term)
    if isinstance(term, Joined):
        return [index for part in term.parts for index in indices_of(part)]
    if isinstance(term, Product):
        return list(itertools.product(*map(indices_of, term.parts)))
    return [(term, index) for index in range(term.size)]


def line_of_cut(term: Term) -> str:
    """The line at which an axis was first taken apart; empty if it never was."""
    while isinstance(term, Atom):
        if term.cut_at or term.link is None:
            return term.cut_at
        term = term.link
    return ""


def is_uniform(term: Term) -> bool:
    """Whether a value does not vary along this axis."""
    return isinstance(resolve(term), Uniform)


def impose(term: Term, colours: np.ndarray | None, reason: Reason) -> None:
    """Allow only exchanges of indices of one colour."""
    term = resolve(term)
    if colours is None or isinstance(term, Uniform):
        return
    if isinstance(term, Atom):
        before = len(np.unique(term.colours))
        if reason.soft:
            term.soft = _refine(term.soft, colours, term.size)
        else:
            term.hard = _refine(term.hard, colours, term.size)
        if len(np.unique(term.colours)) > before or (not reason.soft and any(r.soft for r in term.reasons)):
            term.note(reason)
    elif isinstance(term, Product):
        grid = colours.reshape([part.size for part in term.parts])
        for k, part in enumerate(term.parts):
            impose(part, slice_colours(grid, k), reason)
    else:
        ends = np.cumsum([part.size for part in term.parts])
        for part, own in zip(term.parts, np.split(colours, ends[:-1]), strict=True):
            impose(part, own, reason)


def pin(reason: Reason, *terms: Term) -> None:
    """Allow no exchange at all."""
    for atom in itertools.chain(*map(atoms_of, terms)):
        impose(atom, np.arange(atom.size), reason)


def slice_colours(array: np.ndarray, position: int) -> np.ndarray | None:
    """A colour for each index of an axis, equal where the slices are; ``None`` if all are."""
    rows = np.moveaxis(array, position, 0).reshape(array.shape[position], -1)
    if (rows == rows[:1]).all():
        return None
    seen: dict[bytes, int] = {}
    colours = np.array([seen.setdefault(np.ascontiguousarray(row).tobytes(), len(seen)) for row in rows])
    if rows.dtype.kind == "f" and len(seen) <= _FEW:
        first = rows[np.unique(colours, return_index=True)[1]]
        # folded constants differ by the order of rounding
        same = [next(k for k, other in enumerate(first) if np.allclose(row, other, **ROUNDING)) for row in first]
        colours = np.unique(np.array(same)[colours], return_inverse=True)[1]
    return None if not colours.any() else colours


def varying(array: np.ndarray) -> list[int]:
    """The axes along which an array varies."""
    return [k for k, n in enumerate(array.shape) if n and slice_colours(array, k) is not None]


def line_along(array: np.ndarray, position: int) -> np.ndarray:
    """The entries along an axis of an array that varies along no other."""
    return np.moveaxis(array, position, 0).reshape(array.shape[position], -1)[:, 0]


def unify(a: Term, b: Term, reason: Reason) -> Term:
    """Make two labels of axes of one size the same; what cannot be made so is pinned."""
    a, b = resolve(a), resolve(b)
    assert a.size == b.size, (a.size, b.size, reason)
    if a is b or isinstance(b, Uniform):
        return a
    if isinstance(a, Uniform):
        return b
    if isinstance(b, Atom):
        return _bind(b, a, reason)
    if isinstance(a, Atom):
        return _bind(a, b, reason)
    if isinstance(a, Product) and isinstance(b, Product):
        return _unify_products(a, b, reason)
    return _unify_joined(a, b, reason)


def cut(term: Term, start: int, stop: int, reason: Reason) -> Term:
    """The label of a slice of an axis; the axis itself becomes several, put end to end."""
    term = resolve(term)
    if isinstance(term, Uniform):
        return Uniform(stop - start)
    if (start, stop) == (0, term.size):
        return term
    if all(atom.is_pinned for atom in atoms_of(term)) or stop == start:
        return pinned(stop - start, next(iter(reasons_of(term)), reason))
    own, _ = _split_at(term, stop, reason)
    if start:
        _, own = _split_at(own, start, reason)
    return resolve(own)


def _refine(a: np.ndarray | None, b: np.ndarray | None, size: int) -> np.ndarray:
    if not (given := [colours for colours in (a, b) if colours is not None]):
        return np.zeros(size, int)
    return np.unique(np.stack(given), axis=1, return_inverse=True)[1].reshape(-1)


def _instantiate(term: Term) -> Term:
    """The same label with fresh atoms in place of uniform axes, as a value varies along it."""
    term = resolve(term)
    if isinstance(term, Uniform):
        return axis(term.size)
    return term if isinstance(term, Atom) else type(term)(map(_instantiate, term.parts))


def _bind(atom: Atom, term: Term, reason: Reason) -> Term:
    # a resolved term has no trivial part, so that no term of the atom's size but the atom itself contains it
    term = _instantiate(term)
    for one in (atom, *atoms_of(term)):
        # an axis that meets data is reported with the line at which it does
        met = Reason(MEETS_DATA, reason.source, "data")
        one.reasons = [met if past.text == IS_DATA else past for past in one.reasons]
    atom.link = term
    atom.cut_at = reason.source if isinstance(resolve(term), Joined) else ""
    soft = next((r for r in atom.reasons if r.soft), reason._replace(strength="no rule"))
    hard = next((r for r in atom.reasons if not r.soft), reason._replace(strength="order"))
    impose(term, atom.soft, soft)
    impose(term, atom.hard, hard)
    for other in atoms_of(term):
        for past in atom.reasons:
            other.note(past)
    return resolve(term)


def _split_at(term: Term, position: int, reason: Reason) -> tuple[Term, Term]:
    """Two axes put end to end in place of one; of flattened axes that are cut within a row no index stays free."""
    term = resolve(term)
    if isinstance(term, Uniform):
        return Uniform(position), Uniform(term.size - position)
    if isinstance(term, Atom):
        left, right = axis(position), axis(term.size - position)
        _bind(term, Joined([left, right]), reason)
        return left, right
    if isinstance(term, Joined):
        start = 0
        for k, part in enumerate(term.parts):
            if position == start:
                return Joined(term.parts[:k]), Joined(term.parts[k:])
            if start < position < start + part.size:
                left, right = _split_at(part, position - start, reason)
                return Joined([*term.parts[:k], left]), Joined([right, *term.parts[k + 1 :]])
            start += part.size
        return term, Uniform(0)
    rest = math.prod(part.size for part in term.parts[1:])
    if position % rest:
        pin(reason, term)
        return pinned(position, reason), pinned(term.size - position, reason)
    left, right = _split_at(term.parts[0], position // rest, reason)
    return Product([left, *term.parts[1:]]), Product([right, *term.parts[1:]])


def factors(one: Sequence[Term], other: Sequence[Term], reason: Reason) -> tuple[list[Term], list[Term]]:
    """The axes of which two lists of axes are both flattened ones, made the same; and those left where none fit."""
    left, right, out = list(one), list(other), []
    while left and right:
        x, y = resolve(left.pop()), resolve(right.pop())
        if x.size == y.size and not isinstance(x, Product):
            out.append(unify(x, y, reason))
            continue
        if x.size < y.size:
            left, right, x, y = right, left, y, x
        if isinstance(x, Product):
            left += x.parts
        elif x.size % y.size or isinstance(x, Joined):
            return out[::-1], [*left, *right, x, y]
        else:
            left += _split_factor(x, x.size // y.size, reason)
        right.append(y)
    return out[::-1], [*left, *right]


def _split_factor(term: Uniform | Atom, outer: int, reason: Reason) -> tuple[Term, Term]:
    """Make an axis two flattened ones, the outer of a given size."""
    inner = term.size // outer
    if isinstance(term, Uniform):
        return Uniform(outer), Uniform(inner)
    if term.is_pinned:
        why = min(term.reasons, key=lambda past: past.soft, default=reason)
        return pinned(outer, why), pinned(inner, why)
    high, low = axis(outer), axis(inner)
    _bind(term, Product([high, low]), reason)
    return high, low


def _unify_products(a: Product, b: Product, reason: Reason) -> Term:
    same, left = factors(a.parts, b.parts, reason)
    pin(reason, *left)
    return a if left else resolve(Product(same))


def _unify_joined(a: Term, b: Term, reason: Reason) -> Term:
    out: list[Term] = []
    while a.size:
        a, b = resolve(a), resolve(b)
        head = min(term.parts[0].size if isinstance(term, Joined) else term.size for term in (a, b))
        if head == a.size:
            out.append(unify(a, b, reason))
            break
        (first, a), (second, b) = _split_at(a, head, reason), _split_at(b, head, reason)
        out.append(unify(first, second, reason))
    return resolve(Joined(out))
