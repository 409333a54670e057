"""Signs: which sites and which indices may be negated, found by parities and proved by numbers."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.flatten_util import ravel_pytree
from numpyro.handlers import seed, trace
from numpyro.infer.util import log_density

from numpyro_symmetry import Symmetry, SymmetryError, Whole, check_symmetry, find_symmetry
from numpyro_symmetry.discovery.labels.parity import even_sets
from numpyro_symmetry.discovery.proof import prove as proofs
from numpyro_symmetry.discovery.proof.rounding import IN_DOUBLE, IN_SINGLE
from numpyro_symmetry.discovery.proof.signs import Span
from numpyro_symmetry.discovery.proof.trials import has_signs
from numpyro_symmetry.symmetry import PlainView
from numpyro_symmetry.symmetry.gf2 import reduced_basis
from tests.support.equivariance import text_of_group
from tests.support.tried_signs import found_and_tried

# that two numbers of one product may be exchanged is true of these models, and is not what is tested
OF_EXCHANGES = pytest.mark.filterwarnings("ignore:The model has a symmetry that this version cannot carry")

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=12), RNG.normal(size=12)


def number(name, loc=0.0):
    return numpyro.sample(name, dist.Normal(loc, 1.0))


def vector(name, n):
    return numpyro.sample(name, dist.Normal(0.0, 1.0).expand([n]).to_event(1))


def observe(mean, y):
    numpyro.sample("y", dist.Normal(mean, 0.3).to_event(1), obs=y)


def one_unit(x, y):
    observe(number("w2") * jnp.tanh(number("w1") * x), y)


def one_factor(x, y):
    discrimination, ability = vector("a", 3), vector("theta", 4)
    logits = jnp.outer(discrimination, ability).ravel() - numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Bernoulli(logits=logits).to_event(1), obs=(y > 0).astype(int))


def three_factors(x, y):
    observe(number("a") * number("b") * number("c") * x, y)


def in_a_scan(x, y):
    a, b = number("a"), number("b")
    _, out = jax.lax.scan(lambda state, v: (jnp.sin(a * v + state),) * 2, 0.0, x)
    observe(b * out, y)


def in_a_branch(x, y):
    a, b = number("a"), number("b")
    observe(jax.lax.cond(x[0] > 0, lambda v: a * jnp.tanh(v), lambda v: jnp.sin(v) * a, b * x), y)


def even_of_itself(x, y):
    observe(jnp.cos(number("a") * x), y)


def both(x, y):
    """Units with signs of their own, and a factor of two numbers beside them."""
    w, v = vector("w", 3), vector("v", 3)
    observe(jnp.tanh(jnp.outer(x, w)) @ v + number("a") * number("b") * x, y)


def beside_no_entries(x, y):
    vector("none", 0)
    one_unit(x, y)


NEGATED = [
    (one_unit, {"w1": 1, "w2": 1}),
    (beside_no_entries, {"w1": 1, "w2": 1}),
    (one_factor, {"a": 1, "theta": 1}),
    (in_a_scan, {"a": 1, "b": 1}),
    (in_a_branch, {"a": 1, "b": 1}),
    (even_of_itself, {"a": 1}),
    (three_factors, {"a": 2, "b": 1, "c": 1}),
    (lambda x, y: observe(number("a", loc=1.0) * number("b") * x, y), {}),
    (lambda x, y: observe(number("a") * number("b") * x + 1.0, y), {"a": 1, "b": 1}),
    (lambda x, y: observe(number("a") * jnp.exp(number("b")) * x, y), {}),
    (lambda x, y: observe(number("a") * numpyro.sample("s", dist.HalfNormal(1.0)) ** 2 * x, y), {}),
    (lambda x, y: observe(jax.nn.relu(number("a") * x) * number("b"), y), {}),
]
# equal data could hide what tells signs apart, in whatever model: in most of them they are slow
ON_ZEROS = [
    pytest.param(*case, np.zeros(12), marks=() if case[0] in (one_unit, three_factors) else pytest.mark.slow)
    for case in NEGATED
]


@pytest.mark.parametrize(("model", "expected", "y"), [*((*case, Y) for case in NEGATED), *ON_ZEROS])
@OF_EXCHANGES
def test_sites_that_may_be_negated_as_a_whole(model, expected, y):
    found = find_symmetry(model, (X, y))
    assert {site: sum(isinstance(e, Whole) for e in entries) for site, entries in found.axes.items()} == expected
    assert sum(group.signed for group in found.groups.values()) == max(expected.values(), default=0)
    if expected:
        assert check_symmetry(model, found, (X, y)).status == "passed"


WIDER = jnp.array([1.0, 2.0, 3.0])


def matrix(name, *shape, loc=0.0, scale=1.0):
    return numpyro.sample(name, dist.Normal(loc, scale).expand(shape).to_event(len(shape)))


def scores(loadings, y, between=None):
    """Factors with scores of twelve persons on four items."""
    z = matrix("z", 12, 3)
    mean = (z if between is None else z + z @ between) @ loadings.T
    numpyro.sample("y", dist.Normal(mean, 0.5).to_event(2), obs=jnp.outer(y, jnp.arange(1.0, 5.0)))


def index_by_index(x, y):
    loadings, z = matrix("w", 4, 3, scale=WIDER), matrix("z", 12, 3)
    mean = sum(jnp.outer(z[:, k], loadings[:, k]) for k in range(3))
    numpyro.sample("y", dist.Normal(mean, 0.5).to_event(2), obs=jnp.outer(y, jnp.arange(1.0, 5.0)))


def each_datum(x, y):
    observe(matrix("a", 12) * matrix("b", 12) ** 3, y)


def in_a_state_space(x, y):
    """States that a full matrix moves on, of which only the read-out's priors tell one from another."""
    noise, move, out = matrix("z", 12, 3), matrix("F", 3, 3), matrix("c", 3, scale=WIDER)
    _, states = jax.lax.scan(lambda state, e: (move @ state + e,) * 2, jnp.zeros(3), noise)
    observe(states @ out, y)


def scaled_triangular(x, y):
    mean = number("s") * matrix("z", 12, 2) @ jnp.tril(matrix("w", 3, 2)).T
    numpyro.sample("y", dist.Normal(mean, 0.5).to_event(2), obs=jnp.outer(y, jnp.arange(1.0, 4.0)))


def product_of_three(x, y):
    observe((matrix("a", 2, scale=WIDER[:2]) * matrix("b", 2) * matrix("c", 2)).sum() * x, y)


def scaled_beside_units(x, y):
    """A number beside factors none of which may be exchanged, and units that may."""
    units = jnp.tanh(jnp.outer(x, vector("v", 2))) @ vector("u", 2)
    observe(units + number("s") * (matrix("a", 2, scale=WIDER[:2]) @ matrix("b", 2)) * x, y)


