"""match: planted and brute-force optima, ties, equivariance, costs and what it refuses."""

import dataclasses
import itertools
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from numpyro_symmetry import (
    ActivationCost,
    DiagonalGaussian,
    FullGaussian,
    Symmetry,
    SymmetryError,
    compose,
    inverse,
    match,
    merge,
    rebase,
)
from numpyro_symmetry.assignment import assign, frank_wolfe, linear, solve
from numpyro_symmetry.assignment.descent import descend
from numpyro_symmetry.assignment.family import Side, problem_of
from numpyro_symmetry.assignment.problem import barycentre
from numpyro_symmetry.matching.costs import COSTS
from numpyro_symmetry.symmetry import SignedPermutation
from numpyro_symmetry.symmetry.hard import products
from tests.support import networks, oracles
from tests.support.tables import every_matching_cost

ONE = Symmetry({"w1": (None, "hidden"), "b1": ("hidden",), "w2": ("hidden", None)})
HMM = Symmetry.hmm(initial="pi", transition="A", emissions=["loc"])
FACTOR = Symmetry.factor("loadings", "scores")
SIGNED = Symmetry({"a": (None, "g"), "b": ("g", "h"), "c": ("h", None)}, {"g": "signed", "h": "signed"})
SHAPES = {
    "one": (ONE, {"w1": (3, 5), "b1": (5,), "w2": (5, 2)}),
    "two": (networks.mlp([2, 4, 3, 1])[1], networks.mlp([2, 4, 3, 1])[0]),
    "residual": (networks.residual(2, 3, 2, 1)[1], networks.residual(2, 3, 2, 1)[0]),
    "hmm": (HMM, {"pi": (4,), "A": (4, 4), "loc": (4, 2)}),
    "factor": (FACTOR, {"loadings": (6, 3), "scores": (7, 3)}),
    "apart": (Symmetry({"a": ("left", None), "b": (None, "right")}), {"a": (4, 2), "b": (3, 4)}),
    # too many elements to enumerate: a group paired with itself, three groups in a term, and signs
    "wide hmm": (HMM, {"pi": (7,), "A": (7, 7), "loc": (7, 2)}),
    "three": (Symmetry({"a": ("g", "h", "k"), "b": ("g", None)}), {"a": (5, 5, 4), "b": (5, 2)}),
    "signed": (SIGNED, {"a": (2, 5), "b": (5, 5), "c": (5, 2)}),
    "wide": (networks.mlp([3, 20, 18, 2])[1], networks.mlp([3, 20, 18, 2])[0]),
}

LARGE = ["wide hmm", "three", "signed"]
METHODS = ["auto", "descent", "frank_wolfe", "thorough"]


def draw(name, seed, lead=(), dtype=np.float64):
    rng = np.random.default_rng(seed)
    return {site: rng.normal(size=lead + shape).astype(dtype) for site, shape in SHAPES[name][1].items()}


def distance(target, values):
    """Squared distance by a plain loop over sites, float64."""
    return sum(((np.asarray(target[s], float) - np.asarray(values[s], float)) ** 2).sum() for s in target)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("solver", ["auto", "scipy"])
def test_assign_is_the_best_of_all(n, solver):
    for seed in range(10):
        benefit = np.random.default_rng(seed).normal(size=(n, n))
        found = assign(benefit, solver=solver)
        best = max(itertools.permutations(range(n)), key=lambda p: sum(benefit[i, p[i]] for i in range(n)))
        assert tuple(found) == best
        assert (found == linear_sum_assignment(benefit, maximize=True)[1]).all()


