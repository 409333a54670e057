"""Distances between predictions, pruning, and plots of relabelled draws."""

import inspect

import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from numpyro_symmetry import DiagonalGaussian, Symmetry, SymmetryError, diagnostics, rebase
from numpyro_symmetry.diagnostics import (
    agreement,
    plot_evidence,
    plot_null,
    plot_relabelling,
    plot_transpositions,
    total_variation,
)
from numpyro_symmetry.evidence import LogEvidence
from numpyro_symmetry.traces import prune
from tests.support import traces
from tests.support.stored import dataset

mpl.use("agg")
P = jnp.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3]])
Q = jnp.array([[0.6, 0.3, 0.1], [0.6, 0.2, 0.2]])


def test_agreement_and_total_variation_by_hand():
    assert float(agreement(P, Q)) == 0.5
    assert float(total_variation(P, Q)) == pytest.approx((0.3 + 0.4) / 2)
    assert float(agreement(P, P)) == 1.0
    assert float(total_variation(P, P)) == 0.0
    assert total_variation(jnp.stack([P, Q]), Q).shape == (2,)


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "int8", "bool", "float16"])
def test_one_class_for_each_datum_may_be_marked_by_any_numbers(dtype):
    marked, other = (np.eye(3)[classes].astype(dtype) for classes in ([0, 1, 2], [1, 1, 0]))
    assert float(total_variation(marked, other)) == pytest.approx(2 / 3)
    assert float(total_variation(other, np.full((3, 3), 1 / 3))) == pytest.approx(2 / 3)
    assert float(agreement(marked, other)) == pytest.approx(1 / 3)


@pytest.mark.parametrize("measure", [agreement, total_variation])
def test_what_is_no_distribution_is_refused(measure):
    for other in (jnp.log(Q), 1.1 * Q):
        with pytest.raises(SymmetryError, match="not logits"):
            measure(P, other)
    with pytest.raises(SymmetryError, match="same data"):
        measure(P, Q[:1])


@pytest.mark.parametrize("keep", [0.0, 0.25, 0.5, 1.0])
def test_pruning_keeps_what_is_known_best(keep):
    rng = np.random.default_rng(0)
    q = DiagonalGaussian(
        {"a": rng.normal(size=(3, 4)), "b": rng.normal(size=8)},
        {"a": rng.uniform(size=(3, 4)), "b": rng.uniform(size=8)},
    )
    values = prune(q, keep)
    scale = np.concatenate([q.scale["a"].ravel(), q.scale["b"]])
    kept = np.concatenate([values["a"].ravel(), values["b"]]) != 0
    assert kept.sum() == round(20 * keep)
    assert not kept.any() or kept.all() or scale[kept].max() < scale[~kept].min()
    assert (prune(q, 0.0, sites=["a"])["b"] == q.loc["b"]).all()
    with pytest.raises(SymmetryError, match="share"):
        prune(q, 1.5)
    with pytest.raises(SymmetryError, match="not among"):
        prune(q, 0.5, sites=["c"])


def test_plots():
    values, _ = traces.mixture(draws=50)
    out = rebase(values, traces.MIXTURE)
    assert len(plot_relabelling(values, out, ("loc", "scale"))) == 2
    assert plot_relabelling(values, out, ("loc", "loc"))[0].get_xlabel() == "draw, chain after chain"
    axes = plot_transpositions(out)
    lines = [line for line in axes.lines if len(line.get_ydata()) == 49]
    assert len(lines) == 4
    assert np.mean([line.get_ydata().mean() for line in lines]) == pytest.approx(3 - 11 / 6, abs=0.15)
    assert all((line.get_xdata() == np.arange(1, 50)).all() for line in lines)
    assert axes.lines[4].get_ydata() == pytest.approx([3 - 11 / 6] * 2)
    assert all(float(tick).is_integer() for tick in axes.get_yticks())
    # a chain that keeps to one labelling, whatever that is, switches nothing
    kept = out._replace(elements={"component": np.broadcast_to([1, 2, 0], (4, 50, 3))})
    assert all((line.get_ydata() == 0).all() for line in plot_transpositions(kept).lines[:4])
    axes = plot_null(out)
    assert "nearest" in axes.get_ylabel()
    # slots from the furthest to the nearest, beside those of draws without identity
    ranked = sorted(out.null.separation["component"], reverse=True)
    for line, expected in zip(axes.lines, (ranked, out.null.separation_null["component"]), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.stack([[1, 2, 3], expected], 1))
    with pytest.raises(SymmetryError, match="no null"):
        plot_null(rebase(values, traces.MIXTURE, null=False))
    with pytest.raises(SymmetryError, match="name one of"):
        plot_transpositions(out, "state")


