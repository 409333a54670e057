r"""Allocations without labels: which data are together, and the one partition that summarises the draws best.

Two distances of partitions differ in one function, :math:`f(n)=n^2` (Binder) and :math:`f(n)=n\log n` (variation of
information), of the sizes of clusters and of their intersections:

.. math:: d(c, z) = \sum_b f(n_b) + \sum_k f(m_k) - 2 \sum_{b,k} f(n_{bk}).

Knows arrays of labels; no symmetry and no traces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from pandas import factorize
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from numpyro_symmetry.steps import counting, saying, track
from numpyro_symmetry.symmetry import SymmetryError, as_html
from numpyro_symmetry.symmetry.arguments import as_flag, as_option, as_real_array, refuse_masked, refuse_tracers
from numpyro_symmetry.symmetry.named import draws_in_front
from numpyro_symmetry.symmetry.shown import first_of

# the most numbers that are held at a time
_MOST_NUMBERS = 2**24
# how many drawn partitions are compared as starts, and from how many of the best starts sweeps are made
_MOST_DRAWS, _MOST_STARTS = 200, 3
_ROUNDING = 1e-12
# the most sizes, and numbers of clusters, that are printed
_MOST_SHOWN = 20


class Distance(NamedTuple):
    """A distance of partitions: its function f of counts, and for n data the number that distances are divided by."""

    name: str
    of_counts: Callable[[np.ndarray], np.ndarray]
    unit: Callable[[int], float]


BINDER = Distance("binder", lambda n: n**2, lambda n: n * (n - 1.0))
VARIATION_OF_INFORMATION = Distance(
    "variation_of_information", lambda n: n * np.log(np.maximum(n, 1.0)), lambda n: float(n)
)
DISTANCES = (VARIATION_OF_INFORMATION, BINDER)


class Partition(NamedTuple):
    """One partition for many draws of allocations.

    Attributes
    ----------
    labels
        ``(n,)`` from zero, in the order in which clusters first appear.
    expected_distance
        Mean distance to the draws: nats, or for Binder the share of pairs apart in one and together in the other.
    of_draws
        The least mean distance of any partition among the draws that were compared.
    num_clusters
        Number of clusters that hold data -> share of the draws.
    distance
        The distance by which the partition is the best that was found.
    """

    labels: np.ndarray
    expected_distance: float
    of_draws: float
    num_clusters: dict[int, float]
    distance: Distance

    def __repr__(self) -> str:
        sizes = first_of(list(map(str, np.bincount(self.labels))), _MOST_SHOWN)
        shares = first_of([f"{count}: {share:.0%}" for count, share in self.num_clusters.items()], _MOST_SHOWN)
        return (
            f"Partition of {len(self.labels)} into clusters of {sizes}\n"
            f"  expected {self.distance.name.replace('_', ' ')} {self.expected_distance:.3g} "
            f"(of the best draw {self.of_draws:.3g})\n"
            f"  clusters in the draws {shares}"
        )

    _repr_html_ = as_html


def coclustering(labels: Any, *, progress_bar: bool = True) -> np.ndarray:
    r"""Posterior probability that two data are together: :math:`\pi_{ij} = \frac1S \sum_s 1[z_{si} = z_{sj}]`.

    Parameters
    ----------
    labels
        ``(*leading, n)`` integers, one row a draw; which integers does not matter. They may be stored as floats.
    progress_bar
        Whether to show a bar, after two seconds.

    Returns
    -------
    numpy.ndarray
        ``(n, n)``, the *posterior similarity matrix*.

    Raises
    ------
    SymmetryError
        If there are no draws or data, or a label is negative or no whole number.
    TypeError
        If ``progress_bar`` is no flag, or under `jit`.

    Examples
    --------
    >>> from numpyro_symmetry.diagnostics import coclustering
    >>> coclustering([[0, 0, 1], [1, 1, 0], [0, 1, 1]]).round(2).tolist()
    [[1.0, 0.67, 0.0], [0.67, 1.0, 0.33], [0.0, 0.33, 1.0]]
    """
    rows = _rows(labels)
    count = int(rows.max()) + 1
    together = np.zeros((rows.shape[1], rows.shape[1]), np.float32)
    step = max(1, _MOST_NUMBERS // (rows.shape[1] * count))
    with saying("counting who is together", as_flag(progress_bar, "progress_bar")):
        for some in track((rows[k : k + step] for k in range(0, len(rows), step)), -(-len(rows) // step)):
            units = (some[..., None] == np.arange(count)).astype(np.float32)
            units = units.transpose(1, 0, 2).reshape(rows.shape[1], -1)
            together += units @ units.T
    return together.astype(float) / len(rows)


def point_partition(
    labels: Any, *, distance: str | Distance = "variation_of_information", progress_bar: bool = True
) -> Partition:
    """The partition at the least expected distance from draws of allocations, of all that local moves reach.

    Starts are the draws themselves and cuts of the tree of average linkage of `coclustering`; from the best of these,
    one datum at a time moves to the cluster where the expected distance is least, or to a new one, until none moves.

    Parameters
    ----------
    labels
        ``(*leading, n)`` integers, one row a draw. Which integers does not matter, so that nothing needs to be
        relabelled first.
    distance
        ``"variation_of_information"`` or ``"binder"``, which makes small clusters of data in doubt; or a `Distance`.
    progress_bar
        Whether to show a bar of data moved, after two seconds.

    Returns
    -------
    Partition
        Its ``expected_distance`` is at most that of every draw among the starts.

    Raises
    ------
    SymmetryError
        If there are no draws or data, or a label is negative or no whole number.
    ValueError
        If there is no such distance.
    TypeError
        If ``progress_bar`` is no flag, or under `jit`.

    References
    ----------
    Binder (1978), Bayesian cluster analysis. Wade and Ghahramani (2018), Bayesian cluster analysis: point estimation
    and credible balls, equation 4. Dahl, Johnson and Müller (2022), Search algorithms and loss functions for Bayesian
    clustering.

    Examples
    --------
    >>> from numpyro_symmetry.diagnostics import point_partition
    >>> point_partition([[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1]]).labels.tolist()
    [0, 0, 1, 1]
    """
    chosen, shown = _distance(distance), as_flag(progress_bar, "progress_bar")
    rows = _rows(labels)
    num_draws, num_data = rows.shape
    table = chosen.of_counts(np.arange(num_data + 1.0))
    of_rows = np.array([table[np.bincount(row)].sum() for row in rows])

    def expected(partition: np.ndarray) -> float:
        counts = _contingency(rows, partition)
        return float((table[np.bincount(partition)].sum() + of_rows - 2.0 * table[counts].sum((1, 2))).mean())

    drawn = np.unique(rows[:: max(1, num_draws // _MOST_DRAWS)], axis=0)
    best_drawn = min(drawn, key=expected)
    starts = [best_drawn, *_cuts(coclustering(rows, progress_bar=shown), int(rows.max()) + 1)]
    # a bar without a total: how many sweeps it takes is not known
    with counting("moving data between clusters", "data", shown) as bar:
        found = [_settled(rows, start, table, bar.update) for start in sorted(starts, key=expected)[:_MOST_STARTS]]
    best = min((*found, best_drawn), key=expected)
    sizes, times = np.unique([row.max() + 1 for row in rows], return_counts=True)
    unit = chosen.unit(num_data) or 1.0
    return Partition(
        labels=best,
        expected_distance=expected(best) / unit,
        of_draws=expected(best_drawn) / unit,
        num_clusters={int(size): float(count) / num_draws for size, count in zip(sizes, times, strict=True)},
        distance=chosen,
    )


def _distance(distance: Any) -> Distance:
    named = {one.name: one for one in DISTANCES}
    if isinstance(distance, Distance):
        return distance
    return named[as_option(distance, "distance", tuple(named))]


def _rows(labels: Any) -> np.ndarray:
    """Labels ``(draw, n)``, in each draw from zero, in the order in which they first appear."""
    refuse_tracers("A partition", labels=labels)
    refuse_masked({"labels": labels}, "Argument")
    if isinstance(labels, Mapping):
        raise SymmetryError(
            f"labels are those of one site, an array; got a {type(labels).__name__} of {list(labels)}: name the one."
        )
    array = np.asarray(as_real_array(draws_in_front(labels), "labels"))
    if array.ndim < 2 or not array.size:
        raise SymmetryError(
            f"labels have shape {array.shape}; expected (draw, n) or (chain, draw, n), a row of allocations a draw."
        )
    allowed = np.isfinite(array) & (array >= 0) & (array == np.round(array))
    if not allowed.all():
        raise SymmetryError(
            "labels must be whole numbers from zero on, one for every datum in every draw; got "
            f"{array[~allowed][0]}. Leave out data whose allocation is missing (-1, NaN)."
        )
    return np.stack([factorize(row)[0] for row in array.reshape(-1, array.shape[-1])])


def _contingency(rows: np.ndarray, partition: np.ndarray) -> np.ndarray:
    """``(draw, label, cluster)``: how many data have a label in a draw and are in a cluster of the partition."""
    num_draws, num_labels, size = len(rows), int(rows.max()) + 1, int(partition.max()) + 1
    places = (np.arange(num_draws)[:, None] * num_labels + rows) * size + partition
    return np.bincount(places.ravel(), minlength=num_draws * num_labels * size).reshape(num_draws, num_labels, size)


def _cuts(similarity: np.ndarray, most: int) -> list[np.ndarray]:
    """Cuts of the tree of average linkage into one to ``most`` clusters."""
    if len(similarity) < 2:
        return []
    tree = linkage(squareform(1.0 - similarity, checks=False), "average")
    return [factorize(fcluster(tree, size, "maxclust"))[0] for size in range(1, most + 1)]


def _settled(rows: np.ndarray, start: np.ndarray, table: np.ndarray, tell: Callable[[], Any]) -> np.ndarray:
    """A partition from which no datum wants to move: each goes where the expected distance rises least."""
    partition, draws, rise = start.copy(), np.arange(len(rows)), np.diff(table)
    counts, sizes, moved = _contingency(rows, partition), np.bincount(partition), True
    while moved:
        moved = False
        for datum, labels in enumerate(rows.T):
            tell()
            if sizes[-1]:
                # an empty cluster that a datum may move to
                counts, sizes = np.pad(counts, ((0, 0), (0, 0), (0, 1))), np.append(sizes, 0)
            old = partition[datum]
            counts[draws, labels, old] -= 1
            sizes[old] -= 1
            risen = rise[sizes] - 2.0 * rise[counts[draws, labels]].mean(0)
            new = int(risen.argmin()) if risen.min() < risen[old] - _ROUNDING * abs(risen[old]) else old
            counts[draws, labels, new] += 1
            sizes[new] += 1
            partition[datum], moved = new, moved or new != old
    return factorize(partition)[0]
