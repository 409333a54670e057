r"""Which sites of a guide merely follow the others under a relabelling: :math:`q(gb \mid ga) = q(b \mid a)`.

Such a site cancels from :math:`q(g\theta)/q(\theta)`, so that :math:`I(g; a, b) = I(g; a)` and the table needs a alone.
A site may follow the relabellings of one group and be what tells the units of another apart, as the weights into a
layer whose inputs are another's units: it is judged group by group.

That is believed only where it was seen: in double precision, at parameters away from where training starts, since
factors that are alike at the start would hide a conditional that is not equivariant. Knows guides and symmetries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.guides.density import latent_values, log_densities_at, parents
from numpyro_symmetry.models import Trace, settings_of, trace_model
from numpyro_symmetry.models.given_values import perturbed
from numpyro_symmetry.models.programs import in_double
from numpyro_symmetry.symmetry import Element, Hard, Part, Symmetry
from numpyro_symmetry.symmetry.axes import AxisEntry, names_in, num_axes
from numpyro_symmetry.symmetry.restriction import axes_of_groups

# parameters are moved so many times: what is alike by chance is so once
_NUM_SETTINGS = 3
# relative change of a log density, in double precision: at most that of rounding, and certainly more
_ROUNDING, _MOVED = 1e-8, 1e-6


Verdicts = dict[str, dict[str, str]]


class Follows(NamedTuple):
    """Which sites follow the relabellings of which groups, and so need no place in their tables.

    Attributes
    ----------
    groups
        Site -> groups whose relabellings it follows.
    sites
        Sites that follow every group that moves them, or what they depend on.
    """

    groups: dict[str, frozenset[str]]
    sites: tuple[str, ...]

    @classmethod
    def of(cls, symmetry: Symmetry, verdicts: Verdicts) -> Follows:
        """Equivariant sites follow a group, unless no other site would tell the group's units apart."""
        groups = {
            site: frozenset(name for name, verdict in by_group.items() if verdict == "equivariant")
            for site, by_group in verdicts.items()
        }
        none = frozenset()
        for stack in symmetry.stacks.values():  # a family is one array, and follows as a whole
            groups |= dict.fromkeys(stack.sites, frozenset.intersection(*(groups.get(s, none) for s in stack.sites)))
        telling = set().union(*(names_in(entries) - groups.get(s, none) for s, entries in symmetry.axes.items()))
        groups = {site: names & telling for site, names in groups.items()}
        return cls(groups, tuple(site for site in groups if site in verdicts and groups[site] == set(verdicts[site])))

    def entirely(self) -> Follows:
        """Only the sites that follow every group."""
        return Follows({site: self.groups[site] for site in self.sites}, self.sites)

    def telling(self, symmetry: Symmetry, site: str, entries: tuple[AxisEntry, ...]) -> tuple[AxisEntry, ...]:
        """A site's entries with those groups alone whose units it tells apart."""
        if not self.groups.get(site):
            return entries
        rest = [name for name in symmetry.groups if name not in self.groups[site]]
        return axes_of_groups({site: entries}, rest).get(site, (None,) * num_axes(entries))


