"""Families of sites, one for each component: in every verb, as the same model written with one array site.

The laws of the action are rows of ``tests/support/laws.py``, and guides a case of ``tests/integration/test_guide.py``.
"""

import functools
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
import xarray as xr
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

from numpyro_symmetry import (
    AutoSymmetrized,
    AutoUnitNormal,
    DiagonalGaussian,
    EuclideanCost,
    FullGaussian,
    Symmetry,
    SymmetryError,
    Unsigned,
    check_symmetry,
    find_symmetry,
    log_evidence,
    loss_barrier,
    match,
    rebase,
    report,
)
from numpyro_symmetry.diagnostics import plot_relabelling
from numpyro_symmetry.guides.symmetrized.information import information_at
from numpyro_symmetry.matching import nearest_transposition
from numpyro_symmetry.models import trace_model
from numpyro_symmetry.symmetry import Member
from numpyro_symmetry.traces import GaussianCost
from tests.support.tables import every_matching_cost

RNG = np.random.default_rng(0)
Y = np.concatenate([RNG.normal(m, 0.5, 6) for m in (-3.0, 0.0, 3.0)]).astype(np.float32)
FAMILIES = {name: tuple(f"{name}_{k}" for k in range(3)) for name in ("mu", "sd")}
APART = Symmetry({FAMILIES["mu"]: ("component",), "w": ("component",), FAMILIES["sd"]: ("component",)})
WHOLE = Symmetry({"mu": ("component",), "w": ("component",), "sd": ("component",)})


def mixture(w, mu, sd, y):
    numpyro.deterministic("precision", 1 / sd**2)
    with numpyro.plate("data", len(Y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(logits=w), dist.Normal(mu, sd)), obs=y)


def apart(y=None):
    mu = jnp.stack([numpyro.sample(site, dist.Normal(0.0, 3.0)) for site in FAMILIES["mu"]])
    sd = jnp.stack([numpyro.sample(site, dist.LogNormal(0.0, 0.5)) for site in FAMILIES["sd"]])
    for k in range(3):
        numpyro.deterministic(f"twice_{k}", 2 * mu[k])
    mixture(numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1)), mu, sd, y)


def whole(y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    sd = numpyro.sample("sd", dist.LogNormal(0.0, 0.5).expand([3]).to_event(1))
    mixture(numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1)), mu, sd, y)


def cut(values, axis=-1):
    """Array sites as one site for each component."""
    xp = np if all(isinstance(x, np.ndarray) for x in values.values()) else jnp
    parts = {f"{n}_{k}": xp.take(values[n], k, axis) for n in FAMILIES if n in values for k in range(3)}
    return parts | {site: x for site, x in values.items() if site not in FAMILIES}


def drawn(seed, *leading):
    rng = np.random.default_rng(seed)
    return {
        "mu": np.array([-3.0, 0.0, 3.0]) + 0.4 * rng.normal(size=(*leading, 3)),
        "sd": np.exp(0.3 * rng.normal(size=(*leading, 3))),
        "w": 0.5 * rng.normal(size=(*leading, 3)),
    }


def switched(seed, *leading):
    """Draws, each under labels of its own."""
    values = drawn(seed, *leading)
    orders = np.random.default_rng(seed).permuted(np.broadcast_to(np.arange(3), (*leading, 3)), axis=-1)
    return {site: np.take_along_axis(x, orders, -1) for site, x in values.items()}


def assert_same(got, expected, **tolerance):
    assert set(got) == set(expected)
    for site, value in expected.items():
        np.testing.assert_allclose(got[site], value, **({"rtol": 1e-12} | tolerance), err_msg=site)


# ---- what it is ------------------------------------------------------------------------------------------------------


def test_a_family_is_one_array_in_what_is_printed():
    bound = APART.bind(cut(drawn(0)))
    assert str(bound).splitlines() == [
        "Symmetry(S3 on 'component'; log|G| = 1.8 nats)",
        "  mu_0…mu_2: (component)",
        "  w: (component)",
        "  sd_0…sd_2: (component)",
    ]
    assert bound.axes["mu_1"] == (Member("component", 1, FAMILIES["mu"]),)
    assert Symmetry(dict(bound.axes), sizes=dict(bound.sizes)) == bound == pickle.loads(pickle.dumps(bound))
    assert hash(bound) == hash(pickle.loads(pickle.dumps(bound)))
    assert Symmetry.mixture("w", FAMILIES["mu"]).bind(cut(drawn(0))).groups == bound.groups


