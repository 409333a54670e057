"""Axes of the symmetries people meet most. Plain dicts out; knows neither elements nor arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from numpyro_symmetry.symmetry.arguments import as_names, is_option
from numpyro_symmetry.symmetry.axes import AxisEntry, check_entries, open_axes
from numpyro_symmetry.symmetry.errors import SymmetryError


def mlp_axes(layers: Sequence[tuple[str, str | None]], layout: str) -> dict[str, tuple[AxisEntry, ...]]:
    """Axes of a multilayer perceptron: one group a hidden layer."""
    if not is_option(layout, ("in_out", "out_in")):
        raise SymmetryError(f"layout must be 'in_out' (kernels (in, out)) or 'out_in'; got {layout!r}.")
    if isinstance(layers, str) or not isinstance(layers, Sequence):
        raise TypeError(f"layers must be a list of (kernel, bias) pairs, such as [('w1', 'b1'), ...]; got {layers!r}.")
    for layer in layers:
        if isinstance(layer, str) or not isinstance(layer, Sequence) or len(layer) != 2:
            raise SymmetryError(
                f"Each layer is a pair (kernel site, bias site or None); got {layer!r}. Name the axes of others in "
                "Symmetry({...})."
            )
        kernel, bias = layer
        if not isinstance(kernel, str) or not (bias is None or isinstance(bias, str)):
            raise TypeError(f"Each layer is a pair of the names of sites (kernel, bias or None); got {layer!r}.")
    if len(layers) < 2:
        raise SymmetryError(
            f"An MLP needs at least two (kernel, bias) pairs to have a hidden layer; got {len(layers)}: {list(layers)}."
        )
    names = [site for layer in layers for site in layer if site is not None]
    if repeated := sorted({site for site in names if names.count(site) > 1}):
        raise SymmetryError(
            f"Sites {repeated} stand twice in the layers {list(layers)}; every layer has sites of its own."
        )
    hidden = ["hidden"] if len(layers) == 2 else [f"hidden{i + 1}" for i in range(len(layers) - 1)]
    axes: dict[str, tuple[AxisEntry, ...]] = {}
    for (kernel, bias), before, after in zip(layers, [None, *hidden], [*hidden, None], strict=True):
        axes[kernel] = (before, after) if layout == "in_out" else (after, before)
        if bias is not None and after is not None:
            axes[bias] = (after,)
    return axes


def mixture_axes(sites: Sequence[str], group: str) -> dict[str, tuple[AxisEntry, ...]]:
    """First axis of every site is the component; any further axes are free."""
    if wrong := [site for site in sites if not isinstance(site, str)]:
        raise TypeError(f"Sites are names, one argument each, such as mixture('weights', 'loc'); got {wrong[0]!r}.")
    if not sites:
        raise SymmetryError("A mixture needs at least one site whose first axis is the component; none was named.")
    as_names((group,), "group", example="'component'")
    return {site: (group, ...) for site in sites}


def hmm_axes(
    initial: str | None, transition: str, emissions: Sequence[str], group: str
) -> dict[str, tuple[AxisEntry, ...]]:
    """States along the initial distribution, both axes of the transition matrix and the emissions."""
    as_names((transition,) if initial is None else (transition, initial), "transition, initial", example="('A', 'pi')")
    axes: dict[str, tuple[AxisEntry, ...]] = {} if initial is None else {initial: (group,)}
    axes[transition] = (group, group)
    # none is the transition matrix on its own
    return axes | {site: (group, ...) for site in as_names(emissions, "emissions", example="('loc',)")}


def factor_axes(
    loadings: str, scores: str | None, others: Mapping[str, tuple[AxisEntry, ...]], group: str
) -> dict[str, tuple[AxisEntry, ...]]:
    """Factors along the last axis of loadings and scores."""
    as_names(
        (loadings, group) if scores is None else (loadings, scores, group), "loadings, scores, group", example="('L',)"
    )
    axes: dict[str, tuple[AxisEntry, ...]] = {loadings: (None, group)}
    if scores is not None:
        axes[scores] = (None, group)
    named = {axis.group for site, entries in others.items() for axis in open_axes(check_entries(site, entries))} - {
        None
    }
    if unknown := sorted(map(str, named - {group})):
        raise SymmetryError(f"others names the groups {unknown}; this symmetry has only {group!r}.")
    return axes | dict(others)
