"""I(g; θ) where blocks move, and units in each: against enumeration of (S2)³ ⋊ S3 and its like."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp

from numpyro_symmetry import Symmetry, Unsigned
from numpyro_symmetry.entropy.densities import Factorised
from numpyro_symmetry.entropy.nested import log_nested_of_identity, sample_nested
from numpyro_symmetry.entropy.of_draw import information
from numpyro_symmetry.entropy.tables import GaussianFactors

CASES = {
    "(S2)^3 x S3": (
        Symmetry({"w": ("a", None, "a/b"), "v": ("a",), "u": (None, "a")}),
        {"w": (3, 2, 2), "v": (3,), "u": (1, 3)},
    ),
    "(S3)^2 x S2": (Symmetry({"w": ("a", None, "a/b"), "v": ("a",)}), {"w": (2, 2, 3), "v": (2,)}),
    "two groups of units in each block": (
        Symmetry({"w": ("a", "a/b", None), "v": (None, "a", "a/c")}),
        {"w": (2, 2, 1), "v": (2, 2, 2)},
    ),
    "units that meet": (Symmetry({"w": ("a", "a/b", "a/c"), "v": ("a", "a/b")}), {"w": (2, 2, 2), "v": (2, 2)}),
    "signed units": (
        Symmetry({"w": ("a", None, "a/b"), "s": ("a", Unsigned("a/b"))}, {"a/b": "signed"}),
        {"w": (2, 1, 2), "s": (2, 2)},
    ),
}


def case(name, spread, seed=0):
    symmetry, shapes = CASES[name]
    rng = np.random.default_rng(seed)
    loc = {site: jnp.asarray(spread * rng.normal(size=shape), jnp.float32) for site, shape in shapes.items()}
    scale = {site: jnp.asarray(np.exp(0.3 * rng.normal(size=shape)), jnp.float32) for site, shape in shapes.items()}
    factors = GaussianFactors(loc, scale)
    return symmetry.bind(loc), factors, lambda key: draw_of(factors, key)


def draw_of(factors, key):
    keys = dict(zip(factors.loc, jax.random.split(key, len(factors.loc)), strict=True))
    return {s: x + factors.scale[s] * jax.random.normal(keys[s], x.shape) for s, x in factors.loc.items()}


@pytest.mark.parametrize("name", CASES)
def test_the_proposal_is_a_distribution_that_does_not_see_the_label(name):
    symmetry, _, _ = case(name, 1.0)
    log_probability = jax.jit(lambda f, moved: jax.lax.map(lambda v: log_nested_of_identity(symmetry, f, v), moved))
    for spread in (0.3, 2.0):
        _, factors, draw = case(name, spread)
        moved = symmetry.apply(symmetry.elements(), draw(jax.random.key(1)))
        # an element is as probable as the identity is where the element has moved the draw to
        assert float(logsumexp(log_probability(factors, moved))) == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_elements_are_drawn_as_often_as_they_are_probable(name):
    symmetry, factors, draw = case(name, 0.5)
    values = draw(jax.random.key(2))

    @jax.jit
    def both(key):
        elements, logs = sample_nested(key, symmetry, factors, values, 4)
        return logs, jax.lax.map(
            lambda x: log_nested_of_identity(symmetry, factors, x), symmetry.apply(elements, values)
        )

    logs, again = both(jax.random.key(3))
    assert np.asarray(logs) == pytest.approx(np.asarray(again), abs=1e-4)


@pytest.mark.parametrize("name", ["(S2)^3 x S3", "signed units"])
def test_bounds_are_on_their_side_of_the_enumerated_information(name):
    symmetry, _, _ = case(name, 1.0)

    @jax.jit
    def estimates(keys, factors):
        def one(key):
            key_draw, key_estimate = jax.random.split(key)
            values, density = draw_of(factors, key_draw), Factorised(factors)
            exact = information(density, symmetry, values, estimator="exact")
            sequential = information(density, symmetry, values, estimator="sequential")
            both = information(density, symmetry, values, estimator="importance", rng_key=key_estimate, bound="both")
            return jnp.stack([exact, sequential, *both])

        return jax.lax.map(one, keys)

    keys = jax.random.split(jax.random.key(0), 300)
    for spread in (0.3, 1.0, 3.0):
        exact, sequential, lower, upper = np.asarray(estimates(keys, case(name, spread)[1]), float).T
        allowed = 4.0 / np.sqrt(len(keys))
        assert (sequential - exact).mean() < allowed * (sequential - exact).std() + 1e-4
        assert (lower - exact).mean() < allowed * (lower - exact).std() + 1e-4
        assert (upper - exact).mean() > -allowed * (upper - exact).std() - 1e-4
        assert exact.mean() < symmetry.log_order() + 1e-4
        # as tight as on one level
        assert sequential.mean() > exact.mean() - 0.05 * symmetry.log_order()
    # both levels count where each can be told: one alone is worth less (units of one number are not told so well)
    assert (
        name == "signed units"
        or sequential.mean() > max(symmetry.restrict([name]).log_order() for name in symmetry.groups) + 0.1
    )


@pytest.mark.parametrize("name", ["(S3)^2 x S2", "signed units"])
def test_of_few_blocks_of_few_units_the_sequential_bound_is_exact(name):
    """In every draw: both levels are placed by their posterior."""
    for spread in (0.3, 2.0):
        symmetry, factors, draw = case(name, spread)
        density = Factorised(factors)
        for values in map(draw, jax.random.split(jax.random.key(4), 3)):
            exact, found = (information(density, symmetry, values, estimator=how) for how in ("exact", "sequential"))
            assert float(found) == pytest.approx(float(exact), abs=1e-4)
