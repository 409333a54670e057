"""rebase, undo and report of draws that Dask reads: the same numbers as in memory, however they are cut into chunks."""

import dataclasses

import dask
import dask.array as da
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr

from numpyro_symmetry import (
    AllocationCost,
    Complement,
    EuclideanCost,
    GaussianCost,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    rebase,
    report,
)
from numpyro_symmetry.assignment.family import squares
from numpyro_symmetry.containers import read
from tests.support.stored import CHUNKS, assert_same, dataset
from tests.support.traces import HMM, MIXTURE, TANH, hmm, mixture, tanh_units

CHAINS, DRAWS = 2, 30


def _about(symmetry, shapes, dtype=np.float64):
    """Draws about a truth, under labels of each draw's own."""
    rng = np.random.default_rng(0)
    import jax

    truth = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    draws = {s: (v + 0.1 * rng.normal(size=(CHAINS, DRAWS, *v.shape))).astype(dtype) for s, v in truth.items()}
    bound = symmetry.bind(truth)
    moved = bound.apply(bound.sample(jax.random.key(0), (CHAINS, DRAWS)), draws)
    return {site: np.asarray(x) for site, x in moved.items()}


def _case(symmetry, shapes, dtype=np.float64):
    return lambda: (symmetry, _about(symmetry, shapes, dtype))


def _weight():
    symmetry = Symmetry({"p": (Complement("k"),), "loc": ("k",)})
    rng = np.random.default_rng(0)
    loc = np.array([-2.0, 2.0]) + 0.3 * rng.normal(size=(CHAINS, DRAWS, 2))
    p, switched = rng.uniform(0.1, 0.4, (CHAINS, DRAWS)), rng.random((CHAINS, DRAWS)) < 0.5
    return symmetry, {"p": np.where(switched, 1 - p, p), "loc": np.where(switched[..., None], loc[..., ::-1], loc)}


