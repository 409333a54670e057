"""Gates in turns, and real and imaginary parts: an axis by steps is one of units and of the places in each."""

import jax
import numpy as np
import pytest

from numpyro_symmetry import find_symmetry

RNG = np.random.default_rng(0)
X, PARAMS = (
    RNG.normal(size=(5, 3)).astype(np.float32),
    {name: RNG.normal(size=size).astype(np.float32) for name, size in {"w": (3, 8), "b": (8,), "v": (4, 2)}.items()},
)


def preactivations(params, x):
    """Two for each of four units."""
    return x @ params["w"] + params["b"]


def by_slices(params, x):
    """A gated layer."""
    z = preactivations(params, x)
    return (z[..., ::2] * jax.nn.softplus(z[..., 1::2])) @ params["v"]


def by_indices(params, x):
    """The same, with constant indices."""
    z = preactivations(params, x)
    return (z[..., np.arange(0, 8, 2)] * jax.nn.softplus(z[..., np.arange(1, 8, 2)])) @ params["v"]


def of_a_derivative(params, x):
    """Its derivative backwards, in which parts are padded between."""
    return jax.vmap(jax.jacrev(lambda row: by_slices(params, row)))(x)


def one_of_four(params, x):
    """Places of which one is like no other, and two are alike: units of four, and no others."""
    z = preactivations(params, x)
    return (jax.nn.softplus(z[..., ::4]) + z[..., 1::4] * z[..., 2::4]) @ params["v"].reshape(2, 4)


@pytest.mark.parametrize(
    ("function", "size", "steps"), [(by_slices, 4, 2), (by_indices, 4, 2), (of_a_derivative, 4, 2), (one_of_four, 2, 4)]
)
def test_units_in_turns_are_one_each(function, size, steps):
    found = find_symmetry(function, (PARAMS, X), argnum=0, signs=False)
    ((name, group),) = found.groups.items()
    assert str(group) == f"S{size}"
    turned = {name: np.r_[1:size, 0]}
    moved = found.apply(turned, PARAMS)
    order = np.arange(8).reshape(size, steps)[np.r_[1:size, 0]].ravel()
    np.testing.assert_array_equal(moved["w"], PARAMS["w"][:, order])
    np.testing.assert_array_equal(moved["b"], PARAMS["b"][order])
    np.testing.assert_allclose(function(moved, X), function(PARAMS, X), rtol=1e-4, atol=1e-4)


def halves_too(params, x):
    """Of the same axis the first half is read as well."""
    z = preactivations(params, x)
    return by_slices(params, x) + z[..., :4] @ params["v"]


def behind_the_first(params, x):
    """Steps that begin within the second turn, and end before the last."""
    return jax.nn.softplus(preactivations(params, x)[..., 3:8:2]) @ params["v"][:3] + preactivations(params, x)[..., :2]


def in_turns_of_three(params, x):
    """Steps that do not divide the axis."""
    return jax.nn.softplus(preactivations(params, x)[..., ::3]) @ params["v"][:3] + preactivations(params, x).sum()


@pytest.mark.parametrize("function", [halves_too, in_turns_of_three, behind_the_first])
def test_what_is_no_unit_is_none(function):
    found = find_symmetry(function, (PARAMS, X), argnum=0, signs=False)
    moved = found.apply(found.sample(jax.random.key(1)), PARAMS)
    np.testing.assert_allclose(function(moved, X), function(PARAMS, X), rtol=1e-4, atol=1e-4)
    assert not any(group.orbit_sizes == (4,) for group in found.groups.values())
