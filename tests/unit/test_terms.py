"""Labels of axes that become one: what may still be exchanged stands in the same places of both."""

import itertools

import numpy as np
import pytest

from numpyro_symmetry.discovery.labels import fibres
from numpyro_symmetry.discovery.labels.terms import (
    Atom,
    Joined,
    Product,
    Reason,
    Term,
    atoms_of,
    axis,
    impose,
    indices_of,
    reasons_of,
    resolve,
    unify,
)

REASON = Reason("met", "line", "order")


def made(rng, size, known):
    """A label of so many indices: an axis, fresh or one that stands elsewhere too, or several flattened or joined."""
    factors = [k for k in range(2, size) if size % k == 0]
    kind = rng.choice(["axis", "known", "product", "joined"]) if size > 1 else "axis"
    if kind == "product" and factors:
        outer = int(rng.choice(factors))
        return Product([made(rng, outer, known), made(rng, size // outer, known)])
    if kind == "joined":
        first = int(rng.integers(1, size))
        return Joined([made(rng, first, known), made(rng, size - first, known)])
    if kind == "known" and (alike := [term for term in known if term.size == size]):
        return alike[rng.integers(len(alike))]
    known.append(axis(size))
    return known[-1]


def places(term: Term):
    """Index of an axis -> the atoms that may move there, with the index of each."""

    def atoms(index):
        if isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], Atom):
            return [] if index[0].is_pinned else [index]
        return [pair for part in index if isinstance(part, tuple) for pair in atoms(part)]

    return [sorted((atom.serial, k) for atom, k in atoms(index)) for index in indices_of(term)]


@pytest.mark.parametrize("size", [6, 12, 16, 24])
def test_one_label_moves_as_the_other(size):
    free = 0
    for seed in range(60):
        rng, known = np.random.default_rng(seed), []
        a, b = made(rng, size, known), made(rng, size, known)
        found = unify(a, b, REASON)
        assert places(a) == places(b) == places(found)
        free += any(places(a))
    # not all are pinned
    assert free > 15


@pytest.mark.parametrize("parts", [Product, Joined])
def test_all_that_told_indices_apart_is_known_of_what_an_axis_turns_out_to_be(parts):
    """Whether it meets data too, which decides if numbers are asked."""
    seen = {
        Reason("shifted", strength="moved"): [0, 0, 0, 0, 0, 1],
        Reason("taken"): [0, 0, 0, 0, 1, 1],
        Reason("meets data", strength="data"): [0, 0, 0, 1, 2, 3],
    }
    one, other = axis(6), parts([axis(2), axis(3)] if parts is Product else [axis(2), axis(4)])
    for reason, colours in seen.items():
        impose(one, np.array(colours), reason)
    assert set(reasons_of(one)) == seen.keys()
    for term in (unify(one, other, REASON), other):
        for atom in atoms_of(term):
            assert seen.keys() <= set(atom.reasons)


def test_axes_that_flatten_otherwise_are_pinned_and_others_are_cut():
    two, three = axis(2), axis(3)
    label = Product([two, three])
    unify(label, Product([axis(3), axis(2)]), REASON)
    assert not any(places(label))
    four, six = axis(4), axis(6)
    unify(Product([four, axis(3)]), Product([axis(2), six]), REASON)
    assert [part.size for part in resolve(four).parts] == [2, 2]
    assert [part.size for part in resolve(six).parts] == [2, 3]


@pytest.mark.parametrize("is_first", [True, False])
def test_an_axis_that_is_cut_where_it_stands_and_stands_there_again(is_first):
    four = axis(4)
    twice, other = Product([four, four]), Product([axis(8), axis(2)])
    found = unify(twice, other, REASON) if is_first else unify(other, twice, REASON)
    assert found.size == 16
    assert places(twice) == places(other) == places(found)
    assert any(places(found))


@pytest.mark.parametrize("first", [0, 1])
def test_of_axes_in_too_many_parts_to_look_at_nothing_is_known(monkeypatch, first):
    """They may stand there with another, or twice, and so are fibred over none."""
    outer, inner, more = (axis(n) for n in (2, 3, 4))
    alone, joined = (outer, inner), (outer, Joined([inner, more]))

    def found(values):
        return fibres.chains(values, [], {one.serial: one for one in (outer, inner)}, [inner.serial])

    values = [alone, joined][:: 1 - 2 * first]
    assert found(values) == {inner.serial: [outer.serial]}
    assert not found([*values, (outer, *joined)])
    monkeypatch.setattr(fibres, "_MAX_COMBINATIONS", 1)
    assert found([alone]) == {inner.serial: [outer.serial]}
    assert not found(values)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_fibres_are_those_of_axes_in_any_order(order):
    """Outer axes come first, of which each moves by itself at every index of those before it, and still ones last."""
    found = {k: axis(k + 2) for k in order}
    outer, middle, inner, still = (found[k] for k in range(4))
    atoms, moving = {one.serial: one for one in found.values()}, [found[k].serial for k in order if k != 3]
    of_data, lone = axis(7), axis(8)

    def chained(*values, free=moving, atoms=atoms):
        return fibres.chains([*values, (outer,), (outer, middle), (still,)], [], atoms, free)

    nested = {middle.serial: [outer.serial], inner.serial: [outer.serial, middle.serial]}
    assert chained((inner, middle, outer)) == nested
    # axes that are no site's own have no label
    assert chained((of_data, inner, middle, outer)) == nested
    deeper = nested | {inner.serial: [*nested[inner.serial], still.serial]}
    assert chained((still, inner, middle, outer)) == deeper
    # a still axis has one label, that of all of it or of its part at each index of others
    also = nested | {lone.serial: [still.serial]}
    with_lone = {"free": [*moving, lone.serial], "atoms": atoms | {lone.serial: lone}}
    assert chained((still, inner, middle, outer), (still, lone), **with_lone) == also


def test_of_axes_that_stand_nowhere_without_one_another_the_first_is_the_inner_one():
    one, other = axis(2), axis(3)
    atoms = {x.serial: x for x in (one, other)}
    for free in ([one.serial, other.serial], [other.serial, one.serial]):
        assert fibres.chains([(one, other)], [], atoms, free) == {free[0]: free[1:]}
