r"""A numerical check that a model, or a function, is invariant, with controls that show it could have failed.

Knows models and symmetries; no guides, and nothing of how a symmetry was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from jax import Array

from numpyro_symmetry.discovery.inputs import Question, asking, read_question, refuse_invalid
from numpyro_symmetry.discovery.messages import not_finite_message
from numpyro_symmetry.discovery.proof.diagnose import refusal, words
from numpyro_symmetry.discovery.proof.evidence import draw, gather_evidence
from numpyro_symmetry.discovery.proof.frozen import freeze
from numpyro_symmetry.discovery.proof.prove import prove
from numpyro_symmetry.discovery.proof.trials import movable, trial_elements
from numpyro_symmetry.models import discrete_of, latent_of, outline, trace_model
from numpyro_symmetry.models.data import is_key
from numpyro_symmetry.models.functions import Outputs, outputs_of_function
from numpyro_symmetry.models.given_values import left_to_chance, parameters
from numpyro_symmetry.models.log_joint import Data, LogJoint, sites_of, ways_to_give
from numpyro_symmetry.steps import say, saying
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, as_html, as_symmetry
from numpyro_symmetry.symmetry.arguments import as_count, as_flag
from numpyro_symmetry.symmetry.errors import NotFiniteError
from numpyro_symmetry.symmetry.pytrees import ties_of
from numpyro_symmetry.symmetry.shown import counted


class SymmetryCheck(NamedTuple):
    """Verdict of `check_symmetry`.

    Attributes
    ----------
    status
        ``"passed"``, or ``"inconclusive"`` where no wrong action could be told from a right one.
    largest_gap
        Largest change of a log probability under the group, nats; of a function, of an entry of its output.
    tolerance
        The largest change that passes: 1e-9 (1e-4 if the model rounds to float32) of one plus the largest
        log-likelihood of a datum, or for priors and factors of one plus the norms of those log probabilities that
        change; in double precision no more than 1e-3 nats, unless rounding alone is. Of a function, not one is added
        but the size of its outputs, if that is less.
    control_gap
        Group -> largest change under a deliberately wrong action, nats; far above ``tolerance`` when the check means
        something. It may be 0 where a site has a flat prior, and nothing else reads it.
    num_points, num_elements
        Points about the prior, or about a function's own parameters, and elements tried at each.
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
        """The verdict in a line, and how far right and wrong actions moved the log joint, or a function's outputs."""
        controls = ", ".join(f"{group!r} {gap:.3g}" for group, gap in self.control_gap.items())
        return (
            f"SymmetryCheck({self.status}{f': {self.reason}' if self.reason else ''}; moved by "
            f"{self.largest_gap:.3g} at most, of {self.tolerance:.3g} allowed, under "
            f"{counted(self.num_elements, 'element')} at {counted(self.num_points, 'point')}; under wrong actions by "
            f"{controls or 'nothing'})"
        )

    _repr_html_ = as_html


