"""A model held fixed on its data, in double precision if it can be, and compiled once for all data of the same shapes.

Knows models and programs; no symmetry.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.rounding import IN_DOUBLE, IN_SINGLE, Rounding
from numpyro_symmetry.models.compat import equations
from numpyro_symmetry.models.data import is_array
from numpyro_symmetry.models.functions import Outputs
from numpyro_symmetry.models.log_joint import LOOKED_AT, Data, LogJoint, Sites, Way, in_first_way
from numpyro_symmetry.models.programs import (
    DOUBLE,
    WIDENED,
    FloatPrecision,
    Program,
    compiled_for_many,
    on_device,
    session_precision,
    traced,
)
from numpyro_symmetry.models.reach import NOTHING, dependencies_of_program
from numpyro_symmetry.symmetry.arguments import is_number
from numpyro_symmetry.symmetry.components import by_key
from numpyro_symmetry.symmetry.nouns import Nouns, nouns

# what is compiled: the log joint of a model, or the outputs of a function
Joint = LogJoint | Outputs
# latent values by site: of one point, or of many, with one more axis in front
Values = dict[str, np.ndarray]
Batch = Values
# constants of a program from this size on are bounds of arithmetic, and no places where a model changes its formula
_NO_LIMIT = 1e4
# double precision, and the bits of its fraction
_DOUBLE, _MANTISSA = np.dtype(np.float64), np.finfo(np.float64).nmant
_COMPARISONS = ("lt", "le", "gt", "ge", "max", "min", "clamp")
# points that one call of a compiled program evaluates, and numbers in them at most
_MOST_POINTS, _MOST_NUMBERS = 16, 2**21
# errors of JAX where a program mixes precisions, and of operations that refuse the type that they are given
_NOT_IN_DOUBLE = (*LOOKED_AT, NotImplementedError, AssertionError, FutureWarning)


class FrozenModel(NamedTuple):
    """A model with everything but its latent values held fixed.

    Attributes
    ----------
    log_probs
        Latent values of many points, and data -> site -> scaled log probability of each point, an array per datum for
        observed sites.
    supports
        The same -> constrained site -> whether each point lies in its support, given the others.
    place
        Site -> noise ``(size,)``; returns latent values, whose distance from the prior's centre is the noise in units
        of the prior's spread.
    data
        What the model is held fixed on.
    sites
        What the log joint is made of.
    most_points
        How many points are evaluated at a time.
    limits
        The largest constants of the program at which its formula may change, such as bounds of a clip.
    data_sites
        Observed sites that hold data: every one but factors.
    rounding
        How much of a log probability may be rounding.
    unread, alone
        Latent sites that nothing reads but their own prior, a proper one; and sites whose prior reads no other site.
    is_function
        Whether the model is a function, whose outputs take the place of log probabilities.
    units
        Output of a function -> its unit, at most one: log probabilities are measured in nats, outputs in anything.
    """

    log_probs: Callable[[Batch, Any], Batch]
    supports: Callable[[Batch, Any], Batch]
    place: Callable[[Values], Values]
    data: Any
    sites: Sites
    most_points: int
    limits: list[float]
    data_sites: tuple[str, ...]
    rounding: Rounding
    unread: set[str]
    alone: set[str]
    is_function: bool
    units: Mapping[str, float] = MappingProxyType({})

    @property
    def nouns(self) -> Nouns:
        """The nouns by which messages speak of it."""
        return nouns(is_function=self.is_function)

    @property
    def sizes(self) -> dict[str, int]:
        """Latent site -> number of its values."""
        return {name: math.prod(shape) for name, shape in self.sites.shapes.items()}

    def allows(self, sites: Iterable[str], size: float) -> float:
        """How far rounding may move terms of this size."""
        return self.rounding.allows(size, min(self.units.get(site, 1.0) for site in sites))

    def at(self, values: Values) -> Point:
        """A point, with the scaled log probability of each site there."""
        return self.at_each([values])[0]

    def log_probs_of(self, stack: Batch) -> Batch:
        """Site -> scaled log probability at each of many points, an array per datum for observed sites."""
        return self.log_probs(stack, self.data)

    def inside_of(self, stack: Batch) -> Batch:
        """Constrained site -> whether its value at each of many points lies in its support."""
        return self.supports(stack, self.data)

    def at_each(self, places: list[Values]) -> list[Point]:
        """Points, with their log probabilities, no more of them than are evaluated at a time."""
        found = self.log_probs_of(stacked(places))
        return [Point(values, {name: x[k] for name, x in found.items()}) for k, values in enumerate(places)]

    def inside(self, place: Values) -> Values:
        """Constrained site -> whether its value at one point lies in its support."""
        return {name: x[0] for name, x in self.inside_of(stacked([place])).items()}


class Point(NamedTuple):
    """Latent values, and the log probability of each site there."""

    values: Values
    log_probs: Values


def stacked(places: list[Values]) -> Batch:
    """Points with one more axis in front; a site that is the same array in all points is broadcast, not copied."""

    def stacked_site(values: list[Any]) -> np.ndarray:
        first = np.asarray(values[0])
        if all(value is values[0] for value in values):
            return np.broadcast_to(first, (len(values), *first.shape))
        return np.stack(values)

    return {site: stacked_site([place[site] for place in places]) for site in places[0]}


class CompiledModel(NamedTuple):
    """A model's log joint, compiled for data of some shapes.

    Attributes
    ----------
    joint
        The log joint, with arguments in place.
    way, precision, kept
        Which data are arguments of the program, in which precision it is traced and evaluated, and the kinds of dtypes
        of which constants stay NumPy arrays.
    own
        The model's own data.
    inputs
        Shapes and types of latent values, and of the data.
    numbers
        Constants of the program of `log_probs` themselves, and scalar data by their position, each with whether a
        comparison reads it.
    frozen
        The model held fixed on its own data. The programs that it was compiled from are let go.
    """

    joint: Joint
    way: Way
    precision: FloatPrecision
    kept: str
    own: Data
    inputs: tuple[Any, ...]
    numbers: list[tuple[Any, bool]]
    frozen: FrozenModel

    def on(self, data: Data) -> FrozenModel:
        """The model held fixed on other data; its points lie about the prior that it has on its own."""
        given = on_device(data, self.inputs[1], self.precision)
        return self.frozen._replace(data=given, limits=_limits(self.numbers, data))


def freeze(joint: Joint, ways: Iterable[Way]) -> CompiledModel:
    """Compile a log joint in double precision if it can be traced so, else widened, else as the session has it.

    The data are arguments of the program in the first of ``ways`` in which the model can be traced.
    """
    attempts = [
        (precision, way, kept)
        for precision in (DOUBLE, WIDENED)
        for way in ways
        # a model may read sizes off NumPy data, mostly integer labels, which then stay NumPy arrays; or off any data
        for kept in (("", "biu", "biufc") if precision is DOUBLE and not way.positions else ("",))
    ]
    for precision, way, kept in attempts:
        with contextlib.suppress(*_NOT_IN_DOUBLE):
            return compile_model(_with(joint, joint.args, joint.kwargs, precision, kept), way, precision, kept)
    with jax.default_matmul_precision("highest"):
        return in_first_way(ways, lambda way: compile_model(joint, way, session_precision(), ""))


def compile_model(joint: Joint, way: Way, precision: FloatPrecision, kept: str) -> CompiledModel:
    """Trace and compile what is evaluated of a model, in one way and precision."""
    sites, own = joint.sites, joint.data(way, precision)
    real = np.dtype(np.float64 if precision.evaluated_in_double else np.float32)
    noise = {name: jax.ShapeDtypeStruct((math.prod(s),), real) for name, s in sites.shapes.items()}
    place, values = joint.compiled_place(noise, own, precision)
    log_probs = traced(joint.log_probs, values, own, precision=precision)
    size = sum(x.size for x in jax.tree.leaves((values, log_probs.outputs)))
    reads, numbers = _reads(log_probs, sorted(sites.shapes)), _numbers_in(log_probs, len(sites.shapes))
    most = int(np.clip(_MOST_NUMBERS // max(size, 1), 1, _MOST_POINTS))
    given, is_function = on_device(own, log_probs.inputs[1], precision), isinstance(joint, Outputs)
    frozen = FrozenModel(
        log_probs=compiled_for_many(log_probs, most),
        supports=joint.compiled_inside(values, own, precision, most),
        place=lambda noise: place(noise, given),
        data=given,
        sites=sites,
        most_points=most,
        limits=_limits(numbers, own),
        data_sites=tuple(log_probs.outputs) if is_function else sites.scored,
        rounding=IN_DOUBLE if precision.evaluated_in_double and not _rounds(log_probs.body) else IN_SINGLE,
        unread=_unread(reads, sites.shapes) - sites.improper - sites.leaves,
        alone={name for name in sites.shapes if reads.get(name) == {name}},
        is_function=is_function,
    )
    return CompiledModel(joint, way, precision, kept, own, log_probs.inputs, numbers, frozen)


def on_other_arguments(model: CompiledModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompiledModel:
    """The model compiled again with other arguments, which it looks at while it is traced."""
    joint = _with(model.joint, args, kwargs, model.precision, model.kept)
    return compile_model(joint, model.way, model.precision, model.kept)


def _with(joint: Joint, args: tuple[Any, ...], kwargs: dict[str, Any], precision: FloatPrecision, kept: str) -> Joint:
    """The log joint with these arguments, copied where it is traced in another precision than the session's."""
    given = _copied((args, kwargs), kept) if precision is DOUBLE else (args, kwargs)
    return replace(joint, args=given[0], kwargs=given[1])


