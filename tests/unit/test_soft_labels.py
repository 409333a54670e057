"""Labels as probabilities: against sums over all elements, and slots of which it is known what they are."""

from __future__ import annotations

import itertools
import sys

import jax
import numpy as np
import pytest

from numpyro_symmetry import EuclideanCost, Split, StephensCost, Symmetry, SymmetryError, log_permanent, rebase
from numpyro_symmetry.diagnostics import distinct_units, soft_labels


def by_enumeration(draws, num_rounds, *, signed=False):
    """Expectation and maximisation over all elements, written out: probabilities of places, means, deviations."""
    count, n = draws.shape
    signs = list(itertools.product((1, -1), repeat=n)) if signed else [(1,) * n]
    moved = [np.array(s) * draws[:, list(p)] for p in itertools.permutations(range(n)) for s in signs]
    places = [np.eye(n)[list(p)] for p in itertools.permutations(range(n)) for _ in signs]
    mean, scale = draws.mean(0), draws.std(0)
    for _ in range(num_rounds):
        log = np.stack([-0.5 * (((x - mean) / scale) ** 2).sum(1) for x in moved])
        weight = np.exp(log - log.max(0))
        weight /= weight.sum(0)
        mean = sum(w @ x for w, x in zip(weight, moved, strict=True)) / count
        scale = np.sqrt(sum(w @ x**2 for w, x in zip(weight, moved, strict=True)) / count - mean**2)
    return np.einsum("gs,gij->sij", weight, np.stack(places)), mean, scale


def overlapping(seed, shape, centres, *, signed=False):
    rng = np.random.default_rng(seed)
    loc = rng.permuted(np.asarray(centres) + rng.standard_normal((*shape, len(centres))), axis=-1)
    return {"loc": loc * (rng.choice([-1, 1], loc.shape) if signed else 1)}


@pytest.mark.parametrize("kind", ["permutation", "signed"])
def test_labels_are_summed_over_all_elements(kind):
    symmetry = Symmetry({"loc": ("unit",)}, kinds={"unit": kind})
    signed = kind == "signed"
    out = rebase(overlapping(0, (150,), [0.5, 2.0, 3.0], signed=signed), symmetry, cost=EuclideanCost(), null=False)
    found = soft_labels(out)
    places, mean, scale = by_enumeration(out.data["loc"], found.num_rounds, signed=signed)
    assert found.converged
    np.testing.assert_allclose(found.probabilities["unit"], places, atol=1e-7)
    np.testing.assert_allclose(found.num_distinct["unit"], distinct_units(places).mean())
    # the last round's probabilities give the means that are returned
    np.testing.assert_allclose(found.mean["loc"], mean, atol=1e-7)
    np.testing.assert_allclose(found.scale["loc"], scale, atol=1e-7)


def test_kinds_of_units_are_counted():
    for sizes in ([1, 1, 1, 1], [4], [1, 3], [2, 2], [1, 1, 2]):
        kind = np.repeat(np.arange(len(sizes)), sizes)
        table = np.where(kind[:, None] == kind, 0.0, -80.0)
        places = jax.grad(log_permanent)(jax.numpy.asarray(table, np.float32))
        assert float(distinct_units(places)) == pytest.approx(len(sizes), rel=1e-5)
    # of four units in two kinds, in every order of either side
    shuffled = table[np.ix_([2, 0, 3, 1], [1, 3, 0, 2])]
    assert float(distinct_units(jax.grad(log_permanent)(jax.numpy.asarray(shuffled)))) == pytest.approx(3, rel=1e-5)


def test_units_are_counted_along_rows_of_each_table():
    # rows and columns hold different numbers
    one = np.array([[0.2, 0.8, 0.0], [0.5, 0.1, 0.4], [0.3, 0.1, 0.6]])
    expected = [sum(np.prod(row**row) for row in table) for table in (one, one.T, np.eye(3))]
    np.testing.assert_allclose(distinct_units(np.stack([one, one.T, np.eye(3)])), expected)
    with pytest.raises(SymmetryError, match="'probabilities' is a masked array"):
        distinct_units(np.ma.masked_array(np.eye(2), [[False, True], [True, False]]))


def test_places_of_a_table_are_those_of_all_permutations():
    table = np.random.default_rng(0).normal(size=(4, 4))
    weights = {p: np.exp(table[np.arange(4), list(p)].sum()) for p in itertools.permutations(range(4))}
    total = sum(weights.values())
    places = sum(weight / total * np.eye(4)[list(p)] for p, weight in weights.items())
    number = float(distinct_units(jax.grad(log_permanent)(jax.numpy.asarray(table, np.float32))))
    # e to the minus entropy, place by place
    assert number == pytest.approx(sum(np.prod(row**row) for row in places), rel=1e-5)
    assert 1.0 < number < 4.0


@pytest.mark.parametrize(("centres", "number"), [([0, 0, 0, 0], 1), ([0, 0, 0, 9], 2), ([0, 9, 18, 27], 4)])
def test_slots_that_nothing_tells_apart_are_one(centres, number):
    found = soft_labels(rebase(overlapping(1, (4, 500), centres), Symmetry.mixture("loc"), null=False))
    # 2000 draws leave a little chance that slots differ
    assert number - 1e-6 <= found.num_distinct["component"] < 1.05 * number


