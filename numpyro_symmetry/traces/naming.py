"""Which slot is called what: as in a draw, in given values, in another trace, or by the order of a site.

None of these has a say in which labels belong together. Knows draws, families and symmetries; no containers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from numpyro_symmetry.assignment.family import Side, State, mean_statistics
from numpyro_symmetry.assignment.passes import chunks_of, map_reduce, summed
from numpyro_symmetry.symmetry import Hard, SymmetryError
from numpyro_symmetry.symmetry.arguments import as_numbers, as_real_array, refuse_masked, shape_of
from numpyro_symmetry.symmetry.hard import inverted
from numpyro_symmetry.symmetry.pytrees import arrays_by_path, as_sites, can_be_moved
from numpyro_symmetry.symmetry.shown import counted
from numpyro_symmetry.traces.acting import act
from numpyro_symmetry.traces.coordinates import Arrays, refuse_other_coordinates
from numpyro_symmetry.traces.costs import PlainDraws
from numpyro_symmetry.traces.rebased import Rebased
from numpyro_symmetry.traces.relabel import Relabelling, relabel

REFERENCES = ("mean", "medoid", "first", "map")


def as_reference(reference: Any, sites: Collection[str]) -> Any:
    """Values by site where a reference is a tree of arrays, such as one network; any other as it is."""
    is_tree = not isinstance(reference, Rebased) and not can_be_moved(reference)
    has_arrays = is_tree and any(map(np.ndim, arrays_by_path(reference).values()))
    return as_sites(reference, sites) if has_arrays else reference


def index_of(reference: Any, leading: tuple[int, ...], log_density: np.ndarray | None) -> int | None:
    """The index of the draw that a reference is; ``None`` if it is no draw.

    Raises
    ------
    ValueError
        If it is no reference at all.
    SymmetryError
        If there is no such draw, or no log density to choose it by.
    """
    if isinstance(reference, str) and reference in REFERENCES:
        if reference == "map":
            return _likeliest(log_density)
        return 0 if reference == "first" else None
    if isinstance(reference, Mapping | Rebased):
        return None
    if not _is_index(reference):
        got = f"the class {reference.__name__}" if isinstance(reference, type) else repr(reference)
        raise ValueError(
            f"reference must be one of {REFERENCES}, the index of a draw (an integer or (chain, draw)), values by "
            f"site, or a Rebased; got {got if len(got) <= 60 else type(reference).__name__}."
        )
    num_draws = math.prod(leading)
    try:
        return int(np.ravel_multi_index(np.atleast_1d(reference), leading))
    except ValueError as error:
        if np.size(reference) == 1 and 0 <= np.max(reference) < num_draws:
            return int(np.max(reference))
        raise SymmetryError(f"reference={reference!r} is no draw of a trace of shape {leading}.") from error


def _is_index(reference: Any) -> bool:
    parts = reference if isinstance(reference, tuple) and reference else (reference,)
    return all(isinstance(part, int | np.integer) and not isinstance(part, bool) for part in parts)


def likeliest_or_first(log_density: np.ndarray | None) -> int:
    """The draw of largest log density, and the first where none is known."""
    known = log_density is not None and bool(np.isfinite(log_density).any())
    return _likeliest(log_density) if known else 0


def _likeliest(log_density: np.ndarray | None) -> int:
    if log_density is None:
        raise SymmetryError(
            "reference='map' needs each draw's log density: sample_stats with 'lp', or MCMC run with "
            "extra_fields=('potential_energy',)."
        )
    if not np.isfinite(log_density).any():
        raise SymmetryError(
            "reference='map' needs a draw whose log density is finite, and none of the trace's is. Use "
            "reference='medoid' or 'first', or find out what the sampler recorded."
        )
    return int(np.argmax(np.where(np.isfinite(log_density), log_density, -np.inf)))


def refuse_another_frame(reference: Rebased, seen: PlainDraws) -> None:
    """Refuse a reference that was relabelled in other statistics than these draws have."""
    frame = reference.frame
    if frame.read and set(frame.read) != set(seen.draws.loc):
        given, own = reference.view.whole, seen.view.whole
        raise SymmetryError(
            f"The reference was relabelled by its sites {sorted(given.axes)}, under {given}\nand these draws are, by "
            f"theirs {sorted(own.axes)}, under {own}\nUse one symmetry for both."
        )
    refuse_other_coordinates(frame.read, seen.draws.loc, "the draws")
    points = frame.point[0], seen.family.point(0)[0]
    given, own = ({name: eta.shape for name, eta in natural.items()} for natural in points)
    if differing := [name for name in given | own if given.get(name) != own.get(name)]:
        shapes = ([of.get(name) for name in differing] for of in (given, own))
        raise SymmetryError("The reference was relabelled in statistics of shapes {}; got {}.".format(*shapes))


def names_by(reference: Any, order_by: str | None, seen: PlainDraws) -> Callable[[Relabelling], State]:
    """What names the slots of relabelled draws, unless a draw does; what cannot is refused before labels are searched.

    Raises
    ------
    SymmetryError
        If values are not those of the draws, or draws are not compared by values; if the site to order by does not
        hold one value for each slot of one permutation group.
    """
    if isinstance(reference, Mapping):
        return partial(_nearest, _pieces_of(reference, seen), seen)
    if order_by is not None:
        return partial(_ascending, _pieces_to_order(order_by, seen), seen)
    return lambda found: {name: group.identity((1,)) for name, group in seen.plain.groups.items()}


def _pieces_of(reference: Mapping[str, Any], seen: PlainDraws) -> Arrays:
    if not seen.family.coordinates:
        raise SymmetryError(
            f"{type(seen.cost).__name__} does not compare values as they are: its reference is a draw's, not values."
        )
    refuse_masked(reference, "Reference")
    values = {}
    for site, expected in seen.view.shapes.items():
        where = f"Site {site!r} of the reference"
        if site not in reference or shape_of(reference[site], where) != expected:
            got = shape_of(reference[site], where) if site in reference else "nothing"
            raise SymmetryError(
                f"Site {site!r} of the reference: expected shape {expected}, got {got}. A reference holds one value by "
                "site, or is what rebase returned, reference=out, in whose slots further draws are to be."
            )
        values[site] = as_real_array(as_numbers(reference[site], where), where)[None]
    pieces = seen.view.open(values)
    refuse_other_coordinates(seen.family.coordinates, pieces, "the reference")
    return pieces


def _nearest(pieces: Arrays, seen: PlainDraws, found: Relabelling) -> State:
    """The element that brings the relabelled slots to given values."""
    family = seen.cost.family(Side(pieces, leading=(1,)), seen.plain, seen.family.coordinates)
    natural = seen.family.natural(mean_statistics(seen.family, seen.plain.groups, found.state))
    return inverted(relabel(family, seen.plain.groups, natural, max_rounds=1).state)


def as_in(index: int, found: Relabelling) -> State:
    """The element that brings the relabelled slots to a draw's own labels."""
    return inverted({name: part.at([index]) for name, part in found.state.items()})