PATTERN = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 1, 1]])
LONE = [
    (lambda x, y: scores(matrix("w", 4, 3, scale=WIDER), y), (), ["±S1×±S1×±S1"]),
    (lambda x, y: scores(jnp.tril(matrix("w", 4, 3)), y), (), ["±S1×±S1×±S1"]),
    (lambda x, y: scores(jnp.asarray(PATTERN[:, [0, 1, 1]]) * matrix("w", 4, 3), y), (), ["±S1×±S2"]),
    (lambda x, y, pattern: scores(pattern * matrix("w", 4, 3), y), (PATTERN,), ["±S1×±S1×±S1"]),
    (index_by_index, (), ["±S1×±S1×±S1"]),
    (
        lambda x, y: observe(jnp.tanh(jnp.outer(x, matrix("w", 3, scale=WIDER))) @ matrix("v", 3), y),
        (),
        ["±S1×±S1×±S1"],
    ),
    # all factors at once, and no single one
    (lambda x, y: scores(matrix("w", 4, 3, scale=WIDER), y, jnp.ones((3, 3))), (), ["±S1"]),
    (lambda x, y: scores(matrix("w", 4, 3, loc=WIDER), y), (), []),
    (lambda x, y: observe(jnp.cumsum(matrix("w", 12)) * number("a"), y), (), ["±S1"]),
    # factors that meet only as data say, though none of these do
    *(
        (lambda x, y, between: scores(matrix("w", 4, 3, scale=WIDER), y, between), (data,), ["±S1"])
        for data in (np.eye(3, dtype=int), np.zeros((3, 3), int), np.zeros((3, 3)))
    ),
    (each_datum, (), ["±S1"]),
    # the index stands twice on a matrix that is never negated as a whole
    (in_a_state_space, (), ["±S1×±S1×±S1"]),
]


@pytest.mark.parametrize(("model", "more", "expected"), LONE)
@OF_EXCHANGES
def test_signs_of_indices_no_two_of_which_may_be_exchanged(model, more, expected):
    args = (X, Y, *more)
    found = find_symmetry(model, args)
    assert sorted(map(str, found.groups.values())) == expected
    assert not find_symmetry(model, args, signs=False).kinds
    if expected:
        assert check_symmetry(model, found, args).status == "passed"


def negations(symmetry, values):
    """The rank of what changes of sign negate, and of that together with sites as a whole."""
    ones, rows = {site: np.ones(np.shape(value)) for site, value in values.items()}, []
    identity = symmetry.identity()
    for name in (name for name, group in symmetry.groups.items() if group.signed):
        for index in np.ndindex(identity[name].sign.shape):
            sign = np.array(identity[name].sign)
            sign[index] = -1
            moved = symmetry.apply({**identity, name: identity[name]._replace(sign=jnp.asarray(sign))}, ones)
            rows.append({site: np.asarray(value) < 0 for site, value in moved.items()})

    def rank(*wholes):
        more = [{site: np.full(np.shape(value), site in sites) for site, value in values.items()} for sites in wholes]
        vectors = [np.concatenate([np.ravel(row[site]) for site in sorted(values)]) for row in (*rows, *more)]
        return len(reduced_basis([int("".join(map(str, vector.astype(int))), 2) for vector in vectors]))

    return rank


@pytest.mark.parametrize(
    ("model", "rank", "wholes"),
    [
        (scaled_triangular, 3, ["sz", "sw"]),
        (product_of_three, 3, ["ab", "ac"]),
        (scaled_beside_units, 5, ["sa", "sb", "uv"]),
    ],
)
@OF_EXCHANGES
def test_sites_are_negated_as_a_whole_beside_signs_of_their_indices(model, rank, wholes):
    found = find_symmetry(model, (X, Y))
    with jax.enable_x64(True):
        sites = trace(seed(model, 0)).get_trace(X, Y)
        values = {site: jnp.asarray(one["value"]) for site, one in sites.items() if not one["is_observed"]}
        rank_with = negations(found, values)
        # no sign twice, and none missing
        assert rank_with() == sum(group.size or 0 for group in found.groups.values() if group.signed) == rank
        assert rank_with(*wholes) == rank
        before = float(log_density(model, (X, Y), {}, values)[0])
        for k in range(4):
            moved = {**values, **found.apply(found.sample(jax.random.key(k)), values)}
            assert float(log_density(model, (X, Y), {}, moved)[0]) == pytest.approx(before, rel=1e-12)
    assert check_symmetry(model, found, (X, Y)).status == "passed"


@OF_EXCHANGES
def test_signs_of_units_and_of_numbers_beside_them():
    found = find_symmetry(both, (X, Y))
    # the two numbers may be exchanged as well
    assert text_of_group(found) == "S2 x ±S1 x ±S3"
    whole = {f.site: f.group for f in found.findings if f.axis == 0}
    assert whole == dict.fromkeys("ab", "S2 'component' and ±S1 'a'")
    assert "whole  1     S2 'component' and ±S1 'a'" in found.explain()
    assert not find_symmetry(both, (X, Y), signs=False).kinds


@pytest.mark.parametrize("in_one_vector", [False, True])
def test_units_on_many_places_have_their_signs(in_one_vector):
    """A residual stream stands on twelve places, of which not every set can be tried: of one site, or of twelve."""
    shapes = {"into": (3,), "out": (3,)} | {f"{name}{k}": (3, 3) for name in "ab" for k in range(5)}

    def model(x, y):
        if in_one_vector:
            w = unravel(vector("w", size))
        else:
            w = {name: matrix(name, *shape) for name, shape in shapes.items()}
        h = jnp.outer(x, w["into"])
        for k in range(5):
            h = h + jnp.tanh(h @ w[f"a{k}"]) @ w[f"b{k}"]
        observe(h @ w["out"], y)

    start, unravel = ravel_pytree({name: jnp.zeros(shape) for name, shape in shapes.items()})
    size = start.size

    assert text_of_group(find_symmetry(model, (X, Y))) == " x ".join(["±S3"] * 6)


def test_signs_of_many_groups_make_no_more_symmetries_than_those_of_few(monkeypatch):
    """A symmetry costs as much as it has sites: one for each group would take the square of their number."""

    def layers(count):
        def model(x, y):
            h = x[:, None]
            for k in range(count):
                into, out = number(f"in{k}"), vector(f"out{k}", 2)
                h = h + jnp.tanh(h * into * vector(f"w{k}", 2)) @ out[:, None]
            observe(h[:, 0], y)

        return model

    made, check = [], Symmetry.__post_init__

    def checked(symmetry):
        made.append(symmetry)
        check(symmetry)

    monkeypatch.setattr(Symmetry, "__post_init__", checked)
    counts = []
    for count in (2, 6):
        made.clear()
        assert text_of_group(find_symmetry(layers(count), (X, Y))).count("±S2") == count
        counts.append(len(made))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("seed", range(5))
def test_what_sets_of_parts_span_within_some_parts(seed):
    rng, parts = np.random.default_rng(seed), [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("d", 0), ("e", 0)]
    even = [frozenset(part for part in parts if rng.random() < 0.4) for _ in range(4)]
    some = frozenset(part for part in parts if rng.random() < 0.6)

    def spanned(sets):
        found = {frozenset()}
        for one in sets:
            found |= {one ^ other for other in found}
        return found

    assert spanned(Span.of(even).within(some)) == {one for one in spanned(even) if one <= some}


def test_a_member_whose_sign_is_that_of_all_its_units_has_none_of_its_own():
    def model(x, y):
        normal = dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2)
        w, v = numpyro.sample("w", normal), numpyro.sample("v", normal)
        members = jnp.einsum("xmu,mu->xm", jnp.tanh(jnp.einsum("x,mu->xmu", x, w)), v)
        observe(jax.nn.softplus(members).sum(1), y)

    assert text_of_group(find_symmetry(model, (X, Y))) == "(±S2)^2 x S2"


@pytest.mark.parametrize(
    ("rounding", "size", "times"),
    [
        (IN_DOUBLE, 1.0, 1e3),
        (IN_DOUBLE, 99.0, 1e3),
        # a thousandth of a nat is a change, unless near points allow more
        (IN_DOUBLE, 1e5 - 1.0, 10.0),
        (IN_DOUBLE, 1e12, 1.0),
        (IN_SINGLE, 1.0, 5.0),
        (IN_SINGLE, 100.0, 1.0),
    ],
)
def test_rounding_is_larger_far_out_and_no_change_is(rounding, size, times):
    allowed = rounding.allows(size)
    assert rounding.allows_far(allowed) == pytest.approx(times * allowed)


