"""Sites of a trace that its model computes: moved with the labels, computed again, or left out, and never stale.

How such a site depends on labels is read off the model by running it at the draws as they came and as they were
relabelled. Knows models and how elements act; no containers and no costs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions.util import scale_and_mask

from numpyro_symmetry.chunks import at_once
from numpyro_symmetry.models import Model, discrete_of, latent_of, outline, trace_model
from numpyro_symmetry.models.programs import in_double
from numpyro_symmetry.symmetry import Element, Hard, Symmetry, SymmetryError, Unsigned, as_html
from numpyro_symmetry.symmetry.arguments import is_floating, rounding_of
from numpyro_symmetry.symmetry.axes import AxisEntry, describe, names_in
from numpyro_symmetry.symmetry.hard import from_element
from numpyro_symmetry.traces.acting import act
from numpyro_symmetry.traces.coordinates import Arrays
from numpyro_symmetry.traces.mixing import evenly

# what the model computes at the draws as they came is what the trace holds, up to this share of an entry's spread and
# of its size: the trace may have been computed in single precision, or on another machine
_SPREAD_AGAIN, _SIZE_AGAIN = 1e-2, 1e-5
_AGAIN = _SPREAD_AGAIN, _SIZE_AGAIN, 0.99
# or up to so many times what rounding was seen to do: a long sum of logs leaves a probability fewer digits than it has
_ROUNDING_AGAIN = 10
# two runs of the same program differ by the order of their sums alone
_SPREAD_SAME, _ROUNDINGS_SAME = 1e-3, 8
_MAX_DRAWS_AT_ONCE, _MAX_GUESSES = 256, 100
_REMEDY = "pass the model_args it was computed with"


class Roles(NamedTuple):
    """Names of a model's sites by what they are, and shapes of the latent ones."""

    shapes: Mapping[str, tuple[int, ...]]
    discrete: frozenset[str]
    computed: frozenset[str]

    @property
    def latent(self) -> frozenset[str]:
        """Latent sites."""
        return frozenset(self.shapes)


# of draws whose model is not known
NO_ROLES = Roles({}, frozenset(), frozenset())


class Carried(NamedTuple):
    """How sites that follow from others were relabelled, or why they were not.

    Attributes
    ----------
    axes
        Site -> axes on which it moves with the labels.
    before, after
        Site -> ``(draw, *event)`` as the trace held it, and as the model computes it at the relabelled draws.
    left_out
        Site -> why it could not be computed again, and what to do.
    unmoved
        Sites that the elements of these draws leave as they are, and others of the group would not.
    still
        Sites that no label moves, as the user says, or the model whose symmetry it is.
    """

    axes: Mapping[str, tuple[AxisEntry, ...]]
    before: Arrays
    after: Arrays
    left_out: Mapping[str, str]
    unmoved: tuple[str, ...] = ()
    still: tuple[str, ...] = ()

    @property
    def label_dependent(self) -> frozenset[str]:
        """Sites that other labels would change, or might."""
        moved = (site for site, entries in self.axes.items() if names_in(entries))
        return frozenset({*moved, *self.before, *self.left_out, *self.unmoved})

    def __repr__(self) -> str:
        fates = {name: f"moved along {describe(entries)}" for name, entries in self.axes.items()}
        fates |= dict.fromkeys(self.after, "computed again")
        fates |= {name: f"left out: {why}" for name, why in self.left_out.items()}
        fates |= dict.fromkeys(self.unmoved, "as it was, for these labels do not change it; others would")
        return "\n".join(["Carried", *(f"  {name}: {fate}" for name, fate in fates.items())])

    _repr_html_ = as_html


NOTHING = Carried({}, {}, {}, {})


class Labelled(NamedTuple):
    """Draws under other labels: elements ``(draw, ...)``, and the sites that they relabel, ``(draw, *event)``."""

    element: Element
    moved: Arrays


def roles_of(model: Model) -> Roles:
    """The roles of a model's sites, found without computing anything."""
    trace = outline(model.function, model.args, dict(model.kwargs), jax.random.key(0))
    return Roles(
        {name: jnp.shape(site["value"]) for name, site in latent_of(trace).items()},
        frozenset(discrete_of(trace)),
        frozenset(name for name, site in trace.items() if site["type"] == "deterministic"),
    )


def of_every_element(state: Mapping[str, Hard], leading: tuple[int, ...], count: int) -> np.ndarray:
    """Draws that show what elements do: some evenly spaced, and all that were moved, if these are few.

    Else the first that had each element; where there are more elements than ``count``, the first at which each slot was
    moved.

    Parameters
    ----------
    state
        Group -> its part of the element of each draw.
    leading
        ``(draw,)`` or ``(chain, draw)``.
    count
        The most of either kind, unless there are more slots.
    """
    num_draws = math.prod(leading)

    def rows(part: Any) -> np.ndarray:
        return np.reshape(part, (num_draws, -1))

    parts = [(part.permutation, np.arange(np.shape(part.permutation)[-1])) for part in state.values()]
    parts += [(part.sign, np.ones(np.shape(part.sign)[-1])) for part in state.values() if part.sign is not None]
    labels = np.concatenate([rows(part) for part, _ in parts], 1)
    moved = np.concatenate([rows(part != still) for part, still in parts], 1)
    shown = np.flatnonzero(moved.any(1))
    if len(shown) > count:
        _, shown = np.unique(labels, axis=0, return_index=True)
        shown = moved.argmax(0) if len(shown) > count else shown
    return np.union1d(shown, evenly(leading, count)[0])


