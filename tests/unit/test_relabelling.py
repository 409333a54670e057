"""Relabelling against twins that try every permutation, and the laws of its objective."""

import itertools

import jax
import numpy as np
import pytest

from numpyro_symmetry import (
    AllocationCost,
    EuclideanCost,
    GaussianCost,
    StephensCost,
    Symmetry,
    SymmetryError,
    rebase,
)
from numpyro_symmetry.assignment.family import Side, mean_statistics, objective_of, problem_of
from numpyro_symmetry.traces.margin import margins
from numpyro_symmetry.traces.relabel import SearchEffort, relabel, search
from tests.support import oracles, traces
from tests.support.tables import every_relabelling_cost


def family_of(cost, values, symmetry, num_leading_dims=2):
    bound = symmetry.bind(values, num_leading_dims=num_leading_dims)
    draws = {s: v.reshape(-1, *v.shape[num_leading_dims:]) for s, v in values.items()}
    leading = next(iter(values.values())).shape[:num_leading_dims]
    return cost.family(Side(draws, leading=leading), bound), bound


def overlapping(size, draws=60, seed=0, data=25):
    """Allocation probabilities of a few data under components that overlap."""
    rng = np.random.default_rng(seed)
    loc = np.arange(size) + 0.5 * rng.standard_normal((draws, size))
    loc = rng.permuted(loc, axis=-1)
    y = rng.uniform(-1, size, data)
    density = np.exp(-0.5 * (y[:, None] - loc[:, None]) ** 2)
    p = density / density.sum(-1, keepdims=True)
    z = (rng.uniform(size=(draws, data, 1)) > p.cumsum(-1)).sum(-1)
    return {"loc": loc}, p, np.minimum(z, size - 1)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("start", [0, 7])
def test_stephens_algorithm_over_all_permutations_gives_the_same_labels(size, start):
    values, p, _ = overlapping(size)
    family, bound = family_of(StephensCost(p), values, Symmetry.mixture("loc"), 1)
    found = relabel(family, bound.groups, family.point(start))
    labels, criterion = oracles.stephens(p, start)
    assert (found.state["component"].permutation == labels).all()
    assert -objective_of(family, bound.groups, found.state) == pytest.approx(criterion, rel=1e-9)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("start", [0, 7])
def test_the_iterated_pivot_over_all_permutations_gives_the_same_labels(size, start):
    # data and a seed for which no two permutations tie
    values, _, z = overlapping(size, draws=40, data=400, seed=1)
    family, bound = family_of(AllocationCost(z), values, Symmetry.mixture("loc"), 1)
    found = relabel(family, bound.groups, family.point(start))
    labels, agreeing = oracles.iterated_pivot(z, size, start)
    assert objective_of(family, bound.groups, found.state) + z.shape[1] == pytest.approx(agreeing, abs=1e-9)
    assert (found.state["component"].permutation == labels).all()


@pytest.mark.parametrize("cost", [EuclideanCost(), GaussianCost(), EuclideanCost("auto", standardize=False)])
@pytest.mark.parametrize("separation", [0.0, 1.0, 6.0])
def test_the_objective_never_falls_and_equals_the_likelihood_written_out(cost, separation):
    values, _ = traces.mixture(separation=separation, draws=50)
    family, bound = family_of(cost, values, traces.MIXTURE)
    start = family.point(0)
    means = [relabel(family, bound.groups, start, max_rounds=k).objective.mean() for k in range(1, 8)]
    assert all(b >= a - 1e-9 * abs(a) for a, b in zip(means[1:], means[2:], strict=False))
    found = relabel(family, bound.groups, start)
    assert found.converged
    permutation = found.state["component"].permutation
    draws = {s: v.reshape(-1, 3) for s, v in values.items()}
    total = np.zeros(len(permutation))
    for site, read in family.coordinates.items():
        x = np.take_along_axis(read(draws[site]), permutation, 1)
        variance = x.var(0) if isinstance(cost, GaussianCost) else np.ones(3)
        log_scale = 0.5 * np.log(variance) if isinstance(cost, GaussianCost) else 0.0
        total += (-0.5 * (x - x.mean(0)) ** 2 / variance - log_scale).sum(1)
    assert objective_of(family, bound.groups, found.state) == pytest.approx(total.mean(), rel=1e-9)


