"""Exchanges of sites, and of a part with its rest, are found; what no group carries is told, with a model to write."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density

from numpyro_symmetry import (
    AutoSymmetrized,
    Complement,
    Symmetry,
    SymmetryWarning,
    check_symmetry,
    find_symmetry,
    rebase,
)
from numpyro_symmetry.discovery.proof.exchange import Exchange, Suspects, _out_of_reach
from numpyro_symmetry.symmetry import Member

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(6, 3)), np.array([-1.0, 0.5, 2.0, 2.3, -1.2, 0.1])


def normal(name, *shape, scale=3.0):
    return numpyro.sample(name, dist.Normal(0.0, scale).expand(list(shape)).to_event(len(shape)))


def mixture(weights, loc, y, scale=1.0):
    components = dist.MixtureSameFamily(dist.Categorical(probs=weights), dist.Normal(loc, scale))
    numpyro.sample("y", components.expand([len(y)]).to_event(1), obs=y)


def beta_weights(y, first=2.0):
    p = numpyro.sample("p", dist.Beta(first, 2.0))
    mixture(jnp.stack([p, 1 - p]), normal("mu", 2), y)


def dirichlet_weights(y):
    mixture(numpyro.sample("p", dist.Dirichlet(jnp.array([2.0, 2.0]))), normal("mu", 2), y)


def by_hand(y):
    """As it is written without a mixture distribution."""
    p = numpyro.sample("p", dist.Uniform(0.0, 1.0))
    mu, scale = normal("mu", 2), numpyro.sample("scale", dist.HalfNormal(1.0).expand([2]).to_event(1))
    first = jnp.log(p) + dist.Normal(mu[0], scale[0]).log_prob(y)
    second = jnp.log1p(-p) + dist.Normal(mu[1], scale[1]).log_prob(y)
    numpyro.factor("log_likelihood", logsumexp(jnp.stack([first, second]), 0).sum())


def enumerated(y):
    p, mu = numpyro.sample("p", dist.Beta(2.0, 2.0)), normal("mu", 2)
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.stack([p, 1 - p])))
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


def site_for_each(y):
    loc = [normal(f"mu_{k}") for k in range(3)]
    scale = [numpyro.sample(f"sd_{k}", dist.HalfNormal(1.0)) for k in range(3)]
    mixture(numpyro.sample("w", dist.Dirichlet(jnp.ones(3))), jnp.stack(loc), y, jnp.stack(scale))


def one_site_for_all(y):
    loc, scale = normal("mu", 3), numpyro.sample("sd", dist.HalfNormal(1.0).expand([3]).to_event(1))
    mixture(numpyro.sample("w", dist.Dirichlet(jnp.ones(3))), loc, y, scale)


def factors_for_each(x):
    loc = [normal(f"mu{k}", 2) for k in (1, 2)]
    root = [numpyro.sample(f"corr_chol_{k}", dist.LKJCholesky(2, 1.0)) for k in (0, 1)]
    weights = dist.Categorical(probs=numpyro.sample("w", dist.Dirichlet(jnp.ones(2))))
    components = dist.MultivariateNormal(jnp.stack(loc), scale_tril=jnp.stack(root))
    numpyro.sample("y", dist.MixtureSameFamily(weights, components), obs=x)


def left_and_right(y):
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    mixture(jnp.stack([p, 1 - p]), jnp.stack([normal("left"), normal("right")]), y)


def one_wider(y):
    loc = jnp.stack([normal("mu_0"), normal("mu_1"), normal("mu_2", scale=5.0)])
    mixture(numpyro.sample("w", dist.Dirichlet(jnp.ones(3))), loc, y)


def two_states(y):
    stay = jnp.stack([numpyro.sample(name, dist.Beta(2.0, 2.0)) for name in ("p00", "p11")])
    moves = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
    mu, state = normal("mu", 2), jnp.log(jnp.ones(2) / 2)
    for now in y:
        state = logsumexp(state[:, None] + jnp.log(moves), 0) + dist.Normal(mu, 1.0).log_prob(now)
    numpyro.factor("log_likelihood", logsumexp(state))


def unit_by_unit(x, y):
    units = [normal(f"v_{k}") * jnp.tanh(x @ normal(f"w_{k}", 3)) for k in range(3)]
    numpyro.sample("y", dist.Normal(sum(units), 1.0).to_event(1), obs=y)


def two_kinds():
    """Two sites of one name are used in one way, and three in another."""
    mu = [normal(f"mu_{k}") for k in range(5)]
    numpyro.factor("f", jnp.prod(jnp.stack([jnp.exp(x) for x in mu[:2]])) + sum(jnp.sin(x + 1.0) for x in mu[2:]))


def two_families():
    mu, nu = ([normal(f"{name}_{k}") for k in range(2)] for name in ("mu", "nu"))
    numpyro.factor("f", sum(jnp.sin(x + 1.0) for x in mu) * jnp.cos(jnp.exp(nu[0]) * jnp.exp(nu[1])))


def log_odds(y, loc=0.0, prior=None):
    odds = numpyro.sample("odds", prior or dist.Normal(loc, 1.5))
    parts = dist.Normal(normal("mu", 2), 1.0)
    logits = dist.Categorical(logits=jnp.stack([odds, jnp.zeros(())]))
    numpyro.sample("y", dist.MixtureSameFamily(logits, parts).expand([len(y)]).to_event(1), obs=y)


def correlated(x):
    """Two variables: to exchange rows and columns of a correlation matrix of two moves nothing."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([2]).to_event(1))
    covariance = jnp.outer(scale, scale) * numpyro.sample("correlation", dist.LKJ(2, 1.0))
    numpyro.sample("y", dist.MultivariateNormal(normal("loc", 2), covariance), obs=x)


