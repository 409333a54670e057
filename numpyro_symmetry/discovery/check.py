r"""A numerical check that a model is invariant under a symmetry, with controls that show it could have failed.

Knows models and symmetries; no guides, and nothing of how a symmetry was found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.discovery.diagnose import explain, refuse_off_support
from numpyro_symmetry.discovery.evidence import Evidence, gather_evidence, nudged
from numpyro_symmetry.discovery.inputs import asking, read_question
from numpyro_symmetry.discovery.joint import FrozenModel, NotWidenedError, freeze
from numpyro_symmetry.discovery.points import draw
from numpyro_symmetry.discovery.trials import (
    CONTROL_FACTOR,
    Gap,
    Values,
    control_gap,
    largest_gap,
    movable,
    move,
    random_elements,
    trial_elements,
)
from numpyro_symmetry.symmetry import Element, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import as_count
from numpyro_symmetry.symmetry.axes import names_in
from numpyro_symmetry.symmetry.shown import as_html


class SymmetryCheck(NamedTuple):
    """Verdict of `check_symmetry`.

    Attributes
    ----------
    status
        ``"passed"``, or ``"inconclusive"`` where no wrong action could be told from a right one.
    largest_gap
        Largest change of a log probability under the group, nats.
    tolerance
        What that change may be: 1e-9 (1e-4 if the model rounds to float32) of one plus the largest log-likelihood of a
        datum, or for priors and factors of one plus the norms of those log probabilities that change.
    control_gap
        Group -> largest change under a deliberately wrong action, nats; far above ``tolerance`` when the check means
        something. It may be 0 where a site has a flat prior, and nothing else reads it.
    num_points, num_elements
        Points about the prior, and elements tried at each.
    reason
        Why it is inconclusive; empty if passed.
    """

    status: str
    largest_gap: float
    tolerance: float
    control_gap: dict[str, float]
    num_points: int
    num_elements: int
    reason: str

    def __repr__(self) -> str:
        """The verdict in a line, and how far wrong actions moved the log joint."""
        controls = ", ".join(f"{group!r} {gap:.3g}" for group, gap in self.control_gap.items())
        return (
            f"SymmetryCheck({self.status}{f': {self.reason}' if self.reason else ''}; log probabilities moved by "
            f"{self.largest_gap:.3g} nats at most, of {self.tolerance:.3g} allowed, under {self.num_elements} elements "
            f"at {self.num_points} points; under wrong actions by {controls or 'nothing'})"
        )

    _repr_html_ = as_html


def check_symmetry(
    model: Callable,
    symmetry: Symmetry,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    rng_key: Array | None = None,
    num_points: int = 3,
    num_elements: int = 2,
) -> SymmetryCheck:
    r"""Check numerically that a model's joint density is invariant: :math:`\log p(x, g\theta) = \log p(x, \theta)`.

    Elements that generate each group, random ones, and random ones of all groups together are applied to points about
    the prior and near the edges of its support, in float64 whatever the session's precision. The prior and the
    likelihood of **every datum** must stay put. Then, for every group, deliberately wrong actions (one site left out,
    an index copied instead of exchanged) must *not* pass.

    Parameters
    ----------
    model
        NumPyro model.
    symmetry
        What is claimed. Sizes are read off the model's own draws.
    model_args, model_kwargs
        Arguments of the model.
    rng_key
        JAX random key; fixed by default, so the verdict is reproducible.
    num_points
        Points about the prior.
    num_elements
        Random elements tried for each group, and for all together, at each point, beside the generators.

    Returns
    -------
    SymmetryCheck
        ``status`` is ``"passed"``, or ``"inconclusive"`` if a group's negative controls pass too.

    Raises
    ------
    SymmetryError
        If the model is not invariant (the message names site, axis, gap and, where one edit repairs it, the remedy), an
        element moves a value off its support, a site or size does not fit, the log joint is not finite, or the model
        has no latent sites or branches on their values.
    TypeError
        If ``model_args`` is no tuple or does not fit the model, an argument has a wrong type, or this runs under `jit`.
    ValueError
        If ``num_points`` or ``num_elements`` is too small.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> from numpyro_symmetry import Symmetry, check_symmetry
    >>> def model(y):
    ...     loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    ...     mixture = dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), dist.Normal(loc, 1.0))
    ...     numpyro.sample("y", mixture.expand([3]).to_event(1), obs=y)
    >>> check_symmetry(model, Symmetry.mixture("loc"), (jnp.array([-1.0, 0.5, 2.0]),)).status
    'passed'
    """
    asked = read_question("check_symmetry", model, model_args, model_kwargs, rng_key)
    if not isinstance(symmetry, Symmetry):
        raise TypeError(f"symmetry must be a Symmetry; got {type(symmetry).__name__}.")
    num_points = as_count(num_points, "num_points")
    num_elements = as_count(num_elements, "num_elements", minimum=0)

    def check(args: tuple, kwargs: dict, single: bool) -> SymmetryCheck:
        frozen = freeze(asked.model, args, kwargs, asked.key, symmetry.axes, single=single)
        bound = symmetry.bind(draw(frozen, asked.rng, 1.0))
        if not movable(bound):
            return SymmetryCheck("passed", 0.0, 0.0, {}, 0, 0, "")
        return prove(gather_evidence(frozen, asked.rng, num_points), bound, asked.rng, num_elements)

    with asking():
        return in_double(check, asked.args, asked.kwargs)


Result = TypeVar("Result")
_ROUNDING = 1e-13
# what JAX says of a program of both precisions
_MIXED = "Cannot lower jaxpr"


def in_double(function: Callable[[tuple, dict, bool], Result], args: tuple, kwargs: dict) -> Result:
    """Call a function of a model's arguments in double precision, or in the session's if the model cannot.

    The function is told whether to trace the model in single precision all the same, and to compute it in double.
    """

    def prepared(given: Any, kinds: str) -> Any:
        # copies: while a program in the session's precision lives, JAX keeps its constants by the arrays they are, and
        # finds them again in single precision when asked for double
        def one(x: Any) -> Any:
            if not _is_numbers(x):
                return x
            return jnp.asarray(x.copy()) if x.dtype.kind in kinds else x.copy()

        return jax.tree.map(one, given)

    # a model may read sizes off NumPy data, of labels mostly, which then stay with NumPy; or of any, which stay so too
    for kinds in ("biufc", "fc", ""):
        try:
            with jax.enable_x64(True), jax.default_matmul_precision("highest"):
                return function(prepared(args, kinds), prepared(kwargs, kinds), False)
        except TypeError:
            pass  # nor can a scan whose carry is pinned to 32 bits run in 64; any other TypeError comes back below
        except ValueError as error:
            if not str(error).startswith(_MIXED):
                raise
            break  # the arrays that the model closes over were not ours to copy
    with jax.default_matmul_precision("highest"):
        try:
            with jax.enable_x64(True):
                return function(args, kwargs, True)
        except NotWidenedError:
            return function(args, kwargs, False)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"


def _is_firmly_inside(frozen: FrozenModel, place: Values) -> bool:
    """Whether a point stays in its supports when rounded otherwise: else a relabelling may seem to leave them."""
    both = (place, nudged(place, _ROUNDING))
    return all(bool(inside) for point in both for inside in frozen.inside(point).values())


def _refuse_outside(frozen: FrozenModel, symmetry: Symmetry, label: str, place: Values, moved: Values) -> None:
    """Refuse an element that takes a value out of its support, unless rounding alone may have done it."""

    def lies_inside(nudge: float) -> bool:
        point = nudged(moved, nudge) if nudge else moved
        return all(map(bool, frozen.inside(point).values()))

    if not any(map(lies_inside, (0.0, _ROUNDING, -_ROUNDING))):
        refuse_off_support(frozen, symmetry, label, place, moved)


def _try(evidence: Evidence, symmetry: Symmetry, elements: list[tuple[str, Element]], place: Values) -> Gap:
    """The largest change under some elements at a point, none of them more than rounding."""
    frozen = evidence.frozen
    base, worst = frozen.log_probs(place), Gap("", 0.0, 0.0)
    for label, element in elements:
        after = move(symmetry, element, place)
        _refuse_outside(frozen, symmetry, label, place, after)
        gap = largest_gap(frozen, base, frozen.log_probs(after))
        if not gap.ratio <= 1.0:
            raise SymmetryError(explain(frozen, symmetry, label, element, [*evidence.places, place], gap))
        worst = max(worst, gap, key=lambda gap: gap.ratio)
    return worst


def refusal(
    evidence: Evidence, symmetry: Symmetry, rng: np.random.Generator, num_elements: int, num_far: int = 0
) -> SymmetryError | None:
    """Why a symmetry fails the numerical check, as `prove` would say it; ``None`` if it does not."""
    try:
        reason = prove(evidence, symmetry, rng, num_elements, num_far).reason
    except SymmetryError as error:
        return error
    return SymmetryError(reason) if reason else None


def prove(
    evidence: Evidence, symmetry: Symmetry, rng: np.random.Generator, num_elements: int, num_far: int = 0
) -> SymmetryCheck:
    """Try a bound symmetry, with a number of random elements, and of all groups at once at each point far out.

    Far out a likelihood may saturate, and then show an order of rounding as a change: such points are for what has
    nothing else to speak for it, and for signs, which are not to be given out in doubt.

    Raises
    ------
    SymmetryError
        If an element changes a log probability, or moves a value off its support.
    """
    frozen, places = evidence.frozen, evidence.places
    elements = trial_elements(symmetry, rng, num_elements)
    # densities may agree where supports differ: those are compared near their edges, where prior draws seldom come
    for place in evidence.edges if frozen.constrained & set(symmetry.axes) else ():
        if not _is_firmly_inside(frozen, place):
            continue
        for label, element in elements:
            _refuse_outside(frozen, symmetry, label, place, move(symmetry, element, place))
    worst = Gap("", 0.0, 0.0)
    for place in places:
        worst = max(worst, _try(evidence, symmetry, elements, place), key=lambda gap: gap.ratio)
    for place in evidence.far:
        _try(evidence, symmetry, random_elements(symmetry, rng, num_far), place)
    watched = movable(symmetry) if evidence.controls else []
    control = {name: control_gap(frozen, symmetry, name, places[0]) for name in watched}
    # a prior that is flat is invariant whatever is done to it: where nothing else reads a site, there is no more to see
    empty = {name for name in watched if _sites_of(symmetry, name) <= frozen.unread}
    blind = [name for name, gap in control.items() if name not in empty and not gap.ratio > CONTROL_FACTOR]
    reason = (
        f"no wrong action on group {blind[0]!r} changes the log joint either, so invariance shows nothing; "
        "does the model use these sites?"
        if blind
        else ""
    )
    return SymmetryCheck(
        "inconclusive" if blind else "passed",
        worst.nats,
        worst.allowed,
        {name: gap.nats for name, gap in control.items()},
        len(places),
        len(elements),
        reason,
    )


def _sites_of(symmetry: Symmetry, name: str) -> set[str]:
    return {site for site, entries in symmetry.axes.items() if name in names_in(entries)}
