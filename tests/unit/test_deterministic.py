"""What follows from relabelled sites: moved with them, computed again, or left out with a word; never stale."""

import contextlib
import functools
import pickle
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.special
import xarray as xr
from numpyro import handlers
from numpyro.infer import HMC, MCMC
from numpyro.infer.reparam import LocScaleReparam

from numpyro_symmetry import EuclideanCost, Symmetry, SymmetryError, SymmetryWarning, rebase
from numpyro_symmetry.models import Model
from numpyro_symmetry.symmetry import Finding, Hard
from numpyro_symmetry.traces.carrying import still_of
from numpyro_symmetry.traces.deterministic import NOTHING, Labelled, _others, carry, compute, of_every_element, roles_of
from tests.support import traces
from tests.unit.test_rebase import container, dataset, with_group

Y = jnp.array([-1.0, 2.0, 0.5])
COMPUTED = ("precision", "gaps", "total", "first", "likely", "positive")


def mixture(y, shift=0.0):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    loc = numpyro.sample("loc", dist.Normal(0, 10).expand([3]).to_event(1))
    scale = numpyro.sample("scale", dist.LogNormal(0, 1).expand([3]).to_event(1))
    numpyro.deterministic("precision", scale**-2 + shift)
    numpyro.deterministic("gaps", loc[:, None] - 2 * loc)
    numpyro.deterministic("total", loc.sum() + 1e3)
    numpyro.deterministic("first", loc[0])
    numpyro.deterministic("likely", jnp.argmax(weights))
    numpyro.deterministic("positive", loc > 0)
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, scale)), obs=y)


def computed(values):
    """The deterministic sites written out."""
    loc = values["loc"]
    return {
        "precision": values["scale"] ** -2,
        "gaps": loc[..., :, None] - 2 * loc[..., None, :],
        "total": loc.sum(-1) + loc.dtype.type(1e3),
        "first": loc[..., 0],
        "likely": values["weights"].argmax(-1),
        "positive": loc > 0,
    }


def draws(dtype=np.float32, **options):
    values, _ = traces.mixture(dtype=dtype, **options)
    return values | computed(values)


def in_container(values):
    """Latent sites with a named dimension, computed ones as ArviZ names them."""
    named = {site: value for site, value in values.items() if site in traces.MIXTURE.axes}
    return container(named, **{site: value for site, value in values.items() if site not in named})


@pytest.mark.parametrize(("count", "expected"), [(20, {7, 8, 9, 30}), (2, {7, 30}), (1, {7, 30})])
def test_draws_that_are_looked_at_show_every_element(count, expected):
    """All that were moved; else the first of each element; else the first at which each slot was moved."""
    permutation = np.tile(np.arange(3), (40, 1))
    permutation[7:10] = [1, 0, 2]
    permutation[30] = [0, 2, 1]
    shown = of_every_element({"k": Hard(permutation)}, (40,), count)
    assert expected <= set(shown.tolist())
    moved = {7, 8, 9, 30} & set(shown.tolist())
    assert moved == expected


def test_of_many_elements_the_first_draw_that_moves_each_slot_is_shown():
    permutation = np.tile(np.arange(4), (40, 1))
    permutation[5:] = [1, 0, 2, 3]
    permutation[20:] = [1, 0, 3, 2]
    permutation[30:] = [0, 1, 3, 2]
    shown = of_every_element({"k": Hard(permutation)}, (40,), 2)
    # the first slots move in draw 5, the last ones in draw 20
    assert {5, 20} <= set(shown.tolist())


