"""Nothing depends on the unit in which outputs, data or draws are measured."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO, init_to_sample
from numpyro.infer.autoguide import AutoLaplaceApproximation, AutoNormal

from numpyro_symmetry import (
    AutoConditional,
    AutoSymmetrized,
    Symmetry,
    SymmetryError,
    check_symmetry,
    compare,
    find_scaling,
    find_symmetry,
    log_evidence,
    rebase,
    testing,
)
from numpyro_symmetry.discovery.proof.evidence import nudged

# powers of two, by which nothing is rounded otherwise
UNITS = (2.0**-40, 2.0**40)
every_unit = pytest.mark.parametrize("unit", UNITS)
RNG = np.random.default_rng(0)
NETWORK = {"w": RNG.normal(size=(3, 6)), "b": RNG.normal(size=6), "v": RNG.normal(size=6)}
INPUTS = RNG.normal(size=(7, 3))
HIDDEN = Symmetry({"w": (None, "hidden"), "b": ("hidden",), "v": ("hidden",)}, sizes={"hidden": 6})


def network(activation, unit):
    """A function of a network's parameters whose outputs are measured in a unit."""
    return lambda parameters, x: unit * (activation(x @ parameters["w"] + parameters["b"]) @ parameters["v"])


@every_unit
def test_a_symmetry_of_a_function_is_found_and_a_wrong_one_refused(unit):
    function, args = network(jax.nn.relu, unit), (NETWORK, INPUTS)
    assert find_symmetry(function, args, argnum=0).log_order() == HIDDEN.log_order()
    check_symmetry(function, HIDDEN, args, argnum=0)
    with pytest.raises(SymmetryError, match="is not invariant"):
        check_symmetry(function, HIDDEN.restrict(sites=["w", "b"]), args, argnum=0)


def test_an_output_is_measured_by_itself_beside_a_larger_one():
    def function(parameters, x):
        return network(jnp.tanh, 1.0)(parameters, x), UNITS[0] * parameters["v"][0]

    with pytest.raises(SymmetryError, match="is not invariant"):
        check_symmetry(function, HIDDEN, (NETWORK, INPUTS), argnum=0)


@every_unit
def test_entries_that_are_not_exchanged_are_not_said_to_be(unit):
    def function(u):
        return unit * jnp.stack([2.0 * u[0], u[1] + u[2] - u[0]])

    with pytest.raises(SymmetryError, match="is not invariant") as refused:
        check_symmetry(function, Symmetry({"array": ("unit",)}, sizes={"unit": 3}), (RNG.normal(size=3),), argnum=0)
    assert "exchanged" not in str(refused.value)


def test_a_log_density_is_measured_in_nats():
    def model():
        u = numpyro.sample("u", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with numpyro.handlers.scale(scale=UNITS[0]):
            numpyro.sample("y", dist.Normal(u[0], 1.0), obs=0.5)

    check_symmetry(model, Symmetry({"u": ("unit",)}, sizes={"unit": 3}))


@every_unit
def test_units_of_a_function_that_may_be_scaled_are_found_and_no_others(unit):
    assert find_scaling(network(jax.nn.relu, unit), (NETWORK, INPUTS), HIDDEN).groups == ("hidden",)
    assert not find_scaling(network(jnp.tanh, unit), (NETWORK, INPUTS), HIDDEN).groups
    # scaled by not too much, outputs stay what they were
    clipped = network(lambda z: jnp.minimum(jax.nn.relu(z), 50.0), unit)
    assert not find_scaling(clipped, (NETWORK, INPUTS), HIDDEN).groups


@every_unit
def test_nudges_are_parts_of_what_they_nudge(unit):
    place = {"u": np.array([0.0, 1.0, -3.0])}
    moved = nudged({"u": unit * place["u"]}, 1e-12, 1e-12)
    np.testing.assert_allclose(moved["u"] / unit, nudged(place, 1e-12, 1e-12)["u"], rtol=1e-15)
    assert moved["u"][0] != 0.0


@every_unit
def test_what_follows_is_chosen_alike(unit):
    def choose(unit):
        def model(x, y=None):
            w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3, 6]).to_event(2))
            b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([6]).to_event(1))
            v = numpyro.sample("v", dist.Normal(0.0, unit).expand([6]).to_event(1))
            numpyro.sample("y", dist.Normal(jax.nn.relu(x @ w + b) @ v, 0.3 * unit).to_event(1), obs=y)

        guide = AutoConditional(AutoNormal(model, init_loc_fn=init_to_sample))
        numpyro.handlers.seed(guide, jax.random.key(0))(jnp.asarray(INPUTS), unit * jnp.asarray(INPUTS[:, 0]))
        return guide.source.sites

    assert choose(unit) == choose(1.0) == ("v",)


