"""Checks of what `rebase` is given: sites and sizes, labels, draws that are not finite, sites left behind.

Knows symmetries and traces; nothing of relabelling.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from numpyro_symmetry.assignment.passes import chunks_of, computed, each, map_reduce
from numpyro_symmetry.containers import Trace
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, warn
from numpyro_symmetry.symmetry.arguments import is_floating, is_real, to_real
from numpyro_symmetry.symmetry.axes import AxisEntry, names_in
from numpyro_symmetry.symmetry.families import Axes
from numpyro_symmetry.symmetry.findings import ORDERED, POSITIVE
from numpyro_symmetry.symmetry.named import DRAWS, groups_on
from numpyro_symmetry.symmetry.shown import counted
from numpyro_symmetry.traces.acting import on_every_axis, on_sites, refuse_no_labels, refuse_trivial, whole_numbers
from numpyro_symmetry.traces.coordinates import Arrays
from numpyro_symmetry.traces.named import refuse_names_at_odds


def sized(trace: Trace, symmetry: Symmetry) -> Symmetry:
    """The symmetry with the trace's sizes.

    Raises
    ------
    SymmetryError
        If there are no draws, a site does not fit, or there is nothing to relabel.
    """
    if trace.num_draws == 0:
        raise SymmetryError(f"There are no draws: the leading dimensions are {trace.leading}.")
    bound = symmetry.bind(trace.values, num_leading_dims=len(trace.leading))
    refuse_trivial(bound)
    bound = on_every_axis(bound, {site: trace.values[site].ndim - len(trace.leading) for site in bound.axes})
    if not bound.findings:  # those of a model were not read by the names of dimensions
        refuse_names_at_odds(trace.dims, bound.axes)
    return bound


def bind(trace: Trace, symmetry: Symmetry, labels: Mapping[str, str], axes: Axes) -> Symmetry:
    """The symmetry with the trace's sizes, and what else is to be relabelled seen to fit it.

    Raises
    ------
    SymmetryError
        If there are no draws, a site is missing or does not fit, or ``labels`` or ``axes`` name what is not there.
    """
    bound = sized(trace, symmetry)
    others = sorted(set(trace.values) - set(bound.axes))
    for site, group in labels.items():
        if site not in others or group not in bound.groups:
            raise SymmetryError(
                f"labels={{{site!r}: {group!r}}}: expected a site of the data that the symmetry does not name, among "
                f"{others}, and one of its groups {sorted(bound.groups)}."
            )
        refuse_no_labels(site, trace.values[site], group, bound.groups[group].degree)
    for site in axes:
        if site not in others or site in labels:
            raise SymmetryError(
                f"axes={{{site!r}: ...}}: expected a site of the data that neither the symmetry nor labels= name, "
                f"among {others}."
            )
    own = on_sites(bound, axes, {site: trace.values[site].shape[len(trace.leading) :] for site in axes})
    if not bound.findings:
        refuse_names_at_odds(trace.dims, {**bound.axes, **own.axes})
    return bound


def refuse_no_group(whole: Symmetry, part: str) -> None:
    """Refuse a model of which no group was found that draws have, and say what may help.

    Raises
    ------
    SymmetryError
        With what was found of every axis.
    """
    but = " but for one that moves parameters" if whole.groups else ""
    hint = " If the prior alone tells labels apart, pass part='likelihood'." if part == "joint" else ""
    if ordered := [finding.site for finding in whole.findings if ORDERED in finding.reason]:
        hint = (
            f" The support of {ordered} is ordered, so that draws have labels already. To have all sites say which "
            f"label is which, sample a model without the order, and pass order_by={ordered[0]!r}."
        )
    raise SymmetryError(f"The model has no symmetry that could be found{but}.{hint}\n{whole.explain()}")


def on_sites_of_trace(found: Symmetry, trace: Trace) -> Symmetry:
    """A symmetry of a model on those of its sites that the trace holds: without the others, the posterior has it still.

    Raises
    ------
    SymmetryError
        If the trace holds none of them.
    """
    here, absent = ([s for s in found.axes if (s in trace.values) == there] for there in (True, False))
    if not here:
        raise SymmetryError(
            f"The symmetry of the model acts on {absent}, and the draws hold {sorted(trace.values)}: they are of "
            "another model, or have other names."
        )
    if absent:
        warn(
            f"The symmetry of the model acts on {absent} as well, which the draws do not hold: labels are told by "
            f"{here} alone. That is right if the others were drawn and left out. If they were held fixed, the draws do "
            "not have this symmetry: pass the model that was sampled, in which they are data (handlers.condition)."
        )
    return found.restrict(sites=here)


def on_compared_sites(symmetry: Symmetry, trace: Trace) -> tuple[Symmetry, dict[str, tuple[AxisEntry, ...]]]:
    """A symmetry on those of its sites that say which unit is which, and the axes of those that move along."""
    compared = [site for site in symmetry.axes if site not in trace.uncompared]
    if len(compared) in (0, len(symmetry.axes)):
        return symmetry, {}
    left = symmetry.restrict(sites=compared)
    known = set(left.group_names())
    others = {site: entries for site, entries in symmetry.axes.items() if site in trace.uncompared}
    return left, {site: entries for site, entries in others.items() if set(names_in(entries)) <= known}


def warn_of_kept_labels(trace: Trace, bound: Symmetry, settled: Collection[str], changes: Mapping[str, bool]) -> None:
    """Warn of sites that look as if labels moved them, and that nobody speaks of, and of signs that are kept.

    Parameters
    ----------
    trace
        The draws.
    bound
        The symmetry with sizes.
    settled
        Sites of which it is known what labels do to them.
    changes
        Site that the model computes -> whether labels change it.
    """
    _warn_of_signs(trace, bound)
    shared = _Shared.of(trace, bound)
    for site in sorted(set(trace.values) - set(bound.axes) - set(settled)):
        if message := shared.suspicion_of(trace, site):
            warn(f"Site {site!r} {message}")
    for group in trace.left_behind:
        warn(f"Group {group!r} of the container keeps its old labels: only 'posterior' is relabelled.")
    for group, variables in trace.predicted.items():
        for name, array in variables.items():
            event, dims = array.shape[len(trace.leading) :], tuple(map(str, array.dims[len(trace.leading) :]))
            if changes[name] if name in changes else shared.suspicion(name, array, event, dims):
                looks = "" if name in changes else ", and looks as if it had any"
                warn(
                    f"{name!r} in group {group!r} of the container keeps its old labels{looks}: only "
                    "'posterior' is relabelled. Predict again from the relabelled posterior, or relabel it: "
                    f"out.apply({{{name!r}: values}}, axes= or labels=)."
                )
    for group, variables in trace.paired.items():
        for name, array in variables.items():
            if labelled := [dim for dim in map(str, array.dims[len(trace.leading) :]) if dim in shared.dims]:
                warn(
                    f"{name!r} in group {group!r} of the container has dimension {labelled[0]!r}, which group "
                    f"{shared.dims[labelled[0]]!r} permutes, and keeps its old labels: only 'posterior' is relabelled. "
                    f"Compute it again, or relabel it: out.apply({{{name!r}: values}}, axes=)."
                )
    _warn_of_unmoved_variables(trace.unmoved, shared)


def _warn_of_unmoved_variables(unmoved: Mapping[str, xr.DataArray], shared: _Shared) -> None:
    """Warn of coordinates, and of variables without draws, that go by the old labels."""
    for name, array in unmoved.items():
        what = f"{'Coordinate' if name in array.coords else 'Variable'} {name!r}"
        if {*map(str, array.dims)} in ({"chain"}, {"draw"}) or _says_nothing(array):
            continue  # where chains started, say, or which draw it is
        of_draws = any(dim in DRAWS for dim in array.dims)
        relabel = f"make it a variable, data.reset_coords({name!r}), and pass" if of_draws else ""
        if labelled := [dim for dim in map(str, array.dims) if dim in shared.dims]:
            relabel = f" or {relabel} axes=" if of_draws else " or drop it"
            warn(
                f"{what} has dimension {labelled[0]!r}, which group {shared.dims[labelled[0]]!r} permutes, and keeps "
                f"its values, which are of the old labels. Compute it again from the relabelled draws,{relabel}."
            )
        elif of_draws and (found := _as_labels(array, shared.labelled.values())):
            warn(
                f"{what} holds {found}, as labels would, and keeps them. If it holds labels, {relabel} labels=; if it "
                "counts something else, leave it."
            )


def _says_nothing(array: xr.DataArray) -> bool:
    """Whether values are all alike, or number the entries of their dimension."""
    if array.ndim != 1 or array.dtype.kind not in "iuf" or not array.size:
        return False
    values = array.values
    return bool((values == values[0]).all() or (values - values[0] == np.arange(len(values))).all())


def looks_labelled(trace: Trace, bound: Symmetry, sites: Collection[str]) -> set[str]:
    """The sites, among some that the symmetry does not name, that look as if labels moved them."""
    shared = _Shared.of(trace, bound)
    return {site for site in sites if shared.suspicion_of(trace, site)}


def warn_of_left_out_sites(left_out: Mapping[str, str], trace: Trace) -> None:
    """Warn of sites that could not be computed again, and so are not in the relabelled container."""
    for site, why in left_out.items():
        own = trace.values[site].ndim - len(trace.leading)
        entries = ", ".join([*(own - 1) * ["None"], "'group'"]) + "," * (own == 1)
        axes = f"({entries}), or () where none does" if own else "()"
        warn(
            f"Site {site!r} is computed by the model, but could not be computed again from relabelled draws: {why}. It "
            f"is left out, for it may depend on labels. To keep it, say on which of its axes labels act, "
            f"axes={{{site!r}: ...}}: {axes}."
        )


class _Shared(NamedTuple):
    """Sizes, and names of dimensions, by which a site may be seen to have labels.

    Attributes
    ----------
    sizes
        Group -> size, where it has several labels.
    labelled
        The same of groups without signs, whose labels can be values.
    dims
        Name of a dimension -> the group that stands on it.
    """

    sizes: dict[str, int]
    labelled: dict[str, int]
    dims: dict[str, str]

    @staticmethod
    def of(trace: Trace, bound: Symmetry) -> _Shared:
        sizes = {name: group.degree for name, group in bound.groups.items() if group.size != 1}
        labelled = {name: size for name, size in sizes.items() if not bound.groups[name].signed}
        return _Shared(sizes, labelled, groups_on(trace.dims, bound.axes))

    def suspicion_of(self, trace: Trace, site: str) -> str:
        """Why a site of the posterior looks as if it had labels, in words; empty if it does not."""
        event = trace.values[site].shape[len(trace.leading) :]
        return self.suspicion(site, trace.values[site], event, trace.dims.get(site, ("",) * len(event)))

    def suspicion(self, site: str, values: Any, event: tuple[int, ...], dims: tuple[str, ...]) -> str:
        """Why a site looks as if it had labels, and what to do about it, in words; empty if it does not."""
        # a dimension that nobody named is told by its size alone
        unnamed = [not d or d.startswith(f"{site}_dim_") for d in dims]
        entries = [
            self.dims.get(dim) or (plain and " or ".join(name for name, n in self.sizes.items() if n == size)) or None
            for dim, size, plain in zip(dims, event, unnamed, strict=True)
        ]
        named = [dim for dim in dims if dim in self.dims]
        if not named and (labels := _as_labels(values, self.labelled.values())):
            group = repr(next(iter(self.labelled))) if len(self.labelled) == 1 else "group"
            counted_from_one = f"to {max(self.labelled.values())}" in labels
            return (
                f"holds {labels}, as labels would, and keeps its labels. If it holds labels, pass labels={{{site!r}: "
                f"{group}}}{' after subtracting one from it' * counted_from_one}; if it counts something else, "
                "leave it."
            )
        if not any(entries):
            return ""
        found = (
            f"has dimension {named[0]!r}, which group {self.dims[named[0]]!r} permutes elsewhere,"
            if named
            else f"has shape {event}, with an axis as long as a group,"
        )
        group = next(filter(None, entries))
        axes = f"({', '.join(map(repr, entries))}{',' * (len(entries) == 1)})"
        return (
            f"{found} and keeps its labels. If it has an entry for each {group!r}, relabel it too: axes={{{site!r}: "
            f"{axes}}}; if it holds labels, pass labels={{{site!r}: {group!r}}}; if no label moves it, "
            f"axes={{{site!r}: ()}}. With model=, deterministic sites of the model are moved or computed again."
        )


def _as_labels(values: Any, sizes: Collection[int]) -> str:
    """In which way values could be labels of a group of some of these sizes, in words; empty if in none."""
    size = max(sizes, default=0)
    if not is_real(values.dtype) or size < 2:
        return ""
    if values.dtype == bool:
        here = values.data if isinstance(values, xr.DataArray) else values
        return "truth values" if 2 in sizes and whole_numbers(here) == (here.size, 0, 1) else ""
    # most sites are seen not to be whole in their first number, which may be missing
    count, low, high = 0, 0.0, 0.0
    for part in (values[(slice(1),) * values.ndim], values):
        found = whole_numbers(part.data if isinstance(part, xr.DataArray) else part)
        if found is None or found[1] < 0 or found[2] > size:
            return ""
        count, low, high = found
    # a float of one value is a constant, and labels are counted from zero or from one
    if not count or (high == low and (is_floating(values.dtype) or high == size)) or (high == size and low == 0):
        return ""
    missing = ", some of them missing" if count < values.size else ""
    return f"{'integers' if values.dtype.kind in 'iu' else 'whole numbers'} from {low:.0f} to {high:.0f}{missing}"


def refuse_bad_draws(draws: Arrays, leading: tuple[int, ...]) -> None:
    """Refuse draws that are not finite real numbers, naming the site and the first of them."""
    for site, values in draws.items():
        _refuse_no_numbers(site, values)
        if is_floating(values.dtype):
            _refuse_not_finite(site, np.concatenate(each(values, _not_finite)), leading)


def _warn_of_signs(trace: Trace, bound: Symmetry) -> None:
    """Say which sites the symmetry was found to keep positive, though draws in memory are negative."""
    positive = {finding.site for finding in bound.findings if finding.reason == POSITIVE}
    in_memory = {site: x for site, x in trace.values.items() if site in positive and isinstance(x, np.ndarray)}
    if names := sorted(site for site, x in in_memory.items() if (x < 0).any()):
        warn(
            f"The symmetry was found where no entry of {names} was negative, and leaves out the signs in which they "
            "take part; draws hold negative ones. Find it again at a draw in which each of them has a negative entry."
        )


def warn_of_turned_signs(trace: Trace, bound: Symmetry, axes: Collection[str], moved: Arrays) -> None:
    """Warn of sites, of one sign as they came, whose entries have both once they are relabelled."""
    if not any(group.signed for group in bound.groups.values()):
        return
    draws, is_turned = tuple(range(len(trace.leading))), {}
    # sites of a family exchange their signs with their values
    alone = [stack.sites[0] for stack in bound.stacks.values() if len(stack.sites) == 1]
    for site in [*alone, *axes]:
        old, new = trace.values[site], moved[site]
        has_both = ((new > 0).any(draws) & (new < 0).any(draws)).any()
        is_turned[site] = ((old > 0).all() | (old < 0).all()) & has_both
    is_turned = computed(is_turned) if trace.is_stored else is_turned
    if turned := [site for site, known in is_turned.items() if known]:
        warn(
            f"As they came, all draws of {turned} have one sign; relabelled, entries have both, for signs of other "
            "sites change within the chains and not theirs. Is it a scale, which the sign of a unit leaves alone? Then "
            "say so on its axis, Unsigned(group)."
        )


def drawn_at(draws: Arrays, which: np.ndarray, leading: tuple[int, ...]) -> Arrays:
    """Some of the draws, of ascending indices, in memory, once all of them are seen to be finite real numbers.

    What Dask reads is read once, and no more of it kept than is asked for.

    Raises
    ------
    SymmetryError
        As `refuse_bad_draws`.
    """
    found = {}
    for site, values in draws.items():
        _refuse_no_numbers(site, values)
        bad, some = zip(*map_reduce(values, chunks_of(values), partial(_seen_and_kept, which))[0], strict=True)
        _refuse_not_finite(site, np.concatenate(bad), leading)
        # in one order of memory, on which sums depend
        found[site] = np.ascontiguousarray(np.concatenate(some))
    return found


def _seen_and_kept(which: np.ndarray, values: Any, items: slice) -> tuple[tuple[np.ndarray, np.ndarray], None]:
    here = values[items]
    low, high = np.searchsorted(which, (items.start, items.stop))
    return (_not_finite(here), here[which[low:high] - items.start]), None


def _not_finite(values: np.ndarray) -> np.ndarray:
    return np.asarray(~np.isfinite(values).reshape(len(values), -1).all(1))


def _refuse_no_numbers(site: str, values: Any) -> None:
    if not is_real(values.dtype):
        remedy = to_real(values.dtype)
        raise SymmetryError(f"Site {site!r} holds values of type {values.dtype}; expected real numbers.{remedy}")


def _refuse_not_finite(site: str, bad: np.ndarray, leading: tuple[int, ...]) -> None:
    if bad.any():
        where = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), leading))
        raise SymmetryError(
            f"Site {site!r} is not finite in {int(bad.sum())} of {counted(len(bad), 'draw')}, first in draw {where}. "
            "Drop those draws, or find out why the sampler made them."
        )
