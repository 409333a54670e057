"""Comparing two posteriors up to labels: laws over every symmetry, slow twins, known answers, bad input."""

import itertools
import re

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from numpyro.infer.autoguide import AutoNormal
from scipy.spatial.distance import cdist

from numpyro_symmetry import Symmetry, SymmetryError, SymmetryWarning, compare, rebase
from numpyro_symmetry.diagnostics import Comparisons, compare_pairs, energies, label_free, plot_comparison, pooled
from numpyro_symmetry.diagnostics.comparison import Comparison, Drawn
from tests.support.laws import SYMMETRIES

LOC = Symmetry.mixture("loc")
BOTH = ("a", "b")


def switched(rng, *shape, wider=1.0, shift=0.0, separation=4.0):
    """Three components, labels at random in every draw."""
    loc = separation * np.array([-1.0, 0.0, 1.0]) + rng.standard_normal((*shape, 3)) * [1.0, 1.0, wider]
    return {"loc": rng.permuted(loc + [shift, 0.0, 0.0], axis=-1)}


def autoregressive(rng, rate, *shape):
    z = rng.standard_normal(shape)
    for t in range(1, shape[1]):
        z[:, t] = rate * z[:, t - 1] + np.sqrt(1.0 - rate**2) * z[:, t]
    return z


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# ---- labels ------------------------------------------------------------------------------------------------------


def same_figures(one, other, tolerance):
    assert one.verdict == other.verdict
    assert one.p_value == other.p_value
    assert one.effect == pytest.approx(other.effect, abs=tolerance)
    assert one.floor == pytest.approx(other.floor, abs=tolerance)
    xr.testing.assert_allclose(one.contributions, other.contributions, atol=tolerance)


@pytest.mark.parametrize("name", [name for name in SYMMETRIES if name != "nothing"])
def test_labels_change_no_figure(name, rng):
    symmetry, shapes = SYMMETRIES[name][0], {site: value.shape for site, value in SYMMETRIES[name][1].items()}
    # weights of which the other part is one less them
    sides = [
        {site: rng.uniform(0.2, 0.8, (draws, *shape)).astype(np.float32) for site, shape in shapes.items()}
        for draws in (14, 11)
    ]
    bound = symmetry.bind({site: value[0] for site, value in sides[0].items()})
    moved = [
        {
            site: np.asarray(value)
            for site, value in bound.apply(bound.sample(jax.random.key(k), (14, 11)[k : k + 1]), x).items()
        }
        for k, x in enumerate(sides)
    ]
    options = {"independent": BOTH, "num_exchanges": 19, "num_leading_dims": 1}
    same_figures(compare(*sides, symmetry, **options), compare(*moved, symmetry, **options), 1e-5)


UNITS = {
    "as they are": lambda loc: loc,
    "huge": lambda loc: 1e30 * loc,
    "tiny": lambda loc: 1e-30 * loc,
    "single": lambda loc: loc.astype(np.float32),
    "whole": lambda loc: loc.astype(int),
    "masks": lambda loc: loc > 0,
    "one": lambda loc: loc[..., :1],
}


@pytest.mark.parametrize("units", UNITS)
def test_labels_units_and_the_side_that_is_first_change_no_figure(units, rng):
    a, b = ({"loc": UNITS[units](x["loc"])} for x in (switched(rng, 2, 60), switched(rng, 80, wider=1.4)))
    found, moved = (
        compare(
            {"loc": rng.permuted(x["loc"], axis=-1)}, {"loc": rng.permuted(y["loc"], axis=-1)}, LOC, num_exchanges=99
        )
        for x, y in ((a, b), (b, a))
    )
    assert (found.verdict, found.p_value, found.p_by_distance) == (moved.verdict, moved.p_value, moved.p_by_distance)
    assert (found.effect, found.floor) == pytest.approx((moved.effect, moved.floor), abs=1e-6)
    ahead, behind = (one.contributions["loc"].sel(quantity=["shift", "log_ratio"]) for one in (found, moved))
    np.testing.assert_allclose(ahead, -behind, atol=1e-6)


def test_means_are_those_of_each_side_alone():
    """Of sides of unlike numbers of draws; over all slots, whose order labels leave open."""
    rng = np.random.default_rng(0)
    sides = [{"sigma": loc + scale * rng.standard_normal((draws, 2))} for loc, scale, draws in ((0, 1, 60), (5, 3, 90))]
    found = compare(*sides, Symmetry({"sigma": ("unit",)}), independent=BOTH, num_exchanges=19)
    for name, side in zip("ab", sides, strict=True):
        mean = found.contributions["sigma"].sel(quantity=f"mean_{name}")
        np.testing.assert_allclose(mean.sum(), side["sigma"].mean(0).sum(), rtol=1e-5)


def test_a_site_may_be_called_as_the_dimension_of_quantities_is():
    a, b = np.random.default_rng(0).standard_normal((2, 200, 2))
    plain, named = (
        compare({name: a}, {name: b}, Symmetry({name: ("unit",)}), independent=BOTH, num_exchanges=19)
        for name in ("loc", "quantity")
    )
    assert named.contributions["quantity"].dims == ("quantity_", "quantity_dim_0")
    np.testing.assert_array_equal(named.contributions["quantity"], plain.contributions["loc"])
    assert len(named.table) == 2


def test_deviations_of_many_draws_in_single_precision_are_those_of_the_draws():
    draws = np.random.default_rng(0).standard_normal((2, 20_000, 2))
    a, b = (1000.0 + 10.0 * np.arange(2) + 0.01 * draws).astype(np.float32)
    found = compare({"loc": a}, {"loc": b}, LOC, independent=BOTH, num_exchanges=19).contributions["loc"]
    # blocks of every twentieth draw
    for name, side in (("a", a), ("b", b)):
        np.testing.assert_allclose(found.sel(quantity=f"sd_{name}"), side.std(0, dtype=float), rtol=0.08)
        np.testing.assert_allclose(found.sel(quantity=f"mean_{name}"), side.mean(0, dtype=float), atol=1e-3)


