"""Evidence of a model on its own data, and on other data that are drawn when first asked for. Knows no symmetry."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.evidence import (
    Evidence,
    gather_evidence,
    measured,
    with_far_points,
)
from numpyro_symmetry.discovery.proof.frozen import CompiledModel, on_other_arguments
from numpyro_symmetry.models.data import apart, redrawn
from numpyro_symmetry.symmetry.errors import NotFiniteError


@dataclass(frozen=True, eq=False)
class Sources:
    """A model, and the points at which it is tried: on its own data and on others of the same shapes.

    Attributes
    ----------
    model
        The model, compiled.
    opaque
        Whether all of its data are arguments of its programs, which then take other data as they are.
    rng
        Generator of points, and of other data.
    own
        Evidence on its own data.
    """

    model: CompiledModel
    opaque: bool
    rng: np.random.Generator
    own: Evidence
    _others: dict[int, Evidence | None] = field(default_factory=dict)

    @staticmethod
    def of(model: CompiledModel, *, opaque: bool, rng: np.random.Generator, reaches_far: bool) -> Sources:
        """Evidence of a model on its own data, with points far out if it ``reaches_far``.

        Raises
        ------
        NotFiniteError
            If its log joint is not finite about the prior.
        """
        own = gather_evidence(model.frozen, rng, EFFORT.num_points)
        return Sources(model, opaque, rng, with_far_points(own, rng) if reaches_far else own)

    @functools.cached_property
    def _further(self) -> Evidence:
        return self.own if self.own.far else with_far_points(self.own, self.rng)

    def redrawn(self) -> Iterator[Evidence]:
        """Evidence on data sets that were drawn afresh."""
        yield from filter(None, map(self._other, range(1, 1 + EFFORT.num_redrawn)))

    def others(self) -> Iterator[Evidence]:
        """Evidence on the model's own data with real numbers moved a little, and on data that were drawn afresh."""
        yield from filter(None, map(self._other, range(1 + EFFORT.num_redrawn)))

    def own_and_others(self) -> Iterator[Evidence]:
        """Evidence on the model's own data, and on all others."""
        return itertools.chain([self.own], self.others())

    def everything(self) -> Iterator[Evidence]:
        """Evidence on the model's own data, again with points far out, and on all others."""
        yield self.own
        yield self._further
        yield from self.others()

    def _other(self, k: int) -> Evidence | None:
        if k not in self._others:
            # redrawn scalars may be sizes, and whole numbers may say which rows are alike: other shapes are of no use
            ways = [redrawn, functools.partial(redrawn, scalars=False), apart] if k else [apart]
            self._others[k] = next(filter(None, map(self._as_drawn, ways)), None)
        return self._others[k]

    def _as_drawn(self, draw: Callable[[Any, np.random.Generator], Any]) -> Evidence | None:
        model, joint, own = self.model, self.model.joint, self.model.own
        with model.precision.evaluating():
            args, kwargs, observed = draw((joint.args, joint.kwargs, own.observed), self.rng)
        if not self.opaque:
            try:
                model = on_other_arguments(model, args, kwargs)
            except Exception:  # whatever a model says of data it was not made for
                return None
            if jax.tree.map(np.shape, model.inputs) != jax.tree.map(np.shape, self.model.inputs):
                return None
        leaves = jax.tree.leaves((args, kwargs))
        frozen = model.on(own._replace(arguments={k: leaves[k] for k in own.arguments}, observed=observed))
        try:
            # where the prior depends on data, points about the prior on the model's own data are as good
            found = gather_evidence(frozen._replace(place=self.own.frozen.place), self.rng, EFFORT.num_points)
        except NotFiniteError:
            return None
        return measured(with_far_points(found, self.rng))._replace(controls=False)
