"""Exchanges that no label of an axis shows: of sites with one another, and of p with 1 - p.

One site for each component (``mu_1``, ``mu_2``) is a family, and a weight p of ``(p, 1 - p)`` a `Complement`, as are
its log odds, of which the other's are the negative. Names and usage say what is worth a try, numbers what holds. An
exchange that no group can express is told to the user, with the model to write instead, on the evidence on which a
group would be given out. Knows evidence and priors; no terms.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jax.core import Tracer
from numpyro import distributions as dist

from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.evidence import Evidence
from numpyro_symmetry.discovery.proof.frozen import Point, Values, stacked
from numpyro_symmetry.discovery.proof.prove import holds_on, is_firmly_inside, sites_left
from numpyro_symmetry.discovery.proof.rounding import NUDGE
from numpyro_symmetry.discovery.proof.trials import CONTROL_FACTOR, exchanged, gap_to
from numpyro_symmetry.models.sites import entrywise, is_interval, is_unconstrained, without_wrappers
from numpyro_symmetry.steps import track
from numpyro_symmetry.symmetry import Complement, Member, OutOfReach, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.axes import new_name, padded
from numpyro_symmetry.symmetry.components import by_key
from numpyro_symmetry.symmetry.shown import listed

_DIGITS = re.compile(r"\d+")

# size -> axes of it that carry no group: site and position
AxesBySize = Mapping[int, Sequence[tuple[str, int]]]
# one part of an exchange: its kind ("family", "axis" or "flip"), and the family, the axis, or the site and its total
PartOfExchange = tuple[str, Any]


class Suspects(NamedTuple):
    """Sites that may be exchanged with one another, or reflected, and what tells whether a try is worth it.

    Attributes
    ----------
    families
        Sites of one shape and support, in the order of their names: by name (``mu_1``, ``mu_2``), or by usage.
    marks
        Site -> mark of how the program uses it, the same for sites that it uses alike.
    shapes
        Site -> shape.
    flips
        Site in the unit interval -> the Dirichlet distribution to write in place of its prior; empty if there is none.
    odds
        Sites of real numbers, also between two bounds, which may be log odds.
    batches
        Site -> its batch shape.
    """

    families: tuple[tuple[str, ...], ...]
    marks: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    flips: dict[str, str]
    odds: tuple[str, ...]
    batches: dict[str, tuple[int, ...]]

    def pairs(self, family: tuple[str, ...]) -> set[tuple[int, int]]:
        """Positions of two sites of a family that the program uses alike."""
        marks = [self.marks[site] for site in family]
        return {(i, j) for i, j in itertools.combinations(range(len(family)), 2) if marks[i] == marks[j]}


class Exchange(NamedTuple):
    """Positions ``first`` and ``second`` exchanged in families and on axes; reflected sites x become ``total - x``."""

    first: int
    second: int
    families: tuple[tuple[str, ...], ...]
    axes: tuple[tuple[str, int], ...]
    flips: tuple[tuple[str, float], ...]

    def __call__(self, values: Values) -> Values:
        """Values with the exchange made."""
        moved = exchanged(values, self.axes, self.first, self.second)
        for family in self.families:
            a, b = family[self.first], family[self.second]
            moved[a], moved[b] = moved[b], moved[a]
        return moved | {site: total - moved[site] for site, total in self.flips}


def suspects_of(priors: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], marks: Mapping[str, int]) -> Suspects:
    """Families of sites, and sites that may be reflected, of given priors, shapes and marks of their usage."""
    # supports by their types: numbers tell apart intervals with different bounds
    kinds = {site: (shapes[site], type(entrywise(fn.support)).__name__) for site, fn in priors.items()}
    by_name = by_key(((_DIGITS.sub("#", site), kinds[site]), site) for site in kinds).values()
    single = [sites[0] for sites in by_name if len(sites) == 1]
    by_usage = by_key(((marks[site], kinds[site]), site) for site in single).values()
    return Suspects(
        # a family of one has no two positions to exchange
        tuple(tuple(sorted(sites, key=_natural)) for sites in (*by_name, *by_usage) if len(sites) <= EFFORT.max_family),
        marks,
        shapes,
        {site: _dirichlet(fn) for site, fn in priors.items() if _is_unit(fn.support)},
        tuple(site for site, fn in priors.items() if is_unconstrained(fn.support) or is_interval(fn.support)),
        {site: tuple(fn.batch_shape) for site, fn in priors.items()},
    )


def is_plausible(suspects: Suspects, axes: AxesBySize) -> bool:
    """Whether anything is worth a try, with axes that carry no group."""
    return any(_tasks(suspects, axes))


def with_exchanges(
    symmetry: Symmetry,
    suspects: Suspects,
    axes: AxesBySize,
    evidence: Callable[[], Iterable[Evidence]],
    rng: np.random.Generator,
) -> tuple[Symmetry, tuple[OutOfReach, ...]]:
    """The symmetry with a group for each exchange that holds, and those that hold though no group expresses them."""
    missed: list[OutOfReach] = []
    for exchange, cycles in _exchanges_that_hold(suspects, axes, evidence).items():
        claimed = _claim(symmetry, exchange, cycles, suspects)
        if claimed is not None and holds_on(evidence(), claimed, rng):
            symmetry = claimed
        else:
            missed += [_out_of_reach(exchange, sorted(cycle), suspects) for cycle in cycles]
    return symmetry, tuple(missed)


def _claim(symmetry: Symmetry, exchange: Exchange, cycles: list[set[int]], suspects: Suspects) -> Symmetry | None:
    """The symmetry with a group that permutes positions within cycles; ``None`` if other groups stand in its way."""
    axes, shapes = dict(symmetry.axes), suspects.shapes
    size = len(exchange.families[0]) if exchange.families else 2
    stem = _stem(exchange.families[0]) if exchange.families else exchange.axes[0][0]
    name = new_name(stem, symmetry.group_names())
    for family in exchange.families:
        for index, site in enumerate(family):
            axes[site] = (Member(name, index, family), *padded(axes.get(site, ()), len(shapes[site])))
    for site, axis in exchange.axes:
        entries = list(padded(axes.get(site, ()), len(shapes[site])))
        entries[axis - len(shapes[site])] = name
        axes[site] = tuple(entries)
    for site, total in exchange.flips:
        axes[site] = (Complement(name, total), *padded(axes.get(site, ()), len(shapes[site])))
    label = [next((min(cycle) for cycle in cycles if k in cycle), k) for k in range(size)]
    orbits = dict(symmetry.orbits) | ({name: tuple(label)} if len(set(label)) > 1 else {})
    try:
        return replace(symmetry, axes=axes, sizes=dict(symmetry.sizes) | {name: size}, orbits=orbits)
    except SymmetryError:
        return None


def _exchanges_that_hold(
    suspects: Suspects, axes: AxesBySize, evidence: Callable[[], Iterable[Evidence]]
) -> dict[Exchange, list[set[int]]]:
    """Exchange that leaves the log joint alone at all evidence -> sets of positions that it may permute."""
    tries, refused = itertools.count(), set[Exchange]()
    known: dict[Any, list[set[int]]] = {}
    tasks = list(_tasks(suspects, axes))
    for first, second, parts in track(tasks, len(tasks)):
        taken: set[Any] = set()
        for chosen in _sets(parts):
            # an exchange that does no more than negate sites is left to the search for signs
            if taken & set(chosen) or all(kind == "flip" and not what[1] for kind, what in chosen):
                continue
            exchange = _exchange(first, second, chosen)
            cycles = known.setdefault(exchange[2:], [])
            if not any({first, second} <= cycle for cycle in cycles):
                if exchange in refused or next(tries) >= EFFORT.max_exchanges or not _holds(exchange, evidence()):
                    refused.add(exchange)
                    continue
                joined = {first, second}.union(*(cycle for cycle in cycles if cycle & {first, second}))
                cycles[:] = [cycle for cycle in cycles if not cycle & joined] + [joined]
            taken |= set(chosen)
    return {
        Exchange(0, 0, *what): cycles
        for what, cycles in known.items()
        # an axis or a reflection alone is no exchange of components
        if cycles and (what[0] or len(what[1]) + len(what[2]) > 1)
    }


# ---- what to try -----------------------------------------------------------------------------------------------------


def _tasks(suspects: Suspects, axes: AxesBySize) -> Iterator[tuple[int, int, list[PartOfExchange]]]:
    """Two positions, and parts that may be exchanged there: families, axes of their size, for size 2 reflections."""
    flips: list[PartOfExchange] = [("flip", (site, 1.0)) for site in suspects.flips]
    sizes = {len(family) for family in suspects.families} | ({2} if flips or suspects.odds else set())
    for size in sorted(sizes):
        here = {family: suspects.pairs(family) for family in suspects.families if len(family) == size}
        for pair in itertools.combinations(range(size), 2):
            families: list[PartOfExchange] = [("family", family) for family, pairs in here.items() if pair in pairs]
            # a site that is exchanged does not have its own entries exchanged as well
            sites = set(itertools.chain(*(family for _, family in families)))
            moved: list[PartOfExchange] = families + [
                ("axis", place) for place in axes.get(size, ()) if place[0] not in sites
            ]
            reflected = flips if size == 2 else []
            if families or (reflected and moved):
                yield (*pair, moved + reflected)
            still = sites | {what[0] for kind, what in moved if kind == "axis"}
            odds: list[PartOfExchange] = [
                ("flip", (site, 0.0)) for site in suspects.odds if size == 2 and site not in still
            ]
            if moved and len(odds) <= EFFORT.max_family:
                several = len(moved + reflected + odds) <= EFFORT.max_parts
                yield from ((*pair, moved + reflected + some) for some in ([odds] if several else [[x] for x in odds]))


def _sets(parts: list[PartOfExchange]) -> Iterator[tuple[PartOfExchange, ...]]:
    """Sets of parts, small ones first; of many parts, single ones and all."""
    counts = range(1, len(parts) + 1) if len(parts) <= EFFORT.max_parts else (1, len(parts))
    for count in counts:
        yield from itertools.combinations(parts, count)


def _exchange(first: int, second: int, chosen: Sequence[PartOfExchange]) -> Exchange:
    def of(kind: str) -> tuple[Any, ...]:
        return tuple(part for name, part in chosen if name == kind)

    return Exchange(first, second, of("family"), of("axis"), of("flip"))


def _is_unit(support: Any) -> bool:
    """Whether a support is the unit interval, and not its two ends; bounds that were computed are not looked at."""
    bounds: list[Any] = [getattr(entrywise(support), f"{side}_bound", None) for side in ("lower", "upper")]
    return is_interval(support) and not any(isinstance(x, Tracer) or np.ndim(x) for x in bounds) and bounds == [0, 1]


def _natural(site: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", site)]


# ---- whether it holds ------------------------------------------------------------------------------------------------


def _holds(exchange: Exchange, evidence: Iterable[Evidence]) -> bool:
    """Whether an exchange moves values and changes nothing, while copying one exchanged site over the other does."""
    for k, one in enumerate(evidence):
        frozen = one.frozen
        for n, at in enumerate((*one.places, *one.far)):
            moved = exchange(at.values)
            if not all(map(bool, frozen.inside(moved).values())) or not gap_to(frozen, at, moved).ratio <= 1.0:
                return False
            if k == n == 0 and not all(_is_read(family, exchange, one, at) for family in exchange.families):
                return False
            # rows and columns of a symmetric matrix of two
            if all(np.allclose(x, at.values[site], NUDGE, 0.0) for site, x in moved.items()):
                return False
        # densities may agree where supports differ, which is seen near their edges
        for place in filter(partial(is_firmly_inside, frozen), one.edges):
            if any(sites_left(frozen, frozen.sites.constrained, place, stacked([exchange(place)]))):
                return False
    return True


def _is_read(family: tuple[str, ...], exchange: Exchange, evidence: Evidence, at: Point) -> bool:
    """Whether anything but their own priors depends on two exchanged sites: otherwise the exchange is of no use."""
    pair = family[exchange.first], family[exchange.second]
    copied = at.values | {pair[1]: at.values[pair[0]]}
    return not gap_to(evidence.frozen, at, copied, set(pair)).ratio <= CONTROL_FACTOR


# ---- in words --------------------------------------------------------------------------------------------------------


def _dirichlet(prior: Any) -> str:
    """The Dirichlet distribution of ``(p, 1 - p)``, as code, that a prior on p amounts to; empty if there is none."""
    prior = without_wrappers(prior)
    if isinstance(prior, dist.Uniform):
        return "dist.Dirichlet(jnp.ones(2))"
    if not isinstance(prior, dist.Beta):
        return ""
    both = prior.concentration1, prior.concentration0
    if any(isinstance(x, Tracer) or np.ndim(x) for x in both):
        return "dist.Dirichlet(jnp.full(2, a)), with the a of dist.Beta(a, a)"
    return f"dist.Dirichlet(jnp.array([{float(both[0])}, {float(both[1])}]))"  # pyright: ignore[reportArgumentType]


def _out_of_reach(exchange: Exchange, indices: Sequence[int], suspects: Suspects) -> OutOfReach:
    """An exchange of any two of ``indices`` that no group expresses, in words, with the model to write instead."""
    ways, remedies = [], []
    for family in exchange.families:
        names = [family[k] for k in indices]
        batch, stem = suspects.batches[names[0]], _stem(names)
        ways.append(listed([repr(name) for name in names]))
        shape, event = [len(names), *batch], 1 + len(batch)
        remedies.append(
            f"one site {stem!r}, its prior with .expand({shape}).to_event({event}), in place of {ways[-1]}, and "
            f"{stem}[k] for each of them"
        )
    entries = listed([str(k) for k in indices])
    ways += [f"the entries {entries} of {s!r} on axis {k - len(suspects.shapes[s])}" for s, k in exchange.axes]
    odds = [site for site, total in exchange.flips if not total]
    weights = [site for site, total in exchange.flips if total]
    ways += [f"{site} and -{site}" for site in odds] + [f"{site} and 1 - {site}" for site in weights]
    remedies += [f"two log weights, of which {site!r} is the difference, in place of it" for site in odds]
    of_two = "a prior on two weights that sum to one, the same under their exchange"
    remedies += [f"a site {s!r} ~ {suspects.flips[s] or of_two}, in place of ({s}, 1 - {s})" for s in weights]
    what = "exchanging " + ("any two of " if len(indices) > 2 else "") + ways[0]
    what += f", together with {'; '.join(ways[1:])}" if ways[1:] else ""
    moved = [family[k] for family in exchange.families for k in indices]
    sites = [*moved, *(site for site, _ in exchange.axes), *(site for site, _ in exchange.flips)]
    return OutOfReach(tuple(dict.fromkeys(sites)), what, f"Write {'; and '.join(remedies)}.")


def _stem(names: Sequence[str]) -> str:
    """A name for one site in place of several."""
    return os.path.commonprefix(list(names)).rstrip("0123456789_.$/[-") or "component"
