"""What relabelling makes up is measured right, and reports say so."""

import numpy as np
import pytest

from numpyro_symmetry import EuclideanCost, GaussianCost, StephensCost, Symmetry, rebase, report
from tests import traces


def independent(size=5, draws=2000, columns=1, seed=0, chains=4):
    """Units without any identity."""
    rng = np.random.default_rng(seed)
    return {"unit": rng.standard_normal((chains, draws // chains, size, columns))}


UNITS = Symmetry({"unit": ("unit", None)})


@pytest.mark.parametrize("size", [3, 5])
def test_units_without_identity_explain_what_order_statistics_do(size):
    # the order statistics of n normals have total variance n, of which their own variances are what remains within
    out = rebase(independent(size), UNITS, cost=EuclideanCost())
    ordered = np.sort(independent(size, 40_000)["unit"][..., 0], -1).reshape(-1, size)
    expected = 1.0 - ordered.var(0).mean()
    assert out.null.explained == pytest.approx(expected, abs=0.02)
    assert out.null.explained_null == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("cost", [EuclideanCost(), GaussianCost()])
@pytest.mark.parametrize("columns", [1, 3])
def test_the_report_says_that_there_is_no_identity(cost, columns):
    values = independent(columns=columns)
    out = rebase(values, UNITS, cost=cost)
    assert abs(out.null.explained - out.null.explained_null) < 0.05
    found = report(values, out)
    assert any("made up" in warning for warning in found.warnings)
    assert "converged" not in str(found)
    assert out.null.num_identified == {"unit": 0}


def test_slots_well_apart_are_identified_and_their_spread_is_right():
    values = {"loc": traces.mixture(draws=400)[0]["loc"]}
    out = rebase(values, Symmetry.mixture("loc"))
    assert out.null.num_identified == {"component": 3}
    assert out.null.scale_ratio == pytest.approx(1.0, abs=0.03)
    assert out.data["loc"].reshape(-1, 3).std(0) == pytest.approx(np.ones(3), abs=0.05)
    found = report(values, out)
    assert found.warnings == ()
    assert found.share_relabelled == pytest.approx(5 / 6, abs=0.03)


@pytest.mark.parametrize("separation", [0.0, 1.0, 2.0])
def test_spread_is_understated_by_about_as_much_as_the_null_says(separation):
    values = {"loc": traces.mixture(draws=500, separation=separation, size=4)[0]["loc"]}
    out = rebase(values, Symmetry.mixture("loc"), cost=EuclideanCost())
    true_ratio = np.exp(np.log(out.data["loc"].reshape(-1, 4).std(0)).mean())
    # the simulated draws start from a spread already too small, so the null says at most as much as is true
    assert true_ratio - 0.02 <= out.null.scale_ratio < 1.0
    if separation < 2:
        assert any("shrinks standard deviations" in w for w in report(values, out).warnings)


@pytest.mark.parametrize("shifted", [1.0])
@pytest.mark.parametrize("separation", [1.0, 6.0])
def test_a_chain_that_has_not_converged_is_reported(separation, shifted):
    values, labels = traces.mixture(draws=1000, separation=separation)
    # chain 0: the component of label 2 lies elsewhere, whatever label it has in a draw
    values["loc"][0] += shifted * (labels[0] == 2)
    values = {"loc": values["loc"]}
    out = rebase(values, Symmetry.mixture("loc"))
    found = report(values, out)
    assert found.worst.r_hat > 1.01
    assert any("chains disagree" in w or "still disagree" in w for w in found.warnings)


def test_labels_that_never_mixed_look_bad_raw_and_good_relabelled():
    values, _ = traces.mixture(draws=500)
    # every chain stays with labels of its own
    true = rebase(values, traces.MIXTURE, order_by="loc").data
    orders = ([0, 1, 2], [1, 2, 0], [2, 0, 1], [1, 0, 2])
    stuck = {s: np.stack([v[k][:, order] for k, order in enumerate(orders)]) for s, v in true.items()}
    out = rebase(stuck, traces.MIXTURE, order_by="loc")
    found = report(stuck, out)
    row = {r.name: r for r in found.rows}["loc"]
    assert row.r_hat_raw > 1.5
    assert row.r_hat < 1.01
    assert row.ess > 100 * row.ess_raw
    assert found.worst.r_hat < 1.01


def test_invariants_are_judged_as_they_are():
    values, _ = traces.mixture(draws=100)
    rng = np.random.default_rng(0)
    bad = rng.standard_normal((4, 100, 2)) + 3 * np.arange(4)[:, None, None]
    found = report(values, rebase(values, traces.MIXTURE), {"prediction": bad})
    assert found.worst.name == "prediction"
    assert "chains disagree on prediction" in found.reading
    with pytest.raises(ValueError, match="leading dimensions"):
        report(values, rebase(values, traces.MIXTURE), {"prediction": bad[:2]})


def test_one_chain_says_nothing_of_chains():
    values, _ = traces.mixture(chains=1)
    out = rebase(values, traces.MIXTURE)
    found = report(values, out)
    assert "one chain" in found.reading
    assert all(np.isnan(row.r_hat) for row in found.rows)
    assert "–" in str(found)


def test_other_criteria_have_nulls_of_their_own():
    values, _ = traces.mixture(draws=100)
    y = np.linspace(-3, 15, 30)
    density = np.exp(-0.5 * (y[:, None] - values["loc"][..., None, :]) ** 2)
    out = rebase(values, traces.MIXTURE, cost=StephensCost(density / density.sum(-1, keepdims=True)))
    assert out.null.explained > out.null.explained_null + 0.1


def test_groups_on_two_axes_have_nulls_too():
    switched, _, _ = traces.hmm()
    out = rebase(switched, traces.HMM)
    assert out.null.explained > out.null.explained_null + 0.1
    assert out.null.num_identified["state"] == 3


def test_odd_units_have_nulls_too():
    switched, _ = traces.tanh_units()
    out = rebase(switched, traces.TANH)
    assert out.null.share > 0.8
    assert out.null.num_identified == {"hidden": 4}
    # with noise as large as the units there is nothing to identify
    switched, _ = traces.tanh_units(noise=20.0)
    out = rebase(switched, traces.TANH)
    assert out.null.share < 0.15


@pytest.mark.parametrize("seed", range(4))
def test_one_slot_apart_from_three_alike_is_the_one_that_is_identified(seed):
    rng = np.random.default_rng(seed)
    values = {"loc": rng.permuted(np.array([8.0, 0, 0, 0]) + rng.standard_normal((2000, 4)), axis=1)}
    out = rebase(values, Symmetry.mixture("loc"), order_by="loc")
    assert out.null.num_identified == {"component": 1}
    assert out.null.separation["component"].argmax() == 3


@pytest.mark.parametrize("seed", [2, 3])
def test_of_slots_without_identity_hardly_any_is_identified(seed):
    rng = np.random.default_rng(seed)
    out = rebase({"unit": rng.standard_normal((4, 500, 10, 1))}, UNITS, rng_key=None)
    assert out.null.num_identified["unit"] <= 1
    assert out.null.share < 0.15


@pytest.mark.parametrize("size", [1, 12, 40])
def test_slots_far_apart_are_not_called_made_up(size):
    rng = np.random.default_rng(0)
    values = {"loc": rng.permuted(10.0 * np.arange(size) + rng.standard_normal((1000, size)), axis=1)}
    out = rebase(values, Symmetry.mixture("loc"))
    assert not any("made up" in w for w in report(values, out).warnings)
    if size > 1:
        assert out.null.num_identified == {"component": size}


@pytest.mark.parametrize("cost", [EuclideanCost(), GaussianCost()])
def test_slots_far_apart_are_not_ambiguous_under_any_cost(cost):
    values = {"loc": traces.mixture(separation=12.0)[0]["loc"]}
    found = report(values, rebase(values, Symmetry.mixture("loc"), cost=cost))
    assert found.ambiguous == 0.0
    values = {"loc": traces.mixture(separation=0.5)[0]["loc"]}
    assert report(values, rebase(values, Symmetry.mixture("loc"), cost=cost)).ambiguous > 0.2


def test_what_is_not_known_is_said():
    values, _ = traces.mixture(draws=100)
    out = rebase(values, traces.MIXTURE)
    bad = np.zeros((4, 100))
    bad[0, :50] = np.nan
    with pytest.raises(ValueError, match="50 values that are not finite"):
        report(values, out, {"prediction": bad})
    few = {site: value[:, :3] for site, value in values.items()}
    assert "did not settle" in report(values, out._replace(converged=False)).reading
    out = rebase(few, traces.MIXTURE, num_leading_dims=2)
    assert "unknown below four" in report(few, out, num_leading_dims=2).reading
