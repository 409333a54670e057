"""Typing is equivariant on random programs, and the group read off a number made of them leaves it alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.equivariance import check_equivariance, check_invariance, compiled, type_function
from tests.support.programs import Program


def check(seed, length):
    program, rng = Program(seed, length), np.random.default_rng(seed)
    latent, data = ([rng.uniform(0.2, 0.9, shape) for shape in shapes] for shapes in (program.latent, program.data))

    def number(*args):
        return sum((x**2).sum() if k % 2 else jnp.tanh(x).sum() for k, x in enumerate(program(*args)[-3:]))

    run = compiled(lambda *args: (*program(*args), number(*args)), data)
    if not all(np.isfinite(x).all() for x in run(*latent)):
        return
    try:
        check_equivariance(type_function(program, latent, data), lambda *args: run(*args)[:-1], latent, rng)
        symmetry = type_function(number, latent, data).reading.symmetry()
        check_invariance(symmetry, lambda *args: run(*args)[-1], latent, rng)
    except Exception as error:
        error.add_note(f"seed {seed}\n{program!r}")
        raise


@pytest.mark.parametrize("seed", range(10))
def test_random_programs(seed):
    with jax.enable_x64(True):
        check(seed, 6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_random_programs(seed):
    with jax.enable_x64(True):
        check(seed, 8)
