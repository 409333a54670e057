"""Statistics of chains agree with ArviZ, know infinite and constant values, and know what chance does."""

import math
from types import SimpleNamespace

import arviz as az
import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from dask.callbacks import Callback
from scipy import stats

from numpyro_symmetry.assignment import entries
from numpyro_symmetry.diagnostics.chains import (
    as_sampled,
    both_scores,
    chains_of,
    chance,
    effective_size,
    longest_run,
    normal_scores,
    r_hat,
    tail_size,
)
from numpyro_symmetry.diagnostics.report import _stays
from numpyro_symmetry.traces.mixing import autocovariance, blocks_of, evenly, integrated, memory
from tests.support.traces import autoregressive


def dataset(values):
    return xr.Dataset({"x": (("chain", "draw", "entry"), values)})


@pytest.mark.parametrize("shape", [(4, 250, 6), (2, 1000, 3), (3, 10, 4)])
@pytest.mark.parametrize("correlation", [0.0, 0.9, -0.5])
def test_statistics_are_those_of_arviz(shape, correlation):
    values = autoregressive(np.random.default_rng(0), shape, correlation)
    values[0] *= 1.3
    found = chains_of(values)
    expected = az.rhat(dataset(values))["x"].values
    assert found.r_hat == pytest.approx(expected.max(), rel=1e-12)
    if shape[1] > 10:
        sizes = effective_size(normal_scores(values))
        np.testing.assert_allclose(sizes, az.ess(dataset(values))["x"].values, rtol=1e-9)
    assert found.ess == pytest.approx(effective_size(normal_scores(values)).min(), rel=1e-12)
    assert found.tail_ess == pytest.approx(tail_size(values).min(), rel=1e-12)


@pytest.mark.skipif(int(az.__version__.split(".")[0]) > 0, reason="later ArviZ takes other indicators")
def test_tails_are_those_of_arviz():
    values = autoregressive(np.random.default_rng(1), (4, 200, 5), 0.5)
    expected = az.ess(dataset(values), method="tail")["x"].values
    np.testing.assert_allclose(tail_size(values), expected, rtol=1e-9)


def test_of_an_odd_number_of_draws_the_middle_one_is_left_out():
    values = autoregressive(np.random.default_rng(0), (3, 51, 4), 0.5)
    found = chains_of(values)
    assert found.r_hat == pytest.approx(az.rhat(dataset(values))["x"].values.max(), rel=1e-12)
    assert found == chains_of(np.delete(values, 25, axis=1))


def test_chance_is_an_analysis_of_variance_of_block_means():
    values = np.random.default_rng(0).standard_normal((4, 200, 3))
    # eight halves of ten blocks of ten draws
    ratio = stats.f_oneway(*values.reshape(8, 10, 10, 3).mean(2), axis=0).statistic
    overlap = memory(values).overlap
    # squares between halves and within them as they are expected where means vary as `Memory` says
    of_half, of_block = ((1.0 - overlap / n) / n for n in (100, 10))
    expected = stats.f.sf(ratio * (of_block - of_half) / (9 * of_half), 7, 72)
    np.testing.assert_allclose(chance(values), expected, rtol=1e-9)


def test_chains_of_one_value_do_not_differ():
    values = autoregressive(np.random.default_rng(0), (4, 200, 2), 0.5) * [0.0, 1.0]
    assert chance(values)[0] == 1.0
    assert 0.0 < chance(values)[1] < 1.0


def test_what_is_constant_when_folded_has_no_r_hat_of_its_own():
    values = np.random.default_rng(0).permuted(np.tile([1.0, -1.0], (4, 50)), axis=1)[..., None]
    found = chains_of(values)
    assert found.r_hat == pytest.approx(r_hat(normal_scores(values))[0])
    assert found.r_hat < 1.01


def test_a_different_spread_is_seen_by_folding_alone():
    values = np.random.default_rng(0).standard_normal((4, 1000, 1))
    values[0] *= 3.0
    assert r_hat(normal_scores(values))[0] < 1.01
    found = chains_of(values)
    assert found.r_hat > 1.05
    assert found.chance < 1e-10


