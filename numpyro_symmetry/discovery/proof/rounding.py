"""How far rounding may move a log probability, and nudges that measure it. Knows numbers only."""

from __future__ import annotations

from typing import NamedTuple

# relative change of a value that another order of rounding may make in double precision: a few hundred units in the
# last place, as values were computed themselves
NUDGE = 1e-13
# ten times that, at points far out; they are used where it moves their log joint by less than a tenth of what is
# allowed: the rest is room for what a relabelling rounds otherwise
FAR_NUDGE, HARDLY = 1e-12, 0.1
# spacing of single precision, and how many times the effect of such a nudge another order of rounding may have
SINGLE, MARGIN = 1.2e-7, 10.0
# nats that count as a change of however large a log probability, unless double precision cannot resolve them
_MOST = 1e-3


class Rounding(NamedTuple):
    """How far log probabilities of a model may move by rounding.

    A sum of N terms errs by about sqrt(N) units in the last place of its size, and a factor of a matrix by as much
    times the condition number: a million of either leaves 1e-9 in double precision. In single precision 1e-4 is
    allowed, or as much less as nudges were seen to change less.

    Attributes
    ----------
    relative
        Allowed change, as a part of one nat plus the size of the log probability.
    is_double
        Whether the arithmetic is in double precision throughout.
    """

    relative: float
    is_double: bool

    @property
    def telling(self) -> float:
        """How many times what is allowed a wrong action must change: if none does, invariance shows nothing.

        A thousand times what single precision allows, 1e-4, would be a tenth: all that one of a hundred units changes.
        """
        return 1e3 if self.is_double else 1e2

    def allows(self, size: float, unit: float = 1.0) -> float:
        """Nats by which rounding may move a log probability of this size, or an output of a function in its unit."""
        allowed = self.relative * (unit + size)
        return min(allowed, max(_MOST, NUDGE * size)) if self.is_double else allowed

    def allows_far(self, allowed: float) -> float:
        """As much far from the prior, where layers that saturate make rounding larger by orders of magnitude."""
        return max(allowed, min(self.telling * allowed, _MOST))


IN_DOUBLE, IN_SINGLE = Rounding(1e-9, True), Rounding(1e-4, False)