@pytest.mark.parametrize("size", [1, 4])
def test_what_has_settled_is_what_the_likeliest_parameters_say(size):
    # with one unit, nothing but signs can change
    values, _ = traces.tanh_units(size=size, noise=3.0)
    family, bound = family_of(EuclideanCost(), values, traces.TANH, 1)
    found = relabel(family, bound.groups, family.point(0))
    assert found.converged
    assert found.num_rounds > 3
    own = family.natural(mean_statistics(family, bound.groups, found.state))
    again = relabel(family, bound.groups, own, max_rounds=1)
    for now, then in zip(again.state["hidden"], found.state["hidden"], strict=True):
        np.testing.assert_array_equal(now, then)


def test_rounds_are_counted_from_one_and_each_takes_the_parameters_of_the_last():
    values, p, _ = overlapping(4)
    family, bound = family_of(StephensCost(p), values, Symmetry.mixture("loc"), 1)
    one, two = (relabel(family, bound.groups, family.point(0), max_rounds=count) for count in (1, 2))
    assert (one.num_rounds, one.converged) == (1, True)
    assert two.num_rounds == 2
    then = family.natural(mean_statistics(family, bound.groups, one.state))
    assert two.state["component"].is_same(relabel(family, bound.groups, then, max_rounds=1).state["component"]).all()


@pytest.mark.parametrize("seed", range(3))
def test_where_matching_is_local_no_draw_gets_worse_either(seed):
    from tests.support import networks

    shapes, symmetry = networks.mlp([2, 10, 10, 1])
    _, draws, _ = networks.planted(shapes, symmetry, 3.0, 60, seed=seed)
    family, bound = family_of(EuclideanCost(), draws, symmetry, 1)
    start = family.point(0)
    rounds = [relabel(family, bound.groups, start, SearchEffort("descent"), max_rounds=k) for k in range(2, 9)]
    for before, after in itertools.pairwise(rounds):
        assert after.objective.mean() >= before.objective.mean() - 1e-9
        problem, _ = problem_of(family, bound.groups, after.natural, slice(None))
        assert (problem.score(after.state) >= problem.score(before.state) - 1e-9).all()


@pytest.mark.parametrize("cost", [EuclideanCost(), GaussianCost()], ids=["euclidean", "gaussian"])
def test_of_several_starts_the_likeliest_end_is_taken(cost):
    values, _ = traces.mixture(chains=1, draws=200, separation=1.0, size=5)
    family, bound = family_of(cost, values, traces.MIXTURE)
    starts = [3, 50, 120]
    ends = [relabel(family, bound.groups, family.point(k)).objective.mean() for k in starts]
    assert max(ends) > min(ends) + 1e-3
    for order in (starts, starts[::-1]):
        found = search(family, bound.groups, order, SearchEffort(), np.random.default_rng(0))
        assert found.objective.mean() == pytest.approx(max(ends), rel=1e-9)


def test_searches_look_at_some_draws_and_the_best_ends_labels_all(monkeypatch):
    values, _ = traces.mixture(chains=1, draws=300, separation=1.0, size=4)
    cost, starts = EuclideanCost(), [3, 50, 120]
    family, bound = family_of(cost, values, traces.MIXTURE)
    draws = {site: value[0] for site, value in values.items()}
    some = np.sort(np.random.default_rng(0).permutation(300)[:20])
    thin = cost.family(Side({s: v[some] for s, v in draws.items()}, leading=(20,)), bound, family.coordinates)
    ends = [relabel(thin, bound.groups, family.point(k)) for k in starts]
    best = max(ends, key=lambda end: end.objective.mean())
    expected = relabel(family, bound.groups, family.natural(mean_statistics(thin, bound.groups, best.state)))
    monkeypatch.setattr("numpyro_symmetry.traces.relabel._MAX_DRAWS_TO_START", 20)
    found = search(family, bound.groups, starts, SearchEffort(), np.random.default_rng(0))
    assert len(found.objective) == 300
    np.testing.assert_array_equal(found.state["component"].permutation, expected.state["component"].permutation)


