"""Chains of proposals over several groups: a distribution over elements, which signs never make worse."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import Symmetry
from numpyro_symmetry.entropy import Factorised, GaussianFactors, information
from numpyro_symmetry.entropy.factorised import _log_mixture, log_chain_of_identity, sample_chain

SITES = {"w1": (None, "a"), "w2": ("a", "b"), "w3": ("b",)}


def network(width, scale, shift, num_draws, signed=True):
    """Factors of a network with one input and one output, and draws of them."""
    shapes = {"w1": (1, width), "w2": (width, width), "w3": (width,)}
    rng = np.random.default_rng(0)
    loc = {site: jnp.asarray(shift + rng.normal(size=shape), jnp.float32) for site, shape in shapes.items()}
    factors = GaussianFactors(loc, {site: jnp.full(shape, scale) for site, shape in shapes.items()})
    noise = {site: rng.normal(size=(num_draws, *shape)) for site, shape in shapes.items()}
    draws = {site: loc[site] + scale * jnp.asarray(noise[site], jnp.float32) for site in shapes}
    return Symmetry(SITES, dict.fromkeys("ab", "signed") if signed else {}).bind(loc), factors, draws


@partial(jax.jit, static_argnums=0)
def informations(symmetry, factors, draws):
    """The sequential bound of every draw."""
    return jax.vmap(lambda draw: information(Factorised(factors), symmetry, draw, estimator="sequential"))(draws)


def test_a_signed_chain_is_a_distribution_and_its_draws_follow_it():
    symmetry, factors, draws = network(2, 0.7, 0.4, 1)
    draw = {site: value[0] for site, value in draws.items()}
    elements = symmetry.elements(max_order=64)

    @jax.jit
    def log_probability(element):
        return log_chain_of_identity(symmetry, factors, symmetry.apply(element, draw))

    expected = np.exp(np.asarray(jax.lax.map(log_probability, elements), float))
    np.testing.assert_allclose(expected.sum(), 1.0, rtol=1e-5)
    drawn, log_proposals = jax.jit(lambda key: sample_chain(key, symmetry, factors, draw, 4000))(jax.random.key(1))

    def codes(element):
        return np.concatenate([np.concatenate([*element[name]], -1) for name in symmetry.groups], -1)

    which = (codes(drawn)[:, None] == codes(elements)[None]).all(-1).argmax(1)
    np.testing.assert_allclose(np.exp(log_proposals), expected[which], rtol=1e-4)
    counts = np.bincount(which, minlength=len(expected))
    assert (np.abs(counts - 4000 * expected) <= 4.5 * np.sqrt(4000 * expected) + 1.0).all()


@pytest.mark.parametrize(
    ("scale", "shift"), [(0.3, 0.0), (0.3, 2.0), (3.0, 0.0), pytest.param(1.0, 0.0, marks=pytest.mark.slow)]
)
def test_signs_never_cost_the_bound(scale, shift):
    """Against permutations alone on the same draws; in the mean of paired differences."""
    bounds = []
    for signed in (True, False):
        symmetry, factors, draws = network(5, scale, shift, 200, signed)

        bounds.append(np.asarray(informations(symmetry, factors, draws), float))
    gained = bounds[0] - bounds[1]
    assert gained.mean() >= -1e-3 - 4 * gained.std() / math.sqrt(len(gained))
    if scale < 1.0:  # signs are told apart, which is worth nats
        assert gained.mean() > 1.0


@pytest.mark.parametrize("scale", [0.2, 2.0])
def test_signs_never_cost_the_bound_of_a_group_that_stands_twice(scale):
    rng = np.random.default_rng(1)
    loc = {"t": jnp.asarray(3.0 + rng.normal(size=(4, 4)), jnp.float32)}
    factors = GaussianFactors(loc, {"t": jnp.full((4, 4), scale)})
    draws = {"t": loc["t"] + scale * jnp.asarray(rng.normal(size=(200, 4, 4)), jnp.float32)}
    signed = Symmetry({"t": ("a", "a")}, {"a": "signed"}).bind(loc)
    bounds = []
    for symmetry in (signed, signed.without_signs()):
        log_identity = jax.jit(jax.vmap(lambda draw, part=symmetry: log_chain_of_identity(part, factors, draw)))
        bounds.append(symmetry.log_order() + np.asarray(log_identity(draws), float))
    gained = bounds[0] - bounds[1]
    assert gained.mean() >= -1e-3 - 4 * gained.std() / math.sqrt(len(gained))


def test_signs_that_are_told_leave_the_first_chain_its_weight():
    symmetry, factors, _ = network(5, 0.1, 2.0, 1)
    log_last, log_first = jax.jit(lambda factors: _log_mixture(symmetry, factors))(factors)
    assert log_last > -0.1
    np.testing.assert_allclose(np.exp(log_last) + np.exp(log_first), 1.0, rtol=1e-6)
