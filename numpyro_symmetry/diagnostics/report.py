"""What of R-hat and ESS was labels: a trace as it came, relabelled, and in what no label can change, side by side.

Knows containers and ArviZ's statistics; relabels nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jax.typing import ArrayLike

from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.traces import Null, Rebased
from numpyro_symmetry.traces.containers import Trace, read

# above this R-hat chains differ (Vehtari et al. 2021); below this effective size, for every chain, nothing is known
MAX_R_HAT, MIN_ESS_PER_CHAIN = 1.01, 100.0
# labels are ambiguous where the next best are at least 1/20 as likely
AMBIGUOUS = float(np.log(20.0))
# below this share of what relabelling cannot explain, slots have no identity to speak of
_NEAR_NULL = 0.15


class Row(NamedTuple):
    """Diagnostics of one site or invariant: the worst of its entries, before and after."""

    name: str
    r_hat_raw: float
    r_hat: float
    ess_raw: float
    ess: float
    is_invariant: bool


class Report(NamedTuple):
    """What relabelling did, and what it cannot tell. Prints as a table and a reading.

    Attributes
    ----------
    rows
        One for each site the symmetry moves, then one for each invariant, whose two columns agree by definition.
    share_relabelled
        Share of draws whose labels were changed, after the most frequent element is taken as no change.
    ambiguous
        Share of draws whose next best labels are at least a twentieth as likely.
    null
        What relabelling alone explains.
    num_slots
        Group -> number of its labels.
    converged
        Whether relabelling settled.
    warnings
        Sentences that stand in the way of using the relabelled draws.
    """

    rows: tuple[Row, ...]
    share_relabelled: float
    ambiguous: float
    null: Null | None
    num_slots: dict[str, int]
    converged: bool
    warnings: tuple[str, ...]

    @property
    def worst(self) -> Row:
        """The relabelled site or the invariant of largest R-hat."""
        known = [row for row in self.rows if np.isfinite(row.r_hat)] or list(self.rows)
        return max(known, key=lambda row: row.r_hat)

    @property
    def reading(self) -> str:
        """The table in words."""
        return "\n".join((*_facts(self), *self.warnings))

    def __str__(self) -> str:
        return f"{_table(self.rows)}\n\n{self.reading}"


def report(
    raw: Any, out: Rebased, invariants: Mapping[str, ArrayLike] | None = None, *, num_leading_dims: int | None = None
) -> Report:
    """R-hat and effective sample sizes raw, relabelled and of invariants, with the null and what all that means.

    Parameters
    ----------
    raw
        The draws as they were given to `rebase`.
    out
        What it returned.
    invariants
        Name -> ``(chain, draw, ...)`` of what no label changes: predictions at some points, say. The log-likelihood
        and log density of the container, and sums over labels, are always among them.
    num_leading_dims
        For dicts, as in `rebase`.

    Returns
    -------
    Report
        Never says "converged": relabelled draws look alike because they were made to.

    Raises
    ------
    SymmetryError
        If an invariant has other leading dimensions than the draws.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, rebase, report
    >>> rng = np.random.default_rng(0)
    >>> loc = np.array([-3.0, 0.0, 3.0]) + 0.1 * rng.standard_normal((4, 250, 3))
    >>> raw = {"loc": loc[:, :, rng.permutation(3)]}
    >>> raw["loc"][0] = raw["loc"][0][:, [1, 2, 0]]
    >>> out = rebase(raw, Symmetry.mixture("loc"))
    >>> found = report(raw, out)
    >>> found.rows[0].r_hat_raw > 1.5, found.rows[0].r_hat < 1.01
    (True, True)
    """
    before, after = read(raw, out.symmetry, num_leading_dims), read(out.data, out.symmetry, num_leading_dims)
    if before.leading != out.objective.shape:
        raise SymmetryError(f"raw has leading dimensions {before.leading}; rebase saw {out.objective.shape}.")
    # a trace without chains is one chain
    shape = before.leading if len(before.leading) == 2 else (1, before.num_draws)
    sites = list(out.symmetry.axes)
    tables = [_statistics({s: t.values[s] for s in sites}, before.leading, shape) for t in (before, after)]
    rows = [Row(s, tables[0][s][0], tables[1][s][0], tables[0][s][1], tables[1][s][1], False) for s in sites]
    known = _invariants(before, out)
    for name, values in (invariants or {}).items():
        if np.shape(values)[: len(before.leading)] != before.leading:
            raise SymmetryError(
                f"Invariant {name!r} has shape {np.shape(values)}; expected the draws' leading dimensions "
                f"{before.leading} in front."
            )
        if not np.isfinite(values).all():
            raise SymmetryError(
                f"Invariant {name!r} holds {int((~np.isfinite(values)).sum())} values that are not finite."
            )
        known[name] = np.asarray(values)
    for name, (r_hat, ess) in _statistics(known, before.leading, shape).items():
        rows.append(Row(name, r_hat, r_hat, ess, ess, True))
    found = Report(
        tuple(rows),
        _share_relabelled(out),
        float((out.margin < AMBIGUOUS).mean()),
        out.null,
        {name: group.size or 0 for name, group in (out.plain or out).symmetry.groups.items()},
        out.converged,
        (),
    )
    return found._replace(warnings=tuple(_warnings(found, shape)))


def _statistics(values: Mapping[str, Any], leading: tuple[int, ...], shape: tuple[int, int]) -> dict[str, tuple]:
    """Name -> largest R-hat and smallest bulk ESS of its entries."""
    import arviz as library

    arviz: Any = library

    def largest(entries: xr.DataArray) -> float:
        return float(entries.max())

    arrays = {}
    for name, value in values.items():
        flat = np.asarray(value, float).reshape(*shape, -1)
        # an entry that never moves (a fixed corner, a dead input) has no R-hat
        moving = ~(np.ptp(flat.reshape(-1, flat.shape[-1]), axis=0) == 0)
        arrays[name] = (("chain", "draw", f"{name}_entry"), flat[..., moving])
    data = xr.Dataset(arrays)
    found = {}
    for name in arrays:
        one = data[[name]]
        if not one[name].size:
            found[name] = (float("nan"), float("nan"))
            continue
        # R-hat needs two chains, and both need four draws
        enough = shape[1] >= 4
        r_hat = largest(arviz.rhat(one)[name]) if enough and shape[0] > 1 else float("nan")
        ess = -largest(-arviz.ess(one)[name]) if enough else float("nan")
        found[name] = (r_hat, ess)
    return found


def _invariants(trace: Trace, out: Rebased) -> dict[str, np.ndarray]:
    """What is at hand without asking: log density, log-likelihood, and sums over labels of values and squares."""
    found: dict[str, np.ndarray] = {}
    if trace.log_density is not None:
        found["log density"] = trace.log_density
    found |= {f"log likelihood of {name}": value.values for name, value in trace.log_likelihood.items()}
    lead = len(trace.leading)
    symmetry, values = out.symmetry, {site: trace.values[site] for site in out.symmetry.axes}
    if out.view is not None and out.plain is not None:
        symmetry, values = out.plain.symmetry, out.view.open(values)
    for site in symmetry.axes:
        value = values[site].astype(float)
        opened = value.reshape(*trace.leading, *symmetry.opened_shape(site, value.shape[lead:]))
        axes = symmetry.opened(site)
        summed = tuple(k - len(axes) for k, axis in enumerate(axes) if axis.group is not None)
        if not any(axis.signed and symmetry.groups[axis.group].signed for axis in axes if axis.group):
            if np.ptp(opened.sum(summed)) > 1e-5 * np.abs(opened).max(initial=0.0):
                found[f"Σ {site}"] = opened.sum(summed)
        found[f"Σ {site}²"] = np.square(opened).sum(summed)
    return found


def _share_relabelled(out: Rebased) -> float:
    parts = []
    for part in (out.plain or out).elements.values():
        arrays = part if isinstance(part, tuple) else (part,)
        parts += [np.asarray(a).reshape(-1, np.shape(a)[-1]) for a in arrays]
    _, counts = np.unique(np.concatenate(parts, 1), axis=0, return_counts=True)
    return 1.0 - float(counts.max()) / float(counts.sum())


def _table(rows: tuple[Row, ...]) -> str:
    width = max(len(row.name) for row in rows) + 2
    lines = [f"{'':{width}}   R-hat raw  relabelled      ESS raw  relabelled"]
    for kind in (False, True):
        some = [row for row in rows if row.is_invariant is kind]
        if kind and some:
            lines.append("what no label changes")
        for row in some:
            if kind:
                cells = _number(row.r_hat, 24, 3) + _number(row.ess, 25, 0)
            else:
                cells = _number(row.r_hat_raw, 12, 3) + _number(row.r_hat, 12, 3)
                cells += _number(row.ess_raw, 13, 0) + _number(row.ess, 12, 0)
            lines.append(f"{row.name:{width}}{cells}")
    return "\n".join(lines)


def _number(value: float, width: int, digits: int) -> str:
    return f"{'–':>{width}}" if np.isnan(value) else f"{value:{width}.{digits}f}"


def _facts(found: Report) -> list[str]:
    lines = [f"{found.share_relabelled:.0%} of draws had other labels than most."]
    if found.null is not None:
        null = found.null
        lines.append(
            f"Slots explain {null.explained:.0%} of the variance; draws without any identity, relabelled likewise, "
            f"{null.explained_null:.0%}."
        )
        lines += [
            f"{null.num_identified[name]} of {size} slots of {name!r} are clearly further from the others than chance "
            "puts them."
            for name, size in found.num_slots.items()
            if name in null.num_identified
        ]
    invariant = [row.r_hat for row in found.rows if row.is_invariant and np.isfinite(row.r_hat)]
    if invariant:
        lines.append(f"The largest R-hat of what no label changes is {max(invariant):.3f}.")
    return lines


def _warnings(found: Report, shape: tuple[int, int]) -> list[str]:
    num_chains, num_draws = shape
    lines = []
    if num_draws < 4:
        lines.append(f"There are {num_draws} draws to a chain: R-hat and ESS are unknown below four.")
    if not found.converged:
        lines.append("WARNING: relabelling did not settle: many labellings are about as good as each other.")
    moved = [row for row in found.rows if not row.is_invariant]
    fixed = [row for row in found.rows if row.is_invariant]
    if num_chains < 2:
        lines.append("There is one chain: nothing can be said about chains that disagree.")
    if (bad := _largest(fixed)) is not None and bad.r_hat > MAX_R_HAT:
        lines.append(
            f"WARNING: chains disagree on {bad.name}, which no label changes (R-hat {bad.r_hat:.3f}): this is not a "
            "matter of labels. Run longer, or look for modes that chains do not leave."
        )
    if (bad := _largest(moved)) is not None and bad.r_hat > MAX_R_HAT:
        lines.append(
            f"WARNING: chains still disagree on {bad.name} after relabelling (R-hat {bad.r_hat:.3f}): what remains is "
            "not labels either."
        )
    few = [row for row in found.rows if row.ess < MIN_ESS_PER_CHAIN * num_chains]
    if few:
        worst = min(few, key=lambda row: row.ess)
        lines.append(
            f"WARNING: {worst.name} has an effective sample size of {worst.ess:.0f} from {num_chains} chains, too few "
            "to judge them by."
        )
    if found.ambiguous > 0.05:
        lines.append(
            f"WARNING: in {found.ambiguous:.0%} of draws the next best labels are at least a twentieth as likely: "
            "statements about single slots are statements about the relabelling."
        )
    null = found.null
    if null is not None and max(found.num_slots.values()) > 1 and null.share < _NEAR_NULL:
        lines.append(
            "WARNING: slots agree with themselves hardly more than draws without identity do: relabelling made up "
            "what structure there seems to be. Do not interpret single slots."
        )
    if null is not None and null.scale_ratio < 0.95:
        lines.append(
            f"WARNING: relabelling shrinks standard deviations within slots to about {null.scale_ratio:.0%} of the "
            "truth, where slots overlap."
        )
    return lines


def _largest(rows: list[Row]) -> Row | None:
    known = [row for row in rows if np.isfinite(row.r_hat)]
    return max(known, key=lambda row: row.r_hat) if known else None