def test_assign_is_batched_and_keeps_labels_on_ties():
    benefit = np.zeros((2, 3, 4, 4))
    assert (assign(benefit) == np.arange(4)).all()
    benefit[..., 0, 2] = benefit[..., 2, 0] = 1.0
    assert (assign(benefit.astype(np.float32)) == [2, 1, 0, 3]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_few_rows_are_assigned_as_solvers_do(n, dtype):
    """Also of benefits many of which are equal, and where rounding tells one sum of them from another."""
    benefit = (np.random.default_rng(0).integers(-1, 2, (300, n, n)) * 1e7 / 3).astype(dtype)
    found, solved = assign(benefit), assign(benefit, solver="scipy")
    totals, kept = (
        [
            [of(table[range(n), p], p) for table, p in zip(benefit.astype(float), each, strict=True)]
            for each in (found, solved)
        ]
        for of in (lambda worth, p: worth.sum(), lambda worth, p: (p == np.arange(n)).sum())
    )
    np.testing.assert_allclose(*totals, rtol=1e-12)
    np.testing.assert_array_equal(*kept)


@pytest.mark.parametrize(
    ("benefit", "options", "message"),
    [
        (np.full((2, 2), np.nan), {}, "finite"),
        (np.zeros((2, 3)), {}, "square"),
        (np.zeros((2, 2)), {"solver": "jonker"}, "solver must be one of"),
    ],
)
def test_assign_refuses(benefit, options, message):
    with pytest.raises(ValueError, match=message):
        assign(benefit, **options)


@pytest.mark.parametrize(
    ("name", "method"),
    [pair for pair in itertools.product(SHAPES, METHODS) if pair[0] not in LARGE or pair[1] in METHODS[1:3]],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_objective_is_what_it_says_and_never_falls(name, dtype, method):
    symmetry = SHAPES[name][0]
    target, source = draw(name, 0, dtype=dtype), draw(name, 1, (3,), dtype)
    found = match(target, source, symmetry, method=method)
    with jax.enable_x64():
        wide = {s: jnp.asarray(v, jnp.float64) for s, v in source.items()}
        moved = symmetry.bind(target).apply(found.element, wide)
    for k in range(3):
        scratch = -distance(target, {s: v[k] for s, v in moved.items()})
        before = -distance(target, {s: v[k] for s, v in source.items()})
        assert found.objective[k] == pytest.approx(scratch, rel=1e-12)
        assert found.objective_before[k] == pytest.approx(before, rel=1e-12)
        assert found.objective[k] >= before - 1e-9 * abs(before)
    assert found.converged.all()


@pytest.mark.parametrize("name", ["hmm", "factor"])
def test_the_barycentre_is_the_mean_of_all_elements(name):
    (group,) = SHAPES[name][0].bind(draw(name, 0)).groups.values()
    moved = np.eye(group.size)[list(itertools.permutations(range(group.size)))]
    mean = barycentre(group, 2, np.dtype(float))
    np.testing.assert_allclose(mean.even, [moved.mean(0)] * 2)
    # as many elements flip a unit as do not
    assert group.signed == (mean.odd is not None)
    assert not np.any(mean.odd)


@pytest.mark.parametrize("name", ["one", "two", "residual", "hmm", "factor", "apart"])
def test_small_groups_are_solved_to_the_optimum(name):
    symmetry = SHAPES[name][0].bind(draw(name, 0))
    for seed in range(6):
        target, source = draw(name, seed), draw(name, seed + 100)
        found = match(target, source, symmetry)
        best = oracles.best_match(symmetry, target, source)
        assert found.objective == pytest.approx(best, rel=1e-6)
        assert found.exact


def test_two_groups_of_four_reach_the_optimum():
    shapes, symmetry = networks.mlp([2, 4, 4, 1])
    rng = np.random.default_rng(0)
    target = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    source = {site: rng.normal(size=(200, *shape)) for site, shape in shapes.items()}
    found = match(target, source, symmetry)
    permutations = np.array(list(itertools.permutations(range(4))))
    w1, w2, w3 = (target[f"w{k}"] for k in (1, 2, 3))
    hits = 0
    for k in range(200):
        s = {site: value[k] for site, value in source.items()}
        first = np.array([(w1 * s["w1"][:, p]).sum() + target["b1"] @ s["b1"][p] for p in permutations])
        last = np.array([(w3 * s["w3"][p]).sum() + target["b2"] @ s["b2"][p] for p in permutations])
        both = np.array([[(w2 * s["w2"][np.ix_(p, r)]).sum() for r in permutations] for p in permutations])
        best = (first[:, None] + both + last).max()
        constant = sum((target[site] ** 2).sum() + (s[site] ** 2).sum() for site in target) - 2 * target["b3"] @ s["b3"]
        hits += found.objective[k] >= 2 * best - constant - 1e-9
    assert hits >= 190


PLANTED = {
    "1-D input, no noise": (networks.mlp([1, 50, 50, 1]), 0.0),
    "1-D input, noise": (networks.mlp([1, 50, 50, 1]), 0.3),
    "residual, no noise": (networks.residual(1, 50, 3, 1), 0.0),
    "residual, noise": (networks.residual(1, 50, 3, 1), 1.0),
}


def recovered(found, undo):
    return np.mean([(np.asarray(found.element[name]) == undo[name]).mean() for name in undo])


@pytest.mark.parametrize("case", PLANTED)
@pytest.mark.parametrize("method", ["auto", "descent"])
def test_recovers_planted_permutations(case, method):
    (shapes, symmetry), noise = PLANTED[case]
    target, source, undo = networks.planted(shapes, symmetry, noise, 8)
    found = match(target, source, symmetry, method=method)
    moved = networks.take(symmetry, undo, source)
    planted = [-distance(target, {site: value[k] for site, value in moved.items()}) for k in range(8)]
    assert recovered(found, undo) >= 0.99
    assert (found.objective >= np.array(planted) - 1e-6).all()


@pytest.mark.slow
def test_thorough_recovers_a_deep_and_noisy_network():
    shapes, symmetry = networks.mlp([8] + [50] * 8 + [1])
    target, source, undo = networks.planted(shapes, symmetry, 1.5, 8)
    found = match(target, source, symmetry, method="thorough")
    moved = networks.take(symmetry, undo, source)
    planted = [-distance(target, {site: value[k] for site, value in moved.items()}) for k in range(8)]
    assert recovered(found, undo) >= 0.95
    assert (found.objective >= np.array(planted) - 1e-6).all()


@pytest.mark.parametrize("name", SHAPES)
def test_the_answer_does_not_depend_on_the_sources_labels(name):
    target, source = draw(name, 2), draw(name, 3)
    symmetry = SHAPES[name][0].bind(target)
    with jax.enable_x64():
        h = symmetry.sample(jax.random.key(1))
        relabelled = {s: np.asarray(v) for s, v in symmetry.apply(h, source).items()}
        a = symmetry.apply(match(target, source, symmetry).element, source)
        b = symmetry.apply(match(target, relabelled, symmetry).element, relabelled)
    for site in a:
        np.testing.assert_allclose(a[site], b[site], rtol=1e-12)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matching_again_changes_nothing(name, dtype):
    target, source = draw(name, 4, dtype=dtype), draw(name, 5, dtype=dtype)
    symmetry = SHAPES[name][0].bind(target)
    once = symmetry.apply(match(target, source, symmetry).element, source)
    again = match(target, {s: np.asarray(v) for s, v in once.items()}, symmetry)
    for part, same in zip(again.element.values(), symmetry.identity().values(), strict=True):
        for a, b in zip(jax.tree.leaves(part), jax.tree.leaves(same), strict=True):
            assert (np.asarray(a) == np.asarray(b)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [20, 5])
def test_dead_and_equal_units_keep_their_labels(dtype, width):
    shapes, symmetry = networks.mlp([3, width, width, 2])
    rng = np.random.default_rng(0)
    target = {site: rng.normal(size=shape).astype(dtype) for site, shape in shapes.items()}
    for dead in (1, 3, 4):
        target["w1"][:, dead] = target["b1"][dead] = target["w2"][dead] = 0.0
    for twin in (0, 2):
        target["w2"][:, twin], target["b2"][twin], target["w3"][twin] = 0.5, 0.1, 1.0
    source = {site: (value * (1 + 0.0 * value)).astype(dtype) for site, value in target.items()}
    found = match(target, source, symmetry)
    for part in found.element.values():
        assert (np.asarray(part) == np.arange(width)).all()


def euclidean_problem(target, sources, bound):
    euclidean = COSTS["euclidean"]
    one = {site: value[None] for site, value in target.items()}
    point, _ = euclidean.family(Side(one, leading=(1,)), bound).point(0)
    family = euclidean.family(Side(sources, leading=(len(next(iter(sources.values()))),)), bound)
    return problem_of(family, bound.groups, point, slice(None))[0]


@pytest.mark.parametrize("name", LARGE)
def test_descent_never_falls_and_ends_where_no_group_alone_gains(name):
    target = draw(name, 0)
    problem = euclidean_problem(target, draw(name, 1, (40,)), SHAPES[name][0].bind(target))
    found = descend(problem, problem.identity())
    reached, rounding = problem.score(found.state), 1e-9 * problem.scale
    assert found.converged.all()
    assert (reached >= problem.score(problem.identity()) - rounding).all()
    for group in problem.groups:
        benefit = problem.benefit(group, found.state)
        other = benefit.best()
        assert (problem.score({**found.state, group: other}) <= reached + rounding).all()


@pytest.mark.parametrize("block", [1, 2**17], ids=["one by one", "together"])
@pytest.mark.parametrize("are_own", [False, True], ids=["one target", "targets of their own"])
@pytest.mark.parametrize(
    ("symmetry", "shapes"),
    [
        (HMM, {"pi": (3,), "A": (3, 3), "loc": (3, 2)}),
        (Symmetry({"a": (None, "h"), "b": ("h", "k")}, {"h": "signed"}), {"a": (2, 3), "b": (3, 3)}),
        (Symmetry({"a": ("cell", "cell/unit"), "b": (None, "cell")}), {"a": (2, 3), "b": (2, 2)}),
    ],
    ids=["paired", "signed", "fibred"],
)
def test_all_elements_are_scored_at_once_as_one_by_one(symmetry, shapes, are_own, block, monkeypatch):
    monkeypatch.setattr("numpyro_symmetry.assignment.problem.BLOCK", block)
    rng = np.random.default_rng(0)
    target, sources = ({site: rng.normal(size=lead + x) for site, x in shapes.items()} for lead in ((), (5,)))
    problem = euclidean_problem(target, sources, symmetry.bind(target))
    if are_own:
        own = (term._replace(target=rng.normal(size=term.source.shape)) for term in problem.terms)
        problem = dataclasses.replace(problem, terms=tuple(own))
    elements = products({name: group.elements() for name, group in problem.groups.items()})
    every = range(len(next(iter(elements.values())).permutation))
    slow = [problem.score({name: part.at(np.full(5, k)) for name, part in elements.items()}) for k in every]
    np.testing.assert_allclose(problem.scores(elements), np.stack(slow, 1), rtol=1e-12, atol=1e-12)


FEW = {
    "two": SHAPES["two"],
    "signed": (SIGNED, {"a": (2, 3), "b": (3, 4), "c": (4, 2)}),
    "three": (
        Symmetry({"a": ("g", "h", "k"), "b": ("g",), "c": (None, "k")}),
        {"a": (3, 4, 3), "b": (3,), "c": (2, 3)},
    ),
    "paired": (Symmetry({"a": ("g", "g"), "b": ("h", "g")}), {"a": (3, 3), "b": (4, 3)}),
}


@pytest.mark.parametrize("block", [1, 2**17], ids=["one by one", "together"])
@pytest.mark.parametrize("are_own", [False, True], ids=["one target", "targets of their own"])
@pytest.mark.parametrize("name", FEW)
def test_what_enumeration_leaves_out_could_not_be_better(name, are_own, block, monkeypatch):
    """Of values many of which are equal, too: nothing is left out where no limit is known."""
    (symmetry, shapes), rng = FEW[name], np.random.default_rng(0)
    target, sources = (
        {site: rng.integers(-2, 3, (*lead, *x)).astype(float) for site, x in shapes.items()} for lead in ((), (30,))
    )
    sources = {site: np.concatenate([x, target[site] + rng.normal(size=x.shape)]) for site, x in sources.items()}
    problem = euclidean_problem(target, sources, symmetry.bind(target))
    if are_own:
        own = (term._replace(target=rng.normal(size=term.source.shape)) for term in problem.terms)
        problem = dataclasses.replace(problem, terms=tuple(own))
    names, last = solve._enumerated_groups(problem)
    elements = products({group: problem.groups[group].elements() for group in names})
    count = len(next(iter(elements.values())).permutation)
    limits = problem.limits(last, elements)
    for k in range(count):
        state = {group: part.at(np.full(60, k)) for group, part in elements.items()}
        reached = problem.score(state | {last: problem.benefit(last, state).best()})
        assert (limits[:, k] >= reached - 1e-12 * problem.scale).all()
    monkeypatch.setattr("numpyro_symmetry.assignment.problem.BLOCK", block)
    monkeypatch.setattr(solve, "BLOCK", block)
    monkeypatch.setattr(solve, "CHUNK", block)
    np.testing.assert_allclose(problem.limits(last, elements), limits, rtol=1e-12)
    found = solve._enumerate(problem, names, last)
    monkeypatch.setattr(type(problem), "limits", lambda part, *_: np.full((part.batch, count), np.inf))
    for group, part in solve._enumerate(problem, names, last).items():
        assert part.is_same(found[group]).all()


@pytest.mark.parametrize("name", LARGE)
def test_no_step_of_frank_wolfe_loses(name):
    target = draw(name, 0)
    problem = euclidean_problem(target, draw(name, 1, (40,)), SHAPES[name][0].bind(target))
    state = {group: barycentre(problem.groups[group], problem.batch, np.dtype(float)) for group in problem.groups}
    reached = [problem.score(state)]
    for _ in range(5):
        state = frank_wolfe._path(problem, state, 0.0, 1)
        reached.append(problem.score(state))
    gained = np.diff(reached, axis=0)
    assert (gained >= -1e-9 * problem.scale).all()
    assert (gained[0] > 0).all()


def test_where_descent_ends_lower_than_it_could_have_stayed_labels_stay():
    # descent from the barycentre decides the first layer by biases that mislead, and ends below the identity
    rng = np.random.default_rng(0)
    shapes, symmetry = networks.mlp([2, 8, 8, 1])
    count = 300
    source = {site: rng.normal(size=(count, *shape)) for site, shape in shapes.items()}
    noise = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    target = {site: value[0] + 0.9 * noise[site] for site, value in source.items()}
    near = {site: 0.5 * value + target[site] for site, value in source.items()}
    found = match(target, near, symmetry, method="descent")
    assert (found.objective >= found.objective_before).all()
    problem = euclidean_problem(target, near, symmetry.bind(target))
    worse = problem.score(descend(problem).state) < problem.score(problem.identity()) - 1e-6
    # there are such cases, so that going back is needed
    assert worse.any()
    assert (found.objective[worse] >= found.objective_before[worse]).all()
    assert found.converged.all()


def test_enumeration_is_limited(monkeypatch):
    target, source = draw("two", 0), draw("two", 1)
    assert match(target, source, SHAPES["two"][0]).exact
    monkeypatch.setattr(solve, "_MAX_ENUMERATED", 5)
    found = match(target, source, SHAPES["two"][0])
    assert not found.exact
    assert found.num_sweeps > 1
    # where no group is assigned, to all labels of seven states
    for num_states, is_exact in ((7, True), (8, False)):
        target, source = (np.random.default_rng(k).normal(size=2 * (num_states,)) for k in range(2))
        assert match({"A": target}, {"A": source}, Symmetry({"A": ("state", "state")})).exact == is_exact


def test_a_match_is_printed_in_a_line():
    target, source = draw("one", 0), draw("one", 1)
    assert repr(match(target, source, ONE)).startswith("Match(objective -")
    text = repr(match(target, {s: np.stack([v, v + 1]) for s, v in source.items()}, ONE))
    assert "sources (2,)" in text
    assert "exact: 2 of 2" in text
    assert "array" not in text
    assert len(text) < 200


@pytest.mark.parametrize("size", [1e200, 1e-170])
def test_values_whose_squares_are_no_numbers_are_refused(size):
    one = Symmetry({"w": ("h",)})
    target, source = {"w": size * np.array([1.0, 2.0, 3.0])}, {"w": size * np.array([3.0, 1.0, 2.0])}
    with pytest.raises(SymmetryError, match="(too large for|vanish in) double precision: (di|mu).* a common scale"):
        match(target, source, one)
    moderate = {s: 1e120 / size * v for s, v in target.items()}, {s: 1e120 / size * v for s, v in source.items()}
    assert match(*moderate, one).element["h"].tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda t, s: match(ONE, t, s),
            TypeError,
            r"got dict.*behind what it acts on: match\(target, source",
        ),
        (lambda t, s: match(t, s, ONE, cost=ActivationCost), ValueError, "cost must be one of"),
        (lambda t, s: match(t, s, ONE, cost=["kl"]), ValueError, "cost must be one of"),
        (
            lambda t, s: match(t, s | {"b1": np.ma.array(s["b1"], mask=[1, 0, 0, 0, 0])}, ONE),
            SymmetryError,
            "Site 'b1' is a masked array",
        ),
        (
            lambda t, s: match(t, {"w1": s["w1"], "b1": s["b1"]}, ONE),
            SymmetryError,
            r"\['w2'\] .* are in the target and not in the source, which has \['b1', 'w1'\]",
        ),
        (
            lambda t, s: match({"w1": t["w1"], "b1": t["b1"]}, s, ONE),
            SymmetryError,
            r"'w2' is named by the symmetry but is not among the values \['b1', 'w1'\]",
        ),
        (lambda t, s: match({"p": t}, {"p": s}, ONE), SymmetryError, r"'w1' is named .* \['p.b1', 'p.w1', 'p.w2'\]"),
        (
            lambda t, s: match(t, s | {"b1": np.array(list("abcde"))}, ONE),
            SymmetryError,
            "'b1' of the source: expected",
        ),
        (
            lambda t, s: jax.jit(lambda w: match(t, s | {"b1": w}, ONE).objective)(jnp.zeros(5)),
            TypeError,
            "match needs numbers and cannot run under jit",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(draw("one", 0), draw("one", 1))


def test_another_package_called_lap_is_not_taken_for_lapx(monkeypatch):
    monkeypatch.setitem(sys.modules, "lap", types.ModuleType("lap"))
    # looked for once a process
    monkeypatch.setattr(linear, "_lapx", linear._lapx.__wrapped__)
    benefit = np.random.default_rng(0).normal(size=(5, 5))
    assert (assign(benefit) == linear_sum_assignment(benefit, maximize=True)[1]).all()
    with pytest.raises(ValueError, match="'lapx' is not installed"):
        assign(benefit, solver="lapx")


def test_the_same_key_gives_the_same_answer():
    target, source = draw("wide", 0), draw("wide", 1, (4,))
    answers = [match(target, source, SHAPES["wide"][0], method="thorough", rng_key=jax.random.key(7)) for _ in range(2)]
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((np.asarray(a) == np.asarray(b)).all()), *answers))


