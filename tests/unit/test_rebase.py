"""`rebase`: containers in and out, references, labels, undoing, and what it refuses."""

import itertools
import sys
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import scipy.stats
import xarray as xr
from numpyro.infer.svi import SVIRunResult

from numpyro_symmetry import (
    AllocationCost,
    EuclideanCost,
    GaussianCost,
    StephensCost,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    Unsigned,
    inverse,
    rebase,
    report,
)
from numpyro_symmetry.containers import read
from numpyro_symmetry.symmetry import SignedPermutation
from numpyro_symmetry.traces.inputs import _as_labels
from numpyro_symmetry.traces.naming import index_of
from tests.support import networks, traces
from tests.support.tables import every_relabelling_cost


def container(values, dims=("component",), **extra):
    from numpyro_symmetry.containers.posterior import to_container

    shape = values["loc"].shape[:2]
    rng = np.random.default_rng(0)
    groups = {
        "posterior": {**values, **extra},
        "sample_stats": {"lp": rng.normal(size=shape), "diverging": np.zeros(shape, bool)},
        "log_likelihood": {"y": rng.normal(size=(*shape, 7))},
        "observed_data": {"y": np.arange(7.0)},
    }
    named = {site: list(dims) for site in values}
    return to_container(groups, dims=named, coords={"component": ["a", "b", "c"]}, attrs={"made_by": "a test"})


def dataset(data):
    return data["posterior"].to_dataset() if isinstance(data, xr.DataTree) else data["posterior"]


@pytest.mark.parametrize("seed", [0, 1])
def test_labels_are_recovered_and_undone(seed):
    values, labels = traces.mixture(seed=seed)
    out = rebase(values, traces.MIXTURE, order_by="loc", null=False)
    assert (np.asarray(out.elements["component"]) == np.argsort(labels, -1)).all()
    assert (np.diff(out.reference["loc"]) > 0).all()
    back = out.undo(out.data)
    for site in values:
        np.testing.assert_array_equal(back[site], values[site])
    assert out.converged
    assert (out.margin > 0).all()


def test_a_container_keeps_its_type_and_all_that_labels_do_not_touch():
    values, _ = traces.mixture()
    data = container(values)
    before = data.copy()
    out = rebase(data, traces.MIXTURE, order_by="loc", null=False)
    assert type(out.data) is type(data)
    for group in ("sample_stats", "log_likelihood", "observed_data"):
        for name in data[group].data_vars:
            assert out.data[group][name].identical(data[group][name])
    posterior = dataset(out.data)
    assert posterior.attrs == dataset(data).attrs
    assert posterior["loc"].dims == ("chain", "draw", "component")
    assert list(posterior.coords["component"].values) == ["a", "b", "c"]
    # what was given is as it was
    assert dataset(data).identical(dataset(before))
    np.testing.assert_array_equal(
        posterior["loc"].values, rebase(values, traces.MIXTURE, order_by="loc", null=False).data["loc"]
    )


def test_a_container_says_how_likely_its_draws_are():
    values, _ = traces.mixture(draws=20)
    data = container(values)
    posterior, stacked = dataset(data), dataset(data).stack(sample=("chain", "draw"))
    found = read(data, traces.MIXTURE)
    np.testing.assert_array_equal(found.log_density, data["sample_stats"]["lp"].values)
    np.testing.assert_array_equal(found.log_likelihood["y"], data["log_likelihood"]["y"].values)
    assert found.dims["loc"] == ("component",)
    for bare in (posterior, stacked):
        assert read(bare, traces.MIXTURE).log_density is None
        assert not read(bare, traces.MIXTURE).log_likelihood
    assert read(stacked, traces.MIXTURE).leading == (80,)


