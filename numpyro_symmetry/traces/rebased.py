"""`Rebased`: relabelled draws, the elements that moved them, and how to move further values of the same draws.

Knows elements and how they act on arrays; not how they were found.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jax import Array

from numpyro_symmetry.assignment.family import Coordinate, Cost, Natural, Side, State, family_of, objective_of
from numpyro_symmetry.assignment.passes import in_pieces, is_stored
from numpyro_symmetry.containers import Trace, read, write_by_region
from numpyro_symmetry.containers.strangers import refuse_draws_in_several_orders
from numpyro_symmetry.symmetry import Element, PlainView, Symmetry, SymmetryError, as_html, inverse
from numpyro_symmetry.symmetry.arguments import (
    as_array,
    as_flag,
    as_key,
    as_mapping,
    is_floating,
    refuse_masked,
    refuse_tracers,
)
from numpyro_symmetry.symmetry.axes import AxisEntry, padded
from numpyro_symmetry.symmetry.families import by_site
from numpyro_symmetry.symmetry.hard import from_element, to_element
from numpyro_symmetry.symmetry.named import Named, draw_dims, groups_on, names_of, refuse_other_names
from numpyro_symmetry.symmetry.pytrees import comes_by_site, like
from numpyro_symmetry.traces.acting import act, by_chunk, refuse_no_labels, rename
from numpyro_symmetry.traces.coordinates import Arrays
from numpyro_symmetry.traces.costs import refuse_no_cost
from numpyro_symmetry.traces.deterministic import NOTHING, Carried
from numpyro_symmetry.traces.named import refuse_cost_of_others, refuse_names_at_odds, refuse_other_draws
from numpyro_symmetry.traces.null import Null
from numpyro_symmetry.traces.summary import describe


class Frame(NamedTuple):
    """What draws were relabelled against: the cost, its coordinates, natural parameters and their log-partition."""

    cost: Cost
    read: Mapping[str, Coordinate]
    point: Natural


class Rebased(NamedTuple):
    """Draws in one basin, and how they got there.

    Attributes
    ----------
    data
        A container of the type that was given. Changed are the sites that the symmetry names and what follows from
        them (``carried``); a site that could not be computed again is left out.
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
        fitted to the relabelled slots (under the divergence for `StephensCost`), or those of ``reference``. Near zero,
        labels are a guess. Where a site has two axes that move, of more than 120 elements only some are compared: it
        is then at most this.
    null
        The matched null: how much agreement relabelling makes of nothing; ``None`` if it was not asked for.
    num_rounds, converged
        How often the draws were relabelled, and whether the last time changed nothing.
    symmetry
        The symmetry, with sizes.
    labels
        Sites whose values are labels -> their group.
    frame
        For relabelling other draws to the same reference: ``rebase(more, symmetry, reference=out)``.
    carried
        What became of sites that follow from others: deterministic sites of the model, and those of ``axes=``.
    view
        How the sites are cut into the pieces that were relabelled: those on which groups permute all indices alike.
    part
        Whose symmetry it is: the ``"joint"`` density's, or the ``"likelihood"``'s alone.
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
    view: PlainView
    carried: Carried = NOTHING
    part: str = "joint"

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
        return _Move(self, axes, labels, undone=False).of(values)

    def undo(
        self,
        values: Any,
        *,
        axes: Mapping[str, tuple[AxisEntry, ...]] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Any:
        """Give values the labels they came with: the exact inverse of `apply`.

        Sites that were computed again (``carried.before``) come back as they were. Those that were left out
        (``carried.left_out``) are in no relabelled container, and so do not come back.
        """
        return _Move(self, axes, labels, undone=True).of(values)

    def symmetrized(self, rng_key: Array) -> Any:
        r"""Every draw with labels drawn uniformly: draws of :math:`\frac1{|G|}\sum_g p(g\theta\mid x)`.

        For a posterior with the symmetry these are draws of the posterior itself, from a sampler that moves between all
        labellings: what it says of single slots says nothing, and what it says of anything else is unchanged.

        Parameters
        ----------
        rng_key
            JAX random key.

        Returns
        -------
        Any
            A container of the type that was given. Sites that the model computes, and which do not move as wholes, are
            left out.

        Raises
        ------
        TypeError
            If ``rng_key`` is no key.

        References
        ----------
        Frühwirth-Schnatter (2001), Markov chain Monte Carlo estimation of classical and dynamic switching and mixture
        models (random permutation sampling).

        Examples
        --------
        >>> import jax, numpy as np
        >>> from numpyro_symmetry import Symmetry, rebase
        >>> loc = np.array([-3.0, 3.0]) + 0.1 * np.random.default_rng(0).standard_normal((400, 2))
        >>> out = rebase({"loc": loc}, Symmetry.mixture("loc"))
        >>> mixed = out.symmetrized(jax.random.key(0))["loc"]
        >>> bool((np.sort(mixed) == np.sort(loc)).all()), 0.4 < float((mixed[:, 0] > 0).mean()) < 0.6
        (True, True)
        """
        rng_key = as_key(rng_key)
        refuse_tracers("symmetrized", rng_key)
        elements = self.symmetry.sample(rng_key, self.objective.shape)
        computed = [site for site in self.carried.before if site not in self.symmetry.axes]
        changed = [*self.carried.left_out, *computed, *self.carried.unmoved]
        gone = dict.fromkeys(changed, "its labels were drawn at random")
        drawn = self._replace(
            elements=to_element(from_element(elements), self.objective.shape),
            carried=Carried(self.carried.axes, {}, {}, gone),
        )
        return _Move(drawn, None, None, undone=False).of(self.data)

    def to_zarr(self, path: Any, *, progress_bar: bool = True) -> None:
        """Write ``data`` to a zarr store, a region of draws at a time; what is there already is left as it is.

        Each group gets a coordinate ``is_complete`` over its regions. A store of which some are not is refused by
        `rebase` and the like; `to_zarr` with the same path, of the same draws relabelled alike, writes those alone.

        Parameters
        ----------
        path
            Of the store: a path, or whatever else ``xarray.Dataset.to_zarr`` takes.
        progress_bar
            Whether to show one.

        Raises
        ------
        SymmetryError
            If there is a store at that path that holds anything else.
        TypeError
            If the draws came in a container without named dimensions.
        ImportError
            If Dask or zarr is not installed: they are the extra ``dask``.
        """
        known = hashlib.sha256(self.objective.tobytes())
        for x in itertools.chain(*from_element(self.elements).values()):
            known.update(b"" if x is None else np.ascontiguousarray(x).tobytes())
        write_by_region(self.data, path, known.hexdigest()[:16], progress_bar=as_flag(progress_bar, "progress_bar"))

    def score(self, data: Any, cost: Cost) -> float:
        """Mean objective of these labels under another cost, nats a draw, larger is better.

        Parameters
        ----------
        data
            The draws as they were *before* rebasing.
        cost
            For example `StephensCost`, whose criterion this is with the opposite sign.

        Raises
        ------
        SymmetryError
            If the draws are not as many as were rebased.
        """
        refuse_no_cost(cost)
        trace = read(data, self.symmetry, len(self.objective.shape), lazily=True)
        if trace.leading != self.objective.shape:
            raise SymmetryError(
                f"data has leading dimensions {trace.leading}, and the labels are of draws {self.objective.shape}: "
                "pass the draws as they were before rebasing."
            )
        named, along = (trace_of(self), trace), groups_on(trace.dims, self.symmetry.axes)
        refuse_other_draws(*named, ("the relabelled draws", "data"))
        refuse_other_names(*named, list(self.symmetry.axes), ("the relabelled draws", "data"), along=along)
        refuse_cost_of_others(cost, trace, along)
        plain, pieces = self.view.symmetry, in_pieces(trace.flat(list(self.view.shapes)), self.view)
        family = family_of(cost, Side.of_pieces(pieces, trace.leading, self.view), plain)
        return objective_of(family, plain.groups, self.view.parts(self.elements))

    def __repr__(self) -> str:
        return describe(self)

    _repr_html_ = as_html


class _Move:
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
        given = {site: _in_front(value, len(self.leading)) for site, value in values.items()}
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


def _in_front(value: Any, num: int) -> Any:
    """Values with the dimensions that count draws among the first ``num``, if dimensions have names."""
    dims = value.dims if isinstance(value, xr.DataArray) else ()
    counted = draw_dims(dims)
    return value if tuple(dim for dim in dims[:num] if dim in counted) == counted else value.transpose(*counted, ...)


def _array_of(value: Any, where: str) -> Any:
    """An array of NumPy, or of Dask where it is of Dask."""
    if isinstance(value, xr.DataArray):
        # a variable that is in memory, too, has what Dask's arrays are told by
        value = value.data if value.chunks else value.values
    return value if is_stored(value) else np.asarray(as_array(value, where))
