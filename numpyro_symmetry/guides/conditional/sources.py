"""Where a conditional comes from: the observations of a model, or pseudo-observations at inducing inputs.

Both are rows of one linear model; the second sees no data, so a batch may be all that there is. Knows models; not
autoguides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from numpyro_symmetry.guides.conditional.rows_of_data import (
    ShapesAt,
    arguments_by_row,
    local_sites,
    refuse_local_sites,
    refuse_picked_rows,
    refuse_rows_of_arguments,
    shapes_at,
)
from numpyro_symmetry.guides.conditional.unfit import refuse_subsampled
from numpyro_symmetry.guides.inputs import (
    AtInputs,
    beside,
    holders_of_observations,
    inducing_inputs,
    named_arguments,
    with_inputs,
)
from numpyro_symmetry.guides.linear.affine import (
    AffineParts,
    LinearModel,
    SiteDimensions,
    Trace,
    are_apart,
    dimensions_of,
    parts_given,
    read,
    shared_outputs,
)
from numpyro_symmetry.guides.linear.least_squares import WeightFactors, gaussian_conditional
from numpyro_symmetry.guides.linear.likelihoods import NORMAL, Observation
from numpyro_symmetry.guides.linear.linear_part import linear_outputs
from numpyro_symmetry.guides.linear.priors import Prior
from numpyro_symmetry.guides.linear.rows import Blocks, Together, WidestLast
from numpyro_symmetry.models import observed_of
from numpyro_symmetry.models.factors import jitted
from numpyro_symmetry.models.fitted import own_parameter
from numpyro_symmetry.models.given_values import parameters, trace_given
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.shown import counted

# start of pseudo-observations' precision times their variance: a noise of a seventh of how they vary
_PRECISION, _LEAST_VARIANCE = 50.0, 1e-6
# how far apart single precision may leave observations that are all alike, beside their size
_ALIKE = 1e-6


class Conditional(NamedTuple):
    """Sites given the others: maps of z by their priors, z Gaussian.

    Attributes
    ----------
    dimensions
        Site -> how many dimensions an event has, and the plates around it.
    priors
        Site -> its prior.
    loc
        Site -> mean of z.
    model
        Draws z site by site.
    """

    dimensions: dict[str, SiteDimensions]
    priors: dict[str, Prior]
    loc: Blocks
    model: Together | WidestLast


Fitted = tuple[dict[str, Prior], Blocks, Together | WidestLast]


class FromObservations(NamedTuple):
    """Sites given the model's own observations.

    Attributes
    ----------
    sites
        Sites drawn given the others.
    observed
        Observed sites whose predictor is affine in them.
    num_outputs
        Outputs that share a linear map, 0 if it is one vector.
    factors
        Observed site -> where its learned factors start; sites whose likelihood is Gaussian learn none.
    num_steps
        Steps to the mean where factors are learned.
    """

    sites: tuple[str, ...]
    observed: tuple[str, ...]
    num_outputs: int
    factors: dict[str, float]
    num_steps: int

    # whose prior depends on others is not affine in them
    children = ()

    def read(
        self, model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Array], prefix: str
    ) -> Conditional:
        """Priors, mean and precision of the sites at values of the others."""
        start = trace_given(model, args, kwargs, given)
        if absent := set(self.observed) - set(observed_of(start)):
            # Predictive asks for draws only, and everything else for a density
            remedy = (
                "To predict at new inputs bind the guide to its data: "
                "Predictive(model, guide=guide.given(*training_args), params=params)(rng_key, *new_args)."
                if numpyro.get_mask() is False
                else "Pass the data of training, inputs and targets, as to SVI: guide(x, y)."
            )
            raise SymmetryError(
                f"The conditional of {list(self.sites)} is made from the observations {sorted(absent)}, and the guide "
                f"was called without them. {remedy}"
            )
        refuse_subsampled(start)
        factors = {
            site: WeightFactors._make(
                own_parameter(f"{prefix}_{site}_{what}", jnp.asarray(value), constraint=constraints.positive)
                for what in WeightFactors._fields
            )
            for site, value in self.factors.items()
        }

        def fit(given: dict[str, Array], factors: dict[str, WeightFactors]) -> Fitted:
            linear = read(model, args, kwargs, given, self.sites, self.observed, self.num_outputs)
            return linear.priors, *gaussian_conditional(linear, factors, self.num_steps)

        # SVI.init calls a guide eagerly, which would compile every operation apart
        return Conditional(dimensions_of(start, self.sites), *jitted(fit)(given | parameters(start), factors))

    def explain(self) -> str:
        """How the sites follow, in a line."""
        how = f"in {counted(self.num_steps, 'step')} of learned size" if self.factors else "exactly"
        return f"{_follow(self.sites)} the rest {how}, given {', '.join(self.observed)}"


class FromInducing(NamedTuple):
    """Sites given pseudo-observations, at learned inputs, of quantities that follow linearly from the sites.

    Attributes
    ----------
    sites
        Sites drawn given the others.
    observed
        The model's observed sites.
    inputs
        Argument of the model -> inducing inputs to start from.
    held
        Argument of the model -> its value at the inducing inputs, where it is not learned.
    dropped
        Arguments that hold observations, which are left out.
    units
        The unit in which the pseudo-observations of each linear quantity are learned, so that steps of one size fit: a
        parameter that stays, and goes with those that are learned.
    outputs
        Pseudo-observations to start from, one array for each linear quantity.
    precisions
        Their precisions to start from, which outputs of a row share.
    num_outputs
        As in `FromObservations`.
    local
        Latent sites with values for every row, on which nothing here depends.
    children
        Latent sites whose prior in the model depends on those that follow.
    """

    sites: tuple[str, ...]
    observed: tuple[str, ...]
    inputs: dict[str, Array]
    held: dict[str, Any]
    dropped: tuple[str, ...]
    units: tuple[Array, ...]
    outputs: tuple[Array, ...]
    precisions: tuple[Array, ...]
    num_outputs: int
    local: tuple[str, ...] = ()
    children: tuple[str, ...] = ()

    @property
    def num_inputs(self) -> int:
        """How many inputs there are."""
        return next(iter(self.inputs.values())).shape[0]

    def read(
        self, model: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Array], prefix: str
    ) -> Conditional:
        """Priors, mean and precision of the sites at values of the others."""
        name = f"{prefix}_{self.sites[0]}"
        inputs: Any = {k: own_parameter(f"{name}_inducing_{k}", value) for k, value in self.inputs.items()}
        args, kwargs = with_inputs(model, args, kwargs, inputs | self.held, self.dropped)
        model = AtInputs(model, self.num_inputs)
        given = {site: value for site, value in given.items() if site not in self.local}
        start = trace_given(model, args, kwargs, given)

        def own(what: str, values: tuple[Array, ...], **constraint: Any) -> list[Array]:
            return [own_parameter(f"{name}_{what}_{k}", value, **constraint) for k, value in enumerate(values)]

        units = jax.lax.stop_gradient(own("unit", self.units, constraint=constraints.positive))
        outputs = [unit * x for unit, x in zip(units, own("output", self.outputs), strict=True)]
        precisions = own("precision", self.precisions, constraint=constraints.positive)
        scales = [unit * jax.lax.rsqrt(x) for unit, x in zip(units, precisions, strict=True)]

        def fit(given: dict[str, Array], outputs: list[Array], scales: list[Array]) -> Fitted:
            quantities = linear_quantities(model, args, kwargs, given, self.sites, self.observed)
            num_outputs = 0 if are_apart(quantities.trace, self.sites) else self.num_outputs
            at_zero, slopes = quantities.slopes(num_outputs)
            seen = {
                part: Observation(NORMAL, dist.Normal(0.0, scale), value, predictor, jnp.ones(()))
                for (part, predictor), value, scale in zip(at_zero.items(), outputs, scales, strict=True)
            }
            linear = LinearModel(seen, slopes, quantities.priors, num_outputs)
            return linear.priors, *gaussian_conditional(linear, {}, 1)

        return Conditional(dimensions_of(start, self.sites), *jitted(fit)(given | parameters(start), outputs, scales))

    def explain(self) -> str:
        """How the sites follow, in a line."""
        at = f"{counted(self.num_inputs, 'learned input')} {', '.join(self.inputs)}"
        held = f", where {', '.join(self.held)} keeps what it holds" if self.held else ""
        return f"{_follow(self.sites)} the rest by pseudo-observations at {at}{held}"


Source = FromObservations | FromInducing


def _follow(sites: tuple[str, ...]) -> str:
    return f"{', '.join(sites)} follow{'s' if len(sites) == 1 else ''}"


def linear_quantities(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: Mapping[str, Array],
    sites: tuple[str, ...],
    observed: tuple[str, ...],
) -> AffineParts:
    """Quantities in observed distributions that are linear in some sites."""

    def distributions(trace: Trace) -> list[Any]:
        return [jax.tree.leaves(trace[site]["fn"]) for site in observed]

    found = parts_given(model, args, kwargs, given, sites, distributions)
    return found._replace(at=lambda values: {str(k): x for k, x in enumerate(linear_outputs(found.at, values))})


def start_of_inducing(
    model: Callable,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    places: Sequence[Mapping[str, Any]],
    sites: tuple[str, ...],
    seen: Mapping[str, Observation],
    trace: Trace,
    inducing: Any,
) -> FromInducing:
    """Pseudo-observations to start from: the targets of rows that are data, else what a draw from the prior gives.

    Raises
    ------
    SymmetryError
        If the model does not run without its observations, or what follows linearly from the sites has no row for every
        inducing input.
    """
    place, observed = places[0], tuple(observed_of(trace))
    dropped = holders_of_observations(model, args, kwargs, trace)
    inputs, held, rows = inducing_inputs(inducing, model, args, kwargs, dropped)
    number = next(iter(inputs.values())).shape[0]
    at = partial(shapes_at, model, args, kwargs, dropped, parameters(trace))
    of_rows = beside(inputs | held, model, args, kwargs, dropped)
    by_row = arguments_by_row(at, inputs | held, of_rows, len(named_arguments(model, args, kwargs)[next(iter(inputs))]))
    held = _with_what_it_needs(at, inputs, held | {name: rows[name] for name in by_row if name in rows}, rows, dropped)
    local = {k: x for k, x in local_sites(at, inputs, held, number).items() if k in place}
    given = {k: jax.tree.map(jnp.asarray, x) for k, x in place.items() if k not in sites and k not in local}
    values = {site: jnp.asarray(place[site]) for site in sites}
    at_inputs = AtInputs(model, number)

    def read_there(others: dict[str, Any]) -> Any:
        """Priors and linear quantities at inducing inputs, at other values of arguments and of sites."""
        arguments = {name: value for name, value in others.items() if name in of_rows}
        there = with_inputs(model, args, kwargs, inputs | held | arguments, dropped)
        quantities = linear_quantities(at_inputs, *there, given | others, sites, observed)
        return quantities.priors, quantities.at(values)

    refuse_local_sites(read_there, local, sites)
    if unnamed := {name: jax.tree.map(jnp.asarray, of_rows[name]) for name in by_row if name not in held}:
        refuse_rows_of_arguments(read_there, unnamed, next(iter(inputs)))
    new_args, new_kwargs = with_inputs(model, args, kwargs, inputs | held, dropped)
    refuse_picked_rows(at_inputs, new_args, new_kwargs, given | values, observed)

    quantities = partial(linear_quantities, at_inputs, new_args, new_kwargs, sites=sites, observed=observed)
    # jitted, though it runs once: eagerly, each of the model's operations would be compiled apart
    found = jax.jit(lambda given, values: quantities(given).at(values))(given, values)
    _refuse_nothing_to_observe(found, values, number)
    elsewhere = [{name: value for name, value in place.items() if name not in local} for place in places]
    num_outputs = shared_outputs(quantities, elsewhere, sites)
    targets = _targets(named_arguments(model, args, kwargs), inputs, seen)
    started = [_pseudo_observation(part, targets, num_outputs) for part in found.values()]
    return FromInducing(
        sites, observed, inputs, held, dropped, *zip(*started, strict=True), num_outputs=num_outputs, local=tuple(local)
    )


def _refuse_nothing_to_observe(found: Mapping[str, Array], values: Mapping[str, Array], number: int) -> None:
    """Refuse sites from which nothing follows linearly that has a row for every inducing input."""
    sites = list(values)
    if not found:
        raise SymmetryError(
            f"No observed distribution depends on {sites}, so there is nothing for pseudo-observations to "
            "observe: leave them to the base guide."
        )
    for part in found.values():
        if raw := [s for s in sites if part.shape == values[s].shape and np.array_equal(part, values[s])]:
            raise SymmetryError(
                f"Site {raw[0]!r} enters the model by an operation that is not linear in it, so there is nothing for "
                "pseudo-observations to observe: leave it to the base guide."
            )
        if number not in part.shape:
            raise SymmetryError(
                f"At {counted(number, 'inducing input')} what follows linearly from {sites} has shape {part.shape}, "
                "without an axis of that size. A plate of fixed subsample_size may be why: use subsample_size=len(x)."
            )


def _pseudo_observation(
    part: Array, targets: tuple[np.ndarray, float | None] | None, num_outputs: int
) -> tuple[Array, Array, Array]:
    """The unit of a linear quantity, where its pseudo-observations start, and precisions, which outputs of a row share.

    The unit is a power of two, by which nothing is rounded: the nearest to how far apart the observations lie.
    """
    target, precision = targets if targets is not None and targets[0].shape == part.shape else (part, None)
    target = np.asarray(target, np.float64)
    spread = target.std()
    varies = spread > _ALIKE * np.abs(target).max(initial=0.0)
    unit = float(np.exp2(np.round(np.log2(spread)))) if varies else 1.0
    known = _PRECISION / max(np.var(target / unit), _LEAST_VARIANCE) if precision is None else precision * unit**2
    shape = (*part.shape[:-1], 1) if num_outputs else part.shape
    return jnp.asarray(unit, part.dtype), jnp.asarray(target / unit, part.dtype), jnp.full(shape, known, part.dtype)


def _with_what_it_needs(
    at: ShapesAt,
    inputs: dict[str, Array],
    held: dict[str, Any],
    rows: dict[str, Any],
    dropped: tuple[str, ...],
) -> dict[str, Any]:
    """Arguments held at inducing inputs, with those rows of the data, as of a mask, that the model needs there too."""
    number = next(iter(inputs.values())).shape[0]
    if not isinstance(error := at(inputs | held, number), Exception):
        return held
    for extra in [*({name: value} for name, value in rows.items()), *([rows] if len(rows) > 1 else [])]:
        if not isinstance(at(inputs | held | extra, number), Exception):
            return held | extra
    raise SymmetryError(
        f"The model could not be run at inducing inputs without its observations {list(dropped)}: {error}. It must "
        "take None for them, and sizes of its plates from its inputs (subsample_size=len(x)). A mask or whole numbers "
        "for each row can be named beside them: inducing={'x': x[:100], 'seen': seen[:100]}."
    ) from error


def _targets(
    named: Mapping[str, Any], inputs: Mapping[str, Array], seen: Mapping[str, Observation]
) -> tuple[np.ndarray, float | None] | None:
    """Likely predictors at inducing inputs that are rows of the data, and a precision for them."""
    if len(seen) != 1 or len(inputs) != 1:
        return None
    (name, rows), (observation,) = next(iter(inputs.items())), seen.values()
    data = np.asarray(named[name])
    if observation.predictor.shape[0] != len(data):
        return None
    place = {row.tobytes(): k for k, row in enumerate(data)}
    where = [place.get(row.tobytes(), -1) for row in np.asarray(rows, data.dtype)]
    if -1 in where:
        return None
    per_row = float(jnp.mean(observation.entry_weight)) * len(data) / len(rows)
    precision = None if observation.kind.exact else per_row * observation.kind.factor(observation.fn)
    return np.asarray(observation.kind.quantity(observation.fn, observation.fitted))[where], precision
