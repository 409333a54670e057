"""What is guessed of labels not yet placed, and moments by it, against loops."""

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import Symmetry, Unsigned
from numpyro_symmetry.entropy import GaussianFactors
from numpyro_symmetry.entropy.factorised import log_chain_of_identity, sample_chain
from numpyro_symmetry.entropy.guesses import guess_of, moments, weights_along
from numpyro_symmetry.entropy.units import UnitGaussians


def normals(rng, *shapes):
    return [jnp.asarray(rng.normal(size=shape)) for shape in shapes]


def log_normal(x, mean, variance):
    return -0.5 * ((x - mean) ** 2 / variance + np.log(variance))


@pytest.mark.parametrize("num_signs", [1, 2])
def test_a_guess_is_a_share_of_factors_and_is_relabelled_with_the_units(num_signs):
    tables = normals(np.random.default_rng(0), *[(5, 5)] * num_signs)
    guess = guess_of(tuple(tables))
    np.testing.assert_allclose(sum(guess).sum(0), 1.0, rtol=1e-5)
    # nearly of rows too: after two steps, not after none
    np.testing.assert_allclose(sum(guess).sum(1), 1.0, atol=0.02)
    order = jnp.array([3, 1, 0, 4, 2])
    moved = guess_of(tuple(table[:, order] for table in tables[::-1]))
    for part, expected in zip(moved, guess[::-1], strict=True):
        np.testing.assert_allclose(part, expected[:, order], rtol=1e-5)


