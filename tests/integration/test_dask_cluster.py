"""Stored draws on clusters of two workers: the same numbers as in memory, and a worker that dies is survived."""

import os
import signal

import dask.array as da
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr

distributed = pytest.importorskip("distributed")

from numpyro_symmetry import compare, log_evidence, rebase, report  # noqa: E402
from tests.support.stored import assert_same, dataset  # noqa: E402
from tests.support.traces import MIXTURE, mixture  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:Port .* is already in use"),
    pytest.mark.filterwarnings("ignore:Sending large graph"),
]


def deadly(block, path=""):
    """A chunk whose first reader dies of it."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return block
    os.kill(os.getpid(), signal.SIGKILL)


def cluster(**options):
    # any port: on Dask's own, which another run on this machine may hold, it leaves a socket open
    return distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", **options)


@pytest.fixture(scope="module")
def processes():
    with cluster() as workers:
        yield workers


def test_threads_of_two_workers():
    data = dataset(mixture(2, 30)[0])
    eager = rebase(data, MIXTURE, num_starts=2)
    with cluster(processes=False) as workers, distributed.Client(workers):
        stored = data.chunk(chain=1, draw=16)
        lazy = rebase(stored, MIXTURE, num_starts=2)
        assert_same(lazy, eager)
        assert repr(report(stored, lazy).rows) == repr(report(data, eager).rows)
        # draws that the workers hold
        held = stored.persist()
        assert_same(rebase(held, MIXTURE, null=False, num_starts=2), eager._replace(null=None))


def test_processes_compare_and_read_for_an_evidence(tmp_path, processes):
    a, b = (dataset(mixture(2, 40, seed=seed)[0]) for seed in (0, 1))
    a.drop_encoding().chunk(chain=1, draw=21).to_zarr(tmp_path / "a.zarr", consolidated=False, zarr_format=2)
    stored = xr.open_zarr(tmp_path / "a.zarr", consolidated=False)
    options = {"independent": ("a", "b")}

    def model():
        scale = numpyro.sample("scale", dist.LogNormal(jnp.zeros(3), 0.5).to_event(1))
        numpyro.sample("loc", dist.Normal(6.0, 9.0 * scale).to_event(1))

    def evidence(draws):
        sites = ["loc", "scale"]
        return log_evidence(draws[sites], model, symmetry=MIXTURE.restrict(sites=sites), method="laplace")

    with distributed.Client(processes):
        lazy, found = compare(stored, b, MIXTURE, **options), evidence(stored)
    eager = compare(a, b, MIXTURE, **options)
    assert repr(lazy) == repr(eager)
    xr.testing.assert_identical(lazy.contributions, eager.contributions)
    assert repr(found) == repr(evidence(a))


def test_processes_one_of_which_dies(tmp_path, processes):
    data = dataset(mixture(2, 30)[0])
    eager = rebase(data, MIXTURE, null=False)
    chunked = data.chunk(chain=1, draw=15)
    fatal = chunked["loc"].data.map_blocks(deadly, path=str(tmp_path / "died"), dtype=float, meta=np.empty((0, 0, 0)))
    with distributed.Client(processes):
        before = {worker.pid for worker in processes.workers.values()}
        lazy = rebase(chunked.assign(loc=(chunked["loc"].dims, fatal)), MIXTURE, null=False)
        assert (tmp_path / "died").exists()
        assert {worker.pid for worker in processes.workers.values()} != before
        assert_same(lazy, eager)


def test_an_array_made_on_dask_needs_no_store():
    data = xr.Dataset(
        {"loc": (("chain", "draw", "k"), da.random.RandomState(0).normal(size=(2, 20, 2), chunks=(1, 7, 2)))}
    )
    out = rebase(data, MIXTURE.restrict(sites=["loc"]), null=False)
    assert_same(out, rebase(data.compute(), MIXTURE.restrict(sites=["loc"]), null=False))
