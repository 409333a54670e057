"""Pytrees of every kind under `match`, `loss_barrier` and `rebase`: what comes back, moves, and is refused."""

import re
from collections import OrderedDict
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from flax.core import FrozenDict
from jax.flatten_util import ravel_pytree

from numpyro_symmetry import (
    ActivationCost,
    DiagonalGaussian,
    FullGaussian,
    Symmetry,
    SymmetryError,
    find_activations,
    find_symmetry,
    loss_barrier,
    match,
    merge,
    num_transpositions,
    rebase,
    refine,
    report,
)
from numpyro_symmetry.containers import Members, read
from numpyro_symmetry.matching import nearest_transposition
from numpyro_symmetry.symmetry.pytrees import arrays_by_path

RNG = np.random.default_rng(0)
N = 6


class Weights(NamedTuple):
    """As BlackJAX takes a position."""

    first: np.ndarray
    second: np.ndarray


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def layers():
    return normal(3, N), normal(N, 2)


def of_equinox():
    import equinox as eqx

    first, second = layers()
    linear = [eqx.nn.Linear(*shape, use_bias=False, key=jax.random.key(0)) for shape in ((3, N), (N, 2))]
    weights = (jnp.asarray(first.T), jnp.asarray(second.T))
    return eqx.tree_at(lambda net: [net[0].weight, net[1].weight], linear, weights)


def of_nnx():
    first, second = layers()
    net = nnx.Sequential(
        nnx.Linear(3, N, use_bias=False, rngs=nnx.Rngs(0)), nnx.Linear(N, 2, use_bias=False, rngs=nnx.Rngs(0))
    )
    _, state = nnx.split(net)
    paths = list(arrays_by_path(state))
    values = {path: jnp.asarray(x) for path, x in zip(paths, (first, second), strict=True)}
    return jax.tree.unflatten(jax.tree.structure(state), [values[path] for path in paths])


# a tree of two layers, and whether its matrices stand with outputs first
TREES = {
    "nested dict": (
        lambda: dict(params=dict(zip(("a", "b"), map(dict, ({"w": x} for x in layers())), strict=True))),
        0,
    ),
    "named tuple": (lambda: Weights(*layers()), 0),
    "tuple": (layers, 0),
    "list in a dict": (lambda: {"layers": list(layers())}, 0),
    "an array beside a dict": (lambda: dict(zip("ac", ({"w": normal(3, N)}, normal(N, 2)), strict=True)), 0),
    "a path that begins another": (lambda: {"a": normal(3, N), "ab": {"a": normal(N, 2)}}, 0),
    "flat, frozen": (lambda: FrozenDict(zip("ab", layers(), strict=True)), 0),
    "flat, ordered": (lambda: OrderedDict(zip("ba", layers(), strict=True)), 0),
    "half precision": (lambda: {"p": [jnp.asarray(x, jnp.bfloat16) for x in layers()]}, 0),
    "nnx": (of_nnx, 0),
    "haiku": (lambda: ({"linear": dict(zip("wv", layers(), strict=True))}, {"ema": {"counter": np.int32(3)}}), 0),
} | ({"equinox": (of_equinox, 1)} if find_spec("equinox") else {})


def symmetry_of(tree, is_transposed):
    first, second = (path for path in arrays_by_path(tree) if "counter" not in path)
    if "linear.v" in first:
        first, second = second, first
    entries = (("hidden", None), (None, "hidden")) if is_transposed else ((None, "hidden"), ("hidden", None))
    return Symmetry(dict(zip((first, second), entries, strict=True)))


def world(name):
    make, is_transposed = TREES[name]
    tree = make()
    return tree, symmetry_of(tree, is_transposed)


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        assert jnp.result_type(x) == jnp.result_type(y), path
        kind = complex if jnp.iscomplexobj(x) else float
        np.testing.assert_array_equal(np.asarray(x, kind), np.asarray(y, kind))


