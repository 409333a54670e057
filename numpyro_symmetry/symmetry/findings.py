"""Findings on every axis of every latent site, and a table of them. Knows no model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from numpyro_symmetry.symmetry.axes import describe, sites_of_groups
from numpyro_symmetry.symmetry.cancelling import log_cancelling
from numpyro_symmetry.symmetry.shown import as_html

if TYPE_CHECKING:
    from numpyro_symmetry.symmetry.symmetry import Symmetry


# why an array of a function's parameters has no signs: no support says what it may hold, its values do
POSITIVE = "no entry is negative, and none becomes so: it has no signs"
# why an axis has no group whatever is asked, the likelihood alone too
ORDERED = "its support is ordered, which breaks the permutation"


class Finding(NamedTuple):
    """One axis of a site, counted from the right: its group, or why it has none and where that was seen.

    The site is a latent one, or an array of `numpyro.param`. Axis 0 is the site as a whole, which has only signs.
    """

    site: str
    axis: int
    size: int
    group: str
    reason: str
    source: str
    is_parameter: bool = False

    _repr_html_ = as_html


class OutOfReach(NamedTuple):
    """A symmetry of a model that no `Symmetry` expresses: its sites, what may be exchanged, what to write instead.

    Attributes
    ----------
    sites
        The latent sites that would move.
    exchange
        What may be exchanged, in words.
    remedy
        What to write instead.
    """

    sites: tuple[str, ...]
    exchange: str
    remedy: str

    def __str__(self) -> str:
        return f"The model has a symmetry that this version cannot carry: {self.exchange}. {self.remedy}"

    _repr_html_ = as_html


def in_words(symmetry: Symmetry) -> str:
    """The groups, how many elements they have, and what stands on each site."""
    names = [f"{group} on {name!r}" for name, group in symmetry.groups.items()]
    order, sites = "sizes are read off values", symmetry.stacks
    if set(symmetry.sizes) == set(symmetry.group_names()):
        order = f"log|G| = {symmetry.log_order():.1f} nats"
        if idle := log_cancelling(symmetry.groups, [stack.entries for stack in sites.values()]):
            order += f", {idle:.1f} of them of signs that cancel"
    lines = "".join(f"\n  {name}: {describe(stack.entries)}" for name, stack in sites.items())
    return f"Symmetry({' × '.join(names) or 'trivial'}; {order}){lines}"


def explain(symmetry: Symmetry) -> str:
    """The findings of a symmetry as a table for a person; its axes alone if there are none."""
    head = repr(symmetry).partition("\n")[0]
    if not symmetry.findings:
        return "\n".join([repr(symmetry), *map(str, symmetry.out_of_reach)])
    rows = [("site", "axis", "size", "group", "because", "seen at")]
    rows += [
        (
            f"{f.site} (param)" if f.is_parameter else f.site,
            str(f.axis or "whole"),
            str(f.size),
            f.group or "·",
            f.reason,
            f.source,
        )
        for f in symmetry.findings
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([head, *lines, *_of_parameters(symmetry), *map(str, symmetry.out_of_reach)])


def _of_parameters(symmetry: Symmetry) -> list[str]:
    """Remarks on groups that move parameters, of which draws hold none."""
    parameters = {f.site for f in symmetry.findings if f.is_parameter}
    moved = {name: sites for name, sites in sites_of_groups(symmetry.axes).items() if name in symmetry.groups}
    acted_on = {name: sorted(parameters & set(sites)) for name, sites in moved.items() if parameters & set(sites)}
    alone = [name for name in acted_on if set(moved[name]) <= parameters]
    together = [name for name in acted_on if name not in alone]

    left_out = sorted({f.site for f in symmetry.findings if f.is_parameter and f.group} - set(symmetry.axes))

    def sites_of(names: list[str]) -> list[str]:
        return sorted({site for name in names for site in acted_on[name]})

    def said(sites: list[str], what: str) -> list[str]:
        return [f"{', '.join(map(repr, sites))}: of numpyro.param. {what}"] if sites else []

    return [
        *said(
            sites_of(together),
            f"Groups {together} are symmetries of parameters and latent sites together; draws of latent sites alone, "
            "with the parameters held, do not have them.",
        ),
        *said(
            sites_of(alone),
            f"Groups {alone} move parameters alone, and no latent site: there is nothing in draws to relabel.",
        ),
        *said(left_out, "Groups that move these are left out: draws do not."),
    ]
