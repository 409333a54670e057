"""match where blocks move, and units in each of them: exact where nothing else moves, planted elements elsewhere."""

from functools import partial

import jax
import numpy as np
import pytest

from numpyro_symmetry import (
    Complement,
    DiagonalGaussian,
    Split,
    Symmetry,
    SymmetryWarning,
    Unsigned,
    compose,
    match,
    merge,
    rebase,
)
from numpyro_symmetry.assignment import nested
from numpyro_symmetry.assignment.problem import Problem, Term
from numpyro_symmetry.assignment.solve import solve
from numpyro_symmetry.symmetry.axes import Axis
from tests.support import oracles

pytestmark = pytest.mark.usefixtures("strict_promotion")

H, D, M = 3, 4, 6
HEADS = {"q": (None, Split((H, D), ("head", "head/unit"))), "o": (Split((H, D), ("head", "head/unit")), None)}
STREAM = {site: tuple("stream" if e is None else e for e in entries) for site, entries in HEADS.items()}
LAYERS = {
    f"{site}{k}": tuple("stream" if e is None else Split((H, D), (f"h{k}", f"h{k}/u")) for e in entries)
    for k in (1, 2)
    for site, entries in HEADS.items()
}
KERNELS = {"q": (M, H * D), "o": (H * D, M)}
EXPERTS = {"up": ("e", None, "e/unit"), "bias": ("e", "e/unit"), "down": ("e", "e/unit", None), "route": (None, "e")}
GROUPED = Split((3, 4), ("g", "g/c"))
CASES = {
    "heads": (Symmetry(HEADS), KERNELS),
    "heads over a stream": (Symmetry(STREAM | {"emb": (None, "stream")}), KERNELS | {"emb": (3, M)}),
    "two layers over a stream": (
        Symmetry(LAYERS | {"emb": (None, "stream")}),
        {f"{site}{k}": shape for k in (1, 2) for site, shape in KERNELS.items()} | {"emb": (3, M)},
    ),
    "experts": (Symmetry(EXPERTS), {"up": (4, 3, 5), "bias": (4, 5), "down": (4, 5, 2), "route": (3, 4)}),
    "group norm": (
        Symmetry(
            {"kernel": (None, GROUPED), "scale": (GROUPED,), "bias": (GROUPED,), "dense": (GROUPED, None)},
        ),
        {"kernel": (5, 12), "scale": (12,), "bias": (12,), "dense": (12, 2)},
    ),
    "depthwise": (
        Symmetry(
            {
                "first": (None, "c"),
                "each": (None, "c"),
                "point": ("c", "d"),
                "both": (None, Split((5, 2), ("d", "d/o"))),
                "dense": (Split((5, 2), ("d", "d/o")), None),
            }
        ),
        {"first": (9, 4), "each": (9, 4), "point": (4, 5), "both": (9, 10), "dense": (10, 3)},
    ),
    "three levels": (Symmetry({"w": ("a", "a/b", None, "a/b/c"), "v": ("a", "a/b")}), {"w": (3, 3, 5, 4), "v": (3, 3)}),
    "heads of layers that stay": (
        Symmetry({"w": ("layer", "layer/head", None, "layer/head/unit")}, kinds={"layer": "fixed"}),
        {"w": (2, 3, 2, 4)},
    ),
    "signed units": (
        Symmetry({"w": ("a", None, "a/b"), "s": ("a", Unsigned("a/b"))}, kinds={"a/b": "signed"}),
        {"w": (3, 2, 3), "s": (3, 3)},
    ),
    "orbits of heads and of units": (
        Symmetry({"w": ("a", None, "a/b")}, orbits={"a": (0, 1, 0, 0), "a/b": (0, 0, 1, 1, 1)}),
        {"w": (4, 3, 5)},
    ),
    "beside a part of a whole": (
        Symmetry({"w": ("a", None, "a/b"), "p": (Complement("c"),), "m": ("c",)}),
        {"w": (3, 2, 3), "p": (), "m": (2,)},
    ),
}
UNCOUPLED = [name for name in CASES if "stream" not in name and name != "depthwise"]


