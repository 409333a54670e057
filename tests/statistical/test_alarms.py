"""Reports on clean traces hardly ever say that chains disagree, however many numbers they look at."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS

from numpyro_symmetry import EuclideanCost, Symmetry, rebase, report
from tests.support.traces import autoregressive

UNITS = Symmetry({"unit": ("unit", None)})


def is_false_alarm(values, symmetry):
    """Whether a report on chains that agree says anything of chains that do not."""
    found = report(rebase(values, symmetry, cost=EuclideanCost(), null=False, num_starts=1))
    return any(word in found.reading for word in ("disagree", "moved", "stood still", "could not judge"))


def clean(seed, entries, correlation=0.0, draws=250):
    """Three slots well apart, of one or more numbers each, under labels at random in every draw."""
    rng = np.random.default_rng(1000 + seed)
    noise = autoregressive(rng, (4, draws, 3 * entries), correlation).reshape(4, draws, 3, entries)
    labels = rng.permuted(np.broadcast_to(np.arange(3), (4, draws, 3)), axis=-1)
    return {"unit": np.take_along_axis(noise + 6.0 * np.arange(3)[:, None], labels[..., None], 2)}


def most(number, share=0.05):
    """Alarms at a given rate, and two standard errors more."""
    return number * share + 2.0 * np.sqrt(number * share * (1.0 - share))


KINDS = {
    "1 entry": (1, 0.0, 250),
    "10 entries": (10, 0.0, 250),
    "30 entries": (30, 0.0, 250),
    "autoregressive": (10, 0.5, 250),
    "slowly autoregressive": (3, 0.9, 1000),
    "alternating": (10, -0.5, 250),
}


@pytest.mark.parametrize("kind", ["10 entries", "autoregressive"])
def test_some_clean_traces_give_no_alarm(kind):
    assert sum(is_false_alarm(clean(seed, *KINDS[kind]), UNITS) for seed in range(8)) <= most(8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_clean_traces_give_hardly_any_alarm(kind):
    assert sum(is_false_alarm(clean(seed, *KINDS[kind]), UNITS) for seed in range(100)) <= most(100)


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(5.0 * jnp.ones(2)))
    loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3).expand([2]).to_event(1))
    components = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, scale))
    numpyro.sample("y", components.expand(y.shape).to_event(1), obs=y)


@pytest.mark.slow
def test_well_mixed_nuts_gives_hardly_any_alarm():
    y = jnp.concatenate([-4.0 + jnp.linspace(-1.0, 1.0, 20), 4.0 + jnp.linspace(-1.0, 1.0, 30)])
    # a hundred traces of four chains from one compilation
    mcmc = MCMC(
        NUTS(mixture), num_warmup=300, num_samples=250, num_chains=400, chain_method="vectorized", progress_bar=False
    )
    mcmc.run(jax.random.key(0), y)
    draws = {site: np.asarray(value) for site, value in mcmc.get_samples(group_by_chain=True).items()}
    symmetry = Symmetry.mixture("weights", "loc", "scale")
    alarms = [is_false_alarm({s: v[4 * k : 4 * k + 4] for s, v in draws.items()}, symmetry) for k in range(100)]
    assert sum(alarms) <= most(100)