@pytest.mark.parametrize("tail", [lambda x: x, lambda x: 1e-4 * x, lambda x: 0.01 * jnp.sign(x)])
def test_signs_that_hold_near_the_prior_and_not_far_out_are_not_given(tail):
    def model(x, y):
        w, v = vector("w", 2), vector("v", 2)
        both = w[0] * w[1]
        numpyro.factor("tail", jnp.where(jnp.abs(both) > 100.0, tail(both), 0.0))
        observe(jnp.tanh(jnp.outer(x, w)) @ v, y)

    # the signs of all units together change nothing, of one alone they do
    assert text_of_group(find_symmetry(model, (X, Y))) == "S2 x ±S1"


@pytest.mark.parametrize("seed", range(6))
def test_signs_are_tried_where_a_function_that_saturates_shows_them(seed):
    def model(y):
        numpyro.sample("y", dist.Normal(jnp.tanh(500.0 * vector("w", 3).sum() ** 2), 1.0), obs=y)

    # at nine points of ten no sign of any index changes anything
    found = find_symmetry(model, (0.3,), rng_key=jax.random.key(seed))
    assert text_of_group(found) == "S3 x ±S1"


def scaled_units(shift=0.0):
    """Units that have no signs, under a scale that has one."""

    def model(x, y):
        units = jax.nn.relu(jnp.outer(x, vector("w", 3)))
        observe(number("s", loc=shift) * (units @ vector("v", 3)), y)

    return model


def scaled_odd_units(x, y):
    observe(number("s") * (jnp.tanh(jnp.outer(x, vector("w", 3))) @ vector("v", 3)), y)


def squared_sum(x, y):
    observe(vector("w", 3).sum() ** 2 * x, y)


def gates_of_one_kernel(x, y):
    """Of a kernel of two gates one may be negated with the scale, and not the whole kernel."""
    kernel = matrix("w", 6)
    gate, value = jnp.split(jnp.outer(x, kernel), 2, -1)
    observe(number("s") * ((jax.nn.sigmoid(gate) * value) @ jnp.exp(vector("v", 3))), y)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (scaled_units(), "S3 x ±S1"),
        (scaled_units(shift=1e-3), "S3"),
        # what all units' signs negate is no sign of its own
        (scaled_odd_units, "±S1 x ±S3"),
        (squared_sum, "S3 x ±S1"),
        (gates_of_one_kernel, "S3"),
    ],
)
def test_signs_of_whole_sites_whose_indices_may_be_exchanged(model, expected):
    found = find_symmetry(model, (X, Y))
    assert text_of_group(found) == expected
    assert check_symmetry(model, found, (X, Y)).status == "passed"


@pytest.mark.parametrize(
    ("function", "is_even"),
    [
        (lambda a: jnp.where((a < -0.3) | (a > 0.3), a**2, 1.0), True),
        (lambda a: jnp.where((a < -0.3) | (a > 0.301), a**2, 1.0), False),
        (lambda a: jnp.where(jnp.abs(a) > 0.3, 2.0, 1.0), True),
        (lambda a: jnp.where(jnp.abs(a) > 0.3, 1.0, 1.0), False),
    ],
)
def test_signs_of_what_is_constant_about_a_point(function, is_even):
    """Where doubling a value shows nothing, it does elsewhere."""

    def model(x, y):
        observe(function(numpyro.sample("a", dist.Uniform(-1.0, 1.0))) * x, y)

    assert bool(find_symmetry(model, (X, Y)).groups) == is_even


def test_a_whole_site_moves_with_draws_in_front():
    symmetry = Symmetry({"a": (Whole("s"),), "b": (Whole("s"), None)}, kinds={"s": "signed"})
    values = {"a": RNG.normal(size=(2, 5)), "b": RNG.normal(size=(2, 5, 3)), "c": np.ones(2)}
    bound = symmetry.bind({"a": 0.0, "b": np.zeros(3)})
    assert bound.sizes == {"s": 1}
    assert bound.log_order() == pytest.approx(np.log(2))
    element = bound.sample(jax.random.key(1), (2, 5))
    moved = bound.apply(element, values)
    sign = np.asarray(element["s"].sign)
    assert {-1, 1} == set(sign.ravel())
    np.testing.assert_allclose(moved["a"], sign[..., 0] * values["a"], rtol=1e-6)
    np.testing.assert_allclose(moved["b"], sign * values["b"], rtol=1e-6)
    assert moved["c"] is values["c"]


def test_the_plain_view_gives_a_whole_site_an_axis_and_takes_it_back():
    symmetry = Symmetry({"a": (Whole("s"),), "b": (Whole("s"), "u")}, kinds={"s": "signed"})
    values = {"a": RNG.normal(size=(4,)), "b": RNG.normal(size=(4, 3))}
    bound = symmetry.bind({"a": 0.0, "b": np.zeros(3)})
    assert not bound.is_plain
    view = PlainView.of(bound, {"a": 0.0, "b": np.zeros(3)})
    assert view.symmetry.is_plain
    opened = view.open(values)
    assert {name: value.shape for name, value in opened.items()} == {"a": (4, 1), "b": (4, 1, 3)}
    for site, value in view.close(opened).items():
        np.testing.assert_array_equal(value, values[site])
    for plain in (view.symmetry.sample(jax.random.key(k)) for k in range(3)):
        moved, expected = view.symmetry.apply(plain, opened), bound.apply(view.element(plain), values)
        for site, value in view.close(moved).items():
            np.testing.assert_allclose(value, expected[site], rtol=1e-6)


def test_a_whole_site_is_refused_where_it_makes_no_sense():
    with pytest.raises(SymmetryError, match="'b': Whole stands before its own axes"):
        Symmetry({"b": (None, Whole("s"))})
    with pytest.raises(SymmetryError, match="Whole site 'a' has size 1, but group 's' has size 3"):
        Symmetry({"b": ("s",), "a": (Whole("s"),)}).bind({"a": 0.0, "b": np.zeros(3)})


def inside(first, second):
    """How many entries of which both hold."""
    return jnp.where(first & second, 1.0, 0.0).sum()


def positive_part(x):
    """The zeros are an array: a constant as large as x."""
    return jnp.where(x > 0.0, x, jnp.zeros_like(x))


def any_of(x):
    return (x * jnp.ones(2) > 0.0).any()


def each_of(x):
    """A truth for each of three columns."""
    return jnp.broadcast_to(any_of(x), (3,))


def many(function, x):
    """A sum of nine terms."""
    return sum(function(k * x) for k in range(1, 10))


def centred(x):
    """Less the mean of each column."""
    return x - x.mean(0)


def along_rows(positive, negative):
    """One of two by the sign of the first, compared before it is broadcast."""
    column = positive * jnp.ones((2, 1))
    return jnp.where(column > 0.0, column, negative * jnp.ones((2, 1)) * jnp.ones((2, 3)))


def picked(x):
    return (x * jnp.ones(3))[np.array([2, 0])]


