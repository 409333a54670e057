"""Symmetries that are found rather than given, and those with orbits, fibres and joined axes, in guides and traces."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer import HMC, MCMC
from numpyro.infer.autoguide import AutoNormal
from scipy.stats import norm

from numpyro_symmetry import (
    AutoSymmetrized,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    match,
    rebase,
    report,
)

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 2)), RNG.normal(size=12)
Y_MIXED = np.concatenate([RNG.normal(m, 0.5, 15) for m in (-4.0, 0.0, 4.0)])

ORBITS = Symmetry({"w": (None, "unit"), "v": ("unit",)}, orbits={"unit": (0, 0, 1, 1, 1)})
NETS = Symmetry({"w": ("net", None, "net/unit"), "v": ("net", "net/unit")}, kinds={"net": "fixed"})
HEADS = Symmetry({"w": ("head", None, "head/unit"), "v": ("head", "head/unit")})
CASES = {
    "orbits": (ORBITS, {"w": (2, 5), "v": (5,)}),
    "nets": (NETS, {"w": (2, 2, 3), "v": (2, 3)}),
    "heads": (HEADS, {"w": (2, 2, 3), "v": (2, 3)}),
}


def two_scales(x, y):
    """Output weights of two prior scales: only units of one scale may be exchanged."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 5]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0, jnp.array([1.0, 1.0, 0.5, 0.5, 0.5])).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.tanh(x @ w) @ v, 0.5), obs=y)


def nets(x, y):
    """Two networks, each with its own output."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 2, 3]).to_event(3))
    v = numpyro.sample("v", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    out = jnp.einsum("md,md->m", jnp.tanh(jnp.einsum("ni,mid->md", x, w)), v)
    numpyro.sample("y", dist.Normal(out, 0.5).to_event(1), obs=y[:2])


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    loc = numpyro.sample("loc", dist.Normal(0, 5).expand([3]).to_event(1))
    components = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, 0.5))
    numpyro.sample("y", components.expand([len(y)]).to_event(1), obs=y)


def schools(y):
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("school", len(y)):
        effect = numpyro.sample("effect", dist.Normal(0, spread))
        numpyro.sample("y", dist.Normal(effect, 1), obs=y)


def values_of(shapes):
    return {site: RNG.normal(size=shape) for site, shape in shapes.items()}


@pytest.mark.parametrize(("model", "order"), [(two_scales, 12), (nets, 36)])
def test_guide_finds_its_symmetry_and_sums_over_it(model, order):
    guide = AutoSymmetrized(AutoNormal(model, init_scale=0.5), signs=False)
    guide.setup(jax.random.key(0), X, Y)
    shapes = {site: guide.base.prototype_trace[site]["fn"].shape() for site in ("w", "v")}
    params = {f"{site}_auto_loc": jnp.asarray(value) for site, value in values_of(shapes).items()}
    params |= {f"{site}_auto_scale": jnp.exp(0.3 * value) for site, value in values_of(shapes).items()}
    with handlers.trace() as trace, handlers.substitute(data=params), handlers.seed(rng_seed=3):
        guide(X, Y)
    correction = float(trace["_symmetry_correction"]["fn"].log_factor)
    drawn = {site: np.asarray(trace[site]["value"]) for site in ("w", "v")}

    def log_density(values):
        terms = [norm.logpdf(values[s], params[f"{s}_auto_loc"], params[f"{s}_auto_scale"]) for s in drawn]
        axes = [tuple(range(-drawn[s].ndim, 0)) for s in drawn]
        return sum(term.sum(axis) for term, axis in zip(terms, axes, strict=True))

    symmetry = guide.symmetry.bind(drawn)
    every = symmetry.apply(symmetry.elements(), drawn)
    mean = logsumexp(log_density(every)) - np.log(order)
    assert np.exp(symmetry.log_order()) == pytest.approx(order)
    np.testing.assert_allclose(correction, mean - log_density(drawn), atol=1e-4)


def test_guide_without_symmetry_says_so_and_stays_as_it_is():
    guide = AutoSymmetrized(AutoNormal(schools))
    with pytest.warns(SymmetryWarning, match=r"No symmetry was found[\s\S]*effect +-1 +12 +· +meets data"):
        guide.setup(jax.random.key(0), Y)
    shapes = {"spread": (), "effect": Y.shape}
    params = {f"{site}_auto_{part}": jnp.ones(shapes[site]) for site in shapes for part in ("loc", "scale")}
    bounds = guide.elbo_bounds(jax.random.key(1), params, Y, num_particles=32)
    assert bounds.lower == bounds.upper == bounds.base_elbo
    assert bounds.log_order == 0


@pytest.mark.parametrize("name", CASES)
def test_match_is_best_of_all_elements(name):
    symmetry, shapes = CASES[name]
    source, target = values_of(shapes), values_of(shapes)
    bound = symmetry.bind(source)
    found = match(target, source, symmetry)
    every = bound.apply(bound.elements(), source)
    distances = sum(((np.asarray(every[s]) - target[s]) ** 2).reshape(len(every[s]), -1).sum(1) for s in shapes)
    moved = bound.apply(found.element, source)
    distance = sum(((np.asarray(moved[s]) - target[s]) ** 2).sum() for s in shapes)
    np.testing.assert_allclose(-distance, found.objective, rtol=1e-5)
    np.testing.assert_allclose(distance, distances.min(), rtol=1e-5)


@pytest.mark.parametrize("name", ["orbits", "nets"])
def test_rebase_brings_draws_together_and_can_be_undone(name):
    symmetry, shapes = CASES[name]
    centre = values_of(shapes)
    bound = symmetry.bind(centre)
    labels = bound.sample(jax.random.key(1), (2, 40))
    draws = {
        s: (np.asarray(v) + 0.01 * RNG.normal(size=(2, 40, *shapes[s]))).astype(np.float32)
        for s, v in bound.apply(labels, centre).items()
    }
    out = rebase(draws, symmetry)
    assert all(out.data[s].std((0, 1)).max() < 0.02 for s in shapes)
    for s in shapes:
        np.testing.assert_array_equal(out.undo(out.data)[s], draws[s])
        np.testing.assert_array_equal(out.apply(draws)[s], out.data[s])
        np.testing.assert_allclose(bound.apply(out.elements, draws)[s], out.data[s])
    again = rebase(draws, symmetry, reference=out)
    for s in shapes:
        np.testing.assert_array_equal(again.data[s], out.data[s])
    assert "R-hat" in str(report(draws, out))
    means = rebase(draws, symmetry, order_by="v", null=False).data["v"].mean((0, 1))
    for members in next(iter(bound.groups.values())).members():
        assert (np.diff(means[..., members], axis=-1) > 0).all()


def test_rebase_finds_the_symmetry_of_an_mcmc_run():
    mcmc = MCMC(HMC(mixture), num_warmup=100, num_samples=50, progress_bar=False)
    mcmc.run(jax.random.key(0), Y_MIXED)
    out = rebase(mcmc, null=False)
    assert {site: entries[-1] for site, entries in out.symmetry.axes.items()} == {"loc": "loc", "weights": "loc"}
    assert isinstance(out.data, MCMC)


def test_rebase_without_symmetry_asks_for_a_model_or_says_why_there_is_none():
    with pytest.raises(ValueError, match="pass model= and model_args="):
        rebase({"loc": np.zeros((10, 3))})
    with pytest.raises(SymmetryError, match="no symmetry that could be found"):
        rebase({"effect": np.zeros((10, 12)), "spread": np.ones(10)}, model=schools, model_args=(Y,))
