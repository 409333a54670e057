"""Where parts of an array stand after an operation, against numbers: which entries come from which, and meet which."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_symmetry.discovery.labels.demands import Demands
from numpyro_symmetry.discovery.labels.parted import Parts, apart, as_slices, axes_met, joined, mapped, moved, with_axis

WINDOWS = ("NWC", "WIO", "NWC")


def contracting(batch=((), ()), contracted=((1,), (0,))):
    return lambda x, y: lax.dot_general(x, y, (contracted, batch))


def convolving(numbers=WINDOWS, groups=1, batches=1):
    counts = {"feature_group_count": groups, "batch_group_count": batches}
    return lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=numbers, **counts)


OPERATIONS = {
    "tanh": (jnp.tanh, (2, 3)),
    "sum of the first axis": (lambda x: lax.reduce_sum_p.bind(x, axes=(0,), out_sharding=None), (2, 3, 4)),
    "sum of an axis between": (lambda x: x.sum(1), (2, 3, 4)),
    "sum of two axes": (lambda x: x.sum((0, 2)), (2, 3, 4, 5)),
    "two values": (lax.mul, (2, 3), (2, 3)),
    "a value and a number": (lambda x, a: lax.mul_p.bind(x, a), (2, 3), ()),
    "a product": (contracting(), (2, 3), (3, 4)),
    "a product over the first axes": (contracting(contracted=((0,), (0,))), (3, 2), (3, 4)),
    "a product over two axes": (contracting(contracted=((0, 2), (1, 0))), (3, 2, 5), (5, 3, 4)),
    "products in a batch": (contracting(((1,), (2,)), ((2,), (0,))), (2, 6, 3), (3, 4, 6)),
    "a batch of products over two axes": (contracting(((0,), (1,)), ((1, 3), (2, 0))), (6, 2, 5, 3), (3, 6, 2, 4)),
    "a convolution": (convolving(), (2, 7, 3), (5, 3, 4)),
    "a convolution, channels first": (convolving(("NCW", "OIW", "CNW")), (2, 3, 7), (4, 3, 5)),
    "a convolution in groups": (convolving(groups=2), (3, 7, 4), (5, 2, 6)),
    "a convolution in groups of the batch": (convolving(batches=2), (6, 7, 3), (5, 3, 4)),
}


def equation_and_values(name):
    function, *shapes = OPERATIONS[name]
    rng = np.random.default_rng(0)
    values = [jnp.asarray(rng.normal(size=shape)) for shape in shapes]
    (equation,) = jax.make_jaxpr(function)(*values).jaxpr.eqns
    return equation, values, function


def axes_that_keep_slices_apart(function, values, operand, axis):
    """Axes of the result in whose slice ``k`` everything lies that a change of the operand's slice ``k`` changes."""
    before, shape = function(*values), values[operand].shape
    differs = []
    for k in range(shape[axis]):
        other = values[operand].at[(slice(None),) * axis + (k,)].add(1.0)
        differs.append(np.asarray(function(*values[:operand], other, *values[operand + 1 :]) != before))
    return {
        out
        for out in range(before.ndim)
        if before.shape[out] == shape[axis]
        and all(not np.delete(changed, k, out).any() for k, changed in enumerate(differs))
    }


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_axis_becomes_the_one_whose_slices_change_with_its_own(name):
    with jax.enable_x64(True):
        equation, values, function = equation_and_values(name)
        labels, out = axes_met(equation)
        for operand, value in enumerate(values):
            for axis in range(value.ndim):
                found = {k for k, label in enumerate(out) if label == labels[operand][axis]}
                assert found == axes_that_keep_slices_apart(function, values, operand, axis), (operand, axis)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_axes_of_a_sum_of_products_are_those_that_move_together_without_a_trace(name):
    with jax.enable_x64(True):
        equation, values, function = equation_and_values(name)
        before, (labels, out) = function(*values), axes_met(equation)
        for operand, axis in ((k, axis) for k, value in enumerate(values) for axis in range(value.ndim)):
            together = set()
            for other in range(values[1 - operand].ndim if len(values) == 2 else 0):
                both = list(values)
                both[operand] = jnp.roll(values[operand], 1, axis)
                both[1 - operand] = jnp.roll(values[1 - operand], 1, other)
                if np.allclose(function(*both), before):
                    together.add(other)
            label = labels[operand][axis]
            others = labels[1 - operand] if len(values) == 2 else []
            assert {k for k, one in enumerate(others) if one == label and label not in out} == together, (operand, axis)


