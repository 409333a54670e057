"""Tables of pandas and xarray that a model is given are data, whatever it reads them by."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import numpyro_symmetry as ns
from numpyro_symmetry.models.data import apart, holds_nan, redrawn

# columns that coincide, which nothing may depend on
COLUMNS = {"a": [1.0, 2.0, 4.0], "b": [1.0, 2.0, 4.0], "y": [0.5, 1.0, -1.0]}
FRAME = pd.DataFrame(COLUMNS)
TABLES = {
    "frame": FRAME,
    "frame of pandas' own types": FRAME.astype("Float64"),
    "frame of objects": FRAME.astype(object),
    "frame with a whole number that is missing": FRAME.assign(whole=pd.array([1, None, 2], dtype="Int64")),
    "series": {name: FRAME[name] for name in FRAME},
    "array of xarray": xr.DataArray(FRAME.to_numpy(), dims=("row", "name"), coords={"name": list(COLUMNS)}),
    "data set of xarray": xr.Dataset({name: ("row", column) for name, column in COLUMNS.items()}),
    "array with further coordinates": xr.DataArray(
        COLUMNS["y"], dims="row", coords={name: ("row", COLUMNS[name]) for name in "ab"}
    ),
    "tree of xarray": xr.DataTree(xr.Dataset({name: ("row", column) for name, column in COLUMNS.items()})),
}


def regression(table):
    of = table.__getitem__
    if isinstance(table, xr.DataArray):
        of = (lambda name: table.sel(name=name)) if "name" in table.dims else lambda name: getattr(table, name, table)
    design, y = (np.stack([np.asarray(of(name), np.float32) for name in names]) for names in ("ab", "y"))
    with numpyro.plate("column", 2):
        weights = numpyro.sample("weights", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(weights @ design, 1.0).to_event(1), obs=jnp.asarray(y[0]))


@pytest.mark.parametrize("kind", TABLES)
def test_columns_of_a_table_that_coincide_are_no_symmetry(kind):
    """Constants of the program, they were: the finding was of these data alone, without a word."""
    with pytest.warns(ns.SymmetryWarning, match="failed the numerical check"):
        assert not ns.find_symmetry(regression, (TABLES[kind],)).groups


def of_means(table):
    """Rows that are alike are taken together: other whole numbers are data of another length."""
    regression(table.groupby("kind").mean())


def of_data_in_order(table):
    """A model that takes no others."""
    assert table["a"].is_monotonic_increasing
    regression(table)


def of_the_first_rows(table):
    """As many as a number says, of arrays."""
    regression({name: column[: int(table["kind"][-1])] for name, column in table.items()})


@pytest.mark.parametrize("model", [of_means, of_data_in_order, of_the_first_rows])
def test_data_that_others_do_not_fit_are_moved_a_little(model):
    """Data of other lengths were a `TypeError`; where no others fit, what coincides was a symmetry."""
    data = {name: np.array(2 * column) for name, column in COLUMNS.items()} | {"kind": np.arange(6)}
    data["a"] = data["b"] = np.arange(6.0)
    with pytest.warns(ns.SymmetryWarning, match="failed the numerical check"):
        assert not ns.find_symmetry(model, (data if model is of_the_first_rows else pd.DataFrame(data),)).groups


def network(weights, table):
    return jnp.tanh(np.asarray(table["a"], np.float32)[:, None] * weights["w"]) @ weights["v"]


@pytest.mark.parametrize("kind", ["frame", "frame of pandas' own types", "data set of xarray", "tree of xarray"])
def test_numbers_that_are_missing_from_a_table_are_seen(kind):
    table = TABLES[kind].copy()
    assert not holds_nan(table)
    table["a"] = table["a"].where(table["a"] != 2.0)
    assert holds_nan((table, 1.0))


def test_numbers_missing_from_coordinates_and_branches_are_seen():
    """NaN there was taken for a function's own."""
    beside, within = xr.Dataset(coords={"place": ("row", [1.0, np.nan])}), xr.Dataset({"a": ("row", [1.0, np.nan])})
    tables = [
        beside,
        within["a"].notnull().assign_coords(beside.coords),
        xr.DataTree(children={"b": xr.DataTree(within)}),
    ]
    assert all(map(holds_nan, tables))
    assert not holds_nan([x.isel(row=[0]) for x in tables[:2]] + [pd.DataFrame({"coords": [1.0], "subtree": [2.0]})])


def test_numbers_that_are_missing_from_a_table_are_told():
    """Its parameters were blamed."""
    weights = {"w": np.ones(3, np.float32), "v": np.ones(3, np.float32)}
    with pytest.raises(ns.SymmetryError, match="its arguments hold NaN"):
        ns.find_symmetry(network, (weights, FRAME.replace(2.0, np.nan)), argnum=0)


def test_activations_on_a_table_say_what_to_pass():
    weights, units = {"w": np.ones(3, np.float32), "v": np.ones(3, np.float32)}, {"w": ("unit",), "v": ("unit",)}
    with pytest.raises(ns.SymmetryError, match="arrays among its arguments, in no table"):
        ns.find_activations(network, (weights, FRAME), ns.Symmetry(units))


@pytest.mark.parametrize("draw", [apart, redrawn])
def test_a_table_drawn_afresh_keeps_names_types_and_labels(draw):
    """Of numbers that are missing, of types of pandas' own, too; categories, texts and dates stay as they are."""
    frame = FRAME.assign(
        whole=pd.array([1, 2, 3], dtype="Int64"),
        missing=pd.array([1.0, None, 2.0], dtype="Float64"),
        none=pd.array([1, None, 2], dtype="Int64"),
        untrue=pd.array([True, None, False], dtype="boolean"),
        thing=pd.Series([1, None, 2.5], dtype=object),
        label=pd.Categorical([1, 2, 1]),
        text=list("xyz"),
        date=pd.date_range("2020", periods=3),
    ).set_axis([5, 6, 7])
    frame = pd.concat([frame, frame[["a"]]], axis=1)
    before = frame.copy()
    new = draw(frame, np.random.default_rng(0))
    pd.testing.assert_frame_equal(frame, before)
    assert new.dtypes.tolist() == frame.dtypes.tolist()
    assert new.columns.equals(frame.columns)
    assert new.index.equals(frame.index)
    pd.testing.assert_frame_equal(new[["label", "text", "date"]], frame[["label", "text", "date"]])
    assert (new["b"] != frame["b"]).all()
    pd.testing.assert_frame_equal(new.isna(), frame.isna())
    assert not np.array_equal(new.iloc[:, 0], new.iloc[:, -1])
    variables = {"x": ("row", [1.0, 2.0], {"unit": "m"}), "label": ("row", ["p", "q"])}
    data = xr.Dataset(variables, {"row": [3, 4], "place": ("row", [5.0, 6.0], {"unit": "s"})})
    moved = draw(xr.DataTree(data), np.random.default_rng(0)).to_dataset()
    for name, unit in {"x": "m", "place": "s"}.items():
        assert (moved[name] != data[name]).all()
        assert moved[name].attrs == {"unit": unit}
    xr.testing.assert_identical(moved.drop_vars(["x", "place"]), data.drop_vars(["x", "place"]))
    assert set(moved.coords) == set(data.coords)
