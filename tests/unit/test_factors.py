"""Varimax of every draw, then signs and labels in one assignment."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from numpyro_symmetry import Symmetry, SymmetryError, rebase, varimax


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


def test_what_is_no_matrix_is_refused():
    with pytest.raises(SymmetryError, match="finite loadings"):
        varimax(np.full((3, 2), np.nan))
