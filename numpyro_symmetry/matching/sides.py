"""Targets and sources of every kind, read into arrays by site.

Values, Gaussians and guides with their parameters become means and standard deviations; shapes and numbers are checked
here, once. Knows Gaussians and symmetries; no costs and no algorithms.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.assignment.family import Arrays, Side
from numpyro_symmetry.matching.costs import ActivationCost
from numpyro_symmetry.matching.full_gaussian import FullGaussian
from numpyro_symmetry.matching.gaussian import DiagonalGaussian
from numpyro_symmetry.symmetry import Element, Hard, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import as_real_array, refuse_masked
from numpyro_symmetry.symmetry.axes import AxisEntry, num_axes
from numpyro_symmetry.symmetry.pytrees import (
    arrays_by_path,
    can_be_moved,
    comes_by_site,
    is_fitted_guide,
    refuse_other_structure,
    replaced,
    uncompared,
)
from numpyro_symmetry.symmetry.restriction import column_axes
from numpyro_symmetry.symmetry.shown import counted

_OF_DRAWS = (
    "`rebase` brings draws to common labels: traces joined along their chains, or one by one with reference=. A "
    "Gaussian of relabelled draws, DiagonalGaussian.fit(out.data, num_leading_dims=2), is matched and merged like any "
    "other."
)
# between these a great many values have a sum of squares that neither overflows nor vanishes
_LARGEST, _SMALLEST = 1e140, 1e-140


def read(side: Any, sites: Collection[str] = ()) -> Any:
    """Values by site or a Gaussian, as they are; a pytree by path; ``(guide, params)`` as the Gaussian it is."""
    if any(hasattr(side, name) for name in ("posterior", "get_samples", "undo")):
        raise SymmetryError(f"Expected a point or a Gaussian; got draws, in {type(side).__name__}. {_OF_DRAWS}")
    if is_fitted_guide(side):
        from numpyro_symmetry.matching.guide_parameters import has_covariance

        guide, params = side
        return (FullGaussian if has_covariance(guide, params) else DiagonalGaussian).from_guide(guide, params)
    if isinstance(side, DiagonalGaussian | FullGaussian):
        return side
    side = arrays_by_path(side) if is_tree(side, sites) else side
    if isinstance(side, Mapping):
        if nested := sorted(str(site) for site, value in side.items() if isinstance(value, Mapping)):
            raise SymmetryError(
                f"Values hold mappings at {nested}, and these hold no arrays: a pytree's leaves are arrays, and values "
                "by site are one for each name."
            )
        refuse_masked(side)
        return side
    remedy = ""
    if isinstance(side, bytes | bytearray | memoryview):
        remedy = " Read what was saved first, such as by flax.serialization.from_bytes(params, data)."
    elif isinstance(side, str | os.PathLike):
        remedy = " Load the file first."
    raise SymmetryError(
        "Expected values by site, a pytree of arrays, a DiagonalGaussian, a FullGaussian or (guide, params); "
        f"got {type(side).__name__}.{remedy}"
    )


def complex_sites(*sides: Any) -> frozenset[str]:
    """Sites at which every side holds complex numbers; none if a side is a Gaussian."""
    by_site = [side for side in sides if isinstance(side, Mapping)]
    complex_in = [{s for s, x in side.items() if can_be_moved(x) and jnp.iscomplexobj(x)} for side in by_site]
    return frozenset.intersection(*map(frozenset, complex_in)) if len(by_site) == len(sides) else frozenset()


def in_pairs(values: Mapping[str, Any], sites: Collection[str]) -> dict[str, Any]:
    """Values with complex numbers as pairs of real ones, along one more axis."""
    return {s: np.stack([np.real(x), np.imag(x)], -1) if s in sites else x for s, x in values.items()}


def from_pairs(values: Mapping[str, Any], sites: Collection[str]) -> dict[str, Any]:
    """The inverse of `in_pairs`."""
    return {s: x[..., 0] + 1j * x[..., 1] if s in sites else x for s, x in values.items()}


def of_pairs(symmetry: Symmetry, sites: Collection[str]) -> Symmetry:
    """The symmetry, bound, on values that hold pairs at these sites: what moves a number moves both of its parts."""
    axes = {site: (*entries, None) if site in sites else entries for site, entries in symmetry.axes.items()}
    return replace(symmetry, axes=axes) if sites else symmetry


def is_tree(side: Any, sites: Collection[str] = ()) -> bool:
    """Whether a side is a pytree of arrays that does not come by site."""
    is_other = isinstance(side, DiagonalGaussian | FullGaussian) or is_fitted_guide(side) or comes_by_site(side, sites)
    return not is_other and bool(arrays_by_path(side))


def refuse_mixed_coordinates(target: Any, source: Any, symmetry: Symmetry) -> None:
    """Refuse to compare a guide, which is read in unconstrained coordinates, with values at a constrained site.

    Raises
    ------
    SymmetryError
        Naming the site whose support is not all of the real line.
    """
    for guide_side, other, name in ((target, source, "source"), (source, target, "target")):
        if not (is_fitted_guide(guide_side) and isinstance(other, Mapping)):
            continue
        from numpyro_symmetry.matching.guide_parameters import constrained_sites

        for site, support in constrained_sites(guide_side[0]).items():
            if site in symmetry.axes:
                raise SymmetryError(
                    f"Site {site!r} has support {support}: the guide is read in unconstrained coordinates, and the "
                    f"{name} holds values. Take the {name} through numpyro.infer.util.unconstrain_fn and pass a "
                    "Gaussian of the guide, DiagonalGaussian.from_guide."
                )


def refuse_draws(side: Any, symmetry: Symmetry, name: str) -> None:
    """Refuse draws where one point, or one Gaussian, is expected: the same axes in front of every site's own.

    Raises
    ------
    SymmetryError
        Naming a site, and what to do with draws.
    """
    by_site = side if isinstance(side, Mapping) else side.loc
    if "draw" in getattr(side, "dims", ()):
        raise SymmetryError(
            f"The {name} is a {type(side).__name__} of draws; expected a point or a Gaussian. {_OF_DRAWS}"
        )
    shapes = {site: np.shape(by_site[site]) for site in symmetry.axes if can_be_moved(by_site.get(site))}
    leading = {_in_front(shape, symmetry.axes[site]) for site, shape in shapes.items()}
    if len(leading) != 1 or not (front := leading.pop()):
        return
    site, shape = next(iter(shapes.items()))
    raise SymmetryError(
        f"Site {site!r} of the {name} has shape {shape}, which looks like draws {front}; expected a point or a "
        f"Gaussian. {_OF_DRAWS} If it is a point, write an entry in the symmetry for each of its "
        f"{counted(len(shape), 'axis')}, None for one that no label moves."
    )


def _in_front(shape: tuple[int, ...], entries: tuple[AxisEntry, ...]) -> tuple[int, ...]:
    """Sizes of a site's axes in front of its entries; of entries with ``...``, of those `rebase` takes for draws."""
    if ... not in entries:
        return shape[: len(shape) - num_axes(entries)]
    return shape[:2] if len(shape) > 2 and shape[0] < shape[1] else ()


