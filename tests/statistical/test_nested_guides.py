"""Guides of models in which blocks and the units in them both move: the ELBO by enumeration of (S2)³ ⋊ S3."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

from numpyro_symmetry import AutoSymmetrized, AutoUnitNormal, Symmetry
from numpyro_symmetry.entropy import Factorised, GaussianFactors, information, nested, of_draw
from numpyro_symmetry.entropy.nested import log_probability_of_identity
from numpyro_symmetry.evidence.weights import averaged_over, log_weights
from numpyro_symmetry.symmetry import PlainView

EXPERTS = {"up": ("expert", None, "expert/unit"), "down": ("expert", "expert/unit"), "route": (None, "expert")}
GROUPS = {"w": ("group", "group/channel", None), "scale": ("group", "group/channel"), "out": ("group", "group/channel")}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1]


def normal(name, *shape):
    return numpyro.sample(name, dist.Normal(0, 1).expand(shape).to_event(len(shape)))


def mixture_of_experts(x, y):
    """Three experts of two units, weighed by a router."""
    up, down, route = normal("up", 3, 2, 2), normal("down", 3, 2), normal("route", 2, 3)
    each = jnp.einsum("xeu,eu->xe", jnp.tanh(jnp.einsum("xi,eiu->xeu", x, up)), down)
    numpyro.sample("y", dist.Normal((each * jax.nn.softmax(x @ route)).sum(-1), 0.2).to_event(1), obs=y)


def group_norm(x, y):
    """Three groups of two channels, each group normalised by itself."""
    w, scale, out = normal("w", 3, 2, 2), normal("scale", 3, 2), normal("out", 3, 2)
    z = jnp.einsum("xi,gci->xgc", x, w)
    z = jnp.tanh(scale * z / jnp.sqrt(0.1 + (z**2).mean(-1, keepdims=True)))
    numpyro.sample("y", dist.Normal(jnp.einsum("xgc,gc->x", z, out), 0.2).to_event(1), obs=y)


MODELS = {"experts": (mixture_of_experts, EXPERTS), "groups": (group_norm, GROUPS)}
BASES = {"independent": AutoNormal, "joint": AutoMultivariateNormal}


def symmetry_of(name, levels=None):
    model, axes = MODELS[name]
    sites = handlers.trace(handlers.seed(model, 0)).get_trace(X, Y)
    symmetry = Symmetry(axes).bind({site: sites[site]["value"] for site in axes})
    return symmetry.restrict(levels or list(symmetry.groups))


def guide_of(name, symmetry, base=AutoNormal, **options):
    """A guide, set up, and parameters at which slots differ about as much as they are wide."""
    guide = AutoSymmetrized(base(MODELS[name][0], init_scale=0.4), symmetry, **options).setup(jax.random.key(0), X, Y)
    sites = handlers.trace(handlers.seed(guide.base, 0)).get_trace(X, Y)
    rng = np.random.default_rng(1)
    params = {n: jnp.asarray(s["value"]) for n, s in sites.items() if s["type"] == "param"}
    return guide, {n: 0.4 * rng.normal(size=v.shape) if n.endswith("_loc") else v for n, v in params.items()}


def drawn(guide, params, key):
    """Latent values that a guide draws, and the information that it takes into account."""
    sites = handlers.trace(handlers.seed(handlers.substitute(guide, params), key)).get_trace(X, Y)
    correction = sites[f"_{guide.prefix}_correction"]
    return {s: sites[s]["value"] for s in guide.symmetry.axes}, -correction["fn"].log_prob(correction["value"]).sum()


def enumerated(guide, params, values):
    """Information of one draw: the base guide's density at all relabellings, written out."""

    def log_density(moved):
        if "auto_loc" not in params:
            of_sites = (
                dist.Normal(params[f"{s}_auto_loc"], params[f"{s}_auto_scale"]).log_prob(moved[s]) for s in moved
            )
            return sum(x.sum() for x in of_sites)
        # in the order of the model
        flat = jnp.concatenate([moved[s].ravel() for s in guide.symmetry.axes])
        return dist.MultivariateNormal(params["auto_loc"], scale_tril=params["auto_scale_tril"]).log_prob(flat)

    at = jax.lax.map(log_density, guide.symmetry.apply(guide.symmetry.elements(), values))
    return log_density(values) - logsumexp(at) + guide.symmetry.log_order()


def informations(guide, params, keys):
    return np.asarray(jax.jit(lambda keys: jax.lax.map(lambda k: drawn(guide, params, k)[1], keys))(keys))


