"""Group laws over the table of symmetries."""

import copy
import itertools
import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import Concat, Split, Symmetry, compose, inverse, num_transpositions
from numpyro_symmetry.symmetry import Hard, PlainView, SignedPermutation, Whole
from tests.support import oracles
from tests.support.laws import SYMMETRIES

pytestmark = pytest.mark.usefixtures("strict_promotion")


@pytest.fixture(params=SYMMETRIES.values(), ids=SYMMETRIES.keys())
def case(request):
    return request.param


def draws(symmetry, count=3, shape=()):
    return [symmetry.sample(key, shape) for key in jax.random.split(jax.random.key(1), count)]


def assert_same(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), a, b)


def key_of(element):
    return tuple(tuple(np.ravel(leaf).tolist()) for leaf in jax.tree.leaves(element))


def test_identity_leaves_values_alone(case):
    symmetry, values = case
    assert_same(symmetry.apply(symmetry.identity(), values), values)


def test_inverse_undoes(case):
    symmetry, values = case
    (g, *_) = draws(symmetry)
    assert_same(symmetry.apply(inverse(g), symmetry.apply(g, values)), values)
    assert_same(compose(g, inverse(g)), symmetry.identity())
    assert_same(compose(inverse(g), g), symmetry.identity())


def test_composition_is_associative_and_acts(case):
    symmetry, values = case
    g, h, k = draws(symmetry)
    assert_same(compose(compose(g, h), k), compose(g, compose(h, k)))
    assert_same(symmetry.apply(compose(g, h), values), symmetry.apply(g, symmetry.apply(h, values)))


def test_a_batch_is_a_loop(case):
    symmetry, values = case
    batch = symmetry.sample(jax.random.key(2), (4, 2))
    together = symmetry.apply(batch, values)
    stacked = symmetry.apply(batch, {name: np.broadcast_to(v, (4, 2, *v.shape)) for name, v in values.items()})
    mapped = jax.vmap(jax.vmap(lambda g: symmetry.apply(g, values), axis_size=2), axis_size=4)
    jitted = jax.jit(mapped)(batch)
    for i, j in itertools.product(range(4), range(2)):
        alone = symmetry.apply(jax.tree.map(lambda x, i=i, j=j: x[i, j], batch), values)
        for site in symmetry.axes:
            for version in (together, stacked, jitted):
                np.testing.assert_allclose(version[site][i, j], alone[site], rtol=1e-6)


def test_leading_dimensions_are_free(case):
    symmetry, values = case
    (g, *_) = draws(symmetry)
    led = symmetry.apply(g, {name: np.stack([v, 2 * v]) for name, v in values.items()})
    twice = symmetry.apply(g, {name: 2 * v for name, v in values.items()})
    for site in symmetry.axes:
        np.testing.assert_allclose(led[site][1], twice[site], rtol=1e-6)


def test_elements_are_the_whole_group(case):
    symmetry, _ = case
    elements = symmetry.elements()
    count = round(math.exp(symmetry.log_order()))
    if not symmetry.groups:
        assert (elements, count) == ({}, 1)
        return
    each = [jax.tree.map(lambda x, i=i: x[i], elements) for i in range(count)]
    assert len({key_of(element) for element in each}) == count
    assert key_of(each[0]) == key_of(symmetry.identity())
    assert {key_of(compose(each[-1], element)) for element in each} == {key_of(element) for element in each}


def then(g, h):
    return Hard(h.permutation[g.permutation], None if h.sign is None else g.sign * h.sign[g.permutation])


def generated(generators, identity):
    """Every product of some elements of one group."""
    found = {key_of(identity): identity}
    while new := {
        key_of(made): made for g in generators for h in found.values() if key_of(made := then(g, h)) not in found
    }:
        found |= new
    return found


def test_generators_generate_and_random_elements_are_among_them(case):
    symmetry, _ = case
    rng = np.random.default_rng(0)

    for name, group in symmetry.groups.items():
        generators, some = group.generators(rng, group.every_cell), group.random(rng, (20,))
        for part in [*generators, some, group.identity((2,))]:
            group.check(name, part.part())
        if group.cells:  # products are of one cell
            continue
        found = generated(generators, group.identity())
        assert len(found) == round(math.exp(group.log_order())) == len(group.elements().permutation)
        # of several groups the first ones are made at once: their conjugates generate each by itself
        cycles, others = group.conjugators(rng, group.every_cell)
        for part in [cycles, *others]:
            group.check(name, part.part())
        powers, conjugates = generated([cycles], group.identity()).values(), []
        for power in powers:
            inverse = next(one for one in powers if key_of(then(power, one)) == key_of(group.identity()))
            conjugates += [then(then(power, other), inverse) for other in others]
        assert generated(conjugates, group.identity()).keys() == found.keys()
        assert {key_of(some.at(k)) for k in range(20)} <= set(found)
        # each of them is as likely as any other
        draws = group.random(rng, (20 * len(found),))
        times = Counter(key_of(draws.at(k)) for k in range(20 * len(found)))
        spread = sum((times[element] - 20) ** 2 / 20 for element in found)
        assert abs(spread - len(found) + 1) <= 5 * math.sqrt(2 * len(found))


def test_sampling_is_uniform(case):
    symmetry, _ = case
    order = round(math.exp(symmetry.log_order()))
    if not 1 < order <= 48:
        return
    count = 200 * order
    sample = symmetry.sample(jax.random.key(3), (count,))
    columns = np.concatenate([np.reshape(leaf, (count, -1)) for leaf in jax.tree.leaves(sample)], axis=1)
    frequencies = np.unique(columns, axis=0, return_counts=True)[1]
    assert len(frequencies) == order
    chi_square = ((frequencies - 200) ** 2 / 200).sum()
    # chi-square has mean order - 1 and variance twice that
    assert abs(chi_square - (order - 1)) < 5 * math.sqrt(2 * (order - 1))