def masked(x):
    return jnp.where(np.array([True, False]), x, 0.0)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a, b, x: (a * b * x) ** 2, [{0}, {1}]),
        (lambda a, b, x: a * b, [{0, 1}]),
        (lambda a, b, x: a + b, []),
        (lambda a, b, x: (a + b) ** 2, [{0, 1}]),
        (lambda a, b, x: jnp.abs(a) + jnp.cos(b), [{0}, {1}]),
        (lambda a, b, x: (a + 0.0) ** 2 + jnp.maximum(b, 0.0), [{0}]),
        (lambda a, b, x: jnp.stack([a, b]).sum() ** 2, [{0, 1}]),
        (lambda a, b, x: jnp.where(x > 0, a, b) ** 2, [{0, 1}]),
        (lambda a, b, x: jnp.where(a > 0, b, 2 * b) ** 2, [{1}]),
        (lambda a, b, x: (a / b) ** 3 * b, [{1}]),
        (lambda a, b, x: (a / b) ** 3 * a, [{0}]),
        (lambda a, b, x: a**2.0 + b**2.5, [{0}]),
        (lambda a, b, x: jnp.power(a, jnp.array([3.0, 3.0])).sum() * b, [{0, 1}]),
        (lambda a, b, x: jnp.power(a, jnp.array([3.0, 1.0])).sum() * b, []),
        (lambda a, b, x: a.astype(bool).astype(float) * b**2, [{0}, {1}]),
        (lambda a, b, x: jax.lax.fori_loop(0, 3, lambda k, s: jnp.tanh(s) * x, a) * b, [{0, 1}]),
        (lambda a, b, x: jax.lax.while_loop(lambda s: s < 5.0, lambda s: s + 1.0, a) + b**2, [{1}]),
        # how long it runs depends on the sign, what it computes does not
        (lambda a, b, x: jax.lax.while_loop(lambda s: s < 5.0, lambda s: 2 * s, a) ** 2 * b**2, [{1}]),
        (lambda a, b, x: jnp.linalg.cholesky(jnp.eye(2) + a**2).sum() + b**2, [{0}, {1}]),
        (lambda a, b, x: jnp.linalg.slogdet(a * jnp.array([[1.0, 2.0], [3.0, 5.0]]))[1] * b**2, [{0}, {1}]),
        (lambda a, b, x: jnp.linalg.solve(jnp.eye(2) + a**2, b * jnp.ones(2)).sum() * a, [{0, 1}]),
        (
            lambda a, b, x: (
                jax.lax.linalg.triangular_solve(
                    a * jnp.ones((2, 2)), b * jnp.ones((2, 1)), left_side=True, lower=True, unit_diagonal=True
                ).sum()
                ** 2
            ),
            [{1}],
        ),
        (lambda a, b, x: jnp.linalg.solve(a * jnp.eye(2), jnp.ones(2)).sum() * b, [{0, 1}]),
        (lambda a, b, x: jnp.zeros(2).at[0].set(a).sum() * b, [{0, 1}]),
        (lambda a, b, x: jnp.zeros(2).at[0].add(a).sum() * b, [{0, 1}]),
        (lambda a, b, x: jnp.arange(3.0).at[a.astype(int)].get(wrap_negative_indices=False) ** 2 * b**2, [{1}]),
        (lambda a, b, x: jnp.ones(2).at[0].set(a).at[:1].apply(jnp.exp)[0] * b**2, [{1}]),
        (lambda a, b, x: jnp.take(a * jnp.ones(2), np.array([0, 2])).sum() * b, [{0, 1}]),
        (lambda a, b, x: jnp.take(a * jnp.ones(2), np.array([0, 2]), mode="fill", fill_value=0).sum() * b, [{0, 1}]),
        (lambda a, b, x: jnp.take(a * jnp.ones(2), np.array([0, 2]), mode="fill", fill_value=1).sum() * b, []),
        (lambda a, b, x: (9 * a).astype(int) * b, [{0, 1}]),
        (lambda a, b, x: (9 * a).astype(np.uint8).astype(float) ** 2 * b**2, [{1}]),
        # a branch that a constant chooses
        (lambda a, b, x: jax.lax.cond(True, jnp.tanh, jnp.exp, a) * b, [{0, 1}]),
        (lambda a, b, x: jax.lax.switch(2, [jnp.tanh, jnp.exp, jnp.sin], a) * b, [{0, 1}]),
        (lambda a, b, x: jax.lax.cond(a > 0, jnp.tanh, jnp.exp, a) * b, []),
        (lambda a, b, x: jnp.arctan2(a, 1 + a**2) * b, [{0, 1}]),
        (lambda a, b, x: jnp.arctan2(x, a) * b**2, [{1}]),
        (lambda a, b, x: jax.lax.rem(a, 1 + a**2) * b, [{0, 1}]),
        (lambda a, b, x: jax.scipy.special.i1e(a) * b + jax.scipy.special.i0e(a), [{0, 1}]),
        (lambda a, b, x: jnp.zeros(2).at[0].add(a).at[1].subtract(b).sum() ** 2, [{0, 1}]),
        (lambda a, b, x: (a * jnp.ones(2)).at[0].multiply(x).sum() * b, [{0, 1}]),
        (lambda a, b, x: (a * jnp.ones(2)).at[0].multiply(b).sum() ** 2, [{0}]),
        (lambda a, b, x: jnp.prod(a * jnp.arange(1.0, 4.0)) * b, [{0, 1}]),
        (lambda a, b, x: jnp.prod(a * jnp.arange(1.0, 5.0)) * b**2, [{0}, {1}]),
        (lambda a, b, x: jnp.prod(a * jnp.ones((2, 0)), axis=0).sum() + b**2, [{0}, {1}]),
        (lambda a, b, x: a**2.5 * b, []),
        (lambda a, b, x: jnp.linalg.norm(a * jnp.array([[1.0, 2.0], [3.0, 5.0]]), "nuc") * b**2, [{0}, {1}]),
        (lambda a, b, x: jnp.linalg.svd(a * jnp.array([[1.0, 2.0], [3.0, 5.0]]))[0].sum() * b**2, [{1}]),
        (lambda a, b, x: jnp.polyval(a * jnp.arange(1.0, 4.0), x) * b, [{0, 1}]),
        (lambda a, b, x: jnp.polyval(jnp.ones(3), a) * b**2, [{1}]),
        # moved, repeated, put beside others where constants say
        (lambda a, b, x: jnp.tile(a * jnp.ones(2), 3).sum() * b, [{0, 1}]),
        (lambda a, b, x: (jnp.where(np.array([True, False]), a, b) ** 2).sum(), [{0}, {1}]),
        (lambda a, b, x: jnp.where(np.array([True, False]), a, b).sum() * b, [{0, 1}]),
        (lambda a, b, x: (jax.nn.sigmoid(jnp.pad(a * jnp.ones(2), 1)) - 0.5).sum() * b, [{0, 1}]),
        (lambda a, b, x: (jnp.pad(a * jnp.ones(2), 1, constant_values=1.0) - 1.0).sum() * b, []),
        (lambda a, b, x: (picked(jax.nn.relu(a)) - picked(jax.nn.relu(-a))).sum() * b, [{0, 1}]),
        (lambda a, b, x: (masked(jax.nn.relu(a)) - masked(jax.nn.relu(-a))).sum() * b, [{0, 1}]),
        # constants of which some are zero are none of them odd
        (lambda a, b, x: ((a * jnp.ones(2) + np.array([0.0, 1.0])) ** 2).sum() * b**2, [{1}]),
        # even, or odd, though made of what is neither
        (lambda a, b, x: inside(-1.0 <= a, a <= 1.0) * b**2, [{0}, {1}]),
        (lambda a, b, x: inside(-1.0 <= a, a < 1.0) * b**2, [{1}]),
        (lambda a, b, x: inside(-1.0 <= a, a <= 2.0) * b**2, [{1}]),
        (lambda a, b, x: inside(-1.0 <= a, b <= 1.0), []),
        (lambda a, b, x: inside(-x <= a, a <= x) * b**2, [{0}, {1}]),
        (lambda a, b, x: inside(0.0 <= a, a <= x) * b**2, [{1}]),
        (lambda a, b, x: inside(-b <= a, a <= b), []),
        (lambda a, b, x: inside(a * b <= 1.0, -a * b >= -1.0) * b**2, [{0, 1}]),
        (lambda a, b, x: inside(a * b <= 1.0, a * b >= -1.0), [{0}, {1}]),
        (lambda a, b, x: inside(-jnp.arange(3.0) <= a, a <= jnp.arange(3.0)) * b**2, [{0}, {1}]),
        (lambda a, b, x: inside(-jnp.arange(3.0) <= a, a <= jnp.arange(3.0)[::-1]) * b**2, [{1}]),
        (lambda a, b, x: jax.nn.softplus(a) + jax.nn.softplus(-a) + jax.nn.softplus(b), [{0}]),
        (lambda a, b, x: (x * a + 2 * jax.nn.softplus(-x * a)) * b**2, [{0}, {1}]),
        (lambda a, b, x: (x * a + 3 * jax.nn.softplus(-x * a)) * b**2, [{1}]),
        (lambda a, b, x: (jax.nn.relu(a) - jax.nn.relu(-a)) * b, [{0, 1}]),
        (lambda a, b, x: jnp.clip(a, -2.0, 2.0) * b, [{0, 1}]),
        (lambda a, b, x: jnp.clip(a, -2.0, 2.001) * b, []),
        (lambda a, b, x: jnp.minimum(jnp.maximum(-1.0, a), 1.0) * b, [{0, 1}]),
        (lambda a, b, x: jnp.maximum(jnp.minimum(1.0, a), -1.0) * b, [{0, 1}]),
        (lambda a, b, x: jnp.clip(a, 1.0, -1.0) * b**2, [{0}, {1}]),
        # nothing but zero is between them
        (lambda a, b, x: jnp.abs(jax.nn.relu(jnp.minimum(a, -1.0))) * b, [{0}, {1}]),
        (lambda a, b, x: jnp.clip(a, 1.0, 0.0) * b * x, [{0}, {1}]),
        (lambda a, b, x: jax.lax.clamp(-1.0, a, 1.0) * b, [{0, 1}]),
        (lambda a, b, x: (jax.nn.relu6(a + 3) - 3) * b, [{0, 1}]),
        (lambda a, b, x: (jax.nn.relu6(a + 3) - 3.001) * b, []),
        (lambda a, b, x: (jax.nn.sigmoid(a * jnp.ones((2, 3)))[0] - 0.5).sum() * b, [{0, 1}]),
        (lambda a, b, x: (jax.nn.sigmoid(a) - 0.501) * b, []),
        (lambda a, b, x: (jnp.split(jax.nn.sigmoid(a * jnp.ones(4)), 2)[0] - 0.5).sum() * b, [{0, 1}]),
        (lambda a, b, x: centred(jax.nn.sigmoid(a * jnp.arange(6.0).reshape(3, 2)))[0, 1] * b, [{0, 1}]),
        (
            lambda a, b, x: (jax.nn.sigmoid(a * jnp.arange(3.0)) - jax.nn.sigmoid(a * jnp.ones(3)).mean())[0] * b,
            [{0, 1}],
        ),
        (lambda a, b, x: (1 - jax.scipy.special.erfc(a)) * b, [{0, 1}]),
        # named, or put elsewhere, and otherwise as it is
        (lambda a, b, x: checkpoint_name(jax.device_put(jnp.tanh(a)), "here") * b, [{0, 1}]),
        (lambda a, b, x: jax.nn.hard_tanh(checkpoint_name(a, "here")) * b, [{0, 1}]),
        (lambda a, b, x: jnp.tanh(a) + jnp.tanh(-a) + jnp.clip(b, -1, 1) + jnp.clip(-b, -1, 1), [{0}, {1}]),
        # put together from pieces
        (lambda a, b, x: jax.nn.hard_tanh(a) * b, [{0, 1}]),
        (lambda a, b, x: jax.nn.hard_tanh(jax.nn.hard_tanh(a) * 1.5) * b, [{0, 1}]),
        (lambda a, b, x: jax.nn.hard_tanh(a + b) * (a - 2 * b), [{0, 1}]),
        (lambda a, b, x: jax.nn.hard_tanh(a + b + x) * (a - 2 * b), []),
        (lambda a, b, x: jax.nn.hard_tanh(x * a + b + b * x**2) * (a - 2 * b), [{0, 1}]),
        (lambda a, b, x: jnp.where(a > 1.0, 1.0, jnp.where(a < -1.001, -1.0, a)) * b, []),
        (lambda a, b, x: jnp.where(a > 0.0, a, -a) * b**2, [{0}, {1}]),
        (lambda a, b, x: jnp.where(a >= 0.0, a, -a) * b**2, [{0}, {1}]),
        (lambda a, b, x: jnp.where(a > 0.0, a, -1.001 * a) * b**2, [{1}]),
        (lambda a, b, x: jnp.where(jnp.abs(a) > x, a - jnp.sign(a) * x, 0.0) * b, [{0, 1}]),
        (lambda a, b, x: jnp.where(a > 0.5, a - 0.5, jnp.where(a < -0.5, a + 0.5, 0.0)) * b, [{0, 1}]),
        (lambda a, b, x: jnp.where(a > 0.5, a - 0.5, jnp.where(a < -0.5, a + 0.6, 0.0)) * b, []),
        (lambda a, b, x: jnp.where(a < 0.5, jnp.where(a < -0.5, a + 0.5, 0.0), a - 0.5) * b, [{0, 1}]),
        (lambda a, b, x: (jnp.heaviside(a, 0.5) - 0.5) * b, [{0, 1}]),
        (lambda a, b, x: (jnp.heaviside(a, 0.4) - 0.5) * b, []),
        (lambda a, b, x: (inside(a == 1.0, a > 0.0) + inside(a == -1.0, a < 0.0)) * b**2, [{0}, {1}]),
        (lambda a, b, x: (inside(a == 1.0, a > 0.0) + inside(a == -1.0, a < 2.0)) * b**2, [{0}, {1}]),
        (lambda a, b, x: (inside(a == 1.0, a > 0.0) + inside(a == -1.0, a > 0.0)) * b**2, [{1}]),
        (lambda a, b, x: inside(a == 1.0, a == -1.0) * b, [{0}, {1}]),
        (lambda a, b, x: inside((a > 1.0) | (a < -1.0), x > 0.0) * b**2, [{0}, {1}]),
        (lambda a, b, x: inside(~(a > 1.0), ~(a < -1.0)) * b**2, [{0}, {1}]),
        (lambda a, b, x: inside(~(a > 1.0), ~(a < -2.0)) * b**2, [{1}]),
        (lambda a, b, x: along_rows(a, -a).sum() * b**2, [{0}, {1}]),
        (lambda a, b, x: along_rows(a, -2 * a).sum() * b**2, [{1}]),
        (lambda a, b, x: jnp.where(jnp.isfinite(x + a) == jnp.isfinite(x - a), 1.0, 2.0) * b**2, [{0}, {1}]),
        (lambda a, b, x: jnp.where(jnp.isfinite(x + a) == jnp.isfinite(x - 2 * a), 1.0, 2.0) * b**2, [{1}]),
        (lambda a, b, x: (jnp.clip(jnp.clip(a, -2, 2), -1, 1) - jnp.clip(a, -1, 1)) * b + b**2, [{0}, {1}]),
        (lambda a, b, x: jnp.where(a + a * b == 0.0, a, 0.0) ** 2, [{0}]),
        # truths of which nothing is known but that they are truths
        (lambda a, b, x: (inside(any_of(a), any_of(a)) - inside(any_of(a), True)) * b + b**2, [{0}, {1}]),
        (lambda a, b, x: (inside(each_of(a), each_of(a)) - inside(each_of(a), True)) * b + b**2, [{0}, {1}]),
        (lambda a, b, x: (inside(any_of(a), any_of(b)) - inside(any_of(a), True)) * b**2, []),
        # nothing is larger than itself, or than infinity
        (lambda a, b, x: jnp.where(a > a, 1.0, jnp.tanh(a)) * b, [{0, 1}]),
        (lambda a, b, x: jnp.where(a > jnp.inf, 1.0, jnp.tanh(a)) * b, [{0, 1}]),
        (lambda a, b, x: jnp.where(jnp.where(x > 0.0, a, jnp.inf) > 1.0, 1.0, 0.0) * b**2, [{1}]),
        # too long to be multiplied out
        (lambda a, b, x: (many(jnp.exp, a) * many(jnp.cos, a) - many(jnp.cos, a) * many(jnp.exp, a)) * b, [{0}, {1}]),
        (lambda a, b, x: jnp.logaddexp(a * x, -a * x) * b**2, [{0}, {1}]),
        # each with a factor of its own sign in front
        (lambda a, b, x: b * jax.nn.softplus(a) - b * jax.nn.softplus(-a), [{0, 1}]),
        (lambda a, b, x: (b * x * jax.nn.softplus(a) - b * jax.nn.softplus(-a) * x) ** 2, [{0}, {1}]),
        (lambda a, b, x: ((a - x) ** 2 + (a + x) ** 2) * b**2, [{0}, {1}]),
        # of many places, too
        (lambda a, b, x: (positive_part(a * jnp.ones(2000)) - positive_part(-a * jnp.ones(2000))).sum() * b, [{0, 1}]),
        # no density is looked at where a value is infinite
        (lambda a, b, x: jnp.where(jnp.isposinf(a), 0.0, jnp.tanh(a)) * b, [{0, 1}]),
        (lambda a, b, x: jnp.where(a < jnp.inf, jnp.tanh(a), 0.0) * b, [{0, 1}]),
        (lambda a, b, x: jax.nn.softplus(a * jnp.ones(2)).sum() - jax.nn.softplus(-a * jnp.ones(3)).sum(), [{1}]),
    ],
)
def test_parities(function, expected):
    jaxpr = jax.make_jaxpr(function)(1.0, 2.0, 3.0)
    found = even_sets(jaxpr, [True, True])
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
    # whatever is claimed holds
    for sites in found:
        a, b, x = map(jnp.asarray, (1.3, 0.7, 0.4))
        negated = function(-a if 0 in sites else a, -b if 1 in sites else b, x)
        np.testing.assert_allclose(negated, function(a, b, x), rtol=1e-6)
    assert even_sets(jaxpr, [False, False]) == []