def gated(x, y):
    """Which of two components each datum is of, by a logistic regression with an intercept."""
    odds = x @ normal("slope", 3, scale=1.0) + normal("intercept", scale=1.0)
    mu, scale = [normal("left"), normal("right")], numpyro.sample("scale", dist.HalfNormal(1.0).expand([2]).to_event(1))
    gates = jax.nn.log_sigmoid(jnp.stack([odds, -odds]))
    each = [gates[k] + dist.Normal(mu[k], scale[k]).log_prob(y) for k in range(2)]
    numpyro.factor("log_likelihood", logsumexp(jnp.stack(each), 0).sum())


def by_sigmoid(likelihood):
    def model(y):
        p = jax.nn.sigmoid(numpyro.sample("odds", dist.Normal(0.0, 1.5)))
        likelihood(p, normal("mu", 2), y)

    return model


def parts_by_hand(first, second, mu, y):
    each = [log_p + dist.Normal(mu[k], 1.0).log_prob(y) for k, log_p in enumerate((first, second))]
    numpyro.factor("log_likelihood", logsumexp(jnp.stack(each), 0).sum())


def assigned(p, mu, y):
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.stack([p, 1 - p])))
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


SIGMOID = {
    "in a mixture": lambda p, mu, y: mixture(jnp.stack([p, 1 - p]), mu, y),
    "by log1p": lambda p, mu, y: parts_by_hand(jnp.log(p), jnp.log1p(-p), mu, y),
    "by log": lambda p, mu, y: parts_by_hand(jnp.log(p), jnp.log(1.0 - p), mu, y),
    "summed out": assigned,
}
PART = (Complement("mu"),)
ODDS = Complement("component", total=0.0)
FOUND = {
    "weights p and 1 - p": (beta_weights, (Y,), Symmetry({"mu": ("mu",), "p": PART})),
    "by hand": (by_hand, (Y,), Symmetry({"mu": ("mu",), "p": PART, "scale": ("mu",)})),
    "enumerated": (enumerated, (Y,), Symmetry({"mu": ("mu",), "p": PART})),
    "a site for each": (
        site_for_each,
        (Y,),
        Symmetry({("mu_0", "mu_1", "mu_2"): ("mu",), ("sd_0", "sd_1", "sd_2"): ("mu",), "w": ("mu",)}),
    ),
    "numbered from one and from nought": (
        factors_for_each,
        (X[:, :2],),
        Symmetry(
            {
                ("corr_chol_0", "corr_chol_1"): ("corr_chol", None, None),
                ("mu1", "mu2"): ("corr_chol", None),
                "w": ("corr_chol",),
            }
        ),
    ),
    "names without numbers": (
        left_and_right,
        (Y,),
        Symmetry({("left", "right"): ("component",), "p": (Complement("component"),)}),
    ),
    "one of three is another": (
        one_wider,
        (Y,),
        Symmetry({("mu_0", "mu_1", "mu_2"): ("mu",), "w": ("mu",)}, orbits={"mu": (0, 0, 2)}),
    ),
    "two kinds of five": (
        two_kinds,
        (),
        Symmetry({tuple(f"mu_{k}" for k in range(5)): ("mu",)}, orbits={"mu": (0, 0, 2, 2, 2)}),
    ),
    "two families that are exchanged apart": (
        two_families,
        (),
        Symmetry({("mu_0", "mu_1"): ("mu",), ("nu_0", "nu_1"): ("nu",)}),
    ),
    "log odds": (log_odds, (Y,), Symmetry({"mu": ("mu",), "odds": (Complement("mu", total=0.0),)})),
    "log odds between bounds": (
        lambda y: log_odds(y, prior=dist.Uniform(-4.0, 4.0)),
        (Y,),
        Symmetry({"mu": ("mu",), "odds": (Complement("mu", total=0.0),)}),
    ),
    **{
        f"log odds by sigmoid, {name}": (
            by_sigmoid(likelihood),
            (Y,),
            Symmetry({"mu": ("mu",), "odds": (Complement("mu", total=0.0),)}),
        )
        for name, likelihood in SIGMOID.items()
    },
    "a gate": (
        gated,
        (X, Y),
        Symmetry(
            {
                ("left", "right"): ("component",),
                "scale": ("component",),
                "intercept": (ODDS,),
                "slope": (ODDS, None),
            }
        ),
    ),
    "rows and columns": (correlated, (X[:, :2],), Symmetry({})),
    "states": (two_states, (Y,), Symmetry({("p00", "p11"): ("p",), "mu": ("p",)})),
}