def test_it_survives_a_file(tmp_path):
    values, _ = traces.mixture(draws=20)
    out = rebase(container(values), traces.MIXTURE, null=False)
    posterior = dataset(out.data)
    posterior.to_netcdf(tmp_path / "posterior.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "posterior.nc", engine="h5netcdf") as again:
        xr.testing.assert_equal(again.load(), posterior)


def test_datasets_in_any_order_of_dimensions():
    values, _ = traces.mixture()
    data = dataset(container(values))
    turned = data.transpose("component", "draw", "chain")
    out, straight = (rebase(d, traces.MIXTURE, order_by="loc", null=False).data for d in (turned, data))
    assert out["loc"].dims == ("component", "draw", "chain")
    xr.testing.assert_equal(out.transpose("chain", "draw", "component"), straight)


def test_a_variable_without_draws_is_left_alone():
    values, _ = traces.mixture(draws=20)
    data = dataset(container(values)).assign(constant=("component", np.array([0.5, 2.0, 1.0])))
    with pytest.warns(SymmetryWarning, match="Variable 'constant' has dimension 'component'"):
        out = rebase(data, traces.MIXTURE, null=False)
    xr.testing.assert_identical(out.data["constant"], data["constant"])


def test_draws_without_chains_and_jax_arrays():
    values, _ = traces.mixture(chains=1)
    flat = {site: jnp.asarray(value[0]) for site, value in values.items()}
    out = rebase(flat, traces.MIXTURE, order_by="loc", null=False)
    assert isinstance(out.data["loc"], type(flat["loc"]))
    assert out.objective.shape == (200,)
    assert out.elements["component"].shape == (200, 3)


def test_members_of_an_ensemble():
    shapes, symmetry = networks.mlp([4, 10, 10, 2])
    _, stacked, _ = networks.planted(shapes, symmetry, 0.1, 5)
    members = [{site: value[k] for site, value in stacked.items()} for k in range(5)]
    out = rebase(members, symmetry, null=False)
    assert isinstance(out.data, list)
    assert len(out.data) == 5
    spread = np.std([member["w2"] for member in out.data], 0).max()
    assert spread < 0.3 * np.std([member["w2"] for member in members], 0).max()


@pytest.mark.parametrize("reference", ["first", "map", "medoid", 3, (1, 7)])
def test_a_draw_for_reference_keeps_its_labels(reference):
    values, _ = traces.mixture()
    data = container(values)
    out = rebase(data, traces.MIXTURE, reference=reference, null=False)
    identity = (np.asarray(out.elements["component"]) == np.arange(3)).all(-1)
    if reference == "medoid":
        assert identity[np.unravel_index(out.objective.argmax(), out.objective.shape)]
        return
    lp = data["sample_stats"]["lp"].values
    where = {"first": (0, 0), "map": np.unravel_index(lp.argmax(), lp.shape), 3: (0, 3)}.get(reference, reference)
    assert identity[where]
    np.testing.assert_array_equal(out.reference["loc"], values["loc"][where])


def test_a_second_run_is_brought_to_the_first_ones_labels():
    (first, _), (second, _) = traces.mixture(seed=0), traces.mixture(seed=1)
    out = rebase(first, traces.MIXTURE, order_by="loc", null=False)
    again = rebase(second, traces.MIXTURE, reference=out, null=False)
    np.testing.assert_allclose(again.data["loc"].mean((0, 1)), out.data["loc"].mean((0, 1)), atol=0.3)
    values = {site: np.asarray(value) for site, value in out.reference.items()}
    by_values = rebase(second, traces.MIXTURE, reference=values, null=False)
    np.testing.assert_array_equal(by_values.data["loc"], again.data["loc"])


def test_margins_are_those_under_another_runs_slots():
    """One draw half way between two slots, of which its own spread says nothing."""
    rng = np.random.default_rng(0)
    out = rebase({"loc": [0.0, 1.5, 6.0] + 0.5 * rng.standard_normal((1000, 3))}, Symmetry.mixture("loc"), null=False)
    new = np.array([[0.70, 0.78, 6.0]])
    found = rebase({"loc": new}, Symmetry.mixture("loc"), reference=out, null=False, num_leading_dims=1)
    mean, spread = out.data["loc"].mean(0), out.data["loc"].std(0)
    scores = [scipy.stats.norm(mean, spread).logpdf(new[0][list(p)]).sum() for p in itertools.permutations(range(3))]
    best, second = sorted(scores)[:-3:-1]
    np.testing.assert_allclose(found.margin, best - second, rtol=1e-6)


@pytest.mark.parametrize("unit", [2.0**-30, 2.0**-12, 2.0**20])
def test_a_squared_distance_is_as_near_in_any_unit(unit):
    rng = np.random.default_rng(0)
    values = np.linspace(0.0, 2.0, 6)[:, None] + 0.4 * rng.standard_normal((100, 6, 2))
    values = rng.permuted(values, axis=1)
    symmetry, options = Symmetry({"w": ("k", None)}), {"cost": EuclideanCost(standardize=False), "null": False}
    own, other = (rebase({"w": x}, symmetry, **options) for x in (values, unit * values))
    assert own.num_rounds == other.num_rounds
    np.testing.assert_array_equal(np.asarray(other.data["w"]) / unit, own.data["w"])


def test_against_another_runs_slots_every_draw_is_judged_by_itself():
    (first, _), (second, _) = traces.mixture(seed=0, separation=1.0), traces.mixture(seed=1, separation=1.0)
    out = rebase(first, traces.MIXTURE, order_by="loc", null=False)
    few, many = (
        rebase({s: v[:, :n] for s, v in second.items()}, traces.MIXTURE, reference=out, null=False) for n in (20, 200)
    )
    np.testing.assert_array_equal(few.data["loc"], many.data["loc"][:, :20])
    np.testing.assert_allclose(few.objective, many.objective[:, :20], rtol=1e-9)


@pytest.mark.parametrize(
    ("symmetry", "draws", "expected"),
    [
        (traces.MIXTURE, 800, GaussianCost),
        (traces.MIXTURE, 29, EuclideanCost),
        (Symmetry.mlp([("w1", "b1"), ("w2", "b2"), ("w3", None)]), 800, EuclideanCost),
    ],
)
def test_the_cost_is_chosen_by_the_model_and_the_number_of_draws(symmetry, draws, expected):
    rng = np.random.default_rng(0)
    shapes = {"w1": (1, 2), "b1": (2,), "w2": (2, 2), "b2": (2,), "w3": (2, 1)}
    values = (
        {site: value[0] for site, value in traces.mixture(chains=1, draws=draws)[0].items()}
        if symmetry is traces.MIXTURE
        else {site: rng.standard_normal((draws, *shape)) for site, shape in shapes.items()}
    )
    assert type(rebase(values, symmetry, null=False).frame.cost) is expected


def test_allocations_are_relabelled_as_values():
    values, labels = traces.mixture()
    rng = np.random.default_rng(3)
    true = rng.integers(0, 3, (4, 200, 9))
    # a draw's label k stands for the true component labels[k]
    z = np.take_along_axis(np.argsort(labels, -1), true, -1)
    out = rebase(values | {"z": z}, traces.MIXTURE, order_by="loc", labels={"z": "component"}, null=False)
    np.testing.assert_array_equal(out.data["z"], true)
    assert out.data["z"].dtype == z.dtype
    np.testing.assert_array_equal(out.apply({"z": z})["z"], true)
    np.testing.assert_array_equal(out.undo({"z": true})["z"], z)
    # of other data, which the trace does not hold
    moved = out.apply({"more": z}, labels={"more": "component"})
    np.testing.assert_array_equal(moved["more"], true)
    np.testing.assert_array_equal(out.undo(moved, labels={"more": "component"})["more"], z)
    matrix = rng.normal(size=(4, 200, 5, 3))
    moved = out.apply({"m": matrix}, axes={"m": (None, "component")})["m"]
    g = np.asarray(out.elements["component"])
    np.testing.assert_array_equal(moved, np.take_along_axis(matrix, g[:, :, None], -1))
    np.testing.assert_array_equal(out.undo({"m": moved}, axes={"m": (None, "component")})["m"], matrix)


def test_labels_are_stored_in_many_ways():
    values, labels = traces.mixture(draws=30)
    rng = np.random.default_rng(3)
    true = rng.integers(0, 3, (4, 30, 9))
    z = np.take_along_axis(np.argsort(labels, -1), true, -1)
    for missing, dtype in ((-1, int), (-1.0, float), (np.nan, np.float32), (-128, np.int8)):
        holed, expected = z.astype(dtype), true.astype(dtype)
        holed[0, :, 2] = expected[0, :, 2] = missing
        out = rebase(values | {"z": holed}, traces.MIXTURE, order_by="loc", labels={"z": "component"}, null=False)
        np.testing.assert_array_equal(out.data["z"], expected)
        assert out.data["z"].dtype == holed.dtype
        np.testing.assert_array_equal(out.undo(out.data)["z"], holed)
    for wrong, message in (
        (z + 1, "from 1 to 3. Counted from one, .* pass z - 1"),
        (z + 0.5, "not whole"),
        (np.where(z == 1, np.inf, z), "from 0 to inf"),
        (z.astype(str), "got <U"),
        (z > 0, "got bool"),
    ):
        with pytest.raises(SymmetryError, match=f"'z' holds labels of group 'component'; expected integers.*{message}"):
            rebase(values | {"z": wrong}, traces.MIXTURE, labels={"z": "component"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda z: z.astype(float), "whole numbers from 0 to 2,.*labels={'z': 'component'};"),
        (lambda z: z + 1, "integers from 1 to 3,.*labels={'z': 'component'} after subtracting one"),
    ],
)
def test_labels_however_they_are_stored_are_warned_of(change, words):
    values, _ = traces.mixture(draws=30)
    z = change(np.random.default_rng(0).integers(0, 3, (4, 30, 9)))
    with pytest.warns(SymmetryWarning, match=f"'z' holds {words}"):
        rebase(values | {"z": z}, traces.MIXTURE, null=False)


LOG_DENSITY = np.array([np.nan, -3.0, np.inf, -1.0, -np.inf, -2.0])


@pytest.mark.parametrize(
    ("reference", "index"),
    [
        *[("first", 0), ("map", 3), ("mean", None), ("medoid", None), ({"loc": np.zeros(3)}, None)],
        # a draw of two chains of three, counted through or by chain
        *[(0, 0), (5, 5), (np.int64(4), 4), ((1, 0), 3), ((0, 2), 2), ((1,), 1)],
        *((value, SymmetryError) for value in (6, -1, (2, 0), (0, 3), (0, -1), (0, 0, 0))),
        *((value, ValueError) for value in ("best", True, 1.0, (), None, (1, True))),
    ],
)
def test_a_reference_is_a_draw_by_its_number_or_its_chain(reference, index):
    if isinstance(index, type):
        words = "is no draw of a trace of shape" if index is SymmetryError else "reference must be one of"
        with pytest.raises(index, match=words):
            index_of(reference, (2, 3), LOG_DENSITY)
    else:
        assert index_of(reference, (2, 3), LOG_DENSITY) == index


TWO, THREE = {2}, {3}


@pytest.mark.parametrize(
    ("values", "sizes", "words"),
    [
        ([0, 1, 2], THREE, "integers from 0 to 2"),
        ([1, 2, 3], THREE, "integers from 1 to 3"),
        (np.array([1, 2, 3], np.uint8), {2, 3}, "integers from 1 to 3"),
        ([0.0, 2.0], THREE, "whole numbers from 0 to 2"),
        ([1, 1], THREE, "integers from 1 to 1"),
        # too many, too large, below zero, parts of one, a constant
        *((values, THREE, "") for values in ([0, 3], [1, 4], [0, -2], [0.0, 0.5], [1.0, 1.0], [3, 3], [0j, 1j])),
        # padded by -1, by NaN, by the least integer
        ([1, -1, 2], THREE, "integers from 1 to 2, some of them missing"),
        ([-1, 1, 2], THREE, "integers from 1 to 2, some of them missing"),
        (np.array([np.nan, 1, 2], np.float32), THREE, "whole numbers from 1 to 2, some of them missing"),
        (np.array([1, 2, -128], np.int8), THREE, "integers from 1 to 2, some of them missing"),
        *((values, THREE, "") for values in ([-1, -1], [np.nan, np.nan], [np.inf, -np.inf])),
        # truth values are labels of two, where both are seen
        ([True, False], {2, 3}, "truth values"),
        *((values, sizes, "") for values, sizes in (([True, False], THREE), ([True] * 2, TWO), ([False] * 2, TWO))),
        ([0, 0], {1}, ""),
        ([0, 1], (), ""),
        ([], THREE, ""),
    ],
)
def test_numbers_that_may_be_labels_are_known_by_their_range(values, sizes, words):
    assert _as_labels(np.asarray(values), sizes) == words
    assert _as_labels(np.asarray(values)[None, :, None], sizes) == words


