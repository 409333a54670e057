"""Units that may be scaled: which, by what power, and the canonical form that all scaled networks share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import DiagonalGaussian, Symmetry, SymmetryError, compose, find_scaling, find_symmetry, match
from numpyro_symmetry.symmetry.pytrees import arrays_by_path

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(8, 3)), jnp.float32)


def params(**shapes):
    return {site: jnp.asarray(RNG.normal(size=shape), jnp.float32) for site, shape in shapes.items()}


def relu_then_tanh(p, x):
    return jnp.tanh(jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"]) @ p["w3"]


def gated(p, x):
    return (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


def normalised(p, x):
    h = jax.nn.relu(x @ p["w1"])
    return (p["s"] * h / jnp.sqrt(1e-3 + jnp.mean(h**2, -1, keepdims=True))) @ p["w2"]


def experts(p, x):
    hidden = jax.nn.relu(jnp.einsum("bi,eiu->beu", x, p["up"]))
    return jnp.einsum("be,beu,euo->bo", jax.nn.softmax(x @ p["gate"]), hidden, p["down"])


def clipped(most):
    return lambda p, x: jnp.minimum(jax.nn.relu(x @ p["w1"]), most) @ p["w2"]


CASES = {
    # groups that may be scaled, by sites: incoming, outgoing
    "relu, and not tanh": (relu_then_tanh, {"w1": (3, 5), "b1": (5,), "w2": (5, 4), "w3": (4, 2)}, [("w1 b1", "w2")]),
    "many units": (relu_then_tanh, {"w1": (3, 300), "b1": (300,), "w2": (300, 4), "w3": (4, 2)}, [("w1 b1", "w2")]),
    "gated units": (gated, {"gate": (3, 5), "up": (3, 5), "down": (5, 2)}, [("up", "down")]),
    "after a normalisation its own scale": (normalised, {"w1": (3, 5), "s": (5,), "w2": (5, 2)}, [("s", "w2")]),
    "clipped far beyond its values": (clipped(50.0), {"w1": (3, 5), "w2": (5, 2)}, []),
    "clipped furthest": (clipped(5e3), {"w1": (3, 5), "w2": (5, 2)}, []),
    "units of experts": (experts, {"up": (2, 3, 4), "gate": (3, 2), "down": (2, 4, 2)}, [("up", "down")] * 2),
}


def sites_by_power(powers):
    return {power: {piece.split("#")[0] for (piece, _), p in powers.items() if p == power} for power in (1.0, -1.0)}


@pytest.mark.parametrize("case", CASES)
def test_the_units_that_may_be_scaled_are_found(case):
    function, shapes, expected = CASES[case]
    p = params(**shapes)
    symmetry = find_symmetry(function, (p, X), argnum=0, signs=False)
    scaling = find_scaling(function, (p, X), symmetry)
    assert len(scaling.groups) == len(expected)
    for powers, (incoming, outgoing) in zip(scaling.powers.values(), expected, strict=True):
        found = sites_by_power(powers)
        assert {frozenset(found[1.0]), frozenset(found[-1.0])} == {frozenset(incoming.split()), frozenset([outgoing])}
    balanced = scaling.balanced(p)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), balanced) == jax.tree.map(lambda x: (x.shape, x.dtype), p)
    assert function(balanced, X) == pytest.approx(np.asarray(function(p, X)), rel=1e-4, abs=1e-5)
    # there is nothing left to balance
    for site, value in scaling.balanced(balanced).items():
        assert value == pytest.approx(np.asarray(balanced[site]), rel=1e-5)


def test_planted_scales_and_permutations_are_recovered_together():
    def network(p, x):
        h = jax.nn.relu(x @ p["a"]["w"] + p["a"]["b"])
        return jax.nn.relu(h @ p["b"]["w"] + p["b"]["b"]) @ p["c"]["w"]

    target = {"a": params(w=(3, 6), b=(6,)), "b": params(w=(6, 5), b=(5,)), "c": params(w=(5, 2))}
    symmetry = find_symmetry(network, (target, X), argnum=0, signs=False)
    scaling = find_scaling(network, (target, X), symmetry)
    c, d = (jnp.asarray(np.exp(RNG.uniform(-1.5, 1.5, n)), jnp.float32) for n in (6, 5))
    scaled = {
        "a": {"w": target["a"]["w"] * c, "b": target["a"]["b"] * c},
        "b": {"w": target["b"]["w"] / c[:, None] * d, "b": target["b"]["b"] * d},
        "c": {"w": target["c"]["w"] / d[:, None]},
    }
    g = symmetry.sample(jax.random.key(0))
    flat = [arrays_by_path(scaling.balanced(p)) for p in (target, symmetry.apply(g, scaled))]
    found = match(*flat, symmetry)
    back = symmetry.apply(found.element, flat[1])
    assert all(back[site] == pytest.approx(np.asarray(x), rel=1e-5, abs=1e-6) for site, x in flat[0].items())
    identity = jax.tree.leaves(symmetry.identity())
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(compose(found.element, g)), identity, strict=True))


def test_in_a_balanced_network_what_comes_in_has_the_norm_of_what_goes_out():
    function, shapes, _ = CASES["relu, and not tanh"]
    p = params(**shapes)
    p |= {"w1": p["w1"].at[:, 1].set(0.0), "b1": p["b1"].at[1].set(0.0), "w2": p["w2"].at[0].set(0.0)}
    scaling = find_scaling(function, (p, X), find_symmetry(function, (p, X), argnum=0, signs=False))
    q = scaling.balanced(p)
    incoming = jnp.sqrt(jnp.square(q["w1"]).sum(0) + jnp.square(q["b1"]))
    outgoing = jnp.linalg.norm(q["w2"], axis=1)
    assert incoming[2:] == pytest.approx(np.asarray(outgoing[2:]), rel=1e-5)
    # a unit that nothing reads stays as it is, and so does one that reads nothing
    assert (q["w1"][:, 0] == p["w1"][:, 0]).all()
    assert (q["w2"][1] == p["w2"][1]).all()


def test_what_is_no_network_is_refused():
    function, shapes, _ = CASES["gated units"]
    p = params(**shapes)
    symmetry = find_symmetry(function, (p, X), argnum=0, signs=False)
    scaling = find_scaling(function, (p, X), symmetry)
    with pytest.raises(SymmetryError, match=r"has shape \(7, .*never of a posterior"):
        scaling.balanced({site: jnp.stack([x] * 7) for site, x in p.items()})
    with pytest.raises(TypeError, match="got a DiagonalGaussian.*never of a posterior"):
        scaling.balanced(DiagonalGaussian(p, {site: jnp.ones_like(x) for site, x in p.items()}))
    with pytest.raises(SymmetryError, match=r"Arrays \['up'\] are missing"):
        scaling.balanced({"gate": p["gate"], "down": p["down"]})
    with pytest.raises(SymmetryError, match="not finite"):
        scaling.balanced({**p, "up": p["up"] * jnp.nan})
    with pytest.raises(TypeError, match="symmetry must be a Symmetry"):
        find_scaling(function, (p, X), None)
    name = scaling.groups[0]
    head, told = str(scaling).splitlines()
    assert head == f"Scaling(units of {name!r} may be scaled)"
    assert sorted(told.removeprefix(f"  {name}: ").split("; ")) in (
        ["down times 1/c", "up times c"],
        ["down times c", "up times 1/c"],
    )
    none = find_scaling(function, (p, X), Symmetry({}))
    assert str(none) == "Scaling(no units may be scaled)"
    assert none.balanced(p) is not p
    assert all((none.balanced(p)[site] == p[site]).all() for site in p)
