"""Draws of a posterior as `log_evidence` takes them: every latent site of the model, on its support; and their moments.

Draws in memory and draws that Dask reads are gone through in the same blocks, and so give the same numbers. Knows
containers and supports; no guides and no weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions.transforms import biject_to

from numpyro_symmetry.assignment.passes import each, in_turn, is_stored
from numpyro_symmetry.chunks import at_once, slices
from numpyro_symmetry.containers import Trace, read
from numpyro_symmetry.models import entrywise
from numpyro_symmetry.models.unconstrained import inverse
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, warn
from numpyro_symmetry.symmetry.arguments import refuse_masked, shape_of
from numpyro_symmetry.symmetry.pytrees import arrays_by_path, comes_by_site
from numpyro_symmetry.symmetry.shown import counted
from numpyro_symmetry.traces.inputs import refuse_bad_draws

Arrays = dict[str, Any]

# draws of a chain: each of its halves has a variance
_FEWEST = 4
# relative: draws written as text of three digits lie so far off a simplex; draws further off are no draws of it
_OF_TEXT = 1e-3
# draws whose tables are in memory together
DRAWS_AT_ONCE = 16
# draws that one call weighs: so many that calling costs nothing, so few that hardly any are weighed to fill the last
DRAWS_IN_A_CALL = 256


def draws_of_sites(data: Any, latents: Mapping[str, Any]) -> Trace:
    """Draws of every latent site of a model, by chain and draw; what Dask reads is left where it is.

    Raises
    ------
    SymmetryError
        If sites are missing or of other shapes, or draws are too few or not finite.
    """
    sites = list(latents)
    shapes = {site: np.shape(latents[site]["value"]) for site in sites}
    if not comes_by_site(data, sites) and shapes.keys() <= (arrays := arrays_by_path(data)).keys():
        data = arrays
    held = data if isinstance(data, Mapping) else {}
    if isinstance(data, Mapping) and not len(data):
        raise SymmetryError(f"There are no draws: {type(data).__name__} is empty; expected sites {sites}.")
    refuse_masked(held)
    extra = {len(shape_of(held[site], f"Site {site!r}")) - len(shapes[site]) for site in sites if site in held}
    num_leading_dims = extra.pop() if len(extra) == 1 and min(extra) > 0 else None
    trace = _by_chain(read(data, Symmetry({}), num_leading_dims, lazily=True))
    if missing := [site for site in sites if site not in trace.values]:
        raise SymmetryError(f"The draws lack sites {missing} of the model; they hold {sorted(trace.values)}.")
    for site in sites:
        if len(trace.leading) > 2 or trace.values[site].shape != trace.leading + shapes[site]:
            raise SymmetryError(
                f"Site {site!r} has draws of shape {trace.values[site].shape}; expected {shapes[site]} after "
                "one or two dimensions that count draws, the same for all sites."
            )
    leading = trace.leading if len(trace.leading) == 2 else (1, trace.num_draws)
    if not leading[0] or leading[1] < _FEWEST:
        raise SymmetryError(
            f"There {'is' if leading[0] == 1 else 'are'} {counted(leading[0], 'chain')} of "
            f"{counted(leading[1], 'draw')}; fitting and bridging need at least {_FEWEST} draws a chain."
        )
    refuse_bad_draws(trace.flat(sites), trace.leading)
    values = {site: x if len(trace.leading) == 2 else x[None] for site, x in trace.values.items() if site in shapes}
    return trace._replace(values=values, leading=leading)


def _by_chain(trace: Trace) -> Trace:
    """Draws of stacked chains by chain and draw again; unequal chains are cut to the length that keeps most draws."""
    if not trace.chains:
        return trace
    lengths = list(map(len, trace.chains))
    # a chain of which a filter left two draws must not cut all others to two
    length = max(lengths, key=lambda length: length * sum(other >= length for other in lengths))
    kept = [chain[-length:] for chain in trace.chains if len(chain) >= length]
    if len(set(lengths)) > 1:
        shorter = sum(other for other in lengths if other < length)
        longer = trace.num_draws - shorter - length * len(kept)
        parts = {f"the first {longer} draws of longer chains": longer, f"all {shorter} draws of shorter ones": shorter}
        left_out = " and ".join(part for part, count in parts.items() if count)
        warn(
            f"The stacked chains have {', '.join(map(str, lengths))} draws, and are halved alike: {left_out} are left "
            "out."
        )
    order, leading = np.concatenate(kept), (len(kept), length)
    values = {site: value[order].reshape(*leading, *value.shape[1:]) for site, value in trace.values.items()}
    return trace._replace(values=values, leading=leading, chains=())


def slice_of_chains(trace: Trace, which: slice) -> Trace:
    """A slice of the draws of every chain."""
    values = {site: value[:, which] for site, value in trace.values.items()}
    return trace._replace(values=values, leading=next(iter(values.values())).shape[:2])


def blocks_of_draws(num_draws: int, latents: Mapping[str, Any]) -> list[slice]:
    """Slices of draws of a model's sites that are in memory at a time: as many as fill the calls that weigh them."""
    fit = at_once(sum(math.prod(np.shape(site["value"])) for site in latents.values()))
    batch = DRAWS_IN_A_CALL if fit >= DRAWS_IN_A_CALL else DRAWS_AT_ONCE
    return list(slices(num_draws, 1, max(batch, fit // batch * batch)))


def in_batch(draws: Mapping[str, Any], size: int) -> Arrays:
    """``size`` draws, the last one repeated where there are fewer: a program is compiled for every other number."""
    return {site: _in_precision(x)[np.minimum(np.arange(size), len(x) - 1)] for site, x in draws.items()}


def _in_precision(draws: Any) -> np.ndarray:
    """Draws in the precision in use, which a model's loops, NumPyro's checks of matrices and some bijections need."""
    return np.asarray(draws, jnp.result_type(float))


# ---- supports ----------------------------------------------------------------------------------------------------


def on_supports(trace: Trace, latents: Mapping[str, Any]) -> Trace:
    """Put draws that rounding, as in a text file, took off their support (a simplex) back on it.

    Draws on the support are put back as well, for their entries may add up to something else in another order. Draws
    without an image on the real line stay as they are, and are refused by `moments_of`.

    Raises
    ------
    SymmetryError
        If draws lie further off than text rounds.
    """
    values = dict(trace.values)
    for site in latents:
        support = latents[site]["fn"].support
        if entrywise(support).event_dim == 0:
            continue
        there_and_back = _there_and_back(support)
        seen = each(trace.flat([site])[site], partial(_outside, support, there_and_back))
        if bad := sum(count for count, _ in seen):
            raise SymmetryError(
                f"Site {site!r}: {bad} of {trace.num_draws} draws lie off its support {support} by up to "
                f"{max(off for _, off in seen):.2g} of their largest entry, more than the rounding of text. Are they "
                "draws of this model, in its constrained space?"
            )
        values[site] = _by_block(partial(_put_back, support, there_and_back), values[site])
    return trace._replace(values=values)


def _by_block(of: Callable[[np.ndarray], np.ndarray], values: Any) -> Any:
    """``of(block)`` for blocks of a fixed number of draws of a chain, joined; for stored draws, when they are read."""
    num_chains, num_draws, *event = values.shape
    if is_stored(values):
        blocks = values.rechunk((1, at_once(math.prod(event)), *event))
        return blocks.map_blocks(of, meta=of(np.ones((1, 1, *event), values.dtype))[:0])
    blocks = list(slices(num_draws, math.prod(event)))
    return np.concatenate(
        [np.concatenate([of(values[k : k + 1, items]) for items in blocks], 1) for k in range(num_chains)]
    )


def _there_and_back(support: Any) -> Callable[[Array], tuple[Array, Array]]:
    """A compiled function of draws: the draws taken to the real line and back, and how far off each of them was."""
    bijection, event = biject_to(support), _event(support)

    @jax.jit
    def there_and_back(drawn: Array) -> tuple[Array, Array]:
        put = bijection(inverse(bijection, drawn))
        # relative to the draw's largest entry: an ordered vector or a covariance may be of any size
        return put, jnp.abs(put - drawn).max(event) / jnp.abs(drawn).max(event)

    return there_and_back


def _put_back(support: Any, there_and_back: Callable, values: np.ndarray) -> np.ndarray:
    put, off = map(np.asarray, there_and_back(_in_precision(values)))
    return np.where(np.expand_dims(off <= _OF_TEXT, _event(support)), put, np.asarray(values, put.dtype))


def _outside(support: Any, there_and_back: Callable, values: np.ndarray) -> tuple[int, float]:
    """How many draws are off by more than text rounds, and by how much at most."""
    off = np.asarray(there_and_back(_in_precision(values))[1])
    outside = np.isfinite(off) & ~(off <= _OF_TEXT)
    if outside.any():
        outside &= ~np.asarray(support(jnp.asarray(_in_precision(values))))
    return int(outside.sum()), float(np.where(outside, off, 0.0).max())


def _event(support: Any) -> tuple[int, ...]:
    return tuple(range(-support.event_dim, 0))


# ---- moments -----------------------------------------------------------------------------------------------------


class Moments(NamedTuple):
    """Moments of draws ``(draw, number)``.

    Attributes
    ----------
    count
        Number of draws.
    mean
        ``(number,)``.
    about
        Sums of squares about the mean, ``(number,)``, or of all products, ``(number, number)``.
    """

    count: int
    mean: np.ndarray
    about: np.ndarray

    @staticmethod
    def of(draws: np.ndarray, *, products: bool) -> Moments:
        """Moments of draws that are in memory."""
        mean = draws.mean(0)
        centred = draws - mean
        return Moments(len(draws), mean, centred.T @ centred if products else np.square(centred).sum(0))

    def joined(self, other: Moments) -> Moments:
        """Moments of both sets of draws together: sums about two means become sums about their common mean."""
        count, gap = self.count + other.count, other.mean - self.mean
        between = np.multiply.outer(gap, gap) if self.about.ndim == 2 else np.square(gap)
        return Moments(
            count,
            self.mean + gap * (other.count / count),
            self.about + other.about + between * (self.count * other.count / count),
        )


def moments_of(
    trace: Trace,
    latents: Mapping[str, Any],
    unconstrain: Callable[[Arrays], Mapping[str, Array]],
    order: Sequence[str],
    *,
    products: bool,
) -> Moments:
    """Moments of unconstrained draws in double precision.

    Parameters
    ----------
    trace
        The draws.
    latents
        The model's sites.
    unconstrain
        Maps draws by site, ``(draw, *event)``, to their unconstrained values by site.
    order
        The sites, as their numbers follow each other.
    products
        Whether to sum products of all numbers too, or squares alone.

    Raises
    ------
    SymmetryError
        If draws have no finite unconstrained values.
    """
    blocks = _unconstrained_blocks(trace, latents, unconstrain, order)
    return reduce(Moments.joined, (Moments.of(block, products=products) for block in blocks))


def _unconstrained_blocks(
    trace: Trace,
    latents: Mapping[str, Any],
    unconstrain: Callable[[Arrays], Mapping[str, Array]],
    order: Sequence[str],
) -> Iterator[np.ndarray]:
    """Unconstrained draws ``(draw, number)``, block after block, until one has none; then all such are counted."""
    blocks = blocks_of_draws(trace.num_draws, latents)
    outside: Counter[str] = Counter()
    for here, items in zip(in_turn(trace.flat(list(latents)), blocks), blocks, strict=True):
        found = unconstrain(in_batch(here, blocks[0].stop))
        count = items.stop - items.start
        flat = {site: np.reshape(found[site], (blocks[0].stop, -1))[:count] for site in order}
        outside.update({site: int((~np.isfinite(x)).any(1).sum()) for site, x in flat.items()})
        if not outside.total():
            yield np.concatenate(list(flat.values()), 1, dtype=np.float64)
    for site, bad in outside.items():
        if bad:
            raise SymmetryError(
                f"Site {site!r}: {bad} of {trace.num_draws} draws lie outside its support "
                f"{latents[site]['fn'].support}, or on the border of it. Are they draws of this model, in its "
                "constrained space? float32 rounds draws to the border: sample in float64 then (numpyro.enable_x64())."
            )
