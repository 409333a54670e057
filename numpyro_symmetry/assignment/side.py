"""One side of a comparison as arrays by site: points or Gaussians, a target or a batch of draws. Knows no more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.assignment.passes import Over, Stored
from numpyro_symmetry.symmetry import PlainView

Arrays = dict[str, np.ndarray]


class Side(NamedTuple):
    """Points, or Gaussians where there are standard deviations.

    Attributes
    ----------
    loc, scale
        Site -> values or means, and standard deviations if there are any. A batch is flat: ``(draw, *event)``.
    weights
        Site -> by how much it counts, where that is not one.
    leading
        The leading dimensions in which a batch came.
    view
        The view that cut sites into pieces, where arrays are pieces of sites.
    """

    loc: Arrays
    scale: Arrays | None = None
    weights: Mapping[str, float] = {}
    leading: tuple[int, ...] = ()
    view: PlainView | None = None

    @property
    def num_draws(self) -> int:
        """Number of draws in a batch."""
        return int(np.prod(self.leading))

    @property
    def over(self) -> Over | None:
        """Where a stored batch is read from, and how a side is made of it; ``None`` for a batch in memory."""
        sources = (x.source for x in self.loc.values() if isinstance(x, Stored))
        source, alike = next(sources, None), self._replace(loc={})
        return None if source is None else Over(source.only(self.loc), lambda arrays: alike._replace(loc=arrays))

    def without(self, sites: Collection[str]) -> Side:
        """The side without these sites, or as it is if none would be left."""
        left = [site for site in self.loc if site not in sites] or list(self.loc)
        return self._replace(
            loc={site: self.loc[site] for site in left}, scale=self.scale and {site: self.scale[site] for site in left}
        )