def planted(name, noise, seed=0, batch=2):
    """A target, sources that are the target moved and disturbed, and what undoes it."""
    rng = np.random.default_rng(seed)
    symmetry, shapes = CASES[name]
    target = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    symmetry = symmetry.bind(target)
    disturbed = {site: v + noise * rng.normal(size=(batch, *v.shape)) for site, v in target.items()}
    g = symmetry.sample(jax.random.key(seed), (batch,))
    gap = sum(((disturbed[site] - target[site]) ** 2).reshape(batch, -1).sum(1) for site in target)
    return symmetry, target, symmetry.apply(g, disturbed), g, -gap


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("case", CASES)
def test_planted_elements_are_recovered(case, noise):
    symmetry, target, source, g, objective = planted(case, noise)
    found = match(target, source, symmetry)
    back = compose(found.element, g)
    for part, same in zip(jax.tree.leaves(back), jax.tree.leaves(symmetry.identity((2,))), strict=True):
        assert (np.asarray(part) == np.asarray(same)).all()
    assert (found.objective >= objective - 1e-9).all()
    assert (found.exact == (case in UNCOUPLED)).all()
    assert found.converged.all()


@pytest.mark.parametrize("case", CASES)
def test_planted_members_are_merged_and_rebased(case):
    symmetry, target, source, g, _ = planted(case, 0.0)
    members = [target, *({site: x[k] for site, x in source.items()} for k in range(2))]
    found = merge(members, symmetry)
    still = symmetry.identity((2,))
    out = rebase(members, symmetry, reference="first", null=False)
    for elements in (found.elements, out.elements):
        back = compose(jax.tree.map(lambda x: x[1:], elements), g)
        for part, same in zip(jax.tree.leaves(back), jax.tree.leaves(still), strict=True):
            assert (np.asarray(part) == np.asarray(same)).all()
    for site, x in target.items():
        np.testing.assert_allclose(found.merged[site], x, rtol=1e-12)
    assert found.converged


@pytest.mark.parametrize("cost", ["wasserstein", "log_density"])
@pytest.mark.parametrize(
    ("axes", "kinds", "orbits", "shapes"),
    [
        ({"w": ("a", None, "a/b"), "v": ("a",)}, {}, {}, {"w": (3, 2, 3), "v": (3,)}),
        ({"w": ("a", "a/b", "a/b/c")}, {}, {}, {"w": (2, 2, 3)}),
        ({"w": ("a", None, "a/b"), "s": ("a", Unsigned("a/b"))}, {"a/b": "signed"}, {}, {"w": (2, 2, 3), "s": (2, 3)}),
        ({"w": ("a", None, "a/b")}, {}, {"a": (0, 1, 0), "a/b": (0, 0, 1)}, {"w": (3, 2, 3)}),
    ],
)
def test_is_the_best_of_all_elements(axes, kinds, orbits, shapes, cost):
    symmetry = Symmetry(axes, kinds, orbits=orbits)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        target, source = (
            DiagonalGaussian(
                {site: rng.normal(size=shape) for site, shape in shapes.items()},
                {site: np.exp(rng.normal(size=shape)) for site, shape in shapes.items()},
            )
            for _ in range(2)
        )
        bound = symmetry.bind(target.loc)
        elements = bound.elements()
        count = len(jax.tree.leaves(elements)[0])
        together = source.apply(bound, elements)
        moved = [jax.tree.map(lambda x, k=k: x[k], together) for k in range(count)]
        found = match(target, source, symmetry, cost=cost)
        assert found.objective == pytest.approx(max(oracles.gaussian_objective(target, m, cost) for m in moved))
        here = source.apply(bound, found.element)
        assert found.objective == pytest.approx(oracles.gaussian_objective(target, here, cost), rel=1e-12)
        assert found.objective_before == pytest.approx(oracles.gaussian_objective(target, source, cost), rel=1e-12)
        assert found.exact