def test_leading_dimensions_are_matched_one_by_one():
    target, source = draw("two", 0), draw("two", 1, (2, 3))
    found = match(target, source, SHAPES["two"][0])
    assert found.objective.shape == (2, 3)
    for i, j in itertools.product(range(2), range(3)):
        alone = match(target, {s: v[i, j] for s, v in source.items()}, SHAPES["two"][0])
        assert alone.objective == pytest.approx(found.objective[i, j], rel=1e-12)
        for name in alone.element:
            assert (alone.element[name] == found.element[name][i, j]).all()


def test_chunks_change_nothing(monkeypatch):
    target, source = draw("wide", 0), draw("wide", 1, (5,))
    whole = match(target, source, SHAPES["wide"][0])
    monkeypatch.setattr("numpyro_symmetry.chunks.CHUNK", 1500)
    parts = match(target, source, SHAPES["wide"][0])
    np.testing.assert_allclose(whole.objective, parts.objective, rtol=1e-12)


@every_matching_cost
@pytest.mark.parametrize("name", ["one", "hmm", "factor"])
def test_every_cost_is_the_best_of_all_elements(cost, name):
    rng = np.random.default_rng(0)

    def gaussian(seed):
        loc = draw(name, seed)
        return DiagonalGaussian(loc, {s: np.exp(rng.normal(size=v.shape)) for s, v in loc.items()})

    target, source = gaussian(0), gaussian(1)
    symmetry = SHAPES[name][0].bind(target.loc)
    found = match(target, source, symmetry, cost=cost)
    assert found.objective == pytest.approx(oracles.best_gaussian_match(symmetry, target, source, cost), rel=1e-9)


