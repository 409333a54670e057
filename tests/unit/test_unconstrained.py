"""Values taken to the real line, where single precision leaves nothing of what NumPyro subtracts from one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to, constraints
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal, AutoNormal
from numpyro.infer.util import unconstrain_fn

from numpyro_symmetry import AutoSymmetrized, Symmetry, SymmetryError, SymmetryWarning, find_symmetry, log_evidence
from numpyro_symmetry.guides import density
from numpyro_symmetry.guides.density import log_prob_of
from numpyro_symmetry.guides.symmetrized import layout
from numpyro_symmetry.guides.symmetrized.elbo import _with_closed_forms
from numpyro_symmetry.models.unconstrained import inverse, on_the_way, unconstrain, unconstrained

SUPPORTS = {
    "simplex": (constraints.simplex, (3, 4)),
    "unit interval": (constraints.unit_interval, (3, 4)),
    "positive": (constraints.positive, (4,)),
    "ordered": (constraints.ordered_vector, (2, 4)),
    "interval": (constraints.interval(-2.0, 3.0), (4,)),
    "correlations": (constraints.corr_cholesky, (6,)),
    "several events": (constraints.independent(constraints.simplex, 1), (3, 4)),
}


@pytest.mark.parametrize("name", SUPPORTS)
def test_values_come_back_from_their_support(name):
    support, shape = SUPPORTS[name]
    with jax.enable_x64(True):
        free = jax.random.normal(jax.random.key(0), shape)
        value = biject_to(support)(free)
        np.testing.assert_allclose(unconstrained(support, value), free, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(unconstrained(support, value), biject_to(support).inv(value), rtol=1e-9, atol=1e-9)


# NumPyro's transform stops at one less than a rounding
@pytest.mark.parametrize("largest", [0.0, 8.0, 15.0])
@pytest.mark.parametrize("place", range(5))
def test_the_smallest_entries_of_a_simplex_keep_their_coordinates(largest, place):
    free = jnp.zeros(5).at[place].set(largest)
    value = biject_to(constraints.simplex)(free)
    np.testing.assert_allclose(unconstrained(constraints.simplex, value), free, atol=0.5 if largest > 10.0 else 1e-3)
    slopes = jax.jacobian(lambda y: unconstrained(constraints.simplex, y))(value)
    assert np.isfinite(slopes).all()


def test_discrete_sites_need_no_mark():
    """They are summed out all the same; NumPyro warns, and warnings are errors here."""

    def model():
        p = numpyro.sample("p", dist.Beta(2.0, 2.0))
        numpyro.sample("z", dist.Bernoulli(p))

    free = unconstrain(model, (), {}, {"p": jnp.array(0.25), "z": jnp.array(1)})
    np.testing.assert_allclose(free["p"], np.log(1 / 3), rtol=1e-6)


def test_one_word_has_no_coordinate():
    assert unconstrained(constraints.simplex, jnp.ones((3, 1))).shape == (3, 0)


def test_a_simplex_may_be_of_integers():
    whole = unconstrained(constraints.simplex, np.array([1, 0, 0]))
    np.testing.assert_array_equal(whole, unconstrained(constraints.simplex, np.array([1.0, 0.0, 0.0], np.float32)))


TRANSFORMED = {
    "one transform": lambda: dist.TransformedDistribution(dist.Normal(jnp.zeros((3, 4)), 1.0).to_event(1), SIMPLEX),
    "expanded": lambda: dist.TransformedDistribution(dist.Normal(jnp.zeros(4), 1.0).to_event(1), SIMPLEX).expand([3]),
    "an event of all": lambda: TRANSFORMED["one transform"]().to_event(1),
    "two transforms": lambda: dist.TransformedDistribution(
        dist.Normal(jnp.zeros((3, 4)), 1.0).to_event(1), [dist.transforms.AffineTransform(1.0, 2.0), SIMPLEX]
    ),
    "no simplex": lambda: dist.LogNormal(jnp.zeros((3, 4)), 1.0),
    "a simplex without a transform": lambda: dist.Dirichlet(jnp.ones((3, 5))),
}
SIMPLEX = biject_to(constraints.simplex)


@pytest.mark.parametrize("name", TRANSFORMED)
def test_densities_are_those_of_numpyro(name):
    with jax.enable_x64(True):
        fn = TRANSFORMED[name]()
        value = fn.sample(jax.random.key(0))
        np.testing.assert_allclose(log_prob_of(drawn(fn, value)), fn.log_prob(value), rtol=1e-9)
        assert bool(on_the_way(fn, value)) == ("simplex" not in name)


def drawn(fn, value, is_observed=False):
    return {"type": "sample", "fn": fn, "value": value, "intermediates": [], "is_observed": is_observed}


@pytest.mark.parametrize("kind", ["Dirichlet", "transformed", "an event of several"])
def test_shares_of_many_lie_on_their_simplex_up_to_rounding(kind):
    """NumPyro wants sums within 1e-6 of one, which those of a thousand words in single precision are not."""
    fn = dist.Dirichlet(jnp.full((2, 1000), 2.0))
    if kind == "transformed":
        fn = dist.TransformedDistribution(dist.Normal(jnp.zeros((2, 999)), 1.0).to_event(1), SIMPLEX)
    fn = fn.to_event(1) if kind == "an event of several" else fn
    even = jnp.full((2, 1000), 1e-3)
    off = even.at[0].multiply(1 + 1e-5)
    # what is traced NumPyro judges without a warning
    theirs, ours, of_data = jax.jit(
        jax.vmap(lambda x: (fn.log_prob(x), log_prob_of(drawn(fn, x)), log_prob_of(drawn(fn, x, is_observed=True))))
    )(jnp.stack([even, off, even.at[0].multiply(1 + 1e-3), even.at[0, :2].set(jnp.array([-1e-3, 3e-3]))]))
    np.testing.assert_allclose(ours[:2], theirs[jnp.zeros(2, int)], rtol=1e-3)
    is_nothing = np.isneginf(theirs).reshape(4, -1).any(1)
    np.testing.assert_array_equal(is_nothing, [False, True, True, True])
    # what lies further off is nothing here, too, and data are judged as they are given
    np.testing.assert_allclose(ours[2:], theirs[2:], rtol=1e-6)
    np.testing.assert_allclose(of_data, theirs, rtol=1e-6)


def test_bounds_of_points_take_shares_of_many_too():
    off = jnp.full(1000, 1e-3 * (1 + 1e-5))
    model = {"words": drawn(dist.Dirichlet(jnp.full(1000, 2.0)), off) | {"scale": 2.0}}
    guide = {"words": drawn(dist.Delta(off, 3.0, event_dim=1), off) | {"scale": None}}
    expected = 2.0 * log_prob_of(model["words"]) - 3.0
    np.testing.assert_allclose(_with_closed_forms(model, guide), expected, rtol=1e-6)


def topics(counts, num_topics=2):
    weight = numpyro.sample("weight", dist.Dirichlet(jnp.ones(num_topics)))
    with numpyro.plate("topic", num_topics):
        words = numpyro.sample("words", dist.Dirichlet(0.1 * jnp.ones(6)))
    numpyro.sample("counts", dist.Multinomial(counts.sum(-1), weight @ words).to_event(1), obs=counts)


COUNTS = np.array([[20, 10, 5, 0, 0, 0], [0, 0, 0, 9, 9, 1], [5, 5, 0, 0, 0, 0]])
# the last word of either topic has a probability of a hundred-millionth
SPARSE = {
    AutoNormal: {
        "weight_auto_loc": np.zeros(1),
        "weight_auto_scale": np.ones(1),
        "words_auto_loc": np.array([[0.0, 0.0, 0.0, 0.0, 13.0], [1.0, 0.0, 0.0, 0.0, 14.0]]),
        "words_auto_scale": np.array([[1.0, 1.0, 1.0, 1.0, 0.3], [1.0, 1.0, 1.0, 1.0, 0.5]]),
    }
}
FLAT = {
    "auto_loc": np.concatenate([v.ravel() for k, v in SPARSE[AutoNormal].items() if "loc" in k]),
    "auto_scale": np.concatenate([v.ravel() for k, v in SPARSE[AutoNormal].items() if "scale" in k]),
}
SPARSE[AutoDiagonalNormal] = FLAT
SPARSE[AutoMultivariateNormal] = {"auto_loc": FLAT["auto_loc"], "auto_scale_tril": np.diag(FLAT["auto_scale"])}


def set_up(base):
    symmetry = Symmetry({"weight": ("topic",), "words": ("topic", None)})
    return AutoSymmetrized(base(topics), symmetry, check=False, progress_bar=False).setup(jax.random.key(0), COUNTS)


symmetrized = functools.cache(set_up)


def bounds_of(guide, params):
    params = {name: jnp.asarray(value) for name, value in params.items()}
    return guide.elbo_bounds(jax.random.key(1), params, COUNTS, progress_bar=False)


def information_of_topics():
    """In coordinates on the real line, where the topics of a draw change places and the weight's sign flips."""
    loc, scale = FLAT["auto_loc"], FLAT["auto_scale"]
    free = loc + scale * np.random.default_rng(0).normal(size=(100_000, len(loc)))
    weight, one, other = np.split(free, [1, 6], -1)
    swapped = np.concatenate([-weight, other, one], -1)
    log_ratio = (((free - loc) / scale) ** 2 - ((swapped - loc) / scale) ** 2).sum(-1) / 2.0
    return np.log(2.0) - np.logaddexp(0.0, log_ratio).mean()


