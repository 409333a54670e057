"""Former names of arguments, what is a number, what runs outside jit alone, and where warnings point."""

import functools
import inspect
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_symmetry as ns
from numpyro_symmetry import matching
from numpyro_symmetry.assignment import assign
from numpyro_symmetry.guides.inputs import as_levels
from numpyro_symmetry.symmetry.arguments import as_probability, is_floating, is_number, is_real
from numpyro_symmetry.symmetry.errors import renamed
from tests.support import public


@renamed(num_samples="num_draws")
def sized(*, num_draws=3):
    return num_draws


def test_a_former_name_is_taken_with_a_warning():
    with pytest.warns(FutureWarning, match=r"num_samples= of sized is now called num_draws=\.") as told:
        assert sized(num_samples=5) == 5
    assert told[0].filename == __file__
    assert sized() == 3
    with pytest.warns(FutureWarning), pytest.raises(TypeError, match="multiple values"):
        sized(num_samples=5, num_draws=5)


def test_a_warning_names_the_line_of_the_caller():
    rng = np.random.default_rng(0)
    draws = {"loc": rng.normal(size=(200, 3)), "z": rng.integers(0, 3, (200, 7))}
    with pytest.warns(ns.SymmetryWarning, match="'z' holds integers") as told:
        ns.rebase(draws, ns.Symmetry.mixture("loc"), null=False)
    assert told[0].filename == __file__


def test_numpyro_and_jax_may_lie_between():
    def model():
        numpyro.sample("y", dist.Normal(numpyro.sample("x", dist.Normal(0.0, 1.0)), 1.0), obs=0.5)

    guide = ns.AutoSymmetrized(AutoNormal(model), signs=False)
    with pytest.warns(ns.SymmetryWarning, match="No symmetry was found") as told:
        SVI(model, guide, optax.adam(1e-2), Trace_ELBO()).init(jax.random.key(0))
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("dtype", "number", "real", "floating"),
    [
        ("float32", True, True, True),
        ("bfloat16", True, True, True),
        ("float8_e4m3fn", True, True, True),
        ("int4", True, True, False),
        ("uint8", True, True, False),
        ("bool", True, True, False),
        ("complex64", True, False, False),
        # of integers, to NumPy
        ("timedelta64[D]", False, False, False),
        ("datetime64[D]", False, False, False),
        ("U3", False, False, False),
        ("O", False, False, False),
        ("V4", False, False, False),
    ],
)
def test_what_is_a_number(dtype, number, real, floating):
    found = jnp.dtype(dtype)
    assert (is_number(found), is_real(found), is_floating(found)) == (number, real, floating)
    assert not is_number(jax.random.key(0).dtype)


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, -0.1, math.nan, math.inf, True, "0.5", None, np.array([0.5])])
def test_a_probability_lies_between_zero_and_one(value):
    with pytest.raises(ValueError, match="level must be a probability between 0 and 1"):
        as_probability(value, "level")
    assert as_probability(np.float32(0.5), "level") == 0.5


def test_levels_of_quantiles_lie_from_zero_to_one():
    np.testing.assert_array_equal(as_levels([0.0, 0.5, 1.0]), [0.0, 0.5, 1.0])
    assert is_floating(as_levels([0, 1]).dtype)
    for value in (-0.1, [0.5, 1.1], math.nan):
        with pytest.raises(ValueError, match="from 0 to 1"):
            as_levels(value)
    with pytest.raises(TypeError, match="quantiles"):
        as_levels("median")


LOC = ns.Symmetry.mixture("loc")
VALUES = np.array([0.0, 1.0, 3.0])
DRAWS = VALUES + 0.1 * np.random.default_rng(0).normal(size=(4, 10, 3))
FULL = ns.FullGaussian({"loc": VALUES}, np.eye(3))


def three(y):
    numpyro.sample(
        "y", dist.Normal(numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([3]).to_event(1)).sum(), 1.0), obs=y
    )


def square(params, batch):
    return jnp.sum(params["loc"] ** 2) + 0.0 * jnp.sum(batch)


@functools.cache
def relabelled():
    return ns.rebase({"loc": DRAWS}, LOC, null=False)


@functools.cache
def scaling():
    def network(params, x):
        return jax.nn.relu(x * params["w"]) @ params["v"]

    given = {"w": jnp.array([1.0, 2.0, 3.0]), "v": jnp.ones(3)}, jnp.ones((4, 1))
    return ns.find_scaling(network, given, ns.find_symmetry(network, given, argnum=0))


