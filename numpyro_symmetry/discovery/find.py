"""`find_symmetry`: the group read off a model, proved by numbers before it is given out.

Typing says what may be free, numbers say what is: neither is trusted alone. Knows models and symmetries; no guides.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import Array

from numpyro_symmetry.discovery.check import in_double
from numpyro_symmetry.discovery.data import apart, observing, redrawn
from numpyro_symmetry.discovery.evidence import Evidence, gather_evidence, measured, with_far_points
from numpyro_symmetry.discovery.interpreter import Origin, Typed
from numpyro_symmetry.discovery.joint import FrozenModel, arguments, freeze, observed_values, traced_in
from numpyro_symmetry.discovery.parity import even_sets
from numpyro_symmetry.discovery.program import Program, read_program
from numpyro_symmetry.discovery.proposals import what_holds, with_blocks
from numpyro_symmetry.discovery.reading import Reading
from numpyro_symmetry.discovery.rules import interpreter
from numpyro_symmetry.discovery.signs import may_have_signs, with_signs
from numpyro_symmetry.discovery.terms import IS_DATA, Reason, Term, axis, pinned
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, SymmetryWarning

_NUM_POINTS, _NUM_REDRAWN = 2, 5


def find_symmetry(
    model: Callable,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    rng_key: Array | None = None,
    signs: bool = True,
) -> Symmetry:
    r"""Find the permutations of latent axes, and the changes of sign, that leave a model's log joint alone.

    The log joint is traced with its data opaque, and every axis of every intermediate value is typed so that
    :math:`v(g\theta) = g\,v(\theta)`; what no rule carries through is pinned. The group that remains is then proved
    by numbers, as `check_symmetry` does; what fails is dropped with a warning.

    Parameters
    ----------
    model
        NumPyro model. Discrete latent sites are summed out by funsor where it is installed.
    model_args, model_kwargs
        Arguments of the model. Arrays among them are data: nothing depends on which of their entries coincide.
    rng_key
        JAX random key; fixed by default.
    signs
        Also look for changes of sign: of indices of the groups that were found (odd activations, factors), and of sites
        as a whole, numbers without axes among them. Without it, permutations alone.

    Returns
    -------
    Symmetry
        Bound, and with `Symmetry.explain`; trivial if there is none.

    Raises
    ------
    SymmetryError
        If the model has discrete latent sites and funsor is not installed, or its log joint is nowhere finite.
    TypeError
        If ``model_args`` is an array.

    Warns
    -----
    SymmetryWarning
        If numbers contradict a group that the types allow; it is left out.

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
    """
    key = jax.random.key(0) if rng_key is None else rng_key
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    args, kwargs = arguments(model_args, model_kwargs)
    reading, even, opaque = _typed(model, args, kwargs, key, signs)

    claimed = reading.symmetry()

    def proved(args: tuple, kwargs: dict, single: bool) -> Symmetry:
        def frozen(args: tuple, kwargs: dict, observed: Mapping[str, Any]) -> FrozenModel:
            shown = observing(model, observed) if observed else model
            return freeze(shown, args, kwargs, key, reading.sites, single=single)

        proof = gather_evidence(frozen(args, kwargs, {}), rng, _NUM_POINTS)
        if not opaque or reading.blocks(claimed) or (signs and may_have_signs(claimed, even)):
            proof = with_far_points(proof, rng)

        @functools.cache
        def on_other_data(k: int) -> Evidence | None:
            # a number on its own may be a size, without which there are no other data at all
            ways = [redrawn, functools.partial(redrawn, scalars=False)] if k else [apart]
            return next(filter(None, map(as_drawn, ways)), None)

        def as_drawn(way: Callable[[Any, np.random.Generator], Any]) -> Evidence | None:
            try:
                with traced_in(single):
                    observed = observed_values(model, args, kwargs, key)
                # where a prior depends on data, points about another are as good, and need not be compiled
                other = frozen(*way((args, kwargs, observed), rng))._replace(place=proof.frozen.place)
                if other.sizes != proof.frozen.sizes:
                    return None
                found = with_far_points(gather_evidence(other, rng, _NUM_POINTS), rng)
                return measured(found)._replace(controls=False)
            except Exception:  # whatever a model says of data it was not made for
                return None

        def others(start: int = 0) -> Iterator[Evidence]:
            yield from filter(None, map(on_other_data, range(start, 1 + _NUM_REDRAWN)))

        def holding(tried: Symmetry) -> tuple[Symmetry, dict[str, SymmetryError]]:
            found, refused = what_holds(tried, proof, rng)
            for one in others(1) if not opaque else ():
                found, more = what_holds(found, one, rng)
                refused |= more
            return found, refused

        tried = claimed
        found, refused = holding(tried)
        if any(tried.groups[name].over for name in refused):
            tried = reading.without_fibres()
            found, refused = holding(tried)
        for name, why in refused.items():
            warnings.warn(
                f"The types of the model allow group {name!r}, but numbers do not prove it; it is left out. {why}",
                SymmetryWarning,
                stacklevel=4,
            )
        blocks = reading.blocks(found)
        if blocks:
            # what no rule has followed may have met data after all: those that coincide must not count
            found = with_blocks(reading, found, blocks, lambda: itertools.chain([proof], others()), rng)
        if signs and may_have_signs(found, even):
            # what is even may be so for these data alone
            found = with_signs(found, even, [proof, *itertools.islice(others(1), 1)], rng)
        return replace(found, findings=reading.findings(found, tried, refused))

    if not claimed.groups and not reading.blocks(claimed) and not even:
        return replace(claimed, findings=reading.findings(claimed, claimed, {}))
    return in_double(proved, args, kwargs)


def _typed(
    model: Callable, args: tuple, kwargs: dict[str, Any], key: Array, signs: bool
) -> tuple[Reading, list[frozenset[str]], bool]:
    """Labels of a model's axes, sets of sites that may be negated, and whether its arguments were opaque.

    The program itself is let go: while it lives JAX may find its parts, in single precision, when asked for double.
    """
    program = read_program(model, args, kwargs, key)
    sites = list(program.shapes)
    even = even_sets(program.jaxpr, program.signs) if signs else []
    return type_program(program), [frozenset(sites[k] for k in one) for one in even], program.opaque


def type_program(program: Program) -> Reading:
    """Walk through a log joint with free latent axes and pinned data."""
    unused = Reason("nothing depends on it")
    sites: dict[str, list[Term]] = {
        site: [axis(n) if site in program.used else pinned(n, unused) for n in shape]
        for site, shape in program.shapes.items()
    }
    data = [[pinned(n, Reason(IS_DATA, strength="data")) for n in shape] for shape in program.data_shapes]
    walk = interpreter()
    latent = [Typed(tuple(axes)) for axes in sites.values()]
    given = [
        Typed(tuple(axes), tag=walk.tag("data", k), origin=Origin.REAL if is_real else Origin.WHOLE)
        for k, (axes, is_real) in enumerate(zip(data, program.real, strict=True))
    ]
    walk.run_closed(program.jaxpr, [*latent, *given])
    return Reading(sites, walk.record, walk.pointers, program.names, walk.meetings, walk.shadows)
