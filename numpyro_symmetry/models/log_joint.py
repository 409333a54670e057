"""A model's log joint as a function of its latent values and its data, site by site, in constrained values.

Data enter as arguments: then nothing in a program of it can depend on which of them coincide, and one program serves
all data of the same shapes. Plates, parameters and keys are held, so that two evaluations differ by their arguments
alone. Knows NumPyro; no symmetry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from jax.core import Tracer
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.distributions.util import scale_and_mask
from numpyro.primitives import Messenger

from numpyro_symmetry.models.compat import checks_values
from numpyro_symmetry.models.data import ObservedAs, is_array
from numpyro_symmetry.models.enumeration import enumerated, num_plates_of, refuse_without_funsor
from numpyro_symmetry.models.placing import substitute_points
from numpyro_symmetry.models.programs import FloatPrecision, compiled, compiled_for_many, traced
from numpyro_symmetry.models.sites import (
    Trace,
    is_fitted,
    is_improper,
    is_observed,
    is_subsampled,
    is_unconstrained,
    latent_of,
    leaves_of,
    leaves_of_parameters,
    with_leaves,
)
from numpyro_symmetry.models.trace import data_of, known_of, trace_model

# errors of a function that looks at values which are only traced
LOOKED_AT = (jax.errors.JAXTypeError, jax.errors.JAXIndexError, TypeError, ValueError)


class Data(NamedTuple):
    """Arguments of a log joint beside latent values; any of them may be constants of the program instead.

    Attributes
    ----------
    arguments
        Position among the leaves of the model's arguments -> array.
    settings
        Parameters, mutable state, indices of subsamples.
    observed
        Site -> values, in place of those that the model has there.
    """

    arguments: dict[int, Any]
    settings: dict[str, Any]
    observed: dict[str, Any]


class Sites(NamedTuple):
    """The sites and settings of a model's log joint; holds no tracers.

    Attributes
    ----------
    shapes
        Latent site, or array of a parameter, whose values are arguments -> its shape.
    leaves
        Those that are arrays of parameters.
    constrained
        Latent sites that cannot hold every real number; ``matrices`` are those whose values are matrices.
    improper
        Latent sites with a flat prior.
    summed_out
        Discrete latent sites that are summed out, in ``num_plates`` dimensions of plates.
    settings
        Parameter, mutable state or subsampled plate -> its value, if it is known without a run.
    scored
        Observed sites that hold data: every one but factors.
    observed
        Observed site that holds data -> its values, if they are known without a run.
    """

    shapes: dict[str, tuple[int, ...]]
    leaves: frozenset[str]
    constrained: frozenset[str]
    matrices: frozenset[str]
    improper: frozenset[str]
    summed_out: tuple[str, ...]
    num_plates: int
    settings: dict[str, np.ndarray | None]
    scored: tuple[str, ...]
    observed: dict[str, np.ndarray | None]


def sites_of(trace: Trace, summed_out: Collection[str], leaves: Collection[str]) -> Sites:
    """The sites of a log joint, by an outline: some discrete ones are summed out, some parameters are arguments.

    Raises
    ------
    SymmetryError
        If sites are to be summed out, and funsor is not installed.
    """
    refuse_without_funsor(list(summed_out))
    latent = {name: site for name, site in latent_of(trace).items() if name not in summed_out}
    given = {name: leaf for name, leaf in leaves_of_parameters(trace).items() if name in leaves}
    constrained = frozenset(name for name, site in latent.items() if not is_unconstrained(site["fn"].support))
    return Sites(
        {name: tuple(np.shape(site["value"])) for name, site in latent.items()}
        | {name: tuple(np.shape(leaf)) for name, leaf in given.items()},
        frozenset(given),
        constrained,
        frozenset(name for name in constrained if latent[name]["fn"].support.event_dim == 2),
        frozenset(name for name, site in latent.items() if is_improper(site["fn"])),
        tuple(summed_out),
        num_plates_of(trace),
        # indices of a whole plate are what they are
        {
            n: None
            for n, site in trace.items()
            if (is_fitted(site) and site["value"] is not None) or is_subsampled(site)
        },
        ()
        if summed_out
        else tuple(n for n, site in trace.items() if is_observed(site) and not isinstance(site["fn"], dist.Unit)),
        {name: _known(site) for name, site in data_of(trace).items()},
    )


def _known(site: Any) -> np.ndarray | None:
    """The value at an observed site, if it was not computed; a copy, for JAX knows constants by the arrays they are."""
    if not np.prod(np.shape(site["value"])):
        return np.zeros(np.shape(site["value"]), np.float32)
    known = site.get("known", site["value"])
    return None if isinstance(known, Tracer) else np.array(known)


class Way(NamedTuple):
    """Which data are arguments of a program: positions of leaves of the model's arguments, and observed sites."""

    positions: tuple[int, ...]
    observed: tuple[str, ...]


def ways_to_give(args: tuple[Any, ...], kwargs: Mapping[str, Any], observed: Collection[str] = ()) -> list[Way]:
    """Ways to give a model its arguments: all arrays as arguments of the program, those with axes, none.

    A model may look at values of its data (sizes, shapes from labels, branches): those are then part of the program.
    """
    arrays = {k: leaf for k, leaf in enumerate(jax.tree.leaves((args, dict(kwargs)))) if is_array(leaf)}
    positions = dict.fromkeys((tuple(arrays), tuple(k for k, leaf in arrays.items() if np.ndim(leaf)), ()))
    return [Way(one, tuple(observed)) for one in positions]