@pytest.mark.parametrize("name", FOUND)
def test_exchanges_of_sites_and_of_parts_are_found(name):
    model, args, expected = FOUND[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = find_symmetry(model, args)
    assert not found.out_of_reach
    assert dict(found.axes) == dict(expected.axes)
    assert found.orbits == expected.orbits
    assert check_symmetry(model, found, args).status == "passed"
    whole = {finding.site for finding in found.findings if not finding.axis}
    assert whole == {site for site, entries in found.axes.items() if not isinstance(entries[0], str)}
    reasons = {finding.reason for finding in found.findings if not finding.axis}
    assert reasons == ({"verified numerically only"} if whole else set())


TOLD = {
    "units": (unit_by_unit, (X, Y), [f"{w}_{k}" for w in "vw" for k in range(3)], "any two of 'v_0', 'v_1' and 'v_2'"),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_no_axis_carries_is_told(name):
    model, args, sites, words = TOLD[name]
    with pytest.warns(SymmetryWarning, match=words):
        found = find_symmetry(model, args)
    (one,) = found.out_of_reach
    assert sorted(one.sites) == sites
    assert re.search("symmetry that this version cannot carry.*" + words, found.explain())
    assert found.restrict([]).out_of_reach == found.out_of_reach


def intercept_and_slope(x, y):
    numpyro.sample("y", dist.Normal(normal("alpha") + normal("beta") * x[:, 0], 1.0).to_event(1), obs=y)


def two_slopes(x, y):
    numpyro.sample("y", dist.Normal(normal("b_1") * x[:, 0] + normal("b_2") * x[:, 1], 1.0).to_event(1), obs=y)


def stacked_slopes(x, y):
    """Which column a slope meets is a matter of position, at which usage does not look."""
    numpyro.sample("y", dist.Normal(x @ jnp.stack([normal("b_1"), normal("b_2")]), 1.0).to_event(1), obs=y)


def unread(y):
    normal("a_1"), normal("a_2")
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


def persons(y):
    """Equal data, one for each."""
    for k in range(3):
        numpyro.sample(f"y_{k}", dist.Normal(normal(f"u_{k}"), 1.0), obs=1.0)


def unequal_weights(y):
    mixture(jnp.array([0.4, 0.6]), jnp.stack([normal("left"), normal("right")]), y)


def coin(y):
    numpyro.sample("y", dist.Bernoulli(numpyro.sample("p", dist.Beta(1.0, 1.0))), obs=(y > 0).astype(int))


def layers(x, y):
    hidden = x
    for k in range(3):
        hidden = jnp.tanh(hidden @ normal(f"w_{k}", 3, 3) + normal(f"b_{k}", 3))
    numpyro.sample("y", dist.Normal(hidden.sum(1), 1.0).to_event(1), obs=y)


def slightly(y):
    p, mu = numpyro.sample("p", dist.Beta(2.0, 2.0)), normal("mu", 2)
    numpyro.factor("break", 1e-6 * mu[0])
    mixture(jnp.stack([p, 1 - p]), mu, y)


def unlike_bounds(y):
    """Sites of which one may be a little larger than the other."""
    parts = [numpyro.sample(f"mu_{k}", dist.Uniform(-4.0, 4.0 + 1e-3 * k, validate_args=False)) for k in range(2)]
    mixture(jnp.ones(2) / 2, jnp.stack(parts), y)


def far_out(y):
    """Sites that are read alike, and where they are large not weighed alike."""
    mu = jnp.stack([normal("mu_0"), normal("mu_1")])
    numpyro.factor("break", (jnp.where(mu > 40.0, 1.0, 0.0) * jnp.array([1.0, 2.0])).sum())
    mixture(jnp.ones(2) / 2, mu, y)


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (lambda y: beta_weights(y, 3.0), (Y,)),
        (lambda y: log_odds(y, 0.5), (Y,)),
        (lambda y: log_odds(y, prior=dist.Uniform(-4.0, 4.001)), (Y,)),
        (unlike_bounds, (Y,)),
        (intercept_and_slope, (X, Y)),
        (two_slopes, (X, Y)),
        (stacked_slopes, (np.stack([X[:, 0], X[:, 0]], 1), Y)),
        (unread, (Y,)),
        (persons, (Y,)),
        (unequal_weights, (Y,)),
        (coin, (Y,)),
        (layers, (X, Y)),
        (slightly, (Y,)),
        (far_out, (Y,)),
    ],
    ids=[
        "an uneven Beta",
        "uneven log odds",
        "log odds between uneven bounds",
        "sites between unlike bounds",
        "intercept and slope",
        "two slopes",
        "data that coincide",
        "unread",
        "a datum for each",
        "unequal weights",
        "a coin",
        "layers",
        "broken by a millionth",
        "broken far out",
    ],
)
def test_nothing_is_told_where_nothing_may_be_exchanged(model, args):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = find_symmetry(model, args)
    assert found.out_of_reach == ()
    assert not any(isinstance(entry, Complement | Member) for entries in found.axes.values() for entry in entries)


