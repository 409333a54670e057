"""Programs: what is compiled, how often, and that what is kept is told from what is not the same."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_symmetry import Symmetry, check_symmetry, find_symmetry
from numpyro_symmetry.models.programs import (
    DOUBLE,
    WIDENED,
    compiled,
    compiled_for_many,
    equations,
    program_hash,
    session_precision,
    traced,
)
from numpyro_symmetry.models.rewritten import evaluated
from tests.gallery import CASES

COMPILED = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration, **about: COMPILED.append(event) if event.endswith("backend_compile_duration") else None
)


def compilations(function, *args, **kwargs):
    # JAX compiles its own making of a key and of a zero when a process first asks for one
    jax.block_until_ready((jax.random.key(0), jnp.zeros(())))
    before = len(COMPILED)
    function(*args, **kwargs)
    return len(COMPILED) - before


# ---- of a model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "mlp-1-layer",
        "hmm-forward-scan",
        # numbers alone prove these, on data that are drawn afresh as well
        "factor-analysis-marginal",
        "fori-loop-over-units",
        "hmm-factorial",
        "mlp-flat-weights",
        "param-network",
        "plate-subsampled",
        # constants are gathered, and NumPyro would check parameters that are traced
        "gmm-full-covariance",
        "hmm-enum-3",
        "probabilistic-pca",
    ],
)
def test_a_model_is_compiled_once_however_many_data_it_is_tried_on(name):
    case = next(case for case in CASES if case.name == name)
    assert compilations(find_symmetry, case.model, case.args) <= 8
    assert compilations(find_symmetry, case.model, case.args) == 0


def test_other_data_of_the_same_shapes_compile_nothing():
    def asked(y, x):
        def model(y):
            loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
            numpyro.sample("y", dist.Normal(x * jnp.tanh(loc).sum(), 1.0).to_event(1), obs=y)

        return check_symmetry(model, Symmetry({"loc": ("unit",)}), (y,))

    y, x = np.random.default_rng(0).normal(size=(2, 7))
    first = asked(y, x)
    before = len(COMPILED)
    second = asked(2 * y, x + 1)
    assert len(COMPILED) == before
    # what the model closes over is an argument too, and not what it was before
    assert first.control_gap != second.control_gap


# ---- of a function ---------------------------------------------------------------------------------------------------


def run(function, *args, precision=DOUBLE):
    return compiled(traced(function, *args, precision=precision))(*args)


def test_constants_of_a_kept_program_are_its_own():
    x = np.linspace(0.0, 1.0, 5)

    def times(w):
        return lambda x: {"sum": (w * x).sum(), "sine": jnp.sin(w) + x}

    for w in (np.arange(5.0), np.ones(5), np.arange(5)):
        found = run(times(w), x)
        np.testing.assert_allclose(found["sum"], (w * x).sum(), rtol=1e-14)
        np.testing.assert_allclose(found["sine"], np.sin(w) + x, rtol=1e-14)
    other = np.arange(5.0) + 0.5
    assert compilations(run, times(other), x) == 0


def test_programs_are_told_apart():
    def of(function, *shape, precision=DOUBLE):
        return program_hash(traced(function, np.ones(shape), precision=precision))

    def twice(scale):
        return lambda x: jax.jit(lambda y: jax.nn.relu(y) * scale)(x)

    same = {of(lambda x: jnp.tanh(x).sum(), 3), of(lambda y: jnp.tanh(y).sum(), 3)}
    assert len(same) == 1
    assert "" not in same
    assert of(twice(2.0), 3) == of(twice(2.0), 3)
    others = [
        of(lambda x: jnp.tanh(x).sum(), 4),
        of(lambda x: jnp.tanh(x).sum(), 3, precision=WIDENED),
        of(lambda x: jnp.tanh(x).max(), 3),
        of(lambda x: jnp.tanh(x + 1.0).sum(), 3),
        of(lambda x: jnp.tanh(x + 2.0).sum(), 3),
        of(lambda x: jnp.tanh(x[:2]).sum(), 3),
        of(lambda x: jnp.tanh(x[1:]).sum(), 3),
        of(lambda x: jax.lax.fori_loop(0, 3, lambda k, y: y * x.sum(), 1.0), 3),
        of(lambda x: jax.lax.fori_loop(0, 3, lambda k, y: y + x.sum(), 1.0), 3),
        of(twice(2.0), 3),
        of(twice(3.0), 3),
    ]
    assert len(same | set(others)) == 1 + len(others)


def test_what_only_its_identity_tells_is_not_kept():
    def callback(number):
        shape = jax.ShapeDtypeStruct((), np.float64)
        return lambda x: jax.pure_callback(lambda y: np.asarray(y * number), shape, x)

    assert program_hash(traced(callback(2.0), 1.0, precision=DOUBLE)) == ""
    assert [float(run(callback(number), 1.5)) for number in (2.0, 3.0)] == [3.0, 4.5]


@pytest.mark.parametrize("count", [1, 3, 8])
def test_many_are_evaluated_as_one_by_one(count):
    def function(values, data):
        return {"a": values["w"] @ data, "k": values["k"] + 1, "s": jnp.linalg.cholesky(jnp.eye(2) * values["s"] ** 2)}

    rng = np.random.default_rng(0)
    values = {"w": rng.normal(size=(7, 2, 3)), "k": np.arange(7), "s": rng.normal(size=7)}
    data = rng.normal(size=3)
    one = {name: x[0] for name, x in values.items()}
    program = traced(function, one, data, precision=DOUBLE)
    found, each = compiled_for_many(program, count)(values, data), compiled(program)
    alone = [each({name: x[k] for name, x in values.items()}, data) for k in range(7)]
    for name, x in found.items():
        np.testing.assert_allclose(x, np.stack([one[name] for one in alone]), rtol=1e-14)


@pytest.mark.parametrize(("precision", "dtype"), [(DOUBLE, np.float64), (WIDENED, np.float64), (None, np.float32)])
def test_a_program_has_a_precision_of_its_own(precision, dtype):
    found = run(lambda x: jnp.sin(x) / 3, np.ones(2), precision=precision or session_precision())
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.sin(np.ones(2)) / 3, rtol=1e-15 if dtype == np.float64 else 1e-6)
    assert jnp.ones(1).dtype == jnp.float32


def _telling(x):
    @jax.jit
    def inner(x):
        jax.debug.print("inside {}", x.max())
        return jax.nn.sigmoid(x)

    jax.debug.print("sum {}", x.sum())
    jax.debug.callback(print, jnp.cos(x))
    return inner(2.0 * x)


def _writing(x):
    held = jax.new_ref(jnp.zeros_like(x))
    held[...] = jnp.sin(x)
    return held[...]


@pytest.mark.parametrize("precision", [DOUBLE, WIDENED, None])
@pytest.mark.parametrize("function", [_telling, _writing])
def test_what_a_program_does_beside_its_results_is_done_and_nothing_is_printed(function, precision, capfd):
    x = np.linspace(-1.0, 1.0, 3, dtype=np.float32)
    precision = precision or session_precision()
    program = traced(function, x, precision=precision)
    found, many = compiled(program)(x), compiled_for_many(program, 2)(x[None])[0]
    jax.effects_barrier()
    assert capfd.readouterr().out == ""
    expected = {_telling: 1.0 / (1.0 + np.exp(-2.0 * x)), _writing: np.sin(x)}[function]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(many, expected, rtol=1e-6)
    # two functions to print are never the same, and tell no programs apart
    assert program_hash(program) == program_hash(traced(function, x, precision=precision)) != ""


def test_convolutions_are_compiled_well(monkeypatch):
    options = []
    compile_ = jax.stages.Lowered.compile

    def heard(self, compiler_options=None, **kwargs):
        options.append(compiler_options)
        return compile_(self, compiler_options, **kwargs)

    monkeypatch.setattr(jax.stages.Lowered, "compile", heard)
    run(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"), np.ones((1, 2, 4, 4)), np.ones((2, 2, 3, 3)))
    run(lambda x: jnp.cos(x) / 7, np.ones(3))
    assert options[0] is None
    assert options[1]


CONVOLUTIONS = {
    "few channels": ((2, 7, 6, 3), (3, 2, 3, 4), ("NHWC", "HWIO", "NHWC"), {}),
    "many": ((2, 7, 6, 3), (3, 2, 3, 20), ("NHWC", "HWIO", "NHWC"), {}),
    "channels first": ((2, 3, 7, 6), (4, 3, 3, 2), ("NCHW", "OIHW", "NCHW"), {}),
    "channels last of the result": ((2, 3, 7, 6), (4, 3, 3, 2), ("NCHW", "OIHW", "NHWC"), {}),
    "batch last": ((7, 6, 3, 2), (4, 3, 3, 2), ("HWCN", "OIHW", "HWNC"), {}),
    "one axis of places": ((2, 3, 9), (4, 3, 3), ("NCH", "OIH", "NCH"), {"rhs_dilation": (2,)}),
    "one, of steps and gaps": (
        (2, 9, 3),
        (3, 3, 4),
        ("NHC", "HIO", "NHC"),
        {"window_strides": (2,), "padding": [(2, 1)]},
    ),
    "transposed": (
        (2, 5, 6, 3),
        (3, 2, 3, 4),
        ("NHWC", "HWIO", "NHWC"),
        {"lhs_dilation": (2, 3), "padding": [(1, 1), (2, 0)]},
    ),
    "three": ((2, 4, 5, 3, 2), (2, 3, 2, 2, 3), ("NDHWC", "DHWIO", "NDHWC"), {}),
    "none": ((2, 3), (3, 4), ("NC", "IO", "NC"), {}),
    "by channel": ((2, 6, 7, 6), (12, 1, 3, 2), ("NCHW", "OIHW", "NCHW"), {"feature_group_count": 6}),
    "by datum": ((4, 7, 6, 3), (3, 2, 3, 8), ("NHWC", "HWIO", "NHWC"), {"batch_group_count": 2}),
}


@pytest.mark.parametrize("precision", [DOUBLE, WIDENED], ids=["double", "widened"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_written_otherwise_is_the_same(name, precision):
    left, right, numbers, params = CONVOLUTIONS[name]
    params = {"window_strides": (1,) * (len(left) - 2), "padding": "VALID"} | params
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=left), rng.normal(size=right)

    def convolved(x, kernel):
        return jax.lax.conv_general_dilated(x, kernel, dimension_numbers=numbers, **params)

    with jax.enable_x64(True):
        expected = np.asarray(convolved(x, kernel))
    np.testing.assert_allclose(run(convolved, x, kernel, precision=precision), expected, rtol=0, atol=1e-13)
    # within a function that is called as well
    called = run(lambda x, kernel: 2 * jax.jit(jax.checkpoint(convolved))(x, kernel), x, kernel, precision=precision)
    np.testing.assert_allclose(called, 2 * expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: 1 - jax.nn.sigmoid(x), lambda x: 1 / (1 + np.exp(x))),
        (lambda x: 1.0 - (1.0 - jax.nn.sigmoid(x)), lambda x: 1 / (1 + np.exp(-x))),
        (lambda x: jnp.log1p(-jax.nn.sigmoid(x)), lambda x: -np.logaddexp(0, x)),
        (lambda x: jnp.log1p(jax.nn.sigmoid(x)), lambda x: np.log1p(1 / (1 + np.exp(-x)))),
        (lambda x: -jax.nn.sigmoid(x), lambda x: -1 / (1 + np.exp(-x))),
        (lambda x: 2 - jax.nn.sigmoid(x), lambda x: 2 - 1 / (1 + np.exp(-x))),
        (lambda x: 1 - (-jax.nn.sigmoid(x)), lambda x: 1 + 1 / (1 + np.exp(-x))),
    ],
)
def test_the_complement_of_a_probability_is_no_zero(function, expected):
    x = np.array([-100.0, -1.5, 0.0, 2.0, 40.0, 100.0])
    np.testing.assert_allclose(run(function, x, precision=DOUBLE), expected(x), rtol=1e-13)


def test_a_sum_over_shards_stays_within_the_map_that_names_their_axis():
    def summed(x):
        return jax.lax.psum(jax.nn.sigmoid(x), "shard")

    whole, x = jax.sharding.PartitionSpec(), np.array([-1.5, 0.0, 2.0])
    mapped = jax.shard_map(summed, mesh=jax.make_mesh((1,), ("shard",)), in_specs=whole, out_specs=whole)
    np.testing.assert_allclose(run(mapped, x, precision=DOUBLE), 1 / (1 + np.exp(-x)), rtol=1e-13)


@pytest.mark.parametrize("name", [name for name, case in CONVOLUTIONS.items() if 2 < len(case[0]) < 5 and not case[3]])
def test_convolutions_are_such_as_are_fast(name):
    left, right, numbers, _ = CONVOLUTIONS[name]

    def convolved(x, kernel):
        return jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers))

    body = jax.make_jaxpr(jax.jit(convolved))(jnp.zeros(left), jnp.zeros(right)).jaxpr
    written = jax.make_jaxpr(lambda *args: evaluated(body, [], args))(jnp.zeros(left), jnp.zeros(right))
    (found,) = [one for one in equations(written.jaxpr) if one.primitive.name == "conv_general_dilated"]
    assert tuple(found.params["dimension_numbers"]) == ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    assert max(found.invars[1].aval.shape[2:]) > 16


@pytest.mark.filterwarnings("ignore:No entry of the arrays")
def test_of_a_function_nothing_but_the_function_is_compiled():
    rng = np.random.default_rng(0)
    given = {"in": {"w": rng.normal(size=(3, 7)), "b": rng.normal(size=7) ** 2}, "out": rng.normal(size=(7, 2))}

    def network(given, x):
        return jnp.tanh(x @ given["in"]["w"] + given["in"]["b"]) @ given["out"] / 1.25

    assert compilations(find_symmetry, network, (given, np.ones((4, 3))), argnum=0) == 1
