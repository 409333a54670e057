"""Parameters as `SVI.get_params` gives them: all there, none too many, of the right shapes, finite and constrained.

NumPyro starts a parameter that it does not find anew, and scores that in its place. Knows traces; no symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from jax.core import Tracer
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to

from numpyro_symmetry.linalg import at_least_single
from numpyro_symmetry.models.sites import Trace, is_fitted
from numpyro_symmetry.models.trace import trace_model
from numpyro_symmetry.models.unconstrained import unconstrained
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import as_real_array, is_traced, refuse_masked, traced_among
from numpyro_symmetry.symmetry.shown import counted

_REMEDY = "Pass svi.get_params(state), or the params of svi.run's result"
_REMEDY_OF_STATE = "Pass svi.get_params(state) | state.mutable_state, where state is svi.run's result.state"
_OF_ANOTHER = (
    " They look like those of another guide, as where an AutoGuideList hands all parameters to each of its guides: "
    "symmetrize it as a whole: AutoSymmetrized(parts)."
)
# how far there and back again may round
_TOLERANCE = 1e-3


def parameter_sites(trace: Trace) -> dict[str, Any]:
    """The parameters and mutable state of a trace, shapes in place of values: what is needed to check others."""

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))

    return {
        name: {
            "type": site["type"],
            "value": jax.tree.map(shape, site["value"]),
            "kwargs": {"constraint": site["kwargs"].get("constraint", constraints.real)},
        }
        for name, site in trace.items()
        if is_fitted(site)
    }


def parameters_of(guide: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """`parameter_sites` of a guide, of which nothing is computed."""
    found: dict[str, Any] = {}

    def run(key: Array) -> None:
        found.update(parameter_sites(trace_model(guide, args, kwargs, key)))

    with jax.check_tracer_leaks(False):  # nothing is read of what is kept but shapes
        jax.eval_shape(run, jax.random.key(0))
    return found


def refuse_set_up_under_jit(guide: str, remedy: str, cannot: str = "its checks cannot run", **trees: Any) -> None:
    """Refuse to set up while something is being traced: checks need numbers, and under `jit` constants have none."""
    if (traced := traced_among(**trees)) or is_traced(jnp.zeros(())):
        raise SymmetryError(f"{guide} was set up under jit or vmap, where {cannot}{traced and f': {traced}'}. {remedy}")


def not_set_up(call: str) -> SymmetryError:
    """What a guide says that does not know its parameters yet, and learns them by a call."""
    return SymmetryError(
        f"The guide is not set up, and does not know its parameters: run SVI.init, or call {call}, first."
    )


def refuse_wrong_parameters(
    guide_trace: Trace, model_trace: Trace | None, params: Any, *, model_too: bool = True
) -> None:
    """Refuse parameters that are not those of a guide and a model.

    Parameters
    ----------
    guide_trace, model_trace
        Traces, or `parameter_sites` of them. Without a trace of the model, names that the guide does not know may be
        the model's.
    params
        Parameters, constrained.
    model_too
        Whether the model's own have to be there as well, and its mutable state: drawing from a guide takes but what
        the guide itself reads.

    Raises
    ------
    TypeError
        If they are no mapping from names.
    SymmetryError
        Naming the parameter that is missing, not known, of another shape, not finite or outside of its constraint; or
        the mutable state that is missing.
    """
    if not isinstance(params, Mapping):
        raise TypeError(f"params must be a mapping from names to arrays; got {type(params).__name__}. {_REMEDY}.")
    own, of_model = ({n: s for n, s in (t or {}).items() if s["type"] == "param"} for t in (guide_trace, model_trace))
    read, of_others = ({n for n, s in (t or {}).items() if s["type"] == "mutable"} for t in (guide_trace, model_trace))
    state = read | of_others
    expected = own | of_model if model_too else own
    unknown = [name for name in params if name not in own and name not in of_model and name not in state]
    if missing := [name for name in expected if name not in params]:
        given = f"the parameters given are {sorted(map(str, params))}" if params else "no parameters are given"
        raise SymmetryError(f"Parameters {missing} are missing; {given}.{_nearest(missing[0], unknown)} {_REMEDY}.")
    # a guide that runs the model has draws that depend on it
    refuse_absent_state(state if model_too else read, params)
    if unknown and model_trace is not None:
        # a parameter that is there already is not the one that an unknown name was to be
        nearest = _nearest(unknown[0], [name for name in own | of_model if name not in params])
        raise SymmetryError(
            f"Parameters {unknown} are of neither the guide nor the model, which have {sorted(own | of_model)}."
            f"{nearest or _OF_ANOTHER} {_REMEDY}, of this guide's own fit."
        )
    refuse_masked(params, "Parameter")
    given = {name: site for name, site in (own | of_model).items() if name in params}
    for name, site in given.items():
        refuse_misshapen(name, site["value"], params[name])
    refuse_nonfinite({name: value for name, value in params.items() if name not in state})
    # under jit operations on known numbers would be traced all the same
    with jax.ensure_compile_time_eval():
        for name, site in given.items():
            _refuse_unconstrained(name, site["kwargs"].get("constraint", constraints.real), params[name])


def refuse_absent_state(state: Iterable[str], params: Mapping[str, Any]) -> None:
    """Refuse parameters without the mutable state of a model, which would start anew."""
    if absent := [name for name in sorted(state) if name not in params]:
        raise SymmetryError(
            f"Mutable state {absent} of the model, such as running averages, is missing: NumPyro keeps it beside the "
            f"parameters. {_REMEDY_OF_STATE}."
        )


def refuse_nonfinite(params: Any) -> None:
    """Refuse parameters that hold NaN or infinity."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if isinstance(leaf, Tracer):
            continue
        array = np.asarray(as_real_array(leaf, f"Parameter {jax.tree_util.keystr(path)}"))
        if not np.isfinite(array).all():
            count = int((~np.isfinite(array)).sum())
            raise SymmetryError(
                f"Parameter {jax.tree_util.keystr(path)} holds {count} non-finite of "
                f"{counted(np.size(leaf), 'value')}. The fit diverged: lower the learning rate or the initial scale."
            )


