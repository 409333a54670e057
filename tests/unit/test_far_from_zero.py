"""Nothing but what is rounded beforehand depends on where zero is, where labels move values that signs do not."""

import jax
import numpy as np
import pytest

from numpyro_symmetry import (
    DiagonalGaussian,
    EuclideanCost,
    FullGaussian,
    GaussianCost,
    Symmetry,
    match,
)
from numpyro_symmetry.matching import nearest_transposition

# powers of two, to which values in steps of GRID are added without rounding
OFFSETS, GRID = (2.0**10, -(2.0**20), 2.0**28), 2.0**-16
OFFSETS_SINGLE, GRID_SINGLE = (2.0**7, -(2.0**11)), 2.0**-8
HIDDEN = Symmetry({"w": (None, "hidden"), "b": ("hidden",), "c": (None,)})
LAYERS = Symmetry({"w": ("in", "out"), "b": ("out",), "u": ("in",)})
PAIRS = Symmetry({"w": ("unit", "unit"), "b": ("unit",)})
UNITS = {"unit": ("unit",)}


def on_grid(values, grid=GRID):
    """Values rounded to steps of the grid."""
    return np.round(values / grid) * grid


def values_of(symmetry, seed, leading=(), spread=1.0):
    """Values of every site on the grid."""
    rng, sizes = np.random.default_rng(seed), {"hidden": 6, "in": 4, "out": 7, "unit": 5, None: 3}
    shapes = {site: tuple(sizes[entry] for entry in entries) for site, entries in symmetry.axes.items()}
    return {site: on_grid(spread * rng.normal(size=(*leading, *shape))) for site, shape in shapes.items()}


def far(values, offset):
    """Values by site, each of them moved by an offset."""
    return {site: x + offset for site, x in values.items()}


def near(symmetry, seed, leading=()):
    """Two sides whose labels differ: a target, and sources near it."""
    target = values_of(symmetry, seed)
    rng, bound = np.random.default_rng(seed), symmetry.bind(target)
    element = bound.sample(jax.random.key(seed), leading)
    noise = values_of(symmetry, seed + 1, leading, 0.3)
    wide = {site: np.broadcast_to(x, (*leading, *x.shape)) for site, x in target.items()}
    moved = bound.apply(element, wide)
    return target, {site: np.asarray(moved[site]) + noise[site] for site in target}, rng


def matched(symmetry, cost, *, scales=False, leading=(), method="auto"):
    """What `match` finds, as a function of the offset."""
    target, source, _ = near(symmetry, 0, leading)

    def side(values, seed, offset):
        if not scales:
            return far(values, offset)
        scale = {site: np.exp2(x.round()) for site, x in values_of(symmetry, seed).items()}
        return DiagonalGaussian(far(values, offset), scale)

    def found(offset):
        return match(side(target, 2, offset), side(source, 3, offset), symmetry, cost=cost, method=method)

    return found


def matched_with_covariance(offset):
    target, source, rng = near(HIDDEN, 0)
    size = sum(x.size for x in target.values())
    root = rng.normal(size=(2, size, size)) / np.sqrt(size)
    sides = (FullGaussian(far(x, offset), a @ a.T) for x, a in zip((target, source), root, strict=True))
    return match(*sides, HIDDEN)


def nearest(symmetry, kinds=None):
    values = values_of(symmetry, 0)
    return lambda offset: nearest_transposition(far(values, offset), symmetry)


def nearest_beside_signs(offset):
    # signs change one site and leave the other alone, which may lie anywhere
    symmetry = Symmetry({"odd": ("unit",), "even": ("unit~",)}, {"unit": "signed"})
    values = {"odd": on_grid(np.array([1.0, -2.0, 3.0])), "even": on_grid(np.array([0.5, 0.7, -1.0])) + offset}
    return nearest_transposition(values, symmetry)


LAWS = {
    "match points": matched(HIDDEN, "euclidean"),
    "match many points": matched(HIDDEN, "wasserstein", leading=(2, 3)),
    "match two layers": matched(LAYERS, "euclidean"),
    "match two layers by Frank-Wolfe": matched(LAYERS, "euclidean", method="frank_wolfe"),
    "match pairs": matched(PAIRS, "euclidean"),
    "match Gaussians by distance": matched(HIDDEN, "wasserstein", scales=True),
    "match Gaussians by density": matched(HIDDEN, "log_density", scales=True),
    "match Gaussians by divergence": matched(LAYERS, "kl", scales=True),
    "match Gaussians with covariances": matched_with_covariance,
    "match by EuclideanCost": matched(HIDDEN, EuclideanCost()),
    "match by GaussianCost": matched(HIDDEN, GaussianCost("identity")),
    "nearest transposition": nearest(HIDDEN),
    "nearest of two layers": nearest(LAYERS),
    "nearest of pairs": nearest(PAIRS),
}


def same(found, expected, rtol):
    """Assert that two results are the same up to rounding, which is relative to the largest number of an array."""
    leaves, others = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(leaves) == len(others)
    for one, other in zip(leaves, others, strict=True):
        one, other = np.asarray(one, float), np.asarray(other, float)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max(initial=0.0))


@pytest.mark.parametrize("law", LAWS)
def test_results_do_not_depend_on_where_zero_is(law):
    expected = LAWS[law](0.0)
    for offset in OFFSETS:
        same(LAWS[law](offset), expected, 1e-11)
