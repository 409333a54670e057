"""Modes up to labels: posteriors whose number of modes is known, chains stuck in theirs, slow chains."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import xarray as xr
from scipy import stats

from numpyro_symmetry import Symmetry, SymmetryError, rebase
from numpyro_symmetry.diagnostics import modes, sides
from numpyro_symmetry.diagnostics.density import MIN_POINTS, hills
from numpyro_symmetry.diagnostics.modes import Modes, _thinned
from numpyro_symmetry.traces.null import CannotTell

SYMMETRY = Symmetry.mixture("loc", "weight")
CENTRES = np.array([[[-3.0, 0.2], [0.0, 0.3], [3.0, 0.5]], [[-3.0, 0.2], [2.0, 0.2], [3.0, 0.6]]])


def drawn(rng, which, *, forgets=0.0, spread=0.25):
    """Draws ``(chain, draw)`` of one of two modes each, of autoregressive noise, under labels at random."""
    noise = rng.standard_normal((*which.shape, 3, 2))
    for step in range(1, which.shape[1]):
        noise[:, step] = forgets * noise[:, step - 1] + np.sqrt(1.0 - forgets**2) * noise[:, step]
    values = CENTRES[which.astype(int)] + spread * noise * [1.0, 0.1]
    order = rng.permuted(np.broadcast_to(np.arange(3), (*which.shape, 3)), axis=2)[..., None]
    values = np.take_along_axis(values, order, 2)
    return {"loc": values[..., 0], "weight": values[..., 1]}


def test_copies_under_other_labels_are_one_mode():
    draws = drawn(np.random.default_rng(0), np.zeros((4, 250), bool))
    found = modes(draws, SYMMETRY)
    assert found.number == 1
    assert found.shares.tolist() == [1.0]
    assert set(found.again) == {1}
    # one number of one label has three clearly separate modes
    assert len(hills(draws["loc"][..., :1].reshape(-1, 1)[::3]).peaks) == 3


def test_sites_on_which_no_label_stands_are_looked_at_where_they_are_named():
    rng = np.random.default_rng(0)
    draws = drawn(rng, np.zeros((4, 250), bool))
    beside = {"slope": 3.0 * (np.arange(4)[:, None] % 2) + 0.1 * rng.standard_normal((4, 250))}
    assert modes(draws | beside, SYMMETRY, sites=["slope"]).number == 2
    pooled = {site: value.reshape(1000, *value.shape[2:]) for site, value in (draws | beside).items()}
    assert modes(pooled, SYMMETRY, sites=["slope"], num_leading_dims=1).number == 2
    assert modes(draws | beside, SYMMETRY, sites=[]).number == 1


def along_a_line(apart, count=1600):
    """Quantiles of two unit normals so far apart."""
    grid = np.linspace(-6.0, 6.0 + apart, 20_001)
    cumulative = 0.5 * (stats.norm.cdf(grid) + stats.norm.cdf(grid - apart))
    return np.interp((np.arange(count) + 0.5) / count, cumulative, grid)[:, None]


@pytest.mark.parametrize(("apart", "number"), [(3.0, 1), (4.2, 2)])
def test_a_valley_of_a_nat_parts_two_modes(apart, number):
    depth = stats.norm.logpdf(0.0) + np.log((1.0 + np.exp(-0.5 * apart**2)) / 2.0) - stats.norm.logpdf(apart / 2.0)
    assert (depth > 1.0) == (number == 2)
    assert depth < 1.6
    assert len(hills(along_a_line(apart)).peaks) == number


def test_a_gap_that_no_neighbour_spans_parts_nothing_by_itself():
    # half as wide again as the reach of the last point before it, so that only the tree goes across
    points = np.concatenate([np.arange(200.0), 234.0 + np.arange(200.0)])[:, None]
    found = hills(points)
    assert len(found.peaks) == 1
    assert not found.labels.any()


def test_two_modes_and_their_shares():
    rng = np.random.default_rng(1)
    which = rng.random((4, 300)) < 0.3
    found = modes(drawn(rng, which), SYMMETRY)
    assert found.number == 2
    assert found.again == {2: 1.0}
    assert np.abs(found.shares - [1.0 - which.mean(), which.mean()]).max() < 0.01
    assert (found.labels == which.ravel()).mean() > 0.99
    np.testing.assert_allclose(found.by_chain.mean(0), found.shares)
    assert (which.ravel()[found.typical] == [False, True]).all()
    assert np.abs(found.errors - np.sqrt(0.3 * 0.7 / 1200)).max() < 0.006
    assert "by chain" in str(found)
    assert "too seldom" not in str(found)


@pytest.mark.parametrize("stacked", [False, True])
def test_of_very_many_draws_it_says_which_were_looked_at(stacked, monkeypatch):
    monkeypatch.setattr(sides, "_MAX_DRAWS", 400)
    rng = np.random.default_rng(1)
    which = rng.random((4, 300)) < 0.3
    values, given = drawn(rng, which), which.ravel()
    if stacked:
        order = rng.permutation(1200)
        data = xr.Dataset({site: (("chain", "draw", "k"), x) for site, x in values.items()})
        data = data.assign_coords(chain=range(4), draw=range(300)).stack(sample=("chain", "draw"))
        values, given = data.isel(sample=order), given[order]
    found = modes(values, SYMMETRY)
    assert len(found.labels) == len(found.places) == 400
    assert (found.labels == given[found.places]).mean() > 0.99
    assert given[found.places[found.typical]].tolist() == [False, True]


def test_chains_stuck_in_modes_of_their_own():
    which = np.repeat([[False], [False], [True]], 300, axis=1)
    found = modes(drawn(np.random.default_rng(2), which, forgets=0.5), SYMMETRY)
    assert found.number == 2
    assert found.num_passages == 0
    assert np.isnan(found.errors).all()
    assert found.by_chain.tolist() == [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    assert "0 times: too seldom for shares to say more than where chains began" in str(found)


def test_labels_and_what_rebase_returned_change_nothing():
    rng = np.random.default_rng(3)
    draws = drawn(rng, rng.random((4, 100)) < 0.3)
    out = rebase(draws, SYMMETRY, null=False)
    first, second, third = modes(draws, SYMMETRY), modes(out), modes(out.symmetrized(jax.random.key(0)), SYMMETRY)
    assert first.labels.tolist() == second.labels.tolist() == third.labels.tolist()
    assert str(first) == str(second) == str(third)


@pytest.mark.parametrize(("forgets", "spread"), [(0.0, 0.25), (0.0, 1.5), (0.7, 0.6)])
def test_clean_traces_have_no_second_mode(forgets, spread):
    rng = np.random.default_rng(4)
    for _ in range(5):
        found = modes(drawn(rng, np.zeros((4, 200), bool), forgets=forgets, spread=spread), SYMMETRY)
        assert found.number == 1


def test_a_component_that_is_anywhere_is_no_mode_wherever_it_meets_another():
    rng = np.random.default_rng(5)
    loc = np.stack([rng.normal(*law, (4, 250)) for law in [(10, 0.3), (20, 0.3), (33, 0.3), (20, 10)]], -1)
    assert modes({"loc": rng.permuted(loc, axis=-1)}, Symmetry.mixture("loc")).number == 1


def test_a_slow_chain_is_no_mode():
    found = modes(drawn(np.random.default_rng(6), np.zeros((4, 300), bool), forgets=0.99), SYMMETRY)
    assert isinstance(found.number, CannotTell)
    assert found.num_effective < MIN_POINTS
    assert "cannot tell" in str(found)
    assert "Run longer" in str(found)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_points_of_one_gaussian_have_one_hill(size):
    rng = np.random.default_rng(7)
    assert [len(hills(rng.standard_normal((count, size))).peaks) for count in [10, 40, 80, 160] * 5] == [1] * 20


@pytest.mark.parametrize("unit", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize(("other", "number"), [([2.0, 1.0], 2), ([1.0, 1e-16], 1)])
def test_points_that_are_the_same_or_but_for_rounding(other, number, unit):
    assert len(hills(unit * np.repeat([[1.0, 0.0], other], 100, axis=0)).peaks) == number


def test_members_are_independent():
    rng = np.random.default_rng(8)
    draws = drawn(rng, (np.arange(80) % 4 == 0)[None])
    members = [{site: value[0, k] for site, value in draws.items()} for k in range(80)]
    found = modes(members, SYMMETRY)
    assert found.number == 2
    np.testing.assert_allclose(found.errors, np.sqrt(0.25 * 0.75 / 80))
    assert "chain" not in str(found).splitlines()[1]


def test_bad_input():
    draws = drawn(np.random.default_rng(9), np.zeros((2, 50), bool))
    with pytest.raises(TypeError, match="say whose labels to disregard"):
        modes(draws)
    with pytest.raises(SymmetryError, match="'mu'.*missing"):
        modes(draws, Symmetry.mixture("mu"))
    with pytest.raises(SymmetryError, match="Nothing varies: all 8 draws"):
        modes({"loc": np.ones((2, 4, 3))}, Symmetry.mixture("loc"))
    draws["loc"][0, 3, 1] = np.nan
    with pytest.raises(SymmetryError, match="'loc'"):
        modes(draws, SYMMETRY)
    with pytest.raises(TypeError, match="independent"):
        modes(draws, SYMMETRY, independent="yes")


def test_of_many_independent_draws_every_so_many_are_looked_at():
    points = np.random.default_rng(0).standard_normal((1000, 2))
    kept, _ = _thinned(points, (1000,), independent=True)
    assert kept.tolist() == list(range(0, 1000, 3))


@pytest.mark.parametrize(("num_chains", "num_draws", "number"), [(2000, 3, 400), (799, 1, 799), (30, 40, 420)])
def test_of_very_many_chains_some_are_looked_at(num_chains, num_draws, number):
    points = np.random.default_rng(0).standard_normal((num_chains * num_draws, 2))
    kept, _ = _thinned(points, (num_draws,) * num_chains, independent=True)
    assert len(kept) == number
    assert not (kept % num_draws).any() or num_chains < 400


def summary(**fields):
    """Of two modes in 1000 draws of four chains, half of them in each."""
    halves = np.full((4, 2), 0.5)
    known = {"number": 2, "shares": halves[0], "errors": np.full(2, 0.02), "by_chain": halves, "num_passages": 30}
    known |= {
        "labels": np.arange(1000) % 2,
        "places": np.arange(1000),
        "typical": np.array([0, 1]),
        "again": {1: 0.1, 2: 0.9},
    }
    return Modes(**(known | {"num_effective": 400} | fields))


UNSEEN = "A mode of less than about 11% of the draws, and one that no chain has visited, would not be seen."
SEEN = "modes up to labels, seen in 400 nearly independent draws; 90% of random halves of them show as many."


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            summary(),
            [
                f"2 {SEEN}",
                "  mode 0: 50% ± 2% of the draws; by chain 50%, 50%, 50%, 50%",
                "  mode 1: 50% ± 2% of the draws; by chain 50%, 50%, 50%, 50%",
                "Chains pass from mode to mode 30 times.",
                UNSEEN,
            ],
        ),
        # one draw in three was looked at, and all that can be said is that passages are no fewer; no error is zero
        (
            summary(places=3 * np.arange(1000), errors=np.full(2, 0.004)),
            [
                f"2 {SEEN}",
                *[f"  mode {k}: 50% ± less than 1% of the draws; by chain" for k in (0, 1)],
                "Chains pass from mode to mode at least 30 times.",
                UNSEEN,
            ],
        ),
        # of one chain there is nothing to pass to, and of one mode no share
        (summary(by_chain=np.full((1, 2), 0.5)), [f"2 {SEEN}", *[f"  mode {k}: 50% ± 2%" for k in (0, 1)], UNSEEN]),
        (
            summary(number=1, shares=np.ones(1), errors=np.zeros(1), again={1: 0.9}),
            [f"1 {SEEN.replace('modes', 'mode')}", UNSEEN],
        ),
        (summary(number=CannotTell(39)), ["How many modes there are up to labels: cannot tell from 39 independent"]),
        (
            summary(again={3: 1.0}),
            [f"2 {SEEN.replace('90%', '0%')}"],
        ),
        # a share of fewer than two effective draws to a chain, 8 of all, and one of none
        *(
            (summary(errors=np.array([0.02, error]), num_passages=9), ["2 modes", *["  mode"] * 2, words])
            for error, words in [
                (0.176, "Chains pass from mode to mode 9 times."),
                (0.178, "Chains pass from mode to mode 9 times: too seldom for shares to say more than where chains"),
                (np.nan, "Chains pass from mode to mode 9 times: too seldom"),
            ]
        ),
        (summary(errors=np.full(2, np.nan)), ["2 modes", "  mode 0: 50% of the draws; by chain 50%, 50%, 50%, 50%"]),
    ],
)
def test_modes_say_what_was_seen_and_what_was_not(found, said):
    lines = str(found).splitlines()
    assert len(lines) >= len(said)
    for line, words in zip(lines, said, strict=False):
        assert line.startswith(words), line
    assert len(lines) == 1 or lines[-1].endswith("would not be seen.")
    assert ("by chain" in str(found)) == (len(found.by_chain) > 1 and len(lines) > 2)