@pytest.mark.parametrize("name", TREES)
def test_a_planted_tree_is_brought_back_bit_for_bit(name):
    tree, symmetry = world(name)
    planted = symmetry.bind(arrays_by_path(tree)).sample(jax.random.key(1))
    moved = symmetry.apply(planted, tree)
    found = match(tree, moved, symmetry)
    assert_same(symmetry.apply(found.element, moved), tree)
    assert int(num_transpositions(found.element)["hidden"]) == int(num_transpositions(planted)["hidden"])


@pytest.mark.parametrize("name", TREES)
def test_planted_trees_are_merged_bit_for_bit(name):
    tree, symmetry = world(name)
    bound = symmetry.bind(tree)
    found = merge([tree, bound.apply(bound.sample(jax.random.key(1)), tree)], symmetry)
    for one in (found.merged, *found.members):
        assert type(one) is type(tree)
        assert_same(one, tree)


@pytest.mark.parametrize("name", TREES)
def test_the_nearest_copy_of_a_tree_is_that_of_its_arrays(name):
    tree, symmetry = world(name)
    by_site = {site: np.asarray(arrays_by_path(tree)[site], float) for site in symmetry.axes}
    (found,), (expected,) = (nearest_transposition(v, symmetry).values() for v in (tree, by_site))
    assert found[:4] == expected[:4]


@pytest.mark.parametrize("name", [name for name in TREES if name != "half precision"])
def test_a_tree_may_be_the_reference_and_be_fitted(name):
    tree, symmetry = world(name)
    bound = symmetry.bind(tree)
    members = [bound.apply(bound.sample(jax.random.key(k)), tree) for k in range(3)]
    for back in rebase(members, symmetry, reference=tree, null=False).data:
        assert_same(back, tree)
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *members)
    fitted = DiagonalGaussian.fit(stacked)
    for site in symmetry.axes:
        np.testing.assert_allclose(fitted.loc[site], np.mean([arrays_by_path(m)[site] for m in members], 0), rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in TREES if name not in ("half precision", "haiku")])
def test_gaussians_of_trees_are_those_of_their_arrays(name):
    tree = jax.tree.map(jnp.asarray, TREES[name][0]())
    mean, back = ravel_pytree(tree)
    root = normal(len(mean), len(mean))
    covariance = root @ root.T
    deviations = np.sqrt(np.diag(covariance))
    diagonal = DiagonalGaussian(tree, back(jnp.asarray(deviations)))
    for gaussian in (diagonal, FullGaussian(tree, covariance).diagonal()):
        for site, value in arrays_by_path(tree).items():
            np.testing.assert_array_equal(gaussian.loc[site], value)
            np.testing.assert_allclose(gaussian.scale[site], arrays_by_path(back(deviations))[site], rtol=1e-6)


class Module(NamedTuple):
    """As an Equinox module: its functions are leaves."""

    read: Any
    activation: Any
    out: Any

    def __call__(self, x):
        return self.activation(x @ self.read) @ self.out


def test_a_function_among_the_leaves_stands_in_nobodys_way():
    net, x = Module(normal(3, N), jnp.sin, normal(N, 2)), normal(20, 3)
    symmetry = find_symmetry(Module.__call__, (net, x), argnum=0, signs=False)
    planted = symmetry.sample(jax.random.key(1))
    moved = symmetry.apply(planted, net)
    cost = ActivationCost(find_activations(Module.__call__, (net, x), symmetry))
    found = [match(net, moved, symmetry), match(net, moved, symmetry, cost=cost)]
    found += [refine(lambda net, x: jnp.square(net(x)).sum(-1), net, moved, symmetry, x, batch_size=5, num_steps=1)]
    aligned = [symmetry.apply(one.element, moved) for one in found]
    for each in (*aligned, merge([net, moved], symmetry, cost=cost).members[1]):
        assert_same(each[::2], net[::2])
    assert loss_barrier(lambda net: net(x).sum(-1), net, net, num_points=3).barrier == 0.0
    assert nearest_transposition(net, symmetry).keys() == symmetry.groups.keys()
    assert_same(rebase([net, moved], symmetry, reference="first", null=False).data[1][::2], net[::2])