# of two arrays of 2 and 4 columns, put end to end; and of four, put end to end both ways
COLUMNS, BOTH = [(1, (2, 4))], [(0, (1, 2)), (1, (2, 4))]


def cell_of_gates(gates):
    """A recurrent cell whose kernel takes inputs and units put end to end, and makes gates put end to end."""

    def run(w, inputs):
        state, target = jnp.zeros((5, 2)), jnp.asarray(np.arange(5.0))
        for x in inputs:
            update, *candidates = gates(jnp.concatenate([x, state], axis=1) @ w)
            state = jax.nn.sigmoid(update) * state + jnp.tanh(sum(candidates))
        return [(state**2).sum() + (state[:, 0] * state[:, 1] * target).sum()]

    return run


def scanned_gates(w, x):
    """As `cell_of_gates`, its inputs multiplied beforehand, and its states read one by one, and all together."""

    def step(state, given):
        update, candidate = jnp.split(given + state @ w[1:], [2], axis=1)
        state = jax.nn.sigmoid(update[:, :1]) * state[:, :2] + jnp.tanh(candidate[:, :2])
        return jnp.pad(state, ((0, 0), (0, 0))), jnp.concatenate([update**2, candidate], axis=1)

    state, each = jax.lax.scan(step, jnp.zeros((5, 2)), x @ w[:1])
    return [(state**2).sum() + (each[:, :, :2].sum() * state[:, :1] * state[:, 1:]).sum()]