@pytest.mark.parametrize("signed", [False, True])
@every_relabelling_cost
def test_the_margin_is_that_of_the_second_best_of_all_labels(signed, cost):
    values, _ = traces.tanh_units(draws=12, size=3, noise=1.0)
    symmetry = Symmetry.mlp([("w1", "b1"), ("w2", None)], kind="signed" if signed else "permutation")
    family, bound = family_of(cost, values, symmetry, 1)
    found = relabel(family, bound.groups, family.point(0))
    problem, _ = problem_of(family, found.state and bound.groups, found.natural, slice(None))
    ours = margins(problem, found.state)
    statistics = family.statistics(slice(None))
    for k in range(12):

        def worth(s, c, k=k):
            total = 0.0
            for name, x in statistics.items():
                eta, axes = found.natural[name], family.axes[name]
                axis = next(i for i, a in enumerate(axes) if a.group)
                moved = np.moveaxis(x[k].take(s, axis), axis, -1) * (c if axes[axis].signed else 1)
                total += (np.moveaxis(moved, -1, axis) * eta).sum()
            return total

        assert ours[k] == pytest.approx(oracles.second_best(worth, 3, signed), rel=1e-6, abs=1e-9)


# there are 48 elements with signs, and 6 without
@pytest.mark.parametrize("most", [1, 48], ids=["exchanges", "all elements"])
@pytest.mark.parametrize("kind", ["permutation", "signed"])
def test_on_two_axes_the_margin_is_that_of_all_elements_or_of_the_best_exchange_or_flip(kind, most, monkeypatch):
    monkeypatch.setattr("numpyro_symmetry.traces.margin.MAX_ELEMENTS", most)
    rng = np.random.default_rng(0)
    centre = {"loc": rng.normal(size=3), "coupling": rng.normal(size=(3, 3))}
    values = {site: value + rng.normal(size=(12, *value.shape)) for site, value in centre.items()}
    symmetry = Symmetry({"loc": ("unit",), "coupling": ("unit", "unit")}, {"unit": kind})
    family, bound = family_of(EuclideanCost(), values, symmetry, 1)
    found = relabel(family, bound.groups, family.point(0))
    problem, statistics = problem_of(family, bound.groups, found.natural, slice(None))
    ours, (loc, coupling) = margins(problem, found.state), statistics.values()

    def worth(k, s, c):
        eta_loc, eta_coupling = found.natural.values()
        return (eta_loc * c * loc[k, s]).sum() + (eta_coupling * np.outer(c, c) * coupling[k][np.ix_(s, s)]).sum()

    for k in range(12):
        s = found.state["unit"].permutation[k]
        c = np.ones(3) if kind == "permutation" else found.state["unit"].sign[k]
        orders = ([1, 0, 2], [2, 1, 0], [0, 2, 1])
        others = [worth(k, s[order], c[order]) for order in orders]
        if kind == "signed":
            others += [worth(k, s, c * flip) for flip in 1 - 2 * np.eye(3)]
        if most > 1:
            signs = [np.ones(3)] if kind == "permutation" else map(np.array, itertools.product((1, -1), repeat=3))
            every = itertools.product(map(list, itertools.permutations(range(3))), list(signs))
            others = [worth(k, p, f) for p, f in every if not ((p == s).all() and (f == c).all())]
        assert ours[k] == pytest.approx(worth(k, s, c) - max(others), rel=1e-9, abs=1e-9)


