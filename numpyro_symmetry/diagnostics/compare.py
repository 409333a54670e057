"""`compare`: whether two posteriors agree, up to labels.

Reads both sides, turns all their draws into numbers that no label moves, and compares the distance between them with
the distances after exchanges of blocks of draws. Puts together `sides`, `pooled` and `energies`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from jax import Array
from tqdm import tqdm

from numpyro_symmetry.diagnostics import energies
from numpyro_symmetry.diagnostics.comparison import Comparison, Comparisons, Drawn
from numpyro_symmetry.diagnostics.pooled import SORTED, by_distance, contributions, pooled_draws, watched
from numpyro_symmetry.diagnostics.sides import PosteriorDraws, ReadOptions, in_common, posterior_of
from numpyro_symmetry.steps import interval, say, saying
from numpyro_symmetry.symmetry import Symmetry, as_symmetry, warn
from numpyro_symmetry.symmetry.arguments import (
    as_count,
    as_flag,
    as_model_arguments,
    as_names,
    as_probability,
    key_or_fixed,
    refuse_tracers,
    seed_of,
)


class _Options(NamedTuple):
    """The options of `compare`."""

    sites: Collection[str] | None = None
    independent: Collection[str] = ()
    level: float = 0.05
    smallest_effect: float | None = None
    num_exchanges: int = 999
    num_draws: int = 1000
    model_args: tuple[Any, ...] = ()
    model_kwargs: Mapping[str, Any] | None = None
    num_leading_dims: int | None = None
    rng_key: Array | None = None


def compare(
    a: Any,
    b: Any,
    symmetry: Symmetry,
    *,
    names: tuple[str, str] = ("a", "b"),
    sites: Collection[str] | None = None,
    independent: Collection[str] = (),
    level: float = 0.05,
    smallest_effect: float | None = None,
    num_exchanges: int = 999,
    num_draws: int = 1000,
    model_args: tuple[Any, ...] = (),
    model_kwargs: Mapping[str, Any] | None = None,
    num_leading_dims: int | None = None,
    rng_key: Array | None = None,
    progress_bar: bool = True,
) -> Comparison:
    r"""Say whether two posteriors agree, up to labels.

    .. math:: \mathcal E = 2\operatorname{E} d(A, B) - \operatorname{E} d(A, A') - \operatorname{E} d(B, B')

    for three distances that no label changes: between sorted projections of units, between draws under *one* alignment
    of all draws of both sides, and between invariants. Their p-values are joined by the least of them, itself compared
    with the least p of the same exchanges. Exchanged are blocks of draws, of equally many effective ones on both
    sides, so that the test holds for chains that forget slowly.

    Parameters
    ----------
    a, b
        Draws in any container that `rebase` takes, or a pytree of them; what `rebase` returned; ``(guide, params)``; a
        list of ensemble members. Chains of unequal length come as a list of arrays for each site:
        ``{"loc": [chain0, chain1]}``; all of their draws count, but for
        those of chains that are less than half as long as the longest and shorter than a block (with a warning).
    symmetry
        The symmetry whose labels to disregard. Groups of any kind that `rebase` takes.
    names
        Names of the two posteriors.
    sites
        Sites to compare beside the symmetry's own. By default those that both hold, but for deterministic ones of a
        known model, and those that look as if labels moved them.
    independent
        Names of posteriors whose draws are known to be independent. Those of a guide and of an ensemble are.
    level
        The p-value at and below which the two are said to differ.
    smallest_effect
        The smallest effect that matters. Where the noise floor is above it, and p above ``level``, there are not enough
        draws to tell.
    num_exchanges
        How often blocks are exchanged; no p-value is below 1 / (num_exchanges + 1).
    num_draws
        How many draws to take from a guide.
    model_args, model_kwargs
        The model's arguments, for guides that are conditioned on them.
    num_leading_dims
        For dicts, as for `rebase`.
    rng_key
        JAX random key of a guide's draws and of exchanges; fixed by default.
    progress_bar
        Whether to show a bar that says what is done; where it is quick there is none.

    Returns
    -------
    Comparison
        Verdict, p-value, effect and its noise floor, contributions of single entries; prints as a paragraph.

    Raises
    ------
    SymmetryError
        If the symmetry does not fit one of the two, they differ in sites or sizes, one has a single draw, numbers are
        not finite, or nothing varies in either.
    TypeError, ValueError
        If an argument is of the wrong type or out of range.

    Warns
    -----
    SymmetryWarning
        If a chain is too short beside the others to be compared.

    See Also
    --------
    report : whether the chains of one posterior agree.
    diagnostics.compare_pairs : more than two posteriors.

    Notes
    -----
    Draws are compared, not samplers: two runs of one sampler differ where their chains have not found the same modes.
    Correlations alone need hundreds of effective draws to be seen, by this and by every other test.

    References
    ----------
    Székely and Rizzo (2004), *Testing for equal distributions in high dimension*; Bonneel, Rabin, Peyré and Pfister
    (2015), *Sliced and Radon Wasserstein barycenters of measures*.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, compare
    >>> rng = np.random.default_rng(0)
    >>> first, second = np.array([-3.0, 0.0, 3.0]) + rng.standard_normal((2, 400, 3))
    >>> wider = {"loc": rng.permuted(second * [1.0, 1.0, 1.6], axis=1)}
    >>> found = compare({"loc": first}, wider, Symmetry.mixture("loc"), independent=("a", "b"))
    >>> found.verdict, found.effect > found.floor, found.table.entry[0]
    ('differ', True, (2,))
    """
    options = _Options(
        sites,
        independent,
        level,
        smallest_effect,
        num_exchanges,
        num_draws,
        model_args,
        model_kwargs,
        num_leading_dims,
        rng_key,
    )
    named = as_names(names, "names", example="('NUTS', 'guide')")
    if len(set(named)) != 2 or len(named) != 2:
        raise ValueError(f"names must be two different names, such as ('NUTS', 'guide'); got {names}.")
    with saying("comparing", as_flag(progress_bar, "progress_bar")):
        posteriors = _posteriors(dict(zip(named, (a, b), strict=True)), symmetry, options)
        return next(_compared_in_turn([posteriors], options))


def compare_pairs(
    posteriors: Mapping[str, Any], symmetry: Symmetry, *, progress_bar: bool = True, **options: Any
) -> Comparisons:
    """Compare every two of several posteriors, up to labels.

    Parameters
    ----------
    posteriors
        Name -> whatever `compare` takes.
    symmetry
        The symmetry whose labels to disregard.
    progress_bar
        Whether to show a bar.
    **options
        Options of `compare`, but for ``names``.

    Returns
    -------
    Comparisons
        One for each pair, with p-values adjusted for their number by Holm's method.

    Raises
    ------
    SymmetryError, TypeError, ValueError
        As for `compare`, or if there are fewer than two posteriors.

    References
    ----------
    Holm (1979), *A simple sequentially rejective multiple test procedure*.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry
    >>> from numpyro_symmetry.diagnostics import compare_pairs
    >>> spreads = {"short": 1.0, "long": 1.0, "guide": 0.7}
    >>> rng = np.random.default_rng(1)
    >>> runs = {name: {"loc": rng.normal([-3.0, 0.0, 3.0], size, (4, 200, 3))} for name, size in spreads.items()}
    >>> compare_pairs(runs, Symmetry.mixture("loc"), progress_bar=False).table.verdict.tolist()
    ['no difference found', 'differ', 'differ']
    """
    if not isinstance(posteriors, Mapping) or len(posteriors) < 2:
        raise ValueError("compare_pairs expects a mapping from two names or more to posteriors.")
    if unknown := sorted(set(options) - set(_Options._fields)):
        raise TypeError(f"compare_pairs knows no options {unknown}; expected some of {_Options._fields}.")
    if unnamed := [name for name in posteriors if not isinstance(name, str)]:
        raise TypeError(f"posteriors are called by words, such as {{'NUTS': draws}}; got {unnamed}.")
    chosen = _Options(**options)
    pairs = list(itertools.combinations(_posteriors(posteriors, symmetry, chosen), 2))
    shown: Any = {"disable": not as_flag(progress_bar, "progress_bar"), "mininterval": interval()}
    return Comparisons(tuple(tqdm(_compared_in_turn(pairs, chosen), desc="comparing", total=len(pairs), **shown)))


# ---- what is given -----------------------------------------------------------------------------------------------


def _posteriors(named: Mapping[str, Any], symmetry: Symmetry, options: _Options) -> list[PosteriorDraws]:
    """The posteriors, read, after the options are checked."""
    as_probability(options.level, "level")
    if options.smallest_effect is not None:
        as_probability(options.smallest_effect, "smallest_effect", "an energy coefficient")
    as_count(options.num_exchanges, "num_exchanges", minimum=19, meaning="for no p-value to be below one over one more")
    count = as_count(options.num_draws, "num_draws", minimum=2)
    args, kwargs = as_model_arguments(options.model_args, options.model_kwargs)
    independent = as_names(options.independent, "independent", example=str(tuple(named)))
    if unknown := sorted(set(independent) - set(named)):
        raise ValueError(f"independent names {unknown}; the posteriors are called {list(named)}.")
    sites = None if options.sites is None else as_names(options.sites, "sites", example="('sigma',)")
    refuse_tracers("compare", posteriors=dict(named), model_args=args, model_kwargs=kwargs)
    keys = jax.random.split(key_or_fixed(options.rng_key), len(named))
    return [
        posterior_of(
            data,
            as_symmetry(symmetry),
            name,
            ReadOptions(sites, options.num_leading_dims, own, count, args, kwargs),
            independent=name in independent,
        )
        for own, (name, data) in zip(keys, named.items(), strict=True)
    ]


# ---- what is compared --------------------------------------------------------------------------------------------


def _compared_in_turn(pairs: Iterable[Sequence[PosteriorDraws]], options: _Options) -> Iterator[Comparison]:
    """Compare every pair; each posterior's draws are chosen, and read if they are stored, only once."""
    read: dict[tuple[str, tuple[str, ...]], PosteriorDraws] = {}
    for a, b in pairs:
        compared, left_out = in_common(a, b)
        for side in (a, b):
            if (side.name, compared) not in read:
                say(f"reading the draws of {side.name}")
                read[side.name, compared] = side.only(compared)
        yield _compared((a, b), (read[a.name, compared], read[b.name, compared]), left_out, options)


