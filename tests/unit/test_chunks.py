"""How many items are worked on together changes memory, and no result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from numpyro_symmetry import Symmetry, match, mutual_information
from numpyro_symmetry.assignment import passes
from numpyro_symmetry.chunks import at_once, mapped, slices
from numpyro_symmetry.devices import as_sharding, num_parts, over_local_devices, sharding_of
from numpyro_symmetry.entropy import GaussianFactors, size_of_tables
from numpyro_symmetry.entropy.factorised import sample_chain

TABLES = jax.random.normal(jax.random.key(0), (2, 5, 6, 6))


@pytest.mark.parametrize(("count", "size", "most"), [(0, 3, 10), (1, 0, 1), (7, 3, 10), (10, 100, 10), (10, 1, 10)])
def test_slices_hold_all_items_and_no_more_than_fit(count, size, most):
    parts = list(slices(count, size, most))
    assert [k for part in parts for k in range(part.start, part.stop)] == list(range(count))
    assert all(part.stop - part.start <= at_once(size, most) for part in parts)
    assert at_once(size, most) == 1 or at_once(size, most) * size <= most


@pytest.mark.parametrize("step", [1, 3, 5, 9])
def test_what_is_mapped_in_chunks_is_what_is_mapped_at_once(step):
    items = jnp.linspace(0.1, 1.0, 7)

    def total(items, step):
        return mapped(jnp.log, items, step).sum()

    np.testing.assert_allclose(*(jax.value_and_grad(total)(items, k)[0] for k in (step, 7)), rtol=1e-6)
    np.testing.assert_allclose(*(jax.grad(total)(items, k) for k in (step, 7)), rtol=1e-6)


@pytest.mark.parametrize(
    ("estimator", "bound"), [("exact", "lower"), ("sequential", "lower"), ("infonce", "lower"), ("importance", "both")]
)
def test_information_is_that_of_all_draws_together(estimator, bound):
    options = {"estimator": estimator, "bound": bound, "rng_key": jax.random.key(1)}
    whole, parts = (mutual_information(TABLES, chunk_size=k, **options) for k in ("auto", 3))
    assert whole.shape == ((2,) if bound == "both" else ()) + TABLES.shape[:2]
    np.testing.assert_allclose(parts, whole, rtol=1e-5)


def test_elements_are_drawn_alike_however_many_together(monkeypatch):
    draw = {"a": jax.random.normal(jax.random.key(2), (2, 5))}
    symmetry = Symmetry({"a": (None, "one")}).bind(draw)
    factors = GaussianFactors(draw, jax.tree.map(jnp.ones_like, draw))
    assert size_of_tables(symmetry) == 25

    def drawn():
        return jax.jit(lambda key: sample_chain(key, symmetry, factors, draw, 5))(jax.random.key(3))

    whole, log_whole = drawn()
    monkeypatch.setattr("numpyro_symmetry.chunks.CHUNK", 50)
    parts, log_parts = drawn()
    assert all((whole[name] == parts[name]).all() for name in whole)
    np.testing.assert_allclose(log_whole, log_parts, rtol=1e-5)


def test_matches_are_those_of_all_sources_together():
    symmetry = Symmetry({"w1": (None, "hidden"), "w2": ("hidden", "next"), "w3": ("next",)})
    rng = np.random.default_rng(0)
    target, source = (
        {"w1": rng.normal(size=(*n, 2, 5)), "w2": rng.normal(size=(*n, 5, 4)), "w3": rng.normal(size=(*n, 4))}
        for n in ((), (5,))
    )
    whole, parts = (match(target, source, symmetry, chunk_size=k) for k in ("auto", 2))
    assert all((whole.element[name] == parts.element[name]).all() for name in whole.element)
    np.testing.assert_allclose(whole.objective, parts.objective, rtol=1e-12)


@pytest.mark.parametrize("chunk_size", [0, -1, 2.5, "all", None, True])
def test_a_chunk_is_a_number_of_items(chunk_size):
    with pytest.raises((TypeError, ValueError), match="chunk_size must be"):
        mutual_information(TABLES, estimator="sequential", chunk_size=chunk_size)
    point = {"w": np.arange(3.0)}
    with pytest.raises((TypeError, ValueError), match="chunk_size must be"):
        match(point, point, Symmetry({"w": ("unit",)}), chunk_size=chunk_size)


# ---- how items lie over devices, as far as one device tells ----------------------------------------------------------

EIGHT = AbstractMesh((4, 2), ("item", "data"))


@pytest.mark.parametrize(
    ("spec", "count", "parts"), [(("item",), 12, 4), ((("item", "data"),), 16, 8), (("data",), 2, 2)]
)
def test_devices_that_divide_items_take_as_many_each(spec, count, parts):
    sharding = NamedSharding(EIGHT, PartitionSpec(*spec))
    assert num_parts(as_sharding(sharding, count, "num_chains")) == parts


def test_items_lie_over_no_devices_where_there_is_one():
    assert all(over_local_devices(count) is None for count in range(1, 5))


@pytest.mark.parametrize(
    ("sharding", "count", "error", "words"),
    [
        ("item", 4, TypeError, "sharding must be a jax.sharding.NamedSharding.*got 'item'"),
        (PartitionSpec("item"), 4, TypeError, "NamedSharding"),
        (NamedSharding(EIGHT, PartitionSpec()), 4, ValueError, r"Write PartitionSpec\('item'\)"),
        (NamedSharding(EIGHT, PartitionSpec(None, "item")), 4, ValueError, "one axis, that of num_chains"),
        (
            NamedSharding(EIGHT, PartitionSpec("item")),
            6,
            ValueError,
            "num_chains is 6.*4 devices.*Take 8.*of 3 devices",
        ),
        (NamedSharding(EIGHT, PartitionSpec("item")), 5, ValueError, "Take 8 of them, or a mesh of 1 device"),
    ],
)
def test_what_cannot_lie_over_devices_is_refused_with_a_remedy(sharding, count, error, words):
    with pytest.raises(error, match=words):
        as_sharding(sharding, count, "num_chains")


def test_an_array_on_one_device_lies_over_none():
    assert sharding_of(TABLES, beside=2) is None


def test_a_sum_over_many_windows_is_the_sum_of_all(monkeypatch):
    monkeypatch.setattr("numpyro_symmetry.chunks.CHUNK", 20)
    values = np.random.default_rng(0).normal(size=(500, 4))
    assert len(passes.chunks_of(values)) == 100
    np.testing.assert_allclose(passes.summed(values, lambda x: x.sum(0)), values.sum(0), rtol=1e-12)
    np.testing.assert_array_equal(np.concatenate(passes.each(values, lambda x: x)), values)