def equivariant_sites(
    guide: Any, symmetry: Symmetry, trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Verdicts:
    """Whether sites whose distribution depends on relabelled ones follow these, or stay as they are if none moves them.

    Parameters
    ----------
    guide
        A guide, set up.
    symmetry
        Bound.
    trace
        A trace of the guide.
    args, kwargs
        The model's arguments.

    Returns
    -------
    dict
        Site -> group that moves it, or what it depends on -> ``"equivariant"``; ``"different"``; or
        ``"inconclusive"``, where the test shows nothing, as the density does not change either where the others alone
        do: by another labelling, or by another draw where no label moves them, or the site.
    """
    depends = parents(guide, trace, args, kwargs)
    of_group = {name: symmetry.restrict([name]) for name in symmetry.groups}
    following = {site: on for site, on in depends.items() if on & set(symmetry.axes)}
    judged = {
        name: {site: bool(on & set(one.axes)) for site, on in following.items() if ({site} | on) & set(one.axes)}
        for name, one in of_group.items()
    }
    if not following:
        return {}

    def at(key: Array) -> dict[str, dict[str, tuple[Array, Array]]]:
        keys, moved, key_element = _setting(key, trace)
        elements = {n: [moving_everything(one), one.sample(key_element)] for n, one in of_group.items()}
        return _changes(guide, of_group, judged, elements, keys, moved, args, kwargs)

    changes_at = in_double(at, jax.random.key(0))
    found = [jax.tree.map(float, changes_at(jax.random.key(k))) for k in range(_NUM_SETTINGS)]
    return {
        site: {name: _verdict([changes[name][site] for changes in found]) for name in judged if site in judged[name]}
        for site in following
    }


def moving_everything(symmetry: Symmetry) -> Element:
    """One cycle through the indices of every group, every sign flipped."""

    def cycled(part: Part) -> Part:
        permutation, sign = Hard.of(part)
        return Hard(jnp.roll(permutation, 1), None if sign is None else -sign).part()

    return {name: cycled(part) for name, part in symmetry.identity().items()}


def _verdict(changes: list[tuple[float, float]]) -> str:
    if not all(together <= _ROUNDING for together, _ in changes):
        return "different"
    return "equivariant" if all(alone > _MOVED for _, alone in changes) else "inconclusive"


def _changes(
    guide: Any,
    symmetries: Mapping[str, Symmetry],
    judged: Mapping[str, Mapping[str, bool]],
    elements: Mapping[str, list[Element]],
    keys: Array,
    trace: Trace,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> dict[str, dict[str, tuple[Array, Array]]]:
    """How much log densities change if all sites are relabelled together, and if only the others are.

    ``judged``: group -> site -> whether the group moves others on which the site depends. Returned by group and site.
    """
    # one after the other, so that the guide is compiled once
    drawn = jax.lax.map(lambda key: latent_values(trace_model(guide, args, kwargs, key, settings_of(trace))), keys)
    values, others = (jax.tree.map(lambda x, k=k: x[k], drawn) for k in range(2))
    points: list[Any] = [values]
    stacks = [stack for symmetry in symmetries.values() for stack in symmetry.stacks.values() if stack.is_family]
    # sites of a family change places: their densities do so too, and together stay
    mates = {site: stack.sites for stack in stacks for site in stack.sites}
    where: list[tuple[str, str, int, int]] = []
    for name, symmetry in symmetries.items():
        for element in elements[name]:
            moved: Any = symmetry.apply(element, values)
            together = len(points)
            points.append(moved)
            for site, moves_others in judged[name].items():
                where.append((name, site, together, len(points)))
                changed = moved if site in symmetry.axes and moves_others else others
                points.append(changed | {mate: values[mate] for mate in mates.get(site, (site,))})
    densities = log_densities_at(guide, trace, points, args, kwargs)
    at = {site: jnp.asarray(sum(densities[mate] for mate in mates.get(site, (site,)))) for site in densities}
    change = {site: jnp.abs(x - x[0]) / (1.0 + jnp.abs(x[0])) for site, x in at.items()}
    found: dict[str, dict[str, tuple[Array, Array]]] = {name: {} for name in symmetries}
    for name, site, *at_points in where:
        most = jnp.maximum(jnp.stack(found[name].get(site, (0.0, 0.0))), change[site][jnp.array(at_points)])
        found[name][site] = (most[0], most[1])
    return found


def _setting(key: Array, trace: Trace) -> tuple[Array, Trace, Array]:
    """Keys for two draws, a trace with perturbed parameters, and a key for elements at random."""
    key_draws, key_parameters, key_element = jax.random.split(key, 3)
    moved = perturbed(key_parameters, trace)
    trace = {name: {**site, "value": moved.get(name, site["value"])} for name, site in trace.items()}
    return jax.random.split(key_draws), trace, key_element