def carry(
    model: Model,
    roles: Roles,
    draws: Arrays,
    sites: Collection[str],
    symmetry: Symmetry,
    relabelled: Labelled,
    at_random: Labelled,
) -> Carried:
    """Find out how sites that a model computes depend on labels, and give them the new ones.

    Parameters
    ----------
    model, roles
        The model, and what its sites are.
    draws
        Site -> ``(draw, *event)`` as the trace holds it.
    sites
        Which sites to look at.
    symmetry
        With sizes.
    relabelled
        All draws, as they were relabelled.
    at_random
        The first draws, relabelled at random: these show what a group may do, and draws under one set of labels do not.

    Returns
    -------
    Carried
        A site that no label changes is in none of its parts. One whose entries move as wholes keeps their bits.
    """
    latent = {site: value for site, value in draws.items() if site in roles.latent}
    few, named = len(next(iter(at_random.moved.values()))), sorted(roles.computed & relabelled.moved.keys())
    first = {site: value[:few] for site, value in latent.items()}
    anew, mixed = (
        here | {site: value for site, value in labelled.moved.items() if site in latent}
        for here, labelled in ((latent, relabelled), (first, at_random))
    )
    try:
        old, new, any_labels = (compute(model, values, {*sites, *named}) for values in (latent, anew, mixed))
        kept = _of_labels(latent, roles.discrete - relabelled.moved.keys(), symmetry)
        kept = kept if kept and not _is_as_likely(model, latent, anew, roles.discrete) else []
        other = {site: np.where(latent[site] > 0, latent[site] - 1, latent[site] + 1) for site in kept}
        if_other = compute(model, latent | other, sites) if kept else old
        others = _others(model, latent, old, {site: draws[site] for site in sites})
        torn = _others(model, anew, new, {site: relabelled.moved[site] for site in named})
    except Exception as error:  # whatever a model says of draws that are not its own
        why = f"the model does not run at these draws ({type(error).__name__}: {error}); {_REMEDY}"
        return NOTHING._replace(left_out=dict.fromkeys(sites, why))
    if torn:
        why = (
            f"the symmetry names {torn}, which the model computes from latent sites that keep their labels: name these"
        )
        return NOTHING._replace(left_out=dict.fromkeys(sites, why))
    axes, before, after, left_out, unmoved = {}, {}, {}, {}, []

    def axes_of(site: str) -> tuple[AxisEntry, ...] | None:
        def moves(entries: tuple[AxisEntry, ...]) -> bool:
            of_all = _moves(old[site], new[site], symmetry, site, entries, relabelled.element)
            return of_all and _moves(old[site][:few], any_labels[site], symmetry, site, entries, at_random.element)

        return next(filter(moves, itertools.islice(_guesses(symmetry, site, old[site].shape[1:]), _MAX_GUESSES)), None)

    for site in sites:
        held = draws[site]
        if site not in old or old[site].shape != held.shape:
            got = old[site].shape[1:] if site in old else "nothing"
            left_out[site] = f"it computes shape {got}, and the trace holds {held.shape[1:]}; {_REMEDY}"
        elif site in others:
            why = "it computes other values, being given other data or drawing what the trace does not hold"
            left_out[site] = f"{why}; {_REMEDY}"
        elif (stays := _is_same(old[site], new[site])) and _is_same(old[site][:few], any_labels[site]):
            continue
        elif not _is_same(old[site], if_other[site]):
            left_out[site] = f"it reads {kept}, which keep their labels while others move: pass labels={{site: group}}"
        elif entries := axes_of(site):
            axes[site] = entries
        elif stays:
            unmoved.append(site)
        else:
            before[site], after[site] = held, new[site].astype(held.dtype)
    return Carried(axes, before, after, left_out, tuple(unmoved))


def compute(model: Model, latent: Arrays, sites: Collection[str]) -> Arrays:
    """What a model computes at given draws ``(draw, *event)``, in the draws' own precision."""
    return _read(model, latent, lambda trace: {site: trace[site]["value"] for site in sites if site in trace})


def _others(model: Model, latent: Arrays, computed: Arrays, held: Arrays) -> list[str]:
    """Sites whose computed values are others than those held, of one shape, by more than rounding explains.

    It explains, at no draw and in no entry, more than it was seen to do there.
    """
    pairs = {site: (computed[site], value) for site, value in held.items() if site in computed}
    unlike = [site for site, (a, b) in pairs.items() if a.shape == b.shape and not _agree(a, b, *_AGAIN)]
    if not unlike:
        return []
    in_full = {site: value.astype(np.float64) if is_floating(value.dtype) else value for site, value in latent.items()}
    exact = compute(model, in_full, unlike)

    def rounding(site: str) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            off = np.nan_to_num(np.abs(computed[site] - exact[site].astype(float)), posinf=0.0)
        at_draw = off.max(tuple(range(1, off.ndim)), keepdims=True)
        return _ROUNDING_AGAIN * np.minimum(at_draw, off.max(0))

    return [site for site in unlike if not _agree(*pairs[site], *_AGAIN, rounding(site))]