def test_it_acts_as_on_the_array():
    values, batch = drawn(1), WHOLE.bind(drawn(1)).sample(jax.random.key(0), (5,))
    for xp in (np.asarray, jnp.asarray):
        given = {site: xp(x) for site, x in values.items()}
        g = jax.tree.map(lambda x: x[2], batch)
        moved = APART.apply(g, cut(given))
        assert_same(moved, cut(WHOLE.apply(g, given)), rtol=1e-7)
        assert all(type(moved[site]) is type(given["w"]) for site in moved)
        together = APART.apply(batch, cut(given))
        mapped = jax.jit(jax.vmap(lambda g, given=given: APART.apply(g, cut(given))))(batch)
        assert_same(mapped, together, rtol=1e-6)
        assert_same(together, cut(WHOLE.apply(batch, given)), rtol=1e-6)


def test_it_is_restricted_as_a_whole():
    assert set(APART.restrict(sites=["w", *FAMILIES["mu"]]).axes) == {"w", *FAMILIES["mu"]}
    with pytest.raises(SymmetryError, match=r"'mu_0' is exchanged with \['mu_1', 'mu_2'\]"):
        APART.restrict(sites=["mu_0", "w"])
    experts = Symmetry({("w_0", "w_1"): ("expert", "expert/unit"), "gate": ("expert",)})
    assert dict(experts.restrict(["expert"]).axes) == {
        "w_0": (Member("expert", 0, ("w_0", "w_1")), None),
        "w_1": (Member("expert", 1, ("w_0", "w_1")), None),
        "gate": ("expert",),
    }


VALUES = cut(drawn(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Symmetry({("a", "b"): (None,)}), r"Family \('a', 'b'\): expected the name of the group"),
        (lambda: Symmetry({("a", "b"): ()}), r"Family \('a', 'b'\): expected the name of the group"),
        (lambda: Symmetry({("a", "b"): "g"}), r"Family \('a', 'b'\): expected the name of the group"),
        (lambda: Symmetry({("a", 3): ("g",)}), "tuple of names of sites"),
        (lambda: Symmetry({(): ("g",)}), "tuple of names of sites"),
        (lambda: Symmetry({("a", "a"): ("g",)}), "Site 'a' stands twice"),
        (lambda: Symmetry({("a", "b"): ("g",), "a": ("g",)}), "Site 'a' stands twice"),
        (lambda: Symmetry({("a", "b"): ("g", 3)}), "Site 'a' axis -1: got 3"),
        (lambda: Symmetry({"a": (Member("g", 0, ("a", "b")),)}), r"'a' is exchanged with \['b'\]"),
        (lambda: Symmetry({"a": (Member("g", 1, ("a",)),)}), "says that it is another site"),
        (
            lambda: Symmetry({"a": (Member("g", 0, ("a", "b")),), "b": (Member("g", 1, ("a", "b")), None)}),
            r"Site 'b' has axes \(g\[1\], ·\); expected \(g\[1\]\)",
        ),
        (lambda: Symmetry({"a": (None, Member("g", 0, ("a",)))}), "Member stands before its own axes"),
        (lambda: Member(3, 0, ("a",)), "Member takes the name of a group"),
        (
            lambda: APART.bind(VALUES | {"mu_1": np.zeros(2)}),
            r"'mu_1' has shape \(2,\), and 'mu_0', of the same family",
        ),
        (lambda: APART.bind({s: x for s, x in VALUES.items() if s != "mu_1"}), "Site 'mu_1' is named by the symmetry"),
        (lambda: APART.bind(VALUES | {"w": np.ones(4) / 4}), "family .*'mu_0', 'mu_1', 'mu_2'"),
        (
            lambda: APART.apply({"component": np.arange(3)}, VALUES | {"mu_1": np.float32(1.0)}),
            "'mu_1' has type float32, and 'mu_0', of the same family, float64",
        ),
        (lambda: APART.opened("mu_0"), "sites of a family"),
        (lambda: Symmetry({("a", "b"): ("g",)}, orbits={"g": (0, 0, 0)}).bind({"a": 1.0, "b": 2.0}), "has size 2"),
    ],
)
def test_refuses(make, message):
    with pytest.raises((SymmetryError, TypeError), match=message):
        make()


