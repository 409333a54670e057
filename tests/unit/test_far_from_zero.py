"""Nothing but what is rounded beforehand depends on where zero is, where labels move values that signs do not."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import init_to_sample
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import (
    AutoConditional,
    DiagonalGaussian,
    EuclideanCost,
    FullGaussian,
    GaussianCost,
    Symmetry,
    SymmetryError,
    Unsigned,
    compare,
    log_evidence,
    match,
    merge,
    rebase,
    report,
)
from numpyro_symmetry.diagnostics import modes, prior_conformity, soft_labels
from numpyro_symmetry.matching import Product, nearest_transposition

# powers of two, to which values in steps of GRID are added without rounding
OFFSETS, GRID = (2.0**10, -(2.0**20), 2.0**28), 2.0**-16
UNIT = Symmetry({"unit": ("unit",)})
HIDDEN = Symmetry({"w": (None, "hidden"), "b": ("hidden",), "c": (None,)})
LAYERS = Symmetry({"w": ("in", "out"), "b": ("out",), "u": ("in",)})
PAIRS = Symmetry({"w": ("unit", "unit"), "b": ("unit",)})


def on_grid(values):
    """Values rounded to steps of the grid."""
    return np.round(values / GRID) * GRID


def values_of(symmetry, seed, leading=(), spread=1.0):
    """Values of every site on the grid."""
    rng, sizes = np.random.default_rng(seed), {"hidden": 6, "in": 4, "out": 7, "unit": 5, None: 3}
    shapes = {site: tuple(sizes[entry] for entry in entries) for site, entries in symmetry.axes.items()}
    return {site: on_grid(spread * rng.normal(size=(*leading, *shape))) for site, shape in shapes.items()}


def far(values, offset):
    """Values by site, each of them moved by an offset."""
    return {site: x + offset for site, x in values.items()}


def near(symmetry, seed, leading=()):
    """Two sides whose labels differ: a target, and sources near it."""
    target = values_of(symmetry, seed)
    rng, bound = np.random.default_rng(seed), symmetry.bind(target)
    noise = values_of(symmetry, seed + 1, leading, 0.3)
    moved = bound.apply(bound.sample(jax.random.key(seed), leading), target)
    return target, {site: np.asarray(moved.get(site, x)) + noise[site] for site, x in target.items()}, rng


def matched(symmetry, cost, *, scales=False, leading=(), method="auto"):
    """What `match` finds, as a function of the offset."""
    target, source, _ = near(symmetry, 0, leading)

    def side(values, seed, offset):
        if not scales:
            return far(values, offset)
        scale = {site: np.exp2(x.round()) for site, x in values_of(symmetry, seed).items()}
        return DiagonalGaussian(far(values, offset), scale)

    def found(offset):
        return match(side(target, 2, offset), side(source, 3, offset), symmetry, cost=cost, method=method)

    return found


def matched_with_covariance(offset):
    target, source, rng = near(HIDDEN, 0)
    size = sum(x.size for x in target.values())
    root = rng.normal(size=(2, size, size)) / np.sqrt(size)
    left, right = (FullGaussian(far(x, offset), a @ a.T) for x, a in zip((target, source), root, strict=True))
    return match(left, right, HIDDEN)


def nearest(symmetry):
    values = values_of(symmetry, 0)
    return lambda offset: nearest_transposition(far(values, offset), symmetry)


def nearest_beside_signs(offset):
    # signs change one site and leave the other alone, which may lie anywhere
    symmetry = Symmetry({"odd": ("unit",), "even": (Unsigned("unit"),)}, {"unit": "signed"})
    values = {"odd": on_grid(np.array([1.0, -2.0, 3.0])), "even": on_grid(np.array([0.5, 0.7, -1.0])) + offset}
    return nearest_transposition(values, symmetry)


def draws_of(symmetry, seed, further=0.0):
    """Draws of two chains whose labels switch, of units that lie apart."""
    centre, rng = values_of(symmetry, 7, spread=3.0), np.random.default_rng(seed)
    noise = values_of(symmetry, seed, (2, 60), 0.5)
    bound = symmetry.bind(centre)
    elements = bound.sample(jax.random.key(seed), (2, 60))
    draws = {site: on_grid(x + further * rng.normal(size=x.shape)) + noise[site] for site, x in centre.items()}
    return {site: np.asarray(x) for site, x in bound.apply(elements, draws).items()}


def relabelled(symmetry, cost):
    draws = draws_of(symmetry, 0)

    def found(offset):
        out = rebase(far(draws, offset), symmetry, cost=cost)
        return out.elements, out.objective, out.margin, far(out.data, -offset)

    return found


def relabelled_against_others(offset):
    frame = rebase(far(draws_of(HIDDEN, 0), offset), HIDDEN)
    return rebase(far(draws_of(HIDDEN, 1), offset), HIDDEN, reference=frame).elements


def reported(offset):
    draws = far(draws_of(HIDDEN, 0), offset)
    rows = report(draws, rebase(draws, HIDDEN)).rows
    # ranks of distances from the median tie, for the two draws in the middle are as far from it as each other
    return [(row.name, round(row.r_hat, 2), round(row.ess)) for row in rows]


def compared(symmetry):
    a, b = draws_of(symmetry, 0), draws_of(symmetry, 1, 0.3)

    def found(offset):
        result = compare(far(a, offset), far(b, offset), symmetry)
        return result.p_by_distance, result.effect, result.floor

    return found


def with_soft_labels(offset):
    found = soft_labels(rebase(far(draws_of(HIDDEN, 0), offset), HIDDEN, cost=GaussianCost()))
    return found.probabilities, far(found.mean, -offset), found.scale


def fitted(offset):
    found = DiagonalGaussian.fit(far(draws_of(HIDDEN, 0), offset), num_leading_dims=2)
    return far(found.loc, -offset), found.scale


def with_modes(offset):
    return modes(far(draws_of(HIDDEN, 0), offset), HIDDEN).shares


def merged(offset):
    sides = [far(side, offset) for side in (*near(HIDDEN, 0)[:2], near(HIDDEN, 0)[0])]
    found = merge(sides, HIDDEN)
    return far(found.merged, -offset), found.distances


def conforming_to_a_prior(offset):
    def model():
        numpyro.sample("w", dist.Normal(offset, 3.0).expand([3, 6]).to_event(2))
        numpyro.sample("b", dist.Normal(offset, 3.0).expand([6]).to_event(1))
        numpyro.sample("c", dist.Normal(offset, 3.0).expand([3]).to_event(1))

    with jax.enable_x64():
        found = prior_conformity(rebase(far(draws_of(HIDDEN, 0), offset), HIDDEN), model)
    return found.effect, found.floor, found.p_value, found.contraction


def weighed(offset):
    draws = {"unit": on_grid(np.random.default_rng(0).normal(size=(400, 5))) + offset}

    def model():
        numpyro.sample("unit", dist.Normal(offset, 1.0).expand([5]).to_event(1))
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=1.0)

    with jax.enable_x64():
        found = log_evidence(draws, model, symmetry=UNIT, num_draws=100)
    return found.value, found.lower, found.upper


LAWS = {
    "match points": matched(HIDDEN, "euclidean"),
    "match many points": matched(HIDDEN, "wasserstein", leading=(2, 3)),
    "match two layers": matched(LAYERS, "euclidean"),
    "match two layers by Frank-Wolfe": matched(LAYERS, "euclidean", method="frank_wolfe"),
    "match pairs": matched(PAIRS, "euclidean"),
    "match Gaussians by distance": matched(HIDDEN, "wasserstein", scales=True),
    "match Gaussians by density": matched(HIDDEN, "log_density", scales=True),
    "match Gaussians by divergence": matched(LAYERS, "kl", scales=True),
    "match Gaussians with covariances": matched_with_covariance,
    "match by EuclideanCost": matched(HIDDEN, EuclideanCost()),
    "match by GaussianCost": matched(HIDDEN, GaussianCost("identity")),
    "nearest transposition": nearest(HIDDEN),
    "nearest of two layers": nearest(LAYERS),
    "nearest of pairs": nearest(PAIRS),
    "nearest beside signs": nearest_beside_signs,
    "merge": merged,
    "fit": fitted,
    "rebase": relabelled(HIDDEN, GaussianCost()),
    "rebase pairs": relabelled(PAIRS, EuclideanCost(standardize=False)),
    "rebase against others": relabelled_against_others,
    "report": reported,
    "compare": compared(HIDDEN),
    "compare two layers": compared(LAYERS),
    "modes": with_modes,
    "soft labels": with_soft_labels,
    "prior conformity": conforming_to_a_prior,
    "log evidence": weighed,
}


def same(found, expected, rtol):
    """Assert that two results are the same up to rounding, which is relative to the largest number of an array."""
    leaves, others = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(leaves) == len(others)
    for one, other in zip(leaves, others, strict=True):
        if isinstance(one, str):
            assert one == other
            continue
        one, other = np.asarray(one, float), np.asarray(other, float)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max(initial=0.0))


@pytest.mark.parametrize("law", LAWS)
def test_results_do_not_depend_on_where_zero_is(law):
    expected = LAWS[law](0.0)
    for offset in OFFSETS:
        # what is not on the grid, such as a mean, has the rounding of numbers as large
        same(LAWS[law](offset), expected, 1e-11 + 4.0 * np.finfo(float).eps * abs(offset))


@pytest.mark.parametrize("offset", [0.0, 2.0**10, 2.0**24])
def test_what_is_not_linear_does_not_follow(offset):
    x = on_grid(np.linspace(-2.0, 2.0, 20))

    def curved(y):
        v = numpyro.sample("v", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(offset + jnp.tanh(v).sum() * x, 0.3).to_event(1), obs=y)

    def computed(y):
        v = numpyro.sample("v", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(offset + v, 0.3).expand([20]).to_event(1), obs=y + 0.1 * jnp.sin(v))

    def straight(y):
        v = numpyro.sample("v", dist.Normal(offset, 1.0))
        numpyro.sample("y", dist.Normal(v + x, 0.3).to_event(1), obs=y)

    def chosen(model):
        guide = AutoConditional(AutoNormal(model, init_loc_fn=init_to_sample))
        numpyro.handlers.seed(guide, jax.random.key(0))(x + offset)
        return getattr(guide.source, "sites", ())

    with jax.enable_x64():
        for model, words in ((curved, "is not affine in them"), (computed, "that are observed depend on them")):
            with pytest.raises(SymmetryError, match=words):
                chosen(model)
        assert chosen(straight) == ("v",)


@pytest.mark.parametrize("offset", [0.0, 2.0**10, 2.0**24])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_prior_that_labels_change_is_refused(offset, dtype):
    members = [DiagonalGaussian({"unit": np.array(loc) + offset}, {"unit": np.ones(2)}) for loc in ([1, 5], [5, 1])]

    def merged_under(*loc):
        prior = DiagonalGaussian({"unit": (np.array(loc) + offset).astype(dtype)}, {"unit": np.full(2, 9.0, dtype)})
        return merge(members, UNIT, how=Product(prior)).merged

    assert np.isfinite(merged_under(0.0, 0.0).loc["unit"]).all()
    with pytest.raises(SymmetryError, match="prior= changes when units of 'unit'"):
        merged_under(0.0, 64.0)


def test_what_is_linear_follows_where_rounding_alone_is_seen():
    """Of numbers of 2⁴⁰ rounding is larger than a millionth of how much they move."""
    x, offset = np.linspace(-2.0, 2.0, 20), 2.0**40

    def model(y):
        v = numpyro.sample("v", dist.Normal(offset, 1.0))
        numpyro.sample("y", dist.Normal(v + jnp.asarray(x), 0.3).to_event(1), obs=y)

    with jax.enable_x64():
        guide = AutoConditional(AutoNormal(model, init_loc_fn=init_to_sample))
        numpyro.handlers.seed(guide, jax.random.key(0))(x + offset)
        assert guide.source.sites == ("v",)


@pytest.mark.parametrize("cost", ["euclidean", "wasserstein", "log_density"])
def test_signs_mirror_at_zero_however_far_values_are(cost):
    rng = np.random.default_rng(0)
    signed = Symmetry({"w": (None, "unit"), "b": ("unit",)}, kinds={"unit": "signed"})
    loc = {"w": 1e3 + rng.normal(size=(3, 4)), "b": 1e3 + rng.normal(size=4)}
    target = DiagonalGaussian(loc, {site: np.full(x.shape, 0.5) for site, x in loc.items()})
    bound = signed.bind(loc)
    for key in range(4):
        element = bound.sample(jax.random.key(key))
        found = match(target, target.apply(bound, element), bound, cost=cost)
        again = bound.apply(found.element, bound.apply(element, loc))
        same(again, loc, 1e-6)
