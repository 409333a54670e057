"""nearest_transposition against every exchange tried, and its bound."""

import itertools

import numpy as np
import pytest

from numpyro_symmetry import Symmetry, SymmetryError, nearest_transposition
from tests import networks, oracles

HMM = Symmetry.hmm(initial="pi", transition="A", emissions=["loc"])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["network", "hmm"])
def test_is_the_nearest_of_all_exchanges(name, seed):
    shapes, symmetry = networks.mlp([3, 6, 5, 2]) if name == "network" else (None, HMM)
    shapes = shapes or {"pi": (4,), "A": (4, 4), "loc": (4, 2)}
    rng = np.random.default_rng(seed)
    values = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    found = nearest_transposition(values, symmetry)
    bound = symmetry.bind(values)
    for group, (pair, distance, limit) in found.items():
        n = bound.sizes[group]
        distances = {}
        for i, j in itertools.combinations(range(n), 2):
            swap = np.arange(n)
            swap[[i, j]] = j, i
            rest = {other: (np.arange(m), np.ones(m)) for other, m in bound.sizes.items()}
            moved = oracles.act(bound, rest | {group: (swap, np.ones(n))}, values)
            distances[i, j] = np.sqrt(sum(((moved[s] - values[s]) ** 2).sum() for s in values))
        assert distance == pytest.approx(min(distances.values()), rel=1e-12)
        assert distances[pair] == pytest.approx(distance, rel=1e-12)
        if name == "network":
            assert distance <= limit


def test_wide_layers_are_crowded():
    shapes, symmetry = networks.mlp([784, 512, 10])
    rng = np.random.default_rng(0)
    values = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    found = nearest_transposition(values, symmetry)["hidden"]
    norm = np.sqrt(sum((values[s] ** 2).sum() for s in ("w1", "b1", "w2")))
    assert found.bound / norm == pytest.approx(0.0885, abs=1e-4)
    assert found.distance / norm == pytest.approx(0.0786, abs=3e-3)


def test_one_unit_has_no_neighbour_and_missing_sites_are_refused():
    assert nearest_transposition({"w": np.zeros((2, 1))}, Symmetry({"w": (None, "unit")})) == {}
    with pytest.raises(SymmetryError, match="'w' is named"):
        nearest_transposition({"v": np.zeros(2)}, Symmetry({"w": ("unit",)}))


def test_the_pair_is_found_beside_a_large_offset():
    values = {"w": 1e6 + np.array([0, 0.01, 0.03, 0.031])}
    found = nearest_transposition(values, Symmetry({"w": ("h",)}))["h"]
    assert found.pair == (2, 3)


@pytest.mark.parametrize(
    ("value", "message"), [([np.nan, 1, 2], "non-finite"), (np.zeros((5, 3)), "one draw at a time")]
)
def test_what_is_no_single_finite_point_is_refused(value, message):
    with pytest.raises(SymmetryError, match=message):
        nearest_transposition({"w": np.asarray(value, float)}, Symmetry({"w": ("h",)}))
