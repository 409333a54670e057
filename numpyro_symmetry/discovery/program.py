"""A model's log joint as a program of latent values and data, both opaque to it.

Data enter as arguments, so that nothing in the program can depend on which of them coincide. Each site's log
probability is taken where the site stands, so that operations bear the line of the model that made them. Knows NumPyro;
no terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.util import scale_and_mask
from numpyro.primitives import Messenger

from numpyro_symmetry.models.data import is_array, observing
from numpyro_symmetry.models.enumeration import enumerated_log_density
from numpyro_symmetry.models.parameters import leaves_of_parameters, with_leaves
from numpyro_symmetry.models.plates import axis_names
from numpyro_symmetry.models.sites import discrete_of, is_unconstrained, latent_of, observed_of, settings_of
from numpyro_symmetry.models.trace import outline
from numpyro_symmetry.symmetry import SymmetryError


class Program(NamedTuple):
    """A traced log joint.

    Attributes
    ----------
    jaxpr
        Closed; its arguments are the sites' values, then the data; its results sum to the log joint.
    shapes
        Site -> shape; leaves of parameters are sites of their own.
    names
        Site -> a name for each axis: of the plate that it is, or ``None``.
    data_shapes
        Shapes of the data.
    used
        Sites whose values the log joint depends on.
    real
        Whether each of the data is an argument of real numbers, which can be told apart by moving them a little.
    opaque
        Whether all arrays among the arguments are arguments of the program too: not where the model looks at values.
    priors
        Latent site -> its distribution, which may hold what was traced; parameters have none.
    signs
        Whether each site may hold any real number, so that a value of it can be negated.
    """

    jaxpr: Any
    shapes: dict[str, tuple[int, ...]]
    names: dict[str, list[str | None]]
    data_shapes: list[tuple[int, ...]]
    used: set[str]
    real: list[bool]
    opaque: bool
    priors: dict[str, Any]
    signs: list[bool]


class _LogProbs(Messenger):
    """Sums every site's log probability at its own statement."""

    def __init__(self) -> None:
        super().__init__()
        self.log_probs: list[Array] = []

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "sample":
            log_prob = scale_and_mask(msg["fn"].log_prob(msg["value"]), msg["scale"])
            self.log_probs.append(jnp.sum(log_prob))


def read_program(model: Callable, args: tuple, kwargs: dict[str, Any], rng_key: Array) -> Program:
    """Trace a model's log joint, its discrete latent sites summed out if they can be."""
    trace = outline(model, args, kwargs, rng_key)
    discrete = discrete_of(trace)
    if discrete:
        try:
            return _read(model, args, kwargs, rng_key, trace, discrete)
        except (SymmetryError, NotImplementedError, ValueError, AssertionError):
            pass  # no funsor, or more than it can do: discrete values are then latent values like others
    return _read(model, args, kwargs, rng_key, trace, [])


def _read(
    model: Callable, args: tuple, kwargs: dict[str, Any], rng_key: Array, trace: dict[str, Any], summed_out: list[str]
) -> Program:
    values = {name: site["value"] for name, site in latent_of(trace).items() if name not in summed_out}
    values |= leaves_of_parameters(trace)
    observed = {name: site["value"] for name, site in observed_of(trace).items() if is_array(site.get("known"))}
    settings = {
        name: value for name, value in settings_of(trace).items() if value is not None and not _is_whole(trace[name])
    }
    flat, structure = jax.tree.flatten((args, kwargs))
    arrays = {k: _shape_of(leaf) for k, leaf in enumerate(flat) if is_array(leaf)}

    def log_joint(values: dict, data: dict, settings: dict, observed: dict) -> Any:
        given, given_kwargs = jax.tree.unflatten(structure, [data.get(k, leaf) for k, leaf in enumerate(flat)])
        substituted, shown = with_leaves(settings, values), observing(model, observed)
        if summed_out:
            return enumerated_log_density(shown, given, given_kwargs, substituted, trace, rng_key)
        total = _LogProbs()
        with handlers.block(), total, handlers.substitute(data=substituted), handlers.seed(rng_seed=rng_key):
            shown(*given, **given_kwargs)
        return total.log_probs

    def traced() -> tuple[Any, dict[int, jax.ShapeDtypeStruct]]:
        # a model may look at values of its data (sizes, shapes from labels, branches): those stay what they are
        for data in (arrays, {k: leaf for k, leaf in arrays.items() if leaf.ndim}):
            try:
                return jax.make_jaxpr(log_joint)(values, data, settings, observed), data
            except (jax.errors.JAXTypeError, jax.errors.JAXIndexError, TypeError, ValueError):
                continue
        return jax.make_jaxpr(log_joint)(values, {}, settings, observed), {}

    jaxpr, data = traced()
    body = getattr(jaxpr, "jaxpr", jaxpr)
    # arguments are flattened in the order of sorted names
    ordered = sorted(values)
    read = {id(var) for equation in body.eqns for var in equation.invars}
    used = {name for name, var in zip(ordered, body.invars, strict=False) if id(var) in read}
    return Program(
        jaxpr,
        {name: values[name].shape for name in ordered},
        {name: axis_names(trace.get(name), len(values[name].shape)) for name in ordered},
        [leaf.shape for leaf in jax.tree.leaves((data, settings, observed))],
        used,
        [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in data.values()]
        + [False] * len(jax.tree.leaves((settings, observed))),
        len(data) == len(arrays),
        {name: trace[name]["fn"] for name in ordered if name in trace and trace[name]["type"] == "sample"},
        [_is_real(trace, name) for name in ordered],
    )


def _is_real(trace: dict[str, Any], name: str) -> bool:
    """Whether a latent site, or the parameter that a leaf is of, has no constraint."""
    if name in trace and trace[name]["type"] == "sample":
        return is_unconstrained(trace[name]["fn"].support)
    owner = next(site for other, site in trace.items() if name == other or name.startswith(f"{other}."))
    return is_unconstrained(owner["kwargs"].get("constraint", constraints.real))


def _shape_of(value: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(np.shape(value), jax.dtypes.canonicalize_dtype(value.dtype))


def _is_whole(site: Any) -> bool:
    """Whether a site is a plate that is not subsampled: its indices are what they are."""
    return site["type"] == "plate" and site["args"][0] == site["args"][1]
