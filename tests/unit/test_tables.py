"""Tables of unit log densities in single precision, against double precision on the same numbers."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import Symmetry, entropy
from numpyro_symmetry.entropy import Factorised, GaussianFactors
from numpyro_symmetry.entropy.tables import _matters
from numpyro_symmetry.entropy.telling import take_rows
from tests.support.tables import every_estimator

SITES = {
    "layer": {"w": (None, "a")},
    "signed layer": {"w": (None, "a"), "v": ("a",)},
    "chain": {"w1": (None, "a"), "w2": ("a", "b"), "w3": ("b",)},
    "signed chain": {"w1": (None, "a"), "w2": ("a", "b"), "w3": ("b",)},
}


def clusters_far_apart(kind, n, f, ratio, num_draws=8):
    """Units in two clusters, alike within each but for a standard deviation, which is ``ratio`` of what parts them."""
    groups = {name for entries in SITES[kind].values() for name in entries if name}
    symmetry = Symmetry(SITES[kind], {name: "signed" for name in groups} if "signed" in kind else {})
    rng, loc, scale = np.random.default_rng(0), {}, {}
    for site, entries in SITES[kind].items():
        shape = tuple(n if entry else f for entry in entries)
        centres = rng.normal(size=[2 if entry else f for entry in entries])
        index = np.ix_(*(np.arange(n) % 2 if entry else np.arange(f) for entry in entries))
        scale[site] = ratio * np.exp(0.3 * rng.normal(size=shape)).astype(np.float32)
        loc[site] = (centres[index] + ratio * rng.normal(size=shape)).astype(np.float32)
        scale[site] = scale[site].astype(np.float32)
    noise = {site: rng.normal(size=(num_draws, *x.shape)).astype(np.float32) for site, x in loc.items()}
    draws = {site: loc[site] + scale[site] * noise[site] for site in loc}
    return symmetry.bind(loc), loc, scale, noise, draws


def value_and_gradient(problem, estimator, x64, *, gradient=True):
    """Per draw; the gradient, if asked for, in means, in standard deviations, and log standard deviations."""
    symmetry, *arrays = problem
    still = jax.lax.stop_gradient
    with jax.enable_x64(x64):
        dtype = np.float64 if x64 else np.float32
        loc0, scale0, noise, draws = ({s: jnp.asarray(x, dtype) for s, x in given.items()} for given in arrays)

        def information(shifts, log_scales):
            loc = {s: loc0[s] + scale0[s] * shifts[s] for s in loc0}
            scale = {s: scale0[s] * jnp.exp(log_scales[s]) for s in loc0}

            def of_draw(draw, noise):
                moving = {s: draw[s] + loc[s] - still(loc[s]) + noise[s] * (scale[s] - still(scale[s])) for s in draw}
                return entropy.information(
                    Factorised(GaussianFactors(loc, scale)), symmetry, moving, estimator=estimator
                )

            # without gradients one by one, as a CPU takes a batch, but in a program of one draw and not of all
            values = jax.vmap(of_draw)(draws, noise) if gradient else jax.lax.map(lambda x: of_draw(*x), (draws, noise))
            return values.mean(), values

        nothing = {s: jnp.zeros_like(x) for s, x in loc0.items()}
        if not gradient:
            return np.asarray(jax.jit(information)(nothing, nothing)[1], float), None
        program = jax.jit(jax.value_and_grad(information, argnums=(0, 1), has_aux=True))
        (_, values), slopes = program(nothing, nothing)
        return np.asarray(values, float), np.concatenate([np.ravel(x) for x in jax.tree.leaves(slopes)])


SWEEP = [
    pytest.param(*case, marks=() if case in FAST else pytest.mark.slow)
    for FAST in [{("layer", 6, 4, 1e-3), ("layer", 64, 16, 1e-4), ("signed layer", 6, 4, 1e-2), ("chain", 6, 4, 1e-4)}]
    for kind, (n, f), ratio in itertools.product(
        SITES, [(2, 1), (6, 4), (16, 1), (16, 16), (64, 16)], [1.0, 1e-2, 1e-3, 1e-4]
    )
    for case in [(kind, n, f, ratio)]
]


# a table's worst is where its products are still thought good enough: whichever side of that these ratios are on
SWEEP += [
    pytest.param(*case, marks=() if fast else pytest.mark.slow)
    for *case, fast in [
        ("layer", 16, 4, 1.15e-3, True),
        ("layer", 16, 1, 2e-3, True),
        # more features than one pass takes
        ("layer", 6, 20, 1e-4, True),
        ("layer", 64, 40, 1e-4, False),
        ("signed layer", 16, 20, 1e-3, False),
        ("layer", 64, 4, 3.4e-3, False),
        ("layer", 64, 4, 7.6e-3, False),
        ("signed layer", 6, 1, 2.3e-3, False),
        ("signed layer", 64, 4, 2.8e-2, False),
        ("chain", 6, 1, 2e-3, False),
    ]
]


@pytest.mark.parametrize(("kind", "n", "f", "ratio"), SWEEP)
def test_single_precision_is_double_precision(kind, n, f, ratio):
    problem = clusters_far_apart(kind, n, f, ratio)
    estimator = "exact" if n <= 6 and "layer" in kind else "sequential"
    single, double = (value_and_gradient(problem, estimator, x64) for x64 in (False, True))
    expected = double[0].mean()
    assert abs(single[0].mean() - expected) <= max(0.02, 1e-3 * abs(expected))
    entropy = math.sqrt(sum(x.size for x in problem[1].values()))
    assert np.linalg.norm(single[1] - double[1]) <= 1e-3 * max(np.linalg.norm(double[1]), entropy)


def test_units_far_from_the_origin_and_alike():
    """One cluster, where the sketch of a chain is as narrow as its factors."""
    symmetry, loc, scale, noise, _ = clusters_far_apart("chain", 16, 4, 1e-4)
    loc = {s: (3.0 + 1e-4 * np.random.default_rng(1).normal(size=x.shape)).astype(np.float32) for s, x in loc.items()}
    problem = symmetry, loc, scale, noise, {s: loc[s] + scale[s] * noise[s] for s in loc}
    single, double = (value_and_gradient(problem, "sequential", x64, gradient=False)[0].mean() for x64 in (False, True))
    assert abs(single - double) <= max(0.02, 1e-3 * double)


@pytest.mark.parametrize("kind", SITES)
@pytest.mark.parametrize("ratio", [1e-4, 1.0])
@pytest.mark.parametrize("f", [3, 20])
def test_tables_are_the_densities(kind, f, ratio):
    """Both forms, for few features and for many, against subtraction entry by entry."""
    symmetry, loc, scale, _, draws = clusters_far_apart(kind, 4, f, ratio)
    draw = {site: value[0] for site, value in draws.items()}
    tables = GaussianFactors(loc, scale).tables(symmetry, draw, "b" if "chain" in kind else "a", placed=("a",))
    for sign, table in zip((1, -1), tables, strict=False):
        expected = np.zeros((4, 4))
        for site, entries in SITES[kind].items():
            if ("b" if "chain" in kind else "a") not in entries:
                continue
            last = entries.index("b" if "chain" in kind else "a")
            m, s, u = (np.moveaxis(np.float64(x[site]), last, -1).reshape(-1, 4) for x in (loc, scale, draw))
            z = (sign * u[:, None, :] - m[:, :, None]) / s[:, :, None]
            expected += (-0.5 * z**2 - np.log(s)[:, :, None]).sum(0)
        negligible = expected < expected.max(0) - 60
        np.testing.assert_allclose(np.where(negligible, 0, table), np.where(negligible, 0, expected), rtol=2e-4)
        assert (np.asarray(table)[negligible] < np.broadcast_to(expected.max(0) - 40, (4, 4))[negligible]).all()


@pytest.mark.parametrize("kind", ["layer", "signed chain"])
def test_factors_in_single_precision_weigh_draws_in_double(kind):
    symmetry, loc, scale, _, draws = clusters_far_apart(kind, 6, 2, 1e-4)
    with jax.enable_x64(True):
        draw = {site: np.float64(value[0]) for site, value in draws.items()}
        factors = GaussianFactors(*(jax.tree.map(jnp.asarray, x) for x in (loc, scale)))
        of_double = GaussianFactors(*(jax.tree.map(np.float64, x) for x in (loc, scale)))
        tables, expected = (f.tables(symmetry, draw, "a") for f in (factors, of_double))
        for table, other in zip(tables, expected, strict=True):
            np.testing.assert_allclose(table, other, rtol=1e-5)


def products_in(program):
    """Every matrix product of a program, those of inner programs too."""
    for equation in program.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from products_in(inner)


@every_estimator
@pytest.mark.parametrize("kind", SITES)
def test_every_product_is_in_full_precision(kind, estimator):
    """Accelerators multiply in TF32 or bfloat16 unless told otherwise; gradients follow the products they are of."""
    symmetry, loc, scale, _, draws = clusters_far_apart(kind, 4 if "layer" in kind else 2, 3, 1.0)
    draw = {site: jnp.asarray(value[0]) for site, value in draws.items()}

    def information(loc):
        options = {"rng_key": jax.random.key(0), "num_permutations": 3, "estimator": estimator}
        return entropy.information(Factorised(GaussianFactors(loc, scale)), symmetry, draw, **options)

    products = list(products_in(jax.make_jaxpr(jax.value_and_grad(information))(loc).jaxpr))
    # those without a table subtract entry by entry
    assert products or (estimator in ("exact", "infonce") and (estimator == "infonce" or "chain" in kind))
    for equation in products:
        precision = equation.params["precision"]
        assert precision is not None
        assert set(precision) == {jax.lax.Precision.HIGHEST}


def test_many_draws_share_one_choice():
    """Batched over draws, a `cond` stays one branch: a choice for every draw would compute both for all."""
    symmetry, loc, scale, _, draws = clusters_far_apart("layer", 6, 20, 1e-3)

    def table(draw):
        return GaussianFactors(loc, scale).tables(symmetry, draw, "a")

    program = str(jax.make_jaxpr(jax.vmap(jax.vmap(table)))({s: x.reshape(2, 4, 20, 6) for s, x in draws.items()}))
    assert "cond[" in program


@pytest.mark.parametrize("kind", ["layer", "signed chain"])
def test_draws_of_a_batch_are_taken_one_by_one(kind):
    """The same numbers as draw by draw, and no product of a batch, which leaves a processor's fast kernels."""
    symmetry, loc, scale, _, draws = clusters_far_apart(kind, 4, 3, 1.0, num_draws=2)
    draws = jax.tree.map(jnp.asarray, draws)

    def information(loc, draw):
        return entropy.information(Factorised(GaussianFactors(loc, scale)), symmetry, draw, estimator="sequential")

    both = jax.value_and_grad(information, argnums=(0, 1))
    batched = jax.vmap(both, in_axes=(None, 0))
    together = jax.jit(batched)(loc, draws)
    alone = jax.jit(both)
    for k in range(2):
        one = alone(loc, {site: value[k] for site, value in draws.items()})
        jax.tree.map(lambda a, b, k=k: np.testing.assert_allclose(a[k], b, rtol=1e-5, atol=1e-6), together, one)
    if jax.default_backend() == "cpu":
        for equation in products_in(jax.make_jaxpr(batched)(loc, draws).jaxpr):
            assert equation.params["dimension_numbers"][1] == ((), ())