def test_labels_of_no_data_are_none():
    """As of a prior, before any datum is seen."""
    values = {**traces.mixture(draws=40)[0], "z": np.zeros((4, 40, 0), int)}
    out = rebase(values, traces.MIXTURE, labels={"z": "component"}, null=False)
    assert out.data["z"].shape == out.undo(out.data)["z"].shape == (4, 40, 0)


def test_truth_values_are_labels_of_two():
    rng = np.random.default_rng(0)
    loc, z = np.array([-3.0, 3.0]) + 0.1 * rng.standard_normal((4, 30, 2)), rng.random((4, 30, 9)) < 0.5
    values = {"loc": loc, "z": z, "never": np.zeros((4, 30, 9), bool)}
    loc[1], z[1] = loc[1, :, ::-1], ~z[1]
    with pytest.warns(SymmetryWarning, match="'z' holds truth values, as labels.*labels={'z': 'component'}") as caught:
        rebase(values, Symmetry.mixture("loc"), null=False)
    assert len(caught) == 1
    out = rebase(values, Symmetry.mixture("loc"), null=False, labels={"z": "component"})
    assert out.data["z"].dtype == bool
    np.testing.assert_array_equal(out.data["z"][1] != out.data["z"][0], z[1] == z[0])
    np.testing.assert_array_equal(out.undo(out.data)["z"], z)


@pytest.mark.parametrize(
    "other", [np.zeros((4, 30)), np.full((4, 30), 7), np.tile(np.arange(30), (4, 1)), np.ones((4, 30), bool)]
)
def test_what_cannot_be_labels_needs_no_word(other):
    values, _ = traces.mixture(draws=30)
    rebase(values | {"other": other}, traces.MIXTURE, null=False)


@pytest.mark.parametrize("group", ["posterior_predictive", "predictions"])
def test_predicted_labels_are_warned_of_and_predicted_data_are_not(group):
    values, _ = traces.mixture(draws=20)
    z = xr.DataArray(np.random.default_rng(0).integers(0, 3, (4, 20, 7)), dims=("chain", "draw", "data"))
    data = with_group(container(values), group, xr.Dataset({"z": z, "y": 0 * z, "f": 0.5 + z}))
    with pytest.warns(SymmetryWarning) as caught:
        out = rebase(data, traces.MIXTURE, null=False)
    (message,) = [str(warning.message) for warning in caught]
    assert f"'z' in group {group!r} of the container keeps its old labels" in message
    np.testing.assert_array_equal(out.data[group]["z"].values, z.values)


@pytest.mark.parametrize("group", ["log_prior", "sample_stats", "log_likelihood", "of_my_own"])
def test_what_another_group_holds_of_components_is_warned_of(group):
    values, _ = traces.mixture(draws=20)
    dims = ("chain", "draw", "component")
    other = xr.Dataset({"loc": (dims, np.zeros((4, 20, 3))), "size": (("chain", "draw", "x"), np.zeros((4, 20, 3)))})
    with pytest.warns(SymmetryWarning) as caught:
        rebase(with_group(container(values), group, other), traces.MIXTURE, null=False)
    (message,) = [str(warning.message) for warning in caught]
    assert f"'loc' in group {group!r} of the container has dimension 'component'" in message
    # other draws, or data
    for apart in ("prior", "warmup_sample_stats", "constant_data"):
        rebase(with_group(container(values), apart, other), traces.MIXTURE, null=False)
    few = other.isel(draw=slice(0, 10))
    rebase(with_group(container(values), group, few), traces.MIXTURE, null=False)


def test_a_group_within_the_posterior_is_warned_of():
    values, _ = traces.mixture(draws=20)
    posterior = dataset(container(values))
    tree = xr.DataTree.from_dict({"posterior": posterior, "posterior/sub": posterior[["loc"]]})
    with pytest.warns(SymmetryWarning, match="'loc' in group 'posterior/sub' of the container has dimension"):
        rebase(tree, traces.MIXTURE, null=False)
    # of another run, or other draws
    others = dict.fromkeys(["run2/posterior", "run2/of_my_own", "posterior/prior"], posterior[["loc"]])
    rebase(xr.DataTree.from_dict({"posterior": posterior} | others), traces.MIXTURE, null=False)


@pytest.mark.parametrize(
    ("old", "new", "absent"),
    [("draw", "iteration", "draws"), ("chain", "walker", "chains"), ("draw", "sample", "draws")],
)
def test_a_dimension_of_draws_by_another_name_is_not_taken_for_a_variables_own(old, new, absent):
    values, _ = traces.mixture(draws=20)
    posterior = dataset(container(values))
    with pytest.raises(SymmetryError, match=rf"no '{old}', and every variable has .*{new}.* counts {absent}"):
        rebase(posterior.rename({old: new}), traces.MIXTURE, null=False)
    if old == "chain":
        with pytest.raises(SymmetryError, match="no 'chain', and every variable has 'walker'"):
            rebase(posterior.rename(chain="walker").assign(lp=("draw", np.zeros(20))), traces.MIXTURE, null=False)
    one = posterior.isel({old: 0}, drop=True)
    if old == "chain":  # one chain's draws, as they come
        rebase(one, traces.MIXTURE, null=False)
    out = rebase(one.expand_dims(old), traces.MIXTURE, null=False)
    assert out.data["loc"].sizes[old] == 1


def with_group(data, name, group):
    if isinstance(data, xr.DataTree):
        data[name] = xr.DataTree(group)
    else:
        if name in data.groups():
            del data[name]
        data.add_groups(**{name: group})
    return data


def test_labels_nobody_speaks_of_are_warned_of():
    values, _ = traces.mixture(draws=30)
    z = np.random.default_rng(0).integers(0, 3, (4, 30, 9))
    with pytest.warns(SymmetryWarning, match="'z' holds integers from 0 to 2"):
        rebase(values | {"z": z}, traces.MIXTURE, null=False)
    with pytest.warns(SymmetryWarning, match="'extra' has shape .3,., with an axis as long"):
        rebase(values | {"extra": np.zeros((4, 30, 3))}, traces.MIXTURE, null=False)
    posterior = dataset(container(values))
    posterior = posterior.assign(other=posterior["loc"] * 2)
    with pytest.warns(SymmetryWarning, match="'other' has dimension 'component'"):
        rebase(posterior, traces.MIXTURE, null=False)