def same(a, b):
    for site in b:
        np.testing.assert_array_equal(np.asarray(a[site]), np.asarray(b[site]), err_msg=site)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_deterministic_site_is_that_of_the_relabelled_draws(dtype):
    raw = draws(dtype)
    out = rebase(raw, traces.MIXTURE, model=mixture, model_args=(Y,), null=False)
    assert (np.asarray(out.elements["component"]) != np.arange(3)).any()
    expected = computed({site: out.data[site] for site in traces.MIXTURE.axes})
    for site in COMPUTED:
        assert out.data[site].dtype == raw[site].dtype
        np.testing.assert_allclose(out.data[site], expected[site], rtol=1e-5, atol=1e-5, err_msg=site)
    # entries that move as wholes keep their bits, and so does what no label changes
    assert out.carried.axes == {
        "precision": ("component",),
        "gaps": ("component", "component"),
        "positive": ("component",),
    }
    assert set(out.carried.after) == {"first", "likely"}
    same(out.data, {"total": raw["total"]})
    g = np.asarray(out.elements["component"])
    np.testing.assert_array_equal(out.data["precision"], np.take_along_axis(raw["precision"], g, -1))
    same(out.undo(out.data), raw)
    same(out.apply(raw), out.data)
    same(pickle.loads(pickle.dumps(out)).undo(out.data), raw)


def test_a_container_carries_them_under_names_and_comes_back_whole():
    data = in_container(draws(draws=60))
    out = rebase(data, traces.MIXTURE, model=mixture, model_args=(Y,))
    posterior = dataset(out.data)
    np.testing.assert_allclose(posterior["precision"], posterior["scale"] ** -2, rtol=1e-5)
    np.testing.assert_allclose(posterior["first"], posterior["loc"][..., 0], rtol=1e-6)
    for group in ("sample_stats", "log_likelihood", "observed_data"):
        for name in data[group].data_vars:
            assert out.data[group][name].identical(data[group][name])
    assert dataset(out.undo(out.data)).identical(dataset(data))
    assert dataset(out.apply(data)).identical(posterior)


@pytest.mark.parametrize("group", ["posterior_predictive", "predictions"])
def test_of_what_was_predicted_the_model_says_whether_labels_change_it(group):
    """Of a number they do, without looks; of what has as many entries as there are labels they need not."""

    def model(y):
        loc = numpyro.sample("loc", dist.Normal(0, 10).expand([3]).to_event(1))
        numpyro.deterministic("first", loc[0])
        numpyro.deterministic("ranked", jnp.sort(loc))
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0)), obs=y)

    loc = traces.mixture(draws=60)[0]["loc"]
    data = container({"loc": loc}, first=loc[..., 0], ranked=np.sort(loc))
    data = with_group(data, group, dataset(data)[["first", "ranked"]])
    with pytest.warns(SymmetryWarning) as caught:
        rebase(data, model=model, model_args=(Y,), null=False)
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith(f"'first' in group {group!r} of the container keeps its old labels: only")


def test_values_that_the_model_did_not_compute_are_not_taken_for_those_it_did():
    out = rebase(draws(draws=40), traces.MIXTURE, model=mixture, model_args=(Y,), null=False)
    with pytest.raises(SymmetryError, match="'first' was computed by the model .* are other values"):
        out.apply({"first": np.zeros((4, 40), np.float32)})
    assert out.apply({"first": np.zeros((4, 40))}, axes={"first": ()})["first"].shape == (4, 40)


def reshaped(y):
    loc = numpyro.sample("loc", dist.Normal(0, 10).expand([3]).to_event(1))
    numpyro.deterministic("twice", jnp.concatenate([loc, loc]))
    numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)


def of_each_datum(y):
    loc = numpyro.sample("loc", dist.Normal(0, 10).expand([3]).to_event(1))
    noise = numpyro.sample("noise", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    numpyro.deterministic("fit", loc.sum() + noise + y)
    numpyro.sample("y", dist.Normal(loc.sum() + noise, 1.0).to_event(1), obs=y)


def test_computed_values_of_another_shape_are_left_out_with_a_word():
    loc = traces.mixture(draws=50)[0]["loc"]
    with pytest.warns(SymmetryWarning, match=r"'twice' .*it computes shape \(6,\), and the trace holds \(3,\)"):
        out = rebase({"loc": loc, "twice": 2 * loc}, Symmetry.mixture("loc"), model=reshaped, model_args=(0.0,))
    assert set(out.data) == {"loc"}


def test_a_model_that_does_not_run_at_the_draws_leaves_out_what_it_computes_with_its_error():
    values = {"loc": traces.mixture(draws=50)[0]["loc"], "noise": np.zeros((4, 50, 5)), "fit": np.zeros((4, 50, 5))}
    with pytest.warns(SymmetryWarning, match=r"'fit' .*the model does not run at these draws \(\w+: .+\)"):
        out = rebase(values, Symmetry.mixture("loc"), model=of_each_datum, model_args=(np.zeros(4),))
    assert set(out.data) == {"loc", "noise"}


def test_what_became_of_computed_sites_is_printed():
    out = rebase(draws(draws=40), traces.MIXTURE, model=mixture, model_args=(Y,), null=False)
    assert "  beside  moved along: gaps, positive, precision; computed again: first, likely\n" in f"{out}\n"


def drawing(y):
    loc = numpyro.sample("loc", dist.Normal(0, 10).expand([3]).to_event(1))
    z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3), infer={"enumerate": "parallel"})
    numpyro.deterministic("own", loc[z])
    numpyro.deterministic("sum", loc.sum())
    numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)


