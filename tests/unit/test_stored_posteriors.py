"""compare, modes and log_evidence of draws that Dask reads: the numbers of draws in memory, and nothing else read."""

import itertools
import tracemalloc

import dask.array as da
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr

from numpyro_symmetry import Symmetry, SymmetryError, compare, log_evidence, rebase
from numpyro_symmetry.diagnostics import compare_pairs, modes
from tests.support.stored import CHUNKS, dataset
from tests.support.traces import MIXTURE, mixture

CHAINS, DRAWS = 2, 60
BOTH = ("a", "b")


@pytest.fixture
def small(monkeypatch):
    # several blocks to a window, several windows to a pass, and one draw of two kept, of so few draws
    monkeypatch.setattr("numpyro_symmetry.chunks.CHUNK", 300)
    monkeypatch.setattr("numpyro_symmetry.assignment.passes._BLOCKS_IN_A_WINDOW", 2)
    for name in ("_MIN_DRAWS", "_MAX_DRAWS"):
        monkeypatch.setattr(f"numpyro_symmetry.diagnostics.sides.{name}", 60)


def sides():
    a, b = (dataset(mixture(CHAINS, DRAWS, seed=seed)[0]) for seed in (0, 1))
    return a.assign(size=a["loc"].sum("loc_0")), b.assign(size=b["loc"].sum("loc_0") + 1.0)


def watched(data, seen):
    """Draws whose chunks are counted, by site, as they are read."""

    def of(site):
        def read(block):
            seen[site] = seen.get(site, 0) + 1
            return block

        x = data[site]
        return x.copy(data=x.data.map_blocks(read, meta=np.empty((0,) * x.ndim)))

    return data.assign({site: of(site) for site in data})


def torn(data, site, where):
    """A site of which a chunk cannot be read."""

    def read(block, block_info=None):
        if block_info[0]["chunk-location"][:2] == where:
            raise OSError("checksum")
        return block

    x = data[site]
    return data.assign({site: x.copy(data=x.data.map_blocks(read, dtype=float, meta=np.empty((0,) * x.ndim)))})


# ---- compare and modes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", CHUNKS)
def test_two_posteriors_differ_by_the_same(chunks, small):
    a, b = sides()
    eager = compare(a, b, MIXTURE, independent=BOTH)
    for stored in ((CHUNKS[chunks](a), CHUNKS[chunks](b)), (a.transpose("draw", ...), CHUNKS[chunks](b))):
        lazy = compare(*stored, MIXTURE, independent=BOTH)
        assert repr(lazy) == repr(eager)
        assert lazy._replace(contributions=None) == eager._replace(contributions=None)
        xr.testing.assert_identical(lazy.contributions, eager.contributions)
    assert np.isfinite(eager.p_value)
    # every other draw alone was looked at, and the size stands beside the labels
    assert {"size", "loc"} < set(eager.contributions)


def test_relabelled_draws_and_modes(small):
    a, b = (side.drop_vars("size") for side in sides())
    stored = a.chunk(draw=13)
    found = [compare(rebase(x, MIXTURE, null=False), b, MIXTURE, independent=BOTH) for x in (a, stored)]
    assert repr(found[0]) == repr(found[1])
    assert repr(modes(a, MIXTURE)) == repr(modes(stored, MIXTURE))


def test_every_chunk_is_read_once_and_no_other_site(small):
    posteriors = {"a": sides()[0], "b": sides()[1], "c": sides()[0]}
    seen = {}
    stored = {name: watched(data.chunk(chain=1, draw=20), seen) for name, data in posteriors.items()}
    options = {"sites": (), "independent": tuple(posteriors), "progress_bar": False}
    eager, lazy = (compare_pairs(some, MIXTURE, **options) for some in (posteriors, stored))
    assert repr(lazy) == repr(eager)
    # two chains of three chunks, of three posteriors
    assert seen == dict.fromkeys(("weights", "loc", "scale"), 18)
    seen.clear()
    compare(stored["a"], stored["b"], MIXTURE, independent=BOTH)
    # its first number says that it holds no labels
    assert seen["size"] == 12 + 2


def test_memory_is_that_of_the_draws_that_are_kept(monkeypatch):
    for name in ("_MIN_DRAWS", "_MAX_DRAWS"):
        monkeypatch.setattr(f"numpyro_symmetry.diagnostics.sides.{name}", 100)
    monkeypatch.setattr("numpyro_symmetry.chunks.CHUNK", 20_000)
    # 32 MB, of which 0.8 are kept
    loc = da.random.default_rng(0).normal(size=(2, 2000, 2, 500), chunks=(1, 100, 2, 500))
    side = xr.Dataset({"loc": (("chain", "draw", "k", "entry"), loc)})
    symmetry, half = Symmetry({"loc": ("k", None)}), side.isel(draw=slice(0, 1000))
    compare(half.isel(draw=slice(0, 200)), half, symmetry, independent=BOTH, num_exchanges=19)
    peaks = []
    for data in (half, side):
        tracemalloc.start()
        compare(data, data, symmetry, independent=BOTH, num_exchanges=19)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("chunk", [None, 7])