def test_of_two_groups_of_one_size_both_are_named():
    draws = {site: np.random.default_rng(k).normal(size=(30, 3)) for k, site in enumerate("ab")}
    symmetry = Symmetry({"a": ("first",), "b": ("last",)}, kinds={"last": "signed"})
    with pytest.warns(SymmetryWarning, match="entry for each 'first or last', relabel it too: axes={'extra': "):
        rebase(draws | {"extra": np.zeros((30, 3))}, symmetry, null=False)
    z = np.random.default_rng(2).integers(0, 3, (30, 9))
    with pytest.warns(SymmetryWarning, match="'z' holds integers from 0 to 2.*labels={'z': 'first'}"):
        rebase(draws | {"z": z}, symmetry, null=False)
    with pytest.warns(SymmetryWarning, match="'z' holds integers from 0 to 2.*labels={'z': group}"):
        rebase(draws | {"z": z}, Symmetry({"a": ("first",), "b": ("last",)}), null=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_are_kept(dtype):
    values, _ = traces.mixture(dtype=dtype)
    out = rebase(values | {"count": np.arange(800).reshape(4, 200)}, traces.MIXTURE, null=False)
    assert {site: value.dtype for site, value in out.data.items()} == {
        **dict.fromkeys(values, np.dtype(dtype)),
        "count": np.dtype(int),
    }


def test_integer_sites_move_too():
    values, labels = traces.mixture()
    values["size"] = np.take_along_axis(np.broadcast_to([5, 50, 500], labels.shape), labels, -1)
    out = rebase({s: values[s] for s in ("loc", "size")}, Symmetry.mixture("loc", "size"), order_by="loc", null=False)
    assert (out.data["size"] == [5, 50, 500]).all()
    assert out.data["size"].dtype == values["size"].dtype


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 1)])
def test_hardly_any_draws(shape):
    values, _ = traces.mixture(*shape)
    out = rebase(values, traces.MIXTURE, num_leading_dims=2)
    for site in values:
        assert out.data[site].shape == (*shape, 3)
    assert (out.null is None) == (shape == (1, 1)) == ("none, of a single draw" in str(out))


def test_a_dataset_whose_draws_are_stacked_keeps_its_index():
    data = xr.Dataset({site: (("chain", "draw", "k"), value) for site, value in VALUES.items()})
    stacked = data.assign_coords(draw=range(data.sizes["draw"])).stack(sample=("chain", "draw"))
    out = rebase(stacked, traces.MIXTURE, null=False)
    assert out.data.indexes["sample"].equals(stacked.indexes["sample"])
    assert out.data["loc"].dims == stacked["loc"].dims
    expected = rebase({site: v.reshape(-1, 3) for site, v in VALUES.items()}, traces.MIXTURE, null=False)
    np.testing.assert_array_equal(out.data["loc"].transpose("sample", "k"), expected.data["loc"])


def test_one_key_one_answer():
    import jax

    values, _ = traces.mixture(separation=1.0, draws=50)
    key = jax.random.key(3)
    first, second = (rebase(values, traces.MIXTURE, rng_key=key) for _ in range(2))
    np.testing.assert_array_equal(first.data["loc"], second.data["loc"])
    assert first.null.explained_null == second.null.explained_null


def test_the_score_of_labels_under_another_cost():
    values, labels = traces.mixture()
    y = np.linspace(-3, 15, 20)
    density = values["weights"][..., None, :] * np.exp(
        -0.5 * ((y[:, None] - values["loc"][..., None, :]) / values["scale"][..., None, :]) ** 2
    )
    p = density / density.sum(-1, keepdims=True)
    out, other = (rebase(values, traces.MIXTURE, cost=c, null=False) for c in (StephensCost(p), GaussianCost()))
    assert out.score(values, StephensCost(p)) == pytest.approx(out.objective.mean(), rel=1e-6)
    assert other.score(values, StephensCost(p)) <= out.objective.mean()
    assert repr(StephensCost(p)) == "StephensCost(group=None)"
    assert rebase(values, traces.MIXTURE, cost=EuclideanCost(), null=False).null is None


def broken(site, index, value):
    values, _ = traces.mixture(draws=10)
    values[site][index] = value
    return values


VALUES = traces.mixture(draws=10)[0]


class State(NamedTuple):
    """As a sampler returns it."""

    position: dict
    logdensity: float