@pytest.mark.parametrize("lengths", [(40, 30), (100, 100)])
def test_chains_in_a_list_of_trees_are_refused_with_what_works(lengths):
    chains = [Weights(normal(n, 3, N), normal(n, N, 2)) for n in lengths]
    symmetry = Symmetry({"first": (None, "hidden"), "second": ("hidden", None)})
    by_site = Weights(*map(list, zip(*chains, strict=True)))
    stacked = []
    for name, draws in {"members": chains, "draws": by_site}.items():
        with pytest.raises(SymmetryError, match="tack") as refused:
            rebase(draws, symmetry)
        code = re.search(r"jax\.tree\.map.*\)(?=[.;])", str(refused.value)).group()  # what the message says to write
        stacked.append(eval(code, {"jax": jax, "np": np, name: draws}))
    assert_same(*stacked)
    assert rebase(stacked[0], symmetry, null=False).data.first.shape == (2, min(lengths), 3, N)


# what trees of parameters hold beside their arrays
BESIDE = {"key": jax.random.key(3), "bias": None, "state": {}, "update": (), "activation": jnp.tanh, "name": "net"}


@pytest.mark.parametrize("name", BESIDE)
def test_what_holds_no_numbers_stands_beside_the_arrays_of_a_flat_tree(name):
    beside = {name: BESIDE[name]}
    net = {"a": normal(3, N), "c": normal(N, 2)}
    symmetry = Symmetry({"a": (None, "hidden"), "c": ("hidden", None)})
    moved = symmetry.apply(symmetry.bind(net).sample(jax.random.key(1)), net)
    element = match(net | beside, moved | beside, symmetry).element
    ensemble = [net | beside, moved | beside]
    stacked = {site: np.stack([net[site], moved[site]]) for site in net} | beside
    again = rebase(stacked, symmetry, reference="first", null=False)
    for one in (
        symmetry.apply(element, moved | beside),
        merge(ensemble, symmetry).merged,
        rebase(ensemble, symmetry, reference="first", null=False).data[1],
        {site: value[1] if site in net else value for site, value in again.data.items()},
    ):
        assert one.pop(name) == BESIDE[name]
        assert_same(one, net)
    assert again.undo(again.data)[name] == BESIDE[name]
    assert set(DiagonalGaussian.fit(stacked).loc) == set(net)


def test_a_tree_may_be_named_by_its_own_keys_alone():
    tree = {"a": {"b": normal(3, 4), "key": jax.random.key(0)}, "c": normal(N)}
    symmetry = Symmetry({"c": ("hidden",)})
    assert symmetry.bind(tree).sizes == {"hidden": N}
    moved = symmetry.apply({"hidden": np.roll(np.arange(N), 1)}, tree)
    assert moved["a"]["b"] is tree["a"]["b"]
    found = match(tree, moved, symmetry)
    np.testing.assert_array_equal(symmetry.apply(found.element, moved)["c"], tree["c"])
    assert_same(merge([tree, moved], symmetry).merged["c"], tree["c"])
    out = rebase([tree, moved], symmetry, reference="first", null=False)
    np.testing.assert_array_equal(out.data[1]["c"], tree["c"])
    assert float(loss_barrier(lambda v: v["c"].sum()[None] + v["a"]["b"].sum(), tree, moved, num_points=3).barrier) == (
        pytest.approx(0.0, abs=1e-5)
    )