def test_stds_decide_where_means_tie():
    symmetry = Symmetry({"w": ("unit",)})
    q = DiagonalGaussian({"w": np.zeros(2)}, {"w": np.array([1.0, 4.0])})
    p = DiagonalGaussian({"w": np.zeros(2)}, {"w": np.array([4.0, 1.0])})
    found = match(q, p, symmetry)
    assert found.element["unit"].tolist() == [1, 0]
    assert found.objective == 0.0
    assert found.objective_before == pytest.approx(-18.0)
    kl = match(q, p, symmetry, cost="kl")
    assert kl.objective == pytest.approx(0.0, abs=1e-12)
    assert kl.objective_before == pytest.approx(-0.5 * (16.0 + 1.0 / 16.0 - 2.0))


def test_stds_find_units_that_means_cannot():
    shapes, symmetry = networks.mlp([8, 50, 50, 1])
    rng = np.random.default_rng(0)
    loc = {site: rng.normal(size=shape) / np.sqrt(shape[0]) for site, shape in shapes.items()}
    scale = {s: np.sqrt((v**2).mean()) * np.exp(rng.normal(size=v.shape)) for s, v in loc.items()}
    rate = {"means": [], "both": []}
    for seed in range(5):
        rng = np.random.default_rng(seed + 1)
        noisy = {s: v + 2.0 * scale[s] * rng.normal(size=v.shape) for s, v in loc.items()}
        spread = {s: v * np.exp(0.1 * rng.normal(size=v.shape)) for s, v in scale.items()}
        bound = symmetry.bind(loc)
        g = bound.sample(jax.random.key(seed))
        undo = {name: np.asarray(part) for name, part in inverse(g).items()}
        source = DiagonalGaussian(noisy, spread).apply(bound, g)
        target = DiagonalGaussian(loc, scale)
        for key, cost in (("both", "wasserstein"), ("means", "euclidean")):
            rate[key].append(recovered(match(target, source, symmetry, cost=cost), undo))
    assert np.mean(rate["both"]) >= 0.95
    assert np.mean(rate["means"]) <= 0.15


