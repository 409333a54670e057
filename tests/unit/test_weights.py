"""Weights of an evidence: groups that are summed apart, against the definition, and what has none."""

import itertools
import math
from functools import partial

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoDiagonalNormal
from scipy.special import logsumexp

from numpyro_symmetry import AutoSymmetrized, Symmetry, SymmetryError, SymmetryWarning, log_permanent
from numpyro_symmetry.evidence import weights
from numpyro_symmetry.evidence.doubts import finite
from numpyro_symmetry.evidence.proposal import _warn_of_part

# units of two heads that stand on two axes of another site, so that guides lay out one level alone
LOC = {"units": np.array([[0.0, 0.5], [1.0, 1.7]]), "links": np.array([[0.1, 1.0], [-0.4, 0.3]])}
SCALE = {"units": np.array([[0.3, 0.5], [0.4, 0.6]]), "links": np.array([[0.5, 0.7], [0.8, 0.4]])}
PARAMS = {"loc": LOC, "scale": SCALE}
DRAWS = {site: loc + np.random.default_rng(0).normal(size=(6, 2, 2)) for site, loc in LOC.items()}
WITHIN = [np.array(g) for g in itertools.product([(0, 1), (1, 0)], repeat=2)]


def heads(num_units=2):
    for site, size in (("units", num_units), ("links", 2)):
        numpyro.sample(site, dist.Normal(0.0, 2.0).expand([2, size]).to_event(2))


def guide_of(model):
    symmetry = Symmetry({"units": ("head", "head/unit"), "links": ("head", "head")})
    return AutoSymmetrized(AutoDiagonalNormal(model), symmetry, model=model, check=False).setup(jax.random.key(0))


@pytest.fixture(scope="module")
def guide():
    return guide_of(heads)


def log_weights(guide, params=PARAMS, draws=DRAWS, *, own=False, **options):
    params = {f"auto_{name}": np.concatenate([of[site].ravel() for site in LOC]) for name, of in params.items()}
    batches = draws if isinstance(draws, list) else [draws]
    return weights.log_weights(guide, jax.random.key(0), params, [(one, own) for one in batches], **options).total


def by_hand(orders):
    """Of every draw, its prior over the mean of the Gaussian at its copies."""
    log_q = []
    for order, g in itertools.product(orders, WITHIN):
        units = np.take_along_axis(DRAWS["units"][:, order], g[None], 2)
        copy = {"units": units, "links": DRAWS["links"][:, order][:, :, order]}
        log_q.append(sum(dist.Normal(LOC[s], SCALE[s]).log_prob(x).sum((-1, -2)) for s, x in copy.items()))
    prior = sum(dist.Normal(0.0, 2.0).log_prob(x).sum((-1, -2)) for x in DRAWS.values())
    return prior - (logsumexp(log_q, 0) - np.log(len(log_q)))


def test_a_guide_that_is_not_set_up_has_none():
    guide = AutoSymmetrized(AutoDiagonalNormal(heads), Symmetry({"units": ("head", "head/unit")}), model=heads)
    with pytest.raises(SymmetryError, match=r"guide\.setup\(rng_key, \*model_args\)"):
        log_weights(guide)


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


def test_of_what_is_summed_apart_the_identity_alone_has_a_draws_own_label():
    """One relabelling that is proposed is right in the mean; a draw's own, improbable as it is here, says little."""
    rng = np.random.default_rng(3)
    shapes = {"units": (2, 11), "links": (2, 2)}
    loc, draw = ({site: 0.5 * rng.normal(size=shape) for site, shape in shapes.items()} for _ in range(2))
    scale = {"units": np.exp(1.5 * rng.normal(size=shapes["units"])), "links": np.ones((2, 2))}
    guide, params = guide_of(partial(heads, 11)), {"loc": loc, "scale": scale}
    draws = {site: np.broadcast_to(x, (200, *x.shape)) for site, x in draw.items()}
    prior = sum(dist.Normal(0.0, 2.0).log_prob(x).sum() for x in draw.values())

    def of_order(order):
        """Of heads in one order, the mean of the Gaussian over all orders of the units in them, by permanents."""
        links = dist.Normal(loc["links"], scale["links"]).log_prob(draw["links"][order][:, order]).sum()
        table = dist.Normal(loc["units"][:, None], scale["units"][:, None]).log_prob(draw["units"][order][..., None])
        return links + sum(log_permanent(x) for x in table) - 2 * math.lgamma(12)

    still, moved = of_order([0, 1]), of_order([1, 0])
    blind, own = (
        np.exp(prior - moved - log_weights(guide, params, draws, own=own, num_permutations=1)) for own in (False, True)
    )
    assert abs(blind.mean() - 0.5 * (1 + np.exp(still - moved))) < 4 * blind.std() / np.sqrt(200)
    assert abs(own.mean() - 0.5) < 4 * own.std() / np.sqrt(200)


def test_every_draw_has_relabellings_of_its_own_however_draws_are_batched(monkeypatch):
    guide, scale = guide_of(partial(heads, 11)), {"units": np.ones((2, 11)), "links": np.ones((2, 2))}
    loc = {"units": np.random.default_rng(0).normal(size=(2, 11)), "links": np.eye(2)}
    draws = {site: np.broadcast_to(x, (20, *x.shape)) for site, x in loc.items()}
    at_once = log_weights(guide, {"loc": loc, "scale": scale}, draws, num_permutations=1)
    assert len(np.unique(at_once)) == 20
    monkeypatch.setattr(weights, "DRAWS_IN_A_CALL", 4)
    parts = [{site: x[some] for site, x in draws.items()} for some in (slice(7), slice(7, None))]
    in_calls = log_weights(guide, {"loc": loc, "scale": scale}, parts, num_permutations=1)
    np.testing.assert_allclose(in_calls, at_once, rtol=1e-6)


def test_draws_without_a_finite_weight_have_none():
    with pytest.warns(SymmetryWarning, match="3 of 5 draws of the proposal have a weight that is not finite"):
        found = finite(np.array([np.nan, 1.0, np.inf, -np.inf, np.nan]))
    np.testing.assert_array_equal(found, [-np.inf, 1.0, -np.inf, -np.inf, -np.inf])
    with pytest.raises(SymmetryError, match="No draw of the proposal has a positive density"):
        finite(np.full(3, -np.inf))
