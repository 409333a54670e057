"""Where parts of an array stand after an operation, against numbers: which slices change with which."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_symmetry.discovery.labels.demands import EVEN, Demands
from numpyro_symmetry.discovery.labels.parted import (
    Parts,
    concatenated,
    contracted_with,
    joined,
    new_axis,
    part_sizes,
    slice_of,
    with_axis,
    without_axis,
)

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
    "transposed": (lambda x: x.transpose(2, 0, 1), (2, 3, 4)),
    "broadcast to the back": (lambda x: lax.broadcast_in_dim(x, (4, 2, 3), (1, 2)), (2, 3)),
    "broadcast to the front": (lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (0, 1)), (2, 3)),
    "broadcast along an axis of one": (lambda x: lax.broadcast_in_dim(x, (2, 5), (0, 1)), (2, 1)),
    "reshaped, the last kept": (lambda x: x.reshape(6, 4), (2, 3, 4)),
    "reshaped, the first kept": (lambda x: x.reshape(2, 12), (2, 3, 4)),
    "reshaped, the one between kept": (lambda x: x.reshape(2, 5, 2, 2), (2, 5, 4)),
    "reshaped by columns": (lambda x: lax.reshape(x, (4, 6), dimensions=(2, 0, 1)), (2, 3, 4)),
    "flattened by columns": (lambda x: lax.reshape(x, (24,), dimensions=(2, 1, 0)), (2, 3, 4)),
    "squeezed": (lambda x: lax.squeeze(x, (1,)), (2, 1, 3)),
    "an axis more": (lambda x: lax.expand_dims(x, (1,)), (2, 3)),
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
    """Axes of the result in whose ``k``-th block everything lies that a change of the operand's slice ``k`` changes."""
    before, shape = function(*values), values[operand].shape
    differs = []
    for k in range(shape[axis]):
        other = values[operand].at[(slice(None),) * axis + (k,)].add(1.0)
        differs.append(np.asarray(function(*values[:operand], other, *values[operand + 1 :]) != before))

    def blocks(out):
        return np.split(np.arange(before.shape[out]), shape[axis])

    return {
        out
        for out in range(before.ndim)
        if before.shape[out] % shape[axis] == 0
        and all(not np.delete(changed, block, out).any() for block, changed in zip(blocks(out), differs, strict=True))
    }


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_axis_becomes_the_one_whose_slices_change_with_its_own(name):
    with jax.enable_x64(True):
        equation, values, function = equation_and_values(name)
        for operand, value in enumerate(values):
            for axis in range(value.ndim):
                if value.shape[axis] > 1:  # of an axis of one, every other is all there is
                    found = {new_axis(equation, operand, axis, (1,) * value.shape[axis])} - {None}
                    assert found == axes_that_keep_slices_apart(function, values, operand, axis), (operand, axis)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_axes_of_a_sum_of_products_are_those_that_move_together_without_a_trace(name):
    with jax.enable_x64(True):
        equation, values, function = equation_and_values(name)
        before = function(*values)
        for operand, axis in ((k, axis) for k, value in enumerate(values) for axis in range(value.ndim)):
            if values[operand].shape[axis] == 1:
                continue
            together = set()
            for other in range(values[1 - operand].ndim if len(values) == 2 else 0):
                moved = list(values)
                moved[operand] = jnp.roll(values[operand], 1, axis)
                moved[1 - operand] = jnp.roll(values[1 - operand], 1, other)
                if np.allclose(function(*moved), before):
                    together.add(other)
            assert {contracted_with(equation, operand, axis)} - {None} == together, (operand, axis)


def test_parts_that_lie_in_a_slice():
    parts = Parts(0, (2, 3, 1), ("a", "b", "c"))
    assert parts.over(0, 2) == "a"
    assert parts.over(2, 6) == Parts(0, (3, 1), ("b", "c"))
    assert parts.over(1, 5) == Parts(0, (1, 3), ("a", "b"))
    assert parts.over(0, 3) == Parts(0, (2, 1), ("a", "b"))
    assert parts.over(3, 3) is None


def numbered(parity, shape):
    """The parity of each entry."""
    if not isinstance(parity, Parts):
        return np.full(shape, parity)
    sizes = [(*shape[: parity.axis], size, *shape[parity.axis + 1 :]) for size in parity.sizes]
    return np.concatenate([numbered(one, size) for one, size in zip(parity.of, sizes, strict=True)], parity.axis)


ROWS = Parts(0, (1, 3), ("a", Parts(1, (2, 1), ("b", "c"))))
COLUMNS = Parts(1, (1, 1, 1), ("d", "a", Parts(0, (2, 2), ("a", "e"))))


RAGGED = Parts(0, (1, 3), (Parts(1, (1, 2), ("a", "b")), Parts(1, (2, 1), ("b", "c"))))


def test_parts_of_parts_may_be_cut_in_unlike_ways():
    assert part_sizes(RAGGED) == {0: {(1, 3)}, 1: {(1, 2), (2, 1)}}
    assert part_sizes("a") == {}


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    "values", [(RAGGED, ROWS), (ROWS, COLUMNS), (COLUMNS, ROWS), (ROWS, "a", ROWS), ("a", COLUMNS)]
)
def test_values_put_end_to_end_have_the_parities_of_their_entries(axis, values):
    shape = (4, 3)
    whole = concatenated(axis, [shape[axis]] * len(values), values)
    expected = np.concatenate([numbered(one, shape) for one in values], axis)
    np.testing.assert_array_equal(numbered(whole, expected.shape), expected)
    for start in range(expected.shape[axis]):
        for stop in range(start + 1, expected.shape[axis] + 1):
            held = slice_of(whole, axis, start, stop)
            within = expected.take(range(start, stop), axis)
            np.testing.assert_array_equal(numbered(held, within.shape), within)


def test_parts_agree_one_by_one_where_they_are_cut_alike():
    demands = Demands()
    one, other = demands.unknown(), demands.unknown()
    alike = [Parts(0, (2, 4), (one, other)), None, Parts(0, (2, 4), (one, EVEN))]
    assert demands.agree(alike) == Parts(0, (2, 4), (one, other))
    assert demands.rows == [other]
    demands = Demands()
    one, other = demands.unknown(), demands.unknown()
    assert demands.agree([Parts(0, (2, 4), (one, other)), Parts(0, (4, 2), (one, other))]) == one
    assert demands.reduced(one) == demands.reduced(other) != EVEN


def test_axes_are_numbered_on_where_one_is_put_in_or_taken_away():
    assert with_axis(ROWS, 0) == Parts(1, (1, 3), ("a", Parts(2, (2, 1), ("b", "c"))))
    assert with_axis(ROWS, 1) == Parts(0, (1, 3), ("a", Parts(2, (2, 1), ("b", "c"))))
    assert without_axis(with_axis(ROWS, 1), 1) == ROWS


def test_parts_of_one_parity_are_one():
    assert joined(1, (2, 3), ("odd", "odd")) == "odd"
    assert joined(1, [2, 3], ["odd", "even"]) == Parts(1, (2, 3), ("odd", "even"))