@pytest.mark.parametrize(
    ("name", "base"), [("experts", "independent"), ("groups", "independent"), ("experts", "joint")]
)
def test_bounds_are_strict_and_never_below_those_of_one_level(name, base):
    with jax.enable_x64(True):
        keys, symmetry = jax.random.split(jax.random.key(2), 200), symmetry_of(name)
        guide, params = guide_of(name, symmetry, BASES[base], estimator="sequential")
        assert set(guide.layout.of_coordinates.groups) == set(symmetry.groups)

        def both(key):
            values, information = drawn(guide, params, key)
            return information, enumerated(guide, params, values)

        bound, exact = map(np.asarray, jax.jit(lambda keys: jax.lax.map(both, keys))(keys))
        # by itself a guide enumerates a group of 48
        auto, _ = guide_of(name, symmetry, BASES[base])
        np.testing.assert_allclose(informations(auto, params, keys), exact, atol=1e-8)
        if base == "independent":  # levels this narrow are placed by their posterior
            np.testing.assert_allclose(bound, exact, atol=1e-8)
        weighed, _ = guide_of(name, symmetry, BASES[base], estimator="importance")
        for lower in (bound, informations(weighed, params, keys)):
            gap = lower - exact
            assert gap.mean() <= 4 * gap.std() / np.sqrt(len(keys)) + 1e-9
        for level in symmetry.groups:
            before, _ = guide_of(name, symmetry_of(name, [level]), BASES[base], estimator="sequential")
            gained = bound - informations(before, params, keys)
            assert gained.mean() > 4 * gained.std() / np.sqrt(len(keys))
        assert exact.mean() < np.log(48.0)


def test_the_elbo_is_that_of_the_enumerated_guide():
    with jax.enable_x64(True):
        guide, params = guide_of("experts", symmetry_of("experts"), estimator="sequential")
        elbo, keys = Trace_ELBO(), jax.random.split(jax.random.key(3), 20)

        def both(key):
            of_base = -elbo.loss(key, params, mixture_of_experts, guide.base, X, Y)
            values, _ = drawn(guide, params, jax.random.split(key)[1])
            mine = -elbo.loss(key, params, mixture_of_experts, guide, X, Y)
            return mine - of_base, enumerated(guide, params, values)

        mine, exact = map(np.asarray, jax.lax.map(both, keys))
        np.testing.assert_allclose(mine, exact, atol=1e-8)


@pytest.mark.parametrize("spread", [0.03, 0.5, 2.0])
def test_wide_levels_are_bounded_from_below(spread, monkeypatch):
    """Nothing by posteriors: against enumeration, and against either level by itself."""
    monkeypatch.setattr(nested, "_MAX_EXACT", 0)
    symmetry = symmetry_of("experts")
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        loc = {
            s: jnp.asarray(spread * rng.normal(size=x))
            for s, x in {"up": (3, 2, 2), "down": (3, 2), "route": (2, 3)}.items()
        }
        factors = GaussianFactors(loc, {s: jnp.exp(0.3 * rng.normal(size=x.shape)) for s, x in loc.items()})
        noise = {s: rng.normal(size=(400, *x.shape)) for s, x in loc.items()}
        draws = {s: x + factors.scale[s] * noise[s] for s, x in loc.items()}

        def at(draw):
            moved = symmetry.apply(symmetry.elements(), draw)
            chain = lambda v: log_probability_of_identity(symmetry, factors, v)  # noqa: E731
            exact = information(Factorised(factors), symmetry, draw, estimator="exact")
            bound = information(Factorised(factors), symmetry, draw, estimator="sequential")
            return logsumexp(jax.lax.map(chain, moved)), bound - exact

        total, gap = map(np.asarray, jax.jit(lambda draws: jax.lax.map(at, draws))(draws))
        np.testing.assert_allclose(total, 0.0, atol=1e-8)
        assert gap.mean() <= 4 * gap.std() / 20 + 1e-9
        assert gap.mean() > -0.05 * symmetry.log_order()


def test_sketched_features_are_those_of_either_level():
    rng = np.random.default_rng(0)
    symmetry = Symmetry({"w": ("a", "a/b", None)})
    loc = jnp.asarray(rng.normal(size=(3, 2, 6)))
    symmetry, factors = symmetry.bind({"w": loc}), GaussianFactors({"w": loc}, {"w": jnp.ones_like(loc)})
    draw = {"w": loc + rng.normal(size=loc.shape)}
    whole, all_of_them, few = (
        log_probability_of_identity(symmetry, factors, draw, max_features=n) for n in (None, 1000, 1)
    )
    assert whole == all_of_them
    assert few != whole