@pytest.mark.parametrize("shape", [(7, 3), (7, 3, 1), (7, 2, 4)])
def test_rows_are_taken_and_what_comes_back_is_put_where_they_were(shape):
    rng = np.random.default_rng(0)
    values, rows = jnp.asarray(rng.normal(size=(2, *shape))), jnp.array([[5, 0, 3], [1, 6, 2]])
    weights = jnp.asarray(rng.normal(size=(2, 3, *shape[1:])))
    value, backward = jax.vjp(jax.vmap(take_rows), values, rows)
    expected, expected_backward = jax.vjp(jax.vmap(lambda x, r: x[r]), values, rows)
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(backward(weights)[0], expected_backward(weights)[0])


@pytest.mark.parametrize("num_signs", [1, 2])
@pytest.mark.parametrize("entry", [0.0, -60.0, np.nan])
@pytest.mark.parametrize(("row", "column"), [(1, 3), (3, 1), (1, 2), (3, 3)])
def test_rounding_matters_where_an_entry_that_counts_is_rough(num_signs, entry, row, column):
    """Of units far apart but for one entry; factor 3 alone is rough."""
    tables = [np.where(np.eye(4), 0.0 if which == 0 else -200.0, -200.0) for which in range(num_signs)]
    tables[-1][row, column] = entry
    is_own = row == column and num_signs == 1
    # NaN leaves nothing in its column to compare with, so that every entry there counts
    expected = np.isnan(entry) or (entry == 0.0 and 3 in (row, column) and not is_own)
    rounding = jnp.array([0.0, 0.0, 0.0, 1.0])
    assert bool(_matters(rounding, tuple(map(jnp.asarray, tables)))) == expected