def _copied(given: Any, kept: str) -> Any:
    """Copies of NumPy arrays: in JAX, or still in NumPy if their dtype's kind is in ``kept``.

    While a program in the session's precision lives, JAX caches its constants by the identity of their arrays, and
    would return them in single precision when asked for double.
    """

    def copied(x: Any) -> Any:
        if not isinstance(x, np.ndarray) or not is_number(x.dtype):
            return x
        return x.copy() if x.dtype.kind in kept else jax.device_put(x.copy())

    with DOUBLE.tracing():
        return jax.tree.map(copied, given)


def _reads(program: Program, given: list[str]) -> dict[str, frozenset[str]]:
    """Log probability -> the latent values on which it depends, by the structure of the program."""
    data = [NOTHING] * (len(program.body.invars) - len(given))
    found = dependencies_of_program(program.closed, [*(frozenset([name]) for name in given), *data])
    return dict(zip(sorted(program.outputs), found, strict=True))


def _unread(reads: Mapping[str, frozenset[str]], given: Iterable[str]) -> set[str]:
    """Latent values on which no log probability depends but that of the same name."""
    return {name for name in given if all(name not in sites for other, sites in reads.items() if other != name)}


def _rounds(jaxpr: Any) -> bool:
    """Whether a program makes less of float64 anywhere, by a cast or a product: then its last digits are noise."""
    types = ((e, _real_types(e.invars), _real_types(e.outvars)) for e in equations(jaxpr))
    return any(
        (_DOUBLE in taken and made and _DOUBLE not in made) or e.params.get("mantissa_bits", _MANTISSA) < _MANTISSA
        for e, taken, made in types
    )


