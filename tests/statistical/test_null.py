"""What relabelling makes up is measured right, and reports say so."""

import numpy as np
import pytest

from numpyro_symmetry import EuclideanCost, GaussianCost, StephensCost, Symmetry, rebase, report
from numpyro_symmetry.assignment.family import Side
from numpyro_symmetry.symmetry import PlainView
from numpyro_symmetry.symmetry.axes import Axis
from numpyro_symmetry.traces import Null
from numpyro_symmetry.traces.costs import PlainDraws
from numpyro_symmetry.traces.null import MIN_EFFECTIVE, CannotTell, Explained, matched_null
from numpyro_symmetry.traces.relabel import SearchEffort
from numpyro_symmetry.traces.shuffle import Shuffle
from tests.support import traces
from tests.support.tables import every_relabelling_cost
from tests.support.traces import autoregressive


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


@every_relabelling_cost
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


def test_a_missing_number_is_a_dash_and_a_name_stays_what_it_is():
    values, _ = traces.mixture(chains=1, draws=20)
    values = {"resonance": values["loc"]}
    found = str(report(values, rebase(values, Symmetry.mixture("resonance"), null=False)))
    row = next(line for line in found.splitlines() if line.startswith("resonance "))
    assert row.split()[:3] == ["resonance", "–", "–"]
    assert "nan" not in found.replace("resonance", "")


def test_other_criteria_have_nulls_of_their_own():
    values, _ = traces.mixture(draws=100)
    y = np.linspace(-3, 15, 30)
    density = np.exp(-0.5 * (y[:, None] - values["loc"][..., None, :]) ** 2)
    out = rebase(values, traces.MIXTURE, cost=StephensCost(density / density.sum(-1, keepdims=True)))
    assert out.null.explained > out.null.explained_null + 0.1


def test_against_fixed_slots_the_null_is_relabelled_once_as_the_draws_are():
    # slots that differ in one of two numbers sort the draws by that one, and would find better slots if they could move
    rng = np.random.default_rng(0)
    first = rng.standard_normal((4, 250, 5, 2)) + 4.0 * np.arange(5)[:, None] * [1.0, 0.0]
    out = rebase({"unit": first}, UNITS, cost=EuclideanCost(standardize=False))
    null = rebase(independent(columns=2, seed=1), UNITS, reference=out).null
    ordered = np.sort(independent(5, 40_000)["unit"][..., 0], -1).reshape(-1, 5)
    assert null.explained == pytest.approx((1.0 - ordered.var(0).mean()) / 2, abs=0.02)
    assert null.explained_null == pytest.approx(null.explained, abs=0.03)


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


@every_relabelling_cost
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
    warning = report(values, out, {"prediction": bad}).warnings[0]
    assert warning == "WARNING: could not judge prediction: 50 draws are not a number (chain 0: 50)."
    few = {site: value[:, :3] for site, value in values.items()}
    assert "did not settle" in report(values, out._replace(converged=False)).reading
    out = rebase(few, traces.MIXTURE, num_leading_dims=2)
    assert "unknown below four" in report(few, out, num_leading_dims=2).reading


@pytest.mark.parametrize("draws", [4, 8, 20, pytest.param(12, marks=pytest.mark.slow)])
def test_of_few_draws_without_identity_no_slot_is_identified(draws):
    false = 0
    for seed in range(30):
        values = {"loc": np.random.default_rng(seed).standard_normal((draws, 3))}
        identified = rebase(values, Symmetry.mixture("loc"), num_leading_dims=1).null.num_identified["component"]
        assert isinstance(identified, CannotTell) == (draws < MIN_EFFECTIVE)
        false += not isinstance(identified, CannotTell) and identified > 0
    # five in a hundred, and two errors
    assert false <= 30 * 0.05 + 2 * np.sqrt(30 * 0.05 * 0.95)


def test_too_few_draws_are_a_value_that_says_how_many():
    values = {"loc": np.random.default_rng(0).standard_normal((6, 3))}
    null = rebase(values, Symmetry.mixture("loc"), num_leading_dims=1).null
    assert not null.can_tell
    assert null.num_identified == {"component": CannotTell(6)}
    assert str(CannotTell(6)) == "cannot tell from 6 independent draws"