def test_legends_name_what_is_drawn_and_stand_beside_it():
    values, _ = traces.mixture(draws=50)
    out = rebase(values, traces.MIXTURE)
    slots, chains = plot_relabelling(out)[1], plot_transpositions(out)
    named = {
        slots: (["0", "1", "2"], "slot"),
        chains: ([*(f"chain {k}" for k in range(4)), "random labels"], ""),
        plot_null(out): (["component", "component, null"], ""),
    }
    for axes, (names, title) in named.items():
        legend = axes.get_legend()
        assert ([text.get_text() for text in legend.get_texts()], legend.get_title().get_text()) == (names, title)
        assert not legend.get_frame_on()
    for axes in (slots, chains):
        axes.figure.canvas.draw()
        beside = axes.get_legend().get_window_extent()
        assert axes.get_window_extent().x1 <= beside.x0 < beside.x1 <= axes.figure.bbox.x1
    # thousands of faint points, of which the legend shows one that can be seen
    for line, shown in zip(slots.lines, slots.get_legend().legend_handles, strict=True):
        assert (shown.get_alpha(), shown.get_color()) == (1.0, line.get_color())
        assert shown.get_markersize() > line.get_markersize()


def test_running_means_stand_beside_the_steps_of_long_chains():
    values, _ = traces.mixture(draws=221)
    axes = plot_transpositions(rebase(values, traces.MIXTURE, null=False))
    steps, means, (baseline,) = np.split(np.array(axes.lines), [4, 8])
    assert baseline.get_label() == "random labels"
    key = axes.get_legend()
    assert [text.get_text() for text in key.texts] == [*(f"chain {k}" for k in range(4)), "random labels"]
    assert {handle.get_alpha() for handle in key.legend_handles} == {1.0} != {line.get_alpha() for line in steps}
    for line, mean in zip(steps, means, strict=True):
        x, y = line.get_data()
        # of eleven draws, about the sixth
        np.testing.assert_allclose(mean.get_ydata(), [y[k : k + 11].mean() for k in range(len(y) - 10)])
        np.testing.assert_array_equal(mean.get_xdata(), x[5:-5])
        assert line.get_color() == mean.get_color()


def test_both_work_under_jit_vmap_grad_and_in_batches():
    p, q = (jax.nn.softmax(jax.random.normal(jax.random.key(k), (4, 6, 3))) for k in (0, 1))
    for measure in (agreement, total_variation):
        each = [float(measure(a, b)) for a, b in zip(p, q, strict=True)]
        np.testing.assert_allclose(measure(p, q), each, rtol=1e-6)
        np.testing.assert_allclose(jax.jit(measure)(p, q), each, rtol=1e-6)
        np.testing.assert_allclose(jax.vmap(measure)(p, q), each, rtol=1e-6)
        np.testing.assert_allclose(measure(p, q[0])[0], each[0], rtol=1e-6)
    slope = jax.grad(lambda x: total_variation(jax.nn.softmax(x), q[0]))(jnp.zeros((6, 3)))
    assert bool(jnp.isfinite(slope).all())
    assert bool((slope != 0).any())


@pytest.mark.parametrize(
    ("p", "q", "message"),
    [
        (np.ones((0, 2)), np.ones((0, 2)), "There are no data"),
        (np.ones((2, 0)), np.ones((2, 0)), "or no classes"),
        (np.full((3, 2, 2), 0.5), np.full((4, 2, 2), 0.5), "of the same data"),
        (np.ma.array([[0.5, 0.5]], mask=[[0, 1]]), [[0.5, 0.5]], "Argument 'p' is a masked array"),
        ([[0.5, 0.5]], [["a", "b"]], "q, of probabilities: expected real numbers"),
        ([[1j, 0.5]], [[0.5, 0.5]], "p, of probabilities: expected real numbers"),
    ],
)
def test_bad_probabilities_are_named(p, q, message):
    for measure in (agreement, total_variation):
        with pytest.raises(SymmetryError, match=message):
            measure(p, q)