def test_activations_find_the_units():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    target = draw("one", 0)
    symmetry = ONE.bind(target)
    g = symmetry.sample(jax.random.key(0), (4,))
    source = symmetry.apply(g, {s: np.repeat(v[None], 4, 0) for s, v in target.items()})
    cost = ActivationCost(lambda v: {"hidden": jnp.tanh(x @ v["w1"] + v["b1"])})
    found = match(target, source, symmetry, cost=cost)
    assert (compose(found.element, g)["hidden"] == np.arange(5)).all()
    with pytest.raises(SymmetryError, match="activations returned groups"):
        match(target, source, symmetry, cost=ActivationCost(lambda v: {"units": v["b1"][None]}))


def test_full_covariances_move_and_report_their_own_distance():
    rng = np.random.default_rng(0)
    loc = {"loadings": rng.normal(size=(2, 3)), "scores": rng.normal(size=(1, 3))}
    root = rng.normal(size=(9, 9))
    q = FullGaussian(loc, root @ root.T)
    symmetry = FACTOR.bind(loc)
    g = {"factor": SignedPermutation(jnp.array([2, 0, 1]), jnp.array([1, -1, 1]))}
    moved = q.apply(symmetry, g)
    # draws of the one, moved, have the covariance of the other
    with jax.enable_x64():
        flat = rng.multivariate_normal(np.zeros(9), q.covariance, 5)
        values = symmetry.apply(g, {"loadings": flat[:, :6].reshape(5, 2, 3), "scores": flat[:, 6:].reshape(5, 1, 3)})
    again = np.concatenate([np.asarray(values[s]).reshape(5, -1) for s in loc], 1)
    solved = np.einsum("ki,ij,kj->k", again, np.linalg.inv(moved.covariance), again)
    np.testing.assert_allclose(solved, np.einsum("ki,ij,kj->k", flat, np.linalg.inv(q.covariance), flat), rtol=1e-8)
    found = match(q, moved, symmetry)
    assert found.objective == pytest.approx(0.0, abs=1e-6)
    assert q.wasserstein(q) == pytest.approx(0.0, abs=1e-5)
    assert FullGaussian(loc, np.eye(9)).wasserstein(FullGaussian(loc, 4 * np.eye(9))) == pytest.approx(3.0)
    diagonal = [DiagonalGaussian(loc, {s: np.full(v.shape, k) for s, v in loc.items()}) for k in (1.0, 2.0)]
    assert float(diagonal[0].wasserstein(diagonal[1])) == pytest.approx(3.0)