def test_slots_are_as_wide_as_they_are_where_relabelling_narrows_them():
    out = rebase(overlapping(2, (4, 1000), [0.0, 1.6]), Symmetry.mixture("loc"), null=False)
    scale = soft_labels(out).scale["loc"]
    # twice the variance that a deviation would have if labels were known
    error = np.sqrt(2.0 / (2.0 * 4000))
    assert out.data["loc"].std((0, 1)).max() < 1.0 - 4.0 * error
    assert np.abs(scale - 1.0).max() < 4.0 * error


@pytest.mark.parametrize(("offset", "unit"), [(1e6, 1.0), (-1e8, 1.0), (0.0, 1e160), (0.0, 1e-170)])
def test_deviations_do_not_depend_on_units_and_on_how_far_from_zero_slots_are(offset, unit):
    draws = overlapping(3, (150,), [0.0, 1.5, 3.0])
    columns = {"loc": np.stack([unit * draws["loc"] + offset, draws["loc"]], 2)}
    found = soft_labels(rebase(columns, Symmetry({"loc": ("component", None)}), null=False))
    np.testing.assert_allclose(found.scale["loc"][:, 0] / unit, found.scale["loc"][:, 1], rtol=1e-5)
    np.testing.assert_allclose((found.mean["loc"][:, 0] - offset) / unit, found.mean["loc"][:, 1], atol=1e-5)


def test_what_slots_and_units_are_called_changes_nothing():
    draws = overlapping(3, (4, 100), [0.0, 1.5, 3.0])
    names = [0, 1, 2], [2, 0, 1]
    found = [
        soft_labels(rebase({"loc": draws["loc"][..., list(name)]}, Symmetry.mixture("loc"), order_by="loc", null=False))
        for name in names
    ]
    np.testing.assert_allclose(found[0].mean["loc"], found[1].mean["loc"], atol=1e-6)
    assert found[0].num_distinct["component"] == pytest.approx(found[1].num_distinct["component"], rel=1e-6)


def test_a_site_with_the_group_on_both_axes_has_no_say():
    rng = np.random.default_rng(4)
    draws = overlapping(4, (300,), [0.0, 2.0, 4.0])
    both = draws | {"transition": rng.dirichlet([5, 3, 2], (300, 3))}
    symmetry = Symmetry({"loc": ("state",), "transition": ("state", "state")})
    out = rebase(both, symmetry, null=False)
    found = soft_labels(out)
    np.testing.assert_allclose(found.mean["transition"], out.data["transition"].mean(0), rtol=1e-6)
    places, _, _ = by_enumeration(out.data["loc"], found.num_rounds)
    np.testing.assert_allclose(found.probabilities["state"], places, atol=1e-7)
    alone = rebase({"transition": both["transition"]}, symmetry.restrict(sites=["transition"]), null=False)
    with pytest.raises(SymmetryError, match="'state'.*two axes of its sites"):
        soft_labels(alone)


def test_slots_on_a_flattened_axis_are_those_of_the_axis_opened():
    rng = np.random.default_rng(7)
    opened = rng.permuted(np.array([[0.0, 0.0], [2.0, 1.0], [4.0, 0.0]]) + rng.standard_normal((200, 3, 2)), axis=1)
    axes = {(200, 3, 2): ("unit", None), (200, 6): (Split((3, 2), ("unit", None)),)}
    each = [
        soft_labels(rebase({"w": opened.reshape(shape)}, Symmetry({"w": entries}), reference="first", null=False))
        for shape, entries in axes.items()
    ]
    for of in ("mean", "scale"):
        one, flat = (getattr(found, of)["w"] for found in each)
        assert flat.shape == (6,)
        np.testing.assert_allclose(flat, one.ravel())


@pytest.mark.parametrize("rounds", [1, 3])
def test_what_has_not_settled_says_so(rounds, monkeypatch):
    monkeypatch.setattr(sys.modules[soft_labels.__module__], "_MAX_ROUNDS", rounds)
    found = soft_labels(rebase(overlapping(0, (150,), [0.5, 2.0, 3.0]), Symmetry.mixture("loc"), null=False))
    assert (found.num_rounds, found.converged) == (rounds, False)


def test_labels_of_many_slots_are_not_summed():
    rng = np.random.default_rng(5)
    out = rebase({"loc": np.arange(11.0) + rng.standard_normal((20, 11))}, Symmetry.mixture("loc"), null=False)
    with pytest.raises(SymmetryError, match="{'component': 11} labels.*at most 10"):
        soft_labels(out)


def test_any_cost_will_do():
    rng = np.random.default_rng(6)
    draws = overlapping(6, (50,), [0.0, 5.0])
    out = rebase(draws, Symmetry.mixture("loc"), cost=StephensCost(rng.dirichlet([1, 1], (50, 4))), null=False)
    assert soft_labels(out).num_distinct["component"] <= 2.0
