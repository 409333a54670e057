"""What names of dimensions and coordinates say: what keeps old labels, and where axes are not what is counted."""

import dataclasses
import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr

from numpyro_symmetry import (
    AllocationCost,
    EuclideanCost,
    StephensCost,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    compare,
    loss_barrier,
    match,
    merge,
    rebase,
    report,
)
from numpyro_symmetry.containers import read
from numpyro_symmetry.diagnostics import nested_r_hat, prior_conformity
from numpyro_symmetry.traces.inputs import _says_nothing
from tests.support import traces

DRAWS = ("chain", "draw")


def posterior(draws=30, **coords):
    values, _ = traces.mixture(draws=draws)
    return xr.Dataset({site: ((*DRAWS, "component"), x) for site, x in values.items()}, coords=coords)


@pytest.mark.parametrize(
    ("dims", "values", "words"),
    [
        (("component",), np.array([2.0, 0.0, 1.0]), "'beside' has dimension 'component'.*values.*, or drop it"),
        (("component",), np.arange(1, 4), None),
        (("component",), np.full(3, 0.5), None),
        (("chain",), np.arange(4) % 2, None),
        ((*DRAWS, "component"), np.zeros((4, 30, 3)), r"'beside' has dimension 'component'.*reset_coords.*axes="),
        (("component", "datum"), np.zeros((3, 7)), "'beside' has dimension 'component'"),
        ((*DRAWS, "datum"), np.arange(840).reshape(4, 30, 7) % 3, "'beside' holds integers from 0 to 2.*reset_coords"),
        (("draw", "datum"), np.arange(210).reshape(30, 7) % 3, "'beside' holds integers from 0 to 2"),
        (("datum",), np.arange(7) % 3, None),
        (("draw",), np.arange(30), None),
        ((*DRAWS, "datum"), np.full((4, 30, 7), "a"), None),
    ],
)
def test_what_stands_beside_sites_and_goes_by_old_labels_is_warned_of(dims, values, words):
    data = posterior(component=["a", "b", "c"], beside=(dims, values))
    if words is None:
        out = rebase(data, traces.MIXTURE, null=False)
    else:
        with pytest.warns(SymmetryWarning, match=words) as caught:
            out = rebase(data, traces.MIXTURE, null=False)
        assert len(caught) == 1
    np.testing.assert_array_equal(out.data["beside"].values, values)


def test_a_coordinate_that_became_a_variable_moves_with_its_labels():
    z = np.arange(840).reshape(4, 30, 7) % 3
    data = posterior(z=((*DRAWS, "datum"), z)).reset_coords("z")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = rebase(data, traces.MIXTURE, null=False, labels={"z": "component"})
    assert out.undo(out.data).identical(data)
    assert not (out.data["z"].values == z).all()


def with_site(dims):
    rng = np.random.default_rng(0)
    shape = (4, 30, *(3,) * len(dims))
    return posterior()[["loc"]].assign(w=((*DRAWS, *dims), rng.standard_normal(shape)))


@pytest.mark.parametrize("by", ["symmetry", "axes"])
@pytest.mark.parametrize(
    ("dims", "entries", "is_at_odds"),
    [
        (("component", "other"), ("component",), True),
        (("component", "other"), (None, "component"), True),
        (("other", "component"), ("component", None), True),
        (("component", "other", "third"), (None, "component"), True),
        (("component", "other"), ("component", None), False),
        (("other", "component"), ("component",), False),
        # of which nothing is known, and a square
        (("one", "other"), ("component",), False),
        (("component", "other"), ("component", "component"), False),
    ],
)
def test_axes_that_names_contradict_are_refused(dims, entries, is_at_odds, by):
    data, both = with_site(dims), Symmetry({"loc": ("component",), "w": entries})
    alone = Symmetry({"loc": ("component",)})

    def moved():
        if by == "symmetry":
            return rebase(data, both, null=False)
        return rebase(data, alone, null=False, axes={"w": entries})

    if is_at_odds:
        with pytest.raises(SymmetryError, match="'w' has dimensions.*stands on 'component' of both, write {'w': "):
            moved()
        with pytest.raises(SymmetryError, match="'w' has dimensions"):
            compare(data, data, both)
    else:
        assert moved().converged is not None