def test_above_the_exact_size_the_margin_is_that_of_the_best_exchange(monkeypatch):
    values, _ = traces.mixture(draws=30, separation=1.0, size=4)
    family, bound = family_of(EuclideanCost(), values, traces.MIXTURE)
    found = relabel(family, bound.groups, family.point(0))
    problem, _ = problem_of(family, bound.groups, found.natural, slice(None))
    exact = margins(problem, found.state)
    monkeypatch.setattr("numpyro_symmetry.traces.margin.MAX_EXACT", 4)
    np.testing.assert_array_equal(margins(problem, found.state), exact)
    monkeypatch.setattr("numpyro_symmetry.traces.margin.MAX_EXACT", 3)
    (name, here), others = *found.state.items(), []
    for i, j in itertools.combinations(range(4), 2):
        order = np.arange(4)
        order[[i, j]] = j, i
        others.append(problem.score({name: here.each(lambda x, order=order: x[:, order])}))
    best = problem.score(found.state) - np.max(others, 0)
    np.testing.assert_allclose(margins(problem, found.state), best, rtol=1e-9)
    assert (best > exact + 1e-9).any()


def test_a_group_on_both_axes_of_a_site_moves_both_and_recovers_the_states():
    switched, true, labels = traces.hmm()
    out = rebase(switched, traces.HMM, order_by="loc", null=False)
    for site in true:
        np.testing.assert_array_equal(out.data[site], true[site])
    assert (np.asarray(out.elements["state"]) == np.argsort(labels, -1)).all()
    assert (out.margin > 0).all()


def test_transitions_alone_tell_states_apart_too():
    switched, true, _ = traces.hmm()
    out = rebase({"transition": switched["transition"]}, Symmetry({"transition": ("state", "state")}), null=False)
    within = out.data["transition"].reshape(-1, 9).std(0).max()
    assert within < 1.05 * true["transition"].reshape(-1, 9).std(0).max()


def test_signs_are_recovered_with_permutations():
    switched, true = traces.tanh_units()
    out = rebase(switched, traces.TANH, null=False)
    for site in true:
        np.testing.assert_allclose(out.data[site].std(0).max(), true[site].std(0).max(), rtol=1e-9)
    unsigned = rebase(switched, Symmetry.mlp([("w1", "b1"), ("w2", None)]), null=False)
    assert unsigned.data["w1"].std(0).max() > 2 * out.data["w1"].std(0).max()