# ---- the model has it ------------------------------------------------------------------------------------------------


def test_the_model_has_it_and_no_more():
    assert check_symmetry(apart, APART, (Y,)).status == "passed"
    with pytest.raises(SymmetryError, match="changes by"):
        check_symmetry(apart, Symmetry({FAMILIES["mu"]: ("component",), "w": ("component",)}), (Y,))


def test_of_many_families_each_is_exchanged_by_itself():
    def model(y):
        for name in "abcdefg":
            pair = [numpyro.sample(f"{name}_{k}", dist.Gamma(2.0, 1.0)) for k in range(2)]
            numpyro.sample(name, dist.Normal(pair[0] * pair[1], 1.0), obs=y)

    found = find_symmetry(model, (1.0,), progress_bar=False)
    assert found.axes == Symmetry({(f"{name}_0", f"{name}_1"): (f"{name}",) for name in "abcdefg"}).axes


def test_other_priors_and_other_supports_are_refused():
    def uneven(prior, y):
        mu = jnp.stack([numpyro.sample("mu_0", dist.Normal(0.0, 3.0)), numpyro.sample("mu_1", prior)])
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), dist.Normal(mu, 1.0)), obs=y)

    two = Symmetry({("mu_0", "mu_1"): ("component",)})
    with pytest.raises(SymmetryError, match="changes by"):
        check_symmetry(functools.partial(uneven, dist.Normal(0.0, 2.0)), two, (Y[0],))
    positive = functools.partial(uneven, dist.HalfNormal(3.0))
    with pytest.raises(SymmetryError, match="leaves its support"):
        check_symmetry(positive, two, (Y[0],))
    guide = AutoSymmetrized(AutoNormal(positive), two, check=False)
    with pytest.raises(SymmetryError, match="'mu_1' has support .* sites that are exchanged have one support"):
        guide.setup(jax.random.key(0), Y[0])


# ---- guides ----------------------------------------------------------------------------------------------------------


def added(guide, params, values, estimator):
    """What a symmetrized guide adds to its base guide's log density at given values."""
    trace = trace_model(guide.base, (Y,), {}, jax.random.key(0), params | values)
    options = {"rng_key": jax.random.key(1), "estimator": estimator}
    return float(information_at(guide.base, guide.layout, trace, (Y,), {}, **options))


@pytest.mark.parametrize("estimator", ["exact", "sequential", "importance"])
def test_a_guide_adds_what_it_adds_to_the_array(estimator):
    values = {site: jnp.asarray(x, jnp.float32) for site, x in drawn(4).items()}
    rng, found = np.random.default_rng(0), []
    loc, scale = ({"mu": rng.normal(size=3), "sd": rng.normal(size=3), "w": rng.normal(size=3)} for _ in range(2))
    scale = {site: 0.5 + np.abs(x) for site, x in scale.items()}
    for model, symmetry, part in ((whole, WHOLE, dict), (apart, APART, cut)):
        guide = AutoSymmetrized(AutoNormal(model), symmetry)
        guide.setup(jax.random.key(0), Y)
        moments = (part({s: jnp.asarray(x, jnp.float32) for s, x in one.items()}) for one in (loc, scale))
        params = {f"{s}_auto_{n}": x for n, one in zip(("loc", "scale"), moments, strict=True) for s, x in one.items()}
        found.append(added(guide, params, part(values), estimator))
        assert guide.symmetry == symmetry.bind(part(values))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


KINDS = {
    "AutoNormal": AutoNormal,
    "AutoMultivariateNormal": AutoMultivariateNormal,
    # sites of a family are apart in it: of a unit only what is in arrays has a covariance
    "AutoUnitNormal": lambda model: AutoUnitNormal(model, APART),
}


