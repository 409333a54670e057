"""One side of a matching, as arrays by site. Knows nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]


class Side(NamedTuple):
    """Means by site, and standard deviations if there are any; by how much a site counts, where that is not one."""

    loc: Arrays
    scale: Arrays | None
    weights: Mapping[str, float] = {}

    def moments(self, site: str, items: slice | EllipsisType = ...) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and standard deviation of one site, for some of a batch."""
        return self.loc[site][items], None if self.scale is None else self.scale[site][items]