def refuse_other_trees(target: Any, source: Any, sites: Collection[str]) -> frozenset[str]:
    """Sites of either side that are not compared; two trees must have one structure.

    Raises
    ------
    SymmetryError
        Naming the first path at which two trees differ.
    """
    if is_tree(target, sites) and is_tree(source, sites):
        refuse_other_structure(target, source, ("the target", "the source"), shapes=False)
    values = (side.loc if isinstance(side, DiagonalGaussian | FullGaussian) else side for side in (target, source))
    return frozenset().union(*(uncompared(side, sites) for side in values if not is_fitted_guide(side)))


def without(symmetry: Symmetry, sites: Collection[str]) -> Symmetry:
    """The symmetry on all sites but these; the whole symmetry if no site would be left."""
    left = [site for site in symmetry.axes if site not in sites]
    return symmetry if len(left) in (0, len(symmetry.axes)) else symmetry.restrict(sites=left)


def completed(symmetry: Symmetry, element: Element, leading: tuple[int, ...]) -> Element:
    """An element of some of the groups as one of the whole symmetry, which does nothing to the other groups."""
    found: Element = {}
    for name, part in symmetry.identity(leading).items():
        mine = Hard.of(element.get(name, part))
        still = Hard.of(part).sign
        found[name] = (mine._replace(sign=still) if mine.sign is None else mine).part()
    return found


