"""Former names of arguments, what is a number, and where warnings point: at the line of whoever called."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_symmetry as ns
from numpyro_symmetry.symmetry.arguments import as_levels, as_probability, is_floating, is_number, is_real
from numpyro_symmetry.symmetry.errors import renamed


@renamed(num_samples="num_draws")
def sized(*, num_draws=3):
    return num_draws


def test_a_former_name_is_taken_with_a_warning():
    with pytest.warns(FutureWarning, match=r"num_samples= of sized is now called num_draws=\.") as told:
        assert sized(num_samples=5) == 5
    assert told[0].filename == __file__
    assert sized() == 3
    with pytest.warns(FutureWarning), pytest.raises(TypeError, match="multiple values"):
        sized(num_samples=5, num_draws=5)


def test_a_warning_names_the_line_of_the_caller():
    rng = np.random.default_rng(0)
    draws = {"loc": rng.normal(size=(200, 3)), "z": rng.integers(0, 3, (200, 7))}
    with pytest.warns(ns.SymmetryWarning, match="'z' holds integers") as told:
        ns.rebase(draws, ns.Symmetry.mixture("loc"), null=False)
    assert told[0].filename == __file__


def test_numpyro_and_jax_may_lie_between():
    def model():
        numpyro.sample("y", dist.Normal(numpyro.sample("x", dist.Normal(0.0, 1.0)), 1.0), obs=0.5)

    guide = ns.AutoSymmetrized(AutoNormal(model), signs=False)
    with pytest.warns(ns.SymmetryWarning, match="No symmetry was found") as told:
        SVI(model, guide, optax.adam(1e-2), Trace_ELBO()).init(jax.random.key(0))
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("dtype", "number", "real", "floating"),
    [
        ("float32", True, True, True),
        ("bfloat16", True, True, True),
        ("float8_e4m3fn", True, True, True),
        ("int4", True, True, False),
        ("uint8", True, True, False),
        ("bool", True, True, False),
        ("complex64", True, False, False),
        # of integers, to NumPy
        ("timedelta64[D]", False, False, False),
        ("datetime64[D]", False, False, False),
        ("U3", False, False, False),
        ("O", False, False, False),
        ("V4", False, False, False),
    ],
)
def test_what_is_a_number(dtype, number, real, floating):
    found = jnp.dtype(dtype)
    assert (is_number(found), is_real(found), is_floating(found)) == (number, real, floating)
    assert not is_number(jax.random.key(0).dtype)


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, -0.1, math.nan, math.inf, True, "0.5", None, np.array([0.5])])
def test_a_probability_lies_between_zero_and_one(value):
    with pytest.raises(ValueError, match="level must be a probability between 0 and 1"):
        as_probability(value, "level")
    assert as_probability(np.float32(0.5), "level") == 0.5


def test_levels_of_quantiles_lie_from_zero_to_one():
    np.testing.assert_array_equal(as_levels([0.0, 0.5, 1.0]), [0.0, 0.5, 1.0])
    for value in (-0.1, [0.5, 1.1], math.nan):
        with pytest.raises(ValueError, match="from 0 to 1"):
            as_levels(value)
    with pytest.raises(TypeError, match="quantiles"):
        as_levels("median")