@pytest.mark.parametrize(("model", "sites"), [(dirichlet_weights, {"p", "mu"}), (one_site_for_all, {"mu", "sd", "w"})])
def test_the_rewriting_has_the_group(model, sites):
    found = find_symmetry(model, (Y,))
    assert set(found.axes) == sites
    assert not found.out_of_reach


def test_reflections_are_told_with_what_to_write_for_each():
    exchange = Exchange(0, 1, (), (("w", 0),), (("p", 1.0), ("q", 1.0), ("l", 0.0)))
    told = _out_of_reach(exchange, (0, 1), Suspects((), {}, {"w": (2,)}, {"p": "dist.Dirichlet(2)", "q": ""}, (), {}))
    assert told.sites == ("w", "p", "q", "l")
    assert "the entries 0 and 1 of 'w' on axis -1, together with l and -l; p and 1 - p; q and 1 - q" in str(told)
    assert "two log weights, of which 'l' is the difference, in place of it" in str(told)
    assert "a site 'p' ~ dist.Dirichlet(2), in place of (p, 1 - p)" in str(told)
    assert "a site 'q' ~ a prior on two weights that sum to one" in str(told)


def test_what_is_told_is_true_by_the_density_of_numpyro():
    values = {"p": jnp.array(0.3), "mu": jnp.array([-1.0, 2.0])}
    other = {"p": 1 - values["p"], "mu": values["mu"][::-1]}
    density, density_rewritten = (
        jax.jit(lambda at, model=model: log_density(model, (Y,), {}, at)[0])
        for model in (beta_weights, dirichlet_weights)
    )
    before, after = density(values), density(other)
    assert float(before) == pytest.approx(float(after), abs=1e-4)
    rewritten = {"p": jnp.array([0.3, 0.7]), "mu": values["mu"]}
    assert float(density_rewritten(rewritten)) == pytest.approx(float(before), abs=1e-4)


def test_every_way_in_uses_what_is_found():
    draws = {"p": RNG.uniform(0.2, 0.8, size=(2, 50)), "mu": RNG.normal(size=(2, 50, 2))}
    guide = AutoSymmetrized(AutoNormal(beta_weights))
    guide.setup(jax.random.key(0), Y)
    assert guide.symmetry.axes["p"] == PART
    out = rebase(draws, model=beta_weights, model_args=(Y,), null=False)
    moved = np.asarray(out.elements["mu"])[..., 0] == 1
    np.testing.assert_allclose(out.data["p"], np.where(moved, 1 - draws["p"], draws["p"]))


def test_every_way_in_carries_the_sentence():
    draws = {f"{w}_{k}": RNG.normal(size=(2, 50, *shape)) for w, shape in (("v", ()), ("w", (3,))) for k in range(3)}
    sentence = "cannot carry: exchanging any two of 'v_0', 'v_1'"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        guide = AutoSymmetrized(AutoNormal(unit_by_unit))
        guide.setup(jax.random.key(0), X, Y)
        rebase(draws, model=unit_by_unit, model_args=(X, Y), null=False)
    told = [str(one.message) for one in told if issubclass(one.category, SymmetryWarning)]
    assert sum(bool(re.search(f"^The model has a symmetry .*{sentence}", one)) for one in told) == 2