def test_draws_that_are_stored_are_plotted_as_those_in_memory():
    values, _ = traces.mixture(draws=50)
    lines = []
    for draws in (dataset(values), dataset(values).chunk(draw=20)):
        _, after = plot_relabelling(rebase(draws, traces.MIXTURE, null=False), sites="loc")
        lines.append([line.get_ydata() for line in after.lines])
    np.testing.assert_array_equal(*lines)


def test_parts_of_sites_that_have_labels_of_their_own_are_plotted():
    values = {site: np.random.default_rng(0).normal(size=(50, 2, 4)) for site in ("loc", "scale")}
    of_cells = Symmetry({site: ("s", "s/k") for site in values}).restrict(["s/k"])
    _, after = plot_relabelling(rebase(values, of_cells, null=False))
    assert (after.get_xlabel(), after.get_ylabel(), len(after.lines)) == ("loc#0", "scale#0", 4)
    out = rebase(values, of_cells, null=False)
    _, after = plot_relabelling(values, out, "scale#1")
    np.testing.assert_array_equal([line.get_ydata() for line in after.lines], out.data["scale"][:, 1].T)
    with pytest.raises(SymmetryError, match=r"group='s/k': name one of .* \['s.k\[0\]', 's.k\[1\]'\]"):
        plot_transpositions(out, "s/k")
    with pytest.raises(SymmetryError, match=r"\['loc'\] are none of .* parts \['loc#0', 'loc#1', 'scale#0'"):
        plot_relabelling(values, out, "loc")
    # of exchangeable components and one apart, the first have slots
    orbits = Symmetry({site: (None, "k") for site in values}, orbits={"k": (0, 0, 0, 1)})
    out = rebase(values, orbits, null=False)
    _, after = plot_relabelling(values, out, "loc")
    assert (after.get_xlabel(), len(after.lines)) == ("loc, value 0", 3)
    drawn = [plot_transpositions(out, name).lines[0].get_ydata() for name in ("k", "k:0")]
    np.testing.assert_array_equal(*drawn)
    np.testing.assert_array_equal([line.get_xdata() for line in after.lines], out.data["loc"][:, 0, :3].T)


def test_of_many_values_a_slot_those_that_vary_are_plotted():
    values = np.zeros((50, 3, 4))
    values[..., 1] = 1.0
    values[..., 3] = np.random.default_rng(0).normal(size=(50, 3)) + [-3.0, 0.0, 3.0]
    out = rebase({"w": values}, Symmetry({"w": ("k", None)}), null=False)
    for one in (out, rebase({"w": values > 0.5}, Symmetry({"w": ("k", None)}), null=False)):
        _, after = plot_relabelling(one)
        assert (after.get_xlabel(), after.get_ylabel()) == ("w, value 3", "w, value 0")


def test_relabelled_draws_are_plotted_by_default_by_one_site_and_by_many_values_a_slot():
    values, _ = traces.mixture(draws=50)
    out = rebase(values, traces.MIXTURE, null=False)
    names = [(axes.get_xlabel(), axes.get_ylabel()) for axes in plot_relabelling(out)]
    assert names == [("weights", "loc")] * 2
    for site in ("loc", ("loc",), ["loc"], ("loc", "loc")):
        before, after = plot_relabelling(values, out, site)
        assert (after.get_xlabel(), after.get_ylabel()) == ("draw, chain after chain", "loc")
        borders = [segment[0, 0] for segment in after.collections[0].get_segments()]
        assert borders == [49.5, 99.5, 149.5]
        np.testing.assert_array_equal(before.lines[1].get_ydata(), values["loc"].reshape(-1, 3)[:, 1])
        np.testing.assert_array_equal(after.lines[1].get_ydata(), out.data["loc"].reshape(-1, 3)[:, 1])
    units = np.random.default_rng(0).standard_normal((4, 50, 2, 3)) + 5.0 * np.arange(3)
    out = rebase({"w": units}, Symmetry({"w": (None, "unit")}), null=False)
    after = plot_relabelling(out)[1]
    assert (after.get_xlabel(), after.get_ylabel(), len(after.lines)) == ("w, value 0", "w, value 1", 3)
    np.testing.assert_array_equal(after.lines[2].get_ydata(), out.data["w"][:, :, 1, 2].ravel())