def _of_labels(draws: Arrays, sites: Collection[str], symmetry: Symmetry) -> list[str]:
    """Which of some sites may hold labels, by their values."""
    most = max(symmetry.sizes.values())
    return sorted(s for s in draws.keys() & sites if 0 <= draws[s].min(initial=0) <= draws[s].max(initial=0) < most)


def _is_as_likely(model: Model, draws: Arrays, relabelled: Arrays, discrete: Collection[str]) -> bool:
    """Whether data and discrete sites are as likely once relabelled: not so where sites that hold labels kept theirs.

    Other priors are left out, as they may tell labels apart.
    """

    def log_likelihood(trace: Any) -> dict[str, Any]:
        drawn = [x for s, x in trace.items() if x["type"] == "sample" and (x["is_observed"] or s in discrete)]
        return {"": sum(jnp.sum(scale_and_mask(site["fn"].log_prob(site["value"]), site["scale"])) for site in drawn)}

    before, after = (_read(model, values, log_likelihood)[""] for values in (draws, relabelled))
    return _agree(before, after, _SPREAD_AGAIN, _SIZE_AGAIN, 1.0)


def _read(model: Model, latent: Arrays, read: Callable[[Any], dict[str, Any]]) -> Arrays:
    """Values that ``read`` takes off the trace of a model, at each draw."""

    def at_draw(values: dict[str, Any]) -> dict[str, Any]:
        return read(trace_model(model.function, model.args, dict(model.kwargs), jax.random.key(0), values))

    num_draws = len(next(iter(latent.values())))
    at_draws = jax.vmap(at_draw)
    first = jax.eval_shape(at_draws, {s: v[:1] for s, v in latent.items()})
    size = sum(math.prod(x.shape) for x in first.values()) + sum(v[:1].size for v in latent.values())
    step = min(num_draws, _MAX_DRAWS_AT_ONCE, at_once(size))
    # the last piece is filled up, so that one program computes all of them
    pieces = [np.minimum(np.arange(start, start + step), num_draws - 1) for start in range(0, num_draws, step)]
    is_double = any(value.dtype == np.float64 for value in latent.values())
    run = in_double(at_draws, {s: v[pieces[0]] for s, v in latent.items()}) if is_double else jax.jit(at_draws)
    found = [run({s: v[items] for s, v in latent.items()}) for items in pieces]
    return {s: np.concatenate([np.asarray(part[s]) for part in found])[:num_draws] for s in first}


def _guesses(symmetry: Symmetry, site: str, event: tuple[int, ...]) -> Iterator[tuple[AxisEntry, ...]]:
    """Axes on which a site of this shape might move with the labels, those on fewest axes first."""
    groups = symmetry.groups

    def choices(size: int) -> list[AxisEntry]:
        names = [name for name in symmetry.group_names() if symmetry.sizes.get(name) == size]
        return [None, *names, *(Unsigned(name) for name in names if name in groups and groups[name].signed)]

    every = itertools.islice(itertools.product(*map(choices, event)), 10 * _MAX_GUESSES)
    for entries in sorted(every, key=lambda entries: sum(entry is not None for entry in entries)):
        try:
            if Symmetry({site: entries}).group_names():
                yield entries
        except SymmetryError:
            pass  # a fibred group without the axis that it is fibred over


def _moves(
    old: np.ndarray, new: np.ndarray, symmetry: Symmetry, site: str, entries: tuple[AxisEntry, ...], g: Element
) -> bool:
    """Whether the new values are the old ones, moved on these axes."""
    try:
        return _is_same(act({site: old}, symmetry, {site: entries}, from_element(g))[site], new)
    except SymmetryError:  # a sign where there can be none
        return False


def _is_same(a: np.ndarray, b: np.ndarray) -> bool:
    return _agree(a, b, _SPREAD_SAME, _ROUNDINGS_SAME * rounding_of(b.dtype), 1.0)


def _agree(a: np.ndarray, b: np.ndarray, of_spread: float, of_size: float, share: float, rounding: Any = 0.0) -> bool:
    """Whether a share of all draws ``(draw, *event)`` agrees, up to rounding and shares of entries' spread and size."""
    if not is_floating(a.dtype) or not is_floating(b.dtype):
        close = a == b
    else:
        b = b.astype(float)
        with np.errstate(invalid="ignore"):
            # a median: a few large values must not lend their size to the others
            spread = np.nan_to_num(np.median(np.abs(b - np.median(b, 0)), 0), nan=0.0, posinf=0.0)
            close = (np.abs(a - b) <= of_spread * spread + of_size * np.abs(b) + rounding) & np.isfinite(b)
        close |= (a == b) | (np.isnan(a) & np.isnan(b))
    return bool(close.reshape(len(close), -1).all(1).mean() >= share)