@pytest.mark.parametrize("kind", ["dict", "container", "members"])
def test_what_cannot_be_computed_again_is_left_out_with_a_word(kind):
    rng = np.random.default_rng(0)
    values = {"loc": traces.mixture(draws=50)[0]["loc"]}
    values |= {"own": values["loc"][..., 0] + rng.normal(size=(4, 50)), "sum": values["loc"].sum(-1)}
    data = {
        "dict": values,
        "container": in_container(values),
        "members": [{site: value[0, k] for site, value in values.items()} for k in range(50)],
    }[kind]
    words = r"'own' is computed by the model, but could not.*other values.* which of its axes .*={'own': ...}: \(\)\."
    with pytest.warns(SymmetryWarning, match=words):
        out = rebase(data, Symmetry.mixture("loc"), model=drawing, model_args=(0.0,))
    kept = {"dict": dict, "container": dataset, "members": lambda members: members[0]}[kind](out.data)
    assert set(kept) == {"loc", "sum"}
    again = {"dict": dict, "container": dataset, "members": lambda members: members[0]}[kind](out.apply(data))
    assert set(again) == {"loc", "sum"}
    if kind == "dict":
        with pytest.raises(SymmetryError, match="'own' could not be computed again"):
            out.apply({"own": values["own"]})


def rough(y):
    loc = numpyro.sample("loc", dist.Normal(0, 10).expand([3]).to_event(1))
    numpyro.deterministic("rows", jnp.broadcast_to(loc, (3, 3)))
    numpyro.deterministic("log_first", jnp.log(loc[0]))
    numpyro.deterministic("sum", loc.sum())
    numpyro.deterministic("last", loc[2])
    numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)


def test_sites_with_values_that_are_infinite_huge_or_not_numbers():
    loc = traces.mixture(draws=50)[0]["loc"] - 3.0
    loc[0, 0] *= 1e6
    with np.errstate(invalid="ignore"):
        log_first = np.log(loc[..., 0])
    assert np.isnan(log_first).any()
    # the one large value lends its size to no other, and nothing is close to what is infinite
    stale, infinite = loc.sum(-1) + 0.5, loc[..., 2].copy()
    infinite[1] = np.inf
    raw = {"loc": loc, "rows": np.repeat(loc[..., None, :], 3, 2), "log_first": log_first}
    raw |= {"sum": stale, "last": infinite}
    with pytest.warns(SymmetryWarning, match="computed by the model"):
        out = rebase(
            raw, Symmetry.mixture("loc"), model=rough, model_args=(0.0,), cost=EuclideanCost(), num_starts=1, null=False
        )
    assert set(out.carried.left_out) == {"sum", "last"}
    assert set(out.carried.after) == {"log_first"}
    # on as few axes as will do
    assert out.carried.axes == {"rows": (None, "component")}
    lines = repr(out.carried).splitlines()
    assert lines[:3] == ["Carried", "  rows: moved along (·, component)", "  log_first: computed again"]
    assert {tuple(line.split(":")[:2]) for line in lines[3:]} == {("  sum", " left out"), ("  last", " left out")}
    same(out.data, {"rows": np.repeat(out.data["loc"][..., None, :], 3, 2)})