def test_a_name_on_which_several_groups_stand_says_nothing():
    x = np.random.default_rng(0).standard_normal((50, 3, 3))
    data = xr.Dataset({name: (("draw", "in", "out"), x) for name in ("first", "second", "third")})
    deep = Symmetry({"first": (None, "a"), "second": ("a", "b"), "third": ("b", None)})
    assert rebase(data, deep, null=False).elements.keys() == {"a", "b"}


# what is moved, the words, and whether comparing may go on: what labels are called in another order is no difference
OTHERWISE = {
    "transposed": (lambda d: d.transpose(..., "component", "feature"), "'loc' has dimensions.*transpose", False),
    "reordered": (lambda d: d.sel(feature=["z", "x", "y"]), r"'feature'.*another order.*data.sel\({'feature'", False),
    "relabelled": (lambda d: d.sel(component=["c", "a", "b"]), "'component'.*in another order", True),
    "of others": (lambda d: d.assign_coords(feature=["u", "v", "w"]), "'feature'.*assign_coords", False),
    "as computed": (lambda d: d.assign_coords(grid=[0.3 - 0.2 - 0.1, 0.2, 0.1 + 0.2]), None, True),
    "called otherwise": (lambda d: d.assign_coords(component=["low", "mid", "high"]), None, True),
    "in single precision": (lambda d: d.assign_coords(grid=np.float32(d.grid)), None, True),
    "dates of other units": (lambda d: d.assign_coords(day=d.day.astype("datetime64[us]")), None, True),
    "unnamed": (lambda d: d.assign_coords(feature=[0, 1, 2]), None, True),
    "alike": (lambda d: d, None, True),
}


@pytest.mark.parametrize(("change", "words", "is_compared"), OTHERWISE.values(), ids=OTHERWISE)
def test_what_is_read_by_position_and_called_otherwise_is_refused(change, words, is_compared):
    rng = np.random.default_rng(0)
    x = rng.permuted(4.0 * np.arange(3) + rng.standard_normal((2, 40, 3)), axis=-1)[..., None, :] + np.zeros((3, 1))
    dims = (*DRAWS, "feature", "component")
    coords = {"feature": ["x", "y", "z"], "component": ["a", "b", "c"], "grid": [0.0, 0.2, 0.3]}
    coords["day"] = np.array(["2010-01-01", "2010-01-02", "2010-01-03"], "datetime64[ns]")
    data = xr.Dataset(
        {"loc": (dims, x), "f": ((*DRAWS, "grid"), x[..., 0]), "g": ((*DRAWS, "day"), x[..., 0])}, coords=coords
    )
    symmetry = Symmetry({"loc": (None, "component")})
    out, other = rebase(data, symmetry, null=False), change(data)

    calls = {
        "compare": lambda: compare(data, other, symmetry, num_exchanges=19),
        "reference": lambda: rebase(other, symmetry, reference=out, null=False),
        "point": lambda: rebase(data, symmetry, reference=other.mean(DRAWS), null=False),
        "points by name": lambda: rebase(data, symmetry, reference=dict(other.mean(DRAWS).data_vars), null=False),
        "container": lambda: out.apply(other),
        "array": lambda: out.undo({"loc": other["loc"]}),
        "score": lambda: out.score(other, EuclideanCost()),
    }
    for name, call in calls.items():
        if words is None or (name == "compare" and is_compared):
            call()
        else:
            with pytest.raises(SymmetryError, match=words):
                call()