# what is called -> a call with ``x``, three values, and ``draws`` of them, which are traced
OUTSIDE_JIT = {
    "match": lambda x, draws: ns.match({"loc": x}, {"loc": x}, LOC),
    "merge": lambda x, draws: ns.merge([{"loc": x}, {"loc": x}], LOC),
    "refine": lambda x, draws: ns.refine(square, {"loc": x}, {"loc": x}, LOC, np.zeros(20), batch_size=10),
    "nearest_transposition": lambda x, draws: matching.nearest_transposition({"loc": x}, LOC),
    "loss_barrier": lambda x, draws: ns.loss_barrier(lambda v: jnp.sum(v["loc"]), {"loc": x}, {"loc": x}),
    "assign": lambda x, draws: assign(x[:, None] * x),
    "FullGaussian.wasserstein": lambda x, draws: ns.FullGaussian({"loc": x}, np.eye(3)).wasserstein(FULL),
    "FullGaussian.apply": lambda x, draws: ns.FullGaussian({"loc": x}, np.eye(3)).apply(LOC, {"component": [1, 0, 2]}),
    "of_gaussian": lambda x, draws: ns.AutoSymmetrized.of_gaussian(
        three, ns.DiagonalGaussian({"loc": x}, {"loc": x + 1.0}), LOC
    ),
    "Reading draws": lambda x, draws: ns.rebase({"loc": draws}, LOC),
    "StephensCost": lambda x, draws: ns.rebase({"loc": DRAWS}, LOC, cost=ns.StephensCost(jnp.ones((4, 10, 5, 3)) * x)),
    "AllocationCost": lambda x, draws: ns.rebase(
        {"loc": DRAWS}, LOC, cost=ns.AllocationCost(jnp.zeros((4, 10, 5), int) + x[0].astype(int))
    ),
    "symmetrized": lambda x, draws: relabelled().symmetrized(jax.random.key(x[0].astype(int))),
    "modes": lambda x, draws: ns.diagnostics.modes({"loc": draws}, LOC),
    "compare": lambda x, draws: ns.compare({"loc": draws}, {"loc": DRAWS}, LOC),
    "distinct_units": lambda x, draws: ns.diagnostics.distinct_units(draws),
    "A partition": lambda x, draws: ns.diagnostics.coclustering(draws.astype(int)),
    "prior_conformity": lambda x, draws: ns.diagnostics.prior_conformity(relabelled(), three, (x[0],)),
    "log_evidence": lambda x, draws: ns.log_evidence({"loc": draws}, three, (0.5,)),
    "elbo_bounds": lambda x, draws: ns.AutoSymmetrized(AutoNormal(three), LOC).elbo_bounds(jax.random.key(0), {}, x[0]),
    "to_arviz": lambda x, draws: ns.to_arviz(jax.random.key(0), AutoNormal(three), {}, model_args=(x[0],)),
    "run_blackjax": lambda x, draws: ns.run_blackjax(jax.random.key(x[0].astype(int)), three, model_args=(0.5,)),
    "A search that a key steers": lambda x, draws: ns.rebase(
        {"loc": DRAWS}, LOC, rng_key=jax.random.key(x[0].astype(int))
    ),
    "find_symmetry": lambda x, draws: ns.find_symmetry(three, (x[0],)),
    "check_symmetry": lambda x, draws: ns.check_symmetry(three, LOC, (x[0],)),
    "find_activations": lambda x, draws: ns.find_activations(square, ({"loc": x}, x), LOC),
    "find_scaling": lambda x, draws: ns.find_scaling(square, ({"loc": x}, x), LOC),
    "balanced": lambda x, draws: scaling().balanced({"w": x, "v": x}),
}
# array that is read in NumPy -> a call with ``x``, three values that are traced
READ = {
    "Site 'loc' of the reference": lambda x: ns.rebase({"loc": DRAWS}, LOC, reference={"loc": x}),
    "Site 'loc'": lambda x: relabelled().undo({"loc": DRAWS + x}),
    "Invariant 'sum'": lambda x: ns.report(relabelled(), invariants={"sum": DRAWS.sum(-1) + x[0]}),
    "loadings": lambda x: ns.traces.varimax(DRAWS[0, 0] + x),
    "weights": lambda x: matching.transport.barycenter([ns.DiagonalGaussian({"loc": VALUES}, {"loc": VALUES})] * 3, x),
}
# this names the cost that it is of, and these the function that they serve
IN_OTHER_WORDS = {"cost", "{what}("}

# made before anything is traced
BEFORE = {"symmetrized": relabelled, "prior_conformity": relabelled, "balanced": scaling}


@pytest.mark.parametrize("name", OUTSIDE_JIT)
def test_what_needs_numbers_says_so_under_vmap(name):
    BEFORE.get(name, int)()
    traced = r"cannot run under jit, vmap or grad: \S.* (is|are) traced\. "
    with pytest.raises(TypeError, match=rf"^{re.escape(name)}.* {traced}"):
        jax.vmap(lambda x, draws: OUTSIDE_JIT[name](x, draws) and 0.0)(np.stack([VALUES] * 2), np.stack([DRAWS] * 2))


@pytest.mark.parametrize("name", OUTSIDE_JIT)
def test_what_needs_numbers_says_so_under_jit_of_constants(name):
    """What is known is known under jit, but nothing that is computed of it."""
    BEFORE.get(name, int)()
    with pytest.raises(TypeError, match="needs numbers and cannot run under jit"):
        jax.jit(lambda scale: OUTSIDE_JIT[name](VALUES, DRAWS) and scale)(1.0)


