"""Coordinates are those that a guide drew: off a value that rounds to one neither they nor their slopes can be read."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.autoguide import (
    AutoDiagonalNormal,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)

from numpyro_symmetry import AutoSymmetrized, Symmetry
from numpyro_symmetry.guides import AutoUnitNormal
from numpyro_symmetry.guides.kinds import drawn_free

# what a unit is: from 1 - 1e-7 to 1 - 1e-8, and single precision has 1 - 6e-8 and one
LOC, SCALE = np.array([16.0, 17.0, 18.0]), np.array([0.7, 1.0, 0.8])
OF_UNITS = {
    "real": lambda: dist.Normal(0.0, 20.0).expand([3]).to_event(1),
    "unit interval": lambda: dist.Uniform(0.0, 1.0).expand([3]).to_event(1),
    "interval": lambda: dist.Uniform(-1.0, 3.0).expand([3]).to_event(1),
    "positive": lambda: dist.LogNormal(0.0, 20.0).expand([3]).to_event(1),
    "simplex": lambda: dist.Dirichlet(jnp.ones(2)).expand([3]).to_event(1),
}
COVARIANCE = {
    AutoNormal: lambda scale: {"x_auto_scale": scale},
    AutoDiagonalNormal: lambda scale: {"auto_scale": scale.ravel()},
    AutoMultivariateNormal: lambda scale: {"auto_scale_tril": np.diagflat(scale) + 0.3 * np.eye(3, k=-1)},
    AutoLowRankMultivariateNormal: lambda scale: {"auto_scale": scale.ravel(), "auto_cov_factor": 0.3 * np.eye(3, 2)},
}


def case(kind, of_units):
    def model():
        numpyro.sample("x", OF_UNITS[of_units]())

    by_hand = not isinstance(kind, type)
    base = (lambda: kind(of_units)) if by_hand else kind(model)
    symmetry = Symmetry({"x": ("unit", None) if of_units == "simplex" else ("unit",)})
    guide = AutoSymmetrized(base, symmetry, model=model, check=False, progress_bar=False).setup(jax.random.key(0))
    shape = (3, 1) if of_units == "simplex" else (3,)
    loc, scale = LOC.reshape(shape), SCALE.reshape(shape)
    if by_hand:
        params = {"loc": loc, "scale": scale}
    else:
        params = {"x_auto_loc": loc} if kind is AutoNormal else {"auto_loc": loc.ravel()}
        params |= COVARIANCE[kind](scale)
    return model, guide, {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}


def by_hand(of_units: str) -> None:
    """Units one after the other in disguise: nothing in it is known to factorise."""
    prior = OF_UNITS[of_units]()
    loc = numpyro.param("loc", jnp.zeros(3))
    scale = numpyro.param("scale", jnp.ones(3), constraint=dist.constraints.positive)
    transforms = [] if of_units == "real" else [biject_to(prior.support)]
    base = dist.MultivariateNormal(jnp.asarray(loc), scale_tril=jnp.diag(jnp.asarray(scale)))
    numpyro.sample("x", dist.TransformedDistribution(base, transforms) if transforms else base)


@cache
def information_and_slopes(kind, of_units):
    _, guide, params = case(kind, of_units)

    def information(params, key):
        trace = handlers.trace(handlers.seed(handlers.substitute(guide, params), key)).get_trace()
        return -trace["_symmetry_correction"]["fn"].log_factor

    of_draws = jax.jit(jax.vmap(jax.value_and_grad(information), (None, 0)))
    found, slopes = of_draws(params, jax.random.split(jax.random.key(1), 32))
    return np.asarray(found), jax.tree.map(lambda x: x.mean(0).ravel(), slopes)


CASES = [(AutoNormal, name) for name in OF_UNITS if name != "real"]
CASES += [(kind, "unit interval") for kind in (*list(COVARIANCE)[1:], by_hand)]


@pytest.mark.parametrize(("kind", "of_units"), CASES)
def test_information_does_not_depend_on_what_a_gaussian_is_pushed_through(kind, of_units):
    (found, slopes), (expected, of_expected) = (information_and_slopes(kind, name) for name in (of_units, "real"))
    assert expected.mean() > 0.5
    np.testing.assert_allclose(found, expected, atol=1e-3)
    for name, slope in of_expected.items():
        np.testing.assert_allclose(slopes[name], slope, atol=1e-3)


def test_what_was_drawn_is_known_of_draws_alone():
    _, guide, params = case(AutoNormal, "unit interval")
    prior = OF_UNITS["unit interval"]()
    supports = {"x": prior.support}
    with numpyro.handlers.trace() as drawn, numpyro.handlers.seed(rng_seed=0):
        with numpyro.handlers.substitute(data=params):
            guide.base()
    assert (drawn_free(guide.base, drawn, supports)["x"] > 10.0).all()
    given = drawn | {"x": drawn["x"] | {"intermediates": []}}
    assert drawn_free(guide.base, given, supports) == {}
    # a guide may reach the support otherwise, or from elsewhere
    elsewhere = drawn | {"x": drawn["x"] | {"fn": prior, "intermediates": [jnp.zeros(3)]}}
    assert drawn_free(guide.base, elsewhere, supports) == {}
    assert drawn_free(guide.base, drawn, {"x": dist.constraints.positive}) == {}


def drawn_by_unit(prior):
    """A draw of units whose second number follows the first, which lies at the border of its support if it has one."""

    def model():
        first: Any = numpyro.sample("first", prior.expand([3]).to_event(1))
        second: Any = numpyro.sample("second", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal((first * second).sum(), 1.0), obs=0.3)

    guide = AutoUnitNormal(model, symmetry=Symmetry({"first": ("unit",), "second": ("unit",)}))
    trace = handlers.trace(handlers.seed(guide, 0)).get_trace()
    params = {name: site["value"] for name, site in trace.items() if site["type"] == "param"}
    params |= {"first_auto_loc": jnp.asarray(LOC, float), "second_auto_coefficients": jnp.ones((1, 2, 3))}
    return handlers.trace(handlers.seed(handlers.substitute(guide, params), 1)).get_trace()["second"]["value"]


def test_a_units_other_numbers_follow_what_was_drawn():
    np.testing.assert_allclose(
        drawn_by_unit(dist.Uniform(0.0, 1.0)), drawn_by_unit(dist.Normal(0.0, 20.0)), rtol=1e-5, atol=1e-5
    )