@pytest.mark.parametrize("kind", KINDS)
def test_training_and_bounds_run(kind):
    guide = AutoSymmetrized(KINDS[kind](apart), APART)
    result = SVI(apart, guide, optax.adam(0.01), Trace_ELBO()).run(jax.random.key(0), 20, Y, progress_bar=False)
    bounds = guide.elbo_bounds(jax.random.key(1), result.params, Y, num_particles=50)
    lower, upper = bounds.mutual_information
    assert 0.0 <= lower <= upper + 1e-4
    assert np.isfinite([bounds.lower, bounds.upper]).all()


# ---- matching --------------------------------------------------------------------------------------------------------


@every_matching_cost
def test_a_match_is_that_of_the_array(cost):
    loc, scale = [drawn(k) for k in range(2)], [{s: 0.1 + x**2 for s, x in drawn(k + 2).items()} for k in range(2)]
    gaussians = [DiagonalGaussian(*one) for one in zip(loc, scale, strict=True)]
    split = [DiagonalGaussian(cut(one.loc), cut(one.scale)) for one in gaussians]
    expected, found = match(*gaussians, WHOLE, cost=cost), match(*split, APART, cost=cost)
    assert_same(found.element, expected.element)
    assert float(found.objective) == pytest.approx(float(expected.objective), rel=1e-12)
    assert bool(found.exact)
    moved = split[1].apply(APART, found.element)
    assert_same(moved.loc, cut(gaussians[1].apply(WHOLE, expected.element).loc))
    assert_same(moved.scale, cut(gaussians[1].apply(WHOLE, expected.element).scale))


def test_the_nearest_and_the_full_gaussian_are_those_of_the_array():
    found = nearest_transposition(VALUES, APART)["component"]
    assert repr(found) == repr(nearest_transposition(drawn(0), WHOLE)["component"])
    order = [f"{name}_{k}" for name in ("mu", "sd") for k in range(3)]
    root = RNG.normal(size=(9, 9))
    full = FullGaussian(drawn(0), root @ root.T)
    split = FullGaussian({site: VALUES[site] for site in (*order, "w")}, root @ root.T)
    g = {"component": np.array([1, 2, 0])}
    moved, expected = split.apply(APART, g), full.apply(WHOLE, g)
    np.testing.assert_allclose(moved.covariance, expected.covariance)
    assert_same(moved.loc, cut(expected.loc))


def test_a_barrier_is_that_of_the_array():
    def loss(values):
        mu = values["mu"] if "mu" in values else jnp.stack([values[site] for site in FAMILIES["mu"]])
        return -jnp.square(jnp.stack([mu, mu * values["w"]]) - jnp.arange(3.0)).sum(-1)

    a, b = drawn(0), {s: x[[1, 2, 0]] for s, x in drawn(1).items()}
    found = loss_barrier(loss, cut(a), APART.apply(match(cut(a), cut(b), APART).element, cut(b)))
    expected = loss_barrier(loss, a, WHOLE.apply(match(a, b, WHOLE).element, b))
    assert found.barrier == pytest.approx(expected.barrier, rel=1e-5)
    assert 0 < found.barrier < loss_barrier(loss, cut(a), cut(b)).barrier


def test_experts_of_units_of_their_own_are_matched_as_the_array():
    rng = np.random.default_rng(0)
    whole = Symmetry({"w": ("expert", None, "expert/unit"), "gate": ("expert",)})
    split = Symmetry({("w_0", "w_1", "w_2"): ("expert", None, "expert/unit"), "gate": ("expert",)})
    target, source = ({"w": rng.normal(size=(3, 2, 4)), "gate": rng.normal(size=3)} for _ in range(2))
    apart = [{f"w_{k}": one["w"][k] for k in range(3)} | {"gate": one["gate"]} for one in (target, source)]
    expected, found = match(target, source, whole), match(*apart, split)
    assert_same(found.element, expected.element)
    assert float(found.objective) == pytest.approx(float(expected.objective), rel=1e-12)


# ---- draws -----------------------------------------------------------------------------------------------------------


