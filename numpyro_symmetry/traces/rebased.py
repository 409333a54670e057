"""`Rebased`: relabelled draws, the elements that moved them, and how to move further values of the same draws.

Knows elements and how they act on arrays; not how they were found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from numpyro_symmetry.matching.bilinear import axes_of, move
from numpyro_symmetry.matching.hard import Hard, from_element
from numpyro_symmetry.symmetry import Element, PlainView, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.axes import AxisEntry
from numpyro_symmetry.traces.containers import read
from numpyro_symmetry.traces.coordinates import Coordinate
from numpyro_symmetry.traces.costs import Cost, Statistics, refuse_other_draws
from numpyro_symmetry.traces.null import Null
from numpyro_symmetry.traces.relabel import State, objective_of


class Frame(NamedTuple):
    """What draws were relabelled against: the cost, its coordinates, natural parameters and their log-partition."""

    cost: Cost
    read: dict[str, Coordinate]
    natural: Statistics
    partition: float


class Rebased(NamedTuple):
    """Draws in one basin, and how they got there.

    Attributes
    ----------
    data
        A container of the type that was given; only the sites the symmetry names are changed.
    elements
        Group -> ``(*leading, n)``: the element that was applied to each draw.
    reference
        Site -> value that the draws were brought to: their relabelled mean, or the draw or values that were named.
    objective
        ``(*leading)`` log-likelihood of each relabelled draw under the cost; larger is better. In nats for
        `GaussianCost` and `StephensCost` (minus the divergence), minus half the squared distance, in pooled standard
        deviations, for `EuclideanCost`, minus the number of other allocations for `AllocationCost`.
    margin
        ``(*leading)``, nats: log density of the draw with its labels less that with the next best, under Gaussians
        fitted to the relabelled slots (under the divergence for `StephensCost`). Near zero, labels are a guess.
    null
        What the relabelling made up; ``None`` if it was not asked for.
    num_rounds, converged
        How often the draws were relabelled, and whether the last time changed nothing.
    symmetry
        With sizes.
    labels
        Sites whose values are labels -> their group.
    frame
        For relabelling other draws to the same reference: ``rebase(more, symmetry, reference=out)``.
    plain, view
        For symmetries with orbits, fibres or joined axes: the same of the pieces that were relabelled, and how the
        sites are cut into them.
    """

    data: Any
    elements: Element
    reference: dict[str, Any]
    objective: np.ndarray
    margin: np.ndarray
    null: Null | None
    num_rounds: int
    converged: bool
    symmetry: Symmetry
    labels: dict[str, str]
    frame: Frame
    plain: Rebased | None = None
    view: PlainView | None = None

    def apply(
        self,
        values: Any,
        *,
        axes: Mapping[str, tuple[AxisEntry, ...]] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Any:
        """Relabel further values of the same draws.

        Parameters
        ----------
        values
            Site -> ``(*leading, ...)``, or any container that `rebase` takes.
        axes
            Site -> its axes, as in `Symmetry`, for sites the symmetry does not name.
        labels
            Site -> group, for integer sites whose *values* are labels (allocations, states): they are relabelled with
            the inverse, so that a datum stays with its component.

        Returns
        -------
        dict or container
            Relabelled values, as arrays for a dict; sites that are named nowhere as they were.

        Raises
        ------
        SymmetryError
            If the leading dimensions differ from the draws', or labels point outside their group.
        """
        return _act_on(self, values, axes or {}, {**self.labels, **(labels or {})}, self._states())

    def undo(
        self,
        values: Any,
        *,
        axes: Mapping[str, tuple[AxisEntry, ...]] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Any:
        """Give values the labels they came with: the exact inverse of `apply`."""
        back = {name: part.inverse() for name, part in self._states().items()}
        return _act_on(self, values, axes or {}, {**self.labels, **(labels or {})}, back)

    def score(self, data: Any, cost: Cost) -> float:
        """Mean objective of these labels under another cost, nats a draw, larger is better.

        Parameters
        ----------
        data
            The draws as they were *before* rebasing.
        cost
            For example `StephensCost`, whose criterion this is with the opposite sign.
        """
        trace = read(data, self.symmetry, len(self.objective.shape))
        refuse_other_draws(cost, trace.leading)
        if self.view is not None and self.plain is not None:
            return self.plain.score(self.view.open({site: trace.values[site] for site in self.view.shapes}), cost)
        draws = trace.flat(list(self.symmetry.axes))
        family = cost.family(draws, self.symmetry, cost.coordinates(draws, self.symmetry))
        return objective_of(family, self.symmetry.groups, from_element(self.elements))

    def _states(self) -> State:
        return from_element((self.plain or self).elements)


def act(values: np.ndarray, symmetry: Symmetry, site: str, state: State) -> np.ndarray:
    """Move ``(draw, *event)`` values of one site, each draw by its own element; types are kept."""
    shape, axes = axes_of(symmetry, site, values.shape[1:])
    opened = values.reshape(len(values), *shape)
    if any(axis.signed for axis in axes) and values.dtype.kind not in "fi":
        raise SymmetryError(f"Site {site!r}: a sign cannot apply to values of type {values.dtype}.")
    return move(opened, axes, state).reshape(values.shape)


def rename(values: np.ndarray, part: Hard) -> np.ndarray:
    """Give labels ``(draw, ...)`` the names that their slots have after relabelling."""
    flat = values.reshape(len(values), -1).astype(int)
    return np.take_along_axis(part.inverse().permutation, flat, 1).astype(values.dtype).reshape(values.shape)


def _act_on(
    out: Rebased,
    values: Any,
    axes: Mapping[str, tuple[AxisEntry, ...]],
    labels: Mapping[str, str],
    state: State,
) -> Any:
    leading = out.objective.shape
    if isinstance(values, dict) and out.view is not None and out.plain is not None:
        cut = out.view.open({site: np.asarray(v) if site in out.view.shapes else v for site, v in values.items()})
        return out.view.close(_act_on(out.plain, cut, axes, labels, state))
    if not isinstance(values, dict):
        trace = read(values, out.symmetry, len(leading))
        if trace.leading != leading:
            raise SymmetryError(f"The container has leading dimensions {trace.leading}; expected {leading}.")
        named = set(axes) | set(labels) | set(out.symmetry.axes)
        some = {site: value for site, value in trace.values.items() if site in named}
        return trace.write(_act_on(out, some, axes, labels, state))
    moved = {}
    for site, value in values.items():
        if isinstance(value, xr.DataArray):
            value = value.transpose(*(dim for dim in ("chain", "draw", "sample") if dim in value.dims), ...)
        array = np.asarray(value)
        named = site in axes or site in labels or site in out.symmetry.axes
        if named and array.shape[: len(leading)] != leading:
            raise SymmetryError(
                f"Site {site!r} has shape {array.shape}; expected the draws' leading dimensions {leading} in front."
            )
        flat = array.reshape(-1, *array.shape[len(leading) :]) if named else array
        if site in labels:
            if (group := labels[site]) not in state or state[group].sign is not None:
                raise SymmetryError(f"Site {site!r} holds labels of {group!r}, which is no permutation group here.")
            size = state[group].permutation.shape[-1]
            if array.dtype.kind not in "iu" or array.size and not 0 <= array.min() <= array.max() < size:
                raise SymmetryError(
                    f"Site {site!r} holds labels of group {group!r}; expected integers from 0 to {size - 1}, got "
                    f"{array.dtype} from {array.min()} to {array.max()}."
                )
            flat = rename(flat, state[group])
        elif named:
            event = {site: np.empty(flat.shape[1:], bool)}
            one = _restricted(out.symmetry, site, axes.get(site) or out.symmetry.axes[site]).bind(event)
            flat = act(flat, one, site, state)
        moved[site] = flat.reshape(array.shape) if named else array
    return moved


def _restricted(symmetry: Symmetry, site: str, entries: tuple[AxisEntry, ...]) -> Symmetry:
    """The symmetry's groups on one site."""
    groups = Symmetry({site: entries}).groups
    if unknown := sorted(set(groups) - set(symmetry.groups)):
        raise SymmetryError(
            f"axes of site {site!r} name groups {unknown}; the draws were relabelled by {sorted(symmetry.groups)}."
        )
    kinds = {name: symmetry.groups[name].kind for name in groups}
    return Symmetry({site: entries}, kinds, {name: symmetry.sizes[name] for name in groups})