def _real_types(variables: Iterable[Any]) -> set[Any]:
    types = (getattr(v.aval, "dtype", bool) for v in variables)
    return {np.dtype(one) for one in types if jnp.issubdtype(one, jnp.floating)}


def _numbers_in(program: Program, num_values: int) -> list[tuple[Any, bool]]:
    """Constants of a program, and scalar data by their position, each with whether a comparison reads it."""
    data = {var: k for k, var in enumerate(program.body.invars[num_values:]) if not var.aval.shape}
    return [
        (np.asarray(var.val) if isinstance(var, core.Literal) else data[var], equation.primitive.name in _COMPARISONS)
        for equation in equations(program.body)
        for var in equation.invars
        if isinstance(var, core.Literal) or var in data
    ]


def _limits(numbers: Iterable[tuple[Any, bool]], data: Data) -> list[float]:
    """Numbers of a program, those of comparisons first and then the largest, that are no mere bounds of arithmetic."""
    leaves = jax.tree.leaves(data)
    known = [(leaves[x] if isinstance(x, int) else x, is_compared) for x, is_compared in numbers]
    real = ((x, is_compared) for x, is_compared in known if is_array(x) and np.ndim(x) == 0 and np.isrealobj(x))
    sizes = by_key((abs(float(x)), is_compared) for x, is_compared in real)
    ranked = sorted((any(compared), size) for size, compared in sizes.items() if 1.0 < size < _NO_LIMIT)
    return [size for _, size in ranked[::-1]][: EFFORT.num_limits]