def _compared(
    whole: tuple[PosteriorDraws, PosteriorDraws],
    sides: tuple[PosteriorDraws, PosteriorDraws],
    left_out: tuple[str, ...],
    options: _Options,
) -> Comparison:
    """Compare two posteriors, as they came, by the draws of them that were read."""
    pooled = {site: np.concatenate([side.values[site] for side in sides]) for site in sides[0].values}
    say("making what no label changes")
    draws = pooled_draws(pooled, sides[0].symmetry)
    slow = np.split(watched(draws), [sides[0].num_draws])
    times = [
        None if side.independent else energies.longest_autocorrelation_time(own, side.lengths)
        for side, own in zip(sides, slow, strict=True)
    ]
    length = energies.block_length(times, [side.lengths for side in sides])
    blocks = [energies.exchangeable_blocks(side.lengths, time, length) for side, time in zip(sides, times, strict=True)]
    for side, time in zip(sides, times, strict=True):
        _warn_of_short_chains(side, time, length)
    a, b = (
        Drawn(
            name=side.name,
            num_draws=side.num_draws,
            num_chains=len(side.lengths),
            time=(time or 1.0) * side.num_draws / read.num_draws,
            independent=time is None,
            blocks=cut.number,
        )
        for side, read, time, cut in zip(whole, sides, times, blocks, strict=True)
    )
    untested = Comparison(
        a=a,
        b=b,
        p_value=np.nan,
        p_by_distance={},
        effect=np.nan,
        floor=np.nan,
        contributions=xr.Dataset(),
        level=options.level,
        smallest_effect=options.smallest_effect,
        left_out=left_out,
    )
    if min(a.blocks, b.blocks) < energies.MIN_BLOCKS:
        return untested
    say("measuring distances and exchanging blocks")
    both = energies.joined(blocks[0], blocks[1], sides[0].num_draws)
    points, aligned = by_distance(draws.at(both.draws))
    first = _exchanges(slow, blocks, options)
    between = {name: energies.distances(x, both.starts) for name, x in points.items()}
    each = {name: energies.energies(distance, first) for name, distance in between.items()}
    size = each[SORTED] / (2.0 * between[SORTED][: a.blocks, a.blocks :].mean())
    return untested._replace(
        p_value=energies.least(list(each.values())),
        p_by_distance={name: float(energies.ranks(one)[0]) for name, one in each.items()},
        effect=float(size[0]),
        floor=energies.floor_of(size),
        contributions=contributions(aligned, both, first, sides[0], len(blocks[0].draws)),
    )


def _exchanges(
    slow: Sequence[np.ndarray], blocks: Sequence[energies.ExchangeableBlocks], options: _Options
) -> np.ndarray:
    """Which blocks are the first side's, exchange by exchange: the same exchanges, whichever side is passed first."""
    (a, b), (num_a, num_b) = slow, (cut.number for cut in blocks)
    rng = np.random.default_rng(seed_of(options.rng_key))
    # in an order that depends on numbers alone
    if (len(a), *a.mean(0)) > (len(b), *b.mean(0)):
        return ~np.roll(energies.exchanges(rng, num_b, num_a, options.num_exchanges), num_a, axis=1)
    return energies.exchanges(rng, num_a, num_b, options.num_exchanges)


def _warn_of_short_chains(side: PosteriorDraws, time: float | None, effective: float) -> None:
    """Warn of chains that are left out because they are shorter than a block of ``effective`` effective draws."""
    short = np.asarray(side.lengths)[energies.too_short(side.lengths, time, effective)]
    if len(short):
        warn(
            f"Chains of {short.tolist()} draws of {side.name!r} are left out: draws are exchanged in blocks of "
            f"{effective * (time or 1.0):.0f}, after which they are nearly independent."
        )