def in_first_way(ways: Iterable[Way], made: Callable[[Way], Any]) -> Any:
    """What is made of a model in the first of some ways in which it can be traced; the last one says why in none."""
    *most, last = ways
    for way in most:
        with contextlib.suppress(*LOOKED_AT):
            return made(way)
    return made(last)


@dataclass(frozen=True, eq=False)
class LogJoint:
    """A model and its arguments, to be traced as functions of values and data; where data are absent, its own count."""

    model: Callable
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: Array
    sites: Sites

    def data(self, way: Way, precision: FloatPrecision) -> Data:
        """The model's own data; those that only a run can tell are computed in the precision of tracing."""
        leaves = jax.tree.leaves((self.args, self.kwargs))
        settings, observed = self.sites.settings, {name: self.sites.observed[name] for name in way.observed}
        if any(value is None for value in (*settings.values(), *observed.values())):
            ran = self._run(precision._replace(evaluated_in_double=precision.traced_in_double))
            settings, observed = (
                {name: ran[name] if value is None else value for name, value in known.items()}
                for known in (settings, observed)
            )
        return Data({k: leaves[k] for k in way.positions}, settings, observed)

    def log_probs(self, values: Mapping[str, Array], data: Data) -> dict[str, Array]:
        """Scaled log probability at each site, an array per datum for observed ones; or of all, sites summed out.

        Each is taken where the site stands, so that operations bear the line of the model that made them.
        """
        model, args, kwargs, given = self._given(values, data)
        if self.sites.summed_out:
            return {"log joint": enumerated(model, args, kwargs, given, self.sites.num_plates, self.key)}
        found = _LogProbs(checks_values())
        with (
            numpyro.validation_enabled(False),
            handlers.block(),
            found,
            handlers.substitute(data=given),
            handlers.seed(rng_seed=self.key),
        ):
            model(*args, **kwargs)
        return found.log_probs

    def inside(self, values: Mapping[str, Array], data: Data) -> dict[str, Array]:
        """Whether the value at each constrained site lies in its support, given the others."""
        model, args, kwargs, given = self._given(values, data)
        trace = trace_model(model, args, kwargs, self.key, given)
        return {name: jnp.all(trace[name]["fn"].support(values[name])) for name in self.sites.constrained}

    def place(self, noise: Mapping[str, Array], data: Data) -> dict[str, Array]:
        """Latent values about the centre of the prior, and as far from it as the noise says in units of its spread."""
        model, args, kwargs, settings = self._given({}, data)
        # the seed stands inside, so that whatever draws a value finds a key at its site
        with (
            numpyro.validation_enabled(False),
            handlers.block(),
            handlers.trace() as drawn,
            handlers.substitute(data=settings),
            handlers.substitute(substitute_fn=substitute_points(noise)),
            handlers.seed(rng_seed=self.key),
        ):
            model(*args, **kwargs)
        # parameters have no prior: noise is added, as the values they start from may be more symmetric than the model
        leaves = {name: leaf for name, leaf in leaves_of(data.settings).items() if name in self.sites.leaves}
        moved = {name: jnp.asarray(leaf) + noise[name].reshape(leaf.shape) for name, leaf in leaves.items()}
        return {name: jnp.asarray(drawn[name]["value"]) for name in self.sites.shapes if name not in moved} | moved

    def compiled_place(self, noise: Mapping[str, Any], own: Data, precision: FloatPrecision) -> tuple[Callable, Any]:
        """`place`, compiled as a function of noise and data, and the shapes of what it returns."""
        program = traced(self.place, noise, own, precision=precision)
        return compiled(program), program.outputs

    def compiled_inside(self, values: Any, own: Data, precision: FloatPrecision, count: int) -> Callable:
        """`inside`, compiled as a function of many values and of data."""
        if not self.sites.constrained:
            return lambda values, data: {}
        return compiled_for_many(traced(self.inside, values, own, precision=precision), count)

    def _run(self, precision: FloatPrecision) -> dict[str, Any]:
        """Settings and observed values of a run of the model, compiled so that nothing else is computed."""

        def run() -> dict[str, Any]:
            return known_of(trace_model(self.model, self.args, self.kwargs, self.key))

        try:
            return compiled(traced(run, precision=precision))()
        except jax.errors.JAXTypeError:  # the model looks at values that only a run has
            with precision.tracing():
                return run()

    def _given(self, values: Mapping[str, Any], data: Data) -> tuple[Callable, tuple, dict[str, Any], dict[str, Any]]:
        """The model as it is to be run: with its arguments, and values to substitute."""
        leaves, structure = jax.tree.flatten((self.args, self.kwargs))
        args, kwargs = jax.tree.unflatten(structure, [data.arguments.get(k, leaf) for k, leaf in enumerate(leaves)])
        return ObservedAs(self.model, data.observed), args, kwargs, with_leaves(data.settings, values)


class _LogProbs(Messenger):
    """Every site's log probability, taken at its own statement, values checked or not."""

    def __init__(self, checks: bool) -> None:
        super().__init__()
        self.checks = checks
        self.log_probs: dict[str, Array] = {}

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "sample":
            # the log probability of a value outside of its support depends on whether NumPyro checks it
            with numpyro.validation_enabled(self.checks):
                self.log_probs[msg["name"]] = scale_and_mask(msg["fn"].log_prob(msg["value"]), msg["scale"])