@pytest.mark.parametrize(
    "function", [lambda x: lax.cumsum(x, 1), lambda x: lax.bitcast_convert_type(x.astype(np.int8), np.float32)]
)
def test_an_operation_that_mixes_entries_leaves_no_parts(function):
    equation = jax.make_jaxpr(function)(jnp.ones((3, 4))).jaxpr.eqns[-1]
    assert axes_met(equation) is None


# ---- parts, entry by entry -------------------------------------------------------------------------------------------


def entries(parity, shape):
    """The parity of each entry."""
    if not isinstance(parity, Parts):
        return np.full(shape, parity, object)
    assert parity.shape == shape
    of = np.empty(len(parity.of), object)
    of[:] = parity.of
    of = of.reshape([len(sizes) for sizes in parity.sizes])
    for axis, sizes in enumerate(parity.sizes):
        of = np.repeat(of, sizes, axis)
    return of


def parts_of(rng, shape, most=3):
    """A value of random parts, of a single one at times."""
    if rng.random() < 0.2:
        return str(rng.integers(most))
    sizes = []
    for n in shape:
        inner = rng.choice(np.arange(1, n), rng.integers(min(most, n)), replace=False) if n > 1 else []
        sizes.append(np.diff([0, *sorted(inner), n]).tolist())
    return joined(sizes, [str(k) for k in rng.integers(most, size=np.prod([len(own) for own in sizes], dtype=int))])


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_parts_meet_as_their_entries_do(name, seed):
    """Each entry of a result is told which entries of the operands it is made from, by a sum over all that meet."""
    rng = np.random.default_rng(seed)
    equation, values, _ = equation_and_values(name)
    labels, out = axes_met(equation)
    shape = equation.outvars[0].aval.shape
    operands = [parts_of(rng, value.shape) for value in values]
    agree = functools.partial(functools.reduce, frozenset.union)
    found = apart(lambda *one: frozenset([one]), agree, operands, labels, out, shape)

    lengths = dict(zip(out, shape, strict=True))
    for own, value in zip(labels, values, strict=True):
        lengths |= dict(zip(own, value.shape, strict=True))
    expected = np.full(shape, frozenset(), object)
    each = [entries(parity, value.shape) for parity, value in zip(operands, values, strict=True)]
    for places in itertools.product(*map(range, lengths.values())):
        at = dict(zip(lengths, places, strict=True))
        met = tuple(one[tuple(at[k] for k in own)] for own, one in zip(labels, each, strict=True))
        expected[tuple(at[k] for k in out)] |= {met}
    np.testing.assert_array_equal(entries(found, shape), expected)


def test_of_more_blocks_than_are_followed_one_is_left(monkeypatch):
    monkeypatch.setattr("numpyro_symmetry.discovery.labels.parted._MOST_BLOCKS", 3)
    parts = [Parts(((1, 1), (1,)), ("a", "b")), Parts(((2,), (1,)), ("c",)), "d"]
    axes = [range(2)] * 3
    assert apart(lambda *one: "".join(one), "".join, parts, axes, range(2), (2, 1)) == Parts(
        ((1, 1), (1,)), ("acd", "bcd")
    )
    parts[0] = Parts(((1, 1), (1, 1)), ("a", "b", "a", "a"))
    assert apart(lambda *one: "".join(one), "".join, parts, axes, range(2), (2, 2)) == "abaacd"


