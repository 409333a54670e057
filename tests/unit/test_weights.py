"""Weights of an evidence: groups that are summed apart, against the definition, and what has none."""

import itertools

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoDiagonalNormal
from scipy.special import logsumexp

from numpyro_symmetry import AutoSymmetrized, Symmetry, SymmetryError, SymmetryWarning
from numpyro_symmetry.evidence import weights
from numpyro_symmetry.evidence.doubts import finite
from numpyro_symmetry.evidence.proposal import _warn_of_part

# units of two heads that stand on two axes of another site, so that guides lay out one level alone
LOC = {"units": np.array([[0.0, 0.5], [1.0, 1.7]]), "links": np.array([[0.1, 1.0], [-0.4, 0.3]])}
SCALE = {"units": np.array([[0.3, 0.5], [0.4, 0.6]]), "links": np.array([[0.5, 0.7], [0.8, 0.4]])}
PARAMS = {"loc": LOC, "scale": SCALE}
DRAWS = {site: loc + np.random.default_rng(0).normal(size=(6, 2, 2)) for site, loc in LOC.items()}
WITHIN = [np.array(g) for g in itertools.product([(0, 1), (1, 0)], repeat=2)]


def heads():
    for site in LOC:
        numpyro.sample(site, dist.Normal(0.0, 2.0).expand([2, 2]).to_event(2))


@pytest.fixture(scope="module")
def guide():
    symmetry = Symmetry({"units": ("head", "head/unit"), "links": ("head", "head")})
    guide = AutoSymmetrized(AutoDiagonalNormal(heads), symmetry, model=heads, check=False)
    guide.setup(jax.random.key(0))
    return guide


def log_weights(guide):
    params = {f"auto_{name}": np.concatenate([of[site].ravel() for site in LOC]) for name, of in PARAMS.items()}
    return weights.log_weights(guide, jax.random.key(0), params, [(DRAWS, False)]).total


def by_hand(orders):
    """Of every draw, its prior over the mean of the Gaussian at its copies."""
    log_q = []
    for order, g in itertools.product(orders, WITHIN):
        units = np.take_along_axis(DRAWS["units"][:, order], g[None], 2)
        copy = {"units": units, "links": DRAWS["links"][:, order][:, :, order]}
        log_q.append(sum(dist.Normal(LOC[s], SCALE[s]).log_prob(x).sum((-1, -2)) for s, x in copy.items()))
    prior = sum(dist.Normal(0.0, 2.0).log_prob(x).sum((-1, -2)) for x in DRAWS.values())
    return prior - (logsumexp(log_q, 0) - np.log(len(log_q)))


# the six draws in one call, and in two
@pytest.mark.parametrize("in_a_call", [256, 4])
@pytest.mark.filterwarnings("error::numpyro_symmetry.SymmetryWarning")
def test_weights_average_over_heads_that_move(guide, in_a_call, monkeypatch):
    monkeypatch.setattr(weights, "DRAWS_IN_A_CALL", in_a_call)
    np.testing.assert_allclose(log_weights(guide), by_hand([[0, 1], [1, 0]]), rtol=2e-5)
    _warn_of_part(guide)


def test_what_is_too_much_to_sum_apart_is_left_out_and_told(guide, monkeypatch):
    monkeypatch.setattr(weights, "_MAX_APART", 0.0)
    np.testing.assert_allclose(log_weights(guide), by_hand([[0, 1]]), rtol=2e-5)
    with pytest.warns(SymmetryWarning, match=r"Of log\|G\| = 2.1 nats the Gaussian is averaged over 1.4: .* 0.7 nats"):
        _warn_of_part(guide)


def test_draws_without_a_finite_weight_have_none():
    with pytest.warns(SymmetryWarning, match="3 of 5 draws of the proposal have a weight that is not finite"):
        found = finite(np.array([np.nan, 1.0, np.inf, -np.inf, np.nan]))
    np.testing.assert_array_equal(found, [-np.inf, 1.0, -np.inf, -np.inf, -np.inf])
    with pytest.raises(SymmetryError, match="No draw of the proposal has a positive density"):
        finite(np.full(3, -np.inf))
