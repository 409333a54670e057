"""From a NumPyro model through BlackJAX, NumPyro or a guide to ArviZ, relabelled in between."""

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

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


def test_one_key_one_trace():
    options = {"algorithm": "hmc", "num_warmup": 20, "num_samples": 10, "progress_bar": False}
    first, second = (run_blackjax(jax.random.key(0), normal, (jnp.zeros((3, 2)),), **options) for _ in range(2))
    np.testing.assert_array_equal(first["posterior"]["loc"].values, second["posterior"]["loc"].values)


def test_chains_start_where_they_are_told():
    start = {"loc": jnp.array([[10.0, 10.0], [-10.0, -10.0]])}
    data = run_blackjax(
        jax.random.key(0),
        normal,
        (jnp.zeros((1, 2)), 1e4),
        num_chains=2,
        num_warmup=1,
        num_samples=2,
        algorithm="hmc",
        num_integration_steps=1,
        init_params=start,
        progress_bar=False,
    )
    assert (np.sign(data["posterior"]["loc"].values[:, 0, 0]) == [1, -1]).all()


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
    raw, relabelled = (az.summary(d, var_names=["loc"])["r_hat"].astype(float).max() for d in (data, out.data))
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
        NUTS(mixture), num_warmup=200, num_samples=100, num_chains=2, chain_method="vectorized", progress_bar=False
    )
    with pytest.raises(SymmetryError, match="call its run method"):
        rebase(mcmc, SYMMETRY)
    mcmc.run(jax.random.key(2), Y, extra_fields=("potential_energy",))
    before = {site: np.asarray(value) for site, value in mcmc.get_samples().items()}
    out = rebase(mcmc, SYMMETRY, reference="map")
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


def test_plates_and_declared_dimensions_name_dimensions():
    def model():
        with numpyro.plate("row", 3, dim=-2), numpyro.plate("column", 2, dim=-1):
            numpyro.sample("x", dist.Normal())
        numpyro.sample("v", dist.Normal().expand([4]).to_event(1), infer={"event_dims": ["place"]})

    data = run_blackjax(
        jax.random.key(0), model, algorithm="hmc", num_warmup=50, num_samples=10, num_chains=2, progress_bar=False
    )
    assert data["posterior"]["x"].dims == ("chain", "draw", "row", "column")
    assert data["posterior"]["v"].dims == ("chain", "draw", "place")
