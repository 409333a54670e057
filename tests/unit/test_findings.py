"""`find_symmetry` on models that are made to mislead it, and every line of what it explains."""

import linecache
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_symmetry import SymmetryError, SymmetryWarning, check_symmetry, find_symmetry
from tests.support.equivariance import text_of_group
from tests.support.marks import slow_but

RNG = np.random.default_rng(0)
X, Y, PAIRS = RNG.normal(size=(6, 2)), RNG.normal(size=6), RNG.normal(size=(6, 3))
TWICE = np.array([1.0, 1.0, 2.0, 3.0])
NEIGHBOURS = np.array([1, 2, 3, 4, 0])


def normal(name, *shape, scale=1.0):
    return numpyro.sample(name, dist.Normal(0.0, scale).expand(shape).to_event(len(shape)))


def observe(mean, value):
    numpyro.sample("y", dist.Normal(mean, 0.5).to_event(jnp.ndim(mean)), obs=value)


def network(x, y):
    h = jnp.tanh(x @ normal("w", 2, 4) + normal("b", 4))
    out = numpyro.sample("out", dist.Normal(0.0, jnp.array([1.0, 1.0, 1.0, 2.0])).to_event(1))
    observe(h @ out, y)


def scale_of_each(y):
    """A noise of each datum, which only a Cholesky factor joins with its datum."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([4]).to_event(1))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(4), jnp.diag(scale**2) + 0.5), obs=y)


# ---- every line of what it explains ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    return find_symmetry(network, (X, Y), signs=False)


def test_every_axis_has_its_group_or_a_reason(found):
    sizes = {(f.site, f.axis): f.size for f in found.findings}
    assert sizes == {("w", -2): 2, ("w", -1): 4, ("b", -1): 4, ("out", -1): 4}
    for finding in found.findings:
        pinned = (finding.site, finding.axis) == ("w", -2)
        assert finding.group == ("" if pinned else "S3 'b'")
        assert finding.reason.endswith("meets data" if pinned else "a constant differs along the axis")


def test_a_reason_names_the_line_of_the_model(found):
    for finding in found.findings:
        file, line = finding.source.split(":")
        assert file == Path(__file__).name
        expected = "x @" if finding.reason == "meets data" else "jnp.array([1.0, 1.0, 1.0, 2.0])"
        assert expected in linecache.getline(__file__, int(line))


def test_the_table_shows_every_finding(found):
    head, names, *lines = found.explain().splitlines()
    assert head == "Symmetry(S3 on 'b'; log|G| = 1.8 nats)"
    assert names.split() == ["site", "axis", "size", "group", "because", "seen", "at"]
    for line, finding in zip(lines, found.findings, strict=True):
        assert line.split()[:3] == [finding.site, str(finding.axis), str(finding.size)]
        assert all(text in line for text in (finding.group, finding.reason, finding.source))


def test_what_is_found_can_be_used_at_once(found):
    values = {"w": RNG.normal(size=(2, 4)), "b": np.arange(4.0), "out": np.arange(4.0) + 4.0}
    moved = found.apply({"b": np.array([1, 2, 0, 3])}, values)
    np.testing.assert_array_equal(moved["out"], [5.0, 6.0, 4.0, 7.0])
    np.testing.assert_allclose(moved["w"], values["w"][:, [1, 2, 0, 3]], rtol=1e-6)
    with pytest.raises(SymmetryError, match="orbit"):
        found.apply({"b": np.array([3, 1, 2, 0])}, values)
    verdict = check_symmetry(network, found, (X, Y))
    assert verdict.status == "passed"
    # that it could have failed is not by the skin of its teeth
    assert min(verdict.control_gap.values()) > 1e3 * verdict.tolerance


# ---- what is trivial, and raises nothing -----------------------------------------------------------------------------

TRIVIAL = {
    "a number": (lambda: numpyro.sample("a", dist.Normal(0, 1)), ()),
    "an axis of one": (lambda: normal("a", 1, 1), ()),
    "an ordered support": (
        lambda: numpyro.sample("a", dist.ImproperUniform(dist.constraints.ordered_vector, (), (3,))),
        (),
    ),
    "an error of each row": (lambda y: observe(normal("error", 4, 1) * jnp.ones(2), y), (np.tile(TWICE[:, None], 2),)),
    "equal inputs": (lambda x: observe(x @ normal("w", 4), 0.0), (TWICE,)),
    "equal groups": (lambda k, y: observe(normal("effect", 3)[k], y), (np.array([0, 1, 1, 2]), np.ones(4))),
    "a noise of each datum": (scale_of_each, (TWICE,)),
    "a noise of each datum closed over": (lambda: scale_of_each(TWICE), ()),
    "a noise of each whole number": (scale_of_each, (TWICE.astype(int),)),
}


@pytest.mark.parametrize("name", TRIVIAL)
def test_what_is_trivial_raises_nothing(name):
    model, args = TRIVIAL[name]
    symmetry = find_symmetry(model, args, signs=False)
    assert not symmetry.groups
    assert symmetry.log_order() == 0.0
    assert symmetry.explain().startswith("Symmetry(trivial")


def test_an_array_is_no_tuple_of_arguments():
    for call in (find_symmetry, lambda model, args: check_symmetry(model, found_nothing(), args)):
        with pytest.raises(TypeError, match=r"write \(y,\)"):
            call(scale_of_each, TWICE)


def found_nothing():
    return find_symmetry(*TRIVIAL["a number"])


def test_a_loop_tells_whole_numbers_apart_but_not_components():
    counts = np.array([2, 2, 0, 1])

    def poisson(log_rate, count):
        return count * log_rate - jnp.exp(log_rate)

    def of_each(y):
        rate = normal("rate", 4)
        numpyro.factor("y", sum(poisson(rate[k], y[k]) for k in range(4)))

    def of_all(y):
        rate = normal("rate", 3)
        terms = [poisson(rate[k], y) for k in range(3)]
        numpyro.factor("y", jax.nn.logsumexp(jnp.stack(terms), axis=0).sum())

    def in_a_loop(y):
        rate = normal("rate", 4)

        def add(k, total):
            return total + poisson(rate[k], jnp.asarray(y)[k])

        numpyro.factor("y", jax.lax.fori_loop(0, 4, add, 0.0))

    assert text_of_group(find_symmetry(of_each, (counts,))) == "trivial"
    assert text_of_group(find_symmetry(in_a_loop, (counts,))) == "trivial"
    assert text_of_group(find_symmetry(of_all, (counts,))) == "S3"


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_what_no_wrong_action_changes_is_left_out():
    def model():
        numpyro.sample("flat", dist.ImproperUniform(dist.constraints.real_vector, (), (4,)))
        normal("w", 3)

    said = r"'flat' looked possible .* the numerical check is inconclusive.*The prior of \['flat'\] is improper"
    with pytest.warns(SymmetryWarning, match=said) as caught:
        symmetry = find_symmetry(model)
    assert symmetry.axes == {"w": ("w",)}
    assert symmetry.findings[0].reason == "inconclusive: nothing that was tried changes the log joint"
    assert Path(caught[0].filename).name == Path(__file__).name


ORDERED = [
    dist.TransformedDistribution(dist.Normal(0.0, 3.0).expand([3]).to_event(1), dist.transforms.OrderedTransform()),
    dist.ImproperUniform(dist.constraints.positive_ordered_vector, (), (3,)),
]


@pytest.mark.parametrize("prior", ORDERED)
def test_an_ordered_prior_is_what_breaks_the_permutation(prior):
    def model(y):
        loc = numpyro.sample("loc", prior)
        parts = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", parts, obs=y)

    (finding,) = find_symmetry(model, (np.arange(4.0),)).findings
    assert finding.reason == "its support is ordered, which breaks the permutation"


def test_what_is_taken_apart_says_at_which_line():
    def model(y):
        weight, loc, slope = numpyro.sample("weight", dist.Beta(2.0, 3.0)), normal("loc", 2), normal("slope", 3)
        mean = slope[0] + slope[1] * y + slope[2] * y**2
        parts = dist.Normal(loc + mean[:, None], 1.0)
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(jnp.array([weight, 1 - weight])), parts), obs=y)

    found = {f.site: f for f in find_symmetry(model, (np.arange(4.0),)).findings}
    assert {f.reason for f in found.values()} == {"taken apart index by index"}
    first = model.__code__.co_firstlineno
    assert found["slope"].source == f"test_findings.py:{first + 2}"
    assert found["loc"].source == f"test_findings.py:{first + 4}"


def test_a_group_refused_for_a_support_says_so():
    class Increasing(dist.Distribution):
        support = dist.constraints.ordered_vector

        def sample(self, key, sample_shape=()):
            return jnp.sort(jax.random.normal(key, (*sample_shape, 3)))

        def log_prob(self, value):
            return -0.5 * (value**2).sum(-1)

    def model(y):
        loc = numpyro.sample("loc", Increasing(event_shape=(3,)))
        mixture = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0))
        numpyro.sample("y", mixture.expand([4]).to_event(1), obs=y)

    with pytest.warns(SymmetryWarning, match="'loc' leaves its support"):
        symmetry = find_symmetry(model, (jnp.arange(4.0),))
    (finding,) = symmetry.findings
    assert not finding.group
    assert finding.reason == "refused for a support"


@pytest.mark.parametrize("seed", slow_but([0], range(4)))
def test_a_clip_that_no_draw_of_the_prior_reaches_is_seen(seed):
    def model(y):
        loc = normal("loc", 3)
        locs = jnp.stack([loc[0], loc[1], jnp.minimum(loc[2], 47.0)])
        mixture = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(locs, 1.0))
        numpyro.sample("y", mixture.expand([4]).to_event(1), obs=y)

    symmetry = find_symmetry(model, (jnp.arange(4.0),), rng_key=jax.random.key(seed))
    assert text_of_group(symmetry) == "S2"


def test_a_branch_is_seen_among_many_larger_numbers():
    def model(y):
        a = normal("a", 3)
        third = jnp.where((a[2] > 12.0) & (a[2] < 12.7), 12.0, a[2])
        total = sum(jnp.tanh(v / 9.0) for v in (a[0], a[1], third))
        kelvin = total * 1440.0 / 459.67 + 365.25 - 273.15 / 60.0 + 24.0
        numpyro.sample("y", dist.Normal(kelvin, 1.0).expand([4]).to_event(1), obs=y)

    assert text_of_group(find_symmetry(model, (jnp.arange(4.0),))) == "S2"


def test_the_sign_of_a_head_is_not_counted_beside_the_signs_of_its_units():
    def of_heads(x, y):
        w, v = normal("w", 3, 2, 5), normal("v", 3, 5)
        heads = jnp.einsum("nhu,hu->nh", jnp.tanh(jnp.einsum("nd,hdu->nhu", x, w)), v)
        numpyro.sample("y", dist.Normal((heads**3).sum(1), 0.3).to_event(1), obs=y)

    signed = find_symmetry(of_heads, (X, Y))
    assert [group.signed for group in signed.groups.values() if group.cells] == [True]
    assert [group.signed for group in signed.groups.values() if not group.cells] == [False]


def test_a_group_behind_a_factor_of_a_matrix():
    def model(x, y):
        h = jnp.tanh(x @ normal("w", 2, 3))
        factor = jnp.linalg.cholesky(h.T @ h + jnp.eye(3))
        observe(h @ jax.scipy.linalg.cho_solve((factor, True), h.T @ y), y)

    symmetry = find_symmetry(model, (X, Y))
    (name,) = symmetry.groups
    assert symmetry.axes == {"w": (None, name)}


def test_orbits_behind_an_inverse():
    def model():
        scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([5]).to_event(1))
        precision = jnp.linalg.inv(jnp.diag(scale**2) + 0.5)
        numpyro.factor("precision", -precision[:2, :2].sum() - 3.0 * precision[2:, 2:].sum())

    found = find_symmetry(model)
    assert text_of_group(found) == "S2 x S3"
    assert {f.reason for f in found.findings} == {"verified numerically only; the rest is not"}


@pytest.mark.parametrize("name", ["series", "neighbours"])
def test_columns_whose_rows_meet_each_other_move_as_a_whole(name):
    def series():
        steps = normal("steps", 5, 3)
        numpyro.factor("walk", jnp.tanh(jnp.cumsum(steps, 0) * steps).sum())

    def neighbours(k):
        field = normal("field", 5, 3)
        numpyro.factor("smooth", -jnp.sum(jnp.abs(field[k] - field)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SymmetryWarning)
        model, args = {"series": (series, ()), "neighbours": (neighbours, (NEIGHBOURS,))}[name]
        found = find_symmetry(model, args, signs=False)
    assert text_of_group(found) == "S3"


# ---- data that coincide ----------------------------------------------------------------------------------------------


def stacked(n):
    effect = normal("effect", 4)
    rate = jnp.stack([jnp.exp(effect[k]) for k in range(4)])
    numpyro.factor("n", dist.Poisson(rate).log_prob(n).sum())


def written(n):
    effect, rate = normal("effect", 4), jnp.zeros(4)
    for k in range(4):
        rate = rate.at[k].set(jnp.exp(effect[k]))
    numpyro.sample("n", dist.Poisson(rate).to_event(1), obs=n)


def mapped(n):
    effect = normal("effect", 4)
    rate = jax.lax.map(lambda i: jnp.exp(effect[i]), jnp.arange(4))
    numpyro.sample("n", dist.Poisson(rate).to_event(1), obs=n)


def counted_with_more(n):
    effect = normal("effect", 3)

    def add(k, total):
        return total + dist.Poisson(jnp.exp(effect[k])).log_prob(jnp.asarray(n)[k + 1])

    numpyro.factor("n", jax.lax.fori_loop(0, 3, add, 0.0))


def chosen(n):
    skill = normal("skill", 4)
    strength = jnp.array([jnp.tanh(skill[k]) for k in range(4)])
    numpyro.factor("n", jax.nn.log_softmax(strength)[n].sum())


def looked_at(n):
    effect = normal("effect", int(n.max() * 0) + 4)
    numpyro.factor("n", dist.Poisson(jnp.exp(effect)).log_prob(n).sum())


@pytest.mark.parametrize("model", [stacked, written, mapped, counted_with_more, chosen, looked_at])
def test_equal_counts_that_no_rule_follows_are_an_accident(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SymmetryWarning)  # where types were misled, and numbers were not
        assert text_of_group(find_symmetry(model, (np.array([3, 3, 3, 0]),))) == "trivial"


def test_observations_of_an_enumerated_model_are_data():
    pytest.importorskip("funsor")
    y = np.array([1.0, 1.0, 0.3, -0.7])

    def model():
        with numpyro.plate("row", 4):
            effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
            outlier = numpyro.sample("outlier", dist.Bernoulli(0.2), infer={"enumerate": "parallel"})
            numpyro.sample("y", dist.Normal(effect, jnp.where(outlier == 1, 3.0, 0.5)), obs=y)

    assert text_of_group(find_symmetry(model)) == "trivial"


def test_a_change_of_a_nat_is_one_beside_a_likelihood_of_billions():
    x = np.linspace(-2.0, 2.0, 12)

    def model(y):
        loc = numpyro.sample("loc", dist.ImproperUniform(dist.constraints.real_vector, (), (3,)))
        mean = sum(jnp.exp(-((x - loc[k]) ** 2)) for k in range(3))
        prior = sum(dist.Cauchy(0.0, scale).log_prob(loc[k]) for k, scale in enumerate((1.0, 1.0, 2.0)))
        numpyro.factor("both", prior + dist.Normal(mean, 1e-5).log_prob(y).sum())

    assert text_of_group(find_symmetry(model, (np.exp(-(x**2)),))) in ("S2", "trivial")


# ---- numbers on their own --------------------------------------------------------------------------------------------


def weighed_by(t):
    w = normal("w", 2)
    numpyro.factor("f", -((w[0] * t + w[1]) ** 2))


def chosen_by(t):
    w = normal("w", 2)
    numpyro.factor("f", -((w[0] * jnp.where(t == 1, 1.0, 2.0) + w[1]) ** 2))


def contracted_with(t):
    numpyro.factor("f", -((jnp.stack([jnp.asarray(t, float), jnp.ones(())]) @ normal("w", 2)) ** 2))


ONES = [jnp.float32(1.0), np.float32(1.0), np.array(1), jnp.array(True)]
# one model in every type, and every model in one
OTHERS = [
    pytest.param(model, one, marks=pytest.mark.slow) for model in (chosen_by, contracted_with) for one in ONES[1:]
]


@pytest.mark.parametrize(
    ("model", "one"),
    [*((weighed_by, one) for one in ONES), (chosen_by, ONES[0]), (contracted_with, ONES[0]), *OTHERS],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_an_array_without_axes_is_data_whose_value_is_an_accident(model, one):
    assert text_of_group(find_symmetry(model, (one,), signs=False)) == "trivial"


def test_a_number_of_pythons_is_part_of_the_model():
    assert text_of_group(find_symmetry(weighed_by, (1.0,), signs=False)) == "S2"


@pytest.mark.parametrize("count", [jnp.int32(3), np.int64(3), np.array(3), 3], ids=repr)
def test_a_number_that_a_model_takes_for_a_size_stays_one(count):
    def model(y, count):
        loc = normal("loc", int(count), scale=3.0)
        mixture = dist.MixtureSameFamily(dist.Categorical(jnp.ones(int(count)) / count), dist.Normal(loc, 1.0))
        numpyro.sample("y", mixture, obs=y)

    # that of the data is opaque all the same
    assert text_of_group(find_symmetry(model, (np.float32(0.3), count), signs=False)) == "S3"


@pytest.mark.parametrize("dummy", [np.ones, np.zeros])
def test_data_that_are_all_alike_hide_nothing(dummy):
    def model(x, y):
        w = normal("w", 3)
        observe(sum(x[:, k] * w[k] for k in range(3)), y)

    assert text_of_group(find_symmetry(model, (dummy((5, 3)), dummy(5)), signs=False)) == "trivial"


# ---- sets of axes of one size ----------------------------------------------------------------------------------------


def in_loops(x, y, widths, factor=(1.0, 1.0), bias=True):
    """Two layers, unit by unit; the first unit of each may be another than the rest."""
    a, b = widths
    w1, w2, w3 = normal("w1", 2, a), normal("w2", a, b), normal("w3", b)
    b1, b2 = (normal("b1", a), normal("b2", b)) if bias else (jnp.zeros(a), jnp.zeros(b))
    h = [jnp.tanh(x @ w1[:, j] + b1[j]) * (factor[0] if j == 0 else 1.0) for j in range(a)]
    g = [jnp.tanh(sum(h[i] * w2[i, j] for i in range(a)) + b2[j]) * (factor[1] if j == 1 else 1.0) for j in range(b)]
    observe(sum(g[j] * w3[j] for j in range(b)), y)


@pytest.mark.parametrize(
    ("widths", "factor", "bias", "expected"),
    [
        ((3, 3), (1.0, 1.0), True, "S3 x S3"),
        ((3, 4), (1.0, 1.0), True, "S3 x S4"),
        ((4, 4), (2.0, 3.0), False, "S3 x S3"),
        ((4, 4), (2.0, 1.0), False, "S3 x S4"),
    ],
)
def test_two_layers_of_one_width_have_a_group_each(widths, factor, bias, expected):
    def model(x, y):
        in_loops(x, y, widths, factor, bias)

    found = find_symmetry(model, (X, Y), signs=False)
    assert text_of_group(found) == expected
    # units of the first on the sites of the first
    assert found.axes["w2"] == (found.axes["w1"][1], *found.axes["w3"])


def test_data_in_another_order_are_still_data():
    def model(x):
        weights = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
        numpyro.factor("seen", (weights * x[jnp.array([2, 0, 1, 3])]).sum())

    found = find_symmetry(model, (np.array([0.3, 1.2, 0.7, 2.0]),))
    assert [finding.reason for finding in found.findings] == ["meets data"]
