"""Activations read off a function as it is, and matching by them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import ActivationCost, Symmetry, SymmetryError, find_activations, find_symmetry, match

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(40, 3)), jnp.float32)


def params(**shapes):
    return {site: jnp.asarray(RNG.normal(size=shape), jnp.float32) for site, shape in shapes.items()}


def mlp(p, x):
    return jax.nn.relu(jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"]) @ p["w3"]


def odd(p, x):
    return jnp.tanh(x @ p["w1"]) @ p["w2"]


def experts(p, x):
    hidden = jax.nn.relu(jnp.einsum("bi,eiu->beu", x, p["up"]))
    return jnp.einsum("be,beu,euo->bo", jax.nn.softmax(x @ p["gate"]), hidden, p["down"])


@jax.jit
def inside_calls(p, x):
    return jax.nn.silu(jax.checkpoint(lambda w: x @ w)(p["w1"])) @ p["w2"]


def flattened(p, x):
    """Channels at two places, behind each other in all parameters."""
    channels = (x @ p["kernel"]).reshape(len(x), 5, 2)
    return jax.nn.softmax(channels * jnp.arange(1.0, 3.0)).reshape(len(x), 10) @ p["out"]


def joined(p, x):
    """Gates and values, put end to end in all parameters."""
    gate, value = jnp.split(x @ p["both"], 2, 1)
    hidden = jax.nn.silu(gate) * value
    return jnp.concatenate([hidden, hidden**2], 1) @ p["out"]


CASES = {
    "two layers": (mlp, {"w1": (3, 6), "b1": (6,), "w2": (6, 5), "w3": (5, 2)}, False),
    "signs": (odd, {"w1": (3, 6), "w2": (6, 2)}, True),
    "experts and their units": (experts, {"up": (3, 3, 4), "gate": (3, 3), "down": (3, 4, 2)}, False),
    "flattened": (flattened, {"kernel": (3, 10), "out": (10, 2)}, False),
    "joined": (joined, {"both": (3, 8), "out": (8, 2)}, False),
    "inside calls": (inside_calls, {"w1": (3, 6), "w2": (6, 2)}, False),
}


@pytest.mark.parametrize("case", CASES)
def test_planted_elements_are_recovered_by_activations_alone(case):
    function, shapes, signs = CASES[case]
    target = params(**shapes)
    symmetry = find_symmetry(function, (target, X), argnum=0, signs=signs)
    cost = ActivationCost(find_activations(function, (target, X), symmetry))
    source = symmetry.apply(symmetry.sample(jax.random.key(1), (2,)), target)
    # outgoing weights say nothing to activations
    last = list(shapes)[-1]
    found = match(target, source | {last: 0.0 * source[last]}, symmetry, cost=cost)
    for site, value in symmetry.apply(found.element, source).items():
        assert (np.asarray(value) == np.asarray(target[site])).all()


def test_it_is_what_a_forward_pass_by_hand_gives():
    p = params(w1=(3, 6), b1=(6,), w2=(6, 5), w3=(5, 2))
    symmetry = find_symmetry(mlp, (p, X), argnum=0, signs=False)
    first = jax.nn.relu(X @ p["w1"] + p["b1"])
    by_hand = {"b1": first, "w3": jax.nn.relu(first @ p["w2"])}
    found = find_activations(mlp, (p, X), symmetry)(p)
    assert set(found) == set(symmetry.groups)
    for name, here in found.items():
        group = by_hand["b1" if here.shape[1] == 6 else "w3"]
        group = group - group.mean(0)
        norms = jnp.linalg.norm(group, axis=0)
        assert here == pytest.approx(np.asarray(group / jnp.where(norms > 0, norms, 1.0)), abs=1e-5), name


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_networks_in_half_precision_have_activations(dtype):
    given = jax.tree.map(lambda x: x.astype(dtype), params(w1=(3, 6), w2=(6, 2)))
    symmetry, x = Symmetry.mlp([("w1", None), ("w2", None)]), X.astype(dtype)
    found = find_activations(odd, (given, x), symmetry)(given)["hidden"]
    hidden = jnp.tanh(x @ given["w1"]).astype(jnp.float32)
    hidden = hidden - hidden.mean(0)
    np.testing.assert_allclose(found, hidden / jnp.sqrt(jnp.square(hidden).sum(0)), atol=0.02)


def test_the_data_are_those_given():
    p = params(w1=(3, 6), b1=(6,), w2=(6, 5), w3=(5, 2))
    symmetry = find_symmetry(mlp, (p, X), argnum=0, signs=False)
    assert all(x.shape[0] == 7 for x in find_activations(mlp, (p, X[:7]), symmetry)(p).values())


def test_what_cannot_be_seen_is_named():
    def looped(p, x):
        return jax.lax.scan(lambda h, row: (h + jax.nn.relu(row @ p["w1"]) @ p["w2"], None), jnp.zeros(2), x)[0]

    p = params(w1=(3, 6), w2=(6, 2))
    symmetry = Symmetry({"w1": (None, "hidden"), "w2": ("hidden", None)})
    with pytest.raises(SymmetryError, match=r"No value inside the function was seen to carry groups \['hidden'\]"):
        find_activations(looped, (p, X), symmetry)
    with pytest.raises(SymmetryError, match="no value inside the function moves as they do"):
        # squares have no signs
        find_activations(
            lambda p, x: (x @ p["w1"] ** 2) @ p["w2"], (p, X), Symmetry(symmetry.axes, {"hidden": "signed"})
        )
    with pytest.raises(SymmetryError, match="symmetry is trivial"):
        find_activations(inside_calls, (p, X), Symmetry({}))
    with pytest.raises(TypeError, match="symmetry must be a Symmetry"):
        find_activations(inside_calls, (p, X), "hidden")


def test_trees_are_given_to_activations_as_trees():
    """As Flax nests them, by hand and as they are read off the function, one network and a stack of them."""
    rng = np.random.default_rng(0)
    tree = {"params": {f"Dense_{k}": {"kernel": rng.normal(size=s)} for k, s in enumerate([(2, 5), (5, 1)])}}
    x = jnp.asarray(rng.normal(size=(30, 2)))

    def hidden(tree, x=x):
        return jnp.tanh(x @ tree["params"]["Dense_0"]["kernel"])

    def network(tree, x):
        return hidden(tree, x) @ tree["params"]["Dense_1"]["kernel"]

    axes = {"params.Dense_0.kernel": (None, "hidden"), "params.Dense_1.kernel": ("hidden", None)}
    symmetry = Symmetry(axes).bind(tree)
    planted = symmetry.sample(jax.random.key(1), (2,))
    stack = symmetry.apply(planted, jax.tree.map(lambda v: np.stack([v] * 2), tree))
    read_off = find_activations(network, (tree, x), symmetry)
    for activations in (lambda tree: {"hidden": hidden(tree)}, read_off):
        found = match(tree, stack, symmetry, cost=ActivationCost(activations))
        back = symmetry.apply(found.element, stack)
        for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
            np.testing.assert_array_equal(one[1], other)
    with pytest.raises(SymmetryError, match=r"'params.Dense_1.kernel' is in the target"):
        match(tree, {"params": {"Dense_0": tree["params"]["Dense_0"]}}, symmetry, cost=ActivationCost(read_off))