def test_constants_infinite_values_and_values_that_are_not_numbers_are_told_apart():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4, 100, 5))
    values[..., 0] = 3.0
    values[..., 1] = np.arange(4.0)[:, None]
    values[1, :10, 2] = np.nan
    values[3, :, 3] = -np.inf
    found = chains_of(values)
    assert (found.num_judged, found.num_still, found.num_undefined) == (3, 1, 1)
    assert found.num_not_a_number == (0, 10, 0, 0)
    assert found.num_infinite == (0, 0, 0, 100)
    assert found.r_hat == np.inf
    assert found.chance < 1e-20
    # an infinite value is the last in rank and no more
    one = chains_of(values[..., 3:4])
    finite = np.where(np.isinf(values), -1e9, values)
    other = chains_of(finite[..., 3:4])
    np.testing.assert_array_equal(one[:5], other[:5])
    assert 1.3 < one.r_hat < np.inf
    # and is that of rounding errors where nothing moves
    assert chains_of(0.1 * np.ones((4, 100, 1)) + 0.2).num_still == 1
    few = chains_of(values[:, :3])
    assert np.isnan([few.r_hat, few.ess, few.chance]).all()
    assert few.num_undefined == 1
    assert few.num_apart == chains_of(values[:1]).num_apart == 0


@pytest.mark.parametrize("draw", [0, 24, 25, 26, 50])
def test_what_is_not_a_number_is_seen_in_whichever_draw(draw):
    """Of an odd number of draws the middle one is in neither half, and is looked at all the same."""
    values = np.random.default_rng(0).standard_normal((4, 51, 2))
    values[1, draw, 1] = np.nan
    found = chains_of(values)
    assert (found.num_judged, found.num_undefined, found.num_not_a_number) == (1, 1, (0, 1, 0, 0))


def test_entries_in_chunks_are_those_of_one(monkeypatch):
    values = autoregressive(np.random.default_rng(0), (4, 51, 7), 0.5)
    values[2, 3, 4] = np.nan
    # one draw with infinite values in two chunks
    values[1, 2, [0, 5]] = np.inf
    whole = chains_of(values)
    assert whole.num_infinite == (0, 1, 0, 0)
    monkeypatch.setattr("numpyro_symmetry.chunks.CHUNK", 4 * 51 * 2)
    parts = chains_of(values)
    np.testing.assert_allclose(parts[:5], whole[:5], rtol=1e-12)
    assert parts[5:] == whole[5:]


@pytest.fixture
def stored(monkeypatch):
    """Draws that Dask reads in chunks of several sizes, and of which thirty lots of entries are looked at."""
    values = autoregressive(np.random.default_rng(0), (4, 50, 31), 0.5).astype(np.float32)
    monkeypatch.setattr("numpyro_symmetry.chunks.CHUNK", 4 * 50)
    return values, da.from_array(values, chunks=(1, (20, 7, 23), 31))


@pytest.mark.parametrize("room", [True, False])
def test_stored_entries_are_cut_apart_once_and_nothing_is_left(stored, room, tmp_path, monkeypatch):
    values, array = stored
    reads = []
    watched = array.map_blocks(lambda block: reads.append(1) or block, dtype=array.dtype, meta=np.empty((0, 0, 0)))
    if not room:
        monkeypatch.setattr(entries, "disk_usage", lambda path: SimpleNamespace(free=0))
    with dask.config.set({"scheduler": "synchronous", "temporary_directory": str(tmp_path)}):
        assert chains_of(watched) == chains_of(values)
    assert not list(tmp_path.iterdir())
    assert len(reads) == 12 * (1 if room else 4)


def test_what_is_cut_goes_away_whatever_ends_it(stored, tmp_path):
    values, array = stored

    def interrupted():
        with entries.by_last_axis(array, 8) as cut:
            assert cut.chunks[2] == (8, 8, 8, 7)
            assert list(tmp_path.iterdir())
            np.testing.assert_array_equal(cut[..., 5:20].compute(), values[..., 5:20])
            raise KeyboardInterrupt

    with dask.config.set({"temporary_directory": str(tmp_path)}), pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_tasks_are_as_many_as_chunks_and_not_as_pieces(tmp_path):
    values = np.random.default_rng(0).standard_normal((2, 60, 40))
    tasks = []
    with (
        dask.config.set({"scheduler": "synchronous", "temporary_directory": str(tmp_path)}),
        Callback(pretask=lambda key, *_: tasks.append(key)),
        entries.by_last_axis(da.from_array(values, chunks=(1, (7, 3) * 6, 40)), 2) as cut,
    ):
        np.testing.assert_array_equal(cut.compute(), values)
    # of pieces there are 2 x 9 x 20
    assert len(tasks) < 200


def test_what_is_asked_of_raw_draws_is_that_of_all_statistics(stored):
    values, array = stored
    values[1, 3, 2] = np.nan
    values[:, :, 4] = 1.0
    found = chains_of(values)
    assert as_sampled(values)[:3] == as_sampled(array)[:3] == (found.r_hat, found.ess, found.num_apart)
    np.testing.assert_equal(as_sampled(values), as_sampled(array))
    np.testing.assert_equal(as_sampled(values[:1]), (np.nan, chains_of(values[:1]).ess, 0, np.nan))
    assert np.isnan(as_sampled(values[:, :3])[:2]).all()


