"""Allocations without labels: against enumeration of all partitions, and indifferent to labels."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import xarray as xr

from numpyro_symmetry import SymmetryError
from numpyro_symmetry.diagnostics import coclustering, point_partition
from numpyro_symmetry.diagnostics.partitions import DISTANCES, Distance, _rows


def partitions(size):
    """All of them, as labels in order of appearance."""
    rows = [(0,)]
    for _ in range(size - 1):
        rows = [(*row, label) for row in rows for label in range(max(row) + 2)]
    return np.array(rows)


def binder(c, z):
    pairs = list(itertools.combinations(range(len(c)), 2))
    return sum((c[i] == c[j]) != (z[i] == z[j]) for i, j in pairs) / len(pairs)


def variation_of_information(c, z):
    """H(c | z) + H(z | c), in nats."""
    total, n = 0.0, len(c)
    for a, b in itertools.product(set(c), set(z)):
        both = sum((c == a) & (z == b))
        if both:
            total -= both / n * (math.log(both / sum(c == a)) + math.log(both / sum(z == b)))
    return total


SLOW = {"binder": binder, "variation_of_information": variation_of_information}


@pytest.mark.parametrize("distance", DISTANCES, ids=lambda one: one.name)
@pytest.mark.parametrize("seed", range(6))
def test_the_best_of_all_partitions_is_found(distance, seed):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, 6)
    draws = np.where(rng.random((30, 6)) < 0.25, rng.integers(0, 3, (30, 6)), truth)
    found = point_partition(draws, distance=distance.name)
    distances = [np.mean([SLOW[distance.name](c, z) for z in draws]) for c in partitions(6)]
    assert found.expected_distance == pytest.approx(min(distances), abs=1e-12)
    assert found.of_draws == pytest.approx(min(np.mean([SLOW[distance.name](c, z) for z in draws]) for c in draws))
    assert found.expected_distance <= found.of_draws + 1e-12


def test_a_distance_of_ones_own():
    """The number of clusters of both together, twice, less those of either: all draws apart but the last."""
    own = Distance("refinements", lambda n: -(n > 0.0).astype(float), lambda n: 2.0)
    found = point_partition([[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]], distance=own)
    assert found.labels.tolist() == [0, 0, 1, 1]
    # the last draw and this one have two clusters each and three together
    assert found.expected_distance == pytest.approx((3 + 3 - 2 - 2) / 3 / 2)
    assert found.distance is own


@pytest.mark.parametrize("seed", [111, 219, 248, 285])
def test_a_partition_with_more_clusters_than_any_draw_is_found(seed):
    """Of draws at random: from all other starts but the last cut of the tree, the search ends higher."""
    draws = np.random.default_rng(seed).integers(0, 3, (14, 6))
    found = point_partition(draws, distance="variation_of_information")
    distances = [np.mean([variation_of_information(c, z) for z in draws]) for c in partitions(6)]
    assert found.expected_distance == pytest.approx(min(distances), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_of_draws_that_all_differ_the_best_is_the_best_of_all(seed):
    draws = np.random.default_rng(seed).integers(0, 3, (5, 8))
    distances = [np.mean([SLOW["binder"](c, z) for z in draws]) for c in draws]
    assert point_partition(draws, distance="binder").of_draws == pytest.approx(min(distances))


def test_labels_change_nothing():
    rng = np.random.default_rng(0)
    draws = rng.integers(0, 4, (2, 50, 12))
    relabelled = np.stack([np.stack([rng.permutation(9)[:4][row] for row in chain]) for chain in draws])
    np.testing.assert_array_equal(coclustering(draws), coclustering(relabelled))
    for distance in DISTANCES:
        first, second = (point_partition(one, distance=distance) for one in (draws, relabelled))
        np.testing.assert_array_equal(first.labels, second.labels)
        assert first[1:4] == second[1:4]


def test_labels_of_each_draw_s_own_make_no_more_work():
    draws = np.random.default_rng(0).integers(0, 4, (400, 12))
    own = draws + 4 * np.arange(400)[:, None]
    # as many columns as a draw has clusters, and not as there are integers
    assert _rows(own).max() < 4
    np.testing.assert_array_equal(coclustering(own), coclustering(draws))


def test_coclustering_is_the_share_of_draws_in_which_two_are_together():
    draws = np.random.default_rng(1).integers(0, 3, (3, 20, 5))
    rows = draws.reshape(-1, 5)
    np.testing.assert_allclose(coclustering(draws), (rows[:, :, None] == rows[:, None]).mean(0), rtol=1e-12)
    np.testing.assert_array_equal(coclustering(draws.astype(float)), coclustering(draws))


def test_draws_that_agree_are_the_answer():
    truth = np.array([0, 1, 1, 2, 0])
    found = point_partition(np.tile(truth, (7, 1)) + 3)
    np.testing.assert_array_equal(found.labels, truth)
    assert found.expected_distance == 0.0
    assert found.num_clusters == {3: 1.0}
    assert str(found).splitlines()[0] == "Partition of 5 into clusters of 2, 2, 1"


def test_a_cluster_that_no_draw_has():
    # each draw splits one of two pairs by chance: no draw keeps both, the best partition does
    draws = np.array([[0, 0, 1, 2, 3, 3], [0, 1, 2, 2, 3, 3], [0, 0, 1, 1, 2, 3]])
    found = point_partition(draws, distance="binder")
    np.testing.assert_array_equal(found.labels, [0, 0, 1, 1, 2, 2])
    assert found.expected_distance < found.of_draws


@pytest.mark.parametrize("draws", [[[0]], [[3], [4]]])
def test_one_datum(draws):
    assert point_partition(draws).labels.tolist() == [0]
    assert coclustering(draws).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 1, 1], "expected \\(draw, n\\)"),
        (np.zeros((0, 3), int), "expected \\(draw, n\\)"),
        (np.zeros((3, 0), int), "expected \\(draw, n\\)"),
        ([[0, -1]], "from zero on"),
        ([[0, np.nan]], "from zero on"),
        ([[0, 0.5]], "from zero on"),
        ([["a", "b"]], "labels"),
        (np.ma.array([[0, 1]], mask=[[0, 1]]), "masked"),
    ],
)
@pytest.mark.parametrize("call", [coclustering, point_partition])
def test_labels_are_whole_numbers(call, labels, words):
    with pytest.raises((SymmetryError, TypeError), match=words):
        call(labels)


@pytest.mark.parametrize("distance", ["rand", None, 1])
def test_distances_by_name(distance):
    with pytest.raises(ValueError, match="'variation_of_information', 'binder'"):
        point_partition([[0, 1]], distance=distance)


def test_labelled_arrays_come_in_any_order():
    labels = xr.DataArray(np.random.default_rng(0).integers(0, 3, (2, 5, 4)), dims=("chain", "draw", "datum"))
    for turned in (labels.transpose(*dims) for dims in itertools.permutations(labels.dims)):
        np.testing.assert_array_equal(coclustering(turned), coclustering(labels.values))
        np.testing.assert_array_equal(point_partition(turned).labels, point_partition(labels.values).labels)