def test_what_is_constant_on_both_sides_differs_by_the_same_either_way():
    a, b = ({"loc": np.tile(loc, (50, 1))} for loc in ([-3.0, 0.0, 3.0], [-3.0, 0.0, 4.0]))
    found, moved = (compare(*sides, LOC, independent=BOTH, num_exchanges=99) for sides in ((a, b), (b, a)))
    assert found.verdict == "differ"
    ahead, behind = (one.contributions["loc"].sel(quantity="shift") for one in (found, moved))
    np.testing.assert_allclose(ahead, -behind)


@pytest.mark.parametrize("short", [1, 3, 20])
def test_a_short_chain_beside_long_ones_is_no_alarm(short):
    slow = np.random.default_rng(7)

    def ragged():
        loc = [[-4.0, 0.0, 4.0] + autoregressive(slow, 0.9, 3, length)[..., None].T[0] for length in (200, 200, short)]
        return {"loc": [np.asarray(chain) for chain in loc]}

    with pytest.warns(SymmetryWarning, match=rf"Chains of \[{short}\] draws of '[ab]' are left out"):
        p = np.array([compare(ragged(), ragged(), LOC, num_exchanges=99).p_value for _ in range(20)])
    # of twenty at 5 %: four or more once in sixty
    assert (p <= 0.05).sum() < 4


def test_order_and_side_change_no_figure(rng):
    a, b = switched(rng, 60), switched(rng, 40, wider=2.0)
    mixed = [{"loc": rng.permutation(x["loc"])} for x in (a, b)]
    options = {"independent": BOTH, "num_exchanges": 19}
    one, other, turned = compare(a, b, LOC, **options), compare(*mixed, LOC, **options), compare(b, a, LOC, **options)
    assert one.effect == pytest.approx(other.effect, rel=1e-9) == pytest.approx(turned.effect, rel=1e-9)
    shift = [found.contributions["loc"].sel(quantity="shift").values for found in (one, other, turned)]
    np.testing.assert_allclose(shift[1], shift[0], rtol=1e-9)
    np.testing.assert_allclose(shift[2], -shift[0], rtol=1e-9)


def test_the_same_draws_have_the_same_components_to_the_last_digit(rng):
    """What is iterated for starts where it did, and not at random."""
    symmetry = Symmetry({"w": (None, "hidden")}, sizes={"hidden": 6})
    draws = pooled.pooled_draws({"w": rng.standard_normal((50, 3, 6))}, symmetry)
    np.testing.assert_array_equal(pooled.leading(draws), pooled.leading(draws))


@pytest.mark.parametrize("kind", ["permutation", "signed"])
def test_slots_ascend_in_their_first_number_and_its_mean_is_positive(kind, rng):
    symmetry = Symmetry({"w": ("unit", None)}, sizes={"unit": 3}, kinds={"unit": kind})
    w = np.array([[3.0, -30.0], [-5.0, -40.0], [-7.0, 1.0]]) + 0.3 * rng.standard_normal((40, 3, 2))
    draws = symmetry.apply(symmetry.sample(jax.random.key(0), (40,)), {"w": w})
    _, aligned = pooled.by_distance(pooled.pooled_draws({"w": np.asarray(draws["w"])}, symmetry))
    expected = [-7.0, -5.0, 3.0] if kind == "permutation" else [3.0, 5.0, 7.0]
    found = aligned.raw["w"][..., 0]
    np.testing.assert_array_less(np.abs(found.mean(0) - expected), 4 * 0.3 / np.sqrt(40))


def test_leading_components_are_those_of_centred_projections(rng):
    symmetry = Symmetry({"w": (None, "unit"), "v": ("unit",)}, sizes={"unit": 6})
    values = {"w": 3.0 + rng.standard_normal((50, 3, 6)), "v": rng.standard_normal((50, 6)), "s": rng.random((50, 2))}
    draws = pooled.pooled_draws(values, symmetry)
    features = label_free.sorted_projections(symmetry, draws.values)
    left, singular, _ = np.linalg.svd(features - features.mean(0), full_matrices=False)
    found = pooled.leading(draws)
    # the largest come last
    expected = (left * singular)[:, found.shape[1] - 1 :: -1]
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-6)


@pytest.mark.parametrize("numbers", [2, 3, 5])
def test_the_order_of_sites_hardly_changes_the_effect(numbers, rng):
    a, b = rng.standard_normal((2, 400, 3, numbers))
    a[..., 0], b[..., 0] = a[..., 0] + [0.0, 1.5, 3.0], 1.5 * (b[..., 0] + [0.0, 1.5, 3.0])
    sides = [{f"s{k}": x[..., k] for k in range(numbers)} for x in (a, b)]
    effects = [
        compare(*sides, Symmetry.mixture(*np.roll(list(sides[0]), k)), independent=("a", "b"), num_exchanges=19).effect
        for k in range(numbers)
    ]
    assert max(effects) < 1.1 * min(effects)


@pytest.mark.parametrize("size", [1, 2, 5, 9, 40])
def test_directions_weigh_every_number_alike(size, rng):
    values = {"x": rng.standard_normal((20, 3, size))}
    found = label_free.sorted_projections(Symmetry({"x": ("u", None)}, sizes={"u": 3}), values)
    np.testing.assert_allclose(np.square(found).sum(1), np.square(values["x"]).sum((1, 2)))