def test_other_data_is_told_from_the_data_they_were_computed_with():
    with pytest.warns(SymmetryWarning, match="'precision' is computed by the model"):
        out = rebase(draws(draws=40), traces.MIXTURE, model=mixture, model_args=(Y, 0.5), null=False)
    assert "precision" not in out.data
    assert set(out.carried.left_out) == {"precision"}
    out = rebase(
        draws(draws=40),
        traces.MIXTURE,
        model=mixture,
        model_args=(Y, 0.5),
        axes={"precision": ("component",)},
        null=False,
    )
    np.testing.assert_allclose(out.data["precision"], out.data["scale"] ** -2, rtol=1e-5)


def of_long_sums(y):
    loc = numpyro.sample("loc", dist.Normal(0, 10).expand([2]).to_event(1))
    log_densities = -((y[:, None] - loc) ** 2) / 2
    numpyro.deterministic("sum", loc.sum())
    numpyro.deterministic("probability", jax.nn.softmax(jnp.cumsum(log_densities.at[0].add(-1e3), 0), -1))
    numpyro.sample("y", dist.Normal(loc.sum(), 1.0).expand(y.shape).to_event(1), obs=y)


@pytest.mark.parametrize("off", [0.0, 0.2])
def test_rounding_of_long_sums_is_told_from_other_data(off):
    rng = np.random.default_rng(0)
    y = rng.normal(size=100).astype(np.float32)
    loc = (np.array([-1, 1]) + 5e-4 * rng.normal(size=(4, 50, 2))).astype(np.float32)
    loc[0] = loc[0, :, ::-1]
    running = np.cumsum(-((y[:, None].astype(float) - loc[:, :, None]) ** 2) / 2, 2)
    probability = scipy.special.softmax(running, -1).astype(np.float32)
    y[50] += off
    raw = {"loc": loc, "probability": probability}
    words = contextlib.nullcontext() if off == 0 else pytest.warns(SymmetryWarning, match="'probability' is computed")
    options = {"order_by": "loc", "model": of_long_sums, "model_args": (y,), "null": False}
    with words:
        out = rebase(raw, Symmetry.mixture("loc"), **options)
    if off:
        assert "probability" not in out.data
        return
    moved = np.where(np.arange(4)[:, None, None, None] == 0, probability[..., ::-1], probability)
    np.testing.assert_allclose(out.data["probability"], moved, rtol=2e-3)
    # nor is it torn from the latent sites where the symmetry names it
    model, named = Model(of_long_sums, (y,), {}), Symmetry({"loc": ("component",), "probability": (None, "component")})
    before, after = (
        {"loc": one["loc"].reshape(-1, 2), "probability": one["probability"].reshape(-1, 100, 2)}
        for one in (raw, {"loc": out.data["loc"], "probability": moved})
    )
    relabelled = Labelled({"component": out.elements["component"].reshape(-1, 2)}, after)
    draws = before | {"sum": before["loc"].sum(-1)}
    found = carry(model, roles_of(model), draws, ["sum"], named.bind(before), relabelled, relabelled)
    assert not found.left_out


def test_rounding_of_one_entry_excuses_no_other():
    def of_both(factor):
        loc = numpyro.sample("loc", dist.Normal(0, 10).expand([2]).to_event(1))
        numpyro.deterministic("both", jnp.stack([jnp.sin(1e6 * loc[0]), factor * loc[1]]))

    latent = {"loc": np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)}
    model = Model(of_both, (np.float32(1e-9),), {})
    computed = compute(model, latent, ["both"])
    held = computed["both"].astype(float)
    held[:, 0] = np.sin(1e6 * latent["loc"][:, 0].astype(float))
    assert np.abs(held - computed["both"]).max() > 0.01
    assert _others(model, latent, computed, {"both": held * [1.0, 1.0]}) == []
    assert _others(model, latent, computed, {"both": held * [1.0, 1.1]}) == ["both"]


