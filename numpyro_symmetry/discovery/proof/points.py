"""Points in latent space at which a model is tried. Knows distributions and frozen models; no symmetry.

Noise comes from NumPy: to compile a random generator for every site takes longer than all the rest of a check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.frozen import FrozenModel, Point, Values
from numpyro_symmetry.symmetry.errors import NotFiniteError

# how far out edges are met, and where tails are compared
_FAR, _TAILS = 30.0, (5.0, 30.0)
_STRETCHES = (1.0, 1.5)
# how much nearer after a point at which rounding would decide
_NEARER = 0.7
# matrices far out are singular to rounding: whether they lie in their support is then a matter of luck
_FAR_MATRIX = 3.0


def draw(
    model: FrozenModel,
    rng: np.random.Generator,
    stretch: float,
    bound: float = np.inf,
    sides: Mapping[str, int] | None = None,
) -> Values:
    """Latent values about the centre of the prior, ``stretch`` times as far as it spreads.

    Constrained ones at most ``bound`` times. With sides, all values of a site lie about as far to its side as that.
    """

    def noise(site: str, size: int) -> np.ndarray:
        most = np.inf if site not in model.sites.constrained else _FAR_MATRIX if site in model.sites.matrices else bound
        reach, z = min(stretch, most), rng.standard_normal(size)
        return reach * z if sides is None else sides[site] * reach + z

    return model.place({site: noise(site, size) for site, size in model.sizes.items()})


def points(
    model: FrozenModel, rng: np.random.Generator, count: int, rounds: Callable[[Point], bool]
) -> tuple[list[Point], bool]:
    """Points at which the log joint is finite: about as far out as the prior, every other one further.

    After each at which rounding would decide, as it does where hundreds of layers amplify it, they are drawn nearer to
    the prior's centre, and whether they were is told. Where that leads nowhere, or out of where the log joint is
    finite, the first points that are finite have to do.

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
        elif rounds(point):
            rejected.append(point)
            stretch *= _NEARER
        else:
            found.append(point)
        enough = len(found) + len(rejected) >= count
        if len(found) == count or (enough and len(rejected) >= EFFORT.num_nearer):
            break
    if len(found) + len(rejected) >= count:
        return (found + rejected)[:count], bool(rejected)
    raise NotFiniteError(_told(model, bad))


def _not_finite(log_probs: Values) -> Values:
    """Those of log probabilities, or of outputs, that are not finite."""
    return {name: x for name, x in log_probs.items() if not np.isfinite(x).all()}


def _told(model: FrozenModel, bad: Values) -> str:
    """What is said of what was not finite at a point."""
    if not model.is_function:
        return (
            f"The log joint is not finite at points about the prior (site {_first_of(bad)}): look for NaN in the data, "
            "or a prior whose draws the likelihood rejects."
        )
    # at parameters that were trained a function has a value, if it has any
    own = _not_finite(model.log_probs({name: np.asarray(model.sites.settings[name]) for name in model.sizes}))
    where = "at its parameters as they are" if own else "when its parameters are moved by about half of their size"
    return (
        f"The function's outputs are not finite {where} ({_first_of(own or bad)}): look for values that have to stay "
        "within bounds, or return finite outputs."
    )


def _first_of(bad: Values) -> str:
    name, x = next(iter(bad.items()))
    return f"{name!r} is {'NaN' if np.isnan(x).any() else 'infinite'}"


def edges(model: FrozenModel, rng: np.random.Generator) -> list[Values]:
    """Latent values near the edges of their supports; the log joint need not be finite there."""
    return [draw(model, rng, _FAR) for _ in range(EFFORT.num_edges)]


def far_points(model: FrozenModel, rng: np.random.Generator) -> list[Values]:
    """Latent values far from where the prior has its mass; the log joint need not be finite there.

    Constrained values are stretched less: a scale of ``exp(30)`` beside one of ``exp(-30)`` shows nothing but rounding.
    At every other point the values of a site stay together: a mixture does not see one far component among near ones,
    nor among others as far apart. And a model that changes its ways somewhere, a clip or a branch, has a number for it.
    """
    found = []
    for stretch in _TAILS:
        for _ in range(EFFORT.num_in_tails):
            found.append(draw(model, rng, stretch, _TAILS[0]))
            side = {site: int(rng.choice([-1, 1])) for site in model.sizes}
            for direction in (1, -1):
                sides = {site: direction * one for site, one in side.items()}
                found.append(draw(model, rng, stretch, _TAILS[0], sides))
    return found + [at for limit in model.limits for at in _about(model, rng, limit)]


def _about(model: FrozenModel, rng: np.random.Generator, limit: float) -> list[Values]:
    """Latent values about a number and its opposite, those of them that may be any."""

    def one(centre: float) -> Values:
        free = {name: x for name, x in draw(model, rng, 1.0).items() if name not in model.sites.constrained}
        moved = {name: (centre + rng.standard_normal(x.shape)).astype(x.dtype) for name, x in free.items()}
        return draw(model, rng, 1.0) | moved

    return [one(centre) for centre in (limit, -limit) for _ in range(EFFORT.num_about)]
