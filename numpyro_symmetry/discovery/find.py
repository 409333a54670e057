"""`find_symmetry`: the group read off a model, verified numerically before it is given out.

Typing says what may be free, numbers say what is: neither is trusted alone. Knows models and symmetries; no guides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from jax import Array

from numpyro_symmetry.discovery.inputs import Question, asking, read_question, refuse_invalid
from numpyro_symmetry.discovery.labels.parity import even_sets
from numpyro_symmetry.discovery.labels.program import TracedLogJoint, read_function, read_program
from numpyro_symmetry.discovery.labels.reading import Reading
from numpyro_symmetry.discovery.labels.rules import RULES
from numpyro_symmetry.discovery.labels.terms import IS_DATA, Reason, Term, axis, pin, pinned
from numpyro_symmetry.discovery.labels.usage import marks_of_usage
from numpyro_symmetry.discovery.labels.values import Dependence, Typed, Value
from numpyro_symmetry.discovery.labels.walk import Rule, Walk
from numpyro_symmetry.discovery.messages import (
    ARGUMENTS_NOT_FINITE,
    UNREAD,
    positive_messages,
    reason_of,
    refusal_message,
    unread_messages,
)
from numpyro_symmetry.discovery.proof.cells import with_cells
from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.exchange import Suspects, is_plausible, suspects_of, with_exchanges
from numpyro_symmetry.discovery.proof.frozen import freeze
from numpyro_symmetry.discovery.proof.propose import Block, Claim, proved_groups, with_blocks
from numpyro_symmetry.discovery.proof.prove import Proof
from numpyro_symmetry.discovery.proof.signs import PartOfSite, cuts_of, in_parts, num_parts, with_signs
from numpyro_symmetry.discovery.proof.sources import Sources
from numpyro_symmetry.models.data import holds_nan
from numpyro_symmetry.models.functions import Outputs, outputs_of_function
from numpyro_symmetry.models.log_joint import LogJoint, Way
from numpyro_symmetry.models.sites import is_ordered
from numpyro_symmetry.steps import say, saying
from numpyro_symmetry.symmetry import Finding, Symmetry, SymmetryError, warn
from numpyro_symmetry.symmetry.arguments import as_flag
from numpyro_symmetry.symmetry.axes import names_in
from numpyro_symmetry.symmetry.components import by_key
from numpyro_symmetry.symmetry.errors import NotFiniteError
from numpyro_symmetry.symmetry.findings import POSITIVE
from numpyro_symmetry.symmetry.pieces import is_cut
from numpyro_symmetry.symmetry.pytrees import ties_of


def find_symmetry(
    model: Callable,
    model_args: tuple[Any, ...] = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    argnum: int | None = None,
    part: str = "joint",
    rng_key: Array | None = None,
    signs: bool = True,
    rules: Mapping[str, Rule] | None = None,
    progress_bar: bool = True,
) -> Symmetry:
    r"""Find the permutations of axes, and changes of sign, that leave a log joint, or the outputs of a function, alone.

    The log joint is traced with its data opaque, and every axis of every intermediate value is typed so that
    :math:`v(g\theta) = g\,v(\theta)`; what no rule carries through is pinned. The group that remains is then verified
    numerically, as `check_symmetry` does; what fails is dropped with a warning.

    With ``argnum`` the same is asked of any JAX function: :math:`f(g\theta, x) = f(\theta, x)`, entry by entry.

    Parameters
    ----------
    model
        NumPyro model. Discrete latent sites are summed out by funsor where it is installed. With ``argnum``, a function
        of a pytree, such as a network's ``apply`` or a log density.
    model_args, model_kwargs
        Arguments of the model. Arrays among them, and tables of pandas and xarray, are data: nothing depends on which
        of their entries coincide. Numbers of Python, in lists too, are settings.
    argnum
        Position of the argument whose arrays may be moved: parameters. Sites are the paths to them,
        ``"params.Dense_0.kernel"``. Left out for a model.
    part
        Of a model: ``"joint"``, or ``"likelihood"`` alone, for priors that tell labels apart; the priors of continuous
        sites are then flat.
    rng_key
        JAX random key; fixed by default.
    signs
        Also look for changes of sign: of indices of the groups that were found (odd activations, factors), and of sites
        as a whole, numbers without axes among them. Without it, permutations alone.
    rules
        Name of a JAX primitive -> how it passes labels on, for those of which this package knows nothing, or other than
        it knows; the page *Finding a symmetry* has an example.
    progress_bar
        Whether to show what is being done, if it takes more than two seconds.

    Returns
    -------
    Symmetry
        Bound, and with `Symmetry.explain`; trivial if there is none.

    Raises
    ------
    SymmetryError
        If the model has no latent sites (a log density, say), branches on their values, or its data hold NaN. If a
        function's argument holds no arrays, or NaN, or if it returns no arrays, or others each time.
    TypeError
        If ``model_args`` is no tuple, holds no argument ``argnum`` or does not fit the model, an argument has a wrong
        type, or this runs under `jit`.
    ValueError
        If there is no such part.

    Warns
    -----
    SymmetryWarning
        If real arrays of a function's parameters are read by nothing, so that they stay. If a group that the structure
        of the model allows fails the numerical check; it is left out. If the log joint is
        finite hardly anywhere, so that nothing can be verified. If components may be exchanged that no group can
        carry, as sites with signs of their own; the message says what to write instead. If the model observes nothing
        because data were left out. If discrete sites cannot be summed out and axes stay that may have their values
        for labels.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> from numpyro_symmetry import find_symmetry
    >>> def model(x, y):
    ...     w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([1, 5]).to_event(2))
    ...     w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
    ...     numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 0.1).to_event(1), obs=y)
    >>> find_symmetry(model, (jnp.ones((3, 1)), jnp.zeros(3)))
    Symmetry(±S5 on 'w2'; log|G| = 8.3 nats)
      w1: (·, w2)
      w2: (w2)

    Parameters of a function:

    >>> import jax
    >>> def network(params, x):
    ...     return jax.nn.relu(x @ params["hidden"]["w"]) @ params["output"]["w"]
    >>> params = {"hidden": {"w": jnp.ones((2, 5))}, "output": {"w": jnp.ones((5, 3))}}
    >>> find_symmetry(network, (params, jnp.ones((4, 2))), argnum=0)
    Symmetry(S5 on 'hidden'; log|G| = 4.8 nats)
      hidden.w: (·, hidden)
      output.w: (hidden, ·)
    """
    question = read_question("find_symmetry", model, model_args, model_kwargs, rng_key, argnum, part)
    signs = as_flag(signs, "signs")
    if not (rules is None or isinstance(rules, Mapping)) or not all(map(callable, (rules or {}).values())):
        raise TypeError(f"rules must be a mapping from names of JAX primitives to functions; got {rules!r}.")
    with asking(question.nouns), saying("finding the symmetry", as_flag(progress_bar, "progress_bar")):
        found, messages = _symmetry_of(question, {**RULES, **(rules or {})}, signs=signs)
    if question.argnum is not None:
        own = question.args[question.argnum]
        found = _with_ties(found, ties_of(own))
        found = replace(found, nouns=question.nouns)
        messages += [*unread_messages(found, question.argnum, own), *positive_messages(found, question.argnum, own)]
    for text in (*messages, *map(str, found.out_of_reach)):
        warn(text)
    return found


def _with_ties(found: Symmetry, ties: Mapping[str, str]) -> Symmetry:
    """The symmetry on all paths: an array that stands at further paths too (``ties``) is moved there as well."""
    axes = {name: found.axes[first] for name, first in ties.items() if first in found.axes}
    own = by_key((finding.site, finding) for finding in found.findings)
    findings = [finding._replace(site=name) for name, first in ties.items() for finding in own.get(first, ())]
    return replace(found, axes={**found.axes, **axes}, findings=(*found.findings, *findings))


def without_parameters(found: Symmetry) -> Symmetry:
    """The found symmetry restricted to groups that stand on latent sites alone, since draws hold no parameters."""
    parameters = {finding.site for finding in found.findings if finding.is_parameter}
    held = {name for site, entries in found.axes.items() if site in parameters for name in names_in(entries)}
    return found.restrict(found.groups.keys() - held) if held else found


def _symmetry_of(
    question: Question, rules: Mapping[str, Rule], *, signs: bool, zeros_may_fall: bool = True
) -> tuple[Symmetry, list[str]]:
    """The symmetry of a model, and the warnings for its user."""
    read = _typed(question, rules, signs=signs, zeros_may_fall=zeros_may_fall)
    # labels leave no group, no axes of which only numbers can tell, no signs and no exchanges
    if not (
        read.claimed.groups
        or read.reading.blocks()
        or read.even
        or is_plausible(read.suspects, read.reading.unlabelled_axes(read.claimed))
    ):
        return replace(read.claimed, findings=read.findings(read.claimed, read.claimed, {})), []
    try:
        sources = _sources(read, question)
    except NotFiniteError as error:
        if question.argnum is not None and zeros_may_fall:
            # zeros may have to stay at least zero: the second moments of an optimiser before its first step
            return _symmetry_of(question, rules, signs=signs, zeros_may_fall=False)
        if question.argnum is None:
            refuse_invalid(question)
        elif holds_nan((question.args, question.kwargs)):
            raise SymmetryError(ARGUMENTS_NOT_FINITE) from error
        if holds_nan((question.args, question.kwargs, read.joint.sites.observed)):
            raise
        # no error: NUTS may well run the model, as it starts wherever the log joint is finite
        nothing = read.claimed.restrict([])
        refused = dict.fromkeys(read.claimed.groups, question.nouns.not_finite)
        findings = read.findings(nothing, read.claimed, refused)
        return replace(nothing, findings=findings), [f"No symmetry could be verified. {error}"]
    return _proved(read, sources)


class _Read(NamedTuple):
    """What typing has read off the program of a model.

    Attributes
    ----------
    reading
        Labels of its axes.
    claimed
        The symmetry that these labels allow.
    even
        Sets of sites, or of their parts, that parity allows to negate.
    joint, way
        What was traced, and which data are arguments of the program.
    opaque
        Whether all of its arguments were opaque.
    suspects
        What might be exchanged between sites.
    signs
        Whether signs are looked for.
    kept
        Arrays without signs that would have some if any of their entries were negative.
    """

    reading: Reading
    claimed: Symmetry
    even: list[frozenset[PartOfSite]]
    joint: LogJoint | Outputs
    way: Way
    opaque: bool
    suspects: Suspects
    signs: bool
    kept: frozenset[str]

    def may_be_signed(self, symmetry: Symmetry) -> bool:
        """Whether any signs of this symmetry are to be tried."""
        return self.signs and (bool(self.even) or any(map(is_cut, symmetry.axes.values())))

    def findings(self, found: Symmetry, tried: Symmetry, refused: Mapping[str, str]) -> tuple[Finding, ...]:
        """The finding of every axis, for `Symmetry.explain`."""
        findings = self.reading.findings(found, tried, refused)
        findings = [f._replace(reason=f.reason or POSITIVE) if f.site in self.kept else f for f in findings]
        return tuple(f._replace(is_parameter=f.site in self.joint.sites.leaves) for f in findings)


def _typed(question: Question, rules: Mapping[str, Rule], *, signs: bool, zeros_may_fall: bool) -> _Read:
    """The labels, symmetry and signs that typing allows a model or a function.

    The program itself is let go: while it lives, JAX may return its parts, in single precision, if asked for double.
    """
    say(f"reading the {question.nouns.whole}")
    if question.argnum is None:
        program = read_program(question.model, question.args, question.kwargs, question.key)
    else:
        program = read_function(
            outputs_of_function(
                question.model, question.args, question.kwargs, question.argnum, zeros_may_fall=zeros_may_fall
            )
        )
    say("following its axes")
    reading = walked(program, rules)[0]
    claimed = reading.symmetry()
    discrete = {site for site, prior in program.priors.items() if prior.support.is_discrete}
    stay = {site for axes in reading.unlabelled_axes(claimed).values() for site, _ in axes}
    # labels are values, which no group moves, of axes that stay; switches of units move with these
    if (labels := discrete - claimed.axes.keys()) and stay - discrete:
        warn(f"Groups whose labels are values of {sorted(labels)} are not found. {program.not_summed}")
    # no support says which of a function's parameters are positive: their values do
    positive = program.joint.sites.constrained if question.argnum is not None and signs else frozenset()
    if_real = _even_sets(program._replace(signs=[True] * len(program.signs)), reading, claimed) if positive else []
    return _Read(
        reading,
        claimed,
        _even_sets(program, reading, claimed) if signs else [],
        program.joint,
        program.way,
        program.opaque,
        suspects_of(program.priors, program.shapes, marks_of_usage(program)),
        signs,
        positive.intersection(site for parts in if_real for site, _ in parts),
    )


def _even_sets(program: TracedLogJoint, reading: Reading, claimed: Symmetry) -> list[frozenset[PartOfSite]]:
    """Sets that may be negated as a whole: of sites, and of arrays put end to end in one, with or without groups."""
    claimed = reading.with_lone_indices(claimed, program.shapes, EFFORT.max_lone)
    cuts, parts = [], list[PartOfSite]()
    for site, shape in program.shapes.items():
        entries = in_parts(claimed.axes.get(site, ()))
        cuts.append([(len(shape) + axis, sizes) for axis, sizes in cuts_of(entries)])
        parts += [(site, part) for part in range(num_parts(entries))]
    return [frozenset(parts[k] for k in s) for s in even_sets(program.jaxpr, program.signs, cuts, program.supports)]


def _sources(read: _Read, question: Question) -> Sources:
    """The compiled model, with the data and the points at which its symmetry is tried."""
    say(f"evaluating it about {question.nouns.centre}")
    # observed values are arguments as well, to be redrawn (numbers of Python too), unless the model looks at them
    ways = dict.fromkeys((read.way._replace(observed=tuple(read.joint.sites.observed)), read.way))
    model = freeze(read.joint, list(ways))
    far = not read.opaque or bool(read.reading.blocks()) or read.may_be_signed(read.claimed)
    return Sources.of(model, opaque=read.opaque, rng=question.rng, reaches_far=far)


def _proved(read: _Read, sources: Sources) -> tuple[Symmetry, list[str]]:
    """The symmetry that numbers prove, of groups that labels claim and of others; and the warnings for the user."""
    reading, rng = read.reading, sources.rng
    say("verifying the symmetry")
    tried, found, refused = _groups_that_hold(read, sources)
    messages = [refusal_message(name, proof) for name, proof in refused.items()]
    say("trying what no rule has followed")
    # what numbers find may take the place of a larger group: then nothing is tried where groups stand
    blocks, bare = reading.blocks(), reading.bare_blocks(found)
    ways = [blocks] if bare == blocks else [bare, blocks]
    # an axis that no rule has followed may have met data, of which entries may coincide: other data have to agree
    asked = (with_blocks(partial(_claim, reading), found, way, sources.own_and_others, rng) for way in ways)
    found = max((with_cells(one, sources.own_and_others, rng) for one in asked), key=Symmetry.log_order)
    if read.may_be_signed(found):
        say("trying changes of sign")
        wide = reading.with_lone_indices(found, {site for parts in read.even for site, _ in parts}, EFFORT.max_lone)
        found = with_signs(wide, read.even, sources.own, sources.redrawn, rng)
    say("trying exchanges of sites")
    found, missed = with_exchanges(found, read.suspects, reading.unlabelled_axes(found), sources.everything, rng)
    why = {name: reason_of(proof) for name, proof in refused.items()}
    findings = tuple(_noting_unread(f, sources.own.frozen.unread) for f in read.findings(found, tried, why))
    return replace(found, findings=findings, out_of_reach=missed), messages


def _groups_that_hold(read: _Read, sources: Sources) -> tuple[Symmetry, Symmetry, dict[str, Proof]]:
    """The symmetry tried (without fibres if a fibred group fails), its groups that hold, proofs of those refused."""

    def holding(tried: Symmetry) -> tuple[Symmetry, dict[str, Proof]]:
        found, refused = proved_groups(tried, sources.own, sources.rng)
        for evidence in sources.redrawn() if not read.opaque else ():
            found, more = proved_groups(found, evidence, sources.rng)
            refused |= more
        return found, refused

    found, refused = holding(read.claimed)
    if not any(read.claimed.groups[name].over for name in refused):
        return read.claimed, found, refused
    tried = read.reading.without_fibres()
    return tried, *holding(tried)


def _claim(reading: Reading, symmetry: Symmetry, blocks: tuple[Block, ...]) -> Claim | None:
    """A claim of one more group on these blocks of axes; ``None`` where labels leave no two indices to exchange."""
    places = [place for block in blocks for place in block]
    claimed, kinds = reading.with_group(symmetry, places), reading.kinds(places)
    if claimed is None or len(set(kinds)) == len(kinds):
        return None
    site, position = places[0]
    return Claim(claimed, str(claimed.axes[site][position]), places, kinds)


def _noting_unread(finding: Finding, unread: set[str]) -> Finding:
    """The finding, with a remark if nothing but its prior reads the site: the group there says nothing of the data."""
    if not finding.group or finding.is_parameter or finding.site not in unread:
        return finding
    return finding._replace(reason="; ".join(filter(None, [finding.reason, "nothing but its prior reads it"])))


def walked(
    program: TracedLogJoint, rules: Mapping[str, Rule] = RULES, num_kept: int | None = None
) -> tuple[Reading, list[Value]]:
    """Walk through a program with free latent axes and pinned data; returns the reading, and its results with labels.

    The first ``num_kept`` results are outputs, whose entries have to stay; all by default.
    """
    unused = Reason(UNREAD)
    sites: dict[str, list[Term]] = {
        site: [axis(n) if site in program.used else pinned(n, unused) for n in shape]
        for site, shape in program.shapes.items()
    }
    data = [[pinned(n, Reason(IS_DATA, strength="data")) for n in shape] for shape in program.data_shapes]
    walk = Walk(rules)
    latent = [Typed(tuple(axes)) for axes in sites.values()]
    given = [
        Typed(tuple(axes), tag=walk.tag("data", k), origin=Dependence.REAL if is_real else Dependence.WHOLE)
        for k, (axes, is_real) in enumerate(zip(data, program.real, strict=True))
    ]
    results = walk.run_apart(program.jaxpr, [*latent, *given])
    if isinstance(program.joint, Outputs):
        for value, var in list(zip(results, program.jaxpr.jaxpr.outvars, strict=True))[:num_kept]:
            pin(Reason("is an output", strength="data"), *walk.axes(value, var.aval.shape))
    observed = [term for axes in data[len(data) - len(program.way.observed) :] for term in axes]
    ordered = {site for site, prior in program.priors.items() if is_ordered(prior.support)}
    return Reading(sites, walk, program.names, observed, ordered), results