def check_symmetry(
    model: Callable,
    symmetry: Symmetry,
    model_args: tuple[Any, ...] = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    argnum: int | None = None,
    part: str = "joint",
    rng_key: Array | None = None,
    num_points: int = 3,
    num_elements: int = 2,
    progress_bar: bool = True,
) -> SymmetryCheck:
    r"""Check numerically that a model's joint density is invariant: :math:`\log p(x, g\theta) = \log p(x, \theta)`.

    Elements that generate each group, random ones, and random ones of all groups together are applied to points about
    the prior and near the edges of its support, in float64 whatever the session's precision. The prior and the
    likelihood of **every datum** must stay put. Then, for every group, deliberately wrong actions (one site left out,
    an index copied instead of exchanged) must *not* pass.

    With ``argnum`` the same is asked of any JAX function: :math:`f(g\theta, x) = f(\theta, x)`, entry by entry, about
    the parameters that it is given. A log density, as BlackJAX samples it, is such a function of a position.

    Parameters
    ----------
    model
        NumPyro model; with ``argnum``, a function of a pytree, such as a log density or a network's ``apply``.
    symmetry
        The symmetry that is claimed. Sizes are read off the model's own draws, or off the function's parameters.
    model_args, model_kwargs
        Arguments of the model.
    argnum
        Position of the argument whose arrays may be moved, as for `find_symmetry`. Left out for a model.
    part
        ``"joint"``, or ``"likelihood"`` alone, for priors that tell labels apart (informative, ordered in their means).
    rng_key
        JAX random key; fixed by default, so the verdict is reproducible.
    num_points
        Points about the prior.
    num_elements
        Random elements tried for each group, and for all together, at each point, beside the generators.
    progress_bar
        Whether to show what is being done, if it takes more than two seconds.

    Returns
    -------
    SymmetryCheck
        ``status`` is ``"passed"``, or ``"inconclusive"`` if a group's negative controls pass too, or change nothing but
        priors, or the log joint is blind to the group wherever rounding does not decide.

    Raises
    ------
    SymmetryError
        If the model is not invariant (the message names site, axis, gap and, where one edit repairs it, the remedy), an
        element moves a value off its support, a site or size does not fit, the log joint is not finite, or the model
        has no latent sites or branches on their values. Of a function as `find_symmetry` has it.
    TypeError
        If ``model_args`` is no tuple, holds no argument ``argnum`` or does not fit the model, an argument has a wrong
        type, or this runs under `jit`.
    ValueError
        If ``num_points`` or ``num_elements`` is too small, or there is no such part.

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

    A log density of a position:

    >>> def log_density(position):
    ...     return -0.5 * jnp.sum((position["loc"] - 1.0) ** 2)
    >>> check_symmetry(log_density, Symmetry.mixture("loc"), ({"loc": jnp.zeros(2)},), argnum=0).status
    'passed'
    """
    question = read_question("check_symmetry", model, model_args, model_kwargs, rng_key, argnum, part)
    symmetry = as_symmetry(symmetry)
    num_points = as_count(num_points, "num_points")
    num_elements = as_count(num_elements, "num_elements", minimum=0)

    with asking(question.nouns), saying("checking the symmetry", as_flag(progress_bar, "progress_bar")):
        say(f"reading the {question.nouns.whole}")
        joint, symmetry = (
            _log_joint(question, symmetry) if question.argnum is None else _outputs(question, question.argnum, symmetry)
        )
        frozen = freeze(joint, ways_to_give(joint.args, joint.kwargs)).frozen
        bound = symmetry.bind(draw(frozen, question.rng, 1.0))
        if not movable(bound):
            return SymmetryCheck("passed", 0.0, 0.0, {}, 0, 0, "")
        say(f"evaluating it about {question.nouns.centre}")
        try:
            evidence = gather_evidence(frozen, question.rng, num_points)
        except NotFiniteError as error:
            if question.argnum is not None:
                raise SymmetryError(not_finite_message((question.args, question.kwargs), error)) from error
            refuse_invalid(question)
            raise
        # every group by itself, so that the one that is refused is named
        trials = partial(trial_elements, count=num_elements)
        say("applying elements, and wrong actions that must be seen")
        proof = prove(evidence, bound, question.rng, trials, enough=math.inf, structure_speaks=False)
        if not (proof.holds or proof.is_inconclusive):
            raise refusal(proof, _of_chance(question))
        return SymmetryCheck(
            "passed" if proof.holds else "inconclusive",
            proof.gap.nats,
            proof.gap.allowed,
            {name: gap.nats for name, gap in proof.controls.items()},
            num_points,
            proof.num_elements,
            words(proof),
        )


def _of_chance(question: Question) -> str:
    """In words, what a model leaves to random numbers of its own, which no symmetry moves; empty if nothing."""
    if question.argnum is not None:
        return ""
    model, args, kwargs, key, *_ = question
    trace = trace_model(model, args, kwargs, key)
    place = parameters(trace) | {name: site["value"] for name, site in latent_of(trace).items()}
    found = left_to_chance(model, args, kwargs, trace, place, is_key)  # networks of flax.nnx keep theirs in their state
    if not found:
        return ""
    return (
        f" The distributions of {found} are left to chance at given latent sites: the model draws random numbers "
        "(dropout), or hides a site of its own (handlers.block), and relabelling moves neither. Leave them out here."
    )


def _log_joint(question: Question, symmetry: Symmetry) -> tuple[LogJoint, Symmetry]:
    """The log joint of a model: discrete sites that the symmetry does not act on are summed out.

    The outline is let go: while it lives, JAX may return parts of it, in single precision, when asked for double.
    """
    model, args, kwargs, key, *_ = question
    trace = outline(model, args, kwargs, key)
    sites = sites_of(trace, [name for name in discrete_of(trace) if name not in symmetry.axes], symmetry.axes)
    return LogJoint(model, args, kwargs, key, sites), symmetry


def _outputs(question: Question, argnum: int, symmetry: Symmetry) -> tuple[Outputs, Symmetry]:
    """The outputs of a function; one array at two paths is one site, which moves at both."""
    outputs = outputs_of_function(question.model, question.args, question.kwargs, argnum)
    outputs.program(Data({}, {}, {}))  # refused unless it is deterministic
    ties = ties_of(question.args[argnum])
    symmetry = replace(symmetry, axes={site: e for site, e in symmetry.axes.items() if site not in ties})
    # values of a family take each other's places: one that is negative speaks for all
    positive = outputs.sites.constrained
    real = {site for stack in symmetry.stacks.values() if not positive.issuperset(stack.sites) for site in stack.sites}
    return replace(outputs, sites=outputs.sites._replace(constrained=positive - real)), symmetry