@pytest.mark.parametrize(("correlation", "most"), [(0.999, 20), (0.97, 60)])
def test_what_chains_remember_is_not_taken_for_identity(correlation, most):
    for seed in range(3):
        units = autoregressive(np.random.default_rng(seed), (4, 500, 5), correlation)
        null = rebase({"unit": units[..., None]}, UNITS).null
        identified = null.num_identified["unit"]
        assert isinstance(identified, CannotTell) or identified == 0
        assert null.num_effective <= most
        assert null.explained < null.explained_null + 0.05


@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_slots_apart_stay_identified_in_chains_that_remember(correlation, seed):
    rng = np.random.default_rng(seed)
    # two standard deviations, where draws are independent
    apart = (2.0 if correlation == 0 else 4.0) * np.arange(3)
    values = rng.permuted(apart + autoregressive(rng, (4, 100 if correlation == 0 else 500, 3), correlation), axis=2)
    assert rebase({"loc": values}, Symmetry.mixture("loc")).null.num_identified == {"component": 3}


def test_a_sampler_that_never_moved_identifies_nobody():
    points = ([-3.0, 0, 3], [0.0, 3, -3], [3.0, -3, 0], [0.0, -3, 3])
    values = np.stack([np.tile(point, (200, 1)) for point in points])
    out = rebase({"loc": values}, Symmetry.mixture("loc"))
    assert out.null.num_identified == {"component": CannotTell(4)}
    assert report(out).warnings[0].startswith("WARNING: the sampler never moved")


def test_each_site_has_a_share_of_its_own():
    rng = np.random.default_rng(0)
    values = {"a": 5.0 * np.arange(3) + rng.standard_normal((400, 3)), "b": rng.standard_normal((400, 3))}
    out = rebase(values, Symmetry.mixture("a", "b"), cost=EuclideanCost(), num_leading_dims=1)
    parts = list(out.null.by_site.values())
    assert out.null.explained == pytest.approx(np.mean([one.explained for one in parts]), rel=1e-9)
    assert out.null.by_site["a"].share > 0.8 > 0.1 > out.null.by_site["b"].share


def separation(slots, signed):
    """Distance of every slot ``(draw, slot, number)`` from the nearest other, or from a negative, pair by pair."""
    mean, variance = slots.mean(0), slots.var(0)

    def distance(i, j, sign):
        return np.sqrt(((mean[i] - sign * mean[j]) ** 2 / ((variance[i] + variance[j]) / 2)).sum())

    n = len(mean)
    others = [[distance(i, j, 1) for j in range(n) if j != i] for i in range(n)]
    negatives = [[distance(i, j, -1) for j in range(n)] for i in range(n)] if signed else [[]] * n
    return np.array([min(a + b) for a, b in zip(others, negatives, strict=True)])


@pytest.mark.parametrize(("kind", "size"), [("permutation", 4), ("signed", 4), ("signed", 1)])
def test_slots_are_as_far_apart_as_the_nearest_pair_says(kind, size):
    switched, _ = traces.tanh_units(noise=0.4, inputs=1, size=size)
    symmetry = Symmetry.mlp([("w1", "b1"), ("w2", None)], kind=kind)
    out = rebase(switched, symmetry, cost=EuclideanCost())
    slots = np.concatenate([out.data["w1"], out.data["b1"][:, None], out.data["w2"].transpose(0, 2, 1)], 1)
    slots = slots.transpose(0, 2, 1)
    np.testing.assert_allclose(out.null.separation["hidden"], separation(slots, kind == "signed"), rtol=1e-9)
    center = 0.0 if kind == "signed" else slots.mean((0, 1))
    pooled = np.square(slots - center).mean((0, 1))
    assert out.null.explained == pytest.approx(1.0 - (slots.var(0) / pooled).mean(), rel=1e-9)


def test_slots_are_identified_from_half_as_far_again_as_the_furthest_without_identity():
    apart, null = {"unit": np.array([1.4, 1.6, 2.0, 4.0])}, {"unit": np.array([1.0, 0.5, 0.5, 0.2])}
    assert Null(0.5, 0.4, apart, null, 1.0, 100, 100, {}).num_identified == {"unit": 3}


