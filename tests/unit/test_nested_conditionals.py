"""Conditionals above conditionals: each group's units by a table of their own, against sums over the whole group."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal
from scipy.special import logsumexp

from numpyro_symmetry import AutoConditional, AutoSymmetrized, AutoUnitNormal, Symmetry
from numpyro_symmetry.guides.density import latent_values, log_density_by_site
from numpyro_symmetry.guides.symmetrized.information import information_at

X = np.random.default_rng(0).normal(size=(9, 2))
Y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=9)
NETWORK = Symmetry(
    {
        "w1": (None, "hidden1"),
        "b1": ("hidden1",),
        "w2": ("hidden1", "hidden2"),
        "b2": ("hidden2",),
        "w3": ("hidden2",),
    }
)


def network(x, y=None, widths=(3, 3), activation=jax.nn.relu):
    """Two hidden layers, with biases."""
    hidden, inputs = x, x.shape[-1]
    for layer, width in enumerate(widths, 1):
        w = numpyro.sample(f"w{layer}", dist.Normal(0.0, inputs**-0.5).expand([inputs, width]).to_event(2))
        b = numpyro.sample(f"b{layer}", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
        hidden, inputs = activation(hidden @ w + b), width
    w3 = numpyro.sample("w3", dist.Normal(0.0, inputs**-0.5).expand([inputs]).to_event(1))
    b3 = numpyro.sample("b3", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(hidden @ w3 + b3, 0.3).to_event(1), obs=y)


def nested(base, rows):
    return AutoConditional(AutoConditional(base, ["w2", "b2"], inducing=rows), ["w3", "b3"])


class Counted:
    """A guide that counts how often it is evaluated."""

    def __init__(self, guide):
        self.parts, self.calls = (guide,), 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.parts[0](*args, **kwargs)


def information_and_enumeration(guide, *args):
    """The information of one draw as the guide says it, and by the guide's density at every relabelling of it.

    To say it the guide is evaluated once: no moments are drawn, and nothing is relabelled but a table.
    """
    guide.base, symmetry = Counted(guide.base), guide.layout.symmetry

    @jax.jit
    def both(key, elements):
        with handlers.seed(rng_seed=key):
            trace = handlers.trace(guide).get_trace(*args)
        assert guide.base.calls == 1
        values = latent_values(trace)
        base = {name: site for name, site in trace.items() if name in values or site["type"] != "sample"}

        def density(element):
            return sum(log_density_by_site(guide.base, base, symmetry.apply(element, values), args, {}).values())

        return -trace["_symmetry_correction"]["fn"].log_factor, jax.lax.map(density, elements)

    found, densities = both(jax.random.key(3), symmetry.elements())
    densities = np.asarray(densities)
    return float(found), densities[0] - logsumexp(densities) + math.log(len(densities))


@pytest.mark.parametrize("base", [AutoNormal, pytest.param(AutoUnitNormal, marks=pytest.mark.slow)])
def test_informations_of_nested_conditionals_add(base):
    below = (
        AutoNormal(network, init_scale=0.5) if base is AutoNormal else AutoUnitNormal(network, NETWORK, init_scale=0.5)
    )
    with jax.enable_x64(True):
        x, y = jnp.asarray(X), jnp.asarray(Y)
        guide = AutoSymmetrized(nested(below, 7), NETWORK).setup(jax.random.key(0), x, y)
        assert guide.layout.factorises
        assert guide.layout.whitened == ("w2", "b2")
        assert set(guide.layout.following) == {"w3", "b3"}
        assert [guide.layout.sites_of(group) for group in guide.layout.symmetry.groups] == [("w1", "b1"), ("w2", "b2")]
        found, expected = information_and_enumeration(guide, x, y)
        assert 0.1 < expected < 2 * math.log(6) - 0.1
        assert found == pytest.approx(expected, abs=1e-9)
    assert "hidden1 by w1, b1; hidden2 by w2, b2" in guide.explain()


@pytest.mark.parametrize("follows", ["neither group", "its inputs' group"])
def test_a_conditional_by_hand_is_judged_group_by_group(follows):
    """Each unit of the second layer is told apart by a parameter, and what it draws from the first may be, too."""

    def by_hand(x, y=None):
        w1 = numpyro.sample("w1", dist.Normal(numpyro.param("m1", jnp.arange(6.0).reshape(2, 3)), 0.5).to_event(2))
        b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        apart = numpyro.param("apart", jnp.zeros((3, 1))) if follows == "neither group" else 0.0
        loc = (w1.sum(0) + b1)[:, None] + apart + numpyro.param("m2", jnp.arange(3.0))
        numpyro.sample("w2", dist.Normal(loc, 0.5).to_event(2))
        numpyro.sample("b2", dist.Normal(numpyro.param("c2", jnp.arange(3.0)), 0.5).to_event(1))
        numpyro.sample("w3", dist.Normal(numpyro.param("m3", jnp.arange(3.0)), 0.5).to_event(1))
        numpyro.sample("b3", dist.Normal(0.0, 1.0))

    guide = AutoSymmetrized(by_hand, NETWORK, model=network)
    guide.setup(jax.random.key(0), X, Y)
    # a Normal about the layer below is no mean-field table of both groups, but one of its own units
    assert guide.layout.factorises == (follows == "its inputs' group")
    assert guide.layout.sites_of("hidden2") == ("w2", "b2", "w3")
    if guide.layout.factorises:
        assert guide.layout.sites_of("hidden1") == ("w1", "b1")


def test_independent_hidden_layers_under_an_exact_last_one_are_bounded_from_below():
    """I(g; θ) ≥ I(g1; U1) + I(g2; θ | g1): the chain of tables against enumeration, in paired standard errors."""
    guide = AutoSymmetrized(AutoConditional(AutoNormal(network, init_scale=0.7)), NETWORK, estimator="sequential")
    x, y = jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32)
    guide.setup(jax.random.key(0), x, y)
    assert guide.layout.factorises
    assert set(guide.layout.following) == {"w3", "b3"}

    @jax.jit
    @jax.vmap
    def both(key):
        with handlers.block(), handlers.seed(rng_seed=key):
            trace = handlers.trace(guide.base).get_trace(x, y)
        options = {"rng_key": None, "args": (x, y), "kwargs": {}}
        return [
            information_at(guide.base, guide.layout, trace, estimator=estimator, **options)
            for estimator in ("sequential", "exact")
        ]

    sequential, exact = map(np.asarray, both(jax.random.split(jax.random.key(1), 300)))
    gap = sequential - exact
    assert gap.mean() <= 4 * gap.std(ddof=1) / 300**0.5
    assert sequential.mean() >= 0.7 * exact.mean() > 0.5


def test_a_group_whose_units_nothing_tells_apart_keeps_its_sites():
    """Pairs that are drawn alike about the units of another group: relabelling the pairs is worth nothing."""

    def model(y):
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        pairs = numpyro.sample("pairs", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
        numpyro.sample("y", dist.Normal((jnp.tanh(pairs).sum(1) * centre).sum(), 1.0), obs=y)

    def by_hand(y):
        loc = numpyro.param("loc", jnp.arange(3.0))
        centre = numpyro.sample("centre", dist.Normal(loc, 0.7).to_event(1))
        numpyro.sample("pairs", dist.Normal(centre[:, None] * jnp.ones(2), 0.5).to_event(2))

    symmetry = Symmetry({"centre": ("unit",), "pairs": ("unit", "pair")})
    with jax.enable_x64(True):
        guide = AutoSymmetrized(by_hand, symmetry, model=model).setup(jax.random.key(0), jnp.array(0.3))
        assert [guide.layout.sites_of(group) for group in ("unit", "pair")] == [("centre",), ("pairs",)]
        found, expected = information_and_enumeration(guide, jnp.array(0.3))
        assert 0.1 < expected < math.log(6) - 0.1
        assert found == pytest.approx(expected, abs=1e-9)
