"""Former names of arguments, and where warnings point: at the line of whoever called into the package."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_symmetry as ns
from numpyro_symmetry.symmetry.arguments import renamed


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
