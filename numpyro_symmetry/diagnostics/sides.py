"""The posteriors that are compared, read and checked: sites, sizes, chains, and sites beside the symmetry's own.

Knows containers, guides and symmetries; computes no statistics.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from numpyro_symmetry.containers import Trace, draws_of_guide, read
from numpyro_symmetry.symmetry import Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import refuse_masked
from numpyro_symmetry.symmetry.named import are_of_others, groups_on, refuse_other_names
from numpyro_symmetry.symmetry.pytrees import is_fitted_guide
from numpyro_symmetry.symmetry.shown import counted
from numpyro_symmetry.traces import Rebased
from numpyro_symmetry.traces.deterministic import roles_of
from numpyro_symmetry.traces.inputs import drawn_at, looks_labelled, sized

Arrays = dict[str, Any]

# the most draws that are read, evenly spaced; of wide draws fewer, down to the second number, so as to hold the third
_MAX_DRAWS, _MIN_DRAWS, _MAX_NUMBERS = 20_000, 2_000, 30_000_000


class PosteriorDraws(NamedTuple):
    """Draws of one side.

    Attributes
    ----------
    name
        Name of the posterior.
    values
        Site -> ``(draw, *event)``, chain after chain; stored draws are read as they are indexed.
    places
        ``(draw,)``: which of the draws that were given each one is, chains that came apart counted one after another.
    lengths
        How many draws each chain has.
    independent
        Whether draws are known to be independent.
    symmetry
        The symmetry with its sizes.
    beside
        Sites to compare beside the symmetry's own: those that the user named, else those that no label moves.
    is_named
        Whether the user named them.
    dims
        Site -> names of its dimensions, where they have any.
    coords
        Name of a dimension -> its coordinates, where it has any.
    """

    name: str
    values: Arrays
    places: np.ndarray
    lengths: tuple[int, ...]
    independent: bool
    symmetry: Symmetry
    beside: frozenset[str]
    is_named: bool
    dims: Mapping[str, tuple[str, ...]]
    coords: Mapping[str, np.ndarray]

    @property
    def num_draws(self) -> int:
        """How many draws there are in all chains."""
        return sum(self.lengths)

    def only(self, sites: Collection[str]) -> PosteriorDraws:
        """The posterior with these sites alone, in memory; of very many draws only some, evenly spaced.

        Raises
        ------
        SymmetryError
            If a number is not finite, in whichever draw.
        """
        numbers = sum(math.prod(self.values[site].shape[1:]) for site in sites)
        most = min(_MAX_DRAWS, max(_MIN_DRAWS, _MAX_NUMBERS // max(numbers, 1)))
        step = -(-self.num_draws // most)
        ends = np.cumsum([0, *self.lengths])
        kept = [np.arange(low, high, step) for low, high in zip(ends[:-1], ends[1:], strict=True)]
        chosen = np.concatenate(kept)
        length, *others = set(self.lengths)
        leading = (self.num_draws,) if others or len(self.lengths) == 1 else (len(self.lengths), length)
        try:
            values = drawn_at({site: self.values[site] for site in sites}, chosen, leading)
        except SymmetryError as error:
            raise SymmetryError(f"Posterior {self.name!r}: {error}") from error
        return self._replace(values=values, places=self.places[chosen], lengths=tuple(map(len, kept)))


class ReadOptions(NamedTuple):
    """How draws are read: which sites and leading dimensions, and how draws are taken from a guide.

    Attributes
    ----------
    sites
        As for `compare`.
    num_leading_dims
        As for `rebase`.
    rng_key, num_draws, args, kwargs
        Of a guide: key, number of draws, and the model's arguments.
    """

    sites: Collection[str] | None
    num_leading_dims: int | None
    rng_key: Array
    num_draws: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def posterior_of(
    data: Any, symmetry: Symmetry, name: str, options: ReadOptions, *, independent: bool
) -> PosteriorDraws:
    """Read one side of a comparison.

    Raises
    ------
    SymmetryError
        Naming the side: if sites are missing or do not fit the symmetry, or there are fewer than two draws.
    TypeError
        If a guide comes without its parameters.
    """
    try:
        num_leading_dims = options.num_leading_dims
        if is_fitted_guide(data):
            draws = draws_of_guide(options.rng_key, data[0], data[1], options.args, options.kwargs, options.num_draws)
            data, num_leading_dims = {site: np.asarray(value) for site, value in draws.items()}, 1
            independent = True
        elif callable(data):
            raise TypeError(f"Posterior {name!r}: a guide is passed with its parameters, (guide, params).")
        data = data.data if isinstance(data, Rebased) else data
        if (chains := _ragged(data)) is not None:
            parts = [read(chain, symmetry, 1) for chain in chains]
            values = {site: np.concatenate([part.values[site] for part in parts]) for site in parts[0].values}
            lengths = tuple(part.num_draws for part in parts)
            trace = parts[0]._replace(values=values, leading=(sum(lengths),))
        else:
            trace = read(data, symmetry, num_leading_dims, lazily=True)
            lengths = trace.lengths
        return _of_trace(trace, symmetry, name, lengths, options.sites, independent=independent or trace.are_members)
    except SymmetryError as error:
        raise SymmetryError(f"Posterior {name!r}: {error}") from error


def _ragged(data: Any) -> list[Arrays] | None:
    """The chains of a dict whose sites are lists of chains of unequal length; else ``None``."""
    if not isinstance(data, Mapping) or not data or not all(isinstance(value, list | tuple) for value in data.values()):
        return None
    data = {site: [_as_chain(chain) for chain in value] for site, value in data.items()}
    if any(chain is None for value in data.values() for chain in value):
        return None
    lengths = {site: tuple(len(chain) for chain in value) for site, value in data.items()}
    if all(len(set(own)) == 1 for own in lengths.values()):
        return None
    first, own = next(iter(lengths.items()))
    if other := next((site for site, some in lengths.items() if some != own), None):
        raise SymmetryError(
            f"Chains of site {first!r} have {own} draws, those of site {other!r} {lengths[other]}; expected the same "
            "draws of every site."
        )
    if not all(own):
        raise SymmetryError(f"Chains of site {first!r} have {own} draws: leave out those without any.")
    for site, value in data.items():
        if len(shapes := {chain.shape[1:] for chain in value}) > 1:
            raise SymmetryError(f"Draws of site {site!r} have shapes {sorted(shapes)} in different chains.")
    return [{site: np.asarray(value[k]) for site, value in data.items()} for k in range(len(own))]


def _as_chain(chain: Any) -> np.ndarray | None:
    """Draws of one chain as an array; ``None`` if they are not an array of any library, or nested lists of numbers."""
    refuse_masked({"chain": chain}, "Part")
    try:
        array = np.asarray(chain)
    except Exception:  # each library raises its own error; the reader of containers refuses what is no array
        return None
    return array if array.ndim else None


def _of_trace(
    trace: Trace,
    symmetry: Symmetry,
    name: str,
    lengths: tuple[int, ...],
    sites: Collection[str] | None,
    *,
    independent: bool,
) -> PosteriorDraws:
    if missing := sorted(set(symmetry.axes) - set(trace.values)):
        raise SymmetryError(
            f"sites {missing} of the symmetry are missing; there are {sorted(trace.values)}. Pass the symmetry of what "
            "both hold: symmetry.restrict(sites=...)."
        )
    bound = sized(trace, symmetry)
    if sum(lengths) < 2:
        raise SymmetryError(f"there is {sum(lengths)} draw; a comparison needs at least two, and can tell from dozens.")
    beside = moved_by_no_label(trace, bound) if sites is None else sites
    if trace.chains:
        trace = trace._replace(values={site: value[trace.in_order] for site, value in trace.values.items()})
    values = trace.flat(list(trace.values))
    return PosteriorDraws(
        name=name,
        values=values,
        places=trace.in_order,
        lengths=lengths,
        independent=independent,
        symmetry=bound,
        beside=frozenset(beside),
        is_named=sites is not None,
        dims=trace.dims,
        coords=trace.coords,
    )


def moved_by_no_label(trace: Trace, bound: Symmetry) -> set[str]:
    """Sites that the symmetry does not name and, as far as their model and their looks tell, no label moves."""
    others = {site for site, value in trace.values.items() if value.size and site not in bound.axes}
    computed = set() if trace.model is None else roles_of(trace.model).computed
    others -= computed | trace.uncompared
    return others - looks_labelled(trace, bound, others)


def in_common(a: PosteriorDraws, b: PosteriorDraws) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sites to compare, the symmetry's first, and those of either posterior that are left out.

    Raises
    ------
    SymmetryError
        If a site is in one posterior only and was asked for, or differs in shape, or in the names of its dimensions
        or in coordinates, but for those of labels.
    """
    everywhere = [site for site in (*a.symmetry.axes, *a.values) if site in b.values]
    wanted = {*a.symmetry.axes, *(a.beside & b.beside)}
    if unknown := sorted(wanted - set(everywhere)):
        holds = {side.name: sorted(side.values) for side in (a, b)}
        raise SymmetryError(f"sites={unknown}: expected sites that both posteriors hold; they hold {holds}.")
    for name, group in a.symmetry.groups.items():
        if (other := b.symmetry.groups[name].size) != group.size:
            raise SymmetryError(
                f"Group {name!r} has {counted(group.size, 'label')} in {a.name!r} and {other} in {b.name!r}: "
                "posteriors of different sizes are no two draws of one thing. Compare what both define, such as "
                "predictions."
            )
    labelled = {dim for side in (a, b) for dim in groups_on(side.dims, side.symmetry.axes)}

    def is_compared(site: str) -> bool:
        # a site that nobody named, and whose coordinates name different things on the two sides, is left out
        is_asked_for = site in a.symmetry.axes or a.is_named
        return site in wanted and (is_asked_for or not are_of_others(a, b, site, labelled))

    compared = tuple(dict.fromkeys(filter(is_compared, everywhere)))
    refuse_other_names(a, b, compared, (repr(a.name), repr(b.name)), free=labelled)
    for site in compared:
        shapes = [side.values[site].shape[1:] for side in (a, b)]
        if shapes[0] != shapes[1]:
            raise SymmetryError(
                f"Site {site!r} has shape {shapes[0]} in a draw of {a.name!r} and {shapes[1]} in one of {b.name!r}."
            )
    return compared, tuple(sorted((set(a.values) | set(b.values)) - set(compared)))