@pytest.mark.parametrize("base", SPARSE)
def test_information_of_sparse_topics_in_single_precision(base):
    single = bounds_of(symmetrized(base), SPARSE[base])
    (lower, upper), error = single.mutual_information, single.mutual_information_error[0]
    assert lower == pytest.approx(information_of_topics(), abs=0.02 + 5.0 * error)
    assert 0.0 <= upper <= np.log(2.0) + 1e-3


def test_slopes_of_sparse_topics_in_single_precision():
    params = {name: jnp.asarray(value) for name, value in SPARSE[AutoNormal].items()}
    guide = symmetrized(AutoNormal)
    slope = jax.jit(jax.vmap(jax.grad(lambda p, key: Trace_ELBO().loss(key, p, topics, guide, COUNTS)), (None, 0)))
    slopes = slope(params, jax.random.split(jax.random.key(2), 64))
    assert all(np.isfinite(each).all() for each in slopes.values())


def test_evidence_of_sparse_topics_is_below_the_likelihood_at_its_peak():
    params = {name: jnp.asarray(value) for name, value in SPARSE[AutoNormal].items()}
    guide = symmetrized(AutoNormal)
    with pytest.warns(SymmetryWarning, match="not reliable"):
        found = log_evidence((guide, params), model_args=(COUNTS,), progress_bar=False)
    shares = COUNTS.sum(0) / COUNTS.sum()
    assert found.value < dist.Multinomial(COUNTS.sum(-1), shares).log_prob(COUNTS).sum()