def test_chance_of_raw_draws_is_that_of_numbers_above_alone():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4, 400, 30)) + np.linspace(0.0, 0.3, 30) * rng.standard_normal((4, 1, 30))
    above = [one for one in (chains_of(values[..., [k]]) for k in range(30)) if one.r_hat > 1.01]
    found = as_sampled(values)
    assert found.num_apart == len(above)
    assert 3 < len(above) < 27
    np.testing.assert_allclose(found.chance, min(one.chance for one in above), rtol=1e-12)
    # of a slow number above it cannot be told, however sure it is of another
    values[..., 0] = rng.standard_normal((4, 400)).cumsum(1)
    assert np.isnan(as_sampled(values).chance)
    assert not np.isnan(chains_of(values).chance)


def test_scores_of_values_whose_median_is_infinite_are_those_of_a_very_large_one():
    values = np.random.default_rng(0).standard_normal((2, 50, 3))
    infinite, large = (np.where(values > -0.3, above, values) for above in (np.inf, 1e300))
    for found, expected in zip(both_scores(infinite), both_scores(large), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_equal_values_share_their_scores():
    values = np.random.default_rng(0).integers(-2, 3, (4, 25, 3)).astype(float)
    values[..., 2] = np.linspace(-1.0, 1.0, 100).reshape(4, 25)
    for given, found in zip((values, np.abs(values - np.median(values, (0, 1)))), both_scores(values), strict=True):
        rank = stats.rankdata(given.reshape(100, 3), axis=0).reshape(values.shape)
        np.testing.assert_array_equal(found, stats.norm.ppf((rank - 0.375) / 100.25))


@pytest.mark.parametrize(
    ("num_chains", "num_draws", "correlation", "slow"),
    [
        (4, 250, 0.0, 1.0),
        (4, 250, -0.5, 1.0),
        (4, 250, 0.5, 1.0),
        (4, 1000, 0.9, 1.0),
        (4, 1000, 0.95, 0.3),
        (64, 100, 0.5, 1.0),
        (256, 50, 0.0, 1.0),
        (32, 1000, 0.95, 0.3),
    ],
)
def test_chains_that_agree_differ_as_often_as_chance_says(num_chains, num_draws, correlation, slow):
    """However many chains tell how far apart chance puts them, and if only a share of the variance is slow."""
    rng = np.random.default_rng(0)
    shape = (num_chains, num_draws, 1500 if num_chains * num_draws < 10_000 else 300)
    values = np.sqrt(slow) * autoregressive(rng, shape, correlation)
    found = chance(normal_scores(values + np.sqrt(1.0 - slow) * rng.standard_normal(shape)))
    assert not np.isnan(found).any()
    for level in (0.3, 0.05, 0.01):
        error = np.sqrt(level * (1.0 - level) / len(found))
        assert (found < level).mean() < 1.3 * level + 3 * error
    # neither is it shy
    assert (found < 0.3).mean() > 0.15


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_chains_that_differ_are_not_put_down_to_chance(correlation):
    values = autoregressive(np.random.default_rng(0), (4, 1000, 20), correlation)
    values[2] += 1.0
    assert (chance(normal_scores(values)) < 1e-4).all()
    # and so where all of them move on together
    values = autoregressive(np.random.default_rng(0), (4, 1000, 20), correlation)
    values[:, 500:] += 1.0
    known = chance(normal_scores(values))
    assert (np.isnan(known) | (known < 1e-2)).all()


def test_chains_that_hardly_forget_are_not_judged():
    values = autoregressive(np.random.default_rng(0), (4, 200, 10), 0.995)
    assert np.isnan(chance(normal_scores(values))).all()
    assert np.isnan(chains_of(values[:, :6]).chance)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_autocorrelation_times_are_those_of_the_process(correlation):
    values = autoregressive(np.random.default_rng(0), (4, 20_000, 4), correlation)
    expected = (1.0 + correlation) / (1.0 - correlation)
    found = memory(values)
    np.testing.assert_allclose(found.time, expected, rtol=0.15)
    # less precisely, for late lags count most
    np.testing.assert_allclose(found.overlap, 2.0 * correlation / (1.0 - correlation**2), rtol=0.4, atol=0.15)
    # whatever the unit of the draws
    for one, other in zip(memory(1e3 * values), found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    # chains that stand still, each elsewhere, have nothing to remember
    assert memory(np.arange(4.0)[:, None, None] * np.ones((4, 100, 1))) == ([1.0], [0.0])


def test_what_short_chains_remember_is_not_hidden_by_their_own_means():
    values = autoregressive(np.random.default_rng(0), (500, 100, 1), 0.5)
    (time,), (overlap,) = memory(values)
    # a time of 3 and an overlap of 4/3, of which 2.65 and 1.07 are seen about the chains' own means
    assert time == pytest.approx(3.0, abs=0.1)
    assert overlap == pytest.approx(4.0 / 3.0, abs=0.15)


def test_alternating_chains_have_the_least_time_that_their_number_of_draws_allows():
    values = np.tile([1.0, -1.0], (4, 100))[..., None] + 1e-3 * np.random.default_rng(0).standard_normal((4, 200, 1))
    np.testing.assert_allclose(memory(values).time, 1.0 / np.log10(800))


def test_what_chains_remember_is_cut_into_blocks_of_twice_as_much():
    rng = np.random.default_rng(0)

    def cut(values):
        return blocks_of({"x": values.reshape(-1, values.shape[2])}, values.shape[:2])

    independent = cut(rng.standard_normal((4, 100, 3)))
    assert (independent.number, independent.num_draws) == (400, 400)
    slow = cut(autoregressive(rng, (4, 500, 5), 0.9))
    # an autocorrelation time of 19
    assert 4 * 9 <= slow.number <= 4 * 20
    assert slow.num_draws == 4 * slow.number
    # no block spans two chains
    assert (slow.draws // 500 == slow.draws[:, :1] // 500).all()
    for chains in (autoregressive(rng, (4, 500, 5), 0.9999), np.ones((4, 500, 1)) * np.arange(4.0)[:, None, None]):
        assert cut(chains).number <= 8
    assert cut(np.ones((4, 500, 1)) * np.arange(4.0)[:, None, None]).number == 4
    # of blocks longer than half a chain whole chains are left
    moved = cut(0.1 * rng.standard_normal((4, 180, 1)) + (np.arange(180) >= 90)[:, None])
    assert moved.draws.tolist() == [[first, first + 45, first + 90, first + 135] for first in (0, 180, 360, 540)]
    # short chains show what they remember in how they differ
    assert cut(rng.standard_normal((4, 10, 3)) * 0.1 + np.arange(4.0)[:, None, None]).number == 4
    # what stands still hides nothing, be it many entries of a site or a whole one
    values, still = autoregressive(rng, (4, 500, 1), 0.9), np.ones((4, 500, 300))
    covariance = autocovariance(values)
    (time,) = integrated(covariance / covariance[0])
    assert cut(values).number == 4 * (500 // math.ceil(2.0 * time))
    beside = {"x": rng.standard_normal((4, 500, 1)), "y": np.concatenate([still, values, still], 2), "z": still}
    every = blocks_of({site: x.reshape(2000, -1) for site, x in beside.items()}, (4, 500))
    np.testing.assert_array_equal(every.draws, cut(values).draws)
    # a short chain alone shows nothing
    assert cut(autoregressive(rng, (1, 19, 1), 0.99)).number == 19
    values = np.arange(4 * 500 * 2.0).reshape(-1, 2)
    np.testing.assert_array_equal(slow.joined(slow.cut(values)), values[slow.draws.ravel()])


@pytest.mark.parametrize(
    ("leading", "count", "shape"), [((4, 1000), 1000, (4, 250)), ((7,), 5, (1, 5)), ((9, 2), 5, (5, 1))]
)
def test_some_draws_are_evenly_spaced(leading, count, shape):
    draws, found = evenly(leading, count)
    assert found == shape
    assert len(set(draws.tolist())) == len(draws) == shape[0] * shape[1]
    assert draws.max() < np.prod(leading)


def test_the_longest_stay_counts_all_sites():
    moving = np.random.default_rng(0).standard_normal((3, 20, 2))
    still = moving.copy()
    still[1] = still[1, :1]
    still[2, 5:12] = still[2, 5]

    def longest(*sites):
        return longest_run(_stays({str(k): x.reshape(60, 2) for k, x in enumerate(sites)}, (3, 20))).tolist()

    assert longest(still) == [1, 20, 7]
    assert longest(still, moving) == [1, 1, 1]


def test_numbers_that_are_apart_are_counted_and_known_by_their_places():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4, 60, 30000))
    values[0, :, 7] += 1.0
    values[0, :, 29990] += 3.0
    values[..., 3], values[1, 2, 5] = 0.0, np.nan
    found = chains_of(values)
    assert [place for _, place in found.furthest[:2]] == [29990, 7]
    assert [r_hat for r_hat, _ in found.furthest] == sorted((r_hat for r_hat, _ in found.furthest), reverse=True)
    assert found.furthest[0][0] == found.r_hat
    assert found.num_apart > len(found.furthest) == 4
    each = [chains_of(values[..., [k]]).num_apart for k in range(50)]
    assert chains_of(values[..., :50]).num_apart == sum(each)
    assert each[3] == each[5] == 0
