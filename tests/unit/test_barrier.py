"""loss_barrier: closed forms, common random numbers, and what it refuses."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from numpyro_symmetry import DiagonalGaussian, FullGaussian, SymmetryError, SymmetryWarning, loss_barrier
from numpyro_symmetry.diagnostics import LossBarrier, plot_barrier

mpl.use("Agg")
Y = jnp.array([0.3, -0.2, 1.0])


def loss(values):
    """A Gaussian datum of mean w and unit variance."""
    return 0.5 * (Y - values["w"]) ** 2 + 0.5 * jnp.log(2 * jnp.pi)


def gaussian(loc, scale):
    return DiagonalGaussian({"w": jnp.array(loc)}, {"w": jnp.array(scale)})


def exact(q):
    variance = 1.0 + float(q.scale["w"]) ** 2
    return float((0.5 * (Y - q.loc["w"]) ** 2 / variance + 0.5 * jnp.log(2 * jnp.pi * variance)).mean())


def test_points_have_the_barrier_of_their_losses():
    found = loss_barrier(lambda v: (v["w"] ** 2 - 1.0)[None] ** 2, {"w": jnp.array(-1.0)}, {"w": jnp.array(1.0)})
    assert found.barrier == pytest.approx(1.0)
    assert found.error == 0.0
    np.testing.assert_allclose(found.t[[0, 5, 10]], [0.0, 0.5, 1.0])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint32", "int8", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "ends", [({"w": jnp.array(-1.0)}, {"w": jnp.array(2.0)}), (gaussian(-1.0, 0.5), gaussian(2.0, 1.0))]
)
def test_losses_of_zero_and_one_are_the_same_of_every_type(dtype, ends):
    def wrong(values, dtype):
        return (jnp.abs(jnp.linspace(-1.0, 2.0, 300) - values["w"]) > 0.4).astype(dtype)

    with jax.numpy_dtype_promotion("strict"):
        found, expected = (loss_barrier(lambda v, d=d: wrong(v, d), *ends, num_draws=50) for d in (dtype, "float32"))
    np.testing.assert_array_equal(found.loss, expected.loss)
    assert found.barrier == expected.barrier


def test_gaussians_are_marginalised_along_the_geodesic():
    a, b = gaussian(-2.0, 0.5), gaussian(1.0, 2.0)
    found = loss_barrier(loss, a, b, num_draws=20_000, num_points=5)
    truth = np.array([exact(a.geodesic(b, t)) for t in found.t])
    np.testing.assert_allclose(found.loss, truth, atol=0.03)
    chord = (1 - found.t) * truth[0] + found.t * truth[-1]
    assert (np.abs(found.excess - (truth - chord)) <= 4 * found.excess_error + 1e-6).all()
    assert found.excess_error[0] == pytest.approx(0.0, abs=1e-12)
    # a hundredth of the draws has errors ten times as large
    fewer = loss_barrier(loss, a, b, num_draws=200, num_points=5)
    np.testing.assert_allclose(fewer.excess_error[1:-1] / found.excess_error[1:-1], 10.0, rtol=0.4)


@pytest.mark.slow
def test_the_error_is_that_of_repeated_runs():
    a, b = gaussian(-2.0, 0.5), gaussian(2.0, 0.5)
    runs = [loss_barrier(loss, a, b, num_draws=64, num_points=3, rng_key=jax.random.key(k)) for k in range(40)]
    spread = np.std([run.excess[1] for run in runs], ddof=1)
    assert spread == pytest.approx(np.mean([run.excess_error[1] for run in runs]), rel=0.35)


def test_no_barrier_between_equal_ends():
    found = loss_barrier(loss, gaussian(0.5, 0.3), gaussian(0.5, 0.3))
    assert found.barrier == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_no_barrier_between_equal_ends_far_from_zero(unit, dtype):
    """Of numbers a million times as large as what they differ by, no rounding passes for a way."""
    far = {"w": (unit * (1e6 + np.random.default_rng(0).normal(size=20))).astype(dtype)}
    found = loss_barrier(lambda v: (v["w"] / unit - 1e6) ** 2, far, far, num_points=31)
    assert (found.barrier, np.ptp(found.loss), np.abs(found.excess).max()) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_path_begins_and_ends_at_its_ends(dtype):
    a, b = (DiagonalGaussian({"w": np.array(x, dtype)}, {"w": np.array(1.0, dtype)}) for x in (1e8, 1.2345678e-8))
    for t, end in ((0.0, a), (1.0, b)):
        assert a.geodesic(b, t).loc["w"] == end.loc["w"]
        assert jax.jit(a.geodesic)(b, t).loc["w"] == jnp.asarray(end.loc["w"])


def test_linear_path_of_gaussians_goes_through_their_means():
    a, b = gaussian(-1.0, 0.5), gaussian(1.0, 3.0)
    found = loss_barrier(loss, a, b, path="linear")
    assert found.loss == pytest.approx(loss_barrier(loss, a.loc, b.loc).loss)


def test_plot_shows_every_barrier():
    found = loss_barrier(loss, gaussian(-2.0, 0.5), gaussian(2.0, 0.5))
    axes = plot_barrier({"before": found, "after": found})
    told = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [text.split(":")[0] for text in told] == ["before", "after", "chord between the ends"]
    assert "±" in told[0]
    assert axes.get_legend().get_title().get_text() == "bands: ± 2 standard errors"
    curve, chord = axes.lines[:2]
    np.testing.assert_allclose(curve.get_xydata(), np.stack([found.t, found.loss], 1))
    np.testing.assert_allclose(chord.get_xydata(), [[0.0, found.loss[0]], [1.0, found.loss[-1]]])
    # two standard errors to either side
    x, y = axes.collections[0].get_paths()[0].vertices.T
    band = np.array([[y[x == t].min(), y[x == t].max()] for t in found.t])
    np.testing.assert_allclose(band, found.loss[:, None] + found.excess_error[:, None] * [-2.0, 2.0])
    assert (axes.get_xlabel(), axes.get_ylabel()) == (
        "interpolation, from first (0) to second (1)",
        "loss (nats per datum)",
    )
    assert plot_barrier(found, ax=axes) is axes
    assert isinstance(found, LossBarrier)
    # as many decimals as the error has: one digit of it in a figure, two where a barrier is printed
    found = found._replace(barrier=0.27341, error=0.00861)
    assert plot_barrier(found).get_legend().get_texts()[0].get_text() == "barrier 0.273 ± 0.009"
    assert str(found).startswith("LossBarrier(0.2734 ± 0.0086 nats a datum")


def test_losses_of_points_have_no_error_to_tell():
    found = loss_barrier(lambda v: (v["w"] ** 2 - 1.0)[None] ** 2, {"w": jnp.array(-1.0)}, {"w": jnp.array(1.0)})
    assert str(found).startswith("LossBarrier(1 a datum")
    axes = plot_barrier(found)
    assert axes.get_ylabel() == "loss (per datum)"
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["barrier 1", "chord between the ends"]
    assert not legend.get_title().get_text()
    assert "±" in str(loss_barrier(loss, gaussian(-2.0, 0.5), gaussian(2.0, 0.5)))


@pytest.mark.parametrize("given", [False, True])
def test_the_legend_of_barriers_lies_on_the_canvas(given):
    found = loss_barrier(loss, gaussian(-2.0, 0.5), gaussian(2.0, 0.5))
    axes = plot_barrier({"before": found, "after": found}, ax=plt.figure().add_subplot() if given else None)
    axes.figure.canvas.draw()
    legend, canvas = axes.get_legend().get_window_extent(), axes.figure.bbox
    assert canvas.x0 <= legend.x0 < legend.x1 <= canvas.x1
    assert canvas.y0 <= legend.y0 < legend.y1 <= canvas.y1
    # and hides no curve where there is room for it
    assert given or legend.y1 < axes.get_window_extent().y0


@pytest.mark.parametrize("given", [None, {}, 1.0, {"before": 1.0}, [1.0]])
def test_what_is_no_barrier_is_not_plotted(given):
    with pytest.raises(TypeError, match="plot_barrier expects what loss_barrier returned"):
        plot_barrier(given)


@pytest.mark.parametrize(
    ("ends", "options", "error", "message"),
    [
        (({"w": 0.0}, {"v": 0.0}), {}, SymmetryError, "different sites"),
        (({"w": 0.0}, {"w": 0.0}), {"path": "wasserstein"}, SymmetryError, "needs standard deviations"),
        (({"w": 0.0}, {"w": 0.0}), {"path": "mixture"}, ValueError, "path must be one of"),
        (({"w": 0.0}, {"w": 0.0}), {"num_points": 2}, ValueError, "num_points must be at least 3"),
        (({"w": 0.0}, {"w": 0.0}), {"num_points": 5.5}, TypeError, "num_points must be a whole number.*got 5.5"),
        (({"w": 0.0}, {"w": 0.0}), {"num_draws": 1}, ValueError, "num_draws must be at least 2"),
        (({"w": 0.0}, {"w": 0.0}), {"rng_key": 3}, TypeError, "rng_key must be one JAX random key"),
        (({"w": 0.0}, {"w": np.nan}), {}, SymmetryError, "loc of site 'w' of the second end holds 1 non-finite"),
        (({"w": np.ma.array([0.0], mask=[1])}, {"w": [0.0]}), {}, SymmetryError, "Site 'w' is a masked array"),
        (({"p": {"w": 0.0}}, {"p": {"w": 0.0}}), {}, SymmetryError, r"mappings at \['p'\].*leaves are arrays"),
        (({"w": "a"}, {"w": "b"}), {}, SymmetryError, "Site 'w': expected real numbers"),
        ((3.0, {"w": 0.0}), {}, SymmetryError, "Expected values by site.*got float"),
        (
            (jax.tree.map(np.negative, gaussian(0.0, 1.0)), gaussian(0.0, 1.0)),
            {},
            SymmetryError,
            "'w' of the first end holds 1 negative standard deviations",
        ),
    ],
)
def test_refuses(ends, options, error, message):
    with pytest.raises(error, match=message):
        loss_barrier(loss, *ends, **options)


def test_refuses_a_loss_without_data():
    with pytest.raises(ValueError, match="one number for each datum"):
        loss_barrier(lambda v: v["w"] ** 2, {"w": jnp.array(0.0)}, {"w": jnp.array(1.0)})


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (lambda v: jnp.zeros(0), ValueError, "over no data"),
        (lambda v: np.square(np.asarray(v["w"]))[None], TypeError, "loss is compiled, and left JAX"),
        (lambda v: jnp.array([float(v["w"])]), TypeError, "loss is compiled, and left JAX"),
        (lambda v: jnp.ones(2) if v["w"] > 0 else jnp.zeros(2), TypeError, "loss is compiled, and left JAX"),
        (lambda v: v["w"][None] * jnp.nan, ValueError, "loss is not finite for 1 data at t=0.00"),
        (3.0, TypeError, "loss must be a function"),
    ],
)
def test_losses_that_are_none_are_named(loss, error, message):
    with pytest.raises(error, match=message):
        loss_barrier(loss, {"w": jnp.array(0.0)}, {"w": jnp.array(1.0)})


def test_a_barrier_is_printed_in_a_line_and_needs_numbers():
    found = loss_barrier(loss, gaussian(-2.0, 0.5), gaussian(2.0, 0.5), num_points=3)
    assert repr(found).startswith("LossBarrier(")
    assert "nats a datum at t=0." in repr(found)
    assert len(repr(found)) < 200
    assert "array" not in repr(found)
    with pytest.raises(TypeError, match="loss_barrier needs numbers and cannot run under jit"):
        jax.jit(lambda w: loss_barrier(loss, {"w": w}, {"w": w}).barrier)(jnp.array(0.0))


def test_too_few_effective_draws_are_warned_of():
    a, b = (DiagonalGaussian({"w": jnp.array(m)}, {"w": jnp.ones(())}) for m in (-3.0, 3.0))

    def narrow(values):
        return 0.5 * (values["w"][None] / 0.05) ** 2

    with pytest.warns(SymmetryWarning, match="in effect the average of"):
        found = loss_barrier(narrow, a, b)
    assert found.effective_draws.min() < 5


@pytest.mark.parametrize(("scale", "is_few"), [(1.5, False), (1.7, True)])
def test_few_effective_draws_are_fewer_than_five(scale, is_few):
    q = DiagonalGaussian({"w": jnp.zeros(())}, {"w": jnp.array(scale)})
    with pytest.warns(SymmetryWarning, match=r"the average of 4\.7 of 20 draws") if is_few else nullcontext():
        found = loss_barrier(lambda values: -values["w"][None], q, q, num_points=3, num_draws=20)
    assert int(found.effective_draws.min()) == (4 if is_few else 5)


def test_effective_draws_are_those_of_weighted_averages():
    # where a log-likelihood is a times a normal, likelihoods are in effect the average of exp(-a^2) of their draws
    slopes = jnp.zeros(101).at[:2].set(jnp.array([1.2, 0.8]))
    q = DiagonalGaussian({"w": jnp.zeros(())}, {"w": jnp.ones(())})
    found = loss_barrier(lambda values: -slopes * values["w"], q, q, num_points=3, num_draws=20_000)
    # of 101 data, one in a hundred is worse than the second worst
    np.testing.assert_allclose(found.effective_draws / 20_000, np.exp(-(0.8**2)), rtol=0.05)


def test_what_has_no_path_is_refused():
    full = FullGaussian({"w": np.zeros(2)}, np.eye(2))

    def loss(values):
        return values["w"] ** 2

    with pytest.raises(SymmetryError, match="diagonal"):
        loss_barrier(loss, full, full)
    assert loss_barrier(loss, full, full, path="linear").barrier == 0.0
    with pytest.raises(SymmetryError, match="'w' has shape"):
        loss_barrier(loss, {"w": jnp.zeros(1)}, {"w": jnp.ones(3)})
    with pytest.raises(ValueError, match="not finite"):
        loss_barrier(lambda values: jnp.log(values["w"]), {"w": -jnp.ones(1)}, {"w": jnp.ones(1)})
