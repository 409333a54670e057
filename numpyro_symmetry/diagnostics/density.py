r"""Modes of the density that points were drawn from: peaks that no path of high density joins.

The density at a place is that of the points nearest to it. Points are visited from the densest down, along edges to
their neighbours, and an edge is as dense as its thinnest place; where two hills meet, the lower is a mode of its own if
it rises above the saddle by more than the noise of so many neighbours. Knows points; no labels, chains or sites.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import KDTree
from scipy.spatial.distance import pdist, squareform

# with fewer points than this no valley is deeper than chance digs
MIN_POINTS = 40
# how much a hill must rise, in nats: the error of a log density is one over the root of the number of neighbours, and
# in 800 sets of 50 to 400 draws of one Gaussian in one to four dimensions no second hill rose by 3.9 such errors. A
# valley of less than one nat is no border, with however many draws it is seen
_DEPTH, _LEAST_DEPTH = 4.5, 1.0
_ALONG = (0.25, 0.5, 0.75)


class Hills(NamedTuple):
    """The mode that each point is of.

    Attributes
    ----------
    labels
        ``(point,)``: modes by number, the largest mode first.
    peaks
        ``(mode,)``: index of the densest point of each mode.
    """

    labels: np.ndarray
    peaks: np.ndarray


def hills(points: np.ndarray) -> Hills:
    """Modes of independent draws ``(point, number)``; of fewer than 40, one.

    References
    ----------
    Chazal, Guibas, Oudot and Skraba (2013), *Persistence-based clustering in Riemannian manifolds* (ToMATo).
    """
    count = len(points)
    if count < MIN_POINTS:
        return Hills(np.zeros(count, int), np.zeros(1, int))
    num_neighbours = _num_neighbours(count)
    tree = KDTree(points)
    away, neighbours = map(np.asarray, tree.query(points, num_neighbours + 1))
    # equal points count as a rounding error apart
    smallest = np.finfo(float).eps * np.abs(points).max()
    size = min(points.shape[1], _dimension(np.maximum(away[:, 1:], smallest)))

    def log_density(reached: np.ndarray) -> np.ndarray:
        return -size * np.log(np.maximum(reached, smallest))

    height = log_density(away[:, -1])
    low, high = _edges(points, neighbours[:, 1:])
    places = [points[low] + share * (points[high] - points[low]) for share in _ALONG]
    between = [log_density(np.asarray(tree.query(x, num_neighbours)[0])[:, -1]) for x in places]
    saddle = np.min([height[low], height[high], *between], 0)
    return _joined(height, low, high, saddle, max(_LEAST_DEPTH, _DEPTH / np.sqrt(num_neighbours)))


def _dimension(away: np.ndarray) -> float:
    """Dimension of the set that points fill, by how fast neighbours at distances ``(point, neighbour)`` grow in number.

    References
    ----------
    Levina and Bickel (2004), *Maximum likelihood estimation of intrinsic dimension*.
    """
    return 1.0 / max(np.log(away[:, -1:] / away[:, :-1]).mean(), 1e-3)


def _num_neighbours(count: int) -> int:
    return round(1.5 * np.sqrt(count))


def least_share(count: int) -> float:
    """The least share of ``count`` points that a mode must hold for its peak to look as dense as it is."""
    return min(1.0, 1.5 * _num_neighbours(count) / count)


def _edges(points: np.ndarray, neighbours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges to the nearest neighbours, and those of the minimum spanning tree, so that all points are joined."""
    count = len(points)
    # a distance of zero would be no edge, nor, of a dense matrix, one below 1e-8: equal points still have one
    tree = coo_array(minimum_spanning_tree(coo_array(squareform(pdist(points)) + 1e-300)))
    low = np.concatenate([np.repeat(np.arange(count), neighbours.shape[1]), tree.coords[0]])
    return low, np.concatenate([neighbours.ravel(), tree.coords[1]])


def _joined(height: np.ndarray, low: np.ndarray, high: np.ndarray, saddle: np.ndarray, depth: float) -> Hills:
    peak = list(range(len(height)))

    def peak_of(point: int) -> int:
        while peak[point] != point:
            peak[point] = peak[peak[point]]
            point = peak[point]
        return point

    for edge in saddle.argsort(kind="stable")[::-1]:
        ends = peak_of(int(low[edge])), peak_of(int(high[edge]))
        below, above = sorted(ends, key=lambda point: height[point])
        if height[below] - saddle[edge] < depth:
            peak[below] = above
    peaks, labels, sizes = np.unique(
        [peak_of(point) for point in range(len(peak))], return_inverse=True, return_counts=True
    )
    order = (-sizes).argsort(kind="stable")
    return Hills(order.argsort()[labels], peaks[order])