CASES = {
    "mixture": lambda: (MIXTURE, mixture(CHAINS, DRAWS)[0]),
    "single precision": lambda: (MIXTURE, mixture(CHAINS, DRAWS, dtype=np.float32)[0]),
    "signed": lambda: (TANH, {s: x.reshape(CHAINS, DRAWS, *x.shape[1:]) for s, x in tanh_units(60)[0].items()}),
    "on two axes": lambda: (HMM, hmm(CHAINS, DRAWS)[0]),
    "orbits": _case(Symmetry({"w": (None, "u")}, orbits={"u": (0, 1, 0, 1, 1)}), {"w": (2, 5)}),
    "fibred": _case(Symmetry({"w": ("head", None, "head/unit")}, {"head": "fixed"}), {"w": (2, 2, 3)}),
    "blocks": _case(Symmetry({"w": ("head", None, "head/unit")}), {"w": (2, 2, 3)}),
    "two layers": _case(
        Symmetry({"a": (None, "h"), "b": ("h", "k"), "c": ("k", None)}),
        {"a": (3, 4), "b": (4, 3), "c": (3, 2)},
        np.float32,
    ),
    "family of sites": _case(
        Symmetry({("m0", "m1", "m2"): ("k",), "w": ("k",)}), {"m0": (), "m1": (), "m2": (), "w": (3,)}
    ),
    "part and rest": _weight,
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    # several blocks to a window, several windows to a pass, of so few draws
    monkeypatch.setattr("numpyro_symmetry.chunks.CHUNK", 500)
    monkeypatch.setattr("numpyro_symmetry.assignment.passes._BLOCKS_IN_A_WINDOW", 2)


@pytest.mark.parametrize("case", CASES)
def test_what_is_stored_is_relabelled_as_in_memory(case):
    symmetry, values = CASES[case]()
    data = dataset(values)
    stored = CHUNKS["others for every site"](data)
    eager = rebase(data, symmetry, null=False)
    lazy = rebase(stored, symmetry, null=False)
    assert all(x.chunks for x in lazy.data.values())
    assert_same(lazy, eager)
    back = lazy.undo(lazy.data)
    assert all(x.chunks for x in back.values())
    # 1 - (1 - p) is p but for rounding
    compare = xr.testing.assert_allclose if case == "part and rest" else xr.testing.assert_identical
    compare(back.compute(), data)


@pytest.mark.parametrize("chunks", CHUNKS)
def test_chunks_do_not_matter(chunks):
    values = mixture(CHAINS, DRAWS, separation=2.0)[0]
    data = dataset(values)
    with dask.config.set(scheduler="synchronous"):
        lazy = rebase(CHUNKS[chunks](data), MIXTURE, order_by="loc")
    eager = rebase(data, MIXTURE, order_by="loc")
    assert_same(lazy, eager)
    found = report(CHUNKS[chunks](data), lazy)
    assert repr(found.rows) == repr(report(data, eager).rows)
    assert str(report(lazy)) == str(found)


def test_whatever_the_order_of_memory_and_of_dimensions():
    values = mixture(CHAINS, DRAWS)[0]
    data = dataset(values).transpose("loc_0", "draw", ...)
    eager = rebase(data, MIXTURE, null=False)
    assert_same(rebase(data.chunk(draw=4), MIXTURE, null=False), eager)
    straight = rebase(dataset(values), MIXTURE, null=False)
    np.testing.assert_array_equal(straight.objective, eager.objective)


def _own(source, symmetry, read=None):
    # a cost of one's own, which knows nothing of Dask
    axes = {("loc", "first"): symmetry.opened("loc")}
    statistics = lambda items: {("loc", "first"): source.loc["loc"][items]}  # noqa: E731
    return squares(statistics, axes, source.num_draws, dict.fromkeys(axes, 0.5), {})


@dataclasses.dataclass(frozen=True)
class Own:
    family = staticmethod(_own)


@pytest.mark.parametrize(
    ("cost", "reference"),
    [
        (GaussianCost(), "medoid"),
        (EuclideanCost(), "first"),
        (EuclideanCost(standardize=False), (1, 3)),
        (Own(), "mean"),
        (None, "first"),
    ],
)
def test_costs_and_references(cost, reference):
    values, labels = mixture(CHAINS, DRAWS)
    cost = cost or AllocationCost(np.argsort(labels, -1))
    data = dataset({"loc": values["loc"]})
    symmetry = Symmetry.mixture("loc")
    options = {"cost": cost, "reference": reference, "null": False}
    eager, lazy = (rebase(d, symmetry, **options) for d in (data, data.chunk(draw=8)))
    assert_same(lazy, eager)
    if not isinstance(cost, Own | AllocationCost):
        assert_same(*(rebase(d, symmetry, reference=eager, null=False) for d in (data.chunk(draw=8), data)))
        assert lazy.score(data.chunk(draw=8), EuclideanCost()) == eager.score(data, EuclideanCost())


def test_a_cost_that_looks_at_other_draws_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Greedy:
        def family(self, source, symmetry, read=None):
            family = _own(source, symmetry)
            return family._replace(statistics=lambda items: {("loc", "first"): source.loc["loc"][:][items]})

    data = dataset({"loc": mixture(CHAINS, DRAWS)[0]["loc"]}).chunk(draw=5)
    with pytest.raises(SymmetryError, match="a cost may look at those alone"):
        rebase(data, Symmetry.mixture("loc"), cost=Greedy(), null=False)


def test_labels_and_further_sites_move_lazily():
    values, labels = mixture(CHAINS, DRAWS)
    data = dataset({**values, "z": labels, "size": values["loc"] ** 2, "y": np.ones((CHAINS, DRAWS, 5))})
    options = {"labels": {"z": "component"}, "axes": {"size": ("component",)}, "null": False}
    eager, lazy = (rebase(d, MIXTURE, **options) for d in (data, data.chunk(chain=2, draw=7)))
    assert_same(lazy, eager)
    xr.testing.assert_identical(lazy.undo(lazy.data).compute(), data)
    with pytest.raises(SymmetryError, match="'z' holds labels of group 'component'; expected integers from 0 to 2"):
        rebase(data.assign(z=data["z"] + 1).chunk(draw=7), MIXTURE, **options)
    with pytest.warns(SymmetryWarning, match="'z' holds integers from 0 to 2"):
        rebase(data.drop_vars("size").chunk(draw=7), MIXTURE, null=False)


def locations(y):
    with numpyro.plate("component", 3):
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0))
    numpyro.deterministic("first", loc[0])
    numpyro.deterministic("last", loc[2])
    numpyro.deterministic("twice", 2.0 * loc)
    numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)


