"""What `rebase` is given, checked: sites and sizes, labels, draws that are not finite, and what would be left behind.

Knows symmetries and traces; nothing of relabelling.
"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.symmetry import Symmetry, SymmetryError, SymmetryWarning, Unsigned
from numpyro_symmetry.symmetry.axes import num_axes
from numpyro_symmetry.traces.containers import Trace
from numpyro_symmetry.traces.coordinates import Arrays


def bind(trace: Trace, symmetry: Symmetry, labels: dict[str, str]) -> Symmetry:
    """The symmetry with the trace's sizes; warns of sites that are moved by nobody and look as if they should be."""
    if trace.num_draws == 0:
        raise SymmetryError(f"There are no draws: the leading dimensions are {trace.leading}.")
    bound = symmetry.bind(trace.values, num_leading_dims=len(trace.leading))
    for site, entries in bound.axes.items():
        if num_axes(entries) > trace.values[site].ndim - len(trace.leading):
            raise SymmetryError(
                f"Site {site!r} has shape {trace.values[site].shape}, of which {trace.leading} count draws; its "
                f"{num_axes(entries)} axes in the symmetry do not fit into the rest."
            )
    if not bound.groups:
        raise SymmetryError("The symmetry is trivial: there is nothing to relabel.")
    for site, group in labels.items():
        if site not in trace.values or group not in bound.groups or site in bound.axes:
            raise SymmetryError(
                f"labels={{{site!r}: {group!r}}}: expected a site of the data that the symmetry does not name, among "
                f"{sorted(set(trace.values) - set(bound.axes))}, and one of its groups {sorted(bound.groups)}."
            )
    _warn_of_what_is_left_behind(trace, bound, labels)
    return bound


def _warn_of_what_is_left_behind(trace: Trace, bound: Symmetry, labels: dict[str, str]) -> None:
    sizes = {group.size or 0 for group in bound.groups.values() if group.kind == "permutation"} - {1}
    largest = max(sizes, default=0)
    dims = {
        dim: getattr(entry, "group", entry)
        for site, entries in bound.axes.items()
        for dim, entry in zip(trace.dims.get(site, ())[::-1], entries[::-1], strict=False)
        if isinstance(entry, str | Unsigned)
    }
    for site in sorted(set(trace.values) - set(bound.axes) - set(labels)):
        values = trace.values[site]
        event = values.shape[len(trace.leading) :]
        # a dimension that nobody named is told by its size alone
        unnamed = [not d or d.startswith(f"{site}_dim_") for d in trace.dims.get(site, ("",) * len(event))]
        if shared := [dim for dim in trace.dims.get(site, ()) if dim in dims]:
            found = f"has dimension {shared[0]!r}, which group {dims[shared[0]]!r} permutes elsewhere, and"
        elif values.dtype.kind in "iu" and values.size and values.min() >= 0 and int(values.max()) < largest:
            found = f"holds integers from {values.min()} to {values.max()}, as labels would, and"
        elif any(size in sizes and plain for size, plain in zip(event, unnamed, strict=True)):
            found = f"has shape {event}, with an axis as long as a group, and"
        else:
            continue
        _warn(
            f"Site {site!r} {found} keeps its labels. If it holds labels, pass labels={{{site!r}: group}}. If it "
            "has an entry for each, name it in the symmetry (with None for axes that no group permutes), or drop it "
            "and compute it again."
        )
    for group in trace.left_behind:
        _warn(f"Group {group!r} of the container keeps its old labels: only 'posterior' is relabelled.")


def _warn(message: str) -> None:
    warnings.warn(message, SymmetryWarning, stacklevel=5)


def refuse_bad_draws(draws: Arrays, leading: tuple[int, ...]) -> None:
    """Refuse draws that are not finite real numbers, naming the site and the first of them."""
    for site, values in draws.items():
        if values.dtype.kind not in "fiub":
            raise SymmetryError(f"Site {site!r} holds values of type {values.dtype}; expected real numbers.")
        if values.dtype.kind != "f":
            continue
        bad = ~np.isfinite(values).reshape(len(values), -1).all(1)
        if bad.any():
            where = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), leading))
            raise SymmetryError(
                f"Site {site!r} is not finite in {int(bad.sum())} of {len(values)} draws, first in draw {where}. "
                "Drop those draws, or find out why the sampler made them."
            )


def seed_of(rng_key: Array | None) -> list[int]:
    """Entropy for NumPy's generator from a JAX key, or a fixed one."""
    if rng_key is None:
        return [0]
    data = jax.random.key_data(rng_key) if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key) else rng_key
    return np.asarray(data).ravel().tolist()