@pytest.mark.parametrize(("spread", "between"), [(0.03, 0.0), (0.03, 0.5), (0.3, 0.0), (1.0, 0.3)])
def test_many_units_are_worth_no_less_in_blocks_that_move(spread, between):
    rng = np.random.default_rng(1)
    symmetry, num_draws = Symmetry({"w": ("a", None, "a/b")}), 100
    with jax.enable_x64(True):
        loc = jnp.asarray(spread * rng.normal(size=(4, 3, 12)) + between * rng.normal(size=(4, 3, 1)))
        factors = GaussianFactors({"w": loc}, {"w": jnp.exp(0.3 * rng.normal(size=loc.shape))})
        draws = loc + factors.scale["w"] * rng.normal(size=(num_draws, *loc.shape))
        symmetry = symmetry.bind({"w": loc})

        def of(symmetry):
            view = PlainView.of(symmetry, {"w": loc}, nested=True)
            density = Factorised(GaussianFactors(view.open(factors.loc), view.open(factors.scale)))
            one = lambda w: information(density, view.symmetry, view.open({"w": w}), estimator="auto")  # noqa: E731
            return np.asarray(jax.jit(lambda w: jax.lax.map(one, w))(draws))

        together = of(symmetry)
        for level in symmetry.groups:
            gained = together - of(symmetry.restrict([level]))
            assert gained.mean() > -2 * gained.std() / np.sqrt(num_draws)


def guide_that_blocks_meet(base=AutoNormal):
    """Experts whose inputs move with another site, too."""
    axes = EXPERTS | {"up": ("expert", "input", "expert/unit"), "route": ("input", "expert"), "embed": ("input",)}

    def model(x, y):
        mixture_of_experts(x, y)
        normal("embed", 2)

    return AutoSymmetrized(base(model), Symmetry(axes), check=False)


@pytest.mark.parametrize("what", ["a group that blocks meet", "Gaussians of whole units"])
def test_elsewhere_one_level_moves(what):
    whole = AutoUnitNormal(mixture_of_experts, Symmetry(EXPERTS))
    guide = guide_that_blocks_meet() if "meet" in what else AutoSymmetrized(whole, Symmetry(EXPERTS))
    guide.setup(jax.random.key(0), X, Y)
    assert not any("/" in name for name in guide.layout.of_coordinates.groups)
    assert guide.layout.factorises


def test_the_other_level_is_summed_apart_in_weights(monkeypatch):
    """By enumeration; with relabellings drawn instead, unbiased for draws of the guide, the inverse for any others."""
    rng, count, size = np.random.default_rng(0), 1000, 26
    with jax.enable_x64(True):
        guide = guide_that_blocks_meet(AutoMultivariateNormal).setup(jax.random.key(0), X, Y)
        assert not guide.layout.factorises
        loc = 0.2 * rng.normal(size=size)
        scale_tril = 0.5 * np.eye(size) + 0.025 * np.tril(rng.normal(size=(size, size)), -1)
        params = {"auto_loc": jnp.asarray(loc), "auto_scale_tril": jnp.asarray(scale_tril)}
        own, others = (
            jax.vmap(guide.base._unpack_latent)(jnp.asarray(at * loc + rng.normal(size=(count, size)) @ scale_tril.T))
            for at in (1.0, 0.0)
        )

        def weighed(**options):
            draws = [(own, True), (others, False)]
            return np.split(log_weights(guide, jax.random.key(1), params, draws, (X, Y), **options).information, 2)

        exact = weighed()
        by_hand = jax.jit(lambda draws: jax.lax.map(lambda one: enumerated(guide, params, one), draws))
        np.testing.assert_allclose(exact, [by_hand(own), by_hand(others)], atol=1e-8)
        monkeypatch.setattr(of_draw, "_AUTO_ENUMERATED_ORDER", 1)
        for sign, whole, some in zip((1, -1), exact, weighed(num_permutations=1), strict=True):
            ratios = np.exp(sign * (some - whole))
            assert abs(ratios.mean() - 1.0) < 4 * ratios.std() / np.sqrt(count)
            assert ratios.std() > 0.1


@pytest.mark.parametrize("num_blocks", [5, 6])
def test_no_more_than_120_elements_are_summed_apart(num_blocks):
    whole = Symmetry({"w": ("block", "block/unit")}).bind({"w": np.zeros((num_blocks, 2))})
    units = whole.restrict(["block/unit"])
    found = averaged_over(SimpleNamespace(layout=SimpleNamespace(symmetry=units), symmetry=whole))
    few = num_blocks == 5
    assert found.apart.groups.keys() == ({"block"} if few else set())
    assert found.symmetry == (whole if few else units)
    assert found.whole == whole
