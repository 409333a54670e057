"""Nested R-hat: against its definition written out, blind to labels, and large where starts are remembered."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from numpyro_symmetry import Symmetry, SymmetryError, SymmetryWarning, rebase
from numpyro_symmetry.diagnostics import nested_r_hat

LOC = Symmetry.mixture("loc")
GROUPS = np.arange(24) % 4


def relabelled(loc, seed=0):
    return rebase({"loc": np.random.default_rng(seed).permuted(loc, axis=2)}, LOC, null=False, num_leading_dims=2)


def slow(values, groups):
    """The formula, superchain by superchain; values (chain, draw)."""
    ranks = stats.rankdata(values).reshape(values.shape)
    scores = stats.norm.ppf((ranks - 0.375) / (values.size + 0.25))
    parts = [scores[groups == k] for k in np.unique(groups)]
    means = [part.mean() for part in parts]
    # a spread of one number is none
    within = [
        (part.mean(1).var(ddof=1) if len(part) > 1 else 0.0)
        + (part.var(1, ddof=1).mean() if part.shape[1] > 1 else 0.0)
        for part in parts
    ]
    return np.sqrt(1.0 + np.var(means, ddof=1) / np.mean(within))


def test_it_is_the_formula_whatever_the_labels():
    loc = np.array([-3.0, 0.0, 3.0]) + np.random.default_rng(0).standard_normal((24, 3, 3))
    found = nested_r_hat(relabelled(loc), GROUPS, invariants={"range": np.ptp(loc, axis=2)})
    assert found["range"] == pytest.approx(slow(np.ptp(loc, axis=2), GROUPS))
    assert found["Σ loc"] == pytest.approx(slow(loc.sum(2), GROUPS))
    again = nested_r_hat(relabelled(loc, seed=1), GROUPS, invariants={"range": np.ptp(loc, axis=2)})
    assert again == pytest.approx(found)


@pytest.mark.parametrize(
    ("num_draws", "groups"),
    [(3, np.arange(24)), (1, np.arange(24) // 2), (1, np.arange(24) % 2), (2, np.arange(24) // 12)],
)
def test_what_there_is_one_of_has_no_variance(num_draws, groups):
    loc = np.array([-3.0, 0.0, 3.0]) + np.random.default_rng(2).standard_normal((24, num_draws, 3))
    assert nested_r_hat(relabelled(loc), groups)["Σ loc"] == pytest.approx(slow(loc.sum(2), groups))


@pytest.mark.parametrize("draws", [1, 4])
def test_starts_that_are_remembered_are_seen(draws):
    rng = np.random.default_rng(1)
    loc = np.array([-3.0, 0.0, 3.0]) + rng.standard_normal((24, draws, 3))
    fresh, late = (
        nested_r_hat(relabelled(loc + 3.0 * GROUPS[:, None, None]), GROUPS),
        nested_r_hat(relabelled(loc), GROUPS),
    )
    assert fresh["Σ loc"] > 2.0
    assert late["Σ loc"] < 1.15


def test_sites_that_the_symmetry_does_not_name_are_judged_and_labels_are_not():
    rng = np.random.default_rng(1)
    loc = np.array([-3.0, 0.0, 3.0]) + rng.standard_normal((24, 4, 3))
    scale = rng.standard_normal((24, 4, 2)) + 3.0 * GROUPS[:, None, None]
    z = np.broadcast_to(GROUPS[:, None, None] % 3, (24, 4, 9))
    raw = {"loc": loc, "scale": scale, "z": z, "name": np.full((24, 4), "a")}
    out = rebase(raw, LOC, null=False, num_leading_dims=2, labels={"z": "component"})
    found = nested_r_hat(out, GROUPS)
    assert found["scale"] == pytest.approx(max(slow(scale[..., k], GROUPS) for k in range(2)))
    assert found["scale"] > 2.0
    assert not {"z", "name"} & set(found)


@pytest.mark.parametrize("draws", [2, 5])
@pytest.mark.parametrize("size", [2, 5, 12])
def test_superchains_that_never_move_and_differ_are_infinitely_far_apart(size, draws):
    """Of numbers of equal values whose mean is rounded, and of some whose mean is not."""
    groups = np.arange(3 * size) % 3
    loc = np.array([-3.0, 0.0, 3.0]) + 0.1 * groups[:, None, None] + np.zeros((3 * size, draws, 3))
    assert nested_r_hat(relabelled(loc), groups)["Σ loc"] == np.inf


def test_one_superchain_that_moves_gives_the_others_a_variance():
    rng = np.random.default_rng(0)
    moved = rng.standard_normal((24, 3)) * (GROUPS == 2)[:, None] + 0.1 * GROUPS[:, None]
    loc = np.array([-3.0, 0.0, 3.0]) + rng.standard_normal((24, 3, 3))
    found = nested_r_hat(relabelled(loc), GROUPS, invariants={"moved": moved})
    assert found["moved"] == pytest.approx(slow(moved, GROUPS))


def test_what_is_not_a_number_is_said_and_no_comfort():
    loc = np.array([-3.0, 0.0, 3.0]) + np.random.default_rng(0).standard_normal((24, 3, 3))
    broken = np.ptp(loc, axis=2)
    broken[3, 1] = np.nan
    with pytest.warns(SymmetryWarning, match="'range' is no number in 1 draw: it"):
        found = nested_r_hat(relabelled(loc), GROUPS, invariants={"range": broken})
    assert found["range"] == np.inf
    assert nested_r_hat(relabelled(loc), GROUPS, invariants={"same": np.full((24, 3), np.inf)}).get("same") is None


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (GROUPS[:-1], "one number for each of 24 chains"),
        (np.zeros(24), "two superchains or more"),
        (np.repeat([0, 1], [20, 4]), "of 20, 4 chains"),
        (np.arange(24), "one draw in each superchain"),
    ],
)
def test_bad_superchains(groups, message):
    out = relabelled(np.random.default_rng(0).standard_normal((24, 1, 3)))
    with pytest.raises(SymmetryError, match=message):
        nested_r_hat(out, groups)


def test_what_is_no_chain():
    draws = {"loc": np.random.default_rng(0).standard_normal((24, 3))}
    with pytest.raises(SymmetryError, match="num_leading_dims=2"):
        nested_r_hat(rebase(draws, LOC, null=False), GROUPS)
    with pytest.raises(TypeError, match="what rebase returned"):
        nested_r_hat(draws, GROUPS)
