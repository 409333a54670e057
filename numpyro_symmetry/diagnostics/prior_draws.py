"""Relabelled draws with units drawn again from the prior: which sites allow that, and the draws with it done.

Knows `Rebased` and models; computes no distances.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from numpyro_symmetry.assignment.family import Side, State, family_of
from numpyro_symmetry.assignment.problem import axes_of
from numpyro_symmetry.containers import Trace
from numpyro_symmetry.diagnostics.label_free import Arrays, moved
from numpyro_symmetry.models import Model, latent_of, outline, trace_model, without_wrappers
from numpyro_symmetry.models.sites import drawn_shape, is_improper
from numpyro_symmetry.symmetry import Complement, Hard, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.axes import AxisEntry, names_in, padded
from numpyro_symmetry.symmetry.hard import fibred_over
from numpyro_symmetry.traces import Rebased
from numpyro_symmetry.traces.relabel import relabel

Slot = tuple[str, int]


def refuse_other_slots(out: Rebased) -> None:
    """Refuse slots in which draws of the prior cannot be placed.

    Raises
    ------
    SymmetryError
        If the prior lacks the symmetry, the draws were not placed by their values, or units move in blocks that move.
    """
    if out.part == "likelihood":
        raise SymmetryError(
            "The symmetry is the likelihood's alone: the prior tells labels apart, so that a unit has as many priors "
            "as there are labels. Slots are compared with a prior only where it has the symmetry too."
        )
    if not out.frame.read:
        raise SymmetryError(
            f"The draws were relabelled by {type(out.frame.cost).__name__}, which does not compare values, and draws "
            "of the prior have nothing else. Relabel with GaussianCost() or EuclideanCost()."
        )
    groups = out.view.symmetry.groups
    if blocks := sorted({label for name in groups for label in fibred_over(name) if label in groups}):
        raise SymmetryError(
            f"Groups {blocks} move blocks in which units move too: relabel one of the two levels, symmetry.restrict."
        )


class SitesToDraw(NamedTuple):
    """Sites of the symmetry whose units are independent given all other sites, and those others."""

    redrawn: list[str]
    given: list[str]


def sites_to_draw(out: Rebased, model: Model, trace: Trace) -> SitesToDraw:
    """The sites that are drawn again, and those that they are drawn given.

    Raises
    ------
    SymmetryError
        If sites are missing in the model or in the draws, or have another shape there, or no site can be drawn again,
        for its prior ties units to each other or is improper.
    """
    latent = latent_of(outline(model.function, model.args, dict(model.kwargs), jax.random.key(0)))
    if unknown := sorted(set(out.symmetry.axes) - set(latent)):
        raise SymmetryError(f"The model draws no sites {unknown} that were relabelled; it draws {sorted(latent)}.")
    if improper := [site for site in out.symmetry.axes if is_improper(latent[site]["fn"])]:
        raise SymmetryError(f"The prior of {improper} is improper, and has no draws.")
    redrawn = [site for site, entries in out.symmetry.axes.items() if not _is_tied(latent[site]["fn"], entries)]
    if not redrawn:
        raise SymmetryError(
            f"The prior ties the units of every site of the symmetry ({', '.join(out.symmetry.axes)}) to each other "
            "(a Dirichlet's weights, say): there is none of which one unit could be drawn."
        )
    # discrete sites were summed out, and are drawn again as well
    given = [site for site in latent if site not in redrawn and not latent[site]["fn"].support.is_discrete]
    if missing := sorted(set(given) - set(trace.values)):
        raise SymmetryError(
            f"out.data holds no draws of the model's sites {missing}, given which units have their prior: pass "
            "rebase all of the posterior's sites."
        )
    for site in (*out.symmetry.axes, *given):
        own, expected = trace.values[site].shape[len(trace.leading) :], drawn_shape(latent[site])
        if own != expected:
            raise SymmetryError(
                f"The model draws site {site!r} in shape {expected}, and out.data holds {own}: pass the model and the "
                "arguments that the posterior is of."
            )
    return SitesToDraw(redrawn, given)


def _is_tied(fn: Any, entries: tuple[AxisEntry, ...]) -> bool:
    """Whether a distribution is joint over units: its event has an axis that a group permutes, or a complement."""
    joint = without_wrappers(fn).event_dim
    last = padded(entries, max(joint, len(entries)))[-joint:] if joint else ()
    return bool(names_in(last)) or any(isinstance(entry, Complement) for entry in entries)


class Sides(NamedTuple):
    """Relabelled draws and draws of the prior, in pieces of a plain symmetry, ``(draw, *event)``.

    Attributes
    ----------
    out
        What `rebase` returned: the slots are its.
    tested
        The plain symmetry on the pieces that are drawn again.
    own, prior
        Piece -> the relabelled draws; and these draws with every unit drawn again, in no slots yet.
    """

    out: Rebased
    tested: Symmetry
    own: Arrays
    prior: Arrays

    def placed(self, slots: Collection[Slot], rng: np.random.Generator) -> tuple[Arrays, Arrays]:
        """The draws placed in slots anew, and the draws with the units of these slots drawn again, placed alike.

        The units of these slots are shuffled first in both, so that a search which ends in a local optimum does not
        favour the former.
        """
        mixed = moved(self.out.view.symmetry, self.own, self._shuffled(slots, rng))
        again = {name: np.where(self.of_slots(name, slots), self.prior[name], x) for name, x in mixed.items()}
        return self._placed(mixed), self._placed(again)

    def _placed(self, draws: Arrays) -> Arrays:
        plain, frame = self.out.view.symmetry, self.out.frame
        num_draws = len(next(iter(draws.values())))
        source = Side.of_pieces(draws, (num_draws,), self.out.view)
        family = family_of(frame.cost, source, plain, frame.read)
        return moved(plain, draws, relabel(family, plain.groups, frame.point, max_rounds=1).state)

    def _shuffled(self, slots: Collection[Slot], rng: np.random.Generator) -> State:
        """For each draw an element that moves these slots at random, and leaves the others."""
        state: State = {}
        for name, group in self.out.view.symmetry.groups.items():
            own = [slot for owner, slot in slots if owner == name]
            order = np.tile(np.arange(group.degree, dtype=np.int32), (len(next(iter(self.own.values()))), 1))
            sign = np.ones_like(order) if group.signed else None
            if sign is not None:
                sign[:, own] = rng.choice([-1, 1], sign[:, own].shape)
            order[:, own] = rng.permuted(order[:, own], axis=1)
            state[name] = Hard(order, sign)
        return state

    def of_slots(self, name: str, slots: Collection[Slot]) -> np.ndarray:
        """Mask of the entries of a piece that belong to these slots."""
        event = self.own[name].shape[1:]
        shape, axes = axes_of(self.tested, name, event)
        found = np.zeros(shape, bool)
        for k, axis in enumerate(axes):
            own = [slot for group, slot in slots if group == axis.group]
            np.moveaxis(found, k, 0)[own] = True
        return found.reshape(event)


def sides_of(out: Rebased, model: Model, flat: Arrays, sites: SitesToDraw, draws: np.ndarray, key: Array) -> Sides:
    """Relabelled draws of indices ``draws``, out of ``flat`` by site: as they are, and with every unit drawn again."""
    view = out.view
    # NaN, which no arithmetic hides, marks the pieces that hold nothing but sites drawn again
    marks = {s: np.full((1, *shape), np.nan if s in sites.redrawn else 0.0) for s, shape in view.shapes.items()}
    free = [name for name, mark in view.open(marks).items() if np.isnan(mark).all()]
    tested = view.symmetry.restrict(sites=[name for name in view.symmetry.axes if name in free])
    own = {site: np.asarray(flat[site][draws], float) for site in view.shapes}
    prior = own | _drawn(key, model, {site: flat[site][draws] for site in sites.given}, sites.redrawn, len(draws))
    return Sides(out, tested, view.open(own), view.open(prior))


def _drawn(key: Array, model: Model, given: Arrays, sites: Collection[str], num_draws: int) -> Arrays:
    """Draws ``(draw, *event)`` of these sites of a model given its other sites, draw by draw."""

    def one(draw: tuple[Array, dict[str, Array]]) -> dict[str, Array]:
        trace = trace_model(model.function, model.args, dict(model.kwargs), *draw)
        return {site: trace[site]["value"] for site in sites}

    # draw after draw: a program for a batch of random keys takes longer to compile than these take to draw
    found = jax.jit(lambda draws: jax.lax.map(one, draws))((jax.random.split(key, num_draws), given))
    return {site: np.asarray(value, float) for site, value in found.items()}
