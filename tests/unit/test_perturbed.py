"""Parameters at which a guide is judged: others than where it starts, and still parameters of it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints

from numpyro_symmetry.models.given_values import perturbed

KEY = jax.random.key(0)
SIZES = {"w": jnp.full((3, 2), 1e4), "b": jnp.zeros(2, jnp.float16), "steps": jnp.arange(3)}


def guide():
    numpyro.param("scale", jnp.full(3, 1e-4), constraint=constraints.positive)
    numpyro.param("weights", jnp.ones(3) / 3, constraint=constraints.simplex)
    numpyro.param("count", jnp.array([2, 5]))
    numpyro.param("network", SIZES)
    with numpyro.plate("rows", 4, subsample_size=2):
        numpyro.sample("z", dist.Normal(0.0, 1.0))


@pytest.fixture(scope="module")
def moved():
    trace = handlers.trace(handlers.seed(guide, 0)).get_trace()
    return trace, [jax.jit(lambda key: perturbed(key, trace))(key) for key in jax.random.split(KEY, 2)]


def test_parameters_move_within_their_constraints_and_keep_their_types(moved):
    trace, found = moved
    for given in found:
        assert given.keys() == {"scale", "weights", "count", "network", "rows"}
        assert (given["scale"] > 0).all()
        assert given["weights"].sum() == pytest.approx(1.0, abs=1e-6)
        types = {name: jax.tree.map(jnp.result_type, (value, trace[name]["value"])) for name, value in given.items()}
        assert all(jax.tree.leaves(one) == jax.tree.leaves(other) for one, other in types.values())


def test_every_real_number_moves_on_its_own_and_no_whole_one_does(moved):
    trace, found = moved
    for given, other in (found, [found[0], {name: trace[name]["value"] for name in found[0]}]):
        for name in ("scale", "weights"):
            assert (given[name] != other[name]).all()
        for leaf in ("w", "b"):
            assert (given["network"][leaf] != other["network"][leaf]).all()
        for fixed in ("count", "rows"):
            np.testing.assert_array_equal(given[fixed], other[fixed])
        np.testing.assert_array_equal(given["network"]["steps"], other["network"]["steps"])
    logs = np.log(found[0]["scale"] / 1e-4)
    assert len(np.unique(np.abs(logs).round(3))) == 3
    # a large number moves by as much in relation to its size
    assert 1.0 < np.std(found[0]["network"]["w"]) / 1e3 < 10.0