HMM_DRAWS = traces.hmm()[0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda v, o: plot_relabelling(v, o, ("loc", "scale", "weights")), SymmetryError, "one site or two; got 3"),
        (lambda v, o: plot_relabelling(v, o, ()), SymmetryError, "one site or two; got 0"),
        (lambda v, o: plot_relabelling(v, o, "mu"), SymmetryError, r"\['mu'\] are none of the symmetry's sites"),
        (lambda v, o: plot_relabelling(v, o, 3), TypeError, "sites must be a tuple of names"),
        (lambda v, o: plot_relabelling(v, o.data, "loc"), TypeError, "out must be what rebase returned"),
        (lambda v, o: plot_relabelling({"loc": v["loc"]}, o), SymmetryError, "raw has no sites"),
        (lambda v, o: plot_transpositions(o.data), TypeError, r"plot_transpositions\(out\): out must be what rebase"),
        (lambda v, o: plot_null(None), TypeError, "got NoneType"),
        (
            lambda v, o: plot_transpositions(
                rebase({"loc": v["loc"][:, :1]}, Symmetry.mixture("loc"), null=False, num_leading_dims=2)
            ),
            SymmetryError,
            r"one draw in each of 4 chain\(s\).*num_leading_dims=1",
        ),
        (
            lambda v, o: plot_relabelling(rebase(HMM_DRAWS, traces.HMM, null=False), sites="transition"),
            SymmetryError,
            "'transition' has axes .* one group on one axis",
        ),
        (
            lambda v, o: plot_relabelling(
                rebase({"a": np.ones((50, 3, 2)), "b": np.ones((50, 3))}, AB, null=False), sites=("b", "a")
            ),
            SymmetryError,
            "'a' has 2 values a slot",
        ),
    ],
)
def test_what_cannot_be_plotted_is_said(call, error, message):
    values, _ = traces.mixture(draws=50)
    with pytest.raises(error, match=message):
        call(values, rebase(values, traces.MIXTURE, null=False))


@pytest.mark.parametrize("name", [name for name in diagnostics.__all__ if name.startswith("plot_")])
def test_every_plot_takes_axes_by_one_name(name):
    assert inspect.signature(getattr(diagnostics, name)).parameters["ax"].kind is inspect.Parameter.KEYWORD_ONLY


def test_evidence_is_drawn_with_its_errors_and_between_its_bounds():
    known = LogEvidence(-3.0, 0.5, -3.5, 0.1, -2.0, 0.1, 0.0, 0.0, 100.0, 0.1, "bridge")
    given = plt.figure().add_subplot()
    axes = plot_evidence(
        {2: known, 4: known._replace(value=-2.0, error=np.nan, upper=np.inf, method="laplace")}, ax=given
    )
    assert axes is given
    line, lower, upper = axes.containers[0].lines[0], *axes.containers[0].lines[1]
    np.testing.assert_allclose(line.get_xydata(), [[2, -3], [4, -2]])
    np.testing.assert_allclose([lower.get_ydata(), upper.get_ydata()], [[-4, -2], [-2, -2]])
    bounds = [path.vertices for path in axes.collections[0].get_paths()]
    np.testing.assert_allclose(bounds, [[[2, -3.5], [2, -2]]])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["bounds", "estimate, ± 2 standard errors"]
    by_name = plot_evidence({"NUTS": known, "guide": known})
    assert [tick.get_text() for tick in by_name.get_xticklabels()] == ["NUTS", "guide"]


AB = Symmetry({"a": ("u", None), "b": ("u",)})


def test_probabilities_that_are_not_finite_are_refused():
    with pytest.raises(SymmetryError, match="not a distribution"):
        agreement(P * jnp.nan, P)
