"""Where a symmetry of a model is tried: the model held fixed, and points in latent space.

Noise comes from NumPy: to compile a random generator for every site takes longer than all the rest of a check. Knows
distributions and frozen models; no symmetry.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from numpyro_symmetry.chunks import batched
from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.frozen import FrozenModel, Point, Values, stacked
from numpyro_symmetry.discovery.proof.rounding import FAR_NUDGE, HARDLY, MARGIN, NUDGE, SINGLE
from numpyro_symmetry.discovery.proof.trials import gap_to, gaps_to, largest_gap
from numpyro_symmetry.symmetry.errors import NotFiniteError

# how far out edges of supports are met, and where tails are compared, in units of the prior's spread
_FAR, _TAILS = 30.0, (5.0, 30.0)
_STRETCHES = (1.0, 1.5)
# numbers of all more points together: a quarter of a million weights are tried at four
_MOST_NUMBERS = 2**20
# points by which the size of an output is judged
_NUM_SIZED = 3
# an output of which a nudge changes so large a part is zero, but for rounding
_NOISE = 1e-2
# by what factor points come nearer after one at which rounding would decide
_NEARER = 0.7
# matrices far out are singular to rounding: whether they lie in their support is then a matter of luck
_FAR_MATRIX = 3.0


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
    frozen = _in_units(frozen) if frozen.is_function else frozen
    places, is_near = points(frozen, rng, num_points)
    # near the edges of supports the log joint need not be finite
    edges = [draw(frozen, rng, _FAR) for _ in range(EFFORT.num_edges)]
    return Evidence(frozen, places, edges, [], is_near=is_near)


def _in_units(frozen: FrozenModel) -> FrozenModel:
    """A function whose outputs are measured by how large they are: in single precision one alone may cancel.

    One that is zero but for rounding is measured by what cancels in it, of which rounding is a known part.
    """
    rng, step = np.random.default_rng(0), NUDGE if frozen.rounding.is_double else SINGLE
    places = [draw(frozen, rng, 1.0) for _ in range(_NUM_SIZED)]
    with np.errstate(invalid="ignore"):  # beyond the largest number
        moved = [nudged(at, step) for at in places]
    found, near = (frozen.log_probs_of(stacked(some)) for some in (places, moved))
    units = {}
    for name, x in found.items():
        both = np.stack([x, near[name]])[:, np.isfinite(x) & np.isfinite(near[name])]
        size, noise = (float(np.abs(y).max(initial=0.0)) for y in (both[0], np.diff(both, axis=0)))
        units[name] = min(noise / step if noise > _NOISE * size else size, 1.0) or 1.0
    return frozen._replace(units=units)


def more_points(evidence: Evidence, rng: np.random.Generator) -> Evidence:
    """Other points about the prior, as many as rounding does not decide, and none elsewhere."""
    frozen, size = evidence.frozen, sum(np.size(x) for x in evidence.places[0].values.values())
    count = min(EFFORT.num_unseen, 1 + _MOST_NUMBERS // size)
    drawn = (draw(frozen, rng, _STRETCHES[k % 2]) for k in range(count))
    more = itertools.chain.from_iterable(_exact(frozen, places) for places in batched(drawn, frozen.most_points))
    return evidence._replace(places=list(more) or evidence.places, edges=[], far=[], controls=False)


def with_far_points(evidence: Evidence, rng: np.random.Generator) -> Evidence:
    """The same evidence with points far out."""
    frozen = evidence.frozen
    batches = batched(far_points(frozen, rng), frozen.most_points)
    return evidence._replace(far=list(itertools.chain.from_iterable(_exact(frozen, places) for places in batches)))


def nudged(place: Values, size: float, of_largest: float = 0.0) -> Values:
    """A point as another order of rounding might give it: every real x moved by ±(size·x + of_largest·max|x|)."""

    def nudged_array(x: Any) -> np.ndarray:
        value, sign = np.asarray(x), 1.0 - 2.0 * (np.arange(x.size).reshape(x.shape) % 2)
        return (value + sign * (size * value + of_largest * np.abs(value).max(initial=0.0))).astype(value.dtype)

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
    most, places = frozen.rounding.relative, [*evidence.places, *evidence.far]
    about = ((at, stacked([nudged(at.values, s * SINGLE) for s in (-2, -1, 1, 2)])) for at in places)
    seen = max(gap.ratio for at, stack in about for gap in gaps_to(frozen, at, stack))
    rounding = frozen.rounding._replace(relative=min(max(SINGLE, MARGIN * seen * most), most))
    return evidence._replace(frozen=frozen._replace(rounding=rounding))


# ---- points ----------------------------------------------------------------------------------------------------------


def draw(
    model: FrozenModel,
    rng: np.random.Generator,
    stretch: float,
    bound: float = np.inf,
    sides: Mapping[str, int] | None = None,
) -> Values:
    """Latent values about the centre of the prior, ``stretch`` times as far as it spreads.

    Constrained ones at most ``bound`` times. With ``sides`` (site -> 1 or -1) all values of a site stay together, about
    so far out on its side.
    """

    def noise(site: str, size: int) -> np.ndarray:
        most = np.inf if site not in model.sites.constrained else _FAR_MATRIX if site in model.sites.matrices else bound
        reach, z = min(stretch, most), rng.standard_normal(size)
        return reach * z if sides is None else sides[site] * reach + z

    return model.place({site: noise(site, size) for site, size in model.sizes.items()})


def points(model: FrozenModel, rng: np.random.Generator, count: int) -> tuple[list[Point], bool]:
    """Points with a finite log joint, about as far out as the prior or half as far again; whether any had to be nearer.

    After each point at which rounding would decide, as where hundreds of layers amplify it, the next are
    drawn nearer to the prior's centre. Where that leads nowhere, or to where the log joint is not finite, the first
    points with a finite log joint have to do.

    Raises
    ------
    NotFiniteError
        If the log joint is not finite at enough of a bounded number of tries.
    """
    found: list[Point] = []
    rejected: list[Point] = []
    bad: Values = {}
    stretch = 1.0
    for attempt in range(count * EFFORT.num_starts):
        point = model.at(draw(model, rng, stretch * _STRETCHES[attempt % 2]))
        if not_finite := _not_finite(point.log_probs):
            # nearer to the centre there may be nothing at all
            bad, stretch = not_finite, 1.0
        elif not gap_to(model, point, nudged(point.values, NUDGE)).ratio <= 1.0:
            rejected.append(point)
            stretch *= _NEARER
        else:
            found.append(point)
        enough = len(found) + len(rejected) >= count
        if len(found) == count or (enough and len(rejected) >= EFFORT.num_nearer):
            break
    if len(found) + len(rejected) >= count:
        return (found + rejected)[:count], bool(rejected)
    raise NotFiniteError(_message(model, bad))


def _not_finite(log_probs: Values) -> Values:
    """The log probabilities, or outputs, that are not finite."""
    return {name: x for name, x in log_probs.items() if not np.isfinite(x).all()}


def _message(model: FrozenModel, bad: Values) -> str:
    """The message about log probabilities, or outputs, that are not finite at a point."""
    if not model.is_function:
        return (
            f"The log joint is not finite at points about the prior (site {_first_of(bad)}): look for NaN in the data, "
            "or a prior whose draws the likelihood rejects."
        )
    # at parameters that were trained a function has a value, if it has any
    own = _not_finite(model.at({name: np.asarray(model.sites.settings[name]) for name in model.sizes}).log_probs)
    where = "at its parameters as they are" if own else "when its parameters are moved by about half of their size"
    return (
        f"The function's outputs are not finite {where} ({_first_of(own or bad)}): look for infinities in its data, "
        "for values that have to stay within bounds, or return finite outputs."
    )


def _first_of(bad: Values) -> str:
    name, x = next(iter(bad.items()))
    return f"{name!r} is {'NaN' if np.isnan(x).any() else 'infinite'}"


def far_points(model: FrozenModel, rng: np.random.Generator) -> list[Values]:
    """Latent values far from where the prior has its mass; the log joint need not be finite there.

    Constrained values are stretched less: a scale of ``exp(30)`` beside one of ``exp(-30)`` shows nothing but rounding.
    At every other point the values of a site stay together: a mixture does not see one far component among near ones,
    nor among others as far apart. Where a model changes its formula, at a clip or a branch, its program holds a
    constant: more points lie about these.
    """
    found = []
    for stretch in _TAILS:
        for _ in range(EFFORT.num_in_tails):
            found.append(draw(model, rng, stretch, _TAILS[0]))
            side = {site: int(rng.choice([-1, 1])) for site in model.sizes}
            for direction in (1, -1):
                sides = {site: direction * sign for site, sign in side.items()}
                found.append(draw(model, rng, stretch, _TAILS[0], sides))
    return found + [at for limit in model.limits for at in _about(model, rng, limit)]


def _about(model: FrozenModel, rng: np.random.Generator, limit: float) -> list[Values]:
    """Latent values about a number and about its negative, where a site may take any real value."""

    def point_about(centre: float) -> Values:
        free = {name: x for name, x in draw(model, rng, 1.0).items() if name not in model.sites.constrained}
        moved = {name: (centre + rng.standard_normal(x.shape)).astype(x.dtype) for name, x in free.items()}
        return draw(model, rng, 1.0) | moved

    return [point_about(centre) for centre in (limit, -limit) for _ in range(EFFORT.num_about)]