def test_moments_are_those_of_mixtures():
    """Along two axes, of which one flips, entry by entry."""
    rng = np.random.default_rng(1)
    sites = {"w": (None, "a", "b", "c")}
    symmetry = Symmetry(sites, {"c": "signed"}).bind({"w": np.zeros((2, 3, 3, 2))})
    guesses = {name: guess_of(tuple(normals(rng, *[(n, n)] * k))) for name, n, k in (("b", 3, 1), ("c", 2, 2))}
    loc, scale = 2.0 + 3.0 * rng.normal(size=(2, 3, 6)), np.exp(rng.normal(size=(2, 3, 6)))

    @jax.jit
    def guessed(loc, scale, guesses):
        return moments(loc, scale, weights_along(symmetry.opened("w")[2:], symmetry, guesses))

    mean, variance = guessed(loc, scale, guesses)
    (of_b,), (kept, flipped) = (np.asarray(guesses[name]) for name in "bc")
    for k, m in itertools.product(range(3), range(2)):
        first, second = np.zeros((2, 3)), np.zeros((2, 3))
        for b, c in itertools.product(range(3), range(2)):
            entry = 2 * b + c
            first += of_b[b, k] * (kept[c, m] - flipped[c, m]) * loc[..., entry]
            second += of_b[b, k] * (kept[c, m] + flipped[c, m]) * (scale[..., entry] ** 2 + loc[..., entry] ** 2)
        np.testing.assert_allclose(mean[..., 2 * k + m], first, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(variance[..., 2 * k + m], second - first**2, rtol=1e-4)


def test_certain_labels_have_the_moments_of_their_factors_and_unknown_ones_of_all():
    loc, scale = 1e3 + np.random.default_rng(2).normal(size=(3, 4)), np.full((3, 4), 1e-2)
    symmetry = Symmetry({"w": (None, "a")}).bind({"w": loc})
    (axis,) = symmetry.opened("w")[1:]
    certain = weights_along([axis], symmetry, {"a": (jnp.eye(4),)})
    mean, variance = moments(jnp.asarray(loc), jnp.asarray(scale), certain)
    np.testing.assert_allclose(mean, loc, rtol=1e-6)
    np.testing.assert_allclose(variance, scale**2, rtol=1e-3)
    mean, variance = moments(jnp.asarray(loc), jnp.asarray(scale), weights_along([axis], symmetry, {}))
    np.testing.assert_allclose(mean, np.tile(loc.mean(1, keepdims=True), 4), rtol=1e-6)
    np.testing.assert_allclose(variance, np.tile(loc.var(1, keepdims=True) + 1e-4, 4), rtol=1e-3)


@pytest.mark.parametrize("second", ["a", Unsigned("a")])
def test_a_group_that_meets_itself_is_read_entry_by_entry(second):
    """Every entry by the factor that it may have if unit j is i, of itself with itself too."""
    rng = np.random.default_rng(4)
    n = 4
    loc, scale = {"w": rng.normal(size=(n, n))}, {"w": np.exp(rng.normal(size=(n, n)))}
    symmetry = Symmetry({"w": ("a", second)}, {"a": "signed"}).bind(loc)
    guess = guess_of(tuple(normals(rng, (n, n), (n, n))))
    draw = rng.normal(size=(n, n))
    factors = GaussianFactors(*(jax.tree.map(jnp.asarray, x) for x in (loc, scale)))
    tables = jax.jit(lambda f, draw, guess: f.tables(symmetry, {"w": draw}, "a", guesses={"a": guess}))(
        factors, draw, guess
    )
    kept, flipped = np.asarray(guess)
    even, odd = kept + flipped, kept - flipped
    both = second == "a"
    for sign, table in zip((1, -1), tables, strict=True):
        expected = np.zeros((n, n))
        for i, j in itertools.product(range(n), range(n)):
            own = draw[j, j] if both else sign * draw[j, j]
            expected[i, j] = log_normal(own, loc["w"][i, i], scale["w"][i, i] ** 2)
            others = [factor for factor in range(n) if factor != i]
            for k in (k for k in range(n) if k != j):
                # along the first axis unit j flips; along the second only if that is signed, as does what is guessed
                for value, m, s, flips, mixed in (
                    (draw[j, k], loc["w"][i], scale["w"][i], True, odd if both else even),
                    (draw[k, j], loc["w"][:, i], scale["w"][:, i], both, odd),
                ):
                    total = even[others, k].sum()
                    mean = mixed[others, k] @ m[others] / total
                    variance = even[others, k] @ (s[others] ** 2 + m[others] ** 2) / total - mean**2
                    expected[i, j] += log_normal(sign * value if flips else value, mean, variance)
        np.testing.assert_allclose(table, expected, rtol=1e-4, atol=1e-4)


# sites, kinds of groups, their sizes
CASES = {
    "two layers": ({"w1": (None, "a"), "w2": ("a", "b"), "w3": ("b", None)}, {}, {"a": 3, "b": 3}),
    "signed layers": ({"w1": (None, "a"), "w2": ("a", "b")}, {"a": "signed", "b": "signed"}, {"a": 2, "b": 2}),
    "met by itself": ({"t": ("a", "a"), "e": (None, "a")}, {}, {"a": 4}),
    "met by itself, signed": ({"t": ("a", None, "a"), "e": (None, "a")}, {"a": "signed"}, {"a": 3}),
    "of three": ({"w": ("a", "b", "c"), "v": ("c",)}, {"c": "signed"}, {"a": 2, "b": 2, "c": 2}),
}


@partial(jax.jit, static_argnums=0)
def log_probabilities(symmetry, factors, draw, elements):
    """What the chain gives to the identity where elements have moved a draw to."""
    return jax.lax.map(lambda g: log_chain_of_identity(symmetry, factors, symmetry.apply(g, draw)), elements)


def sum_over_elements(symmetry, factors, draw):
    """What the chain gives to all elements of a draw: one, or its bound is not strict."""
    found = log_probabilities(symmetry, factors, draw, symmetry.elements(max_order=400))
    return np.exp(np.asarray(found, float)).sum()


@pytest.mark.parametrize("case", CASES)
def test_elements_are_drawn_with_the_probabilities_that_they_have(case):
    """As the chain gives to the identity where an element has moved the draw to: what both bounds weigh by."""
    sites, kinds, sizes = CASES[case]
    rng = np.random.default_rng(7)
    shapes = {site: tuple(2 if name is None else sizes[name] for name in names) for site, names in sites.items()}
    loc = {site: jnp.asarray(rng.normal(size=shape), jnp.float32) for site, shape in shapes.items()}
    factors = GaussianFactors(loc, {site: jnp.ones(shape) for site, shape in shapes.items()})
    symmetry = Symmetry(sites, kinds).bind(loc)
    draw = {site: value + jnp.asarray(rng.normal(size=value.shape), jnp.float32) for site, value in loc.items()}
    # as many as there are, which the program that sums over them holds
    count = round(math.exp(symmetry.log_order()))
    elements, logs = jax.jit(lambda key: sample_chain(key, symmetry, factors, draw, count))(jax.random.key(0))
    expected = log_probabilities(symmetry, factors, draw, elements)
    np.testing.assert_allclose(logs, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("size", "is_guessed"), [(32, True), (33, False)])
def test_of_wide_layers_nothing_is_guessed(size, is_guessed):
    """Tables of guesses are as large as the cube of it."""
    shapes = {"w1": (1, 3), "w2": (3, size)}
    loc = {site: jnp.zeros(shape) for site, shape in shapes.items()}
    factors = GaussianFactors(loc, {site: jnp.ones(shape) for site, shape in shapes.items()})
    symmetry = Symmetry({"w1": (None, "a"), "w2": ("a", "b")}).bind(loc)
    program = jax.make_jaxpr(lambda draw: log_chain_of_identity(symmetry, factors, draw))(loc)
    assert (f"f32[1,3,{size},{size}]" in str(program)) == is_guessed


@pytest.mark.parametrize("case", CASES)
def test_a_chain_with_guesses_is_a_distribution(case):
    """Over all elements of a draw, in single precision, where some units overlap and others lie far from them."""
    for scale in (0.8, 1e-2, 1e-4):
        symmetry, factors, draws = overlapping(case, scale)
        for draw in draws:
            np.testing.assert_allclose(sum_over_elements(symmetry, factors, draw), 1.0, atol=2e-3, err_msg=str(scale))


def overlapping(case, scale):
    sites, kinds, sizes = CASES[case]
    rng = np.random.default_rng(5)
    shapes = {site: tuple(2 if name is None else sizes[name] for name in names) for site, names in sites.items()}
    loc = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    if scale < 0.8:  # two units of the first group alike but for a standard deviation
        for site, names in sites.items():
            for axis, name in enumerate(names):
                if name == "a":
                    rows = np.moveaxis(loc[site], axis, 0)
                    rows[1] = rows[0] + scale * rows[1]
    loc = {site: jnp.asarray(value, jnp.float32) for site, value in loc.items()}
    factors = GaussianFactors(loc, {site: jnp.full(shape, scale) for site, shape in shapes.items()})
    noise = [{site: jnp.asarray(rng.normal(size=shape), jnp.float32) for site, shape in shapes.items()} for _ in "abc"]
    draws = [{site: loc[site] + scale * each[site] for site in sites} for each in noise]
    return Symmetry(sites, kinds).bind(loc), factors, draws


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_units_are_not_read_before_the_labels_on_them_are_settled(order):
    """Of units with covariances of their own beside entries that are independent, whichever group comes first."""
    rng = np.random.default_rng(6)
    sites = {"w1": (None, "a"), "w2": ("a", "b"), "v": ("a", "b"), "w3": ("b", None)}
    shapes = {"w1": (1, 3), "w2": (3, 3), "v": (3, 3), "w3": (3, 1)}
    if order == "ba":
        sites = dict(reversed(sites.items()))
    loc = {site: jnp.asarray(rng.normal(size=shapes[site]), jnp.float32) for site in sites}
    scale = {site: jnp.ones(shapes[site]) for site in sites}
    factors = UnitGaussians(loc, scale, {"w2": jnp.asarray(0.3 * rng.normal(size=(3, 3, 3)), jnp.float32)})
    symmetry = Symmetry(sites).bind(loc)
    assert list(symmetry.groups) == list(order)
    for _ in range(3):
        draw = {site: loc[site] + jnp.asarray(rng.normal(size=shapes[site]), jnp.float32) for site in sites}
        np.testing.assert_allclose(sum_over_elements(symmetry, factors, draw), 1.0, atol=1e-4)