@pytest.mark.parametrize("name", READ)
def test_arrays_that_are_traced_are_named_where_numbers_are_read(name):
    relabelled()
    with pytest.raises(TypeError, match=rf"^{name} is traced, under jit, vmap or grad, and its numbers are needed"):
        jax.vmap(lambda x: READ[name](x) and 0.0)(np.stack([VALUES] * 2))


def test_all_that_needs_numbers_has_a_row():
    source = "".join(path.read_text() for path in Path(ns.__file__).parent.rglob("*.py"))
    named = set(re.findall(r"\brefuse_tracers\(\s*f?[\"']?([^\"',:)]+)", source)) - {"what"}
    assert named - IN_OTHER_WORDS <= set(OUTSIDE_JIT)
    assert len(named) > 20


OF_LOC = {"loc_auto_loc": VALUES, "loc_auto_scale": np.ones(3)}
# what runs models -> a call with one, and with a key
RUNS = {
    "find_symmetry": lambda model, key: ns.find_symmetry(model, (0.5,)),
    "check_symmetry": lambda model, key: ns.check_symmetry(model, LOC, (0.5,)),
    "rebase": lambda model, key: ns.rebase({"loc": DRAWS}, model=model, model_args=(0.5,)),
    "rebase, symmetry known": lambda model, key: ns.rebase({"loc": DRAWS}, LOC, model=model, model_args=(0.5,)),
    "prior_conformity": lambda model, key: ns.diagnostics.prior_conformity(relabelled(), model, (0.5,)),
    "log_evidence": lambda model, key: ns.log_evidence({"loc": DRAWS}, model, (0.5,)),
    "log_evidence of a guide": lambda model, key: ns.log_evidence((AutoNormal(model), OF_LOC), model_args=(0.5,)),
    "run_blackjax": lambda model, key: ns.run_blackjax(key, model, (0.5,)),
    "to_arviz": lambda model, key: ns.to_arviz(key, AutoNormal(model), OF_LOC, (0.5,)),
    "compare": lambda model, key: ns.compare({"loc": DRAWS}, (AutoNormal(model), OF_LOC), LOC, model_args=(0.5,)),
    "setup": lambda model, key: ns.AutoSymmetrized(AutoNormal(model)).setup(key, 0.5),
    "elbo_bounds": lambda model, key: ns.AutoSymmetrized(AutoNormal(model), LOC).elbo_bounds(key, OF_LOC, 0.5),
    "AutoConditional": lambda model, key: numpyro.handlers.seed(ns.AutoConditional(AutoNormal(model)), key)(0.5),
    "AutoUnitNormal": lambda model, key: numpyro.handlers.seed(ns.AutoUnitNormal(model), key)(0.5),
}


@pytest.mark.parametrize("error", [AssertionError, AttributeError, RuntimeError, TypeError, ValueError])
@pytest.mark.parametrize("name", RUNS)
def test_what_a_model_raises_of_its_own_is_left_as_it_is(name, error):
    def model(y):
        numpyro.sample("loc", dist.Normal().expand([3]).to_event(1))
        raise error("said by the model")

    with pytest.raises(error, match="^said by the model") as told:
        RUNS[name](model, jax.random.key(0))
    assert told.type is error


# whatever weighs K permutations -> a call with K of them
OF_PERMUTATIONS = {
    "mutual_information": lambda count: ns.mutual_information(
        jnp.zeros((3, 3)), estimator="infonce", rng_key=jax.random.key(0), num_permutations=count
    ),
    "AutoSymmetrized": lambda count: ns.AutoSymmetrized(AutoNormal(three), LOC, num_permutations=count),
    "AutoSymmetrized.elbo_bounds": lambda count: ns.AutoSymmetrized(AutoNormal(three), LOC).elbo_bounds(
        jax.random.key(0), {}, 0.5, num_permutations=count
    ),
    "log_evidence": lambda count: ns.log_evidence({"loc": DRAWS}, three, (0.5,), num_permutations=count),
}


@pytest.mark.parametrize(("count", "error"), [(0, ValueError), (-1, ValueError), (2.5, TypeError), (True, TypeError)])
@pytest.mark.parametrize("name", OF_PERMUTATIONS)
def test_a_number_of_permutations_is_said_to_count_the_identity(name, count, error):
    with pytest.raises(error, match=r"num_permutations must be .*counts the identity"):
        OF_PERMUTATIONS[name](count)


def test_all_that_takes_a_number_of_permutations_has_a_row():
    named = public.names() | {
        f"{name}.{method}": function
        for name, value in public.names().items()
        if inspect.isclass(value)
        for method, function in inspect.getmembers(value, inspect.isfunction)
        if not method.startswith("_")
    }
    made_by = {name: value.__init__ if inspect.isclass(value) else value for name, value in named.items()}
    taking = {
        name.removeprefix("numpyro_symmetry.")
        for name, value in made_by.items()
        if callable(value) and "num_permutations" in getattr(inspect.unwrap(value), "__annotations__", {})
    }
    assert taking == set(OF_PERMUTATIONS)
