"""Relabelled draws written to zarr by regions: complete ones are skipped, and half a store is not taken for whole."""

import warnings

import numpy as np
import pytest
import xarray as xr

from numpyro_symmetry import SymmetryError, rebase
from numpyro_symmetry.containers import regions
from tests.support.stored import dataset
from tests.support.traces import MIXTURE, mixture

DRAWS = 40
pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")


@pytest.fixture
def out(monkeypatch):
    # regions of two chunks of five draws in either chain
    monkeypatch.setattr(regions, "CHUNK", 50)
    monkeypatch.setattr(regions, "_CHUNKS_IN_A_REGION", 4)
    data = dataset(mixture(2, DRAWS)[0], library="numpyro").assign(known=("datum", np.arange(3.0)))
    return rebase(data.assign_coords(draw=np.arange(DRAWS)).chunk(chain=2, draw=7), MIXTURE, null=False, num_starts=1)


def written(path, group=None):
    return xr.open_zarr(path, group=group).drop_vars("is_complete").drop_attrs(deep=False).compute()


def assert_written(path, data, group=None):
    xr.testing.assert_identical(written(path, group), data.compute().drop_attrs(deep=False))


def test_what_is_written_is_what_was_relabelled(out, tmp_path, capsys):
    path = tmp_path / "out.zarr"
    out.to_zarr(path)
    assert "writing: 100%" in capsys.readouterr().err
    assert_written(path, out.data)
    stored = xr.open_zarr(path)
    assert stored["is_complete"].values.tolist() == [True] * 4
    assert stored.attrs["library"] == "numpyro"
    # what was written is a trace like any other
    again = rebase(stored, MIXTURE, reference=out, null=False)
    assert (np.asarray(again.elements["component"]) == np.arange(3)).all()
    xr.testing.assert_identical(out.undo(stored)["loc"].compute(), out.undo(out.data)["loc"].compute())


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_was_cut_short_is_refused_and_taken_up(out, tmp_path, monkeypatch, error):
    path, write, regions_written = tmp_path / "out.zarr", xr.Dataset.to_zarr, []

    def failing(self, *args, **options):
        if "draw" in (options.get("region") or {}):
            regions_written.append(options["region"]["draw"].start)
            if len(regions_written) == 3:
                # half of the region is there
                half = {"draw": slice(20, 25)}
                write(self.isel(draw=slice(0, 5)), *args, **{**options, "region": half})
                raise error
        return write(self, *args, **options)

    monkeypatch.setattr(xr.Dataset, "to_zarr", failing)
    with pytest.raises(type(error)):
        out.to_zarr(path, progress_bar=False)
    with pytest.raises(SymmetryError, match="not written to its end: 2 of its 4 regions are complete"):
        rebase(xr.open_zarr(path), MIXTURE, null=False)
    out.to_zarr(path, progress_bar=False)
    assert regions_written == [0, 10, 20, 20, 30]
    assert_written(path, out.data)
    out.to_zarr(path, progress_bar=False)
    assert len(regions_written) == 5


def test_a_store_that_was_hardly_begun_is_taken_up(out, tmp_path, monkeypatch):
    path, write = tmp_path / "out.zarr", xr.Dataset.to_zarr

    def failing(self, *args, **options):
        write(self[["loc"]], *args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(xr.Dataset, "to_zarr", failing)
        with pytest.raises(KeyboardInterrupt):
            out.to_zarr(path, progress_bar=False)
    out.to_zarr(path, progress_bar=False)
    assert_written(path, out.data)


def test_other_draws_are_not_mixed_in(out, tmp_path):
    path = tmp_path / "out.zarr"
    out.to_zarr(path, progress_bar=False)
    others = rebase(out.data, MIXTURE, reference="first", null=False)
    with pytest.raises(SymmetryError, match="no beginning of these draws"):
        others.to_zarr(path)
    out.data.drop_encoding().to_zarr(tmp_path / "foreign.zarr")
    with pytest.raises(SymmetryError, match="no beginning of these draws"):
        out.to_zarr(tmp_path / "foreign.zarr")
    # the same draws under the same labels, of which another site moves along
    raw = out.undo(out.data).assign(beside=(out.data["loc"].dims, np.asarray(out.data["loc"])))
    still, moved = (rebase(raw, MIXTURE, null=False, axes={"beside": axes}) for axes in ((), ("component",)))
    still.to_zarr(tmp_path / "beside.zarr", progress_bar=False)
    with pytest.raises(SymmetryError, match="relabelled otherwise"):
        moved.to_zarr(tmp_path / "beside.zarr", progress_bar=False)
    # and of a symmetry that names fewer sites
    fewer = out._replace(symmetry=out.symmetry.restrict(sites=["loc"]))
    with pytest.raises(SymmetryError, match="relabelled otherwise"):
        fewer.to_zarr(path, progress_bar=False)
    with pytest.raises(TypeError, match="named dimensions.*got dict"):
        rebase({"loc": np.ones((5, 2))}, MIXTURE.restrict(sites=["loc"]), null=False).to_zarr(path)
    with pytest.raises(TypeError, match="progress_bar"):
        out.to_zarr(path, progress_bar=1)


@pytest.mark.parametrize("consolidated", [True, False])
def test_groups_of_a_tree(out, tmp_path, consolidated):
    raw = out.undo(out.data)
    tree = xr.DataTree.from_dict(
        {
            "posterior": raw.chunk(draw=10),
            "sample_stats": xr.Dataset({"lp": (("chain", "draw"), np.zeros((2, DRAWS)))}),
            "observed_data": xr.Dataset({"y": ("n", np.arange(4.0))}),
        }
    )
    tree.to_zarr(tmp_path / "raw.zarr", consolidated=consolidated)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        stored = xr.open_datatree(tmp_path / "raw.zarr", engine="zarr", chunks={})
    found = rebase(stored, MIXTURE, null=False, num_starts=1)
    assert isinstance(found.data, xr.DataTree)
    assert all(found.data["posterior"][site].chunks for site in MIXTURE.axes)
    path = tmp_path / "out.zarr"
    found.to_zarr(path, progress_bar=False)
    assert_written(path, found.data["posterior"].to_dataset(), "posterior")
    whole = xr.open_datatree(path, engine="zarr")
    xr.testing.assert_equal(whole["observed_data"].to_dataset(), tree["observed_data"].to_dataset())
    assert whole["sample_stats"]["is_complete"].all()
    assert rebase(whole, MIXTURE, null=False, num_starts=1).data["posterior"]["loc"].shape == (2, DRAWS, 3)


def test_inference_data_stays_what_it_is(out, tmp_path):
    arviz = pytest.importorskip("arviz")
    if "InferenceData" not in vars(arviz):
        pytest.skip("later versions of ArviZ have trees")
    with pytest.raises(SymmetryError, match=r"groups \['prior'\]; expected one named 'posterior'"):
        rebase(arviz.InferenceData(prior=out.undo(out.data)), MIXTURE)
    given = arviz.InferenceData(
        posterior=out.undo(out.data),
        observed_data=xr.Dataset({"y": ("n", np.arange(4.0))}),
        warn_on_custom_groups=False,
    )
    found = rebase(given, MIXTURE, null=False, num_starts=1)
    assert type(found.data) is type(given)
    assert all(found.data.posterior[site].chunks for site in MIXTURE.axes)
    found.to_zarr(tmp_path / "out.zarr", progress_bar=False)
    assert_written(tmp_path / "out.zarr", found.data.posterior, "posterior")
    xr.testing.assert_identical(
        xr.open_zarr(tmp_path / "out.zarr", group="observed_data").compute(), given.observed_data
    )
