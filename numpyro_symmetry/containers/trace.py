"""`Trace`: draws, whatever container they came in. `Container`: how one kind of container is read. Knows no kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr

from numpyro_symmetry.assignment.passes import Source, is_stored
from numpyro_symmetry.models import Model
from numpyro_symmetry.symmetry import Symmetry, as_html
from numpyro_symmetry.symmetry.shown import counted, sizes

Arrays = dict[str, np.ndarray]


class Write(Protocol):
    """Makes a container of the type that was read, with new values at some sites and without others."""

    def __call__(self, new: Arrays, without: Collection[str] = ()) -> Any:
        """The container with ``new`` values by site and none of the sites ``without``; all else is shared."""
        ...


class Trace(NamedTuple):
    """Draws of a posterior.

    Attributes
    ----------
    values
        Site -> ``(*leading, *event)``, of NumPy or of Dask.
    leading
        Shape of the leading dimensions.
    write
        New values of some sites, and sites to leave out -> a container of the type that was read; the rest is shared.
    dims
        Site -> names of its event dimensions, if they have any.
    coords
        Name of a dimension -> its coordinates, if it has any.
    log_density
        ``(*leading)`` log density of each draw, if the container holds it.
    log_likelihood
        Observed site -> ``(*leading, ...)``, as far as the container holds it; not loaded before it is looked at.
    left_behind
        Groups of the container that hold the same sites, and keep their labels.
    predicted
        Group -> variable -> draws of what was predicted and is no data; not loaded before it is looked at.
    paired
        Group -> variable -> what else the container holds for each draw; not loaded.
    unmoved
        Variables beside the sites that keep their values: coordinates that are no index, and variables without draws;
        not loaded.
    model
        The model that the draws are of, and its arguments, if the container holds them.
    uncompared
        Sites that move with labels and have no say in them: running statistics and whole numbers of networks.
    chains
        Indices of the draws of each chain, in the order in which they were drawn, if several chains are stacked along
        one dimension, or draws stand in another order.
    are_members
        Whether the draws are members of an ensemble, independent by construction, and no chain.
    """

    values: Arrays
    leading: tuple[int, ...]
    write: Write
    dims: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    coords: Mapping[str, np.ndarray] = MappingProxyType({})
    log_density: np.ndarray | None = None
    log_likelihood: Mapping[str, xr.DataArray] = MappingProxyType({})
    left_behind: tuple[str, ...] = ()
    predicted: Mapping[str, Mapping[str, xr.DataArray]] = MappingProxyType({})
    paired: Mapping[str, Mapping[str, xr.DataArray]] = MappingProxyType({})
    unmoved: Mapping[str, xr.DataArray] = MappingProxyType({})
    model: Model | None = None
    uncompared: frozenset[str] = frozenset()
    chains: tuple[np.ndarray, ...] = ()
    are_members: bool = False

    def __repr__(self) -> str:
        """Leading dimensions and sites."""
        return f"Trace({counted(' × '.join(map(str, self.leading)), 'draw')}: {sizes(self.values)})"

    _repr_html_ = as_html

    @property
    def num_draws(self) -> int:
        """Number of draws in all."""
        return math.prod(self.leading)

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many draws each chain has."""
        return tuple(map(len, self.chains)) or (self.leading[-1],) * math.prod(self.leading[:-1])

    @property
    def in_order(self) -> np.ndarray:
        """Indices of all draws, chain after chain, in the order in which they were drawn."""
        return np.concatenate(self.chains or [np.arange(self.num_draws)])

    @property
    def is_stored(self) -> bool:
        """Whether some of the sites are Dask arrays."""
        return any(map(is_stored, self.values.values()))

    def in_memory(self) -> Trace:
        """The trace with all Dask arrays read."""
        return self._replace(values={site: np.asarray(value) for site, value in self.values.items()})

    def flat(self, sites: Sequence[str]) -> Arrays:
        """These sites as ``(draw, *event)``; if any of them is a Dask array, all are read when they are indexed."""
        if any(is_stored(self.values[site]) for site in sites):
            return Source({site: self.values[site] for site in sites}, self.leading).draws()
        return {s: self.values[s].reshape(self.num_draws, *self.values[s].shape[len(self.leading) :]) for s in sites}

    def moved(self, by: Callable[[Arrays, int], Arrays], sites: Sequence[str]) -> Trace:
        """The trace with these sites alone, moved.

        Parameters
        ----------
        by
            Values by site, ``(draw, *event)``, or ``(*leading, *event)`` of Dask, and how many dimensions count draws
            -> these values, moved.
        sites
            Sites to move; if any of them is a Dask array, Dask moves all of them.
        """
        if any(is_stored(self.values[site]) for site in sites):
            import dask.array as da

            return self._replace(values=by({s: da.asarray(self.values[s]) for s in sites}, len(self.leading)))
        moved = by(self.flat(sites), 1)
        return self._replace(values={site: x.reshape(self.values[site].shape) for site, x in moved.items()})


class Container(NamedTuple):
    """A kind of container.

    Attributes
    ----------
    recognises
        Whether an object is of this kind.
    read
        The container, the symmetry, whose sites' ranks tell leading dimensions from a site's own, and the number of
        leading dimensions if the user gave it -> the draws. Kinds that name their dimensions use neither.
    model
        The container -> the model that the draws are of, if it knows the model.
    """

    recognises: Callable[[Any], bool]
    read: Callable[[Any, Symmetry, int | None], Trace]
    model: Callable[[Any], Model | None] = lambda data: None