@pytest.mark.parametrize(("change", "words", "labels_are_free"), OTHERWISE.values(), ids=OTHERWISE)
@pytest.mark.parametrize("kind", [dict, xr.Dataset])
def test_points_that_are_read_by_position_and_called_otherwise_are_refused(change, words, labels_are_free, kind):
    rng = np.random.default_rng(0)
    coords = {"feature": ["x", "y", "z"], "component": ["a", "b", "c"], "grid": [0.0, 0.2, 0.3]}
    coords["day"] = np.array(["2010-01-01", "2010-01-02", "2010-01-03"], "datetime64[ns]")
    dims = {"loc": ("feature", "component"), "f": ("grid",), "g": ("day",)}
    first = xr.Dataset({site: (names, rng.standard_normal((3,) * len(names))) for site, names in dims.items()}, coords)
    symmetry, other = Symmetry({"loc": (None, "component")}), change(first)
    one, two = (kind(data.data_vars) for data in (first, other))
    calls = {
        "match": lambda: match(one, two, symmetry),
        "merge": lambda: merge([one, one, two], symmetry),
        "members": lambda: rebase([one, one, two], symmetry, null=False, axes={"f": (), "g": ()}),
    }
    if words is not None:
        # between two ends labels are like any other entries
        with pytest.raises(SymmetryError, match=words):
            loss_barrier(lambda v: v["loc"][0] ** 2, one, two)
    for name, call in calls.items():
        if words is None or labels_are_free:
            found = call()
            if name == "merge":
                xr.testing.assert_identical(found.merged["f"], first["f"])
        else:
            with pytest.raises(SymmetryError, match=words):
                call()


def test_labels_of_an_open_ended_site_are_free_too():
    first = xr.Dataset({"loc": (("component", "axis"), np.arange(6.0).reshape(3, 2))}, {"component": ["a", "b", "c"]})
    one, two = (dict(data.data_vars) for data in (first, first.sel(component=["c", "a", "b"])))
    symmetry = Symmetry.mixture("loc")
    assert match(one, two, symmetry).objective == 0.0
    np.testing.assert_array_equal(merge([one, two], symmetry).merged["loc"], first["loc"])


# what is done to relabelled draws, and the words, where that makes them others by their coordinates
OTHER_DRAWS = {
    "in reverse": (lambda d: d.isel(draw=slice(None, None, -1)), r"'draw'.*another order.*data.sel\({'draw'"),
    "chains exchanged": (lambda d: d.isel(chain=[1, 0, 2, 3]), "'chain'.*another order"),
    "of another run": (lambda d: d.assign_coords(draw=np.arange(40, 70)), r"'draw'.*assign_coords\(draw="),
    "transposed": (lambda d: d.transpose("component", "draw", "chain"), None),
    "counted from zero": (lambda d: d.assign_coords(draw=np.arange(30)), None),
    "without numbers": (lambda d: d.drop_vars(["chain", "draw"]), None),
}


@pytest.mark.parametrize(("change", "words"), OTHER_DRAWS.values(), ids=OTHER_DRAWS)
def test_elements_are_of_the_draws_that_coordinates_name(change, words):
    data = posterior(chain=np.arange(4), draw=np.arange(10, 40))
    out = rebase(data, traces.MIXTURE, null=False)
    moved, raw = change(out.data), change(data)
    calls = {
        "undo": lambda: out.undo(moved).transpose(*raw["loc"].dims)["loc"],
        "apply": lambda: out.undo(out.apply(raw))["loc"],
        "arrays": lambda: out.undo({"loc": moved["loc"]})["loc"].transpose(*raw["loc"].dims),
        "score": lambda: out.score(raw, EuclideanCost()) and raw["loc"],
        "invariants": lambda: nested_r_hat(out, [0, 0, 1, 1], invariants={"f": moved["loc"]}) and raw["loc"],
    }
    for call in calls.values():
        if words is None:
            np.testing.assert_array_equal(np.asarray(call()), raw["loc"].values)
        else:
            with pytest.raises(SymmetryError, match=words):
                call()


# what is done to a cost's array, and the words
OTHER_ARRAYS = OTHER_DRAWS | {
    "transposed": (
        lambda d: d.transpose("draw", "chain", ...),
        r"dimensions \('draw', 'chain', .*transpose\('chain'",
    ),
    "labels in another order": (lambda d: d.sel(component=["c", "a", "b"]), r"'component'.*another order"),
    "labels called otherwise": (lambda d: d.assign_coords(component=["low", "mid", "high"]), None),
}


