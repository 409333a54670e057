"""`modes`: how many modes a posterior has up to labels, and what share of each chain's draws is in which.

Draws are seen as points that no label moves, thinned by the time that chains need to forget *within* a mode, so that a
slow chain is no mode and a chain that never leaves one is no slow chain. Puts together `sides`, `pooled` and `density`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from scipy.spatial import KDTree

from numpyro_symmetry.diagnostics.density import MIN_POINTS, Hills, hills, least_share
from numpyro_symmetry.diagnostics.energies import longest_autocorrelation_time
from numpyro_symmetry.diagnostics.pooled import leading, pooled_draws
from numpyro_symmetry.diagnostics.sides import PosteriorDraws, ReadOptions, in_common, posterior_of
from numpyro_symmetry.steps import say, saying, track
from numpyro_symmetry.symmetry import Symmetry, as_html, as_symmetry
from numpyro_symmetry.symmetry.arguments import as_flag, key_or_fixed, refuse_tracers, seed_of
from numpyro_symmetry.symmetry.shown import counted
from numpyro_symmetry.traces import Rebased
from numpyro_symmetry.traces.null import CannotTell

# about the most draws in which peaks are looked for; random halves of them in which to look again; rounds of thinning
_MAX_POINTS, _NUM_HALVES, _MAX_ROUNDS = 400, 20, 10
# components whose deviation is below this share of the largest add noise, and no valley
_LEAST_SCALE = 0.2
_NUM_DRAWS = 1000
# where a mode's share is worth fewer effective draws to a chain, chains are stuck in the mode, or out of it
_PASSING = 2.0


class Modes(NamedTuple):
    """The modes of a posterior up to labels, and which chain was in which.

    Attributes
    ----------
    number
        How many modes there are, as far as these draws show; a `CannotTell` with fewer than 40 effective draws.
    shares, errors
        ``(mode,)``: share of the draws in each, the largest first, and its standard error, which takes into account how
        often chains pass from mode to mode. NaN where no chain does: shares then only say where chains began.
    by_chain
        ``(chain, mode)``: share of each chain's draws in each mode.
    labels
        ``(draw,)``, chain after chain: the mode of each draw that was looked at. Of very many draws these are some.
    places
        ``(draw,)``: which of the draws that were given each of these is, chains counted one after another.
    typical
        ``(mode,)``: index, as in ``labels``, of a draw where the mode is densest.
    num_passages
        How often a chain passes from one mode to another, from one draw that was looked at to the next.
    again
        Number of modes -> share of random halves of the draws that show this number.
    num_effective
        How many nearly independent draws the modes were found in.
    """

    number: int | CannotTell
    shares: np.ndarray
    errors: np.ndarray
    by_chain: np.ndarray
    labels: np.ndarray
    places: np.ndarray
    typical: np.ndarray
    num_passages: int
    again: dict[int, float]
    num_effective: int

    def __str__(self) -> str:
        return "\n".join(_in_words(self))

    __repr__ = __str__
    _repr_html_ = as_html


def modes(
    draws: Any,
    symmetry: Symmetry | None = None,
    *,
    sites: Collection[str] | None = None,
    independent: bool = False,
    num_leading_dims: int | None = None,
    rng_key: Array | None = None,
    progress_bar: bool = True,
) -> Modes:
    """Count the modes of a posterior up to labels: peaks of density that no path of high density joins.

    Copies of a mode under other labels are the same mode. The modes that are counted are those chains can be stuck in.

    Parameters
    ----------
    draws
        What `rebase` returned; or draws in any container that it takes, as they were sampled.
    symmetry
        The symmetry whose labels to disregard; by default that of what `rebase` returned.
    sites
        Sites to look at beside the symmetry's own, as for `compare`.
    independent
        Whether the draws are known to be independent. Those of a guide and of an ensemble are.
    num_leading_dims
        For dicts, as for `rebase`.
    rng_key
        JAX random key of a guide's draws and of the halves; fixed by default.
    progress_bar
        Whether to show a bar, after two seconds.

    Returns
    -------
    Modes
        Prints as a few lines.

    Raises
    ------
    SymmetryError
        If the symmetry does not fit the draws, there is one draw, numbers are not finite, or nothing varies.
    TypeError
        If there is no symmetry, or an argument is of the wrong type.

    Notes
    -----
    A mode that no chain has visited is not seen, nor one that holds a few per cent of the draws; and two modes whose
    valley is shallower than one nat count as one. Where modes overlap, draws between them count for the denser.

    References
    ----------
    Chazal, Guibas, Oudot and Skraba (2013), *Persistence-based clustering in Riemannian manifolds*.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry
    >>> from numpyro_symmetry.diagnostics import modes
    >>> rng = np.random.default_rng(0)
    >>> centres = np.array([[-3.0, 0.0, 3.0], [-3.0, 2.5, 3.0]])
    >>> which = rng.random((4, 250)) < 0.3
    >>> loc = rng.permuted(centres[which.astype(int)] + 0.3 * rng.standard_normal((4, 250, 3)), axis=2)
    >>> found = modes({"loc": loc}, Symmetry.mixture("loc"))
    >>> found.number, found.shares.round(1).tolist()
    (2, [0.7, 0.3])
    """
    if symmetry is None and isinstance(draws, Rebased):
        symmetry = draws.symmetry
    if symmetry is None:
        raise TypeError("modes(draws, symmetry): say whose labels to disregard, or pass what rebase returned.")
    refuse_tracers("modes", draws=draws)
    key = key_or_fixed(rng_key)
    known, shown = as_flag(independent, "independent"), as_flag(progress_bar, "progress_bar")
    rng = np.random.default_rng(seed_of(rng_key))
    options = ReadOptions(sites, num_leading_dims, key, _NUM_DRAWS, (), {})
    symmetry = as_symmetry(symmetry)
    with saying("counting modes", shown):
        say("reading the draws")
        side = posterior_of(draws, symmetry, "draws", options, independent=known)
        side = side.only(in_common(side, side)[0])
        say("making what no label changes")
        points = _points(leading(pooled_draws(side.values, side.symmetry)))
        say("looking for peaks among nearly independent draws")
        kept, found = _thinned(points, side.lengths, independent=side.independent)
        labels = _nearest(points, points[kept], found)
        return _summarised(side, points, kept, found, labels, rng)


def _summarised(
    side: PosteriorDraws,
    points: np.ndarray,
    kept: np.ndarray,
    found: Hills,
    labels: np.ndarray,
    rng: np.random.Generator,
) -> Modes:
    """Shares, errors and stability of modes, once every draw is assigned to one."""
    count = len(found.peaks)
    member = labels[:, None] == np.arange(count)
    ends = np.cumsum([0, *side.lengths])
    chains = [slice(low, high) for low, high in itertools.pairwise(ends)]
    passages = sum(int((np.diff(labels[chain]) != 0).sum()) for chain in chains)
    shares = member.mean(0)
    time = 1.0 if side.independent else longest_autocorrelation_time(member.astype(float), side.lengths)
    errors = np.sqrt(shares * (1.0 - shares) * time / len(labels))
    halves = [rng.permutation(kept)[: len(kept) // 2] for _ in range(_NUM_HALVES)]
    say("looking for peaks in halves of the draws")
    numbers = [len(hills(points[half]).peaks) for half in track(halves, len(halves))]
    return Modes(
        number=count if len(kept) >= MIN_POINTS else CannotTell(len(kept)),
        shares=shares,
        errors=errors if passages or count == 1 or side.independent else np.full(count, np.nan),
        by_chain=np.stack([member[chain].mean(0) for chain in chains]),
        labels=labels,
        places=side.places,
        typical=kept[found.peaks],
        num_passages=passages,
        again={number: numbers.count(number) / _NUM_HALVES for number in sorted(set(numbers))},
        num_effective=len(kept),
    )


def _points(components: np.ndarray) -> np.ndarray:
    scale = components.std(0)
    return components[:, scale >= _LEAST_SCALE * scale.max()]


def _thinned(points: np.ndarray, lengths: tuple[int, ...], *, independent: bool) -> tuple[np.ndarray, Hills]:
    """Indices of draws that are nearly independent within modes, and the modes that these draws show."""
    place = np.concatenate([np.arange(length) for length in lengths])
    step = -(-len(points) // _MAX_POINTS)
    for _ in range(_MAX_ROUNDS):
        kept = np.flatnonzero(place % step == 0)
        # of very many chains some: time and memory grow with the square of the number of points
        kept = kept[:: max(1, len(kept) // _MAX_POINTS)]
        found = hills(points[kept])
        labels = _nearest(points, points[kept], found)
        centres = np.stack([points[labels == mode].mean(0) for mode in range(len(found.peaks))])
        time = 1.0 if independent else longest_autocorrelation_time(points - centres[labels], lengths)
        if time <= step:
            break
        step = int(np.ceil(time))
    return kept, found


def _nearest(points: np.ndarray, known: np.ndarray, of_known: Hills) -> np.ndarray:
    return of_known.labels[KDTree(known).query(points)[1]]


def _hardly_pass(result: Modes) -> bool:
    """Whether a share rests on so few effective draws that it only says where chains began."""
    with np.errstate(divide="ignore"):
        effective = result.shares * (1.0 - result.shares) / np.square(result.errors)
    return not bool((effective >= _PASSING * len(result.by_chain)).all())


# ---- words -------------------------------------------------------------------------------------------------------


def _in_words(result: Modes) -> Iterator[str]:
    if isinstance(result.number, CannotTell):
        yield f"How many modes there are up to labels: {result.number}. Run longer."
        return
    plural = "s" if result.number > 1 else ""
    alike = result.again.get(result.number, 0.0)
    yield (
        f"{result.number} mode{plural} up to labels, seen in {result.num_effective} nearly independent draws; "
        f"{alike:.0%} of random halves of them show as many."
    )
    several = result.number > 1
    for mode, (share, error) in enumerate(zip(result.shares, result.errors, strict=True)):
        if several:
            doubt = "" if np.isnan(error) else f" ± {error:.0%}" if error >= 0.005 else " ± less than 1%"
            chains = ", ".join(f"{share_in_chain:.0%}" for share_in_chain in result.by_chain[:, mode])
            yield f"  mode {mode}: {share:.0%}{doubt} of the draws" + (
                f"; by chain {chains}" * (len(result.by_chain) > 1)
            )
    if several and len(result.by_chain) > 1:
        # between draws that were not looked at there may be others
        least = "at least " * bool(result.places[-1] >= len(result.labels))
        yield f"Chains pass from mode to mode {least}{counted(result.num_passages, 'time')}" + (
            ": too seldom for shares to say more than where chains began." if _hardly_pass(result) else "."
        )
    share = least_share(result.num_effective)
    yield f"A mode of less than about {share:.0%} of the draws, and one that no chain has visited, would not be seen."