def test_bad_draws_are_refused_wherever_they_are(chunk, small):
    a, b = sides()
    a = a.assign(loc=a["loc"].where((a.chain != 1) | (a.draw != 17)))
    a = a if chunk is None else a.chunk(draw=chunk)
    # that draw is none of those that are kept
    with pytest.raises(
        SymmetryError, match=r"^Posterior 'a': Site 'loc' is not finite in 1 of 120 draws, .* \(1, 17\)"
    ):
        compare(a, b, MIXTURE)


def test_a_chunk_that_cannot_be_read_is_named_for_compare():
    a, b = sides()
    with pytest.raises(SymmetryError, match=r"'b': Chunk \(1, 2, 0\) of site 'loc' \(chain 1 to 1, draw 40 to 59\)"):
        compare(a, torn(b.chunk(chain=1, draw=20), "loc", (1, 2)), MIXTURE)


# ---- log_evidence ------------------------------------------------------------------------------------------------


DATA = np.array([-2.0, -1.5, 2.0, 2.5, 1.0])


def weighted(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, 1.0)), obs=y)


def family(y):
    loc = jnp.stack([numpyro.sample(f"loc_{k}", dist.Normal(0.0, 3.0)) for k in range(2)])
    scale = jnp.stack([numpyro.sample(f"scale_{k}", dist.LogNormal(0.0, 0.3)) for k in range(2)])
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), dist.Normal(loc, scale)), obs=y)


def _simplex():
    rng = np.random.default_rng(0)
    loc = np.array([-1.7, 1.8]) + 0.7 * rng.standard_normal((CHAINS, DRAWS, 2))
    # as text keeps it
    weights = rng.dirichlet([3.0, 4.0], (CHAINS, DRAWS)).round(4)
    weights[..., 0] += 1e-4
    order = rng.permuted(np.broadcast_to([0, 1], loc.shape), axis=-1)
    return {"weights": np.take_along_axis(weights, order, -1), "loc": np.take_along_axis(loc, order, -1)}


def _family():
    drawn = _simplex()
    scales = np.random.default_rng(1).lognormal(0.0, 0.2, (CHAINS, DRAWS, 2))
    return {f"{name}_{k}": x[..., k] for name, x in (("loc", drawn["loc"]), ("scale", scales)) for k in range(2)}


EVIDENCE = {
    "bridge": (weighted, _simplex, "bridge", Symmetry.mixture("weights", "loc")),
    "importance": (weighted, _simplex, "importance", Symmetry.mixture("weights", "loc")),
    "laplace": (weighted, _simplex, "laplace", Symmetry.mixture("weights", "loc")),
    "family of sites": (
        family,
        _family,
        "bridge",
        Symmetry({("loc_0", "loc_1"): ("k",), ("scale_0", "scale_1"): ("k",)}),
    ),
    "no symmetry": (weighted, _simplex, "bridge", Symmetry({})),
}


@pytest.mark.parametrize(("case", "chunks"), list(zip(EVIDENCE, itertools.cycle(CHUNKS), strict=False)))
def test_the_evidence_of_stored_draws_is_that_of_the_same_in_memory(case, chunks, small):
    model, draws, method, symmetry = EVIDENCE[case]
    data = dataset(draws())
    options = {"symmetry": symmetry, "method": method, "num_draws": 70}
    eager, lazy = (log_evidence(x, model, (DATA,), **options) for x in (data, CHUNKS[chunks](data)))
    # of what is not a number too
    assert tuple(map(repr, lazy)) == tuple(map(repr, eager))


def test_blocks_make_one_gaussian_and_one_set_of_weights(monkeypatch):
    data = dataset(_simplex())
    options = {"symmetry": Symmetry.mixture("weights", "loc"), "num_draws": 32}
    whole = log_evidence(data, weighted, (DATA,), **options)
    # the proposal's draws still fit a block, or others would be drawn
    monkeypatch.setattr("numpyro_symmetry.chunks.CHUNK", 4 * 32)
    cut = log_evidence(data, weighted, (DATA,), **options)
    for one, other in zip(whole[:9], cut[:9], strict=True):
        assert other == pytest.approx(one, rel=1e-4)


def test_bad_stored_draws_are_refused_with_the_words_of_those_in_memory():
    data = dataset(_simplex()).chunk(chain=1, draw=20)
    bad = data.assign(loc=data["loc"].where((data.chain != 1) | (data.draw != 17)))
    with pytest.raises(SymmetryError, match=r"^Site 'loc' is not finite in 1 of 120 draws, first in draw \(1, 17\)"):
        log_evidence(bad, weighted, (DATA,))
    off = data.assign(weights=data["weights"] * xr.where(data.draw < 3, 0.9, 1.0))
    with pytest.raises(SymmetryError, match=r"'weights': 6 of 120 draws lie off its support"):
        log_evidence(off, weighted, (DATA,))
    with pytest.raises(SymmetryError, match=r"Chunk \(1, 2, 0\) of site 'loc' \(chain 1 to 1, draw 40 to 59\)"):
        log_evidence(torn(data, "loc", (1, 2)), weighted, (DATA,))
