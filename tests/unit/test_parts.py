"""Priors that tell labels apart: the likelihood's symmetry, and what is said of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_symmetry import Symmetry, SymmetryError, check_symmetry, find_symmetry, rebase, report

DATA = jnp.array([-4.0, -3.5, 0.1, 0.4, 4.2, 5.0])


def informative(y):
    weight = numpyro.sample("weight", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    loc = numpyro.sample("loc", dist.Normal(jnp.arange(3.0), 3.0).to_event(1))
    scale = numpyro.sample("scale", dist.LogNormal(jnp.arange(3.0) / 3, 0.5).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weight), dist.Normal(loc, scale)), obs=y)


def allocated(y):
    weight = numpyro.sample("weight", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    loc = numpyro.sample("loc", dist.Normal(jnp.arange(3.0), 3.0).to_event(1))
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Categorical(weight), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(loc[z], 1.0), obs=y)


def unlike(y):
    """The likelihood too tells the components apart."""
    loc = numpyro.sample("loc", dist.Normal(jnp.arange(3.0), 3.0).to_event(1))
    mixture = dist.MixtureSameFamily(dist.Categorical(jnp.array([0.2, 0.3, 0.5])), dist.Normal(loc, 1.0))
    numpyro.sample("y", mixture.expand([len(y)]).to_event(1), obs=y)


def ordered(y):
    """The support settles labels."""
    base = dist.Normal(0.0, 3.0).expand([3]).to_event(1)
    loc = numpyro.sample("loc", dist.TransformedDistribution(base, dist.transforms.OrderedTransform()))
    mixture = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0))
    numpyro.sample("y", mixture.expand([len(y)]).to_event(1), obs=y)


@pytest.mark.parametrize("model", [informative, allocated])
def test_the_likelihood_has_a_symmetry_that_the_prior_breaks(model):
    if model is allocated:
        pytest.importorskip("funsor")
    assert not find_symmetry(model, (DATA,)).groups
    found = find_symmetry(model, (DATA,), part="likelihood")
    assert [str(group) for group in found.groups.values()] == ["S3"]
    assert set(found.axes) == {"weight", "loc", "scale"} - ({"scale"} if model is allocated else set())
    claimed = Symmetry(dict(found.axes))
    assert check_symmetry(model, claimed, (DATA,), part="likelihood").status == "passed"
    with pytest.raises(SymmetryError):
        check_symmetry(model, claimed, (DATA,))


def test_a_likelihood_that_tells_labels_apart_has_none():
    assert not find_symmetry(unlike, (DATA,), part="likelihood").groups
    with pytest.raises(SymmetryError, match="the likelihood at 'y'"):
        check_symmetry(unlike, Symmetry.mixture("loc"), (DATA,), part="likelihood")


def test_a_prior_that_breaks_it_names_the_way_out():
    with pytest.raises(SymmetryError, match="part='likelihood'"):
        check_symmetry(informative, Symmetry.mixture("weight", "loc", "scale"), (DATA,))


def test_an_ordered_support_is_no_matter_of_the_part():
    with pytest.raises(SymmetryError, match=r"support of \['loc'\] is ordered.*order_by='loc'") as caught:
        rebase({"loc": np.sort(np.zeros((5, 3)))}, model=ordered, model_args=(DATA,))
    assert "likelihood" not in str(caught.value)


def test_rebase_by_the_likelihood_and_the_report_says_so():
    rng = np.random.default_rng(0)
    draws = {
        "loc": np.array([-4.0, 0.0, 4.0]) + 0.1 * rng.standard_normal((2, 50, 3)),
        "scale": np.exp(0.1 * rng.standard_normal((2, 50, 3))),
        "weight": rng.dirichlet(np.full(3, 20.0), (2, 50)),
    }
    switched = {site: value[..., [2, 0, 1]] if site else value for site, value in draws.items()}
    raw = {site: np.concatenate([draws[site][:1], switched[site][1:]]) for site in draws}
    with pytest.raises(SymmetryError, match="part='likelihood'"):
        rebase(raw, model=informative, model_args=(DATA,))
    out = rebase(raw, model=informative, model_args=(DATA,), part="likelihood", null=False)
    assert out.part == "likelihood"
    np.testing.assert_array_equal(np.sort(out.data["loc"].mean((0, 1)).round()), [-4.0, 0.0, 4.0])
    assert "of the likelihood alone" in str(out)
    assert "the prior tells labels apart" in str(report(out))
    assert "the prior tells" not in str(report(rebase(raw, Symmetry.mixture("weight", "loc", "scale"), null=False)))


@pytest.mark.parametrize(
    "call",
    [
        lambda part: find_symmetry(informative, (DATA,), part=part),
        lambda part: check_symmetry(informative, Symmetry.mixture("loc"), (DATA,), part=part),
        lambda part: rebase({"loc": np.zeros((5, 3))}, Symmetry.mixture("loc"), part=part),
    ],
)
@pytest.mark.parametrize("part", ["prior", None, 1, ["joint"]])
def test_there_are_two_parts(call, part):
    with pytest.raises(ValueError, match="'joint', 'likelihood'"):
        call(part)


def test_a_function_has_no_likelihood():
    with pytest.raises(ValueError, match="no prior"):
        find_symmetry(lambda w: w["a"].sum(), ({"a": jnp.ones(3)},), argnum=0, part="likelihood")


# ---- draws with labels at random -------------------------------------------------------------------------------------


def test_symmetrized_draws_are_the_same_up_to_labels_and_uniform_over_them():
    rng = np.random.default_rng(1)
    loc = np.array([-3.0, 0.0, 3.0]) + 0.1 * rng.standard_normal((2, 900, 3))
    raw = {"loc": loc, "z": rng.integers(0, 3, (2, 900, 4)), "other": rng.standard_normal((2, 900))}
    out = rebase(raw, Symmetry.mixture("loc"), labels={"z": "component"}, null=False)
    mixed = out.symmetrized(jax.random.key(0))
    np.testing.assert_array_equal(np.sort(mixed["loc"]), np.sort(loc))
    np.testing.assert_array_equal(mixed["other"], raw["other"])
    np.testing.assert_array_equal(
        np.take_along_axis(mixed["loc"], mixed["z"], -1), np.take_along_axis(loc, raw["z"], -1)
    )
    orders = np.unique(mixed["loc"].reshape(-1, 3).argsort(-1), axis=0, return_counts=True)[1]
    assert len(orders) == 6
    assert ((orders - 300) ** 2 / 300).sum() < 20.5  # chi-squared of 5 degrees of freedom, .999
    again = out.symmetrized(jax.random.key(0))
    np.testing.assert_array_equal(again["loc"], mixed["loc"])


def test_symmetrized_signs():
    loading = np.array([[2.0, 0.1], [0.1, 3.0]]) + 0.01 * np.random.default_rng(0).standard_normal((400, 2, 2))
    out = rebase({"loading": loading}, Symmetry({"loading": (None, "factor")}, {"factor": "signed"}), null=False)
    mixed = out.symmetrized(jax.random.key(3))["loading"]
    positive = (np.abs(mixed).argmax(-2) == 0).mean(0)
    assert ((positive > 0.4) & (positive < 0.6)).all()
    assert 0.4 < (mixed.sum(-2) > 0).mean() < 0.6


def test_symmetrized_needs_a_key():
    out = rebase({"loc": np.array([[-3.0, 3.0]] * 9)}, Symmetry.mixture("loc"), null=False)
    with pytest.raises(TypeError, match="key"):
        out.symmetrized(7)


def test_what_the_model_computes_is_left_out():
    def model(y=None):
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
        numpyro.deterministic("first", loc[0] - loc[1])
        mixture = dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), dist.Normal(loc, 1.0))
        numpyro.sample("y", mixture.expand([6]).to_event(1), obs=y)

    loc = np.array([-3.0, 3.0]) + 0.1 * np.random.default_rng(0).standard_normal((40, 2))
    loc[20:] = loc[20:, ::-1]
    raw = {"loc": loc, "first": loc[:, 0] - loc[:, 1]}
    out = rebase(raw, model=model, model_args=(DATA,), null=False)
    assert (out.data["first"] < 0).all() or (out.data["first"] > 0).all()
    assert set(out.symmetrized(jax.random.key(0))) == {"loc"}