class Kept(NamedTuple):
    """As samplers return that weigh draws or paths."""

    samples: dict
    weights: float


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (broken("loc", (1, 4, 2), np.nan), {}, r"'loc' is not finite in 1 of 40 draws, first in draw \(1, 4\)"),
        ({"loc": VALUES["loc"]}, {}, "'weights' is named by the symmetry but"),
        ({**VALUES, "scale": VALUES["scale"][:, :5]}, {}, r"disagree on their 2 .* 'scale': \(4, 5, 3\)"),
        ({s: v[0, : 5 + (s == "loc")] for s, v in VALUES.items()}, {}, r"disagree on their 1 .* 'loc': \(6, 3\)"),
        # few draws of many slots: two dimensions of draws would leave no axis for the slots
        ({s: np.zeros((4 + (s == "loc"), 7)) for s in VALUES}, {}, r"disagree on their 1 .* 'loc': \(5, 7\)"),
        (
            {**VALUES, "scale": VALUES["scale"][..., :2]},
            {"num_leading_dims": 2},
            "'scale' axis -1 has size 2, but group 'component' has size 3",
        ),
        ({**VALUES, "scale": [[1.0, 2.0], [1.0]]}, {}, r"'scale' is ragged: its chains have 2, 1 draws.* value\[:1\]"),
        (
            {**VALUES, "scale": np.ma.masked_array(VALUES["scale"], VALUES["scale"] > 1)},
            {},
            "'scale' is a masked array",
        ),
        ({**VALUES, "other": np.ma.masked_array(np.zeros(3), True)}, {}, "'other' is a masked array"),
        (
            [{s: np.ma.masked_array(v[0, 0], True) for s, v in VALUES.items()}],
            {},
            "Member 0: site 'weights' is a masked",
        ),
        ({s: v[:, :0] for s, v in VALUES.items()}, {"num_leading_dims": 2}, "no draws"),
        ({}, {}, "no draws: the dict is empty"),
        ([], {}, "an empty list"),
        ([VALUES["loc"]], {}, "expected in a dict.* a list of ndarray: members of an ensemble are dicts"),
        ((VALUES["loc"], VALUES["scale"]), {}, r"the parts of one position get names, dict\(zip"),
        ((dict, {"loc": VALUES["loc"]}), {}, "the guide dict and its parameters: pass its draws, to_arviz"),
        (State(VALUES, 0.0), {}, "the state State of a sampler: pass its positions by site, states.position"),
        ((State(VALUES, 0.0), (0.0,)), {}, "a tuple of State and tuple: pass the positions of its states, states.pos"),
        (
            Kept(VALUES, 0.5),
            {},
            r"the tuple Kept\(samples, weights\): pass the one of these that .*, data\.samples",
        ),
        (
            SVIRunResult({"auto_loc": 0.0}, None, 0.0),
            {},
            r"SVIRunResult, which holds no draws: .* data.params",
        ),
        ({"params": VALUES}, {}, r"acts on sites \['weights', .* holds arrays at \['params.loc', .*paths"),
        (VALUES["loc"], {}, r"an array of shape \(4, 10, 3\): name the site"),
        (pd.DataFrame(VALUES["loc"][0], columns=["loc[1]", "loc[2]", "loc[3]"]), {}, "a DataFrame with columns: stack"),
        ("trace.nc", {}, r"the path 'trace.nc': read the file first, az.from_netcdf"),
        (dict, {}, "the class dict"),
        (
            {f"loc.{k}": VALUES["loc"][..., k] for k in range(3)},
            {},
            "'loc' is there in 3 columns, 'loc.0' to 'loc.2'.*np.stack",
        ),
        ({f"loc[{k}]": VALUES["loc"][..., k] for k in range(3)}, {}, "'loc' is there in 3 columns"),
        ([{"loc": np.zeros(3)}, {"mu": np.zeros(3)}], {}, "Member 1 has sites"),
        (VALUES, {"labels": {"z": "component"}}, "expected a site of the data"),
        (VALUES, {"reference": (9, 9)}, "no draw of a trace"),
        (VALUES, {"reference": {"loc": np.zeros(3)}}, "'weights' of the reference"),
        (VALUES, {"reference": "map"}, "needs each draw's log density"),
        (
            VALUES,
            {"reference": {s: np.ma.masked_array(np.ones(3), True) for s in VALUES}},
            "Reference 'weights' is a masked",
        ),
        (VALUES, {"order_by": "z"}, "none of the symmetry's sites"),
        (xr.Dataset({"loc": (("a",), np.zeros(3))}), {}, "expected chain and draw"),
    ],
)
def test_bad_input_is_refused_with_its_reason(data, options, message):
    with pytest.raises(SymmetryError, match=message):
        rebase(data, traces.MIXTURE, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": {"loc": np.zeros(3)}}, "'weights' of the reference"),
        (
            {
                "reference": {s: np.ones(3) for s in VALUES},
                "cost": AllocationCost(np.zeros((*VALUES["loc"].shape[:2], 3), int)),
            },
            "AllocationCost does not compare values",
        ),
        ({"order_by": "z"}, "none of the symmetry's sites"),
    ],
    ids=["a site missing", "of a cost without values", "no site"],
)
def test_what_cannot_name_slots_is_refused_before_labels_are_searched(monkeypatch, options, message):
    # the package's function of this name hides its module
    monkeypatch.setattr(sys.modules["numpyro_symmetry.traces.rebase"], "search", lambda *args: pytest.fail("searched"))
    with pytest.raises(SymmetryError, match=message):
        rebase(VALUES, traces.MIXTURE, **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"reference": "best"}, ValueError, "reference must be one of"),
        ({"reference": None}, ValueError, "reference must be one of .* got None"),
        ({"reference": True}, ValueError, "reference must be one of .* got True"),
        ({"reference": np.zeros(3)}, ValueError, "values by site"),
        ({"reference": EuclideanCost}, ValueError, "the class EuclideanCost"),
        ({"cost": "stephens"}, ValueError, r"cost must be 'auto', EuclideanCost\(\), .*StephensCost\(probabilities\)"),
        ({"cost": None}, TypeError, "cost must be 'auto'"),
        ({"method": "best"}, ValueError, "method must be one of"),
        ({"num_starts": 0}, ValueError, "num_starts must be at least 1"),
        ({"num_leading_dims": 0}, ValueError, r"num_leading_dims must be at least 1 .*\(draw, ...\)"),
        ({"num_leading_dims": 2.0}, TypeError, "num_leading_dims must be a whole number"),
        ({"order_by": ["loc"]}, TypeError, "order_by must be the name of one site"),
        ({"axes": ["z"]}, TypeError, "axes must be a mapping by site"),
        ({"null": "no"}, TypeError, "null must be True or False"),
        ({"reference": "first", "order_by": "loc"}, ValueError, "would rename"),
        ({"symmetry": "component"}, TypeError, "symmetry must be a Symmetry.*got str"),
        ({"symmetry": None, "model": print, "model_args": np.ones(3)}, TypeError, "model_args must be a tuple"),
        ({"symmetry": None, "model": print, "signs": 1}, TypeError, "signs must be True or False"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        rebase(VALUES, **{"symmetry": traces.MIXTURE, **options})


def test_a_site_of_several_values_a_slot_orders_nothing():
    loc = np.stack([VALUES["loc"], VALUES["scale"]], -1)
    with pytest.raises(SymmetryError, match="'loc' has 2 values for each slot of 'component'"):
        rebase({"loc": loc}, Symmetry({"loc": ("component", None)}), order_by="loc")
    for kind, said in (("signed", r" with signs \(signs=False leaves them out\);"), ("permutation", ";")):
        symmetry = Symmetry({"loc": ("component", "component")}, kinds={"component": kind})
        with pytest.raises(SymmetryError, match=r"carries groups \['component', 'component'\]" + said + " expected"):
            rebase({"loc": VALUES["loc"][..., None] * np.ones(VALUES["loc"].shape[-1])}, symmetry, order_by="loc")


def test_what_runs_under_jit_is_told_so():
    import jax

    with pytest.raises(TypeError, match="Reading draws needs numbers and cannot run under jit"):
        jax.jit(lambda values: rebase(values, traces.MIXTURE).elements)(VALUES)


def test_leading_dimensions_that_could_be_either_are_asked_for():
    with pytest.raises(SymmetryError, match="num_leading_dims"):
        rebase({"loc": np.zeros((10, 10, 3))}, Symmetry.mixture("loc"))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("of", [np.asarray, jnp.asarray])
def test_halves_are_relabelled_as_what_they_round_to(dtype, of):
    loc = np.asarray(jnp.asarray(VALUES["loc"], dtype))
    names = np.random.default_rng(0).integers(0, 3, (*loc.shape[:2], 5))
    data = {"loc": of(loc), "z": of(names.astype(loc.dtype))}
    found = rebase(data, Symmetry.mixture("loc"), labels={"z": "component"})
    expected = rebase({"loc": loc.astype(np.float32), "z": names}, Symmetry.mixture("loc"), labels={"z": "component"})
    assert str(found.null) == str(expected.null)
    assert str(report(found)) == str(report(expected))
    for site in ("loc", "z"):
        assert found.data[site].dtype == dtype
        np.testing.assert_array_equal(np.asarray(found.data[site], np.float32), expected.data[site])


def test_eight_short_chains_are_not_taken_for_eight_draws():
    draws = {"loc": np.random.default_rng(0).standard_normal((8, 4, 3))}
    with pytest.raises(SymmetryError, match=r"Cannot tell.*\(8, 4, 3\).*num_leading_dims=1 or 2"):
        rebase(draws, Symmetry.mixture("loc"))
    for num, size in ((1, 4), (2, 3)):
        out = rebase(draws, Symmetry.mixture("loc"), null=False, num_leading_dims=num)
        assert out.symmetry.sizes == {"component": size}


def test_of_two_leading_dimensions_the_smaller_counts_chains():
    values, _ = traces.mixture(chains=3, draws=40)
    for shape, leading in (((3, 40, 3), (3, 40)), ((40, 3), (40,)), ((40, 3, 2), (40,))):
        data = {"loc": np.resize(values["loc"], shape)}
        assert read(data, Symmetry({"loc": ("component", ...)})).leading == leading


def test_apply_checks_what_it_is_given():
    out = rebase(VALUES, traces.MIXTURE, null=False)
    with pytest.raises(SymmetryError, match="leading dimensions"):
        out.apply({"loc": np.zeros((4, 9, 3))})
    with pytest.raises(SymmetryError, match="integers from 0 to 2"):
        out.apply({"z": np.full((4, 10), 3)}, labels={"z": "component"})
    with pytest.raises(SymmetryError, match="name groups"):
        out.apply({"m": np.zeros((4, 10, 3))}, axes={"m": ("state",)})
    assert out.apply({"other": np.ones(3)})["other"].tolist() == [1, 1, 1]
    switched, _ = traces.tanh_units()
    odd = rebase(switched, traces.TANH, null=False)
    with pytest.raises(SymmetryError, match="'on': a sign cannot apply to values of type bool"):
        odd.apply({"on": np.ones((300, 4), bool)}, axes={"on": ("hidden",)})


def test_labels_are_ordered_by_means_over_all_draws():
    values, _ = traces.mixture(separation=0.5, size=5)
    out = rebase(values, traces.MIXTURE, order_by="loc", null=False)
    assert (np.diff(out.data["loc"].mean((0, 1))) > 0).all()
    assert (np.diff(out.data["loc"][0, 0]) < 0).any()


@every_relabelling_cost
def test_draws_read_in_pieces_are_those_read_at_once(cost, monkeypatch):
    values, _ = traces.mixture(separation=1.0, draws=50)
    whole = rebase(values, traces.MIXTURE, cost=cost, null=False)
    monkeypatch.setattr("numpyro_symmetry.chunks.CHUNK", 100)
    pieces = rebase(values, traces.MIXTURE, cost=cost, null=False)
    np.testing.assert_array_equal(pieces.data["loc"], whole.data["loc"])
    np.testing.assert_allclose(pieces.objective, whole.objective, rtol=1e-9)
    np.testing.assert_allclose(pieces.margin, whole.margin, rtol=1e-6, atol=1e-9)


def test_labelled_arrays_move_whatever_the_order_of_their_dimensions():
    draws = np.random.default_rng(0).normal(np.arange(3.0), 0.2, (2, 20, 3))
    draws[1, ::2] = draws[1, ::2, ::-1]
    out = rebase({"loc": draws}, Symmetry.mixture("loc"), null=False)
    named = xr.DataArray(draws, dims=("chain", "draw", "component"))
    turned = [named.transpose(*dims) for dims in itertools.permutations(named.dims)]
    # where only one of two names is known, dimensions stand as they are counted
    for given in [*turned, named.rename(chain="walker"), named.rename(draw="iteration")]:
        np.testing.assert_array_equal(out.apply({"loc": given})["loc"], out.data["loc"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_relabelling_cost
def test_slots_are_called_the_same_however_draws_are_read(cost, dtype, monkeypatch):
    # of these searches several end alike, and differ by the order of their sums
    values, _ = traces.mixture(chains=1, separation=2.0, draws=120, seed=3, dtype=dtype)
    whole = rebase(values, traces.MIXTURE, cost=cost, null=False, num_leading_dims=2)
    monkeypatch.setattr("numpyro_symmetry.chunks.CHUNK", 300)
    pieces = rebase(values, traces.MIXTURE, cost=cost, null=False, num_leading_dims=2)
    np.testing.assert_array_equal(pieces.elements["component"], whole.elements["component"])


@pytest.mark.parametrize("cost", [EuclideanCost(), GaussianCost(), GaussianCost("identity")])
@pytest.mark.parametrize("unit", [1e160, 1e-170, 1e300, 1e-300])
def test_labels_do_not_depend_on_units(cost, unit):
    values, _ = traces.mixture(draws=50)
    loc = values["loc"] - 4.0
    near, far = (rebase({"loc": loc * u}, Symmetry.mixture("loc"), cost=cost) for u in (1.0, unit))
    np.testing.assert_array_equal(near.elements["component"], far.elements["component"])
    assert far.null.explained == pytest.approx(near.null.explained, rel=1e-6)


@pytest.mark.parametrize(("unit", "dtype"), [(1e160, float), (1e-170, float), (1e20, np.float32), (1e-25, np.float32)])
def test_what_cannot_be_squared_is_refused(unit, dtype):
    loc = (traces.mixture(draws=20)[0]["loc"] * unit).astype(dtype)
    with pytest.raises(SymmetryError, match="'loc' holds values that differ by up to .* rescale it"):
        rebase({"loc": loc}, Symmetry.mixture("loc"), cost=EuclideanCost(standardize=False))
    with pytest.raises(SymmetryError, match="'loc' holds values up to 1.*e.308, too large to add up"):
        rebase({"loc": np.full((20, 2), 1.7e308)}, Symmetry.mixture("loc"))


def test_columns_of_very_different_size_all_count():
    values, _ = traces.mixture(draws=50)
    loc = np.stack([values["loc"], 1e160 * np.random.default_rng(0).standard_normal(values["loc"].shape)], -1)
    out = rebase({"loc": loc}, Symmetry({"loc": ("component", None)}), cost=GaussianCost())
    assert out.data["loc"][..., 0].std((0, 1)).max() < 1.5


def test_undoing_by_container_and_by_name():
    values, _ = traces.mixture(chains=3, draws=50)
    data = container(values)
    turned = dataset(data).transpose("component", "draw", "chain")
    for given in (data, dataset(data), turned):
        out = rebase(given, traces.MIXTURE, null=False)
        back = out.undo(out.data)
        assert type(back) is type(given)
        for site in values:
            assert (back if isinstance(back, xr.Dataset) else dataset(back))[site].identical(
                (given if isinstance(given, xr.Dataset) else dataset(given))[site]
            )
    by_name = out.apply({"loc": turned["loc"]})["loc"]
    np.testing.assert_array_equal(by_name, out.data["loc"].transpose("chain", "draw", "component").values)


@pytest.mark.parametrize("kind", [list, tuple])
def test_members_are_undone_too(kind):
    shapes, symmetry = networks.mlp([4, 10, 2])
    _, stacked, _ = networks.planted(shapes, symmetry, 0.1, 5)
    members = kind({site: value[k] for site, value in stacked.items()} for k in range(5))
    out = rebase(members, symmetry)
    assert type(out.data) is kind
    for given, back in zip(members, out.undo(out.data), strict=True):
        for site in given:
            np.testing.assert_array_equal(given[site], back[site])


@pytest.mark.parametrize("count", [19, 20, 40])
def test_a_few_members_of_a_wide_network_are_not_frozen_by_their_own_variances(count):
    shapes, symmetry = networks.mlp([100, 10, 3])
    _, draws, undo = networks.planted(shapes, symmetry, 2.0, count)
    out = rebase(draws, symmetry)
    g = np.asarray(out.elements["hidden"])
    # every draw's labels agree with the planted ones up to one relabelling of all
    relative = np.take_along_axis(np.argsort(undo["hidden"], -1), g, -1)
    share = np.mean([np.bincount(column).max() / count for column in relative.T])
    assert share > 0.95


@pytest.mark.parametrize("reference", ["first", "medoid", 3])
def test_a_draw_for_reference_does_not_change_the_criterion(reference):
    rng = np.random.default_rng(0)
    spread = np.array([[0.1, 3.0], [3.0, 0.1]])
    values = {site: rng.standard_normal((500, 2)) * s for site, s in zip("ab", spread, strict=True)}
    out = rebase(values, Symmetry.mixture("a", "b"), cost=GaussianCost(), reference=reference, null=False)
    g = np.asarray(out.elements["component"])
    same = (g == [0, 1]).all(1).mean()
    assert max(same, 1 - same) > 0.99


@pytest.mark.parametrize("container", [np.asarray, list, lambda x: x.tolist()])
def test_a_site_of_a_reference_may_be_a_list(container):
    symmetry, centres = Symmetry({"w": ("unit", None)}, sizes={"unit": 3}), np.array([[4.0, 4], [-4, -4], [0, 0]])
    draws = centres[[2, 0, 1]] + np.random.default_rng(0).normal(size=(20, 3, 2))
    out = rebase({"w": draws}, symmetry, reference={"w": container(centres)}, null=False)
    np.testing.assert_allclose(out.data["w"].mean(0), centres, atol=1.0)


@pytest.mark.parametrize("cost", [EuclideanCost(), EuclideanCost(standardize=False), GaussianCost("identity")])
def test_single_precision_beside_a_large_offset(cost):
    rng = np.random.default_rng(0)
    true = 1e6 + np.array([0.0, 5.0, 10.0]) + rng.standard_normal((500, 3))
    values = {"loc": rng.permuted(true, axis=1).astype(np.float32)}
    out = rebase(values, Symmetry.mixture("loc"), cost=cost, order_by="loc", null=False)
    assert out.data["loc"].astype(float).std(0).max() < 1.2


def test_a_model_is_asked_if_it_is_given():
    import numpyro
    import numpyro.distributions as dist

    def model():
        numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("transition", dist.Dirichlet(jnp.array([[3.0, 1.0, 1.0], [1, 3, 1], [1, 1, 3]])).to_event(1))

    switched, _, _ = traces.hmm()
    del switched["initial"]
    right = Symmetry.hmm(transition="transition", emissions=["loc"])
    assert rebase(switched, right, model=model, null=False).converged
    rows_only = Symmetry({"loc": ("state",), "transition": ("state", None)})
    with pytest.raises(SymmetryError, match="'transition'"):
        rebase(switched, rows_only, model=model)


def test_references_that_do_not_fit_are_refused():
    values, _ = traces.mixture(draws=30)
    out = rebase(values, traces.MIXTURE, null=False)
    other, _ = traces.mixture(draws=30, size=4)
    with pytest.raises(SymmetryError, match="has shape"):
        rebase(other, traces.MIXTURE, reference=out, null=False)
    reference = {s: np.array(v) for s, v in out.reference.items()}
    reference["loc"][1] = np.nan
    with pytest.raises(SymmetryError, match="'loc' of the reference is not finite"):
        rebase(values, traces.MIXTURE, reference=reference, null=False)
    p = np.full((30, 4, 5, 3), 1 / 3)
    with pytest.raises(SymmetryError, match="leading dimensions"):
        rebase(values, traces.MIXTURE, cost=StephensCost(p), null=False)


def test_groups_that_keep_their_labels_are_warned_of():
    values, _ = traces.mixture(draws=20)
    data = container(values)
    if isinstance(data, xr.DataTree):
        data["warmup_posterior"] = xr.DataTree(dataset(data))
    else:
        data.add_groups(warmup_posterior=dataset(data))
    with pytest.warns(SymmetryWarning, match="'warmup_posterior' of the container keeps"):
        rebase(data, traces.MIXTURE, null=False)


def tree(values):
    """A tree whichever ArviZ there is."""
    dims = ("chain", "draw", "component")
    posterior = xr.Dataset({site: (dims, value) for site, value in values.items()}, attrs={"made_by": "a test"})
    stats = xr.Dataset({"lp": (dims[:2], np.random.default_rng(0).normal(size=values["loc"].shape[:2]))})
    return xr.DataTree.from_dict({"posterior": posterior, "sample_stats": stats})


def test_a_tree_is_not_written_into():
    values, _ = traces.mixture(draws=20)
    data = tree(values)
    before = data.copy(deep=True)
    out = rebase(data, traces.MIXTURE, order_by="loc", null=False)
    assert isinstance(out.data, xr.DataTree)
    assert data.identical(before)
    assert not out.data["posterior"].to_dataset().identical(data["posterior"].to_dataset())
    assert out.data["sample_stats"].to_dataset().identical(before["sample_stats"].to_dataset())
    assert out.undo(out.data).identical(before)
    with pytest.raises(SymmetryError, match="expected one named 'posterior'"):
        rebase(xr.DataTree.from_dict({"prior": before["posterior"].to_dataset()}), traces.MIXTURE, null=False)


def test_the_posterior_of_a_tree_may_be_taken_by_itself():
    values, _ = traces.mixture(draws=20)
    data = tree(values)
    whole, alone = (rebase(given, traces.MIXTURE, order_by="loc", null=False) for given in (data, data["posterior"]))
    assert isinstance(alone.data, xr.DataTree)
    assert alone.data.to_dataset().identical(whole.data["posterior"].to_dataset())
    assert alone.undo(alone.data).to_dataset().identical(data["posterior"].to_dataset())
    beside = xr.DataTree.from_dict(
        {"/": data["posterior"].to_dataset(), "/sample_stats": data["sample_stats"].to_dataset()}
    )
    assert rebase(beside, traces.MIXTURE, null=False).data["sample_stats"].identical(beside["sample_stats"])
    with pytest.raises(SymmetryError, match=r"Rebased: pass its draws, out\.data"):
        rebase(alone, traces.MIXTURE)


def test_a_subclass_of_a_container_is_that_container():
    import arviz

    if "InferenceData" not in vars(arviz):
        pytest.skip("ArviZ keeps draws in trees")

    class Mine(arviz.InferenceData):
        """Somebody's own."""

    values, _ = traces.mixture(draws=20)
    plain = container(values)
    data = Mine(**{group: plain[group] for group in plain.groups()})
    before = dataset(data).copy(deep=True)
    out = rebase(data, traces.MIXTURE, order_by="loc", null=False)
    assert type(out.data) is Mine
    assert out.data.groups() == data.groups()
    assert dataset(data).identical(before)
    np.testing.assert_array_equal(
        dataset(out.data)["loc"], rebase(values, traces.MIXTURE, order_by="loc", null=False).data["loc"]
    )


def test_a_sampler_that_keeps_draws_elsewhere_is_not_taken_for_one_that_has_none():
    class Renamed:
        """Stands for a later NumPyro."""

        sampler = None

        def get_samples(self, group_by_chain=False):
            return VALUES

    with pytest.raises(
        SymmetryError, match=r"keeps its draws otherwise .* pass mcmc.get_samples\(group_by_chain=True\)"
    ):
        rebase(Renamed(), traces.MIXTURE)


def test_a_log_density_that_is_nowhere_known_chooses_no_draw():
    values, _ = traces.mixture(draws=20)
    data = tree(values)
    data["sample_stats"] = xr.DataTree(data["sample_stats"].to_dataset() * np.nan)
    with pytest.raises(SymmetryError, match="'map' needs a draw whose log density is finite"):
        rebase(data, traces.MIXTURE, reference="map")
    np.testing.assert_array_equal(
        rebase(data, traces.MIXTURE, null=False).elements["component"],
        rebase(values, traces.MIXTURE, null=False).elements["component"],
    )


@pytest.mark.parametrize("kind", ["plain", "signed", "orbits", "predicted"])
def test_a_result_prints_itself_in_a_few_lines(kind):
    values, _ = traces.mixture()
    out = {
        "plain": lambda: rebase(values, traces.MIXTURE),
        "signed": lambda: rebase(traces.tanh_units()[0], traces.TANH),
        "orbits": lambda: rebase({"loc": values["loc"]}, Symmetry({"loc": ("c",)}, orbits={"c": (0, 0, 1)})),
        "predicted": lambda: rebase(values, traces.MIXTURE, null=False),
    }[kind]()
    text = repr(out)
    assert str(out) == text
    assert len(text) < 900
    assert len(text.splitlines()) == 5
    assert "array" not in text
    assert f"log|G| = {out.symmetry.log_order():.1f} nats" in text
    if kind == "plain":
        assert "Rebased: 4 × 200 draws of weights, loc, scale (dict)" in text
        g = np.asarray(out.elements["component"]).reshape(-1, 3)
        most = max((g == row).all(1).sum() for row in np.unique(g, axis=0))
        assert f"{1 - most / 800:.0%} of draws came with labels other than the most common" in text
        guesses = np.mean(out.margin < np.log(20.0))
        likely = f"median {np.median(out.margin):.3g} nats; others at least a twentieth as likely in {guesses:.0%}"
        assert f"  margin  {likely}\n" in text
        assert ("not settled" in text, "not settled" in str(out._replace(converged=False))) == (False, True)
        assert "3 of 3 slots of 'component' identified" in text
        assert repr(out.null).startswith("Null of 800 draws: slots explain")
    if kind == "predicted":
        assert "  null    not asked for" in text
    assert out._repr_html_() == f"<pre>{text.replace(chr(39), '&#x27;')}</pre>"


def test_where_there_is_one_label_there_is_no_other():
    out = rebase({"loc": np.random.default_rng(0).normal(size=(20, 1))}, Symmetry.mixture("loc"), null=False)
    assert np.isinf(out.margin).all()
    assert "  margin  none: there are no other labels\n" in str(out)


def test_signs_are_looked_for_unless_they_are_not_wanted():
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        loadings = numpyro.sample("loadings", dist.Normal(0, 1).expand([5, 2]).to_event(2))
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(5), loadings @ loadings.T + jnp.eye(5)), obs=y)

    rng = np.random.default_rng(0)
    centre = np.kron(np.eye(2), [[2.0], [2.0], [2.0]])[:5]
    chains = [(centre + 0.1 * rng.normal(size=(100, 5, 2))) * s for s in ([1, 1], [-1, 1], [1, -1], [-1, -1])]
    values = {"loadings": np.stack(chains)}
    data = {"model": model, "model_args": (jnp.ones((4, 5)),), "null": False}
    out = rebase(values, **data)
    assert [group.kind for group in out.symmetry.groups.values()] == ["signed"]
    assert out.data["loadings"].std((0, 1)).max() < 0.15
    without = rebase(values, signs=False, **data)
    assert [group.kind for group in without.symmetry.groups.values()] == ["permutation"]
    assert without.data["loadings"].std((0, 1)).max() > 1.0


def test_a_model_of_another_size_than_the_draws_is_refused():
    def mixture(y, count):
        loc = numpyro.sample("loc", dist.Normal(0, 3).expand([count]).to_event(1))
        densities = dist.MixtureSameFamily(dist.Categorical(jnp.ones(count) / count), dist.Normal(loc, 1.0))
        numpyro.sample("y", densities.expand([4]).to_event(1), obs=y)

    values, symmetry = {"loc": np.random.default_rng(0).normal(size=(60, 4))}, Symmetry.mixture("loc")
    rebase(values, symmetry, model=mixture, model_args=(jnp.arange(4.0), 4), null=False)
    with pytest.raises(SymmetryError, match="'component' has size 4 in the draws, and 3 in the model: pass the model_"):
        rebase(values, symmetry, model=mixture, model_args=(jnp.arange(4.0), 3), null=False)


def topics(counts, batch=None):
    phi = numpyro.sample("phi", dist.Dirichlet(jnp.ones((3, 5))).to_event(1))
    with numpyro.plate("documents", 6, subsample_size=batch) as index:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(3)))
        numpyro.deterministic("rates", theta @ phi)
        numpyro.sample("y", dist.Multinomial(10, probs=theta @ phi), obs=counts[index])