def test_the_null_is_the_most_that_any_search_explains():
    # the same generator starts more searches from the same shuffles, the first of which are the same
    draws, cost = {"w": np.random.default_rng(0).normal(size=(100, 6, 3))}, GaussianCost()
    bound = Symmetry({"w": ("unit", None)}).bind(draws, num_leading_dims=1)
    source = Side(draws, leading=(100,))
    family, state = cost.family(source, bound), {"unit": bound.groups["unit"].identity((100,))}

    def null_of(num_starts):
        seen, effort = PlainDraws(cost, family, PlainView.of(bound, draws), source), SearchEffort(num_starts=num_starts)
        return matched_null(seen, state, None, (100,), np.arange(100), effort, np.random.default_rng(1))

    nulls = [null_of(num_starts) for num_starts in range(1, 7)]
    explained = [null.explained_null for null in nulls]
    furthest = [null.separation_null["unit"].max() for null in nulls]
    assert explained == sorted(explained)
    assert furthest == sorted(furthest)
    assert explained[0] < explained[-1]


def test_shuffling_exchanges_units_and_nothing_else():
    rng = np.random.default_rng(0)
    one, both = Axis("unit", True, None), (Axis("state", False, None),) * 2
    shuffle = Shuffle(rng)
    units = np.arange(1.0, 61.0).reshape(10, 3, 2)
    moved = shuffle(units, (one, Axis(None, False, None)))
    # units stay whole, each is taken once, and signs are even
    pairs = sorted(map(tuple, np.abs(moved).reshape(-1, 2).tolist()))
    assert pairs == sorted(map(tuple, units.reshape(-1, 2).tolist()))
    assert (moved < 0).any(-1).sum() == (moved < 0).all(-1).sum()
    assert 5 < (moved[..., 0] < 0).sum() < 25
    # and other numbers of the same units go with them
    np.testing.assert_array_equal(shuffle(10 * units[..., 0], (one,)), 10 * moved[..., 0])
    # a group on both axes keeps what lies on the diagonal there
    matrices = np.where(np.eye(4, dtype=bool), 1.0, 0.0) * 1000 + np.arange(320.0).reshape(20, 4, 4)
    moved = shuffle(matrices, both)
    np.testing.assert_array_equal(np.sort(moved.ravel()), np.sort(matrices.ravel()))
    diagonal = np.diagonal(moved, axis1=1, axis2=2)
    assert (diagonal >= 1000).all()
    assert (diagonal != np.diagonal(matrices, axis1=1, axis2=2)).mean() > 0.8


def with_r_hat(excess):
    """Four chains of 1000 independent draws, moved apart so that R-hat is about one and as much."""
    noise = np.random.default_rng(0).standard_normal((4, 1000))
    noise = (noise - noise.mean(1, keepdims=True)) / noise.std(1, keepdims=True)
    apart = np.array([-1.0, 1.0, -1.0, 1.0])
    return noise + np.sqrt(2.0 * excess * 3.0 / 4.0) * apart[:, None]