def draws_of(
    guide: Any, rng_key: Array, params: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], shape: tuple[int, ...]
) -> dict[str, Array]:
    """Draws of an autoguide by site, in front of them ``shape``.

    Raises
    ------
    SymmetryError
        If a site has no entries, and NumPyro's own guides cannot draw it.
    """
    try:
        return guide.sample_posterior(rng_key, dict(params), *args, sample_shape=shape, **kwargs)
    except ZeroDivisionError as error:
        trace = getattr(guide, "prototype_trace", None) or {}
        empty = {n: s["value"].shape for n, s in trace.items() if s["type"] == "sample" and not np.size(s["value"])}
        if not empty:
            raise
        raise SymmetryError(
            f"{type(guide).__name__}.sample_posterior does not draw sites without entries, {empty}: leave them out of "
            "the model where they are empty."
        ) from error


def own_parameter(name: str, start: Any, **options: Any) -> Any:
    """`numpyro.param` of a guide whose sizes are known, which takes no values of others that are handed on to it.

    Read in single precision, or in double: draws in half of it would not be those of the density.
    """
    expected = jax.eval_shape(start, jax.random.key(0)) if callable(start) else start
    value = numpyro.param(name, start, **options)
    refuse_misshapen(name, expected, value)
    return at_least_single(jnp.asarray(value))


def refuse_misshapen(name: str, expected: Any, given: Any) -> None:
    """Refuse a parameter of another structure or shape than expected."""
    wanted, came = _leaves(name, expected), _leaves(name, given)
    if wanted.keys() != came.keys():
        lacking, extra = sorted(wanted.keys() - came.keys()), sorted(came.keys() - wanted.keys())
        raise SymmetryError(
            f"Parameter {name!r} has another structure than expected: {lacking or 'nothing'} is missing, "
            f"{extra or 'nothing'} is too much. {_REMEDY}."
        )
    for path, leaf in wanted.items():
        if not hasattr(came[path], "dtype") and not isinstance(came[path], bool | int | float | complex):
            raise SymmetryError(f"Parameter {path!r} must be an array; got {type(came[path]).__name__}. {_REMEDY}.")
        if jnp.shape(came[path]) != jnp.shape(leaf):
            raise SymmetryError(
                f"Parameter {path!r} must have shape {jnp.shape(leaf)}; got {jnp.shape(came[path])}. {_REMEDY}, of the "
                "same guide and model, with arguments of the same sizes."
            )


def _refuse_unconstrained(name: str, constraint: Any, given: Any) -> None:
    if constraint is constraints.real or isinstance(given, Tracer) or jax.tree.structure(given).num_nodes > 1:
        return
    value = jnp.asarray(given)
    if _is_plainly_inside(constraint, value) or (inside := np.asarray(constraint(value))).all():
        return
    # constraints that are held to the last bit, such as a matrix of determinant one, round on the way
    with np.errstate(all="ignore"):
        free = unconstrained(constraint, value)
        again = biject_to(constraint)(free)
    scale = float(np.abs(np.asarray(value)).max())
    if np.isfinite(np.asarray(free)).all() and np.allclose(again, value, rtol=0.0, atol=_TOLERANCE * scale):
        return
    raise SymmetryError(
        f"Parameter {name!r} is outside of its constraint {constraint} in {int((~inside).sum())} of {inside.size} "
        f"values: is it unconstrained, as svi.optim.get_params returns it? {_REMEDY}."
    )


def _is_plainly_inside(constraint: Any, value: Array) -> bool:
    """Whether a constraint can be asked about NumPy's arrays, of which it compiles no program, and holds of them all.

    A "no" is for JAX's arrays to say: NumPy's are compared with bounds in double precision.
    """
    try:
        with np.errstate(all="ignore"):
            return bool(np.all(constraint(np.asarray(value))))
    except Exception:  # a constraint of one's own may need methods of JAX's arrays, and raise anything without them
        return False


def _leaves(name: str, tree: Any) -> dict[str, Any]:
    return {name + jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _nearest(name: str, among: Any) -> str:
    found = get_close_matches(str(name), [str(other) for other in among], 1)
    return f" Is {found[0]!r} meant?" if found else ""
