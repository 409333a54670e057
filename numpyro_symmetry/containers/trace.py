"""`Trace`: what draws are, whatever they came in. `Container`: what each kind has to say. Knows no kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr

from numpyro_symmetry.models import Model
from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.shown import as_html, sizes

Arrays = dict[str, np.ndarray]


class Write(Protocol):
    """New values of some sites -> a container of the type that was read, without some others; the rest is shared."""

    def __call__(self, new: Arrays, without: Collection[str] = ()) -> Any:
        """The container."""
        ...


class Trace(NamedTuple):
    """Draws of a posterior.

    Attributes
    ----------
    values
        Site -> ``(*leading, *event)``.
    leading
        Shape of the leading dimensions.
    write
        New values of some sites, and sites to leave out -> a container of the type that was read; the rest is shared.
    dims
        Site -> names of its event dimensions, if they have any.
    log_density
        ``(*leading)`` log density of each draw, if the container holds it.
    log_likelihood
        Observed site -> ``(*leading, ...)``, as far as the container holds it; not loaded before it is looked at.
    left_behind
        Groups of the container that hold the same sites, and keep their labels.
    predicted
        Group -> variable -> draws of what was predicted and is no data; not loaded before it is looked at.
    model
        The model that the draws are of, and its arguments, if the container holds them.
    uncompared
        Sites that move with labels and have no say in them: running statistics and whole numbers of networks.
    are_members
        Whether the draws are members of an ensemble, independent by construction, and no chain.
    """

    values: Arrays
    leading: tuple[int, ...]
    write: Write
    dims: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    log_density: np.ndarray | None = None
    log_likelihood: Mapping[str, xr.DataArray] = MappingProxyType({})
    left_behind: tuple[str, ...] = ()
    predicted: Mapping[str, Mapping[str, xr.DataArray]] = MappingProxyType({})
    model: Model | None = None
    uncompared: frozenset[str] = frozenset()
    are_members: bool = False

    def __repr__(self) -> str:
        """Leading dimensions and sites."""
        return f"Trace({' × '.join(map(str, self.leading))} draws: {sizes(self.values)})"

    _repr_html_ = as_html

    @property
    def num_draws(self) -> int:
        """Number of draws in all."""
        return int(np.prod(self.leading))

    def flat(self, sites: Sequence[str]) -> Arrays:
        """Some sites as ``(draw, *event)``."""
        return {s: self.values[s].reshape(self.num_draws, *self.values[s].shape[len(self.leading) :]) for s in sites}


class Container(NamedTuple):
    """A kind of container.

    Attributes
    ----------
    recognises
        Whether something is of this kind.
    read
        The container, the symmetry whose sites' ranks tell leading dimensions from a site's own, and their number where
        the user says it -> the draws. Kinds that name their dimensions need neither.
    model
        The model that the draws are of, if the container knows it.
    """

    recognises: Callable[[Any], bool]
    read: Callable[[Any, Symmetry, int | None], Trace]
    model: Callable[[Any], Model | None] = lambda data: None