@pytest.mark.parametrize("batch", [None, 4])
def test_globals_alone_are_relabelled_by_the_symmetry_of_the_model(batch):
    rng = np.random.default_rng(0)
    planted = rng.dirichlet(np.ones(5), 3)
    labels = np.stack([rng.permutation(3) for _ in range(60)]).reshape(3, 20, 3)
    phi = planted[labels] * np.exp(0.01 * rng.normal(size=(3, 20, 3, 5)))
    phi /= phi.sum(-1, keepdims=True)
    rates = rng.dirichlet(np.ones(3), (3, 20, 6)) @ phi
    counts = jnp.asarray(rng.multinomial(10, np.ones(5) / 5, size=6))
    # what depends on sites that are not there cannot be computed again
    with (
        pytest.warns(SymmetryWarning, match=r"\['theta'\] as well.*\['phi'\] alone"),
        pytest.warns(SymmetryWarning, match="'rates' is computed by the model.*left out"),
    ):
        out = rebase({"phi": phi, "rates": rates}, model=topics, model_args=(counts, batch), null=False)
    assert set(out.data) == {"phi"}
    assert out.data["phi"].std((0, 1)).max() < 0.02 < phi.std((0, 1)).max()
    (found,) = out.elements.values()
    relative = np.take_along_axis(labels, np.asarray(found), -1)
    assert (relative == relative[0, 0]).all()


