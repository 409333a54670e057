"""What becomes of the sites of a trace that its model computes, where the trace was relabelled.

Knows traces in memory and stored ones, and `Rebased`; how such sites depend on labels is in `deterministic`.
"""

from __future__ import annotations

from collections.abc import Collection

import jax
import numpy as np

from numpyro_symmetry.containers import Trace
from numpyro_symmetry.models import Model
from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.hard import from_element, to_element
from numpyro_symmetry.traces.coordinates import Arrays
from numpyro_symmetry.traces.deterministic import NOTHING, Carried, Labelled, Roles, carry, of_every_element
from numpyro_symmetry.traces.rebased import Rebased

# stored draws by which to see how computed sites depend on labels; draws that are tried under random labels
_MAX_DRAWS_TO_SEE, _MAX_AT_RANDOM = 256, 32


def carried_of(
    known: Model | None, roles: Roles, trace: Trace, moved: Arrays, out: Rebased, sites: Collection[str]
) -> Carried:
    """The fate of sites that the model computes, if the model is known: moved, computed again or left out."""
    if known is None or not sites:
        return NOTHING
    draws = trace.flat([site for site in trace.values if site in roles.latent | moved.keys() | set(sites)])
    flat, state = trace._replace(values=moved).flat(list(moved)), from_element(out.elements)
    if trace.is_stored:
        shown = of_every_element(state, trace.leading, _MAX_DRAWS_TO_SEE)
        draws, flat = ({site: np.asarray(x[shown]) for site, x in one.items()} for one in (draws, flat))
        state = {name: part.at(shown) for name, part in state.items()}
    elements = to_element(state, (len(next(iter(flat.values()))),))
    first = {site: draws[site][:_MAX_AT_RANDOM] for site in flat}
    seen = carry(known, roles, draws, sorted(sites), out.symmetry, Labelled(elements, flat), _at_random(out, first))
    if not trace.is_stored:
        return seen
    again = dict.fromkeys(seen.after, "that is done in memory alone, and these draws are stored; load them")
    return seen._replace(before={}, after={}, left_out={**seen.left_out, **again})


def still_of(bound: Symmetry, carried: Carried, settled: Collection[str]) -> tuple[str, ...]:
    """Sites that no label moves, of those of which it is settled whether one does."""
    moving = {finding.site for finding in bound.findings if finding.group} | bound.axes.keys() | carried.label_dependent
    return tuple(sorted(set(settled) - moving))


def _at_random(out: Rebased, draws: Arrays) -> Labelled:
    """Draws under labels that are drawn at random."""
    leading = (len(next(iter(draws.values()))),)
    elements = out.symmetry.sample(jax.random.key(0), leading)
    drawn = out._replace(elements=elements, objective=np.zeros(leading), carried=NOTHING)
    return Labelled(elements, drawn.apply(dict(draws)))