def _pieces_to_order(site: str, seen: PlainDraws) -> dict[str, str]:
    """Group -> the piece of a site that holds one value for each of its slots."""
    sites = sorted(seen.view.whole.axes)
    if site not in sites:
        raise SymmetryError(
            f"order_by={site!r} is none of the symmetry's sites {sites}. To order slots by a site "
            "that the model computes, relabel without order_by, and then again with reference= the sites' means in its "
            "order."
        )
    pieces: dict[str, str] = {}
    for piece in [name for name in seen.draws.loc if site in seen.view.stacks[name].sites] or [site]:
        axes = seen.plain.opened(piece) if piece in seen.draws.loc else ()
        groups = [axis.group for axis in axes if axis.group is not None]
        if len(groups) != 1 or groups[0] in pieces or any(axis.signed for axis in axes):
            signs = " with signs (signs=False leaves them out)" if any(axis.signed for axis in axes) else ""
            raise SymmetryError(
                f"order_by={site!r} carries groups {groups}{signs}; expected one permutation group, once, without "
                "signs."
            )
        if (count := math.prod(seen.draws.loc[piece].shape[1:]) // seen.plain.sizes[groups[0]]) != 1:
            raise SymmetryError(
                f"order_by={site!r} has {counted(count, 'value')} for each slot of {groups[0]!r}; expected a site of "
                "one. To order slots by one coordinate, relabel without order_by, and then again with reference= the "
                "means in that order."
            )
        pieces[groups[0]] = piece
    return pieces


def _ascending(pieces: Mapping[str, str], seen: PlainDraws, found: Relabelling) -> State:
    """The element that puts slots in ascending order of their means."""
    totals = {name: _total(seen, found.state, piece) for name, piece in pieces.items()}
    return {name: Hard(np.argsort(total, kind="stable")[None]) for name, total in totals.items()}


def _total(seen: PlainDraws, state: State, piece: str) -> np.ndarray:
    """The sum over all draws of the entries of a relabelled piece."""
    plain, values = seen.plain, seen.draws.loc[piece]
    axes = {piece: plain.axes[piece]}

    def moved(here: Any, items: slice) -> tuple[None, np.ndarray]:
        labels = {name: part.at(items) for name, part in state.items()}
        x = act({piece: here[items]}, plain, axes, labels)[piece]
        return None, np.ascontiguousarray(x.reshape(len(x), -1)).sum(0, dtype=float)

    return map_reduce(values, chunks_of(values), moved)[1]


def brought_to(reference: Any, index: int | None, draws: Arrays, moved: Arrays) -> dict[str, np.ndarray]:
    """Site -> value that draws were brought to."""
    if index is not None:
        return {site: value[index] for site, value in draws.items()}
    if isinstance(reference, Rebased):
        return dict(reference.reference)
    if isinstance(reference, Mapping):
        return {site: np.asarray(reference[site]) for site in draws}
    return {site: summed(value, lambda x: x.sum(0, dtype=float)) / len(value) for site, value in moved.items()}