def ends_of_rows(w):
    return jax.lax.scan(lambda carry, row: (carry, jnp.concatenate([row[:1], row[5:]])), 0.0, w)[1]


def scaled_each(w, x):
    """A value times one number after another, put on top of each other by a loop."""
    return jax.lax.scan(lambda carry, number: (carry, w * number), 0.0, x[:, 0, 0])[1]


@pytest.mark.parametrize(
    ("function", "cuts"),
    [
        (scanned_gates, BOTH),
        (lambda w, x: [scaled_each(w[0], x)[:, :2].sum() ** 2 + scaled_each(w[1:, 2:], x)[:, 1].sum()], BOTH),
        # each by itself
        (lambda w, x: [(w[:, :2] ** 2).sum() + (w[:, 2:] ** 2).sum()], COLUMNS),
        (lambda w, x: [jnp.square(part).sum() for part in jnp.split(w, [2], axis=1)], COLUMNS),
        (lambda w, x: [jnp.square(jax.lax.dynamic_slice(w, (0, at), (3, 2))).sum() for at in (0, 9)], COLUMNS),
        (lambda w, x: [jax.lax.dynamic_slice(w, (0, at), (3, n)).sum() ** 2 for at, n in ((0, 2), (2, 4))], COLUMNS),
        (lambda w, x: [(row[:2].sum() ** 2 + row[2:].sum() ** 2) for row in w], COLUMNS),
        (lambda w, x: [(row[:2].sum() + row[2:].sum()) ** 2 for row in w], COLUMNS),
        # a column is of one of them; two of either are of both
        (lambda w, x: [column.sum() ** 2 for column in w.T], COLUMNS),
        (lambda w, x: [w[:, :2].sum() + (w[:, 2:] ** 2).sum()], COLUMNS),
        (lambda w, x: [w[:, 1:3].sum() ** 2 + (w[:, 3:] ** 2).sum()], COLUMNS),
        (lambda w, x: [w[:, ::2].sum() ** 2], COLUMNS),
        # flattened, and taken apart, into blocks of one part each, or of both
        (lambda w, x: [(w.T.reshape(3, 2, 3).sum((1, 2)) ** 2).sum()], COLUMNS),
        (lambda w, x: [(w.T.reshape(2, 9).sum(1) ** 2).sum()], COLUMNS),
        (lambda w, x: [(w.T.reshape(18)[:6].sum() ** 2) + jnp.abs(w.T.reshape(18)[6:].sum())], COLUMNS),
        (
            lambda w, x: [jnp.square(w[:1, :2]).sum() + jnp.abs(w[1:, :2].sum() * w[1:, 2:].sum()) + w[:1, 2:].sum()],
            BOTH,
        ),
        (lambda w, x: [jnp.square(jnp.ones((4, 3)) @ w).sum()], BOTH),
        (lambda w, x: [jnp.square(w @ jnp.ones((6, 2))).sum()], BOTH),
        (lambda w, x: [jnp.square(w.T)[2:, :1].sum() + w[:, :2].sum() * w[1:, 2:].sum()], BOTH),
        (lambda w, x: [(w * w.sum(0)).sum() ** 2, (w[:1, :2] * w[1:, :2].sum()).sum()], BOTH),
        (lambda w, x: [(w[:, 2:] * jnp.concatenate([w[:, :2], w[:, :2]], axis=1)).sum() ** 2], BOTH),
        (lambda w, x: [jnp.concatenate([w[:1], w[1:] ** 3], axis=0)[:, 2:].sum() ** 2], BOTH),
        (lambda w, x: [jnp.concatenate([w, jnp.ones((3, 2))], axis=1)[1:, 2:6].sum() ** 2 + w[:1].sum() ** 2], BOTH),
        (lambda w, x: [jnp.concatenate([w[:, 2:], w], axis=1)[:, 1:6].sum() ** 2 * w[0, 0]], BOTH),
        (lambda w, x: [jnp.concatenate([w, w[:2]], axis=0)[2:, :2].sum() ** 2 + w[:1, 2:].sum() ** 2], BOTH),
        (lambda w, x: [jnp.concatenate([w, w[:, :0]], axis=1)[:1].sum() ** 2 + w[1:, :2].sum()], BOTH),
        (lambda w, x: [sum(row[2:].sum() ** 2 * jnp.cos(row[:2].sum()) for row in w)], BOTH),
        # cut in unlike ways, and row by row
        (lambda w, x: [(w * jnp.concatenate([w[:, 3:], w[:, :3]], axis=1)).sum() ** 2], COLUMNS),
        (lambda w, x: [(each[0] * each[1:].sum(0)).sum() for each in [ends_of_rows(w)]], BOTH),
        # written over slices: of constants, of each other
        (lambda w, x: [jnp.zeros((3, 6)).at[1].set(w[0])[1:2].sum() ** 2], COLUMNS),
        (lambda w, x: [jnp.zeros((4, 6)).at[:3].set(w)[:, :2].sum() ** 2, w[:, 2:].sum() ** 2], COLUMNS),
        (lambda w, x: [jnp.square(jnp.ones((3, 7)).at[:, :6].set(w)).sum() + w.sum() ** 2], COLUMNS),
        (lambda w, x: [(jnp.ones((3, 4)).at[:, 1:].set(w[:, 2:5]) @ jnp.ones(4)).sum(), jnp.square(w).sum()], COLUMNS),
        (lambda w, x: [w.at[:, :2].set(w[:, 2:4]).sum() ** 2 + w[:, 2:].sum()], COLUMNS),
        (lambda w, x: [w.at[:, :2].set(w[:, 2:4]).sum() ** 2], COLUMNS),
        (lambda w, x: [jax.lax.dynamic_update_slice(w, w[:, 4:], (0, 9)).sum() * w[:, :2].sum()], COLUMNS),
        (
            lambda w, x: [jax.lax.dynamic_update_slice(w, x[:3, :2, 0], (0, 9))[:, 4:].sum() * w[:, 2:].sum() ** 2],
            COLUMNS,
        ),
        (lambda w, x: [jax.lax.dynamic_update_slice(w, w[:1, :2], (2, 0)).sum() * w[:, :2].sum()], BOTH),
        # where it is written is no value
        (lambda w, x: [jax.lax.dynamic_update_slice(w, w[2:, :3] ** 2, (1, 1))[1, 1:4].sum() ** 2 * w[2, 3]], BOTH),
        (lambda w, x: [jnp.abs(w.at[1].set(1.0)).sum() + w.at[0].set(0.0)[:, 0].sum() ** 2], BOTH),
        (lambda w, x: [(w[1:2, 0:0].sum() + 1.0) * w[0, 0] ** 2], BOTH),
        (lambda w, x: [jax.lax.cond(w[0, 0] ** 2 > 0.1, lambda v: v**2, lambda v: jnp.abs(v), w).sum()], BOTH),
        (cell_of_gates(lambda z: (z[:, :2], z[:, 2:4], z[:, 4:])), BOTH),
        (cell_of_gates(lambda z: jnp.split(z, 3, axis=1)), [(0, (1, 2)), (1, (2, 2, 2))]),
        (cell_of_gates(lambda z: z.reshape(-1, 3, 2).swapaxes(0, 1)), [(0, (1, 2)), (1, (2, 2, 2))]),
        # moved about: turned round, spread, picked, put beside others, row by row
        (lambda w, x: [w[:, ::-1][:, :4].sum() ** 2 + w[:, :2].sum()], COLUMNS),
        (lambda w, x: [jnp.pad(w, ((1, 2), (1, 0)))[:, 1:3].sum() ** 2 + jnp.pad(w, 1)[:, 4:].sum()], COLUMNS),
        (lambda w, x: [jax.lax.pad(w, 0.0, ((-1, 0, 0), (0, 0, 1)))[:, :3].sum() * w[2, 0]], BOTH),
        (lambda w, x: [jax.lax.pad(w[:, :2], 2.0, ((0, 0, 0), (0, 1, 0)))[:, 2].sum() + w[0, 0] ** 2], BOTH),
        (lambda w, x: [w[:, np.array([0, 5, 1])][:, ::2].sum() ** 2 + w[:, np.array([3, 2])].sum()], COLUMNS),
        (lambda w, x: [w[np.array([0, 1, 2]), np.array([1, 3, 0])].sum() ** 2], BOTH),
        (lambda w, x: [jnp.take(w, np.array([1, 9]), 1, mode="fill", fill_value=0.0).sum() * w[0, 0]], BOTH),
        (lambda w, x: [jnp.take(w, np.array([1, 9]), 1, mode="fill", fill_value=1.0).sum() * w[0, 0]], BOTH),
        (lambda w, x: [jnp.take(w, np.array([9, 1]), 1, mode="fill", fill_value=1.0)[:, 1].sum() * w[0, 0]], BOTH),
        (lambda w, x: [jnp.tile(w, 2)[:, 6:8].sum() ** 2 + w[0, 0] * w[2, 1]], COLUMNS),
        (lambda w, x: [jnp.roll(w, 2, 1)[:, :4].sum() ** 2 + jnp.abs(jnp.tile(w, 2)[:, 7:9]).sum()], COLUMNS),
        (lambda w, x: [jnp.stack([w[0], w[1], jnp.ones(6)])[:2, :2].sum() ** 2 + w[2].sum() ** 2], BOTH),
        (lambda w, x: [jnp.square(jnp.stack([w[1], w[0]]).at[1].set(w[2])).sum() + w[0].sum() ** 2], BOTH),
        (lambda w, x: [jnp.where(np.arange(6) < 2, w, 0.0).sum() ** 2 * jnp.cos(w[0, 5])], BOTH),
        (lambda w, x: [jnp.where(jnp.abs(w) > 1.0, w, 0.5 * w)[:, :2].sum() ** 2], COLUMNS),
        (lambda w, x: [jnp.where(np.arange(6) < 2, w, w[:, ::-1])[:, 4:].sum() ** 2 + w[1, 1]], BOTH),
        (lambda w, x: [jnp.zeros((2, 2)).at[0, 0].set(w[0, 0]).at[1, 1].set(w[0, 5])[1].sum() * w[2, 5]], BOTH),
        (lambda w, x: [(jnp.diag(w[1]) @ w.T)[:2, 1:].sum() ** 2 + jnp.square(w[0]).sum()], BOTH),
        (lambda w, x: [(w[:, None] * w[None])[0, 1:].sum() ** 2 + w[0].sum() ** 2], BOTH),
        (lambda w, x: [(w.reshape(3, 2, 3)[:, 0, :2] * w[:, :2]).sum() + w.T.reshape(-1)[9:].sum() ** 2], BOTH),
        # of what is neither odd nor even, too
        (lambda w, x: [(jax.nn.sigmoid(w)[:, :2] - 0.5).sum() ** 2 + jnp.tanh(w[:, 2:]).sum()], COLUMNS),
        (
            lambda w, x: [(jax.nn.sigmoid(w)[:, 2:] - 0.5).sum() * (jax.nn.relu(w) - jax.nn.relu(-w))[:, 2:].sum()],
            COLUMNS,
        ),
        (lambda w, x: [(jax.nn.sigmoid(w)[:, :2] - 0.501).sum() ** 2], COLUMNS),
        (lambda w, x: [(part - 0.5).sum() ** 2 for part in jnp.split(jax.nn.sigmoid(w), [2], axis=1)], COLUMNS),
        (lambda w, x: [(part - 0.5).sum() ** 2 for part in jnp.split(jax.nn.sigmoid(w), [3], axis=1)], COLUMNS),
    ],
)
def test_parities_of_parts_are_those_that_trying_finds(function, cuts):
    found, tried = found_and_tried(function, cuts, np.random.default_rng(1).normal(size=(4, 5, 1)))
    assert found == tried