def test_a_single_component_is_rebased_and_orbits_of_one_are_nothing_to_relabel():
    draws = {"loc": np.random.default_rng(0).normal(size=(50, 1))}
    out = rebase(draws, Symmetry.mixture("loc"))
    np.testing.assert_array_equal(out.data["loc"], draws["loc"])
    assert out.elements["component"].shape == (50, 1)
    with pytest.raises(SymmetryError, match="nothing to relabel. The draws are right as they are"):
        rebase({"loc": np.zeros((50, 2))}, Symmetry({"loc": ("unit",)}, orbits={"unit": (0, 1)}))


def test_elements_and_reference_survive_a_file_and_undo_later(tmp_path):
    rng = np.random.default_rng(0)
    symmetry = Symmetry({"w": ("factor", None)}, kinds={"factor": "signed"})
    centres = np.array([[3.0, 0.5], [0.3, 6.0], [-2.0, 9.0]])
    draws = symmetry.bind({"w": centres}).apply(
        symmetry.bind({"w": centres}).sample(jax.random.key(0), (2, 40)),
        {"w": centres + 0.1 * rng.standard_normal((2, 40, 3, 2))},
    )
    draws = {"w": np.asarray(draws["w"])}
    out = rebase(draws, symmetry, null=False)
    part = out.elements["factor"]
    dims = ("chain", "draw", "factor")
    xr.Dataset(
        {
            "w": ((*dims, "number"), out.data["w"]),
            "permutation": (dims, np.asarray(part.permutation)),
            "sign": (dims, np.asarray(part.sign)),
            "reference": (dims[2:] + ("number",), np.asarray(out.reference["w"])),
        }
    ).to_netcdf(tmp_path / "out.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as kept:
        kept = kept.load()
    element = {"factor": SignedPermutation(kept["permutation"].values, kept["sign"].values)}
    moved = {"w": kept["w"].values}
    np.testing.assert_array_equal(
        symmetry.bind(moved, num_leading_dims=2).apply(inverse(element), moved)["w"], draws["w"]
    )
    more = rebase({"w": draws["w"][:, ::-1]}, symmetry, reference={"w": kept["reference"].values}, null=False)
    np.testing.assert_array_equal(more.data["w"], kept["w"].values[:, ::-1])


def test_named_arrays_come_back_with_their_names_and_in_memory():
    """Those that moved came back as plain arrays, which a later `rebase` could only read by position."""
    values, _ = traces.mixture()
    out = rebase(values, traces.MIXTURE, null=False)
    coords, dims = {"draw": 1 + np.arange(values["loc"].shape[1])}, ("chain", "draw", "component")
    named = {site: xr.DataArray(x, coords, dims[: x.ndim], attrs={"unit": "m"}) for site, x in values.items()}
    rebased = rebase(named, traces.MIXTURE, null=False).data
    turned = {site: x.transpose(*x.dims[::-1]) for site, x in named.items()}
    for moved in (rebased, out.apply(named), out.apply(turned)):
        assert all(type(x.data) is np.ndarray for x in moved.values())
        for site, x in moved.items():
            xr.testing.assert_identical(x, named[site].copy(data=out.data[site]))
            xr.testing.assert_identical(out.undo(moved)[site], named[site])


@pytest.mark.parametrize("constant", ["a site", "a slot"])
def test_what_never_moves_does_not_make_draws_few(constant):
    rng = np.random.default_rng(0)
    loc = np.array([-5.0, 0.1, 5.0]) + 0.3 * rng.standard_normal((4, 100, 3))
    loc[..., 1] = 0.1 if constant == "a slot" else loc[..., 1]
    values = {"loc": rng.permuted(loc, axis=-1)}
    if constant == "a site":
        values["scale"] = np.full((4, 100, 3), 0.3)
    out = rebase(values, Symmetry.mixture(*values))
    assert out.null.num_effective == 400


@pytest.mark.parametrize("is_stored", [False, True], ids=["in memory", "of Dask"])
@pytest.mark.parametrize("entry", ["factor", Unsigned("factor")])
def test_a_site_of_one_sign_that_signs_would_turn_is_warned_of(entry, is_stored):
    rng = np.random.default_rng(0)
    loadings = (
        0.2 * rng.standard_normal((200, 5, 2)) + np.array([[2.0, 0.0, 1.0, -1.0, 0.5], [0.0, 2.0, -1.0, 1.0, 1.0]]).T
    )
    draws = {"loadings": loadings * rng.choice([-1.0, 1.0], (200, 1, 2)), "scale": rng.gamma(5.0, 1.0, (200, 2))}
    symmetry = Symmetry({"loadings": (None, "factor"), "scale": (entry,)}, kinds={"factor": "signed"})
    if is_stored:
        dims = {"loadings": ("draw", "variable", "factor"), "scale": ("draw", "factor")}
        draws = xr.Dataset({site: (dims[site], x) for site, x in draws.items()}).expand_dims("chain").chunk(draw=50)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", SymmetryWarning)
        out = rebase(draws, symmetry, null=False)
        along = {"loadings": (None, "factor")}, {"scale": (entry,)}
        moved = rebase(draws, Symmetry(along[0], kinds={"factor": "signed"}), axes=along[1], null=False)
        # loadings that are positive, whatever their labels, are turned in no draw
        rebase({"loadings": 1.0 + rng.random((200, 5, 2))}, Symmetry.factor("loadings"), null=False)
    said = [str(one.message) for one in found if "have one sign" in str(one.message)]
    assert [("['scale']" in one and "Unsigned(group)" in one) for one in said] == [True, True] * (entry == "factor")
    assert (out.data["scale"] < 0).any() == (moved.data["scale"] < 0).any() == (entry == "factor")