@pytest.mark.parametrize("kind", ["float64", "Float64", "Int64", "category"])
def test_columns_of_data_frames_are_values_whatever_their_type(kind):
    values, own = np.array([3.0, 1.0, 2.0]), Symmetry({"m": ("h",)})
    column = {"m": pd.Series([2, 3, 1]).astype(kind)}
    found = match({"m": values}, column, own)
    np.testing.assert_array_equal(own.apply(found.element, {"m": np.array([2, 3, 1])})["m"], values)
    np.testing.assert_array_equal(merge([column, {"m": values}], own).merged["m"], [2, 3, 1])


def test_text_of_a_data_frame_is_no_values():
    with pytest.raises(SymmetryError, match="'m' of the source: expected real numbers; got .* of a Series"):
        match({"m": np.ones(2)}, {"m": pd.Series(["a", "b"], dtype="string")}, Symmetry({"m": ("h",)}))


def test_complex_numbers_are_matched_by_both_parts():
    tree = {"p": {"z": normal(3, N) + 1j * normal(3, N)}, "b": normal(N)}
    symmetry = Symmetry({"p.z": (None, "hidden"), "b": ("hidden",)})
    # the real parts say that nothing has moved
    element = {"hidden": np.roll(np.arange(N), 1)}
    other = {"p": {"z": tree["p"]["z"].real + 1j * symmetry.apply(element, tree)["p"]["z"].imag * 10}, "b": tree["b"]}
    tree["p"]["z"].imag *= 10
    found = match(tree, other, symmetry)
    np.testing.assert_array_equal(found.element["hidden"], np.roll(np.arange(N), -1))
    moved = symmetry.apply(element, tree)
    merged = merge([tree, moved, moved], symmetry)
    assert_same(merged.members[1], tree)
    assert merged.merged["p"]["z"].dtype == tree["p"]["z"].dtype
    np.testing.assert_allclose(merged.merged["p"]["z"], tree["p"]["z"], rtol=1e-6)


@pytest.mark.parametrize("name", TREES)
def test_a_barrier_of_trees_is_that_of_their_arrays(name):
    tree, symmetry = world(name)
    far = symmetry.apply(symmetry.bind(arrays_by_path(tree)).sample(jax.random.key(1)), tree)
    first, second = list(symmetry.axes)
    kinds = jax.tree.map(jnp.result_type, tree)

    def loss(values):
        by_path = arrays_by_path(values)
        return (by_path[first].astype(float).sum(0) ** 2).sum()[None] + (by_path[second] ** 3).astype(float).sum(-1)

    def of_a_tree(values):
        assert jax.tree.structure(values) == jax.tree.structure(tree)
        assert jax.tree.map(jnp.result_type, values) == kinds
        return loss(values)

    found = loss_barrier(of_a_tree, tree, far, num_points=3)
    ends = ({site: arrays_by_path(side)[site] for site in (first, second)} for side in (tree, far))
    assert found.loss == pytest.approx(
        loss_barrier(loss, *ends, num_points=3).loss, rel=0.05 if "half" in name else 1e-5
    )


@pytest.mark.parametrize("name", [name for name in TREES if name != "half precision"])
def test_members_and_stacks_of_trees_are_rebased_alike(name):
    tree, symmetry = world(name)
    bound = symmetry.bind(arrays_by_path(tree))
    noise = jax.random.split(jax.random.key(2), 5)

    def member(k):
        keys = dict(zip(symmetry.axes, jax.random.split(noise[k], 2), strict=True))
        near = jax.tree_util.tree_map_with_path(
            lambda path, x: (
                x
                if (site := jax.tree_util.keystr(path, simple=True, separator=".")) not in keys
                else x + 0.01 * jax.random.normal(keys[site], x.shape)
            ),
            tree,
        )
        return bound.apply(bound.sample(jax.random.key(k)), near)

    members = [member(k) for k in range(5)]
    out = rebase(members, symmetry, reference="first", null=False)
    spread = [np.std([np.asarray(arrays_by_path(m)[s]) for m in out.data], 0).max() for s in symmetry.axes]
    assert max(spread) < 0.05
    for back, given in zip(out.undo(out.data), members, strict=True):
        assert_same(back, given)
    told = str(report(members, out))
    assert "R-hat" not in told
    assert "From one member to the next" in told

    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *members)
    again = rebase(Members(stacked), symmetry, reference="first", null=False)
    np.testing.assert_array_equal(again.elements["hidden"], out.elements["hidden"])
    assert_same(again.data.stacked, jax.tree.map(lambda *xs: jnp.stack(xs), *out.data))
    assert "R-hat" not in str(report(Members(stacked), again))
    # draws of a chain look the same, and are not independent
    chain = rebase(stacked, symmetry, reference="first", null=False)
    assert_same(chain.data, again.data.stacked)
    assert "There is one chain" in str(report(stacked, chain))