@pytest.mark.parametrize(("num_units", "most"), [(3, 40), (9, 40), (9, 10)])
def test_projections_are_as_many_as_there_is_room_for_and_four_to_a_unit_at_least(num_units, most, rng):
    symmetry = Symmetry({"w": ("unit", None)}, sizes={"unit": num_units})
    found = label_free.sorted_projections(symmetry, {"w": rng.standard_normal((5, num_units, 30))}, most)
    assert found.shape == (5, num_units * max(4, most // num_units))


def test_canonical_draws_are_the_same_draws(rng):
    symmetry = Symmetry({"w": (None, "unit"), "v": ("unit",)}, kinds={"unit": "signed"}, sizes={"unit": 3})
    values = {"w": rng.standard_normal((20, 2, 3)), "v": rng.standard_normal((20, 3))}
    found = label_free.canonical(symmetry, values)
    for k, one in enumerate(label_free.sorted_projections(symmetry, found)):
        np.testing.assert_allclose(
            one, label_free.sorted_projections(symmetry, {s: x[k : k + 1] for s, x in values.items()})[0]
        )
    np.testing.assert_allclose(np.sort(np.abs(found["v"])), np.sort(np.abs(values["v"])))


@pytest.mark.parametrize("name", ["mlp, signed", "hidden markov model", "factors"])
def test_canonical_draws_know_no_labels(name):
    symmetry, values = SYMMETRIES[name]
    g = symmetry.sample(jax.random.key(0), (9,))
    draws = {site: np.tile(value, (9, *(1,) * value.ndim)) for site, value in values.items()}
    moved = {site: np.asarray(value, float) for site, value in symmetry.apply(g, draws).items()}
    found = label_free.canonical(symmetry, moved)
    for value in [*found.values(), label_free.sums(symmetry, moved)]:
        np.testing.assert_allclose(value, np.broadcast_to(value[:1], value.shape), atol=1e-6)


def test_projections_of_one_number_are_its_order(rng):
    values = {"loc": rng.standard_normal((5, 3)), "sigma": rng.standard_normal((5, 2))}
    symmetry = Symmetry({"loc": ("component",)}, sizes={"component": 3})
    found = label_free.sorted_projections(symmetry, values)
    np.testing.assert_allclose(found, np.concatenate([values["sigma"], np.sort(values["loc"])], 1))


def test_sums_are_those_of_units_of_pairs_and_of_what_has_no_labels(rng):
    values = {"w": rng.standard_normal((5, 3, 2)), "loc": rng.standard_normal((5, 3)), "sigma": rng.random((5, 2, 2))}
    symmetry = Symmetry({"w": ("unit", None), "loc": ("unit",)}, sizes={"unit": 3})
    for w, loc, sigma, found in zip(*values.values(), label_free.sums(symmetry, values), strict=True):
        units = np.column_stack([w, loc])
        apart = np.mean([np.linalg.norm(a - b) for a, b in itertools.product(units, repeat=2)])
        np.testing.assert_allclose(found, [*sigma.ravel(), *units.mean(0), *(units**2).mean(0), apart], atol=1e-7)


# ---- numbers, and their slow twins -------------------------------------------------------------------------------


def slow_energy(between, first):
    """Mean over pairs of different blocks, one pair at a time."""

    def mean(left, right):
        return np.mean([between[i, j] for i, j in itertools.product(left, right) if i != j])

    a, b = np.flatnonzero(first), np.flatnonzero(~first)
    return 2.0 * mean(a, b) - mean(a, a) - mean(b, b)


@pytest.mark.parametrize(("persistence", "low", "high"), [(0.9, 12.0, 30.0), (0.0, 1.0, 1.6), (-0.9, 1.0, 1.0)])
def test_autocorrelation_times_are_those_of_an_autoregression_and_at_least_one(rng, persistence, low, high):
    noise, chains = rng.normal(size=(1000, 4)), np.zeros((1000, 4))
    for t in range(1, 1000):
        chains[t] = persistence * chains[t - 1] + noise[t]
    # (1 + persistence) / (1 - persistence) is 19, one, and a twentieth
    values = chains.T.reshape(-1, 1)
    assert low <= energies.longest_autocorrelation_time(values, [1000] * 4) <= high


def test_chains_too_short_or_still_have_the_shortest_and_the_longest_autocorrelation_time():
    assert energies.longest_autocorrelation_time(np.arange(6.0)[:, None], [3, 3]) == 1.0
    assert energies.longest_autocorrelation_time(np.ones((20, 1)), [10, 10]) == 10.0


def test_energies_are_those_of_pairs(rng):
    x, starts = rng.standard_normal((23, 4)), np.array([0, 3, 4, 9, 11, 15, 20])
    cuts = np.split(x, starts[1:])
    between = energies.distances(x, starts)
    np.testing.assert_allclose(between, [[cdist(p, q).mean() for q in cuts] for p in cuts], rtol=1e-6, atol=1e-6)
    first = energies.exchanges(rng, 3, 4, 10)
    assert first.sum(1).tolist() == [3] * 11
    assert first[0].tolist() == [True] * 3 + [False] * 4
    np.testing.assert_allclose(energies.energies(between, first), [slow_energy(between, row) for row in first])


def test_the_least_p_is_ranked_among_the_least(rng):
    statistics = rng.standard_normal((3, 40)).round(1)
    ranks = np.array([[np.mean(row >= value) for value in row] for row in statistics])
    least = ranks.min(0)
    assert energies.least(statistics) == pytest.approx(np.mean(least <= least[0]))
    np.testing.assert_allclose(energies.ranks(statistics[0]), ranks[0])
    # what is a tie is measured by the statistics themselves: another unit of draws changes no p-value
    np.testing.assert_array_equal(energies.ranks(1e-12 * statistics[0]), energies.ranks(statistics[0]))
    # rounding makes none rarer
    tied = np.array([1.0 + 1e-13, 1.0, -0.5])
    assert energies.ranks(tied)[0] == energies._of_largest([tied[:, None]])[0] == 2 / 3


def test_moments_are_those_of_draws(rng):
    x, starts = rng.standard_normal((40, 3)) * [1.0, 2.0, 0.0], np.arange(0, 40, 5)
    first = energies.exchanges(rng, 4, 4, 30)
    found = energies.moment_differences(x, starts, first)
    of_draws = np.repeat(first, 5, axis=1)
    with np.errstate(invalid="ignore"):
        pairs = [(x[row], x[~row]) for row in of_draws]
        shift = np.array([(a.mean(0) - b.mean(0)) / np.sqrt((a.var(0) + b.var(0)) / 2.0) for a, b in pairs])
        ratio = np.array([np.log(a.std(0) / b.std(0)) for a, b in pairs])
    for own, p, slow in ((found.shift, found.p_shift, shift), (found.log_ratio, found.p_log_ratio, ratio)):
        slow = np.nan_to_num(slow)
        np.testing.assert_allclose(own, slow[0])
        scaled = np.abs(slow[:, :2]) / slow[1:, :2].std(0)
        np.testing.assert_allclose(p[:2], [np.mean(scaled.max(1) >= value * (1 - 1e-9)) for value in scaled[0]])
        assert p[2] == 1.0


@pytest.mark.parametrize(
    ("lengths", "time", "effective"), [((250, 250), 19.0, 4.0), ((100, 37), 3.3, 2.0), ((9,), None, 1.0)]
)
def test_blocks_hold_every_part_of_every_chain(lengths, time, effective):
    found = energies.exchangeable_blocks(lengths, time, effective)
    cuts, ends = np.split(found.draws, found.starts[1:]), np.cumsum(lengths)
    assert all(
        len(cut) and np.searchsorted(ends, cut[0], "right") == np.searchsorted(ends, cut[-1], "right") for cut in cuts
    )
    assert (np.diff(found.draws) > 0).all()
    expected = sum(max(1, int(length // np.ceil(effective * (time or 1.0)))) for length in lengths)
    assert found.number == expected
    # draws half an autocorrelation time apart
    assert all((np.diff(cut) == max(1, int((time or 1.0) / 2.0))).all() for cut in cuts)


@pytest.mark.parametrize(("num_chains", "most"), [(900, 900), (1999, 1999), (5000, 1000), (20_000, 1000)])
def test_of_very_many_chains_some_are_compared(num_chains, most):
    found = energies.exchangeable_blocks((3,) * num_chains, 1.0, 2.0)
    assert found.number == len(found.draws) == most
    assert not (found.draws % 3).any()


def test_blocks_hold_equally_many_effective_draws():
    assert energies.block_length([None, None], [(100,), (90,)]) == 1.0
    assert energies.block_length([10.0, None], [(100,), (90,)]) == 4.0
    assert energies.block_length([10.0, 50.0], [(100, 100), (100, 90)]) == pytest.approx(1.8)
    # chains half as long as the longest count, shorter ones do not; half of an effective draw is the least
    assert energies.block_length([20.0], [(100, 50, 49)]) == 2.5
    assert energies.block_length([1000.0], [(100,)]) == 0.5


def test_a_slow_number_is_seen_through_labels(rng):
    slow = autoregressive(rng, 0.95, 4, 400, 1)
    loc = np.array([-4.0, 0.0, 4.0]) + rng.standard_normal((4, 400, 3)) + slow
    found = compare({"loc": rng.permuted(loc, axis=-1)}, switched(rng, 4, 100), LOC, num_exchanges=19)
    assert found.a.time > 15.0 > 3.0 > found.b.time


def test_invariants_hold_what_has_no_labels_and_nothing_that_labels_change(rng):
    loc, sigma = rng.standard_normal((2, 60, 3)) * [[[1.0]], [[2.0]]]
    plain = LOC.bind({"loc": loc}, num_leading_dims=1)
    found, relabelled = (
        pooled._invariants(pooled.pooled_draws({"loc": x, "sigma": sigma[:, :1]}, plain))
        for x in (loc, rng.permuted(loc, axis=1))
    )
    np.testing.assert_allclose(relabelled, found, rtol=1e-6, atol=1e-9)
    correlations = np.corrcoef(np.hstack([found, sigma[:, :1]]).T)[-1, :-1]
    assert correlations.max() > 0.9


def test_standardising_is_odd_monotone_and_blind_to_labels(rng):
    x = rng.standard_cauchy((50, 3))
    plain = Symmetry({"w": ("unit",)}, sizes={"unit": 3})
    signed = Symmetry({"w": ("unit",)}, kinds={"unit": "signed"}, sizes={"unit": 3})
    found = label_free.standardised(plain, {"w": x, "still": np.ones((50, 2))})
    assert (found["w"].ravel()[x.ravel().argsort()][1:] >= found["w"].ravel()[x.ravel().argsort()][:-1]).all()
    assert np.abs(found["w"].mean()) < 1e-12
    assert not found["still"].any()
    np.testing.assert_allclose(
        label_free.standardised(signed, {"w": -x})["w"], -label_free.standardised(signed, {"w": x})["w"]
    )
    np.testing.assert_allclose(label_free.standardised(plain, {"w": 1e6 * x + 3.0})["w"], found["w"], atol=1e-6)


# ---- verdicts ----------------------------------------------------------------------------------------------------


def test_it_says_what_differs(rng):
    found = compare(
        switched(rng, 300), switched(rng, 300, wider=2.0), LOC, names=("NUTS", "guide"), independent=("NUTS", "guide")
    )
    assert found.verdict == "differ"
    assert found.effect > 5.0 * found.floor
    # the sides as they are differ more than under any exchange, by each distance
    assert set(found.p_by_distance.values()) == {1.0 / (1 + 999)} == {found.p_value}
    assert found.table.entry[0] == (2,)
    assert found.table.slot[0] == "component 2"
    assert np.exp(found.table.log_ratio[0]) == pytest.approx(0.5, abs=0.12)
    assert (found.table.p_log_ratio[1:] > 0.05).all()
    assert str(found).startswith("NUTS and guide differ, labels apart: effect 0.")
    assert "\nSpreads of 1 of 3 entries differ (NUTS / guide): loc[2] 0." in str(found)
    below = found._replace(smallest_effect=0.9)
    assert "below 0.9" in str(below)
    assert "within their noise" not in str(found)
    slight = found._replace(effect=0.5 * found.floor, p_by_distance={"sorted projections": 0.5, "another": 0.004})
    assert "is within their noise: the difference is seen by another (p = 0.004)." in str(slight)


def test_entries_that_do_not_differ_by_themselves_may_do_so_together(rng):
    common = rng.standard_normal((600, 1))
    apart, together = rng.standard_normal((2, 600, 2))
    together = np.sqrt(0.9) * common + np.sqrt(0.1) * together
    still = Symmetry({"loc": ("component",), "w": (None,)})
    loc = rng.standard_normal((2, 600, 3))
    found = compare(
        {"loc": loc[0], "w": apart}, {"loc": loc[1], "w": together}, still, independent=("a", "b"), num_exchanges=199
    )
    assert found.verdict == "differ"
    assert "No single entry stands out: they differ in how entries vary together, or in many by a little." in str(found)


def test_agreement_is_no_more_than_no_difference_found(rng):
    found = compare(switched(rng, 4, 100), switched(rng, 4, 100), LOC)
    assert found.verdict == "no difference found"
    assert found.effect < found.floor
    assert str(found).startswith("No difference found between a and b, labels apart")
    coarse = compare(switched(rng, 4, 100), switched(rng, 4, 100), LOC, smallest_effect=1e-5)
    assert coarse.verdict == "not enough draws to tell"
    assert "which you said matters" in str(coarse)


def test_chains_that_forget_slowly_are_refused(rng):
    loc = np.array([-4.0, 0.0, 4.0]) + autoregressive(rng, 0.99, 1, 300, 3)
    found = compare({"loc": loc}, switched(rng, 300), LOC, independent=("b",))
    assert found.verdict == "not enough draws to tell"
    assert np.isnan([found.p_value, found.effect, found.floor]).all()
    assert "the 300 draws of 1 chain of a are worth about" in str(found)
    assert found.table.empty
    with pytest.raises(SymmetryError, match="not enough draws"):
        plot_comparison(found)


def test_sites_beside_the_labels_count(rng):
    a, b = switched(rng, 200), switched(rng, 200)
    beside = [{"sigma": rng.standard_normal(200) + shift, "z": rng.integers(0, 3, (200, 9))} for shift in (0.0, 1.0)]
    found = compare(a | beside[0], b | beside[1] | {"extra": np.ones((200, 2))}, LOC, independent=BOTH)
    assert found.verdict == "differ"
    assert found.table.site[0] == "sigma"
    assert found.left_out == ("extra", "z")
    assert "Not compared: extra, z" in str(found)
    assert compare(a | beside[0], b | beside[1], LOC, independent=BOTH, sites=()).verdict == "no difference found"


def test_pairs_are_adjusted_for_their_number(rng):
    runs = {"one": switched(rng, 100), "two": switched(rng, 100), "far": switched(rng, 100, shift=-3.0)}
    found = compare_pairs(runs, LOC, independent=tuple(runs), progress_bar=False)
    table = found.table.set_index(["a", "b"])
    assert table.verdict.tolist() == ["no difference found", "differ", "differ"]
    np.testing.assert_allclose(table.p_adjusted[1:], [0.003, 0.003])
    first, head, *rows, last = str(found).splitlines()
    assert first.startswith("2 of 3 pairs differ")
    assert (len(rows), head.split()[-1], last.split()[0]) == (3, "p_adjusted", "Verdicts")
    assert all(re.fullmatch(r"-?\d\.\d{4}", number) for row in rows for number in row.split()[-4:])
    p = [0.01, np.nan, 0.04, 0.03]
    other = Comparisons(tuple(found.pairs[0]._replace(p_value=one) for one in p))
    np.testing.assert_allclose(other.table.p_adjusted, [0.03, np.nan, 0.06, 0.06])


def test_the_plot_names_what_differs(rng):
    found = compare(switched(rng, 200), switched(rng, 200, shift=-2.0), LOC, independent=BOTH)
    ax = plt.figure().add_subplot()
    assert plot_comparison(found, ax=ax) is ax
    assert [text.get_text() for text in ax.texts] == ["loc[0]"]
    entries = np.stack([found.table["shift"], np.exp(found.table["log_ratio"])], 1)
    np.testing.assert_allclose(ax.texts[0].xy, entries[0])
    assert ax.get_title() == f"differ: effect {found.effect:.3f}, noise floor {found.floor:.3f}"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("difference of means (a − b, in sd)", "ratio of spreads (a / b)")
    # what differs is filled, and the rest is not
    filled, hollow = ax.collections[:2]
    np.testing.assert_allclose(filled.get_offsets(), entries[:1])
    np.testing.assert_allclose(hollow.get_offsets(), entries[1:])
    assert (len(filled.get_facecolors()), len(hollow.get_facecolors())) == (1, 0)
    # no difference is in the middle, and every entry within
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    assert ax.get_yscale() == "log"
    assert (left, low) == pytest.approx((-right, 1.0 / high))
    assert (np.abs(entries[:, 0]) < right).all()
    assert (np.abs(np.log(entries[:, 1])) < np.log(high)).all()
    assert all(low <= tick <= high for tick in ax.get_yticks())
    with pytest.raises(TypeError, match="what compare returned"):
        plot_comparison("found")


def test_names_in_the_plot_cover_no_point_and_no_other_name(rng):
    # nine entries that differ, in a heap at the plot's right and one at its left
    loc = 10.0 * np.arange(9) + rng.standard_normal((2, 300, 9))
    found = compare({"loc": loc[0] + np.repeat([2.0, -2.0], [5, 4])}, {"loc": loc[1]}, LOC, independent=BOTH)
    ax = plot_comparison(found)
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) >= 4
    points = ax.transData.transform(np.stack([found.table["shift"], np.exp(found.table["log_ratio"])], 1))
    for k, box in enumerate(boxes):
        assert not box.count_contains(points)
        assert not box.count_overlaps(boxes[:k])
        assert box.x1 < ax.bbox.x1


# ---- containers --------------------------------------------------------------------------------------------------


def test_chains_in_lists_of_one_length_are_those_of_an_array(rng):
    draws = switched(rng, 4, 60)
    found = [
        compare(given, switched(np.random.default_rng(1), 4, 60), LOC, num_exchanges=19)
        for given in (draws, {"loc": list(draws["loc"])})
    ]
    assert str(found[0]) == str(found[1])


def test_chains_of_unequal_length_are_all_used(rng):
    chains = [switched(rng, draws)["loc"] for draws in (120, 80, 200)]
    found = compare({"loc": chains}, switched(rng, 4, 100), LOC, num_exchanges=19)
    assert (found.a.num_draws, found.a.num_chains) == (400, 3)
    ragged = {"loc": chains, "sigma": chains[:2]}
    with pytest.raises(SymmetryError, match=r"'loc' have \(120, 80, 200\) draws, those of site 'sigma' \(120, 80\)"):
        compare(ragged, switched(rng, 100), LOC)


def test_containers_hold_the_same_draws(rng):
    a, b = switched(rng, 2, 60), switched(rng, 2, 60)
    of_arrays = compare(a, b, LOC, num_exchanges=19)
    dataset = xr.Dataset({"loc": (("chain", "draw", "component"), a["loc"])})
    named = compare(dataset, b, LOC, num_exchanges=19)
    assert named.p_value == of_arrays.p_value
    assert named.contributions["loc"].dims == ("quantity", "component")
    # a name that counts something else in the result
    other = compare(dataset.rename(component="quantity"), b, LOC, num_exchanges=19).contributions["loc"]
    assert other.dims == ("quantity", "loc_dim_0")
    np.testing.assert_array_equal(other, named.contributions["loc"])
    assert compare(rebase(a, LOC, null=False), b, LOC, num_exchanges=19).p_value == of_arrays.p_value


def test_members_and_pytrees_are_read(rng):
    symmetry = Symmetry({"layer.w": (None, "unit"), "out.w": ("unit", None)})

    def net():
        return {"layer": {"w": rng.standard_normal((2, 3))}, "out": {"w": rng.standard_normal((3, 1))}}

    members = [net() for _ in range(30)]
    draws = jax.tree.map(lambda *x: jnp.stack(x), *[net() for _ in range(40)])
    found = compare(members, draws, symmetry, num_exchanges=19, num_leading_dims=1)
    assert (found.a.independent, found.b.independent) == (True, False)
    assert set(found.contributions.data_vars) == {"layer.w", "out.w"}
    # the number of leading dimensions of a chain says nothing of members
    chains = jax.tree.map(lambda x: x.reshape(2, 20, *x.shape[1:]), draws)
    found = compare(members, chains, symmetry, num_exchanges=19, num_leading_dims=2)
    assert (found.a.num_draws, found.b.num_chains) == (30, 2)


def model():
    numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    numpyro.sample("sigma", dist.LogNormal(0.0, 1.0))


def test_a_guide_is_drawn_from(rng):
    guide = AutoNormal(model)
    params = {"loc_auto_loc": jnp.array([-4.0, 0.0, 4.0]), "loc_auto_scale": jnp.ones(3)}
    params |= {"sigma_auto_loc": jnp.zeros(()), "sigma_auto_scale": jnp.ones(())}
    numpyro.handlers.seed(guide, 0)()
    draws = switched(rng, 300) | {"sigma": np.exp(rng.standard_normal(300))}
    found = compare(draws, (guide, params), LOC, independent=("a",), num_draws=300)
    assert found.b.independent
    assert found.b.num_draws == 300
    assert found.verdict == "no difference found"
    with pytest.raises(TypeError, match=r"with its parameters, \(guide, params\)"):
        compare(draws, guide, LOC)

    def with_data(y=None):
        numpyro.sample("loc", dist.Normal().expand([3]).to_event(1))
        numpyro.sample("count", dist.Poisson(3.0), obs=y)

    new = AutoNormal(with_data)
    with pytest.raises(SymmetryError, match=r"AutoNormal is not set up, .* model_args=\(x, y\)"):
        compare(draws, (new, params), LOC)
    assert (
        compare(draws, (new, params), LOC, independent=("a",), num_draws=300, model_args=(3,)).verdict == found.verdict
    )


@pytest.mark.parametrize("unit", [1e-200, 1e300])
def test_units_of_measure_do_not_count(unit, rng):
    a, b = switched(rng, 40), switched(rng, 30)
    options = {"independent": BOTH, "num_exchanges": 19}
    plain = compare(a, b, LOC, **options)
    other = compare({"loc": unit * a["loc"]}, {"loc": unit * b["loc"]} | {"empty": np.zeros((30, 0))}, LOC, **options)
    assert other.effect == pytest.approx(plain.effect, rel=1e-6)
    np.testing.assert_allclose(other.table.sd_a, unit * plain.table.sd_a, rtol=1e-6)


# ---- bad input ---------------------------------------------------------------------------------------------------


def with_nan(values):
    values["loc"][3, 1] = np.nan
    return values


BAD = {
    "another size": (
        lambda rng: {"loc": rng.standard_normal((50, 4))},
        r"'component' has 3 labels in 'a' and 4 in 'b'",
    ),
    "another site": (
        lambda rng: {"mu": rng.standard_normal((50, 3))},
        r"Posterior 'b': sites \['loc'\] of the symmetry",
    ),
    "one draw": (lambda rng: switched(rng, 1), "Posterior 'b': there is 1 draw"),
    "not a number": (lambda rng: with_nan(switched(rng, 50)), "Posterior 'b': Site 'loc' is not finite in 1 of 50"),
    "an array": (lambda rng: rng.standard_normal((50, 3)), "Posterior 'b': .*an array of shape"),
    "nothing": (lambda rng: {}, "Posterior 'b'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_draws_are_refused_by_name(name, rng):
    make, message = BAD[name]
    with pytest.raises(SymmetryError, match=message):
        compare(switched(rng, 50), make(rng), Symmetry({"loc": ("component",)}))


def test_another_shape_beside_is_refused(rng):
    a, b = (switched(rng, 50) | {"f": rng.standard_normal((50, number))} for number in (4, 5))
    with pytest.raises(SymmetryError, match=r"'f' has shape \(4,\) in a draw of 'a' and \(5,\) in one of 'b'"):
        compare(a, b, LOC)


def test_constant_draws_are_refused_and_constant_sites_are_not(rng):
    still = {"loc": np.tile([1.0, 2.0, 3.0], (50, 1))}
    with pytest.raises(SymmetryError, match="Nothing varies"):
        compare(still, {"loc": still["loc"][:, ::-1]}, LOC)
    a, b = (switched(rng, 100) | {"sigma": np.ones(100)} for _ in range(2))
    found = compare(a, b, LOC, independent=BOTH)
    assert found.verdict == "no difference found"
    assert found.table.set_index("site").loc["sigma", "p_shift"] == 1.0
    fixed = compare(a, b | {"sigma": np.full(100, 2.0)}, LOC, independent=BOTH)
    assert fixed.verdict == "differ"
    stuck = compare(still, switched(rng, 100), LOC)
    assert stuck.verdict == "not enough draws to tell"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"names": ("a", "a")}, ValueError, "two different names"),
        ({"names": "ab"}, TypeError, "names must be"),
        ({"level": 1.5}, ValueError, "level must be a probability"),
        ({"smallest_effect": -1}, ValueError, "smallest_effect must be"),
        ({"num_exchanges": 3}, ValueError, "num_exchanges"),
        ({"independent": ("NUTS",)}, ValueError, r"called \['a', 'b'\]"),
        ({"independent": "a"}, TypeError, "independent must be"),
        ({"sites": ("sigma",)}, SymmetryError, r"\['sigma'\]: expected sites that both"),
        ({"rng_key": 0}, TypeError, "rng_key must be"),
        ({"model_args": jnp.ones(3)}, TypeError, "model_args must be"),
    ],
)
def test_bad_options_are_refused(options, error, message, rng):
    with pytest.raises(error, match=message):
        compare(switched(rng, 30), switched(rng, 30), LOC, **options)


def test_other_bad_arguments_are_refused(rng):
    draws = switched(rng, 30)
    with pytest.raises(TypeError, match="symmetry must be a Symmetry"):
        compare(draws, draws, "mixture")
    with pytest.raises(SymmetryError, match="trivial"):
        compare(draws, draws, Symmetry({}))
    with pytest.raises(TypeError, match=r"no options \['nonsense'\]"):
        compare_pairs({"a": draws, "b": draws}, LOC, nonsense=1)
    with pytest.raises(ValueError, match="two names or more"):
        compare_pairs({"a": draws}, LOC)


def test_sides_say_what_they_hold():
    assert str(Drawn("a", 400, 4, 10.0, False, 8)) == "a: 400 draws of 4 chains, 40 effective, 8 blocks"
    assert str(Drawn("b", 400, 1, 1.0, True, 400)) == "b: 400 draws, independent"


# ---- words, of comparisons by hand -----------------------------------------------------------------------------------


def test_a_site_that_is_constant_on_both_sides_is_said_to_be_so():
    rng = np.random.default_rng(0)
    sides = [
        {"loc": [-3.0, 0.0, 3.0] + rng.standard_normal((400, 3)), "sigma": np.full(400, sigma)} for sigma in (0.1, 0.3)
    ]
    found = compare(*sides, Symmetry.mixture("loc"), sites=["sigma"], independent=("a", "b"), progress_bar=False)
    assert found.verdict == "differ"
    sigma = found.table.set_index("site").loc["sigma"]
    assert (sigma.log_ratio, sigma.p_log_ratio) == (0.0, 1.0)
    assert "\nMeans of 1 of 4 entries differ (a − b, in sd): sigma, 0.1 throughout a and 0.3 throughout b.\n" in str(
        found
    )
    assert "Spreads" not in str(found)


def differing(**fields):
    """Of three locations and a scale, of which two means and one spread differ at 5 %, and one mean at just that."""
    loc = [[0.0] * 3] * 4 + [[0.1, -0.9, 0.5], [0.0, np.log(2.0), 0.0], [0.5, 0.01, 0.05], [1.0, 0.03, 1.0]]
    scale = [1.0] * 4 + [2.0, -0.1, 0.01, 1.0]
    coords = {"loc slot": ("k", [0, 1, 2]), "scale slot": ((), "")}
    entries = xr.Dataset({"loc": (("quantity", "k"), loc), "scale": ("quantity", scale)}, coords)
    sides = {side: Drawn(side, 4000, 4, 10.0, False, 8) for side in "ab"}
    known = {"p_value": 0.05, "p_by_distance": {"sorted": 0.2, "aligned": 0.02}, "effect": 0.3, "floor": 0.1}
    known |= {"contributions": entries, "level": 0.05, "smallest_effect": None, "left_out": ()}
    return Comparison(**(sides | known | fields))


HOW_MUCH = "effect 0.3000, noise floor 0.1000, p = 0.05."
DRAWN = "a: 4000 draws of 4 chains, 400 effective, 8 blocks; b: 4000 draws of 4 chains, 400 effective, 8 blocks."
WHAT = [
    "Means of 3 of 4 entries differ (a − b, in sd): scale by +2.00; loc[1] by -0.90; loc[2] by +0.50.",
    "Spreads of 1 of 4 entries differ (a / b): loc[1] 2.00.",
]
FEW = Drawn("b", 2990, 1, 10.0, False, 3)
NONE = "No difference found between a and b, labels apart: effect 0.3000, noise floor 0.1000, p = 0.051."


@pytest.mark.parametrize(
    ("found", "verdict", "said"),
    [
        (differing(), "differ", [f"a and b differ, labels apart: {HOW_MUCH}", *WHAT, DRAWN]),
        # an effect within the noise was seen by another distance, and may be too small to matter
        (
            differing(floor=0.3, smallest_effect=0.31, left_out=("x", "y")),
            "differ",
            [
                "a and b differ, labels apart: effect 0.3000, noise floor 0.3000, p = 0.05.",
                *WHAT,
                "The effect, of sorted projections, is within their noise: the difference is seen by aligned (p = 0.02",
                "The effect is below 0.31, which you said matters.",
                DRAWN,
                "Not compared: x, y.",
            ],
        ),
        (differing(smallest_effect=0.3), "differ", [f"a and b differ, labels apart: {HOW_MUCH}", *WHAT, DRAWN]),
        (
            differing(level=0.005, p_value=0.001),
            "differ",
            [
                "a and b differ, labels apart: effect 0.3000, noise floor 0.1000, p = 0.001.",
                "No single entry stands out: they differ in how entries vary together, or in many by a little.",
                DRAWN,
            ],
        ),
        (differing(p_value=0.051), "no difference found", [NONE, DRAWN]),
        (differing(p_value=0.051, smallest_effect=0.1), "no difference found", [NONE, DRAWN]),
        (
            differing(p_value=0.051, smallest_effect=0.09),
            "not enough draws to tell",
            [
                "Not enough draws to tell whether a and b differ by 0.09, which you said matters: effect 0.3000, noise "
                "floor 0.1000, p = 0.051.",
                DRAWN,
            ],
        ),
        (differing(p_value=0.051, b=FEW._replace(num_draws=3000)), "no difference found", [NONE, "a: 4000"]),
        (
            differing(p_value=0.051, b=FEW),
            "no difference found",
            [NONE, "So few effective draws would show a shift or another spread, and hardly another", "a: 4000"],
        ),
        (
            differing(p_value=np.nan, b=FEW),
            "not enough draws to tell",
            [
                "Not enough draws to tell whether a and b differ: the 2990 draws of 1 chain of b are worth about 299",
                "a: 4000 draws of 4 chains, 400 effective, 8 blocks; b: 2990 draws of 1 chain, 299 effective, 3 blocks",
            ],
        ),
    ],
)
def test_a_comparison_says_whether_how_much_and_in_what(found, verdict, said):
    assert found.verdict == verdict
    for line, words in zip(str(found).splitlines(), said, strict=True):
        assert line.startswith(words)


def test_entries_that_differ_most_surely_come_first():
    table = differing().table
    assert list(zip(table.site, table.entry, table.slot, strict=True)) == [
        ("scale", (), ""),
        ("loc", (1,), "1"),
        ("loc", (2,), "2"),
        ("loc", (0,), "0"),
    ]
    assert table.mean_a.tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("p_values", "adjusted", "first"),
    [
        # Holm's: each by how many are not smaller, and none below the one before
        ([0.04, 0.01, 0.03], [0.06, 0.03, 0.06], "1 of 3 pairs differ, labels apart."),
        ([0.04, 0.01, np.nan], [0.04, 0.02, np.nan], "2 of 3 pairs differ, labels apart; of 1 there are not enough"),
        ([0.6, 0.7, 0.02], [1.0, 1.0, 0.06], "0 of 3 pairs differ, labels apart."),
    ],
)
def test_of_several_pairs_each_is_judged_by_its_adjusted_p(p_values, adjusted, first):
    found = Comparisons(tuple(differing(p_value=p) for p in p_values))
    np.testing.assert_allclose(found.table.p_adjusted, adjusted)
    assert (found.table.verdict == "differ").tolist() == [p <= 0.05 for p in adjusted]
    lines = str(found).splitlines()
    assert lines[0].startswith(first)
    assert lines[-1] == f"Verdicts are by p_adjusted, Holm's for {np.isfinite(p_values).sum()} comparisons."