class Fields(NamedTuple):
    """A cost of a user's own, whose array stands among its fields."""

    p: Any

    def family(self, *given):
        return StephensCost(self.p).family(*given)


@dataclasses.dataclass(frozen=True, slots=True)
class Within:
    """A cost of a user's own, whose arrays stand deeper within it."""

    p: Any
    beside: Any = None

    def family(self, *given):
        return StephensCost(self.p).family(*given)


COSTS = [StephensCost, AllocationCost, Fields, Within, lambda p: Within(np.asarray(p), {"of": [StephensCost(p)]})]


@pytest.mark.parametrize("cost", COSTS, ids=["Stephens", "allocation", "fields", "slots", "within"])
@pytest.mark.parametrize(("change", "words"), OTHER_ARRAYS.values(), ids=OTHER_ARRAYS)
def test_arrays_of_a_cost_are_of_the_draws_that_coordinates_name(change, words, cost):
    data = posterior(chain=np.arange(4), draw=np.arange(10, 40), component=["a", "b", "c"])
    p = np.random.default_rng(0).dirichlet(np.ones(3), (4, 30, 7))
    arrays = xr.Dataset(
        {"probabilities": ((*DRAWS, "datum", "component"), p), "allocations": ((*DRAWS, "datum"), p.argmax(-1))},
        coords=data.coords,
    )
    name = "allocations" if cost is AllocationCost else "probabilities"
    out = rebase(data, traces.MIXTURE, cost=cost(arrays[name]), null=False)
    np.testing.assert_array_equal(
        out.elements["component"],
        rebase(data, traces.MIXTURE, cost=cost(arrays[name].values), null=False).elements["component"],
    )
    if "component" not in arrays[name].dims and words is not None and "component" in words:
        return
    other = cost(change(arrays)[name])
    calls = (
        lambda: rebase(data, traces.MIXTURE, cost=other, null=False),
        lambda: rebase(dict(data.data_vars), traces.MIXTURE, cost=other, null=False),
        lambda: out.score(data, other),
    )
    for call in calls:
        if words is None:
            call()
        else:
            with pytest.raises(SymmetryError, match=words):
                call()


def test_edges_of_intervals_are_told_apart_beside_an_infinite_one():
    rng = np.random.default_rng(0)
    loc = np.array([-3.0, 3.0]) + rng.standard_normal((2, 50, 2))

    def with_edges(*edges):
        beside = ((*DRAWS, "edge"), rng.standard_normal((2, 50, 3)))
        return xr.Dataset({"loc": ((*DRAWS, "component"), loc), "f": beside}, coords={"edge": list(edges)})

    one, other = with_edges(-np.inf, 0.0, 1.0), with_edges(-np.inf, 7.0, 9.0)
    with pytest.raises(SymmetryError, match="'edge' of site 'f'.*the same coordinates"):
        compare(one, other, Symmetry({"loc": ("component",)}), sites=["f"], num_exchanges=19)
    compare(one, with_edges(-np.inf, 0.0, 1.0), Symmetry({"loc": ("component",)}), sites=["f"], num_exchanges=19)


def test_a_dimension_that_stands_twice_is_refused():
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # xarray says that it can do little with it
        data = xr.Dataset(
            {
                "loc": ((*DRAWS, "state"), rng.standard_normal((2, 50, 2))),
                "moves": ((*DRAWS, "state", "state"), rng.random((2, 50, 2, 2))),
            }
        )
    with pytest.raises(SymmetryError, match=r"'moves' has dimensions .*one name twice.*'state_2', 'state_3'"):
        rebase(data, Symmetry({"loc": ("state",), "moves": ("state", "state")}))


