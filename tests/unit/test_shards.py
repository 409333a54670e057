"""Within `jax.shard_map`: what every device has, what each has its own of, and the gradients of both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from numpyro_symmetry import Symmetry
from numpyro_symmetry.entropy import Factorised, GaussianFactors, UnitGaussians, information
from numpyro_symmetry.linalg import solve_triangular

SYMMETRY = Symmetry({"w": (None, "unit")})
# more features than are subtracted at once
SHAPE = (20, 6)
KEY = jax.random.key(0)
FACTORS = GaussianFactors({"w": jax.random.normal(KEY, SHAPE)}, {"w": jnp.full(SHAPE, 2.0)})
OF_UNITS = UnitGaussians(*FACTORS, {"w": 0.1 * jnp.tril(jnp.ones((20, 20, 6)).T, -1).T}, {})


def of_draw(estimator, symmetry=SYMMETRY):
    bound = symmetry.bind({"w": np.zeros(SHAPE)})

    def value(factors, draw, key):
        density = Factorised(factors)
        return information(density, bound, {"w": draw}, estimator=estimator, rng_key=key, num_permutations=3)

    return value


SIGNED = Symmetry({"w": (None, "unit")}, kinds={"unit": "signed"})
FUNCTIONS = {
    **{name: (of_draw(name), FACTORS) for name in ("sequential", "importance", "infonce", "exact")},
    "signs": (of_draw("importance", SIGNED), FACTORS),
    "units": (of_draw("importance"), OF_UNITS),
    "solve": (lambda factor, draw, key: solve_triangular(factor, draw).sum(), 3.0 * jnp.eye(20)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_all_devices_have_may_meet_what_is_each_ones_own(name):
    function, common = FUNCTIONS[name]
    mesh = jax.make_mesh((1,), ("shard",), axis_types=(AxisType.Auto,))
    of_all, own = PartitionSpec(), PartitionSpec("shard")
    draws, keys = jax.random.normal(jax.random.key(1), (1, *SHAPE)), jax.random.split(KEY, 1)
    both = jax.value_and_grad(lambda common, draw, key: function(common, draw, key), argnums=(0, 1))

    def on_device(common, draws, keys):
        value, (to_common, to_draw) = both(common, draws[0], keys[0])
        return value[None], to_common, to_draw[None]

    sharded = jax.shard_map(on_device, mesh=mesh, in_specs=(of_all, own, own), out_specs=(own, of_all, own))
    value, to_common, to_draws = jax.jit(sharded)(common, draws, keys)
    expected, (to_common_alone, to_draw_alone) = jax.jit(both)(common, draws[0], keys[0])
    found, alone = (value[0], to_common, to_draws[0]), (expected, to_common_alone, to_draw_alone)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), found, alone)
