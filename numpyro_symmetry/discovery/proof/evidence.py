"""Where a symmetry of a model is tried: the model held fixed, and points in latent space. Knows no symmetry."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from numpyro_symmetry.discovery.proof.frozen import (
    FrozenModel,
    Point,
    Values,
    stacked,
)
from numpyro_symmetry.discovery.proof.points import edges, far_points, points
from numpyro_symmetry.discovery.proof.rounding import FAR_NUDGE, HARDLY, MARGIN, NUDGE, SINGLE
from numpyro_symmetry.discovery.proof.trials import batched, gap_to, gaps_to, largest_gap


class Evidence(NamedTuple):
    """A frozen model, and points: about its prior, near the edges of its supports, and far out.

    Attributes
    ----------
    frozen
        The model.
    places
        Points about the prior at which its log joint is finite.
    edges
        Points near the edges of its supports.
    far
        Points far from the prior at which its log joint is finite, and known to more digits than a gap needs; none
        unless asked for.
    controls
        Whether wrong actions must be seen to change something; asked for only on the model's own data.
    is_near
        Whether points about the prior were drawn nearer to its centre than it spreads, as rounding decides further out.
    """

    frozen: FrozenModel
    places: list[Point]
    edges: list[Values]
    far: list[Point]
    controls: bool = True
    is_near: bool = False


def gather_evidence(frozen: FrozenModel, rng: np.random.Generator, num_points: int) -> Evidence:
    """Points at which symmetries of a model are tried, none of them far out."""
    places, is_near = points(
        frozen, rng, num_points, rounds=lambda at: not gap_to(frozen, at, nudged(at.values, NUDGE)).ratio <= 1.0
    )
    return Evidence(frozen, places, edges(frozen, rng), [], is_near=is_near)


def with_far_points(evidence: Evidence, rng: np.random.Generator) -> Evidence:
    """The same evidence with points far out."""
    frozen = evidence.frozen
    batches = batched(far_points(frozen, rng), frozen.most_points)
    return evidence._replace(far=list(itertools.chain.from_iterable(_exact(frozen, places) for places in batches)))


def nudged(place: Values, size: float, absolute: float = 0.0) -> Values:
    """A point as another order of rounding might give it: every real value x moved by ±(size·x + absolute)."""

    def nudged_array(x: Any) -> np.ndarray:
        value, sign = np.asarray(x), 1.0 - 2.0 * (np.arange(x.size).reshape(x.shape) % 2)
        return (value + sign * (size * value + absolute)).astype(value.dtype)

    return {name: nudged_array(x) if np.issubdtype(x.dtype, np.floating) else x for name, x in place.items()}


def _exact(frozen: FrozenModel, places: list[Values]) -> list[Point]:
    """The points among ``places`` at which the log joint is finite, and hardly depends on how it is rounded."""
    finite = [at for at in frozen.at_each(places) if all(np.isfinite(x).all() for x in at.log_probs.values())]
    if not finite:
        return []
    near = frozen.at_each([nudged(at.values, FAR_NUDGE, FAR_NUDGE) for at in finite])
    return [
        at
        for at, moved in zip(finite, near, strict=True)
        if largest_gap(frozen, at.log_probs, moved.log_probs).ratio < HARDLY
    ]


def measured(evidence: Evidence) -> Evidence:
    """The same evidence; in single precision the rounding that nudges show takes the place of what is allowed."""
    frozen = evidence.frozen
    if frozen.rounding.is_double:
        return evidence
    seen = SINGLE
    for at in (*evidence.places, *evidence.far):
        gaps = gaps_to(frozen, at, stacked([nudged(at.values, s * SINGLE) for s in (-2, -1, 1, 2)]))
        seen = max(seen, MARGIN * max(gap.ratio for gap in gaps) * frozen.rounding.relative)
    rounding = frozen.rounding._replace(relative=min(seen, frozen.rounding.relative))
    return evidence._replace(frozen=frozen._replace(rounding=rounding))