def side_of(side: Any, name: str) -> Side:
    """A point or a Gaussian as floating arrays, all of them finite; a full Gaussian without its correlations."""
    if isinstance(side, FullGaussian):
        side = side.diagonal()
    loc, scale = (side.loc, side.scale) if isinstance(side, DiagonalGaussian) else (side, None)

    def floating(by_site: Mapping[str, Any]) -> Arrays:
        return {site: _floating(value, f"Site {site!r} of the {name}") for site, value in by_site.items()}

    found = Side(floating(loc), scale and floating(scale))
    given = [(site, value) for by_site in (found.loc, found.scale or {}) for site, value in by_site.items()]
    sizes = [_largest(value) for _, value in given]
    for (site, value), largest in zip(given, sizes, strict=True):
        if not math.isfinite(largest):
            count = int((~np.isfinite(value)).sum())
            raise SymmetryError(
                f"Site {site!r} of the {name} holds {count} non-finite of {counted(value.size, 'value')}."
            )
        if largest > _LARGEST:
            raise SymmetryError(
                f"Site {site!r} of the {name} holds values up to {largest:.3g}, whose squares are too large for "
                "double precision: divide both sides by a common scale."
            )
    if 0.0 < max(sizes, default=0.0) < _SMALLEST:
        raise SymmetryError(
            f"All values of the {name} are smaller than {_SMALLEST:g}, and their squares vanish in double precision: "
            "multiply both sides by a common scale."
        )
    for site, scale in (found.scale or {}).items():
        if (scale < 0).any():
            raise SymmetryError(
                f"Site {site!r} of the {name} holds {counted(int((scale < 0).sum()), 'negative standard deviation')}."
            )
    return found


def _largest(values: np.ndarray) -> float:
    """The largest absolute value, without an array of absolute values; NaN if any value is NaN."""
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def _floating(value: Any, where: str) -> np.ndarray:
    array = np.asarray(as_real_array(value, where))
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def leading_shape(bound: Symmetry, target: Side, source: Side) -> tuple[int, ...]:
    """The source's leading dimensions: what its sites have beyond the target's shapes."""
    # the target has them all, for the symmetry is bound to it
    if missing := sorted(bound.axes.keys() - source.loc.keys()):
        raise SymmetryError(
            f"Sites {missing} of the symmetry are in the target and not in the source, which has "
            f"{sorted(source.loc)}. Pass them too, or a symmetry without them: symmetry.restrict(sites=...)."
        )
    found: dict[tuple[int, ...], str] = {}
    for site in [site for site in target.loc if site in source.loc]:
        shape, event = source.loc[site].shape, target.loc[site].shape
        if shape[len(shape) - len(event) :] != event:
            raise SymmetryError(
                f"Site {site!r}: the source has shape {shape}, expected it to end in the target's shape {event}."
            )
        found.setdefault(shape[: len(shape) - len(event)], site)
    if len(found) > 1:
        raise SymmetryError(
            f"Sites disagree on their leading dimensions: { ({s: lead for lead, s in found.items()}) }."
        )
    return next(iter(found), ())


def by_activations(cost: ActivationCost, target: Any, source: Any, symmetry: Symmetry) -> tuple[Any, Any, Symmetry]:
    """The units' activations in place of their weights, and the symmetry that acts on their columns."""
    refuse_other_trees(target, source, symmetry.axes)
    given = target, source
    target, source = (read(side, symmetry.axes) for side in given)
    target, source = (side if isinstance(side, Mapping) else side.loc for side in (target, source))
    bound = symmetry.bind(target)
    if not bound.groups:
        raise SymmetryError("The symmetry is trivial: there are no units to match by their activations.")
    if set(target) != set(source):
        raise SymmetryError(f"Target has sites {sorted(target)}, source {sorted(source)}; they must agree.")
    sides = (Side({s: np.asarray(v) for s, v in side.items()}, None) for side in (target, source))
    lead = leading_shape(bound, *sides)

    def forward(side: Any, values: Mapping[str, Any]) -> Any:
        return cost.activations(replaced(side, values) if is_tree(side, symmetry.axes) else dict(values))

    flat = {site: jnp.reshape(jnp.asarray(value), (-1, *np.shape(target[site]))) for site, value in source.items()}
    of_target = forward(given[0], target)
    if not isinstance(of_target, Mapping):
        raise TypeError(
            "activations must return a mapping from groups to arrays, "
            f"{{{next(iter(bound.groups))!r}: (num_data, n)}}; got {type(of_target).__name__}."
        )
    of_source = jax.vmap(lambda values: forward(given[1], values))(flat)
    if set(of_target) != set(bound.groups):
        raise SymmetryError(
            f"activations returned groups {sorted(of_target)}; the symmetry has {sorted(bound.groups)}. "
            "Return one array (num_data, n) for each."
        )
    columns = bound.on_axes(column_axes(bound.groups))
    return of_target, {k: np.reshape(v, lead + np.shape(of_target[k])) for k, v in of_source.items()}, columns
