"""What a program is read as: sites, plates, and what NumPyro and JAX keep to themselves."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro.infer.autoguide import AutoDiagonalNormal

from numpyro_symmetry import SymmetryError, UnsupportedGuideError
from numpyro_symmetry.models import compat, latent_of, observed_of, outline, trace_model
from numpyro_symmetry.models.fitted import _refuse_unconstrained
from numpyro_symmetry.models.sites import (
    axis_names,
    discrete_of,
    entrywise,
    is_improper,
    is_unconstrained,
    plate_dims,
    without_wrappers,
)
from numpyro_symmetry.models.trace import blaming_sites

KEY = jax.random.key(0)


class _StartsAtZero(dist.constraints.ParameterFreeConstraint):
    """One's own, written for JAX's arrays alone."""

    event_dim = 1

    def __call__(self, x):
        return x.at[..., 0].get() == 0.0


def model(y=None):
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    flat = numpyro.sample("flat", dist.ImproperUniform(dist.constraints.positive, (), ()).expand([3]).to_event(1))
    with numpyro.plate("rows", 4):
        kind = numpyro.sample("kind", dist.Bernoulli(0.5))
        numpyro.deterministic("mean", loc[0] + kind)
        numpyro.sample("y", dist.Normal(loc[kind] + flat.sum(), 1.0), obs=y)
    numpyro.factor("penalty", -loc.sum())


def test_sites_by_what_they_are():
    trace = trace_model(model, (jnp.zeros(4),), {}, KEY)
    assert list(latent_of(trace)) == ["loc", "flat", "kind"]
    assert list(observed_of(trace)) == ["y", "penalty"]
    assert discrete_of(trace) == ["kind"]
    assert [is_improper(trace[name]["fn"]) for name in ("loc", "flat")] == [False, True]
    assert [is_unconstrained(trace[name]["fn"].support) for name in ("loc", "flat")] == [True, False]
    assert isinstance(without_wrappers(trace["loc"]["fn"]), dist.Normal)
    assert entrywise(trace["flat"]["fn"].support) is dist.constraints.positive


def test_an_outline_has_the_shapes_of_a_trace():
    trace, shapes = (run(model, (jnp.zeros(4),), {}, KEY) for run in (trace_model, outline))
    valued = [name for name, site in trace.items() if site["type"] != "deterministic"]
    assert {k: np.shape(trace[k]["value"]) for k in valued} == {k: np.shape(shapes[k]["value"]) for k in valued}


def test_axes_are_named_by_plates():
    trace = trace_model(model, (jnp.zeros(4),), {}, KEY)
    assert axis_names(trace["kind"], 1) == ["rows"]
    assert axis_names(trace["loc"], 1) == [None]
    assert axis_names(None, 2) == [None, None]
    assert plate_dims(trace) == {"kind": ["rows"], "mean": ["rows"], "y": ["rows"]}


# ---- what hosts keep to themselves -----------------------------------------------------------------------------------


def equations(function, *args):
    return jax.make_jaxpr(function)(*args).eqns


def test_primitives_are_bound_again_as_they_were():
    (equation,) = equations(lambda x: x.sum(0), jnp.ones((2, 3)))
    (result,) = compat.bound(equation.primitive, [jnp.ones((2, 3))], equation.params)
    assert (result == 2.0).all()


def test_a_call_is_told_from_a_loop():
    (call,) = equations(jax.jit(lambda x: x + 1), jnp.ones(2))
    (loop,) = equations(lambda x: jax.lax.scan(lambda c, r: (c + r, c), 0.0, x), jnp.ones(2))
    assert [e.primitive.name for e in compat.called(call).jaxpr.eqns] == ["add"]
    assert compat.called(loop) is None
    assert compat.scan_counts(loop.params) == (0, 1)


def test_what_stands_for_results_is_made_of_what_stands_for_constants_arguments_and_numbers():
    weights = np.array([1.0, 2.0], np.float32)
    program = jax.make_jaxpr(lambda x, y: (2.0 * (x + weights), y))(jnp.ones(2), jnp.ones(3))

    def joined(equation, operands):
        return [frozenset().union(*operands)] * len(equation.outvars)

    constants = [{"constant"}] * len(program.consts)
    found = compat.interpreted(program.jaxpr, [*constants, {"x"}, {"y"}], lambda number: {float(number.val)}, joined)
    assert found[0] >= {"x", 2.0}
    assert found[1] == {"y"}
    again = compat.interpreted(
        program.jaxpr,
        [*program.consts, jnp.ones(2), jnp.ones(3)],
        lambda number: number.val,
        lambda equation, operands: compat.bound(equation.primitive, operands, equation.params),
    )
    np.testing.assert_array_equal(again[0], 2.0 * (1.0 + weights))


def test_an_equation_bears_the_line_that_made_it():
    (equation,) = equations(lambda x: jnp.negative(x), jnp.ones(2))
    assert any(name == __file__ for name, _ in compat.frames_of(equation))


def normal(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.LogNormal())
    numpyro.sample("y", dist.Normal(loc, scale).to_event(1), obs=y)


def test_a_model_that_is_only_called_something_is_not_transformed():
    named = [jax.named_call(normal), jax.named_scope("n")(normal), jax.profiler.annotate_function(normal)]
    for model in (*named, jax.default_matmul_precision("highest")(normal)):
        assert not compat.is_transformed(model)
        assert set(trace_model(model, (jnp.zeros(2),), {}, KEY)) == {"loc", "scale", "y"}
    made = [jax.checkpoint(normal), jax.vmap(normal), jax.grad(normal), jax.custom_jvp(normal)]
    assert all(map(compat.is_transformed, made))


def test_a_flat_latent_is_unpacked_in_its_order():
    guide = AutoDiagonalNormal(normal)
    jax.eval_shape(lambda: numpyro.handlers.seed(guide, KEY)(jnp.zeros(2)))
    assert compat.flat_sites(guide) == ["loc", "scale"]
    unpacked = compat.unpacking(guide)(jnp.arange(3.0))
    assert {site: value.tolist() for site, value in unpacked.items()} == {"loc": [0.0, 1.0], "scale": 2.0}
    with pytest.raises(UnsupportedGuideError, match="has no _init_locs in this version"):
        compat.flat_sites(types.SimpleNamespace())


def test_whether_sites_are_summed_out_is_known():
    from numpyro.contrib.funsor import enum

    assert not compat.is_enumerated()
    with enum(first_available_dim=-1):
        assert compat.is_enumerated()


def test_a_run_is_read_and_written():
    run = MCMC(NUTS(normal), num_warmup=1, num_samples=2, progress_bar=False)
    assert compat.states_of(run) == (None, run._sample_field)
    run.run(KEY, jnp.zeros(2))
    states, field = compat.states_of(run)
    assert states[field]["loc"].shape == (1, 2, 2)
    ((y,), kwargs) = compat.arguments_of(run)
    assert (y == 0).all()
    assert kwargs == {}
    moved = compat.with_states(run, states | {field: {"loc": jnp.ones((1, 2, 2))}})
    assert (moved.get_samples()["loc"] == 1).all()
    assert (run.get_samples()["loc"] != 1).all()
    with pytest.raises(SymmetryError, match="keeps its draws otherwise"):
        compat.states_of(types.SimpleNamespace())
    assert compat.arguments_of(types.SimpleNamespace()) is None


@pytest.mark.parametrize("checks", [True, False])
def test_whether_values_are_checked_is_known(checks):
    with numpyro.validation_enabled(checks):
        assert compat.checks_values() is checks


@pytest.mark.parametrize("checks", [True, False])
def test_data_outside_of_a_support_are_named_once(checks):
    """NumPyro, where it checks values, would warn of the same in other words."""

    def model(y):
        numpyro.sample("y", dist.Gamma(2.0, 1.0), obs=y)

    with numpyro.validation_enabled(checks), pytest.raises(SymmetryError, match="'y' holds 1 of 3 values outside"):
        with blaming_sites([], model, (np.array([1.0, -1.0, 2.0]),), {}):
            raise RuntimeError


def test_parameters_are_held_against_their_constraints_without_programs(compiled):
    """A matrix of a shape that no other test has, so that no program of its is compiled before."""
    _refuse_unconstrained("first", dist.constraints.real_vector, jnp.ones(37))  # what is compiled by anything
    values = jnp.eye(37)
    before = compiled[0]
    _refuse_unconstrained("scale_tril", dist.constraints.lower_cholesky, values)
    assert compiled[0] == before


@pytest.mark.parametrize(
    ("constraint", "value"),
    [
        pytest.param(_StartsAtZero(), np.arange(3.0, dtype=np.float32), id="needs JAX's arrays"),
        pytest.param(dist.constraints.corr_cholesky, jnp.eye(3, dtype=jnp.bfloat16), id="a type NumPy lacks"),
        # what is 0.7 in single precision is less in double
        pytest.param(dist.constraints.interval(np.array([0.7]), np.array([0.9])), np.float32([0.7]), id="at a bound"),
    ],
)
def test_parameters_are_held_against_constraints_as_of_jax_arrays(constraint, value):
    _refuse_unconstrained("start", constraint, value)
