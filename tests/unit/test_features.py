"""How many features the sequential bound has to see, against the bound itself on draws of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import Symmetry
from numpyro_symmetry.entropy import (
    Factorised,
    GaussianFactors,
    General,
    enough_features,
    information,
    sequential_parts,
    widest_site,
)

NUM_INPUTS, NUM_UNITS = 300, 40


def layer(separation, *, num_inputs=NUM_INPUTS, num_units=NUM_UNITS, num_draws=8, seed=0):
    """Means that differ by a multiple of the standard deviation in every input, and draws of them."""
    rng = np.random.default_rng(seed)
    loc = jnp.asarray(0.1 * separation * rng.normal(size=(num_inputs, num_units)), jnp.float32)
    scale = jnp.full_like(loc, 0.1)
    draws = loc + scale * jnp.asarray(rng.normal(size=(num_draws, *loc.shape)), jnp.float32)
    symmetry = Symmetry({"w": (None, "unit")}).bind({"w": loc})
    return symmetry, GaussianFactors({"w": loc}, {"w": scale}), {"w": draws}


def shortfalls(symmetry, factors, draws, *counts):
    """How much lower the bound of every draw is than with all features, nats, for each number of them."""

    def bound(draw, max_features):
        return information(Factorised(factors), symmetry, draw, estimator="sequential", max_features=max_features)

    def lost(draw):
        of_all = bound(draw, None)
        return jnp.stack([of_all - bound(draw, count) for count in counts])

    return np.asarray(jax.jit(lambda draws: jax.lax.map(lost, draws))(draws)).T


def test_alike_units_are_given_the_features_that_tell_them_apart():
    symmetry, factors, draws = layer(0.35)
    count = enough_features([symmetry], factors, draws)
    fresh = {"w": layer(0.35, num_draws=200)[2]["w"][8:]}
    assert count == 128
    fewer, enough = shortfalls(symmetry, factors, fresh, 64, count)
    assert fewer.mean() > 0.5 + 3 * fewer.std(ddof=1) / len(fewer) ** 0.5
    assert enough.mean() < 0.5 + 3 * enough.std(ddof=1) / len(enough) ** 0.5


def test_every_number_of_features_is_tried_before_all_are_taken():
    symmetry, factors, draws = layer(0.2)
    assert shortfalls(symmetry, factors, draws, 256).mean() > 0.5
    assert enough_features([symmetry], factors, draws) is None


@pytest.mark.parametrize("separation", [0.0, 5.0])
def test_units_that_are_distinct_or_the_same_need_the_fewest(separation):
    symmetry, factors, draws = layer(separation)
    assert enough_features([symmetry], factors, draws) == 64


def test_what_is_harmless_grows_with_the_group():
    symmetry, factors, draws = layer(0.4)
    lost = shortfalls(symmetry, factors, draws, 64, 128).mean(1)
    assert lost[1] < 0.5 < lost[0]
    assert enough_features([symmetry], factors, draws) == 128
    # a group whose thousandth is more than that, beside it and distinct
    size = 600
    many = Symmetry({"v": (None, "other")}).bind({"v": jnp.zeros((1, size))})
    far = jnp.arange(float(size))[None]
    together = GaussianFactors(factors.loc | {"v": 100.0 * far}, factors.scale | {"v": jnp.ones((1, size))})
    assert 0.5 < lost[0] < 1e-3 * many.log_order()
    beside = draws | {"v": jnp.broadcast_to(100.0 * far, (8, 1, size))}
    assert enough_features([symmetry, many], together, beside) == 64


def test_features_tell_units_apart_by_how_far_they_are_for_their_widths():
    rng = np.random.default_rng(0)
    # the first twenty are close together and narrow, the others far apart and far wider
    width = np.where(np.arange(NUM_INPUTS) < 20, 0.05, 50.0)[:, None]
    apart = np.where(np.arange(NUM_INPUTS) < 20, 0.1, 1.0)[:, None]
    loc = jnp.asarray(apart * rng.normal(size=(NUM_INPUTS, NUM_UNITS)), jnp.float32)
    scale = jnp.broadcast_to(jnp.asarray(width, jnp.float32), loc.shape)
    draws = {"w": loc + scale * jnp.asarray(rng.normal(size=(8, *loc.shape)), jnp.float32)}
    symmetry = Symmetry({"w": (None, "unit")}).bind({"w": loc})
    assert enough_features([symmetry], GaussianFactors({"w": loc}, {"w": scale}), draws) == 64


def test_narrow_sites_are_not_evaluated():
    symmetry, factors, _ = layer(0.3, num_inputs=64)
    assert enough_features([symmetry], factors, {"w": "no draws"}) is None


def test_a_bound_that_is_no_number_takes_all():
    symmetry, factors, draws = layer(5.0)
    assert enough_features([symmetry], factors, {"w": draws["w"].at[0, 0, 0].set(jnp.nan)}) is None


def test_features_are_counted_at_a_groups_turn():
    chain = Symmetry({"w1": (None, "a"), "w2": ("a", "b"), "w3": ("b", None)})
    shapes = {"w1": (3, 90), "w2": (90, 70), "w3": (70, 5)}
    bound = chain.bind({site: np.zeros(shape) for site, shape in shapes.items()})
    assert widest_site([bound], shapes) == 90  # w2, once a is placed: before, it is one sketch
    only_b = bound.restrict(["b"])
    assert widest_site([only_b], {site: shapes[site] for site in only_b.axes}) == 90
    only_a = bound.restrict(["a"])
    assert widest_site([only_a], {site: shapes[site] for site in only_a.axes}) == 70
    assert widest_site([], {}) == 0
    # where a group stands twice its own other axis is one sketch
    square = Symmetry({"move": ("state", "state")}).bind({"move": np.zeros((90, 90))})
    assert widest_site([square], {"move": (90, 90)}) == 1


@pytest.mark.parametrize(
    ("estimator", "exact_table", "expected"),
    [
        ("auto", True, [40]),
        ("sequential", True, [40, 3]),
        ("sequential", False, [43]),
        ("auto", False, [43]),
        ("importance", True, []),
        ("infonce", True, []),
    ],
)
def test_only_what_is_bounded_sequentially_counts(estimator, exact_table, expected):
    symmetry = Symmetry({"w": (None, "unit"), "z": ("state",)}).bind({"w": np.zeros((300, 40)), "z": np.zeros(3)})
    components = sequential_parts(estimator, symmetry, Factorised if exact_table else General)
    assert [sum(component.sizes.values()) for component in components] == expected