def test_a_plain_view_is_the_same_action(case):
    symmetry, values = case
    view = PlainView.of(symmetry, values)
    assert view.symmetry.is_plain
    assert_same(view.close(view.open(values)), values)
    np.testing.assert_allclose(view.symmetry.log_order(), view.whole.log_order())
    for g in draws(view.symmetry):
        seen = view.close({n: np.asarray(v) for n, v in view.symmetry.apply(g, view.open(values)).items()})
        whole = view.element(g, symmetry)
        assert_same(symmetry.apply(whole, values), dict(values) | seen)
        # what NumPy has stays its own: JAX writes cell after cell where nothing is compiled
        leaves = jax.tree.leaves(view.element(jax.tree.map(np.asarray, g), symmetry))
        assert all(isinstance(leaf, np.ndarray) for leaf in leaves) or not g
        for leaf, expected in zip(leaves, jax.tree.leaves(whole), strict=True):
            np.testing.assert_array_equal(leaf, expected)


def test_pieces_are_their_entries_to_the_last_bit(case):
    symmetry, values = case
    view = PlainView.of(symmetry, values)
    for xp in (np, jnp):
        leading = {site: xp.stack([xp.asarray(v), -xp.asarray(v)]) for site, v in values.items() if site in view.shapes}
        opened = view.open(leading)
        for name, (stack, piece) in view._pieces.items():
            entries = piece.with_rest(np.asarray(stack.of(leading)).reshape(2, -1)[:, piece.indices])
            np.testing.assert_array_equal(opened[name], entries)


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ((None, "a"), (3, 4)),
        ((Split((2, 3), (None, "a")), "b"), (6, 4)),
        ((Concat((2, 3), ("a", "b")), None), (5, 2)),
        ((Whole("a"),), ()),
    ],
    ids=["whole", "opened", "slices", "number"],
)
def test_a_piece_that_is_a_slice_is_not_gathered(axes, shape):
    kinds = {"a": "signed"} if shape == () else {}
    symmetry = Symmetry({"w": axes}, kinds).bind({"w": np.zeros(shape)})
    view = PlainView.of(symmetry, {"w": np.zeros(shape)})
    forward = jax.make_jaxpr(view.open)({"w": np.zeros(shape)})
    backward = jax.make_jaxpr(jax.grad(lambda w: sum(jnp.sum(x**2) for x in view.open({"w": w}).values())))
    assert "gather" not in str(forward)
    assert "scatter" not in str(backward(np.zeros(shape)))


def test_units_of_heads_index_by_index():
    symmetry = Symmetry({"w": ("head", None, "head/unit")}).bind({"w": np.zeros((2, 3, 4))})
    w, g = np.random.default_rng(0).normal(size=(2, 3, 4)), symmetry.sample(jax.random.key(5))
    moved, heads, units = symmetry.apply(g, {"w": w})["w"], g["head"], g["head/unit"]
    for head, row, unit in itertools.product(range(2), range(3), range(4)):
        assert moved[head, row, unit] == w[heads[head], row, units[head, unit]]


def test_action_index_by_index():
    symmetry, values = SYMMETRIES["mlp, two hidden layers"]
    (g, *_) = draws(symmetry)
    expected = oracles.apply(symmetry.axes, g, values)
    assert_same({site: symmetry.apply(g, values)[site] for site in symmetry.axes}, expected)


def test_both_axes_of_a_matrix_move():
    symmetry, values = SYMMETRIES["hidden markov model"]
    (g, *_) = draws(symmetry)
    order = np.asarray(g["state"])
    np.testing.assert_allclose(symmetry.apply(g, values)["move"], values["move"][np.ix_(order, order)], rtol=1e-6)


def test_signs_spare_unsigned_axes():
    symmetry, values = SYMMETRIES["factors"]
    flip = {"factor": SignedPermutation(jnp.arange(2), jnp.array([-1, 1]))}
    moved = symmetry.apply(flip, values)
    np.testing.assert_allclose(moved["loadings"], values["loadings"] * [-1, 1], rtol=1e-6)
    np.testing.assert_allclose(moved["scale"], values["scale"], rtol=1e-6)


def test_num_transpositions_counts_cycles():
    for n in (1, 2, 5, 9):
        batch = jax.random.permutation(
            jax.random.key(n), jnp.broadcast_to(jnp.arange(n), (20, n)), axis=1, independent=True
        )
        counted = num_transpositions({"g": batch})["g"]
        assert counted.tolist() == [n - oracles.num_cycles(p) for p in np.asarray(batch).tolist()]
        assert (num_transpositions(inverse({"g": batch}))["g"] == counted).all()


def test_num_transpositions_of_random_permutations():
    n, count = 512, 400
    batch = jax.random.permutation(jax.random.key(0), jnp.tile(jnp.arange(n), (count, 1)), axis=1, independent=True)
    counted = num_transpositions({"g": batch})["g"]
    expected = n - sum(1 / k for k in range(1, n + 1))
    assert abs(counted.mean() - expected) < 4 * counted.std() / math.sqrt(count)


def test_equal_symmetries_have_one_hash():
    """A compiled function takes them for what is fixed."""
    for symmetry, *_ in SYMMETRIES.values():
        assert hash(copy.deepcopy(symmetry)) == hash(symmetry)
