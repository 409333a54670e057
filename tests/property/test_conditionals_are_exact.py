"""Of random models all sites follow that may, with the conditional density that the model gives them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density

from numpyro_symmetry import AutoConditional
from tests.support.random_regressions import RandomRegression


def integral(log_joint, start):
    """Logarithm of the integral of exp of a quadratic function."""
    flat, unravel = ravel_pytree(start)
    function = jax.jit(lambda x: log_joint(unravel(x)))
    hessian = jax.hessian(function)(flat)
    mode = flat - jnp.linalg.solve(hessian, jax.grad(function)(flat))
    return function(mode) + 0.5 * (flat.size * np.log(2 * np.pi) - np.linalg.slogdet(-hessian)[1])


def check(seed):
    model = RandomRegression(seed)
    guide = AutoConditional(AutoNormal(model), progress_bar=False)
    drawn = handlers.trace(handlers.seed(guide, 0)).get_trace(*model.rows)
    told = f"seed {seed}: {model.said}\n{guide.explain()}"
    latent = [name for name in handlers.trace(handlers.seed(model, 0)).get_trace(*model.rows) if name in drawn]
    following = {name: drawn[name] for name in latent if name in model.affine}
    others = {name: drawn[name]["value"] for name in latent if name not in model.affine}
    assert set(guide.source.sites) == set(following), told

    def log_joint(values):
        return log_density(model, model.rows, {}, others | values)[0]

    # the density of what follows is the joint one, divided by its integral, wherever it is read
    total = integral(log_joint, {name: site["value"] for name, site in following.items()})
    for step in (0.0, 1.0):
        values = {name: site["value"] + step for name, site in following.items()}
        again = handlers.trace(handlers.seed(handlers.substitute(guide, others | values), 0)).get_trace(*model.rows)
        given = sum(again[name]["fn"].log_prob(x).sum() for name, x in values.items())
        np.testing.assert_allclose(log_joint(values) - given, total, 1e-7, 1e-7, err_msg=told)


@pytest.mark.parametrize("seed", range(3))
def test_conditionals_are_exact(seed):
    with jax.enable_x64(True):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_conditionals_of_many_are_exact(seed):
    with jax.enable_x64(True):
        check(seed)
