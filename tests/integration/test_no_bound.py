"""Guides by hand whose density is none of the model's latent sites: their ELBO may lie above the evidence."""

import math

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints
from scipy import stats

from numpyro_symmetry import AutoSymmetrized, Symmetry, SymmetryError, UnsupportedGuideError, log_evidence

KEY, Y = jax.random.key(0), jnp.array(0.5)
# z may be relabelled, and s may not
SYMMETRIES = {"with a group": Symmetry({"z": ("unit",)}), "without": Symmetry({})}
EVIDENCE = stats.norm.logpdf(0.5, 0.0, math.sqrt(3.0 + 1.0 + 1e-4))


def model(y):
    s = numpyro.sample("s", dist.Normal(0.0, 0.01))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(s + z.sum(), 1.0), obs=y)


def draw_z():
    scale = numpyro.param("z_scale", jnp.full(3, 0.8), constraint=constraints.positive)
    numpyro.sample("z", dist.Normal(numpyro.param("z_loc", jnp.full(3, 0.1)), scale).to_event(1))


def draw_s():
    return numpyro.sample("s", dist.Normal(0.0, numpyro.param("s_scale", 0.01)))


def point_mass(y):
    numpyro.sample("s", dist.Delta(numpyro.param("s_loc", 0.0)))
    draw_z()


def not_in_the_model(y):
    draw_s()
    numpyro.sample("a", dist.Normal(0.0, 100.0))
    draw_z()


def auxiliary(y):
    draw_s()
    numpyro.sample("a", dist.Normal(0.0, 100.0), infer={"is_auxiliary": True})
    draw_z()


def masked(y):
    with handlers.mask(mask=False):
        draw_s()
    draw_z()


def annealed(y):
    with handlers.scale(scale=0.1):
        draw_s()
        draw_z()


def params_of(guide):
    trace = handlers.trace(handlers.seed(guide, KEY)).get_trace(Y)
    return {name: site["value"] for name, site in trace.items() if site["type"] == "param"}


@pytest.mark.filterwarnings("ignore:Found vars in model but not guide:UserWarning")
@pytest.mark.parametrize("symmetry", SYMMETRIES)
@pytest.mark.parametrize(
    ("guide", "message"),
    [
        (point_mass, "Site 's' is a point mass"),
        (not_in_the_model, r"\['a'\], which are no latent sites|draws \['a', 's', 'z'\]; expected"),
        (auxiliary, r"auxiliary sites \['a'\]|\['a'\], which are no latent sites"),
        (masked, "Site 's': a mask leaves 1 of 1 entries"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_no_bound_and_no_evidence_of_what_is_no_density(guide, message, symmetry):
    wrapped = AutoSymmetrized(guide, SYMMETRIES[symmetry], model=model, progress_bar=False)
    for ask in (
        lambda: wrapped.elbo_bounds(KEY, params_of(guide), Y, progress_bar=False),
        lambda: log_evidence((wrapped, params_of(guide)), model_args=(Y,), progress_bar=False),
    ):
        with pytest.raises((UnsupportedGuideError, SymmetryError), match=message):
            ask()


@pytest.mark.parametrize("symmetry", SYMMETRIES)
def test_an_annealed_guide_is_bounded_by_its_whole_density(symmetry):
    wrapped = AutoSymmetrized(annealed, SYMMETRIES[symmetry], model=model, progress_bar=False)
    found = wrapped.elbo_bounds(KEY, params_of(annealed), Y, num_particles=1024, progress_bar=False)
    # E[log p(y, s, z) - log q(s, z)], all of it Gaussian
    z_loc, z_scale = 0.1, 0.8
    data = stats.norm.logpdf(0.5, 3 * z_loc, 1.0) - 0.5 * (3 * z_scale**2 + 1e-4)
    elbo = data - 3 * 0.5 * (z_scale**2 + z_loc**2 - 1.0 - 2.0 * math.log(z_scale))
    assert abs(found.lower - elbo) < 4 * found.lower_error
    assert found.importance_weighted < EVIDENCE + 4 * found.importance_weighted_error
