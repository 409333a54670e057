"""What `Rebased.apply` and `Rebased.undo` do to one set of values, in whatever container they come.

Knows relabelled draws and how elements act on arrays; not how elements were found.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from numpyro_symmetry.assignment.family import State
from numpyro_symmetry.assignment.passes import is_stored
from numpyro_symmetry.containers import Trace, read
from numpyro_symmetry.containers.strangers import refuse_draws_in_several_orders
from numpyro_symmetry.symmetry import SymmetryError, inverse
from numpyro_symmetry.symmetry.arguments import as_mapping, as_numbers, is_floating, refuse_masked
from numpyro_symmetry.symmetry.axes import AxisEntry, padded
from numpyro_symmetry.symmetry.families import by_site
from numpyro_symmetry.symmetry.hard import from_element
from numpyro_symmetry.symmetry.named import Named, draws_in_front, groups_on, names_of, refuse_other_names
from numpyro_symmetry.symmetry.pytrees import comes_by_site, like
from numpyro_symmetry.traces.acting import act, by_chunk, refuse_no_labels, rename
from numpyro_symmetry.traces.coordinates import Arrays
from numpyro_symmetry.traces.named import refuse_names_at_odds, refuse_other_draws

if TYPE_CHECKING:
    from numpyro_symmetry.traces.rebased import Rebased


class Move:
    """What `Rebased.apply` and `Rebased.undo` do to one set of values."""

    def __init__(
        self,
        out: Rebased,
        axes: Mapping[str, tuple[AxisEntry, ...]] | None,
        labels: Mapping[str, str] | None,
        *,
        undone: bool,
    ) -> None:
        self.out, self.leading = out, out.objective.shape
        given_axes = by_site(as_mapping(axes, "axes", example="{'f': (None, 'component')}"))
        self.axes = {**out.symmetry.axes, **out.carried.axes, **given_axes}
        self.labels = {**out.labels, **as_mapping(labels, "labels", example="{'z': 'component'}")}
        self.state = from_element(inverse(out.elements) if undone else out.elements)
        given, made = out.carried.before, out.carried.after
        self.known = {s: (made[s], given[s]) if undone else (given[s], made[s]) for s in given if s not in given_axes}
        self.gone = () if undone else tuple(s for s in out.carried.left_out if s not in given_axes)

    def of(self, values: Any) -> Any:
        """Values of any container, moved."""
        is_dict = type(values) is dict and comes_by_site(values, self.out.symmetry.axes)
        trace = self._of_dict(values) if is_dict else read(values, self.out.symmetry, len(self.leading), lazily=True)
        if trace.leading != self.leading:
            raise SymmetryError(f"The container has leading dimensions {trace.leading}; expected {self.leading}.")
        self._refuse_other_names(trace)
        gone = [site for site in self.gone if site in trace.values]
        named = [site for site in trace.values if self._is_named(site) and site not in gone]
        return trace.write(trace.moved(self._moved, named).values, gone)

    def _of_dict(self, values: dict[str, Any]) -> Trace:
        """Values by site as a trace, whatever the shapes of those that stay as they are."""
        refuse_masked(values)
        refuse_draws_in_several_orders(values)
        given = {site: draws_in_front(value, len(self.leading)) for site, value in values.items()}
        arrays = {site: _array_of(value, f"Site {site!r}") for site, value in given.items()}
        for site, array in arrays.items():
            if site in self.gone and not set(self.out.symmetry.axes) <= set(values):
                raise SymmetryError(
                    f"Site {site!r} could not be computed again from relabelled values "
                    f"({self.out.carried.left_out[site]}): name its axes, axes={{{site!r}: (...)}}."
                )
            if self._is_named(site) and array.shape[: len(self.leading)] != self.leading:
                raise SymmetryError(
                    f"Site {site!r} has shape {array.shape}; expected the draws' leading dimensions {self.leading} in "
                    "front."
                )

        def write(new: Arrays, without: Collection[str] = ()) -> dict[str, Any]:
            moved = {site: like(given[site], array) for site, array in new.items()}
            return {site: value for site, value in (values | moved).items() if site not in without}

        return Trace(arrays, self.leading, write, *names_of(given, len(self.leading)))

    def _refuse_other_names(self, given: Named) -> None:
        """Refuse values that are read as the draws are by position, and by their names are something else."""
        if not given.dims:
            return
        own, called = trace_of(self.out), ("the relabelled draws", "these values")
        along = groups_on(own.dims, self.out.symmetry.axes)
        refuse_other_draws(own, given, called)
        refuse_other_names(own, given, list(given.dims), called, along=along)
        if self.out.symmetry.findings:
            return  # read off a model, and not by the names of dimensions
        dims = {**own.dims, **given.dims}
        axes = {site: entries for site, entries in self.axes.items() if site in dims and ... not in entries}
        refuse_names_at_odds(dims, {site: padded(entries, len(dims[site])) for site, entries in axes.items()})

    def _is_named(self, site: str) -> bool:
        return any(site in names for names in (self.axes, self.labels, self.known))

    def _moved(self, values: Arrays, lead: int) -> Arrays:
        """New values of named sites: those that are settled, and all others moved on their axes."""
        settled = {site: new for site, x in values.items() if (new := self._settled(site, x)) is not None}
        on_axes = {site: self.axes[site] for site in values if site not in settled}
        return settled | act(values, self.out.symmetry, on_axes, self.state, lead)

    def _settled(self, site: str, flat: Any) -> Any:
        """New values of a site that no axes move: labels, and values that are known already; else ``None``."""
        if site in self.labels:
            return self._renamed(site, flat)
        if site in self.known:
            given, made = self.known[site]
            if given.shape == flat.shape and np.array_equal(given, flat, equal_nan=is_floating(given.dtype)):
                return made
            if site not in self.out.symmetry.axes:
                raise SymmetryError(
                    f"Site {site!r} was computed by the model from relabelled values, and these are other values. "
                    f"Compute them from relabelled values too, or name their axes: axes={{{site!r}: (...)}}."
                )
        return None

    def _renamed(self, site: str, flat: Any) -> Any:
        group = self.labels[site]
        part = self.state.get(group)
        if part is None or part.sign is not None or part.permutation.ndim > 2:
            raise SymmetryError(f"Site {site!r} holds labels of {group!r}, which is no permutation group here.")

        def of(labels: np.ndarray, state: State) -> np.ndarray:
            refuse_no_labels(site, labels, group, state[group].permutation.shape[-1])
            return rename(labels, state[group])

        state = {group: part}
        return by_chunk(of, flat, state, flat.ndim - len(self.leading)) if is_stored(flat) else of(flat, state)


def trace_of(out: Rebased) -> Trace:
    """The relabelled draws as they are read; what Dask reads is left where it is."""
    return read(out.data, out.symmetry, len(out.objective.shape), lazily=True)


def _array_of(value: Any, where: str) -> Any:
    """An array of NumPy, or of Dask where it is of Dask."""
    if isinstance(value, xr.DataArray):
        # a variable that is in memory, too, has what Dask's arrays are told by
        value = value.data if value.chunks else value.values
    return value if is_stored(value) else as_numbers(value, where)