def assert_rebased_alike(found, expected):
    assert_same(found.elements, expected.elements)
    assert_same(found.data, cut(expected.data))
    np.testing.assert_allclose(found.margin, expected.margin, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.objective, expected.objective, rtol=1e-9)
    assert found.null.explained == pytest.approx(expected.null.explained, rel=1e-9)
    assert found.null.explained_null == pytest.approx(expected.null.explained_null, rel=1e-9)


@pytest.mark.parametrize(
    "options",
    [{}, {"reference": "first"}, {"cost": "euclidean"}, {"order_by": True}, {"reference": True}],
    ids=["as it is", "first", "Euclidean", "ordered", "by values"],
)
def test_draws_are_rebased_as_those_of_the_array(options):
    draws, one = switched(5, 2, 60), drawn(9)
    both = []
    for part, symmetry, site in ((dict, WHOLE, "mu"), (cut, APART, "mu_1")):
        given = options | ({"cost": EuclideanCost()} if "cost" in options else {})
        given |= {"order_by": site} if "order_by" in options else {}
        given |= {"reference": part(one)} if options.get("reference") is True else {}
        both.append(rebase(part(draws), symmetry, num_leading_dims=2, **given))
    assert_rebased_alike(both[1], both[0])
    found = both[1]
    assert_same(found.undo(found.data), cut(draws), rtol=0)
    assert_same(found.apply(cut(draws)), found.data, rtol=0)
    assert_same(rebase(cut(draws), APART, reference=found, num_leading_dims=2).elements, found.elements)
    assert found.score(cut(draws), GaussianCost()) == pytest.approx(both[0].score(draws, GaussianCost()), rel=1e-9)
    twice = {f"twice_{k}": 2 * draws["mu"][..., k] for k in range(3)}
    moved = found.apply(twice, axes={tuple(twice): ("component",)})
    assert_same(moved, {f"twice_{k}": 2 * found.data[f"mu_{k}"] for k in range(3)})
    with pytest.raises(SymmetryError, match=r"'mu_0' is exchanged with \['mu_1', 'mu_2'\]"):
        found.apply({"mu_0": draws["mu"][..., 0]})


def test_axes_of_other_families_are_taken_and_moved_along():
    draws = switched(6, 80)
    beside = {f"f_{k}": np.round(draws["mu"][:, k]).astype(int) for k in range(3)}
    out = rebase(cut(draws) | beside, APART, axes={tuple(beside): ("component",)}, null=False)
    for k in range(3):
        np.testing.assert_array_equal(out.data[f"f_{k}"], np.round(out.data[f"mu_{k}"]).astype(int))
    assert_same(out.undo(out.data), cut(draws) | beside, rtol=0)
    with pytest.raises(SymmetryError, match=r"axes=\{'mu_0': ...\}: expected a site of the data that neither"):
        rebase(cut(draws) | beside, APART, axes={("mu_0", "f_0", "f_1"): ("component",)}, null=False)


def test_what_the_model_computes_goes_with_its_family():
    draws = {site: x.astype(np.float32) for site, x in cut(switched(5, 2, 25)).items()}
    computed = {f"twice_{k}": 2 * draws[f"mu_{k}"] for k in range(3)}
    computed["precision"] = 1 / np.stack([draws[site] for site in FAMILIES["sd"]], -1) ** 2
    out = rebase(draws | computed, APART, model=apart, model_args=(Y,), num_leading_dims=2, null=False)
    assert any((out.data[site] != draws[site]).any() for site in draws)
    for k in range(3):
        np.testing.assert_array_equal(out.data[f"twice_{k}"], 2 * out.data[f"mu_{k}"])
        np.testing.assert_allclose(out.data["precision"][..., k], out.data[f"sd_{k}"] ** -2.0, rtol=1e-5)
    assert_same(out.undo(out.data), draws | computed, rtol=0)