def test_labels_by_which_correlations_are_worse_are_not_taken():
    """The diagonals choose; the distance of the Gaussians themselves decides."""
    symmetry = Symmetry({"a": ("h",), "b": ("h",)})
    # a[k] and b[k] go together in one unit and against each other in the other: in the source as in the target, or not
    for sign, kept in ((1, [0, 1]), (-1, [1, 0])):
        target, source = (
            FullGaussian({"a": np.array(loc), "b": np.zeros(2)}, np.eye(4) + np.kron([[0, 1], [1, 0]], np.diag(beside)))
            for loc, beside in (([0.0, 0.1], [0.9, -0.9]), ([0.1, 0.0], [sign * 0.9, sign * -0.9]))
        )
        found = match(target, source, symmetry)
        assert found.element["h"].tolist() == kept
        moved = source.apply(symmetry.bind(source.loc), found.element)
        assert found.objective == pytest.approx(-(target.wasserstein(moved) ** 2))
        assert found.objective_before == pytest.approx(-(target.wasserstein(source) ** 2))
        assert not found.exact
    assert found.objective > found.objective_before


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        (lambda t, s: (t, s | {"b1": np.full(5, np.nan)}), {}, SymmetryError, "'b1' of the source holds 5 non-finite"),
        (lambda t, s: (t, s | {"b1": np.zeros(4)}), {}, SymmetryError, "Site 'b1': the source has shape"),
        (lambda t, s: (t, s | {"b1": np.zeros((2, 5))}), {}, SymmetryError, "disagree on their leading dimensions"),
        (lambda t, s: (t, s), {"cost": "kl"}, SymmetryError, "needs positive standard deviations of the target"),
        (lambda t, s: (t, 3.0), {}, SymmetryError, "Expected values by site"),
    ],
)
def test_refuses(change, options, error, message):
    target, source = change(draw("one", 0), draw("one", 1))
    with pytest.raises(error, match=message):
        match(target, source, ONE, **options)


def test_gaussians_are_fitted_interpolated_and_averaged():
    draws = {"w": np.random.default_rng(0).normal(2.0, 3.0, size=(2, 4000, 3))}
    q = DiagonalGaussian.fit(draws, num_leading_dims=2)
    np.testing.assert_allclose(q.loc["w"], 2.0, atol=0.15)
    np.testing.assert_allclose(q.scale["w"], 3.0, atol=0.15)
    p = DiagonalGaussian({"w": jnp.zeros(3)}, {"w": jnp.ones(3)})
    for t in (0.0, 0.25, 1.0):
        between = q.geodesic(p, t)
        assert float(q.wasserstein(between)) == pytest.approx(t * float(q.wasserstein(p)), rel=1e-5, abs=1e-6)
    half = DiagonalGaussian.barycenter([q, p])
    np.testing.assert_allclose(half.scale["w"], q.geodesic(p, 0.5).scale["w"], rtol=1e-6)
    np.testing.assert_allclose(p.log_density({"w": np.ones((2, 3))}), [-1.5 - 1.5 * np.log(2 * np.pi)] * 2, rtol=1e-6)
    assert p.sample(jax.random.key(0), (2, 5))["w"].shape == (2, 5, 3)


@pytest.mark.parametrize("container", [np.asarray, list])
def test_fitting_is_unbiased_and_in_double_precision_whatever_the_session(container):
    draws = np.random.default_rng(0).normal(1e6, 1e-3, (1000, 1))
    q = DiagonalGaussian.fit({"w": container(draws)})
    assert (q.loc["w"].dtype, q.scale["w"].dtype) == (np.float64, np.float64)
    np.testing.assert_allclose(q.scale["w"], draws.std(0, ddof=1), rtol=1e-9)
    # three draws, whose variance is half the sum of squares, not a third
    three = DiagonalGaussian.fit({"w": np.array([1.0, 2.0, 3.0])})
    assert float(three.scale["w"]) == pytest.approx(1.0, rel=1e-12)
    # what is computed of it stays there
    other = DiagonalGaussian({"w": q.loc["w"] + 2e-3}, q.scale)
    assert float(q.wasserstein(other)) == pytest.approx(2e-3, rel=1e-6)
    assert float(q.geodesic(other, 0.5).loc["w"][0] - q.loc["w"][0]) == pytest.approx(1e-3, rel=1e-6)
    assert q.sample(jax.random.key(0), (500,))["w"].std() == pytest.approx(1e-3, rel=0.2)
    expected = -0.5 * 4e-6 / q.scale["w"][0] ** 2 - np.log(q.scale["w"][0]) - 0.5 * np.log(2 * np.pi)
    assert float(q.log_density(other.loc)) == pytest.approx(expected, rel=1e-6)


def test_gaussians_are_fitted_under_vmap():
    draws = np.random.default_rng(0).normal(size=(4, 50, 3))
    q = jax.vmap(lambda w: DiagonalGaussian.fit({"w": w}))(draws)
    np.testing.assert_allclose(q.scale["w"], draws.std(1, ddof=1), rtol=1e-5)


