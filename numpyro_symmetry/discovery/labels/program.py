"""A model's log joint as a program of latent values and data, both opaque to it. Knows models; no terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import constraints

from numpyro_symmetry.models.compat import body_of
from numpyro_symmetry.models.data import is_array, is_table
from numpyro_symmetry.models.functions import Outputs
from numpyro_symmetry.models.log_joint import Data, LogJoint, Way, in_first_way, sites_of, ways_to_give
from numpyro_symmetry.models.programs import Program, arguments_read, session_precision, traced
from numpyro_symmetry.models.sites import (
    axis_names,
    discrete_of,
    is_interval,
    is_unconstrained,
    latent_of,
    leaves_of_parameters,
)
from numpyro_symmetry.models.trace import data_of, outline, warn_without_data
from numpyro_symmetry.symmetry import SymmetryError


class TracedLogJoint(NamedTuple):
    """A traced log joint.

    Attributes
    ----------
    jaxpr
        Closed; its arguments are the sites' values, then the data; its results sum to the log joint, or are outputs, of
        which every entry has to stay.
    joint
        What was traced, and what it is made of.
    way
        Which data are arguments of the program.
    names
        Site -> a name for each axis: of the plate that it is, or ``None``.
    data_shapes
        Shapes of the data.
    used
        Sites whose values the log joint depends on.
    real
        Whether each of the data is an argument of real numbers, which can be told apart by moving them a little.
    opaque
        Whether all data among the arguments are arguments of the program too: not where the model looks at values, nor
        tables of pandas and xarray.
    priors
        Latent site -> its distribution, which may hold tracers; parameters have none.
    signs
        Whether each site may hold any real number, or lies between two bounds, so that a value of it can be negated.
    supports
        Programs of the same arguments: whether values lie in their supports, where any lie between two bounds.
    not_summed
        Why discrete sites are not summed out, if they are not.
    """

    jaxpr: Any
    joint: LogJoint | Outputs
    way: Way
    names: dict[str, list[str | None]]
    data_shapes: list[tuple[int, ...]]
    used: set[str]
    real: list[bool]
    opaque: bool
    priors: dict[str, Any]
    signs: list[bool]
    supports: list[Any]
    not_summed: str = ""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Site -> shape, in the order of the arguments; leaves of parameters are sites of their own."""
        return {name: self.joint.sites.shapes[name] for name in sorted(self.joint.sites.shapes)}


def read_program(model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], rng_key: Array) -> TracedLogJoint:
    """Trace a model's log joint, its discrete latent sites summed out if they can be."""
    trace = outline(model, args, kwargs, rng_key)
    warn_without_data(model, args, kwargs, trace)
    try:
        return _read(model, args, kwargs, rng_key, trace, discrete_of(trace))
    except SymmetryError as error:
        if not discrete_of(trace):
            raise
        # no funsor, or more than it can do: discrete values are then latent values like others
        return _read(model, args, kwargs, rng_key, trace, [])._replace(not_summed=str(error))


def _read(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rng_key: Array,
    trace: dict[str, Any],
    summed_out: list[str],
) -> TracedLogJoint:
    leaves = leaves_of_parameters(trace)
    sites = sites_of(trace, summed_out, leaves)
    joint, flat = LogJoint(model, args, kwargs, rng_key, sites), jax.tree.leaves((args, kwargs))
    values = {name: trace[name]["value"] for name in latent_of(trace) if name in sites.shapes} | leaves
    observed = {name: site["value"] for name, site in data_of(trace).items() if is_array(site.get("known"))}
    settings = {name: trace[name]["value"] for name in sites.settings}
    intervals = any(is_interval(site["fn"].support) for name, site in latent_of(trace).items() if name in values)
    data, ways = Data(dict(enumerate(flat)), settings, observed), ways_to_give(args, kwargs, observed)
    functions = [joint.log_probs, joint.inside] if intervals else [joint.log_probs]

    read = _opaque(
        joint,
        values,
        data,
        ways,
        lambda own: [traced(function, values, own, precision=session_precision()) for function in functions],
    )
    return read._replace(
        names={name: axis_names(trace.get(name), len(values[name].shape)) for name in read.names},
        priors={name: trace[name]["fn"] for name in read.names if name in trace and trace[name]["type"] == "sample"},
        # the sign of a site without entries changes nothing
        signs=[0 not in sites.shapes[name] and _is_real(trace, name) for name in read.names],
    )


def read_function(outputs: Outputs) -> TracedLogJoint:
    """Trace what a function returns."""
    sites = outputs.sites
    values: dict[str, Any] = dict(sites.settings)
    data = Data(dict(enumerate(jax.tree.leaves((outputs.args, outputs.kwargs)))), {}, {})
    ways = ways_to_give(outputs.args, outputs.kwargs)
    read = _opaque(outputs, values, data, ways, lambda own: [outputs.program(own)])
    real = {name for name, x in values.items() if x.size and jnp.issubdtype(x.dtype, jnp.inexact)} - sites.constrained
    return read._replace(signs=[name in real & read.used for name in read.names])


def _opaque(
    joint: LogJoint | Outputs,
    values: Mapping[str, Any],
    data: Data,
    ways: list[Way],
    programs_of: Callable[[Data], list[Program]],
) -> TracedLogJoint:
    """A program of values and of as many data as can be traced; names, priors and signs of sites are still empty.

    ``programs_of``: from data to the program, and those of supports.
    """

    def traced_in(way: Way) -> TracedLogJoint:
        given = data._replace(arguments={k: data.arguments[k] for k in way.positions})
        jaxpr, *supports = [program.closed for program in programs_of(given)]
        rest = jax.tree.leaves((given.settings, given.observed))
        # arguments are flattened in the order of sorted names
        ordered = sorted(values)
        # running statistics that are only updated enter values that nobody returns
        used = {name for name, is_read in zip(ordered, arguments_read(body_of(jaxpr)), strict=False) if is_read}
        return TracedLogJoint(
            jaxpr,
            joint,
            way,
            {name: [None] * len(values[name].shape) for name in ordered},
            [leaf.shape for leaf in jax.tree.leaves(given)],
            used,
            [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in given.arguments.values()] + [False] * len(rest),
            way == ways[0] and not any(map(is_table, data.arguments.values())),
            {},
            [False] * len(ordered),
            supports,
        )

    return in_first_way(ways, traced_in)


def _is_real(trace: dict[str, Any], name: str) -> bool:
    """Whether a latent site, or the parameter that a leaf is of, has no constraint, or two bounds.

    Whether bounds are each other's opposite is for a program to say: they may be computed from values.
    """
    if name in trace and trace[name]["type"] == "sample":
        support = trace[name]["fn"].support
        return is_unconstrained(support) or is_interval(support)
    owner = next(site for other, site in trace.items() if name == other or name.startswith(f"{other}."))
    return is_unconstrained(owner["kwargs"].get("constraint", constraints.real))