@every_unit
def test_pseudo_observations_are_learned_alike(unit):
    x = jnp.asarray(INPUTS, jnp.float32)

    def train(unit):
        def model(x, y=None):
            w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3, 6]).to_event(2))
            v = numpyro.sample("v", dist.Normal(0.0, unit).expand([6]).to_event(1))
            numpyro.sample("y", dist.Normal(jax.nn.relu(x @ w) @ v, 0.3 * unit).to_event(1), obs=y)

        guide = AutoConditional(AutoNormal(model, init_scale=0.1), ["v"], inducing=x[:4])
        svi = SVI(model, guide, optax.adam(0.1), Trace_ELBO())
        return svi.run(jax.random.key(0), 20, x, unit * 3.0 * x[:, 0], progress_bar=False)

    # single precision holds no cubes of smaller ones, which are in the slopes of a Normal density
    unit = unit**0.5
    ours, others = train(unit), train(1.0)
    np.testing.assert_allclose(ours.losses - len(x) * np.log(unit), others.losses, rtol=1e-3)
    # a power of two, which stays
    units = np.log2([found.params["auto_v_unit_0"] for found in (ours, others)])
    np.testing.assert_allclose(units, np.round(units), atol=1e-4)
    assert units[0] - units[1] == pytest.approx(np.log2(unit), abs=1e-4)


@every_unit
def test_a_bound_without_known_marginals_is_the_same(unit):
    def information(unit):
        centres = unit * jnp.linspace(-3.0, 3.0, 14)

        def model():
            numpyro.sample("u", dist.Normal(0.0, 3.0 * unit).expand([14]).to_event(1))

        def guide():
            numpyro.sample("u", dist.StudentT(5.0, centres, 0.2 * unit).to_event(1))

        symmetrized = AutoSymmetrized(guide, Symmetry({"u": ("unit",)}, sizes={"unit": 14}), model=model)
        symmetrized.setup(jax.random.key(0))
        return symmetrized.elbo_bounds(jax.random.key(1), {}, num_particles=50).mutual_information

    np.testing.assert_allclose(information(unit), information(1.0), rtol=1e-4)


@every_unit
def test_evidence_is_that_of_the_density(unit):
    posterior = testing.exchangeable_gaussian(num_units=3, separation=2.0, log_evidence=-3.0)
    rng, (centres,) = np.random.default_rng(0), posterior.model_args
    draws = np.stack([rng.permutation(centres + 0.3 * rng.standard_normal((3, 2))) for _ in range(400)])

    def model(unit):
        def scaled(centres):
            mixing = dist.Independent(dist.Normal(0.0, 10.0 * unit).expand([3, 2]), 2)
            units = numpyro.sample("units", mixing)
            distances = ((units[:, None] / unit - centres) ** 2).sum(-1)
            numpyro.factor("near", -0.5 * distances.min(0).sum() / 0.3**2)

        return scaled

    values = [log_evidence({"units": u * draws}, model(u), (centres,), num_draws=200).value for u in (1.0, unit)]
    np.testing.assert_allclose(*values, atol=1e-3)


@every_unit
def test_evidence_by_laplace_is_that_of_the_density(unit):
    def model():
        numpyro.sample("u", dist.Normal(0.0, unit).expand([2]).to_event(1))

    fitted = AutoLaplaceApproximation(model), {"auto_loc": jnp.zeros(2)}
    numpyro.handlers.seed(fitted[0], jax.random.key(0))()
    assert log_evidence(fitted, num_draws=100).value == pytest.approx(0.0, abs=1e-3)


def draws_in(unit, seed):
    """Draws of switching labels, measured in a unit."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(2, 100, 3)) + [-4.0, 0.0, 4.0 + seed]
    return {"u": unit * rng.permuted(values, axis=-1)}


@every_unit
def test_draws_are_relabelled_and_compared_alike(unit):
    symmetry = Symmetry({"u": ("unit",)}, sizes={"unit": 3})
    labels, moved = [], []
    for each in (1.0, unit):
        found = rebase(draws_in(each, 0), symmetry)
        labels.append(found.elements["unit"])
        moved.append(found.data["u"] / each)
    np.testing.assert_array_equal(*labels)
    np.testing.assert_array_equal(*moved)
    ours, others = (compare(draws_in(each, 0), draws_in(each, 1), symmetry) for each in (1.0, unit))
    assert str(ours) == str(others)
