"""Which slot is called what: as in a draw, in given values, in another trace, or by the order of a site.

None of these has a say in which labels belong together. Knows draws, families and symmetries; no containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from numpyro_symmetry.assignment.problem import axes_of
from numpyro_symmetry.symmetry import Hard, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import as_real_array, refuse_masked, shape_of
from numpyro_symmetry.traces.acting import act
from numpyro_symmetry.traces.coordinates import Arrays, Coordinate, refuse_other_coordinates
from numpyro_symmetry.traces.costs import Cost, Family
from numpyro_symmetry.traces.rebased import Frame, Rebased
from numpyro_symmetry.traces.relabel import Relabelling, State, mean_statistics, relabel

REFERENCES = ("mean", "medoid", "first", "map")


def index_of(reference: Any, leading: tuple[int, ...], log_density: np.ndarray | None) -> int | None:
    """Which draw a reference is, if it is one.

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
    num_draws = int(np.prod(leading))
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


def refuse_another_frame(frame: Frame, family: Family, draws: Arrays) -> None:
    """Refuse a reference that was relabelled in other statistics than these draws have."""
    if frame.read and set(frame.read) != set(draws):
        raise SymmetryError(
            f"The reference was relabelled by its sites {sorted(frame.read)}; the symmetry of these draws has "
            f"{sorted(draws)}. Use one symmetry for both."
        )
    refuse_other_coordinates(frame.read, draws, "the draws")
    for given, own in zip(frame.natural, family.statistics(slice(0, 1)), strict=True):
        if given.shape != own.shape[1:]:
            raise SymmetryError(
                f"The reference was relabelled in statistics of shape {given.shape}; got {own.shape[1:]}."
            )


def slots_of(
    reference: Mapping[str, Any],
    found: Relabelling,
    draws: Arrays,
    bound: Symmetry,
    cost: Cost,
    family: Family,
    coordinates: dict[str, Coordinate],
) -> State:
    """The slots that given values fall into."""
    if not coordinates:
        raise SymmetryError(f"{type(cost).__name__} compares allocations: its reference is a draw's, not values.")
    refuse_masked(reference, "Reference")
    one = {}
    for site in bound.axes:
        expected = draws[site].shape[1:]
        where = f"Site {site!r} of the reference"
        if site not in reference or shape_of(reference[site], where) != expected:
            got = shape_of(reference[site], where) if site in reference else "nothing"
            raise SymmetryError(f"Site {site!r} of the reference: expected shape {expected}, got {got}.")
        one[site] = np.asarray(as_real_array(reference[site], where))[None]
    refuse_other_coordinates(coordinates, one, "the reference")
    natural = family.natural(mean_statistics(family, bound.groups, found.state))
    return relabel(cost.family(one, bound, coordinates), bound.groups, natural, max_rounds=1).state


def renamed(found: Relabelling, reference: State) -> Relabelling:
    """The same labels under other names, such that the reference's own element becomes the identity."""

    def one(part: Hard, named: Hard) -> Hard:
        back = named.inverse().at(np.array([0]))
        permutation = part.permutation[:, back.permutation[0]]
        if part.sign is None or back.sign is None:
            return Hard(permutation)
        return Hard(permutation, part.sign[:, back.permutation[0]] * back.sign)

    return found._replace(state={name: one(part, reference[name]) for name, part in found.state.items()})


def ordered(draws: Arrays, bound: Symmetry, state: State, site: str) -> State:
    """The same labels under other names: in ascending order of a site's relabelled means.

    Raises
    ------
    SymmetryError
        If the site does not hold one value for each slot of one permutation group.
    """
    if site not in bound.axes:
        raise SymmetryError(f"order_by={site!r} is none of the symmetry's sites {sorted(bound.axes)}.")
    shape, axes = axes_of(bound, site, draws[site].shape[1:])
    names = [axis.group for axis in axes if axis.group is not None]
    if len(names) != 1 or any(axis.signed for axis in axes):
        signs = " with signs (signs=False leaves them out)" if any(axis.signed for axis in axes) else ""
        raise SymmetryError(
            f"order_by={site!r} carries groups {names}{signs}; expected one permutation group, once, without signs."
        )
    at = 1 + next(k for k, axis in enumerate(axes) if axis.group is not None)
    if (count := int(np.prod(shape)) // shape[at - 1]) != 1:
        raise SymmetryError(
            f"order_by={site!r} has {count} values for each slot of {names[0]!r}; expected a site of one. To order "
            "slots by one coordinate, relabel without order_by, and then again with reference= the means in that order."
        )
    moved = act(draws[site], bound, site, bound.axes[site], state)
    order = np.argsort(moved.reshape(len(moved), -1).mean(0, dtype=float), kind="stable")
    return state | {names[0]: state[names[0]].each(lambda x: x[:, order])}


def brought_to(reference: Any, index: int | None, draws: Arrays, moved: Arrays) -> dict[str, np.ndarray]:
    """Site -> value that draws were brought to."""
    if index is not None:
        return {site: value[index] for site, value in draws.items()}
    if isinstance(reference, Rebased):
        return dict(reference.reference)
    if isinstance(reference, Mapping):
        return {site: np.asarray(reference[site]) for site in draws}
    return {site: value.mean(0, dtype=float) for site, value in moved.items()}
