"""From a NumPyro model through BlackJAX, NumPyro or a guide to ArviZ, relabelled in between."""

from typing import NamedTuple

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import HMC, MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from tqdm.auto import tqdm

from numpyro_symmetry import (
    AutoSymmetrized,
    DiagonalGaussian,
    Symmetry,
    SymmetryError,
    rebase,
    report,
    run_blackjax,
    to_arviz,
)
from numpyro_symmetry.containers.posterior import posterior_container
from numpyro_symmetry.models import Model, trace_model
from numpyro_symmetry.models.sites import plate_dims
from numpyro_symmetry.samplers.blackjax import _run, _Sampler

SYMMETRY = Symmetry.mixture("weights", "loc")
Y = jnp.concatenate([jnp.linspace(-4.0, -2.0, 15), jnp.linspace(2.0, 4.0, 25)])


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("component", 2):
        loc = numpyro.sample("loc", dist.Normal(0.0, 5.0))
    numpyro.deterministic("total", loc.sum())
    with numpyro.plate("datum", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, 1.0)), obs=y)


def normal(y, scale=1.0):
    loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(loc, scale).expand(y.shape).to_event(2), obs=y)


FEW = {"algorithm": "hmc", "num_chains": 2, "num_warmup": 20, "num_samples": 10, "progress_bar": False}


@pytest.fixture(scope="module")
def data():
    return run_blackjax(jax.random.key(0), mixture, (Y,), num_warmup=300, num_samples=210, progress_bar=False)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("nuts", {}), ("nuts", {"dense_mass": True}), ("hmc", {}), ("mclmc", {"num_warmup": 3000, "thinning": 10})],
)
def test_a_known_posterior_is_sampled(algorithm, options):
    y = jnp.array([[1.0, -4.0], [2.0, -3.0], [3.0, -2.0], [4.0, -1.0]])
    data = run_blackjax(
        jax.random.key(1),
        normal,
        (y,),
        {"scale": 2.0},
        algorithm=algorithm,
        **{"num_warmup": 300, "num_samples": 500, "progress_bar": False, **options},
    )
    precision = 1 / 25 + 4 / 4
    draws = data["posterior"]["loc"].values
    assert draws.shape == (4, 500, 2)
    posterior = data["posterior"].to_dataset() if type(data).__name__ == "DataTree" else data["posterior"]
    error = draws.std((0, 1)) / np.sqrt(np.asarray(az.ess(posterior)["loc"]))
    # microcanonical dynamics are not adjusted, and may be off by a little
    slack = 0.05 if algorithm == "mclmc" else 0.0
    np.testing.assert_allclose(draws.mean((0, 1)), y.mean(0) / precision, atol=4 * error.max() + slack)
    np.testing.assert_allclose(draws.std((0, 1)), precision**-0.5, rtol=0.15)
    assert not data["sample_stats"]["diverging"].values.any()


def test_everything_has_its_name_and_dimensions(data):
    assert data["posterior"]["loc"].dims == ("chain", "draw", "component")
    assert data["posterior"]["total"].shape == (4, 210)
    assert data["log_likelihood"]["y"].dims == ("chain", "draw", "datum")
    assert data["observed_data"]["y"].shape == (40,)
    assert {"lp", "diverging", "acceptance_rate", "energy", "n_steps"} <= set(data["sample_stats"].data_vars)
    loc, weights = (data["posterior"][s].values for s in ("loc", "weights"))
    expected = np.logaddexp.reduce(
        np.log(weights)[..., None, :]
        + np.asarray(dist.Normal(loc[..., None, :], 1.0).log_prob(np.asarray(Y)[:, None])),
        -1,
    )
    np.testing.assert_allclose(data["log_likelihood"]["y"].values, expected, rtol=1e-4, atol=1e-4)


class Count(NamedTuple):
    """A chain that counts its steps."""

    position: dict


def test_every_so_many_steps_are_kept_and_no_divergence_between_them_is_lost():
    def step(key, state, parameters):
        n = state.position["n"] + 1
        return Count({"n": n}), {"lp": 1.0 * n, "diverging": n % 7 == 1}

    sampler = _Sampler(lambda key, position: (Count(position), None), step)
    key, start = jax.random.key(0), {"n": jnp.array([0, 1000])}
    # blocks of three draws, the last of them too long
    draws, stats, is_whole = _run(
        sampler, key, key, start, num_samples=45, thinning=4, sharding=None, bar=tqdm(disable=True)
    )
    assert is_whole
    steps = np.array([[0], [1000]]) + np.arange(1, 181)
    np.testing.assert_array_equal(draws["n"], steps[:, 3::4])
    np.testing.assert_array_equal(stats["lp"], steps[:, 3::4])
    np.testing.assert_array_equal(stats["diverging"], (steps % 7 == 1).reshape(2, 45, 4).any(-1))


