"""What relabelling did, in a few lines: for a person who prints it, or ends a notebook's cell with it.

Knows no containers and no algorithms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from numpyro_symmetry.symmetry.hard import from_element
from numpyro_symmetry.symmetry.shown import counted, each_of, some_of

if TYPE_CHECKING:
    from numpyro_symmetry.symmetry import Element
    from numpyro_symmetry.traces.null import Null
    from numpyro_symmetry.traces.rebased import Rebased

# below this margin labels are ambiguous: the next best are at least 1/20 as likely
A_GUESS = math.log(20.0)


def describe(out: Rebased) -> str:
    """A `Rebased` in about five lines."""
    leading = " × ".join(map(str, out.objective.shape))
    groups = " × ".join(f"{group} on {name!r}" for name, group in out.symmetry.groups.items())
    settled = "settled" if out.converged else "not settled"
    cost = type(out.frame.cost).__name__
    guesses = float(np.mean(out.margin < A_GUESS))
    margin = f"median {np.median(out.margin):.3g} nats; others at least a twentieth as likely in {guesses:.0%}"
    lines = [
        f"Rebased: {counted(leading, 'draw')} of {', '.join(out.symmetry.axes)} ({type(out.data).__name__})",
        f"  group   {groups}{of_part(out.part)}; log|G| = {out.symmetry.log_order():.1f} nats",
        f"  labels  {share_relabelled(out.elements):.0%} of draws came with labels other than the most common; {cost}, "
        f"{counted(out.num_rounds, 'round')}, {settled}",
        f"  margin  {'none: there are no other labels' if np.isinf(out.margin).all() else margin}",
        f"  null    {_null_of(out)}",
    ]
    fate = {
        "moved along": list(out.carried.axes),
        "computed again": [site for site in out.carried.after if site not in out.symmetry.axes],
        "left out": list(out.carried.left_out),
    }
    if told := [f"{what}: {', '.join(sites)}" for what, sites in fate.items() if sites]:
        lines.append(f"  beside  {'; '.join(told)}")
    return "\n".join(lines)


def _null_of(out: Rebased) -> str:
    if out.null is not None:
        return describe_null(out.null)
    return "not asked for" if out.objective.size > 1 else "none, of a single draw"


def of_part(part: str) -> str:
    """Whose symmetry it is, where not the posterior's."""
    return "" if part == "joint" else f", of the {part} alone"


def describe_null(null: Null) -> str:
    """A `Null` in one line."""
    slots = []
    for (size, number), groups in null.groups_alike.items():
        several = some_of(list(map(repr, groups)))
        if number is None:
            slots.append(f"{several} {'has one slot' if len(groups) == 1 else 'have one slot each'}")
        elif isinstance(number, int):
            slots.append(f"{number} of {size} slots of {each_of(groups)} identified")
        else:
            slots.append(f"identified slots of {several}: {number}")
    return (
        f"slots explain {null.explained:.0%} of the variance ({null.explained_null:.0%} for shuffled draws relabelled "
        f"in the same way); {', '.join(slots)}"
    )


def share_relabelled(elements: Element) -> float:
    """Share of draws with another element than the most frequent one."""
    arrays = [x.reshape(len(x), -1) for part in from_element(elements).values() for x in part if x is not None]
    counts = np.unique(np.concatenate(arrays, 1), axis=0, return_counts=True)[1]
    return 1.0 - float(counts.max()) / float(counts.sum())
