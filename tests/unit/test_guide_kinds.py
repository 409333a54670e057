"""Kinds of base guides: the one that is known, and a stranger's, written here, that takes the fast path."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoIAFNormal, AutoMultivariateNormal, AutoNormal

from numpyro_symmetry import AutoConditional, AutoSymmetrized, Symmetry
from numpyro_symmetry.entropy import General
from numpyro_symmetry.guides import kinds

SYMMETRY = Symmetry({"z": ("unit",), "s": ("unit",)})


def model(y=1.0):
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    s = numpyro.sample("s", dist.Gamma(2.0, 2.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal((z * s).sum(), 1.0), obs=jnp.asarray(y))


class Stacked:
    """A guide by hand with one auxiliary latent: every unit's numbers in a row, scaled and shifted."""

    def __call__(self, y=1.0):
        loc = numpyro.param("loc", jnp.linspace(-1.0, 1.0, 6).reshape(3, 2))
        rows = numpyro.sample("rows", dist.Normal(loc, 0.5).to_event(2), infer={"is_auxiliary": True})
        numpyro.sample("z", dist.Delta(rows[:, 0], event_dim=1))
        numpyro.sample("s", dist.Delta(jnp.exp(rows[:, 1]), log_density=-rows[:, 1].sum(), event_dim=1))


def entered(part, values, free):
    rows = jnp.stack([values["z"], jnp.log(values["s"])], 1)
    return {name: value for name, value in values.items() if name not in ("z", "s")} | {"rows": rows}


def gaussians(part, trace, supports):
    fn = trace["rows"]["fn"].base_dist
    loc, scale = (jnp.broadcast_to(x, (3, 2)).T for x in (fn.loc, fn.scale))
    return {site: kinds.Entries(loc[k], scale[k]) for k, site in enumerate(("z", "s"))}


STACKED = kinds.GuideKind(lambda part: isinstance(part, Stacked), lambda part: {"rows": ("z", "s")}, entered, gaussians)


@pytest.mark.parametrize("init_scale", [0.1, 1e-6])
def test_narrow_guides_take_the_fast_path_however_large_their_densities_are(init_scale):
    guide = AutoSymmetrized(AutoNormal(model, init_scale=init_scale), SYMMETRY).setup(jax.random.key(0))
    assert guide.layout.factorises


def test_a_strangers_kind_takes_the_fast_path_and_is_exact(monkeypatch):
    monkeypatch.setattr(kinds, "KINDS", (STACKED, *kinds.KINDS))
    guide = AutoSymmetrized(Stacked(), SYMMETRY, model=model).setup(jax.random.key(0))
    assert guide.layout.factorises

    @jax.jit
    def at(key):
        with handlers.seed(rng_seed=key):
            trace = handlers.trace(guide).get_trace()
        rows, fn = trace["rows"]["value"], trace["rows"]["fn"]
        densities = jnp.stack([fn.log_prob(rows[np.array(order)]) for order in itertools.permutations(range(3))])
        return -trace["_symmetry_correction"]["fn"].log_factor, densities[0] - logsumexp(densities) + math.log(6)

    found, expected = at(jax.random.key(1))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # the general path, which enters the guide at relabelled values, agrees
    slow = AutoSymmetrized(Stacked(), SYMMETRY, model=model, estimator="exact").setup(jax.random.key(0))
    slow.layout = slow.layout._replace(density=General)

    @jax.jit
    def again(key):
        with handlers.seed(rng_seed=key):
            return -handlers.trace(slow).get_trace()["_symmetry_correction"]["fn"].log_factor

    np.testing.assert_allclose(again(jax.random.key(1)), expected, atol=1e-5)


@pytest.mark.parametrize("wrong", ["loc", "scale"])
def test_a_kind_that_reads_other_gaussians_is_found_out(wrong, monkeypatch):
    """One number of one unit suffices to leave the fast path."""

    def others(*read):
        found = gaussians(*read)
        other = getattr(found["z"], wrong).at[1].add(0.5)
        return found | {"z": found["z"]._replace(**{wrong: other})}

    monkeypatch.setattr(kinds, "KINDS", (STACKED._replace(gaussians=others), *kinds.KINDS))
    assert not AutoSymmetrized(Stacked(), SYMMETRY, model=model).setup(jax.random.key(0)).layout.factorises


def test_every_guide_has_one_kind():
    parts = {
        AutoDiagonalNormal(model): kinds.FLAT_DIAGONAL,
        AutoMultivariateNormal(model): kinds.FLAT_GAUSSIAN,
        AutoIAFNormal(model): kinds.FLAT,
        AutoNormal(model): kinds.SITE_BY_SITE,
        model: kinds.SITE_BY_SITE,
    }
    for part, kind in parts.items():
        assert next(k for k in kinds.KINDS if k.recognises(part)) is kind
    assert [*kinds.parts_of(AutoConditional(AutoDiagonalNormal(model)))][0].__class__ is AutoDiagonalNormal


def test_what_is_read_of_a_site():
    real = dist.constraints.real
    positive = dist.constraints.positive
    normal = dist.Normal(jnp.zeros(3), 2.0)
    assert kinds.site_gaussian(normal.to_event(1), real).scale == 2.0
    pushed = dist.TransformedDistribution(normal, dist.transforms.biject_to(positive))
    assert isinstance(kinds.site_gaussian(pushed, positive), kinds.Entries)
    assert kinds.site_gaussian(pushed, real) is None
    assert kinds.site_gaussian(dist.StudentT(3.0), real) is None