@pytest.mark.parametrize("often", [None, [1, 0, 2]], ids=["one element in two draws", "another element besides"])
def test_no_computed_site_is_stale_in_the_few_draws_that_were_relabelled(often):
    """Draws that show what few elements do are looked at, wherever they are."""
    loc = np.array([-3.0, 0.0, 3.0]) + 0.3 * np.random.default_rng(0).normal(size=(2, 1000, 3))
    if often:
        loc[1, ::3] = loc[1, ::3][:, often]
    loc[0, 501] = loc[0, 501, [2, 1, 0]]
    sites = {"loc": loc, "first": loc[..., 0], "last": loc[..., 2], "twice": 2.0 * loc}
    dims = ["chain", "draw", "component"]
    data = xr.Dataset({site: (dims[: x.ndim], x) for site, x in sites.items()}).chunk(draw=100)
    with pytest.warns(SymmetryWarning, match="'(first|last)' is computed by the model"):
        out = rebase(data, model=locations, model_args=(0.5,), order_by="loc", null=False)
    assert set(out.carried.left_out) == {"first", "last"}
    np.testing.assert_allclose(out.data["twice"], 2.0 * out.data["loc"], rtol=1e-6)


def test_no_computed_site_is_stale_that_the_first_draw_of_an_element_does_not_show():
    def model(y):
        with numpyro.plate("component", 3):
            loc = numpyro.sample("loc", dist.Normal(0.0, 3.0))
        flag = numpyro.sample("flag", dist.Normal(0.0, 1.0))
        numpyro.deterministic("top", jnp.where(flag > 0, loc[2], -1.0))
        numpyro.sample("y", dist.Normal(loc.sum() + flag, 1.0), obs=y)

    rng = np.random.default_rng(0)
    loc, flag = np.array([-3.0, 0.0, 3.0]) + 0.3 * rng.normal(size=(2, 1000, 3)), np.ones((2, 1000))
    loc[0, 501:504], flag[0, 501] = loc[0, 501:504, ::-1], -1.0
    sites = {"loc": loc, "flag": flag, "top": np.where(flag > 0, loc[..., 2], -1.0)}
    dims = ["chain", "draw", "component"]
    data = xr.Dataset({site: (dims[: x.ndim], x) for site, x in sites.items()}).chunk(draw=100)
    with pytest.warns(SymmetryWarning, match="'top' is computed by the model"):
        assert "top" not in rebase(data, model=model, model_args=(0.5,), order_by="loc", null=False).data


def test_nothing_is_computed_before_it_is_asked_for():
    data = dataset(mixture(CHAINS, DRAWS)[0]).chunk(draw=10)
    out = rebase(data, MIXTURE, null=False)
    reads = []

    def counted(block):
        reads.append(1)
        return block

    watched = data.map(lambda x: x.copy(data=x.data.map_blocks(counted, dtype=x.dtype, meta=np.empty(()))))
    moved = out.apply(watched)
    assert not reads
    moved.isel(draw=slice(0, 10)).compute()
    assert len(reads) == 3
    assert read(data, MIXTURE).values["loc"].__class__ is np.ndarray


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.astype(object), r"'loc' holds values of type object"),
        (lambda x: da.where(da.arange(DRAWS)[:, None] == 17, np.nan, x), r"not finite in 2 of 60 draws.*\(0, 17\)"),
        (lambda x: x[..., :2], r"'loc' and 'weights'|size 2"),
    ],
)
def test_bad_draws_are_refused(change, message):
    data = dataset(mixture(CHAINS, DRAWS)[0]).chunk(draw=10)
    x = change(data["loc"].data)
    with pytest.raises(SymmetryError, match=message):
        rebase(data.drop_vars("loc").assign(loc=(("chain", "draw", "k"), x)), MIXTURE)


def test_a_chunk_that_cannot_be_read_is_named():
    def torn(block, block_info=None):
        if block_info[0]["chunk-location"] == (1, 2, 0):
            raise OSError("checksum")
        return block

    data = dataset(mixture(CHAINS, DRAWS)[0]).chunk(chain=1, draw=10)
    torn_one = data["loc"].copy(data=data["loc"].data.map_blocks(torn, dtype=float, meta=np.empty((0, 0, 0))))
    with pytest.raises(
        SymmetryError, match=r"Chunk \(1, 2, 0\) of site 'loc' \(chain 1 to 1, draw 20 to 29\) cannot be"
    ):
        rebase(data.assign(loc=torn_one), MIXTURE)
