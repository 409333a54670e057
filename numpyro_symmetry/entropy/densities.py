r"""A density of draws whose labels may be moved: one that *is* its Gaussian factors, or one that they only resemble.

Both say how a symmetry falls into parts whose informations add, which parts are one table, what the density of a moved
draw is, and by which factors elements are proposed. Knows factors by site and coordinates; no estimators, no guides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jax import Array

from numpyro_symmetry.entropy.factorised import connected_components, has_exact_table, log_ratio
from numpyro_symmetry.entropy.units import Factors
from numpyro_symmetry.symmetry import Element, Symmetry


class Factorised(NamedTuple):
    """Factors that *are* the density: groups that share no site are independent, and one group alone is one table.

    Attributes
    ----------
    factors
        Gaussian factors over the units of every group.
    """

    factors: Factors

    # whether it takes random numbers to make the factors by which elements are proposed
    draws_proposal = False

    @staticmethod
    def parts(symmetry: Symmetry) -> list[Symmetry]:
        """Parts whose informations add."""
        return connected_components(symmetry)

    @staticmethod
    def is_table(part: Symmetry) -> bool:
        """Whether the density at every relabelling follows from one table."""
        return has_exact_table(part)

    def proposal(self) -> Factors:
        """Factors by which elements are proposed."""
        return self.factors

    def log_ratio(self, symmetry: Symmetry, draw: dict[str, Array], element: Element) -> Array:
        r""":math:`\log q(g\theta) - \log q(\theta)`, nats."""
        return log_ratio(symmetry, self.factors, draw, element)


class General(NamedTuple):
    r"""A density that is known at whole draws alone.

    Attributes
    ----------
    ratio
        :math:`g \mapsto \log q(g\theta) - \log q(\theta)`, nats.
    surrogate
        Makes Gaussian factors that resemble the density, where elements have to be proposed.
    """

    ratio: Callable[[Element], Array]
    surrogate: Callable[[], Factors]

    draws_proposal = True

    @staticmethod
    def parts(symmetry: Symmetry) -> list[Symmetry]:
        """The symmetry as a whole: nothing is known to be independent."""
        return [symmetry]

    @staticmethod
    def is_table(part: Symmetry) -> bool:
        """Never: the density is known at whole draws alone."""
        return False

    def proposal(self) -> Factors:
        """Factors by which elements are proposed."""
        return self.surrogate()

    def log_ratio(self, symmetry: Symmetry, draw: dict[str, Array], element: Element) -> Array:
        r""":math:`\log q(g\theta) - \log q(\theta)`, nats."""
        return self.ratio(element)


Density = Factorised | General


class Part(NamedTuple):
    """A part of a symmetry, and one draw of a density whose labels it moves.

    Attributes
    ----------
    symmetry
        Bound symmetry of the draw's coordinates.
    density
        The density that the draw is of.
    draw
        Coordinates, by site.
    max_features
        How many features of a site the sequential bound sees, ``None`` for all.
    """

    symmetry: Symmetry
    density: Density
    draw: dict[str, Array]
    max_features: int | None = None

    def log_ratio(self, element: Element) -> Array:
        r""":math:`\log q(g\theta) - \log q(\theta)`, nats."""
        return self.density.log_ratio(self.symmetry, self.draw, element)
