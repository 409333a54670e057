"""Varimax of every draw, then signs and labels in one assignment."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ortho_group

from numpyro_symmetry import DiagonalGaussian, Symmetry, SymmetryError, SymmetryWarning, rebase
from numpyro_symmetry.traces import prune, varimax

pytestmark = pytest.mark.usefixtures("strict_promotion")


def criterion(loadings):
    square = loadings**2
    return ((square**2).mean(-2) - square.mean(-2) ** 2).sum(-1)


@pytest.mark.parametrize("normalize", [False, True])
def test_no_small_rotation_improves_the_criterion(normalize):
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((20, 8, 3))
    rotated, rotation = varimax(loadings, normalize=normalize, tolerance=1e-9)
    np.testing.assert_allclose(
        rotation @ rotation.transpose(0, 2, 1), np.broadcast_to(np.eye(3), (20, 3, 3)), atol=1e-9
    )
    np.testing.assert_allclose(loadings @ rotation, rotated, atol=1e-9)

    def judged(x):
        return criterion(x / np.linalg.norm(x, axis=-1, keepdims=True) if normalize else x)

    best = judged(rotated)
    assert (best >= judged(loadings) - 1e-9).all()
    for i, j in ((0, 1), (0, 2), (1, 2)):
        for angle in (-0.02, 0.02):
            turn = np.eye(3)
            turn[[i, i, j, j], [i, j, i, j]] = np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)
            assert (judged(rotated @ turn) <= best + 1e-9).all()


def test_rotated_draws_end_alike_with_their_scores():
    rng = np.random.default_rng(1)
    simple = np.kron(np.eye(3), np.ones((4, 1))) * [1.0, 0.9, 0.8] + 0.02 * rng.standard_normal((12, 3))
    scores = rng.standard_normal((30, 3))
    turns = ortho_group.rvs(3, size=200, random_state=2)
    loadings, factors = simple @ turns, scores @ turns
    rotated, rotation = varimax(loadings)
    out = rebase({"loadings": rotated, "scores": factors @ rotation}, Symmetry.factor("loadings", "scores"))
    assert out.data["loadings"].std(0).max() < 1e-3
    assert out.data["scores"].std(0).max() < 1e-2
    product = out.data["loadings"] @ out.data["scores"].transpose(0, 2, 1)
    np.testing.assert_allclose(product, np.broadcast_to(simple @ scores.T, product.shape), atol=1e-6)


@pytest.mark.parametrize(
    ("loadings", "error", "message"),
    [
        (np.full((3, 2), np.nan), SymmetryError, "finite loadings"),
        (np.zeros((3, 0)), SymmetryError, r"not empty; got float64 of shape \(3, 0\)"),
        (np.zeros(3), SymmetryError, "shape"),
        (np.ones((3, 2)) * 1j, SymmetryError, "real"),
        (np.array([["a", "b"]]), SymmetryError, "real"),
        (np.ma.masked_array(np.ones((3, 2)), np.eye(3, 2)), SymmetryError, "'loadings' is a masked array"),
        ({"loadings": np.ones((3, 2))}, TypeError, r"the loadings alone, .* got a dict of \['loadings'\]"),
    ],
)
def test_what_is_no_matrix_is_refused(loadings, error, message):
    with pytest.raises(error, match=message):
        varimax(loadings)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_rotations_do_not_depend_on_units(unit, normalize):
    loadings = np.random.default_rng(0).normal(size=(3, 8, 3))
    near, far = (varimax(loadings * u, normalize=normalize) for u in (1.0, unit))
    np.testing.assert_allclose(far[0] / unit, near[0], atol=1e-9)
    np.testing.assert_allclose(far[1], near[1], atol=1e-9)


def test_rotations_that_have_not_settled_say_so(monkeypatch):
    monkeypatch.setattr("numpyro_symmetry.traces.factors._MAX_SWEEPS", 1)
    with pytest.warns(SymmetryWarning, match="in its last of 1 sweeps, which is not below the tolerance of 1e-06"):
        varimax(np.random.default_rng(0).normal(size=(3, 8, 3)))


def test_more_factors_than_variables_are_taken_for_a_transposed_matrix():
    loadings = np.random.default_rng(0).normal(size=(5, 2, 6))
    with pytest.warns(SymmetryWarning, match=r"k = 6 factors of p = 2 variables.*swapaxes\(loadings, -1, -2\)"):
        varimax(loadings)
    varimax(np.swapaxes(loadings, -1, -2))
    varimax(loadings[..., :2])


GAUSSIAN = DiagonalGaussian({"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([0.1, 3.0])})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (({"w": 1.0}, 0.5), TypeError, "prune expects a DiagonalGaussian.*got dict"),
        ((DiagonalGaussian, 0.5), TypeError, "prune expects a DiagonalGaussian"),
        ((GAUSSIAN, 1.5), SymmetryError, "keep is a share"),
        ((GAUSSIAN, "half"), SymmetryError, "keep is a share"),
        ((GAUSSIAN, 0.5, "w"), TypeError, "sites must be a tuple of names"),
        ((GAUSSIAN, 0.5, ("v",)), SymmetryError, "are not among"),
    ],
)
def test_what_cannot_be_pruned_is_refused(arguments, error, message):
    gaussian, keep, *sites = arguments
    with pytest.raises(error, match=message):
        prune(gaussian, keep, sites=sites[0] if sites else None)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_unknown_deviation_is_not_taken_for_a_large_one(bad):
    # made past its own checks, as a tree of transformed leaves is
    gaussian = object.__new__(DiagonalGaussian)
    for name, value in (("loc", {"w": np.ones(2)}), ("scale", {"w": np.array([0.1, bad])})):
        object.__setattr__(gaussian, name, value)
    with pytest.raises(SymmetryError, match="'w' of the Gaussian has 1 standard deviation that is not finite"):
        prune(gaussian, 0.5)


def test_no_sites_leave_all_as_they_are():
    np.testing.assert_array_equal(prune(GAUSSIAN, 0.0, sites=[])["w"], [1.0, 2.0])
