"""Arguments in place of others that belong there: the message says what to pass, in a few words."""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_symmetry import (
    AutoConditional,
    AutoSymmetrized,
    Symmetry,
    log_evidence,
    loss_barrier,
    match,
    rebase,
    report,
    run_blackjax,
)

SYMMETRY = Symmetry.mixture("loc")
DRAWS = {"loc": np.array([-3.0, 0.0, 3.0]) + 0.1 * np.random.default_rng(0).normal(size=(2, 20, 3))}
FLAT = {"loc": DRAWS["loc"].reshape(40, 3)}
ONE = {"loc": DRAWS["loc"][0, 0]}


@functools.partial(jax.tree_util.register_dataclass, data_fields=["weight"], meta_fields=[])
@dataclass
class Callable:
    """A network that is a pytree and can be called, as those of Equinox are."""

    weight: jax.Array

    def __call__(self, x):
        return self.weight @ x


NETWORK = Callable(jnp.zeros((50, 50)))


def mixture(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    fn = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0))
    numpyro.sample("y", fn.expand([len(y)]).to_event(1), obs=y)


def log_density(position):
    return -0.5 * (position["loc"] ** 2).sum()


@functools.cache
def rebased():
    return rebase(DRAWS, SYMMETRY, null=False)


SAID = {
    "a model for a symmetry": (lambda: rebase(DRAWS, mixture), "got the function mixture. .*model=.*find_symmetry"),
    "a network for a symmetry": (lambda: match(SYMMETRY, NETWORK, NETWORK), "got Callable. "),
    "a mean loss": (lambda: loss_barrier(log_density, ONE, ONE), r"shape \(\)\. The mean over data .* leave it out"),
    "losses by output": (lambda: loss_barrier(lambda v: jnp.zeros((4, 2)), ONE, ONE), r"outputs .*\.mean\(-1\)"),
    "a model for draws": (lambda: log_evidence(mixture, DRAWS, (np.zeros(3),)), "Draws come first.*got mixture"),
    "a model for a guide": (lambda: AutoSymmetrized(mixture), r"pass a guide of it, such as AutoNormal\(mixture\)"),
    "a model for a guide, conditional": (lambda: AutoConditional(mixture), r"such as AutoNormal\(mixture\)"),
    "draws without chains": (lambda: report(FLAT, rebased()), "by chains if they were .*group_by_chain=True"),
    "a function for values": (lambda: report(DRAWS, rebased(), {"f": log_density}), "its values at the draws"),
    "draws for a reference": (lambda: rebase(DRAWS, SYMMETRY, reference=DRAWS), "reference=out"),
    "a density for a model": (lambda: run_blackjax(jax.random.key(0), log_density, (ONE,)), "log density of positions"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_stands_in_place_of_another_is_told(name):
    ask, said = SAID[name]
    with pytest.raises((TypeError, ValueError), match=said) as caught:
        ask()
    assert len(str(caught.value)) < 500
