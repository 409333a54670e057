"""rebase where blocks move, and units in each of them: labels of both levels, naming, margins, nulls, reports."""

import jax
import numpy as np
import pytest

from numpyro_symmetry import GaussianCost, Split, Symmetry, SymmetryWarning, Unsigned, rebase, report
from numpyro_symmetry.assignment.problem import Problem, Term
from numpyro_symmetry.diagnostics import plot_transpositions
from numpyro_symmetry.symmetry import PlainView
from numpyro_symmetry.symmetry.hard import from_element, then, to_element
from numpyro_symmetry.traces.margin import margins

CASES = {
    "experts": (
        Symmetry({"up": ("e", None, "e/unit"), "bias": ("e", "e/unit"), "route": (None, "e")}),
        {"up": (3, 2, 4), "bias": (3, 4), "route": (2, 3)},
    ),
    "heads over a stream": (
        Symmetry({"q": ("stream", Split((2, 3), ("h", "h/u"))), "emb": (None, "stream")}),
        {"q": (4, 6), "emb": (3, 4)},
    ),
    "orbits": (
        Symmetry({"w": ("a", None, "a/b")}, orbits={"a": (0, 1, 0, 0), "a/b": (0, 0, 1, 1, 1)}),
        {"w": (4, 3, 5)},
    ),
    "signed units of heads of layers that stay": (
        Symmetry(
            {"w": ("l", "l/h", None, "l/h/u"), "s": ("l", "l/h", Unsigned("l/h/u"))}, {"l": "fixed", "l/h/u": "signed"}
        ),
        {"w": (2, 2, 2, 3), "s": (2, 2, 3)},
    ),
}


def switched(name, num_draws=12):
    """A truth, draws about it, and the same under labels of both levels that each draw has of its own."""
    rng = np.random.default_rng(0)
    symmetry, shapes = CASES[name]
    truth = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    draws = {site: v + 0.05 * rng.normal(size=(num_draws, *v.shape)) for site, v in truth.items()}
    bound = symmetry.bind(truth)
    g = bound.sample(jax.random.key(0), (num_draws,))
    return symmetry, truth, draws, {site: np.asarray(x) for site, x in bound.apply(g, draws).items()}


@pytest.mark.parametrize("case", CASES)
def test_labels_of_both_levels_are_found(case):
    symmetry, truth, draws, given = switched(case)
    out = rebase(given, symmetry, reference=truth, null=False)
    for site, values in draws.items():
        assert (out.data[site] == values).all()
        assert (out.undo(out.data)[site] == given[site]).all()
    assert out.converged
    assert (out.margin > 0).all()
    named = rebase(given, symmetry, reference="first", cost=GaussianCost(), null=False)
    for site, values in given.items():
        assert (named.data[site][0] == values[0]).all()
        assert named.data[site].std(0).max() < 0.2


def test_order_by_names_blocks_and_moves_their_units_along():
    symmetry, _, draws, given = switched("experts")
    bias = given["route"][:, 0] * 0 + given["route"][:, 0]
    symmetry = Symmetry({**symmetry.axes, "order": ("e",)})
    out = rebase({**given, "order": bias}, symmetry, order_by="order", null=False)
    assert (np.diff(out.data["order"].mean(0)) > 0).all()
    # the same draws, whatever their labels: what no label changes is as it was
    assert np.allclose(np.sort(out.data["bias"].reshape(12, -1)), np.sort(draws["bias"].reshape(12, -1)))
    assert out.data["up"].std(0).max() < 0.2


@pytest.mark.parametrize("blocks", [2, 3])
def test_margins_are_those_of_all_elements(blocks):
    rng = np.random.default_rng(0)
    shapes, axes = {"w": (blocks, 3, 2), "v": (blocks, 2)}, {"w": ("a", None, "a/b"), "v": ("a", "a/b")}
    target = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    # between their labels and those of the next blocks
    draws = {s: x + np.roll(x, 1, 0) + rng.normal(size=(20, *x.shape)) for s, x in target.items()}
    plain = PlainView.of(Symmetry(axes).bind(target), target, nested=True).symmetry
    terms = tuple(Term(np.broadcast_to(target[s], x.shape), x, plain.opened(s)) for s, x in draws.items())
    every = plain.elements()
    moved = [plain.apply(jax.tree.map(lambda x, k=k: x[k], every), draws) for k in range(len(every["a"]))]
    scores = np.stack([sum((g[s] * target[s]).reshape(20, -1).sum(-1) for s in axes) for g in moved], -1)
    order = np.argsort(scores)
    best = from_element(jax.tree.map(lambda x: x[order[:, -1]], every))
    two = np.take_along_axis(scores, order[:, -2:], 1)
    np.testing.assert_allclose(margins(Problem(terms, plain.groups), best), two[:, 1] - two[:, 0], atol=1e-5)


def test_one_batch_after_another_is_their_composition():
    for symmetry, shapes in CASES.values():
        view = PlainView.of(
            symmetry.bind({s: np.zeros(x) for s, x in shapes.items()}),
            {s: np.zeros(x) for s, x in shapes.items()},
            nested=True,
        )
        plain, rng = view.symmetry, np.random.default_rng(0)
        values = {
            s: rng.normal(
                size=(
                    3,
                    *(
                        plain.sizes.get(e, 2) if isinstance(e, str) else plain.sizes[e.group] if e else 2
                        for e in entries
                    ),
                )
            )
            for s, entries in plain.axes.items()
        }
        g, h = (plain.sample(jax.random.key(k), (3,)) for k in (0, 1))
        both = to_element(then(from_element(g), from_element(h)), (3,))
        for site, value in plain.apply(h, plain.apply(g, values)).items():
            assert (np.asarray(value) == np.asarray(plain.apply(both, values)[site])).all()
        # and through the view and back
        back = view.parts(view.element(g))
        assert all((back[name].permutation == part.permutation).all() for name, part in from_element(g).items())


def test_draws_of_nobody_are_told_and_reported():
    symmetry = Symmetry({"w": ("a", None, "a/b")})
    rng = np.random.default_rng(0)
    nobody, somebody = rng.normal(size=(2, 40, 2, 2, 2)), 5.0 * rng.normal(size=(2, 2, 2))
    somebody = somebody + 0.1 * rng.normal(size=(40, 2, 2, 2))
    for draws, is_somebody in ((nobody[0], False), (somebody, True)):
        g = symmetry.bind({"w": draws[0]}).sample(jax.random.key(0), (40,))
        given = {"w": np.asarray(symmetry.bind({"w": draws[0]}).apply(g, {"w": draws})["w"])}
        out = rebase(given, symmetry)
        assert (out.null.share > 0.5) == is_somebody
        assert out.null.separation["a"].shape == (2,)
        assert out.null.separation["a/b"].shape == (4,)
    assert "a/b" in str(report(given, out))
    assert plot_transpositions(out, "a/b").lines[0].get_ydata().shape == (39,)


def test_blocks_that_cannot_be_paired_are_named():
    rng = np.random.default_rng(0)
    with pytest.warns(SymmetryWarning, match=r"Groups \['a'\] move blocks in which \[\['a/b'\]\] move too"):
        rebase({"w": rng.normal(size=(5, 3, 2, 4))}, Symmetry({"w": ("a", None, "a/b")}, {"a": "signed"}), null=False)