@pytest.mark.parametrize("kind", ["Dataset", "members"])
def test_what_comes_in_goes_out(kind):
    draws = cut(switched(5, 2, 25))
    if kind == "Dataset":
        given = xr.Dataset({site: (("chain", "draw", *(("k",) if x.ndim > 2 else ())), x) for site, x in draws.items()})
        out = rebase(given, APART, null=False)
        got = {site: out.data[site].values for site in draws}
        assert_same({s: x.values for s, x in out.undo(out.data).items()}, draws, rtol=0)
    else:
        given = [{site: x[0, k] for site, x in draws.items()} for k in range(25)]
        draws = {site: x[:1] for site, x in draws.items()}
        out = rebase(given, APART, null=False)
        got = {site: np.stack([member[site] for member in out.data])[None] for site in draws}
    expected = rebase({site: x.reshape(-1, *x.shape[2:]) for site, x in draws.items()}, APART, null=False).data
    assert_same({site: x.reshape(-1, *x.shape[2:]) for site, x in got.items()}, expected, rtol=0)


def test_a_report_and_plots_read_families():
    draws = switched(7, 2, 100)
    found, expected = (
        report(values, rebase(values, symmetry, num_leading_dims=2))
        for values, symmetry in ((cut(draws), APART), (draws, WHOLE))
    )
    rows = {row.name: row for row in found.rows}
    assert "mu_0…mu_2" in "".join(rows)
    sums = {row.name.replace("mu_0…mu_2", "mu").replace("sd_0…sd_2", "sd"): row.ess for row in found.rows}
    for row in expected.rows:
        if row.is_invariant:
            assert sums[row.name] == pytest.approx(row.ess, rel=1e-6)
    out = rebase(cut(draws), APART, num_leading_dims=2, null=False)
    for sites in (None, "mu_1", ("mu_0…mu_2", "sd_0")):
        axes = plot_relabelling(cut(draws), out, sites=sites)
        assert len(axes) == 2


def test_the_evidence_is_that_of_the_array():
    draws = {site: x.astype(np.float32) for site, x in switched(8, 2, 200).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these are no draws of the posterior
        both = [
            log_evidence(part(draws), model, (Y,), symmetry=symmetry, num_draws=100, rng_key=jax.random.key(0))
            for part, model, symmetry in ((dict, whole, WHOLE), (cut, apart, APART))
        ]
    assert both[1].value == pytest.approx(both[0].value, abs=4 * np.hypot(both[0].error, both[1].error))


def test_signs_of_sites():
    symmetry = Symmetry(
        {("w_0", "w_1"): ("unit", None), ("v_0", "v_1"): ("unit",), ("s_0", "s_1"): (Unsigned("unit"),)},
        {"unit": "signed"},
    )
    x = RNG.normal(size=(5, 3))

    def model(y=None):
        units = []
        for k in range(2):
            w = numpyro.sample(f"w_{k}", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
            scale = numpyro.sample(f"s_{k}", dist.HalfNormal(1.0))
            units.append(scale * numpyro.sample(f"v_{k}", dist.Normal(0.0, 1.0)) * jnp.tanh(x @ w))
        numpyro.sample("y", dist.Normal(sum(units), 1.0).to_event(1), obs=y)

    assert check_symmetry(model, symmetry, (np.zeros(5),)).status == "passed"
    values = {s: RNG.normal(size=(40, *shape)) for k in (0, 1) for s, shape in ((f"w_{k}", (3,)), (f"v_{k}", ()))}
    values |= {f"s_{k}": np.exp(RNG.normal(size=40)) for k in (0, 1)}
    out = rebase(values, symmetry, null=False)
    assert_same(out.undo(out.data), values, rtol=0)
    assert all((out.data[f"s_{k}"] > 0).all() for k in (0, 1))


def test_sites_that_nothing_but_their_priors_reads_are_no_family():
    """Though these priors share a scale, which the data read."""

    def model(y):
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        for name in ("mu_1", "mu_2"):
            numpyro.sample(name, dist.Normal(0.0, spread))
        numpyro.sample("y", dist.Normal(0.0, spread).expand([3]).to_event(1), obs=y)

    found = find_symmetry(model, (np.array([0.3, -0.2, 0.5]),))
    # each may change its sign, and that is all
    assert {group.size for group in found.groups.values()} == {1}
    assert not found.out_of_reach