UNARY = [jnp.exp, jnp.tanh, jnp.abs, jax.nn.softplus, jax.nn.relu, jnp.negative, jnp.square, jnp.isfinite, jnp.cos]
BINARY = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.logaddexp]
COMPARED = [jnp.less, jnp.less_equal, jnp.greater, jnp.equal]


def random_function(seed):
    """A function of two numbers and one that is given: many are even, for what is done to a is done to -a too."""

    def function(a, b, x):
        rng = np.random.default_rng(seed)
        values, opposites = [a, b, x, jnp.asarray(1.5)], [-a, b, x, jnp.asarray(1.5)]

        def one(pick, done, some):
            first, second, third = (some[k] for k in pick)
            unary, binary, compared, which = done
            if which == 0:
                return UNARY[unary](first) * 1.0
            if which == 1:
                return BINARY[binary](first, second)
            return jnp.where(COMPARED[compared](first, second) & (third < 1.5), second, third)

        for _ in range(4):
            pick = rng.integers(len(values), size=3)
            done = rng.integers([len(UNARY), len(BINARY), len(COMPARED), 3])
            values, opposites = [[*some, one(pick, done, some)] for some in (values, opposites)]
        return BINARY[rng.integers(3)](values[-1], opposites[-1])

    return function


SIGNS = [(1, 1, 1), (-1, 1, 1), (1, -1, 1), (-1, -1, 1)]