def test_negative_information_is_told(monkeypatch):
    monkeypatch.setattr(density, "on_the_way", lambda fn, value: [])
    monkeypatch.setattr(layout, "drawn_free", lambda guide, trace, supports: {})
    monkeypatch.setattr(layout, "unconstrained", lambda support, value: biject_to(support).inv(value))
    wide = SPARSE[AutoNormal] | {"words_auto_loc": WIDE, "words_auto_scale": WIDER}
    with pytest.warns(SymmetryWarning, match="no information is negative.*enable_x64"):
        bounds_of(set_up(AutoNormal), wide)


WIDE = np.array([[0.0, 0.0, 0.0, 0.0, 18.0], [0.0, 0.0, 0.0, 0.0, 19.0]])
WIDER = np.array([[1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 3.0]])


def test_a_model_is_unconstrained_as_by_numpyro():
    with jax.enable_x64(True):
        values = {"weight": jnp.array([0.3, 0.7]), "words": jnp.full((2, 6), 1 / 6)}
        expected = unconstrain_fn(topics, (COUNTS,), {}, values)
        found = unconstrain(topics, (COUNTS,), {}, values)
        for site, value in expected.items():
            np.testing.assert_allclose(found[site], value, atol=1e-9)
    assert inverse(biject_to(constraints.positive), jnp.array(2.0)) == jnp.log(2.0)


def test_a_model_is_unconstrained_beside_missing_data():
    """A distribution that reads NaN which a mask hides is one that NumPyro refuses to make, checked."""

    def missing(x):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x * rate, 1.0).mask(np.isfinite(x)), obs=np.zeros(2))
        numpyro.sample("z", dist.Normal(x, 1.0).mask(np.isfinite(x)), obs=np.zeros(2))

    seeded = numpyro.handlers.seed(missing, 0)
    assert unconstrain(seeded, (np.array([1.0, np.nan]),), {}, {"rate": jnp.array(2.0)})["rate"] == jnp.log(2.0)


class Annulus(constraints.Constraint):
    """Points of the plane away from the origin: no way from the real line leads round a hole."""

    event_dim = 1

    def __call__(self, x):
        return (x**2).sum(-1) > 1

    def tree_flatten(self):
        return (), ((), {})


class OnAnnulus(dist.Distribution):
    support = Annulus()

    def __init__(self):
        super().__init__((), (2,))

    def sample(self, key, sample_shape=()):
        return jnp.full((*sample_shape, 2), 2.0)

    def log_prob(self, value):
        return -(value**2).sum(-1)


def on_annulus():
    numpyro.sample("point", OnAnnulus())


def flat_on_annulus():
    numpyro.sample("point", dist.ImproperUniform(Annulus(), (), (2,)))


POINTS = {"point": np.full((2, 4, 2), 3.0, np.float32)}


@pytest.mark.parametrize(
    "use",
    [
        lambda: log_evidence(POINTS, on_annulus, symmetry=Symmetry({})),
        lambda: AutoSymmetrized(AutoNormal(on_annulus)).setup(jax.random.key(0)),
        lambda: AutoSymmetrized(AutoNormal(on_annulus))(),
        lambda: find_symmetry(flat_on_annulus),
    ],
    ids=["log_evidence", "setup", "a call", "find_symmetry"],
)
def test_a_support_without_a_bijection_is_named(use):
    with pytest.raises(SymmetryError, match="'point' of the model has a support Annulus to which .* register"):
        numpyro.handlers.seed(use, 0)()