def test_a_position_that_is_an_array_is_rebased():
    symmetry = Symmetry({"array": ("unit",)})
    draws = RNG.permuted(np.array([-3.0, 0.0, 3.0]) + 0.1 * RNG.normal(size=(50, 3)), axis=1)
    out = rebase(draws, symmetry, null=False)
    assert out.data.std(0).max() < 0.5
    assert [x.shape for x in rebase(list(draws), symmetry, null=False).data] == [(3,)] * 50


def statistics(kernel, mean):
    return {"params": {"kernel": kernel}, "batch_stats": {"mean": mean}, "steps": jnp.int32(7)}


STATISTICS = Symmetry({"params.kernel": (None, "hidden"), "batch_stats.mean": ("hidden",)})


def test_running_statistics_move_and_have_no_say():
    kernel, mean = normal(3, N), 100.0 * normal(N)
    element = {"hidden": np.roll(np.arange(N), 1)}
    target = statistics(kernel, mean)
    # the statistics say that nothing has moved
    source = STATISTICS.apply(element, statistics(kernel, mean)) | {"batch_stats": {"mean": mean}}
    found = match(target, source, STATISTICS)
    np.testing.assert_array_equal(found.element["hidden"], np.roll(np.arange(N), -1))
    moved = STATISTICS.apply(found.element, source)
    np.testing.assert_array_equal(moved["batch_stats"]["mean"], np.roll(mean, -1))
    out = rebase([target, source], STATISTICS, reference="first", null=False)
    np.testing.assert_array_equal(out.data[1]["batch_stats"]["mean"], np.roll(mean, -1))
    assert out.data[1]["steps"] == 7
    for back, given in zip(out.undo(out.data), [target, source], strict=True):
        assert_same(back, given)


def test_statistics_of_nnx_are_told_by_their_type():
    net = nnx.Sequential(nnx.Linear(3, N, rngs=nnx.Rngs(0)), nnx.BatchNorm(N, rngs=nnx.Rngs(0)))
    _, state = nnx.split(net)
    trace = read([state, state], Symmetry({next(iter(arrays_by_path(state))): ("hidden",)}))
    assert {path.split(".")[2] for path in trace.uncompared} == {"mean", "var"}


def test_masks_move_and_have_no_say():
    tree = {"p": {"w": normal(3, N), "mask": np.arange(N) < 2}, "key": jax.random.key(0)}
    symmetry = Symmetry({"p.w": (None, "hidden"), "p.mask": ("hidden",)})
    element = {"hidden": np.roll(np.arange(N), 1)}
    moved = symmetry.apply(element, tree)
    assert moved["p"]["mask"].dtype == bool
    assert_same(jax.random.key_data(moved["key"]), jax.random.key_data(tree["key"]))
    np.testing.assert_array_equal(match(tree, moved, symmetry).element["hidden"], np.roll(np.arange(N), -1))