def with_sample_size(size):
    """Four chains of 1000 draws, each worth as much as ``size`` in all: every draw is repeated."""
    rng = np.random.default_rng(0)
    each = size // 4
    return np.repeat(rng.standard_normal((4, each)), 1000 // each, axis=1)


@pytest.fixture(scope="module")
def clean():
    values = {"loc": traces.mixture(draws=1000, separation=12.0)[0]["loc"]}
    return values, rebase(values, Symmetry.mixture("loc"))


@pytest.mark.parametrize(
    ("what", "below", "above", "message"),
    [
        ("invariant", with_r_hat(0.006), with_r_hat(0.016), "chains disagree on f"),
        ("invariant", with_sample_size(1000), with_sample_size(200), "f has an effective sample size of"),
        ("margin", (0.04, 3.1), (0.06, 2.9), "other labels are at least a twentieth as likely"),
        ("margin", (0.04, 0.0), (0.06, 0.0), "other labels are at least a twentieth as likely"),
        ("margin", (0.5, 3.1), (0.5, 2.9), "other labels are at least a twentieth as likely"),
        ("null", {"explained": 0.60, "explained_null": 0.5}, {"explained": 0.56, "explained_null": 0.5}, "made up"),
        ("null", {"scale_ratio": 0.96}, {"scale_ratio": 0.94}, "shrinks standard deviations"),
    ],
)
def test_a_report_warns_from_where_it_says_and_not_before(clean, what, below, above, message):
    values, out = clean

    def warnings_of(change):
        if what == "invariant":
            return report(values, out, {"f": change}).warnings
        if what == "null":
            shares = {"explained": out.null.explained, "explained_null": out.null.explained_null} | change
            shares = {"loc": Explained(shares["explained"], shares["explained_null"])}
            return report(values, out._replace(null=out.null._replace(**change, by_site=shares))).warnings
        share, nats = change
        ambiguous = np.arange(out.margin.size).reshape(out.margin.shape) < share * out.margin.size
        return report(values, out._replace(margin=np.where(ambiguous, nats, 10.0))).warnings

    assert report(values, out).warnings == ()
    assert not any(message in warning for warning in warnings_of(below))
    assert any(message in warning for warning in warnings_of(above))


def test_of_many_entries_the_worst_is_reported(clean):
    values, out = clean
    entries = {"far": with_r_hat(0.016), "few": with_sample_size(200), "good": with_r_hat(0.0)}
    together = np.stack(list(entries.values()), -1)
    rows = {row.name: row for row in report(values, out, entries | {"all": together}).rows}
    assert rows["all"].r_hat == max(rows[name].r_hat for name in entries) > rows["good"].r_hat
    few = min(rows[name].ess for name in entries)
    assert rows["all"].ess == pytest.approx(few, rel=1e-12)
    assert few < rows["good"].ess


def test_draws_of_the_most_frequent_labels_are_not_counted_as_relabelled(clean):
    values, out = clean
    elements = np.where(np.arange(1000)[:, None] < 700, [2, 1, 0], [0, 1, 2])
    kept = out._replace(elements={"component": np.broadcast_to(elements, (4, 1000, 3))})
    kept = kept._replace(data=kept.apply(values))
    assert report(values, kept).share_relabelled == pytest.approx(0.3)


def test_what_is_invariant_where_signs_and_constants_leave_it():
    switched, _ = traces.tanh_units()
    draws = {site: value[None] for site, value in switched.items()}
    out = rebase(draws, traces.TANH, num_leading_dims=2, null=False)
    names = {row.name for row in report(draws, out, num_leading_dims=2).rows if row.is_invariant}
    even = {f"{sum_}{power}" for sum_ in ("Σ w1", "Σ b1", "Σ w2") for power in "²⁴"}
    assert names == even | {"sorted |w1|", "sorted |b1|", "sorted |w2|", "Σ w1·b1", "Σ w1·w2", "Σ b1·w2"}
    values, _ = traces.mixture(draws=20)
    names = {row.name for row in report(values, rebase(values, traces.MIXTURE, null=False)).rows if row.is_invariant}
    # weights sum to one
    powers = {"Σ weights²", "Σ weights³", "Σ loc", "Σ loc²", "Σ loc³", "Σ scale", "Σ scale²", "Σ scale³"}
    across = {"Σ weights·loc", "Σ weights·scale", "Σ loc·scale"}
    assert names == powers | across | {"sorted weights", "sorted loc", "sorted scale"}


def test_the_null_of_groups_that_meet_is_of_no_more_draws_than_their_numbers_want(monkeypatch):
    monkeypatch.setattr("numpyro_symmetry.traces.null._MAX_COUPLED_NUMBERS", 60 * 15)
    rng = np.random.default_rng(0)
    values = {"w1": rng.normal(size=(2, 50, 2, 3)), "w2": rng.normal(size=(2, 50, 3, 3))}
    meeting = Symmetry({"w1": (None, "a"), "w2": ("a", "b")})
    assert rebase(values, meeting, progress_bar=False).null.num_draws == 60
    apart = Symmetry({"w1": (None, "a"), "w2": (None, "b")})
    assert rebase(values, apart, progress_bar=False).null.num_draws == 100