def test_parities_of_random_functions_hold():
    rng, found = np.random.default_rng(0), Counter()
    # at every sign of both at once, for each operation is dispatched by itself
    points = rng.normal(size=(20, 3)) * 2
    turned = np.concatenate([points * signs for signs in SIGNS])
    with jax.enable_x64(True):
        for seed in range(100):
            function = random_function(seed)
            even = even_sets(jax.make_jaxpr(function)(1.0, 2.0, 3.0), [True, True])
            found.update(even)
            values = np.array(jax.vmap(function)(*turned.T)).reshape(len(SIGNS), -1) if even else []
            for sites in even:
                other = values[SIGNS.index((1 - 2 * (0 in sites), 1 - 2 * (1 in sites), 1))]
                np.testing.assert_allclose(other, values[0], rtol=1e-9, atol=1e-12, err_msg=f"seed {seed}")
    assert min(found[frozenset(sites)] for sites in ({0}, {1})) > 20


def on(prior):
    """Tanh units with weights under a prior."""

    def model(x, y):
        w = numpyro.sample("w", prior().expand([3]).to_event(1))
        observe(jnp.tanh(jnp.outer(x, w)) @ vector("v", 3), y)

    return model


def of_width(low, high, **options):
    """A uniform prior between bounds that are latent values."""
    return lambda: dist.Uniform(
        low * numpyro.sample("s", dist.HalfNormal(1.0)), high * numpyro.sample("t", dist.HalfNormal(1.0)), **options
    )


@pytest.mark.parametrize(
    ("prior", "signed"),
    [
        (lambda: dist.Uniform(-1.0, 1.0), True),
        (lambda: dist.Uniform(-1.0, 2.0), False),
        (lambda: dist.Uniform(0.0, 1.0), False),
        # what lies outside has a density too: supports are asked for themselves
        (lambda: dist.Uniform(-1.0, 1.0001, validate_args=False), False),
        (lambda: dist.TruncatedNormal(0.0, 1.0, low=-2.0, high=2.0), True),
        (lambda: dist.TruncatedNormal(0.1, 1.0, low=-2.0, high=2.0), False),
        (lambda: dist.TruncatedNormal(0.0, 1.0, low=-2.0), False),
        (lambda: (lambda s: dist.Uniform(-s, s))(numpyro.sample("s", dist.HalfNormal(1.0))), True),
        (of_width(-1.0, 1.0), False),
        (of_width(-1.0, 1.0, validate_args=False), False),
        (lambda: dist.Logistic(0.0, 1.0), True),
        (lambda: dist.Logistic(0.1, 1.0), False),
        (lambda: dist.Beta(2.0, 2.0), False),
    ],
)
def test_signs_of_sites_under_a_prior(prior, signed):
    found = find_symmetry(on(prior), (X, Y))
    assert list(map(str, found.groups.values())) == [f"{'±' * signed}S3"]
    assert check_symmetry(on(prior), found, (X, Y)).status == "passed"


def two_layers(params, x):
    return jnp.tanh(jnp.tanh(x @ params["a"]) @ params["b"]) @ params["c"]


def test_signs_of_units_whose_inputs_are_several_put_end_to_end():
    """No two of these inputs may be exchanged, so that labels alone do not say that they are several."""
    params = {name: RNG.normal(size=shape) for name, shape in {"a": (5, 3), "w": (6, 4), "v": (4, 2)}.items()}

    def outputs(p, x):
        hidden = jax.nn.sigmoid(x @ p["a"])
        return jnp.tanh(jnp.concatenate([jnp.cumsum(hidden, -1), hidden], -1) @ p["w"]) @ p["v"]

    found = find_symmetry(outputs, (params, RNG.normal(size=(7, 5))), argnum=0)
    assert {str(group) for group in found.groups.values()} == {"±S4"}
    assert set(found.axes) == {"w", "v"}


def test_permutations_are_proved_once_on_the_own_data(monkeypatch):
    """Signs are proved of groups whose permutations were: these are not tried again; wrong signs have to be seen."""
    tried, watched = Counter(), Counter()
    try_, watch = proofs._tried, proofs.control_gaps

    def trying(before, elements, place, *rest, **options):
        tried.update((label, place["a"].tobytes()) for label, one in elements if not has_signs(one))
        return try_(before, elements, place, *rest, **options)

    def watching(frozen, action, names, at, enough):
        watched.update(names)
        return watch(frozen, action, names, at, enough)

    monkeypatch.setattr(proofs, "_tried", trying)
    monkeypatch.setattr(proofs, "control_gaps", watching)
    rng = np.random.default_rng(1)
    params = {name: rng.normal(size=shape) for name, shape in {"a": (2, 4), "b": (4, 3), "c": (3, 1)}.items()}
    found = find_symmetry(two_layers, (params, rng.normal(size=(5, 2))), argnum=0)
    assert {group.size for group in found.groups.values()} == {3, 4}
    assert all(group.signed for group in found.groups.values())
    # a cycle, an exchange of two, and one at random
    assert max(tried.values()) == 3
    assert watched == dict.fromkeys(found.groups, 2)