def test_axes_without_a_model_move_with_the_labels():
    raw = draws(draws=40)
    raw = {site: raw[site] for site in ("weights", "loc", "scale", "precision", "gaps", "total")}
    axes = {"precision": ("component",), "gaps": ("component", "component"), "total": ()}
    out = rebase(raw, traces.MIXTURE, axes=axes, null=False)
    expected = computed({site: out.data[site] for site in traces.MIXTURE.axes})
    for site in ("precision", "gaps"):
        np.testing.assert_allclose(out.data[site], expected[site], rtol=1e-6)
    same(out.undo(out.data), raw)
    # they have no say in the labels
    alone = rebase({site: raw[site] for site in traces.MIXTURE.axes}, traces.MIXTURE, null=False)
    same(out.data, alone.data)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"nothing": ("component",)}, "expected a site of the data"),
        ({"loc": ("component",)}, "expected a site of the data"),
        ({"precision": ("state",)}, "name groups"),
        ({"precision": ("component", None, None)}, "'precision' has shape"),
        ({"gaps": "component"}, "'gaps': expected a tuple"),
    ],
)
def test_axes_that_do_not_fit_are_refused(axes, message):
    with pytest.raises(SymmetryError, match=message):
        rebase(draws(draws=10), traces.MIXTURE, axes=axes)


def test_the_remedy_that_a_warning_names_works():
    raw = {site: value for site, value in draws(draws=40).items() if site in (*traces.MIXTURE.axes, "precision")}
    with pytest.warns(SymmetryWarning) as caught:
        rebase(raw, traces.MIXTURE, null=False)
    (message,) = [str(w.message) for w in caught]
    assert "axes={'precision': ('component',)}" in message
    rebase(raw, traces.MIXTURE, axes={"precision": ("component",)}, null=False)


def two_blocks(y):
    """Two populations of different priors in one site: a group with orbits."""
    spread = jnp.array([1.0, 1.0, 5.0, 5.0])
    w = numpyro.sample("w", dist.Normal(0, spread).to_event(1))
    numpyro.deterministic("square", w**2)
    numpyro.deterministic("first", w[0])
    numpyro.sample("y", dist.Normal(w.sum(), 1.0), obs=y)


def test_groups_with_orbits_carry_them_too():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(200, 4)) * 0.1 + [0, 3, 20, 30]
    w = np.concatenate([rng.permuted(w[:, :2], axis=1), rng.permuted(w[:, 2:], axis=1)], 1)
    raw = {"w": w, "square": w**2, "first": w[:, 0]}
    symmetry = Symmetry({"w": ("u",)}, orbits={"u": (0, 0, 1, 1)})
    out = rebase(raw, symmetry, model=two_blocks, model_args=(0.0,), null=False)
    assert out.carried.axes == {"square": ("u",)}
    np.testing.assert_allclose(out.data["square"], out.data["w"] ** 2)
    np.testing.assert_array_equal(out.data["first"], out.data["w"][:, 0])
    assert out.data["w"].std(0).max() < 0.2
    same(out.undo(out.data), raw)
    same(rebase(raw, symmetry, axes={"square": ("u",)}, null=False).data, {"square": out.data["square"]})


def odd_units(x, y):
    w1 = numpyro.sample("w1", dist.Normal(0, 1).expand([2, 4]).to_event(2))
    b1 = numpyro.sample("b1", dist.Normal(0, 1).expand([4]).to_event(1))
    w2 = numpyro.sample("w2", dist.Normal(0, 1).expand([4, 1]).to_event(2))
    numpyro.deterministic("hidden", jnp.tanh(x @ w1 + b1))
    numpyro.deterministic("size", jnp.abs(w2[:, 0]))
    f = numpyro.deterministic("f", (jnp.tanh(x @ w1 + b1) @ w2)[:, 0])
    numpyro.sample("y", dist.Normal(f, 0.1).to_event(1), obs=y)


def test_signs_go_along_where_they_apply():
    switched, _ = traces.tanh_units()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 2))
    hidden = np.tanh(np.einsum("nk,dkh->dnh", x, switched["w1"]) + switched["b1"][:, None])
    raw = switched | {
        "hidden": hidden,
        "size": np.abs(switched["w2"][..., 0]),
        "f": np.einsum("dnh,dhi->dn", hidden, switched["w2"]),
    }
    out = rebase(raw, traces.TANH, model=odd_units, model_args=(x, jnp.zeros(5)), null=False)
    assert out.carried.axes["hidden"] == (None, "hidden")
    assert str(out.carried.axes["size"]) == "(Unsigned(group='hidden'),)"
    expected = np.tanh(np.einsum("nk,dkh->dnh", x, out.data["w1"]) + out.data["b1"][:, None])
    np.testing.assert_allclose(out.data["hidden"], expected)
    np.testing.assert_allclose(out.data["size"], np.abs(out.data["w2"][..., 0]))
    same(out.data, {"f": raw["f"]})
    same(out.undo(out.data), raw)