def test_names_and_coordinates_may_be_given_and_the_likelihood_left_out():
    draws = {"loc": jnp.zeros((2, 3, 2)), "extra": jnp.ones((2, 3))}
    given = {"dims": {"loc": ["side"]}, "coords": {"side": ["left", "right"]}, "attrs": {"made_by": "a test"}}
    model = Model(normal, (jnp.zeros((4, 2)),), {"scale": 2.0})
    data = posterior_container(model, draws, log_likelihood=False, **given)
    assert list(data["posterior"]["loc"].coords["side"].values) == ["left", "right"]
    assert data["posterior"]["extra"].shape == (2, 3)
    assert data["posterior"].attrs["made_by"] == "a test"
    groups = set(getattr(data, "children", None) or data.groups())
    assert groups == {"posterior", "observed_data"}
    data = posterior_container(model, draws)
    expected = dist.Normal(0.0, 2.0).log_prob(0.0) * 8
    np.testing.assert_allclose(data["log_likelihood"]["y"].values, np.full((2, 3), expected), rtol=1e-6)


def test_one_key_one_trace_and_the_bar_says_what_it_is_doing(capsys):
    first, second = (
        run_blackjax(jax.random.key(0), normal, (jnp.zeros((3, 2)),), **FEW | {"progress_bar": shown})
        for shown in (False, True)
    )
    np.testing.assert_array_equal(first["posterior"]["loc"].values, second["posterior"]["loc"].values)
    shown = capsys.readouterr().err
    order = [
        shown.index(words) for words in ("compiling the warm-up", "warming up", "compiling the sampler", "sampling:")
    ]
    assert order == sorted(order)
    # no time but that of sampling counts
    assert "10/10" in shown.splitlines()[-1].split("\r")[-1]


def positive(y):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(0.0, scale).expand(y.shape).to_event(2), obs=y)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"mu": jnp.ones(2)}, r"names sites \['mu'\]; expected some of the model's latent sites \['scale'\]"),
        ({"y": jnp.ones((2, 3, 2))}, r"names sites \['y'\]"),
        ({"scale": 1.0}, r"'scale' of init_params has shape \(\); expected \(2,\), a start for each of 2 chains"),
        ({"scale": jnp.ones(3)}, r"has shape \(3,\); expected \(2,\)"),
        ({"scale": jnp.array([1.0, -1.0])}, "'scale' of init_params holds values outside its support"),
    ],
)
def test_starts_that_do_not_fit_are_refused(start, message):
    with pytest.raises(ValueError, match=message):
        run_blackjax(jax.random.key(0), positive, (jnp.zeros((3, 2)),), num_chains=2, init_params=start)


def improper(y):
    loc = numpyro.sample("loc", dist.ImproperUniform(dist.constraints.real, (), (2,)))
    scale = numpyro.sample("scale", dist.ImproperUniform(dist.constraints.positive, (), ()))
    numpyro.factor("prior", -0.5 * (loc**2).sum() - scale)
    numpyro.sample("y", dist.Normal(loc, 1.0 + scale).expand(y.shape).to_event(2), obs=y)


def test_improper_priors_are_sampled_and_drawn_from_guides():
    y = jnp.zeros((3, 2))
    data = run_blackjax(jax.random.key(0), improper, (y,), init_params={"scale": jnp.ones(2)}, **FEW)
    assert data["posterior"]["loc"].shape == (2, 10, 2)
    assert (data["posterior"]["scale"].values > 0).all()
    guide = AutoNormal(improper)
    result = SVI(improper, guide, optax.adam(1e-2), Trace_ELBO()).run(jax.random.key(0), 2, y, progress_bar=False)
    draws = to_arviz(jax.random.key(1), guide, result.params, (y,), num_draws=7)
    assert draws["posterior"]["loc"].shape == (1, 7, 2)


@pytest.mark.filterwarnings("ignore:.*Out-of-support")
def test_starts_and_data_without_a_density_are_named():
    y = jnp.zeros((3, 2))
    with pytest.raises(ValueError, match=r"No start of finite density.*not finite, by site: \{'y': 1\}"):
        run_blackjax(jax.random.key(0), normal, (y.at[0, 0].set(jnp.nan),), **FEW)
    far = {"loc": jnp.array([[0.0, 0.0], [1e30, 0.0]])}
    with pytest.raises(
        ValueError, match="init_params start 1 of 2 chains, first chain 1, where the log density is not"
    ):
        run_blackjax(jax.random.key(0), normal, (y,), init_params=far, **FEW)


