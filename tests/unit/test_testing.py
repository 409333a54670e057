"""The exact answers of `numpyro_symmetry.testing`, each against an independent estimate."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density

from numpyro_symmetry import testing

POSTERIORS = {
    "exchangeable_gaussian": lambda: testing.exchangeable_gaussian(),
    "exchangeable_gaussian, offset": lambda: testing.exchangeable_gaussian(num_units=3, dim=1, log_evidence=-7.5),
    "enumerable_mixture": lambda: testing.enumerable_mixture(),
    "enumerable_mixture, three": lambda: testing.enumerable_mixture(num_components=3, num_data=5),
    "two_weight_network": lambda: testing.two_weight_network(),
    "tiny_network": lambda: testing.tiny_network(),
    "tiny_network, deep and odd": lambda: testing.tiny_network(hidden=(3, 2), activation="tanh"),
    "hidden_markov": lambda: testing.hidden_markov(),
    "dirichlet_mixture": lambda: testing.dirichlet_mixture(),
}


def log_joint(posterior):
    return lambda values: log_density(posterior.model, posterior.model_args, {}, values)[0]


def some_values(symmetry, num_inputs=1, seed=1):
    """Values in the support of every site: simplices by name, positive scales, anything else Gaussian."""
    rng = np.random.default_rng(seed)
    sizes = {name: group.size for name, group in symmetry.groups.items()}
    values = {}
    for site, entries in symmetry.axes.items():
        shape = tuple(num_inputs if entry is None else sizes[entry] for entry in entries)
        if site in ("weights", "initial", "transition"):
            values[site] = jnp.asarray(rng.dirichlet(np.ones(shape[-1]), shape[:-1]))
        else:
            values[site] = jnp.asarray(np.exp(rng.normal(size=shape)) if site == "scale" else rng.normal(size=shape))
    return values


@pytest.mark.parametrize("build", POSTERIORS.values(), ids=POSTERIORS.keys())
def test_log_joint_is_invariant(build, precision):
    posterior = build()
    values = some_values(posterior.symmetry, num_inputs=2 if "units" in posterior.symmetry.axes else 1)
    if posterior.description.startswith("3 exchangeable"):
        values = {"units": values["units"][:, :1]}
    missing = {f"b{len(values) // 2 + 1}": jnp.zeros(1)} if "w1" in values else {}
    values |= missing
    joint = jax.jit(log_joint(posterior))
    before = float(joint(values))
    tolerance = 1e-12 if precision else 2e-5
    elements = posterior.symmetry.sample(jax.random.key(0), (5,))
    moved = posterior.symmetry.apply(elements, values) | missing
    for i in range(5):
        one = {site: moved[site] if site in missing else moved[site][i] for site in values}
        assert math.isclose(float(joint(one)), before, rel_tol=tolerance)
    # a negative control: moving one site alone is seen
    site = next(iter(posterior.symmetry.axes))
    if len(posterior.symmetry.axes) > 1:
        alone = [float(joint(values | {site: jnp.asarray(moved[site])[i]})) for i in range(5)]
        assert max(abs(a - before) for a in alone) > 1e-3 * abs(before)


def assert_evidence(log_weights, log_evidence):
    """The mean importance weight is within 4 standard errors of the evidence, and tells it apart from twice as much."""
    weights = np.exp(np.asarray(log_weights, np.float64) - log_evidence)
    error = weights.std() / math.sqrt(len(weights))
    assert error < 0.1
    assert abs(weights.mean() - 1.0) < 4 * error, f"{weights.mean()} ± {error}"


@pytest.mark.parametrize("options", [{}, {"num_units": 3, "dim": 1, "log_evidence": -7.5}, {"num_units": 1}], ids=str)
def test_exchangeable_gaussian_evidence(options):
    posterior = testing.exchangeable_gaussian(**options)
    (centres,), rng, num = posterior.model_args, np.random.default_rng(0), 40_000
    n, d = centres.shape
    # every unit on its own from a wider mixture around all centres
    scale = 0.4
    units = centres[rng.integers(n, size=(num, n))] + scale * rng.normal(size=(num, n, d))
    log_normal = -0.5 * (((units[:, :, None] - centres) / scale) ** 2).sum(-1) - d * math.log(
        scale * math.sqrt(2 * math.pi)
    )
    log_proposal = (np.logaddexp.reduce(log_normal, axis=-1) - math.log(n)).sum(-1)
    joint = jax.jit(jax.vmap(log_joint(posterior)))({"units": jnp.asarray(units)})
    assert_evidence(joint - log_proposal, posterior.log_evidence)


@pytest.mark.parametrize("options", [{}, {"num_components": 3, "num_data": 5}, {"num_components": 1}], ids=str)
def test_enumerable_mixture_evidence(options):
    posterior = testing.enumerable_mixture(**options)
    (data,), rng, num = posterior.model_args, np.random.default_rng(0), 100_000
    size = posterior.symmetry.sizes["component"]
    # each location on its own around a random datum
    loc = data[rng.integers(len(data), size=(num, size))] + rng.normal(size=(num, size))
    log_normal = -0.5 * (loc[:, :, None] - data) ** 2 - 0.5 * math.log(2 * math.pi)
    log_proposal = (np.logaddexp.reduce(log_normal, axis=-1) - math.log(len(data))).sum(-1)
    joint = jax.jit(jax.vmap(log_joint(posterior)))({"loc": jnp.asarray(loc)})
    assert_evidence(joint - log_proposal, posterior.log_evidence)


def test_enumerable_mixture_of_one_component_is_conjugate():
    posterior = testing.enumerable_mixture(num_components=1, num_data=4, prior_scale=2.0)
    (data,) = posterior.model_args
    covariance = np.eye(4) + 4.0
    expected = -0.5 * (data @ np.linalg.solve(covariance, data) + np.linalg.slogdet(2 * math.pi * covariance)[1])
    assert posterior.log_evidence == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"slope": 1.0, "noise_variance": 1.0, "num_data": 10}, {"num_data": 1}], ids=str
)
def test_two_weight_network_evidence(options):
    posterior = testing.two_weight_network(**options)
    rng = np.random.default_rng(0)
    w = rng.normal(size=(400_000, 2))
    log_prior = (-0.5 * w**2 - 0.5 * math.log(2 * math.pi)).sum(-1)
    joint = jax.jit(jax.vmap(log_joint(posterior)))({"w": jnp.asarray(w)})
    assert_evidence(joint - log_prior, posterior.log_evidence)


@pytest.mark.parametrize("noise_variance", [4.0, 0.04])
def test_two_weight_network_evidence_on_a_plain_grid(noise_variance):
    posterior = testing.two_weight_network(num_data=5, noise_variance=noise_variance, prior_variance=0.5)
    x, y = posterior.model_args
    step = 0.0025
    w = np.arange(-1400, 1400) * step + step / 2
    squared_error = np.zeros((len(w), len(w)))
    for x_n, y_n in zip(x, y, strict=True):
        relu = np.maximum(w * x_n, 0.0)
        squared_error += (y_n - relu[:, None] - relu) ** 2
    log_likelihood = -0.5 * (squared_error / noise_variance + len(x) * math.log(2 * math.pi * noise_variance))
    log_prior = -0.5 * (w**2 / 0.5 + math.log(2 * math.pi * 0.5))
    expected = np.logaddexp.reduce((log_likelihood + log_prior[:, None] + log_prior).ravel()) + 2 * math.log(step)
    # the midpoint rule errs by step² / 24 times the jumps of slope at zero, here a few units
    assert posterior.log_evidence == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("num_components", [2, 3])
def test_data_of_a_mixture_lie_about_the_mean_of_the_prior(num_components):
    (data,) = testing.dirichlet_mixture(num_components, num_data=30 * num_components).model_args
    assert abs(data.mean()) < 3.0 / np.sqrt(len(data))
    assert data.std() > 1.9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: testing.exchangeable_gaussian(num_units=8), r"num_units must lie between 1 and 7.* got 8"),
        (lambda: testing.enumerable_mixture(num_components=4, num_data=11), r"4\^11 allocations are too many"),
        (lambda: testing.tiny_network(activation="elu"), r"activation must be one of \['relu', 'tanh'\]; got 'elu'"),
        (lambda: testing.two_weight_network(slope=-1.0), r"slope must not be negative.* got -1.0"),
        (lambda: testing.tiny_network(hidden=()), r"at least two \(kernel, bias\) pairs"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