def test_what_a_sampler_recorded_is_computed_in_its_own_model():
    def centred(y):
        loc = numpyro.sample("loc", dist.Normal(0, 3).expand([2]).to_event(1))
        numpyro.deterministic("twice", 2 * loc)
        numpyro.deterministic("gap", loc[1] - loc[0])
        weights = jnp.full(2, 0.5)
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, 1.0)), obs=y)

    model = handlers.reparam(centred, config={"loc": LocScaleReparam(0.0)})
    y = jnp.concatenate([jnp.full(8, -3.0), jnp.full(8, 3.0)]) + 0.1 * jnp.arange(16)
    # which compiles in less time than the trees of NUTS
    kernel = HMC(model)
    mcmc = MCMC(kernel, num_warmup=50, num_samples=30, num_chains=4, chain_method="vectorized", progress_bar=False)
    mcmc.run(jax.random.key(1), y)
    out = rebase(mcmc, null=False)
    assert set(out.symmetry.axes) == {"loc_decentered"}
    assert set(out.carried.axes) == {"loc", "twice"}
    samples = out.data.get_samples()
    np.testing.assert_allclose(samples["loc"], 3 * samples["loc_decentered"], rtol=1e-5)
    np.testing.assert_allclose(samples["twice"], 2 * samples["loc"], rtol=1e-5)
    np.testing.assert_allclose(samples["gap"], samples["loc"][:, 1] - samples["loc"][:, 0], rtol=1e-3, atol=1e-4)
    same(out.undo(out.data).get_samples(), mcmc.get_samples())


def of_two(y):
    loc = numpyro.sample("loc", dist.Normal(0, 3).expand([2]).to_event(1))
    numpyro.deterministic("twice", 2 * loc)
    numpyro.deterministic("gap", loc[1] - loc[0])
    numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)


@functools.cache
def sampled_of_two():
    mcmc = MCMC(
        HMC(of_two),
        num_warmup=10,
        num_samples=30,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), jnp.array(0.3))
    return mcmc


