"""What was found on every axis of every latent site, and a table of it. Knows no model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numpyro_symmetry.symmetry.symmetry import Symmetry


class Finding(NamedTuple):
    """One axis of a latent site, counted from the right: its group, or why it has none and where that was seen.

    Axis 0 is the site as a whole, which has only signs.
    """

    site: str
    axis: int
    size: int
    group: str
    reason: str
    source: str


def explain(symmetry: Symmetry) -> str:
    """The findings of a symmetry as a table for a person; its axes alone if there are none."""
    head = repr(symmetry).partition("\n")[0]
    if not symmetry.findings:
        return repr(symmetry)
    rows = [("site", "axis", "size", "group", "because", "seen at")]
    rows += [
        (f.site, str(f.axis or "whole"), str(f.size), f.group or "·", f.reason, f.source) for f in symmetry.findings
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([head, *lines])
