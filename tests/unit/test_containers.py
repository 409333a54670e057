"""Containers: a stranger's kind, written here, goes in and comes out, and lends its model; kinds do not overlap."""

from typing import NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr

from numpyro_symmetry import Symmetry, SymmetryError, log_evidence, rebase, report
from numpyro_symmetry.containers import Container, Trace, kinds, model_of, read
from numpyro_symmetry.models import Model

SYMMETRY = Symmetry.mixture("loc")


def normal(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)


class Frame:
    """Draws as columns of one table, as other programs keep them, with the model that they are of."""

    def __init__(self, columns, model=None):
        self.columns, self.model = columns, model


def read_frame(frame, *_):
    loc = np.stack(list(frame.columns.values()), -1)

    def write(new, without=()):
        return Frame(dict(zip(frame.columns, new["loc"].T, strict=True)), frame.model)

    return Trace({"loc": loc}, loc.shape[:1], write)


FRAME = Container(lambda data: isinstance(data, Frame), read_frame, lambda frame: frame.model)


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setattr(kinds, "CONTAINERS", (*kinds.CONTAINERS, FRAME))


def test_a_strangers_container_comes_out_as_it_went_in():
    rng = np.random.default_rng(0)
    draws = rng.permuted(np.array([-3.0, 0.0, 3.0]) + 0.1 * rng.standard_normal((400, 3)), axis=1)
    frame = Frame({f"loc_{k}": draws[:, k] for k in range(3)})
    out = rebase(frame, SYMMETRY, order_by="loc")
    assert isinstance(out.data, Frame)
    assert [round(float(column.mean())) for column in out.data.columns.values()] == [-3, 0, 3]
    undone = out.undo(out.data)
    assert all((undone.columns[name] == column).all() for name, column in frame.columns.items())
    assert "loc" in str(report(out))


def test_what_a_container_knows_of_its_model_is_lent():
    loc = np.random.default_rng(0).standard_normal((400, 3))
    frame = Frame({f"loc_{k}": loc[:, k] for k in range(3)}, Model(normal, (0.5,), {}))
    assert read(frame, SYMMETRY).model == model_of(frame) == frame.model
    assert log_evidence(frame, num_draws=50) == log_evidence({"loc": loc}, normal, (0.5,), num_draws=50)


class State(NamedTuple):
    position: dict


def test_every_container_is_of_one_kind_and_others_of_none():
    plain = {"loc": np.zeros((4, 3))}
    dataset = xr.Dataset({"loc": (("chain", "draw", "k"), np.zeros((2, 4, 3)))})
    for data, expected in ((plain, kinds.MAPPING), ([plain, plain], kinds.MEMBERS), (dataset, kinds.DATASET)):
        assert next(kind for kind in kinds.CONTAINERS if kind.recognises(data)) is expected
        assert model_of(data) is None
    assert next(kind for kind in kinds.CONTAINERS if kind.recognises(State(plain))) is kinds.TREE
    with pytest.raises(SymmetryError, match="states.position"):
        read(State(plain), SYMMETRY)
    assert not any(kind.recognises(object()) for kind in kinds.CONTAINERS)


def test_keys_of_a_flat_tree_may_be_numbers():
    loc = np.random.default_rng(0).normal([-4.0, 0.0, 4.0], 0.3, (2, 30, 3))
    symmetry = Symmetry({"0": ("component",), "1": ("component",)})
    out = rebase({0: loc[..., ::-1], 1: loc}, symmetry, null=False)
    assert out.data.keys() == {0, 1}
    by_name = rebase({"0": loc[..., ::-1], "1": loc}, symmetry, null=False)
    np.testing.assert_array_equal(out.data[1], by_name.data["1"])


def test_named_arrays_of_several_runs_are_read_where_all_leading_dimensions_are_counted():
    values = np.arange(3.0) + np.random.default_rng(0).normal(scale=0.1, size=(2, 2, 20, 3))
    named = {"loc": xr.DataArray(values, dims=("run", "chain", "draw", "component"))}
    out = rebase(named, Symmetry({"loc": ("component",)}), num_leading_dims=3)
    np.testing.assert_allclose(np.sort(out.data["loc"], -1), np.sort(values, -1), rtol=1e-6)


@pytest.mark.parametrize("num_leading_dims", [None, 2])
def test_a_dimension_of_a_variables_own_may_be_called_sample(num_leading_dims):
    values = np.arange(3.0)[:, None] + np.random.default_rng(0).normal(scale=0.1, size=(2, 20, 3, 4))
    named = {"loc": xr.DataArray(values, dims=("chain", "draw", "component", "sample"))}
    symmetry = Symmetry({"loc": ("component", None)})
    out = rebase(named, symmetry, null=False, num_leading_dims=num_leading_dims)
    by_name = rebase(xr.Dataset(named), symmetry, null=False)
    np.testing.assert_array_equal(out.data["loc"], by_name.data["loc"].values)