def test_sites_that_the_model_does_not_draw_may_be_named_beside_those_it_does():
    mcmc = sampled_of_two()
    raw = {site: np.asarray(x) for site, x in mcmc.get_samples(group_by_chain=True).items()}
    own = {"model": of_two, "model_args": (jnp.array(0.3),), "null": False}
    z = (raw["loc"][..., :1] > raw["loc"][..., 1:]).astype(int)
    by_labels = rebase(raw | {"z": z}, Symmetry.mixture("loc"), labels={"z": "component"}, **own)
    by_both = rebase(mcmc, Symmetry.mixture("loc", "twice"), null=False)
    moved = by_both.data.get_samples(group_by_chain=True)
    np.testing.assert_allclose(moved["twice"], 2 * moved["loc"], rtol=1e-6)
    for out in (by_labels.data, moved):
        np.testing.assert_allclose(out["gap"], out["loc"][..., 1] - out["loc"][..., 0], rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(by_labels.data["z"], by_labels.data["loc"][..., :1] > by_labels.data["loc"][..., 1:])


def test_sites_computed_from_others_that_keep_their_labels_say_so():
    with pytest.warns(SymmetryWarning) as record:
        out = rebase(sampled_of_two(), Symmetry.mixture("twice"), null=False)
    words = [str(one.message) for one in record]
    assert any(
        "'gap' is computed by the model" in one and "names ['twice'], which the model computes" in one for one in words
    )
    assert any("'loc' has shape" in one for one in words)
    assert "gap" not in out.data.get_samples()


def test_latent_sites_of_the_model_that_no_label_moves_need_no_word():
    def model(y):
        loc = numpyro.sample("loc", dist.Normal(0, 10).expand([3]).to_event(1))
        numpyro.sample("own", dist.Normal(jnp.arange(3.0), 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)

    values = {"loc": traces.mixture(draws=20)[0]["loc"], "own": np.zeros((4, 20, 3))}
    with pytest.warns(SymmetryWarning, match="'own' has shape"):
        rebase(values, Symmetry.mixture("loc"), null=False)
    assert (
        rebase(values, Symmetry.mixture("loc"), model=model, model_args=(0.0,), null=False).data["own"].shape[-1] == 3
    )


def test_many_draws_are_computed_in_pieces(monkeypatch):
    raw = draws(draws=70)
    whole = rebase(raw, traces.MIXTURE, model=mixture, model_args=(Y,), null=False)
    monkeypatch.setattr("numpyro_symmetry.traces.deterministic._MAX_DRAWS_AT_ONCE", 64)
    same(rebase(raw, traces.MIXTURE, model=mixture, model_args=(Y,), null=False).data, whole.data)


def test_datasets_leave_out_what_they_must():
    posterior = dataset(in_container(draws(draws=20)))
    assert isinstance(posterior, xr.Dataset)
    with pytest.warns(SymmetryWarning, match="'precision'"):
        out = rebase(posterior, traces.MIXTURE, model=mixture, model_args=(Y, 0.5), null=False)
    assert set(posterior) - set(out.data) == {"precision"}


def with_labels(y):
    """A mixture whose labels of data, and a count that is no label, are among the draws."""
    loc = numpyro.sample("loc", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    count = numpyro.sample("count", dist.Poisson(2.0))
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(2) / 2))
        mean = numpyro.deterministic("mean", loc[z])
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
    numpyro.deterministic("scaled", count * loc)


def switched_labels(constant):
    """Draws of which half have their labels switched, each consistent in itself."""
    rng, y = np.random.default_rng(0), np.array([-4.0, -4.2, 4.1, 3.9])
    own = rng.normal([-4.0, 4.0], 0.3, (100, 2)).astype(np.float32)
    z = np.broadcast_to(np.array([0, 0, 0, 0] if constant else [0, 0, 1, 1]), (100, 4))
    odd = np.arange(100)[:, None] % 2 == 1
    values = {"loc": np.where(odd, own[:, ::-1], own), "z": np.where(odd, 1 - z, z)}
    values |= {"count": rng.poisson(2.0, 100), "mean": np.take_along_axis(values["loc"], values["z"], 1)}
    return y, values | {"scaled": values["count"][:, None].astype(np.float32) * values["loc"]}


@pytest.mark.parametrize("constant", [False, True], ids=["two", "one"])
def test_what_reads_labels_that_are_not_moved_is_left_out(constant):
    y, values = switched_labels(constant)
    options = {"model": with_labels, "model_args": (y,), "null": False, "progress_bar": False}
    with pytest.warns(SymmetryWarning) as told:
        out = rebase(values, Symmetry.mixture("loc"), **options)
    assert any("'mean' is computed" in str(one.message) and r"reads ['z']" in str(one.message) for one in told)
    assert "mean" not in out.data
    # what is no label may be read: the log joint does not depend on it and the labels together
    np.testing.assert_allclose(out.data["scaled"], values["count"][:, None] * out.data["loc"], rtol=1e-6)
    kept = rebase(values, Symmetry.mixture("loc"), labels={"z": "component"}, **options)
    np.testing.assert_array_equal(kept.data["mean"], values["mean"])
    np.testing.assert_allclose(kept.data["scaled"], values["count"][:, None] * kept.data["loc"], rtol=1e-6)


def test_indicators_that_are_no_labels_may_be_read_where_priors_tell_labels_apart():
    y = np.array([-1.0, 1.2, 0.8])

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 1.0).to_event(1))
        on = numpyro.sample("on", dist.Bernoulli(0.5))
        numpyro.deterministic("first", mu[0] * (1 + on))
        numpyro.sample(
            "y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(2)), dist.Normal(mu, 1.0)).expand([3]), obs=y
        )

    rng = np.random.default_rng(0)
    mu, on = rng.permuted(rng.normal([-1.0, 1.0], 0.1, (60, 2)), axis=1), rng.integers(2, size=60)
    values = {"mu": mu, "on": on, "first": mu[:, 0] * (1 + on)}
    options = {"model": model, "model_args": (y,), "part": "likelihood", "null": False, "progress_bar": False}
    with pytest.warns(SymmetryWarning, match="'on' holds integers"):
        out = rebase(values, **options)
    np.testing.assert_allclose(out.data["first"], out.data["mu"][:, 0] * (1 + on), rtol=1e-5)


