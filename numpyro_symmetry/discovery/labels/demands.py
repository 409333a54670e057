"""Linear equations over GF(2) that say which signs may be changed together, and the parities in them.

Knows parts and forms of values; no operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from numpyro_symmetry.discovery.labels.forms import Form, Forms
from numpyro_symmetry.discovery.labels.parted import Parts, apart, mapped
from numpyro_symmetry.symmetry.gf2 import beyond, reduced_basis


class Mirrored(NamedTuple):
    """A value that is neither odd nor even: the vector of the sign changes that make it another, and the other's form.

    It may have a sign besides: ``g + g * tanh(x)`` has the sign of ``g``, and is another where ``x`` is negated.
    """

    where: int
    form: Form
    sign: int


# a vector over GF(2) as the bits of an integer; zeros are both odd and even
Parity = int | Mirrored | Parts | None
EVEN = 0


class Demands:
    """Linear equations over GF(2): a basis of the vectors that have to vanish."""

    def __init__(self) -> None:
        self.num_unknowns = 0
        self.rows: list[int] = []
        self.forms = Forms()

    def unknown(self) -> int:
        """A fresh unknown: the parity of a site, or of a value that a loop carries."""
        self.num_unknowns += 1
        return 1 << (self.num_unknowns - 1)

    def vanish(self, *parities: Parity) -> None:
        """Demand that values are even."""
        for parity in parities:
            if left := self.reduced(self.whole(parity) or EVEN):
                self.rows.append(left)

    def agree(self, parities: Sequence[Parity]) -> Parity:
        """Demand that values, zeros apart, have one parity, part by part; it is returned."""
        given = [parity for parity in parities if parity is not None]
        parts = next((parity for parity in given if isinstance(parity, Parts)), None)
        if parts is not None:
            axes = range(len(parts.shape))
            return apart(lambda *ones: self.agree(ones), self.agree, given, [axes] * len(given), axes, parts.shape)
        whole = [one for parity in given if (one := self.whole(parity)) is not None]
        self.vanish(*(whole[0] ^ other for other in whole[1:]))
        return whole[0] if whole else None

    def agree_along_first(self, parity: Parity) -> Parity:
        """Demand that a value's slices along its first axis have one parity; it is returned."""
        if not isinstance(parity, Parts):
            return parity
        axes = range(len(parity.shape))
        return apart(lambda one: one, self.agree, [parity], [axes], axes[1:], parity.shape[1:])

    def agree_each(self, *rows: Iterable[Parity]) -> list[Parity]:
        """Demand that values at one place in these rows have one parity; that of each place is returned."""
        return [self.agree(parities) for parities in zip(*rows, strict=True)]

    def whole(self, parity: Parity) -> int | None:
        """Demand that a value's parts are odd or even, and alike; their parity is returned."""
        if isinstance(parity, Mirrored):
            self.vanish(parity.where)
            return parity.sign
        return self.whole(self.agree(parity.of)) if isinstance(parity, Parts) else parity

    def settled(self, parity: Parity) -> Parity:
        """Demand that a value, or each of its parts, is odd or even."""
        return mapped(parity, self.whole)

    def reduced(self, vector: int) -> int:
        """The remainder of a vector after reduction by all demands: 0 if they imply that it vanishes."""
        return beyond(self.rows, vector)

    def solutions(self, num_sites: int) -> list[int]:
        """A basis of the sites' signs that meet all demands."""
        # every row says what its highest unknown is, given the lower ones
        highest = {row.bit_length() - 1: row for row in sorted(self.rows)}
        found = []
        for k in sorted(set(range(self.num_unknowns)) - set(highest)):
            signs = 1 << k
            for top, row in highest.items():
                if (row & signs).bit_count() % 2:
                    signs |= 1 << top
            found.append(signs & ((1 << num_sites) - 1))
        return reduced_basis(found)
