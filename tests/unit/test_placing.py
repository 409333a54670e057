"""Points about the centre of a prior lie where the prior does, however its distribution is written down."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from numpyro_symmetry import Symmetry, SymmetryError, check_symmetry, find_symmetry
from numpyro_symmetry.models.placing import substitute_points

NUMBER = 3
# a prior of three numbers -> where its middle is, and how far from there it goes, in units of the number itself
PRIORS = {
    "Normal": (dist.Normal(5.0, 1e3).expand([NUMBER]), 5.0, 1e3),
    "MultivariateNormal": (dist.MultivariateNormal(jnp.full(NUMBER, 5.0), 1e6 * jnp.eye(NUMBER)), 5.0, 1e3),
    "Student-t": (dist.StudentT(5.0, 5.0, 1e3).expand([NUMBER]), 5.0, 1e3 * np.sqrt(5 / 3)),
    "no variance": (dist.StudentT(1.5, 5.0, 1e3).expand([NUMBER]), 5.0, 1e3),
    "no mean": (dist.Cauchy(5.0, 1e-3).expand([NUMBER]), 5.0, 1e-3),
    "masked": (dist.Normal(jnp.full(NUMBER, 5.0), 1e3).mask(True), 5.0, 1e3),
}
POSITIVE = {
    "LogNormal": (dist.LogNormal(0.0, 5.0).expand([NUMBER]), 1.0, 5.0),
    "masked LogNormal": (dist.LogNormal(jnp.zeros(NUMBER), 5.0).mask(True), 1.0, 5.0),
    "HalfNormal": (dist.HalfNormal(1e3).expand([NUMBER]), 1e3 * np.sqrt(2 / np.pi), 1.0),
    "HalfCauchy": (dist.HalfCauchy(1e3).expand([NUMBER]), 1e3, 1.0),
}


def placed(fn, noise):
    """Points of a site, one for each row of noise."""

    def model():
        numpyro.sample("z", fn)

    def one(noise):
        with handlers.seed(rng_seed=0), handlers.substitute(substitute_fn=substitute_points({"z": noise})):
            return handlers.trace(model).get_trace()["z"]["value"]

    return np.asarray(jax.vmap(one)(noise))


@pytest.mark.parametrize("event", [False, True], ids=["batch", "event"])
@pytest.mark.parametrize("name", PRIORS)
def test_points_are_as_far_apart_as_the_prior(name, event):
    fn, middle, spread = PRIORS[name]
    noise = np.random.default_rng(0).normal(size=(200, NUMBER)).astype(np.float32)
    points = placed(fn.to_event(1) if event and not fn.event_dim else fn, noise)
    np.testing.assert_allclose((points - middle) / spread, noise, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("event", [False, True], ids=["batch", "event"])
@pytest.mark.parametrize("name", POSITIVE)
def test_positive_points_are_so_by_their_logarithms(name, event):
    fn, middle, spread = POSITIVE[name]
    noise = np.random.default_rng(0).normal(size=(200, NUMBER)).astype(np.float32)
    points = placed(fn.to_event(1) if event else fn, noise)
    np.testing.assert_allclose(np.log(points / middle) / spread, noise, rtol=1e-3, atol=1e-3)


def test_a_sphere_has_points_for_every_member_of_a_plate():
    fn = dist.ProjectedNormal(jnp.ones((1, 3))).expand([4])
    points = placed(fn, np.zeros((2, 12), np.float32))
    assert points.shape == (2, 4, 3)
    np.testing.assert_allclose(np.linalg.norm(points, axis=-1), 1.0, rtol=1e-5)
    assert len(np.unique(points[0], axis=0)) == 4


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e5])
def test_a_symmetry_is_judged_where_the_prior_lies(unit):
    """What tells one component apart does so on the prior's own scale."""

    def model(y, told_apart=True):
        z = numpyro.sample("loc", dist.Normal(0.0, unit).expand([3]).to_event(1)) / unit
        mean = jnp.tanh(z).sum() + (z[0] ** 4 if told_apart else 0.0)
        numpyro.sample("y", dist.Normal(mean, 1.0).expand([4]).to_event(1), obs=y)

    y, every = np.array([0.3, 1.2, -0.5, 2.0]), Symmetry({"loc": ("k",)})
    with pytest.raises(SymmetryError, match="not invariant"):
        check_symmetry(model, every, (y,))
    assert check_symmetry(lambda y: model(y, told_apart=False), every, (y,)).status == "passed"
    assert find_symmetry(lambda y: model(y, told_apart=False), (y,)).log_order() == pytest.approx(np.log(6.0))