def test_sites_of_other_things_are_left_out_unless_they_are_asked_for():
    rng = np.random.default_rng(0)
    x = rng.permuted(4.0 * np.arange(3) + rng.standard_normal((2, 40, 3)), axis=-1)
    sites = {"loc": ((*DRAWS, "component"), x), "f": ((*DRAWS, "day"), rng.standard_normal((2, 40, 2)))}
    day = np.array(["2010-01-01", "2010-01-02"], "datetime64[ns]")
    data, later = (xr.Dataset(sites, coords={"day": day + np.timedelta64(k, "D")}) for k in (0, 1))
    symmetry = Symmetry({"loc": ("component",)})
    found = compare(data, later, symmetry, num_exchanges=19)
    assert found.left_out == ("f",)
    words = "'day' of site 'f' are .'2010-01-01.*2010-01-02"
    with pytest.raises(SymmetryError, match=words):
        compare(data, later, symmetry, sites=["loc", "f"], num_exchanges=19)
    out = rebase(data, symmetry, null=False)
    with pytest.raises(SymmetryError, match=words):
        out.apply(later)
    # what the draws did not hold may be of whatever
    moved = out.apply({"forecast": later["f"]}, axes={"forecast": ()})
    np.testing.assert_array_equal(moved["forecast"], later["f"])


def test_a_symmetry_of_a_model_is_not_read_by_names():
    def model(x, y):
        w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([3, 3]).to_event(2))
        w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3, 3]).to_event(2))
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 1.0).to_event(2), obs=y)

    x = np.random.default_rng(0).standard_normal((5, 3))
    draws = np.random.default_rng(1).standard_normal((2, 2, 20, 3, 3))
    data = xr.Dataset({name: ((*DRAWS, "in", "out"), draws[k]) for k, name in enumerate(["w1", "w2"])})
    out = rebase(data, model=model, model_args=(x, x), null=False)
    assert out.undo(out.data).identical(data)
    with pytest.raises(SymmetryError, match="rename that dimension"):
        rebase(data, Symmetry({"w1": (None, "unit"), "w2": ("unit", None)}), null=False)


@pytest.mark.parametrize("kind", [dict, xr.Dataset])
def test_a_site_in_columns_is_refused_in_the_order_of_its_numbers(kind):
    names = sorted(f"loc[{k}]" for k in range(1, 12))
    data = kind({name: (DRAWS, np.zeros((4, 30))) if kind is xr.Dataset else np.zeros((4, 30)) for name in names})
    with pytest.raises(SymmetryError, match=r"11 columns, 'loc\[1\]' to 'loc\[11\]'.*order of their numbers.*-1\)} "):
        rebase(data, Symmetry.mixture("loc"))


@pytest.mark.parametrize("order", ["as stacked", "shuffled", "shuffled and stored"])
def test_chains_are_found_where_they_are_stacked(order):
    """Of slow chains: neighbours that are none make them look fast."""
    rng = np.random.default_rng(0)
    walks = 4.0 * np.arange(3) + 0.3 * rng.standard_normal((2, 4, 40, 3)).cumsum(2)
    one, other = (xr.Dataset({"loc": ((*DRAWS, "k"), x)}).assign_coords(chain=range(4), draw=range(40)) for x in walks)
    symmetry = Symmetry.mixture("loc")
    expected = compare(one, other, symmetry, num_exchanges=99)
    stacked = [data.stack(sample=DRAWS) for data in (one, other)]
    if order != "as stacked":
        stacked = [data.isel(sample=rng.permutation(160)).reset_index("sample") for data in stacked]
    if order == "shuffled and stored":
        stacked = [data.chunk({"sample": 50}) for data in stacked]
    found = compare(*stacked, symmetry, num_exchanges=99)
    assert (found.a.num_chains, found.p_value, found.effect) == (4, expected.p_value, expected.effect)


