"""A part of a whole, x and total - x, whose exchange goes with that of two components: in every verb.

In guides, it is a case of ``tests/integration/test_guide.py``.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import (
    AutoSymmetrized,
    Complement,
    DiagonalGaussian,
    FullGaussian,
    Symmetry,
    SymmetryError,
    check_symmetry,
    log_evidence,
    match,
    rebase,
    report,
)
from numpyro_symmetry.matching import nearest_transposition

Y = np.array([-2.1, -1.9, -2.0, 1.8, 2.2, -1.7, 2.1], np.float32)
TWO = Symmetry({"p": (Complement("component"),), "loc": ("component",)})
STILL = {"component": np.arange(2)}
SHAPES = {"p": (), "loc": (2,)}


def model(y=None):
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    parts = dist.Normal(loc, 0.7)
    mixture = dist.MixtureSameFamily(dist.Categorical(jnp.stack([p, 1.0 - p])), parts)
    numpyro.sample("y", mixture.expand([len(Y)]).to_event(1), obs=y)


def exchanged(values):
    return {"p": 1.0 - values["p"], "loc": values["loc"][..., ::-1]}


def drawn(seed, change=lambda x: x):
    rng = np.random.default_rng(seed)
    return {site: change(rng.normal(size=shape)) for site, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def switched():
    """Draws of one labelling, and the same with every other one exchanged."""
    rng = np.random.default_rng(1)
    p, loc = rng.beta(30, 60, 200), np.array([-2.0, 2.0]) + 0.3 * rng.normal(size=(200, 2))
    labelled, odd = {"p": p, "loc": loc}, np.arange(200) % 2 == 1
    moved = exchanged(labelled)
    return labelled, {
        "p": np.where(odd, moved["p"], p),
        "loc": np.where(odd[:, None], moved["loc"], loc),
    }


def test_the_model_has_it_and_no_other():
    assert check_symmetry(model, TWO, (Y,)).status == "passed"
    with pytest.raises(SymmetryError, match="changes by"):
        check_symmetry(model, Symmetry({"loc": ("component",)}), (Y,))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cost", ["euclidean", "wasserstein", "log_density", "kl"])
def test_a_match_is_the_better_of_both(cost, seed):
    target, source = (DiagonalGaussian(drawn(k), drawn(k + 9, np.exp)) for k in (seed, seed + 50))
    found = match(target, source, TWO, cost=cost)

    def worth(loc, scale):
        if cost == "euclidean":
            return -sum(np.sum((target.loc[s] - loc[s]) ** 2) for s in loc)
        if cost == "wasserstein":
            return -(float(target.wasserstein(DiagonalGaussian(loc, scale))) ** 2)
        # the mean log density of a Gaussian under another is that of its mean less half the ratio of variances
        under = float(target.log_density(loc)) - 0.5 * sum(np.sum(scale[s] ** 2 / target.scale[s] ** 2) for s in loc)
        entropy = sum(np.sum(np.log(scale[s]) + 0.5 * np.log(2 * np.pi * np.e)) for s in loc)
        return under + (entropy if cost == "kl" else 0.0)

    still = worth(source.loc, source.scale)
    other = worth(exchanged(source.loc), {"p": source.scale["p"], "loc": source.scale["loc"][::-1]})
    assert float(found.objective_before) == pytest.approx(still, rel=1e-9)
    assert float(found.objective) == pytest.approx(max(still, other), rel=1e-9)
    assert found.element["component"].tolist() == ([0, 1] if still >= other else [1, 0])
    assert bool(found.exact)


def test_gaussians_move_as_their_draws_do():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(3, 3))
    full = FullGaussian(drawn(0), root @ root.T)
    g = {"component": np.array([1, 0])}
    moved = full.apply(TWO, g)
    # p, then loc: p changes sign against 1 - p, and the two locations change places
    linear = np.array([[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    np.testing.assert_allclose(moved.covariance, linear @ root @ root.T @ linear.T)
    np.testing.assert_allclose(moved.loc["p"], 1.0 - full.loc["p"])
    np.testing.assert_allclose(full.diagonal().apply(TWO, g).scale["p"], full.diagonal().scale["p"])


def test_the_nearest_exchange_lies_where_it_says():
    values = drawn(5)
    found = nearest_transposition(values, TWO)["component"]
    moved = TWO.bind(values).apply(found.element, values)
    distance = np.sqrt(sum(np.sum((moved[s] - values[s]) ** 2) for s in values))
    assert found.distance == pytest.approx(distance)
    other = exchanged(values)
    assert distance == pytest.approx(np.sqrt(sum(np.sum((other[s] - values[s]) ** 2) for s in values)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_draws_are_brought_to_one_labelling_and_back(switched, dtype):
    labelled, mixed = ({site: x.astype(dtype) for site, x in values.items()} for values in switched)
    out = rebase(mixed, TWO, reference="first", rng_key=jax.random.key(0))
    for site in labelled:
        np.testing.assert_allclose(out.data[site], labelled[site], rtol=1e-5)
        assert out.data[site].dtype == dtype
        np.testing.assert_array_equal(out.undo(out.data)[site], mixed[site])
    np.testing.assert_allclose(out.apply({"p": 2 * mixed["p"]})["p"][1], 1 - 2 * mixed["p"][1], rtol=1e-5)
    assert out.null.can_tell
    assert "computed again" not in str(out)
    again = rebase(mixed, TWO, reference=out, null=False)
    np.testing.assert_array_equal(again.elements["component"], out.elements["component"])


def test_a_report_sees_what_was_labels(switched):
    _, mixed = switched
    # one chain of either labelling
    chains = {site: np.stack([switched[0][site], exchanged(switched[0])[site]]) for site in mixed}
    found = report(chains, rebase(chains, TWO, null=False))
    rows = {row.name: row for row in found.rows}
    assert rows["p"].r_hat_raw > 1.5
    assert rows["p"].r_hat < 1.02


def test_the_evidence_is_that_of_a_grid():
    p = np.linspace(0.0, 1.0, 62)[1:-1]
    loc = np.linspace(-4.5, 4.5, 60)
    grid = np.meshgrid(p, loc, loc, indexing="ij")
    first, second = (np.exp(-0.5 * ((Y[:, None, None, None] - m) / 0.7) ** 2) for m in grid[1:])
    density = (grid[0] * first + (1 - grid[0]) * second) / (0.7 * np.sqrt(2 * np.pi))
    log_likelihood = np.log(density).sum(0)
    prior = 6 * grid[0] * (1 - grid[0]) * np.exp(-(grid[1] ** 2 + grid[2] ** 2) / 18) / (18 * np.pi)
    cell = (p[1] - p[0]) * (loc[1] - loc[0]) ** 2
    expected = np.log((np.exp(log_likelihood) * prior).sum() * cell)
    weights = (np.exp(log_likelihood) * prior).ravel()
    rng = np.random.default_rng(0)
    chosen = rng.choice(weights.size, 1000, p=weights / weights.sum())
    jitter = [rng.uniform(-0.5, 0.5, 1000) * (x[1] - x[0]) for x in (p, loc, loc)]
    points = [axis.ravel()[chosen] + j for axis, j in zip(grid, jitter, strict=True)]
    draws = {"p": points[0].astype(np.float32), "loc": np.stack(points[1:], -1).astype(np.float32)}
    found = log_evidence(draws, model, (Y,), symmetry=TWO, rng_key=jax.random.key(0))
    assert abs(found.value - expected) < max(4 * found.error, 0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Complement(3), "Complement takes the name"),
        (lambda: Complement("g", total="one"), "the total of two parts"),
        (lambda: Symmetry({"p": (Complement("g"), Complement("h"))}), "may stand there once"),
        (lambda: Symmetry({"p": (None, Complement("g"))}), "Complement stands before its own axes"),
        (lambda: Symmetry({"p": (Complement("g"),)}, {"g": "signed"}), "expected a group of kind 'permutation'"),
        (lambda: Symmetry({"p": (Complement("g"),)}, orbits={"g": (0, 0)}), "without orbits and not fibred"),
        (lambda: Symmetry({"p": (Complement("h/g"), "h"), "w": ("h",)}), "without orbits and not fibred"),
        (lambda: Symmetry({"p": (Complement("g"),), "w": ("g",)}).bind({"p": 0.5, "w": np.ones(3)}), "has size 3"),
        (
            lambda: TWO.apply(STILL, {"p": np.array(1), "loc": np.ones(2)}),
            "expected real numbers",
        ),
    ],
)
def test_refuses(make, message):
    with pytest.raises((SymmetryError, TypeError), match=message):
        make()


def test_a_guide_refuses_a_whole_that_its_support_does_not_have():
    def elsewhere(y=None):
        p = numpyro.sample("p", dist.LogNormal(0.0, 1.0))
        loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(p + loc.sum(), 1.0), obs=y)

    guide = AutoSymmetrized(AutoNormal(elsewhere), TWO, check=False)
    with pytest.raises(SymmetryError, match="does not map to itself"):
        guide.setup(jax.random.key(0), 1.0)
