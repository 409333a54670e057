"""How far a log probability may move by rounding, and how it is found out. Knows numbers only."""

from __future__ import annotations

from typing import NamedTuple

# a part of a value by which another order of rounding may move it in double precision: a few hundred units in the last
# place, for values that were computed themselves
NUDGE = 1e-13
# ten times that, at points far out, which are of use where it moves their log joint by less than this part of what is
# allowed: the rest is room for what a relabelling rounds otherwise
FAR_NUDGE, HARDLY = 1e-12, 0.1
# spacing of single precision, and how much more another order of rounding may do than a nudge by it was seen to
SINGLE, MARGIN = 1.2e-7, 10.0
# nats that are a change however large what changes is, but for what double precision cannot tell of it
_MOST = 1e-3


class Rounding(NamedTuple):
    """How far log probabilities of a model may move by rounding.

    A sum of N terms errs by some sqrt(N) units in the last place of its size, and factors of matrices by as much times
    their condition: a million of either leaves 1e-9 in double precision. In single precision nothing is known of them
    but what 1e-4 allows, or what was seen.

    Attributes
    ----------
    relative
        Part of a log probability, or of one nat where it is smaller.
    is_double
        Whether the arithmetic is in double precision throughout.
    """

    relative: float
    is_double: bool

    @property
    def telling(self) -> float:
        """How many times what is allowed a wrong action must change, for a right one to show anything.

        Where single precision allows a ten-thousandth, one of a hundred units changes a tenth.
        """
        return 1e3 if self.is_double else 1e2

    def allows(self, size: float) -> float:
        """Nats by which a log probability of some size may move."""
        allowed = self.relative * (1.0 + size)
        return min(allowed, max(_MOST, NUDGE * size)) if self.is_double else allowed


IN_DOUBLE, IN_SINGLE = Rounding(1e-9, True), Rounding(1e-4, False)