@pytest.mark.parametrize("is_stored", [False, True])
def test_the_null_and_the_prior_know_stacked_chains_in_any_order(is_stored):
    """Of slow chains without identity, and as the prior is: neighbours that are none make them look independent."""
    rng = np.random.default_rng(0)
    slow = xr.Dataset({"loc": ((*DRAWS, "k"), traces.autoregressive(rng, (4, 300, 3), 0.98))})
    slow = slow.assign_coords(chain=range(4), draw=range(300))
    stacked = slow.stack(sample=DRAWS)
    shuffled = stacked.isel(sample=rng.permutation(1200)).reset_index("sample")
    found = []
    for draws in (slow, stacked, shuffled.chunk({"sample": 500}) if is_stored else shuffled):
        out = rebase(draws, Symmetry.mixture("loc"), num_starts=1)
        conformity = prior_conformity(out, lambda: numpyro.sample("loc", dist.Normal().expand([3]).to_event(1)))
        found.append((out.null.num_effective, conformity.drawn.time, conformity.drawn.num_chains))
    assert found[0][0] < 40
    # stacked, they are one chain to the null
    assert found[1][0] == found[2][0] < 40
    assert found[0][1] == found[1][1] == pytest.approx(found[2][1])
    assert [count for *_, count in found] == [4, 4, 4]


def test_a_report_of_stacked_chains_says_that_it_sees_one():
    stacked = posterior(chain=range(4), draw=range(30)).stack(sample=DRAWS)
    out = rebase(stacked, traces.MIXTURE, null=False)
    with pytest.warns(SymmetryWarning, match=r"4 chain\(s\) are stacked along 'sample'.*unstack"):
        report(out)
    report(rebase(stacked.isel(sample=stacked.chain == 2), traces.MIXTURE, null=False))


def test_invariants_are_of_the_chains_that_they_name_where_there_are_as_many_draws():
    rng = np.random.default_rng(0)
    out = rebase(posterior(draws=4, chain=range(4), draw=range(4)), traces.MIXTURE, null=False)
    given = xr.DataArray(10.0 * np.arange(4)[:, None] + rng.random((4, 4)), dims=DRAWS)
    by_position = nested_r_hat(out, [0, 0, 1, 1], invariants={"f": given.values})["f"]
    assert by_position > 1.5
    assert nested_r_hat(out, [0, 0, 1, 1], invariants={"f": given.T})["f"] == by_position
    of_report = [
        next(row.r_hat for row in report(out, invariants={"f": f}).rows if row.name == "f")
        for f in (given.values, given.T)
    ]
    assert of_report[0] == of_report[1] > 2.0
    named = given.assign_coords(chain=range(4), draw=range(4))
    with pytest.raises(SymmetryError, match="'f' and 'g' have the same coordinates along 'draw' in two orders"):
        report(out, invariants={"f": named, "g": named[:, ::-1]})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([5, 6, 7], False),
        ([2.0, 2.0, 2.0], False),
        ([4], False),
        ([1, 3, 2], True),
        ([[0, 1]], True),
        (["a", "b"], True),
    ],
)
def test_numbers_of_entries_say_nothing_of_them(values, says):
    array = np.array(values)
    assert _says_nothing(xr.DataArray(array, dims=("x", "y")[: array.ndim])) != says


@pytest.mark.parametrize("dims", [("component", "of"), ("component", "sample"), ("sample", "of")])
def test_axes_of_a_site_in_a_dict_keep_their_names_whatever_they_are_called(dims):
    """Beside chain and draw, "sample" is a dimension like any other."""
    values = traces.mixture(draws=30)[0]["loc"]
    coords = {dims[0]: list("abc"), dims[1]: [5, 7]}
    both = xr.DataArray(np.stack([values, 2.0 * values], -1), dims=(*DRAWS, *dims), coords=coords)
    symmetry = Symmetry({"loc": ("component", None)})
    out = rebase({"loc": both}, symmetry, null=False)
    plain = rebase({"loc": both.values}, symmetry, null=False)
    np.testing.assert_array_equal(out.data["loc"], plain.data["loc"])
    assert read({"loc": both}, out.symmetry, 2).dims == {"loc": dims}
    assert str(report(out))
    again = rebase({"loc": both}, symmetry, reference=out, null=False)
    np.testing.assert_array_equal(again.data["loc"], plain.data["loc"])
    np.testing.assert_array_equal(out.undo(out.data)["loc"], both.values)
    np.testing.assert_array_equal(out.apply({"loc": both})["loc"], plain.data["loc"])
