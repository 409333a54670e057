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
    assert out.null.num_identified["unit"] <= 2


def test_slots_well_apart_are_identified_and_their_spread_is_right():
    values, _ = traces.mixture(draws=400)
    out = rebase(values, Symmetry.mixture("loc"))
    assert out.null.num_identified == {"component": 3}
    assert out.null.scale_ratio == pytest.approx(1.0, abs=0.03)
    assert out.data["loc"].reshape(-1, 3).std(0) == pytest.approx(np.ones(3), abs=0.05)
    found = report(values, out)
    assert found.warnings == ()
    assert found.share_relabelled == pytest.approx(5 / 6, abs=0.03)


@pytest.mark.parametrize("separation", [0.0, 1.0, 2.0])
def test_spread_is_understated_by_about_as_much_as_the_null_says(separation):
    values, _ = traces.mixture(draws=500, separation=separation, size=4)
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
    assert out.null.explained > out.null.explained_null + 0.3
    # with noise as large as the units there is nothing to identify
    switched, _ = traces.tanh_units(noise=20.0)
    out = rebase(switched, traces.TANH)
    assert abs(out.null.explained - out.null.explained_null) < 0.1