MOVES = {
    "transposed": lambda x, y: x.transpose(1, 0),
    "flattened": lambda x, y: x.reshape(-1),
    "reshaped": lambda x, y: x.reshape(2, 3, 2, 2),
    "turned round": lambda x, y: x[::-1, ::-1],
    "every other": lambda x, y: x[1::2, ::3],
    "empty": lambda x, y: x[:, :0],
    "one put behind the other": lambda x, y: jnp.concatenate([y, x], 1),
    "tiled": lambda x, y: jnp.tile(x, (2, 1)),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("seed", range(3))
def test_parts_move_with_their_entries(name, seed):
    rng = np.random.default_rng(seed)
    operands = [parts_of(rng, (4, 6)), parts_of(rng, (4, 2))]
    (found,) = moved(lambda *arrays: [np.asarray(MOVES[name](*arrays))], operands, [(4, 6), (4, 2)])
    names = [entries(parity, shape) for parity, shape in zip(operands, [(4, 6), (4, 2)], strict=True)]
    expected = MOVES[name](*[jnp.asarray(one.astype(int)) for one in names])
    if expected.size:
        np.testing.assert_array_equal(entries(found, expected.shape).astype(int), expected)
    else:
        assert found is None


def test_as_few_parts_are_left_as_there_are_slices_that_differ():
    (found,) = moved(lambda x: [x[:, :3]], [Parts(((1, 2), (2, 1, 3)), ("a", "b", "c", "d", "d", "c"))], [(3, 6)])
    assert found == Parts(((1, 2), (2, 1)), ("a", "b", "d", "d"))
    (found,) = moved(lambda x: [x[1:]], [found], [(3, 3)])
    assert found == "d"


def test_parts_of_one_parity_are_one():
    assert joined([(2, 3)], ("odd", "odd")) == "odd"
    assert joined([], ()) is None
    parts = joined([[2, 3], [4]], ["odd", "even"])
    assert parts == Parts(((2, 3), (4,)), ("odd", "even"))
    assert mapped(parts, len) == Parts(((2, 3), (4,)), (3, 4))
    assert mapped(parts, type) is str
    assert mapped("odd", len) == 3
    assert with_axis(parts, 7) == Parts(((7,), (2, 3), (4,)), ("odd", "even"))
    assert with_axis("odd", 7) == "odd"


def test_a_split_is_several_slices():
    (equation,) = jax.make_jaxpr(lambda x: lax.split(x, (2, 1), 1))(jnp.ones((2, 3))).jaxpr.eqns
    slices = as_slices(equation, [None])
    assert [one.primitive.name for one in slices] == ["slice"] * 2
    assert [one.params["start_indices"] for one in slices] == [(0, 0), (0, 2)]
    assert [one.params["limit_indices"] for one in slices] == [(2, 2), (2, 3)]


def test_parts_agree_one_by_one():
    demands = Demands()
    one, other = demands.unknown(), demands.unknown()
    alike = [Parts(((2, 4),), (one, other)), None, Parts(((2, 4),), (one, one))]
    assert demands.agree(alike) == Parts(((2, 4),), (one, other))
    assert demands.rows == [one ^ other]
    demands = Demands()
    first, second, third, fourth = (demands.unknown() for _ in range(4))
    cut_in_unlike_ways = [Parts(((2, 4),), (first, second)), Parts(((4, 2),), (third, fourth))]
    assert demands.agree(cut_in_unlike_ways) == Parts(((2, 2, 2),), (first, second, second))
    assert {demands.reduced(k) for k in (first, second, third, fourth)} == {demands.reduced(first)} != {0}


def test_slices_that_a_loop_reads_one_by_one_agree():
    demands = Demands()
    one, other, third = (demands.unknown() for _ in range(3))
    rows = Parts(((1, 2), (2, 3)), (one, other, one, third))
    assert demands.agree_along_first(rows) == Parts(((2, 3),), (one, other))
    assert demands.rows == [other ^ third]
    assert demands.agree_along_first(one) == one
