"""Draws with labels that were switched on purpose, and the labels they had."""

from __future__ import annotations

import numpy as np

from numpyro_symmetry import Symmetry

MIXTURE = Symmetry.mixture("weights", "loc", "scale")
HMM = Symmetry.hmm(initial="initial", transition="transition", emissions=["loc"])
TANH = Symmetry.mlp([("w1", "b1"), ("w2", None)], kind="signed")


def mixture(chains=4, draws=200, separation=6.0, size=3, seed=0, dtype=np.float64):
    """Components well apart, every draw's labels at random: sites ``(chain, draw, K)``, and the true labels."""
    rng = np.random.default_rng(seed)
    shape = (chains, draws, size)
    logits = 0.3 * rng.standard_normal(shape)
    values = {
        "weights": np.exp(logits) / np.exp(logits).sum(-1, keepdims=True),
        "loc": separation * np.arange(size) + rng.standard_normal(shape),
        "scale": np.exp(0.2 * rng.standard_normal(shape)),
    }
    labels = rng.permuted(np.broadcast_to(np.arange(size), shape), axis=-1)
    return {s: np.take_along_axis(v, labels, -1).astype(dtype) for s, v in values.items()}, labels


def hmm(chains=2, draws=100, size=3, seed=0):
    """States told apart by their emissions; the transition matrix is relabelled on both axes."""
    rng = np.random.default_rng(seed)
    shape = (chains, draws, size)
    transition = rng.dirichlet(np.ones(size) + 8 * np.eye(size)[0], (chains, draws, size))
    values = {
        "initial": rng.dirichlet(np.ones(size), (chains, draws)),
        "transition": 0.1 * transition + 0.9 * np.array([[0.8, 0.15, 0.05], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]]),
        "loc": 4.0 * np.arange(size) + rng.standard_normal(shape),
    }
    labels = rng.permuted(np.broadcast_to(np.arange(size), shape), axis=-1)
    both = np.take_along_axis(values["transition"], labels[..., None], 2)
    moved = {
        "initial": np.take_along_axis(values["initial"], labels, -1),
        "transition": np.take_along_axis(both, labels[..., None, :], 3),
        "loc": np.take_along_axis(values["loc"], labels, -1),
    }
    return moved, values, labels


def tanh_units(draws=300, size=4, inputs=2, noise=0.1, seed=0):
    """Units of an odd network, exchanged and negated at random: sites ``(draw, ...)``, permutations, signs."""
    rng = np.random.default_rng(seed)
    centre = {"w1": rng.normal(size=(inputs, size)), "b1": rng.normal(size=size), "w2": rng.normal(size=(size, 1))}
    values = {s: v + noise * rng.standard_normal((draws, *v.shape)) for s, v in centre.items()}
    labels = rng.permuted(np.broadcast_to(np.arange(size), (draws, size)), axis=-1)
    signs = rng.choice([-1, 1], (draws, size))
    moved = {
        "w1": np.take_along_axis(values["w1"], labels[:, None], 2) * signs[:, None],
        "b1": np.take_along_axis(values["b1"], labels, 1) * signs,
        "w2": np.take_along_axis(values["w2"], labels[..., None], 1) * signs[..., None],
    }
    return moved, values


def autoregressive(rng, shape, correlation):
    """Stationary chains of unit variance, each number for itself: ``(chain, draw, entry)``."""
    values = rng.standard_normal(shape)
    for t in range(1, shape[1]):
        values[:, t] = correlation * values[:, t - 1] + np.sqrt(1.0 - correlation**2) * values[:, t]
    return values