@pytest.mark.parametrize("seen", ["no relabelling", "two of three exchanged"])
def test_what_these_draws_do_not_show_of_labels_is_not_stale_where_they_are_drawn_at_random(seen):
    loc = np.array([-4.0, 0.0, 3.0]) + 0.1 * np.random.default_rng(0).standard_normal((200, 3))
    values = {"loc": loc, "weights": np.full((200, 3), 1 / 3) + 0.01 * loc / 3, "scale": np.exp(0.1 * loc)}
    values["weights"] /= values["weights"].sum(-1, keepdims=True)
    if seen != "no relabelling":
        values = {site: np.concatenate([x[:100], x[100:, [1, 0, 2]]]) for site, x in values.items()}
    given = {site: x.astype(np.float32) for site, x in values.items()}
    out = rebase(given | computed(given), traces.MIXTURE, model=mixture, model_args=(Y,), null=False)
    np.testing.assert_allclose(out.data["precision"], computed(out.data)["precision"], rtol=1e-5)
    mixed = out.symmetrized(jax.random.key(0))
    assert not np.array_equal(mixed["loc"], out.data["loc"])
    # what moves as a whole moves, what no label changes stays, and what else there is would be another number
    assert {"precision", "gaps", "total", "positive"} <= set(mixed)
    assert not {"first", "likely"} & set(mixed)
    for site in ("precision", "gaps", "total", "positive"):
        np.testing.assert_allclose(mixed[site], computed(mixed)[site], rtol=1e-5)
    assert set(out.carried.unmoved) == ({"first", "likely"} if seen == "no relabelling" else {"likely"})


def test_a_symmetry_that_is_given_is_checked_against_the_model_of_the_sampler():
    def told_apart(y):
        loc = numpyro.sample("loc", dist.Normal(jnp.array([0.0, 1.0, 2.0]), 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)

    mcmc = MCMC(HMC(told_apart), num_warmup=20, num_samples=20, progress_bar=False)
    mcmc.run(jax.random.key(0), 0.5)
    with pytest.raises(SymmetryError, match="not invariant"):
        rebase(mcmc, Symmetry.mixture("loc"), null=False)


def test_sites_that_are_moved_along_belong_to_the_symmetry_that_is_checked():
    def mixture(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
        loc = numpyro.sample("loc", dist.Normal(0, 5).expand([2]).to_event(1))
        of_row = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, 1.0))
        numpyro.sample("y", of_row.expand([len(y)]).to_event(1), obs=y)

    mcmc = MCMC(HMC(mixture), num_warmup=20, num_samples=20, progress_bar=False)
    mcmc.run(jax.random.key(0), jnp.array([-3.0, -2.5, 2.0, 3.0]))
    along = rebase(mcmc, Symmetry.mixture("loc"), axes={"weights": ("component",)}, null=False)
    both = along.apply({site: mcmc.get_samples(group_by_chain=True)[site] for site in ("loc", "weights")})
    same({site: along.data.get_samples(group_by_chain=True)[site] for site in both}, both)
    with pytest.raises(SymmetryError, match="Add 'component' to axis -1 of site 'weights'"):
        rebase(mcmc, Symmetry.mixture("loc"), null=False)


def test_still_is_what_is_settled_and_neither_moved_nor_named_nor_in_doubt():
    findings = Finding("w", 1, 3, "unit", "moves", ""), Finding("scale", 1, 1, "", "stays", "")
    bound = replace(Symmetry({"loc": ("component",)}).bind({"loc": np.zeros(3)}), findings=findings)
    carried = NOTHING._replace(
        axes={"gap": ("component",), "sum": (None,)}, left_out={"range": "why"}, unmoved=("top",)
    )
    settled = ["loc", "w", "scale", "gap", "sum", "range", "top"]
    assert still_of(bound, carried, settled) == ("scale", "sum")