@pytest.mark.parametrize("nested", [False, True])
def test_one_array_at_two_paths_stays_one(nested):
    x = normal(3, N)
    tree = {"in": x, "out": x}
    sites = ("in", "out")
    if nested:
        tree, sites = {"p": tree}, ("p.in", "p.out")
    symmetry = Symmetry({site: (None, "hidden") for site in sites})
    moved = symmetry.apply({"hidden": np.roll(np.arange(N), 1)}, tree)
    inner = moved["p"] if nested else moved
    assert inner["in"] is inner["out"]
    # unless only one of them is moved
    moved = Symmetry({sites[0]: (None, "hidden")}).apply({"hidden": np.roll(np.arange(N), 1)}, tree)
    inner = moved["p"] if nested else moved
    np.testing.assert_array_equal(inner["out"], x)
    assert not np.array_equal(inner["in"], x)


LOSS = lambda values: jnp.zeros(1)  # noqa: E731
TWO = {"p": {"a": np.ones((3, N)), "b": np.ones(N)}}
ONE = Symmetry({"p.a": (None, "hidden"), "p.b": ("hidden",)})
REFUSED = {
    "match, a path": (
        lambda: match(TWO, {"p": {"a": np.ones((3, N)), "c": np.ones(N)}}, ONE),
        "'p.b' is in the target",
    ),
    "match, a shape": (
        lambda: match(TWO, {"p": {"a": np.ones((3, 5)), "b": np.ones(N)}}, ONE),
        "Site 'p.a': the source",
    ),
    "match, NaN": (
        lambda: match(TWO, {"p": {"a": np.full((3, N), np.nan), "b": np.ones(N)}}, ONE),
        "'p.a' of the source holds 18 non-finite",
    ),
    "barrier, a path": (lambda: loss_barrier(LOSS, TWO, {"p": {"a": np.ones((3, N))}}), "'p.b' is in the first end"),
    "barrier, a shape": (
        lambda: loss_barrier(LOSS, TWO, {"p": {"a": np.ones((2, N)), "b": np.ones(N)}}),
        r"'p.a' has shape \(3, 6\) in the first end and \(2, 6\)",
    ),
    "barrier, NaN": (
        lambda: loss_barrier(LOSS, TWO, {"p": {"a": np.ones((3, N)), "b": np.full(N, np.nan)}}),
        "'p.b' of the second end holds 6 non-finite",
    ),
    "members, a path": (lambda: rebase([TWO, {"p": {"a": np.ones((3, N))}}], ONE), "'p.b' is in the first member"),
    "members, a shape": (
        lambda: rebase([TWO, {"p": {"a": np.ones((3, 5)), "b": np.ones(N)}}], ONE),
        "'p.a' has shape .* in member 1",
    ),
    "members, NaN": (
        lambda: rebase([TWO, {"p": {"a": np.ones((3, N)), "b": np.full(N, np.nan)}}], ONE),
        "'p.b' is not finite",
    ),
    "of another tree": (lambda: rebase({"q": TWO}, ONE), r"acts on sites \['p.a', 'p.b'\].* arrays at \['q.p.a'"),
    "no leading dimension": (lambda: rebase(TWO, ONE), "no dimension that counts draws"),
    "masked": (
        lambda: match(TWO, {"p": {"a": np.ma.masked_array(np.ones((3, N)), True), "b": np.ones(N)}}, ONE),
        "'p.a' is a masked array",
    ),
    "masked draws": (
        lambda: rebase({"p": {"a": np.ma.masked_array(np.ones((9, 3, N)), True), "b": np.ones((9, N))}}, ONE),
        "'p.a' is a masked array",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named_by_its_path(name):
    call, message = REFUSED[name]
    with pytest.raises(SymmetryError, match=message):
        call()


@pytest.mark.parametrize("tree", [TWO, Weights(np.ones((3, N)), np.ones(N))])
def test_of_a_trivial_symmetry_a_tree_is_told_what_a_dict_is(tree):
    with pytest.raises(SymmetryError, match="The symmetry is trivial"):
        rebase(jax.tree.map(lambda x: np.stack([x] * 20), tree), Symmetry({}))