GOOD = DiagonalGaussian({"w": np.zeros(2)}, {"w": np.ones(2)})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: DiagonalGaussian.fit({"w": np.zeros((1, 3))}), SymmetryError, "at least two draws"),
        (lambda: DiagonalGaussian.fit({"w": np.zeros((5, 3)), "v": np.zeros(7)}), SymmetryError, "numbers of draws"),
        (
            lambda: DiagonalGaussian.fit({"w": np.array([1.0, np.nan])}),
            SymmetryError,
            "'w' holds 1 non-finite of 2",
        ),
        (
            lambda: DiagonalGaussian.fit({"w": np.ma.array([1.0, 2], mask=[0, 1])}),
            SymmetryError,
            "'w' is a masked array",
        ),
        (lambda: DiagonalGaussian.fit({"w": np.zeros(3)}, num_leading_dims=2), SymmetryError, "fewer than 2 leading"),
        (lambda: DiagonalGaussian.fit({"w": np.zeros(3)}, num_leading_dims=1.0), TypeError, "num_leading_dims must be"),
        (lambda: DiagonalGaussian.fit(np.zeros((5, 3))), TypeError, "fit expects draws by site"),
        (lambda: DiagonalGaussian.fit({"w": np.array(["a", "b"])}), SymmetryError, "Site 'w': expected real numbers"),
        (lambda: DiagonalGaussian({"w": np.zeros(3)}, {}), SymmetryError, "they must agree"),
        (lambda: DiagonalGaussian(np.zeros(3), {}), TypeError, "loc maps sites to arrays; got ndarray"),
        (lambda: DiagonalGaussian({"w": 0.0}, {"w": -1.0}), SymmetryError, "Site 'w' holds 1 negative standard"),
        (
            lambda: DiagonalGaussian({"w": 0.0}, {"w": np.nan}),
            SymmetryError,
            "scale of site 'w' holds 1 non-finite",
        ),
        (lambda: DiagonalGaussian({"w": np.inf}, {"w": 1.0}), SymmetryError, "loc of site 'w' holds 1 non-finite of 1"),
        (lambda: DiagonalGaussian({"w": 1j}, {"w": 1.0}), SymmetryError, "loc of site 'w': expected real numbers"),
        (
            lambda: DiagonalGaussian({"w": np.zeros(2)}, {"w": np.ones(1)}),
            SymmetryError,
            "one standard deviation",
        ),
        (lambda: GOOD.geodesic(GOOD, -1), ValueError, "t must be one number from 0 to 1.*got -1"),
        (lambda: GOOD.geodesic(GOOD, np.nan), ValueError, "t must be one number"),
        (lambda: GOOD.geodesic(GOOD, [0.1, 0.2]), ValueError, "t must be one number"),
        (lambda: GOOD.geodesic({"w": np.zeros(2)}, 0.5), TypeError, "Expected another DiagonalGaussian; got dict"),
        (lambda: DiagonalGaussian.barycenter([]), ValueError, "at least one Gaussian"),
        (lambda: DiagonalGaussian.barycenter([GOOD], [0]), ValueError, r"not all zero; got \[0\]"),
        (lambda: DiagonalGaussian.barycenter([GOOD] * 2, [2, -1]), ValueError, "none negative"),
        (lambda: DiagonalGaussian.barycenter([GOOD] * 2, [np.nan, 1]), ValueError, "must be finite"),
        (lambda: DiagonalGaussian.barycenter([GOOD] * 2, [1]), ValueError, "one number for each of 2 Gaussians"),
        (lambda: GOOD.log_density({"v": 0.0}), SymmetryError, r"Sites \['w'\] of the Gaussian are not among"),
        (lambda: GOOD.geodesic(GOOD, 0).sample(0), TypeError, "rng_key must be one JAX random key"),
        (
            lambda: DiagonalGaussian({"w": 0.0}, {"w": 0.0}).log_density({"w": 0.0}),
            SymmetryError,
            "a point has no density",
        ),
        (lambda: FullGaussian(np.zeros(2), np.eye(2)), TypeError, "loc maps sites to arrays; got ndarray"),
        (lambda: FullGaussian({"w": np.zeros(2)}, np.eye(3)), SymmetryError, "have 2 entries; covariance has shape"),
        (
            lambda: FullGaussian({"w": np.zeros(2)}, np.array([[1, 0.5], [0, 1]])),
            SymmetryError,
            r"not symmetric.*by up to 0\.5.*covariance\.T",
        ),
        (
            lambda: FullGaussian({"w": np.zeros(2)}, np.full((2, 2), np.nan)),
            SymmetryError,
            "covariance holds 4",
        ),
        (
            lambda: FullGaussian({"w": np.zeros(3)}, np.eye(3)).apply(
                Symmetry({"w": ("k",)}),
                Symmetry({"w": ("k",)}).bind({"w": np.zeros(3)}).sample(jax.random.key(0), (4,)),
            ),
            SymmetryError,
            r"one element; got a batch of shape \(4,\)",
        ),
        (lambda: FullGaussian({"w": np.array([0, np.nan])}, np.eye(2)), SymmetryError, "loc of site 'w' holds 1 non-f"),
    ],
)
def test_what_is_no_gaussian_is_refused_where_it_is_made(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_gaussians_are_trees_that_keep_the_order_of_their_sites():
    full = FullGaussian({"w": np.arange(2.0), "a": np.ones(1)}, np.diag([1.0, 2.0, 3.0]))
    again = jax.tree.map(lambda x: x, full)
    assert list(again.loc) == ["w", "a"]
    assert again.diagonal().scale["a"].tolist() == [np.sqrt(3.0)]
    variances = jax.jit(lambda q: q.diagonal().scale["w"] ** 2)(full)
    np.testing.assert_allclose(variances, [1.0, 2.0], rtol=1e-6)
    with pytest.raises(TypeError, match="FullGaussian.wasserstein needs numbers"):
        jax.jit(lambda q: q.wasserstein(q))(full)
    # semidefinite ones, and ones that are symmetric but for rounding, are Gaussians
    root = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    FullGaussian({"w": np.zeros(40)}, root @ root.T)
    FullGaussian({"w": np.zeros(2)}, np.zeros((2, 2)))
    # a gradient has the structure of a Gaussian, and may be negative
    gradient = jax.grad(lambda q: q.log_density({"w": jnp.full(2, 3.0)}))(
        DiagonalGaussian(*map(dict, (GOOD.loc, GOOD.scale)))
    )
    np.testing.assert_allclose(gradient.scale["w"], [8.0, 8.0], rtol=1e-5)
    gradient = jax.grad(lambda q: -q.log_density({"w": jnp.full(2, 3.0)}))(GOOD)
    np.testing.assert_allclose(gradient.scale["w"], [-8.0, -8.0], rtol=1e-5)


def test_standard_deviations_move_beside_fixed_axes():
    symmetry = Symmetry({"w": ("layer", "layer/unit")}, kinds={"layer": "fixed"})
    q = DiagonalGaussian({"w": np.arange(6.0).reshape(2, 3)}, {"w": 1.0 + np.arange(6.0).reshape(2, 3)})
    g = {"layer/unit": np.array([[1, 2, 0], [0, 2, 1]])}
    moved = q.apply(symmetry.bind(q.loc), g)
    assert (moved.scale["w"] == moved.loc["w"] + 1.0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_differences_beside_large_values_are_seen(dtype):
    one = Symmetry({"w": ("h",)})
    pairs = [([1000, 0.3, -0.3], [1000, -0.3, 0.3]), ([1950, 1951, 1980], [1951, 1950, 1980])]
    for target, source in pairs:
        found = match({"w": np.array(target, dtype)}, {"w": np.array(source, dtype)}, one)
        assert found.objective == pytest.approx(0.0, abs=1e-6)
    rng = np.random.default_rng(0)
    wide = 1000.0 + rng.standard_normal((60, 40))
    found = match(
        {"w": wide.astype(dtype)}, {"w": wide[rng.permutation(60)].astype(dtype)}, Symmetry({"w": ("h", None)})
    )
    assert found.objective == pytest.approx(0.0, abs=1e-3)


def test_of_equally_good_elements_of_enumerated_groups_the_least_is_taken():
    hmm = Symmetry({"A": ("state", "state"), "loc": ("state",)})
    target = {"A": np.zeros((3, 3)), "loc": np.array([5.0, 0.0, 0.0])}
    source = {"A": np.zeros((3, 3)), "loc": np.array([0.0, 0.0, 5.0])}
    assert match(target, source, hmm).element["state"].tolist() == [2, 1, 0]


def test_a_gain_by_rounding_moves_no_label_of_enumerated_groups():
    # the middle two of four states are alike, and sums in another order differ by rounding
    rng, twins = np.random.default_rng(0), [0, 2, 1, 3]
    count = 200
    one = {"A": rng.standard_normal((count, 4, 4)), "loc": rng.standard_normal((count, 4))}
    other = {"A": one["A"][:, twins][:, :, twins], "loc": one["loc"][:, twins]}
    source = {site: one[site] + other[site] for site in one}
    target = {"A": rng.standard_normal((4, 4)), "loc": rng.standard_normal(4)}
    found = match(target, source, Symmetry({"A": ("state", "state"), "loc": ("state",)}))
    labels = np.asarray(found.element["state"])
    swapped = np.asarray(twins)[labels]
    # of each pair of equally good labellings the one that keeps more
    assert ((labels == np.arange(4)).sum(1) >= (swapped == np.arange(4)).sum(1)).all()


def test_nothing_to_match():
    found = match({"w": np.ones(3)}, {"w": np.zeros((4, 3))}, Symmetry({"w": (None,)}))
    assert found.element == {}
    assert found.objective.tolist() == [-3.0] * 4
    empty = match({"w": np.ones(3)}, {"w": np.zeros((0, 2, 3))}, Symmetry({"w": ("h",)}))
    assert empty.objective.shape == (0, 2)
    assert empty.element["h"].shape == (0, 2, 3)


def test_arrays_without_numbers_are_carried_along():
    """Their leading dimensions were counted by their size, of which there is none."""
    symmetry, rng = Symmetry({"w": ("h",), "e": ("h", None)}), np.random.default_rng(0)
    draws = {"w": rng.standard_normal((30, 4)), "e": np.zeros((30, 4, 0)), "z": np.zeros((30, 0))}
    points = [{site: x[k] for site, x in draws.items()} for k in range(3)]
    fitted = DiagonalGaussian.fit(draws)
    alone = {"w": draws["w"]}, Symmetry({"w": ("h",)})
    assert {site: x.shape for site, x in fitted.loc.items()} == {"w": (4,), "e": (4, 0), "z": (0,)}
    found = match(points[0], draws, symmetry)
    assert found.objective.tolist() == match({"w": points[0]["w"]}, *alone).objective.tolist()
    # where every element is tried at once
    states, wide = Symmetry({"A": ("h", "h"), "e": ("h", None)}), {"A": rng.standard_normal((30, 3, 3))}
    paired = {"A": ("h", "h")}
    with_empty = match({"A": wide["A"][0], "e": np.zeros((3, 0))}, wide | {"e": np.zeros((30, 3, 0))}, states)
    assert with_empty.objective.tolist() == match({"A": wide["A"][0]}, wide, Symmetry(paired)).objective.tolist()
    gaussians = [DiagonalGaussian(one, {site: np.ones_like(x) for site, x in one.items()}) for one in points]
    for merged in (merge(points, symmetry).merged, merge(gaussians, symmetry, how="product").merged.loc):
        assert {site: x.shape for site, x in merged.items()} == {"w": (4,), "e": (4, 0), "z": (0,)}
    out = rebase(points, symmetry)
    by_name = rebase([{"w": one["w"]} for one in points], alone[1])
    assert out.elements["h"].tolist() == by_name.elements["h"].tolist()
    assert out.data[0]["e"].shape == (4, 0)


def test_a_law_is_the_same_in_any_order_of_sites():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 4))
    a = FullGaussian({"w": np.arange(2.0), "v": np.ones(2)}, root @ root.T)
    order = [2, 3, 0, 1]
    b = FullGaussian({"v": np.ones(2), "w": np.arange(2.0)}, (root @ root.T)[np.ix_(order, order)])
    assert a.wasserstein(b) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("target", "source", "options", "message"),
    [
        (FullGaussian({"w": np.zeros(2)}, np.eye(2)), {"w": np.ones(2)}, {}, "ignore correlations"),
        (FullGaussian({"w": np.zeros(2)}, np.eye(2)),) * 2 + ({"cost": "kl"}, "ignore correlations"),
        (
            jax.tree.map(np.negative, DiagonalGaussian({"w": np.zeros(2)}, {"w": np.array([1.0, 0.0])})),
            {"w": np.ones(2)},
            {},
            "Site 'w' of the target holds 1 negative",
        ),
        ({"w": np.zeros(2)}, {"w": np.ones(2, complex)}, {}, "real numbers"),
    ],
)
def test_more_that_is_refused(target, source, options, message):
    with pytest.raises(SymmetryError, match=message):
        match(target, source, Symmetry({"w": ("h",)}), **options)


def test_gaussians_of_other_sites_are_not_compared():
    a, b = (DiagonalGaussian({s: np.zeros(2)}, {s: np.ones(2)}) for s in "ab")
    with pytest.raises(SymmetryError, match="different sites"):
        a.wasserstein(b)
    c = DiagonalGaussian({"a": np.zeros((3, 2))}, {"a": np.ones((3, 2))})
    with pytest.raises(SymmetryError, match="shape"):
        a.geodesic(c, 0.5)
