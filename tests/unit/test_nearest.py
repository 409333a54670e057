"""nearest_transposition against every exchange tried, and its bound."""

import itertools

import jax
import numpy as np
import pytest

from numpyro_symmetry import Symmetry, SymmetryError
from numpyro_symmetry.matching import nearest_transposition
from numpyro_symmetry.symmetry.pieces import pieces_of
from tests.support import networks, oracles
from tests.support.laws import SYMMETRIES

pytestmark = pytest.mark.usefixtures("strict_promotion")

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
    for group, (pair, distance, limit, _, _) in found.items():
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


def small_moves(symmetry, name):
    """Every element that exchanges two indices of one group, negating either, or negates one alone, by its pair."""
    identity = jax.tree.map(np.asarray, symmetry.identity())
    group = symmetry.groups[name]
    for cell in np.ndindex(*group.cells):
        for i, j in itertools.combinations_with_replacement(range(group.size), 2):
            for signs in itertools.product((1, -1), repeat=2) if group.signed else [(1, 1)]:
                if signs == (1, 1) and i == j or signs[0] != signs[1] and i == j:
                    continue
                if group.orbits is not None and group.orbits[i] != group.orbits[j]:
                    continue
                part = jax.tree.map(np.copy, identity[name])
                permutation = part.permutation if group.signed else part
                permutation[(*cell, [i, j])] = j, i
                if group.signed:
                    part.sign[(*cell, [i, j])] = signs
                yield (cell, (i, j)), identity | {name: part}


@pytest.mark.parametrize("case", SYMMETRIES)
def test_only_elements_of_the_group_are_nearest_and_none_is_nearer(case):
    symmetry, values = SYMMETRIES[case]
    found = nearest_transposition(values, symmetry)
    moving = [n for n, group in symmetry.groups.items() if group.signed or max(group.orbit_sizes) > 1]
    assert list(found) == moving

    def distance(element):
        # refuses what is no element of the group
        moved = symmetry.apply(element, values)
        return np.sqrt(sum(((moved[site] - values[site]) ** 2).sum() for site in symmetry.axes))

    for name, nearest in found.items():
        distances = {}
        for where, element in small_moves(symmetry, name):
            distances[where] = min(distance(element), distances.get(where, np.inf))
        assert nearest.distance == pytest.approx(min(distances.values()), rel=1e-12)
        assert distances[nearest.cell, nearest.pair] == pytest.approx(nearest.distance, rel=1e-12)
        assert distance(nearest.element) == pytest.approx(nearest.distance, rel=1e-12)
        stands_once = all(
            sum(axis.group == name for axis in piece.axes) <= 1
            for site, entries in symmetry.axes.items()
            for piece in pieces_of(entries, values[site].shape)
        )
        assert nearest.distance <= nearest.bound or not stands_once


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40])
@pytest.mark.parametrize("case", [case for case in SYMMETRIES if "part" not in case])
def test_the_nearest_is_the_same_in_every_unit(case, unit):
    """But of parts of wholes, which have none."""
    symmetry, values = SYMMETRIES[case]
    measured = {site: unit * np.asarray(x, float) for site, x in values.items()}
    found, expected = nearest_transposition(measured, symmetry), nearest_transposition(values, symmetry)
    for name, nearest in expected.items():
        assert (found[name].cell, found[name].pair) == (nearest.cell, nearest.pair)
        assert found[name].distance == pytest.approx(unit * nearest.distance, rel=1e-12, abs=0.0)


def test_the_nearest_is_printed_in_a_line():
    symmetry = Symmetry({"w": ("u",)}, {"u": "signed"})
    found = nearest_transposition({"w": np.array([1.0, -1.01, 0.001])}, symmetry)["u"]
    assert repr(found) == "NearestTransposition(2 negated: distance 0.002, at most 1.641)"
    found = nearest_transposition({"w": np.array([1.0, -1.01, 5.0])}, symmetry)["u"]
    assert repr(found).startswith("NearestTransposition(0 and 1 exchanged: distance 0.01414")
    assert np.asarray(found.element["u"].sign).tolist() == [-1, -1, 1]


def test_wide_layers_are_crowded():
    shapes, symmetry = networks.mlp([784, 512, 10])
    rng = np.random.default_rng(0)
    values = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    found = nearest_transposition(values, symmetry)["hidden"]
    norm = np.sqrt(sum((values[s] ** 2).sum() for s in ("w1", "b1", "w2")))
    assert found.bound / norm == pytest.approx(0.0884, abs=1e-4)
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
    ("value", "message"),
    [
        (np.array([np.nan, 1, 2]), "'w' holds 1 non-finite"),
        (np.zeros((5, 3)), "one draw at a time"),
        (np.ma.array([0.0, 1, 2], mask=[0, 1, 0]), "Site 'w' is a masked array"),
        (np.array([1j, 1, 2]), "Site 'w': expected real numbers"),
        (np.array(["a", "b"]), "Site 'w': expected real numbers"),
    ],
)
def test_what_is_no_single_finite_point_is_refused(value, message):
    with pytest.raises(SymmetryError, match=message):
        nearest_transposition({"w": value}, Symmetry({"w": ("h",)}))


def test_no_symmetry_and_tracers_are_refused():
    with pytest.raises(TypeError, match="symmetry must be a Symmetry.*got NoneType"):
        nearest_transposition({"w": np.zeros(3)}, None)
    with pytest.raises(TypeError, match="nearest_transposition needs numbers and cannot run under jit"):
        jax.jit(lambda w: nearest_transposition({"w": w}, Symmetry({"w": ("h",)})))(np.zeros(3))
