"""Evidence of a model on its own data and on others, each made when it is first asked for. Knows no symmetry."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import Array

from numpyro_symmetry.discovery.evidence import Evidence, gather_evidence, measured, with_far_points
from numpyro_symmetry.discovery.joint import FrozenModel, freeze, traced_in
from numpyro_symmetry.models.data import apart, observing, redrawn
from numpyro_symmetry.models.trace import observed_values

_NUM_POINTS, _NUM_REDRAWN = 2, 5


@dataclass(frozen=True, eq=False)
class Sources:
    """A model and its data, and where it is tried.

    Attributes
    ----------
    model, args, kwargs, key, rng
        The model, its arguments, and where its plates and its points come from.
    sites
        Latent sites.
    single
        Whether the model is traced in single precision.
    reaches_far
        Whether evidence on its own data has far points from the start.
    """

    model: Callable
    args: tuple
    kwargs: dict[str, Any]
    key: Array
    rng: np.random.Generator
    sites: Collection[str]
    single: bool
    reaches_far: bool

    @functools.cached_property
    def own(self) -> Evidence:
        """On its own data."""
        found = gather_evidence(self._frozen(self.args, self.kwargs, {}), self.rng, _NUM_POINTS)
        return with_far_points(found, self.rng) if self.reaches_far else found

    @functools.cached_property
    def _further(self) -> Evidence:
        return self.own if self.own.far else with_far_points(self.own, self.rng)

    @functools.cached_property
    def _others(self) -> dict[int, Evidence | None]:
        return {}

    def redrawn(self) -> Iterator[Evidence]:
        """On data that were drawn afresh."""
        yield from filter(None, map(self._other, range(1, 1 + _NUM_REDRAWN)))

    def others(self) -> Iterator[Evidence]:
        """On its own data with real numbers moved a little, and on data that were drawn afresh."""
        yield from filter(None, map(self._other, range(1 + _NUM_REDRAWN)))

    def everything(self) -> Iterator[Evidence]:
        """On its own data, far out as well, and on all others."""
        yield self.own
        yield self._further
        yield from self.others()

    def _other(self, k: int) -> Evidence | None:
        if k not in self._others:
            # a number on its own may be a size, without which there are no other data at all
            ways = [redrawn, functools.partial(redrawn, scalars=False)] if k else [apart]
            self._others[k] = next(filter(None, map(self._as_drawn, ways)), None)
        return self._others[k]

    def _as_drawn(self, way: Callable[[Any, np.random.Generator], Any]) -> Evidence | None:
        try:
            with traced_in(self.single):
                observed = observed_values(self.model, self.args, self.kwargs, self.key)
            # where a prior depends on data, points about another are as good, and need not be compiled
            other = self._frozen(*way((self.args, self.kwargs, observed), self.rng))
            other = other._replace(place=self.own.frozen.place)
            if other.sizes != self.own.frozen.sizes:
                return None
            found = with_far_points(gather_evidence(other, self.rng, _NUM_POINTS), self.rng)
            return measured(found)._replace(controls=False)
        except Exception:  # whatever a model says of data it was not made for
            return None

    def _frozen(self, args: tuple, kwargs: dict[str, Any], observed: Mapping[str, Any]) -> FrozenModel:
        shown = observing(self.model, observed) if observed else self.model
        return freeze(shown, args, kwargs, self.key, self.sites, single=self.single)