@pytest.mark.parametrize("reference", ["first", "medoid", 7, "values of 7"])
def test_a_draw_for_reference_keeps_its_signs_too(reference):
    switched, true = traces.tanh_units()
    values_of_7 = {site: value[7] for site, value in switched.items()}
    out = rebase(switched, traces.TANH, reference=values_of_7 if reference == "values of 7" else reference)
    index = {"first": 0, "medoid": out.objective.argmax()}.get(reference, 7)
    for site in true:
        np.testing.assert_array_equal(out.data[site][index], switched[site][index])
        np.testing.assert_allclose(out.data[site].std(0).max(), true[site].std(0).max(), rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_coupled_layers_are_rebased(dtype):
    from tests.support import networks

    shapes, symmetry = networks.mlp([3, 8, 8, 2])
    target, draws, _ = networks.planted(shapes, symmetry, 0.2, 40, dtype=dtype)
    out = rebase(draws, symmetry, null=False)
    inside = np.concatenate([out.data[s].std(0).ravel() for s in shapes])
    scales = np.concatenate([np.full(v.size, 0.2 * np.sqrt((v**2).mean())) for v in target.values()])
    assert np.median(inside / scales) < 1.1
    assert out.data["w1"].dtype == dtype


def test_relabelled_sources_end_alike_whatever_labels_they_came_with():
    values, _ = traces.mixture(separation=2.0)
    bound = traces.MIXTURE.bind(values, num_leading_dims=2)
    g = bound.sample(jax.random.key(5), (4, 200))
    again = {s: np.take_along_axis(v, np.asarray(g["component"]), -1) for s, v in values.items()}
    # the first draw names the labels, so it keeps its own
    for s in values:
        again[s][0, 0] = values[s][0, 0]
    first, second = (rebase(v, traces.MIXTURE, num_starts=1) for v in (values, again))
    assert first.objective.mean() == pytest.approx(second.objective.mean(), rel=1e-9)
    np.testing.assert_allclose(first.data["loc"], second.data["loc"])


def test_rebasing_what_is_rebased_changes_nothing():
    values, _ = traces.mixture(separation=3.0)
    once = rebase(values, traces.MIXTURE, order_by="loc", null=False)
    twice = rebase(once.data, traces.MIXTURE, order_by="loc", null=False)
    for s in values:
        np.testing.assert_array_equal(once.data[s], twice.data[s])


def test_spread_decides_where_means_do_not():
    # two slots of one mean and different spread: only variances tell the pairs (loc, scale) apart
    rng = np.random.default_rng(0)
    loc = rng.standard_normal((500, 2)) * [0.1, 3.0]
    other = rng.standard_normal((500, 2)) * [3.0, 0.1]
    labels = rng.permuted(np.broadcast_to([0, 1], (500, 2)), axis=1)
    values = {"a": np.take_along_axis(loc, labels, 1), "b": np.take_along_axis(other, labels, 1)}

    def wrong(cost):
        out = rebase(values, Symmetry.mixture("a", "b"), cost=cost, num_leading_dims=1)
        same = (np.take_along_axis(labels, np.asarray(out.elements["component"]), 1) == [0, 1]).all(1).mean()
        return min(same, 1 - same)

    assert wrong(GaussianCost()) < 0.01
    assert wrong(EuclideanCost()) > 0.2


@pytest.mark.parametrize(("wide", "narrow"), [(10.0, 0.1), (2.0, 0.3)])
@pytest.mark.parametrize("seed", range(3))
def test_one_wide_slot_among_narrow_ones_is_found(seed, wide, narrow):
    # from spreads that are alike every search ends with the draws in order of size: the widest two slots share the wide
    rng = np.random.default_rng(seed)
    own = rng.standard_normal((600, 3)) * [wide, narrow, narrow] + [0.0, -1.0, 1.0]
    values = {"loc": rng.permuted(own, axis=1)}
    out = rebase(values, Symmetry.mixture("loc"), cost=GaussianCost(), num_leading_dims=1, order_by="loc")
    np.testing.assert_allclose(np.sort(out.data["loc"].std(0)), [narrow, narrow, wide], rtol=0.2)


def test_narrow_slots_are_told_apart_however_far_off_a_third_one_is():
    rng = np.random.default_rng(0)
    loc = rng.standard_normal((600, 3)) * [5.0, 5.0, 1e3] + [-20.0, 20.0, 1e6]
    # labels by the weights alone would mix the first two
    weight = 0.1 * rng.standard_normal((600, 3)) + [0.3, 0.3, 0.4]
    labels = rng.permuted(np.broadcast_to(np.arange(3), (600, 3)), axis=1)
    values = {name: np.take_along_axis(x, labels, 1) for name, x in {"loc": loc, "weight": weight}.items()}
    out = rebase(values, Symmetry.mixture("loc", "weight"), num_leading_dims=1)
    np.testing.assert_allclose(np.sort(out.data["loc"].std(0)), [5.0, 5.0, 1e3], rtol=0.15)


@pytest.mark.parametrize("size", [0.0, 1e-4], ids=["exact", "nearly"])
@pytest.mark.parametrize("seed", range(3))
def test_zeros_are_not_collected_in_one_slot(seed, size):
    # a likelihood of no spread has no bound: it would pay for all zeros in one slot, whatever else the labels say
    rng = np.random.default_rng(seed)
    own = rng.standard_normal((400, 3)) * 0.5 + [-2.0, 0.0, 2.0]
    off = np.where(rng.integers(3, size=400)[:, None] == np.arange(3), size, 1.0) * rng.standard_normal((400, 3))
    labels = rng.permuted(np.broadcast_to(np.arange(3), (400, 3)), axis=1)
    values = {name: np.take_along_axis(x, labels, 1) for name, x in {"loc": own, "weight": off}.items()}
    out = rebase(values, Symmetry.mixture("loc", "weight"), cost=GaussianCost(), num_leading_dims=1, order_by="loc")
    found = np.take_along_axis(labels, np.asarray(out.elements["component"]), 1)
    assert (found == np.arange(3)).mean() > 0.98


def test_logs_are_taken_where_they_fit():
    values, _ = traces.mixture()
    _, bound = family_of(GaussianCost(), values, traces.MIXTURE)
    draws = {s: v.reshape(-1, 3) for s, v in values.items()}
    draws["scale"] = np.exp(3 * np.log(draws["scale"]))
    # positive, and not the more normal for a logarithm
    draws["loc"] = draws["loc"] - draws["loc"].min() + 1.0
    found = GaussianCost().family(Side(draws, leading=(len(draws["loc"]),)), bound).coordinates
    assert {s: c.transform for s, c in found.items()} == {"weights": "log", "loc": "identity", "scale": "log"}
    for site, read in found.items():
        x = read(draws[site])
        assert abs(x.mean()) < 1e-9
        assert x.std() == pytest.approx(1.0)


def test_a_sign_moves_coordinates_about_zero():
    values = {site: value + 3.0 for site, value in traces.tanh_units()[0].items()}
    for cost in (EuclideanCost(), GaussianCost("identity")):
        for site, read in family_of(cost, values, traces.TANH, 1)[0].coordinates.items():
            np.testing.assert_array_equal(read(-values[site]), -read(values[site]))


@pytest.mark.parametrize("cost", [GaussianCost(), EuclideanCost("auto")])
def test_draws_of_one_sign_are_not_compared_by_their_logarithms(cost):
    rng = np.random.default_rng(0)
    values = {site: np.exp(0.5 * rng.standard_normal((300, 2))) + [[0.0, 3.0]] for site in ("w1", "w2")}
    symmetry = Symmetry({"w1": ("unit",), "w2": ("unit",)}, kinds={"unit": "signed"})
    out = rebase(values, symmetry, cost=cost, num_leading_dims=1, null=False)
    assert out.frame is not None
    assert {read.transform for read in out.frame.read.values()} == {"identity"}
    assert (out.data["w1"] * np.sign(out.data["w1"][:1]) > 0).all()
    with pytest.raises(SymmetryError, match="'w1' may change its sign in this symmetry; its transform cannot be 'log'"):
        rebase(values, symmetry, cost=GaussianCost({"w1": "log"}), num_leading_dims=1)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (lambda p, z: StephensCost(p * 2), "sum to one"),
        (lambda p, z: StephensCost(p[:5]), "leading dimensions"),
        (lambda p, z: AllocationCost(z + 1), "integers from 0 to 2"),
        (lambda p, z: AllocationCost(z.astype(float)), "integers"),
        (lambda p, z: StephensCost(p, group="state"), "name one of"),
        (lambda p, z: GaussianCost({"loc": "log"}), "not positive"),
        (lambda p, z: GaussianCost({"mean": "log"}), "names sites"),
    ],
)
def test_costs_refuse_what_they_cannot_read(cost, message):
    values, p, z = overlapping(3)
    with pytest.raises(SymmetryError, match=message):
        rebase({"loc": values["loc"] - 5}, Symmetry.mixture("loc"), cost=cost(p, z), num_leading_dims=1)


def test_labels_of_data_carry_no_sign():
    switched, _ = traces.tanh_units()
    with pytest.raises(SymmetryError, match="carry no sign"):
        rebase(switched, traces.TANH, cost=AllocationCost(np.zeros((300, 5), int)))