def test_names_of_no_site_are_refused_before_anything_is_drawn():
    y = jnp.full((3, 2), jnp.nan)  # would be refused as soon as chains start
    with pytest.raises(ValueError, match="dims names 'other'"):
        run_blackjax(jax.random.key(0), normal, (y,), dims={"other": ["unit"]}, **FEW)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_chains": 2.5}, "num_chains must be a whole number; got 2.5"),
        ({"thinning": "2"}, "thinning must be a whole number; got '2'"),
        ({"dense_mass": 1}, "dense_mass must be True or False"),
        ({"progress_bar": "no"}, "progress_bar must be True or False"),
        ({"rng_key": 0}, "rng_key must be one JAX random key"),
        ({"model_args": jnp.zeros((3, 2))}, r"model_args must be a tuple .* not an array \(3, 2\): write \(y,\)"),
        ({"model_kwargs": [1]}, "model_kwargs must be a mapping"),
        ({"init_params": [1]}, "init_params maps sites to starts"),
    ],
)
def test_arguments_of_other_types_are_named(options, message):
    given = {"rng_key": jax.random.key(0), "model": normal, "model_args": (jnp.zeros((3, 2)),)}
    with pytest.raises(TypeError, match=message):
        run_blackjax(**given | FEW | options)


def discrete(y):
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (discrete, {}, "'z'.* discrete"),
        (lambda y: numpyro.sample("y", dist.Normal(), obs=y), {}, "no latent sites"),
        (normal, {"algorithm": "gibbs"}, "algorithm must be one of"),
        (normal, {"num_chains": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_sampled_is_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        run_blackjax(jax.random.key(0), model, (jnp.zeros((3, 2)),), **options)


def test_arviz_works_on_what_is_rebased(data):
    out = rebase(data, SYMMETRY, order_by="loc")
    assert type(out.data) is type(data)
    exact = {"var_names": ["loc"], "round_to": "none"}
    raw, relabelled = (az.summary(d, **exact)["r_hat"].astype(float).max() for d in (data, out.data))
    assert raw > 1.1 > 1.02 > relabelled
    assert out.reference["loc"] == pytest.approx([-3.0, 3.0], abs=0.3)
    np.testing.assert_array_equal(out.data["log_likelihood"]["y"].values, data["log_likelihood"]["y"].values)
    # the relative efficiency is estimated from the posterior, whose labels differ
    loo = [az.loo(d, reff=1.0) for d in (data, out.data)]
    assert str(loo[0]) == str(loo[1])
    found = report(data, out)
    assert found.worst.r_hat < 1.03
    names = [row.name for row in found.rows if row.is_invariant]
    assert {"log density", "log likelihood of y"} <= set(names)


def test_numpyros_own_mcmc():
    mcmc = MCMC(
        HMC(mixture, trajectory_length=None, num_steps=8),
        num_warmup=200,
        num_samples=100,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    with pytest.raises(SymmetryError, match="call its run method"):
        rebase(mcmc, SYMMETRY)
    mcmc.run(jax.random.key(2), Y, extra_fields=("potential_energy",))
    before = {site: np.asarray(value) for site, value in mcmc.get_samples().items()}
    out = rebase(mcmc, SYMMETRY, reference="map", null=False)
    likeliest = np.argmin(mcmc.get_extra_fields()["potential_energy"])
    np.testing.assert_array_equal(out.reference["loc"], before["loc"][likeliest])
    assert isinstance(out.data, MCMC)
    grouped, flat = out.data.get_samples(group_by_chain=True), out.data.get_samples()
    np.testing.assert_array_equal(grouped["loc"].reshape(-1, 2), flat["loc"])
    np.testing.assert_array_equal(np.sort(flat["loc"], -1), np.sort(before["loc"], -1))
    np.testing.assert_array_equal(mcmc.get_samples()["loc"], before["loc"])
    container = az.from_numpyro(out.data)
    np.testing.assert_array_equal(container["posterior"]["loc"].values, grouped["loc"])
    assert isinstance(flat["loc"], jax.Array)


# ArviZ 0.23 sorts its table in a way that pandas is about to drop
@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_a_guide_beside_a_trace_in_one_comparison(data):
    guide = AutoSymmetrized(AutoNormal(mixture), SYMMETRY)
    result = SVI(mixture, guide, optax.adam(0.05), Trace_ELBO()).run(jax.random.key(0), 1000, Y, progress_bar=False)
    draws = to_arviz(jax.random.key(1), guide, result.params, (Y,), num_draws=400)
    assert draws["posterior"]["loc"].dims == ("chain", "draw", "component")
    table = az.compare({"hmc": rebase(data, SYMMETRY).data, "guide": draws})
    assert set(table.index) == {"hmc", "guide"}
    fitted = DiagonalGaussian.fit(
        {"loc": jnp.asarray(rebase(draws, SYMMETRY, order_by="loc").data["posterior"]["loc"].values)},
        num_leading_dims=2,
    )
    np.testing.assert_allclose(fitted.loc["loc"], [-3.0, 3.0], atol=0.4)


def test_plates_name_dimensions_of_batches_and_never_of_events():
    def model():
        total = jnp.zeros(())
        with numpyro.plate("state", 3, dim=-1):
            rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(4)))
            numpyro.sample("given", dist.Dirichlet(jnp.ones(4)), infer={"event_dims": ["column"]})
            numpyro.deterministic("inside", rows.sum(-1))
            numpyro.deterministic("total", total)
            numpyro.deterministic("of each", rows[:, :2])
            numpyro.deterministic("before each", rows.T)
            numpyro.deterministic("elsewhere", rows[0])
        with numpyro.plate("outer", 2, dim=-2), numpyro.plate("inner", 5, dim=-1):
            both = numpyro.sample("both", dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
            numpyro.deterministic("norms", both[..., :1])
            numpyro.deterministic("of outer", both[:, 0])
        numpyro.sample("plain", dist.Normal().expand([4]).to_event(1))

    found = plate_dims(trace_model(model, (), {}, jax.random.key(0)))
    assert found.pop("total", []) == []
    assert found == {
        "rows": ["state", "rows_dim_1"],
        "given": ["state", "column"],
        "inside": ["state"],
        "both": ["outer", "inner", "both_dim_2"],
        # what is computed says not which of its axes are its own: those whose plates then have their sizes
        "of each": ["state", "of each_dim_1"],
        "before each": ["before each_dim_0", "state"],
        "elsewhere": ["elsewhere_dim_0"],
        "norms": ["outer", "inner", "norms_dim_2"],
        "of outer": ["of outer_dim_0", "of outer_dim_1"],
    }


def test_chains_start_where_they_are_told_and_plates_and_declared_dimensions_name_dimensions():
    def model():
        with numpyro.plate("row", 3, dim=-2), numpyro.plate("column", 2, dim=-1):
            numpyro.sample("x", dist.Normal(0.0, 5.0))
        numpyro.sample("v", dist.Normal(0.0, 5.0).expand([4]).to_event(1), infer={"event_dims": ["place"]})

    signs = np.array([1, -1])
    data = run_blackjax(
        jax.random.key(0),
        model,
        num_chains=2,
        num_warmup=1,
        num_samples=2,
        algorithm="hmc",
        num_integration_steps=1,
        init_params={"x": jnp.asarray(signs[:, None, None] * np.full((3, 2), 10.0))},
        progress_bar=False,
    )
    assert (np.sign(data["posterior"]["x"].values[:, 0]) == signs[:, None, None]).all()
    assert data["posterior"]["x"].dims == ("chain", "draw", "row", "column")
    assert data["posterior"]["v"].dims == ("chain", "draw", "place")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"num_draws": 0}, ValueError, "num_draws must be at least 1; got 0"),
        ({"num_draws": 2.5}, TypeError, "num_draws must be a whole number"),
        ({"rng_key": 0}, TypeError, "rng_key must be one JAX random key"),
        ({"model_args": jnp.ones(4)}, TypeError, r"model_args must be a tuple .* an array \(4,\)"),
        ({"guide": lambda y: None}, TypeError, "guide must be a NumPyro autoguide"),
        ({"params": None}, TypeError, "params must be a mapping"),
        ({"params": {"loc_auto_loc": 0.0}}, ValueError, r"Parameters \['loc_auto_scale'\] are missing"),
        ({"log_likelihood": "no"}, TypeError, "log_likelihood must be True or False"),
        ({"dims": "abc"}, TypeError, "dims must be a mapping"),
    ],
)
def test_what_a_guides_draws_cannot_be_made_of(change, error, words):
    def model(y):
        loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
        numpyro.sample("y", dist.Normal(loc, 1.0).expand([4]).to_event(1), obs=y)

    given = {
        "rng_key": jax.random.key(0),
        "guide": AutoNormal(model),
        "params": {"loc_auto_loc": 0.0, "loc_auto_scale": 1.0},
        "model_args": (jnp.ones(4),),
    }
    with pytest.raises(error, match=words):
        to_arviz(**{**given, **change})
