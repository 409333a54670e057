"""`merge`: labels against all elements, products against exact posteriors, cross terms against sums and integrals."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats
import xarray as xr
from tqdm.auto import tqdm

from numpyro_symmetry import (
    ActivationCost,
    Complement,
    DiagonalGaussian,
    FullGaussian,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    compose,
    inverse,
    loss_barrier,
    match,
    merge,
    rebase,
)
from numpyro_symmetry.containers.posterior import to_container
from numpyro_symmetry.matching import Barycenter, Product, common_labels
from numpyro_symmetry.matching import cross_terms as terms
from numpyro_symmetry.matching import drawn as draws_of_labels
from numpyro_symmetry.matching.cross_terms import cross_terms
from numpyro_symmetry.matching.gaussian_inputs import middle_of
from numpyro_symmetry.matching.hows import barycentre_of_covariances
from numpyro_symmetry.matching.product import NaturalGaussian, Tables, raised
from numpyro_symmetry.symmetry.hard import from_element, members_at
from tests.support.laws import SYMMETRIES

NETWORK = Symmetry({"in": (None, "first"), "mid": ("first", "second"), "out": ("second",)})
SIGNED = Symmetry({"in": (None, "hidden"), "out": ("hidden",)}, kinds={"hidden": "signed"})
SHAPES = {"in": (2, 3), "mid": (3, 3), "out": (3,)}


def points(seed, spread, count=3, symmetry=NETWORK):
    """Members about one, each in labels of its own."""
    rng = np.random.default_rng(seed)
    shapes = {site: SHAPES[site] for site in symmetry.axes}
    base = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    bound = symmetry.bind(base)
    return [
        bound.apply(
            bound.sample(jax.random.key(k)), {s: x + spread * rng.normal(size=x.shape) for s, x in base.items()}
        )
        for k in range(count)
    ]


def spread_of(members):
    return sum(np.var([m[site] for m in members], 0).sum() * len(members) for site in members[0])


def best_of_all(members, symmetry):
    """The smallest spread over all labels of all members but the first."""
    bound = symmetry.bind(members[0])
    every = [bound.apply(bound.elements(), member) for member in members[1:]]
    count = len(next(iter(every[0].values())))
    return min(
        spread_of([members[0], *({s: x[k] for s, x in one.items()} for one, k in zip(every, chosen, strict=True))])
        for chosen in itertools.product(range(count), repeat=len(every))
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_a_mean_is_that_of_the_best_of_all_labels(seed, spread):
    members = points(seed, spread)
    found = merge(members, NETWORK)
    assert float((found.distances**2).sum()) == pytest.approx(spread_of(found.members))
    assert spread_of(found.members) <= spread_of(members)
    assert spread_of(found.members) == pytest.approx(best_of_all(members, NETWORK))
    for site in SHAPES:
        np.testing.assert_allclose(found.merged[site], np.mean([m[site] for m in found.members], 0))


def test_members_that_still_move_after_the_last_round_are_said_to(monkeypatch):
    members = points(0, 2.0, 5, NETWORK)
    rounds = merge(members, NETWORK).num_rounds
    monkeypatch.setattr(common_labels, "_MAX_ROUNDS", 1)
    found = merge(members, NETWORK)
    assert (found.converged, found.num_rounds) == (False, 1) != (True, rounds)
    assert repr(found).splitlines()[2].endswith("1 round, not converged")


@pytest.mark.parametrize("symmetry", [NETWORK, SIGNED], ids=["permutations", "signed"])
def test_members_that_differ_in_labels_alone_become_one_in_the_firsts_labels(symmetry):
    members = points(0, 0.0, 5, symmetry)
    found = merge(members, symmetry)
    for site, x in members[0].items():
        np.testing.assert_allclose(found.merged[site], x, atol=1e-12)
        np.testing.assert_array_equal(found.members[0][site], x)
    assert found.distances.max() < 1e-7 < found.distances_before.max()
    assert found.converged
    # round every cycle: from one member to the next and back
    one, two = (jax.tree.map(lambda x, k=k: x[k], found.elements) for k in (1, 2))
    moved = symmetry.apply(compose(inverse(two), one), members[1])
    np.testing.assert_allclose(moved["in"], members[2]["in"], atol=1e-12)


def test_no_member_alone_could_do_better():
    found = merge(points(7, 2.0, 6), NETWORK)
    for k, member in enumerate(found.members):
        others = [m for j, m in enumerate(found.members) if j != k]
        centre = {site: np.mean([m[site] for m in others], 0) for site in SHAPES}
        step = match(centre, member, NETWORK)
        assert float(step.objective) == pytest.approx(float(step.objective_before))


def test_what_members_are_called_changes_nothing():
    members = points(3, 0.5, 4)
    bound = NETWORK.bind(members[0])
    renamed = [members[0], *(bound.apply(bound.sample(jax.random.key(9 + k)), m) for k, m in enumerate(members[1:]))]
    one, other = merge(members, NETWORK), merge(renamed, NETWORK)
    for site in SHAPES:
        np.testing.assert_allclose(one.merged[site], other.merged[site])


def test_trees_come_back_as_they_came():
    weights = [np.random.default_rng(k).permutation(np.array([-4.0, 0.0, 4.0])) for k in range(3)]
    trees = [
        {
            "params": [jnp.asarray(w, jnp.bfloat16), np.float32(w)[None]],
            "batch_stats": {"mean": np.float32(100 * k + np.argsort(w))},
            "step": np.int32(k),
            "key": jax.random.key(k),
        }
        for k, w in enumerate(weights)
    ]
    symmetry = Symmetry({"params.0": ("unit",), "params.1": (None, "unit"), "batch_stats.mean": ("unit",)})
    found = merge(trees, symmetry)
    for out in (found.merged, *found.members):
        assert jax.tree.structure(out) == jax.tree.structure(trees[0])
        assert jax.tree.map(jnp.result_type, out) == jax.tree.map(jnp.result_type, trees[0])
    assert [int(tree["step"]) for tree in (found.merged, *found.members)] == [0, 0, 1, 2]
    np.testing.assert_array_equal(found.merged["params"][1], trees[0]["params"][1])
    # running statistics move along and are averaged, but have no say, and are no distance
    np.testing.assert_allclose(found.distances, 0.0, atol=1e-6)
    order = [np.asarray(one) for one in found.elements["unit"]]
    expected = np.mean([tree["batch_stats"]["mean"][g] for tree, g in zip(trees, order, strict=True)], 0)
    np.testing.assert_allclose(found.merged["batch_stats"]["mean"], expected, rtol=1e-6)


def test_a_merge_is_printed_in_a_few_lines():
    lines = str(merge(points(0, 0.0), NETWORK)).splitlines()
    assert lines[0] == "Merge of 3 members into one dict"
    assert "100% less, " in lines[1]
    assert lines[2].endswith("1 round, converged")
    assert lines[3].startswith("  first: relabelled by ")
    # n - H_n
    assert "random labels need 1.2" in lines[3]
    assert len(lines) == 6


@pytest.mark.parametrize("are_random", [False, True])
def test_labels_as_at_random_are_told_from_common_ones(are_random):
    rng = np.random.default_rng(1)
    base = 10.0 * np.arange(40.0)
    members = [{"m": rng.permutation(base) if are_random else base} for _ in range(6)]
    assert ("as if labelled at random" in str(merge(members, ONE))) == are_random


def test_members_are_merged_by_what_their_units_compute():
    """Weights into units are all alike: only activations, here of outgoing weights, tell units apart."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(5, 3))
    orders = [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
    # noise in what does not count outweighs all that does
    members = [{"in": 100.0 * rng.normal(size=(2, 3)), "out": base[:, order]} for order in orders]
    symmetry = Symmetry({"in": (None, "hidden"), "out": (None, "hidden")})
    cost = ActivationCost(lambda values: {"hidden": values["out"]})
    found = merge(members, symmetry, cost=cost)
    np.testing.assert_array_equal(found.elements["hidden"], [np.argsort(order) for order in orders])
    np.testing.assert_allclose(found.merged["out"], base)
    np.testing.assert_allclose(found.merged["in"], np.mean([m["in"] for m in found.members], 0))
    # distances are those of members
    assert float((found.distances**2).sum()) == pytest.approx(spread_of(found.members))
    for member in members[1:]:
        one = merge([members[0], member], symmetry, cost=cost).elements["hidden"][1]
        np.testing.assert_array_equal(one, match(members[0], member, symmetry, cost=cost).element["hidden"])


def test_complex_members_are_merged_by_what_their_units_compute():
    base = np.array([[1.0 + 2.0j, -1.0, 3.0j]])
    members = [{"w": base}, {"w": base[:, [2, 0, 1]]}]
    cost = ActivationCost(lambda values: {"unit": jnp.abs(values["w"] + 1.0)})
    found = merge(members, Symmetry({"w": (None, "unit")}), cost=cost)
    np.testing.assert_allclose(found.merged["w"], base)


def test_standard_deviations_count_unless_means_alone_are_asked_for():
    far = np.array([1.0, 100.0])
    one, other = (DiagonalGaussian({"m": np.array(loc)}, {"m": s}) for loc, s in (([0.0, 1.0], far), ([1.0, 0.0], far)))
    labels = {
        cost: merge([one, other], ONE, how="barycenter", cost=cost).elements["unit"][1]
        for cost in ("wasserstein", "euclidean")
    }
    assert {cost: np.asarray(x).tolist() for cost, x in labels.items()} == {"wasserstein": [0, 1], "euclidean": [1, 0]}


@pytest.mark.parametrize(
    ("cost", "told"), [("kl", "must be one of"), (lambda values: values, "of a function, ActivationCost")]
)
def test_costs_without_a_mean_are_refused(cost, told):
    with pytest.raises(ValueError, match=told):
        merge(points(0, 0.1), NETWORK, cost=cost)


def test_the_bar_tells_rounds_and_how_many_moved(monkeypatch):
    told = []
    monkeypatch.setattr(tqdm, "set_postfix_str", lambda _, text, **__: told.append(text))
    found = merge(points(7, 2.0, 6), NETWORK)
    assert told[0] == "all on member 0"
    assert told[6].startswith("search 1, round 1: ")
    assert any(text.endswith(f"round {found.num_rounds}: 0 of 6 moved") for text in told)
    assert any(text.endswith(": 1 of 6 moved") for text in told)


# ---- posteriors --------------------------------------------------------------------------------------------------

UNITS, SHARDS, DRAWS = 4, 4, 25


def conjugate(prior_precision, y):
    """Posterior of unit means, of Normal data of unit variance with a Normal prior about zero."""
    precision = prior_precision + len(y)
    return DiagonalGaussian({"m": y.sum(0) / precision}, {"m": np.full(y.shape[1:], precision**-0.5)})


def full(q):
    return FullGaussian(q.loc, np.diag(np.concatenate([np.ravel(x) for x in q.scale.values()]) ** 2))


@pytest.mark.parametrize("name", [name for name in SYMMETRIES if "whole" not in name])
def test_no_label_moves_the_middle(name):
    symmetry, values = SYMMETRIES[name]
    middle = middle_of(symmetry, values)
    for key in jax.random.split(jax.random.key(0), 3):
        moved = symmetry.apply(symmetry.sample(key), middle)
        for site, x in middle.items():
            np.testing.assert_allclose(moved[site], x, rtol=1e-12)


@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("whole_prior", [False, True])
def test_a_product_and_its_labels_are_the_same_wherever_zero_is(whole_prior, correlated):
    rng, symmetry = np.random.default_rng(1), Symmetry({"b": ("u",), "a": ("u", None)})
    member, shards = {"b": rng.normal(size=4), "a": rng.normal(size=(4, 2))}, []
    for _ in range(3):
        order = rng.permutation(4)
        loc = {site: (x + 0.6 * rng.normal(size=x.shape))[order] for site, x in member.items()}
        shards.append((loc, {site: np.exp(0.7 * rng.normal(size=x.shape)) for site, x in member.items()}))
    wide = {site: np.full(x.shape, 9.0) for site, x in member.items()}

    def merged(origin):
        def at(loc, scale):
            gaussian = DiagonalGaussian({site: origin + x for site, x in loc.items()}, scale)
            return full(gaussian) if correlated else gaussian

        prior = at({site: np.zeros(x.shape) for site, x in member.items()}, wide)
        return merge([at(*one) for one in shards], symmetry, how=Product(prior) if whole_prior else "product")

    own, other = merged(0.0), merged(1e6)
    for site, value in own.merged.loc.items():
        np.testing.assert_allclose(np.asarray(other.merged.loc[site]) - 1e6, value, atol=1e-7)
    assert own.cross_terms.share == pytest.approx(other.cross_terms.share, rel=1e-6)


@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("whole_prior", [False, True])
def test_shards_of_a_conjugate_posterior_are_merged_into_the_exact_one(whole_prior, correlated):
    rng, prior = np.random.default_rng(0), 0.01
    # units at least six standard deviations of a shard apart
    y = 1.5 * np.arange(UNITS) + rng.normal(size=(SHARDS, DRAWS, UNITS))
    exact = conjugate(prior, y.reshape(-1, UNITS))
    symmetry = Symmetry({"m": ("unit",)}).bind(exact.loc)
    keys = jax.random.split(jax.random.key(0), SHARDS)
    shards = [conjugate(prior if whole_prior else prior / SHARDS, one) for one in y]
    shards = [q.apply(symmetry, symmetry.sample(key)) for q, key in zip(shards, keys, strict=True)]
    of = full if correlated else lambda q: q
    whole = DiagonalGaussian({"m": np.zeros(UNITS)}, {"m": np.full(UNITS, prior**-0.5)})
    found = merge([of(q) for q in shards], symmetry, how=Product(of(whole)) if whole_prior else "product")
    merged = found.merged.diagonal() if correlated else found.merged
    order = np.argsort(merged.loc["m"])
    np.testing.assert_allclose(merged.loc["m"][order], exact.loc["m"], rtol=1e-6)
    np.testing.assert_allclose(merged.scale["m"][order], exact.scale["m"], rtol=1e-6)
    assert found.cross_terms.share < 1e-6
    assert "lies in other labellings" in str(found)


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
def test_a_mean_and_its_labels_are_the_same_in_any_unit(unit):
    rng = np.random.default_rng(0)
    member = {"w1": rng.normal(size=(4, 12)), "w2": rng.normal(size=(12, 3))}
    noisy = [{site: x + 0.7 * rng.normal(size=x.shape) for site, x in member.items()} for _ in range(6)]
    symmetry = Symmetry({"w1": (None, "h"), "w2": ("h", None)}).bind(member)
    noisy = [symmetry.apply(symmetry.sample(jax.random.key(k)), one) for k, one in enumerate(noisy)]
    own, other = (merge([{s: u * np.asarray(x) for s, x in one.items()} for one in noisy], symmetry) for u in (1, unit))
    assert own.num_rounds == other.num_rounds > 1
    for site, value in own.merged.items():
        np.testing.assert_allclose(other.merged[site], unit * value, rtol=1e-6)


@pytest.mark.parametrize("origin", [1e4, 1e6])
def test_a_mean_and_its_labels_are_the_same_wherever_zero_is(origin):
    rng = np.random.default_rng(0)
    symmetry, noisy = Symmetry({"a": ("u",), "b": ("u", None)}), []
    member = {"a": rng.normal(size=6), "b": rng.normal(size=(6, 4))}
    for _ in range(6):
        order = rng.permutation(6)
        noisy.append({site: (x + 1.2 * rng.normal(size=x.shape))[order] for site, x in member.items()})
    own, other = (merge([{s: at + x for s, x in one.items()} for one in noisy], symmetry) for at in (0.0, origin))
    assert own.num_rounds == other.num_rounds > 1
    for site, value in own.merged.items():
        np.testing.assert_allclose(other.merged[site] - origin, value, atol=1e-8)


def test_no_member_is_asked_again_where_nothing_moved(monkeypatch):
    asked, place = [], common_labels.match

    def noted(target, source, *args, **kwargs):
        asked.append(b"".join(np.asarray(x).tobytes() for side in (target, source) for x in side.values()))
        return place(target, source, *args, **kwargs)

    monkeypatch.setattr(common_labels, "match", noted)
    # one search, for its questions may be those of another
    monkeypatch.setattr(common_labels, "_NUM_SEARCHES", 1)
    found = merge(points(0, 2.0, 6), NETWORK)
    assert found.num_rounds > 2
    assert len(set(asked)) == len(asked)


def test_members_that_differ_by_rounding_do_not_move():
    rng = np.random.default_rng(0)
    w = np.repeat(rng.normal(size=(40, 6)), 2, axis=1)
    members = [{"w": w + 1e-13 * rng.normal(size=w.shape)} for _ in range(4)]
    found = merge(members, Symmetry({"w": (None, "h")}).bind(members[0]))
    assert found.num_rounds == 1


def test_a_prior_that_labels_change_is_seen_in_any_unit():
    symmetry = Symmetry({"m": ("unit",)}).bind({"m": np.zeros(3)})
    prior = DiagonalGaussian({"m": 1e-7 * np.array([0.0, 0.0, 5.0])}, {"m": 1e-7 * np.array([2.0, 2.0, 9.0])})
    shards = [DiagonalGaussian({"m": 1e-7 * np.arange(3.0)}, {"m": np.full(3, 1e-8)})] * 2
    with pytest.raises(SymmetryError, match="prior= changes when units of 'unit' are exchanged"):
        merge(shards, symmetry, how=Product(prior))


def test_the_share_of_cross_terms_is_that_of_the_integral():
    """Two units, two shards: the product of symmetrized densities, integrated on a grid."""
    shards = [
        DiagonalGaussian({"m": np.array([0.0, 1.0])}, {"m": np.array([0.8, 1.1])}),
        DiagonalGaussian({"m": np.array([0.3, 1.6])}, {"m": np.array([1.0, 0.7])}),
    ]
    grid = np.linspace(-8.0, 9.0, 601)
    tables = [scipy.stats.norm(q.loc["m"][:, None], q.scale["m"][:, None]).pdf(grid) for q in shards]
    here, there = ([t[0][:, None] * t[1], t[1][:, None] * t[0]] for t in tables)
    whole = (sum(here) * sum(there)).sum()
    kept = (here[0] * there[0]).sum() + (here[1] * there[1]).sum()
    found = merge(shards, Symmetry({"m": ("unit",)}), how="product").cross_terms
    assert found.is_exact
    assert found.share == pytest.approx(1.0 - max(kept / whole, 1.0 - kept / whole), rel=1e-6)


ONE, TWICE = Symmetry({"m": ("unit",)}), Symmetry({"m": ("unit",), "t": ("unit", "unit")})
SAMPLED = {
    "two shards": (ONE, {"m": (4,)}, 2, 2.5, False),
    "three shards": (ONE, {"m": (3,)}, 3, 2.5, False),
    "three shards far apart": (ONE, {"m": (3,)}, 3, 8.0, False),
    "signs": (SIGNED, {"in": (2, 2), "out": (2,)}, 3, 2.0, False),
    "two groups": (NETWORK, SHAPES, 2, 2.0, False),
    "on two axes": (TWICE, {"m": (3,), "t": (3, 3)}, 2, 1.0, False),
    "correlated": (ONE, {"m": (4,)}, 2, 2.5, True),
}


def gaussians(name):
    symmetry, shapes, count, apart, correlated = (SAMPLED | BLOCKS)[name]
    rng = np.random.default_rng(5)
    base = {site: apart * rng.normal(size=shape) for site, shape in shapes.items()}
    found = [
        DiagonalGaussian(
            {s: x + 0.5 * rng.normal(size=x.shape) for s, x in base.items()},
            {s: np.exp(0.3 * rng.normal(size=x.shape)) for s, x in base.items()},
        )
        for _ in range(count)
    ]
    if correlated:
        found = [FullGaussian(q.loc, full(q).covariance + 0.3) for q in found]
    return found, symmetry.bind(base)


@pytest.mark.parametrize("at_once", [1, 6])
@pytest.mark.parametrize("name", SAMPLED)
def test_drawn_labels_estimate_the_sum_over_all(name, at_once, monkeypatch):
    members, symmetry = gaussians(name)
    exact = cross_terms(members, symmetry, None, np.random.default_rng(0))
    assert exact.is_exact
    monkeypatch.setattr(terms, "_MOST_LABELLINGS", 1)
    # all permutations of a group are weighed, or units are chosen in turn
    monkeypatch.setattr(draws_of_labels, "_MOST_AT_ONCE", at_once)
    drawn = cross_terms(members, symmetry, None, np.random.default_rng(0))
    assert not drawn.is_exact
    assert drawn.error < 0.1
    assert abs(drawn.share - exact.share) < 4.0 * drawn.error + 1e-9


@pytest.mark.parametrize("at_once", [1, 6])
@pytest.mark.parametrize("seed", [1, 4, 7])
def test_errors_of_drawn_labels_hold_where_two_members_move_together(seed, at_once, monkeypatch):
    """Beside the other two, which stay, either of them alone would hardly move."""
    rng = np.random.default_rng(seed)
    members = [DiagonalGaussian({"m": rng.normal(size=(4, 2))}, {"m": np.exp(rng.normal(size=(4, 2)))}) for _ in "abc"]
    symmetry = Symmetry({"m": ("unit", None)}).bind(members[0].loc)
    members = [one.apply(symmetry, g) for one, g in zip(members, raised(members, symmetry, None), strict=True)]
    exact = cross_terms(members, symmetry, None, np.random.default_rng(0))
    assert exact.is_exact
    monkeypatch.setattr(terms, "_MOST_LABELLINGS", 1)
    monkeypatch.setattr(draws_of_labels, "_MOST_AT_ONCE", at_once)
    drawn = [cross_terms(members, symmetry, None, np.random.default_rng(k)) for k in range(20)]
    deviations = [(one.share - exact.share) / one.error for one in drawn]
    # the mean square of as many standard normal numbers
    assert np.square(deviations).mean() < 1.0 + 4.0 * np.sqrt(2.0 / len(drawn))


def test_draws_that_saw_nothing_else_leave_an_error(monkeypatch):
    """Of correlated members no exchange is summed, and 400 draws in which no label moved do not say that none does."""
    loc, covariance = {"m": np.array([[0.0], [4.0]])}, np.array([[1.0, 0.3], [0.3, 1.0]])
    members, symmetry = 3 * [FullGaussian(loc, covariance)], Symmetry({"m": ("unit", None)}).bind(loc)
    exact = cross_terms(members, symmetry, None, np.random.default_rng(0))
    monkeypatch.setattr(terms, "_MOST_LABELLINGS", 1)
    drawn = cross_terms(members, symmetry, None, np.random.default_rng(0))
    assert 0.0 < abs(drawn.share - exact.share) < 4.0 * drawn.error < 0.05


@pytest.mark.parametrize(("count", "least", "most"), [(2, 5e-6, 2e-5), (3, 5e-5, 1e-3)])
def test_what_no_draw_saw_is_about_what_moves_that_are_summed_weigh(count, least, most, monkeypatch):
    """Of two members the square of it, for both pairs of units exchanged; of three as much, for two that move alike."""
    loc = {"m": np.array([[0.0], [1.8], [20.0], [21.8]])}
    members = count * [DiagonalGaussian(loc, {"m": np.full((4, 1), 0.5)})]
    monkeypatch.setattr(terms, "_MOST_LABELLINGS", 1)
    found = cross_terms(members, Symmetry({"m": ("unit", None)}).bind(loc), None, np.random.default_rng(0))
    assert least < found.error < most


def _share_of_three(members):
    """Of three members with one group, by the permanents of all tables of the third."""
    loc, every = members[0].loc["m"], np.array(list(itertools.permutations(range(len(members[0].loc["m"])))))
    first, precision = (
        [getattr(NaturalGaussian.of(one), name).reshape(loc.shape) for one in members]
        for name in NaturalGaussian._fields
    )
    # [i, j, k]: the log weight of units i, j, k of the three in one slot
    (a, b, c), (p, q, r) = ((x[0][:, None, None], x[1][None, :, None], x[2][None, None]) for x in (first, precision))
    slots = np.arange(len(loc))
    tables = (0.5 * ((a + b + c) ** 2 / (p + q + r) - np.log(p + q + r))).sum(-1)[slots, every]
    home = tables[0, slots, slots].sum()
    return 1.0 - np.exp(home - scipy.special.logsumexp(tables[:, slots, every].sum(-1)))


def test_labels_of_two_members_are_drawn_which_only_a_third_makes_likely():
    rng, shape = np.random.default_rng(13), (6, 8)
    base = rng.normal(size=shape)
    members = [
        DiagonalGaussian({"m": base + 1.5 * rng.normal(size=shape)}, {"m": np.exp(0.4 * rng.normal(size=shape))})
        for _ in "abc"
    ]
    symmetry = Symmetry({"m": ("unit", None)}).bind(members[0].loc)
    members = [one.apply(symmetry, g) for one, g in zip(members, raised(members, symmetry, None), strict=True)]
    exact = _share_of_three(members)
    found = [cross_terms(members, symmetry, None, np.random.default_rng(k)) for k in range(3)]
    assert np.square([(one.share - exact) / one.error for one in found]).mean() < 1.0 + 4.0 * np.sqrt(2.0 / len(found))


def test_circles_of_three_units_are_in_the_share_however_rarely_they_are_drawn():
    """Exchanges weigh e^-12.5 each, a circle e^-7.5, and of as many as four hundred draws hardly any would have it."""
    rows = np.arange(8)
    target, source = 20.0 * np.eye(8), np.eye(8)
    source[[1, 2, 0], [0, 1, 2]] = 0.75
    members = [DiagonalGaussian({"m": x}, {"m": np.ones((8, 8))}) for x in (target, source)]
    symmetry = Symmetry({"m": ("unit", None)}).bind(members[0].loc)
    every = np.array(list(itertools.permutations(range(8))))
    log_weights = (0.5 * target @ source.T)[rows, every].sum(-1)
    exact = 1.0 - np.exp(log_weights[0] - scipy.special.logsumexp(log_weights))
    found = cross_terms(members, symmetry, None, np.random.default_rng(0))
    assert found.share == pytest.approx(exact, rel=1e-2)
    assert abs(found.share - exact) < 4.0 * found.error


def test_where_nearly_all_of_a_product_is_elsewhere_share_and_error_are_numbers():
    """Units that are alike: the other labellings weigh as much as there are of them, in logarithms 860."""
    loc = {"m": np.random.default_rng(0).normal(0.0, 1e-3, size=200)}
    members = [DiagonalGaussian(loc, {"m": np.ones(200)})] * 2
    found = merge(members, Symmetry({"m": ("unit",)}), how="product").cross_terms
    assert found.share == 1.0
    assert found.error == pytest.approx(0.0, abs=1e-12)


HEADS = Symmetry({"w": ("head", "head/unit"), "v": ("head",)})
BLOCKS = {
    "units of heads": (HEADS, {"w": (2, 3), "v": (2,)}, 2, 1.0, False),
    "heads of few units": (HEADS, {"w": (4, 2), "v": (4,)}, 2, 1.5, False),
    "three shards of heads": (HEADS, {"w": (2, 2), "v": (2,)}, 3, 1.0, False),
    "correlated heads": (HEADS, {"w": (2, 2), "v": (2,)}, 2, 1.0, True),
    "on three levels": (Symmetry({"w": ("a", "a/b", "a/b/c")}), {"w": (2, 2, 2)}, 2, 1.0, False),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_where_blocks_move_and_units_in_them_both_levels_are_in_the_share(name, monkeypatch):
    members, symmetry = gaussians(name)
    exact = cross_terms(members, symmetry, None, np.random.default_rng(0))
    assert exact.is_exact
    monkeypatch.setattr(terms, "_MOST_LABELLINGS", 1)
    monkeypatch.setattr(terms, "_MOST_PARTS", 64)
    drawn = cross_terms(members, symmetry, None, np.random.default_rng(0))
    assert not drawn.is_exact
    assert drawn.error < 0.01
    assert abs(drawn.share - exact.share) < 4.0 * drawn.error


def test_of_heads_that_are_alike_half_of_the_product_is_elsewhere_or_it_is_said(monkeypatch):
    symmetry, loc = Symmetry({"w": ("head", "head/unit")}), {"w": np.tile(10.0 * np.arange(6.0), (2, 1))}
    members = [DiagonalGaussian(loc, {"w": np.ones((2, 6))})] * 2
    found = merge(members, symmetry, how="product").cross_terms
    assert not found.is_exact
    assert found.share == pytest.approx(0.5)
    monkeypatch.setattr(terms, "_MOST_PARTS", 1)
    with pytest.warns(SymmetryWarning, match=r"\['head'\] are held still, .* too low by that"):
        assert merge(members, symmetry, how="product").cross_terms.share < 1e-9


def test_of_blocks_that_are_not_matched_the_share_is_a_number():
    """Blocks with signs stay where they are, though another order of them weighs thousands of nats more."""
    symmetry = Symmetry({"w": ("block", "block/unit")}, kinds={"block": "signed"})
    loc = np.random.default_rng(0).normal(size=(2, 8))
    members = [DiagonalGaussian({"w": x}, {"w": np.full(x.shape, 0.01)}) for x in (loc, loc[::-1])]
    with pytest.warns(SymmetryWarning, match="only one of the two levels"):
        found = merge(members, symmetry, how="product").cross_terms
    assert not found.is_exact
    assert found.share == pytest.approx(1.0)
    assert found.error == pytest.approx(0.0, abs=1e-6)


# precisions of heads' units, of two members, where those of the prior are one
NO_GAUSSIANS = {
    "whatever the units": ([[4, 4, 4], [0.4, 0.4, 0.4]], [[0.4, 0.4, 0.4], [4, 4, 4]]),
    "until units move": ([[4, 0.4, 4], [4, 4, 0.4]], [[0.4, 4, 0.4], [0.4, 0.4, 4]]),
}


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("name", NO_GAUSSIANS)
def test_where_other_labels_of_blocks_are_no_gaussian_the_share_is_that_of_the_sum(name, is_full, monkeypatch):
    """Where the blocks change places, some precisions of the members, less that of the prior, are not positive."""
    loc = {"w": 0.3 * np.arange(6.0).reshape(2, 3)}
    members = [DiagonalGaussian(loc, {"w": np.asarray(one) ** -0.5}) for one in NO_GAUSSIANS[name]]
    prior = DiagonalGaussian({"w": np.zeros((2, 3))}, {"w": np.ones((2, 3))})
    if is_full:
        *members, prior = (FullGaussian(x.loc, np.diag(x.scale["w"].ravel() ** 2)) for x in (*members, prior))
    symmetry, own = Symmetry({"w": ("head", "head/unit")}).bind(loc), NaturalGaussian.of(prior)
    exact = cross_terms(members, symmetry, own, np.random.default_rng(0))
    assert exact.is_exact
    monkeypatch.setattr(terms, "_MOST_LABELLINGS", 1)
    drawn = cross_terms(members, symmetry, own, np.random.default_rng(0))
    assert not drawn.is_exact
    assert drawn.error < 0.05
    assert abs(drawn.share - exact.share) < 4.0 * drawn.error


def test_labels_that_are_no_gaussian_are_left_for_those_that_are():
    loc = {"w": np.arange(3.0)}
    members = [DiagonalGaussian(loc, {"w": np.asarray(x) ** -0.5}) for x in ([4, 0.4, 4], [0.4, 0.4, 4])]
    prior = NaturalGaussian.of(DiagonalGaussian(loc, {"w": np.ones(3)}))
    symmetry = Symmetry({"w": ("unit",)}).bind(loc)
    moved = [one.apply(symmetry, g) for one, g in zip(members, raised(members, symmetry, prior), strict=True)]
    total = NaturalGaussian.of(moved[0]).plus(NaturalGaussian.of(moved[1])).plus(prior, -1.0)
    assert (total.precision > 0).all()


@pytest.mark.parametrize("name", SAMPLED)
def test_draws_counted_already_are_those_whose_weights_are_summed(name):
    """What keeps all labels, which weighs one, and exchanges of two units and single signs: of all labellings."""
    members, symmetry = gaussians(name)
    tables = Tables(members, NaturalGaussian.of(members[0]), symmetry)
    draws, every, total = terms._Draws(tables), from_element(symmetry.elements()), tables.all
    num_elements = len(next(iter(every.values())).permutation)
    chosen = np.indices((num_elements,) * (len(members) - 1)).reshape(len(members) - 1, -1)
    states = [{group: part.at(items) for group, part in every.items()} for items in chosen]
    for natural, state in zip(tables.naturals[1:], states, strict=True):
        total = total.plus(natural, -1.0).plus(natural.moved(*tables.order(state)))
    weights = np.exp(total.log_partition() - draws.at_home)
    assert weights[draws._is_counted(states)].sum() == pytest.approx(1.0 + draws._near(), rel=1e-9)


@pytest.mark.parametrize("name", ["three shards", "signs", "two groups", "on two axes"])
def test_tables_of_many_draws_are_those_of_each(name):
    members, symmetry = gaussians(name)
    tables = Tables(members, NaturalGaussian.of(members[0]), symmetry)
    states = from_element(symmetry.sample(jax.random.key(1), (5,)))
    totals = tables.all.plus(tables.naturals[1].moved(*tables.order(states)))
    for own in tables.groups:
        others = {group: part for group, part in states.items() if group != own}
        together = tables.table(1, own, others, totals)
        for k in range(5):
            state = {group: part.at(k) for group, part in others.items()}
            for one, every in zip(tables.table(1, own, state, members_at(totals, k)), together, strict=True):
                assert (one is None) == (every is None)
                if one is not None:
                    np.testing.assert_allclose(one, every[k], rtol=1e-12)


def test_draws_of_labels_are_worked_on_together(monkeypatch):
    """However many draws, no more tables are made than for one of them."""
    members, symmetry = gaussians("signs")
    made, table = [], Tables.table
    monkeypatch.setattr(terms, "_MOST_LABELLINGS", 1)
    monkeypatch.setattr(Tables, "table", lambda self, *args: made.append(args[1]) or table(self, *args))
    cross_terms(members, symmetry, None, np.random.default_rng(0))
    of_exchanges, of_draws = len(members), len(members) - 1
    # of the second of three, given the third where it is as well; of prices; and wherever it would lie, for either sign
    of_others_to_come = 1 + 1 + 2
    assert len(made) == (of_exchanges + of_draws + of_others_to_come) * len(symmetry.groups)


def test_cross_terms_do_not_depend_on_what_members_are_called():
    members, symmetry = gaussians("three shards")
    prior = NaturalGaussian.of(DiagonalGaussian({"m": np.zeros(3)}, {"m": np.full(3, 30.0)}))
    moved = [q.apply(symmetry, symmetry.sample(jax.random.key(4))) for q in members]
    one, other = (cross_terms(some, symmetry, prior, np.random.default_rng(0)) for some in (members, moved))
    assert one.share == pytest.approx(other.share)


@pytest.mark.parametrize("name", ["two shards", "signs"])
def test_the_labels_of_a_product_weigh_most(name):
    members, symmetry = gaussians(name)
    members = members[:2]
    found = merge(members, symmetry, how="product")
    every, one = symmetry.elements(), NaturalGaussian.of(found.members[0])
    log_weights = [
        one.plus(
            NaturalGaussian.of(found.members[1].apply(symmetry, jax.tree.map(lambda x, k=k: x[k], every)))
        ).log_partition()
        for k in range(len(jax.tree.leaves(every)[0]))
    ]
    assert int(np.argmax(log_weights)) == 0


def test_a_barycentre_without_correlations_is_that_of_correlated_ones():
    members, symmetry = gaussians("two groups")
    small = [DiagonalGaussian({"m": q.loc["out"]}, {"m": q.scale["out"]}) for q in members]
    one = merge(small, ONE, how="barycenter").merged
    other = merge([full(q) for q in small], ONE, how=Barycenter()).merged.diagonal()
    np.testing.assert_allclose(one.loc["m"], other.loc["m"])
    np.testing.assert_allclose(one.scale["m"], other.scale["m"], rtol=1e-6)


def test_a_barycentre_of_covariances_is_the_mean_of_its_transports():
    rng = np.random.default_rng(0)
    some = [(lambda x: x @ x.T)(rng.normal(size=(4, 6))) for _ in range(3)]
    found = barycentre_of_covariances(some)
    root = scipy.linalg.sqrtm(found)
    np.testing.assert_allclose(found, np.mean([scipy.linalg.sqrtm(root @ c @ root).real for c in some], 0), rtol=1e-6)


# ---- what is refused ---------------------------------------------------------------------------------------------

GOOD = points(0, 0.1)
POSTERIORS = [DiagonalGaussian({"m": np.arange(3.0)}, {"m": np.ones(3)})] * 2
REFUSED = {
    "none": (lambda: merge([], NETWORK), SymmetryError, "no solutions"),
    "no list": (lambda: merge(GOOD[0], NETWORK), TypeError, "solutions must be a list"),
    "a class": (lambda: merge(POSTERIORS, ONE, how=Product), ValueError, "how must be one of"),
    "symmetry": (lambda: merge(GOOD, {"in": ("first",)}), TypeError, "symmetry must be a Symmetry"),
    "a function": (
        lambda: merge(GOOD, spread_of),
        TypeError,
        r"got the function spread_of.*find_symmetry\(function, \(params, x\), argnum=0\)",
    ),
    "one stacked tree": (
        lambda: merge(
            [{"in": np.ones((4, 2, 3))}, {"out": np.ones((4, 3))}], Symmetry({"0.in": (None, "u"), "1.out": ("u",)})
        ),
        SymmetryError,
        r"solutions is one tree, that holds the sites \['0.in', '1.out'\] itself; .*x\[k\], stacked",
    ),
    "bytes": (lambda: merge([b"0", b"1"], NETWORK), SymmetryError, "Solution 0: .*flax.serialization.from_bytes"),
    "bytes alone": (lambda: merge(b"01", NETWORK), TypeError, "solutions must be a list"),
    "files": (lambda: merge(["a.msgpack"], NETWORK), SymmetryError, "got str. Load the file first"),
    "a tree without its outer key": (
        lambda: merge(GOOD, Symmetry({f"params.{site}": axes for site, axes in NETWORK.axes.items()})),
        SymmetryError,
        "with its outer key 'params'",
    ),
    "a tree with an outer key": (
        lambda: merge([{"params": tree} for tree in GOOD], NETWORK),
        SymmetryError,
        "without its outer key 'params'",
    ),
    "a tree written flat": (
        lambda: merge(
            [{f"net/{site}": value for site, value in tree.items()} for tree in GOOD],
            Symmetry({f"net.{site}": axes for site, axes in NETWORK.axes.items()}),
        ),
        SymmetryError,
        "put them back into the tree",
    ),
    "structure": (
        lambda: merge([{"p": GOOD[0]}, {"p": {k: v for k, v in GOOD[0].items() if k != "mid"}}], NETWORK),
        SymmetryError,
        "'p.mid' is in solution 0 alone",
    ),
    "sites": (
        lambda: merge([GOOD[0], {"in": GOOD[0]["in"]}], NETWORK),
        SymmetryError,
        "'mid', 'out' are in solution 0",
    ),
    "shape": (lambda: merge([GOOD[0], GOOD[1] | {"out": np.ones(4)}], NETWORK), SymmetryError, "Site 'out' has shape"),
    "NaN": (
        lambda: merge([GOOD[0], GOOD[1] | {"out": np.full(3, np.nan)}], NETWORK),
        SymmetryError,
        "Solution 1: Site 'out' of the solution holds 3 non-finite",
    ),
    "a prior of labels": (
        lambda: merge(POSTERIORS, ONE, how=Product(DiagonalGaussian({"m": np.arange(3.0)}, {"m": np.full(3, 9.0)}))),
        SymmetryError,
        "prior= changes when units of 'unit'",
    ),
    "a narrow prior": (
        lambda: merge(POSTERIORS, ONE, how=Product(DiagonalGaussian({"m": np.zeros(3)}, {"m": np.full(3, 0.1)}))),
        SymmetryError,
        "nowhere wider than prior",
    ),
    "a complement": (
        lambda: merge(
            [DiagonalGaussian({"p": np.array([0.3, 0.4])}, {"p": np.ones(2)})] * 2,
            Symmetry({"p": (Complement("k"), None)}),
            how="product",
        ),
        SymmetryError,
        "no Complement",
    ),
    "under jit": (lambda: jax.jit(lambda x: merge([x, x], ONE))({"m": jnp.ones(3)}), TypeError, "merge needs numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call()


TRACE = np.random.default_rng(0).standard_normal((2, 50, 3))
OF_DRAWS = {
    "of a mixture": (Symmetry.mixture("m"), {"m": TRACE}),
    "of plain entries": (ONE, {"m": TRACE}),
    "flat": (ONE, {"m": TRACE[0]}),
    "a Dataset": (ONE, xr.Dataset({"m": (("chain", "draw", "unit"), TRACE)})),
    "a Gaussian of one dimension too few": (ONE, DiagonalGaussian.fit({"m": TRACE})),
    "what rebase returned": (ONE, rebase({"m": TRACE}, ONE, null=False)),
    "a container": (ONE, to_container({"posterior": {"m": TRACE}})),
}


@pytest.mark.parametrize("name", OF_DRAWS)
def test_draws_are_no_points(name):
    symmetry, draws = OF_DRAWS[name]
    for call in (lambda: merge([draws, draws], symmetry), lambda: match(draws, draws, symmetry)):
        with pytest.raises(SymmetryError, match=r"draws.*expected a point|[Ee]xpected a point.*draws") as told:
            call()
        assert "rebase` brings draws to common labels" in str(told.value)


def test_a_point_may_have_axes_of_its_own_in_front():
    symmetry = Symmetry({"m": (None, None, "unit")})
    shift = TRACE[..., [1, 2, 0]]
    np.testing.assert_allclose(merge([{"m": TRACE}, {"m": shift}], symmetry).merged["m"], TRACE)
    assert match({"m": TRACE}, {"m": shift}, symmetry).element["unit"].tolist() == [2, 0, 1]


def test_whole_numbers_have_no_mean():
    symmetry = Symmetry.mixture("loc")
    differing = {"loc": np.array([1, 5, 9])}, {"loc": np.array([9.5, 2.5, 6.5])}
    for members in (differing, ({"loc": np.array([1, 5, 9])}, {"loc": np.array([9, 2, 6])})):
        with pytest.raises(SymmetryError, match="'loc' holds values of type int64.*Pass floats"):
            merge(members, symmetry)
    # a tree's are those of the first, in its labels
    trees = [{"a": {"w": np.array([0.0, 3.0]), "mask": np.array([True, False])}}, None]
    trees[1] = {"a": {"w": np.array([3.5, 0.5]), "mask": np.array([True, True])}}
    merged = merge(trees, Symmetry({"a.w": ("u",), "a.mask": ("u",)})).merged["a"]
    assert merged["mask"].tolist() == [True, False]
    np.testing.assert_allclose(merged["w"], [0.25, 3.25])


@pytest.mark.parametrize("kept", [lambda x: pd.Series(x, dtype="Float64"), lambda x: pd.DataFrame({"c": x})])
def test_tables_within_a_tree_that_differ_are_told(kept):
    members = [{"net": {"w": np.array(x), "table": kept(x)}} for x in ([1.0, 2.0, 3.0], [3.0, 1.0, 2.0])]
    with pytest.warns(SymmetryWarning, match=r"Tables at \['net.table'\] differ .* column.to_numpy\(float\)"):
        found = merge(members, Symmetry({"net.w": ("u",)}))
    assert found.merged["net"]["table"].equals(members[0]["net"]["table"])


def test_settings_that_differ_are_told():
    def tree(setting, seed):
        rng = np.random.default_rng(seed)
        return {"net": {"in": rng.normal(size=(2, 3)), "out": rng.normal(size=3)}, "scale": setting}

    symmetry = Symmetry({"net.in": (None, "h"), "net.out": ("h",)})
    with pytest.warns(SymmetryWarning, match=r"\['scale'\] differ between solution 0 and solution 1.*jnp.asarray"):
        assert merge([tree(0.5, 0), tree(1.5, 1)], symmetry, progress_bar=False).merged["scale"] == 0.5
    found = merge([tree(jnp.asarray(0.5), 0), tree(jnp.asarray(1.5), 1)], symmetry, progress_bar=False)
    assert found.merged["scale"] == 1.0
    with pytest.warns(SymmetryWarning, match="differ between the first end and the second"):
        loss_barrier(lambda tree: tree["net"]["out"].sum()[None], tree(0.5, 0), tree(1.5, 1), progress_bar=False)
    merge([tree(0.5, 0), tree(0.5, 1)], symmetry, progress_bar=False)


@pytest.mark.parametrize("cell", range(4))
def test_a_prior_that_tells_units_of_any_one_cell_apart_is_refused(cell):
    symmetry, loc = Symmetry({"x": ("cell", "cell/unit")}, {"cell": "fixed"}), np.zeros((4, 3))
    loc[cell, 0] = 2.0
    members = [
        DiagonalGaussian({"x": np.random.default_rng(0).normal(size=(4, 3))}, {"x": np.full((4, 3), 0.5)})
        for _ in range(2)
    ]
    with pytest.raises(SymmetryError, match="units of 'cell/unit' are exchanged"):
        merge(members, symmetry, how=Product(prior=DiagonalGaussian({"x": loc}, {"x": np.ones((4, 3))})))


@pytest.mark.parametrize(("num_units", "least"), [(3, -12.0), (8, -12.0), (8, -1e12)])
def test_circles_are_drawn_though_each_exchange_on_the_way_is_unlikely(num_units, least):
    table = np.full((num_units, num_units), -12.0)
    table[2, 1] = least
    table[np.arange(num_units), np.arange(num_units)] = table[[0, 1, 2], [1, 2, 0]] = 0.0
    part, log_prob = draws_of_labels._drawn(table, None, np.random.default_rng(0), 2000)
    in_a_circle = (part.permutation == [1, 2, 0, *range(3, num_units)]).all(-1)
    np.testing.assert_allclose(in_a_circle.mean(), 0.5, atol=4 * 0.5 / math.sqrt(2000))
    np.testing.assert_allclose(log_prob, math.log(0.5), atol=1e-4)


def test_each_unit_is_weighed_by_the_best_labels_in_which_the_first_slot_has_it():
    rng, every = np.random.default_rng(0), np.array(list(itertools.permutations(range(5))))
    tables = rng.normal(size=(20, 5, 5))
    totals = tables[:, np.arange(5), every].sum(-1)
    best = every[totals.argmax(-1)]
    weights = np.take_along_axis(tables, best[:, None, :], 2)
    own = weights.diagonal(0, 1, 2)
    back, following = draws_of_labels._best_ways(weights - own[..., None], weights[..., 0] - own, 1e-9)
    for k in range(5):
        with_it = np.where(every[:, 0] == best[:, [k]], totals, -np.inf)
        gained = weights[:, 0, k] - own[:, 0] + back[:, k]
        np.testing.assert_allclose(gained, with_it.max(-1) - totals.max(-1), atol=1e-12)
        turned = draws_of_labels._turned(best, following, np.full(20, k))
        np.testing.assert_array_equal(turned, every[with_it.argmax(-1)])


def test_a_way_that_never_comes_back_is_an_exchange():
    units, following = np.arange(4)[None], np.array([[0, 2, 1, 0]])
    assert draws_of_labels._turned(units, following, np.array([1])).tolist() == [[1, 0, 2, 3]]
    assert draws_of_labels._turned(units, following, np.array([3])).tolist() == [[3, 1, 2, 0]]