@pytest.mark.parametrize("case", ["heads", "heads over a stream"])
def test_what_lies_right_already_stays(case):
    symmetry, target, _, _, _ = planted(case, 0.0)
    found = match(target, {site: np.stack([value] * 2)[None] for site, value in target.items()}, symmetry)
    assert found.objective.shape == (1, 2)
    for part, same in zip(jax.tree.leaves(found.element), jax.tree.leaves(symmetry.identity((1, 2))), strict=True):
        assert (np.asarray(part) == np.asarray(same)).all()


@pytest.mark.parametrize("seed", [15, 17, 23])
def test_is_never_worse_than_with_blocks_held_still(seed):
    """Of two groups of blocks that meet in one site, where units may be worth more than blocks."""
    axes = {"a": ("h", "h/u"), "c": ("g", "g/v"), "w": ("h", "h/u", "g", "g/v")}
    still, rng = Symmetry(axes, kinds={"h": "fixed", "g": "fixed"}), np.random.default_rng(seed)
    target = {site: rng.normal(size=shape) for site, shape in {"a": (3, 3), "c": (2, 3), "w": (3, 3, 2, 3)}.items()}
    bound = still.bind(target)
    moved = bound.apply(bound.sample(jax.random.key(seed)), target)
    source = {site: np.asarray(x) + rng.normal(size=x.shape) for site, x in moved.items()}
    found, least = (float(match(target, source, symmetry).objective) for symmetry in (Symmetry(axes), still))
    assert found >= least - 1e-9 * abs(least)


@pytest.mark.parametrize("what", ["signs", "twice"])
def test_blocks_that_cannot_be_paired_one_by_one_are_named(what):
    signed = what == "signs"
    axes = {"w": ("a", None, "a/b")} | ({} if signed else {"talk": ("a", "a")})
    rng = np.random.default_rng(0)
    shapes = {"w": (3, 2, 4)} | ({} if signed else {"talk": (3, 3)})
    target, source = ({site: rng.normal(size=shape) for site, shape in shapes.items()} for _ in range(2))
    symmetry = Symmetry(axes, {"a": "signed"} if signed else {})
    with pytest.warns(SymmetryWarning, match=r"Groups \['a'\] move blocks in which \[\['a/b'\]\] move too"):
        found = match(target, source, symmetry)
    assert not found.exact
    assert found.objective >= found.objective_before


def test_a_step_is_taken_again_only_where_another_gained():
    rng, group = np.random.default_rng(0), Symmetry({"w": ("a", "b")}).bind({"w": np.zeros((5, 5))}).groups
    w = rng.normal(size=(3, 5, 5))
    w[1] = np.eye(5) * np.arange(1.0, 6.0)
    problem = Problem((Term(w[1:2], w, (Axis("a", False, None), Axis("b", False, None))),), group)
    asked = {"a": [], "b": []}

    def taken(name, part):
        asked[name].append(part.terms[0].source)
        return nested._of_groups(part, [name], lambda p: solve(p, "descent", rng))

    found = nested._in_turns(problem, problem.identity(), [partial(taken, name) for name in asked])
    assert found.converged.all()
    for sources in asked.values():
        questions = [one.tobytes() for source in sources for one in source]
        assert len(set(questions)) == len(questions)
    # the second of the batch lies right: each step looks at it once
    assert sum(len(source) for source in asked["a"]) < len(w) * len(asked["a"])
    assert found.num_sweeps[1] == 1
    state = problem.identity()
    for _ in range(20):
        for name in asked:
            benefit = problem.benefit(name, {**state, name: None})
            state[name] = benefit.best()
    np.testing.assert_allclose(problem.score(found.state), problem.score(state), rtol=1e-12)
