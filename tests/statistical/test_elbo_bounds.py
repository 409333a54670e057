"""No reported ELBO exceeds a known log evidence, and the one that should equal it does."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO, autoguide, init_to_value

from numpyro_symmetry import AutoSymmetrized, Symmetry, testing
from tests.support.tables import ESTIMATOR_NAMES, GUIDES

OVERLAPPING = testing.exchangeable_gaussian(num_units=4, separation=0.4, scale=0.3, log_evidence=-3.0)
(CENTRES,) = OVERLAPPING.model_args
NEAR = {"init_loc_fn": init_to_value(values={"units": jnp.asarray(CENTRES, jnp.float32)}), "init_scale": 0.3}


def by_hand(centres):
    loc = numpyro.param("loc", jnp.asarray(centres))
    first = numpyro.param("scale", 0.3, constraint=dist.constraints.positive)
    numpyro.sample("units", dist.Normal(loc, first).to_event(2))


def base_guide(name, model):
    return by_hand if name == "by hand" else GUIDES[name](model, **NEAR)


def elbo(base, estimator, steps=0, count=1000):
    guide = AutoSymmetrized(
        base_guide(base, OVERLAPPING.model),
        OVERLAPPING.symmetry,
        model=OVERLAPPING.model,
        estimator=estimator,
        num_permutations=4,
        check=False,
    )
    guide.setup(jax.random.key(0), *OVERLAPPING.model_args)
    svi = SVI(OVERLAPPING.model, guide, optax.adam(1e-2), Trace_ELBO())
    state = jax.jit(svi.init)(jax.random.key(0), *OVERLAPPING.model_args)
    if steps:
        state = jax.lax.fori_loop(0, steps, lambda _, s: svi.update(s, *OVERLAPPING.model_args)[0], state)
    params = svi.get_params(state)

    def one(key):
        return -Trace_ELBO().loss(key, params, OVERLAPPING.model, guide, *OVERLAPPING.model_args)

    values = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), count)))
    return values.mean(), values.std() / np.sqrt(count)


def pairs():
    """Every estimator by a table and by ratios, and every guide once; the other pairs take the same two paths."""
    once = {
        "AutoDiagonalNormal": "sequential",
        "AutoLowRank": "importance",
        "AutoIAFNormal": "infonce",
        "AutoGuideList": "sequential",
        "by hand": "importance",
    }
    for base, estimator in itertools.product([*GUIDES, "by hand"], ESTIMATOR_NAMES):
        is_fast = once.get(base, estimator) == estimator
        marks = () if is_fast else pytest.mark.slow
        yield pytest.param(base, estimator, id=f"{base}-{estimator}", marks=marks)


@pytest.mark.parametrize(("base", "estimator"), list(pairs()))
def test_no_elbo_exceeds_the_evidence(base, estimator):
    mean, error = elbo(base, estimator)
    assert mean <= OVERLAPPING.log_evidence + 4 * error + 1e-4


@pytest.mark.parametrize("base", ["AutoNormal", "AutoIAFNormal"])
@pytest.mark.parametrize("estimator", ["auto", pytest.param("infonce", marks=pytest.mark.slow)])
def test_nor_after_training(base, estimator):
    mean, error = elbo(base, estimator, steps=1000)
    assert mean <= OVERLAPPING.log_evidence + 4 * error + 1e-4


def test_the_exact_guide_attains_the_evidence_on_every_draw():
    mean, error = elbo("AutoNormal", "exact", count=100)
    np.testing.assert_allclose(mean, OVERLAPPING.log_evidence, atol=1e-4)
    assert error < 1e-5
    # and bare, the same guide is short of it by what telling the copies apart costs
    bare = autoguide.AutoNormal(OVERLAPPING.model, **NEAR)
    svi = SVI(OVERLAPPING.model, bare, optax.adam(1e-2), Trace_ELBO(num_particles=500))
    (centres,) = OVERLAPPING.model_args
    loss = jax.jit(lambda key: svi.evaluate(svi.init(key, centres), centres))(jax.random.key(0))
    assert loss > -OVERLAPPING.log_evidence + 0.5


@functools.cache
def guide_of(base, model, symmetry):
    return AutoSymmetrized(base(model), symmetry, model=model, check=False)


def bounds_at(posterior, scales, *, num_particles=512):
    """Bounds of Gaussians about the centres, by key and scale; weighed by two permutations where there are many."""
    many = posterior is MANY
    base = autoguide.AutoMultivariateNormal if many else autoguide.AutoNormal
    guide = guide_of(base, posterior.model, posterior.symmetry)
    (centres,) = (jnp.asarray(a, jnp.float32) for a in posterior.model_args)
    if guide.layout is None:
        guide.setup(jax.random.key(0), centres)
    for key, scale in scales:
        if many:
            params = {"auto_loc": centres.ravel(), "auto_scale_tril": scale * jnp.eye(centres.size)}
        else:
            params = {"units_auto_loc": centres, "units_auto_scale": jnp.full_like(centres, scale)}
        options = {"num_particles": num_particles, "num_permutations": 2}
        yield guide.elbo_bounds(jax.random.key(key), params, centres, **options)


# no table and 720 elements: weights hold two relabellings, one of which is the identity
MANY = testing.exchangeable_gaussian(num_units=6, separation=0.4, scale=0.3, log_evidence=-3.0)


def test_importance_weights_have_the_evidence_as_their_mean():
    (bounds,) = bounds_at(MANY, [(0, 0.33)], num_particles=2048)
    assert bounds.width > 0.0
    assert bounds.pareto_shape < 0.7
    assert bounds.effective_number > 100
    assert bounds.lower < bounds.importance_weighted
    assert abs(bounds.importance_weighted - MANY.log_evidence) < 4 * bounds.importance_weighted_error
    # few draws bound it from below: the mean of many such means, each over two draws
    weights = bounds.particles.log_weight + bounds.particles.information[:, 0]
    pairs = np.logaddexp(*weights.reshape(2, -1)) - np.log(2)
    error = pairs.std() / len(pairs) ** 0.5
    assert bounds.lower < pairs.mean() + 4 * error
    assert pairs.mean() < MANY.log_evidence + 4 * error


def test_width_and_information_have_errors_of_their_own():
    repeated = [*bounds_at(MANY, [(key, 0.33) for key in range(12)], num_particles=64)]

    for value, error in (
        (lambda b: b.width, lambda b: b.width_error),
        (lambda b: b.mutual_information[0], lambda b: b.mutual_information_error[0]),
        (lambda b: b.mutual_information[1], lambda b: b.mutual_information_error[1]),
        (lambda b: b.importance_weighted, lambda b: b.importance_weighted_error),
    ):
        # twelve values know their spread to a fifth
        assert np.std([value(b) for b in repeated], ddof=1) / np.mean([error(b) for b in repeated]) == pytest.approx(
            1.0, abs=0.7
        )
    assert all(b.upper - b.lower == pytest.approx(b.width, abs=1e-9) for b in repeated)


def test_two_fits_are_compared_on_the_same_draws():
    first, second, other, fewer = (
        *bounds_at(OVERLAPPING, [(0, 0.3), (0, 0.36), (1, 0.36)]),
        *bounds_at(OVERLAPPING, [(0, 0.36)], num_particles=32),
    )
    paired, unpaired = first.minus(second), first.minus(other)
    assert paired.lower == paired.upper == pytest.approx(first.lower - second.lower)
    assert paired.lower > 5 * paired.lower_error > 0
    error = np.hypot(paired.lower_error, unpaired.lower_error)
    assert abs(paired.lower - unpaired.lower) < 4 * error
    # the first guide is exact, draw by draw, so that its ELBO has no noise to share; the base guides' have
    assert paired.base_elbo_error <= unpaired.base_elbo_error * 1.2
    assert str(paired).endswith("nats (512 pairs of draws)")
    with pytest.raises(ValueError, match="same num_particles"):
        first.minus(fewer)
    with pytest.raises(TypeError, match="ElboBounds of another fit; got float"):
        first.minus(-3.0)


def test_an_exact_sum_gives_both_ends_alike_in_one_line():
    (bounds,) = bounds_at(OVERLAPPING, [(0, 0.3)], num_particles=64)
    assert (bounds.lower, bounds.lower_error) == (bounds.upper, bounds.upper_error)
    assert bounds.mutual_information[0] == bounds.mutual_information[1] <= bounds.log_order
    assert bounds.width == bounds.width_error == 0.0
    assert "\n" not in repr(bounds)
    assert str(bounds).startswith("-3.00 ± 0.00 … -3.00 ± 0.00 nats (I = ")
    assert "64 draws; importance-weighted -3.00 ± 0.00, Pareto shape" in str(bounds)


def test_units_far_apart_do_not_push_the_lower_end_above_the_upper():
    far = testing.exchangeable_gaussian(num_units=4, separation=50.0, scale=0.3, log_evidence=-3.0)
    (bounds,) = bounds_at(far, [(0, 0.3)], num_particles=64)
    assert bounds.lower == bounds.upper
    assert bounds.mutual_information == (bounds.log_order, bounds.log_order)


@pytest.mark.parametrize("base", ["AutoNormal", "AutoMultivariateNormal"])
def test_a_weight_that_a_site_has_in_the_model_alone_counts(base):
    """Closed forms of divergences weigh both densities alike; a tempered prior has a weight that its guide lacks."""

    def model():
        with numpyro.handlers.scale(scale=3.0):
            units = numpyro.sample("units", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(units.sum(), 1.0), obs=0.4)

    near = {"init_loc_fn": init_to_value(values={"units": jnp.array([0.3, -0.2])}), "init_scale": 0.7}
    guide = AutoSymmetrized(GUIDES[base](model, **near), Symmetry.mixture("units"), model=model)
    guide.setup(jax.random.key(0))
    svi = SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
    params = svi.get_params(svi.init(jax.random.key(0)))
    found = guide.elbo_bounds(jax.random.key(1), params, num_particles=4000)
    mean, variance = np.array([0.3, -0.2]), 0.49
    prior = -0.5 * (mean**2 + variance).sum() - np.log(2 * np.pi)
    likelihood = -0.5 * ((mean.sum() - 0.4) ** 2 + 2 * variance + np.log(2 * np.pi))
    entropy = 1.0 + np.log(2 * np.pi * variance)
    assert abs(found.base_elbo - (3.0 * prior + likelihood + entropy)) < 4.5 * found.base_elbo_error
    assert found.base_elbo_error < 0.2
